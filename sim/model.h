/*
 * model.h - what is trained: a transformer, an MLP or a convolutional network.
 *
 * Three ways to say it: a Hugging Face config.json as it is, a native object
 * ("kind": "transformer" | "mlp" | "convnet"), or the name of a built-in model
 * (scenarios/models/NAME.json holds either form).
 *
 * Parameter counts are exact: every weight, bias and gain that the published
 * checkpoint holds (tied embeddings once), tested against published counts.
 */
#ifndef LOCKSTEP_SIM_MODEL_H
#define LOCKSTEP_SIM_MODEL_H

#include "core/arena.h"
#include "core/json.h"

typedef enum ModelKind { MODEL_TRANSFORMER, MODEL_MLP, MODEL_CONVNET } ModelKind;
typedef enum Norm { NORM_LAYERNORM, NORM_RMSNORM } Norm;
typedef enum Activation { ACT_GELU, ACT_RELU, ACT_RELU2, ACT_SILU, ACT_N } Activation;
typedef enum Positions { POS_LEARNED, POS_ROPE, POS_ALIBI, POS_NONE } Positions;

extern const char *const activation_names[ACT_N];

typedef struct Transformer {
    uint32_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab, max_seq;
    bool max_seq_said; /* by who asks; a default, or a built-in model's, goes with the task */
    bool gated;        /* ffn = down(act(gate(x)) * up(x)) */
    Norm norm;
    Activation activation;
    /* Its ACT_GELU is the formula with tanh, else erf's: other numbers, as dear. */
    bool gelu_tanh;
    bool gelu_new; /* and Hugging Face writes it in ops */
    bool dropout;  /* its config asks for it (Hugging Face; native ones: never) */
    bool causal;
    Positions positions;
    bool tied_embeddings;

    /* What checkpoints differ in; native ones follow GPT-2 or Llama (model_native.c). */
    bool qkv_bias, out_bias, mlp_bias; /* attention in, attention out, both MLP matmuls */
    bool norm_bias;                    /* LayerNorm with bias */
    bool qk_norm;                      /* a norm over each head's q and k (Qwen 3) */
    bool qk_norm_whole;                /* ... over those of all heads together (OLMo 2) */
    bool qk_norm_own;                  /* ... with weights of each head's own (Command R+) */
    bool qk_norm_plain;      /* ... without weights, and only where they turn (Llama 4) */
    bool parallel_block;     /* attention and MLP read the same input (GPT-NeoX) */
    bool two_norms_parallel; /* parallel_block with a norm for each branch */
    bool sandwich_norm;      /* also norms after attention and MLP (Gemma 2) */
    bool branch_norm;        /* norms after attention and MLP alone (OLMo 2) */
    bool post_norm;          /* norm after the residual add (BERT, OPT-350m) */
    bool final_norm;         /* norm before the head */
    bool embedding_norm;     /* norm after the embedding (BERT) */
    bool head_bias;          /* vocabulary-sized bias on the head (BERT) */
    bool head_transform;     /* dense + activation + norm before the decoder (BERT MLM) */
    bool pooler;             /* dense on the first token (BERT) */
    uint32_t token_types;    /* segment embeddings, 0 = none (BERT: 2) */
    uint32_t position_rows;  /* rows of the learned position table; 0 unless POS_LEARNED */
    uint32_t window;         /* sliding attention window in tokens, 0 = none; */
    uint32_t window_first, window_every; /* of layers first, first + every, ... (Gemma 2) */
    uint32_t window_but_every; /* but not each so-many-th layer (Gemma 3: 6); 0: no exception */
    bool chunked;              /* the window is a chunk, which sees none before it (Llama 4) */
    uint32_t nope_every;    /* each so-many-th layer has no positions (SmolLM 3: 4); 0: none */
    bool sinks;             /* a number a head in attention's softmax (GPT-OSS) */
    uint32_t embedding_dim; /* != hidden when projected in and out (OPT-350m); else hidden */
    bool norm_plain;        /* norms hold no weights at all (OPT without affine norms) */
    bool headless;          /* no projection onto the vocabulary (BertModel, LlamaModel) */
    bool next_sentence;     /* a two-way classifier behind the pooler (BertForPreTraining) */
    uint32_t mtp_layers;    /* that predict further tokens (DeepSeek V3), behind the others */
    bool mtp_asked;         /* by their own key: trained whatever the software does */

    /* Latent attention (DeepSeek): keys and values come out of kv_rank columns, queries out of
     * q_rank, 0 = straight out of the layer's input.  kv_rank = 0: none of this. */
    uint32_t q_rank, kv_rank;
    /* Columns at the end of head_dim with positions; one key's for all heads. */
    uint32_t rope_dim;
    uint32_t value_dim; /* width of a value's head */

    /* Mixture of experts; experts = 0: dense.  See transformer_is_moe and
     * transformer_experts_bias. */
    uint32_t experts, experts_per_token, moe_every, moe_ffn;
    bool plain_experts;         /* without biases, whatever mlp_bias */
    uint32_t shared_expert_ffn; /* width of what every token visits, 0 = none */
    bool router_bias;           /* (GPT-OSS) */
    bool shared_expert_gate;    /* a sigmoid says how much that counts (Qwen 2 MoE) */
    uint32_t dense_first;       /* first layers that stay dense */
    uint32_t expert_groups, groups_per_token; /* a token's experts are all in so many of the
                                                 groups (DeepSeek); 0: anywhere */

    /* What changes the numbers and not their cost. */
    double rope_theta, norm_eps; /* 0: nothing said; a 0 that is said is DBL_MIN */
    const char *other_numerics;  /* more of the kind: "rope_scaling"; NULL: nothing */
} Transformer;

enum { MLP_WIDTHS_MAX = 64, CONVNET_STAGES_MAX = 8 };

typedef struct Mlp {
    uint32_t widths_n, widths[MLP_WIDTHS_MAX]; /* 1024, 4096, 1024: two linear layers */
    Activation activation;
    bool batchnorm;
    bool bias; /* true, as torch.nn.Linear */
} Mlp;

/*
 * ResNet v1.5 as torchvision builds it: a 7x7 stem and a pool that quarter the
 * image, stages of bottleneck blocks (1x1, 3x3, 1x1), each stage but the first
 * halving it in its first 3x3, global pooling, a linear head.  Every convolution
 * is without bias and followed by a batch norm.
 */
typedef struct Convnet {
    uint32_t image, channels_in, classes;
    uint32_t stem_width, stages_n;
    uint32_t blocks[CONVNET_STAGES_MAX]; /* per stage: number of blocks, */
    uint32_t widths[CONVNET_STAGES_MAX]; /* and their inner width */
    uint32_t expansion;                  /* 4: output width = 4 x inner width */
} Convnet;

typedef struct Model {
    const char *name;
    ModelKind kind;
    union {
        Transformer transformer;
        Mlp mlp;
        Convnet convnet;
    } u;
} Model;

/* The largest of each that is read; products then stay below 2^64 (model_shape.c). */
enum {
    MODEL_LAYERS_MAX = 10000,
    MODEL_WIDTH_MAX = 1 << 18, /* hidden */
    MODEL_HEADS_MAX = 1 << 14,
    MODEL_HEAD_DIM_MAX = 1 << 14,
    MODEL_FFN_MAX = 1 << 22,
    MODEL_VOCAB_MAX = 1 << 24,
    MODEL_SEQ_MAX = 1 << 27,
    MODEL_EXPERTS_MAX = 1 << 12,
    MODEL_MTP_MAX = 3 /* that are asked for */
};
#define MODEL_PARAMS_MAX 1e15

/*
 * Reads a model: node is a built-in name (share_dir/models/NAME.json), a path
 * (it holds a '/' or ends in .json) relative to the file the node stands in, or
 * an object.  A file holds an object, never a further name.  Text that model
 * keeps lives in arena.  A Hugging Face config is recognised by "model_type";
 * its keys that change neither cost nor memory are ignored, an unknown
 * model_type is an error, and so are sizes (layers, width, heads, vocabulary)
 * of which only a part is given; none given means transformers' defaults.
 */
bool model_read(Model *model, Arena *arena, JsonNode node, const char *share_dir, Err *err);

/* Puts what the text member key of parent names in its place, so that keys in it can be set. */
bool model_unfold(JsonNode parent, const char *key, const char *share_dir, Err *err);

/* All parameters of the whole model. */
uint64_t model_params(const Model *model);
/* Those that take part for one token (mixture of experts: only the chosen experts). */
uint64_t model_active_params(const Model *model);
/* Those of all experts that tokens are routed to: what ep shares out. */
uint64_t model_expert_params(const Model *model);

/* A transformer's three kinds of parts; together they are model_params. */
uint64_t transformer_embedding_params(const Transformer *t);
uint64_t transformer_block_params(const Transformer *t, uint32_t layer);  /* 0-based */
uint64_t transformer_expert_params(const Transformer *t, uint32_t layer); /* of its experts */
/* All after the last block: final norm, pooler, head; no decoder when tied. */
uint64_t transformer_head_params(const Transformer *t);

/* Is layer a mixture-of-experts block?  Layers moe_every - 1, 2 moe_every - 1, ... are. */
bool transformer_is_moe(const Transformer *t, uint32_t layer);
/* The attention window of layer in tokens, 0 when it sees the whole sequence. */
uint32_t transformer_window(const Transformer *t, uint32_t layer);
/* Have experts biases? */
static inline bool transformer_experts_bias(const Transformer *t)
{
    return t->mlp_bias && !t->plain_experts;
}
/* Layers of a model that stands for t, which is t with so few; like: by layer of t which of them it
 * is like, in the same order, never a later one (model_shallow.c). */
uint32_t transformer_shallow(const Transformer *t, uint32_t *like);
/* Makes learned positions reach to seq tokens, unless their number was said. */
void transformer_lengthen(Transformer *t, uint32_t seq);
/* Does layer do without the model's positions? */
bool transformer_is_nope(const Transformer *t, uint32_t layer);

#endif

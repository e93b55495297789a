/*
 * block_world.h - models and a Build by hand, for the tests of blocks, tensor and lower.
 */
#ifndef LOCKSTEP_TESTS_BLOCK_WORLD_H
#define LOCKSTEP_TESTS_BLOCK_WORLD_H

#include "sim/blocks.h"
#include "tests/check.h"

typedef struct World {
    Scenario s;
    Software sw;
    Graph g;
    Build b;
    Err err;
} World;

static inline Transformer gpt_like(uint32_t layers, uint32_t hidden, uint32_t heads,
                                   uint32_t vocab)
{
    return (Transformer){ .layers = layers,
                          .hidden = hidden,
                          .heads = heads,
                          .kv_heads = heads,
                          .head_dim = hidden / heads,
                          .ffn = 4 * hidden,
                          .vocab = vocab,
                          .max_seq = 1024,
                          .norm = NORM_LAYERNORM,
                          .activation = ACT_GELU,
                          .gelu_new = true,
                          .causal = true,
                          .positions = POS_LEARNED,
                          .position_rows = 1024,
                          .tied_embeddings = true,
                          .qkv_bias = true,
                          .out_bias = true,
                          .mlp_bias = true,
                          .norm_bias = true,
                          .final_norm = true,
                          .embedding_dim = hidden };
}

static inline Transformer llama_like(uint32_t layers, uint32_t hidden, uint32_t heads,
                                     uint32_t kv_heads, uint32_t ffn, uint32_t vocab)
{
    return (Transformer){ .layers = layers,
                          .hidden = hidden,
                          .heads = heads,
                          .kv_heads = kv_heads,
                          .head_dim = hidden / heads,
                          .ffn = ffn,
                          .vocab = vocab,
                          .max_seq = 4096,
                          .gated = true,
                          .norm = NORM_RMSNORM,
                          .activation = ACT_SILU,
                          .causal = true,
                          .positions = POS_ROPE,
                          .final_norm = true,
                          .embedding_dim = hidden };
}

/* Latent attention, heads of 16 columns and 8 with positions; q_rank 0: queries come straight. */
static inline Transformer latent_like(uint32_t q_rank)
{
    Transformer m = llama_like(3, 64, 4, 4, 96, 128);
    m.head_dim = 24;
    m.rope_dim = 8;
    m.value_dim = 12;
    m.q_rank = q_rank;
    m.kv_rank = 20;
    return m;
}

/* Every feature of Transformer that tp can cut in some model. */
enum {
    ZOO_GPT2,
    ZOO_LLAMA,
    ZOO_NEOX,
    ZOO_NEOX_ONE_NORM,
    ZOO_GEMMA,
    ZOO_QWEN,
    ZOO_BERT,
    ZOO_BERT_TWO_TASKS,
    ZOO_OPT,
    ZOO_PLAIN_NORM,
    ZOO_LATENT,
    ZOO_LATENT_DIRECT,
    ZOO_SINKS,
    ZOO_CHUNKS,
    ZOO_BRANCH_NORM,
    ZOO_N
};

static inline Transformer zoo(int i)
{
    Transformer gpt = gpt_like(3, 64, 4, 96), llama = llama_like(3, 64, 4, 2, 96, 128);
    switch (i) {
    case ZOO_NEOX:
    case ZOO_NEOX_ONE_NORM:
        gpt.parallel_block = true;
        gpt.two_norms_parallel = i == ZOO_NEOX;
        gpt.positions = POS_ROPE;
        gpt.position_rows = 0;
        gpt.tied_embeddings = false;
        return gpt;
    case ZOO_GEMMA:
        llama.sandwich_norm = true;
        llama.tied_embeddings = true;
        llama.window = 8;
        llama.window_every = 2;
        llama.activation = ACT_GELU;
        return llama;
    case ZOO_QWEN:
        llama.qk_norm = true;
        llama.qkv_bias = true;
        return llama;
    case ZOO_BERT:
    case ZOO_BERT_TWO_TASKS:
        gpt.pooler = gpt.next_sentence = i == ZOO_BERT_TWO_TASKS;
        gpt.post_norm = true;
        gpt.final_norm = false;
        gpt.embedding_norm = true;
        gpt.token_types = 2;
        gpt.head_transform = true;
        gpt.head_bias = true;
        gpt.causal = false;
        return gpt;
    case ZOO_OPT:
        gpt.embedding_dim = 32;
        gpt.activation = ACT_RELU;
        return gpt;
    case ZOO_PLAIN_NORM:
        gpt.norm_plain = true;
        gpt.norm_bias = false;
        gpt.activation = ACT_RELU2;
        return gpt;
    case ZOO_LATENT:
    case ZOO_LATENT_DIRECT:
        return latent_like(i == ZOO_LATENT ? 28 : 0);
    case ZOO_SINKS: /* GPT-OSS */
        llama.sinks = llama.qkv_bias = llama.out_bias = llama.mlp_bias = true;
        llama.window = 8;
        llama.window_every = 2;
        return llama;
    case ZOO_CHUNKS: /* Llama 4 */
        llama.qk_norm = llama.qk_norm_plain = llama.chunked = true;
        llama.window = 12;
        llama.window_but_every = llama.nope_every = 3;
        return llama;
    case ZOO_BRANCH_NORM: /* OLMo 2, but for its norm of whole queries, which tp cannot cut */
        llama.branch_norm = llama.qk_norm = true;
        return llama;
    case ZOO_LLAMA:
        return llama;
    default:
        return gpt;
    }
}

static inline Mlp mlp_like(bool batchnorm)
{
    return (Mlp){ .widths_n = 5,
                  .widths = { 16, 64, 64, 64, 8 },
                  .activation = batchnorm ? ACT_GELU : ACT_RELU,
                  .batchnorm = batchnorm,
                  .bias = true };
}

static inline Convnet resnet50(void)
{
    return (Convnet){ .image = 224,
                      .channels_in = 3,
                      .classes = 1000,
                      .stem_width = 64,
                      .stages_n = 4,
                      .blocks = { 3, 4, 6, 3 },
                      .widths = { 64, 128, 256, 512 },
                      .expansion = 4 };
}

static inline void world_init(World *w)
{
    *w = (World){ 0 };
    w->s.training = (Training){ .micro_batch = 2,
                                .seq_len = 32,
                                .micro_batches = 1,
                                .precision = DTYPE_BF16,
                                .param_dtype = DTYPE_BF16,
                                .grad_dtype = DTYPE_BF16,
                                .reduce_dtype = DTYPE_BF16,
                                .optimizer = OPT_ADAMW,
                                .master_weights = true };
    w->s.parallel = (Parallel){ .dp = 1, .tp = 1, .pp = 1, .cp = 1, .ep = 1, .gpus = 1 };
    w->sw = (Software){ .fused_attention = true,
                        .fused_qkv = true,
                        .fused_gate_up = true,
                        .fused_gated = true,
                        .fused_elementwise = true,
                        .fused_cross_entropy = true,
                        .fused_optimizer = true,
                        .wgrad_accumulate = true,
                        .tp_async_backward = true,
                        .cp_ring = true,
                        .vocab_multiple = 1,
                        .overlap = { true, true, true, true, true } };
}

static inline void world_transformer(World *w, Transformer m)
{
    world_init(w);
    w->s.model = (Model){ .kind = MODEL_TRANSFORMER, .u.transformer = m };
}

/* A Llama with grouped queries, to be recomputed as the software says. */
static inline void world_selective(World *w)
{
    world_transformer(w, llama_like(1, 64, 4, 2, 96, 128));
    w->s.training.recompute = RECOMPUTE_SELECTIVE;
}

static inline void world_mlp(World *w, Mlp m)
{
    world_init(w);
    w->s.model = (Model){ .kind = MODEL_MLP, .u.mlp = m };
    w->s.training.loss_mse = true;
}

static inline void world_convnet(World *w)
{
    world_init(w);
    w->s.model = (Model){ .kind = MODEL_CONVNET, .u.convnet = resnet50() };
}

/* build_blocks on a world of tp x cp ranks; not sealed yet. */
static inline bool world_build(World *w)
{
    uint32_t tp = w->s.parallel.tp, cp = w->s.parallel.cp, n = tp * cp;
    w->g = (Graph){ .world_n = n, .role_stride = n, .role_extent = 1, .host_group = NONE_U32 };
    w->g.role_of = mem_zero(1, sizeof *w->g.role_of);
    w->g.replica = (GroupDim){ 1, 1, 1, 1 };
    graph_role(&w->g, "stage 0", 0);
    w->b = (Build){
        .s = &w->s, .sw = &w->sw, .g = &w->g, .model_flops_causal = w->b.model_flops_causal
    };
    for (int i = 0; i < GROUP_KIND_N; i++)
        w->b.group[i] = NONE_U32;
    if (tp > 1)
        w->b.group[GROUP_TP] = graph_group(&w->g, "tp", &(GroupDim){ 1, tp, 1, tp }, 1);
    uint32_t heads =
        w->s.model.kind == MODEL_TRANSFORMER ? w->s.model.u.transformer.kv_heads : tp;
    uint32_t repeats = heads < tp ? tp / heads : 1;
    if (repeats > 1)
        w->b.group[GROUP_KV] =
            graph_group(&w->g, "kv", &(GroupDim){ 1, repeats, 1, repeats }, 1);
    if (cp > 1)
        w->b.group[GROUP_CP] = graph_group(&w->g, "cp", &(GroupDim){ tp, cp, 1, cp }, 1);
    return build_blocks(&w->b, &w->err);
}

static inline void world_free(World *w)
{
    graph_free(&w->g);
    arena_free(&w->b.arena);
    w->err = (Err){ 0 };
}

/* ---- looking ---- */

static inline const Segment *world_segment(const World *w, uint32_t segment)
{
    return &w->g.segments[segment];
}

static inline const BlockType *world_type(const World *w, uint32_t block)
{
    return &w->b.types[w->b.blocks[block].type];
}

static inline bool name_is(const World *w, const Op *op, const char *name)
{
    return strcmp(intern_text(&w->g.names, op->name), name) == 0;
}

typedef struct Sums {
    double flops, model_flops, hardware_flops;
    uint64_t comm_bytes[OP_KIND_N], comms_n[OP_KIND_N];
    uint32_t ops_n[OP_KIND_N];
} Sums;

static inline void add_segment(const World *w, uint32_t segment, Sums *sums)
{
    const Segment *s = world_segment(w, segment);
    for (uint32_t i = 0; i < s->op_n; i++) {
        const Op *op = &graph_ops(&w->g, s)[i];
        sums->flops += op->flops;
        sums->model_flops += op_model_flops(op);
        sums->hardware_flops += op->model_flops;
        sums->ops_n[op->kind]++;
        if (op_is_comm(op->kind)) {
            sums->comms_n[op->kind]++;
            sums->comm_bytes[op->kind] += op->u.comm.bytes;
        }
    }
}

static inline Sums sum_block(const World *w, uint32_t block, Variant v)
{
    const BlockType *t = world_type(w, block);
    Sums sums = { 0 };
    add_segment(w, t->forward[v], &sums);
    add_segment(w, t->backward[v][GRAD_BORN], &sums);
    return sums;
}

static inline Sums sum_blocks(const World *w, Variant v)
{
    Sums sums = { 0 };
    for (uint32_t i = 0; i < w->b.blocks_n; i++) {
        const BlockType *t = world_type(w, i);
        add_segment(w, t->forward[v], &sums);
        add_segment(w, t->backward[v][GRAD_BORN], &sums);
    }
    return sums;
}

static inline uint64_t sum_params(const World *w)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < w->b.blocks_n; i++)
        n += world_type(w, i)->elements;
    return n;
}

static inline uint64_t layout_sum(const World *w, uint32_t layout)
{
    uint64_t bytes = 0;
    if (layout == NONE_U32)
        return 0;
    for (uint32_t t = 0; t < w->g.layouts[layout].tensor_n; t++)
        bytes += w->g.tensors[w->g.layouts[layout].tensor_first + t].bytes;
    return bytes;
}

/* The tensor of an argument of an op of a segment. */
static inline const Tensor *arg_tensor(const World *w, const Segment *s, const Op *op,
                                       uint32_t i)
{
    return graph_arg_tensor(&w->g, s, &w->g.args[op->arg_first + i]);
}

/* The n-th op of a kind and phase; NULL when there are fewer. */
static inline const Op *find_op(const World *w, uint32_t segment, OpKind kind, OpPhase phase,
                                uint32_t n)
{
    const Segment *s = world_segment(w, segment);
    for (uint32_t i = 0; i < s->op_n; i++) {
        const Op *op = &graph_ops(&w->g, s)[i];
        if (op->kind == kind && op->phase == phase && n-- == 0)
            return op;
    }
    return NULL;
}

/* The matmuls that the backward of a block does again: "attention.out mlp.up". */
static inline const char *world_redone(const World *w, uint32_t block)
{
    static char text[256];
    uint32_t backward = world_type(w, block)->backward[VARIANT_RECOMPUTE][GRAD_BORN];
    const Op *op;
    *text = '\0';
    for (uint32_t n = 0; (op = find_op(w, backward, OP_MATMUL, PHASE_RECOMPUTE, n)); n++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", n > 0 ? " " : "",
                 intern_text(&w->g.names, op->name));
    return text;
}

/* ---- lives ---- */

enum { WORLD_TENSORS_MAX = 256 };

typedef struct Alive {
    bool now[SLOT_N][WORLD_TENSORS_MAX];
} Alive;

static inline void alive_layout(const World *w, Alive *a, Slot slot, uint32_t layout)
{
    for (uint32_t t = 0; layout != NONE_U32 && t < w->g.layouts[layout].tensor_n; t++)
        a->now[slot][t] = true;
}

/* Walks a segment: what is named must be alive, what is born must not be. */
static inline void walk_lives(const World *w, uint32_t segment, Alive *a)
{
    const Segment *s = world_segment(w, segment);
    for (uint32_t i = 0; i < s->op_n; i++) {
        const Op *op = &graph_ops(&w->g, s)[i];
        for (uint32_t k = 0; k < op->arg_n; k++) {
            const Arg *arg = &w->g.args[op->arg_first + k];
            ASSERT(arg->tensor < WORLD_TENSORS_MAX);
            bool *now = &a->now[arg->slot][arg->tensor];
            if (arg->born)
                CHECK(!*now);
            else
                CHECK(*now);
            *now = true;
        }
        for (uint32_t k = 0; k < op->arg_n; k++) {
            const Arg *arg = &w->g.args[op->arg_first + k];
            if (arg->dies)
                a->now[arg->slot][arg->tensor] = false;
        }
    }
}

static inline bool none_alive(const Alive *a, Slot slot)
{
    for (uint32_t t = 0; t < WORLD_TENSORS_MAX; t++)
        if (a->now[slot][t])
            return false;
    return true;
}

static inline bool all_alive(const World *w, const Alive *a, Slot slot, uint32_t layout)
{
    for (uint32_t t = 0; layout != NONE_U32 && t < w->g.layouts[layout].tensor_n; t++)
        if (!a->now[slot][t])
            return false;
    return true;
}

/*
 * Forward, then backward of one type: everything dies but the gradients and
 * SLOT_DIN.  grads: SLOT_GRAD before and after.
 */
static inline void check_type_lives(const World *w, const BlockType *t, Variant v, GradMode m,
                                    Alive *grads)
{
    Alive a = *grads;
    const Segment *f = world_segment(w, t->forward[v]);
    const Segment *b = world_segment(w, t->backward[v][m]);
    alive_layout(w, &a, SLOT_IN, f->layout[SLOT_IN]);
    alive_layout(w, &a, SLOT_PARAM, f->layout[SLOT_PARAM]);
    alive_layout(w, &a, SLOT_DATA, f->layout[SLOT_DATA]);
    walk_lives(w, t->forward[v], &a);
    CHECK(none_alive(&a, SLOT_LOCAL));
    CHECK(all_alive(w, &a, SLOT_STASH, t->stash_layout[v]));
    CHECK(all_alive(w, &a, SLOT_OUT, f->layout[SLOT_OUT]));
    memset(a.now[SLOT_OUT], 0, sizeof a.now[SLOT_OUT]); /* the next block's */

    alive_layout(w, &a, SLOT_DOUT, b->layout[SLOT_DOUT]);
    if (m != GRAD_BORN)
        alive_layout(w, &a, SLOT_GRAD, b->layout[SLOT_GRAD]);
    walk_lives(w, t->backward[v][m], &a);
    CHECK(none_alive(&a, SLOT_LOCAL) && none_alive(&a, SLOT_STASH) && none_alive(&a, SLOT_IN));
    CHECK(none_alive(&a, SLOT_DOUT) && none_alive(&a, SLOT_DATA));
    CHECK(all_alive(w, &a, SLOT_DIN, b->layout[SLOT_DIN]));
    for (uint32_t p = 0; p < t->params_n; p++)
        CHECK(a.now[SLOT_GRAD][t->params[p].tensor]);
    memcpy(grads->now[SLOT_GRAD], a.now[SLOT_GRAD], sizeof a.now[SLOT_GRAD]);
}

/* All types, variants and ways to write gradients.  A tied head goes before its embedding. */
static inline void check_lives(const World *w)
{
    for (int v = 0; v < VARIANT_N; v++)
        for (int m = 0; m < GRAD_MODE_N; m++) {
            Alive grads = { 0 };
            for (uint32_t i = w->b.blocks_n; i-- > 0;) {
                const BlockType *t = world_type(w, i);
                bool tied = w->b.blocks[w->b.blocks_n - 1].frame_of == i && i == 0;
                Alive own = { 0 };
                check_type_lives(w, t, (Variant)v, (GradMode)m, tied ? &grads : &own);
                if (i + 1 == w->b.blocks_n)
                    grads = own;
            }
        }
}

#endif

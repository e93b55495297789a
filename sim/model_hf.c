/*
 * model_hf.c - Hugging Face config.json files as they are.
 *
 * A family (model_type) is one row: how it calls its sizes, the defaults that
 * transformers 4.57 takes for missing ones, and a function for what its code
 * fixes and the keys that only it has.  Keys that change neither cost nor
 * memory are ignored, but for those that `run` trains by (read_numerics); those that
 * would and are not simulated are refused.
 *
 * null is what Python makes of it: "sliding_window": null is no window where
 * leaving the key out means 4096 (Mistral); a null head count is derived.
 */
#include <stdio.h>
#include <string.h>

#include "sim/model_parts.h"

/* ---- keys shared by several families ---- */

static uint32_t read_u32(JsonObj *o, const char *key, uint32_t min, uint32_t max,
                         uint32_t fallback)
{
    return (uint32_t)json_count(o, key, min, max, fallback);
}

static void read_tie(Transformer *t, JsonObj *o, bool fallback)
{
    t->tied_embeddings = json_bool(o, "tie_word_embeddings", fallback);
}

static void read_attention_bias(Transformer *t, JsonObj *o, bool fallback)
{
    t->qkv_bias = t->out_bias = json_bool(o, "attention_bias", fallback);
}

static void refuse_true(JsonObj *o, const char *key)
{
    if (json_has(o, key) && json_bool(o, key, false))
        o->ok = json_fail(json_member(o->node, key), o->err,
                          "true is not simulated, false allowed");
}

/* 0 = none, also for null. */
static uint32_t read_window(JsonObj *o, uint32_t fallback)
{
    const char *key = "sliding_window";
    if (!json_has(o, key))
        return json_type(json_member(o->node, key)) == JSON_NULL ? 0 : fallback;
    return read_u32(o, key, 1, MODEL_SEQ_MAX, 0);
}

/* Dense layers of a mixture may only come first: [0, 1, ...]. */
static void read_dense_first(Transformer *t, JsonObj *o)
{
    JsonNode list = json_get(o, "mlp_only_layers");
    if (o->ok && list.item && json_type(list) != JSON_ARRAY)
        o->ok = json_fail(list, o->err, "a list of layers is expected, not %s",
                          json_type_name(json_type(list)));
    JsonNode at = json_first(list);
    for (size_t i = 0; o->ok && at.item; at = json_next(at, list, ++i)) {
        if (json_type(at) != JSON_NUMBER || json_value(at) != (double)i)
            o->ok = json_fail(at, o->err,
                              "only the first layers can be dense, %zu is expected here", i);
        t->dense_first++;
    }
}

/* ---- families: what their code fixes, and the keys that only they have ---- */

static void gpt_habit(Transformer *t)
{
    t->norm = NORM_LAYERNORM;
    t->norm_bias = t->qkv_bias = t->out_bias = t->mlp_bias = true;
    t->causal = true;
    t->final_norm = true;
}

static void llama_habit(Transformer *t)
{
    t->norm = NORM_RMSNORM;
    t->gated = true;
    t->causal = true;
    t->positions = POS_ROPE;
    t->final_norm = true;
}

/* transformers' default of the key; attention's and embeddings' are taken to be the same. */
static void read_dropout(Transformer *t, JsonObj *o, const char *key, double by_default)
{
    t->dropout = json_number(o, key, 0, 1, by_default) > 0;
}

static void read_gpt2(Transformer *t, JsonObj *o)
{
    gpt_habit(t);
    read_dropout(t, o, "resid_pdrop", 0.1);
    t->position_rows = t->max_seq;
    read_tie(t, o, true);
    refuse_true(o, "add_cross_attention");
}

static void read_gpt_neox(Transformer *t, JsonObj *o)
{
    gpt_habit(t);
    read_dropout(t, o, "hidden_dropout", 0);
    t->positions = POS_ROPE;
    read_tie(t, o, false);
    read_attention_bias(t, o, true);
    t->parallel_block = t->two_norms_parallel = json_bool(o, "use_parallel_residual", true);
}

static void read_opt(Transformer *t, JsonObj *o)
{
    gpt_habit(t);
    read_dropout(t, o, "dropout", 0.1);
    t->position_rows = t->max_seq + 2; /* OPT looks positions up at an offset of 2 */
    read_tie(t, o, true);
    t->embedding_dim = read_u32(o, "word_embed_proj_dim", 1, MODEL_WIDTH_MAX, t->hidden);
    t->post_norm = !json_bool(o, "do_layer_norm_before", true);
    t->final_norm = !t->post_norm && !json_bool(o, "_remove_final_layer_norm", false);
    t->norm_plain = !json_bool(o, "layer_norm_elementwise_affine", true);
    t->qkv_bias = t->out_bias = t->mlp_bias = json_bool(o, "enable_bias", true);
}

static void read_bert(Transformer *t, JsonObj *o)
{
    static const char *const positions[] = { "absolute" };
    gpt_habit(t);
    read_dropout(t, o, "hidden_dropout_prob", 0.1);
    t->final_norm = false;
    t->post_norm = t->embedding_norm = true;
    t->position_rows = t->max_seq;
    read_tie(t, o, true);
    t->token_types = read_u32(o, "type_vocab_size", 0, MODEL_VOCAB_MAX, 2);
    json_word(o, "position_embedding_type", positions, ARRAY_N(positions), 0);
    t->causal = json_bool(o, "is_decoder", false);
    refuse_true(o, "add_cross_attention");
}

static void read_llama(Transformer *t, JsonObj *o)
{
    llama_habit(t);
    read_tie(t, o, false);
    read_attention_bias(t, o, false);
    t->mlp_bias = json_bool(o, "mlp_bias", false);
}

static void read_mistral(Transformer *t, JsonObj *o)
{
    llama_habit(t);
    read_tie(t, o, false);
    t->window = read_window(o, 4096);
}

static void read_phi3(Transformer *t, JsonObj *o)
{
    llama_habit(t);
    read_tie(t, o, false);
    t->window = read_window(o, 0);
}

static void read_mixtral(Transformer *t, JsonObj *o)
{
    llama_habit(t);
    read_tie(t, o, false);
    t->window = read_window(o, 0);
    t->experts = read_u32(o, "num_local_experts", 1, MODEL_EXPERTS_MAX, 8);
    t->moe_ffn = t->ffn;
    shape_read_experts_per_token(t, o, "num_experts_per_tok", 2);
}

static void read_gemma(Transformer *t, JsonObj *o)
{
    llama_habit(t);
    read_tie(t, o, true);
    read_attention_bias(t, o, false);
}

/* Every other layer, from the first, looks through a window. */
static void read_gemma2(Transformer *t, JsonObj *o)
{
    read_gemma(t, o);
    t->sandwich_norm = true;
    t->window = read_window(o, 4096);
    t->window_every = 2;
}

static void read_qwen2(Transformer *t, JsonObj *o)
{
    llama_habit(t);
    read_tie(t, o, false);
    t->qkv_bias = true;
    if (!json_bool(o, "use_sliding_window", false))
        return;
    t->window = read_window(o, 4096);
    t->window_first = read_u32(o, "max_window_layers", 0, MODEL_LAYERS_MAX, 28);
}

static void read_qwen3(Transformer *t, JsonObj *o)
{
    read_qwen2(t, o);
    t->qk_norm = true;
    read_attention_bias(t, o, false);
}

static void read_qwen_experts(Transformer *t, JsonObj *o, uint32_t experts, uint32_t per_token,
                              uint32_t ffn)
{
    llama_habit(t);
    read_tie(t, o, false);
    if (json_bool(o, "use_sliding_window", false))
        t->window = read_window(o, 4096);
    t->experts = read_u32(o, "num_experts", 0, MODEL_EXPERTS_MAX, experts);
    t->moe_ffn = read_u32(o, "moe_intermediate_size", 1, MODEL_FFN_MAX, ffn);
    t->moe_every = read_u32(o, "decoder_sparse_step", 1, MODEL_LAYERS_MAX, 1);
    shape_read_experts_per_token(t, o, "num_experts_per_tok", per_token);
    read_dense_first(t, o);
}

static void read_qwen2_moe(Transformer *t, JsonObj *o)
{
    read_qwen_experts(t, o, 60, 4, 1408);
    t->qkv_bias = json_bool(o, "qkv_bias", true);
    t->shared_expert_ffn =
        read_u32(o, "shared_expert_intermediate_size", 1, MODEL_FFN_MAX, 5632);
    t->shared_expert_gate = true;
}

static void read_qwen3_moe(Transformer *t, JsonObj *o)
{
    read_qwen_experts(t, o, 128, 8, 768);
    t->qk_norm = true;
    read_attention_bias(t, o, false);
}

/* Its heads have no one width; "head_dim", where a file has it, is that of the rotated part. */
static void read_latent(Transformer *t, JsonObj *o)
{
    if (json_has(o, "head_dim") && json_is_set(json_get(o, "head_dim")))
        o->ok = json_fail(json_member(o->node, "head_dim"), o->err,
                          "with latent attention it is qk_nope_head_dim + qk_rope_head_dim, "
                          "which can be set");
    bool direct = json_type(json_member(o->node, "q_lora_rank")) == JSON_NULL;
    t->q_rank = direct ? 0 : read_u32(o, "q_lora_rank", 1, MODEL_WIDTH_MAX, 1536);
    t->kv_rank = read_u32(o, "kv_lora_rank", 1, MODEL_WIDTH_MAX, 512);
    t->rope_dim = read_u32(o, "qk_rope_head_dim", 1, MODEL_HEAD_DIM_MAX / 2, 64);
    t->head_dim = t->rope_dim + read_u32(o, "qk_nope_head_dim", 1, MODEL_HEAD_DIM_MAX / 2, 128);
    t->value_dim = read_u32(o, "v_head_dim", 1, MODEL_HEAD_DIM_MAX, 128);
    if (json_has(o, "kv_heads") && json_is_set(json_get(o, "kv_heads")))
        o->ok = json_fail(json_member(o->node, "kv_heads"), o->err,
                          "with latent attention every head has keys and values of its own");
    t->kv_heads = t->heads;
}

static void read_deepseek(Transformer *t, JsonObj *o, uint32_t moe_ffn, uint32_t shared,
                          uint32_t per_token, uint32_t dense)
{
    llama_habit(t);
    read_tie(t, o, false);
    read_attention_bias(t, o, false);
    read_latent(t, o);
    if (read_u32(o, "moe_layer_freq", 1, MODEL_LAYERS_MAX, 1) != 1)
        o->ok = json_fail(json_member(o->node, "moe_layer_freq"), o->err,
                          "only 1 is simulated, experts in every layer but the first ones");
    t->moe_ffn = read_u32(o, "moe_intermediate_size", 1, MODEL_FFN_MAX, moe_ffn);
    shape_read_experts_per_token(t, o, "num_experts_per_tok", per_token);
    t->dense_first = read_u32(o, "first_k_dense_replace", 0, MODEL_LAYERS_MAX, dense);
    t->shared_expert_ffn = t->moe_ffn * read_u32(o, "n_shared_experts", 0, 64, shared);
}

static void read_deepseek_v2(Transformer *t, JsonObj *o)
{
    t->experts = read_u32(o, "n_routed_experts", 0, MODEL_EXPERTS_MAX, 64);
    read_deepseek(t, o, 1407, 2, 6, 0);
}

static void read_deepseek_v3(Transformer *t, JsonObj *o)
{
    t->experts = read_u32(o, "n_routed_experts", 0, MODEL_EXPERTS_MAX, 256);
    read_deepseek(t, o, 2048, 1, 8, 3);
}

/* ---- the table ---- */

typedef struct HfKeys {
    ShapeKeys shape;
    const char *activation;
} HfKeys;

#define USUAL_SHAPE \
    .layers = "num_hidden_layers", .hidden = "hidden_size", .heads = "num_attention_heads", \
    .vocab = "vocab_size", .max_seq = "max_position_embeddings"
#define LLAMA_SHAPE \
    USUAL_SHAPE, .ffn = "intermediate_size", .kv_heads = "num_key_value_heads", \
                 .head_dim = "head_dim"

static const HfKeys usual = { { USUAL_SHAPE, .ffn = "intermediate_size" }, "hidden_act" };
static const HfKeys opt = { { USUAL_SHAPE, .ffn = "ffn_dim" }, "activation_function" };
static const HfKeys llama = { { LLAMA_SHAPE }, "hidden_act" };
static const HfKeys latent = {
    { USUAL_SHAPE, .ffn = "intermediate_size", .kv_heads = "num_key_value_heads" }, "hidden_act"
};
static const HfKeys gemma = { { LLAMA_SHAPE }, "hidden_activation" };
static const HfKeys gpt2 = { { .layers = "n_layer",
                               .hidden = "n_embd",
                               .heads = "n_head",
                               .ffn = "n_inner",
                               .vocab = "vocab_size",
                               .max_seq = "n_positions" },
                             "activation_function" };

/* The first words of read_activation stand in the order of Activation, then this. */
enum { WORD_GELU_NEW = ACT_N };

typedef struct Family {
    const char *type;
    void (*read)(Transformer *t, JsonObj *o);
    const HfKeys *keys;
    /* transformers 4.57's defaults; 0: derived, see shape_read */
    uint32_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab, max_seq;
    uint32_t activation; /* a word of read_activation */
} Family;

static const Family families[] = {
    { "gpt2", read_gpt2, &gpt2, 12, 768, 12, 0, 0, 0, 50257, 1024, WORD_GELU_NEW },
    { "gpt_neox", read_gpt_neox, &usual, 44, 6144, 64, 0, 0, 24576, 50432, 2048, ACT_GELU },
    { "opt", read_opt, &opt, 12, 768, 12, 0, 0, 3072, 50272, 2048, ACT_RELU },
    { "llama", read_llama, &llama, 32, 4096, 32, 0, 0, 11008, 32000, 2048, ACT_SILU },
    { "mistral", read_mistral, &llama, 32, 4096, 32, 8, 0, 14336, 32000, 131072, ACT_SILU },
    { "mixtral", read_mixtral, &llama, 32, 4096, 32, 8, 0, 14336, 32000, 131072, ACT_SILU },
    { "qwen2", read_qwen2, &llama, 32, 4096, 32, 32, 0, 22016, 151936, 32768, ACT_SILU },
    { "qwen2_moe", read_qwen2_moe, &llama, 24, 2048, 16, 16, 0, 5632, 151936, 32768, ACT_SILU },
    { "qwen3", read_qwen3, &llama, 32, 4096, 32, 32, 128, 22016, 151936, 32768, ACT_SILU },
    { "qwen3_moe", read_qwen3_moe, &llama, 24, 2048, 32, 4, 0, 6144, 151936, 32768, ACT_SILU },
    { "gemma", read_gemma, &gemma, 28, 3072, 16, 16, 256, 24576, 256000, 8192, ACT_GELU },
    { "gemma2", read_gemma2, &gemma, 26, 2304, 8, 4, 256, 9216, 256000, 8192, ACT_GELU },
    { "phi3", read_phi3, &llama, 32, 3072, 32, 0, 0, 8192, 32064, 4096, ACT_SILU },
    { "deepseek_v2", read_deepseek_v2, &latent, 32, 4096, 32, 0, 192, 11008, 32000, 2048,
      ACT_SILU },
    { "deepseek_v3", read_deepseek_v3, &latent, 61, 7168, 128, 128, 192, 18432, 129280, 4096,
      ACT_SILU },
    { "kimi_k2", read_deepseek_v3, &latent, 61, 7168, 64, 64, 192, 18432, 163840, 131072,
      ACT_SILU },
    { "bert", read_bert, &usual, 12, 768, 12, 0, 0, 3072, 30522, 512, ACT_GELU },
};

/* ---- what sits on top ---- */

static bool ends_in(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static void set_bert_head(Transformer *t, bool pooler, bool vocabulary)
{
    t->pooler = pooler;
    t->headless = !vocabulary;
    t->head_transform = t->head_bias = vocabulary;
    t->next_sentence = pooler && vocabulary;
}

/* architecture NULL: the config does not say, so the form that is pre-trained. */
static bool bert_architecture(Transformer *t, const char *name)
{
    if (!name || ends_in(name, "ForMaskedLM") || ends_in(name, "LMHeadModel"))
        set_bert_head(t, false, true);
    else if (ends_in(name, "ForPreTraining"))
        set_bert_head(t, true, true);
    else if (ends_in(name, "Model"))
        set_bert_head(t, true, false);
    else
        return false;
    return true;
}

static bool decoder_architecture(Transformer *t, const char *name)
{
    if (!name || ends_in(name, "ForCausalLM") || ends_in(name, "LMHeadModel"))
        return true;
    t->headless = ends_in(name, "Model") && !ends_in(name, "HeadsModel");
    return t->headless;
}

static void read_architecture(Transformer *t, JsonObj *o, bool is_bert)
{
    JsonNode list = json_get(o, "architectures");
    JsonNode first = json_first(list);
    if (!o->ok)
        return;
    if (list.item && (json_items_n(list) == 0 || !json_text(first))) {
        o->ok = json_fail(list, o->err, "a list of one class name is expected");
        return;
    }
    const char *name = json_text(first);
    if (!(is_bert ? bert_architecture(t, name) : decoder_architecture(t, name)))
        o->ok = json_fail(first, o->err,
                          "unknown architecture '%.100s', allowed are names that "
                          "end in: %s",
                          name,
                          is_bert ? "ForMaskedLM, ForPreTraining, LMHeadModel, Model"
                                  : "ForCausalLM, LMHeadModel, Model");
}

/* ---- one config ---- */

/* key, or where it is absent the name that most families use, if that is there. */
static const char *alias(JsonObj *o, const char *key, const char *common)
{
    return !json_has(o, key) && json_has(o, common) ? common : key;
}

static void read_activation(Transformer *t, JsonObj *o, const Family *family)
{
    static const char *const words[] = { "gelu",      "relu",     "relu2",
                                         "silu",      "gelu_new", "gelu_pytorch_tanh",
                                         "gelu_fast", "swish",    "relu_squared" };
    static const Activation meaning[] = { ACT_GELU, ACT_RELU, ACT_RELU2, ACT_SILU, ACT_GELU,
                                          ACT_GELU, ACT_GELU, ACT_SILU,  ACT_RELU2 };
    /* Gemma's first configs say it in hidden_act; the later key wins. */
    const char *key = alias(o, family->keys->activation, usual.activation);
    int word = json_word(o, key, words, ARRAY_N(words), (int)family->activation);
    t->activation = meaning[word];
    t->gelu_new = word == WORD_GELU_NEW;
}

/* --set may say a size in lockstep's word for it, which is the same for every family. */
static const char *set_word(JsonObj *o, const char *key, const char *native)
{
    return json_has(o, native) && json_is_set(json_get(o, native)) ? native : key;
}

/* GPT-2 also answers to the usual names, as transformers' attribute_map has it. */
static ShapeKeys present_keys(JsonObj *o, const ShapeKeys *keys)
{
    ShapeKeys k = *keys;
    const ShapeKeys *n = &native_keys;
    k.layers = set_word(o, alias(o, k.layers, usual.shape.layers), n->layers);
    k.hidden = set_word(o, alias(o, k.hidden, usual.shape.hidden), n->hidden);
    k.heads = set_word(o, alias(o, k.heads, usual.shape.heads), n->heads);
    k.max_seq = set_word(o, alias(o, k.max_seq, usual.shape.max_seq), n->max_seq);
    k.kv_heads = set_word(o, k.kv_heads, n->kv_heads);
    k.head_dim = set_word(o, k.head_dim, n->head_dim);
    k.ffn = set_word(o, k.ffn, n->ffn);
    k.vocab = set_word(o, k.vocab, n->vocab);
    return k;
}

/* Newer files spell out each layer's attention; it must be what the other keys say. */
static void check_layer_types(const Transformer *t, JsonObj *o)
{
    JsonNode list = json_get(o, "layer_types");
    JsonNode at = json_first(list);
    if (o->ok && list.item && (!at.item || json_items_n(list) != t->layers))
        o->ok = json_fail(list, o->err, "a list of %" PRIu32 " words is expected", t->layers);
    for (uint32_t l = 0; o->ok && at.item; at = json_next(at, list, ++l)) {
        const char *word = json_text(at);
        const char *want = transformer_window(t, l) ? "sliding_attention" : "full_attention";
        if (!word || strcmp(word, want) != 0)
            o->ok =
                json_fail(at, o->err, "'%s' is expected, as the sliding_window keys say", want);
    }
}

/* A published config states its size.  One that states a part of it has a typo: a default in its
 * place would be another model without a word. */
static void require_sizes(JsonObj *o, const ShapeKeys *keys)
{
    const char *const sizes[] = { keys->layers, keys->hidden, keys->heads, keys->vocab };
    const char *missing = NULL;
    size_t given = 0;
    for (size_t i = 0; i < ARRAY_N(sizes); i++) {
        if (json_has(o, sizes[i]))
            given++;
        else if (!missing)
            missing = sizes[i];
    }
    if (o->ok && given > 0 && missing)
        json_missing(o, missing);
}

static bool is_given(JsonObj *o, const char *key)
{
    return json_has(o, key) && json_type(json_member(o->node, key)) != JSON_NULL;
}

/* What changes the numbers but not their cost: `run` trains by it, or refuses. */
static void read_numerics(Transformer *t, JsonObj *o, const Family *family)
{
    static const char *const eps[] = { "rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps" };
    static const char *const parts[] = { "partial_rotary_factor", "rotary_pct" };
    static const char *const others[] = { "rope_scaling", "rope_parameters",
                                          "attn_logit_softcapping", "final_logit_softcapping" };
    bool neox = family->read == read_gpt_neox, rms = t->norm == NORM_RMSNORM;
    t->norm_eps = family->read == read_bert          ? 1e-12
                  : rms && family->read != read_phi3 ? 1e-6
                                                     : 1e-5;
    t->rope_theta = family->read == read_mixtral ? 1e6 : 10000;
    for (size_t i = 0; i < ARRAY_N(eps); i++)
        if (is_given(o, eps[i]))
            t->norm_eps = json_number(o, eps[i], 0, 1, 0);
    const char *theta = neox ? "rotary_emb_base" : "rope_theta";
    if (is_given(o, theta))
        t->rope_theta = json_number(o, theta, 1, 1e12, 0);
    for (size_t i = 0; i < ARRAY_N(parts); i++)
        if (is_given(o, parts[i]) && json_number(o, parts[i], 0, 1, 1) != 1)
            t->other_numerics = parts[i];
    if (neox && !json_has(o, "rotary_pct"))
        t->other_numerics = "rotary_pct 0.25";
    for (size_t i = 0; i < ARRAY_N(others); i++)
        if (is_given(o, others[i]))
            t->other_numerics = others[i];
    if (family->read == read_gemma || family->read == read_gemma2)
        t->other_numerics = "Gemma's scaled embeddings and (1 + weight) norms";
}

static void read_transformer(Transformer *t, JsonObj *o, const Family *family)
{
    *t = (Transformer){ .layers = family->layers,
                        .hidden = family->hidden,
                        .heads = family->heads,
                        .kv_heads = family->kv_heads,
                        .head_dim = family->head_dim,
                        .ffn = family->ffn,
                        .vocab = family->vocab,
                        .max_seq = family->max_seq };
    ShapeKeys keys = present_keys(o, &family->keys->shape);
    shape_read(t, o, &keys);
    read_activation(t, o, family);
    family->read(t, o);
    native_override(t, o);
    read_architecture(t, o, family->read == read_bert);
    check_layer_types(t, o);
    read_numerics(t, o, family);
    shape_check_total(t, o);
    require_sizes(o, &keys);
}

static const Family *find_family(JsonObj *o)
{
    const char *type = json_string(o, "model_type", NULL);
    char known[300] = "";
    size_t n = 0;
    for (size_t i = 0; i < ARRAY_N(families); i++) {
        if (o->ok && strcmp(families[i].type, type) == 0)
            return &families[i];
        n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "",
                              families[i].type);
    }
    if (o->ok)
        o->ok = json_fail(json_member(o->node, "model_type"), o->err,
                          "unknown model_type '%.100s', known: %s", type, known);
    return NULL;
}

bool model_read_hf(Model *model, Arena *arena, JsonNode node, const char *file_name, Err *err)
{
    JsonObj o = json_begin(node, err);
    const Family *family = find_family(&o);
    if (!family)
        return json_end_lax(&o);
    const char *name = file_name ? file_name : family->type;
    model->kind = MODEL_TRANSFORMER;
    model->name = arena_strdup(arena, json_string(&o, "name", name));
    read_transformer(&model->u.transformer, &o, family);
    return json_end_lax(&o);
}

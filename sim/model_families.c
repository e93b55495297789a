/*
 * model_families.c - the families of Hugging Face configs (model_type), one row each.
 *
 * How a family calls its sizes, the defaults that transformers 4.57 takes for
 * missing ones, and a function for what its code fixes and the keys that only it
 * has: which norms, biases and positions, which layers see a window.  Families with experts:
 * model_families_moe.c.
 *
 * null is what Python makes of it: "sliding_window": null is no window where
 * leaving the key out means 4096 (Mistral); a null head count is derived.
 */
#include "sim/model_parts.h"

/* ---- keys shared by several families ---- */

uint32_t family_u32(JsonObj *o, const char *key, uint32_t min, uint32_t max, uint32_t fallback)
{
    return (uint32_t)json_count(o, key, min, max, fallback);
}

void family_tie(Transformer *t, JsonObj *o, bool fallback)
{
    t->tied_embeddings = json_bool(o, "tie_word_embeddings", fallback);
}

void family_attention_bias(Transformer *t, JsonObj *o, bool fallback)
{
    t->qkv_bias = t->out_bias = json_bool(o, "attention_bias", fallback);
}

void family_refuse_true(JsonObj *o, const char *key)
{
    if (json_has(o, key) && json_bool(o, key, false))
        o->ok = json_fail(json_member(o->node, key), o->err,
                          "true is not simulated, false allowed");
}

const char *family_alias(JsonObj *o, const char *key, const char *other)
{
    return !json_has(o, key) && json_has(o, other) ? other : key;
}

void family_refuse_clipping(JsonObj *o)
{
    if (json_has(o, "clip_qkv"))
        o->ok = json_fail(json_member(o->node, "clip_qkv"), o->err,
                          "clipping is not simulated, null allowed");
}

uint32_t family_window(JsonObj *o, uint32_t fallback)
{
    return family_tokens(o, "sliding_window", fallback);
}

uint32_t family_tokens(JsonObj *o, const char *key, uint32_t fallback)
{
    if (!json_has(o, key))
        return json_type(json_member(o->node, key)) == JSON_NULL ? 0 : fallback;
    return family_u32(o, key, 1, MODEL_SEQ_MAX, 0);
}

/* The layers without positions one by one, a 0 each, where a file lists them. */
void family_read_nope_layers(Transformer *t, JsonObj *o)
{
    JsonNode list = json_get(o, "no_rope_layers");
    JsonNode at = json_first(list);
    bool given = list.item && json_type(list) != JSON_NULL;
    bool empty = json_type(list) == JSON_ARRAY && json_items_n(list) == 0; /* as not given */
    if (o->ok && given && !empty &&
        (json_type(list) != JSON_ARRAY || json_items_n(list) < t->layers))
        o->ok = json_fail(list, o->err, "a list of at least %" PRIu32 " numbers is expected",
                          t->layers);
    for (uint32_t l = 0; o->ok && at.item && l < t->layers; at = json_next(at, list, ++l)) {
        double want = transformer_is_nope(t, l) ? 0 : 1;
        if (json_type(at) != JSON_NUMBER || json_value(at) != want)
            o->ok = json_fail(at, o->err,
                              "%g is expected, as no_rope_layer_interval %" PRIu32 " says",
                              want, t->nope_every);
    }
}

/* ---- families: what their code fixes, and the keys that only they have ---- */

static void gpt_habit(Transformer *t)
{
    t->norm = NORM_LAYERNORM;
    t->norm_bias = t->qkv_bias = t->out_bias = t->mlp_bias = true;
    t->causal = true;
    t->final_norm = true;
    t->norm_eps = 1e-5;
    t->rope_theta = 10000;
}

void family_llama_habit(Transformer *t)
{
    t->norm = NORM_RMSNORM;
    t->gated = true;
    t->causal = true;
    t->positions = POS_ROPE;
    t->final_norm = true;
    t->norm_eps = 1e-6;
    t->rope_theta = 10000;
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
    family_tie(t, o, true);
    family_refuse_true(o, "add_cross_attention");
}

static void read_gpt_neox(Transformer *t, JsonObj *o)
{
    gpt_habit(t);
    read_dropout(t, o, "hidden_dropout", 0);
    t->positions = POS_ROPE;
    family_tie(t, o, false);
    family_attention_bias(t, o, true);
    t->parallel_block = t->two_norms_parallel = json_bool(o, "use_parallel_residual", true);
    if (!json_has(o, "rotary_pct"))
        t->other_numerics = "rotary_pct 0.25";
}

/* One norm before both branches. */
static void parallel_habit(Transformer *t)
{
    t->parallel_block = true;
    t->two_norms_parallel = false;
}

/* Code models: one key and value for all heads. */
static void read_gpt_bigcode(Transformer *t, JsonObj *o)
{
    read_gpt2(t, o);
    if (json_bool(o, "multi_query", true) && !json_has(o, native_keys.kv_heads))
        t->kv_heads = 1;
}

static void read_gptj(Transformer *t, JsonObj *o)
{
    gpt_habit(t);
    parallel_habit(t);
    read_dropout(t, o, "resid_pdrop", 0);
    t->positions = POS_ROPE;
    t->other_numerics = "rotation of neighbouring columns (rotary_dim)";
    t->qkv_bias = t->out_bias = false;
    t->head_bias = true;
    family_tie(t, o, false);
}

static void read_phi(Transformer *t, JsonObj *o)
{
    gpt_habit(t);
    parallel_habit(t);
    read_dropout(t, o, "resid_pdrop", 0);
    t->positions = POS_ROPE;
    if (!json_has(o, "partial_rotary_factor"))
        t->other_numerics = "partial_rotary_factor 0.5";
    t->head_bias = true;
    family_tie(t, o, false);
    family_refuse_true(o, "qk_layernorm");
}

static void read_starcoder2(Transformer *t, JsonObj *o)
{
    gpt_habit(t);
    read_dropout(t, o, "residual_dropout", 0);
    t->positions = POS_ROPE;
    t->qkv_bias = t->out_bias = t->mlp_bias = json_bool(o, "use_bias", true);
    t->window = family_window(o, 0);
    family_tie(t, o, true);
}

static void read_bloom(Transformer *t, JsonObj *o)
{
    gpt_habit(t);
    read_dropout(t, o, "hidden_dropout", 0);
    t->positions = POS_ALIBI;
    t->embedding_norm = true;
    family_tie(t, o, true);
    family_refuse_true(o, "apply_residual_connection_post_layernorm");
}

/* 40B and larger have the new architecture: grouped queries, a norm for each branch. */
static void read_falcon(Transformer *t, JsonObj *o)
{
    bool newer = json_bool(o, "new_decoder_architecture", false);
    bool one_key = json_bool(o, "multi_query", true);
    gpt_habit(t);
    read_dropout(t, o, "hidden_dropout", 0);
    t->positions = json_bool(o, "alibi", false) ? POS_ALIBI : POS_ROPE;
    t->qkv_bias = t->out_bias = t->mlp_bias = json_bool(o, "bias", false);
    if (!newer && json_is_set(json_get(o, "num_kv_heads")))
        o->ok = json_fail(json_member(o->node, "num_kv_heads"), o->err,
                          "counts with new_decoder_architecture only; kv_heads can be set");
    if (!newer && !json_has(o, native_keys.kv_heads))
        t->kv_heads = one_key ? 1 : t->heads;
    t->parallel_block = newer || json_bool(o, "parallel_attn", true);
    uint32_t norms = family_u32(o, "num_ln_in_parallel_attn", 1, 2, newer ? 2 : 1);
    t->two_norms_parallel = t->parallel_block && newer && norms == 2;
    family_tie(t, o, true);
}

/* llm-foundry's words for who shares keys; transformers' code knows the first alone. */
static void read_mpt_keys(Transformer *t, JsonObj *o, JsonObj *attention)
{
    enum { EACH_ITS_OWN, ONE_FOR_ALL, GROUPED };
    static const char *const types[] = { "multihead_attention", "multiquery_attention",
                                         "grouped_query_attention" };
    int type = json_word(attention, "attn_type", types, ARRAY_N(types), EACH_ITS_OWN);
    if (json_has(o, native_keys.kv_heads))
        return;
    if (type == ONE_FOR_ALL)
        t->kv_heads = 1;
    if (type == GROUPED)
        t->kv_heads = (uint32_t)json_count(attention, "kv_n_heads", 1, t->heads, JSON_REQUIRED);
    if (attention->ok && t->heads % t->kv_heads != 0)
        attention->ok =
            json_fail(json_member(attention->node, "kv_n_heads"), attention->err,
                      "%" PRIu32 " does not divide n_heads %" PRIu32, t->kv_heads, t->heads);
}

/* transformers' code has no biases, whatever no_bias says, and no norm over queries and keys. */
static void read_mpt(Transformer *t, JsonObj *o)
{
    gpt_habit(t);
    t->norm_bias = t->qkv_bias = t->out_bias = t->mlp_bias = false;
    read_dropout(t, o, "resid_pdrop", 0);
    t->positions = POS_ALIBI;
    uint32_t ratio = family_u32(o, "expansion_ratio", 1, MODEL_FFN_MAX / MODEL_WIDTH_MAX, 4);
    if (!json_has(o, native_keys.ffn))
        t->ffn = ratio * t->hidden;
    family_tie(t, o, true);
    JsonNode attention = json_get(o, "attn_config");
    if (!o->ok || !attention.item)
        return;
    JsonObj a = json_begin(attention, o->err);
    if (!json_bool(&a, "alibi", true))
        t->positions = POS_NONE;
    static const char *const others[] = { "softmax_scale", "clip_qkv" };
    for (size_t i = 0; i < ARRAY_N(others); i++)
        if (json_type(json_get(&a, others[i])) == JSON_NUMBER)
            t->other_numerics = others[i];
    family_refuse_true(&a, "qk_ln");
    read_mpt_keys(t, o, &a);
    o->ok = json_end_lax(&a);
}

static void read_opt(Transformer *t, JsonObj *o)
{
    gpt_habit(t);
    read_dropout(t, o, "dropout", 0.1);
    t->position_rows = t->max_seq + 2; /* OPT looks positions up at an offset of 2 */
    family_tie(t, o, true);
    t->embedding_dim = family_u32(o, "word_embed_proj_dim", 1, MODEL_WIDTH_MAX, t->hidden);
    t->post_norm = !json_bool(o, "do_layer_norm_before", true);
    t->final_norm = !t->post_norm && !json_bool(o, "_remove_final_layer_norm", false);
    t->norm_plain = !json_bool(o, "layer_norm_elementwise_affine", true);
    t->qkv_bias = t->out_bias = t->mlp_bias = json_bool(o, "enable_bias", true);
}

static void read_bert(Transformer *t, JsonObj *o)
{
    static const char *const positions[] = { "absolute" };
    gpt_habit(t);
    t->norm_eps = 1e-12;
    read_dropout(t, o, "hidden_dropout_prob", 0.1);
    t->final_norm = false;
    t->post_norm = t->embedding_norm = true;
    t->position_rows = t->max_seq;
    family_tie(t, o, true);
    t->token_types = family_u32(o, "type_vocab_size", 0, MODEL_VOCAB_MAX, 2);
    json_word(o, "position_embedding_type", positions, ARRAY_N(positions), 0);
    t->causal = json_bool(o, "is_decoder", false);
    family_refuse_true(o, "add_cross_attention");
}

static void read_llama(Transformer *t, JsonObj *o)
{
    family_llama_habit(t);
    family_tie(t, o, false);
    family_attention_bias(t, o, false);
    t->mlp_bias = json_bool(o, "mlp_bias", false);
}

/* Llama's layers with factors on what they add and on the logits. */
static void read_granite(Transformer *t, JsonObj *o)
{
    read_llama(t, o);
    t->other_numerics = "Granite's multipliers";
}

static void read_olmo(Transformer *t, JsonObj *o)
{
    family_llama_habit(t);
    t->norm = NORM_LAYERNORM;
    t->norm_plain = true;
    t->norm_eps = 1e-5;
    family_tie(t, o, false);
    family_attention_bias(t, o, false);
    family_refuse_clipping(o);
}

static void read_stablelm(Transformer *t, JsonObj *o)
{
    family_llama_habit(t);
    t->norm = NORM_LAYERNORM;
    t->norm_bias = true;
    t->norm_eps = 1e-5;
    if (!json_has(o, "partial_rotary_factor"))
        t->other_numerics = "partial_rotary_factor 0.25";
    family_tie(t, o, false);
    t->qkv_bias = json_bool(o, "use_qkv_bias", false);
    t->parallel_block = json_bool(o, "use_parallel_residual", false);
    family_refuse_true(o, "qk_layernorm");
}

static void cohere_habit(Transformer *t, JsonObj *o)
{
    family_llama_habit(t);
    parallel_habit(t);
    t->norm = NORM_LAYERNORM;
    t->norm_eps = 1e-5;
    t->other_numerics = "Cohere's rotation of neighbouring columns and scale of logits";
    family_tie(t, o, true);
    family_attention_bias(t, o, false);
}

static void read_cohere(Transformer *t, JsonObj *o)
{
    cohere_habit(t, o);
    t->qk_norm = t->qk_norm_own = json_bool(o, "use_qk_norm", false);
}

static void read_mistral(Transformer *t, JsonObj *o)
{
    family_llama_habit(t);
    family_tie(t, o, false);
    t->window = family_window(o, 4096);
}

static void read_phi3(Transformer *t, JsonObj *o)
{
    family_llama_habit(t);
    read_dropout(t, o, "resid_pdrop", 0);
    t->norm_eps = 1e-5;
    family_tie(t, o, false);
    t->window = family_window(o, 0);
}

static void read_gemma(Transformer *t, JsonObj *o)
{
    family_llama_habit(t);
    t->other_numerics = "Gemma's scaled embeddings and (1 + weight) norms";
    family_tie(t, o, true);
    family_attention_bias(t, o, false);
    t->causal = !json_bool(o, "use_bidirectional_attention", false); /* EmbeddingGemma */
}

/* OLMo's layers with norms behind the branches, and over all queries and all keys. */
static void read_olmo2(Transformer *t, JsonObj *o)
{
    family_llama_habit(t);
    t->norm_eps = 1e-5;
    t->branch_norm = t->qk_norm = t->qk_norm_whole = true;
    t->other_numerics = "norm over the queries of all heads";
    family_tie(t, o, false);
    family_attention_bias(t, o, false);
}

/* LayerNorms whose gain is 1 + weight. */
static void read_nemotron(Transformer *t, JsonObj *o)
{
    gpt_habit(t);
    t->positions = POS_ROPE;
    t->other_numerics = "Nemotron's (1 + weight) norms";
    family_tie(t, o, false);
    family_attention_bias(t, o, false);
    t->mlp_bias = json_bool(o, "mlp_bias", false);
}

/* attention_bias is of queries, keys and values only. */
static void read_glm(Transformer *t, JsonObj *o)
{
    family_llama_habit(t);
    t->norm_eps = 1.5625e-7;
    t->other_numerics = "GLM's rotation of neighbouring columns";
    family_tie(t, o, false);
    t->qkv_bias = json_bool(o, "attention_bias", true);
}

static void read_glm4(Transformer *t, JsonObj *o)
{
    read_glm(t, o);
    t->sandwich_norm = true;
}

/* Each so-many-th layer sees everything; save_pretrained writes it with an underscore. */
static uint32_t read_pattern(JsonObj *o, uint32_t fallback)
{
    const char *key = json_has(o, "_sliding_window_pattern") ? "_sliding_window_pattern"
                                                             : "sliding_window_pattern";
    return family_u32(o, key, 1, MODEL_LAYERS_MAX, fallback);
}

/* Every fourth layer sees everything. */
static void read_olmo3(Transformer *t, JsonObj *o)
{
    read_olmo2(t, o);
    t->window = family_window(o, 4096);
    t->window_but_every = 4;
}

/* Layers that see everything have no positions. */
static void read_cohere2(Transformer *t, JsonObj *o)
{
    cohere_habit(t, o);
    family_refuse_true(o, "use_qk_norm"); /* transformers' code has none */
    t->window = family_window(o, 4096);
    t->window_but_every = t->nope_every = read_pattern(o, 4);
}

static void read_smollm3(Transformer *t, JsonObj *o)
{
    read_llama(t, o);
    t->rope_theta = 2e6;
    family_tie(t, o, true);
    t->nope_every = family_u32(o, "no_rope_layer_interval", 1, MODEL_LAYERS_MAX, 4);
    family_refuse_true(o, "use_sliding_window");
    family_read_nope_layers(t, o);
}

static void read_ernie(Transformer *t, JsonObj *o)
{
    family_llama_habit(t);
    t->norm_eps = 1e-5;
    t->rope_theta = 500000;
    t->other_numerics = "Ernie's rotation of neighbouring columns";
    family_tie(t, o, true);
    t->qkv_bias = t->out_bias = t->mlp_bias = json_bool(o, "use_bias", false);
}

static void read_seed_oss(Transformer *t, JsonObj *o)
{
    family_llama_habit(t);
    family_tie(t, o, false);
    t->qkv_bias = json_bool(o, "attention_bias", true);
    t->out_bias = json_bool(o, "attention_out_bias", false);
    t->mlp_bias = json_bool(o, "mlp_bias", false);
    read_dropout(t, o, "residual_dropout", 0.1);
}

/* BERT without the second task; positions start behind the padding's. */
static void read_roberta(Transformer *t, JsonObj *o)
{
    read_bert(t, o);
    t->max_seq -= t->max_seq > 2 ? 2 : 0; /* its table begins with the padding's rows */
    t->other_numerics = "RoBERTa's offset of positions";
}

/* Every other layer, from the first, looks through a window. */
static void read_gemma2(Transformer *t, JsonObj *o)
{
    read_gemma(t, o);
    t->sandwich_norm = true;
    t->window = family_window(o, 4096);
    t->window_every = 2;
    family_refuse_true(o, "use_bidirectional_attention"); /* a window to both sides */
}

/* Every sixth layer sees everything, or as the file says. */
static void read_gemma3(Transformer *t, JsonObj *o)
{
    read_gemma(t, o);
    t->sandwich_norm = t->qk_norm = true;
    t->window = family_window(o, 4096);
    t->window_but_every = read_pattern(o, 6);
}

/* The first layers have none. */
void family_qwen_window(Transformer *t, JsonObj *o)
{
    if (!json_bool(o, "use_sliding_window", false))
        return;
    t->window = family_window(o, 4096);
    t->window_first = family_u32(o, "max_window_layers", 0, MODEL_LAYERS_MAX, 28);
}

static void read_qwen2(Transformer *t, JsonObj *o)
{
    family_llama_habit(t);
    family_tie(t, o, false);
    t->qkv_bias = true;
    family_qwen_window(t, o);
}

static void read_qwen3(Transformer *t, JsonObj *o)
{
    read_qwen2(t, o);
    t->qk_norm = true;
    family_attention_bias(t, o, false);
}

/* ---- the table ---- */

#define USUAL_SHAPE \
    .layers = "num_hidden_layers", .hidden = "hidden_size", .heads = "num_attention_heads", \
    .vocab = "vocab_size", .max_seq = "max_position_embeddings"
#define LLAMA_SHAPE \
    USUAL_SHAPE, .ffn = "intermediate_size", .kv_heads = "num_key_value_heads", \
                 .head_dim = "head_dim"

const HfKeys family_usual = { { USUAL_SHAPE, .ffn = "intermediate_size" }, "hidden_act" };
static const HfKeys opt = { { USUAL_SHAPE, .ffn = "ffn_dim" }, "activation_function" };
static const HfKeys llama = { { LLAMA_SHAPE }, "hidden_act" };
static const HfKeys llama4 = { { USUAL_SHAPE, .ffn = "intermediate_size_mlp",
                                 .kv_heads = "num_key_value_heads", .head_dim = "head_dim" },
                               "hidden_act" };
static const HfKeys latent = {
    { USUAL_SHAPE, .ffn = "intermediate_size", .kv_heads = "num_key_value_heads" }, "hidden_act"
};
static const HfKeys gemma = { { LLAMA_SHAPE }, "hidden_activation" };
static const HfKeys bloom = { { .layers = "n_layer",
                                .hidden = "n_embed",
                                .heads = "n_head",
                                .ffn = "n_inner",
                                .vocab = "vocab_size",
                                .max_seq = "seq_length" },
                              "hidden_act" };
static const HfKeys falcon = {
    { USUAL_SHAPE, .ffn = "ffn_hidden_size", .kv_heads = "num_kv_heads" }, "activation"
};
static const HfKeys mpt = { { .layers = "n_layers",
                              .hidden = "d_model",
                              .heads = "n_heads",
                              .ffn = "ffn",
                              .vocab = "vocab_size",
                              .max_seq = "max_seq_len" },
                            "hidden_act" };
static const HfKeys gpt2 = { { .layers = "n_layer",
                               .hidden = "n_embd",
                               .heads = "n_head",
                               .ffn = "n_inner",
                               .vocab = "vocab_size",
                               .max_seq = "n_positions" },
                             "activation_function" };

const Family families[] = {
    { "gpt2", read_gpt2, &gpt2, 12, 768, 12, 0, 0, 0, 50257, 1024, WORD_GELU_NEW },
    { "gpt_neox", read_gpt_neox, &family_usual, 44, 6144, 64, 0, 0, 24576, 50432, 2048,
      ACT_GELU },
    { "opt", read_opt, &opt, 12, 768, 12, 0, 0, 3072, 50272, 2048, ACT_RELU },
    { "llama", read_llama, &llama, 32, 4096, 32, 0, 0, 11008, 32000, 2048, ACT_SILU },
    { "mistral", read_mistral, &llama, 32, 4096, 32, 8, 0, 14336, 32000, 131072, ACT_SILU },
    { "mixtral", family_mixtral, &llama, 32, 4096, 32, 8, 0, 14336, 32000, 131072, ACT_SILU },
    { "qwen2", read_qwen2, &llama, 32, 4096, 32, 32, 0, 22016, 151936, 32768, ACT_SILU },
    { "qwen2_moe", family_qwen2_moe, &llama, 24, 2048, 16, 16, 0, 5632, 151936, 32768,
      ACT_SILU },
    { "qwen3", read_qwen3, &llama, 32, 4096, 32, 32, 128, 22016, 151936, 32768, ACT_SILU },
    { "qwen3_moe", family_qwen3_moe, &llama, 24, 2048, 32, 4, 0, 6144, 151936, 32768,
      ACT_SILU },
    { "gemma", read_gemma, &gemma, 28, 3072, 16, 16, 256, 24576, 256000, 8192, WORD_GELU_TANH },
    { "gemma2", read_gemma2, &gemma, 26, 2304, 8, 4, 256, 9216, 256000, 8192, WORD_GELU_TANH },
    { "phi3", read_phi3, &llama, 32, 3072, 32, 0, 0, 8192, 32064, 4096, ACT_SILU },
    { "deepseek_v2", family_deepseek_v2, &latent, 32, 4096, 32, 0, 192, 11008, 32000, 2048,
      ACT_SILU },
    { "deepseek_v3", family_deepseek_v3, &latent, 61, 7168, 128, 128, 192, 18432, 129280, 4096,
      ACT_SILU },
    { "kimi_k2", family_deepseek_v3, &latent, 61, 7168, 64, 64, 192, 18432, 163840, 131072,
      ACT_SILU },
    { "gpt_bigcode", read_gpt_bigcode, &gpt2, 12, 768, 12, 0, 0, 0, 50257, 1024,
      WORD_GELU_TANH },
    { "starcoder2", read_starcoder2, &llama, 30, 3072, 24, 2, 0, 12288, 49152, 4096,
      WORD_GELU_TANH },
    { "gptj", read_gptj, &gpt2, 28, 4096, 16, 0, 0, 0, 50400, 2048, WORD_GELU_NEW },
    { "phi", read_phi, &llama, 24, 2048, 32, 0, 0, 8192, 51200, 2048, WORD_GELU_NEW },
    { "bloom", read_bloom, &bloom, 2, 64, 8, 0, 0, 0, 250880, 2048, ACT_GELU },
    { "falcon", read_falcon, &falcon, 32, 4544, 71, 0, 0, 0, 65024, 2048, ACT_GELU },
    { "mpt", read_mpt, &mpt, 24, 2048, 16, 0, 0, 0, 50368, 2048, ACT_GELU },
    { "granite", read_granite, &llama, 32, 4096, 32, 0, 0, 11008, 32000, 2048, ACT_SILU },
    { "olmo", read_olmo, &llama, 32, 4096, 32, 0, 0, 11008, 50304, 2048, ACT_SILU },
    { "stablelm", read_stablelm, &llama, 32, 2560, 32, 32, 0, 6912, 50304, 4096, ACT_SILU },
    { "cohere", read_cohere, &llama, 40, 8192, 64, 0, 0, 22528, 256000, 8192, ACT_SILU },
    { "gemma3_text", read_gemma3, &gemma, 26, 2304, 8, 4, 256, 9216, 262208, 131072,
      WORD_GELU_TANH },
    { "glm4_moe", family_glm4_moe, &llama, 46, 4096, 96, 8, 0, 10944, 151552, 131072,
      ACT_SILU },
    { "olmo2", read_olmo2, &llama, 32, 4096, 32, 0, 0, 11008, 50304, 2048, ACT_SILU },
    { "nemotron", read_nemotron, &llama, 32, 6144, 48, 0, 0, 24576, 256000, 4096, ACT_RELU2 },
    { "glm4", read_glm4, &llama, 40, 4096, 32, 2, 128, 13696, 151552, 131072, ACT_SILU },
    { "cohere2", read_cohere2, &llama, 40, 8192, 64, 0, 0, 22528, 256000, 8192, ACT_SILU },
    { "smollm3", read_smollm3, &llama, 36, 2048, 16, 4, 0, 11008, 128256, 32768, ACT_SILU },
    { "ernie4_5", read_ernie, &llama, 18, 1024, 16, 2, 128, 3072, 103424, 131072, ACT_SILU },
    { "seed_oss", read_seed_oss, &llama, 64, 4096, 80, 8, 128, 27648, 155136, 524288,
      ACT_SILU },
    { "granitemoe", family_granite_moe, &llama, 32, 4096, 32, 0, 0, 11008, 32000, 2048,
      ACT_SILU },
    { "ernie4_5_moe", family_ernie_moe, &llama, 28, 2560, 20, 4, 0, 12288, 103424, 131072,
      ACT_SILU },
    { "gpt_oss", family_gpt_oss, &llama, 36, 2880, 64, 8, 64, 2880, 201088, 131072, ACT_SILU },
    { "llama4_text", family_llama4, &llama4, 48, 5120, 40, 8, 128, 16384, 202048, 131072,
      ACT_SILU },
    { "glm", read_glm, &llama, 40, 4096, 32, 2, 128, 13696, 151552, 131072, ACT_SILU },
    { "olmo3", read_olmo3, &llama, 32, 4096, 32, 0, 0, 11008, 50304, 2048, ACT_SILU },
    { "olmoe", family_olmoe, &llama, 16, 2048, 16, 0, 0, 2048, 50304, 4096, ACT_SILU },
    { "phimoe", family_phi_moe, &llama, 32, 4096, 32, 8, 0, 6400, 32064, 131072, ACT_SILU },
    { "xlm-roberta", read_roberta, &family_usual, 12, 768, 12, 0, 0, 3072, 30522, 512,
      ACT_GELU },
    { "roberta", read_roberta, &family_usual, 12, 768, 12, 0, 0, 3072, 50265, 512, ACT_GELU },
    { "bert", read_bert, &family_usual, 12, 768, 12, 0, 0, 3072, 30522, 512, ACT_GELU },
};

const size_t families_n = ARRAY_N(families);

/*
 * model_families_moe.c - families of Hugging Face configs with experts, and DeepSeek's latents.
 *
 * What model_families.c is for dense ones.  Biases that only choose experts
 * (e_score_correction_bias) have no gradient and are not counted.
 */
#include "sim/model_parts.h"

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

/* Their family's key, or where a file has none another one's: transformers 5 takes either for the
 * other, and writes Qwen 3's as num_local_experts. */
static uint32_t read_experts_n(JsonObj *o, const char *key, uint32_t least, uint32_t fallback)
{
    key = family_alias(o, family_alias(o, key, "num_local_experts"), "num_experts");
    return family_u32(o, key, least, MODEL_EXPERTS_MAX, fallback);
}

void family_mixtral(Transformer *t, JsonObj *o)
{
    family_llama_habit(t);
    t->rope_theta = 1e6;
    family_tie(t, o, false);
    t->window = family_window(o, 0);
    t->experts = read_experts_n(o, "num_local_experts", 1, 8);
    t->moe_ffn = t->ffn;
    shape_read_experts_per_token(t, o, "num_experts_per_tok", 2);
}

static void read_qwen_experts(Transformer *t, JsonObj *o, uint32_t experts, uint32_t per_token,
                              uint32_t ffn)
{
    family_llama_habit(t);
    family_tie(t, o, false);
    t->experts = read_experts_n(o, "num_experts", 0, experts);
    t->moe_ffn = family_u32(o, "moe_intermediate_size", 1, MODEL_FFN_MAX, ffn);
    t->moe_every = family_u32(o, "decoder_sparse_step", 1, MODEL_LAYERS_MAX, 1);
    shape_read_experts_per_token(t, o, "num_experts_per_tok", per_token);
    read_dense_first(t, o);
}

void family_qwen2_moe(Transformer *t, JsonObj *o)
{
    read_qwen_experts(t, o, 60, 4, 1408);
    family_qwen_window(t, o);
    t->qkv_bias = json_bool(o, "qkv_bias", true);
    t->shared_expert_ffn =
        family_u32(o, "shared_expert_intermediate_size", 1, MODEL_FFN_MAX, 5632);
    t->shared_expert_gate = true;
}

void family_qwen3_moe(Transformer *t, JsonObj *o)
{
    read_qwen_experts(t, o, 128, 8, 768);
    if (json_bool(o, "use_sliding_window", false))
        t->window = family_window(o, 4096);
    t->qk_norm = true;
    family_attention_bias(t, o, false);
}

/* Experts that some tokens visit, those that all do, and first layers without any. */
static void read_shared_and_routed(Transformer *t, JsonObj *o, uint32_t moe_ffn,
                                   uint32_t shared, uint32_t per_token, uint32_t dense)
{
    t->moe_ffn = family_u32(o, "moe_intermediate_size", 1, MODEL_FFN_MAX, moe_ffn);
    shape_read_experts_per_token(t, o, "num_experts_per_tok", per_token);
    t->dense_first = family_u32(o, "first_k_dense_replace", 0, MODEL_LAYERS_MAX, dense);
    t->shared_expert_ffn = t->moe_ffn * family_u32(o, "n_shared_experts", 0, 64, shared);
}

/* Which groups of experts a token may visit: that many of them, 1 of 1 where there is no limit. */
static void read_expert_groups(Transformer *t, JsonObj *o, uint32_t groups, uint32_t per_token)
{
    uint32_t experts = t->experts ? t->experts : 1;
    t->expert_groups = family_u32(o, "n_group", 1, experts, groups <= experts ? groups : 1);
    uint32_t n = t->expert_groups ? t->expert_groups : 1;
    t->groups_per_token = family_u32(o, "topk_group", 1, n, per_token <= n ? per_token : n);
    if (o->ok && experts % n != 0)
        o->ok = json_fail(json_member(o->node, "n_group"), o->err,
                          "%" PRIu32 " groups do not divide %" PRIu32 " experts", n, experts);
    uint64_t open = (uint64_t)experts / n * t->groups_per_token;
    if (o->ok && t->experts_per_token > open)
        o->ok = json_fail(json_member(o->node, "topk_group"), o->err,
                          "its groups have %" PRIu64 " experts, fewer than the %" PRIu32
                          " that a token visits",
                          open, t->experts_per_token);
}

/* attention_bias is of queries, keys and values only. */
void family_glm4_moe(Transformer *t, JsonObj *o)
{
    family_llama_habit(t);
    t->norm_eps = 1e-5;
    if (!json_has(o, "partial_rotary_factor"))
        t->other_numerics = "partial_rotary_factor 0.5";
    family_tie(t, o, false);
    t->qkv_bias = json_bool(o, "attention_bias", false);
    t->qk_norm = json_bool(o, "use_qk_norm", false);
    t->experts = read_experts_n(o, "n_routed_experts", 0, 128);
    read_shared_and_routed(t, o, 1408, 1, 8, 1);
    read_expert_groups(t, o, 1, 1);
}

/* Its heads have no one width; "head_dim", where a file has it, is that of the rotated part. */
static void read_latent(Transformer *t, JsonObj *o)
{
    if (json_has(o, "head_dim") && json_is_set(json_get(o, "head_dim")))
        o->ok = json_fail(json_member(o->node, "head_dim"), o->err,
                          "with latent attention it is qk_nope_head_dim + qk_rope_head_dim, "
                          "which can be set");
    bool direct = json_type(json_member(o->node, "q_lora_rank")) == JSON_NULL;
    t->q_rank = direct ? 0 : family_u32(o, "q_lora_rank", 1, MODEL_WIDTH_MAX, 1536);
    t->kv_rank = family_u32(o, "kv_lora_rank", 1, MODEL_WIDTH_MAX, 512);
    t->rope_dim = family_u32(o, "qk_rope_head_dim", 1, MODEL_HEAD_DIM_MAX / 2, 64);
    t->head_dim =
        t->rope_dim + family_u32(o, "qk_nope_head_dim", 1, MODEL_HEAD_DIM_MAX / 2, 128);
    t->value_dim = family_u32(o, "v_head_dim", 1, MODEL_HEAD_DIM_MAX, 128);
    if (json_has(o, "kv_heads") && json_is_set(json_get(o, "kv_heads")))
        o->ok = json_fail(json_member(o->node, "kv_heads"), o->err,
                          "with latent attention every head has keys and values of its own");
    t->kv_heads = t->heads;
}

static void read_deepseek(Transformer *t, JsonObj *o, uint32_t moe_ffn, uint32_t shared,
                          uint32_t per_token, uint32_t dense)
{
    family_llama_habit(t);
    family_tie(t, o, false);
    family_attention_bias(t, o, false);
    read_latent(t, o);
    if (family_u32(o, "moe_layer_freq", 1, MODEL_LAYERS_MAX, 1) != 1)
        o->ok = json_fail(json_member(o->node, "moe_layer_freq"), o->err,
                          "only 1 is simulated, experts in every layer but the first ones");
    read_shared_and_routed(t, o, moe_ffn, shared, per_token, dense);
}

void family_deepseek_v2(Transformer *t, JsonObj *o)
{
    t->experts = read_experts_n(o, "n_routed_experts", 0, 64);
    read_deepseek(t, o, 1407, 2, 6, 0);
    family_refuse_true(o, "mlp_bias");
    read_expert_groups(t, o, 1, 1);
}

void family_deepseek_v3(Transformer *t, JsonObj *o)
{
    t->experts = read_experts_n(o, "n_routed_experts", 0, 256);
    read_deepseek(t, o, 2048, 1, 8, 3);
    read_expert_groups(t, o, 8, 4);
}

/* ---- experts in every layer, or every other ---- */

/* Granite's multipliers; "intermediate_size" is that of an expert. */
void family_granite_moe(Transformer *t, JsonObj *o)
{
    family_mixtral(t, o);
    t->window = 0;
    t->rope_theta = 10000;
    t->other_numerics = "Granite's multipliers";
    family_attention_bias(t, o, false);
}

/* LayerNorms, and biases but in experts. */
void family_phi_moe(Transformer *t, JsonObj *o)
{
    family_mixtral(t, o);
    t->norm = NORM_LAYERNORM;
    t->norm_bias = true;
    t->norm_eps = 1e-5;
    t->experts = read_experts_n(o, "num_local_experts", 1, 16);
    family_attention_bias(t, o, false);
    t->head_bias = json_bool(o, "lm_head_bias", false);
}

/* Norms over all queries and all keys; "intermediate_size" is that of an expert. */
void family_olmoe(Transformer *t, JsonObj *o)
{
    family_llama_habit(t);
    t->norm_eps = 1e-5;
    t->qk_norm = t->qk_norm_whole = true;
    family_tie(t, o, false);
    family_attention_bias(t, o, false);
    family_refuse_clipping(o);
    t->experts = read_experts_n(o, "num_experts", 1, 64);
    t->moe_ffn = t->ffn;
    shape_read_experts_per_token(t, o, "num_experts_per_tok", 8);
}

/* From moe_layer_start_index to the last layer. */
void family_ernie_moe(Transformer *t, JsonObj *o)
{
    family_llama_habit(t);
    family_tie(t, o, true);
    t->qkv_bias = t->out_bias = t->mlp_bias = t->head_bias = json_bool(o, "use_bias", false);
    t->norm_eps = 1e-5;
    t->rope_theta = 500000;
    t->other_numerics = "Ernie's rotation of neighbouring columns";
    t->experts = read_experts_n(o, "moe_num_experts", 0, 64);
    t->moe_ffn = family_u32(o, "moe_intermediate_size", 1, MODEL_FFN_MAX, 1536);
    t->dense_first = family_u32(o, "moe_layer_start_index", 0, MODEL_LAYERS_MAX, 1);
    t->moe_every = family_u32(o, "moe_layer_interval", 1, MODEL_LAYERS_MAX, 1);
    t->shared_expert_ffn = t->moe_ffn * family_u32(o, "moe_num_shared_experts", 0, 64, 2);
    shape_read_experts_per_token(t, o, family_alias(o, "moe_k", "num_experts_per_tok"), 6);
    double last = json_number(o, "moe_layer_end_index", -1, MODEL_LAYERS_MAX, -1);
    if (o->ok && last >= 0 && last < t->layers - 1)
        o->ok =
            json_fail(json_member(o->node, "moe_layer_end_index"), o->err,
                      "only the first layers can be dense, -1 or at least %" PRIu32 " allowed",
                      t->layers - 1);
}

/* Every other layer, from the first, looks through a window; biases everywhere; a number for each
 * head in its softmax. */
void family_gpt_oss(Transformer *t, JsonObj *o)
{
    family_llama_habit(t);
    t->norm_eps = 1e-5;
    family_tie(t, o, false);
    family_attention_bias(t, o, true);
    t->mlp_bias = t->router_bias = t->sinks = true;
    t->other_numerics = "GPT-OSS's clamped gates";
    t->rope_theta = 150000;
    t->window = family_window(o, 128);
    t->window_every = 2;
    t->experts = read_experts_n(o, "num_local_experts", 1, 128);
    t->moe_ffn = t->ffn;
    shape_read_experts_per_token(t, o, "num_experts_per_tok", 4);
}

/* The layers with experts one by one, where a file lists them. */
static void check_moe_layers(const Transformer *t, JsonObj *o)
{
    JsonNode list = json_get(o, "moe_layers");
    if (!o->ok || !list.item || json_type(list) == JSON_NULL)
        return;
    JsonNode at = json_first(list);
    uint32_t n = 0;
    for (uint32_t l = 0; o->ok && l < t->layers; l++) {
        if (!transformer_is_moe(t, l))
            continue;
        if (!at.item || json_type(at) != JSON_NUMBER || json_value(at) != l)
            o->ok = json_fail(at.item ? at : list, o->err,
                              "%" PRIu32 " is expected, as interleave_moe_layer_step says", l);
        n++;
        at = at.item ? json_next(at, list, n) : at;
    }
    if (o->ok && json_items_n(list) != n)
        o->ok = json_fail(list, o->err,
                          "a list of %" PRIu32 " layers is expected, as "
                          "interleave_moe_layer_step says",
                          n);
}

/* Each so-many-th layer sees everything and has no positions, the others see their chunk. */
void family_llama4(Transformer *t, JsonObj *o)
{
    family_llama_habit(t);
    t->norm_eps = 1e-5;
    t->rope_theta = 500000;
    t->other_numerics = "Llama 4's rotation of neighbouring columns";
    family_tie(t, o, false);
    family_attention_bias(t, o, false);
    t->qk_norm = t->qk_norm_plain = json_bool(o, "use_qk_norm", true);
    t->nope_every = family_u32(o, "no_rope_layer_interval", 1, MODEL_LAYERS_MAX, 4);
    family_read_nope_layers(t, o);
    t->chunked = true;
    t->window = family_tokens(o, "attention_chunk_size", 8192);
    t->window_but_every = t->nope_every;
    t->experts = read_experts_n(o, "num_local_experts", 1, 16);
    t->moe_every = family_u32(o, "interleave_moe_layer_step", 1, MODEL_LAYERS_MAX, 1);
    t->moe_ffn = family_u32(o, "intermediate_size", 1, MODEL_FFN_MAX, 8192);
    t->shared_expert_ffn = t->moe_ffn;
    shape_read_experts_per_token(t, o, "num_experts_per_tok", 1);
    check_moe_layers(t, o);
}

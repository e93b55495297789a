/*
 * model_native.c - models said in lockstep's own words: "kind" and its sizes.
 *
 * A transformer follows one of two habits, chosen by its norm, and "bias" can
 * overrule it:
 *
 *     layernorm    biases everywhere, as GPT-2 has them, but in experts
 *     rmsnorm      no bias anywhere, as Llama
 *
 * Defaults: kv_heads = heads, head_dim = hidden / heads, ffn = 4 hidden, max_seq
 * 2048 (or the task's longer sequence), gated false, norm layernorm, activation
 * gelu (silu when gated), causal true, positions learned, tied_embeddings true,
 * experts 0 (dense), experts_per_token 2, moe_every 1.  Every expert is as wide
 * as ffn.
 */
#include "sim/model_parts.h"

enum { MLP_WIDTH_MAX = 1 << 24, CONVNET_WIDTH_MAX = 1 << 16 };

static const char *const norm_words[] = { "layernorm", "rmsnorm" };
static const char *const position_words[] = { "learned", "rope", "alibi", "none" };

const ShapeKeys native_keys = { .layers = "layers",
                                .hidden = "hidden",
                                .heads = "heads",
                                .kv_heads = "kv_heads",
                                .head_dim = "head_dim",
                                .ffn = "ffn",
                                .vocab = "vocab",
                                .max_seq = "max_seq" };

/* 0 says that no block has experts, which is so in a dense model. */
static void read_moe_every(Transformer *t, JsonObj *o)
{
    uint32_t n = (uint32_t)json_count(o, "moe_every", t->experts ? 1 : 0, t->layers, 1);
    t->moe_every = n ? n : 1;
}

/* Experts have biases only where it is said: DBRX has none, Megatron's grouped matmuls neither. */
static void read_experts(Transformer *t, JsonObj *o)
{
    t->experts = (uint32_t)json_count(o, "experts", 0, MODEL_EXPERTS_MAX, 0);
    t->plain_experts = !json_has(o, "bias");
    t->router_bias = transformer_experts_bias(t);
    t->moe_ffn = t->ffn;
    shape_read_experts_per_token(t, o, "experts_per_token", 2);
    read_moe_every(t, o);
}

static void read_mtp(Transformer *t, JsonObj *o)
{
    t->mtp_layers = (uint32_t)json_count(o, "mtp_layers", 0, MODEL_MTP_MAX, 0);
    t->mtp_asked = true;
}

static void read_transformer(Transformer *t, JsonObj *o)
{
    *t = (Transformer){ .max_seq = 2048, .final_norm = true };
    shape_read(t, o, &native_keys);
    t->gated = json_bool(o, "gated", false);
    t->norm = (Norm)json_word(o, "norm", norm_words, ARRAY_N(norm_words), NORM_LAYERNORM);
    t->activation = (Activation)json_word(o, "activation", activation_names, ACT_N,
                                          t->gated ? ACT_SILU : ACT_GELU);
    t->causal = json_bool(o, "causal", true);
    t->positions = (Positions)json_word(o, "positions", position_words, ARRAY_N(position_words),
                                        POS_LEARNED);
    t->position_rows = t->positions == POS_LEARNED ? t->max_seq : 0;
    t->tied_embeddings = json_bool(o, "tied_embeddings", true);
    t->norm_bias = t->norm == NORM_LAYERNORM;
    t->qkv_bias = t->out_bias = t->mlp_bias = json_bool(o, "bias", t->norm_bias);
    read_experts(t, o);
    read_mtp(t, o);
    shape_check_total(t, o);
}

/* ---- one word at a time, over a config in other words ---- */

static bool is_given(JsonObj *o, const char *key)
{
    return json_has(o, key) && json_is_set(json_get(o, key));
}

static void override_experts(Transformer *t, JsonObj *o)
{
    if (is_given(o, "experts")) {
        t->plain_experts = t->experts == 0 && !is_given(o, "bias");
        t->experts = (uint32_t)json_count(o, "experts", 0, MODEL_EXPERTS_MAX, 0);
        t->moe_ffn = t->moe_ffn ? t->moe_ffn : t->ffn;
        t->moe_every = t->moe_every ? t->moe_every : 1;
    }
    uint32_t usual = t->experts_per_token ? t->experts_per_token : 2;
    if (is_given(o, "experts") || is_given(o, "experts_per_token"))
        shape_read_experts_per_token(t, o, "experts_per_token", usual);
    if (is_given(o, "moe_every"))
        read_moe_every(t, o);
}

void native_override(Transformer *t, JsonObj *o)
{
    if (is_given(o, "gated"))
        t->gated = json_bool(o, "gated", false);
    if (is_given(o, "norm")) {
        t->norm = (Norm)json_word(o, "norm", norm_words, ARRAY_N(norm_words), -1);
        t->norm_bias = t->norm == NORM_LAYERNORM;
    }
    if (is_given(o, "activation"))
        t->activation = (Activation)json_word(o, "activation", activation_names, ACT_N, -1);
    if (is_given(o, "causal"))
        t->causal = json_bool(o, "causal", true);
    if (is_given(o, "positions")) {
        t->positions =
            (Positions)json_word(o, "positions", position_words, ARRAY_N(position_words), -1);
        t->position_rows = t->positions == POS_LEARNED ? t->max_seq : 0;
    }
    if (is_given(o, "tied_embeddings"))
        t->tied_embeddings = json_bool(o, "tied_embeddings", true);
    if (is_given(o, "bias"))
        t->qkv_bias = t->out_bias = t->mlp_bias = json_bool(o, "bias", true);
    if (is_given(o, "mtp_layers"))
        read_mtp(t, o);
    override_experts(t, o);
}

/* A list of n_min to n_max whole numbers, each 1 to max; returns how many. */
static uint32_t read_list(uint32_t *x, JsonObj *o, const char *key, uint32_t n_min,
                          uint32_t n_max, uint32_t max)
{
    JsonNode list = json_get(o, key);
    size_t n = json_items_n(list);
    if (o->ok && !list.item)
        json_missing(o, key, "");
    if (o->ok && (json_type(list) != JSON_ARRAY || n < n_min || n > n_max))
        o->ok = json_fail(list, o->err,
                          "a list of %" PRIu32 " to %" PRIu32 " whole numbers is expected",
                          n_min, n_max);
    JsonNode at = json_first(list);
    for (size_t i = 0; o->ok && i < n; at = json_next(at, list, ++i)) {
        double value = json_value(at);
        if (!(value >= 1 && value <= max) || value != (double)(uint32_t)value)
            o->ok =
                json_fail(at, o->err, "a whole number from 1 to %" PRIu32 " is expected", max);
        else
            x[i] = (uint32_t)value;
    }
    return o->ok ? (uint32_t)n : 0;
}

static void read_mlp(Mlp *mlp, JsonObj *o)
{
    *mlp = (Mlp){ 0 };
    mlp->widths_n = read_list(mlp->widths, o, "widths", 2, MLP_WIDTHS_MAX, MLP_WIDTH_MAX);
    mlp->activation = (Activation)json_word(o, "activation", activation_names, ACT_N, ACT_RELU);
    mlp->batchnorm = json_bool(o, "batchnorm", false);
    mlp->bias = json_bool(o, "bias", true);
}

static void read_stages(Convnet *c, JsonObj *o)
{
    c->stages_n = read_list(c->blocks, o, "blocks", 1, CONVNET_STAGES_MAX, 1000);
    uint32_t n = read_list(c->widths, o, "widths", 1, CONVNET_STAGES_MAX, CONVNET_WIDTH_MAX);
    if (o->ok && n != c->stages_n)
        o->ok = json_fail(json_member(o->node, "widths"), o->err,
                          "%" PRIu32 " widths for %" PRIu32 " stages of blocks, one each is "
                          "expected",
                          n, c->stages_n);
}

/* The defaults are ResNet-50's. */
static void read_convnet(Convnet *c, JsonObj *o)
{
    *c = (Convnet){ .stages_n = 4, .blocks = { 3, 4, 6, 3 }, .widths = { 64, 128, 256, 512 } };
    c->image = (uint32_t)json_count(o, "image", 8, 8192, 224);
    c->channels_in = (uint32_t)json_count(o, "channels_in", 1, 4096, 3);
    c->classes = (uint32_t)json_count(o, "classes", 1, MODEL_VOCAB_MAX, 1000);
    c->stem_width = (uint32_t)json_count(o, "stem_width", 1, CONVNET_WIDTH_MAX, 64);
    c->expansion = (uint32_t)json_count(o, "expansion", 1, 16, 4);
    if (json_has(o, "blocks") || json_has(o, "widths"))
        read_stages(c, o);
}

static void read_free_text(JsonObj *o, const char *key)
{
    if (json_has(o, key))
        json_string(o, key, "");
}

bool model_read_native(Model *model, Arena *arena, JsonNode node, const char *file_name,
                       Err *err)
{
    static const char *const kinds[] = { "transformer", "mlp", "convnet" };
    JsonObj o = json_begin(node, err);
    model->kind = (ModelKind)json_word(&o, "kind", kinds, ARRAY_N(kinds), -1);
    const char *name = file_name ? file_name : kinds[model->kind];
    model->name = arena_strdup(arena, json_string(&o, "name", name));
    read_free_text(&o, "source");
    read_free_text(&o, "notes");
    if (!o.ok)
        return json_end_lax(&o);
    if (model->kind == MODEL_TRANSFORMER)
        read_transformer(&model->u.transformer, &o);
    else if (model->kind == MODEL_MLP)
        read_mlp(&model->u.mlp, &o);
    else
        read_convnet(&model->u.convnet, &o);
    return json_end(&o);
}

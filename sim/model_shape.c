/*
 * model_shape.c - the sizes of a transformer, and whether they can be true.
 *
 * Each size has a maximum far above any model built, chosen so that the
 * parameters of one block, at most 3 hidden ffn experts = 3 * 2^52 and some
 * change, fit 64 bits.  The sum over the layers is taken in double first.
 */
#include <stdio.h>
#include <string.h>

#include "core/share.h"
#include "sim/model_parts.h"

static uint32_t read_size(JsonObj *o, const char *key, uint32_t max, uint32_t fallback)
{
    return (uint32_t)json_count(o, key, 1, max, fallback ? (double)fallback : JSON_REQUIRED);
}

/* Where only the other one was given by --set it is the one to change. */
static void refuse(JsonObj *o, const char *key, const char *verb, uint32_t a,
                   const char *other_key, uint32_t b)
{
    JsonNode node = json_member(o->node, key), other = json_member(o->node, other_key);
    if (json_is_set(other) && !json_is_set(node))
        o->ok = json_fail(other, o->err, "%s %" PRIu32 " %s %" PRIu32, key, a, verb, b);
    else
        o->ok = json_fail(node, o->err, "%" PRIu32 " %s %s %" PRIu32, a, verb, other_key, b);
}

/* null says "derive it", also where a format's default is a number. */
static bool is_null(const JsonObj *o, const char *key)
{
    return json_type(json_member(o->node, key)) == JSON_NULL;
}

static void read_kv_heads(Transformer *t, JsonObj *o, const ShapeKeys *keys)
{
    if (keys->kv_heads) {
        bool same = t->kv_heads == 0 || is_null(o, keys->kv_heads);
        t->kv_heads =
            read_size(o, keys->kv_heads, MODEL_HEADS_MAX, same ? t->heads : t->kv_heads);
    } else {
        t->kv_heads = t->heads;
    }
    if (o->ok && t->heads % t->kv_heads != 0)
        refuse(o, keys->kv_heads, "does not divide", t->kv_heads, keys->heads, t->heads);
}

static void read_head_dim(Transformer *t, JsonObj *o, const ShapeKeys *keys)
{
    bool given = keys->head_dim && json_has(o, keys->head_dim);
    bool derived =
        !given && (t->head_dim == 0 || (keys->head_dim && is_null(o, keys->head_dim)));
    if (o->ok && derived && t->hidden % t->heads != 0)
        refuse(o, keys->heads, "does not divide", t->heads, keys->hidden, t->hidden);
    if (o->ok && derived)
        t->head_dim = t->hidden / t->heads;
    if (o->ok && keys->head_dim)
        t->head_dim = read_size(o, keys->head_dim, MODEL_HEAD_DIM_MAX, t->head_dim);
}

/* Who names a built-in model has not said what stands in its file. */
static bool is_said(JsonObj *o, const char *key)
{
    char built_in[4096];
    size_t n = (size_t)snprintf(built_in, sizeof built_in, "%s/models/", share_dir());
    const char *file = json_origin(json_member(o->node, key));
    return json_has(o, key) && strncmp(file, built_in, n) != 0;
}

void shape_read(Transformer *t, JsonObj *o, const ShapeKeys *keys)
{
    t->layers = read_size(o, keys->layers, MODEL_LAYERS_MAX, t->layers);
    t->hidden = read_size(o, keys->hidden, MODEL_WIDTH_MAX, t->hidden);
    t->heads = read_size(o, keys->heads, MODEL_HEADS_MAX, t->heads);
    read_kv_heads(t, o, keys);
    read_head_dim(t, o, keys);
    t->ffn = read_size(o, keys->ffn, MODEL_FFN_MAX, t->ffn ? t->ffn : 4 * t->hidden);
    t->vocab = read_size(o, keys->vocab, MODEL_VOCAB_MAX, t->vocab);
    t->max_seq = read_size(o, keys->max_seq, MODEL_SEQ_MAX, t->max_seq);
    t->max_seq_said = is_said(o, keys->max_seq);
    t->embedding_dim = t->hidden;
    t->moe_every = t->window_every = 1;
}

void shape_read_experts_per_token(Transformer *t, JsonObj *o, const char *key,
                                  uint32_t fallback)
{
    uint32_t most = t->experts ? t->experts : MODEL_EXPERTS_MAX;
    uint32_t least = t->experts ? 1 : 0; /* of none a token visits none */
    uint32_t n = (uint32_t)json_count(o, key, least, most, (double)min_u64(fallback, most));
    t->experts_per_token = t->experts ? n : 0;
}

void transformer_lengthen(Transformer *t, uint32_t seq)
{
    if (t->positions != POS_LEARNED || t->max_seq_said || seq <= t->max_seq)
        return;
    t->position_rows += seq - t->max_seq; /* OPT's table has rows before the first position */
    t->max_seq = seq;
}

void shape_check_total(const Transformer *t, JsonObj *o)
{
    double params = 0;
    for (uint32_t l = 0; l < t->layers && o->ok; l++)
        params += (double)transformer_block_params(t, l);
    if (o->ok && params > MODEL_PARAMS_MAX)
        o->ok =
            json_fail(o->node, o->err, "the model has %.2g parameters, at most %.0e allowed",
                      params, MODEL_PARAMS_MAX);
}

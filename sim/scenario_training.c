/*
 * scenario_training.c - the keys of "training": batch, number formats, optimizer, loss, data.
 *
 * A matmul precision implies how parameters, gradients and their sums are
 * stored; each of these can be given by itself:
 *
 *     precision --> param_dtype --> grad_dtype --> reduce_dtype
 *     f32 tf32      f32             f32            f32
 *     f16           f16             f16            f16      + f32 master weights with adam, adamw
 *     bf16 fp8      bf16            bf16           bf16     + f32 master weights with adam, adamw
 */
#include <string.h>

#include "sim/scenario_parts.h"

enum {
    MICRO_BATCH_MAX = 1 << 20,
    SEQ_LEN_MAX = 1 << 26,
    PRECISIONS_N = DTYPE_FP8 + 1 /* the first dtypes are those a matmul can have */
};

#define GLOBAL_BATCH_MAX ((uint64_t)1 << 31)

const char *const optimizer_names[OPTIMIZER_N] = { "sgd", "momentum", "adam", "adamw" };

/* ---- batch ---- */

/* As Megatron's --max-position-embeddings goes with --seq-length, and NeMo's and nanoGPT's too. */
static void lengthen_positions(Scenario *s)
{
    Transformer *t = &s->model.u.transformer;
    uint32_t rows = t->max_seq;
    transformer_lengthen(t, s->training.seq_len);
    if (t->max_seq == rows)
        return;
    char text[16];
    snprintf(text, sizeof text, "%" PRIu32, t->max_seq);
    json_log_value(json_member(json_root(s->doc), "model learned positions"), text, true);
}

/* One micro-batch per replica unless told otherwise; model_parallel never cuts the batch. */
static bool read_batch(JsonObj *o, Scenario *s)
{
    Training *t = &s->training;
    double micro = 1;
    if (s->parallel.strategy == STRATEGY_MODEL_PARALLEL && json_has(o, "global_batch"))
        micro = (double)json_count(o, "global_batch", 1, GLOBAL_BATCH_MAX, 1);
    t->micro_batch = scenario_count(o, "micro_batch", 1, MICRO_BATCH_MAX, micro);
    uint64_t one = (uint64_t)s->parallel.dp * t->micro_batch;
    if (o->ok && one > GLOBAL_BATCH_MAX)
        return json_fail(json_member(o->node, "micro_batch"), o->err,
                         "dp x micro_batch = %" PRIu64 " is above the largest batch, %" PRIu64,
                         one, GLOBAL_BATCH_MAX);
    t->global_batch = scenario_count(o, "global_batch", 1, GLOBAL_BATCH_MAX, (double)one);
    bool text = s->model.kind == MODEL_TRANSFORMER;
    t->seq_len =
        scenario_count(o, "seq_len", 1, SEQ_LEN_MAX, text ? s->model.u.transformer.max_seq : 1);
    if (o->ok && text)
        lengthen_positions(s);
    if (o->ok && t->global_batch % one == 0)
        t->micro_batches = (uint32_t)(t->global_batch / one);
    return o->ok;
}

/* ---- number formats ---- */

static DType stored_as(DType precision)
{
    if (precision == DTYPE_F32 || precision == DTYPE_TF32)
        return DTYPE_F32;
    return precision == DTYPE_F16 ? DTYPE_F16 : DTYPE_BF16;
}

static DType read_stored(JsonObj *o, const char *key, DType fallback)
{
    static const DType dtypes[] = { DTYPE_F32, DTYPE_F16, DTYPE_BF16 };
    const char *words[ARRAY_N(dtypes)];
    int usual = 0;
    for (size_t i = 0; i < ARRAY_N(dtypes); i++) {
        words[i] = dtype_names[dtypes[i]];
        if (dtypes[i] == fallback)
            usual = (int)i;
    }
    return dtypes[json_word(o, key, words, ARRAY_N(dtypes), usual)];
}

static bool read_formats(JsonObj *o, Scenario *s)
{
    Training *t = &s->training;
    bool text = s->model.kind == MODEL_TRANSFORMER;
    t->precision = (DType)json_word(o, "precision", dtype_names, PRECISIONS_N,
                                    text ? DTYPE_BF16 : DTYPE_F32);
    t->param_dtype_set = json_has(o, "param_dtype");
    t->param_dtype = read_stored(o, "param_dtype", stored_as(t->precision));
    t->grad_dtype_set = json_has(o, "grad_dtype");
    t->grad_dtype = read_stored(o, "grad_dtype", t->param_dtype);
    t->reduce_dtype_set = json_has(o, "reduce_dtype");
    t->reduce_dtype = read_stored(o, "reduce_dtype", t->grad_dtype);
    return o->ok;
}

/* ---- optimizer ---- */

static bool read_betas(JsonObj *o, Training *t)
{
    double betas[2] = { 0.9, 0.999 };
    JsonNode node = json_get(o, "betas");
    if (!o->ok || (node.item && !json_numbers(node, betas, 2, o->err)))
        return false;
    for (int i = 0; i < 2; i++)
        if (!(betas[i] >= 0 && betas[i] < 1))
            return json_fail(node, o->err, "%.12g is out of range, 0 to below 1 allowed",
                             betas[i]);
    t->beta1 = betas[0];
    t->beta2 = betas[1];
    scenario_log_numbers(node, betas, 2, !node.item);
    return true;
}

static bool read_optimizer(JsonObj *o, Training *t)
{
    t->optimizer =
        (Optimizer)json_word(o, "optimizer", optimizer_names, OPTIMIZER_N, OPT_ADAMW);
    bool adam = t->optimizer == OPT_ADAM || t->optimizer == OPT_ADAMW;
    t->master_weights_set = json_has(o, "master_weights");
    t->master_weights =
        json_bool(o, "master_weights", adam && dtype_bytes(t->param_dtype) == 2);
    t->lr = json_number(o, "lr", 0, 1e6, 1e-3);
    double decay = t->optimizer == OPT_ADAMW ? 0.01 : 0;
    t->weight_decay = json_number(o, "weight_decay", 0, 1e6, decay);
    t->eps = json_number(o, "eps", 0, 1, 1e-8);
    double momentum = t->optimizer == OPT_MOMENTUM ? 0.9 : 0;
    t->momentum = json_number(o, "momentum", 0, 1, momentum);
    t->grad_clip_set = json_has(o, "grad_clip");
    t->grad_clip = json_number(o, "grad_clip", 0, 1e12, 0);
    return read_betas(o, t);
}

/* ---- the rest ---- */

const char *const recompute_names[RECOMPUTE_LAYERS] = { "none", "selective", "full" };

static bool read_recompute(JsonObj *o, Training *t)
{
    JsonNode node = json_get(o, "recompute");
    if (o->ok && json_type(node) == JSON_OBJECT) {
        JsonObj layers = json_begin(node, o->err);
        t->recompute = RECOMPUTE_LAYERS;
        t->recompute_layers = scenario_count(&layers, "layers", 0, 1 << 20, JSON_REQUIRED);
        return json_end(&layers);
    }
    const char *text = json_text(node);
    bool known = !text;
    for (size_t i = 0; i < ARRAY_N(recompute_names); i++)
        known = known || strcmp(text, recompute_names[i]) == 0;
    if (o->ok && !known)
        return json_fail(
            node, o->err,
            "unknown word '%.100s', allowed: none, selective, full, {\"layers\": N}", text);
    t->recompute = (Recompute)json_word(o, "recompute", recompute_names,
                                        ARRAY_N(recompute_names), RECOMPUTE_NONE);
    return o->ok;
}

/* A text file's path is relative to the scenario's file, as every path in it. */
static const char *resolve_data(Scenario *s, const char *data)
{
    bool built_in = strcmp(data, "synthetic") == 0 || strcmp(data, "regression20") == 0;
    const char *slash = strrchr(s->file, '/');
    if (built_in || *data == '/' || !slash)
        return data;
    return arena_printf(&s->arena, "%.*s/%s", (int)(slash - s->file), s->file, data);
}

static bool read_task(JsonObj *o, Scenario *s)
{
    static const char *const losses[] = { "cross_entropy", "mse" };
    static const char *const attentions[] = { "flash", "math" };
    static const char *const modes[] = { "eager", "compiled" };
    Training *t = &s->training;
    t->loss_mse = json_word(o, "loss", losses, 2, s->model.kind == MODEL_MLP) == 1;
    t->data = json_string(o, "data", "synthetic");
    t->seed = json_count(o, "seed", 0, (uint64_t)1 << 53, 0);
    t->asks_attention = json_has(o, "attention");
    t->attention = (Attention)json_word(o, "attention", attentions, 2, ATTENTION_FLASH);
    t->compiled = json_word(o, "compile", modes, 2, 0) == 1;
    if (!o->ok)
        return false;
    if (!strpbrk(t->data, "./") && strcmp(t->data, "synthetic") != 0 &&
        strcmp(t->data, "regression20") != 0)
        return json_fail(json_member(o->node, "data"), o->err,
                         "unknown word '%.100s', allowed: synthetic, regression20, or the path "
                         "of a text file such as data/input.txt",
                         t->data);
    t->data = resolve_data(s, t->data);
    return true;
}

bool scenario_training(Scenario *s, JsonNode node, Err *err)
{
    JsonObj o = scenario_begin(node, err);
    bool ok = read_batch(&o, s) && read_formats(&o, s) && read_optimizer(&o, &s->training) &&
              read_recompute(&o, &s->training) && read_task(&o, s);
    if (!ok) {
        json_end_lax(&o);
        return false;
    }
    return json_end(&o);
}

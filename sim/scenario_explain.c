/*
 * scenario_explain.c - each value with where it came from, as aligned rows.
 *
 * The readers have logged every key they asked for (core/json.h); the last rows
 * are what follows from the keys without being one.
 */
#include <stdlib.h>
#include <string.h>

#include "sim/blocks.h"
#include "sim/scenario.h"
#include "sim/strategy/buckets.h"

enum { SHOWN_MAX = 72 }; /* longer texts (notes, sources) are cut */

typedef struct Columns {
    int key, value;
} Columns;

static int shown(const char *text)
{
    size_t n = strlen(text);
    return n > SHOWN_MAX ? SHOWN_MAX : (int)n;
}

static void widen(Columns *c, const JsonLogRow *row)
{
    int key = (int)strlen(row->path), value = shown(row->value);
    c->key = key > c->key ? key : c->key;
    c->value = value > c->value ? value : c->value;
}

static void print_row(FILE *out, Columns c, const JsonLogRow *row)
{
    bool cut = strlen(row->value) > SHOWN_MAX;
    int n = shown(row->value) - (cut ? 3 : 0);
    fprintf(out, "%-*s  %.*s%s%*s  %s\n", c.key, row->path, n, row->value, cut ? "..." : "",
            c.value - shown(row->value), "", row->origin);
}

/* What follows from the keys without being one. */
enum { DERIVED_N = 5 };

static void derive(JsonLogRow row[DERIVED_N], char text[DERIVED_N][32], const Scenario *s)
{
    static const char *const keys[DERIVED_N][2] = {
        { "model parameters", "derived from model" },
        { "cluster gpus", "derived from cluster" },
        { "parallel gpus", "derived: dp x tp x pp x cp" },
        { "training micro_batches", "derived: global_batch / (dp x micro_batch)" },
        { "tokens per step", "derived: global_batch x seq_len" }
    };
    uint64_t values[DERIVED_N] = { model_params(&s->model), s->machine.gpus_n, s->parallel.gpus,
                                   s->training.micro_batches,
                                   (uint64_t)s->training.global_batch * s->training.seq_len };
    for (int i = 0; i < DERIVED_N; i++) {
        snprintf(text[i], 32, "%" PRIu64, values[i]);
        row[i] = (JsonLogRow){ keys[i][0], text[i], keys[i][1] };
    }
    if (s->model.kind != MODEL_TRANSFORMER)
        row[DERIVED_N - 1].path = "samples per step";
}

/* Sizes of buckets are the stack's where the scenario is silent. */
static void explain_buckets(JsonLogRow *rows, size_t n, char text[2][32], const Build *b)
{
    static const char *const keys[] = { "parallel.bucket_bytes",
                                        "parallel.first_bucket_bytes" };
    for (size_t i = 0; i < n && buckets_are_stacks(b); i++)
        for (int k = 0; k < 2; k++)
            if (strcmp(rows[i].path, keys[k]) == 0) {
                uint64_t limit = bucket_limit_bytes(b, k == 1);
                bool all = limit == UINT64_MAX;
                snprintf(text[k], 32, "%" PRIu64, limit);
                rows[i].value = all ? "all in one" : text[k];
                rows[i].origin = all ? "software" : "software: parallel.bucket_parameters";
            }
}

/* What the software chooses where the scenario is silent: number formats (sim/formats.h), whether
 * pipelines keep parameters, and whether attention is fused. */
static void explain_choices(JsonLogRow *rows, size_t n, const Scenario *s, const Software *sw)
{
    const Build b = { .s = s, .sw = sw };
    Formats f = formats_of(&s->training, &s->parallel, sw);
    const char *params =
        sw->f32_params ? "software: kernels.f32_params" : "f32 shards: as they are gathered";
    bool wide = grads_in_f32(&s->training, &s->parallel, sw);
    const char *grads = !wide           ? params
                        : sw->f32_grads ? "software: kernels.f32_grads"
                                        : "software: kernels.bf16_grads_f32";
    bool flash = fused_attention(&b) || s->model.kind != MODEL_TRANSFORMER;
    const char *sums = !wide && sw->f32_reduce ? "software: parallel.f32_reduce" : grads;
    const JsonLogRow chosen[] = {
        { "training.param_dtype", dtype_names[f.param], params },
        { "training.grad_dtype", dtype_names[f.grad], grads },
        { "training.reduce_dtype", dtype_names[f.reduce], sums },
        { "training.master_weights", f.masters ? "true" : "false", params },
        { "parallel.reshard_after_forward", reshards(&b) ? "true" : "false",
          "software: parallel.pp_keeps_params" },
        { "training.attention", flash ? "flash" : "math", "software: kernels.fused_attention" },
    };
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < ARRAY_N(chosen); k++)
            if (strcmp(rows[i].path, chosen[k].path) == 0 &&
                strcmp(rows[i].value, chosen[k].value) != 0)
                rows[i] = chosen[k];
}

/* Which dimensions do overlap where the scenario leaves it to the software: with this schedule and
 * strategy, and where there is anything to overlap. */
static void explain_overlap(JsonLogRow *rows, size_t n, char *text, size_t cap, const Build *b)
{
    size_t at = (size_t)snprintf(text, cap, "as the software does:"), none = at;
    for (Dim d = 0; d < DIM_N; d++)
        if (parallel_degree(&b->s->parallel, d) > 1 && overlaps(b, d))
            at += (size_t)snprintf(text + at, cap - at, " %s", dim_names[d]);
    if (at == none)
        snprintf(text + at, cap - at, " none");
    for (size_t i = 0; i < n; i++)
        if (strcmp(rows[i].path, "parallel.overlap") == 0 &&
            strcmp(rows[i].value, "as the software does") == 0)
            rows[i].value = text;
}

/* Not the texts that nobody gave, nor what report_software_text shows. */
static bool is_shown(const JsonLogRow *row)
{
    return *row->value && strncmp(row->path, "software.", strlen("software.")) != 0;
}

void scenario_explain(const Scenario *s, const Software *sw, FILE *out)
{
    size_t n;
    const JsonLogRow *log = json_log(s->doc, &n);
    JsonLogRow *rows = mem_zero(n + 1, sizeof *rows);
    char buckets[2][32], overlap[80];
    const Build b = { .s = s, .sw = sw };
    if (n > 0)
        memcpy(rows, log, n * sizeof *rows);
    explain_buckets(rows, n, buckets, &b);
    explain_overlap(rows, n, overlap, sizeof overlap, &b);
    explain_choices(rows, n, s, sw);
    JsonLogRow derived[DERIVED_N];
    char text[DERIVED_N][32];
    derive(derived, text, s);
    JsonLogRow head = { "key", "value", "origin" };
    Columns columns = { 0 };
    for (size_t i = 0; i < n; i++)
        if (is_shown(&rows[i]))
            widen(&columns, &rows[i]);
    for (int i = 0; i < DERIVED_N; i++)
        widen(&columns, &derived[i]);
    print_row(out, columns, &head);
    for (size_t i = 0; i < n; i++)
        if (is_shown(&rows[i]))
            print_row(out, columns, &rows[i]);
    for (int i = 0; i < DERIVED_N; i++)
        print_row(out, columns, &derived[i]);
    free(rows);
}

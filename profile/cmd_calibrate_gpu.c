/*
 * cmd_calibrate_gpu.c - timelines with op ids into a GPU's tables of kernels.
 *
 * A timeline says how long op 1,234 of rank 3 took; what op 1,234 was (a matmul of
 * which m, n, k) stands in the graph, which the scenario gives again.  Kernels of one
 * shape are one row, their median; kernels that ran beside communication are left
 * out, as they were slowed by it.
 *
 *     SPAN                                BECOMES
 *     matmul, convolution (not batched)   row of kernels.gemm
 *     fused attention                     row of kernels.attention
 *     what is limited by memory           row of kernels.memory
 *     launch                              launch_us, their median
 *     copy from the host, 1 MiB or more   host_GBps, their median
 *     the shortest kernel                 kernel_floor_us, where that is longer
 *
 * Rows that the file has for other shapes stay; a row measured replaces theirs.
 * Measured times are divided by what the scenario's software file multiplies with.
 */
#include "profile/cmd_calibrate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json_out.h"
#include "profile/calibrate.h"
#include "profile/splice.h"
#include "sim/build.h"
#include "sim/cost_parts.h"
#include "traces/formats.h"

enum { KEYS_MAX = 7 };

typedef enum TableKind {
    TABLE_GEMM,
    TABLE_MEMORY,
    TABLE_ATTENTION,
    TABLE_COPY, /* from the host: no table, one rate */
    TABLE_N
} TableKind;

/* A column of a table; words: what its numbers are called in the file. */
typedef struct Column {
    const char *name;
    const char *const *words;
    uint32_t words_n;
    double fallback; /* where neither row nor group says */
} Column;

typedef struct TableSpec {
    const char *name;
    uint32_t columns_n;
    Column columns[KEYS_MAX]; /* time_us follows */
} TableSpec;

static const char *const pass_names[] = { "forward", "backward" };

static const TableSpec specs[] = {
    [TABLE_GEMM] = { "gemm",
                     5,
                     { { "m", NULL, 0, NAN },
                       { "n", NULL, 0, NAN },
                       { "k", NULL, 0, NAN },
                       { "dtype", dtype_names, DTYPE_N, NAN },
                       { "layout", gemm_layout_names, GEMM_LAYOUT_N, GEMM_ANY } } },
    [TABLE_MEMORY] = { "memory",
                       2,
                       { { "op", memory_kernel_names, MEMORY_KERNEL_N, NAN },
                         { "bytes", NULL, 0, NAN } } },
    [TABLE_ATTENTION] = { "attention",
                          7,
                          { { "op", pass_names, 2, NAN },
                            { "batch", NULL, 0, NAN },
                            { "seq", NULL, 0, NAN },
                            { "heads", NULL, 0, NAN },
                            { "kv_heads", NULL, 0, NAN },
                            { "head_dim", NULL, 0, NAN },
                            { "causal", NULL, 0, NAN } } },
};

typedef struct Sample {
    TableKind table;
    double key[KEYS_MAX];
    double ns; /* as measured */
    const Op *op;
} Sample;

/* Samples of one shape. */
typedef struct ShapeRow {
    TableKind table;
    double key[KEYS_MAX];
    double ns, table_ns; /* table_ns: without what the software file multiplies */
    uint32_t n;
    const Op *op;
} ShapeRow;

typedef struct Interval {
    int64_t begin_ns, end_ns;
} Interval;

typedef struct Work {
    const CalibrateOptions *o;
    Arena arena;
    Scenario s;
    Software sw;
    Graph g;
    const Gpu *gpu; /* of the file, as it was */
    Sample *samples;
    double *launches;
    uint32_t samples_n, samples_cap, launches_n, launches_cap;
    uint32_t beside_comm, no_table, ops_seen;
    ShapeRow *rows;
    uint32_t rows_n;
    double launch_ns, floor_ns, host_bytes_per_ns; /* NAN: not measured */
} Work;

/* ---- spans to samples ---- */

static GemmLayout layout_of(const MatmulShape *s)
{
    if (s->transpose_a)
        return s->accumulate ? GEMM_NT_ACCUMULATE : GEMM_NT;
    return s->transpose_b ? GEMM_TN : GEMM_NN;
}

/* False: the tables have no place for such a kernel. */
static bool gemm_sample(const Op *op, Sample *x)
{
    const MatmulShape *s = &op->u.matmul;
    x->table = TABLE_GEMM;
    x->key[0] = (double)s->m;
    x->key[1] = (double)s->n;
    x->key[2] = (double)s->k;
    x->key[3] = op->dtype;
    x->key[4] = layout_of(s);
    return s->batch == 1;
}

static bool attention_sample(const Op *op, Sample *x)
{
    const AttentionShape *a = &op->u.attention;
    x->table = TABLE_ATTENTION;
    x->key[0] = op->phase == PHASE_DGRAD || op->phase == PHASE_WGRAD;
    x->key[1] = (double)a->batch;
    x->key[2] = (double)a->seq_q;
    x->key[3] = (double)a->heads;
    x->key[4] = (double)a->kv_heads;
    x->key[5] = (double)a->head_dim;
    x->key[6] = a->causal;
    return a->seq_q == a->seq_k && a->window == 0;
}

static bool sample_of(const Op *op, Sample *x)
{
    switch (op->kind) {
    case OP_MATMUL:
    case OP_CONV:
        return gemm_sample(op, x);
    case OP_ATTENTION:
        return attention_sample(op, x);
    case OP_H2D:
        x->table = TABLE_COPY;
        x->key[0] = (double)op->write_bytes;
        return op->write_bytes > 0;
    default:
        x->table = TABLE_MEMORY;
        x->key[0] = memory_kernel_of(op);
        x->key[1] = (double)op->read_bytes + (double)op->write_bytes;
        return x->key[1] > 0;
    }
}

/* The op that a span is; false with err when the trace is not of this scenario. */
static bool find_op(Work *w, const Timeline *t, uint64_t i, const char *path, OpRef *ref,
                    Err *err)
{
    const Track *track = &t->tracks[t->span_track[i]];
    const Role *role = graph_role_of(&w->g, track->rank);
    if (t->op[i] >= role->ops_n)
        return err_set(
            err,
            "'%s' is not of this scenario: it has op %u on rank %u, where the scenario "
            "has %" PRIu64 " ops",
            path, (unsigned)t->op[i], (unsigned)track->rank, role->ops_n);
    *ref = graph_find_op(&w->g, role, t->op[i]);
    const char *is = timeline_text(t, t->span_name[i]);
    const char *should = intern_text(&w->g.names, ref->o->name);
    if (strcmp(is, should) != 0)
        return err_set(err,
                       "'%s' is not of this scenario: op %u on rank %u is '%.60s', in the "
                       "scenario '%.60s'",
                       path, (unsigned)t->op[i], (unsigned)track->rank, is, should);
    return true;
}

static int compare_intervals(const void *pa, const void *pb)
{
    const Interval *a = pa, *b = pb;
    return (a->begin_ns > b->begin_ns) - (a->begin_ns < b->begin_ns);
}

/* When a rank transferred, in order and apart; *n of them, on the heap. */
static Interval *transfers_of(const Timeline *t, uint32_t rank, uint32_t *n)
{
    Interval *list = NULL;
    uint32_t cap = 0, kept = 0;
    *n = 0;
    for (uint64_t i = 0; i < t->spans_n; i++) {
        bool comm = t->span_class[i] == SPAN_COMM || t->span_class[i] == SPAN_P2P;
        if (!comm || t->tracks[t->span_track[i]].rank != rank)
            continue;
        GROW(list, *n, cap);
        list[(*n)++] = (Interval){ t->start_ns[i] + timeline_wait_ns(t, i),
                                   t->start_ns[i] + t->dur_ns[i] };
    }
    if (*n == 0)
        return NULL;
    qsort(list, *n, sizeof *list, compare_intervals);
    for (uint32_t i = 1; i < *n; i++) {
        if (list[i].begin_ns <= list[kept].end_ns)
            list[kept].end_ns = max_i64(list[kept].end_ns, list[i].end_ns);
        else
            list[++kept] = list[i];
    }
    *n = kept + 1;
    return list;
}

static bool meets(const Interval *list, uint32_t n, int64_t begin_ns, int64_t end_ns)
{
    uint32_t low = 0, high = n; /* first that ends after begin */
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (list[mid].end_ns <= begin_ns)
            low = mid + 1;
        else
            high = mid;
    }
    return low < n && list[low].begin_ns < end_ns;
}

static bool take_span(Work *w, const Timeline *t, uint64_t i, const char *path,
                      const Interval *transfers, uint32_t transfers_n, Err *err)
{
    SpanClass c = (SpanClass)t->span_class[i];
    OpRef ref = { 0 };
    if (t->op[i] == NONE_U32)
        return true;
    if (!find_op(w, t, i, path, &ref, err))
        return false;
    w->ops_seen++;
    if (c == SPAN_LAUNCH) {
        GROW(w->launches, w->launches_n, w->launches_cap);
        w->launches[w->launches_n++] = (double)t->dur_ns[i];
    }
    if ((c != SPAN_COMPUTE && c != SPAN_MEMORY) || t->dur_ns[i] == 0)
        return true;
    Sample x = { .ns = (double)t->dur_ns[i], .op = ref.o };
    if (meets(transfers, transfers_n, t->start_ns[i], t->start_ns[i] + t->dur_ns[i]))
        w->beside_comm++;
    else if (!sample_of(ref.o, &x))
        w->no_table++;
    else {
        GROW(w->samples, w->samples_n, w->samples_cap);
        w->samples[w->samples_n++] = x;
    }
    return true;
}

/* Tracks of a rank follow one another in no order: rank by rank, all its tracks. */
static bool take_timeline(Work *w, const Timeline *t, const char *path, Err *err)
{
    if (t->ranks_n != w->g.world_n)
        return err_set(err, "'%s' has %u ranks, the scenario '%s' has %u", path,
                       (unsigned)t->ranks_n, w->o->scenario, (unsigned)w->g.world_n);
    bool *done = mem_zero(t->ranks_n + 1, sizeof *done), ok = true;
    for (uint32_t k = 0; k < t->tracks_n && ok; k++) {
        uint32_t rank = t->tracks[k].rank, n;
        if (done[rank])
            continue;
        done[rank] = true;
        Interval *transfers = transfers_of(t, rank, &n);
        for (uint32_t j = k; j < t->tracks_n && ok; j++)
            for (uint64_t i = 0; t->tracks[j].rank == rank && i < t->tracks[j].span_n && ok;
                 i++)
                ok = take_span(w, t, t->tracks[j].span_first + i, path, transfers, n, err);
        free(transfers);
    }
    free(done);
    return ok;
}

static bool read_traces(Work *w, Err *err)
{
    for (uint32_t i = 0; i < w->o->inputs_n; i++) {
        Timeline t;
        if (!trace_read(&t, w->o->inputs[i], err))
            return false;
        uint32_t seen = w->ops_seen;
        bool ok = take_timeline(w, &t, w->o->inputs[i], err);
        timeline_free(&t);
        if (!ok)
            return false;
        if (w->ops_seen == seen)
            return err_set(
                err,
                "'%s' has no op ids: only traces that lockstep itself wrote (*.lstrace "
                "of sim --trace and run --trace) tell which op a kernel is",
                w->o->inputs[i]);
    }
    return true;
}

/* ---- samples to rows ---- */

static int compare_shapes(TableKind table_a, const double *a, TableKind table_b,
                          const double *b)
{
    if (table_a != table_b)
        return table_a < table_b ? -1 : 1;
    for (int i = 0; i < KEYS_MAX; i++)
        if (a[i] < b[i] || a[i] > b[i])
            return a[i] < b[i] ? -1 : 1;
    return 0;
}

static int compare_samples(const void *pa, const void *pb)
{
    const Sample *a = pa, *b = pb;
    int c = compare_shapes(a->table, a->key, b->table, b->key);
    return c ? c : (a->ns > b->ns) - (a->ns < b->ns);
}

/* What the software file multiplies a kernel's time with. */
static double scale_of(const Work *w, const Op *op)
{
    double age =
        op->kind == OP_ATTENTION ? attention_age(w->gpu, op, w->sw.attention_kernel) : 1;
    return w->sw.compute_scale * age;
}

static void make_rows(Work *w)
{
    w->rows = PUSH_ARRAY(&w->arena, ShapeRow, w->samples_n);
    if (w->samples_n > 0)
        qsort(w->samples, w->samples_n, sizeof *w->samples, compare_samples);
    for (uint32_t first = 0, end; first < w->samples_n; first = end) {
        const Sample *s = &w->samples[first];
        for (end = first + 1; end < w->samples_n; end++)
            if (compare_shapes(s->table, s->key, w->samples[end].table, w->samples[end].key) !=
                0)
                break;
        uint32_t n = end - first; /* sorted by time too */
        ShapeRow *row = &w->rows[w->rows_n++];
        *row = (ShapeRow){ .table = s->table, .n = n, .op = s->op };
        memcpy(row->key, s->key, sizeof row->key);
        row->ns = (s[(n - 1) / 2].ns + s[n / 2].ns) / 2;
        row->table_ns = row->ns / scale_of(w, s->op);
    }
}

/* Numbers that are no table: launches, copies from the host, the shortest kernel. */
static void measure_rest(Work *w)
{
    double *rates = PUSH_ARRAY(&w->arena, double, w->rows_n), shortest = INFINITY;
    uint32_t rates_n = 0;
    for (uint32_t i = 0; i < w->rows_n; i++) {
        const ShapeRow *r = &w->rows[i];
        if (r->table == TABLE_COPY && r->key[0] >= (double)MIB) /* less is latency */
            rates[rates_n++] = r->key[0] / r->table_ns;
        shortest = fmin(shortest, r->ns);
    }
    w->launch_ns = w->launches_n >= CALIBRATE_ROWS_MIN
                       ? calibrate_median(w->launches, w->launches_n) / w->sw.host_scale
                       : NAN;
    w->host_bytes_per_ns = calibrate_median(rates, rates_n);
    w->floor_ns = shortest < (double)w->gpu->kernel_floor_ns ? shortest : NAN;
}

/* ---- the file ---- */

static void print_text(FILE *f, const char *text)
{
    JsonOut j = json_out_file(f, 0);
    json_out_string(&j, text);
}

static void print_number(FILE *f, double x)
{
    JsonOut j = json_out_file(f, 0);
    json_out_number(&j, x);
}

/* Any value, on one line. */
static void print_node(FILE *f, JsonNode node)
{
    JsonType type = json_type(node);
    size_t n = json_items_n(node);
    if (type == JSON_STRING)
        print_text(f, json_text(node));
    else if (type == JSON_NUMBER)
        print_number(f, json_value(node));
    else if (type != JSON_ARRAY && type != JSON_OBJECT)
        fputs(type == JSON_NULL ? "null" : json_truth(node) ? "true" : "false", f);
    if (type != JSON_ARRAY && type != JSON_OBJECT)
        return;
    fputc(type == JSON_ARRAY ? '[' : '{', f);
    for (size_t i = 0; i < n; i++) {
        fputs(i ? ", " : "", f);
        if (type == JSON_OBJECT) {
            print_text(f, json_key(node, i));
            fputs(": ", f);
        }
        print_node(f, type == JSON_ARRAY ? json_item(node, i)
                                         : json_member(node, json_key(node, i)));
    }
    fputc(type == JSON_ARRAY ? ']' : '}', f);
}

static double cell_value(const Column *c, JsonNode cell)
{
    const char *word = json_text(cell);
    for (uint32_t i = 0; word && i < c->words_n; i++)
        if (strcmp(c->words[i], word) == 0)
            return i;
    return json_value(cell);
}

/* Value of column c in a row of a group: a cell, a key of the group, or the fallback. */
static double old_value(const Column *c, JsonNode group, JsonNode columns, JsonNode row)
{
    for (size_t j = 0; j < json_items_n(columns); j++)
        if (strcmp(json_text(json_item(columns, j)), c->name) == 0)
            return cell_value(c, json_item(row, j));
    JsonNode fixed = json_member(group, c->name);
    return fixed.item ? cell_value(c, fixed) : c->fallback;
}

static double dtype_class(double dtype)
{
    return (int)dtype == DTYPE_BF16 ? DTYPE_F16 : dtype; /* one speed, as in cost_matmul.c */
}

/* Whether a measured row takes the place of an old one.  No layout is any layout. */
static bool replaces(const ShapeRow *r, TableKind table, const double *old)
{
    if (r->table != table)
        return false;
    for (uint32_t i = 0; i < specs[table].columns_n; i++) {
        double is = r->key[i], was = old[i];
        bool dtype = table == TABLE_GEMM && i == 3, layout = table == TABLE_GEMM && i == 4;
        bool same = dtype    ? dtype_class(is) == dtype_class(was)
                    : layout ? is == was || was == GEMM_ANY
                             : is == was;
        if (!same)
            return false;
    }
    return true;
}

static bool is_replaced(const Work *w, TableKind table, const double *old)
{
    for (uint32_t i = 0; i < w->rows_n; i++)
        if (replaces(&w->rows[i], table, old))
            return true;
    return false;
}

static bool is_ours(JsonNode group)
{
    static const char mark[] = "lockstep calibrate";
    const char *source = json_text(json_member(group, "source"));
    return source && strncmp(source, mark, sizeof mark - 1) == 0;
}

enum { ROWS_ON_A_LINE = 4 };

static void begin_row(FILE *f, uint32_t nth)
{
    fprintf(f, "%s%s", nth ? "," : "", nth % ROWS_ON_A_LINE ? " " : "\n        ");
}

/* A group as it was, without the rows that were measured anew. */
static void print_group(const Work *w, FILE *f, TableKind table, JsonNode group)
{
    const TableSpec *spec = &specs[table];
    JsonNode columns = json_member(group, "columns"), rows = json_member(group, "rows");
    fputc('{', f);
    for (size_t i = 0; i < json_items_n(group); i++) {
        const char *key = json_key(group, i);
        if (strcmp(key, "rows") == 0)
            continue;
        print_text(f, key);
        fputs(": ", f);
        print_node(f, json_member(group, key));
        fputs(", ", f);
    }
    fputs("\"rows\": [", f);
    size_t at = 0;
    uint32_t nth = 0;
    for (JsonNode row = json_first(rows); row.item; row = json_next(row, rows, ++at)) {
        double old[KEYS_MAX] = { 0 };
        for (uint32_t c = 0; c < spec->columns_n; c++)
            old[c] = old_value(&spec->columns[c], group, columns, row);
        if (is_replaced(w, table, old))
            continue;
        begin_row(f, nth++);
        print_node(f, row);
    }
    fputs("]}", f);
}

static void print_cells(FILE *f, const TableSpec *spec, const double *key, double ns)
{
    fputc('[', f);
    for (uint32_t c = 0; c < spec->columns_n; c++) {
        if (spec->columns[c].words)
            print_text(f, spec->columns[c].words[(size_t)key[c]]);
        else
            print_number(f, key[c]);
        fputs(", ", f);
    }
    print_number(f, floor(ns + 0.5) / 1e3);
    fputc(']', f);
}

static void begin_group(FILE *f, const TableSpec *spec, const char *source)
{
    fputs("{\"source\": ", f);
    print_text(f, source);
    fputs(", \"columns\": [", f);
    for (uint32_t c = 0; c < spec->columns_n; c++)
        fprintf(f, "\"%s\", ", spec->columns[c].name);
    fputs("\"time_us\"], \"rows\": [", f);
}

static bool print_measured(const Work *w, FILE *f, TableKind table, const char *source)
{
    uint32_t nth = 0;
    for (uint32_t i = 0; i < w->rows_n; i++) {
        if (w->rows[i].table != table)
            continue;
        if (nth == 0)
            begin_group(f, &specs[table], source);
        begin_row(f, nth++);
        print_cells(f, &specs[table], w->rows[i].key, w->rows[i].table_ns);
    }
    if (nth > 0)
        fputs("]}", f);
    return nth > 0;
}

/* Rows of the base, which a table given in this file would hide. */
static uint32_t inherited_n(const Gpu *g, TableKind table)
{
    return table == TABLE_GEMM     ? g->gemm_n
           : table == TABLE_MEMORY ? g->memory_n
                                   : g->attention_n;
}

static double inherited_row(const Gpu *g, TableKind table, uint32_t i, double *key)
{
    if (table == TABLE_GEMM) {
        const GemmRow *r = &g->gemm[i];
        const double k[] = { (double)r->m, (double)r->n, (double)r->k, r->dtype, r->layout };
        memcpy(key, k, sizeof k);
        return r->time_ns;
    }
    if (table == TABLE_MEMORY) {
        key[0] = g->memory[i].kernel;
        key[1] = (double)g->memory[i].bytes;
        return g->memory[i].time_ns;
    }
    const AttentionRow *r = &g->attention[i];
    const double k[] = { r->backward,      (double)r->batch,    (double)r->seq,
                         (double)r->heads, (double)r->kv_heads, (double)r->head_dim,
                         r->causal };
    memcpy(key, k, sizeof k);
    return r->time_ns;
}

static void print_inherited(const Work *w, FILE *f, TableKind table)
{
    uint32_t nth = 0, n = inherited_n(w->gpu, table);
    begin_group(f, &specs[table], "as in the base");
    for (uint32_t i = 0; i < n; i++) {
        double key[KEYS_MAX] = { 0 }, ns = inherited_row(w->gpu, table, i, key);
        if (is_replaced(w, table, key))
            continue;
        begin_row(f, nth++);
        print_cells(f, &specs[table], key, ns);
    }
    fputs("]}", f);
}

static char *splice_table(const Work *w, char *text, JsonNode root, TableKind table,
                          const char *source)
{
    char *value = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&value, &n);
    ASSERT(f);
    const char *between = "[\n      ";
    JsonNode old = json_member(json_member(root, "kernels"), specs[table].name);
    bool list = json_type(old) == JSON_ARRAY;
    for (size_t i = 0; i < (list ? json_items_n(old) : 1) && old.item; i++) {
        JsonNode group = list ? json_item(old, i) : old;
        if (is_ours(group))
            continue;
        fputs(between, f);
        between = ",\n      ";
        print_group(w, f, table, group);
    }
    if (!old.item && inherited_n(w->gpu, table) > 0) {
        fputs(between, f);
        between = ",\n      ";
        print_inherited(w, f, table);
    }
    fputs(between, f);
    bool any = print_measured(w, f, table, source);
    fputs("\n    ]", f);
    fclose(f);
    if (any)
        text = json_splice(text, "kernels", specs[table].name, value);
    free(value);
    return text;
}

static char *splice_number(char *text, const char *key, double x)
{
    char value[40];
    snprintf(value, sizeof value, "%.6g", x);
    return isnan(x) ? text : json_splice(text, key, NULL, value);
}

static char *splice_all(Work *w, char *text, Err *err)
{
    JsonDoc *doc = json_parse(text, strlen(text), w->o->into, err);
    ASSERT(doc);
    const char *names = "";
    for (uint32_t i = 0; i < w->o->inputs_n; i++)
        names = arena_printf(&w->arena, "%s%s%s", names, i ? ", " : "",
                             calibrate_base_name(w->o->inputs[i]));
    const char *source = arena_printf(&w->arena, "lockstep calibrate on %s, scenario %s", names,
                                      calibrate_base_name(w->o->scenario));
    for (TableKind t = 0; t < TABLE_COPY; t++)
        text = splice_table(w, text, json_root(doc), t, source);
    json_close(doc);
    text = splice_number(text, "launch_us", w->launch_ns / 1e3);
    text = splice_number(text, "kernel_floor_us", w->floor_ns / 1e3);
    text = splice_number(text, "host_GBps", w->host_bytes_per_ns);
    return calibrate_provenance(text, "kernels", source);
}

/* ---- what was done ---- */

static const Gpu *read_gpu(Work *w, const char *text, Err *err)
{
    JsonDoc *doc = json_parse(text, strlen(text), w->o->into, err);
    const Gpu *gpu = doc ? gpu_read(&w->arena, json_root(doc), share_dir(), err) : NULL;
    json_close(doc);
    return gpu;
}

/* Errors of a GPU's predictions for the rows of a table (TABLE_N: all); n: kernels of them. */
static CalibrateErrors errors_of(Work *w, const Gpu *gpu, TableKind table, uint32_t *kernels_n)
{
    double *measured = PUSH_ARRAY(&w->arena, double, w->rows_n);
    double *predicted = PUSH_ARRAY(&w->arena, double, w->rows_n);
    uint32_t n = 0;
    *kernels_n = 0;
    for (uint32_t i = 0; i < w->rows_n; i++) {
        if (table != TABLE_N && w->rows[i].table != table)
            continue;
        measured[n] = w->rows[i].ns;
        predicted[n++] = (double)op_cost(gpu, w->rows[i].op, &w->sw).alone_ns;
        *kernels_n += w->rows[i].n;
    }
    return calibrate_errors(measured, predicted, n, NULL, 0);
}

static const char *const table_texts[] = { [TABLE_GEMM] = "matmul",
                                           [TABLE_MEMORY] = "memory-bound",
                                           [TABLE_ATTENTION] = "attention",
                                           [TABLE_COPY] = "copy from host",
                                           [TABLE_N] = "all" };

static void print_report(Work *w, const Gpu *now)
{
    printf("%s %s on %u trace%s of %s\n\n", w->o->dry_run ? "would calibrate" : "calibrated",
           w->o->into, (unsigned)w->o->inputs_n, w->o->inputs_n > 1 ? "s" : "", w->o->scenario);
    printf("%-16s %8s %8s %14s %14s\n", "error in %", "", "", "as it was", "is now");
    printf("%-16s %8s %8s %8s %5s %8s %5s\n", "", "shapes", "kernels", "median", "p90",
           "median", "p90");
    for (TableKind t = 0; t <= TABLE_N; t++) {
        uint32_t kernels;
        CalibrateErrors was = errors_of(w, w->gpu, t, &kernels);
        CalibrateErrors is = errors_of(w, now, t, &kernels);
        if (was.n > 0)
            printf("%-16s %8u %8u %8.1f %5.1f %8.1f %5.1f\n", table_texts[t], (unsigned)was.n,
                   (unsigned)kernels, was.median_pct, was.p90_pct, is.median_pct, is.p90_pct);
    }
    printf("\nlaunch_us %g (was %g), kernel_floor_us %g (was %g), host_GBps %g (was %g)\n",
           (double)now->launch_ns / 1e3, (double)w->gpu->launch_ns / 1e3,
           (double)now->kernel_floor_ns / 1e3, (double)w->gpu->kernel_floor_ns / 1e3,
           now->host_bytes_per_ns, w->gpu->host_bytes_per_ns);
    if (w->beside_comm + w->no_table > 0)
        printf("not used: %u kernels beside communication, %u that no table holds (batched "
               "matmuls, attention with a window)\n",
               (unsigned)w->beside_comm, (unsigned)w->no_table);
}

static bool print_json(Work *w, const Gpu *now, Err *err)
{
    JsonOut j = json_out_file(stdout, 2);
    json_out_open(&j, '{');
    json_put_text(&j, "file", w->o->into);
    json_put_bool(&j, "written", !w->o->dry_run);
    for (TableKind t = 0; t <= TABLE_N; t++) {
        uint32_t kernels;
        CalibrateErrors was = errors_of(w, w->gpu, t, &kernels);
        CalibrateErrors is = errors_of(w, now, t, &kernels);
        json_put_open(&j, table_texts[t], '{');
        json_put_int(&j, "shapes", was.n);
        json_put_int(&j, "kernels", kernels);
        json_put_number(&j, "median_error_pct_before", was.median_pct);
        json_put_number(&j, "median_error_pct", is.median_pct);
        json_put_number(&j, "p90_error_pct", is.p90_pct);
        json_out_close(&j, '}');
    }
    json_put_number(&j, "launch_us", (double)now->launch_ns / 1e3);
    json_put_int(&j, "kernels_not_used", w->beside_comm + w->no_table);
    json_out_close(&j, '}');
    return json_out_end(&j, err);
}

/* ---- the whole ---- */

static bool read_scenario(Work *w, Err *err)
{
    if (!scenario_read(&w->s, w->o->scenario, w->o->settings, w->o->settings_n, err) ||
        !scenario_software_exists(&w->s, err))
        return false;
    return software_read(&w->sw, &w->arena, w->s.software, err) &&
           build_graph(&w->g, &w->s, &w->sw, err);
}

static bool calibrate(Work *w, char **text, Err *err)
{
    if (!read_scenario(w, err) || !(*text = calibrate_load(w->o->into, err)))
        return false;
    w->gpu = read_gpu(w, *text, err);
    if (!w->gpu)
        return err_wrap(err, "traces calibrate a GPU");
    if (!read_traces(w, err))
        return false;
    make_rows(w);
    if (w->rows_n == 0)
        return err_set(err,
                       "the traces have no kernel that can be used: %u beside "
                       "communication, %u that no table holds",
                       (unsigned)w->beside_comm, (unsigned)w->no_table);
    measure_rest(w);
    *text = splice_all(w, *text, err);
    const Gpu *now = read_gpu(w, *text, err);
    if (!now)
        return err_wrap(err, "calibrated");
    char *out = *text;
    *text = NULL;
    if (!calibrate_store(w->o, out, err))
        return false;
    if (w->o->json)
        return print_json(w, now, err);
    print_report(w, now);
    return true;
}

bool calibrate_gpu(const CalibrateOptions *o, Err *err)
{
    Work *w = mem_zero(1, sizeof *w);
    w->o = o;
    char *text = NULL;
    bool ok = calibrate(w, &text, err);
    free(text);
    free(w->samples);
    free(w->launches);
    graph_free(&w->g);
    scenario_free(&w->s);
    arena_free(&w->arena);
    free(w);
    return ok;
}

/*
 * machine_tables.c - the measured kernels of a GPU file, as sorted arrays.
 *
 *     "kernels": { "gemm": [group, ...], "memory": [...], "attention": [...] }
 *
 * A group is rows from one source.  Columns may stand in any order, and a column
 * that is the same for all rows may be a key of the group instead:
 *
 *     { "source": "...", "dtype": "f16", "columns": ["m", "n", "k", "time_us"],
 *       "rows": [[1, 4096, 4096, 25.0], ...] }
 *
 * Attention is of the newest kernel for the GPU, or of the one that its column "kernel" names.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/machine_parts.h"
#include "core/nearest.h"
#include "core/order.h"

const char *const gemm_layout_names[GEMM_LAYOUT_N] = { "any", "TN", "NN", "NT", "NT+" };
const char *const memory_kernel_names[MEMORY_KERNEL_N] = {
    "norm", "norm_bwd",  "activation", "add",  "softmax",
    "copy", "optimizer", "embedding",  "other"
};
const char *const attention_kernel_names[ATTENTION_KERNEL_N] = { "newest", "flash2", "lockstep",
                                                                 "flash1", "triton" };
static const char *const pass_names[] = { "forward", "backward" };

GemmLayout gemm_layout_of(const MatmulShape *s)
{
    if (s->transpose_a)
        return s->accumulate ? GEMM_NT_ACCUMULATE : GEMM_NT;
    return s->transpose_b ? GEMM_TN : GEMM_NN;
}

uint32_t gemm_alignment(GemmLayout layout, DType dtype, uint64_t m, uint64_t n, uint64_t k)
{
    uint64_t both = (n | (gemm_turns_a(layout) ? m : k)) * dtype_bytes(dtype) | GEMM_ALIGNED;
    return (uint32_t)(both & (~both + 1)); /* its lowest bit */
}

enum { COLUMNS_MAX = 9, ROWS_MAX = 1 << 20 };
#define DIM_MAX  ((double)((uint64_t)1 << 40))
#define TIME_MAX 1e12 /* us; times alone need not be whole */

typedef struct Column {
    const char *name;
    const char *const *words; /* of a text column; NULL: numbers */
    size_t words_n;
    double min, max;
    double fallback; /* NAN: must be given */
} Column;

/* Rows of any table while they are read: columns_n numbers each. */
typedef struct Rows {
    const Column *columns;
    uint32_t columns_n;
    double (*row)[COLUMNS_MAX];
    uint32_t n, cap;
} Rows;

static const Column gemm_columns[] = {
    { "m", NULL, 0, 1, DIM_MAX, NAN },
    { "n", NULL, 0, 1, DIM_MAX, NAN },
    { "k", NULL, 0, 1, DIM_MAX, NAN },
    { "dtype", dtype_names, DTYPE_N, 0, 0, NAN },
    { "layout", gemm_layout_names, GEMM_LAYOUT_N, 0, 0, GEMM_ANY },
    { "time_us", NULL, 0, 1e-3, TIME_MAX, NAN },
};
static const Column memory_columns[] = {
    { "op", memory_kernel_names, MEMORY_KERNEL_N, 0, 0, NAN },
    { "bytes", NULL, 0, 1, 1e15, NAN },
    { "time_us", NULL, 0, 1e-3, TIME_MAX, NAN },
};
static const Column attention_columns[] = {
    { "op", pass_names, 2, 0, 0, NAN },
    { "batch", NULL, 0, 1, DIM_MAX, NAN },
    { "seq", NULL, 0, 1, DIM_MAX, NAN },
    { "heads", NULL, 0, 1, DIM_MAX, NAN },
    { "kv_heads", NULL, 0, 1, DIM_MAX, NAN },
    { "head_dim", NULL, 0, 1, DIM_MAX, NAN },
    { "causal", NULL, 0, 0, 1, NAN },
    { "time_us", NULL, 0, 1e-3, TIME_MAX, NAN },
    { "kernel", attention_kernel_names, ATTENTION_MEASURED_N, 0, 0, ATTENTION_NEWEST },
};

/* ---- one group ---- */

static bool word_fail(JsonNode node, const Column *c, Err *err)
{
    char allowed[300];
    return json_fail(node, err, "unknown %s, allowed: %s", c->name,
                     words_joined(allowed, sizeof allowed, c->words, c->words_n));
}

static bool check_range(const Column *c, JsonNode node, double x, Err *err)
{
    if (!(x >= c->min && x <= c->max))
        return json_fail(node, err, "%s: %g is out of range, %g to %g allowed", c->name, x,
                         c->min, c->max);
    if (c->max != TIME_MAX && x != floor(x))
        return json_fail(node, err, "%s: %g is not a whole number", c->name, x);
    return true;
}

static bool cell_take(const Column *c, JsonNode cell, double *x, Err *err)
{
    const char *word = json_text(cell);
    for (size_t i = 0; c->words && word && i < c->words_n; i++)
        if (strcmp(word, c->words[i]) == 0) {
            *x = (double)i;
            return true;
        }
    if (c->words)
        return word_fail(cell, c, err);
    if (json_type(cell) != JSON_NUMBER)
        return json_fail(cell, err, "%s: a number is expected, not %s", c->name,
                         json_type_name(json_type(cell)));
    *x = json_value(cell);
    return check_range(c, cell, *x, err);
}

static bool column_fail(const Rows *rows, JsonNode name, Err *err)
{
    char allowed[200] = "";
    size_t n = 0;
    for (uint32_t i = 0; i < rows->columns_n; i++)
        n += (size_t)snprintf(allowed + n, sizeof allowed - n, "%s%s", i ? ", " : "",
                              rows->columns[i].name);
    return json_fail(name, err, "unknown column, allowed: %s", allowed);
}

/* place[j] := which of the table's columns column j of the rows is. */
static bool read_places(const Rows *rows, JsonNode names, uint32_t *place, Err *err)
{
    size_t n = json_items_n(names);
    if (json_type(names) != JSON_ARRAY || n == 0 || n > rows->columns_n)
        return json_fail(names, err, "a list of 1 to %u column names is expected",
                         (unsigned)rows->columns_n);
    for (size_t j = 0; j < n; j++) {
        JsonNode name = json_item(names, j);
        const char *text = json_text(name);
        place[j] = NONE_U32;
        for (uint32_t i = 0; text && i < rows->columns_n; i++)
            if (strcmp(rows->columns[i].name, text) == 0)
                place[j] = i;
        if (place[j] == NONE_U32)
            return column_fail(rows, name, err);
        for (size_t i = 0; i < j; i++)
            if (place[i] == place[j])
                return json_fail(name, err, "the column stands here twice");
    }
    return true;
}

/* Fills the columns that are the same for the whole group; NAN where rows must give them. */
static void read_fixed(JsonObj *o, const Rows *rows, double *fixed)
{
    for (uint32_t i = 0; i < rows->columns_n && o->ok; i++) {
        const Column *c = &rows->columns[i];
        JsonNode node = json_get(o, c->name);
        fixed[i] = c->fallback;
        if (node.item)
            o->ok = cell_take(c, node, &fixed[i], o->err);
    }
}

static bool read_row(const Rows *rows, JsonNode node, const uint32_t *place, size_t places_n,
                     bool texts, double *row, Err *err)
{
    double x[COLUMNS_MAX] = { 0 };
    if (!texts) {
        if (!json_numbers(node, x, places_n, err))
            return false;
        for (size_t j = 0; j < places_n; j++) {
            row[place[j]] = x[j];
            if (!check_range(&rows->columns[place[j]], node, x[j], err))
                return false;
        }
        return true;
    }
    if (json_type(node) != JSON_ARRAY || json_items_n(node) != places_n)
        return json_fail(node, err, "a list of %zu values is expected", places_n);
    size_t j = 0;
    for (JsonNode c = json_first(node); c.item; c = json_next(c, node, ++j))
        if (!cell_take(&rows->columns[place[j]], c, &row[place[j]], err))
            return false;
    return true;
}

static bool missing_column(const Rows *rows, const double *fixed, const uint32_t *place,
                           size_t places_n, JsonNode node, Err *err)
{
    for (uint32_t i = 0; i < rows->columns_n; i++) {
        bool given = !isnan(fixed[i]);
        for (size_t j = 0; j < places_n; j++)
            given |= place[j] == i;
        if (!given)
            return !json_fail(node, err, "the column '%s' is missing", rows->columns[i].name);
    }
    return false;
}

static bool read_rows(Rows *rows, JsonNode list, const double *fixed, const uint32_t *place,
                      size_t places_n, Err *err)
{
    if (json_type(list) != JSON_ARRAY)
        return json_fail(list, err, "a list of rows is expected, not %s",
                         json_type_name(json_type(list)));
    bool texts = false;
    for (size_t j = 0; j < places_n; j++)
        texts |= rows->columns[place[j]].words != NULL;
    size_t i = 0;
    for (JsonNode row = json_first(list); row.item; row = json_next(row, list, ++i)) {
        if (rows->n == ROWS_MAX)
            return json_fail(list, err, "more than %d rows", ROWS_MAX);
        GROW(rows->row, rows->n, rows->cap);
        memcpy(rows->row[rows->n], fixed, sizeof rows->row[0]);
        if (!read_row(rows, row, place, places_n, texts, rows->row[rows->n], err))
            return false;
        rows->n++;
    }
    return true;
}

static bool read_group(Rows *rows, JsonNode node, Err *err)
{
    JsonObj o = json_begin(node, err);
    double fixed[COLUMNS_MAX] = { 0 };
    uint32_t place[COLUMNS_MAX] = { 0 };
    json_string(&o, "source", NULL);
    skip_key(&o, "notes");
    JsonNode columns = json_get(&o, "columns"), list = json_get(&o, "rows");
    read_fixed(&o, rows, fixed);
    size_t n = json_items_n(columns);
    if (o.ok)
        o.ok = read_places(rows, columns, place, err) &&
               !missing_column(rows, fixed, place, n, columns, err) &&
               read_rows(rows, list, fixed, place, n, err);
    return json_end(&o);
}

/* All groups below key; one group need not stand in a list. */
static void read_table(JsonObj *o, const char *key, Rows *rows)
{
    JsonNode node = json_get(o, key);
    if (!node.item || !o->ok)
        return;
    if (json_type(node) != JSON_ARRAY) {
        o->ok = read_group(rows, node, o->err);
        return;
    }
    size_t i = 0;
    for (JsonNode g = json_first(node); g.item && o->ok; g = json_next(g, node, ++i))
        o->ok = read_group(rows, g, o->err);
}

/* ---- sorted arrays ---- */

static DType dtype_class(DType t)
{
    return t == DTYPE_BF16 ? DTYPE_F16 : t;
}

static int compare_gemm(const void *pa, const void *pb)
{
    const GemmRow *a = pa, *b = pb;
    int c = order_u64(dtype_class(a->dtype), dtype_class(b->dtype));
    c = c ? c : order_u64(a->n, b->n);
    c = c ? c : order_u64(a->k, b->k);
    c = c ? c : order_u64(a->m, b->m);
    c = c ? c : order_u64(a->layout, b->layout);
    return c ? c : order_double(a->time_ns, b->time_ns);
}

static int compare_memory(const void *pa, const void *pb)
{
    const MemoryRow *a = pa, *b = pb;
    int c = order_u64(a->kernel, b->kernel);
    c = c ? c : order_u64(a->bytes, b->bytes);
    return c ? c : order_double(a->time_ns, b->time_ns);
}

static void keep_gemm(Gpu *g, Arena *arena, const Rows *rows)
{
    g->gemm = PUSH_ARRAY(arena, GemmRow, rows->n);
    g->gemm_n = rows->n;
    for (uint32_t i = 0; i < rows->n; i++) {
        const double *x = rows->row[i];
        GemmRow r = { (uint64_t)x[0],        (uint64_t)x[1], (uint64_t)x[2], (DType)(int)x[3],
                      (GemmLayout)(int)x[4], x[5] * 1e3,     log2(x[0]),     false };
        r.aligned = gemm_alignment(r.layout, r.dtype, r.m, r.n, r.k) == GEMM_ALIGNED;
        g->gemm[i] = r;
    }
    qsort(g->gemm, g->gemm_n, sizeof *g->gemm, compare_gemm);
    g->gemm_groups = PUSH_ARRAY(arena, GemmGroup, rows->n);
    g->gemm_groups_n = 0;
    for (uint32_t i = 0; i < g->gemm_n; i++) {
        const GemmRow *r = &g->gemm[i];
        GemmGroup *last = g->gemm_groups_n ? &g->gemm_groups[g->gemm_groups_n - 1] : NULL;
        if (last && last->n == r->n && last->k == r->k && last->dtype == dtype_class(r->dtype))
            last->count++;
        else
            g->gemm_groups[g->gemm_groups_n++] = (GemmGroup){
                r->n, r->k, dtype_class(r->dtype), i, 1, log2((double)r->n), log2((double)r->k)
            };
    }
}

static void keep_memory(Gpu *g, Arena *arena, const Rows *rows)
{
    g->memory = PUSH_ARRAY(arena, MemoryRow, rows->n);
    g->memory_n = rows->n;
    for (uint32_t i = 0; i < rows->n; i++) {
        const double *x = rows->row[i];
        g->memory[i] = (MemoryRow){ (MemoryKernel)(int)x[0], (uint64_t)x[1], x[2] * 1e3 };
    }
    qsort(g->memory, g->memory_n, sizeof *g->memory, compare_memory);
}

static void keep_attention(Gpu *g, Arena *arena, const Rows *rows)
{
    g->attention = PUSH_ARRAY(arena, AttentionRow, rows->n);
    g->attention_n = rows->n;
    for (uint32_t i = 0; i < rows->n; i++) {
        const double *x = rows->row[i];
        g->attention[i] = (AttentionRow){ .backward = x[0] != 0,
                                          .batch = (uint64_t)x[1],
                                          .seq = (uint64_t)x[2],
                                          .heads = (uint64_t)x[3],
                                          .kv_heads = (uint64_t)x[4],
                                          .head_dim = (uint64_t)x[5],
                                          .causal = x[6] != 0,
                                          .time_ns = x[7] * 1e3,
                                          .kernel = (AttentionKernel)(int)x[8] };
    }
}

bool gpu_tables(const MachineReader *r, Gpu *g, JsonNode node)
{
    Rows gemm = { gemm_columns, ARRAY_N(gemm_columns), NULL, 0, 0 };
    Rows memory = { memory_columns, ARRAY_N(memory_columns), NULL, 0, 0 };
    Rows attention = { attention_columns, ARRAY_N(attention_columns), NULL, 0, 0 };
    JsonObj o = json_begin(node, r->err);
    bool has_gemm = json_has(&o, "gemm"), has_memory = json_has(&o, "memory"),
         has_attention = json_has(&o, "attention");
    read_table(&o, "gemm", &gemm);
    read_table(&o, "memory", &memory);
    read_table(&o, "attention", &attention);
    bool ok = json_end(&o);
    if (ok && has_gemm)
        keep_gemm(g, r->arena, &gemm);
    if (ok && has_memory)
        keep_memory(g, r->arena, &memory);
    if (ok && has_attention)
        keep_attention(g, r->arena, &attention);
    free(gemm.row);
    free(memory.row);
    free(attention.row);
    return ok;
}

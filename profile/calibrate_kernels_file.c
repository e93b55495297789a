/*
 * calibrate_kernels_file.c - measured rows into the "kernels" of a GPU's file.
 *
 * Groups of rows stay as they are written, without the rows that were measured anew; what a
 * calibration on the same measurements wrote goes.  A table of the base, which one given here
 * would hide, is written out.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profile/calibrate_file.h"
#include "profile/calibrate_kernels.h"
#include "profile/splice.h"

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
    Column columns[KERNEL_KEYS_MAX]; /* time_us follows */
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
                          8,
                          { { "op", pass_names, 2, NAN },
                            { "batch", NULL, 0, NAN },
                            { "seq", NULL, 0, NAN },
                            { "heads", NULL, 0, NAN },
                            { "kv_heads", NULL, 0, NAN },
                            { "head_dim", NULL, 0, NAN },
                            { "causal", NULL, 0, NAN },
                            { "kernel", attention_kernel_names, ATTENTION_MEASURED_N,
                              ATTENTION_NEWEST } } },
};

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

/* Is a row's column c as good as the same to who looks a shape up?  No layout is any layout; how
 * many heads share keys and values matters to one kernel alone (sim/cost_attention.c). */
static bool same_cell(const KernelFitRow *r, uint32_t c, double was)
{
    bool gemm = r->table == TABLE_GEMM, attention = r->table == TABLE_ATTENTION;
    if (gemm && c == 3)
        return dtype_class(r->key[c]) == dtype_class(was);
    if (gemm && c == 4 && (int)was == GEMM_ANY)
        return true;
    if (attention && c == 4 && (int)r->key[7] != ATTENTION_LOCKSTEP)
        return true;
    return r->key[c] == was;
}

/* Whether a measured row takes the place of an old one. */
static bool replaces(const KernelFitRow *r, KernelTable table, const double *old)
{
    if (r->table != table)
        return false;
    for (uint32_t c = 0; c < specs[table].columns_n; c++)
        if (!same_cell(r, c, old[c]))
            return false;
    return true;
}

static bool is_replaced(const KernelFit *f, KernelTable table, const double *old)
{
    for (uint32_t i = 0; i < f->rows_n; i++)
        if (replaces(&f->rows[i], table, old))
            return true;
    return false;
}

static bool is_row_replaced(const KernelFit *f, KernelTable table, JsonNode group, JsonNode row)
{
    const TableSpec *spec = &specs[table];
    JsonNode columns = json_member(group, "columns");
    double old[KERNEL_KEYS_MAX] = { 0 };
    for (uint32_t c = 0; c < spec->columns_n; c++)
        old[c] = old_value(&spec->columns[c], group, columns, row);
    return is_replaced(f, table, old);
}

/* Is anything of it left? */
static bool group_stays(const KernelFit *f, KernelTable table, JsonNode group,
                        const char *source)
{
    const char *of = json_text(json_member(group, "source"));
    JsonNode rows = json_member(group, "rows");
    size_t at = 0;
    if (of && strcmp(of, source) == 0)
        return false;
    for (JsonNode row = json_first(rows); row.item; row = json_next(row, rows, ++at))
        if (!is_row_replaced(f, table, group, row))
            return true;
    return false;
}

enum { ROWS_ON_A_LINE = 4 };

static void begin_row(FILE *out, uint32_t nth)
{
    fprintf(out, "%s%s", nth ? "," : "", nth % ROWS_ON_A_LINE ? " " : "\n        ");
}

/* A group as it was, without the rows that were measured anew. */
static void print_group(const KernelFit *f, FILE *out, KernelTable table, JsonNode group)
{
    JsonNode rows = json_member(group, "rows");
    fputc('{', out);
    for (size_t i = 0; i < json_items_n(group); i++) {
        const char *key = json_key(group, i);
        if (strcmp(key, "rows") == 0)
            continue;
        calibrate_print_text(out, key);
        fputs(": ", out);
        calibrate_print_node(out, json_member(group, key));
        fputs(", ", out);
    }
    fputs("\"rows\": [", out);
    size_t at = 0;
    uint32_t nth = 0;
    for (JsonNode row = json_first(rows); row.item; row = json_next(row, rows, ++at)) {
        if (is_row_replaced(f, table, group, row))
            continue;
        begin_row(out, nth++);
        calibrate_print_node(out, row);
    }
    fputs("]}", out);
}

static void print_cells(FILE *out, const TableSpec *spec, const double *key, double ns)
{
    fputc('[', out);
    for (uint32_t c = 0; c < spec->columns_n; c++) {
        if (spec->columns[c].words)
            calibrate_print_text(out, spec->columns[c].words[(size_t)key[c]]);
        else
            calibrate_print_number(out, key[c]);
        fputs(", ", out);
    }
    calibrate_print_number(out, floor(ns + 0.5) / 1e3);
    fputc(']', out);
}

static void begin_group(FILE *out, const TableSpec *spec, const char *source)
{
    fputs("{\"source\": ", out);
    calibrate_print_text(out, source);
    fputs(", \"columns\": [", out);
    for (uint32_t c = 0; c < spec->columns_n; c++)
        fprintf(out, "\"%s\", ", spec->columns[c].name);
    fputs("\"time_us\"], \"rows\": [", out);
}

static bool print_measured(const KernelFit *f, FILE *out, KernelTable table, const char *source)
{
    uint32_t nth = 0;
    for (uint32_t i = 0; i < f->rows_n; i++) {
        if (f->rows[i].table != table)
            continue;
        if (nth == 0)
            begin_group(out, &specs[table], source);
        begin_row(out, nth++);
        print_cells(out, &specs[table], f->rows[i].key, f->rows[i].table_ns);
    }
    if (nth > 0)
        fputs("]}", out);
    return nth > 0;
}

/* Rows of the base, which a table given in this file would hide. */
static uint32_t inherited_n(const Gpu *g, KernelTable table)
{
    return table == TABLE_GEMM     ? g->gemm_n
           : table == TABLE_MEMORY ? g->memory_n
                                   : g->attention_n;
}

static double inherited_row(const Gpu *g, KernelTable table, uint32_t i, double *key)
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
    const double k[] = { r->backward,         (double)r->batch,
                         (double)r->seq,      (double)r->heads,
                         (double)r->kv_heads, (double)r->head_dim,
                         r->causal,           r->kernel };
    memcpy(key, k, sizeof k);
    return r->time_ns;
}

static void print_inherited(const KernelFit *f, FILE *out, KernelTable table)
{
    uint32_t nth = 0, n = inherited_n(f->gpu, table);
    begin_group(out, &specs[table], "as in the base");
    for (uint32_t i = 0; i < n; i++) {
        double key[KERNEL_KEYS_MAX] = { 0 }, ns = inherited_row(f->gpu, table, i, key);
        if (is_replaced(f, table, key))
            continue;
        begin_row(out, nth++);
        print_cells(out, &specs[table], key, ns);
    }
    fputs("]}", out);
}

static char *splice_table(const KernelFit *f, char *text, JsonNode root, KernelTable table,
                          const char *source)
{
    char *value = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&value, &n);
    ASSERT(out);
    const char *between = "[\n      ";
    JsonNode old = json_member(json_member(root, "kernels"), specs[table].name);
    bool list = json_type(old) == JSON_ARRAY;
    for (size_t i = 0; i < (list ? json_items_n(old) : 1) && old.item; i++) {
        JsonNode group = list ? json_item(old, i) : old;
        if (!group_stays(f, table, group, source))
            continue;
        fputs(between, out);
        between = ",\n      ";
        print_group(f, out, table, group);
    }
    if (!old.item && inherited_n(f->gpu, table) > 0) {
        fputs(between, out);
        between = ",\n      ";
        print_inherited(f, out, table);
    }
    fputs(between, out);
    bool any = print_measured(f, out, table, source);
    fputs("\n    ]", out);
    fclose(out);
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

char *kernel_fit_splice(const KernelFit *f, char *text, const char *source)
{
    Err ignored = { 0 };
    JsonDoc *doc = json_parse(text, strlen(text), "", &ignored);
    ASSERT(doc);
    for (KernelTable t = 0; t < TABLE_COPY; t++)
        text = splice_table(f, text, json_root(doc), t, source);
    json_close(doc);
    text = splice_number(text, "launch_us", f->launch_ns / 1e3);
    text = splice_number(text, "kernel_floor_us", f->floor_ns / 1e3);
    text = splice_number(text, "host_GBps", f->host_bytes_per_ns);
    return calibrate_provenance(text, "kernels", source);
}

/*
 * calibrate_cluster_file.c - what was fitted and measured, as text of the cluster's file.
 *
 * A number nobody measured is not written, and an entry of the table that the logs say
 * nothing of stays: those that stand in the file as they are, those of its base anew,
 * as a list that is given hides the base's.  So do sizes of an entry beyond those of the logs.
 * What a number was before the first calibration that wrote it stays beside it, under "before".
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "profile/calibrate_cluster.h"
#include "profile/calibrate_file.h"
#include "profile/splice.h"

/* ---- numbers ---- */

/* A curve, {"LL", "LL128", "Simple"}, or a number: value[] from the first number of the key on. */
static void print_value(const ClusterFit *f, FILE *out, uint32_t first, const double *value)
{
    const char *key = f->places[first].key;
    const RankCurve *curve = f->places[first].curve;
    bool by_protocol = f->places[first].by_protocol;
    fputs(curve ? "[" : by_protocol ? "{" : "", out);
    for (uint32_t i = first, n = 0; i < f->numbers_n && strcmp(f->places[i].key, key) == 0;
         i++, n++) {
        fputs(n ? ", " : "", out);
        if (curve)
            fprintf(out, "[%u, ", (unsigned)curve->ranks[n]);
        else if (by_protocol)
            fprintf(out, "\"%s\": ", protocol_names[n]);
        calibrate_print_number(out, cluster_fit_shown(f, i, value[i]));
        fputs(curve ? "]" : "", out);
    }
    fputs(curve ? "]" : by_protocol ? "}" : "", out);
}

static bool begins_key(const ClusterFit *f, uint32_t i)
{
    return f->places[i].written &&
           (i == 0 || strcmp(f->places[i - 1].key, f->places[i].key) != 0);
}

static char *splice_numbers(const ClusterFit *f, char *text)
{
    double value[CALIBRATE_NUMBERS_MAX];
    for (uint32_t i = 0; i < f->numbers_n; i++)
        value[i] = f->numbers[i].value;
    for (uint32_t i = 0; i < f->numbers_n; i++) {
        if (!begins_key(f, i))
            continue;
        char *now = NULL;
        size_t n = 0;
        FILE *out = open_memstream(&now, &n);
        ASSERT(out);
        print_value(f, out, i, value);
        fclose(out);
        text = json_splice(text, "collectives", f->places[i].key, now);
        free(now);
    }
    return text;
}

/* ---- what was before ---- */

static JsonNode before_of(JsonDoc *doc)
{
    return json_member(json_member(json_root(doc), "collectives"), "before");
}

char *cluster_text_before(const char *text, const char *path, Err *err)
{
    JsonDoc *doc = json_parse(text, strlen(text), path, err);
    if (!doc)
        return NULL;
    JsonNode before = before_of(doc);
    char *was = mem_zero(strlen(text) + 1, 1);
    memcpy(was, text, strlen(text));
    bool ok = !before.item || json_type(before) == JSON_OBJECT ||
              json_fail(before, err, "an object of keys of \"collectives\" is expected");
    for (size_t i = 0; ok && i < json_items_n(before); i++) {
        char *value = NULL;
        size_t n = 0;
        FILE *out = open_memstream(&value, &n);
        ASSERT(out);
        calibrate_print_node(out, json_member(before, json_key(before, i)));
        fclose(out);
        was = json_splice(was, "collectives", json_key(before, i), value);
        free(value);
    }
    json_close(doc);
    if (ok)
        return was;
    free(was);
    return NULL;
}

/* What was kept is kept; what is written for the first time stood there before all. */
static char *splice_before(const ClusterFit *f, char *text)
{
    Err ignored = { 0 };
    JsonDoc *doc = json_parse(text, strlen(text), f->into, &ignored);
    ASSERT(doc);
    JsonNode before = before_of(doc);
    char *value = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&value, &n);
    ASSERT(out);
    const char *between = "{";
    for (size_t i = 0; i < json_items_n(before); i++, between = ", ") {
        fprintf(out, "%s\"%s\": ", between, json_key(before, i));
        calibrate_print_node(out, json_member(before, json_key(before, i)));
    }
    for (uint32_t i = 0; i < f->numbers_n; i++) {
        if (!begins_key(f, i) || json_member(before, f->places[i].key).item)
            continue;
        fprintf(out, "%s\"%s\": ", between, f->places[i].key);
        print_value(f, out, i, f->stood);
        between = ", ";
    }
    fputs("}", out);
    fclose(out);
    json_close(doc);
    text = json_splice(text, "collectives", "before", value);
    free(value);
    return text;
}

/* ---- the table ---- */

static void print_number(FILE *f, const char *key, double x, int digits)
{
    fprintf(f, ", \"%s\": %.*g", key, digits, x);
}

/* NAN: the entry says nothing of its fit. */
static void print_entry(FILE *f, const MeasuredCollective *e, const ClusterPart *p,
                        double left_out_pct)
{
    fprintf(f, "{\"op\": \"%s\", \"ranks\": %u, \"nodes\": %u", measured_op_word(e->op),
            (unsigned)e->ranks, (unsigned)e->nodes);
    print_number(f, "latency_us", e->latency_ns / 1e3, 6);
    print_number(f, "GBps", e->bytes_per_ns, 6);
    if (p) {
        fprintf(f, ", \"fit\": {\"rows\": %u", (unsigned)p->line.rows_n);
        if (isfinite(p->line.median_pct))
            print_number(f, "line_error_pct", p->line.median_pct, 3);
        if (isfinite(left_out_pct))
            print_number(f, "left_out_sizes_error_pct", left_out_pct, 3);
        fputc('}', f);
    }
    for (uint32_t i = 0; i < e->points_n; i++)
        fprintf(f, "%s[%" PRIu64 ", %.7g]", i ? ", " : ",\n       \"sizes\": [",
                e->points[i].bytes, e->points[i].ns / 1e3);
    fputs(e->points_n ? "]}" : "}", f);
}

/* An entry that stands in the file, on the lines on which print_entry puts it. */
static void print_as_is(FILE *f, JsonNode entry)
{
    for (size_t i = 0; i < json_items_n(entry); i++) {
        const char *key = json_key(entry, i);
        fputs(i == 0 ? "{" : strcmp(key, "sizes") == 0 ? ",\n       " : ", ", f);
        calibrate_print_text(f, key);
        fputs(": ", f);
        calibrate_print_node(f, json_member(entry, key));
    }
    fputs("}", f);
}

static bool is_measured_anew(const ClusterFit *f, const char *op, double ranks, double nodes)
{
    for (uint32_t p = 0; p < f->parts_n; p++) {
        const MeasuredCollective *e = &f->parts[p].entry;
        if (strcmp(measured_op_word(e->op), op) == 0 && e->ranks == ranks && e->nodes == nodes)
            return true;
    }
    return false;
}

static const char *next_line(FILE *f, const char *between)
{
    fputs(between, f);
    return ",\n      ";
}

static const char *print_kept(const ClusterFit *f, FILE *out, JsonNode list,
                              const char *between)
{
    for (size_t i = 0; i < json_items_n(list); i++) {
        JsonNode e = json_item(list, i);
        if (is_measured_anew(f, json_text(json_member(e, "op")),
                             json_value(json_member(e, "ranks")),
                             json_value(json_member(e, "nodes"))))
            continue;
        between = next_line(out, between);
        print_as_is(out, e);
    }
    for (uint32_t i = 0; i < f->stands.measured_n && !list.item; i++) {
        const MeasuredCollective *e = &f->stands.measured[i];
        if (is_measured_anew(f, measured_op_word(e->op), e->ranks, e->nodes))
            continue;
        between = next_line(out, between);
        print_entry(out, e, NULL, NAN);
    }
    return between;
}

static char *splice_table(ClusterFit *f, char *text)
{
    Err ignored = { 0 };
    JsonDoc *doc = json_parse(text, strlen(text), f->into, &ignored);
    ASSERT(doc);
    char *value = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&value, &n);
    ASSERT(out);
    JsonNode old = json_member(json_member(json_root(doc), "collectives"), "measured");
    const char *between = print_kept(f, out, old, "[\n      ");
    for (uint32_t p = 0; p < f->parts_n; p++) {
        double left_out =
            calibrate_errors(f->measured_ns, f->table_left_out, f->rows_n, f->part_of, p)
                .median_pct;
        between = next_line(out, between);
        print_entry(out, &f->parts[p].entry, &f->parts[p], left_out);
    }
    fputs("\n    ]", out);
    fclose(out);
    json_close(doc);
    text = json_splice(text, "collectives", "measured", value);
    free(value);
    return text;
}

/* ---- the whole ---- */

static const char *percent(Arena *arena, double x)
{
    return isfinite(x) ? arena_printf(arena, "%.1f", x) : "-";
}

static double median_of(const ClusterFit *f, const double *predicted)
{
    return calibrate_errors(f->measured_ns, predicted, f->rows_n, NULL, 0).median_pct;
}

char *cluster_fit_splice(ClusterFit *f, char *text, const char *sources)
{
    text = splice_before(f, splice_numbers(f, text));
    text = splice_table(f, text);
    const char *value = arena_printf(
        &f->arena,
        "lockstep calibrate on %s: %u rows, median error of the model %s %%, of left-out sizes "
        "%s %%, of left-out logs %s %%; of the table's left-out sizes %s %%",
        sources, (unsigned)f->rows_n, percent(&f->arena, median_of(f, f->model)),
        percent(&f->arena, median_of(f, f->left_out_size)),
        percent(&f->arena, median_of(f, f->left_out_log)),
        percent(&f->arena, median_of(f, f->table_left_out)));
    return calibrate_provenance(text, "collectives", value);
}

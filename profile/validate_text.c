/*
 * validate_text.c - the tables of `lockstep validate`, at most 100 columns wide.
 *
 *     step_time_s                    |error| in %          skipped = 100 %        left out
 *                rows skipped  median    p90    max   bias   median    p90   median    p90
 *     zb            6       0     4.1    9.0   10.2   -2.2      4.1    9.0      4.1    9.0
 */
#include "profile/validate_parts.h"

#include <stdlib.h>
#include <string.h>

enum { NAME = 24, ROW_NAME = 34, METRIC_NAME = 26, WIDTH = 100 };

/* ---- errors ---- */

static void error_line(const Validation *v, FILE *out, const char *name, ValidatePart part)
{
    char cut[VALIDATE_TEXT_CAP], t[8][VALIDATE_TEXT_CAP];
    ErrorStat s = validate_errors(v, part);
    fprintf(out, "%-*s %5" PRIu32 " %7" PRIu32 "  %6s %6s %6s %6s   %6s %6s   %6s %6s\n", NAME,
            validate_name(cut, name, NAME), s.rows_n, s.skipped_n,
            validate_percent(t[0], s.median_pct), validate_percent(t[1], s.p90_pct),
            validate_percent(t[2], s.max_pct), validate_signed(t[3], s.bias_pct),
            validate_percent(t[4], s.median_with_skipped_pct),
            validate_percent(t[5], s.p90_with_skipped_pct),
            validate_percent(t[6], s.median_left_out_pct),
            validate_percent(t[7], s.p90_left_out_pct));
}

static void fits_line(const Validation *v, FILE *out, const char *name, ValidatePart part)
{
    char cut[VALIDATE_TEXT_CAP];
    ErrorStat s = validate_errors(v, part);
    fprintf(out, "%-*s %5" PRIu32 " %7" PRIu32 "  %7" PRIu32 "\n", NAME,
            validate_name(cut, name, NAME), s.rows_n, s.skipped_n, s.correct_n);
}

static void print_heads(FILE *out, const char *name, const char *by)
{
    fprintf(out, "%-*s%*s%*s%*s\n", NAME + 16, name, 27, "|error| in %        ", 16,
            "skipped = 100 %", 16, "left out");
    fprintf(out,
            "%-*s  rows skipped  median    p90    max   bias   median    p90   median    p90\n",
            NAME, by);
}

static void print_metric(const Validation *v, FILE *out, uint32_t metric)
{
    char name[VALIDATE_TEXT_CAP];
    validate_name(name, validate_text_of(v, metric), METRIC_NAME);
    fprintf(out, "\n");
    if (validate_is_fits(v, metric)) {
        fprintf(out, "%-*s  rows skipped  correct\n", NAME, name);
        validate_each_group(v, out, metric, fits_line);
        return;
    }
    uint32_t *ids = mem_zero(v->names.n, sizeof *ids);
    uint32_t softwares_n = validate_softwares(v, ids);
    free(ids);
    print_heads(out, name, "by group");
    validate_each_group(v, out, metric, error_line);
    if (softwares_n > 1 && strcmp(name, "step_time_s") == 0) {
        fprintf(out, "by software\n");
        validate_each_software(v, out, metric, error_line);
    }
}

/* ---- ranking ---- */

static void print_ranks(FILE *out, const char *name, const Ranking *r)
{
    char cut[VALIDATE_TEXT_CAP], tau[VALIDATE_TEXT_CAP], regret[VALIDATE_TEXT_CAP];
    fprintf(out, "%-*s %5" PRIu32 " %7" PRIu32 " %12s %9s\n", NAME,
            validate_name(cut, name, NAME), r->sets_n, r->rows_n,
            validate_fraction(tau, r->kendall_tau), validate_percent(regret, r->regret_pct));
}

static void print_ranking(const Validation *v, FILE *out)
{
    char head[VALIDATE_TEXT_CAP];
    snprintf(head, sizeof head, "\n%-*s  sets    rows  kendall tau  regret %%\n", NAME,
             "ranking");
    validate_each_ranking(v, out, NAME, head, print_ranks);
}

/* ---- rows ---- */

static void print_row(const Validation *v, FILE *out, const ValidateRow *row)
{
    char name[VALIDATE_TEXT_CAP], metric[VALIDATE_TEXT_CAP], t[3][VALIDATE_TEXT_CAP];
    const char *key = validate_text_of(v, row->metric);
    bool fits = validate_is_fits(v, row->metric);
    fprintf(out, "%-*s %-*s ", ROW_NAME, validate_name(name, row->name, ROW_NAME), METRIC_NAME,
            validate_name(metric, key, METRIC_NAME));
    if (fits)
        fprintf(out, "%12s %12s %9s\n", row->measured > 0 ? "yes" : "no",
                row->predicted > 0 ? "yes" : "no",
                row->measured == row->predicted ? "correct" : "wrong");
    else
        fprintf(out, "%12s %12s %9s\n", validate_value(t[0], key, row->measured),
                validate_value(t[1], key, row->predicted),
                validate_signed(t[2], validate_error_pct(row->measured, row->predicted)));
}

static void print_row_heads(FILE *out, const char *title)
{
    fprintf(out, "\n%-*s %-*s %12s %12s %9s\n", ROW_NAME, title, METRIC_NAME, "metric",
            "measured", "predicted", "error %");
}

static void print_rows(const Validation *v, FILE *out)
{
    uint32_t worst[VALIDATE_WORST], predicted_n = 0;
    for (uint32_t i = 0; i < v->rows_n; i++)
        predicted_n += v->rows[i].skipped == NULL;
    if (predicted_n == 0)
        return;
    if (predicted_n > VALIDATE_ALL_ROWS) {
        uint32_t n = validate_worst(v, worst, VALIDATE_WORST, VALIDATE_WORST_OF_GROUP);
        print_row_heads(out, "the worst, at most 3 of a group");
        for (uint32_t i = 0; i < n; i++)
            print_row(v, out, &v->rows[worst[i]]);
        return;
    }
    print_row_heads(out, "rows");
    for (uint32_t i = 0; i < v->rows_n; i++)
        if (!v->rows[i].skipped)
            print_row(v, out, &v->rows[i]);
}

/* ---- what was not predicted as asked ---- */

static void print_skip(FILE *out, const Validation *v, const char *reason, const uint32_t *rows,
                       uint32_t rows_n)
{
    fprintf(out, "  %s\n", reason);
    uint32_t at = 0;
    for (uint32_t i = 0; i < rows_n; i++) {
        char name[VALIDATE_TEXT_CAP];
        uint32_t width = (uint32_t)strlen(validate_name(name, v->rows[rows[i]].name, 60)) + 1;
        bool starts = at == 0 || at + 1 + width > WIDTH;
        fprintf(out, "%s%s%s",
                i == 0   ? "    "
                : starts ? "\n    "
                         : " ",
                name, i + 1 < rows_n ? "," : "");
        at = starts ? 4 + width : at + 1 + width;
    }
    fprintf(out, "\n");
}

static void print_skipped(const Validation *v, FILE *out)
{
    uint32_t n = validate_skipped_scenarios(v);
    if (n == 0)
        return;
    fprintf(out, "\nskipped, %" PRIu32 " of %" PRIu32 " scenarios:\n", n, v->scenarios_n);
    validate_each_reason(v, out, print_skip);
}

static void print_unknown(const Validation *v, FILE *out)
{
    if (v->unknown_n == 0)
        return;
    fprintf(out, "\nsoftware without a file, run as generic:\n");
    for (uint32_t i = 0; i < v->unknown_n; i++) {
        char name[VALIDATE_TEXT_CAP];
        fprintf(out, "  %-*s %5" PRIu32 " scenario%s\n", ROW_NAME,
                validate_name(name, validate_text_of(v, v->unknown[i].software), ROW_NAME),
                v->unknown[i].scenarios_n, v->unknown[i].scenarios_n == 1 ? "" : "s");
    }
}

static void print_overfull(const Validation *v, FILE *out)
{
    if (v->overfull_n == 0)
        return;
    fprintf(out,
            "\nthey ran, and are predicted not to fit, %" PRIu32 " of %" PRIu32 " scenarios:\n",
            v->overfull_n, v->scenarios_n);
    for (uint32_t i = 0; i < v->overfull_n && i < VALIDATE_WORST; i++) {
        char name[VALIDATE_TEXT_CAP], need[VALIDATE_TEXT_CAP];
        const Overfull *x = &v->overfull[i];
        fprintf(out, "  %-*s %s\n", ROW_NAME, validate_name(name, x->name, ROW_NAME),
                validate_need(need, x));
    }
    if (v->overfull_n > VALIDATE_WORST)
        fprintf(out, "  and %" PRIu32 " more\n", v->overfull_n - VALIDATE_WORST);
}

static void print_fitted(const Validation *v, FILE *out)
{
    if (v->fitted_n == 0)
        fprintf(out, "\nnothing is fitted: no software file used has fitted scalars, so that "
                     "'left out' equals\n"
                     "the figure beside it\n");
    else
        fprintf(
            out,
            "\nleft out: with the software's scalars fitted without the row's group; %" PRIu32
            " of %" PRIu32
            " scenarios\nran on software with fitted scalars, or show what slows "
            "kernels on their GPU\n",
            v->fitted_n, v->scenarios_n);
}

void validate_print(const Validation *v, FILE *out)
{
    uint32_t *metrics = mem_zero(v->names.n, sizeof *metrics);
    uint32_t n = validate_metrics(v, metrics), rows_n = validate_measurements(v);
    fprintf(out, "%" PRIu32 " measurement%s of %" PRIu32 " scenario%s, %" PRIu32 " skipped\n",
            rows_n, rows_n == 1 ? "" : "s", v->scenarios_n, v->scenarios_n == 1 ? "" : "s",
            validate_skipped_scenarios(v));
    for (uint32_t i = 0; i < n; i++)
        print_metric(v, out, metrics[i]);
    print_ranking(v, out);
    print_rows(v, out);
    print_unknown(v, out);
    print_skipped(v, out);
    print_overfull(v, out);
    print_fitted(v, out);
    free(metrics);
}

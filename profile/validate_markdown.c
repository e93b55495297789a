/* validate_markdown.c - the accuracy tables of the README; `make accuracy` prints them. */
#include "profile/validate_parts.h"

#include <stdlib.h>

/* Names come from files; a bar would end the cell. */
static const char *cell(char out[VALIDATE_TEXT_CAP], const char *name)
{
    size_t n = 0;
    for (; *name && n + 3 < VALIDATE_TEXT_CAP; name++) {
        if (*name == '|')
            out[n++] = '\\';
        out[n++] = *name;
    }
    out[n] = '\0';
    return out;
}

static void error_line(const Validation *v, FILE *out, const char *name, ValidatePart part)
{
    char t[7][VALIDATE_TEXT_CAP];
    ErrorStat s = validate_errors(v, part);
    fprintf(out, "| %s | %" PRIu32 " | %" PRIu32 " | %s | %s | %s | %s | %s | %s |\n",
            cell(t[6], name), s.rows_n, s.skipped_n, validate_percent(t[0], s.median_pct),
            validate_percent(t[1], s.p90_pct), validate_percent(t[2], s.max_pct),
            validate_signed(t[3], s.bias_pct), validate_percent(t[4], s.median_left_out_pct),
            validate_percent(t[5], s.p90_left_out_pct));
}

static void fits_line(const Validation *v, FILE *out, const char *name, ValidatePart part)
{
    char text[VALIDATE_TEXT_CAP];
    ErrorStat s = validate_errors(v, part);
    fprintf(out, "| %s | %" PRIu32 " | %" PRIu32 " | %" PRIu32 " |\n", cell(text, name),
            s.rows_n, s.skipped_n, s.correct_n);
}

static void print_metric(const Validation *v, FILE *out, uint32_t metric)
{
    const char *name = validate_text_of(v, metric);
    if (validate_is_fits(v, metric)) {
        fprintf(out, "| `%s` | rows | skipped | correct |\n|---|--:|--:|--:|\n", name);
        validate_each_group(v, out, metric, fits_line);
    } else {
        fprintf(out,
                "| `%s`, error in %% | rows | skipped | median | p90 | max | bias | "
                "source left out: median | p90 |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|\n",
                name);
        validate_each_group(v, out, metric, error_line);
    }
    fprintf(out, "\n");
}

static void print_ranks(FILE *out, const char *name, const Ranking *r)
{
    char tau[VALIDATE_TEXT_CAP], regret[VALIDATE_TEXT_CAP], text[VALIDATE_TEXT_CAP];
    fprintf(out, "| %s | %" PRIu32 " | %" PRIu32 " | %s | %s |\n", cell(text, name), r->sets_n,
            r->rows_n, validate_fraction(tau, r->kendall_tau),
            validate_percent(regret, r->regret_pct));
}

static void print_ranking(const Validation *v, FILE *out)
{
    static const char head[] =
        "| ranking of plans | sets | rows | Kendall tau-b | regret, % |\n"
        "|---|--:|--:|--:|--:|\n";
    if (validate_each_ranking(v, out, 40, head, print_ranks))
        fprintf(out, "\n");
}

static void print_worst(const Validation *v, FILE *out)
{
    uint32_t worst[VALIDATE_WORST],
        n = validate_worst(v, worst, VALIDATE_WORST, VALIDATE_WORST_OF_GROUP);
    fprintf(out, "| the worst rows, at most 3 of a group | software | metric | measured | "
                 "predicted | error, %% |\n"
                 "|---|---|---|--:|--:|--:|\n");
    for (uint32_t i = 0; i < n; i++) {
        char name[VALIDATE_TEXT_CAP], t[5][VALIDATE_TEXT_CAP];
        const ValidateRow *row = &v->rows[worst[i]];
        const char *metric = validate_text_of(v, row->metric);
        fprintf(out, "| %s | %s | `%s` | %s | %s | %s |\n",
                cell(t[3], validate_name(name, row->name, 60)),
                cell(t[4], validate_text_of(v, row->software)), metric,
                validate_value(t[0], metric, row->measured),
                validate_value(t[1], metric, row->predicted),
                validate_signed(t[2], validate_error_pct(row->measured, row->predicted)));
    }
    fprintf(out, "\n");
}

static void print_skip(FILE *out, const Validation *v, const char *reason, const uint32_t *rows,
                       uint32_t rows_n)
{
    (void)v;
    (void)rows;
    fprintf(out, "- %" PRIu32 " skipped: %s\n", rows_n, reason);
}

static void print_notes(const Validation *v, FILE *out)
{
    validate_each_reason(v, out, print_skip);
    for (uint32_t i = 0; i < v->unknown_n; i++)
        fprintf(out, "- `%s` has no file: %" PRIu32 " ran as `generic`\n",
                validate_text_of(v, v->unknown[i].software), v->unknown[i].scenarios_n);
    for (uint32_t i = 0; i < v->overfull_n; i++) {
        char text[VALIDATE_TEXT_CAP], name[VALIDATE_TEXT_CAP], need[VALIDATE_TEXT_CAP];
        const Overfull *x = &v->overfull[i];
        fprintf(out, "- %s ran, and is predicted not to fit: %s\n",
                cell(text, validate_name(name, x->name, 60)), validate_need(need, x));
    }
    if (v->fitted_n == 0)
        fprintf(out, "- nothing is fitted, so \"source left out\" equals the plain figure\n");
}

void validate_markdown(const Validation *v, FILE *out)
{
    uint32_t *metrics = mem_zero(v->names.n, sizeof *metrics);
    uint32_t n = validate_metrics(v, metrics);
    for (uint32_t i = 0; i < n; i++)
        print_metric(v, out, metrics[i]);
    print_ranking(v, out);
    print_worst(v, out);
    print_notes(v, out);
    free(metrics);
}

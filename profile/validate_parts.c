/* validate_parts.c - what text and markdown share: how numbers look, and the order of things. */
#include "profile/validate_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/printable.h"
#include "core/text.h"

/* ---- numbers ---- */

static char *decimal(char *text, const char *format, double x)
{
    if (!isfinite(x))
        return strcpy(text, "-");
    snprintf(text, VALIDATE_TEXT_CAP, format, x);
    return text;
}

char *validate_percent(char *text, double percent)
{
    return decimal(text, fabs(percent) < 999.95 ? "%.1f" : "%.0f", percent);
}

char *validate_signed(char *text, double percent)
{
    return decimal(text, fabs(percent) < 999.95 ? "%+.1f" : "%+.0f", percent);
}

char *validate_fraction(char *text, double x)
{
    return decimal(text, "%.2f", x);
}

char *validate_value(char *text, const char *metric, double x)
{
    if (text_ends_in(metric, "_bytes"))
        return decimal(text, "%.2f GiB", x / (double)GIB);
    return decimal(
        text, text_ends_in(metric, "_s") && !strstr(metric, "_per_") ? "%.4g s" : "%.5g", x);
}

char *validate_need(char *text, const Overfull *x)
{
    char need[VALIDATE_TEXT_CAP], has[VALIDATE_TEXT_CAP];
    const char *metric = "memory.reserved_bytes";
    snprintf(text, VALIDATE_TEXT_CAP, "%.40s of %.40s",
             validate_value(need, metric, (double)x->reserved_bytes),
             validate_value(has, metric, (double)x->gpu_bytes));
    return text;
}

char *validate_name(char *text, const char *name, uint32_t width)
{
    size_t n = strlen(name), shown = n <= width ? n : width - 3;
    ASSERT(width > 3 && width < VALIDATE_TEXT_CAP);
    snprintf(text, VALIDATE_TEXT_CAP, "%.*s%s", (int)shown, name, n <= width ? "" : "...");
    make_printable(text);
    return text;
}

char *validate_group_name(char *text, const Validation *v, uint32_t group, uint32_t width)
{
    const char *name = validate_text_of(v, group);
    return validate_name(text, *name ? name : "(no group)", width);
}

/* ---- parts of the rows ---- */

static bool has_rows(const Validation *v, ValidatePart part)
{
    ErrorStat stat = validate_errors(v, part);
    return stat.rows_n + stat.skipped_n > 0;
}

/* A column of the rows, and the place of its value in a ValidatePart. */
typedef struct Column {
    uint32_t (*list)(const Validation *v, uint32_t *ids);
    size_t offset;
} Column;

static const Column by_group = { validate_groups, offsetof(ValidatePart, group) };
static const Column by_software = { validate_softwares, offsetof(ValidatePart, software) };
static const Column by_list = { validate_lists, offsetof(ValidatePart, list) };

static ValidatePart part_of(uint32_t metric, const Column *column, uint32_t id)
{
    ValidatePart part = VALIDATE_ANY;
    part.metric = metric;
    memcpy((char *)&part + column->offset, &id, sizeof id);
    return part;
}

/* Values of the column that some row of metric has. */
static uint32_t values_of(const Validation *v, uint32_t metric, const Column *column,
                          uint32_t *ids)
{
    uint32_t all_n = column->list(v, ids), n = 0;
    for (uint32_t i = 0; i < all_n; i++)
        if (has_rows(v, part_of(metric, column, ids[i])))
            ids[n++] = ids[i];
    return n;
}

static void each(const Validation *v, FILE *out, uint32_t metric, const Column *column,
                 const uint32_t *ids, uint32_t n, ValidateLine *line)
{
    for (uint32_t i = 0; i < n; i++) {
        char name[VALIDATE_TEXT_CAP];
        line(v, out, validate_group_name(name, v, ids[i], 40), part_of(metric, column, ids[i]));
    }
}

void validate_each_group(const Validation *v, FILE *out, uint32_t metric, ValidateLine *line)
{
    uint32_t *ids = mem_zero(v->names.n, sizeof *ids);
    uint32_t groups_n = values_of(v, metric, &by_group, ids);
    each(v, out, metric, &by_group, ids, groups_n, line);
    uint32_t n = values_of(v, metric, &by_list, ids);
    if (n > 1 && 2 * n <= v->scenarios_n)
        each(v, out, metric, &by_list, ids, n, line);
    if (groups_n > 1)
        line(v, out, "all", part_of(metric, &by_group, NONE_U32));
    free(ids);
}

void validate_each_software(const Validation *v, FILE *out, uint32_t metric, ValidateLine *line)
{
    uint32_t *ids = mem_zero(v->names.n, sizeof *ids);
    uint32_t n = values_of(v, metric, &by_software, ids);
    each(v, out, metric, &by_software, ids, n, line);
    free(ids);
}

/* ---- what was skipped ---- */

/* A scenario is skipped with all its rows, or one metric of it is: each once. */
static bool is_first_of_skip(const Validation *v, uint32_t i)
{
    const ValidateRow *row = &v->rows[i], *before = i ? row - 1 : NULL;
    return row->skipped && !(before && before->skipped && before->scenario == row->scenario &&
                             strcmp(before->skipped, row->skipped) == 0);
}

uint32_t validate_skipped_scenarios(const Validation *v)
{
    uint32_t n = 0, last = NONE_U32;
    for (uint32_t i = 0; i < v->rows_n; i++)
        if (v->rows[i].skipped && v->rows[i].scenario != last) {
            last = v->rows[i].scenario;
            n++;
        }
    return n;
}

uint32_t validate_measurements(const Validation *v)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < v->rows_n; i++)
        n += v->rows[i].metric != NONE_U32;
    return n;
}

void validate_each_reason(const Validation *v, FILE *out, ValidateSkip *skip)
{
    Interner reasons = { 0 };
    uint32_t *rows = mem_zero(v->rows_n, sizeof *rows);
    for (uint32_t i = 0; i < v->rows_n; i++)
        if (v->rows[i].skipped)
            intern(&reasons, v->rows[i].skipped);
    for (uint32_t r = 0; r < reasons.n; r++) {
        const char *reason = intern_text(&reasons, r);
        uint32_t n = 0;
        for (uint32_t i = 0; i < v->rows_n; i++)
            if (is_first_of_skip(v, i) && strcmp(v->rows[i].skipped, reason) == 0)
                rows[n++] = i;
        skip(out, v, reason, rows, n);
    }
    free(rows);
    intern_free(&reasons);
}

static void rank_part(const Validation *v, FILE *out, const char *name, uint32_t group,
                      ValidateRanks *line)
{
    Ranking r = validate_ranking(v, group);
    if (r.sets_n > 0)
        line(out, name, &r);
}

bool validate_each_ranking(const Validation *v, FILE *out, uint32_t name_width,
                           const char *head, ValidateRanks *line)
{
    if (validate_ranking(v, NONE_U32).sets_n == 0)
        return false;
    uint32_t *ids = mem_zero(v->names.n, sizeof *ids);
    uint32_t n = validate_groups(v, ids);
    fputs(head, out);
    for (uint32_t i = 0; i < n; i++) {
        char name[VALIDATE_TEXT_CAP];
        rank_part(v, out, validate_group_name(name, v, ids[i], name_width), ids[i], line);
    }
    if (n > 1)
        rank_part(v, out, "all", NONE_U32, line);
    free(ids);
    return true;
}

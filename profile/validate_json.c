/* validate_json.c - the object of `validate --json`: DESIGN 4.2 names its keys, a contract. */
#include "profile/validate.h"

#include <stdlib.h>
#include <string.h>

/* What the scenario says of itself is carried along. */
static void put_said(JsonOut *j, const char *key, const char *text)
{
    if (text && *text)
        json_put_text(j, key, text);
}

static void put_row(const Validation *v, JsonOut *j, const ValidateRow *row)
{
    json_out_open(j, '{');
    json_put_text(j, "name", row->name);
    json_put_text(j, "group", validate_text_of(v, row->group));
    json_put_text(j, "metric", validate_text_of(v, row->metric));
    if (validate_is_fits(v, row->metric)) {
        json_put_bool(j, "measured", row->measured > 0);
        json_put_bool(j, "predicted", row->predicted > 0);
        json_put_bool(j, "correct", row->measured == row->predicted);
    } else {
        json_put_number(j, "measured", row->measured);
        json_put_number(j, "predicted", row->predicted);
        json_put_number(j, "error_pct", validate_error_pct(row->measured, row->predicted));
        json_put_number(j, "left_out_error_pct",
                        validate_error_pct(row->measured, row->left_out));
    }
    json_put_text(j, "software", validate_text_of(v, row->software));
    json_put_text(j, "file", row->file);
    put_said(j, "source", row->source);
    put_said(j, "quality", row->quality);
    json_out_close(j, '}');
}

/* Once for a scenario that did not run; for each metric that could not be had of one that did. */
static void put_skipped(const Validation *v, JsonOut *j)
{
    const ValidateRow *before = NULL;
    json_put_open(j, "skipped", '[');
    for (uint32_t i = 0; i < v->rows_n; i++) {
        const ValidateRow *row = &v->rows[i];
        bool is_new = row->skipped && !(before && before->scenario == row->scenario &&
                                        strcmp(before->skipped, row->skipped) == 0);
        if (!is_new)
            continue;
        before = row;
        json_out_open(j, '{');
        json_put_text(j, "name", row->name);
        json_put_text(j, "reason", row->skipped);
        json_put_text(j, "group", validate_text_of(v, row->group));
        json_put_text(j, "file", row->file);
        json_out_close(j, '}');
    }
    json_out_close(j, ']');
}

static void put_errors(const Validation *v, JsonOut *j, ValidatePart part)
{
    ErrorStat s = validate_errors(v, part);
    json_put_open(j, validate_text_of(v, part.metric), '{');
    json_put_number(j, "rows", s.rows_n);
    if (validate_is_fits(v, part.metric)) {
        json_put_number(j, "correct", s.correct_n);
    } else {
        json_put_number(j, "median_abs_error_pct", s.median_pct);
        json_put_number(j, "p90_abs_error_pct", s.p90_pct);
        json_put_number(j, "max_abs_error_pct", s.max_pct);
        json_put_number(j, "bias_pct", s.bias_pct);
        json_put_number(j, "median_with_skipped_pct", s.median_with_skipped_pct);
        json_put_number(j, "p90_with_skipped_pct", s.p90_with_skipped_pct);
        json_put_number(j, "median_left_out_pct", s.median_left_out_pct);
        json_put_number(j, "p90_left_out_pct", s.p90_left_out_pct);
    }
    json_put_number(j, "skipped", s.skipped_n);
    json_out_close(j, '}');
}

/* Of each metric that the part has rows of, skipped ones too. */
static void put_metrics(const Validation *v, JsonOut *j, ValidatePart part)
{
    uint32_t *metrics = mem_zero(v->names.n, sizeof *metrics);
    uint32_t n = validate_metrics(v, metrics);
    for (uint32_t i = 0; i < n; i++) {
        part.metric = metrics[i];
        ErrorStat s = validate_errors(v, part);
        if (s.rows_n + s.skipped_n > 0)
            put_errors(v, j, part);
    }
    free(metrics);
}

static void put_ranking(const Validation *v, JsonOut *j, uint32_t group)
{
    Ranking r = validate_ranking(v, group);
    json_put_number(j, "kendall_tau", r.kendall_tau);
    json_put_number(j, "regret_pct", r.regret_pct);
    json_put_number(j, "sets", r.sets_n);
}

static void put_groups(const Validation *v, JsonOut *j, const uint32_t *ids, uint32_t n)
{
    ValidatePart part = VALIDATE_ANY;
    json_put_open(j, "groups", '[');
    for (uint32_t i = 0; i < n; i++) {
        part.group = ids[i];
        json_out_open(j, '{');
        json_put_text(j, "group", validate_text_of(v, ids[i]));
        put_metrics(v, j, part);
        put_ranking(v, j, ids[i]);
        json_out_close(j, '}');
    }
    json_out_close(j, ']');
}

static void put_lists(const Validation *v, JsonOut *j, const uint32_t *ids, uint32_t n)
{
    ValidatePart part = VALIDATE_ANY;
    json_put_open(j, "files", '[');
    for (uint32_t i = 0; i < n; i++) {
        part.list = ids[i];
        json_out_open(j, '{');
        json_put_text(j, "file", validate_text_of(v, ids[i]));
        put_metrics(v, j, part);
        json_out_close(j, '}');
    }
    json_out_close(j, ']');
}

/* Statistics: of all rows, by group, by file. */
static void put_parts(const Validation *v, JsonOut *j)
{
    uint32_t *ids = mem_zero(v->names.n, sizeof *ids);
    json_put_open(j, "summary", '{');
    put_metrics(v, j, VALIDATE_ANY);
    json_out_close(j, '}');
    put_groups(v, j, ids, validate_groups(v, ids));
    put_lists(v, j, ids, validate_lists(v, ids));
    json_put_open(j, "ranking", '{');
    put_ranking(v, j, NONE_U32);
    json_out_close(j, '}');
    free(ids);
}

/* The number of scenarios, and which stacks they name. */
static void put_unknown(const Validation *v, JsonOut *j)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < v->unknown_n; i++)
        n += v->unknown[i].scenarios_n;
    json_put_number(j, "unknown_software", n);
    json_put_open(j, "unknown_software_names", '{');
    for (uint32_t i = 0; i < v->unknown_n; i++)
        json_put_number(j, validate_text_of(v, v->unknown[i].software),
                        v->unknown[i].scenarios_n);
    json_out_close(j, '}');
}

static void put_overfull(const Validation *v, JsonOut *j)
{
    json_put_open(j, "overfull", '[');
    for (uint32_t i = 0; i < v->overfull_n; i++) {
        const Overfull *x = &v->overfull[i];
        json_out_open(j, '{');
        json_put_text(j, "name", x->name);
        json_put_uint(j, "reserved_bytes", x->reserved_bytes);
        json_put_uint(j, "gpu_bytes", x->gpu_bytes);
        json_put_text(j, "file", x->file);
        json_out_close(j, '}');
    }
    json_out_close(j, ']');
}

void validate_json(const Validation *v, JsonOut *j)
{
    json_out_open(j, '{');
    json_put_open(j, "rows", '[');
    for (uint32_t i = 0; i < v->rows_n; i++)
        if (!v->rows[i].skipped)
            put_row(v, j, &v->rows[i]);
    json_out_close(j, ']');
    put_skipped(v, j);
    put_parts(v, j);
    put_unknown(v, j);
    json_put_number(j, "scenarios", v->scenarios_n);
    json_put_number(j, "fitted_scenarios", v->fitted_n);
    put_overfull(v, j);
    json_out_close(j, '}');
}

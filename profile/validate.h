/*
 * validate.h - how far predictions are from measurements: rows in, statistics out.
 *
 * A row is one measured number of one scenario, and what was predicted for it:
 *
 *     error_pct = 100 * (predicted / measured - 1)
 *
 * Over any part of the rows (a metric, a group, a stack) the errors are summed up
 * as median, 90th percentile and maximum of their size, and as their mean (bias).
 * Percentiles are interpolated between the two neighbours in rank: of n sorted
 * numbers, that at (n - 1) * q.
 *
 * An error says little about choosing a plan: hence the ranking.  Rows of one
 * model, GPU count, batch and sequence length, in one group, form a set:
 *
 *     kendall tau-b   of measured and predicted step time, mean over the sets
 *     regret          (time of the predicted best - best) / best, mean over the sets
 *
 * Pure arithmetic: this module knows no scenario and no simulator.
 */
#ifndef LOCKSTEP_PROFILE_VALIDATE_H
#define LOCKSTEP_PROFILE_VALIDATE_H

#include <stdio.h>

#include "core/intern.h"
#include "core/json_out.h"

/* Texts are ids in Validation.names. */
typedef struct ValidateRow {
    const char *name, *file; /* of the scenario; "runs.jsonl:12" */
    /* Who measured, how far that is to be trusted; "" or NULL: it does not say. */
    const char *source, *quality;
    const char *skipped; /* why nothing was predicted; NULL: something was */
    uint32_t scenario;   /* rows of one scenario stand together and share it */
    uint32_t group, software;
    uint32_t list;   /* the file that it stands in, "runs.jsonl" */
    uint32_t metric; /* NONE_U32: the scenario has no measurement (and is skipped) */
    uint32_t set;    /* of the ranking; NONE_U32 when skipped */
    double measured, predicted;
    double left_out; /* predicted with scalars fitted without the row's group (profile/fit.h) */
} ValidateRow;

typedef struct UnknownSoftware {
    uint32_t software, scenarios_n;
} UnknownSoftware;

/* A scenario that was measured, so it ran, and is predicted not to fit. */
typedef struct Overfull {
    const char *name, *file;
    uint64_t reserved_bytes, gpu_bytes;
} Overfull;

/* Validation v = { 0 } is empty. */
typedef struct Validation {
    Arena arena; /* texts of rows */
    Interner names;
    ValidateRow *rows;
    uint32_t rows_n, rows_cap;
    uint32_t scenarios_n;
    UnknownSoftware *unknown; /* stacks without a file: their scenarios ran as generic */
    uint32_t unknown_n, unknown_cap;
    Overfull *overfull; /* what lacks most first */
    uint32_t overfull_n, overfull_cap;
    /* Scenarios whose stack has fitted scalars, or shows its GPU's sustained_scale: left_out means
     * something. */
    uint32_t fitted_n;
} Validation;

ValidateRow *validate_add(Validation *v); /* a row of zeroes; valid until the next add */
void validate_add_unknown(Validation *v, const char *software);
void validate_add_overfull(Validation *v, Overfull overfull); /* texts are the caller's */
void validate_free(Validation *v);

/* ---- statistics ---- */

double validate_error_pct(double measured, double predicted); /* not finite: undefined */
/* Tau-b: ties in either list are taken into account.  NAN when x is constant or n < 2 (there is
 * nothing to rank), 0 when only y is (it ranks nothing). */
double validate_kendall(const double *x, const double *y, uint32_t n);
/* Relative: 0.01 is 1 %.  Among equal predictions any may be picked: their mean. */
double validate_regret(const double *measured, const double *predicted, uint32_t n);

/* Which rows; NONE_U32: any. */
typedef struct ValidatePart {
    uint32_t metric, group, software, list;
} ValidatePart;

#define VALIDATE_ANY ((ValidatePart){ NONE_U32, NONE_U32, NONE_U32, NONE_U32 })

typedef struct ErrorStat {
    uint32_t rows_n, skipped_n;
    uint32_t correct_n; /* of "fits"; the errors below are then NAN */
    double median_pct, p90_pct, max_pct, bias_pct;
    double median_with_skipped_pct,
        p90_with_skipped_pct; /* each skipped row an error of 100 % */
    double median_left_out_pct, p90_left_out_pct;
} ErrorStat;

ErrorStat validate_errors(const Validation *v, ValidatePart part);

typedef struct Ranking {
    uint32_t sets_n, rows_n;        /* sets of at least VALIDATE_SET_MIN rows, rows in them */
    double kendall_tau, regret_pct; /* NAN without sets */
} Ranking;

enum { VALIDATE_SET_MIN = 3 };

Ranking validate_ranking(const Validation *v, uint32_t group); /* NONE_U32: all groups */

/* Distinct values in the order of the rows, into ids (room for v->names.n); returns how many. */
uint32_t validate_metrics(const Validation *v, uint32_t *ids);
uint32_t validate_groups(const Validation *v, uint32_t *ids);
uint32_t validate_softwares(const Validation *v, uint32_t *ids);
uint32_t validate_lists(const Validation *v, uint32_t *ids);

bool validate_is_fits(const Validation *v, uint32_t metric);
static inline const char *validate_text_of(const Validation *v, uint32_t id)
{
    return id == NONE_U32 ? "" : intern_text(&v->names, id);
}

/* Indices of up to max rows, largest |error| first, not more than group_max of a group, into at;
 * returns how many. */
uint32_t validate_worst(const Validation *v, uint32_t *at, uint32_t max, uint32_t group_max);

/* ---- showing ---- */

void validate_print(const Validation *v, FILE *out);    /* for people, 100 columns */
void validate_markdown(const Validation *v, FILE *out); /* the tables of the README */
void validate_json(const Validation *v, JsonOut *j);    /* one object, DESIGN 4.2 */

#endif

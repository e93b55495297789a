/* validate.c - the statistics, each by its definition; rows are few, clarity comes first. */
#include "profile/validate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/order.h"
#include "core/quantile.h"

static const char time_metric[] = "step_time_s";

ValidateRow *validate_add(Validation *v)
{
    GROW(v->rows, v->rows_n, v->rows_cap);
    ValidateRow *row = &v->rows[v->rows_n++];
    *row = (ValidateRow){ .metric = NONE_U32, .set = NONE_U32 };
    return row;
}

void validate_add_unknown(Validation *v, const char *software)
{
    uint32_t id = intern(&v->names, software), i = 0;
    while (i < v->unknown_n && v->unknown[i].software != id)
        i++;
    if (i == v->unknown_n) {
        GROW(v->unknown, v->unknown_n, v->unknown_cap);
        v->unknown[v->unknown_n++] = (UnknownSoftware){ .software = id };
    }
    v->unknown[i].scenarios_n++;
}

static bool needs_more(const Overfull *a, const Overfull *b)
{
    return a->reserved_bytes - a->gpu_bytes > b->reserved_bytes - b->gpu_bytes;
}

void validate_add_overfull(Validation *v, Overfull overfull)
{
    GROW(v->overfull, v->overfull_n, v->overfull_cap);
    uint32_t at = v->overfull_n++;
    for (; at > 0 && needs_more(&overfull, &v->overfull[at - 1]); at--)
        v->overfull[at] = v->overfull[at - 1];
    v->overfull[at] = overfull;
}

void validate_free(Validation *v)
{
    free(v->overfull);
    arena_free(&v->arena);
    intern_free(&v->names);
    free(v->rows);
    free(v->unknown);
    *v = (Validation){ 0 };
}

/* ---- numbers ---- */

/* 0 against 0 is no error: the bubble of one GPU. */
double validate_error_pct(double measured, double predicted)
{
    return measured == predicted ? 0 : 100 * (predicted / measured - 1);
}

/* tau-b = (concordant - discordant) / sqrt(pairs not tied in x * pairs not tied in y) */
double validate_kendall(const double *x, const double *y, uint32_t n)
{
    double sum = 0, x_n = 0, y_n = 0;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < i; j++) {
            int dx = order_double(x[i], x[j]), dy = order_double(y[i], y[j]);
            sum += dx * dy;
            x_n += dx != 0;
            y_n += dy != 0;
        }
    if (x_n == 0)
        return NAN;
    return y_n == 0 ? 0 : sum / sqrt(x_n * y_n);
}

double validate_regret(const double *measured, const double *predicted, uint32_t n)
{
    double best = INFINITY, foreseen = INFINITY, picked = 0;
    uint32_t picked_n = 0;
    for (uint32_t i = 0; i < n; i++) {
        best = fmin(best, measured[i]);
        foreseen = fmin(foreseen, predicted[i]);
    }
    for (uint32_t i = 0; i < n; i++)
        if (predicted[i] == foreseen) {
            picked += measured[i];
            picked_n++;
        }
    return picked_n ? (picked / picked_n - best) / best : NAN;
}

/* ---- errors ---- */

bool validate_is_fits(const Validation *v, uint32_t metric)
{
    return metric != NONE_U32 && strcmp(intern_text(&v->names, metric), "fits") == 0;
}

static bool is_any_or(uint32_t wanted, uint32_t id)
{
    return wanted == NONE_U32 || wanted == id;
}

static bool is_in(const ValidateRow *row, ValidatePart part)
{
    return row->metric != NONE_U32 && is_any_or(part.metric, row->metric) &&
           is_any_or(part.group, row->group) && is_any_or(part.software, row->software) &&
           is_any_or(part.list, row->list);
}

static void count_rows(ErrorStat *stat, const Validation *v, ValidatePart part)
{
    for (uint32_t i = 0; i < v->rows_n; i++) {
        const ValidateRow *row = &v->rows[i];
        if (!is_in(row, part))
            continue;
        stat->rows_n += row->skipped == NULL;
        stat->skipped_n += row->skipped != NULL;
        stat->correct_n += row->skipped == NULL && row->measured == row->predicted;
    }
}

/* Sizes of the errors of a part, sorted, into size; their mean with sign, or NAN. */
static double errors_of(double *size, const Validation *v, ValidatePart part, bool left_out)
{
    double sum = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < v->rows_n; i++) {
        const ValidateRow *row = &v->rows[i];
        if (!is_in(row, part) || row->skipped)
            continue;
        double error =
            validate_error_pct(row->measured, left_out ? row->left_out : row->predicted);
        sum += error;
        size[n++] = fabs(error);
    }
    sort_doubles(size, n);
    return n ? sum / n : NAN;
}

ErrorStat validate_errors(const Validation *v, ValidatePart part)
{
    ErrorStat stat = { 0 };
    count_rows(&stat, v, part);
    uint32_t n = stat.rows_n, all_n = n + stat.skipped_n;
    double *size = mem_zero(all_n, sizeof *size);
    errors_of(size, v, part, true);
    stat.median_left_out_pct = quantile(size, n, 0.5);
    stat.p90_left_out_pct = quantile(size, n, 0.9);
    stat.bias_pct = errors_of(size, v, part, false);
    stat.median_pct = quantile(size, n, 0.5);
    stat.p90_pct = quantile(size, n, 0.9);
    stat.max_pct = quantile(size, n, 1);
    for (uint32_t i = n; i < all_n; i++)
        size[i] = 100;
    sort_doubles(size, all_n);
    stat.median_with_skipped_pct = quantile(size, all_n, 0.5);
    stat.p90_with_skipped_pct = quantile(size, all_n, 0.9);
    free(size);
    return stat;
}

/* ---- ranking ---- */

typedef struct SetRow {
    uint32_t set, row;
    double measured, predicted;
} SetRow;

static int compare_set_rows(const void *a, const void *b)
{
    const SetRow *x = a, *y = b;
    int by_set = (x->set > y->set) - (x->set < y->set);
    return by_set ? by_set : (x->row > y->row) - (x->row < y->row);
}

/* A scenario that was measured again is one plan, with the mean of what it took. */
static uint32_t once_each(SetRow *of, uint32_t n, const Validation *v)
{
    uint32_t kept = 0, times = 1;
    for (uint32_t i = 0; i < n; i++) {
        SetRow *last = &of[kept > 0 ? kept - 1 : 0];
        bool again = kept > 0 && last->set == of[i].set &&
                     v->rows[last->row].scenario == v->rows[of[i].row].scenario;
        times = again ? times + 1 : 1;
        if (again)
            last->measured += (of[i].measured - last->measured) / times;
        else
            of[kept++] = of[i];
    }
    return kept;
}

/* The step times of a group, rows of one set together. */
static uint32_t sets_of(SetRow *of, const Validation *v, uint32_t group)
{
    uint32_t n = 0, metric = intern_find(&v->names, time_metric);
    for (uint32_t i = 0; i < v->rows_n; i++) {
        const ValidateRow *row = &v->rows[i];
        if (!row->skipped && row->set != NONE_U32 && metric != NONE_U32 &&
            row->metric == metric && is_any_or(group, row->group))
            of[n++] = (SetRow){ row->set, i, row->measured, row->predicted };
    }
    if (n > 0)
        qsort(of, n, sizeof *of, compare_set_rows);
    return once_each(of, n, v);
}

typedef struct RankingSum {
    double tau, regret;
    uint32_t tau_n; /* sets whose measurements differ at all */
} RankingSum;

static void add_set(Ranking *r, RankingSum *sum, const SetRow *of, uint32_t n)
{
    if (n < VALIDATE_SET_MIN)
        return;
    double *measured = mem_zero(n, sizeof *measured),
           *predicted = mem_zero(n, sizeof *predicted);
    for (uint32_t i = 0; i < n; i++) {
        measured[i] = of[i].measured;
        predicted[i] = of[i].predicted;
    }
    double tau = validate_kendall(measured, predicted, n);
    sum->tau += isnan(tau) ? 0 : tau;
    sum->tau_n += isnan(tau) ? 0 : 1;
    sum->regret += validate_regret(measured, predicted, n);
    r->sets_n++;
    r->rows_n += n;
    free(measured);
    free(predicted);
}

Ranking validate_ranking(const Validation *v, uint32_t group)
{
    Ranking r = { 0 };
    RankingSum sum = { 0 };
    SetRow *of = mem_zero(v->rows_n, sizeof *of);
    uint32_t n = sets_of(of, v, group);
    for (uint32_t i = 0, end = 0; i < n; i = end) {
        while (end < n && of[end].set == of[i].set)
            end++;
        add_set(&r, &sum, of + i, end - i);
    }
    free(of);
    r.kendall_tau = sum.tau_n ? sum.tau / sum.tau_n : NAN;
    r.regret_pct = r.sets_n ? 100 * sum.regret / r.sets_n : NAN;
    return r;
}

/* ---- which there are ---- */

static uint32_t distinct(const Validation *v, uint32_t *ids, size_t offset)
{
    bool *seen = mem_zero(v->names.n, sizeof *seen);
    uint32_t n = 0;
    for (uint32_t i = 0; i < v->rows_n; i++) {
        uint32_t id;
        memcpy(&id, (const char *)&v->rows[i] + offset, sizeof id);
        if (v->rows[i].metric == NONE_U32 || seen[id])
            continue;
        seen[id] = true;
        ids[n++] = id;
    }
    free(seen);
    return n;
}

uint32_t validate_metrics(const Validation *v, uint32_t *ids)
{
    return distinct(v, ids, offsetof(ValidateRow, metric));
}

uint32_t validate_groups(const Validation *v, uint32_t *ids)
{
    return distinct(v, ids, offsetof(ValidateRow, group));
}

uint32_t validate_softwares(const Validation *v, uint32_t *ids)
{
    return distinct(v, ids, offsetof(ValidateRow, software));
}

uint32_t validate_lists(const Validation *v, uint32_t *ids)
{
    return distinct(v, ids, offsetof(ValidateRow, list));
}

/* ---- the worst ---- */

typedef struct Sized {
    double size;
    uint32_t row;
} Sized;

static int compare_sized(const void *a, const void *b)
{
    const Sized *x = a, *y = b;
    int by_size = order_double(y->size, x->size);
    return by_size ? by_size : (x->row > y->row) - (x->row < y->row);
}

uint32_t validate_worst(const Validation *v, uint32_t *at, uint32_t max, uint32_t group_max)
{
    Sized *of = mem_zero(v->rows_n, sizeof *of);
    uint32_t *of_group = mem_zero(v->names.n, sizeof *of_group);
    uint32_t n = 0, taken_n = 0;
    for (uint32_t i = 0; i < v->rows_n; i++) {
        const ValidateRow *row = &v->rows[i];
        if (!row->skipped && !validate_is_fits(v, row->metric))
            of[n++] = (Sized){ fabs(validate_error_pct(row->measured, row->predicted)), i };
    }
    if (n > 0)
        qsort(of, n, sizeof *of, compare_sized);
    for (uint32_t i = 0; i < n && taken_n < max; i++)
        if (of_group[v->rows[of[i].row].group]++ < group_max)
            at[taken_n++] = of[i].row;
    free(of_group);
    free(of);
    return taken_n;
}

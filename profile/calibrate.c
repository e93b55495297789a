/*
 * calibrate.c - Gauss-Newton on logarithms with damping (Levenberg, Marquardt), and
 * weights that make the sum of squares one of absolute values (IRLS).
 *
 * Models choose between algorithms, so their answers have kinks and valleys: a scan of
 * each number over powers of two looks for others, and steps that make things worse
 * are taken back and damped.  Which numbers rows answer to depends on the numbers, so
 * they are asked again after each round, until no more do.
 */
#include "profile/calibrate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/quantile.h"

enum { STEPS_MAX = 40, SCAN_ROUNDS = 2, ROUNDS_MAX = 10 };
static const double worth = 1e-3;     /* part of the misfit that another round must save */
static const double trial_ln = 0.02;  /* how far a number moves to see what answers */
static const double small_ln = 0.003; /* residuals below count as squares: no kink at 0 */
/* Towards the start, for what rows cannot tell apart: a factor of e must be worth 1 % of a row. */
static const double pull = 0.01;

typedef struct Fit {
    const CalibrateRows *rows;
    const uint32_t *fold;
    uint32_t left_out;
    uint32_t n; /* numbers */
    const CalibrateNumber *number;
    double *z, *start; /* ln value */
    double *value, *ns, *trial_ns;
    double *answer; /* [number][row]: d ln time / d ln number; 0 of those not active */
    bool *active;   /* by number */
    double *matrix, *side, *step;
} Fit;

static double *doubles(size_t n)
{
    return mem_zero(n ? n : 1, sizeof(double));
}

static bool takes_part(const Fit *f, uint32_t row)
{
    bool judged = f->rows->judged && f->rows->judged[row];
    return !judged && (!f->fold || f->fold[row] != f->left_out);
}

static void predict(Fit *f, const double *z, double *ns)
{
    for (uint32_t i = 0; i < f->n; i++)
        f->value[i] = fmin(fmax(exp(z[i]), f->number[i].min), f->number[i].max);
    f->rows->predict(f->rows->user, f->value, ns);
}

static double off(const Fit *f, const double *ns, uint32_t row)
{
    double ln = log(ns[row] / f->rows->measured_ns[row]);
    return isfinite(ln) ? ln : 0;
}

static double misfit(const Fit *f, const double *z, const double *ns)
{
    double sum = 0;
    for (uint32_t r = 0; r < f->rows->n; r++)
        if (takes_part(f, r))
            sum += sqrt(off(f, ns, r) * off(f, ns, r) + small_ln * small_ln);
    for (uint32_t i = 0; i < f->n; i++)
        sum += pull * (z[i] - f->start[i]) * (z[i] - f->start[i]);
    return sum;
}

static double misfit_at(Fit *f, const double *z)
{
    predict(f, z, f->trial_ns);
    return misfit(f, z, f->trial_ns);
}

static bool within(const Fit *f, uint32_t i, double z)
{
    return z >= log(f->number[i].min) && z <= log(f->number[i].max);
}

/* Powers of two around where each number stands, one number after the other. */
static void scan(Fit *f)
{
    for (int round = 0; round < SCAN_ROUNDS; round++)
        for (uint32_t i = 0; i < f->n; i++) {
            double from = f->z[i], best = from, least = misfit_at(f, f->z);
            for (int k = -3; k <= 3 && f->active[i]; k++) {
                f->z[i] = from + k * log(2);
                double now = within(f, i, f->z[i]) && k ? misfit_at(f, f->z) : INFINITY;
                if (now < least - 1e-9) {
                    least = now;
                    best = f->z[i];
                }
            }
            f->z[i] = best;
        }
}

static void find_answers(Fit *f, bool of_all)
{
    uint32_t rows_n = f->rows->n;
    predict(f, f->z, f->ns);
    memset(f->answer, 0, (size_t)f->n * rows_n * sizeof *f->answer);
    for (uint32_t i = 0; i < f->n; i++) {
        if (!of_all && !f->active[i])
            continue;
        double from = f->z[i], by = within(f, i, from + trial_ln) ? trial_ln : -trial_ln;
        f->z[i] = from + by;
        predict(f, f->z, f->trial_ns);
        f->z[i] = from;
        for (uint32_t r = 0; r < rows_n; r++)
            f->answer[(size_t)i * rows_n + r] =
                (off(f, f->trial_ns, r) - off(f, f->ns, r)) / by;
    }
}

static void build_equations(Fit *f)
{
    uint32_t n = f->n, rows_n = f->rows->n;
    memset(f->matrix, 0, (size_t)n * n * sizeof *f->matrix);
    for (uint32_t i = 0; i < n; i++)
        f->side[i] = -pull * (f->z[i] - f->start[i]);
    for (uint32_t r = 0; r < rows_n; r++) {
        if (!takes_part(f, r))
            continue;
        double o = off(f, f->ns, r), w = 1 / sqrt(o * o + small_ln * small_ln);
        for (uint32_t i = 0; i < n; i++) {
            double a = w * f->answer[(size_t)i * rows_n + r];
            f->side[i] -= a * o;
            for (uint32_t j = 0; a != 0 && j <= i; j++)
                f->matrix[i * n + j] += a * f->answer[(size_t)j * rows_n + r];
        }
    }
    for (uint32_t i = 0; i < n; i++)
        f->matrix[i * n + i] += pull;
}

/* Cholesky of matrix + damping * its diagonal, into copy; the answer into step. */
static void solve(Fit *f, double damping, double *copy)
{
    uint32_t n = f->n;
    memcpy(copy, f->matrix, (size_t)n * n * sizeof *copy);
    for (uint32_t i = 0; i < n; i++) {
        copy[i * n + i] *= 1 + damping;
        f->step[i] = f->side[i];
        for (uint32_t j = 0; j <= i; j++) {
            double sum = copy[i * n + j];
            for (uint32_t k = 0; k < j; k++)
                sum -= copy[i * n + k] * copy[j * n + k];
            copy[i * n + j] = i == j ? sqrt(fmax(sum, 1e-12)) : sum / copy[j * n + j];
        }
        for (uint32_t k = 0; k < i; k++)
            f->step[i] -= copy[i * n + k] * f->step[k];
        f->step[i] /= copy[i * n + i];
    }
    for (uint32_t i = n; i-- > 0;) {
        for (uint32_t k = i + 1; k < n; k++)
            f->step[i] -= copy[k * n + i] * f->step[k];
        f->step[i] /= copy[i * n + i];
    }
}

/* One step, damped until it helps; false when none does. */
static bool improve(Fit *f, double *least, double *damping)
{
    double *copy = doubles((size_t)f->n * f->n), *to = doubles(f->n);
    find_answers(f, false);
    build_equations(f);
    bool better = false;
    for (int tries = 0; tries < 8 && !better; tries++) {
        solve(f, *damping, copy);
        for (uint32_t i = 0; i < f->n; i++) {
            double by = fmin(fmax(f->step[i], -1), 1);
            to[i] = fmin(fmax(f->z[i] + by, log(f->number[i].min)), log(f->number[i].max));
        }
        double now = misfit_at(f, to);
        better = now < *least * (1 - 1e-6);
        *damping *= better ? 0.3 : 5;
        if (better) {
            memcpy(f->z, to, f->n * sizeof *to);
            *least = now;
        }
    }
    free(copy);
    free(to);
    return better;
}

/* Which numbers enough rows answer to, or did: those that have made the rows choose another
 * algorithm still decide that they do.  True when there are more than before. */
static bool choose_active(Fit *f, CalibrateNumber *number)
{
    bool changed = false;
    find_answers(f, true);
    for (uint32_t i = 0; i < f->n; i++) {
        uint32_t rows_n = 0;
        for (uint32_t r = 0; r < f->rows->n; r++) {
            double answer = fabs(f->answer[(size_t)i * f->rows->n + r]);
            rows_n += takes_part(f, r) && answer > number[i].answer_min;
        }
        number[i].rows_n = number[i].rows_n > rows_n ? number[i].rows_n : rows_n;
        bool active = f->active[i] || rows_n >= CALIBRATE_ROWS_MIN;
        changed = changed || active != f->active[i];
        f->active[i] = active;
    }
    return changed;
}

static double walk(Fit *f)
{
    double least = misfit_at(f, f->z), damping = 0.01;
    for (int step = 0; step < STEPS_MAX && improve(f, &least, &damping); step++)
        ;
    return least;
}

/* From where the numbers stand, and from where a scan finds better ones: the lower end counts. */
static double descend(Fit *f)
{
    size_t bytes = f->n * sizeof *f->z;
    double *from = doubles(f->n), *end = doubles(f->n);
    memcpy(from, f->z, bytes);
    double near = walk(f);
    memcpy(end, f->z, bytes);
    memcpy(f->z, from, bytes);
    scan(f);
    if (walk(f) > near)
        memcpy(f->z, end, bytes);
    scan(f);
    double least = walk(f);
    free(from);
    free(end);
    return least;
}

/* Until no more numbers are asked for, and no way down is left: then a fit from where it ended
 * ends there, too. */
static void settle(Fit *f, CalibrateNumber *number)
{
    double least = INFINITY;
    bool better = true;
    for (int round = 0; round < ROUNDS_MAX && (choose_active(f, number) || better); round++) {
        double now = descend(f);
        better = now < least * (1 - worth);
        least = now;
    }
}

static bool has_rows(const Fit *f)
{
    for (uint32_t r = 0; r < f->rows->n; r++)
        if (takes_part(f, r))
            return true;
    return false;
}

static void free_fit(Fit *f)
{
    double *all[] = { f->z,      f->start,  f->value, f->ns,  f->trial_ns,
                      f->answer, f->matrix, f->side,  f->step };
    for (size_t i = 0; i < ARRAY_N(all); i++)
        free(all[i]);
    free(f->active);
}

bool calibrate_fit(CalibrateNumber *number, uint32_t numbers_n, const CalibrateRows *rows,
                   const uint32_t *fold, uint32_t left_out)
{
    ASSERT(numbers_n <= CALIBRATE_NUMBERS_MAX);
    Fit f = { .rows = rows, .fold = fold, .left_out = left_out, .n = numbers_n };
    if (!has_rows(&f))
        return false;
    f.number = number;
    f.z = doubles(numbers_n);
    f.start = doubles(numbers_n);
    f.value = doubles(numbers_n);
    f.ns = doubles(rows->n);
    f.trial_ns = doubles(rows->n);
    f.answer = doubles((size_t)numbers_n * rows->n);
    f.matrix = doubles((size_t)numbers_n * numbers_n);
    f.side = doubles(numbers_n);
    f.step = doubles(numbers_n);
    for (uint32_t i = 0; i < numbers_n; i++)
        f.z[i] = f.start[i] = log(fmin(fmax(number[i].value, number[i].min), number[i].max));
    for (uint32_t i = 0; i < numbers_n; i++)
        number[i].rows_n = 0;
    f.active = mem_zero(numbers_n + 1, sizeof *f.active);
    settle(&f, number);
    for (uint32_t i = 0; i < numbers_n; i++) {
        number[i].fitted = f.active[i];
        if (number[i].fitted)
            number[i].value = exp(f.z[i]);
    }
    free_fit(&f);
    return true;
}

void calibrate_left_out(const CalibrateNumber *number, uint32_t numbers_n,
                        const CalibrateRows *rows, const uint32_t *fold, uint32_t folds_n,
                        double *ns)
{
    CalibrateNumber *own = mem_zero(numbers_n + 1, sizeof *own);
    double *value = doubles(numbers_n), *all = doubles(rows->n);
    for (uint32_t k = 0; k < folds_n; k++) {
        memcpy(own, number, numbers_n * sizeof *own);
        bool fits = calibrate_fit(own, numbers_n, rows, fold, k);
        for (uint32_t i = 0; i < numbers_n; i++)
            value[i] = own[i].value;
        rows->predict(rows->user, value, all);
        for (uint32_t r = 0; r < rows->n; r++)
            if (fold[r] == k)
                ns[r] = fits ? all[r] : NAN;
    }
    free(own);
    free(value);
    free(all);
}

/* ---- statistics ---- */

CalibrateErrors calibrate_errors(const double *measured_ns, const double *predicted_ns,
                                 uint32_t n, const uint32_t *part, uint32_t of)
{
    double *error = doubles(n);
    CalibrateErrors e = { 0, NAN, NAN };
    for (uint32_t i = 0; i < n; i++) {
        double x = 100 * fabs(predicted_ns[i] / measured_ns[i] - 1);
        if (isfinite(x) && (!part || part[i] == of))
            error[e.n++] = x;
    }
    e.median_pct = sort_median(error, e.n);
    e.p90_pct = quantile(error, e.n, 0.9);
    free(error);
    return e;
}

/* Weights 1/ns^2 make the errors relative; a negative latency means there is none to see. */
CalibrateLine calibrate_line(const double *bytes, const double *ns, uint32_t n)
{
    double w = 0, wx = 0, wy = 0, wxx = 0, wxy = 0;
    for (uint32_t i = 0; i < n; i++) {
        double weight = 1 / (ns[i] * ns[i]);
        w += weight;
        wx += weight * bytes[i];
        wy += weight * ns[i];
        wxx += weight * bytes[i] * bytes[i];
        wxy += weight * bytes[i] * ns[i];
    }
    CalibrateLine line = { .rows_n = n, .median_pct = NAN };
    double det = w * wxx - wx * wx;
    if (n == 0 || !(det > 1e-9 * w * wxx))
        return line;
    line.latency_ns = (wy * wxx - wx * wxy) / det;
    double slope = (w * wxy - wx * wy) / det;
    if (line.latency_ns < 0) {
        line.latency_ns = 0;
        slope = wxy / wxx;
    }
    if (!(slope > 0))
        return (CalibrateLine){ .rows_n = n, .median_pct = NAN };
    line.bytes_per_ns = 1 / slope;
    double *fitted = doubles(n);
    for (uint32_t i = 0; i < n; i++)
        fitted[i] = line.latency_ns + bytes[i] * slope;
    line.median_pct = calibrate_errors(ns, fitted, n, NULL, 0).median_pct;
    free(fitted);
    return line;
}

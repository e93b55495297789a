/* fit.c - one scalar after the other, over a grid: no gradients, no starting point to choose. */
#include "profile/fit.h"

#include <math.h>

/* Factors from exp(-1) to exp(1), half a percent apart; the answers are nearly straight, so a
 * few rounds over the scalars settle them. */
enum { GRID_HALF = 200, ROUNDS = 8 };
#define GRID_STEP 0.005
#define ROUNDING  1e-9 /* what tells no misfits apart */

/* What a factor of exp(ln_factor) on scalar i adds to ln time. */
static double answer(const FitRow *row, int i, double ln_factor)
{
    double trial = ln_factor < 0 ? row->lower[i] : row->higher[i];
    if (!(trial > 0))
        return 0;
    return log(trial / row->predicted) * fabs(ln_factor) / log(FIT_STEP);
}

typedef struct Fit {
    const FitRow *rows;
    uint32_t rows_n, software, without_group;
    bool all_nics;
    double ln_factor[FIT_N];
} Fit;

static bool takes_part(const Fit *f, const FitRow *row)
{
    return row->software == f->software && row->group != f->without_group;
}

/* Mean size of what the logarithms are off by; INFINITY without rows. */
static double misfit(const Fit *f)
{
    double sum = 0;
    uint32_t n = 0;
    for (const FitRow *row = f->rows; row < f->rows + f->rows_n; row++) {
        if (!takes_part(f, row))
            continue;
        bool all = f->all_nics && row->all_nics > 0;
        double off = log((all ? row->all_nics : row->predicted) / row->measured);
        for (int i = 0; i < FIT_N; i++)
            off += answer(row, i, f->ln_factor[i]);
        sum += fabs(off);
        n++;
    }
    return n ? sum / n : INFINITY;
}

static bool is_fitted(const Fit *f, int i)
{
    for (const FitRow *row = f->rows; row < f->rows + f->rows_n; row++)
        if (takes_part(f, row) && (row->lower[i] > 0 || row->higher[i] > 0))
            return true;
    return false;
}

/* The best grid point for scalar i with the others as they are; the nearest to 1 among equals. */
static void fit_one(Fit *f, int i)
{
    double best = 0;
    f->ln_factor[i] = 0;
    double least = misfit(f);
    for (int step = 1; step <= 2 * GRID_HALF; step++) {
        f->ln_factor[i] = (step % 2 ? 1 : -1) * (step + 1) / 2 * GRID_STEP;
        double now = misfit(f);
        if (now < least - ROUNDING) {
            least = now;
            best = f->ln_factor[i];
        }
    }
    f->ln_factor[i] = best;
}

/* What is left of the misfit. */
static double fit_all(Fit *f)
{
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < FIT_N; i++)
            if (is_fitted(f, i))
                fit_one(f, i);
    return misfit(f);
}

/* What the rows that take part can tell of, beside their times. */
static FitRow told_of(const Fit *f)
{
    FitRow any = { 0 };
    for (const FitRow *row = f->rows; row < f->rows + f->rows_n; row++)
        if (takes_part(f, row)) {
            any.all_nics = fmax(any.all_nics, row->all_nics);
            any.shows_gpu |= row->shows_gpu;
        }
    return any;
}

bool fit_scalars(Fitted *fitted, const FitRow *rows, uint32_t rows_n, uint32_t software,
                 uint32_t without_group)
{
    Fit kept = { rows, rows_n, software, without_group, .all_nics = false }, all = kept;
    all.all_nics = true;
    bool any = isfinite(misfit(&kept)) != 0;
    FitRow told = told_of(&kept);
    bool keeps = any && told.all_nics > 0;
    double least = any ? fit_all(&all) : INFINITY;
    keeps = keeps && fit_all(&kept) < least - FIT_GAIN;
    const Fit *best = keeps ? &kept : &all;
    fitted->all_nics = !keeps;
    fitted->shows_gpu = told.shows_gpu;
    for (int i = 0; i < FIT_N; i++)
        fitted->factor[i] = exp(best->ln_factor[i]);
    return any;
}

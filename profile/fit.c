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

static bool takes_part(const FitRow *row, uint32_t software, uint32_t without_group)
{
    return row->software == software && row->group != without_group;
}

/* Mean size of what the logarithms are off by; INFINITY without rows. */
static double misfit(const double ln_factor[FIT_N], const FitRow *rows, uint32_t rows_n,
                     uint32_t software, uint32_t without_group)
{
    double sum = 0;
    uint32_t n = 0;
    for (uint32_t r = 0; r < rows_n; r++) {
        if (!takes_part(&rows[r], software, without_group))
            continue;
        double off = log(rows[r].predicted / rows[r].measured);
        for (int i = 0; i < FIT_N; i++)
            off += answer(&rows[r], i, ln_factor[i]);
        sum += fabs(off);
        n++;
    }
    return n ? sum / n : INFINITY;
}

static bool is_fitted(int i, const FitRow *rows, uint32_t rows_n, uint32_t software,
                      uint32_t without_group)
{
    for (uint32_t r = 0; r < rows_n; r++)
        if (takes_part(&rows[r], software, without_group) &&
            (rows[r].lower[i] > 0 || rows[r].higher[i] > 0))
            return true;
    return false;
}

/* The best grid point for scalar i with the others as they are; the nearest to 1 among equals. */
static void fit_one(double ln_factor[FIT_N], int i, const FitRow *rows, uint32_t rows_n,
                    uint32_t software, uint32_t without_group)
{
    double best = 0;
    ln_factor[i] = 0;
    double least = misfit(ln_factor, rows, rows_n, software, without_group);
    for (int step = 1; step <= 2 * GRID_HALF; step++) {
        ln_factor[i] = (step % 2 ? 1 : -1) * (step + 1) / 2 * GRID_STEP;
        double now = misfit(ln_factor, rows, rows_n, software, without_group);
        if (now < least - ROUNDING) {
            least = now;
            best = ln_factor[i];
        }
    }
    ln_factor[i] = best;
}

bool fit_scalars(double factor[FIT_N], const FitRow *rows, uint32_t rows_n, uint32_t software,
                 uint32_t without_group)
{
    double ln_factor[FIT_N] = { 0 };
    bool any = isfinite(misfit(ln_factor, rows, rows_n, software, without_group)) != 0;
    for (int round = 0; any && round < ROUNDS; round++)
        for (int i = 0; i < FIT_N; i++)
            if (is_fitted(i, rows, rows_n, software, without_group))
                fit_one(ln_factor, i, rows, rows_n, software, without_group);
    for (int i = 0; i < FIT_N; i++)
        factor[i] = exp(ln_factor[i]);
    return any;
}

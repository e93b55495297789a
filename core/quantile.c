/* quantile.c - qsort may not be given NULL, which no values may be. */
#include "core/quantile.h"

#include <math.h>
#include <stdlib.h>

#include "core/order.h"

void sort_doubles(double *x, uint64_t n)
{
    if (n > 0)
        qsort(x, n, sizeof *x, compare_double);
}

double quantile(const double *sorted, uint64_t n, double q)
{
    if (n == 0)
        return NAN;
    double at = q * (double)(n - 1);
    uint64_t below = (uint64_t)at, above = below + 1 < n ? below + 1 : below;
    return sorted[below] + (at - (double)below) * (sorted[above] - sorted[below]);
}

double sort_median(double *x, uint64_t n)
{
    sort_doubles(x, n);
    return quantile(x, n, 0.5);
}

int64_t sort_median_ns(int64_t *ns, uint64_t n)
{
    ASSERT(n > 0);
    qsort(ns, n, sizeof *ns, compare_i64);
    return ns[n / 2];
}

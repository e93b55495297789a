/*
 * kernels_rows.c - what a row of numbers comes to: its sum, its largest, the sum of its exps.
 *
 * Sums are f64 and have LANES parts that take turns, number by number, so that they become vector
 * instructions and need not wait for themselves; the parts are added in pairs.
 */
#include "exec/kernel_parts.h"

#include <math.h>

#include "exec/curves.h"

enum { LANES = 8, STRIP = 512 };

static double sum_of_lanes(const double *x)
{
    return ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
}

WIDE double row_sum(const float *x, uint64_t n)
{
    double lane[LANES] = { 0 };
    uint64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (uint32_t k = 0; k < LANES; k++)
            lane[k] += (double)x[i + k];
    for (uint32_t k = 0; i + k < n; k++)
        lane[k] += (double)x[i + k];
    return sum_of_lanes(lane);
}

WIDE double row_squares(const float *x, double mean, uint64_t n)
{
    double lane[LANES] = { 0 };
    uint64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (uint32_t k = 0; k < LANES; k++)
            lane[k] += ((double)x[i + k] - mean) * ((double)x[i + k] - mean);
    for (uint32_t k = 0; i + k < n; k++)
        lane[k] += ((double)x[i + k] - mean) * ((double)x[i + k] - mean);
    return sum_of_lanes(lane);
}

WIDE double row_dot(const float *a, const float *b, uint64_t n)
{
    double lane[LANES] = { 0 };
    uint64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (uint32_t k = 0; k < LANES; k++)
            lane[k] += (double)a[i + k] * (double)b[i + k];
    for (uint32_t k = 0; i + k < n; k++)
        lane[k] += (double)a[i + k] * (double)b[i + k];
    return sum_of_lanes(lane);
}

WIDE float row_max(const float *x, uint64_t n)
{
    float lane[LANES], top = -INFINITY;
    uint64_t i = 0;
    for (uint32_t k = 0; k < LANES; k++)
        lane[k] = -INFINITY;
    for (; i + LANES <= n; i += LANES)
        for (uint32_t k = 0; k < LANES; k++)
            lane[k] = x[i + k] > lane[k] ? x[i + k] : lane[k];
    for (uint32_t k = 0; i + k < n; k++)
        lane[k] = x[i + k] > lane[k] ? x[i + k] : lane[k];
    for (uint32_t k = 0; k < LANES; k++)
        top = lane[k] > top ? lane[k] : top;
    return top;
}

WIDE void row_exp(float *x, float less, float by, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        x[i] = curve_exp(x[i] - less) * by;
}

WIDE double row_sum_of_exp(const float *x, float less, uint64_t n)
{
    float strip[STRIP];
    double sum = 0;
    for (uint64_t i = 0, m; i < n; i += m) {
        m = min_u64(STRIP, n - i);
        for (uint64_t k = 0; k < m; k++)
            strip[k] = curve_exp(x[i + k] - less);
        sum += row_sum(strip, m);
    }
    return sum;
}

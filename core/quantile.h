/*
 * quantile.h - medians and quantiles of what was measured.
 *
 * The quantile q (0 to 1) of n sorted values is the one at rank q (n - 1), counted from 0; between
 * two ranks it lies on the line between their values.  (numpy's and R's, unless they are told
 * otherwise.)  So the median of an even number of values is the mean of the middle two.  Of no
 * values it is NaN.
 *
 * Whole nanoseconds are not averaged: of the middle two their median is the upper one.
 */
#ifndef LOCKSTEP_CORE_QUANTILE_H
#define LOCKSTEP_CORE_QUANTILE_H

#include "core/base.h"

void sort_doubles(double *x, uint64_t n);
double quantile(const double *sorted, uint64_t n, double q);

/* Of values in any order, which get sorted. */
double sort_median(double *x, uint64_t n);
int64_t sort_median_ns(int64_t *ns, uint64_t n); /* n > 0 */

#endif

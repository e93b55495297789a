/*
 * order.h - numbers and texts in ascending order, for qsort and bsearch.
 *
 * order_X says of two values which comes first: -1, 0 or 1.  compare_X does so of what two
 * pointers point to.  An order of several keys is its own file's.
 */
#ifndef LOCKSTEP_CORE_ORDER_H
#define LOCKSTEP_CORE_ORDER_H

#include <string.h>

#include "core/base.h"

static inline int order_u32(uint32_t a, uint32_t b)
{
    return (a > b) - (a < b);
}

static inline int order_u64(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

/* NaN is equal to everything: there must be none in what is sorted. */
static inline int order_double(double a, double b)
{
    return (a > b) - (a < b);
}

static inline int compare_u32(const void *a, const void *b)
{
    return order_u32(*(const uint32_t *)a, *(const uint32_t *)b);
}

static inline int compare_u64(const void *a, const void *b)
{
    return order_u64(*(const uint64_t *)a, *(const uint64_t *)b);
}

static inline int compare_i64(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static inline int compare_double(const void *a, const void *b)
{
    return order_double(*(const double *)a, *(const double *)b);
}

/* Of an array of texts. */
static inline int compare_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

#endif

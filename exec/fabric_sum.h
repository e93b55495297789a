/*
 * fabric_sum.h - sums and maxima of several vectors, in their given order.
 *
 * Element e of the result is ((v0[e] + v1[e]) + v2[e]) + ...: in f32 for the
 * floating formats, rounded once at the end to nearest even; exact for integers
 * (wrapping).  Work goes in blocks that stay in the L1 cache, so each vector is
 * read once and each result written once.
 */
#ifndef LOCKSTEP_EXEC_FABRIC_SUM_H
#define LOCKSTEP_EXEC_FABRIC_SUM_H

#include "core/dtype.h"

/*
 * Writes the sum (or the maximum) of from[0 .. n-1] to each of to[0 .. to_n-1]; elements
 * each.  A `to` may be one of the `from`, but not overlap one otherwise.
 */
void sum_vectors(uint8_t *const *to, uint32_t to_n, const uint8_t *const *from, uint32_t n,
                 uint64_t elements, DType t, bool maximum);

#endif

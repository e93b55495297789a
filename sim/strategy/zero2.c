/*
 * zero2.c - as zero1, and gradients do not stay: DeepSpeed's stage 2.
 *
 *     compute   [F][B 2][B 1][+2][B 0][+1]..[+0] [F][B 2] ...     |optimizer / n|
 *     reduce            [RS 2]   [RS 1]  [RS 0]                                 |
 *     gather                                                                    [AG]
 *
 * In every micro-batch a gradient is copied into its bucket when the bucket is
 * full, and is gone; the bucket is reduce-scattered, and this rank's part is added
 * to its shard (+) when the next bucket leaves (contiguous_gradients, overlap_comm).
 * So gradients cost one n-th of their bytes and two buckets, and a step of m
 * micro-batches moves m Psi for them instead of Psi.
 *
 * DeepSpeed refuses stage 2 with pipelines, where backwards of many micro-batches
 * take turns with forwards: nothing would be saved.  So does build.c.
 *
 * Per parameter, in mixed precision with Adam, 2 + (2 + 12) / n bytes.
 */
#include "sim/strategy/zero_parts.h"

bool pass_zero2(Build *b, Err *err)
{
    return zero_pass(b, SHARE_GRADS, err);
}

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
 * EXPERTS that ep shares out are scattered and gathered over the ranks that hold the same ones, as
 * DeepSpeed has them (stage_1_and_2.py: _configure_moe_settings takes expert_dp_process_group for
 * partitions, average_tensor sums a bucket's slices group by group).  Here they have buckets of
 * their own, there one holds both kinds.  What no other rank holds goes by way of a bucket too, and
 * nothing is sent.
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

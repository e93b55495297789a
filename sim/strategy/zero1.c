/*
 * zero1.c - ddp with the optimizer shared out over dp x cp.
 *
 * Megatron's distributed optimizer, DeepSpeed's stage 1: whole parameters, whole
 * gradients, one n-th of the optimizer's state per rank.
 *
 *     compute   [F][B] [F][B] [F][B head][B 1][B 0]......|optimizer / n|
 *     reduce                        [RS 0 ][RS 1 ]                     |
 *     gather                                                           [AG 1][AG 0]
 *
 * Gradients are summed up over the micro-batches and reduce-scattered bucket by
 * bucket while the last of them still runs backward.  Buckets are those of
 * zero_parts.h, all of one size (buckets.h); there, too, stands when parameters
 * are gathered.  Per parameter, in mixed precision with Adam, 2 + 2 + 12 / n bytes.
 *
 * With pipelines all of this happens per stage, over the stage's own blocks.
 */
#include "sim/strategy/zero_parts.h"

bool pass_zero1(Build *b, Err *err)
{
    return zero_pass(b, SHARE_UPDATE, err);
}

/*
 * hsdp.c - fsdp inside groups of shard_size ranks, ddp between the groups.
 *
 * As PyTorch's FSDP2 on a mesh of two dimensions (HYBRID_SHARD).  Neighbours in dp
 * share out the parameters, usually those of a node; the groups are replicas:
 *
 *     dp 6, shard_size 3        replica 0   [0 1 2]      parameters, gradients and state
 *                               replica 1   [3 4 5]      are in thirds; {0,3} {1,4} {2,5}
 *                                                        hold the same third
 *
 * Gathers and reduce-scatters are those of fsdp.c over dp_shard, which cp belongs
 * to as well.  The shard of a gradient is then all-reduced over dp_replicate, on a
 * stream of its own (FSDP2's all_reduce_stream), so that it flies beside the
 * reduce-scatter of the next unit:
 *
 *     compute    [B2] [B1] [B0]
 *     reduce         [RS2][RS1][RS0]
 *     replicate           [AR2..][AR1..][AR0..]|optimizer on shards
 *
 * Every micro-batch does so, as FSDP2 does unless it is told not to
 * (set_requires_all_reduce); with pipelines the last alone, as in fsdp.c.
 * Per step 3 Psi (s - 1)/s inside and 2 Psi/s (r - 1)/r between groups.
 *
 * Shards of one rank are none: that is ddp.
 */
#include "sim/strategy/parts.h"

bool pass_hsdp(Build *b, Err *err)
{
    return shards_params(&b->s->parallel, b->sw) ? pass_fsdp(b, err) : pass_ddp(b, err);
}

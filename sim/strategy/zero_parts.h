/*
 * zero_parts.h - what ZeRO 1 and 2 share: scattered gradients, gathered parameters.
 *
 * Parameters are whole on every rank, of optimizer state each of the n ranks of
 * dp x cp has one n-th (of experts that ep shares out: each of the ranks that hold
 * the same ones).  Gradients leave backward in buckets (buckets.h) and are
 * reduce-scattered: a rank gets the sum of its part, updates its part of the
 * parameters, and an all-gather of the same buckets, the first layers first,
 * brings the others' parts.  Per step Psi parameters are scattered and gathered,
 * 2 Psi (n - 1)/n per rank: as much as ddp's all-reduce.
 *
 *     compute   [F0][F1] ... [B1][B0]..........|optimizer, own parts|
 *     reduce                     [RS 0][RS 1]
 *     gather                                                        [AG 1][AG 0]
 *
 * GATHERS AHEAD.  Megatron's overlap_param_gather leaves the gathers to the next
 * step.  A steady step therefore begins with those of the step before; the gather
 * of the next bucket is launched when the first block of this one is about to
 * run, and waits for the compute before it as every collective of torch does:
 *
 *     gather    [AG 1][AG 0].........
 *     compute         [F0 ..........][F1] ... [B1][B0] ... |optimizer|
 *
 * In a 1F1B pipeline the first forward stands behind the first receive, and so does its gather:
 * the stages gather one after the other.  That is the forward hook of newer Megatron Core
 * (schedules.py calls param_sync_func, which would gather at once, with interleaving only, where
 * all ranks do so at the beginning here too); parallel.overlap.dp false can be faster there.
 * Where zero_grad launched the first gather (gathers_at_start: Megatron Core up to 0.7), all
 * stages begin with it; where nothing waits (gathers_together), with all of theirs that need no
 * buffer.
 *
 * WHOLE SUMS.  Where the stack only shares out the update (zero_all_reduces: nanotron, and
 * PyTorch's ZeroRedundancyOptimizer behind ddp), zero1 all-reduces gradients: 3 Psi (n - 1)/n per
 * rank, in buffers that stay, as ddp's do.  Their norm is every rank's own.
 *
 * COPIES.  Where a stack has a buffer for each bucket (bucket_copies; zero2
 * always), gradients are copied in, reduce-scattered there, and this rank's part
 * is copied out when the next bucket leaves: two buffers live at most, as with
 * DeepSpeed's overlap_comm; of experts, whose gradients it keeps in the same buckets, two more.
 * Where it has not, collectives work in place; so they do on gradients that lie in one buffer
 * (bf16_grads_f32), which is summed a bucket at a time.
 *
 * LISTS (zero_gathers_lists).  nanotron's all_gather_coalesced hands torch's all_gather a list: of
 * every rank's part of all parameters, made of what was there before the update.  torch gathers
 * into one buffer and copies that to the list; each part of each parameter is then copied out of
 * it by a kernel of its own:
 *
 *     compute   |update|[copy all to the list]....[buffer to list][n kernels a parameter]
 *     gather                                  [AG]
 */
#ifndef LOCKSTEP_SIM_STRATEGY_ZERO_PARTS_H
#define LOCKSTEP_SIM_STRATEGY_ZERO_PARTS_H

#include "sim/strategy/buckets.h"

/* A bucket's buffer after its reduce-scatter. */
typedef struct ZeroPart {
    Bundle bundle;
    Point reduced;
    bool adds; /* zero2: not the step's first */
} ZeroPart;

typedef struct Zero {
    Build *b;
    Finish finish;
    bool each;   /* zero2: every micro-batch scatters its gradients, none stay */
    bool copies; /* buckets of gradients have buffers */
    bool drains; /* what is gathered has buffers */
    bool lists;  /* of each rank's parts too (zero_gathers_lists) */
    bool ahead;  /* the gathers stand before the next forward */
    BucketNames scatter_names, gather_names;

    /* One role. */
    Buckets buckets;
    Weave w;
    uint32_t next;  /* bucket to be reduced */
    uint32_t round; /* micro-batches whose gradients were scattered before */
    /* Newest scatters, of one place; their parts are still to be copied out. */
    ZeroPart pending[2];
    uint32_t pending_n;
    Bundle *scatter; /* copies; by bucket, as it was first; name NULL: not yet */
    BundleParts *scatters, *gathers; /* that copy alike */
    uint32_t *grads;      /* zero2, by block: frame of its whole gradients; NONE_U32 */
    uint32_t *grads_left; /* and how many of them are in no bucket yet */
    uint32_t ungathered, undrained; /* buckets below have not been gathered, copied out */
    Bundle *gather;                 /* drains; by bucket */
    Bundle list;                    /* lists: the newest bucket's */
    Point *gathered;                /* by bucket */
    bool *has_run;                  /* by block: a forward of it stands already */
    uint32_t unrun_n;               /* blocks of the role of which none does */
} Zero;

/* share: SHARE_UPDATE or SHARE_GRADS. */
bool zero_pass(Build *b, Share share, Err *err);

#endif

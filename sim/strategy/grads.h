/*
 * grads.h - what happens to gradients once backward is done, in every strategy.
 *
 *     backward ... | gradients split over tp | tied embedding | norm, clip | optimizer
 *     compute       [fill]           [drain]                  [norm][scale] [block 0][block 1]
 *     reduce              [all-reduce]        [all-reduce]     [all-reduce]
 *
 * - Norm gains under sequence parallelism: every tp rank has part of their
 *   gradient (Param.tp_partial).  All of a stage go through one buffer, as
 *   Megatron's finalize_model_grads does it.
 * - A tied embedding has a copy at both ends of a pipeline: their gradients are
 *   summed over {first, last stage}.
 * - Clipping: sum of squares per block, one number all-reduced over every group
 *   that shares out parameters, then every gradient is multiplied.
 * - The optimizer is one logical op per block, as an op knows one frame per slot;
 *   a stack that fuses it spreads a handful of launches over the blocks.
 *
 * What the optimizer owns is the parameters themselves, or under fsdp this rank's
 * shards of them (Owned).  Home.param, .grad and .state hold frames of it.
 *
 * BUNDLES.  Gradients of several blocks meet in one collective by way of a
 * buffer whose tensors are those gradients one after another: copied in block
 * by block (fill), reduced, copied back (drain).  The buffer is SLOT_DATA of all
 * of these segments; it is also what DDP calls a bucket.
 */
#ifndef LOCKSTEP_SIM_STRATEGY_GRADS_H
#define LOCKSTEP_SIM_STRATEGY_GRADS_H

#include "sim/strategy/parts.h"

/* What one rank updates of the blocks of one type. */
typedef struct Owned {
    uint32_t param_layout, grad_layout, state_layout;
    uint64_t *elements; /* by param */
    uint64_t total;
} Owned;

/* One for the whole Build: segments are shared by all blocks of a type. */
typedef struct Finish {
    Build *b;
    bool sharded;     /* slots are SHARD and GRAD_SHARD, the norm is summed over dp as well */
    bool frees_grads; /* the optimizer is the last to need them */
    Owned *owned;     /* by type */
    uint32_t *squares, *scale, *update; /* segments by type, NONE_U32 until first used */
    uint32_t norm_layout, norm_clear, norm_reduce;
} Finish;

Owned *owned_whole(Build *b); /* every parameter; in b->arena */

void finish_begin(Finish *f, Build *b, Owned *owned, bool sharded);
/* Appends to the role; the first to read a gradient waits for `reduced` (and all before it on
 * its lane). */
void finish_role(Finish *f, uint32_t role, Point reduced);

/* ---- bundles ---- */

typedef struct Piece {
    uint32_t block, param;
} Piece;

typedef struct Bundle {
    Build *b;
    Role *role;
    const char *name;
    const Piece *pieces; /* those of a block stand together */
    uint32_t pieces_n;
    const Owned *owned; /* by type */
    Slot grad_slot;
    DType dtype; /* of the buffer */
    bool stays;  /* the buffer lives through the whole step */
    uint32_t layout, frame, group;
    uint64_t bytes;
} Bundle;

void bundle_open(Bundle *u);                       /* makes layout and frame from the above */
void bundle_fill(const Bundle *u, Point ready);    /* appends copies into the buffer */
Point bundle_reduce(const Bundle *u, Point ready); /* appends the all-reduce, after `ready` */
void bundle_drain(const Bundle *u, Point reduced); /* appends copies back */

#endif

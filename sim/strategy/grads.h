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
 *   that shares out parameters, then every gradient is multiplied.  A stack that has passes for
 *   it (Software.norms_grads) reads and multiplies in them, beside the update.
 * - The optimizer is one logical op per block, as an op knows one frame per slot;
 *   a stack that fuses it spreads a handful of launches over the blocks.
 *
 * What the optimizer owns is the parameters themselves, or this rank's part of
 * them (Owned, Share).  Home.param, .grad and .state hold frames of it.  Where
 * whole tensors are kept of which a rank owns one n-th (ZeRO), its part is
 * elements [i, i + 1) x ceil(elements / n) of each, i its index in the group.
 *
 * BUNDLES.  Gradients of several blocks meet in one collective by way of a
 * buffer whose tensors are those gradients one after another: copied in block
 * by block (fill), reduced, copied back (drain).  The buffer is SLOT_DATA of all
 * of these segments; it is also what DDP calls a bucket.
 */
#ifndef LOCKSTEP_SIM_STRATEGY_GRADS_H
#define LOCKSTEP_SIM_STRATEGY_GRADS_H

#include "sim/strategy/parts.h"

/* How the ranks that hold like parameters share out the update. */
typedef enum Share {
    SHARE_NOTHING, /* each updates everything */
    SHARE_UPDATE,  /* zero1: tensors are whole, each updates its part; state is sharded */
    SHARE_GRADS,   /* zero2: so are gradients (SLOT_GRAD_SHARD) */
    SHARE_ALL      /* fsdp: and parameters (SLOT_SHARD) */
} Share;

/* What one rank updates of the blocks of one type. */
typedef struct Owned {
    uint32_t param_layout, grad_layout, state_layout;
    uint64_t *elements; /* by param; the layouts may hold whole tensors, see Share */
    uint64_t total;
} Owned;

/* One for the whole Build: segments are shared by all blocks of a type. */
typedef struct Finish {
    Build *b;
    Share share;
    uint32_t ranks_n;                   /* that share, but experts; 1: nobody else */
    bool frees_grads;                   /* the optimizer is the last to need them */
    Owned *owned;                       /* by type */
    uint32_t *squares, *scale, *update; /* segments by type, NONE_U32 until first used */
    uint32_t norm_layout, norm_clear, norm_reduce;
} Finish;

/* In b->arena, by type. */
Owned *owned_by_share(Build *b, Share share);
/* Gives the frames in Home the layouts of what is owned. */
void share_homes(Build *b, const Owned *owned, Share share);

/* Makes room in the graph, also for buckets: of each parameter at most so many collectives. */
void finish_begin(Finish *f, Build *b, Owned *owned, Share share, uint32_t collectives_n);
/* Appends to the role; the first to read a gradient waits for `reduced` (and all before it on
 * its lane). */
void finish_role(Finish *f, uint32_t role, Point reduced);

/* ---- bundles ---- */

typedef struct Piece {
    uint32_t block, param;
} Piece;

/* What was written for one bundle serves those after it whose pieces are of the same types. */
typedef struct BundleParts {
    const Piece *pieces;
    uint32_t pieces_n;
    DType dtype;
    bool opened;
    uint32_t layout;
    uint64_t bytes;
    uint32_t *copies; /* [pieces_n * how it is copied + piece], segment + 1 */
    struct BundleParts *before;
} BundleParts;

enum { BUNDLE_COPIES = 5 }; /* in, out, out and added, all in, out by several kernels */

typedef struct Bundle {
    Build *b;
    Role *role;
    const char *name;
    const Piece *pieces; /* those of a block stand together */
    uint32_t pieces_n;
    const Owned *owned; /* by type */
    uint32_t parts;     /* a piece is this many times what is owned of it (0 as 1) */
    Slot grad_slot;
    DType dtype;          /* of the buffer */
    bool stays;           /* the buffer lives through the whole step */
    uint32_t micro_batch; /* NONE_U32: of all */
    uint32_t layout, frame, group;
    uint64_t bytes;
    BundleParts *shared; /* with bundles that copy alike; NULL: with none */
    uint32_t *comm;      /* its collective, segment + 1; NULL: it has only one */
} Bundle;

/* Shares with those in *all that are alike, which it joins. */
void bundle_share(Bundle *u, BundleParts **all, Arena *arena);

void bundle_open(Bundle *u);                       /* makes layout and frame from the above */
void bundle_fill(const Bundle *u, Point ready);    /* appends copies into the buffer */
Point bundle_reduce(const Bundle *u, Point ready); /* appends the all-reduce, after `ready` */
void bundle_drain(const Bundle *u, Point reduced); /* appends copies back */

/* The same with more to say: fill and drain copy whole tensors of grad_slot in Home. */
typedef struct BundleCopy {
    bool in;
    Slot slot;
    bool part;             /* only what this rank owns of each tensor */
    bool add;              /* out: added to what is there */
    bool born, dies;       /* the tensors of the slot: born by a copy out, dead after one in */
    uint32_t kernels;      /* out: so many for each tensor (0 as 1) */
    const uint32_t *frame; /* by block; NULL: those in Home */
} BundleCopy;
void bundle_copy(const Bundle *u, const BundleCopy *copy, Point after);
/* In place in the buffer: of a reduce-scatter this rank's part of each tensor is the result. */
Point bundle_comm(const Bundle *u, OpKind kind, Lane lane, Point ready);

#endif

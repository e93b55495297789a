/*
 * buckets.h - gradients cut into buckets, for the passes that reduce them whole.
 *
 * PyTorch's reducer and Megatron's ParamAndGradBuffer alike: parameters in
 * definition order, reversed, are cut into buckets; a bucket closes when its size
 * reaches the limit after a tensor was added, so it overshoots by up to one tensor.
 *
 * The limit is parallel.bucket_bytes where the scenario gives it, else the stack's
 * (Software.bucket_parameters: Megatron's grows with the ranks, DeepSpeed's is 5e8),
 * else PyTorch's 25 MiB.
 *
 *     params      E | block 0      | block 1       | head
 *     buckets    [     3     ][    2    ][   1    ][0]        first limit, then the limit
 *
 * Buckets start strictly in order, each after its last gradient is final (the
 * very op: ready_ops), in the last micro-batch.  Without overlap all of them
 * start after the whole backward pass.
 *
 * EXPERTS that ep shares out have buckets of their own, as Megatron's expert_parallel_buffers:
 * cut alike from a list of their own, each kind in order, and reduced over GROUP_EDP.  Where no
 * other rank holds the same experts there are none; where ranks of tp alone do (whole experts, dp x
 * cp of 1), there are no others.  zero2 has buckets of all gradients, as none stay.
 *
 * IN PLACE.  Where the stack keeps gradients (or parameters) in its buckets, a
 * collective works on them where they lie.  It then has no arguments but in a
 * bucket within one block, as an op knows one frame per slot.
 */
#ifndef LOCKSTEP_SIM_STRATEGY_BUCKETS_H
#define LOCKSTEP_SIM_STRATEGY_BUCKETS_H

#include "sim/strategy/grads.h"

typedef struct Bucket {
    uint32_t first, n; /* pieces */
    bool experts;
    /* Old instance after which it may start, never before the bucket before. */
    uint32_t ready_at;
    Bundle bundle;
    Point reduced;
} Bucket;

/* Those of one role. */
typedef struct Buckets {
    Build *b;
    Role *role;
    uint32_t role_index;
    const Owned *owned; /* by type */
    bool shared;        /* of every tensor Owned.elements are one rank's part, else all of it */
    uint32_t pieces_n, list_n, list_cap;
    Piece *pieces; /* gradient-ready order */
    Bucket *list;
    uint32_t *last; /* by block: its last backward instance; NONE_U32 elsewhere */
    Arena scratch;
} Buckets;

/* small_first: PyTorch's, the first bucket ends at first_bucket_bytes. */
void buckets_open(Buckets *d, Build *b, uint32_t role, const Owned *owned, bool shared,
                  bool small_first);
void buckets_close(Buckets *d);

/* Gradients are copied into a buffer that stays allocated and summed there, as by PyTorch's reducer
 * (gradient_as_bucket_view=False); then the sums of all are copied out.  Without overlap no copy
 * runs beside a collective. */
void bucket_copied(Buckets *d, Bucket *u, const char *name);
void buckets_drain(Buckets *d);

/* A bundle with the bucket's pieces, not opened yet. */
Bundle bucket_bundle(Buckets *d, const Bucket *u, const char *name, DType dtype, bool stays);

/* "NAME bucket K" in Graph.names, for all roles: each has a bucket K. */
typedef struct BucketNames {
    const char *name;
    uint32_t *bucket; /* name + 1, by K; 0: not used yet */
} BucketNames;
BucketNames bucket_names(Build *b, const char *name); /* in b->arena */

/* Appends a collective over the bucket's group on its tensors in SLOT_GRAD or SLOT_PARAM. */
typedef struct InPlace {
    OpKind kind;
    Lane lane;
    Slot slot;
    DType dtype; /* counts the bytes */
    const BucketNames *names;
} InPlace;
Point bucket_in_place(Buckets *d, const Bucket *u, InPlace how);

/* The newest instance waits for the ops that finish the bucket's gradients. */
void bucket_wait(const Buckets *d, const Weave *w, const Bucket *u);

/* The bytes at which a bucket is full, and the first one: as the scenario says, else the stack, of
 * whose buckets the first is as all are.  Of b only scenario and software are looked at. */
uint64_t bucket_limit_bytes(const Build *b, bool first);
bool buckets_are_stacks(const Build *b); /* the stack says it */

#endif

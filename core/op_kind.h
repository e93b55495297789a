/*
 * op_kind.h - what kinds of operations there are, kernels and the transfers between ranks; and
 * what of a matmul its time depends on.
 *
 * A graph is made of them (core/graph.h), and a machine may have measured what some of them
 * take (core/machine.h).
 */
#ifndef LOCKSTEP_CORE_OP_KIND_H
#define LOCKSTEP_CORE_OP_KIND_H

#include "core/base.h"

typedef enum OpKind {
    /* Compute.  Arguments: inputs first, then outputs. */
    OP_MATMUL,    /* C[m,n] (+)= A[m,k] B[k,n], batch times; epilogue in fn */
    OP_ATTENTION, /* fused: q k v -> out; backward: also recomputes the scores */
    OP_SOFTMAX,   /* attention "math": scores -> weights, with mask and scale */
    OP_NORM,
    OP_ACTIVATION, /* fn; gated: two inputs */
    OP_ADD,        /* residual, gradient sums */
    OP_BIAS,       /* add a row; backward: sum over rows */
    OP_ROPE,
    OP_EMBEDDING,     /* gather rows; backward: scatter-add */
    OP_CROSS_ENTROPY, /* logits, targets -> loss; backward: logits -> dlogits */
    OP_MSE,
    OP_CONV, /* as implicit matmul m,n,k */
    OP_BATCHNORM,
    OP_POOL,
    OP_OPTIMIZER, /* update of `elements` parameters */
    OP_GRAD_NORM, /* sum of squares of `elements` */
    OP_SCALE,     /* multiply: gradient averaging, clipping */
    OP_CAST,
    OP_COPY, /* device to device, concatenate, split */
    OP_FILL,
    OP_H2D, /* host to device, on LANE_COPY */
    /* Communication. */
    OP_ALL_REDUCE,
    OP_ALL_GATHER,
    OP_REDUCE_SCATTER,
    OP_BROADCAST, /* from member `peer` of the group */
    OP_REDUCE,    /* to member `peer` */
    OP_ALL_TO_ALL,
    OP_SEND, /* to member `peer` of the group; matches the peer's receives in order, per tag */
    OP_RECV,
    /* Neither. */
    /* LANE_HOST, first in its segment: the host launches nothing more until its deps are done */
    OP_HOST_WAIT,
    OP_RELEASE, /* no work: frees its DIES arguments */
    OP_KIND_N
} OpKind;

extern const char *const op_kind_names[OP_KIND_N];

static inline bool op_is_collective(OpKind k)
{
    return k >= OP_ALL_REDUCE && k <= OP_ALL_TO_ALL;
}

static inline bool op_is_p2p(OpKind k)
{
    return k == OP_SEND || k == OP_RECV;
}

static inline bool op_is_comm(OpKind k)
{
    return k >= OP_ALL_REDUCE && k <= OP_RECV;
}

typedef struct MatmulShape {
    uint64_t m, n, k, batch;
    bool transpose_a, transpose_b; /* as stored, row-major */
    bool accumulate;               /* adds to C (gradients of later micro-batches) */
    /* One of so many that fill the GPU together, and takes that part of what m * of rows take; 0:
     * alone. */
    uint32_t of;
} MatmulShape;

#endif

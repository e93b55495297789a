/*
 * draft.h - the ops of one segment before they have places in memory.
 *
 * draft_forward plays a tape from front to back, draft_backward from back to
 * front, each op by its own rule (the table in draft_back.c):
 *
 *     forward      y = x w^T                   reads x, w       writes y
 *     backward    dx = dy w   (PHASE_DGRAD)    reads dy, w      writes dx
 *                 dw = dy^T x (PHASE_WGRAD)    reads dy, x      writes or adds to dw
 *
 * What backward reads of the forward pass must be saved, unless the op that made
 * it is to be done again (`redo`): then it is played once more, with all that it
 * needs, as PHASE_RECOMPUTE, just before the first op that reads it.
 *
 * LOGICAL IDS.  With T ops on the tape: op i of the tape is logical op i of the
 * forward segment, and of the backward segment where it is done again; its
 * gradients are T + 4 i + {0 input, 1 parameters, 2 sum with an earlier gradient, 3 cast}.  The
 * cast of its weight (TapeOp.cast) is T + i, in backward 5 T + i; behind all are 6 T, a copy of
 * what backward begins with, and its release.
 *
 * ORDER OF ARGS: as the table in sim/lower.h lists them.  What is
 * overwritten in place comes where the input would stand, and is ARG_UPDATE.
 */
#ifndef LOCKSTEP_SIM_DRAFT_H
#define LOCKSTEP_SIM_DRAFT_H

#include "sim/tape.h"

/* Memory of a segment: values of the tape first (by their `memory`), then what is made again of
 * them (RedoPart), then gradients. */
typedef struct DraftMemory {
    const char *name;
    DType dtype;
    uint64_t rows, columns;
    Slot slot;       /* SLOT_LOCAL until sim/segments.c knows better */
    uint32_t tensor; /* in the slot's layout */
    bool adds;       /* SLOT_GRAD: written before, whatever the GradMode */
    /* Memory of its columns that are made again, which as an argument follows this one, of the
     * others; 0: none. */
    uint32_t rest;
} DraftMemory;

typedef struct DraftArg {
    uint32_t memory;
    ArgMode mode;
    uint64_t bytes; /* of it, that are touched */
} DraftArg;

typedef struct DraftOp {
    Op op; /* name, args, deps and traffic still empty */
    const char *name;
    uint32_t arg_first, arg_n;
} DraftOp;

typedef struct Draft {
    uint32_t memories_n, memories_cap, ops_n, ops_cap, args_n, args_cap;
    DraftMemory *memories;
    DraftOp *ops;
    DraftArg *args;
    uint32_t logical_n;
    uint64_t numbering; /* Segment.numbering, of the tape */
    bool *saved; /* backward, by value: made in forward, and read here or kept till here */
} Draft;

typedef struct DraftPlan {
    const Redo *redo;                  /* by op of the tape; NULL: nothing is done again */
    const RedoPart *parts;             /* by value of the tape, beside redo */
    bool redo_all;                     /* at once, from front to back, before backward begins */
    bool async_tp, async_cp, async_ep; /* collectives run beside the compute lane */
    bool ring_tp;                      /* ... of tp beside its matmuls (sim/lower_ring.c) */
    bool casts;       /* TapeOp.cast may be there; a gradient has the format of its value */
    bool recasts;     /* weights are cast again in backward, not kept in every stash */
    bool fuses_casts; /* who reads an f32 gradient reads a 16-bit one as well */
    bool wgrad_last;  /* weight gradients after the collective of the input's gradient */
    uint32_t tp_group, cp_group, kv_group, ep_group; /* Graph.groups */
    /* Of parameter gradients: as they are left, and as matmuls make them. */
    DType grad_dtype, made_dtype;
} DraftPlan;

void draft_forward(Draft *d, const Tape *t, const DraftPlan *plan);
void draft_backward(Draft *d, const Tape *t, const DraftPlan *plan);
void draft_free(Draft *d);

/*
 * Puts the ops of a backward draft that only make weight gradients behind the others, for
 * schedules that do them later; or those alone that put what was made in 16 bits where gradients
 * are kept.  Returns how many stay in front (draft_split.c).
 */
typedef enum DraftSplit { SPLIT_WEIGHTS, SPLIT_SUMS } DraftSplit;
uint32_t draft_split(Draft *d, DraftSplit what);

/* ---- for the rules (draft.c, draft_back.c) ---- */

uint32_t draft_memory(Draft *d, DraftMemory memory);
/* Appends an op; draft_arg then appends to it. */
void draft_op(Draft *d, const char *name, Op op);
void draft_arg(Draft *d, uint32_t memory, ArgMode mode);
uint64_t draft_bytes(const Draft *d, uint32_t memory); /* with what is made again of it */
void draft_arg_part(Draft *d, uint32_t memory, ArgMode mode, uint64_t bytes);
/* One memory per value of the tape; behind them, of the columns that are made again. */
void draft_start(Draft *d, const Tape *t, const DraftPlan *plan);
/* Op i of the tape as forward does it. */
void draft_play(Draft *d, const Tape *t, uint32_t i, OpPhase phase, const DraftPlan *plan);
/* The cast of op i's weight, where it has one; in backward apart from the op. */
void draft_cast(Draft *d, const Tape *t, uint32_t i, OpPhase phase, uint32_t logical);
/* The matmul reads that part of it; fp8 ones read a copy of a byte each. */
void draft_read_weight(Draft *d, const Tape *t, const TapeOp *op, double share);
/* Op of a tape without its shape. */
Op draft_kernel(const TapeOp *from, OpPhase phase, uint32_t logical);
/* Shape and flops of a matmul or convolution, in its three phases. */
void draft_matmul_shape(Op *op, const Tape *t, const TapeOp *from, OpPhase phase);
Op draft_comm(const TapeOp *from, OpKind kind, OpPhase phase, uint32_t logical, uint64_t bytes,
              const DraftPlan *plan);
const char *draft_comm_name(const TapeOp *from, OpKind kind);
/* Bytes of input j that an op of the tape touches. */
uint64_t draft_touched(const Tape *t, const TapeOp *op, uint32_t j);
/* Elements of the keys and values that op, which repeats them, makes. */
uint64_t draft_repeated(const Tape *t, const TapeOp *op);

#endif

/*
 * fsdp_units.h - what fsdp gathers and reduces at once: its tensors, and the segments that do it.
 *
 *     gather     [cast] all-gather        shards -> buffer, or parameters
 *     copy_out   copy                     buffer -> parameters
 *     copy_in    copy or cast             gradients -> input
 *     reduce     [divide] reduce-scatter [all-reduce] [cast] [add]      input -> gradient shards
 *     release    frees parameters;  retire: frees the input
 *
 * Which of them there are the software's file says (fsdp.c: COPIES).  All units of one type share
 * segments, which are made when they are first asked for.  A block of which experts are shared out
 * is two units (fsdp.c: EXPERTS), on one frame of parameters and one of gradients.
 */
#ifndef LOCKSTEP_SIM_STRATEGY_FSDP_UNITS_H
#define LOCKSTEP_SIM_STRATEGY_FSDP_UNITS_H

#include "sim/strategy/grads.h"

/* Parameters of a block that are gathered by one collective. */
typedef enum Part { PART_DENSE, PART_EXPERTS, PART_N } Part;

/* One part of the units of one type.  Layouts have all tensors of the block, of which this part's
 * are used.  Segments are NONE_U32 until first used. */
typedef struct UnitType {
    const BlockType *of;
    Part part;
    uint64_t elements;       /* of all tensors; 0: there is no such part */
    uint64_t owned;          /* of this rank's shards */
    uint32_t group, ranks_n; /* that share them out; NONE_U32, 1: this rank has all */
    uint32_t gather, copy_out, copy_in, reduce, reduce_more, retire;
    uint32_t release;      /* PART_DENSE: of the whole block */
    uint32_t cast_layout;  /* shards as they are gathered; NONE_U32: as they are kept */
    uint32_t flat_layout;  /* what is gathered; NONE_U32: the parameters themselves */
    uint32_t input_layout; /* what is reduce-scattered: gradients, or a copy in reduce_dtype */
    bool copies;
} UnitType;

typedef UnitType UnitParts[PART_N];

/* In b->arena, by type. */
UnitParts *unit_types(Build *b, const Owned *owned);

static inline bool unit_is_alone(const UnitType *u)
{
    return u->ranks_n == 1;
}

/* Where gathered parameters lie first; what is reduce-scattered. */
static inline Slot unit_gathered_slot(const UnitType *u)
{
    return u->flat_layout != NONE_U32 ? SLOT_DATA : SLOT_PARAM;
}

static inline Slot unit_input_slot(const UnitType *u)
{
    return u->copies ? SLOT_DATA : SLOT_GRAD;
}

/* Segments.  o: what is owned of the type. */
uint32_t unit_gather(Build *b, UnitType *u, const Owned *o);
/* Out of the buffer, which dies; or out of shards that are whole. */
uint32_t unit_copy_out(Build *b, UnitType *u, const Owned *o);
uint32_t unit_release(Build *b, UnitType *u); /* PART_DENSE: all parameters of the block */
uint32_t unit_copy_in(Build *b, UnitType *u);
/* The first of a step writes the gradient's shard; later ones (more) add to it. */
uint32_t unit_reduce(Build *b, UnitType *u, const Owned *o, bool more);
uint32_t unit_retire(Build *b, UnitType *u);

/* The reduce-scatter in its segment; where a gradient's shard gets its last touch. */
uint32_t unit_scatter_op(const Build *b);
Lane unit_sum_lane(const Build *b);

#endif

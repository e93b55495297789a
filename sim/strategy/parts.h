/*
 * parts.h - small things that several passes do.
 *
 * POINTS.  A point is one op of one instance of a role; passes pass them on as
 * "whoever needs this waits for that".  NOWHERE needs no waiting.
 *
 * WEAVING.  Passes after pipeline put instances between those already there:
 *
 *     for (weave_begin(&w, role, n); weave_left(&w); ) {
 *         ... role_instance(role, ...)           stands before the next old one
 *         uint32_t i = weave_keep(&w);           copies it, edges and all
 *         wait_at(role, 0, gathered);            more edges for it
 *         ... role_instance(role, ...)           stands after it
 *     }
 *     weave_end(&w);
 *
 * Instances move, so points taken before a weave are void after it.
 */
#ifndef LOCKSTEP_SIM_STRATEGY_PARTS_H
#define LOCKSTEP_SIM_STRATEGY_PARTS_H

#include "sim/build.h"

typedef struct Point {
    uint32_t instance, op;
} Point;

#define NOWHERE ((Point){ NONE_U32, NONE_U32 })

static inline bool point_is(Point p)
{
    return p.instance != NONE_U32;
}

/* The last op of an instance on a lane; NOWHERE when it has none there. */
Point last_op(const Graph *g, const Role *role, uint32_t instance, Lane lane);
Point newest_compute(const Graph *g, const Role *role); /* over all instances so far */
/* Ops of a segment: the last on a lane, NONE_U32 when it has none there; the last that writes a
 * slot, without one the last on compute. */
uint32_t segment_last_op(const Graph *g, const Segment *s, Lane lane);
uint32_t segment_last_writer(const Graph *g, const Segment *s, Slot slot);

/* The newest instance's op dst_op waits for src. */
void wait_at(Role *role, uint32_t dst_op, Point src);
/* The ops of a segment before which there is none in it: at most one a lane. */
typedef struct Starts {
    uint32_t n, op[LANE_N];
} Starts;
Starts segment_starts(const Graph *g, const Segment *s);
Starts *all_starts(Build *b); /* by segment, in b->arena */
/* Nothing of the newest instance starts before src; `starts`: those of its segment. */
static inline void wait_starts(Role *role, const Starts *starts, Point src)
{
    for (uint32_t i = 0; point_is(src) && i < starts->n; i++)
        wait_at(role, starts->op[i], src);
}
void wait_at_start(const Graph *g, Role *role, Point src);

/* share_group of one parameter: experts_apart have ranks of their own (GROUP_EDP). */
uint32_t param_group(const Build *b, const Param *p);
uint32_t group_ranks(const Build *b, uint32_t group); /* 1 for NONE_U32 */
/* Do other ranks hold parameters of this one: all (dp x cp), or whole experts alone (of tp)? */
bool has_replicas(const Build *b);
bool shards_grads(const Build *b); /* whole gradients do not stay (fsdp, hsdp, zero2) */

uint64_t layout_bytes(const Graph *g, uint32_t layout); /* 0 for NONE_U32 */
const Tensor *layout_tensor(const Graph *g, uint32_t layout, uint32_t tensor);

const BlockType *block_type(const Build *b, uint32_t block);
/* The block of a forward, backward or weight instance; NONE_U32 for any other instance. */
uint32_t block_of(const Build *b, const Instance *i);
/* By param of the block: the op of this segment, the last that writes gradients of the block,
 * after which its gradient is final. */
const uint32_t *ready_ops(const Build *b, uint32_t block, uint32_t segment);

/* A segment with one op, without work: its arguments, which the caller adds, begin or end. */
uint32_t idle_segment(Graph *g, const char *name, OpPhase phase, Slot slot, uint32_t layout);

/* The newest op touches every tensor of the layout. */
void arg_each(Graph *g, Slot slot, uint32_t layout, ArgMode mode, bool born, bool dies);

typedef struct Weave {
    Role *role;
    Role old;
    uint32_t next; /* instance of old */
    uint32_t *now; /* by old instance: where it stands now */
} Weave;

/* more: about so many instances, and edges, will be woven in or added later. */
void weave_begin(Weave *w, Role *role, uint32_t more);
bool weave_left(const Weave *w);
const Instance *weave_next(const Weave *w);
uint32_t weave_keep(Weave *w);
/* Keeps all old instances before `end`, if there are any left: nothing is woven in. */
void weave_keep_to(Weave *w, uint32_t end);
void weave_end(Weave *w);

#endif

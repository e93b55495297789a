/*
 * caching_replay.h - what the caching allocator holds while a rank runs its program.
 */
#ifndef LOCKSTEP_SIM_CACHING_REPLAY_H
#define LOCKSTEP_SIM_CACHING_REPLAY_H

#include "sim/memory.h"

/* What is done for a role. */
typedef struct CachingRun {
    uint64_t capacity_bytes; /* UINT64_MAX: as much as it wants */
    bool expandable;
} CachingRun;

/*
 * What the allocator holds at most while a rank runs role step after step, until a step needs no
 * more than the one before; above the capacity where it does not get by with that (then: what it
 * would hold with more).  m: of the role.  g is sealed.
 *
 * Parameters, master weights and lasting gradients are there first.  Moments are made by the first
 * update, in the holes that the first step's activations leave, so that the second step's no longer
 * fit there.  Tensors of gathers and reductions lie in blocks of their streams, all others in those
 * of the main one.
 *
 * A long role is cut short: of its micro-batches the first are run, as many as it has under way at
 * a time and more, and the last; what the others allocate more at a time leaves as much unused.
 */
uint64_t caching_of_role(const Graph *g, const Role *role, const RoleMemory *m, CachingRun run);

#endif

/*
 * graph_spans.h - how the ops of a graph stand in a timeline.
 *
 * A simulated step and an executed one are compared op by op, so whoever writes
 * either writes tracks, classes and communication the same way: this one.
 */
#ifndef LOCKSTEP_CORE_GRAPH_SPANS_H
#define LOCKSTEP_CORE_GRAPH_SPANS_H

#include "core/graph.h"
#include "core/timeline.h"

/* A track for the host and for every lane that the role has ops on; NONE_U32 for the others.
 * ranks_n: how many ranks this one stands for. */
void role_tracks(Timeline *t, const Graph *g, const Role *role, uint32_t rank, uint32_t ranks_n,
                 uint32_t track[LANE_N]);

SpanClass op_span_class(const Op *o);

/*
 * The number of each op of a role, by op id, for op_comm: a collective is the n-th of its group,
 * on all lanes together, and so on all members, whatever else their roles have them do; a send
 * or receive the n-th of its lane, where those of one batch are one.  out: role->ops_n places.
 */
void op_comm_numbers(uint32_t *out, const Graph *g, const Role *role);

/* One end of a communication op; algorithm, protocol and wait unknown.  Then timeline_comm, and
 * timeline_set_ring with o->u.comm.of. */
Comm op_comm(Timeline *t, const Graph *g, const Op *o, uint32_t rank, uint32_t seq);

/*
 * Fills keys, one for each instance of the role: LogicalOps.instance, 0 where nobody knows what
 * its numbers mean.  Equal for instances of two graphs whose segments have one kind, name and
 * numbering, and which are of one micro-batch, layer and chunk; of several such in a role the
 * n-th is the n-th of another's.
 */
void role_logical_keys(uint64_t *keys, const Graph *g, const Role *role);
/* What o does, which is of the instance with that key. */
LogicalOps op_logical(const Graph *g, const Op *o, uint64_t key);

#endif

/*
 * rank_group.h - ranks of a machine that only communicate: what nccl-tests measures.
 *
 *     nodes 2, ranks 8          GPUs 0-3 of node 0 and of node 1; the others are idle
 *
 * A graph of one group without a single op, folded into classes like any other (sim/classes.h),
 * so that a collective costs here what it costs alone in a simulated step, of a stack without
 * comm_scale and ring_nics (sim/software.h).
 */
#ifndef LOCKSTEP_SIM_RANK_GROUP_H
#define LOCKSTEP_SIM_RANK_GROUP_H

#include "sim/network.h"

typedef struct RankGroup {
    const Machine *m;
    Graph graph;
    Classes classes;
    uint32_t ranks_n, nodes_n;
} RankGroup;

/* The first ranks_n / nodes_n GPUs of each of the first nodes_n nodes; all, where nodes are not
 * alike.  m outlives the group.  On failure the group is empty. */
bool rank_group_open(RankGroup *g, const Machine *m, uint32_t nodes_n, uint32_t ranks_n,
                     Err *err);
void rank_group_close(RankGroup *g);

/* The i-th member, a rank of the machine. */
uint32_t rank_group_member(const RankGroup *g, uint32_t i);

/* After so many members, which divide ranks_n, neighbours are as far apart again as those before:
 * a node's; a leaf's; all, where leaves are not full, nodes not alike, or some link is slow. */
uint32_t rank_group_period(const RankGroup *g);

/* Links from one rank of the machine to another, which is the lowest of its class; uses
 * hold RES_RANK_N + 2.  Returns how many. */
uint32_t rank_group_way(const RankGroup *g, uint32_t from, uint32_t to, Use *uses);
/* A send over them: by itself, or while all ranks that are alike send as far. */
CommCost rank_group_send(const RankGroup *g, uint32_t from, uint32_t to, uint64_t bytes,
                         bool all_at_once);

/*
 * A collective of all, alone; bytes as nccl-tests counts.  OP_SEND: each sends to the next and
 * receives from the one before (sendrecv_perf), so that one of a node sends to the next node and
 * the others within it; it takes as long as its slowest pair.  False: nothing of what `only`
 * leaves is offered here.
 */
bool rank_group_cost(CommCost *cost, const RankGroup *g, OpKind kind, uint64_t bytes,
                     CommOnly only);

#endif

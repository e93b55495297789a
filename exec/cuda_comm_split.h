/*
 * cuda_comm_split.h - which communicators a job needs, and the calls that make them.
 *
 *     graph --split_plan_make--> communicators, packed into calls of ncclCommSplit
 *
 * Every rank makes the same plan from the same graph, and makes every call, in one
 * order; who is in none of a call's communicators gives no color.
 *
 *     collectives  a communicator per lane and group of ranks: work on one communicator
 *                  runs in the order in which it was launched, so lanes would wait for
 *                  each other if they shared one
 *     sends        one per channel (sender, receiver, tag), of two ranks: a rank that
 *                  sends and receives on one communicator, on two lanes, would order
 *                  what the graph does not, and may so wait for itself
 *
 * Groups of one rank have none.  A call makes as many communicators at once as have no
 * rank in common: a pipeline of any length takes two calls for each direction.
 */
#ifndef LOCKSTEP_EXEC_CUDA_COMM_SPLIT_H
#define LOCKSTEP_EXEC_CUDA_COMM_SPLIT_H

#include "core/graph.h"

enum { SPLIT_NO_COLOR = -1 /* as NCCL_SPLIT_NOCOLOR */ };

typedef struct SplitComm {
    bool channel;  /* of sends: members[0] sends to members[1] */
    uint32_t of;   /* Lane of collectives; tag of a channel */
    uint32_t name; /* of the group, in Graph.names */
    uint32_t members_first, members_n;
    uint32_t call, color; /* the ncclCommSplit that makes it, and its color there */
} SplitComm;

typedef struct SplitPlan {
    uint32_t world_n, comms_n, members_n, calls_n;
    SplitComm *comms;  /* in one order everywhere */
    uint32_t *members; /* world ranks; a member's key is its place */
    uint32_t *comm_of; /* [calls_n][world_n]; NONE_U32 */
} SplitPlan;

/* The graph must be sealed. */
void split_plan_make(SplitPlan *x, const Graph *g);
void split_plan_free(SplitPlan *x);

/* What a rank gives to one of the calls. */
typedef struct SplitColor {
    int color, key;
    uint32_t comm; /* what it gets: index into comms; NONE_U32 */
} SplitColor;

SplitColor split_plan_color(const SplitPlan *x, uint32_t call, uint32_t rank);

/* The communicator of these collectives; NONE_U32: there is none. */
uint32_t split_plan_collective(const SplitPlan *x, Lane lane, const uint32_t *members,
                               uint32_t members_n);
uint32_t split_plan_channel(const SplitPlan *x, uint32_t from, uint32_t to, uint32_t tag);

#endif

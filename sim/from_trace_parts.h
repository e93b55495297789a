/*
 * from_trace_parts.h - one rank's step between trace and graph; only from_trace*.c include it.
 *
 *     Timeline --from_trace_read.c--> RankProgram --from_trace_pairs.c, from_trace_buckets.c-->
 *              RankProgram --from_trace.c--> Graph and costs
 *
 * Items never move: `order` says when they are launched, deps name items.
 */
#ifndef LOCKSTEP_SIM_FROM_TRACE_PARTS_H
#define LOCKSTEP_SIM_FROM_TRACE_PARTS_H

#include "sim/from_trace.h"

enum { ITEM_DEPS_MAX = 6 };

typedef enum ItemKind {
    ITEM_KERNEL,
    ITEM_COPY,
    ITEM_COMM,
    ITEM_SYNC, /* the host waits for its deps */
    ITEM_GONE  /* was replaced by `instead` */
} ItemKind;

typedef struct Item {
    ItemKind kind;
    Lane lane;
    const char *name;
    int64_t launch_at_ns, start_ns,
        end_ns;        /* as recorded; a sync: when the call began, returned */
    int64_t launch_ns; /* host time from the item before it */
    int64_t delay_ns;  /* that nothing explains, between its deps and its start */
    uint32_t deps_n, dep[ITEM_DEPS_MAX];
    uint32_t instead;
    const Comm *comm;    /* ITEM_COMM; NULL when the trace says nothing */
    uint64_t bytes;      /* NONE_U64 unknown */
    int64_t transfer_ns; /* without waiting for others */
    /* A send or receive: whose other end is known; NONE_U32: it is not. */
    uint32_t peer_program;
    uint32_t tag; /* the streams of its two ends */
    bool alone;   /* sends and receives of unnamed peers that are no exchange of all ranks */
} Item;

typedef struct RankProgram {
    uint32_t rank;
    int64_t from_ns, to_ns;
    Item *items;
    uint32_t items_n, items_cap;
    uint32_t *order;
    uint32_t order_n;
    int64_t tail_ns; /* host time after the last launch that the step includes */
    uint64_t unlaunched_n;
} RankProgram;

uint32_t program_add(RankProgram *p, Item item);
void item_dep(Item *item, uint32_t on);

/* Everything of one rank; false: it has no GPU work. */
bool from_trace_read(RankProgram *p, const Timeline *t, const TraceWindow *w);
void traced_program_free(RankProgram *p);

bool item_is_p2p(const Item *i, const Timeline *t); /* a send or receive */

/* Names lanes alike on all ranks of a group. */
void from_trace_lanes(RankProgram *programs, uint32_t programs_n, const Timeline *t);

/* Gives the members of each collective the transfer time of the one that waited least. */
bool from_trace_settle(RankProgram *programs, uint32_t programs_n, const Timeline *t, Err *err);

/* Finds the other ends of sends and receives; how many pairs there are. */
uint64_t from_trace_pair(RankProgram *programs, uint32_t programs_n, const Timeline *t);

/* Cuts the gradients' all-reduces anew. */
bool from_trace_rebucket(RankProgram *p, const Timeline *t, const FromTraceOptions *o,
                         uint32_t *before, uint32_t *after, Err *err);

#endif

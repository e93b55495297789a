/*
 * from_trace_pairs.c - sends and receives of the ranks of a trace, end to end.
 *
 *     rank 0   send  [====1====]   [==2==]            by end: 1 2
 *     rank 1   recv      [==1==]  [===2==]            by end: 1 2
 *
 * A transfer ends at both ends at about the same time, so between two ranks of one
 * process group the n-th send to end is the n-th receive to end, whatever streams they
 * are on; a clock that is off by a constant changes nothing in that.  Where the numbers
 * differ, or known sizes do, nothing between the two is matched: a step cut somewhere
 * else on each rank must not pair up wrong ends.
 *
 * A pair takes the time of the end that waited less.  Ops on one stream that overlap
 * were posted together, as ncclGroupStart does it.
 */
#include <stdlib.h>
#include <string.h>

#include "core/order.h"
#include "sim/from_trace_parts.h"

/* One end of a transfer. */
typedef struct End {
    uint32_t from, to; /* programs */
    uint32_t group, group_id;
    bool receives;
    int64_t end_ns;
    Lane lane;
    Item *item;
} End;

static bool same_pair(const End *a, const End *b)
{
    return a->from == b->from && a->to == b->to && a->group == b->group &&
           a->group_id == b->group_id;
}

static int compare_ends(const void *pa, const void *pb)
{
    const End *a = pa, *b = pb;
    const int c[] = {
        order_u32(a->from, b->from),   order_u32(a->to, b->to),
        order_u32(a->group, b->group), order_u32(a->group_id, b->group_id),
        a->receives - b->receives,     (a->end_ns > b->end_ns) - (a->end_ns < b->end_ns),
        (int)a->lane - (int)b->lane
    };
    for (size_t i = 0; i < ARRAY_N(c); i++)
        if (c[i])
            return c[i];
    return 0;
}

static uint32_t program_of(const RankProgram *programs, uint32_t n, uint32_t rank)
{
    for (uint32_t i = 0; i < n; i++)
        if (programs[i].rank == rank)
            return i;
    return NONE_U32;
}

static bool end_of(End *e, const Timeline *t, const RankProgram *programs, uint32_t n,
                   uint32_t program, Item *i)
{
    const char *op = i->comm ? timeline_text(t, i->comm->op) : "";
    bool receives = strcmp(op, "recv") == 0;
    if (i->kind != ITEM_COMM || (!receives && strcmp(op, "send") != 0))
        return false;
    uint32_t peer =
        i->comm->peer == NONE_U32 ? NONE_U32 : program_of(programs, n, i->comm->peer);
    bool known = peer != NONE_U32 && peer != program;
    *e = (End){ .from = receives ? peer : program,
                .to = receives ? program : peer,
                .group = i->comm->group,
                .group_id = i->comm->group_id,
                .receives = receives,
                .end_ns = i->end_ns,
                .lane = i->lane,
                .item = i };
    return known;
}

static bool agree(const Item *a, const Item *b)
{
    return a->bytes == NONE_U64 || b->bytes == NONE_U64 || a->bytes == b->bytes;
}

/* The n sends of a pair of ranks, and behind them as many receives. */
static uint64_t join(const End *send, uint32_t n)
{
    const End *recv = send + n;
    for (uint32_t k = 0; k < n; k++)
        if (!agree(send[k].item, recv[k].item))
            return 0;
    for (uint32_t k = 0; k < n; k++) {
        Item *s = send[k].item, *r = recv[k].item;
        int64_t least = min_i64(s->transfer_ns, r->transfer_ns);
        uint64_t bytes = s->bytes == NONE_U64 ? r->bytes : s->bytes;
        s->transfer_ns = r->transfer_ns = least;
        s->bytes = r->bytes = bytes;
        s->peer_program = send[k].to;
        r->peer_program = send[k].from;
        s->tag = r->tag = send[k].lane * LANE_N + recv[k].lane;
    }
    return n;
}

uint64_t from_trace_pair(RankProgram *programs, uint32_t programs_n, const Timeline *t)
{
    End *ends = NULL;
    uint32_t ends_n = 0, ends_cap = 0;
    uint64_t pairs_n = 0;
    for (uint32_t p = 0; p < programs_n; p++)
        for (uint32_t k = 0; k < programs[p].order_n; k++) {
            End e;
            if (!end_of(&e, t, programs, programs_n, p,
                        &programs[p].items[programs[p].order[k]]))
                continue;
            GROW(ends, ends_n, ends_cap);
            ends[ends_n++] = e;
        }
    if (ends_n)
        qsort(ends, ends_n, sizeof *ends, compare_ends);
    for (uint32_t first = 0, end; first < ends_n; first = end) {
        uint32_t sends_n = 0;
        for (end = first; end < ends_n && same_pair(&ends[first], &ends[end]); end++)
            sends_n += !ends[end].receives;
        if (2 * sends_n == end - first)
            pairs_n += join(&ends[first], sends_n);
    }
    free(ends);
    return pairs_n;
}

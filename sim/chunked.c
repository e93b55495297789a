/* chunked.c - rings and chains by the times of their messages. */
#include "sim/chunked.h"

#include <math.h>
#include <stdlib.h>

static bool is_chain(OpKind kind)
{
    return kind == OP_BROADCAST || kind == OP_REDUCE;
}

/* ---- rings ---- */

enum { SLICES_MAX = 2 };

/* When a rank's link is done, and when each slice that it is to pass on is there. */
typedef struct RingRank {
    double free_ns;
    double there_ns[SLICES_MAX];
} RingRank;

/* Bytes of a part need not be whole. */
static uint32_t slices_of(const ChunkedRing *r, double bytes)
{
    return bytes > (double)r->slice_bytes ? SLICES_MAX : 1;
}

/* All ranks pass on a chunk once. */
static void step(const ChunkedRing *r, RingRank *now, RingRank *next, double bytes)
{
    uint32_t slices = slices_of(r, bytes);
    double each = bytes / slices;
    for (uint32_t i = 0; i < r->links_n; i++) {
        const ChunkedLink *l = &r->link[i];
        RingRank *to = &next[i + 1 < r->links_n ? i + 1 : 0];
        double at = now[i].free_ns;
        for (uint32_t s = 0; s < slices; s++) {
            at = fmax(at, now[i].there_ns[s]) + each * l->ns_per_byte;
            to->there_ns[s] = at + l->hop_ns;
        }
        next[i].free_ns = at;
    }
}

/* A rank begins the next round when the last slice of this one has come. */
static void next_round(const ChunkedRing *r, RingRank *rank, double bytes)
{
    for (uint32_t i = 0; i < r->links_n; i++)
        rank[i].there_ns[0] = rank[i].there_ns[1] = rank[i].there_ns[slices_of(r, bytes) - 1];
}

static double rounds_ns(const ChunkedRing *r, uint64_t steps, uint64_t *messages)
{
    RingRank *now = mem_zero(r->links_n, sizeof *now),
             *next = mem_zero(r->links_n, sizeof *next);
    double part = (double)r->bytes / r->ranks_n, rounds = ceil(part / (double)r->chunk_bytes);
    for (double n = 0; n < rounds; n++) {
        double bytes = fmin(part - n * (double)r->chunk_bytes, (double)r->chunk_bytes);
        for (uint64_t k = 0; k < steps; k++) {
            step(r, now, next, bytes);
            RingRank *swap = now;
            now = next;
            next = swap;
        }
        *messages += steps * r->links_n * slices_of(r, bytes);
        next_round(r, now, bytes);
    }
    double done = 0;
    for (uint32_t i = 0; i < r->links_n; i++)
        done = fmax(done, now[i].there_ns[0]);
    free(now);
    free(next);
    return done;
}

/* ---- chains ---- */

/* The root is rank 0.  A broadcast leaves it and ends before it; a reduce begins behind it and ends
 * there (NCCL's src/device/reduce.h: the rank behind the root sends first).  there: by piece. */
static double chain_ns(const ChunkedRing *r, uint64_t *messages)
{
    uint64_t pieces = div_up_u64(r->bytes, r->slice_bytes);
    double *there = mem_zero(pieces, sizeof *there), last = 0;
    for (uint32_t i = 0; i + 1 < r->ranks_n; i++) {
        uint32_t first = r->kind == OP_REDUCE ? 1 : 0;
        const ChunkedLink *l = &r->link[(i + first) % r->links_n];
        double at = 0;
        for (uint64_t p = 0; p < pieces; p++) {
            uint64_t bytes = min_u64(r->slice_bytes, r->bytes - p * r->slice_bytes);
            at = fmax(at, there[p]) + (double)bytes * l->ns_per_byte;
            there[p] = at + l->hop_ns;
        }
        last = there[pieces - 1];
    }
    *messages += pieces * (r->ranks_n - 1);
    free(there);
    return last;
}

double chunked_ring_ns(const ChunkedRing *r, uint64_t *messages)
{
    if (is_chain(r->kind))
        return chain_ns(r, messages);
    uint64_t once = r->ranks_n - 1;
    return rounds_ns(r, r->kind == OP_ALL_REDUCE ? 2 * once : once, messages);
}

/* ---- of a group ---- */

enum { CHUNK_STEPS = 4, SLICE_STEPS = 2, FINE_PIECES = 4096 };

/* Data of a step of a channel's buffer, of which each has 8 (NCCL's src/init.cc and device.h): of
 * LL half is flags, of LL128 one word in 16. */
static const uint64_t step_bytes[PROTOCOL_N] = {
    [PROTOCOL_LL] = 32 << 10,
    [PROTOCOL_LL128] = 600 * 15 * 64,
    [PROTOCOL_SIMPLE] = 512 << 10,
};

bool chunked_knows(OpKind kind)
{
    return kind == OP_ALL_REDUCE || kind == OP_ALL_GATHER || kind == OP_REDUCE_SCATTER ||
           kind == OP_BROADCAST || kind == OP_REDUCE;
}

/* Of the ring's traffic what a link takes, in ns a byte; 0: it takes none. */
static double taken_of(const RankGroup *g, uint32_t link)
{
    const Classes *c = &g->classes;
    const GroupClass *all = &c->groups[0];
    for (uint32_t u = 0; u < all->uses_n; u++)
        if (all->uses[u].resource == link)
            return all->uses[u].own / c->resources[link].bytes_per_ns;
    return 0;
}

static double taken(const RankGroup *g, uint32_t rank, ResourceKind kind)
{
    const Classes *c = &g->classes;
    return taken_of(g, c->ranks[classes_of_rank(c, rank)].resource[kind]);
}

/* The same of the link between two neighbours, where that was slowed. */
static double taken_between(const RankGroup *g, uint32_t a, uint32_t b)
{
    uint32_t slow = machine_slow_link(g->m, a, b);
    if (slow == NONE_U32)
        return 0;
    return taken_of(g, g->classes.resources_n - g->m->slow_links_n + slow);
}

static ChunkedLink link_of(const RankGroup *g, uint32_t i, const CommCost *cost)
{
    const Machine *m = g->m;
    uint32_t a = rank_group_member(g, i), b = rank_group_member(g, (i + 1) % g->ranks_n);
    Place p = machine_place(m, a), q = machine_place(m, b);
    bool near = p.node == q.node;
    ResourceKind out = near ? RES_PORT_OUT : RES_NIC_OUT;
    double ns = fmax(taken(g, a, out), taken(g, b, out + 1));
    if (!near && !machine_same_leaf(m, p.node, q.node))
        ns = fmax(ns, fmax(taken(g, a, RES_LEAF_UP), taken(g, b, RES_LEAF_DOWN)));
    ns = fmax(ns, taken_between(g, a, b));
    int64_t hop = near ? p.type->intra.hop_ns[cost->protocol] : m->inter.hop_ns[cost->protocol];
    return (ChunkedLink){ (double)hop, ns * cost->traffic_bytes / cost->payload_bytes };
}

/* A channel's steps, times the channels.  By LL and LL128 a chain passes on line by line, each with
 * its flag: pieces so small that they do not count.  An ideal machine does so, too, and passes on
 * parts of a ring whole. */
static void cut(ChunkedRing *r, const Machine *m, Protocol protocol)
{
    uint64_t step = step_bytes[protocol] * (uint64_t)fmax(m->types[0].gpu->comm_sms, 1);
    bool simple = protocol == PROTOCOL_SIMPLE && !m->ideal_collectives;
    r->slice_bytes = r->chunk_bytes = m->ideal_collectives ? r->bytes : step;
    if (is_chain(r->kind)) {
        r->slice_bytes = simple ? step : div_up_u64(r->bytes, FINE_PIECES);
    } else if (simple) {
        r->slice_bytes = SLICE_STEPS * step;
        r->chunk_bytes = CHUNK_STEPS * step;
    }
}

static ChunkedRing ring_of(const RankGroup *g, OpKind kind, uint64_t bytes, Protocol protocol)
{
    ChunkedRing r = {
        .kind = kind, .ranks_n = g->ranks_n, .links_n = rank_group_period(g), .bytes = bytes
    };
    cut(&r, g->m, protocol);
    return r;
}

double chunked_messages(const RankGroup *g, OpKind kind, uint64_t bytes, Protocol protocol)
{
    ChunkedRing r = ring_of(g, kind, bytes, protocol);
    double steps = (kind == OP_ALL_REDUCE ? 2.0 : 1.0) * (g->ranks_n - 1);
    if (is_chain(kind))
        return steps * ceil((double)bytes / (double)r.slice_bytes);
    double part = (double)bytes / g->ranks_n, rounds = ceil(part / (double)r.chunk_bytes);
    return rounds * steps * r.links_n * SLICES_MAX;
}

double chunked_ns(const RankGroup *g, OpKind kind, uint64_t bytes, const CommCost *cost,
                  uint64_t *messages)
{
    ASSERT(chunked_knows(kind) && g->ranks_n > 1 && cost->payload_bytes > 0);
    ChunkedRing r = ring_of(g, kind, bytes, cost->protocol);
    ChunkedLink *link = mem_zero(r.links_n, sizeof *link);
    for (uint32_t i = 0; i < r.links_n; i++)
        link[i] = link_of(g, i, cost);
    r.link = link;
    double ns =
        (double)g->m->collective_base_ns[cost->protocol] + chunked_ring_ns(&r, messages);
    free(link);
    return ns;
}

/* network.c - the closed forms, and the cheapest of them. */
#include "sim/network.h"

#include <math.h>

const char *const algorithm_names[ALGORITHM_N] = { "Ring", "Tree", "NVLS", "NVLSTree" };

double ring_traffic(OpKind kind, uint32_t n, uint64_t bytes)
{
    double s = (double)bytes;
    if (n < 2)
        return 0;
    if (kind == OP_ALL_REDUCE)
        return 2.0 * (n - 1) / n * s;
    if (kind == OP_BROADCAST || kind == OP_REDUCE)
        return s;
    return (double)(n - 1) / n * s;
}

/* Bandwidth lost to flags, as factors on the traffic (NCCL tuning.cc); LL has a ceiling as well. */
static double ring_inflation(Protocol p, double rate, double ll_max_bytes_per_ns)
{
    if (p == PROTOCOL_LL)
        return fmax(2, rate / ll_max_bytes_per_ns);
    return p == PROTOCOL_LL128 ? 1 / 0.92 : 1;
}

/* What trees reach of it by size, from 64 bytes on (NCCL's treeCorrectionFactor); 1 beyond. */
enum { CORRECTED_SIZES = 23, CORRECTED_FROM_LOG2 = 6 };
static const double
    tree_correction[PROTOCOL_N][CORRECTED_SIZES] = {
        { 1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1 },
        { 1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1 },
        { .9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5,
          .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9 },
    };

static int log2_down(uint64_t n)
{
    int log2 = 0;
    while (n >>= 1)
        log2++;
    return log2;
}

/* Of the links' rate trees reach this (tuning.cc). */
static const double tree_part = 0.92;

static bool has_simple_trees(const GroupClass *g)
{
    return gpu_is_since_hopper(g->type->gpu) && g->size > g->nodes_n;
}

static double tree_inflation(const GroupClass *g, Protocol p, uint64_t bytes)
{
    double ll128 = g->nodes_n == 1 ? 9.0 / 7.0 : 128.0 / 120.0;
    double flags = p == PROTOCOL_LL ? 3.8 : p == PROTOCOL_LL128 ? ll128 : 1;
    int size = log2_down(bytes) - CORRECTED_FROM_LOG2;
    double corrected =
        bytes > 0 && size >= 0 && size < CORRECTED_SIZES ? tree_correction[p][size] : 1;
    return flags / tree_part / corrected / (has_simple_trees(g) ? 0.85 : 1);
}

/* What its ports, or its links to other nodes, carry in a time of a ring that is alone; of a slow
 * pair it is not asked where it is. */
static double rate_of(const GroupClass *g, const Resource *resource, bool ports)
{
    double rate = INFINITY;
    for (uint32_t i = 0; i < g->uses_n; i++) {
        const Resource *r = &resource[g->uses[i].resource];
        if (r->kind == RES_LINK || (r->kind <= RES_PORT_IN) == ports)
            rate = fmin(rate, r->bytes_per_ns / g->uses[i].own);
    }
    return rate;
}

static double rate_between(const GroupClass *g, const Resource *resource)
{
    return rate_of(g, resource, false);
}

/* Of a node's NICs one each, or two where one is fast (NCCL's search.cc: those of 25 bytes/ns are
 * halved, but for Hopper's of less than 50 where there are more than 4). */
static double channels_between(const Machine *m, const GroupClass *g, double between)
{
    double nics = fmax(1, between / (m->inter.bytes_per_ns * m->inter.efficiency));
    bool halved =
        m->inter.bytes_per_ns > 25 && !(gpu_is_since_hopper(g->type->gpu) && nics > 4);
    return halved ? 2 * nics : nics;
}

/* How often a tree has the buffer on the links that hold it up.  Of two nodes each passes half of
 * it up and half down, which is all of it, where ports have it twice; a channel carries no more
 * than perChMaxTreeBws (tuning.cc, Ampere's row for Ada as well).  NCCL weighs that against NICs
 * of 12, 24 or 48 bytes/ns, 0.96 of a port (search.cc): of one that reaches less it is as much
 * less, or trees would be taken where only the network is slow. */
static double tree_copies(const Machine *m, const GroupClass *g, const Resource *resource,
                          double own_rate)
{
    static const double channel_max[GPU_GENERATION_N] = {
        [GPU_VOLTA] = 18.5, [GPU_TURING] = 18.5, [GPU_AMPERE] = 23.6,
        [GPU_ADA] = 23.6,   [GPU_HOPPER] = 41.4, [GPU_BLACKWELL] = 42.8
    };
    if (g->nodes_n != 2)
        return 2;
    double between = rate_between(g, resource), most = channel_max[g->type->gpu->generation];
    double ns_per_byte = fmax(1 / between, 2 / rate_of(g, resource, true));
    double all = channels_between(m, g, between) * most * m->inter.efficiency / 0.96;
    if (most > 0)
        ns_per_byte = fmax(ns_per_byte, 2 * tree_part / all);
    return fmin(ns_per_byte * own_rate, 2);
}

static int64_t ring_latency(const Machine *m, const GroupClass *g, OpKind kind, Protocol p)
{
    int64_t rounds = kind == OP_ALL_REDUCE ? 2 : 1;
    int64_t steps = rounds * (g->size - 1), inter = rounds * (g->nodes_n - 1);
    return m->collective_base_ns[p] + (steps - inter) * g->type->intra.hop_ns[p] +
           inter * m->inter.hop_ns[p];
}

static int64_t pairs_latency(const Machine *m, const GroupClass *g, Protocol p)
{
    int64_t hop_ns = g->nodes_n > 1 ? m->inter.hop_ns[p] : g->type->intra.hop_ns[p];
    double away =
        g->sent_once > 0 ? (double)g->nodes_n - 1 : g->size - (double)g->size / g->nodes_n;
    double message_ns =
        m->inter.message_ns.n ? rank_curve_at(&m->inter.message_ns, g->size) : 0;
    return m->collective_base_ns[p] + hop_ns + llround(away * message_ns);
}

static int64_t log2_up(uint32_t n)
{
    int64_t levels = 0;
    while (((uint64_t)1 << levels) < n)
        levels++;
    return levels;
}

static int64_t tree_latency(const Machine *m, const GroupClass *g, Protocol p)
{
    int64_t chain = (int64_t)(g->size / g->nodes_n) - 1;
    return m->tree_base_ns[p] + 2 * (max_i64(chain, 0) * g->type->intra.tree_hop_ns[p] +
                                     log2_up(g->nodes_n) * m->inter.tree_hop_ns[p]);
}

/* Judged by what the links give to this group alone, as NCCL does. */
typedef struct Choice {
    CommOnly only;
    CommCost best;
    double best_ns, scale, own_rate, solo_rate, cap_rate;
} Choice;

static Choice choice_begin(const Demand *flow, const Resource *resource, double scale)
{
    return (Choice){ .only = COMM_ANY,
                     .best_ns = INFINITY,
                     .scale = scale,
                     .own_rate = maxmin_own(flow, resource),
                     .solo_rate = maxmin_solo(flow, resource) };
}

static bool is_wanted(const Choice *c, Algorithm a, Protocol p)
{
    return (c->only.algorithm == ALGORITHM_N || c->only.algorithm == a) &&
           (c->only.protocol == PROTOCOL_N || c->only.protocol == p);
}

static void offer(Choice *c, Algorithm a, Protocol p, int64_t latency_ns, double payload,
                  double traffic)
{
    double ns = (double)latency_ns + traffic / c->own_rate;
    if (!is_wanted(c, a, p) || ns >= c->best_ns)
        return;
    c->best_ns = ns;
    c->best = (CommCost){
        .algorithm = a,
        .protocol = p,
        .latency_ns = ns_up((double)latency_ns * c->scale),
        .traffic_bytes = traffic * c->scale,
        .payload_bytes = payload,
        .solo_rate = c->solo_rate,
        .cap_rate = c->cap_rate,
    };
}

/* NCCL's point-to-point knows LL and Simple only. */
static bool sends_know(const Machine *m, Protocol p)
{
    return p == PROTOCOL_SIMPLE || (p == PROTOCOL_LL && !m->ideal_collectives);
}

static CommCost finish(const Choice *c)
{
    CommCost cost = c->best;
    cost.solo_ns = cost.latency_ns + ns_up(cost.traffic_bytes / cost.solo_rate);
    return cost;
}

/* What was measured of a transfer: at its size, or at the nearest there is. */
typedef struct Known {
    uint64_t bytes;
    double ns, latency_ns;
} Known;

/* False: nothing was. */
static bool was_measured(Known *k, const Machine *m, OpKind kind, uint32_t ranks,
                         uint32_t nodes, uint64_t bytes)
{
    k->bytes = machine_measured_size(m, kind, ranks, nodes, bytes);
    k->ns = machine_measured_ns(m, kind, ranks, nodes, k->bytes, &k->latency_ns);
    return !isnan(k->ns);
}

/* As a whole: the links say only how much of it is sharing them. */
static void measured(Choice *c, const Known *k)
{
    c->best.latency_ns = ns_up(k->latency_ns * c->scale);
    c->best.traffic_bytes = (k->ns - k->latency_ns) * c->own_rate * c->scale;
}

/* Beyond the sizes that were measured: the model, as much slower as it was there. */
static void measured_beside(Choice *c, const Known *k, const Choice *there)
{
    double slower = k->ns / there->best_ns;
    c->best.latency_ns = ns_up((double)c->best.latency_ns * slower);
    c->best.traffic_bytes *= slower;
}

static void offer_pairs(Choice *c, const Machine *m, const GroupClass *g, uint64_t bytes)
{
    double payload = ring_traffic(OP_ALL_TO_ALL, g->size, bytes);
    double ll_max = ll_max_bytes_per_ns(g->type->gpu, g->nodes_n);
    for (Protocol p = 0; p < PROTOCOL_N; p++)
        if (sends_know(m, p))
            offer(c, ALGORITHM_RING, p, pairs_latency(m, g, p), payload,
                  payload * ring_inflation(p, c->own_rate, ll_max));
}

static void offer_rings(Choice *c, const Machine *m, const GroupClass *g,
                        const Resource *resource, OpKind kind, uint64_t bytes)
{
    double ring = ring_traffic(kind, g->size, bytes);
    if (m->ideal_collectives) {
        offer(c, ALGORITHM_RING, PROTOCOL_SIMPLE, ring_latency(m, g, kind, PROTOCOL_SIMPLE),
              ring, ring);
        return;
    }
    double ll_max = ll_max_bytes_per_ns(g->type->gpu, g->nodes_n), s = (double)bytes;
    double copies = kind == OP_ALL_REDUCE ? tree_copies(m, g, resource, c->own_rate) : 0;
    for (Protocol p = 0; p < PROTOCOL_N; p++) {
        offer(c, ALGORITHM_RING, p, ring_latency(m, g, kind, p), ring,
              ring * ring_inflation(p, c->own_rate, ll_max));
        if (kind == OP_ALL_REDUCE && g->nodes_n > 1)
            offer(c, ALGORITHM_TREE, p, tree_latency(m, g, p), g->nodes_n > 2 ? 2 * s : s,
                  copies * s * tree_inflation(g, p, bytes));
    }
}

/* The links count ring efficiency; NVLS has its own. */
static void offer_nvls(Choice *c, const GroupClass *g, uint64_t bytes)
{
    const IntraNode *in = &g->type->intra;
    double s = (double)bytes;
    double ring = rank_curve_at(&in->efficiency, g->size) * in->bytes_per_ns;
    offer(c, ALGORITHM_NVLS, PROTOCOL_SIMPLE, in->nvls_ns, s,
          s / nvls_bytes_per_ns(in, g->size) * ring);
}

/* ---- nodes that reduce in their switches ---- */

/* What a node's GPUs have under way at a time (enqueue.cc, calcCollChunking): a chunk for each of
 * them and of 16 channels; of few bytes smaller ones. */
static double nvls_tree_chunks(const GroupClass *g, double bytes)
{
    double each = 16.0 * g->size / g->nodes_n, chunk = g->nodes_n >= 4 ? 65536 : 131072;
    if (bytes < 4 * each * chunk)
        chunk = 65536;
    if (bytes < each * chunk)
        chunk = 32768;
    return fmin(each * chunk, bytes);
}

/* As NCCL judges large ones (tuning.cc): of the bandwidth nvlsEfficiency, and of 16 channels 15;
 * rings by baseLat, hwLat, and 1.4 for their plateau. */
static bool nccl_prefers_ring(const Choice *c, const GroupClass *g, int64_t tree_latency_ns,
                              double tree_ns, double s)
{
    static const double base_ns = 8400, near_ns = 3400, far_ns = 14000, plateau = 1.4;
    double part = (g->type->gpu->generation == GPU_BLACKWELL ? 0.74 : 0.85) * 15 / 16;
    double far = 2.0 * (g->nodes_n - 1), near = 2.0 * (g->size - 1) - far;
    double ring_ns = plateau * (base_ns + near * near_ns + far * far_ns) +
                     2 * s * (g->size - 1) / g->size / c->own_rate;
    return (double)tree_latency_ns + tree_ns / part >= ring_ns;
}

/* hwLat of NVLink (tuning.cc). */
enum { NVLS_TREE_BASE_NS = 25000 };

/* Behind all others: where a large ring is the best of these, NCCL has its own idea. */
static void offer_nvls_tree(Choice *c, const Machine *m, const GroupClass *g,
                            const Resource *resource, uint64_t bytes)
{
    double s = (double)bytes, copies = g->nodes_n > 2 ? 2 : 1;
    double in_switch = nvls_bytes_per_ns(&g->type->intra, g->size / g->nodes_n);
    double ns_per_byte = fmax(copies / rate_between(g, resource), 1 / in_switch);
    int64_t levels = 2 * log2_up(g->nodes_n);
    int64_t latency_ns = NVLS_TREE_BASE_NS + levels * m->inter.nvls_tree_hop_ns;
    bool large_ring = c->best_ns < INFINITY && c->best.algorithm == ALGORITHM_RING &&
                      c->best.protocol == PROTOCOL_SIMPLE;
    if (large_ring && nccl_prefers_ring(c, g, latency_ns, s * ns_per_byte, s))
        return;
    double passing_ns = (double)levels * nvls_tree_chunks(g, s) * ns_per_byte;
    offer(c, ALGORITHM_NVLS_TREE, PROTOCOL_SIMPLE, latency_ns + llround(passing_ns), copies * s,
          s * ns_per_byte * c->own_rate);
}

/* More than two GPUs of a node reduce in its switch. */
static bool has_nvls(const Machine *m, const GroupClass *g, OpKind kind)
{
    return kind == OP_ALL_REDUCE && !m->ideal_collectives && g->type->intra.nvls &&
           g->on_node > 2;
}

static void offer_all(Choice *c, const Machine *m, const GroupClass *g,
                      const Resource *resource, OpKind kind, uint64_t bytes)
{
    if (kind == OP_ALL_TO_ALL)
        offer_pairs(c, m, g, bytes);
    else
        offer_rings(c, m, g, resource, kind, bytes);
    if (has_nvls(m, g, kind) && g->nodes_n == 1)
        offer_nvls(c, g, bytes);
    else if (has_nvls(m, g, kind))
        offer_nvls_tree(c, m, g, resource, bytes);
}

/* The best that offer_all had and `only` allows. */
static Choice model(const Machine *m, const GroupClass *g, const Resource *resource,
                    OpKind kind, uint64_t bytes, double scale, CommOnly only)
{
    Demand d = collective_demand(g, kind);
    Choice c = choice_begin(&d, resource, scale);
    c.only = only;
    offer_all(&c, m, g, resource, kind, bytes);
    return c;
}

/* Or what was measured, where nothing is asked for. */
static Choice choose(const Machine *m, const GroupClass *g, const Resource *resource,
                     OpKind kind, uint64_t bytes, double scale, CommOnly only)
{
    Choice c = model(m, g, resource, kind, bytes, scale, only);
    bool any = only.algorithm == ALGORITHM_N && only.protocol == PROTOCOL_N;
    if (!any || g->sent_once > 0) /* measured are NCCL's */
        return c;
    Known k;
    if (!was_measured(&k, m, kind, g->size, g->nodes_n, bytes))
        return c;
    if (k.bytes == bytes) {
        measured(&c, &k);
    } else {
        Choice there = model(m, g, resource, kind, k.bytes, 1, only);
        measured_beside(&c, &k, &there);
    }
    return c;
}

bool collective_cost_only(CommCost *cost, const Machine *m, const GroupClass *g,
                          const Resource *resource, OpKind kind, uint64_t bytes, CommOnly only)
{
    Choice c = choose(m, g, resource, kind, bytes, 1, only);
    *cost = finish(&c);
    return c.best_ns < INFINITY && (only.algorithm == ALGORITHM_N || comm_has_algorithm(kind));
}

CommCost collective_cost(const Machine *m, const GroupClass *g, const Resource *resource,
                         OpKind kind, uint64_t bytes, double scale)
{
    if (g->size < 2)
        return (CommCost){ .solo_rate = INFINITY };
    Choice c = choose(m, g, resource, kind, bytes, scale, COMM_ANY);
    return finish(&c);
}

enum { PART_MAX_BYTES = 16 << 20, CHANNELS_BETWEEN_NODES = 2, NODES_OF_TWO_CHANNELS = 8 };

/* Bandwidth of the channels that NCCL gives a send; INFINITY: nothing limits it. */
static double channel_rate(const Machine *m, const NodeType *type, bool same_node,
                           const GroupClass *g, uint64_t bytes)
{
    if (!g)
        return INFINITY;
    if (!same_node) {
        uint32_t n = g->nodes_n > NODES_OF_TWO_CHANNELS ? 1 : CHANNELS_BETWEEN_NODES;
        double one = m->inter.channel_bytes_per_ns;
        return one > 0 ? n * one : INFINITY;
    }
    if (type->intra.channels == 0)
        return INFINITY;
    uint32_t n = type->intra.channels;
    while (n > 1 && (uint64_t)n * g->size > type->intra.channels)
        n /= 2;
    while (2 * n <= type->intra.channels && bytes / n > PART_MAX_BYTES)
        n *= 2;
    return n * type->intra.channel_bytes_per_ns;
}

/* A send, its two ends, and what its links and channels give. */
typedef struct Send {
    const Machine *m;
    const NodeType *type;
    bool same_node;
    const GroupClass *g;
    uint64_t bytes;
} Send;

static void offer_send(Choice *c, const Send *s)
{
    double ll_max = ll_max_bytes_per_ns(s->type->gpu, s->same_node ? 1 : 2);
    double links = c->own_rate, links_solo = c->solo_rate;
    double channels = channel_rate(s->m, s->type, s->same_node, s->g, s->bytes);
    for (Protocol p = 0; p < PROTOCOL_N; p++) {
        if (!sends_know(s->m, p))
            continue;
        int64_t hop = s->same_node ? s->type->intra.hop_ns[p] : s->m->inter.hop_ns[p];
        double inflation = ring_inflation(p, links, ll_max), cap = channels * inflation;
        c->own_rate = fmin(links, cap);
        c->solo_rate = fmin(links_solo, cap);
        c->cap_rate = cap < links ? cap : 0;
        offer(c, ALGORITHM_RING, p, s->m->p2p_base_ns[p] + hop, (double)s->bytes,
              (double)s->bytes * inflation);
    }
    c->own_rate = c->best.cap_rate > 0 ? c->best.cap_rate : links;
}

/* The best that offer_send had and `only` allows. */
static Choice model_send(const Send *s, const Demand *flow, const Resource *resource,
                         double scale, Protocol only)
{
    Choice c = choice_begin(flow, resource, scale);
    c.only.protocol = only;
    offer_send(&c, s);
    return c;
}

static Choice choose_send(const Send *s, const Demand *flow, const Resource *resource,
                          double scale, Protocol only)
{
    Choice c = model_send(s, flow, resource, scale, only);
    Known k;
    if (only != PROTOCOL_N ||
        !was_measured(&k, s->m, OP_SEND, 2, s->same_node ? 1 : 2, s->bytes))
        return c;
    if (k.bytes == s->bytes) {
        measured(&c, &k);
    } else {
        Send near = *s;
        near.bytes = k.bytes;
        Choice there = model_send(&near, flow, resource, 1, only);
        measured_beside(&c, &k, &there);
    }
    return c;
}

CommCost p2p_cost(const Machine *m, const NodeType *type, bool same_node, const GroupClass *g,
                  const Demand *flow, const Resource *resource, uint64_t bytes, double scale)
{
    const Send s = { m, type, same_node, g, bytes };
    Choice c = choose_send(&s, flow, resource, scale, PROTOCOL_N);
    return finish(&c);
}

bool p2p_cost_only(CommCost *cost, const Machine *m, const NodeType *type, bool same_node,
                   const GroupClass *g, const Demand *flow, const Resource *resource,
                   uint64_t bytes, CommOnly only)
{
    const Send s = { m, type, same_node, g, bytes };
    Choice c = choose_send(&s, flow, resource, 1, only.protocol);
    *cost = finish(&c);
    return c.best_ns < INFINITY && only.algorithm == ALGORITHM_N;
}

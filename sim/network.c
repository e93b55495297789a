/* network.c - the closed forms, and the cheapest of them. */
#include "sim/network.h"

#include <math.h>

const char *const algorithm_names[ALGORITHM_N] = { "Ring", "Tree", "NVLS" };

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

static double tree_inflation(Protocol p, uint32_t nodes_n)
{
    double ll128 = nodes_n == 1 ? 9.0 / 7.0 : 128.0 / 120.0;
    return (p == PROTOCOL_LL ? 3.8 : p == PROTOCOL_LL128 ? ll128 : 1) / 0.92;
}

static int64_t ring_latency(const Machine *m, const GroupClass *g, OpKind kind, Protocol p)
{
    int64_t rounds = kind == OP_ALL_REDUCE ? 2 : 1;
    int64_t steps = kind == OP_ALL_TO_ALL ? 1 : rounds * (g->size - 1);
    int64_t inter = kind == OP_ALL_TO_ALL ? g->nodes_n > 1 : rounds * (g->nodes_n - 1);
    return m->collective_base_ns[p] + (steps - inter) * g->type->intra.hop_ns[p] +
           inter * m->inter.hop_ns[p];
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
    CommCost best;
    double best_ns, scale, own_rate, solo_rate;
} Choice;

static Choice choice_begin(const Demand *flow, const Resource *resource, double scale)
{
    return (Choice){ .best_ns = INFINITY,
                     .scale = scale,
                     .own_rate = maxmin_own(flow, resource),
                     .solo_rate = maxmin_solo(flow, resource) };
}

static void offer(Choice *c, Algorithm a, Protocol p, int64_t latency_ns, double traffic)
{
    double ns = (double)latency_ns + traffic / c->own_rate;
    if (ns >= c->best_ns)
        return;
    c->best_ns = ns;
    c->best = (CommCost){
        a, p, ns_up((double)latency_ns * c->scale), traffic * c->scale, c->solo_rate, 0
    };
}

static CommCost finish(const Choice *c)
{
    CommCost cost = c->best;
    cost.solo_ns = cost.latency_ns + ns_up(cost.traffic_bytes / cost.solo_rate);
    return cost;
}

CommCost collective_cost(const Machine *m, const GroupClass *g, const Resource *resource,
                         OpKind kind, uint64_t bytes, double scale)
{
    if (g->size < 2)
        return (CommCost){ .solo_rate = INFINITY };
    Choice c = choice_begin(&(Demand){ g->uses, g->uses_n }, resource, scale);
    double ring = ring_traffic(kind, g->size, bytes);
    if (m->ideal_collectives) {
        offer(&c, ALGORITHM_RING, PROTOCOL_SIMPLE, ring_latency(m, g, kind, PROTOCOL_SIMPLE),
              ring);
        return finish(&c);
    }
    double ll_max = ll_max_bytes_per_ns(g->type->gpu, g->nodes_n);
    for (Protocol p = 0; p < PROTOCOL_N; p++) {
        offer(&c, ALGORITHM_RING, p, ring_latency(m, g, kind, p),
              ring * ring_inflation(p, c.own_rate, ll_max));
        if (kind == OP_ALL_REDUCE && g->nodes_n > 1)
            offer(&c, ALGORITHM_TREE, p, tree_latency(m, g, p),
                  2 * (double)bytes * tree_inflation(p, g->nodes_n));
    }
    const IntraNode *in = &g->type->intra;
    if (kind == OP_ALL_REDUCE && g->nodes_n == 1 && in->nvls && g->size > 2)
        /* The links count ring efficiency; NVLS has its own. */
        offer(&c, ALGORITHM_NVLS, PROTOCOL_SIMPLE, in->nvls_ns,
              (double)bytes / in->nvls_efficiency * rank_curve_at(&in->efficiency, g->size));
    return finish(&c);
}

CommCost p2p_cost(const Machine *m, const NodeType *type, bool same_node, const Demand *flow,
                  const Resource *resource, uint64_t bytes, double scale)
{
    Choice c = choice_begin(flow, resource, scale);
    double ll_max = ll_max_bytes_per_ns(type->gpu, same_node ? 1 : 2);
    for (Protocol p = 0; p < PROTOCOL_N; p++) {
        if (p == PROTOCOL_LL128 || (m->ideal_collectives && p != PROTOCOL_SIMPLE))
            continue; /* NCCL's point-to-point knows LL and Simple only */
        int64_t hop = same_node ? type->intra.hop_ns[p] : m->inter.hop_ns[p];
        offer(&c, ALGORITHM_RING, p, m->p2p_base_ns[p] + hop,
              (double)bytes * ring_inflation(p, c.own_rate, ll_max));
    }
    return finish(&c);
}

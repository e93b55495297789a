/* rank_group.c - the graph of one group, and the costs of network.h on it. */
#include "sim/rank_group.h"

static void make_graph(RankGroup *g)
{
    const Machine *m = g->m;
    bool alike = m->types_n == 1;
    uint32_t gpus_n = m->types[0].gpus_n, world = alike ? g->nodes_n * gpus_n : m->gpus_n;
    g->graph = (Graph){ .world_n = world,
                        .role_stride = world,
                        .role_extent = 1,
                        .host_group = NONE_U32,
                        .replica = { 1, 1, 1, 1 } };
    if (alike) /* one node stands for all */
        g->graph.replica = (GroupDim){ gpus_n, g->nodes_n, 1, g->nodes_n };
    g->graph.role_of = mem_zero(1, sizeof *g->graph.role_of);
    graph_role(&g->graph, "communicates", 0);
    GroupDim nodes[] = { { 1, gpus_n, 1, g->ranks_n / g->nodes_n },
                         { gpus_n, g->nodes_n, 1, g->nodes_n } };
    GroupDim all = { 1, world, 1, world };
    graph_group(&g->graph, "all", alike ? nodes : &all, alike ? 2 : 1);
    graph_seal(&g->graph);
}

bool rank_group_open(RankGroup *g, const Machine *m, uint32_t nodes_n, uint32_t ranks_n,
                     Err *err)
{
    *g = (RankGroup){ .m = m, .ranks_n = ranks_n, .nodes_n = nodes_n };
    ASSERT(nodes_n > 0 && nodes_n <= m->nodes_n && ranks_n > 0);
    ASSERT(m->types_n > 1 ? ranks_n == m->gpus_n
                          : ranks_n % nodes_n == 0 && ranks_n / nodes_n <= m->types[0].gpus_n);
    make_graph(g);
    if (classes_make(&g->classes, &g->graph, m, 0, false, err))
        return true;
    rank_group_close(g);
    return false;
}

void rank_group_close(RankGroup *g)
{
    classes_free(&g->classes);
    graph_free(&g->graph);
    *g = (RankGroup){ 0 };
}

uint32_t rank_group_member(const RankGroup *g, uint32_t i)
{
    if (g->m->types_n > 1)
        return i;
    uint32_t each = g->ranks_n / g->nodes_n;
    return i / each * g->m->types[0].gpus_n + i % each;
}

uint32_t rank_group_period(const RankGroup *g)
{
    const Machine *m = g->m;
    if (m->types_n > 1 || m->slow_links_n > 0)
        return g->ranks_n;
    uint32_t nodes = machine_has_leaves(m) ? m->inter.nodes_per_leaf : 1;
    return nodes < g->nodes_n && g->nodes_n % nodes == 0 ? nodes * (g->ranks_n / g->nodes_n)
                                                         : g->ranks_n;
}

/* ---- sends ---- */

uint32_t rank_group_way(const RankGroup *g, uint32_t from, uint32_t to, Use *uses)
{
    return classes_p2p_uses(&g->classes, classes_of_rank(&g->classes, from), to, uses);
}

CommCost rank_group_send(const RankGroup *g, uint32_t from, uint32_t to, uint64_t bytes,
                         bool all_at_once)
{
    Use uses[RES_RANK_N + 2];
    uint32_t n = rank_group_way(g, from, to, uses);
    for (uint32_t i = 0; i < n && !all_at_once; i++)
        uses[i].coefficient = uses[i].own;
    Place place = machine_place(g->m, from);
    return p2p_cost(g->m, place.type, machine_place(g->m, to).node == place.node,
                    &g->classes.groups[0], &(Demand){ uses, n, 0 }, g->classes.resources, bytes,
                    1);
}

/* How far apart two ranks are; pairs that are equally far take equally long. */
typedef struct Apart {
    const NodeType *from, *to;
    bool same_node, same_leaf;
    uint32_t slow; /* of Machine.slow_links; NONE_U32: theirs is none */
} Apart;

static Apart apart(const RankGroup *g, uint32_t a, uint32_t b)
{
    const Machine *m = g->m;
    Place p = machine_place(m, a), q = machine_place(m, b);
    return (Apart){ p.type, q.type, p.node == q.node, machine_same_leaf(m, p.node, q.node),
                    machine_slow_link(m, a, b) };
}

static bool as_far(Apart x, Apart y)
{
    return x.from == y.from && x.to == y.to && x.same_node == y.same_node &&
           x.same_leaf == y.same_leaf;
}

/* A rank as far from `from` as asked, slow links aside; the world, where none is. */
static uint32_t rank_so_far(const RankGroup *g, uint32_t from, Apart far)
{
    uint32_t to = 0, world = g->graph.world_n;
    while (to < world && (to == from || !as_far(apart(g, from, to), far)))
        to++;
    return to;
}

/* As the lowest rank of its class sends so far: what is asked for ranks is kept by class. */
static bool pair_cost(CommCost *cost, const RankGroup *g, uint32_t a, Apart far, uint64_t bytes,
                      CommOnly only)
{
    const Classes *c = &g->classes;
    uint32_t own = classes_of_rank(c, a), to = rank_so_far(g, c->ranks[own].rank, far), n = 0;
    Use way[RES_RANK_N + 3];
    /* The lowest of a class is as far from somebody as the others are. */
    ASSERT(to < g->graph.world_n);
    uint32_t way_n = classes_p2p_uses(c, own, to, way);
    for (uint32_t i = 0; i < way_n; i++)
        if (c->resources[way[i].resource].kind != RES_LINK) {
            way[n] = way[i];
            way[n].coefficient = way[n].own;
            n++;
        }
    if (far.slow != NONE_U32)
        way[n++] = (Use){ c->resources_n - g->m->slow_links_n + far.slow, 1, 1, 1 };
    return p2p_cost_only(cost, g->m, far.from, far.same_node, &c->groups[0],
                         &(Demand){ way, n, 0 }, c->resources, bytes, only);
}

/* The slowest pair of neighbours. */
static bool ring_of_sends(CommCost *slowest, const RankGroup *g, uint64_t bytes, CommOnly only)
{
    Apart seen[16];
    uint32_t seen_n = 0;
    *slowest = (CommCost){ .solo_ns = -1 };
    for (uint32_t i = 0, n = rank_group_period(g); i < n; i++) {
        uint32_t a = rank_group_member(g, i), b = rank_group_member(g, (i + 1) % g->ranks_n);
        Apart far = apart(g, a, b);
        bool again = false;
        for (uint32_t s = 0; s < seen_n && far.slow == NONE_U32; s++)
            again = again || as_far(seen[s], far);
        if (again)
            continue;
        if (far.slow == NONE_U32 && seen_n < ARRAY_N(seen))
            seen[seen_n++] = far;
        CommCost cost;
        if (!pair_cost(&cost, g, a, far, bytes, only))
            return false;
        if (cost.solo_ns > slowest->solo_ns)
            *slowest = cost;
    }
    return true;
}

bool rank_group_cost(CommCost *cost, const RankGroup *g, OpKind kind, uint64_t bytes,
                     CommOnly only)
{
    const Classes *c = &g->classes;
    if (kind == OP_SEND)
        return ring_of_sends(cost, g, bytes, only);
    return collective_cost_only(cost, g->m, &c->groups[0], c->resources, kind, bytes, only);
}

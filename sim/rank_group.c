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

/* From the first GPU, which stands for all: to the next of its node, and to another node. */
static CommCost ring_of_sends(const RankGroup *g, uint64_t bytes)
{
    uint32_t next_node = g->m->types[0].gpus_n;
    bool near = g->ranks_n > g->nodes_n;
    CommCost cost = rank_group_send(g, 0, near ? 1 : next_node, bytes, false);
    if (near && g->nodes_n > 1) {
        CommCost away = rank_group_send(g, 0, next_node, bytes, false);
        cost = away.solo_ns > cost.solo_ns ? away : cost;
    }
    return cost;
}

bool rank_group_cost(CommCost *cost, const RankGroup *g, OpKind kind, uint64_t bytes,
                     CommOnly only)
{
    const Classes *c = &g->classes;
    if (kind != OP_SEND)
        return collective_cost_only(cost, g->m, &c->groups[0], c->resources, kind, bytes, only);
    *cost = ring_of_sends(g, bytes);
    return only.algorithm == ALGORITHM_N && only.protocol == PROTOCOL_N;
}

/* Ranks that only communicate: what a collective costs, and the slowest of neighbours' sends. */
#include "sim/rank_group.h"

#include <math.h>

#include "sim/cluster_open.h"
#include "tests/check.h"
#include "tests/small_world.h"

enum { HOP_NS = 3 };

static double cost_ns(const Machine *m, uint32_t nodes_n, uint32_t ranks_n, OpKind kind,
                      uint64_t bytes, CommOnly only)
{
    RankGroup g;
    CommCost cost;
    Err err = { 0 };
    if (!CHECK(rank_group_open(&g, m, nodes_n, ranks_n, &err)))
        return NAN;
    bool ok = rank_group_cost(&cost, &g, kind, bytes, only);
    rank_group_close(&g);
    return ok ? (double)cost.solo_ns : NAN;
}

static double send_ns(const Machine *m, uint64_t bytes)
{
    return cost_ns(m, m->nodes_n, m->gpus_n, OP_SEND, bytes, COMM_ANY);
}

static void groups_cost_what_their_closed_forms_say(void)
{
    World w;
    world_init(&w, 4, 8, HOP_NS);
    uint64_t bytes = 16 * 100000;
    /* 8 on one node, 2 on each of four, and one on each of four, whose NICs carry 50. */
    CHECK_NEAR(14 * (HOP_NS + 2000), cost_ns(&w.m, 1, 8, OP_ALL_REDUCE, bytes, COMM_ANY), 1e-9);
    CHECK_NEAR(7 * (HOP_NS + 2000), cost_ns(&w.m, 4, 8, OP_ALL_GATHER, bytes, COMM_ANY), 1e-9);
    CHECK_NEAR(3 * (HOP_NS + 8000), cost_ns(&w.m, 4, 4, OP_ALL_GATHER, bytes, COMM_ANY), 1e-9);
}

static void members_are_the_first_gpus_of_each_node(void)
{
    World w;
    RankGroup g;
    Err err = { 0 };
    world_init(&w, 3, 8, HOP_NS);
    if (!CHECK(rank_group_open(&g, &w.m, 3, 6, &err)))
        return;
    static const uint32_t expect[] = { 0, 1, 8, 9, 16, 17 };
    for (uint32_t i = 0; i < 6; i++)
        CHECK_U64(expect[i], rank_group_member(&g, i));
    rank_group_close(&g);
}

/* One of a node sends to the next: over a NIC that is then its own. */
static void a_ring_of_sends_takes_as_long_as_its_slowest_pair(void)
{
    World w;
    world_init(&w, 1, 8, HOP_NS);
    CHECK_NEAR(HOP_NS + 10000, send_ns(&w.m, 1000000), 1e-9);
    w.m.slow_links_n = 1; /* not of GPU 0 */
    w.slow_links[0] = (SlowLink){ 2, 3, 1 };
    w.m.slow_links = w.slow_links;
    CHECK_NEAR(HOP_NS + 1000000, send_ns(&w.m, 1000000), 1e-9);
    w.slow_links[0] = (SlowLink){ 0, 7, 1 }; /* from the last to the first */
    CHECK_NEAR(HOP_NS + 1000000, send_ns(&w.m, 1000000), 1e-9);
    w.slow_links[0] = (SlowLink){ 2, 4, 1 }; /* no neighbours */
    CHECK_NEAR(HOP_NS + 10000, send_ns(&w.m, 1000000), 1e-9);
    world_init(&w, 8, 4, HOP_NS);
    w.m.inter.nics_per_node = 2; /* for four GPUs, one of which sends */
    CHECK_NEAR(HOP_NS + 20000, send_ns(&w.m, 1000000), 1e-9);
    w.m.inter.nodes_per_leaf = 2;
    w.m.inter.oversubscription = 16; /* uplinks of 2 x 2 x 50 / 16 */
    CHECK_NEAR(HOP_NS + 80000, send_ns(&w.m, 1000000), 1e-9);
    w.m.slow_links_n = 1;
    w.m.slow_links = w.slow_links;
    w.slow_links[0] = (SlowLink){ 19, 20, 1 }; /* between leaves, and nodes are alike no more */
    CHECK_NEAR(HOP_NS + 1000000, send_ns(&w.m, 1000000), 1e-9);
}

static void nodes_of_two_kinds_are_one_ring(void)
{
    World w;
    world_init(&w, 2, 4, HOP_NS);
    NodeType types[2] = { w.type, w.type };
    types[0].count = types[1].count = 1;
    types[1].first_node = 1;
    types[1].first_rank = 4;
    types[1].intra.bytes_per_ns = 10;
    w.m.types = types;
    w.m.types_n = 2;
    CHECK_NEAR(HOP_NS + 100000, send_ns(&w.m, 1000000), 1e-9);
    CHECK_NEAR(7 * (HOP_NS + 100000), cost_ns(&w.m, 2, 8, OP_ALL_GATHER, 8000000, COMM_ANY),
               1e-9);
}

/* What is left free is the fastest of what may be asked for. */
static void the_fastest_is_offered(void)
{
    static const OpKind kinds[] = { OP_ALL_REDUCE, OP_ALL_GATHER, OP_BROADCAST, OP_ALL_TO_ALL,
                                    OP_SEND };
    Machine m;
    Err err = { 0 };
    if (!CHECK(cluster_open(&m, "dgx-h100", 4, NULL, 0, &err)))
        return;
    for (size_t k = 0; k < ARRAY_N(kinds); k++)
        for (uint64_t bytes = 8; bytes <= GIB; bytes *= 64) {
            double least = INFINITY;
            for (Algorithm a = 0; a <= ALGORITHM_N; a++)
                for (Protocol p = 0; p < PROTOCOL_N; p++) {
                    double ns = cost_ns(&m, 4, 32, kinds[k], bytes, (CommOnly){ a, p });
                    least = isnan(ns) ? least : fmin(least, ns);
                }
            CHECK_NEAR(least, cost_ns(&m, 4, 32, kinds[k], bytes, COMM_ANY), 1e-3);
        }
    CommOnly tree = { ALGORITHM_TREE, PROTOCOL_N }, nvls = { ALGORITHM_NVLS, PROTOCOL_N };
    CHECK(isnan(cost_ns(&m, 4, 32, OP_ALL_GATHER, MIB, tree)));
    CHECK(isnan(cost_ns(&m, 4, 32, OP_ALL_REDUCE, MIB, nvls)));
    CHECK(isnan(cost_ns(&m, 1, 8, OP_ALL_REDUCE, MIB, tree)));
    CHECK(isnan(cost_ns(&m, 4, 32, OP_SEND, MIB, tree)));
    CHECK(!isnan(cost_ns(&m, 1, 8, OP_ALL_REDUCE, MIB, nvls)));
    machine_free(&m);
}

int main(void)
{
    RUN(groups_cost_what_their_closed_forms_say);
    RUN(members_are_the_first_gpus_of_each_node);
    RUN(a_ring_of_sends_takes_as_long_as_its_slowest_pair);
    RUN(nodes_of_two_kinds_are_one_ring);
    RUN(the_fastest_is_offered);
    return check_report();
}

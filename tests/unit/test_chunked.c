/*
 * Rings and chains message by message: closed forms where links are alike, the least fixed point
 * of their rules where they are not, and one node's ranks for all.
 */
#include "sim/chunked.h"

#include <math.h>
#include <stdlib.h>

#include "sim/cluster_open.h"
#include "tests/check.h"
#include "tests/small_world.h"

/* ---- rings by themselves ---- */

static void whole_parts_meet_the_closed_forms(void)
{
    static const ChunkedLink link = { 3, 0.01 }; /* 100 bytes/ns */
    uint64_t messages = 0;
    for (uint32_t n = 2; n <= 16; n++) {
        ChunkedRing r = { OP_ALL_REDUCE, n, &link, 1, (uint64_t)n * 100000, 1 << 20, 1 << 20 };
        CHECK_NEAR(2 * (n - 1) * (3 + 1000), chunked_ring_ns(&r, &messages), 1e-12);
        r.kind = OP_ALL_GATHER;
        CHECK_NEAR((n - 1) * (3 + 1000), chunked_ring_ns(&r, &messages), 1e-12);
        r.kind = OP_REDUCE_SCATTER;
        CHECK_NEAR((n - 1) * (3 + 1000), chunked_ring_ns(&r, &messages), 1e-12);
        r.kind = OP_BROADCAST;
        r.slice_bytes = 100000; /* n pieces: the first goes all the way, the others follow it */
        CHECK_NEAR((n - 1) * (3 + 1000) + (n - 1) * 1000, chunked_ring_ns(&r, &messages),
                   1e-12);
    }
}

/* Half of a part is passed on while the other half comes, and hides the hop. */
static void slices_hide_hops(void)
{
    static const ChunkedLink link = { 300, 0.01 };
    uint64_t messages = 0;
    ChunkedRing r = { OP_ALL_GATHER, 8, &link, 1, 800000, 100000, 50000 };
    CHECK_NEAR(7 * 1000 + 300, chunked_ring_ns(&r, &messages), 1e-12);
    CHECK_U64(7 * 2, messages); /* one rank stands for all */
}

static double draw(uint32_t *seed, double below)
{
    *seed = *seed * 1664525u + 1013904223u;
    return below * (*seed >> 8) / (1 << 24);
}

enum { RANKS_MAX = 7, STEPS_MAX = 2 * RANKS_MAX, ROUNDS_MAX = 4 };

typedef struct Times {
    double there[ROUNDS_MAX][STEPS_MAX + 1][RANKS_MAX][2];
} Times;

/* A message ends when what it waits for has ended, and it has been sent; again until none moves. */
static bool relax(const ChunkedRing *r, Times *t, uint32_t rounds, uint32_t steps)
{
    bool moved = false;
    for (uint32_t n = 0; n < rounds; n++)
        for (uint32_t k = 0; k < steps; k++)
            for (uint32_t i = 0; i < r->ranks_n; i++)
                for (uint32_t s = 0; s < 2; s++) {
                    uint32_t to = (i + 1) % r->ranks_n;
                    const ChunkedLink *l = &r->link[i];
                    double at = k > 0   ? t->there[n][k][i][s]
                                : n > 0 ? t->there[n - 1][steps][i][1]
                                        : 0;
                    double before = s > 0   ? t->there[n][k + 1][to][0]
                                    : k > 0 ? t->there[n][k][to][1]
                                    : n > 0 ? t->there[n - 1][steps][to][1]
                                            : l->hop_ns;
                    double ns = fmax(at, before - l->hop_ns) +
                                (double)r->slice_bytes * l->ns_per_byte + l->hop_ns;
                    moved = moved || ns > t->there[n][k + 1][to][s];
                    t->there[n][k + 1][to][s] = ns;
                }
    return moved;
}

static void uneven_rings_are_the_least_fixed_point(void)
{
    uint32_t seed = 7;
    for (int draws = 0; draws < 300; draws++) {
        uint32_t n = 2 + (uint32_t)draw(&seed, RANKS_MAX - 1), steps = 2 * (n - 1);
        uint32_t rounds = 1 + (uint32_t)draw(&seed, ROUNDS_MAX);
        ChunkedLink link[RANKS_MAX];
        for (uint32_t i = 0; i < n; i++)
            link[i] = (ChunkedLink){ draw(&seed, 400), 0.001 + draw(&seed, 0.05) };
        ChunkedRing r = { OP_ALL_REDUCE, n, link, n, (uint64_t)rounds * n * 2000, 2000, 1000 };
        uint64_t messages = 0;
        double ns = chunked_ring_ns(&r, &messages), last = 0;
        Times *t = mem_zero(1, sizeof *t);
        while (relax(&r, t, rounds, steps))
            ;
        for (uint32_t i = 0; i < n; i++)
            last = fmax(last, t->there[rounds - 1][steps][i][1]);
        CHECK_NEAR(last, ns, 1e-9);
        CHECK_U64((uint64_t)rounds * steps * n * 2, messages);
        free(t);
    }
}

/* ---- of groups ---- */

static void ideal_groups_cost_what_the_closed_form_says(void)
{
    static const OpKind kinds[] = { OP_ALL_REDUCE, OP_ALL_GATHER, OP_REDUCE_SCATTER };
    World w;
    world_init(&w, 1, 8, 3);
    RankGroup g;
    Err err = { 0 };
    uint64_t messages = 0;
    if (!CHECK(rank_group_open(&g, &w.m, 1, 8, &err)))
        return;
    for (size_t i = 0; i < ARRAY_N(kinds); i++)
        for (uint64_t bytes = 8; bytes < (uint64_t)1 << 34; bytes *= 16) {
            CommCost cost;
            CHECK(rank_group_cost(&cost, &g, kinds[i], bytes, COMM_ANY));
            double ns = chunked_ns(&g, kinds[i], bytes, &cost, &messages);
            CHECK((double)cost.solo_ns >= ns - 1e-6 * ns && (double)cost.solo_ns <= ns + 1.01);
        }
    for (uint64_t bytes = 1 << 14; bytes < (uint64_t)1 << 34;
         bytes *= 16) { /* in 4,096 pieces */
        CommCost cost;
        CHECK(rank_group_cost(&cost, &g, OP_BROADCAST, bytes, COMM_ANY));
        double down = chunked_ns(&g, OP_BROADCAST, bytes, &cost, &messages);
        CHECK(down > 0.999 * (double)cost.solo_ns && down < 1.005 * (double)cost.solo_ns + 7);
        CHECK_NEAR(down, chunked_ns(&g, OP_REDUCE, bytes, &cost, &messages), 1e-9);
    }
    rank_group_close(&g);
}

/* By LL and LL128 a chain passes on line by line, by Simple a whole step at a time. */
static void chains_pass_on_as_their_protocol_does(void)
{
    static const struct {
        Protocol protocol;
        double most;
    } cases[] = { { PROTOCOL_LL, 1.01 }, { PROTOCOL_LL128, 1.01 }, { PROTOCOL_SIMPLE, 3.2 } };
    Machine m;
    RankGroup g;
    Err err = { 0 };
    uint64_t messages = 0, bytes = 4 << 20;
    if (!CHECK(cluster_open(&m, "dgx-h100", 2, NULL, 0, &err)) ||
        !CHECK(rank_group_open(&g, &m, 2, 16, &err)))
        return;
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        CommCost cost;
        CHECK(rank_group_cost(&cost, &g, OP_BROADCAST, bytes,
                              (CommOnly){ ALGORITHM_RING, cases[i].protocol }));
        double ns = chunked_ns(&g, OP_BROADCAST, bytes, &cost, &messages);
        CHECK(ns > 0.99 * (double)cost.solo_ns);
        CHECK(ns < cases[i].most * (double)cost.solo_ns);
    }
    rank_group_close(&g);
    machine_free(&m);
}

/* The last rank has the first piece behind ranks - 1 of them, then the others one by one. */
static void check_few_pieces(uint32_t nodes, uint64_t bytes, double *most)
{
    Machine m;
    RankGroup g;
    CommCost cost;
    Err err = { 0 };
    uint64_t messages = 0;
    uint32_t ranks = 8 * nodes;
    if (!CHECK(cluster_open(&m, "dgx-1", nodes, NULL, 0, &err)) ||
        !CHECK(rank_group_open(&g, &m, nodes, ranks, &err)))
        return;
    CHECK(rank_group_cost(&cost, &g, OP_BROADCAST, bytes,
                          (CommOnly){ ALGORITHM_RING, PROTOCOL_SIMPLE }));
    double ns = chunked_ns(&g, OP_BROADCAST, bytes, &cost, &messages);
    uint64_t pieces = messages / (ranks - 1);
    double times = (double)(pieces + ranks - 2) / (double)pieces;
    CHECK(ns <= times * (double)cost.solo_ns);
    *most = fmax(*most, ns / (double)cost.solo_ns);
    rank_group_close(&g);
    machine_free(&m);
}

static void a_chain_of_few_pieces_grows_with_its_ranks(void)
{
    double most = 0;
    for (uint32_t nodes = 1; nodes <= 4; nodes++)
        for (uint64_t mib = 1; mib <= 256; mib *= 4)
            check_few_pieces(nodes, mib * MIB, &most);
    CHECK(most > 5);
}

static double on_cluster(const char *key, const char *value, OpKind kind, uint64_t bytes,
                         uint64_t *messages)
{
    Machine m;
    RankGroup g;
    CommCost cost;
    Err err = { 0 };
    Setting set = { key, value };
    double ns = NAN;
    if (!CHECK(cluster_open(&m, "dgx-h100", 12, &set, key ? 1 : 0, &err)))
        fprintf(stderr, "    %s\n", err.text);
    else if (CHECK(rank_group_open(&g, &m, 12, 96, &err))) {
        CHECK(rank_group_cost(&cost, &g, kind, bytes,
                              (CommOnly){ ALGORITHM_RING, PROTOCOL_SIMPLE }));
        ns = chunked_ns(&g, kind, bytes, &cost, messages);
        rank_group_close(&g);
    }
    machine_free(&m);
    return ns;
}

/* A link that is no slower than it was keeps nodes from being alike, and changes nothing. */
static void one_node_stands_for_all(void)
{
    static const OpKind kinds[] = { OP_ALL_REDUCE, OP_ALL_GATHER, OP_BROADCAST };
    static const char same[] = "[{\"link\":[7,8],\"GBps\":50}]";
    static const char slow[] = "[{\"link\":[7,8],\"GBps\":5}]";
    for (size_t i = 0; i < ARRAY_N(kinds); i++) {
        uint64_t few = 0, all = 0, bytes = 3 * GIB;
        double folded = on_cluster(NULL, NULL, kinds[i], bytes, &few);
        double whole = on_cluster("stragglers", same, kinds[i], bytes, &all);
        double slowed = on_cluster("stragglers", slow, kinds[i], bytes, &all);
        CHECK_NEAR(folded, whole, 1e-9);
        CHECK(slowed > 1.5 * whole);
        CHECK(kinds[i] == OP_BROADCAST || all > 20 * few);
    }
}

/* One leaf stands for all where its uplinks are fewer than the NICs below. */
static void one_leaf_stands_for_all(void)
{
    uint64_t few = 0, all = 0, bytes = 3 * GIB;
    Machine m;
    RankGroup g;
    CommCost cost;
    Err err = { 0 };
    double ns[2] = { 0 };
    static const char *const links[] = { "[]", "[{\"link\":[7,8],\"GBps\":50}]" };
    for (int i = 0; i < 2; i++) {
        const Setting set[] = { { "inter_node.nodes_per_leaf", "3" },
                                { "inter_node.oversubscription", "8" },
                                { "stragglers", links[i] } };
        if (!CHECK(cluster_open(&m, "dgx-h100", 12, set, 3, &err)) ||
            !CHECK(rank_group_open(&g, &m, 12, 96, &err)))
            return;
        CHECK(rank_group_cost(&cost, &g, OP_ALL_GATHER, bytes,
                              (CommOnly){ ALGORITHM_RING, PROTOCOL_SIMPLE }));
        ns[i] = chunked_ns(&g, OP_ALL_GATHER, bytes, &cost, i ? &all : &few);
        CHECK((double)(i ? all : few) <=
              chunked_messages(&g, OP_ALL_GATHER, bytes, PROTOCOL_SIMPLE));
        rank_group_close(&g);
        machine_free(&m);
    }
    CHECK_NEAR(ns[0], ns[1], 1e-9);
    CHECK_U64(4 * few, all);
    CHECK(ns[0] > 1.05 * on_cluster(NULL, NULL, OP_ALL_GATHER, bytes, &few));
}

/* What a broadcast leaves out is the way back to its root, and a reduce the way from it. */
static void chains_leave_out_one_link(void)
{
    static const ChunkedLink links[] = { { 10, 1 }, { 20, 1 }, { 40, 1 } };
    uint64_t messages = 0;
    ChunkedRing r = { OP_BROADCAST, 3, links, 3, 100, 100, 100 };
    CHECK_NEAR(10 + 20 + 200, chunked_ring_ns(&r, &messages), 1e-12);
    r.kind = OP_REDUCE;
    CHECK_NEAR(20 + 40 + 200, chunked_ring_ns(&r, &messages), 1e-12);
}

/* Nothing is faster than its traffic over the slowest link, nor than the hops of its way. */
static void nothing_is_faster_than_its_links(void)
{
    for (uint64_t bytes = 1; bytes < (uint64_t)1 << 36; bytes *= 32) {
        uint64_t messages = 0;
        double ns = on_cluster(NULL, NULL, OP_ALL_GATHER, bytes, &messages);
        CHECK(ns >= ring_traffic(OP_ALL_GATHER, 96, bytes) / 450);
        CHECK(ns >= 95 * 3400.0); /* Simple, within a node */
    }
}

int main(void)
{
    RUN(whole_parts_meet_the_closed_forms);
    RUN(slices_hide_hops);
    RUN(uneven_rings_are_the_least_fixed_point);
    RUN(ideal_groups_cost_what_the_closed_form_says);
    RUN(chains_pass_on_as_their_protocol_does);
    RUN(a_chain_of_few_pieces_grows_with_its_ranks);
    RUN(one_node_stands_for_all);
    RUN(one_leaf_stands_for_all);
    RUN(chains_leave_out_one_link);
    RUN(nothing_is_faster_than_its_links);
    return check_report();
}

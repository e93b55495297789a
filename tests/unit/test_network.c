/* Closed forms of collectives, and the choice between algorithms. */
#include "sim/network.h"

#include <math.h>

#include "tests/check.h"
#include "tests/small_world.h"

typedef struct Group {
    World w;
    Graph g;
    Classes c;
    uint32_t spec;
} Group;

/* n ranks, per_node on each node. */
static void group_init(Group *x, uint32_t nodes, uint32_t per_node, int64_t hop_ns)
{
    world_init(&x->w, nodes, per_node, hop_ns);
    uint32_t n = nodes * per_node;
    graph_begin(&x->g, n, 1);
    x->spec = graph_group(&x->g, "all", &(GroupDim){ 1, n, 1, n }, 1);
    add(&x->g, 0, kernel(&x->g, LANE_COMPUTE, 1));
    graph_seal(&x->g);
    Err err = { 0 };
    CHECK(classes_make(&x->c, &x->g, &x->w.m, 0, false, &err));
}

static void group_free(Group *x)
{
    classes_free(&x->c);
    graph_free(&x->g);
}

static CommCost cost(const Group *x, OpKind kind, uint64_t bytes)
{
    return collective_cost(&x->w.m, &x->c.groups[0], x->c.resources, kind, bytes, 1);
}

static void ideal_collectives_meet_their_closed_forms(void)
{
    for (uint32_t n = 2; n <= 16; n++) {
        Group x;
        group_init(&x, 1, n, 3);
        uint64_t s = (uint64_t)n * 100000;
        CHECK_INT(2 * (n - 1) * (3 + 1000), cost(&x, OP_ALL_REDUCE, s).solo_ns);
        CHECK_INT((n - 1) * (3 + 1000), cost(&x, OP_ALL_GATHER, s).solo_ns);
        CHECK_INT((n - 1) * (3 + 1000), cost(&x, OP_REDUCE_SCATTER, s).solo_ns);
        CHECK_INT((n - 1) * 3 + n * 1000, cost(&x, OP_BROADCAST, s).solo_ns);
        CHECK_INT(3 + (n - 1) * 1000, cost(&x, OP_ALL_TO_ALL, s).solo_ns);
        group_free(&x);
    }
}

static void bus_bandwidth_factors_are_those_of_nccl_tests(void)
{
    CHECK_NEAR(2.0 * 7 / 8 * 100, ring_traffic(OP_ALL_REDUCE, 8, 100), 1e-12);
    CHECK_NEAR(7.0 / 8 * 100, ring_traffic(OP_ALL_GATHER, 8, 100), 1e-12);
    CHECK_NEAR(7.0 / 8 * 100, ring_traffic(OP_REDUCE_SCATTER, 8, 100), 1e-12);
    CHECK_NEAR(7.0 / 8 * 100, ring_traffic(OP_ALL_TO_ALL, 8, 100), 1e-12);
    CHECK_NEAR(100, ring_traffic(OP_BROADCAST, 8, 100), 1e-12);
    CHECK_NEAR(100, ring_traffic(OP_REDUCE, 8, 100), 1e-12);
    CHECK(ring_traffic(OP_ALL_REDUCE, 1, 100) <= 0);
}

static void efficiency_is_a_cost_on_the_link(void)
{
    Group x;
    group_init(&x, 1, 4, 0);
    classes_free(&x.c);
    x.w.type.intra.efficiency.value[0] = 0.5;
    Err err = { 0 };
    CHECK(classes_make(&x.c, &x.g, &x.w.m, 0, false, &err));
    CHECK_INT(2 * 3000, cost(&x, OP_ALL_GATHER, 400000).solo_ns);
    group_free(&x);
}

/* Real machines: small messages take LL, large ones Simple; trees win where steps are dear. */
static void small_messages_take_ll_and_large_ones_simple(void)
{
    Group x;
    group_init(&x, 1, 8, 0);
    x.w.m.ideal_collectives = false;
    const int64_t base[] = { 6600, 14000, 8400 }, hop[] = { 600, 1900, 3400 };
    for (int p = 0; p < PROTOCOL_N; p++) {
        x.w.m.collective_base_ns[p] = x.w.m.tree_base_ns[p] = base[p];
        x.w.type.intra.hop_ns[p] = hop[p];
    }
    CommCost small = cost(&x, OP_ALL_REDUCE, 1024);
    CHECK_INT(PROTOCOL_LL, (int)small.protocol);
    CHECK(small.solo_ns >= 6600 + 14 * 600);
    CommCost large = cost(&x, OP_ALL_REDUCE, 1 << 30);
    CHECK_INT(PROTOCOL_SIMPLE, (int)large.protocol);
    CHECK_INT(ALGORITHM_RING, (int)large.algorithm);
    group_free(&x);
}

static void trees_win_small_messages_over_many_nodes(void)
{
    Group x;
    group_init(&x, 64, 1, 0);
    x.w.m.ideal_collectives = false;
    for (int p = 0; p < PROTOCOL_N; p++) {
        x.w.m.inter.hop_ns[p] = 3000;
        x.w.m.inter.tree_hop_ns[p] = 5000;
    }
    CHECK_INT(ALGORITHM_TREE, (int)cost(&x, OP_ALL_REDUCE, 4096).algorithm);
    CHECK_INT(ALGORITHM_RING, (int)cost(&x, OP_ALL_REDUCE, 1 << 30).algorithm);
    CHECK_INT(ALGORITHM_RING, (int)cost(&x, OP_ALL_GATHER, 4096).algorithm);
    group_free(&x);
}

/* Nothing is faster than its bytes over its links, whatever the choice. */
static void no_collective_beats_its_links(void)
{
    for (uint32_t nodes = 1; nodes <= 8; nodes *= 2)
        for (uint64_t bytes = 64; bytes <= (uint64_t)1 << 32; bytes *= 8) {
            Group x;
            group_init(&x, nodes, 4, 100);
            x.w.m.ideal_collectives = false;
            for (OpKind k = OP_ALL_REDUCE; k <= OP_ALL_TO_ALL; k++) {
                CommCost c = cost(&x, k, bytes);
                double ports = ring_traffic(k, 4 * nodes, bytes) / WORLD_INTRA;
                CHECK((double)c.solo_ns >= ports);
            }
            group_free(&x);
        }
}

/*
 * nccl-tests on 8 H100 of a DGX (xxrjun/nccl-tests-cluster; all_reduce of NVIDIA's dgxc agrees).
 * A reduce-scatter and an all-gather together take longer than the one pass of an NVLS
 * all-reduce, and no NVLS of theirs would help: by tuning.cc it takes n/(n-1) of the
 * all-reduce's time, where rings take 2/3.
 */
static void eight_h100_take_as_long_as_measured(void)
{
    static const struct {
        OpKind kind;
        uint64_t mib;
        double us;
    } rows[] = {
        { OP_ALL_GATHER, 64, 205.21 },     { OP_ALL_GATHER, 1024, 2719.05 },
        { OP_REDUCE_SCATTER, 64, 197.37 }, { OP_REDUCE_SCATTER, 1024, 2737.18 },
        { OP_ALL_REDUCE, 64, 313.59 },     { OP_ALL_REDUCE, 1024, 4000.82 },
    };
    static const char name[] = "\"dgx-h100\"";
    Group x;
    Machine m;
    Err err = { 0 };
    JsonDoc *doc = json_parse(name, strlen(name), "x", &err);
    CHECK(machine_read(&m, json_root(doc), share_dir(), &err));
    group_init(&x, 1, 8, 0);
    classes_free(&x.c);
    CHECK(classes_make(&x.c, &x.g, &m, 0, false, &err));
    for (size_t i = 0; i < ARRAY_N(rows); i++) {
        CommCost c = collective_cost(&m, &x.c.groups[0], x.c.resources, rows[i].kind,
                                     rows[i].mib << 20, 1);
        CHECK_NEAR(rows[i].us, (double)c.solo_ns / 1e3, 0.06);
        CHECK_INT(rows[i].kind == OP_ALL_REDUCE ? ALGORITHM_NVLS : ALGORITHM_RING,
                  (int)c.algorithm);
    }
    group_free(&x);
    machine_free(&m);
    json_close(doc);
}

/* ---- rings that share NICs ---- */

/* Rings of every groups-th GPU on nodes that are filled one after another. */
typedef struct Rings {
    uint32_t groups, size, nics, ring_nics;
    uint32_t first_node, second_node; /* GPUs on them */
    bool alone;                       /* only one of them goes round */
} Rings;

static uint32_t demands_of(Demand *all, const Rings *x, const Classes *c)
{
    uint32_t n = x->alone ? 1 : c->groups_n;
    for (uint32_t i = 0; i < n; i++)
        all[i] = collective_demand(&c->groups[i], OP_ALL_GATHER);
    return n;
}

/* What each of them gets, in NICs. */
static double ring_rate(Rings x)
{
    World w;
    Graph g;
    Classes c;
    Err err = { 0 };
    Arena arena = { 0 };
    MaxminSpace space;
    Demand all[8];
    double rate[8];
    world_init(&w, 1, x.first_node, 0);
    w.type.intra.bytes_per_ns = 1e6;
    NodeType types[2] = { w.type, w.type };
    types[1].gpus_n = x.second_node;
    types[1].first_node = 1;
    types[1].first_rank = x.first_node;
    w.m.types = types;
    w.m.types_n = 2;
    w.m.nodes_n = 2;
    w.m.gpus_n = x.first_node + x.second_node;
    w.m.inter.nics_per_node = x.nics;
    graph_begin(&g, x.groups * x.size, 1);
    graph_group(&g, "replicas", &(GroupDim){ x.groups, x.size, 1, x.size }, 1);
    add(&g, 0, kernel(&g, LANE_COMPUTE, 1));
    graph_seal(&g);
    CHECK(classes_make(&c, &g, &w.m, x.ring_nics, true, &err));
    uint32_t n = demands_of(all, &x, &c);
    maxmin_space(&space, c.resources_n, &arena);
    maxmin_rates(rate, all, n, c.resources, &space);
    for (uint32_t i = 1; i < n; i++)
        CHECK_NEAR(rate[0], rate[i], 1e-9);
    arena_free(&arena);
    classes_free(&c);
    graph_free(&g);
    return rate[0] / WORLD_INTER;
}

static void rings_may_share_fewer_nics_than_a_node_has(void)
{
    static const struct {
        Rings rings;
        double nics;
    } cases[] = {
        /* Eight GPUs, four NICs: rings of all GPUs, of every second, of every fourth. */
        { { 1, 16, 4, 0, 8, 8, false }, 4 },
        { { 2, 8, 4, 0, 8, 8, false }, 2 },
        { { 4, 4, 4, 0, 8, 8, false }, 1 },
        { { 1, 16, 4, 1, 8, 8, false }, 1 },
        { { 2, 8, 4, 1, 8, 8, false }, 1.0 / 2 },
        { { 4, 4, 4, 1, 8, 8, false }, 1.0 / 4 },
        { { 1, 16, 4, 2, 8, 8, false }, 2 },
        { { 4, 4, 4, 2, 8, 8, false }, 1.0 / 2 },
        /* Alone a ring has all that they share, and of the second node no more NICs than its
         * GPUs there are near to. */
        { { 4, 4, 4, 1, 8, 8, true }, 1 },
        { { 1, 14, 4, 0, 8, 8, false }, 3 },
        { { 1, 14, 4, 1, 8, 8, false }, 1 },
        { { 1, 10, 4, 1, 8, 8, false }, 1 },
        /* One rank a node takes the nearest NIC, which two of them share. */
        { { 8, 2, 4, 0, 8, 8, false }, 1.0 / 2 },
        { { 8, 2, 4, 1, 8, 8, false }, 1.0 / 2 },
        /* There are no more; each GPU has a NIC of its own; on one of two nodes, either. */
        { { 1, 16, 4, 4, 8, 8, false }, 4 },
        { { 1, 16, 8, 1, 8, 8, false }, 8 },
        { { 1, 12, 4, 1, 8, 4, false }, 1 },
        { { 1, 12, 4, 1, 4, 8, false }, 1 },
    };
    for (size_t i = 0; i < ARRAY_N(cases); i++)
        if (!CHECK_NEAR(cases[i].nics, ring_rate(cases[i].rings), 1e-9))
            fprintf(stderr, "case %zu\n", i);
}

/* ---- sends and all-to-alls ---- */

/* The cluster of a text, in groups of per_node GPUs on each of its nodes. */
typedef struct Real {
    Machine m;
    Graph g;
    Classes c;
    uint32_t nodes, per_node;
} Real;

static void real_init(Real *x, const char *json, uint32_t nodes, uint32_t per_node)
{
    Err err = { 0 };
    JsonDoc *doc = json_parse(json, strlen(json), "x", &err);
    *x = (Real){ .nodes = nodes, .per_node = per_node };
    if (!CHECK(doc && machine_read(&x->m, json_root(doc), share_dir(), &err)))
        fprintf(stderr, "    %s\n", err.text);
    json_close(doc);
    uint32_t on_node = x->m.types[0].gpus_n;
    graph_begin(&x->g, nodes * on_node, 1);
    graph_group(&x->g, "all",
                (GroupDim[]){ { 1, on_node, 1, per_node }, { on_node, nodes, 1, nodes } }, 2);
    add(&x->g, 0, kernel(&x->g, LANE_COMPUTE, 1));
    graph_seal(&x->g);
    if (!CHECK(classes_make(&x->c, &x->g, &x->m, 0, false, &err)))
        fprintf(stderr, "    %s\n", err.text);
}

static void real_free(Real *x)
{
    classes_free(&x->c);
    graph_free(&x->g);
    machine_free(&x->m);
}

static CommCost real_cost(const Real *x, OpKind kind, uint64_t bytes)
{
    return collective_cost(&x->m, &x->c.groups[0], x->c.resources, kind, bytes, 1);
}

static double real_us(const Real *x, OpKind kind, uint64_t bytes)
{
    const GroupClass *g = &x->c.groups[0];
    if (kind != OP_SEND)
        return (double)real_cost(x, kind, bytes).solo_ns / 1e3;
    bool same = x->nodes == 1;
    Use uses[RES_RANK_N + 2];
    uint32_t n = classes_p2p_uses(&x->c, classes_of_rank(&x->c, 0),
                                  same ? 1 : x->m.types[0].gpus_n, uses);
    return (double)p2p_cost(&x->m, &x->m.types[0], same, g, &(Demand){ uses, n, 0 },
                            x->c.resources, bytes, 1)
               .solo_ns /
           1e3;
}

/* Links with nothing else: of what a rank sends, what leaves its node goes over its port. */
static void an_all_to_all_across_nodes_takes_what_its_ports_carry(void)
{
    for (uint32_t nodes = 2; nodes <= 8; nodes *= 2)
        for (uint32_t per_node = 1; per_node <= 4; per_node++) {
            Group x;
            group_init(&x, nodes, per_node, 3);
            uint32_t n = nodes * per_node;
            uint64_t share = 50000; /* bytes for each rank */
            double port_ns = (double)(n - per_node) * (double)share / WORLD_INTER;
            double switch_ns = (double)(per_node - 1) * (double)share / WORLD_INTRA;
            CHECK_NEAR(3 + fmax(port_ns, switch_ns),
                       (double)cost(&x, OP_ALL_TO_ALL, n * share).solo_ns, 1e-3);
            group_free(&x);
        }
}

/* Two nodes of up to 8 GPUs, each of one of these kinds. */
static const char *const node_kinds[] = {
    "\"gpu\":\"h100-80gb\",\"intra_node\":{\"kind\":\"nvswitch\",\"GBps\":450}",
    "\"gpu\":\"b200-180gb\",\"intra_node\":{\"kind\":\"nvswitch\",\"GBps\":900}",
    "\"gpu\":\"a100-80gb\",\"intra_node\":{\"kind\":\"nvswitch\",\"GBps\":300}",
    "\"gpu\":\"v100-32gb\",\"intra_node\":{\"kind\":\"nvlink_mesh\",\"GBps\":150}",
    "\"gpu\":\"l40s\",\"intra_node\":{\"kind\":\"pcie\",\"GBps\":32}",
    "\"gpu\":\"mi300x\",\"intra_node\":{\"kind\":\"ring\",\"GBps\":400}",
};

static void two_kinds(Real *x, uint32_t first, uint32_t second, uint32_t per_node)
{
    char json[700];
    snprintf(json, sizeof json,
             "{\"gpus_per_node\":8,\"inter_node\":{\"kind\":\"fat_tree\",\"nics_per_node\":8,"
             "\"GBps_per_nic\":50},\"node_types\":[{\"count\":1,%s},{\"count\":1,%s}]}",
             node_kinds[first], node_kinds[second]);
    real_init(x, json, 2, per_node);
}

/* Whichever comes first; and a switch reduces for both or for none of them. */
static void unlike_nodes_take_as_long_as_the_slower(void)
{
    static const OpKind kinds[] = { OP_ALL_REDUCE, OP_ALL_GATHER, OP_REDUCE_SCATTER,
                                    OP_ALL_TO_ALL, OP_BROADCAST,  OP_SEND };
    for (uint32_t pair = 0; pair < ARRAY_N(node_kinds) * ARRAY_N(node_kinds); pair++)
        for (uint32_t per_node = 1; per_node <= 8; per_node *= 2) {
            uint32_t a = pair / ARRAY_N(node_kinds), b = pair % ARRAY_N(node_kinds);
            Real ab, ba, aa;
            two_kinds(&ab, a, b, per_node);
            two_kinds(&ba, b, a, per_node);
            two_kinds(&aa, a, a, per_node);
            for (size_t k = 0; k < ARRAY_N(kinds); k++)
                for (uint64_t bytes = 64; bytes <= (uint64_t)1 << 32; bytes *= 16) {
                    double us = real_us(&ab, kinds[k], bytes);
                    bool ok = CHECK_NEAR(us, real_us(&ba, kinds[k], bytes), 1e-9);
                    if (kinds[k] != OP_ALL_REDUCE) /* of which NCCL may take a slower one */
                        ok = CHECK(us >= real_us(&aa, kinds[k], bytes)) && ok;
                    if (!ok)
                        fprintf(stderr, "    kinds %u and %u, %u each, op %zu, %" PRIu64 " B\n",
                                (unsigned)a, (unsigned)b, (unsigned)per_node, k, bytes);
                }
            bool both = a < 2 && b < 2 && per_node > 2;
            CommCost large = real_cost(&ab, OP_ALL_REDUCE, 1 << 28);
            CHECK_INT(both, large.algorithm == ALGORITHM_NVLS_TREE);
            real_free(&ab);
            real_free(&ba);
            real_free(&aa);
        }
}

/* An NVLink domain is a node, whatever hosts its GPUs have: all that stays inside goes over NVLink,
 * from 4 GPUs (a tray) to all of a domain; beyond, each GPU has its port of 50 bytes/ns, and rings
 * as many ports as GPUs. */
static void an_nvlink_domain_of_many_trays_is_a_node(void)
{
    static const char json[] =
        "{\"base\":\"gb200-nvl72\",\"nodes\":2,\"gpus_per_node\":64,\"inter_node\":{"
        "\"kind\":\"fat_tree\",\"nics_per_node\":64,\"GBps_per_nic\":50,\"latency_us\":0},"
        "\"collectives\":{\"ideal\":true,\"intra_efficiency\":1,\"inter_efficiency\":1,"
        "\"p2p_efficiency\":1,\"message_us\":0.001}}";
    for (uint32_t nodes = 1; nodes <= 2; nodes++)
        for (uint32_t per_node = 4; per_node <= 64; per_node *= 2) {
            Real x;
            real_init(&x, json, nodes, per_node);
            uint32_t n = nodes * per_node;
            uint64_t share = UINT64_C(100000000); /* bytes for each rank */
            double others = (double)(n - 1) * (double)share;
            double away = (double)(n - per_node) * (double)share;
            double ring_us = others / (nodes == 1 ? 900 : fmin(900, 50.0 * per_node)) / 1e3;
            double direct_us = (nodes == 1 ? others / 900 : away / 50) / 1e3;
            CHECK_NEAR(ring_us, real_us(&x, OP_REDUCE_SCATTER, n * share), 1e-2);
            CHECK_NEAR(ring_us, real_us(&x, OP_ALL_GATHER, n * share), 1e-2);
            CHECK_NEAR(direct_us, real_us(&x, OP_ALL_TO_ALL, n * share), 1e-2);
            real_free(&x);
        }
}

typedef struct MeasuredRow {
    OpKind kind;
    uint32_t nodes, per_node;
    uint64_t mib;
    double us, within; /* the model may be off by so much of it */
} MeasuredRow;

/* nccl-tests on H100 with ports of 400 Gb/s (data/collectives, xxrjun/nccl-tests-cluster). */
static const MeasuredRow h100[] = {
    { OP_ALL_TO_ALL, 1, 4, 16384, 36103.7, 0.06 },
    { OP_ALL_TO_ALL, 1, 8, 16384, 43193.3, 0.05 },
    { OP_ALL_TO_ALL, 2, 2, 16384, 178619, 0.05 },
    { OP_ALL_TO_ALL, 2, 4, 16384, 180140, 0.05 },
    { OP_ALL_TO_ALL, 2, 8, 16384, 174994, 0.07 },
    { OP_ALL_TO_ALL, 10, 1, 16384, 346210, 0.03 },
    { OP_ALL_TO_ALL, 10, 2, 16384, 341262, 0.03 },
    { OP_ALL_TO_ALL, 10, 4, 16384, 338186, 0.03 },
    { OP_ALL_TO_ALL, 10, 8, 16384, 336737, 0.03 },
    { OP_ALL_TO_ALL, 10, 1, 32, 792.6, 0.1 },
    { OP_ALL_TO_ALL, 10, 2, 32, 811.3, 0.07 },
    { OP_ALL_TO_ALL, 10, 8, 32, 970.3, 0.05 },
    { OP_ALL_TO_ALL, 10, 8, 64, 1662.1, 0.05 },
    { OP_SEND, 1, 4, 32, 224.0, 0.2 },
    { OP_SEND, 1, 4, 128, 823.3, 0.02 },
    { OP_SEND, 1, 4, 256, 895.2, 0.07 },
    { OP_SEND, 1, 8, 32, 420.7, 0.05 },
    { OP_SEND, 1, 8, 64, 818.1, 0.05 },
    { OP_SEND, 1, 8, 128, 824.1, 0.05 },
    { OP_SEND, 1, 8, 256, 896.3, 0.07 },
    { OP_SEND, 1, 8, 512, 1509.1, 0.02 },
    { OP_SEND, 1, 8, 16384, 46779.2, 0.04 },
    { OP_SEND, 2, 1, 16384, 392397, 0.06 },
    { OP_SEND, 2, 8, 16384, 374556, 0.02 },
    { OP_SEND, 10, 1, 16384, 691104, 0.02 },
    { OP_SEND, 10, 2, 16384, 681954, 0.02 },
    { OP_SEND, 10, 4, 16384, 655122, 0.06 },
};

static void sends_and_all_to_alls_of_h100_take_as_long_as_measured(void)
{
    for (size_t i = 0; i < ARRAY_N(h100); i++) {
        const MeasuredRow *r = &h100[i];
        char json[80];
        snprintf(json, sizeof json, "{\"base\": \"dgx-h100\", \"nodes\": %u}",
                 (unsigned)r->nodes);
        Real x;
        real_init(&x, json, r->nodes, r->per_node);
        double us = real_us(&x, r->kind, r->mib << 20);
        if (!CHECK_NEAR(r->us, us, r->within))
            fprintf(stderr, "    row %zu: %.1f us, measured %.1f\n", i, us, r->us);
        real_free(&x);
    }
}

/* All-reduces of ten nodes of the same. */
static void all_reduces_of_ten_nodes_of_h100_take_as_long_as_measured(void)
{
    static const struct {
        uint32_t per_node;
        uint64_t mib;
        double us, within;
        Algorithm by;
    } rows[] = {
        { 2, 1024, 20896.5, 0.03, ALGORITHM_RING },
        { 4, 64, 1063.9, 0.06, ALGORITHM_RING },
        { 4, 1024, 10725.2, 0.04, ALGORITHM_RING },
        { 8, 128, 1250.4, 0.04, ALGORITHM_TREE }, /* smaller ones are slower than here */
        { 8, 256, 1888.5, 0.02, ALGORITHM_NVLS_TREE },
        { 8, 512, 3326.9, 0.02, ALGORITHM_NVLS_TREE },
        { 8, 1024, 6148.6, 0.03, ALGORITHM_NVLS_TREE },
        { 8, 2048, 12586.1, 0.08, ALGORITHM_RING },
        { 8, 4096, 27022.2, 0.03, ALGORITHM_RING },
    };
    for (size_t i = 0; i < ARRAY_N(rows); i++) {
        Real x;
        real_init(&x, "{\"base\": \"dgx-h100\", \"nodes\": 10}", 10, rows[i].per_node);
        CommCost c = real_cost(&x, OP_ALL_REDUCE, rows[i].mib << 20);
        double us = (double)c.solo_ns / 1e3;
        if (!CHECK_NEAR(rows[i].us, us, rows[i].within))
            fprintf(stderr, "    row %zu: %.1f us, measured %.1f\n", i, us, rows[i].us);
        CHECK_INT(rows[i].by, (int)c.algorithm);
        real_free(&x);
    }
}

/* Two nodes send each other half their sums twice, more of them two copies; no node is faster than
 * its switch. */
static void trees_of_nodes_take_their_ports_or_their_switch(void)
{
    static const struct {
        uint32_t nodes, nics;
        double bytes_per_ns; /* of the buffer */
    } rows[] = { { 2, 8, 0.5 * 450 },
                 { 2, 4, 4 * 50 },
                 { 3, 8, 8 * 50 / 2.0 },
                 { 16, 4, 4 * 50 / 2.0 },
                 { 16, 64, 0.5 * 450 } };
    uint64_t bytes = (uint64_t)1 << 34;
    for (size_t i = 0; i < ARRAY_N(rows); i++) {
        char json[400];
        snprintf(json, sizeof json,
                 "{\"base\": \"dgx-h100\", \"nodes\": %u, \"inter_node\": "
                 "{\"nics_per_node\": %u}, \"collectives\": {\"nvls_efficiency\": 0.5, "
                 "\"inter_efficiency\": 1, \"nvls_tree_hop_us\": 7}}",
                 (unsigned)rows[i].nodes, (unsigned)rows[i].nics);
        Real x;
        real_init(&x, json, rows[i].nodes, 8);
        CommCost c;
        CHECK(collective_cost_only(&c, &x.m, &x.c.groups[0], x.c.resources, OP_ALL_REDUCE,
                                   bytes, (CommOnly){ ALGORITHM_NVLS_TREE, PROTOCOL_N }));
        int levels = rows[i].nodes == 2 ? 1 : rows[i].nodes == 3 ? 2 : 4;
        double chunks = rows[i].nodes < 4 ? 16 << 20 : 8 << 20; /* of 8 GPUs and 16 channels */
        double ns = 25e3 + 2 * levels * 7e3 +
                    ((double)bytes + 2 * levels * chunks) / rows[i].bytes_per_ns;
        CHECK_NEAR(ns, (double)c.solo_ns, 1e-6);
        CHECK_NEAR((rows[i].nodes > 2 ? 2 : 1) * (double)bytes, c.payload_bytes, 1e-9);
        real_free(&x);
    }
}

/* NCCL's treeCorrectionFactor: between the sizes that it leaves alone they are slower. */
static void trees_of_some_sizes_are_slower_than_their_formula(void)
{
    static const struct {
        uint64_t bytes;
        Protocol p;
        double of;
    } rows[] = {
        { 512, PROTOCOL_LL, 1 },
        { 512 << 10, PROTOCOL_LL, 0.4 },
        { 32 << 20, PROTOCOL_LL128, 0.9 },
        { 1 << 20, PROTOCOL_SIMPLE, 0.5 },
        { 256 << 20, PROTOCOL_SIMPLE, 0.9 },
        { 512 << 20, PROTOCOL_SIMPLE, 1 },
    };
    static const double inflation[PROTOCOL_N] = { 3.8 / 0.92, 128.0 / 120 / 0.92, 1 / 0.92 };
    Real x;
    real_init(&x, "{\"base\": \"dgx-a100\", \"nodes\": 4}", 4, 8);
    for (size_t i = 0; i < ARRAY_N(rows); i++) {
        CommCost c;
        CHECK(collective_cost_only(&c, &x.m, &x.c.groups[0], x.c.resources, OP_ALL_REDUCE,
                                   rows[i].bytes, (CommOnly){ ALGORITHM_TREE, rows[i].p }));
        CHECK_NEAR(2 * (double)rows[i].bytes * inflation[rows[i].p] / rows[i].of,
                   c.traffic_bytes, 1e-9);
    }
    real_free(&x);
}

/* SimuMax's fits of 2 to 8 B200s (alpha-beta-fits.jsonl): a bandwidth in 2^30 bytes/s, a latency
 * for each step, another for the whole.  No message is too small for its formula, but for NCCL's
 * LL: from 32 MiB on. */
static void rings_of_b200_take_as_long_as_their_fits(void)
{
    static const struct {
        OpKind kind;
        double efficiency, step_us, fixed_us, most;
    } fits[] = {
        { OP_ALL_GATHER, 0.6735, 9.1828, 23.1049, 0.14 },
        { OP_REDUCE_SCATTER, 0.6731, 8.0325, 25.5604, 0.10 },
        { OP_ALL_REDUCE, 0.7424, 5.5183, 22.2316, 0.22 }, /* perhaps not a ring */
    };
    for (size_t i = 0; i < ARRAY_N(fits); i++)
        for (uint32_t n = 2; n <= 8; n *= 2) {
            Real x;
            real_init(&x, "{\"base\":\"dgx-b200\",\"intra_node\":{\"nvls\":false}}", 1, n);
            for (uint64_t bytes = 32 * MIB; bytes <= 1024 * MIB; bytes *= 2) {
                double rounds = fits[i].kind == OP_ALL_REDUCE ? 2 : 1;
                double steps = rounds * (n - 1), rate = 0.9 * 1.073741824 * fits[i].efficiency;
                double us = steps / n * (double)bytes / rate / 1e6 + fits[i].step_us * steps +
                            fits[i].fixed_us;
                double off = real_us(&x, fits[i].kind, bytes) / us - 1;
                if (!CHECK(fabs(off) <= fits[i].most))
                    fprintf(stderr, "    %zu: %u ranks, %" PRIu64 " bytes: %.3f\n", i, n, bytes,
                            off);
            }
            real_free(&x);
        }
}

/* Some of a node's GPUs have between them what their own links carry: of a mesh of n each pair has
 * 1/(n - 1) of the port, in a ring of n each neighbour half of it. */
static void some_of_a_mesh_have_the_links_between_them(void)
{
    static const char *const kinds[] = { "nvlink_mesh", "ring", "nvswitch" };
    for (size_t k = 0; k < ARRAY_N(kinds); k++)
        for (uint32_t m = 2; m <= 8; m++) {
            char json[400];
            snprintf(json, sizeof json,
                     "{\"name\":\"direct\",\"nodes\":1,\"gpus_per_node\":8,\"gpu\":\"mi300x\","
                     "\"intra_node\":{\"kind\":\"%s\",\"GBps\":448},"
                     "\"collectives\":{\"ideal\":true}}",
                     kinds[k]);
            Real x;
            real_init(&x, json, 1, m);
            double links = k == 0 ? (m - 1) / 7.0 : k == 1 && m < 8 ? 0.5 : 1;
            uint64_t bytes = (uint64_t)1 << 30;
            double all_reduce_us = 2.0 * (m - 1) / m * (double)bytes / (448e3 * links);
            CHECK_NEAR(all_reduce_us, real_us(&x, OP_ALL_REDUCE, bytes), 1e-6);
            CHECK_NEAR(all_reduce_us / 2, real_us(&x, OP_ALL_TO_ALL, bytes), 1e-6);
            double pair = k == 0 ? 1 / 7.0 : k == 1 ? 0.5 : 1;
            CHECK_NEAR((double)bytes / (448e3 * pair), real_us(&x, OP_SEND, bytes), 1e-6);
            real_free(&x);
        }
}

/* Two V100s reach 0.150 of 6 links of 25 GB/s in rings (vTrain's), which is 0.9 of one link: so
 * much carries a send. */
static void a_send_of_v100_has_the_link_of_its_pair(void)
{
    Real x;
    real_init(&x, "\"dgx-1\"", 1, 2);
    uint64_t bytes = (uint64_t)1 << 30;
    CHECK_NEAR((double)bytes / (0.150 * 150e3), real_us(&x, OP_SEND, bytes), 1e-3);
    CHECK_NEAR((double)bytes / (0.150 * 150e3), real_us(&x, OP_ALL_GATHER, 2 * bytes), 1e-3);
    real_free(&x);

    /* Where two were not measured it is one of seven parts, as of any mesh of eight. */
    real_init(
        &x, "{\"base\":\"dgx-1\",\"collectives\":{\"intra_efficiency\":[[4,0.569],[8,0.897]]}}",
        1, 2);
    CHECK_NEAR((double)bytes / (0.897 / 7 * 150e3), real_us(&x, OP_SEND, bytes), 1e-3);
    real_free(&x);
}

/* Two nodes of 8, before them one of a GPU alone or none; the slow link joins those two. */
static double all_reduce_us_over(bool alone, double slow_GBps)
{
    char json[600];
    snprintf(json, sizeof json,
             "{\"name\":\"slow\",\"node_types\":[%s{\"count\":2,\"gpus_per_node\":8}],"
             "\"gpu\":\"ideal\",\"intra_node\":{\"kind\":\"nvswitch\",\"GBps\":100},"
             "\"inter_node\":{\"kind\":\"fat_tree\",\"nics_per_node\":8,\"GBps_per_nic\":50},"
             "\"collectives\":{\"ideal\":true},"
             "\"stragglers\":[{\"link\":[%d,%d],\"GBps\":%g}]}",
             alone ? "{\"count\":1,\"gpus_per_node\":1}," : "", 7 + alone, 8 + alone,
             slow_GBps);
    Real x;
    real_init(&x, json, alone ? 17 : 2, alone ? 1 : 8);
    double us = real_us(&x, OP_ALL_REDUCE, (uint64_t)1 << 30);
    real_free(&x);
    return us;
}

/* Each of eight NICs carries an eighth of what a ring brings from node to node: a pair's slow link
 * counts when it is slower than its own part, whatever other nodes there are. */
static void a_slow_pair_of_two_nodes_holds_up_its_part_of_the_ring(void)
{
    static const double slow_ratio[][2] = { { 100, 1 }, { 25, 1 }, { 12.5, 1 }, { 6.25, 2 } };
    for (int alone = 0; alone <= 1; alone++) {
        double usual_us = all_reduce_us_over(alone, 100);
        for (size_t i = 0; i < ARRAY_N(slow_ratio); i++)
            CHECK_NEAR(slow_ratio[i][1] * usual_us, all_reduce_us_over(alone, slow_ratio[i][0]),
                       1e-6);
    }
}

/* DataParallel's one process copies by the driver: all the port, whatever NCCL would take. */
static void copies_are_not_limited_by_channels(void)
{
    Real x;
    real_init(&x, "\"dgx-h100\"", 1, 8);
    Use uses[RES_RANK_N + 2];
    uint32_t n = classes_p2p_uses(&x.c, classes_of_rank(&x.c, 0), 1, uses);
    Demand d = { uses, n, 0 };
    uint64_t bytes = (uint64_t)64 << 20;
    CommCost copy = p2p_cost(&x.m, &x.m.types[0], true, NULL, &d, x.c.resources, bytes, 1);
    CommCost send =
        p2p_cost(&x.m, &x.m.types[0], true, &x.c.groups[0], &d, x.c.resources, bytes, 1);
    CHECK_NEAR((double)bytes, copy.traffic_bytes, 1e-9);
    CHECK(copy.solo_ns * 4 < send.solo_ns);
    real_free(&x);
}

/* Among 16 nodes a send has one channel, of 25 GB/s; those to several peers share 0.92 of a port of
 * 50, which sends reach. */
static void a_send_leaves_the_rest_of_the_port_to_others(void)
{
    enum { SENDS = 3 };
    static const double wanted[] = { 25, 46.0 / 2, 46.0 / 3 }; /* by how many there are */
    Real x;
    real_init(&x, "{\"base\":\"dgx-h100\",\"nodes\":16}", 16, 8);
    uint64_t bytes = (uint64_t)64 << 20;
    Use uses[SENDS][RES_RANK_N + 2];
    Demand flow[SENDS];
    double rate[SENDS];
    MaxminSpace space;
    Arena arena = { 0 };
    maxmin_space(&space, x.c.resources_n, &arena);
    for (uint32_t i = 0; i < SENDS; i++) {
        flow[i] = (Demand){ uses[i], classes_p2p_uses(&x.c, 0, 8 * (i + 1), uses[i]), 0 };
        CommCost c = p2p_cost(&x.m, &x.m.types[0], false, &x.c.groups[0], &flow[i],
                              x.c.resources, bytes, 1);
        CHECK_NEAR((double)bytes, c.traffic_bytes, 1e-9);
        CHECK_NEAR(25, c.solo_rate, 1e-9);
        flow[i].cap = c.cap_rate;
        maxmin_rates(rate, flow, i + 1, x.c.resources, &space);
        CHECK_NEAR(wanted[i], rate[0], 0.005);
    }
    arena_free(&arena);
    real_free(&x);
}

/* A peer on another node costs a message: 2 x 4, 8 x 4 and 256 x 4 A100 (ALCF), few bytes. */
static void a_small_all_to_all_costs_a_message_for_each_far_peer(void)
{
    static const struct {
        uint32_t nodes;
        double us, within;
    } rows[] = { { 2, 35.7, 0.25 }, { 8, 125.6, 0.07 }, { 256, 10289, 0.02 } };
    for (size_t i = 0; i < ARRAY_N(rows); i++) {
        char json[200];
        snprintf(json, sizeof json,
                 "{\"base\": \"dgx-a100\", \"nodes\": %u, \"gpus_per_node\": 4}",
                 (unsigned)rows[i].nodes);
        Real x;
        real_init(&x, json, rows[i].nodes, 4);
        CHECK_NEAR(rows[i].us, real_us(&x, OP_ALL_TO_ALL, 4096), rows[i].within);
        real_free(&x);
    }
}

/* ---- what was measured wins ---- */

#define MEASURED_8 \
    "{\"op\":\"all_reduce\",\"ranks\":8,\"nodes\":1,\"latency_us\":100,\"GBps\":10," \
    "\"sizes\":[[1000000,150],[4000000,600]]}"
#define MEASURED_4 \
    "{\"op\":\"all_reduce\",\"ranks\":4,\"nodes\":1,\"latency_us\":50,\"GBps\":20}"
#define ACROSS(ranks, nodes, latency) \
    "{\"op\":\"all_to_all\",\"ranks\":" ranks ",\"nodes\":" nodes ",\"latency_us\":" latency \
    ",\"GBps\":1}"
#define SENDS(ranks, nodes, latency) \
    "{\"op\":\"send_recv\",\"ranks\":" ranks ",\"nodes\":" nodes ",\"latency_us\":" latency \
    ",\"GBps\":1}"
static const char with_measured[] =
    "{\"base\":\"dgx-h100\",\"nodes\":8,\"collectives\":{\"measured\":[" MEASURED_8
    "," MEASURED_4 "," ACROSS("16", "2", "100") "," ACROSS("64", "8", "1600") "," SENDS(
        "16", "2", "7") "," SENDS("4", "2", "9") "," SENDS("8", "1", "3") "]}}";

static void measured_times_stand_for_the_model(void)
{
    static const struct {
        OpKind kind;
        uint32_t nodes, per_node;
        uint64_t bytes;
        double us;
    } rows[] = {
        { OP_ALL_REDUCE, 1, 8, 1000000, 150 },
        { OP_ALL_REDUCE, 1, 8, 2000000, 300 }, /* straight in logarithms */
        { OP_ALL_REDUCE, 1, 4, 2000000, 150 }, /* no points: the line */
        { OP_ALL_TO_ALL, 2, 8, 1000, 101 },
        { OP_ALL_TO_ALL, 4, 8, 1, 400 }, /* half-way between 2 and 8 nodes */
        { OP_SEND, 2, 8, 1000, 10 },     /* of the fewest ranks across */
        { OP_SEND, 1, 8, 1000, 4 },
    };
    for (size_t i = 0; i < ARRAY_N(rows); i++) {
        Real x;
        real_init(&x, with_measured, rows[i].nodes, rows[i].per_node);
        double us = real_us(&x, rows[i].kind, rows[i].bytes);
        if (!CHECK_NEAR(rows[i].us, us, 1e-4))
            fprintf(stderr, "    row %zu\n", i);
        real_free(&x);
    }
}

/* Of 32 MB and more nobody learns what 8 bytes take: the line's latency may be any. */
static void beyond_what_was_measured_the_model_is_as_much_off(void)
{
    static const uint64_t ends[][2] = { { 4000000, 600 }, { 1000000, 150 } };
    static const uint64_t beyond[][2] = { { 4000001, 4000000000 }, { 8, 999999 } };
    Real x, plain;
    real_init(&x, with_measured, 1, 8);
    real_init(&plain, "{\"base\":\"dgx-h100\",\"nodes\":8}", 1, 8);
    for (size_t end = 0; end < 2; end++)
        for (size_t i = 0; i < 2; i++) {
            double slower = (double)ends[end][1] / real_us(&plain, OP_ALL_REDUCE, ends[end][0]);
            CHECK_NEAR(real_us(&plain, OP_ALL_REDUCE, beyond[end][i]) * slower,
                       real_us(&x, OP_ALL_REDUCE, beyond[end][i]), 1e-3);
        }
    real_free(&x);
    real_free(&plain);
}

/* Elsewhere nothing changes: other ops, more or fewer ranks, other numbers on a node. */
static void what_was_not_measured_is_the_models(void)
{
    static const struct {
        OpKind kind;
        uint32_t nodes, per_node;
    } rows[] = { { OP_ALL_GATHER, 1, 8 },
                 { OP_ALL_REDUCE, 1, 2 },
                 { OP_ALL_REDUCE, 2, 8 },
                 { OP_ALL_TO_ALL, 2, 4 },
                 { OP_ALL_TO_ALL, 1, 8 } };
    for (size_t i = 0; i < ARRAY_N(rows); i++) {
        Real x, plain;
        real_init(&x, with_measured, rows[i].nodes, rows[i].per_node);
        real_init(&plain, "{\"base\":\"dgx-h100\",\"nodes\":8}", rows[i].nodes,
                  rows[i].per_node);
        for (uint64_t bytes = 1 << 10; bytes <= 1 << 30; bytes <<= 10)
            CHECK_NEAR(real_us(&plain, rows[i].kind, bytes), real_us(&x, rows[i].kind, bytes),
                       1e-9);
        real_free(&x);
        real_free(&plain);
    }
    Real x;
    real_init(&x, with_measured, 1, 8);
    double three_us = (double)INFINITY, latency_ns;
    for (uint32_t ranks = 4; ranks <= 8; ranks++) { /* between 4 and 8 it falls steadily */
        double ns = machine_measured_ns(&x.m, OP_ALL_REDUCE, ranks, 1, 1000000, &latency_ns);
        CHECK(isfinite(ns) && latency_ns <= ns && (ranks == 4 || ns > three_us));
        three_us = ns;
    }
    CHECK(isnan(machine_measured_ns(&x.m, OP_ALL_REDUCE, 3, 1, 1, &latency_ns)));
    CHECK(isnan(machine_measured_ns(&x.m, OP_ALL_REDUCE, 9, 1, 1, &latency_ns)));
    real_free(&x);
}

/* Trees of two nodes have the buffer once between them, rings nearly twice. */
static void two_nodes_pass_the_buffer_once(void)
{
    Real x;
    uint64_t gib = UINT64_C(1) << 30;
    /* 4 ports of 12.5 bytes/ns, of which rings reach 0.975, and of that trees 0.92. */
    real_init(&x, "{\"base\":\"p4d\",\"nodes\":2}", 2, 8);
    CHECK_INT(ALGORITHM_TREE, real_cost(&x, OP_ALL_REDUCE, 64 * gib).algorithm);
    CHECK_NEAR(64 * (double)gib / (50 * 0.975 * 0.92) / 1e3,
               real_us(&x, OP_ALL_REDUCE, 64 * gib), 1e-3);
    CHECK_NEAR(15.0 / 16 * 64 * (double)gib / (50 * 0.975) / 1e3,
               real_us(&x, OP_ALL_GATHER, 64 * gib), 1e-3);
    double two_us = real_us(&x, OP_ALL_REDUCE, gib);
    real_free(&x);
    /* 8 A100 each, EFA: 35.2 and 70.3 ms (github.com/NVIDIA/nccl/issues/527). */
    real_init(&x, "{\"base\":\"p4d\",\"nodes\":4}", 4, 8);
    CHECK_NEAR(70253.0 / 35215, real_us(&x, OP_ALL_REDUCE, gib) / two_us, 0.15);
    real_free(&x);
    /* Of ports as fast as a channel rings stay, however little of them is reached: 2 x 4 A100 on
     * Slingshot, whose all-reduces and all-gathers of 1 GiB both have 36 GB/s (ALCF). */
    real_init(&x,
              "{\"base\":\"dgx-a100\",\"nodes\":2,\"gpus_per_node\":4,\"inter_node\":{"
              "\"kind\":\"fat_tree\",\"nics_per_node\":2,\"GBps_per_nic\":25},"
              "\"collectives\":{\"inter_efficiency\":0.73}}",
              2, 4);
    CHECK_INT(ALGORITHM_RING, real_cost(&x, OP_ALL_REDUCE, gib).algorithm);
    CHECK_NEAR(51048, real_us(&x, OP_ALL_REDUCE, gib), 0.02);
    CHECK_NEAR(25755, real_us(&x, OP_ALL_GATHER, gib), 0.02);
    real_free(&x);
    /* 192 GB/s, as NVIDIA has (its issue 812). */
    real_init(&x, "{\"base\":\"dgx-a100\",\"nodes\":2}", 2, 8);
    CHECK_INT(ALGORITHM_RING, real_cost(&x, OP_ALL_REDUCE, gib).algorithm);
    CHECK_NEAR(15.0 / 8 * (double)gib / 192 / 1e3, real_us(&x, OP_ALL_REDUCE, gib), 0.02);
    real_free(&x);
}

/* One H100 on each of two nodes, NCCL_ALGO=Tree (github.com/NVIDIA/nccl-tests/issues/232). */
static void a_tree_of_two_ranks_is_as_fast_as_its_port(void)
{
    static const struct {
        uint64_t bytes;
        double us;
    } rows[] = { { 2097152, 113.2 },
                 { 4194304, 154.4 },
                 { 8388608, 231.4 },
                 { 16777216, 420.5 },
                 { 33554432, 812.3 } };
    Real x;
    CommCost cost;
    real_init(&x, "{\"base\":\"dgx-h100\",\"nodes\":2}", 2, 1);
    for (size_t i = 0; i < ARRAY_N(rows); i++) {
        CHECK(collective_cost_only(&cost, &x.m, &x.c.groups[0], x.c.resources, OP_ALL_REDUCE,
                                   rows[i].bytes, (CommOnly){ ALGORITHM_TREE, PROTOCOL_N }));
        CHECK_NEAR(rows[i].us, (double)cost.solo_ns / 1e3, 0.25);
    }
    real_free(&x);
}

/* Between few ranks and many a small collective is all latency, and no more than that: what moves
 * is never less than nothing. */
static void latency_between_entries_is_at_most_the_time(void)
{
    static const char json[] =
        "{\"base\":\"dgx-h100\",\"collectives\":{\"measured\":["
        "{\"op\":\"all_reduce\",\"ranks\":2,\"nodes\":1,\"latency_us\":10,\"GBps\":100,"
        "\"sizes\":[[8,10],[1048576,20]]},"
        "{\"op\":\"all_reduce\",\"ranks\":8,\"nodes\":1,\"latency_us\":100,\"GBps\":100,"
        "\"sizes\":[[8,100],[1048576,110]]}]}}";
    for (uint32_t ranks = 2; ranks <= 8; ranks++) {
        Real x;
        real_init(&x, json, 1, ranks);
        for (uint64_t bytes = 8; bytes <= 1 << 20; bytes <<= 1) {
            double latency_ns,
                ns = machine_measured_ns(&x.m, OP_ALL_REDUCE, ranks, 1, bytes, &latency_ns);
            CommCost cost = real_cost(&x, OP_ALL_REDUCE, bytes);
            CHECK(latency_ns > 0 && latency_ns <= ns);
            CHECK(cost.traffic_bytes >= 0 && cost.latency_ns <= cost.solo_ns);
            CHECK_NEAR(ns, (double)cost.solo_ns, 2 / ns);
        }
        real_free(&x);
    }
}

int main(void)
{
    RUN(ideal_collectives_meet_their_closed_forms);
    RUN(bus_bandwidth_factors_are_those_of_nccl_tests);
    RUN(efficiency_is_a_cost_on_the_link);
    RUN(small_messages_take_ll_and_large_ones_simple);
    RUN(trees_win_small_messages_over_many_nodes);
    RUN(no_collective_beats_its_links);
    RUN(eight_h100_take_as_long_as_measured);
    RUN(rings_may_share_fewer_nics_than_a_node_has);
    RUN(an_all_to_all_across_nodes_takes_what_its_ports_carry);
    RUN(unlike_nodes_take_as_long_as_the_slower);
    RUN(an_nvlink_domain_of_many_trays_is_a_node);
    RUN(sends_and_all_to_alls_of_h100_take_as_long_as_measured);
    RUN(all_reduces_of_ten_nodes_of_h100_take_as_long_as_measured);
    RUN(trees_of_nodes_take_their_ports_or_their_switch);
    RUN(trees_of_some_sizes_are_slower_than_their_formula);
    RUN(rings_of_b200_take_as_long_as_their_fits);
    RUN(some_of_a_mesh_have_the_links_between_them);
    RUN(a_send_of_v100_has_the_link_of_its_pair);
    RUN(a_slow_pair_of_two_nodes_holds_up_its_part_of_the_ring);
    RUN(copies_are_not_limited_by_channels);
    RUN(a_send_leaves_the_rest_of_the_port_to_others);
    RUN(a_small_all_to_all_costs_a_message_for_each_far_peer);
    RUN(measured_times_stand_for_the_model);
    RUN(beyond_what_was_measured_the_model_is_as_much_off);
    RUN(what_was_not_measured_is_the_models);
    RUN(two_nodes_pass_the_buffer_once);
    RUN(a_tree_of_two_ranks_is_as_fast_as_its_port);
    RUN(latency_between_entries_is_at_most_the_time);
    return check_report();
}

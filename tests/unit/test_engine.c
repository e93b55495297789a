/* The engine on graphs whose times can be worked out by hand. */
#include "tests/check.h"
#include "tests/small_world.h"

static SimResult run(World *w, Graph *g, SimOptions options)
{
    SimResult r = { 0 };
    Err err = { 0 };
    graph_seal(g);
    if (!CHECK(sim_run(&r, g, &w->m, &w->sw, &options, &err)))
        fprintf(stderr, "%s\n", err.text);
    return r;
}

static void ops_of_a_lane_run_one_after_another(void)
{
    World w;
    Graph g;
    world_init(&w, 1, 1, 0);
    graph_begin(&g, 1, 1);
    add(&g, 0, kernel(&g, LANE_COMPUTE, 700));
    add(&g, 0, kernel(&g, LANE_COMPUTE, 300));
    SimResult r = run(&w, &g, (SimOptions){ .expanded = true });
    CHECK_INT(1000, r.step_ns);
    CHECK_INT(1000, r.ranks[0].compute_ns);
    CHECK_INT(1000, r.path.compute_ns);
    sim_result_free(&r);
    graph_free(&g);
}

/* Launches cost 50 each: kernel k cannot start before (k + 1) * 50. */
static void short_kernels_wait_for_the_host(void)
{
    World w;
    Graph g;
    world_init(&w, 1, 1, 0);
    w.gpu.launch_ns = 50;
    graph_begin(&g, 1, 1);
    for (int i = 0; i < 10; i++)
        add(&g, 0, kernel(&g, LANE_COMPUTE, 20));
    for (int expanded = 0; expanded < 2; expanded++) {
        SimResult r = run(&w, &g, (SimOptions){ .expanded = expanded });
        CHECK_INT(10 * 50 + 20, r.step_ns);
        CHECK_INT(200, r.ranks[0].compute_ns);
        CHECK_INT(320, r.ranks[0].idle_ns);
        CHECK_INT(500, r.path.launch_ns);
        CHECK_INT(20, r.path.compute_ns);
        sim_result_free(&r);
    }
    /* What the host does before a segment's first op delays all that follows. */
    g.segments[4].host_before = 3;
    SimResult r = run(&w, &g, (SimOptions){ 0 });
    CHECK_INT(13 * 50 + 20, r.step_ns);
    CHECK_INT(650, r.path.launch_ns);
    sim_result_free(&r);
    graph_free(&g);
}

static uint32_t all_ranks(Graph *g)
{
    return graph_group(g, "dp", &(GroupDim){ 1, g->world_n, 1, g->world_n }, 1);
}

/* T = 2(n-1) alpha + 2(n-1)/n S/B. */
static void ring_all_reduce_meets_its_closed_form(void)
{
    for (uint32_t n = 2; n <= 8; n++) {
        World w;
        Graph g;
        uint64_t bytes = 1000 * 100 * n;
        world_init(&w, 1, n, 7);
        graph_begin(&g, n, 1);
        add(&g, 0, transfer(&g, OP_ALL_REDUCE, LANE_REDUCE, all_ranks(&g), bytes));
        SimResult r = run(&w, &g, (SimOptions){ 0 });
        CHECK_U64(1, r.ranks_n);
        CHECK_INT(2 * (n - 1) * 7 + 2 * (n - 1) * 1000, r.step_ns);
        CHECK_INT(r.step_ns, r.ranks[0].exposed_ns);
        sim_result_free(&r);
        graph_free(&g);
    }
}

/* One group of 2 nodes x 4: every NIC carries a quarter of the ring's bytes. */
static void a_ring_across_nodes_uses_all_nics(void)
{
    World w;
    Graph g;
    world_init(&w, 2, 4, 0);
    graph_begin(&g, 8, 1);
    uint64_t bytes = 8000000; /* 14,000,000 through each rank */
    add(&g, 0, transfer(&g, OP_ALL_REDUCE, LANE_REDUCE, all_ranks(&g), bytes));
    SimResult r = run(&w, &g, (SimOptions){ 0 });
    /* NIC: 14e6 / 4 / 50 = 70,000; port: 14e6 / 100 = 140,000 */
    CHECK_INT(140000, r.step_ns);
    sim_result_free(&r);
    graph_free(&g);
}

/* Two nodes of 8 GPUs and 4 NICs of 50: 16 ranks pass on 15,000,000 bytes each. */
static void rings_of_a_stack_may_share_a_nic(void)
{
    static const struct {
        uint32_t ring_nics;
        int64_t ns;
    } cases[] = { { 0, 150000 }, { 1, 300000 }, { 2, 150000 }, { 4, 150000 } };
    for (size_t i = 0; i < ARRAY_N(cases); i++)
        for (int expand = 0; expand < 2; expand++) {
            World w;
            Graph g;
            world_init(&w, 2, 8, 0);
            w.m.inter.nics_per_node = 4;
            w.sw.ring_nics = cases[i].ring_nics;
            graph_begin(&g, 16, 1);
            add(&g, 0, transfer(&g, OP_ALL_GATHER, LANE_GATHER, all_ranks(&g), 16000000));
            SimResult r = run(&w, &g, (SimOptions){ .expand_ranks = expand });
            CHECK_INT(cases[i].ns, r.step_ns); /* a port gives 100, two NICs as well */
            sim_result_free(&r);
            graph_free(&g);
        }
}

/* Two lanes move data at once over the same ports: each gets half. */
static void two_collectives_share_a_port(void)
{
    World w;
    Graph g;
    world_init(&w, 1, 4, 0);
    graph_begin(&g, 4, 1);
    uint32_t all = all_ranks(&g);
    add(&g, 0, transfer(&g, OP_ALL_GATHER, LANE_GATHER, all, 400000));     /* 300,000 bytes */
    add(&g, 0, transfer(&g, OP_REDUCE_SCATTER, LANE_REDUCE, all, 800000)); /* 600,000 */
    SimResult r = run(&w, &g, (SimOptions){ 0 });
    /* both at 50 until the first is done at 6,000; the rest, 300,000, at 100 */
    CHECK_INT(9000, r.step_ns);
    CHECK_INT(2, r.ranks[0].collectives_n);
    for (uint32_t i = 0; i < 2; i++)
        CHECK_INT(r.ranks[0].collectives[i].kind == OP_ALL_GATHER ? 6000 : 9000,
                  r.ranks[0].collectives[i].time_ns);
    sim_result_free(&r);
    graph_free(&g);
}

static void communication_beside_compute_is_overlapped(void)
{
    World w;
    Graph g;
    world_init(&w, 1, 2, 0);
    graph_begin(&g, 2, 1);
    uint32_t all = all_ranks(&g);
    uint32_t a = add(&g, 0, kernel(&g, LANE_COMPUTE, 1000));
    add(&g, 0, transfer(&g, OP_ALL_REDUCE, LANE_REDUCE, all, 150000)); /* 1,500 */
    after(&g, 0, a);
    add(&g, 0, kernel(&g, LANE_COMPUTE, 1000));
    SimResult r = run(&w, &g, (SimOptions){ 0 });
    CHECK_INT(2500, r.step_ns);
    CHECK_INT(2000, r.ranks[0].compute_ns);
    CHECK_INT(1500, r.ranks[0].comm_ns);
    CHECK_INT(1000, r.ranks[0].overlapped_ns);
    CHECK_INT(500, r.ranks[0].exposed_ns);
    CHECK_INT(500, r.ranks[0].collectives[0].exposed_ns);
    sim_result_free(&r);
    graph_free(&g);
}

/* Rank 1 computes at half speed: rank 0 waits in the all-reduce. */
static void a_straggler_makes_the_others_wait(void)
{
    World w;
    Graph g;
    world_init(&w, 1, 4, 0);
    w.stragglers[0] = (Straggler){ 1, 0.5 };
    w.m.stragglers_n = 1;
    graph_begin(&g, 4, 1);
    uint32_t a = add(&g, 0, kernel(&g, LANE_COMPUTE, 1000));
    add(&g, 0, transfer(&g, OP_ALL_REDUCE, LANE_REDUCE, all_ranks(&g), 200000)); /* 3,000 */
    after(&g, 0, a);
    Timeline t = { 0 };
    SimResult r = run(&w, &g, (SimOptions){ .timeline = &t });
    CHECK_U64(2, r.ranks_n);
    CHECK_U64(3, r.ranks[0].ranks_n);
    CHECK_INT(5000, r.step_ns);
    CHECK_INT(4000, r.ranks[0].comm_ns);
    CHECK_INT(3000, r.ranks[1].comm_ns);
    bool seen = false;
    for (uint32_t i = 0; i < t.comms_n; i++)
        seen |= t.comms[i].wait_ns == 1000;
    CHECK(seen);
    timeline_free(&t);
    sim_result_free(&r);
    graph_free(&g);
}

/* F -> send -> F' -> loss side -> send back: two stages, one micro-batch. */
static void stages_wait_for_each_other(void)
{
    World w;
    Graph g;
    world_init(&w, 2, 1, 10);
    w.type.intra.kind = INTRA_NONE;
    graph_begin(&g, 2, 2);
    uint32_t pp = graph_group(&g, "pp", &(GroupDim){ 1, 2, 1, 2 }, 1);
    uint32_t f = add(&g, 0, kernel(&g, LANE_COMPUTE, 100));
    add(&g, 0, p2p(&g, OP_SEND, LANE_SEND_ACT, pp, 1, 5000));
    after(&g, 0, f);
    uint32_t back = add(&g, 0, p2p(&g, OP_RECV, LANE_RECV_GRAD, pp, 1, 5000));
    add(&g, 0, kernel(&g, LANE_COMPUTE, 200));
    after(&g, 0, back);
    uint32_t in = add(&g, 1, p2p(&g, OP_RECV, LANE_RECV_ACT, pp, 0, 5000));
    uint32_t both = add(&g, 1, kernel(&g, LANE_COMPUTE, 300));
    after(&g, 1, in);
    add(&g, 1, p2p(&g, OP_SEND, LANE_SEND_GRAD, pp, 0, 5000));
    after(&g, 1, both);
    SimResult r = run(&w, &g, (SimOptions){ 0 });
    /* 100 + (10 + 100) + 300 + (10 + 100) + 200 */
    CHECK_INT(820, r.step_ns);
    CHECK_INT(300, r.ranks[0].compute_ns);
    CHECK_INT(220, r.ranks[0].comm_ns);
    CHECK_INT(300, r.ranks[0].bubble_ns);
    CHECK_INT(100 + 200, r.ranks[1].bubble_ns);
    CHECK_INT(600, r.path.compute_ns);
    CHECK_INT(220, r.path.comm_ns);
    sim_result_free(&r);
    graph_free(&g);
}

/* Both want to send first on one lane each: 0 waits for 1, 1 for 0. */
static void a_circle_of_sends_is_named(void)
{
    World w;
    Graph g;
    world_init(&w, 1, 2, 0);
    graph_begin(&g, 2, 2);
    uint32_t pp = graph_group(&g, "pp", &(GroupDim){ 1, 2, 1, 2 }, 1);
    for (uint32_t r = 0; r < 2; r++) {
        add(&g, r, p2p(&g, OP_SEND, LANE_SEND_ACT, pp, 1 - r, 100));
        add(&g, r, p2p(&g, OP_RECV, LANE_SEND_ACT, pp, 1 - r, 100));
    }
    graph_seal(&g);
    SimResult r = { 0 };
    Err err = { 0 };
    CHECK(!sim_run(&r, &g, &w.m, &w.sw, &(SimOptions){ 0 }, &err));
    CHECK_ERR_TEXT(&err, "the step cannot finish");
    CHECK_ERR_TEXT(&err, "rank 0 op 0 'send'");
    CHECK_ERR_TEXT(&err, "closes the circle");
    graph_free(&g);
}

static void a_receive_that_nobody_answers_is_named(void)
{
    World w;
    Graph g;
    world_init(&w, 1, 2, 0);
    graph_begin(&g, 2, 2);
    uint32_t pp = graph_group(&g, "pp", &(GroupDim){ 1, 2, 1, 2 }, 1);
    add(&g, 0, p2p(&g, OP_RECV, LANE_RECV_ACT, pp, 1, 100));
    add(&g, 1, kernel(&g, LANE_COMPUTE, 5));
    graph_seal(&g);
    SimResult r = { 0 };
    Err err = { 0 };
    CHECK(!sim_run(&r, &g, &w.m, &w.sw, &(SimOptions){ 0 }, &err));
    CHECK_ERR_TEXT(&err, "rank 1 has nothing that answers");
    graph_free(&g);
}

/* The same order on one lane is fine when both are posted as one group. */
static void grouped_sends_do_not_block(void)
{
    World w;
    Graph g;
    world_init(&w, 1, 2, 0);
    graph_begin(&g, 2, 2);
    uint32_t pp = graph_group(&g, "pp", &(GroupDim){ 1, 2, 1, 2 }, 1);
    for (uint32_t r = 0; r < 2; r++) {
        uint32_t s = graph_segment(&g, SEGMENT_SEND, "both");
        Op send = p2p(&g, OP_SEND, LANE_SEND_ACT, pp, 1 - r, 1000);
        send.grouped = true;
        graph_op(&g, send);
        graph_op(&g, p2p(&g, OP_RECV, LANE_SEND_ACT, pp, 1 - r, 1000));
        role_instance(&g.roles[r], s, NONE_U32, NONE_U32, NONE_U32);
    }
    SimResult r = run(&w, &g, (SimOptions){ 0 });
    CHECK_INT(10, r.step_ns);
    sim_result_free(&r);
    graph_free(&g);
}

/* The host may launch nothing after the gate before the kernel is done. */
static void a_host_wait_holds_launches_back(void)
{
    World w;
    Graph g;
    world_init(&w, 1, 1, 0);
    w.gpu.launch_ns = 10;
    graph_begin(&g, 1, 1);
    uint32_t a = add(&g, 0, kernel(&g, LANE_COMPUTE, 1000));
    Op gate = { .kind = OP_HOST_WAIT, .lane = LANE_HOST, .name = intern(&g.names, "wait") };
    add(&g, 0, gate);
    after(&g, 0, a);
    add(&g, 0, kernel(&g, LANE_COMPUTE, 100));
    SimResult r = run(&w, &g, (SimOptions){ 0 });
    CHECK_INT(10 + 1000 + 10 + 100, r.step_ns);
    CHECK_INT(1100, r.path.compute_ns);
    CHECK_INT(20, r.path.launch_ns);
    sim_result_free(&r);
    graph_free(&g);
}

/* 16 ranks, dp over nodes: one class is looked at, and it is right. */
static void replicas_are_simulated_once(void)
{
    for (uint32_t dp = 2; dp <= 64; dp *= 2) {
        World w;
        Graph g;
        world_init(&w, dp, 4, 5);
        graph_begin(&g, 4 * dp, 1);
        g.replica = (GroupDim){ 4, dp, 1, dp };
        uint32_t d = graph_group(&g, "dp", &(GroupDim){ 4, dp, 1, dp }, 1);
        add(&g, 0, transfer(&g, OP_ALL_REDUCE, LANE_REDUCE, d, 100 * dp));
        SimResult r = run(&w, &g, (SimOptions){ 0 });
        CHECK_U64(1, r.ranks_n);
        CHECK_U64(4 * dp, r.ranks[0].ranks_n);
        CHECK_INT(2 * (dp - 1) * (5 + 2), r.step_ns);
        sim_result_free(&r);
        graph_free(&g);
    }
}

/* Four ranks of a node share two NICs: half the rate for each of their rings. */
static void ranks_share_nics(void)
{
    for (int expand = 0; expand < 2; expand++) {
        World w;
        Graph g;
        world_init(&w, 2, 4, 0);
        w.m.inter.nics_per_node = 2;
        graph_begin(&g, 8, 1);
        uint32_t d = graph_group(&g, "dp", &(GroupDim){ 4, 2, 1, 2 }, 1);
        add(&g, 0, transfer(&g, OP_ALL_REDUCE, LANE_REDUCE, d, 50000));
        SimResult r = run(&w, &g, (SimOptions){ .expand_ranks = expand });
        CHECK_U64(expand ? 8 : 1, r.ranks_n);
        CHECK_INT(2000, r.step_ns);
        sim_result_free(&r);
        graph_free(&g);
    }
}

static void a_slow_link_holds_up_its_ring(void)
{
    World w;
    Graph g;
    world_init(&w, 1, 4, 0);
    w.slow_links[0] = (SlowLink){ 1, 2, 25 };
    w.m.slow_links_n = 1;
    graph_begin(&g, 4, 1);
    add(&g, 0, transfer(&g, OP_ALL_REDUCE, LANE_REDUCE, all_ranks(&g), 100000)); /* 150,000 */
    SimResult r = run(&w, &g, (SimOptions){ 0 });
    CHECK_INT(6000, r.step_ns);
    sim_result_free(&r);
    graph_free(&g);
}

static void more_ranks_than_gpus_is_a_sentence(void)
{
    World w;
    Graph g;
    world_init(&w, 1, 2, 0);
    graph_begin(&g, 4, 1);
    add(&g, 0, kernel(&g, LANE_COMPUTE, 1));
    graph_seal(&g);
    SimResult r = { 0 };
    Err err = { 0 };
    CHECK(!sim_run(&r, &g, &w.m, &w.sw, &(SimOptions){ 0 }, &err));
    CHECK_ERR_TEXT(&err, "has 2 GPUs, 4 are needed");
    graph_free(&g);
}

/* Groups of a dragonfly are leaves: four nodes in two of them, a third of their NICs between. */
static void a_dragonfly_is_a_fat_tree_of_its_groups(void)
{
    static const InterKind kinds[] = { INTER_FAT_TREE, INTER_DRAGONFLY, INTER_FAT_TREE };
    int64_t step[3] = { 0 };
    for (int i = 0; i < 3; i++) {
        World w;
        Graph g;
        world_init(&w, 4, 1, 0);
        w.m.inter.kind = kinds[i];
        w.m.inter.nodes_per_leaf = 2;
        w.m.inter.oversubscription = i < 2 ? 3 : 1;
        graph_begin(&g, 4, 1);
        add(&g, 0, transfer(&g, OP_ALL_REDUCE, LANE_REDUCE, all_ranks(&g), 3000000));
        graph_seal(&g);
        SimResult r = { 0 };
        Err err = { 0 };
        CHECK(sim_run(&r, &g, &w.m, &w.sw, &(SimOptions){ 0 }, &err));
        step[i] = r.step_ns;
        sim_result_free(&r);
        graph_free(&g);
    }
    CHECK_INT(step[0], step[1]);
    CHECK(step[1] > step[2]);
}

static void groups_across_nodes_need_a_network(void)
{
    World w;
    Graph g;
    world_init(&w, 2, 1, 0);
    w.m.inter.kind = INTER_NONE;
    graph_begin(&g, 2, 1);
    add(&g, 0, transfer(&g, OP_ALL_REDUCE, LANE_REDUCE, all_ranks(&g), 100));
    graph_seal(&g);
    SimResult r = { 0 };
    Err err = { 0 };
    CHECK(!sim_run(&r, &g, &w.m, &w.sw, &(SimOptions){ 0 }, &err));
    CHECK_ERR_TEXT(&err, "spans nodes, but inter_node is none");
    w.m.inter.kind = INTER_TORUS;
    err_clear(&err);
    CHECK(!sim_run(&r, &g, &w.m, &w.sw, &(SimOptions){ 0 }, &err));
    CHECK_ERR_TEXT(&err, "'torus' cannot be simulated yet");
    w.m.inter.kind = INTER_FAT_TREE;
    w.m.gpus_n = 2;
    w.m.nodes_n = 1;
    w.type.count = 1;
    w.type.gpus_n = 2;
    w.type.intra.kind = INTRA_NONE;
    err_clear(&err);
    CHECK(!sim_run(&r, &g, &w.m, &w.sw, &(SimOptions){ 0 }, &err));
    CHECK_ERR_TEXT(&err, "but intra_node is none");
    graph_free(&g);
}

static void members_must_agree_on_the_collective(void)
{
    World w;
    Graph g;
    world_init(&w, 1, 2, 0);
    graph_begin(&g, 2, 2);
    uint32_t all = graph_group(&g, "dp", &(GroupDim){ 1, 2, 1, 2 }, 1);
    add(&g, 0, transfer(&g, OP_ALL_REDUCE, LANE_REDUCE, all, 100));
    add(&g, 1, transfer(&g, OP_ALL_REDUCE, LANE_REDUCE, all, 200));
    graph_seal(&g);
    SimResult r = { 0 };
    Err err = { 0 };
    CHECK(!sim_run(&r, &g, &w.m, &w.sw, &(SimOptions){ 0 }, &err));
    CHECK_ERR_TEXT(&err, "in the same group");
    graph_free(&g);
}

static void expanding_too_many_ranks_is_refused(void)
{
    World w;
    Graph g;
    world_init(&w, 1 << 16, 8, 0);
    graph_begin(&g, 1 << 19, 1);
    for (int i = 0; i < 50; i++)
        add(&g, 0, kernel(&g, LANE_COMPUTE, 1));
    graph_seal(&g);
    SimResult r = { 0 };
    Err err = { 0 };
    CHECK(!sim_run(&r, &g, &w.m, &w.sw, &(SimOptions){ .expand_ranks = true }, &err));
    CHECK_ERR_TEXT(&err, "20000000 op instances");
    graph_free(&g);
}

/* ---- one host for several ranks ---- */

/* n ranks, a role each, whose launches cost 50 and come from one thread. */
static void shared_host(World *w, Graph *g, uint32_t n)
{
    world_init(w, 1, n, 0);
    w->gpu.launch_ns = 50;
    graph_begin(g, n, n);
    g->host_group = all_ranks(g);
}

/* Launched: rank 0 at 50, 150, 250, rank 1 at 100, 200, 300 and alone from then on: 350. */
static void a_shared_host_goes_round_its_ranks(void)
{
    World w;
    Graph g;
    shared_host(&w, &g, 2);
    for (uint32_t i = 0; i < 7; i++)
        add(&g, i % 2 || i == 6, kernel(&g, LANE_COMPUTE, 10));
    for (int expanded = 0; expanded < 2; expanded++) {
        SimResult r = run(&w, &g, (SimOptions){ .expanded = expanded });
        CHECK_INT(260, r.ranks[0].end_ns);
        CHECK_INT(360, r.ranks[1].end_ns);
        CHECK_INT(350, r.path.launch_ns);
        CHECK_INT(350, (int64_t)r.ranks[0].launch_bound_ns);
        CHECK_INT(350, (int64_t)r.ranks[1].launch_bound_ns);
        sim_result_free(&r);
    }
    graph_free(&g);
}

/* Segments of two kernels: those of rank 1 are launched when both of rank 0 are, and as one event
 * or two they start no sooner. */
static void whole_instances_are_launched_in_turn(void)
{
    World w;
    Graph g;
    shared_host(&w, &g, 3);
    uint32_t s = graph_segment(&g, SEGMENT_OTHER, "two");
    graph_op(&g, kernel(&g, LANE_COMPUTE, 500));
    graph_op(&g, kernel(&g, LANE_COMPUTE, 10));
    for (uint32_t i = 0; i < 6; i++)
        role_instance(&g.roles[i % 3], s, NONE_U32, NONE_U32, NONE_U32);
    for (int expanded = 0; expanded < 2; expanded++) {
        SimResult r = run(&w, &g, (SimOptions){ .expanded = expanded });
        for (int rank = 0; rank < 3; rank++)
            CHECK_INT(50 + 100 * rank + 2 * 510, r.ranks[rank].end_ns);
        sim_result_free(&r);
    }
    graph_free(&g);
}

/* The host waits for rank 0's kernel, which runs from 50 to 1050, and launches for nobody: rank
 * 1's second kernel is launched at 1100, rank 0's at 1150. */
static void a_host_wait_holds_all_ranks_of_the_host(void)
{
    World w;
    Graph g;
    shared_host(&w, &g, 2);
    uint32_t first = add(&g, 0, kernel(&g, LANE_COMPUTE, 1000));
    Op wait = { .kind = OP_HOST_WAIT, .lane = LANE_HOST, .name = intern(&g.names, "wait") };
    add(&g, 0, wait);
    after(&g, 0, first);
    add(&g, 0, kernel(&g, LANE_COMPUTE, 10));
    for (int i = 0; i < 2; i++)
        add(&g, 1, kernel(&g, LANE_COMPUTE, 10));
    for (int expanded = 0; expanded < 2; expanded++) {
        SimResult r = run(&w, &g, (SimOptions){ .expanded = expanded });
        CHECK_INT(1160, r.ranks[0].end_ns);
        CHECK_INT(1110, r.ranks[1].end_ns);
        CHECK_INT(1010, r.path.compute_ns);
        CHECK_INT(150, r.path.launch_ns);
        sim_result_free(&r);
    }
    graph_free(&g);
}

/* Rank 1's kernel is never launched, as the host waits for rank 0, which waits for rank 1. */
static void a_circle_through_a_shared_host_is_named(void)
{
    World w;
    Graph g;
    shared_host(&w, &g, 2);
    uint32_t met = add(&g, 0, transfer(&g, OP_ALL_REDUCE, LANE_REDUCE, g.host_group, 100));
    add(&g, 1, kernel(&g, LANE_COMPUTE, 10));
    Op wait = { .kind = OP_HOST_WAIT, .lane = LANE_HOST, .name = intern(&g.names, "wait") };
    add(&g, 0, wait);
    after(&g, 0, met);
    add(&g, 1, transfer(&g, OP_ALL_REDUCE, LANE_REDUCE, g.host_group, 100));
    graph_seal(&g);
    SimResult r = { 0 };
    Err err = { 0 };
    CHECK(!sim_run(&r, &g, &w.m, &w.sw, &(SimOptions){ 0 }, &err));
    CHECK_ERR_TEXT(&err, "rank 0 op 1 'wait' (host)");
    CHECK_ERR_TEXT(&err, "rank 1 op 1 'all_reduce' (reduce)");
    CHECK_ERR_TEXT(&err, "which closes the circle");
    graph_free(&g);
}

/* Ranks of one host differ by their turn; hosts are alike, and replicas go over whole hosts. */
static void ranks_of_a_host_are_not_folded(void)
{
    static const struct {
        uint32_t nodes, gpus, hosts, classes;
    } cases[] = { { 4, 1, 1, 4 }, { 1, 4, 1, 4 }, { 4, 2, 4, 2 }, { 1, 8, 2, 4 } };
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        World w;
        Graph g;
        uint32_t ranks = cases[i].nodes * cases[i].gpus, each = ranks / cases[i].hosts;
        world_init(&w, cases[i].nodes, cases[i].gpus, 0);
        w.gpu.launch_ns = 50;
        graph_begin(&g, ranks, 1);
        g.host_group = graph_group(&g, "host", &(GroupDim){ 1, each, 1, each }, 1);
        GroupDim over = { each, cases[i].hosts, 1, cases[i].hosts };
        g.replica = cases[i].hosts > 1 ? over : (GroupDim){ 1, ranks, 1, ranks };
        add(&g, 0, kernel(&g, LANE_COMPUTE, 10));
        for (int expand = 0; expand < 2; expand++) {
            SimResult r = run(&w, &g, (SimOptions){ .expand_ranks = expand });
            CHECK_U64(expand ? ranks : cases[i].classes, r.ranks_n);
            for (uint32_t k = 0; k < r.ranks_n; k++)
                CHECK_INT(50 * (k % each + 1) + 10, r.ranks[k].end_ns);
            sim_result_free(&r);
        }
        graph_free(&g);
    }
}

/* Each rank's host track has its own launches, at their true times. */
static void launches_of_a_shared_host_are_recorded(void)
{
    World w;
    Graph g;
    Timeline t = { 0 };
    shared_host(&w, &g, 2);
    for (uint32_t i = 0; i < 4; i++)
        add(&g, i % 2, kernel(&g, LANE_COMPUTE, 10));
    SimResult r = run(&w, &g, (SimOptions){ .timeline = &t });
    timeline_seal(&t);
    uint32_t launches = 0;
    for (uint32_t i = 0; i < t.spans_n; i++) {
        const Track *track = &t.tracks[t.span_track[i]];
        if (track->kind != TRACK_HOST)
            continue;
        CHECK_INT(100 * (int)t.op[i] + 50 * (int)track->rank, t.start_ns[i]);
        CHECK_INT(50, t.dur_ns[i]);
        launches++;
    }
    CHECK_U64(4, launches);
    timeline_free(&t);
    sim_result_free(&r);
    graph_free(&g);
}

/* A kernel of A alone and S slowed, beside a transfer of T: T A/S of it is done by T, the rest at
 * full speed. */
static void kernels_slow_down_beside_a_transfer(void)
{
    for (int macro = 0; macro < 2; macro++) {
        World w;
        Graph g;
        world_init(&w, 1, 2, 0);
        w.gpu.quantise = true;
        w.gpu.comm_sms = 50;
        w.gpu.comm_memory_factor = 2;
        graph_begin(&g, 2, 1);
        uint32_t all = all_ranks(&g);
        add(&g, 0, transfer(&g, OP_ALL_REDUCE, LANE_REDUCE, all, 50000)); /* 500 */
        Op matmul = kernel(&g, LANE_COMPUTE, 1);
        matmul.u.matmul = (MatmulShape){ .m = 4096, .n = 4096, .k = 4096, .batch = 1 };
        matmul.flops = 2.0 * 4096 * 4096 * 4096;
        add(&g, 0, matmul);
        OpCost c = op_cost(&w.gpu, &matmul, &w.sw);
        CHECK(c.slowed_ns > c.alone_ns);
        double done = 500.0 * (double)c.alone_ns / (double)c.slowed_ns;
        SimResult r = run(&w, &g, (SimOptions){ .expanded = !macro });
        CHECK(fabs(500 + (double)c.alone_ns - done - (double)r.step_ns) <= 1);
        CHECK_INT(500, r.ranks[0].overlapped_ns);
        /* The bound knows: the part that is kept is rounded up to a twentieth. */
        double bound = 0, kept = (double)c.alone_ns / (double)c.slowed_ns;
        Err err = { 0 };
        CHECK(sim_bound(&bound, &g, &w.m, &w.sw, 0, &err));
        CHECK(bound <= (double)r.step_ns + 1);
        CHECK_NEAR((double)c.alone_ns + 500 * (1 - ceil(20 * kept) / 20), bound, 1e-9);
        sim_result_free(&r);
        graph_free(&g);
    }
}

static int64_t jittered(uint64_t seed, double jitter)
{
    World w;
    Graph g;
    world_init(&w, 1, 4, 0);
    w.m.jitter = jitter;
    graph_begin(&g, 4, 1);
    for (int i = 0; i < 200; i++)
        add(&g, 0, kernel(&g, LANE_COMPUTE, 1000));
    SimResult r = run(&w, &g, (SimOptions){ .seed = seed });
    CHECK_U64(jitter > 0 ? 4 : 1, r.ranks_n);
    int64_t step_ns = r.step_ns;
    sim_result_free(&r);
    graph_free(&g);
    return step_ns;
}

static void jitter_is_noise_with_a_seed(void)
{
    CHECK_INT(200000, jittered(1, 0));
    CHECK_INT(jittered(1, 0.05), jittered(1, 0.05));
    CHECK(jittered(1, 0.05) != jittered(2, 0.05));
    CHECK_NEAR(200000, (double)jittered(3, 0.05), 0.03);
}

/* Spans of a lane do not overlap, their classes and ops are those of the graph. */
static void the_timeline_shows_launches_kernels_and_waiting(void)
{
    World w;
    Graph g;
    world_init(&w, 1, 2, 0);
    w.gpu.launch_ns = 10;
    graph_begin(&g, 2, 1);
    uint32_t a = add(&g, 0, kernel(&g, LANE_COMPUTE, 100));
    add(&g, 0, transfer(&g, OP_ALL_REDUCE, LANE_REDUCE, all_ranks(&g), 10000));
    after(&g, 0, a);
    Timeline t = { 0 };
    SimResult r = run(&w, &g, (SimOptions){ .timeline = &t, .expand_ranks = true });
    timeline_seal(&t);
    CHECK_U64(2 * 4, t.tracks_n);
    CHECK_U64(2 * 5, t.spans_n);
    for (uint64_t i = 0; i < t.spans_n; i++) {
        const Track *track = &t.tracks[t.span_track[i]];
        if (track->kind == TRACK_STEPS) {
            CHECK_INT(r.step_ns, t.dur_ns[i]);
            continue;
        }
        bool host = track->kind == TRACK_HOST;
        bool comm = t.op[i] == 1;
        CHECK_INT(host ? SPAN_LAUNCH : comm ? SPAN_COMM : SPAN_COMPUTE, t.span_class[i]);
        CHECK_INT(host ? 10 * (int)t.op[i] : comm ? 110 : 10, t.start_ns[i]);
        CHECK_INT(host ? 10 : 100, t.dur_ns[i]);
    }
    CHECK_INT(r.step_ns, timeline_end_ns(&t));
    timeline_free(&t);
    sim_result_free(&r);
    graph_free(&g);
}

/* ---- sends and receives ---- */

/* Posted together, but the answer needs 300 of the other stage: that wait is bubble. */
static void waiting_between_grouped_transfers_is_bubble(void)
{
    World w;
    Graph g;
    world_init(&w, 1, 2, 0);
    graph_begin(&g, 2, 2);
    uint32_t pp = graph_group(&g, "pp", &(GroupDim){ 1, 2, 1, 2 }, 1);
    uint32_t s = graph_segment(&g, SEGMENT_SEND, "both");
    Op send = p2p(&g, OP_SEND, LANE_SEND_ACT, pp, 1, 5000);
    send.grouped = true;
    graph_op(&g, send);
    graph_op(&g, p2p(&g, OP_RECV, LANE_SEND_ACT, pp, 1, 5000));
    role_instance(&g.roles[0], s, NONE_U32, NONE_U32, NONE_U32);
    add(&g, 0, kernel(&g, LANE_COMPUTE, 100));
    role_edge(&g.roles[0], 0, 0, 1);
    uint32_t in = add(&g, 1, p2p(&g, OP_RECV, LANE_RECV_ACT, pp, 0, 5000));
    uint32_t both = add(&g, 1, kernel(&g, LANE_COMPUTE, 300));
    after(&g, 1, in);
    add(&g, 1, p2p(&g, OP_SEND, LANE_SEND_GRAD, pp, 0, 5000));
    after(&g, 1, both);
    SimResult r = run(&w, &g, (SimOptions){ 0 });
    CHECK_INT(50 + 300 + 50 + 100, r.step_ns);
    CHECK_INT(100, r.ranks[0].comm_ns);
    CHECK_INT(100, r.ranks[0].exposed_ns);
    CHECK_INT(300, r.ranks[0].bubble_ns);
    sim_result_free(&r);
    graph_free(&g);
}

/* Two lanes send to one rank before it has received anything. */
static void sends_are_answered_in_the_order_of_their_posting(void)
{
    World w;
    Graph g;
    world_init(&w, 1, 2, 0);
    graph_begin(&g, 2, 2);
    uint32_t pp = graph_group(&g, "pp", &(GroupDim){ 1, 2, 1, 2 }, 1);
    add(&g, 0, p2p(&g, OP_SEND, LANE_SEND_ACT, pp, 1, 1000));
    add(&g, 0, p2p(&g, OP_SEND, LANE_SEND_GRAD, pp, 1, 2000));
    uint32_t k = add(&g, 1, kernel(&g, LANE_COMPUTE, 50));
    add(&g, 1, p2p(&g, OP_RECV, LANE_RECV_ACT, pp, 0, 1000));
    after(&g, 1, k);
    add(&g, 1, p2p(&g, OP_RECV, LANE_RECV_ACT, pp, 0, 2000));
    SimResult r = run(&w, &g, (SimOptions){ 0 });
    CHECK_INT(50 + 10 + 20, r.step_ns);
    sim_result_free(&r);
    graph_free(&g);
}

static void a_slow_link_may_be_listed_often(void)
{
    World w;
    Graph g;
    SlowLink links[20];
    world_init(&w, 1, 2, 0);
    for (uint32_t i = 0; i < 20; i++)
        links[i] = (SlowLink){ 0, 1, 20 - i };
    w.m.slow_links = links;
    w.m.slow_links_n = 20;
    graph_begin(&g, 2, 2);
    uint32_t pp = graph_group(&g, "pp", &(GroupDim){ 1, 2, 1, 2 }, 1);
    add(&g, 0, p2p(&g, OP_SEND, LANE_SEND_ACT, pp, 1, 1000));
    add(&g, 1, p2p(&g, OP_RECV, LANE_RECV_ACT, pp, 0, 1000));
    SimResult r = run(&w, &g, (SimOptions){ 0 });
    CHECK_INT(1000, r.step_ns);
    sim_result_free(&r);
    graph_free(&g);
}

/* ---- graphs that cannot finish ---- */

typedef struct Duel {
    World w;
    Graph g;
    uint32_t pair; /* group of both ranks */
} Duel;

/* Two ranks, each with its own program. */
static void duel_init(Duel *d)
{
    world_init(&d->w, 1, 2, 0);
    graph_begin(&d->g, 2, 2);
    d->pair = graph_group(&d->g, "pair", &(GroupDim){ 1, 2, 1, 2 }, 1);
}

/* Runs to an error that says all of these, NULL at the end. */
static void duel_fails(Duel *d, const char *const *words)
{
    graph_seal(&d->g);
    SimResult r = { 0 };
    Err err = { 0 };
    CHECK(!sim_run(&r, &d->g, &d->w.m, &d->w.sw, &(SimOptions){ 0 }, &err));
    for (; *words; words++)
        CHECK_ERR_TEXT(&err, *words);
    graph_free(&d->g);
}

static Op named(Graph *g, Op op, const char *name)
{
    op.name = intern(&g->names, name);
    return op;
}

static void a_collective_missing_on_one_member_is_named(void)
{
    Duel d;
    duel_init(&d);
    add(&d.g, 0, transfer(&d.g, OP_ALL_REDUCE, LANE_REDUCE, d.pair, 100));
    add(&d.g, 1, kernel(&d.g, LANE_COMPUTE, 5));
    duel_fails(&d, (const char *[]){ "rank 0 op 0 'all_reduce' (reduce)",
                                     "rank 1 has nothing that answers", NULL });
}

/* Both are in a collective, but not in the same one. */
static void collectives_in_another_order_are_named(void)
{
    Duel d;
    duel_init(&d);
    uint32_t other = graph_group(&d.g, "other", &(GroupDim){ 1, 2, 1, 2 }, 1);
    Op a = named(&d.g, transfer(&d.g, OP_ALL_REDUCE, LANE_REDUCE, d.pair, 100), "first");
    Op b = named(&d.g, transfer(&d.g, OP_ALL_REDUCE, LANE_REDUCE, other, 100), "second");
    add(&d.g, 0, a);
    add(&d.g, 0, b);
    add(&d.g, 1, b);
    add(&d.g, 1, a);
    duel_fails(&d, (const char *[]){ "rank 0 op 0 'first'", "rank 1 op 0 'second'",
                                     "closes the circle", NULL });
}

/* The host of rank 0 waits for what rank 1 sends only in answer to a later launch. */
static void a_circle_through_a_host_wait_is_named(void)
{
    Duel d;
    duel_init(&d);
    Graph *g = &d.g;
    uint32_t in = add(g, 0, p2p(g, OP_RECV, LANE_RECV_ACT, d.pair, 1, 100));
    Op gate = { .kind = OP_HOST_WAIT, .lane = LANE_HOST, .name = intern(&g->names, "wait") };
    add(g, 0, gate);
    after(g, 0, in);
    add(g, 0, p2p(g, OP_SEND, LANE_SEND_ACT, d.pair, 1, 100));
    uint32_t answer = add(g, 1, p2p(g, OP_RECV, LANE_RECV_ACT, d.pair, 0, 100));
    add(g, 1, p2p(g, OP_SEND, LANE_SEND_ACT, d.pair, 0, 100));
    after(g, 1, answer);
    duel_fails(&d, (const char *[]){ "rank 0 op 1 'wait' (host)", "rank 1 op 0 'recv'",
                                     "closes the circle", NULL });
}

/* Of two receives posted together the second is never answered. */
static void the_unanswered_one_of_a_group_is_named(void)
{
    Duel d;
    duel_init(&d);
    Graph *g = &d.g;
    uint32_t s = graph_segment(g, SEGMENT_RECV, "both");
    Op one = named(g, p2p(g, OP_RECV, LANE_RECV_ACT, d.pair, 1, 100), "one");
    Op two = named(g, p2p(g, OP_RECV, LANE_RECV_ACT, d.pair, 1, 100), "two");
    one.grouped = true;
    two.u.comm.tag = 1;
    graph_op(g, one);
    graph_op(g, two);
    role_instance(&g->roles[0], s, NONE_U32, NONE_U32, NONE_U32);
    add(g, 1, p2p(g, OP_SEND, LANE_SEND_ACT, d.pair, 0, 100));
    duel_fails(&d, (const char *[]){ "rank 0 op 1 'two'", "rank 1 has nothing", NULL });
}

static void both_ends_must_agree_on_the_size(void)
{
    Duel d;
    duel_init(&d);
    add(&d.g, 0, p2p(&d.g, OP_SEND, LANE_SEND_ACT, d.pair, 1, 100));
    add(&d.g, 1, p2p(&d.g, OP_RECV, LANE_RECV_ACT, d.pair, 0, 200));
    duel_fails(&d, (const char *[]){ "'send' of 100 bytes", "'recv' of 200 bytes", NULL });
}

static void nobody_sends_to_himself(void)
{
    Duel d;
    duel_init(&d);
    add(&d.g, 0, p2p(&d.g, OP_SEND, LANE_SEND_ACT, d.pair, 0, 100));
    duel_fails(&d,
               (const char *[]){ "rank 0: 'send' goes to a rank of the same program", NULL });
}

static void only_members_join_a_group(void)
{
    for (int sends = 0; sends < 2; sends++) {
        Duel d;
        duel_init(&d);
        uint32_t alone = graph_group(&d.g, "alone", &(GroupDim){ 1, 2, 2, 1 }, 1);
        Op op = sends ? p2p(&d.g, OP_SEND, LANE_SEND_ACT, alone, 0, 100)
                      : transfer(&d.g, OP_ALL_REDUCE, LANE_REDUCE, alone, 100);
        add(&d.g, 1, op);
        duel_fails(&d,
                   (const char *[]){ "rank 1: '", "a group that the rank is not in", NULL });
    }
}

/* ---- numbers at their ends ---- */

/* A group of one, or nothing to send: what is left is the launch, and the latency. */
static void empty_transfers_cost_their_launch(void)
{
    for (int expanded = 0; expanded < 2; expanded++) {
        World w;
        Graph g;
        world_init(&w, 1, 2, 0);
        w.gpu.launch_ns = 10;
        graph_begin(&g, 2, 1);
        uint32_t one = graph_group(&g, "one", &(GroupDim){ 1, 1, 1, 1 }, 1),
                 all = all_ranks(&g);
        uint32_t s = graph_segment(&g, SEGMENT_FORWARD, "block");
        graph_op(&g, kernel(&g, LANE_COMPUTE, 1000));
        graph_op(&g, transfer(&g, OP_ALL_REDUCE, LANE_COMPUTE, one, UINT64_MAX));
        graph_op(&g, transfer(&g, OP_ALL_GATHER, LANE_COMPUTE, all, 0));
        graph_op(&g, kernel(&g, LANE_COMPUTE, 1000));
        role_instance(&g.roles[0], s, NONE_U32, NONE_U32, NONE_U32);
        add(&g, 0, transfer(&g, OP_REDUCE_SCATTER, LANE_REDUCE, one, 100));
        SimResult r = run(&w, &g, (SimOptions){ .expanded = expanded });
        CHECK_INT(10 + 2000, r.step_ns);
        CHECK_U64(3, r.ranks[0].collectives_n);
        CHECK_INT(0, r.ranks[0].comm_ns);
        for (uint32_t i = 0; i < r.ranks[0].collectives_n; i++)
            CHECK_U64(1, r.ranks[0].collectives[i].count);
        sim_result_free(&r);
        graph_free(&g);
    }
}

static void days_and_exabytes_are_exact_enough(void)
{
    const int64_t day_ns = (int64_t)86400 * 1000000000;
    for (int expanded = 0; expanded < 2; expanded++) {
        World w;
        Graph g;
        world_init(&w, 1, 2, 0);
        graph_begin(&g, 2, 1);
        uint32_t k = add(&g, 0, kernel(&g, LANE_COMPUTE, (uint64_t)(3 * day_ns)));
        add(&g, 0, transfer(&g, OP_ALL_GATHER, LANE_REDUCE, all_ranks(&g), (uint64_t)1 << 63));
        after(&g, 0, k);
        SimResult r = run(&w, &g, (SimOptions){ .expanded = expanded });
        double expect = 3 * (double)day_ns + ldexp(1, 62) / WORLD_INTRA;
        CHECK_NEAR(expect, (double)r.step_ns, 1e-12);
        sim_result_free(&r);
        graph_free(&g);
    }
}

static void a_step_of_centuries_is_a_sentence(void)
{
    for (int comm = 0; comm < 2; comm++) {
        Duel d;
        duel_init(&d);
        d.w.type.intra.bytes_per_ns = 1e-6;
        for (uint32_t r = 0; r < 2; r++)
            for (int i = 0; i < 20; i++)
                add(&d.g, r,
                    comm ? transfer(&d.g, OP_ALL_REDUCE, LANE_REDUCE, d.pair, (uint64_t)1 << 50)
                         : kernel(&d.g, LANE_COMPUTE, (uint64_t)1 << 58));
        duel_fails(&d, (const char *[]){ "the step takes longer than 30 years", NULL });
    }
}

/* ---- shortcuts that must not show ---- */

/* Shards of 4 over nodes of 3: no shift by less than 12 ranks leaves nodes and shards alone. */
static void parts_of_replicas_fold_right(void)
{
    int64_t step_ns[2];
    for (int expand = 0; expand < 2; expand++) {
        World w;
        Graph g;
        world_init(&w, 4, 3, 0);
        w.m.inter.nics_per_node = 1;
        graph_begin(&g, 12, 1);
        g.replica = (GroupDim){ 1, 12, 1, 12 };
        uint32_t shard = graph_group(&g, "shard", &(GroupDim){ 1, 4, 1, 4 }, 1);
        add(&g, 0, transfer(&g, OP_ALL_GATHER, LANE_GATHER, shard, 400000));
        SimResult r = run(&w, &g, (SimOptions){ .expand_ranks = expand });
        step_ns[expand] = r.step_ns;
        sim_result_free(&r);
        graph_free(&g);
    }
    CHECK_INT(step_ns[1], step_ns[0]);
    /* the middle shard shares both its NICs: 300,000 bytes at 50 / 2 */
    CHECK_INT(12000, step_ns[1]);
}

/* The tp lane is free long before the block's last kernel ends. */
static void a_lane_goes_on_before_the_end_of_a_block(void)
{
    for (int expanded = 0; expanded < 2; expanded++) {
        World w;
        Graph g;
        world_init(&w, 1, 2, 0);
        graph_begin(&g, 2, 1);
        uint32_t all = all_ranks(&g);
        uint32_t s = graph_segment(&g, SEGMENT_FORWARD, "block");
        uint32_t k = graph_op(&g, kernel(&g, LANE_COMPUTE, 100));
        graph_op(&g, transfer(&g, OP_ALL_REDUCE, LANE_TP, all, 20000)); /* 200 */
        graph_dep(&g, k);
        graph_op(&g, kernel(&g, LANE_COMPUTE, 1000));
        role_instance(&g.roles[0], s, NONE_U32, NONE_U32, NONE_U32);
        add(&g, 0, transfer(&g, OP_ALL_REDUCE, LANE_TP, all, 300000)); /* 3,000 */
        SimResult r = run(&w, &g, (SimOptions){ .expanded = expanded });
        CHECK_INT(100 + 200 + 3000, r.step_ns);
        sim_result_free(&r);
        graph_free(&g);
    }
}

/* Nodes of two.  The parameters of the next block are gathered over the network, so this block's
 * own gather there takes twice its 500; it cannot be one event, its parts before and behind the
 * gather are, with their all-reduces inside the node. */
static void parts_of_a_block_are_events_beside_other_traffic(void)
{
    uint64_t events[2];
    for (int expanded = 0; expanded < 2; expanded++) {
        World w;
        Graph g;
        world_init(&w, 2, 2, 0);
        graph_begin(&g, 4, 1);
        uint32_t tp = graph_group(&g, "tp", &(GroupDim){ 1, 2, 1, 2 }, 1);
        uint32_t cp = graph_group(&g, "cp", &(GroupDim){ 2, 2, 1, 2 }, 1);
        add(&g, 0, transfer(&g, OP_ALL_GATHER, LANE_GATHER, cp, 100000)); /* 1,000 alone */
        uint32_t s = graph_segment(&g, SEGMENT_FORWARD, "block");
        graph_op(&g, kernel(&g, LANE_COMPUTE, 100));
        for (uint32_t i = 1; i < 9; i += 2) {
            graph_op(&g, i == 3
                             ? transfer(&g, OP_ALL_GATHER, LANE_CP, cp, 50000)   /* 500 alone */
                             : transfer(&g, OP_ALL_REDUCE, LANE_TP, tp, 20000)); /* 200 */
            graph_dep(&g, i - 1);
            graph_op(&g, kernel(&g, LANE_COMPUTE, 100));
            graph_dep(&g, i);
        }
        role_instance(&g.roles[0], s, NONE_U32, NONE_U32, NONE_U32);
        SimResult r = run(&w, &g, (SimOptions){ .expanded = expanded });
        events[expanded] = r.events;
        CHECK_INT(5 * 100 + 3 * 200 + 2 * 500, r.step_ns);
        CHECK_INT(500, r.ranks[0].compute_ns);
        for (uint32_t i = 0; i < r.ranks[0].collectives_n; i++) {
            const CollectiveStat *c = &r.ranks[0].collectives[i];
            CHECK_U64(c->kind == OP_ALL_REDUCE ? 3 : 2, c->count);
            if (c->kind == OP_ALL_REDUCE)
                CHECK_INT(3 * 200, c->exposed_ns);
        }
        sim_result_free(&r);
        graph_free(&g);
    }
    CHECK(events[0] + 6 <= events[1]);
}

int main(void)
{
    RUN(ops_of_a_lane_run_one_after_another);
    RUN(short_kernels_wait_for_the_host);
    RUN(ring_all_reduce_meets_its_closed_form);
    RUN(a_ring_across_nodes_uses_all_nics);
    RUN(rings_of_a_stack_may_share_a_nic);
    RUN(two_collectives_share_a_port);
    RUN(communication_beside_compute_is_overlapped);
    RUN(a_straggler_makes_the_others_wait);
    RUN(stages_wait_for_each_other);
    RUN(a_circle_of_sends_is_named);
    RUN(a_receive_that_nobody_answers_is_named);
    RUN(grouped_sends_do_not_block);
    RUN(a_host_wait_holds_launches_back);
    RUN(replicas_are_simulated_once);
    RUN(ranks_share_nics);
    RUN(a_slow_link_holds_up_its_ring);
    RUN(more_ranks_than_gpus_is_a_sentence);
    RUN(a_dragonfly_is_a_fat_tree_of_its_groups);
    RUN(groups_across_nodes_need_a_network);
    RUN(members_must_agree_on_the_collective);
    RUN(expanding_too_many_ranks_is_refused);
    RUN(kernels_slow_down_beside_a_transfer);
    RUN(jitter_is_noise_with_a_seed);
    RUN(the_timeline_shows_launches_kernels_and_waiting);
    RUN(waiting_between_grouped_transfers_is_bubble);
    RUN(sends_are_answered_in_the_order_of_their_posting);
    RUN(a_slow_link_may_be_listed_often);
    RUN(a_collective_missing_on_one_member_is_named);
    RUN(collectives_in_another_order_are_named);
    RUN(a_circle_through_a_host_wait_is_named);
    RUN(a_shared_host_goes_round_its_ranks);
    RUN(whole_instances_are_launched_in_turn);
    RUN(a_host_wait_holds_all_ranks_of_the_host);
    RUN(a_circle_through_a_shared_host_is_named);
    RUN(ranks_of_a_host_are_not_folded);
    RUN(launches_of_a_shared_host_are_recorded);
    RUN(the_unanswered_one_of_a_group_is_named);
    RUN(both_ends_must_agree_on_the_size);
    RUN(nobody_sends_to_himself);
    RUN(only_members_join_a_group);
    RUN(empty_transfers_cost_their_launch);
    RUN(days_and_exabytes_are_exact_enough);
    RUN(a_step_of_centuries_is_a_sentence);
    RUN(parts_of_replicas_fold_right);
    RUN(a_lane_goes_on_before_the_end_of_a_block);
    RUN(parts_of_a_block_are_events_beside_other_traffic);
    return check_report();
}

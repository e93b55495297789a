/*
 * Link counters of simulated timelines: closed forms, sharing, and both files they go through.
 *
 * On the small world's links (100 bytes/ns a port, 50 a NIC) loads can be worked out by hand.
 */
#include "tests/check.h"
#include "tests/small_world.h"
#include "traces/formats.h"
#include "traces/set.h"

#include <unistd.h>

typedef struct Run {
    World w;
    Graph g;
    Timeline t;
    SimResult r;
} Run;

static void run(Run *x, SimOptions options)
{
    Err err = { 0 };
    options.timeline = &x->t;
    graph_seal(&x->g);
    if (!CHECK(sim_run(&x->r, &x->g, &x->w.m, &x->w.sw, &options, &err)))
        fprintf(stderr, "%s\n", err.text);
    timeline_seal(&x->t);
    CHECK(timeline_check(&x->t, &err));
    CHECK_INT(x->r.step_ns, timeline_end_ns(&x->t));
}

static void give_back(Run *x)
{
    timeline_free(&x->t);
    sim_result_free(&x->r);
    graph_free(&x->g);
}

/* The counters of a rank, their names joined by '|'. */
static const char *names_of(const Timeline *t, uint32_t rank)
{
    static char text[400];
    text[0] = 0;
    for (uint32_t k = 0; k < t->tracks_n; k++)
        if (t->tracks[k].kind == TRACK_COUNTER && t->tracks[k].rank == rank) {
            size_t used = strlen(text);
            snprintf(text + used, sizeof text - used, "%s%s", used ? "|" : "",
                     timeline_text(t, t->tracks[k].name));
        }
    return text;
}

static const Track *counter(const Timeline *t, uint32_t rank, const char *name)
{
    for (uint32_t k = 0; k < t->tracks_n; k++)
        if (t->tracks[k].kind == TRACK_COUNTER && t->tracks[k].rank == rank &&
            strcmp(timeline_text(t, t->tracks[k].name), name) == 0)
            return &t->tracks[k];
    CHECK_STR(name, names_of(t, rank));
    return NULL;
}

/* percent is by point: { at_ns, value } ... */
static void check_points(const Timeline *t, uint32_t rank, const char *name, size_t n,
                         const double (*point)[2])
{
    const Track *k = counter(t, rank, name);
    if (!k || !CHECK_U64(n, k->point_n))
        return;
    for (size_t i = 0; i < n; i++) {
        CHECK_INT((int64_t)point[i][0], t->point_ns[k->point_first + i]);
        CHECK_NEAR(point[i][1], t->point_value[k->point_first + i], 1e-9);
    }
}

#define CHECK_POINTS(t, rank, name, ...) \
    check_points((t), (rank), (name), \
                 sizeof((const double[][2]){ __VA_ARGS__ }) / (2 * sizeof(double)), \
                 (const double[][2]){ __VA_ARGS__ })

static double carried_bytes(const Timeline *t, const Track *k, double bytes_per_ns)
{
    double sum = 0;
    for (uint64_t i = k->point_first; i + 1 < k->point_first + k->point_n; i++)
        sum += t->point_value[i] / 100 * bytes_per_ns *
               (double)(t->point_ns[i + 1] - t->point_ns[i]);
    return sum;
}

static uint32_t all_ranks(Graph *g)
{
    return graph_group(g, "dp", &(GroupDim){ 1, g->world_n, 1, g->world_n }, 1);
}

static const char port[] = "NVLink out/in, % of 100 GB/s";

/* Full from the end of the latency to the end: 2(n-1)/n of the bytes, whatever n. */
static void a_ring_fills_its_ports_with_its_closed_form(void)
{
    for (uint32_t n = 2; n <= 8; n++)
        for (int odd = 0; odd < 2; odd++) {
            Run x = { 0 };
            uint64_t bytes = 1000 * 100 * n + 37 * (uint64_t)odd;
            world_init(&x.w, 1, n, 7);
            graph_begin(&x.g, n, 1);
            add(&x.g, 0, transfer(&x.g, OP_ALL_REDUCE, LANE_REDUCE, all_ranks(&x.g), bytes));
            run(&x, (SimOptions){ .links = true, .expand_ranks = true });
            double rounds = 2 * (n - 1), start_ns = 7 * rounds, end_ns = (double)x.r.step_ns;
            double each = rounds / n * (double)bytes;
            for (uint32_t rank = 0; rank < n; rank++) {
                CHECK_POINTS(&x.t, rank, port, { 0, 0 },
                             { start_ns, each / (end_ns - start_ns) }, { end_ns, 0 });
                const Track *k = counter(&x.t, rank, port);
                if (k)
                    CHECK_NEAR(each, carried_bytes(&x.t, k, WORLD_INTRA), 1e-6);
            }
            if (!odd)
                CHECK_INT((int64_t)(start_ns + 1000 * rounds), x.r.step_ns);
            give_back(&x);
        }
}

/* What links do not reach shows: a ring at 80 % of the port, NVLS at 60. */
static void a_full_link_shows_what_collectives_make_of_it(void)
{
    Run x = { 0 };
    world_init(&x.w, 1, 4, 0);
    x.w.type.intra.efficiency.value[0] = 0.8;
    graph_begin(&x.g, 4, 1);
    add(&x.g, 0, transfer(&x.g, OP_ALL_GATHER, LANE_GATHER, all_ranks(&x.g), 320000));
    run(&x, (SimOptions){ .links = true });
    CHECK_POINTS(&x.t, 0, port, { 0, 80 }, { 3000, 0 }); /* 240,000 at 80 */
    give_back(&x);

    x = (Run){ 0 };
    world_init(&x.w, 1, 4, 0);
    x.w.m.ideal_collectives = false;
    x.w.type.intra.efficiency.value[0] = 0.8;
    x.w.type.intra.nvls = true;
    x.w.type.intra.nvls_efficiency = (RankCurve){ 1, { 8 }, { 0.6 } };
    graph_begin(&x.g, 4, 1);
    add(&x.g, 0, transfer(&x.g, OP_ALL_REDUCE, LANE_REDUCE, all_ranks(&x.g), 6000000));
    run(&x, (SimOptions){ .links = true });
    CHECK_POINTS(&x.t, 0, port, { 0, 60 }, { 100000, 0 }); /* 6,000,000 at 60 */
    give_back(&x);
}

/* Two stages on two nodes: one sends over its NIC, nothing comes back. */
static void a_send_loads_one_end_out_and_the_other_in(void)
{
    Run x = { 0 };
    world_init(&x.w, 2, 1, 11);
    graph_begin(&x.g, 2, 2);
    uint32_t line = all_ranks(&x.g);
    add(&x.g, 0, kernel(&x.g, LANE_COMPUTE, 500));
    add(&x.g, 0, p2p(&x.g, OP_SEND, LANE_SEND_ACT, line, 1, 100000));
    after(&x.g, 0, 0);
    add(&x.g, 1, p2p(&x.g, OP_RECV, LANE_RECV_ACT, line, 0, 100000));
    run(&x, (SimOptions){ .links = true });
    CHECK_STR("NIC out, % of 50 GB/s", names_of(&x.t, 0));
    CHECK_STR("NIC in, % of 50 GB/s", names_of(&x.t, 1));
    CHECK_POINTS(&x.t, 0, "NIC out, % of 50 GB/s", { 0, 0 }, { 511, 100 }, { 2511, 0 });
    CHECK_POINTS(&x.t, 1, "NIC in, % of 50 GB/s", { 0, 0 }, { 511, 100 }, { 2511, 0 });
    give_back(&x);
}

/* Shares change when one ends, the sum does not: two points. */
static void flows_that_share_a_link_add_up_to_it(void)
{
    for (int expand = 0; expand < 2; expand++) {
        Run x = { 0 };
        world_init(&x.w, 1, 4, 0);
        graph_begin(&x.g, 4, 1);
        uint32_t all = all_ranks(&x.g);
        add(&x.g, 0, transfer(&x.g, OP_ALL_GATHER, LANE_GATHER, all, 400000));
        add(&x.g, 0, transfer(&x.g, OP_REDUCE_SCATTER, LANE_REDUCE, all, 800000));
        run(&x, (SimOptions){ .links = true, .expand_ranks = expand });
        CHECK_POINTS(&x.t, 0, port, { 0, 100 }, { 9000, 0 });
        give_back(&x);
    }
}

/*
 * Two ranks of a node share a NIC of 50; each sends to its twin on the other node, 100,000
 * and 300,000 bytes: 25 each until 4,000, then 50 for 200,000.  Both show the whole NIC.
 */
static void ranks_that_share_a_nic_show_all_of_it(void)
{
    Run x = { 0 };
    world_init(&x.w, 2, 2, 0);
    x.w.m.inter.nics_per_node = 1;
    graph_begin(&x.g, 4, 4);
    uint32_t all = all_ranks(&x.g);
    for (uint32_t r = 0; r < 2; r++) {
        uint64_t bytes = 100000 + 200000 * r;
        add(&x.g, r, p2p(&x.g, OP_SEND, LANE_SEND_ACT, all, r + 2, bytes));
        add(&x.g, r + 2, p2p(&x.g, OP_RECV, LANE_RECV_ACT, all, r, bytes));
    }
    run(&x, (SimOptions){ .links = true });
    for (uint32_t r = 0; r < 2; r++) {
        CHECK_POINTS(&x.t, r, "NIC out, % of 50 GB/s", { 0, 100 }, { 8000, 0 });
        CHECK_POINTS(&x.t, r + 2, "NIC in, % of 50 GB/s", { 0, 100 }, { 8000, 0 });
    }
    give_back(&x);
}

/* A slow pair in a ring holds all back; its link is full, the ports are not. */
static void a_slow_link_has_a_row_on_both_its_ranks(void)
{
    Run x = { 0 };
    world_init(&x.w, 1, 4, 0);
    x.w.slow_links[0] = (SlowLink){ 1, 2, 25 };
    x.w.m.slow_links_n = 1;
    graph_begin(&x.g, 4, 1);
    add(&x.g, 0, transfer(&x.g, OP_ALL_GATHER, LANE_GATHER, all_ranks(&x.g), 400000));
    run(&x, (SimOptions){ .links = true, .expand_ranks = true });
    for (uint32_t r = 0; r < 4; r++)
        CHECK_POINTS(&x.t, r, port, { 0, 25 }, { 12000, 0 });
    for (uint32_t r = 1; r < 3; r++)
        CHECK_POINTS(&x.t, r, "link 1-2, % of 25 GB/s", { 0, 100 }, { 12000, 0 });
    CHECK_STR(port, names_of(&x.t, 0));
    give_back(&x);
}

static void links_are_called_what_they_are(void)
{
    static const struct {
        IntraKind kind;
        GpuGeneration generation;
        const char *name;
    } rows[] = {
        { INTRA_NVSWITCH, GPU_HOPPER, "NVLink out/in, % of 112.5 GB/s" },
        { INTRA_NVLINK_MESH, GPU_VOLTA, "NVLink out/in, % of 112.5 GB/s" },
        { INTRA_NVLINK_MESH, GPU_CDNA3, "xGMI out/in, % of 112.5 GB/s" },
        { INTRA_PCIE, GPU_ADA, "PCIe out/in, % of 112.5 GB/s" },
        { INTRA_RING, GPU_OTHER, "GPU ring out/in, % of 112.5 GB/s" },
        { INTRA_SHARED_MEMORY, GPU_OTHER, "shared memory out/in, % of 112.5 GB/s" },
    };
    for (size_t i = 0; i < ARRAY_N(rows); i++) {
        Run x = { 0 };
        world_init(&x.w, 1, 2, 0);
        x.w.type.intra.kind = rows[i].kind;
        x.w.type.intra.bytes_per_ns = 112.5;
        x.w.gpu.generation = rows[i].generation;
        graph_begin(&x.g, 2, 1);
        add(&x.g, 0, transfer(&x.g, OP_ALL_GATHER, LANE_GATHER, all_ranks(&x.g), 4000));
        run(&x, (SimOptions){ .links = true });
        CHECK_STR(rows[i].name, names_of(&x.t, 0));
        give_back(&x);
    }
}

/* Across leaves that are oversubscribed three times: the uplinks are the narrow place. */
static void leaves_have_rows_where_they_can_be_narrow(void)
{
    Run x = { 0 };
    world_init(&x.w, 2, 1, 0);
    x.w.m.inter.nodes_per_leaf = 1;
    x.w.m.inter.oversubscription = 2;
    graph_begin(&x.g, 2, 1);
    add(&x.g, 0, transfer(&x.g, OP_ALL_GATHER, LANE_GATHER, all_ranks(&x.g), 100000));
    run(&x, (SimOptions){ .links = true });
    CHECK_STR("NIC out/in, % of 50 GB/s|leaf up/down, % of 25 GB/s", names_of(&x.t, 0));
    CHECK_POINTS(&x.t, 0, "NIC out/in, % of 50 GB/s", { 0, 50 }, { 2000, 0 });
    CHECK_POINTS(&x.t, 0, "leaf up/down, % of 25 GB/s", { 0, 100 }, { 2000, 0 });
    give_back(&x);
}

static void nothing_is_recorded_that_nobody_asked_for(void)
{
    Run x = { 0 };
    world_init(&x.w, 1, 2, 0);
    graph_begin(&x.g, 2, 1);
    uint32_t all = all_ranks(&x.g);
    add(&x.g, 0, transfer(&x.g, OP_ALL_GATHER, LANE_GATHER, all, 4000));
    run(&x, (SimOptions){ 0 });
    CHECK_STR("", names_of(&x.t, 0));
    give_back(&x);

    x = (Run){ 0 }; /* no bytes, no row */
    world_init(&x.w, 1, 2, 9);
    graph_begin(&x.g, 2, 1);
    all = all_ranks(&x.g);
    add(&x.g, 0, transfer(&x.g, OP_ALL_GATHER, LANE_GATHER, all, 0));
    run(&x, (SimOptions){ .links = true });
    CHECK_STR("", names_of(&x.t, 0));
    give_back(&x);
}

/* ---- files ---- */

static void check_same_counters(const Timeline *a, const Timeline *b)
{
    uint32_t seen = 0;
    for (uint32_t i = 0; i < a->tracks_n; i++) {
        const Track *x = &a->tracks[i];
        if (x->kind != TRACK_COUNTER)
            continue;
        seen++;
        const Track *y = counter(b, x->rank, timeline_text(a, x->name));
        if (!y || !CHECK_U64(x->point_n, y->point_n))
            continue;
        for (uint64_t k = 0; k < x->point_n; k++) {
            CHECK_INT(a->point_ns[x->point_first + k], b->point_ns[y->point_first + k]);
            CHECK(a->point_value[x->point_first + k] == b->point_value[y->point_first + k]);
        }
    }
    CHECK_U64(2, seen);
}

static void check_round_trip(const Timeline *t, const char *ending)
{
    char path[64];
    snprintf(path, sizeof path, P_tmpdir "/lockstep-links-XXXXXX%s", ending);
    int fd = mkstemps(path, (int)strlen(ending));
    const char *file = path;
    Err err = { 0 };
    TraceSet back = { 0 };
    CHECK(fd >= 0 && close(fd) == 0);
    bool read =
        CHECK(trace_write(t, path, &err)) && CHECK(trace_set_read(&back, &file, 1, NULL, &err));
    if (read) {
        check_same_counters(t, &back.timeline);
        trace_set_free(&back);
    } else {
        fprintf(stderr, "%s\n", err.text);
    }
    unlink(path);
}

/* Values of many digits, to the last bit. */
static void counters_come_back_from_both_formats(void)
{
    Run x = { 0 };
    world_init(&x.w, 2, 2, 7);
    x.w.m.inter.efficiency = 0.83;
    graph_begin(&x.g, 4, 1);
    uint32_t all = all_ranks(&x.g);
    for (uint64_t i = 1; i < 20; i++)
        add(&x.g, 0,
            transfer(&x.g, i % 3 ? OP_ALL_REDUCE : OP_ALL_TO_ALL,
                     i % 2 ? LANE_REDUCE : LANE_GATHER, all, 10007 * i));
    run(&x, (SimOptions){ .links = true });
    CHECK_STR("NVLink out/in, % of 100 GB/s|NIC out/in, % of 50 GB/s", names_of(&x.t, 0));
    check_round_trip(&x.t, ".lstrace");
    check_round_trip(&x.t, ".json");
    check_round_trip(&x.t, ".json.gz");
    give_back(&x);
}

int main(void)
{
    RUN(a_ring_fills_its_ports_with_its_closed_form);
    RUN(a_full_link_shows_what_collectives_make_of_it);
    RUN(a_send_loads_one_end_out_and_the_other_in);
    RUN(flows_that_share_a_link_add_up_to_it);
    RUN(ranks_that_share_a_nic_show_all_of_it);
    RUN(a_slow_link_has_a_row_on_both_its_ranks);
    RUN(links_are_called_what_they_are);
    RUN(leaves_have_rows_where_they_can_be_narrow);
    RUN(nothing_is_recorded_that_nobody_asked_for);
    RUN(counters_come_back_from_both_formats);
    return check_report();
}

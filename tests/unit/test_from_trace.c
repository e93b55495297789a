/* A recorded step again: the replay of a simulated step takes as long, and what changes moves. */
#include <math.h>
#include <string.h>

#include "sim/from_trace.h"
#include "tests/built.h"

/* ---- from a scenario to its trace, and to its replay ---- */

typedef struct Source {
    Timeline t;
    int64_t step_ns;
    uint32_t gpus;
} Source;

static bool source_set(Source *s, const char *scenario, const Setting *set, uint32_t set_n,
                       bool expand_ranks)
{
    Built b;
    SimResult r = { 0 };
    *s = (Source){ 0 };
    bool ok = built_read(&b, scenario, set, set_n) && built_trace(&s->t, &r, &b, expand_ranks);
    s->step_ns = r.step_ns;
    s->gpus = b.s.parallel.gpus;
    sim_result_free(&r);
    built_free(&b);
    return ok;
}

static bool source_of(Source *s, const char *scenario, const char *key, const char *value,
                      bool expand_ranks)
{
    return source_set(s, scenario, &(Setting){ key, value }, key ? 1 : 0, expand_ranks);
}

static uint32_t windows_of(const Timeline *t, int64_t to_ns, TraceWindow *windows, uint32_t cap)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->tracks_n && n < cap; i++)
        if (t->tracks[i].kind == TRACK_STEPS)
            windows[n++] = (TraceWindow){ .rank = t->tracks[i].rank, .to_ns = to_ns };
    return n;
}

/* Step of the replay, 0 with err where there is none.  On `machine`, or as recorded. */
static int64_t replay_on(const Source *s, const FromTraceOptions *o, const Machine *machine,
                         FromTrace *f, Err *err)
{
    TraceWindow windows[64];
    uint32_t n = windows_of(&s->t, s->step_ns, windows, 64);
    Machine m = { 0 };
    SimResult r = { 0 };
    Timeline t = { 0 };
    Software sw = { .name = "test", .host_scale = 1, .compute_scale = 1, .comm_scale = 1 };
    if (!from_trace_build(f, &s->t, windows, n, o, err))
        return 0;
    from_trace_machine(&m, f->world_n);
    SimOptions options = { .expanded = true, .timeline = &t, .given = &f->given };
    bool ok = sim_run(&r, &f->graph, machine ? machine : &m, &sw, &options, err);
    int64_t step_ns = ok ? r.step_ns : 0;
    sim_result_free(&r);
    timeline_free(&t);
    machine_free(&m);
    return step_ns;
}

static int64_t replay(const Source *s, const FromTraceOptions *o, FromTrace *f, Err *err)
{
    return replay_on(s, o, NULL, f, err);
}

static void check_replay(const char *scenario, bool expand_ranks)
{
    Source s;
    FromTrace f = { 0 };
    FromTraceOptions o = { 0 };
    Err err = { 0 };
    if (source_of(&s, scenario, NULL, NULL, expand_ranks)) {
        int64_t step_ns = replay(&s, &o, &f, &err);
        CHECK(!err.set);
        CHECK_INT(s.step_ns, f.measured_ns);
        CHECK_INT(s.step_ns, step_ns);
        CHECK_U64(s.gpus, f.world_n);
        CHECK_U64(0, f.unlaunched_n);
    }
    from_trace_free(&f);
    timeline_free(&s.t);
}

static void the_replay_of_a_simulated_step_takes_as_long(void)
{
    check_replay("scenarios/examples/toy-mlp-ddp.json", false);
    check_replay("scenarios/examples/gpt2-ddp.json", false);
    check_replay("scenarios/examples/resnet50-ddp.json", false);
    check_replay("scenarios/examples/llama3-8b-fsdp.json", false);
    check_replay("scenarios/examples/llama3-8b-tp.json", false);
}

static void all_ranks_of_it_too(void)
{
    check_replay("scenarios/examples/gpt2-ddp.json", true);
    check_replay("scenarios/examples/llama3-8b-tp.json", true);
}

/* One rank is slow: the others wait for it in the replay as they did. */
static void ranks_wait_for_the_slow_one(void)
{
    Source s;
    FromTrace f = { 0 };
    FromTraceOptions o = { 0 };
    Err err = { 0 };
    if (source_of(&s, "scenarios/examples/gpt2-ddp.json", "cluster.stragglers",
                  "[{\"ranks\":[3],\"compute\":0.8}]", true)) {
        CHECK_INT(s.step_ns, replay(&s, &o, &f, &err));
        CHECK_U64(8, f.ranks_n);
    }
    from_trace_free(&f);
    timeline_free(&s.t);
}

/* ---- sends ---- */

#define GPT2 "scenarios/examples/gpt2-ddp.json"

static const Setting pipelines[][6] = {
    { { "parallel.pp", "4" },
      { "parallel.dp", "2" },
      { "training.global_batch", "64" },
      { "training.micro_batch", "4" },
      { "parallel.schedule", "1f1b" },
      { "parallel.virtual_stages", "1" } },
    { { "parallel.pp", "4" },
      { "parallel.dp", "2" },
      { "training.global_batch", "64" },
      { "training.micro_batch", "4" },
      { "parallel.schedule", "gpipe" },
      { "parallel.virtual_stages", "1" } },
    { { "parallel.pp", "4" },
      { "parallel.dp", "2" },
      { "training.global_batch", "64" },
      { "training.micro_batch", "4" },
      { "parallel.schedule", "interleaved" },
      { "parallel.virtual_stages", "2" } },
};

/* Stages wait for one another's messages as they did, to the nanosecond. */
static void sends_meet_their_receives(void)
{
    for (size_t i = 0; i < ARRAY_N(pipelines); i++) {
        Source s;
        FromTrace f = { 0 };
        FromTraceOptions o = { 0 };
        Err err = { 0 };
        if (source_set(&s, GPT2, pipelines[i], 6, true)) {
            CHECK_INT(s.step_ns, replay(&s, &o, &f, &err));
            if (!CHECK(!err.set))
                fprintf(stderr, "    %s\n", err.text);
            CHECK(f.pairs_n > 0);
            CHECK_U64(0, f.alone_n);
        }
        from_trace_free(&f);
        timeline_free(&s.t);
    }
}

/* The peer of one send is not known: between these two nothing is matched, all else is. */
static void sends_whose_other_end_is_not_known_keep_their_time(void)
{
    Source s;
    FromTrace f = { 0 }, all = { 0 };
    FromTraceOptions o = { 0 };
    Err err = { 0 };
    if (source_set(&s, GPT2, pipelines[0], 6, true)) {
        CHECK(replay(&s, &o, &all, &err) > 0);
        uint32_t one = NONE_U32;
        for (uint32_t i = 0; i < s.t.comms_n && one == NONE_U32; i++)
            if (strcmp(timeline_text(&s.t, s.t.comms[i].op), "send") == 0)
                one = i;
        s.t.comms[one].peer = NONE_U32;
        CHECK_INT(s.step_ns, replay(&s, &o, &f, &err));
        CHECK(f.alone_n > 0 && f.pairs_n > 0);
        CHECK_U64(2 * all.pairs_n, 2 * f.pairs_n + f.alone_n);
    }
    from_trace_free(&all);
    from_trace_free(&f);
    timeline_free(&s.t);
}

/* On another network the replay says what the simulator says of it, within a bound: what a kernel
 * waited for is not in a trace unless it waited, so the replay may be too fast. */
static double check_network(const char *scenario, const Setting *settings, uint32_t n,
                            const char *cluster, double within)
{
    Source was, other;
    FromTrace f = { 0 };
    FromTraceOptions o = { .on_machine = true };
    Err err = { 0 };
    Machine m = { 0 };
    Setting set[8] = { { "cluster", cluster } };
    if (n)
        memcpy(set + 1, settings, n * sizeof *set);
    double off = NAN;
    JsonDoc *doc = json_parse(cluster, strlen(cluster), "cluster", &err);
    if (CHECK(doc && machine_read(&m, json_root(doc), share_dir(), &err)) &&
        source_set(&was, scenario, set + 1, n, true) &&
        source_set(&other, scenario, set, n + 1, false)) {
        int64_t step_ns = replay_on(&was, &o, &m, &f, &err);
        CHECK(other.step_ns > was.step_ns + was.step_ns / 20); /* there is something to say */
        off = (double)step_ns / (double)other.step_ns - 1;
        if (!CHECK(fabs(off) < within))
            fprintf(stderr, "    %s: %s: %.4f\n", scenario, cluster, off);
        timeline_free(&was.t);
        timeline_free(&other.t);
    }
    from_trace_free(&f);
    machine_free(&m);
    json_close(doc);
    return off;
}

static void another_network_is_as_the_simulator_has_it(void)
{
    static const char slow[] = "{\"base\":\"dgx-a100\",\"intra_node\":{\"GBps\":5}}";
    static const char nodes[] = "{\"base\":\"dgx-a100\",\"nodes\":4,\"gpus_per_node\":2,"
                                "\"inter_node\":{\"nics_per_node\":1}}";
    for (size_t i = 0; i < ARRAY_N(pipelines); i++) {
        double a = check_network(GPT2, pipelines[i], 6, slow, 0.06);
        double b = check_network(GPT2, pipelines[i], 6, nodes, 0.03);
        printf("test_from_trace: %s on two other networks: %+.1f %%, %+.1f %%\n",
               pipelines[i][4].value, 100 * a, 100 * b);
    }
    static const char h100[] = "{\"base\":\"dgx-h100\",\"nodes\":8,\"gpus_per_node\":1,"
                               "\"inter_node\":{\"nics_per_node\":1,\"GBps_per_nic\":20}}";
    double fsdp = check_network("scenarios/examples/llama3-8b-fsdp.json", NULL, 0, h100, 0.02);
    printf("test_from_trace: FSDP on another network: %+.1f %%\n", 100 * fsdp);
}

/* What is no collective of the simulator's takes on any network the time that it took. */
static void what_is_not_simulated_keeps_its_time(void)
{
    static const char slow[] = "{\"base\":\"dgx-a100\",\"intra_node\":{\"GBps\":5}}";
    Source was;
    FromTrace f = { 0 }, g = { 0 };
    FromTraceOptions as_it_is = { 0 }, o = { .on_machine = true };
    Err err = { 0 };
    Machine m = { 0 };
    JsonDoc *doc = json_parse(slow, strlen(slow), "cluster", &err);
    if (CHECK(doc && machine_read(&m, json_root(doc), share_dir(), &err)) &&
        source_of(&was, GPT2, NULL, NULL, true)) {
        for (uint32_t i = 0; i < was.t.comms_n; i++)
            was.t.comms[i].op = intern(&was.t.names, "gather");
        CHECK_INT(replay(&was, &as_it_is, &f, &err), replay_on(&was, &o, &m, &g, &err));
        CHECK(g.comms_n > 0);
        CHECK_U64(g.comms_n, g.unsized_n);
        timeline_free(&was.t);
    }
    from_trace_free(&f);
    from_trace_free(&g);
    machine_free(&m);
    json_close(doc);
}

/* What the simulator says of other buckets is what the replay with other buckets says, within the
 * stated bound: tensors are not in the trace, so where a bucket ends is a guess. */
static void check_buckets(const char *scenario, const char *text, uint64_t bytes)
{
    Source was, other;
    FromTrace f = { 0 };
    FromTraceOptions o = { .bucket_bytes = bytes };
    Err err = { 0 };
    if (source_of(&was, scenario, NULL, NULL, false) &&
        source_of(&other, scenario, "parallel.bucket_bytes", text, false)) {
        int64_t step_ns = replay(&was, &o, &f, &err);
        CHECK_NEAR((double)other.step_ns, (double)step_ns, 0.002);
        CHECK(f.buckets_after > 0 && f.buckets_before > 0);
        CHECK(bytes <= 25 * MIB || f.buckets_after < f.buckets_before);
        CHECK(bytes >= 25 * MIB || f.buckets_after > f.buckets_before);
    }
    from_trace_free(&f);
    timeline_free(&was.t);
    timeline_free(&other.t);
}

static void other_buckets_are_as_the_simulator_has_them(void)
{
    static const char *const names[] = { "scenarios/examples/gpt2-ddp.json",
                                         "scenarios/examples/resnet50-ddp.json" };
    for (size_t i = 0; i < ARRAY_N(names); i++) {
        check_buckets(names[i], "5MiB", 5 * MIB);
        check_buckets(names[i], "10MiB", 10 * MIB);
        check_buckets(names[i], "50MiB", 50 * MIB);
        check_buckets(names[i], "200MiB", 200 * MIB);
    }
}

/* ---- traces made by hand ---- */

typedef struct Made {
    Timeline t;
    uint32_t stream, host;
} Made;

static Made made(uint32_t rank)
{
    Made m = { 0 };
    timeline_want(&m.t, true, false);
    m.stream = timeline_track(&m.t, rank, TRACK_STREAM, "stream 7", 7);
    m.host = timeline_track(&m.t, rank, TRACK_HOST, "thread", 0);
    timeline_track(&m.t, rank, TRACK_STEPS, "steps", 0);
    return m;
}

static void add(Made *m, uint32_t track, const char *name, SpanClass class_, int64_t start_ns,
                int64_t dur_ns, uint64_t correlation)
{
    uint64_t i = timeline_span(&m->t, (Span){ .track = track,
                                              .name = intern(&m->t.names, name),
                                              .class_ = class_,
                                              .start_ns = start_ns,
                                              .dur_ns = dur_ns,
                                              .op = NONE_U32,
                                              .comm = NONE_U32 });
    m->t.correlation[i] = correlation;
}

/* The host waits for a kernel, works on, and launches another: both waits are kept. */
static void the_host_waits_as_it_did(void)
{
    Made m = made(0);
    FromTrace f = { 0 };
    FromTraceOptions o = { 0 };
    Err err = { 0 };
    add(&m, m.host, "cudaLaunchKernel", SPAN_LAUNCH, 100, 10, 1);
    add(&m, m.stream, "a", SPAN_COMPUTE, 120, 1000, 1);
    add(&m, m.host, "cudaStreamSynchronize", SPAN_SYNC, 200, 930, NONE_U64);
    add(&m, m.host, "cudaLaunchKernel", SPAN_LAUNCH, 1500, 10, 2);
    add(&m, m.stream, "b", SPAN_COMPUTE, 1515, 300, 2);
    timeline_seal(&m.t);
    Source s = { m.t, 1600, 1 };
    CHECK_INT(1815, replay(&s, &o, &f, &err));
    CHECK_INT(1815, f.measured_ns);
    CHECK_U64(1, f.syncs_n);
    CHECK_U64(2, f.kernels_n);
    from_trace_free(&f);
    timeline_free(&m.t);
}

static void check_refused(Made *m, const FromTraceOptions *o, const char *text)
{
    FromTrace f = { 0 };
    Err err = { 0 };
    timeline_seal(&m->t);
    Source s = { m->t, 1000, 1 };
    CHECK_INT(0, replay(&s, o, &f, &err));
    CHECK_ERR_TEXT(&err, text);
    timeline_free(&m->t);
}

static void what_cannot_be_replayed_is_said(void)
{
    FromTraceOptions o = { 0 }, buckets = { .bucket_bytes = MIB };
    Made m = made(0);
    check_refused(&m, &o, "the trace has no GPU work in its step");

    m = made(0);
    add(&m, m.stream, "a", SPAN_COMPUTE, 10, 10, NONE_U64);
    check_refused(&m, &buckets,
                  "rank 0 has no all-reduce of known size beside its main stream");

    m = made(0);
    add(&m, m.stream, "a", SPAN_COMPUTE, 10, 10, NONE_U64);
    uint32_t other = timeline_track(&m.t, 1, TRACK_STREAM, "stream 7", 7);
    timeline_track(&m.t, 1, TRACK_STEPS, "steps", 0);
    add(&m, other, "a", SPAN_COMPUTE, 10, 10, NONE_U64);
    m.t.ranks_n = 4;
    check_refused(&m, &o, "the trace has 2 of 4 ranks, one or all are needed");
}

/* Rank 1 communicates once, rank 0 twice. */
static void ranks_of_different_steps_are_refused(void)
{
    FromTraceOptions o = { 0 };
    Made m = made(0);
    uint32_t other = timeline_track(&m.t, 1, TRACK_STREAM, "stream 7", 7);
    timeline_track(&m.t, 1, TRACK_STEPS, "steps", 0);
    add(&m, m.stream, "ncclKernel", SPAN_COMM, 10, 10, NONE_U64);
    add(&m, m.stream, "ncclKernel", SPAN_COMM, 30, 10, NONE_U64);
    add(&m, other, "ncclKernel", SPAN_COMM, 10, 10, NONE_U64);
    check_refused(&m, &o, "rank 1 has fewer collectives than rank 0");
}

/* A rank's compute stream; rank 0 has one already. */
static uint32_t stream_of(Made *m, uint32_t rank)
{
    if (rank == 0)
        return m->stream;
    timeline_track(&m->t, rank, TRACK_STEPS, "steps", 0);
    return timeline_track(&m->t, rank, TRACK_STREAM, "stream 7", 7);
}

/* Ranks 0, 1 and 3 of four communicate. */
static void groups_that_are_no_dimension_are_refused(void)
{
    FromTraceOptions o = { 0 };
    Made m = made(0);
    for (uint32_t rank = 0; rank < 4; rank++) {
        uint32_t track = stream_of(&m, rank);
        add(&m, track, "a", SPAN_COMPUTE, 10, 10, NONE_U64);
        if (rank == 2)
            continue;
        Comm c = comm_of(intern(&m.t.names, "all_reduce"));
        c.group = intern(&m.t.names, "three");
        c.group_id = 0;
        uint64_t i = timeline_span(&m.t, (Span){ .track = track,
                                                 .name = intern(&m.t.names, "ncclKernel"),
                                                 .class_ = SPAN_COMM,
                                                 .start_ns = 30,
                                                 .dur_ns = 10,
                                                 .op = NONE_U32,
                                                 .comm = timeline_comm(&m.t, c) });
        m.t.correlation[i] = NONE_U64;
    }
    check_refused(&m, &o,
                  "the ranks of group 'three' in the trace are not evenly spaced: such groups "
                  "cannot be simulated yet");
}

/* Sends and receives of unnamed peers: the middle rank of three has twice as many as the others,
 * so they are no exchange of all, which could never end; and where all have as many, they are. */
static void check_unnamed(uint32_t middle_n, uint64_t alone_n)
{
    Made m = made(0);
    FromTrace f = { 0 };
    FromTraceOptions o = { 0 };
    Err err = { 0 };
    for (uint32_t rank = 0; rank < 3; rank++) {
        uint32_t track = stream_of(&m, rank);
        add(&m, track, "a", SPAN_COMPUTE, 10, 10, NONE_U64);
        for (uint32_t k = 0; k < (rank == 1 ? middle_n : 1); k++)
            timeline_span(
                &m.t, (Span){ .track = timeline_track(&m.t, rank, TRACK_STREAM, "comm", 20 + k),
                              .name = intern(&m.t.names, "ncclDevKernel_SendRecv"),
                              .class_ = SPAN_P2P,
                              .start_ns = 30 + 100 * (rank + k),
                              .dur_ns = 50,
                              .op = NONE_U32,
                              .comm = timeline_comm(
                                  &m.t, comm_of(intern(&m.t.names, "send_recv"))) });
    }
    timeline_seal(&m.t);
    Source s = { m.t, 1000, 3 };
    CHECK(replay(&s, &o, &f, &err) > 0);
    CHECK(!err.set);
    CHECK_U64(alone_n, f.alone_n);
    from_trace_free(&f);
    timeline_free(&m.t);
}

static void sends_of_unnamed_peers_are_an_exchange_or_alone(void)
{
    check_unnamed(2, 4);
    check_unnamed(1, 0);
}

/* Two ranks, each with one collective of its own size. */
static int64_t replay_uneven(const char *op, Err *err)
{
    Made m = made(0);
    FromTrace f = { 0 };
    FromTraceOptions o = { 0 };
    for (uint32_t rank = 0; rank < 2; rank++) {
        uint32_t track = stream_of(&m, rank);
        add(&m, track, "a", SPAN_COMPUTE, 10, 10, NONE_U64);
        Comm c = comm_of(intern(&m.t.names, op));
        c.bytes = 1200 + 2400 * rank;
        timeline_span(&m.t, (Span){ .track = track,
                                    .name = intern(&m.t.names, "ncclDevKernel(x)"),
                                    .class_ = SPAN_COMM,
                                    .start_ns = 30,
                                    .dur_ns = 50,
                                    .op = NONE_U32,
                                    .comm = timeline_comm(&m.t, c) });
    }
    timeline_seal(&m.t);
    Source s = { m.t, 1000, 2 };
    int64_t step_ns = replay(&s, &o, &f, err);
    for (uint32_t i = 0; i < f.graph.ops_n && !err->set; i++)
        if (f.graph.ops[i].kind == OP_ALL_TO_ALL)
            CHECK_U64(3600, f.graph.ops[i].u.comm.bytes);
    from_trace_free(&f);
    timeline_free(&m.t);
    return step_ns;
}

/* Experts send what they have; an all-reduce of two sizes is two all-reduces. */
static void uneven_exchanges_are_of_their_largest_part(void)
{
    Err err = { 0 };
    CHECK_INT(1000, replay_uneven("all_to_all", &err));
    CHECK(!err.set);
    CHECK_INT(0, replay_uneven("all_reduce", &err));
    CHECK_ERR_TEXT(&err,
                   "rank 1 meets 'ncclDevKernel(x)' of 3600 bytes with 'ncclDevKernel(x)' "
                   "of 1200 bytes in the same group");
}

static void add_group_comm(Made *m, uint32_t rank, int64_t stream, const char *group,
                           int64_t start_ns)
{
    Comm c = comm_of(intern(&m->t.names, "all_reduce"));
    c.group = intern(&m->t.names, group);
    c.group_id = 0;
    c.bytes = 1000;
    timeline_span(&m->t,
                  (Span){ .track = timeline_track(&m->t, rank, TRACK_STREAM, "comm", stream),
                          .name = intern(&m->t.names, "ncclDevKernel(x)"),
                          .class_ = SPAN_COMM,
                          .start_ns = start_ns,
                          .dur_ns = 50,
                          .op = NONE_U32,
                          .comm = timeline_comm(&m->t, c) });
}

/* Rank 1 is in a group more, whose stream comes before that of the group it shares with rank 0. */
static void streams_of_a_group_meet_whatever_stands_before_them(void)
{
    Made m = made(0);
    FromTrace f = { 0 };
    FromTraceOptions o = { 0 };
    Err err = { 0 };
    timeline_track(&m.t, 1, TRACK_STEPS, "steps", 0);
    for (uint32_t rank = 0; rank < 2; rank++) {
        uint32_t track =
            rank ? timeline_track(&m.t, rank, TRACK_STREAM, "stream 7", 7) : m.stream;
        add(&m, track, "a", SPAN_COMPUTE, 10, 10, NONE_U64);
        if (rank == 1)
            add_group_comm(&m, rank, 19, "embedding", 30);
        add_group_comm(&m, rank, 20, "dp", 100);
        add_group_comm(&m, rank, 21, "tp", 200 + 100 * rank);
    }
    timeline_seal(&m.t);
    Source s = { m.t, 1000, 2 };
    CHECK(replay(&s, &o, &f, &err) > 0);
    CHECK(!err.set);
    CHECK_U64(5, f.comms_n);
    from_trace_free(&f);
    timeline_free(&m.t);
}

int main(void)
{
    RUN(the_replay_of_a_simulated_step_takes_as_long);
    RUN(all_ranks_of_it_too);
    RUN(ranks_wait_for_the_slow_one);
    RUN(sends_meet_their_receives);
    RUN(sends_whose_other_end_is_not_known_keep_their_time);
    RUN(another_network_is_as_the_simulator_has_it);
    RUN(what_is_not_simulated_keeps_its_time);
    RUN(other_buckets_are_as_the_simulator_has_them);
    RUN(the_host_waits_as_it_did);
    RUN(what_cannot_be_replayed_is_said);
    RUN(ranks_of_different_steps_are_refused);
    RUN(groups_that_are_no_dimension_are_refused);
    RUN(sends_of_unnamed_peers_are_an_exchange_or_alone);
    RUN(uneven_exchanges_are_of_their_largest_part);
    RUN(streams_of_a_group_meet_whatever_stands_before_them);
    return check_report();
}

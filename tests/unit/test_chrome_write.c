/*
 * test_chrome_write.c - Chrome JSON read back with core/json.h: what it says, and
 * that it keeps the rules of tests/chrome_check.h.
 *
 * CHROME_TRACE=FILE in the environment checks that file too.
 */
#include "tests/check.h"
#include "tests/chrome_check.h"
#include "traces/chrome_write.h"

#include <unistd.h>

static char folder[64] = P_tmpdir "/lockstep-chrome-XXXXXX";

static const char *path_of(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* Seals, writes, checks by the rules, and hands back the document; NULL after a failure. */
static JsonDoc *written(Timeline *t, ChromeFacts *facts)
{
    Err err = { 0 };
    timeline_seal(t);
    const char *path = path_of("t.json");
    JsonDoc *doc = NULL;
    if (chrome_write(t, path, &err) && chrome_check_file(path, facts, &err))
        doc = json_open(path, &err);
    CHECK_STR("", err.text);
    timeline_free(t);
    return doc;
}

/* The n-th event of that phase; an absent node when there is none. */
static JsonNode event_of(JsonDoc *doc, const char *ph, size_t n)
{
    JsonNode list = json_member(json_root(doc), "traceEvents");
    size_t i = 0;
    for (JsonNode e = json_first(list); e.item; e = json_next(e, list, ++i))
        if (strcmp(json_text(json_member(e, "ph")), ph) == 0 && n-- == 0)
            return e;
    return (JsonNode){ NULL, doc, "" };
}

static const char *text_of(JsonNode event, const char *key)
{
    return json_text(json_member(event, key));
}

static JsonNode arg_of(JsonNode event, const char *key)
{
    return json_member(json_member(event, "args"), key);
}

static void check_text_arg(const char *expect, JsonNode event, const char *key)
{
    CHECK_STR(expect, json_text(arg_of(event, key)));
}

static void check_number_arg(double expect, JsonNode event, const char *key)
{
    CHECK(json_type(arg_of(event, key)) == JSON_NUMBER);
    CHECK_NEAR(expect, json_value(arg_of(event, key)), 1e-12);
}

static uint64_t add(Timeline *t, uint32_t track, SpanClass class_, const char *name,
                    int64_t start_ns, int64_t dur_ns)
{
    return timeline_span(t, (Span){ track, intern(&t->names, name), class_, start_ns, dur_ns,
                                    NONE_U32, NONE_U32 });
}

/* ---- names and categories ---- */

typedef struct Shown {
    TrackKind kind;
    SpanClass class_;
    const char *name, *cat, *shown;
} Shown;

static void spans_are_named_as_analyzers_expect(void)
{
    static const Shown table[] = {
        { TRACK_STREAM, SPAN_COMPUTE, "gemm", "kernel", "gemm" },
        { TRACK_STREAM, SPAN_COMM, "ncclDevKernel_X", "kernel", "ncclDevKernel_X" },
        { TRACK_STREAM, SPAN_COMM, "grads", "kernel", "nccl:grads Kernel" },
        { TRACK_STREAM, SPAN_P2P, "act", "kernel", "nccl:act Kernel" },
        { TRACK_STREAM, SPAN_MEMORY, "Memcpy HtoD", "gpu_memcpy", "Memcpy HtoD" },
        { TRACK_STREAM, SPAN_MEMORY, "batch in", "gpu_memcpy", "Memcpy batch in" },
        { TRACK_STREAM, SPAN_MEMORY, "Memset (Device)", "gpu_memset", "Memset (Device)" },
        { TRACK_STREAM, SPAN_MEMORY, "fill grads", "gpu_memset", "Memset fill grads" },
        { TRACK_STREAM, SPAN_SYNC, "Event Sync", "cuda_sync", "Event Sync" },
        { TRACK_STREAM, SPAN_SYNC, "wait", "cuda_sync", "Stream Sync wait" },
        { TRACK_STREAM, SPAN_NOTE, "forward", "gpu_user_annotation", "forward" },
        { TRACK_HOST, SPAN_LAUNCH, "cudaLaunchKernel", "cuda_runtime", "cudaLaunchKernel" },
        { TRACK_HOST, SPAN_LAUNCH, "cuLaunchKernelEx", "cuda_runtime", "cuLaunchKernelEx" },
        { TRACK_HOST, SPAN_LAUNCH, "gemm", "cuda_runtime", "cudaLaunchKernel" },
        { TRACK_HOST, SPAN_HOST, "aten::mm", "cpu_op", "aten::mm" },
        { TRACK_HOST, SPAN_SYNC, "wait", "cuda_sync", "wait" },
        { TRACK_HOST, SPAN_NOTE, "forward", "user_annotation", "forward" },
        { TRACK_STEPS, SPAN_STEP, "step 12", "user_annotation", "ProfilerStep#12" },
        { TRACK_STEPS, SPAN_STEP, "warm-up", "user_annotation", "ProfilerStep#0" },
        { TRACK_STEPS, SPAN_STEP, "ProfilerStep#7", "user_annotation", "ProfilerStep#7" },
    };
    for (size_t i = 0; i < ARRAY_N(table); i++) {
        const Shown *s = &table[i];
        Timeline t = { 0 };
        add(&t, timeline_track(&t, 0, s->kind, "track", 7), s->class_, s->name, 0, 1);
        ChromeFacts facts;
        JsonDoc *doc = written(&t, &facts);
        JsonNode e = event_of(doc, "X", 0);
        CHECK_STR(s->cat, text_of(e, "cat"));
        CHECK_STR(s->shown, text_of(e, "name"));
        bool same = strcmp(s->name, s->shown) == 0;
        check_text_arg(same ? NULL : s->name, e, "name");
        /* HTA takes for GPU work whatever has a stream, Kineto's annotations have none. */
        bool gpu = s->kind == TRACK_STREAM && s->class_ != SPAN_NOTE;
        CHECK_INT(gpu ? JSON_NUMBER : JSON_ABSENT, json_type(arg_of(e, "stream")));
        json_close(doc);
    }
}

/* ---- communication ---- */

static Comm all_reduce_of(Timeline *t)
{
    Comm c = comm_of(intern(&t->names, "all_reduce"));
    c.group = intern(&t->names, "dp");
    c.group_id = 3;
    c.ranks_n = 8;
    c.seq = 41;
    c.dtype = intern(&t->names, "bf16");
    c.algorithm = intern(&t->names, "Ring");
    c.protocol = intern(&t->names, "LL128");
    c.bytes = 51234560;
    c.wait_ns = 1500;
    return c;
}

static uint64_t add_comm(Timeline *t, uint32_t track, Comm c, int64_t start_ns, int64_t dur_ns)
{
    return timeline_span(t, (Span){ track, intern(&t->names, "grads \"L7\""), SPAN_COMM,
                                    start_ns, dur_ns, 12, timeline_comm(t, c) });
}

static void a_collective_says_all_that_is_known(void)
{
    Timeline t = { 0 };
    uint32_t track = timeline_track(&t, 5, TRACK_STREAM, "dp comm", 20);
    add_comm(&t, track, all_reduce_of(&t), 1234567, 101500);
    ChromeFacts facts;
    JsonDoc *doc = written(&t, &facts);
    JsonNode e = event_of(doc, "X", 0);
    CHECK_STR("nccl:all_reduce dp 51.2 MB Kernel", text_of(e, "name"));
    CHECK_NEAR(1234.567, json_value(json_member(e, "ts")), 0);
    CHECK_NEAR(101.5, json_value(json_member(e, "dur")), 0);
    check_text_arg("grads \"L7\"", e, "name");
    check_number_arg(12, e, "op");
    check_number_arg(20, e, "stream");
    check_number_arg(5, e, "device");
    check_text_arg("allreduce", e, "Collective name");
    check_text_arg("dp", e, "group");
    check_number_arg(3, e, "group_id");
    check_number_arg(8, e, "ranks");
    check_number_arg(8, e, "Group size");
    check_text_arg("dp:3", e, "Process Group Name");
    check_text_arg("dp", e, "Process Group Description");
    check_number_arg(41, e, "seq");
    check_number_arg(51234560, e, "bytes");
    check_text_arg("BFloat16", e, "dtype");
    check_number_arg(51234560 / 2, e, "In msg nelems");
    check_number_arg(51234560 / 2, e, "Out msg nelems");
    check_text_arg("Ring", e, "algorithm");
    check_text_arg("LL128", e, "protocol");
    check_number_arg(1.5, e, "wait_us");
    double busbw = 51234560.0 * (2 * 7.0 / 8) / 100000;
    CHECK_NEAR(busbw, json_value(arg_of(e, "busbw_GBps")), 0.0005 / busbw);
    json_close(doc);
}

static void what_is_unknown_is_left_out(void)
{
    Timeline t = { 0 };
    uint32_t track = timeline_track(&t, 0, TRACK_STREAM, "comm", 0);
    add_comm(&t, track, comm_of(intern(&t.names, "barrier")), 0, 10);
    ChromeFacts facts;
    JsonDoc *doc = written(&t, &facts);
    JsonNode e = event_of(doc, "X", 0);
    CHECK_STR("nccl:barrier Kernel", text_of(e, "name"));
    check_text_arg("barrier", e, "Collective name");
    /* name, op, device, stream, correlation, Collective name */
    CHECK_U64(6, json_items_n(json_member(e, "args")));
    CHECK_U64(1, facts.spans_n);
    json_close(doc);
}

static void the_waiting_part_is_a_span_within(void)
{
    Timeline t = { 0 };
    uint32_t track = timeline_track(&t, 0, TRACK_STREAM, "comm", 0);
    Comm c = all_reduce_of(&t);
    add_comm(&t, track, c, 1000, 5000);
    c.wait_ns = 0;
    add_comm(&t, track, c, 6000, 5000);
    c.wait_ns = 9000; /* more than the span */
    add_comm(&t, track, c, 11000, 5000);
    ChromeFacts facts;
    JsonDoc *doc = written(&t, &facts);
    CHECK_U64(2, facts.waits_n);
    CHECK_U64(5, facts.spans_n);
    JsonNode wait = event_of(doc, "X", 1), last = event_of(doc, "X", 4);
    CHECK_STR("wait", text_of(wait, "name"));
    CHECK_STR("wait", text_of(wait, "cat"));
    CHECK_NEAR(1, json_value(json_member(wait, "ts")), 0);
    CHECK_NEAR(1.5, json_value(json_member(wait, "dur")), 0);
    CHECK_NEAR(5, json_value(json_member(last, "dur")), 0);
    CHECK_INT(JSON_ABSENT, json_type(arg_of(wait, "stream")));
    json_close(doc);
}

static void counts_are_those_of_one_rank(void)
{
    static const struct {
        const char *op;
        double in, out;
    } table[] = { { "all_gather", 100, 800 },
                  { "reduce_scatter", 800, 100 },
                  { "all_to_all", 800, 800 } };
    for (size_t i = 0; i < ARRAY_N(table); i++) {
        Timeline t = { 0 };
        Comm c = all_reduce_of(&t);
        c.op = intern(&t.names, table[i].op);
        c.bytes = 1600;
        add_comm(&t, timeline_track(&t, 0, TRACK_STREAM, "comm", 0), c, 0, 10);
        ChromeFacts facts;
        JsonDoc *doc = written(&t, &facts);
        JsonNode e = event_of(doc, "X", 0);
        check_number_arg(table[i].in, e, "In msg nelems");
        check_number_arg(table[i].out, e, "Out msg nelems");
        json_close(doc);
    }
}

static void send_and_receive_name_both_ends(void)
{
    for (int receives = 0; receives < 2; receives++) {
        Timeline t = { 0 };
        Comm c = comm_of(intern(&t.names, receives ? "recv" : "send"));
        c.group = intern(&t.names, "pp");
        c.peer = 6;
        c.bytes = 999;
        add_comm(&t, timeline_track(&t, 2, TRACK_STREAM, "pp", 0), c, 0, 10);
        ChromeFacts facts;
        JsonDoc *doc = written(&t, &facts);
        JsonNode e = event_of(doc, "X", 0);
        CHECK_STR(receives ? "nccl:recv pp 999 B from rank 6 Kernel"
                           : "nccl:send pp 999 B to rank 6 Kernel",
                  text_of(e, "name"));
        check_number_arg(6, e, "peer");
        check_number_arg(receives ? 6 : 2, e, "Src Rank");
        check_number_arg(receives ? 2 : 6, e, "Dst Rank");
        json_close(doc);
    }
}

static void sizes_are_shown_in_decimal_units(void)
{
    static const struct {
        uint64_t bytes;
        const char *shown;
    } table[] = { { 0, "nccl:send 0 B Kernel" },
                  { 1000, "nccl:send 1.0 kB Kernel" },
                  { 999999, "nccl:send 999.9 kB Kernel" },
                  { 25 * MIB, "nccl:send 26.2 MB Kernel" },
                  { 8 * GIB, "nccl:send 8.5 GB Kernel" },
                  { NONE_U64 - 1, "nccl:send 18446744.0 TB Kernel" },
                  { 1500000000000000, "nccl:send 1500.0 TB Kernel" } };
    for (size_t i = 0; i < ARRAY_N(table); i++) {
        Timeline t = { 0 };
        Comm c = comm_of(intern(&t.names, "send"));
        c.bytes = table[i].bytes;
        add_comm(&t, timeline_track(&t, 0, TRACK_STREAM, "comm", 0), c, 0, 10);
        ChromeFacts facts;
        JsonDoc *doc = written(&t, &facts);
        CHECK_STR(table[i].shown, text_of(event_of(doc, "X", 0), "name"));
        json_close(doc);
    }
}

/* ---- tracks ---- */

static void overlapping_spans_get_threads_of_their_own(void)
{
    Timeline t = { 0 };
    uint32_t track = timeline_track(&t, 0, TRACK_STREAM, "compute", 7);
    add(&t, track, SPAN_COMPUTE, "a", 0, 100);
    add(&t, track, SPAN_COMPUTE, "b", 50, 100); /* chrome_check would complain on one thread */
    add(&t, track, SPAN_COMPUTE, "c", 100, 100);
    ChromeFacts facts;
    JsonDoc *doc = written(&t, &facts);
    CHECK_INT(2, facts.threads_n);
    /* process_name, process_sort_index, thread_name, thread_sort_index, thread_name */
    check_text_arg("compute", event_of(doc, "M", 2), "name");
    check_text_arg("compute (2)", event_of(doc, "M", 4), "name");
    for (size_t i = 2; i <= 4; i += 2) {
        check_number_arg(0, event_of(doc, "M", i), "track");
        check_text_arg("stream", event_of(doc, "M", i), "kind");
        check_number_arg(7, event_of(doc, "M", i), "sort");
    }
    for (size_t i = 0; i < 3; i++)
        check_number_arg(7, event_of(doc, "X", i), "stream");
    json_close(doc);
}

static void nested_calls_stay_on_one_thread(void)
{
    Timeline t = { 0 };
    uint32_t track = timeline_track(&t, 0, TRACK_HOST, "main", 1);
    add(&t, track, SPAN_HOST, "outer", 0, 100);
    add(&t, track, SPAN_HOST, "inner", 10, 50);
    add(&t, track, SPAN_HOST, "innermost", 20, 40); /* ends with its parent */
    add(&t, track, SPAN_HOST, "next", 100, 10);
    ChromeFacts facts;
    JsonDoc *doc = written(&t, &facts);
    CHECK_INT(1, facts.threads_n);
    json_close(doc);

    t = (Timeline){ 0 };
    track = timeline_track(&t, 0, TRACK_HOST, "main", 1);
    add(&t, track, SPAN_HOST, "outer", 0, 100);
    add(&t, track, SPAN_HOST, "crosses", 90, 50);
    doc = written(&t, &facts);
    CHECK_INT(2, facts.threads_n);
    json_close(doc);
}

static void a_folded_rank_says_what_it_stands_for(void)
{
    Timeline t = { 0 };
    uint32_t track = timeline_track(&t, 0, TRACK_STREAM, "compute", 0);
    t.tracks[track].ranks_n = 128;
    timeline_track(&t, 128, TRACK_STREAM, "compute", 0);
    ChromeFacts facts;
    JsonDoc *doc = written(&t, &facts);
    check_text_arg("rank 0 (stands for 128 ranks)", event_of(doc, "M", 0), "name");
    check_number_arg(128, event_of(doc, "M", 2), "stands_for");
    check_text_arg("rank 128", event_of(doc, "M", 4), "name");
    json_close(doc);
}

static void no_thread_has_the_number_of_a_process(void)
{
    for (uint32_t ranks_n = 1; ranks_n < 3000; ranks_n = ranks_n * 3 + 1) {
        Timeline t = { 0 };
        for (uint32_t rank = 0; rank < ranks_n; rank++)
            add(&t, timeline_track(&t, rank, TRACK_STREAM, "compute", 0), SPAN_COMPUTE, "a", 0,
                1);
        ChromeFacts facts;
        JsonDoc *doc = written(&t, &facts);
        CHECK_INT(ranks_n, facts.processes_n);
        CHECK_INT(ranks_n, facts.threads_n);
        JsonNode e = event_of(doc, "X", 0);
        CHECK(json_value(json_member(e, "tid")) > ranks_n);
        json_close(doc);
    }
}

static void streams_without_ids_are_numbered(void)
{
    Timeline t = { 0 };
    for (int i = 0; i < 3; i++)
        add(&t, timeline_track(&t, 0, TRACK_STREAM, "s", 4), SPAN_COMPUTE, "a", 0, 1);
    ChromeFacts facts;
    JsonDoc *doc = written(&t, &facts);
    for (size_t i = 0; i < 3; i++)
        check_number_arg((double)i, event_of(doc, "X", i), "stream");
    json_close(doc);
}

static void a_file_of_one_rank_says_which(void)
{
    Timeline t = { 0 };
    timeline_track(&t, 3, TRACK_STREAM, "compute", 0);
    t.ranks_n = 8;
    timeline_set_name(&t, "a \\ b");
    ChromeFacts facts;
    JsonDoc *doc = written(&t, &facts);
    JsonNode info = json_member(json_root(doc), "distributedInfo");
    CHECK_NEAR(3, json_value(json_member(info, "rank")), 0);
    CHECK_NEAR(8, json_value(json_member(info, "world_size")), 0);
    JsonNode other = json_member(json_root(doc), "otherData");
    CHECK_STR("a \\ b", json_text(json_member(other, "name")));
    CHECK_STR("ms", json_text(json_member(json_root(doc), "displayTimeUnit")));
    json_close(doc);
}

/* What `report` takes for "there is one rank" may be one of many: only ops tell. */
static void a_world_is_written_only_where_it_is_known(void)
{
    for (uint32_t has_op = 0; has_op < 2; has_op++) {
        Timeline t = { 0 };
        uint32_t track = timeline_track(&t, 0, TRACK_STREAM, "compute", 0);
        uint64_t at = add(&t, track, SPAN_COMPUTE, "a", 0, 1);
        t.op[at] = has_op ? 7 : NONE_U32;
        ChromeFacts facts;
        JsonDoc *doc = written(&t, &facts);
        JsonNode info = json_member(json_root(doc), "distributedInfo");
        CHECK_NEAR(0, json_value(json_member(info, "rank")), 0);
        CHECK_INT(has_op, json_member(info, "world_size").item != NULL);
        CHECK_INT(has_op, json_member(info, "backend").item != NULL);
        json_close(doc);
    }
}

static void an_empty_timeline_is_a_valid_trace(void)
{
    Timeline t = { 0 };
    ChromeFacts facts;
    JsonDoc *doc = written(&t, &facts);
    CHECK_U64(0, facts.events_n);
    json_close(doc);
}

/* ---- counters, times, launches ---- */

static void counters_become_counter_events(void)
{
    Timeline t = { 0 };
    uint32_t a = timeline_track(&t, 0, TRACK_COUNTER, "memory", 0);
    timeline_point(&t, a, 1000, 17179869184.0);
    timeline_point(&t, a, 2500, 0.1);
    timeline_point(&t, a, 3000, -3);
    timeline_point(&t, a, 4000, 1e300);
    ChromeFacts facts;
    JsonDoc *doc = written(&t, &facts);
    const double expect[] = { 17179869184.0, 0.1, -3, 1e300 };
    CHECK_U64(4, facts.counters_n);
    for (size_t i = 0; i < ARRAY_N(expect); i++) {
        CHECK_NEAR(expect[i], json_value(arg_of(event_of(doc, "C", i), "value")), 0);
        CHECK_INT(JSON_ABSENT, json_type(json_member(event_of(doc, "C", i), "id")));
    }
    CHECK_NEAR(2.5, json_value(json_member(event_of(doc, "C", 1), "ts")), 0);
    json_close(doc);
}

static void counters_of_one_name_stay_apart(void)
{
    Timeline t = { 0 };
    for (int i = 0; i < 2; i++)
        timeline_point(&t, timeline_track(&t, 0, TRACK_COUNTER, "link", i), 0, i);
    ChromeFacts facts;
    JsonDoc *doc = written(&t, &facts);
    CHECK_NEAR(0, json_value(json_member(event_of(doc, "C", 0), "id")), 0);
    CHECK_NEAR(1, json_value(json_member(event_of(doc, "C", 1), "id")), 0);
    CHECK(json_type(json_member(event_of(doc, "C", 0), "id")) == JSON_NUMBER);
    json_close(doc);
}

static double shown_start(int64_t start_ns, double *base_ns)
{
    Timeline t = { 0 };
    add(&t, timeline_track(&t, 0, TRACK_STREAM, "s", 0), SPAN_COMPUTE, "a", start_ns, 5);
    ChromeFacts facts;
    JsonDoc *doc = written(&t, &facts);
    *base_ns = json_value(json_member(json_root(doc), "baseTimeNanoseconds"));
    double ts = json_value(json_member(event_of(doc, "X", 0), "ts"));
    json_close(doc);
    return ts;
}

static void times_that_a_double_cannot_hold_are_shifted(void)
{
    double base_ns;
    CHECK_NEAR(1.234, shown_start(1234, &base_ns), 0);
    CHECK_NEAR(0, base_ns, 0);
    CHECK_NEAR(0, shown_start(-1234, &base_ns), 0);
    CHECK_NEAR(-1234, base_ns, 0);
    int64_t epoch_ns = 1706850122845905123;
    CHECK_NEAR(0, shown_start(epoch_ns, &base_ns), 0);
    CHECK_NEAR((double)epoch_ns, base_ns, 0);
}

static void launches_and_kernels_share_a_correlation(void)
{
    Timeline t = { 0 };
    uint32_t host = timeline_track(&t, 0, TRACK_HOST, "host", 0);
    uint32_t stream = timeline_track(&t, 0, TRACK_STREAM, "compute", 1);
    uint32_t name = intern(&t.names, "k");
    for (uint32_t step = 0; step < 3; step++)
        for (uint32_t op = 0; op < 4; op++) {
            int64_t at = 100 * step + 10 * op;
            timeline_span(&t, (Span){ host, name, SPAN_LAUNCH, at, 2, op, NONE_U32 });
            timeline_span(&t, (Span){ stream, name, SPAN_COMPUTE, at + 50, 9, op, NONE_U32 });
        }
    ChromeFacts facts;
    JsonDoc *doc = written(&t, &facts);
    /* Streams come before hosts: kernels are events 0 to 11, launches 12 to 23. */
    double seen[12];
    for (size_t i = 0; i < 12; i++) {
        JsonNode kernel = event_of(doc, "X", i), launch = event_of(doc, "X", 12 + i);
        CHECK_STR("cuda_runtime", text_of(launch, "cat"));
        seen[i] = json_value(arg_of(kernel, "correlation"));
        CHECK_NEAR(seen[i], json_value(arg_of(launch, "correlation")), 0);
        CHECK(seen[i] > 0);
        for (size_t j = 0; j < i; j++)
            CHECK(seen[j] != seen[i]);
    }
    json_close(doc);
}

static void recorded_correlations_are_kept(void)
{
    Timeline t = { 0 };
    timeline_want(&t, true, false);
    uint32_t stream = timeline_track(&t, 0, TRACK_STREAM, "compute", 1);
    t.correlation[add(&t, stream, SPAN_COMPUTE, "a", 0, 1)] = 60047;
    add(&t, stream, SPAN_COMPUTE, "b", 1, 1);
    ChromeFacts facts;
    JsonDoc *doc = written(&t, &facts);
    check_number_arg(60047, event_of(doc, "X", 0), "correlation");
    CHECK_INT(JSON_ABSENT, json_type(arg_of(event_of(doc, "X", 1), "correlation")));
    json_close(doc);
}

static void names_of_any_bytes_are_escaped(void)
{
    Timeline t = { 0 };
    const char *name = "void k<float, \"x\">(\\a\n\x01) \xc3\xa9";
    uint32_t track = timeline_track(&t, 0, TRACK_STREAM, name, 0);
    add(&t, track, SPAN_COMPUTE, name, 0, 1);
    add(&t, track, SPAN_COMPUTE, "bad \xff utf8", 1, 1);
    ChromeFacts facts;
    JsonDoc *doc = written(&t, &facts);
    CHECK_STR(name, text_of(event_of(doc, "X", 0), "name"));
    CHECK_STR("bad \xef\xbf\xbd utf8", text_of(event_of(doc, "X", 1), "name"));
    check_text_arg(name, event_of(doc, "M", 2), "name");
    json_close(doc);
}

/* ---- any timeline ---- */

static uint64_t random_state;

static uint64_t draw(uint64_t below)
{
    random_state = mix_u64(random_state);
    return random_state % below;
}

static void draw_span(Timeline *t, uint64_t reach)
{
    uint32_t track = (uint32_t)draw(t->tracks_n);
    if (t->tracks[track].kind == TRACK_COUNTER) {
        timeline_point(t, track, (int64_t)draw(reach), (double)draw(1000) / 7);
        return;
    }
    char name[32];
    snprintf(name, sizeof name, "n%u", (unsigned)draw(20));
    Span s = { track,
               intern(&t->names, name),
               (SpanClass)draw(SPAN_CLASS_N),
               (int64_t)draw(reach),
               (int64_t)draw(60),
               (uint32_t)draw(30),
               NONE_U32 };
    if (s.class_ == SPAN_COMM || s.class_ == SPAN_P2P) {
        Comm c = comm_of(intern(&t->names, draw(2) ? "all_gather" : "send"));
        c.wait_ns = (int64_t)draw(80) - 1;
        c.bytes = draw(2) ? NONE_U64 : draw(1 << 30);
        c.group = draw(2) ? NONE_U32 : intern(&t->names, "tp");
        c.ranks_n = (uint32_t)draw(3) * 4;
        s.comm = timeline_comm(t, c);
    }
    timeline_span(t, s);
}

static void draw_timeline(Timeline *t, uint64_t seed)
{
    *t = (Timeline){ 0 };
    random_state = seed;
    for (uint64_t n = draw(8) + 1; n > 0; n--)
        timeline_track(t, (uint32_t)draw(4), (TrackKind)draw(TRACK_KIND_N), "track",
                       (int64_t)draw(6) - 1);
    uint64_t reach = draw(3000) + 1;
    for (uint64_t n = draw(300); n > 0; n--)
        draw_span(t, reach);
}

static void any_timeline_is_shown_whole(void)
{
    for (uint64_t seed = 1; seed <= 150; seed++) {
        Timeline t;
        draw_timeline(&t, seed);
        uint64_t spans_n = t.spans_n, points_n = t.points_n;
        ChromeFacts facts;
        JsonDoc *doc = written(&t, &facts);
        CHECK_U64(spans_n, facts.spans_n - facts.waits_n);
        CHECK_U64(points_n, facts.counters_n);
        json_close(doc);
    }
}

static bool equal_files(const char *a, const char *b)
{
    char a_path[128];
    snprintf(a_path, sizeof a_path, "%s", path_of(a));
    size_t a_n = 0, b_n = 0;
    char *a_text = chrome_read_file(a_path, &a_n), *b_text = chrome_read_file(path_of(b), &b_n);
    bool equal = a_text && b_text && a_n == b_n && memcmp(a_text, b_text, a_n) == 0;
    free(a_text);
    free(b_text);
    return equal;
}

static void equal_timelines_give_equal_bytes_packed_or_not(void)
{
    static const char *const names[] = { "one.json", "two.json", "one.json.gz", "two.json.gz" };
    Err err = { 0 };
    for (size_t i = 0; i < ARRAY_N(names); i++) {
        Timeline t;
        draw_timeline(&t, 7);
        timeline_seal(&t);
        CHECK(chrome_write(&t, path_of(names[i]), &err));
        timeline_free(&t);
    }
    CHECK(equal_files("one.json", "two.json"));
    CHECK(equal_files("one.json", "one.json.gz"));
    char command[300];
    snprintf(command, sizeof command,
             "cd %s && cmp one.json.gz two.json.gz && gzip -t one.json.gz", folder);
    CHECK_INT(0, system(command));
}

static void a_full_disk_is_an_error(void)
{
    for (uint64_t seed = 0; seed < 2; seed++) { /* with and without spans */
        Timeline t = { 0 };
        if (seed)
            draw_timeline(&t, seed);
        timeline_seal(&t);
        Err err = { 0 };
        CHECK(!chrome_write(&t, "/dev/full", &err));
        CHECK_ERR_TEXT(&err, "cannot write '/dev/full': No space left on device");
        timeline_free(&t);
    }
}

/* ---- the checker ---- */

#define NAMED_PROCESS \
    "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":1,\"args\":{\"name\":\"r\"}},"
#define NAMED_THREAD \
    "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":1,\"tid\":2,\"args\":{\"name\":\"t\"}},"
#define SPAN(ts, dur) \
    "{\"ph\":\"X\",\"name\":\"a\",\"pid\":1,\"tid\":2,\"ts\":" #ts ",\"dur\":" #dur "}"

static void the_checker_sees_what_perfetto_would_lose(void)
{
    static const struct {
        const char *events, *complaint; /* NULL: fine */
    } table[] = {
        { NAMED_PROCESS NAMED_THREAD SPAN(0, 10) "," SPAN(0, 10) "," SPAN(2, 8), NULL },
        { NAMED_PROCESS NAMED_THREAD SPAN(0, 10) "," SPAN(10, 10), NULL },
        { NAMED_PROCESS NAMED_THREAD SPAN(0, 10) "," SPAN(9.999, 1), "event 3 does not nest" },
        { NAMED_PROCESS NAMED_THREAD SPAN(0, 5) "," SPAN(0, 10), "event 3 does not nest" },
        { NAMED_PROCESS NAMED_THREAD SPAN(0, -1), "dur is negative" },
        { NAMED_PROCESS NAMED_THREAD SPAN(0, "1"), "dur is not a number" },
        { NAMED_PROCESS NAMED_THREAD SPAN(null, 1), "ts is not a number" },
        { NAMED_PROCESS SPAN(0, 1), "process 1, thread 2 has no name" },
        { NAMED_THREAD SPAN(0, 1), "process 1, thread -1 has no name" },
        { NAMED_PROCESS NAMED_PROCESS SPAN(0, 1), "a second process is called 'r'" },
        { NAMED_PROCESS NAMED_THREAD NAMED_THREAD SPAN(0, 1), "a second thread_name" },
        { "{\"name\":\"a\"}", "an event without ph" },
        { "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":1}",
          "metadata needs a name and args" },
        { "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":1,\"args\":{}}",
          "without args.name" },
        { "{\"ph\":\"X\",\"pid\":1}", "a span without a name" },
        { "{\"ph\":\"X\",\"name\":\"a\",\"pid\":\"x\"}", "pid is not a whole number" },
        { "{\"ph\":\"C\",\"name\":\"a\",\"pid\":1,\"ts\":1}",
          "a counter needs a name and args" },
        { "{\"ph\":\"C\",\"name\":\"a\",\"pid\":1,\"ts\":1,\"args\":{\"v\":\"1\"}}",
          "a counter's value is not a number" },
        { "{\"ph\":\"Z\"}", "ph 'Z' is none" },
    };
    for (size_t i = 0; i < ARRAY_N(table); i++) {
        char text[2000];
        int n = snprintf(text, sizeof text, "{\"traceEvents\":[%s]}", table[i].events);
        ChromeFacts facts;
        Err err = { 0 };
        CHECK(chrome_check_text(text, (size_t)n, &facts, &err) == !table[i].complaint);
        if (table[i].complaint)
            CHECK_ERR_TEXT(&err, table[i].complaint);
        else
            CHECK_STR("", err.text);
    }
}

static void the_file_named_by_the_environment_is_fine(void)
{
    const char *path = getenv("CHROME_TRACE");
    if (!path)
        return;
    ChromeFacts facts;
    Err err = { 0 };
    CHECK(chrome_check_file(path, &facts, &err));
    CHECK_STR("", err.text);
    fprintf(stderr,
            "%s: %" PRIu64 " events, %" PRIu64 " spans (%" PRIu64 " of them waits), %" PRIu64
            " counter points, %u processes, %u threads\n",
            path, facts.events_n, facts.spans_n, facts.waits_n, facts.counters_n,
            facts.processes_n, facts.threads_n);
}

static void remove_folder(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    CHECK_INT(0, system(command));
}

int main(void)
{
    if (!mkdtemp(folder))
        return 1;
    RUN(spans_are_named_as_analyzers_expect);
    RUN(a_collective_says_all_that_is_known);
    RUN(what_is_unknown_is_left_out);
    RUN(the_waiting_part_is_a_span_within);
    RUN(counts_are_those_of_one_rank);
    RUN(send_and_receive_name_both_ends);
    RUN(sizes_are_shown_in_decimal_units);
    RUN(overlapping_spans_get_threads_of_their_own);
    RUN(nested_calls_stay_on_one_thread);
    RUN(a_folded_rank_says_what_it_stands_for);
    RUN(no_thread_has_the_number_of_a_process);
    RUN(streams_without_ids_are_numbered);
    RUN(a_file_of_one_rank_says_which);
    RUN(a_world_is_written_only_where_it_is_known);
    RUN(an_empty_timeline_is_a_valid_trace);
    RUN(counters_become_counter_events);
    RUN(counters_of_one_name_stay_apart);
    RUN(times_that_a_double_cannot_hold_are_shifted);
    RUN(launches_and_kernels_share_a_correlation);
    RUN(recorded_correlations_are_kept);
    RUN(names_of_any_bytes_are_escaped);
    RUN(any_timeline_is_shown_whole);
    RUN(equal_timelines_give_equal_bytes_packed_or_not);
    RUN(a_full_disk_is_an_error);
    RUN(the_checker_sees_what_perfetto_would_lose);
    RUN(the_file_named_by_the_environment_is_fine);
    remove_folder();
    return check_report();
}

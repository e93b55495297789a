/*
 * test_kineto.c - Chrome and Kineto JSON of every vintage, and every way it can be
 * damaged.  Inputs are written by hand here; recorded traces are read too where
 * they lie beside the repository (../shared/data/traces).
 */
#include "tests/check.h"
#include "traces/chrome_write.h"
#include "traces/kineto_parts.h"

#include <dirent.h>
#include <unistd.h>
#include <zlib.h>

static char folder[64] = P_tmpdir "/lockstep-kineto-XXXXXX";
static Rules rules;
static Timeline t;
static TraceInfo info;
static Err err;

static const char *path_of(const char *name)
{
    static char path[2][128];
    static int turn;
    turn ^= 1;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

static void write_file(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    ASSERT(f && fwrite(bytes, 1, n, f) == n && fclose(f) == 0);
}

static bool read_path(const char *path)
{
    timeline_free(&t);
    err_clear(&err);
    bool ok = kineto_read(&t, &info, path, &rules, &err);
    CHECK(ok != err.set);
    Err broken = { 0 };
    if (ok && !CHECK(timeline_check(&t, &broken)))
        fprintf(stderr, "    %s\n", broken.text);
    return ok;
}

static bool read_bytes(const void *bytes, size_t n)
{
    write_file(path_of("t.json"), bytes, n);
    return read_path(path_of("t.json"));
}

static bool read_text(const char *text)
{
    return read_bytes(text, strlen(text));
}

/* The events of a list, in an object as Kineto's. */
static bool read_events(const char *events)
{
    size_t n = strlen(events) + 64;
    char *text = mem_zero(n, 1);
    snprintf(text, n, "{\"schemaVersion\": 1, \"traceEvents\": [%s]}", events);
    bool ok = read_text(text);
    free(text);
    return ok;
}

static uint64_t span_named(const char *name)
{
    for (uint64_t i = 0; i < t.spans_n; i++)
        if (strcmp(timeline_text(&t, t.span_name[i]), name) == 0)
            return i;
    return NONE_U64;
}

static const Track *track_of(uint64_t span)
{
    return &t.tracks[t.span_track[span]];
}

static const char *class_of(const char *name)
{
    uint64_t i = span_named(name);
    return i == NONE_U64 ? "(none)" : span_class_names[t.span_class[i]];
}

static const char *track_name(const char *span)
{
    uint64_t i = span_named(span);
    return i == NONE_U64 ? "(none)" : timeline_text(&t, track_of(i)->name);
}

#define X(cat, name, pid, tid, ts, dur, args) \
    "{\"ph\":\"X\",\"cat\":\"" cat "\",\"name\":\"" name "\",\"pid\":" pid ",\"tid\":" tid \
    ",\"ts\":" ts ",\"dur\":" dur ",\"args\":{" args "}}"

/* ---- what becomes what ---- */

/* clang-format off */
static const char of_today[] =
    X("cpu_op", "aten::mm", "42", "43", "10.5", "5", "") ","
    X("cuda_runtime", "cudaLaunchKernel", "42", "43", "11", "2", "\"correlation\":7") ","
    X("cuda_runtime", "cudaStreamSynchronize", "42", "43", "14", "1", "") ","
    X("kernel", "gemm", "0", "7", "20", "3.001",
      "\"device\":0,\"stream\":7,\"correlation\":7") ","
    X("gpu_memcpy", "Memcpy HtoD", "0", "7", "24", "1",
      "\"device\":0,\"stream\":7,\"correlation\":8") ","
    X("user_annotation", "ProfilerStep#3", "42", "43", "10", "50", "") ","
    X("user_annotation", "forward", "42", "43", "10", "20", "") ","
    X("gpu_user_annotation", "forward gpu", "0", "7", "19.999", "9", "");

static const char of_2021[] =
    X("Operator", "aten::mm", "5", "\"5\"", "10", "5", "") ","
    X("Runtime", "cudaLaunchKernel", "5", "\"5\"", "11", "2",
      "\"correlation\":7,\"external id\":3") ","
    X("Kernel", "gemm", "0", "\"stream 7\"", "20", "3",
      "\"device\":0,\"stream\":7,\"correlation\":7") ","
    X("Memset", "Memset (Device)", "0", "\"stream 7\"", "24", "1",
      "\"device\":0,\"stream\":7,\"correlation\":8") ","
    "{\"ph\":\"i\",\"s\":\"t\",\"name\":\"[memory]\",\"pid\":5,\"tid\":5,"
    "\"ts\":12,\"args\":{\"Bytes\":4}},"
    "{\"ph\":\"s\",\"id\":7,\"pid\":5,\"tid\":5,\"ts\":11,\"cat\":\"async\","
    "\"name\":\"launch\"}";
/* clang-format on */

static void rows_go_to_streams_threads_and_steps(void)
{
    CHECK(read_events(of_today));
    CHECK_U64(8, info.events_read);
    CHECK_U64(0, info.events_skipped);
    CHECK_STR("host", class_of("aten::mm"));
    CHECK_STR("launch", class_of("cudaLaunchKernel"));
    CHECK_STR("sync", class_of("cudaStreamSynchronize"));
    CHECK_STR("compute", class_of("gemm"));
    CHECK_STR("memory", class_of("Memcpy HtoD"));
    CHECK_STR("step", class_of("ProfilerStep#3"));
    CHECK_STR("note", class_of("forward"));
    CHECK_STR("note", class_of("forward gpu"));
    CHECK_STR("thread 43", track_name("aten::mm"));
    CHECK_STR("stream 7", track_name("gemm"));
    CHECK_STR("stream 7", track_name("forward gpu"));
    CHECK_STR("steps", track_name("ProfilerStep#3"));
    uint64_t gemm = span_named("gemm");
    CHECK_INT(20000, t.start_ns[gemm]);
    CHECK_INT(3001, t.dur_ns[gemm]);
    CHECK_U64(7, t.correlation[gemm]);
    CHECK_U64(7, t.correlation[span_named("cudaLaunchKernel")]);
    CHECK_U64(NONE_U64, t.correlation[span_named("aten::mm")]);
    CHECK_INT(7, track_of(gemm)->sort);
    CHECK_INT(TRACK_STREAM, track_of(gemm)->kind);
    CHECK_INT(43, track_of(span_named("aten::mm"))->sort);
    CHECK_U64(1, info.kernels_n);
    CHECK_U64(0, info.comm_kernels_n);
}

static void names_of_2021_mean_the_same(void)
{
    CHECK(read_events(of_2021));
    CHECK_U64(6, info.events_read);
    CHECK_STR("compute", class_of("gemm"));
    CHECK_STR("memory", class_of("Memset (Device)"));
    CHECK_STR("launch", class_of("cudaLaunchKernel"));
    CHECK_STR("note", class_of("[memory]"));
    CHECK(track_of(span_named("[memory]")) == track_of(span_named("aten::mm"))); /* "5" is 5 */
    CHECK_U64(5, t.spans_n);
}

/* kineto.h says how Holistic Trace Analysis' rows are found: this is that rule. */
static bool is_gpu_row(uint64_t i)
{
    const Track *k = track_of(i);
    return k->kind == TRACK_STREAM && k->sort >= 0 && t.span_class[i] != SPAN_NOTE &&
           t.span_class[i] != SPAN_STEP;
}

/* clang-format off */
#define XLA_NAME(what, pid, tid, name) \
    "{\"ph\":\"M\",\"name\":\"" what "\",\"pid\":" pid ",\"tid\":" tid ",\"args\":{\"name\":\"" \
    name "\"}},"
#define XLA_ROW(name, pid, tid, ts) \
    "{\"ph\":\"X\",\"name\":\"" name "\",\"pid\":" pid ",\"tid\":" tid ",\"ts\":" ts ",\"dur\":4," \
    "\"args\":{\"correlation_id\":\"44\"}},"
#define XLA_DEVICE(number, pid, kernel) \
    XLA_NAME("process_name", pid, "0", "/device:GPU:" number) \
    XLA_NAME("thread_name", pid, "1", "XLA Ops") \
    XLA_NAME("thread_name", pid, "2", "Stream #13(Compute,MemcpyD2D)") \
    XLA_ROW(kernel, pid, "2", "10") XLA_ROW("dot.1", pid, "1", "10")
/* clang-format on */

static void streams_of_xla_are_known_by_the_names_of_their_rows(void)
{
    if (!CHECK(read_events(XLA_DEVICE("3", "1", "gemm_fusion_dot_17") XLA_ROW(
            "MemcpyD2D", "1", "2", "20") XLA_ROW("PjitFunction(f)", "701", "9", "1") "{}")))
        return;
    CHECK_U64(0, info.events_skipped);
    CHECK_U64(1, info.kernels_n);
    CHECK_STR("compute", class_of("gemm_fusion_dot_17"));
    CHECK_STR("memory", class_of("MemcpyD2D"));
    CHECK_STR("host", class_of("dot.1"));
    CHECK_STR("host", class_of("PjitFunction(f)"));
    CHECK_STR("stream 13", track_name("gemm_fusion_dot_17"));
    CHECK_INT(1, t.ranks_n);
    CHECK(!info.ranks_counted);
    timeline_free(&t);
}

/* One process has them all, and each works for itself. */
static void several_devices_of_xla_are_ranks(void)
{
    if (!CHECK(read_events(XLA_DEVICE("0", "1", "one") XLA_DEVICE("1", "2", "two") "{}")))
        return;
    CHECK_INT(2, t.ranks_n);
    CHECK_INT(0, track_of(span_named("one"))->rank);
    CHECK_INT(1, track_of(span_named("two"))->rank);
    CHECK(info.ranks_counted);
    timeline_free(&t);
}

static void rows_with_a_numeric_stream_are_gpu_rows_whatever_their_category(void)
{
    CHECK(read_events(
        X("cpu_op", "triton_poi_fused_0", "1", "2", "1", "1", "\"stream\":7") "," /* yes */
        X("cuda_sync", "Stream Sync", "0", "1000007", "2", "1",
          "\"stream\":7,\"device\":0,\"correlation\":1") "," /* yes */
        X("cuda_sync", "Context Sync", "0", "-1", "3", "1", "\"stream\":-1,\"device\":0") "," X(
            "cuda_runtime", "hipMemcpyWithStream", "1", "2", "4", "1",
            "\"stream\":\"0x0\"") "," X("mtia_ccp_events", "mtia_gemm", "0", "3", "5", "1",
                                        "\"stream\":3") "," /* yes */
        X("gpu_user_annotation", "noted", "0", "7", "6", "1", "\"External id\":3") "," X(
            "kernel", "streamless", "0", "9", "7", "1", "") "," X("kernel", "plain", "0", "0",
                                                                  "8", "1", "\"stream\":0")));
    size_t n = 0;
    for (uint64_t i = 0; i < t.spans_n; i++)
        n += is_gpu_row(i);
    CHECK_U64(4, n);
    CHECK(is_gpu_row(span_named("triton_poi_fused_0")));
    CHECK(is_gpu_row(span_named("Stream Sync")));
    CHECK(is_gpu_row(span_named("mtia_gemm")));
    CHECK(is_gpu_row(span_named("plain")));
    CHECK_STR("stream 7 (host rows)", track_name("triton_poi_fused_0"));
    CHECK_STR("host", class_of("triton_poi_fused_0"));
    CHECK_STR("sync", class_of("Context Sync"));
    CHECK(track_of(span_named("Context Sync"))->sort < 0);
    CHECK_STR("compute", class_of("streamless"));
    CHECK_STR("compute", class_of("mtia_gemm"));
}

static void devices_are_told_apart_only_where_there_are_several(void)
{
    CHECK(read_events(X("kernel", "a", "0", "7", "1", "1", "\"device\":0,\"stream\":7") "," X(
        "kernel", "b", "1", "7", "1", "1", "\"device\":1,\"stream\":7")));
    CHECK_STR("GPU 0 stream 7", track_name("a"));
    CHECK_STR("GPU 1 stream 7", track_name("b"));
}

static void begin_and_end_nest_per_thread(void)
{
    CHECK(read_text("[{\"ph\":\"B\",\"name\":\"outer\",\"pid\":1,\"tid\":1,\"ts\":10},"
                    "{\"ph\":\"B\",\"name\":\"inner\",\"pid\":1,\"tid\":1,\"ts\":11},"
                    "{\"ph\":\"B\",\"name\":\"other\",\"pid\":1,\"tid\":2,\"ts\":11.5},"
                    "{\"ph\":\"E\",\"pid\":1,\"tid\":1,\"ts\":12},"
                    "{\"ph\":\"E\",\"pid\":1,\"tid\":1,\"ts\":15},"
                    "{\"ph\":\"E\",\"pid\":1,\"tid\":1,\"ts\":16}")); /* nothing is open */
    CHECK_INT(5000, t.dur_ns[span_named("outer")]);
    CHECK_INT(1000, t.dur_ns[span_named("inner")]);
    CHECK_INT(3500, t.dur_ns[span_named("other")]); /* never ended: until the last event */
    CHECK_U64(1, info.events_skipped);
    CHECK_STR("it ends what has not begun", info.damage[0].reason);
}

/* Kernels that come as pairs are GPU work as whole ones are. */
static void begin_and_end_of_gpu_work(void)
{
#define ON(stream) \
    "\"cat\":\"kernel\",\"pid\":0,\"tid\":" stream ",\"args\":{\"stream\":" stream "}"
    CHECK(read_text("[{\"ph\":\"B\",\"name\":\"gemm\",\"ts\":10," ON(
        "7") "},"
             "{\"ph\":\"B\",\"name\":\"ncclDevKernel_AllReduce_Sum_f32_RING_LL\","
             "\"ts\":12," ON(
                 "20") "},"
                       "{\"ph\":\"E\",\"ts\":15," ON(
                           "7") "},"
                                "{\"ph\":\"E\",\"ts\":17.5," ON(
                                    "20") "},"
                                          "{\"ph\":\"B\",\"name\":\"late\",\"ts\":18," ON(
                                              "7") "}]"));
#undef ON
    uint64_t gemm = span_named("gemm");
    uint64_t reduce = span_named("ncclDevKernel_AllReduce_Sum_f32_RING_LL");
    CHECK_INT(5000, t.dur_ns[gemm]);
    CHECK_INT(SPAN_COMPUTE, t.span_class[gemm]);
    CHECK_INT(5500, t.dur_ns[reduce]);
    CHECK_INT(SPAN_COMM, t.span_class[reduce]);
    CHECK_INT(0, t.dur_ns[span_named("late")]); /* never ended: until the last event */
    CHECK_STR("stream 7", track_name("gemm"));
    CHECK_U64(3, info.kernels_n);
    CHECK_U64(1, info.comm_kernels_n);
    CHECK_U64(0, info.events_skipped);
}

static void async_events_are_joined_by_id(void)
{
    CHECK(read_text(
        "[{\"ph\":\"b\",\"cat\":\"req\",\"id\":\"0x1\",\"name\":\"one\",\"pid\":1,\"ts\":10},"
        "{\"ph\":\"b\",\"cat\":\"req\",\"id\":\"0x2\",\"name\":\"two\",\"pid\":1,\"ts\":11},"
        "{\"ph\":\"n\",\"cat\":\"req\",\"id\":\"0x1\",\"name\":\"mark\",\"pid\":1,\"ts\":12},"
        "{\"ph\":\"e\",\"cat\":\"req\",\"id\":\"0x1\",\"name\":\"one\",\"pid\":1,\"ts\":14},"
        "{\"ph\":\"e\",\"cat\":\"req\",\"id\":\"0x2\",\"name\":\"two\",\"pid\":1,\"ts\":19}]"));
    CHECK_INT(4000, t.dur_ns[span_named("one")]);
    CHECK_INT(8000, t.dur_ns[span_named("two")]);
    CHECK_INT(0, t.dur_ns[span_named("mark")]);
    CHECK_STR("req", track_name("one"));
    CHECK_U64(3, track_of(span_named("one"))->lanes_n); /* the mark lies within both */
}

static const Track *counter_named(const char *name)
{
    for (uint32_t k = 0; k < t.tracks_n; k++)
        if (t.tracks[k].kind == TRACK_COUNTER &&
            strcmp(timeline_text(&t, t.tracks[k].name), name) == 0)
            return &t.tracks[k];
    return NULL;
}

static void counters_have_a_track_for_each_number(void)
{
    CHECK(read_text(
        "[{\"ph\":\"C\",\"name\":\"util\",\"pid\":1,\"ts\":1,\"args\":{\"sm\":0.5,\"mem\":3}},"
        "{\"ph\":\"C\",\"name\":\"util\",\"pid\":1,\"ts\":2,\"args\":{\"sm\":1,\"mem\":NaN}},"
        "{\"ph\":\"C\",\"name\":\"one\",\"pid\":1,\"ts\":2,\"args\":{\"value\":9}},"
        "{\"ph\":\"i\",\"name\":\"[memory]\",\"pid\":1,\"tid\":1,\"ts\":3,\"args\":{\"Device "
        "Type\":1,\"Device Id\":0,\"Total Allocated\":512,\"Total Reserved\":2048}}]"));
    const Track *sm = counter_named("util sm"), *mem = counter_named("util mem");
    if (!CHECK(sm && mem && counter_named("one") && counter_named("allocated GPU 0") &&
               counter_named("reserved GPU 0")))
        return;
    CHECK_U64(2, sm->point_n);
    CHECK_U64(1, mem->point_n); /* NaN is no value */
    CHECK_NEAR(0.5, t.point_value[sm->point_first], 0);
    CHECK_NEAR(2048, t.point_value[counter_named("reserved GPU 0")->point_first], 0);
}

static void threads_are_named_wherever_the_names_stand(void)
{
    CHECK(read_events("{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":1,\"tid\":2,\"args\":{"
                      "\"name\":\"first\"}}," X("cpu_op", "a", "1", "2", "1", "1", "") "," X(
                          "cpu_op", "b", "\"Spans\"", "\"PyTorch Profiler\"", "1", "1",
                          "") "," X("cpu_op", "c", "1", "3", "1", "1",
                                    "") ","
                                        "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":1,"
                                        "\"tid\":3,\"args\":{"
                                        "\"name\":\"a \\\"quoted\\\" name\"}}"));
    CHECK_STR("first", track_name("a"));
    CHECK_STR("PyTorch Profiler", track_name("b"));
    CHECK_STR("a \"quoted\" name", track_name("c"));
}

/* ---- the document around the events ---- */

static void the_head_may_stand_before_or_after_and_the_base_is_added(void)
{
    static const char *const texts[] = {
        "{\"distributedInfo\":{\"backend\":\"nccl\",\"rank\":3,\"world_size\":8,\"pg_config\":["
        "{\"ranks\":[0,1]}]},\"baseTimeNanoseconds\":1735632360000000000,\"traceEvents\":["
        "{\"ph\":\"X\",\"name\":\"a\",\"pid\":1,\"tid\":1,\"ts\":1.5,\"dur\":2}],"
        "\"deviceProperties\":"
        "[{\"id\":0,\"name\":\"NVIDIA H100\"},{\"id\":1,\"name\":\"other\"}]}",
        "\xef\xbb\xbf{\"deviceProperties\":[{\"name\":\"NVIDIA H100\"}],\"INFO\":[\"a]}\\\"\"],"
        "\"traceEvents\":[{\"ph\":\"X\",\"name\":\"a\",\"pid\":1,\"tid\":1,\"ts\":\"1.5\","
        "\"dur\":"
        "\"2\"}],\"distributedInfo\":{\"rank\":\"3\",\"ranks\":\"[0, 1]\",\"world_size\":8},"
        "\"baseTimeNanoseconds\":1735632360000000000}",
    };
    for (size_t i = 0; i < ARRAY_N(texts); i++) {
        CHECK(read_text(texts[i]));
        CHECK_INT(3, info.rank);
        CHECK_INT(8, info.world_size);
        CHECK_INT(8, t.ranks_n);
        CHECK_INT(3, t.tracks[0].rank);
        CHECK_STR("NVIDIA H100", info.device);
        CHECK_INT(1735632360000001500, t.start_ns[0]);
        CHECK(info.wall_clock);
        CHECK(!info.cut_short);
    }
}

static void a_list_may_stay_open_and_documents_may_follow_one_another(void)
{
    static const char event[] =
        "{\"ph\":\"X\",\"name\":\"a\",\"pid\":1,\"tid\":1,\"ts\":1,\"dur\":2}";
    char text[1024];
    snprintf(text, sizeof text, "[%s,\n%s", event, event);
    CHECK(read_text(text));
    CHECK_U64(2, t.spans_n);
    CHECK(!info.cut_short);
    snprintf(text, sizeof text,
             "{\"baseTimeNanoseconds\":1000,\"traceEvents\":[%s]}\n{\"traceEvents\":[%s],"
             "\"baseTimeNanoseconds\":5000}[%s]",
             event, event, event);
    CHECK(read_text(text));
    CHECK_U64(3, t.spans_n);
    CHECK_U64(0, info.events_skipped);
    CHECK_INT(1000, t.start_ns[0]); /* each document has its own base */
    CHECK_INT(2000, t.start_ns[1]);
    CHECK_INT(6000, t.start_ns[2]);
    CHECK_INT(3, info.documents_n);
    snprintf(text, sizeof text,
             "{\"distributedInfo\":{\"rank\":2},\"traceEvents\":[%s]}\n"
             "{\"traceEvents\":[%s],\"distributedInfo\":{\"rank\":2}}",
             event, event);
    CHECK(read_text(text));
    CHECK_INT(2, info.rank);
    *strrchr(text, '2') = '5';
    CHECK(!read_text(text));
    CHECK_ERR_TEXT(&err, "it holds traces of rank 2 and rank 5 one after another, each rank "
                         "needs a file of its own");
}

static void an_empty_list_is_an_empty_trace(void)
{
    CHECK(read_text("[]"));
    CHECK_U64(0, t.spans_n);
    CHECK(read_text("{\"traceEvents\": []}"));
    CHECK_U64(0, t.spans_n);
}

/* ---- text as it is out there ---- */

static void odd_bytes_in_strings_are_kept(void)
{
    CHECK(read_events(
        "\r\n{\r\n\"ph\" :\t\"X\", \"name\":\"raw\x01\ttab \xff\xfe\", \"pid\":1,"
        "\"tid\":1,\r\n\"ts\":1,\"dur\":NaN},"
        "{\"ph\":\"X\",\"name\":\"raw\x01\ttab \xff\xfe\",\"pid\":1,\"tid\":1,"
        "\"ts\":1,\"dur\":2,\"args\":{\"p\":\"C:\\dir\\x\",\"v\":NaN,\"w\":-Infinity}}"));
    CHECK_U64(1, info.events_read);
    CHECK_STR("raw\x01\ttab \xff\xfe", timeline_text(&t, t.span_name[0]));
    CHECK_STR("its dur is no number, or out of range", info.damage[0].reason);
}

static void members_come_in_any_order_and_the_last_of_a_key_counts(void)
{
    CHECK(read_events("{\"args\":{\"correlation\":1,\"stream\":7,\"correlation\":5},\"dur\":2,"
                      "\"ts\":1,\"tid\":7,\"pid\":0,\"name\":\"no\",\"name\":\"k\",\"cat\":"
                      "\"kernel\",\"ph\":\"X\"}"));
    CHECK_U64(5, t.correlation[span_named("k")]);
    CHECK_STR("stream 7", track_name("k"));
}

static void the_offset_of_an_event_is_where_it_begins(void)
{
    const char *text =
        "{\"traceEvents\": [\n  {\"ph\":\"X\",\"name\":\"a\",\"pid\":1,\"tid\":1,"
        "\"ts\":1,\"dur\":2} , {\"ph\":\"X\",\"name\":\"b\",\"pid\":1,\"tid\":1,"
        "\"ts\":2,\"dur\":2}]}";
    CHECK(read_text(text));
    CHECK_U64((uint64_t)(strchr(text + 1, '{') - text), t.args_offset[span_named("a")]);
    CHECK_U64((uint64_t)(strstr(text, "\"name\":\"b\"") - 10 - text),
              t.args_offset[span_named("b")]);
}

/* ---- damage ---- */

#define GOOD(name) X("cpu_op", name, "1", "1", "1", "2", "")

static void damaged_events_are_skipped_and_told(void)
{
    static const struct {
        const char *bad, *reason;
    } cases[] = {
        { "{\"name\":\"x\",\"pid\":1}", "it has no phase" },
        { "{\"ph\":\"?\",\"name\":\"x\"}", "its phase is none that the format knows" },
        { "{\"ph\":\"XX\",\"name\":\"x\"}", "it has no phase" },
        { "{\"ph\":\"X\",\"name\":\"x\",\"dur\":1}", "it has no ts" },
        { "{\"ph\":\"X\",\"name\":\"x\",\"ts\":1}", "it has no dur" },
        { X("", "x", "1", "1", "1", "-1", ""), "its dur is negative" },
        { X("", "x", "1", "1", "99999999999999999999", "1", ""),
          "its ts is no number, or out of range" },
        { X("", "x", "1", "1", "-9000000000000000", "1", ""), "its ts is out of range" },
        { X("", "x", "1", "1", "1", "1e15", ""), "its dur is out of range" },
        { X("", "x", "1", "1", "true", "1", ""), "its ts is no number, or out of range" },
        { "{\"ph\":\"X\",\"name\":\"x\",,:}", "a key is expected" },
        { "{\"ph\":\"X\",\"name\":\"x\" \"pid\" 1}", "a colon is expected" },
        { "{\"ph\":\"X\",\"args\":{\"a\":[1}}", "a bracket is closed by one of another kind" },
        { "{\"ph\":\"X\",\"name\":", "a value is expected" },
        { "{\"ph\":\"X\",\"name\":\"unfinished}", NULL },
        { "17", "an event is expected" },
        { "\"text\"", "an event is expected" },
        { "{\"ph\":\"C\",\"name\":\"c\",\"ts\":1}", "a counter has no values" },
    };
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        char text[1024];
        snprintf(text, sizeof text, "%s,\n%s,\n%s,\n%s", GOOD("before"), cases[i].bad,
                 GOOD("after"), GOOD("last"));
        if (!CHECK(read_events(text)))
            continue;
        if (!CHECK(span_named("before") != NONE_U64 && span_named("last") != NONE_U64 &&
                   info.events_skipped > 0))
            fprintf(stderr, "    %s\n", cases[i].bad);
        if (cases[i].reason) {
            CHECK_STR(cases[i].reason, info.damage[0].reason);
            CHECK(span_named("after") != NONE_U64);
            CHECK_U64(info.damage[0].offset,
                      (uint64_t)strlen("{\"schemaVersion\": 1, \"traceEvents\": [") +
                          strlen(GOOD("before")) + 2);
        }
    }
}

static void what_follows_the_events_is_found_after_damage(void)
{
    CHECK(read_text("{\"traceEvents\":[" GOOD("a") ",{\"ph\":\"X\",\"name\":5,:}\n],\n"
                                                   "\"baseTimeNanoseconds\":1000}"));
    CHECK_INT(2000, t.start_ns[span_named("a")]);
    CHECK_U64(1, info.events_skipped);
}

/* A list's end that is met while looking for the next event does not end the looking. */
static void events_behind_a_closed_list_are_found_after_damage(void)
{
    CHECK(read_text("{\"traceEvents\": [" GOOD("a") "], \"b\" \"c\": [{}], \"d\": [{}], "
                                                    "\"more\": [" GOOD("e") "]}"));
    CHECK(span_named("a") != NONE_U64 && span_named("e") != NONE_U64);
    CHECK_U64(1, info.events_skipped);
}

static void only_the_first_damages_are_kept_but_all_are_counted(void)
{
    char text[4096] = "";
    for (int i = 0; i < 50; i++)
        strcat(text, "{\"ph\":\"X\",\"ts\":1},");
    strcat(text, GOOD("a"));
    CHECK(read_events(text));
    CHECK_U64(50, info.events_skipped);
    CHECK_INT(TRACE_DAMAGE_KEPT, info.damage_n);
    CHECK(info.damage[1].offset > info.damage[0].offset);
}

static void huge_nesting_and_huge_events_are_damage(void)
{
    size_t n = 100000;
    char *text = mem_zero(n + 1024, 1);
    strcpy(text, "[" GOOD("a") ",{\"ph\":\"X\",\"args\":{\"x\":");
    memset(text + strlen(text), '[', n);
    strcat(text, "," GOOD("b") "]");
    CHECK(read_text(text));
    CHECK(span_named("b") != NONE_U64);
    CHECK_STR("it is nested too deep", info.damage[0].reason);
    free(text);

    size_t huge = (size_t)KINETO_EVENT_BYTES_MAX + 100;
    text = mem_zero(huge + 1024, 1);
    strcpy(text, "[" GOOD("a") ",{\"ph\":\"X\",\"name\":\"");
    memset(text + strlen(text), 'x', huge);
    strcat(text, "\"}," GOOD("b") "]");
    CHECK(read_text(text));
    CHECK(span_named("b") != NONE_U64);
    CHECK_STR("it is longer than 32 MiB", info.damage[0].reason);
    free(text);
}

/* Cut at every byte: always what was whole before, never a crash, never more. */
static void a_file_may_end_anywhere(void)
{
    const char *text =
        "{\"schemaVersion\":1,\"deviceProperties\":[{\"name\":\"A\\\"100\"}],"
        "\"traceEvents\":[" GOOD("a\\u0041") "," X(
            "kernel", "k", "0", "7", "5", "2",
            "\"stream\":7,\"grid\":[1,2],\"s\":\"}]\"") ",{\"ph\":\"C\",\"name\":\"c\","
                                                        "\"pid\":1,\"ts\":3,\"args\":{"
                                                        "\"value\":1e3}}],\"traceName\":\"x\"}"
                                                        "\n";
    size_t n = strlen(text);
    uint64_t events_before = 0;
    for (size_t cut = 1; cut <= n; cut++) {
        bool ok = read_bytes(text, cut);
        uint64_t events = ok ? info.events_read : 0;
        CHECK(events >= events_before && events <= 3);
        events_before = events;
        if (ok && cut + 2 < n)
            CHECK(info.cut_short);
    }
    CHECK_U64(3, events_before);
}

static void every_byte_may_be_wrong(void)
{
    const char *text = "{\"traceEvents\":[" GOOD("a") "," X("kernel", "k", "0", "7", "5", "2",
                                                            "\"stream\":7") "],\"x\":{}}";
    size_t n = strlen(text);
    char *bad = mem_zero(n + 1, 1);
    static const char wrong[] = { '"', '\\', '{', '}', '[', ']', ',', ':', '0', '\0', '\xff' };
    for (size_t i = 0; i < n; i++)
        for (size_t w = 0; w < sizeof wrong; w++) {
            memcpy(bad, text, n);
            bad[i] = wrong[w];
            read_bytes(bad, n); /* checks that what it gives is sound */
        }
    free(bad);
}

static void what_is_no_trace_is_a_sentence(void)
{
    static const struct {
        const char *text, *part;
    } cases[] = {
        { "{}", "it is JSON without traceEvents" },
        { "{\"nodes\":[{\"id\":1}],\"schema\":\"1.0\"}", "it is JSON without traceEvents" },
        { "{\"traceEvents\":{}}", "it is JSON without traceEvents" },
        { "[1,2,3]", "it holds no event that can be read; at byte 1: an event is expected" },
        { "\xff\xd8\xff\xe0 JFIF",
          "it holds no event that can be read; at byte 0: it follows" },
        { "{\"a\"", "it is JSON without traceEvents" },
        { "{7}", "a key is expected" },
    };
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        CHECK(!read_text(cases[i].text));
        CHECK_ERR_TEXT(&err, "cannot read '");
        CHECK_ERR_TEXT(&err, cases[i].part);
        CHECK_U64(0, t.spans_n);
    }
    CHECK(!read_path(path_of("none.json")));
    CHECK_ERR_TEXT(&err, "cannot open '");
    CHECK(!read_path(folder));
    CHECK_ERR_TEXT(&err, "it is a directory");
    CHECK(!read_path("/dev/null"));
    CHECK_ERR_TEXT(&err, "it is not a regular file");
    CHECK(!read_text(""));
    CHECK_ERR_TEXT(&err, "it is empty");
}

/* ---- gzip ---- */

static size_t pack(uint8_t *to, size_t cap, const void *from, size_t n)
{
    z_stream z = { .next_in = (Bytef *)(uintptr_t)from,
                   .avail_in = (uInt)n,
                   .next_out = to,
                   .avail_out = (uInt)cap };
    ASSERT(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
    ASSERT(deflate(&z, Z_FINISH) == Z_STREAM_END);
    size_t packed = cap - z.avail_out;
    deflateEnd(&z);
    return packed;
}

static void gzip_members_are_one_text(void)
{
    static const char a[] = "{\"traceEvents\":[" GOOD("a") ",", b[] = GOOD("b") "]}";
    uint8_t packed[4096];
    size_t n = pack(packed, sizeof packed, a, sizeof a - 1);
    n += pack(packed + n, sizeof packed - n, b, sizeof b - 1);
    memcpy(packed + n, "trailing", 8);
    CHECK(read_bytes(packed, n + 8));
    CHECK_U64(2, t.spans_n);
    CHECK(!info.cut_short);
    CHECK_U64(0, info.events_skipped);
}

/* events_n events with names that do not pack well; what gzip makes of them, above or below the
 * size from which on a thread unpacks. */
static void break_off_gzip_of(int events_n)
{
    static char text[2000000];
    size_t n = 1;
    text[0] = '[';
    for (int i = 0; i < events_n; i++)
        n += (size_t)snprintf(text + n, 300,
                              "{\"ph\":\"X\",\"name\":\"%x\",\"pid\":1,\"tid\":1,"
                              "\"ts\":%d,\"dur\":1},\n",
                              (unsigned)mix_u64((uint64_t)i), i);
    text[n++] = ']';
    static uint8_t packed[1000000];
    size_t packed_n = pack(packed, sizeof packed, text, n);
    CHECK(read_bytes(packed, packed_n));
    uint64_t all = info.events_read;
    CHECK(read_bytes(packed, packed_n / 2));
    CHECK(info.events_read > 0 && info.events_read < all);
    CHECK(info.cut_short);
    CHECK_STR("it ends in the middle of its gzip data", info.broken);
    packed[packed_n / 2] ^= 0x5a;
    CHECK(read_bytes(packed, packed_n) ? info.broken || info.events_skipped > 0 : err.set);
    packed[packed_n / 2] ^= 0x5a;
    packed[packed_n - 8] ^= 1; /* the check sum alone: no event is damaged, nothing missing */
    CHECK(read_bytes(packed, packed_n));
    CHECK_U64(all, info.events_read);
    CHECK_U64(0, info.events_skipped);
    CHECK(!info.cut_short);
    CHECK_STR("its gzip data are damaged", info.broken);
    CHECK(!read_bytes(packed, 12));
}

static void gzip_that_breaks_off_is_read_up_to_there(void)
{
    break_off_gzip_of(1000);
    break_off_gzip_of(20000);
}

/* A tenth of a megabyte that would fill the memory with blanks. */
static void a_gzip_bomb_is_stopped(void)
{
    enum { BLOCK = 1 << 20, BLOCKS = 120 };
    gzFile f = gzopen(path_of("bomb.json.gz"), "wb9");
    char *blanks = mem_zero(BLOCK, 1);
    memset(blanks, ' ', BLOCK);
    ASSERT(f && gzputs(f, "[") == 1);
    for (int i = 0; i < BLOCKS; i++)
        ASSERT(gzwrite(f, blanks, BLOCK) == BLOCK);
    ASSERT(gzclose(f) == Z_OK);
    free(blanks);
    CHECK(!read_path(path_of("bomb.json.gz")));
    CHECK_ERR_TEXT(&err, "it unpacks to more than 400 times its size, which no trace does");
}

/* ---- communication ---- */

static const Comm *comm_named(const char *name)
{
    uint64_t i = span_named(name);
    return i == NONE_U64 ? NULL : timeline_comm_of(&t, i);
}

#define KERNEL(name, more) \
    X("kernel", name, "0", "24", "100", "50", \
      "\"device\":0,\"stream\":24,\"correlation\":9" more)

static void collectives_are_read_from_the_kernels_own_arguments(void)
{
    CHECK(read_events(KERNEL(
        "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        ",\"Collective name\":\"_allgather_base\",\"In msg nelems\":1000,\"Out msg "
        "nelems\":8000,"
        "\"Group size\":8,\"dtype\":\"BFloat16\",\"Process Group Name\":\"12\",\"Process Group "
        "Description\":\"TENSOR_MODEL_PARALLEL_GROUP\",\"Seq\":77")));
    const Comm *c =
        comm_named("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)");
    if (!CHECK(c))
        return;
    CHECK_STR("all_gather", timeline_text(&t, c->op));
    CHECK_STR("TENSOR_MODEL_PARALLEL_GROUP", timeline_text(&t, c->group));
    CHECK_STR("bf16", timeline_text(&t, c->dtype));
    CHECK_STR("ring", timeline_text(&t, c->algorithm));
    CHECK_STR("LL", timeline_text(&t, c->protocol));
    CHECK_INT(12, c->group_id);
    CHECK_INT(8, c->ranks_n);
    CHECK_INT(77, c->seq);
    CHECK_U64(16000, c->bytes); /* the larger side, as nccl-tests counts */
    CHECK_U64(1, info.rule_kernels_n[RULE_METADATA]);
    CHECK_U64(1, info.comm_kernels_n);
}

static uint32_t group_id_of(const char *ranks)
{
    char text[1000];
    snprintf(text, sizeof text,
             KERNEL("ncclDevKernel_AllGather_RING_LL(x)",
                    ",\"Collective name\":\"allreduce\",\"Process Group Name\":\"1\",\"Process "
                    "Group Description\":\"mesh_tp\",\"Process Group Ranks\":%s"),
             ranks);
    CHECK(read_events(text));
    const Comm *c = comm_named("ncclDevKernel_AllGather_RING_LL(x)");
    return CHECK(c) ? c->group_id : NONE_U32;
}

static void groups_of_one_name_are_told_apart_by_their_ranks(void)
{
    uint32_t first = group_id_of("\"[0, 1]\"");
    CHECK(first != NONE_U32 && first != group_id_of("\"[2, 3]\""));
    CHECK_INT(first, group_id_of("[0,1]"));
    CHECK(first != group_id_of("\"[0, 1, ..., 15]\""));
}

/* ---- how kernels were launched ---- */

static const KernelLaunch *launch_named(const char *name)
{
    uint64_t i = span_named(name);
    return i == NONE_U64 ? NULL : timeline_launch_of(&t, i);
}

#define SHAPE ",\"grid\":[24, 2,1],\"block\": [ 544 , 1,1 ],\"registers per thread\":96"

static void kernels_keep_grid_and_block(void)
{
    CHECK(read_events(KERNEL(
        "gemm", SHAPE
        ",\"shared memory\":88016,\"est. achieved occupancy "
        "%\":37") "," KERNEL("again", SHAPE
                             ",\"shared memory\":88016,\"est. achieved occupancy "
                             "%\":36.6") "," KERNEL("bare",
                                                    SHAPE) "," KERNEL("ncclDevKernel_AllReduce_"
                                                                      "Sum_f16_RING_LL(x)",
                                                                      SHAPE) "," X("cpu_op",
                                                                                   "no kernel",
                                                                                   "1", "1",
                                                                                   "0", "9",
                                                                                   "\"grid\":["
                                                                                   "1,1,1],"
                                                                                   "\"block\":["
                                                                                   "1,1,1]")));
    const KernelLaunch *l = launch_named("gemm");
    if (!CHECK(l))
        return;
    CHECK(l->grid[0] == 24 && l->grid[1] == 2 && l->grid[2] == 1);
    CHECK(l->block[0] == 544 && l->block[1] == 1 && l->block[2] == 1);
    CHECK(l->registers_n == 96 && l->shared_bytes == 88016 && l->occupancy_pct == 37);
    CHECK(launch_named("again") == l);
    l = launch_named("bare");
    CHECK(l && l->registers_n == 96 && l->shared_bytes == NONE_U32 &&
          l->occupancy_pct == NONE_U32);
    CHECK(launch_named("ncclDevKernel_AllReduce_Sum_f16_RING_LL(x)") == l);
    CHECK(comm_named("ncclDevKernel_AllReduce_Sum_f16_RING_LL(x)") != NULL);
    CHECK(launch_named("no kernel") == NULL);
    CHECK_INT(2, (int)t.launches_n);
}

static void odd_launches_are_none(void)
{
    static const char *const grids[] = {
        "[1,1]",  "[1,1,1,1]",  "[-1,1,1]", "[1.5,1,1]",        "\"[1,1,1]\"",
        "7",      "null",       "[]",       "[4294967295,1,1]", "[99999999999,1,1]",
        "[1,,1]", "[\"1\",1,1]"
    };
    for (size_t i = 0; i < ARRAY_N(grids); i++) {
        char text[400];
        snprintf(text, sizeof text, KERNEL("k", ",\"block\":[1,1,1],\"grid\":%s"), grids[i]);
        CHECK(read_events(text));
        CHECK_U64(0, info.events_skipped);
        CHECK(span_named("k") != NONE_U64 && launch_named("k") == NULL);
    }
    CHECK(read_events(KERNEL("k", SHAPE ",\"registers per thread\":-1,\"shared memory\":1e99,"
                                        "\"est. achieved occupancy %\":\"x\"")));
    const KernelLaunch *l = launch_named("k");
    CHECK(l && l->registers_n == NONE_U32 && l->shared_bytes == NONE_U32 &&
          l->occupancy_pct == NONE_U32);
}

/* Written and read again, also what is communication. */
static void launches_come_back_from_our_own_files(void)
{
    const char *path = path_of("launches.json");
    Timeline read;
    CHECK(read_events(KERNEL(
        "gemm", SHAPE
        ",\"shared memory\":0,\"est. achieved occupancy "
        "%\":9") "," KERNEL("bare",
                            SHAPE) "," KERNEL("ncclDevKernel_AllReduce_Sum_f16_RING_LL(x)",
                                              SHAPE)));
    read = t;
    t = (Timeline){ 0 };
    CHECK(chrome_write(&read, path, &err) && read_path(path));
    CHECK_U64(read.spans_n, t.spans_n);
    for (uint64_t i = 0; i < read.spans_n; i++) {
        const KernelLaunch *x = timeline_launch_of(&read, i);
        const KernelLaunch *y = launch_named(timeline_text(&read, read.span_name[i]));
        CHECK(x && y && memcmp(x, y, sizeof *x) == 0);
    }
    timeline_free(&read);
}

static void sends_know_their_peer(void)
{
    CHECK(read_events(KERNEL("ncclDevKernel_SendRecv(x)",
                             ",\"Collective name\":\"send\",\"In msg nelems\":10,\"dtype\":"
                             "\"Half\",\"Group size\":4,\"Src Rank\":1,\"Dst Rank\":3")));
    const Comm *c = comm_named("ncclDevKernel_SendRecv(x)");
    if (!CHECK(c))
        return;
    CHECK_STR("send", timeline_text(&t, c->op));
    CHECK_INT(3, c->peer);
    CHECK_U64(20, c->bytes);
    CHECK_STR("p2p", class_of("ncclDevKernel_SendRecv(x)"));
}

/* Before 2024 kernels say nothing: the operator around their launch does. */
static void old_traces_take_it_from_the_operator_around_the_launch(void)
{
    static const char launch[] =
        X("cuda_runtime", "cudaLaunchKernel", "5", "6", "30", "2", "\"correlation\":9");
    /* clang-format off */
    static const char around[] =
        X("cpu_op", "record_param_comms", "5", "6", "20", "40",
          "\"Input Dims\":[[],[],[]],\"Input type\":[\"TensorList\",\"Scalar\",\"\"]") ","
        X("user_annotation", "nccl:all_reduce", "5", "6", "25", "20",
          "\"Input Dims\":[[4,2048,4096]],\"Input type\":[\"c10::Half\"]") ","
        X("user_annotation", "nccl:broadcast", "5", "6", "70", "20", /* is over elsewhere */
          "\"Input Dims\":[[1]],\"Input type\":[\"float\"]");
    /* clang-format on */
    static const char kernel[] = KERNEL("ncclKernel_AllReduce_RING_LL_Sum_half(ncclWork*)", "");
    const char *parts[][3] = { { kernel, launch, around },
                               { around, launch, kernel },
                               { launch, kernel, around } };
    for (size_t i = 0; i < ARRAY_N(parts); i++) {
        char text[2048];
        snprintf(text, sizeof text, "%s,%s,%s", parts[i][0], parts[i][1], parts[i][2]);
        CHECK(read_events(text));
        const Comm *c = comm_named("ncclKernel_AllReduce_RING_LL_Sum_half(ncclWork*)");
        if (!CHECK(c))
            continue;
        CHECK_STR("all_reduce", timeline_text(&t, c->op));
        CHECK_STR("f16", timeline_text(&t, c->dtype));
        CHECK_U64(4 * 2048 * 4096 * 2, c->bytes);
    }
}

static void a_kernel_of_unknown_name_is_what_its_launch_lies_in(void)
{
    /* clang-format off */
    static const char operators[] =
        X("cuda_runtime", "cudaLaunchKernel", "5", "6", "30", "2", "\"correlation\":9") ","
        X("user_annotation", "nccl:all_reduce", "5", "6", "25", "20",
          "\"Input Dims\":[[6144]],\"Input type\":[\"float\"]");
    static const char other_thread[] =
        X("cuda_runtime", "cudaLaunchKernel", "5", "7", "30", "2", "\"correlation\":9") ","
        X("cuda_runtime", "cudaLaunchKernel", "5", "6", "46", "2", "\"correlation\":9") ","
        X("user_annotation", "nccl:all_reduce", "5", "6", "25", "20",
          "\"Input Dims\":[[6144]],\"Input type\":[\"float\"]");
    /* clang-format on */
    char text[2048];
    snprintf(text, sizeof text, "%s,%s", operators, KERNEL("mystery(x)", ""));
    CHECK(read_events(text));
    const Comm *c = comm_named("mystery(x)");
    if (!CHECK(c))
        return;
    CHECK_STR("all_reduce", timeline_text(&t, c->op));
    CHECK_STR("comm", class_of("mystery(x)"));
    CHECK_U64(6144 * 4, c->bytes);
    CHECK_U64(1, info.comm_kernels_n);
    CHECK_U64(1, info.rule_kernels_n[RULE_METADATA]);

    snprintf(text, sizeof text, "%s,%s", other_thread, KERNEL("mystery(x)", ""));
    CHECK(read_events(text));
    CHECK_STR("compute", class_of("mystery(x)"));

    /* Copies into a bucket are PyTorch's own kernels, wherever they are launched. */
    snprintf(text, sizeof text, "%s,%s", operators, KERNEL("void at::native::copy(x)", ""));
    CHECK(read_events(text));
    CHECK_STR("compute", class_of("void at::native::copy(x)"));
    CHECK_U64(0, info.comm_kernels_n);

    /* A check beside the collective itself. */
    snprintf(text, sizeof text, "%s,%s,%s", operators, KERNEL("mystery(x)", ""),
             KERNEL("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", ""));
    CHECK(read_events(text));
    CHECK_STR("compute", class_of("mystery(x)"));
    CHECK_STR("comm", class_of("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)"));
    CHECK_U64(1, info.comm_kernels_n);
}

static void a_send_receive_kernel_within_all_to_all_is_one(void)
{
    CHECK(read_events(
        X("cuda_runtime", "cudaLaunchKernel", "5", "6", "30", "2", "\"correlation\":9") "," X(
            "user_annotation", "nccl:all_to_all", "5", "6", "25", "20",
            "\"Input Dims\":[[6144]],\"Input type\":[\"float\"]") "," KERNEL("ncclKernel_"
                                                                             "SendRecv_RING_"
                                                                             "SIMPLE_Sum_int8_"
                                                                             "t(x)",
                                                                             "")));
    const Comm *c = comm_named("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(x)");
    if (!CHECK(c))
        return;
    CHECK_STR("all_to_all", timeline_text(&t, c->op));
    CHECK_STR("comm", class_of("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(x)"));
    CHECK_STR("f32", timeline_text(&t, c->dtype));
    CHECK_U64(6144 * 4, c->bytes);
}

static void kernels_of_every_library_are_recognised_by_name(void)
{
    static const struct {
        const char *kernel, *rule, *op; /* NULL: computes */
    } cases[] = {
        { "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)", "nccl", "all_reduce" },
        { "ncclKernel_AllGather_RING_LL_Sum_int8_t(x)", "nccl", "all_gather" },
        { "ncclBroadcastRingLLKernel_copy_i8(ncclColl)", "nccl up to 2.7", "broadcast" },
        { "ncclReduceRingLLKernel_sum_f32(ncclColl)", "nccl up to 2.7", "reduce" },
        { "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(x)", "nccl", "reduce_scatter" },
        { "ncclDevKernel_Broadcast_RING_LL(x)", "nccl", "broadcast" },
        { "ncclDevKernel_Generic_4(x)", "nccl", "collective" },
        { "ncclDevKernel_SendRecv(x)", "nccl send/receive", "send_recv" },
        { "ncclSymkDevKernel_AllGather_LL(x)", "nccl symmetric memory", "all_gather" },
        { "void ncclSymkDevKernel_AllReduce_AGxLL_R_sum_bf16(x)", "nccl symmetric memory",
          "all_reduce" },
        { "mscclKernel_Sum_float_Simple_false(x)", "msccl", "collective" },
        { "void mscclpp::allreduce7<half>(x)", "msccl++", "all_reduce" },
        { "void deep_ep::internode::dispatch<true>(x)", "deepep", "all_to_all" },
        { "void dpsk::ep::intranode::combine<16>(x)", "deepep", "all_to_all" },
        { "nvshmemi_transfer_rma_p<int>(x)", "nvshmem", "collective" },
        { "void hybrid_ep::combine_kernel<4>(x)", "deepep", "all_to_all" },
        { "void tensorrt_llm::kernels::moe_comm::moeA2ADispatchKernel<8>(x)",
          "experts' exchange of TensorRT-LLM and MoRI", "all_to_all" },
        { "EpCombineInterNodeKernel_bf16", "experts' exchange of TensorRT-LLM and MoRI",
          "all_to_all" },
        { "void flashinfer::trtllm_mnnvl_allreduce::twoshotAllreduceKernel<2, bf16>(x)",
          "custom all-reduce", "all_reduce" },
        { "void quickreduce::allreduce_prototype_twoshot<x>(y)", "custom all-reduce",
          "all_reduce" },
        { "void c10d::checkForNaN<float>(float*, unsigned long)", NULL, NULL },
        { "void vllm::cross_device_reduce_2stage<half, 8>(x)", "custom all-reduce",
          "all_reduce" },
        { "multimem_all_reduce_kernel<bf16>(x)", "multimem", "all_reduce" },
        { "void at::native::reduce_kernel<512, 1>(x)", NULL, NULL },
        { "void at::native::elementwise_kernel<all_to_all>(x)", NULL, NULL },
        { "ampere_fp16_gemm_reduce", NULL, NULL },
    };
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        uint32_t rule = rules_match(&rules, cases[i].kernel);
        bool comm = rule != NONE_U32 && rules.rule[rule].class_ != SPAN_COMPUTE;
        CHECK_STR(cases[i].rule, comm ? rules.rule[rule].name : NULL);
        if (!comm)
            continue;
        char text[512];
        snprintf(text, sizeof text, KERNEL("%s", ""), cases[i].kernel);
        CHECK(read_events(text));
        const Comm *c = comm_named(cases[i].kernel);
        if (CHECK(c))
            CHECK_STR(cases[i].op, timeline_text(&t, c->op));
        CHECK_U64(1, info.rule_kernels_n[rule]);
    }
}

static void a_pytorch_kernel_within_a_collective_is_none(void)
{
    CHECK(
        read_events(KERNEL("void at::native::vectorized_elementwise_kernel<4>(x)",
                           ",\"Collective name\":\"allreduce\",\"In msg nelems\":10,\"dtype\":"
                           "\"Half\"")));
    CHECK_U64(0, info.comm_kernels_n);
    CHECK_STR("compute", class_of("void at::native::vectorized_elementwise_kernel<4>(x)"));
}

static void names_of_kernels_say_algorithm_and_protocol(void)
{
    static const struct {
        const char *kernel, *op, *algorithm, *protocol, *dtype;
    } cases[] = {
        { "ncclKernel_AllReduce_RING_LL_Sum_float(x)", "all_reduce", "ring", "LL", "f32" },
        { "ncclDevKernel_AllReduce_Sum_f16_TREE_LL128(x)", "all_reduce", "tree", "LL128",
          "f16" },
        { "ncclDevKernel_AllReduce_Sum_bf16_NVLS_TREE_SIMPLE(x)", "all_reduce", "nvls_tree",
          "Simple", "bf16" },
        { "ncclDevKernel_AllReduce_Sum_f32_COLLNET_DIRECT_SIMPLE(x)", "all_reduce",
          "collnet_direct", "Simple", "f32" },
        { "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(x)", "send_recv", "ring", "Simple",
          "i8" },
        { "ncclAllReduceRingLLKernel_sum_f32(ncclColl)", "all_reduce", "ring", "LL", "f32" },
        { "ncclAllReduceTreeLL128Kernel_sum_f16(ncclColl)", "all_reduce", "tree", "LL128",
          "f16" },
        { "ncclReduceScatterRingKernel_sum_i8(ncclColl)", "reduce_scatter", "ring", "Simple",
          "i8" },
        { "ncclReduceRingKernel_sum_f64(ncclColl)", "reduce", "ring", "Simple", "f64" },
        { "ncclSendRecvKernel_copy_i8(ncclColl)", "send_recv", NULL, NULL, "i8" },
        { "my_nccl_helperKernel_x", NULL, NULL, NULL, NULL },
        { "ncclDevKernel_Generic(x)", NULL, NULL, NULL, NULL },
        { "ncclKernel_", NULL, NULL, NULL, NULL },
    };
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        KernelComm c = kernel_comm(cases[i].kernel);
        CHECK_STR(cases[i].op, c.op);
        CHECK_STR(cases[i].algorithm, c.algorithm);
        CHECK_STR(cases[i].protocol, c.protocol);
        CHECK_STR(cases[i].dtype, c.dtype);
    }
}

/* ---- rule files ---- */

static void a_rule_file_comes_before_the_built_in_rules(void)
{
    const char *path = path_of("mine.json");
    static const char text[] =
        "{\"rules\":[{\"name\":\"mine\",\"contains\":[\"my_reduce\"],\"not\":[\"local\"],"
        "\"op\":"
        "\"all_reduce\"},{\"name\":\"not comm\",\"class\":\"compute\",\"starts\":[\"ncclKernel_"
        "Broadcast\"]}]}";
    write_file(path, text, sizeof text - 1);
    Rules own;
    Err e = { 0 };
    if (!CHECK(rules_read(&own, &path, 1, &e)))
        return;
    CHECK_STR("mine", own.rule[rules_match(&own, "void my_reduce<4>(x)")].name);
    CHECK_U64(NONE_U32, rules_match(&own, "void my_reduce_local(x)"));
    CHECK_INT(SPAN_COMPUTE, own.rule[rules_match(&own, "ncclKernel_Broadcast_(x)")].class_);
    CHECK_STR("nccl", own.rule[rules_match(&own, "ncclKernel_AllReduce_(x)")].name);
    rules_free(&own);
}

static void a_wrong_rule_file_is_a_sentence(void)
{
    static const struct {
        const char *text, *part;
    } cases[] = {
        { "[]", "an object is expected" },
        { "{\"rules\":7}", "a list 'rules' is expected" },
        { "{\"rules\":[{\"contains\":[\"x\"]}]}", "name" },
        { "{\"rules\":[{\"name\":\"x\"}]}", "a rule needs 'starts' or 'contains'" },
        { "{\"rules\":[{\"name\":\"x\",\"contains\":\"y\"}]}", "a list of texts is expected" },
        { "{\"rules\":[{\"name\":\"x\",\"contains\":[\"\"]}]}", "a text is expected" },
        { "{\"rules\":[{\"name\":\"x\",\"contains\":[\"y\"],\"class\":\"z\"}]}", "class" },
        { "{\"rules\":[{\"name\":\"x\",\"has\":[\"y\"]}]}", "has" },
    };
    const char *path = path_of("wrong.json");
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        write_file(path, cases[i].text, strlen(cases[i].text));
        Rules own;
        Err e = { 0 };
        CHECK(!rules_read(&own, &path, 1, &e));
        CHECK_ERR_TEXT(&e, cases[i].part);
    }
}

/* ---- there and back ---- */

static void build(Timeline *b)
{
    timeline_set_name(b, "toy");
    timeline_want(b, true, false);
    uint32_t host = timeline_track(b, 1, TRACK_HOST, "host", 4);
    uint32_t stream = timeline_track(b, 1, TRACK_STREAM, "compute", 7);
    uint32_t dp = timeline_track(b, 1, TRACK_STREAM, "dp comm", 9);
    uint32_t steps = timeline_track(b, 1, TRACK_STEPS, "steps", 0);
    uint32_t other = timeline_track(b, 4, TRACK_STREAM, "compute", 7);
    uint32_t counter = timeline_track(b, 4, TRACK_COUNTER, "memory", 0);
    b->tracks[stream].ranks_n = 3;
    Comm c = comm_of(intern(&b->names, "all_reduce"));
    c.group = intern(&b->names, "dp");
    c.group_id = 2;
    c.seq = 5;
    c.ranks_n = 8;
    c.bytes = 1 << 20;
    c.dtype = intern(&b->names, "bf16");
    c.algorithm = intern(&b->names, "ring");
    c.protocol = intern(&b->names, "LL128");
    c.wait_ns = 1234;
    Comm send = comm_of(intern(&b->names, "send"));
    send.peer = 4;
    static const SpanClass classes[] = { SPAN_COMPUTE, SPAN_COMM,   SPAN_P2P,
                                         SPAN_MEMORY,  SPAN_LAUNCH, SPAN_HOST,
                                         SPAN_SYNC,    SPAN_STEP,   SPAN_NOTE };
    uint32_t tracks[] = { stream, dp, dp, stream, host, host, host, steps, host };
    static const uint32_t logical[] = { 0, 4294967294u };
    for (uint32_t i = 0; i < ARRAY_N(classes); i++) {
        char name[32];
        snprintf(name, sizeof name, "span \"%u\"", i);
        uint32_t comm = classes[i] == SPAN_COMM  ? timeline_comm(b, c)
                        : classes[i] == SPAN_P2P ? timeline_comm(b, send)
                                                 : NONE_U32;
        uint64_t at = timeline_span(b, (Span){ tracks[i], intern(&b->names, name), classes[i],
                                               100 + 10000 * i, 5001, i, comm });
        b->correlation[at] = i < 5 ? i : NONE_U64;
        if (i % 2)
            timeline_set_op_name(b, at, intern(&b->names, "mlp.\"up\""));
        timeline_set_logical(
            b, at, (LogicalOps){ TIMELINE_LOGICAL_INSTANCES - 1 - i, i % 3, logical });
        if (classes[i] == SPAN_COMM)
            timeline_set_ring(b, comm, 7);
    }
    timeline_span(b, (Span){ stream, intern(&b->names, "overlaps"), SPAN_COMPUTE, 2000, 90000,
                             NONE_U32, NONE_U32 });
    timeline_span(b,
                  (Span){ other, intern(&b->names, "far"), SPAN_COMPUTE, 0, 1, 3, NONE_U32 });
    timeline_point(b, counter, 50, 0.25);
    timeline_point(b, counter, 51, 1e12);
    timeline_seal(b);
}

static void same_comms(const Comm *x, const Timeline *a, const Comm *y, const Timeline *b)
{
    CHECK((x != NULL) == (y != NULL));
    if (!x || !y)
        return;
    CHECK_STR(timeline_text(a, x->op), timeline_text(b, y->op));
    CHECK_STR(timeline_text(a, x->group), timeline_text(b, y->group));
    CHECK_STR(timeline_text(a, x->dtype), timeline_text(b, y->dtype));
    CHECK_STR(timeline_text(a, x->algorithm), timeline_text(b, y->algorithm));
    CHECK_STR(timeline_text(a, x->protocol), timeline_text(b, y->protocol));
    CHECK_INT(x->group_id, y->group_id);
    CHECK_INT(x->seq, y->seq);
    CHECK_INT(x->peer, y->peer);
    CHECK_INT(x->ranks_n, y->ranks_n);
    CHECK_U64(x->bytes, y->bytes);
    CHECK_INT(x->wait_ns, y->wait_ns);
    CHECK_INT(timeline_ring_steps(a, x), timeline_ring_steps(b, y));
}

static void same_logical(LogicalOps x, LogicalOps y)
{
    CHECK_U64(x.instance, y.instance);
    CHECK_INT(x.n, y.n);
    for (uint32_t i = 0; i < x.n && i < y.n; i++)
        CHECK_U64(x.op[i], y.op[i]);
}

/* Tracks are matched by rank, kind and name: the writer puts them in its own order. */
static uint32_t same_track(const Timeline *a, uint32_t k, const Timeline *b)
{
    const Track *x = &a->tracks[k];
    for (uint32_t i = 0; i < b->tracks_n; i++) {
        const Track *y = &b->tracks[i];
        if (x->rank == y->rank && x->kind == y->kind &&
            strcmp(timeline_text(a, x->name), timeline_text(b, y->name)) == 0)
            return i;
    }
    return NONE_U32;
}

static void same_track_contents(const Timeline *a, const Track *x, const Timeline *b,
                                const Track *y)
{
    CHECK_INT(x->ranks_n, y->ranks_n);
    CHECK_INT(x->sort, y->sort);
    CHECK_U64(x->span_n, y->span_n);
    CHECK_U64(x->point_n, y->point_n);
    for (uint64_t n = 0; n < x->point_n && n < y->point_n; n++) {
        CHECK_INT(a->point_ns[x->point_first + n], b->point_ns[y->point_first + n]);
        CHECK_NEAR(a->point_value[x->point_first + n], b->point_value[y->point_first + n], 0);
    }
    for (uint64_t n = 0; n < x->span_n && n < y->span_n; n++) {
        uint64_t i = x->span_first + n, j = y->span_first + n;
        CHECK_STR(timeline_text(a, a->span_name[i]), timeline_text(b, b->span_name[j]));
        CHECK_STR(span_class_names[a->span_class[i]], span_class_names[b->span_class[j]]);
        CHECK_INT(a->start_ns[i], b->start_ns[j]);
        CHECK_INT(a->dur_ns[i], b->dur_ns[j]);
        CHECK_INT(a->op[i], b->op[j]);
        CHECK_STR(timeline_op_name(a, i), timeline_op_name(b, j));
        same_logical(timeline_logical_of(a, i), timeline_logical_of(b, j));
        CHECK_INT(a->lane[i], b->lane[j]);
        if (a->correlation)
            CHECK_U64(a->correlation[i], b->correlation[j]);
        same_comms(timeline_comm_of(a, i), a, timeline_comm_of(b, j), b);
    }
}

/* What is not as the writer has it says nothing; the span is read all the same. */
static void odd_logical_ops_and_rings_say_nothing(void)
{
    static const char *const odd[] = {
        "\"\"",
        "\"1f\"",
        "\":1\"",
        "\"1f:\"",
        "\"1f:1,\"",
        "\"1f:x\"",
        "\"1F:1\"",
        "\"1f,1\"",
        "\"1f:-1\"",
        "17",
        "null",
        "\"100000000000:1\"",
        "\"1f:4294967295\"",
        "\"fffffffffffffffffffff:1\"",
        "\"1f:1 \"",
    };
    for (size_t i = 0; i < ARRAY_N(odd); i++) {
        char text[1024];
        snprintf(text, sizeof text,
                 "{\"otherData\":{\"writer\":\"lockstep\"},\"traceEvents\":["
                 "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":1,\"tid\":100,\"args\":{"
                 "\"name\":\"cp\",\"track\":0,\"kind\":\"stream\",\"sort\":1}},"
                 "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"nccl\",\"pid\":1,\"tid\":100,"
                 "\"ts\":1,\"dur\":2,\"args\":{\"Collective name\":\"_allgather_base\","
                 "\"ring_steps\":%s,\"logical\":%s}}]}",
                 i % 2 ? "-3" : "99999999999", odd[i]);
        if (!CHECK(read_text(text) && t.spans_n == 1))
            continue;
        CHECK_INT(0, timeline_logical_of(&t, 0).n);
        const Comm *c = timeline_comm_of(&t, 0);
        CHECK(c && timeline_ring_steps(&t, c) == 0);
    }
}

static void what_the_chrome_writer_wrote_comes_back_as_it_was(void)
{
    Timeline b = { 0 };
    build(&b);
    const char *path = path_of("written.json.gz");
    CHECK(chrome_write(&b, path, &err));
    if (CHECK(read_path(path))) {
        CHECK_U64(0, info.events_skipped);
        CHECK_STR("toy", t.name);
        CHECK_INT(b.ranks_n, t.ranks_n);
        CHECK_INT(b.tracks_n, t.tracks_n);
        CHECK_U64(b.spans_n, t.spans_n);
        for (uint32_t k = 0; k < b.tracks_n; k++) {
            uint32_t same = same_track(&b, k, &t);
            if (CHECK(same != NONE_U32))
                same_track_contents(&b, &b.tracks[k], &t, &t.tracks[same]);
        }
    }
    timeline_free(&b);
}

/* ---- recorded traces ---- */

static const char *const recorded[] = { "../shared/data/traces/megatron-tp8",
                                        "../shared/data/traces/param-dlrm8",
                                        "../shared/data/traces/single" };

/* What is read does not depend on where the window ends. */
static void the_window_may_be_of_any_size(void)
{
    static const char text[] =
        "{\"schemaVersion\":1,\"distributedInfo\":{\"rank\":3},\"traceEvents\":[";
    char *all = mem_zero(200000, 1);
    size_t n = sizeof text - 1;
    memcpy(all, text, n);
    for (unsigned i = 0; i < 400; i++)
        n += (size_t)snprintf(
            all + n, 1000,
            "%s{\"ph\":\"X\",%*s\"cat\":\"cpu_op\",\"name\":\"n%u\",\"pid\":1,"
            "\"tid\":%u,\"ts\":%u.5,\"dur\":1,\"args\":{\"a\":[[\"]\\\\\",%u],{}],"
            "\"b%u\":\"\\\"}\",\"stream\":-1}}",
            i ? "," : "", (int)(i % 40), "", i % 9, i % 3, i, i, i % 7);
    n += (size_t)snprintf(all + n, 100, "],\"baseTimeNanoseconds\":1000}");
    Timeline whole, part;
    TraceInfo whole_info, part_info;
    CHECK(kineto_read_bytes(&whole, &whole_info, all, n, "x", n + 1, &rules, &err));
    CHECK_U64(400, whole_info.events_read);
    for (size_t window = 1; window < 1000; window += window < 70 ? 1 : 37) {
        CHECK(kineto_read_bytes(&part, &part_info, all, n, "x", window, &rules, &err));
        CHECK_U64(400, part_info.events_read);
        CHECK_INT(3, part_info.rank);
        CHECK(part.spans_n == whole.spans_n &&
              memcmp(part.start_ns, whole.start_ns, 8 * whole.spans_n) == 0 &&
              memcmp(part.args_offset, whole.args_offset, 8 * whole.spans_n) == 0);
        timeline_free(&part);
    }
    timeline_free(&whole);
    free(all);
}

static void every_recorded_trace_reads_without_a_skipped_event(void)
{
    for (size_t i = 0; i < ARRAY_N(recorded); i++) {
        DIR *dir = opendir(recorded[i]);
        if (!dir) {
            fprintf(stderr, "test_kineto: %s is not here, skipped\n", recorded[i]);
            continue;
        }
        for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
            char path[512];
            snprintf(path, sizeof path, "%s/%s", recorded[i], e->d_name);
            if (e->d_name[0] == '.' || strstr(e->d_name, "pytorch_et"))
                continue;
            CHECK(read_path(path));
            CHECK_U64(0, info.events_skipped);
            CHECK(info.events_read > 0 && info.kernels_n > 0 && !info.cut_short);
            CHECK(info.wall_clock);
        }
        closedir(dir);
    }
}

int main(void)
{
    ASSERT(mkdtemp(folder));
    if (!rules_read(&rules, NULL, 0, &err)) {
        fprintf(stderr, "test_kineto: %s\n", err.text);
        return 1;
    }
    RUN(rows_go_to_streams_threads_and_steps);
    RUN(names_of_2021_mean_the_same);
    RUN(rows_with_a_numeric_stream_are_gpu_rows_whatever_their_category);
    RUN(devices_are_told_apart_only_where_there_are_several);
    RUN(streams_of_xla_are_known_by_the_names_of_their_rows);
    RUN(several_devices_of_xla_are_ranks);
    RUN(begin_and_end_nest_per_thread);
    RUN(begin_and_end_of_gpu_work);
    RUN(async_events_are_joined_by_id);
    RUN(counters_have_a_track_for_each_number);
    RUN(threads_are_named_wherever_the_names_stand);
    RUN(the_head_may_stand_before_or_after_and_the_base_is_added);
    RUN(a_list_may_stay_open_and_documents_may_follow_one_another);
    RUN(an_empty_list_is_an_empty_trace);
    RUN(odd_bytes_in_strings_are_kept);
    RUN(members_come_in_any_order_and_the_last_of_a_key_counts);
    RUN(the_offset_of_an_event_is_where_it_begins);
    RUN(damaged_events_are_skipped_and_told);
    RUN(what_follows_the_events_is_found_after_damage);
    RUN(events_behind_a_closed_list_are_found_after_damage);
    RUN(only_the_first_damages_are_kept_but_all_are_counted);
    RUN(huge_nesting_and_huge_events_are_damage);
    RUN(a_file_may_end_anywhere);
    RUN(every_byte_may_be_wrong);
    RUN(what_is_no_trace_is_a_sentence);
    RUN(gzip_members_are_one_text);
    RUN(gzip_that_breaks_off_is_read_up_to_there);
    RUN(a_gzip_bomb_is_stopped);
    RUN(collectives_are_read_from_the_kernels_own_arguments);
    RUN(groups_of_one_name_are_told_apart_by_their_ranks);
    RUN(kernels_keep_grid_and_block);
    RUN(odd_launches_are_none);
    RUN(launches_come_back_from_our_own_files);
    RUN(sends_know_their_peer);
    RUN(old_traces_take_it_from_the_operator_around_the_launch);
    RUN(a_kernel_of_unknown_name_is_what_its_launch_lies_in);
    RUN(a_send_receive_kernel_within_all_to_all_is_one);
    RUN(kernels_of_every_library_are_recognised_by_name);
    RUN(a_pytorch_kernel_within_a_collective_is_none);
    RUN(names_of_kernels_say_algorithm_and_protocol);
    RUN(a_rule_file_comes_before_the_built_in_rules);
    RUN(a_wrong_rule_file_is_a_sentence);
    RUN(what_the_chrome_writer_wrote_comes_back_as_it_was);
    RUN(odd_logical_ops_and_rings_say_nothing);
    RUN(the_window_may_be_of_any_size);
    RUN(every_recorded_trace_reads_without_a_skipped_event);
    timeline_free(&t);
    rules_free(&rules);
    static const char *const made[] = { "t.json", "bomb.json.gz", "mine.json", "wrong.json",
                                        "written.json.gz" };
    for (size_t i = 0; i < ARRAY_N(made); i++)
        unlink(path_of(made[i]));
    rmdir(folder);
    return check_report();
}

/*
 * The collector: CUPTI's own structs, filled in by hand, become records and then spans; and the
 * plugin as a program loads it, where there is no driver: it declines in a sentence.
 *
 * Needs CUPTI's headers, not a GPU; without them there is nothing to test here.
 */
#include "tests/check.h"
#include "tests/unit/raw_world.h"

#ifdef HAS_CUPTI

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/capture_api.h"
#include "profile/capture_records.h"

uint16_t capture_convert_old(RawAny *raw, const CUpti_Activity *record,
                             const CaptureTexts *texts);
typedef uint16_t Convert(RawAny *raw, const CUpti_Activity *record, const CaptureTexts *texts);

/* ---- texts of the test: numbers of the recording that is being made ---- */

static uint32_t text_of(void *user, const char *text)
{
    return raw_text(user, text);
}

static uint32_t call_of(void *user, bool driver, uint32_t cbid)
{
    char name[64];
    snprintf(name, sizeof name, "%s call %u", driver ? "driver" : "runtime", cbid);
    return raw_text(user, name);
}

/* An older struct is shorter: the newest ones' further fields are zeros then. */
static void add(RawWorld *w, Convert *convert, const void *record, size_t n)
{
    RawAny any;
    _Alignas(8) uint8_t longest[512] = { 0 };
    const CaptureTexts texts = { w, text_of, text_of, call_of };
    memcpy(longest, record, n);
    const CUpti_Activity *given = (const CUpti_Activity *)(const void *)longest;
    if (CHECK(convert(&any, given, &texts) == any.top.bytes && any.top.bytes > 0))
        raw_add(w, &any.top);
}

/* ---- records ---- */

/* The newest structs have the fields of these at the same places. */
static void add_gpu_records(RawWorld *w, Convert *convert)
{
    CUpti_ActivityKernel9 kernel = { .kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                     .start = 5000,
                                     .end = 5600,
                                     .deviceId = 2,
                                     .contextId = 1,
                                     .streamId = 13,
                                     .correlationId = 71,
                                     .graphNodeId = 0,
                                     .gridX = 70000,
                                     .gridY = 2,
                                     .gridZ = 3,
                                     .blockX = 256,
                                     .blockY = 4,
                                     .blockZ = 1,
                                     .registersPerThread = 168,
                                     .staticSharedMemory = 16,
                                     .dynamicSharedMemory = 4096,
                                     .name = "gemm" };
    CUpti_ActivityMemcpy5 copy = { .kind = CUPTI_ACTIVITY_KIND_MEMCPY,
                                   .copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_DTOH,
                                   .bytes = 4096,
                                   .start = 6000,
                                   .end = 6100,
                                   .deviceId = 2,
                                   .contextId = 1,
                                   .streamId = 14,
                                   .correlationId = 72 };
    CUpti_ActivityMemcpyPtoP4 peer = { .kind = CUPTI_ACTIVITY_KIND_MEMCPY2,
                                       .bytes = 8192,
                                       .start = 7000,
                                       .end = 7100,
                                       .deviceId = 2,
                                       .contextId = 1,
                                       .streamId = 14,
                                       .correlationId = 73 };
    CUpti_ActivityMemset4 set = { .kind = CUPTI_ACTIVITY_KIND_MEMSET,
                                  .bytes = 64,
                                  .start = 8000,
                                  .end = 8050,
                                  .deviceId = 2,
                                  .contextId = 1,
                                  .streamId = 14,
                                  .correlationId = 74 };
    CUpti_ActivityDevice4 device = { .kind = CUPTI_ACTIVITY_KIND_DEVICE,
                                     .id = 2,
                                     .numMultiprocessors = 132,
                                     .name = "NVIDIA H100 80GB HBM3" };
    add(w, convert, &kernel, sizeof kernel);
    add(w, convert, &copy, sizeof copy);
    add(w, convert, &peer, sizeof peer);
    add(w, convert, &set, sizeof set);
    add(w, convert, &device, sizeof device);
}

static void add_host_records(RawWorld *w, Convert *convert)
{
    CUpti_ActivityExternalCorrelation label = { .kind =
                                                    CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
                                                .externalKind =
                                                    CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0,
                                                .externalId = (uint64_t)3 << 32 | 4711,
                                                .correlationId = 71 };
    CUpti_ActivityAPI call = { .kind = CUPTI_ACTIVITY_KIND_RUNTIME,
                               .cbid = 211,
                               .start = 4000,
                               .end = 4100,
                               .processId = 1,
                               .threadId = 55,
                               .correlationId = 71 };
    CUpti_ActivitySynchronization sync = {
        .kind = CUPTI_ACTIVITY_KIND_SYNCHRONIZATION,
        .type = CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE,
        .start = 8100,
        .end = 8200,
        .streamId = 14
    };
    CUpti_ActivityMarker2 mark = { .kind = CUPTI_ACTIVITY_KIND_MARKER,
                                   .flags = CUPTI_ACTIVITY_FLAG_MARKER_START,
                                   .timestamp = 3000,
                                   .id = 9,
                                   .objectKind = CUPTI_ACTIVITY_OBJECT_THREAD,
                                   .name = "step 12" };
    CUpti_ActivityOverhead cost = { .kind = CUPTI_ACTIVITY_KIND_OVERHEAD,
                                    .overheadKind = CUPTI_ACTIVITY_OVERHEAD_CUPTI_BUFFER_FLUSH,
                                    .start = 9000,
                                    .end = 9070 };
    mark.objectId.pt.threadId = 55;
    add(w, convert, &label, sizeof label);
    add(w, convert, &call, sizeof call);
    call.kind = CUPTI_ACTIVITY_KIND_DRIVER;
    call.start = 4200;
    call.end = 4300;
    add(w, convert, &call, sizeof call);
    add(w, convert, &sync, sizeof sync);
    add(w, convert, &mark, sizeof mark);
    mark.flags = CUPTI_ACTIVITY_FLAG_MARKER_END;
    mark.timestamp = 9500;
    mark.name = NULL;
    add(w, convert, &mark, sizeof mark);
    add(w, convert, &cost, sizeof cost);
}

static uint64_t find(const Timeline *t, const char *name)
{
    for (uint64_t i = 0; i < t->spans_n; i++)
        if (strcmp(timeline_text(t, t->span_name[i]), name) == 0)
            return i;
    CHECK_STR(name, "among the spans");
    return 0;
}

static void check_spans(Convert *convert)
{
    RawWorld w = raw_world();
    Timeline t = { 0 };
    RecordsInfo info;
    Err err;
    raw_clock(&w, 1, 1);
    add_gpu_records(&w, convert);
    add_host_records(&w, convert);
    CHECK(raw_read(&w, &t, &info, NULL, &err));
    timeline_seal(&t);
    CHECK(timeline_check(&t, &err));
    uint64_t i = find(&t, "gemm");
    CHECK_INT(5000, t.start_ns[i]);
    CHECK_INT(600, t.dur_ns[i]);
    CHECK_INT(4711, t.op[i]);
    CHECK_U64(71, t.correlation[i]);
    const KernelLaunch *l = timeline_launch_of(&t, i);
    CHECK(l && l->grid[0] == 70000 && l->grid[1] == 2 && l->grid[2] == 3);
    CHECK(l && l->block[0] == 256 && l->block[1] == 4 && l->block[2] == 1);
    CHECK(l && l->registers_n == 168 && l->shared_bytes == 4112);
    CHECK_STR("GPU 2 stream 13, NVIDIA H100 80GB HBM3",
              timeline_text(&t, t.tracks[t.span_track[i]].name));
    CHECK_INT(100, t.dur_ns[find(&t, "Memcpy DtoH")]);
    CHECK_INT(7000, t.start_ns[find(&t, "Memcpy PtoP")]);
    CHECK_INT(50, t.dur_ns[find(&t, "Memset")]);
    CHECK_INT(4000, t.start_ns[find(&t, "runtime call 211")]);
    CHECK_INT(4200, t.start_ns[find(&t, "driver call 211")]);
    CHECK_STR("thread 55",
              timeline_text(&t, t.tracks[t.span_track[find(&t, "runtime call 211")]].name));
    CHECK_INT(SPAN_SYNC, t.span_class[find(&t, "Stream Sync")]);
    CHECK_INT(6500, t.dur_ns[find(&t, "step 12")]);
    CHECK_INT(70, t.dur_ns[find(&t, "buffer flush")]);
    CHECK_STR("NVIDIA H100 80GB HBM3", info.device);
    timeline_free(&t);
}

static void cuptis_newest_structs_become_spans(void)
{
    check_spans(capture_convert);
}

static void cuptis_older_structs_become_the_same_spans(void)
{
    check_spans(capture_convert_old);
}

#if CUPTI_API_VERSION >= 130000
/* What older structs do not have. */
static void the_newest_structs_tell_which_record_of_an_event_is_meant(void)
{
    RawAny any;
    RawWorld w = raw_world();
    const CaptureTexts texts = { &w, text_of, text_of, call_of };
    CUpti_ActivityCudaEvent2 event = { .kind = CUPTI_ACTIVITY_KIND_CUDA_EVENT,
                                       .correlationId = 8,
                                       .contextId = 1,
                                       .streamId = 7,
                                       .eventId = 3,
                                       .deviceId = 2,
                                       .cudaEventSyncId = 91 };
    CUpti_ActivitySynchronization2 wait = {
        .kind = CUPTI_ACTIVITY_KIND_SYNCHRONIZATION,
        .type = CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT,
        .start = 10,
        .end = 12,
        .streamId = 9,
        .cudaEventId = 3,
        .cudaEventSyncId = 91
    };
    CHECK(capture_convert(&any, (const CUpti_Activity *)(const void *)&event, &texts) > 0);
    CHECK_INT(RAW_EVENT, any.top.kind);
    CHECK_INT(7, any.event.stream);
    CHECK_INT(2, any.event.device);
    CHECK_U64(91, any.event.event_record);
    CHECK(capture_convert(&any, (const CUpti_Activity *)(const void *)&wait, &texts) > 0);
    CHECK_INT(RAW_SYNC, any.top.kind);
    CHECK_INT(9, any.sync.stream);
    CHECK_U64(91, any.sync.event_record);
    CUpti_ActivityKernel10 kernel = { .kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                      .start = 1,
                                      .end = 2,
                                      .graphNodeId = (uint64_t)5 << 32 | 6,
                                      .name = "k" };
    CHECK(capture_convert(&any, (const CUpti_Activity *)(const void *)&kernel, &texts) > 0);
    CHECK_U64((uint64_t)5 << 32 | 6, any.kernel.node);
}
#endif

static void labels_of_others_and_unknown_kinds_are_not_recorded(void)
{
    RawAny any;
    CUpti_ActivityExternalCorrelation label = {
        .kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
        .externalKind = CUPTI_EXTERNAL_CORRELATION_KIND_OPENACC,
    };
    CUpti_Activity other = { .kind = CUPTI_ACTIVITY_KIND_PCIE };
    const void *record = &label;
    CHECK_INT(0, capture_convert(&any, record, NULL));
    CHECK_INT(0, capture_convert(&any, &other, NULL));
    label.externalKind = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM1;
    label.externalId = 17;
    CHECK(capture_convert(&any, record, NULL) > 0);
    CHECK_INT(RAW_LAUNCH, (int)any.label.what);
    CHECK_U64(17, any.label.id);
}

/* ---- the plugin ---- */

static void *open_plugin(void)
{
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 64);
    if (!CHECK(n > 0))
        return NULL;
    path[n] = '\0';
    for (int up = 0; up < 3; up++) /* build/tests/unit/test_capture */
        *strrchr(path, '/') = '\0';
    strcat(path, "/" CAPTURE_PLUGIN_FILE);
    void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!CHECK(plugin != NULL))
        fprintf(stderr, "%s\n", dlerror());
    return plugin;
}

static bool has_driver(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
    if (driver)
        dlclose(driver);
    return driver != NULL;
}

static void the_plugin_has_its_four_doors(void)
{
    static const char *const doors[] = { "lockstep_capture", "InitializeInjection",
                                         "InitializeInjectionNvtx2", "ncclProfiler_v5",
                                         "ncclProfiler_v4" };
    void *plugin = open_plugin();
    for (size_t i = 0; plugin && i < ARRAY_N(doors); i++)
        if (!CHECK(dlsym(plugin, doors[i]) != NULL))
            fprintf(stderr, "%s\n", doors[i]);
}

static void without_a_driver_it_declines_in_a_sentence(void)
{
    char folder[] = P_tmpdir "/lockstep-capture-XXXXXX", path[128], why[300] = "";
    void *plugin = has_driver() ? NULL : open_plugin();
    if (!plugin)
        return;
    const CaptureApi *capture = dlsym(plugin, CAPTURE_PLUGIN_SYMBOL);
    CHECK_INT(CAPTURE_VERSION, capture->version);
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/x.lsraw", folder);
    const CaptureOptions o = { .path = path, .rank = 0, .world = 1, .local_rank = 0 };
    CHECK(!capture->start(&o, why, sizeof why));
    CHECK_STR("there is no NVIDIA driver here (libcuda.so.1 cannot be loaded)", why);
    CHECK(access(path, F_OK) != 0); /* nothing is left behind */
    capture->push_op(0, 1);         /* allowed, and nothing */
    capture->pop_op();
    capture->map_graph_node(NULL, 0, 1);
    CHECK(capture->now_ns() > 0);
    CaptureTotals totals;
    CHECK(!capture->stop(&totals, why, sizeof why));
    CHECK_STR("this process is not being recorded", why);
    const CaptureOptions nowhere = { .path = "/nowhere/x.lsraw" };
    CHECK(!capture->start(&nowhere, why, sizeof why));
    CHECK_STR("cannot write '/nowhere/x.lsraw': No such file or directory", why);
    rmdir(folder);
}

/* As NCCL calls it; a collector that is off asks for no events and gives no context. */
static void switched_off_it_asks_nccl_for_nothing(void)
{
    struct Profiler {
        const char *name;
        int (*init)(void **context, uint64_t id, int *mask, const char *name, int nodes,
                    int ranks, int rank, void *log);
        int (*start)(void *context, void **handle, void *event);
        int (*stop)(void *handle);
        int (*record)(void *handle, int state, void *args);
        int (*finalize)(void *context);
    };
    void *plugin = open_plugin();
    if (!plugin)
        return;
    const struct Profiler *p = dlsym(plugin, "ncclProfiler_v5");
    void *context = plugin, *handle = plugin;
    int mask = -1;
    uint64_t event[14] = { 1 << 9 };
    CHECK_STR("lockstep", p->name);
    CHECK_INT(0, p->init(&context, 7, &mask, NULL, 1, 2, 0, NULL));
    CHECK_INT(0, mask);
    CHECK(context == NULL);
    CHECK_INT(0, p->start(context, &handle, event));
    CHECK(handle == NULL);
    CHECK_INT(0, p->stop(handle) | p->record(handle, 3, NULL) | p->finalize(context));
}

/* As the driver calls it; the recording then holds the reason. */
static void injected_without_a_driver_it_leaves_the_reason_in_a_recording(void)
{
    char folder[] = P_tmpdir "/lockstep-capture-XXXXXX", path[512], host[64] = "";
    void *plugin = has_driver() ? NULL : open_plugin();
    int (*inject)(void);
    if (!plugin || !CHECK(mkdtemp(folder) != NULL))
        return;
    void *at = dlsym(plugin, "InitializeInjection");
    memcpy(&inject, &at, sizeof inject);
    setenv("LOCKSTEP_CAPTURE_DIR", folder, 1);
    setenv("RANK", "3", 1);
    setenv("WORLD_SIZE", "8", 1);
    CHECK_INT(1, inject());
    CHECK_INT(1, inject()); /* twice is once */
    unsetenv("RANK");
    gethostname(host, sizeof host - 1);
    for (char *c = host; *c; c++)
        if (*c == '.')
            *c = '-';
    snprintf(path, sizeof path, "%s/%s.%d.0.lsraw", folder, host, (int)getpid());
    Timeline t = { 0 };
    RecordsInfo info;
    Err err = { 0 };
    const RecordsOptions o = { .rank = NONE_U32 };
    if (CHECK(records_read(&t, &info, path, &o, &err))) {
        CHECK_INT(3, info.head.rank);
        CHECK_INT(8, info.head.world);
        CHECK_INT(getpid(), info.head.pid);
        CHECK(strstr(info.head.command, "test_capture") != NULL);
        CHECK_STR("there is no NVIDIA driver here (libcuda.so.1 cannot be loaded)",
                  info.trouble);
        CHECK(info.head.flags & RAW_ENDED);
        CHECK(!info.cut_short);
    } else {
        fprintf(stderr, "%s\n", err.text);
    }
    timeline_free(&t);
    unlink(path);
    CHECK_INT(0, rmdir(folder));
}

int main(void)
{
    RUN(cuptis_newest_structs_become_spans);
    RUN(cuptis_older_structs_become_the_same_spans);
#if CUPTI_API_VERSION >= 130000
    RUN(the_newest_structs_tell_which_record_of_an_event_is_meant);
#endif
    RUN(labels_of_others_and_unknown_kinds_are_not_recorded);
    RUN(the_plugin_has_its_four_doors);
    RUN(without_a_driver_it_declines_in_a_sentence);
    RUN(switched_off_it_asks_nccl_for_nothing);
    RUN(injected_without_a_driver_it_leaves_the_reason_in_a_recording);
    return check_report();
}

#else

int main(void)
{
    printf("test_capture: skipped, no CUPTI here\n");
    return check_report();
}

#endif

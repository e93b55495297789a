/*
 * capture.c - the collector's life: attaching to CUPTI, labels, and leaving.  See capture.h.
 *
 * Nothing here links the driver: whether there is one is tried first, since CUPTI without a
 * driver fails only late and with no reason.
 */
#define _GNU_SOURCE /* dladdr */
#include "profile/capture.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "profile/capture_parts.h"

enum { LABELS_DEEP_MAX = 16, FILES_PER_PROCESS_MAX = 1000 };

CuptiCalls cupti;

static struct {
    CUpti_SubscriberHandle subscriber;
    uint32_t version;
    bool own_clock; /* CUPTI takes its times from us */
    pid_t pid;      /* of the process that started it */
    bool injected;
} capture;
static _Atomic bool is_on;
static _Atomic int64_t cost_ns;

typedef struct Labels {
    uint64_t op[LABELS_DEEP_MAX];
    uint32_t ops_n; /* may exceed what is kept */
    uint32_t launch;
} Labels;
static _Thread_local Labels labels;

/* ---- clocks ---- */

static int64_t clock_ns(clockid_t clock)
{
    struct timespec now = { 0 };
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t capture_monotonic_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

static uint64_t CUPTIAPI timestamp(void)
{
    return (uint64_t)clock_ns(CLOCK_MONOTONIC);
}

int64_t capture_now_ns(void)
{
    uint64_t now = 0;
    if (!capture.own_clock && cupti.cuptiGetTimestamp &&
        cupti.cuptiGetTimestamp(&now) == CUPTI_SUCCESS)
        return (int64_t)now;
    return capture_monotonic_ns();
}

/* The tightest of several readings: what came between them shows as width. */
void capture_put_clock(void)
{
    RawAny any;
    RawClock best = { .cupti_ns = 0 };
    int64_t narrowest_ns = INT64_MAX;
    for (int i = 0; i < 5; i++) {
        int64_t before_ns = capture_monotonic_ns();
        int64_t now_ns = capture_now_ns(), real_ns = clock_ns(CLOCK_REALTIME);
        int64_t after_ns = capture_monotonic_ns();
        if (after_ns - before_ns >= narrowest_ns)
            continue;
        narrowest_ns = after_ns - before_ns;
        best = (RawClock){ .cupti_ns = now_ns,
                           .monotonic_ns = before_ns + narrowest_ns / 2,
                           .real_ns = real_ns };
    }
    RawClock *to = RAW_OF(&any, RAW_CLOCK, clock, 0);
    to->cupti_ns = best.cupti_ns;
    to->monotonic_ns = best.monotonic_ns;
    to->real_ns = best.real_ns;
    sink_put(&any.top);
}

/* ---- small things ---- */

bool capture_is_on(void)
{
    return is_on;
}

uint32_t capture_thread_id(void)
{
    return (uint32_t)syscall(SYS_gettid);
}

void capture_add_cost(int64_t since_ns)
{
    cost_ns += capture_monotonic_ns() - since_ns;
}

int64_t capture_cost_ns(void)
{
    return cost_ns;
}

void capture_put_trouble(const char *text)
{
    RawAny any;
    uint32_t id = sink_text(text);
    (void)RAW_OF(&any, RAW_TROUBLE, trouble, id);
    sink_put(&any.top);
}

/* ---- labels ---- */

static void push_op(uint32_t rank, uint32_t op)
{
    if (!is_on)
        return;
    uint64_t id = (uint64_t)rank << 32 | op;
    if (labels.ops_n < LABELS_DEEP_MAX)
        labels.op[labels.ops_n] = id;
    labels.ops_n++;
    (void)cupti.cuptiActivityPushExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0,
                                                       id);
}

static void pop_op(void)
{
    uint64_t last;
    if (labels.ops_n == 0)
        return;
    labels.ops_n--;
    if (is_on)
        (void)cupti.cuptiActivityPopExternalCorrelationId(
            CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, &last);
}

void capture_push_launch(uint32_t launch)
{
    labels.launch = launch;
    (void)cupti.cuptiActivityPushExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM1,
                                                       launch);
}

void capture_pop_launch(void)
{
    uint64_t last;
    labels.launch = 0;
    (void)cupti.cuptiActivityPopExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM1,
                                                      &last);
}

/* ---- nodes of CUDA graphs ---- */

static void put_node(CUgraphNode node, RawLabelled what, uint64_t id)
{
    RawAny any;
    uint64_t number = 0;
    if (cupti.cuptiGetGraphNodeId(node, &number) != CUPTI_SUCCESS)
        return;
    RawNode *to = RAW_OF(&any, RAW_NODE, node, what);
    to->node = number;
    to->id = id;
    sink_put(&any.top);
}

static void put_clone(CUgraphNode node, CUgraphNode from)
{
    RawAny any;
    uint64_t number = 0, from_number = 0;
    if (cupti.cuptiGetGraphNodeId(node, &number) != CUPTI_SUCCESS ||
        cupti.cuptiGetGraphNodeId(from, &from_number) != CUPTI_SUCCESS || number == from_number)
        return;
    RawClone *to = RAW_OF(&any, RAW_CLONE, clone, 0);
    to->node = number;
    to->from = from_number;
    sink_put(&any.top);
}

static void node_created(CUgraphNode node)
{
    uint32_t deep = labels.ops_n < LABELS_DEEP_MAX ? labels.ops_n : LABELS_DEEP_MAX;
    if (deep > 0)
        put_node(node, RAW_OP, labels.op[deep - 1]);
    if (labels.launch != 0)
        put_node(node, RAW_LAUNCH, labels.launch);
}

static void CUPTIAPI on_resource(void *user, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                                 const void *data)
{
    (void)user;
    if (domain != CUPTI_CB_DOMAIN_RESOURCE || !is_on || !data)
        return;
    int64_t since_ns = capture_monotonic_ns();
    const CUpti_ResourceData *resource = data;
    const CUpti_GraphData *graph = resource->resourceDescriptor;
    if (id == CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED && graph)
        node_created(graph->node);
    else if (id == CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED && graph)
        put_clone(graph->node, graph->originalNode);
    capture_add_cost(since_ns);
}

static void map_graph_node(void *node, uint32_t rank, uint32_t op)
{
    if (is_on)
        put_node(node, RAW_OP, (uint64_t)rank << 32 | op);
}

/* ---- attaching ---- */

static bool has_driver(char *why, size_t why_n)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (driver)
        return true; /* stays loaded: CUPTI will want it */
    snprintf(why, why_n, "there is no NVIDIA driver here (libcuda.so.1 cannot be loaded)");
    return false;
}

/* Of the plugin itself, whose dependencies hold the libcupti it was linked with. */
static bool find_cupti(char *why, size_t why_n)
{
    static const char anchor;
    Dl_info info;
    void *self = NULL;
    if (dladdr(&anchor, &info) && info.dli_fname)
        self = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    const char *missing = self ? NULL : "the plugin itself";
    void *at;
#define CUPTI_FIND(name) \
    at = self ? dlsym(self, #name) : NULL; \
    memcpy(&cupti.name, &at, sizeof at); \
    if (!at && !missing) \
        missing = #name;
    CUPTI_FUNCTIONS(CUPTI_FIND)
#undef CUPTI_FIND
    if (missing)
        snprintf(why, why_n, "this libcupti lacks %s", missing);
    return !missing;
}

static bool succeeded(CUptiResult rc, const char *what, char *why, size_t why_n)
{
    const char *text = NULL;
    if (rc == CUPTI_SUCCESS)
        return true;
    if (cupti.cuptiGetResultString(rc, &text) != CUPTI_SUCCESS || !text)
        text = "unknown error";
    snprintf(why, why_n, "CUPTI refuses %s: %s (error %d)%s", what, text, (int)rc,
             rc == CUPTI_ERROR_NOT_INITIALIZED || rc == CUPTI_ERROR_UNKNOWN
                 ? "; the driver may be older than this CUPTI"
                 : "");
    return false;
}

/* One tool at a time; the other one's name where CUPTI tells it. */
static bool subscribe(char *why, size_t why_n)
{
    char other[128] = "";
#if CUPTI_API_VERSION >= 130000
    CUpti_SubscriberParams params = { .structSize = CUpti_SubscriberParams_STRUCT_SIZE,
                                      .subscriberName = "lockstep",
                                      .oldSubscriberName = other,
                                      .oldSubscriberSize = sizeof other };
    CUptiResult rc = cupti.cuptiSubscribe_v2(&capture.subscriber, on_resource, NULL, &params);
#else
    CUptiResult rc = cupti.cuptiSubscribe(&capture.subscriber, on_resource, NULL);
#endif
    if (rc != CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED)
        return succeeded(rc, "to be used", why, why_n);
    other[sizeof other - 1] = '\0';
    snprintf(why, why_n,
             "another tool is attached to CUPTI%s%s, and it serves one at a time: switch off "
             "Nsight, the debugger, or the program's own profiler",
             other[0] ? ": " : "", other);
    return false;
}

static bool enable(CUpti_ActivityKind kind, const char *what, bool needed, char *why,
                   size_t why_n)
{
    char refused[200];
    if (succeeded(cupti.cuptiActivityEnable(kind), what, refused, sizeof refused))
        return true;
    if (needed)
        snprintf(why, why_n, "%s", refused);
    else
        capture_put_trouble(refused);
    return !needed;
}

/* Devices that exist already are told only on demand; within cuInit they are still to come. */
static void enable_devices(void)
{
    if (capture.injected) {
        (void)cupti.cuptiActivityEnable(CUPTI_ACTIVITY_KIND_DEVICE);
        return;
    }
#if CUPTI_API_VERSION >= 130000
    if (cupti.cuptiActivityEnableAndDump(CUPTI_ACTIVITY_KIND_DEVICE) == CUPTI_SUCCESS)
        return; /* else nothing is to be told yet */
#endif
    (void)cupti.cuptiActivityEnable(CUPTI_ACTIVITY_KIND_DEVICE);
}

#if CUPTI_API_VERSION >= 130000
/* Of the driver's calls those that put work on a GPU or wait: the runtime's own are recorded. */
static const CUpti_CallbackId driver_calls[] = {
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch,
    CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyAsync,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyAsync_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoDAsync_v2,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoDAsync_v2_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoHAsync_v2,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoHAsync_v2_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoDAsync_v2,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoDAsync_v2_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuMemsetD8Async,
    CUPTI_DRIVER_TRACE_CBID_cuMemsetD8Async_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuMemsetD32Async,
    CUPTI_DRIVER_TRACE_CBID_cuMemsetD32Async_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuStreamSynchronize,
    CUPTI_DRIVER_TRACE_CBID_cuStreamSynchronize_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuEventSynchronize,
    CUPTI_DRIVER_TRACE_CBID_cuCtxSynchronize,
};

/* Called by the thousand and over at once: they say nothing about time and cost much. */
static const CUpti_CallbackId quiet_calls[] = {
    CUPTI_RUNTIME_TRACE_CBID_cudaGetDevice_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaSetDevice_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaGetLastError_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaPeekAtLastError_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaEventQuery_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaStreamQuery_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaEventCreate_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaEventCreateWithFlags_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaEventDestroy_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaDeviceGetAttribute_v5000,
    CUPTI_RUNTIME_TRACE_CBID_cudaPointerGetAttributes_v4000,
    CUPTI_RUNTIME_TRACE_CBID_cudaStreamIsCapturing_v10000,
    CUPTI_RUNTIME_TRACE_CBID_cudaStreamGetCaptureInfo_v2_v11030,
    CUPTI_RUNTIME_TRACE_CBID_cudaFuncGetAttributes_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaFuncSetAttribute_v9000,
    CUPTI_RUNTIME_TRACE_CBID_cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags_v7000,
    CUPTI_RUNTIME_TRACE_CBID_cudaGetFuncBySymbol_v11000,
    CUPTI_RUNTIME_TRACE_CBID_cudaThreadExchangeStreamCaptureMode_v10010,
};
#endif

static void enable_driver_calls(void)
{
#if CUPTI_API_VERSION >= 130000
    for (size_t i = 0; i < ARRAY_N(driver_calls); i++)
        (void)cupti.cuptiActivityEnableDriverApi(driver_calls[i], 1);
    for (size_t i = 0; i < ARRAY_N(quiet_calls); i++)
        (void)cupti.cuptiActivityEnableRuntimeApi(quiet_calls[i], 0);
#else
    (void)cupti.cuptiActivityEnable(CUPTI_ACTIVITY_KIND_DRIVER);
#endif
}

/* Labels come with records of calls, so those stay on also where only kernels are wanted. */
static bool enable_all(bool kernels_only, char *why, size_t why_n)
{
    bool ok =
        enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, "to record kernels", true, why, why_n) &&
        enable(CUPTI_ACTIVITY_KIND_MEMCPY, "to record copies", true, why, why_n) &&
        enable(CUPTI_ACTIVITY_KIND_MEMSET, "to record sets", true, why, why_n) &&
        enable(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, "to record labels", true, why,
               why_n) &&
        enable(CUPTI_ACTIVITY_KIND_RUNTIME, "to record calls", true, why, why_n);
    if (!ok)
        return false;
    enable(CUPTI_ACTIVITY_KIND_MEMCPY2, "to record copies between GPUs", false, why, why_n);
    enable(CUPTI_ACTIVITY_KIND_OVERHEAD, "to record its overhead", false, why, why_n);
    enable_driver_calls();
    enable_devices();
    if (kernels_only)
        return true;
    enable(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, "to record waits", false, why, why_n);
    enable(CUPTI_ACTIVITY_KIND_CUDA_EVENT, "to record events", false, why, why_n);
    enable(CUPTI_ACTIVITY_KIND_MARKER, "to record NVTX", false, why, why_n);
    return true;
}

static void disable_all(void)
{
    static const CUpti_ActivityKind kinds[] = {
        CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
        CUPTI_ACTIVITY_KIND_MEMCPY,
        CUPTI_ACTIVITY_KIND_MEMCPY2,
        CUPTI_ACTIVITY_KIND_MEMSET,
        CUPTI_ACTIVITY_KIND_RUNTIME,
        CUPTI_ACTIVITY_KIND_DRIVER,
        CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
        CUPTI_ACTIVITY_KIND_SYNCHRONIZATION,
        CUPTI_ACTIVITY_KIND_CUDA_EVENT,
        CUPTI_ACTIVITY_KIND_MARKER,
        CUPTI_ACTIVITY_KIND_OVERHEAD,
        CUPTI_ACTIVITY_KIND_DEVICE,
    };
    for (size_t i = 0; i < ARRAY_N(kinds); i++)
        (void)cupti.cuptiActivityDisable(kinds[i]);
#if CUPTI_API_VERSION >= 130000
    for (size_t i = 0; i < ARRAY_N(driver_calls); i++)
        (void)cupti.cuptiActivityEnableDriverApi(driver_calls[i], 0);
#endif
}

/* What has to be settled before the first kind is enabled. */
static bool prepare(char *why, size_t why_n)
{
    capture.own_clock =
        cupti.cuptiActivityRegisterTimestampCallback(timestamp) == CUPTI_SUCCESS;
    (void)cupti.cuptiSetThreadIdType(CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM);
    (void)cupti.cuptiEnableCallback(1, capture.subscriber, CUPTI_CB_DOMAIN_RESOURCE,
                                    CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED);
    (void)cupti.cuptiEnableCallback(1, capture.subscriber, CUPTI_CB_DOMAIN_RESOURCE,
                                    CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED);
    return succeeded(
        cupti.cuptiActivityRegisterCallbacks(writer_buffer_wanted, writer_buffer_full),
        "to deliver records", why, why_n);
}

static bool attach(bool kernels_only, char *why, size_t why_n)
{
    if (!has_driver(why, why_n) || !find_cupti(why, why_n))
        return false;
    (void)cupti.cuptiGetVersion(&capture.version);
    if (!subscribe(why, why_n))
        return false;
    bool ok = writer_start(capture.version, why, why_n) && prepare(why, why_n);
    if (ok)
        capture_put_clock();
    ok = ok && enable_all(kernels_only, why, why_n);
    if (!ok) {
        disable_all();
        writer_stop();
        (void)cupti.cuptiUnsubscribe(capture.subscriber);
    }
    return ok;
}

/* ---- the head ---- */

static void read_command(char *to, size_t n)
{
    FILE *f = fopen("/proc/self/cmdline", "r");
    size_t got = f ? fread(to, 1, n - 1, f) : 0;
    if (f)
        fclose(f);
    while (got > 0 && to[got - 1] == '\0')
        got--;
    for (size_t i = 0; i < got; i++)
        if ((unsigned char)to[i] < 0x20)
            to[i] = ' ';
    to[got] = '\0';
}

static RawHead head_of(const CaptureOptions *o)
{
    RawHead head = { .magic = RAW_MAGIC,
                     .version = RAW_VERSION,
                     .byte_order = RAW_BYTE_ORDER,
                     .head_bytes = RAW_HEAD_BYTES,
                     .flags = o->kernels_only ? RAW_KERNELS_ONLY : 0,
                     .pid = (uint32_t)getpid(),
                     .rank = o->rank,
                     .world = o->world,
                     .local_rank = o->local_rank,
                     .start_real_ns = clock_ns(CLOCK_REALTIME) };
    gethostname(head.host, sizeof head.host - 1);
    read_command(head.command, sizeof head.command);
    return head;
}

/* ---- names of threads ---- */

static void put_thread(const char *tid)
{
    char path[64], name[64] = "";
    snprintf(path, sizeof path, "/proc/self/task/%.20s/comm", tid);
    FILE *f = fopen(path, "r");
    if (!f)
        return;
    if (fgets(name, sizeof name, f) && strchr(name, '\n'))
        *strchr(name, '\n') = '\0';
    fclose(f);
    RawAny any;
    RawThread *to = RAW_OF(&any, RAW_THREAD, thread, (uint32_t)strtoul(tid, NULL, 10));
    to->name = sink_text(name);
    sink_put(&any.top);
}

static void put_threads(void)
{
    DIR *dir = opendir("/proc/self/task");
    for (struct dirent *e = dir ? readdir(dir) : NULL; e; e = readdir(dir))
        if (e->d_name[0] >= '1' && e->d_name[0] <= '9')
            put_thread(e->d_name);
    if (dir)
        closedir(dir);
}

/* ---- starting and stopping ---- */

static void forked(void)
{
    if (!is_on)
        return;
    is_on = false;
    sink_forget();
}

/* Leaves a recording that holds the reason and nothing else. */
static void leave_reason(const char *why)
{
    CaptureTotals totals;
    capture_put_trouble(why);
    sink_close(true, 0, &totals);
}

static bool start(const CaptureOptions *o, char *why, size_t why_n)
{
    static bool told; /* that forks are watched */
    if (is_on) {
        snprintf(why, why_n, "this process is being recorded already");
        return false;
    }
    RawHead head = head_of(o);
    cost_ns = 0;
    if (!sink_open(o->path, &head, why, why_n))
        return false;
    if (!attach(o->kernels_only, why, why_n)) {
        leave_reason(why);
        if (!capture.injected)
            unlink(o->path);
        return false;
    }
    sink_note_version(capture.version);
    capture.pid = getpid();
    if (!told)
        pthread_atfork(NULL, NULL, forked);
    told = true;
    is_on = true;
    return true;
}

static bool stop(CaptureTotals *totals, char *why, size_t why_n)
{
    bool expected = true;
    *totals = (CaptureTotals){ .records_n = 0 };
    if (capture.pid != getpid() || !atomic_compare_exchange_strong(&is_on, &expected, false)) {
        snprintf(why, why_n, "this process is not being recorded");
        return false;
    }
    (void)cupti.cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    disable_all();
    (void)cupti.cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    put_threads();
    capture_put_clock();
    writer_stop();
    (void)cupti.cuptiUnsubscribe(capture.subscriber);
    sink_close(true, writer_cpu_ns(), totals);
    if (totals->unwritten_n)
        snprintf(why, why_n, "%llu records could not be written",
                 (unsigned long long)totals->unwritten_n);
    else if (totals->dropped_n)
        snprintf(why, why_n, "CUPTI dropped %llu records%s",
                 (unsigned long long)totals->dropped_n,
                 writer_refused_n() ? ", it had no buffer free" : "");
    return totals->unwritten_n == 0 && totals->dropped_n == 0;
}

__attribute__((visibility("default")))
const CaptureApi lockstep_capture = { CAPTURE_VERSION, start,          push_op, pop_op,
                                      map_graph_node,  capture_now_ns, stop };

/* ---- injected ---- */

static void at_exit(void)
{
    CaptureTotals totals;
    char why[200];
    if (is_on && capture.pid == getpid())
        (void)stop(&totals, why, sizeof why);
}

/* SA_RESETHAND: the second time the signal does what it would have done without us. */
static void on_fatal(int number)
{
    int kept = errno;
    if (is_on && capture.pid == getpid())
        writer_rescue(number);
    errno = kept;
    raise(number);
}

static void watch_signals(void)
{
    static const int fatal[] = { SIGSEGV, SIGBUS, SIGFPE,  SIGILL, SIGABRT,
                                 SIGTERM, SIGINT, SIGQUIT, SIGHUP };
    for (size_t i = 0; i < ARRAY_N(fatal); i++) {
        struct sigaction now;
        if (sigaction(fatal[i], NULL, &now) != 0 || (now.sa_flags & SA_SIGINFO) ||
            now.sa_handler != SIG_DFL)
            continue; /* the program's own business */
        struct sigaction ours = { .sa_handler = on_fatal,
                                  .sa_flags = (int)(SA_RESETHAND | SA_NODEFER) };
        sigemptyset(&ours.sa_mask);
        sigaction(fatal[i], &ours, NULL);
    }
}

static uint32_t number_of(const char *name)
{
    const char *text = name ? getenv(name) : NULL;
    char *end = NULL;
    if (!text || *text < '0' || *text > '9')
        return NONE_U32;
    unsigned long x = strtoul(text, &end, 10);
    return *end == '\0' && x < (1ul << 24) ? (uint32_t)x : NONE_U32;
}

/* As exec/launch_place.c has it: torchrun, Open MPI, MPICH, srun. */
static void find_place(CaptureOptions *o)
{
    static const char *const places[][4] = {
        { "RANK", "WORLD_SIZE", "LOCAL_RANK", NULL },
        { "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", NULL },
        { "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", NULL },
        { "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_STEP_ID" },
    };
    for (size_t i = 0; i < ARRAY_N(places); i++) {
        o->rank = number_of(places[i][0]);
        o->world = number_of(places[i][1]);
        o->local_rank = number_of(places[i][2]);
        if (o->rank != NONE_U32 && o->world != NONE_U32 && o->rank < o->world &&
            (!places[i][3] || getenv(places[i][3])))
            return;
    }
    o->rank = o->world = o->local_rank = NONE_U32;
}

/* A name that is not taken: a process that execs another has the same number. */
static bool free_path(char *path, size_t path_n, const char *folder)
{
    char host[64] = "host";
    gethostname(host, sizeof host - 1);
    for (char *c = host; *c; c++)
        if (*c == '/' || *c == '.')
            *c = '-';
    for (int i = 0; i < FILES_PER_PROCESS_MAX; i++) {
        int n =
            snprintf(path, path_n, "%s/%s.%d.%d" RAW_ENDING, folder, host, (int)getpid(), i);
        if (n < 0 || (size_t)n >= path_n)
            return false;
        if (access(path, F_OK) != 0)
            return true;
    }
    return false;
}

/* The driver calls it within cuInit; whatever happens, the program goes on. */
__attribute__((visibility("default"))) int InitializeInjection(void)
{
    static _Atomic bool began;
    const char *folder = getenv(CAPTURE_DIR_VARIABLE);
    char path[4096], why[300];
    CaptureOptions o = { .path = path };
    if (!folder || atomic_exchange(&began, true) || !free_path(path, sizeof path, folder))
        return 1;
    find_place(&o);
    capture.injected = true;
    if (!start(&o, why, sizeof why))
        return 1;
    atexit(at_exit);
    watch_signals();
    return 1;
}

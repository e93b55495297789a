/*
 * runtime.cu - streams, events and graphs without a GPU, in the most awkward legal order.
 *
 * Nothing runs when it is queued.  Whoever waits runs what streams hold, one thing at a time:
 * of all streams whose first thing may run one is taken by chance (fixed seed).  So a missing
 * wait between streams is met in some order.  A captured graph keeps, for each thing, what it
 * must come after; a launch runs it in a random order of those that are allowed.
 *
 * One lock; host threads may queue and wait at the same time.
 */
#include <atomic>
#include <deque>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "tests/on_cpu/cuda_runtime_api.h"
#include "tests/on_cpu/on_cpu.h"
#include <dlfcn.h>
#include <time.h>
#include <unordered_map>

typedef std::function<void()> Work;

typedef struct Node {
    Work work;
    std::set<size_t> after;
    uint64_t id; /* of a kernel's, as CUPTI tells it; else 0 */
} Node;

struct CUgraph_st {
    std::vector<Node> nodes;
};
struct CUgraphExec_st {
    std::vector<Node> nodes;
};

struct CUevent_st {
    uint64_t queued, done;      /* records of it */
    std::set<uint64_t> pending; /* those that their streams have not come to */
    int64_t ns;
    CUgraph_st *graph; /* recorded while that was captured, behind these */
    std::set<size_t> behind;
};

typedef struct Item {
    Work work;
    CUevent_st *event; /* waits for */
    uint64_t record;   /* this record of it */
} Item;

struct CUstream_st {
    std::deque<Item> items;
    CUgraph_st *graph; /* being captured */
    std::set<size_t> tails;
    bool origin;
    uint32_t number; /* as CUPTI tells it */
    int priority;
    std::thread::id maker;
};

static std::recursive_mutex lock;
static std::vector<CUstream_st *> streams;
static std::unordered_map<void *, size_t> allocations;
static uint64_t memory_bytes = (uint64_t)1 << 30, allocated_bytes, graphs_n, fail_in;
static uint64_t chance = 12345;
static std::atomic<bool> lazy;
static bool spoils, spoiled; /* the next launch into a capture; the capture at hand */
static thread_local cudaError_t last_error;

#define LOCKED std::lock_guard<std::recursive_mutex> guard(lock)

static cudaError_t result(cudaError_t e)
{
    last_error = e == cudaSuccess ? last_error : e; /* also cudaErrorNotReady, as CUDA's */
    return e;
}

static uint64_t random_below(uint64_t n)
{
    chance ^= chance << 13, chance ^= chance >> 7, chance ^= chance << 17;
    return chance % n;
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- running ---- */

static bool can_run(const CUstream_st *s)
{
    return !s->items.empty() &&
           (!s->items.front().event ||
            !s->items.front().event->pending.count(s->items.front().record));
}

/* Runs one thing of some stream; false: none can run. */
static bool run_one(void)
{
    std::vector<CUstream_st *> ready;
    for (CUstream_st *s : streams)
        if (can_run(s))
            ready.push_back(s);
    if (ready.empty())
        return false;
    CUstream_st *s = ready[random_below(ready.size())];
    Item item = s->items.front();
    s->items.pop_front();
    if (item.work)
        item.work();
    return true;
}

/* ---- what CUPTI would see (tests/cupti/fake_cupti.c, where that is loaded) ---- */

typedef struct Cupti {
    void (*launch)(const char *kernel, uint64_t node, uint32_t stream);
    void (*node)(uint64_t node, uint64_t from);
} Cupti;

static Cupti find_cupti(void)
{
    const char *name = getenv("FAKE_CUPTI");
    void *library = name ? dlopen(name, RTLD_NOW | RTLD_NOLOAD) : NULL;
    Cupti c = { NULL, NULL };
    if (library) {
        c.launch = (void (*)(const char *, uint64_t, uint32_t))dlsym(library, "fake_launch_on");
        c.node = (void (*)(uint64_t, uint64_t))dlsym(library, "fake_node");
    }
    return c;
}

static const Cupti &cupti(void)
{
    static Cupti c = find_cupti();
    return c;
}

/* A kernel runs, of a graph's node or 0. */
static void tell_launch(uint64_t node, const CUstream_st *s)
{
    if (cupti().launch)
        cupti().launch("stand_in", node, s ? s->number : 0);
}

/* A node is made, or copied; its number. */
static uint64_t tell_node(uint64_t from)
{
    static uint64_t nodes_n;
    uint64_t id = ++nodes_n;
    if (cupti().node)
        cupti().node(id, from);
    return id;
}

static void queue(CUstream_st *s, Work work, bool kernel = false)
{
    bool captured = s && s->graph;
    if (kernel && !captured)
        tell_launch(0, s);
    if (!s) {
        while (run_one()) {
        }
        work();
    } else if (s->graph) {
        s->graph->nodes.push_back(Node{ work, s->tails, kernel ? tell_node(0) : 0 });
        s->tails = { s->graph->nodes.size() - 1 };
    } else {
        s->items.push_back(Item{ work, NULL, 0 });
    }
}

void on_cpu_enqueue(void *stream, Work work)
{
    LOCKED;
    if (fail_in > 0 && --fail_in == 0)
        result(cudaErrorLaunchFailure);
    else if (spoils && stream && ((CUstream_st *)stream)->graph)
        result(cudaErrorStreamCaptureUnsupported), spoils = false, spoiled = true;
    else
        queue((CUstream_st *)stream, work, true);
}

void on_cpu_lazy(bool wanted)
{
    LOCKED;
    lazy = wanted;
}

/* Is all done that this thread's streams hold?  Runs something. */
static bool are_own_empty(void)
{
    LOCKED;
    bool empty = true;
    for (const CUstream_st *s : streams)
        empty = empty && (s->maker != std::this_thread::get_id() || s->items.empty());
    if (!empty)
        run_one();
    return empty;
}

void on_cpu_load(void (*kernel)())
{
    static thread_local std::set<void (*)()> loaded;
    if (!lazy || !loaded.insert(kernel).second)
        return;
    while (!are_own_empty())
        std::this_thread::yield();
}

void on_cpu_queue(void *stream, void (*run)(const void *work), const void *work, size_t bytes)
{
    on_cpu_load((void (*)())run);
    LOCKED;
    std::vector<unsigned char> copy((const unsigned char *)work,
                                    (const unsigned char *)work + bytes);
    queue((CUstream_st *)stream, [=]() { run(copy.data()); }, true);
}

void on_cpu_fail_launch(uint64_t n)
{
    LOCKED;
    fail_in = n;
}

void on_cpu_spoil_capture(void)
{
    LOCKED;
    spoils = true;
}

/* ---- gates ---- */

std::recursive_mutex &on_cpu_lock(void)
{
    return lock;
}

cudaEvent_t on_cpu_gate(void)
{
    CUevent_st *gate = new CUevent_st();
    gate->queued = 1;
    gate->pending.insert(1);
    return gate;
}

void on_cpu_gate_open(cudaEvent_t gate)
{
    LOCKED;
    gate->done = 1;
    gate->pending.erase(1);
}

/* ---- memory ---- */

void on_cpu_memory(uint64_t bytes)
{
    LOCKED;
    memory_bytes = bytes;
}

uint64_t on_cpu_allocated(void)
{
    LOCKED;
    return allocated_bytes;
}

uint32_t on_cpu_allocations(uint64_t bytes)
{
    LOCKED;
    uint32_t n = 0;
    for (const auto &a : allocations)
        n += a.second == bytes;
    return n;
}

cudaError_t cudaMalloc(void **at, size_t bytes)
{
    LOCKED;
    if (allocated_bytes + bytes > memory_bytes)
        return result(cudaErrorMemoryAllocation);
    *at = aligned_alloc(256, (bytes + 256) / 256 * 256);
    memset(*at, 0xff, bytes); /* NaN, and row -1 of everything */
    allocations[*at] = bytes;
    allocated_bytes += bytes;
    return cudaSuccess;
}

cudaError_t cudaFree(void *at)
{
    LOCKED;
    if (at) {
        allocated_bytes -= allocations.at(at);
        allocations.erase(at);
    }
    free(at);
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **at, size_t bytes)
{
    *at = calloc(1, bytes + 1);
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *at)
{
    free(at);
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *bytes)
{
    LOCKED;
    *free_bytes = memory_bytes - allocated_bytes;
    *bytes = memory_bytes;
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream)
{
    LOCKED;
    queue(stream, [=]() { memmove(to, from, bytes); });
    return cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind, cudaStream_t stream)
{
    LOCKED;
    queue(stream, [=]() {
        for (size_t i = 0; i < height; i++)
            memmove((char *)to + i * to_pitch, (const char *)from + i * from_pitch, width);
    });
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind)
{
    return cudaMemcpyAsync(to, from, bytes, kind, NULL);
}

cudaError_t cudaMemsetAsync(void *at, int value, size_t bytes, cudaStream_t stream)
{
    LOCKED;
    queue(stream, [=]() { memset(at, value, bytes); });
    return cudaSuccess;
}

cudaError_t cudaMemset(void *at, int value, size_t bytes)
{
    return cudaMemsetAsync(at, value, bytes, NULL);
}

/* ---- the device ---- */

cudaError_t cudaSetDevice(int device)
{
    return device == 0 ? cudaSuccess : result(cudaErrorInvalidValue);
}

cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *n)
{
    *n = 1;
    return cudaSuccess;
}

/* One multiprocessor: small cases, too, are of more blocks than are on it at once. */
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr what, int device)
{
    *value = 1;
    return what == cudaDevAttrMultiProcessorCount && device == 0
               ? cudaSuccess
               : result(cudaErrorInvalidValue);
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = 13000;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = 13000;
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
    LOCKED;
    while (run_one()) {
    }
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    LOCKED;
    cudaError_t e = last_error;
    last_error = cudaSuccess;
    return e;
}

const char *cudaGetErrorName(cudaError_t e)
{
    return e == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation"
           : e == cudaErrorLaunchFailure  ? "cudaErrorLaunchFailure"
                                          : "cudaError";
}

const char *cudaGetErrorString(cudaError_t e)
{
    return e == cudaErrorMemoryAllocation ? "out of memory"
           : e == cudaErrorLaunchFailure  ? "unspecified launch failure"
                                          : "an error of the stand-in";
}

/* ---- streams and events ---- */

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned, int priority)
{
    LOCKED;
    static uint32_t streams_n;
    *stream = new CUstream_st();
    (*stream)->priority = priority;
    (*stream)->maker = std::this_thread::get_id();
    (*stream)->number = ++streams_n;
    streams.push_back(*stream);
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority)
{
    *priority = stream->priority;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    LOCKED;
    for (size_t i = 0; i < streams.size(); i++)
        if (streams[i] == stream)
            streams.erase(streams.begin() + (long)i);
    delete stream;
    return cudaSuccess;
}

static bool is_empty(cudaStream_t stream)
{
    LOCKED;
    if (!stream->items.empty())
        run_one();
    return stream->items.empty();
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    return is_empty(stream) ? cudaSuccess : result(cudaErrorNotReady);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    while (!is_empty(stream)) {
    }
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
    *event = new CUevent_st();
    return cudaSuccess;
}

/* What is queued may still record it, or wait for it: then it stays. */
cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    LOCKED;
    bool used = !event->pending.empty();
    for (CUstream_st *s : streams)
        for (const Item &item : s->items)
            used = used || item.event == event;
    if (!used)
        delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags)
{
    LOCKED;
    if (stream->graph && flags != cudaEventRecordExternal) {
        event->graph = stream->graph;
        event->behind = stream->tails;
        return cudaSuccess;
    }
    event->graph = NULL;
    if (stream->graph) { /* a node that records it, at every launch */
        queue(stream, [=]() { event->ns = now_ns(), event->queued = ++event->done; });
        return cudaSuccess;
    }
    uint64_t record = ++event->queued;
    event->pending.insert(record);
    queue(stream, [=]() {
        event->ns = now_ns(), event->done++;
        event->pending.erase(record);
    });
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    LOCKED;
    if (event->graph) { /* the stream joins what is being captured */
        if (!stream->graph)
            stream->tails.clear();
        stream->graph = event->graph;
        stream->tails.insert(event->behind.begin(), event->behind.end());
        return cudaSuccess;
    }
    if (stream->graph)
        return result(cudaErrorStreamCaptureIsolation);
    if (event->queued > 0)
        stream->items.push_back(Item{ Work(), event, event->queued });
    return cudaSuccess;
}

static bool has_come(cudaEvent_t event)
{
    LOCKED;
    if (event->pending.count(event->queued))
        run_one();
    return !event->pending.count(event->queued);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    return has_come(event) ? cudaSuccess : result(cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    while (!has_come(event)) {
    }
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    LOCKED;
    if (start->done == 0 || end->done == 0)
        return result(cudaErrorInvalidValue);
    *ms = (float)((double)(end->ns - start->ns) / 1e6);
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int)
{
    memset(prop, 7, sizeof *prop); /* there is only one */
    return cudaSuccess;
}

/* ---- graphs ---- */

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status)
{
    LOCKED;
    *status = stream->graph ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

/* Nothing that another thread asks spoils a capture here. */
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *mode)
{
    *mode = cudaStreamCaptureModeGlobal;
    return cudaSuccess;
}

uint64_t on_cpu_graphs(void)
{
    LOCKED;
    return graphs_n;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode)
{
    LOCKED;
    stream->graph = new CUgraph_st();
    stream->tails.clear();
    stream->origin = true;
    return cudaSuccess;
}

/* Every node must come before the end of the stream that began. */
static bool is_joined(const CUgraph_st *g, const std::set<size_t> &tails)
{
    std::set<size_t> known = tails;
    for (size_t i = g->nodes.size(); i-- > 0;)
        if (known.count(i))
            known.insert(g->nodes[i].after.begin(), g->nodes[i].after.end());
    return known.size() == g->nodes.size();
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    LOCKED;
    CUgraph_st *g = stream->graph;
    *graph = NULL;
    if (!g || !stream->origin)
        return result(cudaErrorInvalidValue);
    bool joined = !spoiled && is_joined(g, stream->tails);
    spoiled = false;
    for (CUstream_st *s : streams)
        if (s->graph == g) {
            s->graph = NULL;
            s->origin = false;
        }
    *graph = joined ? g : NULL;
    if (!joined)
        delete g;
    return joined ? cudaSuccess : result(cudaErrorStreamCaptureUnjoined);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long)
{
    *exec = new CUgraphExec_st{ graph->nodes };
    for (Node &node : (*exec)->nodes)
        node.id = node.id ? tell_node(node.id) : 0;
    return cudaSuccess;
}

static void run_graph(const CUgraphExec_st *g, const CUstream_st *s)
{
    std::vector<bool> done(g->nodes.size());
    for (size_t n = 0; n < g->nodes.size(); n++) {
        std::vector<size_t> ready;
        for (size_t i = 0; i < g->nodes.size(); i++) {
            bool can = !done[i];
            for (size_t before : g->nodes[i].after)
                can = can && done[before];
            if (can)
                ready.push_back(i);
        }
        size_t i = ready[random_below(ready.size())];
        if (g->nodes[i].id)
            tell_launch(g->nodes[i].id, s);
        g->nodes[i].work();
        done[i] = true;
    }
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    LOCKED;
    graphs_n++;
    queue(stream, [=]() { run_graph(exec, stream); });
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    delete exec;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    delete graph;
    return cudaSuccess;
}

/*
 * traced.c - a CUDA program whose kernels, copies, steps and labels can be counted, to be
 * recorded by the collector on a real GPU (tests/gpu/profile.sh).
 *
 *     traced plain               5 steps (NVTX) of 100 kernels on two streams with events between
 *                                them, a CUDA graph of 10 kernels launched 20 times, 10 copies
 *     traced crash               the same, then abort()
 *     traced steps N             times N steps of 200 short kernels: "ns_per_step X"
 *     traced api PLUGIN FILE     records itself: ops 100..109 around launches, and 200..209
 *                                around the capture of a graph, launched 20 times
 *
 * Prints what a recording must hold, "expect kernels 700 ...".  Exit status 77: no GPU.
 */
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/capture_api.h"

enum {
    STEPS = 5,
    KERNELS = 100,
    GRAPH_KERNELS = 10,
    GRAPH_LAUNCHES = 20,
    COPIES = 10,
    N = 1 << 16
};

void launch_spin(long long ns, void *stream);
void launch_touch(float *x, int n, void *stream);

static cudaStream_t stream[2];
static cudaEvent_t event;
static float *x;

static void must(cudaError_t rc, const char *what)
{
    if (rc == cudaSuccess)
        return;
    fprintf(stderr, "traced: %s: %s\n", what, cudaGetErrorString(rc));
    exit(1);
}

static void open_gpu(void)
{
    int n = 0;
    if (cudaGetDeviceCount(&n) != cudaSuccess || n == 0) {
        fprintf(stderr, "traced: no GPU\n");
        exit(77);
    }
    must(cudaMalloc((void **)&x, N * sizeof *x), "malloc");
    for (int i = 0; i < 2; i++)
        must(cudaStreamCreateWithFlags(&stream[i], cudaStreamNonBlocking), "stream");
    must(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "event");
}

/* Half on each stream; the second waits for the first. */
static void step(int number)
{
    char name[32];
    snprintf(name, sizeof name, "step %d", number);
    nvtxRangePushA(name);
    for (int i = 0; i < KERNELS / 2; i++)
        launch_touch(x, N, stream[0]);
    must(cudaEventRecord(event, stream[0]), "record");
    must(cudaStreamWaitEvent(stream[1], event, 0), "wait");
    for (int i = 0; i < KERNELS / 2; i++)
        launch_spin(2000, stream[1]);
    must(cudaStreamSynchronize(stream[1]), "synchronize");
    nvtxRangePop();
}

/* Ops are pushed around each node that is captured, where there is a collector. */
static void use_graph(const CaptureApi *capture)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    must(cudaStreamBeginCapture(stream[0], cudaStreamCaptureModeThreadLocal), "capture");
    for (int i = 0; i < GRAPH_KERNELS; i++) {
        if (capture)
            capture->push_op(0, 200 + (uint32_t)i);
        launch_touch(x, N, stream[0]);
        if (capture)
            capture->pop_op();
    }
    must(cudaStreamEndCapture(stream[0], &graph), "end capture");
    must(cudaGraphInstantiate(&exec, graph, 0), "instantiate");
    for (int i = 0; i < GRAPH_LAUNCHES; i++)
        must(cudaGraphLaunch(exec, stream[0]), "launch");
    must(cudaDeviceSynchronize(), "synchronize");
    must(cudaGraphExecDestroy(exec), "destroy");
    must(cudaGraphDestroy(graph), "destroy");
}

static void plain(void)
{
    static float host[N];
    for (int i = 0; i < STEPS; i++)
        step(i);
    use_graph(NULL);
    for (int i = 0; i < COPIES; i++)
        must(cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost), "copy");
    must(cudaDeviceSynchronize(), "synchronize");
    printf("expect kernels %d copies %d steps %d\n",
           STEPS * KERNELS + GRAPH_KERNELS * GRAPH_LAUNCHES, COPIES, STEPS);
    fflush(stdout);
}

static void steps(int n)
{
    struct timespec from, to;
    for (int i = 0; i < n + 10; i++) {
        if (i == 10) { /* the first ones warm up */
            must(cudaDeviceSynchronize(), "synchronize");
            clock_gettime(CLOCK_MONOTONIC, &from);
        }
        for (int k = 0; k < 200; k++)
            launch_spin(20000, stream[k & 1]);
        must(cudaDeviceSynchronize(), "synchronize");
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    printf("ns_per_step %.0f\n",
           ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) / n);
}

static int api(const char *plugin, const char *file)
{
    char why[300] = "";
    CaptureTotals totals;
    void *library = dlopen(plugin, RTLD_NOW | RTLD_LOCAL);
    const CaptureApi *c = library ? dlsym(library, CAPTURE_PLUGIN_SYMBOL) : NULL;
    const CaptureOptions o = { .path = file, .rank = 0, .world = 1, .local_rank = 0 };
    if (!c || !c->start(&o, why, sizeof why)) {
        fprintf(stderr, "traced: %s\n", c ? why : dlerror());
        return 1;
    }
    open_gpu();
    for (uint32_t i = 0; i < 10; i++) {
        c->push_op(0, 100 + i);
        launch_touch(x, N, stream[0]);
        launch_spin(1000, stream[1]);
        c->pop_op();
    }
    use_graph(c);
    must(cudaDeviceSynchronize(), "synchronize");
    bool ok = c->stop(&totals, why, sizeof why);
    printf("expect kernels %d labelled_per_op %d graph_labelled_per_op %d\n",
           20 + GRAPH_KERNELS * GRAPH_LAUNCHES, 2, GRAPH_LAUNCHES);
    printf("records %llu, dropped %llu, callbacks %lld ns, writer %lld ns%s%s\n",
           (unsigned long long)totals.records_n, (unsigned long long)totals.dropped_n,
           (long long)totals.callback_ns, (long long)totals.writer_ns, ok ? "" : ": ", why);
    return ok ? 0 : 1;
}

int main(int argc, char **argv)
{
    const char *deed = argc > 1 ? argv[1] : "";
    if (strcmp(deed, "api") == 0 && argc == 4)
        return api(argv[2], argv[3]);
    open_gpu();
    if (strcmp(deed, "steps") == 0 && argc == 3)
        steps(atoi(argv[2]));
    else
        plain();
    if (strcmp(deed, "crash") == 0)
        abort();
    return 0;
}

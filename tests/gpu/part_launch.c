/*
 * part_launch.c - what it costs to get something onto the GPU.
 *
 * Host costs are wall-clock time per call while the queue is short; GPU costs are time
 * between events behind the gate of timing.h.  One row: {"metric": ..., "time_us": ...}.
 */
#include "gpu_try.h"
#include "lt.h"
#include "parts.h"

enum { CALLS = 200, REPEATS = 15 };

/* What one metric is made of: n calls, enqueued. */
typedef void Enqueue(Run *run, int n);

static cudaStream_t other_stream;
static cudaEvent_t ping, pong;
static Lt lt;
static LtGemm small_gemm;
static char *small_operands;

static void report(Run *run, const char *metric, double *us, int n)
{
    Row row;
    double median = quantile(us, n, 0.5);
    row_begin(&row, "launch");
    row_text(&row, "metric", metric);
    row_real(&row, "time_us", median);
    row_real(&row, "min_us", us[0]);
    row_real(&row, "p90_us", quantile(us, n, 0.9));
    row_int(&row, "repeats", n);
    row_end(&row, run->rows);
    printf("%-24s %9.3f us\n", metric, median);
}

/* ---- host costs ---- */

static void host_cost(Run *run, const char *metric, Enqueue *enqueue)
{
    double us[REPEATS];
    enqueue(run, CALLS);
    CUDA_TRY(cudaDeviceSynchronize());
    for (int i = 0; i < REPEATS; i++) {
        double begin = host_now_us();
        enqueue(run, CALLS);
        us[i] = (host_now_us() - begin) / CALLS;
        CUDA_TRY(cudaDeviceSynchronize());
    }
    report(run, metric, us, REPEATS);
}

/* Enqueue and wait, n times; what the host sees per call. */
static void round_trip(Run *run, const char *metric, Enqueue *enqueue, int n)
{
    double us[REPEATS];
    for (int i = 0; i < REPEATS; i++) {
        double begin = host_now_us();
        enqueue(run, n);
        CUDA_TRY(cudaDeviceSynchronize());
        us[i] = (host_now_us() - begin) / n;
    }
    report(run, metric, us, REPEATS);
}

static void launches(Run *run, int n)
{
    for (int i = 0; i < n; i++)
        CUDA_TRY(kern_empty(run->bench.stream));
}

static void records(Run *run, int n)
{
    for (int i = 0; i < n; i++)
        CUDA_TRY(cudaEventRecord(ping, run->bench.stream));
}

/* On an event that has not happened yet, as a wait between streams usually is. */
static void waits(Run *run, int n)
{
    CUDA_TRY(kern_spin(2000, other_stream));
    CUDA_TRY(cudaEventRecord(pong, other_stream));
    for (int i = 0; i < n; i++)
        CUDA_TRY(cudaStreamWaitEvent(run->bench.stream, pong, 0));
}

static void small_gemms(Run *run, int n)
{
    for (int i = 0; i < n; i++)
        lt_gemm_run(&small_gemm, &lt, 0, small_operands, small_operands + 65536,
                    small_operands + 131072, run->bench.stream);
}

static void small_memsets(Run *run, int n)
{
    for (int i = 0; i < n; i++)
        CUDA_TRY(cudaMemsetAsync(small_operands, 0, 4096, run->bench.stream));
}

/* ---- GPU costs ---- */

static void one_empty(void *self, uint64_t call, cudaStream_t stream)
{
    (void)self;
    (void)call;
    CUDA_TRY(kern_empty(stream));
}

static void two_records(void *self, uint64_t call, cudaStream_t stream)
{
    (void)self;
    (void)call;
    CUDA_TRY(cudaEventRecord(ping, stream));
    CUDA_TRY(kern_empty(stream));
}

/* Two empty kernels, the second on another stream, and back: two dependencies. */
static void there_and_back(void *self, uint64_t call, cudaStream_t stream)
{
    (void)self;
    (void)call;
    CUDA_TRY(kern_empty(stream));
    CUDA_TRY(cudaEventRecord(ping, stream));
    CUDA_TRY(cudaStreamWaitEvent(other_stream, ping, 0));
    CUDA_TRY(kern_empty(other_stream));
    CUDA_TRY(cudaEventRecord(pong, other_stream));
    CUDA_TRY(cudaStreamWaitEvent(stream, pong, 0));
}

static void gpu_cost(Run *run, const char *metric, WorkLaunch *launch)
{
    TimingPlan plan = { .sample_us = 1000, .batch_max = 100, .repeats = REPEATS };
    Timing t = bench_time(&run->bench, launch, NULL, plan);
    double us[] = { t.min_us, t.median_us, t.p90_us };
    report(run, metric, us, 3);
}

/* ---- the shortest a kernel can be: one between two events, less the bare events ---- */

static double between_events(Run *run, bool kernel)
{
    Bench *b = &run->bench;
    double us[REPEATS];
    for (int i = 0; i < REPEATS; i++) {
        float ms;
        CUDA_TRY(kern_spin(50, b->stream));
        CUDA_TRY(cudaEventRecord(b->start, b->stream));
        if (kernel)
            CUDA_TRY(kern_empty(b->stream));
        CUDA_TRY(cudaEventRecord(b->stop, b->stream));
        CUDA_TRY(cudaStreamSynchronize(b->stream));
        CUDA_TRY(cudaEventElapsedTime(&ms, b->start, b->stop));
        us[i] = (double)ms * 1e3;
    }
    return quantile(us, REPEATS, 0.5);
}

static void kernel_floor(Run *run)
{
    double bare_us = between_events(run, false), with_us = between_events(run, true);
    report(run, "event_to_event", &bare_us, 1);
    report(run, "event_kernel_event", &with_us, 1);
}

/* ---- launch to flag: the host sees a number that the kernel wrote ---- */

static void launch_to_flag(Run *run)
{
    volatile int *flag;
    int *device_flag;
    double us[REPEATS];

    CUDA_TRY(cudaHostAlloc((void **)&flag, sizeof *flag, cudaHostAllocMapped));
    CUDA_TRY(cudaHostGetDevicePointer((void **)&device_flag, (void *)flag, 0));
    for (int i = 0; i < REPEATS; i++) {
        *flag = 0;
        double begin = host_now_us();
        CUDA_TRY(kern_set_flag(device_flag, 1, run->bench.stream));
        while (*flag == 0 && host_now_us() - begin < 100000) {
        }
        us[i] = host_now_us() - begin;
        CUDA_TRY(cudaStreamSynchronize(run->bench.stream));
    }
    report(run, "launch_to_flag", us, REPEATS);
    CUDA_TRY(cudaFreeHost((void *)flag));
}

/* ---- CUDA graphs ---- */

static cudaGraphExec_t graph_of_empties(Run *run, int nodes)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaStream_t stream = run->bench.stream;

    CUDA_TRY(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    launches(run, nodes);
    CUDA_TRY(cudaStreamEndCapture(stream, &graph));
    CUDA_TRY(cudaGraphInstantiate(&exec, graph, 0));
    CUDA_TRY(cudaGraphDestroy(graph));
    CUDA_TRY(cudaGraphLaunch(exec, stream));
    CUDA_TRY(cudaStreamSynchronize(stream));
    return exec;
}

static void graphs(Run *run)
{
    Bench *b = &run->bench;
    cudaGraphExec_t exec = graph_of_empties(run, CALLS);
    double host[REPEATS], gpu[REPEATS];

    for (int i = 0; i < REPEATS; i++) {
        float ms;
        CUDA_TRY(kern_spin(1000, b->stream));
        CUDA_TRY(cudaEventRecord(b->start, b->stream));
        double begin = host_now_us();
        CUDA_TRY(cudaGraphLaunch(exec, b->stream));
        host[i] = host_now_us() - begin;
        CUDA_TRY(cudaEventRecord(b->stop, b->stream));
        CUDA_TRY(cudaStreamSynchronize(b->stream));
        CUDA_TRY(cudaEventElapsedTime(&ms, b->start, b->stop));
        gpu[i] = (double)ms * 1e3 / CALLS;
    }
    report(run, "graph_launch_200_host", host, REPEATS);
    report(run, "graph_node_gpu", gpu, REPEATS);
    CUDA_TRY(cudaGraphExecDestroy(exec));
}

static void timer_tick(Run *run)
{
    uint64_t ns = 0, *device_ns;
    CUDA_TRY(cudaMalloc((void **)&device_ns, sizeof *device_ns));
    CUDA_TRY(kern_timer_tick(device_ns, run->bench.stream));
    CUDA_TRY(cudaStreamSynchronize(run->bench.stream));
    CUDA_TRY(cudaMemcpy(&ns, device_ns, sizeof ns, cudaMemcpyDeviceToHost));
    CUDA_TRY(cudaFree(device_ns));
    double us = (double)ns * 1e-3;
    report(run, "globaltimer_tick", &us, 1);
}

static bool open_helpers(Run *run)
{
    GemmSpec spec = { .m = 64, .n = 64, .k = 64, .type = GEMM_BF16, .use = "launch" };
    CUDA_TRY(cudaStreamCreateWithFlags(&other_stream, cudaStreamNonBlocking));
    CUDA_TRY(cudaEventCreateWithFlags(&ping, cudaEventDisableTiming));
    CUDA_TRY(cudaEventCreateWithFlags(&pong, cudaEventDisableTiming));
    CUDA_TRY(cudaMalloc((void **)&small_operands, 1 << 20));
    CUDA_TRY(
        kern_fill(small_operands, NUM_BF16, FILL_NORMAL, 1, 1 << 19, 1, run->bench.stream));
    lt_open(&lt);
    return lt_gemm_open(&small_gemm, &lt, &spec);
}

int part_launch(Run *run)
{
    bool has_gemm = open_helpers(run);
    host_cost(run, "launch_host", launches);
    gpu_cost(run, "kernel_back_to_back", one_empty);
    round_trip(run, "launch_and_wait", launches, 1);
    round_trip(run, "launch_rate", launches, 10000);
    kernel_floor(run);
    launch_to_flag(run);
    host_cost(run, "event_record_host", records);
    host_cost(run, "stream_wait_host", waits);
    host_cost(run, "memset_host", small_memsets);
    if (has_gemm)
        host_cost(run, "gemm_host", small_gemms);
    gpu_cost(run, "record_and_kernel", two_records);
    gpu_cost(run, "two_streams_round", there_and_back);
    graphs(run);
    timer_tick(run);
    return 0;
}

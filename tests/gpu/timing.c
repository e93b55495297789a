/*
 * timing.c - see timing.h for the one idea.
 */
#define _POSIX_C_SOURCE 199309L
#include "timing.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "gpu_try.h"

static const double GATE_MAX_US = 30000;

/* Long enough for an idle GPU to raise its clocks before anything is timed. */
static const double WAKE_US = 200000;

double host_now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double quantile(double *values, int n, double q)
{
    qsort(values, (size_t)n, sizeof *values, by_value);
    double at = q * (n - 1);
    int low = (int)at, high = low + 1 < n ? low + 1 : low;
    return values[low] + (at - low) * (values[high] - values[low]);
}

void bench_open(Bench *bench)
{
    *bench = (Bench){ 0 };
    CUDA_TRY(cudaStreamCreateWithFlags(&bench->stream, cudaStreamNonBlocking));
    CUDA_TRY(cudaEventCreate(&bench->start));
    CUDA_TRY(cudaEventCreate(&bench->stop));
    CUDA_TRY(cudaMalloc((void **)&bench->clock, sizeof *bench->clock));
    CUDA_TRY(kern_spin(WAKE_US, bench->stream));
    CUDA_TRY(cudaStreamSynchronize(bench->stream));
}

void bench_close(Bench *bench)
{
    CUDA_TRY(cudaStreamSynchronize(bench->stream));
    CUDA_TRY(cudaFree(bench->clock));
    CUDA_TRY(cudaEventDestroy(bench->stop));
    CUDA_TRY(cudaEventDestroy(bench->start));
    CUDA_TRY(cudaStreamDestroy(bench->stream));
}

static bool event_reached(cudaEvent_t event)
{
    cudaError_t rc = cudaEventQuery(event);
    if (rc == cudaErrorNotReady) {
        (void)cudaGetLastError(); /* "not ready" is an answer, not an error to find later */
        return false;
    }
    CUDA_TRY(rc);
    return true;
}

/* Time per call of one batch; *late says that the GPU did not have to wait for the host. */
static double sample(Bench *b, WorkLaunch *launch, void *self, int batch, double gate_us,
                     bool *late)
{
    float ms = 0;
    CUDA_TRY(kern_spin(gate_us, b->stream));
    CUDA_TRY(cudaEventRecord(b->start, b->stream));
    double begin_us = host_now_us();
    for (int i = 0; i < batch; i++)
        launch(self, b->calls++, b->stream);
    CUDA_TRY(cudaEventRecord(b->stop, b->stream));
    b->host_us = (host_now_us() - begin_us) / batch;
    *late = event_reached(b->start);
    CUDA_TRY(kern_clock_probe(b->clock, b->stream));
    CUDA_TRY(cudaStreamSynchronize(b->stream));
    CUDA_TRY(cudaEventElapsedTime(&ms, b->start, b->stop));
    return (double)ms * 1e3 / batch;
}

static double read_clock_mhz(const Bench *b)
{
    ClockReading r;
    CUDA_TRY(cudaMemcpy(&r, b->clock, sizeof r, cudaMemcpyDeviceToHost));
    return r.ns ? (double)r.cycles / (double)r.ns * 1e3 : 0;
}

static double gate_for(double host_us, int batch)
{
    return fmin(1.3 * host_us * batch + 20, GATE_MAX_US);
}

/* A sample behind a gate that held, in at most three tries. */
static double gated_sample(Bench *b, WorkLaunch *launch, void *self, int batch, double *gate_us,
                           bool *late)
{
    double us = 0;
    for (int tries = 0; tries < 3; tries++) {
        us = sample(b, launch, self, batch, *gate_us, late);
        /* Work much longer than its launch keeps the queue full without a gate. */
        if (*late && us > 4 * b->host_us)
            *late = false;
        if (!*late)
            break;
        *gate_us = fmin(fmax(2 * *gate_us, gate_for(b->host_us, batch)), GATE_MAX_US);
    }
    return us;
}

static int batch_for(double call_us, TimingPlan plan)
{
    int max = plan.batch_max < TIMING_BATCH_MAX ? plan.batch_max : TIMING_BATCH_MAX;
    double calls = call_us > 0 ? plan.sample_us / call_us : max;
    return calls < 1 ? 1 : calls > max ? max : (int)calls;
}

Timing bench_time(Bench *b, WorkLaunch *launch, void *self, TimingPlan plan)
{
    double us[TIMING_REPEATS_MAX];
    bool late = false;
    Timing t = { .repeats = plan.repeats };

    /* Once unseen, since it may load code; then to learn both times from. */
    (void)sample(b, launch, self, 1, 0, &late);
    double call_us = sample(b, launch, self, 1, 100, &late);
    if (call_us < 2000)
        call_us = sample(b, launch, self, 3, 200, &late);
    t.batch = batch_for(call_us, plan);

    double gate_us = gate_for(b->host_us, t.batch);
    for (int i = 0; i < t.repeats; i++) {
        us[i] = gated_sample(b, launch, self, t.batch, &gate_us, &late);
        t.host_bound |= late;
    }
    t.host_us = b->host_us;
    t.clock_mhz = read_clock_mhz(b);
    t.median_us = quantile(us, t.repeats, 0.5);
    t.min_us = us[0]; /* sorted now */
    t.p10_us = quantile(us, t.repeats, 0.1);
    t.p90_us = quantile(us, t.repeats, 0.9);
    return t;
}

void timing_keys(Row *row, const Timing *t)
{
    row_real(row, "time_us", t->median_us);
    row_real(row, "min_us", t->min_us);
    row_real(row, "p10_us", t->p10_us);
    row_real(row, "p90_us", t->p90_us);
    row_real(row, "spread", (t->p90_us - t->p10_us) / t->median_us);
    row_int(row, "repeats", t->repeats);
    row_int(row, "calls", t->batch);
    row_real(row, "host_us", t->host_us);
    row_real(row, "clock_mhz", t->clock_mhz > 0 ? t->clock_mhz : NAN);
    row_bool(row, "host_bound", t->host_bound);
}

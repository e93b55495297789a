/*
 * timing.h - how long something takes on the GPU.
 *
 * A sample is a batch of calls between two events, and the stream is held back by a
 * gate (a kernel that spins) until the host has enqueued the whole batch:
 *
 *     host    | gate | start | call call call ... call | stop |
 *     GPU     | gate spins ...........| start call call call ... call stop |
 *                                     '-- measured --------------------'
 *
 * so that short kernels are timed at the GPU's pace, not the host's.  Whether the gate
 * held is checked every time; if it did not, it is doubled and the sample repeated.
 * What is measured includes the gap between two kernels of one stream (about a
 * microsecond; the launch part measures it).
 *
 * The SM clock is read by a small kernel right behind the last sample.
 */
#ifndef GPU_TIMING_H
#define GPU_TIMING_H

#include <cuda_runtime.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels.h"
#include "row.h"

/* Enqueues call number `call` of the work; numbers rise, to rotate inputs by. */
typedef void WorkLaunch(void *self, uint64_t call, cudaStream_t stream);

typedef struct Bench {
    cudaStream_t stream;
    cudaEvent_t start, stop;
    ClockReading *clock; /* on the device */
    uint64_t calls;
    double host_us; /* of the last sample: enqueueing one call */
} Bench;

typedef struct TimingPlan {
    double sample_us; /* a sample lasts about so long ... */
    int batch_max;    /* ... unless it would take more calls than this */
    int repeats;      /* 3 to TIMING_REPEATS_MAX */
} TimingPlan;

enum { TIMING_REPEATS_MAX = 32, TIMING_BATCH_MAX = 250 };

/* Per call, over the samples. */
typedef struct Timing {
    double median_us, min_us, p10_us, p90_us;
    double host_us;
    double clock_mhz; /* 0 = unknown */
    int repeats, batch;
    bool host_bound; /* the gate could not be made long enough: not to be trusted */
} Timing;

static const TimingPlan TIMING_USUAL = { .sample_us = 2500, .batch_max = 250, .repeats = 7 };
static const TimingPlan TIMING_QUICK = { .sample_us = 1000, .batch_max = 100, .repeats = 3 };

void bench_open(Bench *bench); /* also wakes an idle GPU's clocks, 0.2 s */
void bench_close(Bench *bench);

Timing bench_time(Bench *bench, WorkLaunch *launch, void *self, TimingPlan plan);

/* time_us, min_us, p10_us, p90_us, spread, repeats, calls, host_us, clock_mhz, host_bound */
void timing_keys(Row *row, const Timing *timing);

/* Host time in microseconds (CLOCK_MONOTONIC). */
double host_now_us(void);

/* Sorts values, then reads the quantile q in [0, 1], interpolated. */
double quantile(double *values, int n, double q);

#endif

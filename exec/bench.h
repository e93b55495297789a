/*
 * bench.h - a kernel or a transfer by itself, on whatever backend there is.
 *
 *     an op of some graph, with its tensors --bench_kernel--> BenchKernel
 *     BenchPlan: so many of it on the compute lane, so many transfers on another
 *         --bench_graph--> Graph --program_make--> Program, the executor's own
 *         --bench_run--> times
 *
 * What is measured is what trains: the same kernels, streams and collectives, launched
 * by the same calls of exec/backend.h, so that CPU and CUDA share all of this.
 *
 * DATA are random, never zeros, and written anew where a kernel changes what it reads.
 * CACHE.  `copies` of all tensors take turns: with three times the last-level cache of them
 * every operand comes from memory ("cold"), with one it stays where it is ("warm").  A model that
 * a CPU trains in reasonable time finds much of itself in the caches: there warm is nearer to it.
 *
 * SAMPLES.  Where a backend times each task (the CPU's), a task is a sample, and what other
 * programs took away is left out as far as it can be seen: a kernel counts its processor time
 * when that is less than what the clock says.  On others a step is one: all its tasks back to
 * back, divided by their number.  The first step is a warm-up and does not count.
 *
 * RANKS all do the same at once; a time is the mean over them, of a transfer the slowest's.
 */
#ifndef LOCKSTEP_EXEC_BENCH_H
#define LOCKSTEP_EXEC_BENCH_H

#include "core/arena.h"
#include "exec/backend.h"

typedef struct BenchTensor {
    Tensor t; /* its name means nothing here */
    const char *name;
    Slot slot;
    uint32_t index; /* in the layout of the slot that bench_graph makes */
} BenchTensor;

typedef struct BenchArg {
    uint32_t tensor; /* BenchKernel.tensors */
    ArgMode mode;
} BenchArg;

typedef struct BenchKernel {
    Op op; /* its args, deps, group and lane mean nothing here */
    const char *name, *segment;
    BenchTensor *tensors;
    BenchArg *args;
    uint32_t tensors_n, args_n;
    uint64_t bytes; /* of all tensors */
    ModelFacts facts;
} BenchKernel;

typedef struct BenchTransfer {
    OpKind kind;    /* a collective, or OP_SEND: to the next rank, and from the one before */
    uint64_t bytes; /* as CommShape counts; rounded to what each rank has as much of */
} BenchTransfer;

typedef struct BenchPlan {
    const BenchKernel *kernel; /* NULL: transfers alone */
    uint32_t kernels_n, copies;
    const BenchTransfer *transfer; /* NULL: kernels alone */
    uint32_t transfers_n;
    uint32_t world_n;
} BenchPlan;

/* An op that stands in segment s of g, and what it touches; in arena.  False: by itself it has no
 * meaning (a part of a bucket, whose place in it other tensors say). */
bool bench_kernel(BenchKernel *k, Arena *arena, const Graph *g, const Segment *s, const Op *op,
                  const ModelFacts *facts);
bool bench_changes_inputs(const BenchKernel *k); /* NULL: no */
/* Copies of the kernel's tensors so that they fill `cache_bytes`; at most BENCH_COPIES_MAX. */
enum { BENCH_COPIES_MAX = 1024 };
uint32_t bench_copies(const BenchKernel *k, uint64_t cache_bytes);
/* What a rank holds of it: every shape's bytes that fit in one piece per rank. */
uint64_t bench_transfer_bytes(const BenchTransfer *t, uint32_t world_n);

void bench_graph(Graph *g, const BenchPlan *plan); /* sealed; graph_free */

/* Where it runs; the same on all ranks but for the rank. */
typedef struct BenchRank {
    const BackendType *type;
    const struct CudaOptions *cuda; /* NULL on the CPU */
    Fabric *fabric;
    uint32_t rank, world_n;
    bool each_task; /* the backend's times of single tasks can be believed */
} BenchRank;

/* A step is repeated until all is known: at least steps_min times, then until budget_ns. */
typedef struct BenchLimits {
    uint32_t steps_min, steps_max;
    double budget_ns;
} BenchLimits;

typedef struct BenchTimes {
    double median_ns;
    double p10_ns, p90_ns; /* core/quantile.h: a tenth of the samples is below, above */
    double taken; /* part of the time that other programs had the processor; NAN not known */
    uint32_t n;   /* samples of this rank */
} BenchTimes;

static inline double bench_spread(const BenchTimes *t)
{
    return t->median_ns > 0 ? (t->p90_ns - t->p10_ns) / t->median_ns : 0;
}

typedef struct BenchResult {
    BenchTimes kernel, transfer;
    double launch_ns; /* the host's time to launch a task; this rank's median */
    /* Of plans with both: kernels while a transfer ran, and transfers while a kernel did. */
    BenchTimes kernel_beside, transfer_beside;
} BenchResult;

/* All ranks together.  each_transfer: a transfer's own time, from when the last rank has come;
 * else all of them back to back, as nccl-tests has it. */
bool bench_run(BenchResult *out, const BenchRank *rank, const BenchPlan *plan,
               const BenchLimits *limits, bool each_transfer, Err *err);

/* Of samples, which get sorted. */
BenchTimes bench_times(double *x, uint32_t n);

#endif

/*
 * part_overlap.c - what a communication kernel costs the kernel beside it, and back.
 *
 * A hog of c blocks copies device memory on a stream of high priority, as NCCL's kernels
 * do: each block takes a whole SM (all of its shared memory; NCCL's blocks take its
 * registers) and its share of the bandwidth.  It starts first; the victim's batch is
 * timed beside it and stops it:
 *
 *     hog stream   | copy copy copy copy copy copy copy ... stopped |
 *     victim       | gate |start| victim victim victim |stop| stop the hog |
 *
 * Two speeds: "full", as fast as c blocks copy, and "paced" at HOG_PACED_GBPS a block
 * (read plus written), about what an all-reduce over NVLink moves: 24 channels that
 * carry 370 GB/s and touch memory three times a byte.
 */
#include <math.h>
#include <stdlib.h>

#include "gemm_case.h"
#include "gpu_try.h"
#include "memops.h"
#include "parts.h"

enum { BLOCKS_MAX = 32, REPEATS = 5 };
static const double HOG_PACED_GBPS = 46;
static const int BLOCKS[] = { 1, 2, 4, 8, 16, 24, 32 };
enum { SWEEP_N = sizeof BLOCKS / sizeof BLOCKS[0] };
static const uint64_t HOG_BLOCK_BYTES = (uint64_t)32 << 20;
static const double BATCH_US = 8000;

/* ---- victims ---- */

typedef struct Victim {
    char name[64];
    WorkLaunch *launch;
    void *self;
} Victim;

/* ---- the hog ---- */

typedef struct Hog {
    cudaStream_t stream;
    char *src, *dst;
    int *stop; /* on the device */
    HogReport *report;
    unsigned shared_bytes;
} Hog;

typedef struct HogSpeed {
    double GBps; /* read plus written, all blocks */
    double ns;   /* the longest any block ran */
} HogSpeed;

static void hog_open(Hog *hog, const Device *device, cudaStream_t fill)
{
    int least, greatest;
    uint64_t bytes = BLOCKS_MAX * HOG_BLOCK_BYTES;

    CUDA_TRY(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    CUDA_TRY(cudaStreamCreateWithPriority(&hog->stream, cudaStreamNonBlocking, greatest));
    CUDA_TRY(cudaMalloc((void **)&hog->src, bytes));
    CUDA_TRY(cudaMalloc((void **)&hog->dst, bytes));
    CUDA_TRY(cudaMalloc((void **)&hog->stop, sizeof *hog->stop));
    CUDA_TRY(cudaMalloc((void **)&hog->report, BLOCKS_MAX * sizeof *hog->report));
    CUDA_TRY(kern_fill(hog->src, NUM_BF16, FILL_NORMAL, 1, bytes / 2, 5, fill));
    CUDA_TRY(cudaStreamSynchronize(fill));
    /* Room for the 4 bytes of static shared memory: together exactly one SM's worth. */
    hog->shared_bytes = (unsigned)device->prop.sharedMemPerBlockOptin - 128;
}

static void hog_close(Hog *hog)
{
    CUDA_TRY(cudaFree(hog->report));
    CUDA_TRY(cudaFree(hog->stop));
    CUDA_TRY(cudaFree(hog->dst));
    CUDA_TRY(cudaFree(hog->src));
    CUDA_TRY(cudaStreamDestroy(hog->stream));
}

/* Runs until the flag is set, or for about 0.2 s. */
static void hog_start(const Hog *hog, int blocks, double block_GBps, cudaStream_t victim)
{
    HogArgs args = { .dst = hog->dst,
                     .src = hog->src,
                     .block_bytes = HOG_BLOCK_BYTES,
                     .block_GBps = block_GBps,
                     .cycles_max = 400000000,
                     .stop = hog->stop,
                     .report = hog->report,
                     .shared_bytes = hog->shared_bytes };
    CUDA_TRY(kern_set_flag(hog->stop, 0, victim));
    CUDA_TRY(cudaStreamSynchronize(victim));
    CUDA_TRY(kern_hog(&args, blocks, hog->stream));
}

static HogSpeed hog_speed(const Hog *hog, int blocks)
{
    HogReport report[BLOCKS_MAX];
    HogSpeed speed = { 0 };
    CUDA_TRY(cudaMemcpy(report, hog->report, (size_t)blocks * sizeof *report,
                        cudaMemcpyDeviceToHost));
    for (int i = 0; i < blocks; i++) {
        speed.GBps += report[i].ns ? (double)report[i].bytes / (double)report[i].ns : 0;
        speed.ns = fmax(speed.ns, (double)report[i].ns);
    }
    return speed;
}

/* ---- measuring ---- */

typedef struct Beside {
    double victim_us; /* per call */
    double hog_GBps;  /* while the victim ran */
    double wall_us;   /* of the batch */
} Beside;

/* The hog with nothing beside it but a kernel that spins for a while. */
static double hog_alone(Run *run, const Hog *hog, int blocks, double block_GBps)
{
    cudaStream_t stream = run->bench.stream;
    hog_start(hog, blocks, block_GBps, stream);
    CUDA_TRY(kern_spin(BATCH_US, stream));
    CUDA_TRY(kern_set_flag(hog->stop, 1, stream));
    CUDA_TRY(cudaDeviceSynchronize());
    return hog_speed(hog, blocks).GBps;
}

static Beside beside_once(Run *run, const Hog *hog, const Victim *v, int blocks,
                          double block_GBps, int batch, double host_us, double alone_GBps)
{
    Bench *b = &run->bench;
    float ms = 0;

    hog_start(hog, blocks, block_GBps, b->stream);
    CUDA_TRY(kern_spin(1.5 * host_us * batch + 50, b->stream));
    CUDA_TRY(cudaEventRecord(b->start, b->stream));
    for (int i = 0; i < batch; i++)
        v->launch(v->self, b->calls++, b->stream);
    CUDA_TRY(cudaEventRecord(b->stop, b->stream));
    CUDA_TRY(kern_set_flag(hog->stop, 1, b->stream));
    CUDA_TRY(cudaDeviceSynchronize());
    CUDA_TRY(cudaEventElapsedTime(&ms, b->start, b->stop));

    /* Before and after the batch the hog ran at its own speed: take those bytes out. */
    HogSpeed speed = hog_speed(hog, blocks);
    double wall_us = (double)ms * 1e3;
    double bytes = speed.GBps * speed.ns - alone_GBps * fmax(speed.ns - wall_us * 1e3, 0);
    return (Beside){ .victim_us = wall_us / batch,
                     .hog_GBps = fmax(bytes, 0) / (wall_us * 1e3),
                     .wall_us = wall_us };
}

static void write_row(Run *run, const Victim *v, int blocks, const char *speed, double alone_us,
                      const double *us, double hog_alone_GBps, double hog_GBps)
{
    double sorted[REPEATS];
    for (int i = 0; i < REPEATS; i++)
        sorted[i] = us[i];
    double median_us = quantile(sorted, REPEATS, 0.5);
    Row row;
    row_begin(&row, "overlap");
    row_text(&row, "kernel", v->name);
    row_int(&row, "blocks", blocks);
    row_text(&row, "speed", speed);
    row_real(&row, "alone_us", alone_us);
    row_real(&row, "time_us", median_us);
    row_real(&row, "slowdown", median_us / alone_us);
    row_real(&row, "spread", (sorted[REPEATS - 1] - sorted[0]) / median_us);
    row_real(&row, "hog_alone_GBps", hog_alone_GBps);
    row_real(&row, "hog_GBps", hog_GBps);
    row_end(&row, run->rows);
}

static void measure_beside(Run *run, const Hog *hog, const Victim *v, const Timing *alone,
                           int blocks, double block_GBps, double hog_alone_GBps)
{
    double us[REPEATS], GBps[REPEATS];
    int batch = (int)fmin(fmax(BATCH_US / alone->median_us, 2), TIMING_BATCH_MAX);

    for (int i = 0; i < REPEATS; i++) {
        Beside b =
            beside_once(run, hog, v, blocks, block_GBps, batch, alone->host_us, hog_alone_GBps);
        us[i] = b.victim_us;
        GBps[i] = b.hog_GBps;
    }
    write_row(run, v, blocks, block_GBps > 0 ? "paced" : "full", alone->median_us, us,
              hog_alone_GBps, quantile(GBps, REPEATS, 0.5));
    if (blocks == 24)
        printf("%-28s beside 24 blocks %-5s %.3f times as long, hog %.0f of %.0f GB/s\n",
               v->name, block_GBps > 0 ? "paced" : "full",
               quantile(us, REPEATS, 0.5) / alone->median_us, quantile(GBps, REPEATS, 0.5),
               hog_alone_GBps);
}

/* alone[speed][i]: of the hog, for BLOCKS[i]. */
static void sweep(Run *run, const Hog *hog, const Victim *v, double alone[2][SWEEP_N])
{
    const double speed[2] = { HOG_PACED_GBPS, 0 };
    TimingPlan plan = { .sample_us = BATCH_US,
                        .batch_max = TIMING_BATCH_MAX,
                        .repeats = REPEATS };
    Timing t = bench_time(&run->bench, v->launch, v->self, plan);
    double same[REPEATS];

    for (int i = 0; i < REPEATS; i++)
        same[i] = t.median_us;
    write_row(run, v, 0, "none", t.median_us, same, 0, 0);
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < SWEEP_N && run_has_time(run); i++)
            measure_beside(run, hog, v, &t, BLOCKS[i], speed[s], alone[s][i]);
}

static void sweep_gemm(Run *run, const Hog *hog, const Lt *lt, const GemmPools *pools,
                       const GemmSpec *spec, double alone[2][SWEEP_N])
{
    Victim v = { .launch = gemm_case_launch };
    GemmCase c;

    if (!gemm_case_open(&c, lt, pools, spec, &run->device))
        return;
    v.self = &c;
    snprintf(v.name, sizeof v.name, "gemm %s %lldx%lldx%lld", gemm_type_name(spec->type),
             (long long)spec->m, (long long)spec->n, (long long)spec->k);
    sweep(run, hog, &v, alone);
    gemm_case_close(&c);
}

static void sweep_memop(Run *run, const Hog *hog, const char *name, char *pool, void *scratch,
                        double alone[2][SWEEP_N])
{
    const MemOp *op = memop_named(name);
    MemShape shape = memop_shape_for(op, 4096, 256000000);
    Victim v = { .launch = memcase_launch };
    MemCase c;

    memcase_open(&c, op, shape, 2, pool, scratch, run->bench.stream);
    v.self = &c;
    snprintf(v.name, sizeof v.name, "%s", name);
    sweep(run, hog, &v, alone);
}

/* Layers of several models, and a product of exactly 132 tiles of 128 x 256. */
static const GemmSpec GEMMS[] = {
    { 8192, 4096, 4096, GEMM_BF16, LAYOUT_TN, false, false, "overlap" },
    { 1408, 3072, 4096, GEMM_BF16, LAYOUT_TN, false, false, "overlap" },
    { 8192, 14336, 4096, GEMM_BF16, LAYOUT_TN, false, false, "overlap" },
    { 8192, 4096, 14336, GEMM_BF16, LAYOUT_NN, false, false, "overlap" },
    { 4096, 4096, 8192, GEMM_BF16, LAYOUT_NT, false, false, "overlap" },
    { 8192, 3072, 768, GEMM_BF16, LAYOUT_TN, false, false, "overlap" },
};
static const char *const MEMORY[] = { "layernorm_fwd", "adamw_f32",     "gelu_fwd",
                                      "add",           "layernorm_bwd", "rmsnorm_fwd" };

int part_overlap(Run *run)
{
    const uint64_t pool_bytes = (uint64_t)1 << 30;
    double alone[2][SWEEP_N];
    GemmPools pools;
    void *scratch;
    Hog hog;
    Lt lt;

    hog_open(&hog, &run->device, run->bench.stream);
    lt_open(&lt);
    gemm_pools_open(&pools, pool_bytes, pool_bytes);
    gemm_pools_fill(&pools, NUM_BF16, run->bench.stream);
    CUDA_TRY(cudaMalloc(&scratch, KERN_SCRATCH_BYTES));
    for (int i = 0; i < SWEEP_N; i++) {
        alone[0][i] = hog_alone(run, &hog, BLOCKS[i], HOG_PACED_GBPS);
        alone[1][i] = hog_alone(run, &hog, BLOCKS[i], 0);
    }
    for (size_t i = 0; i < sizeof GEMMS / sizeof GEMMS[0]; i++)
        sweep_gemm(run, &hog, &lt, &pools, &GEMMS[i], alone);
    for (size_t i = 0; i < sizeof MEMORY / sizeof MEMORY[0]; i++)
        sweep_memop(run, &hog, MEMORY[i], pools.tall, scratch, alone);

    CUDA_TRY(cudaFree(scratch));
    gemm_pools_close(&pools);
    lt_close(&lt);
    hog_close(&hog);
    return 0;
}

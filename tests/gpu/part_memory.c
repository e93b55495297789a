/*
 * part_memory.c - how long the memory-bound kernels take, from 1 MB to 2 GB a call.
 *
 * bytes is what a call must move at least.  "cold" calls rotate through buffers larger
 * than the L2 cache; "warm" ones use the same small buffers again, as a kernel does that
 * follows the one which wrote them.
 */
#include "gpu_try.h"
#include "memops.h"
#include "parts.h"

typedef struct MemBench {
    Run *run;
    char *pool;
    uint64_t pool_bytes;
    void *scratch;
} MemBench;

static const uint64_t SIZES[] = { 1000000000, 64000000, 16000000,  4000000,
                                  256000000,  1000000,  2000000000 };
static const uint64_t WARM_MAX_BYTES = 16000000;

static void write_row(FILE *rows, const MemCase *c, const char *cache, const Timing *t)
{
    uint64_t bytes = memop_bytes(c->op, &c->shape);
    Row row;
    row_begin(&row, "memory");
    row_text(&row, "op", c->op->name);
    row_text(&row, "dtype", c->op->dtype);
    row_int(&row, "rows", c->shape.rows);
    row_int(&row, "cols", c->shape.cols);
    row_text(&row, "cache", cache);
    row_int(&row, "bytes", (int64_t)bytes);
    timing_keys(&row, t);
    row_real(&row, "GBps", (double)bytes / t->median_us * 1e-3);
    row_end(&row, rows);
}

static void measure(MemBench *mb, const MemOp *op, MemShape shape, bool cold)
{
    MemCase c;
    uint64_t set_bytes = memcase_set_bytes(op, &shape);
    if (set_bytes > mb->pool_bytes)
        return;
    uint64_t sets = device_sets_beyond_l2(&mb->run->device, set_bytes, mb->pool_bytes);
    memcase_open(&c, op, shape, cold ? sets : 1, mb->pool, mb->scratch, mb->run->bench.stream);
    Timing t = bench_time(&mb->run->bench, memcase_launch, &c, TIMING_USUAL);
    write_row(mb->run->rows, &c, cold ? "cold" : "warm", &t);
    if (shape.cols == op->cols[0] && cold &&
        memop_bytes(op, &shape) > SIZES[0] - SIZES[0] / 100 &&
        memop_bytes(op, &shape) < SIZES[0] + SIZES[0] / 100)
        printf("%-18s %8.1f us %8.1f GB/s\n", op->name, t.median_us,
               (double)memop_bytes(op, &shape) / t.median_us * 1e-3);
}

/* All ops at one size before the next size: a budget cut loses sizes, not ops. */
static void measure_size(MemBench *mb, uint64_t bytes)
{
    for (int i = 0; i < MEMOPS_N; i++)
        for (int j = 0; j < 3 && MEMOPS[i].cols[j]; j++) {
            MemShape shape = memop_shape_for(&MEMOPS[i], MEMOPS[i].cols[j], bytes);
            if (!run_has_time(mb->run))
                return;
            measure(mb, &MEMOPS[i], shape, true);
            if (bytes <= WARM_MAX_BYTES)
                measure(mb, &MEMOPS[i], shape, false);
        }
}

int part_memory(Run *run)
{
    MemBench mb = { .run = run, .pool_bytes = (uint64_t)3 << 30 };
    CUDA_TRY(cudaMalloc((void **)&mb.pool, mb.pool_bytes));
    CUDA_TRY(cudaMalloc(&mb.scratch, KERN_SCRATCH_BYTES));
    for (size_t i = 0; i < sizeof SIZES / sizeof SIZES[0]; i++)
        measure_size(&mb, SIZES[i]);
    if (!run_has_time(run))
        printf("the time was up before all sizes were measured\n");
    CUDA_TRY(cudaFree(mb.scratch));
    CUDA_TRY(cudaFree(mb.pool));
    return 0;
}

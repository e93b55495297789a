/*
 * cost_memory.c - kernels that only move bytes: norms, activations, sums, optimizers.
 *
 *     t = floor + bytes / (bandwidth * memory efficiency * part of the class)
 *
 * Where the file has rows of the class, the time of the row next below and above
 * in bytes is interpolated instead (log-log); past the last row its bandwidth holds.
 */
#include <math.h>

#include "sim/cost_parts.h"

MemoryKernel memory_kernel_of(const Op *op)
{
    bool backward = op_is_backward(op);
    switch (op->kind) {
    case OP_NORM:
    case OP_BATCHNORM:
        return backward ? MEMORY_NORM_BWD : MEMORY_NORM;
    case OP_ACTIVATION:
        return MEMORY_ACTIVATION;
    case OP_ADD:
    case OP_SCALE:
        return MEMORY_ADD;
    case OP_SOFTMAX:
    case OP_CROSS_ENTROPY:
        return MEMORY_SOFTMAX;
    case OP_COPY:
    case OP_CAST:
    case OP_FILL:
        return MEMORY_COPY;
    case OP_OPTIMIZER:
    case OP_GRAD_NORM:
        return MEMORY_OPTIMIZER;
    case OP_EMBEDDING:
        return MEMORY_EMBEDDING;
    default:
        return MEMORY_OTHER;
    }
}

/*
 * Bandwidth of the class over that of a stream copy.  From A100s, where a stream
 * reaches 0.834 of 2039 GB/s:
 *
 *   norm        0.58 Apex's (data/traces/megatron-tp8: 8192 x 4096 f16 in 136 us), 1.0
 *               PyTorch's (LLMCompass ae/figure5/de, slope of the two largest sizes)
 *   activation  0.92 both (megatron-tp8: gelu of 16.8 M elements in 43 us; figure5/g)
 *   add         1.05 (megatron-tp8: bias, dropout and add of 33.6 M elements in 113 us)
 *   softmax     0.74 both (megatron-tp8: 32 x 2048 x 2048 in 426 us; figure5/cf)
 *   embedding   0.20 (megatron-tp8: 8192 rows of 4096 in 410 us)
 *   other       0.55 (megatron-tp8: PyTorch's bias add of 12.6 M elements in 54 us)
 *
 * norm_bwd, copy and optimizer are judged: one pass more over the rows for the sums of
 * columns; a stream; a stream of many arrays.
 */
static const double class_part[MEMORY_KERNEL_N] = {
    [MEMORY_NORM] = 0.75,      [MEMORY_NORM_BWD] = 0.6,  [MEMORY_ACTIVATION] = 0.92,
    [MEMORY_ADD] = 1.0,        [MEMORY_SOFTMAX] = 0.74,  [MEMORY_COPY] = 1.0,
    [MEMORY_OPTIMIZER] = 0.95, [MEMORY_EMBEDDING] = 0.2, [MEMORY_OTHER] = 0.55,
};

/* Rows of one kernel are neighbours: [*first, *end). */
static void rows_of(const Gpu *gpu, MemoryKernel kernel, uint32_t *first, uint32_t *end)
{
    *first = 0;
    while (*first < gpu->memory_n && gpu->memory[*first].kernel < kernel)
        (*first)++;
    *end = *first;
    while (*end < gpu->memory_n && gpu->memory[*end].kernel == kernel)
        (*end)++;
}

static double between(const MemoryRow *a, const MemoryRow *b, double bytes)
{
    double la = log((double)a->bytes), lb = log((double)b->bytes);
    if (la == lb)
        return a->time_ns;
    double part = (log(bytes) - la) / (lb - la);
    return exp(log(a->time_ns) + part * (log(b->time_ns) - log(a->time_ns)));
}

static double table_ns(const MemoryRow *rows, uint32_t n, double bytes)
{
    uint32_t i = 0;
    while (i < n && (double)rows[i].bytes < bytes)
        i++;
    if (i == n)
        return rows[n - 1].time_ns * bytes / (double)rows[n - 1].bytes;
    if (i == 0)
        return rows[0].time_ns * bytes / (double)rows[0].bytes;
    return between(&rows[i - 1], &rows[i], bytes);
}

static double model_ns(const Gpu *gpu, MemoryKernel kernel, double bytes)
{
    double part = gpu->quantise ? class_part[kernel] : 1;
    return (double)gpu->kernel_floor_ns +
           bytes / (gpu->memory_bytes_per_ns * gpu->memory_efficiency * part);
}

double memory_ns(const Gpu *gpu, MemoryKernel kernel, double bytes)
{
    double model = model_ns(gpu, kernel, bytes);
    const Gpu *measured = gpu_of_rows(gpu, GPU_ROWS_MEMORY);
    uint32_t first, end;
    rows_of(gpu, kernel, &first, &end);
    if (first == end)
        return model;
    double ns = table_ns(gpu->memory + first, end - first, bytes);
    return measured == gpu ? ns : ns * model / model_ns(measured, kernel, bytes);
}

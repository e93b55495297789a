/*
 * gemm_case.c - see gemm_case.h.
 */
#include "gemm_case.h"

#include "gpu_try.h"
#include "kernels.h"

enum { ALIGN = 1024 };

void gemm_pools_open(GemmPools *pools, uint64_t in_bytes, uint64_t out_bytes)
{
    *pools = (GemmPools){ .in_bytes = in_bytes, .out_bytes = out_bytes };
    CUDA_TRY(cudaMalloc((void **)&pools->tall, in_bytes));
    CUDA_TRY(cudaMalloc((void **)&pools->wide, in_bytes));
    CUDA_TRY(cudaMalloc((void **)&pools->out, out_bytes));
}

void gemm_pools_close(GemmPools *pools)
{
    CUDA_TRY(cudaFree(pools->out));
    CUDA_TRY(cudaFree(pools->wide));
    CUDA_TRY(cudaFree(pools->tall));
    *pools = (GemmPools){ 0 };
}

void gemm_pools_fill(const GemmPools *pools, NumType type, cudaStream_t stream)
{
    uint64_t n = pools->in_bytes / num_bytes(type);
    CUDA_TRY(kern_fill(pools->tall, type, FILL_NORMAL, 1, n, 11, stream));
    CUDA_TRY(kern_fill(pools->wide, type, FILL_NORMAL, 1, n, 12, stream));
}

static uint64_t operand_bytes(int64_t rows, int64_t cols, NumType type)
{
    uint64_t bytes = (uint64_t)rows * (uint64_t)cols * num_bytes(type);
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static uint64_t at_most(uint64_t sets, uint64_t room)
{
    return sets < room ? sets : room;
}

bool gemm_case_open(GemmCase *c, const Lt *lt, const GemmPools *pools, const GemmSpec *s,
                    const Device *device)
{
    NumType in = gemm_in_type(s->type), out = gemm_out_type(s);
    *c = (GemmCase){ .lt = lt,
                     .pools = pools,
                     .tall_bytes = operand_bytes(s->m, s->k, in),
                     .wide_bytes = operand_bytes(s->n, s->k, in),
                     .out_bytes = operand_bytes(s->m, s->n, out) };
    if (c->tall_bytes > pools->in_bytes || c->wide_bytes > pools->in_bytes ||
        c->out_bytes > pools->out_bytes || !lt_gemm_open(&c->gemm, lt, s))
        return false;

    uint64_t sets =
        device_sets_beyond_l2(device, c->tall_bytes + c->wide_bytes + c->out_bytes, UINT64_MAX);
    c->tall_sets = at_most(sets, pools->in_bytes / c->tall_bytes);
    c->wide_sets = at_most(sets, pools->in_bytes / c->wide_bytes);
    c->out_sets = at_most(sets, pools->out_bytes / c->out_bytes);
    return true;
}

void gemm_case_close(GemmCase *c)
{
    lt_gemm_close(&c->gemm);
    *c = (GemmCase){ 0 };
}

void gemm_case_launch(void *self, uint64_t call, cudaStream_t stream)
{
    const GemmCase *c = self;
    lt_gemm_run(&c->gemm, c->lt, c->algo, c->pools->tall + call % c->tall_sets * c->tall_bytes,
                c->pools->wide + call % c->wide_sets * c->wide_bytes,
                c->pools->out + call % c->out_sets * c->out_bytes, stream);
}

/*
 * gemm_case.h - one matrix product with operands that rotate through pools.
 *
 * Call i uses the i-th copy of each operand, and there are so many copies that together
 * they outgrow the L2 cache threefold (or as many as the pools hold): every call finds
 * its inputs in device memory.  The owner of the pools fills them.
 */
#ifndef GPU_GEMM_CASE_H
#define GPU_GEMM_CASE_H

#include "device.h"
#include "lt.h"

typedef struct GemmPools {
    char *tall, *wide, *out;
    uint64_t in_bytes, out_bytes; /* of tall and of wide; of out */
} GemmPools;

typedef struct GemmCase {
    const Lt *lt;
    const GemmPools *pools;
    LtGemm gemm;
    int algo;                                   /* 0: the library's first choice */
    uint64_t tall_bytes, wide_bytes, out_bytes; /* of one copy, rounded up */
    uint64_t tall_sets, wide_sets, out_sets;
} GemmCase;

void gemm_pools_open(GemmPools *pools, uint64_t in_bytes, uint64_t out_bytes);
void gemm_pools_close(GemmPools *pools);

/* Random numbers of one type in tall and wide. */
void gemm_pools_fill(const GemmPools *pools, NumType type, cudaStream_t stream);

/* false: it does not fit the pools, or the library cannot do it.  Borrows lt and pools. */
bool gemm_case_open(GemmCase *c, const Lt *lt, const GemmPools *pools, const GemmSpec *spec,
                    const Device *device);
void gemm_case_close(GemmCase *c);

/* A WorkLaunch over a GemmCase. */
void gemm_case_launch(void *self, uint64_t call, cudaStream_t stream);

#endif

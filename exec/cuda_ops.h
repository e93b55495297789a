/*
 * cuda_ops.h - tasks of a program as launches on a stream.
 *
 *     plan     every task once, without a device: what scratch it needs, what tables of
 *              addresses its kernels read (many tensors in one launch)
 *     launch   the same functions, on a stream
 *
 * What changes from step to step (rates of the optimizer, the loss) lies in device memory, so
 * that a captured step can be played again.  Nothing here calls the CUDA runtime: the kernels
 * are reached through exec/cuda_kernels.h, products through exec/cuda_gemm.h.
 */
#ifndef LOCKSTEP_EXEC_CUDA_OPS_H
#define LOCKSTEP_EXEC_CUDA_OPS_H

#include "exec/cuda_gemm.h"
#include "exec/kernel.h"

/* Tables of all tasks, one after another; made by planning, then copied to the device. */
typedef struct CudaTables {
    uint32_t *first; /* by task: its place in rows; NONE_U32: it has none */
    uint32_t rows_n, rows_cap;
    Slice *rows;
    Slice *device;
} CudaTables;

typedef struct CudaEnv {
    uint8_t *arena; /* on the device */
    ModelFacts facts;
    Hyper hyper;
    uint64_t (*norm_counts)(const void *owners, const Buffer *grad); /* as in KernelEnv */
    const void *norm_owners;
    const Rates *rates; /* device: cuda_rates, by optimizer */
    double *loss;       /* device: terms are added here */
    void *stream;       /* cudaStream_t */
    CudaGemm *gemm;
    CudaTables *tables;
    uint8_t *scratch; /* device; of this stream */
    uint64_t scratch_bytes, used_bytes;
    bool planning;
    Err *err; /* of the launch at work */
    bool failed;
} CudaEnv;

typedef void CudaLaunch(CudaEnv *env, const Program *p, const Task *t);
extern CudaLaunch *const cuda_launches[OP_KIND_N];

/* One table of rates: of FN_SGD + i; step: optimizer steps done before. */
enum { CUDA_RATES_N = 4 };
void cuda_rates(const Hyper *h, uint64_t step, Rates rates[CUDA_RATES_N]);

/* Plans all tasks of a program; scratch_bytes: what tasks of each lane need most.
 * env: arena, facts, hyper, norm_counts, tables.  False: a size that no kernel has. */
bool cuda_plan(CudaEnv *env, const Program *p, uint64_t scratch_bytes[LANE_N], Err *err);
void cuda_tables_free(CudaTables *t);

/* Launches one task that is computed (not a transfer, copy from the host or release). */
bool cuda_launch(CudaEnv *env, const Program *p, const Task *t, Err *err);

#endif

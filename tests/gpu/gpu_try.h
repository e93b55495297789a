/*
 * gpu_try.h - device calls as lines that can fail.
 *
 * A part of the measurement is a process.  Its first failing call ends it with
 * one sentence and exit 1; the rows it has written by then stay, and run.sh goes
 * on with the next part.  So nothing here unwinds.
 */
#ifndef GPU_TRY_H
#define GPU_TRY_H

#include <cublasLt.h>
#include <cuda_runtime.h>
#include <stdio.h>

/* No usable GPU: the word of automake and git's tests for "skipped". */
#define EXIT_NO_GPU 77

_Noreturn void try_failed(const char *call, const char *why, int code, const char *file,
                          int line);

/* malloc that does not come back empty-handed; the product is checked. */
void *try_alloc(size_t n, size_t size);

#define CUDA_TRY(call) \
    do { \
        cudaError_t cuda_rc_ = (call); \
        if (cuda_rc_ != cudaSuccess) \
            try_failed(#call, cudaGetErrorString(cuda_rc_), (int)cuda_rc_, __FILE__, \
                       __LINE__); \
    } while (0)

#define LT_TRY(call) \
    do { \
        cublasStatus_t lt_rc_ = (call); \
        if (lt_rc_ != CUBLAS_STATUS_SUCCESS) \
            try_failed(#call, cublasLtGetStatusString(lt_rc_), (int)lt_rc_, __FILE__, \
                       __LINE__); \
    } while (0)

#endif

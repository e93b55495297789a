/*
 * cuda_comm_kernel.h - the copy and the sum of exec/cuda_comm_moves.h as kernels.
 *
 * For C and for CUDA C.  A kernel takes few blocks, as NCCL's do: the rest of the GPU is
 * for what runs beside it.
 */
#ifndef LOCKSTEP_EXEC_CUDA_COMM_KERNEL_H
#define LOCKSTEP_EXEC_CUDA_COMM_KERNEL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

enum { COMM_SOURCES_MAX = 64, COMM_BLOCKS_MAX = 24, COMM_THREADS = 512 };

typedef enum CommNumber {
    COMM_BYTE, /* copies only */
    COMM_F32,
    COMM_F16,
    COMM_BF16,
    COMM_I32,
    COMM_I64
} CommNumber;

/* to[i] = from[0][i] + from[1][i] + ..., in that order, in f32 for floats, rounded once to
 * nearest even; integers wrap.  maximum: the largest.  `to` may be one of `from`. */
typedef struct CommSum {
    CommNumber number;
    int maximum;
    uint32_t from_n;
    uint64_t elements;
    void *to;
    const void *from[COMM_SOURCES_MAX];
} CommSum;

/* Both return a cudaError_t. */
int comm_copy_launch(void *to, const void *from, uint64_t bytes, struct CUstream_st *stream);
int comm_sum_launch(const CommSum *sum, struct CUstream_st *stream);
/* Loads the kernels, so that no launch has to wait for the device later. */
int comm_kernels_load(void);

#ifdef __cplusplus
}
#endif

#endif

/*
 * cuda_gemm.h - matrix products on a stream, by cuBLASLt.
 *
 *     C[m][n] = alpha op(A)[m][k] op(B)[k][n] + beta C     row-major, `batch` of them
 *
 * A product is looked up by its shape, types, alignment and epilogue; the algorithm that
 * cuBLASLt's heuristic puts first is kept.  What it cannot do (an epilogue in some type, say)
 * is known before it is asked to: cuda_gemm_can.
 *
 * EPILOGUES.  bias: a row, added to each row of C before the activation.  GELU is the one with
 * tanh; `before` gets what it was given.  sums: m sums over the k rows of A, which is stored
 * [k][m] (turn_a): the bias gradient beside a weight's.
 */
#ifndef LOCKSTEP_EXEC_CUDA_GEMM_H
#define LOCKSTEP_EXEC_CUDA_GEMM_H

#include "core/err.h"
#include "exec/cuda_kernels.h"

typedef enum GemmEpilogue { GEMM_PLAIN, GEMM_GELU_TANH, GEMM_RELU } GemmEpilogue;

typedef struct Matrix {
    Vec v;
    uint64_t stride; /* from row to row as stored, in numbers */
    uint64_t step;   /* to the next one of the batch */
} Matrix;

typedef struct Product {
    uint64_t m, n, k, batch;
    bool turn_a, turn_b; /* A is stored [k][m], B [n][k] */
    bool tf32;           /* f32 numbers by tf32 products */
    Matrix a, b, c;
    float alpha, beta;
    GemmEpilogue epilogue;
    Vec bias, before, sums; /* or NULL */
} Product;

typedef struct CudaGemm CudaGemm;

/* workspace: device memory; products of one CudaGemm run on one stream. */
bool cuda_gemm_open(CudaGemm **g, void *workspace, uint64_t workspace_bytes, Err *err);
void cuda_gemm_close(CudaGemm *g); /* NULL is fine */
/* Is there an algorithm?  Launches nothing. */
bool cuda_gemm_can(CudaGemm *g, const Product *p);
bool cuda_gemm(CudaGemm *g, const Product *p, void *stream, Err *err);

#endif

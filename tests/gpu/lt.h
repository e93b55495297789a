/*
 * lt.h - one matrix product, row-major outside, cuBLASLt inside.
 *
 * Y[m][n] = sum over k, everything row-major: m rows (tokens, for a forward pass),
 * n the width of the output, k what is summed.  cuBLASLt counts by columns, so it is
 * asked for the transpose: its first operand is the one that has n ("wide"), its second
 * the one that has m ("tall"):
 *
 *     layout  tall operand  wide operand  the linear layer y = x W^T, W[out][in]
 *     TN      [m][k]        [n][k]        forward  m tokens, n out, k in
 *     NN      [m][k]        [k][n]        dgrad    m tokens, n in,  k out
 *     NT      [k][m]        [k][n]        wgrad    m out,    n in,  k tokens
 *
 * accumulate: the output is f32 and the product is added to it (beta = 1), as
 * Megatron's fused weight gradients do.
 *
 * fp8 has TN alone on Hopper and Ada: who runs dgrad and wgrad in fp8 transposes first, and `use`
 * says which of the three it is.  promoted: its partial sums leave the tensor cores, which have
 * some 14 bits, every 128 of k to be added in f32.  Transformer Engine (use_split_accumulator) and
 * torchao (use_fast_accum) have that in backward and not in forward; it is slower.
 */
#ifndef GPU_LT_H
#define GPU_LT_H

#include <cublasLt.h>
#include <cuda_runtime.h>
#include <stdbool.h>
#include <stdint.h>

#include "numbers.h"

typedef enum GemmType { GEMM_BF16, GEMM_F16, GEMM_TF32, GEMM_F32, GEMM_FP8 } GemmType;
typedef enum GemmLayout { LAYOUT_TN, LAYOUT_NN, LAYOUT_NT } GemmLayout;

typedef struct GemmSpec {
    int64_t m, n, k;
    GemmType type;
    GemmLayout layout;
    bool accumulate;
    bool promoted;   /* of fp8 only */
    const char *use; /* "fwd", "square" ...: carried along */
} GemmSpec;

enum { LT_ALGOS_MAX = 4 };

/* What PyTorch gives cuBLAS on Hopper. */
#define LT_WORKSPACE_BYTES ((size_t)32 << 20)

typedef struct Lt {
    cublasLtHandle_t handle;
    void *workspace;
} Lt;

typedef struct LtGemm {
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t wide, tall, out;
    cublasLtMatmulHeuristicResult_t algo[LT_ALGOS_MAX]; /* the library's order of merit */
    int algos_n;
    float beta;
} LtGemm;

const char *gemm_type_name(GemmType type);
const char *gemm_layout_name(GemmLayout layout);
NumType gemm_in_type(GemmType type);
NumType gemm_out_type(const GemmSpec *spec);
const char *num_name(NumType type);

void lt_open(Lt *lt);
void lt_close(Lt *lt);

/* false: the library has no algorithm for this product; g is empty then. */
bool lt_gemm_open(LtGemm *g, const Lt *lt, const GemmSpec *spec);
void lt_gemm_close(LtGemm *g);

void lt_gemm_run(const LtGemm *g, const Lt *lt, int algo, const void *tall, const void *wide,
                 void *out, cudaStream_t stream);

/* The chosen tile (an id of cublasLt.h), or 0 where the algorithm does not say. */
int lt_tile_id(const LtGemm *g, int algo);
int lt_split_k(const LtGemm *g, int algo);

#endif

/*
 * kernel_parts.h - what the files of kernels share; nobody else includes it.
 *
 * A kernel sees f32 only.  call_open lays every floating argument out as f32: where
 * it lies if it is f32, else widened in scratch; call_close rounds what was written
 * back.  Kernels on whole parameters (optimizer, copies) would need too much scratch
 * for that and go through them in chunks of CHUNK numbers instead.
 */
#ifndef LOCKSTEP_EXEC_KERNEL_PARTS_H
#define LOCKSTEP_EXEC_KERNEL_PARTS_H

#include "exec/kernel_args.h"
#include "exec/number.h"

/* ---- calls ---- */

enum { CALL_ARGS_MAX = 12 };

typedef struct Call {
    KernelEnv *env;
    const Program *p;
    const Task *t;
    const Op *op;
    const Buffer *b; /* the arguments */
    uint32_t n;
    float *x[CALL_ARGS_MAX]; /* by argument; NULL for integers */
    void *extra;             /* scratch of the kernel's own, 64-byte aligned */
} Call;

/* Opens a call with extra_bytes of scratch.  CALL_PARTLY: what is written is written in part. */
typedef enum CallWrites { CALL_WHOLLY, CALL_PARTLY } CallWrites;
Call call_open(KernelEnv *env, const Program *p, const Task *t, CallWrites writes,
               uint64_t extra_bytes);
void call_close(Call *c);

static inline uint8_t *buffer_data(const KernelEnv *env, const Buffer *b)
{
    return env->arena + b->offset;
}
static inline const int64_t *buffer_i64(const KernelEnv *env, const Buffer *b)
{
    ASSERT(b->dtype == DTYPE_I64);
    return (const int64_t *)(const void *)(env->arena + b->offset);
}
/* x as if it had been stored in t and read again. */
void round_to(DType t, float *x, uint64_t n);
/* sums[c] += x[r][c] over r, in order. */
void sum_rows(double *sums, const float *x, uint64_t rows, uint64_t columns);
/* y = sums, or y += sums (ARG_UPDATE). */
void put_sums(float *y, const double *sums, uint64_t n, uint8_t mode);

/* ---- rows ---- */

double row_sum(const float *x, uint64_t n);
double row_squares(const float *x, double mean, uint64_t n); /* of what differs from the mean */
double row_dot(const float *a, const float *b, uint64_t n);
float row_max(const float *x, uint64_t n); /* -INFINITY of none */
/* x = exp(x - less) by */
void row_exp(float *x, float less, float by, uint64_t n);
double row_sum_of_exp(const float *x, float less, uint64_t n);

/* ---- chunks: numbers [at, at + n) of a buffer ---- */

enum { CHUNK = 2048 };

/* Where they lie, or widened into temp. */
const float *chunk_read(const KernelEnv *env, const Buffer *b, uint64_t at, uint64_t n,
                        float *temp);
/* Where to write them; then chunk_written. */
float *chunk_place(const KernelEnv *env, const Buffer *b, uint64_t at, uint64_t n, float *temp);
void chunk_written(const KernelEnv *env, const Buffer *b, uint64_t at, uint64_t n,
                   const float *temp);

/* ---- functions that several files need ---- */

/* In place, row by row of `columns`; fn: FN_GELU, FN_RELU, FN_RELU2 or FN_SILU. */
void activate(const KernelEnv *env, OpFn fn, const float *x, float *y, uint64_t n);

typedef struct Gemm {
    bool transpose_a, transpose_b; /* as stored, row-major */
    uint64_t m, n, k;
    const float *a;
    uint64_t lda;
    const float *b;
    uint64_t ldb;
    float *c;
    uint64_t ldc;
    float alpha, beta;
} Gemm;
/* C = alpha A B + beta C */
void gemm(const Gemm *g);
/* y += alpha x */
void axpy(float alpha, const float *x, float *y, uint64_t n);

void attention_matmul(KernelEnv *env, const Program *p, const Task *t);

/* ---- the kernels ---- */

void kernel_matmul(KernelEnv *env, const Program *p, const Task *t);
void kernel_attention(KernelEnv *env, const Program *p, const Task *t);
void kernel_softmax(KernelEnv *env, const Program *p, const Task *t);
void kernel_norm(KernelEnv *env, const Program *p, const Task *t);
void kernel_batchnorm(KernelEnv *env, const Program *p, const Task *t);
void kernel_activation(KernelEnv *env, const Program *p, const Task *t);
void kernel_add(KernelEnv *env, const Program *p, const Task *t);
void kernel_bias(KernelEnv *env, const Program *p, const Task *t);
void kernel_rope(KernelEnv *env, const Program *p, const Task *t);
void kernel_fill(KernelEnv *env, const Program *p, const Task *t);
void kernel_copy(KernelEnv *env, const Program *p, const Task *t);
void kernel_embedding(KernelEnv *env, const Program *p, const Task *t);
void kernel_cross_entropy(KernelEnv *env, const Program *p, const Task *t);
void kernel_mse(KernelEnv *env, const Program *p, const Task *t);
void kernel_optimizer(KernelEnv *env, const Program *p, const Task *t);
void kernel_grad_norm(KernelEnv *env, const Program *p, const Task *t);
void kernel_scale(KernelEnv *env, const Program *p, const Task *t);

#endif

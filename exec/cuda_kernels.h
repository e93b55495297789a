/*
 * cuda_kernels.h - the CUDA kernels as C sees them: functions that put one on a stream.
 *
 * They know neither ops nor programs, only arrays in device memory: exec/backend_cuda_ops.c
 * turns tasks into these calls.  All of them return at once; whether a launch went well is
 * asked of the runtime afterwards.  Storage is f32, f16 or bf16, by array; arithmetic is f32,
 * and what is stored is rounded to nearest even once.  Nothing here adds with atomics: equal
 * arguments give equal bits.
 *
 * Conventions (gelu, targets, sums of losses, ...) are those of exec/kernel.h.  `stream` is a
 * cudaStream_t; scratch is device memory of the stream's own.
 *
 * The kernels also compile as plain C++, with a stand-in for the device (tests/on_cpu/), which
 * is how their arithmetic is tested where there is no GPU.
 */
#ifndef LOCKSTEP_EXEC_CUDA_KERNELS_H
#define LOCKSTEP_EXEC_CUDA_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "exec/kernel_numbers.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum NumType { NUM_F32, NUM_F16, NUM_BF16 } NumType;

/* Numbers in device memory, aligned to their own size; at NULL: there is no such argument. */
typedef struct Vec {
    void *at;
    NumType type;
} Vec;

typedef enum CurveKind {
    CURVE_GELU, /* erf */
    CURVE_GELU_TANH,
    CURVE_RELU,
    CURVE_RELU2,
    CURVE_SILU
} CurveKind;

/* ---- pointwise (cuda_pointwise.cu) ---- */

void cuda_add(Vec x, Vec r, Vec b, Vec y, uint64_t n, uint64_t columns, void *stream);
/* y += b by row */
void cuda_bias(Vec y, Vec b, uint64_t rows, uint64_t columns, void *stream);
/* y = x, in y's type */
void cuda_cast(Vec x, Vec y, uint64_t n, void *stream);
/* y[rows][columns] = curve(x [+ b]); gated: x has rows of gate and up side by side. */
typedef struct Activation {
    CurveKind curve;
    bool gated;
    uint64_t rows, columns; /* of y */
} Activation;
void cuda_activation(Activation a, Vec x, Vec b, Vec y, void *stream);
void cuda_activation_back(Activation a, Vec dy, Vec x, Vec dx, void *stream);

/* y (+)= sums over rows of x.  scratch: cuda_sums_scratch floats. */
uint64_t cuda_sums_scratch(uint64_t rows, uint64_t columns);
void cuda_column_sums(Vec x, uint64_t rows, uint64_t columns, Vec y, bool adds, float *scratch,
                      void *stream);

/* The first `heads` heads of each row are turned; sign -1 turns back. */
typedef struct Rope {
    uint64_t rows, stride;
    uint32_t heads, width, seq_len, position_first;
    float sign;
    double theta;
} Rope;
void cuda_rope(Rope r, Vec x, void *stream);

/* ---- many tensors in one launch (cuda_update.cu) ---- */

/* One slice of work, on equally long arrays; which of them are used the kernel says. */
typedef struct Slice {
    Vec a, b;              /* copy, add: from, to.  Else: gradient, parameter */
    float *m, *v, *master; /* optimizer state, or NULL */
    uint64_t n;
    uint64_t blocks_before; /* of the slices before this one: cuda_slices_count sets it */
} Slice;

/* Slices in device memory. */
typedef struct Slices {
    const Slice *at;
    uint32_t n;
    uint32_t blocks; /* in all */
} Slices;

/* Fills blocks_before; returns the blocks in all. */
uint32_t cuda_slices_count(Slice *slices, uint32_t n);

void cuda_fill(Slices p, void *stream); /* a: zeros */
void cuda_copy(Slices p, void *stream); /* b = a */
void cuda_sum(Slices p, void *stream);  /* b += a */

/* sum += squares of all a; scratch: a double for each block.  sum: one number. */
void cuda_squares(Slices p, Vec sum, double *scratch, void *stream);
/* a *= min(1, most/(sqrt(sum) + 1e-6)) */
void cuda_clip(Slices p, Vec sum, float most, void *stream);

typedef enum Rule { RULE_SGD, RULE_MOMENTUM, RULE_ADAM } Rule;
/* rates: in device memory, so that a captured step can be played again. */
void cuda_update(Slices p, Rule rule, const Rates *rates, void *stream);

/* ---- norms (cuda_norm.cu) ---- */

/*
 * Vectors [first, first + n) of the `vectors` that a row holds side by side, each normed by
 * itself.  Of x (and r, y, ...) a row begins every stride numbers.
 */
typedef struct Norm {
    uint64_t rows, width;
    uint32_t vectors, first, n;
    uint64_t x_stride, stride; /* of x (backward: and dx); of all others */
    uint64_t dx_stride;
    bool rms;
    float eps;
} Norm;
enum { NORM_WIDTH_MAX = 65536 };

/* sum = x + r (+ b), rounded as `x` is stored, where r is given; y = norm of it.  sum may be
 * NULL. */
typedef struct NormArgs {
    Vec x, r, b, gain, shift, sum, y, stats;
} NormArgs;
void cuda_norm(Norm s, NormArgs a, void *stream);

typedef struct NormBackArgs {
    Vec dy, x, stats, gain, ds, dx;
    Vec dgain, dshift; /* may be NULL */
    bool gain_adds, shift_adds;
    float *scratch; /* cuda_norm_scratch floats */
} NormBackArgs;
uint64_t cuda_norm_scratch(Norm s);
void cuda_norm_back(Norm s, NormBackArgs a, void *stream);

typedef struct BatchNorm {
    uint64_t rows, columns;
    uint64_t ranks; /* whose samples share the statistics */
    double eps;
} BatchNorm;
/* Means and variances of the columns, then (count: one more number) the number of rows. */
void cuda_batch_measure(BatchNorm s, Vec x, Vec stats, bool count, void *stream);
/* Those of all ranks, a row of 2 columns + 1 each, into stats. */
void cuda_batch_combine(BatchNorm s, Vec all, Vec stats, void *stream);
/* Variances in stats become 1/deviations; y = gain (x - mean)/deviation + shift. */
void cuda_batch_norm(BatchNorm s, Vec x, Vec stats, Vec gain, Vec shift, Vec y, void *stream);
/* sums: of dy xhat, then of dy, by column; added or put into dgain and dshift as well. */
void cuda_batch_sums(BatchNorm s, Vec dy, Vec x, Vec stats, Vec sums, Vec dgain, bool gain_adds,
                     Vec dshift, bool shift_adds, void *stream);
void cuda_batch_dx(BatchNorm s, Vec dy, Vec x, Vec stats, Vec gain, Vec sums, Vec dx,
                   void *stream);

/* ---- both ends of the network (cuda_loss.cu) ---- */

typedef struct Table {
    uint64_t rows, columns; /* of y; columns: width of a row of the table */
    uint64_t table_rows;
    int64_t first;    /* row r of the table is that of number first + r */
    uint32_t seq_len; /* of rows that are found by position */
    uint64_t row_first, position_first;
    bool by_place, same_row; /* no tokens: row of the position; row 0 for all */
} Table;
void cuda_embed(Table t, const int64_t *tokens, Vec table, Vec y, void *stream);
/* scratch: cuda_embed_scratch integers */
uint64_t cuda_embed_scratch(Table t);
void cuda_embed_back(Table t, Vec dy, const int64_t *tokens, Vec dtable, bool adds,
                     int32_t *scratch, void *stream);

/* What a loss adds up: *sum += terms/copies; value = terms/count. */
typedef struct LossSum {
    double *sum;
    Vec value;
    double copies, count;
} LossSum;
enum { MSE_BLOCKS = 256 };
/* scratch: MSE_BLOCKS doubles */
void cuda_mse(Vec x, Vec target, uint64_t n, LossSum loss, double *scratch, void *stream);
void cuda_mse_back(Vec x, Vec target, Vec dx, uint64_t n, float by, void *stream);

/* x becomes its gradient; scratch: a double for each row. */
void cuda_cross_entropy(Logits l, Vec x, const int64_t *targets, LossSum loss, double *scratch,
                        void *stream);
void cuda_logits_maximum(Logits l, Vec x, Vec maximum, void *stream);
void cuda_logits_sums(Logits l, Vec x, const int64_t *targets, Vec maximum, Vec sums,
                      void *stream);
void cuda_logits_back(Logits l, Vec x, const int64_t *targets, Vec maximum, Vec sums,
                      LossSum loss, double *scratch, void *stream);

/* ---- attention (cuda_attention.cu, cuda_attention_mma.cu) ---- */

/* Of all heads: head h of row r begins at element r * stride + h * width. */
typedef struct Side {
    void *at;
    uint64_t stride;
} Side;

typedef struct Attention {
    NumType type; /* of all sides */
    uint32_t batch, heads, kv_heads, width;
    uint32_t queries, keys; /* of one sample */
    uint32_t chunk;         /* keys that lie together, as in exec/kernels_attention.c */
    uint32_t position;      /* of the first query */
    uint32_t window;        /* 0: none */
    bool causal;
    float scale;
    Side q, k, v, y; /* y: the output, also in backward */
    float *lse;      /* [row][head] */
    Side dy, dq, dk, dv;
    float *along; /* backward: scratch, a number for each row and head */
} Attention;
enum {
    ATTENTION_WIDTH_MAX = 512,
    ATTENTION_BATCH_MAX = 65535 /* blocks in z, or y, of a grid (CUDA Programming Guide) */
};

void cuda_attention(const Attention *a, void *stream);
void cuda_attention_back(const Attention *a, void *stream);
/* The two on tensor cores: widths 64 and 128, f16 and bf16, 16-byte aligned rows. */
bool cuda_attention_has_mma(const Attention *a, bool backward);
void cuda_attention_mma(const Attention *a, void *stream);
void cuda_attention_mma_back(const Attention *a, void *stream);

/* Unfused: rows r of `keys` scores; row r belongs to query r % queries. */
typedef struct Softmax {
    uint64_t rows;
    uint32_t queries, keys, position, window;
    bool causal;
    float scale;
} Softmax;
void cuda_softmax(Softmax s, Vec x, Vec y, void *stream);
void cuda_softmax_back(Softmax s, Vec dy, Vec y, void *stream); /* in place of dy */

#ifdef __cplusplus
}
#endif

#endif

/*
 * kernel.h - the CPU's kernels: one function per op kind, on buffers of an arena.
 *
 * Arguments come in the order of sim/lower.h.  Matrices are row-major.  Arithmetic
 * is f32 (sums that decide numerics in f64, always in the same order): an argument
 * in f16 or bf16 is widened before and rounded to nearest even after, so these
 * kernels are the reference for those of every other backend.  Equal arguments give
 * equal bits, on every run and every rank.
 *
 * The matmuls, and the update of plain SGD, are OpenBLAS's, on one thread; it is loaded by
 * kernels_check when a program has such, never linked, so that nothing else pays for it.
 *
 *     f = cpu_kernels[op->kind];   NULL: communication, h2d, waits and releases
 *     f(&kernel_env, program, task);
 *
 * CONVENTIONS that arguments do not tell:
 *   gelu        the erf form, torch.nn.GELU's default, unless facts.gelu_tanh
 *   targets     negative (PyTorch's ignore_index): no loss, no gradient; the row still counts
 *               in loss_terms
 *   cp          rank i of n has rows [i, i + 1) x seq_len of each sequence; keys and values
 *               gathered lie by rank, then sample, then row; a row holds k, then v
 *   math        weights are [sample, head, query, key]
 *   loss sums   per row: sum of exp(logit - maximum), and target's logit - maximum where this
 *               rank has it, else 0
 *   ZeRO        where the optimizer, the norm or clipping see whole gradients or parameters
 *               (SLOT_GRAD, SLOT_PARAM) and shard_n > 1, they touch this rank's part only
 *   batchnorm   stats: means, then 1/deviations; before the exchange of SyncBatchNorm, means and
 *               (biased) variances.  Gathered: 2 C + 1 numbers a rank, of which the last, a
 *               count, is not read: ranks have equally many samples
 *
 * THREADS.  Kernels run on several lanes (casts under fsdp): each thread has its own KernelEnv.
 */
#ifndef LOCKSTEP_EXEC_KERNEL_H
#define LOCKSTEP_EXEC_KERNEL_H

#include "exec/program.h"

/* What kernels must know and ops do not say.  Sizes are those of this rank. */
typedef struct ModelFacts {
    uint32_t heads, kv_heads, head_dim; /* after tensor parallelism */
    uint32_t seq_len;                   /* rows of one sequence on this rank (after cp) */
    uint32_t position_first;            /* position of its first row (cp) */
    uint32_t rows_index; /* sequence parallelism: place in tp; this rank's rows of a micro-batch
                             are the rows_index-th part of all.  Else 0 */
    /* First row of the table, first column of the logits held here (tp). */
    uint32_t vocab_first;
    uint32_t vocab;  /* whole vocabulary, or classes; columns of logits past it are padding */
    bool causal;     /* attention "math" only: fused attention says it itself */
    uint32_t window; /* attention "math": of layers whose segments are called "windowed ..." */
    bool gelu_tanh;  /* gelu_new, gelu_pytorch_tanh: the tanh approximation */
    double rope_theta;    /* 10000; pairs are (i, i + head_dim / 2) */
    double norm_eps;      /* 1e-5, PyTorch's for both norms here */
    uint64_t loss_terms;  /* the loss is a mean over so many terms of the whole step: tokens, or
                            samples x outputs.  Gradients come scaled by it, so collectives sum */
    uint32_t loss_copies; /* ranks that compute the very same terms (outputs not split over tp):
                                 each adds one n-th of them to env->loss.  1, 0 as 1 */
    /* SyncBatchNorm: members of the group that shares statistics; else 1. */
    uint32_t batchnorm_ranks;
    uint32_t shard_index,
        shard_n; /* zero1, zero2, fsdp: place in the group that shares the state,
                                      and its size; 0 as 1 */
} ModelFacts;

typedef struct Hyper {
    double lr, weight_decay, beta1, beta2, eps, momentum, grad_clip; /* grad_clip 0: none */
} Hyper;

typedef struct KernelEnv {
    uint8_t *arena;
    ModelFacts facts;
    Hyper hyper;
    uint64_t step; /* optimizer steps done before this one */
    double loss;   /* out: kernels that make a loss add its terms, not yet divided */
    /* How many elements of this gradient, from its first on, count in the norm here?  The norm is
     * summed over tp and pp, so of what several ranks hold alike (norm gains, tied tables) one rank
     * counts it; what pads a shard is of no parameter.  NULL: all do. */
    uint64_t (*norm_counts)(const void *owners, const Buffer *grad);
    const void *norm_owners;
    void *scratch; /* grows as kernels ask; freed by kernel_env_free */
    uint64_t scratch_bytes;
} KernelEnv;

typedef void (*Kernel)(KernelEnv *env, const Program *p, const Task *t);

extern const Kernel cpu_kernels[OP_KIND_N];

/* False and a sentence when an op of the program has no kernel (fp8, conv ...); the same on
 * every backend (exec/kernel_table.h).  backend: its name. */
bool kernels_known(const Program *p, const char *backend, Err *err);

/* False and a sentence when an op of the program has no kernel here (fp8, conv ...), or when
 * OpenBLAS is needed and not installed, or has no room.  Call it before threads start: it sets an
 * environment variable, and their stacks and heaps may take the last room. */
bool kernels_check(const Program *p, Err *err);

/* OpenBLAS, for one thread (an environment variable says so), as dlopen gives it; NULL where it
 * cannot be loaded, or there is no room for its buffers. */
void *open_blas(void);
/* Loads OpenBLAS; what kernels_check does of it. */
bool gemm_load(Err *err);

/* How long this process has been inside OpenBLAS, all threads together, while that was counted:
 * in sgemm, all matmuls; in saxpy, the update of plain SGD. */
typedef struct BlasTime {
    int64_t gemm_ns, axpy_ns;
} BlasTime;
void gemm_count(bool on);
BlasTime gemm_spent(void);

void kernel_env_free(KernelEnv *env);

#endif

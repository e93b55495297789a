/*
 * kernel.h - the CPU's kernels: one function per op kind, on buffers of an arena.
 *
 * Arguments come in the order of sim/lower.h.  Matrices are row-major.  Arithmetic
 * is f32 (sums that decide numerics in f64, always in the same order): an argument
 * in f16 or bf16 is widened before and rounded to nearest even after, so these
 * kernels are the reference for those of every other backend.  Equal arguments give
 * equal bits, on every run and every rank.
 *
 * The matmuls are OpenBLAS's, on one thread.
 *
 *     f = cpu_kernels[op->kind];   NULL: communication, or an op kind that the CPU lacks
 *     f(&kernel_env, program, task);
 */
#ifndef LOCKSTEP_EXEC_KERNEL_H
#define LOCKSTEP_EXEC_KERNEL_H

#include "exec/program.h"

/* What kernels must know and ops do not say.  Sizes are those of this rank. */
typedef struct ModelFacts {
    uint32_t heads, kv_heads, head_dim; /* after tensor parallelism */
    uint32_t seq_len;                   /* rows of one sequence on this rank (after cp) */
    uint32_t position_first;            /* position of its first row (cp) */
    uint32_t vocab_first;               /* first row of the table held here (tp) */
    uint32_t vocab;                     /* whole vocabulary */
    double rope_theta;                  /* 10000; pairs are (i, i + head_dim / 2) */
    double norm_eps;                    /* 1e-5, PyTorch's for both norms here */
    double batchnorm_momentum;          /* 0.1; eps 1e-5 */
    uint64_t loss_terms; /* the loss is a mean over so many terms of the whole step: tokens, or
                            samples x outputs.  Gradients come scaled by it, so collectives sum */
    uint32_t
        batchnorm_ranks; /* SyncBatchNorm: members of the group that shares statistics; else 1 */
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
    void *scratch; /* grows as kernels ask: kernel_scratch; freed by kernel_env_free */
    uint64_t scratch_bytes;
} KernelEnv;

typedef void (*Kernel)(KernelEnv *env, const Program *p, const Task *t);

extern const Kernel cpu_kernels[OP_KIND_N];

/* False and a sentence when an op of the program has no kernel here (fp8, conv ...). */
bool kernels_check(const Program *p, Err *err);

void *kernel_scratch(KernelEnv *env,
                     uint64_t bytes); /* 64-byte aligned, valid until the next call */
void kernel_env_free(KernelEnv *env);

#endif

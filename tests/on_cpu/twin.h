/*
 * twin.h - every kernel that a test runs on the CPU also runs as a CUDA kernel, and compares.
 *
 * Compiled with -DWORLD_TWIN, tests/unit/kernel_world.h calls these around each kernel: the
 * arena as it was goes through the launch of the CUDA backend, on the stand-in device; then
 * all that the CPU's kernel wrote must be there within rounding, and all else untouched.
 */
#ifndef LOCKSTEP_TESTS_ON_CPU_TWIN_H
#define LOCKSTEP_TESTS_ON_CPU_TWIN_H

#include <math.h>

#include "exec/cuda_ops.h"
#include "exec/kernel.h"
#include "exec/number.h"
#include "tests/check.h"

typedef struct Twin {
    CudaEnv env;
    CudaTables tables;
    Rates rates[CUDA_RATES_N];
    double loss;
    uint64_t arena_bytes;
} Twin;

/* As far as two right results may be apart, by 1 + |x|. */
static inline double twin_tolerance(const Task *t, DType type)
{
    double once = type == DTYPE_BF16 ? 0x1p-7 : type == DTYPE_F16 ? 0x1p-10 : 2e-5;
    bool rounds =
        t->op->kind == OP_ATTENTION || t->op->kind == OP_MATMUL; /* weights, products */
    return rounds && dtype_bytes(type) == 2 ? 3 * once : once;
}

/* The arena as it is, and the task planned. */
static inline Twin twin_open(const KernelEnv *env, const Program *p, uint64_t arena_bytes)
{
    Twin w = { .arena_bytes = arena_bytes };
    Err err = { 0 };
    uint64_t scratch_bytes[LANE_N];
    w.env = (CudaEnv){ .arena = aligned_alloc(256, arena_bytes),
                       .facts = env->facts,
                       .hyper = env->hyper,
                       .norm_counts = env->norm_counts,
                       .norm_owners = env->norm_owners };
    ASSERT(w.env.arena);
    memcpy(w.env.arena, env->arena, arena_bytes);
    w.env.tables = &w.tables;
    if (!cuda_plan(&w.env, p, scratch_bytes, &err))
        fprintf(stderr, "%s\n", err.text);
    CHECK(!err.set);
    w.env.scratch_bytes = scratch_bytes[LANE_COMPUTE];
    cuda_rates(&env->hyper, env->step, w.rates);
    w.loss = env->loss;
    return w;
}

static inline void twin_launch(Twin *w, const Program *p, const Task *t)
{
    Err err = { 0 };
    uint64_t workspace_bytes = 1 << 20;
    void *workspace = aligned_alloc(256, workspace_bytes);
    w->tables.device = w->tables.rows;
    w->env.tables = &w->tables;
    w->env.rates = w->rates;
    w->env.loss = &w->loss;
    w->env.scratch = aligned_alloc(256, w->env.scratch_bytes + 256);
    memset(w->env.scratch, 0xff, w->env.scratch_bytes);
    CHECK(cuda_gemm_open(&w->env.gemm, workspace, workspace_bytes, &err));
    if (!cuda_launch(&w->env, p, t, &err))
        fprintf(stderr, "%s\n", err.text);
    CHECK(!err.set);
    cuda_gemm_close(w->env.gemm);
    free(workspace);
    free(w->env.scratch);
}

static inline void twin_compare(const Twin *w, const KernelEnv *env, const Program *p,
                                const Task *t, const Buffer *b)
{
    double tolerance = twin_tolerance(t, b->dtype);
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < b->elements; i++) {
        uint64_t at = b->offset + i * dtype_bytes(b->dtype);
        float want, got;
        if (memcmp(env->arena + at, w->env.arena + at, dtype_bytes(b->dtype)) == 0)
            continue;
        numbers_widen(b->dtype, env->arena + at, 1, &want);
        numbers_widen(b->dtype, w->env.arena + at, 1, &got);
        double off = fabs((double)want - (double)got);
        if (off <= tolerance * (1 + fabs((double)want)))
            continue;
        if (wrong++ == 0)
            fprintf(stderr, "%s of %s[%" PRIu64 "]: the CPU has %.9g, CUDA %.9g\n",
                    op_kind_names[t->op->kind], program_text(p, b->name), i, (double)want,
                    (double)got);
    }
    CHECK_INT(0, (int64_t)wrong);
}

/* After the CPU's kernel has run in env->arena. */
static inline void twin_check(Twin *w, const KernelEnv *env, const Program *p, const Task *t)
{
    twin_launch(w, p, t);
    uint8_t *theirs = w->env.arena;
    for (uint32_t a = 0; a < t->args_n; a++)
        if (task_args(p, t)[a].mode != ARG_READ)
            twin_compare(w, env, p, t, &task_args(p, t)[a]);
    for (uint32_t a = 0; a < t->args_n; a++) {
        const Buffer *b = &task_args(p, t)[a];
        if (b->mode != ARG_READ)
            memcpy(theirs + b->offset, env->arena + b->offset, b->bytes);
    }
    CHECK(memcmp(theirs, env->arena, w->arena_bytes) == 0); /* nothing else was touched */
    CHECK_NEAR(env->loss, w->loss, 1e-5 * (1 + fabs(env->loss)));
    cuda_tables_free(&w->tables);
    free(theirs);
}

#endif

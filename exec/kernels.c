/*
 * kernels.c - the table of kernels, what they cannot do, and arguments as f32.
 */
#include "exec/kernel_parts.h"
#include "exec/kernel_table.h"

#include <stdlib.h>

#define CPU_KERNEL(kind, cpu, cuda) [kind] = cpu,
const Kernel cpu_kernels[OP_KIND_N] = { KERNEL_TABLE(CPU_KERNEL) };

/* ---- what there is no kernel for ---- */

static bool needs_kernel(const Op *op)
{
    return !op_is_comm(op->kind) && op->kind != OP_H2D && op->kind != OP_HOST_WAIT &&
           op->kind != OP_RELEASE;
}

static bool has_fp8(const Program *p, const Task *t)
{
    for (uint32_t i = 0; i < t->args_n; i++)
        if (task_args(p, t)[i].dtype == DTYPE_FP8)
            return true;
    return t->op->dtype == DTYPE_FP8;
}

/* A later kernel of attention in a ring adds to what the first one wrote. */
static bool is_ring(const Program *p, const Task *t)
{
    for (uint32_t i = 0; t->op->kind == OP_ATTENTION && i < t->args_n; i++)
        if (task_args(p, t)[i].mode == ARG_UPDATE)
            return true;
    return false;
}

/* The first rows of samples; their loss comes with it. */
static bool is_next_sentence(const Program *p, const Task *t)
{
    return t->op->kind == OP_COPY && strcmp(program_text(p, t->op->name), "first tokens") == 0;
}

/* Why there is no kernel for this op: "BEFORE the NAME backend AFTER". */
typedef struct Lack {
    const char *before, *after; /* after NULL: there is a kernel */
} Lack;

static Lack lack(const Program *p, const Task *t)
{
    if (has_fp8(p, t))
        return (Lack){ "in fp8, ", "knows f32, tf32, f16 and bf16" };
    if (t->op->kind == OP_CONV || t->op->kind == OP_POOL)
        return (Lack){ "", "has no convolutions and no pooling" };
    if (is_ring(p, t))
        return (Lack){ "attention in a ring, ", "gathers keys and values first" };
    if (t->op->kind == OP_MATMUL && is_attention_matmul(p, t) &&
        attention_lacks_keys(t->op, t->args_n))
        return (Lack){ "", "has no unfused attention over cp, training.attention 'flash' is "
                           "allowed" };
    if (t->op->kind == OP_SCALE && t->op->phase != PHASE_UPDATE)
        return (Lack){ "", "has no dropout" };
    if (is_next_sentence(p, t))
        return (Lack){ "", "has no data for next-sentence prediction" };
    return (Lack){ "", cpu_kernels[t->op->kind] ? NULL : "has no such kernel" };
}

bool kernels_known(const Program *p, const char *backend, Err *err)
{
    for (uint32_t i = 0; i < p->tasks_n; i++) {
        const Task *t = &p->tasks[i];
        Lack why = needs_kernel(t->op) ? lack(p, t) : (Lack){ NULL, NULL };
        if (why.after)
            return err_set(err, "op '%s' (%s) cannot run: %sthe %s backend %s",
                           program_text(p, t->op->name), op_kind_names[t->op->kind], why.before,
                           backend, why.after);
    }
    return true;
}

bool kernels_check(const Program *p, Err *err)
{
    bool multiplies = false;
    for (uint32_t i = 0; i < p->tasks_n; i++) {
        const Op *op = p->tasks[i].op;
        multiplies =
            multiplies || op->kind == OP_MATMUL || op->kind == OP_ATTENTION || op->fn == FN_SGD;
    }
    return kernels_known(p, "cpu", err) && (!multiplies || gemm_load(err));
}

/* ---- scratch ---- */

enum { ALIGNMENT = 64 };

static uint64_t aligned(uint64_t bytes)
{
    return div_up_u64(bytes, ALIGNMENT) * ALIGNMENT;
}

/* 64-byte aligned, valid until the next call. */
static void *scratch_of(KernelEnv *env, uint64_t bytes)
{
    if (bytes > env->scratch_bytes) {
        free(env->scratch);
        env->scratch_bytes = aligned(max_u64(bytes, 2 * env->scratch_bytes));
        env->scratch = aligned_alloc(ALIGNMENT, env->scratch_bytes);
        ASSERT(env->scratch);
    }
    return env->scratch;
}

void kernel_env_free(KernelEnv *env)
{
    free(env->scratch);
    env->scratch = NULL;
    env->scratch_bytes = 0;
}

/* ---- calls ---- */

static bool is_f32(DType t)
{
    return t == DTYPE_F32 || t == DTYPE_TF32;
}

static bool is_narrow(DType t)
{
    return t == DTYPE_F16 || t == DTYPE_BF16;
}

Call call_open(KernelEnv *env, const Program *p, const Task *t, CallWrites writes,
               uint64_t extra_bytes)
{
    Call c = { env, p, t, t->op, task_args(p, t), t->args_n, { NULL }, NULL };
    uint64_t bytes = aligned(extra_bytes);
    ASSERT(c.n <= CALL_ARGS_MAX);
    for (uint32_t i = 0; i < c.n; i++)
        bytes += is_narrow(c.b[i].dtype) ? aligned(c.b[i].elements * sizeof(float)) : 0;
    uint8_t *at = bytes ? scratch_of(env, bytes) : NULL;
    c.extra = at;
    if (bytes)
        at += aligned(extra_bytes);
    for (uint32_t i = 0; i < c.n; i++) {
        const Buffer *b = &c.b[i];
        if (is_f32(b->dtype))
            c.x[i] = (float *)(void *)buffer_data(env, b);
        if (!is_narrow(b->dtype))
            continue;
        c.x[i] = (float *)(void *)at;
        at += aligned(b->elements * sizeof(float));
        if (b->mode != ARG_WRITE || writes == CALL_PARTLY)
            numbers_widen(b->dtype, buffer_data(env, b), b->elements, c.x[i]);
    }
    return c;
}

void call_close(Call *c)
{
    for (uint32_t i = 0; i < c->n; i++)
        if (is_narrow(c->b[i].dtype) && c->b[i].mode != ARG_READ)
            numbers_narrow(c->b[i].dtype, c->x[i], c->b[i].elements,
                           buffer_data(c->env, &c->b[i]));
}

uint32_t call_reads(const Buffer *b, uint32_t n)
{
    uint32_t reads = 0;
    while (reads < n && b[reads].mode == ARG_READ)
        reads++;
    return reads;
}

void round_to(DType t, float *x, uint64_t n)
{
    for (uint64_t i = 0; t == DTYPE_BF16 && i < n; i++)
        x[i] = f32_of_bf16(bf16_of_f32(x[i]));
    for (uint64_t i = 0; t == DTYPE_F16 && i < n; i++)
        x[i] = f32_of_f16(f16_of_f32(x[i]));
}

void sum_rows(double *sums, const float *x, uint64_t rows, uint64_t columns)
{
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t c = 0; c < columns; c++)
            sums[c] += (double)x[r * columns + c];
}

void put_sums(float *y, const double *sums, uint64_t n, uint8_t mode)
{
    for (uint64_t i = 0; i < n; i++)
        y[i] = (float)((mode == ARG_UPDATE ? (double)y[i] : 0) + sums[i]);
}

/* ---- chunks ---- */

static uint8_t *chunk_at(const KernelEnv *env, const Buffer *b, uint64_t at, uint64_t n)
{
    ASSERT(at + n <= b->elements && b->dtype <= DTYPE_BF16);
    return buffer_data(env, b) + at * dtype_bytes(b->dtype);
}

const float *chunk_read(const KernelEnv *env, const Buffer *b, uint64_t at, uint64_t n,
                        float *temp)
{
    const uint8_t *from = chunk_at(env, b, at, n);
    if (is_f32(b->dtype))
        return (const float *)(const void *)from;
    numbers_widen(b->dtype, from, n, temp);
    return temp;
}

float *chunk_place(const KernelEnv *env, const Buffer *b, uint64_t at, uint64_t n, float *temp)
{
    uint8_t *to = chunk_at(env, b, at, n);
    return is_f32(b->dtype) ? (float *)(void *)to : temp;
}

void chunk_written(const KernelEnv *env, const Buffer *b, uint64_t at, uint64_t n,
                   const float *temp)
{
    if (!is_f32(b->dtype))
        numbers_narrow(b->dtype, temp, n, chunk_at(env, b, at, n));
}

Part own_part(const ModelFacts *f, const Buffer *b)
{
    if (f->shard_n <= 1 || (b->slot != SLOT_GRAD && b->slot != SLOT_PARAM))
        return (Part){ 0, b->elements };
    uint64_t each = div_up_u64(b->elements, f->shard_n);
    uint64_t first = min_u64(each * f->shard_index, b->elements);
    return (Part){ first, min_u64(each, b->elements - first) };
}

/*
 * kernels_update.c - the end of a step: norm of the gradients, clipping, optimizers.
 *
 * As PyTorch computes it on a CPU, operation by operation in f32, hyperparameters in f64
 * until they meet a tensor (torch/optim: sgd.py, adam.py, adamw.py):
 *
 *     sgd       g += wd p                    p += -lr g
 *     momentum  g += wd p    m = mu m + g    p += -lr m
 *     adam      g += wd p    m += (1 - b1) (g - m)    v = b2 v + (1 - b2) g g
 *               p += -(lr/(1 - b1^t)) m / (sqrt(v)/sqrt(1 - b2^t) + eps)
 *     adamw     p *= 1 - lr wd, and then adam without wd
 *     clip      g *= min(1, max_norm/(norm + 1e-6))         clip_grad_norm_
 *
 * Moments and master weights are f32; with master weights p is theirs, and the
 * parameter its rounded copy.  Where whole tensors meet the state of a part of
 * them (ZeRO), the part is updated.
 */
#include "exec/kernel_parts.h"

#include <math.h>

/* ---- norm and clipping ---- */

static double squares(const KernelEnv *env, const Buffer *b, Part part)
{
    float temp[CHUNK];
    double sum = 0;
    for (uint64_t i = 0, n; i < part.n; i += n) {
        n = min_u64(CHUNK, part.n - i);
        const float *g = chunk_read(env, b, part.first + i, n, temp);
        sum += row_dot(g, g, n);
    }
    return sum;
}

/* grads ..., sum of squares* */
void kernel_grad_norm(KernelEnv *env, const Program *p, const Task *t)
{
    const Buffer *b = task_args(p, t);
    uint32_t n = t->args_n - 1;
    float temp;
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        Part part = own_part(&env->facts, &b[i]);
        if (env->norm_counts)
            part.n = min_u64(part.n, env->norm_counts(env->norm_owners, &b[i]));
        sum += squares(env, &b[i], part);
    }
    float *norm = chunk_place(env, &b[n], 0, 1, &temp);
    *norm = (float)((double)*chunk_read(env, &b[n], 0, 1, &temp) + sum);
    chunk_written(env, &b[n], 0, 1, norm);
}

static void scale_by(const KernelEnv *env, const Buffer *b, Part part, float by)
{
    float temp[CHUNK];
    for (uint64_t i = 0, n; i < part.n; i += n) {
        n = min_u64(CHUNK, part.n - i);
        const float *x = chunk_read(env, b, part.first + i, n, temp);
        float *y = chunk_place(env, b, part.first + i, n, temp);
        for (uint64_t k = 0; k < n; k++)
            y[k] = x[k] * by;
        chunk_written(env, b, part.first + i, n, temp);
    }
}

/* grads* ..., sum of squares */
void kernel_scale(KernelEnv *env, const Program *p, const Task *t)
{
    const Buffer *b = task_args(p, t);
    uint32_t n = t->args_n - 1;
    float temp, norm = sqrtf(*chunk_read(env, &b[n], 0, 1, &temp));
    float by = 1 / (norm + 1e-6f) * (float)env->hyper.grad_clip; /* as torch divides */
    if (by >= 1)
        return;
    for (uint32_t i = 0; i < n; i++)
        scale_by(env, &b[i], own_part(&env->facts, &b[i]), by);
}

/* ---- optimizers: n numbers of one tensor ---- */

Rates rates_of(const Hyper *h, OpFn fn, uint64_t step)
{
    double t = (double)(step + 1);
    double correction1 = 1 - pow(h->beta1, t), correction2 = 1 - pow(h->beta2, t);
    return (Rates){ .lr = (float)-h->lr,
                    .decay = fn == FN_ADAMW ? 0 : (float)h->weight_decay,
                    .keep = fn == FN_ADAMW ? (float)(1 - h->lr * h->weight_decay) : 1,
                    .momentum = (float)h->momentum,
                    .moment1 = (float)(1 - h->beta1),
                    .beta2 = (float)h->beta2,
                    .moment2 = (float)(1 - h->beta2),
                    .root = (float)sqrt(correction2),
                    .eps = (float)h->eps,
                    .step = (float)-(h->lr / correction1) };
}

static void sgd(const Rates *r, const float *restrict g, float *restrict p, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        p[i] += r->lr * (g[i] + r->decay * p[i]);
}

/* torch.add(p, g, alpha=-lr) is BLAS's axpy, with one rounding where the processor can. */
static void plain_sgd(const Rates *r, const float *g, float *p, uint64_t n)
{
    axpy(r->lr, g, p, n);
}

static void momentum(const Rates *r, const float *restrict g, float *restrict m,
                     float *restrict p, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        m[i] = r->momentum * m[i] + (g[i] + r->decay * p[i]);
        p[i] += r->lr * m[i];
    }
}

static void adam(const Rates *r, const float *restrict g, float *restrict m, float *restrict v,
                 float *restrict p, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        float x = p[i] * r->keep, d = g[i] + r->decay * x;
        m[i] += r->moment1 * (d - m[i]);
        v[i] = v[i] * r->beta2 + r->moment2 * d * d;
        p[i] = x + r->step * m[i] / (sqrtf(v[i]) / r->root + r->eps);
    }
}

/* ---- optimizers: tensors ---- */

typedef struct Owned {
    const Buffer *grad, *param, *m, *v, *master; /* NULL where there is none */
} Owned;

static float *state_at(const KernelEnv *env, const Buffer *b, uint64_t at)
{
    ASSERT(!b || b->dtype == DTYPE_F32);
    return b ? (float *)(void *)buffer_data(env, b) + at : NULL;
}

static void update_chunk(OpFn fn, const Rates *r, const float *g, float *m, float *v, float *p,
                         uint64_t n)
{
    switch (fn) {
    case FN_SGD:
        (r->decay == 0 ? plain_sgd : sgd)(r, g, p, n);
        return;
    case FN_MOMENTUM:
        momentum(r, g, m, p, n);
        return;
    default:
        ASSERT(fn == FN_ADAM || fn == FN_ADAMW);
        adam(r, g, m, v, p, n);
    }
}

/* Numbers [i, i + n) of the own part: of param and grad at their place, of the state at i. */
static void update_tensor(const KernelEnv *env, OpFn fn, const Rates *r, const Owned *o)
{
    float grads[CHUNK], params[CHUNK]; /* unused where both are f32 */
    Part part = own_part(&env->facts, o->param), from = own_part(&env->facts, o->grad);
    bool in_place = dtype_bytes(o->param->dtype) == 4 && dtype_bytes(o->grad->dtype) == 4;
    for (uint64_t i = 0, n; i < part.n; i += n) {
        n = min_u64(in_place ? part.n : CHUNK, part.n - i);
        uint64_t at = part.first + i;
        const float *g = chunk_read(env, o->grad, from.first + i, n, grads);
        float *p = chunk_place(env, o->param, at, n, params), *master;
        master = state_at(env, o->master, i);
        if (!master)
            (void)chunk_read(env, o->param, at, n, params);
        update_chunk(fn, r, g, state_at(env, o->m, i), state_at(env, o->v, i),
                     master ? master : p, n);
        if (master && p != params)
            memcpy(p, master, n * sizeof *p);
        chunk_written(env, o->param, at, n, master ? master : p);
    }
}

const Buffer *state_named(const Program *p, const Buffer *states, uint32_t n, const char *name)
{
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(program_text(p, states[i].name), name) == 0)
            return &states[i];
    return NULL;
}

/* grads ..., states of the first, of the second ..., params* ... */
void kernel_optimizer(KernelEnv *env, const Program *p, const Task *t)
{
    const Buffer *b = task_args(p, t);
    uint32_t n = call_reads(b, t->args_n), each = n ? (t->args_n - 2 * n) / n : 0;
    ASSERT((2 + each) * n == t->args_n);
    Rates r = rates_of(&env->hyper, t->op->fn, env->step);
    for (uint32_t i = 0; i < n; i++) {
        const Buffer *states = b + n + i * each;
        Owned o = { .grad = &b[i], .param = &b[t->args_n - n + i] };
        o.m = state_named(p, states, each, "first moment");
        o.v = state_named(p, states, each, "second moment");
        o.master = state_named(p, states, each, "master weights");
        ASSERT(t->op->fn == FN_SGD || o.m);
        update_tensor(env, t->op->fn, &r, &o);
    }
}

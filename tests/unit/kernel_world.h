/*
 * kernel_world.h - kernels one by one: programs made by hand, and gradients by differences.
 *
 *     World w;
 *     world_open(&w);
 *     uint32_t x = world_random(&w, "x", DTYPE_F32, 3, 5, 1), y = world_tensor(&w, ...);
 *     world_run(&w, (Op){ .kind = OP_ADD }, 3, (Use[]){ READ(x), READ(r), WRITE(y) });
 *     CHECK_LIKE(&w, y, want)
 *     world_close(&w);
 *
 * A reference is a function in doubles, written by definition, from inputs to outputs; its
 * gradient comes from central differences, so that nothing of the kernels is believed.
 */
#ifndef LOCKSTEP_TESTS_KERNEL_WORLD_H
#define LOCKSTEP_TESTS_KERNEL_WORLD_H

#include "exec/kernel.h"
#include "exec/number.h"
#include "tests/check.h"

#ifdef WORLD_TWIN /* each kernel also as the CUDA backend launches it */
#include "tests/on_cpu/twin.h"
#endif

enum { WORLD_TENSORS = 64, WORLD_OPS = 64, WORLD_ARGS = 512 };
#define WORLD_BYTES ((uint64_t)4 << 20)

typedef struct World {
    Graph g;
    Program p;
    KernelEnv env;
    Segment segment;
    Instance instance;
    Op ops[WORLD_OPS];
    Task tasks[WORLD_OPS];
    Buffer args[WORLD_ARGS];
    uint32_t tensors_n;
    uint64_t used_bytes;
    Buffer tensors[WORLD_TENSORS];
} World;

typedef struct Use {
    uint32_t tensor;
    ArgMode mode;
} Use;

#define READ(t)   ((Use){ (t), ARG_READ })
#define WRITE(t)  ((Use){ (t), ARG_WRITE })
#define UPDATE(t) ((Use){ (t), ARG_UPDATE })

static inline void world_open(World *w)
{
    memset(w, 0, sizeof *w);
    w->env.arena = aligned_alloc(64, WORLD_BYTES);
    ASSERT(w->env.arena);
    memset(w->env.arena, 0x55, WORLD_BYTES); /* nothing may lean on zeros */
    w->segment.name = intern(&w->g.names, "segment");
    w->g.segments = &w->segment;
    w->g.segments_n = 1;
    w->p = (Program){ .graph = &w->g, .tasks = w->tasks, .args = w->args };
    w->env.facts = (ModelFacts){ .norm_eps = 1e-5, .rope_theta = 10000, .loss_terms = 1 };
}

static inline void world_close(World *w)
{
    kernel_env_free(&w->env);
    intern_free(&w->g.names);
    free(w->env.arena);
}

/* In SLOT_LOCAL; world_slot says otherwise. */
static inline uint32_t world_tensor(World *w, const char *name, DType dtype, uint64_t rows,
                                    uint64_t columns)
{
    ASSERT(w->tensors_n < WORLD_TENSORS);
    uint64_t bytes = rows * columns * dtype_bytes(dtype);
    w->tensors[w->tensors_n] = (Buffer){ .offset = w->used_bytes,
                                         .bytes = bytes,
                                         .elements = rows * columns,
                                         .dtype = dtype,
                                         .slot = SLOT_LOCAL,
                                         .name = intern(&w->g.names, name),
                                         .tensor = w->tensors_n,
                                         .dims = { rows, columns } };
    w->used_bytes += div_up_u64(bytes, 64) * 64;
    ASSERT(w->used_bytes <= WORLD_BYTES);
    return w->tensors_n++;
}

static inline uint32_t world_slot(World *w, uint32_t t, Slot slot)
{
    w->tensors[t].slot = (uint8_t)slot;
    return t;
}

static inline void world_set(World *w, uint32_t t, uint64_t i, double x)
{
    const Buffer *b = &w->tensors[t];
    float value = (float)x;
    uint8_t *at = w->env.arena + b->offset + i * dtype_bytes(b->dtype);
    int64_t whole = b->dtype == DTYPE_I64 ? (int64_t)x : 0;
    ASSERT(i < b->elements);
    if (b->dtype == DTYPE_I64)
        memcpy(at, &whole, sizeof whole);
    else
        numbers_narrow(b->dtype, &value, 1, at);
}

static inline double world_get(const World *w, uint32_t t, uint64_t i)
{
    const Buffer *b = &w->tensors[t];
    float value = 0;
    ASSERT(i < b->elements);
    numbers_widen(b->dtype, w->env.arena + b->offset + i * dtype_bytes(b->dtype), 1, &value);
    return (double)value;
}

static inline void world_fill(World *w, uint32_t t, double x)
{
    for (uint64_t i = 0; i < w->tensors[t].elements; i++)
        world_set(w, t, i, x);
}

/* Between -1 and 1, by the tensor's number and i. */
static inline double world_noise(uint32_t t, uint64_t i)
{
    return (double)(mix_u64(t * 1000003u + i) >> 11) * 0x1p-52 - 1;
}

static inline uint32_t world_random(World *w, const char *name, DType dtype, uint64_t rows,
                                    uint64_t columns)
{
    uint32_t t = world_tensor(w, name, dtype, rows, columns);
    for (uint64_t i = 0; i < rows * columns; i++)
        world_set(w, t, i, world_noise(t, i));
    return t;
}

/* A copy in doubles; the caller frees it. */
static inline double *world_doubles(const World *w, uint32_t t)
{
    double *x = mem_zero(w->tensors[t].elements + 1, sizeof *x);
    for (uint64_t i = 0; i < w->tensors[t].elements; i++)
        x[i] = world_get(w, t, i);
    return x;
}

static inline const Task *world_task(World *w, Op op, uint32_t n, const Use *uses)
{
    uint32_t i = w->p.tasks_n++;
    ASSERT(i < WORLD_OPS && w->p.args_n + n <= WORLD_ARGS);
    w->ops[i] = op;
    w->tasks[i] = (Task){
        .op = &w->ops[i], .instance = &w->instance, .args_first = w->p.args_n, .args_n = n
    };
    for (uint32_t a = 0; a < n; a++) {
        w->args[w->p.args_n] = w->tensors[uses[a].tensor];
        w->args[w->p.args_n++].mode = (uint8_t)uses[a].mode;
    }
    return &w->tasks[i];
}

static inline void world_run(World *w, Op op, uint32_t n, const Use *uses)
{
    const Task *t = world_task(w, op, n, uses);
#ifdef WORLD_TWIN
    Twin twin = twin_open(&w->env, &w->p, WORLD_BYTES);
    cpu_kernels[op.kind](&w->env, &w->p, t);
    twin_check(&twin, &w->env, &w->p, t);
#else
    cpu_kernels[op.kind](&w->env, &w->p, t);
#endif
}

/* |got - want| <= tolerance (1 + |want|), all of them. */
static inline void check_like(const World *w, uint32_t t, const double *want, double tolerance,
                              CheckPlace at)
{
    for (uint64_t i = 0; i < w->tensors[t].elements; i++) {
        double got = world_get(w, t, i), off = fabs(got - want[i]);
        bool held = off <= tolerance * (1 + fabs(want[i]));
        if (!held && check_failed(at))
            fprintf(stderr, "%s[%" PRIu64 "] is %.9g, not %.9g\n", at.what, i, got, want[i]);
    }
}
#define CHECK_LIKE(w, t, want, tolerance) \
    check_like((w), (t), (want), (tolerance), CHECK_HERE(#t))

/* ---- references ---- */

enum { REF_INPUTS = 6 };

typedef struct Ref {
    void (*f)(const void *of, double *const *in, double *out);
    const void *of;
    uint32_t in_n;
    uint32_t in[REF_INPUTS]; /* tensors */
    uint64_t out_n;
} Ref;

typedef struct RefValues {
    double *in[REF_INPUTS], *out;
} RefValues;

static inline RefValues ref_values(const World *w, const Ref *r)
{
    RefValues v = { .out = mem_zero(r->out_n, sizeof(double)) };
    for (uint32_t i = 0; i < r->in_n; i++)
        v.in[i] = world_doubles(w, r->in[i]);
    r->f(r->of, v.in, v.out);
    return v;
}

static inline void ref_free(const Ref *r, RefValues *v)
{
    for (uint32_t i = 0; i < r->in_n; i++)
        free(v->in[i]);
    free(v->out);
}

/* Tensor y is what the reference says of the inputs as they are now. */
static inline void check_ref(const World *w, const Ref *r, uint32_t y, double tolerance,
                             CheckPlace at)
{
    RefValues v = ref_values(w, r);
    check_like(w, y, v.out, tolerance, at);
    ref_free(r, &v);
}

static inline double ref_dot(const Ref *r, RefValues *v, const double *dy)
{
    double sum = 0;
    memset(v->out, 0, r->out_n * sizeof *v->out);
    r->f(r->of, v->in, v->out);
    for (uint64_t i = 0; i < r->out_n; i++)
        sum += dy[i] * v->out[i];
    return sum;
}

/* Tensor dx is the gradient of dy . f with respect to input i, on top of `before` (or NULL). */
static inline void check_gradient(const World *w, const Ref *r, uint32_t i, uint32_t dy,
                                  uint32_t dx, const double *before, double tolerance,
                                  CheckPlace at)
{
    RefValues v = ref_values(w, r);
    uint64_t n = w->tensors[r->in[i]].elements;
    double *by = world_doubles(w, dy), *want = mem_zero(n, sizeof *want), h = 1e-5;
    for (uint64_t k = 0; k < n; k++) {
        double x = v.in[i][k];
        v.in[i][k] = x + h;
        double up = ref_dot(r, &v, by);
        v.in[i][k] = x - h;
        want[k] = (up - ref_dot(r, &v, by)) / (2 * h) + (before ? before[k] : 0);
        v.in[i][k] = x;
    }
    check_like(w, dx, want, tolerance, at);
    free(want);
    free(by);
    ref_free(r, &v);
}
#define CHECK_REF(w, r, y, tolerance) check_ref((w), (r), (y), (tolerance), CHECK_HERE(#y))
#define CHECK_GRADIENT(w, r, i, dy, dx, before, tolerance) \
    check_gradient((w), (r), (i), (dy), (dx), (before), (tolerance), CHECK_HERE(#dx))

#endif

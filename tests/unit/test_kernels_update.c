/*
 * test_kernels_update.c - three steps of each optimizer against PyTorch's formulas, master
 * weights, the parts of ZeRO, the norm of the gradients and clipping.
 */
#include "tests/unit/kernel_world.h"

enum { N = 5, STEPS = 3 };

static const Hyper hyper = {
    .lr = 0.1, .weight_decay = 0.3, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .momentum = 0.8
};

/* One number through torch.optim, in doubles: p, and its moments. */
typedef struct Number {
    double p, m, v;
} Number;

static void step_number(OpFn fn, Number *x, double g, uint32_t step)
{
    const Hyper *h = &hyper;
    double t = step + 1;
    if (fn == FN_ADAMW)
        x->p *= 1 - h->lr * h->weight_decay;
    else
        g += h->weight_decay * x->p;
    if (fn == FN_SGD) {
        x->p -= h->lr * g;
    } else if (fn == FN_MOMENTUM) {
        x->m = h->momentum * x->m + g;
        x->p -= h->lr * x->m;
    } else {
        x->m = h->beta1 * x->m + (1 - h->beta1) * g;
        x->v = h->beta2 * x->v + (1 - h->beta2) * g * g;
        double m = x->m / (1 - pow(h->beta1, t)), v = x->v / (1 - pow(h->beta2, t));
        x->p -= h->lr * m / (sqrt(v) + h->eps);
    }
}

typedef struct Optimizer {
    World w;
    OpFn fn;
    uint32_t moments, g, p, m, v, master;
    Number want[N];
} Optimizer;

static void optimizer_open(Optimizer *o, OpFn fn, DType dtype)
{
    World *w = &o->w;
    world_open(w);
    w->env.hyper = hyper;
    o->fn = fn;
    o->moments = fn == FN_SGD ? 0 : fn == FN_MOMENTUM ? 1 : 2;
    o->g = world_slot(w, world_tensor(w, "p", dtype, 1, N), SLOT_GRAD);
    o->p = world_slot(w, world_random(w, "p", dtype, 1, N), SLOT_PARAM);
    o->m = world_slot(w, world_tensor(w, "first moment", DTYPE_F32, 1, N), SLOT_STATE);
    o->v = world_slot(w, world_tensor(w, "second moment", DTYPE_F32, 1, N), SLOT_STATE);
    o->master = world_slot(w, world_tensor(w, "master weights", DTYPE_F32, 1, N), SLOT_STATE);
    world_fill(w, o->m, 0);
    world_fill(w, o->v, 0);
    for (uint64_t i = 0; i < N; i++) {
        o->want[i] = (Number){ .p = world_get(w, o->p, i) };
        world_set(w, o->master, i, o->want[i].p);
    }
}

static void optimizer_step(Optimizer *o, uint32_t step, bool master)
{
    World *w = &o->w;
    Use uses[5] = { READ(o->g) };
    uint32_t n = 1;
    for (uint64_t i = 0; i < N; i++) {
        world_set(w, o->g, i, world_noise(99 + step, i));
        step_number(o->fn, &o->want[i], world_get(w, o->g, i), step);
    }
    if (o->moments > 0)
        uses[n++] = UPDATE(o->m);
    if (o->moments > 1)
        uses[n++] = UPDATE(o->v);
    if (master)
        uses[n++] = UPDATE(o->master);
    uses[n++] = UPDATE(o->p);
    w->env.step = step;
    world_run(w, (Op){ .kind = OP_OPTIMIZER, .phase = PHASE_UPDATE, .fn = o->fn }, n, uses);
}

static const OpFn optimizers[] = { FN_SGD, FN_MOMENTUM, FN_ADAM, FN_ADAMW };

static void three_steps_are_those_of_pytorch(void)
{
    for (size_t f = 0; f < ARRAY_N(optimizers); f++) {
        Optimizer o;
        optimizer_open(&o, optimizers[f], DTYPE_F32);
        for (uint32_t step = 0; step < STEPS; step++) {
            optimizer_step(&o, step, false);
            for (uint64_t i = 0; i < N; i++) {
                CHECK_NEAR(o.want[i].p, world_get(&o.w, o.p, i), 2e-6);
                CHECK_NEAR(o.want[i].m, world_get(&o.w, o.m, i), 2e-6);
                CHECK_NEAR(o.want[i].v, world_get(&o.w, o.v, i), 2e-6);
            }
        }
        world_close(&o.w);
    }
}

/* torch/optim/adamw.py on a CPU, one f32 operation after the other: the very bits. */
static void adamw_rounds_where_pytorch_rounds(void)
{
    Optimizer o;
    optimizer_open(&o, FN_ADAMW, DTYPE_F32);
    float p = (float)world_get(&o.w, o.p, 0), m = 0, v = 0;
    for (uint32_t step = 0; step < STEPS; step++) {
        optimizer_step(&o, step, false);
        volatile float g = (float)world_get(&o.w, o.g, 0), x;
        p = p * (float)(1 - hyper.lr * hyper.weight_decay);
        x = (float)(1 - hyper.beta1) * (g - m); /* exp_avg.lerp_(grad, 1 - beta1) */
        m = m + x;
        v = v * (float)hyper.beta2;
        x = (float)(1 - hyper.beta2) * g;
        x = x * g; /* addcmul_: value * tensor1 * tensor2 */
        v = v + x;
        float root = sqrtf(v) / (float)sqrt(1 - pow(hyper.beta2, step + 1));
        float denominator = root + (float)hyper.eps;
        x = (float)-(hyper.lr / (1 - pow(hyper.beta1, step + 1))) * m;
        x = x / denominator; /* addcdiv_ */
        p = p + x;
        CHECK_NEAR((double)p, world_get(&o.w, o.p, 0), 0);
        CHECK_NEAR((double)v, world_get(&o.w, o.v, 0), 0);
    }
    world_close(&o.w);
}

static void bf16_parameters_are_rounded_copies_of_master_weights(void)
{
    for (size_t f = 0; f < ARRAY_N(optimizers); f++) {
        Optimizer o;
        optimizer_open(&o, optimizers[f], DTYPE_BF16);
        for (uint32_t step = 0; step < STEPS; step++)
            optimizer_step(&o, step, true);
        for (uint64_t i = 0; i < N; i++) {
            CHECK_NEAR(o.want[i].p, world_get(&o.w, o.master, i), 2e-6);
            float master = (float)world_get(&o.w, o.master, i);
            float rounded = f32_of_bf16(bf16_of_f32(master));
            CHECK_NEAR((double)rounded, world_get(&o.w, o.p, i), 0);
        }
        world_close(&o.w);
    }
}

/* Rank 1 of 2 owns numbers 3 and 4 of 5; its state has room for 3. */
static void a_rank_of_zero_updates_its_part(void)
{
    for (uint32_t zero = 1; zero <= 2; zero++) {
        Optimizer o;
        optimizer_open(&o, FN_ADAM, DTYPE_F32);
        World *w = &o.w;
        w->env.facts.shard_n = 2, w->env.facts.shard_index = 1;
        double first = world_get(w, o.p, 2);
        uint32_t m =
            world_slot(w, world_tensor(w, "first moment", DTYPE_F32, 1, 3), SLOT_STATE);
        uint32_t v =
            world_slot(w, world_tensor(w, "second moment", DTYPE_F32, 1, 3), SLOT_STATE);
        uint32_t shard = world_slot(w, world_tensor(w, "p", DTYPE_F32, 1, 3), SLOT_GRAD_SHARD);
        world_fill(w, m, 0);
        world_fill(w, v, 0);
        for (uint64_t i = 0; i < N; i++) {
            world_set(w, o.g, i, 1 + (double)i);
            step_number(FN_ADAM, &o.want[i], 1 + (double)i, 0);
        }
        for (uint64_t i = 0; i < 3; i++)
            world_set(w, shard, i, 4 + (double)i);
        Op op = { .kind = OP_OPTIMIZER, .phase = PHASE_UPDATE, .fn = FN_ADAM };
        world_run(w, op, 4,
                  (Use[]){ READ(zero == 1 ? o.g : shard), UPDATE(m), UPDATE(v), UPDATE(o.p) });
        CHECK_NEAR(first, world_get(w, o.p, 2), 0);
        CHECK_NEAR(o.want[3].p, world_get(w, o.p, 3), 2e-6);
        CHECK_NEAR(o.want[4].p, world_get(w, o.p, 4), 2e-6);
        CHECK_NEAR(o.want[4].m, world_get(w, m, 1), 2e-6);
        world_close(w);
    }
}

static void several_tensors_keep_their_state_apart(void)
{
    World w;
    world_open(&w);
    w.env.hyper = (Hyper){ .lr = 1, .momentum = 0.5 };
    uint32_t g[2], m[2], p[2];
    for (uint32_t i = 0; i < 2; i++) {
        g[i] = world_tensor(&w, "g", DTYPE_F32, 1, 1);
        m[i] = world_tensor(&w, "first moment", DTYPE_F32, 1, 1);
        p[i] = world_tensor(&w, "p", DTYPE_F32, 1, 1);
        world_fill(&w, g[i], 1 + i);
        world_fill(&w, m[i], 4);
        world_fill(&w, p[i], 10);
    }
    Op op = { .kind = OP_OPTIMIZER, .phase = PHASE_UPDATE, .fn = FN_MOMENTUM };
    world_run(&w, op, 6,
              (Use[]){ READ(g[0]), READ(g[1]), UPDATE(m[0]), UPDATE(m[1]), UPDATE(p[0]),
                       UPDATE(p[1]) });
    CHECK_NEAR(10 - 3, world_get(&w, p[0], 0), 0);
    CHECK_NEAR(10 - 4, world_get(&w, p[1], 0), 0);
    world_close(&w);
}

/* ---- the norm ---- */

/* The first four elements of one gradient, nothing of the others. */
static uint64_t four_of_one(const void *owners, const Buffer *grad)
{
    return grad->tensor == *(const uint32_t *)owners ? 4 : 0;
}

static void gradients_are_clipped_to_a_norm(void)
{
    World w;
    world_open(&w);
    w.env.hyper.grad_clip = 1;
    uint32_t a = world_slot(&w, world_tensor(&w, "a", DTYPE_F32, 1, 4), SLOT_GRAD);
    uint32_t b = world_slot(&w, world_tensor(&w, "b", DTYPE_BF16, 1, 1), SLOT_GRAD);
    uint32_t norm = world_tensor(&w, "norm", DTYPE_F32, 1, 1);
    for (uint64_t i = 0; i < 4; i++)
        world_set(&w, a, i, 1);
    world_set(&w, b, 0, 0.5);
    Op sum = { .kind = OP_GRAD_NORM, .phase = PHASE_UPDATE };
    Op clip = { .kind = OP_SCALE, .phase = PHASE_UPDATE };
    world_fill(&w, norm, 4.75);
    world_run(&w, sum, 3, (Use[]){ READ(a), READ(b), UPDATE(norm) });
    CHECK_NEAR(9, world_get(&w, norm, 0), 0); /* 4.75 + 4 + 0.25 */
    world_run(&w, clip, 3, (Use[]){ UPDATE(a), UPDATE(b), READ(norm) });
    CHECK_NEAR(1 / (3 + 1e-6), world_get(&w, a, 3), 1e-7);
    CHECK_NEAR(0.5 / 3, world_get(&w, b, 0), 0x1p-8);
    world_fill(&w, norm, 0.25);
    double before = world_get(&w, a, 0);
    world_run(&w, clip, 3, (Use[]){ UPDATE(a), UPDATE(b), READ(norm) });
    CHECK_NEAR(before, world_get(&w, a, 0), 0);
    world_fill(&w, a, 1);
    world_fill(&w, norm, 0);
    w.env.facts.shard_n = 3, w.env.facts.shard_index = 1; /* parts of 2 */
    world_run(&w, sum, 2, (Use[]){ READ(a), UPDATE(norm) });
    CHECK_NEAR(2, world_get(&w, norm, 0), 0);
    w.env.facts.shard_n = 0;
    w.env.norm_counts = four_of_one, w.env.norm_owners = &a;
    world_run(&w, sum, 3, (Use[]){ READ(a), READ(b), UPDATE(norm) });
    CHECK_NEAR(2 + 4, world_get(&w, norm, 0), 0);
    world_close(&w);
}

int main(void)
{
    RUN(three_steps_are_those_of_pytorch);
    RUN(adamw_rounds_where_pytorch_rounds);
    RUN(bf16_parameters_are_rounded_copies_of_master_weights);
    RUN(a_rank_of_zero_updates_its_part);
    RUN(several_tensors_keep_their_state_apart);
    RUN(gradients_are_clipped_to_a_norm);
    return check_report();
}

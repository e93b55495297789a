/*
 * test_kernels_attention.c - attention, fused and in parts, against its definition: causal,
 * windowed, grouped heads, queries and keys apart, keys gathered over cp.
 */
#include "tests/unit/kernel_world.h"

typedef struct Case {
    uint64_t batch, heads, kv_heads, width, queries, keys, first, window;
    bool causal, apart; /* apart: q and k in a tensor of their own (or, cp, k and v) */
} Case;

static bool visible(const Case *a, uint64_t query, uint64_t key)
{
    uint64_t at = a->first + query;
    bool past = key <= at && (!a->window || at - key < a->window);
    bool future = key > at && !a->causal && (!a->window || key - at < a->window);
    return past || future;
}

/* Element of q (what 0), k (1) or v (2), by where the header says they lie. */
static double at(const Case *a, double *const *in, int what, uint64_t b, uint64_t head,
                 uint64_t row, uint64_t i)
{
    bool cp = a->keys != a->queries;
    uint64_t q = a->heads * a->width, kv = a->kv_heads * a->width;
    uint64_t group = a->heads / a->kv_heads, line = b * a->queries + row;
    if (what == 0)
        return in[0][line * (a->apart && !cp ? q + kv : q + 2 * kv) + head * a->width + i];
    i += head / group * a->width;
    if (cp) {
        line = (row / a->queries * a->batch + b) * a->queries + row % a->queries;
        return in[1][line * 2 * kv + (what == 2 ? kv : 0) + i];
    }
    if (what == 1)
        return in[0][line * (a->apart ? q + kv : q + 2 * kv) + q + i];
    return in[a->apart ? 1 : 0][line * (q + 2 * kv) + q + kv + i];
}

/* -> weights of one row; returns log sum exp */
static double weigh(const Case *a, double *const *in, uint64_t b, uint64_t h, uint64_t query,
                    double *p)
{
    double sum = 0;
    for (uint64_t k = 0; k < a->keys; k++) {
        double score = 0;
        for (uint64_t i = 0; i < a->width; i++)
            score += at(a, in, 0, b, h, query, i) * at(a, in, 1, b, h, k, i);
        p[k] = visible(a, query, k) ? exp(score / sqrt((double)a->width)) : 0;
        sum += p[k];
    }
    for (uint64_t k = 0; k < a->keys; k++)
        p[k] /= sum;
    return log(sum);
}

/* q, k, v -> y */
static void attend(const void *of, double *const *in, double *out)
{
    const Case *a = of;
    double *p = mem_zero(a->keys, sizeof *p);
    for (uint64_t b = 0; b < a->batch; b++)
        for (uint64_t h = 0; h < a->heads; h++)
            for (uint64_t query = 0; query < a->queries; query++) {
                weigh(a, in, b, h, query, p);
                for (uint64_t i = 0; i < a->width; i++) {
                    double sum = 0;
                    for (uint64_t k = 0; k < a->keys; k++)
                        sum += p[k] * at(a, in, 2, b, h, k, i);
                    out[((b * a->queries + query) * a->heads + h) * a->width + i] = sum;
                }
            }
    free(p);
}

static const Case cases[] = {
    { 1, 1, 1, 2, 3, 3, 0, 0, false, false },   /* full */
    { 2, 2, 2, 3, 5, 5, 0, 0, true, false },    /* causal */
    { 2, 4, 2, 3, 7, 7, 0, 0, true, false },    /* grouped heads */
    { 1, 3, 1, 2, 9, 9, 0, 4, true, false },    /* a window */
    { 1, 2, 1, 2, 9, 9, 0, 3, false, false },   /* to both sides */
    { 2, 2, 1, 4, 5, 5, 0, 0, true, true },     /* normed q and k apart */
    { 2, 4, 2, 3, 3, 9, 3, 0, true, true },     /* cp: second of three ranks */
    { 2, 2, 1, 3, 4, 8, 4, 3, true, true },     /* cp with a window */
    { 1, 1, 1, 2, 140, 140, 0, 0, true, false } /* more than a block of queries */
};

typedef struct Layer {
    World w;
    Case a;
    Ref ref;
    uint32_t x[2], dx[2], inputs, y, dy, lse;
    Op op;
} Layer;

static void layer_open(Layer *l, Case a, DType dtype)
{
    World *w = &l->w;
    bool cp = a.keys != a.queries;
    uint64_t rows = a.batch * a.queries, q = a.heads * a.width, kv = a.kv_heads * a.width;
    uint64_t all = q + 2 * kv;
    world_open(w);
    l->a = a;
    l->inputs = a.apart ? 2 : 1;
    for (uint32_t i = 0; i < l->inputs; i++) {
        uint64_t columns = i == 0 ? (a.apart && !cp ? q + kv : all) : (cp ? 2 * kv : all);
        uint64_t n = i == 1 && cp ? a.batch * a.keys : rows;
        l->x[i] = world_random(w, "x", dtype, n, columns);
        l->dx[i] = world_tensor(w, "dx", dtype, n, columns);
        world_fill(w, l->dx[i], 0); /* columns that are not written count as zero here */
    }
    l->y = world_tensor(w, "y", dtype, rows, q);
    l->dy = world_random(w, "dy", dtype, rows, q);
    l->lse = world_tensor(w, "lse", DTYPE_F32, rows, a.heads);
    l->ref = (Ref){ attend, &l->a, l->inputs, { l->x[0], l->x[1] }, rows * q };
    l->op = (Op){ .kind = OP_ATTENTION, .dtype = dtype };
    l->op.u.attention = (AttentionShape){ a.batch, a.heads,  a.kv_heads, a.queries, a.keys,
                                          a.width, a.causal, a.window,   0 };
    w->env.facts.heads = (uint32_t)a.heads;
    w->env.facts.kv_heads = (uint32_t)a.kv_heads;
    w->env.facts.head_dim = (uint32_t)a.width;
    w->env.facts.seq_len = (uint32_t)a.queries;
    w->env.facts.position_first = (uint32_t)a.first;
    w->env.facts.causal = a.causal;
    w->env.facts.window = (uint32_t)a.window;
    w->segment.name =
        intern(&w->g.names, a.window ? "windowed layer forward" : "layer forward");
}

static void run_fused(Layer *l)
{
    World *w = &l->w;
    bool two = l->inputs == 2;
    l->op.phase = PHASE_FORWARD;
    if (two)
        world_run(w, l->op, 4,
                  (Use[]){ READ(l->x[0]), READ(l->x[1]), WRITE(l->y), WRITE(l->lse) });
    else
        world_run(w, l->op, 3, (Use[]){ READ(l->x[0]), WRITE(l->y), WRITE(l->lse) });
    l->op.phase = PHASE_DGRAD;
    if (two)
        world_run(w, l->op, 7,
                  (Use[]){ READ(l->dy), READ(l->x[0]), READ(l->x[1]), READ(l->y), READ(l->lse),
                           WRITE(l->dx[0]), WRITE(l->dx[1]) });
    else
        world_run(
            w, l->op, 5,
            (Use[]){ READ(l->dy), READ(l->x[0]), READ(l->y), READ(l->lse), WRITE(l->dx[0]) });
}

static void check_layer(Layer *l, double tolerance)
{
    CHECK_REF(&l->w, &l->ref, l->y, tolerance);
    for (uint32_t i = 0; i < l->inputs && l->a.queries < 100; i++)
        CHECK_GRADIENT(&l->w, &l->ref, i, l->dy, l->dx[i], NULL, tolerance);
}

static void fused_attention_and_its_gradients_are_their_definition(void)
{
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        Layer l;
        layer_open(&l, cases[i], DTYPE_F32);
        run_fused(&l);
        check_layer(&l, 1e-5);
        RefValues v = ref_values(&l.w, &l.ref);
        double *p = mem_zero(cases[i].keys, sizeof *p);
        double lse = weigh(&l.a, v.in, 0, 0, 1, p);
        CHECK_NEAR(lse, world_get(&l.w, l.lse, l.a.heads), 1e-5);
        free(p);
        ref_free(&l.ref, &v);
        world_close(&l.w);
    }
}

static void attention_in_bf16_is_near(void)
{
    Layer l;
    layer_open(&l, cases[2], DTYPE_BF16);
    run_fused(&l);
    check_layer(&l, 0.03);
    world_close(&l.w);
}

/* What is written in part keeps the rest: the columns of q and k in the gradient of qkv. */
static void gradients_of_v_leave_the_rest_alone(void)
{
    for (uint32_t d = 0; d < 2; d++) {
        Layer l;
        layer_open(&l, cases[5], d ? DTYPE_BF16 : DTYPE_F32);
        world_fill(&l.w, l.dx[1], 3);
        run_fused(&l);
        CHECK_NEAR(3, world_get(&l.w, l.dx[1], 0), 0);
        CHECK_NEAR(3, world_get(&l.w, l.dx[1], 11), 0); /* q 8, k 4, v 4 columns */
        CHECK(world_get(&l.w, l.dx[1], 12) != 3);
        world_close(&l.w);
    }
}

/* ---- in parts ---- */

static Op math_op(const Layer *l, OpPhase phase, uint32_t part, uint64_t m, uint64_t n,
                  uint64_t k)
{
    Op op = { .kind = OP_MATMUL, .phase = phase, .dtype = l->op.dtype, .part = part };
    op.u.matmul = (MatmulShape){ .m = m, .n = n, .k = k, .batch = l->a.batch * l->a.heads };
    return op;
}

static Op softmax_op(const Layer *l, OpPhase phase, uint32_t part)
{
    const Case *a = &l->a;
    Op op = { .kind = OP_SOFTMAX, .phase = phase, .dtype = l->op.dtype, .part = part };
    op.u.rows = (RowsShape){ a->batch * a->heads * a->queries, a->keys };
    return op;
}

/* As sim/lower_expand.c takes it apart; over cp the keys are named where they are read. */
static void run_math(Layer *l)
{
    World *w = &l->w;
    const Case *a = &l->a;
    bool cp = a->keys != a->queries;
    uint64_t s = a->queries, keys = a->keys, d = a->width, n = a->batch * a->heads * s;
    uint32_t q = l->x[0], v = l->x[l->inputs - 1], k = cp ? v : q;
    uint32_t dq = l->dx[0], dv = l->dx[l->inputs - 1], dk = cp ? dv : dq;
    uint32_t scores = world_tensor(w, "scores", l->op.dtype, n, keys);
    uint32_t weights = world_tensor(w, "weights", l->op.dtype, n, keys);
    uint32_t dweights = world_tensor(w, "dweights", l->op.dtype, n, keys);
    Op first = math_op(l, PHASE_FORWARD, 0, s, keys, d);
    if (cp)
        world_run(w, first, 3, (Use[]){ READ(q), READ(k), WRITE(scores) });
    else
        world_run(w, first, 2, (Use[]){ READ(q), WRITE(scores) });
    world_run(w, softmax_op(l, PHASE_FORWARD, 1), 2, (Use[]){ READ(scores), WRITE(weights) });
    world_run(w, math_op(l, PHASE_FORWARD, 2, s, d, keys), 3,
              (Use[]){ READ(weights), READ(v), WRITE(l->y) });
    world_run(w, math_op(l, PHASE_DGRAD, 0, s, keys, d), 3,
              (Use[]){ READ(l->dy), READ(v), WRITE(dweights) });
    world_run(w, math_op(l, PHASE_DGRAD, 1, keys, d, s), 3,
              (Use[]){ READ(weights), READ(l->dy), WRITE(dv) });
    world_run(w, softmax_op(l, PHASE_DGRAD, 2), 2, (Use[]){ UPDATE(dweights), READ(weights) });
    world_run(w, math_op(l, PHASE_DGRAD, 3, s, d, keys), 3,
              (Use[]){ READ(dweights), READ(k), WRITE(dq) });
    world_run(w, math_op(l, PHASE_DGRAD, 4, keys, d, s), 3,
              (Use[]){ READ(dweights), READ(q), WRITE(dk) });
}

static void attention_in_parts_is_the_same(void)
{
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        Layer l;
        layer_open(&l, cases[i], DTYPE_F32);
        run_math(&l);
        check_layer(&l, 1e-5);
        world_close(&l.w);
    }
}

static void a_segment_without_a_window_has_none(void)
{
    Layer l;
    layer_open(&l, cases[3], DTYPE_F32);
    l.w.segment.name = intern(&l.w.g.names, "layer forward");
    run_math(&l);
    l.a.window = 0;
    check_layer(&l, 1e-5);
    world_close(&l.w);
}

static void equal_arguments_give_equal_bits(void)
{
    Layer l;
    layer_open(&l, cases[8], DTYPE_F32);
    run_fused(&l);
    double *y = world_doubles(&l.w, l.y), *dx = world_doubles(&l.w, l.dx[0]);
    run_fused(&l);
    CHECK_LIKE(&l.w, l.y, y, 0);
    CHECK_LIKE(&l.w, l.dx[0], dx, 0);
    free(y);
    free(dx);
    world_close(&l.w);
}

int main(void)
{
    RUN(fused_attention_and_its_gradients_are_their_definition);
    RUN(attention_in_bf16_is_near);
    RUN(gradients_of_v_leave_the_rest_alone);
    RUN(attention_in_parts_is_the_same);
    RUN(a_segment_without_a_window_has_none);
    RUN(equal_arguments_give_equal_bits);
    return check_report();
}

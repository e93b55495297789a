/*
 * test_kernels_norm.c - layer norm, RMS norm, norms of q and k, and batch norm with and
 * without other ranks, against their definitions.
 */
#include "tests/unit/kernel_world.h"

typedef struct Case {
    uint64_t rows, width;
    bool rms, add, bias, gain, shift;
} Case;

static const double eps = 1e-5;

/* y = gain xhat + shift of n numbers. */
static void norm_of(const double *x, uint64_t n, bool rms, const double *gain,
                    const double *shift, double *y)
{
    double mean = 0, variance = 0;
    for (uint64_t i = 0; i < n && !rms; i++)
        mean += x[i] / (double)n;
    for (uint64_t i = 0; i < n; i++)
        variance += (x[i] - mean) * (x[i] - mean) / (double)n;
    for (uint64_t i = 0; i < n; i++)
        y[i] = (x[i] - mean) / sqrt(variance + eps) * (gain ? gain[i] : 1) +
               (shift ? shift[i] : 0);
}

/* x gain shift -> y */
static void norm_rows(const void *of, double *const *in, double *out)
{
    const Case *a = of;
    for (uint64_t r = 0; r < a->rows; r++)
        norm_of(in[0] + r * a->width, a->width, a->rms, a->gain ? in[1] : NULL,
                a->shift ? in[2] : NULL, out + r * a->width);
}

typedef struct Layer {
    World w;
    Case a;
    Ref ref;
    uint32_t x, r, bias, gain, shift, s, y, stats, dy, ds, dx, dgain, dshift;
    Op op;
} Layer;

static void layer_open(Layer *l, Case a, DType dtype)
{
    World *w = &l->w;
    world_open(w);
    l->a = a;
    l->x = world_random(w, "x", dtype, a.rows, a.width);
    l->r = world_random(w, "r", dtype, a.rows, a.width);
    l->bias = world_slot(w, world_random(w, "out.bias", dtype, 1, a.width), SLOT_PARAM);
    l->gain = world_slot(w, world_random(w, "norm.weight", dtype, 1, a.width), SLOT_PARAM);
    l->shift = world_slot(w, world_random(w, "norm.bias", dtype, 1, a.width), SLOT_PARAM);
    l->s = world_tensor(w, "s", dtype, a.rows, a.width);
    l->y = world_tensor(w, "y", dtype, a.rows, a.width);
    l->stats = world_tensor(w, "stats", DTYPE_F32, a.rows, a.rms ? 1 : 2);
    l->dy = world_random(w, "dy", dtype, a.rows, a.width);
    l->ds = world_random(w, "ds", dtype, a.rows, a.width);
    l->dx = world_tensor(w, "dx", dtype, a.rows, a.width);
    l->dgain = world_slot(w, world_random(w, "norm.weight", dtype, 1, a.width), SLOT_GRAD);
    l->dshift = world_slot(w, world_random(w, "norm.bias", dtype, 1, a.width), SLOT_GRAD);
    l->op = (Op){ .kind = OP_NORM, .u.rows = { a.rows, a.width } };
    l->op.fn = a.rms ? (a.add ? FN_ADD_RMSNORM : FN_RMSNORM)
                     : (a.add ? FN_ADD_LAYERNORM : FN_LAYERNORM);
    /* The reference reads s where there is a sum, which the kernel writes. */
    l->ref = (Ref){
        norm_rows, &l->a, 3, { a.add ? l->s : l->x, l->gain, l->shift }, a.rows * a.width
    };
}

static void run_forward(Layer *l, bool keeps)
{
    Use uses[8];
    uint32_t n = 0;
    uses[n++] = READ(l->x);
    if (l->a.add)
        uses[n++] = READ(l->r);
    if (l->a.bias)
        uses[n++] = READ(l->bias);
    if (l->a.gain)
        uses[n++] = READ(l->gain);
    if (l->a.shift)
        uses[n++] = READ(l->shift);
    if (l->a.add && keeps)
        uses[n++] = WRITE(l->s);
    uses[n++] = WRITE(l->y);
    uses[n++] = WRITE(l->stats);
    l->op.phase = PHASE_FORWARD;
    world_run(&l->w, l->op, n, uses);
}

static void run_backward(Layer *l, ArgMode mode)
{
    Use uses[8] = { READ(l->dy), READ(l->a.add ? l->s : l->x), READ(l->stats) };
    uint32_t n = 3;
    if (l->a.gain)
        uses[n++] = READ(l->gain);
    if (l->a.add)
        uses[n++] = READ(l->ds);
    uses[n++] = WRITE(l->dx);
    if (l->a.gain)
        uses[n++] = (Use){ l->dgain, mode };
    if (l->a.shift)
        uses[n++] = (Use){ l->dshift, mode };
    l->op.phase = PHASE_DGRAD;
    world_run(&l->w, l->op, n, uses);
}

static void check_case(Case a)
{
    Layer l;
    layer_open(&l, a, DTYPE_F32);
    World *w = &l.w;
    run_forward(&l, true);
    for (uint64_t i = 0; a.add && i < a.rows * a.width; i++)
        CHECK_NEAR(world_get(w, l.x, i) + world_get(w, l.r, i) +
                       (a.bias ? world_get(w, l.bias, i % a.width) : 0),
                   world_get(w, l.s, i), 1e-5);
    CHECK_REF(w, &l.ref, l.y, 1e-5);
    double *dgain = world_doubles(w, l.dgain), *dshift = world_doubles(w, l.dshift);
    double *ds = world_doubles(w, l.ds);
    run_backward(&l, ARG_UPDATE);
    CHECK_GRADIENT(w, &l.ref, 0, l.dy, l.dx, a.add ? ds : NULL, 2e-5);
    if (a.gain)
        CHECK_GRADIENT(w, &l.ref, 1, l.dy, l.dgain, dgain, 1e-5);
    if (a.shift)
        CHECK_GRADIENT(w, &l.ref, 2, l.dy, l.dshift, dshift, 1e-5);
    run_backward(&l, ARG_WRITE);
    if (a.gain)
        CHECK_GRADIENT(w, &l.ref, 1, l.dy, l.dgain, NULL, 1e-5);
    double *y = world_doubles(w, l.y);
    run_forward(&l, false);
    CHECK_LIKE(w, l.y, y, 0); /* the sum need not be kept */
    free(y);
    free(ds);
    free(dgain);
    free(dshift);
    world_close(w);
}

static void norms_and_their_gradients_are_their_definition(void)
{
    static const Case cases[] = {
        { 3, 7, false, false, false, true, true },   { 3, 7, false, false, false, true, false },
        { 2, 5, false, false, false, false, false }, { 1, 33, true, false, false, true, false },
        { 2, 5, true, false, false, false, false },  { 3, 7, false, true, false, true, true },
        { 3, 7, false, true, true, true, true },     { 3, 7, true, true, false, true, false },
        { 3, 7, true, true, true, true, false },     { 2, 5, false, true, true, false, false },
    };
    for (size_t i = 0; i < ARRAY_N(cases); i++)
        check_case(cases[i]);
}

static void statistics_are_mean_and_inverse_deviation(void)
{
    Layer l;
    layer_open(&l, (Case){ 2, 4, false, false, false, true, true }, DTYPE_F32);
    for (uint64_t i = 0; i < 8; i++)
        world_set(&l.w, l.x, i, (double)(i % 4)); /* mean 1.5, variance 1.25 */
    run_forward(&l, false);
    CHECK_NEAR(1.5, world_get(&l.w, l.stats, 2), 1e-7);
    CHECK_NEAR(1 / sqrt(1.25 + eps), world_get(&l.w, l.stats, 3), 1e-6);
    world_close(&l.w);
}

/* The sum is rounded to bf16 before it is normed, whether it is kept or not. */
static void a_bf16_sum_is_rounded_before_its_norm(void)
{
    Layer l;
    layer_open(&l, (Case){ 2, 9, true, true, false, true, false }, DTYPE_BF16);
    run_forward(&l, true);
    double *y = world_doubles(&l.w, l.y);
    CHECK_REF(&l.w, &l.ref, l.y, 0x1p-8);
    run_forward(&l, false);
    CHECK_LIKE(&l.w, l.y, y, 0);
    free(y);
    world_close(&l.w);
}

/* ---- norms of q and k ---- */

enum { HEADS = 2, KV = 1, DIM = 4, QK = (HEADS + KV) * DIM, QKV = QK + DIM, ROWS = 3 };

/* qkv gain_q gain_k (with shifts: shift_q, shift_k) -> qk */
static void norm_heads(const void *of, double *const *in, double *out)
{
    bool rms = *(const bool *)of;
    for (uint64_t r = 0; r < ROWS; r++)
        for (uint64_t h = 0; h < HEADS + KV; h++) {
            bool k = h >= HEADS;
            norm_of(in[0] + r * QKV + h * DIM, DIM, rms, in[k ? 2 : 1],
                    rms ? NULL : in[k ? 4 : 3], out + r * QK + h * DIM);
        }
}

static void check_q_and_k(bool rms, DType dtype, bool named)
{
    World w;
    world_open(&w);
    w.env.facts.heads = HEADS, w.env.facts.kv_heads = KV;
    static const char *const names[] = { "q.weight", "q.bias", "k.weight", "k.bias" };
    uint32_t x = world_random(&w, "qkv", dtype, ROWS, QKV), p[4], d[4];
    for (uint32_t i = 0; i < 4; i++)
        p[i] = world_slot(&w, world_random(&w, names[i], dtype, 1, DIM), SLOT_PARAM);
    for (uint32_t i = 0; i < 4; i++)
        d[i] = world_slot(&w, world_tensor(&w, names[i], DTYPE_F32, 1, DIM), SLOT_GRAD);
    for (uint32_t i = 0; i < 4; i++)
        w.tensors[p[i]].tensor = rms ? i / 2 : i; /* in the block's layout */
    uint32_t y = world_tensor(&w, "qk", dtype, ROWS, QK);
    uint32_t stats = world_tensor(&w, "s", DTYPE_F32, ROWS, (HEADS + KV) * (rms ? 1 : 2));
    uint32_t dy = world_random(&w, "dy", dtype, ROWS, QK);
    uint32_t dx = world_tensor(&w, "dqkv", dtype, ROWS, QKV);
    world_fill(&w, dx, 5);
    Op op = { .kind = OP_NORM, .fn = rms ? FN_RMSNORM : FN_LAYERNORM, .u.rows = { ROWS, QK } };
    Ref ref = { norm_heads, &rms, 5, { x, p[0], p[2], p[1], p[3] }, ROWS * QK };
    if (rms)
        world_run(&w, op, 5,
                  (Use[]){ READ(x), READ(p[0]), READ(p[2]), WRITE(y), WRITE(stats) });
    else
        world_run(&w, op, 7,
                  (Use[]){ READ(x), READ(p[0]), READ(p[1]), READ(p[2]), READ(p[3]), WRITE(y),
                           WRITE(stats) });
    double tolerance = dtype == DTYPE_F32 ? 2e-5 : 0.05;
    CHECK_REF(&w, &ref, y, tolerance);
    op.phase = PHASE_DGRAD;
    Use uses[10] = { READ(dy), READ(x), READ(stats), READ(p[0]), READ(p[2]) };
    uint32_t n = named ? 5 : 4;
    uses[n++] = WRITE(dx);
    for (uint32_t i = 0; i < 4; i += rms ? 2 : 1)
        uses[n++] = WRITE(d[i]);
    world_run(&w, op, n, uses);
    double v_columns[ROWS * QKV] = { 0 };
    for (uint64_t i = 0; i < ROWS * QKV; i++)
        v_columns[i] = i % QKV >= QK ? 5 : 0; /* left alone */
    CHECK_GRADIENT(&w, &ref, 0, dy, dx, v_columns, tolerance);
    CHECK_GRADIENT(&w, &ref, 1, dy, d[0], NULL, tolerance);
    CHECK_GRADIENT(&w, &ref, 2, dy, d[2], NULL, tolerance);
    if (!rms)
        CHECK_GRADIENT(&w, &ref, 4, dy, d[3], NULL, tolerance);
    world_close(&w);
}

static void heads_of_q_and_k_are_normed_each_by_itself(void)
{
    check_q_and_k(true, DTYPE_F32, true);
    check_q_and_k(true, DTYPE_F32, false); /* the gain of k as forward named it */
    check_q_and_k(false, DTYPE_F32, false);
    check_q_and_k(true, DTYPE_BF16, false);
}

/* ---- batch norm ---- */

enum { SAMPLES = 6, CHANNELS = 3 };

static void norm_columns(const void *of, double *const *in, double *out)
{
    (void)of;
    for (uint64_t c = 0; c < CHANNELS; c++) {
        double x[SAMPLES], y[SAMPLES];
        for (uint64_t i = 0; i < SAMPLES; i++)
            x[i] = in[0][i * CHANNELS + c];
        norm_of(x, SAMPLES, false, NULL, NULL, y);
        for (uint64_t i = 0; i < SAMPLES; i++)
            out[i * CHANNELS + c] = y[i] * in[1][c] + in[2][c];
    }
}

typedef struct Batch {
    World w;
    Ref ref;
    uint32_t x, gain, shift, y, stats, dy, dx, dgain, dshift;
} Batch;

static void batch_open(Batch *b)
{
    World *w = &b->w;
    world_open(w);
    b->x = world_random(w, "x", DTYPE_F32, SAMPLES, CHANNELS);
    b->gain = world_random(w, "gain", DTYPE_F32, 1, CHANNELS);
    b->shift = world_random(w, "shift", DTYPE_F32, 1, CHANNELS);
    b->y = world_tensor(w, "y", DTYPE_F32, SAMPLES, CHANNELS);
    b->stats = world_tensor(w, "stats", DTYPE_F32, 2, CHANNELS);
    b->dy = world_random(w, "dy", DTYPE_F32, SAMPLES, CHANNELS);
    b->dx = world_tensor(w, "dx", DTYPE_F32, SAMPLES, CHANNELS);
    b->dgain = world_tensor(w, "dgain", DTYPE_F32, 1, CHANNELS);
    b->dshift = world_tensor(w, "dshift", DTYPE_F32, 1, CHANNELS);
    b->ref = (Ref){ norm_columns, NULL, 3, { b->x, b->gain, b->shift }, SAMPLES * CHANNELS };
}

static void check_batch(const Batch *b)
{
    CHECK_REF(&b->w, &b->ref, b->y, 1e-5);
    CHECK_GRADIENT(&b->w, &b->ref, 0, b->dy, b->dx, NULL, 2e-5);
    CHECK_GRADIENT(&b->w, &b->ref, 1, b->dy, b->dgain, NULL, 1e-5);
    CHECK_GRADIENT(&b->w, &b->ref, 2, b->dy, b->dshift, NULL, 1e-5);
}

static void a_batch_norm_is_its_definition(void)
{
    Batch b;
    batch_open(&b);
    Op op = { .kind = OP_BATCHNORM, .u.rows = { SAMPLES, CHANNELS } };
    world_run(&b.w, op, 5,
              (Use[]){ READ(b.x), READ(b.gain), READ(b.shift), WRITE(b.y), WRITE(b.stats) });
    op.phase = PHASE_DGRAD;
    world_run(&b.w, op, 7,
              (Use[]){ READ(b.dy), READ(b.x), READ(b.stats), READ(b.gain), WRITE(b.dx),
                       WRITE(b.dgain), WRITE(b.dshift) });
    check_batch(&b);
    world_close(&b.w);
}

/* Part i of a tensor of all samples: the same memory. */
static uint32_t half_of(World *w, uint32_t whole, uint32_t i)
{
    uint32_t t = world_tensor(w, "half", DTYPE_F32, 0, 0);
    w->tensors[t] = w->tensors[whole];
    w->tensors[t].elements /= 2;
    w->tensors[t].offset += i * w->tensors[whole].bytes / 2;
    return t;
}

/* Two ranks with half of the samples each, their collectives by hand. */
static void a_batch_norm_over_two_ranks_is_that_of_all_samples(void)
{
    Batch b;
    batch_open(&b);
    World *w = &b.w;
    w->env.facts.batchnorm_ranks = 2;
    Op op = { .kind = OP_BATCHNORM, .u.rows = { SAMPLES / 2, CHANNELS } };
    uint32_t all = world_tensor(w, "all", DTYPE_F32, 2, 2 * CHANNELS + 1);
    uint32_t sums = world_tensor(w, "sums", DTYPE_F32, 2, CHANNELS), stats[2];
    double total[2 * CHANNELS] = { 0 };
    for (uint32_t r = 0; r < 2; r++) {
        stats[r] = world_tensor(w, "stats", DTYPE_F32, 2, CHANNELS);
        world_run(w, op, 2, (Use[]){ READ(half_of(w, b.x, r)), WRITE(stats[r]) });
        for (uint64_t i = 0; i < 2 * CHANNELS; i++)
            world_set(w, all, r * (2 * CHANNELS + 1) + i, world_get(w, stats[r], i));
    }
    for (uint32_t r = 0; r < 2; r++) {
        world_run(w, op, 6,
                  (Use[]){ READ(half_of(w, b.x, r)), READ(b.gain), READ(b.shift), READ(all),
                           WRITE(half_of(w, b.y, r)), UPDATE(stats[r]) });
        op.phase = PHASE_DGRAD;
        ArgMode mode = r ? ARG_UPDATE : ARG_WRITE; /* as ddp sums over ranks */
        world_run(w, op, 6,
                  (Use[]){ READ(half_of(w, b.dy, r)),
                           READ(half_of(w, b.x, r)),
                           READ(stats[r]),
                           { b.dgain, mode },
                           { b.dshift, mode },
                           WRITE(sums) });
        op.phase = PHASE_FORWARD;
        for (uint64_t i = 0; i < 2 * CHANNELS; i++)
            total[i] += world_get(w, sums, i);
    }
    for (uint64_t i = 0; i < 2 * CHANNELS; i++)
        world_set(w, sums, i, total[i]);
    op.phase = PHASE_DGRAD;
    for (uint32_t r = 0; r < 2; r++)
        world_run(w, op, 6,
                  (Use[]){ READ(half_of(w, b.dy, r)), READ(half_of(w, b.x, r)), READ(stats[r]),
                           READ(b.gain), READ(sums), WRITE(half_of(w, b.dx, r)) });
    check_batch(&b);
    world_close(w);
}

int main(void)
{
    RUN(norms_and_their_gradients_are_their_definition);
    RUN(statistics_are_mean_and_inverse_deviation);
    RUN(a_bf16_sum_is_rounded_before_its_norm);
    RUN(heads_of_q_and_k_are_normed_each_by_itself);
    RUN(a_batch_norm_is_its_definition);
    RUN(a_batch_norm_over_two_ranks_is_that_of_all_samples);
    return check_report();
}

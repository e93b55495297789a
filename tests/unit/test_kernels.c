/*
 * test_kernels.c - matmuls and what treats every number by itself, by definition; what the
 * CPU refuses.
 */
#include "tests/unit/kernel_world.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- matmul ---- */

typedef struct Sizes {
    uint64_t m, n, k;
} Sizes;

/* x[m,k] w[n,k] b[n] -> y[m,n] */
static void linear(const void *of, double *const *in, double *out)
{
    const Sizes *s = of;
    for (uint64_t r = 0; r < s->m; r++)
        for (uint64_t c = 0; c < s->n; c++) {
            double sum = in[2][c];
            for (uint64_t i = 0; i < s->k; i++)
                sum += in[0][r * s->k + i] * in[1][c * s->k + i];
            out[r * s->n + c] = sum;
        }
}

typedef struct Linear {
    World w;
    Sizes s;
    Ref ref;
    uint32_t x, weight, bias, y;
    Op op;
} Linear;

static void linear_open(Linear *l, Sizes s, DType dtype)
{
    world_open(&l->w);
    l->s = s;
    l->x = world_random(&l->w, "x", dtype, s.m, s.k);
    l->weight = world_slot(&l->w, world_random(&l->w, "w", dtype, s.n, s.k), SLOT_PARAM);
    l->bias = world_slot(&l->w, world_random(&l->w, "w.bias", dtype, 1, s.n), SLOT_PARAM);
    l->y = world_tensor(&l->w, "y", dtype, s.m, s.n);
    l->ref = (Ref){ linear, &l->s, 3, { l->x, l->weight, l->bias }, s.m * s.n };
    l->op = (Op){ .kind = OP_MATMUL, .dtype = dtype };
    l->op.u.matmul =
        (MatmulShape){ .m = s.m, .n = s.n, .k = s.k, .batch = 1, .transpose_b = true };
}

static void a_linear_layer_is_its_definition(void)
{
    static const Sizes sizes[] = { { 1, 1, 1 }, { 3, 5, 7 }, { 33, 17, 65 } };
    for (size_t i = 0; i < ARRAY_N(sizes); i++) {
        Linear l;
        linear_open(&l, sizes[i], DTYPE_F32);
        l.op.fn = FN_BIAS;
        world_run(&l.w, l.op, 4,
                  (Use[]){ READ(l.x), READ(l.weight), READ(l.bias), WRITE(l.y) });
        CHECK_REF(&l.w, &l.ref, l.y, 1e-5);
        world_fill(&l.w, l.bias, 0);
        l.op.fn = FN_NONE;
        world_run(&l.w, l.op, 3, (Use[]){ READ(l.x), READ(l.weight), WRITE(l.y) });
        CHECK_REF(&l.w, &l.ref, l.y, 1e-5);
        world_close(&l.w);
    }
}

static void gradients_of_a_linear_layer_are_differences(void)
{
    Linear l;
    Sizes s = { 4, 6, 5 };
    linear_open(&l, s, DTYPE_F32);
    World *w = &l.w;
    uint32_t dy = world_random(w, "dy", DTYPE_F32, s.m, s.n);
    uint32_t dx = world_tensor(w, "dx", DTYPE_F32, s.m, s.k);
    uint32_t dw = world_slot(w, world_tensor(w, "dw", DTYPE_F32, s.n, s.k), SLOT_GRAD);
    uint32_t db = world_slot(w, world_tensor(w, "db", DTYPE_F32, 1, s.n), SLOT_GRAD);
    Op dgrad = { .kind = OP_MATMUL, .phase = PHASE_DGRAD };
    dgrad.u.matmul = (MatmulShape){ .m = s.m, .n = s.k, .k = s.n, .batch = 1 };
    world_run(w, dgrad, 3, (Use[]){ READ(dy), READ(l.weight), WRITE(dx) });
    CHECK_GRADIENT(w, &l.ref, 0, dy, dx, NULL, 1e-5);
    Op wgrad = { .kind = OP_MATMUL, .phase = PHASE_WGRAD, .fn = FN_BIAS };
    wgrad.u.matmul = (MatmulShape){ .m = s.n, .n = s.k, .k = s.m, .batch = 1 };
    world_run(w, wgrad, 4, (Use[]){ READ(dy), READ(l.x), WRITE(dw), WRITE(db) });
    CHECK_GRADIENT(w, &l.ref, 1, dy, dw, NULL, 1e-5);
    CHECK_GRADIENT(w, &l.ref, 2, dy, db, NULL, 1e-5);
    double *dw_before = world_doubles(w, dw), *db_before = world_doubles(w, db);
    world_run(w, wgrad, 4, (Use[]){ READ(dy), READ(l.x), UPDATE(dw), UPDATE(db) });
    CHECK_GRADIENT(w, &l.ref, 1, dy, dw, dw_before, 1e-5);
    CHECK_GRADIENT(w, &l.ref, 2, dy, db, db_before, 1e-5);
    free(dw_before);
    free(db_before);
    world_close(w);
}

static double gelu_of(double x)
{
    return x / 2 * (1 + erf(x / sqrt(2)));
}

static void epilogues_activate_what_is_stored(void)
{
    static const OpFn fns[] = { FN_BIAS_GELU, FN_BIAS_RELU };
    for (size_t i = 0; i < ARRAY_N(fns); i++) {
        Linear l;
        linear_open(&l, (Sizes){ 5, 9, 4 }, DTYPE_BF16);
        uint32_t pre = world_tensor(&l.w, "pre", DTYPE_BF16, 5, 9);
        l.op.fn = fns[i];
        world_run(&l.w, l.op, 5,
                  (Use[]){ READ(l.x), READ(l.weight), READ(l.bias), WRITE(pre), WRITE(l.y) });
        CHECK_REF(&l.w, &l.ref, pre, 0x1p-8);
        double *want = world_doubles(&l.w, pre);
        for (uint64_t k = 0; k < 45; k++)
            want[k] = fns[i] == FN_BIAS_GELU ? gelu_of(want[k]) : fmax(0, want[k]);
        CHECK_LIKE(&l.w, l.y, want, fns[i] == FN_BIAS_GELU ? 0x1p-8 : 0);
        double *both = world_doubles(&l.w, l.y);
        world_run(&l.w, l.op, 4,
                  (Use[]){ READ(l.x), READ(l.weight), READ(l.bias), WRITE(l.y) });
        CHECK_LIKE(&l.w, l.y, both, 0); /* the same without pre */
        free(both);
        free(want);
        world_close(&l.w);
    }
}

/* Products of small integers are exact: only the last rounding is left. */
static void a_bf16_matmul_rounds_once_to_nearest_even(void)
{
    Linear l;
    linear_open(&l, (Sizes){ 1, 4, 2 }, DTYPE_BF16);
    world_set(&l.w, l.x, 0, 1);
    world_set(&l.w, l.x, 1, 1);
    static const double tails[] = { 1, 3, 2, -1 };
    static const double want[] = { 256, 260, 258, 255 }; /* 257 and 259 are ties */
    for (uint64_t i = 0; i < 4; i++) {
        world_set(&l.w, l.weight, 2 * i, 256);
        world_set(&l.w, l.weight, 2 * i + 1, tails[i]);
    }
    world_run(&l.w, l.op, 3, (Use[]){ READ(l.x), READ(l.weight), WRITE(l.y) });
    CHECK_LIKE(&l.w, l.y, want, 0);
    world_close(&l.w);
}

static void f32_weights_of_a_bf16_matmul_are_rounded_first(void)
{
    Linear l;
    linear_open(&l, (Sizes){ 1, 1, 1 }, DTYPE_F32);
    world_set(&l.w, l.x, 0, 1);
    world_set(&l.w, l.weight, 0, 1 + 0x1p-10);
    l.op.dtype = DTYPE_BF16;
    world_run(&l.w, l.op, 3, (Use[]){ READ(l.x), READ(l.weight), WRITE(l.y) });
    CHECK_NEAR(1, world_get(&l.w, l.y, 0), 0);
    l.op.dtype = DTYPE_TF32; /* counts as f32 */
    world_run(&l.w, l.op, 3, (Use[]){ READ(l.x), READ(l.weight), WRITE(l.y) });
    CHECK_NEAR(1 + 0x1p-10, world_get(&l.w, l.y, 0), 0);
    world_close(&l.w);
}

/* From now on this process gets so much more address space and no more. */
static bool limit_growth(uint64_t bytes)
{
    unsigned long long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    bool ok = f && fscanf(f, "%llu", &pages) == 1;
    if (f)
        fclose(f);
    rlim_t most = (rlim_t)(pages * (uint64_t)sysconf(_SC_PAGESIZE) + bytes);
    return ok && setrlimit(RLIMIT_AS, &(struct rlimit){ most, most }) == 0;
}

/* OpenBLAS would ask again and again for a buffer that it cannot have.  The first of all tests: it
 * keeps the buffer of any product before. */
static void loading_takes_the_buffer_that_products_need(void)
{
    int how = 0, pid = fork();
    if (pid == 0) {
        Err err = { 0 };
        Linear l;
        linear_open(&l, (Sizes){ 256, 256, 256 }, DTYPE_F32);
        alarm(30);
        if (!gemm_load(&err) || !limit_growth(96 * MIB))
            _exit(1);
        world_run(&l.w, l.op, 4,
                  (Use[]){ READ(l.x), READ(l.weight), READ(l.bias), WRITE(l.y) });
        _exit(0);
    }
    CHECK(waitpid(pid, &how, 0) == pid);
    CHECK(WIFEXITED(how) && WEXITSTATUS(how) == 0);
}

static void equal_arguments_give_equal_bits(void)
{
    Linear l;
    linear_open(&l, (Sizes){ 37, 41, 133 }, DTYPE_F32);
    uint32_t again = world_tensor(&l.w, "again", DTYPE_F32, 37, 41);
    l.op.fn = FN_BIAS_GELU;
    for (uint32_t i = 0; i < 2; i++)
        world_run(&l.w, l.op, 4,
                  (Use[]){ READ(l.x), READ(l.weight), READ(l.bias), WRITE(i ? again : l.y) });
    CHECK(memcmp(l.w.env.arena + l.w.tensors[l.y].offset,
                 l.w.env.arena + l.w.tensors[again].offset, 37 * 41 * 4) == 0);
    world_close(&l.w);
}

/* ---- activations ---- */

typedef struct Curve {
    OpFn fn;
    bool tanh;
} Curve;

static double curve_at(const Curve *c, double x)
{
    switch (c->fn) {
    case FN_RELU:
        return fmax(0, x);
    case FN_RELU2:
        return fmax(0, x) * fmax(0, x);
    case FN_SILU:
    case FN_GATED_SILU:
        return x / (1 + exp(-x));
    default:
        if (!c->tanh)
            return gelu_of(x);
        return x / 2 * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
    }
}

enum { ROWS = 3, WIDTH = 21 };

static bool gated(OpFn fn)
{
    return fn == FN_GATED_SILU || fn == FN_GATED_GELU;
}

static void curve_of_rows(const void *of, double *const *in, double *out)
{
    const Curve *c = of;
    for (uint64_t r = 0; r < ROWS; r++)
        for (uint64_t i = 0; i < WIDTH; i++) {
            const double *x = in[0] + r * WIDTH * (gated(c->fn) ? 2 : 1);
            out[r * WIDTH + i] = curve_at(c, x[i]) * (gated(c->fn) ? x[WIDTH + i] : 1);
        }
}

static void check_curve(Curve c)
{
    World w;
    world_open(&w);
    w.env.facts.gelu_tanh = c.tanh;
    uint64_t columns = gated(c.fn) ? 2 * WIDTH : WIDTH;
    uint32_t x = world_random(&w, "x", DTYPE_F32, ROWS, columns);
    for (uint64_t i = 0; i < ROWS * columns; i++)
        world_set(&w, x, i, 6 * world_noise(x, i));
    uint32_t y = world_tensor(&w, "y", DTYPE_F32, ROWS, WIDTH);
    uint32_t dy = world_random(&w, "dy", DTYPE_F32, ROWS, WIDTH);
    uint32_t dx = world_tensor(&w, "dx", DTYPE_F32, ROWS, columns);
    Op op = { .kind = OP_ACTIVATION, .fn = c.fn, .u.rows = { ROWS, WIDTH } };
    Ref ref = { curve_of_rows, &c, 1, { x }, ROWS * WIDTH };
    world_run(&w, op, 2, (Use[]){ READ(x), WRITE(y) });
    CHECK_REF(&w, &ref, y, 1e-6);
    op.phase = PHASE_DGRAD;
    world_run(&w, op, 3, (Use[]){ READ(dy), READ(c.fn == FN_RELU ? y : x), WRITE(dx) });
    CHECK_GRADIENT(&w, &ref, 0, dy, dx, NULL, 2e-6);
    world_close(&w);
}

static void activations_and_their_slopes_are_their_definition(void)
{
    static const Curve curves[] = { { FN_GELU, false },       { FN_GELU, true },
                                    { FN_RELU, false },       { FN_RELU2, false },
                                    { FN_SILU, false },       { FN_GATED_SILU, false },
                                    { FN_GATED_GELU, false }, { FN_GATED_GELU, true } };
    for (size_t i = 0; i < ARRAY_N(curves); i++)
        check_curve(curves[i]);
}

static void a_bias_joins_an_activation(void)
{
    World w;
    world_open(&w);
    uint32_t x = world_random(&w, "x", DTYPE_F32, 2, 3),
             b = world_random(&w, "b", DTYPE_F32, 1, 3);
    uint32_t y = world_tensor(&w, "y", DTYPE_F32, 2, 3);
    Op op = { .kind = OP_ACTIVATION, .fn = FN_GELU, .u.rows = { 2, 3 } };
    world_run(&w, op, 3, (Use[]){ READ(x), READ(b), WRITE(y) });
    double want[6];
    for (uint64_t i = 0; i < 6; i++)
        want[i] = gelu_of(world_get(&w, x, i) + world_get(&w, b, i % 3));
    CHECK_LIKE(&w, y, want, 1e-6);
    op.fn = FN_RELU;
    for (uint64_t i = 0; i < 6; i++)
        want[i] = fmax(0, world_get(&w, x, i));
    world_run(&w, op, 1, (Use[]){ UPDATE(x) });
    CHECK_LIKE(&w, x, want, 0);
    world_close(&w);
}

/* ---- sums and biases ---- */

static void sums_go_where_they_are_updated(void)
{
    World w;
    world_open(&w);
    uint32_t a = world_random(&w, "a", DTYPE_F32, 2, 3),
             b = world_random(&w, "b", DTYPE_F32, 2, 3);
    uint32_t c = world_tensor(&w, "c", DTYPE_BF16, 2, 3),
             d = world_tensor(&w, "d", DTYPE_F32, 2, 3);
    uint32_t bias = world_random(&w, "x.bias", DTYPE_F32, 1, 3);
    Op op = { .kind = OP_ADD, .u.elements = 6 };
    double sum[6], biased[6], twice[6];
    for (uint64_t i = 0; i < 6; i++) {
        sum[i] = world_get(&w, a, i) + world_get(&w, b, i);
        biased[i] = sum[i] + world_get(&w, bias, i % 3);
        twice[i] = sum[i] + world_get(&w, b, i);
    }
    world_run(&w, op, 3, (Use[]){ READ(a), READ(b), WRITE(d) });
    CHECK_LIKE(&w, d, sum, 1e-6);
    world_run(&w, op, 4, (Use[]){ READ(a), READ(b), READ(bias), WRITE(d) });
    CHECK_LIKE(&w, d, biased, 1e-6);
    world_fill(&w, c, 1);
    world_run(&w, op, 4, (Use[]){ UPDATE(a), UPDATE(c), READ(b), READ(b) });
    CHECK_LIKE(&w, a, sum, 1e-6);
    CHECK_NEAR(1 + world_get(&w, b, 4), world_get(&w, c, 4), 0x1p-8);
    world_run(&w, op, 2, (Use[]){ READ(b), UPDATE(a) });
    CHECK_LIKE(&w, a, twice, 1e-6);
    world_close(&w);
}

static void a_bias_is_added_to_rows_and_its_gradient_sums_them(void)
{
    World w;
    world_open(&w);
    uint32_t y = world_random(&w, "y", DTYPE_BF16, 4, 3),
             b = world_random(&w, "b", DTYPE_F32, 1, 3);
    uint32_t db = world_tensor(&w, "db", DTYPE_F32, 1, 3);
    Op op = { .kind = OP_BIAS, .u.rows = { 4, 3 } };
    double *want = world_doubles(&w, y), sums[3] = { 0 };
    for (uint64_t i = 0; i < 12; i++)
        want[i] += world_get(&w, b, i % 3);
    world_run(&w, op, 2, (Use[]){ UPDATE(y), READ(b) });
    CHECK_LIKE(&w, y, want, 0x1p-8);
    for (uint64_t i = 0; i < 12; i++)
        sums[i % 3] += world_get(&w, y, i);
    op.phase = PHASE_WGRAD;
    world_run(&w, op, 2, (Use[]){ READ(y), WRITE(db) });
    CHECK_LIKE(&w, db, sums, 1e-6);
    for (uint64_t i = 0; i < 3; i++)
        sums[i] *= 2;
    world_run(&w, op, 2, (Use[]){ READ(y), UPDATE(db) });
    CHECK_LIKE(&w, db, sums, 1e-6);
    free(want);
    world_close(&w);
}

/* ---- rotary positions ---- */

static void rope_turns_pairs_by_their_position(void)
{
    enum { SEQ = 3, SAMPLES = 2, HEADS = 2, KV = 1, DIM = 4, FIRST = 5 };
    World w;
    world_open(&w);
    w.env.facts.heads = HEADS, w.env.facts.kv_heads = KV, w.env.facts.head_dim = DIM;
    w.env.facts.seq_len = SEQ, w.env.facts.position_first = FIRST;
    uint64_t columns = (HEADS + 2 * KV) * DIM, rows = SEQ * SAMPLES;
    uint32_t x = world_random(&w, "qkv", DTYPE_F32, rows, columns);
    double *before = world_doubles(&w, x), *want = world_doubles(&w, x);
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t h = 0; h < HEADS + KV; h++)
            for (uint64_t i = 0; i < DIM / 2; i++) {
                double angle = (double)(FIRST + r % SEQ) * pow(10000, -2.0 * (double)i / DIM);
                double *pair = want + r * columns + h * DIM + i, a = pair[0], b = pair[DIM / 2];
                pair[0] = a * cos(angle) - b * sin(angle);
                pair[DIM / 2] = a * sin(angle) + b * cos(angle);
            }
    Op op = { .kind = OP_ROPE, .u.rows = { rows, columns } };
    world_run(&w, op, 1, (Use[]){ UPDATE(x) });
    CHECK_LIKE(&w, x, want, 1e-6);
    op.phase = PHASE_DGRAD; /* a rotation's transpose turns back */
    world_run(&w, op, 1, (Use[]){ UPDATE(x) });
    CHECK_LIKE(&w, x, before, 1e-6);
    free(before);
    free(want);
    world_close(&w);
}

/* ---- fills, copies, casts ---- */

static void copies_flatten_split_and_round(void)
{
    World w;
    world_open(&w);
    uint32_t a = world_random(&w, "a", DTYPE_F32, 1, 3),
             b = world_random(&w, "b", DTYPE_F32, 1, 2);
    uint32_t flat = world_tensor(&w, "flat", DTYPE_F32, 1, 5);
    uint32_t half = world_tensor(&w, "half", DTYPE_BF16, 1, 3);
    Tensor tensors[] = { { .bytes = 12 }, { .bytes = 8 } };
    Layout layout = { 0, 2 };
    w.g.tensors = tensors, w.g.layouts = &layout, w.segment.layout[SLOT_DATA] = 0;
    Op op = { .kind = OP_COPY };
    world_run(&w, op, 3, (Use[]){ READ(a), READ(b), WRITE(flat) });
    CHECK_NEAR(world_get(&w, a, 2), world_get(&w, flat, 2), 0);
    CHECK_NEAR(world_get(&w, b, 1), world_get(&w, flat, 4), 0);
    double *want = world_doubles(&w, b);
    world_fill(&w, b, 0);
    world_slot(&w, b, SLOT_DATA);
    w.tensors[b].tensor = 1;
    world_run(&w, op, 2, (Use[]){ READ(flat), WRITE(b) });
    CHECK_LIKE(&w, b, want, 0);
    free(want);
    world_set(&w, a, 0, 1 + 0x1p-8); /* a tie, to even */
    world_set(&w, a, 1, 1 + 0x3p-8);
    world_set(&w, a, 2, 1e39);
    world_run(&w, (Op){ .kind = OP_CAST }, 2, (Use[]){ READ(a), WRITE(half) });
    CHECK_NEAR(1, world_get(&w, half, 0), 0);
    CHECK_NEAR(1 + 0x1p-6, world_get(&w, half, 1), 0);
    CHECK(isinf(world_get(&w, half, 2)));
    world_run(&w, (Op){ .kind = OP_FILL }, 1, (Use[]){ WRITE(half) });
    CHECK_NEAR(0, world_get(&w, half, 2), 0);
    world_close(&w);
}

/* ZeRO: 5 elements over 2 ranks are parts of 3, the last one padded. */
static void buffers_of_zero_hold_parts(void)
{
    World w;
    world_open(&w);
    w.env.facts.shard_n = 2, w.env.facts.shard_index = 1;
    uint32_t grad = world_slot(&w, world_random(&w, "g", DTYPE_F32, 1, 5), SLOT_GRAD);
    uint32_t data = world_slot(&w, world_tensor(&w, "g", DTYPE_BF16, 1, 6), SLOT_DATA);
    uint32_t shard = world_slot(&w, world_tensor(&w, "g", DTYPE_F32, 1, 3), SLOT_GRAD_SHARD);
    uint32_t param = world_slot(&w, world_random(&w, "p", DTYPE_BF16, 1, 5), SLOT_PARAM);
    Op in = { .kind = OP_CAST, .phase = PHASE_UPDATE, .u.elements = 5 };
    world_run(&w, in, 2, (Use[]){ READ(grad), WRITE(data) });
    CHECK_NEAR(world_get(&w, grad, 4), world_get(&w, data, 4), 0x1p-8);
    CHECK_NEAR(0, world_get(&w, data, 5), 0); /* the padding */
    for (uint64_t i = 0; i < 6; i++)
        world_set(&w, data, i, 10 + (double)i);
    Op part = { .kind = OP_CAST, .phase = PHASE_UPDATE, .u.elements = 3 };
    double first = world_get(&w, grad, 2);
    world_run(&w, part, 2, (Use[]){ READ(data), UPDATE(grad) });
    CHECK_NEAR(first, world_get(&w, grad, 2), 0);
    CHECK_NEAR(13, world_get(&w, grad, 3), 0);
    CHECK_NEAR(14, world_get(&w, grad, 4), 0);
    world_run(&w, part, 2, (Use[]){ READ(data), WRITE(shard) });
    CHECK_LIKE(&w, shard, ((double[]){ 13, 14, 15 }), 0);
    Op add = { .kind = OP_ADD, .phase = PHASE_UPDATE, .u.elements = 3 };
    world_run(&w, add, 2, (Use[]){ READ(data), UPDATE(shard) });
    CHECK_LIKE(&w, shard, ((double[]){ 26, 28, 30 }), 0);
    world_fill(&w, data, 0);
    part.kind = OP_COPY;
    world_run(&w, part, 2, (Use[]){ READ(param), WRITE(data) });
    CHECK_NEAR(0, world_get(&w, data, 2), 0);
    CHECK_NEAR(world_get(&w, param, 3), world_get(&w, data, 3), 0);
    CHECK_NEAR(world_get(&w, param, 4), world_get(&w, data, 4), 0);
    Op out = { .kind = OP_COPY, .phase = PHASE_UPDATE, .u.elements = 5 };
    world_fill(&w, data, 7);
    world_run(&w, out, 2, (Use[]){ READ(data), WRITE(param) });
    CHECK_LIKE(&w, param, ((double[]){ 7, 7, 7, 7, 7 }), 0);
    world_close(&w);
}

/* ---- what the CPU refuses ---- */

static void check_refusal(Op op, DType dtype, const char *name, const char *text)
{
    World w;
    Err err = { 0 };
    world_open(&w);
    op.name = intern(&w.g.names, name);
    uint32_t x = world_tensor(&w, "x", dtype, 1, 1);
    world_task(&w, op, 1, (Use[]){ UPDATE(x) });
    CHECK(!kernels_check(&w.p, &err));
    CHECK_ERR_TEXT(&err, text);
    world_close(&w);
}

static void what_has_no_kernel_is_refused_in_a_sentence(void)
{
    check_refusal((Op){ .kind = OP_CONV }, DTYPE_F32, "conv1",
                  "op 'conv1' (conv) cannot run: the cpu backend has no convolutions");
    check_refusal((Op){ .kind = OP_CAST, .dtype = DTYPE_FP8 }, DTYPE_FP8, "quantize", "in fp8");
    check_refusal((Op){ .kind = OP_SCALE }, DTYPE_F32, "dropout", "no dropout");
    check_refusal((Op){ .kind = OP_ATTENTION }, DTYPE_F32, "attention", "in a ring");
    Op scores = { .kind = OP_MATMUL, .u.matmul = { .m = 2, .n = 4 } };
    check_refusal(scores, DTYPE_F32, "attention", "unfused attention over cp");
    World w;
    Err err = { 0 };
    world_open(&w);
    world_task(&w, (Op){ .kind = OP_H2D }, 0, NULL);
    world_task(&w, (Op){ .kind = OP_ALL_REDUCE }, 0, NULL);
    world_task(&w, (Op){ .kind = OP_RELEASE }, 0, NULL);
    CHECK(kernels_check(&w.p, &err));
    world_close(&w);
}

int main(void)
{
    RUN(loading_takes_the_buffer_that_products_need);
    RUN(a_linear_layer_is_its_definition);
    RUN(gradients_of_a_linear_layer_are_differences);
    RUN(epilogues_activate_what_is_stored);
    RUN(a_bf16_matmul_rounds_once_to_nearest_even);
    RUN(f32_weights_of_a_bf16_matmul_are_rounded_first);
    RUN(equal_arguments_give_equal_bits);
    RUN(activations_and_their_slopes_are_their_definition);
    RUN(a_bias_joins_an_activation);
    RUN(sums_go_where_they_are_updated);
    RUN(a_bias_is_added_to_rows_and_its_gradient_sums_them);
    RUN(rope_turns_pairs_by_their_position);
    RUN(copies_flatten_split_and_round);
    RUN(buffers_of_zero_hold_parts);
    RUN(what_has_no_kernel_is_refused_in_a_sentence);
    return check_report();
}

/*
 * test_cuda_kernels.c - CUDA kernels beside the CPU's, on the shapes that have paths of their own.
 *
 * The twins of tests/unit/test_kernels*.c run every kind of op on small, odd sizes.  Here: what
 * is wide enough for 16-byte accesses, several blocks, several warps or registers for a row,
 * many rows of partial sums, 16-bit storage, and attention on tensor cores.  world_run compares
 * (tests/on_cpu/twin.h); inputs are random, and memory that was not written is no zeros.
 */
#include "exec/cuda_gemm.h"
#include "tests/unit/kernel_world.h"

/* ---- attention on tensor cores ---- */

typedef struct Heads {
    DType dtype;
    uint64_t batch, heads, kv_heads, queries, keys, width, window;
    bool causal;
    uint32_t position;
} Heads;

static Op attention_op(const Heads *h)
{
    return (Op){ .kind = OP_ATTENTION,
                 .dtype = h->dtype,
                 .u.attention = { h->batch, h->heads, h->kv_heads, h->queries, h->keys,
                                  h->width, h->causal, h->window, 0 } };
}

/* loud: what queries, and so all scores, are multiplied by. */
static void check_attention(const Heads *h, double loud)
{
    World w;
    world_open(&w);
    uint64_t rows = h->batch * h->queries, q = h->heads * h->width;
    uint64_t columns = q + 2 * h->kv_heads * h->width;
    bool split = h->keys != h->queries;
    w.env.facts.position_first = h->position;
    uint32_t qkv = world_random(&w, "qkv", h->dtype, rows, columns);
    for (uint64_t i = 0; i < rows * columns; i++)
        if (i % columns < q)
            world_set(&w, qkv, i, loud * world_noise(qkv, i));
    uint32_t kv = world_random(&w, "kv", h->dtype, h->batch * h->keys, columns - q);
    uint32_t y = world_tensor(&w, "y", h->dtype, rows, q);
    uint32_t lse = world_tensor(&w, "lse", DTYPE_F32, rows, h->heads);
    uint32_t dy = world_random(&w, "dy", h->dtype, rows, q);
    uint32_t dqkv = world_random(&w, "dqkv", h->dtype, rows, columns);
    uint32_t dkv = world_tensor(&w, "dkv", h->dtype, h->batch * h->keys, columns - q);
    Op op = attention_op(h);
    if (split)
        world_run(&w, op, 4, (Use[]){ READ(qkv), READ(kv), WRITE(y), WRITE(lse) });
    else
        world_run(&w, op, 3, (Use[]){ READ(qkv), WRITE(y), WRITE(lse) });
    op.phase = PHASE_DGRAD;
    if (split)
        world_run(&w, op, 7,
                  (Use[]){ READ(dy), READ(qkv), READ(kv), READ(y), READ(lse), WRITE(dqkv),
                           WRITE(dkv) });
    else
        world_run(&w, op, 5, (Use[]){ READ(dy), READ(qkv), READ(y), READ(lse), WRITE(dqkv) });
    world_close(&w);
}

static void attention_on_tensor_cores(void)
{
    static const Heads all[] = {
        { DTYPE_BF16, 1, 1, 1, 64, 64, 64, 0, true, 0 },
        { DTYPE_BF16, 1, 2, 1, 200, 200, 64, 0, true, 0 }, /* tiles without a mask */
        { DTYPE_BF16, 1, 1, 1, 140, 140, 128, 0, true, 0 },
        { DTYPE_F16, 1, 2, 1, 80, 80, 64, 0, true, 0 },     /* a part of a tile; GQA */
        { DTYPE_BF16, 2, 2, 2, 33, 33, 128, 0, false, 0 },  /* less than one */
        { DTYPE_BF16, 1, 1, 1, 150, 150, 64, 40, true, 0 }, /* windows over tiles */
        { DTYPE_F16, 1, 1, 1, 100, 100, 128, 20, false, 0 },
        { DTYPE_BF16, 2, 2, 1, 48, 96, 64, 0, true, 48 },    /* keys of two ranks of cp */
        { DTYPE_BF16, 2, 1, 1, 96, 288, 128, 0, true, 96 },  /* of three; tiles in two chunks */
        { DTYPE_BF16, 2, 1, 1, 128, 256, 64, 0, true, 128 }, /* a tile lies in one chunk */
        { DTYPE_F16, 2, 2, 1, 64, 192, 128, 0, false, 0 },
        { DTYPE_BF16, 1, 3, 1, 290, 290, 64, 0, true, 0 },  /* three blocks, three heads */
        { DTYPE_F16, 1, 2, 1, 160, 160, 128, 0, true, 0 },  /* a warp none of whose rows sees */
        { DTYPE_BF16, 1, 2, 2, 257, 257, 64, 0, false, 0 }, /* one row more than two blocks */
        { DTYPE_F16, 1, 1, 1, 270, 270, 64, 1, true, 0 },   /* only themselves */
        { DTYPE_BF16, 1, 2, 1, 200, 200, 128, 70, true, 0 }, /* tiles before a window begins */
        { DTYPE_BF16, 1, 1, 1, 200, 200, 64, 50, false, 0 },
        { DTYPE_BF16, 2, 2, 1, 70, 140, 64, 30, true, 70 }, /* a window over chunks */
        { DTYPE_F16, 1, 2, 1, 1, 1, 128, 0, true, 0 },
    };
    for (size_t i = 0; i < ARRAY_N(all); i++)
        check_attention(&all[i], 1);
}

/* A new maximum counts at once only where it is far above the old one. */
static void attention_whose_maxima_rise(void)
{
    static const Heads all[] = { { DTYPE_F16, 1, 1, 1, 200, 200, 64, 0, true, 0 },
                                 { DTYPE_BF16, 1, 1, 1, 130, 130, 128, 0, false, 0 } };
    for (size_t i = 0; i < ARRAY_N(all); i++)
        check_attention(&all[i], 20);
}

static void attention_of_other_widths(void)
{
    static const Heads all[] = {
        { DTYPE_BF16, 1, 2, 1, 40, 40, 24, 0, true, 0 },
        { DTYPE_F32, 1, 2, 2, 40, 40, 64, 9, true, 0 },
        { DTYPE_F32, 1, 1, 1, 20, 20, 160, 0, false, 0 },
        { DTYPE_F32, 2, 4, 2, 100, 100, 64, 0, true, 0 },  /* blocks, heads and samples; GQA */
        { DTYPE_F32, 1, 2, 2, 65, 65, 64, 0, false, 0 },   /* one row more than two blocks */
        { DTYPE_F32, 1, 1, 1, 90, 90, 128, 33, true, 0 },  /* windows over tiles */
        { DTYPE_F32, 1, 1, 1, 70, 70, 80, 20, false, 0 },  /* a part of the second columns */
        { DTYPE_F32, 1, 1, 1, 70, 70, 64, 1, true, 0 },    /* only themselves */
        { DTYPE_F32, 2, 2, 1, 40, 80, 64, 0, true, 40 },   /* keys of two ranks of cp */
        { DTYPE_F32, 2, 1, 1, 36, 108, 256, 0, true, 36 }, /* of three; tiles in two chunks */
        { DTYPE_F32, 2, 2, 1, 35, 70, 64, 30, true, 35 },  /* a window over chunks */
        { DTYPE_F32, 1, 2, 1, 40, 120, 200, 0, false, 0 }, /* no mask */
        { DTYPE_F16, 1, 1, 1, 40, 40, 256, 0, true, 0 },
        { DTYPE_F32, 1, 1, 1, 34, 34, 512, 0, true, 0 }, /* as wide as can be */
        { DTYPE_BF16, 1, 2, 1, 20, 20, 300, 7, true, 0 },
        { DTYPE_F32, 1, 2, 1, 1, 1, 64, 0, true, 0 },
    };
    static const Heads rising = { DTYPE_F32, 1, 1, 1, 100, 100, 64, 0, true, 0 };
    for (size_t i = 0; i < ARRAY_N(all); i++)
        check_attention(&all[i], 1);
    check_attention(&rising, 20);
}

/* ---- norms ---- */

typedef struct Rows {
    DType dtype;
    OpFn fn;
    uint64_t rows, columns;
    DType gain;
} Rows;

static void check_norm(const Rows *s)
{
    World w;
    world_open(&w);
    bool rms = s->fn == FN_RMSNORM;
    uint32_t x = world_random(&w, "x", s->dtype, s->rows, s->columns);
    uint32_t gain =
        world_slot(&w, world_random(&w, "n.weight", s->gain, 1, s->columns), SLOT_PARAM);
    uint32_t shift =
        world_slot(&w, world_random(&w, "n.bias", s->dtype, 1, s->columns), SLOT_PARAM);
    uint32_t y = world_tensor(&w, "y", s->dtype, s->rows, s->columns);
    uint32_t stats = world_tensor(&w, "stats", DTYPE_F32, s->rows, rms ? 1 : 2);
    uint32_t dy = world_random(&w, "dy", s->dtype, s->rows, s->columns);
    uint32_t dx = world_tensor(&w, "dx", s->dtype, s->rows, s->columns);
    uint32_t dgain =
        world_slot(&w, world_random(&w, "dgain", DTYPE_F32, 1, s->columns), SLOT_GRAD);
    uint32_t dshift =
        world_slot(&w, world_random(&w, "dshift", DTYPE_F32, 1, s->columns), SLOT_GRAD);
    Op op = {
        .kind = OP_NORM, .fn = s->fn, .dtype = s->dtype, .u.rows = { s->rows, s->columns }
    };
    world_run(&w, op, 5, (Use[]){ READ(x), READ(gain), READ(shift), WRITE(y), WRITE(stats) });
    op.phase = PHASE_DGRAD;
    world_run(&w, op, 7,
              (Use[]){ READ(dy), READ(x), READ(stats), READ(gain), WRITE(dx), UPDATE(dgain),
                       WRITE(dshift) });
    world_close(&w);
}

static void norms_of_many_rows_and_of_wide_ones(void)
{
    static const Rows all[] = {
        { DTYPE_BF16, FN_LAYERNORM, 5, 768, DTYPE_F32 },
        { DTYPE_BF16, FN_LAYERNORM, 9, 768, DTYPE_BF16 },
        { DTYPE_F16, FN_LAYERNORM, 5, 776, DTYPE_F16 },
        { DTYPE_BF16, FN_LAYERNORM, 5, 772, DTYPE_BF16 }, /* half an eight */
        { DTYPE_BF16, FN_LAYERNORM, 5000, 40, DTYPE_BF16 },
        { DTYPE_F16, FN_RMSNORM, 9, 2048, DTYPE_F32 }, /* several warps */
        { DTYPE_BF16, FN_RMSNORM, 9, 2048, DTYPE_BF16 },
        { DTYPE_F32, FN_LAYERNORM, 2, 20000, DTYPE_F32 }
    };
    for (size_t i = 0; i < ARRAY_N(all); i++)
        check_norm(&all[i]);
}

/* ---- pointwise, wide ---- */

static void wide_rows_of_all_types(void)
{
    static const DType types[] = { DTYPE_BF16, DTYPE_F16, DTYPE_F32 };
    for (size_t i = 0; i < ARRAY_N(types); i++) {
        World w;
        world_open(&w);
        DType type = types[i];
        uint32_t x = world_random(&w, "x", type, 70, 64),
                 r = world_random(&w, "r", type, 70, 64);
        uint32_t b = world_random(&w, "b", type, 1, 64),
                 y = world_tensor(&w, "y", type, 70, 64);
        uint32_t half = world_tensor(&w, "half", type, 70, 32);
        uint32_t d = world_tensor(&w, "d", type, 70, 64);
        uint32_t sums = world_random(&w, "sums", type, 1, 64);
        Op op = { .kind = OP_ADD, .dtype = type, .u.elements = 70 * 64 };
        world_run(&w, op, 4, (Use[]){ READ(x), READ(r), READ(b), WRITE(y) });
        world_run(&w, op, 3, (Use[]){ READ(x), READ(r), WRITE(y) });
        op = (Op){ .kind = OP_ACTIVATION, .fn = FN_GATED_SILU, .u.rows = { 70, 32 } };
        world_run(&w, op, 2, (Use[]){ READ(x), WRITE(half) });
        op.phase = PHASE_DGRAD;
        world_run(&w, op, 3, (Use[]){ READ(half), READ(x), WRITE(d) });
        op = (Op){ .kind = OP_BIAS, .u.rows = { 70, 64 } };
        world_run(&w, op, 2, (Use[]){ UPDATE(y), READ(b) });
        op.phase = PHASE_WGRAD;
        world_run(&w, op, 2, (Use[]){ READ(x), UPDATE(sums) });
        world_close(&w);
    }
}

/* Forward and backward; x from -12 to 12, where curves end. */
static void check_activation(DType type, OpFn fn, bool tanh, uint64_t rows, uint64_t columns)
{
    World w;
    world_open(&w);
    w.env.facts.gelu_tanh = tanh;
    uint64_t sides = fn == FN_GATED_SILU || fn == FN_GATED_GELU ? 2 : 1;
    uint32_t x = world_random(&w, "x", type, rows, sides * columns);
    uint32_t y = world_tensor(&w, "y", type, rows, columns);
    uint32_t dy = world_random(&w, "dy", type, rows, columns);
    uint32_t dx = world_tensor(&w, "dx", type, rows, sides * columns);
    for (uint64_t i = 0; i < rows * sides * columns; i++)
        world_set(&w, x, i, 12 * world_get(&w, x, i));
    Op op = { .kind = OP_ACTIVATION, .fn = fn, .dtype = type, .u.rows = { rows, columns } };
    world_run(&w, op, 2, (Use[]){ READ(x), WRITE(y) });
    op.phase = PHASE_DGRAD;
    world_run(&w, op, 3, (Use[]){ READ(dy), READ(x), WRITE(dx) });
    world_close(&w);
}

/* Rows of eights, rows that are none, and an end that is none. */
static void curves_of_all_types_and_widths(void)
{
    static const OpFn fns[] = { FN_GELU, FN_RELU,       FN_RELU2,
                                FN_SILU, FN_GATED_SILU, FN_GATED_GELU };
    static const DType types[] = { DTYPE_BF16, DTYPE_F16, DTYPE_F32 };
    for (size_t i = 0; i < ARRAY_N(fns) * ARRAY_N(types); i++) {
        OpFn fn = fns[i / ARRAY_N(types)];
        DType type = types[i % ARRAY_N(types)];
        for (int tanh = 0; tanh < 2; tanh++) {
            check_activation(type, fn, tanh, 70, 72);
            check_activation(type, fn, tanh, 7, 21);
        }
    }
}

static void check_rope(DType type, uint32_t samples, uint32_t seq_len, uint32_t width)
{
    World w;
    world_open(&w);
    ModelFacts *f = &w.env.facts;
    f->seq_len = seq_len;
    f->position_first = 40;
    f->heads = 3;
    f->kv_heads = 1;
    f->head_dim = width;
    uint64_t rows = samples * seq_len, columns = 5 * width; /* and v */
    uint32_t qkv = world_random(&w, "qkv", type, rows, columns);
    Op op = { .kind = OP_ROPE, .u.rows = { rows, columns } };
    world_run(&w, op, 1, (Use[]){ UPDATE(qkv) });
    op.phase = PHASE_DGRAD;
    world_run(&w, op, 1, (Use[]){ UPDATE(qkv) });
    world_close(&w);
}

/* Wide and not, several samples, several positions a block. */
static void positions_of_many_samples(void)
{
    check_rope(DTYPE_BF16, 3, 20, 64);
    check_rope(DTYPE_BF16, 1, 1600, 16);
    check_rope(DTYPE_BF16, 1, 1601, 12);
    check_rope(DTYPE_F16, 5, 7, 128);
    check_rope(DTYPE_F32, 2, 9, 32);
    check_rope(DTYPE_F32, 2, 9, 10);
}

/* So many rows that several blocks sum each column, and a second launch adds those. */
static void sums_over_many_rows(void)
{
    World w;
    world_open(&w);
    uint32_t dy = world_random(&w, "dy", DTYPE_BF16, 3000, 136);
    uint32_t db = world_tensor(&w, "db", DTYPE_F32, 1, 136);
    Op op = { .kind = OP_BIAS, .phase = PHASE_WGRAD, .u.rows = { 3000, 136 } };
    world_run(&w, op, 2, (Use[]){ READ(dy), WRITE(db) });
    world_close(&w);
}

/* ---- both ends ---- */

static void check_tokens(DType type, uint64_t rows, uint64_t columns, uint64_t table_rows)
{
    World w;
    world_open(&w);
    w.env.facts.seq_len = 300;
    uint32_t tokens = world_tensor(&w, "tokens", DTYPE_I64, 1, rows);
    for (uint64_t i = 0; i < rows; i++) /* some often, some once or twice, some never */
        world_set(&w, tokens, i,
                  (double)(mix_u64(i) % table_rows * (mix_u64(i) % 3) % table_rows));
    uint32_t table =
        world_slot(&w, world_random(&w, "t", type, table_rows, columns), SLOT_PARAM);
    uint32_t y = world_tensor(&w, "y", type, rows, columns);
    uint32_t dy = world_random(&w, "dy", type, rows, columns);
    uint32_t dtable =
        world_slot(&w, world_random(&w, "dt", DTYPE_F32, table_rows, columns), SLOT_GRAD);
    uint32_t same =
        world_slot(&w, world_random(&w, "dt", type, table_rows, columns), SLOT_GRAD);
    for (uint64_t i = 0; i < rows * columns; i++) /* sums that 16 bits hold to their last one */
        world_set(&w, dy, i, world_get(&w, dy, i) / 16);
    Op op = { .kind = OP_EMBEDDING, .u.rows = { rows, columns } };
    world_run(&w, op, 3, (Use[]){ READ(tokens), READ(table), WRITE(y) });
    op.phase = PHASE_WGRAD;
    world_run(&w, op, 3, (Use[]){ READ(dy), READ(tokens), UPDATE(dtable) });
    world_run(&w, op, 3, (Use[]){ READ(dy), READ(tokens), WRITE(dtable) });
    world_run(&w, op, 3, (Use[]){ READ(dy), READ(tokens), WRITE(same) });
    world_close(&w);
}

static void tokens_come_often_and_never(void)
{
    check_tokens(DTYPE_BF16, 600, 40, 20);
    check_tokens(DTYPE_BF16, 300, 21, 400); /* mostly once or twice */
    check_tokens(DTYPE_F32, 300, 24, 200);
    check_tokens(DTYPE_F16, 9000, 8, 30);  /* looked for more than once */
    check_tokens(DTYPE_BF16, 20, 4120, 3); /* more columns than a block has at a time */
}

/* Positions of several samples; token types, all of which are 0. */
static void check_places(const char *name, DType type, uint64_t rows, uint64_t columns)
{
    World w;
    world_open(&w);
    w.env.facts.seq_len = 30, w.env.facts.position_first = 2;
    uint32_t dy = world_random(&w, "dy", type, rows, columns);
    uint32_t dtable = world_random(&w, name, DTYPE_F32, 40, columns);
    Op op = { .kind = OP_EMBEDDING, .phase = PHASE_WGRAD, .u.rows = { rows, columns } };
    world_run(&w, op, 2, (Use[]){ READ(dy), UPDATE(dtable) });
    world_run(&w, op, 2, (Use[]){ READ(dy), WRITE(dtable) });
    world_close(&w);
}

static void places_have_rows_of_many_samples(void)
{
    static const char *names[] = { "positions.weight", "token_types.weight" };
    for (size_t i = 0; i < ARRAY_N(names); i++) {
        check_places(names[i], DTYPE_BF16, 400, 40);
        check_places(names[i], DTYPE_BF16, 100, 21);
        check_places(names[i], DTYPE_F32, 20, 8);
    }
}

static void check_loss(DType type, uint64_t columns)
{
    World w;
    world_open(&w);
    w.env.facts.vocab = (uint32_t)columns - 2;
    w.env.facts.loss_terms = 5;
    uint32_t x = world_random(&w, "logits", type, 5, columns);
    uint32_t targets = world_tensor(&w, "targets", DTYPE_I64, 1, 5);
    for (uint64_t k = 0; k < 5; k++)
        world_set(&w, targets, k, k == 3 ? -100 : (double)(k * (columns / 5)));
    for (uint64_t i = 0; i < 5 * columns; i++)
        world_set(&w, x, i, 9 * world_get(&w, x, i) - (i < columns ? 300 : 0));
    uint32_t loss = world_tensor(&w, "loss", DTYPE_F32, 1, 1);
    Op op = { .kind = OP_CROSS_ENTROPY, .u.rows = { 5, columns } };
    world_run(&w, op, 3, (Use[]){ UPDATE(x), READ(targets), WRITE(loss) });
    world_close(&w);
}

/* A row of 16-bit numbers begins anywhere; the last columns are padding.  Rows are kept in
 * shared memory by blocks of several sizes, or do not fit. */
static void losses_of_odd_vocabularies(void)
{
    static const uint64_t columns[] = { 5003, 5008, 7, 40001, 60003 };
    for (size_t i = 0; i < ARRAY_N(columns); i++)
        check_loss(DTYPE_BF16, columns[i]);
    check_loss(DTYPE_F16, 1001);
    check_loss(DTYPE_F32, 1003);
    check_loss(DTYPE_F32, 40000);
    check_loss(DTYPE_F32, 60001);
}

/* ---- matmuls ---- */

static void products_of_16_bits_and_their_epilogues(void)
{
    static const OpFn fns[] = { FN_BIAS, FN_BIAS_GELU, FN_BIAS_RELU, FN_GELU };
    for (size_t i = 0; i < 2 * ARRAY_N(fns); i++) {
        World w;
        world_open(&w);
        w.env.facts.gelu_tanh = i % 2 == 0; /* as cuBLASLt's, or not */
        OpFn fn = fns[i / 2];
        DType type = i % 3 ? DTYPE_BF16 : DTYPE_F16;
        uint32_t x = world_random(&w, "x", type, 24, 16);
        uint32_t weight = world_slot(&w, world_random(&w, "w", type, 32, 16), SLOT_PARAM);
        uint32_t b = world_slot(&w, world_random(&w, "w.bias", type, 1, 32), SLOT_PARAM);
        uint32_t pre = world_tensor(&w, "pre", type, 24, 32);
        uint32_t y = world_tensor(&w, "y", type, 24, 32);
        Op op = { .kind = OP_MATMUL, .dtype = type, .fn = fn };
        op.u.matmul =
            (MatmulShape){ .m = 24, .n = 32, .k = 16, .batch = 1, .transpose_b = true };
        Use biased[] = { READ(x), READ(weight), READ(b), WRITE(pre), WRITE(y) };
        Use plain[] = { READ(x), READ(weight), WRITE(pre), WRITE(y) };
        Use only[] = { READ(x), READ(weight), READ(b), WRITE(y) };
        if (fn == FN_GELU)
            world_run(&w, op, 4, plain);
        else if (fn != FN_BIAS)
            world_run(&w, op, 5, biased);
        if (fn != FN_GELU)
            world_run(&w, op, 4, only);
        world_close(&w);
    }
}

/* The heuristic looks at where the bias lies; a bias elsewhere is another product. */
static void biases_lie_anywhere(void)
{
    enum { M = 8, N = 16, K = 8 };
    static _Alignas(256) float a[M * K], b[N * K], c[M * N], bias[N + 1], ones[K];
    CudaGemm *g;
    Err err = { 0 };
    for (int i = 0; i < N * K; i++)
        b[i] = 1, a[i % (M * K)] = 1;
    for (int i = 0; i <= N; i++)
        bias[i] = (float)i;
    Product p = { .m = M, .n = N, .k = K, .batch = 1, .turn_b = true, .alpha = 1 };
    p.a = (Matrix){ { a, NUM_F32 }, K, 0 };
    p.b = (Matrix){ { b, NUM_F32 }, K, 0 };
    p.c = (Matrix){ { c, NUM_F32 }, N, 0 };
    CHECK(cuda_gemm_open(&g, NULL, 0, &err));
    for (int at = 0; at < 2; at++) {
        p.bias = (Vec){ bias + at, NUM_F32 };
        CHECK(cuda_gemm_can(g, &p) && cuda_gemm(g, &p, NULL, &err));
        CHECK_NEAR(K + 3 + at, c[N + 3], 0);
    }
    p.bias = (Vec){ ones, NUM_BF16 }; /* rows have the result's type */
    CHECK(!cuda_gemm_can(g, &p));
    cuda_gemm_close(g);
}

static void weight_gradients_with_and_without_what_was(void)
{
    for (int i = 0; i < 4; i++) {
        World w;
        world_open(&w);
        DType kept = i < 2 ? DTYPE_BF16 : DTYPE_F32;
        uint32_t dy = world_random(&w, "dy", DTYPE_BF16, 200, 24);
        uint32_t x = world_random(&w, "x", DTYPE_BF16, 200, 16);
        uint32_t dw = world_slot(&w, world_random(&w, "dw", kept, 24, 16), SLOT_GRAD);
        uint32_t db = world_slot(&w, world_random(&w, "db", kept, 1, 24), SLOT_GRAD);
        Op op = { .kind = OP_MATMUL, .phase = PHASE_WGRAD, .dtype = DTYPE_BF16, .fn = FN_BIAS };
        op.u.matmul = (MatmulShape){ .m = 24, .n = 16, .k = 200, .batch = 1 };
        ArgMode mode = i % 2 ? ARG_UPDATE : ARG_WRITE;
        world_run(&w, op, 4, (Use[]){ READ(dy), READ(x), { dw, mode }, { db, mode } });
        world_close(&w);
    }
}

/* ---- the end of a step ---- */

static void large_tensors_of_16_bits_are_updated(void)
{
    World w;
    world_open(&w);
    w.env.hyper = (Hyper){ 0.01, 0.1, 0.9, 0.95, 1e-8, 0.9, 0.5 };
    w.env.step = 3;
    uint32_t g = world_slot(&w, world_random(&w, "g", DTYPE_BF16, 300, 61), SLOT_GRAD);
    uint32_t p = world_slot(&w, world_random(&w, "p", DTYPE_BF16, 300, 61), SLOT_PARAM);
    uint32_t m = world_random(&w, "first moment", DTYPE_F32, 300, 61);
    uint32_t v = world_random(&w, "second moment", DTYPE_F32, 300, 61);
    uint32_t master = world_random(&w, "master weights", DTYPE_F32, 300, 61);
    uint32_t norm = world_random(&w, "norm", DTYPE_F32, 1, 1);
    for (uint64_t i = 0; i < 300 * 61; i++)
        world_set(&w, v, i, fabs(world_get(&w, v, i)));
    world_set(&w, norm, 0, 2);
    Op op = { .kind = OP_GRAD_NORM, .phase = PHASE_UPDATE, .u.elements = 300 * 61 };
    world_run(&w, op, 2, (Use[]){ READ(g), UPDATE(norm) });
    op.kind = OP_SCALE;
    world_run(&w, op, 2, (Use[]){ UPDATE(g), READ(norm) });
    op = (Op){ .kind = OP_OPTIMIZER, .phase = PHASE_UPDATE, .fn = FN_ADAMW };
    world_run(&w, op, 5, (Use[]){ READ(g), UPDATE(m), UPDATE(v), UPDATE(master), UPDATE(p) });
    world_close(&w);
}

/* Slices of one block and of several, as many as a warp finds in one look, or two, or three. */
static void blocks_find_their_slices(void)
{
    enum { MOST = 1100, NUMBERS = 32000 };
    static const uint32_t counts[] = { 1, 2, 31, 32, 33, 64, 65, 1023, MOST };
    static Slice all[MOST];
    static float from[NUMBERS], to[NUMBERS + MOST];
    for (size_t c = 0; c < ARRAY_N(counts); c++) {
        uint64_t at = 0, n = counts[c];
        for (uint64_t i = 0; i < n; i++) {
            uint64_t some = i % 511 == 1 ? 8200 : i % 7 + 1;
            all[i] = (Slice){ { from + i, NUM_F32 }, { to + at, NUM_F32 }, .n = some };
            at += some;
        }
        ASSERT(at <= NUMBERS + MOST);
        for (size_t i = 0; i < NUMBERS; i++)
            from[i] = (float)i;
        memset(to, 0, sizeof to);
        cuda_copy((Slices){ all, (uint32_t)n, cuda_slices_count(all, (uint32_t)n) }, NULL);
        uint64_t wrong = 0;
        for (uint64_t i = 0; i < n; i++)
            for (uint64_t k = 0; k < all[i].n; k++)
                wrong += ((float *)all[i].b.at)[k] != (float)(i + k);
        CHECK_INT(0, (int64_t)wrong);
    }
}

int main(void)
{
    RUN(attention_on_tensor_cores);
    RUN(attention_whose_maxima_rise);
    RUN(attention_of_other_widths);
    RUN(norms_of_many_rows_and_of_wide_ones);
    RUN(wide_rows_of_all_types);
    RUN(curves_of_all_types_and_widths);
    RUN(positions_of_many_samples);
    RUN(sums_over_many_rows);
    RUN(tokens_come_often_and_never);
    RUN(places_have_rows_of_many_samples);
    RUN(losses_of_odd_vocabularies);
    RUN(products_of_16_bits_and_their_epilogues);
    RUN(biases_lie_anywhere);
    RUN(weight_gradients_with_and_without_what_was);
    RUN(large_tensors_of_16_bits_are_updated);
    RUN(blocks_find_their_slices);
    return check_report();
}

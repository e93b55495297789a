/*
 * test_kernels_loss.c - tables and losses, whole and shared out over tensor-parallel ranks.
 */
#include "tests/unit/kernel_world.h"

/* ---- tables ---- */

enum { VOCAB = 7, WIDTH = 3, ROWS = 6 };

static const int64_t some_tokens[ROWS] = { 4, 0, 4, 6, 2, 4 };

static uint32_t tokens_of(World *w, const int64_t *tokens, uint64_t n)
{
    uint32_t t = world_tensor(w, "tokens", DTYPE_I64, n, 1);
    for (uint64_t i = 0; i < n; i++)
        world_set(w, t, i, (double)tokens[i]);
    return t;
}

static void tokens_take_rows_and_give_gradients_back(void)
{
    World w;
    world_open(&w);
    uint32_t tokens = tokens_of(&w, some_tokens, ROWS);
    uint32_t table = world_random(&w, "tokens.weight", DTYPE_BF16, VOCAB, WIDTH);
    uint32_t y = world_tensor(&w, "y", DTYPE_F32, ROWS, WIDTH);
    uint32_t dy = world_random(&w, "dy", DTYPE_F32, ROWS, WIDTH);
    uint32_t dtable = world_random(&w, "dtable", DTYPE_F32, VOCAB, WIDTH);
    double *dwant = world_doubles(&w, dtable), want[ROWS * WIDTH];
    for (uint64_t i = 0; i < ROWS * WIDTH; i++) {
        uint64_t at = (uint64_t)some_tokens[i / WIDTH] * WIDTH + i % WIDTH;
        want[i] = world_get(&w, table, at);
        dwant[at] += world_get(&w, dy, i);
    }
    Op op = { .kind = OP_EMBEDDING, .u.rows = { ROWS, WIDTH } };
    world_run(&w, op, 3, (Use[]){ READ(tokens), READ(table), WRITE(y) });
    CHECK_LIKE(&w, y, want, 0);
    op.phase = PHASE_WGRAD;
    world_run(&w, op, 3, (Use[]){ READ(dy), READ(tokens), UPDATE(dtable) });
    CHECK_LIKE(&w, dtable, dwant, 1e-6);
    free(dwant);
    world_close(&w);
}

/* A rank with rows 3 .. 5 of the table: the others are zeros, and get no gradient. */
static void a_part_of_the_vocabulary_gives_its_rows_only(void)
{
    World w;
    world_open(&w);
    w.env.facts.vocab_first = 3;
    uint32_t tokens = tokens_of(&w, some_tokens, ROWS);
    uint32_t table = world_random(&w, "tokens.weight", DTYPE_F32, 3, WIDTH);
    uint32_t y = world_tensor(&w, "y", DTYPE_F32, ROWS, WIDTH);
    Op op = { .kind = OP_EMBEDDING, .u.rows = { ROWS, WIDTH } };
    world_run(&w, op, 3, (Use[]){ READ(tokens), READ(table), WRITE(y) });
    for (uint64_t i = 0; i < ROWS * WIDTH; i++) {
        bool here = some_tokens[i / WIDTH] == 4;
        double want = here ? world_get(&w, table, WIDTH + i % WIDTH) : 0;
        CHECK_NEAR(want, world_get(&w, y, i), 0);
    }
    world_fill(&w, table, 0);
    world_fill(&w, y, 1);
    op.phase = PHASE_WGRAD;
    world_run(&w, op, 3, (Use[]){ READ(y), READ(tokens), UPDATE(table) });
    CHECK_LIKE(&w, table, ((double[]){ 0, 0, 0, 3, 3, 3, 0, 0, 0 }), 0);
    world_close(&w);
}

/* Sequences of 3 rows at position 2 (cp), the second half of the rows here (tp). */
static void positions_count_within_the_sequence(void)
{
    World w;
    world_open(&w);
    w.env.facts.seq_len = 3, w.env.facts.position_first = 2, w.env.facts.rows_index = 1;
    uint32_t table = world_random(&w, "positions.weight", DTYPE_F32, 6, WIDTH);
    uint32_t y = world_random(&w, "y", DTYPE_F32, 4, WIDTH);
    uint32_t dtable = world_tensor(&w, "positions.weight", DTYPE_F32, 6, WIDTH);
    static const uint64_t place[] = { 3, 4, 2, 3 }; /* rows 4 .. 7 of 3 rows each */
    double *want = world_doubles(&w, y), dwant[6 * WIDTH] = { 0 };
    for (uint64_t i = 0; i < 4 * WIDTH; i++)
        want[i] += world_get(&w, table, place[i / WIDTH] * WIDTH + i % WIDTH);
    Op op = { .kind = OP_EMBEDDING, .u.rows = { 4, WIDTH } };
    world_run(&w, op, 2, (Use[]){ UPDATE(y), READ(table) });
    CHECK_LIKE(&w, y, want, 1e-6);
    for (uint64_t i = 0; i < 4 * WIDTH; i++)
        dwant[place[i / WIDTH] * WIDTH + i % WIDTH] += world_get(&w, y, i);
    op.phase = PHASE_WGRAD;
    world_run(&w, op, 2, (Use[]){ READ(y), WRITE(dtable) });
    CHECK_LIKE(&w, dtable, dwant, 1e-6);
    for (uint64_t i = 0; i < 6 * WIDTH; i++)
        dwant[i] *= 2;
    world_run(&w, op, 2, (Use[]){ READ(y), UPDATE(dtable) });
    CHECK_LIKE(&w, dtable, dwant, 1e-6);
    uint32_t types = world_random(&w, "token_types.weight", DTYPE_F32, 2, WIDTH);
    double before = world_get(&w, y, 2 * WIDTH);
    op.phase = PHASE_FORWARD;
    world_run(&w, op, 2, (Use[]){ UPDATE(y), READ(types) }); /* all of type 0 */
    CHECK_NEAR(before + world_get(&w, types, 0), world_get(&w, y, 2 * WIDTH), 1e-6);
    free(want);
    world_close(&w);
}

/* ---- losses ---- */

/* prediction targets -> mean of squares over 10 terms */
static void squares(const void *of, double *const *in, double *out)
{
    (void)of;
    for (uint64_t i = 0; i < 6; i++)
        out[0] += (in[0][i] - in[1][i]) * (in[0][i] - in[1][i]) / 10;
}

static void mse_is_its_definition(void)
{
    World w;
    world_open(&w);
    w.env.facts.loss_terms = 10; /* of several micro-batches and ranks */
    uint32_t x = world_random(&w, "x", DTYPE_F32, 2, 3),
             t = world_random(&w, "t", DTYPE_F32, 2, 3);
    uint32_t loss = world_tensor(&w, "loss", DTYPE_F32, 1, 1);
    uint32_t dx = world_tensor(&w, "dx", DTYPE_F32, 2, 3),
             one = world_tensor(&w, "1", DTYPE_F32, 1, 1);
    world_fill(&w, one, 1);
    Ref ref = { squares, NULL, 2, { x, t }, 1 };
    Op op = { .kind = OP_MSE, .u.rows = { 2, 3 } };
    world_run(&w, op, 3, (Use[]){ READ(x), READ(t), WRITE(loss) });
    CHECK_REF(&w, &ref, loss, 1e-6);
    CHECK_NEAR(10 * world_get(&w, loss, 0), w.env.loss, 1e-6);
    op.phase = PHASE_DGRAD;
    world_run(&w, op, 3, (Use[]){ READ(x), READ(t), WRITE(dx) });
    CHECK_GRADIENT(&w, &ref, 0, one, dx, NULL, 1e-6);
    w.env.loss = 0, w.env.facts.loss_copies = 2;
    op.phase = PHASE_FORWARD;
    world_run(&w, op, 3, (Use[]){ READ(x), READ(t), WRITE(loss) });
    CHECK_NEAR(5 * world_get(&w, loss, 0), w.env.loss, 1e-6);
    world_close(&w);
}

enum { COLUMNS = 8, TERMS = 12 }; /* of which VOCAB are no padding */

static const int64_t some_targets[ROWS] = { 1, 6, 0, -100, 3, 3 };

/* logits -> mean loss */
static void cross_entropy(const void *of, double *const *in, double *out)
{
    (void)of;
    for (uint64_t r = 0; r < ROWS; r++) {
        double sum = 0;
        for (uint64_t c = 0; c < VOCAB; c++)
            sum += exp(in[0][r * COLUMNS + c]);
        if (some_targets[r] >= 0)
            out[0] += (log(sum) - in[0][r * COLUMNS + (uint64_t)some_targets[r]]) / TERMS;
    }
}

typedef struct Loss {
    World w;
    uint32_t logits, copy, targets, loss, one;
    Ref ref;
} Loss;

static void loss_open(Loss *l)
{
    World *w = &l->w;
    world_open(w);
    w->env.facts.vocab = VOCAB, w->env.facts.loss_terms = TERMS;
    l->logits = world_random(w, "logits", DTYPE_F32, ROWS, COLUMNS);
    l->copy = world_tensor(w, "copy", DTYPE_F32, ROWS, COLUMNS);
    for (uint64_t i = 0; i < ROWS * COLUMNS; i++) {
        world_set(w, l->logits, i, 9 * world_noise(l->logits, i));
        world_set(w, l->copy, i, world_get(w, l->logits, i));
    }
    l->targets = tokens_of(w, some_targets, ROWS);
    l->loss = world_tensor(w, "loss", DTYPE_F32, 1, 1);
    l->one = world_tensor(w, "one", DTYPE_F32, 1, 1);
    world_fill(w, l->one, 1);
    l->ref = (Ref){ cross_entropy, NULL, 1, { l->copy }, 1 };
}

static void cross_entropy_leaves_its_gradient_in_the_logits(void)
{
    Loss l;
    loss_open(&l);
    Op op = { .kind = OP_CROSS_ENTROPY, .u.rows = { ROWS, COLUMNS } };
    world_run(&l.w, op, 3, (Use[]){ UPDATE(l.logits), READ(l.targets), WRITE(l.loss) });
    CHECK_REF(&l.w, &l.ref, l.loss, 1e-6);
    CHECK_NEAR(TERMS * world_get(&l.w, l.loss, 0), l.w.env.loss, 1e-6);
    CHECK_GRADIENT(&l.w, &l.ref, 0, l.one, l.logits, NULL, 1e-6);
    CHECK_NEAR(0, world_get(&l.w, l.logits, 3 * COLUMNS), 0); /* the ignored row */
    world_close(&l.w);
}

/* Half of the columns on each of two ranks; the collectives by hand. */
static void cross_entropy_over_tp_is_the_same(void)
{
    Loss l;
    loss_open(&l);
    World *w = &l.w;
    enum { HALF = COLUMNS / 2 };
    uint32_t part[2], top[2], sums[2];
    Op op = { .kind = OP_CROSS_ENTROPY, .u.rows = { ROWS, 1 } };
    for (uint32_t r = 0; r < 2; r++) {
        part[r] = world_tensor(w, "part", DTYPE_F32, ROWS, HALF);
        top[r] = world_tensor(w, "maximum", DTYPE_F32, ROWS, 1);
        sums[r] = world_tensor(w, "sums", DTYPE_F32, ROWS, 2);
        for (uint64_t i = 0; i < ROWS * HALF; i++)
            world_set(w, part[r], i,
                      world_get(w, l.logits, i / HALF * COLUMNS + r * HALF + i % HALF));
        w->env.facts.vocab_first = r * HALF;
        world_run(w, op, 2, (Use[]){ READ(part[r]), WRITE(top[r]) });
    }
    for (uint64_t i = 0; i < ROWS; i++)
        world_set(w, top[0], i, fmax(world_get(w, top[0], i), world_get(w, top[1], i)));
    for (uint32_t r = 0; r < 2; r++) {
        w->env.facts.vocab_first = r * HALF;
        world_run(w, op, 4,
                  (Use[]){ READ(part[r]), READ(l.targets), READ(top[0]), WRITE(sums[r]) });
    }
    for (uint64_t i = 0; i < 2 * ROWS; i++)
        world_set(w, sums[0], i, world_get(w, sums[0], i) + world_get(w, sums[1], i));
    for (uint32_t r = 0; r < 2; r++) {
        w->env.facts.vocab_first = r * HALF;
        world_run(w, op, 5,
                  (Use[]){ UPDATE(part[r]), READ(l.targets), READ(top[0]), READ(sums[0]),
                           WRITE(l.loss) });
    }
    RefValues v = ref_values(w, &l.ref);
    CHECK_NEAR(TERMS * v.out[0], w->env.loss, 1e-6); /* each term on one rank */
    ref_free(&l.ref, &v);
    for (uint64_t i = 0; i < ROWS * COLUMNS; i++)
        world_set(
            w, l.logits, i,
            world_get(w, part[i % COLUMNS / HALF], i / COLUMNS * HALF + i % COLUMNS % HALF));
    CHECK_GRADIENT(w, &l.ref, 0, l.one, l.logits, NULL, 1e-6);
    world_close(w);
}

int main(void)
{
    RUN(tokens_take_rows_and_give_gradients_back);
    RUN(a_part_of_the_vocabulary_gives_its_rows_only);
    RUN(positions_count_within_the_sequence);
    RUN(mse_is_its_definition);
    RUN(cross_entropy_leaves_its_gradient_in_the_logits);
    RUN(cross_entropy_over_tp_is_the_same);
    return check_report();
}

/*
 * test_params.c - however a model is split, its ranks hold the same network, and
 * every element has one owner.
 */
#include "exec/number.h"
#include "exec/random.h"
#include "tests/far_memory.h"
#include "tests/split_job.h"

/* ---- who holds what ---- */

static const void *contents(const Job *j, uint32_t rank, const Resident *r)
{
    return j->memory[rank] + r->offset;
}

/* What all ranks hold of one parameter and kind. */
typedef struct Cover {
    uint8_t *held, *owned; /* by element: is it; by how many ranks */
} Cover;

static float value_of(const Whole *w, uint64_t seed, uint64_t i)
{
    float x = 0;
    random_normals(random_key(seed, w->name, w->layer), i, 1, &x);
    return x;
}

static void cover_piece(const Job *j, uint32_t rank, const Piece *piece, Cover *c)
{
    const Whole *w = &j->whole.whole[piece->whole];
    const Resident *r = &j->program[rank].residents[piece->resident];
    const Pieces *x = &j->pieces[rank];
    const float *memory = contents(j, rank, r);
    uint64_t local = 0, whole = 0;
    CHECK(piece->runs_n > 0);
    for (uint32_t k = 0; k < piece->runs_n; k++) {
        Run run = x->runs[piece->runs_first + k];
        CHECK(run.n > 0 && run.local >= local && (k == 0 || run.whole >= whole));
        CHECK(run.local + run.n <= r->elements && run.whole + run.n <= whole_elements(w));
        local = run.local + run.n;
        whole = run.whole + run.n;
        for (uint64_t i = 0; i < run.n; i++) {
            c->held[run.whole + i] = 1;
            if (piece->owner)
                c->owned[run.whole + i]++;
            bool weight = piece->what == PIECE_PARAM || piece->what == PIECE_MASTER;
            float want = weight ? value_of(w, 3, run.whole + i) : 0;
            float got = memory[run.local + i];
            if (r->dtype == DTYPE_BF16) {
                want = f32_of_bf16(bf16_of_f32(want));
                got = f32_of_bf16(((const uint16_t *)memory)[run.local + i]);
            }
            if (!(want >= got && want <= got)) {
                CHECK(want >= got && want <= got);
                return;
            }
        }
    }
}

static void check_cover(const Job *j, uint32_t whole, PieceKind what, bool expected)
{
    const Whole *w = &j->whole.whole[whole];
    uint64_t n = whole_elements(w), missing = 0, doubled = 0;
    Cover c = { mem_zero(n, 1), mem_zero(n, 1) };
    for (uint32_t r = 0; r < j->ranks_n; r++)
        for (uint32_t i = 0; i < j->pieces[r].pieces_n; i++) {
            const Piece *piece = &j->pieces[r].pieces[i];
            if (piece->whole == whole && piece->what == what)
                cover_piece(j, r, piece, &c);
        }
    for (uint64_t i = 0; i < n; i++) {
        missing += expected && (c.held[i] == 0 || c.owned[i] == 0);
        doubled += c.owned[i] > 1 || (!expected && c.held[i]);
    }
    if (!CHECK(missing == 0 && doubled == 0))
        fprintf(stderr, "kind %d of %s, layer %d: %d missing, %d too many\n", (int)what,
                w->name, (int)w->layer, (int)missing, (int)doubled);
    free(c.held);
    free(c.owned);
}

/* Elements of residents that are in no piece are padding, and stay zero. */
static void check_padding(const Job *j, uint32_t rank)
{
    const Program *p = &j->program[rank];
    for (uint32_t i = 0; i < p->residents_n; i++) {
        const Resident *r = &p->residents[i];
        uint64_t covered = 0, nonzero = 0;
        bool weight = false;
        for (uint32_t k = 0; k < j->pieces[rank].pieces_n; k++) {
            const Piece *piece = &j->pieces[rank].pieces[k];
            weight |= piece->resident == i && piece->what <= PIECE_MASTER;
            for (uint32_t n = 0; piece->resident == i && n < piece->runs_n; n++)
                covered += j->pieces[rank].runs[piece->runs_first + n].n;
        }
        for (uint64_t e = 0; weight && e < r->elements; e++)
            nonzero += r->dtype == DTYPE_F32 ? ((const uint32_t *)contents(j, rank, r))[e] != 0
                                             : ((const uint16_t *)contents(j, rank, r))[e] != 0;
        if (weight)
            CHECK_U64(covered, nonzero);
    }
}

static void check_split(const char *model, const char *settings)
{
    Job j;
    if (!job_open(&j, model, settings))
        return;
    uint32_t failed = check_state.test_failures_n;
    bool master = j.split.s.training.master_weights;
    bool sgd = strstr(settings, "optimizer=sgd") != NULL;
    bool momentum = strstr(settings, "optimizer=momentum") != NULL;
    for (uint32_t r = 0; r < j.ranks_n; r++)
        CHECK(pieces_init(&j.pieces[r], &j.program[r], &j.whole, 3,
                          &(Store){ .memory = j.memory[r] }, NULL));
    for (uint32_t w = 0; w < j.whole.n; w++) {
        check_cover(&j, w, PIECE_PARAM, true);
        check_cover(&j, w, PIECE_MASTER, master);
        check_cover(&j, w, PIECE_FIRST_MOMENT, !sgd);
        check_cover(&j, w, PIECE_SECOND_MOMENT, !sgd && !momentum);
    }
    for (uint32_t r = 0; r < j.ranks_n; r++)
        check_padding(&j, r);
    if (check_state.test_failures_n != failed)
        fprintf(stderr, "    with %s\n", settings);
    job_close(&j);
}

static void check_all(const char *const *splits, size_t n, const char *model)
{
    for (size_t i = 0; i < n; i++)
        check_split(model, splits[i]);
}

static void a_gpt_is_whole_under_every_split(void)
{
    static const char *const splits[] = {
        "strategy=single",
        "strategy=ddp dp=3",
        "strategy=dp dp=4 training.micro_batch=6",
        "strategy=ddp dp=2 tp=2",
        "strategy=ddp tp=4",
        "strategy=ddp tp=2 sequence_parallel=true",
        "strategy=zero1 dp=4",
        "strategy=zero2 dp=3",
        "strategy=zero1 dp=2 tp=2",
        "strategy=zero1 dp=2 pp=2",
        "strategy=fsdp dp=4",
        "strategy=fsdp dp=6 reshard_after_forward=false",
        "strategy=fsdp dp=2 tp=4",
        "strategy=fsdp dp=2 tp=2 pp=2",
        "strategy=hsdp dp=4 shard_size=2",
        "strategy=hsdp dp=4 shard_size=4",
        "strategy=hsdp dp=4 shard_size=1",
        "strategy=hsdp dp=4 shard_size=2 tp=2",
        "strategy=ddp pp=2",
        "strategy=ddp pp=4 dp=2 tp=2",
        "strategy=model_parallel pp=3 training.micro_batch=48",
        "strategy=ddp pp=2 schedule=interleaved virtual_stages=2",
        "strategy=ddp dp=2 cp=2",
        "strategy=fsdp dp=2 cp=2",
        "strategy=zero1 dp=2 cp=2 tp=2",
        "strategy=ddp dp=2 tp=2 parallel.order=[\"dp\",\"tp\",\"cp\",\"ep\",\"pp\"]",
        "strategy=fsdp dp=4 pp=2 parallel.order=[\"pp\",\"tp\",\"cp\",\"ep\",\"dp\"]",
    };
    check_all(splits, ARRAY_N(splits), JOB_GPT);
}

/* 8 heads, 2 key and value heads: from tp 4 on they are repeated. */
static void a_llama_with_repeated_key_heads_is_whole(void)
{
    static const char *const splits[] = {
        "strategy=single",
        "strategy=ddp tp=2",
        "strategy=ddp tp=4",
        "strategy=ddp tp=8",
        "strategy=zero1 dp=2 tp=4",
        "strategy=zero2 dp=2 tp=8",
        "strategy=fsdp dp=2 tp=8",
        "strategy=fsdp dp=4 tp=4",
        "strategy=hsdp dp=4 shard_size=2 tp=4",
        "strategy=ddp pp=2 tp=4 dp=2",
        "strategy=fsdp dp=5 training.global_batch=40",
    };
    check_all(splits, ARRAY_N(splits), JOB_LLAMA);
}

static void an_mlp_is_whole(void)
{
    static const char *const splits[] = {
        "strategy=single",        "strategy=ddp dp=2",
        "strategy=fsdp dp=4",     "strategy=zero1 dp=4",
        "strategy=zero2 dp=8",    "strategy=fsdp dp=16",
        "strategy=ddp pp=3 dp=2", "strategy=hsdp dp=8 shard_size=4",
    };
    check_all(splits, ARRAY_N(splits), JOB_MLP);
    check_all(splits, 6, JOB_LINE); /* its bias is one number: shards of padding only */
    check_split("{\"kind\":\"mlp\",\"widths\":[6,8,12,4]}", "strategy=ddp tp=2");
    check_split("{\"kind\":\"mlp\",\"widths\":[6,8,12,4]}", "strategy=fsdp dp=3 tp=4");
    check_split("{\"kind\":\"mlp\",\"widths\":[1,1]}", "strategy=zero1 dp=2");
}

static void every_optimizer_and_precision_has_its_state(void)
{
    static const char *const splits[] = {
        "strategy=ddp dp=2 training.optimizer=sgd",
        "strategy=fsdp dp=3 training.optimizer=momentum",
        "strategy=zero1 dp=3 training.optimizer=momentum training.precision=bf16 "
        "training.master_weights=true",
        "strategy=fsdp dp=2 tp=2 training.precision=bf16 training.master_weights=true",
        "strategy=fsdp dp=4 training.precision=bf16 training.param_dtype=bf16",
        "strategy=zero2 dp=2 tp=2 training.precision=bf16 training.param_dtype=bf16 "
        "training.master_weights=true",
        "strategy=ddp tp=2 training.optimizer=sgd training.precision=bf16 "
        "training.master_weights=true",
        "strategy=dp dp=4 training.micro_batch=6 training.precision=bf16 "
        "training.master_weights=true",
        "strategy=ddp pp=2 training.precision=bf16 training.master_weights=true",
    };
    check_all(splits, ARRAY_N(splits), JOB_GPT);
}

/* ---- shards ---- */

/* Gathering puts the members' shards one after another: that must be the tensor before sharing. */
static void shards_one_after_another_are_the_tensor(void)
{
    Job whole, shards;
    if (!job_open(&whole, JOB_LLAMA, "strategy=ddp tp=4"))
        return;
    if (!job_open(&shards, JOB_LLAMA, "strategy=fsdp dp=3 tp=4")) {
        job_close(&whole);
        return;
    }
    for (uint32_t r = 0; r < 4; r++)
        CHECK(pieces_init(&whole.pieces[r], &whole.program[r], &whole.whole, 9,
                          &(Store){ .memory = whole.memory[r] }, NULL));
    for (uint32_t r = 0; r < 12; r++)
        CHECK(pieces_init(&shards.pieces[r], &shards.program[r], &shards.whole, 9,
                          &(Store){ .memory = shards.memory[r] }, NULL));
    uint32_t compared = 0;
    for (uint32_t tp = 0; tp < 4; tp++)
        for (uint32_t i = 0; i < whole.program[tp].residents_n; i++) {
            const Resident *a = &whole.program[tp].residents[i];
            if (a->class_ != TENSOR_PARAM)
                continue;
            for (uint64_t e = 0; e < a->elements; e++) {
                uint64_t each = div_up_u64(a->elements, 3);
                uint32_t rank = tp + 4 * (uint32_t)(e / each);
                const Resident *b = &shards.program[rank].residents[i];
                const uint32_t *x = contents(&whole, tp, a);
                const uint32_t *y = contents(&shards, rank, b);
                if (!CHECK(b->class_ == TENSOR_PARAM && b->elements == each) ||
                    !CHECK(x[e] == y[e % each]))
                    break;
                compared++;
            }
        }
    CHECK(compared > 10000);
    job_close(&whole);
    job_close(&shards);
}

/* The executor lists vectors as rows, and says nothing of a bias' sections. */
static void a_bias_follows_its_weight(void)
{
    static const char *const splits[] = { "strategy=ddp tp=2", "strategy=fsdp dp=3 tp=4" };
    for (size_t i = 0; i < ARRAY_N(splits); i++) {
        Job j;
        if (!job_open(&j, JOB_GPT, splits[i]))
            return;
        for (uint32_t w = 0; w < j.whole.n; w++) {
            Whole *x = &j.whole.whole[w];
            if (x->columns > 1)
                continue;
            bool split = x->split == SPLIT_ROWS;
            x->columns = x->rows;
            x->rows = 1;
            x->split = split ? SPLIT_COLUMNS : SPLIT_NONE;
            x->sections_n = 0;
        }
        for (uint32_t r = 0; r < j.ranks_n; r++) {
            Pieces rows;
            if (!CHECK(pieces_make(&rows, &j.program[r], &j.whole, &j.err))) {
                fprintf(stderr, "%s\n", j.err.text);
                break;
            }
            CHECK_U64(j.pieces[r].pieces_n, rows.pieces_n);
            CHECK_U64(j.pieces[r].runs_n, rows.runs_n);
            CHECK(memcmp(j.pieces[r].runs, rows.runs, rows.runs_n * sizeof *rows.runs) == 0);
            pieces_free(&rows);
        }
        job_close(&j);
    }
}

/* A rank's rows are those of its heads: rank 1 of 4 has queries 2 and 3, key and value head 0. */
static void repeated_heads_are_owned_by_the_first(void)
{
    Job j;
    if (!job_open(&j, JOB_LLAMA, "strategy=ddp tp=4"))
        return;
    const uint64_t head = 4 * 32; /* elements */
    const Pieces *x = &j.pieces[1];
    uint32_t found = 0;
    for (uint32_t i = 0; i + 1 < x->pieces_n; i++) {
        const Piece *q = &x->pieces[i], *kv = q + 1;
        const Whole *w = &j.whole.whole[q->whole];
        if (strcmp(w->name, "attention.qkv.weight") != 0 || w->layer != 0 || q->what != 0)
            continue;
        if (!q->owner)
            continue;
        found++;
        CHECK(kv->whole == q->whole && !kv->owner && q->runs_n == 1 && kv->runs_n == 2);
        const Run *run = &x->runs[q->runs_first];
        CHECK(run->local == 0 && run->whole == 2 * head && run->n == 2 * head);
        CHECK(run[1].local == 2 * head && run[1].whole == 8 * head && run[1].n == head);
        CHECK(run[2].local == 3 * head && run[2].whole == 10 * head && run[2].n == head);
    }
    CHECK_U64(1, found);
    job_close(&j);
}

/* ---- values ---- */

static void seeds_and_layers_differ(void)
{
    Whole a = { .layer = 0, .name = "w" }, b = { .layer = 1, .name = "w" },
          c = { .layer = 0, .name = "v" };
    uint32_t same = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        float x = value_of(&a, 1, i);
        same += fabsf(x - value_of(&b, 1, i)) < 1e-6f;
        same += fabsf(x - value_of(&c, 1, i)) < 1e-6f;
        same += fabsf(x - value_of(&a, 2, i)) < 1e-6f;
    }
    CHECK(same < 3);
}

/* Every f16 and bf16 survives; halfway cases go to the even neighbour; as the definitions say. */
static void numbers_narrow_to_the_nearest(void)
{
    for (uint32_t x = 0; x < 0x10000; x++) {
        uint16_t half = (uint16_t)x;
        if (!isnan(f32_of_f16(half)))
            CHECK_U64(half, f16_of_f32(f32_of_f16(half)));
        if (!isnan(f32_of_bf16(half)))
            CHECK_U64(half, bf16_of_f32(f32_of_bf16(half)));
    }
    for (uint16_t x = 0; x < 0x7bff; x++) {
        double low = (double)f32_of_f16(x), high = (double)f32_of_f16((uint16_t)(x + 1));
        float middle = (float)((low + high) / 2);
        CHECK_U64(x % 2 ? x + 1u : x, f16_of_f32(middle));
        CHECK_U64(x, f16_of_f32(nextafterf(middle, 0)));
        CHECK_U64(x + 1u, f16_of_f32(nextafterf(middle, INFINITY)));
        CHECK_U64(x | 0x8000u, f16_of_f32(-nextafterf(middle, 0)));
    }
    CHECK_U64(0x7c00, f16_of_f32(65520)); /* halfway to what would be 2^16 */
    CHECK_U64(0x7bff, f16_of_f32(65519));
    CHECK_U64(0x7c00, f16_of_f32(1e30f));
    CHECK(isnan(f32_of_f16(f16_of_f32(NAN))) && isnan(f32_of_bf16(bf16_of_f32(NAN))));
    CHECK_U64(0x3f80, bf16_of_f32(f32_of_bits(0x3f808000)));
    CHECK_U64(0x3f82, bf16_of_f32(f32_of_bits(0x3f818000)));
    CHECK_U64(0x3f81, bf16_of_f32(f32_of_bits(0x3f808001)));
}

static void each_init_is_what_it_says(void)
{
    Job j;
    if (!job_open(&j, JOB_LINE, "strategy=single training.optimizer=sgd"))
        return;
    Whole *weight = &j.whole.whole[0], *bias = &j.whole.whole[1];
    weight->init = INIT_UNIFORM;
    weight->init_scale = 0.25;
    bias->init = INIT_ONE;
    const Program *p = &j.program[0];
    CHECK(pieces_init(&j.pieces[0], p, &j.whole, 5, &(Store){ .memory = j.memory[0] }, NULL));
    const float *w = contents(&j, 0, &p->residents[0]);
    const float *b = contents(&j, 0, &p->residents[1]);
    uint64_t key = random_key(5, "linear.weight", 0);
    for (uint64_t i = 0; i < 20; i++)
        CHECK_NEAR((2 * random_unit(key, i) - 1) * 0.25, (double)w[i], 1e-7);
    CHECK_NEAR(1, (double)b[0], 0);
    bias->init = INIT_ZERO;
    CHECK(pieces_init(&j.pieces[0], p, &j.whole, 5, &(Store){ .memory = j.memory[0] }, NULL));
    CHECK_NEAR(0, (double)b[0], 0);
    job_close(&j);
}

/* A weight whose columns are split is a run a row, but one stretch of memory: one copy. */
static void neighbours_are_copied_together(void)
{
    enum { ROWS = 1000, COLUMNS = 3 };
    static Run runs[ROWS];
    for (uint32_t i = 0; i < ROWS; i++)
        runs[i] = (Run){ i * COLUMNS, 2 * i * COLUMNS, COLUMNS };
    Resident r = { .dtype = DTYPE_BF16,
                   .elements = ROWS * COLUMNS,
                   .bytes = 2 * ROWS * COLUMNS };
    Program p = { .residents = &r, .residents_n = 1 };
    Whole w = { .name = "w", .init = INIT_NORMAL, .init_scale = 1 };
    WholeList list = { .whole = &w, .n = 1 };
    Piece pieces[] = { { .runs_n = ROWS }, { .runs_n = ROWS, .what = PIECE_FIRST_MOMENT } };
    Pieces x = { .pieces = pieces, .pieces_n = 1, .runs = runs, .runs_n = ROWS };
    static uint8_t near[2 * ROWS * COLUMNS], far[2 * ROWS * COLUMNS];
    FarMemory counts = { .fails_at = UINT32_MAX };
    Backend behind = { .memory = far, .counts = &counts };
    Store there = far_store(&behind), here = { .memory = near };
    CHECK(pieces_init(&x, &p, &list, 4, &here, NULL));
    CHECK(pieces_init(&x, &p, &list, 4, &there, NULL));
    CHECK_U64(1, counts.calls_n);
    CHECK(memcmp(near, far, sizeof near) == 0);
    x.pieces++; /* zeros, where numbers were */
    CHECK(pieces_init(&x, &p, &list, 4, &there, NULL));
    CHECK_U64(2, counts.calls_n);
    CHECK(far[0] == 0 && memcmp(far, far + 1, sizeof far - 1) == 0);
}

/* More than a block: several threads make them. */
static void many_numbers_are_those_of_one_thread(void)
{
    enum { N = (3 << 20) + 5, SKIPPED = 7 };
    Resident r = { .dtype = DTYPE_F32, .elements = N, .bytes = 4 * (uint64_t)N };
    Program p = { .residents = &r, .residents_n = 1 };
    Whole w = { .name = "w", .init = INIT_NORMAL, .init_scale = 1 };
    WholeList list = { .whole = &w, .n = 1 };
    Run runs[] = { { 0, 0, N / 2 }, { N / 2, N / 2 + SKIPPED, N - N / 2 } };
    Piece piece = { .runs_n = 2 };
    Pieces x = { .pieces = &piece, .pieces_n = 1, .runs = runs, .runs_n = 2 };
    float *made = mem_zero(N, sizeof *made), *want = mem_zero(N + SKIPPED, sizeof *want);
    uint64_t wrong = 0;
    FarMemory counts = { .fails_at = UINT32_MAX };
    Backend behind = { .memory = (uint8_t *)made, .counts = &counts };
    Store stores[] = { { .memory = (uint8_t *)made }, far_store(&behind) };
    random_normals(random_key(4, "w", 0), 0, N + SKIPPED, want);
    for (size_t s = 0; s < ARRAY_N(stores); s++) {
        memset(made, 0, N * sizeof *made);
        CHECK(pieces_init(&x, &p, &list, 4, &stores[s], NULL));
        for (uint64_t i = 0; i < N; i++)
            wrong += made[i] != want[i < N / 2 ? i : i + SKIPPED];
        CHECK_U64(0, wrong);
    }
    CHECK_U64(4, counts.calls_n); /* of a chunk at most, four threads or one */
    Err err = { 0 };
    counts = (FarMemory){ .fails_at = 2 };
    CHECK(!pieces_init(&x, &p, &list, 4, &stores[1], &err));
    CHECK_ERR_TEXT(&err, "the memory is gone");
    free(made);
    free(want);
}

static void a_list_of_another_model_is_refused(void)
{
    Job j;
    if (!job_open(&j, JOB_GPT, "strategy=ddp tp=2"))
        return;
    Pieces x;
    WholeList less = { j.whole.n - 1, j.whole.whole };
    CHECK(!pieces_make(&x, &j.program[0], &less, &j.err));
    CHECK_ERR_TEXT(&j.err, "the model has no parameter '");
    CHECK(x.pieces == NULL && x.pieces_n == 0);
    err_clear(&j.err);
    j.whole.whole[0].columns++;
    CHECK(!pieces_make(&x, &j.program[0], &j.whole, &j.err));
    CHECK_ERR_TEXT(&j.err, "parameter 'tokens.weight' of 61 x 25 cannot be what a rank of 2");
    job_close(&j);
}

int main(void)
{
    RUN(a_gpt_is_whole_under_every_split);
    RUN(a_llama_with_repeated_key_heads_is_whole);
    RUN(an_mlp_is_whole);
    RUN(every_optimizer_and_precision_has_its_state);
    RUN(shards_one_after_another_are_the_tensor);
    RUN(a_bias_follows_its_weight);
    RUN(repeated_heads_are_owned_by_the_first);
    RUN(seeds_and_layers_differ);
    RUN(numbers_narrow_to_the_nearest);
    RUN(each_init_is_what_it_says);
    RUN(neighbours_are_copied_together);
    RUN(many_numbers_are_those_of_one_thread);
    RUN(a_list_of_another_model_is_refused);
    return check_report();
}

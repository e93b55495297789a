/*
 * However the work is split, the same network is trained: losses of every strategy
 * against those of one process on the same global batch.  And wherever a training is
 * interrupted: resumed from a snapshot with the same split its losses are the same bits,
 * with another split they differ as splits do.
 *
 * Sums are taken in another order and each update carries the difference on.  The
 * bound is a relative 1e-6 over six steps in f32; measured are up to 6e-8.  What a
 * slightly different training does is larger by far: the last test shows it.
 */
#include "tests/exec_world.h"

enum { STEPS = 6, HALF = 3, SHARING_N = 11 /* cases that need not split a layer */ };

#define LOSS_BOUND 1e-6

/* Slow under the thread sanitizer, and one of each kind has all the threads. */
#ifdef __SANITIZE_THREAD__
#define CASE_STRIDE (check_one_in() > 6 ? check_one_in() : 6)
#else
#define CASE_STRIDE check_one_in()
#endif

#define CLUSTER "\"cluster\":{\"base\":\"pcie-workstation\",\"nodes\":1,\"gpus_per_node\":8},"

static const char *const mlp =
    "{\"name\":\"mlp\",\"model\":{\"kind\":\"mlp\",\"widths\":[24,32,32,32,16],"
    "\"activation\":\"relu\"}," CLUSTER
    "\"training\":{\"global_batch\":16,\"micro_batch\":2,\"precision\":\"f32\",\"lr\":0.5,"
    "\"optimizer\":\"momentum\",\"loss\":\"mse\",\"grad_clip\":0.2},"
    "\"parallel\":{\"strategy\":\"ddp\",\"dp\":1}}";

/* Sizes that do not divide by the ranks: shards end in padding, which has no gradient. */
static const char *const classes =
    "{\"name\":\"classes\",\"model\":{\"kind\":\"mlp\",\"widths\":[23,32,32,32,13],"
    "\"activation\":\"gelu\"}," CLUSTER
    "\"training\":{\"global_batch\":16,\"micro_batch\":2,\"precision\":\"f32\",\"lr\":0.5,"
    "\"optimizer\":\"momentum\",\"loss\":\"cross_entropy\",\"grad_clip\":0.2},"
    "\"parallel\":{\"strategy\":\"ddp\",\"dp\":1}}";

/* Weight and bias, the latter of one number: collectives of two pieces, shards of nothing. */
static const char *const linear =
    "{\"name\":\"linear\",\"model\":{\"kind\":\"mlp\",\"widths\":[20,1],"
    "\"activation\":\"relu\"}," CLUSTER
    "\"training\":{\"global_batch\":16,\"micro_batch\":2,\"precision\":\"f32\",\"lr\":0.1,"
    "\"optimizer\":\"sgd\",\"loss\":\"mse\",\"data\":\"regression20\"},"
    "\"parallel\":{\"strategy\":\"ddp\",\"dp\":1}}";

static const char *const gpt =
    "{\"name\":\"gpt\",\"model\":{\"kind\":\"transformer\",\"layers\":2,\"hidden\":32,"
    "\"heads\":4,\"vocab\":64,\"max_seq\":16,\"activation\":\"gelu\",\"norm\":\"layernorm\","
    "\"positions\":\"learned\",\"tied_embeddings\":true}," CLUSTER
    "\"training\":{\"global_batch\":8,\"micro_batch\":2,\"seq_len\":16,\"precision\":\"f32\","
    "\"lr\":0.01,\"optimizer\":\"adamw\",\"grad_clip\":0.5},"
    "\"parallel\":{\"strategy\":\"ddp\",\"dp\":1}}";

static const char *const llama =
    "{\"name\":\"llama\",\"model\":{\"kind\":\"transformer\",\"layers\":4,\"hidden\":32,"
    "\"heads\":4,\"kv_heads\":2,\"ffn\":48,\"vocab\":64,\"max_seq\":16,\"gated\":true,"
    "\"activation\":\"silu\",\"norm\":\"rmsnorm\",\"positions\":\"rope\","
    "\"tied_embeddings\":false}," CLUSTER
    "\"training\":{\"global_batch\":8,\"micro_batch\":2,\"seq_len\":16,\"precision\":\"f32\","
    "\"lr\":1,\"optimizer\":\"sgd\",\"grad_clip\":0.5},"
    "\"parallel\":{\"strategy\":\"ddp\",\"dp\":1}}";

/* Queries and keys have a norm: they lie apart from values. */
#define QWEN(vocabulary) \
    "{\"name\":\"qwen\",\"model\":{\"model_type\":\"qwen3\",\"num_hidden_layers\":4," \
    "\"hidden_size\":32,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":8," \
    "\"intermediate_size\":48,\"vocab_size\":" vocabulary ",\"max_position_embeddings\":16," \
    "\"hidden_act\":\"silu\",\"tie_word_embeddings\":true}," CLUSTER \
    "\"training\":{\"global_batch\":8,\"micro_batch\":2,\"seq_len\":16,\"precision\":\"f32\"," \
    "\"lr\":1,\"optimizer\":\"sgd\",\"grad_clip\":0.5}," \
    "\"parallel\":{\"strategy\":\"ddp\",\"dp\":1}}"
static const char *const qwen = QWEN("61");
/* Rows of its table are padded to 16: with tp 2 a rank has eight of padding. */
static const char *const few_words = QWEN("8");

typedef struct Case {
    const char *what;
    Setting set[8];
} Case;

/* A bit for each kind of collective among several ranks that any of them runs. */
static uint64_t collectives_of(const Graph *g)
{
    uint64_t kinds = 0;
    for (uint32_t r = 0; r < g->world_n; r++) {
        Program p;
        Err err = { 0 };
        CHECK(program_make(&p, g, r, &err));
        for (uint32_t t = 0; t < p.tasks_n; t++)
            if (op_is_comm(p.tasks[t].op->kind) && !op_is_p2p(p.tasks[t].op->kind) &&
                p.tasks[t].members_n > 1)
                kinds |= (uint64_t)1 << p.tasks[t].op->kind;
        program_free(&p);
    }
    return kinds;
}

static bool losses_by(const char *text, const Case *c, WorldOptions options, double *losses)
{
    ExecWorld w;
    Err err = { 0 };
    uint32_t n = 0;
    while (n < ARRAY_N(c->set) && c->set[n].key)
        n++;
    bool ok = world_open(&w, text, c->set, n, &err);
    if (!CHECK(ok))
        fprintf(stderr, "%s: %s\n", c->what, err.text);
    if (ok) {
        ok = CHECK(world_run(&w, options));
        if (!ok)
            fprintf(stderr, "%s: %s\n", c->what, w.result->text);
        memcpy(losses, w.result->losses, options.steps * sizeof *losses);
        if (options.measured)
            CHECK_U64(collectives_of(&w.plan.graph), w.result->collectives);
    }
    world_close(&w);
    return ok;
}

static bool losses_of(const char *text, const Case *c, double *losses)
{
    WorldOptions options = { .clock = RUN_WALL, .steps = STEPS, .measured = true };
    return losses_by(text, c, options, losses);
}

static double worst_of(const double *a, const double *b, int n)
{
    double worst = 0;
    for (int i = 0; i < n; i++)
        worst = fmax(worst, fabs(a[i] - b[i]) / fabs(a[i]));
    return worst;
}

static double worst_difference(const double *a, const double *b)
{
    return worst_of(a, b, STEPS);
}

#define P(key, value) \
    { \
        "parallel." key, value \
    }
#define T(key, value) \
    { \
        "training." key, value \
    }

static const Case alone = { "one process", { P("dp", "1") } };

static const Case cases[] = {
    { "ddp 2", { P("dp", "2") } },
    { "ddp 4", { P("dp", "4") } },
    { "zero1 2", { P("strategy", "zero1"), P("dp", "2") } },
    { "zero1 4", { P("strategy", "zero1"), P("dp", "4") } },
    { "zero2 2", { P("strategy", "zero2"), P("dp", "2") } },
    { "zero2 4", { P("strategy", "zero2"), P("dp", "4") } },
    { "fsdp 2", { P("strategy", "fsdp"), P("dp", "2") } },
    { "fsdp 4", { P("strategy", "fsdp"), P("dp", "4") } },
    { "hsdp 4", { P("strategy", "hsdp"), P("dp", "4"), P("shard_size", "2") } },
    { "dp 2", { P("strategy", "dp"), P("dp", "2") } },
    { "dp 4", { P("strategy", "dp"), P("dp", "4") } },
    /* ... until here data parallel */
    { "tp 2", { P("tp", "2") } },
    { "model_parallel 2",
      { P("strategy", "model_parallel"), P("pp", "2"), T("micro_batch", "8"),
        T("global_batch", "8") } },
    { "gpipe 2", { P("pp", "2"), P("schedule", "gpipe") } },
    { "1f1b 2", { P("pp", "2"), P("schedule", "1f1b") } },
    { "1f1b 4", { P("pp", "4"), P("schedule", "1f1b") } },
    { "zb-h1 2", { P("pp", "2"), P("schedule", "zb-h1") } },
    { "zb-2p 4", { P("pp", "4"), P("schedule", "zb-2p") } },
    { "zbv 2", { P("pp", "2"), P("schedule", "zbv") } },
    { "dualpipe 2", { P("pp", "2"), P("schedule", "dualpipe") } },
    { "interleaved 2",
      { P("pp", "2"), P("schedule", "interleaved"), P("virtual_stages", "2") } },
    { "ddp 2 tp 2", { P("dp", "2"), P("tp", "2") } },
    { "ddp 2 pp 2", { P("dp", "2"), P("pp", "2") } },
    { "tp 2 pp 2", { P("tp", "2"), P("pp", "2") } },
    { "fsdp 2 pp 2", { P("strategy", "fsdp"), P("dp", "2"), P("pp", "2") } },
    { "zero1 2 tp 2", { P("strategy", "zero1"), P("dp", "2"), P("tp", "2") } },
    { "fsdp 2 tp 2", { P("strategy", "fsdp"), P("dp", "2"), P("tp", "2") } },
};

/* Not of a model with two key and value heads. */
static const Case four_heads[] = {
    { "tp 4", { P("tp", "4") } },
    { "sequence_parallel 4", { P("tp", "4"), P("sequence_parallel", "true") } },
};

static const Case transformer_cases[] = {
    { "sequence_parallel 2", { P("tp", "2"), P("sequence_parallel", "true") } },
    { "cp 2", { P("cp", "2") } },
    { "cp 4", { P("cp", "4") } },
    { "ddp 2 cp 2", { P("dp", "2"), P("cp", "2") } },
    { "fsdp 2 cp 2", { P("strategy", "fsdp"), P("dp", "2"), P("cp", "2") } },
    { "tp 2 cp 2", { P("tp", "2"), P("cp", "2") } },
    { "recompute 2", { P("dp", "2"), T("recompute", "full") } },
    { "cp 2, math", { P("cp", "2"), T("attention", "math"), T("recompute", "full") } },
    { "selective 2", { P("tp", "2"), T("recompute", "selective") } },
};

/* ---- resumed ---- */

/* In memory where that can be had: many small snapshots, and no disk is on trial here.  The name
 * is not one that other tests look for, to see whether anything of lockstep's was left. */
static char snapshots[256];

static void choose_folder(void)
{
    const char *memory = "/dev/shm";
    snprintf(snapshots, sizeof snapshots, "%s/test-same-loss-%ld",
             access(memory, W_OK) == 0 ? memory : P_tmpdir, (long)getpid());
}

static void remove_step(int step)
{
    char path[sizeof snapshots + 64];
    for (int rank = 0; rank < 8; rank++) {
        snprintf(path, sizeof path, "%s/step-%08d/rank-%05d.part", snapshots, step, rank);
        unlink(path);
    }
    snprintf(path, sizeof path, "%s/step-%08d", snapshots, step);
    rmdir(path);
    snprintf(path, sizeof path, "%s/latest", snapshots);
    unlink(path);
}

/* The second half again, from the snapshot in the middle; what it writes goes. */
static bool second_half(const char *text, const Case *c, double *losses)
{
    WorldOptions options = { .clock = RUN_WALL, .steps = STEPS };
    options.checkpoint = snapshots;
    options.resume = true;
    bool ok = losses_by(text, c, options, losses);
    remove_step(STEPS);
    return ok;
}

static bool has_own_batch(const Case *c)
{
    for (size_t k = 0; k < ARRAY_N(c->set) && c->set[k].key; k++)
        if (strcmp(c->set[k].key, "training.global_batch") == 0)
            return true;
    return false;
}

/* The case with a snapshot in its middle, and from there on itself and the other; whole: the losses
 * of the uninterrupted one. */
static bool resume_one(const char *text, const char *model, const Case *c, const Case *other,
                       double *whole)
{
    double same[STEPS], moved[STEPS];
    WorldOptions options = {
        .clock = RUN_WALL, .steps = STEPS, .every = HALF, .measured = true
    };
    options.checkpoint = snapshots;
    bool ok = losses_by(text, c, options, whole);
    remove_step(STEPS);
    if (ok && second_half(text, c, same) &&
        !CHECK(memcmp(whole + HALF, same, (STEPS - HALF) * sizeof *same) == 0))
        fprintf(stderr, "%s, %s: resumed %.17g, not %.17g\n", model, c->what, same[0],
                whole[HALF]);
    if (ok && !has_own_batch(c) && second_half(text, other, moved)) {
        double worst = worst_of(whole + HALF, moved, STEPS - HALF);
        if (!CHECK(worst <= LOSS_BOUND) || getenv("CHECK_VERBOSE"))
            fprintf(stderr, "%s, %s, then %s: worst %.2e\n", model, c->what, other->what,
                    worst);
    }
    remove_step(HALF);
    return ok;
}

/* ---- split ---- */

/* Every case against one process; interrupted: also from its middle on, and its successor's, in
 * as many runs as that needs. */
static void compare(const char *text, const char *model, const Case *list, size_t n,
                    bool interrupted)
{
    double expect[STEPS], got[STEPS];
    if (!losses_of(text, &alone, expect))
        return;
    for (size_t i = 0; i < n; i += CASE_STRIDE) {
        const Case *next = &list[(i + 1) % n];
        Case one = alone;
        for (uint32_t k = 0; k < ARRAY_N(list[i].set) && list[i].set[k].key; k++)
            if (strcmp(list[i].set[k].key, "training.global_batch") == 0)
                one.set[1] = list[i].set[k];
        double whole[STEPS];
        memcpy(whole, expect, sizeof whole);
        if (one.set[1].key && !losses_of(text, &one, whole))
            continue;
        if (interrupted
                ? !resume_one(text, model, &list[i], has_own_batch(next) ? &alone : next, got)
                : !losses_of(text, &list[i], got))
            continue;
        double worst = worst_difference(whole, got);
        if (!CHECK(worst <= LOSS_BOUND) || getenv("CHECK_VERBOSE"))
            fprintf(stderr, "%s, %s: worst %.2e; %.6f %.6f, not %.6f %.6f\n", model,
                    list[i].what, worst, got[0], got[STEPS - 1], whole[0], whole[STEPS - 1]);
    }
    rmdir(snapshots);
}

static void an_mlp_trains_alike_however_it_is_split_and_interrupted(void)
{
    compare(mlp, "mlp", cases, ARRAY_N(cases), true);
    compare(mlp, "mlp", four_heads, 1, false);
}

static void a_classifier_trains_alike_however_it_is_split(void)
{
    compare(classes, "classes", cases, ARRAY_N(cases), false);
    compare(classes, "classes", four_heads, 1, false);
}

static void one_layer_trains_alike_however_it_is_shared_out(void)
{
    compare(linear, "linear", cases, SHARING_N, false);
}

static void a_gpt_trains_alike_however_it_is_split_and_interrupted(void)
{
    compare(gpt, "gpt", cases, ARRAY_N(cases), true);
    compare(gpt, "gpt", four_heads, ARRAY_N(four_heads), false);
    compare(gpt, "gpt", transformer_cases, ARRAY_N(transformer_cases), true);
}

static void a_llama_trains_alike_however_it_is_split_and_interrupted(void)
{
    compare(llama, "llama", cases, ARRAY_N(cases), true);
    compare(llama, "llama", transformer_cases, ARRAY_N(transformer_cases), true);
}

static void a_qwen_trains_alike_however_it_is_split(void)
{
    compare(qwen, "qwen", transformer_cases, ARRAY_N(transformer_cases), false);
    compare(few_words, "few words", transformer_cases, ARRAY_N(transformer_cases), false);
}

/* ---- the bound, the snapshot, learning ---- */

/* What has begun otherwise goes on otherwise: the snapshot counts, not only the seed. */
static void a_resumed_training_depends_on_its_snapshot(void)
{
    static const Case other = { "lr", { P("dp", "1"), T("lr", "0.011") } };
    double whole[STEPS], mixed[STEPS];
    WorldOptions options = { .clock = RUN_WALL, .steps = HALF };
    options.checkpoint = snapshots;
    if (losses_of(gpt, &alone, whole) && losses_by(gpt, &other, options, mixed) &&
        second_half(gpt, &alone, mixed))
        CHECK(worst_of(whole + HALF, mixed, STEPS - HALF) > LOSS_BOUND);
    remove_step(HALF);
    rmdir(snapshots);
}

/* The bound tells a slightly different training apart: a clip of 1 % less, another batch order. */
static void the_bound_tells_trainings_apart(void)
{
    static const Case others[] = { { "clip", { P("dp", "1"), T("grad_clip", "0.495") } },
                                   { "seed", { P("dp", "1"), T("seed", "1") } },
                                   { "lr", { P("dp", "1"), T("lr", "1.01") } } };
    double expect[STEPS], got[STEPS];
    if (!losses_of(llama, &alone, expect))
        return;
    for (size_t i = 0; i < ARRAY_N(others); i++)
        if (losses_of(llama, &others[i], got) &&
            (!CHECK(worst_difference(expect, got) > LOSS_BOUND) || getenv("CHECK_VERBOSE")))
            fprintf(stderr, "%s: %.2e\n", others[i].what, worst_difference(expect, got));
}

/* Losses of batches differ by themselves: the mean of eight early ones against late ones. */
static void training_learns(void)
{
    static const char *const models[] = { mlp, gpt, llama };
    for (size_t i = 0; i < ARRAY_N(models); i++) {
        ExecWorld w;
        Err err = { 0 };
        double early = 0, late = 0;
        const Setting two = { "parallel.dp", "2" };
        if (CHECK(world_open(&w, models[i], &two, 1, &err)) &&
            CHECK(world_run(&w, (WorldOptions){ .clock = RUN_WALL, .steps = WORLD_STEPS_MAX })))
            for (int k = 0; k < 8; k++) {
                early += w.result->losses[k];
                late += w.result->losses[WORLD_STEPS_MAX - 1 - k];
            }
        CHECK(late < 0.95 * early);
        world_close(&w);
    }
}

int main(void)
{
    choose_folder();
    RUN(training_learns);
    RUN(an_mlp_trains_alike_however_it_is_split_and_interrupted);
    RUN(a_classifier_trains_alike_however_it_is_split);
    RUN(one_layer_trains_alike_however_it_is_shared_out);
    RUN(a_gpt_trains_alike_however_it_is_split_and_interrupted);
    RUN(a_llama_trains_alike_however_it_is_split_and_interrupted);
    RUN(a_qwen_trains_alike_however_it_is_split);
    RUN(a_resumed_training_depends_on_its_snapshot);
    RUN(the_bound_tells_trainings_apart);
    return check_report();
}

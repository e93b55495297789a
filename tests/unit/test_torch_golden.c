/*
 * test_torch_golden.c - `lockstep run` trains as PyTorch does: tests/golden/torch.
 *
 * NAME.json is a scenario, NAME.golden.json what PyTorch made of it, step by step;
 * tests/parity/make_torch_golden.py has written both and says what they hold.  Here the
 * scenario is run under each strategy that must come to the same numbers, and the
 * losses are compared, and, by way of a snapshot, the parameters.
 *
 * TOLERANCES.  Both compute in f32 with 24-bit mantissas, and add in another order:
 * sums of some thousand terms differ by some 1e-7 of their size.  PyTorch's own runs
 * differ among each other by up to 3e-7 in the losses (single, ddp, fsdp).  Ten steps
 * carry that on: 1e-5 for losses leaves a factor of 30, while a wrong decay, a missing
 * bias correction or a mean over the wrong count shows at 1e-3 and above.  Parameters
 * are compared by how far they have gone, |p - first p|, and by a projection of it.
 * Adam divides by the root of the second moment, so gradients that are zero but for
 * rounding (of key biases: softmax does not see them) move by rounding alone: that one
 * parameter is left out under Adam.
 */
#include "core/json.h"
#include "exec/random.h"
#include "exec/snapshot_part.h"
#include "tests/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GOLDEN    "tests/golden/torch"
#define LOSS_REL  1e-5
#define DELTA_REL 1e-3
#define DELTA_ABS 1e-6 /* of a parameter that should stay; per root of its elements */

enum { STEPS_MAX = 64, COMMAND_MAX = 4096 };

static char program[512], dir[256];

/* LOCKSTEP, or the program two folders above this one. */
static bool find_program(void)
{
    const char *given = getenv("LOCKSTEP");
    ssize_t n = -1;
    if (given) {
        snprintf(program, sizeof program, "%s", given);
    } else if ((n = readlink("/proc/self/exe", program, sizeof program - 32)) > 0) {
        program[n] = '\0';
        for (int i = 0; i < 3 && strrchr(program, '/'); i++)
            *strrchr(program, '/') = '\0';
        strcat(program, "/lockstep");
    }
    return access(program, X_OK) == 0;
}

static double *numbers_of(JsonNode list, uint32_t *n)
{
    static double x[STEPS_MAX];
    *n = (uint32_t)json_items_n(list);
    ASSERT(*n <= STEPS_MAX);
    for (uint32_t i = 0; i < *n; i++)
        x[i] = json_value(json_item(list, i));
    return x;
}

/* ---- running ---- */

/* What the program prints; NULL, and a failed check, when it fails. */
static JsonDoc *run(const char *name, const char *settings)
{
    char command[COMMAND_MAX], *text = NULL;
    size_t n = 0, cap = 0;
    Err err = { 0 };
    snprintf(command, sizeof command, "%s run " GOLDEN "/%s.json --json %s 2>%s/errors",
             program, name, settings, dir);
    FILE *f = popen(command, "r");
    ASSERT(f);
    for (int c; (c = fgetc(f)) != EOF;) {
        GROW(text, n, cap);
        text[n++] = (char)c;
    }
    int status = pclose(f);
    JsonDoc *doc = n > 0 ? json_parse(text, n, "stdout", &err) : NULL;
    free(text);
    if (!CHECK(status == 0 && doc != NULL)) {
        snprintf(command, sizeof command, "grep -v '^step ' %s/errors >&2", dir);
        fprintf(stderr, "    %s %s: %s\n", name, settings, err.text);
        if (system(command) != 0)
            fprintf(stderr, "    (no sentence)\n");
        json_close(doc);
        return NULL;
    }
    return doc;
}

/* The losses of steps first, first + 1 ... */
static bool check_losses_from(JsonDoc *doc, JsonNode want, uint64_t first, uint64_t steps)
{
    double expect[STEPS_MAX];
    uint32_t n, got_n;
    memcpy(expect, numbers_of(want, &n), sizeof expect);
    const double *got = numbers_of(json_member(json_root(doc), "losses"), &got_n);
    bool same = CHECK_U64(steps, got_n) && CHECK(first + got_n <= n);
    for (uint32_t i = 0; i < got_n && same; i++)
        same = CHECK_NEAR(expect[first + i], got[i], LOSS_REL);
    return same;
}

static bool check_losses(JsonDoc *doc, JsonNode want, uint64_t steps)
{
    return check_losses_from(doc, want, 0, steps);
}

/* ---- parameters ---- */

/* How far a parameter has gone. */
typedef struct Gone {
    uint32_t layer;
    const char *name;
    uint64_t elements;
    double squares, probe;
} Gone;

/* As exec/whole.c has it; inputs: of the layer, for an mlp; 0: a transformer. */
static double first_value(const Gone *g, uint64_t seed, uint64_t inputs, uint64_t i)
{
    uint64_t key = random_key(seed, g->name, g->layer);
    bool bias = strstr(g->name, ".bias") != NULL;
    float x = 0;
    if (strstr(g->name, "norm") || (bias && !inputs))
        return bias ? 0 : 1;
    if (inputs)
        return (double)(float)((2 * random_unit(key, i) - 1) / sqrt((double)inputs));
    random_normals(key, i, 1, &x);
    return (double)(float)((double)x * 0.02);
}

static void add_piece(Gone *g, SnapPart *part, const StoredPiece *s, uint64_t seed,
                      uint64_t inputs)
{
    Err err = { 0 };
    float *p = mem_zero(s->elements, sizeof *p);
    uint64_t probe = random_key(0, "probe", 0);
    CHECK(s->dtype == DTYPE_F32 && snap_numbers(part, s, p, &err));
    for (uint32_t k = 0; k < s->runs_n; k++) {
        Run run = part->runs[s->runs_first + k];
        for (uint64_t i = 0; i < run.n; i++) {
            double d = (double)p[run.local + i] - first_value(g, seed, inputs, run.whole + i);
            g->squares += d * d;
            g->probe += d * (random_unit(probe, run.whole + i) - 0.5);
            g->elements++;
        }
    }
    free(p);
}

/* Sums over the parts of the snapshot behind the last step. */
static bool add_parts(Gone *g, uint64_t step, uint64_t seed, JsonNode widths)
{
    uint32_t parts_n = 1;
    for (uint32_t k = 0; k < parts_n; k++) {
        char path[512];
        SnapPart part;
        Err err = { 0 };
        snprintf(path, sizeof path, "%s/snapshots/step-%08" PRIu64 "/rank-%05" PRIu32 ".part",
                 dir, step, k);
        if (!CHECK(snap_open(&part, path, &err))) {
            fprintf(stderr, "    %s\n", err.text);
            snap_close(&part);
            return false;
        }
        parts_n = part.head.parts_n;
        for (uint32_t i = 0; i < part.pieces_n; i++) {
            const StoredPiece *s = &part.pieces[i];
            if (s->what != PIECE_PARAM || s->layer != g->layer || strcmp(s->name, g->name) != 0)
                continue;
            double inputs = widths.item ? json_value(json_item(widths, s->layer)) : 0;
            add_piece(g, &part, s, seed, (uint64_t)inputs);
        }
        snap_close(&part);
    }
    return true;
}

static bool check_param(JsonNode row, uint32_t column, uint64_t step, JsonNode scenario)
{
    JsonNode training = json_member(scenario, "training");
    double layer = json_value(json_item(row, 0));
    Gone g = { .layer = layer < 0 ? NONE_U32 : (uint32_t)layer,
               .name = json_text(json_item(row, 1)) };
    bool adam = strstr(json_text(json_member(training, "optimizer")), "adam") != NULL;
    if (adam && strcmp(g.name, "attention.qkv.bias") == 0)
        return true;
    uint64_t seed = (uint64_t)json_value(json_member(training, "seed"));
    JsonNode want = json_item(row, 2 + column);
    if (!add_parts(&g, step, seed, json_member(json_member(scenario, "model"), "widths")))
        return false;
    double delta = json_value(json_item(want, 0)), probe = json_value(json_item(want, 1));
    double slack = DELTA_REL * delta + DELTA_ABS * sqrt((double)g.elements);
    bool same = CHECK(g.elements > 0) && CHECK(fabs(sqrt(g.squares) - delta) <= slack) &&
                CHECK(fabs(g.probe - probe) <= slack);
    if (!same)
        fprintf(stderr, "    %s of layer %g after %" PRIu64 ": %.7g, %.7g, not %.7g, %.7g\n",
                g.name, layer, step, sqrt(g.squares), g.probe, delta, probe);
    return same;
}

static void clear_dir(void)
{
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s' && mkdir '%s'", dir, dir);
    ASSERT(system(command) == 0);
}

static void check_params(const char *name, const char *settings, JsonNode golden,
                         JsonNode run_of)
{
    char full[COMMAND_MAX / 2], path[256];
    Err err = { 0 };
    snprintf(path, sizeof path, GOLDEN "/%s.json", name);
    JsonDoc *scenario = json_open(path, &err);
    ASSERT(scenario);
    JsonNode after = json_member(golden, "after"), rows = json_member(run_of, "parameters");
    for (uint32_t k = 0; k < json_items_n(after); k++) {
        uint64_t step = (uint64_t)json_value(json_item(after, k));
        clear_dir();
        snprintf(full, sizeof full,
                 "%s--clock virtual --steps %" PRIu64 " --checkpoint %s/snapshots", settings,
                 step, dir);
        JsonDoc *doc = run(name, full);
        bool same = doc && check_losses(doc, json_member(run_of, "losses"), step);
        for (uint32_t i = 0; i < json_items_n(rows) && same; i++)
            same = check_param(json_item(rows, i), k, step, json_root(scenario));
        if (!same)
            fprintf(stderr, "    %s %s\n", name, full);
        json_close(doc);
    }
    json_close(scenario);
}

/* ---- one golden file ---- */

typedef struct Way {
    const char *how; /* in the golden file */
    uint32_t ranks;
    const char *settings; /* of parallel, with the degrees that this way has */
} Way;

/* What must come to the numbers of PyTorch's run `how` on so many ranks. */
static const Way ways[] = {
    { "single", 1, "strategy=single" },
    { "ddp", 2, "strategy=ddp dp=2" },
    { "ddp", 2, "strategy=zero1 dp=2" },
    { "ddp", 2, "strategy=zero2 dp=2" },
    { "ddp", 4, "strategy=ddp dp=4" },
    { "fsdp", 2, "strategy=fsdp dp=2" },
    { "fsdp", 4, "strategy=fsdp dp=4" },
    { "fsdp", 4, "strategy=hsdp dp=4 shard_size=2" },
    { "gpipe", 2, "strategy=ddp pp=2 schedule=gpipe" },
    { "1f1b", 2, "strategy=ddp pp=2 schedule=1f1b" },
};

static double number_at(JsonNode object, const char *key)
{
    return json_value(json_member(object, key));
}

/* "--set parallel.strategy=ddp ..."; a replica's micro-batch is at most its share. */
static void options_of(char *out, size_t cap, const Way *w, const char *name)
{
    char path[256], words[256];
    Err err = { 0 };
    size_t n = 0;
    out[0] = '\0';
    snprintf(words, sizeof words, "%s", w->settings);
    for (char *s = strtok(words, " "); s; s = strtok(NULL, " "))
        n += (size_t)snprintf(out + n, cap - n, "--set parallel.%s ", s);
    snprintf(path, sizeof path, GOLDEN "/%s.json", name);
    JsonDoc *doc = json_open(path, &err);
    ASSERT(doc);
    JsonNode t = json_member(json_root(doc), "training");
    const char *dp = strstr(w->settings, " dp=");
    double share = number_at(t, "global_batch") / (dp ? atoi(dp + 4) : 1);
    if (number_at(t, "micro_batch") > share)
        snprintf(out + n, cap - n, "--set training.micro_batch=%g ", share);
    json_close(doc);
}

static void check_way(const char *name, JsonNode golden, JsonNode run_of, const Way *w)
{
    char options[COMMAND_MAX / 4], full[COMMAND_MAX / 2];
    options_of(options, sizeof options, w, name);
    if (json_member(run_of, "parameters").item) {
        check_params(name, options, golden, run_of);
        return;
    }
    uint64_t steps = (uint64_t)number_at(golden, "steps");
    snprintf(full, sizeof full, "%s--steps %" PRIu64, options, steps);
    JsonDoc *doc = run(name, full);
    if (doc && !check_losses(doc, json_member(run_of, "losses"), steps))
        fprintf(stderr, "    %s %s\n", name, full);
    json_close(doc);
}

static void check_golden(const char *name)
{
    char path[256];
    Err err = { 0 };
    uint32_t compared = 0, found = 0;
    snprintf(path, sizeof path, GOLDEN "/%s.golden.json", name);
    JsonDoc *doc = json_open(path, &err);
    if (!CHECK(doc != NULL)) {
        fprintf(stderr, "    %s\n", err.text);
        return;
    }
    JsonNode golden = json_root(doc), runs = json_member(golden, "runs");
    for (uint32_t r = 0; r < json_items_n(runs); r++)
        for (size_t w = 0; w < ARRAY_N(ways); w++) {
            JsonNode run_of = json_item(runs, r);
            if (strcmp(json_text(json_member(run_of, "how")), ways[w].how) != 0 ||
                number_at(run_of, "ranks") != ways[w].ranks)
                continue;
            if (found++ % check_one_in() != 0)
                continue;
            check_way(name, golden, run_of, &ways[w]);
            compared++;
        }
    CHECK(compared > 0);
    json_close(doc);
}

static void check_extra(const char *name, const char *settings)
{
    char path[256];
    Err err = { 0 };
    snprintf(path, sizeof path, GOLDEN "/%s.golden.json", name);
    JsonDoc *doc = json_open(path, &err);
    ASSERT(doc);
    Way w = { "single", 1, settings };
    check_way(name, json_root(doc), json_item(json_member(json_root(doc), "runs"), 0), &w);
    json_close(doc);
}

/* ---- tests ---- */

static void the_tutorials_regression(void)
{
    check_golden("regression20");
}

static void gradients_of_one_step(void)
{
    check_golden("mlp-gradient");
    check_golden("gpt-gradient");
    check_golden("llama-gradient");
}

static void every_optimizer_on_an_mlp(void)
{
    check_golden("mlp-sgd");
    check_golden("mlp-momentum");
    check_golden("mlp-adam");
    check_golden("mlp-adamw");
}

static void clipping_and_accumulation(void)
{
    check_golden("mlp-clip");
    check_golden("mlp-accumulate");
    check_golden("gpt-clip");
    check_golden("gpt-accumulate");
}

static void epochs_are_reshuffled(void)
{
    check_golden("mlp-epochs");
}

static void classes_as_targets(void)
{
    check_golden("mlp-labels");
}

/* Statistics of each replica's own samples, or of all of them. */
static void batch_norms(void)
{
    check_golden("mlp-batchnorm");
    check_extra("mlp-batchnorm", "strategy=ddp dp=2 sync_batchnorm=true");
}

static void a_gpt(void)
{
    check_golden("gpt-sgd");
    check_golden("gpt-adamw");
}

static void a_llama(void)
{
    check_golden("llama-sgd");
    check_golden("llama-adamw");
}

static void pipelines(void)
{
    check_golden("llama-pipeline");
}

/* What PyTorch needs other programs for must come to the numbers of one process. */
static void tensor_and_context_parallelism(void)
{
    check_extra("gpt-sgd", "strategy=ddp tp=2");
    check_extra("gpt-sgd", "strategy=ddp tp=2 sequence_parallel=true");
    check_extra("llama-adamw", "strategy=ddp tp=2");
    check_extra("llama-sgd", "strategy=ddp cp=2");
}

/* Two steps under each of five splits. */
static void resumed_runs_go_on(void)
{
    static const char *const splits[] = { "strategy=fsdp dp=4", "strategy=zero1 dp=2 tp=2",
                                          "strategy=ddp pp=2 dp=2", "strategy=zero2 dp=2",
                                          "strategy=hsdp dp=4 shard_size=2" };
    const char *name = "gpt-adamw";
    Err err = { 0 };
    JsonDoc *golden = json_open(GOLDEN "/gpt-adamw.golden.json", &err);
    ASSERT(golden);
    JsonNode losses =
        json_member(json_item(json_member(json_root(golden), "runs"), 0), "losses");
    clear_dir();
    for (uint32_t i = 0; i < ARRAY_N(splits); i++) {
        char options[COMMAND_MAX / 4], full[COMMAND_MAX / 2];
        options_of(options, sizeof options, &(Way){ "single", 1, splits[i] }, name);
        snprintf(full, sizeof full, "%s--steps %u --checkpoint %s/snapshots%s", options,
                 2 * (i + 1), dir, i ? " --resume" : "");
        JsonDoc *doc = run(name, full);
        if (!doc || !check_losses_from(doc, losses, (uint64_t)2 * i, 2))
            fprintf(stderr, "    %s %s\n", name, full);
        json_close(doc);
    }
    json_close(golden);
}

int main(void)
{
    if (!find_program()) {
        printf("test_torch_golden: 0 passed, 0 failed\n");
        fprintf(stderr, "test_torch_golden: skipped, there is no program to run\n");
        return 0;
    }
    snprintf(dir, sizeof dir, "%s/lockstep-test-golden-%ld", P_tmpdir, (long)getpid());
    clear_dir();
    RUN(the_tutorials_regression);
    RUN(gradients_of_one_step);
    RUN(every_optimizer_on_an_mlp);
    RUN(clipping_and_accumulation);
    RUN(epochs_are_reshuffled);
    RUN(classes_as_targets);
    RUN(batch_norms);
    RUN(a_gpt);
    RUN(a_llama);
    RUN(pipelines);
    RUN(tensor_and_context_parallelism);
    RUN(resumed_runs_go_on);
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    ASSERT(system(command) == 0);
    return check_report();
}

/*
 * bench_run.c - how fast `lockstep run` trains on processors, beside what there is to reach.
 *
 *     1  two ranks, DDP, one thread a rank: samples/s of lockstep run and of PyTorch's DDP over
 *        gloo, in turns, as the machine's speed drifts.  Each has its best round: other programs
 *        only ever make one slower.  1024 -> 4096 -> 1024 in f32, SGD, 32 samples a rank; and a
 *        GPT of 6 layers of 384, AdamW, 4 samples of 256 tokens a rank, which PyTorch may also
 *        train in one process with as many threads.  At least so many times PyTorch's as the
 *        table below says.  LOCKSTEP_PYTHON names a Python that has torch; else python3.
 *     2  one rank: the part of a step's time that is spent inside OpenBLAS, at least
 *        LIMIT_BLAS_PCT.  Counted are calls of sgemm, all matmuls, and of saxpy, the SGD
 *        update p += -lr g; both shares are shown.  An update is bound by memory (it reads
 *        p and g and writes p, 12 bytes a parameter, shown as GB/s) and does not depend on
 *        the batch, so a small batch has less in sgemm.  The rest is this program's: bias,
 *        activation, loss, copies, lanes, and telling the loss.
 *
 * Both are ratios of what ran on the same machine in the same minute.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/json.h"
#include "core/quantile.h"
#include "exec/cmd.h"
#include "exec/cmd_run_plan.h"
#include "exec/launch.h"
#include "exec/rank.h"

enum { STEPS = 30, LIMIT_BLAS_PCT = 90 };
enum { TEXT_MAX = 1 << 16 };

#define SCENARIO "scenarios/examples/toy-mlp-ddp.json"

typedef struct Contest {
    const char *what, *scenario, *theirs; /* theirs: bench_torch_cpu.py's name */
    double samples;                       /* of all ranks in a step */
    int rounds, steps;
    bool one_process; /* PyTorch's one process of two threads is asked, too */
    double limit;
} Contest;

static const Contest contests[] = {
    { "1024 -> 4096 -> 1024, 32 samples each", SCENARIO, "mlp", 64, 5, STEPS, false, 1.5 },
    { "GPT of 6 layers of 384, 4 x 256 tokens each", "scenarios/examples/small-gpt-ddp.json",
      "gpt", 8, 3, 8, true, 1.0 },
};

/* ---- two ranks, in turns with PyTorch ---- */

/* A number of the JSON object in the text, under one key or two; NAN. */
static double number_in(const char *text, const char *key, const char *inner)
{
    Err err = { 0 };
    const char *start = strchr(text, '{');
    JsonDoc *doc = start ? json_parse(start, strlen(start), "output", &err) : NULL;
    if (!doc)
        return NAN;
    JsonNode node = json_member(json_root(doc), key);
    if (inner)
        node = json_member(node, inner);
    double x = json_type(node) == JSON_NUMBER ? json_value(node) : NAN;
    json_close(doc);
    return x;
}

static double our_step_s(const Contest *c)
{
    char text[TEXT_MAX] = "";
    FILE *out = tmpfile();
    fflush(NULL);
    pid_t child = out ? fork() : -1;
    if (child == 0) {
        char file[256], steps[20];
        snprintf(file, sizeof file, "%s", c->scenario);
        snprintf(steps, sizeof steps, "%d", c->steps);
        char *argv[] = { "run", file, "--steps", steps, "--json", NULL };
        if (dup2(fileno(out), STDOUT_FILENO) < 0 || !freopen("/dev/null", "w", stderr))
            _exit(1);
        int status = cmd_run(5, argv);
        fflush(NULL);
        _exit(status);
    }
    int status = 1;
    if (child > 0)
        waitpid(child, &status, 0);
    if (out) {
        rewind(out);
        text[fread(text, 1, sizeof text - 1, out)] = '\0';
        fclose(out);
    }
    return status == 0 ? number_in(text, "step_time_s", "median") : NAN;
}

static const char *python(void)
{
    const char *named = getenv("LOCKSTEP_PYTHON");
    return named ? named : "python3";
}

static bool has_torch(void)
{
    char command[4096];
    snprintf(command, sizeof command, "'%.2000s' -c 'import torch' >/dev/null 2>&1", python());
    return system(command) == 0;
}

static double torch_step_s(const Contest *c, int ranks)
{
    char command[4096], text[TEXT_MAX];
    snprintf(command, sizeof command,
             "'%.2000s' tests/parity/bench_torch_cpu.py %s %d %d 2>/dev/null", python(),
             c->theirs, ranks, c->steps);
    FILE *out = popen(command, "r");
    if (!out)
        return NAN;
    text[fread(text, 1, sizeof text - 1, out)] = '\0';
    return pclose(out) == 0 ? number_in(text, "step_s", NULL) : NAN;
}

/* The best rounds, in samples/s. */
typedef struct Outcome {
    double ours, ddp, threads;
} Outcome;

static Outcome in_turns(const Contest *c, bool torch)
{
    Outcome o = { 0 };
    for (int i = 0; i < c->rounds; i++) {
        o.ours = fmax(o.ours, c->samples / our_step_s(c)); /* NAN, where it failed, loses */
        o.ddp = torch ? fmax(o.ddp, c->samples / torch_step_s(c, 2)) : 0;
        if (torch && c->one_process)
            o.threads = fmax(o.threads, c->samples / torch_step_s(c, 0));
    }
    return o;
}

static bool bench_two_ranks(const Contest *c, bool torch)
{
    Outcome o = in_turns(c, torch);
    printf("2 ranks, ddp, %s: %.4g samples/s", c->what, o.ours);
    if (!torch) {
        printf("\n(nothing to compare with: '%s -c \"import torch\"' fails; python3 -m pip "
               "install torch, and LOCKSTEP_PYTHON names the Python that has it)\n",
               python());
        return o.ours > 0;
    }
    double times = o.ours / fmax(o.ddp, o.threads);
    printf("; PyTorch ddp, gloo: %.4g", o.ddp);
    if (c->one_process)
        printf(", one process: %.4g", o.threads);
    printf("   %.2f times as many (limit %.1f)\n", times, c->limit);
    return o.ddp > 0 && times >= c->limit;
}

/* ---- one rank ---- */

typedef struct Alone {
    const RunPlan *plan;
    double gemm[STEPS], axpy[STEPS], axpy_ns[STEPS]; /* shares of the step; time */
    uint32_t n;
    BlasTime spent; /* before this step */
} Alone;

static bool each_step(void *user, const StepInfo *info, Err *err)
{
    Alone *a = user;
    (void)err;
    BlasTime now = gemm_spent();
    double step_ns = (double)info->step_ns;
    if (a->n < STEPS) {
        a->axpy_ns[a->n] = (double)(now.axpy_ns - a->spent.axpy_ns);
        a->axpy[a->n] = a->axpy_ns[a->n] / step_ns;
        a->gemm[a->n++] = (double)(now.gemm_ns - a->spent.gemm_ns) / step_ns;
    }
    a->spent = now;
    return true;
}

static uint64_t parameters(const RunPlan *plan)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < plan->whole.n; i++)
        n += plan->whole.whole[i].rows * plan->whole.whole[i].columns;
    return n;
}

static int rank_alone(const RankPlace *place, void *user)
{
    Alone *a = user;
    const RunPlan *plan = a->plan;
    RankResult result;
    Err err = { 0 };
    RankSetup setup = { .graph = &plan->graph,
                        .whole = &plan->whole,
                        .data = &plan->data,
                        .backend = &backend_cpu,
                        .facts = run_plan_facts(plan, 0),
                        .feed = run_plan_feed(plan, 0),
                        .hyper = plan->hyper,
                        .seed = plan->seed,
                        .steps = STEPS,
                        .model = plan->model,
                        .text = plan->name,
                        .each_step = each_step,
                        .user = a };
    gemm_count(true);
    bool ok = rank_run(&result, &setup, place, &err);
    if (!ok)
        fprintf(stderr, "bench_run: %s\n", err.text);
    /* The first step meets new memory. */
    double gemm = ok ? 100 * sort_median(a->gemm + 1, a->n - 1) : 0;
    double axpy = ok ? 100 * sort_median(a->axpy + 1, a->n - 1) : 0;
    double ns = ok ? sort_median(a->axpy_ns + 1, a->n - 1) : NAN;
    printf(
        "1 rank, %3u samples a step: %.1f %% of a step inside OpenBLAS (limit %d %%): matmuls "
        "%.1f %%, update %.1f %% (%.0f GB/s)\n",
        plan->global_batch, gemm + axpy, LIMIT_BLAS_PCT, gemm, axpy,
        12.0 * (double)parameters(plan) / ns);
    rank_result_free(&result);
    return ok && gemm + axpy >= LIMIT_BLAS_PCT ? 0 : 1;
}

static bool bench_alone(const char *batch)
{
    const Setting settings[] = { { "parallel.dp", "1" },
                                 { "training.global_batch", batch },
                                 { "training.micro_batch", batch } };
    RunRequest request = { .scenario = SCENARIO,
                           .settings = settings,
                           .settings_n = ARRAY_N(settings),
                           .this_machine = true };
    RunPlan plan;
    Err err = { 0 };
    bool usage, ok = run_plan_open(&plan, &request, &usage, &err);
    if (ok) {
        Alone alone = { .plan = &plan };
        RankPlace place = { .world = 1, .local_n = 1, .timeout_s = 30, .digest = plan.digest };
        fflush(NULL);
        ok = launch_ranks(1, rank_alone, &alone, &place, NULL) == 0;
    } else {
        fprintf(stderr, "bench_run: %s\n", err.text);
    }
    run_plan_free(&plan);
    return ok;
}

int main(void)
{
    bool fast = true, torch = has_torch();
    for (size_t i = 0; i < ARRAY_N(contests); i++)
        fast &= bench_two_ranks(&contests[i], torch);
    bool small = bench_alone("32"), large = bench_alone("256");
    return fast && small && large ? 0 : 1;
}

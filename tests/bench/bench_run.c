/*
 * bench_run.c - how fast `lockstep run` trains on processors, beside what there is to reach.
 *
 *     1  two ranks, DDP, 1024 -> 4096 -> 1024 in f32, SGD, 32 samples and one thread a
 *        rank: samples/s of lockstep run and of PyTorch's DDP over gloo, in turns, as
 *        the machine's speed drifts.  Each has its best round: other programs only ever
 *        make one slower.  At least LIMIT_RATIO times PyTorch's.  LOCKSTEP_PYTHON names
 *        a Python that has torch; else python3.
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

enum { ROUNDS = 5, STEPS = 30, BATCH_SMALL = 32, LIMIT_BLAS_PCT = 90 };
enum { TEXT_MAX = 1 << 16 };

static const double LIMIT_RATIO = 1.5;
#define SCENARIO "scenarios/examples/toy-mlp-ddp.json"

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

static double our_step_s(void)
{
    char text[TEXT_MAX] = "";
    FILE *out = tmpfile();
    fflush(NULL);
    pid_t child = out ? fork() : -1;
    if (child == 0) {
        char file[] = SCENARIO, steps[20];
        snprintf(steps, sizeof steps, "%d", STEPS);
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

static double torch_step_s(void)
{
    char command[4096], text[TEXT_MAX];
    snprintf(command, sizeof command,
             "'%.2000s' tests/parity/bench_torch_ddp.py %d 2>/dev/null", python(), STEPS);
    FILE *out = popen(command, "r");
    if (!out)
        return NAN;
    text[fread(text, 1, sizeof text - 1, out)] = '\0';
    return pclose(out) == 0 ? number_in(text, "step_s", NULL) : NAN;
}

static bool bench_two_ranks(void)
{
    double ours = 0, theirs = 0;
    bool torch = has_torch();
    for (int i = 0; i < ROUNDS; i++) {
        ours = fmax(ours, 2 * BATCH_SMALL / our_step_s()); /* NAN, where it failed, loses */
        theirs = torch ? fmax(theirs, 2 * BATCH_SMALL / torch_step_s()) : 0;
    }
    printf("2 ranks, ddp, 1024 -> 4096 -> 1024, 32 samples each: %.0f samples/s", ours);
    if (!torch) {
        printf("\n(nothing to compare with: '%s -c \"import torch\"' fails; python3 -m pip "
               "install torch, and LOCKSTEP_PYTHON names the Python that has it)\n",
               python());
        return ours > 0;
    }
    double times = ours / theirs;
    printf("; PyTorch ddp, gloo: %.0f   %.2f times as many (limit %.1f)\n", theirs, times,
           LIMIT_RATIO);
    return theirs > 0 && times >= LIMIT_RATIO;
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
    bool fast = bench_two_ranks();
    bool small = bench_alone("32"), large = bench_alone("256");
    return fast && small && large ? 0 : 1;
}

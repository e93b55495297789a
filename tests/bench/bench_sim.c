/*
 * bench_sim.c - how fast the simulator is, and how much memory it takes.
 *
 * Every run is a process of its own, from reading the scenario to the result:
 * CPU time (user + system) and peak resident memory are the kernel's account of
 * it.  The median of RUNS is printed, beside the limit it has to stay below and
 * what peers take for the nearest thing they can do (their figures were measured
 * on another machine of this size: two cores, no GPU).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sim/build.h"
#include "sim/engine.h"

enum { RUNS = 7 };

typedef struct Case {
    const char *name, *scenario;
    const char *set[8]; /* key, value, key, value ... */
    bool timeline;
    double limit_s, limit_mb;
    const char *peers;
} Case;

/* What a run tells its parent. */
typedef struct Outcome {
    int64_t step_ns;
    uint64_t events, spans, ops, classes;
    double cpu_s, mb;
} Outcome;

static bool simulate(const Case *c, Outcome *o, Err *err)
{
    Scenario s = { 0 };
    Software sw = { 0 };
    Arena arena = { 0 };
    Graph g = { 0 };
    Timeline t = { 0 };
    SimResult r = { 0 };
    Setting settings[4];
    uint32_t n = 0;
    for (; n < 4 && c->set[2 * n]; n++)
        settings[n] = (Setting){ c->set[2 * n], c->set[2 * n + 1] };
    bool ok = scenario_read(&s, c->scenario, settings, n, err) &&
              software_read(&sw, &arena, s.software, err) && build_graph(&g, &s, &sw, err) &&
              sim_run(&r, &g, &s.machine, &sw,
                      &(SimOptions){ .timeline = c->timeline ? &t : NULL }, err);
    if (ok && c->timeline)
        timeline_seal(&t);
    *o = (Outcome){ r.step_ns, r.events, t.spans_n, r.ops, r.ranks_n, 0, 0 };
    return ok;
}

static bool run_once(const Case *c, Outcome *o)
{
    int fd[2];
    if (pipe(fd) != 0)
        return false;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        Err err = { 0 };
        bool ok = simulate(c, o, &err);
        if (!ok)
            fprintf(stderr, "%s\n", err.text);
        ok = ok && write(fd[1], o, sizeof *o) == (ssize_t)sizeof *o;
        _exit(ok ? 0 : 1);
    }
    close(fd[1]);
    bool got = read(fd[0], o, sizeof *o) == (ssize_t)sizeof *o;
    close(fd[0]);
    struct rusage u;
    int status;
    wait4(pid, &status, 0, &u);
    o->cpu_s = (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
               1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
    o->mb = (double)u.ru_maxrss * 1024 / 1e6;
    return got && status == 0;
}

static int compare_cpu(const void *a, const void *b)
{
    double x = ((const Outcome *)a)->cpu_s, y = ((const Outcome *)b)->cpu_s;
    return x < y ? -1 : x > y;
}

static bool run_case(const Case *c, Outcome *median)
{
    Outcome o[RUNS];
    for (int i = 0; i < RUNS; i++)
        if (!run_once(c, &o[i]))
            return false;
    qsort(o, RUNS, sizeof *o, compare_cpu);
    *median = o[RUNS / 2];
    return true;
}

static const Case cases[] = {
    { "llama3-405b, 16,384 GPUs, collapsed",
      "scenarios/examples/llama3-405b-3d.json",
      { 0 },
      false,
      0.3,
      500,
      "-" },
    { "gpt3-175b, 96 micro-batches, collapsed",
      "scenarios/examples/gpt3-175b-pp.json",
      { 0 },
      false,
      0.1,
      500,
      "Calculon 0.002 s (closed formula)" },
    { "gpt3-175b, 96 micro-batches, every kernel",
      "scenarios/examples/gpt3-175b-pp.json",
      { 0 },
      true,
      1.0,
      1000,
      "SimuMax > 540 s; STAGE + ASTRA-sim 189 s for 8" },
    { "llama3-8b, 8 GPUs, fsdp",
      "scenarios/examples/llama3-8b-fsdp.json",
      { 0 },
      false,
      0,
      0,
      "-" },
};

static bool bench_cases(void)
{
    bool all = true;
    printf("%-42s %8s %8s %8s %8s %9s %9s  %s\n", "case", "CPU s", "limit", "MB", "limit",
           "events", "spans", "peers");
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        const Case *c = &cases[i];
        Outcome o;
        if (!run_case(c, &o))
            return false;
        printf("%-42s %8.3f %8.3g %8.1f %8.4g %9" PRIu64 " %9" PRIu64 "  %s\n", c->name,
               o.cpu_s, c->limit_s, o.mb, c->limit_mb, o.events, o.spans, c->peers);
        bool slow = c->limit_s > 0 && (o.cpu_s > c->limit_s || o.mb > c->limit_mb);
        if (slow)
            printf("    above its limit\n");
        all = all && !slow;
    }
    return all;
}

/* The cost of a step must not grow with data parallelism. */
static bool bench_curve(void)
{
    printf("\nllama3-405b, tp 8 x pp 16 x dp: cost over dp (collapsed)\n%8s %10s %8s %8s %9s\n",
           "dp", "GPUs", "CPU s", "MB", "classes");
    for (uint32_t dp = 1; dp <= 4096; dp *= 4) {
        char degree[16], nodes[16], batch[16];
        snprintf(degree, sizeof degree, "%u", dp);
        snprintf(nodes, sizeof nodes, "%u", 16 * dp);
        snprintf(batch, sizeof batch, "%u", 16 * dp);
        Case c = { "",
                   "scenarios/examples/llama3-405b-3d.json",
                   { "parallel.dp", degree, "cluster.nodes", nodes, "training.global_batch",
                     batch },
                   false,
                   0,
                   0,
                   "" };
        Outcome o;
        if (!run_case(&c, &o))
            return false;
        printf("%8u %10u %8.3f %8.1f %9" PRIu64 "\n", dp, 128 * dp, o.cpu_s, o.mb, o.classes);
    }
    return true;
}

int main(void)
{
    setenv("LOCKSTEP_SHARE", "scenarios", 0);
    bool ok = bench_cases();
    return bench_curve() && ok ? 0 : 1;
}

/*
 * bench_plan.c - how many candidates a second `lockstep plan` tries on one core.
 *
 * GPT-3 175B, 1,536 sequences a step, on 1,024 A100s; one thread.  Each row fixes
 * a part of the split, so that it shows what makes a candidate expensive.  Weighed
 * are simulated ones, and those that only their activations ruled out.  The time is
 * all that was spent, the number only that of simulated ones.  Calculon evaluates 203
 * closed formulas a second and core.
 */
#include <stdio.h>
#include <stdlib.h>

#include "sim/planner.h"

enum { LIMIT_PER_S = 200 };

static const Setting cases[][4] = {
    { { "training.global_batch", "1536" }, { "parallel.tp", "8" }, { "parallel.pp", "1" } },
    { { "training.global_batch", "1536" },
      { "parallel.tp", "8" },
      { "parallel.pp", "8" },
      { "parallel.strategy", "ddp" } },
    { { "training.global_batch", "1536" },
      { "parallel.tp", "8" },
      { "parallel.pp", "8" },
      { "parallel.strategy", "fsdp" } },
    { { "training.global_batch", "1536" },
      { "parallel.tp", "8" },
      { "parallel.pp", "32" },
      { "parallel.strategy", "ddp" } },
};

static bool run_case(const Setting *settings, bool *fast)
{
    PlanOptions o = { .scenario = "scenarios/examples/gpt3-175b-pp.json",
                      .counts_n = 1,
                      .counts = { 1024 },
                      .settings = settings,
                      .jobs = 1 };
    Plan p;
    Err err = { 0 };
    for (; o.settings_n < 4 && settings[o.settings_n].key; o.settings_n++)
        ;
    bool ok = plan_run(&p, &o, &err);
    if (ok) {
        uint32_t weighed = p.fates[PLAN_SIMULATED] + p.fates[PLAN_TOO_LARGE];
        double rate = p.fates[PLAN_SIMULATED] / p.cpu_s;
        printf(
            "tp %s pp %-3s %-6s %10" PRIu32 " %8" PRIu32 " %10" PRIu32 " %8.2f %12.0f %8d%s\n",
            settings[1].value, settings[2].value, o.settings_n > 3 ? settings[3].value : "all",
            p.n, weighed, p.fates[PLAN_SIMULATED], p.cpu_s, rate, LIMIT_PER_S,
            rate < LIMIT_PER_S ? "  below its limit" : "");
        *fast = *fast && rate >= LIMIT_PER_S;
    } else {
        fprintf(stderr, "%s\n", err.text);
    }
    plan_free(&p);
    return ok;
}

int main(void)
{
    setenv("LOCKSTEP_SHARE", "scenarios", 0);
    bool ok = true, fast = true;
    printf("%-18s %10s %8s %10s %8s %12s %8s\n", "gpt3-175b on 1,024", "candidates", "weighed",
           "simulated", "CPU s", "simulated/s", "limit");
    for (size_t i = 0; i < ARRAY_N(cases); i++)
        ok = run_case(cases[i], &fast) && ok;
    return ok && fast ? 0 : 1;
}

/*
 * bench_plan.c - how many candidates a second `lockstep plan` tries on one core.
 *
 * GPT-3 175B, 1,536 sequences a step, on 1,024 A100s; one thread.  The first rows
 * simulate all that fit, collapsed: each fixes a part of the split, so that it shows
 * what makes a candidate expensive.  Weighed are simulated ones, and those that only
 * their activations ruled out.  The time is all that was spent, the number only that of
 * simulated ones.  Calculon evaluates 203 closed formulas a second and core.
 *
 * Candidates leap over micro-batches.  After its time is taken, a row is simulated again with all
 * of them: how far off is the worst, and are the ten best the same, in the same order?
 *
 * The last row is the question itself, with nothing fixed: plan simulates only those that
 * the least time they can take leaves in the running (sim_bound).  What counts is its time.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "sim/build.h"
#include "sim/planner.h"

enum { LIMIT_PER_S = 200 };
static const double ERROR_MAX = 0.005; /* of a step: DESIGN 1, collapsed */

typedef struct Case {
    const char *tp, *pp, *strategy; /* NULL: all are tried */
    bool all;                       /* that fit are simulated */
} Case;

static const Case cases[] = {
    { "8", "1", NULL, true },   { "8", "8", "ddp", true },   { "8", "8", "fsdp", true },
    { "8", "32", "ddp", true }, { NULL, NULL, NULL, false },
};

static void print_row(const Case *c, const Plan *p, bool *well)
{
    uint32_t simulated = p->fates[PLAN_SIMULATED], slow = p->fates[PLAN_TOO_SLOW];
    uint32_t weighed = simulated + slow + p->fates[PLAN_TOO_LARGE];
    printf("tp %-3s pp %-3s %-6s %10" PRIu32 " %8" PRIu32 " %10" PRIu32 " %8.2f",
           c->tp ? c->tp : "all", c->pp ? c->pp : "all", c->strategy ? c->strategy : "all",
           p->n, weighed, simulated, p->cpu_s);
    double rate = simulated / p->cpu_s;
    if (c->all)
        printf(" %12.0f %8d%s", rate, LIMIT_PER_S,
               rate < LIMIT_PER_S ? "  below its limit" : "");
    printf("\n");
    *well = *well && (!c->all || rate >= LIMIT_PER_S);
}

/* ---- against whole graphs ---- */

static double whole_step_s(const Plan *p, const PlanCandidate *c)
{
    Scenario s = plan_scenario(p, c);
    Graph g = { 0 };
    SimResult r = { 0 };
    SimOptions options = { 0 };
    Err err = { 0 };
    double step_s = NAN;
    if (build_graph(&g, &s, &p->sw, &err) &&
        sim_run(&r, &g, &s.machine, &p->sw, &options, &err))
        step_s = (double)r.step_ns / 1e9;
    sim_result_free(&r);
    graph_free(&g);
    return step_s;
}

typedef struct Step {
    double s;
    uint32_t candidate;
} Step;

static int compare_steps(const void *a, const void *b)
{
    const Step *x = a, *y = b;
    if (x->s < y->s || x->s > y->s)
        return x->s < y->s ? -1 : 1;
    return x->candidate < y->candidate ? -1 : x->candidate > y->candidate;
}

static bool is_close(const Plan *p)
{
    Step *whole = mem_zero(p->order_n, sizeof *whole);
    double worst = 0;
    uint32_t extrapolated = 0, moved = 0, top = p->order_n < PLAN_TOP ? p->order_n : PLAN_TOP;
    for (uint32_t i = 0; i < p->order_n; i++) {
        const PlanCandidate *c = &p->candidates[p->order[i]];
        whole[i] = (Step){ whole_step_s(p, c), p->order[i] };
        double off = fabs(c->step_s / whole[i].s - 1);
        worst = off <= worst ? worst : off;
        extrapolated += c->extrapolated;
    }
    qsort(whole, p->order_n, sizeof *whole, compare_steps);
    for (uint32_t i = 0; i < top; i++)
        moved += whole[i].candidate != p->order[i];
    free(whole);
    printf("    %" PRIu32 " extrapolated, at most %.3f %% off; of the %" PRIu32 " best %" PRIu32
           " in another place\n",
           extrapolated, 100 * worst, top, moved);
    return worst <= ERROR_MAX;
}

/* ---- rows ---- */

static bool run_case(const Case *c, bool *well)
{
    const char *const values[] = { c->tp, c->pp, c->strategy };
    static const char *const keys[] = { "parallel.tp", "parallel.pp", "parallel.strategy" };
    Setting settings[4] = { { "training.global_batch", "1536" } };
    PlanOptions o = { .scenario = "scenarios/examples/gpt3-175b-pp.json",
                      .counts_n = 1,
                      .counts = { 1024 },
                      .settings = settings,
                      .settings_n = 1,
                      .jobs = 1,
                      .all = c->all };
    for (size_t i = 0; i < ARRAY_N(keys); i++)
        if (values[i])
            settings[o.settings_n++] = (Setting){ keys[i], values[i] };
    Plan p;
    Err err = { 0 };
    bool ok = plan_run(&p, &o, &err);
    if (ok)
        print_row(c, &p, well);
    if (ok && c->all)
        *well = is_close(&p) && *well;
    if (!ok)
        fprintf(stderr, "%s\n", err.text);
    plan_free(&p);
    return ok;
}

int main(void)
{
    setenv("LOCKSTEP_SHARE", "scenarios", 0);
    bool ok = true, well = true;
    printf("%-20s %10s %8s %10s %8s %12s %8s\n", "gpt3-175b on 1,024", "candidates", "weighed",
           "simulated", "CPU s", "simulated/s", "limit");
    for (size_t i = 0; i < ARRAY_N(cases); i++)
        ok = run_case(&cases[i], &well) && ok;
    return ok && well ? 0 : 1;
}

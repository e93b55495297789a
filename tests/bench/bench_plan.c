/*
 * bench_plan.c - how many candidates a second `lockstep plan` tries on one core.
 *
 * GPT-3 175B, 1,536 sequences a step, on 1,024 A100s; one thread.  The first rows
 * simulate all that fit, collapsed: each fixes a part of the split, so that it shows
 * what makes a candidate expensive.  Weighed are simulated ones, and those that only
 * their activations ruled out.  The time is all that was spent but for replaying the best through
 * the allocator (Plan.cpu_s), the number only that of simulated ones.  Calculon evaluates 203
 * closed formulas a second and core.
 *
 * Candidates leap over micro-batches.  After its time is taken, a row is simulated again with all
 * of them: how far off is the worst, and are the ten best the same, in the same order?
 *
 * Of all that fits with one chunk a stage only those at an estimated pace are simulated again.
 *
 * The last rows are the question itself, with nothing fixed, of three models, and of a stack with
 * zb-1p and zb-2p, whose order is searched for each candidate: plan builds and
 * simulates only those that the least time they can take leaves in the running (planner_work.c,
 * sim_bound).  What counts is its time, and how many candidates a second that is.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/build.h"
#include "sim/planner.h"

enum { LIMIT_PER_S = 200 };
static const double ERROR_MAX = 0.005; /* of a step: DESIGN 1, collapsed */

typedef struct Case {
    const char *scenario, *global_batch; /* NULL: GPT-3's */
    uint32_t gpus;
    const char *tp, *pp, *cp, *strategy, *chunks; /* NULL: all are tried */
    const char *software;                         /* NULL: the scenario's */
    bool all;                                     /* that fit are simulated */
    bool estimated_only; /* not all are simulated again to see how far off they are */
} Case;

static const Case cases[] = {
    { .tp = "8", .pp = "1", .all = true },
    { .tp = "8", .pp = "8", .strategy = "ddp", .all = true },
    { .tp = "8", .pp = "8", .strategy = "fsdp", .all = true },
    { .tp = "8", .pp = "32", .strategy = "ddp", .all = true },
    { .chunks = "1", .all = true, .estimated_only = true },
    { 0 },
    { .software = "zero-bubble-2023" },
    { .scenario = "scenarios/examples/llama3-405b-3d.json",
      .gpus = 1024,
      .global_batch = "2048" },
    { .scenario = "scenarios/examples/deepseek-v3-ep.json",
      .gpus = 256,
      .global_batch = "2048" },
};

static const Case calculon_cases[] = {
    { .tp = "8", .pp = "8", .cp = "1", .strategy = "ddp", .all = true },
    { .tp = "8", .pp = "8", .cp = "1", .strategy = "zero1", .all = true },
    { .tp = "8", .pp = "16", .cp = "1", .strategy = "ddp", .all = true },
    { .tp = "8", .pp = "16", .cp = "1", .strategy = "zero1", .all = true },
};

typedef struct Sum {
    uint64_t candidates, weighed, simulated;
    double cpu_s;
} Sum;

static void print_sum(const Sum *s, bool all, bool *well)
{
    double rate = (double)s->simulated / s->cpu_s;
    printf(" %10" PRIu64 " %8" PRIu64 " %10" PRIu64 " %8.2f", s->candidates, s->weighed,
           s->simulated, s->cpu_s);
    if (all)
        printf(" %12.0f %8d%s", rate, LIMIT_PER_S,
               rate < LIMIT_PER_S ? "  below its limit" : "");
    else
        printf("  %.0f candidates a second, Calculon 203", (double)s->candidates / s->cpu_s);
    printf("\n");
    *well = *well && (!all || rate >= LIMIT_PER_S);
}

static bool is_weighed(const PlanCandidate *c)
{
    return !c->untried &&
           (c->fate == PLAN_SIMULATED || c->fate == PLAN_TOO_SLOW || c->fate == PLAN_TOO_LARGE);
}

static void add(Sum *sum, const Plan *p)
{
    sum->candidates += p->n;
    for (uint32_t i = 0; i < p->n; i++)
        sum->weighed += is_weighed(&p->candidates[i]);
    sum->simulated += p->fates[PLAN_SIMULATED];
    sum->cpu_s += p->cpu_s;
}

static void print_row(const Case *c, const Plan *p, bool *well)
{
    Sum sum = { 0 };
    add(&sum, p);
    const char *name = c->scenario ? strrchr(c->scenario, '/') + 1 : c->software;
    if (name)
        printf("%-20.*s", (int)strcspn(name, "."), name);
    else
        printf("tp %-3s pp %-3s %-6s", c->tp ? c->tp : "all", c->pp ? c->pp : "all",
               c->strategy ? c->strategy
               : c->chunks ? "1F1B"
                           : "all");
    print_sum(&sum, c->all, well);
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

/* How many of the best are others, or in another order, with whole graphs. */
static uint32_t count_moved(Step *found, Step *whole, uint32_t n, uint32_t top)
{
    uint32_t moved = 0;
    qsort(whole, n, sizeof *whole, compare_steps);
    qsort(found, n, sizeof *found, compare_steps);
    for (uint32_t i = 0; i < top; i++)
        moved += whole[i].candidate != found[i].candidate;
    return moved;
}

static bool is_close(const Plan *p, bool estimated_only)
{
    Step *whole = mem_zero(p->order_n, sizeof *whole);
    Step *found = mem_zero(p->order_n, sizeof *found);
    double worst = 0, sum = 0; /* sum: of those extrapolated */
    uint32_t extrapolated = 0, n = 0, top = p->order_n < PLAN_TOP ? p->order_n : PLAN_TOP;
    for (uint32_t i = 0; i < p->order_n; i++) {
        const PlanCandidate *c = &p->candidates[p->order[i]];
        if (estimated_only && !c->extrapolated)
            continue;
        whole[n] = (Step){ whole_step_s(p, c), p->order[i] };
        found[n] = (Step){ c->searched_s, p->order[i] };
        double off = fabs(c->searched_s / whole[n++].s - 1);
        worst = off <= worst ? worst : off;
        sum += c->extrapolated ? off : 0;
        extrapolated += c->extrapolated;
    }
    printf("    %" PRIu32 " extrapolated, %.3f %% off in the mean; at most %.3f %%",
           extrapolated, 100 * sum / fmax(extrapolated, 1), 100 * worst);
    if (!estimated_only)
        printf("; of the %" PRIu32 " best %" PRIu32 " in another place", top,
               count_moved(found, whole, n, top));
    printf("\n");
    free(found);
    free(whole);
    return worst <= ERROR_MAX;
}

/* ---- rows ---- */

/* sum: of a search, what counts is all its rows together; NULL: the row itself. */
static bool run_case(const Case *c, Sum *sum, bool *well)
{
    const char *const values[] = { c->tp, c->pp, c->cp, c->strategy, c->chunks, c->software };
    static const char *const keys[] = { "parallel.tp",
                                        "parallel.pp",
                                        "parallel.cp",
                                        "parallel.strategy",
                                        "parallel.virtual_stages",
                                        "software" };
    Setting settings[7] = { { "training.global_batch",
                              c->global_batch ? c->global_batch : "1536" } };
    PlanOptions o = { .scenario =
                          c->scenario ? c->scenario : "scenarios/examples/gpt3-175b-pp.json",
                      .counts_n = 1,
                      .counts = { c->gpus ? c->gpus : 1024 },
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
    if (ok && sum)
        add(sum, &p);
    else if (ok)
        print_row(c, &p, well);
    if (ok && c->all && !sum)
        *well = is_close(&p, c->estimated_only) && *well;
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
        ok = run_case(&cases[i], NULL, &well) && ok;
    Sum sum = { 0 };
    for (size_t i = 0; i < ARRAY_N(calculon_cases); i++)
        ok = run_case(&calculon_cases[i], &sum, &well) && ok;
    printf("Calculon's search   ");
    print_sum(&sum, true, &well);
    printf("    candidates a second: %.0f, Calculon 203; that fit: %.0f, Calculon 40\n",
           (double)sum.candidates / sum.cpu_s, (double)sum.simulated / sum.cpu_s);
    return ok && well ? 0 : 1;
}

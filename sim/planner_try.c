/*
 * planner_try.c - one candidate: its graph is weighed, bounded or simulated.
 */
#include <math.h>
#include <stdlib.h>

#include "sim/build.h"
#include "sim/planner_parts.h"
#include "sim/shorten.h"

static void keep(PlanCandidate *c, const Report *r)
{
    c->fate = r->fits ? PLAN_SIMULATED : PLAN_TOO_LARGE;
    c->step_s = r->step_time_s;
    c->exposed_s = r->times.exposed_comm_s;
    c->bubble_s = r->times.bubble_s;
    c->samples_per_s = r->samples_per_s;
    c->tokens_per_s = r->has_tokens ? r->tokens_per_s : NAN;
    c->mfu = r->rates.mfu;
    c->cost_usd = r->cost_usd_per_step;
}

/* One way to try a candidate: its scenario, perhaps of fewer micro-batches than are meant. */
typedef struct Try {
    Scenario s;
    PlanDepth depth;
    uint32_t stride;
    bool no_pace;  /* SimOptions */
    bool unsteady; /* more micro-batches are needed to know */
} Try;

static void try_graph(const Plan *p, PlanCandidate *c, Try *t, Report *kept, const Graph *g,
                      Err *err)
{
    SimResult result = { 0 };
    Report report = { 0 };
    SimOptions options = { .expanded = t->depth == PLAN_EXPANDED,
                           .totals = !kept,
                           .left_out = t->s.training.left_out,
                           .stride = t->stride,
                           .no_pace = t->no_pace };
    RoleMemory *memory = mem_zero(g->roles_n + 1, sizeof *memory);
    for (uint32_t i = 0; i < g->roles_n; i++)
        memory[i] = memory_of_role(g, &g->roles[i], NULL);
    PlanWeighing how = kept                       ? PLAN_WEIGH_ALL
                       : t->depth == PLAN_WEIGHED ? PLAN_WEIGH_FULLEST
                                                  : PLAN_WEIGH_ALLOCATED;
    if (c->known < PLAN_RESERVED || kept)
        plan_weigh(c, p, g, &t->s.machine, memory, how);
    if (c->need_bytes > c->gpu_bytes) {
        c->fate = PLAN_TOO_LARGE;
    } else if (t->depth == PLAN_WEIGHED) {
        /* that is all */
    } else if (t->depth == PLAN_BOUNDED) {
        double ns;
        c->fate = PLAN_TOO_SLOW;
        if (sim_bound(&ns, g, &t->s.machine, &p->sw, t->s.training.left_out, err))
            c->bound_s = fmax(c->bound_s, ns / 1e9);
    } else if (sim_run(&result, g, &t->s.machine, &p->sw, &options, err)) {
        t->unsteady = result.repeated != t->s.training.left_out;
        if (!t->unsteady) {
            report_fill(&report, &t->s, g, &result, memory, NAN);
            if (t->depth == PLAN_EXPANDED) {
                c->expanded_s = report.step_time_s;
            } else {
                keep(c, &report);
                c->searched_s = t->depth == PLAN_COLLAPSED ? report.step_time_s : c->searched_s;
                c->extrapolated = result.extrapolated;
            }
            if (kept)
                *kept = report;
            else
                report_free(&report);
        }
    }
    sim_result_free(&result);
    free(memory);
}

void plan_try(const Plan *p, PlanCandidate *c, PlanDepth depth, Report *kept, Err *err)
{
    Try t = { .s = plan_scenario(p, c), .depth = depth };
    c->untried = false;
    Shortening way = shorten(&t.s);
    uint32_t meant = t.s.training.micro_batches, n = way.micro_batches;
    if (depth == PLAN_BOUNDED)
        n = shorten_to_weigh(&t.s);
    if (depth >= PLAN_WHOLE || depth == PLAN_WEIGHED || kept)
        n = meant;
    for (t.unsteady = true; t.unsteady; n = meant) {
        Graph g = { 0 };
        t.s.training.micro_batches = n;
        t.s.training.left_out = meant - n;
        t.stride = way.stride;
        t.no_pace = way.no_pace;
        t.unsteady = false;
        bool built = build_graph(&g, &t.s, &p->sw, err);
        t.s.training.micro_batches = meant;
        if (built)
            try_graph(p, c, &t, kept, &g, err);
        graph_free(&g);
    }
    if (err->set)
        c->fate = PLAN_REFUSED;
}

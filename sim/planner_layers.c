/*
 * planner_layers.c - some layers of each stage recomputed: the fewest with which it fits.
 *
 *     layers    1   2   3 ...  31  32 ...  40   41   42   43 ...  79      (of 80)
 *     by work   -------------- x   ?        |    |    |               too large, if nothing else
 *     graphs                       x ------ x -- x -- o               tried, until one fits
 *
 * Memory falls by about the same for each, which says how many more to try next; whatever fits
 * after a leap has the one below it tried, too.  (Of fragments more layers may leave more: then
 * fewer than those may fit as well, only not one less.)
 */
#include "sim/planner_parts.h"
#include "sim/scenario_parts.h"
#include "sim/strategy/schedule.h"

#include <stdlib.h>

bool plan_seeks_layers(const Plan *p, const PlanCandidate *c)
{
    return c->recompute == RECOMPUTE_LAYERS && p->fixed_layers == NONE_U32;
}

uint32_t plan_layers_between(const Plan *p, const PlanCandidate *c)
{
    const Scenario s = plan_scenario(p, c);
    uint32_t blocks = scenario_blocks(&s.model), most = 0;
    uint32_t *layers = mem_zero(c->pp, sizeof *layers); /* by stage */
    for (uint32_t k = 0, at = 0; k < c->pp * c->virtual_stages; k++) {
        uint32_t end = plan_chunk_end(&s, k, at);
        uint32_t *of = &layers[schedule_stage(c->schedule, c->pp, k)];
        for (; at < end; at++)
            *of += at > 0 && at <= blocks;
        most = *of > most ? *of : most;
    }
    free(layers);
    return most > 0 ? most - 1 : 0;
}

/* Need falls with layers, so halving finds it. */
void plan_raise_layers(const Plan *p, PlanCandidate *c)
{
    uint32_t low = c->recompute_layers, high = plan_layers_between(p, c);
    while (low < high) {
        c->recompute_layers = low + (high - low) / 2;
        if (plan_work_memory(p, c) > c->gpu_bytes)
            low = c->recompute_layers + 1;
        else
            high = c->recompute_layers;
    }
    c->recompute_layers = low;
}

/* Of a candidate that does not fit with `below` layers but, as far as is known, with `above`. */
typedef struct Gap {
    uint32_t below, above;
    uint32_t guess; /* the first to try; 0: something was tried */
    uint32_t leap;  /* of the next try, where nothing is known of what a layer spares */
    uint64_t saving;
    bool found; /* `above` fits */
} Gap;

static uint64_t over_by(const PlanCandidate *c)
{
    return c->need_bytes > c->gpu_bytes ? c->need_bytes - c->gpu_bytes : 0;
}

static uint32_t step_up(const Gap *g, uint64_t from, uint64_t leap)
{
    return (uint32_t)max_u64(min_u64(from + leap, g->above - 1), g->below + 1);
}

/* By what a graph without recomputation needs, if there was one: that of its family, before it. */
static uint32_t first_guess(const Plan *p, const PlanCandidate *c, const Gap *g)
{
    const PlanCandidate *a = c;
    while (a > p->candidates && plan_is_family(a - 1, c))
        a--;
    bool known = a->recompute == RECOMPUTE_NONE && a->known >= PLAN_ALLOCATED && g->saving > 0;
    return known ? step_up(g, 0, over_by(a) / g->saving) : g->below + 1;
}

/* last: as it was tried last. */
static uint32_t next_try(Gap *g, const PlanCandidate *last)
{
    uint32_t guess = g->guess;
    g->guess = 0;
    if (guess > 0)
        return guess;
    if (g->found)
        return g->saving > 0 ? g->above - 1 : g->below + (g->above - g->below) / 2;
    uint64_t leap = g->saving > 0 ? over_by(last) / g->saving : g->leap;
    g->leap *= 2;
    return step_up(g, g->below, leap);
}

static PlanCandidate with_layers(const PlanCandidate *c, uint32_t layers)
{
    PlanCandidate other = *c;
    other.recompute_layers = layers;
    other.known = PLAN_BOUND;
    other.fate = PLAN_TOO_SLOW;
    other.expanded_s = 0;
    return other;
}

/* Only where none below it is left to try is it worth more than to find out whether it fits. */
static void find_fewest(const Plan *p, PlanCandidate *c, Gap *g, PlanDepth depth, Err *err)
{
    PlanDepth asks = depth == PLAN_WEIGHED ? PLAN_WEIGHED : PLAN_BOUNDED, asked = depth;
    PlanCandidate last = *c;
    while (g->above - g->below > 1 && !err->set) {
        last = with_layers(c, next_try(g, &last));
        PlanDepth now = last.recompute_layers == g->below + 1 ? depth : asks;
        plan_try(p, &last, now, NULL, err);
        if (last.fate == PLAN_TOO_LARGE) {
            g->below = last.recompute_layers;
        } else {
            g->above = last.recompute_layers;
            g->found = true;
            asked = now;
        }
        if (!g->found || last.fate != PLAN_TOO_LARGE)
            *c = last;
    }
    if (g->found && asked != depth && !err->set)
        plan_try(p, c, depth, NULL, err);
    else if (g->found && depth == PLAN_WEIGHED && p->options->all)
        plan_try(p, c, PLAN_COLLAPSED, NULL, err);
}

void plan_try_fewest(const Plan *p, PlanCandidate *c, PlanDepth depth, Err *err)
{
    bool seeks = plan_seeks_layers(p, c);
    if (!seeks || c->known != PLAN_BOUND)
        plan_try(p, c, depth, NULL, err);
    if (!seeks || (c->known != PLAN_BOUND && c->fate != PLAN_TOO_LARGE))
        return;
    bool tried = c->known != PLAN_BOUND;
    Gap g = { .below = c->recompute_layers - !tried,
              .above = plan_layers_between(p, c) + 1,
              .leap = 1,
              .saving = plan_layer_saving(p, c) };
    g.guess = tried ? 0 : first_guess(p, c, &g);
    find_fewest(p, c, &g, depth, err);
}

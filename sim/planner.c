/*
 * planner.c - the whole: candidates are tried (planner_search.c), sorted by what is wanted, the
 * best looked at again and explained.
 *
 * The sort breaks ties by memory, then by the order in which candidates were made.
 */
#include "sim/planner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/planner_parts.h"
#include "sim/texts.h"

const char *const plan_objective_names[PLAN_OBJECTIVE_N] = { "time", "cost", "gpus" };

static void count_fates(Plan *p)
{
    memset(p->fates, 0, sizeof p->fates);
    for (uint32_t i = 0; i < p->n; i++)
        p->fates[p->candidates[i].fate]++;
}

/* ---- what is wanted ---- */

PlanRun plan_training(const Plan *p, const PlanCandidate *c)
{
    const Training *t = &p->bases[c->base].training;
    double steps = ceil(p->options->tokens / ((double)t->global_batch * t->seq_len));
    double hours = steps * c->step_s / 3600;
    return (PlanRun){ steps, hours / 24, hours * plan_gpus(c), steps * c->cost_usd };
}

double plan_score(const Plan *p, const PlanCandidate *c)
{
    switch (p->options->objective) {
    case PLAN_COST:
        return c->step_s * plan_gpus(c);
    case PLAN_FEWEST:
        return plan_gpus(c);
    default:
        return c->step_s;
    }
}

static const Plan *sorting; /* qsort has no context; plan_run sorts on one thread */

static int compare_scores(const void *a, const void *b)
{
    const uint32_t i = *(const uint32_t *)a, k = *(const uint32_t *)b;
    const PlanCandidate *x = &sorting->candidates[i], *y = &sorting->candidates[k];
    const double by[][2] = { { plan_score(sorting, x), plan_score(sorting, y) },
                             { x->step_s, y->step_s },
                             { (double)x->need_bytes, (double)y->need_bytes },
                             { i, k } };
    for (size_t n = 0; n < ARRAY_N(by); n++)
        if (by[n][0] < by[n][1] || by[n][0] > by[n][1])
            return by[n][0] < by[n][1] ? -1 : 1;
    return 0;
}

static void sort_feasible(Plan *p)
{
    p->order_n = 0;
    p->order = PUSH_ARRAY(&p->arena, uint32_t, p->n);
    for (uint32_t i = 0; i < p->n; i++) {
        const PlanCandidate *c = &p->candidates[i];
        if (c->fate == PLAN_SIMULATED && plan_is_in_time(p, c) && plan_is_in_budget(p, c))
            p->order[p->order_n++] = i;
    }
    sorting = p;
    qsort(p->order, p->order_n, sizeof *p->order, compare_scores);
    sorting = NULL;
}

/* Bases are ascending, so the fastest of each, if faster than all before, are the front. */
static void find_front(Plan *p)
{
    double fastest = INFINITY;
    p->front_n = 0;
    p->front = PUSH_ARRAY(&p->arena, uint32_t, p->bases_n);
    for (uint32_t b = 0; b < p->bases_n; b++) {
        uint32_t best = NONE_U32;
        for (uint32_t i = 0; i < p->order_n; i++) {
            const PlanCandidate *c = &p->candidates[p->order[i]];
            if (c->base == b && (best == NONE_U32 || c->step_s < p->candidates[best].step_s))
                best = p->order[i];
        }
        if (best == NONE_U32 || p->candidates[best].step_s >= fastest)
            continue;
        fastest = p->candidates[best].step_s;
        p->front[p->front_n++] = best;
    }
}

/* ---- the ten best again ---- */

static uint32_t top_n(const Plan *p)
{
    return p->order_n < PLAN_TOP ? p->order_n : PLAN_TOP;
}

/* Of those among them that were not yet. */
static bool try_best(Plan *p, PlanDepth depth, Err *err)
{
    uint32_t some[PLAN_TOP], n = 0;
    for (uint32_t i = 0; i < top_n(p); i++)
        if (p->candidates[p->order[i]].expanded_s <= 0)
            some[n++] = p->order[i];
    return n > 0 && plan_try_some(p, some, n, depth, err);
}

/* With all micro-batches and kernel by kernel, whoever comes among them on the way. */
static bool expand_best(Plan *p, Err *err)
{
    while (try_best(p, PLAN_WHOLE, err) && try_best(p, PLAN_EXPANDED, err)) {
        sort_feasible(p);
        if (p->order_n == 0)
            return plan_is_none(p, NONE_U32, err);
    }
    return !err->set;
}

static int compare_expanded(const void *a, const void *b)
{
    const PlanCandidate *x = &sorting->candidates[*(const uint32_t *)a];
    const PlanCandidate *y = &sorting->candidates[*(const uint32_t *)b];
    PlanCandidate as[2] = { *x, *y };
    as[0].step_s = x->expanded_s;
    as[1].step_s = y->expanded_s;
    double by[2] = { plan_score(sorting, &as[0]), plan_score(sorting, &as[1]) };
    if (by[0] < by[1] || by[0] > by[1])
        return by[0] < by[1] ? -1 : 1;
    return x->expanded_s < y->expanded_s ? -1 : x->expanded_s > y->expanded_s;
}

/* Were they in the same order, kernel by kernel?  Notes the sentence that says so. */
static void note_order(Plan *p, const uint32_t *before, uint32_t n)
{
    uint32_t order[PLAN_TOP], i = 0;
    char was[TEXT_CAP], is[TEXT_CAP];
    if (p->order_note && !p->order_kept)
        return;
    memcpy(order, before, n * sizeof *order);
    sorting = p;
    qsort(order, n, sizeof *order, compare_expanded);
    while (i < n && compare_expanded(&order[i], &before[i]) == 0)
        i++;
    sorting = NULL;
    p->order_kept = i == n;
    p->order_note = "simulated kernel by kernel the best keep their order";
    if (p->order_kept)
        return;
    text_seconds(was, p->candidates[before[i]].expanded_s);
    text_seconds(is, p->candidates[order[i]].expanded_s);
    p->order_note = arena_printf(&p->arena,
                                 "simulated kernel by kernel the order changed: what was in "
                                 "place %" PRIu32 " takes %.40s, who belongs there %.40s",
                                 i + 1, was, is);
}

/* From here on their times are those of all micro-batches.  The best may turn out not to fit,
 * which is noted: then others are. */
static bool look_again(Plan *p, Err *err)
{
    uint32_t before[PLAN_TOP], n = top_n(p);
    memcpy(before, p->order, n * sizeof *before);
    if (!expand_best(p, err))
        return false;
    note_order(p, before, n);
    PlanCandidate best = p->candidates[p->order[0]];
    plan_try(p, &best, PLAN_WHOLE, &p->best, err);
    if (best.fate == PLAN_TOO_LARGE)
        p->candidates[p->order[0]] = best;
    return !err->set;
}

/* Explaining simulates more, to compare the best with.  True if one of them belongs among the ten
 * best, or the best itself turned out not to fit: then they are to be looked at again. */
static bool explain(Plan *p)
{
    if (p->candidates[p->order[0]].fate != PLAN_SIMULATED)
        return true;
    p->why_n = 0;
    find_front(p);
    plan_explain(p);
    count_fates(p);
    sort_feasible(p);
    for (uint32_t i = 0; i < top_n(p); i++)
        if (p->candidates[p->order[i]].expanded_s <= 0)
            return true;
    return false;
}

/* GPU counts of which none is a plan, and why. */
static void note_missing(Plan *p)
{
    bool *has = mem_zero(p->bases_n, sizeof *has);
    for (uint32_t i = 0; i < p->order_n; i++)
        has[p->candidates[p->order[i]].base] = true;
    p->missing = PUSH_ARRAY(&p->arena, PlanMissing, p->bases_n);
    for (uint32_t b = 0; b < p->bases_n; b++) {
        Err err = { 0 };
        if (!has[b] && !plan_is_none(p, b, &err))
            p->missing[p->missing_n++] =
                (PlanMissing){ p->gpus[b], arena_strdup(&p->arena, err.text) };
    }
    free(has);
}

/* ---- the whole ---- */

bool plan_run(Plan *p, const PlanOptions *options, Err *err)
{
    *p = (Plan){ 0 };
    if (!plan_open(p, options, err) || !plan_enumerate(p, err))
        return false;
    plan_search(p);
    do {
        report_free(&p->best);
        count_fates(p);
        sort_feasible(p);
        if (p->order_n == 0)
            return plan_is_none(p, NONE_U32, err);
        if (!look_again(p, err))
            return false;
    } while (explain(p));
    note_missing(p);
    return true;
}

void plan_free(Plan *p)
{
    for (uint32_t i = 0; i < p->bases_n; i++)
        scenario_free(&p->bases[i]);
    report_free(&p->best);
    free(p->candidates);
    free(p->works);
    arena_free(&p->arena);
    *p = (Plan){ 0 };
}

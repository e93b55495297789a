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

const char *const plan_objective_names[PLAN_OBJECTIVE_N] = { "time", "cost", "gpus" };

static void count_fates(Plan *p)
{
    memset(p->fates, 0, sizeof p->fates);
    for (uint32_t i = 0; i < p->n; i++)
        p->fates[p->candidates[i].fate]++;
}

/* ---- what is wanted ---- */

/* Of a machine's first GPUs together at their tdp_w; NAN: it is not known of all. */
static double watts_of(const Machine *m, uint32_t gpus)
{
    double watts = 0;
    for (uint32_t i = 0; i < m->types_n && m->types[i].first_rank < gpus; i++) {
        const NodeType *t = &m->types[i];
        uint64_t n = min_u64((uint64_t)t->count * t->gpus_n, gpus - t->first_rank);
        watts += t->gpu->tdp_w > 0 ? t->gpu->tdp_w * (double)n : NAN;
    }
    return watts;
}

uint32_t plan_whole_nodes_gpus(const Plan *p, const PlanCandidate *c)
{
    const Machine *m = &p->bases[c->base].machine;
    uint32_t gpus = plan_gpus(c), whole = 0;
    for (uint32_t i = 0; i < m->types_n && m->types[i].first_rank < gpus; i++) {
        const NodeType *t = &m->types[i];
        uint64_t nodes = div_up_u64(gpus - t->first_rank, t->gpus_n);
        whole += (uint32_t)min_u64(nodes, t->count) * t->gpus_n;
    }
    return whole;
}

PlanRun plan_training(const Plan *p, const PlanCandidate *c)
{
    const Training *t = &p->bases[c->base].training;
    const Machine *m = &p->bases[c->base].machine;
    double steps = ceil(p->options->tokens / ((double)t->global_batch * t->seq_len));
    double hours = steps * c->step_s / 3600, gpu_hours = hours * plan_gpus(c);
    return (PlanRun){ .steps = steps,
                      .days = hours / 24,
                      .gpu_hours = gpu_hours,
                      .cost_usd = steps * c->cost_usd,
                      .failures = m->gpu_mtbf_hours > 0 ? gpu_hours / m->gpu_mtbf_hours : NAN,
                      .gpu_mwh = watts_of(m, plan_gpus(c)) * hours / 1e6 };
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

typedef struct Ranked {
    double score, step_s, need; /* equal scores: the faster, then who needs less */
    uint32_t candidate;
} Ranked;

static int compare_times(const Ranked *x, const Ranked *y)
{
    if (x->score < y->score || x->score > y->score)
        return x->score < y->score ? -1 : 1;
    return (x->step_s > y->step_s) - (x->step_s < y->step_s);
}

static int compare_ranked(const void *a, const void *b)
{
    const Ranked *x = a, *y = b;
    int by_time = compare_times(x, y);
    if (by_time != 0 || x->need < y->need || x->need > y->need)
        return by_time != 0 ? by_time : x->need < y->need ? -1 : 1;
    return (x->candidate > y->candidate) - (x->candidate < y->candidate);
}

static void sort_feasible(Plan *p)
{
    Ranked *ranked = mem_zero((size_t)p->n + 1, sizeof *ranked);
    p->order_n = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        const PlanCandidate *c = &p->candidates[i];
        if (c->fate == PLAN_SIMULATED && plan_is_in_time(p, c) && plan_is_in_budget(p, c))
            ranked[p->order_n++] =
                (Ranked){ plan_score(p, c), c->step_s, (double)c->need_bytes, i };
    }
    qsort(ranked, p->order_n, sizeof *ranked, compare_ranked);
    p->order = PUSH_ARRAY(&p->arena, uint32_t, p->order_n + 1);
    for (uint32_t i = 0; i < p->order_n; i++)
        p->order[i] = ranked[i].candidate;
    free(ranked);
}

/* Of a GPU count, by time; NONE_U32: nothing fits. */
static uint32_t fastest_of(const Plan *p, uint32_t base)
{
    uint32_t best = NONE_U32;
    for (uint32_t i = 0; i < p->order_n; i++) {
        const PlanCandidate *c = &p->candidates[p->order[i]];
        if (c->base == base && (best == NONE_U32 || c->step_s < p->candidates[best].step_s))
            best = p->order[i];
    }
    return best;
}

/* Bases are ascending, so the fastest of each, if faster than all before, are the front. */
static void find_front(Plan *p)
{
    double fastest = INFINITY;
    p->front_n = 0;
    p->front = PUSH_ARRAY(&p->arena, uint32_t, p->bases_n);
    for (uint32_t b = 0; b < p->bases_n; b++) {
        uint32_t best = fastest_of(p, b);
        if (best == NONE_U32 || p->candidates[best].step_s >= fastest)
            continue;
        fastest = p->candidates[best].step_s;
        p->front[p->front_n++] = best;
    }
}

/* Where counts are compared, what is said of each is no estimate: who is fastest at a pace is
 * simulated whole, until one is that needs no estimate. */
static bool settle_fastest(Plan *p, Err *err)
{
    for (uint32_t b = 0; b < p->bases_n && p->bases_n > 1; b++)
        for (uint32_t best = fastest_of(p, b);
             best != NONE_U32 && p->candidates[best].extrapolated; best = fastest_of(p, b)) {
            if (!plan_try_some(p, &best, 1, PLAN_WHOLE, err))
                return false;
            sort_feasible(p);
        }
    return true;
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

/* As it is kernel by kernel. */
static Ranked rank_expanded(const Plan *p, uint32_t candidate)
{
    PlanCandidate c = p->candidates[candidate];
    c.step_s = c.expanded_s;
    return (Ranked){ plan_score(p, &c), c.step_s, 0, candidate };
}

/* Were they in the same order, kernel by kernel?  Notes the sentence that says so. */
static void note_order(Plan *p, const uint32_t *before, uint32_t n)
{
    Ranked was[PLAN_TOP], now[PLAN_TOP];
    uint32_t i = 0;
    if (p->order_note && !p->order_kept)
        return;
    for (uint32_t k = 0; k < n; k++)
        was[k] = now[k] = rank_expanded(p, before[k]);
    qsort(now, n, sizeof *now, compare_ranked);
    while (i < n && compare_times(&now[i], &was[i]) == 0)
        i++;
    p->order_kept = i == n;
    p->order_note = "simulated kernel by kernel the best keep their order";
    if (p->order_kept)
        return;
    p->order_note = arena_printf(&p->arena,
                                 "simulated kernel by kernel the order changed: what was in "
                                 "place %" PRIu32 " takes %.7g s, who belongs there %.7g s",
                                 i + 1, was[i].step_s, now[i].step_s);
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
        if (!settle_fastest(p, err))
            return false;
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

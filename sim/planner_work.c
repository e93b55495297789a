/*
 * planner_work.c - what a step takes at least, before a graph of it is built.
 *
 *     one stage, one micro-batch   |F F F F F F|B B B B B B|     busiest lane: w
 *     pp 4, 8 micro-batches        each stage has a part of the model, all parts together take
 *                                  8 w, so the fullest at least 8 w / 4
 *
 * Kernels depend on tp, cp, ep, micro-batch, recomputation, and on whether parameters are shared
 * out; not on dp, pp or the schedule.  So a small graph says it for many candidates, and of most
 * candidates no other graph is needed.
 *
 * Nothing is known of what has no equal ranks (stragglers, mixed nodes), of dp and model_parallel,
 * which do not cut the model so, and of orders in which dp or pp decide how far the ranks of a
 * layer are from one another.  Where weight gradients apart, or pairs, may hide what a micro-batch
 * alone waits for, only its kernels count.
 */
#include "sim/build.h"
#include "sim/planner_parts.h"

/* Two where there are more, as kernels only see that parameters are shared out; with experts as
 * many as share those out, together with cp.  (Where tp helps, which dp decides, all.) */
static uint32_t least_dp(const PlanCandidate *c)
{
    uint32_t least = c->dp < 2 ? c->dp : 2;
    if (c->ep == 1)
        return least;
    uint32_t dp = expert_dp(&(Parallel){
        .strategy = c->strategy, .dp = c->dp, .cp = c->cp, .shard_size = c->shard_size });
    if ((uint64_t)dp * c->cp % c->ep != 0)
        return dp;
    while ((uint64_t)least * c->cp % c->ep != 0)
        least++;
    return least;
}

/* One that has the same kernels. */
static Strategy like_strategy(const PlanCandidate *c)
{
    bool shards = shards_params(&(Parallel){
        .strategy = c->strategy, .dp = c->dp, .cp = c->cp, .shard_size = c->shard_size });
    return c->dp * c->tp * c->cp == 1 ? STRATEGY_SINGLE : shards ? STRATEGY_FSDP : STRATEGY_DDP;
}

static bool is_same_work(const PlanWork *w, const PlanCandidate *c, Strategy strategy)
{
    return w->base == c->base && w->dp == least_dp(c) && w->tp == c->tp && w->cp == c->cp &&
           w->ep == c->ep && w->micro_batch == c->micro_batch && w->recompute == c->recompute &&
           w->sequence_parallel == c->sequence_parallel && w->strategy == strategy;
}

static int place_of(const Parallel *p, Dim d)
{
    int i = 0;
    while (p->order[i] != d)
        i++;
    return i;
}

/* Do ranks that compute a layer together lie side by side, whatever dp and pp are?  Those of ep are
 * some of dp's. */
static bool is_inside(const Parallel *p)
{
    int dp = place_of(p, DIM_DP), pp = place_of(p, DIM_PP), outer = dp < pp ? dp : pp;
    bool inside = place_of(p, DIM_TP) < outer && place_of(p, DIM_CP) < outer;
    return inside && (p->ep == 1 || (dp < pp && place_of(p, DIM_EP) < dp));
}

static bool is_known(const Plan *p, const PlanCandidate *c)
{
    const Machine *m = &p->bases[c->base].machine;
    const Scenario s = plan_scenario(p, c);
    bool equal = m->types_n == 1 && m->stragglers_n == 0 && m->slow_links_n == 0;
    bool cuts = c->strategy != STRATEGY_DP && c->strategy != STRATEGY_MODEL_PARALLEL;
    return equal && !(m->jitter > 0) && cuts && is_inside(&s.parallel);
}

/* May another micro-batch hide what one alone waits for? */
static bool hides_waits(const Plan *p, const PlanCandidate *c)
{
    const Scenario s = plan_scenario(p, c);
    const Build b = { .s = &s, .sw = &p->sw };
    return schedule_splits(c->schedule) || hides_in_pairs(&b);
}

/* Candidates that differ little stand together: the newest are looked at first. */
static uint32_t work_of(Plan *p, const PlanCandidate *c)
{
    Strategy strategy = like_strategy(c);
    if (!is_known(p, c))
        return NONE_U32;
    for (uint32_t i = p->works_n; i-- > 0 && p->works[i].base == c->base;)
        if (is_same_work(&p->works[i], c, strategy))
            return i;
    GROW(p->works, p->works_n, p->works_cap);
    p->works[p->works_n] = (PlanWork){ .base = c->base,
                                       .dp = least_dp(c),
                                       .tp = c->tp,
                                       .cp = c->cp,
                                       .ep = c->ep,
                                       .micro_batch = c->micro_batch,
                                       .recompute = c->recompute,
                                       .sequence_parallel = c->sequence_parallel,
                                       .strategy = strategy };
    return p->works_n++;
}

void plan_find_works(Plan *p)
{
    for (uint32_t i = 0; i < p->n; i++) {
        PlanCandidate *c = &p->candidates[i];
        c->work = c->need_bytes <= c->gpu_bytes ? work_of(p, c) : NONE_U32;
    }
}

void plan_time_work(const Plan *p, PlanWork *w)
{
    const PlanCandidate one = { .base = w->base,
                                .strategy = w->strategy,
                                .dp = w->dp,
                                .tp = w->tp,
                                .pp = 1,
                                .cp = w->cp,
                                .ep = w->ep,
                                .shard_size = w->dp,
                                .micro_batch = w->micro_batch,
                                .virtual_stages = 1,
                                .recompute = w->recompute,
                                .schedule = SCHEDULE_1F1B,
                                .sequence_parallel = w->sequence_parallel };
    Scenario s = plan_scenario(p, &one);
    Graph g = { 0 };
    Err ignored = { 0 };
    MicroBatchBound bound;
    s.training.micro_batches = 2; /* the first may have kernels of its own */
    if (build_graph(&g, &s, &p->sw, &ignored) &&
        sim_bound_of_micro_batch(&bound, &g, &s.machine, &p->sw, &ignored)) {
        w->micro_batch_s = bound.busiest_ns / 1e9;
        w->kernels_s = bound.kernels_ns / 1e9;
    }
    graph_free(&g);
}

double plan_work_bound(const Plan *p, const PlanCandidate *c)
{
    if (c->work == NONE_U32)
        return 0;
    const Training *t = &p->bases[c->base].training;
    double micro_batches = (double)t->global_batch / ((double)c->dp * c->micro_batch);
    const PlanWork *w = &p->works[c->work];
    return (hides_waits(p, c) ? w->kernels_s : w->micro_batch_s) * micro_batches / c->pp;
}

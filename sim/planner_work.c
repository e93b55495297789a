/*
 * planner_work.c - what a step takes at least, before a graph of it is built.
 *
 *     one stage, one micro-batch   |F F F F F F|B B B B B B|     busiest lane: w
 *     pp 4, 8 micro-batches        each stage has a part of the model, all parts together take
 *                                  8 w, so the fullest at least 8 w / 4
 *
 *     stage 2 of them, by block    |F F|F F|8 times (F F B B)|B B|B B|
 *                                  fill      its own layers   drain
 *
 * A stage computes nothing before its first micro-batch has come through the stages before it, nor
 * after its last has to go back through them, as in sim_bound.  What blocks keep and need of memory
 * in that small graph is noted, too, for planner_memory.c.  Layers like others are left out of it
 * (model_shallow.c).
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
#include <math.h>
#include <stdlib.h>

#include "sim/build.h"
#include "sim/planner_parts.h"
#include "sim/scenario_parts.h"
#include "sim/strategy/parts.h"
#include "sim/strategy/schedule.h"

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
static Strategy like_strategy(const Plan *p, const PlanCandidate *c)
{
    const Scenario s = plan_scenario(p, c);
    bool shards = shards_params(&s.parallel, &p->sw);
    return c->dp * c->tp * c->cp == 1 ? STRATEGY_SINGLE : shards ? STRATEGY_FSDP : STRATEGY_DDP;
}

static bool is_same_work(const PlanWork *w, const PlanCandidate *c, uint32_t dp,
                         Strategy strategy)
{
    return w->base == c->base && w->dp == dp && w->tp == c->tp && w->cp == c->cp &&
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

bool plan_hides_waits(const Plan *p, const Scenario *s)
{
    const Build b = { .s = s, .sw = &p->sw };
    return schedule_splits(s->parallel.schedule) || hides_in_pairs(&b);
}

/* Candidates that differ little stand together: the newest are looked at first. */
static uint32_t work_of(Plan *p, const PlanCandidate *c)
{
    Strategy strategy = like_strategy(p, c);
    uint32_t dp = least_dp(c);
    if (!is_known(p, c))
        return NONE_U32;
    for (uint32_t i = p->works_n; i-- > 0 && p->works[i].base == c->base;)
        if (is_same_work(&p->works[i], c, dp, strategy))
            return i;
    GROW(p->works, p->works_n, p->works_cap);
    p->works[p->works_n] = (PlanWork){ .base = c->base,
                                       .dp = dp,
                                       .tp = c->tp,
                                       .cp = c->cp,
                                       .ep = c->ep,
                                       .micro_batch = c->micro_batch,
                                       .recompute = c->recompute,
                                       .sequence_parallel = c->sequence_parallel,
                                       .strategy = strategy };
    return p->works_n++;
}

void plan_find_works(Plan *p, uint32_t first)
{
    uint32_t known = p->works_n;
    for (uint32_t i = first; i < p->n; i++) {
        PlanCandidate *c = &p->candidates[i], plain = *c, again = *c;
        c->work = c->again = NONE_U32;
        if (c->need_bytes > c->gpu_bytes)
            continue;
        plain.recompute = c->recompute == RECOMPUTE_LAYERS ? RECOMPUTE_NONE : c->recompute;
        again.recompute = RECOMPUTE_FULL;
        c->work = work_of(p, &plain);
        c->again = c->recompute == RECOMPUTE_LAYERS ? work_of(p, &again) : NONE_U32;
    }
    for (uint32_t i = known; i < p->works_n; i++) {
        uint32_t layers = scenario_blocks(&p->bases[p->works[i].base].model);
        p->works[i].block = PUSH_ARRAY(&p->arena, BlockBound, layers + 2);
        p->works[i].kept_bytes = PUSH_ARRAY(&p->arena, int64_t, layers + 2);
        p->works[i].backward_bytes = PUSH_ARRAY(&p->arena, uint64_t, layers + 2);
        p->works[i].gathered_bytes = PUSH_ARRAY(&p->arena, uint64_t, layers + 2);
    }
}

/* Of the first micro-batch, in the order of MicroBatchBound.block. */
static void weigh_forward(PlanWork *w, const Graph *g, uint32_t layers)
{
    const Role *role = &g->roles[0];
    bool layers_came = false;
    for (uint32_t i = 0; i < role->instances_n; i++) {
        const Instance *in = &role->instances[i];
        const Segment *s = &g->segments[in->segment];
        if (s->kind != SEGMENT_FORWARD || in->micro_batch != 0)
            continue;
        uint32_t at = bound_block(in, false, layers_came, layers);
        w->kept_bytes[at] += s->memory_delta_of[TENSOR_ACTIVATION];
        w->sent_bytes += at == 0 ? layout_bytes(g, s->layout[SLOT_OUT]) : 0;
        layers_came |= in->layer < layers;
    }
}

/* Of the micro-batch that needs less: the first makes gradients, others add to them. */
static void weigh_backward(PlanWork *w, const Graph *g, uint32_t layers)
{
    const Role *role = &g->roles[0];
    bool *seen = mem_zero(2 * ((size_t)layers + 2), sizeof *seen), layers_came[2] = { false };
    for (uint32_t i = 0; i < role->instances_n; i++) {
        const Instance *in = &role->instances[i];
        const Segment *s = &g->segments[in->segment];
        if (s->kind != SEGMENT_BACKWARD || in->micro_batch > 1)
            continue;
        uint32_t m = in->micro_batch, at = bound_block(in, true, layers_came[m], layers);
        uint64_t peak = (uint64_t)s->memory_peak, *least = &w->backward_bytes[at];
        if (w->strategy == STRATEGY_FSDP && s->layout[SLOT_PARAM] != NONE_U32)
            w->gathered_bytes[at] = layout_bytes(g, s->layout[SLOT_PARAM]);
        if (!seen[2 * at + m])
            *least = seen[2 * at + !m] ? min_u64(*least, peak) : peak;
        seen[2 * at + m] = true;
        layers_came[m] |= in->layer < layers;
    }
    free(seen);
}

/* Layers of the model that is asked, and for which of the whole one each stands. */
typedef struct Depth {
    uint32_t whole_n, layers_n;
    uint32_t *like; /* by layer of the whole model; the caller frees it, with what follows */
    uint32_t *stands_for;
} Depth;

/* Leaves out layers like others. */
static Depth make_shallow(Model *model)
{
    Depth d = { .whole_n = scenario_blocks(model) };
    d.like = mem_zero(2 * (size_t)d.whole_n + 1, sizeof *d.like);
    d.stands_for = d.like + d.whole_n;
    d.layers_n = d.whole_n;
    for (uint32_t i = 0; i < d.whole_n; i++)
        d.like[i] = i;
    if (model->kind == MODEL_TRANSFORMER)
        model->u.transformer.layers = d.layers_n =
            transformer_shallow(&model->u.transformer, d.like);
    for (uint32_t i = 0; i < d.whole_n; i++)
        d.stands_for[d.like[i]]++;
    return d;
}

/* To the blocks of the whole model, from the last on: none is like a later one. */
static void spread(PlanWork *w, const Depth *d)
{
    for (uint32_t to = d->whole_n + 2; to-- > 0;) {
        uint32_t from = to == 0 ? 0 : to <= d->whole_n ? 1 + d->like[to - 1] : d->layers_n + 1;
        w->block[to] = w->block[from];
        w->kept_bytes[to] = w->kept_bytes[from];
        w->backward_bytes[to] = w->backward_bytes[from];
        w->gathered_bytes[to] = w->gathered_bytes[from];
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
    Depth depth = make_shallow(&s.model);
    MicroBatchBound bound = { .layers_n = depth.layers_n,
                              .block = w->block,
                              .stands_for = depth.stands_for,
                              .among = p->gpus[w->base] };
    w->timed = true;
    s.training.micro_batches = 2; /* the first may have kernels of its own */
    if (build_graph(&g, &s, &p->sw, &ignored) &&
        sim_bound_of_micro_batch(&bound, &g, &s.machine, &p->sw, &ignored)) {
        w->micro_batch_s = bound.busiest_ns / 1e9;
        w->kernels_s = bound.kernels_ns / 1e9;
        weigh_forward(w, &g, bound.layers_n);
        weigh_backward(w, &g, bound.layers_n);
        spread(w, &depth);
    }
    graph_free(&g);
    free(depth.like);
}

/* ---- of a candidate ---- */

/* A stage in a step, at least; in ns. */
typedef struct StageBound {
    double work_ns; /* forward and backward of a micro-batch */
    double pass_ns; /* of its first chunk, what others wait for at the ends of the step */
} StageBound;

static double pass_ns(const PassBound *pass, bool kernels)
{
    return kernels ? pass->kernels_ns : pass->busy_ns;
}

/* One stage adds the gradient of an embedding to that of its tied head, even of the first
 * micro-batch; the first of several has nothing to add to. */
static double backward_ns(const Scenario *s, const BlockBound *block, uint32_t at, bool kernels)
{
    bool added = at == 0 && s->model.u.transformer.tied_embeddings && s->parallel.pp > 1;
    return added ? 0 : pass_ns(&block->backward, kernels);
}

/* As pass_pipeline cuts them. */
uint32_t plan_chunk_end(const Scenario *s, uint32_t k, uint32_t at)
{
    const Parallel *p = &s->parallel;
    uint32_t chunks = p->pp * p->virtual_stages, layers = scenario_blocks(&s->model);
    uint32_t share = p->stage_layers_n ? p->stage_layers[k] : even_share(layers, 2, chunks, k);
    uint32_t end = at + share + (k == 0);
    return k + 1 == chunks || end > layers + 2 ? layers + 2 : end;
}

const PlanWork **plan_block_works(const Plan *p, const PlanCandidate *c, const Scenario *s)
{
    const Parallel *l = &s->parallel;
    const PlanWork *plain = &p->works[c->work];
    const PlanWork *again = c->again != NONE_U32 ? &p->works[c->again] : plain;
    uint32_t blocks = scenario_blocks(&s->model) + 2;
    const PlanWork **of = mem_zero(blocks, sizeof *of);
    uint32_t *chosen = mem_zero(l->pp, sizeof *chosen); /* by stage */
    for (uint32_t k = 0, at = 0; k < l->pp * l->virtual_stages; k++) {
        uint32_t *stage = &chosen[schedule_stage(l->schedule, l->pp, k)];
        for (uint32_t end = plan_chunk_end(s, k, at); at < end; at++)
            of[at] = at > 0 && (*stage)++ < c->recompute_layers ? again : plain;
    }
    free(chosen);
    return of;
}

static void add_chunks(StageBound *stage, const Scenario *s, const PlanWork *const *of,
                       bool kernels)
{
    const Parallel *p = &s->parallel;
    for (uint32_t k = 0, at = 0; k < p->pp * p->virtual_stages; k++) {
        StageBound *its = &stage[schedule_stage(p->schedule, p->pp, k)];
        for (uint32_t end = plan_chunk_end(s, k, at); at < end; at++) {
            const BlockBound *block = &of[at]->block[at];
            double ns = pass_ns(&block->forward, kernels) + backward_ns(s, block, at, kernels);
            its->work_ns += ns;
            its->pass_ns += k < p->pp ? ns : 0;
        }
    }
}

/* Where weight gradients are apart, ends of the step overlap: then nothing but its own work
 * counts. */
static double longest_stage(const StageBound *stage, const Parallel *p, double micro_batches)
{
    double most_ns = 0, before_ns = 0;
    for (uint32_t i = 0; i < p->pp; i++) {
        most_ns = fmax(most_ns, stage[i].work_ns * micro_batches + before_ns);
        before_ns += schedule_splits(p->schedule) ? 0 : stage[i].pass_ns;
    }
    return most_ns;
}

/* By its stages, in s; 0 where layers do not stand between an embedding and a head. */
static double stages_bound(const Plan *p, const PlanCandidate *c, const Scenario *s,
                           bool kernels)
{
    if (s->model.kind != MODEL_TRANSFORMER)
        return 0;
    StageBound *stage = mem_zero(s->parallel.pp, sizeof *stage);
    const PlanWork **of = plan_block_works(p, c, s);
    add_chunks(stage, s, of, kernels);
    double ns = longest_stage(stage, &s->parallel, (double)s->training.micro_batches);
    free(of);
    free(stage);
    return ns / 1e9;
}

bool plan_knows_work(const Plan *p, const PlanCandidate *c)
{
    return c->work != NONE_U32 && p->works[c->work].timed &&
           (c->again == NONE_U32 || p->works[c->again].timed);
}

double plan_work_bound(const Plan *p, const PlanCandidate *c)
{
    if (!plan_knows_work(p, c))
        return 0;
    const Scenario s = plan_scenario(p, c);
    const PlanWork *w = &p->works[c->work];
    double micro_batches = (double)s.training.micro_batches;
    bool kernels = plan_hides_waits(p, &s);
    double mean_s = (kernels ? w->kernels_s : w->micro_batch_s) * micro_batches / c->pp;
    return fmax(mean_s, stages_bound(p, c, &s, kernels));
}

/*
 * planner_memory.c - what the fullest GPU holds at least, before a graph is built.
 *
 *     stage          0     1     2     3
 *     state          s+e   s     s     s+h     parameters of its blocks, what comes with each
 *     kept           4 k   3 k   2 k   k       of each forward before its first backward (1f1b)
 *     backward       b     b     b     h'      what that needs besides: of its last block
 *
 * The fullest stage counts.
 *
 * What blocks keep and need is read off a small graph that many candidates share (PlanWork).
 */
#include <math.h>
#include <stdlib.h>

#include "sim/build.h"
#include "sim/planner_parts.h"
#include "sim/scenario_parts.h"

/* ---- state ---- */

/* Bytes for each parameter that a rank of a stage has, and for each that all its replicas have
 * together: experts are shared out over ep, and over dp x cp whatever is sharded.  bucket: for each
 * that is no expert's, which may have no replicas. */
typedef struct PerParameter {
    double own, all, bucket;
} PerParameter;

/* fsdp in a pipeline: gradients of all micro-batches but the last are summed before they are shared
 * out.  Chunks that take turns have all begun when the first begins its last where there are two
 * rounds. */
static bool sums_whole(const Scenario *s)
{
    const Parallel *l = &s->parallel;
    bool fsdp = l->strategy == STRATEGY_FSDP || l->strategy == STRATEGY_HSDP;
    uint32_t least = l->virtual_stages > 1 ? 2 * l->pp : 2;
    return fsdp && l->pp > 1 && s->training.micro_batches >= least;
}

/* Buckets into which ddp copies gradients are there always. */
static double bucket_bytes(const Plan *p, const Scenario *s)
{
    const Parallel *l = &s->parallel;
    bool copied = l->strategy == STRATEGY_DDP && l->dp * l->cp > 1 &&
                  copies_buckets(&(Build){ .s = s, .sw = &p->sw });
    return copied ? (double)dtype_bytes(formats_of(&s->training, l, &p->sw).reduce) : 0;
}

/* ended: when backward has ended, and gradients are there, else when it has not begun; whole ones
 * may be there always.  Shards of gradients are kept as they were summed, or as fsdp casts them. */
static PerParameter per_parameter(const Plan *p, const Scenario *s, bool ended)
{
    const Training *t = &s->training;
    const Parallel *l = &s->parallel;
    Formats f = formats_of(t, l, &p->sw);
    double n = (double)l->dp * l->cp, params = (double)dtype_bytes(f.param);
    double grads = (double)min_u64(dtype_bytes(f.grad), dtype_bytes(f.reduce));
    double state = optimizer_moments(t->optimizer) * (double)dtype_bytes(f.moments) +
                   (f.masters ? (double)dtype_bytes(f.master) : 0);
    double shard = shards_params(l, &p->sw) ? (double)dtype_bytes(f.shard) : grads;
    bool persist = p->sw.grads_persist && !strategy_shards_grads(l->strategy);
    bool halves = keeps_half_grads(t, l, &p->sw, l->dp * l->cp > 1);
    double beside = halves ? (double)dtype_bytes(f.made) : 0;
    double own = ended && sums_whole(s) ? fmin(grads, (double)dtype_bytes(f.made)) : 0;
    shard = ended && own == 0 ? shard : 0;
    switch (l->strategy) {
    case STRATEGY_ZERO1:
    case STRATEGY_ZERO2:
        return persist ? (PerParameter){ params + grads + beside, state / n, 0 }
                       : (PerParameter){ params + beside, (shard + state) / n, 0 };
    case STRATEGY_FSDP:
        return (PerParameter){ own, (params + shard + state) / n, 0 };
    case STRATEGY_HSDP:
        return (PerParameter){ own, (params + shard + state) / ((double)l->shard_size * l->cp),
                               0 };
    default:
        return (PerParameter){ params + state + beside + (ended || persist ? grads : 0), 0,
                               bucket_bytes(p, s) };
    }
}

void plan_count_blocks(Plan *p)
{
    const Model *model = &p->bases[0].model;
    const Transformer *t = &model->u.transformer;
    uint32_t layers = model->kind == MODEL_TRANSFORMER ? scenario_blocks(model) : 0;
    p->block = PUSH_ARRAY(&p->arena, PlanBlock, layers + 2);
    if (layers == 0)
        return;
    p->block[0].plain = (double)transformer_embedding_params(t);
    for (uint32_t i = 0; i < layers; i++) {
        double experts = (double)transformer_expert_params(t, i);
        p->block[i + 1] =
            (PlanBlock){ (double)transformer_block_params(t, i) - experts, experts };
    }
    p->block[layers + 1].plain = (double)transformer_head_params(t);
}

/* ---- stages ---- */

/* Adds to bytes, by stage, what the blocks of each bring along.  Parameters are shared out over tp,
 * but experts over ep and, unless they are whole, over tp. */
static void add_state(double *bytes, const Plan *p, const PlanCandidate *c, const Scenario *s,
                      bool ended)
{
    PerParameter per = per_parameter(p, s, ended);
    double experts_cut = (double)c->ep * expert_tp(&(Build){ .s = s, .sw = &p->sw });
    for (uint32_t k = 0, at = 0; k < c->pp * c->virtual_stages; k++) {
        double *of = &bytes[schedule_stage(c->schedule, c->pp, k)];
        for (uint32_t end = plan_chunk_end(s, k, at); at < end; at++) {
            const PlanBlock *b = &p->block[at];
            *of += per.own * (b->plain / c->tp + b->experts / experts_cut) +
                   per.bucket * b->plain / c->tp + per.all * (b->plain + b->experts) / c->tp;
        }
    }
}

static SchedulePlan schedule_of(const PlanCandidate *c, const Scenario *s)
{
    return (SchedulePlan){ .schedule = c->schedule,
                           .pp = c->pp,
                           .turns = c->virtual_stages,
                           .micro_batches = s->training.micro_batches };
}

/* Forwards of chunk k that a stage holds when it does its first backward.  DualPipe does the first
 * of the last stage beside a forward, which may have kept nothing yet. */
static double held_of(const SchedulePlan *plan, uint32_t k)
{
    uint32_t stage = schedule_stage(plan->schedule, plan->pp, k);
    uint32_t held = schedule_held(plan, stage, k / plan->pp);
    bool beside = plan->schedule == SCHEDULE_DUALPIPE && k + 1 == plan->pp;
    return (double)(held - (beside && held > 0));
}

/* Casts of f32 weights are kept like activations, but once for all micro-batches, where there are
 * several: then no more than one of them counts. */
static double held_at_most(const Plan *p, const Scenario *s)
{
    bool casts = formats_of(&s->training, &s->parallel, &p->sw).casts;
    return !casts ? INFINITY : s->training.micro_batches > 1 ? 1 : 0;
}

/* Whose parameters are gathered in a first backward, where they are shared out: all of a stage
 * that keeps them after forward, else the embedding's, which every stack keeps, and those of the
 * block at work.  A tied head on the embedding's stage has them with that. */
typedef struct Gathered {
    bool all, tied;
} Gathered;

static Gathered gathered_of(const Plan *p, const Scenario *s)
{
    const Parallel *l = &s->parallel;
    uint32_t head = schedule_stage(l->schedule, l->pp, l->pp * l->virtual_stages - 1);
    return (Gathered){ !reshards(&(Build){ .s = s, .sw = &p->sw }),
                       s->model.u.transformer.tied_embeddings && head == 0 };
}

static bool is_gathered(const Gathered *g, uint32_t block, bool at_work)
{
    return block == 0 ? !g->tied : g->all || at_work;
}

static bool sends_chunk(const PlanCandidate *c, uint32_t k)
{
    return k + 1 < c->pp * c->virtual_stages &&
           schedule_stage(c->schedule, c->pp, k) != schedule_stage(c->schedule, c->pp, k + 1);
}

/* Does a stage still have what it sent (Software.pp_keeps_outputs)? */
static bool keeps_sent(const Plan *p, const Scenario *s)
{
    return p->sw.pp_keeps_outputs && s->parallel.pp > 1 &&
           !sends_parts(&(Build){ .s = s, .sw = &p->sw });
}

/* What stays of all micro-batches when backward has ended: see sim/strategy/pipeline_kept.c. */
static void add_kept(double *bytes, const Plan *p, const PlanCandidate *c, const Scenario *s)
{
    const Parallel *l = &s->parallel;
    const Transformer *t = &s->model.u.transformer;
    uint32_t chunks = c->pp * c->virtual_stages, cut = l->sequence_parallel ? c->tp : 1;
    double rows = (double)s->training.micro_batch * s->training.seq_len / l->cp;
    double all =
        rows * s->training.micro_batches * (double)dtype_bytes(act_dtype(&s->training));
    bool stays = keeps_sent(p, s) && p->sw.pp_outputs_stay;
    for (uint32_t k = 0; k + 1 < chunks && stays; k++)
        if (sends_chunk(c, k))
            bytes[schedule_stage(c->schedule, c->pp, k)] += all * t->hidden / cut;
    if (p->sw.pp_keeps_logits && c->pp > 1) /* and put together */
        bytes[schedule_stage(c->schedule, c->pp, chunks - 1)] += 2 * all * t->vocab / c->tp;
}

/* And what a stage holds in its first backward, of its last block, besides: what forwards until
 * then have kept, and what that backward needs.  A stage is handed as much as it hands on, but for
 * the first. */
static void add_work(double *bytes, const Plan *p, const PlanCandidate *c, const Scenario *s)
{
    const PlanWork *first = &p->works[c->work], **of_block = plan_block_works(p, c, s);
    const SchedulePlan plan = schedule_of(c, s);
    const Gathered gathered = gathered_of(p, s);
    uint32_t chunks = c->pp * c->virtual_stages;
    double most_held = held_at_most(p, s);
    bool alone = !plan_hides_waits(p, s), keeps = keeps_sent(p, s);
    for (uint32_t k = 0, at = 0; k < chunks; k++) {
        double *of = &bytes[schedule_stage(c->schedule, c->pp, k)];
        double held = fmin(held_of(&plan, k), most_held);
        *of -= k == 0 && c->pp > 1 ? held * (double)first->sent_bytes : 0;
        *of += keeps && sends_chunk(c, k) ? held * (double)first->sent_bytes : 0;
        for (uint32_t end = plan_chunk_end(s, k, at); at < end; at++) {
            const PlanWork *w = of_block[at];
            bool at_work = k + c->pp >= chunks && at + 1 == end;
            *of += held * (double)w->kept_bytes[at];
            *of += is_gathered(&gathered, at, at_work) ? (double)w->gathered_bytes[at] : 0;
            *of += at_work && alone ? (double)w->backward_bytes[at] : 0;
        }
    }
    free(of_block);
}

static double most_of(const double *bytes, uint32_t n)
{
    double most = 0;
    for (uint32_t i = 0; i < n; i++)
        most = bytes[i] > most ? bytes[i] : most;
    return most;
}

uint64_t plan_memory_bound(const Plan *p, const PlanCandidate *c)
{
    const Model *model = &p->bases[c->base].model;
    const Scenario s = plan_scenario(p, c);
    if (model->kind != MODEL_TRANSFORMER) { /* the mean of stages */
        PerParameter per = per_parameter(p, &s, true);
        double bytes_each = per.own + per.bucket + per.all;
        return (uint64_t)(bytes_each * (double)model_params(model) / c->tp / c->pp);
    }
    double *bytes = mem_zero(c->pp, sizeof *bytes);
    add_state(bytes, p, c, &s, true);
    double most = most_of(bytes, c->pp);
    free(bytes);
    return (uint64_t)most;
}

uint64_t plan_work_memory(const Plan *p, const PlanCandidate *c)
{
    const Scenario s = plan_scenario(p, c);
    if (!plan_knows_work(p, c) || s.model.kind != MODEL_TRANSFORMER)
        return 0;
    double *bytes = mem_zero(c->pp, sizeof *bytes);
    add_state(bytes, p, c, &s, false);
    add_work(bytes, p, c, &s);
    double begun = most_of(bytes, c->pp);
    for (uint32_t i = 0; i < c->pp; i++)
        bytes[i] = 0;
    add_state(bytes, p, c, &s, true);
    add_kept(bytes, p, c, &s);
    double ended = most_of(bytes, c->pp);
    free(bytes);
    return (uint64_t)fmax(begun, ended);
}

/* Of the fullest stage, which holds it for as many micro-batches. */
uint64_t plan_layer_saving(const Plan *p, const PlanCandidate *c)
{
    const Scenario s = plan_scenario(p, c);
    const SchedulePlan plan = schedule_of(c, &s);
    double most = 0;
    if (c->again == NONE_U32 || !plan_knows_work(p, c) || s.model.kind != MODEL_TRANSFORMER)
        return 0;
    const PlanWork *plain = &p->works[c->work], *again = &p->works[c->again];
    for (uint32_t k = 0, at = 0; k < c->pp * c->virtual_stages; k++)
        for (uint32_t end = plan_chunk_end(&s, k, at); at < end; at++)
            most = fmax(most, held_of(&plan, k) *
                                  (double)(plain->kept_bytes[at] - again->kept_bytes[at]));
    return (uint64_t)most;
}

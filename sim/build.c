/*
 * build.c - the whole way from a scenario to a graph; see build.h for the drawing.
 */
#include "sim/build.h"

#include <stdlib.h>

#include "sim/engine.h"

/* What no pass can do yet is a sentence here, not a wrong number. */
static bool check_supported(const Scenario *s, Err *err)
{
    const Parallel *p = &s->parallel;
    if (p->strategy == STRATEGY_ZERO2 && p->pp > 1)
        return err_set(
            err,
            "parallel.strategy 'zero2' with pp = %" PRIu32
            ": DeepSpeed refuses stage 2 with pipelines, and so do we; allowed: pp 1, "
            "or ddp, zero1, fsdp, hsdp",
            p->pp);
    return true;
}

static bool pass_data(Build *b, Err *err)
{
    switch (b->s->parallel.strategy) {
    case STRATEGY_DP:
        return pass_dp(b, err);
    case STRATEGY_DDP:
        return pass_ddp(b, err);
    case STRATEGY_ZERO1:
        return pass_zero1(b, err);
    case STRATEGY_ZERO2:
        return pass_zero2(b, err);
    case STRATEGY_FSDP:
        return pass_fsdp(b, err);
    case STRATEGY_HSDP:
        return pass_hsdp(b, err);
    case STRATEGY_MODEL_PARALLEL:
        return pass_model_parallel(b, err);
    default:
        return pass_single(b, err);
    }
}

bool overlaps(const Build *b, Dim d)
{
    const Parallel *p = &b->s->parallel;
    bool zero = p->strategy == STRATEGY_ZERO1 || p->strategy == STRATEGY_ZERO2;
    bool in_line =
        (d == DIM_DP && zero && b->sw->zero_reduces_last) ||
        (d == DIM_PP && p->schedule != SCHEDULE_INTERLEAVED && b->sw->pp_overlap_interleaved);
    bool sharded = p->strategy == STRATEGY_FSDP || p->strategy == STRATEGY_HSDP;
    bool does = b->sw->overlap[d] || (d == DIM_DP && sharded && b->sw->fsdp_overlaps);
    bool habit = (does && !in_line) || (d == DIM_EP && runs_dualpipe(p));
    return p->overlap_set[d] ? p->overlap[d] : habit;
}

bool overlap_is_asked(const Build *b, Dim d)
{
    const Parallel *p = &b->s->parallel;
    return p->overlap_set[d] && p->overlap[d];
}

bool hides_input_gradients(const Build *b)
{
    bool does = b->sw->tp_async_backward || overlap_is_asked(b, DIM_TP);
    return b->s->parallel.tp > 1 && overlaps(b, DIM_TP) && does;
}

bool rings_keys(const Build *b)
{
    bool does = b->sw->cp_ring || overlap_is_asked(b, DIM_CP);
    return overlaps(b, DIM_CP) && does && !b->sw->cp_gathers;
}

bool hides_in_pairs(const Build *b)
{
    const Parallel *p = &b->s->parallel;
    bool megatron = b->sw->ep_pairs && (p->pp == 1 || p->schedule == SCHEDULE_INTERLEAVED);
    bool pairs = megatron || runs_dualpipe(p);
    bool once = shards_params(p, b->sw) || p->strategy == STRATEGY_ZERO2;
    return p->ep > 1 && overlaps(b, DIM_EP) && pairs && !once;
}

uint32_t expert_tp(const Build *b)
{
    const Parallel *p = &b->s->parallel;
    return whole_experts(p, b->sw) ? 1 : p->tp;
}

bool experts_apart(const Build *b)
{
    const Parallel *p = &b->s->parallel;
    const Model *m = &b->s->model;
    bool has = m->kind == MODEL_TRANSFORMER && m->u.transformer.experts > 0;
    return p->ep > 1 || (has && expert_tp(b) < p->tp);
}

bool sends_once(const Build *b)
{
    const Parallel *p = &b->s->parallel;
    return p->dispatcher_set ? p->dispatcher == DISPATCHER_DEEPEP : b->sw->deepep;
}

bool reshards(const Build *b)
{
    const Parallel *p = &b->s->parallel;
    bool by_habit = !p->reshard_set && p->pp > 1 && b->sw->pp_keeps_params;
    return p->reshard_after_forward && !by_habit;
}

/* Software.bf16_grads_f32 holds: one buffer has all. */
static bool grads_in_one(const Build *b)
{
    const Scenario *s = b->s;
    return b->sw->bf16_grads_f32 && grads_in_f32(&s->training, &s->parallel, b->sw) &&
           !s->training.grad_dtype_set;
}

bool adds_grads_last(const Build *b)
{
    const Parallel *p = &b->s->parallel;
    const Software *sw = b->sw;
    Formats f = build_formats(b);
    bool elsewhere = (p->pp > 1 && schedule_splits(p->schedule)) || hides_in_pairs(b);
    return sw->grads_added_last && f.made != f.grad && !elsewhere &&
           !strategy_shards_grads(p->strategy) && p->strategy != STRATEGY_DP;
}

bool sends_parts(const Build *b)
{
    const Parallel *p = &b->s->parallel;
    bool whole = b->s->model.kind == MODEL_TRANSFORMER && !p->sequence_parallel;
    return p->pp > 1 && p->tp > 1 && whole && b->sw->p2p_scatter_gather;
}

bool copies_buckets(const Build *b)
{
    return b->sw->bucket_copies && !grads_in_one(b);
}

bool zero_sums_whole(const Build *b)
{
    return b->s->parallel.strategy == STRATEGY_ZERO1 &&
           (b->sw->zero_all_reduces || grads_in_one(b));
}

uint32_t share_group(const Build *b)
{
    bool hsdp = b->s->parallel.strategy == STRATEGY_HSDP;
    return b->group[hsdp ? GROUP_DP_SHARD : GROUP_DP];
}

Formats build_formats(const Build *b)
{
    return formats_of(&b->s->training, &b->s->parallel, b->sw);
}

static bool build_with(Graph *g, const Scenario *s, const Software *sw,
                       const ActionCosts *costs, Err *err)
{
    Build b = { .s = s, .sw = sw, .costs = costs, .g = g };
    bool ok = check_supported(s, err) && build_world(&b, err) && build_blocks(&b, err) &&
              pass_pipeline(&b, err) && pass_data(&b, err) && lower(&b, err);
    arena_free(&b.arena);
    if (ok)
        graph_seal(g);
    return ok;
}

/* Of three micro-batches, in the order that is right where all actions take as long: of those that
 * are meant, all but the first and the last are like the middle one. */
static bool profile_actions(ActionCosts *costs, const Scenario *s, const Software *sw, Err *err)
{
    Scenario few = *s;
    Graph g = { 0 };
    if (few.training.micro_batches > 3)
        few.training.micro_batches = 3;
    for (uint32_t i = 0; i < s->parallel.pp; i++)
        costs[i] = (ActionCosts){ { 1, 1, 1 }, { 0 } };
    bool ok = build_with(&g, &few, sw, costs, err) &&
              sim_action_costs(costs, &g, &s->machine, sw, err);
    graph_free(&g);
    return ok;
}

bool build_graph(Graph *g, const Scenario *s, const Software *sw, Err *err)
{
    if (!schedule_is_searched(s->parallel.schedule) || s->parallel.pp == 1)
        return build_with(g, s, sw, NULL, err);
    ActionCosts *costs = mem_zero(s->parallel.pp, sizeof *costs);
    bool ok = profile_actions(costs, s, sw, err) && build_with(g, s, sw, costs, err);
    free(costs);
    return ok;
}

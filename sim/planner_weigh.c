/*
 * planner_weigh.c - what a candidate needs of a GPU's memory: a bound, a graph's sum, a replay.
 */
#include <math.h>
#include <stdlib.h>

#include "sim/build.h"
#include "sim/planner.h"

/*
 * Parameters over tp x pp are the mean of the stages, so the fullest holds at
 * least as many; what is shared out over dp x cp is divided by all of it, experts
 * by ep first.  Shards of gradients are kept as they were summed, or as fsdp casts them.
 */
uint64_t plan_memory_bound(const Plan *p, const PlanCandidate *c)
{
    const Training *t = &p->bases[c->base].training;
    Parallel parallel = { .strategy = c->strategy,
                          .dp = c->dp,
                          .cp = c->cp,
                          .pp = c->pp,
                          .shard_size = c->shard_size };
    Formats f = formats_of(t, &parallel, &p->sw);
    const Model *model = &p->bases[c->base].model;
    double cut = (double)c->tp * c->pp, elements = (double)model_params(model) / cut;
    double experts = (double)model_expert_params(model) / cut;
    double held = elements - experts + experts / c->ep;
    bool adam = t->optimizer == OPT_ADAM || t->optimizer == OPT_ADAMW;
    double params = (double)dtype_bytes(f.param),
           grads = (double)min_u64(dtype_bytes(f.grad), dtype_bytes(f.reduce));
    double shard = shards_params(&parallel) ? (double)dtype_bytes(f.shard) : grads;
    double state = (adam ? 8 : t->optimizer == OPT_MOMENTUM ? 4 : 0) + (f.masters ? 4 : 0);
    double n = (double)c->dp * c->cp;
    switch (c->strategy) {
    case STRATEGY_ZERO1:
        return (uint64_t)(held * params + elements * (grads + state) / n);
    case STRATEGY_ZERO2:
        return (uint64_t)(elements * (params + (grads + state) / n));
    case STRATEGY_FSDP:
        return (uint64_t)(elements * (params + shard + state) / n);
    case STRATEGY_HSDP:
        return (uint64_t)(elements * (params + shard + state) /
                          ((double)c->shard_size * c->cp));
    default:
        return (uint64_t)(held * (params + state));
    }
}

static uint32_t rank_of_role(const Graph *g, uint32_t role)
{
    for (uint32_t i = 0; i < g->role_extent; i++)
        if (g->role_of[i] == role)
            return i * g->role_stride;
    return 0;
}

/* What a rank of a role needs of its GPU. */
typedef struct Load {
    uint32_t role, rank;
    uint64_t need_bytes, gpu_bytes;
    double full; /* need / gpu */
} Load;

static Load load_of(const Graph *g, const Machine *m, const RoleMemory *memory, uint32_t role)
{
    Load l = { .role = role, .rank = rank_of_role(g, role) };
    const MemoryExtra extra = memory_extra(g, &g->roles[role], memory, m, l.rank);
    l.need_bytes = memory_reserved_bytes(memory, &extra);
    l.gpu_bytes = machine_place(m, l.rank).type->gpu->memory_bytes;
    l.full = (double)l.need_bytes / (double)l.gpu_bytes;
    return l;
}

void plan_weigh(PlanCandidate *c, const Plan *p, const Graph *g, const Machine *m,
                RoleMemory *memory, bool exactly)
{
    double fullest = -1;
    for (uint32_t i = 0; i < g->roles_n; i++) {
        if (exactly)
            memory_replay(&memory[i], g, &g->roles[i], m, &p->sw);
        Load l = load_of(g, m, &memory[i], i);
        if (l.full <= fullest)
            continue;
        fullest = l.full;
        c->need_bytes = l.need_bytes;
        c->gpu_bytes = l.gpu_bytes;
    }
    c->weighed = exactly;
}

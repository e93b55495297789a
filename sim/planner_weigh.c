/*
 * planner_weigh.c - what a candidate needs of a GPU's memory: a bound, a graph's sum, a replay.
 */
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
    double params = (double)dtype_bytes(f.param),
           grads = (double)min_u64(dtype_bytes(f.grad), dtype_bytes(f.reduce));
    double shard = shards_params(&parallel) ? (double)dtype_bytes(f.shard) : grads;
    double state = optimizer_moments(t->optimizer) * (double)dtype_bytes(f.moments) +
                   (f.masters ? (double)dtype_bytes(f.master) : 0);
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

/* Notes the need of a rank if it has least left so far. */
static void note_need(PlanCandidate *c, const Graph *g, const Machine *m, RoleMemory *memory,
                      uint32_t role, uint32_t rank)
{
    const MemoryExtra extra = memory_extra(g, &g->roles[role], memory, m, rank);
    uint64_t need = memory_reserved_bytes(memory, &extra);
    uint64_t there = machine_place(m, rank).type->gpu->memory_bytes;
    if (c->gpu_bytes > 0 &&
        (double)need / (double)there <= (double)c->need_bytes / (double)c->gpu_bytes)
        return;
    c->need_bytes = need;
    c->gpu_bytes = there;
}

/* Ranks of a role that are looked at for the fullest: long before, groups lie on nodes alike. */
enum { RANKS_MAX = 1 << 14 };

void plan_weigh(PlanCandidate *c, const Plan *p, const Graph *g, const Machine *m,
                RoleMemory *memory, bool exactly)
{
    c->need_bytes = c->gpu_bytes = 0;
    for (uint32_t i = 0; i < g->roles_n; i++) {
        if (exactly)
            memory_replay(&memory[i], g, &g->roles[i], m, &p->sw);
        for (uint32_t t = 0; t < m->types_n; t++) {
            uint32_t rank = memory_fullest_rank(g, i, m, &m->types[t], exactly ? RANKS_MAX : 1);
            if (rank != NONE_U32)
                note_need(c, g, m, &memory[i], i, rank);
        }
    }
    c->known = exactly ? PLAN_RESERVED : PLAN_ALLOCATED;
}

/*
 * planner_weigh.c - what a candidate's graph needs of a GPU's memory: its sum, or a replay.
 *
 * To replay a role takes milliseconds, and a pipeline has a role for each of its stages.  Stages
 * between the first and the last hold the same layers and differ in how many micro-batches are
 * under way, so of those it is the one with most that is replayed:
 *
 *     stage           0     1     2     3  ...  30    31
 *     residents       a     b     b     b        b     c
 *     allocated GiB  24    22    21.8  21.6     16.5  17.5
 *     replayed        x     x                          x
 *
 * The others are taken to hold as much more than they allocate as that one does, and an eighth of
 * it besides, for the order of their steps leaves other holes; who may be the fullest of all by
 * that is replayed, too.  Where chunks lie in a V each stage has an order of its own, and all are
 * replayed.
 */
#include <stdlib.h>

#include "sim/build.h"
#include "sim/planner.h"

/* Ranks of a role that are looked at for the fullest: long before, groups lie on nodes alike. */
enum { RANKS_MAX = 1 << 14 };

typedef struct Weighing {
    const Graph *g;
    const Machine *m;
    RoleMemory *memory; /* by role */
    uint32_t ranks_n;   /* that are looked at for the fullest */
} Weighing;

/* Of the rank of a role with least left on nodes of a type; there_bytes 0: it has none there. */
typedef struct Need {
    uint64_t bytes, there_bytes;
} Need;

static Need need_on(const Weighing *w, uint32_t role, const NodeType *t)
{
    uint32_t rank = memory_fullest_rank(w->g, role, w->m, t, w->ranks_n);
    if (rank == NONE_U32)
        return (Need){ 0 };
    RoleMemory *m = &w->memory[role];
    const MemoryExtra extra = memory_extra(w->g, &w->g->roles[role], m, w->m, rank);
    return (Need){ memory_reserved_bytes(m, &extra), t->gpu->memory_bytes };
}

static bool has_less_left(const Need *a, const Need *b)
{
    return b->there_bytes == 0 || (double)a->bytes / (double)a->there_bytes >
                                      (double)b->bytes / (double)b->there_bytes;
}

static void note_need(Need *most, Need need)
{
    if (need.there_bytes > 0 && has_less_left(&need, most))
        *most = need;
}

/* Of all types. */
static Need need_of(const Weighing *w, uint32_t role)
{
    Need most = { 0 };
    for (uint32_t t = 0; t < w->m->types_n; t++)
        note_need(&most, need_on(w, role, &w->m->types[t]));
    return most;
}

/* Do both hold the same tensors all through the step? */
static bool same_residents(const Role *a, const Role *b)
{
    uint32_t i = 0, k = 0;
    for (;; i++, k++) {
        while (i < a->frames_n && !a->frames[i].resident)
            i++;
        while (k < b->frames_n && !b->frames[k].resident)
            k++;
        if (i == a->frames_n || k == b->frames_n)
            return i == a->frames_n && k == b->frames_n;
        if (a->frames[i].layout != b->frames[k].layout)
            return false;
    }
}

/* Of the roles before `at`, which allocate as much, one that was replayed and is like it otherwise;
 * NULL: none is. */
static const RoleMemory *fuller_one(const Weighing *w, const uint32_t *order, uint32_t at)
{
    const Role *roles = w->g->roles;
    for (uint32_t i = 0; i < at; i++)
        if (w->memory[order[i]].pool_bytes > 0 &&
            same_residents(&roles[order[i]], &roles[order[at]]))
            return &w->memory[order[i]];
    return NULL;
}

/* By so much of what it allocates a stage may hold more than one that is like it: of 2,644
 * candidates (seven models and stacks, pp 4 to 64) the worst was 0.114. */
enum { HOLES_PART = 8 };

/* As if it held as much more as the fuller one; false: it may be the fullest of all. */
static bool is_outweighed(const Weighing *w, uint32_t role, const RoleMemory *fuller,
                          const Need *most)
{
    RoleMemory *m = &w->memory[role], own = *m;
    m->pool_bytes = m->peak_bytes + fuller->pool_bytes - fuller->peak_bytes;
    m->pool_bytes += m->peak_bytes / HOLES_PART;
    Need need = need_of(w, role);
    *m = own;
    return !has_less_left(&need, most);
}

/* The roles, who allocates most first. */
static uint32_t *by_peak(const Weighing *w)
{
    uint32_t *order = mem_zero((size_t)w->g->roles_n + 1, sizeof *order);
    for (uint32_t i = 0; i < w->g->roles_n; i++) {
        uint32_t at = i;
        for (; at > 0 && w->memory[order[at - 1]].peak_bytes < w->memory[i].peak_bytes; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    return order;
}

void plan_weigh(PlanCandidate *c, const Plan *p, const Graph *g, const Machine *m,
                RoleMemory *memory, PlanWeighing how)
{
    Weighing w = { g, m, memory, how == PLAN_WEIGH_ALLOCATED ? 1 : RANKS_MAX };
    bool spares = how == PLAN_WEIGH_FULLEST && !schedule_is_vee(c->schedule);
    Need most = { 0 };
    uint32_t *order = by_peak(&w);
    for (uint32_t i = 0; i < g->roles_n; i++) {
        uint32_t role = order[i];
        const RoleMemory *fuller = spares ? fuller_one(&w, order, i) : NULL;
        if (fuller && is_outweighed(&w, role, fuller, &most))
            continue;
        if (how != PLAN_WEIGH_ALLOCATED)
            memory_replay(&memory[role], g, &g->roles[role], m, &p->sw);
        note_need(&most, need_of(&w, role));
    }
    free(order);
    c->need_bytes = most.bytes;
    c->gpu_bytes = plan_there_bytes(p, most.there_bytes);
    c->known = how == PLAN_WEIGH_ALLOCATED ? PLAN_ALLOCATED : PLAN_RESERVED;
}

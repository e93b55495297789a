/*
 * engine_run.c - kernels that follow one another as one event.
 *
 *     compute   |ln|qkv|rope|attention|   |ln|up|act|down|
 *               \______ a run _______/     \___ a run ___/
 *     tp                              |ar|                |ar|
 *
 * Where an instance cannot be one event (engine_macro.c) its kernels still run
 * straight through from one that waits for another lane to one that another lane
 * waits for.  A run is a macro of that part of the compute lane, without transfers of
 * its own; others slow it or not while it lasts.
 */
#include "sim/engine_collapse.h"

/* ---- where runs may begin and end ---- */

/* What segments say; what is so in one instance of a segment is taken to be so in all. */
void runs_index(Sim *sim)
{
    const Graph *g = sim->g;
    sim->waits = PUSH_ARRAY(&sim->arena, bool, g->ops_n + 1);
    sim->awaited = PUSH_ARRAY(&sim->arena, bool, g->ops_n + 1);
    sim->waits_before = PUSH_ARRAY(&sim->arena, bool, g->ops_n + 1);
    sim->awaited_later = PUSH_ARRAY(&sim->arena, bool, g->ops_n + 1);
    for (uint32_t i = 0; i < g->segments_n; i++) {
        const Segment *s = &g->segments[i];
        for (uint32_t k = s->op_first; k < s->op_first + s->op_n; k++)
            for (uint32_t d = 0; d < g->ops[k].dep_n; d++) {
                uint32_t on = s->op_first + g->deps[g->ops[k].dep_first + d];
                bool crosses = g->ops[on].lane != g->ops[k].lane;
                sim->waits[k] |= crosses;
                sim->awaited[on] |= crosses;
            }
    }
}

void runs_note(Sim *sim, uint32_t dst, uint32_t src)
{
    sim->waits[dst] = sim->waits_before[dst] = true;
    sim->awaited[src] = sim->awaited_later[src] = true;
}

/* Ops of the run that begins with the at-th op of the segment's compute lane. */
static uint32_t run_length(const Sim *sim, const uint32_t *ops, uint32_t at, uint32_t end)
{
    uint32_t n = 0;
    while (at + n < end) {
        uint32_t op = ops[at + n];
        if (op_is_comm(sim->g->ops[op].kind) || (n > 0 && sim->waits[op]))
            break;
        n++;
        if (sim->awaited[op])
            break;
    }
    return n;
}

/* ---- timing one ---- */

static Macro *run_make(Sim *sim, const CostTable *t, const uint32_t *ops, uint32_t n)
{
    Macro *m = PUSH(&sim->arena, Macro);
    *m = (Macro){ .lanes = 1u << LANE_COMPUTE, .run_n = n, .lag_ns = INT64_MIN };
    m->alone_at = PUSH_ARRAY(&sim->arena, int64_t, n + 1);
    m->slow_at = PUSH_ARRAY(&sim->arena, int64_t, n + 1);
    m->intervals_n = n;
    for (uint32_t i = 0; i < n; i++) {
        const OpCost *c = &t->op[ops[i]];
        m->lag_ns = max_i64(m->lag_ns, t->launch_after[ops[i]] - m->alone_at[i]);
        m->alone_at[i + 1] = min_i64(m->alone_at[i] + c->alone_ns, 2 * NS_MAX);
        m->slow_at[i + 1] = min_i64(m->slow_at[i] + c->slowed_ns, 2 * NS_MAX);
    }
    m->compute_at = m->alone_at;
    bool whole = m->alone_at[n] > 0 && m->slow_at[n] <= NS_MAX;
    m->state = n > 1 && whole ? MACRO_YES : MACRO_NO;
    return m;
}

bool run_try(Sim *sim, Runner *r, uint32_t instance)
{
    LaneState *l = &r->lane[LANE_COMPUTE];
    uint32_t segment = r->program.spot[instance].segment;
    uint32_t first = sim->lane_first[segment * LANE_N + LANE_COMPUTE];
    uint32_t op = sim->lane_ops[first + l->at];
    Macro **known = &r->cost->run[op];
    if (!sim_collapses(sim))
        return false;
    if (!*known) {
        uint32_t end = sim->g->segments[segment].lane_n[LANE_COMPUTE];
        uint32_t n = run_length(sim, sim->lane_ops + first, l->at, end);
        *known = run_make(sim, r->cost, sim->lane_ops + first + l->at, n);
    }
    if ((*known)->state == MACRO_NO || r->host_start[instance] + (*known)->lag_ns > sim->now_ns)
        return false;
    macro_begin(sim, r, *known, op);
    return true;
}

void run_finish(Sim *sim, Runner *r)
{
    LaneState *l = &r->lane[LANE_COMPUTE];
    uint32_t n = r->running_macro->run_n;
    account(sim, r);
    r->running_macro = NULL;
    r->compute_n--;
    path_computed(sim, r, LANE_COMPUTE);
    l->busy = false;
    l->wait = WAIT_NONE;
    l->at += n;
    l->done += n;
    sim->ops_done += n;
    lane_wake_after(sim, r, LANE_COMPUTE);
}

/*
 * engine_actions.c - what the actions of pipeline stages take, each alone: a profile of a step.
 *
 *     stage 1   |gather|block|block|            forward    cost[0]
 *                                  ~~send~~>    its way    way[0]
 *
 * Schedules that are searched for (sim/strategy/schedule_zb.c) are found with these, as their
 * authors find theirs with what they have profiled.  An action is all that a micro-batch has on
 * the compute lane in a direction: a segment takes what its macro takes (engine_macro.c), or its
 * ops one after another where it is none.  Of ranks of one stage the slowest counts.
 */
#include "sim/engine_collapse.h"

int64_t op_alone_ns(Sim *sim, const Runner *r, uint32_t op)
{
    const Op *o = &sim->g->ops[op];
    if (!op_is_comm(o->kind))
        return r->cost->op[op].alone_ns;
    uint32_t group = op_is_collective(o->kind) ? r->rc->group[o->u.comm.group] : NONE_U32;
    return group == NONE_U32 ? 0 : comm_cost_of(sim, op, group)->solo_ns;
}

static int64_t segment_alone_ns(Sim *sim, Runner *r, uint32_t segment)
{
    const Segment *s = &sim->g->segments[segment];
    const Macro *m = macro_of(sim, r, segment);
    if (m->state == MACRO_YES)
        return m->alone_at[m->intervals_n];
    int64_t ns = 0;
    for (uint32_t i = s->op_first; i < s->op_first + s->op_n; i++)
        ns += op_alone_ns(sim, r, i);
    return ns;
}

/* Sends and gathers are of the direction that they serve. */
static ActionKind action_of(const Sim *sim, const Segment *s)
{
    switch (s->kind) {
    case SEGMENT_FORWARD:
        return ACTION_FORWARD;
    case SEGMENT_BACKWARD:
    case SEGMENT_SUM:
        return ACTION_BACKWARD;
    case SEGMENT_WEIGHT:
        return ACTION_WEIGHT;
    default:
        return sim->g->ops[s->op_first].phase == PHASE_FORWARD ? ACTION_FORWARD
                                                               : ACTION_BACKWARD;
    }
}

static int64_t send_ns(Sim *sim, const Runner *r, const Segment *s)
{
    int64_t longest = 0;
    for (uint32_t i = s->op_first; i < s->op_first + s->op_n; i++) {
        const Op *o = &sim->g->ops[i];
        Use uses[RES_RANK_N + 2];
        uint32_t uses_n,
            peer = group_member(&sim->g->groups[o->u.comm.group], r->rc->rank, o->u.comm.peer);
        longest = max_i64(longest, send_cost(sim, r, i, peer, uses, &uses_n).solo_ns);
    }
    return longest;
}

/* The middle micro-batch's: the first and the last may have kernels of their own. */
static ActionCosts costs_of(Sim *sim, Runner *r)
{
    ActionCosts sum = { 0 };
    uint32_t middle = role_micro_batches(r->role) / 2;
    for (uint32_t i = 0; i < r->role->instances_n; i++) {
        const Instance *in = &r->role->instances[i];
        const Segment *s = &sim->g->segments[in->segment];
        if (in->micro_batch != middle || s->op_n == 0)
            continue;
        ActionKind kind = action_of(sim, s);
        if (s->kind == SEGMENT_SEND)
            sum.way[kind] = max_u64(sum.way[kind], (uint64_t)send_ns(sim, r, s));
        else if (s->lanes >> LANE_COMPUTE & 1u)
            sum.cost[kind] += (uint64_t)segment_alone_ns(sim, r, in->segment);
    }
    return sum;
}

static void keep_longest(ActionCosts *longest, const ActionCosts *c)
{
    for (int k = 0; k < 3; k++)
        longest->cost[k] = max_u64(longest->cost[k], c->cost[k]);
    for (int k = 0; k < 2; k++)
        longest->way[k] = max_u64(longest->way[k], c->way[k]);
}

bool sim_action_costs(ActionCosts *costs, const Graph *g, const Machine *m, const Software *sw,
                      Err *err)
{
    SimResult result = { 0 };
    SimOptions options = { 0 };
    Machine calm = *m; /* what is drawn for each op alone says nothing of the next step */
    calm.jitter = 0;
    Sim sim = {
        .g = g, .m = &calm, .sw = sw, .options = &options, .result = &result, .err = err
    };
    bool ok = sim_setup_costs(&sim);
    for (uint32_t i = 0; i < g->roles_n; i++)
        costs[i] = (ActionCosts){ 0 };
    for (uint32_t i = 0; ok && i < sim.runners_n; i++) {
        ActionCosts own = costs_of(&sim, &sim.runners[i]);
        keep_longest(&costs[sim.runners[i].role - g->roles], &own);
    }
    sim_teardown(&sim);
    sim_result_free(&result);
    return ok;
}

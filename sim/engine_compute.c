/*
 * engine_compute.c - the compute lane: kernels that slow down beside transfers.
 *
 * `left` is the work still to do in nanoseconds of an undisturbed GPU.  While
 * something is transferring, alone_ns of work take slowed_ns.  account() brings
 * `left` up to now; every change of speed sets the end event anew, of a macro that is looked at
 * in the same instant then.
 */
#include "sim/engine_collapse.h"

static const OpCost *running_cost(const Runner *r)
{
    return &r->cost->op[r->lane[LANE_COMPUTE].op];
}

static int64_t macro_left(Runner *r)
{
    const Macro *m = r->running_macro;
    double stop = r->stop > r->position ? r->stop : r->position;
    if (!r->slowed)
        return ns_up(stop - r->position);
    MacroPlace here = macro_here(r), there = { m->intervals_n - 1, 1 };
    if (stop < (double)m->alone_at[m->intervals_n])
        there = macro_place(m, m->alone_at, stop, here.low);
    return ns_up(macro_sum(&there, m->slow_at) - macro_sum(&here, m->slow_at));
}

static int64_t op_left(const Runner *r)
{
    const OpCost *c = running_cost(r);
    double stretch =
        r->slowed && c->alone_ns > 0 ? (double)c->slowed_ns / (double)c->alone_ns : 1;
    return ns_up(r->left * stretch);
}

void compute_resume(Sim *sim, Runner *r)
{
    int64_t ns = r->running_macro ? macro_left(r) : op_left(r);
    evq_set(&sim->events, r->id, sim->now_ns + ns, EVENT_COMPUTE, r->id);
}

/* At a guard, or where links have changed. */
static void look_again(Sim *sim, Runner *r)
{
    bool fits = beside_refit(sim, r);
    macro_look_ahead(sim, r, fits);
    if (r->guard && r->stop - r->position < 1e-3)
        macro_break(sim, r);
    else
        compute_resume(sim, r);
}

void compute_look(Sim *sim, Runner *r)
{
    r->in_doubt = false;
    if (r->running_macro && r->running_macro->has_comm)
        look_again(sim, r);
}

void compute_start(Sim *sim, Runner *r, uint32_t op)
{
    account(sim, r);
    LaneState *l = &r->lane[LANE_COMPUTE];
    int64_t ns = r->cost->op[op].alone_ns;
    r->left = (double)cost_jitter(sim, r, l->instance, op, ns);
    r->compute_n += sim->g->ops[op].kind != OP_RELEASE;
    if (ns == 0)
        lane_complete(sim, r, LANE_COMPUTE);
    else
        compute_resume(sim, r);
}

void compute_event(Sim *sim, Runner *r)
{
    if (r->running_macro && r->running_macro->run_n > 0)
        run_finish(sim, r);
    else if (r->running_macro && r->guard)
        look_again(sim, r);
    else if (r->running_macro)
        macro_finish(sim, r);
    else
        lane_complete(sim, r, LANE_COMPUTE);
}

void compute_set_speed(Sim *sim, Runner *r)
{
    bool slowed = r->transfer_n > 0;
    if (slowed == r->slowed)
        return;
    ASSERT(r->accounted_ns == sim->now_ns);
    r->slowed = slowed;
    const LaneState *l = &r->lane[LANE_COMPUTE];
    const Macro *m = r->running_macro;
    bool computes = m || (l->busy && !op_is_comm(sim->g->ops[l->op].kind));
    bool is_looked_at = r->in_doubt && m && m->has_comm; /* later in this instant */
    sim->slowed_any |= computes;
    if (computes && !is_looked_at)
        compute_resume(sim, r);
}

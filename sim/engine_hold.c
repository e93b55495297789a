/*
 * engine_hold.c - a rank that is held up: nothing of it starts for a while.
 *
 *     stage 0   |B..F..|B..F..|B.|        held        |.F..|B..F..|   at its own pace
 *     stage 5   |B.F.|B.F.|B.F.|B.F.|B.F.|           |B.F..|B.F..|   has no more to do, and waits
 *                              ^ leap
 *
 * Where every rank goes at a pace of its own, strides that are left out pass in less time on some
 * than on others (engine_pace.c).  They are leapt over in the time of the fastest; the others are
 * then held up for what they take longer, all at once where it would be a little in each stride.
 * Who is faster goes on meanwhile for as long as what it has got from its neighbours lasts,
 * as it would have done, and is where it would be when they go on.
 *
 * Ops that are under way end as they would; then the host seems to have launched nothing.  What the
 * rank does most, kernels or transfers, ends first: it is held up from then on.  Its sums already
 * have the strides that the time is of, so they stand still.
 */
#include "sim/engine_state.h"

/* A flow that waits for its latency, and perhaps others, to be over moves alone then. */
static int64_t flow_end_ns(Sim *sim, uint32_t flow)
{
    const Flow *f = &sim->flows[flow];
    int64_t at_ns = evq_when(&sim->events, sim->runners_n + flow, sim->now_ns);
    return f->moving || f->direct ? at_ns : at_ns + ns_up(f->left / f->solo_rate);
}

/* The last of the rank's collectives under way ends so late; now if there are none. */
static int64_t comm_end_ns(Sim *sim, const Runner *r)
{
    int64_t end_ns = sim->now_ns;
    for (uint32_t i = 0; i < sim->flows_n; i++) {
        const Flow *f = &sim->flows[i];
        if (!f->used || f->group == NONE_U32)
            continue;
        const GroupClass *gc = &sim->classes.groups[f->group];
        for (uint32_t k = 0; k < gc->members_n; k++)
            if (gc->member[k] == r->id)
                end_ns = max_i64(end_ns, flow_end_ns(sim, i));
    }
    return end_ns;
}

static int64_t rest_ns(Sim *sim, const Runner *r, bool mostly_comm)
{
    const LaneState *l = &r->lane[LANE_COMPUTE];
    int64_t comm_ns = comm_end_ns(sim, r), compute_ns = sim->now_ns;
    if (l->busy && !op_is_comm(sim->g->ops[l->op].kind))
        compute_ns = evq_when(&sim->events, r->id, compute_ns);
    bool both = comm_ns > sim->now_ns && compute_ns > sim->now_ns;
    int64_t end_ns = both ? (mostly_comm ? comm_ns : compute_ns) : max_i64(comm_ns, compute_ns);
    return end_ns - sim->now_ns;
}

void hold_begin(Sim *sim, Runner *r, int64_t ns, bool mostly_comm)
{
    int64_t at_ns = sim->now_ns + rest_ns(sim, r, mostly_comm);
    ASSERT(r->host_next == r->role->instances_n);
    r->host_next = 0;
    evq_push(&sim->events, at_ns, EVENT_HELD, r->id, false);
    evq_push(&sim->events, at_ns + ns, EVENT_HELD, r->id, true);
}

/* Its path goes on from now as if it had got longer by what it consists of. */
static void resume_path(Sim *sim, Runner *r)
{
    Path p = r->held_path;
    path_lengthen(&p, sim->now_ns - (p.compute_ns + p.comm_ns + p.bubble_ns + p.launch_ns));
    host_anchor(sim, r->host, 0, p);
}

void hold_event(Sim *sim, Runner *r, bool ends)
{
    account(sim, r);
    r->held = !ends;
    if (!ends) {
        r->held_path = path_longest(r);
        return;
    }
    if (r->path)
        resume_path(sim, r);
    r->host_next = r->role->instances_n;
    host_wake_gated(sim, r->host);
}

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
                end_ns = max_i64(end_ns, evq_when(&sim->events, sim->runners_n + i, end_ns));
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

/* What happens to it meanwhile is not counted. */
static void restore(RankStat *s, const RankStat *held)
{
    s->compute_ns = held->compute_ns;
    s->comm_ns = held->comm_ns;
    s->overlapped_ns = held->overlapped_ns;
    s->exposed_ns = held->exposed_ns;
    s->bubble_ns = held->bubble_ns;
    s->idle_ns = held->idle_ns;
    for (uint32_t i = 0; i < held->collectives_n; i++)
        s->collectives[i].exposed_ns = held->collectives[i].exposed_ns;
}

/* The rank's path goes on from now as if it had got longer by what it consists of. */
static void lengthen_path(Sim *sim, Runner *r)
{
    if (!r->path)
        return;
    Path p = r->held_path;
    int64_t so_far = p.compute_ns + p.comm_ns + p.bubble_ns + p.launch_ns;
    double by = so_far > 0 ? (double)sim->now_ns / (double)so_far : 1;
    p.comm_ns = (int64_t)((double)p.comm_ns * by);
    p.bubble_ns = (int64_t)((double)p.bubble_ns * by);
    p.launch_ns = (int64_t)((double)p.launch_ns * by);
    p.compute_ns = sim->now_ns - p.comm_ns - p.bubble_ns - p.launch_ns;
    host_anchor(sim, r->host, 0, p);
}

void hold_event(Sim *sim, Runner *r, bool ends)
{
    account(sim, r);
    if (!ends) {
        r->held = PUSH(&sim->arena, RankStat);
        *r->held = *r->stat;
        r->held_path = path_longest(r);
        return;
    }
    restore(r->stat, r->held);
    lengthen_path(sim, r);
    r->host_next = r->role->instances_n;
    for (uint32_t lane = 0; lane < LANE_HOST; lane++)
        if (r->lane[lane].wait == WAIT_GATE)
            sim_wake(sim, r, lane);
}

/*
 * engine_stuck.c - a graph that cannot finish: who waits for whom.
 *
 * Starts at a lane that is not at its end and follows what it waits for: another
 * lane of the rank, the host (at the rank it waits for, if it drives several), or the
 * participant that has not arrived.  A lane met twice
 * closes the cycle, which is the message.
 */
#include <stdio.h>
#include <string.h>

#include "sim/engine_state.h"

typedef struct Stuck {
    uint32_t runner, lane;
} Stuck;

static bool is_stuck(const Runner *r, uint32_t lane)
{
    return r->lane[lane].wait != WAIT_END && r->lane[lane].instance < r->role->instances_n;
}

/* Of sends and receives posted together the first that nobody has answered. */
static uint32_t unanswered(const Runner *r, uint32_t lane)
{
    uint32_t first = NONE_U32;
    for (uint32_t i = 0; i < r->channels_n; i++)
        for (uint32_t k = 0; k < r->channels[i].posts_n; k++) {
            Post post = r->channels[i].posts[k];
            if (post.lane == lane && post.op < first)
                first = post.op;
        }
    return first == NONE_U32 ? r->lane[lane].op : first;
}

static uint32_t waiting_op(const Sim *sim, const Runner *r, uint32_t lane)
{
    const LaneState *l = &r->lane[lane];
    if (l->busy)
        return unanswered(r, lane);
    uint32_t instance = lane == LANE_HOST ? r->host_next : l->instance;
    return op_at(sim, r, instance, lane, l->at);
}

/* Does the lane of p hold, from its head on, the other end of r's op? */
static bool will_answer(const Sim *sim, const Runner *p, uint32_t lane, const Runner *r,
                        const Op *o)
{
    OpKind other = o->kind == OP_SEND ? OP_RECV : OP_SEND;
    for (uint32_t i = p->lane[lane].instance; i < p->role->instances_n; i++) {
        uint32_t first = i == p->lane[lane].instance ? p->lane[lane].at : 0;
        for (uint32_t k = first; k < segment_of(sim, p, i)->lane_n[lane]; k++) {
            const Op *a = &sim->g->ops[op_at(sim, p, i, lane, k)];
            if (a->kind != other || a->u.comm.tag != o->u.comm.tag)
                continue;
            const GroupSpec *spec = &sim->g->groups[a->u.comm.group];
            uint32_t rank = group_member(spec, p->rc->rank, a->u.comm.peer);
            if (classes_of_rank(&sim->classes, rank) == r->id)
                return true;
        }
    }
    return false;
}

/* The lane that holds what r's send or receive waits for. */
static Stuck missing_answer(const Sim *sim, const Runner *r, const Op *o)
{
    const GroupSpec *spec = &sim->g->groups[o->u.comm.group];
    uint32_t rank = group_member(spec, r->rc->rank, o->u.comm.peer);
    const Runner *p = &sim->runners[classes_of_rank(&sim->classes, rank)];
    for (uint32_t lane = 0; lane < LANE_HOST; lane++)
        if (will_answer(sim, p, lane, r, o))
            return (Stuck){ p->id, lane };
    return (Stuck){ p->id, NONE_U32 };
}

/* The lane of a member that has not come to the collective. */
static Stuck missing_member(const Sim *sim, const Runner *r, const Op *o, uint32_t lane)
{
    const GroupClass *gc = &sim->classes.groups[r->rc->group[o->u.comm.group]];
    for (uint32_t i = 0; i < gc->members_n; i++) {
        const Runner *p = &sim->runners[gc->member[i]];
        const Op *at = &sim->g->ops[p->lane[lane].op];
        bool is_here = p->lane[lane].wait == WAIT_PEER && op_is_collective(at->kind) &&
                       at->u.comm.group == o->u.comm.group;
        if (!is_here)
            return (Stuck){ p->id, is_stuck(p, lane) ? lane : NONE_U32 };
    }
    return (Stuck){ NONE_U32, NONE_U32 };
}

static Stuck next_stuck(const Sim *sim, Stuck at)
{
    const Runner *r = &sim->runners[at.runner];
    const LaneState *l = &r->lane[at.lane];
    if (l->wait == WAIT_LANE)
        return (Stuck){ at.runner, l->wait_lane };
    if (l->wait == WAIT_GATE)
        return (Stuck){ r->host->member[r->host->turn], LANE_HOST };
    if (l->wait == WAIT_PEER) {
        const Op *o = &sim->g->ops[unanswered(r, at.lane)];
        return op_is_p2p(o->kind) ? missing_answer(sim, r, o)
                                  : missing_member(sim, r, o, at.lane);
    }
    return (Stuck){ NONE_U32, NONE_U32 };
}

static size_t describe(const Sim *sim, Stuck at, char *text, size_t cap)
{
    const Runner *r = &sim->runners[at.runner];
    if (at.lane == NONE_U32)
        return (size_t)snprintf(text, cap, "rank %u has nothing that answers", r->rc->rank);
    uint32_t op = waiting_op(sim, r, at.lane);
    uint32_t instance = at.lane == LANE_HOST ? r->host_next : r->lane[at.lane].instance;
    const Instance *in = &r->role->instances[instance];
    uint32_t id = in->first_op + (op - sim->g->segments[in->segment].op_first);
    const char *name = intern_text(&sim->g->names, sim->g->ops[op].name);
    return (size_t)snprintf(text, cap, "rank %u op %u '%s' (%s)", r->rc->rank, id, name,
                            lane_names[at.lane]);
}

enum { CHAIN_MAX = 64 };

static bool report_chain(Sim *sim, Stuck first)
{
    Stuck chain[CHAIN_MAX];
    uint32_t n = 0, from = NONE_U32;
    for (Stuck at = first; n < CHAIN_MAX && from == NONE_U32; at = next_stuck(sim, at)) {
        for (uint32_t i = 0; i < n; i++)
            if (chain[i].runner == at.runner && chain[i].lane == at.lane)
                from = i;
        if (from == NONE_U32 && at.runner != NONE_U32)
            chain[n++] = at;
        if (at.runner == NONE_U32 || at.lane == NONE_U32)
            break;
    }
    char text[900];
    size_t used = 0;
    for (uint32_t i = from == NONE_U32 ? 0 : from; i < n && used + 160 < sizeof text; i++) {
        used +=
            (size_t)snprintf(text + used, sizeof text - used, "%s", used ? " waits for " : "");
        used += describe(sim, chain[i], text + used, sizeof text - used);
    }
    if (from != NONE_U32 && used + 40 < sizeof text)
        snprintf(text + used, sizeof text - used, ", which closes the circle");
    return err_set(sim->err, "the step cannot finish: %s", text);
}

bool report_stuck(Sim *sim)
{
    for (uint32_t i = 0; i < sim->runners_n; i++)
        for (uint32_t lane = 0; lane < LANE_HOST; lane++)
            if (is_stuck(&sim->runners[i], lane))
                return report_chain(sim, (Stuck){ i, lane });
    return true;
}

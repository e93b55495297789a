/*
 * engine_flow.c - collectives and sends: meeting, latency, shared links.
 *
 *     arrive ... last arrives | latency | traffic at the fair rate | done
 *     \____ waiting ________/  \____________ transferring ________/
 *
 * A flow takes part in sharing (engine_share.c) only while it moves data.  One alone on its
 * links is known to its end when it begins ("direct"): that it moves need not be an event, until
 * another moves on one of them.  (Events of one instant then come in another order than where
 * links are recorded: of 25,000 drawn runs no step was another, one critical path was.)
 */
#include <math.h>
#include <string.h>

#include "sim/engine_collapse.h"

/* ---- costs ---- */

/* A step of a ring is one hop of all that the whole would take. */
static CommCost collective_or_step(const Sim *sim, const Op *o, uint32_t group)
{
    double of = fmax(o->u.comm.of, 1);
    CommCost c = collective_cost(sim->m, &sim->classes.groups[group], sim->classes.resources,
                                 o->kind, o->u.comm.bytes * (uint64_t)of, sim->sw->comm_scale);
    c.latency_ns = ns_up((double)c.latency_ns / of);
    c.traffic_bytes /= of;
    c.payload_bytes /= of;
    c.solo_ns = ns_up((double)c.solo_ns / of);
    return c;
}

const CommCost *comm_cost_of(Sim *sim, uint32_t op, uint32_t group)
{
    const GivenCosts *given = sim->options->given;
    if (given && given->comm_ns[op] >= 0) {
        CommCost *fixed = PUSH_ARRAY(&sim->arena, CommCost, 1);
        *fixed = (CommCost){ .algorithm = ALGORITHM_RING,
                             .protocol = PROTOCOL_SIMPLE,
                             .latency_ns = given->comm_ns[op],
                             .solo_rate = 1,
                             .solo_ns = given->comm_ns[op] };
        return fixed;
    }
    CommCost **row = &sim->comm_cache[group];
    if (!*row)
        *row = PUSH_ARRAY(&sim->arena, CommCost, sim->comm_keys_n);
    CommCost *cost = &(*row)[sim->comm_key[op]];
    if (cost->solo_rate <= 0) {
        const Op *o = &sim->g->ops[op];
        *cost = collective_or_step(sim, o, group);
    }
    return cost;
}

/* ---- rates ---- */

/* Sources of events are the runners, then the flows. */
static void set_event(Sim *sim, uint32_t flow, int64_t at_ns, uint32_t kind)
{
    evq_set(&sim->events, sim->runners_n + flow, at_ns, kind, flow);
}

void flow_set_rate(Sim *sim, uint32_t flow, double rate)
{
    Flow *f = &sim->flows[flow];
    if (f->rate > 0) {
        f->left -= f->rate * (double)(sim->now_ns - f->since_ns);
        if (f->left < 0)
            f->left = 0;
    }
    f->since_ns = sim->now_ns;
    if (rate == f->rate)
        return;
    if (sim->links)
        links_note(sim, f, f->left);
    f->rate = rate;
    set_event(sim, flow, sim->now_ns + ns_up(f->left / rate), EVENT_FLOW_END);
    beside_changed(sim, f->demand);
}

void flow_set_back(Sim *sim, uint32_t flow, double bytes)
{
    Flow *f = &sim->flows[flow];
    f->left += bytes;
    set_event(sim, flow, f->since_ns + ns_up(f->left / f->rate), EVENT_FLOW_END);
}

void flow_ends_in(Sim *sim, uint32_t flow, double ns)
{
    set_event(sim, flow, sim->now_ns + ns_up(ns), EVENT_FLOW_END);
}

/* ---- alone on its links ---- */

/* No other flow has begun on them. */
static bool is_alone(const Sim *sim, Demand d)
{
    for (uint32_t u = 0; u < d.uses_n; u++) {
        uint32_t link = d.uses[u].resource;
        if (sim->held_n[link] - sim->macros_n[link] != 1)
            return false;
    }
    return d.uses_n > 0;
}

static void mark_direct(Sim *sim, uint32_t flow, bool direct)
{
    Demand d = sim->flows[flow].demand;
    sim->flows[flow].direct = direct;
    for (uint32_t u = 0; u < d.uses_n; u++)
        sim->direct[d.uses[u].resource] = direct ? flow + 1 : 0;
}

/* It moves from since_ns on, at its own rate. */
static void go_directly(Sim *sim, uint32_t flow, int64_t since_ns)
{
    Flow *f = &sim->flows[flow];
    mark_direct(sim, flow, true);
    f->since_ns = since_ns;
    f->rate = f->solo_rate;
    set_event(sim, flow, since_ns + ns_up(f->left / f->rate), EVENT_FLOW_END);
    beside_changed(sim, f->demand);
}

/* Somebody else is about to move on the links of d. */
static void meet_direct(Sim *sim, Demand d)
{
    for (uint32_t u = 0; u < d.uses_n; u++) {
        if (sim->direct[d.uses[u].resource] == 0)
            continue;
        uint32_t flow = sim->direct[d.uses[u].resource] - 1;
        Flow *f = &sim->flows[flow];
        mark_direct(sim, flow, false);
        f->moving = f->since_ns <= sim->now_ns;
        if (f->moving) {
            share_add(sim, flow);
        } else {
            f->rate = 0;
            set_event(sim, flow, f->since_ns, EVENT_FLOW_DATA);
        }
    }
}

/* ---- a flow's life ---- */

static uint32_t flow_new(Sim *sim)
{
    if (sim->free_flows_n)
        return sim->free_flows[--sim->free_flows_n];
    GROW(sim->flows, sim->flows_n, sim->flows_cap);
    sim->flows[sim->flows_n] = (Flow){ 0 };
    return sim->flows_n++;
}

/* One side of a transfer starts to move; op: its own. */
static void member_begin(Sim *sim, Runner *r, uint32_t lane, uint32_t op, const CommCost *cost)
{
    account(sim, r);
    LaneState *l = &r->lane[lane];
    const Op *o = &sim->g->ops[op];
    l->transfers_n++;
    l->transfer_start_ns = sim->now_ns;
    l->algorithm = cost->algorithm;
    l->protocol = cost->protocol;
    if (op_is_p2p(o->kind)) {
        l->stat = account_stat(sim, r, o, 2);
        r->comm_lanes |= 1u << lane;
    }
    r->transfer_n++;
    compute_set_speed(sim, r);
}

/* A flow holds its links from its beginning, before it moves, to its end. */
static void links_hold(Sim *sim, Demand d)
{
    for (uint32_t u = 0; u < d.uses_n; u++)
        sim->held_n[d.uses[u].resource]++;
}

static void links_release(Sim *sim, Demand d)
{
    for (uint32_t u = 0; u < d.uses_n; u++)
        sim->held_n[d.uses[u].resource]--;
}

static void flow_begin(Sim *sim, uint32_t flow, double into_ns)
{
    Flow *f = &sim->flows[flow];
    f->used = true;
    f->moving = false;
    f->rate = 0;
    f->slowed_by = 0;
    f->start_ns = sim->now_ns;
    f->solo_rate = f->cost->solo_rate;
    links_hold(sim, f->demand);
    beside_make_way(sim, f->demand); /* which may make new flows, and move the old */
    f = &sim->flows[flow];
    int64_t latency_ns = max_i64(f->cost->latency_ns - (int64_t)into_ns, 0);
    double moved = into_ns > (double)f->cost->latency_ns
                       ? (into_ns - (double)f->cost->latency_ns) * f->solo_rate
                       : 0;
    f->left = moved < f->cost->traffic_bytes ? f->cost->traffic_bytes - moved : 0;
    /* Where links are recorded, links_note is to see it begin to move. */
    if (f->left > 0 && is_alone(sim, f->demand) && !sim->links &&
        beside_is_quiet(sim, f->demand, latency_ns))
        go_directly(sim, flow, sim->now_ns + latency_ns);
    else
        set_event(sim, flow, sim->now_ns + latency_ns, EVENT_FLOW_DATA);
    if (f->group == NONE_U32) {
        member_begin(sim, &sim->runners[f->from], f->from_lane, f->op, f->cost);
        member_begin(sim, &sim->runners[f->to], f->to_lane, f->to_op, f->cost);
        return;
    }
    const GroupClass *gc = &sim->classes.groups[f->group];
    for (uint32_t i = 0; i < gc->members_n; i++) {
        Runner *r = &sim->runners[gc->member[i]];
        member_begin(sim, r, f->lane, r->lane[f->lane].op, f->cost);
    }
}

/* r: the last to come. */
static void start_collective(Sim *sim, const Runner *r, uint32_t lane, uint32_t op,
                             double into_ns)
{
    uint32_t group = r->rc->group[sim->g->ops[op].u.comm.group];
    const GroupClass *gc = &sim->classes.groups[group];
    uint32_t i = flow_new(sim);
    Flow *f = &sim->flows[i];
    f->group = group;
    f->lane = lane;
    f->op = op;
    f->demand = collective_demand(gc, sim->g->ops[op].kind);
    f->cost = comm_cost_of(sim, op, group);
    path_into_flow(f, r, lane);
    flow_begin(sim, i, into_ns);
}

void flow_resume_collective(Sim *sim, Runner *r, uint32_t lane, double passed_ns,
                            double into_ns)
{
    LaneState *l = &r->lane[lane];
    const Op *o = &sim->g->ops[l->op];
    uint32_t group = r->rc->group[o->u.comm.group];
    l->stat = account_stat(sim, r, o, sim->classes.groups[group].size);
    r->stat->collectives[l->stat].time_ns += (int64_t)passed_ns;
    r->stat->collectives[l->stat].transfer_ns += (int64_t)passed_ns;
    r->comm_lanes |= 1u << lane;
    start_collective(sim, r, lane, l->op, into_ns);
}

/* One side's op is done; the lane goes on when all it posted together are. */
static void member_end(Sim *sim, Runner *r, uint32_t lane, const Flow *f, uint32_t op,
                       uint32_t group_size)
{
    account(sim, r);
    LaneState *l = &r->lane[lane];
    const Op *o = &sim->g->ops[op];
    int64_t since_ns = op_is_p2p(o->kind) ? f->start_ns : l->start_ns;
    if (!sim->options->totals)
        account_transfer(r, account_stat(sim, r, o, group_size), o, f->cost,
                         account_wire_bytes(o, group_size), sim->now_ns - since_ns,
                         sim->now_ns - f->start_ns);
    r->transfer_n--;
    compute_set_speed(sim, r);
    if (--l->transfers_n == 0)
        r->comm_lanes &= ~(1u << lane);
    if (--l->group_left > 0)
        return;
    l->wait = WAIT_NONE;
    path_transferred(sim, r, lane, f);
    lane_complete(sim, r, lane);
}

static void flow_end(Sim *sim, uint32_t flow)
{
    Flow *f = &sim->flows[flow]; /* nothing begins before it is over for all its members */
    f->used = false;
    if (f->slowed_by > 0) {
        beside_detach(sim, &sim->runners[f->slowed_by - 1]);
        evq_cancel(&sim->events, sim->runners_n + flow);
    }
    links_release(sim, f->demand);
    if (f->direct)
        mark_direct(sim, flow, false);
    if (f->moving) {
        if (sim->links)
            links_note(sim, f, 0);
        share_remove(sim, flow);
        share(sim, f->demand);
    }
    beside_changed(sim, f->demand);
    GROW(sim->free_flows, sim->free_flows_n, sim->free_flows_cap);
    sim->free_flows[sim->free_flows_n++] = flow;
    if (f->group == NONE_U32) {
        member_end(sim, &sim->runners[f->from], f->from_lane, f, f->op, 2);
        member_end(sim, &sim->runners[f->to], f->to_lane, f, f->to_op, 2);
        return;
    }
    const GroupClass *gc = &sim->classes.groups[f->group];
    for (uint32_t i = 0; i < gc->members_n; i++) {
        Runner *r = &sim->runners[gc->member[i]];
        member_end(sim, r, f->lane, f, r->lane[f->lane].op, gc->size);
    }
}

void flow_event(Sim *sim, uint32_t flow, bool data)
{
    Flow *f = &sim->flows[flow];
    if (!data || f->left <= 0 || f->demand.uses_n == 0) {
        flow_end(sim, flow);
        return;
    }
    meet_direct(sim, f->demand);
    f->moving = true;
    f->since_ns = sim->now_ns;
    share_add(sim, flow);
    share(sim, f->demand);
}

/* ---- meeting ---- */

static bool fail(Sim *sim, const Runner *r, const Op *o, const char *why)
{
    sim->failed = true;
    return err_set(sim->err, "rank %u: '%s' %s", r->rc->rank,
                   intern_text(&sim->g->names, o->name), why);
}

/* Both ends of a transfer must mean the same one. */
static bool agree(Sim *sim, const Runner *r, const Op *a, const Op *b)
{
    bool same_kind = a->kind == b->kind || (op_is_p2p(a->kind) && op_is_p2p(b->kind));
    if (same_kind && a->u.comm.bytes == b->u.comm.bytes)
        return true;
    sim->failed = true;
    return err_set(sim->err,
                   "rank %u meets '%s' of %" PRIu64 " bytes with '%s' of %" PRIu64
                   " bytes in the same group",
                   r->rc->rank, intern_text(&sim->g->names, a->name), a->u.comm.bytes,
                   intern_text(&sim->g->names, b->name), b->u.comm.bytes);
}

static void post_collective(Sim *sim, Runner *r, uint32_t lane)
{
    LaneState *l = &r->lane[lane];
    const Op *o = &sim->g->ops[l->op];
    uint32_t group = r->rc->group[o->u.comm.group];
    if (group == NONE_U32) {
        fail(sim, r, o, "is of a group that the rank is not in");
        return;
    }
    const GroupClass *gc = &sim->classes.groups[group];
    account(sim, r);
    r->comm_lanes |= 1u << lane;
    l->stat = account_stat(sim, r, o, gc->size);
    Meeting *m = &sim->meetings[(size_t)group * LANE_N + lane];
    if (m->arrived_n == 0)
        m->op = l->op;
    if (!agree(sim, r, o, &sim->g->ops[m->op]))
        return;
    l->wait = WAIT_PEER;
    if (++m->arrived_n < gc->members_n)
        return;
    m->arrived_n = 0;
    for (uint32_t i = 0; i < gc->members_n; i++)
        sim->runners[gc->member[i]].lane[lane].wait = WAIT_NONE;
    start_collective(sim, r, lane, l->op, 0);
}

static uint32_t channel_of(Runner *r, OpKind kind, uint32_t peer, uint32_t tag)
{
    for (uint32_t i = 0; i < r->channels_n; i++) {
        const Channel *c = &r->channels[i];
        if (c->kind == kind && c->peer == peer && c->tag == tag)
            return i;
    }
    GROW(r->channels, r->channels_n, r->channels_cap);
    r->channels[r->channels_n] = (Channel){ .peer = peer, .tag = tag, .kind = kind };
    return r->channels_n++;
}

/* Of a send or receive that goes to a rank of another class. */
static void end_find(Sim *sim, Runner *r, const Op *o, End *e)
{
    e->peer_rank = group_member(&sim->g->groups[o->u.comm.group], r->rc->rank, o->u.comm.peer);
    Runner *peer = &sim->runners[classes_of_rank(&sim->classes, e->peer_rank)];
    if (peer == r || !group_has(&sim->g->groups[o->u.comm.group], r->rc->rank)) {
        fail(sim, r, o,
             peer == r ? "goes to a rank of the same program"
                       : "is of a group that the rank is not in");
        return;
    }
    e->peer = peer;
    e->mine = channel_of(r, o->kind, peer->id, o->u.comm.tag);
    e->theirs = channel_of(peer, o->kind == OP_SEND ? OP_RECV : OP_SEND, r->id, o->u.comm.tag);
}

/* NULL: it goes nowhere, and the run has failed. */
static const End *end_of(Sim *sim, Runner *r, uint32_t op)
{
    if (!r->ends)
        r->ends = PUSH_ARRAY(&sim->arena, End, sim->sends_n);
    End *e = &r->ends[sim->comm_key[op]];
    if (!e->peer)
        end_find(sim, r, &sim->g->ops[op], e);
    return e->peer ? e : NULL;
}

static Post channel_take(Channel *c)
{
    Post first = c->posts[0];
    memmove(c->posts, c->posts + 1, --c->posts_n * sizeof *c->posts);
    return first;
}

CommCost send_cost(const Sim *sim, const Runner *from, uint32_t op, uint32_t peer_rank,
                   Use *uses, uint32_t *uses_n)
{
    const CommShape *shape = &sim->g->ops[op].u.comm;
    bool same_node = machine_place(sim->m, peer_rank).node == from->rc->place.node;
    *uses_n = classes_p2p_uses(&sim->classes, from->id, peer_rank, uses);
    Demand d = { uses, *uses_n, 0 };
    /* Devices of one process copy without NCCL. */
    bool copies = sim->g->host_group != NONE_U32;
    const GroupClass *gc = copies ? NULL : &sim->classes.groups[from->rc->group[shape->group]];
    return p2p_cost(sim->m, from->rc->place.type, same_node, gc, &d, sim->classes.resources,
                    shape->bytes, sim->sw->comm_scale);
}

static const Price *price_new(Sim *sim, const Runner *from, Channel *c, uint32_t op,
                              uint32_t peer_rank)
{
    Use uses[RES_RANK_N + 2];
    uint32_t n;
    Price *p = PUSH(&sim->arena, Price);
    *p = (Price){ .next = c->prices,
                  .peer_rank = peer_rank,
                  .bytes = sim->g->ops[op].u.comm.bytes,
                  .cost = send_cost(sim, from, op, peer_rank, uses, &n) };
    Use *kept = PUSH_ARRAY(&sim->arena, Use, n);
    memcpy(kept, uses, n * sizeof *uses);
    p->demand = (Demand){ kept, n, p->cost.cap_rate };
    return c->prices = p;
}

/* A send whose time is given has no links. */
static const Price *price_given(Sim *sim, uint32_t op)
{
    Price *p = PUSH(&sim->arena, Price);
    p->cost = *comm_cost_of(sim, op, sim->g->ops[op].u.comm.group);
    return p;
}

static const Price *price_of(Sim *sim, const Runner *from, Channel *c, uint32_t op,
                             uint32_t peer_rank)
{
    uint64_t bytes = sim->g->ops[op].u.comm.bytes;
    if (sim->options->given && sim->options->given->comm_ns[op] >= 0)
        return price_given(sim, op);
    for (const Price *p = c->prices; p; p = p->next)
        if (p->peer_rank == peer_rank && p->bytes == bytes)
            return p;
    return price_new(sim, from, c, op, peer_rank);
}

static void start_p2p(Sim *sim, Runner *from, Post out, Runner *to, Post in)
{
    const Op *o = &sim->g->ops[out.op], *recv = &sim->g->ops[in.op];
    if (!agree(sim, from, o, recv))
        return;
    const End *end = end_of(sim, from, out.op);
    const Price *price =
        price_of(sim, from, &from->channels[end->mine], out.op, end->peer_rank);
    uint32_t i = flow_new(sim);
    Flow *f = &sim->flows[i];
    f->group = NONE_U32;
    f->from = from->id;
    f->to = to->id;
    f->from_lane = out.lane;
    f->to_lane = in.lane;
    f->op = out.op;
    f->to_op = in.op;
    f->demand = price->demand;
    f->cost = &price->cost;
    if (from->lane[out.lane].start_ns >= to->lane[in.lane].start_ns) /* who came last */
        path_into_flow(f, from, out.lane);
    else
        path_into_flow(f, to, in.lane);
    flow_begin(sim, i, 0);
}

static void post_p2p(Sim *sim, Runner *r, uint32_t lane, uint32_t op)
{
    const Op *o = &sim->g->ops[op];
    const End *end = end_of(sim, r, op);
    if (!end)
        return;
    Channel *mine = &r->channels[end->mine], *theirs = &end->peer->channels[end->theirs];
    r->lane[lane].stat = account_stat(sim, r, o, 2);
    Post post = { lane, op };
    if (theirs->posts_n == 0) {
        GROW(mine->posts, mine->posts_n, mine->posts_cap);
        mine->posts[mine->posts_n++] = post;
        return;
    }
    Post answered = channel_take(theirs);
    if (o->kind == OP_SEND)
        start_p2p(sim, r, post, end->peer, answered);
    else
        start_p2p(sim, end->peer, answered, r, post);
}

void comm_post(Sim *sim, Runner *r, uint32_t lane)
{
    LaneState *l = &r->lane[lane];
    const Op *o = &sim->g->ops[l->op];
    if (op_is_collective(o->kind)) {
        post_collective(sim, r, lane);
        return;
    }
    while (o[l->group_n - 1].grouped)
        l->group_n++;
    l->group_left = l->group_n;
    l->wait = WAIT_PEER;
    uint32_t n = l->group_n, first = l->op;
    for (uint32_t i = 0; i < n; i++)
        post_p2p(sim, r, lane, first + i);
}

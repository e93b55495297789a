/*
 * engine_timing.c - how long the ops of a segment take, alone on their GPU.
 *
 *     compute   |ln|qkv|attn|proj|  |ln|up|down|  |wgrad|..|
 *     tp                         |ar|           |rs|
 *     interval   0  1   2    3    4  5  6   7   8   9     10
 *
 * By the same rules as in engine.c: lanes in order, dependencies, kernels slower beside
 * the segment's own transfers.  A stretch of it, ops [first, end), is timed as if all
 * before were done.  What comes out is the body of a macro (engine_macro.c).
 *
 * A transfer takes its time alone, until two are found on one link.  Then all is timed once more,
 * data with a fair share of its links behind each one's latency (engine_flow.c), and how far each
 * has come is noted for where the macro may be broken up.  So is a macro beside flows of others.
 */
#include <math.h>

#include "sim/engine_collapse.h"

/* A collective of ranks that all arrive together, on links that they touch themselves: those are
 * added to *links. */
bool macro_is_inner(const Sim *sim, const Runner *r, const Op *o, uint32_t *links)
{
    uint32_t group = op_is_collective(o->kind) ? r->rc->group[o->u.comm.group] : NONE_U32;
    if (group == NONE_U32 || sim->classes.groups[group].members_n > 1)
        return false;
    Demand d = collective_demand(&sim->classes.groups[group], o->kind);
    for (uint32_t u = 0; u < d.uses_n; u++) {
        ResourceKind kind = sim->classes.resources[d.uses[u].resource].kind;
        if (kind >= RES_RANK_N || r->rc->resource[kind] != d.uses[u].resource)
            return false;
        *links |= 1u << kind;
    }
    return true;
}

typedef struct LaneClock {
    uint32_t at, end; /* next op of the lane, and behind the last */
    uint32_t running; /* op, NONE_U32 */
    double left;      /* alone-ns */
    double share;     /* of a transfer: its rate beside others, of that alone */
    int64_t end_ns;
} LaneClock;

typedef struct Timing {
    Sim *sim;
    const Runner *r;
    const Segment *s;
    Macro *m;
    Stretch of;
    uint32_t lanes;                      /* bit per lane that it has ops on */
    bool shares;                         /* transfers may share links */
    Use beside[BESIDE_MOST][RES_RANK_N]; /* of m->by */
    uint32_t beside_n[BESIDE_MOST];
    double lost;   /* bytes/ns that those get less now */
    double **into; /* by op, if they may: see MacroComm */
    uint32_t *into_first;
    bool *done;
    uint32_t done_n;
    LaneClock lane[LANE_N];
    int64_t now_ns;
} Timing;

static uint32_t lane_op(const Timing *t, uint32_t lane, uint32_t at)
{
    return t->sim->lane_ops[t->sim->lane_first[t->of.segment * LANE_N + lane] + at] -
           t->s->op_first;
}

static bool deps_done(const Timing *t, uint32_t i)
{
    const Op *o = graph_ops(t->sim->g, t->s) + i;
    for (uint32_t d = 0; d < o->dep_n; d++)
        if (!t->done[t->sim->g->deps[o->dep_first + d]])
            return false;
    return true;
}

static const Op *running_op(const Timing *t, uint32_t lane)
{
    uint32_t i = t->lane[lane].running;
    return i == NONE_U32 ? NULL : graph_ops(t->sim->g, t->s) + i;
}

static const CommCost *comm_cost(const Timing *t, uint32_t i)
{
    uint32_t op = t->s->op_first + i;
    return comm_cost_of(t->sim, op, t->r->rc->group[t->sim->g->ops[op].u.comm.group]);
}

static OpCost cost_in_macro(const Timing *t, uint32_t i)
{
    uint32_t op = t->s->op_first + i;
    if (!op_is_comm(t->sim->g->ops[op].kind))
        return t->r->cost->op[op];
    int64_t ns = comm_cost(t, i)->solo_ns;
    return (OpCost){ ns, ns };
}

/* To the end of an op. */
static int64_t path_behind(const Timing *t, uint32_t i)
{
    bool comm = op_is_comm(graph_ops(t->sim->g, t->s)[i].kind);
    return t->m->path_ns[i] + (comm ? t->m->end_ns[i] - t->m->start_ns[i] : 0);
}

/* To where an op begins now: that of the last that it waited for, of its lane or another. */
static int64_t path_before(const Timing *t, uint32_t lane, uint32_t i)
{
    const Op *o = graph_ops(t->sim->g, t->s) + i;
    uint32_t at = t->lane[lane].at, last = NONE_U32;
    if (at > 0)
        last = lane_op(t, lane, at - 1);
    for (uint32_t d = 0; d < o->dep_n; d++) {
        uint32_t dep = t->sim->g->deps[o->dep_first + d];
        if (last == NONE_U32 || t->m->end_ns[dep] > t->m->end_ns[last])
            last = dep;
    }
    return last == NONE_U32 || last < t->of.first ? 0 : path_behind(t, last);
}

/* To now: through what computes, or else through what the compute lane waits for. */
static int64_t path_now(const Timing *t)
{
    const LaneClock *c = &t->lane[LANE_COMPUTE];
    if (c->running != NONE_U32 && !op_is_comm(running_op(t, LANE_COMPUTE)->kind))
        return t->m->path_ns[c->running];
    const Op *next =
        c->at < c->end ? graph_ops(t->sim->g, t->s) + lane_op(t, LANE_COMPUTE, c->at) : NULL;
    int64_t ns = 0;
    for (uint32_t left = t->lanes; left; left &= left - 1) {
        uint32_t i = t->lane[first_lane(left)].running;
        if (i == NONE_U32)
            continue;
        ns = t->m->path_ns[i] + t->now_ns - t->m->start_ns[i];
        for (uint32_t d = 0; next && d < next->dep_n; d++)
            if (t->sim->g->deps[next->dep_first + d] == i)
                return ns;
    }
    return ns;
}

/* ---- transfers that share links ---- */

/* Each op ends an interval, and each latency. */
static uint32_t intervals_most(const Timing *t)
{
    return t->shares ? 2 * t->s->op_n : t->s->op_n;
}

static void note_begin(Timing *t, uint32_t i)
{
    t->into_first[i] = t->m->intervals_n;
    t->into[i] = PUSH_ARRAY(&t->sim->arena, double, intervals_most(t) - t->m->intervals_n + 1);
}

static void note_into(Timing *t, uint32_t i, double left)
{
    t->into[i][t->m->intervals_n - t->into_first[i]] = (double)comm_cost(t, i)->solo_ns - left;
}

/* Of a transfer that runs on the lane; 0: its data moves. */
static double latency_left(const Timing *t, uint32_t lane)
{
    const LaneClock *c = &t->lane[lane];
    const CommCost *cost = comm_cost(t, c->running);
    return fmax(0, c->left - (double)(cost->solo_ns - cost->latency_ns));
}

static uint32_t beside_n(const Macro *m)
{
    return m->by ? m->by->n : 0;
}

static void list_beside(Timing *t)
{
    for (uint32_t i = 0; i < beside_n(t->m); i++)
        for (uint32_t kind = 0; kind < RES_RANK_N; kind++)
            if (t->m->by->flow[i].takes[kind] > 0)
                t->beside[i][t->beside_n[i]++] =
                    (Use){ .resource = t->r->rc->resource[kind],
                           .coefficient = t->m->by->flow[i].takes[kind] };
}

static void share_links(Timing *t)
{
    uint32_t lanes[LANE_N], n = 0, others_n = beside_n(t->m);
    Demand demand[LANE_N + BESIDE_MOST];
    double rate[LANE_N + BESIDE_MOST];
    t->lost = 0;
    for (uint32_t left = t->lanes; left; left &= left - 1) {
        uint32_t lane = first_lane(left);
        const Op *o = running_op(t, lane);
        t->lane[lane].share = 1;
        if (!o || !op_is_comm(o->kind) || latency_left(t, lane) > 0)
            continue;
        lanes[n] = lane;
        demand[n++] = collective_demand(
            &t->sim->classes.groups[t->r->rc->group[o->u.comm.group]], o->kind);
    }
    if (n == 0 || n + others_n < 2)
        return;
    for (uint32_t i = 0; i < others_n; i++)
        demand[n + i] = (Demand){ t->beside[i], t->beside_n[i], t->m->by->flow[i].rate };
    maxmin_rates(rate, demand, n + others_n, t->sim->classes.resources, &t->sim->space);
    for (uint32_t i = 0; i < n; i++) {
        LaneClock *c = &t->lane[lanes[i]];
        c->share = rate[i] / comm_cost(t, c->running)->solo_rate;
    }
    for (uint32_t i = 0; i < others_n; i++)
        if (rate[n + i] < t->m->by->flow[i].rate * (1 - 1e-9))
            t->lost += t->m->by->flow[i].rate - rate[n + i];
}

/* ---- going on ---- */

/* Starts what can start now; ops that take no time are done at once. */
static void start_ops(Timing *t)
{
    for (bool again = true; again;) {
        again = false;
        for (uint32_t left = t->lanes; left; left &= left - 1) {
            uint32_t lane = first_lane(left);
            LaneClock *c = &t->lane[lane];
            if (c->running != NONE_U32 || c->at == c->end)
                continue;
            uint32_t i = lane_op(t, lane, c->at);
            if (!deps_done(t, i))
                continue;
            t->m->path_ns[i] = path_before(t, lane, i);
            c->at++;
            c->left = (double)cost_in_macro(t, i).alone_ns;
            c->share = 1;
            if (t->shares && op_is_comm(graph_ops(t->sim->g, t->s)[i].kind))
                note_begin(t, i);
            t->m->start_ns[i] = t->m->end_ns[i] = t->now_ns;
            again = true;
            if (c->left > 0) {
                c->running = i;
                continue;
            }
            t->done[i] = true;
            t->done_n++;
        }
    }
}

static bool comm_runs(const Timing *t)
{
    for (uint32_t left = t->lanes; left; left &= left - 1) {
        const Op *o = running_op(t, first_lane(left));
        if (o && op_is_comm(o->kind))
            return true;
    }
    return false;
}

/* Do two transfers share a link now? */
static bool comms_collide(const Timing *t)
{
    uint32_t taken = 0;
    for (uint32_t left = t->lanes; left; left &= left - 1) {
        const Op *o = running_op(t, first_lane(left));
        uint32_t links = 0;
        if (!o || !op_is_comm(o->kind))
            continue;
        macro_is_inner(t->sim, t->r, o, &links);
        if (taken & links)
            return true;
        taken |= links;
    }
    return false;
}

/* Slowed time over alone time of a running op. */
static double stretch(const Timing *t, uint32_t lane)
{
    OpCost c = cost_in_macro(t, t->lane[lane].running);
    double slowed = c.alone_ns > 0 ? (double)c.slowed_ns / (double)c.alone_ns : 1;
    return slowed / t->lane[lane].share;
}

static void add_interval(Timing *t, int64_t dt, bool compute, bool comm, double slow_ns)
{
    Macro *m = t->m;
    uint32_t i = m->intervals_n++;
    m->alone_at[i + 1] = m->alone_at[i] + dt;
    m->slow_at[i + 1] = m->slow_at[i] + llround(slow_ns);
    m->compute_at[i + 1] = m->compute_at[i] + (compute ? dt : 0);
    m->comm_at[i + 1] = m->comm_at[i] + (comm ? dt : 0);
    if (m->lost_at)
        m->lost_at[i + 1] = m->lost_at[i] + t->lost * (double)dt;
    m->slows |= t->lost > 0;
}

/* When the next op ends, or the next latency where that matters; INT64_MAX: nothing runs. */
static int64_t next_end(Timing *t, bool comm)
{
    int64_t next = INT64_MAX;
    for (uint32_t left = t->lanes; left; left &= left - 1) {
        uint32_t lane = first_lane(left);
        LaneClock *c = &t->lane[lane];
        if (c->running == NONE_U32)
            continue;
        c->end_ns = t->now_ns + ns_up(c->left * (comm ? stretch(t, lane) : 1));
        next = min_i64(next, c->end_ns);
        if (t->shares && op_is_comm(running_op(t, lane)->kind) && latency_left(t, lane) > 0)
            next = min_i64(next, t->now_ns + ns_up(latency_left(t, lane)));
    }
    return next;
}

/* To the next end of an op.  False when nothing runs. */
static bool advance(Timing *t)
{
    bool comm = comm_runs(t), compute = running_op(t, LANE_COMPUTE) != NULL &&
                                        !op_is_comm(running_op(t, LANE_COMPUTE)->kind);
    if (t->shares)
        share_links(t);
    int64_t next = next_end(t, comm);
    if (next == INT64_MAX)
        return false;
    int64_t dt = next - t->now_ns;
    double slow_ns = (double)dt * (compute && !comm ? stretch(t, LANE_COMPUTE) : 1);
    add_interval(t, dt, compute, comm, slow_ns);
    t->now_ns = next;
    t->m->path_at[t->m->intervals_n] = path_now(t);
    for (uint32_t left = t->lanes; left; left &= left - 1) {
        uint32_t lane = first_lane(left);
        LaneClock *c = &t->lane[lane];
        if (c->running == NONE_U32)
            continue;
        const Op *o = running_op(t, lane);
        t->m->exposed_ns[c->running] += op_is_comm(o->kind) && !compute ? dt : 0;
        c->left = fmax(0, c->left - (double)dt / (comm ? stretch(t, lane) : 1));
        t->m->end_ns[c->running] = next;
        if (t->shares && op_is_comm(o->kind))
            note_into(t, c->running, c->left);
        if (c->end_ns > next)
            continue;
        t->done[c->running] = true;
        t->done_n++;
        c->running = NONE_U32;
    }
    return true;
}

static void timing_alloc(Timing *t)
{
    Arena *a = &t->sim->arena;
    Macro *m = t->m;
    uint32_t n = t->s->op_n, intervals_n = intervals_most(t);
    t->done = PUSH_ARRAY(a, bool, n);
    m->path_ns = PUSH_ARRAY(a, int64_t, n);
    m->start_ns = PUSH_ARRAY(a, int64_t, n);
    m->end_ns = PUSH_ARRAY(a, int64_t, n);
    m->exposed_ns = PUSH_ARRAY(a, int64_t, n);
    m->alone_at = PUSH_ARRAY(a, int64_t, intervals_n + 1);
    m->slow_at = PUSH_ARRAY(a, int64_t, intervals_n + 1);
    m->compute_at = PUSH_ARRAY(a, int64_t, intervals_n + 1);
    m->comm_at = PUSH_ARRAY(a, int64_t, intervals_n + 1);
    m->path_at = PUSH_ARRAY(a, int64_t, intervals_n + 1);
    if (m->by)
        m->lost_at = PUSH_ARRAY(a, double, intervals_n + 1);
    if (!t->shares)
        return;
    t->into = PUSH_ARRAY(a, double *, n);
    t->into_first = PUSH_ARRAY(a, uint32_t, n);
}

/* Ops before the stretch are done, those behind it never begin. */
static void open_lanes(Timing *t)
{
    for (uint32_t lane = 0; lane < LANE_N; lane++)
        t->lane[lane].running = NONE_U32;
    for (uint32_t i = 0; i < t->s->op_n; i++) {
        uint32_t lane = graph_ops(t->sim->g, t->s)[i].lane;
        t->done[i] = i < t->of.first;
        t->lane[lane].at += i < t->of.first;
        t->lane[lane].end += i < t->of.end;
        if (i >= t->of.first && i < t->of.end)
            t->lanes |= 1u << lane;
        if (i >= t->of.end)
            t->m->start_ns[i] = t->m->end_ns[i] = INT64_MAX;
    }
    t->m->lanes = t->lanes;
}

static void list_comms(const Timing *t)
{
    Sim *sim = t->sim;
    Macro *m = t->m;
    m->comms = PUSH_ARRAY(&sim->arena, MacroComm, t->of.end - t->of.first);
    for (uint32_t i = t->of.first; i < t->of.end; i++) {
        const Op *o = graph_ops(sim->g, t->s) + i;
        if (!op_is_comm(o->kind))
            continue;
        MacroComm *c = &m->comms[m->comms_n++];
        uint32_t group = t->r->rc->group[o->u.comm.group];
        *c = (MacroComm){ .start_ns = m->start_ns[i],
                          .end_ns = m->end_ns[i],
                          .op = i,
                          .stat = NONE_U32,
                          .into = t->shares ? t->into[i] : NULL,
                          .into_first = t->shares ? t->into_first[i] : 0,
                          .cost = comm_cost_of(sim, t->s->op_first + i, group) };
        c->wire_bytes = account_wire_bytes(o, sim->classes.groups[group].size);
        macro_is_inner(sim, t->r, o, &c->links);
        m->links |= c->links;
    }
    m->has_comm = m->comms_n > 0;
    m->first_ns = INT64_MAX;
    for (uint32_t i = 0; i < m->comms_n; i++)
        m->first_ns = min_i64(m->first_ns, m->comms[i].start_ns);
    if (!m->by)
        m->beside = PUSH(&sim->arena, BesideList);
}

static void note_extent(const Timing *t, Macro *m)
{
    m->lag_ns = INT64_MIN;
    for (uint32_t i = t->of.first; i < t->of.end; i++)
        m->lag_ns =
            max_i64(m->lag_ns, t->r->cost->launch_after[t->s->op_first + i] - m->start_ns[i]);
    if (t->of.first == 0 && t->of.end == t->s->op_n)
        return;
    m->begin_at = PUSH_ARRAY(&t->sim->arena, uint32_t, LANE_N);
    m->end_at = PUSH_ARRAY(&t->sim->arena, uint32_t, LANE_N);
    for (uint32_t i = 0; i < t->of.end; i++) {
        uint32_t lane = graph_ops(t->sim->g, t->s)[i].lane;
        m->begin_at[lane] += i < t->of.first;
        m->end_at[lane]++;
    }
}

/* False: transfers were found on one link that may not be, or it takes too long. */
static bool time_ops(Timing *t, bool *collides)
{
    timing_alloc(t);
    open_lanes(t);
    do {
        start_ops(t);
        *collides = !t->shares && comms_collide(t);
        if (*collides || t->m->alone_at[t->m->intervals_n] > NS_MAX ||
            t->m->slow_at[t->m->intervals_n] > NS_MAX)
            return false;
    } while (advance(t));
    return true;
}

bool macro_time(Sim *sim, const Runner *r, Stretch of, Macro *m)
{
    const Segment *s = &sim->g->segments[of.segment];
    const Timing begin = { .sim = sim, .r = r, .s = s, .m = m, .of = of };
    const Macro empty = *m;
    Timing t = begin;
    t.shares = m->by != NULL;
    list_beside(&t);
    bool collides, timed = time_ops(&t, &collides);
    if (collides) {
        t = begin;
        t.shares = true;
        *m = empty;
        timed = time_ops(&t, &collides);
    }
    if (!timed)
        return false;
    ASSERT(t.done_n == of.end - of.first);
    m->of = of;
    list_comms(&t);
    note_extent(&t, m);
    const Op *last = graph_ops(sim->g, s) + of.end - 1;
    return last->lane == LANE_COMPUTE && m->end_ns[of.end - 1] == t.now_ns &&
           m->alone_at[m->intervals_n] > 0 && (beside_n(m) <= 1 || !m->slows);
}

/*
 * engine_macro.c - a whole instance as one event.
 *
 *     op by op   compute |ln|qkv|attn|proj|  |ln|up|down|  |wgrad|..|
 *                tp                       |ar|           |rs|
 *     as a macro         |##########################################|
 *
 * The ops of a segment are timed once, alone on the GPU, by the same rules as in
 * engine.c: lanes in order, dependencies, kernels slower beside its own
 * transfers.  An instance may then be one event where that timing is the truth:
 *
 *   - it begins and ends on the compute lane, the others follow from it;
 *   - the host has launched each op before its turn;
 *   - nobody goes on before its end, behind an op in its middle or on a lane that
 *     it leaves early, and none of its ops waits for others;
 *   - its own collectives (tensor and context parallelism) join ranks of one class,
 *     over links that nobody else uses meanwhile, or such flows as it was timed beside
 *     (engine_beside.c).
 *
 * Transfers on other links slow its kernels: running sums over its timing say how
 * far it gets.  Where its own transfers meet others than it was timed beside it goes on as one
 * that was timed beside these, or is broken up: the ops it is in go on as ops of their own
 * (engine_leave.c).
 */
#include "sim/engine_collapse.h"

/* ---- running sums ---- */

/* Sums are whole, so what is at most x is at most x without its fraction. */
MacroPlace macro_place(const Macro *m, const int64_t *from, double x, uint32_t near)
{
    uint32_t n = m->intervals_n;
    int64_t at = x < (double)NS_MAX ? (int64_t)x : NS_MAX;
    if (at >= from[n])
        return (MacroPlace){ n - 1, 1 };
    const int64_t *low = from + (from[near] <= at ? near : 0);
    for (uint32_t left = n - (uint32_t)(low - from); left > 1;) {
        uint32_t half = left / 2;
        low += low[half] <= at ? half : 0;
        left -= half;
    }
    double width = (double)(low[1] - low[0]);
    uint32_t i = (uint32_t)(low - from);
    return (MacroPlace){ i, width > 0 ? (x - (double)low[0]) / width : 0 };
}

MacroPlace macro_here(Runner *r)
{
    const Macro *m = r->running_macro;
    if (!r->placed)
        r->here = macro_place(m, m->alone_at, r->position, r->here.low);
    r->placed = true;
    return r->here;
}

/* Maps x from one running sum to another, straight within an interval. */
double macro_map(const Macro *m, const int64_t *from, const int64_t *to, double x)
{
    if (from == to)
        return x;
    MacroPlace p = macro_place(m, from, x, 0);
    return macro_sum(&p, to);
}

/* ---- which segments ---- */

static bool can_be_macro(const Sim *sim, const Runner *r, const Segment *s)
{
    uint32_t links = 0;
    if (!sim_collapses(sim) || s->op_n == 0)
        return false;
    const Op *op = graph_ops(sim->g, s);
    uint32_t follows = 1u << LANE_COMPUTE; /* lanes that have begun behind the compute lane */
    for (uint32_t i = 0; i < s->op_n; i++) {
        if (op[i].lane != LANE_COMPUTE && !op_is_comm(op[i].kind))
            return false;
        if (op_is_comm(op[i].kind) && !macro_is_inner(sim, r, &op[i], &links))
            return false;
        if (op[i].dep_n > 0)
            follows |= 1u << op[i].lane;
        if (!(follows >> op[i].lane & 1u))
            return false;
    }
    return op[0].lane == LANE_COMPUTE;
}

/* ---- running one ---- */

/* The lowest ResourceKind of a set of links, a bit each; not of none. */
static uint32_t first_link(uint32_t links)
{
    return (uint32_t)__builtin_ctz(links);
}

uint32_t macro_links_in_use(const Sim *sim, const Runner *r, const Macro *m)
{
    uint32_t used = 0;
    for (uint32_t left = m->links; left; left &= left - 1) {
        uint32_t kind = first_link(left), link = r->rc->resource[kind];
        used |= (uint32_t)(sim->held_n[link] > sim->macros_n[link]) << kind;
    }
    return used;
}

bool macro_transfers_at(const Macro *m, uint32_t links, double x)
{
    for (uint32_t i = 0; i < m->comms_n && links; i++)
        if ((m->comms[i].links & links) && (double)m->comms[i].start_ns <= x &&
            x < (double)m->comms[i].end_ns)
            return true;
    return false;
}

/* No other macro is on its links. */
static bool links_are_free(const Sim *sim, const Runner *r, const Macro *m)
{
    for (uint32_t left = m->links; left; left &= left - 1)
        if (sim->macros_n[r->rc->resource[first_link(left)]] > 0)
            return false;
    return true;
}

void macro_look_ahead(const Sim *sim, Runner *r, bool fits)
{
    const Macro *m = r->running_macro;
    int64_t stop = m->alone_at[m->intervals_n];
    /* Links on which it may find others than it was timed beside. */
    uint32_t doubt = m->has_comm && !fits ? macro_links_in_use(sim, r, m) : 0;
    if (m->by && !fits)
        doubt |= m->by->links;
    r->guard = false;
    for (uint32_t i = 0; i < m->comms_n && doubt; i++) {
        const MacroComm *c = &m->comms[i];
        if (!(c->links & doubt) || (double)c->end_ns <= r->position || c->start_ns >= stop)
            continue;
        stop = c->start_ns;
        r->guard = true;
    }
    r->stop = (double)stop;
}

void macro_links_hold(Sim *sim, const Runner *r, const Macro *m)
{
    for (uint32_t left = m->links; left; left &= left - 1) {
        uint32_t link = r->rc->resource[first_link(left)];
        sim->held_n[link]++;
        sim->macros_n[link]++;
    }
}

void macro_links_release(Sim *sim, const Runner *r, const Macro *m)
{
    for (uint32_t left = m->links; left; left &= left - 1) {
        uint32_t link = r->rc->resource[first_link(left)];
        sim->held_n[link]--;
        sim->macros_n[link]--;
    }
}

/* All edges but those into the first op, which have been looked at already. */
static bool edges_done(const Runner *r, uint32_t instance)
{
    const Spot *spot = &r->program.spot[instance];
    const SpotWait *w = r->program.wait + spot->wait_first;
    for (const SpotWait *end = w + spot->wait_n; w < end; w++)
        if (w->op > 0 && r->lane[w->lane].done < w->ops_n)
            return false;
    return true;
}

static bool lanes_are_free(const Runner *r, const Macro *m, uint32_t instance)
{
    for (uint32_t left = m->lanes & ~(1u << LANE_COMPUTE); left; left &= left - 1) {
        uint32_t lane = first_lane(left);
        uint32_t before = m->begin_at ? m->begin_at[lane] : 0;
        if (r->lane[lane].busy ||
            r->lane[lane].done != ops_before(&r->program, lane, instance) + before)
            return false;
    }
    return true;
}

static bool same_cost(const CommCost *a, const CommCost *b)
{
    return a->algorithm == b->algorithm && a->protocol == b->protocol &&
           a->latency_ns == b->latency_ns && a->solo_ns == b->solo_ns &&
           a->traffic_bytes == b->traffic_bytes && a->solo_rate == b->solo_rate;
}

/* Do two groups take as much of links as fast? */
static bool same_demand(const Sim *sim, Demand a, Demand b)
{
    const Resource *links = sim->classes.resources;
    bool same = a.uses_n == b.uses_n;
    for (uint32_t u = 0; same && u < a.uses_n; u++)
        same = a.uses[u].coefficient == b.uses[u].coefficient &&
               links[a.uses[u].resource].bytes_per_ns == links[b.uses[u].resource].bytes_per_ns;
    return same;
}

/* Does a transfer take the same time of two ranks, and links of the same kinds of their own? */
static bool same_transfer(Sim *sim, const Runner *a, const Runner *b, uint32_t op)
{
    const Op *o = &sim->g->ops[op];
    uint32_t of_a = 0, of_b = 0;
    if (!macro_is_inner(sim, a, o, &of_a) || !macro_is_inner(sim, b, o, &of_b) || of_a != of_b)
        return false;
    uint32_t x = a->rc->group[o->u.comm.group], y = b->rc->group[o->u.comm.group];
    const GroupClass *gx = &sim->classes.groups[x], *gy = &sim->classes.groups[y];
    return gx->size == gy->size &&
           same_demand(sim, collective_demand(gx, o->kind), collective_demand(gy, o->kind)) &&
           same_cost(comm_cost_of(sim, op, x), comm_cost_of(sim, op, y));
}

bool macro_same(Sim *sim, const Runner *a, const Runner *b, Stretch of)
{
    const Segment *s = &sim->g->segments[of.segment];
    for (uint32_t i = of.first; i < of.end; i++)
        if (op_is_comm(graph_ops(sim->g, s)[i].kind) &&
            !same_transfer(sim, a, b, s->op_first + i))
            return false;
    return true;
}

/* The macro of a rank for which the segment takes the same time; NULL: none is known.
 * Stages have layers of the same types. */
static const Macro *twin_of(Sim *sim, const Runner *r, uint32_t segment)
{
    const Runner *other = NULL;
    for (uint32_t i = 0; i < sim->runners_n && !other; i++)
        if (sim->runners[i].macro[segment] && sim->runners[i].cost == r->cost)
            other = &sim->runners[i];
    Stretch whole = { segment, 0, sim->g->segments[segment].op_n };
    return other && macro_same(sim, other, r, whole) ? other->macro[segment] : NULL;
}

void macro_copy(Sim *sim, const Runner *r, uint32_t segment, Macro *m, const Macro *twin)
{
    const Segment *s = &sim->g->segments[segment];
    *m = *twin;
    m->comms = PUSH_ARRAY(&sim->arena, MacroComm, m->comms_n);
    for (uint32_t i = 0; i < m->comms_n; i++) {
        const Op *o = graph_ops(sim->g, s) + twin->comms[i].op;
        m->comms[i] = twin->comms[i];
        m->comms[i].stat = NONE_U32;
        m->comms[i].cost =
            comm_cost_of(sim, s->op_first + twin->comms[i].op, r->rc->group[o->u.comm.group]);
    }
}

Macro *macro_of(Sim *sim, Runner *r, uint32_t segment)
{
    Macro *m = r->macro[segment];
    if (m)
        return m;
    if (sim->same[segment] != segment)
        return r->macro[segment] = macro_of(sim, r, sim->same[segment]);
    const Segment *s = &sim->g->segments[segment];
    const Macro *twin = twin_of(sim, r, segment);
    m = r->macro[segment] = PUSH(&sim->arena, Macro);
    if (twin) {
        macro_copy(sim, r, segment, m, twin);
        return m;
    }
    bool can =
        can_be_macro(sim, r, s) && macro_time(sim, r, (Stretch){ segment, 0, s->op_n }, m);
    m->state = can ? MACRO_YES : MACRO_NO;
    return m;
}

bool macro_has_way(const Sim *sim, const Runner *r, const Macro *m, uint32_t instance)
{
    return !m->has_comm || (links_are_free(sim, r, m) && lanes_are_free(r, m, instance));
}

void macro_begin(Sim *sim, Runner *r, const Macro *m, uint32_t op)
{
    account(sim, r);
    macro_links_hold(sim, r, m);
    for (uint32_t left = m->lanes; left; left &= left - 1)
        r->lane[first_lane(left)].busy = true;
    LaneState *l = &r->lane[LANE_COMPUTE];
    l->op = op;
    l->start_ns = sim->now_ns;
    r->running_macro = m;
    r->position = 0;
    r->here = (MacroPlace){ 0 };
    r->placed = true;
    r->booked_to = -1;
    r->path_shift = 0;
    r->compute_n++;
    beside_attach(sim, r);
    bool meets = m->by || macro_links_in_use(sim, r, m) != 0;
    macro_look_ahead(sim, r, !meets || beside_fits(sim, r));
    compute_resume(sim, r);
}

bool macro_try(Sim *sim, Runner *r, uint32_t instance)
{
    uint32_t segment = r->program.spot[instance].segment;
    const Segment *s = &sim->g->segments[segment];
    const Macro *m = macro_of(sim, r, segment);
    if (m->state == MACRO_NO || r->program.open[instance] ||
        r->host_start[instance] + m->lag_ns > sim->now_ns || !edges_done(r, instance))
        return false;
    const Macro *chain = chain_of(sim, r, instance);
    if (chain && macro_has_way(sim, r, chain, instance) && beside_none(sim, r, chain))
        m = chain;
    else if (macro_has_way(sim, r, m, instance))
        m = beside_choose(sim, r, m);
    else
        return false;
    if (m)
        macro_begin(sim, r, m, s->op_first);
    return m != NULL;
}

/* ---- ending one ---- */

uint32_t macro_stat(const Sim *sim, Runner *r, const Segment *s, uint32_t i)
{
    const Op *o = graph_ops(sim->g, s) + i;
    return account_stat(sim, r, o, sim->classes.groups[r->rc->group[o->u.comm.group]].size);
}

static void book_comm(Sim *sim, Runner *r, const Segment *s, const Macro *m, MacroComm *c)
{
    uint32_t stat = c->stat != NONE_U32 ? c->stat : macro_stat(sim, r, s, c->op);
    if (m->number == 0) /* others are of several ranks */
        c->stat = stat;
    account_transfer(r, stat, graph_ops(sim->g, s) + c->op, c->cost, c->wire_bytes,
                     c->end_ns - c->start_ns, c->end_ns - c->start_ns);
    r->stat->collectives[stat].exposed_ns += m->exposed_ns[c->op];
}

void macro_book(Sim *sim, Runner *r, const Macro *m, uint32_t instance, double x)
{
    const Segment *s = segment_of(sim, r, instance);
    for (uint32_t i = 0; i < m->comms_n && !sim->options->totals; i++)
        if ((double)m->comms[i].end_ns <= x && (double)m->comms[i].end_ns > r->booked_to)
            book_comm(sim, r, s, m, &m->comms[i]);
}

void macro_lane_skip(Sim *sim, Runner *r, uint32_t lane, uint32_t instance, uint32_t at,
                     const Path *path)
{
    LaneState *l = &r->lane[lane];
    uint32_t done = ops_before(&r->program, lane, instance) + at;
    l->busy = false;
    l->wait = WAIT_NONE;
    l->instance = instance;
    l->at = at;
    path_set(r, lane, path);
    sim->ops_done += done - l->done;
    l->done = done;
}

void macro_finish(Sim *sim, Runner *r)
{
    const Macro *m = r->running_macro;
    uint32_t instance = r->lane[LANE_COMPUTE].instance;
    account(sim, r);
    beside_detach(sim, r);
    for (uint32_t i = 0; i < m->parts_n; i++)
        macro_book(sim, r, m->parts[i], instance + i, (double)NS_MAX);
    if (m->parts_n > 0)
        instance += m->parts_n - 1;
    else
        macro_book(sim, r, m, instance, (double)NS_MAX);
    const Segment *s = segment_of(sim, r, instance);
    Path path = path_of_macro(sim, r);
    r->running_macro = NULL;
    macro_links_release(sim, r, m);
    r->compute_n--;
    uint32_t rest = m->end_at ? 0 : r->program.ties[instance].follow;
    for (uint32_t left = m->lanes; left; left &= left - 1) {
        uint32_t lane = first_lane(left);
        macro_lane_skip(sim, r, lane, instance, m->end_at ? m->end_at[lane] : s->lane_n[lane],
                        &path);
    }
    for (uint32_t left = m->lanes; left; left &= left - 1) {
        uint32_t lane = first_lane(left);
        if (rest >> lane & 1u)
            lane_rest_after(sim, r, lane);
        else
            lane_wake_after(sim, r, lane);
    }
}

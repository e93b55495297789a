/*
 * engine_macro.c - a whole instance as one event.
 *
 *     op by op      |ln|qkv|attn|proj|ar|ln|up|down|ar|
 *     as a macro    |################################|
 *
 * It is exact where it is taken: all ops follow one another on the compute lane,
 * the host has launched each before its turn, nobody waits for an op in its
 * middle, and its own collectives (tensor parallelism) join ranks of one class
 * over links that nobody else uses meanwhile.  Transfers on other links slow its
 * kernels; running sums over alone and slowed times say where it is.  When a
 * transfer comes onto its own links it is broken up: the op it is in goes on as
 * an op of its own.
 */
#include <math.h>

#include "sim/engine_state.h"

/* ---- running sums ---- */

/* Last i with at[i] <= x, in 0 .. n - 1. */
static uint32_t op_of(const int64_t *at, uint32_t n, double x)
{
    uint32_t low = 0, high = n;
    while (high - low > 1) {
        uint32_t mid = low + (high - low) / 2;
        if ((double)at[mid] <= x)
            low = mid;
        else
            high = mid;
    }
    return low;
}

/* Maps x from one running sum to another, straight within an op. */
static double map_sum(const int64_t *from, const int64_t *to, uint32_t n, double x)
{
    if (x >= (double)from[n])
        return (double)to[n];
    uint32_t i = op_of(from, n, x);
    double width = (double)(from[i + 1] - from[i]);
    double part = width > 0 ? (x - (double)from[i]) / width : 0;
    return (double)to[i] + part * (double)(to[i + 1] - to[i]);
}

double macro_slow_at(const Macro *m, uint32_t op_n, double alone)
{
    return map_sum(m->alone_at, m->slow_at, op_n, alone);
}

double macro_alone_at(const Macro *m, uint32_t op_n, double slow)
{
    return map_sum(m->slow_at, m->alone_at, op_n, slow);
}

double macro_comm_at(const Macro *m, uint32_t op_n, double alone)
{
    return map_sum(m->alone_at, m->comm_at, op_n, alone);
}

/* ---- which segments ---- */

/* A collective of ranks that all arrive together, on ports only. */
static bool is_inner(const Sim *sim, const Runner *r, const Op *o)
{
    uint32_t group = op_is_collective(o->kind) ? r->rc->group[o->u.comm.group] : NONE_U32;
    return group != NONE_U32 && sim->classes.groups[group].members_n == 1 &&
           sim->classes.groups[group].nodes_n == 1;
}

static bool can_be_macro(const Sim *sim, const Runner *r, const Segment *s)
{
    if (sim->options->expanded || sim->timeline || sim->m->jitter > 0)
        return false;
    if (s->op_n == 0 || s->lane_n[LANE_COMPUTE] != s->op_n)
        return false;
    for (uint32_t i = 0; i < s->op_n; i++) {
        const Op *o = graph_ops(sim->g, s) + i;
        if (op_is_comm(o->kind) && !is_inner(sim, r, o))
            return false;
    }
    return true;
}

static void macro_fill(Sim *sim, const Runner *r, const Segment *s, Macro *m)
{
    uint32_t n = s->op_n;
    m->alone_at = PUSH_ARRAY(&sim->arena, int64_t, n + 1);
    m->slow_at = PUSH_ARRAY(&sim->arena, int64_t, n + 1);
    m->comm_at = PUSH_ARRAY(&sim->arena, int64_t, n + 1);
    m->lag_ns = INT64_MIN;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t op = s->op_first + i;
        const Op *o = &sim->g->ops[op];
        bool comm = op_is_comm(o->kind);
        OpCost c = r->cost->op[op];
        if (comm)
            c.alone_ns = c.slowed_ns =
                comm_cost_of(sim, op, r->rc->group[o->u.comm.group]).solo_ns;
        m->has_comm |= comm;
        m->lag_ns = max_i64(m->lag_ns, r->cost->launch_after[op] - m->alone_at[i]);
        m->alone_at[i + 1] = m->alone_at[i] + c.alone_ns;
        m->slow_at[i + 1] = m->slow_at[i] + c.slowed_ns;
        m->comm_at[i + 1] = m->comm_at[i] + (comm ? c.alone_ns : 0);
    }
}

static bool ports_are_free(const Sim *sim, const Runner *r)
{
    for (uint32_t k = RES_PORT_OUT; k <= RES_PORT_IN; k++)
        if (r->rc->resource[k] != NONE_U32 && sim->on_link_n[r->rc->resource[k]] > 0)
            return false;
    return true;
}

/* A transfer may be in its latency and not on the links yet; then the macro would not be told. */
static bool transfers_beside(const Runner *r)
{
    return r->transfer_n > 0;
}

static bool edges_done(const Sim *sim, const Runner *r, uint32_t instance)
{
    const Instance *in = &r->role->instances[instance];
    for (uint32_t e = 0; e < in->edge_n; e++) {
        const Edge *edge = &r->role->edges[in->edge_first + e];
        const Op *src =
            graph_ops(sim->g, segment_of(sim, r, edge->src_instance)) + edge->src_op;
        uint32_t seq =
            r->lane_base[(size_t)edge->src_instance * LANE_N + src->lane] + src->lane_index;
        if (edge->dst_op > 0 && src->lane != LANE_COMPUTE && r->lane[src->lane].done <= seq)
            return false;
    }
    return true;
}

bool macro_try(Sim *sim, Runner *r, uint32_t instance)
{
    uint32_t segment = r->role->instances[instance].segment;
    const Segment *s = &sim->g->segments[segment];
    Macro *m = &r->macro[segment];
    if (m->state == MACRO_UNKNOWN) {
        m->state = can_be_macro(sim, r, s) ? MACRO_YES : MACRO_NO;
        if (m->state == MACRO_YES)
            macro_fill(sim, r, s, m);
    }
    if (m->state == MACRO_NO || r->mid_edges[instance] || m->alone_at[s->op_n] == 0)
        return false;
    if (r->host_start[instance] + m->lag_ns > sim->now_ns || !edges_done(sim, r, instance))
        return false;
    if (m->has_comm && (transfers_beside(r) || !ports_are_free(sim, r)))
        return false;
    account(sim, r);
    LaneState *l = &r->lane[LANE_COMPUTE];
    l->busy = true;
    l->op = s->op_first;
    l->start_ns = sim->now_ns;
    l->group_n = l->group_left = s->op_n;
    r->running_macro = m;
    r->position = 0;
    r->compute_n++;
    compute_start(sim, r, l->op);
    return true;
}

/* Books the collectives that lie before op `end` of the running macro. */
static void book_inner(Sim *sim, Runner *r, const Segment *s, uint32_t end)
{
    for (uint32_t i = 0; i < end; i++) {
        const Op *o = graph_ops(sim->g, s) + i;
        if (!op_is_comm(o->kind))
            continue;
        uint32_t group = r->rc->group[o->u.comm.group];
        CommCost cost = comm_cost_of(sim, s->op_first + i, group);
        uint32_t stat = account_stat(sim, r, o, sim->classes.groups[group].size);
        account_transfer(sim, r, stat, o, &cost, cost.solo_ns, cost.solo_ns);
        r->stat->collectives[stat].exposed_ns += cost.solo_ns;
    }
}

static void path_of_part(LaneState *l, const Macro *m, int64_t passed_ns, double position)
{
    int64_t comm_ns = llround(macro_comm_at(m, l->group_n, position));
    l->path = l->cause;
    l->path.comm_ns += min_i64(comm_ns, passed_ns);
    l->path.compute_ns += passed_ns - min_i64(comm_ns, passed_ns);
}

void macro_finish(Sim *sim, Runner *r)
{
    LaneState *l = &r->lane[LANE_COMPUTE];
    const Macro *m = r->running_macro;
    const Segment *s = segment_of(sim, r, l->instance);
    account(sim, r);
    book_inner(sim, r, s, s->op_n);
    path_of_part(l, m, sim->now_ns - l->start_ns, (double)m->alone_at[s->op_n]);
    r->running_macro = NULL;
    r->compute_n--;
    l->busy = false;
    l->done += s->op_n;
    l->at += s->op_n;
    sim->ops_done += s->op_n;
    lane_wake_after(sim, r, LANE_COMPUTE);
}

/* Goes on with the op that the macro is in, as an op of its own. */
void macro_break(Sim *sim, Runner *r)
{
    LaneState *l = &r->lane[LANE_COMPUTE];
    const Macro *m = r->running_macro;
    const Segment *s = segment_of(sim, r, l->instance);
    account(sim, r);
    uint32_t i = op_of(m->alone_at, s->op_n, r->position);
    double into = r->position - (double)m->alone_at[i];
    uint32_t op = s->op_first + i;
    book_inner(sim, r, s, i);
    path_of_part(l, m, sim->now_ns - l->start_ns, r->position);
    l->cause = l->path;
    l->start_ns = sim->now_ns;
    l->done += i;
    l->at += i;
    sim->ops_done += i;
    l->op = op;
    l->group_n = l->group_left = 1;
    l->version++;
    r->running_macro = NULL;
    r->compute_n--;
    const Op *o = &sim->g->ops[op];
    if (op_is_comm(o->kind)) {
        flow_resume_collective(sim, r, op, into);
        return;
    }
    r->compute_n += o->kind != OP_RELEASE;
    r->left = (double)(m->alone_at[i + 1] - m->alone_at[i]) - into;
    compute_resume(sim, r);
}

/*
 * engine_account.c - where every nanosecond of a rank goes.
 *
 * account() runs before anything of a rank changes: the time since it ran last
 * belongs to the state that is about to end.
 *
 *     compute runs?   communication?   waits for a stage?
 *         yes              no                 -            compute
 *         yes              yes                -            compute, comm, overlapped
 *         no               yes                -            comm, exposed
 *         no               no                yes           bubble
 *         no               no                no            idle
 *
 * A macro is compute with communication of its own inside, known by its running
 * sums.  While a rank is held up (engine_hold.c) it is nothing: that has been counted.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/engine_collapse.h"

static bool is_pipeline_lane(uint32_t lane)
{
    return (lane >= LANE_SEND_ACT && lane <= LANE_RECV_GRAD) ||
           (lane >= LANE_SEND_ACT_UP && lane <= LANE_RECV_GRAD_UP);
}

/* Does a lane wait for one that another stage has not sent to, or fetched from, yet? */
static bool waits_for_stage(const Runner *r, const LaneState *waiting)
{
    if (waiting->wait != WAIT_LANE || !is_pipeline_lane(waiting->wait_lane))
        return false;
    const LaneState *l = &r->lane[waiting->wait_lane];
    return l->busy && l->transfers_n == 0;
}

/* Idle because of another stage: the compute lane waits for it, or the host, which has launched
 * nothing beyond (Software.p2p_blocks_host). */
static bool in_bubble(const Sim *sim, const Runner *r)
{
    const LaneState *c = &r->lane[LANE_COMPUTE];
    if (c->busy)
        return op_is_p2p(sim->g->ops[c->op].kind) && c->transfers_n == 0;
    return waits_for_stage(r, c->wait == WAIT_GATE ? &r->lane[LANE_HOST] : c);
}

static void expose(Runner *r, int64_t ns)
{
    for (uint32_t left = r->comm_lanes; left; left &= left - 1)
        r->stat->collectives[r->lane[first_lane(left)].stat].exposed_ns += ns;
}

/* all_ns have passed; compute_ns of them with compute, own_comm_ns with a macro's own transfers. */
static void book(Runner *r, int64_t all_ns, int64_t compute_ns, int64_t own_comm_ns)
{
    if (r->held)
        return;
    RankStat *s = r->stat;
    int64_t comm_ns = r->comm_lanes ? all_ns : own_comm_ns;
    int64_t exposed_ns = all_ns - compute_ns;
    s->compute_ns += compute_ns;
    s->comm_ns += comm_ns;
    s->overlapped_ns += comm_ns - exposed_ns;
    s->exposed_ns += exposed_ns;
    if (exposed_ns > 0)
        expose(r, exposed_ns);
}

static void book_no_compute(Sim *sim, Runner *r, int64_t dt)
{
    RankStat *s = r->stat;
    if (r->held)
        return;
    if (r->comm_lanes) {
        s->comm_ns += dt;
        s->exposed_ns += dt;
        expose(r, dt);
    } else if (in_bubble(sim, r)) {
        s->bubble_ns += dt;
    } else {
        s->idle_ns += dt;
    }
}

/* Growth of a running sum of the macro between two positions, in whole nanoseconds. */
static int64_t grown(const int64_t *sum, const MacroPlace *before, const MacroPlace *after)
{
    return ns_round(macro_sum(after, sum)) - ns_round(macro_sum(before, sum));
}

/* Kernels of other lanes ran while the macro got from one position to another: what of it was only
 * transfers is not exposed, as book_inner takes it to be. */
static void cover(const Sim *sim, Runner *r, double from, double to)
{
    const Macro *m = r->running_macro;
    uint32_t instance = r->lane[LANE_COMPUTE].instance;
    for (uint32_t i = 0; i < m->comms_n; i++) {
        const MacroComm *c = &m->comms[i];
        double begin = fmax(from, (double)c->start_ns), end = fmin(to, (double)c->end_ns);
        if (begin >= end)
            continue;
        uint32_t part = m->parts_n > 0 ? chain_part_at(m, begin) : 0;
        const Op *o = graph_ops(sim->g, segment_of(sim, r, instance + part)) + c->op;
        uint32_t size = sim->classes.groups[r->rc->group[o->u.comm.group]].size;
        double computes = macro_map(m, m->alone_at, m->compute_at, end) -
                          macro_map(m, m->alone_at, m->compute_at, begin);
        r->stat->collectives[account_stat(sim, r, o, size)].exposed_ns -=
            llround(end - begin - computes);
    }
}

static void advance_macro(const Sim *sim, Runner *r, int64_t dt)
{
    const Macro *m = r->running_macro;
    double before = r->position;
    MacroPlace a = { 0 };
    if (r->slowed || m->has_comm)
        a = macro_here(r); /* and from here on it is placed */
    if (r->slowed) {
        double slow = macro_sum(&a, m->slow_at);
        r->here = macro_place(m, m->slow_at, slow + (double)dt, a.low);
        r->position = macro_sum(&r->here, m->alone_at);
    } else {
        double end = (double)m->alone_at[m->intervals_n], to = before + (double)dt;
        r->position = to < end ? to : end;
        r->placed = false;
    }
    if (!m->has_comm) {
        book(r, dt, dt, 0);
        return;
    }
    /* Every moment of a macro has compute or communication of its own. */
    MacroPlace b = macro_here(r);
    int64_t only_comm = (int64_t)(r->position - before) - grown(m->compute_at, &a, &b);
    only_comm = max_i64(0, min_i64(only_comm, dt));
    int64_t own = max_i64(only_comm, min_i64(grown(m->comm_at, &a, &b), dt));
    if (r->compute_n > 1 && only_comm > 0) { /* more than the macro itself */
        cover(sim, r, before, r->position);
        only_comm = 0;
    }
    book(r, dt, dt - only_comm, own);
}

static void advance_compute(const Sim *sim, Runner *r, int64_t dt)
{
    const LaneState *l = &r->lane[LANE_COMPUTE];
    if (!l->busy || op_is_comm(sim->g->ops[l->op].kind))
        return;
    const OpCost *c = &r->cost->op[l->op];
    double rate =
        r->slowed && c->slowed_ns > 0 ? (double)c->alone_ns / (double)c->slowed_ns : 1;
    double left = r->left - (double)dt * rate;
    r->left = left > 0 ? left : 0;
}

void account_time(Sim *sim, Runner *r)
{
    int64_t dt = sim->now_ns - r->accounted_ns;
    r->accounted_ns = sim->now_ns;
    if (r->running_macro) {
        advance_macro(sim, r, dt);
        return;
    }
    advance_compute(sim, r, dt);
    if (r->compute_n > 0)
        book(r, dt, dt, 0);
    else
        book_no_compute(sim, r, dt);
}

/* ---- per kind of transfer ---- */

uint32_t account_stat(const Sim *sim, Runner *r, const Op *op, uint32_t group_size)
{
    RankStat *s = r->stat;
    if (sim->options->totals)
        return SIM_COLLECTIVES_MAX - 1; /* which nobody reads */
    for (uint32_t i = 0; i < s->collectives_n; i++)
        if (s->collectives[i].kind == op->kind && s->collectives[i].group == op->u.comm.group)
            return i;
    if (s->collectives_n == SIM_COLLECTIVES_MAX)
        return SIM_COLLECTIVES_MAX - 1;
    s->collectives[s->collectives_n] = (CollectiveStat){ .kind = op->kind,
                                                         .group = op->u.comm.group,
                                                         .group_size = group_size };
    return s->collectives_n++;
}

double account_wire_bytes(const Op *op, uint32_t group_size)
{
    return op_is_p2p(op->kind) ? (double)op->u.comm.bytes
                               : ring_traffic(op->kind, group_size, op->u.comm.bytes);
}

void account_transfer(Runner *r, uint32_t stat, const Op *op, const CommCost *cost,
                      double wire_bytes, int64_t time_ns, int64_t transfer_ns)
{
    CollectiveStat *c = &r->stat->collectives[stat];
    c->count++;
    c->bytes += op->u.comm.bytes;
    c->time_ns += time_ns;
    c->transfer_ns += transfer_ns;
    c->wire_bytes += wire_bytes;
    if (op->u.comm.bytes >= c->largest_bytes) {
        c->largest_bytes = op->u.comm.bytes;
        c->algorithm = cost->algorithm;
        c->protocol = cost->protocol;
    }
}

/* ---- bounds ---- */

/* What a transfer asks of links, and of how many bytes; own holds the uses of a send. */
static Demand demand_on_links(Sim *sim, const Runner *r, const Op *o, uint32_t op, Use *own,
                              double *bytes)
{
    const GroupSpec *spec = &sim->g->groups[o->u.comm.group];
    *bytes = (double)o->u.comm.bytes;
    if (o->kind == OP_RECV)
        return (Demand){ 0 }; /* its sender's */
    if (op_is_p2p(o->kind)) {
        uint32_t peer = group_member(spec, r->rc->rank, o->u.comm.peer);
        return (Demand){ own, classes_p2p_uses(&sim->classes, r->id, peer, own), 0 };
    }
    uint32_t group = r->rc->group[o->u.comm.group];
    *bytes = comm_cost_of(sim, op, group)->traffic_bytes;
    return collective_demand(&sim->classes.groups[group], o->kind);
}

void account_load(Sim *sim, const Runner *r, const Segment *s, double times, double *link_ns)
{
    for (uint32_t i = s->op_first; i < s->op_first + s->op_n; i++) {
        const Op *o = &sim->g->ops[i];
        if (!op_is_comm(o->kind) ||
            (!op_is_p2p(o->kind) &&
             sim->classes.groups[r->rc->group[o->u.comm.group]].member[0] != r->id))
            continue;
        Use own[RES_RANK_N + 2];
        double bytes;
        Demand d = demand_on_links(sim, r, o, i, own, &bytes);
        for (uint32_t u = 0; u < d.uses_n; u++) {
            uint32_t link = d.uses[u].resource;
            link_ns[link] += times * bytes * d.uses[u].coefficient /
                             sim->classes.resources[link].bytes_per_ns;
        }
    }
}

typedef struct SegmentSum {
    uint32_t filled_for; /* rank class + 1; 0: nobody */
    bool transfers;
    double times; /* that the rank class goes through it */
    double model_flops, hardware_flops, flops_ns, memory_ns, launch_ns;
} SegmentSum;

static void sum_segment(Sim *sim, const Runner *r, uint32_t segment, SegmentSum *sum)
{
    const Segment *s = &sim->g->segments[segment];
    *sum = (SegmentSum){ .filled_for = r->id + 1,
                         .launch_ns = (double)r->cost->launch_total[segment] };
    for (uint32_t i = 0; i < s->op_n; i++) {
        const Op *o = graph_ops(sim->g, s) + i;
        if (op_is_comm(o->kind)) {
            sum->transfers = true;
            continue;
        }
        sum->model_flops += op_model_flops(o);
        sum->hardware_flops += o->model_flops;
        if (o->lane == LANE_COMPUTE) {
            sum->flops_ns += op_flops_bound_ns(r->cost->gpu, o) / r->cost->speed;
            sum->memory_ns += op_memory_bound_ns(r->cost->gpu, o) / r->cost->speed;
        }
    }
}

/* ns: by resource, of all ranks. */
static void bound_links(const Runner *r, const double *ns)
{
    for (uint32_t k = 0; k < RES_RANK_N; k++)
        if (r->rc->resource[k] != NONE_U32)
            r->stat->link_bound_ns = fmax(r->stat->link_bound_ns, ns[r->rc->resource[k]]);
}

static void close_rank(Sim *sim, Runner *r, SegmentSum *sums, double *link_ns)
{
    RankStat *s = r->stat;
    for (uint32_t i = 0; i < r->role->instances_n; i++) {
        uint32_t segment = sim->same[r->program.spot[i].segment];
        if (sums[segment].filled_for != r->id + 1)
            sum_segment(sim, r, segment, &sums[segment]);
        sums[segment].times += repeat_count(&s->repeat, i);
    }
    for (uint32_t i = 0; i < sim->g->segments_n; i++) {
        const SegmentSum *sum = &sums[i];
        if (sum->filled_for != r->id + 1)
            continue;
        s->launch_bound_ns += sum->times * sum->launch_ns;
        s->model_flops += sum->times * sum->model_flops;
        s->hardware_flops += sum->times * sum->hardware_flops;
        s->flops_bound_ns += sum->times * sum->flops_ns;
        s->memory_bound_ns += sum->times * sum->memory_ns;
        if (sum->transfers)
            account_load(sim, r, &sim->g->segments[i], sum->times, link_ns);
    }
}

/* A host's launches follow one another, whatever rank they are for. */
static void close_hosts(Sim *sim)
{
    for (uint32_t i = 0; i < sim->hosts_n; i++) {
        const Host *h = &sim->hosts[i];
        double sum = 0;
        for (uint32_t t = 0; t < h->members_n; t++)
            sum += sim->runners[h->member[t]].stat->launch_bound_ns;
        for (uint32_t t = 0; t < h->members_n; t++)
            sim->runners[h->member[t]].stat->launch_bound_ns = sum;
    }
}

/* Takes ns out of the first, and out of the second what the first has not. */
static void leave_out(int64_t ns, int64_t *first, int64_t *second)
{
    int64_t of_first = min_i64(ns, *first);
    *first -= of_first;
    *second -= ns - of_first;
}

/* Without what passed before the rank began; the rest is waiting. */
static Path path_of_step(const Sim *sim, const Runner *r)
{
    Path p = path_longest(r);
    int64_t before_ns = start_of(sim, r);
    leave_out(before_ns, &p.bubble_ns, &p.compute_ns);
    if (sim->start_ns && !sim->options->totals)
        p.bubble_ns += sim->result->step_ns - (r->stat->end_ns - before_ns);
    return p;
}

void account_close(Sim *sim)
{
    SimResult *result = sim->result;
    for (uint32_t i = 0; i < sim->runners_n; i++) {
        const Runner *r = &sim->runners[i];
        result->step_ns = max_i64(result->step_ns, r->stat->end_ns - start_of(sim, r));
    }
    SegmentSum *sums = mem_zero(sim->g->segments_n, sizeof *sums);
    double *link_ns = mem_zero((size_t)sim->classes.resources_n + 1, sizeof *link_ns);
    bool is_pipeline = sim->g->roles_n > 1;
    int64_t latest = -1;
    for (uint32_t i = 0; i < sim->runners_n; i++) {
        Runner *r = &sim->runners[i];
        RankStat *s = r->stat;
        leave_out(start_of(sim, r), &s->idle_ns, &s->bubble_ns);
        int64_t rest =
            result->step_ns - (s->compute_ns + s->exposed_ns + s->bubble_ns + s->idle_ns);
        *(is_pipeline ? &s->bubble_ns : &s->idle_ns) += rest;
        close_rank(sim, r, sums, link_ns);
        int64_t decides_ns = sim->g->open_ended ? s->compute_ns + s->exposed_ns : s->end_ns;
        if (decides_ns <= latest)
            continue;
        latest = decides_ns;
        result->path = path_of_step(sim, r);
    }
    for (uint32_t i = 0; i < sim->runners_n; i++)
        bound_links(&sim->runners[i], link_ns);
    close_hosts(sim);
    result->ops = sim->ops_done;
    free(link_ns);
    free(sums);
}

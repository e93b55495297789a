/*
 * engine.c - the main loop: events, lanes, the launching host.
 */
#include "sim/engine.h"

#include <string.h>

#include "sim/engine_collapse.h"

enum { PROGRESS_EVERY = 1 << 16 };

/* ---- the host ---- */

/* May op start as far as other lanes are concerned?  Otherwise notes whom to wait for. */
static bool dependencies_done(Sim *sim, Runner *r, uint32_t lane, uint32_t instance,
                              uint32_t op);

void host_anchor(Sim *sim, Host *h, uint64_t place, Path path)
{
    GROW(h->anchors, h->anchors_n, h->anchors_cap);
    h->anchors[h->anchors_n++] = (Anchor){ place, sim->now_ns, path };
}

/* A host-wait op: the host goes on when what it waits for is done, at the earliest now. */
static bool host_gate(Sim *sim, Runner *r)
{
    LaneState *host = &r->lane[LANE_HOST];
    const Segment *s = segment_of(sim, r, r->host_next);
    while (host->at < s->lane_n[LANE_HOST]) {
        uint32_t op = op_at(sim, r, r->host_next, LANE_HOST, host->at);
        uint8_t waited_for = host->wait == WAIT_LANE ? host->wait_lane : LANE_N;
        if (!dependencies_done(sim, r, LANE_HOST, r->host_next, op))
            return false;
        host->wait = WAIT_NONE;
        if (waited_for < LANE_N && sim->now_ns > r->host->now_ns) {
            r->host->now_ns = sim->now_ns;
            host_anchor(sim, r->host, host_place(r->host, r->host->instance, r->host->turn),
                        path_of_lane(r, waited_for));
        }
        host->at++;
        host->done++;
        sim->ops_done++;
    }
    host->at = 0;
    return true;
}

/* The host reaches the next instance of r, which has one; false: it has to wait there. */
static bool host_launch(Sim *sim, Runner *r)
{
    if (segment_of(sim, r, r->host_next)->lane_n[LANE_HOST] && !host_gate(sim, r))
        return false;
    Host *h = r->host;
    r->host_start[r->host_next] = h->now_ns;
    int64_t launch_ns = r->cost->launch_total[r->program.spot[r->host_next].segment];
    h->now_ns = min_i64(h->now_ns + launch_ns, 2 * NS_MAX);
    r->host_next++;
    return true;
}

void host_wake_gated(Sim *sim, const Host *h)
{
    for (uint32_t i = 0; i < h->members_n; i++) {
        Runner *r = &sim->runners[h->member[i]];
        for (uint32_t lane = 0; lane < LANE_HOST; lane++)
            if (r->lane[lane].wait == WAIT_GATE && r->lane[lane].instance < r->host_next)
                sim_wake(sim, r, lane);
    }
}

static void host_advance(Sim *sim, Host *h)
{
    uint64_t before = host_place(h, h->instance, h->turn);
    while (h->instance < h->instances_n) {
        Runner *r = &sim->runners[h->member[h->turn]];
        if (r->host_next < r->role->instances_n && !host_launch(sim, r))
            break;
        if (++h->turn == h->members_n) {
            h->turn = 0;
            h->instance++;
        }
    }
    if (host_place(h, h->instance, h->turn) > before)
        host_wake_gated(sim, h);
}

/* ---- lanes ---- */

uint32_t op_at(const Sim *sim, const Runner *r, uint32_t instance, uint32_t lane, uint32_t at)
{
    uint32_t segment = r->program.spot[instance].segment;
    return sim->lane_ops[sim->lane_first[segment * LANE_N + lane] + at];
}

static bool wait_for(Runner *r, uint32_t lane, uint32_t other, uint32_t done)
{
    if (r->lane[other].done >= done)
        return true;
    r->lane[lane].wait = WAIT_LANE;
    r->lane[lane].wait_lane = (uint8_t)other;
    r->lane[lane].wait_done = done;
    r->lane[lane].supply_waits += other == LANE_COPY;
    r->lane[other].waiters |= 1u << lane;
    return false;
}

static bool dependencies_done(Sim *sim, Runner *r, uint32_t lane, uint32_t instance,
                              uint32_t op)
{
    if (!sim->waits[op])
        return true;
    const Graph *g = sim->g;
    const Spot *spot = &r->program.spot[instance];
    const Segment *s = &g->segments[spot->segment];
    const Op *o = &g->ops[op];
    for (uint32_t d = 0; d < o->dep_n; d++) {
        const Op *dep = graph_ops(g, s) + g->deps[o->dep_first + d];
        if (dep->lane != lane &&
            !wait_for(r, lane, dep->lane, op_number(&r->program, instance, dep) + 1))
            return false;
    }
    const SpotWait *w = r->program.wait + spot->wait_first;
    for (const SpotWait *end = w + spot->wait_n; w < end; w++)
        if (w->op == op - s->op_first && w->lane != lane &&
            !wait_for(r, lane, w->lane, w->ops_n))
            return false;
    return true;
}

/* Moves the lane's head to its next op; false at the end of the program. */
static bool lane_head(Sim *sim, Runner *r, uint32_t lane)
{
    LaneState *l = &r->lane[lane];
    if (l->at > 0 && l->at >= segment_of(sim, r, l->instance)->lane_n[lane]) {
        l->instance++;
        l->at = 0;
    }
    while (r->program.on_lane[lane][l->place] < l->instance)
        l->place++;
    l->instance = r->program.on_lane[lane][l->place];
    if (l->instance < r->role->instances_n)
        return true;
    if (l->wait != WAIT_END && --r->lanes_left == 0)
        r->stat->end_ns = sim->now_ns;
    l->wait = WAIT_END;
    return false;
}

/* Is the op launched?  Otherwise the lane is woken when it is. */
static bool launched(Sim *sim, Runner *r, uint32_t lane, uint32_t op)
{
    LaneState *l = &r->lane[lane];
    if (l->instance >= r->host_next) {
        l->wait = WAIT_GATE;
        return false;
    }
    if (r->host->now_ns <= sim->now_ns) /* as all is that it has reached */
        return true;
    int64_t at_ns = r->host_start[l->instance] + r->cost->launch_after[op];
    if (at_ns <= sim->now_ns)
        return true;
    l->wait = WAIT_HOST;
    l->supply_waits++;
    evq_push(&sim->events, at_ns, EVENT_LANE, r->id, lane);
    return false;
}

/* Is that all there is of the instance: a release? */
static bool takes_no_time(const Sim *sim, const Runner *r, uint32_t instance, uint32_t op)
{
    return sim->g->ops[op].kind == OP_RELEASE && segment_of(sim, r, instance)->op_n == 1;
}

static void lane_start(Sim *sim, Runner *r, uint32_t lane, uint32_t op)
{
    LaneState *l = &r->lane[lane];
    path_start(sim, r, lane);
    l->wait = WAIT_NONE;
    const Op *o = &sim->g->ops[op];
    if (lane == LANE_COMPUTE && l->at == 0 && sim->steady)
        steady_pass(sim, r, l->instance);
    if (lane == LANE_COMPUTE && !takes_no_time(sim, r, l->instance, op) &&
        ((l->at == 0 && macro_try(sim, r, l->instance)) ||
         stretch_try(sim, r, l->instance, op) ||
         (!op_is_comm(o->kind) && run_try(sim, r, l->instance))))
        return;
    l->busy = true;
    l->op = op;
    l->start_ns = sim->now_ns;
    l->group_n = l->group_left = 1;
    if (op_is_comm(o->kind)) {
        comm_post(sim, r, lane);
    } else if (lane == LANE_COMPUTE) {
        compute_start(sim, r, op);
    } else {
        account(sim, r);
        r->compute_n += o->kind != OP_H2D && o->kind != OP_RELEASE;
        int64_t ns = r->cost->op[op].alone_ns;
        if (ns == 0)
            lane_complete(sim, r, lane);
        else
            evq_push(&sim->events, sim->now_ns + ns, EVENT_KERNEL, r->id, lane);
    }
}

static void lane_try(Sim *sim, Runner *r, uint32_t lane)
{
    LaneState *l = &r->lane[lane];
    if (lane == LANE_HOST) {
        host_advance(sim, r->host);
        return;
    }
    if (l->busy || !lane_head(sim, r, lane))
        return;
    uint32_t op = op_at(sim, r, l->instance, lane, l->at);
    if (launched(sim, r, lane, op) && dependencies_done(sim, r, lane, l->instance, op))
        lane_start(sim, r, lane, op);
}

/* Wakes the lanes whose wait is over.  Some have been woken otherwise since they began to wait. */
static void wake_waiters(Sim *sim, Runner *r, uint32_t lane)
{
    LaneState *l = &r->lane[lane];
    for (uint32_t left = l->waiters; left; left &= left - 1) {
        uint32_t other = first_lane(left);
        const LaneState *w = &r->lane[other];
        bool waits = w->wait == WAIT_LANE && w->wait_lane == lane;
        if (waits && w->wait_done > l->done)
            continue;
        l->waiters &= ~(1u << other);
        if (waits)
            sim_wake(sim, r, other);
    }
}

void lane_wake_after(Sim *sim, Runner *r, uint32_t lane)
{
    sim_wake(sim, r, lane);
    wake_waiters(sim, r, lane);
}

void lane_rest_after(Sim *sim, Runner *r, uint32_t lane)
{
    wait_for(r, lane, LANE_COMPUTE, r->lane[LANE_COMPUTE].done + 1);
    wake_waiters(sim, r, lane);
}

void lane_complete(Sim *sim, Runner *r, uint32_t lane)
{
    LaneState *l = &r->lane[lane];
    const Op *o = &sim->g->ops[l->op];
    if (!op_is_comm(o->kind)) {
        account(sim, r);
        r->compute_n -= o->kind != OP_H2D && o->kind != OP_RELEASE;
        path_computed(sim, r, lane);
    }
    for (uint32_t i = 0; i < l->group_n && sim->timeline; i++)
        record_op(sim, r, lane, l->instance, l->op + i);
    l->busy = false;
    l->done += l->group_n;
    l->at += l->group_n;
    sim->ops_done += l->group_n;
    lane_wake_after(sim, r, lane);
}

/* ---- the loop ---- */

void sim_settle(Sim *sim)
{
    while (sim->todo_head < sim->todo_n && !sim->failed) {
        Todo t = sim->todo[sim->todo_head++];
        if (t.lane == LANE_N)
            compute_look(sim, &sim->runners[t.runner]);
        else
            lane_try(sim, &sim->runners[t.runner], t.lane);
    }
    sim->todo_head = sim->todo_n = 0;
}

static void handle(Sim *sim, const Event *e)
{
    switch (e->kind) {
    case EVENT_LANE:
        sim_wake(sim, &sim->runners[e->a], e->b);
        break;
    case EVENT_COMPUTE:
        compute_event(sim, &sim->runners[e->a]);
        break;
    case EVENT_KERNEL:
        lane_complete(sim, &sim->runners[e->a], e->b);
        break;
    case EVENT_HELD:
        hold_event(sim, &sim->runners[e->a], e->b);
        break;
    case EVENT_FLOW_DATA:
        flow_event(sim, e->a, true);
        break;
    default:
        flow_event(sim, e->a, false);
        break;
    }
}

/* False: ends early, see SimResult.repeated. */
static bool run(Sim *sim)
{
    for (uint32_t i = 0; i < sim->hosts_n; i++)
        host_advance(sim, &sim->hosts[i]);
    for (uint32_t i = 0; i < sim->runners_n; i++)
        for (uint32_t lane = 0; lane < LANE_HOST; lane++)
            sim_wake(sim, &sim->runners[i], lane);
    sim_settle(sim);
    Event e;
    while (!sim->failed && evq_pop(&sim->events, &e)) {
        ASSERT(e.at_ns >= sim->now_ns);
        if (e.at_ns > NS_MAX) {
            sim->failed = true;
            err_set(sim->err, "the step takes longer than 30 years");
            break;
        }
        sim->now_ns = e.at_ns;
        handle(sim, &e);
        sim_settle(sim);
        if (sim->steady && sim->runners[0].lane[LANE_COMPUTE].instance >= sim->steady_next &&
            !steady_look(sim))
            return false;
        if (++sim->result->events % PROGRESS_EVERY == 0 && sim->options->progress)
            sim->options->progress(sim->options->user,
                                   (double)sim->ops_done / (double)sim->ops_total);
    }
    return true;
}

bool sim_run_from(const int64_t *start_ns, SimResult *result, const Graph *g, const Machine *m,
                  const Software *sw, const SimOptions *options, Err *err)
{
    *result = (SimResult){ 0 };
    Sim sim = { .g = g,
                .m = m,
                .sw = sw,
                .options = options,
                .timeline = options->timeline,
                .result = result,
                .start_ns = start_ns,
                .err = err };
    bool ok = sim_setup(&sim);
    bool whole = ok && steady_begin(&sim) && run(&sim);
    if (whole)
        ok = !sim.failed && report_stuck(&sim);
    if (whole && ok) {
        account_close(&sim);
        record_steps(&sim);
        links_record(&sim);
    }
    sim_teardown(&sim);
    if (!ok)
        sim_result_free(result);
    return ok;
}

void sim_result_free(SimResult *result)
{
    arena_free(&result->arena);
    *result = (SimResult){ 0 };
}

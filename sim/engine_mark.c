/*
 * engine_mark.c - the state of a run at an instant, as numbers that do not know the time.
 *
 * Two marks with equal words go on alike, as far as their programs are alike: times
 * stand relative to now, places in the program relative to the rank's compute lane,
 * flows by who is in them and not by where they lie in memory.  Lanes whose next op is
 * beyond Steady.limit ("parked": the reduction of gradients, the optimizer) stand still
 * and say where.  The copies of the input wait for nothing but their launch, so their
 * lane is as far ahead as the host and, like the host, no part of the state.
 *
 * Each mark also numbers the paths that are alive (Path.origin), so that the next can
 * say which of them each of its own goes back to.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/engine_steady.h"

static void put(Mark *m, int64_t word)
{
    GROW(m->words, m->words_n, m->words_cap);
    m->words[m->words_n++] = word;
}

static void put_pair(Mark *m, uint32_t a, uint32_t b)
{
    put(m, a);
    put(m, b);
}

static void put_ns(Mark *m, int64_t ns)
{
    GROW(m->times, m->times_n, m->times_cap);
    m->times[m->times_n++] = ns;
}

static uint32_t same_op(const Steady *s, uint32_t op)
{
    const Graph *g = s->sim->g;
    uint32_t segment = s->segment_of[op];
    return g->segments[s->sim->same[segment]].op_first + (op - g->segments[segment].op_first);
}

bool mark_is_parked(const Steady *s, const Runner *r, uint32_t lane)
{
    const LaneState *l = &r->lane[lane];
    return lane == LANE_COPY || (!l->busy && l->instance >= s->limit[r->rc->role]);
}

/* ---- ranks ---- */

static void put_busy(const Steady *s, Mark *m, const LaneState *l)
{
    put(m, same_op(s, l->op));
    put_pair(m, l->group_n, l->group_left);
    put(m, l->transfers_n);
    put_ns(m, l->start_ns - m->now_ns);
    if (l->transfers_n > 0)
        put_ns(m, l->transfer_start_ns - m->now_ns);
}

static void put_lane(const Steady *s, Mark *m, const Runner *r, uint32_t lane)
{
    const LaneState *l = &r->lane[lane];
    bool parked = mark_is_parked(s, r, lane);
    uint32_t base = parked ? 0 : r->lane[LANE_COMPUTE].instance;
    put(m, (int64_t)parked << 1 | l->busy);
    put(m, (int64_t)l->instance - base);
    put(m, l->at);
    if (parked) {
        put(m, l->done);
        return;
    }
    put(m, l->done - ops_before(&r->program, lane, l->instance));
    put_pair(m, (uint32_t)l->wait, l->waiters);
    if (l->wait == WAIT_LANE) {
        put(m, l->wait_lane);
        put(m, (int64_t)l->wait_done - r->lane[l->wait_lane].done);
    }
    bool in_macro =
        lane != LANE_COMPUTE && r->running_macro && r->running_macro->lanes >> lane & 1u;
    if (l->busy && !in_macro)
        put_busy(s, m, l);
}

static void put_compute(const Steady *s, Mark *m, const Runner *r)
{
    const Sim *sim = s->sim;
    const LaneState *l = &r->lane[LANE_COMPUTE];
    bool runs = l->busy && !op_is_comm(sim->g->ops[l->op].kind);
    put(m, (int64_t)(r->running_macro != NULL) << 2 | r->slowed << 1 | runs);
    const Macro *macro = r->running_macro;
    put_pair(m, macro ? macro->run_n : 0, macro ? macro->end_op : 0);
    put_pair(m, macro ? macro->parts_n : 0, macro ? macro->number : 0);
    put_pair(m, r->guard, r->slows > 0);
    put_ns(m, macro ? llround(r->booked_to) : 0);
    put_ns(m, r->slows > 0 ? llround(r->lost_from) : 0);
    put_ns(m, macro ? llround(r->position) : runs ? llround(r->left) : 0);
    put_ns(m, r->accounted_ns - sim->now_ns);
    put_pair(m, r->compute_n, r->transfer_n);
    put(m, r->comm_lanes);
    put(m, r->stat->collectives_n);
    for (uint32_t i = 0; i < r->channels_n; i++) {
        const Channel *c = &r->channels[i];
        put(m, c->posts_n);
        for (uint32_t k = 0; k < c->posts_n; k++)
            put_pair(m, c->posts[k].lane, same_op(s, c->posts[k].op));
    }
}

/* A host that has launched everything is looked at by itself (engine_steady.c). */
static void put_host(Mark *m, const Sim *sim, const Runner *r)
{
    uint32_t first = r->lane[LANE_COMPUTE].instance;
    if (r->host_next == r->role->instances_n) {
        put(m, -1);
        return;
    }
    for (uint32_t left = r->program.lanes & ~(1u << LANE_COPY); left; left &= left - 1) {
        const LaneState *l = &r->lane[first_lane(left)];
        first = l->instance < first ? l->instance : first;
    }
    put(m, r->host_next - r->lane[LANE_COMPUTE].instance);
    put_ns(m, r->host->now_ns - sim->now_ns);
    put_ns(m, r->host->anchors[r->host->anchors_n - 1].at_ns - sim->now_ns);
    for (uint32_t i = first; i < r->host_next; i++)
        put_ns(m, r->host_start[i] - sim->now_ns);
}

static void put_place(Steady *s, Mark *m, const Runner *r)
{
    RunnerMark *k = &m->runners[r->id];
    *k = (RunnerMark){ .compute = r->lane[LANE_COMPUTE].instance,
                       .lowest = r->lane[LANE_COMPUTE].instance,
                       .highest = r->lane[LANE_COMPUTE].instance };
    for (uint32_t left = r->program.lanes; left; left &= left - 1) {
        const LaneState *l = &r->lane[first_lane(left)];
        if (mark_is_parked(s, r, first_lane(left)))
            continue;
        k->lowest = l->instance < k->lowest ? l->instance : k->lowest;
        k->highest = l->instance > k->highest ? l->instance : k->highest;
        k->supply_waits += l->supply_waits;
    }
    if (r->running_macro && r->running_macro->parts_n > 0) {
        uint32_t last = k->compute + r->running_macro->parts_n - 1;
        k->highest = last > k->highest ? last : k->highest;
    }
    k->host_done = r->host_next == r->role->instances_n;
    if (!k->host_done && r->host_next > k->highest)
        k->highest = r->host_next;
    k->host_ns = r->host_start[k->compute];
    k->compute += s->rewound[r->id];
    k->lowest += s->rewound[r->id];
    k->highest += s->rewound[r->id];
}

static void put_runner(Steady *s, Mark *m, const Runner *r)
{
    for (uint32_t left = r->program.lanes & ~(1u << LANE_COPY); left; left &= left - 1)
        put_lane(s, m, r, first_lane(left));
    const LaneState *host = &r->lane[LANE_HOST];
    put_pair(m, (uint32_t)host->wait, host->at);
    if (host->wait == WAIT_LANE) {
        put(m, host->wait_lane);
        put(m, (int64_t)host->wait_done - r->lane[host->wait_lane].done);
    }
    put_compute(s, m, r);
    put_host(m, s->sim, r);
    put_place(s, m, r);
}

/* ---- flows ---- */

static int compare_flows(const Flow *a, const Flow *b)
{
    const uint32_t x[] = { a->group, a->lane, a->from, a->to, a->from_lane, a->to_lane, a->op };
    const uint32_t y[] = { b->group, b->lane, b->from, b->to, b->from_lane, b->to_lane, b->op };
    for (size_t i = 0; i < ARRAY_N(x); i++)
        if (x[i] != y[i])
            return x[i] < y[i] ? -1 : 1;
    return a->start_ns < b->start_ns ? -1 : a->start_ns > b->start_ns;
}

/* Flows in use in an order of their own; few are, so they are sorted by insertion. */
static void order_flows(Steady *s)
{
    Sim *sim = s->sim;
    s->flows_n = 0;
    if (s->flows_cap < sim->flows_n) {
        s->flows_cap = sim->flows_cap;
        s->flow = mem_resize(s->flow, s->flows_cap, sizeof *s->flow);
        s->number = mem_resize(s->number, s->flows_cap, sizeof *s->number);
    }
    for (uint32_t i = 0; i < sim->flows_n; i++) {
        uint32_t at = s->flows_n;
        if (!sim->flows[i].used)
            continue;
        for (; at > 0 && compare_flows(&sim->flows[i], &sim->flows[s->flow[at - 1]]) < 0; at--)
            s->flow[at] = s->flow[at - 1];
        s->flow[at] = i;
        s->flows_n++;
    }
    for (uint32_t i = 0; i < s->flows_n; i++)
        s->number[s->flow[i]] = i;
}

/* Its rate follows from who shares its links. */
static void put_flow(const Steady *s, Mark *m, const Flow *f)
{
    put_pair(m, f->group, f->lane);
    put(m, same_op(s, f->op));
    if (f->group == NONE_U32) {
        put_pair(m, f->from, f->to);
        put_pair(m, f->from_lane, f->to_lane);
        put(m, same_op(s, f->to_op));
    }
    put_pair(m, f->moving, f->direct);
    put_ns(m, f->start_ns - m->now_ns);
    double left_ns = f->left / f->solo_rate;
    put_ns(m, left_ns < (double)NS_MAX ? llround(left_ns) : NS_MAX);
    if (f->moving || f->direct)
        put_ns(m, f->since_ns - m->now_ns);
}

static void put_flows(Steady *s, Mark *m)
{
    const Sim *sim = s->sim;
    order_flows(s);
    put(m, s->flows_n);
    for (uint32_t i = 0; i < s->flows_n; i++)
        put_flow(s, m, &sim->flows[s->flow[i]]);
    for (uint32_t i = 0; i < sim->classes.resources_n; i++) {
        put(m, sim->on_link_n[i]);
        for (uint32_t k = 0; k < sim->on_link_n[i]; k++)
            put(m, s->number[sim->on_link[i][k]]);
    }
    for (uint32_t i = 0; i < sim->classes.groups_n * LANE_N; i++)
        if (sim->meetings[i].arrived_n > 0) {
            put_pair(m, i, sim->meetings[i].arrived_n);
            put(m, same_op(s, sim->meetings[i].op));
        }
}

/* ---- events ---- */

bool mark_event_counts(const Steady *s, const Event *e)
{
    return (e->kind != EVENT_LANE && e->kind != EVENT_KERNEL) ||
           !mark_is_parked(s, &s->sim->runners[e->a], e->b);
}

static int compare_events(const void *a, const void *b)
{
    const Event *x = a, *y = b;
    if (x->at_ns != y->at_ns)
        return x->at_ns < y->at_ns ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

static void put_events(Steady *s, Mark *m)
{
    Sim *sim = s->sim;
    uint32_t n = 0;
    evq_settle(&sim->events);
    if (s->events_cap < sim->events.n) {
        s->events_cap = sim->events.cap;
        s->events = mem_resize(s->events, s->events_cap, sizeof *s->events);
    }
    for (uint32_t i = 0; i < sim->events.n; i++) {
        Event e = evq_at(&sim->events, i);
        if (mark_event_counts(s, &e))
            s->events[n++] = e;
    }
    qsort(s->events, n, sizeof *s->events, compare_events);
    for (uint32_t i = 0; i < n; i++) {
        const Event *e = &s->events[i];
        bool flow = e->kind == EVENT_FLOW_DATA || e->kind == EVENT_FLOW_END;
        put_ns(m, e->at_ns - sim->now_ns);
        put_pair(m, e->kind, flow ? s->number[e->a] : e->a);
        put(m, e->b);
    }
}

/* ---- paths and sums ---- */

static void put_path(Mark *m, Path *p)
{
    GROW(m->paths, m->paths_n, m->paths_cap);
    m->paths[m->paths_n] = *p;
    p->origin = m->paths_n++;
}

void mark_each_path(Steady *s, Mark *m, void (*visit)(Mark *m, Path *p))
{
    Sim *sim = s->sim;
    if (!sim->runners[0].path)
        return;
    for (uint32_t i = 0; i < sim->runners_n; i++)
        for (uint32_t lane = 0; lane < LANE_HOST; lane++) {
            visit(m, &sim->runners[i].path[lane]);
            visit(m, &sim->runners[i].cause[lane]);
        }
    for (uint32_t i = 0; i < sim->hosts_n; i++)
        visit(m, &sim->hosts[i].anchors[sim->hosts[i].anchors_n - 1].path);
    for (uint32_t i = 0; i < s->flows_n; i++)
        visit(m, &sim->flows[s->flow[i]].path);
}

static void put_sums(Steady *s, Mark *m)
{
    const Sim *sim = s->sim;
    m->stats_n = 0;
    for (uint32_t i = 0; i < sim->runners_n; i++) {
        const RankStat *from = sim->runners[i].stat;
        RankSums *to = &m->runners[i].sums;
        *to = (RankSums){ { from->compute_ns, from->comm_ns, from->overlapped_ns,
                            from->exposed_ns, from->bubble_ns, from->idle_ns } };
        m->runners[i].stat_first = m->stats_n;
        for (uint32_t k = 0; k < from->collectives_n; k++) {
            GROW(m->stats, m->stats_n, m->stats_cap);
            m->stats[m->stats_n++] = from->collectives[k];
        }
    }
}

void mark_make(Steady *s, Mark *m)
{
    Sim *sim = s->sim;
    if (!m->runners)
        m->runners = PUSH_ARRAY(&sim->arena, RunnerMark, sim->runners_n);
    m->words_n = m->times_n = m->paths_n = 0;
    m->now_ns = sim->now_ns;
    for (uint32_t i = 0; i < sim->runners_n; i++)
        put_runner(s, m, &sim->runners[i]);
    put_flows(s, m);
    put_events(s, m);
    mark_each_path(s, m, put_path);
    put_sums(s, m);
}

bool mark_equal(const Mark *a, const Mark *b, int64_t slack_ns)
{
    if (a->words_n != b->words_n || a->times_n != b->times_n || a->paths_n != b->paths_n ||
        memcmp(a->words, b->words, a->words_n * sizeof *a->words) != 0)
        return false;
    for (uint32_t i = 0; i < a->times_n; i++)
        if (a->times[i] - b->times[i] > slack_ns || b->times[i] - a->times[i] > slack_ns)
            return false;
    return true;
}

void mark_free(Mark *m)
{
    free(m->words);
    free(m->times);
    free(m->paths);
    free(m->stats);
}

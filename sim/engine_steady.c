/*
 * engine_steady.c - micro-batches that go by like those before them.
 *
 *     stage 0   F F F F | F B F B | F B F B |  ... n times more ...  | F B F B B B B B
 *     stage 3         F | B F B F | B F B F |                        | B F B ...
 *                       t1        t2  the same state, later by t2 - t1
 *
 * A graph may lack micro-batches that are meant (SimOptions.left_out): it has the
 * beginning and the end of the step, and enough in between.  Times are whole
 * nanoseconds and nothing is drawn, so when the state at t2 is that at t1 but for the
 * time (engine_mark.c), and each rank's program from t1 on is the same pattern again
 * and again, the micro-batches left out would pass in just that way.  They are: every
 * time is moved by n (t2 - t1), every sum grows by n times its growth, and the run
 * goes on to its end.  A graph that ends before any state has come again is run over
 * from an earlier place (engine_rewind.c), or leaps at a pace (engine_pace.c).
 *
 * Where transfers slow kernels, roundings may keep two states apart for good, or let
 * them come together ever more slowly.  Then a hundred-thousandth of the period is close
 * enough: lanes wait for the last of several, which makes no difference larger than it
 * was, so the step is off by a hundred-thousandth at most.  Where nothing is slowed the
 * states must be equal to the nanosecond.
 *
 * A host that has launched everything long ago does not repeat: it is farther ahead
 * each time.  That is as good where it holds up nothing and does not fall back.
 */
#include "sim/engine_steady.h"

#include <stdlib.h>

enum { SLACK_PART = 100000 };

/* ---- programs ---- */

static bool is_of(const Instance *in, uint32_t micro_batch)
{
    return in->micro_batch != NONE_U32 && in->micro_batch >= micro_batch;
}

uint32_t steady_limit(const Steady *s, const Runner *r)
{
    return s->limit[r->role - s->sim->g->roles];
}

uint32_t steady_first_of(const Role *r, uint32_t from, uint32_t micro_batch)
{
    while (from < r->instances_n && !is_of(&r->instances[from], micro_batch))
        from++;
    return from;
}

/* Programs of more micro-batches differ from where the last of these begins, with its last chunk if
 * micro-batches come in groups: whole strides take turns in the same way, whatever follows. */
static uint32_t limit_of(const Role *r, bool in_groups)
{
    uint32_t n = role_micro_batches(r), last = n > 0 ? n - 1 : 0, chunk = 0;
    uint32_t limit = steady_first_of(r, 0, last);
    for (uint32_t i = limit; i < r->instances_n && in_groups; i++) {
        const Instance *in = &r->instances[i];
        if (!is_of(in, last) || in->chunk == NONE_U32 || in->chunk <= chunk)
            continue;
        chunk = in->chunk;
        limit = i;
    }
    return limit;
}

static void find_segments(Steady *s)
{
    const Graph *g = s->sim->g;
    s->segment_of = PUSH_ARRAY(&s->sim->arena, uint32_t, g->ops_n + 1);
    for (uint32_t i = 0; i < g->segments_n; i++)
        for (uint32_t k = 0; k < g->segments[i].op_n; k++)
            s->segment_of[g->segments[i].op_first + k] = i;
}

static void find_limits(Steady *s)
{
    const Graph *g = s->sim->g;
    s->limit = PUSH_ARRAY(&s->sim->arena, uint32_t, g->roles_n);
    for (uint32_t i = 0; i < g->roles_n; i++)
        s->limit[i] = limit_of(&g->roles[i], s->sim->options->stride > 1);
}

/* Do the copies of the input wait for nothing, see engine_mark.c? */
static bool copies_are_free(const Sim *sim, uint32_t role)
{
    const Role *r = &sim->g->roles[role];
    const uint32_t *copies = sim->programs[role].on_lane[LANE_COPY];
    for (; *copies < r->instances_n; copies++) {
        const Instance *in = &r->instances[*copies];
        if (sim->g->segments[in->segment].op_n > 1 || in->edge_n > 0)
            return false;
    }
    return true;
}

/* Where the next stride of micro-batches begins on runner 0; at the limit, if not before. */
static void find_next(Steady *s)
{
    const Runner *r = &s->sim->runners[0];
    s->micro_batch += s->sim->options->stride;
    uint32_t next = steady_first_of(r->role, s->sim->steady_next, s->micro_batch);
    s->early = next > steady_limit(s, r);
    s->sim->steady_next = s->early ? steady_limit(s, r) : next;
}

/* Of instances that are as many instances apart. */
typedef struct Repetition {
    const Steady *s;
    const Role *r;
    uint32_t shift;
    bool but_first; /* the first micro-batch may have kernels of its own */
} Repetition;

static bool is_excused(const Repetition *p, uint32_t instance)
{
    return p->but_first && p->r->instances[instance].micro_batch == 0;
}

static bool same_edges(const Repetition *p, const Instance *a, const Instance *b)
{
    if (a->edge_n != b->edge_n)
        return false;
    for (uint32_t e = 0; e < a->edge_n; e++) {
        const Edge *x = &p->r->edges[a->edge_first + e], *y = &p->r->edges[b->edge_first + e];
        bool same_src = x->src_op == y->src_op || is_excused(p, x->src_instance);
        if (x->dst_op != y->dst_op || !same_src ||
            (x->src_instance + p->shift != y->src_instance &&
             x->src_instance != y->src_instance))
            return false;
    }
    return true;
}

static bool same_segment(const Repetition *p, uint32_t i)
{
    uint32_t a = p->r->instances[i].segment, b = p->r->instances[i + p->shift].segment;
    const Segment *segments = p->s->sim->g->segments;
    return p->s->sim->same[a] == p->s->sim->same[b] ||
           (is_excused(p, i) && segments[a].kind == segments[b].kind);
}

bool steady_repeats(const Steady *s, const Role *r, uint32_t from, uint32_t to, uint32_t shift,
                    uint32_t micro_batches, bool but_first)
{
    Repetition p = { s, r, shift, but_first };
    for (uint32_t i = from; i < to; i++) {
        const Instance *a = &r->instances[i], *b = a + shift;
        uint32_t later = a->micro_batch == NONE_U32 ? NONE_U32 : a->micro_batch + micro_batches;
        if (!same_segment(&p, i) || a->layer != b->layer || a->chunk != b->chunk ||
            b->micro_batch != later || !same_edges(&p, a, b))
            return false;
    }
    return true;
}

/* ---- is it a period? ---- */

static bool runner_repeats(Steady *s, const Runner *r, const Mark *then, const Mark *now,
                           uint32_t micro_batches)
{
    const RunnerMark *a = &then->runners[r->id], *b = &now->runners[r->id];
    uint32_t shift = b->compute - a->compute, limit = steady_limit(s, r);
    int64_t period_ns = now->now_ns - then->now_ns;
    bool in_place = s->rewound[r->id] == 0;
    if (b->compute <= a->compute ||
        (in_place && (b->highest >= limit || b->highest + shift >= r->role->instances_n)))
        return false;
    if (b->host_done) {
        int64_t host_ns = b->host_ns - a->host_ns;
        bool free_run = b->supply_waits == a->supply_waits && host_ns <= period_ns;
        if (!free_run && host_ns != period_ns)
            return false;
    }
    return rewind_repeats(s, r, a->lowest, b->highest + 1, shift, micro_batches, false) &&
           !rewind_would_go_on(s, r);
}

/* The mark so many marks ago; NULL: there is none any more. */
static const Mark *mark_before(const Steady *s, uint32_t marks)
{
    uint32_t kept = s->marks_n < MARKS_KEPT ? s->marks_n : MARKS_KEPT;
    return marks < kept ? &s->marks[(s->marks_n - 1 - marks) % MARKS_KEPT] : NULL;
}

/* What is close once may be so by chance, on its way from one pace to another: it must have been
 * close a period earlier. */
static bool is_close(const Steady *s, uint32_t periods)
{
    const Mark *now = mark_before(s, 0), *then = mark_before(s, periods);
    const Mark *before = mark_before(s, 2 * periods);
    int64_t slack_ns = s->sim->slowed_any ? (now->now_ns - then->now_ns) / SLACK_PART : 0;
    if (mark_equal(then, now, 0))
        return true;
    return before && mark_equal(then, now, slack_ns) && mark_equal(before, then, slack_ns);
}

static bool is_period(Steady *s, uint32_t periods)
{
    const Mark *now = mark_before(s, 0), *then = mark_before(s, periods);
    if (!is_close(s, periods))
        return false;
    uint32_t micro_batches = periods * s->sim->options->stride;
    for (uint32_t i = 0; i < s->sim->runners_n; i++)
        if (!runner_repeats(s, &s->sim->runners[i], then, now, micro_batches))
            return false;
    return true;
}

/* ---- the leap ---- */

typedef struct Leap {
    Steady *s;
    const Mark *then, *now;
    uint32_t periods; /* marks from then to now */
    Shift shift;
} Leap;

static void shift_events(Steady *s, const Shift *shift)
{
    Sim *sim = s->sim;
    EventQueue old = sim->events;
    sim->events = (EventQueue){ .pushed = old.pushed };
    Event e;
    while (evq_pop(&old, &e)) {
        bool ahead =
            (e.kind == EVENT_LANE || e.kind == EVENT_KERNEL) && !mark_event_counts(s, &e);
        int64_t at_ns = e.at_ns + (ahead ? shift->host_ns[e.a] : shift->ns);
        at_ns = max_i64(at_ns, sim->now_ns + shift->ns);
        if (e.source == NONE_U32)
            evq_push(&sim->events, at_ns, e.kind, e.a, e.b);
        else
            evq_set(&sim->events, e.source, at_ns, e.kind, e.a);
    }
    evq_free(&old);
}

static void shift_runner(Sim *sim, Runner *r, const Shift *shift)
{
    const Repeat *repeat = &r->stat->repeat;
    r->accounted_ns += shift->ns;
    for (uint32_t lane = 0; lane < LANE_N; lane++) {
        r->lane[lane].start_ns += shift->ns;
        r->lane[lane].transfer_start_ns += shift->ns;
    }
    for (uint32_t i = 0; i < r->host_next; i++)
        r->host_start[i] += shift->host_ns[r->id];
    r->host->now_ns += shift->host_ns[r->id];
    if (r->host_next < r->role->instances_n)
        r->host->anchors[r->host->anchors_n - 1].at_ns += shift->ns;
    for (uint32_t i = repeat->first; i < repeat->first + repeat->n; i++)
        sim->ops_done += (uint64_t)repeat->times * segment_of(sim, r, i)->op_n;
}

void steady_shift(Steady *s, const Shift *shift)
{
    Sim *sim = s->sim;
    shift_events(s, shift);
    for (uint32_t i = 0; i < sim->flows_n; i++) {
        sim->flows[i].start_ns += shift->ns;
        sim->flows[i].since_ns += shift->ns;
    }
    for (uint32_t i = 0; i < sim->runners_n; i++)
        shift_runner(sim, &sim->runners[i], shift);
    sim->now_ns += shift->ns;
    s->left = 0;
}

static void grow_sums(const Leap *l, Runner *r)
{
    const RunnerMark *a = &l->then->runners[r->id], *b = &l->now->runners[r->id];
    RankStat *s = r->stat;
    int64_t times = l->shift.times;
    int64_t *sum[6] = { &s->compute_ns, &s->comm_ns,   &s->overlapped_ns,
                        &s->exposed_ns, &s->bubble_ns, &s->idle_ns };
    for (int k = 0; k < 6; k++)
        *sum[k] += times * (b->sums.ns[k] - a->sums.ns[k]);
    for (uint32_t i = 0; i < s->collectives_n; i++) {
        const CollectiveStat *x = &l->then->stats[a->stat_first + i],
                             *y = &l->now->stats[b->stat_first + i];
        CollectiveStat *c = &s->collectives[i];
        c->count += (uint64_t)times * (y->count - x->count);
        c->bytes += (uint64_t)times * (y->bytes - x->bytes);
        c->time_ns += times * (y->time_ns - x->time_ns);
        c->transfer_ns += times * (y->transfer_ns - x->transfer_ns);
        c->exposed_ns += times * (y->exposed_ns - x->exposed_ns);
        c->wire_bytes += (double)times * (y->wire_bytes - x->wire_bytes);
    }
}

/* ---- paths ---- */

/* The path of `then` that path i of `now` goes back to. */
static uint32_t origin_of(const Leap *l, uint32_t i)
{
    const Steady *s = l->s;
    for (uint32_t k = 0; k < l->periods; k++)
        i = s->marks[(s->marks_n - 1 - k) % MARKS_KEPT].paths[i].origin;
    return i;
}

static void add_growth(Path *sum, const Path *before, const Path *after)
{
    sum->compute_ns += after->compute_ns - before->compute_ns;
    sum->comm_ns += after->comm_ns - before->comm_ns;
    sum->bubble_ns += after->bubble_ns - before->bubble_ns;
    sum->launch_ns += after->launch_ns - before->launch_ns;
}

static void set_path(Mark *m, Path *p)
{
    uint32_t i = p->origin; /* the mark of now has numbered them */
    *p = m->paths[i];
    p->origin = i;
}

/* By how much a path grows over some periods, and which it then goes back to. */
typedef struct Growing {
    Path by;
    uint32_t origin;
} Growing;

/* Path i after the leap: a period's growth onto that of the path it goes back to, n times.  Grown
 * by one period, then by two, by four ...: `step` doubles, `sum` takes those that n is made of. */
static void grow_paths(const Leap *l)
{
    uint32_t n = l->now->paths_n;
    Mark grown = { .paths = mem_zero(n + 1, sizeof(Path)) };
    Growing *step = mem_zero(n + 1, sizeof *step), *twice = mem_zero(n + 1, sizeof *twice);
    Growing *sum = mem_zero(n + 1, sizeof *sum);
    for (uint32_t i = 0; i < n; i++) {
        step[i].origin = origin_of(l, i);
        add_growth(&step[i].by, &l->then->paths[step[i].origin], &l->now->paths[i]);
        sum[i].origin = i;
    }
    for (int64_t left = l->shift.times; left > 0; left >>= 1) {
        for (uint32_t i = 0; i < n; i++) {
            const Growing *more = &step[sum[i].origin], *rest = &step[step[i].origin];
            if (left & 1) {
                add_growth(&sum[i].by, &(Path){ 0 }, &more->by);
                sum[i].origin = more->origin;
            }
            twice[i] = step[i];
            add_growth(&twice[i].by, &(Path){ 0 }, &rest->by);
            twice[i].origin = rest->origin;
        }
        Growing *swap = step;
        step = twice;
        twice = swap;
    }
    for (uint32_t i = 0; i < n; i++) {
        add_growth(&sum[i].by, &(Path){ 0 }, &l->now->paths[sum[i].origin]);
        grown.paths[i] = sum[i].by;
    }
    mark_each_path(l->s, &grown, set_path);
    free(grown.paths);
    free(step);
    free(twice);
    free(sum);
}

static void leap(Steady *s, const Mark *then, const Mark *now, uint32_t periods)
{
    Sim *sim = s->sim;
    int64_t times = s->left / (periods * sim->options->stride);
    Leap l = { .s = s, .then = then, .now = now, .periods = periods };
    l.shift = (Shift){ .times = times,
                       .ns = times * (now->now_ns - then->now_ns),
                       .host_ns = PUSH_ARRAY(&sim->arena, int64_t, sim->runners_n) };
    grow_paths(&l);
    for (uint32_t i = 0; i < sim->runners_n; i++) {
        Runner *r = &sim->runners[i];
        const RunnerMark *a = &then->runners[i], *b = &now->runners[i];
        Repeat leapt = { a->compute, b->compute - a->compute, (uint32_t)times };
        r->stat->repeat = rewind_repeat(s, r, leapt);
        l.shift.host_ns[i] = b->host_done ? times * (b->host_ns - a->host_ns) : l.shift.ns;
        grow_sums(&l, r);
    }
    steady_shift(s, &l.shift);
}

/* ---- looking out for it ---- */

/* One host a rank: a host of several goes round among them. */
bool steady_begin(Sim *sim)
{
    if (sim->options->left_out == 0)
        return true;
    ASSERT(sim->options->stride > 0 && sim->options->left_out % sim->options->stride == 0);
    if (sim->hosts_n != sim->runners_n || sim->m->jitter > 0)
        return false;
    for (uint32_t i = 0; i < sim->g->roles_n; i++)
        if (!copies_are_free(sim, i))
            return false;
    sim->steady = mem_zero(1, sizeof *sim->steady);
    sim->steady->sim = sim;
    sim->steady->left = sim->options->left_out;
    sim->steady->rewound = PUSH_ARRAY(&sim->arena, uint32_t, sim->runners_n);
    find_segments(sim->steady);
    find_limits(sim->steady);
    sim->steady->micro_batch = sim->options->stride - 1;
    find_next(sim->steady);
    pace_begin(sim->steady);
    return true;
}

/* Leaps over whole periods; strides that do not fill one are run, from an earlier place.  So are
 * all of a step that takes too long: its time may not fit. */
static bool leap_and_rest(Steady *s, const Mark *then, const Mark *now, uint32_t periods)
{
    uint32_t strides = s->left / s->sim->options->stride, rest = strides % periods;
    if (now->now_ns - then->now_ns > NS_MAX / strides)
        return false;
    if (rest > 0 && rewind_most(s) < rest)
        return false;
    if (rest > 0)
        rewind_by(s, rest);
    leap(s, then, now, periods);
    return true;
}

static bool look_back(Steady *s)
{
    for (uint32_t periods = 1; mark_before(s, periods); periods++)
        if (is_period(s, periods) &&
            leap_and_rest(s, mark_before(s, periods), mark_before(s, 0), periods))
            return true;
    return false;
}

/* Before the last rank computes, nothing is steady. */
static bool all_have_begun(const Steady *s)
{
    for (uint32_t i = 0; i < s->sim->runners_n; i++)
        if (s->pace[i].passes_n == 0)
            return false;
    return true;
}

static bool look_for_state(Steady *s)
{
    if (!all_have_begun(s))
        return false;
    mark_make(s, &s->marks[s->marks_n++ % MARKS_KEPT]);
    return !s->sim->options->no_leaps && look_back(s);
}

/* At the limit: leaps at a pace, or goes back to an earlier place. */
static bool look_for_pace(Steady *s)
{
    Sim *sim = s->sim;
    if (!sim->options->no_leaps && !sim->options->no_pace && pace_leap(s))
        return true;
    uint32_t left = s->left / sim->options->stride, most = rewind_most(s);
    if (most == 0)
        return false;
    rewind_by(s, most < left ? most : left);
    if (s->early)
        s->micro_batch -= sim->options->stride;
    return true;
}

/* All that was left out is counted. */
static void all_counted(Sim *sim)
{
    rewind_count(sim->steady);
    sim->result->repeated = sim->options->left_out;
    steady_end(sim);
}

bool steady_look(Sim *sim)
{
    Steady *s = sim->steady;
    const Runner *r = &sim->runners[0];
    bool at_limit = r->lane[LANE_COMPUTE].instance >= steady_limit(s, r);
    bool has_mark = !at_limit || !s->early;
    if (at_limit && !look_for_pace(s)) {
        steady_end(sim);
        return false;
    }
    if (s->left > 0 && !(has_mark && look_for_state(s)))
        find_next(s);
    if (s->left == 0)
        all_counted(sim);
    return true;
}

void steady_end(Sim *sim)
{
    Steady *s = sim->steady;
    if (!s)
        return;
    for (uint32_t i = 0; i < MARKS_KEPT; i++)
        mark_free(&s->marks[i]);
    free(s->flow);
    free(s->number);
    free(s->events);
    free(s->pace);
    free(s);
    sim->steady = NULL;
}

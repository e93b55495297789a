/*
 * engine_pace.c - states that do not come again, at a pace that does.
 *
 *     stage 2 (the slowest)   |B.F.|B.F.|B.F.|B.F.|      each stride as long as the one before
 *     stage 5 (has time)      |B.F..|B..F.|.B.F.|.BF..   wanders within the time it has
 *
 * Where many transfers share links, ranks that have time to spare may wander for ever, so
 * no state is ever met again (engine_steady.c).  Yet all ranks follow the slowest, whose
 * strides are then equal.  When the last of the strides that the graph has comes up, and
 * the newest few of the slowest rank have been equally long, to a three-thousandth, those
 * of the others as long to a thousandth, and each rank has spent them alike, to a
 * three-hundredth, then those left out last as long as they do on the slowest rank; the
 * others wait that much longer.  Ranks at paces farther apart will meet one day, and then
 * all goes differently: they are not steady.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "sim/engine_steady.h"

enum { PACE_PART = 3000, STRIDE_PART = 1000, SUM_PART = 300 };

/* ---- passes ---- */

/* The compute lane of r starts an instance. */
void steady_pass(Sim *sim, Runner *r, uint32_t instance)
{
    Pace *p = &sim->steady->pace[r->id];
    if (instance < p->next || instance >= steady_limit(sim->steady, r))
        return;
    account(sim, r);
    Pass *pass = &p->passes[p->passes_n++ % PASSES_KEPT];
    pass->at_ns = sim->now_ns;
    pass->instance = instance;
    pass->supply_waits = 0;
    memcpy(&pass->stat, r->stat,
           offsetof(RankStat, collectives) +
               r->stat->collectives_n * sizeof *r->stat->collectives);
    for (uint32_t lane = 0; lane < LANE_HOST; lane++)
        pass->supply_waits += r->lane[lane].supply_waits;
    p->micro_batch += sim->options->stride;
    p->next = steady_first_of(r->role, p->next, p->micro_batch);
}

static const Pass *pass_before(const Pace *p, uint32_t back)
{
    return &p->passes[(p->passes_n - 1 - back) % PASSES_KEPT];
}

static int64_t period_of(const Steady *s, const Pace *p)
{
    return (pass_before(p, 0)->at_ns - pass_before(p, s->strides)->at_ns) / s->strides;
}

/* Of the slowest rank; 0 where one has not passed often enough. */
static int64_t slowest_period(const Steady *s)
{
    int64_t most_ns = 0;
    for (uint32_t i = 0; i < s->sim->runners_n; i++) {
        if (s->pace[i].passes_n <= s->strides)
            return 0;
        most_ns = max_i64(most_ns, period_of(s, &s->pace[i]));
    }
    return most_ns;
}

/* ---- is the pace steady? ---- */

static bool is_about(int64_t a, int64_t b, int64_t part)
{
    int64_t slack = b / part;
    return a - b <= slack && b - a <= slack;
}

/* Only kernels and hosts that hold up nothing: what a host holds up must be seen exactly. */
static bool host_keeps_up(const Runner *r, const Pass *then, const Pass *now, int64_t period_ns)
{
    if (r->host_next < r->role->instances_n)
        return true;
    int64_t host_ns = r->host_start[now->instance] - r->host_start[then->instance];
    return now->supply_waits == then->supply_waits && host_ns <= period_ns;
}

/* As many transfers of each kind from a to b as in each stride on the mean? */
static bool same_counts(const RankStat *a, const RankStat *b, const RankStat *first,
                        const RankStat *now, uint32_t strides)
{
    for (uint32_t i = 0; i < now->collectives_n; i++)
        if ((b->collectives[i].count - a->collectives[i].count) * strides !=
                now->collectives[i].count - first->collectives[i].count ||
            (b->collectives[i].bytes - a->collectives[i].bytes) * strides !=
                now->collectives[i].bytes - first->collectives[i].bytes)
            return false;
    return true;
}

typedef enum Share {
    SHARE_COMPUTE,
    SHARE_OVERLAPPED,
    SHARE_EXPOSED,
    SHARE_BUBBLE,
    SHARE_N
} Share;

static int64_t share_growth(const RankStat *a, const RankStat *b, Share share)
{
    switch (share) {
    case SHARE_COMPUTE:
        return b->compute_ns - a->compute_ns;
    case SHARE_OVERLAPPED:
        return b->overlapped_ns - a->overlapped_ns;
    case SHARE_EXPOSED:
        return b->exposed_ns - a->exposed_ns;
    default:
        return b->bubble_ns - a->bubble_ns;
    }
}

/* Are what a rank does with its time, and how much, about the same in each stride? */
static bool shares_stay(const Steady *s, const Pace *p, int64_t period_ns)
{
    const RankStat *now = &pass_before(p, 0)->stat, *first = &pass_before(p, s->strides)->stat;
    for (uint32_t k = 0; k < s->strides; k++) {
        const RankStat *b = &pass_before(p, k)->stat, *a = &pass_before(p, k + 1)->stat;
        for (Share i = 0; i < SHARE_N; i++) {
            int64_t off_ns = share_growth(a, b, i) - share_growth(first, now, i) / s->strides;
            if (off_ns > period_ns / SUM_PART || off_ns < -period_ns / SUM_PART)
                return false;
        }
        if (!same_counts(a, b, first, now, s->strides))
            return false;
    }
    return true;
}

static bool strides_stay(const Pace *p, uint32_t strides, int64_t period_ns, int64_t part)
{
    for (uint32_t k = 0; k < strides; k++)
        if (!is_about(pass_before(p, k)->at_ns - pass_before(p, k + 1)->at_ns, period_ns, part))
            return false;
    return true;
}

static bool runner_keeps_pace(const Steady *s, const Runner *r, int64_t period_ns)
{
    const Pace *p = &s->pace[r->id];
    int64_t part = period_of(s, p) == period_ns ? PACE_PART : STRIDE_PART;
    if (!strides_stay(p, s->strides, period_ns, part) || !shares_stay(s, p, period_ns))
        return false;
    const Pass *now = pass_before(p, 0), *then = pass_before(p, 1), *before = pass_before(p, 2);
    uint32_t shift = now->instance - then->instance;
    return then->instance - before->instance == shift &&
           host_keeps_up(r, then, now, period_ns) &&
           steady_repeats(s, r->role, before->instance, then->instance, shift,
                          s->sim->options->stride);
}

/* ---- the leap ---- */

/* n strides more like those from a to b, and longer by wait_ns in all. */
typedef struct Growth {
    const RankStat *a, *b;
    int64_t n, strides, wait_ns;
} Growth;

static int64_t grown(const Growth *g, int64_t a, int64_t b)
{
    return (b - a) * g->n / g->strides;
}

static void grow_stat(RankStat *s, const Growth *g)
{
    int64_t overlapped_ns = grown(g, g->a->overlapped_ns, g->b->overlapped_ns);
    int64_t exposed_ns = grown(g, g->a->exposed_ns, g->b->exposed_ns);
    int64_t bubble_ns = grown(g, g->a->bubble_ns, g->b->bubble_ns);
    *(exposed_ns > bubble_ns ? &exposed_ns : &bubble_ns) += g->wait_ns;
    s->compute_ns += grown(g, g->a->compute_ns, g->b->compute_ns);
    s->overlapped_ns += overlapped_ns;
    s->exposed_ns += exposed_ns;
    s->comm_ns += overlapped_ns + exposed_ns;
    s->bubble_ns += bubble_ns;
    s->idle_ns += grown(g, g->a->idle_ns, g->b->idle_ns);
    for (uint32_t i = 0; i < g->a->collectives_n; i++) {
        const CollectiveStat *x = &g->a->collectives[i], *y = &g->b->collectives[i];
        CollectiveStat *c = &s->collectives[i];
        uint64_t n = (uint64_t)g->n, strides = (uint64_t)g->strides;
        c->count += (y->count - x->count) / strides * n;
        c->bytes += (y->bytes - x->bytes) / strides * n;
        c->time_ns += grown(g, x->time_ns, y->time_ns);
        c->transfer_ns += grown(g, x->transfer_ns, y->transfer_ns);
        c->exposed_ns += grown(g, x->exposed_ns, y->exposed_ns);
        c->wire_bytes += (y->wire_bytes - x->wire_bytes) * (double)n / (double)strides;
    }
}

/* A path gets longer by the leap, of what it consists of so far. */
static void stretch_path(Mark *m, Path *p)
{
    int64_t so_far = p->compute_ns + p->comm_ns + p->bubble_ns + p->launch_ns;
    double by = so_far > 0 ? (double)m->now_ns / (double)so_far : 0;
    int64_t comm_ns = (int64_t)((double)p->comm_ns * by);
    int64_t bubble_ns = (int64_t)((double)p->bubble_ns * by);
    int64_t launch_ns = (int64_t)((double)p->launch_ns * by);
    p->comm_ns += comm_ns;
    p->bubble_ns += bubble_ns;
    p->launch_ns += launch_ns;
    p->compute_ns += m->now_ns - comm_ns - bubble_ns - launch_ns;
}

static void leap_runner(Steady *s, Runner *r, Shift *shift)
{
    const Pace *p = &s->pace[r->id];
    const Pass *now = pass_before(p, 0), *then = pass_before(p, 1);
    Growth growth = { .a = &pass_before(p, s->strides)->stat,
                      .b = &now->stat,
                      .n = shift->times,
                      .strides = s->strides,
                      .wait_ns = shift->ns - shift->times * period_of(s, p) };
    grow_stat(r->stat, &growth);
    r->stat->repeat =
        (Repeat){ then->instance, now->instance - then->instance, (uint32_t)shift->times };
    shift->host_ns[r->id] =
        r->host_next < r->role->instances_n
            ? shift->ns
            : shift->times * (r->host_start[now->instance] - r->host_start[then->instance]);
}

bool pace_leap(Steady *s)
{
    Sim *sim = s->sim;
    int64_t period_ns = slowest_period(s);
    if (!sim->slowed_any || period_ns == 0)
        return false;
    for (uint32_t i = 0; i < sim->runners_n; i++)
        if (!runner_keeps_pace(s, &sim->runners[i], period_ns))
            return false;
    Shift shift = { .times = sim->options->left_out / sim->options->stride,
                    .host_ns = PUSH_ARRAY(&sim->arena, int64_t, sim->runners_n) };
    shift.ns = shift.times * period_ns;
    Mark mark = { 0 };
    mark_make(s, &mark); /* puts the flows in order */
    mark_free(&mark);
    mark.now_ns = shift.ns;
    mark_each_path(s, &mark, stretch_path);
    for (uint32_t i = 0; i < sim->runners_n; i++)
        leap_runner(s, &sim->runners[i], &shift);
    steady_shift(s, &shift);
    return true;
}

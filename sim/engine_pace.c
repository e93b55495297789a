/*
 * engine_pace.c - states that do not come again, at a pace that does.
 *
 *     stage 2   |B.F.|B.F.|B.F.|B.F.|      each stride about as long as the one before
 *     stage 5   |B.F..|B..F.|.B.F.|.BF..   wanders within the time it has
 *
 * Where many transfers share links, ranks may wander for ever, or drift past one another,
 * so no state is ever met again (engine_steady.c).  When the last of the strides that the graph
 * has comes up, those left out are taken to pass at a pace; before there is one, more strides are
 * run (engine_rewind.c): that leaves out fewer, and the mean of more wanders less.
 *
 * Paces of their own.  A rank may go faster than the one before it for as long as the micro-batches
 * under way last, which may be hundreds: a first stage that also gathers the embedding is 3 %
 * slower, and 32 stages fall back to its pace one after another.  Where each keeps the pace of a
 * few strides, those left out pass in the time of the fastest, and the others are held up
 * for what theirs take longer (engine_hold.c): who has to wait for them finds that out by itself.
 * Ranks that drift past one another on links that they share may all fall into another pace, so
 * those must keep together.
 *
 * One for all.  Else the strides left out are taken to last as long as the mean of the fastest and
 * the slowest of the ranks, now and a moment before; ranks that were faster wait that much
 * longer, kernels of slower ones are that much faster.  How good that is, it reads off half of what
 * lies between the fastest and the slowest, times the strides left out: it is used up to a 500th of
 * the step, where the design allows a 200th.
 *
 * What comes later nothing tells.  Of 34,000 drawn steps (10,000 seeds, as
 * tests/property/test_steady.c draws) 7,078 were counted so; the mean was 0.05 % off, 73 were more
 * than a 200th off: 47 of 4,575 that drift (worst 2.9 %), 18 of 1,459 others (2.7 %), none of 230
 * with weight gradients apart (0.4 %), 8 of 814 whose micro-batches hide each other's all-to-alls
 * (4.5 %).  Of 206 of GPT-3's on 1,024 A100s none was (mean 0.02 %, worst 0.2 %).  In a V ranks
 * drift for longer: steps were up to 6.6 % off, so paces are not for them (SimOptions.no_pace).
 * What a rank spends its time on is as in the newest strides; where it drifts past its
 * neighbours that changes, and above all what it waits for: its group (exposed) or another
 * stage (bubble); and, where all-to-alls are hidden beside sends, how often they share a link.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "sim/engine_steady.h"

/* Idle for less than one part in so many is busy all the time; whose lanes were idle at some time
 * had caught up then. */
enum { BUSY_PART = 10000 };
/* Strides that are tried as a pace, from the most on: half of them must go by like the other half.
 * With so many passes there are enough to compare. */
enum { STRIDES_TRIED = TIMES_KEPT - 1, PASSES_ENOUGH = 5 };
/* Strides that drift make the step longer by less than one part in so many, or are no pace. */
enum { DRIFT_STRIDES = 4, DRIFT_PART = 100 };
/* A rank's own pace is of so many strides at least, and makes those left out longer or shorter by
 * less than one part in so many of the step. */
enum { OWN_STRIDES = 4, OWN_PART = 2000 };

/* ---- passes ---- */

/* With the last micro-batch of the first stride: by then, where chunks take turns, the first rank
 * has gone as far ahead as it does. */
void pace_begin(Steady *s)
{
    Sim *sim = s->sim;
    s->pace =
        mem_resize(NULL, sim->runners_n, sizeof *s->pace); /* a pass is filled as it comes */
    for (uint32_t i = 0; i < sim->runners_n; i++) {
        Pace *p = &s->pace[i];
        p->passes_n = 0;
        p->micro_batch = sim->options->stride - 1;
        p->next = steady_first_of(sim->runners[i].role, 0, p->micro_batch);
    }
}

static uint32_t lanes_behind(const Steady *s, const Runner *r, uint32_t instance)
{
    uint32_t most = 0;
    for (uint32_t left = r->program.lanes; left; left &= left - 1) {
        const LaneState *l = &r->lane[first_lane(left)];
        if (!mark_is_parked(s, r, first_lane(left)) && l->instance + most < instance)
            most = instance - l->instance;
    }
    return most;
}

/* The compute lane of r starts an instance. */
void steady_pass(Sim *sim, Runner *r, uint32_t instance)
{
    Pace *p = &sim->steady->pace[r->id];
    if (instance < p->next || instance > steady_limit(sim->steady, r))
        return;
    account(sim, r);
    p->at_ns[p->passes_n % TIMES_KEPT] = sim->now_ns;
    Pass *pass = &p->passes[p->passes_n++ % PASSES_KEPT];
    pass->host_ns = r->host_start[instance];
    pass->place = instance + sim->steady->rewound[r->id];
    pass->behind = lanes_behind(sim->steady, r, instance);
    pass->supply_waits = 0;
    memcpy(&pass->stat, r->stat,
           offsetof(RankStat, collectives) +
               r->stat->collectives_n * sizeof *r->stat->collectives);
    for (uint32_t left = r->program.lanes; left; left &= left - 1)
        pass->supply_waits += r->lane[first_lane(left)].supply_waits;
    p->micro_batch += sim->options->stride;
    p->next = steady_first_of(r->role, p->next, p->micro_batch);
}

/* Of `strides` strides, of which the last ended `back` passes ago. */
static int64_t time_of(const Pace *p, uint32_t back, uint32_t strides)
{
    uint32_t last = p->passes_n - 1 - back;
    return p->at_ns[last % TIMES_KEPT] - p->at_ns[(last - strides) % TIMES_KEPT];
}

static int64_t mean_stride(const Pace *p, uint32_t back, uint32_t strides)
{
    return time_of(p, back, strides) / strides;
}

/* As many of the newest strides as are kept whole. */
static uint32_t strides_kept(uint32_t strides)
{
    return strides < PASSES_KEPT ? strides : PASSES_KEPT - 1;
}

/* ---- is there a pace? ---- */

static bool all_have_passed(const Steady *s, uint32_t times)
{
    for (uint32_t i = 0; i < s->sim->runners_n; i++)
        if (s->pace[i].passes_n < times)
            return false;
    return true;
}

typedef struct Range {
    int64_t least_ns, most_ns;
} Range;

static void widen(Range *r, int64_t ns)
{
    r->least_ns = min_i64(r->least_ns, ns);
    r->most_ns = max_i64(r->most_ns, ns);
}

/* The paces of all ranks; of several strides, that of each half. */
static Range range_of(const Steady *s)
{
    Range r = { NS_MAX, 0 };
    uint32_t half = s->strides > 1 ? s->strides / 2 : 1;
    for (uint32_t i = 0; i < s->sim->runners_n; i++)
        for (uint32_t back = 0; back < s->strides; back += half)
            widen(&r, mean_stride(&s->pace[i], back, half));
    return r;
}

/* Only kernels and hosts that hold up nothing: what a host holds up must be seen exactly. */
static bool host_keeps_up(const Runner *r, const Pass *then, const Pass *now, int64_t period_ns)
{
    if (r->host_next < r->role->instances_n)
        return true;
    return now->supply_waits == then->supply_waits && now->host_ns - then->host_ns <= period_ns;
}

/* Transfers that nobody waits for may fall behind ever more, as far as all passes that are kept can
 * tell. */
static bool lanes_keep_up(const Pace *p)
{
    uint32_t strides = strides_kept(p->passes_n - 1);
    const Pass *now = pass_before(p, 0), *then = pass_before(p, strides);
    int64_t passed_ns = time_of(p, 0, strides);
    int64_t comm_ns = now->stat.comm_ns - then->stat.comm_ns;
    return comm_ns < passed_ns - passed_ns / BUSY_PART || now->behind <= then->behind + 1;
}

/* The first micro-batch writes gradients where the others add to them: the stride before that of a
 * pace of one stride may be that of the first. */
static bool runner_repeats(Steady *s, const Runner *r, int64_t period_ns)
{
    const Pace *p = &s->pace[r->id];
    const Pass *now = pass_before(p, 0), *then = pass_before(p, 1), *before = pass_before(p, 2);
    uint32_t shift = now->place - then->place, stride = s->sim->options->stride;
    if (then->place - before->place != shift || !host_keeps_up(r, then, now, period_ns) ||
        !lanes_keep_up(p) || rewind_would_go_on(s, r))
        return false;
    return rewind_repeats(s, r, before->place, then->place, shift, stride, s->strides == 1);
}

static bool is_pace(Steady *s, int64_t times, Range r)
{
    int64_t period_ns = (r.least_ns + r.most_ns) / 2;
    int64_t step_ns = s->sim->now_ns + times * period_ns;
    if ((r.most_ns - period_ns) * times > step_ns / SIM_PACE_PART)
        return false;
    for (uint32_t i = 0; i < s->sim->runners_n; i++)
        if (!runner_repeats(s, &s->sim->runners[i], period_ns))
            return false;
    return true;
}

/* By how much the newest n strides of all ranks were longer than the n before, a stride. */
static int64_t growth(const Steady *s, uint32_t n)
{
    int64_t more_ns = 0;
    for (uint32_t i = 0; i < s->sim->runners_n; i++)
        more_ns += mean_stride(&s->pace[i], 0, n) - mean_stride(&s->pace[i], n, n);
    return more_ns / s->sim->runners_n / n;
}

/* Do strides get longer all the while, or shorter, so that those left out would be so by much in
 * all?  What only settles does so ever more slowly. */
static bool drifts_away(const Steady *s, int64_t times)
{
    if (!all_have_passed(s, 2 * DRIFT_STRIDES + 1))
        return false;
    int64_t before_ns = growth(s, DRIFT_STRIDES), now_ns = growth(s, DRIFT_STRIDES / 2);
    int64_t least_ns = min_i64(llabs(before_ns), llabs(now_ns));
    return (before_ns > 0) == (now_ns > 0) &&
           least_ns * times / 2 > s->sim->now_ns / DRIFT_PART / times;
}

/* ---- paces of their own ---- */

/* Is the pace of the newest half of the strides that of the half before? */
static bool keeps_pace(const Steady *s, const Pace *p, int64_t times)
{
    uint32_t half = s->strides / 2;
    int64_t now_ns = mean_stride(p, 0, half), before_ns = mean_stride(p, half, half);
    return llabs(now_ns - before_ns) * times <= (s->sim->now_ns + times * now_ns) / OWN_PART;
}

/* Ranks that share a link of a GPU, a node or a leaf get into each other's way in one order or
 * another as they drift past one another: those must have the same pace. */
static bool sharers_keep_together(const Steady *s, int64_t times)
{
    const Sim *sim = s->sim;
    for (uint32_t link = 0; link < sim->classes.resources_n; link++) {
        Range r = { NS_MAX, 0 };
        for (uint32_t i = sim->sharers_first[link]; i < sim->sharers_first[link + 1]; i++)
            widen(&r, mean_stride(&s->pace[sim->sharers[i]], 0, s->strides));
        if (r.most_ns > 0 && (r.most_ns - r.least_ns) * times >
                                 (sim->now_ns + times * r.least_ns) / SIM_PACE_PART)
            return false;
    }
    return true;
}

static bool are_own_paces(Steady *s, int64_t times)
{
    for (uint32_t i = 0; i < s->sim->runners_n; i++) {
        const Runner *r = &s->sim->runners[i];
        if (r->host_next < r->role->instances_n || !keeps_pace(s, &s->pace[i], times) ||
            !runner_repeats(s, r, mean_stride(&s->pace[i], 0, s->strides)))
            return false;
    }
    return sharers_keep_together(s, times);
}

/* The pace of the fastest; 0: some have none. */
static int64_t find_own_paces(Steady *s)
{
    int64_t times = s->left / s->sim->options->stride;
    for (s->strides = STRIDES_TRIED; s->strides >= OWN_STRIDES; s->strides /= 2) {
        if (!all_have_passed(s, s->strides + 1) || !are_own_paces(s, times))
            continue;
        int64_t least_ns = NS_MAX;
        for (uint32_t i = 0; i < s->sim->runners_n; i++)
            least_ns = min_i64(least_ns, mean_stride(&s->pace[i], 0, s->strides));
        return least_ns;
    }
    return 0;
}

/* ---- one for all ---- */

/* Of as many of the newest strides as are a pace, where several numbers are of those that leave
 * least open; 0: none are.  One alone is not, where more are known and are none. */
static int64_t find_common_pace(Steady *s)
{
    int64_t times = s->left / s->sim->options->stride, pace_ns = 0, open_ns = NS_MAX;
    uint32_t fewest = all_have_passed(s, PASSES_ENOUGH) ? 2 : 1, best = 0;
    for (s->strides = STRIDES_TRIED; s->strides >= fewest; s->strides /= 2) {
        if (!all_have_passed(s, s->strides > 1 ? s->strides + 1 : 3))
            continue;
        Range r = range_of(s);
        if (r.most_ns - r.least_ns >= open_ns || !is_pace(s, times, r))
            continue;
        pace_ns = (r.least_ns + r.most_ns) / 2;
        open_ns = r.most_ns - r.least_ns;
        best = s->strides;
    }
    s->strides = best;
    return pace_ns;
}

/* Of the fastest where each has its own, or of all; 0: there is none, or its time may not fit. */
static int64_t find_pace(Steady *s)
{
    int64_t times = s->left / s->sim->options->stride;
    if (s->sim->now_ns > NS_MAX / times || drifts_away(s, times))
        return 0;
    int64_t pace_ns = find_own_paces(s);
    s->own = pace_ns > 0;
    return s->own ? pace_ns : find_common_pace(s);
}

/* ---- the leap ---- */

/* n strides more like those from a to b, but they take all_ns: what is missing is waiting, what is
 * too much are kernels that are faster. */
typedef struct Growth {
    const RankStat *a, *b;
    int64_t n, strides, all_ns;
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
    int64_t compute_ns = grown(g, g->a->compute_ns, g->b->compute_ns);
    int64_t idle_ns = grown(g, g->a->idle_ns, g->b->idle_ns);
    int64_t wait_ns = g->all_ns - (compute_ns + exposed_ns + bubble_ns + idle_ns);
    *(wait_ns < 0 ? &compute_ns : exposed_ns > bubble_ns ? &exposed_ns : &bubble_ns) += wait_ns;
    s->compute_ns += compute_ns;
    s->overlapped_ns += overlapped_ns;
    s->exposed_ns += exposed_ns;
    s->comm_ns += overlapped_ns + exposed_ns;
    s->bubble_ns += bubble_ns;
    s->idle_ns += idle_ns;
    for (uint32_t i = 0; i < g->a->collectives_n; i++) {
        const CollectiveStat *x = &g->a->collectives[i], *y = &g->b->collectives[i];
        CollectiveStat *c = &s->collectives[i];
        c->time_ns += grown(g, x->time_ns, y->time_ns);
        c->transfer_ns += grown(g, x->transfer_ns, y->transfer_ns);
        c->exposed_ns += grown(g, x->exposed_ns, y->exposed_ns);
    }
}

static void count_op(Sim *sim, Runner *r, const Op *o, uint64_t times)
{
    uint32_t size =
        op_is_p2p(o->kind) ? 2 : sim->classes.groups[r->rc->group[o->u.comm.group]].size;
    CollectiveStat *c = &r->stat->collectives[account_stat(sim, r, o, size)];
    c->count += times;
    c->bytes += times * o->u.comm.bytes;
    c->wire_bytes += (double)times * account_wire_bytes(o, size);
}

/* The transfers of a stride are what its program has, whenever they come. */
static void count_transfers(Sim *sim, Runner *r, const Repeat *stride)
{
    for (uint32_t i = stride->first; i < stride->first + stride->n; i++) {
        const Segment *segment = segment_of(sim, r, i);
        for (uint32_t k = 0; k < segment->op_n; k++) {
            const Op *o = graph_ops(sim->g, segment) + k;
            if (op_is_comm(o->kind))
                count_op(sim, r, o, stride->times);
        }
    }
}

/* A path gets longer by the leap. */
static void lengthen(Mark *m, Path *p)
{
    path_lengthen(p, m->now_ns);
}

/* What the strides left out take the rank longer than others, which it is held up for then. */
static int64_t longer_ns(const Steady *s, const Pace *p, const Shift *shift)
{
    return s->own ? shift->times * mean_stride(p, 0, s->strides) - shift->ns : 0;
}

static void leap_runner(Steady *s, Runner *r, Shift *shift)
{
    const Pace *p = &s->pace[r->id];
    const Pass *now = pass_before(p, 0), *then = pass_before(p, 1);
    uint32_t strides = strides_kept(s->strides);
    Growth growth = { .a = &pass_before(p, strides)->stat,
                      .b = &now->stat,
                      .n = shift->times,
                      .strides = strides,
                      .all_ns = shift->ns + longer_ns(s, p, shift) };
    grow_stat(r->stat, &growth);
    Repeat leapt = { then->place, now->place - then->place, (uint32_t)shift->times };
    r->stat->repeat = rewind_repeat(s, r, leapt);
    if (!s->sim->options->totals)
        count_transfers(s->sim, r, &r->stat->repeat);
    shift->host_ns[r->id] = r->host_next < r->role->instances_n
                                ? shift->ns
                                : shift->times * (now->host_ns - then->host_ns);
}

static bool is_mostly_comm(const Pace *p)
{
    const RankStat *now = &pass_before(p, 0)->stat, *then = &pass_before(p, 1)->stat;
    return now->comm_ns - then->comm_ns > now->compute_ns - then->compute_ns;
}

bool pace_leap(Steady *s)
{
    Sim *sim = s->sim;
    int64_t period_ns = find_pace(s);
    if (period_ns == 0)
        return false;
    sim->result->extrapolated = true;
    Shift shift = { .times = s->left / sim->options->stride,
                    .host_ns = PUSH_ARRAY(&sim->arena, int64_t, sim->runners_n) };
    shift.ns = shift.times * period_ns;
    Mark mark = { 0 };
    mark_make(s, &mark); /* puts the flows in order */
    mark_free(&mark);
    mark.now_ns = shift.ns;
    mark_each_path(s, &mark, lengthen);
    for (uint32_t i = 0; i < sim->runners_n; i++)
        leap_runner(s, &sim->runners[i], &shift);
    steady_shift(s, &shift);
    for (uint32_t i = 0; i < sim->runners_n; i++) {
        const Pace *p = &s->pace[i];
        if (longer_ns(s, p, &shift) > 0)
            hold_begin(sim, &sim->runners[i], longer_ns(s, p, &shift), is_mostly_comm(p));
    }
    return true;
}

/*
 * engine_rewind.c - a short graph runs as many micro-batches as it takes.
 *
 *     program    F F F F|B F|B F|B F|B F|B F|B B B B      the zone: one stride again and again
 *                       \________ zone ________/
 *     place                    ...............^ now       as far as the graph goes, not steady
 *     instance              ^ <-- two strides            the same state, with two more to come
 *
 * When a run has come to the end of what a graph of few micro-batches shares with one of all
 * and has seen neither a steady state nor a pace, every rank is taken back by as many strides
 * in its program and goes on from there.  Nothing else changes: no time, no sum, nothing that is
 * under way.  That is the run of a graph that has so many strides more, to the nanosecond, if the
 * programs are one stride again and again from where they are taken back to, to where they stand
 * (Zone): that is looked at, and that hosts launch each stride like the one before.
 *
 * Lanes that are parked (engine_mark.c) wait for the end of the program, which is where it was.
 * What lanes wait for is counted in ops, so counts are taken back by the ops of the strides.
 */
#include <string.h>

#include "sim/engine_steady.h"

/* ---- the zone ---- */

static bool is_like(const Steady *s, const Role *r, uint32_t i, uint32_t shift)
{
    return steady_repeats(s, r, i, i + 1, shift, s->sim->options->stride, false);
}

static Zone find_zone(const Steady *s, const Role *r, uint32_t limit, uint32_t shift)
{
    Zone z = { .stride = shift };
    if (shift == 0 || shift > limit || limit >= r->instances_n)
        return (Zone){ 0 };
    for (z.first = limit - shift; z.first > 0 && is_like(s, r, z.first - 1, shift);)
        z.first--;
    for (z.end = limit; z.end < r->instances_n && is_like(s, r, z.end - shift, shift);)
        z.end++;
    return z;
}

static const Zone *zone_of(const Steady *s, const Runner *r)
{
    return &s->zone[r->role - s->sim->g->roles];
}

/* A stride is from one pass to the next. */
static bool find_zones(Steady *s)
{
    Sim *sim = s->sim;
    s->zone = PUSH_ARRAY(&sim->arena, Zone, sim->g->roles_n);
    for (uint32_t i = 0; i < sim->runners_n; i++) {
        const Runner *r = &sim->runners[i];
        const Pace *p = &s->pace[i];
        Zone *z = &s->zone[r->role - sim->g->roles];
        if (p->passes_n < 2)
            return false;
        uint32_t shift = pass_before(p, 0)->place - pass_before(p, 1)->place;
        if (z->stride == 0)
            *z = find_zone(s, r->role, steady_limit(s, r), shift);
        if (z->stride == 0 || z->stride != shift)
            return false;
    }
    return true;
}

static uint32_t ops_of_stride(const Runner *r, const Zone *z, uint32_t lane)
{
    return ops_before(&r->program, lane, z->first + z->stride) -
           ops_before(&r->program, lane, z->first);
}

/* Whoever asks about strides of the zone, which are the same, need not look at them again. */
static bool are_in_zone(const Steady *s, const Runner *r, uint32_t from, uint32_t to,
                        uint32_t shift, uint32_t micro_batches)
{
    const Zone *z = s->zone ? zone_of(s, r) : NULL;
    return z && shift == z->stride && micro_batches == s->sim->options->stride &&
           from >= z->first && to + shift <= z->end;
}

bool rewind_repeats(const Steady *s, const Runner *r, uint32_t from, uint32_t to,
                    uint32_t shift, uint32_t micro_batches, bool but_first)
{
    if (s->rewound[r->id] == 0 && are_in_zone(s, r, from, to, shift, micro_batches))
        return true;
    if (s->rewound[r->id] == 0)
        return steady_repeats(s, r->role, from, to, shift, micro_batches, but_first);
    const Zone *z = zone_of(s, r);
    return from >= z->first && to <= z->end + s->rewound[r->id] &&
           shift == micro_batches / s->sim->options->stride * z->stride;
}

Repeat rewind_repeat(const Steady *s, const Runner *r, Repeat of)
{
    if (s->rewound[r->id] == 0)
        return of;
    const Zone *z = zone_of(s, r);
    return (Repeat){ z->first, z->stride, of.n / z->stride * of.times };
}

void rewind_count(Steady *s)
{
    const SimOptions *o = s->sim->options;
    for (uint32_t i = 0; i < s->sim->runners_n; i++) {
        const Runner *r = &s->sim->runners[i];
        if (s->rewound[i] > 0)
            r->stat->repeat = (Repeat){ zone_of(s, r)->first, zone_of(s, r)->stride,
                                        o->left_out / o->stride };
    }
}

/* ---- how far back ---- */

/* Has the host, if it is done, launched each stride of the zone as long after the one before? */
static bool host_is_even(const Runner *r, const Zone *z)
{
    if (r->host_next < r->role->instances_n)
        return true;
    int64_t ns = r->host_start[z->first + z->stride] - r->host_start[z->first];
    for (uint32_t i = z->first; i + z->stride < z->end; i++)
        if (r->host_start[i + z->stride] - r->host_start[i] != ns)
            return false;
    return true;
}

/* What becomes of a lane. */
typedef enum Course {
    STAYS, /* it waits for the end of the program, or is a copy of the input: those are launched
              long before they are waited for */
    MOVES, /* its next op is in the zone, or it is at one */
    AHEAD  /* its next op is behind the zone, but with more strides one in the zone is */
} Course;

static Course course_of(const Steady *s, const Runner *r, uint32_t lane)
{
    const Zone *z = zone_of(s, r);
    if (r->lane[lane].instance < z->end)
        return MOVES;
    bool copied = lane == LANE_COPY && r->host_next == r->role->instances_n;
    return copied || ops_of_stride(r, z, lane) == 0 ? STAYS : AHEAD;
}

/* Op number `done` of a lane. */
typedef struct Head {
    uint32_t instance, at, place;
} Head;

static Head head_of(const Runner *r, uint32_t lane, uint32_t done)
{
    Head h = { .place = 0 };
    const uint32_t *on = r->program.on_lane[lane];
    while (ops_before(&r->program, lane, on[h.place] + 1) <= done)
        h.place++;
    h.instance = on[h.place];
    h.at = done - ops_before(&r->program, lane, h.instance);
    return h;
}

/* A stride earlier, are so many ops of the lane done? */
static bool is_done(const Steady *s, const Runner *r, uint32_t lane, uint32_t ops_n)
{
    uint32_t done = r->lane[lane].done;
    if (course_of(s, r, lane) != STAYS)
        done -= ops_of_stride(r, zone_of(s, r), lane);
    return done >= ops_n;
}

/* Would a lane that is ahead have begun its next op by now? */
static bool would_have_begun(const Steady *s, const Runner *r, uint32_t lane)
{
    const Sim *sim = s->sim;
    const Zone *z = zone_of(s, r);
    Head h = head_of(r, lane, r->lane[lane].done - ops_of_stride(r, z, lane));
    uint32_t op = op_at(sim, r, h.instance, lane, h.at);
    const Spot *spot = &r->program.spot[h.instance];
    const Segment *segment = segment_of(sim, r, h.instance);
    const Op *o = &sim->g->ops[op], *first = graph_ops(sim->g, segment);
    if (h.instance + z->stride >= r->host_next ||
        r->host_start[h.instance + z->stride] + r->cost->launch_after[op] > sim->now_ns)
        return false;
    for (uint32_t d = 0; d < o->dep_n; d++) {
        const Op *dep = first + sim->g->deps[o->dep_first + d];
        if (!is_done(s, r, dep->lane, op_number(&r->program, h.instance, dep) + 1))
            return false;
    }
    const SpotWait *w = r->program.wait + spot->wait_first;
    for (const SpotWait *end = w + spot->wait_n; w < end; w++)
        if (first + w->op == o && !is_done(s, r, w->lane, w->ops_n))
            return false;
    return true;
}

static bool has_zones(Steady *s)
{
    if (!s->zone && !find_zones(s))
        s->zone = NULL;
    return s->zone != NULL;
}

/* Is it ahead, and would by now be at work in the strides that there are more? */
static bool would_go_on(const Steady *s, const Runner *r, uint32_t lane)
{
    return course_of(s, r, lane) == AHEAD &&
           (r->lane[lane].busy || would_have_begun(s, r, lane));
}

bool rewind_would_go_on(Steady *s, const Runner *r)
{
    if (!has_zones(s))
        return false;
    for (uint32_t left = r->program.lanes; left; left &= left - 1)
        if (would_go_on(s, r, first_lane(left)))
            return true;
    return false;
}

static uint32_t most_of(const Steady *s, const Runner *r)
{
    const Zone *z = zone_of(s, r);
    uint32_t lowest = r->lane[LANE_COMPUTE].instance, highest = lowest;
    if (r->running_macro && r->running_macro->parts_n > 0)
        highest += r->running_macro->parts_n - 1;
    if (r->host_next < r->role->instances_n && r->host_next > highest)
        highest = r->host_next;
    for (uint32_t left = r->program.lanes; left; left &= left - 1) {
        uint32_t lane = first_lane(left);
        const LaneState *l = &r->lane[lane];
        Course course = course_of(s, r, lane);
        if (course == MOVES) {
            lowest = l->instance < lowest ? l->instance : lowest;
            highest = l->instance > highest ? l->instance : highest;
        } else if (would_go_on(s, r, lane)) {
            return 0;
        }
    }
    bool in_zone = lowest >= z->first && highest < z->end && host_is_even(r, z);
    return in_zone ? (lowest - z->first) / z->stride : 0;
}

uint32_t rewind_most(Steady *s)
{
    uint32_t most = NONE_U32;
    for (uint32_t i = 0; i < s->sim->runners_n && has_zones(s); i++) {
        uint32_t of_rank = most_of(s, &s->sim->runners[i]);
        most = of_rank < most ? of_rank : most;
    }
    return s->zone ? most : 0;
}

/* ---- going back ---- */

static void rewind_lane(const Steady *s, Runner *r, uint32_t lane, const Course *course,
                        uint32_t strides)
{
    const Zone *z = zone_of(s, r);
    LaneState *l = &r->lane[lane];
    l->done -= strides * ops_of_stride(r, z, lane);
    if (course[lane] == MOVES) {
        l->instance -= strides * z->stride;
        while (l->place > 0 && r->program.on_lane[lane][l->place - 1] >= l->instance)
            l->place--;
        if (l->wait == WAIT_LANE && course[l->wait_lane] != STAYS)
            l->wait_done -= strides * ops_of_stride(r, z, l->wait_lane);
        return;
    }
    Head h = head_of(r, lane, l->done);
    l->instance = h.instance;
    l->at = h.at;
    l->place = h.place;
    r->lanes_left += l->wait == WAIT_END;
    l->wait = WAIT_NONE;
    sim_wake(s->sim, r, lane);
}

/* What it has launched goes on from instances earlier; if that is all, as much later. */
static void rewind_host(Runner *r, const Zone *z, const Course *course, uint32_t strides)
{
    Host *h = r->host;
    uint32_t n = r->role->instances_n, instances = strides * z->stride;
    if (r->host_next == n) {
        int64_t more_ns =
            strides * (r->host_start[z->first + z->stride] - r->host_start[z->first]);
        for (uint32_t i = 0; i < n; i++)
            r->host_start[i] += more_ns;
        h->now_ns += more_ns;
        return;
    }
    r->host_next -= instances;
    h->instance -= instances;
    memmove(r->host_start, r->host_start + instances, r->host_next * sizeof *r->host_start);
    for (uint32_t i = 0; i < h->anchors_n; i++)
        h->anchors[i].place -=
            h->anchors[i].place < instances ? h->anchors[i].place : instances;
    LaneState *l = &r->lane[LANE_HOST];
    l->done -= strides * ops_of_stride(r, z, LANE_HOST);
    if (l->wait == WAIT_LANE && course[l->wait_lane] != STAYS)
        l->wait_done -= strides * ops_of_stride(r, z, l->wait_lane);
}

static void rewind_runner(Steady *s, Runner *r, uint32_t strides)
{
    const Zone *z = zone_of(s, r);
    Pace *p = &s->pace[r->id];
    Course course[LANE_N] = { STAYS };
    for (uint32_t lane = 0; lane < LANE_HOST; lane++)
        course[lane] = course_of(s, r, lane);
    for (uint32_t lane = 0; lane < LANE_HOST; lane++)
        if (course[lane] != STAYS)
            rewind_lane(s, r, lane, course, strides);
    if (course[LANE_COPY] == STAYS)
        s->sim->ops_done += (uint64_t)strides * ops_of_stride(r, z, LANE_COPY);
    rewind_host(r, z, course, strides);
    s->rewound[r->id] += strides * z->stride;
    p->micro_batch -= strides * s->sim->options->stride;
    p->next = steady_first_of(r->role, r->lane[LANE_COMPUTE].instance, p->micro_batch);
}

void rewind_by(Steady *s, uint32_t strides)
{
    Sim *sim = s->sim;
    for (uint32_t i = 0; i < sim->runners_n; i++)
        rewind_runner(s, &sim->runners[i], strides);
    s->left -= strides * sim->options->stride;
    s->micro_batch -= strides * sim->options->stride;
    sim->steady_next = sim->runners[0].lane[LANE_COMPUTE].instance;
    sim_settle(sim);
}

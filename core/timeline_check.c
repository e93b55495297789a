/*
 * timeline_check.c - is a timeline that came from outside as timeline_seal would
 * have left it?  Whoever has asked may index every table without looking.
 */
#include "core/timeline.h"

#include <math.h>
#include <stdlib.h>

#include "core/jobs.h"

static bool is_name(const Timeline *t, uint32_t id, bool optional)
{
    return id < t->names.n || (optional && id == NONE_U32);
}

static bool check_track(const Timeline *t, uint32_t k, Err *err)
{
    const Track *track = &t->tracks[k];
    if (track->name >= t->names.n)
        return err_set(err, "track %u has name %u of %u", k, track->name, t->names.n);
    if (track->kind >= TRACK_KIND_N)
        return err_set(err, "track %u is of kind %d, 0 to %d allowed", k, (int)track->kind,
                       TRACK_KIND_N - 1);
    if (track->rank >= t->ranks_n)
        return err_set(err, "track %u is of rank %u of %u", k, track->rank, t->ranks_n);
    if (track->ranks_n == 0)
        return err_set(err, "track %u stands for no rank", k);
    if (track->kind == TRACK_COUNTER ? track->span_n > 0 : track->point_n > 0)
        return err_set(err, "track %u is of kind %s and has %s", k,
                       track_kind_names[track->kind],
                       track->kind == TRACK_COUNTER ? "spans" : "points");
    if (track->lanes_n > track->span_n || (track->lanes_n == 0) != (track->span_n == 0))
        return err_set(err, "track %u has %u lanes for %" PRIu64 " spans", k, track->lanes_n,
                       track->span_n);
    return true;
}

bool timeline_check_tracks(const Timeline *t, Err *err)
{
    if (!timeline_ns_in_range(t->begin_ns) || t->end_ns < t->begin_ns ||
        t->end_ns > 2 * TIMELINE_NS_MAX)
        return err_set(err, "its begin or end is out of range");
    if (t->ranks_n > TIMELINE_RANKS_MAX)
        return err_set(err, "it has %u ranks, 0 to %u allowed", t->ranks_n, TIMELINE_RANKS_MAX);

    uint64_t spans = 0, points = 0;
    for (uint32_t k = 0; k < t->tracks_n; k++) {
        const Track *track = &t->tracks[k];
        if (track->span_first != spans || track->span_n > t->spans_n - spans)
            return err_set(err, "track %u has spans %" PRIu64 " to %" PRIu64 " of %" PRIu64, k,
                           track->span_first, track->span_first + track->span_n, t->spans_n);
        if (track->point_first != points || track->point_n > t->points_n - points)
            return err_set(err, "track %u has points %" PRIu64 " to %" PRIu64 " of %" PRIu64, k,
                           track->point_first, track->point_first + track->point_n,
                           t->points_n);
        if (!check_track(t, k, err))
            return false;
        spans += track->span_n;
        points += track->point_n;
    }
    if (spans != t->spans_n)
        return err_set(err, "%" PRIu64 " spans are on no track", t->spans_n - spans);
    if (points != t->points_n)
        return err_set(err, "%" PRIu64 " points are on no track", t->points_n - points);
    return true;
}

static bool check_indices(const Timeline *t, uint64_t i, Err *err)
{
    if (!is_name(t, t->span_name[i], false))
        return err_set(err, "span %" PRIu64 " has name %u of %u", i, t->span_name[i],
                       t->names.n);
    if (t->op_name && !is_name(t, t->op_name[i], true))
        return err_set(err, "span %" PRIu64 " has an op of name %u of %u", i, t->op_name[i],
                       t->names.n);
    if (t->logical && t->logical[i] != NONE_U64 && timeline_logical_of(t, i).n == 0)
        return err_set(err, "span %" PRIu64 " has logical ops that are not there", i);
    bool launch = t->comm[i] - TIMELINE_LAUNCH_FIRST < t->launches_n;
    if (t->comm[i] >= t->comms_n && t->comm[i] != NONE_U32 && !launch)
        return err_set(err, "span %" PRIu64 " has communication %u of %u", i, t->comm[i],
                       t->comms_n);
    if (t->span_class[i] >= SPAN_CLASS_N)
        return err_set(err, "span %" PRIu64 " is of class %u, 0 to %d allowed", i,
                       t->span_class[i], SPAN_CLASS_N - 1);
    return true;
}

static bool check_track_spans(const Timeline *t, uint32_t k, Err *err)
{
    const Track *track = &t->tracks[k];
    uint64_t end = track->span_first + track->span_n;
    for (uint64_t i = track->span_first; i < end; i++) {
        if (!check_indices(t, i, err))
            return false;
        if (t->span_track[i] != k)
            return err_set(err, "span %" PRIu64 " has track %u, not %u", i, t->span_track[i],
                           k);
        if (!timeline_ns_in_range(t->start_ns[i]) || t->dur_ns[i] < 0 ||
            !timeline_ns_in_range(t->dur_ns[i]) || t->start_ns[i] < t->begin_ns ||
            t->start_ns[i] + t->dur_ns[i] > t->end_ns)
            return err_set(err, "span %" PRIu64 " has times out of range", i);
        if (t->lane[i] >= track->lanes_n && t->lane[i] != 255)
            return err_set(err, "span %" PRIu64 " has lane %u of %u", i, t->lane[i],
                           track->lanes_n);
        if (i > track->span_first &&
            (t->start_ns[i] < t->start_ns[i - 1] ||
             (t->start_ns[i] == t->start_ns[i - 1] && t->dur_ns[i] > t->dur_ns[i - 1])))
            return err_set(err, "span %" PRIu64 " is out of order", i);
    }
    return true;
}

static bool check_comms(const Timeline *t, Err *err)
{
    for (uint32_t i = 0; i < t->comms_n; i++) {
        const Comm *c = &t->comms[i];
        if (!is_name(t, c->op, false) || !is_name(t, c->group, true) ||
            !is_name(t, c->dtype, true) || !is_name(t, c->algorithm, true) ||
            !is_name(t, c->protocol, true))
            return err_set(err, "communication %u has a name that does not exist", i);
        if (c->launch > t->launches_n)
            return err_set(err, "communication %u has launch %u of %u", i, c->launch - 1,
                           t->launches_n);
        if (c->wait_ns < -1 || !timeline_ns_in_range(c->wait_ns))
            return err_set(err, "communication %u has values out of range", i);
        if (timeline_ring_steps(t, c) > TIMELINE_RANKS_MAX)
            return err_set(err, "communication %u is one of %u steps, 0 to %u allowed", i,
                           timeline_ring_steps(t, c), TIMELINE_RANKS_MAX);
    }
    return true;
}

static bool check_points(const Timeline *t, uint32_t k, Err *err)
{
    uint64_t first = t->tracks[k].point_first, end = first + t->tracks[k].point_n;
    for (uint64_t i = first; i < end; i++) {
        if (t->point_track[i] != k)
            return err_set(err, "point %" PRIu64 " has track %u, not %u", i, t->point_track[i],
                           k);
        if (t->point_ns[i] < t->begin_ns || t->point_ns[i] > t->end_ns ||
            !isfinite(t->point_value[i]))
            return err_set(err, "point %" PRIu64 " has values out of range", i);
        if (i > first && t->point_ns[i] < t->point_ns[i - 1])
            return err_set(err, "point %" PRIu64 " is out of order", i);
    }
    return true;
}

/* Each track is looked at by one thread. */
typedef struct Check {
    const Timeline *t;
    bool *bad; /* by track */
} Check;

static bool check_one(const Timeline *t, uint32_t k, Err *err)
{
    return check_track_spans(t, k, err) && check_points(t, k, err);
}

static void look_at(void *check, uint32_t k)
{
    const Check *c = check;
    Err ignored = { 0 };
    c->bad[k] = !check_one(c->t, k, &ignored);
}

bool timeline_check(const Timeline *t, Err *err)
{
    enum { SPANS_FEW = 100000 }; /* that no thread is started for */
    ASSERT(t->sealed);
    if (!timeline_check_tracks(t, err) || !check_comms(t, err))
        return false;
    Check c = { t, mem_zero(t->tracks_n, sizeof *c.bad) };
    uint32_t k = 0;
    jobs_run(look_at, &c, t->tracks_n, t->spans_n < SPANS_FEW ? 1 : jobs_processors());
    while (k < t->tracks_n && !c.bad[k])
        k++;
    free(c.bad);
    return k == t->tracks_n || check_one(t, k, err); /* the first bad one says why */
}

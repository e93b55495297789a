/*
 * set_check.c - whether the files of a set are one run, whole, and of one clock.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "traces/set_parts.h"

#define FAR_APART_NS ((int64_t)60 * 1000000000)

enum { RANKS_SHOWN_MAX = 8 };

/* ---- world ---- */

bool set_check_worlds(TraceSet *s, bool lenient, Err *err)
{
    const TraceFile *first = NULL;
    size_t used_n = 0;
    for (size_t i = 0; i < s->files_n; i++)
        used_n += s->files[i].used;
    for (size_t i = 0; i < s->files_n; i++) {
        TraceFile *f = &s->files[i];
        if (!f->used || f->info.world_size == 0 || (f->info.ranks_counted && used_n > 1))
            continue;
        if (!first)
            first = f;
        if (f->info.world_size == first->info.world_size)
            continue;
        if (!lenient)
            return err_set(err,
                           "'%s' is of a run with %" PRIu32 " ranks, '%s' of one with %" PRIu32,
                           first->path, first->info.world_size, f->path, f->info.world_size);
        set_find(s,
                 "'%s' is left out: it is of a run with %" PRIu32 " ranks, '%s' of one with "
                 "%" PRIu32,
                 f->path, f->info.world_size, first->path, first->info.world_size);
        f->used = false;
    }
    s->world_size = first ? first->info.world_size : 0;
    return true;
}

/* By rank, of world many: whether the set has it. */
static bool *ranks_there(const TraceSet *s, uint32_t world)
{
    bool *there = mem_zero(world, sizeof *there);
    for (uint32_t k = 0; k < s->timeline.tracks_n; k++)
        if (s->timeline.tracks[k].rank < world)
            there[s->timeline.tracks[k].rank] = true;
    for (size_t i = 0; i < s->files_n; i++) {
        const TraceFile *f = &s->files[i];
        if (f->used && f->rank_from == TRACE_RANK_MANY)
            memset(there, true, world); /* it knows itself */
        else if (f->used && f->rank < world)
            there[f->rank] = true;
    }
    return there;
}

/* "6 of 8 ranks are missing: 1, 2, 3, 4, 5, 7". */
static void check_missing(TraceSet *s)
{
    for (uint32_t k = 0; k < s->timeline.tracks_n; k++)
        if (s->timeline.tracks[k].ranks_n > 1)
            return; /* folded: a rank stands for others, nobody knows which */
    char list[128] = "";
    size_t list_n = 0;
    uint32_t missing_n = 0, world = s->world_size;
    bool *there = ranks_there(s, world);
    for (uint32_t rank = 0; rank < world; rank++) {
        if (there[rank])
            continue;
        if (missing_n++ < RANKS_SHOWN_MAX)
            list_n += (size_t)snprintf(list + list_n, sizeof list - list_n, "%s%" PRIu32,
                                       list_n ? ", " : "", rank);
    }
    free(there);
    if (missing_n > 0)
        set_find(s, "%" PRIu32 " of %" PRIu32 " ranks are missing: %s%s", missing_n, world,
                 list, missing_n > RANKS_SHOWN_MAX ? ", ..." : "");
    for (size_t i = 0; i < s->files_n && world > 0; i++)
        if (s->files[i].used && s->files[i].rank >= world)
            set_find(s, "'%s' is rank %" PRIu32 ", and the run has %" PRIu32 " ranks",
                     s->files[i].path, s->files[i].rank, world);
}

/* ---- one run? ---- */

static const Track *steps_of_rank(const Timeline *t, uint32_t rank)
{
    for (uint32_t k = 0; k < t->tracks_n; k++)
        if (t->tracks[k].rank == rank && t->tracks[k].kind == TRACK_STEPS &&
            t->tracks[k].span_n > 0)
            return &t->tracks[k];
    return NULL;
}

static bool share_a_step(const Timeline *t, const Track *a, const Track *b)
{
    for (uint64_t i = a->span_first; i < a->span_first + a->span_n; i++)
        for (uint64_t j = b->span_first; j < b->span_first + b->span_n; j++)
            if (t->span_name[i] == t->span_name[j])
                return true;
    return false;
}

static void check_steps(TraceSet *s)
{
    const Timeline *t = &s->timeline;
    const TraceFile *first_file = NULL;
    const Track *first = NULL;
    for (size_t i = 0; i < s->files_n; i++) {
        const TraceFile *f = &s->files[i];
        const Track *steps =
            f->used && f->rank_from != TRACE_RANK_MANY ? steps_of_rank(t, f->rank) : NULL;
        if (!steps)
            continue;
        if (!first) {
            first = steps;
            first_file = f;
        } else if (!share_a_step(t, first, steps)) {
            set_find(
                s, "'%s' and '%s' have no step in common, %s is in the one and %s in the other",
                first_file->path, f->path, timeline_text(t, t->span_name[first->span_first]),
                timeline_text(t, t->span_name[steps->span_first]));
        }
    }
}

typedef struct Extent {
    int64_t begin_ns, end_ns;
} Extent;

static Extent rank_extent(const Timeline *t, uint32_t rank)
{
    Extent e = { INT64_MAX, INT64_MIN };
    for (uint32_t k = 0; k < t->tracks_n; k++) {
        const Track *track = &t->tracks[k];
        if (track->rank != rank || track->span_n == 0)
            continue;
        e.begin_ns = min_i64(e.begin_ns, t->start_ns[track->span_first]);
        uint64_t last = track->span_first + track->span_n - 1;
        e.end_ns = max_i64(e.end_ns, t->start_ns[last] + t->dur_ns[last]);
    }
    return e;
}

/* How far the second lies behind the first; 0 where they meet. */
static int64_t gap_ns(Extent a, Extent b)
{
    if (a.begin_ns > a.end_ns || b.begin_ns > b.end_ns)
        return 0;
    return max_i64(0, max_i64(b.begin_ns - a.end_ns, a.begin_ns - b.end_ns));
}

static void check_times(TraceSet *s)
{
    const TraceFile *first = NULL;
    size_t own_clock_n = 0, used_n = 0;
    Extent first_extent = { 0, 0 };
    for (size_t i = 0; i < s->files_n; i++) {
        const TraceFile *f = &s->files[i];
        if (!f->used)
            continue;
        used_n++;
        own_clock_n += !f->info.wall_clock;
        if (!f->info.wall_clock)
            continue;
        Extent extent = rank_extent(&s->timeline, f->rank);
        int64_t apart_ns = first ? gap_ns(first_extent, extent) : 0;
        if (apart_ns > FAR_APART_NS)
            set_find(s, "'%s' and '%s' lie %.1f minutes apart: they may not be one run",
                     first->path, f->path, (double)apart_ns / 6e10);
        if (!first) {
            first = f;
            first_extent = extent;
        }
    }
    if (used_n > 1 && own_clock_n > 0)
        set_find(
            s,
            "%zu of %zu files do not tell the time of day: clocks of ranks cannot be compared",
            own_clock_n, used_n);
}

/* ---- events ---- */

static void check_events(TraceSet *s)
{
    for (size_t i = 0; i < s->files_n; i++) {
        const TraceFile *f = &s->files[i];
        const TraceInfo *info = &f->info;
        if (!f->used)
            continue;
        char at[40] = "";
        if (info->damage_n > 0 && info->damage[0].offset != NONE_U64)
            snprintf(at, sizeof at, " at byte %" PRIu64, info->damage[0].offset);
        if (info->events_skipped > 0 && info->damage_n > 0)
            set_find(s,
                     "'%s': %" PRIu64 " of %" PRIu64
                     " events are damaged and were skipped, the first%s: %s",
                     f->path, info->events_skipped, info->events_read + info->events_skipped,
                     at, info->damage[0].reason);
        if (info->note[0])
            set_find(s, "'%s': %s", f->path, info->note);
        if (info->broken)
            set_find(s, "'%s': %s", f->path, info->broken);
        else if (info->cut_short)
            set_find(s, "'%s' is cut short", f->path);
        if (info->documents_n > 1)
            set_find(s, "'%s' holds %" PRIu32 " traces one after another, read as one", f->path,
                     info->documents_n);
    }
}

static void check_communication(TraceSet *s)
{
    if (s->kernels_n > 0 && s->comm_kernels_n == 0 && s->world_size != 1)
        set_find(s,
                 "none of %" PRIu64
                 " GPU kernels was recognised as communication (--rules adds "
                 "names)",
                 s->kernels_n);
}

void set_check(TraceSet *s)
{
    check_missing(s);
    check_steps(s);
    check_times(s);
    check_events(s);
    check_communication(s);
}

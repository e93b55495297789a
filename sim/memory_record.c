/*
 * memory_record.c - allocated memory as a counter track of a rank.
 *
 * The spans of the compute lane say when each instance ran there; the values
 * are those of memory_of_role, so the highest point of the track is the peak.
 */
#include "sim/memory.h"

#include <stdlib.h>
#include <string.h>

typedef struct When {
    int64_t start_ns, end_ns; /* end < start: no kernel on the compute lane */
} When;

static uint32_t compute_track(const Timeline *t, uint32_t rank)
{
    for (uint32_t i = 0; i < t->tracks_n; i++) {
        const Track *k = &t->tracks[i];
        if (k->rank == rank && k->kind == TRACK_STREAM &&
            strcmp(timeline_text(t, k->name), lane_names[LANE_COMPUTE]) == 0)
            return i;
    }
    return NONE_U32;
}

static void find_times(When *when, const Timeline *t, const Graph *g, const Role *role,
                       uint32_t track)
{
    for (uint32_t i = 0; i < role->instances_n; i++)
        when[i] = (When){ INT64_MAX, INT64_MIN };
    for (uint64_t i = 0; i < t->spans_n; i++) {
        if (t->span_track[i] != track || t->op[i] >= role->ops_n)
            continue;
        When *w = &when[graph_find_op(g, role, t->op[i]).instance];
        w->start_ns = min_i64(w->start_ns, t->start_ns[i]);
        w->end_ns = max_i64(w->end_ns, t->start_ns[i] + t->dur_ns[i]);
    }
}

void memory_record(Timeline *t, const Graph *g, uint32_t rank, const RoleMemory *m)
{
    ASSERT(!t->sealed && m->before);
    const Role *role = graph_role_of(g, rank);
    uint32_t compute = compute_track(t, rank);
    if (compute == NONE_U32)
        return;
    When *when = mem_zero((size_t)role->instances_n + 1, sizeof *when);
    find_times(when, t, g, role, compute);
    uint32_t track = timeline_track(t, rank, TRACK_COUNTER, "allocated bytes", LANE_N + 1);
    t->tracks[track].ranks_n = t->tracks[compute].ranks_n;
    timeline_point(t, track, 0, (double)m->before[0]);
    int64_t now_ns = 0;
    for (uint32_t i = 0; i < role->instances_n; i++) {
        const Segment *s = &g->segments[role->instances[i].segment];
        if (s->memory_peak == 0 && s->memory_delta == 0)
            continue;
        bool ran = when[i].end_ns >= when[i].start_ns;
        int64_t start_ns = ran ? max_i64(now_ns, when[i].start_ns) : now_ns;
        now_ns = ran ? max_i64(now_ns, when[i].end_ns) : now_ns;
        timeline_point(t, track, start_ns, (double)m->before[i] + (double)s->memory_peak);
        timeline_point(t, track, now_ns, (double)m->before[i + 1]);
    }
    free(when);
}

/*
 * memory_record.c - allocated memory as a counter track of each rank.
 *
 * The spans of the compute lane say when each instance ran there; the values
 * are those of memory_of_role, so the highest point of a track is the peak.
 */
#include "sim/memory.h"

#include <stdlib.h>
#include <string.h>

typedef struct When {
    int64_t start_ns, end_ns; /* end < start: no kernel on the compute lane */
} When;

static bool is_compute(const Timeline *t, const Track *k)
{
    return k->kind == TRACK_STREAM &&
           strcmp(timeline_text(t, k->name), lane_names[LANE_COMPUTE]) == 0;
}

/* By track: when its instances ran, for compute tracks; NULL for the others. */
static When **open_times(const Timeline *t, const Graph *g, uint32_t tracks_n)
{
    When **when = mem_zero((size_t)tracks_n + 1, sizeof(When *));
    for (uint32_t k = 0; k < tracks_n; k++) {
        if (!is_compute(t, &t->tracks[k]))
            continue;
        uint32_t n = graph_role_of(g, t->tracks[k].rank)->instances_n;
        when[k] = mem_zero((size_t)n + 1, sizeof *when[k]);
        for (uint32_t i = 0; i < n; i++)
            when[k][i] = (When){ INT64_MAX, INT64_MIN };
    }
    return when;
}

static void find_times(When **when, const Timeline *t, const Graph *g)
{
    for (uint64_t i = 0; i < t->spans_n; i++) {
        uint32_t track = t->span_track[i];
        const Role *role = graph_role_of(g, t->tracks[track].rank);
        if (!when[track] || t->op[i] >= role->ops_n)
            continue;
        When *w = &when[track][graph_find_op(g, role, t->op[i]).instance];
        w->start_ns = min_i64(w->start_ns, t->start_ns[i]);
        w->end_ns = max_i64(w->end_ns, t->start_ns[i] + t->dur_ns[i]);
    }
}

static void add_track(Timeline *t, const Graph *g, const RoleMemory *memory, uint32_t compute,
                      const When *when)
{
    uint32_t rank = t->tracks[compute].rank;
    const Role *role = graph_role_of(g, rank);
    const RoleMemory *m = &memory[role - g->roles];
    ASSERT(m->before);
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
}

void memory_record(Timeline *t, const Graph *g, const RoleMemory *memory)
{
    ASSERT(!t->sealed);
    uint32_t tracks_n = t->tracks_n;
    When **when = open_times(t, g, tracks_n);
    find_times(when, t, g);
    for (uint32_t k = 0; k < tracks_n; k++) {
        if (when[k])
            add_track(t, g, memory, k, when[k]);
        free(when[k]);
    }
    free(when);
}

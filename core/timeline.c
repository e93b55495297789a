/*
 * timeline.c - columns that grow together, and what can be read off them.
 * Sealing stands in timeline_seal.c, checking in timeline_check.c.
 */
#include "core/timeline.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const track_kind_names[TRACK_KIND_N] = { "stream", "host", "steps", "counter" };

const char *const span_class_names[SPAN_CLASS_N] = {
    "compute", "comm", "p2p", "memory", "launch", "host", "sync", "step", "note",
};

/* ---- building ---- */

void timeline_set_name(Timeline *t, const char *name)
{
    t->name = name ? intern_text(&t->names, intern(&t->names, name)) : NULL;
}

uint32_t timeline_track(Timeline *t, uint32_t rank, TrackKind kind, const char *name,
                        int64_t sort)
{
    ASSERT(!t->sealed && rank < TIMELINE_RANKS_MAX && kind < TRACK_KIND_N);
    ASSERT(t->tracks_n < NONE_U32 / 2);
    GROW(t->tracks, t->tracks_n, t->tracks_cap);
    t->tracks[t->tracks_n] = (Track){
        .name = intern(&t->names, name), .rank = rank, .kind = kind, .ranks_n = 1, .sort = sort
    };
    if (t->ranks_n <= rank)
        t->ranks_n = rank + 1;
    return t->tracks_n++;
}

static void resize_columns(Timeline *t, uint64_t cap)
{
    t->start_ns = mem_resize(t->start_ns, cap, sizeof *t->start_ns);
    t->dur_ns = mem_resize(t->dur_ns, cap, sizeof *t->dur_ns);
    t->span_name = mem_resize(t->span_name, cap, sizeof *t->span_name);
    t->span_track = mem_resize(t->span_track, cap, sizeof *t->span_track);
    t->op = mem_resize(t->op, cap, sizeof *t->op);
    t->comm = mem_resize(t->comm, cap, sizeof *t->comm);
    t->span_class = mem_resize(t->span_class, cap, sizeof *t->span_class);
    t->lane = mem_resize(t->lane, cap, sizeof *t->lane);
    if (t->correlation)
        t->correlation = mem_resize(t->correlation, cap, sizeof *t->correlation);
    if (t->args_offset)
        t->args_offset = mem_resize(t->args_offset, cap, sizeof *t->args_offset);
    if (t->op_name)
        t->op_name = mem_resize(t->op_name, cap, sizeof *t->op_name);
    if (t->logical)
        t->logical = mem_resize(t->logical, cap, sizeof *t->logical);
    t->spans_cap = cap;
}

void timeline_reserve(Timeline *t, uint64_t spans_n)
{
    ASSERT(!t->sealed && !t->backing);
    if (spans_n > t->spans_cap)
        resize_columns(t, spans_n);
}

void timeline_want(Timeline *t, bool correlation, bool args_offset)
{
    ASSERT(t->spans_n == 0 && !t->sealed);
    if (correlation && !t->correlation)
        t->correlation = mem_zero(1, sizeof *t->correlation);
    if (args_offset && !t->args_offset)
        t->args_offset = mem_zero(1, sizeof *t->args_offset);
    resize_columns(t, t->spans_cap ? t->spans_cap : 1024);
}

uint64_t timeline_span(Timeline *t, Span span)
{
    ASSERT(!t->sealed && span.track < t->tracks_n && span.name < t->names.n);
    ASSERT(span.class_ < SPAN_CLASS_N && t->tracks[span.track].kind != TRACK_COUNTER);
    ASSERT(timeline_ns_in_range(span.start_ns) && span.dur_ns >= 0 &&
           timeline_ns_in_range(span.dur_ns));
    ASSERT(span.comm < t->comms_n || span.comm == NONE_U32);
    if (t->spans_n == t->spans_cap)
        resize_columns(t, t->spans_cap ? 2 * t->spans_cap : 1024);

    uint64_t i = t->spans_n++;
    t->start_ns[i] = span.start_ns;
    t->dur_ns[i] = span.dur_ns;
    t->span_name[i] = span.name;
    t->span_track[i] = span.track;
    t->op[i] = span.op;
    t->comm[i] = span.comm;
    t->span_class[i] = (uint8_t)span.class_;
    t->lane[i] = 0;
    if (t->correlation)
        t->correlation[i] = NONE_U64;
    if (t->args_offset)
        t->args_offset[i] = NONE_U64;
    if (t->op_name)
        t->op_name[i] = NONE_U32;
    if (t->logical)
        t->logical[i] = NONE_U64;
    return i;
}

void timeline_set_op_name(Timeline *t, uint64_t span, uint32_t name)
{
    ASSERT(!t->sealed && span < t->spans_n && name < t->names.n);
    if (!t->op_name) {
        t->op_name = mem_resize(NULL, t->spans_cap, sizeof *t->op_name);
        memset(t->op_name, 0xff, t->spans_n * sizeof *t->op_name); /* NONE_U32 */
    }
    t->op_name[span] = name;
}

Comm comm_of(uint32_t op)
{
    return (Comm){ .op = op,
                   .group = NONE_U32,
                   .group_id = NONE_U32,
                   .seq = NONE_U32,
                   .peer = NONE_U32,
                   .dtype = NONE_U32,
                   .algorithm = NONE_U32,
                   .protocol = NONE_U32,
                   .bytes = NONE_U64,
                   .wait_ns = -1 };
}

bool comm_op_is_p2p(const char *op)
{
    return strcmp(op, "send") == 0 || strcmp(op, "recv") == 0 || strcmp(op, "send_recv") == 0;
}

uint32_t timeline_comm(Timeline *t, Comm comm)
{
    ASSERT(!t->sealed && t->comms_n < NONE_U32 / 2);
    ASSERT(comm.launch <= t->launches_n && timeline_ns_in_range(comm.wait_ns));
    GROW(t->comms, t->comms_n, t->comms_cap);
    t->comms[t->comms_n] = comm;
    return t->comms_n++;
}

void timeline_set_ring(Timeline *t, uint32_t comm, uint32_t steps)
{
    ASSERT(!t->sealed && comm < t->comms_n);
    if (steps < 2 || steps > TIMELINE_RANKS_MAX)
        return;
    if (comm >= t->rings_n) {
        RESERVE(t->comm_ring, t->comms_n, t->rings_cap);
        memset(t->comm_ring + t->rings_n, 0, (t->comms_n - t->rings_n) * sizeof *t->comm_ring);
        t->rings_n = t->comms_n;
    }
    t->comm_ring[comm] = steps;
}

void timeline_point(Timeline *t, uint32_t track, int64_t at_ns, double value)
{
    ASSERT(!t->sealed && track < t->tracks_n && t->tracks[track].kind == TRACK_COUNTER);
    ASSERT(timeline_ns_in_range(at_ns) && isfinite(value));
    if (t->points_n == t->points_cap) {
        t->points_cap = t->points_cap ? 2 * t->points_cap : 256;
        t->point_track = mem_resize(t->point_track, t->points_cap, sizeof *t->point_track);
        t->point_ns = mem_resize(t->point_ns, t->points_cap, sizeof *t->point_ns);
        t->point_value = mem_resize(t->point_value, t->points_cap, sizeof *t->point_value);
    }
    t->point_track[t->points_n] = track;
    t->point_ns[t->points_n] = at_ns;
    t->point_value[t->points_n++] = value;
}

/* ---- the end ---- */

int64_t timeline_end_ns(const Timeline *t)
{
    ASSERT(t->sealed);
    return t->end_ns;
}

int64_t timeline_begin_ns(const Timeline *t)
{
    ASSERT(t->sealed);
    return t->begin_ns;
}

static void free_columns(Timeline *t)
{
    free(t->start_ns);
    free(t->dur_ns);
    free(t->span_name);
    free(t->span_track);
    free(t->op);
    free(t->comm);
    free(t->span_class);
    free(t->lane);
    free(t->correlation);
    free(t->args_offset);
    free(t->op_name);
    free(t->logical);
    free(t->comms);
    free(t->launches);
    free(t->comm_ring);
    free(t->logical_lists);
    free(t->point_track);
    free(t->point_ns);
    free(t->point_value);
}

void timeline_free(Timeline *t)
{
    if (t->backing)
        t->backing_free(t->backing);
    else
        free_columns(t);
    free(t->tracks);
    free(t->launch_slots);
    free(t->logical_slots);
    intern_free(&t->names);
    *t = (Timeline){ 0 };
}

/* ---- reading ---- */

uint32_t timeline_class_set(const Timeline *t, uint64_t first, uint64_t n)
{
    const uint8_t *classes = t->span_class;
    uint32_t set = 0;
    if (n > 1 && memcmp(&classes[first], &classes[first + 1], n - 1) == 0)
        n = 1; /* as on most streams: all are of the first one's class */
    for (uint64_t i = first; i < first + n; i++)
        set |= (uint32_t)1 << min_u64(classes[i], SPAN_CLASS_N);
    return set;
}

/* Kernels of a track begin with one that has an op, or a few spans later. */
static bool has_ops(const Timeline *t)
{
    enum { LOOKED_AT = 16 };
    for (uint32_t k = 0; k < t->tracks_n; k++)
        for (uint64_t i = 0; i < t->tracks[k].span_n && i < LOOKED_AT; i++)
            if (t->op[t->tracks[k].span_first + i] != NONE_U32)
                return true;
    return false;
}

uint32_t timeline_world_size(const Timeline *t)
{
    return t->ranks_n > 1 || has_ops(t) ? t->ranks_n : 0;
}

double timeline_busbw_factor(const char *op, uint32_t ranks_n)
{
    double n = ranks_n > 0 ? ranks_n : 1;
    if (strcmp(op, "all_reduce") == 0)
        return 2 * (n - 1) / n;
    if (strcmp(op, "all_gather") == 0 || strcmp(op, "reduce_scatter") == 0 ||
        strcmp(op, "all_to_all") == 0 || strcmp(op, "gather") == 0 ||
        strcmp(op, "scatter") == 0)
        return (n - 1) / n;
    return 1;
}

double timeline_busbw_over(const Timeline *t, uint64_t span, int64_t transfer_ns)
{
    const Comm *c = timeline_comm_of(t, span);
    if (!c || c->bytes == NONE_U64 || c->ranks_n == 0 || transfer_ns <= 0)
        return 0;
    return (double)c->bytes * timeline_busbw_factor(timeline_text(t, c->op), c->ranks_n) /
           (double)transfer_ns;
}

double timeline_busbw_bytes_per_ns(const Timeline *t, uint64_t span)
{
    return timeline_busbw_over(t, span, t->dur_ns[span] - timeline_wait_ns(t, span));
}

typedef struct Place {
    uint32_t rank, kind;
    int64_t sort;
    uint32_t track;
} Place;

static int compare_places(const void *a_, const void *b_)
{
    const Place *a = a_, *b = b_;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    if (a->sort != b->sort)
        return a->sort < b->sort ? -1 : 1;
    return a->track < b->track ? -1 : a->track > b->track;
}

void timeline_track_order(const Timeline *t, uint32_t *order)
{
    static const uint32_t kind_place[TRACK_KIND_N] = {
        [TRACK_STEPS] = 0, [TRACK_STREAM] = 1, [TRACK_COUNTER] = 2, [TRACK_HOST] = 3
    };
    Place *places = mem_resize(NULL, t->tracks_n, sizeof *places);
    for (uint32_t k = 0; k < t->tracks_n; k++)
        places[k] =
            (Place){ t->tracks[k].rank, kind_place[t->tracks[k].kind], t->tracks[k].sort, k };
    qsort(places, t->tracks_n, sizeof *places, compare_places);
    for (uint32_t k = 0; k < t->tracks_n; k++)
        order[k] = places[k].track;
    free(places);
}

_Static_assert(sizeof(Comm) == 56, "no padding: Comm is the same on disk");

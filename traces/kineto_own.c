/*
 * kineto_own.c - names of processes and threads, and what chrome_write has added
 * to them: a trace it wrote comes back as the timeline it was.
 */
#include <stdlib.h>
#include <string.h>

#include "traces/kineto_parts.h"

static const Id no_id = { .absent = true };

/* ---- M ---- */

static TrackKind declared_kind(const ScanText *v)
{
    for (TrackKind kind = 0; kind < TRACK_KIND_N; kind++)
        if (scan_is(v, track_kind_names[kind], strlen(track_kind_names[kind])))
            return kind;
    return TRACK_KIND_N;
}

static uint32_t rank_of_process(Kineto *k, const Event *e)
{
    uint32_t process = place_find(k, PLACE_PROCESS, kineto_pid(k, e), no_id);
    uint32_t rank = process == NONE_U32 ? NONE_U32 : k->places.place[process].rank;
    return rank == NONE_U32 ? 0 : rank;
}

/* thread_name of chrome_write: kind, sort and number of the track. */
static void declare_track(Kineto *k, const Event *e)
{
    int64_t number, sort = 0, stands_for = 1;
    TrackKind kind = declared_kind(&e->arg[ARG_KIND]);
    if (kind == TRACK_KIND_N || !event_whole(e, ARG_TRACK, &number))
        return;
    event_whole(e, ARG_SORT, &sort);
    event_whole(e, ARG_STANDS_FOR, &stands_for);
    uint32_t numbered = place_get(k, PLACE_NUMBERED, (Id){ .value = number }, no_id);
    uint32_t track = k->places.place[numbered].track;
    if (track == NONE_U32) { /* further rows of a track have its name with a number */
        track = timeline_track(k->t, rank_of_process(k, e), kind, "", sort);
        k->t->tracks[track].name = kineto_intern(k, &e->arg[ARG_NAME]);
        if (stands_for > 0 && stands_for < NONE_U32)
            k->t->tracks[track].ranks_n = (uint32_t)stands_for;
        k->places.place[numbered].track = track;
    }
    uint32_t place = place_get(k, PLACE_DECLARED, kineto_pid(k, e), kineto_tid(k, e));
    k->places.place[place].track = track;
}

/* The number in "/device:GPU:3" and "Stream #13(Compute)"; -1: the name is another. */
static int64_t number_in_name(const Kineto *k, uint32_t name, const char *start)
{
    const char *text = k->t->names.text[name];
    size_t n = strlen(start), digits_n;
    if (strncmp(text, start, n) != 0)
        return -1;
    digits_n = strspn(text + n, "0123456789");
    return digits_n > 0 && digits_n < 7 ? strtol(text + n, NULL, 10) : -1;
}

static void name_process(Kineto *k, const Event *e)
{
    int64_t rank;
    uint32_t place = place_get(k, PLACE_PROCESS, kineto_pid(k, e), no_id);
    if (event_has(e, ARG_NAME)) {
        Place *p = &k->places.place[place];
        p->name = kineto_intern(k, &e->arg[ARG_NAME]);
        p->number = number_in_name(k, p->name, "/device:GPU:");
    }
    if (event_whole(e, ARG_RANK, &rank) && rank >= 0 && rank < (int64_t)TIMELINE_RANKS_MAX)
        k->places.place[place].rank = (uint32_t)rank;
}

void kineto_add_names(Kineto *k, const Event *e)
{
    if (e->name.kind != SCAN_STRING)
        return;
    if (SCAN_IS(&e->name, "process_name")) {
        name_process(k, e);
        return;
    }
    if (!SCAN_IS(&e->name, "thread_name") || !event_has(e, ARG_NAME) ||
        e->arg[ARG_NAME].kind != SCAN_STRING)
        return;
    if (k->from_us && event_has(e, ARG_KIND)) {
        declare_track(k, e);
        return;
    }
    uint32_t place = place_get(k, PLACE_THREAD, kineto_pid(k, e), kineto_tid(k, e));
    Place *p = &k->places.place[place];
    p->name = kineto_intern(k, &e->arg[ARG_NAME]);
    p->number = number_in_name(k, p->name, "Stream #");
}

/* ---- spans ---- */

static SpanClass declared_class(const Kineto *k, const Event *e, const Track *track,
                                const Comm *comm)
{
    switch (event_cat(e)) {
    case CAT_KERNEL:
        if (!comm)
            return SPAN_COMPUTE;
        return comm_op_is_p2p(timeline_text(k->t, comm->op)) ? SPAN_P2P : SPAN_COMM;
    case CAT_MEMORY:
        return SPAN_MEMORY;
    case CAT_RUNTIME:
        return SPAN_LAUNCH;
    case CAT_GPU_SYNC:
        return SPAN_SYNC;
    case CAT_NOTE:
        return track->kind == TRACK_STEPS ? SPAN_STEP : SPAN_NOTE;
    case CAT_GPU_NOTE:
        return SPAN_NOTE;
    default:
        return SPAN_HOST;
    }
}

/* The writer's class where the category does not tell it; see chrome_write.h. */
static SpanClass class_arg(const Event *e, SpanClass class_)
{
    if (!event_has(e, ARG_CLASS))
        return class_;
    for (SpanClass c = 0; c < SPAN_CLASS_N; c++)
        if (scan_is(&e->arg[ARG_CLASS], span_class_names[c], strlen(span_class_names[c])))
            return c;
    return class_;
}

static uint32_t own_comm(Kineto *k, const Event *e, Comm comm)
{
    uint32_t number = timeline_comm(k->t, comm);
    int64_t steps;
    if (event_whole(e, ARG_RING_STEPS, &steps) && steps > 0 && steps <= TIMELINE_RANKS_MAX)
        timeline_set_ring(k->t, number, (uint32_t)steps);
    return number;
}

/* A number below limit, of that base, from *at on; false: there is none. */
static bool number_at(const uint8_t **at, const uint8_t *end, uint64_t base, uint64_t limit,
                      uint64_t *number)
{
    const uint8_t *from = *at;
    for (*number = 0; *at < end; ++*at) {
        const char *digits = "0123456789abcdef", *digit = memchr(digits, **at, base);
        if (!digit)
            break;
        *number = *number * base + (uint64_t)(digit - digits);
        if (*number >= limit)
            return false;
    }
    return *at > from;
}

/* "INSTANCE:NUMBER,NUMBER..." as chrome_write writes it; anything else says nothing. */
static void logical_arg(Kineto *k, const Event *e, uint64_t span)
{
    if (!event_has(e, ARG_LOGICAL) || e->arg[ARG_LOGICAL].kind != SCAN_STRING)
        return;
    const uint8_t *at = e->arg[ARG_LOGICAL].at, *end = at + e->arg[ARG_LOGICAL].n;
    uint32_t ops[TIMELINE_LOGICAL_OPS_MAX];
    uint64_t number;
    LogicalOps of = { .op = ops };
    if (!number_at(&at, end, 16, TIMELINE_LOGICAL_INSTANCES, &of.instance))
        return;
    for (uint8_t before = ':'; at < end; before = ',') {
        if (*at++ != before || of.n == TIMELINE_LOGICAL_OPS_MAX ||
            !number_at(&at, end, 10, NONE_U32, &number))
            return;
        ops[of.n++] = (uint32_t)number;
    }
    timeline_set_logical(k->t, span, of);
}

const char *kineto_add_declared(Kineto *k, const Event *e, uint32_t place)
{
    Span span = { .op = NONE_U32, .comm = NONE_U32, .track = k->places.place[place].track };
    const Track *track = &k->t->tracks[span.track];
    int64_t op;
    if (event_cat(e) == CAT_WAIT || track->kind == TRACK_COUNTER)
        return NULL; /* part of a span that has been read */
    if (!scan_decimal(&e->ts, 3, &span.start_ns) || !timeline_ns_in_range(span.start_ns))
        return "its ts is no number, or out of range";
    if (!scan_decimal(&e->dur, 3, &span.dur_ns) || span.dur_ns < 0 ||
        span.dur_ns >= TIMELINE_NS_MAX / 4)
        return "its dur is no number, or out of range";
    bool own = event_has(e, ARG_NAME) && e->arg[ARG_NAME].kind == SCAN_STRING;
    span.name = kineto_name(k, own ? &e->arg[ARG_NAME] : &e->name)->id;
    if (event_whole(e, ARG_OP, &op) && op >= 0 && op < NONE_U32)
        span.op = (uint32_t)op;
    Comm comm;
    bool said = comm_of_args(k, e, &comm);
    span.class_ = class_arg(e, declared_class(k, e, track, said ? &comm : NULL));
    if (said)
        span.comm = own_comm(k, e, comm);
    bool kernel = span.class_ <= SPAN_P2P;
    k->info->kernels_n += kernel;
    k->info->comm_kernels_n += kernel && span.class_ != SPAN_COMPUTE;
    uint64_t i = kineto_span(k, e, span);
    kineto_launch(k, e, i);
    if (event_has(e, ARG_OP_NAME) && e->arg[ARG_OP_NAME].kind == SCAN_STRING)
        timeline_set_op_name(k->t, i, kineto_intern(k, &e->arg[ARG_OP_NAME]));
    logical_arg(k, e, i);
    return NULL;
}

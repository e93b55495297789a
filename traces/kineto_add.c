/*
 * kineto_add.c - an event becomes a span, a counter point or a name.
 *
 * kineto.h has the table of what becomes what.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "traces/kineto_parts.h"

#define STREAM_NONE INT64_MIN

/* ---- pieces ---- */

static const Id no_id = { .absent = true };

static Id number_id(int64_t value)
{
    return (Id){ .value = value };
}

/* Times from 2043 on lose multiples of 73 years; what lies between two stays as it is. */
static const char *read_time(const Event *e, int64_t *start_ns)
{
    if (e->ts.kind == SCAN_NOTHING)
        return "it has no ts";
    if (!scan_decimal(&e->ts, 3, start_ns))
        return "its ts is no number, or out of range";
    if (*start_ns > TIMELINE_NS_MAX)
        *start_ns %= TIMELINE_NS_MAX;
    return timeline_ns_in_range(*start_ns) ? NULL : "its ts is out of range";
}

static const char *read_duration(const Event *e, int64_t *dur_ns)
{
    if (e->dur.kind == SCAN_NOTHING)
        return "it has no dur";
    if (!scan_decimal(&e->dur, 3, dur_ns))
        return "its dur is no number, or out of range";
    if (*dur_ns < 0)
        return "its dur is negative";
    return *dur_ns < TIMELINE_NS_MAX / 4 ? NULL : "its dur is out of range";
}

static uint64_t correlation_of(const Event *e)
{
    int64_t x;
    return event_whole(e, ARG_CORRELATION, &x) && x >= 0 ? (uint64_t)x : NONE_U64;
}

uint64_t kineto_span(Kineto *k, const Event *e, Span span)
{
    uint64_t i = timeline_span(k->t, span);
    k->t->correlation[i] = correlation_of(e);
    k->t->args_offset[i] = e->offset;
    k->latest_ns = max_i64(k->latest_ns, span.start_ns + span.dur_ns);
    return i;
}

/* ---- GPU rows ---- */

static bool is_gpu_cat(Cat cat)
{
    return cat == CAT_KERNEL || cat == CAT_MEMORY || cat == CAT_GPU_SYNC || cat == CAT_GPU_NOTE;
}

static bool is_host_cat(Cat cat)
{
    return cat == CAT_HOST || cat == CAT_RUNTIME || cat == CAT_NOTE || cat == CAT_TRACE ||
           cat == CAT_GPU_NOTE;
}

/* args.stream where it is a number that names a stream; in quotes only on GPU rows. */
static int64_t stream_of(const Event *e, Cat cat)
{
    int64_t stream;
    if (!event_whole(e, ARG_STREAM, &stream) || stream < 0)
        return STREAM_NONE;
    if (e->arg[ARG_STREAM].kind == SCAN_STRING && !is_gpu_cat(cat))
        return STREAM_NONE;
    return stream;
}

/* The pid of a GPU's row is its device; that of a host's row is not. */
static Id device_of(Kineto *k, const Event *e, PlaceKind kind)
{
    int64_t device;
    if (event_whole(e, ARG_DEVICE, &device))
        return number_id(device);
    return kind == PLACE_ODD ? no_id : kineto_pid(k, e);
}

static void count_kernel(Kineto *k, uint32_t rule, SpanClass class_)
{
    k->info->kernels_n++;
    if (class_ == SPAN_COMPUTE)
        return;
    k->info->comm_kernels_n++;
    k->info->rule_kernels_n[rule]++;
}

static void add_kernel(Kineto *k, const Event *e, const Name *name, Span span)
{
    const Rule *rule = name->rule == NONE_U32 ? NULL : &k->rules->rule[name->rule];
    Comm comm;
    bool ruled_out = rule && rule->class_ == SPAN_COMPUTE;
    bool said = !ruled_out && comm_of_args(k, e, &comm);
    uint32_t counted = RULE_METADATA;
    span.class_ = SPAN_COMPUTE;
    if (said) {
        span.class_ = comm_op_is_p2p(k->t->names.text[comm.op]) ? SPAN_P2P : SPAN_COMM;
        comm.algorithm = name->algorithm;
        comm.protocol = name->protocol;
    } else if (rule && !ruled_out) {
        span.class_ = rule->class_;
        counted = name->rule;
        comm_of_name(name, &comm);
    }
    count_kernel(k, counted, span.class_);
    if (span.class_ != SPAN_COMPUTE)
        span.comm = timeline_comm(k->t, comm);
    uint64_t i = kineto_span(k, e, span);
    kineto_launch(k, e, i);
    if (span.class_ != SPAN_COMPUTE && !said && k->t->correlation[i] != NONE_U64) {
        GROW(k->bare, k->bare_n, k->bare_cap);
        k->bare[k->bare_n++] = (BareKernel){ i, k->t->correlation[i] };
    }
}

static void add_gpu_row(Kineto *k, const Event *e, Cat cat, const Name *name, Span span)
{
    switch (cat) {
    case CAT_MEMORY:
        span.class_ = SPAN_MEMORY;
        break;
    case CAT_GPU_SYNC:
        span.class_ = SPAN_SYNC;
        break;
    case CAT_GPU_NOTE:
        span.class_ = SPAN_NOTE;
        break;
    default:
        if (cat == CAT_KERNEL || !name->is_memory_copy) {
            add_kernel(k, e, name, span);
            return;
        }
        span.class_ = SPAN_MEMORY;
    }
    kineto_span(k, e, span);
}

/* A row that names its stream. */
static void add_stream_row(Kineto *k, const Event *e, Cat cat, const Name *name, int64_t stream,
                           Span span)
{
    PlaceKind kind = is_host_cat(cat) ? PLACE_ODD : PLACE_STREAM;
    uint32_t place = place_get(k, kind, device_of(k, e, kind), number_id(stream));
    span.track = place_track(k, place);
    if (kind == PLACE_STREAM) {
        add_gpu_row(k, e, cat, name, span);
        return;
    }
    span.class_ = SPAN_HOST;
    kineto_span(k, e, span);
}

/* A GPU's row without args.stream: notes lie on the stream that their tid says. */
static void add_streamless_row(Kineto *k, const Event *e, Cat cat, const Name *name, Span span)
{
    Id pid = kineto_pid(k, e), tid = kineto_tid(k, e);
    uint32_t place = NONE_U32;
    if (cat == CAT_GPU_NOTE && !tid.text && !tid.absent && tid.value >= 0)
        place = place_get(k, PLACE_STREAM, pid, tid);
    if (place == NONE_U32)
        place = place_get(k, PLACE_UNNAMED, pid, tid);
    span.track = place_track(k, place);
    add_gpu_row(k, e, cat, name, span);
}

/*
 * XLA's profiler gives its rows neither cat nor stream: the process is called "/device:GPU:0",
 * the thread "Stream #13(Compute)".  What else stands there ("XLA Ops") says the same again.
 */
static uint32_t device_place(Kineto *k, const Event *e)
{
    Id pid = kineto_pid(k, e);
    uint32_t thread = place_find(k, PLACE_THREAD, pid, kineto_tid(k, e));
    if (thread == NONE_U32 || k->places.place[thread].number < 0)
        return NONE_U32;
    uint32_t process = place_find(k, PLACE_PROCESS, pid, no_id);
    if (process == NONE_U32 || k->places.place[process].number < 0)
        return NONE_U32;
    return place_get(k, PLACE_DEVICE, number_id(k->places.place[process].number),
                     number_id(k->places.place[thread].number));
}

static void add_device_row(Kineto *k, const Event *e, const Name *name, uint32_t place,
                           Span span)
{
    span.track = place_track(k, place);
    add_gpu_row(k, e, CAT_UNKNOWN, name, span);
}

/* ---- host rows ---- */

static SpanClass host_class(Cat cat, const Name *name)
{
    switch (cat) {
    case CAT_RUNTIME:
        return name->runtime_class;
    case CAT_NOTE:
    case CAT_TRACE:
    case CAT_WAIT:
        return SPAN_NOTE;
    default:
        return SPAN_HOST;
    }
}

static uint32_t thread_place(Kineto *k, const Event *e)
{
    return place_get(k, PLACE_THREAD, kineto_pid(k, e), kineto_tid(k, e));
}

static void add_host_row(Kineto *k, const Event *e, Cat cat, const Name *name, Span span)
{
    uint32_t thread = thread_place(k, e);
    span.class_ = host_class(cat, name);
    span.track = place_track(k, thread);
    if (name->is_step) {
        span.class_ = SPAN_STEP;
        span.track = place_track(k, place_get(k, PLACE_STEPS, no_id, no_id));
    }
    kineto_span(k, e, span);
    if (name->is_collective)
        comm_note_operator(k, e, name, span.track, span.start_ns, span.dur_ns);
}

static const char *add_complete(Kineto *k, const Event *e)
{
    Span span = { .op = NONE_U32, .comm = NONE_U32 };
    const char *problem = read_time(e, &span.start_ns);
    if (!problem)
        problem = read_duration(e, &span.dur_ns);
    if (problem)
        return problem;
    const Name *name = kineto_name(k, &e->name);
    Cat cat = event_cat(e);
    int64_t stream = stream_of(e, cat);
    bool unsaid = stream == STREAM_NONE && cat == CAT_UNKNOWN;
    uint32_t device = unsaid ? device_place(k, e) : NONE_U32;
    span.name = name->id;
    if (device != NONE_U32)
        add_device_row(k, e, name, device, span);
    else if (stream != STREAM_NONE)
        add_stream_row(k, e, cat, name, stream, span);
    else if (is_gpu_cat(cat))
        add_streamless_row(k, e, cat, name, span);
    else
        add_host_row(k, e, cat, name, span);
    return NULL;
}

/* ---- begin and end ---- */

static void push_open(Kineto *k, uint32_t place, OpenSpan open)
{
    uint32_t i = k->open_free;
    if (i != NONE_U32) {
        k->open_free = k->open[i].outer;
    } else {
        GROW(k->open, k->open_n, k->open_cap);
        i = k->open_n++;
    }
    open.outer = k->places.place[place].open;
    k->open[i] = open;
    k->places.place[place].open = i;
}

static void close_open(Kineto *k, uint32_t place, uint32_t track, int64_t end_ns)
{
    uint32_t i = k->places.place[place].open;
    OpenSpan open = k->open[i];
    k->places.place[place].open = open.outer;
    k->open[i].outer = k->open_free;
    k->open_free = i;
    if (open.span != NONE_U64) {
        k->t->dur_ns[open.span] = max_i64(0, end_ns - open.start_ns);
        return;
    }
    uint64_t span = timeline_span(k->t, (Span){ .track = track,
                                                .name = open.name,
                                                .class_ = open.class_,
                                                .start_ns = open.start_ns,
                                                .dur_ns = max_i64(0, end_ns - open.start_ns),
                                                .op = NONE_U32,
                                                .comm = NONE_U32 });
    k->t->correlation[span] = open.correlation;
    k->t->args_offset[span] = open.offset;
}

static OpenSpan open_of(Kineto *k, const Event *e, int64_t start_ns, SpanClass class_)
{
    return (OpenSpan){ .name = kineto_name(k, &e->name)->id,
                       .start_ns = start_ns,
                       .offset = e->offset,
                       .correlation = correlation_of(e),
                       .span = NONE_U64,
                       .class_ = (uint8_t)class_ };
}

/* GPU work is a span of its stream from the beginning on; its end brings the length. */
static void add_gpu_begin(Kineto *k, const Event *e, OpenSpan *open)
{
    const Name *name = kineto_name(k, &e->name);
    Cat cat = event_cat(e);
    int64_t stream = stream_of(e, cat);
    Span span = {
        .name = name->id, .start_ns = open->start_ns, .op = NONE_U32, .comm = NONE_U32
    };
    open->span = k->t->spans_n;
    if (stream != STREAM_NONE)
        add_stream_row(k, e, cat, name, stream, span);
    else
        add_streamless_row(k, e, cat, name, span);
}

static const char *add_begin(Kineto *k, const Event *e)
{
    int64_t start_ns;
    const char *problem = read_time(e, &start_ns);
    if (problem)
        return problem;
    Cat cat = event_cat(e);
    uint32_t place = thread_place(k, e);
    OpenSpan open = open_of(k, e, start_ns, host_class(cat, kineto_name(k, &e->name)));
    if (is_gpu_cat(cat) || stream_of(e, cat) != STREAM_NONE)
        add_gpu_begin(k, e, &open);
    else
        place_track(k, place);
    push_open(k, place, open);
    k->latest_ns = max_i64(k->latest_ns, start_ns);
    return NULL;
}

static const char *add_end_at(Kineto *k, const Event *e, uint32_t place, uint32_t track)
{
    int64_t end_ns;
    const char *problem = read_time(e, &end_ns);
    if (problem)
        return problem;
    uint32_t open = k->places.place[place].open;
    if (open == NONE_U32)
        return "it ends what has not begun";
    int64_t dur_ns = end_ns - k->open[open].start_ns;
    if (dur_ns < 0 || dur_ns >= TIMELINE_NS_MAX / 4)
        return "it ends before it begins, or much later";
    close_open(k, place, track, end_ns);
    k->latest_ns = max_i64(k->latest_ns, end_ns);
    return NULL;
}

static const char *add_end(Kineto *k, const Event *e)
{
    uint32_t place = thread_place(k, e), open = k->places.place[place].open;
    bool known = open != NONE_U32 && k->open[open].span != NONE_U64;
    return add_end_at(k, e, place, known ? NONE_U32 : place_track(k, place));
}

/* b, n, e of one id nest in one another; ids of one cat share a track. */
static const char *add_async(Kineto *k, const Event *e)
{
    int64_t at_ns;
    const char *problem = read_time(e, &at_ns);
    if (problem)
        return problem;
    Id cat = kineto_id(k, e->cat.kind == SCAN_NOTHING ? &e->name : &e->cat);
    uint32_t track = place_track(k, place_get(k, PLACE_ASYNC, kineto_pid(k, e), cat));
    uint32_t place = place_get(k, PLACE_ASYNC_ID, number_id(track), kineto_id(k, &e->id));
    k->places.place[place].track = track;
    if (e->ph == 'e' || e->ph == 'F')
        return add_end_at(k, e, place, track);
    if (e->ph == 'b' || e->ph == 'S') {
        push_open(k, place, open_of(k, e, at_ns, SPAN_NOTE));
        k->latest_ns = max_i64(k->latest_ns, at_ns);
        return NULL;
    }
    kineto_span(
        k, e,
        (Span){ track, kineto_name(k, &e->name)->id, SPAN_NOTE, at_ns, 0, NONE_U32, NONE_U32 });
    return NULL;
}

/* What began and never ended lasts until the last thing that happened. */
static void close_all(Kineto *k)
{
    for (uint32_t i = 0; i < k->places.n; i++)
        while (k->places.place[i].open != NONE_U32)
            close_open(k, i, k->places.place[i].track,
                       min_i64(k->latest_ns, k->open[k->places.place[i].open].start_ns +
                                                 TIMELINE_NS_MAX / 4 - 1));
}

/* ---- counters ---- */

static uint32_t counter_track(Kineto *k, const Event *e, const char *series, size_t series_n)
{
    Id pid = kineto_pid(k, e);
    char *key = NULL;
    size_t key_n = 0;
    FILE *f = open_memstream(&key, &key_n);
    ASSERT(f);
    const Name *name = kineto_name(k, &e->name);
    fputs(k->t->names.text[name->id], f);
    if (series_n > 0)
        fprintf(f, " %.*s", (int)series_n, series);
    ASSERT(fflush(f) == 0);
    size_t shown_n = key_n;
    if (e->id.kind != SCAN_NOTHING)
        fprintf(f, "\n%.*s", (int)min_u64(e->id.n, 64), (const char *)e->id.at);
    ASSERT(fclose(f) == 0);

    Id id = { .value = intern_bytes(&k->places.keys, key, key_n), .text = true };
    uint32_t place = place_get(k, PLACE_COUNTER, pid, id);
    Place *p = &k->places.place[place];
    if (p->track == NONE_U32)
        p->name = intern_bytes(&k->t->names, key, shown_n);
    free(key);
    return place_track(k, place);
}

static const char *add_counter(Kineto *k, const Event *e)
{
    int64_t at_ns;
    const char *problem = read_time(e, &at_ns);
    if (problem)
        return problem;
    if (e->args.kind != SCAN_OBJECT)
        return "a counter has no values";
    Scan s = { e->args.at, e->args.at + e->args.n, NULL };
    ScanText key, value;
    bool closed;
    double x;
    scan_open(&s, '{');
    while (scan_member(&s, &key, &closed) && scan_value(&s, &value)) {
        if (!scan_double(&value, &x))
            continue;
        bool plain = SCAN_IS(&key, "value");
        uint32_t track = counter_track(k, e, (const char *)key.at, plain ? 0 : key.n);
        timeline_point(k->t, track, at_ns, x);
    }
    k->latest_ns = max_i64(k->latest_ns, at_ns);
    return NULL;
}

static void add_memory_point(Kineto *k, const Event *e, Arg arg, const char *what,
                             int64_t at_ns)
{
    int64_t type = 0, device = -1;
    double x;
    if (!event_has(e, arg) || !scan_double(&e->arg[arg], &x))
        return;
    event_whole(e, ARG_DEVICE_TYPE, &type);
    event_whole(e, ARG_DEVICE_ID, &device);
    char text[64];
    if (type == 0)
        snprintf(text, sizeof text, "%s CPU", what);
    else
        snprintf(text, sizeof text, "%s GPU %" PRId64, what, device);
    Id id = { .value = intern(&k->places.keys, text), .text = true };
    uint32_t place = place_get(k, PLACE_COUNTER, no_id, id);
    k->places.place[place].name = intern(&k->t->names, text);
    timeline_point(k->t, place_track(k, place), at_ns, x);
}

static const char *add_instant(Kineto *k, const Event *e)
{
    int64_t at_ns;
    const char *problem = read_time(e, &at_ns);
    if (problem)
        return problem;
    const Name *name = kineto_name(k, &e->name);
    if (name->is_memory_total && event_has(e, ARG_TOTAL_ALLOCATED)) {
        add_memory_point(k, e, ARG_TOTAL_ALLOCATED, "allocated", at_ns);
        add_memory_point(k, e, ARG_TOTAL_RESERVED, "reserved", at_ns);
        return NULL;
    }
    uint32_t name_id = name->id;
    uint32_t track = place_track(k, thread_place(k, e));
    kineto_span(k, e, (Span){ track, name_id, SPAN_NOTE, at_ns, 0, NONE_U32, NONE_U32 });
    return NULL;
}

/* ---- all ---- */

static bool is_known_phase(uint8_t ph)
{
    return strchr("stfTpPNOD()vVcaR", ph) != NULL;
}

/* XLA's profiler ends its list with {}. */
static bool is_empty(const Event *e)
{
    for (int i = 0; i < MEMBER_N; i++)
        if (e->member[i].kind != SCAN_NOTHING)
            return false;
    return true;
}

const char *kineto_add(Kineto *k, const Event *e)
{
    if (k->from_us && (e->ph == 'X' || e->ph == 'C')) {
        uint32_t place = place_find(k, PLACE_DECLARED, kineto_pid(k, e), kineto_tid(k, e));
        if (place != NONE_U32 && e->ph == 'X')
            return kineto_add_declared(k, e, place);
    }
    switch (e->ph) {
    case 0:
        return is_empty(e) ? NULL : "it has no phase";
    case 'X':
        return add_complete(k, e);
    case 'B':
        return add_begin(k, e);
    case 'E':
        return add_end(k, e);
    case 'i':
    case 'I':
    case 'R':
        return add_instant(k, e);
    case 'C':
        return add_counter(k, e);
    case 'M':
        kineto_add_names(k, e);
        return NULL;
    case 'b':
    case 'n':
    case 'e':
    case 'S':
    case 'F':
        return add_async(k, e);
    default:
        return is_known_phase(e->ph) ? NULL : "its phase is none that the format knows";
    }
}

void kineto_end_document(Kineto *k, uint64_t first_span)
{
    close_all(k);
    comm_resolve(k, first_span);
    k->bare_n = k->collectives_n = 0;
    k->latest_ns = INT64_MIN;
}

void kineto_free(Kineto *k)
{
    free(k->names.name);
    free(k->names.slot);
    arena_free(&k->names.arena);
    free(k->places.place);
    free(k->places.slot);
    intern_free(&k->places.keys);
    free(k->collectives);
    free(k->bare);
    free(k->open);
    free(k->text);
}

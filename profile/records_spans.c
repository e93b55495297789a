/*
 * records_spans.c - the second walk: every record that has a time becomes a span.
 */
#include <stdio.h>

#include "core/cuda_names.h"
#include <string.h>

#include "profile/records_parts.h"

enum { CLONES_DEEP_MAX = 8 };
#define THREAD_OWNER NONE_U32 /* Owner.device of a thread */

/* ---- labels ---- */

/* Through the copies that instantiating and cloning graphs made. */
static const JoinRow *label_of_node(const Records *r, const Join *labels, uint64_t node,
                                    uint64_t order)
{
    for (int i = 0; i < CLONES_DEEP_MAX; i++) {
        const JoinRow *from = join_nearest(&r->clones, node, order);
        const JoinRow *label = from ? NULL : join_nearest(labels, node, order);
        if (label)
            return label;
        if (!from)
            return NULL;
        node = from->value;
    }
    return NULL;
}

/* Of what was launched by the call, or by the graph. */
static const JoinRow *label_of(const Records *r, const Join *by_call, const Join *by_node,
                               uint32_t correlation, uint64_t node, uint64_t order)
{
    if (node != 0)
        return label_of_node(r, by_node, node, order);
    return join_nearest(by_call, correlation, order);
}

/* ---- tracks ---- */

static Owner *owner_of(Records *r, uint32_t device, uint32_t context, uint32_t stream)
{
    for (uint32_t k = 0; k <= r->owners_n; k++) {
        uint32_t i = k == 0 ? r->owner_last : k - 1;
        if (i >= r->owners_n)
            continue;
        Owner *o = &r->owner[i];
        if (o->device == device && o->context == context && o->stream == stream) {
            r->owner_last = i;
            return o;
        }
    }
    GROW(r->owner, r->owners_n, r->owners_cap);
    Owner *o = &r->owner[r->owners_n++];
    *o = (Owner){ device, context, stream, NONE_U32, NONE_U32 };
    return o;
}

static uint32_t new_track(Records *r, uint32_t rank, TrackKind kind, int64_t sort,
                          const char *name)
{
    char text[RECORDS_TEXT_BYTES + 128];
    const char *process = r->o->process;
    snprintf(text, sizeof text, "%s%s%s", process ? process : "", process ? " " : "", name);
    return timeline_track(r->t, rank, kind, text, sort);
}

static uint32_t stream_track(Records *r, Owner *o)
{
    char name[RECORDS_TEXT_BYTES];
    if (o->track != NONE_U32)
        return o->track;
    const JoinRow *device = join_nearest(&r->devices, o->device, 0);
    const char *model = device ? records_text(r, (uint32_t)device->value) : "";
    snprintf(name, sizeof name, "GPU %" PRIu32 " stream %" PRIu32 "%s%.120s", o->device,
             o->stream, *model ? ", " : "", model);
    int64_t sort = (int64_t)(o->device & 0xffff) << 32 | o->stream;
    o->track = new_track(r, o->rank != NONE_U32 ? o->rank : r->rank, TRACK_STREAM, sort, name);
    return o->track;
}

static uint32_t thread_track(Records *r, uint32_t thread)
{
    Owner *o = owner_of(r, THREAD_OWNER, 0, thread);
    char name[RECORDS_TEXT_BYTES];
    if (o->track != NONE_U32)
        return o->track;
    const JoinRow *named = join_nearest(&r->threads, thread, 0);
    const char *text = named ? records_text(r, (uint32_t)named->value) : "";
    snprintf(name, sizeof name, "thread %" PRIu32 "%s%.100s", thread, *text ? " " : "", text);
    uint32_t rank = o->rank != NONE_U32 ? o->rank : r->rank;
    o->track = new_track(r, rank, TRACK_HOST, thread, name);
    return o->track;
}

static uint32_t one_track(Records *r, uint32_t *track, TrackKind kind, const char *name)
{
    if (*track == NONE_U32)
        *track = new_track(r, r->rank, kind, INT64_MAX, name);
    return *track;
}

/* ---- spans ---- */

typedef struct Timed {
    int64_t start_ns, end_ns;
    uint32_t correlation;
} Timed;

/* Times within range, on the clock that was asked for; false: the record has none. */
static bool settle_times(const Records *r, Timed *x)
{
    const int64_t most = TIMELINE_NS_MAX / 4;
    if (x->start_ns <= 0 || x->end_ns <= 0 || x->start_ns > most || x->end_ns > most)
        return false;
    x->start_ns = records_time(r, x->start_ns);
    x->end_ns = max_i64(records_time(r, x->end_ns), x->start_ns);
    return timeline_ns_in_range(x->start_ns) && timeline_ns_in_range(x->end_ns);
}

static uint64_t add_span(Records *r, uint32_t track, uint32_t name, SpanClass c, const Timed *x,
                         uint32_t op)
{
    uint64_t i = timeline_span(r->t, (Span){ .track = track,
                                             .name = name,
                                             .class_ = c,
                                             .start_ns = x->start_ns,
                                             .dur_ns = x->end_ns - x->start_ns,
                                             .op = op,
                                             .comm = NONE_U32 });
    if (r->t->correlation && x->correlation != 0)
        r->t->correlation[i] = x->correlation;
    return i;
}

static void note_gpu_time(Records *r, const Timed *x)
{
    RecordsInfo *info = r->info;
    bool first = info->kernels_n + info->copies_n == 0;
    info->begin_ns = first ? x->start_ns : min_i64(info->begin_ns, x->start_ns);
    info->end_ns = first ? x->end_ns : max_i64(info->end_ns, x->end_ns);
}

static uint32_t op_of_label(const Records *r, const JoinRow *label)
{
    if (!label)
        return NONE_U32;
    r->info->labelled_n++;
    return (uint32_t)label->value;
}

/* ---- kernels ---- */

/* The call that launched it, for NCCL's words that come without a launch. */
static void remember_bare(Records *r, uint64_t span, uint32_t correlation, uint64_t at)
{
    const JoinRow *row = join_nearest(&r->calls, correlation, at);
    if (!row)
        return;
    const RawCall *call = &((const RawAny *)(const void *)(r->bytes + row->value))->call;
    GROW(r->bare, r->bare_n, r->bare_cap);
    r->bare[r->bare_n++] = (BareKernel){ span, call->start_ns, call->thread };
}

static const Said *ask_name(Records *r, uint32_t number)
{
    Said *said = &r->said[number < r->texts_cap ? number : 0];
    const RecordsWords *w = &r->o->words;
    const char *op = NULL, *dtype = NULL;
    if (said->asked)
        return said;
    *said = (Said){ .asked = true, .class_ = SPAN_COMM, .dtype = NONE_U32 };
    said->talks =
        w->comm && w->comm(w->user, records_text(r, number), &said->class_, &op, &dtype);
    if (!said->talks)
        return said;
    said->op = intern(&r->t->names, op ? op : "collective");
    if (dtype)
        said->dtype = intern(&r->t->names, dtype);
    return said;
}

/* What NCCL said; else what the name says, without algorithm and protocol. */
static bool kernel_comm_of(Records *r, const RawKernel *k, uint64_t at, Comm *comm,
                           SpanClass *class_, bool *bare)
{
    const JoinRow *launch =
        label_of(r, &r->launches, &r->node_launches, k->correlation, k->node, at);
    *bare = false;
    if (launch && launch->value < NONE_U32 &&
        records_nccl_comm(r, (uint32_t)launch->value, comm)) {
        r->info->nccl_n++;
        if (k->node != 0)
            comm->seq = NONE_U32; /* each launch of the graph would have the same */
        *class_ = comm_op_is_p2p(timeline_text(r->t, comm->op)) ? SPAN_P2P : SPAN_COMM;
        return true;
    }
    const Said *said = ask_name(r, k->top.a);
    if (!said->talks)
        return false;
    *comm = comm_of(said->op);
    comm->dtype = said->dtype;
    *class_ = said->class_;
    *bare = k->node == 0;
    return true;
}

static void set_launch(Records *r, const RawKernel *k, uint64_t span)
{
    if (k->top.bytes < sizeof *k || k->grid_x == 0)
        return;
    KernelLaunch l = { .grid = { k->grid_x, k->grid_y, k->grid_z },
                       .block = { k->block_x, k->block_y, k->block_z },
                       .registers_n = k->registers_n,
                       .shared_bytes = k->shared_bytes,
                       .occupancy_pct = NONE_U32 };
    timeline_set_launch(r->t, span, timeline_launch(r->t, &l));
}

static bool is_early(const Records *r, const Timed *x)
{
    return x->start_ns < r->o->from_ns;
}

static void kernel_span(Records *r, const RawKernel *k, uint64_t at)
{
    Timed x = { k->start_ns, k->end_ns, k->correlation };
    if (!settle_times(r, &x)) {
        r->info->untimed_n++;
        return;
    }
    if (is_early(r, &x))
        return;
    Comm comm;
    SpanClass class_;
    bool bare;
    bool talks = kernel_comm_of(r, k, at, &comm, &class_, &bare);
    const JoinRow *label = label_of(r, &r->ops, &r->node_ops, k->correlation, k->node, at);
    uint32_t track = stream_track(r, owner_of(r, k->device, k->context, k->stream));
    uint32_t name = records_name(r, k->top.a);
    uint64_t i =
        add_span(r, track, name, talks ? class_ : SPAN_COMPUTE, &x, op_of_label(r, label));
    if (talks) {
        timeline_set_comm(r->t, i, comm);
        r->info->comm_kernels_n++;
        if (bare)
            remember_bare(r, i, k->correlation, at);
    }
    set_launch(r, k, i);
    note_gpu_time(r, &x);
    r->info->kernels_n++;
}

static void move_span(Records *r, const RawMove *m, uint64_t at)
{
    Timed x = { m->start_ns, m->end_ns, m->correlation };
    if (!settle_times(r, &x)) {
        r->info->untimed_n++;
        return;
    }
    if (is_early(r, &x))
        return;
    const JoinRow *label = label_of(r, &r->ops, &r->node_ops, m->correlation, m->node, at);
    const char *name = m->top.kind == RAW_SET ? "Memset" : cuda_copy_name(m->top.a);
    uint32_t track = stream_track(r, owner_of(r, m->device, m->context, m->stream));
    add_span(r, track, intern(&r->t->names, name), SPAN_MEMORY, &x, op_of_label(r, label));
    note_gpu_time(r, &x);
    r->info->copies_n++;
}

/* ---- the host ---- */

/* Launches work of the GPU, or waits for it. */
static bool reaches_gpu(const char *call, SpanClass class_)
{
    return class_ != SPAN_HOST || strstr(call, "Memcpy") || strstr(call, "Memset");
}

static void call_span(Records *r, const RawCall *c, uint64_t at)
{
    Timed x = { c->start_ns, c->end_ns, c->correlation };
    const char *call = records_text(r, c->top.a);
    SpanClass class_ = cuda_call_class(call);
    if ((r->o->gpu_only && !reaches_gpu(call, class_)) || !settle_times(r, &x) ||
        is_early(r, &x))
        return;
    const JoinRow *label = join_nearest(&r->ops, c->correlation, at);
    uint32_t op = label ? (uint32_t)label->value : NONE_U32;
    add_span(r, thread_track(r, c->thread), records_name(r, c->top.a), class_, &x, op);
    r->info->calls_n++;
}

static void sync_span(Records *r, const RawSync *s)
{
    Timed x = { s->start_ns, s->end_ns, s->correlation };
    if (r->o->gpu_only || !settle_times(r, &x))
        return;
    uint32_t track = one_track(r, &r->waits_track, TRACK_HOST, "waits");
    uint32_t name = intern(&r->t->names, cuda_sync_name(s->top.a));
    add_span(r, track, name, SPAN_SYNC, &x, NONE_U32);
}

/* CUpti_ActivityOverheadKind */
static const char *cost_name(uint32_t kind)
{
    static const char *const names[] = {
        "overhead",
        "buffer flush",
        "instrumentation",
        "collector's resources",
        "module loading",
        "lazy kernel loading",
        "command buffer full",
        "buffer request",
        "unified memory set-up",
    };
    if (kind == 1)
        return "compiler";
    return names[kind >> 16 < ARRAY_N(names) ? kind >> 16 : 0];
}

/* Instrumentation, resources, buffers that are asked for: on a thread of the program.  CUPTI's own
 * thread, or the writer's, flushes. */
static bool is_recording_cost(uint32_t kind)
{
    return kind >> 16 == 2 || kind >> 16 == 3 || kind >> 16 == 7;
}

/* When all that ran on the GPU is known. */
static void sum_costs(Records *r)
{
    const RawTop *top;
    RecordsInfo *info = r->info;
    for (uint64_t at = RAW_HEAD_BYTES; (top = records_at(r, at)); at += top->bytes) {
        const RawCost *c = (const RawCost *)(const void *)top;
        if (top->kind != RAW_COST || !is_recording_cost(top->a))
            continue;
        Timed x = { c->start_ns, c->end_ns, c->correlation };
        if (settle_times(r, &x))
            info->cost_ns += max_i64(0, min_i64(x.end_ns, info->end_ns) -
                                            max_i64(x.start_ns, info->begin_ns));
    }
}

static void cost_span(Records *r, const RawCost *c)
{
    Timed x = { c->start_ns, c->end_ns, c->correlation };
    if (r->o->gpu_only || !settle_times(r, &x))
        return;
    uint32_t track = one_track(r, &r->costs_track, TRACK_HOST, "collector");
    add_span(r, track, intern(&r->t->names, cost_name(c->top.a)), SPAN_HOST, &x, NONE_U32);
}

/* ---- NVTX ---- */

/* A range that nobody ended lasts until the last thing recorded. */
static int64_t mark_end(const Records *r, const RawMark *m, uint64_t at)
{
    if (!(m->flags & RAW_MARK_START))
        return m->at_ns;
    const JoinRow *end = join_nearest(&r->mark_ends, m->id, at);
    return end ? (int64_t)end->value : r->end_ns;
}

static void mark_span(Records *r, const RawMark *m, uint64_t at)
{
    Timed x = { m->at_ns, mark_end(r, m, at), 0 };
    if (r->o->gpu_only || !(m->flags & (RAW_MARK_POINT | RAW_MARK_START)) ||
        !settle_times(r, &x))
        return;
    bool step = (m->flags & RAW_MARK_START) && cuda_range_is_step(records_text(r, m->top.a));
    uint32_t track =
        step ? one_track(r, &r->steps_track, TRACK_STEPS, "steps") : thread_track(r, m->thread);
    add_span(r, track, records_name(r, m->top.a), step ? SPAN_STEP : SPAN_NOTE, &x, NONE_U32);
    r->info->notes_n++;
}

/* ---- both walks of this file ---- */

static void own(Records *r, const JoinRow *label, uint32_t device, uint32_t context,
                uint32_t stream)
{
    uint64_t rank = label ? label->value >> 32 : NONE_U64;
    if (rank < min_u64(r->info->head.world, TIMELINE_RANKS_MAX))
        owner_of(r, device, context, stream)->rank = (uint32_t)rank;
}

/* Ranks are threads of one process: the ops tell whose stream and whose thread each is. */
static void find_owners(Records *r)
{
    const RawTop *top;
    for (uint64_t at = RAW_HEAD_BYTES; (top = records_at(r, at)); at += top->bytes) {
        const RawAny *x = (const RawAny *)(const void *)top;
        if (top->kind == RAW_KERNEL)
            own(r,
                label_of(r, &r->ops, &r->node_ops, x->kernel.correlation, x->kernel.node, at),
                x->kernel.device, x->kernel.context, x->kernel.stream);
        else if (top->kind == RAW_COPY || top->kind == RAW_SET)
            own(r, label_of(r, &r->ops, &r->node_ops, x->move.correlation, x->move.node, at),
                x->move.device, x->move.context, x->move.stream);
        else if (top->kind == RAW_CALL)
            own(r, join_nearest(&r->ops, x->call.correlation, at), THREAD_OWNER, 0,
                x->call.thread);
    }
}

static void add_record(Records *r, const RawAny *x, uint64_t at)
{
    switch (x->top.kind) {
    case RAW_KERNEL:
        kernel_span(r, &x->kernel, at);
        break;
    case RAW_COPY:
    case RAW_SET:
        move_span(r, &x->move, at);
        break;
    case RAW_CALL:
        call_span(r, &x->call, at);
        break;
    case RAW_SYNC:
        sync_span(r, &x->sync);
        break;
    case RAW_COST:
        cost_span(r, &x->cost);
        break;
    case RAW_MARK:
        mark_span(r, &x->mark, at);
        break;
    case RAW_EVENT:
        r->info->events_n++;
        break;
    default:
        break;
    }
}

void records_spans(Records *r)
{
    const RawTop *top;
    if (r->o->ranks_in_ops)
        find_owners(r);
    for (uint64_t at = RAW_HEAD_BYTES; (top = records_at(r, at)); at += top->bytes)
        add_record(r, (const RawAny *)(const void *)top, at);
    sum_costs(r);
    if (r->info->untimed_n)
        records_find(r->info,
                     "'%.80s': %" PRIu64 " kernels or copies have no time: they still ran "
                     "at the end, or CUPTI had no device memory for it",
                     r->name, r->info->untimed_n);
}

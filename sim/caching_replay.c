/*
 * caching_replay.c - the births and deaths of a rank's steps, through the caching allocator.
 */
#include "sim/caching_replay.h"

#include <stdlib.h>
#include <string.h>

#include "sim/caching.h"

/* What a step leaves behind is soon the same. */
enum { STEPS_MAX = 3 };
/* Micro-batches are run as long as no more tensors are born in a step than BIRTHS_USUAL (a few
 * milliseconds); so many as are under way and HEAD_MORE, up to BIRTHS_MAX.  HEAD_MORE: the first,
 * which may have kernels of its own, and one that is like all others. */
enum { BIRTHS_USUAL = 4000, BIRTHS_MAX = 40000, HEAD_MORE = 2 };

/* Of an instance of a segment: a tensor of its frame, or of none, is born or dies. */
typedef struct Event {
    uint32_t slot, tensor; /* tensor: of the frame's layout */
    size_t local;          /* where there is no frame: its place in block */
    uint64_t bytes;
    CachingStream stream;
    bool born;
} Event;

typedef struct Events {
    uint32_t n, cap;
    bool known;
    Event *event;
} Events;

typedef struct Replay {
    const Graph *g;
    const Role *role;
    Caching memory;
    size_t *frame_first; /* by frame: its first tensor's place in block */
    uint32_t *block;     /* of frames' tensors, then by Graph.tensors those of no frame */
    size_t locals;       /* where those begin */
    Events *events;      /* by segment */
    uint32_t head_n, micro_batches; /* [head_n, micro_batches - 1) are left out */
    bool has_moments;
} Replay;

/* ---- micro-batches that are left out ---- */

/* Micro-batches that have begun and are not yet over, at most. */
static uint32_t under_way(const Role *role, uint32_t micro_batches)
{
    uint32_t *all = mem_zero((size_t)micro_batches + 1, sizeof *all);
    uint32_t *left = mem_zero((size_t)micro_batches + 1, sizeof *left);
    uint32_t now = 0, most = 0;
    for (uint32_t i = 0; i < role->instances_n; i++)
        if (role->instances[i].micro_batch != NONE_U32)
            left[role->instances[i].micro_batch]++;
    memcpy(all, left, micro_batches * sizeof *all);
    for (uint32_t i = 0; i < role->instances_n; i++) {
        uint32_t m = role->instances[i].micro_batch;
        if (m == NONE_U32)
            continue;
        now += left[m] == all[m];
        most = now > most ? now : most;
        now -= --left[m] == 0;
    }
    free(all);
    free(left);
    return most;
}

static uint32_t births_of(const Graph *g, const Segment *s)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < s->op_n; k++) {
        const Op *op = graph_ops(g, s) + k;
        for (uint32_t a = 0; a < op->arg_n; a++)
            n += g->args[op->arg_first + a].born;
    }
    return n;
}

/* Tensors that are born, by micro-batch; [micro_batches]: of none. */
static uint64_t *births_by_micro_batch(const Replay *y)
{
    const Graph *g = y->g;
    uint32_t *of_segment = mem_zero((size_t)g->segments_n + 1, sizeof *of_segment);
    bool *known = mem_zero((size_t)g->segments_n + 1, sizeof *known);
    uint64_t *births = mem_zero((size_t)y->micro_batches + 1, sizeof *births);
    for (uint32_t i = 0; i < y->role->instances_n; i++) {
        const Instance *in = &y->role->instances[i];
        if (!known[in->segment])
            of_segment[in->segment] = births_of(g, &g->segments[in->segment]);
        known[in->segment] = true;
        births[in->micro_batch == NONE_U32 ? y->micro_batches : in->micro_batch] +=
            of_segment[in->segment];
    }
    free(of_segment);
    free(known);
    return births;
}

static uint32_t head_of(const Replay *y)
{
    uint32_t all = y->micro_batches, least = under_way(y->role, all) + HEAD_MORE, n = 0;
    uint64_t *births = births_by_micro_batch(y);
    uint64_t sum = births[all] + (all > 0 ? births[all - 1] : 0);
    while (n + 1 < all) {
        sum += births[n];
        if (sum > (n < least ? BIRTHS_MAX : BIRTHS_USUAL))
            break;
        n++;
    }
    free(births);
    return n;
}

static bool is_kept(const Replay *y, const Instance *in)
{
    uint32_t m = in->micro_batch;
    return m == NONE_U32 || m < y->head_n || m + 1 >= y->micro_batches;
}

/* What is allocated at most without those that are left out. */
static uint64_t peak_of_kept(const Replay *y, uint64_t residents)
{
    int64_t now = (int64_t)residents, peak = now;
    for (uint32_t i = 0; i < y->role->instances_n; i++) {
        const Segment *s = &y->g->segments[y->role->instances[i].segment];
        if (!is_kept(y, &y->role->instances[i]))
            continue;
        peak = max_i64(peak, now + s->memory_peak);
        now += s->memory_delta;
    }
    return (uint64_t)peak;
}

/* ---- tensors ---- */

static void take(Replay *y, size_t place, uint64_t bytes, CachingStream stream)
{
    if (y->block[place] == NONE_U32 && bytes > 0)
        y->block[place] = caching_take(&y->memory, bytes, stream);
}

static void give(Replay *y, size_t place)
{
    if (y->block[place] != NONE_U32)
        caching_give(&y->memory, y->block[place]);
    y->block[place] = NONE_U32;
}

/* torch.optim and Apex make moments when they first update; master weights are made with the
 * optimizer. */
static bool is_made_late(const Replay *y, const Tensor *t)
{
    return t->class_ == TENSOR_OPTIMIZER &&
           strcmp(intern_text(&y->g->names, t->name), MASTER_WEIGHTS) != 0;
}

static void take_residents(Replay *y, bool late)
{
    for (uint32_t f = 0; f < y->role->frames_n; f++) {
        const Layout *l = &y->g->layouts[y->role->frames[f].layout];
        for (uint32_t i = 0; y->role->frames[f].resident && i < l->tensor_n; i++) {
            const Tensor *t = &y->g->tensors[l->tensor_first + i];
            if (is_made_late(y, t) == late)
                take(y, y->frame_first[f] + i, t->bytes, STREAM_MAIN);
        }
    }
}

static void make_moments(Replay *y)
{
    if (!y->has_moments)
        take_residents(y, true);
    y->has_moments = true;
}

/* ---- steps ---- */

static CachingStream stream_of(const Op *op)
{
    switch (op->lane) {
    case LANE_GATHER:
        return STREAM_GATHER;
    case LANE_REDUCE:
        return STREAM_REDUCE;
    case LANE_REPLICATE:
        return STREAM_REPLICATE;
    default:
        return STREAM_MAIN;
    }
}

static void note_events(const Replay *y, Events *e, const Segment *s, const Op *op, bool born)
{
    for (uint32_t a = 0; a < op->arg_n; a++) {
        const Arg *arg = &y->g->args[op->arg_first + a];
        if (!(born ? arg->born : arg->dies))
            continue;
        const Tensor *t = graph_arg_tensor(y->g, s, arg);
        GROW(e->event, e->n, e->cap);
        e->event[e->n++] = (Event){ .slot = arg->slot,
                                    .tensor = arg->tensor,
                                    .local = y->locals + (size_t)(t - y->g->tensors),
                                    .bytes = t->bytes,
                                    .stream = stream_of(op),
                                    .born = born };
    }
}

/* A segment comes again and again, and most of what its ops read or write lives on. */
static const Events *events_of(Replay *y, uint32_t segment)
{
    Events *e = &y->events[segment];
    const Segment *s = &y->g->segments[segment];
    for (uint32_t k = 0; k < s->op_n && !e->known; k++) {
        note_events(y, e, s, graph_ops(y->g, s) + k, true);
        note_events(y, e, s, graph_ops(y->g, s) + k, false);
    }
    e->known = true;
    return e;
}

static void replay_instance(Replay *y, const Instance *in)
{
    const Events *events = events_of(y, in->segment);
    for (uint32_t i = 0; i < events->n; i++) {
        const Event *e = &events->event[i];
        uint32_t frame = in->frame[e->slot];
        size_t place = frame == NONE_U32 ? e->local : y->frame_first[frame] + e->tensor;
        if (e->born)
            take(y, place, e->bytes, e->stream);
        else
            give(y, place);
    }
}

static void replay_step(Replay *y)
{
    for (uint32_t i = 0; i < y->role->instances_n; i++) {
        const Instance *in = &y->role->instances[i];
        if (!is_kept(y, in))
            continue;
        if (y->g->segments[in->segment].kind == SEGMENT_OPTIMIZER)
            make_moments(y);
        replay_instance(y, in);
    }
}

static void replay_open(Replay *y)
{
    size_t places;
    y->frame_first = role_places(y->g, y->role, &places);
    y->locals = places;
    y->block = mem_zero(places + y->g->tensors_n + 1, sizeof *y->block);
    for (size_t i = 0; i < places + y->g->tensors_n; i++)
        y->block[i] = NONE_U32;
    y->events = mem_zero((size_t)y->g->segments_n + 1, sizeof *y->events);
    y->micro_batches = role_micro_batches(y->role);
    y->head_n = head_of(y);
}

static void replay_close(Replay *y)
{
    caching_close(&y->memory);
    for (uint32_t i = 0; i < y->g->segments_n; i++)
        free(y->events[i].event);
    free(y->events);
    free(y->frame_first);
    free(y->block);
}

uint64_t caching_of_role(const Graph *g, const Role *role, const RoleMemory *m, CachingRun run)
{
    ASSERT(g->sealed);
    Replay y = { .g = g, .role = role };
    uint64_t before;
    int step = 0;
    replay_open(&y);
    uint64_t residents = memory_resident_bytes(m), kept = peak_of_kept(&y, residents);
    uint64_t missing = m->peak_bytes > kept ? m->peak_bytes - kept : 0;
    bool has_room = run.capacity_bytes > missing;
    caching_open(&y.memory, has_room ? run.capacity_bytes - missing : 0, run.expandable);
    take_residents(&y, false);
    do {
        before = y.memory.most_bytes;
        replay_step(&y);
        make_moments(&y); /* of a program without an update */
    } while (++step < STEPS_MAX && (step == 1 || y.memory.most_bytes > before));
    uint64_t most = y.memory.most_bytes;
    if (missing > 0 &&
        kept > residents) /* allocated by those left out, and held as of those that were run */
        most += (uint64_t)((double)missing * (double)(most - residents) /
                           (double)(kept - residents));
    replay_close(&y);
    return most;
}

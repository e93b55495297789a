/*
 * caching_replay.c - the births and deaths of a rank's steps, through the caching allocator.
 */
#include <stdlib.h>
#include <string.h>

#include "sim/caching.h"
#include "sim/memory.h"

/* What a step leaves behind is soon the same. */
enum { STEPS_MAX = 3 };
/* Kept at the beginning beside those under way at a time, so that all of a pipeline's beginning is
 * there: the first, which may have kernels of its own, and one like all others. */
enum { HEAD_MORE = 1 };

typedef struct Replay {
    const Graph *g;
    const Role *role;
    Caching memory;
    size_t *frame_first; /* by frame: its first tensor's place in block */
    uint32_t *block;     /* of frames' tensors, then by Graph.tensors those of no frame */
    size_t locals;       /* where those begin */
    uint32_t head_n, micro_batches; /* [head_n, micro_batches - 1) are left out */
    bool has_moments;
} Replay;

/* ---- micro-batches that are left out ---- */

static uint32_t micro_batches_of(const Role *role)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < role->instances_n; i++)
        if (role->instances[i].micro_batch != NONE_U32 && role->instances[i].micro_batch >= n)
            n = role->instances[i].micro_batch + 1;
    return n;
}

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

static bool is_kept(const Replay *y, const Instance *in)
{
    uint32_t m = in->micro_batch;
    return m == NONE_U32 || m < y->head_n || m + 1 >= y->micro_batches;
}

/* ---- tensors ---- */

static void take(Replay *y, size_t place, const Tensor *t, CachingStream stream)
{
    if (y->block[place] == NONE_U32)
        y->block[place] = caching_take(&y->memory, t->bytes, stream);
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
                take(y, y->frame_first[f] + i, t, STREAM_MAIN);
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

static void replay_op(Replay *y, const Instance *in, const Segment *s, const Op *op,
                      bool births)
{
    for (uint32_t a = 0; a < op->arg_n; a++) {
        const Arg *arg = &y->g->args[op->arg_first + a];
        if (!(births ? arg->born : arg->dies))
            continue;
        const Tensor *t = graph_arg_tensor(y->g, s, arg);
        uint32_t frame = in->frame[arg->slot];
        size_t place = frame == NONE_U32 ? y->locals + (size_t)(t - y->g->tensors)
                                         : y->frame_first[frame] + arg->tensor;
        if (births)
            take(y, place, t, stream_of(op));
        else
            give(y, place);
    }
}

static void replay_step(Replay *y)
{
    for (uint32_t i = 0; i < y->role->instances_n; i++) {
        const Instance *in = &y->role->instances[i];
        const Segment *s = &y->g->segments[in->segment];
        if (!is_kept(y, in))
            continue;
        if (s->kind == SEGMENT_OPTIMIZER)
            make_moments(y);
        for (uint32_t k = 0; k < s->op_n; k++) {
            replay_op(y, in, s, graph_ops(y->g, s) + k, true);
            replay_op(y, in, s, graph_ops(y->g, s) + k, false);
        }
    }
}

static void replay_open(Replay *y, uint64_t capacity_bytes)
{
    size_t places;
    y->frame_first = role_places(y->g, y->role, &places);
    y->locals = places;
    y->block = mem_zero(places + y->g->tensors_n + 1, sizeof *y->block);
    for (size_t i = 0; i < places + y->g->tensors_n; i++)
        y->block[i] = NONE_U32;
    y->micro_batches = micro_batches_of(y->role);
    y->head_n = under_way(y->role, y->micro_batches) + HEAD_MORE;
    caching_open(&y->memory, capacity_bytes);
    take_residents(y, false);
}

uint64_t caching_of_role(const Graph *g, const Role *role, uint64_t capacity_bytes)
{
    ASSERT(g->sealed);
    Replay y = { .g = g, .role = role };
    replay_open(&y, capacity_bytes);
    uint64_t before;
    int step = 0;
    do {
        before = y.memory.most_bytes;
        replay_step(&y);
        make_moments(&y); /* of a program without an update */
    } while (++step < STEPS_MAX && (step == 1 || y.memory.most_bytes > before));
    uint64_t most_bytes = y.memory.most_bytes;
    caching_close(&y.memory);
    free(y.frame_first);
    free(y.block);
    return most_bytes;
}

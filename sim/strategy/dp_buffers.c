/*
 * dp_buffers.c - DataParallel's buffers: parameters to all devices, gradients back.
 *
 *     device 0   |cat|broadcast|  ....  |cat|reduce|     sums, in which its own are
 *     device 1       |broadcast|  ....  |cat|reduce|
 *
 * Tensors are flattened into buffers of 10 MiB in definition order, cut
 * as torch's take_tensors cuts (a tensor counts twice when it comes), on each
 * device by one kernel per block.  Tensors alone in their buffer are not copied,
 * and what comes out of a buffer is a view of it: no work, RELEASE ops that end
 * one and begin the other.  Later micro-batches are added to the sum on device 0.
 */
#include "sim/strategy/dp_parts.h"

#include <string.h>

#define COALESCED_BYTES \
    ((uint64_t)10485760) /* torch/nn/parallel: replicate.py, _functions.py */

typedef struct Buffer {
    uint32_t first, n; /* pieces */
    uint32_t layout;
    uint64_t bytes;
} Buffer;

/* ---- buffers ---- */

static uint32_t piece_layout(const Dp *d, Slot slot, uint32_t piece)
{
    const BlockType *t = block_type(d->b, d->pieces[piece].block);
    return slot == SLOT_PARAM ? t->param_layout : t->grad_layout;
}

static uint32_t piece_index(const Dp *d, uint32_t piece)
{
    Piece p = d->pieces[piece];
    return block_type(d->b, p.block)->params[p.param].tensor;
}

static const Tensor *piece_tensor(const Dp *d, Slot slot, uint32_t piece)
{
    return layout_tensor(d->g, piece_layout(d, slot, piece), piece_index(d, piece));
}

void dp_list_pieces(Dp *d)
{
    const Build *b = d->b;
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->blocks_n; i++)
        n += block_type(b, i)->params_n;
    d->pieces = PUSH_ARRAY(&d->b->arena, Piece, n);
    for (uint32_t i = 0; i < b->blocks_n; i++)
        for (uint32_t p = 0; p < block_type(b, i)->params_n; p++)
            d->pieces[d->pieces_n++] = (Piece){ i, p };
}

/* The buffer that begins with a piece. */
static Buffer next_buffer(Dp *d, Slot slot, uint32_t first)
{
    Buffer u = { .first = first };
    bool full = false;
    while (!full && first + u.n < d->pieces_n) {
        uint64_t bytes = piece_tensor(d, slot, first + u.n++)->bytes;
        u.bytes += bytes;
        full = u.bytes + bytes >= COALESCED_BYTES;
    }
    u.layout = graph_layout(d->g);
    for (uint32_t i = first; i < first + u.n; i++) {
        Tensor t = *piece_tensor(d, slot, i);
        t.class_ = TENSOR_BUFFER;
        graph_tensor(d->g, t);
    }
    return u;
}

/* Between tensors of blocks and a buffer. */
typedef struct Move {
    const char *name;
    OpPhase phase;
    Slot slot;
    OpKind kind;           /* OP_RELEASE: a view */
    bool in;               /* into the buffer */
    bool dies, born;       /* the tensors of the slot: after going in, when coming out */
    bool each;             /* a kernel for each tensor, not for each block */
    const uint32_t *frame; /* by block */
} Move;

/* Pieces [from, end) of one block; reads, writes: which side of the move this op is. */
static void move_op(Dp *d, const Move *m, const Buffer *u, uint32_t from, uint32_t end,
                    bool reads, bool writes)
{
    Graph *g = d->g;
    uint64_t bytes = 0;
    for (uint32_t i = from; i < end; i++)
        bytes += piece_tensor(d, m->slot, i)->bytes;
    Op op =
        dp_work(d, m->kind, m->name, m->phase, piece_tensor(d, m->slot, from)->dtype, bytes);
    bool adds = m->kind == OP_ADD;
    if (m->kind != OP_RELEASE) {
        op.read_bytes = bytes + (adds ? bytes : 0);
        op.write_bytes = bytes;
        op.flops = adds ? (double)op.u.elements : 0;
    }
    graph_op(g, op);
    for (uint32_t i = from; i < end && reads; i++) {
        if (m->in)
            graph_arg(g, m->slot, piece_index(d, i), ARG_READ, false, m->dies);
        else
            graph_arg(g, SLOT_DATA, i - u->first, ARG_READ, false, true);
    }
    for (uint32_t i = from; i < end && writes; i++) {
        if (m->in)
            graph_arg(g, SLOT_DATA, i - u->first, ARG_WRITE, true, false);
        else
            graph_arg(g, m->slot, piece_index(d, i), adds ? ARG_UPDATE : ARG_WRITE, m->born,
                      false);
    }
}

static void move_pieces(Dp *d, Phase *p, uint32_t role, const Buffer *u, uint32_t frame,
                        const Move *m)
{
    for (uint32_t i = u->first, end; i < u->first + u->n; i = end) {
        uint32_t block = d->pieces[i].block;
        for (end = i; end < u->first + u->n && d->pieces[end].block == block;)
            end++;
        uint32_t s = dp_new_segment(d, SEGMENT_OTHER, m->name, SLOT_DATA, u->layout);
        d->g->segments[s].layout[m->slot] = piece_layout(d, m->slot, i);
        if (m->kind == OP_RELEASE) {
            move_op(d, m, u, i, end, true, false);
            move_op(d, m, u, i, end, false, true);
        }
        for (uint32_t k = i; k < end && m->kind != OP_RELEASE; k = m->each ? k + 1 : end)
            move_op(d, m, u, k, m->each ? k + 1 : end, true, true);
        Step *x = dp_step(p, role, s, d->b->blocks[block].layer);
        x->frame[SLOT_DATA] = frame;
        x->frame[m->slot] = m->frame[block];
    }
}

/* A collective on a buffer. */
static void comm_step(Dp *d, Phase *p, uint32_t role, OpKind kind, const Buffer *u,
                      uint32_t frame, ArgMode mode, bool born, bool dies)
{
    Graph *g = d->g;
    bool params = kind == OP_BROADCAST;
    const char *name = params ? "broadcast parameters" : "reduce gradients";
    uint32_t s =
        dp_new_segment(d, params ? SEGMENT_GATHER : SEGMENT_REDUCE, name, SLOT_DATA, u->layout);
    Op op = dp_work(d, kind, name, params ? PHASE_FORWARD : PHASE_UPDATE,
                    layout_tensor(g, u->layout, 0)->dtype, 0);
    op.u.comm = (CommShape){ .bytes = u->bytes, .group = d->b->group[GROUP_DP], .peer = HUB };
    graph_op(g, op);
    arg_each(g, SLOT_DATA, u->layout, mode, born, dies);
    dp_step(p, role, s, NONE_U32)->frame[SLOT_DATA] = frame;
}

/* A tensor alone in its buffer is broadcast from where it is. */
static void broadcast_one(Dp *d, const Buffer *u, const uint32_t *frame)
{
    Graph *g = d->g;
    comm_step(d, &d->replicate, HUB, OP_BROADCAST, u, NONE_U32, ARG_READ, false, false);
    Segment *s = &g->segments[g->segments_n - 1];
    s->layout[SLOT_DATA] = NONE_U32;
    s->layout[SLOT_PARAM] = piece_layout(d, SLOT_PARAM, u->first);
    Arg *arg = &g->args[g->ops[g->ops_n - 1].arg_first];
    arg->slot = SLOT_PARAM;
    arg->tensor = piece_index(d, u->first);
    d->replicate.steps[d->replicate.steps_n - 1].frame[SLOT_PARAM] =
        frame[d->pieces[u->first].block];
}

void dp_write_replicate(Dp *d, const uint32_t *param)
{
    Move flatten = { .name = "flatten parameters",
                     .slot = SLOT_PARAM,
                     .kind = OP_COPY,
                     .in = true,
                     .frame = param };
    Move view = { .name = "view parameters",
                  .slot = SLOT_PARAM,
                  .kind = OP_RELEASE,
                  .born = true,
                  .frame = param };
    Phase *p = &d->replicate;
    for (uint32_t i = 0; i < d->pieces_n;) {
        Buffer u = next_buffer(d, SLOT_PARAM, i);
        uint32_t there = dp_frame_of(d, OTHER, u.layout);
        if (u.n == 1) {
            broadcast_one(d, &u, param);
        } else {
            uint32_t here = dp_frame_of(d, HUB, u.layout);
            move_pieces(d, p, HUB, &u, here, &flatten);
            comm_step(d, p, HUB, OP_BROADCAST, &u, here, ARG_READ, false, true);
        }
        comm_step(d, p, OTHER, OP_BROADCAST, &u, there, ARG_WRITE, true, false);
        move_pieces(d, p, OTHER, &u, there, &view);
        i += u.n;
    }
}

/* The others' copies go with the graph that backward has used up. */
static void free_replicas(Dp *d, Phase *p, const uint32_t *param)
{
    for (uint32_t i = 0; i < d->b->blocks_n; i++) {
        const BlockType *t = block_type(d->b, i);
        if (t->params_n == 0)
            continue;
        uint32_t s =
            dp_new_segment(d, SEGMENT_OTHER, "free parameters", SLOT_PARAM, t->param_layout);
        graph_op(d->g, dp_work(d, OP_RELEASE, "free parameters", PHASE_UPDATE, DTYPE_F32, 0));
        for (uint32_t k = 0; k < t->params_n; k++)
            graph_arg(d->g, SLOT_PARAM, t->params[k].tensor, ARG_READ, false, true);
        dp_step(p, OTHER, s, d->b->blocks[i].layer)->frame[SLOT_PARAM] = param[i];
    }
}

void dp_write_reduce(Dp *d, Phase *p, bool first, const uint32_t *param, const uint32_t *grad)
{
    bool stays = d->b->sw->grads_persist;
    Move flatten = { .name = "flatten gradients",
                     .phase = PHASE_UPDATE,
                     .slot = SLOT_GRAD,
                     .in = true,
                     .dies = true };
    Move take = { .name = "take gradients",
                  .phase = PHASE_UPDATE,
                  .slot = SLOT_GRAD,
                  .kind = !first  ? OP_ADD
                          : stays ? OP_COPY
                                  : OP_RELEASE,
                  .born = first && !stays,
                  .each = true,
                  .frame = grad };
    free_replicas(d, p, param);
    for (uint32_t i = 0; i < d->pieces_n;) {
        Buffer u = next_buffer(d, SLOT_GRAD, i);
        uint32_t here = dp_frame_of(d, HUB, u.layout), there = dp_frame_of(d, OTHER, u.layout);
        flatten.kind = u.n > 1 ? OP_COPY : OP_RELEASE;
        flatten.frame = d->grad;
        move_pieces(d, p, HUB, &u, here, &flatten);
        flatten.frame = grad;
        move_pieces(d, p, OTHER, &u, there, &flatten);
        comm_step(d, p, HUB, OP_REDUCE, &u, here, ARG_UPDATE, false, false);
        comm_step(d, p, OTHER, OP_REDUCE, &u, there, ARG_READ, false, true);
        move_pieces(d, p, HUB, &u, here, &take);
        i += u.n;
    }
}

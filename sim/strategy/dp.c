/*
 * dp.c - PyTorch's DataParallel: one process, and device 0 is the hub.
 *
 *     device 0   |in|-> |cat|bcast|F ....|gather loss ->|B ....|cat|reduce|optimizer
 *     device 1      |<-|    |bcast|F ....|->..........<-|B ....|cat|reduce|
 *     device 2      |<-|    |bcast|F ....|->..........<-|B ....|cat|reduce|
 *                inputs     params      outputs    gradients      gradients
 *                                                  of outputs
 *
 * Each micro-batch: the batch comes to device 0, which scatters it; every
 * parameter is broadcast (broadcast_coalesced); the outputs are gathered on device
 * 0, which computes the loss of the whole batch and scatters the gradient of the
 * outputs; the gradients are summed on device 0 (reduce_add_coalesced, only when
 * all are there: nothing overlaps), which alone has an optimizer.  Two roles:
 * device 0, and the others, which keep neither parameters nor gradients nor state.
 * One host launches for all (Graph.host_group); the shorter program of the two is
 * padded with empty instances after each phase, so that its rounds stay in step.
 *
 * All transfers stand on the compute lane, as torch puts them on the current
 * streams.  Where the others wait for device 0 is their bubble.
 *
 * BUFFERS.  Tensors are flattened into buffers of 10 MiB in definition order, cut
 * as torch's take_tensors cuts (a tensor counts twice when it comes), on each
 * device by one kernel per block.  Tensors alone in their buffer are not copied,
 * and what comes out of a buffer is a view of it: no work, RELEASE ops that end
 * one and begin the other.  Later micro-batches are added to the sum on device 0.
 *
 * THE LOSS is cut off its block: what is left writes its outputs to SLOT_OUT and
 * finds their gradient in SLOT_DOUT, like any block; the loss ops become one
 * segment of device 0, as large as all devices together.
 *
 * SIMPLIFIED.  Inputs come to device 0 and go on from there (torch copies batches
 * that lie on the host to each device).  The threads of parallel_apply are the one
 * host that they are under Python's lock.  Buffers of batch norms, a few kilobytes
 * that torch broadcasts as well, stay where they are.
 */
#include "sim/strategy/grads.h"

#include <stdlib.h>
#include <string.h>

#define COALESCED_BYTES \
    ((uint64_t)10485760) /* torch/nn/parallel: replicate.py, _functions.py */

enum { LOSSES_MAX = 4, WHOLE_MAX = 24, INPUTS_MAX = 8 };
enum { TAG_INPUT, TAG_OUTPUT, TAG_GRADIENT };
enum { HUB, OTHER, ROLES_N };

/* One instance of a phase. */
typedef struct Step {
    uint32_t role, segment, layer;
    uint32_t wait; /* step of the same phase and role; NONE_U32 */
    uint32_t frame[SLOT_N];
} Step;

/* What stands between the blocks, written once and played for each micro-batch. */
typedef struct Phase {
    uint32_t steps_n, steps_cap;
    Step *steps;
    /* Written on the copy lane, maybe while the micro-batch before still reads its own: this
     * frame of device 0 stands for a new one each time. */
    uint32_t fresh, fresh_layout;
} Phase;

/* A value that the loss ops touch, as its block named it. */
typedef struct WholeValue {
    bool backward;
    uint8_t slot;
    uint32_t tensor;
} WholeValue;

typedef struct Loss {
    uint32_t block, n;
    WholeValue logits[LOSSES_MAX], dlogits[LOSSES_MAX];
    uint64_t bytes; /* of one device's outputs */
    uint32_t values_n;
    WholeValue values[WHOLE_MAX]; /* by tensor of whole_layout */
    uint32_t whole_layout, out_layout;
    uint32_t input_layout, inputs[INPUTS_MAX]; /* what else the block reads from outside */
    uint32_t forward, backward;                /* the block without its loss */
    uint32_t whole[ROLES_N], out[ROLES_N], dout[ROLES_N], data[ROLES_N]; /* frames */
    uint32_t loaded; /* instance on device 0 that has brought the newest inputs of the block */
} Loss;

typedef struct Buffer {
    uint32_t first, n; /* pieces */
    uint32_t layout;
    uint64_t bytes;
} Buffer;

typedef struct Dp {
    Build *b;
    Graph *g;
    uint32_t devices_n;
    Weave w[ROLES_N];
    Loss loss;
    uint32_t idle;  /* a segment without ops */
    uint32_t *grad; /* by block: frame on device 0 of the gradients of its own copy */
    uint32_t pieces_n;
    Piece *pieces;
    Phase replicate, at_loss, reduce[2]; /* reduce: first micro-batch, later ones */
    Phase *input;                        /* by block */
    uint32_t first_at[ROLES_N];          /* instance of each role's first step played last */
} Dp;

/* ---- phases ---- */

static Step *step(Phase *p, uint32_t role, uint32_t segment, uint32_t layer)
{
    GROW(p->steps, p->steps_n, p->steps_cap);
    Step *s = &p->steps[p->steps_n++];
    *s = (Step){ .role = role, .segment = segment, .layer = layer, .wait = NONE_U32 };
    memset(s->frame, 0xff, sizeof s->frame);
    return s;
}

/* The host goes round the devices instance by instance: both programs stay as long. */
static void pad(Dp *d)
{
    Role *hub = &d->g->roles[HUB], *other = &d->g->roles[OTHER];
    while (hub->instances_n != other->instances_n)
        role_instance(hub->instances_n < other->instances_n ? hub : other, d->idle, NONE_U32,
                      NONE_U32, NONE_U32);
}

static uint32_t frame_of(const Dp *d, uint32_t role, uint32_t layout)
{
    if (layout == NONE_U32)
        return NONE_U32;
    return role_frame(&d->g->roles[role], (Frame){ layout, NONE_U32, NONE_U32, false });
}

static void play(Dp *d, const Phase *p, uint32_t micro_batch)
{
    uint32_t *at = mem_zero(p->steps_n + 1, sizeof *at);
    uint32_t fresh = p->fresh_layout ? frame_of(d, HUB, p->fresh_layout) : NONE_U32;
    d->first_at[HUB] = d->first_at[OTHER] = NONE_U32;
    for (uint32_t i = 0; i < p->steps_n; i++) {
        const Step *s = &p->steps[i];
        Role *role = &d->g->roles[s->role];
        at[i] = role_instance(role, s->segment, micro_batch, s->layer, NONE_U32);
        uint32_t *frame = role->instances[at[i]].frame;
        memcpy(frame, s->frame, sizeof s->frame);
        if (p->fresh_layout && s->role == HUB && frame[SLOT_DATA] == p->fresh)
            frame[SLOT_DATA] = fresh;
        if (s->wait != NONE_U32)
            wait_at(role, 0, (Point){ at[s->wait], 0 });
        if (d->first_at[s->role] == NONE_U32)
            d->first_at[s->role] = at[i];
    }
    free(at);
    pad(d);
}

/* ---- ops ---- */

static Op work(Dp *d, OpKind kind, const char *name, OpPhase phase, DType dtype, uint64_t bytes)
{
    Graph *g = d->g;
    return (Op){ .kind = kind,
                 .phase = phase,
                 .dtype = dtype,
                 .lane = kind == OP_H2D ? LANE_COPY : LANE_COMPUTE,
                 .name = intern(&g->names, name),
                 .logical = g->segments[g->segments_n - 1].op_n,
                 .u.elements = bytes / dtype_bytes(dtype) };
}

static void h2d(Dp *d, DType dtype, uint64_t bytes)
{
    Op op = work(d, OP_H2D, "input", PHASE_FORWARD, dtype, bytes);
    op.write_bytes = bytes;
    graph_op(d->g, op);
}

typedef struct Message {
    const char *name;
    OpPhase phase;
    DType dtype;
    uint64_t bytes;
    uint32_t tag;
} Message;

static void send_or_receive(Dp *d, OpKind kind, const Message *m, uint32_t peer)
{
    Op op = work(d, kind, m->name, m->phase, m->dtype, 0);
    op.u.comm = (CommShape){
        .bytes = m->bytes, .group = d->b->group[GROUP_DP], .peer = peer, .tag = m->tag
    };
    op.read_bytes = kind == OP_SEND ? m->bytes : 0;
    op.write_bytes = kind == OP_SEND ? 0 : m->bytes;
    graph_op(d->g, op);
}

static uint32_t new_segment(Dp *d, SegmentKind kind, const char *name, Slot slot,
                            uint32_t layout)
{
    uint32_t s = graph_segment(d->g, kind, name);
    d->g->segments[s].layout[slot] = layout;
    return s;
}

/* ---- the loss: what it touches ---- */

static bool is_loss(const Op *op)
{
    return op->kind == OP_CROSS_ENTROPY || op->kind == OP_MSE;
}

static bool same_value(WholeValue a, WholeValue b)
{
    bool passes = a.slot != SLOT_LOCAL || a.backward == b.backward;
    return a.slot == b.slot && a.tensor == b.tensor && passes;
}

static WholeValue value_of(const Arg *a, bool backward)
{
    return (WholeValue){ backward, a->slot, a->tensor };
}

static uint32_t find_value(const WholeValue *list, uint32_t n, WholeValue v)
{
    for (uint32_t i = 0; i < n; i++)
        if (same_value(list[i], v))
            return i;
    return NONE_U32;
}

static const Segment *loss_pass(const Dp *d, bool backward)
{
    const BlockType *t = block_type(d->b, d->loss.block);
    return &d->g->segments[backward ? t->backward[VARIANT_PLAIN][GRAD_BORN]
                                    : t->forward[VARIANT_PLAIN]];
}

/* Both passes of a loss read its targets: which one reads those of this op in backward? */
static bool reads_targets_of(const Dp *d, const Op *op, const Op *other)
{
    for (uint32_t a = 0; a < op->arg_n; a++)
        for (uint32_t x = 0; x < other->arg_n; x++) {
            const Arg *one = &d->g->args[op->arg_first + a];
            const Arg *two = &d->g->args[other->arg_first + x];
            if (one->slot == SLOT_DATA && two->slot == SLOT_DATA && one->tensor == two->tensor)
                return true;
        }
    return false;
}

static uint32_t number_of(const Dp *d, const Segment *forward, const Op *backward)
{
    uint32_t k = 0;
    for (uint32_t i = 0; i < forward->op_n; i++) {
        const Op *op = &graph_ops(d->g, forward)[i];
        if (is_loss(op) && reads_targets_of(d, op, backward))
            return k;
        k += is_loss(op);
    }
    ASSERT(k < d->loss.n); /* every loss has targets */
    return k;
}

static void note_values(Dp *d, const Op *op, bool backward)
{
    Loss *l = &d->loss;
    for (uint32_t a = 0; a < op->arg_n; a++) {
        WholeValue v = value_of(&d->g->args[op->arg_first + a], backward);
        if (find_value(l->values, l->values_n, v) != NONE_U32)
            continue;
        ASSERT(l->values_n < WHOLE_MAX);
        l->values[l->values_n++] = v;
    }
}

/* A loss without ops in backward has left the gradient in the place of the logits. */
static void find_losses(Dp *d)
{
    Loss *l = &d->loss;
    const Segment *forward = loss_pass(d, false), *backward = loss_pass(d, true);
    for (uint32_t i = 0; i < forward->op_n; i++) {
        const Op *op = &graph_ops(d->g, forward)[i];
        if (!is_loss(op))
            continue;
        ASSERT(l->n < LOSSES_MAX);
        note_values(d, op, false);
        l->logits[l->n] = value_of(&d->g->args[op->arg_first], false);
        l->dlogits[l->n] = l->logits[l->n];
        l->n++;
    }
    for (uint32_t i = 0; i < backward->op_n; i++) {
        const Op *op = &graph_ops(d->g, backward)[i];
        if (!is_loss(op))
            continue;
        note_values(d, op, true);
        d->loss.dlogits[number_of(d, forward, op)] =
            value_of(&d->g->args[op->arg_first + op->arg_n - 1], true);
    }
}

static Tensor tensor_of(const Dp *d, WholeValue v)
{
    return *layout_tensor(d->g, loss_pass(d, v.backward)->layout[v.slot], v.tensor);
}

/* ---- the loss: segments ---- */

static void make_loss_layouts(Dp *d)
{
    Loss *l = &d->loss;
    Graph *g = d->g;
    l->whole_layout = graph_layout(g);
    for (uint32_t i = 0; i < l->values_n; i++) {
        Tensor t = tensor_of(d, l->values[i]);
        t.bytes *= d->devices_n;
        t.dims[0] *= d->devices_n;
        graph_tensor(g, t);
    }
    l->out_layout = graph_layout(g);
    for (uint32_t k = 0; k < l->n; k++) {
        Tensor t = tensor_of(d, l->logits[k]);
        t.class_ = TENSOR_ACTIVATION;
        graph_tensor(g, t);
        l->bytes += t.bytes;
    }
    uint32_t data = loss_pass(d, false)->layout[SLOT_DATA];
    l->input_layout = NONE_U32;
    for (uint32_t i = 0; data != NONE_U32 && i < g->layouts[data].tensor_n; i++) {
        ASSERT(i < INPUTS_MAX);
        WholeValue v = { false, SLOT_DATA, i };
        if (find_value(l->values, l->values_n, v) != NONE_U32)
            continue;
        if (l->input_layout == NONE_U32)
            l->input_layout = graph_layout(g);
        l->inputs[i] = graph_tensor(g, *layout_tensor(g, data, i));
    }
}

static void copy_arg(Dp *d, Arg a, bool backward)
{
    const Loss *l = &d->loss;
    uint32_t k = find_value(backward ? l->dlogits : l->logits, l->n, value_of(&a, backward));
    if (k != NONE_U32)
        graph_arg(d->g, backward ? SLOT_DOUT : SLOT_OUT, k, (ArgMode)a.mode,
                  a.born && !backward, a.dies && backward);
    else
        graph_arg(d->g, (Slot)a.slot, a.slot == SLOT_DATA ? l->inputs[a.tensor] : a.tensor,
                  (ArgMode)a.mode, a.born, a.dies);
}

static uint32_t without_loss(Dp *d, bool backward)
{
    Graph *g = d->g;
    const Segment from = *loss_pass(d, backward);
    uint32_t s = graph_segment(g, from.kind, intern_text(&g->names, from.name));
    memcpy(g->segments[s].layout, from.layout, sizeof from.layout);
    g->segments[s].layout[SLOT_DATA] = d->loss.input_layout;
    g->segments[s].layout[backward ? SLOT_DOUT : SLOT_OUT] = d->loss.out_layout;
    for (uint32_t i = 0; i < from.op_n; i++) {
        const Op op = g->ops[from.op_first + i];
        ASSERT(op.dep_n == 0);
        if (is_loss(&op))
            continue;
        graph_op(g, op);
        for (uint32_t a = 0; a < op.arg_n; a++)
            copy_arg(d, g->args[op.arg_first + a], backward);
    }
    return s;
}

static void loss_ops(Dp *d, bool backward)
{
    Graph *g = d->g;
    const Segment from = *loss_pass(d, backward);
    for (uint32_t i = 0; i < from.op_n; i++) {
        Op op = g->ops[from.op_first + i];
        if (!is_loss(&op))
            continue;
        op.logical = g->segments[g->segments_n - 1].op_n;
        op.u.rows.rows *= d->devices_n;
        op.read_bytes *= d->devices_n;
        op.write_bytes *= d->devices_n;
        op.flops *= d->devices_n;
        op.model_flops *= d->devices_n;
        graph_op(g, op);
        for (uint32_t a = 0; a < op.arg_n; a++) {
            Arg arg = g->args[op.arg_first + a];
            uint32_t tensor =
                find_value(d->loss.values, d->loss.values_n, value_of(&arg, backward));
            graph_arg(g, SLOT_DATA, tensor, (ArgMode)arg.mode, arg.born, arg.dies);
        }
    }
}

/* The newest op touches the logits, or their gradient, of all losses in the whole batch. */
static void whole_args(Dp *d, bool gradient, ArgMode mode, bool born, bool dies)
{
    const Loss *l = &d->loss;
    const WholeValue *v = gradient ? l->dlogits : l->logits;
    for (uint32_t k = 0; k < l->n; k++)
        graph_arg(d->g, SLOT_DATA, find_value(l->values, l->values_n, v[k]), mode, born, dies);
}

/* ---- the loss: transfers around it ---- */

static uint32_t load_targets(Dp *d)
{
    const Loss *l = &d->loss;
    uint32_t s = new_segment(d, SEGMENT_INPUT, "targets", SLOT_DATA, l->whole_layout);
    uint64_t bytes = 0;
    DType dtype = DTYPE_I64;
    for (uint32_t i = 0; i < l->values_n; i++)
        if (l->values[i].slot == SLOT_DATA) {
            bytes += layout_tensor(d->g, l->whole_layout, i)->bytes;
            dtype = layout_tensor(d->g, l->whole_layout, i)->dtype;
        }
    h2d(d, dtype, bytes);
    for (uint32_t i = 0; i < l->values_n; i++)
        if (l->values[i].slot == SLOT_DATA)
            graph_arg(d->g, SLOT_DATA, i, ARG_WRITE, true, false);
    return s;
}

static Message loss_message(const Dp *d, bool gradient)
{
    return (Message){ gradient ? "scatter gradient" : "gather outputs",
                      gradient ? PHASE_DGRAD : PHASE_FORWARD,
                      layout_tensor(d->g, d->loss.out_layout, 0)->dtype, d->loss.bytes,
                      gradient ? TAG_GRADIENT : TAG_OUTPUT };
}

/* Device 0 copies its own outputs to their place and posts all receives at once. */
static uint32_t gather_on_hub(Dp *d)
{
    Message m = loss_message(d, false);
    Graph *g = d->g;
    uint32_t s = new_segment(d, SEGMENT_RECV, m.name, SLOT_DATA, d->loss.whole_layout);
    g->segments[s].layout[SLOT_OUT] = d->loss.out_layout;
    Op copy = work(d, OP_COPY, m.name, m.phase, m.dtype, m.bytes);
    copy.read_bytes = copy.write_bytes = m.bytes;
    graph_op(g, copy);
    arg_each(g, SLOT_OUT, d->loss.out_layout, ARG_READ, false, true);
    whole_args(d, false, ARG_WRITE, true, false);
    for (uint32_t i = 1; i < d->devices_n; i++) {
        send_or_receive(d, OP_RECV, &m, i);
        g->ops[g->ops_n - 1].grouped = i + 1 < d->devices_n;
        whole_args(d, false, ARG_UPDATE, false, false);
    }
    return s;
}

/* One after another on one stream, as torch's scatter; its own part is a view. */
static uint32_t scatter_on_hub(Dp *d)
{
    Message m = loss_message(d, true);
    Graph *g = d->g;
    uint32_t s = new_segment(d, SEGMENT_SEND, m.name, SLOT_DATA, d->loss.whole_layout);
    g->segments[s].layout[SLOT_DOUT] = d->loss.out_layout;
    for (uint32_t i = 1; i < d->devices_n; i++) {
        send_or_receive(d, OP_SEND, &m, i);
        whole_args(d, true, ARG_READ, false, false);
    }
    graph_op(g, work(d, OP_RELEASE, "own part", m.phase, m.dtype, m.bytes));
    whole_args(d, true, ARG_READ, false, true);
    graph_op(g, work(d, OP_RELEASE, "own part", m.phase, m.dtype, m.bytes));
    arg_each(g, SLOT_DOUT, d->loss.out_layout, ARG_WRITE, true, false);
    return s;
}

static uint32_t loss_on_other(Dp *d, bool gradient)
{
    Message m = loss_message(d, gradient);
    Slot slot = gradient ? SLOT_DOUT : SLOT_OUT;
    uint32_t s = new_segment(d, gradient ? SEGMENT_RECV : SEGMENT_SEND, m.name, slot,
                             d->loss.out_layout);
    send_or_receive(d, gradient ? OP_RECV : OP_SEND, &m, HUB);
    arg_each(d->g, slot, d->loss.out_layout, gradient ? ARG_WRITE : ARG_READ, gradient,
             !gradient);
    return s;
}

static void write_loss_phase(Dp *d)
{
    Phase *p = &d->at_loss;
    Loss *l = &d->loss;
    p->fresh = l->whole[HUB];
    p->fresh_layout = l->whole_layout;
    Step *s = step(p, HUB, load_targets(d), NONE_U32);
    s->frame[SLOT_DATA] = l->whole[HUB];
    s = step(p, HUB, gather_on_hub(d), NONE_U32);
    s->frame[SLOT_DATA] = l->whole[HUB];
    s->frame[SLOT_OUT] = l->out[HUB];
    step(p, OTHER, loss_on_other(d, false), NONE_U32)->frame[SLOT_OUT] = l->out[OTHER];
    s = step(p, HUB, new_segment(d, SEGMENT_OTHER, "loss", SLOT_DATA, l->whole_layout),
             NONE_U32);
    loss_ops(d, false);
    loss_ops(d, true);
    s->frame[SLOT_DATA] = l->whole[HUB];
    s->wait = 0;
    s = step(p, HUB, scatter_on_hub(d), NONE_U32);
    s->frame[SLOT_DATA] = l->whole[HUB];
    s->frame[SLOT_DOUT] = l->dout[HUB];
    step(p, OTHER, loss_on_other(d, true), NONE_U32)->frame[SLOT_DOUT] = l->dout[OTHER];
}

static void cut_off_loss(Dp *d)
{
    Loss *l = &d->loss;
    l->block = d->b->blocks_n - 1;
    ASSERT(block_type(d->b, l->block)->has_loss);
    find_losses(d);
    make_loss_layouts(d);
    l->forward = without_loss(d, false);
    l->backward = without_loss(d, true);
    for (uint32_t r = 0; r < ROLES_N; r++) {
        l->whole[r] = r == HUB ? frame_of(d, r, l->whole_layout) : NONE_U32;
        l->out[r] = frame_of(d, r, l->out_layout);
        l->dout[r] = frame_of(d, r, l->out_layout);
        l->data[r] = NONE_U32;
    }
    write_loss_phase(d);
}

/* ---- inputs ---- */

static uint32_t input_segment(Dp *d, uint32_t layout, uint64_t bytes)
{
    DType dtype = layout_tensor(d->g, layout, 0)->dtype;
    uint32_t s = new_segment(d, SEGMENT_INPUT, "input", SLOT_DATA, layout);
    h2d(d, dtype, bytes);
    arg_each(d->g, SLOT_DATA, layout, ARG_WRITE, true, false);
    return s;
}

/* What the other devices shall have. */
static uint32_t rest_layout(Dp *d, uint32_t layout)
{
    uint32_t rest = graph_layout(d->g);
    for (uint32_t i = 0; i < d->g->layouts[layout].tensor_n; i++) {
        Tensor t = *layout_tensor(d->g, layout, i);
        t.bytes *= d->devices_n - 1;
        t.dims[0] *= d->devices_n - 1;
        graph_tensor(d->g, t);
    }
    return rest;
}

/* Device 0: its own part, the rest, and away with that.  The frames of what blocks read are
 * bound by who plays this. */
static void write_input_phase(Dp *d, Phase *p, uint32_t layout)
{
    Graph *g = d->g;
    Message m = { "scatter input", PHASE_FORWARD, layout_tensor(g, layout, 0)->dtype,
                  layout_bytes(g, layout), TAG_INPUT };
    uint32_t rest = rest_layout(d, layout), frame = frame_of(d, HUB, rest);
    p->fresh = frame;
    p->fresh_layout = rest;
    step(p, HUB, input_segment(d, layout, m.bytes), NONE_U32);
    step(p, HUB, input_segment(d, rest, m.bytes * (d->devices_n - 1)), NONE_U32)
        ->frame[SLOT_DATA] = frame;
    Step *s = step(p, HUB, new_segment(d, SEGMENT_SEND, m.name, SLOT_DATA, rest), NONE_U32);
    s->frame[SLOT_DATA] = frame;
    s->wait = 1;
    for (uint32_t i = 1; i < d->devices_n; i++) {
        send_or_receive(d, OP_SEND, &m, i);
        arg_each(g, SLOT_DATA, rest, ARG_READ, false, i + 1 == d->devices_n);
    }
    step(p, OTHER, new_segment(d, SEGMENT_RECV, m.name, SLOT_DATA, layout), NONE_U32);
    send_or_receive(d, OP_RECV, &m, HUB);
    arg_each(g, SLOT_DATA, layout, ARG_WRITE, true, false);
}

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

static void list_pieces(Dp *d)
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
    Op op = work(d, m->kind, m->name, m->phase, piece_tensor(d, m->slot, from)->dtype, bytes);
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
        uint32_t s = new_segment(d, SEGMENT_OTHER, m->name, SLOT_DATA, u->layout);
        d->g->segments[s].layout[m->slot] = piece_layout(d, m->slot, i);
        if (m->kind == OP_RELEASE) {
            move_op(d, m, u, i, end, true, false);
            move_op(d, m, u, i, end, false, true);
        }
        for (uint32_t k = i; k < end && m->kind != OP_RELEASE; k = m->each ? k + 1 : end)
            move_op(d, m, u, k, m->each ? k + 1 : end, true, true);
        Step *x = step(p, role, s, d->b->blocks[block].layer);
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
        new_segment(d, params ? SEGMENT_GATHER : SEGMENT_REDUCE, name, SLOT_DATA, u->layout);
    Op op = work(d, kind, name, params ? PHASE_FORWARD : PHASE_UPDATE,
                 layout_tensor(g, u->layout, 0)->dtype, 0);
    op.u.comm = (CommShape){ .bytes = u->bytes, .group = d->b->group[GROUP_DP], .peer = HUB };
    graph_op(g, op);
    arg_each(g, SLOT_DATA, u->layout, mode, born, dies);
    step(p, role, s, NONE_U32)->frame[SLOT_DATA] = frame;
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

static void write_replicate(Dp *d, const uint32_t *param)
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
        uint32_t there = frame_of(d, OTHER, u.layout);
        if (u.n == 1) {
            broadcast_one(d, &u, param);
        } else {
            uint32_t here = frame_of(d, HUB, u.layout);
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
            new_segment(d, SEGMENT_OTHER, "free parameters", SLOT_PARAM, t->param_layout);
        graph_op(d->g, work(d, OP_RELEASE, "free parameters", PHASE_UPDATE, DTYPE_F32, 0));
        for (uint32_t k = 0; k < t->params_n; k++)
            graph_arg(d->g, SLOT_PARAM, t->params[k].tensor, ARG_READ, false, true);
        step(p, OTHER, s, d->b->blocks[i].layer)->frame[SLOT_PARAM] = param[i];
    }
}

static void write_reduce(Dp *d, Phase *p, bool first, const uint32_t *param,
                         const uint32_t *grad)
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
        uint32_t here = frame_of(d, HUB, u.layout), there = frame_of(d, OTHER, u.layout);
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

/* ---- two programs ---- */

/* The others run what device 0 runs, on frames with the same numbers, but own nothing. */
static void add_others(Dp *d)
{
    Graph *g = d->g;
    g->roles[HUB].name = intern(&g->names, "device 0");
    graph_role(g, "other devices", 0);
    const Role *from = &g->roles[HUB];
    Role *to = &g->roles[OTHER];
    for (uint32_t i = 0; i < from->frames_n; i++) {
        Frame frame = from->frames[i];
        frame.resident = false;
        role_frame(to, frame);
    }
    for (uint32_t i = 0; i < from->instances_n; i++) {
        const Instance *x = &from->instances[i];
        role_instance(to, x->segment, x->micro_batch, x->layer, x->chunk);
        memcpy(to->instances[i].frame, x->frame, sizeof x->frame);
        for (uint32_t e = x->edge_first; e < x->edge_first + x->edge_n; e++)
            role_edge(to, from->edges[e].dst_op, from->edges[e].src_instance,
                      from->edges[e].src_op);
    }
    g->role_stride = d->b->stride[DIM_DP];
    g->role_extent = d->devices_n;
    free(g->role_of);
    g->role_of = mem_zero(d->devices_n, sizeof *g->role_of);
    for (uint32_t i = 1; i < d->devices_n; i++)
        g->role_of[i] = OTHER;
    g->replica = (GroupDim){ 1, 1, 1, 1 };
    g->host_group = d->b->group[GROUP_DP];
}

static void pass_over(Dp *d, uint32_t instance[ROLES_N])
{
    for (uint32_t r = 0; r < ROLES_N; r++)
        d->w[r].now[d->w[r].next++] = instance[r];
}

static void weave_input(Dp *d)
{
    const Instance old = *weave_next(&d->w[HUB]);
    uint32_t block = block_of(d->b, &d->w[HUB].old.instances[d->w[HUB].next + 1]);
    bool last = block == d->loss.block;
    uint32_t layout =
        last ? d->loss.input_layout : d->g->segments[old.segment].layout[SLOT_DATA];
    Phase *p = &d->input[block];
    if (p->steps_n == 0 && layout != NONE_U32)
        write_input_phase(d, p, layout);
    play(d, p, old.micro_batch);
    for (uint32_t r = 0; r < ROLES_N && p->steps_n > 0; r++) {
        uint32_t frame = last ? frame_of(d, r, layout) : old.frame[SLOT_DATA];
        d->g->roles[r].instances[d->first_at[r]].frame[SLOT_DATA] = frame;
        if (last)
            d->loss.data[r] = frame;
    }
    if (last && p->steps_n > 0)
        d->loss.loaded = d->first_at[HUB];
    pass_over(d, d->first_at);
}

/* The block of the loss, without it. */
static void weave_last(Dp *d, bool backward)
{
    const Instance old = *weave_next(&d->w[HUB]);
    const Loss *l = &d->loss;
    uint32_t at[ROLES_N];
    for (uint32_t r = 0; r < ROLES_N; r++) {
        Role *role = &d->g->roles[r];
        at[r] = role_instance(role, backward ? l->backward : l->forward, old.micro_batch,
                              old.layer, old.chunk);
        uint32_t *frame = role->instances[at[r]].frame;
        memcpy(frame, old.frame, sizeof old.frame);
        frame[SLOT_DATA] = l->data[r];
        frame[backward ? SLOT_DOUT : SLOT_OUT] = backward ? l->dout[r] : l->out[r];
        if (r == HUB && !backward && l->data[r] != NONE_U32)
            wait_at(role, 0, (Point){ l->loaded, 0 });
    }
    pass_over(d, at);
}

static void weave_block(Dp *d, uint32_t block, bool backward)
{
    if (block == d->loss.block) {
        weave_last(d, backward);
    } else {
        for (uint32_t r = 0; r < ROLES_N; r++) {
            uint32_t i = weave_keep(&d->w[r]);
            if (backward)
                d->g->roles[r].instances[i].segment =
                    block_type(d->b, block)->backward[d->b->variant[block]][GRAD_BORN];
        }
    }
    Role *hub = &d->g->roles[HUB];
    uint32_t *grad = &hub->instances[hub->instances_n - 1].frame[SLOT_GRAD];
    if (backward && *grad != NONE_U32)
        *grad = d->grad[d->b->blocks[block].frame_of];
}

static void weave_all(Dp *d)
{
    for (uint32_t r = 0; r < ROLES_N; r++)
        weave_begin(&d->w[r], d->b, &d->g->roles[r], d->g->roles[r].instances_n);
    while (weave_left(&d->w[HUB])) {
        const Instance old = *weave_next(&d->w[HUB]);
        uint32_t block = block_of(d->b, &old);
        bool backward = d->g->segments[old.segment].kind == SEGMENT_BACKWARD;
        if (block == NONE_U32) {
            weave_input(d);
            continue;
        }
        if (block == 0 && !backward)
            play(d, &d->replicate, old.micro_batch);
        weave_block(d, block, backward);
        if (block == d->loss.block && !backward)
            play(d, &d->at_loss, old.micro_batch);
        if (block == 0 && backward)
            play(d, &d->reduce[old.micro_batch > 0], old.micro_batch);
    }
    for (uint32_t r = 0; r < ROLES_N; r++)
        weave_end(&d->w[r]);
}

/* Frames by block: parameters and gradients where pipeline put them, and those of device 0's
 * own copy. */
static void write_phases(Dp *d)
{
    Build *b = d->b;
    uint32_t *param = PUSH_ARRAY(&b->arena, uint32_t, b->blocks_n);
    uint32_t *grad = PUSH_ARRAY(&b->arena, uint32_t, b->blocks_n);
    d->grad = PUSH_ARRAY(&b->arena, uint32_t, b->blocks_n);
    for (uint32_t i = 0; i < b->blocks_n; i++) {
        param[i] = b->home[i].param;
        grad[i] = b->home[i].grad;
        d->grad[i] = b->blocks[i].frame_of == i
                         ? frame_of(d, HUB, block_type(b, i)->grad_layout)
                         : NONE_U32;
    }
    list_pieces(d);
    cut_off_loss(d);
    write_replicate(d, param);
    write_reduce(d, &d->reduce[0], true, param, grad);
    if (b->s->training.micro_batches > 1)
        write_reduce(d, &d->reduce[1], false, param, grad);
}

static void free_phases(Dp *d)
{
    free(d->replicate.steps);
    free(d->at_loss.steps);
    free(d->reduce[0].steps);
    free(d->reduce[1].steps);
    for (uint32_t i = 0; i < d->b->blocks_n; i++)
        free(d->input[i].steps);
}

bool pass_dp(Build *b, Err *err)
{
    const Parallel *p = &b->s->parallel;
    if (b->group[GROUP_DP] == NONE_U32)
        return pass_single(b, err);
    ASSERT(p->tp * p->pp * p->cp * p->virtual_stages == 1); /* see scenario_check.c */
    if (p->sync_batchnorm)
        return err_set(err, "parallel.sync_batchnorm: PyTorch's SyncBatchNorm needs a process "
                            "per GPU, so not with strategy 'dp'; false is allowed");
    Dp d = { .b = b, .g = b->g, .devices_n = p->dp };
    d.input = PUSH_ARRAY(&b->arena, Phase, b->blocks_n);
    d.idle = graph_segment(b->g, SEGMENT_OTHER, "idle");
    add_others(&d);
    write_phases(&d);
    weave_all(&d);
    free_phases(&d);
    Finish f;
    finish_begin(&f, b, owned_by_share(b, SHARE_NOTHING), SHARE_NOTHING, 0);
    finish_role(&f, HUB, NOWHERE);
    return true;
}

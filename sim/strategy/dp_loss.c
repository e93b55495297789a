/*
 * dp_loss.c - DataParallel's loss, which device 0 computes for all.
 *
 *     device 0   F ....|gather        loss  its backward        scatter|B ....
 *     device 1   F ....|outputs ->                      -> gradients   |B ....
 *
 * It is cut off its block: what is left writes its outputs to SLOT_OUT and
 * finds their gradient in SLOT_DOUT, like any block; the loss ops become one
 * segment of device 0, as large as all devices together.
 */
#include "sim/strategy/dp_parts.h"

#include <string.h>

/* ---- what it touches ---- */

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

/* ---- segments ---- */

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

/* ---- transfers around it ---- */

static uint32_t load_targets(Dp *d)
{
    const Loss *l = &d->loss;
    uint32_t s = dp_new_segment(d, SEGMENT_INPUT, "targets", SLOT_DATA, l->whole_layout);
    uint64_t bytes = 0;
    DType dtype = DTYPE_I64;
    for (uint32_t i = 0; i < l->values_n; i++)
        if (l->values[i].slot == SLOT_DATA) {
            bytes += layout_tensor(d->g, l->whole_layout, i)->bytes;
            dtype = layout_tensor(d->g, l->whole_layout, i)->dtype;
        }
    dp_h2d(d, dtype, bytes);
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
    uint32_t s = dp_new_segment(d, SEGMENT_RECV, m.name, SLOT_DATA, d->loss.whole_layout);
    g->segments[s].layout[SLOT_OUT] = d->loss.out_layout;
    Op copy = dp_work(d, OP_COPY, m.name, m.phase, m.dtype, m.bytes);
    copy.read_bytes = copy.write_bytes = m.bytes;
    graph_op(g, copy);
    arg_each(g, SLOT_OUT, d->loss.out_layout, ARG_READ, false, true);
    whole_args(d, false, ARG_WRITE, true, false);
    for (uint32_t i = 1; i < d->devices_n; i++) {
        dp_send_or_receive(d, OP_RECV, &m, i);
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
    uint32_t s = dp_new_segment(d, SEGMENT_SEND, m.name, SLOT_DATA, d->loss.whole_layout);
    g->segments[s].layout[SLOT_DOUT] = d->loss.out_layout;
    for (uint32_t i = 1; i < d->devices_n; i++) {
        dp_send_or_receive(d, OP_SEND, &m, i);
        whole_args(d, true, ARG_READ, false, false);
    }
    graph_op(g, dp_work(d, OP_RELEASE, "own part", m.phase, m.dtype, m.bytes));
    whole_args(d, true, ARG_READ, false, true);
    graph_op(g, dp_work(d, OP_RELEASE, "own part", m.phase, m.dtype, m.bytes));
    arg_each(g, SLOT_DOUT, d->loss.out_layout, ARG_WRITE, true, false);
    return s;
}

static uint32_t loss_on_other(Dp *d, bool gradient)
{
    Message m = loss_message(d, gradient);
    Slot slot = gradient ? SLOT_DOUT : SLOT_OUT;
    uint32_t s = dp_new_segment(d, gradient ? SEGMENT_RECV : SEGMENT_SEND, m.name, slot,
                                d->loss.out_layout);
    dp_send_or_receive(d, gradient ? OP_RECV : OP_SEND, &m, HUB);
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
    Step *s = dp_step(p, HUB, load_targets(d), NONE_U32);
    s->frame[SLOT_DATA] = l->whole[HUB];
    s = dp_step(p, HUB, gather_on_hub(d), NONE_U32);
    s->frame[SLOT_DATA] = l->whole[HUB];
    s->frame[SLOT_OUT] = l->out[HUB];
    dp_step(p, OTHER, loss_on_other(d, false), NONE_U32)->frame[SLOT_OUT] = l->out[OTHER];
    s = dp_step(p, HUB, dp_new_segment(d, SEGMENT_OTHER, "loss", SLOT_DATA, l->whole_layout),
                NONE_U32);
    loss_ops(d, false);
    loss_ops(d, true);
    s->frame[SLOT_DATA] = l->whole[HUB];
    s->wait = 0;
    s = dp_step(p, HUB, scatter_on_hub(d), NONE_U32);
    s->frame[SLOT_DATA] = l->whole[HUB];
    s->frame[SLOT_DOUT] = l->dout[HUB];
    dp_step(p, OTHER, loss_on_other(d, true), NONE_U32)->frame[SLOT_DOUT] = l->dout[OTHER];
}

void dp_cut_off_loss(Dp *d)
{
    Loss *l = &d->loss;
    l->block = d->b->blocks_n - 1;
    ASSERT(block_type(d->b, l->block)->has_loss);
    find_losses(d);
    make_loss_layouts(d);
    l->forward = without_loss(d, false);
    l->backward = without_loss(d, true);
    for (uint32_t r = 0; r < ROLES_N; r++) {
        l->whole[r] = r == HUB ? dp_frame_of(d, r, l->whole_layout) : NONE_U32;
        l->out[r] = dp_frame_of(d, r, l->out_layout);
        l->dout[r] = dp_frame_of(d, r, l->out_layout);
        l->data[r] = NONE_U32;
    }
    write_loss_phase(d);
}

/*
 * lower_loss.c - the loss of stacks that have no fused kernel for it.
 *
 *     plain            forward   [cast logits -> copy,] log-softmax -> logs, pick of the targets
 *                      backward  two kernels and [a cast] as the forward
 *     half_to_float    without these casts: the kernels beside them read and write 16 bits
 *     loss_in_place    forward   cast logits -> copy; in it: subtract the maximum, exp, divide
 *                                by the sum: 30 bytes a logit beside the statistics
 *                      backward  multiply in place, cast -> dlogits: 14 bytes
 *
 *     loss_copies      subtracts into another copy: 8 bytes a logit live at once
 *     metric_losses    the plain forward once more, so many times, after each backward
 *
 * The plain one is PyTorch's cross_entropy.  The other is Megatron-LM's
 * (mpu/cross_entropy.py, core/tensor_parallel/cross_entropy.py, _VocabParallelCrossEntropy):
 * one f32 tensor of logits is all that it ever holds.  Over tp the statistics are
 * ops of their own (sim/strategy/tensor.c); they read that copy, which here is made after them.
 */
#include "sim/lower_parts.h"

/* logits targets [maximum sums] -> loss logs */
static void loss_forward(Lowering *l, const Whole *w)
{
    KernelArg loss = w->args[w->args_n - 2], logs = w->args[w->args_n - 1];
    KernelArg logits = w->args[0];
    if (!l->b->sw->half_to_float)
        logits = part_in(l, w, "f32 logits", logits, part_dtype(l, logs));
    part_begin(l, w, OP_CROSS_ENTROPY, FN_NONE);
    part_arg(l, logits, ARG_READ);
    for (uint32_t i = 2; i < w->args_n - 2; i++)
        part_arg(l, w->args[i], ARG_READ);
    part_arg(l, logs, ARG_WRITE);
    uint64_t rows = lower_bytes(l, w->args[1]); /* one number is picked per row */
    part_begin(l, w, OP_CROSS_ENTROPY, FN_NONE);
    part_bytes_arg(l, logs, ARG_READ, rows);
    part_arg(l, w->args[1], ARG_READ);
    part_arg(l, loss, ARG_WRITE);
}

/* logs targets [maximum sums] -> dlogits */
static void loss_backward(Lowering *l, const Whole *w)
{
    KernelArg logs = w->args[0], dlogits = w->args[w->args_n - 1];
    KernelArg dlogs = part_temp(l, "log softmax gradient", logs, part_dtype(l, logs));
    bool casts = part_dtype(l, logs) != part_dtype(l, dlogits) && !l->b->sw->half_to_float;
    KernelArg to =
        casts ? part_temp(l, "f32 logits gradient", logs, part_dtype(l, logs)) : dlogits;
    part_begin(l, w, OP_CROSS_ENTROPY, FN_NONE);
    for (uint32_t i = 1; i + 1 < w->args_n; i++)
        part_arg(l, w->args[i], ARG_READ);
    part_arg(l, dlogs, ARG_WRITE);
    part_begin(l, w, OP_CROSS_ENTROPY, FN_NONE);
    part_arg(l, dlogs, ARG_READ);
    part_arg(l, logs, ARG_READ);
    part_arg(l, to, ARG_WRITE);
    if (casts)
        part_cast(l, w, to, dlogits, ARG_WRITE);
}

/* ---- in place ---- */

/* A pass over all elements. */
static void pass(Lowering *l, const Whole *w, KernelArg x, ArgMode mode)
{
    Op *op = part_begin(l, w, mode == ARG_READ ? OP_CROSS_ENTROPY : OP_SCALE, FN_NONE);
    op->dtype = part_dtype(l, x);
    if (mode != ARG_READ)
        op->u.elements = lower_bytes(l, x) / dtype_bytes(op->dtype);
    part_arg(l, x, mode);
}

/* The maximum, into another copy. */
static void subtract(Lowering *l, const Whole *w, KernelArg logits, KernelArg to)
{
    Op *op = part_begin(l, w, OP_SCALE, FN_NONE);
    op->dtype = part_dtype(l, to);
    op->u.elements = lower_bytes(l, to) / dtype_bytes(op->dtype);
    part_arg(l, logits, ARG_READ);
    part_arg(l, to, ARG_WRITE);
}

/* logits targets [maximum sums] -> loss softmax */
static void in_place_forward(Lowering *l, const Whole *w)
{
    KernelArg loss = w->args[w->args_n - 2], softmax = w->args[w->args_n - 1];
    bool alone = w->args_n == 4; /* no statistics yet */
    uint64_t rows = lower_bytes(l, w->args[1]);
    bool copies = l->b->sw->loss_copies;
    KernelArg first = softmax;
    if (copies)
        first = part_temp(l, "f32 logits", softmax, part_dtype(l, softmax));
    part_cast(l, w, w->args[0], first, ARG_WRITE);
    if (alone)
        pass(l, w, first, ARG_READ);
    if (copies)
        subtract(l, w, first, softmax);
    else
        pass(l, w, softmax, ARG_UPDATE);
    pass(l, w, softmax, ARG_UPDATE);
    if (alone)
        pass(l, w, softmax, ARG_READ);
    pass(l, w, softmax, ARG_UPDATE);
    part_begin(l, w, OP_CROSS_ENTROPY, FN_NONE);
    part_bytes_arg(l, softmax, ARG_READ, rows);
    for (uint32_t i = 1; i < w->args_n - 2; i++)
        part_arg(l, w->args[i], ARG_READ);
    part_arg(l, loss, ARG_WRITE);
    if (copies) /* the caller's until forward ends */
        lower_arg(l, first.slot, first.tensor, ARG_READ);
}

/* softmax targets [maximum sums] -> dlogits */
static void in_place_backward(Lowering *l, const Whole *w)
{
    KernelArg softmax = w->args[0], dlogits = w->args[w->args_n - 1];
    uint64_t rows = lower_bytes(l, w->args[1]);
    part_begin(l, w, OP_CROSS_ENTROPY, FN_NONE); /* less 1 at the targets */
    part_bytes_arg(l, softmax, ARG_UPDATE, rows);
    for (uint32_t i = 1; i + 1 < w->args_n; i++)
        part_arg(l, w->args[i], ARG_READ);
    pass(l, w, softmax, ARG_UPDATE);
    part_cast(l, w, softmax, dlogits, ARG_WRITE);
}

/* ---- for metrics ---- */

/*
 * PyTorch's cross_entropy of logits that have outlived the backward pass; without gradients.  Here
 * the logits come to life once more: that they were held meanwhile is left out.  With pipelines
 * these kernels run on the first stage, not on the last (the only stack with them, Composer, has no
 * pipelines).
 */
void metric_losses(Lowering *l, const Whole *w, uint64_t vocab)
{
    if (l->b->sw->metric_losses == 0)
        return;
    uint64_t rows = w->op.u.rows.rows;
    Whole m = *w;
    m.op.name = l->name_metrics;
    m.op.dtype = DTYPE_F32;
    KernelArg kept = lower_temp(l, "logits", act_dtype(&l->b->s->training), rows, vocab);
    for (uint32_t i = 0; i < l->b->sw->metric_losses; i++) {
        KernelArg logits = part_in(l, &m, "f32 logits", kept, DTYPE_F32);
        KernelArg logs = lower_temp(l, "log softmax", DTYPE_F32, rows, vocab);
        m.op.u.rows.columns = vocab;
        part_begin(l, &m, OP_CROSS_ENTROPY, FN_NONE);
        part_arg(l, logits, ARG_READ);
        part_arg(l, logs, ARG_WRITE);
        m.op.u.rows.columns = 1; /* one number is picked per row */
        part_begin(l, &m, OP_CROSS_ENTROPY, FN_NONE);
        part_bytes_arg(l, logs, ARG_READ, rows * dtype_bytes(DTYPE_F32));
    }
}

/* ---- either ---- */

/* Statistics of the rows (over tp) are one kernel each. */
static bool statistics(Lowering *l, const Whole *w)
{
    Op *op = &lower_kernel(l, w->op)->op;
    for (uint32_t i = 0; i < w->args_n; i++)
        lower_arg(l, w->args[i].slot, w->args[i].tensor, w->args[i].mode);
    if (l->b->sw->f32_logits)
        op->read_bytes +=
            lower_bytes(l, w->args[0]) * 4 / dtype_bytes(part_dtype(l, w->args[0])) -
            lower_bytes(l, w->args[0]);
    return true;
}

/* A fused loss is one kernel. */
bool loss_expand(Lowering *l, const Whole *w)
{
    const Software *sw = l->b->sw;
    if (w->op.kind != OP_CROSS_ENTROPY || sw->fused_cross_entropy)
        return false;
    bool backward = op_is_backward(&w->op), in_place = sw->loss_in_place;
    uint64_t kept = w->args_n >= 4 ? lower_bytes(l, w->args[w->args_n - 1]) : 0;
    if (!backward && (w->args_n < 4 || kept < lower_bytes(l, w->args[0])))
        return in_place && statistics(l, w);
    if (backward)
        (in_place ? in_place_backward : loss_backward)(l, w);
    else
        (in_place ? in_place_forward : loss_forward)(l, w);
    return true;
}

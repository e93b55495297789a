/*
 * lower_autocast.c - torch.autocast in eager mode: casts of biases, and of what becomes of them.
 *
 *     bias, or a matmul with one    cast b -> b in 16 bits, then as before
 *     bias gradient                 dy -> db in 16 bits, cast -> db
 *     input of a matmul in parts    a cast for each of them (TapeValue.copies)
 *     weight of one                 likewise, of its rows; so its gradient, from 16 bits
 *
 * Weights have their casts in the graph (TapeOp.cast): those are large, and may be kept.
 */
#include "sim/lower_parts.h"

#include <string.h>

static bool is_wide(const Lowering *l, const Whole *w, uint32_t i, Slot slot)
{
    return w->args[i].slot == slot && part_dtype(l, w->args[i]) == DTYPE_F32;
}

static KernelArg narrow_temp(Lowering *l, const char *name, KernelArg like)
{
    return part_temp(l, name, like, act_dtype(&l->b->s->training));
}

/* i: the bias among the arguments. */
static bool narrow_bias(Lowering *l, const Whole *w, uint32_t i)
{
    if (i >= w->args_n || !is_wide(l, w, i, SLOT_PARAM))
        return false;
    KernelArg temp = narrow_temp(l, "bias in 16 bits", w->args[i]);
    temp.mode = ARG_READ;
    part_cast(l, w, w->args[i], temp, ARG_WRITE);
    Op *op = &lower_kernel(l, w->op)->op;
    op->read_bytes -= lower_bytes(l, w->args[i]) - lower_bytes(l, temp);
    part_args_but(l, w, i, temp);
    return true;
}

static bool widen_gradient(Lowering *l, const Whole *w)
{
    if (!is_wide(l, w, 1, SLOT_GRAD))
        return false;
    KernelArg db = w->args[1], temp = narrow_temp(l, "bias gradient", db);
    part_begin(l, w, OP_BIAS, FN_NONE);
    part_arg(l, w->args[0], ARG_READ);
    part_arg(l, temp, ARG_WRITE);
    part_cast(l, w, temp, db, db.mode);
    return true;
}

/* x -> as many copies of it in 16 bits as y has room for. */
static bool cast_copies(Lowering *l, const Whole *w)
{
    KernelArg x = w->args[0], y = w->args[1];
    uint64_t once = w->op.u.elements * dtype_bytes(part_dtype(l, y)), all = lower_bytes(l, y);
    for (uint64_t done = 0; all > once && done < all; done += once) {
        part_begin(l, w, OP_CAST, FN_NONE);
        part_arg(l, x, ARG_READ);
        part_bytes_arg(l, y, ARG_WRITE, once);
    }
    return all > once;
}

/* q, k and v, or gate and up, are weights of their own where they are matmuls of their own. */
static bool cast_parts(Lowering *l, const Whole *w, const char *matmul)
{
    KernelArg x = w->args[0], y = w->args[1];
    uint64_t columns[PARTS_MAX], rows = lower_tensor(l, x.slot, x.tensor)->dims[0];
    uint32_t n = parts_named(l, matmul, rows, columns);
    for (uint32_t i = 0; i < n; i++) {
        part_begin(l, w, OP_CAST, FN_NONE)->u.elements = w->op.u.elements / rows * columns[i];
        part_bytes_arg(l, x, ARG_READ, lower_bytes(l, x) / rows * columns[i]);
        part_bytes_arg(l, y, ARG_WRITE, lower_bytes(l, y) / rows * columns[i]);
    }
    return n > 0;
}

/* The matmul whose weight is cast, by the name that tape_cast_weights gives; NULL: another's. */
static const char *cast_for(Lowering *l, const Whole *w, char *space, size_t size)
{
    const char *name = intern_text(&l->g->names, w->op.name),
               *end = strstr(name, ".weight in ");
    if (w->args[0].slot != SLOT_PARAM || !end || (size_t)(end - name) >= size)
        return NULL;
    memcpy(space, name, (size_t)(end - name));
    space[end - name] = '\0';
    return space;
}

static bool expand_cast(Lowering *l, const Whole *w)
{
    char space[64];
    if (w->args_n != 2 || w->args[1].mode != ARG_WRITE)
        return false;
    if (w->op.phase == PHASE_WGRAD && w->args[1].slot == SLOT_GRAD)
        return cast_parts(l, w, intern_text(&l->g->names, w->op.name));
    const char *matmul = cast_for(l, w, space, sizeof space);
    if (matmul)
        return cast_parts(l, w, matmul);
    return !op_is_backward(&w->op) && cast_copies(l, w);
}

bool autocast_expand(Lowering *l, const Whole *w)
{
    const Op *op = &w->op;
    bool biased = op->fn == FN_BIAS || op->fn == FN_BIAS_GELU || op->fn == FN_BIAS_RELU;
    if (op->kind == OP_MATMUL && biased && !op_is_backward(op))
        return narrow_bias(l, w, 2);
    if (op->kind == OP_CAST)
        return expand_cast(l, w);
    if (op->kind != OP_BIAS)
        return false;
    return op->phase == PHASE_WGRAD ? widen_gradient(l, w) : narrow_bias(l, w, 1);
}

/*
 * lower_fp8.c - fp8 scaled by what is cast (fp8_dynamic): torchao's Float8Linear, and
 * Transformer Engine's current scaling.
 *
 *     op                    eager                  compiled
 *     cast of x or dy       largest number, cast   cast: the kernel that made it has sought it
 *     matmul, forward       cast of the weight, which is read twice; matmul
 *             dgrad, again  the same               the weight is read once: its scale is kept
 *
 * Weights so only where the stack keeps them in f32 (f32_params: torchao); elsewhere they are
 * fp8 already, as the optimizer leaves them.  (That fsdp gathers them so is left out: it gathers
 * 16 bits.)
 *
 * Where scales are those of earlier steps (Transformer Engine's delayed scaling), whoever
 * makes a tensor casts it (sim/lower_merge.c), and a weight is cast once a step: nothing here
 * (its copies are counted, see Software.fp8_weight_copies; the cast itself, 0.4 % of a step of
 * llama3-8b, is not).
 */
#include "sim/lower_parts.h"

bool fp8_is_dynamic(const Lowering *l)
{
    return l->b->sw->fp8_dynamic && l->b->s->training.precision == DTYPE_FP8;
}

/* Before x is cast; compiled, the kernel that made it has sought it. */
static bool scale_cast(Lowering *l, const Whole *w)
{
    if (w->op.kind != OP_CAST || w->op.dtype != DTYPE_FP8 || l->b->s->training.compiled)
        return false;
    KernelArg scale = lower_temp(l, "fp8 scale", DTYPE_F32, 1, 1);
    Op *op = part_begin(l, w, OP_CAST, FN_NONE);
    op->u.elements = w->op.u.elements;
    part_arg(l, w->args[0], ARG_READ);
    part_arg(l, scale, ARG_WRITE);
    op = part_begin(l, w, OP_CAST, FN_NONE);
    op->u.elements = w->op.u.elements;
    part_arg(l, w->args[0], ARG_READ);
    part_arg(l, scale, ARG_READ);
    part_arg(l, w->args[1], ARG_WRITE);
    return true;
}

/* A weight is read for its scale and again to be cast; compiled, backward has kept the scale. */
static bool cast_weight(Lowering *l, const Whole *w)
{
    const MatmulShape *s = &w->op.u.matmul;
    if (w->op.kind != OP_MATMUL || w->op.dtype != DTYPE_FP8 || w->op.phase == PHASE_WGRAD ||
        !l->b->sw->f32_params)
        return false;
    uint64_t elements = s->n * s->k * max_u64(s->batch, 1);
    uint64_t wide = elements * dtype_bytes(part_dtype(l, w->args[1]));
    bool knows = l->b->s->training.compiled && w->op.phase != PHASE_FORWARD;
    KernelArg weight =
        lower_temp(l, "weight in fp8", DTYPE_FP8, s->n * max_u64(s->batch, 1), s->k);
    Op *op = part_begin(l, w, OP_CAST, FN_NONE);
    op->u.elements = elements;
    part_bytes_arg(l, w->args[1], ARG_READ, (knows ? 1 : 2) * wide);
    part_arg(l, weight, ARG_WRITE);
    lower_kernel(l, w->op);
    weight.mode = ARG_READ;
    part_args_but(l, w, 1, weight);
    return true;
}

bool fp8_expand(Lowering *l, const Whole *w)
{
    return scale_cast(l, w) || cast_weight(l, w);
}

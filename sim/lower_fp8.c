/*
 * lower_fp8.c - fp8: tensors scaled by what is cast, and the transposes that matmuls want.
 *
 * SCALES (fp8_dynamic): torchao's Float8Linear, and Transformer Engine's current scaling.
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
 * Where scales are those of earlier steps (Transformer Engine's delayed scaling), norms, and what a
 * compiler makes, are written in fp8 (sim/lower_merge.c), and a weight is cast once a step: nothing
 * here (its copies are counted, see Software.fp8_weight_copies; the cast itself, 0.4 % of a step of
 * llama3-8b, is not).
 *
 * TRANSPOSES (fp8_transposes).  Matmuls in fp8 of Hopper and Ada read both operands along the sum
 * (cublasLtMatmul: "A must be transposed and B non-transposed"), so that of a weight's gradient
 * wants x and dy transposed:
 *
 *     made by         cast: it writes both (fp8_cast_transpose_fused)
 *                     norm: another kernel, behind it
 *     gathered (tp)   neither; another kernel, before the matmul
 *
 * The transpose lives no longer than that kernel here: Transformer Engine keeps one of the two.
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

/* ---- transposes ---- */

bool fp8_transposes(const Lowering *l)
{
    if (!l->b->sw->fp8_transposes || l->b->s->training.precision != DTYPE_FP8)
        return false;
    const Machine *m = &l->b->s->machine;
    /* One program for all nodes: of several kinds the one that takes longer. */
    bool some = false;
    for (uint32_t i = 0; i < m->types_n; i++) {
        GpuGeneration g = m->types[i].gpu->generation;
        some = some || g == GPU_HOPPER || g == GPU_ADA;
    }
    return some;
}

/* Does a collective of the segment gather x (write it), or x with what others have (read it)? */
static bool is_gathered(const Lowering *l, KernelArg x, ArgMode mode)
{
    for (uint32_t i = 0; i < l->s->op_n; i++)
        for (uint32_t a = 0; l->ops[i].kind == OP_ALL_GATHER && a < l->ops[i].arg_n; a++) {
            const Arg *arg = &l->old->args[l->ops[i].arg_first + a];
            if (arg->slot == (uint8_t)x.slot && arg->tensor == x.tensor && arg->mode == mode)
                return true;
        }
    return false;
}

static KernelArg transposed(Lowering *l, KernelArg x)
{
    return part_temp(l, "fp8 transposed", x, DTYPE_FP8);
}

static void transpose(Lowering *l, const Whole *w, KernelArg x)
{
    KernelArg to = transposed(l, x);
    Op *op = part_begin(l, w, OP_COPY, FN_NONE);
    op->dtype = DTYPE_FP8;
    op->u.elements = lower_bytes(l, x);
    part_arg(l, x, ARG_READ);
    part_arg(l, to, ARG_WRITE);
}

/* Is it a result in fp8 that matmuls read as it is, not gathered first? */
static bool is_for_two(const Lowering *l, const KernelArg *y)
{
    return y->mode == ARG_WRITE && part_dtype(l, *y) == DTYPE_FP8 &&
           !is_gathered(l, *y, ARG_READ);
}

/* A cast writes both. */
static bool cast_both(Lowering *l, const Whole *w)
{
    if (w->op.kind != OP_CAST || !is_for_two(l, &w->args[w->args_n - 1]))
        return false;
    KernelArg to = transposed(l, w->args[w->args_n - 1]);
    part_whole(l, w);
    part_arg(l, to, ARG_WRITE);
    return true;
}

static bool transpose_norm(Lowering *l, const Whole *w)
{
    uint32_t i = 0;
    while (i < w->args_n && !is_for_two(l, &w->args[i]))
        i++;
    if (w->op.kind != OP_NORM || i == w->args_n)
        return false;
    part_whole(l, w);
    transpose(l, w, w->args[i]);
    return true;
}

static bool transpose_gathered(Lowering *l, const Whole *w)
{
    bool any = false;
    if (w->op.kind != OP_MATMUL || w->op.phase != PHASE_WGRAD || w->op.dtype != DTYPE_FP8)
        return false;
    for (uint32_t i = 0; i < 2; i++)
        if (is_gathered(l, w->args[i], ARG_WRITE)) {
            transpose(l, w, w->args[i]);
            any = true;
        }
    if (any)
        part_whole(l, w);
    return any;
}

bool fp8_scale(Lowering *l, const Whole *w)
{
    return scale_cast(l, w) || cast_weight(l, w);
}

bool fp8_transpose(Lowering *l, const Whole *w)
{
    return cast_both(l, w) || transpose_norm(l, w) || transpose_gathered(l, w);
}

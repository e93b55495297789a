/*
 * lower_merge.c - what stacks fuse: two neighbours become one kernel.
 *
 *     fact                  logical ops                    kernel
 *     fused_bias            matmul, bias                   matmul, fn bias
 *                           ... , gelu or relu             matmul, fn bias_gelu ...
 *                           wgrad, bias gradient           matmul, fn bias
 *     addmm                 matmul, bias                   matmul, fn bias
 *     fused_elementwise     bias, activation               activation with a bias
 *                           bias, residual add             add with a bias
 *                           [bias,] dropout, residual add  add with a bias and a mask
 *                           norm or activation, cast       the same, result in fp8 or 16 bits
 *     fused_residual_norm   add (with a bias), norm        norm, fn add_layernorm ...
 *                           norm backward, gradient sum    norm, fn add_layernorm ...
 *                           norm or sum, cast              the same, two results
 *     fused_rope            rope, attention                attention
 *                           attention backward, rope       attention
 *
 * A merged kernel moves what its ops moved, less what now stays on the chip: the
 * values that pass from one to the other.
 */
#include "sim/lower_parts.h"

typedef struct Pair {
    Lowering *l;
    Kernel *k;       /* what the group is so far */
    const Op *next;  /* the op after it */
    const Arg *args; /* of next */
} Pair;

static KernelArg arg_of(const Pair *p, uint32_t i)
{
    return p->l->args[p->k->arg_first + i];
}

static KernelArg next_arg(const Pair *p, uint32_t i)
{
    ASSERT(i < p->next->arg_n);
    return (KernelArg){ (Slot)p->args[i].slot, p->args[i].tensor, (ArgMode)p->args[i].mode };
}

static bool same(KernelArg a, KernelArg b)
{
    return a.slot == b.slot && a.tensor == b.tensor;
}

/* New args for the merged kernel; what it had stands in the way no longer. */
static void set_args(Pair *p, const KernelArg *args, uint32_t n)
{
    p->l->args_n = p->k->arg_first;
    p->k->arg_n = 0;
    for (uint32_t i = 0; i < n; i++)
        lower_arg(p->l, args[i].slot, args[i].tensor, args[i].mode);
}

/* Does the first argument of next die there, and was it made inside the group? */
static bool stays_inside(const Pair *p, uint32_t i)
{
    if (!p->args[i].dies)
        return false;
    for (uint32_t o = p->l->begin; o < p->l->begin + p->l->n; o++)
        for (uint32_t a = 0; a < p->l->ops[o].arg_n; a++) {
            const Arg *arg = &p->l->old->args[p->l->ops[o].arg_first + a];
            if (arg->slot == p->args[i].slot && arg->tensor == p->args[i].tensor && arg->born)
                return true;
        }
    return false;
}

/* Adds the work of next, which reads its i-th argument on the chip. */
static void add_work(Pair *p, uint32_t i, bool gone)
{
    Op *op = &p->k->op;
    uint64_t bytes = lower_bytes(p->l, next_arg(p, i));
    op->flops += p->next->flops;
    op->model_flops += p->next->model_flops;
    op->read_bytes += p->next->read_bytes - bytes;
    op->write_bytes += p->next->write_bytes;
    if (p->args[i].mode == ARG_UPDATE || gone)
        op->write_bytes -= bytes;
}

/* ---- the rules: true when merged ---- */

static bool matmul_bias(Pair *p)
{
    const Software *sw = p->l->b->sw;
    if (!(sw->fused_bias || sw->addmm) || p->k->op.kind != OP_MATMUL ||
        p->next->kind != OP_BIAS || p->k->op.fn != FN_NONE || op_is_backward(p->next))
        return false;
    KernelArg y = arg_of(p, 2);
    if (p->k->arg_n != 3 || !same(y, next_arg(p, 0)))
        return false;
    KernelArg args[] = { arg_of(p, 0), arg_of(p, 1), next_arg(p, 1), y };
    add_work(p, 0, false);
    set_args(p, args, 4);
    p->k->op.fn = FN_BIAS;
    return true;
}

/* cuBLASLt has gelu and relu epilogues; the input of gelu is kept where backward needs it. */
static bool matmul_activation(Pair *p)
{
    Op *op = &p->k->op;
    bool gelu = p->next->fn == FN_GELU, relu = p->next->fn == FN_RELU;
    if (!p->l->b->sw->fused_bias || op->kind != OP_MATMUL || p->next->kind != OP_ACTIVATION ||
        op_is_backward(p->next) || !(gelu || relu) || !(op->fn == FN_NONE || op->fn == FN_BIAS))
        return false;
    uint32_t last = p->k->arg_n - 1;
    KernelArg pre = arg_of(p, last);
    if (p->next->arg_n != 2 || !same(pre, next_arg(p, 0)))
        return false;
    bool gone = stays_inside(p, 0);
    KernelArg args[5];
    uint32_t n = 0;
    for (uint32_t i = 0; i < last + !gone; i++)
        args[n++] = arg_of(p, i);
    args[n++] = next_arg(p, 1);
    add_work(p, 0, gone);
    set_args(p, args, n);
    if (op->fn == FN_BIAS)
        op->fn = gelu ? FN_BIAS_GELU : FN_BIAS_RELU;
    else
        op->fn = p->next->fn;
    return true;
}

/* A norm whose result is wanted in fp8 alone writes fp8, where its scale is known before it is
 * (Transformer Engine); what a compiler makes of an activation does, too.  So with the 16 bits of
 * torch.autocast. */
static bool cast_result(Pair *p)
{
    bool compiled = p->l->fusion.norms || p->next->dtype != DTYPE_FP8;
    bool makes = p->k->op.kind == OP_NORM || (p->k->op.kind == OP_ACTIVATION && compiled);
    if (!p->l->fusion.elementwise || p->l->fusion.norm_chain || p->l->fusion.gelu_chain ||
        !makes || fp8_is_dynamic(p->l) || op_is_backward(&p->k->op) ||
        p->next->kind != OP_CAST || !stays_inside(p, 0))
        return false;
    KernelArg args[12];
    uint32_t n = p->k->arg_n;
    bool found = false;
    ASSERT(n <= ARRAY_N(args));
    for (uint32_t i = 0; i < n; i++) {
        bool result = arg_of(p, i).mode == ARG_WRITE && same(arg_of(p, i), next_arg(p, 0));
        args[i] = result ? next_arg(p, 1) : arg_of(p, i);
        found = found || result;
    }
    if (!found)
        return false;
    add_work(p, 0, true);
    set_args(p, args, n);
    return true;
}

/* dy x -> dw, with dy -> db: cuBLASLt's BGRADB. */
static bool wgrad_bias(Pair *p)
{
    if (!p->l->b->sw->fused_bias || p->k->op.kind != OP_MATMUL ||
        p->k->op.phase != PHASE_WGRAD || p->next->kind != OP_BIAS ||
        p->next->phase != PHASE_WGRAD || p->k->arg_n != 3 ||
        !same(arg_of(p, 0), next_arg(p, 0)))
        return false;
    KernelArg args[] = { arg_of(p, 0), arg_of(p, 1), arg_of(p, 2), next_arg(p, 1) };
    add_work(p, 0, false);
    set_args(p, args, 4);
    p->k->op.fn = FN_BIAS;
    return true;
}

/* The kernel becomes what next is, with a bias before its output. */
static void become_next(Pair *p)
{
    Op op = *p->next;
    op.read_bytes = p->k->op.read_bytes;
    op.write_bytes = p->k->op.write_bytes;
    op.flops = p->k->op.flops;
    op.model_flops = p->k->op.model_flops;
    p->k->op = op;
}

/* x b -> y.  The sum x + b is not written back: backward adds b again, as Megatron's bias_gelu. */
static bool bias_activation(Pair *p)
{
    if (!p->l->fusion.elementwise || p->l->fusion.gelu_chain || p->k->op.kind != OP_BIAS ||
        op_is_backward(&p->k->op) || p->next->kind != OP_ACTIVATION ||
        !same(arg_of(p, 0), next_arg(p, 0)))
        return false;
    KernelArg args[4] = { next_arg(p, 0), arg_of(p, 1) };
    uint32_t n = 2;
    for (uint32_t i = 1; i < p->next->arg_n; i++)
        args[n++] = next_arg(p, i);
    add_work(p, 0, true);
    set_args(p, args, n);
    become_next(p);
    return true;
}

/* r* b, then x r -> y: the biased r is not written back. */
static bool bias_add(Pair *p)
{
    if (!p->l->fusion.elementwise || p->k->op.kind != OP_BIAS || op_is_backward(&p->k->op) ||
        p->next->kind != OP_ADD || p->next->arg_n != 3 || !p->args[1].dies ||
        !same(arg_of(p, 0), next_arg(p, 1)))
        return false;
    KernelArg r = next_arg(p, 1);
    KernelArg args[] = { next_arg(p, 0), r, arg_of(p, 1), next_arg(p, 2) };
    add_work(p, 1, true);
    set_args(p, args, 4);
    become_next(p);
    return true;
}

/* y* b, then y* -> mask: dropout takes the bias along. */
static bool bias_dropout(Pair *p)
{
    if (!p->l->fusion.elementwise || p->k->op.kind != OP_BIAS || op_is_backward(&p->k->op) ||
        p->next->kind != OP_SCALE || p->next->arg_n != 2 || !same(arg_of(p, 0), next_arg(p, 0)))
        return false;
    KernelArg args[] = { arg_of(p, 0), arg_of(p, 1), next_arg(p, 1) };
    add_work(p, 0, false);
    set_args(p, args, 3);
    become_next(p);
    return true;
}

/* r* [b] -> mask, then x r -> y: Megatron's bias_dropout_add. */
static bool dropout_add(Pair *p)
{
    if (!p->l->fusion.elementwise || p->k->op.kind != OP_SCALE || op_is_backward(&p->k->op) ||
        p->next->kind != OP_ADD || p->next->arg_n != 3 || !p->args[1].dies ||
        !same(arg_of(p, 0), next_arg(p, 1)))
        return false;
    KernelArg args[5] = { next_arg(p, 0), next_arg(p, 1) };
    uint32_t n = 2, mask = p->k->arg_n - 1;
    for (uint32_t i = 1; i < mask; i++)
        args[n++] = arg_of(p, i);
    args[n++] = next_arg(p, 2);
    args[n++] = arg_of(p, mask);
    add_work(p, 1, true);
    set_args(p, args, n);
    become_next(p);
    return true;
}

static OpFn add_norm_fn(OpFn fn)
{
    return fn == FN_RMSNORM ? FN_ADD_RMSNORM : FN_ADD_LAYERNORM;
}

/* x r [b] -> s, then s [gain [shift]] -> y stats. */
static bool add_norm(Pair *p)
{
    uint32_t out = p->k->arg_n - 1;
    if (!p->l->fusion.norms || p->k->op.kind != OP_ADD || p->next->kind != OP_NORM ||
        op_is_backward(p->next) || !same(arg_of(p, out), next_arg(p, 0)))
        return false;
    KernelArg args[10];
    uint32_t n = 0;
    bool gone = stays_inside(p, 0);
    ASSERT(out + p->next->arg_n < ARRAY_N(args));
    for (uint32_t i = 0; i < out; i++)
        args[n++] = arg_of(p, i);
    uint32_t results = p->next->arg_n - 2;
    for (uint32_t i = 1; i < results; i++)
        args[n++] = next_arg(p, i);
    if (!gone)
        args[n++] = arg_of(p, out);
    args[n++] = next_arg(p, results);
    args[n++] = next_arg(p, results + 1);
    add_work(p, 0, gone);
    set_args(p, args, n);
    become_next(p);
    p->k->op.fn = add_norm_fn(p->next->fn);
    return true;
}

/* dy x stats [gain] -> dx ..., then dx* ds: the kernel reads ds and writes the sum. */
static bool norm_sum(Pair *p)
{
    Op *op = &p->k->op;
    if (!p->l->fusion.norms || op->kind != OP_NORM || op->phase != PHASE_DGRAD ||
        p->next->kind != OP_ADD || p->next->arg_n != 2 || p->args[0].mode != ARG_UPDATE)
        return false;
    KernelArg args[12];
    uint32_t n = 0;
    ASSERT(p->k->arg_n < ARRAY_N(args));
    for (uint32_t i = 0; i < p->k->arg_n; i++) {
        if (same(arg_of(p, i), next_arg(p, 0)))
            args[n++] = next_arg(p, 1);
        args[n++] = arg_of(p, i);
    }
    if (n == p->k->arg_n)
        return false;
    add_work(p, 0, false);
    set_args(p, args, n);
    op->fn = add_norm_fn(op->fn);
    return true;
}

/* torch.autocast: what is wanted in 16 bits too is written so as well. */
static bool cast_beside(Pair *p)
{
    bool makes = p->k->op.kind == OP_NORM || p->k->op.kind == OP_ADD;
    if (!p->l->fusion.norms || !makes || p->next->kind != OP_CAST ||
        p->next->dtype == DTYPE_FP8)
        return false;
    KernelArg args[12];
    uint32_t n = p->k->arg_n;
    bool found = false;
    ASSERT(n < ARRAY_N(args));
    for (uint32_t i = 0; i < n; i++) {
        args[i] = arg_of(p, i);
        found = found || (args[i].mode != ARG_READ && same(args[i], next_arg(p, 0)));
    }
    if (!found)
        return false;
    args[n] = next_arg(p, 1);
    add_work(p, 0, false);
    set_args(p, args, n + 1);
    return true;
}

/* The rotation happens on the way in, and backward on the way out: no traffic of its own. */
static bool rope_attention(Pair *p)
{
    if (!p->l->b->sw->fused_rope || p->k->op.kind != OP_ROPE || p->next->kind != OP_ATTENTION ||
        op_is_backward(p->next))
        return false;
    KernelArg args[6];
    ASSERT(p->next->arg_n <= ARRAY_N(args));
    for (uint32_t i = 0; i < p->next->arg_n; i++)
        args[i] = next_arg(p, i);
    set_args(p, args, p->next->arg_n);
    p->k->op = *p->next;
    return true;
}

static bool attention_rope(Pair *p)
{
    return p->l->b->sw->fused_rope && p->k->op.kind == OP_ATTENTION &&
           p->next->kind == OP_ROPE && op_is_backward(p->next);
}

bool lower_may_merge(const Op *op)
{
    switch (op->kind) {
    case OP_MATMUL:
    case OP_ATTENTION:
    case OP_NORM:
    case OP_ACTIVATION:
    case OP_ADD:
    case OP_BIAS:
    case OP_ROPE:
    case OP_SCALE:
        return true;
    default:
        return false;
    }
}

bool lower_merge(Lowering *l, const Op *next)
{
    typedef bool Rule(Pair * p);
    static Rule *const rules[] = {
        matmul_bias,    matmul_activation, wgrad_bias,  bias_activation, bias_add,
        bias_dropout,   dropout_add,       add_norm,    norm_sum,        rope_attention,
        attention_rope, cast_result,       cast_beside,
    };
    Pair p = { l, &l->kernels[0], next, l->old->args + next->arg_first };
    if (next->lane != p.k->op.lane)
        return false;
    for (size_t i = 0; i < ARRAY_N(rules); i++)
        if (rules[i](&p))
            return true;
    return false;
}

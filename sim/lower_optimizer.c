/*
 * lower_optimizer.c - the update as torch.optim writes it where no fused kernel does it all, and
 * what else a stack does to gradients and parameters in kernels of their own.
 *
 *     AdamW      p *= 1 - lr wd;  m = lerp(m, g);  v *= b2;  v += (1 - b2) g g;
 *                t = sqrt(v);  t /= c;  t += eps;  p -= s m / t       80 bytes an element in f32
 *     Adam       the same without the first                           72
 *     momentum   m *= mu;  m += g;  p -= lr m                         32
 *     SGD        p -= lr g                                            12
 *
 * (torch/optim/adam.py, adamw.py, sgd.py: _single_tensor_* and _multi_tensor_*; a fused AdamW
 * moves 28.)  Each is a kernel, for every parameter tensor or, foreach_optimizer, over all of
 * a block.  Master weights take the place of p, and are copied to it.  Decay in Adam and SGD,
 * which add it to g, is left out, as is a second pass for m before lerp (PyTorch 2.0), and
 * foreach's memory: it holds t for all parameters at once, here one block's is alive.
 *
 * PASSES (kernels.optimizer_passes), in bytes an element of gradients of g bytes; of what this rank
 * updates, the first three of all gradients:
 *
 *     zero_grads     g        buffer.zero_() before the step; here after it
 *     check_grads    g        is every number finite?
 *     average_grads  2 g      buffer /= replicas before they are summed; here behind that
 *     main_grads     g + 4    16-bit gradients to f32, which the others then work on (g = 4)
 *     unscale        2 g      f16: times 1 / loss scale, and is every number finite?
 *     norm, clip     g, 2 g   the second only acts where the norm is above the limit, as it is
 *                             when training begins; its all-reduce is training.grad_clip's
 *     copy_params    4 + 2    master weights to parameters, which the update then writes not
 *
 * (megatron/optimizer/optimizer.py and model/distributed.py, later core/optimizer/optimizer.py,
 * clip_grads.py and distributed/param_and_grad_buffer.py.)  Main gradients live as long as their
 * block is updated; Megatron holds those of all at once.
 */
#include "sim/lower_parts.h"

typedef enum Operand { GRAD, WEIGHT, FIRST, SECOND, TEMP, COPY, MAIN, OPERAND_N } Operand;

enum { G = 1 << GRAD, P = 1 << WEIGHT, M = 1 << FIRST, V = 1 << SECOND, T = 1 << TEMP };

/* Sets of operands; what is read and written is updated. */
typedef struct Pass {
    uint32_t reads, writes;
} Pass;

static const Pass adam_passes[] = {
    { P, P }, { M | G, M }, { V, V }, { V | G, V },
    { V, T }, { T, T },     { T, T }, { P | M | T, P },
};
static const Pass momentum_passes[] = { { M, M }, { M | G, M }, { P | M, P } };
static const Pass sgd_passes[] = { { P | G, P } };
static const Pass copy_pass = { P, 1 << COPY };
static const Pass main_pass = { G, 1 << MAIN }, read_pass = { G, 0 }, scale_pass = { G, G };

typedef struct Formula {
    const Pass *passes;
    uint32_t passes_n, moments_n;
} Formula;

static Formula formula_of(OpFn fn)
{
    switch (fn) {
    case FN_ADAMW:
        return (Formula){ adam_passes, ARRAY_N(adam_passes), 2 };
    case FN_ADAM:
        return (Formula){ adam_passes + 1, ARRAY_N(adam_passes) - 1, 2 };
    case FN_MOMENTUM:
        return (Formula){ momentum_passes, ARRAY_N(momentum_passes), 1 };
    default:
        return (Formula){ sgd_passes, ARRAY_N(sgd_passes), 0 };
    }
}

/* grads, states, params: n of each kind that the layouts hold, and tensors [begin, end) of them
 * that a kernel updates. */
typedef struct Update {
    const Whole *w;
    uint32_t n, states_n, begin, end;
    uint64_t elements; /* of these */
    bool master;
    Operand grad; /* GRAD, or the f32 copies of them */
    KernelArg temp, main;
} Update;

static KernelArg operand(const Update *u, Operand o, uint32_t i)
{
    const KernelArg *states = u->w->args + u->n + i * u->states_n;
    KernelArg param = u->w->args[u->n * (1 + u->states_n) + i];
    switch (o) {
    case GRAD:
        return u->w->args[i];
    case FIRST:
        return states[0];
    case SECOND:
        return states[1];
    case TEMP:
        return u->temp;
    case MAIN:
        return u->main;
    case WEIGHT:
        return u->master ? states[u->states_n - 1] : param;
    default:
        return param;
    }
}

/* An argument of the newest kernel; of the tensors a rank may update but a part. */
static void play_operand(Lowering *l, const Update *u, Operand o, ArgMode mode)
{
    uint32_t end = o == TEMP || o == MAIN ? u->begin + 1 : u->end;
    uint64_t bytes = u->elements * dtype_bytes(part_dtype(l, operand(u, o, u->begin)));
    for (uint32_t i = u->begin; i < end; i++) {
        KernelArg a = operand(u, o, i);
        lower_arg(l, a.slot, a.tensor, mode);
    }
    Op *op = &l->kernels[l->kernels_n - 1].op;
    op->read_bytes += mode != ARG_WRITE ? bytes : 0;
    op->write_bytes += mode != ARG_READ ? bytes : 0;
}

static void play_pass(Lowering *l, const Update *u, const Pass *pass, double flops)
{
    Op *op = part_begin(l, u->w, OP_OPTIMIZER, u->w->op.fn);
    op->u.elements = u->elements;
    op->flops = flops;
    for (uint32_t o = 0; o < OPERAND_N; o++) {
        bool reads = pass->reads >> o & 1, writes = pass->writes >> o & 1;
        if (reads || writes)
            play_operand(l, u, o == GRAD ? u->grad : (Operand)o,
                         !writes ? ARG_READ
                         : reads ? ARG_UPDATE
                                 : ARG_WRITE);
    }
}

static void play_update(Lowering *l, Update *u, uint64_t bytes, uint64_t all_bytes)
{
    const Op *op = &u->w->op;
    Formula f = formula_of(op->fn);
    double part = (double)bytes / (double)all_bytes;
    u->elements = (uint64_t)((double)op->u.elements * part + 0.5);
    if (f.moments_n == 2) {
        DType dtype = part_dtype(l, operand(u, SECOND, u->begin));
        u->temp = lower_temp(l, "optimizer temporary", dtype, u->elements, 1);
    }
    double flops = op->flops * part / f.passes_n;
    for (uint32_t i = 0; i < f.passes_n; i++)
        play_pass(l, u, &f.passes[i], flops);
    if (u->master)
        play_pass(l, u, &copy_pass, 0);
}

/* One kernel; parameters are written by it unless they are copied behind it. */
static void play_fused(Lowering *l, const Update *u)
{
    uint32_t moments = formula_of(u->w->op.fn).moments_n;
    uint32_t state = P | (moments > 0 ? M : 0) | (moments > 1 ? V : 0);
    bool copies = u->master && l->b->sw->copies_params;
    Pass all = { G | state, state | (u->master && !copies ? 1u << COPY : 0) };
    play_pass(l, u, &all, u->w->op.flops);
    if (copies)
        play_pass(l, u, &copy_pass, 0);
}

/* ---- passes ---- */

static bool has_passes(const Software *sw)
{
    return sw->zeroes_grads || sw->checks_grads || sw->averages_grads || sw->copies_grads ||
           sw->unscales_grads || sw->norms_grads || sw->clips_grads || sw->copies_params;
}

/* Over all gradients, whatever this rank updates of them. */
static void play_whole(Lowering *l, const Update *u, ArgMode mode)
{
    uint64_t bytes = 0;
    part_begin(l, u->w, OP_OPTIMIZER, u->w->op.fn);
    for (uint32_t i = 0; i < u->n; i++) {
        KernelArg a = u->w->args[i];
        bytes += lower_bytes(l, a);
        lower_arg(l, a.slot, a.tensor, mode);
    }
    Op *op = &l->kernels[l->kernels_n - 1].op;
    op->u.elements = bytes / dtype_bytes(part_dtype(l, u->w->args[0]));
    op->read_bytes = mode != ARG_WRITE ? bytes : 0;
    op->write_bytes = mode != ARG_READ ? bytes : 0;
}

static void play_passes(Lowering *l, Update *u)
{
    const Software *sw = l->b->sw;
    const Scenario *s = l->b->s;
    if (sw->checks_grads)
        play_whole(l, u, ARG_READ);
    if (sw->averages_grads && s->parallel.dp * s->parallel.cp > 1)
        play_whole(l, u, ARG_UPDATE);
    if (sw->copies_grads && dtype_bytes(part_dtype(l, u->w->args[0])) < 4) {
        u->main = lower_temp(l, "f32 gradients", DTYPE_F32, u->elements, 1);
        play_pass(l, u, &main_pass, 0);
        u->grad = MAIN;
    }
    if (sw->unscales_grads && s->training.precision == DTYPE_F16)
        play_pass(l, u, &scale_pass, 0);
    bool whole = zero_sums_whole(l->b);
    bool clips = !s->training.grad_clip_set || s->training.grad_clip > 0;
    if (sw->norms_grads && clips)
        whole ? play_whole(l, u, ARG_READ) : play_pass(l, u, &read_pass, 0);
    if (sw->clips_grads && clips)
        whole ? play_whole(l, u, ARG_UPDATE) : play_pass(l, u, &scale_pass, 0);
}

bool optimizer_expand(Lowering *l, const Whole *w)
{
    const Software *sw = l->b->sw;
    if (w->op.kind != OP_OPTIMIZER || (sw->fused_optimizer && !has_passes(sw)))
        return false;
    Update u = { .w = w, .grad = GRAD, .elements = w->op.u.elements };
    uint64_t all = 0, bytes = 0;
    while (u.n < w->args_n && w->args[u.n].slot == w->args[0].slot)
        all += lower_bytes(l, w->args[u.n++]);
    u.states_n = (w->args_n - 2 * u.n) / (u.n ? u.n : 1);
    if (u.n == 0 || w->args_n != (2 + u.states_n) * u.n)
        return false;
    u.master = u.states_n > formula_of(w->op.fn).moments_n;
    u.end = u.n;
    play_passes(l, &u);
    if (sw->fused_optimizer)
        play_fused(l, &u);
    for (u.begin = sw->fused_optimizer ? u.n : 0; u.begin < u.n; u.begin = u.end, bytes = 0) {
        u.end = sw->foreach_optimizer ? u.n : u.begin + 1;
        for (uint32_t i = u.begin; i < u.end; i++)
            bytes += lower_bytes(l, w->args[i]);
        play_update(l, &u, bytes, all);
    }
    if (sw->zeroes_grads)
        play_whole(l, &u, ARG_WRITE);
    return true;
}

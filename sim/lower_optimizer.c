/*
 * lower_optimizer.c - the update as torch.optim writes it where no fused kernel does it all.
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
 */
#include "sim/lower_parts.h"

typedef enum Operand { GRAD, WEIGHT, FIRST, SECOND, TEMP, COPY, OPERAND_N } Operand;

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
    KernelArg temp;
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
    case WEIGHT:
        return u->master ? states[u->states_n - 1] : param;
    default:
        return param;
    }
}

/* An argument of the newest kernel; of the tensors a rank may update but a part. */
static void play_operand(Lowering *l, const Update *u, Operand o, ArgMode mode)
{
    uint32_t end = o == TEMP ? u->begin + 1 : u->end;
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
            play_operand(l, u, (Operand)o, !writes ? ARG_READ : reads ? ARG_UPDATE : ARG_WRITE);
    }
}

static void play_update(Lowering *l, Update *u, uint64_t bytes, uint64_t all_bytes)
{
    const Op *op = &u->w->op;
    Formula f = formula_of(op->fn);
    double part = (double)bytes / (double)all_bytes;
    u->elements = (uint64_t)((double)op->u.elements * part + 0.5);
    if (f.moments_n == 2)
        u->temp = lower_temp(l, "optimizer temporary", DTYPE_F32, u->elements, 1);
    double flops = op->flops * part / f.passes_n;
    for (uint32_t i = 0; i < f.passes_n; i++)
        play_pass(l, u, &f.passes[i], flops);
    if (u->master)
        play_pass(l, u, &copy_pass, 0);
}

bool optimizer_expand(Lowering *l, const Whole *w)
{
    const Software *sw = l->b->sw;
    if (w->op.kind != OP_OPTIMIZER || sw->fused_optimizer)
        return false;
    Update u = { .w = w };
    uint64_t all = 0, bytes = 0;
    while (u.n < w->args_n && w->args[u.n].slot == w->args[0].slot)
        all += lower_bytes(l, w->args[u.n++]);
    u.states_n = (w->args_n - 2 * u.n) / (u.n ? u.n : 1);
    if (u.n == 0 || w->args_n != (2 + u.states_n) * u.n)
        return false;
    u.master = u.states_n > formula_of(w->op.fn).moments_n;
    for (u.begin = 0; u.begin < u.n; u.begin = u.end, bytes = 0) {
        u.end = sw->foreach_optimizer ? u.n : u.begin + 1;
        for (uint32_t i = u.begin; i < u.end; i++)
            bytes += lower_bytes(l, w->args[i]);
        play_update(l, &u, bytes, all);
    }
    return true;
}

/*
 * lower_expand.c - what stacks do in several kernels where the mathematics has one op.
 *
 *     fact missing          logical op              kernels
 *     fused_qkv             matmul "attention.qkv"  three matmuls: q, k, v
 *     fused_gate_up         matmul "mlp.gate_up"    two matmuls: gate, up
 *     fused_gated           gated activation        act(gate), product; backward three
 *     accumulates_wgrads    wgrad that adds         matmul into a temporary, add
 *                           (f32_params,            ..., cast into another, add
 *                           bf16_grads_f32)
 *                           (f32_grads)             into 16 bits, added as they are
 *     (fused_attention, softmax_chain, attention_copies, repeats_kv: sim/lower_attention.c)
 *     (fused_cross_entropy: sim/lower_loss.c; fused_optimizer: sim/lower_optimizer.c)
 *     (cp_ring: sim/lower_ring.c; parallel.sync_batchnorm: sim/lower_batchnorm.c)
 *     (norm_chain, rope_chain, gelu_new_chain: sim/lower_chain.c; fp8_dynamic: sim/lower_fp8.c;
 *     f32_params in eager mode: sim/lower_autocast.c)
 *     (always)              embedding backward      fill with zeros, scatter-add;
 *                                                   metric_losses: those too (sim/lower_loss.c)
 *     (table_grad_apart)    ... that adds           into a temporary, add; positions and token
 *                                                   types, which are small, in one kernel
 *
 * The flops of the parts add up to those of the op; so does the traffic of what
 * they share out, and each part reads its own operands.
 */
#include "sim/lower_parts.h"

#include <stdlib.h>
#include <string.h>

void part_bytes_arg(Lowering *l, KernelArg a, ArgMode mode, uint64_t bytes)
{
    lower_arg(l, a.slot, a.tensor, mode);
    Op *op = &l->kernels[l->kernels_n - 1].op;
    op->read_bytes += mode != ARG_WRITE ? bytes : 0;
    op->write_bytes += mode != ARG_READ ? bytes : 0;
}

void part_arg(Lowering *l, KernelArg a, ArgMode mode)
{
    part_bytes_arg(l, a, mode, lower_bytes(l, a));
}

Op *part_begin(Lowering *l, const Whole *w, OpKind kind, OpFn fn)
{
    Op op = w->op;
    op.kind = kind;
    op.fn = fn;
    op.flops = op.model_flops = 0;
    op.read_bytes = op.write_bytes = 0;
    return &lower_kernel(l, op)->op;
}

void part_args_but(Lowering *l, const Whole *w, uint32_t i, KernelArg other)
{
    for (uint32_t k = 0; k < w->args_n; k++) {
        KernelArg a = k == i ? other : w->args[k];
        lower_arg(l, a.slot, a.tensor, a.mode);
    }
}

void part_whole(Lowering *l, const Whole *w)
{
    lower_kernel(l, w->op);
    for (uint32_t a = 0; a < w->args_n; a++)
        lower_arg(l, w->args[a].slot, w->args[a].tensor, w->args[a].mode);
}

void part_cast(Lowering *l, const Whole *w, KernelArg from, KernelArg to, ArgMode mode)
{
    Op *op = part_begin(l, w, OP_CAST, FN_NONE);
    op->dtype = part_dtype(l, to);
    op->u.elements = lower_bytes(l, from) / dtype_bytes(part_dtype(l, from));
    part_arg(l, from, ARG_READ);
    part_arg(l, to, mode);
}

KernelArg part_temp(Lowering *l, const char *name, KernelArg like, DType dtype)
{
    const Tensor *t = lower_tensor(l, like.slot, like.tensor);
    return lower_temp(l, name, dtype, t->dims[0], t->dims[1]);
}

KernelArg part_in(Lowering *l, const Whole *w, const char *name, KernelArg x, DType dtype)
{
    if (part_dtype(l, x) == dtype)
        return x;
    KernelArg to = part_temp(l, name, x, dtype);
    part_cast(l, w, x, to, ARG_WRITE);
    return to;
}

DType part_dtype(const Lowering *l, KernelArg a)
{
    return lower_tensor(l, a.slot, a.tensor)->dtype;
}

/* bytes: of `to` that something is added to; `from` may have another type. */
static void add_sum(Lowering *l, const Whole *w, KernelArg to, KernelArg from, uint64_t bytes)
{
    DType dtype = part_dtype(l, to);
    uint64_t elements = bytes / dtype_bytes(dtype);
    Op *op = part_begin(l, w, OP_ADD, FN_NONE);
    op->dtype = dtype;
    op->u.elements = elements;
    part_bytes_arg(l, to, ARG_UPDATE, bytes);
    part_bytes_arg(l, from, ARG_READ, elements * dtype_bytes(part_dtype(l, from)));
}

/* ---- matmuls ---- */

/* Of a gradient those bytes that the matmul makes: split_outputs shares it out. */
static uint64_t made_bytes(const Lowering *l, const Whole *w, KernelArg dw)
{
    const MatmulShape *s = &w->op.u.matmul;
    uint64_t all = lower_bytes(l, dw);
    if (w->op.kind != OP_MATMUL)
        return all;
    return min_u64(all, s->m * s->n * max_u64(s->batch, 1) * dtype_bytes(part_dtype(l, dw)));
}

/* Gradients that the matmul cannot add to: into a temporary, then added. */
static void accumulate_apart(Lowering *l, const Whole *w)
{
    KernelArg dw = w->args[2];
    const Tensor *t = lower_tensor(l, dw.slot, dw.tensor);
    uint64_t bytes = made_bytes(l, w, dw), row = max_u64(t->dims[1], 1) * dtype_bytes(t->dtype);
    KernelArg temp = lower_temp(l, "weight gradient", t->dtype, bytes / row, t->dims[1]);
    Op *op = &lower_kernel(l, w->op)->op;
    op->u.matmul.accumulate = false;
    ASSERT(op->read_bytes >= bytes);
    op->read_bytes -= bytes;
    temp.mode = ARG_WRITE;
    part_args_but(l, w, 2, temp);
    add_sum(l, w, dw, temp, bytes);
}

uint32_t parts_named(const Lowering *l, const char *matmul, uint64_t all,
                     uint64_t columns[PARTS_MAX])
{
    if (l->b->s->model.kind != MODEL_TRANSFORMER)
        return 0;
    uint32_t n = matmul_parts(l->b, matmul);
    const Transformer *m = &l->b->s->model.u.transformer;
    columns[0] = n == 3 ? (uint64_t)m->heads / l->b->s->parallel.tp * m->head_dim : all / n;
    for (uint32_t i = 1; i < n; i++)
        columns[i] = (all - columns[0]) / (n - 1);
    return n > 1 ? n : 0;
}

/* Columns of the parts of a matmul that the stack splits; 0 when it is whole. */
static uint32_t parts_of(const Lowering *l, const Op *op, uint64_t *columns)
{
    if (op->kind != OP_MATMUL)
        return 0;
    const MatmulShape *s = &op->u.matmul;
    uint64_t all = op->phase == PHASE_DGRAD ? s->k : op->phase == PHASE_WGRAD ? s->m : s->n;
    return parts_named(l, intern_text(&l->g->names, op->name), all, columns);
}

static uint64_t part(uint64_t bytes, uint64_t columns, uint64_t all)
{
    return (uint64_t)((double)bytes * (double)columns / (double)all);
}

/* x w -> gate up */
static bool has_two_results(const Whole *w)
{
    return w->op.phase == PHASE_FORWARD && w->args_n == 4 && w->args[2].mode == ARG_WRITE &&
           w->args[3].mode == ARG_WRITE;
}

/* Forward: C in columns.  wgrad: C in rows.  Each part reads the other operand whole, or the copy
 * that was made for it. */
static void split_outputs(Lowering *l, const Whole *w, uint32_t k, uint64_t n, uint64_t all)
{
    bool wgrad = w->op.phase == PHASE_WGRAD;
    uint32_t whole = wgrad ? 1 : 0; /* the argument that every part reads whole */
    Op *op = &lower_kernel(l, w->op)->op;
    *(wgrad ? &op->u.matmul.m : &op->u.matmul.n) = n;
    op->flops = w->op.flops * (double)n / (double)all;
    op->model_flops = w->op.model_flops * (double)n / (double)all;
    op->read_bytes = op->write_bytes = 0;
    bool two = has_two_results(w);
    const MatmulShape *s = &w->op.u.matmul;
    uint64_t operand = (wgrad ? s->n : s->m) * s->k * max_u64(s->batch, 1) *
                       dtype_bytes(part_dtype(l, w->args[whole]));
    for (uint32_t i = 0; i < (two ? 2 : w->args_n); i++) {
        uint64_t bytes = lower_bytes(l, w->args[i]);
        part_bytes_arg(l, w->args[i], w->args[i].mode,
                       i == whole ? min_u64(bytes, operand) : part(bytes, n, all));
    }
    if (two)
        part_arg(l, w->args[2 + k], ARG_WRITE);
}

/* torch.autocast casts what each part gives back to f32 before it is added. */
static void add_part(Lowering *l, const Whole *w, KernelArg dx, KernelArg from)
{
    KernelArg added = from;
    if (l->casts) {
        added = part_temp(l, "gradient in f32", from, DTYPE_F32);
        part_cast(l, w, from, added, ARG_WRITE);
    }
    add_sum(l, w, dx, added, lower_bytes(l, dx));
}

/* dx is a sum over the columns: the parts after the first are added. */
static void split_inputs(Lowering *l, const Whole *w, uint64_t k, uint64_t all, bool first)
{
    KernelArg dx = w->args[2], to = dx;
    if (!first)
        to = part_temp(l, "gradient", dx, part_dtype(l, dx));
    Op *op = &lower_kernel(l, w->op)->op;
    op->u.matmul.k = k;
    op->flops = w->op.flops * (double)k / (double)all;
    op->model_flops = w->op.model_flops * (double)k / (double)all;
    op->read_bytes = op->write_bytes = 0;
    for (uint32_t i = 0; i < 2; i++)
        part_bytes_arg(l, w->args[i], ARG_READ, part(lower_bytes(l, w->args[i]), k, all));
    part_arg(l, to, ARG_WRITE);
    if (!first)
        add_part(l, w, dx, to);
}

static bool expand_parts(Lowering *l, const Whole *w)
{
    uint64_t columns[PARTS_MAX], all = 0;
    uint32_t n = parts_of(l, &w->op, columns);
    for (uint32_t i = 0; i < n; i++)
        all += columns[i];
    for (uint32_t i = 0; i < n; i++) {
        if (w->op.phase == PHASE_DGRAD)
            split_inputs(l, w, columns[i], all, i == 0);
        else
            split_outputs(l, w, i, columns[i], all);
    }
    return n > 0;
}

/* A gradient made in 16 bits is added as it is, or cast, as autograd does for an f32 parameter,
 * then added. */
static void accumulate_cast(Lowering *l, const Whole *w)
{
    KernelArg from = w->args[0], dw = w->args[1];
    if (!l->b->sw->f32_params && !l->b->sw->bf16_grads_f32) {
        add_sum(l, w, dw, from, lower_bytes(l, dw));
        return;
    }
    KernelArg temp = part_temp(l, "gradient in f32", dw, part_dtype(l, dw));
    part_cast(l, w, from, temp, ARG_WRITE);
    add_sum(l, w, dw, temp, lower_bytes(l, dw));
}

/* ---- chains of elementwise kernels ---- */

static bool expand_chain(Lowering *l, const Whole *w)
{
    if (w->op.kind == OP_ROPE && l->fusion.rope_chain) {
        chain_rope(l, w);
        return true;
    }
    if (w->op.kind == OP_ACTIVATION && w->op.fn == FN_GELU && l->fusion.gelu_chain) {
        (op_is_backward(&w->op) ? chain_gelu_backward : chain_gelu_forward)(l, w);
        return true;
    }
    if (w->op.kind != OP_NORM || w->op.fn != FN_RMSNORM || !l->fusion.norm_chain)
        return false;
    /* x gains -> y stats x32 [normed];  dy stats x32 [normed gain] -> dx gains */
    bool backward = op_is_backward(&w->op);
    uint32_t gains = 0;
    for (uint32_t i = 0; i < w->args_n; i++)
        gains += w->args[i].slot == (backward ? SLOT_GRAD : SLOT_PARAM);
    if (backward)
        chain_norm_backward(l, w, gains);
    else
        chain_norm_forward(l, w, gains);
    return true;
}

/* ---- gated activations: x is gate and up, each half of it, or two arguments ---- */

static OpFn gate_fn(OpFn fn)
{
    return fn == FN_GATED_SILU ? FN_SILU : FN_GELU;
}

/* x [b] -> y act(gate);  gate up -> y act(gate) */
static void gated_forward(Lowering *l, const Whole *w)
{
    bool apart = w->args_n == 4 && w->args[1].slot != SLOT_PARAM;
    KernelArg x = w->args[0], up = w->args[apart ? 1 : 0];
    KernelArg y = w->args[w->args_n - 2], gate = w->args[w->args_n - 1];
    uint64_t half = lower_bytes(l, x) / (apart ? 1 : 2);
    part_begin(l, w, OP_ACTIVATION, gate_fn(w->op.fn));
    part_bytes_arg(l, x, ARG_READ, half);
    if (w->args_n == 4 && !apart)
        part_arg(l, w->args[1], ARG_READ);
    part_arg(l, gate, ARG_WRITE);
    part_begin(l, w, OP_ACTIVATION, FN_NONE);
    part_arg(l, gate, ARG_READ);
    part_bytes_arg(l, up, ARG_READ, half);
    part_arg(l, y, ARG_WRITE);
}

/* dy x act(gate) -> dx;  dy gate up act(gate) -> dx */
static void gated_backward(Lowering *l, const Whole *w)
{
    bool apart = w->args_n == 5;
    KernelArg dy = w->args[0], x = w->args[1], up = w->args[apart ? 2 : 1];
    KernelArg gate = w->args[w->args_n - 2], dx = w->args[w->args_n - 1];
    uint64_t half = lower_bytes(l, x) / (apart ? 1 : 2);
    KernelArg dgate = part_temp(l, "gate gradient", dy, part_dtype(l, dy));
    part_begin(l, w, OP_ACTIVATION, FN_NONE);
    part_arg(l, dy, ARG_READ);
    part_arg(l, gate, ARG_READ);
    part_bytes_arg(l, dx, ARG_WRITE, half);
    part_begin(l, w, OP_ACTIVATION, FN_NONE);
    part_arg(l, dy, ARG_READ);
    part_bytes_arg(l, up, ARG_READ, half);
    part_arg(l, dgate, ARG_WRITE);
    part_begin(l, w, OP_ACTIVATION, gate_fn(w->op.fn));
    part_arg(l, dgate, ARG_READ);
    part_bytes_arg(l, x, ARG_READ, half);
    part_bytes_arg(l, dx, ARG_WRITE, half);
}

/* Where act(gate) is among the arguments, the stack keeps it: it has two kernels. */
static bool expand_gated(Lowering *l, const Whole *w)
{
    bool gated = w->op.fn == FN_GATED_GELU || w->op.fn == FN_GATED_SILU;
    if (w->op.kind != OP_ACTIVATION || !gated || l->fusion.gated)
        return false;
    if (op_is_backward(&w->op))
        gated_backward(l, w);
    else
        gated_forward(l, w);
    return true;
}

/* ---- embedding backward: dy tokens -> dtable ---- */

static void scatter(Lowering *l, const Whole *w, KernelArg to)
{
    uint64_t rows = lower_bytes(l, w->args[0]);
    Op *op = part_begin(l, w, OP_EMBEDDING, FN_NONE);
    op->u.rows = w->op.u.rows;
    part_arg(l, w->args[0], ARG_READ);
    part_arg(l, w->args[1], ARG_READ);
    part_bytes_arg(l, to, ARG_UPDATE, rows);
}

static void fill(Lowering *l, const Whole *w, KernelArg to)
{
    const Tensor *t = lower_tensor(l, to.slot, to.tensor);
    Op *op = part_begin(l, w, OP_FILL, FN_NONE);
    op->dtype = t->dtype;
    op->u.elements = t->bytes / dtype_bytes(t->dtype);
    part_arg(l, to, ARG_WRITE);
}

static bool accumulates(const Lowering *l)
{
    return accumulates_wgrads(&l->b->s->parallel, l->b->sw);
}

static bool expand_embedding(Lowering *l, const Whole *w)
{
    if (w->op.kind != OP_EMBEDDING || !op_is_backward(&w->op) || w->args_n != 3)
        return false;
    KernelArg dtable = w->args[2];
    bool adds = dtable.mode == ARG_UPDATE;
    bool apart = !accumulates(l) || l->b->sw->table_grad_apart;
    KernelArg to = dtable;
    DType dtype = part_dtype(l, build_formats(l->b).casts ? dtable : w->args[0]);
    if (adds && apart)
        to = part_temp(l, "table gradient", dtable, dtype);
    if (!adds || to.slot == SLOT_LOCAL)
        fill(l, w, to);
    scatter(l, w, to);
    if (to.slot == SLOT_LOCAL)
        add_sum(l, w, dtable, to, lower_bytes(l, dtable));
    metric_losses(l, w, lower_tensor(l, dtable.slot, dtable.tensor)->dims[0]);
    return true;
}

/* ---- all of them ---- */

static bool take_apart(Lowering *l, const Whole *w)
{
    typedef bool Rule(Lowering * l, const Whole *w);
    static Rule *const rules[] = { expand_parts,      attention_expand, attention_layouts,
                                   attention_repeats, expand_gated,     loss_expand,
                                   expand_embedding,  optimizer_expand, expand_chain,
                                   ring_expand,       sync_batchnorm };
    for (size_t i = 0; i < ARRAY_N(rules); i++)
        if (rules[i](l, w))
            return true;
    return false;
}

/* Runs f on every kernel; those it leaves alone stay as they are.  True when it changed one. */
static bool each_kernel(Lowering *l, bool (*f)(Lowering *l, const Whole *w))
{
    uint32_t kernels_n = l->kernels_n, args_n = l->args_n;
    Kernel *kernels = mem_zero(kernels_n, sizeof *kernels);
    KernelArg *args = mem_zero(args_n + 1, sizeof *args);
    bool changed = false;
    memcpy(kernels, l->kernels, kernels_n * sizeof *kernels);
    memcpy(args, l->args, args_n * sizeof *args);
    l->kernels_n = l->args_n = 0;
    for (uint32_t k = 0; k < kernels_n; k++) {
        Whole w = { kernels[k].op, kernels[k].arg_n, args + kernels[k].arg_first };
        if (f(l, &w)) {
            changed = true;
            continue;
        }
        part_whole(l, &w);
    }
    free(kernels);
    free(args);
    return changed;
}

static bool add_apart(Lowering *l, const Whole *w)
{
    const Op *op = &w->op;
    if (op->phase != PHASE_WGRAD)
        return false;
    if ((op->kind == OP_MATMUL || op->kind == OP_CONV) && op->u.matmul.accumulate)
        accumulate_apart(l, w);
    else if (op->kind == OP_CAST && w->args[1].mode == ARG_UPDATE)
        accumulate_cast(l, w);
    else
        return false;
    return true;
}

bool lower_may_expand(const Lowering *l, const Op *op)
{
    switch (op->kind) {
    case OP_MATMUL:
    case OP_CONV:
    case OP_ATTENTION:
    case OP_ACTIVATION:
    case OP_CROSS_ENTROPY:
    case OP_EMBEDDING:
    case OP_OPTIMIZER:
    case OP_NORM:
    case OP_ROPE:
    case OP_BATCHNORM:
        return true;
    case OP_CAST:
        return op->dtype == DTYPE_FP8 || op->phase == PHASE_WGRAD || l->casts;
    case OP_BIAS:
        return l->casts;
    case OP_COPY:
        return l->b->sw->repeats_kv;
    case OP_ALL_GATHER:
    case OP_REDUCE_SCATTER:
        return op->lane == LANE_CP || (op->lane == LANE_TP && l->b->sw->tp_ring);
    default:
        return false;
    }
}

bool lower_expand(Lowering *l)
{
    if (!lower_may_expand(l, &l->kernels[0].op) || l->args_n == 0)
        return false;
    bool changed = fp8_is_dynamic(l) && each_kernel(l, fp8_scale);
    changed = (fp8_transposes(l) && each_kernel(l, fp8_transpose)) || changed;
    changed = (l->casts && each_kernel(l, autocast_expand)) || changed;
    changed = each_kernel(l, take_apart) || changed;
    if (!accumulates(l))
        changed = each_kernel(l, add_apart) || changed;
    return changed;
}

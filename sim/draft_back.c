/*
 * draft_back.c - playing a tape backward: one rule for each kind of op.
 *
 * The gradient of a value is a piece of memory; `grad` says which.  Ops such as
 * add hand the same memory on (an alias).  Where a value was read twice, the
 * second gradient to arrive takes the first one up:  dx2 += dx1  (OP_ADD).
 *
 * Gradients of parameters are played last of their op, and those of biases after
 * the matmul they follow in forward, so that a stack that sums the bias gradient
 * in the matmul's epilogue finds the two side by side:
 *
 *     forward    matmul  bias            backward   dgrad  wgrad  bias-grad
 *     async tp   [ag] matmul bias        backward   dgrad  [reduce-scatter]  wgrad  bias-grad
 */
#include "sim/draft.h"

#include <stdlib.h>

enum { HELD_MAX = 12, GRAD_KINDS = 4 };

typedef struct HeldOp {
    const char *name;
    Op op;
    uint32_t args_n;
    DraftArg args[3];
} HeldOp;

typedef struct Back {
    const Tape *t;
    Draft *d;
    const DraftPlan *plan;
    bool *redone;     /* by op */
    bool *recast;     /* by op: its weight */
    uint32_t *grad;   /* by value: memory, or NONE_U32 */
    bool *alias;      /* by value: its gradient is another value's as well */
    bool *wants_grad; /* by value */
    bool *has_grad;   /* by tensor of the parameters: an op before this one has written it */
    uint32_t held_n;
    HeldOp held[HELD_MAX];
} Back;

static uint32_t logical_of(const Back *b, const TapeOp *op, uint32_t kind)
{
    uint32_t i = (uint32_t)(op - b->t->ops);
    return b->t->ops_n + GRAD_KINDS * i + kind;
}

/* ---- what backward reads of forward ---- */

static void need_before(Back *b, uint32_t value, uint32_t end);
static void need_cast(Back *b, const TapeOp *op);

static Redo redo_of(const Back *b, uint32_t op)
{
    if (b->t->ops[op].again)
        return REDO_ALL;
    return b->plan->redo ? b->plan->redo[op] : REDO_NOTHING;
}

/* What was gathered for an op that is done again is given up, and gathered anew for backward. */
static void give_up_gathered(Back *b, const TapeOp *reader)
{
    for (uint32_t i = 0; i < b->t->ops_n; i++)
        for (uint32_t j = 0; j < reader->in_n && b->t->ops[i].again; j++)
            if (b->t->ops[i].out == reader->in[j])
                b->redone[i] = false;
}

static void redo(Back *b, uint32_t i)
{
    const TapeOp *op = &b->t->ops[i];
    if (b->redone[i])
        return;
    b->redone[i] = true;
    for (uint32_t j = 0; j < op->in_n; j++)
        need_before(b, op->in[j], i); /* ops in place that follow come later again */
    if (op->cast)
        need_cast(b, op);
    draft_play(b->d, b->t, i, PHASE_RECOMPUTE, b->plan);
    if (redo_of(b, i) != REDO_PART) /* torch keeps its input for the weight's gradient */
        give_up_gathered(b, op);
}

static bool plays(const TapeOp *op)
{
    return !op->idle && (!op->is_comm || op->forward != OP_KIND_N);
}

static bool is_aux(const TapeOp *op, uint32_t memory)
{
    for (uint32_t j = 0; j < op->aux_n; j++)
        if (op->aux[j] == memory)
            return true;
    return false;
}

static bool writes(const Tape *t, const TapeOp *op, uint32_t memory)
{
    return plays(op) && (is_aux(op, memory) || t->values[op->out].memory == memory);
}

/* Is a value made again by every op that had a hand in it? */
static bool comes_again(const Back *b, uint32_t memory)
{
    for (uint32_t i = 0; i < b->t->ops_n; i++) {
        const TapeOp *op = &b->t->ops[i];
        Redo redo = redo_of(b, i);
        if (writes(b->t, op, memory) && redo != REDO_ALL &&
            !(redo == REDO_AUX && is_aux(op, memory)))
            return false;
    }
    return true;
}

/* Of a value that is saved: columns that are not, or rope, which torch writes beside what it keeps
 * of a matmul (here both are one memory). */
static bool is_done_on_top(const Back *b, uint32_t op)
{
    Redo redo = redo_of(b, op);
    return redo == REDO_PART || (redo == REDO_ALL && b->t->ops[op].kind == OP_ROPE);
}

/* Makes the memory of a value readable as op `end` found it: played again, or saved. */
static void need_before(Back *b, uint32_t value, uint32_t end)
{
    uint32_t memory = b->t->values[value].memory;
    if (b->t->values[memory].home != VALUE_MADE)
        return;
    bool again = comes_again(b, memory);
    b->d->saved[memory] = b->d->saved[memory] || !again;
    for (uint32_t i = 0; i < end; i++)
        if (writes(b->t, &b->t->ops[i], memory) && (again || is_done_on_top(b, i)))
            redo(b, i);
}

static void need(Back *b, uint32_t value)
{
    need_before(b, value, b->t->ops_n);
}

/* The weight as op reads it: cast again, without the op (which early stopping may never come to),
 * or saved. */
static void need_cast(Back *b, const TapeOp *op)
{
    uint32_t i = (uint32_t)(op - b->t->ops);
    if (!b->plan->recasts && redo_of(b, i) != REDO_ALL)
        b->d->saved[op->cast] = true;
    else if (!b->recast[i])
        draft_cast(b->d, b->t, i, PHASE_RECOMPUTE, (1 + GRAD_KINDS) * b->t->ops_n + i);
    b->recast[i] = true;
}

/* ---- gradients ---- */

/* Gradients of what was cast to fp8 for a matmul are not themselves in fp8. */
static DType temp_dtype(const TapeValue *v)
{
    return v->dtype == DTYPE_FP8 ? DTYPE_BF16 : v->dtype;
}

static uint32_t temp_like(Back *b, uint32_t value)
{
    const TapeValue *v = &b->t->values[value];
    return draft_memory(b->d, (DraftMemory){ .name = "gradient",
                                             .dtype = temp_dtype(v),
                                             .rows = v->rows,
                                             .columns = v->columns });
}

static uint32_t param_grad(Back *b, uint32_t param)
{
    const TapeValue *v = &b->t->values[param];
    bool adds = v->adds || b->has_grad[v->tensor];
    b->has_grad[v->tensor] = true;
    return draft_memory(b->d, (DraftMemory){ .name = v->name,
                                             .dtype = b->plan->grad_dtype,
                                             .rows = v->rows,
                                             .columns = v->columns,
                                             .slot = SLOT_GRAD,
                                             .tensor = v->tensor,
                                             .adds = adds });
}

static void sum_gradients(Back *b, const TapeOp *op, uint32_t value, uint32_t memory,
                          bool alias)
{
    Op add = draft_kernel(op, PHASE_DGRAD, logical_of(b, op, 2));
    add.kind = OP_ADD;
    add.fn = FN_NONE;
    add.dtype = b->t->values[value].dtype;
    add.u.elements = value_elements(&b->t->values[value]);
    draft_op(b->d, "gradient sum", add);
    if (!alias) {
        draft_arg(b->d, memory, ARG_UPDATE);
        draft_arg(b->d, b->grad[value], ARG_READ);
    } else {
        draft_arg(b->d, memory, ARG_READ);
        draft_arg(b->d, b->grad[value], ARG_READ);
        memory = temp_like(b, value);
        draft_arg(b->d, memory, ARG_WRITE);
    }
    b->grad[value] = memory;
    b->alias[value] = false;
}

/* A kernel that casts the gradient `from` into `to`. */
static void cast_gradient(Back *b, const TapeOp *op, const char *name, uint32_t from,
                          uint32_t to)
{
    const DraftMemory *m = &b->d->memories[to];
    Op cast = draft_kernel(op, PHASE_DGRAD, logical_of(b, op, 3));
    cast.kind = OP_CAST;
    cast.fn = FN_NONE;
    cast.dtype = m->dtype;
    cast.u.elements = m->rows * m->columns;
    draft_op(b->d, name, cast);
    draft_arg(b->d, from, ARG_READ);
    draft_arg(b->d, to, ARG_WRITE);
}

/*
 * torch.autocast: the gradient of a value has its format.  A compiler leaves the cast to who reads
 * the gradient, but where matmuls do, which read 16 bits, or where it is to be added to.
 */
static uint32_t in_format_of(Back *b, const TapeOp *op, uint32_t value, uint32_t memory,
                             bool *alias)
{
    const TapeValue *v = &b->t->values[value];
    DType has = b->d->memories[memory].dtype;
    bool fuses = b->plan->fuses_casts && v->dtype == DTYPE_F32 && b->grad[value] == NONE_U32;
    if (!b->plan->casts || has == v->dtype || fuses)
        return memory;
    uint32_t to = temp_like(b, value);
    cast_gradient(b, op, "gradient cast", memory, to);
    *alias = false;
    return to;
}

static void contribute(Back *b, const TapeOp *op, uint32_t value, uint32_t memory, bool alias)
{
    if (!b->wants_grad[value])
        return;
    memory = in_format_of(b, op, value, memory, &alias);
    if (b->grad[value] != NONE_U32) {
        sum_gradients(b, op, value, memory, alias);
        return;
    }
    b->grad[value] = memory;
    b->alias[value] = alias;
}

/* ---- gradients of parameters wait for the end of their op ---- */

static void release_held(Back *b)
{
    for (uint32_t i = 0; i < b->held_n; i++) {
        draft_op(b->d, b->held[i].name, b->held[i].op);
        for (uint32_t a = 0; a < b->held[i].args_n; a++) {
            DraftArg arg = b->held[i].args[a];
            draft_arg_part(b->d, arg.memory, arg.mode, arg.bytes);
        }
    }
    b->held_n = 0;
}

static DraftArg whole(const Draft *d, uint32_t memory, ArgMode mode)
{
    return (DraftArg){ memory, mode, draft_bytes(d, memory) };
}

static HeldOp *hold(Back *b, uint32_t at, const TapeOp *op, Op kernel)
{
    ASSERT(b->held_n < HELD_MAX && at <= b->held_n);
    for (uint32_t i = b->held_n++; i > at; i--)
        b->held[i] = b->held[i - 1];
    b->held[at] = (HeldOp){ .name = op->name, .op = kernel };
    return &b->held[at];
}

/* ---- the rules ---- */

static uint32_t fp8_like(Back *b, uint32_t value)
{
    const TapeValue *v = &b->t->values[value];
    return draft_memory(b->d, (DraftMemory){ .name = "gradient in fp8",
                                             .dtype = DTYPE_FP8,
                                             .rows = v->rows,
                                             .columns = v->columns });
}

/* Both matmuls of backward read dy in fp8: it is cast once, unless it has come so. */
static uint32_t quantized(Back *b, const TapeOp *op, uint32_t dy)
{
    if (op->dtype != DTYPE_FP8 || b->d->memories[dy].dtype == DTYPE_FP8)
        return dy;
    uint32_t dy8 = fp8_like(b, op->out);
    cast_gradient(b, op, op->name, dy, dy8);
    return dy8;
}

/* The weight's gradient is made in 16 bits, then cast. */
static void hold_cast(Back *b, const TapeOp *op, HeldOp *wgrad)
{
    const TapeValue *w = &b->t->values[op->param[0]];
    uint32_t grad = wgrad->args[2].memory;
    uint32_t temp = draft_memory(b->d, (DraftMemory){ .name = "weight gradient",
                                                      .dtype = b->plan->made_dtype,
                                                      .rows = w->rows,
                                                      .columns = w->columns });
    wgrad->args[2] = whole(b->d, temp, ARG_WRITE);
    Op cast = draft_kernel(op, PHASE_WGRAD, logical_of(b, op, 3));
    cast.kind = OP_CAST;
    cast.dtype = b->plan->grad_dtype;
    cast.u.elements = value_elements(w);
    HeldOp *held = hold(b, 1, op, cast);
    held->args_n = 2;
    held->args[0] = whole(b->d, temp, ARG_READ);
    held->args[1] = whole(b->d, grad, ARG_WRITE);
}

static void back_matmul(Back *b, const TapeOp *op)
{
    uint32_t x = op->in[0], w = op->param[0];
    need(b, x);
    if (op->cast && b->wants_grad[x])
        need_cast(b, op);
    uint32_t dy = quantized(b, op, b->grad[op->out]);
    if (b->wants_grad[x]) {
        Op dgrad = draft_kernel(op, PHASE_DGRAD, logical_of(b, op, 0));
        draft_matmul_shape(&dgrad, b->t, op, PHASE_DGRAD);
        uint32_t dx = temp_like(b, x);
        draft_op(b->d, op->name, dgrad);
        draft_arg(b->d, dy, ARG_READ);
        draft_read_weight(b->d, b->t, op, 1);
        draft_arg(b->d, dx, ARG_WRITE);
        contribute(b, op, x, dx, false);
    }
    Op wgrad = draft_kernel(op, PHASE_WGRAD, logical_of(b, op, 1));
    draft_matmul_shape(&wgrad, b->t, op, PHASE_WGRAD);
    HeldOp *held = hold(b, 0, op, wgrad);
    held->args_n = 3;
    held->args[0] = whole(b->d, dy, ARG_READ);
    held->args[1] = whole(b->d, b->t->values[x].memory, ARG_READ);
    held->args[2] = whole(b->d, param_grad(b, w), ARG_WRITE);
    if (b->plan->made_dtype != b->plan->grad_dtype && op->dtype != DTYPE_F32)
        hold_cast(b, op, held);
    if (!b->plan->wgrad_last)
        release_held(b);
}

static void back_bias(Back *b, const TapeOp *op)
{
    const TapeValue *y = &b->t->values[op->out];
    uint32_t dy = b->grad[op->out];
    Op kernel = draft_kernel(op, PHASE_WGRAD, logical_of(b, op, 1));
    kernel.u.rows = (RowsShape){ y->rows, y->columns };
    HeldOp *held = hold(b, b->held_n, op, kernel);
    held->args_n = 2;
    held->args[0] = whole(b->d, dy, ARG_READ);
    held->args[1] = whole(b->d, param_grad(b, op->param[0]), ARG_WRITE);
    contribute(b, op, op->in[0], dy, b->alias[op->out]);
}

static Op rows_kernel(const Back *b, const TapeOp *op, uint32_t like)
{
    Op kernel = draft_kernel(op, PHASE_DGRAD, logical_of(b, op, 0));
    kernel.u.rows = (RowsShape){ b->t->values[like].rows, b->t->values[like].columns };
    return kernel;
}

static void write_param_grads(Back *b, const TapeOp *op)
{
    for (uint32_t j = 0; j < op->param_n; j++)
        draft_arg(b->d, param_grad(b, op->param[j]), ARG_WRITE);
}

/* Where a part of x's gradient goes: beside what is there, or into memory of its own. */
static uint32_t gradient_of(Back *b, const TapeOp *op, uint32_t x, bool *beside)
{
    *beside = op->slice && b->grad[x] != NONE_U32;
    ASSERT(!*beside || !b->alias[x]);
    return *beside ? b->grad[x] : temp_like(b, x);
}

/*
 * Norm and batch norm: the gradients of gain and shift come out of the same kernel.
 * A chain reads the f32 copy of x, not x, which is none where x is f32.
 */
static void back_norm(Back *b, const TapeOp *op)
{
    uint32_t x = op->in[0], y = op->out;
    bool reads = !op->chain || b->t->values[x].dtype == DTYPE_F32;
    if (reads)
        need(b, x);
    for (uint32_t j = 0; j < op->aux_n; j++)
        need(b, op->aux[j]);
    uint64_t bytes = value_bytes(&b->t->values[y]);
    bool beside;
    uint32_t dx = gradient_of(b, op, x, &beside);
    draft_op(b->d, op->name, rows_kernel(b, op, y));
    draft_arg(b->d, b->grad[y], ARG_READ);
    if (reads)
        draft_arg_part(b->d, b->t->values[x].memory, ARG_READ, bytes);
    for (uint32_t j = 0; j < op->aux_n; j++)
        draft_arg(b->d, op->aux[j], ARG_READ);
    if (op->param_n)
        draft_arg(b->d, op->param[0], ARG_READ);
    draft_arg_part(b->d, dx, ARG_WRITE, bytes);
    write_param_grads(b, op);
    if (!beside)
        contribute(b, op, x, dx, false);
}

/* Relu needs only its result, which the next op keeps anyway.  A chain that keeps a copy of x needs
 * not x. */
static void back_activation(Back *b, const TapeOp *op)
{
    uint32_t x = op->in[0], read = op->fn == FN_RELU ? op->out : x;
    bool copied = op->chain && b->t->values[op->aux[0]].dtype != b->t->values[x].dtype;
    if (!copied)
        need(b, read);
    for (uint32_t j = 0; j < op->aux_n; j++)
        need(b, op->aux[j]);
    uint32_t dx = temp_like(b, x);
    draft_op(b->d, op->name, rows_kernel(b, op, op->out));
    draft_arg(b->d, b->grad[op->out], ARG_READ);
    if (!copied)
        draft_arg(b->d, b->t->values[read].memory, ARG_READ);
    for (uint32_t j = 0; j < op->aux_n; j++)
        draft_arg(b->d, op->aux[j], ARG_READ);
    draft_arg(b->d, dx, ARG_WRITE);
    contribute(b, op, x, dx, false);
}

static void back_add(Back *b, const TapeOp *op)
{
    uint32_t dy = b->grad[op->out];
    contribute(b, op, op->in[0], dy, true);
    contribute(b, op, op->in[1], dy, true);
}

/* The gradient goes past the op. */
static void back_past(Back *b, const TapeOp *op)
{
    contribute(b, op, op->in[0], b->grad[op->out], b->alias[op->out]);
}

static void back_rope(Back *b, const TapeOp *op)
{
    uint32_t dy = b->grad[op->out];
    if (op->idle) {
        back_past(b, op);
        return;
    }
    ASSERT(!b->alias[op->out]);
    draft_op(b->d, op->name, rows_kernel(b, op, op->out));
    draft_arg_part(b->d, dy, ARG_UPDATE, draft_touched(b->t, op, 0));
    contribute(b, op, op->in[0], dy, false);
}

/* Dropout: dx = dy where the mask is set. */
static void back_scale(Back *b, const TapeOp *op)
{
    uint32_t x = op->in[0], dy = b->grad[op->out];
    if (op->idle) {
        back_past(b, op);
        return;
    }
    need(b, op->aux[0]);
    uint32_t dx = temp_like(b, x);
    Op kernel = draft_kernel(op, PHASE_DGRAD, logical_of(b, op, 0));
    kernel.u.elements = value_elements(&b->t->values[x]);
    draft_op(b->d, op->name, kernel);
    draft_arg(b->d, dy, ARG_READ);
    draft_arg(b->d, op->aux[0], ARG_READ);
    draft_arg(b->d, dx, ARG_WRITE);
    contribute(b, op, x, dx, false);
}

/* Rows in another order, or each of them several times: the gradients of a row are summed. */
static void back_moved(Back *b, const TapeOp *op)
{
    uint32_t x = op->in[0], dx = temp_like(b, x);
    Op kernel = draft_kernel(op, PHASE_DGRAD, logical_of(b, op, 0));
    kernel.u.elements = value_elements(&b->t->values[op->out]);
    draft_op(b->d, op->name, kernel);
    draft_arg(b->d, b->grad[op->out], ARG_READ);
    draft_arg(b->d, dx, ARG_WRITE);
    contribute(b, op, x, dx, false);
}

/* Of the rows: the token's gradient times the weight.  Of a weight: that gradient times the row;
 * of rows that were weighed where they were made the kernels there have all they need. */
static void back_weighted(Back *b, const TapeOp *op)
{
    uint32_t x = op->in[0], weights = op->in[1];
    if (!op->weighed)
        need(b, x);
    need(b, weights);
    uint32_t dx = temp_like(b, x), dw = temp_like(b, weights);
    Op kernel = draft_kernel(op, PHASE_DGRAD, logical_of(b, op, 0));
    kernel.u.elements = value_elements(&b->t->values[x]);
    draft_op(b->d, op->name, kernel);
    draft_arg(b->d, b->grad[op->out], ARG_READ);
    if (!op->weighed)
        draft_arg(b->d, b->t->values[x].memory, ARG_READ);
    draft_arg(b->d, b->t->values[weights].memory, ARG_READ);
    draft_arg(b->d, dx, ARG_WRITE);
    draft_arg(b->d, dw, ARG_WRITE);
    contribute(b, op, x, dx, false);
    contribute(b, op, weights, dw, false);
}

/* Of what was one for all heads the gradients are summed. */
static void back_joined(Back *b, const TapeOp *op)
{
    Op kernel = draft_kernel(op, PHASE_DGRAD, logical_of(b, op, 0));
    kernel.u.elements = value_elements(&b->t->values[op->out]);
    draft_op(b->d, op->name, kernel);
    draft_arg(b->d, b->grad[op->out], ARG_READ);
    uint32_t dx[] = { temp_like(b, op->in[0]), temp_like(b, op->in[1]) };
    for (uint32_t j = 0; j < 2; j++)
        draft_arg(b->d, dx[j], ARG_WRITE);
    for (uint32_t j = 0; j < 2; j++)
        contribute(b, op, op->in[j], dx[j], false);
}

/* Softmax over the chosen: their weights and places give the gradient of all scores. */
static void back_softmax(Back *b, const TapeOp *op)
{
    uint32_t x = op->in[0], dx = temp_like(b, x);
    need(b, op->out);
    need(b, op->aux[0]);
    draft_op(b->d, op->name, rows_kernel(b, op, x));
    draft_arg(b->d, b->grad[op->out], ARG_READ);
    draft_arg(b->d, b->t->values[op->out].memory, ARG_READ);
    draft_arg(b->d, op->aux[0], ARG_READ);
    draft_arg(b->d, dx, ARG_WRITE);
    contribute(b, op, x, dx, false);
}

/* The gradients of what was repeated are summed; that of the queries stays as it is. */
static void back_repeated(Back *b, const TapeOp *op)
{
    if (op->idle) {
        back_past(b, op);
        return;
    }
    Op kernel = draft_kernel(op, PHASE_DGRAD, logical_of(b, op, 0));
    kernel.u.elements = draft_repeated(b->t, op);
    draft_op(b->d, op->name, kernel);
    uint64_t bytes = dtype_bytes(b->t->values[op->out].dtype) * kernel.u.elements;
    draft_arg_part(b->d, b->grad[op->out], ARG_READ, bytes);
    uint32_t dx[2] = { 0 };
    for (uint32_t j = 0; j < op->in_n; j++) {
        dx[j] = temp_like(b, op->in[j]);
        draft_arg_part(b->d, dx[j], ARG_WRITE, draft_touched(b->t, op, j));
    }
    for (uint32_t j = 0; j < op->in_n; j++)
        contribute(b, op, op->in[j], dx[j], false);
}

/* Some rows of x: their gradient is added to that of x, which has come already. */
static void back_copy(Back *b, const TapeOp *op)
{
    uint32_t x = op->in[0];
    if (op->repeats) {
        back_repeated(b, op);
        return;
    }
    if (!op->slice) {
        (op->joins ? back_joined : op->in_n == 2 ? back_weighted : back_moved)(b, op);
        return;
    }
    ASSERT(b->grad[x] != NONE_U32 && !b->alias[x]);
    Op kernel = draft_kernel(op, PHASE_DGRAD, logical_of(b, op, 0));
    kernel.kind = OP_ADD;
    kernel.u.elements = value_elements(&b->t->values[op->out]);
    draft_op(b->d, op->name, kernel);
    uint64_t to = dtype_bytes(b->d->memories[b->grad[x]].dtype);
    draft_arg_part(b->d, b->grad[x], ARG_UPDATE, to * value_elements(&b->t->values[op->out]));
    draft_arg(b->d, b->grad[op->out], ARG_READ);
}

/* Flash attention computes the scores once more: five matmuls where the mathematics has four, two
 * of head_dim and two of value_dim. */
static void attention_flops(Op *op, const TapeOp *from, bool flash)
{
    AttentionShape a = from->attention;
    double scores = (double)a.head_dim, four = 2 * (scores + (double)attention_value_dim(&a));
    double each = 2.0 * (double)a.heads * (double)a.batch;
    op->u.attention = a;
    op->flops = each * from->pairs * (flash ? four + scores : four);
    op->model_flops = each * from->model_pairs * four;
}

static void back_attention(Back *b, const TapeOp *op)
{
    bool flash = !op->math_attention;
    if (flash)
        need(b, op->out);
    for (uint32_t j = 0; j < op->aux_n; j++)
        need(b, op->aux[j]);
    /* Inputs last: attention that is done again gives up what was gathered for it. */
    for (uint32_t j = 0; j < op->in_n; j++)
        need(b, op->in[j]);
    Op kernel = draft_kernel(op, PHASE_DGRAD, logical_of(b, op, 0));
    attention_flops(&kernel, op, flash);
    draft_op(b->d, op->name, kernel);
    draft_arg(b->d, b->grad[op->out], ARG_READ);
    for (uint32_t j = 0; j < op->in_n; j++)
        draft_arg_part(b->d, b->t->values[op->in[j]].memory, ARG_READ,
                       draft_touched(b->t, op, j));
    if (flash)
        draft_arg(b->d, b->t->values[op->out].memory, ARG_READ);
    for (uint32_t j = 0; j < op->aux_n; j++)
        draft_arg(b->d, op->aux[j], ARG_READ);
    for (uint32_t j = 0; j < op->in_n; j++) {
        uint32_t dx = temp_like(b, op->in[j]);
        draft_arg_part(b->d, dx, ARG_WRITE, draft_touched(b->t, op, j));
        contribute(b, op, op->in[j], dx, false);
    }
}

/* Rows of a table: scattered back by token, or summed over the batch where there are no tokens. */
static void back_embedding(Back *b, const TapeOp *op)
{
    uint32_t dy = b->grad[op->out];
    Op kernel = rows_kernel(b, op, op->out);
    kernel.phase = PHASE_WGRAD;
    kernel.logical = logical_of(b, op, 1);
    draft_op(b->d, op->name, kernel);
    draft_arg(b->d, dy, ARG_READ);
    for (uint32_t j = op->in_place ? 1 : 0; j < op->in_n; j++)
        draft_arg(b->d, op->in[j], ARG_READ);
    draft_arg(b->d, param_grad(b, op->param[0]), ARG_WRITE);
    if (op->in_place)
        contribute(b, op, op->in[0], dy, b->alias[op->out]);
}

/* Where the search for gradients begins.  A fused loss left the gradient where the logits were. */
static void back_loss(Back *b, const TapeOp *op)
{
    uint32_t x = op->in[0];
    if (!op->is_loss)
        return; /* statistics of the logits */
    uint32_t x_memory = b->t->values[x].memory;
    if (op->fused_loss) {
        need(b, x);
        contribute(b, op, x, x_memory, false);
        return;
    }
    bool kept = op->aux_n > 0; /* the softmax, in place of the logits */
    uint32_t dx = temp_like(b, x), read = kept ? op->aux[0] : x_memory;
    need(b, read);
    draft_op(b->d, op->name, rows_kernel(b, op, x));
    draft_arg(b->d, read, ARG_READ);
    for (uint32_t j = 1; j < op->in_n; j++) {
        need(b, op->in[j]);
        draft_arg(b->d, b->t->values[op->in[j]].memory, ARG_READ);
    }
    draft_arg(b->d, dx, ARG_WRITE);
    contribute(b, op, x, dx, false);
}

static void back_pool(Back *b, const TapeOp *op)
{
    uint32_t dx = temp_like(b, op->in[0]);
    for (uint32_t j = 0; j < op->aux_n; j++)
        need(b, op->aux[j]);
    draft_op(b->d, op->name, rows_kernel(b, op, op->out));
    draft_arg(b->d, b->grad[op->out], ARG_READ);
    for (uint32_t j = 0; j < op->aux_n; j++)
        draft_arg(b->d, op->aux[j], ARG_READ);
    draft_arg(b->d, dx, ARG_WRITE);
    contribute(b, op, op->in[0], dx, false);
}

/* The linear layer in fp8 whose sums the op scattered; NULL: there is none. */
static const TapeOp *fp8_before(const Back *b, const TapeOp *op)
{
    const TapeOp *from = op;
    while (from > b->t->ops && from->out != op->in[0])
        from--;
    bool linear = from->out == op->in[0] && from->kind == OP_MATMUL && !from->groups;
    return linear && from->dtype == DTYPE_FP8 ? from : NULL;
}

/* Cast where it is, then gathered: half the bytes travel (Transformer Engine, module/base.py
 * grad_output_preprocess; torchao's Float8RowwiseParallel). */
static void gather_fp8(Back *b, const TapeOp *op, const TapeOp *linear)
{
    uint32_t part = fp8_like(b, op->out), all = fp8_like(b, op->in[0]);
    cast_gradient(b, op, linear->name, b->grad[op->out], part);
    Op kernel = draft_comm(op, op->backward, PHASE_DGRAD, logical_of(b, op, 0),
                           draft_bytes(b->d, all), b->plan);
    kernel.dtype = DTYPE_FP8;
    draft_op(b->d, draft_comm_name(op, op->backward), kernel);
    draft_arg(b->d, part, ARG_READ);
    draft_arg(b->d, all, ARG_WRITE);
    contribute(b, op, op->in[0], all, false);
}

/* So that what goes round a ring of tp is not the first op of backward, which is on the compute
 * lane. */
static void begin_before_ring(Back *b, const TapeOp *op)
{
    Op begin = draft_kernel(op, PHASE_DGRAD, logical_of(b, op, 3));
    begin.kind = OP_RELEASE;
    if (b->plan->ring_tp && b->d->ops_n == 0 && !op->over_cp && !op->over_ep)
        draft_op(b->d, "ring begins", begin);
}

static void back_comm(Back *b, const TapeOp *op)
{
    uint32_t dy = b->grad[op->out], x = op->in[0];
    if (op->backward == OP_KIND_N) {
        contribute(b, op, x, dy, true);
        return;
    }
    const TapeOp *linear = op->backward == OP_ALL_GATHER ? fp8_before(b, op) : NULL;
    if (linear) {
        gather_fp8(b, op, linear);
        return;
    }
    begin_before_ring(b, op);
    const TapeValue *from = &b->t->values[x], *to = &b->t->values[op->out];
    DType dtype = b->d->memories[dy].dtype;
    uint64_t columns = op->over_kv ? to->kv_columns : to->columns;
    uint64_t bytes = max_u64(from->rows, to->rows) * columns * dtype_bytes(dtype);
    Op kernel = draft_comm(op, op->backward, PHASE_DGRAD, logical_of(b, op, 0), bytes, b->plan);
    kernel.dtype = dtype;
    draft_op(b->d, draft_comm_name(op, op->backward), kernel);
    if (op->backward == OP_ALL_REDUCE) {
        ASSERT(!b->alias[op->out]);
        draft_arg_part(b->d, dy, ARG_UPDATE, bytes);
        contribute(b, op, x, dy, false);
        return;
    }
    draft_arg(b->d, dy, ARG_READ);
    for (uint32_t j = 0; j < op->in_n; j++) {
        bool beside;
        uint32_t dx = gradient_of(b, op, op->in[j], &beside);
        if (op->slice)
            draft_arg_part(b->d, dx, ARG_WRITE, draft_touched(b->t, op, j));
        else
            draft_arg(b->d, dx, ARG_WRITE);
        if (!beside)
            contribute(b, op, op->in[j], dx, false);
    }
}

typedef void BackRule(Back *b, const TapeOp *op);

static BackRule *const back_rules[OP_KIND_N] = {
    [OP_MATMUL] = back_matmul,
    [OP_CONV] = back_matmul,
    [OP_NORM] = back_norm,
    [OP_BATCHNORM] = back_norm,
    [OP_ACTIVATION] = back_activation,
    [OP_ADD] = back_add,
    [OP_BIAS] = back_bias,
    [OP_ROPE] = back_rope,
    [OP_ATTENTION] = back_attention,
    [OP_EMBEDDING] = back_embedding,
    [OP_CROSS_ENTROPY] = back_loss,
    [OP_MSE] = back_loss,
    [OP_POOL] = back_pool,
    [OP_SCALE] = back_scale,
    [OP_COPY] = back_copy,
    [OP_SOFTMAX] = back_softmax,
    [OP_CAST] = back_past,
};

/* ---- the walk ---- */

static void find_wants(Back *b)
{
    const Tape *t = b->t;
    if (t->in != NONE_U32)
        b->wants_grad[t->in] = true;
    for (uint32_t i = 0; i < t->ops_n; i++) {
        const TapeOp *op = &t->ops[i];
        bool wants = op->param_n > 0;
        for (uint32_t j = 0; j < op->in_n; j++)
            wants = wants || b->wants_grad[op->in[j]];
        b->wants_grad[op->out] = wants;
    }
}

/* A bias gradient waits for its matmul, a weight gradient for the collective before it. */
static bool releases(const Back *b, const TapeOp *op)
{
    if (op->is_comm || op->kind == OP_BIAS || b->held_n == 0)
        return false;
    return op->kind != OP_MATMUL || b->held[0].op.kind != OP_BIAS;
}

static void back_op(Back *b, const TapeOp *op)
{
    if (releases(b, op))
        release_held(b);
    if (!op->is_loss && b->grad[op->out] == NONE_U32)
        return; /* nothing that the loss depends on */
    if (op->is_comm)
        back_comm(b, op);
    else
        back_rules[op->kind](b, op);
}

static uint32_t copy_gradient(Back *b, uint32_t from)
{
    const TapeValue *in = &b->t->values[b->t->in];
    uint32_t copy = temp_like(b, b->t->in);
    bool casts = b->d->memories[from].dtype != b->d->memories[copy].dtype;
    draft_op(b->d, "gradient copy",
             (Op){ .kind = casts ? OP_CAST : OP_COPY,
                   .phase = PHASE_DGRAD,
                   .dtype = in->dtype,
                   .logical = b->d->logical_n - 2,
                   .u.elements = value_elements(in) });
    draft_arg(b->d, from, ARG_READ);
    draft_arg(b->d, copy, ARG_WRITE);
    return copy;
}

static bool is_read(const Draft *d, uint32_t memory)
{
    for (uint32_t a = 0; a < d->args_n; a++)
        if (d->args[a].memory == memory)
            return true;
    return false;
}

/* One op ends the lives of all that it is called with. */
static void release(Back *b, uint32_t *released_n, uint32_t memory)
{
    if ((*released_n)++ == 0)
        draft_op(
            b->d, "release",
            (Op){ .kind = OP_RELEASE, .phase = PHASE_DGRAD, .logical = b->d->logical_n - 1 });
    draft_arg_part(b->d, memory, ARG_READ, 0);
}

/* An input that nobody reads, and what was kept for nothing. */
static void release_unread(Back *b)
{
    const Tape *t = b->t;
    uint32_t n = 0;
    if (!is_read(b->d, t->in))
        release(b, &n, t->in);
    for (uint32_t i = 0; i < t->ops_n; i++) {
        if (redo_of(b, i) != REDO_KEEP)
            continue;
        uint32_t memory = t->values[t->ops[i].out].memory;
        bool leaves = t->out != NONE_U32 && memory == t->values[t->out].memory;
        if (t->values[memory].home != VALUE_MADE || leaves || is_read(b->d, memory))
            continue;
        b->d->saved[memory] = true;
        release(b, &n, memory);
    }
}

/* The gradient of the block's input is what the block before reads; the input itself dies here. */
static void finish(Back *b)
{
    const Tape *t = b->t;
    if (t->in == NONE_U32)
        return;
    uint32_t din = b->grad[t->in];
    ASSERT(din != NONE_U32);
    bool handed_on = b->d->memories[din].slot != SLOT_LOCAL; /* unchanged */
    if (handed_on || b->d->memories[din].dtype != temp_dtype(&t->values[t->in]))
        din = copy_gradient(b, din);
    b->d->memories[din].slot = SLOT_DIN;
    release_unread(b);
}

/* Eager torch runs again what comes before a result that it has kept, though nobody reads it. */
static void redo_before_kept(Back *b)
{
    const Tape *t = b->t;
    for (uint32_t i = 0; i < t->ops_n; i++)
        for (uint32_t k = 0; k < i && t->ops[i].is_comm && redo_of(b, i) == REDO_KEEP; k++)
            if (t->ops[k].out == t->ops[i].in[0] && redo_of(b, k) == REDO_ALL)
                redo(b, k);
}

static void start(Back *b)
{
    const Tape *t = b->t;
    draft_start(b->d, t, b->plan);
    for (uint32_t m = 0; m < b->d->memories_n; m++)
        if (b->d->memories[m].slot == SLOT_OUT) /* when computed again, nobody reads it */
            b->d->memories[m].slot = SLOT_LOCAL;
    b->d->logical_n = (2 + GRAD_KINDS) * t->ops_n + 2; /* the last: copy, release */
    b->d->saved = mem_zero(t->values_n, sizeof *b->d->saved);
    for (uint32_t v = 0; v < t->values_n; v++)
        b->grad[v] = NONE_U32;
    find_wants(b);
    if (t->out != NONE_U32) {
        uint32_t dout = temp_like(b, t->out);
        b->d->memories[dout].slot = SLOT_DOUT;
        b->grad[t->out] = dout;
        b->alias[t->out] = true; /* not to be overwritten: others may read it */
    }
    for (uint32_t i = 0; b->plan->redo_all && i < t->ops_n; i++)
        if (redo_of(b, i) == REDO_ALL)
            redo(b, i);
    redo_before_kept(b);
}

void draft_backward(Draft *d, const Tape *t, const DraftPlan *plan)
{
    Back b = { .t = t, .d = d, .plan = plan };
    b.redone = mem_zero(t->ops_n, sizeof *b.redone);
    b.recast = mem_zero(t->ops_n, sizeof *b.recast);
    b.grad = mem_zero(t->values_n, sizeof *b.grad);
    b.alias = mem_zero(t->values_n, sizeof *b.alias);
    b.wants_grad = mem_zero(t->values_n, sizeof *b.wants_grad);
    b.has_grad = mem_zero((size_t)t->params_n + 1, sizeof *b.has_grad);
    start(&b);
    for (uint32_t i = t->ops_n; i-- > 0;)
        back_op(&b, &t->ops[i]);
    release_held(&b);
    finish(&b);
    free(b.redone);
    free(b.recast);
    free(b.grad);
    free(b.alias);
    free(b.wants_grad);
    free(b.has_grad);
}

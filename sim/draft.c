/*
 * draft.c - playing a tape forward; shapes and flops of its ops.
 *
 * Flops count matmuls, convolutions and attention only; a multiply-add is two.
 */
#include "sim/draft.h"

#include <stdlib.h>

void draft_free(Draft *d)
{
    free(d->memories);
    free(d->ops);
    free(d->args);
    free(d->saved);
    *d = (Draft){ 0 };
}

uint32_t draft_memory(Draft *d, DraftMemory memory)
{
    GROW(d->memories, d->memories_n, d->memories_cap);
    d->memories[d->memories_n] = memory;
    return d->memories_n++;
}

void draft_op(Draft *d, const char *name, Op op)
{
    GROW(d->ops, d->ops_n, d->ops_cap);
    d->ops[d->ops_n++] = (DraftOp){ .op = op, .name = name, .arg_first = d->args_n };
}

uint64_t draft_bytes(const Draft *d, uint32_t memory)
{
    const DraftMemory *m = &d->memories[memory];
    uint64_t columns = m->columns + (m->rest ? d->memories[m->rest].columns : 0);
    return m->rows * columns * dtype_bytes(m->dtype);
}

static void one_arg(Draft *d, uint32_t memory, ArgMode mode, uint64_t bytes)
{
    GROW(d->args, d->args_n, d->args_cap);
    d->args[d->args_n++] = (DraftArg){ memory, mode, bytes };
    d->ops[d->ops_n - 1].arg_n++;
}

void draft_arg_part(Draft *d, uint32_t memory, ArgMode mode, uint64_t bytes)
{
    uint32_t rest = d->memories[memory].rest;
    uint64_t of_rest = rest ? draft_bytes(d, rest) : 0;
    ASSERT(!rest || bytes == draft_bytes(d, memory)); /* never some of the columns */
    one_arg(d, memory, mode, bytes - of_rest);
    if (rest)
        one_arg(d, rest, mode, of_rest);
}

void draft_arg(Draft *d, uint32_t memory, ArgMode mode)
{
    draft_arg_part(d, memory, mode, draft_bytes(d, memory));
}

static Slot slot_of(const Tape *t, uint32_t value)
{
    switch (t->values[value].home) {
    case VALUE_IN:
        return SLOT_IN;
    case VALUE_DATA:
        return SLOT_DATA;
    case VALUE_PARAM:
        return SLOT_PARAM;
    case VALUE_MADE:
        break;
    }
    return t->out != NONE_U32 && t->values[t->out].memory == value ? SLOT_OUT : SLOT_LOCAL;
}

static void start_rest(Draft *d, const RedoPart *part, uint32_t v)
{
    DraftMemory rest = d->memories[v];
    rest.name = part->name;
    rest.columns = part->columns;
    uint32_t i = draft_memory(d, rest);
    DraftMemory *kept = &d->memories[v];
    ASSERT(part->columns < kept->columns);
    kept->name = part->kept_name;
    kept->columns -= part->columns;
    kept->rest = i;
}

void draft_start(Draft *d, const Tape *t, const DraftPlan *plan)
{
    d->numbering = tape_numbering(t);
    for (uint32_t v = 0; v < t->values_n; v++) {
        const TapeValue *value = &t->values[v];
        draft_memory(d, (DraftMemory){ .name = value->name,
                                       .dtype = value->dtype,
                                       .rows = value->rows * max_u64(value->copies, 1),
                                       .columns = value->columns,
                                       .slot = slot_of(t, v),
                                       .tensor = value->tensor });
    }
    for (uint32_t v = 0; plan->parts && v < t->values_n; v++)
        if (plan->parts[v].columns)
            start_rest(d, &plan->parts[v], v);
}

/* ---- shapes and flops ---- */

Op draft_kernel(const TapeOp *from, OpPhase phase, uint32_t logical)
{
    return (Op){ .kind = from->kind,
                 .phase = phase,
                 .fn = from->fn,
                 .dtype = from->dtype,
                 .lane = LANE_COMPUTE,
                 .name = NONE_U32,
                 .logical = logical };
}

void draft_matmul_shape(Op *op, const Tape *t, const TapeOp *from, OpPhase phase)
{
    const TapeValue *x = &t->values[from->in[0]], *y = &t->values[from->out];
    uint64_t k = x->columns * (from->kind == OP_CONV ? from->patch : 1), n = y->columns;
    uint64_t batch = from->groups ? from->groups : 1, rows = div_up_u64(y->rows, batch);
    if (phase == PHASE_DGRAD)
        op->u.matmul = (MatmulShape){ .m = rows, .n = k, .k = n, .batch = batch };
    else if (phase == PHASE_WGRAD)
        op->u.matmul =
            (MatmulShape){ .m = n, .n = k, .k = rows, .batch = batch, .transpose_a = true };
    else
        op->u.matmul =
            (MatmulShape){ .m = rows, .n = n, .k = k, .batch = batch, .transpose_b = true };
    op->flops = 2.0 * (double)y->rows * (double)n * (double)k;
    op->model_flops = op->flops * (from->own > 0 ? from->own : 1);
}

/* Two matmuls, of head_dim and of value_dim: scores, and weights times values. */
static void attention_work(Op *op, const TapeOp *from)
{
    AttentionShape a = from->attention;
    op->u.attention = a;
    double dims = (double)a.head_dim + (double)attention_value_dim(&a);
    double per_pair = 2.0 * dims * (double)a.heads * (double)a.batch;
    op->flops = per_pair * from->pairs;
    op->model_flops = per_pair * from->model_pairs;
}

uint64_t draft_repeated(const Tape *t, const TapeOp *op)
{
    const TapeValue *y = &t->values[op->out];
    return y->rows * y->kv_columns;
}

static void play_shape(Op *op, const Tape *t, const TapeOp *from, OpPhase phase)
{
    const TapeValue *x = &t->values[from->in[0]];
    switch (from->kind) {
    case OP_MATMUL:
    case OP_CONV:
        draft_matmul_shape(op, t, from, phase);
        break;
    case OP_ATTENTION:
        attention_work(op, from);
        break;
    case OP_ADD:
        op->u.elements = value_elements(x);
        break;
    case OP_COPY:
        op->u.elements =
            from->repeats ? draft_repeated(t, from) : value_elements(&t->values[from->out]);
        break;
    case OP_SCALE:
    case OP_CAST:
        op->u.elements = value_elements(x);
        break;
    case OP_EMBEDDING:
    case OP_POOL:
    case OP_NORM:
    case OP_ACTIVATION:
        x = &t->values[from->out];
        op->u.rows = (RowsShape){ x->rows, x->columns };
        break;
    default:
        op->u.rows = (RowsShape){ x->rows, x->columns };
    }
}

static Lane comm_lane(const TapeOp *from, const DraftPlan *plan)
{
    if (from->over_ep)
        return plan->async_ep ? LANE_EP : LANE_COMPUTE;
    if (from->over_cp)
        return plan->async_cp && !from->at_once ? LANE_CP : LANE_COMPUTE;
    return plan->async_tp ? LANE_TP : LANE_COMPUTE;
}

Op draft_comm(const TapeOp *from, OpKind kind, OpPhase phase, uint32_t logical, uint64_t bytes,
              const DraftPlan *plan)
{
    Op op = draft_kernel(from, phase, logical);
    op.kind = kind;
    op.lane = comm_lane(from, plan);
    op.u.comm = (CommShape){ .bytes = bytes,
                             .group = from->over_ep   ? plan->ep_group
                                      : from->over_cp ? plan->cp_group
                                      : from->over_kv ? plan->kv_group
                                                      : plan->tp_group };
    return op;
}

const char *draft_comm_name(const TapeOp *from, OpKind kind)
{
    switch (kind) {
    case OP_ALL_TO_ALL:
        return "ep all-to-all";
    case OP_ALL_GATHER:
        return from->over_cp ? "cp all-gather" : "tp all-gather";
    case OP_REDUCE_SCATTER:
        return from->over_cp ? "cp reduce-scatter" : "tp reduce-scatter";
    default:
        return from->over_kv ? "kv all-reduce" : "tp all-reduce";
    }
}

/* ---- playing ---- */

static void play_comm(Draft *d, const Tape *t, uint32_t i, OpPhase phase, const DraftPlan *plan)
{
    const TapeOp *op = &t->ops[i];
    const TapeValue *x = &t->values[op->in[0]], *y = &t->values[op->out];
    uint64_t bytes = max_u64(x->rows, y->rows) * y->columns * dtype_bytes(y->dtype);
    draft_op(d, draft_comm_name(op, op->forward),
             draft_comm(op, op->forward, phase, i, bytes, plan));
    if (op->forward == OP_ALL_REDUCE) {
        draft_arg(d, y->memory, ARG_UPDATE);
        return;
    }
    for (uint32_t j = 0; j < op->in_n; j++)
        draft_arg_part(d, t->values[op->in[j]].memory, ARG_READ, draft_touched(t, op, j));
    draft_arg(d, y->memory, ARG_WRITE);
}

uint64_t draft_touched(const Tape *t, const TapeOp *op, uint32_t j)
{
    const TapeValue *x = &t->values[op->in[j]];
    uint64_t all = value_bytes(x);
    if (op->kind == OP_ROPE && op->turns_of)
        return all / op->turns_of * op->turns;
    if (op->kind == OP_ROPE && op->slice) /* all but v */
        return all / x->columns * (x->columns - x->kv_columns / 2);
    if (op->repeats) /* keys and values; normed keys, and values */
        return all / x->columns * (j == 0 ? x->kv_columns : x->kv_columns / 2);
    const TapeValue *y = &t->values[op->out];
    if (op->is_comm &&
        op->slice) /* this rank's rows of what is gathered, from each input alike */
        return x->rows * y->columns * dtype_bytes(y->dtype) / op->in_n;
    if (op->slice)
        return value_bytes(y);
    if (op->apart) /* q alone; keys and values */
        return j == 0 ? all / x->columns * (x->columns - x->kv_columns) : all;
    if (op->kind == OP_ATTENTION && j == 1) /* v, beside normed q and k */
        return all - value_bytes(&t->values[op->in[0]]);
    return all;
}

void draft_cast(Draft *d, const Tape *t, uint32_t i, OpPhase phase, uint32_t logical)
{
    const TapeOp *op = &t->ops[i];
    if (!op->cast)
        return;
    const TapeValue *to = &t->values[op->cast];
    Op kernel = draft_kernel(op, phase, logical);
    kernel.kind = OP_CAST;
    kernel.fn = FN_NONE;
    kernel.dtype = to->dtype;
    kernel.u.elements = value_elements(to);
    draft_op(d, to->name, kernel);
    draft_arg(d, op->param[0], ARG_READ);
    draft_arg(d, op->cast, ARG_WRITE);
}

static uint32_t weight_of(const TapeOp *op)
{
    return op->cast ? op->cast : op->param[0];
}

void draft_read_weight(Draft *d, const Tape *t, const TapeOp *op, double share)
{
    const TapeValue *w = &t->values[weight_of(op)];
    uint64_t bytes = op->dtype == DTYPE_FP8 ? value_elements(w) : value_bytes(w);
    draft_arg_part(d, weight_of(op), ARG_READ, (uint64_t)((double)bytes * share));
}

static void play_inputs(Draft *d, const Tape *t, const TapeOp *op)
{
    for (uint32_t j = 0; j < op->in_n; j++) {
        bool updated = j == 0 && (op->in_place || op->fused_loss);
        draft_arg_part(d, t->values[op->in[j]].memory, updated ? ARG_UPDATE : ARG_READ,
                       draft_touched(t, op, j));
    }
    for (uint32_t j = 0; j < op->param_n; j++) {
        const TapeValue *p = &t->values[op->param[j]];
        if (p->table)
            draft_arg_part(d, op->param[j], ARG_READ, value_bytes(&t->values[op->out]));
        else if (j == 0)
            draft_read_weight(d, t, op, 1);
        else
            draft_arg(d, op->param[j], ARG_READ);
    }
}

/* REDO_PART: x times those rows of the weight that give the columns that were not saved. */
static void play_rest(Draft *d, const Tape *t, uint32_t i, const RedoPart *part)
{
    const TapeOp *op = &t->ops[i];
    const TapeValue *x = &t->values[op->in[0]], *y = &t->values[op->out];
    Op kernel = draft_kernel(op, PHASE_RECOMPUTE, i);
    draft_matmul_shape(&kernel, t, op, PHASE_RECOMPUTE);
    double share = (double)part->columns / (double)y->columns;
    kernel.u.matmul.n = part->columns;
    kernel.flops *= share;
    kernel.model_flops *= share;
    draft_op(d, part->name, kernel);
    draft_arg(d, x->memory, ARG_READ);
    draft_read_weight(d, t, op, share);
    draft_arg(d, d->memories[y->memory].rest, ARG_WRITE);
}

void draft_play(Draft *d, const Tape *t, uint32_t i, OpPhase phase, const DraftPlan *plan)
{
    const TapeOp *op = &t->ops[i];
    if (phase == PHASE_RECOMPUTE && plan->redo && plan->redo[i] == REDO_PART) {
        play_rest(d, t, i, &plan->parts[op->out]);
        return;
    }
    if (op->is_comm && op->forward != OP_KIND_N)
        play_comm(d, t, i, phase, plan);
    if (op->is_comm || op->idle)
        return;
    Op kernel = draft_kernel(op, phase, i);
    play_shape(&kernel, t, op, phase);
    draft_op(d, op->name, kernel);
    play_inputs(d, t, op);
    if (op->repeats)
        draft_arg_part(d, op->out, ARG_WRITE,
                       draft_repeated(t, op) * dtype_bytes(t->values[op->out].dtype));
    else if (op->out != NONE_U32 && !op->in_place)
        draft_arg(d, t->values[op->out].memory, ARG_WRITE);
    for (uint32_t j = 0; j < op->aux_n; j++)
        draft_arg(d, op->aux[j], ARG_WRITE);
}

void draft_forward(Draft *d, const Tape *t, const DraftPlan *plan)
{
    draft_start(d, t, plan);
    d->logical_n = 2 * t->ops_n; /* casts, where there are any */
    for (uint32_t i = 0; i < t->ops_n; i++) {
        draft_cast(d, t, i, PHASE_FORWARD, t->ops_n + i);
        draft_play(d, t, i, PHASE_FORWARD, plan);
    }
}

/*
 * tensor.c - splits the tape of a block over tp ranks, and puts collectives where
 * the split changes.
 *
 * A column-parallel matmul needs all of its input and makes its share of the
 * columns; the row-parallel matmul after it turns those into one term of a sum:
 *
 *     x whole -- f --> column-parallel --> [columns] --> row-parallel --> [term] -- g --> y whole
 *               ^                                                                  ^
 *     forward   nothing                                              all-reduce
 *     backward  all-reduce                                           nothing
 *
 * Under sequence parallelism what lies outside is shared out by rows, and f, g are
 *
 *     forward   all-gather                                           reduce-scatter
 *     backward  reduce-scatter (and the gather again, for the        all-gather
 *               weight gradient: the gathered x is not saved,
 *               but where the software keeps it)
 *
 * Only matmuls and embeddings say how they are split (TapeOp.tp); every other op
 * follows the split of its inputs.  A term is summed as late as possible: the two
 * branches of a parallel block are added before their one collective.
 *
 * Attention is shared out by heads; key and value heads are repeated where there
 * are fewer of them than ranks.  Each rank that repeats a head has the gradient that
 * its own queries give: they are summed among those ranks before they reach the head's
 * bias and weight, as Megatron's multi-query code did.  (Megatron Core shares out the
 * columns instead, gathers them and scatters the sums; torchtitan refuses.)  The loss
 * over a shared-out vocabulary exchanges the maximum and the sums of each row
 * (Megatron-LM's vocab_parallel_cross_entropy).
 *
 * Latent attention (blocks_latent.c) puts one key's positions beside the columns of every head:
 * they pass f as a matmul's input does (TP_JOIN).
 *
 * Experts (blocks_moe.c) find the rows of all ranks gathered already, once, where they came
 * from (TP_GATHER): their first matmul needs no f, the scatter behind that gather sums what
 * its input's gradient is.
 *
 * Parameters that work on a part of the rows or on heads (norms) get a part of
 * their gradient on each rank: Param.tp_partial, summed by who finishes gradients.
 */
#include "sim/blocks.h"

#include <stdlib.h>

typedef struct Splitter {
    Tape *t; /* being rewritten: values keep their numbers, ops are made anew */
    uint64_t tp, kv_heads;
    bool rows;         /* sequence parallelism */
    bool keeps;        /* what was gathered */
    uint32_t *now;     /* by old value: the value that stands for it, after f, g */
    uint32_t *entered; /* by value: its input side f, NONE_U32 until needed */
    bool *repeats;     /* by value: has heads whose gradients are to be summed still */
    uint32_t most;     /* values that `entered` and `repeats` have room for */
    Err *err;
    bool ok;
} Splitter;

static uint32_t new_value(Splitter *s, TapeValue v)
{
    ASSERT(s->t->values_n < s->most);
    return tape_value(s->t, v);
}

/* ---- shares ---- */

static uint64_t share(Splitter *s, uint64_t n, const char *name)
{
    if (s->ok && n % s->tp != 0)
        s->ok = err_set(s->err, "tp = %" PRIu64 " does not divide the %" PRIu64 " of '%s'",
                        s->tp, n, name);
    return n / s->tp;
}

/* Key and value heads of one rank: at least one. */
static uint64_t kv_share(Splitter *s, uint64_t n)
{
    if (s->kv_heads >= s->tp)
        return share(s, n, "key and value heads");
    return n / s->kv_heads;
}

static uint64_t kv_columns_share(Splitter *s, const TapeValue *v)
{
    if (v->kv_repeated)
        return share(s, v->kv_columns, v->name);
    return v->kv_columns ? kv_share(s, v->kv_columns) : 0;
}

static uint64_t columns_share(Splitter *s, const TapeValue *v)
{
    return share(s, v->columns - v->kv_columns, v->name) + kv_columns_share(s, v);
}

/* Gives a value its shape on one rank. */
static void settle(Splitter *s, uint32_t value, Split split)
{
    TapeValue *v = &s->t->values[value];
    v->split = split;
    if (split == SPLIT_ROWS)
        v->rows = share(s, v->rows, "tokens of a micro-batch");
    if (split != SPLIT_COLUMNS)
        return;
    v->columns = columns_share(s, v);
    v->kv_columns = kv_columns_share(s, v);
}

static Split split_of(const Splitter *s, uint32_t value)
{
    return s->t->values[value].split;
}

/* ---- f and g ---- */

static uint32_t comm_value(Splitter *s, uint32_t x, Split split, bool in_place)
{
    TapeValue v = s->t->values[x];
    uint32_t memory = v.memory;
    if (v.split == SPLIT_ROWS)
        v.rows *= s->tp;
    if (split == SPLIT_ROWS)
        v.rows = share(s, v.rows, "tokens of a micro-batch");
    v.split = split;
    v.home = VALUE_MADE;
    v.name = split == SPLIT_WHOLE ? v.name : "scattered";
    uint32_t y = new_value(s, v);
    if (in_place)
        s->t->values[y].memory = memory;
    return y;
}

static uint32_t comm(Splitter *s, uint32_t x, Split split, OpKind forward, OpKind backward)
{
    bool moves = forward == OP_ALL_GATHER || forward == OP_REDUCE_SCATTER;
    uint32_t y = comm_value(s, x, split, !moves);
    tape_op(s->t, (TapeOp){ .kind = OP_ALL_REDUCE,
                            .name = "tp",
                            .dtype = s->t->values[x].dtype,
                            .in_n = 1,
                            .in = { x },
                            .out = y,
                            .in_place = !moves,
                            .is_comm = true,
                            .forward = forward,
                            .backward = backward,
                            .again = forward == OP_ALL_GATHER && !s->keeps });
    return y;
}

static uint32_t enter(Splitter *s, uint32_t x)
{
    if (s->entered[x] == NONE_U32)
        s->entered[x] = split_of(s, x) == SPLIT_ROWS
                            ? comm(s, x, SPLIT_WHOLE, OP_ALL_GATHER, OP_REDUCE_SCATTER)
                            : comm(s, x, SPLIT_WHOLE, OP_KIND_N, OP_ALL_REDUCE);
    return s->entered[x];
}

static uint32_t leave(Splitter *s, uint32_t x)
{
    return s->rows ? comm(s, x, SPLIT_ROWS, OP_REDUCE_SCATTER, OP_ALL_GATHER)
                   : comm(s, x, SPLIT_WHOLE, OP_ALL_REDUCE, OP_KIND_N);
}

/* ---- repeated heads ---- */

/* The same values; backward sums the gradients of the heads that other ranks repeat. */
static uint32_t sum_repeated(Splitter *s, uint32_t x)
{
    TapeValue v = s->t->values[x];
    uint32_t memory = v.memory;
    v.home = VALUE_MADE;
    uint32_t y = new_value(s, v);
    s->t->values[y].memory = memory;
    tape_op(s->t, (TapeOp){ .kind = OP_ALL_REDUCE,
                            .name = "kv",
                            .dtype = v.dtype,
                            .in_n = 1,
                            .in = { x },
                            .out = y,
                            .in_place = true,
                            .is_comm = true,
                            .over_kv = true,
                            .forward = OP_KIND_N,
                            .backward = OP_ALL_REDUCE });
    return y;
}

static void note_repeated(Splitter *s, const TapeOp *op)
{
    bool makes = op->tp == TP_COLUMN && s->t->values[op->out].kv_columns > 0;
    bool adds = op->kind == OP_BIAS && s->repeats[op->in[0]];
    s->repeats[op->out] = s->kv_heads < s->tp && (makes || adds);
}

/* ---- ops ---- */

/* Rows in another order may be terms as well. */
static bool only_moves(const TapeOp *op)
{
    return op->kind == OP_COPY && op->in_n == 1 && !op->slice;
}

/* Every input as it lies now; terms are summed unless the op is a sum of terms. */
static void take_inputs(Splitter *s, TapeOp *op)
{
    bool terms = op->kind == OP_ADD || only_moves(op);
    for (uint32_t j = 0; j < op->in_n; j++)
        terms = terms && split_of(s, s->now[op->in[j]]) == SPLIT_PARTIAL;
    for (uint32_t j = 0; j < op->in_n; j++) {
        uint32_t *now = &s->now[op->in[j]];
        if (split_of(s, *now) == SPLIT_PARTIAL && !terms)
            *now = leave(s, *now);
        if (s->repeats[*now] && op->kind != OP_BIAS)
            *now = sum_repeated(s, *now);
        op->in[j] = *now;
    }
}

static void split_attention(Splitter *s, TapeOp *op)
{
    bool all = op->attention.kv_heads == op->attention.heads; /* it may be by repeats_kv */
    op->attention.heads = share(s, op->attention.heads, "attention heads");
    op->attention.kv_heads = all ? op->attention.heads : kv_share(s, op->attention.kv_heads);
}

/* A bias belongs to the columns; what works on heads, or on rows, is held by every rank. */
static void split_params(Splitter *s, const TapeOp *op, Split split)
{
    bool by_column = op->kind == OP_BIAS || op->kind == OP_BATCHNORM;
    for (uint32_t j = 0; j < op->param_n; j++) {
        if (split == SPLIT_COLUMNS && by_column)
            settle(s, op->param[j], SPLIT_COLUMNS);
        else if (split != SPLIT_WHOLE && !s->t->values[op->param[j]].expert)
            s->t->values[op->param[j]].tp_partial = true;
    }
}

static void follow(Splitter *s, TapeOp *op)
{
    Split split = split_of(s, op->in[0]);
    split_params(s, op, split);
    for (uint32_t j = 1; j < op->in_n; j++)
        if (s->t->values[op->in[j]].home == VALUE_DATA && split == SPLIT_COLUMNS)
            settle(s, op->in[j], SPLIT_COLUMNS); /* features the loss compares with */
    if (op->kind == OP_ATTENTION)
        split_attention(s, op);
    settle(s, op->out, op->is_loss ? SPLIT_WHOLE : split);
    for (uint32_t j = 0; j < op->aux_n; j++)
        settle(s, op->aux[j], split);
    if (op->in_place)
        s->t->values[op->out].memory = s->t->values[op->in[0]].memory;
    if (split == SPLIT_WHOLE) /* every rank does it */
        op->own = 1 / (double)s->tp;
    tape_op(s->t, *op);
}

/* Weights are stored [outputs, inputs], tables [vocabulary, width]. */
static void split_weight(Splitter *s, const TapeOp *op)
{
    TapeValue *w = &s->t->values[op->param[0]];
    if (op->tp == TP_ROW) {
        w->columns = share(s, w->columns, w->name);
        return;
    }
    w->rows = share(s, w->rows - w->kv_columns, w->name) +
              (w->kv_columns ? kv_share(s, w->kv_columns) : 0);
}

static void split_op(Splitter *s, TapeOp *op)
{
    if (op->tp == TP_COLUMN && op->groups == 0)
        op->in[0] = enter(s, op->in[0]);
    else if (op->tp == TP_ROW)
        ASSERT(split_of(s, op->in[0]) == SPLIT_COLUMNS);
    split_weight(s, op);
    double columns = (double)s->t->values[op->out].columns / (double)s->tp;
    settle(s, op->out, op->tp == TP_COLUMN ? SPLIT_COLUMNS : SPLIT_PARTIAL);
    if (op->tp == TP_COLUMN) /* less than all of it where ranks repeat key and value heads */
        op->own = columns / (double)s->t->values[op->out].columns;
    tape_op(s->t, *op);
}

/* All ranks' rows of the result, to be kept: not gathered again in backward. */
static void gather_kept(Splitter *s, TapeOp *op)
{
    op->tp = TP_FOLLOW;
    follow(s, op);
    if (split_of(s, op->out) != SPLIT_ROWS)
        return;
    s->now[op->out] = comm(s, op->out, SPLIT_WHOLE, OP_ALL_GATHER, OP_REDUCE_SCATTER);
    s->t->ops[s->t->ops_n - 1].again = false;
}

/* What lies beside the shared-out columns of in[0] is needed by all of them. */
static void join(Splitter *s, TapeOp *op)
{
    op->tp = TP_FOLLOW;
    for (uint32_t j = 1; j < op->in_n; j++)
        op->in[j] = enter(s, op->in[j]);
    follow(s, op);
}

/* ---- the loss over a shared-out vocabulary ---- */

static uint32_t row_numbers(Splitter *s, const TapeOp *loss, const char *name, uint32_t columns,
                            const uint32_t *in, uint32_t in_n)
{
    Tape *t = s->t;
    uint32_t y = tape_made(t, name, DTYPE_F32, t->values[loss->in[0]].rows, columns);
    TapeOp op = { .kind = OP_CROSS_ENTROPY, .name = name, .dtype = DTYPE_F32, .in_n = in_n };
    for (uint32_t j = 0; j < in_n; j++)
        op.in[j] = in[j];
    op.out = y;
    tape_op(t, op);
    return comm(s, y, SPLIT_WHOLE, OP_ALL_REDUCE, OP_KIND_N);
}

static void vocabulary_loss(Splitter *s, TapeOp *op)
{
    uint32_t logits = op->in[0], targets = op->in[1];
    uint32_t maximum = row_numbers(s, op, "loss maximum", 1, &logits, 1);
    uint32_t in[] = { logits, targets, maximum };
    uint32_t sums = row_numbers(s, op, "loss sums", 2, in, 3);
    op->in[2] = maximum;
    op->in[3] = sums;
    op->in_n = 4;
    for (uint32_t j = 0; j < op->aux_n; j++)
        settle(s, op->aux[j], SPLIT_COLUMNS);
    tape_op(s->t, *op);
}

/* ---- the tape ---- */

static void rewrite(Splitter *s, TapeOp op)
{
    take_inputs(s, &op);
    if (op.tp == TP_GATHER)
        gather_kept(s, &op);
    else if (op.tp == TP_JOIN)
        join(s, &op);
    else if (op.tp != TP_FOLLOW)
        split_op(s, &op);
    else if (op.kind == OP_CROSS_ENTROPY && split_of(s, op.in[0]) == SPLIT_COLUMNS)
        vocabulary_loss(s, &op);
    else
        follow(s, &op);
    note_repeated(s, &op);
}

/* Memory for values that ops still to come may add: `entered` is looked up by new values too. */
static void start(Splitter *s, uint32_t ops_n)
{
    Tape *t = s->t;
    uint32_t most = s->most = t->values_n + 8 * ops_n + 8;
    s->now = mem_zero(t->values_n, sizeof *s->now);
    s->entered = mem_zero(most, sizeof *s->entered);
    s->repeats = mem_zero(most, sizeof *s->repeats);
    for (uint32_t v = 0; v < most; v++)
        s->entered[v] = NONE_U32;
    for (uint32_t v = 0; v < t->values_n; v++)
        s->now[v] = v;
    if (t->in != NONE_U32)
        settle(s, t->in, t->values[t->in].split);
}

bool tensor_split(Build *b, Tape *t, Err *err)
{
    const Parallel *p = &b->s->parallel;
    if (p->tp == 1)
        return true;
    Splitter s = {
        .t = t, .tp = p->tp, .keeps = b->sw->tp_keeps_gathered, .err = err, .ok = true
    };
    if (b->s->model.kind == MODEL_TRANSFORMER) {
        s.rows = p->sequence_parallel;
        s.kv_heads = b->s->model.u.transformer.kv_heads;
        if (s.kv_heads < s.tp && s.tp % s.kv_heads != 0)
            return err_set(err,
                           "tp = %" PRIu32 " is not a multiple of the %" PRIu64
                           " key and value heads",
                           p->tp, s.kv_heads);
    }
    TapeOp *ops = t->ops;
    uint32_t ops_n = t->ops_n;
    t->ops = NULL;
    t->ops_n = t->ops_cap = 0;
    start(&s, ops_n);
    for (uint32_t i = 0; i < ops_n && s.ok; i++)
        rewrite(&s, ops[i]);
    if (s.ok && t->out != NONE_U32) {
        t->out = s.now[t->out];
        if (split_of(&s, t->out) == SPLIT_PARTIAL)
            t->out = leave(&s, t->out);
    }
    free(ops);
    free(s.now);
    free(s.entered);
    free(s.repeats);
    return s.ok;
}

/*
 * kernels_loss.c - both ends of the network: rows of tables, and the losses.
 *
 * A loss adds its terms, undivided, to env->loss, and writes gradients already divided by
 * facts.loss_terms, so that every sum over micro-batches and ranks is plain.
 *
 *     mse             terms (p - t)^2             dp = 2 (p - t)/terms
 *     cross entropy   terms log sum exp(x) - x_t  dx = (softmax(x) - [c = t])/terms, in place of x
 *
 * Over a vocabulary shared out in tp, a rank adds the terms of the targets that it holds.
 */
#include "exec/kernel_parts.h"

#include <math.h>

/* ---- tables ---- */

/* A row of a table into y, or onto it. */
static void take_row(const KernelEnv *env, const Buffer *table, uint64_t row, float *y,
                     uint64_t columns, bool adds)
{
    float temp[CHUNK];
    for (uint64_t i = 0, n; i < columns; i += n) {
        n = min_u64(CHUNK, columns - i);
        const float *x = chunk_read(env, table, row * columns + i, n, temp);
        for (uint64_t k = 0; k < n; k++)
            y[i + k] = adds ? y[i + k] + x[k] : x[k];
    }
}

/* Row of the table for a token; false: another rank has it. */
static bool row_of_token(const KernelEnv *env, int64_t token, uint64_t rows, uint64_t *row)
{
    int64_t at = token - (int64_t)env->facts.vocab_first;
    *row = (uint64_t)at;
    return at >= 0 && (uint64_t)at < rows;
}

bool is_table_of_types(const Program *p, const Buffer *table)
{
    static const char types[] = "token_types";
    return strncmp(program_text(p, table->name), types, sizeof types - 1) == 0;
}

/* Row of the table for row r of this rank's rows: its position, or (no types in the data)
 * token type 0. */
static uint64_t row_of_place(const Call *c, const Buffer *table, uint64_t r)
{
    const ModelFacts *f = &c->env->facts;
    if (is_table_of_types(c->p, table))
        return 0;
    uint64_t first = (uint64_t)f->rows_index * c->op->u.rows.rows;
    return f->position_first + (first + r) % f->seq_len;
}

/* tokens table -> y;  y* table */
static void embedding_forward(Call *c, uint64_t columns)
{
    bool places = c->n == 2;
    const Buffer *table = &c->b[1];
    float *y = c->x[places ? 0 : 2];
    for (uint64_t r = 0; r < c->op->u.rows.rows; r++) {
        uint64_t row = places ? row_of_place(c, table, r) : 0;
        bool here = places || row_of_token(c->env, buffer_i64(c->env, &c->b[0])[r],
                                           table->elements / columns, &row);
        if (here)
            take_row(c->env, table, row, y + r * columns, columns, places);
        else
            memset(y + r * columns, 0, columns * sizeof *y);
    }
}

/* Row r of dy belongs to this row of the table; false: to none here. */
static bool row_of_gradient(const Call *c, const Buffer *table, uint64_t r, uint64_t columns,
                            uint64_t *row)
{
    if (c->n == 3)
        return row_of_token(c->env, buffer_i64(c->env, &c->b[1])[r], table->elements / columns,
                            row);
    *row = row_of_place(c, table, r);
    return true;
}

/* dy tokens -> dtable*;  dy -> dtable.  In f32, and rounded once. */
static void embedding_backward(Call *c, uint64_t columns)
{
    const Buffer *table = &c->b[c->n - 1];
    float *dtable = c->x[c->n - 1];
    if (table->mode == ARG_WRITE)
        memset(dtable, 0, table->elements * sizeof *dtable);
    for (uint64_t r = 0; r < c->op->u.rows.rows; r++) {
        uint64_t row;
        if (!row_of_gradient(c, table, r, columns, &row))
            continue;
        const float *dy = c->x[0] + r * columns;
        for (uint64_t i = 0; i < columns; i++)
            dtable[row * columns + i] += dy[i];
    }
}

void kernel_embedding(KernelEnv *env, const Program *p, const Task *t)
{
    Call c = call_open(env, p, t, CALL_WHOLLY, 0);
    if (op_is_forward(t->op))
        embedding_forward(&c, t->op->u.rows.columns);
    else
        embedding_backward(&c, t->op->u.rows.columns);
    call_close(&c);
}

/* ---- losses ---- */

static void add_loss(KernelEnv *env, double sum, float *loss)
{
    env->loss += sum / (double)max_u64(1, env->facts.loss_copies);
    *loss = (float)(sum / (double)max_u64(1, env->facts.loss_terms));
}

/* forward: prediction targets -> loss;  dgrad: ... -> dprediction */
void kernel_mse(KernelEnv *env, const Program *p, const Task *t)
{
    Call c = call_open(env, p, t, CALL_WHOLLY, 0);
    const float *x = c.x[0], *target = c.x[1];
    float *dx = c.x[2], by = (float)(2 / (double)max_u64(1, env->facts.loss_terms));
    uint64_t n = c.b[0].elements;
    double sum = 0;
    for (uint64_t i = 0; op_is_forward(t->op) && i < n; i++)
        sum += ((double)x[i] - (double)target[i]) * ((double)x[i] - (double)target[i]);
    for (uint64_t i = 0; !op_is_forward(t->op) && i < n; i++)
        dx[i] = (x[i] - target[i]) * by;
    if (op_is_forward(t->op))
        add_loss(env, sum, dx);
    call_close(&c);
}

Logits logits_of(const ModelFacts *f, const Task *t, const Buffer *x)
{
    Logits l = { .rows = t->op->u.rows.rows, .first = f->vocab_first };
    l.columns = x->elements / l.rows;
    uint64_t known = f->vocab > f->vocab_first ? f->vocab - f->vocab_first : 0;
    l.n = f->vocab ? min_u64(l.columns, known) : l.columns;
    l.by = (float)(1 / (double)max_u64(1, f->loss_terms));
    return l;
}

static bool holds(const Logits *l, int64_t target)
{
    return target >= l->first && (uint64_t)(target - l->first) < l->n;
}

/* The gradient in place of the logits. */
static void logits_back(const Logits *l, float *x, int64_t target, float top, double sum)
{
    float by = target < 0 ? 0 : (float)((double)l->by / sum);
    uint64_t n = by == 0 ? 0 : l->n;
    row_exp(x, top, by, n);
    memset(x + n, 0, (l->columns - n) * sizeof *x);
    if (holds(l, target))
        x[target - l->first] -= l->by;
}

/* logits* targets -> loss */
static void loss_of_rows(Call *c, const Logits *l)
{
    const int64_t *targets = buffer_i64(c->env, &c->b[1]);
    double loss = 0;
    for (uint64_t r = 0; r < l->rows; r++) {
        float *x = c->x[0] + r * l->columns, top = row_max(x, l->n);
        double sum = row_sum_of_exp(x, top, l->n);
        if (holds(l, targets[r]))
            loss += log(sum) - ((double)x[targets[r] - l->first] - (double)top);
        logits_back(l, x, targets[r], top, sum);
    }
    add_loss(c->env, loss, c->x[2]);
}

/* logits* targets maximum sums -> loss */
static void loss_over_tp(Call *c, const Logits *l)
{
    const int64_t *targets = buffer_i64(c->env, &c->b[1]);
    double loss = 0;
    for (uint64_t r = 0; r < l->rows; r++) {
        const float *sums = c->x[3] + 2 * r;
        if (holds(l, targets[r]))
            loss += log((double)sums[0]) - (double)sums[1];
        logits_back(l, c->x[0] + r * l->columns, targets[r], c->x[2][r], (double)sums[0]);
    }
    add_loss(c->env, loss, c->x[4]);
}

/* logits -> maximum */
static void maxima(Call *c, const Logits *l)
{
    for (uint64_t r = 0; r < l->rows; r++)
        c->x[1][r] = row_max(c->x[0] + r * l->columns, l->n);
}

/* logits targets maximum -> sums */
static void sums_over_tp(Call *c, const Logits *l)
{
    const int64_t *targets = buffer_i64(c->env, &c->b[1]);
    for (uint64_t r = 0; r < l->rows; r++) {
        const float *x = c->x[0] + r * l->columns;
        float top = c->x[2][r], *sums = c->x[3] + 2 * r;
        sums[0] = (float)row_sum_of_exp(x, top, l->n);
        sums[1] = holds(l, targets[r]) ? x[targets[r] - l->first] - top : 0;
    }
}

void kernel_cross_entropy(KernelEnv *env, const Program *p, const Task *t)
{
    typedef void Rule(Call * c, const Logits *l);
    static Rule *const rules[] = {
        NULL, NULL, maxima, loss_of_rows, sums_over_tp, loss_over_tp
    };
    ASSERT(t->args_n < ARRAY_N(rules) && rules[t->args_n]); /* a fused loss */
    Call c = call_open(env, p, t, CALL_WHOLLY, 0);
    Logits l = logits_of(&env->facts, t, &c.b[0]);
    rules[t->args_n](&c, &l);
    call_close(&c);
}

/*
 * kernels_pointwise.c - what treats every number by itself: sums, biases, rotary positions,
 * fills, copies and casts.  Activations: kernels_activation.c.
 *
 * Copies know three shapes: tensor by tensor; several flattened into one and back;
 * and, around the buffers of ZeRO, this rank's part of a tensor, which lies at the same
 * place in the tensor and in the buffer, and at the start of a gradient shard.
 */
#include "exec/kernel_parts.h"

#include <math.h>

/* ---- pairs of tensors, in chunks ---- */

static void clear(const KernelEnv *env, const Buffer *b, uint64_t at, uint64_t n)
{
    uint64_t each = dtype_bytes(b->dtype);
    ASSERT(at + n <= b->elements);
    memset(buffer_data(env, b) + at * each, 0, n * each);
}

static void copy_pair(const KernelEnv *env, Pair p)
{
    float temp[CHUNK];
    ASSERT(p.from_at + p.n <= p.from->elements && p.to_at + p.n <= p.to->elements);
    if (p.from->dtype == p.to->dtype) {
        uint64_t each = dtype_bytes(p.to->dtype);
        memmove(buffer_data(env, p.to) + p.to_at * each,
                buffer_data(env, p.from) + p.from_at * each, p.n * each);
        return;
    }
    for (uint64_t i = 0, n; i < p.n; i += n) {
        n = min_u64(CHUNK, p.n - i);
        const float *x = chunk_read(env, p.from, p.from_at + i, n, temp);
        numbers_narrow(p.to->dtype, x, n,
                       buffer_data(env, p.to) + (p.to_at + i) * dtype_bytes(p.to->dtype));
    }
}

/* to += from */
static void add_pair(const KernelEnv *env, Pair p)
{
    float temp[CHUNK], sum[CHUNK];
    for (uint64_t i = 0, n; i < p.n; i += n) {
        n = min_u64(CHUNK, p.n - i);
        const float *x = chunk_read(env, p.from, p.from_at + i, n, temp);
        const float *old = chunk_read(env, p.to, p.to_at + i, n, sum);
        float *y = chunk_place(env, p.to, p.to_at + i, n, sum);
        for (uint64_t k = 0; k < n; k++)
            y[k] = old[k] + x[k];
        chunk_written(env, p.to, p.to_at + i, n, sum);
    }
}

Pair pair_of(const ModelFacts *f, const Task *t, const Buffer *from, const Buffer *to)
{
    uint64_t index = f->shard_index, each = t->op->u.elements;
    Pair p = { from, to, 0, 0, min_u64(from->elements, to->elements) };
    if (f->shard_n <= 1 || t->op->phase != PHASE_UPDATE)
        return p;
    bool to_shard = to->slot == SLOT_GRAD_SHARD && from->elements > to->elements;
    bool to_part = to->slot == SLOT_GRAD && to->mode == ARG_UPDATE && t->op->kind != OP_ADD;
    bool from_part = from->slot == SLOT_PARAM && each < from->elements;
    if (!to_shard && !to_part && !from_part)
        return p;
    uint64_t whole = from_part ? from->elements : to->elements, first = index * each;
    p.from_at = first;
    p.to_at = to_shard ? 0 : first;
    p.n = to_shard ? each : min_u64(each, whole - min_u64(first, whole));
    p.from_at = p.n ? p.from_at : 0;
    p.to_at = p.n ? p.to_at : 0;
    return p;
}

/* A gradient that goes into a longer buffer leaves no garbage behind it. */
bool pair_pads(const ModelFacts *f, const Task *t, Pair p)
{
    bool whole = p.from_at == 0 && p.n == p.from->elements && p.to->mode == ARG_WRITE;
    return t->op->phase == PHASE_UPDATE && f->shard_n > 1 && whole;
}

/* ---- copies ---- */

uint64_t place_in_layout(const Program *p, const Task *t, const Buffer *b)
{
    const Graph *g = p->graph;
    uint32_t layout = g->segments[t->instance->segment].layout[b->slot];
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < b->tensor; i++)
        bytes += g->tensors[g->layouts[layout].tensor_first + i].bytes;
    return bytes / dtype_bytes(b->dtype);
}

static void flatten(const KernelEnv *env, const Buffer *b, uint32_t reads)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < reads; i++) {
        copy_pair(env, (Pair){ &b[i], &b[reads], 0, at, b[i].elements });
        at += b[i].elements;
    }
}

/* x ... -> y ...;  x ... -> flat;  flat -> x.  Casts are the same. */
void kernel_copy(KernelEnv *env, const Program *p, const Task *t)
{
    const Buffer *b = task_args(p, t);
    uint32_t reads = call_reads(b, t->args_n), writes = t->args_n - reads;
    if (reads != writes) {
        ASSERT(writes == 1);
        flatten(env, b, reads);
        return;
    }
    if (reads == 1 && t->op->phase != PHASE_UPDATE && b[0].elements > b[1].elements) {
        uint64_t at = place_in_layout(p, t, &b[1]);
        copy_pair(env, (Pair){ &b[0], &b[1], at, 0, b[1].elements });
        return;
    }
    for (uint32_t i = 0; i < reads; i++) {
        Pair pair = pair_of(&env->facts, t, &b[i], &b[reads + i]);
        copy_pair(env, pair);
        if (pair_pads(&env->facts, t, pair))
            clear(env, pair.to, pair.n, pair.to->elements - pair.n);
    }
}

void kernel_fill(KernelEnv *env, const Program *p, const Task *t)
{
    for (uint32_t i = 0; i < t->args_n; i++) {
        const Buffer *b = &task_args(p, t)[i];
        clear(env, b, 0, b->elements);
    }
}

/* ---- sums ---- */

/* x r [b] -> y */
static void add_to(KernelEnv *env, const Program *p, const Task *t)
{
    Call c = call_open(env, p, t, CALL_WHOLLY, 0);
    const float *x = c.x[0], *r = c.x[1], *b = c.n == 4 ? c.x[2] : NULL;
    float *y = c.x[c.n - 1];
    uint64_t n = c.b[0].elements, columns = b ? c.b[2].elements : n;
    for (uint64_t row = 0; row < n; row += columns)
        for (uint64_t i = 0; i < columns; i++)
            y[row + i] = x[row + i] + (b ? r[row + i] + b[i] : r[row + i]);
    call_close(&c);
}

/* x* ... r ..., or r ... x* ... : each x += r */
void kernel_add(KernelEnv *env, const Program *p, const Task *t)
{
    const Buffer *b = task_args(p, t);
    uint32_t half = t->args_n / 2;
    if (b[t->args_n - 1].mode == ARG_WRITE) {
        add_to(env, p, t);
        return;
    }
    bool first = b[0].mode == ARG_UPDATE;
    for (uint32_t i = 0; i < half; i++) {
        const Buffer *to = &b[first ? i : half + i], *from = &b[first ? half + i : i];
        add_pair(env, pair_of(&env->facts, t, from, to));
    }
}

/* forward: y* b;  wgrad: dy -> db */
void kernel_bias(KernelEnv *env, const Program *p, const Task *t)
{
    uint64_t rows = t->op->u.rows.rows, columns = t->op->u.rows.columns;
    Call c = call_open(env, p, t, CALL_WHOLLY, columns * sizeof(double));
    if (op_is_forward(t->op)) {
        for (uint64_t r = 0; r < rows; r++)
            for (uint64_t i = 0; i < columns; i++)
                c.x[0][r * columns + i] += c.x[1][i];
    } else {
        memset(c.extra, 0, columns * sizeof(double));
        sum_rows(c.extra, c.x[0], rows, columns);
        put_sums(c.x[1], c.extra, columns, c.b[1].mode);
    }
    call_close(&c);
}

/* ---- rotary positions ---- */

/* turn: of one position, cosines and then sines of width/2 angles; sign -1 turns back. */
static void turn_row(float *x, uint64_t heads, uint64_t width, const float *turn, float sign)
{
    uint64_t half = width / 2;
    for (uint64_t h = 0; h < heads; h++, x += width)
        for (uint64_t i = 0; i < half; i++) {
            float a = x[i], b = x[half + i], cosine = turn[i], sine = sign * turn[half + i];
            x[i] = a * cosine - b * sine;
            x[half + i] = b * cosine + a * sine;
        }
}

/* qkv*, or qk*: the heads of q and k are turned by their position, pairs (i, i + width/2). */
void kernel_rope(KernelEnv *env, const Program *p, const Task *t)
{
    const ModelFacts *f = &env->facts;
    uint64_t width = f->head_dim, half = width / 2, heads = f->heads + f->kv_heads;
    Call c = call_open(env, p, t, CALL_WHOLLY, half * sizeof(double) + width * sizeof(float));
    double *speed = c.extra;
    float *turn = (float *)(speed + half);
    uint64_t rows = t->op->u.rows.rows, stride = c.b[0].elements / rows;
    for (uint64_t i = 0; i < half; i++)
        speed[i] = pow(f->rope_theta, -(double)(2 * i) / (double)width);
    for (uint64_t at = 0; at < f->seq_len && at < rows; at++) {
        for (uint64_t i = 0; i < half; i++) {
            double angle = (double)(f->position_first + at) * speed[i];
            turn[i] = (float)cos(angle);
            turn[half + i] = (float)sin(angle);
        }
        for (uint64_t r = at; r < rows; r += f->seq_len)
            turn_row(c.x[0] + r * stride, heads, width, turn, op_is_forward(t->op) ? 1 : -1);
    }
    call_close(&c);
}

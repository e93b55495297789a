/*
 * backend_cuda_ops.c - launches of pointwise ops, norms, losses and updates.
 *
 * Each function reads a task as the CPU's kernel of the same op does (exec/kernel_args.h) and
 * calls exec/cuda_kernels.h.  GO leaves the call out while planning: then only the scratch and
 * the tables that were asked for count.
 */
#include "exec/backend_cuda_parts.h"

#include <stdlib.h>
#include <string.h>

#include "exec/kernel_table.h"

#define CUDA_LAUNCH(kind, cpu, cuda) [kind] = cuda,
CudaLaunch *const cuda_launches[OP_KIND_N] = { KERNEL_TABLE(CUDA_LAUNCH) };

/* ---- memory ---- */

void *scratch(CudaEnv *env, uint64_t bytes)
{
    uint64_t at = env->used_bytes;
    env->used_bytes += div_up_u64(bytes, SCRATCH_ALIGN) * SCRATCH_ALIGN;
    if (env->planning)
        env->scratch_bytes = max_u64(env->scratch_bytes, env->used_bytes);
    ASSERT(env->used_bytes <= env->scratch_bytes);
    return env->scratch + at;
}

NumType num_type(DType t)
{
    ASSERT(t <= DTYPE_BF16);
    return t == DTYPE_F16 ? NUM_F16 : t == DTYPE_BF16 ? NUM_BF16 : NUM_F32;
}

Vec vec_at(const CudaEnv *env, const Buffer *b, uint64_t first)
{
    ASSERT(first <= b->elements);
    return (Vec){ env->arena + b->offset + first * dtype_bytes(b->dtype), num_type(b->dtype) };
}

Vec vec_of(const CudaEnv *env, const Buffer *b)
{
    return vec_at(env, b, 0);
}

static float *f32_of(const CudaEnv *env, const Buffer *b)
{
    ASSERT(!b || b->dtype == DTYPE_F32);
    return b ? vec_of(env, b).at : NULL;
}

static const int64_t *i64_of(const CudaEnv *env, const Buffer *b)
{
    ASSERT(b->dtype == DTYPE_I64);
    return (const int64_t *)(const void *)(env->arena + b->offset);
}

void lacks(CudaEnv *env, const char *what, uint64_t is, uint64_t most)
{
    env->failed = true;
    err_set(env->err,
            "the cuda backend has no kernel for %s %" PRIu64 ", up to %" PRIu64 " is allowed",
            what, is, most);
}

/* ---- tables ---- */

/* Where the rows of a task lie on the device; they are looked at while planning only. */
static const Slice *table(CudaEnv *env, const Program *p, const Task *t, const Slice *rows,
                          uint32_t n)
{
    CudaTables *x = env->tables;
    uint32_t i = (uint32_t)(t - p->tasks);
    if (env->planning) {
        x->first[i] = x->rows_n;
        for (uint32_t k = 0; k < n; k++) {
            GROW(x->rows, x->rows_n, x->rows_cap);
            x->rows[x->rows_n++] = rows[k];
        }
        return NULL;
    }
    ASSERT(x->first[i] != NONE_U32);
    return x->device + x->first[i];
}

static Slices slices(CudaEnv *env, const Program *p, const Task *t, Slice *rows, uint32_t n)
{
    uint32_t blocks = cuda_slices_count(rows, n);
    return (Slices){ table(env, p, t, rows, n), n, blocks };
}

static void one_slice(Slice *rows, uint32_t *n, Vec a, Vec b, uint64_t count)
{
    if (count > 0)
        rows[(*n)++] = (Slice){ .a = a, .b = b, .n = count };
}

static Slice *slices_new(const Task *t)
{
    return mem_zero(2 * (size_t)t->args_n + 1, sizeof(Slice));
}

/* ---- copies, sums, fills ---- */

static void pair_slice(const CudaEnv *env, Slice *rows, uint32_t *n, Pair p)
{
    ASSERT(p.from_at + p.n <= p.from->elements && p.to_at + p.n <= p.to->elements);
    one_slice(rows, n, vec_at(env, p.from, p.from_at), vec_at(env, p.to, p.to_at), p.n);
}

/* What of a longer buffer must be cleared behind what was copied. */
static void pad_slice(const CudaEnv *env, Slice *rows, uint32_t *n, Pair p)
{
    Vec rest = vec_at(env, p.to, p.n);
    one_slice(rows, n, rest, (Vec){ NULL, NUM_F32 }, p.to->elements - p.n);
}

static void flatten(const CudaEnv *env, const Buffer *b, uint32_t reads, Slice *rows,
                    uint32_t *n)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < reads; i++) {
        pair_slice(env, rows, n, (Pair){ &b[i], &b[reads], 0, at, b[i].elements });
        at += b[i].elements;
    }
}

/* Copies stand first in rows, paddings behind them. */
static uint32_t copy_slices(const CudaEnv *env, const Program *p, const Task *t, Slice *rows,
                            uint32_t *pads)
{
    const Buffer *b = task_args(p, t);
    uint32_t reads = call_reads(b, t->args_n), writes = t->args_n - reads, n = 0;
    *pads = 0;
    if (reads != writes) {
        ASSERT(writes == 1);
        flatten(env, b, reads, rows, &n);
        return n;
    }
    if (reads == 1 && t->op->phase != PHASE_UPDATE && b[0].elements > b[1].elements) {
        uint64_t at = place_in_layout(p, t, &b[1]);
        pair_slice(env, rows, &n, (Pair){ &b[0], &b[1], at, 0, b[1].elements });
        return n;
    }
    for (uint32_t i = 0; i < reads; i++)
        pair_slice(env, rows, &n, pair_of(&env->facts, t, &b[i], &b[reads + i]));
    uint32_t copies = n;
    for (uint32_t i = 0; i < reads; i++) {
        Pair pair = pair_of(&env->facts, t, &b[i], &b[reads + i]);
        if (pair_pads(&env->facts, t, pair))
            pad_slice(env, rows, &n, pair);
    }
    *pads = n - copies;
    return copies;
}

/* x ... -> y ...;  x ... -> flat;  flat -> x.  Casts are the same. */
void launch_copy(CudaEnv *env, const Program *p, const Task *t)
{
    Slice *rows = slices_new(t);
    uint32_t pads_n, n = copy_slices(env, p, t, rows, &pads_n);
    Slices copies = { .n = n, .blocks = cuda_slices_count(rows, n) };
    Slices pads = { .n = pads_n, .blocks = cuda_slices_count(rows + n, pads_n) };
    copies.at = table(env, p, t, rows, n + pads_n);
    pads.at = copies.at ? copies.at + n : NULL;
    GO(env, cuda_copy(copies, env->stream));
    GO(env, cuda_fill(pads, env->stream));
    free(rows);
}

void launch_fill(CudaEnv *env, const Program *p, const Task *t)
{
    Slice *rows = slices_new(t);
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->args_n; i++) {
        const Buffer *b = &task_args(p, t)[i];
        one_slice(rows, &n, vec_of(env, b), (Vec){ NULL, NUM_F32 }, b->elements);
    }
    Slices all = slices(env, p, t, rows, n);
    GO(env, cuda_fill(all, env->stream));
    free(rows);
}

/* x* ... r ..., or r ... x* ... : each x += r;  x r [b] -> y */
void launch_add(CudaEnv *env, const Program *p, const Task *t)
{
    const Buffer *b = task_args(p, t);
    uint32_t half = t->args_n / 2, n = 0;
    if (b[t->args_n - 1].mode == ARG_WRITE) {
        Vec bias = t->args_n == 4 ? vec_of(env, &b[2]) : (Vec){ NULL, NUM_F32 };
        uint64_t columns = t->args_n == 4 ? b[2].elements : b[0].elements;
        GO(env, cuda_add(vec_of(env, &b[0]), vec_of(env, &b[1]), bias,
                         vec_of(env, &b[t->args_n - 1]), b[0].elements, columns, env->stream));
        return;
    }
    Slice *rows = slices_new(t);
    bool first = b[0].mode == ARG_UPDATE;
    for (uint32_t i = 0; i < half; i++) {
        const Buffer *to = &b[first ? i : half + i], *from = &b[first ? half + i : i];
        pair_slice(env, rows, &n, pair_of(&env->facts, t, from, to));
    }
    Slices all = slices(env, p, t, rows, n);
    GO(env, cuda_sum(all, env->stream));
    free(rows);
}

/* forward: y* b;  wgrad: dy -> db */
void launch_bias(CudaEnv *env, const Program *p, const Task *t)
{
    const Buffer *b = task_args(p, t);
    uint64_t rows = t->op->u.rows.rows, columns = t->op->u.rows.columns;
    Vec first = vec_of(env, &b[0]), second = vec_of(env, &b[1]);
    if (op_is_forward(t->op)) {
        GO(env, cuda_bias(first, second, rows, columns, env->stream));
        return;
    }
    float *sums = scratch(env, cuda_sums_scratch(rows, columns) * sizeof(float));
    GO(env, cuda_column_sums(first, rows, columns, second, b[1].mode == ARG_UPDATE, sums,
                             env->stream));
}

/* qkv*, or qk* */
void launch_rope(CudaEnv *env, const Program *p, const Task *t)
{
    const ModelFacts *f = &env->facts;
    const Buffer *b = task_args(p, t);
    Rope r = { .rows = t->op->u.rows.rows,
               .stride = b->elements / t->op->u.rows.rows,
               .heads = f->heads + f->kv_heads,
               .width = f->head_dim,
               .seq_len = f->seq_len,
               .position_first = f->position_first,
               .sign = op_is_forward(t->op) ? 1 : -1,
               .theta = f->rope_theta };
    GO(env, cuda_rope(r, vec_of(env, b), env->stream));
}

/* ---- activations ---- */

CurveKind curve_of(const CudaEnv *env, OpFn fn)
{
    switch (fn) {
    case FN_RELU:
        return CURVE_RELU;
    case FN_RELU2:
        return CURVE_RELU2;
    case FN_SILU:
    case FN_GATED_SILU:
        return CURVE_SILU;
    default:
        ASSERT(fn == FN_GELU || fn == FN_GATED_GELU);
        return env->facts.gelu_tanh ? CURVE_GELU_TANH : CURVE_GELU;
    }
}

/* x [b] -> y, or x*;  dy x -> dx */
void launch_activation(CudaEnv *env, const Program *p, const Task *t)
{
    const Buffer *b = task_args(p, t);
    OpFn fn = t->op->fn;
    Activation a = { .curve = curve_of(env, fn),
                     .gated = fn == FN_GATED_GELU || fn == FN_GATED_SILU,
                     .rows = t->op->u.rows.rows,
                     .columns = t->op->u.rows.columns };
    Vec x = vec_of(env, &b[0]), last = vec_of(env, &b[t->args_n - 1]);
    if (op_is_forward(t->op)) {
        bool biased = call_reads(b, t->args_n) == 2;
        Vec bias = biased ? vec_of(env, &b[1]) : (Vec){ NULL, NUM_F32 };
        if (!a.gated && !biased) /* the shape may leave rows out, the tensor does not */
            a = (Activation){ a.curve, false, 1, b[0].elements };
        GO(env, cuda_activation(a, x, bias, last, env->stream));
        return;
    }
    if (!a.gated)
        a = (Activation){ a.curve, false, 1, b[0].elements };
    GO(env, cuda_activation_back(a, x, vec_of(env, &b[1]), last, env->stream));
}

/* ---- norms ---- */

static bool is_rms(OpFn fn)
{
    return fn == FN_RMSNORM || fn == FN_ADD_RMSNORM;
}

static bool adds_residual(OpFn fn)
{
    return fn == FN_ADD_LAYERNORM || fn == FN_ADD_RMSNORM;
}

static Norm norm_of(const CudaEnv *env, const Op *op, const Buffer *x, const Buffer *stats)
{
    uint64_t rows = op->u.rows.rows;
    uint32_t vectors = (uint32_t)(stats->elements / (rows * (is_rms(op->fn) ? 1 : 2)));
    return (Norm){ .rows = rows,
                   .width = op->u.rows.columns / vectors,
                   .vectors = vectors,
                   .n = vectors,
                   .x_stride = x->elements / rows,
                   .stride = op->u.rows.columns,
                   .rms = is_rms(op->fn),
                   .eps = (float)env->facts.norm_eps };
}

static bool check_width(CudaEnv *env, const Norm *s)
{
    if (s->width > NORM_WIDTH_MAX)
        lacks(env, "a norm of width", s->width, NORM_WIDTH_MAX);
    return s->width <= NORM_WIDTH_MAX;
}

/* q's vectors (kind 0), then k's. */
static Norm norm_kind(const CudaEnv *env, Norm s, uint32_t kind)
{
    if (s.vectors == 1)
        return s;
    s.first = kind ? env->facts.heads : 0;
    s.n = kind ? s.vectors - env->facts.heads : env->facts.heads;
    return s;
}

/* x [gain [shift]] -> y stats;  add: x r [b] [gain [shift]] -> [s] y stats */
static void norm_forward(CudaEnv *env, const Program *p, const Task *t)
{
    const Buffer *b = task_args(p, t);
    uint32_t n = t->args_n, reads = call_reads(b, n), at = adds_residual(t->op->fn) ? 2 : 1;
    Norm s = norm_of(env, t->op, &b[0], &b[n - 1]);
    NormArgs a = { .x = vec_of(env, &b[0]),
                   .y = vec_of(env, &b[n - 2]),
                   .stats = vec_of(env, &b[n - 1]) };
    if (!check_width(env, &s))
        return;
    if (at == 2) {
        a.r = vec_of(env, &b[1]);
        if (at < reads && is_bias_row(p, &b[at]))
            a.b = vec_of(env, &b[at++]);
        if (n - reads == 3)
            a.sum = vec_of(env, &b[reads]);
    }
    bool two = s.vectors > 1, shifts = two ? reads - at == 4 : reads - at == 2;
    for (uint32_t kind = 0; kind < (two ? 2u : 1u); kind++) {
        if (at < reads) {
            a.gain = vec_of(env, &b[at]);
            a.shift = shifts ? vec_of(env, &b[at + 1]) : (Vec){ NULL, NUM_F32 };
        }
        uint32_t next = at + (shifts ? 2 : 1);
        at = next < reads ? next : at; /* k without a gain of its own has q's */
        GO(env, cuda_norm(norm_kind(env, s, kind), a, env->stream));
    }
}

typedef struct NormBack {
    Norm s;
    NormBackArgs a;
    Vec gain[2];
    uint32_t reads, results; /* arguments read; gradients of gains */
} NormBack;

static void find_gains(const CudaEnv *env, const Program *p, const Task *t, NormBack *x)
{
    const Buffer *b = task_args(p, t);
    uint32_t gains = x->reads - 3 - adds_residual(t->op->fn);
    const Buffer *k = gains > 1 ? &b[4] : NULL;
    if (gains == 0)
        return;
    if (gains == 1 && x->s.vectors > 1) {
        k = gain_of_k(p, t, &b[3], x->results / 2);
        ASSERT(k); /* forward came before */
    }
    x->gain[0] = vec_of(env, &b[3]);
    x->gain[1] = vec_of(env, k ? k : &b[3]);
}

/* dy x stats [gain [gain of k]] [ds] -> dx [dgain [dshift]], or those of q and then of k */
static void norm_backward(CudaEnv *env, const Program *p, const Task *t)
{
    const Buffer *b = task_args(p, t);
    NormBack x = { .s = norm_of(env, t->op, &b[1], &b[2]), .reads = call_reads(b, t->args_n) };
    x.results = t->args_n - x.reads - 1;
    x.s.dx_stride = b[x.reads].elements / x.s.rows;
    x.a = (NormBackArgs){ .dy = vec_of(env, &b[0]),
                          .x = vec_of(env, &b[1]),
                          .stats = vec_of(env, &b[2]),
                          .dx = vec_of(env, &b[x.reads]) };
    if (!check_width(env, &x.s))
        return;
    if (adds_residual(t->op->fn))
        x.a.ds = vec_of(env, &b[x.reads - 1]);
    find_gains(env, p, t, &x);
    uint32_t kinds = x.s.vectors > 1 ? 2 : 1, each = x.results / kinds;
    x.a.scratch = scratch(env, cuda_norm_scratch(x.s) * sizeof(float));
    for (uint32_t kind = 0; kind < kinds; kind++) {
        const Buffer *to = &b[x.reads + 1 + kind * each];
        x.a.gain = x.gain[kind];
        if (each > 0) {
            x.a.dgain = vec_of(env, &to[0]);
            x.a.gain_adds = to[0].mode == ARG_UPDATE;
        }
        if (each > 1) {
            x.a.dshift = vec_of(env, &to[1]);
            x.a.shift_adds = to[1].mode == ARG_UPDATE;
        }
        GO(env, cuda_norm_back(norm_kind(env, x.s, kind), x.a, env->stream));
    }
}

void launch_norm(CudaEnv *env, const Program *p, const Task *t)
{
    (op_is_forward(t->op) ? norm_forward : norm_backward)(env, p, t);
}

/* ---- batch norm ---- */

/* x gain shift -> y stats;  x -> stats and the number of rows;  x gain shift all -> y stats */
static void batch_forward(CudaEnv *env, BatchNorm s, const Buffer *b, uint32_t n)
{
    Vec x = vec_of(env, &b[0]), stats = vec_of(env, &b[n - 1]);
    if (n == 6) {
        s.ranks = b[3].elements / (2 * s.columns + 1);
        GO(env, cuda_batch_combine(s, vec_of(env, &b[3]), stats, env->stream));
    } else {
        bool count = n == 2 && b[1].elements > 2 * s.columns;
        GO(env, cuda_batch_measure(s, x, stats, count, env->stream));
    }
    if (n > 2)
        GO(env, cuda_batch_norm(s, x, stats, vec_of(env, &b[1]), vec_of(env, &b[2]),
                                vec_of(env, &b[n - 2]), env->stream));
}

/* dy x stats gain -> dx dgain dshift;  dy x stats -> dgain dshift sums;
 * dy x stats gain sums -> dx */
static void batch_backward(CudaEnv *env, BatchNorm s, const Buffer *b, uint32_t n)
{
    uint32_t reads = call_reads(b, n), gains = reads == 4 ? 5 : 3;
    Vec dy = vec_of(env, &b[0]), x = vec_of(env, &b[1]), stats = vec_of(env, &b[2]);
    if (reads == 5) {
        GO(env, cuda_batch_dx(s, dy, x, stats, vec_of(env, &b[3]), vec_of(env, &b[4]),
                              vec_of(env, &b[5]), env->stream));
        return;
    }
    Vec sums = reads == 4 ? (Vec){ scratch(env, 2 * s.columns * sizeof(float)), NUM_F32 }
                          : vec_of(env, &b[5]);
    s.ranks = 1;
    GO(env, cuda_batch_sums(s, dy, x, stats, sums, vec_of(env, &b[gains]),
                            b[gains].mode == ARG_UPDATE, vec_of(env, &b[gains + 1]),
                            b[gains + 1].mode == ARG_UPDATE, env->stream));
    if (reads == 4)
        GO(env, cuda_batch_dx(s, dy, x, stats, vec_of(env, &b[3]), sums, vec_of(env, &b[4]),
                              env->stream));
}

void launch_batchnorm(CudaEnv *env, const Program *p, const Task *t)
{
    BatchNorm s = { .rows = t->op->u.rows.rows,
                    .columns = t->op->u.rows.columns,
                    .ranks = max_u64(1, env->facts.batchnorm_ranks),
                    .eps = 1e-5 }; /* torch.nn.BatchNorm1d */
    (op_is_forward(t->op) ? batch_forward : batch_backward)(env, s, task_args(p, t), t->args_n);
}

/* ---- both ends ---- */

static Table table_of(const CudaEnv *env, const Program *p, const Task *t, const Buffer *table,
                      bool by_place)
{
    const ModelFacts *f = &env->facts;
    uint64_t rows = t->op->u.rows.rows, columns = t->op->u.rows.columns;
    return (Table){ .rows = rows,
                    .columns = columns,
                    .table_rows = table->elements / columns,
                    .first = f->vocab_first,
                    .seq_len = f->seq_len,
                    .row_first = (uint64_t)f->rows_index * rows,
                    .position_first = f->position_first,
                    .by_place = by_place,
                    .same_row = by_place && is_table_of_types(p, table) };
}

/* tokens table -> y;  y* table;  dy tokens -> dtable*;  dy -> dtable */
void launch_embedding(CudaEnv *env, const Program *p, const Task *t)
{
    const Buffer *b = task_args(p, t);
    bool by_place = t->args_n == 2;
    if (op_is_forward(t->op)) {
        Table s = table_of(env, p, t, &b[1], by_place);
        GO(env, cuda_embed(s, by_place ? NULL : i64_of(env, &b[0]), vec_of(env, &b[1]),
                           vec_of(env, &b[by_place ? 0 : 2]), env->stream));
        return;
    }
    const Buffer *to = &b[t->args_n - 1];
    Table s = table_of(env, p, t, to, by_place);
    int32_t *found = scratch(env, cuda_embed_scratch(s) * sizeof(int32_t));
    GO(env, cuda_embed_back(s, vec_of(env, &b[0]), by_place ? NULL : i64_of(env, &b[1]),
                            vec_of(env, to), to->mode != ARG_WRITE, found, env->stream));
}

static LossSum loss_of(const CudaEnv *env, const Buffer *value)
{
    const ModelFacts *f = &env->facts;
    return (LossSum){ .sum = env->loss,
                      .value = vec_of(env, value),
                      .copies = (double)max_u64(1, f->loss_copies),
                      .count = (double)max_u64(1, f->loss_terms) };
}

/* forward: prediction targets -> loss;  dgrad: ... -> dprediction */
void launch_mse(CudaEnv *env, const Program *p, const Task *t)
{
    const Buffer *b = task_args(p, t);
    Vec x = vec_of(env, &b[0]), target = vec_of(env, &b[1]);
    if (!op_is_forward(t->op)) {
        float by = (float)(2 / (double)max_u64(1, env->facts.loss_terms));
        GO(env, cuda_mse_back(x, target, vec_of(env, &b[2]), b[0].elements, by, env->stream));
        return;
    }
    double *terms = scratch(env, MSE_BLOCKS * sizeof(double));
    GO(env, cuda_mse(x, target, b[0].elements, loss_of(env, &b[2]), terms, env->stream));
}

/* logits* targets -> loss;  over tp: logits -> maximum;  logits targets maximum -> sums;
 * logits* targets maximum sums -> loss */
void launch_cross_entropy(CudaEnv *env, const Program *p, const Task *t)
{
    const Buffer *b = task_args(p, t);
    Logits l = logits_of(&env->facts, t, &b[0]);
    Vec x = vec_of(env, &b[0]);
    uint32_t n = t->args_n;
    ASSERT(n >= 2 && n <= 5); /* a fused loss */
    if (n == 2) {
        GO(env, cuda_logits_maximum(l, x, vec_of(env, &b[1]), env->stream));
        return;
    }
    const int64_t *targets = i64_of(env, &b[1]);
    if (n == 4) {
        GO(env, cuda_logits_sums(l, x, targets, vec_of(env, &b[2]), vec_of(env, &b[3]),
                                 env->stream));
        return;
    }
    double *terms = scratch(env, l.rows * sizeof(double));
    LossSum loss = loss_of(env, &b[n - 1]);
    if (n == 3)
        GO(env, cuda_cross_entropy(l, x, targets, loss, terms, env->stream));
    else
        GO(env, cuda_logits_back(l, x, targets, vec_of(env, &b[2]), vec_of(env, &b[3]), loss,
                                 terms, env->stream));
}

/* ---- the end of a step ---- */

/* This rank's part of each of n gradients. */
static uint32_t grad_slices(const CudaEnv *env, const Buffer *b, uint32_t n, Slice *rows,
                            bool counted)
{
    uint32_t rows_n = 0;
    for (uint32_t i = 0; i < n; i++) {
        Part part = own_part(&env->facts, &b[i]);
        if (counted && env->norm_counts)
            part.n = min_u64(part.n, env->norm_counts(env->norm_owners, &b[i]));
        if (part.n > 0)
            one_slice(rows, &rows_n, vec_at(env, &b[i], part.first), (Vec){ NULL, NUM_F32 },
                      part.n);
    }
    return rows_n;
}

/* grads ..., sum of squares* */
void launch_grad_norm(CudaEnv *env, const Program *p, const Task *t)
{
    const Buffer *b = task_args(p, t);
    uint32_t n = t->args_n - 1;
    Slice *rows = slices_new(t);
    Slices all = slices(env, p, t, rows, grad_slices(env, b, n, rows, true));
    double *sums = scratch(env, all.blocks * sizeof(double));
    GO(env, cuda_squares(all, vec_of(env, &b[n]), sums, env->stream));
    free(rows);
}

/* grads* ..., sum of squares */
void launch_scale(CudaEnv *env, const Program *p, const Task *t)
{
    const Buffer *b = task_args(p, t);
    uint32_t n = t->args_n - 1;
    Slice *rows = slices_new(t);
    Slices all = slices(env, p, t, rows, grad_slices(env, b, n, rows, false));
    GO(env, cuda_clip(all, vec_of(env, &b[n]), (float)env->hyper.grad_clip, env->stream));
    free(rows);
}

void cuda_rates(const Hyper *h, uint64_t step, Rates rates[CUDA_RATES_N])
{
    for (int i = 0; i < CUDA_RATES_N; i++)
        rates[i] = rates_of(h, (OpFn)(FN_SGD + i), step);
}

/* grads ..., states of the first, of the second ..., params* ... */
void launch_optimizer(CudaEnv *env, const Program *p, const Task *t)
{
    const Buffer *b = task_args(p, t);
    uint32_t n = call_reads(b, t->args_n), each = n ? (t->args_n - 2 * n) / n : 0, rows_n = 0;
    ASSERT((2 + each) * n == t->args_n);
    Slice *rows = slices_new(t);
    for (uint32_t i = 0; i < n; i++) {
        const Buffer *states = b + n + i * each, *param = &b[t->args_n - n + i];
        Part to = own_part(&env->facts, param), from = own_part(&env->facts, &b[i]);
        Slice s = { .a = vec_at(env, &b[i], from.first),
                    .b = vec_at(env, param, to.first),
                    .n = to.n };
        s.m = f32_of(env, state_named(p, states, each, "first moment"));
        s.v = f32_of(env, state_named(p, states, each, "second moment"));
        s.master = f32_of(env, state_named(p, states, each, "master weights"));
        ASSERT(t->op->fn == FN_SGD || s.m);
        if (s.n > 0)
            rows[rows_n++] = s;
    }
    Rule rule = t->op->fn == FN_SGD        ? RULE_SGD
                : t->op->fn == FN_MOMENTUM ? RULE_MOMENTUM
                                           : RULE_ADAM;
    Slices all = slices(env, p, t, rows, rows_n);
    GO(env, cuda_update(all, rule, env->rates + (t->op->fn - FN_SGD), env->stream));
    free(rows);
}

/* ---- planning and launching ---- */

static bool is_computed(const Op *op)
{
    return cuda_launches[op->kind] != NULL;
}

bool cuda_plan(CudaEnv *env, const Program *p, uint64_t scratch_bytes[LANE_N], Err *err)
{
    CudaTables *x = env->tables;
    *x = (CudaTables){ .first = mem_zero((size_t)p->tasks_n + 1, sizeof *x->first) };
    memset(scratch_bytes, 0, LANE_N * sizeof *scratch_bytes);
    env->planning = true;
    bool ok = true;
    for (uint32_t i = 0; i < p->tasks_n && ok; i++) {
        const Task *t = &p->tasks[i];
        x->first[i] = NONE_U32;
        env->scratch_bytes = 0;
        ok = !is_computed(t->op) || cuda_launch(env, p, t, err);
        scratch_bytes[t->lane] = max_u64(scratch_bytes[t->lane], env->scratch_bytes);
    }
    env->planning = false;
    return ok;
}

void cuda_tables_free(CudaTables *t)
{
    free(t->first);
    free(t->rows);
    *t = (CudaTables){ 0 };
}

bool cuda_launch(CudaEnv *env, const Program *p, const Task *t, Err *err)
{
    env->err = err;
    env->failed = false;
    env->used_bytes = 0;
    cuda_launches[t->op->kind](env, p, t);
    return !env->failed;
}

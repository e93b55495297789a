/*
 * backend_cuda_attention.c - fused attention, and the products and softmax of unfused one.
 *
 * Where q, k and v lie is said by exec/kernels_attention.c.  Unfused, the weights of all heads
 * lie one after another, [sample, head, query, key]; one batch of products takes the heads
 * that have each a key head of their own, so with GQA it takes as many as share one.
 */
#include "exec/backend_cuda_parts.h"

#include <math.h>

/* ---- fused ---- */

/* The three sides of argument i and, where there are two, of i + 1. */
static void find_sides(const CudaEnv *env, const Attention *a, const Buffer *b, bool two,
                       Side side[3])
{
    uint64_t rows = (uint64_t)a->batch * a->queries, keys = (uint64_t)a->batch * a->keys;
    uint64_t q = (uint64_t)a->heads * a->width, kv = (uint64_t)a->kv_heads * a->width;
    bool split = a->keys != a->queries;
    uint64_t stride = b[0].elements / rows;
    side[0] = (Side){ vec_of(env, &b[0]).at, stride };
    side[1] = (Side){ vec_at(env, &b[0], two && split ? 0 : q).at, stride };
    side[2] = (Side){ vec_at(env, &b[0], two ? 0 : q + kv).at, stride };
    if (!two)
        return;
    uint64_t other = b[1].elements / keys;
    if (split)
        side[1] = (Side){ vec_of(env, &b[1]).at, other };
    side[2] = (Side){ vec_at(env, &b[1], split ? kv : q + kv).at, other };
}

static Attention attention_of(const CudaEnv *env, const Op *op, const Buffer *b)
{
    const AttentionShape *s = &op->u.attention;
    bool split = s->seq_k != s->seq_q; /* cp */
    return (Attention){ .type = num_type(b->dtype),
                        .batch = (uint32_t)s->batch,
                        .heads = (uint32_t)s->heads,
                        .kv_heads = (uint32_t)s->kv_heads,
                        .width = (uint32_t)s->head_dim,
                        .queries = (uint32_t)s->seq_q,
                        .keys = (uint32_t)s->seq_k,
                        .chunk = (uint32_t)(split ? s->seq_q : s->seq_k),
                        .position = split ? env->facts.position_first : 0,
                        .window = (uint32_t)s->window,
                        .causal = s->causal,
                        .scale = (float)(1 / sqrt((double)s->head_dim)) };
}

/* qkv -> y lse;  dy qkv y lse -> dqkv;  with two inputs: two gradients. */
void launch_attention(CudaEnv *env, const Program *p, const Task *t)
{
    const Buffer *b = task_args(p, t);
    uint32_t n = t->args_n;
    bool ahead = op_is_forward(t->op), two = n == (ahead ? 4 : 7);
    uint32_t in = ahead ? 0 : 1, y = ahead ? n - 2 : two ? 3 : 2;
    Attention a = attention_of(env, t->op, &b[in]);
    uint64_t width = (uint64_t)a.heads * a.width;
    Side side[3];
    if (a.width > ATTENTION_WIDTH_MAX)
        lacks(env, "attention with head_dim", a.width, ATTENTION_WIDTH_MAX);
    else if (a.batch > ATTENTION_BATCH_MAX)
        lacks(env, "attention with micro_batch", a.batch, ATTENTION_BATCH_MAX);
    if (env->failed)
        return;
    find_sides(env, &a, &b[in], two, side);
    a.q = side[0], a.k = side[1], a.v = side[2];
    a.y = (Side){ vec_of(env, &b[y]).at, width };
    a.lse = vec_of(env, &b[y + 1]).at;
    ASSERT(b[y + 1].dtype == DTYPE_F32);
    if (ahead) {
        bool mma = cuda_attention_has_mma(&a, false);
        GO(env, (mma ? cuda_attention_mma : cuda_attention)(&a, env->stream));
        return;
    }
    find_sides(env, &a, &b[y + 2], two, side);
    a.dq = side[0], a.dk = side[1], a.dv = side[2];
    a.dy = (Side){ vec_of(env, &b[0]).at, width };
    a.along = scratch(env, (uint64_t)a.batch * a.queries * a.heads * sizeof(float));
    bool mma = cuda_attention_has_mma(&a, true);
    GO(env, (mma ? cuda_attention_mma_back : cuda_attention_back)(&a, env->stream));
}

/* ---- unfused: the products ---- */

typedef struct Shape {
    uint64_t samples, heads, kv_heads, width, queries, keys, chunk;
} Shape;

/* Heads side by side in the columns of rows. */
typedef struct Heads {
    Vec v; /* of the first head */
    uint64_t stride;
} Heads;

static Vec vec_plus(Vec v, uint64_t n)
{
    return (Vec){ (uint8_t *)v.at + n * (v.type == NUM_F32 ? 4 : 2), v.type };
}

/* Queries, or their like: what has a row per query. */
static Heads query_heads(const CudaEnv *env, const Shape *s, const Buffer *b)
{
    return (Heads){ vec_of(env, b), b->elements / (s->samples * s->queries) };
}

/* k of qkv, qk or kv; v of qkv or kv. */
static Heads key_heads(const CudaEnv *env, const Shape *s, const Buffer *b, bool values)
{
    uint64_t q = s->heads * s->width, kv = s->kv_heads * s->width;
    uint64_t first = s->keys == s->queries ? q : 0;
    return (Heads){ vec_at(env, b, first + (values ? kv : 0)),
                    b->elements / (s->samples * s->keys) };
}

/* What one product of a head and a chunk of keys is. */
typedef enum HeadRule { BY_KEYS, OVER_KEYS, OVER_QUERIES } HeadRule;

typedef struct HeadWork {
    HeadRule rule;
    bool tf32;
    Vec weights;            /* [sample, head, query, key] */
    Heads by_query, by_key; /* one of them is written, but by BY_KEYS */
} HeadWork;

/* Heads j, j + group, ... of a sample, which have each a key head; keys of one chunk. */
static bool heads_product(CudaEnv *env, const Shape *s, const HeadWork *w, uint64_t sample,
                          uint64_t j, uint64_t chunk)
{
    uint64_t group = s->heads / s->kv_heads, key = chunk * s->chunk;
    uint64_t key_row = (chunk * s->samples + sample) * s->chunk;
    uint64_t first = (sample * s->heads + j) * s->queries * s->keys + key;
    Matrix weights = { vec_plus(w->weights, first), s->keys, group * s->queries * s->keys };
    Matrix rows = { vec_plus(w->by_query.v,
                             sample * s->queries * w->by_query.stride + j * s->width),
                    w->by_query.stride, group * s->width };
    Matrix keys = { vec_plus(w->by_key.v, key_row * w->by_key.stride), w->by_key.stride,
                    s->width };
    Product x = { .batch = s->kv_heads, .tf32 = w->tf32, .alpha = 1 };
    if (w->rule == BY_KEYS) { /* weights = rows keys^T */
        x.m = s->queries, x.n = s->chunk, x.k = s->width;
        x.a = rows, x.b = keys, x.c = weights;
        x.turn_b = true;
    } else if (w->rule == OVER_KEYS) { /* rows = weights keys */
        x.m = s->queries, x.n = s->width, x.k = s->chunk;
        x.a = weights, x.b = keys, x.c = rows;
        x.beta = chunk > 0 ? 1 : 0;
    } else { /* keys = weights^T rows */
        x.m = s->chunk, x.n = s->width, x.k = s->queries;
        x.a = weights, x.b = rows, x.c = keys;
        x.turn_a = true;
        x.beta = j > 0 ? 1 : 0;
    }
    return multiply(env, &x);
}

static void all_heads(CudaEnv *env, const Shape *s, const HeadWork *w)
{
    for (uint64_t sample = 0; sample < s->samples; sample++)
        for (uint64_t j = 0; j < s->heads / s->kv_heads; j++)
            for (uint64_t chunk = 0; chunk < s->keys / s->chunk; chunk++)
                if (!heads_product(env, s, w, sample, j, chunk))
                    return;
}

static Shape shape_of(const CudaEnv *env, const Op *op)
{
    const ModelFacts *f = &env->facts;
    uint64_t keys = attention_keys(op);
    return (Shape){ .samples = op->u.matmul.batch / f->heads,
                    .heads = f->heads,
                    .kv_heads = f->kv_heads,
                    .width = f->head_dim,
                    .queries = f->seq_len,
                    .keys = keys,
                    .chunk = keys != f->seq_len ? f->seq_len : keys };
}

/* q [k] -> scores;  weights v -> y;  dy v -> dweights;  weights dy -> dv;  dscores k -> dq;
 * dscores q -> dk */
void launch_attention_matmul(CudaEnv *env, const Program *p, const Task *t)
{
    const Buffer *b = task_args(p, t);
    Shape s = shape_of(env, t->op);
    HeadWork w = { .tf32 = t->op->dtype == DTYPE_TF32 };
    bool ahead = op_is_forward(t->op);
    if (ahead && t->op->part == SCORES) {
        w.weights = vec_of(env, &b[t->args_n - 1]);
        w.by_query = query_heads(env, &s, &b[0]);
        w.by_key = key_heads(env, &s, &b[t->args_n == 3 ? 1 : 0], false);
    } else if (!ahead && t->op->part == D_WEIGHTS) {
        w.weights = vec_of(env, &b[2]);
        w.by_query = query_heads(env, &s, &b[0]);
        w.by_key = key_heads(env, &s, &b[1], true);
    } else if (ahead || t->op->part == D_QUERIES) {
        w.rule = OVER_KEYS;
        w.weights = vec_of(env, &b[0]);
        w.by_query = query_heads(env, &s, &b[2]);
        w.by_key = key_heads(env, &s, &b[1], ahead);
    } else {
        w.rule = OVER_QUERIES;
        w.weights = vec_of(env, &b[0]);
        w.by_query = query_heads(env, &s, &b[1]);
        w.by_key = key_heads(env, &s, &b[2], t->op->part == D_VALUES);
    }
    all_heads(env, &s, &w);
}

/* ---- unfused: the softmax ---- */

/* scores -> weights;  dweights* weights */
void launch_softmax(CudaEnv *env, const Program *p, const Task *t)
{
    const Buffer *b = task_args(p, t);
    const ModelFacts *f = &env->facts;
    uint32_t keys = (uint32_t)t->op->u.rows.columns;
    Softmax s = { .rows = t->op->u.rows.rows,
                  .queries = f->seq_len,
                  .keys = keys,
                  .position = keys != f->seq_len ? f->position_first : 0,
                  .window = is_windowed(p, t) ? f->window : 0,
                  .causal = f->causal,
                  .scale = (float)(1 / sqrt((double)f->head_dim)) };
    if (op_is_forward(t->op))
        GO(env, cuda_softmax(s, vec_of(env, &b[0]), vec_of(env, &b[1]), env->stream));
    else
        GO(env, cuda_softmax_back(s, vec_of(env, &b[0]), vec_of(env, &b[1]), env->stream));
}

/*
 * kernels_attention.c - attention head by head, on matmuls of its queries and keys.
 *
 *     S = scale Q K^T, masked     P = softmax(S) by row     Y = P V      scale = 1/sqrt(head_dim)
 *     dV = P^T dY     dP = dY V^T     dS = P (dP - rowsum(dP P)) scale
 *     dQ = dS K       dK = dS^T Q
 *
 * Fused ("flash"): BLOCK queries at a time, so scores need BLOCK x keys of scratch; backward
 * makes P again from lse = log sum exp(S), and rowsum(dP P) is rowsum(dY Y).  Unfused
 * ("math"): each line above is a kernel of its own, and P is kept.  Several query heads
 * share a key head (GQA): its gradient is the sum over them, in order.
 *
 * WHERE Q, K AND V LIE.  A row holds heads side by side:
 *     qkv [q heads | k heads | v heads]     qk [q | k] after a norm, v is qkv's then
 *     kv  [k | v]: of the whole sequence, by rank of cp, sample, row
 */
#include "exec/kernel_parts.h"

#include <math.h>

enum { BLOCK = 128 };

/* q, k or v, or their gradient, of all heads: head h of row r begins at x[r * stride + first]. */
typedef struct Side {
    float *x;
    uint64_t stride, first;
} Side;

typedef struct Shape {
    uint64_t batch, heads, kv_heads, width; /* width: head_dim */
    uint64_t queries, keys;                 /* of one sample */
    uint64_t chunk;                         /* keys that lie together */
    uint64_t position;                      /* of the first query */
    uint64_t window;
    bool causal;
    float scale;
} Shape;

/* Keys [begin, end) that queries [first, first + n) see between them. */
typedef struct KeySpan {
    uint64_t begin, end;
} KeySpan;

static KeySpan seen(const Shape *s, uint64_t query)
{
    uint64_t at = s->position + query;
    KeySpan span = { 0, s->keys };
    if (s->window && at + 1 > s->window)
        span.begin = min_u64(at + 1 - s->window, s->keys);
    if (s->causal)
        span.end = min_u64(at + 1, s->keys);
    else if (s->window)
        span.end = min_u64(at + s->window, s->keys);
    return span;
}

static KeySpan seen_by_block(const Shape *s, uint64_t first, uint64_t n)
{
    return (KeySpan){ seen(s, first).begin, seen(s, first + n - 1).end };
}

/* ---- matmuls with keys, which lie in chunks ---- */

static float *query_at(const Shape *s, Side q, uint64_t sample, uint64_t head, uint64_t row)
{
    return q.x + (sample * s->queries + row) * q.stride + q.first + head * s->width;
}

static float *key_at(const Shape *s, Side k, uint64_t sample, uint64_t head, uint64_t key)
{
    uint64_t row = (key / s->chunk * s->batch + sample) * s->chunk + key % s->chunk;
    return k.x + row * k.stride + k.first + head / (s->heads / s->kv_heads) * s->width;
}

/* The end of the keys from `key` on that lie together. */
static uint64_t together(const Shape *s, uint64_t key, uint64_t end)
{
    return min_u64((key / s->chunk + 1) * s->chunk, end);
}

typedef struct Head {
    const Shape *s;
    uint64_t sample, head;
    uint64_t row, n; /* queries [row, row + n) */
    KeySpan span;    /* of keys */
} Head;

/* out[n, keys] = alpha a b^T; a: by query, b: by key */
static void by_keys(const Head *h, float *out, uint64_t ld, float alpha, Side a, Side b)
{
    const Shape *s = h->s;
    for (uint64_t key = h->span.begin, end; key < h->span.end; key = end) {
        end = together(s, key, h->span.end);
        gemm(&(Gemm){ false, true, h->n, end - key, s->width,
                      query_at(s, a, h->sample, h->head, h->row), a.stride,
                      key_at(s, b, h->sample, h->head, key), b.stride, out + key, ld, alpha,
                      0 });
    }
}

/* out = p b; p[n, keys], b: by key, out: by query */
static void over_keys(const Head *h, Side out, const float *p, uint64_t ld, Side b)
{
    const Shape *s = h->s;
    float beta = 0;
    for (uint64_t key = h->span.begin, end; key < h->span.end; key = end) {
        end = together(s, key, h->span.end);
        gemm(&(Gemm){ false, false, h->n, s->width, end - key, p + key, ld,
                      key_at(s, b, h->sample, h->head, key), b.stride,
                      query_at(s, out, h->sample, h->head, h->row), out.stride, 1, beta });
        beta = 1;
    }
}

/* out += p^T a; p[n, keys], a: by query, out: by key */
static void over_queries(const Head *h, Side out, const float *p, uint64_t ld, Side a)
{
    const Shape *s = h->s;
    for (uint64_t key = h->span.begin, end; key < h->span.end; key = end) {
        end = together(s, key, h->span.end);
        gemm(&(Gemm){ true, false, end - key, s->width, h->n, p + key, ld,
                      query_at(s, a, h->sample, h->head, h->row), a.stride,
                      key_at(s, out, h->sample, h->head, key), out.stride, 1, 1 });
    }
}

static void clear_keys(const Shape *s, Side out)
{
    uint64_t columns = s->kv_heads * s->width;
    for (uint64_t row = 0; row < s->batch * s->keys; row++)
        memset(out.x + row * out.stride + out.first, 0, columns * sizeof *out.x);
}

/* ---- softmax of a row ---- */

/* In place on x[begin, end), zeros elsewhere below n; returns log sum exp. */
static float softmax_row(float *x, KeySpan span, uint64_t n)
{
    float *row = x + span.begin;
    uint64_t row_n = span.end - span.begin;
    float top = row_max(row, row_n);
    row_exp(row, top, 1, row_n);
    double sum = row_sum(row, row_n);
    float by = (float)(1 / sum);
    memset(x, 0, span.begin * sizeof *x);
    for (uint64_t k = 0; k < row_n; k++)
        row[k] *= by;
    memset(x + span.end, 0, (n - span.end) * sizeof *x);
    return top + (float)log(sum);
}

/* dS from dP in place, P beside it; sum: rowsum(dP P). */
static void softmax_row_back(float *dp, const float *p, uint64_t n, float sum, float scale)
{
    for (uint64_t k = 0; k < n; k++)
        dp[k] = p[k] * (dp[k] - sum) * scale;
}

/* ---- fused ---- */

static Shape fused_shape(const Call *c)
{
    const AttentionShape *a = &c->op->u.attention;
    bool split = a->seq_k != a->seq_q; /* cp */
    return (Shape){ a->batch,
                    a->heads,
                    a->kv_heads,
                    a->head_dim,
                    a->seq_q,
                    a->seq_k,
                    split ? a->seq_q : a->seq_k,
                    split ? c->env->facts.position_first : 0,
                    a->window,
                    a->causal,
                    (float)(1 / sqrt((double)a->head_dim)) };
}

/* The three sides of inputs x[i] and, where there are two, x[i + 1]; or of their gradients. */
static void find_sides(const Call *c, const Shape *s, uint32_t i, bool two, Side side[3])
{
    uint64_t rows = s->batch * s->queries, q = s->heads * s->width, kv = s->kv_heads * s->width;
    bool split = s->keys != s->queries;
    uint64_t stride = c->b[i].elements / rows;
    side[0] = side[1] = side[2] = (Side){ c->x[i], stride, 0 };
    side[1].first = q;
    side[2].first = q + kv;
    if (!two)
        return;
    uint64_t other = c->b[i + 1].elements / (s->batch * s->keys);
    if (split)
        side[1] = (Side){ c->x[i + 1], other, 0 };
    side[2] = (Side){ c->x[i + 1], other, split ? kv : q + kv };
}

typedef struct Fused {
    Shape s;
    Side q, k, v, y; /* y: in backward dy */
    Side dq, dk, dv; /* backward */
    Side out;        /* backward: y */
    float *lse;      /* [row][head] */
    float *p, *dp;   /* BLOCK x keys */
} Fused;

static float *lse_at(const Fused *f, const Head *h, uint64_t i)
{
    return &f->lse[(h->sample * f->s.queries + h->row + i) * f->s.heads + h->head];
}

static void fused_forward(const Fused *f, const Head *h)
{
    const Shape *s = &f->s;
    by_keys(h, f->p, s->keys, s->scale, f->q, f->k);
    for (uint64_t i = 0; i < h->n; i++)
        *lse_at(f, h, i) = softmax_row(f->p + i * s->keys, seen(s, h->row + i), h->span.end);
    over_keys(h, f->y, f->p, s->keys, f->v);
}

/* P of a row from its scores. */
static void probabilities(float *x, KeySpan span, KeySpan all, float lse)
{
    memset(x + all.begin, 0, (span.begin - all.begin) * sizeof *x);
    row_exp(x + span.begin, lse, 1, span.end - span.begin);
    memset(x + span.end, 0, (all.end - span.end) * sizeof *x);
}

static void fused_backward(const Fused *f, const Head *h)
{
    const Shape *s = &f->s;
    uint64_t first = h->span.begin, n = h->span.end - first;
    by_keys(h, f->p, s->keys, s->scale, f->q, f->k);
    by_keys(h, f->dp, s->keys, 1, f->y, f->v);
    for (uint64_t i = 0; i < h->n; i++)
        probabilities(f->p + i * s->keys, seen(s, h->row + i), h->span, *lse_at(f, h, i));
    over_queries(h, f->dv, f->p, s->keys, f->y);
    for (uint64_t i = 0; i < h->n; i++) {
        const float *dy = query_at(s, f->y, h->sample, h->head, h->row + i);
        const float *y = query_at(s, f->out, h->sample, h->head, h->row + i);
        float sum = (float)row_dot(dy, y, s->width);
        float *dp = f->dp + i * s->keys + first;
        softmax_row_back(dp, f->p + i * s->keys + first, n, sum, s->scale);
    }
    over_keys(h, f->dq, f->dp, s->keys, f->k);
    over_queries(h, f->dk, f->dp, s->keys, f->q);
}

static void each_block(const Fused *f, void (*run)(const Fused *f, const Head *h))
{
    const Shape *s = &f->s;
    for (uint64_t sample = 0; sample < s->batch; sample++)
        for (uint64_t head = 0; head < s->heads; head++)
            for (uint64_t row = 0; row < s->queries; row += BLOCK) {
                uint64_t n = min_u64(BLOCK, s->queries - row);
                run(f, &(Head){ s, sample, head, row, n, seen_by_block(s, row, n) });
            }
}

/* qkv -> y lse;  dy qkv y lse -> dqkv;  with two inputs: two gradients. */
void kernel_attention(KernelEnv *env, const Program *p, const Task *t)
{
    const AttentionShape *a = &t->op->u.attention;
    uint64_t tile = min_u64(BLOCK, a->seq_q) * a->seq_k;
    Call c = call_open(env, p, t, CALL_PARTLY, 2 * tile * sizeof(float));
    Fused f = { .s = fused_shape(&c), .p = c.extra, .dp = (float *)c.extra + tile };
    uint64_t width = f.s.heads * f.s.width;
    bool forward = op_is_forward(c.op), two = c.n == (forward ? 4 : 7);
    Side side[3];
    find_sides(&c, &f.s, forward ? 0 : 1, two, side);
    f.q = side[0], f.k = side[1], f.v = side[2];
    if (forward) {
        f.y = (Side){ c.x[c.n - 2], width, 0 };
        f.lse = c.x[c.n - 1];
        each_block(&f, fused_forward);
    } else {
        f.y = (Side){ c.x[0], width, 0 };
        f.out = (Side){ c.x[two ? 3 : 2], width, 0 };
        f.lse = c.x[two ? 4 : 3];
        find_sides(&c, &f.s, two ? 5 : 4, two, side);
        f.dq = side[0], f.dk = side[1], f.dv = side[2];
        clear_keys(&f.s, f.dk);
        clear_keys(&f.s, f.dv);
        each_block(&f, fused_backward);
    }
    call_close(&c);
}

/* ---- unfused: the matmuls ---- */

static Shape math_shape(const KernelEnv *env, uint64_t samples, uint64_t keys)
{
    const ModelFacts *f = &env->facts;
    bool split = keys != f->seq_len; /* cp */
    return (Shape){ .batch = samples,
                    .heads = f->heads,
                    .kv_heads = f->kv_heads,
                    .width = f->head_dim,
                    .queries = f->seq_len,
                    .keys = keys,
                    .chunk = split ? f->seq_len : keys,
                    .position = split ? f->position_first : 0,
                    .causal = f->causal,
                    .scale = (float)(1 / sqrt((double)f->head_dim)) };
}

/* Queries, or their like: what has a row per query. */
static Side query_side(const Call *c, const Shape *s, uint32_t arg)
{
    return (Side){ c->x[arg], c->b[arg].elements / (s->batch * s->queries), 0 };
}

/* k of qkv, qk or kv; v of qkv or kv. */
static Side key_side(const Call *c, const Shape *s, uint32_t arg, bool values)
{
    uint64_t q = s->heads * s->width, kv = s->kv_heads * s->width;
    uint64_t first = s->keys == s->queries ? q : 0;
    return (Side){ c->x[arg], c->b[arg].elements / (s->batch * s->keys),
                   first + (values ? kv : 0) };
}

/* What a kernel does with the weights p of one head. */
typedef void HeadRule(const Head *h, float *p, Side out, Side by_query, Side by_key);

static void head_scores(const Head *h, float *p, Side out, Side a, Side b)
{
    (void)out;
    by_keys(h, p, h->s->keys, 1, a, b);
}

static void head_over_keys(const Head *h, float *p, Side out, Side a, Side b)
{
    (void)a;
    over_keys(h, out, p, h->s->keys, b);
}

static void head_over_queries(const Head *h, float *p, Side out, Side a, Side b)
{
    (void)b;
    over_queries(h, out, p, h->s->keys, a);
}

static void each_head(const Shape *s, HeadRule *rule, float *p, Side out, Side a, Side b)
{
    for (uint64_t sample = 0; sample < s->batch; sample++)
        for (uint64_t head = 0; head < s->heads; head++) {
            Head h = { s, sample, head, 0, s->queries, { 0, s->keys } };
            rule(&h, p + (sample * s->heads + head) * s->queries * s->keys, out, a, b);
        }
}

/* q [k] -> scores;  weights v -> y */
static void math_forward(const Call *c, const Shape *s)
{
    Side none = { 0 };
    if (c->op->part == SCORES) {
        Side k = key_side(c, s, c->n == 3 ? 1 : 0, false);
        each_head(s, head_scores, c->x[c->n - 1], none, query_side(c, s, 0), k);
    } else {
        Side y = query_side(c, s, 2);
        each_head(s, head_over_keys, c->x[0], y, none, key_side(c, s, 1, true));
    }
}

/* dy v -> dweights;  weights dy -> dv;  dscores k -> dq;  dscores q -> dk */
static void math_backward(const Call *c, const Shape *s)
{
    Side none = { 0 }, out;
    switch (c->op->part) {
    case D_WEIGHTS:
        each_head(s, head_scores, c->x[2], none, query_side(c, s, 0), key_side(c, s, 1, true));
        return;
    case D_QUERIES:
        out = query_side(c, s, 2);
        each_head(s, head_over_keys, c->x[0], out, none, key_side(c, s, 1, false));
        return;
    default:
        out = key_side(c, s, 2, c->op->part == D_VALUES);
        clear_keys(s, out);
        each_head(s, head_over_queries, c->x[0], out, query_side(c, s, 1), none);
    }
}

uint64_t attention_keys(const Op *op)
{
    const MatmulShape *m = &op->u.matmul;
    if (op_is_forward(op))
        return op->part == SCORES ? m->n : m->k;
    if (op->part == D_WEIGHTS)
        return m->n;
    return op->part == D_QUERIES ? m->k : m->m;
}

bool attention_lacks_keys(const Op *op, uint32_t args_n)
{
    const MatmulShape *m = &op->u.matmul;
    return op_is_forward(op) && op->part == SCORES && m->m != m->n && args_n < 3;
}

void attention_matmul(KernelEnv *env, const Program *p, const Task *t)
{
    Call c = call_open(env, p, t, CALL_PARTLY, 0);
    Shape s = math_shape(env, t->op->u.matmul.batch / env->facts.heads, attention_keys(t->op));
    if (op_is_forward(t->op))
        math_forward(&c, &s);
    else
        math_backward(&c, &s);
    call_close(&c);
}

/* ---- unfused: the softmax ---- */

bool is_windowed(const Program *p, const Task *t)
{
    static const char word[] = "windowed";
    const Segment *s = &p->graph->segments[t->instance->segment];
    return strncmp(program_text(p, s->name), word, sizeof word - 1) == 0;
}

/* scores -> weights;  dweights* weights */
void kernel_softmax(KernelEnv *env, const Program *p, const Task *t)
{
    Call c = call_open(env, p, t, CALL_WHOLLY, 0);
    const RowsShape *rows = &t->op->u.rows;
    Shape s = math_shape(env, 1, rows->columns);
    s.window = is_windowed(p, t) ? env->facts.window : 0;
    for (uint64_t r = 0; r < rows->rows; r++) {
        float *a = c.x[0] + r * s.keys, *b = c.x[1] + r * s.keys;
        if (!op_is_forward(t->op)) {
            softmax_row_back(a, b, s.keys, (float)row_dot(a, b, s.keys), s.scale);
            continue;
        }
        for (uint64_t k = 0; k < s.keys; k++)
            b[k] = a[k] * s.scale;
        softmax_row(b, seen(&s, r % s.queries), s.keys);
    }
    call_close(&c);
}

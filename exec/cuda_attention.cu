/*
 * cuda_attention.cu - attention of any width and type, and unfused softmax.
 *
 * A warp has one query (or, for the gradients of keys and values, one key) and takes the
 * other side 32 at a time: each lane one score, then all lanes their columns of the sum.
 * Scores stay in registers.  What has tensor cores goes to cuda_attention_mma.cu instead.
 *
 *     S = scale Q K^T, masked     P = softmax(S)     Y = P V      along = rowsum(dY Y)
 *     dV = P^T dY     dS = P (dY V^T - along) scale     dQ = dS K     dK = dS^T Q
 */
#include "exec/cuda_device.cuh"

enum { WARPS = 4, COLUMNS_EACH = ATTENTION_WIDTH_MAX / WARP };

/* ---- who sees whom ---- */

typedef struct Span {
    uint32_t begin, end;
} Span;

static __device__ __forceinline__ Span seen(uint32_t at, uint32_t keys, uint32_t window,
                                            bool causal)
{
    Span s = { 0, keys };
    if (window && at + 1 > window)
        s.begin = at + 1 - window < keys ? at + 1 - window : keys;
    if (causal)
        s.end = at + 1 < keys ? at + 1 : keys;
    else if (window)
        s.end = at + window < keys ? at + window : keys;
    return s;
}

static __device__ __forceinline__ bool sees(const Attention &a, uint32_t query, uint32_t key)
{
    Span s = seen(a.position + query, a.keys, a.window, a.causal);
    return key >= s.begin && key < s.end;
}

/* Row of a key in memory. */
static __device__ __forceinline__ u64 key_row(const Attention &a, u64 sample, uint32_t key)
{
    return ((u64)(key / a.chunk) * a.batch + sample) * a.chunk + key % a.chunk;
}

typedef struct Lines {
    Vec v;
    u64 at;
} Lines;

static __device__ __forceinline__ Lines line(const Attention &a, const Side &s, u64 row,
                                             uint32_t head)
{
    Lines l = { { s.at, a.type }, row * s.stride + (u64)head * a.width };
    return l;
}

static __device__ __forceinline__ float dot(const Attention &a, const Lines &x, const Lines &y)
{
    float sum = 0;
    for (uint32_t i = 0; i < a.width; i++)
        sum += load1(x.v, x.at + i) * load1(y.v, y.at + i);
    return sum;
}

/* sum[j] += by[lane] row(lane)[columns of this lane], over the lanes whose `by` is not 0. */
template <typename RowOf>
static __device__ __forceinline__ void add_rows(const Attention &a, float by, RowOf row,
                                                float *sum)
{
    unsigned lane = threadIdx.x % WARP;
    for (int i = 0; i < WARP; i++) {
        float b = __shfl_sync(ALL_LANES, by, i);
        if (b == 0)
            continue;
        Lines l = row(i);
#pragma unroll
        for (int j = 0; j < COLUMNS_EACH; j++)
            if (j * WARP + lane < a.width)
                sum[j] += b * load1(l.v, l.at + j * WARP + lane);
    }
}

static __device__ __forceinline__ void put_row(const Attention &a, const Lines &l, float by,
                                               const float *sum)
{
    unsigned lane = threadIdx.x % WARP;
#pragma unroll
    for (int j = 0; j < COLUMNS_EACH; j++)
        if (j * WARP + lane < a.width)
            store1(l.v, l.at + j * WARP + lane, sum[j] * by);
}

/* Which row and head a warp has: rows of all samples, `heads` of each. */
typedef struct Work {
    u64 sample, row; /* row: of all samples */
    uint32_t at, head;
    bool any;
} Work;

static __device__ __forceinline__ Work work_of_warp(const Attention &a, uint32_t rows,
                                                    uint32_t heads)
{
    u64 i = (u64)blockIdx.x * WARPS + threadIdx.x / WARP;
    Work w = { i / heads / rows, i / heads, (uint32_t)(i / heads % rows), (uint32_t)(i % heads),
               i < (u64)a.batch * rows * heads };
    return w;
}

static unsigned blocks_of(const Attention *a, uint32_t rows, uint32_t heads)
{
    return (unsigned)blocks_for((u64)a->batch * rows * heads, WARPS);
}

/* ---- forward ---- */

static __global__ void forward_kernel(Attention a)
{
    Work w = work_of_warp(a, a.queries, a.heads);
    if (!w.any)
        return;
    uint32_t lane = threadIdx.x % WARP, kv = w.head / (a.heads / a.kv_heads);
    Span span = seen(a.position + w.at, a.keys, a.window, a.causal);
    Lines q = line(a, a.q, w.row, w.head);
    float top = -INFINITY, sum = 0, y[COLUMNS_EACH] = { 0 };
    for (uint32_t first = span.begin; first < span.end; first += WARP) {
        uint32_t key = first + lane;
        float s = -INFINITY;
        if (key < span.end)
            s = a.scale * dot(a, q, line(a, a.k, key_row(a, w.sample, key), kv));
        float above = fmaxf(top, warp_max(s)), shrink = expf(top - above);
        float p = expf(s - above);
        sum = sum * shrink + warp_sum(p);
        top = above;
#pragma unroll
        for (int j = 0; j < COLUMNS_EACH; j++)
            y[j] *= shrink;
        add_rows(
            a, p, [&](int i) { return line(a, a.v, key_row(a, w.sample, first + i), kv); }, y);
    }
    put_row(a, line(a, a.y, w.row, w.head), 1 / sum, y);
    if (lane == 0)
        a.lse[w.row * a.heads + w.head] = top + logf(sum);
}

void cuda_attention(const Attention *a, void *stream)
{
    LAUNCH(forward_kernel, blocks_of(a, a->queries, a->heads), WARPS * WARP, 0, stream, *a);
}

/* ---- backward ---- */

static __global__ void along_kernel(Attention a)
{
    Work w = work_of_warp(a, a.queries, a.heads);
    if (!w.any)
        return;
    Lines dy = line(a, a.dy, w.row, w.head), y = line(a, a.y, w.row, w.head);
    float sum = 0;
    for (uint32_t i = threadIdx.x % WARP; i < a.width; i += WARP)
        sum += load1(dy.v, dy.at + i) * load1(y.v, y.at + i);
    sum = warp_sum(sum);
    if (threadIdx.x % WARP == 0)
        a.along[w.row * a.heads + w.head] = sum;
}

/* P and dS of a query and a key. */
static __device__ __forceinline__ float weight(const Attention &a, u64 row, uint32_t head,
                                               u64 key, uint32_t kv, float *ds)
{
    Lines q = line(a, a.q, row, head), k = line(a, a.k, key, kv);
    Lines dy = line(a, a.dy, row, head), v = line(a, a.v, key, kv);
    u64 at = row * a.heads + head;
    float p = expf(a.scale * dot(a, q, k) - a.lse[at]);
    *ds = p * (dot(a, dy, v) - a.along[at]) * a.scale;
    return p;
}

static __global__ void queries_kernel(Attention a)
{
    Work w = work_of_warp(a, a.queries, a.heads);
    if (!w.any)
        return;
    uint32_t lane = threadIdx.x % WARP, kv = w.head / (a.heads / a.kv_heads);
    Span span = seen(a.position + w.at, a.keys, a.window, a.causal);
    float dq[COLUMNS_EACH] = { 0 };
    for (uint32_t first = span.begin; first < span.end; first += WARP) {
        float ds = 0;
        if (first + lane < span.end)
            weight(a, w.row, w.head, key_row(a, w.sample, first + lane), kv, &ds);
        add_rows(
            a, ds, [&](int i) { return line(a, a.k, key_row(a, w.sample, first + i), kv); },
            dq);
    }
    put_row(a, line(a, a.dq, w.row, w.head), 1, dq);
}

/* A warp has a key and a head of keys; it goes over the queries of all heads that share it. */
static __global__ void keys_kernel(Attention a)
{
    Work w = work_of_warp(a, a.keys, a.kv_heads);
    if (!w.any)
        return;
    uint32_t lane = threadIdx.x % WARP, group = a.heads / a.kv_heads;
    u64 key = key_row(a, w.sample, w.at), row = w.sample * a.queries;
    float dk[COLUMNS_EACH] = { 0 }, dv[COLUMNS_EACH] = { 0 };
    for (uint32_t head = w.head * group; head < (w.head + 1) * group; head++)
        for (uint32_t first = 0; first < a.queries; first += WARP) {
            uint32_t query = first + lane;
            float ds = 0, p = 0;
            if (query < a.queries && sees(a, query, w.at))
                p = weight(a, row + query, head, key, w.head, &ds);
            add_rows(
                a, p, [&](int i) { return line(a, a.dy, row + first + i, head); }, dv);
            add_rows(
                a, ds, [&](int i) { return line(a, a.q, row + first + i, head); }, dk);
        }
    put_row(a, line(a, a.dk, key, w.head), 1, dk);
    put_row(a, line(a, a.dv, key, w.head), 1, dv);
}

void cuda_attention_back(const Attention *a, void *stream)
{
    LAUNCH(along_kernel, blocks_of(a, a->queries, a->heads), WARPS * WARP, 0, stream, *a);
    LAUNCH(queries_kernel, blocks_of(a, a->queries, a->heads), WARPS * WARP, 0, stream, *a);
    LAUNCH(keys_kernel, blocks_of(a, a->keys, a->kv_heads), WARPS * WARP, 0, stream, *a);
}

/* ---- unfused: a block has a row of scores ---- */

enum { THREADS = 256 };

static unsigned row_threads(const Softmax &s)
{
    return (unsigned)least(blocks_for(s.keys, WARP) * WARP, THREADS);
}

static __global__ void softmax_kernel(Softmax s, Vec x, Vec y)
{
    __shared__ float shared[WARP];
    u64 r = blockIdx.x, base = r * s.keys;
    Span span = seen(s.position + (uint32_t)(r % s.queries), s.keys, s.window, s.causal);
    float top = -INFINITY, sum = 0;
    for (uint32_t k = span.begin + threadIdx.x; k < span.end; k += blockDim.x)
        top = fmaxf(top, load1(x, base + k) * s.scale);
    top = block_max(top, shared);
    for (uint32_t k = span.begin + threadIdx.x; k < span.end; k += blockDim.x)
        sum += expf(load1(x, base + k) * s.scale - top);
    float by = 1 / block_sum(sum, shared);
    for (uint32_t k = threadIdx.x; k < s.keys; k += blockDim.x) {
        bool in = k >= span.begin && k < span.end;
        store1(y, base + k, in ? expf(load1(x, base + k) * s.scale - top) * by : 0);
    }
}

void cuda_softmax(Softmax s, Vec x, Vec y, void *stream)
{
    LAUNCH(softmax_kernel, (unsigned)s.rows, row_threads(s), 0, stream, s, x, y);
}

static __global__ void softmax_back_kernel(Softmax s, Vec dy, Vec y)
{
    __shared__ float shared[WARP];
    u64 base = (u64)blockIdx.x * s.keys;
    float sum = 0;
    for (uint32_t k = threadIdx.x; k < s.keys; k += blockDim.x)
        sum += load1(dy, base + k) * load1(y, base + k);
    sum = block_sum(sum, shared);
    for (uint32_t k = threadIdx.x; k < s.keys; k += blockDim.x)
        store1(dy, base + k, load1(y, base + k) * (load1(dy, base + k) - sum) * s.scale);
}

void cuda_softmax_back(Softmax s, Vec dy, Vec y, void *stream)
{
    LAUNCH(softmax_back_kernel, (unsigned)s.rows, row_threads(s), 0, stream, s, dy, y);
}

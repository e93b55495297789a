/*
 * cuda_attention_mma.cu - attention on tensor cores, after FlashAttention-2 (arXiv 2307.08691).
 *
 * A block is four warps; each has 16 rows of the block's tile of 64, and goes over tiles of
 * the other side, which cp.async brings into shared memory: k while weights times v are
 * summed, v while scores are.  A tile is rows of WIDTH numbers, as 16-byte chunks whose place
 * in the row is xored with the row's number, so that ldmatrix meets no bank conflict.
 *
 *     forward    rows: queries       over keys       Y = softmax(Q K^T) V, renormed as it goes
 *     queries    rows: queries       over keys       dQ = dS K
 *     keys       rows: keys          over queries    dK = dS^T Q, dV = P^T dY
 *
 * Backward makes P twice (once for queries, once for keys) instead of adding dQ up with
 * atomics: 7 products instead of 5, and equal bits on every run.
 *
 * FRAGMENTS (PTX ISA, mma.m16n8k16).  With g = lane / 4, t = lane % 4:
 *     A  16 x 16   a0 (g, 2t..)  a1 (g + 8, 2t..)  a2 (g, 2t + 8..)  a3 (g + 8, 2t + 8..)
 *     B  16 x 8    b0 (2t.., g)  b1 (2t + 8.., g)
 *     C  16 x 8    c0 c1 (g, 2t..)   c2 c3 (g + 8, 2t..)
 * so C of two neighbours, rounded, is A of the next product.
 */
#include "exec/cuda_device.cuh"

enum { WARPS = 4, THREADS = WARPS * WARP, ROWS = 16 * WARPS };

#define LOG2_E 1.4426950408889634f
#define LN_2   0.6931471805599453f

/* ---- the instructions (on a CPU: tests/on_cpu/device.h) ---- */

#ifndef CUDA_ON_CPU
static __device__ __forceinline__ unsigned shared_address(const void *p)
{
    return (unsigned)__cvta_generic_to_shared(p);
}

/* 16 bytes to shared memory, later; zeros where there is nothing to read. */
static __device__ __forceinline__ void copy16_async(void *to, const void *from, bool any)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                 "l"(from), "r"(any ? 16 : 0)
                 : "memory");
}
static __device__ __forceinline__ void copies_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/* Until all but the newest `left` groups are there. */
template <int left> static __device__ __forceinline__ void copies_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
}

/* Four 8 x 8 matrices; lane i has the address of row i % 8 of matrix i / 8. */
static __device__ __forceinline__ void load_matrices(unsigned *r, const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}
static __device__ __forceinline__ void load_matrices_turned(unsigned *r, const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

/* c += a b */
template <bool BF16>
static __device__ __forceinline__ void multiply(float *c, const unsigned *a, const unsigned *b)
{
    if (BF16)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                     "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    else
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                     "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif

typedef unsigned short Half; /* the bits of an f16 or bf16 */

template <bool BF16> static __device__ __forceinline__ unsigned pack(float low, float high)
{
    return BF16 ? pack_bf16(low, high) : pack_f16(low, high);
}

/* ---- tiles in shared memory ---- */

template <int WIDTH>
static __device__ __forceinline__ Half *tile_at(Half *tile, int row, int column)
{
    return tile + row * WIDTH + ((column / EIGHT) ^ (row % EIGHT)) * EIGHT;
}

/* Rows first .. first + N of a head, `at` says where they lie; rows past `end` are zeros. */
template <int WIDTH, int N, typename RowAt>
static __device__ __forceinline__ void load_tile(Half *tile, uint32_t first, uint32_t end,
                                                 RowAt at)
{
    const int chunks = WIDTH / EIGHT;
#pragma unroll
    for (int j = 0; j < N * chunks / THREADS; j++) {
        int i = (int)threadIdx.x + j * THREADS;
        int row = i / chunks, column = i % chunks * EIGHT;
        bool any = first + row < end;
        const Half *from = (const Half *)at(any ? first + row : 0);
        copy16_async(tile_at<WIDTH>(tile, row, column), from + column, any);
    }
}

/* c[n] += rows [first, first + 16) of a times rows of b: a b^T, 16 x 8 N. */
template <int WIDTH, int N, bool BF16>
static __device__ __forceinline__ void by_rows(float (*c)[4], Half *a, int first, Half *b)
{
    int lane = threadIdx.x % WARP, in = lane % EIGHT, which = lane / EIGHT;
#pragma unroll
    for (int k = 0; k < WIDTH; k += 16) {
        unsigned fa[4], fb[4];
        load_matrices(fa, tile_at<WIDTH>(a, first + which % 2 * 8 + in, k + which / 2 * 8));
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            load_matrices(fb, tile_at<WIDTH>(b, n * 8 + which / 2 * 8 + in, k + which % 2 * 8));
            multiply<BF16>(c[n], fa, fb);
            multiply<BF16>(c[n + 1], fa, fb + 2);
        }
    }
}

/* c[n] += p b: p, 16 x 8 N as a by_rows left it, is rounded; b has 8 N rows. */
template <int WIDTH, int N, bool BF16>
static __device__ __forceinline__ void by_columns(float (*c)[4], float (*p)[4], Half *b)
{
    int lane = threadIdx.x % WARP, in = lane % EIGHT, which = lane / EIGHT;
#pragma unroll
    for (int k = 0; k < N; k += 2) {
        unsigned fa[4] = { pack<BF16>(p[k][0], p[k][1]), pack<BF16>(p[k][2], p[k][3]),
                           pack<BF16>(p[k + 1][0], p[k + 1][1]),
                           pack<BF16>(p[k + 1][2], p[k + 1][3]) };
#pragma unroll
        for (int n = 0; n < WIDTH / 8; n += 2) {
            unsigned fb[4];
            load_matrices_turned(
                fb, tile_at<WIDTH>(b, k * 8 + which % 2 * 8 + in, n * 8 + which / 2 * 8));
            multiply<BF16>(c[n], fa, fb);
            multiply<BF16>(c[n + 1], fa, fb + 2);
        }
    }
}

/* Rows [first, first + 16) of a head from what 16 x WIDTH came out, but rows past `end`. */
template <int WIDTH, bool BF16, typename RowAt>
static __device__ __forceinline__ void put_rows(float (*c)[4], uint32_t first, uint32_t end,
                                                const float *by, RowAt at)
{
    int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint32_t row = first + g + half * 8;
        if (row >= end)
            continue;
        Half *to = (Half *)at(row);
#pragma unroll
        for (int n = 0; n < WIDTH / 8; n++)
            *(unsigned *)(to + n * 8 + 2 * t) =
                pack<BF16>(c[n][2 * half] * by[half], c[n][2 * half + 1] * by[half]);
    }
}

/* ---- where rows lie, and who sees whom ---- */

static __device__ __forceinline__ Half *row_at(const Side &s, u64 row, u64 head, u64 width)
{
    return (Half *)s.at + row * s.stride + head * width;
}

static __device__ __forceinline__ u64 key_row(const Attention &a, u64 sample, uint32_t key)
{
    return ((u64)(key / a.chunk) * a.batch + sample) * a.chunk + key % a.chunk;
}

static __device__ __forceinline__ bool sees(const Attention &a, uint32_t query, uint32_t key)
{
    uint32_t at = a.position + query;
    bool in = key < a.keys && query < a.queries;
    if (a.causal)
        in = in && key <= at;
    else if (a.window)
        in = in && key < at + a.window;
    return in && (!a.window || key + a.window > at);
}

/* Do all of 16 queries see all of N keys?  Then nothing must be looked at one by one; queries
 * past the end do not count, what comes out for them is not kept. */
static __device__ __forceinline__ bool all_see(const Attention &a, uint32_t query, uint32_t key,
                                               uint32_t queries, uint32_t keys)
{
    uint32_t at = a.position + query, last = at + queries - 1;
    bool in = key + keys <= a.keys;
    if (a.causal)
        in = in && key + keys - 1 <= at;
    else if (a.window)
        in = in && key + keys - 1 < at + a.window;
    return in && (!a.window || key + a.window > last);
}

/* Tiles of N keys that queries [first, first + ROWS) see, from `begin` up to `end`. */
typedef struct Range {
    uint32_t begin, end;
} Range;

template <int N>
static __device__ __forceinline__ Range keys_of(const Attention &a, uint32_t first)
{
    uint32_t at = a.position + first, last = at + ROWS - 1;
    Range r = { 0, a.keys };
    if (a.window && at + 1 > a.window)
        r.begin = (at + 1 - a.window) / N * N;
    if (a.causal && last + 1 < r.end)
        r.end = last + 1;
    else if (!a.causal && a.window && last + a.window < r.end)
        r.end = last + a.window;
    return r;
}

/* Tiles of N queries that see keys [first, first + ROWS). */
template <int N>
static __device__ __forceinline__ Range queries_of(const Attention &a, uint32_t first)
{
    uint32_t last = first + ROWS - 1;
    Range r = { 0, a.queries };
    if (a.causal && first > a.position)
        r.begin = (first - a.position) / N * N;
    else if (!a.causal && a.window && first + 1 > a.window + a.position)
        r.begin = (first + 1 - a.window - a.position) / N * N;
    if (a.window) {
        uint32_t end = last + a.window > a.position ? last + a.window - a.position : 0;
        r.end = end < r.end ? end : r.end;
    }
    return r;
}

/* ---- forward ---- */

/* Scores become weights; sums and outputs so far are brought to the new maximum. */
template <int WIDTH, int N, bool MASKED>
static __device__ __forceinline__ void soften(const Attention &a, float (*s)[4], float (*y)[4],
                                              float *top, float *sum, uint32_t query,
                                              uint32_t key)
{
    int t = threadIdx.x % 4;
    float scale = a.scale * LOG2_E;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float above = top[half], added = 0;
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int k = 2 * half; k < 2 * half + 2; k++) {
                bool in = !MASKED || sees(a, query + half * 8, key + n * 8 + 2 * t + k % 2);
                s[n][k] = in ? s[n][k] * scale : -INFINITY;
                above = fmaxf(above, s[n][k]);
            }
        above = fmaxf(above, __shfl_xor_sync(ALL_LANES, above, 1));
        above = fmaxf(above, __shfl_xor_sync(ALL_LANES, above, 2));
        float from = above == -INFINITY ? 0 : above, shrink = exp2f(top[half] - from);
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int k = 2 * half; k < 2 * half + 2; k++) {
                s[n][k] = exp2f(s[n][k] - from);
                added += s[n][k];
            }
        top[half] = above;
        sum[half] = sum[half] * shrink + added; /* of this lane's columns */
#pragma unroll
        for (int n = 0; n < WIDTH / 8; n++) {
            y[n][2 * half] *= shrink;
            y[n][2 * half + 1] *= shrink;
        }
    }
}

template <int WIDTH, bool BF16>
static __global__ void __launch_bounds__(THREADS) forward_kernel(Attention a)
{
    const int KEYS = 64, N = KEYS / 8;
    DYNAMIC_SHARED(memory);
    Half *q = (Half *)memory, *k = q + ROWS * WIDTH, *v = k + KEYS * WIDTH;
    uint32_t head = blockIdx.y, sample = blockIdx.z, kv = head / (a.heads / a.kv_heads);
    uint32_t first = (gridDim.x - 1 - blockIdx.x) * ROWS; /* the longest rows begin first */
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    uint32_t mine = first + warp * 16 + lane / 4;
    u64 row = (u64)sample * a.queries;
    Range r = keys_of<KEYS>(a, first);
    auto query_at = [&](uint32_t i) { return row_at(a.q, row + i, head, WIDTH); };
    auto k_at = [&](uint32_t i) { return row_at(a.k, key_row(a, sample, i), kv, WIDTH); };
    auto v_at = [&](uint32_t i) { return row_at(a.v, key_row(a, sample, i), kv, WIDTH); };
    float y[WIDTH / 8][4] = { { 0 } }, top[2] = { -INFINITY, -INFINITY }, sum[2] = { 0, 0 };
    load_tile<WIDTH, ROWS>(q, first, a.queries, query_at);
    load_tile<WIDTH, KEYS>(k, r.begin, a.keys, k_at);
    copies_commit();
    for (uint32_t key = r.begin; key < r.end; key += KEYS) {
        float s[N][4] = { { 0 } };
        load_tile<WIDTH, KEYS>(v, key, a.keys, v_at);
        copies_commit();
        copies_wait<1>();
        __syncthreads();
        by_rows<WIDTH, N, BF16>(s, q, warp * 16, k);
        __syncthreads();
        if (key + KEYS < r.end)
            load_tile<WIDTH, KEYS>(k, key + KEYS, a.keys, k_at);
        copies_commit();
        if (all_see(a, first + warp * 16, key, 16, KEYS))
            soften<WIDTH, N, false>(a, s, y, top, sum, mine, key);
        else
            soften<WIDTH, N, true>(a, s, y, top, sum, mine, key);
        copies_wait<1>();
        __syncthreads();
        by_columns<WIDTH, N, BF16>(y, s, v);
        __syncthreads();
    }
    float by[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        sum[half] += __shfl_xor_sync(ALL_LANES, sum[half], 1);
        sum[half] += __shfl_xor_sync(ALL_LANES, sum[half], 2);
        by[half] = 1 / sum[half];
        uint32_t query = mine + half * 8;
        if (lane % 4 == 0 && query < a.queries)
            a.lse[(row + query) * a.heads + head] = top[half] * LN_2 + logf(sum[half]);
    }
    put_rows<WIDTH, BF16>(y, first + warp * 16, a.queries, by,
                          [&](uint32_t i) { return row_at(a.y, row + i, head, WIDTH); });
}

/* ---- backward ---- */

/* P and dS, in place of scores and of dY V^T.  ROWS_QUERY: rows are queries, else keys; the
 * other side's numbers lie along columns.  lse, along: of this thread's two queries, or of all
 * that lie along columns. */
template <int N, bool ROWS_QUERY, bool MASKED>
static __device__ __forceinline__ void weigh(const Attention &a, float (*s)[4], float (*ds)[4],
                                             const float *lse, const float *along, uint32_t row,
                                             uint32_t column)
{
    int t = threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int c = n * 8 + 2 * t + i % 2;
            uint32_t down = row + i / 2 * 8, across = column + c;
            int which = ROWS_QUERY ? i / 2 : c;
            bool in =
                !MASKED || sees(a, ROWS_QUERY ? down : across, ROWS_QUERY ? across : down);
            s[n][i] = in ? exp2f(s[n][i] * (a.scale * LOG2_E) - lse[which]) : 0;
            ds[n][i] = s[n][i] * (ds[n][i] - along[which]) * a.scale;
        }
}

/* Two tiles of each: one is worked on while the next one comes. */
template <int WIDTH, bool BF16>
static __global__ void __launch_bounds__(THREADS) queries_kernel(Attention a)
{
    const int KEYS = WIDTH > 64 ? 32 : 64, N = KEYS / 8, TILE = KEYS * WIDTH;
    DYNAMIC_SHARED(memory);
    Half *q = (Half *)memory, *dy = q + ROWS * WIDTH, *k = dy + ROWS * WIDTH, *v = k + 2 * TILE;
    uint32_t head = blockIdx.y, sample = blockIdx.z, kv = head / (a.heads / a.kv_heads);
    uint32_t first = (gridDim.x - 1 - blockIdx.x) * ROWS;
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, stage = 0;
    uint32_t mine = first + warp * 16 + lane / 4;
    u64 row = (u64)sample * a.queries;
    Range r = keys_of<KEYS>(a, first);
    auto load = [&](int to, uint32_t key) {
        load_tile<WIDTH, KEYS>(k + to * TILE, key, a.keys, [&](uint32_t i) {
            return row_at(a.k, key_row(a, sample, i), kv, WIDTH);
        });
        load_tile<WIDTH, KEYS>(v + to * TILE, key, a.keys, [&](uint32_t i) {
            return row_at(a.v, key_row(a, sample, i), kv, WIDTH);
        });
    };
    float dq[WIDTH / 8][4] = { { 0 } }, lse[2], along[2];
    load_tile<WIDTH, ROWS>(q, first, a.queries,
                           [&](uint32_t i) { return row_at(a.q, row + i, head, WIDTH); });
    load_tile<WIDTH, ROWS>(dy, first, a.queries,
                           [&](uint32_t i) { return row_at(a.dy, row + i, head, WIDTH); });
    load(0, r.begin);
    copies_commit();
    for (int half = 0; half < 2; half++) {
        uint32_t query = mine + half * 8 < a.queries ? mine + half * 8 : 0;
        lse[half] = a.lse[(row + query) * a.heads + head] * LOG2_E;
        along[half] = a.along[(row + query) * a.heads + head];
    }
    for (uint32_t key = r.begin; key < r.end; key += KEYS, stage ^= 1) {
        float s[N][4] = { { 0 } }, ds[N][4] = { { 0 } };
        if (key + KEYS < r.end)
            load(stage ^ 1, key + KEYS);
        copies_commit();
        copies_wait<1>();
        __syncthreads();
        by_rows<WIDTH, N, BF16>(s, q, warp * 16, k + stage * TILE);
        by_rows<WIDTH, N, BF16>(ds, dy, warp * 16, v + stage * TILE);
        if (all_see(a, first + warp * 16, key, 16, KEYS))
            weigh<N, true, false>(a, s, ds, lse, along, mine, key);
        else
            weigh<N, true, true>(a, s, ds, lse, along, mine, key);
        by_columns<WIDTH, N, BF16>(dq, ds, k + stage * TILE);
        __syncthreads();
    }
    const float by[2] = { 1, 1 };
    put_rows<WIDTH, BF16>(dq, first + warp * 16, a.queries, by,
                          [&](uint32_t i) { return row_at(a.dq, row + i, head, WIDTH); });
}

/* Queries past the end must not count in sums over queries: their lse makes weights of 0. */
template <int QUERIES>
static __device__ __forceinline__ void load_sums(const Attention &a, float *lse, float *along,
                                                 u64 row, uint32_t query, uint32_t head)
{
    uint32_t i = query + threadIdx.x;
    if (threadIdx.x >= QUERIES)
        return;
    bool any = i < a.queries;
    lse[threadIdx.x] = any ? a.lse[(row + i) * a.heads + head] * LOG2_E : INFINITY;
    along[threadIdx.x] = any ? a.along[(row + i) * a.heads + head] : 0;
}

template <int WIDTH, bool BF16>
static __global__ void __launch_bounds__(THREADS) keys_kernel(Attention a)
{
    const int QUERIES = WIDTH > 64 ? 32 : 64, N = QUERIES / 8, TILE = QUERIES * WIDTH;
    DYNAMIC_SHARED(memory);
    Half *k = (Half *)memory, *v = k + ROWS * WIDTH, *q = v + ROWS * WIDTH, *dy = q + 2 * TILE;
    float *lse = (float *)(dy + 2 * TILE), *along = lse + 2 * QUERIES;
    uint32_t kv = blockIdx.y, sample = blockIdx.z, group = a.heads / a.kv_heads;
    uint32_t first = blockIdx.x * ROWS;
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    uint32_t mine = first + warp * 16 + lane / 4;
    u64 row = (u64)sample * a.queries;
    Range r = queries_of<QUERIES>(a, first);
    uint32_t tiles = r.end > r.begin ? (r.end - r.begin + QUERIES - 1) / QUERIES : 0;
    auto load = [&](int to, uint32_t i) {
        uint32_t head = kv * group + i / tiles, query = r.begin + i % tiles * QUERIES;
        load_tile<WIDTH, QUERIES>(q + to * TILE, query, a.queries, [&](uint32_t j) {
            return row_at(a.q, row + j, head, WIDTH);
        });
        load_tile<WIDTH, QUERIES>(dy + to * TILE, query, a.queries, [&](uint32_t j) {
            return row_at(a.dy, row + j, head, WIDTH);
        });
        load_sums<QUERIES>(a, lse + to * QUERIES, along + to * QUERIES, row, query, head);
    };
    float dk[WIDTH / 8][4] = { { 0 } }, dv[WIDTH / 8][4] = { { 0 } };
    load_tile<WIDTH, ROWS>(k, first, a.keys, [&](uint32_t i) {
        return row_at(a.k, key_row(a, sample, i), kv, WIDTH);
    });
    load_tile<WIDTH, ROWS>(v, first, a.keys, [&](uint32_t i) {
        return row_at(a.v, key_row(a, sample, i), kv, WIDTH);
    });
    if (tiles > 0)
        load(0, 0);
    copies_commit();
    for (uint32_t i = 0; i < tiles * group; i++) {
        float s[N][4] = { { 0 } }, ds[N][4] = { { 0 } };
        int stage = i % 2;
        uint32_t query = r.begin + i % tiles * QUERIES;
        const float *lse_here = lse + stage * QUERIES, *along_here = along + stage * QUERIES;
        if (i + 1 < tiles * group)
            load(stage ^ 1, i + 1);
        copies_commit();
        copies_wait<1>();
        __syncthreads();
        by_rows<WIDTH, N, BF16>(s, k, warp * 16, q + stage * TILE);
        by_rows<WIDTH, N, BF16>(ds, v, warp * 16, dy + stage * TILE);
        if (all_see(a, query, first + warp * 16, QUERIES, 16))
            weigh<N, false, false>(a, s, ds, lse_here, along_here, mine, query);
        else
            weigh<N, false, true>(a, s, ds, lse_here, along_here, mine, query);
        by_columns<WIDTH, N, BF16>(dv, s, dy + stage * TILE);
        by_columns<WIDTH, N, BF16>(dk, ds, q + stage * TILE);
        __syncthreads();
    }
    copies_wait<0>(); /* where nobody sees these keys */
    const float by[2] = { 1, 1 };
    put_rows<WIDTH, BF16>(dk, first + warp * 16, a.keys, by, [&](uint32_t i) {
        return row_at(a.dk, key_row(a, sample, i), kv, WIDTH);
    });
    put_rows<WIDTH, BF16>(dv, first + warp * 16, a.keys, by, [&](uint32_t i) {
        return row_at(a.dv, key_row(a, sample, i), kv, WIDTH);
    });
}

/* ---- launching ---- */

static bool side_fits(const Side &s)
{
    return ((uintptr_t)s.at & 15) == 0 && s.stride % EIGHT == 0;
}

bool cuda_attention_has_mma(const Attention *a, bool backward)
{
    bool fits = (a->width == 64 || a->width == 128) && a->type != NUM_F32;
    const Side forward[] = { a->q, a->k, a->v, a->y }, back[] = { a->dy, a->dq, a->dk, a->dv };
    for (int i = 0; i < 4; i++)
        fits = fits && side_fits(forward[i]) && (!backward || side_fits(back[i]));
    return fits;
}

template <int WIDTH, bool BF16> static void forward(const Attention *a, void *stream)
{
    dim3 grid((unsigned)blocks_for(a->queries, ROWS), a->heads, a->batch);
    size_t bytes = sizeof(Half) * WIDTH * (ROWS + 2 * 64);
    ALLOW_SHARED((forward_kernel<WIDTH, BF16>), bytes);
    LAUNCH((forward_kernel<WIDTH, BF16>), grid, THREADS, bytes, stream, *a);
}

template <int WIDTH, bool BF16> static void backward(const Attention *a, void *stream)
{
    int other = WIDTH > 64 ? 32 : 64;
    size_t tiles = sizeof(Half) * WIDTH * 2 * (size_t)(ROWS + 2 * other);
    size_t bytes = tiles + 4 * sizeof(float) * (size_t)other;
    dim3 queries((unsigned)blocks_for(a->queries, ROWS), a->heads, a->batch);
    dim3 keys((unsigned)blocks_for(a->keys, ROWS), a->kv_heads, a->batch);
    ALLOW_SHARED((queries_kernel<WIDTH, BF16>), tiles);
    ALLOW_SHARED((keys_kernel<WIDTH, BF16>), bytes);
    LAUNCH((queries_kernel<WIDTH, BF16>), queries, THREADS, tiles, stream, *a);
    LAUNCH((keys_kernel<WIDTH, BF16>), keys, THREADS, bytes, stream, *a);
}

typedef void Launcher(const Attention *a, void *stream);

void cuda_attention_mma(const Attention *a, void *stream)
{
    Launcher *wide = a->type == NUM_BF16 ? forward<128, true> : forward<128, false>;
    Launcher *narrow = a->type == NUM_BF16 ? forward<64, true> : forward<64, false>;
    (a->width == 128 ? wide : narrow)(a, stream);
}

void cuda_attention_mma_back(const Attention *a, void *stream)
{
    Launcher *wide = a->type == NUM_BF16 ? backward<128, true> : backward<128, false>;
    Launcher *narrow = a->type == NUM_BF16 ? backward<64, true> : backward<64, false>;
    cuda_attention_along(a, stream);
    (a->width == 128 ? wide : narrow)(a, stream);
}

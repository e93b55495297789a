/*
 * cuda_attention_mma.cu - attention on tensor cores, after FlashAttention-2 (arXiv 2307.08691).
 *
 * A warp has 16 M rows and goes over tiles of the other side; while a tile is worked on,
 * cp.async brings the next one, so that there is one barrier a tile.
 *
 *     forward    rows: queries       over keys       Y = softmax(Q K^T) V, renormed as it goes
 *     queries    rows: queries       over keys       dQ = dS K
 *     keys       rows: keys          over queries    dK = dS^T Q, dV = P^T dY
 *
 * Backward makes P twice (once for queries, once for keys) instead of adding dQ up with
 * atomics: 7 products instead of 5, and equal bits on every run.
 *
 * What bounds it: an ldmatrix of four takes the multiprocessor's shared memory for four
 * clocks, an mma one of four tensor cores for about six (an estimate: mma.sync reaches some
 * 0.6 of an H100), so these are busy only if there are fewer than three ldmatrix for every
 * eight mma.  Hence as many rows a warp as registers hold, and rows in registers ("kept")
 * where they fit.  On sm_90, where two blocks share a multiprocessor and nothing spills (nor
 * does it on sm_80); "all": the instructions of a tile without a mask:
 *
 *              width  M  tile  at once  kept  registers  shared  ldmatrix / mma  all / mma
 *     forward     64  2    64       64   yes        232   48 KB            0.25        4.8
 *                128  2    32       32    no        239   64 KB            0.38        3.9
 *     queries     64  2    64       32   yes        250   64 KB            0.25        3.5
 *                128  2    32       32    no        255   96 KB            0.42        3.0
 *     keys        64  2    64       16   yes        252   65 KB            0.25        3.9
 *                128  1    32       32   yes        255   65 KB            0.50        3.6
 */
#include <cuda_runtime_api.h>

#include "exec/cuda_mma.cuh"

#define LOG2_E 1.4426950408889634f
#define LN_2   0.6931471805599453f

/* ---- shapes: fragments of rows in a warp, rows of a tile, and of what is done at once ---- */

enum { FORWARD_M = 2, QUERIES_M = 2 };

template <int WIDTH> static __device__ __host__ constexpr int forward_tile(void)
{
    return WIDTH > 64 ? 32 : 64;
}
template <int WIDTH> static __device__ __host__ constexpr int keys_m(void)
{
    return WIDTH > 64 ? 1 : 2;
}
template <int WIDTH> static __device__ __host__ constexpr int back_tile(void)
{
    return WIDTH > 64 ? 32 : 64;
}
static __device__ __host__ constexpr int block_rows(int m)
{
    return 16 * m * WARPS;
}

/* ---- who sees whom ---- */

typedef struct Range {
    uint32_t begin, end;
} Range;

static __device__ __forceinline__ uint32_t lesser(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static __device__ __forceinline__ Range keys_seen(const Attention &a, uint32_t query)
{
    uint32_t at = a.position + query, end = a.keys;
    if (a.causal)
        end = at + 1;
    else if (a.window)
        end = at + a.window;
    Range r = { a.window && at + 1 > a.window ? at + 1 - a.window : 0, lesser(end, a.keys) };
    return r;
}

static __device__ __forceinline__ Range queries_seeing(const Attention &a, uint32_t key)
{
    uint32_t before = a.causal ? a.position : a.position + a.window - 1;
    uint32_t end = key + a.window > a.position ? key + a.window - a.position : 0;
    Range r = { key > before ? key - before : 0, a.queries };
    if (!a.causal && !a.window)
        r.begin = 0;
    if (a.window)
        r.end = lesser(end, a.queries);
    return r;
}

/* Of several rows: what any of them sees, and what all of them do. */
typedef struct Reach {
    Range any, all;
} Reach;

static __device__ __forceinline__ Reach reach_of(Range first, Range last)
{
    Reach r = { { first.begin, last.end }, { last.begin, first.end } };
    return r;
}
static __device__ __forceinline__ bool some_see(const Reach &r, uint32_t at, uint32_t n)
{
    return at < r.any.end && at + n > r.any.begin;
}

/* ---- what a block has to do ---- */

/* A block has rows from `first`, of a head; this warp of it from `warp_first`. */
typedef struct Work {
    uint32_t sample, head, first, warp_first;
    Reach block, warp;
} Work;

/* The longest rows begin first. */
template <int M> static __device__ __forceinline__ Work work_on_queries(const Attention &a)
{
    uint32_t first = (gridDim.x - 1 - blockIdx.x) * block_rows(M);
    uint32_t warp = first + warp_of_block() * (16 * M);
    Work w = { blockIdx.z,
               blockIdx.y,
               first,
               warp,
               reach_of(keys_seen(a, first), keys_seen(a, first + block_rows(M) - 1)),
               reach_of(keys_seen(a, warp), keys_seen(a, warp + 16 * M - 1)) };
    return w;
}

/* Where query heads share one of keys blocks are few and long, and the longest (the first
 * keys, where causal) begin first.  If all are on the device at once, two to a multiprocessor,
 * the second half of them comes in the other order (folded): a long one beside a short one. */
template <int M>
static __device__ __forceinline__ Work work_on_keys(const Attention &a, uint32_t group,
                                                    bool folded)
{
    uint32_t sample = blockIdx.z, head = blockIdx.y, part = blockIdx.x;
    if (group > 1) {
        head = blockIdx.x, sample = blockIdx.y, part = blockIdx.z;
        if (folded && part >= gridDim.z / 2)
            part = gridDim.z - 1 - (part - gridDim.z / 2);
    }
    uint32_t first = part * block_rows(M), warp = first + warp_of_block() * (16 * M);
    Work w = { sample,
               head,
               first,
               warp,
               reach_of(queries_seeing(a, first), queries_seeing(a, first + block_rows(M) - 1)),
               reach_of(queries_seeing(a, warp), queries_seeing(a, warp + 16 * M - 1)) };
    return w;
}

/* Of lse and along. */
static __device__ __forceinline__ u64 sum_at(const Attention &a, const Work &w, uint32_t query)
{
    return ((u64)w.sample * a.queries + query) * a.heads + w.head;
}

template <int M> static __device__ __forceinline__ void all_equal(float *by, float x)
{
#pragma unroll
    for (int r = 0; r < 2 * M; r++)
        by[r] = x;
}

/* ---- masks ---- */

/* Row and column, both from this thread's first ones, and where the number is. */
template <int M, int N, typename Do> static __device__ __forceinline__ void over_scores(Do f)
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                f(m * 16 + i / 2 * 8, n * 8 + i % 2, m, n, i);
}

/* No score where a row does not see a column; the tile begins at column `at`. */
template <int M, int N, typename Seen>
static __device__ __forceinline__ void mask(float (*s)[N][4], const Work &w, uint32_t at,
                                            Seen seen)
{
    uint32_t lane = anew(threadIdx.x) % WARP;
    uint32_t column = at + lane % 4 * 2, row = w.warp_first + lane / 4;
    if (at < w.warp.all.begin)
        over_scores<M, N>([&](int r, int c, int m, int n, int i) {
            s[m][n][i] = (int)(seen(row + r).begin - column) > c ? -INFINITY : s[m][n][i];
        });
    if (at + N * 8 > w.warp.all.end)
        over_scores<M, N>([&](int r, int c, int m, int n, int i) {
            s[m][n][i] = (int)(seen(row + r).end - column) <= c ? -INFINITY : s[m][n][i];
        });
}

static __device__ __forceinline__ Rows rows_of(const Attention &a, const Side &s, u64 sample,
                                               uint32_t head, uint32_t width, bool keys)
{
    uint32_t n = keys ? a.keys : a.queries, chunk = keys ? lesser(a.chunk, n) : n;
    Rows rows = { (Half *)s.at + sample * chunk * s.stride + (u64)head * width,
                  (uint32_t)s.stride, n, chunk, (u64)(a.batch - 1) * chunk * s.stride };
    return rows;
}

/* ---- forward ---- */

/* Scores become weights.  Sums and outputs so far are brought to a new maximum only where one
 * has risen by more than SLACK: until then weights are at most 2^SLACK, which is as exact. */
#define SLACK 8.0f

template <int WIDTH, int M, int N>
static __device__ __forceinline__ void soften(float scale, float (*s)[N][4],
                                              float (*y)[WIDTH / 8][4], float *top, float *sum)
{
    float above[2 * M];
    bool rose = false;
#pragma unroll
    for (int r = 0; r < 2 * M; r++) {
        above[r] = -INFINITY;
#pragma unroll
        for (int n = 0; n < 2 * N; n++)
            above[r] = fmaxf(above[r], s[r / 2][n / 2][r % 2 * 2 + n % 2]);
        above[r] = fmaxf(above[r], __shfl_xor_sync(ALL_LANES, above[r], 1));
        above[r] = fmaxf(above[r], __shfl_xor_sync(ALL_LANES, above[r], 2)) * scale;
        rose = rose || above[r] > top[r] + SLACK;
    }
    if (__any_sync(ALL_LANES, rose))
#pragma unroll
        for (int r = 0; r < 2 * M; r++) {
            float old = top[r];
            top[r] = fmaxf(old, above[r]);
            float shrink = old == -INFINITY ? 0 : quick_exp2(old - top[r]);
            sum[r] *= shrink;
#pragma unroll
            for (int n = 0; n < WIDTH / 4; n++)
                y[r / 2][n / 2][r % 2 * 2 + n % 2] *= shrink;
        }
#pragma unroll
    for (int r = 0; r < 2 * M; r++) {
        float from = top[r] == -INFINITY ? 0 : top[r];
#pragma unroll
        for (int n = 0; n < 2 * N; n++) {
            float *x = &s[r / 2][n / 2][r % 2 * 2 + n % 2];
            *x = quick_exp2(*x * scale - from);
            sum[r] += *x; /* of this lane's columns */
        }
    }
}

/* Sums of all lanes, and what brings the outputs to one; the logarithm is kept for backward. */
template <int M>
static __device__ __forceinline__ void finish_sums(const Attention &a, const Work &w,
                                                   const float *top, const float *sum,
                                                   float *by)
{
#pragma unroll
    for (int r = 0; r < 2 * M; r++) {
        float all = sum[r] + __shfl_xor_sync(ALL_LANES, sum[r], 1);
        all += __shfl_xor_sync(ALL_LANES, all, 2);
        by[r] = 1 / all;
        uint32_t query = w.warp_first + threadIdx.x % WARP / 4 + r * 8;
        if (threadIdx.x % 4 == 0 && query < a.queries)
            a.lse[sum_at(a, w, query)] = top[r] * LN_2 + logf(all);
    }
}

template <int WIDTH, bool BF16>
static __global__ void __launch_bounds__(THREADS, 2) forward_kernel(Attention a, uint32_t group)
{
    const int M = FORWARD_M, KEYS = forward_tile<WIDTH>(), N = KEYS / 8;
    const int TILE = tile_bytes<WIDTH>(KEYS);
    const bool KEPT = WIDTH == 64;
    DYNAMIC_SHARED(memory);
    SharedAt q = shared_at(memory), kv = q + tile_bytes<WIDTH>(block_rows(M));
    Work w = work_on_queries<M>(a);
    Rows queries = rows_of(a, a.q, w.sample, w.head, WIDTH, false);
    Rows keys[2] = { rows_of(a, a.k, w.sample, w.head / group, WIDTH, true),
                     rows_of(a, a.v, w.sample, w.head / group, WIDTH, true) };
    Left<WIDTH, M, KEPT> left;
    float y[M][WIDTH / 8][4] = {}, top[2 * M], sum[2 * M] = {}, scale = a.scale * LOG2_E;
    all_equal<M>(top, -INFINITY);
    uint32_t key = w.block.any.begin / KEYS * KEYS;
    load_tiles<WIDTH, block_rows(M), 1>(q, 0, &queries, w.first);
    load_tiles<WIDTH, KEYS, 2>(kv, 2 * TILE, keys, key);
    copies_commit();
    copies_wait<0>();
    __syncthreads();
    left_begin(&left, q + tile_bytes<WIDTH>(w.warp_first - w.first));
    SharedAt k = kv + place_across<WIDTH>(), v = kv + 2 * TILE + place_down<WIDTH>();
    for (int stage = 0; key < w.block.any.end; key += KEYS, stage ^= TILE) {
        copies_wait<0>();
        __syncthreads();
        if (key + KEYS < w.block.any.end)
            load_tiles<WIDTH, KEYS, 2>(kv + (stage ^ TILE), 2 * TILE, keys, key + KEYS);
        copies_commit();
        if (!some_see(w.warp, key, KEYS))
            continue;
        float s[M][N][4] = {};
        by_rows<WIDTH, M, N, KEPT, BF16>(s, left, k + stage);
        mask<M, N>(s, w, key, [&](uint32_t i) { return keys_seen(a, i); });
        soften<WIDTH, M, N>(scale, s, y, top, sum);
        by_columns<WIDTH, M, N, BF16>(y, s, v + stage);
    }
    float by[2 * M];
    finish_sums<M>(a, w, top, sum, by);
    put_rows<WIDTH, M, BF16>(y, rows_of(a, a.y, w.sample, w.head, WIDTH, false), w.warp_first,
                             by);
}

/* ---- backward ---- */

/* P in place of scores, and dS / scale in place of dY V^T - along. */
template <int M, int N, typename Lse>
static __device__ __forceinline__ void weigh(float scale, float (*s)[N][4], float (*ds)[N][4],
                                             Lse lse)
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                s[m][n][i] = quick_exp2(s[m][n][i] * scale - lse(m, n, i));
                ds[m][n][i] *= s[m][n][i];
            }
}

/* What dS takes off: rows of dY Y, negative, for 16 M queries; kept for the keys' kernel. */
template <int WIDTH, int M, bool BF16>
static __device__ __forceinline__ void sum_along(const Attention &a, const Work &w,
                                                 float *along)
{
    Rows y = rows_of(a, a.y, w.sample, w.head, WIDTH, false);
    Rows dy = rows_of(a, a.dy, w.sample, w.head, WIDTH, false);
    NumType type = BF16 ? NUM_BF16 : NUM_F16;
    uint32_t lane = threadIdx.x % WARP, t = lane % 4;
#pragma unroll
    for (int r = 0; r < 2 * M; r++) {
        uint32_t query = w.warp_first + lane / 4 + r * 8, row = lesser(query, y.n - 1);
        const Half *left = row_at(y, row) + t * EIGHT, *right = row_at(dy, row) + t * EIGHT;
        float sum = 0;
#pragma unroll
        for (int c = 0; c < WIDTH; c += 4 * EIGHT) {
            float f[EIGHT], g[EIGHT];
            widen8(type, Raw8{ *(const uint4 *)(left + c), {} }, f);
            widen8(type, Raw8{ *(const uint4 *)(right + c), {} }, g);
#pragma unroll
            for (int i = 0; i < EIGHT; i++)
                sum += f[i] * g[i];
        }
        sum += __shfl_xor_sync(ALL_LANES, sum, 1);
        sum += __shfl_xor_sync(ALL_LANES, sum, 2);
        if (t == 0 && query < a.queries)
            a.along[sum_at(a, w, query)] = sum;
        along[r] = -sum;
    }
}

/* dq += dS of 8 N keys times them, for this warp's queries; k and v: their tiles. */
template <int WIDTH, int M, int N, bool KEPT, bool BF16>
static __device__ __forceinline__ void add_to_queries(const Attention &a, const Work &w,
                                                      float (*dq)[WIDTH / 8][4],
                                                      const Left<WIDTH, M, KEPT> &left_q,
                                                      const Left<WIDTH, M, KEPT> &left_dy,
                                                      SharedAt k, SharedAt v, uint32_t key,
                                                      const float *lse, const float *along)
{
    float s[M][N][4] = {}, ds[M][N][4];
    by_rows<WIDTH, M, N, KEPT, BF16>(s, left_q, k + place_across<WIDTH>(KEPT));
    over_scores<M, N>(
        [&](int r, int, int m, int n, int i) { ds[m][n][i] = KEPT ? along[r / 8] : 0; });
    by_rows<WIDTH, M, N, KEPT, BF16>(ds, left_dy, v + place_across<WIDTH>(KEPT));
    mask<M, N>(s, w, key, [&](uint32_t i) { return keys_seen(a, i); });
    if (!KEPT) /* where registers are few dS does not begin with it */
        over_scores<M, N>(
            [&](int r, int, int m, int n, int i) { ds[m][n][i] += along[r / 8]; });
    weigh<M, N>(a.scale * LOG2_E, s, ds, [&](int m, int, int i) { return lse[m * 2 + i / 2]; });
    by_columns<WIDTH, M, N, BF16>(dq, ds, k + place_down<WIDTH>(KEPT));
}

template <int WIDTH, bool BF16>
static __global__ void __launch_bounds__(THREADS, 2) queries_kernel(Attention a, uint32_t group)
{
    const int M = QUERIES_M, KEYS = back_tile<WIDTH>(), SOME = 32;
    const int TILE = tile_bytes<WIDTH>(KEYS), ROWS = block_rows(M);
    DYNAMIC_SHARED(memory);
    SharedAt q = shared_at(memory), dy = q + tile_bytes<WIDTH>(ROWS), k = dy + (dy - q);
    Work w = work_on_queries<M>(a);
    Rows queries[2] = { rows_of(a, a.q, w.sample, w.head, WIDTH, false),
                        rows_of(a, a.dy, w.sample, w.head, WIDTH, false) };
    Rows keys[2] = { rows_of(a, a.k, w.sample, w.head / group, WIDTH, true),
                     rows_of(a, a.v, w.sample, w.head / group, WIDTH, true) };
    Left<WIDTH, M, WIDTH == 64> left_q, left_dy;
    float dq[M][WIDTH / 8][4] = {}, lse[2 * M], along[2 * M], by[2 * M];
    uint32_t key = w.block.any.begin / KEYS * KEYS;
    load_tiles<WIDTH, ROWS, 2>(q, tile_bytes<WIDTH>(ROWS), queries, w.first);
    load_tiles<WIDTH, KEYS, 2>(k, 2 * TILE, keys, key);
    copies_commit();
#pragma unroll
    for (int r = 0; r < 2 * M; r++) {
        uint32_t query = w.warp_first + threadIdx.x % WARP / 4 + r * 8;
        lse[r] = a.lse[sum_at(a, w, lesser(query, a.queries - 1))] * LOG2_E;
    }
    sum_along<WIDTH, M, BF16>(a, w, along);
    copies_wait<0>();
    __syncthreads();
    left_begin(&left_q, q + tile_bytes<WIDTH>(w.warp_first - w.first));
    left_begin(&left_dy, dy + tile_bytes<WIDTH>(w.warp_first - w.first));
    for (int stage = 0; key < w.block.any.end; key += KEYS, stage ^= TILE) {
        copies_wait<0>();
        __syncthreads();
        if (key + KEYS < w.block.any.end)
            load_tiles<WIDTH, KEYS, 2>(k + (stage ^ TILE), 2 * TILE, keys, key + KEYS);
        copies_commit();
#pragma unroll 1
        for (int i = 0; i < KEYS; i += SOME) {
            SharedAt at = k + stage + tile_bytes<WIDTH>(i);
            if (some_see(w.warp, key + i, SOME))
                add_to_queries<WIDTH, M, SOME / 8, WIDTH == 64, BF16>(
                    a, w, dq, left_q, left_dy, at, at + 2 * TILE, key + i, lse, along);
        }
    }
    all_equal<M>(by, a.scale);
    put_rows<WIDTH, M, BF16>(dq, rows_of(a, a.dq, w.sample, w.head, WIDTH, false), w.warp_first,
                             by);
}

/* A tile of queries and of dY, and their lse and along; zeros past the end, where no key is
 * seen.  `to` is where the first of two such tiles of queries begins. */
template <int WIDTH, int QUERIES>
static __device__ __forceinline__ void load_queries(const Attention &a, SharedAt to, int stage,
                                                    uint32_t sample, uint32_t head,
                                                    uint32_t query)
{
    const int TILE = tile_bytes<WIDTH>(QUERIES), SUMS = 2 * QUERIES * (int)sizeof(float);
    Rows queries[2] = { rows_of(a, a.q, sample, head, WIDTH, false),
                        rows_of(a, a.dy, sample, head, WIDTH, false) };
    load_tiles<WIDTH, QUERIES, 2>(to + stage * TILE, 2 * TILE, queries, query);
    uint32_t thread = anew(threadIdx.x), i = query + thread % QUERIES;
    const float *from =
        (thread < QUERIES ? a.lse : a.along) + ((u64)sample * a.queries + i) * a.heads + head;
    if (thread < 2 * QUERIES)
        copy4_async(to + 4 * TILE + stage * SUMS + thread * (int)sizeof(float), from,
                    i < a.queries);
}

/* dk += dS^T q, dv += P^T dy over 8 N queries, for this warp's keys; q and dy: their tiles,
 * sums: their lse, and `apart` behind them their along. */
template <int WIDTH, int M, int N, bool BF16>
static __device__ __forceinline__ void add_to_keys(
    const Attention &a, const Work &w, float (*dk)[WIDTH / 8][4], float (*dv)[WIDTH / 8][4],
    const Left<WIDTH, M, true> &left_k, const Left<WIDTH, M, true> &left_v, SharedAt q,
    SharedAt dy, uint32_t query, const float *sums, int apart)
{
    float s[M][N][4] = {}, ds[M][N][4], lse[N][2];
    sums += anew(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int n = 0; n < N; n++) {
        float2 top = *(const float2 *)(sums + n * 8);
        float2 along = *(const float2 *)(sums + n * 8 + apart);
        lse[n][0] = top.x * LOG2_E, lse[n][1] = top.y * LOG2_E;
#pragma unroll
        for (int m = 0; m < M; m++) {
            ds[m][n][0] = ds[m][n][2] = -along.x;
            ds[m][n][1] = ds[m][n][3] = -along.y;
        }
    }
    by_rows<WIDTH, M, N, true, BF16>(s, left_k, q + place_across<WIDTH>());
    by_rows<WIDTH, M, N, true, BF16>(ds, left_v, dy + place_across<WIDTH>());
    mask<M, N>(s, w, query, [&](uint32_t i) { return queries_seeing(a, i); });
    weigh<M, N>(a.scale * LOG2_E, s, ds, [&](int, int n, int i) { return lse[n][i % 2]; });
    by_columns<WIDTH, M, N, BF16>(dv, s, dy + place_down<WIDTH>());
    by_columns<WIDTH, M, N, BF16>(dk, ds, q + place_down<WIDTH>());
}

template <int WIDTH, bool BF16>
static __global__ void __launch_bounds__(THREADS, 2)
    keys_kernel(Attention a, uint32_t group, bool folded)
{
    const int M = keys_m<WIDTH>(), ROWS = block_rows(M), QUERIES = back_tile<WIDTH>();
    const int SOME = WIDTH > 64 ? 32 : 16, TILE = tile_bytes<WIDTH>(QUERIES);
    DYNAMIC_SHARED(memory);
    SharedAt k = shared_at(memory), v = k + tile_bytes<WIDTH>(ROWS), q = v + (v - k);
    const float *sums = (const float *)(memory + 2 * tile_bytes<WIDTH>(ROWS) + 4 * TILE);
    Work w = work_on_keys<M>(a, group, folded);
    Left<WIDTH, M, true> left_k, left_v;
    float dk[M][WIDTH / 8][4] = {}, dv[M][WIDTH / 8][4] = {}, by[2 * M];
    uint32_t begin = w.block.any.begin / QUERIES * QUERIES, query = begin,
             head = w.head * group;
    Rows keys[2] = { rows_of(a, a.k, w.sample, w.head, WIDTH, true),
                     rows_of(a, a.v, w.sample, w.head, WIDTH, true) };
    load_tiles<WIDTH, ROWS, 2>(k, tile_bytes<WIDTH>(ROWS), keys, w.first);
    load_queries<WIDTH, QUERIES>(a, q, 0, w.sample, head, query);
    copies_commit();
    copies_wait<0>();
    __syncthreads();
    left_begin(&left_k, k + tile_bytes<WIDTH>(w.warp_first - w.first));
    left_begin(&left_v, v + tile_bytes<WIDTH>(w.warp_first - w.first));
    bool more = begin < w.block.any.end;
    for (int stage = 0; more; stage ^= 1) {
        uint32_t here = query;
        copies_wait<0>();
        __syncthreads();
        query += QUERIES;
        if (query >= w.block.any.end)
            query = begin, head++;
        more = head < (w.head + 1) * group;
        if (more)
            load_queries<WIDTH, QUERIES>(a, q, stage ^ 1, w.sample, head, query);
        copies_commit();
#pragma unroll 1
        for (int i = 0; i < QUERIES; i += SOME) {
            SharedAt at = q + stage * TILE + tile_bytes<WIDTH>(i);
            if (some_see(w.warp, here + i, SOME))
                add_to_keys<WIDTH, M, SOME / 8, BF16>(a, w, dk, dv, left_k, left_v, at,
                                                      at + 2 * TILE, here + i,
                                                      sums + stage * 2 * QUERIES + i, QUERIES);
        }
    }
    all_equal<M>(by, 1);
    put_rows<WIDTH, M, BF16>(dv, rows_of(a, a.dv, w.sample, w.head, WIDTH, true), w.warp_first,
                             by);
    all_equal<M>(by, a.scale);
    put_rows<WIDTH, M, BF16>(dk, rows_of(a, a.dk, w.sample, w.head, WIDTH, true), w.warp_first,
                             by);
}

/* ---- launching ---- */

static bool side_fits(const Side &s)
{
    return ((uintptr_t)s.at & 15) == 0 && s.stride % EIGHT == 0 && s.stride <= INT32_MAX;
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
    const int rows = block_rows(FORWARD_M);
    dim3 grid((unsigned)blocks_for(a->queries, rows), a->heads, a->batch);
    size_t bytes = (size_t)tile_bytes<WIDTH>(rows + 4 * forward_tile<WIDTH>());
    (void)CAN_SHARE((forward_kernel<WIDTH, BF16>), bytes);
    LAUNCH((forward_kernel<WIDTH, BF16>), grid, THREADS, bytes, stream, *a,
           a->heads / a->kv_heads);
}

/* Are so many blocks on the device together, two to a multiprocessor? */
static bool at_once(u64 blocks)
{
    int device, multiprocessors;
    return cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device) ==
               cudaSuccess &&
           blocks <= 2 * (u64)multiprocessors;
}

template <int WIDTH, bool BF16> static void backward(const Attention *a, void *stream)
{
    const int tile = back_tile<WIDTH>(), q = block_rows(QUERIES_M);
    const int k = block_rows(keys_m<WIDTH>());
    size_t q_bytes = (size_t)tile_bytes<WIDTH>(2 * q + 4 * tile);
    size_t k_bytes = (size_t)tile_bytes<WIDTH>(2 * k + 4 * tile) + 4 * tile * sizeof(float);
    dim3 queries((unsigned)blocks_for(a->queries, q), a->heads, a->batch);
    unsigned parts = (unsigned)blocks_for(a->keys, k);
    dim3 keys = a->heads == a->kv_heads ? dim3(parts, a->kv_heads, a->batch)
                                        : dim3(a->kv_heads, a->batch, parts);
    (void)CAN_SHARE((queries_kernel<WIDTH, BF16>), q_bytes);
    (void)CAN_SHARE((keys_kernel<WIDTH, BF16>), k_bytes);
    LAUNCH((queries_kernel<WIDTH, BF16>), queries, THREADS, q_bytes, stream, *a,
           a->heads / a->kv_heads);
    LAUNCH((keys_kernel<WIDTH, BF16>), keys, THREADS, k_bytes, stream, *a,
           a->heads / a->kv_heads, at_once((u64)parts * a->kv_heads * a->batch));
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
    (a->width == 128 ? wide : narrow)(a, stream);
}

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
 */
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

/* No score where a row does not see a column; the tile begins at `at`. */
template <int M, int N, typename Seen>
static __device__ __forceinline__ void mask(float (*s)[N][4], const Reach &reach, uint32_t at,
                                            uint32_t row, Seen seen)
{
    uint32_t lane = anew(threadIdx.x) % WARP, column = at + lane % 4 * 2;
    row += lane / 4;
    if (at < reach.all.begin)
        over_scores<M, N>([&](int r, int c, int m, int n, int i) {
            s[m][n][i] = (int)(seen(row + r).begin - column) > c ? -INFINITY : s[m][n][i];
        });
    if (at + N * 8 > reach.all.end)
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
static __device__ __forceinline__ void finish_sums(const Attention &a, const float *top,
                                                   const float *sum, float *by, uint32_t query,
                                                   u64 at, uint32_t head)
{
#pragma unroll
    for (int r = 0; r < 2 * M; r++) {
        float all = sum[r] + __shfl_xor_sync(ALL_LANES, sum[r], 1);
        all += __shfl_xor_sync(ALL_LANES, all, 2);
        by[r] = 1 / all;
        uint32_t i = query + r * 8;
        if (threadIdx.x % 4 == 0 && i < a.queries)
            a.lse[(at + i) * a.heads + head] = top[r] * LN_2 + logf(all);
    }
}

template <int WIDTH, bool BF16>
static __global__ void __launch_bounds__(THREADS, 2) forward_kernel(Attention a, uint32_t group)
{
    const int M = FORWARD_M, ROWS = block_rows(M), KEYS = forward_tile<WIDTH>(), N = KEYS / 8;
    const int TILE = tile_bytes<WIDTH>(KEYS);
    DYNAMIC_SHARED(memory);
    SharedAt q = shared_at(memory), kv = q + tile_bytes<WIDTH>(ROWS);
    uint32_t head = blockIdx.y, sample = blockIdx.z, kv_head = head / group;
    uint32_t first = (gridDim.x - 1 - blockIdx.x) * ROWS; /* the longest rows begin first */
    uint32_t warp_first = first + warp_of_block() * (16 * M);
    uint32_t mine = warp_first + threadIdx.x % WARP / 4;
    Reach block = reach_of(keys_seen(a, first), keys_seen(a, first + ROWS - 1));
    Reach warp = reach_of(keys_seen(a, warp_first), keys_seen(a, warp_first + 16 * M - 1));
    Rows keys = rows_of(a, a.k, sample, kv_head, WIDTH, true);
    Rows values = rows_of(a, a.v, sample, kv_head, WIDTH, true);
    Left<WIDTH, M, WIDTH == 64> left;
    float y[M][WIDTH / 8][4] = {}, top[2 * M], sum[2 * M] = {}, scale = a.scale * LOG2_E;
#pragma unroll
    for (int r = 0; r < 2 * M; r++)
        top[r] = -INFINITY;
    uint32_t key = block.any.begin / KEYS * KEYS;
    load_tile<WIDTH, ROWS>(q, rows_of(a, a.q, sample, head, WIDTH, false), first);
    load_tile<WIDTH, KEYS>(kv, keys, key);
    load_tile<WIDTH, KEYS>(kv + 2 * TILE, values, key);
    copies_commit();
    copies_wait<0>();
    __syncthreads();
    left_begin(&left, q + tile_bytes<WIDTH>(warp_of_block() * (16 * M)));
    SharedAt k = kv + place_across<WIDTH>(), v = kv + 2 * TILE + place_down<WIDTH>();
    for (int stage = 0; key < block.any.end; key += KEYS, stage ^= TILE) {
        copies_wait<0>();
        __syncthreads();
        if (key + KEYS < block.any.end) {
            load_tile<WIDTH, KEYS>(kv + (stage ^ TILE), keys, key + KEYS);
            load_tile<WIDTH, KEYS>(kv + 2 * TILE + (stage ^ TILE), values, key + KEYS);
        }
        copies_commit();
        if (!some_see(warp, key, KEYS))
            continue;
        float s[M][N][4] = {};
        by_rows<WIDTH, M, N, WIDTH == 64, BF16>(s, left, k + stage);
        mask<M, N>(s, warp, key, warp_first, [&](uint32_t i) { return keys_seen(a, i); });
        soften<WIDTH, M, N>(scale, s, y, top, sum);
        by_columns<WIDTH, M, N, BF16>(y, s, v + stage);
    }
    float by[2 * M];
    finish_sums<M>(a, top, sum, by, mine, (u64)sample * a.queries, head);
    put_rows<WIDTH, M, BF16>(y, rows_of(a, a.y, sample, head, WIDTH, false), warp_first, by);
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

template <int M> static __device__ __forceinline__ void all_equal(float *by, float x)
{
#pragma unroll
    for (int r = 0; r < 2 * M; r++)
        by[r] = x;
}

template <int WIDTH, bool BF16>
static __global__ void __launch_bounds__(THREADS, 2) queries_kernel(Attention a, uint32_t group)
{
    const int M = QUERIES_M, ROWS = block_rows(M), KEYS = back_tile<WIDTH>();
    const int SOME = 32, N = SOME / 8, TILE = tile_bytes<WIDTH>(KEYS);
    const bool KEPT = WIDTH == 64;
    DYNAMIC_SHARED(memory);
    SharedAt q = shared_at(memory), dy = q + tile_bytes<WIDTH>(ROWS), k = dy + (dy - q);
    uint32_t head = blockIdx.y, sample = blockIdx.z, kv_head = head / group;
    uint32_t first = (gridDim.x - 1 - blockIdx.x) * ROWS;
    uint32_t warp_first = first + warp_of_block() * (16 * M);
    uint32_t mine = warp_first + threadIdx.x % WARP / 4;
    Reach block = reach_of(keys_seen(a, first), keys_seen(a, first + ROWS - 1));
    Reach warp = reach_of(keys_seen(a, warp_first), keys_seen(a, warp_first + 16 * M - 1));
    Rows keys = rows_of(a, a.k, sample, kv_head, WIDTH, true);
    Rows values = rows_of(a, a.v, sample, kv_head, WIDTH, true);
    Left<WIDTH, M, KEPT> left_q, left_dy;
    float dq[M][WIDTH / 8][4] = {}, lse[2 * M], along[2 * M], scale = a.scale * LOG2_E;
    uint32_t key = block.any.begin / KEYS * KEYS;
    load_tile<WIDTH, ROWS>(q, rows_of(a, a.q, sample, head, WIDTH, false), first);
    load_tile<WIDTH, ROWS>(dy, rows_of(a, a.dy, sample, head, WIDTH, false), first);
    load_tile<WIDTH, KEYS>(k, keys, key);
    load_tile<WIDTH, KEYS>(k + 2 * TILE, values, key);
    copies_commit();
#pragma unroll
    for (int r = 0; r < 2 * M; r++) {
        uint32_t query = lesser(mine + r * 8, a.queries - 1);
        u64 at = ((u64)sample * a.queries + query) * a.heads + head;
        lse[r] = a.lse[at] * LOG2_E;
        along[r] = -a.along[at];
    }
    copies_wait<0>();
    __syncthreads();
    left_begin(&left_q, q + tile_bytes<WIDTH>(warp_of_block() * (16 * M)));
    left_begin(&left_dy, dy + tile_bytes<WIDTH>(warp_of_block() * (16 * M)));
    for (int stage = 0; key < block.any.end; key += KEYS, stage ^= TILE) {
        copies_wait<0>();
        __syncthreads();
        if (key + KEYS < block.any.end) {
            load_tile<WIDTH, KEYS>(k + (stage ^ TILE), keys, key + KEYS);
            load_tile<WIDTH, KEYS>(k + 2 * TILE + (stage ^ TILE), values, key + KEYS);
        }
        copies_commit();
#pragma unroll 1
        for (int i = 0; i < KEYS; i += SOME) {
            SharedAt at = k + stage + tile_bytes<WIDTH>(i);
            float s[M][N][4] = {}, ds[M][N][4];
            if (!some_see(warp, key + i, SOME))
                continue;
            by_rows<WIDTH, M, N, KEPT, BF16>(s, left_q, at + place_across<WIDTH>());
#pragma unroll
            for (int j = 0; j < M * N * 4; j++)
                ds[j / 4 / N][j / 4 % N][j % 4] = KEPT ? along[j / 4 / N * 2 + j % 4 / 2] : 0;
            by_rows<WIDTH, M, N, KEPT, BF16>(ds, left_dy,
                                             at + 2 * TILE + place_across<WIDTH>());
            mask<M, N>(s, warp, key + i, warp_first,
                       [&](uint32_t i) { return keys_seen(a, i); });
            if (!KEPT)
#pragma unroll
                for (int j = 0; j < M * N * 4; j++)
                    ds[j / 4 / N][j / 4 % N][j % 4] += along[j / 4 / N * 2 + j % 4 / 2];
            weigh<M, N>(scale, s, ds, [&](int m, int, int c) { return lse[m * 2 + c / 2]; });
            by_columns<WIDTH, M, N, BF16>(dq, ds, at + place_down<WIDTH>());
        }
    }
    float by[2 * M];
    all_equal<M>(by, a.scale);
    put_rows<WIDTH, M, BF16>(dq, rows_of(a, a.dq, sample, head, WIDTH, false), warp_first, by);
}

/* lse and along of a tile's queries; zeros past the end, where nobody looks. */
template <int QUERIES>
static __device__ __forceinline__ void load_sums(const Attention &a, SharedAt sums, u64 row,
                                                 uint32_t query, uint32_t head)
{
    uint32_t thread = anew(threadIdx.x), i = thread % QUERIES;
    bool any = query + i < a.queries;
    const float *from =
        (thread < QUERIES ? a.lse : a.along) + (row + query + i) * a.heads + head;
    if (thread < 2 * QUERIES)
        copy4_async(sums + thread * (int)sizeof(float), from, any);
}

template <int WIDTH, bool BF16>
static __global__ void __launch_bounds__(THREADS, 2) keys_kernel(Attention a, uint32_t group)
{
    const int M = keys_m<WIDTH>(), ROWS = block_rows(M), QUERIES = back_tile<WIDTH>();
    const int SOME = WIDTH > 64 ? 32 : 16, N = SOME / 8, TILE = tile_bytes<WIDTH>(QUERIES);
    const int SUMS = 2 * QUERIES;
    const bool KEPT = WIDTH == 64;
    DYNAMIC_SHARED(memory);
    SharedAt k = shared_at(memory), v = k + tile_bytes<WIDTH>(ROWS), q = v + (v - k);
    const float *sums = (const float *)(memory + 2 * tile_bytes<WIDTH>(ROWS) + 4 * TILE);
    uint32_t kv_head = blockIdx.y, sample = blockIdx.z;
    uint32_t first = blockIdx.x * ROWS, warp_first = first + warp_of_block() * (16 * M);
    u64 row = (u64)sample * a.queries;
    Reach block = reach_of(queries_seeing(a, first), queries_seeing(a, first + ROWS - 1));
    Reach warp =
        reach_of(queries_seeing(a, warp_first), queries_seeing(a, warp_first + 16 * M - 1));
    auto load = [&](int stage, uint32_t head, uint32_t query) {
        load_tile<WIDTH, QUERIES>(q + stage * TILE, rows_of(a, a.q, sample, head, WIDTH, false),
                                  query);
        load_tile<WIDTH, QUERIES>(q + (2 + stage) * TILE,
                                  rows_of(a, a.dy, sample, head, WIDTH, false), query);
        load_sums<QUERIES>(a, q + 4 * TILE + stage * (SUMS * (int)sizeof(float)), row, query,
                           head);
    };
    Left<WIDTH, M, KEPT> left_k, left_v;
    float dk[M][WIDTH / 8][4] = {}, dv[M][WIDTH / 8][4] = {}, scale = a.scale * LOG2_E;
    uint32_t begin = block.any.begin / QUERIES * QUERIES, query = begin, head = kv_head * group;
    load_tile<WIDTH, ROWS>(k, rows_of(a, a.k, sample, kv_head, WIDTH, true), first);
    load_tile<WIDTH, ROWS>(v, rows_of(a, a.v, sample, kv_head, WIDTH, true), first);
    load(0, head, query);
    copies_commit();
    copies_wait<0>();
    __syncthreads();
    left_begin(&left_k, k + tile_bytes<WIDTH>(warp_of_block() * (16 * M)));
    left_begin(&left_v, v + tile_bytes<WIDTH>(warp_of_block() * (16 * M)));
    bool more = begin < block.any.end;
    for (int stage = 0; more; stage ^= 1) {
        copies_wait<0>();
        __syncthreads();
        uint32_t here = query;
        query += QUERIES;
        if (query >= block.any.end)
            query = begin, head++;
        more = head < (kv_head + 1) * group;
        if (more)
            load(stage ^ 1, head, query);
        copies_commit();
#pragma unroll 1
        for (int i = 0; i < QUERIES; i += SOME) {
            SharedAt at = q + stage * TILE + tile_bytes<WIDTH>(i);
            const float *lse = sums + stage * SUMS + i + anew(threadIdx.x) % 4 * 2;
            float s[M][N][4] = {}, ds[M][N][4], top[N][2];
            if (!some_see(warp, here + i, SOME))
                continue;
#pragma unroll
            for (int n = 0; n < N; n++) {
                float2 low = *(const float2 *)(lse + n * 8);
                float2 along = *(const float2 *)(lse + QUERIES + n * 8);
                top[n][0] = low.x * LOG2_E, top[n][1] = low.y * LOG2_E;
#pragma unroll
                for (int m = 0; m < M; m++) {
                    ds[m][n][0] = ds[m][n][2] = -along.x;
                    ds[m][n][1] = ds[m][n][3] = -along.y;
                }
            }
            by_rows<WIDTH, M, N, KEPT, BF16>(s, left_k, at + place_across<WIDTH>());
            by_rows<WIDTH, M, N, KEPT, BF16>(ds, left_v, at + 2 * TILE + place_across<WIDTH>());
            mask<M, N>(s, warp, here + i, warp_first,
                       [&](uint32_t i) { return queries_seeing(a, i); });
            weigh<M, N>(scale, s, ds, [&](int, int n, int c) { return top[n][c % 2]; });
            by_columns<WIDTH, M, N, BF16>(dv, s, at + 2 * TILE + place_down<WIDTH>());
            by_columns<WIDTH, M, N, BF16>(dk, ds, at + place_down<WIDTH>());
        }
    }
    float by[2 * M];
    all_equal<M>(by, 1);
    put_rows<WIDTH, M, BF16>(dv, rows_of(a, a.dv, sample, kv_head, WIDTH, true), warp_first,
                             by);
    all_equal<M>(by, a.scale);
    put_rows<WIDTH, M, BF16>(dk, rows_of(a, a.dk, sample, kv_head, WIDTH, true), warp_first,
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
    ALLOW_SHARED((forward_kernel<WIDTH, BF16>), bytes);
    LAUNCH((forward_kernel<WIDTH, BF16>), grid, THREADS, bytes, stream, *a,
           a->heads / a->kv_heads);
}

template <int WIDTH, bool BF16> static void backward(const Attention *a, void *stream)
{
    const int tile = back_tile<WIDTH>(), q = block_rows(QUERIES_M);
    const int k = block_rows(keys_m<WIDTH>());
    size_t q_bytes = (size_t)tile_bytes<WIDTH>(2 * q + 4 * tile);
    size_t k_bytes = (size_t)tile_bytes<WIDTH>(2 * k + 4 * tile) + 4 * tile * sizeof(float);
    dim3 queries((unsigned)blocks_for(a->queries, q), a->heads, a->batch);
    dim3 keys((unsigned)blocks_for(a->keys, k), a->kv_heads, a->batch);
    ALLOW_SHARED((queries_kernel<WIDTH, BF16>), q_bytes);
    ALLOW_SHARED((keys_kernel<WIDTH, BF16>), k_bytes);
    LAUNCH((queries_kernel<WIDTH, BF16>), queries, THREADS, q_bytes, stream, *a,
           a->heads / a->kv_heads);
    LAUNCH((keys_kernel<WIDTH, BF16>), keys, THREADS, k_bytes, stream, *a,
           a->heads / a->kv_heads);
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

/*
 * cuda_attention.cu - attention of any width and type, and unfused softmax.
 *
 * A block has rows of one head (queries, or keys for their own gradients) and goes over the
 * other side 32 at a time: of each tile a lane has one score of every row of its warp.  Both
 * sides pass through shared memory 64 columns at a time, so that widths have no end but
 * registers; sums are f32, by the units that all types share.  What has tensor cores goes to
 * cuda_attention_mma.cu instead.
 *
 *     S = scale Q K^T, masked     P = softmax(S)     Y = P V      along = rowsum(dY Y)
 *     dV = P^T dY     dS = P (dY V^T - along) scale     dQ = dS K     dK = dS^T Q
 *
 * Four columns of a row and a tile are 32 multiplications for 12 accesses to shared memory (8
 * rows that all lanes read alike, one of their own in four parts), so that these bound it at two
 * thirds of what the units do.
 */
#include "exec/cuda_device.cuh"

enum { WARPS = 4, TILE = WARP, CHUNK = 64, PITCH = CHUNK + 4, P_PITCH = TILE + 4 };

/* EACH: columns of a lane's sums, so widths up to 32 EACH.  More of them, fewer rows. */
template <int EACH> static __device__ __host__ constexpr int rows_of_warp(void)
{
    return EACH <= 4 ? 8 : 4;
}
template <int EACH> static __device__ __host__ constexpr int rows_of_block(void)
{
    return WARPS * rows_of_warp<EACH>();
}

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

static __device__ __forceinline__ Span seen_by(const Attention &a, uint32_t query)
{
    return seen(a.position + query, a.keys, a.window, a.causal);
}

static __device__ __forceinline__ bool sees(const Attention &a, uint32_t query, uint32_t key)
{
    Span s = seen_by(a, query);
    return query < a.queries && key >= s.begin && key < s.end;
}

/* ---- rows in memory ---- */

/* Row of a key. */
static __device__ __forceinline__ u64 key_row(const Attention &a, u64 sample, uint32_t key)
{
    if (key < a.chunk)
        return sample * a.chunk + key;
    return ((u64)(key / a.chunk) * a.batch + sample) * a.chunk + key % a.chunk;
}

/* Columns of one row and head. */
typedef struct Line {
    u64 at;
    bool any;
} Line;

/* One side of a sample and a head: its queries, or its keys. */
typedef struct Rows {
    Side side;
    u64 sample;
    uint32_t head, n;
    bool keys;
} Rows;

static __device__ __forceinline__ Rows query_rows(const Attention &a, const Side &side,
                                                  u64 sample, uint32_t head)
{
    Rows r = { side, sample, head, a.queries, false };
    return r;
}
static __device__ __forceinline__ Rows rows_of_keys(const Attention &a, const Side &side,
                                                    u64 sample, uint32_t head)
{
    Rows r = { side, sample, head, a.keys, true };
    return r;
}

static __device__ __forceinline__ Line line(const Attention &a, const Rows &rows, uint32_t i)
{
    if (i >= rows.n) {
        Line none = { 0, false };
        return none;
    }
    u64 row = rows.keys ? key_row(a, rows.sample, i) : rows.sample * a.queries + i;
    Line l = { row * rows.side.stride + (u64)rows.head * a.width, true };
    return l;
}

/* ---- tiles ---- */

typedef float4 Tile[TILE][PITCH / 4];      /* rows of 64 columns */
typedef float4 Weights[TILE][P_PITCH / 4]; /* [row of the block][lane's row] */

/* Columns from `column` on of N rows from `first` on; what is not there is 0. */
template <int N>
static __device__ __forceinline__ void load_tile(const Attention &a, float4 (*tile)[PITCH / 4],
                                                 const Rows &rows, uint32_t first,
                                                 uint32_t column)
{
    uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    Vec v = { rows.side.at, a.type };
#pragma unroll
    for (int i = 0; i < N; i += WARPS) {
        Line l = line(a, rows, first + i + warp);
        float *to = (float *)tile[i + warp];
#pragma unroll
        for (uint32_t c = 0; c < CHUNK; c += WARP) {
            bool any = l.any && column + c + lane < a.width;
            to[c + lane] = any ? load1(v, l.at + column + c + lane) : 0;
        }
    }
}

/* s[r] += row r of this warp times the lane's row of the tile. */
template <int ROWS>
static __device__ __forceinline__ void add_products(const float4 (*rows)[PITCH / 4],
                                                    const float4 (*tile)[PITCH / 4], float *s)
{
    const float4 *own = tile[threadIdx.x % WARP];
    const float4(*mine)[PITCH / 4] = rows + threadIdx.x / WARP * ROWS;
#pragma unroll 4
    for (int c = 0; c < CHUNK / 4; c++) {
        float4 y = own[c];
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            float4 x = mine[r][c];
            s[r] += x.x * y.x + x.y * y.y + x.z * y.z + x.w * y.w;
        }
    }
}

/* Where the block's own rows of one chunk stay from tile to tile, and the other side's pass. */
typedef struct Sides {
    Rows own, other;
    uint32_t own_first;
} Sides;

/* s[r] = row r of this warp times the lane's row, of the tile from `at` on. */
template <int EACH>
static __device__ __forceinline__ void score(const Attention &a, const Sides &sides,
                                             uint32_t at, bool first_tile,
                                             float4 (*rows)[PITCH / 4],
                                             float4 (*tile)[PITCH / 4], float *s)
{
    enum { ROWS = rows_of_warp<EACH>(), BLOCK = rows_of_block<EACH>() };
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        s[r] = 0;
    for (uint32_t column = 0; column < a.width; column += CHUNK) {
        __syncthreads(); /* who still reads what lay there */
        if (first_tile || a.width > CHUNK)
            load_tile<BLOCK>(a, rows, sides.own, sides.own_first, column);
        load_tile<TILE>(a, tile, sides.other, at, column);
        __syncthreads();
        add_products<ROWS>(rows, tile, s);
    }
}

/* sums of row r += the weights of row r times the tile's rows, of all columns. */
template <int EACH>
static __device__ __forceinline__ void add_rows(const Attention &a, const Rows &other,
                                                uint32_t at,
                                                const float4 (*weights)[P_PITCH / 4],
                                                float4 (*tile)[PITCH / 4], float (*sums)[EACH])
{
    enum { ROWS = rows_of_warp<EACH>() };
    uint32_t lane = threadIdx.x % WARP;
    const float4(*mine)[P_PITCH / 4] = weights + threadIdx.x / WARP * ROWS;
#pragma unroll
    for (int j = 0; j < EACH; j += 2) {
        if ((uint32_t)j * WARP >= a.width)
            break;
        __syncthreads();
        load_tile<TILE>(a, tile, other, at, (uint32_t)j * WARP);
        __syncthreads();
#pragma unroll 2
        for (int i = 0; i < TILE; i += 4) {
            float x[4], y[4];
#pragma unroll
            for (int k = 0; k < 4; k++) {
                x[k] = ((const float *)tile[i + k])[lane];
                y[k] = ((const float *)tile[i + k])[lane + WARP];
            }
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                float4 w = mine[r][i / 4];
                sums[r][j] += w.x * x[0] + w.y * x[1] + w.z * x[2] + w.w * x[3];
                sums[r][j + 1] += w.x * y[0] + w.y * y[1] + w.z * y[2] + w.w * y[3];
            }
        }
    }
}

template <int EACH>
static __device__ __forceinline__ void put_row(const Attention &a, const Rows &rows, uint32_t i,
                                               float by, const float *sums)
{
    uint32_t lane = threadIdx.x % WARP;
    Line l = line(a, rows, i);
    Vec v = { rows.side.at, a.type };
#pragma unroll
    for (int j = 0; j < EACH; j++)
        if (l.any && (uint32_t)j * WARP + lane < a.width)
            store1(v, l.at + (uint32_t)j * WARP + lane, sums[j] * by);
}

/* ---- forward ---- */

/* The lane's weight of a row whose greatest score is now *top; what was summed before shrinks. */
static __device__ __forceinline__ float next_weight(float s, float *top, float *sum,
                                                    float *shrink)
{
    float above = fmaxf(*top, warp_max(s));
    float p = s == -INFINITY ? 0 : expf(s - above);
    *shrink = above == -INFINITY ? 1 : expf(*top - above);
    *sum = *sum * *shrink + warp_sum(p);
    *top = above;
    return p;
}

template <int EACH> static __global__ void forward_kernel(Attention a)
{
    enum { ROWS = rows_of_warp<EACH>(), BLOCK = rows_of_block<EACH>() };
    __shared__ Tile rows, tile;
    __shared__ Weights weights;
    uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, head = blockIdx.y;
    uint32_t first = (gridDim.x - 1 - blockIdx.x) * BLOCK, mine = first + warp * ROWS;
    uint32_t kv = head / (a.heads / a.kv_heads);
    Sides sides = { query_rows(a, a.q, blockIdx.z, head), rows_of_keys(a, a.k, blockIdx.z, kv),
                    first };
    Rows values = rows_of_keys(a, a.v, blockIdx.z, kv);
    float top[ROWS], sum[ROWS] = { 0 }, y[ROWS][EACH] = { { 0 } };
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        top[r] = -INFINITY;
    uint32_t begin = seen_by(a, first).begin, end = seen_by(a, first + BLOCK - 1).end;
    for (uint32_t at = begin; at < end; at += TILE) {
        float s[ROWS];
        score<EACH>(a, sides, at, at == begin, rows, tile, s);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            float shrink, masked = sees(a, mine + r, at + lane) ? a.scale * s[r] : -INFINITY;
            float p = next_weight(masked, &top[r], &sum[r], &shrink);
            ((float *)weights[warp * ROWS + r])[lane] = p;
#pragma unroll
            for (int j = 0; j < EACH; j++)
                y[r][j] *= shrink;
        }
        add_rows<EACH>(a, values, at, weights, tile, y);
    }
    Rows out = query_rows(a, a.y, blockIdx.z, head);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        put_row<EACH>(a, out, mine + r, 1 / sum[r], y[r]);
        if (lane == 0 && mine + r < a.queries)
            a.lse[((u64)blockIdx.z * a.queries + mine + r) * a.heads + head] =
                top[r] + logf(sum[r]);
    }
}

/* A kernel by the width: the fewest columns that hold it. */
#define LAUNCH_BY_WIDTH(kernel, a, n, heads, stream) \
    do { \
        if ((a)->width <= 64) \
            LAUNCH(kernel<2>, grid_of<2>(a, n, heads), WARPS *WARP, 0, stream, *(a)); \
        else if ((a)->width <= 128) \
            LAUNCH(kernel<4>, grid_of<4>(a, n, heads), WARPS *WARP, 0, stream, *(a)); \
        else if ((a)->width <= 256) \
            LAUNCH(kernel<8>, grid_of<8>(a, n, heads), WARPS *WARP, 0, stream, *(a)); \
        else \
            LAUNCH(kernel<16>, grid_of<16>(a, n, heads), WARPS *WARP, 0, stream, *(a)); \
    } while (0)

template <int EACH> static dim3 grid_of(const Attention *a, uint32_t n, uint32_t heads)
{
    return dim3((unsigned)blocks_for(n, rows_of_block<EACH>()), heads, a->batch);
}

void cuda_attention(const Attention *a, void *stream)
{
    LAUNCH_BY_WIDTH(forward_kernel, a, a->queries, a->heads, stream);
}

/* ---- backward ---- */

/* A warp has a query and a head. */
static __global__ void along_kernel(Attention a)
{
    u64 i = (u64)blockIdx.x * WARPS + threadIdx.x / WARP, row = i / a.heads;
    if (i >= (u64)a.batch * a.queries * a.heads)
        return;
    u64 at = i % a.heads * a.width;
    Vec dy = { a.dy.at, a.type }, y = { a.y.at, a.type };
    float sum = 0;
    for (uint32_t c = threadIdx.x % WARP; c < a.width; c += WARP)
        sum += load1(dy, row * a.dy.stride + at + c) * load1(y, row * a.y.stride + at + c);
    sum = warp_sum(sum);
    if (threadIdx.x % WARP == 0)
        a.along[i] = sum;
}

template <int EACH> static __global__ void queries_kernel(Attention a)
{
    enum { ROWS = rows_of_warp<EACH>(), BLOCK = rows_of_block<EACH>() };
    __shared__ Tile rows, dy_rows, tile;
    __shared__ Weights weights;
    uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, head = blockIdx.y;
    uint32_t first = (gridDim.x - 1 - blockIdx.x) * BLOCK, mine = first + warp * ROWS;
    uint32_t kv = head / (a.heads / a.kv_heads);
    Rows keys = rows_of_keys(a, a.k, blockIdx.z, kv);
    Sides sides = { query_rows(a, a.q, blockIdx.z, head), keys, first };
    Sides back = { query_rows(a, a.dy, blockIdx.z, head), rows_of_keys(a, a.v, blockIdx.z, kv),
                   first };
    float dq[ROWS][EACH] = { { 0 } };
    uint32_t begin = seen_by(a, first).begin, end = seen_by(a, first + BLOCK - 1).end;
    for (uint32_t at = begin; at < end; at += TILE) {
        float s[ROWS], dp[ROWS];
        score<EACH>(a, sides, at, at == begin, rows, tile, s);
        score<EACH>(a, back, at, at == begin, dy_rows, tile, dp);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            u64 i = ((u64)blockIdx.z * a.queries + mine + r) * a.heads + head;
            float ds = 0;
            if (sees(a, mine + r, at + lane))
                ds = expf(a.scale * s[r] - a.lse[i]) * (dp[r] - a.along[i]) * a.scale;
            ((float *)weights[warp * ROWS + r])[lane] = ds;
        }
        add_rows<EACH>(a, keys, at, weights, tile, dq);
    }
    Rows out = query_rows(a, a.dq, blockIdx.z, head);
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        put_row<EACH>(a, out, mine + r, 1, dq[r]);
}

/* Queries that see any of the keys from first to last. */
static __device__ __forceinline__ Span seeing(const Attention &a, uint32_t first, uint32_t last)
{
    Span s = { 0, a.queries };
    uint32_t before = a.causal ? a.position : a.position + a.window - 1;
    if (a.causal || a.window)
        s.begin = first > before ? first - before : 0;
    if (a.window) {
        u64 end = (u64)last + a.window;
        s.end = end > a.position ? (uint32_t)(end - a.position) : 0;
    }
    s.end = s.end < a.queries ? s.end : a.queries;
    return s;
}

/* A block has keys of a head of keys; it goes over the queries of all heads that share it. */
template <int EACH> static __global__ void keys_kernel(Attention a)
{
    enum { ROWS = rows_of_warp<EACH>(), BLOCK = rows_of_block<EACH>() };
    __shared__ Tile rows, v_rows, tile;
    __shared__ Weights weights, ds_weights;
    uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, group = a.heads / a.kv_heads;
    uint32_t first = blockIdx.x * BLOCK, mine = first + warp * ROWS, kv = blockIdx.y;
    Rows keys = rows_of_keys(a, a.k, blockIdx.z, kv), v = rows_of_keys(a, a.v, blockIdx.z, kv);
    float dk[ROWS][EACH] = { { 0 } }, dv[ROWS][EACH] = { { 0 } };
    Span span = seeing(a, first, first + BLOCK - 1);
    bool fresh = true;
    for (uint32_t head = kv * group; head < (kv + 1) * group; head++) {
        Rows queries = query_rows(a, a.q, blockIdx.z, head);
        Rows dy = query_rows(a, a.dy, blockIdx.z, head);
        Sides sides = { keys, queries, first }, back = { v, dy, first };
        for (uint32_t at = span.begin; at < span.end; at += TILE) {
            float s[ROWS], dp[ROWS];
            score<EACH>(a, sides, at, fresh, rows, tile, s);
            score<EACH>(a, back, at, fresh, v_rows, tile, dp);
            fresh = false;
            u64 i = ((u64)blockIdx.z * a.queries + at + lane) * a.heads + head;
            bool any = at + lane < a.queries;
            float lse = any ? a.lse[i] : 0, along = any ? a.along[i] : 0;
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                bool in = mine + r < a.keys && sees(a, at + lane, mine + r);
                float p = in ? expf(a.scale * s[r] - lse) : 0;
                ((float *)weights[warp * ROWS + r])[lane] = p;
                ((float *)ds_weights[warp * ROWS + r])[lane] = p * (dp[r] - along) * a.scale;
            }
            add_rows<EACH>(a, dy, at, weights, tile, dv);
            add_rows<EACH>(a, queries, at, ds_weights, tile, dk);
        }
    }
    Rows dk_rows = rows_of_keys(a, a.dk, blockIdx.z, kv);
    Rows dv_rows = rows_of_keys(a, a.dv, blockIdx.z, kv);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        put_row<EACH>(a, dk_rows, mine + r, 1, dk[r]);
        put_row<EACH>(a, dv_rows, mine + r, 1, dv[r]);
    }
}

void cuda_attention_back(const Attention *a, void *stream)
{
    u64 rows = (u64)a->batch * a->queries * a->heads;
    LAUNCH(along_kernel, (unsigned)blocks_for(rows, WARPS), WARPS * WARP, 0, stream, *a);
    LAUNCH_BY_WIDTH(queries_kernel, a, a->queries, a->heads, stream);
    LAUNCH_BY_WIDTH(keys_kernel, a, a->keys, a->kv_heads, stream);
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

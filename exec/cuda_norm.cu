/*
 * cuda_norm.cu - layer norm, RMS norm and batch norm, forward and backward.
 *
 * Layer and RMS norm: a vector belongs to `team` threads, whole warps, that keep it in
 * registers: VECS times eight numbers each.  Teams of one warp stand TEAMS in a block.
 *
 *     xhat = (x - mean) r     y = gain xhat + shift
 *     dx   = r (g - mean(g) - xhat mean(g xhat)) [+ ds]      g = dy gain
 *
 * In backward a team goes over many vectors and sums dgain and dshift in registers; each block
 * leaves a row of partial sums, which a second kernel adds up in order.
 *
 * Vectors of up to 8,192 numbers of 16 bits are fetched as a whole before any of it is looked
 * at: what is waited for is one access to memory, not one after another.
 */
#include "exec/cuda_device.cuh"

enum {
    TEAMS = 4,
    BACK_WARPS = 1056,
    VECS_FEW = 4,
    VECS_MANY = 16,
    NARROW = VECS_FEW * WARP * EIGHT
};

/* Threads of a block at most.  The kernels are bound to it: with 208 registers a thread, which
 * backward takes, a block of 512 does not fit an SM, and its launch fails. */
enum { FEW_MAX = 256, MANY_MAX = 512 };
#define NORM_BOUNDS(vecs) __launch_bounds__((vecs) == VECS_FEW ? FEW_MAX : MANY_MAX)

/* Of all arrays of a launch: mixed, or of any shape; or eights of 16-bit numbers. */
typedef enum Kind { KIND_ANY, KIND_F16, KIND_BF16 } Kind;

/* ---- teams ---- */

typedef struct Team {
    unsigned size;  /* threads */
    unsigned teams; /* in a block */
    bool many;      /* VECS_MANY */
} Team;

static Team team_for(u64 width)
{
    u64 eights = blocks_for(width, EIGHT);
    Team t = { WARP, TEAMS, eights > (u64)VECS_FEW * FEW_MAX };
    u64 each = t.many ? VECS_MANY : VECS_FEW, most = t.many ? MANY_MAX : FEW_MAX;
    while (t.size < most && t.size * each < eights)
        t.size *= 2;
    t.teams = t.size == WARP ? TEAMS : 1;
    return t;
}

static __device__ __forceinline__ float team_sum(float v, float *shared)
{
    return blockDim.x == WARP ? warp_sum(v) : block_sum(v, shared);
}

/* ---- where things lie ---- */

/* Of the i-th vector: of row i / s.n the (s.first + i % s.n)-th. */
typedef struct Place {
    u64 row, vector;
} Place;

static __device__ __forceinline__ Place place_of(const Norm &s, u64 i)
{
    Place p = { i / s.n, s.first + i % s.n };
    return p;
}

static __device__ __forceinline__ u64 at_x(const Norm &s, Place p)
{
    return p.row * s.x_stride + p.vector * s.width;
}

static __device__ __forceinline__ u64 at_y(const Norm &s, Place p)
{
    return p.row * s.stride + p.vector * s.width;
}

static __device__ __forceinline__ u64 at_stats(const Norm &s, Place p)
{
    return (p.row * s.vectors + p.vector) * (s.rms ? 1 : 2);
}

/* The j-th eight of this thread; FOR_EIGHTS loops over those that are there. */
#define FOR_EIGHTS(c, n, s) \
    _Pragma("unroll") for (int j = 0; j < VECS; \
                           j++) if (u64 c = ((u64)j * blockDim.x + threadIdx.x) * EIGHT; \
                                    c < (s).width) if (int n = KIND == KIND_ANY \
                                                                   ? up_to_8(c, (s).width) \
                                                                   : EIGHT)

/* ---- a vector, or a row of the gain: fetched, then looked at ---- */

template <int VECS, Kind KIND> struct Line {
    uint4 raw[VECS];

    __device__ __forceinline__ void fetch(const Norm &s, const Vec &v, u64 base)
    {
#pragma unroll
        for (int j = 0; j < VECS; j++) {
            u64 c = ((u64)j * blockDim.x + threadIdx.x) * EIGHT;
            bool any = v.at && c < s.width;
            raw[j] = any ? *(const uint4 *)((const unsigned short *)v.at + base + c)
                         : make_uint4(0, 0, 0, 0);
        }
    }

    __device__ __forceinline__ void look(const Vec &, u64, u64, int j, int, bool,
                                         float *f) const
    {
        const unsigned word[4] = { raw[j].x, raw[j].y, raw[j].z, raw[j].w };
#pragma unroll
        for (int k = 0; k < 4; k++) {
            f[2 * k] = KIND == KIND_BF16 ? __uint_as_float(word[k] << 16)
                                         : f16_as_float((unsigned short)word[k]);
            f[2 * k + 1] = KIND == KIND_BF16 ? __uint_as_float(word[k] & 0xffff0000u)
                                             : f16_as_float((unsigned short)(word[k] >> 16));
        }
    }
};

/* Of any numbers it keeps nothing: they are read when they are looked at. */
template <int VECS> struct Line<VECS, KIND_ANY> {
    __device__ __forceinline__ void fetch(const Norm &, const Vec &, u64)
    {
    }

    __device__ __forceinline__ void look(const Vec &v, u64 base, u64 c, int, int n, bool wide,
                                         float *f) const
    {
        load8(v, base + c, n, wide && n == EIGHT, f);
    }
};

template <Kind KIND>
static __device__ __forceinline__ void put(const Vec &v, u64 at, int n, bool wide,
                                           const float *f)
{
    if (KIND == KIND_ANY) {
        store8(v, at, n, wide && n == EIGHT, f);
        return;
    }
    bool bf16 = KIND == KIND_BF16;
    *(uint4 *)((unsigned short *)v.at + at) =
        make_uint4(bf16 ? pack_bf16(f[0], f[1]) : pack_f16(f[0], f[1]),
                   bf16 ? pack_bf16(f[2], f[3]) : pack_f16(f[2], f[3]),
                   bf16 ? pack_bf16(f[4], f[5]) : pack_f16(f[4], f[5]),
                   bf16 ? pack_bf16(f[6], f[7]) : pack_f16(f[6], f[7]));
}

static void add_kind(Kind *kind, bool *known, const Vec &v)
{
    if (!v.at)
        return;
    Kind own = v.type == NUM_BF16 ? KIND_BF16 : v.type == NUM_F16 ? KIND_F16 : KIND_ANY;
    *kind = *known && own != *kind ? KIND_ANY : own;
    *known = true;
}

/* Of the arrays that are there, where all are whole eights at 16 bytes. */
static Kind kind_of(const Vec *v, int n, bool wide)
{
    Kind kind = KIND_ANY;
    bool known = false;
    for (int i = 0; i < n && wide; i++) {
        add_kind(&kind, &known, v[i]);
        if (kind == KIND_ANY && known)
            return KIND_ANY;
    }
    return kind;
}

/* ---- forward ---- */

/* x (+ r + b); r and b are looked at once x is there. */
template <int VECS, Kind KIND>
static __device__ __forceinline__ void load_sum(const Norm &s, const NormArgs &a, Place p,
                                                bool wide, const Line<VECS, KIND> &lx,
                                                const Line<VECS, KIND> &lr, float (*f)[EIGHT])
{
    FOR_EIGHTS(c, n, s)
    {
        lx.look(a.x, at_x(s, p), c, j, n, wide, f[j]);
        if (a.r.at) {
            float r[EIGHT], b[EIGHT] = { 0 };
            lr.look(a.r, at_y(s, p), c, j, n, wide, r);
            if (a.b.at)
                load8(a.b, c, n, wide && n == EIGHT, b);
            for (int k = 0; k < EIGHT; k++)
                f[j][k] = rounded(a.x.type, f[j][k] + (r[k] + b[k]));
            if (a.sum.at)
                put<KIND>(a.sum, at_y(s, p) + c, n, wide, f[j]);
        }
    }
}

template <int VECS, Kind KIND>
static __device__ __forceinline__ void measure(const Norm &s, float (*f)[EIGHT], float *shared,
                                               float *mean, float *r)
{
    float sum = 0, squares = 0, by = 1 / (float)s.width;
    if (!s.rms) {
        FOR_EIGHTS(c, n, s)
        for (int k = 0; k < n; k++)
            sum += f[j][k];
        sum = team_sum(sum, shared);
    }
    *mean = sum * by;
    FOR_EIGHTS(c, n, s)
    for (int k = 0; k < EIGHT; k++)
        squares += k < n ? (f[j][k] - *mean) * (f[j][k] - *mean) : 0;
    *r = 1 / sqrtf(team_sum(squares, shared) * by + s.eps);
}

template <int VECS, Kind KIND>
static __global__ void NORM_BOUNDS(VECS) norm_kernel(Norm s, NormArgs a, bool wide)
{
    __shared__ float shared[WARP];
    u64 i = (u64)blockIdx.x * blockDim.y + threadIdx.y;
    if (i >= s.rows * s.n)
        return; /* a whole warp: blocks of several teams have no barriers */
    Place p = place_of(s, i);
    float f[VECS][EIGHT], mean, r;
    Line<VECS, KIND> lx, lr, lgain, lshift;
    lx.fetch(s, a.x, at_x(s, p));
    lr.fetch(s, a.r, at_y(s, p));
    lgain.fetch(s, a.gain, 0);
    lshift.fetch(s, a.shift, 0);
    load_sum<VECS, KIND>(s, a, p, wide, lx, lr, f);
    measure<VECS, KIND>(s, f, shared, &mean, &r);
    if (threadIdx.x == 0) {
        u64 at = at_stats(s, p);
        if (!s.rms)
            store1(a.stats, at, mean);
        store1(a.stats, at + (s.rms ? 0 : 1), r);
    }
    FOR_EIGHTS(c, n, s)
    {
        float gain[EIGHT], shift[EIGHT];
        if (a.gain.at)
            lgain.look(a.gain, 0, c, j, n, wide, gain);
        if (a.shift.at)
            lshift.look(a.shift, 0, c, j, n, wide, shift);
        for (int k = 0; k < EIGHT; k++) {
            float h = (f[j][k] - mean) * r;
            h = a.gain.at ? h * gain[k] : h;
            f[j][k] = a.shift.at ? h + shift[k] : h;
        }
        put<KIND>(a.y, at_y(s, p) + c, n, wide, f[j]);
    }
}

static bool strides_wide(const Norm &s)
{
    return s.width % EIGHT == 0 && s.x_stride % EIGHT == 0 && s.stride % EIGHT == 0;
}

static bool all_aligned16(const Vec *v, int n)
{
    for (int i = 0; i < n; i++)
        if (!aligned16(v[i]))
            return false;
    return true;
}

void cuda_norm(Norm s, NormArgs a, void *stream)
{
    Team t = team_for(s.width);
    const Vec arrays[] = { a.x, a.r, a.b, a.gain, a.shift, a.sum, a.y };
    bool wide = strides_wide(s) && all_aligned16(arrays, 7);
    Kind kind = kind_of(arrays, 7, wide);
    unsigned blocks = (unsigned)blocks_for(s.rows * s.n, t.teams);
    dim3 block(t.size, t.teams);
    if (t.many)
        LAUNCH((norm_kernel<VECS_MANY, KIND_ANY>), blocks, block, 0, stream, s, a, wide);
    else if (kind == KIND_BF16)
        LAUNCH((norm_kernel<VECS_FEW, KIND_BF16>), blocks, block, 0, stream, s, a, wide);
    else if (kind == KIND_F16)
        LAUNCH((norm_kernel<VECS_FEW, KIND_F16>), blocks, block, 0, stream, s, a, wide);
    else
        LAUNCH((norm_kernel<VECS_FEW, KIND_ANY>), blocks, block, 0, stream, s, a, wide);
}

/* ---- backward ---- */

/* What a thread has summed up over vectors. */
template <int VECS> struct BackSums {
    float dgain[VECS][EIGHT], dshift[VECS][EIGHT];
};

/* g and xhat of one vector, in place of dy and x; their sums over it; dgain and dshift grow. */
template <int VECS, Kind KIND>
static __device__ __forceinline__ void back_open(const Norm &s, const NormBackArgs &a, Place p,
                                                 bool wide, const Line<VECS, KIND> &lgain,
                                                 float (*dy)[EIGHT], float (*x)[EIGHT],
                                                 BackSums<VECS> &to, float *sum, float *along)
{
    Line<VECS, KIND> ldy, lx;
    ldy.fetch(s, a.dy, at_y(s, p));
    lx.fetch(s, a.x, at_x(s, p));
    float mean = s.rms ? 0 : load1(a.stats, at_stats(s, p));
    float r = load1(a.stats, at_stats(s, p) + (s.rms ? 0 : 1));
    FOR_EIGHTS(c, n, s)
    {
        float gain[EIGHT];
        ldy.look(a.dy, at_y(s, p), c, j, n, wide, dy[j]);
        lx.look(a.x, at_x(s, p), c, j, n, wide, x[j]);
        if (a.gain.at)
            lgain.look(a.gain, 0, c, j, n, wide, gain);
        for (int k = 0; k < EIGHT; k++) {
            x[j][k] = k < n ? (x[j][k] - mean) * r : 0;
            to.dgain[j][k] += dy[j][k] * x[j][k];
            to.dshift[j][k] += dy[j][k];
            dy[j][k] = a.gain.at && k < n ? dy[j][k] * gain[k] : dy[j][k];
            *sum += dy[j][k];
            *along += dy[j][k] * x[j][k];
        }
    }
}

/* dx of the i-th vector; adds dy xhat and dy to dgain and dshift. */
template <int VECS, Kind KIND>
static __device__ __forceinline__ void back_vector(const Norm &s, const NormBackArgs &a, u64 i,
                                                   bool wide, const Line<VECS, KIND> &lgain,
                                                   float *shared, BackSums<VECS> &to)
{
    Place p = place_of(s, i);
    float dy[VECS][EIGHT], x[VECS][EIGHT], sum = 0, along = 0, by = 1 / (float)s.width;
    Line<VECS, KIND> lds;
    lds.fetch(s, a.ds, at_y(s, p));
    back_open<VECS, KIND>(s, a, p, wide, lgain, dy, x, to, &sum, &along);
    float r = load1(a.stats, at_stats(s, p) + (s.rms ? 0 : 1));
    sum = s.rms ? 0 : team_sum(sum, shared) * by;
    along = team_sum(along, shared) * by;
    FOR_EIGHTS(c, n, s)
    {
        float ds[EIGHT];
        if (a.ds.at)
            lds.look(a.ds, at_y(s, p), c, j, n, wide, ds);
        for (int k = 0; k < EIGHT; k++) {
            float d = r * (dy[j][k] - sum - x[j][k] * along);
            dy[j][k] = a.ds.at ? d + ds[k] : d;
        }
        put<KIND>(a.dx, p.row * s.dx_stride + p.vector * s.width + c, n, wide, dy[j]);
    }
}

/* Of the block's teams, in their order; rows: of TEAMS teams of one warp. */
template <int VECS, Kind KIND>
static __device__ __forceinline__ void block_row(const Norm &s, float (*part)[EIGHT], float *to,
                                                 float (*rows)[NARROW])
{
    Vec row = { to, NUM_F32 };
    if (blockDim.y == 1) {
        FOR_EIGHTS(c, n, s)
        store8(row, c, n, n == EIGHT && s.width % EIGHT == 0, part[j]);
        return;
    }
    __syncthreads();
    FOR_EIGHTS(c, n, s)
    for (int k = 0; k < n; k++)
        rows[threadIdx.y][c + k] = part[j][k];
    __syncthreads();
    for (u64 c = threadIdx.y * blockDim.x + threadIdx.x; c < s.width;
         c += blockDim.x * blockDim.y) {
        float sum = 0;
        for (unsigned team = 0; team < blockDim.y; team++)
            sum += rows[team][c];
        to[c] = sum;
    }
}

/* scratch: a row of dgain and, blocks further on, of dshift for each block; or NULL. */
template <int VECS, Kind KIND>
static __global__ void NORM_BOUNDS(VECS)
    norm_back_kernel(Norm s, NormBackArgs a, u64 each, bool wide)
{
    __shared__ float shared[WARP];
    __shared__ float rows[VECS == VECS_FEW ? TEAMS : 1][NARROW];
    BackSums<VECS> sums = { { { 0 } }, { { 0 } } };
    u64 team = (u64)blockIdx.x * blockDim.y + threadIdx.y, n = s.rows * s.n;
    Line<VECS, KIND> lgain;
    lgain.fetch(s, a.gain, 0);
    for (u64 i = team * each; i < (team + 1) * each && i < n; i++)
        back_vector<VECS, KIND>(s, a, i, wide, lgain, shared, sums);
    if (a.dgain.at)
        block_row<VECS, KIND>(s, sums.dgain, a.scratch + blockIdx.x * s.width, rows);
    if (a.dshift.at)
        block_row<VECS, KIND>(s, sums.dshift, a.scratch + (gridDim.x + blockIdx.x) * s.width,
                              rows);
}

/* 32 columns of dgain (y 0) or dshift (1): a warp takes every 32nd row, then its lanes are
 * summed in order. */
static __global__ void norm_sums_kernel(NormBackArgs a, u64 blocks, u64 width)
{
    __shared__ float shared[WARP][WARP + 1];
    u64 c = (u64)blockIdx.x * WARP + threadIdx.x;
    const Vec &to = blockIdx.y ? a.dshift : a.dgain;
    bool adds = blockIdx.y ? a.shift_adds : a.gain_adds;
    const float *rows = a.scratch + blockIdx.y * blocks * width;
    if (!to.at)
        return;
    float sum = 0;
#pragma unroll 8
    for (u64 r = threadIdx.y; r < blocks; r += WARP)
        sum += c < width ? rows[r * width + c] : 0;
    shared[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    sum = warp_sum(shared[threadIdx.x][threadIdx.y]);
    c = (u64)blockIdx.x * WARP + threadIdx.y;
    if (threadIdx.x == 0 && c < width)
        store1(to, c, adds ? load1(to, c) + sum : sum);
}

static u64 back_blocks(const Norm &s, Team t)
{
    u64 warps = t.size / WARP * t.teams;
    return least(blocks_for(s.rows * s.n, t.teams), blocks_for(BACK_WARPS, warps));
}

uint64_t cuda_norm_scratch(Norm s)
{
    return 2 * back_blocks(s, team_for(s.width)) * s.width;
}

void cuda_norm_back(Norm s, NormBackArgs a, void *stream)
{
    Team t = team_for(s.width);
    unsigned blocks = (unsigned)back_blocks(s, t);
    u64 each = blocks_for(s.rows * s.n, (u64)blocks * t.teams);
    const Vec arrays[] = { a.dy, a.x, a.gain, a.ds, a.dx };
    bool wide = strides_wide(s) && s.dx_stride % EIGHT == 0 && all_aligned16(arrays, 5);
    Kind kind = kind_of(arrays, 5, wide);
    dim3 block(t.size, t.teams);
    if (t.many)
        LAUNCH((norm_back_kernel<VECS_MANY, KIND_ANY>), blocks, block, 0, stream, s, a, each,
               wide);
    else if (kind == KIND_BF16)
        LAUNCH((norm_back_kernel<VECS_FEW, KIND_BF16>), blocks, block, 0, stream, s, a, each,
               wide);
    else if (kind == KIND_F16)
        LAUNCH((norm_back_kernel<VECS_FEW, KIND_F16>), blocks, block, 0, stream, s, a, each,
               wide);
    else
        LAUNCH((norm_back_kernel<VECS_FEW, KIND_ANY>), blocks, block, 0, stream, s, a, each,
               wide);
    if (a.dgain.at || a.dshift.at)
        LAUNCH(norm_sums_kernel, dim3((unsigned)blocks_for(s.width, WARP), 2), dim3(WARP, WARP),
               0, stream, a, (u64)blocks, (u64)s.width);
}

/* ---- batch norm: over columns ---- */

/* A block has 32 columns and 8 threads for each; sums in f64, as the CPU takes them. */
enum { COLUMNS = 32, LANES = 8 };

static __device__ __forceinline__ double lanes_sum(double v, double (*shared)[COLUMNS])
{
    double sum = 0;
    __syncthreads();
    shared[threadIdx.y][threadIdx.x] = v;
    __syncthreads();
    for (int i = 0; i < LANES; i++)
        sum += shared[i][threadIdx.x];
    return sum;
}

static __global__ void batch_measure_kernel(BatchNorm s, Vec x, Vec stats, bool count)
{
    __shared__ double shared[LANES][COLUMNS];
    u64 c = (u64)blockIdx.x * COLUMNS + threadIdx.x;
    bool here = c < s.columns;
    double sum = 0, squares = 0, n = (double)s.rows;
    for (u64 r = threadIdx.y; here && r < s.rows; r += LANES)
        sum += (double)load1(x, r * s.columns + c);
    double mean = lanes_sum(sum, shared) / n;
    for (u64 r = threadIdx.y; here && r < s.rows; r += LANES) {
        double d = (double)load1(x, r * s.columns + c) - mean;
        squares += d * d;
    }
    squares = lanes_sum(squares, shared);
    if (!here || threadIdx.y > 0)
        return;
    store1(stats, c, (float)mean);
    store1(stats, s.columns + c, (float)(squares / n));
    if (count && c == 0)
        store1(stats, 2 * s.columns, (float)s.rows);
}

static unsigned column_blocks(BatchNorm s)
{
    return (unsigned)blocks_for(s.columns, COLUMNS);
}

void cuda_batch_measure(BatchNorm s, Vec x, Vec stats, bool count, void *stream)
{
    LAUNCH(batch_measure_kernel, column_blocks(s), dim3(COLUMNS, LANES), 0, stream, s, x, stats,
           count);
}

static __global__ void batch_combine_kernel(BatchNorm s, Vec all, Vec stats)
{
    u64 c = (u64)blockIdx.x * COLUMNS + threadIdx.x, stride = 2 * s.columns + 1;
    double mean = 0, variance = 0, n = (double)s.ranks;
    if (c >= s.columns)
        return;
    for (u64 i = 0; i < s.ranks; i++)
        mean += (double)load1(all, i * stride + c) / n;
    for (u64 i = 0; i < s.ranks; i++) {
        double d = (double)load1(all, i * stride + c) - mean;
        variance += ((double)load1(all, i * stride + s.columns + c) + d * d) / n;
    }
    store1(stats, c, (float)mean);
    store1(stats, s.columns + c, (float)variance);
}

void cuda_batch_combine(BatchNorm s, Vec all, Vec stats, void *stream)
{
    LAUNCH(batch_combine_kernel, column_blocks(s), COLUMNS, 0, stream, s, all, stats);
}

static __global__ void batch_invert_kernel(BatchNorm s, Vec stats)
{
    u64 c = (u64)blockIdx.x * COLUMNS + threadIdx.x;
    if (c >= s.columns)
        return;
    double variance = (double)load1(stats, s.columns + c);
    store1(stats, s.columns + c, (float)(1 / sqrt(variance + s.eps)));
}

static __global__ void batch_norm_kernel(BatchNorm s, Vec x, Vec stats, Vec gain, Vec shift,
                                         Vec y)
{
    u64 c = (u64)blockIdx.x * COLUMNS + threadIdx.x;
    if (c >= s.columns)
        return;
    float mean = load1(stats, c), r = load1(stats, s.columns + c);
    float g = load1(gain, c), b = load1(shift, c);
    for (u64 i = (u64)blockIdx.y * LANES + threadIdx.y; i < s.rows; i += gridDim.y * LANES) {
        u64 at = i * s.columns + c;
        store1(y, at, (load1(x, at) - mean) * r * g + b);
    }
}

static dim3 batch_grid(BatchNorm s)
{
    return dim3(column_blocks(s), (unsigned)least(blocks_for(s.rows, 4 * LANES), 1024));
}

void cuda_batch_norm(BatchNorm s, Vec x, Vec stats, Vec gain, Vec shift, Vec y, void *stream)
{
    LAUNCH(batch_invert_kernel, column_blocks(s), COLUMNS, 0, stream, s, stats);
    LAUNCH(batch_norm_kernel, batch_grid(s), dim3(COLUMNS, LANES), 0, stream, s, x, stats, gain,
           shift, y);
}

typedef struct BatchSums {
    Vec sums, dgain, dshift;
    bool gain_adds, shift_adds;
} BatchSums;

static __device__ __forceinline__ void put_sum(const Vec &v, u64 i, double sum, bool adds)
{
    store1(v, i, (float)((adds ? (double)load1(v, i) : 0) + sum));
}

static __global__ void batch_sums_kernel(BatchNorm s, Vec dy, Vec x, Vec stats, BatchSums to)
{
    __shared__ double shared[LANES][COLUMNS];
    u64 c = (u64)blockIdx.x * COLUMNS + threadIdx.x;
    bool here = c < s.columns;
    double sum = 0, along = 0;
    float mean = here ? load1(stats, c) : 0, r = here ? load1(stats, s.columns + c) : 0;
    for (u64 i = threadIdx.y; here && i < s.rows; i += LANES) {
        u64 at = i * s.columns + c;
        double d = (double)load1(dy, at);
        sum += d;
        along += d * (double)((load1(x, at) - mean) * r);
    }
    sum = lanes_sum(sum, shared);
    along = lanes_sum(along, shared);
    if (!here || threadIdx.y > 0)
        return;
    put_sum(to.sums, c, along, false);
    put_sum(to.sums, s.columns + c, sum, false);
    put_sum(to.dgain, c, along, to.gain_adds);
    put_sum(to.dshift, c, sum, to.shift_adds);
}

void cuda_batch_sums(BatchNorm s, Vec dy, Vec x, Vec stats, Vec sums, Vec dgain, bool gain_adds,
                     Vec dshift, bool shift_adds, void *stream)
{
    BatchSums to = { sums, dgain, dshift, gain_adds, shift_adds };
    LAUNCH(batch_sums_kernel, column_blocks(s), dim3(COLUMNS, LANES), 0, stream, s, dy, x,
           stats, to);
}

static __global__ void batch_dx_kernel(BatchNorm s, Vec dy, Vec x, Vec stats, Vec gain,
                                       Vec sums, Vec dx)
{
    u64 c = (u64)blockIdx.x * COLUMNS + threadIdx.x;
    if (c >= s.columns)
        return;
    float mean = load1(stats, c), r = load1(stats, s.columns + c);
    float along = load1(sums, c), sum = load1(sums, s.columns + c);
    float by = (float)(1 / ((double)s.rows * (double)s.ranks)), scale = load1(gain, c) * r;
    for (u64 i = (u64)blockIdx.y * LANES + threadIdx.y; i < s.rows; i += gridDim.y * LANES) {
        u64 at = i * s.columns + c;
        float h = (load1(x, at) - mean) * r;
        store1(dx, at, scale * (load1(dy, at) - sum * by - h * along * by));
    }
}

void cuda_batch_dx(BatchNorm s, Vec dy, Vec x, Vec stats, Vec gain, Vec sums, Vec dx,
                   void *stream)
{
    LAUNCH(batch_dx_kernel, batch_grid(s), dim3(COLUMNS, LANES), 0, stream, s, dy, x, stats,
           gain, sums, dx);
}

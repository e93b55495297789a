/*
 * cuda_norm.cu - layer norm, RMS norm and batch norm, forward and backward.
 *
 * Layer and RMS norm: a vector belongs to `team` threads, whole warps, that keep it in
 * registers: VECS times eight numbers each.  Teams of one warp stand TEAMS in a block.
 *
 *     xhat = (x - mean) r     y = gain xhat + shift
 *     dx   = r (g - mean(g) - xhat mean(g xhat)) [+ ds]      g = dy gain
 *
 * In backward a team goes over many vectors and sums dgain and dshift in registers; each team
 * leaves a row of partial sums, which cuda_column_sums adds up in order.
 */
#include "exec/cuda_device.cuh"

enum { TEAMS = 4, BACK_BLOCKS = 264, VECS_FEW = 4, VECS_MANY = 16 };

/* Threads of a block at most.  The kernels are bound to it: with 208 registers a thread, which
 * backward takes, a block of 512 does not fit an SM, and its launch fails. */
enum { FEW_MAX = 256, MANY_MAX = 512 };
#define NORM_BOUNDS(vecs) __launch_bounds__((vecs) == VECS_FEW ? FEW_MAX : MANY_MAX)

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
                                    c < (s).width) if (int n = up_to_8(c, (s).width))

/* ---- forward ---- */

template <int VECS>
static __device__ __forceinline__ void load_sum(const Norm &s, const NormArgs &a, Place p,
                                                bool wide, float (*f)[EIGHT])
{
    FOR_EIGHTS(c, n, s)
    {
        bool whole = wide && n == EIGHT;
        load8(a.x, at_x(s, p) + c, n, whole, f[j]);
        if (a.r.at) {
            float r[EIGHT], b[EIGHT] = { 0 };
            load8(a.r, at_y(s, p) + c, n, whole, r);
            if (a.b.at)
                load8(a.b, c, n, whole, b);
            for (int k = 0; k < EIGHT; k++)
                f[j][k] = rounded(a.x.type, f[j][k] + (r[k] + b[k]));
            if (a.sum.at)
                store8(a.sum, at_y(s, p) + c, n, whole, f[j]);
        }
    }
}

template <int VECS>
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

template <int VECS>
static __global__ void NORM_BOUNDS(VECS) norm_kernel(Norm s, NormArgs a, bool wide)
{
    __shared__ float shared[WARP];
    u64 i = (u64)blockIdx.x * blockDim.y + threadIdx.y;
    if (i >= s.rows * s.n)
        return; /* a whole warp: blocks of several teams have no barriers */
    Place p = place_of(s, i);
    float f[VECS][EIGHT], mean, r;
    load_sum<VECS>(s, a, p, wide, f);
    measure<VECS>(s, f, shared, &mean, &r);
    if (threadIdx.x == 0) {
        u64 at = at_stats(s, p);
        if (!s.rms)
            store1(a.stats, at, mean);
        store1(a.stats, at + (s.rms ? 0 : 1), r);
    }
    FOR_EIGHTS(c, n, s)
    {
        bool whole = wide && n == EIGHT;
        float gain[EIGHT], shift[EIGHT];
        if (a.gain.at)
            load8(a.gain, c, n, whole, gain);
        if (a.shift.at)
            load8(a.shift, c, n, whole, shift);
        for (int k = 0; k < EIGHT; k++) {
            float h = (f[j][k] - mean) * r;
            h = a.gain.at ? h * gain[k] : h;
            f[j][k] = a.shift.at ? h + shift[k] : h;
        }
        store8(a.y, at_y(s, p) + c, n, whole, f[j]);
    }
}

static bool strides_wide(const Norm &s)
{
    return s.width % EIGHT == 0 && s.x_stride % EIGHT == 0 && s.stride % EIGHT == 0;
}

void cuda_norm(Norm s, NormArgs a, void *stream)
{
    Team t = team_for(s.width);
    bool wide = strides_wide(s) && aligned16(a.x) && aligned16(a.r) && aligned16(a.b) &&
                aligned16(a.gain) && aligned16(a.shift) && aligned16(a.sum) && aligned16(a.y);
    unsigned blocks = (unsigned)blocks_for(s.rows * s.n, t.teams);
    dim3 block(t.size, t.teams);
    if (t.many)
        LAUNCH((norm_kernel<VECS_MANY>), blocks, block, 0, stream, s, a, wide);
    else
        LAUNCH((norm_kernel<VECS_FEW>), blocks, block, 0, stream, s, a, wide);
}

/* ---- backward ---- */

/* dx of one vector; adds dy xhat and dy to dgain and dshift. */
template <int VECS>
static __device__ __forceinline__ void back_vector(const Norm &s, const NormBackArgs &a, u64 i,
                                                   bool wide, float *shared,
                                                   float (*dgain)[EIGHT],
                                                   float (*dshift)[EIGHT])
{
    Place p = place_of(s, i);
    float dy[VECS][EIGHT], x[VECS][EIGHT], sum = 0, along = 0, by = 1 / (float)s.width;
    float mean = s.rms ? 0 : load1(a.stats, at_stats(s, p));
    float r = load1(a.stats, at_stats(s, p) + (s.rms ? 0 : 1));
    FOR_EIGHTS(c, n, s)
    {
        bool whole = wide && n == EIGHT;
        float gain[EIGHT];
        load8(a.dy, at_y(s, p) + c, n, whole, dy[j]);
        load8(a.x, at_x(s, p) + c, n, whole, x[j]);
        if (a.gain.at)
            load8(a.gain, c, n, whole, gain);
        for (int k = 0; k < EIGHT; k++) {
            x[j][k] = k < n ? (x[j][k] - mean) * r : 0;
            dgain[j][k] += dy[j][k] * x[j][k];
            dshift[j][k] += dy[j][k];
            dy[j][k] = a.gain.at && k < n ? dy[j][k] * gain[k] : dy[j][k];
            sum += dy[j][k];
            along += dy[j][k] * x[j][k];
        }
    }
    sum = s.rms ? 0 : team_sum(sum, shared) * by;
    along = team_sum(along, shared) * by;
    FOR_EIGHTS(c, n, s)
    {
        bool whole = wide && n == EIGHT;
        float ds[EIGHT];
        if (a.ds.at)
            load8(a.ds, at_y(s, p) + c, n, whole, ds);
        for (int k = 0; k < EIGHT; k++) {
            float d = r * (dy[j][k] - sum - x[j][k] * along);
            dy[j][k] = a.ds.at ? d + ds[k] : d;
        }
        store8(a.dx, p.row * s.dx_stride + p.vector * s.width + c, n, whole, dy[j]);
    }
}

/* sums: a row of dgain and then of dshift for each team, or NULL. */
template <int VECS>
static __global__ void NORM_BOUNDS(VECS)
    norm_back_kernel(Norm s, NormBackArgs a, u64 each, bool wide)
{
    __shared__ float shared[WARP];
    float dgain[VECS][EIGHT] = { { 0 } }, dshift[VECS][EIGHT] = { { 0 } };
    u64 team = (u64)blockIdx.x * blockDim.y + threadIdx.y, n = s.rows * s.n;
    u64 teams = (u64)gridDim.x * blockDim.y;
    for (u64 i = team * each; i < (team + 1) * each && i < n; i++)
        back_vector<VECS>(s, a, i, wide, shared, dgain, dshift);
    Vec sums = { a.scratch, NUM_F32 };
    if (!a.scratch)
        return;
    FOR_EIGHTS(c, count, s)
    {
        bool whole = count == EIGHT && s.width % EIGHT == 0;
        store8(sums, team * s.width + c, count, whole, dgain[j]);
        store8(sums, (teams + team) * s.width + c, count, whole, dshift[j]);
    }
}

static u64 back_teams(const Norm &s, Team t)
{
    return least(blocks_for(s.rows * s.n, t.teams), BACK_BLOCKS) * t.teams;
}

uint64_t cuda_norm_scratch(Norm s)
{
    u64 teams = back_teams(s, team_for(s.width));
    return 2 * teams * s.width + cuda_sums_scratch(teams, s.width);
}

void cuda_norm_back(Norm s, NormBackArgs a, void *stream)
{
    Team t = team_for(s.width);
    u64 teams = back_teams(s, t), each = blocks_for(s.rows * s.n, teams);
    bool wide = strides_wide(s) && s.dx_stride % EIGHT == 0 && aligned16(a.dy) &&
                aligned16(a.x) && aligned16(a.gain) && aligned16(a.ds) && aligned16(a.dx);
    dim3 block(t.size, t.teams);
    if (!a.dgain.at && !a.dshift.at)
        a.scratch = NULL;
    if (t.many)
        LAUNCH((norm_back_kernel<VECS_MANY>), (unsigned)(teams / t.teams), block, 0, stream, s,
               a, each, wide);
    else
        LAUNCH((norm_back_kernel<VECS_FEW>), (unsigned)(teams / t.teams), block, 0, stream, s,
               a, each, wide);
    float *rest = a.scratch + 2 * teams * s.width;
    Vec gains = { a.scratch, NUM_F32 }, shifts = { a.scratch + teams * s.width, NUM_F32 };
    if (a.dgain.at)
        cuda_column_sums(gains, teams, s.width, a.dgain, a.gain_adds, rest, stream);
    if (a.dshift.at)
        cuda_column_sums(shifts, teams, s.width, a.dshift, a.shift_adds, rest, stream);
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

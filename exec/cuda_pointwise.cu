/*
 * cuda_pointwise.cu - sums, biases, activations, rotary positions, and sums over rows.
 *
 * A thread takes eight numbers that lie together, and more of them further on.
 */
#include "exec/cuda_device.cuh"

enum { THREADS = 256, BLOCKS_MAX = 132 * 16 };

static unsigned grid_for(u64 eights)
{
    return (unsigned)least(blocks_for(eights, THREADS), BLOCKS_MAX);
}

/* Eight numbers from i on of a row that repeats every `columns`. */
static __device__ __forceinline__ void load_row8(const Vec &b, u64 i, u64 columns, int n,
                                                 bool wide, float *f)
{
    if (wide) {
        load8(b, i % columns, n, true, f);
        return;
    }
    for (int k = 0; k < EIGHT; k++)
        f[k] = k < n ? load1(b, (i + k) % columns) : 0.0f;
}

/* ---- where all is of one type, and eights ---- */

/* A thread takes so many eights, and loads all that it needs before it looks at any. */
enum { AT_ONCE = 2 };

static __device__ __forceinline__ unsigned eight_of(int j)
{
    return (blockIdx.x * AT_ONCE + (unsigned)j) * THREADS + threadIdx.x;
}

/* Eights of n numbers, or 0: there are others too, or too many. */
static unsigned whole_eights(u64 n)
{
    return n % EIGHT || n / EIGHT > INT32_MAX ? 0 : (unsigned)(n / EIGHT);
}

static unsigned grid_of_eights(unsigned eights)
{
    return (unsigned)blocks_for(eights, THREADS * AT_ONCE);
}

/* ---- sums ---- */

static __global__ void add_kernel(Vec x, Vec r, Vec b, Vec y, u64 n, u64 columns, bool wide)
{
    u64 step = (u64)gridDim.x * blockDim.x * EIGHT;
    for (u64 i = ((u64)blockIdx.x * blockDim.x + threadIdx.x) * EIGHT; i < n; i += step) {
        float fx[EIGHT], fr[EIGHT], fb[EIGHT];
        int here = up_to_8(i, n);
        bool whole = wide && here == EIGHT;
        load8(x, i, here, whole, fx);
        load8(r, i, here, whole, fr);
        if (b.at)
            load_row8(b, i, columns, here, whole && columns % EIGHT == 0, fb);
#pragma unroll
        for (int k = 0; k < EIGHT; k++)
            fx[k] += b.at ? fr[k] + fb[k] : fr[k];
        store8(y, i, here, whole, fx);
    }
}

/* per_row: eights of b; 0: there is no b */
template <NumType TYPE>
static __global__ void add_wide_kernel(Vec x, Vec r, Vec b, Vec y, unsigned eights,
                                       unsigned per_row)
{
    Raw8 one[AT_ONCE], other[AT_ONCE], bias[AT_ONCE];
    x.type = r.type = b.type = y.type = TYPE;
#pragma unroll
    for (int j = 0; j < AT_ONCE; j++) {
        unsigned e = eight_of(j);
        if (e >= eights)
            break;
        one[j] = raw8(x, (u64)e * EIGHT);
        other[j] = raw8(r, (u64)e * EIGHT);
        if (per_row)
            bias[j] = raw8(b, (u64)(e % per_row) * EIGHT);
    }
#pragma unroll
    for (int j = 0; j < AT_ONCE; j++) {
        float fx[EIGHT], fr[EIGHT], fb[EIGHT] = { 0 };
        unsigned e = eight_of(j);
        if (e >= eights)
            break;
        widen8(TYPE, one[j], fx);
        widen8(TYPE, other[j], fr);
        if (per_row)
            widen8(TYPE, bias[j], fb);
#pragma unroll
        for (int k = 0; k < EIGHT; k++)
            fx[k] += per_row ? fr[k] + fb[k] : fr[k];
        narrow8(y, (u64)e * EIGHT, fx);
    }
}

typedef void (*AddWide)(Vec, Vec, Vec, Vec, unsigned, unsigned);
static const AddWide add_wide[] = { add_wide_kernel<NUM_F32>, add_wide_kernel<NUM_F16>,
                                    add_wide_kernel<NUM_BF16> };

void cuda_add(Vec x, Vec r, Vec b, Vec y, uint64_t n, uint64_t columns, void *stream)
{
    bool wide = aligned16(x) && aligned16(r) && aligned16(b) && aligned16(y);
    bool same = x.type == r.type && x.type == y.type && (!b.at || b.type == x.type);
    unsigned eights = whole_eights(n), per_row = b.at ? whole_eights(columns) : 0;
    if (wide && same && eights && (per_row || !b.at)) {
        AddWide kernel = add_wide[x.type];
        LAUNCH(kernel, grid_of_eights(eights), THREADS, 0, stream, x, r, b, y, eights, per_row);
        return;
    }
    LAUNCH(add_kernel, grid_for(blocks_for(n, EIGHT)), THREADS, 0, stream, x, r, b, y, n,
           columns, wide);
}

static __global__ void bias_kernel(Vec y, Vec b, u64 n, u64 columns, bool wide)
{
    u64 step = (u64)gridDim.x * blockDim.x * EIGHT;
    for (u64 i = ((u64)blockIdx.x * blockDim.x + threadIdx.x) * EIGHT; i < n; i += step) {
        float fy[EIGHT], fb[EIGHT];
        int here = up_to_8(i, n);
        bool whole = wide && here == EIGHT;
        load8(y, i, here, whole, fy);
        load_row8(b, i, columns, here, whole && columns % EIGHT == 0, fb);
#pragma unroll
        for (int k = 0; k < EIGHT; k++)
            fy[k] += fb[k];
        store8(y, i, here, whole, fy);
    }
}

void cuda_bias(Vec y, Vec b, uint64_t rows, uint64_t columns, void *stream)
{
    bool wide = aligned16(y) && aligned16(b);
    LAUNCH(bias_kernel, grid_for(blocks_for(rows * columns, EIGHT)), THREADS, 0, stream, y, b,
           rows * columns, columns, wide);
}

static __global__ void cast_kernel(Vec x, Vec y, u64 n, bool wide)
{
    u64 step = (u64)gridDim.x * blockDim.x * EIGHT;
    for (u64 i = ((u64)blockIdx.x * blockDim.x + threadIdx.x) * EIGHT; i < n; i += step) {
        float f[EIGHT];
        int here = up_to_8(i, n);
        bool whole = wide && here == EIGHT;
        load8(x, i, here, whole, f);
        store8(y, i, here, whole, f);
    }
}

void cuda_cast(Vec x, Vec y, uint64_t n, void *stream)
{
    LAUNCH(cast_kernel, grid_for(blocks_for(n, EIGHT)), THREADS, 0, stream, x, y, n,
           aligned16(x) && aligned16(y));
}

/* ---- activations ---- */

/* The curve with tanh is x times a sigmoid of twice its argument: 1 + tanh(u) = 2/(1 + e^-2u). */
static __device__ __forceinline__ float sigmoid(float x)
{
    return quick_reciprocal(1 + quick_exp(-x));
}

static __device__ __forceinline__ float gelu_sigmoid(float x)
{
    return sigmoid(2 * 0.79788456f * x * (1 + 0.044715f * x * x));
}

static __device__ __forceinline__ float curve_value(CurveKind curve, float x)
{
    switch (curve) {
    case CURVE_GELU:
        return 0.5f * x * (1 + erff(x * 0.70710678f));
    case CURVE_GELU_TANH:
        return x * gelu_sigmoid(x);
    case CURVE_RELU:
        return x > 0 ? x : 0;
    case CURVE_RELU2:
        return x > 0 ? x * x : 0;
    default:
        return x * sigmoid(x);
    }
}

static __device__ __forceinline__ float curve_slope(CurveKind curve, float x)
{
    float t;
    switch (curve) {
    case CURVE_GELU:
        return 0.5f * (1 + erff(x * 0.70710678f)) + x * 0.39894228f * quick_exp(-0.5f * x * x);
    case CURVE_GELU_TANH:
        t = gelu_sigmoid(x);
        return t + x * t * (1 - t) * (2 * 0.79788456f * (1 + 3 * 0.044715f * x * x));
    case CURVE_RELU:
        return x > 0 ? 1 : 0;
    case CURVE_RELU2:
        return x > 0 ? 2 * x : 0;
    default:
        t = sigmoid(x);
        return t * (1 + x * (1 - t));
    }
}

/* Where number i of y has its gate in x. */
static __device__ __forceinline__ u64 gate_of(const Activation &a, u64 i)
{
    return a.gated ? i / a.columns * 2 * a.columns + i % a.columns : i;
}

/* x at gate_of(i) and what follows; numbers of one eight may lie in two rows. */
static __device__ __forceinline__ void load_gates(const Activation &a, const Vec &x, u64 i,
                                                  u64 further, int n, bool whole, float *f)
{
    if (whole || !a.gated) {
        load8(x, gate_of(a, i) + further, n, whole, f);
        return;
    }
    for (int k = 0; k < EIGHT; k++)
        f[k] = k < n ? load1(x, gate_of(a, i + k) + further) : 0.0f;
}

static __device__ __forceinline__ void store_gates(const Activation &a, const Vec &x, u64 i,
                                                   u64 further, int n, bool whole,
                                                   const float *f)
{
    if (whole || !a.gated) {
        store8(x, gate_of(a, i) + further, n, whole, f);
        return;
    }
    for (int k = 0; k < n; k++)
        store1(x, gate_of(a, i + k) + further, f[k]);
}

static __device__ __forceinline__ void add_bias8(const Activation &a, const Vec &b, u64 i,
                                                 u64 further, int n, float *f)
{
    for (int k = 0; k < EIGHT; k++)
        f[k] += k < n ? load1(b, (i + k) % a.columns + further) : 0.0f;
}

static __global__ void activation_kernel(Activation a, Vec x, Vec b, Vec y, bool wide)
{
    u64 n = a.rows * a.columns, step = (u64)gridDim.x * blockDim.x * EIGHT;
    for (u64 i = ((u64)blockIdx.x * blockDim.x + threadIdx.x) * EIGHT; i < n; i += step) {
        float f[EIGHT], up[EIGHT];
        int here = up_to_8(i, n);
        bool whole = wide && here == EIGHT;
        load_gates(a, x, i, 0, here, whole, f);
        if (a.gated)
            load_gates(a, x, i, a.columns, here, whole, up);
        if (b.at)
            add_bias8(a, b, i, 0, here, f);
        if (b.at && a.gated)
            add_bias8(a, b, i, a.columns, here, up);
#pragma unroll
        for (int k = 0; k < EIGHT; k++)
            f[k] = curve_value(a.curve, f[k]) * (a.gated ? up[k] : 1);
        store8(y, i, here, whole, f);
    }
}

static __global__ void activation_back_kernel(Activation a, Vec dy, Vec x, Vec dx, bool wide)
{
    u64 n = a.rows * a.columns, step = (u64)gridDim.x * blockDim.x * EIGHT;
    for (u64 i = ((u64)blockIdx.x * blockDim.x + threadIdx.x) * EIGHT; i < n; i += step) {
        float d[EIGHT], f[EIGHT], up[EIGHT];
        int here = up_to_8(i, n);
        bool whole = wide && here == EIGHT;
        load8(dy, i, here, whole, d);
        load_gates(a, x, i, 0, here, whole, f);
        if (a.gated) {
            load_gates(a, x, i, a.columns, here, whole, up);
#pragma unroll
            for (int k = 0; k < EIGHT; k++) {
                float gate = f[k];
                f[k] = d[k] * up[k] * curve_slope(a.curve, gate);
                up[k] = d[k] * curve_value(a.curve, gate);
            }
            store_gates(a, dx, i, a.columns, here, whole, up);
        } else {
#pragma unroll
            for (int k = 0; k < EIGHT; k++)
                f[k] = d[k] * curve_slope(a.curve, f[k]);
        }
        store_gates(a, dx, i, 0, here, whole, f);
    }
}

/* All of one type, by 16-byte accesses.  Curves are told apart once for eight numbers. */

/* Eight e of y has its gates here in x. */
template <bool GATED> static __device__ __forceinline__ u64 gates_of(const Activation &a, u64 e)
{
    unsigned per_row = (unsigned)a.columns / EIGHT;
    return (GATED ? e + (u64)((unsigned)e / per_row) * per_row : e) * EIGHT;
}

template <CurveKind CURVE, bool GATED>
static __device__ __forceinline__ void values8(float *f, const float *up)
{
#pragma unroll
    for (int k = 0; k < EIGHT; k++)
        f[k] = curve_value(CURVE, f[k]) * (GATED ? up[k] : 1);
}

template <CurveKind CURVE, bool GATED>
static __device__ __forceinline__ void slopes8(const float *d, float *f, float *up)
{
#pragma unroll
    for (int k = 0; k < EIGHT; k++) {
        float x = f[k];
        f[k] = d[k] * (GATED ? up[k] : 1) * curve_slope(CURVE, x);
        if (GATED)
            up[k] = d[k] * curve_value(CURVE, x);
    }
}

#define BY_CURVE(curve, work, ...) \
    switch (curve) { \
    case CURVE_GELU: \
        work<CURVE_GELU, GATED>(__VA_ARGS__); \
        break; \
    case CURVE_GELU_TANH: \
        work<CURVE_GELU_TANH, GATED>(__VA_ARGS__); \
        break; \
    case CURVE_RELU: \
        work<CURVE_RELU, GATED>(__VA_ARGS__); \
        break; \
    case CURVE_RELU2: \
        work<CURVE_RELU2, GATED>(__VA_ARGS__); \
        break; \
    default: \
        work<CURVE_SILU, GATED>(__VA_ARGS__); \
    }

template <NumType TYPE, bool GATED>
static __global__ void activation_wide_kernel(Activation a, unsigned eights, Vec x, Vec y)
{
    Raw8 gate[AT_ONCE], side[AT_ONCE];
    x.type = y.type = TYPE;
#pragma unroll
    for (int j = 0; j < AT_ONCE; j++) {
        unsigned e = eight_of(j);
        if (e >= eights)
            break;
        u64 at = gates_of<GATED>(a, e);
        gate[j] = raw8(x, at);
        if (GATED)
            side[j] = raw8(x, at + a.columns);
    }
#pragma unroll
    for (int j = 0; j < AT_ONCE; j++) {
        unsigned e = eight_of(j);
        if (e >= eights)
            break;
        float f[EIGHT], up[EIGHT];
        widen8(TYPE, gate[j], f);
        if (GATED)
            widen8(TYPE, side[j], up);
        BY_CURVE(a.curve, values8, f, up)
        narrow8(y, (u64)e * EIGHT, f);
    }
}

template <NumType TYPE, bool GATED>
static __global__ void activation_back_wide_kernel(Activation a, unsigned eights, Vec dy, Vec x,
                                                   Vec dx)
{
    Raw8 due[AT_ONCE], gate[AT_ONCE], side[AT_ONCE];
    dy.type = x.type = dx.type = TYPE;
#pragma unroll
    for (int j = 0; j < AT_ONCE; j++) {
        unsigned e = eight_of(j);
        if (e >= eights)
            break;
        u64 at = gates_of<GATED>(a, e);
        due[j] = raw8(dy, (u64)e * EIGHT);
        gate[j] = raw8(x, at);
        if (GATED)
            side[j] = raw8(x, at + a.columns);
    }
#pragma unroll
    for (int j = 0; j < AT_ONCE; j++) {
        unsigned e = eight_of(j);
        if (e >= eights)
            break;
        float d[EIGHT], f[EIGHT], up[EIGHT];
        u64 at = gates_of<GATED>(a, e);
        widen8(TYPE, due[j], d);
        widen8(TYPE, gate[j], f);
        if (GATED)
            widen8(TYPE, side[j], up);
        BY_CURVE(a.curve, slopes8, d, f, up)
        narrow8(dx, at, f);
        if (GATED)
            narrow8(dx, at + a.columns, up);
    }
}

typedef void (*ActivationWide)(Activation, unsigned, Vec, Vec);
typedef void (*ActivationBackWide)(Activation, unsigned, Vec, Vec, Vec);
#define BY_TYPE_AND_GATED(kernel) \
    { \
        { kernel<NUM_F32, false>, kernel<NUM_F32, true> }, \
            { kernel<NUM_F16, false>, kernel<NUM_F16, true> }, \
            { kernel<NUM_BF16, false>, kernel<NUM_BF16, true> }, \
    }
static const ActivationWide activation_wide[][2] = BY_TYPE_AND_GATED(activation_wide_kernel);
static const ActivationBackWide activation_back_wide[][2] =
    BY_TYPE_AND_GATED(activation_back_wide_kernel);

static bool rows_wide(Activation a)
{
    return !a.gated || a.columns % EIGHT == 0;
}

void cuda_activation(Activation a, Vec x, Vec b, Vec y, void *stream)
{
    bool wide = aligned16(x) && aligned16(y) && rows_wide(a);
    unsigned eights = whole_eights(a.rows * a.columns);
    if (wide && eights && !b.at && x.type == y.type) {
        ActivationWide kernel = activation_wide[x.type][a.gated];
        LAUNCH(kernel, grid_of_eights(eights), THREADS, 0, stream, a, eights, x, y);
        return;
    }
    LAUNCH(activation_kernel, grid_for(blocks_for(a.rows * a.columns, EIGHT)), THREADS, 0,
           stream, a, x, b, y, wide);
}

void cuda_activation_back(Activation a, Vec dy, Vec x, Vec dx, void *stream)
{
    bool wide = aligned16(dy) && aligned16(x) && aligned16(dx) && rows_wide(a);
    unsigned eights = whole_eights(a.rows * a.columns);
    if (wide && eights && dy.type == x.type && x.type == dx.type) {
        ActivationBackWide kernel = activation_back_wide[x.type][a.gated];
        LAUNCH(kernel, grid_of_eights(eights), THREADS, 0, stream, a, eights, dy, x, dx);
        return;
    }
    LAUNCH(activation_back_kernel, grid_for(blocks_for(a.rows * a.columns, EIGHT)), THREADS, 0,
           stream, a, dy, x, dx, wide);
}

/* ---- sums over rows ---- */

/* A block sums SUM_COLUMNS columns over its part of the rows: ROW_LANES threads take every
 * ROW_LANES-th row of eight columns, and meet in shared memory. */
enum {
    EIGHTS = 16,
    ROW_LANES = 16,
    SUM_COLUMNS = EIGHTS * EIGHT,
    ROWS_EACH = 128,
    PARTS = 128
};

static __global__ void sums_kernel(Vec x, u64 rows, u64 columns, u64 rows_each, Vec y,
                                   bool adds, bool wide)
{
    __shared__ float sums[ROW_LANES][SUM_COLUMNS];
    u64 eight = threadIdx.x % EIGHTS, lane = threadIdx.x / EIGHTS;
    u64 column = (u64)blockIdx.x * SUM_COLUMNS + eight * EIGHT;
    u64 first = (u64)blockIdx.y * rows_each;
    u64 end = first + rows_each < rows ? first + rows_each : rows;
    float sum[EIGHT] = { 0 };
    if (column < columns) {
        int n = up_to_8(column, columns);
        for (u64 r = first + lane; r < end; r += ROW_LANES) {
            float f[EIGHT];
            load8(x, r * columns + column, n, wide && n == EIGHT, f);
#pragma unroll
            for (int k = 0; k < EIGHT; k++)
                sum[k] += f[k];
        }
    }
#pragma unroll
    for (int k = 0; k < EIGHT; k++)
        sums[lane][eight * EIGHT + k] = sum[k];
    __syncthreads();
    column = (u64)blockIdx.x * SUM_COLUMNS + threadIdx.x;
    if (threadIdx.x >= SUM_COLUMNS || column >= columns)
        return;
    float all = 0;
    for (int i = 0; i < ROW_LANES; i++)
        all += sums[i][threadIdx.x];
    u64 at = (u64)blockIdx.y * columns + column;
    store1(y, at, adds ? load1(y, at) + all : all);
}

static u64 sum_parts(u64 rows)
{
    return least(blocks_for(rows, ROWS_EACH), PARTS);
}

uint64_t cuda_sums_scratch(uint64_t rows, uint64_t columns)
{
    u64 parts = sum_parts(rows);
    return parts > 1 ? parts * columns : 0;
}

static void sums_launch(Vec x, u64 rows, u64 columns, u64 parts, Vec y, bool adds, void *stream)
{
    bool wide = aligned16(x) && columns % EIGHT == 0;
    dim3 grid((unsigned)blocks_for(columns, SUM_COLUMNS), (unsigned)parts);
    LAUNCH(sums_kernel, grid, EIGHTS * ROW_LANES, 0, stream, x, rows, columns,
           blocks_for(rows, parts), y, adds, wide);
}

void cuda_column_sums(Vec x, uint64_t rows, uint64_t columns, Vec y, bool adds, float *scratch,
                      void *stream)
{
    u64 parts = sum_parts(rows);
    Vec partly = { scratch, NUM_F32 };
    if (parts > 1) {
        sums_launch(x, rows, columns, parts, partly, false, stream);
        x = partly;
        rows = parts;
    }
    sums_launch(x, rows, columns, 1, y, adds, stream);
}

/* ---- rotary positions ---- */

/* A block takes some positions, of all samples, so that angles are made once, in f64.  Its rows
 * are those of its first position, of all samples, then of the next one: threadIdx.y takes
 * every blockDim.y-th row, threadIdx.x the same pairs of each. */
typedef struct RopeBlock {
    unsigned first, positions, samples;
} RopeBlock;
enum { ROPE_THREADS = 512, ROPE_BLOCKS = 132 * 4, ROPE_FLOATS = 4096 };

static __device__ __forceinline__ RopeBlock rope_block(const Rope &s, unsigned each)
{
    unsigned all = s.rows < s.seq_len ? (unsigned)s.rows : s.seq_len;
    unsigned first = blockIdx.x * each, samples = ((unsigned)s.rows - 1) / s.seq_len + 1;
    return RopeBlock{ first, first + each < all ? each : all - first, samples };
}

/* Cosines of a position, then sines; pair k turns by 2^(slower k) of it. */
static __device__ __forceinline__ void rope_angles(const Rope &s, const RopeBlock &b,
                                                   double slower, float *turn)
{
    unsigned half = s.width / 2, thread = threadIdx.y * blockDim.x + threadIdx.x;
    for (unsigned i = thread; i < b.positions * half; i += blockDim.x * blockDim.y) {
        unsigned place = i / half, k = i % half;
        double angle = (double)(s.position_first + b.first + place) * exp2(slower * (double)k);
        double sine, cosine;
        sincos(angle, &sine, &cosine);
        turn[place * s.width + k] = (float)cosine;
        turn[place * s.width + half + k] = s.sign * (float)sine;
    }
    __syncthreads();
}

/* Row i of the block, and its position's angles; the last sample may be shorter. */
typedef struct RopeRow {
    u64 at;
    unsigned turn;
    bool here;
} RopeRow;

static __device__ __forceinline__ RopeRow rope_row(const Rope &s, const RopeBlock &b,
                                                   unsigned i)
{
    unsigned place = i / b.samples;
    u64 r = b.first + place + (u64)(i - place * b.samples) * s.seq_len;
    return RopeRow{ r * s.stride, place * s.width, place < b.positions && r < s.rows };
}

static __global__ void rope_kernel(Rope s, unsigned each, double slower, Vec x)
{
    DYNAMIC_SHARED(memory);
    float *turn = (float *)memory;
    unsigned half = s.width / 2, pair = blockIdx.y * blockDim.x + threadIdx.x, k = pair % half;
    RopeBlock b = rope_block(s, each);
    rope_angles(s, b, slower, turn);
    if (pair >= s.heads * half)
        return;
    for (unsigned i = threadIdx.y; i < b.positions * b.samples; i += blockDim.y) {
        RopeRow row = rope_row(s, b, i);
        if (!row.here)
            continue;
        u64 at = row.at + (u64)(pair / half) * s.width + k;
        float low = load1(x, at), high = load1(x, at + half);
        float cosine = turn[row.turn + k], sine = turn[row.turn + half + k];
        store1(x, at, low * cosine - high * sine);
        store1(x, at + half, high * cosine + low * sine);
    }
}

/* Eight pairs of AT_ONCE rows, blockDim.y apart, on their way. */
typedef struct RopeEights {
    RopeRow row[AT_ONCE];
    Raw8 low[AT_ONCE], high[AT_ONCE];
} RopeEights;

static __device__ __forceinline__ void rope_load(const Rope &s, const RopeBlock &b,
                                                 const Vec &x, unsigned i, u64 column,
                                                 RopeEights *e)
{
#pragma unroll
    for (int j = 0; j < AT_ONCE; j++) {
        e->row[j] = rope_row(s, b, i + (unsigned)j * blockDim.y);
        if (e->row[j].here) {
            e->low[j] = raw8(x, e->row[j].at + column);
            e->high[j] = raw8(x, e->row[j].at + column + s.width / 2);
        }
    }
}

static __device__ __forceinline__ void turn8(float *low, float *high, const float *turn,
                                             unsigned half)
{
    float cosine[EIGHT], sine[EIGHT];
    Vec angles = { (void *)turn, NUM_F32 };
    load8(angles, 0, EIGHT, true, cosine);
    load8(angles, half, EIGHT, true, sine);
#pragma unroll
    for (int k = 0; k < EIGHT; k++) {
        float was = low[k];
        low[k] = was * cosine[k] - high[k] * sine[k];
        high[k] = high[k] * cosine[k] + was * sine[k];
    }
}

template <NumType TYPE>
static __device__ __forceinline__ void rope_turn(const Rope &s, const Vec &x, u64 column,
                                                 const RopeEights &e, const float *turn)
{
#pragma unroll
    for (int j = 0; j < AT_ONCE; j++) {
        float low[EIGHT], high[EIGHT];
        if (!e.row[j].here)
            continue;
        widen8(TYPE, e.low[j], low);
        widen8(TYPE, e.high[j], high);
        turn8(low, high, turn + e.row[j].turn, s.width / 2);
        narrow8(x, e.row[j].at + column, low);
        narrow8(x, e.row[j].at + column + s.width / 2, high);
    }
}

/* Eight pairs at a time, by 16-byte accesses; the first are on their way when angles are
 * made. */
template <NumType TYPE>
static __global__ void rope_wide_kernel(Rope s, unsigned each, double slower, Vec x)
{
    DYNAMIC_SHARED(memory);
    float *turn = (float *)memory;
    unsigned eights = s.width / (2 * EIGHT), eight = blockIdx.y * blockDim.x + threadIdx.x;
    unsigned head = eight / eights, k = (eight - head * eights) * EIGHT;
    u64 column = (u64)head * s.width + k;
    RopeBlock b = rope_block(s, each);
    RopeEights e;
    x.type = TYPE;
    if (head >= s.heads)
        b.samples = 0; /* has no rows, but takes part in what follows */
    if (b.samples)
        rope_load(s, b, x, threadIdx.y, column, &e);
    rope_angles(s, b, slower, turn);
    for (unsigned i = threadIdx.y; i < b.positions * b.samples;) {
        rope_turn<TYPE>(s, x, column, e, turn + k);
        i += AT_ONCE * blockDim.y;
        if (i < b.positions * b.samples)
            rope_load(s, b, x, i, column, &e);
    }
}

typedef void (*RopeWide)(Rope, unsigned, double, Vec);
static const RopeWide rope_wide[] = { rope_wide_kernel<NUM_F32>, rope_wide_kernel<NUM_F16>,
                                      rope_wide_kernel<NUM_BF16> };

/* Positions of a block: a thread has some rows, but multiprocessors have some blocks. */
static unsigned rope_positions(const Rope &r, unsigned lanes)
{
    u64 places = least(r.rows, r.seq_len), samples = blocks_for(r.rows, r.seq_len);
    u64 each = least(2 * AT_ONCE * lanes / samples, ROPE_FLOATS / r.width);
    each = least(each, places / ROPE_BLOCKS);
    return each ? (unsigned)each : 1;
}

void cuda_rope(Rope r, Vec x, void *stream)
{
    if (r.rows == 0 || r.heads == 0 || r.width < 2)
        return;
    bool wide = aligned16(x) && r.width % (2 * EIGHT) == 0 && r.stride % EIGHT == 0;
    u64 pairs = (u64)r.heads * (r.width / 2) / (wide ? EIGHT : 1);
    unsigned across = (unsigned)least(blocks_for(pairs, WARP) * WARP, ROPE_THREADS);
    unsigned lanes = across < THREADS ? THREADS / across : 1;
    unsigned each = rope_positions(r, lanes);
    dim3 grid((unsigned)blocks_for(least(r.rows, r.seq_len), each),
              (unsigned)blocks_for(pairs, across));
    RopeWide kernel = wide ? rope_wide[x.type] : rope_kernel;
    LAUNCH(kernel, grid, dim3(across, lanes), each * r.width * sizeof(float), stream, r, each,
           log2(r.theta) * -2 / (double)r.width, x);
}

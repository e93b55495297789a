/*
 * cuda_loss.cu - both ends of the network: rows of tables, and the losses.
 *
 * Cross entropy is one block a row and two passes: the largest logit and the sum of
 * exponentials in one, the gradient in place of the logits in the other.  Between them the row
 * is kept in shared memory where it fits: all rows in flight together do not fit into the L2.
 * A thread reads again only what it kept itself.  Rows of a vocabulary such as 50,257 begin
 * anywhere, so a row is some single numbers, eights, and some more.
 *
 * The gradient of a table: rows of dy that belong to one row of it are summed in f32, in an
 * order that depends on nothing but where they are, and rounded once.  How many there are,
 * which is first and which last is found with integer atomics, whose result does not depend on
 * their order.  A warp makes a row of at most two; a block one of more, which it looks for.
 */
#include "exec/cuda_device.cuh"

enum {
    THREADS = 256,
    ROW_THREADS = 512,
    ROW_THREADS_MAX = 1024,
    ROW_THREADS_OF_TWO = 576, /* as many as registers allow, of 16 bits */
    KEPT_OF_THREE = 74 << 10, /* bytes of a row of three blocks on a multiprocessor; */
    KEPT_OF_TWO = 112 << 10   /* of two */
};

/* ---- tables ---- */

static __device__ __forceinline__ bool row_of(const Table &t, const int64_t *tokens, u64 r,
                                              u64 *row)
{
    if (t.by_place) {
        *row = t.same_row ? 0 : t.position_first + (t.row_first + r) % t.seq_len;
        return true;
    }
    *row = (u64)(tokens[r] - t.first);
    return tokens[r] >= t.first && *row < t.table_rows;
}

static __global__ void embed_kernel(Table t, const int64_t *tokens, Vec table, Vec y, bool wide)
{
    u64 r = blockIdx.x, row;
    bool here = row_of(t, tokens, r, &row);
    for (u64 c = (u64)threadIdx.x * EIGHT; c < t.columns; c += blockDim.x * EIGHT) {
        float f[EIGHT] = { 0 }, old[EIGHT];
        int n = up_to_8(c, t.columns);
        bool whole = wide && n == EIGHT;
        if (here)
            load8(table, row * t.columns + c, n, whole, f);
        if (t.by_place) {
            load8(y, r * t.columns + c, n, whole, old);
            for (int k = 0; k < EIGHT; k++)
                f[k] += old[k];
        }
        store8(y, r * t.columns + c, n, whole, f);
    }
}

static unsigned threads_for(u64 columns)
{
    u64 eights = blocks_for(columns, EIGHT);
    return (unsigned)least(blocks_for(eights, WARP) * WARP, THREADS);
}

void cuda_embed(Table t, const int64_t *tokens, Vec table, Vec y, void *stream)
{
    bool wide = t.columns % EIGHT == 0 && aligned16(table) && aligned16(y);
    LAUNCH(embed_kernel, (unsigned)t.rows, threads_for(t.columns), 0, stream, t, tokens, table,
           y, wide);
}

/* sum += eight numbers at column c of rows first, first + apart, ... below end, in this order;
 * rows: which they are, or NULL: they themselves.  ROWS of them are on their way together. */
template <int ROWS>
static __device__ __forceinline__ void add_rows8(const Vec &dy, unsigned columns, unsigned c,
                                                 bool wide, unsigned first, unsigned end,
                                                 unsigned apart, const unsigned short *rows,
                                                 unsigned base, float *sum)
{
    for (unsigned q = first; q < end; q += ROWS * apart) {
        Raw8 raw[ROWS];
        float f[EIGHT];
#pragma unroll
        for (int j = 0; j < ROWS; j++)
            if (unsigned i = q + (unsigned)j * apart; wide && i < end)
                raw[j] = ahead8(dy, (u64)(rows ? base + rows[i] : i) * columns + c);
#pragma unroll
        for (int j = 0; j < ROWS; j++) {
            unsigned i = q + (unsigned)j * apart;
            if (i >= end)
                break;
            if (wide)
                widen8(dy.type, raw[j], f);
            else
                load8(dy, (u64)(rows ? base + rows[i] : i) * columns + c, up_to_8(c, columns),
                      false, f);
#pragma unroll
            for (int k = 0; k < EIGHT; k++)
                sum[k] += f[k];
        }
    }
}

static bool table_wide(const Table &t, const Vec &dy, const Vec &dtable)
{
    return t.columns % EIGHT == 0 && aligned16(dy) && aligned16(dtable);
}

/* By place: row p of the table has rows r of dy that are seq_len apart. */
static __global__ void embed_back_places_kernel(Table t, Vec dy, Vec dtable, bool adds,
                                                bool wide)
{
    u64 row = blockIdx.x;
    bool mine = row >= t.position_first && row < t.position_first + t.seq_len;
    u64 place = row - t.position_first + t.seq_len - t.row_first % t.seq_len;
    unsigned first = (unsigned)(mine ? place % t.seq_len : t.rows);
    unsigned columns = (unsigned)t.columns;
    if (adds && first >= t.rows)
        return;
    for (unsigned c = threadIdx.x * EIGHT; c < columns; c += blockDim.x * EIGHT) {
        float sum[EIGHT] = { 0 };
        int n = up_to_8(c, columns);
        if (adds)
            load8(dtable, row * columns + c, n, wide, sum);
        add_rows8<4>(dy, columns, c, wide, first, (unsigned)t.rows, t.seq_len, NULL, 0, sum);
        store8(dtable, row * columns + c, n, wide, sum);
    }
}

/* scratch: of each row of the table its first row of dy, its last one, and how many; the row
 * of the table of each row of dy; how many rows have more than two, and which. */
typedef struct Found {
    int32_t *first, *last, *n, *row_of_dy, *several_n, *several;
} Found;
enum { FEW = 2 };

static __host__ __device__ __forceinline__ Found found_in(const Table &t, int32_t *scratch)
{
    int32_t *row_of_dy = scratch + 3 * t.table_rows, *several_n = row_of_dy + t.rows;
    return Found{ scratch,   scratch + t.table_rows, scratch + 2 * t.table_rows, row_of_dy,
                  several_n, several_n + 1 };
}

uint64_t cuda_embed_scratch(Table t)
{
    if (t.by_place)
        return t.same_row ? cuda_sums_scratch(t.rows, t.columns) : 0;
    return 3 * t.table_rows + t.rows + 1 + t.rows / (FEW + 1);
}

static __global__ void embed_clear_kernel(Table t, int32_t *scratch)
{
    Found f = found_in(t, scratch);
    u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i == 0)
        *f.several_n = 0;
    if (i >= t.table_rows)
        return;
    f.first[i] = INT32_MAX;
    f.last[i] = -1;
    f.n[i] = 0;
}

static __global__ void embed_find_kernel(Table t, const int64_t *tokens, int32_t *scratch)
{
    Found f = found_in(t, scratch);
    u64 r = (u64)blockIdx.x * blockDim.x + threadIdx.x, row;
    if (r >= t.rows)
        return;
    bool here = row_of(t, tokens, r, &row);
    f.row_of_dy[r] = here ? (int32_t)row : -1;
    if (!here)
        return;
    atomicMin((int *)&f.first[row], (int)r);
    atomicMax((int *)&f.last[row], (int)r);
    atomicAdd((int *)&f.n[row], 1);
}

/* A warp makes a row of the table that has few rows of dy, and lists one that has more; in
 * which order they are listed changes no sum. */
static __global__ void embed_few_kernel(Table t, Vec dy, Vec dtable, bool adds, bool wide,
                                        int32_t *scratch)
{
    Found f = found_in(t, scratch);
    u64 row = (u64)blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP;
    unsigned lane = threadIdx.x % WARP;
    if (row >= t.table_rows)
        return;
    int n = f.n[row], first = f.first[row], last = f.last[row];
    if (n > FEW && lane == 0)
        f.several[atomicAdd((int *)f.several_n, 1)] = (int32_t)row;
    if (n > FEW || (n == 0 && adds))
        return;
    unsigned columns = (unsigned)t.columns, end = n ? (unsigned)last + 1 : 0;
    unsigned apart = n > 1 ? (unsigned)(last - first) : 1;
    for (unsigned c = lane * EIGHT; c < columns; c += WARP * EIGHT) {
        float sum[EIGHT] = { 0 };
        int here = up_to_8(c, columns);
        if (adds)
            load8(dtable, row * columns + c, here, wide, sum);
        add_rows8<FEW>(dy, columns, c, wide, (unsigned)first, end, apart, NULL, 0, sum);
        store8(dtable, row * columns + c, here, wide, sum);
    }
}

/* Of a block: rows of dy are looked for LOOKS * SEVERAL_THREADS at a time.  A word of `found`
 * has a bit for each of 32; `rows` are those that were found, in their order. */
enum {
    SEVERAL_THREADS = 512,
    SEVERAL_BLOCKS = 132 * 4,
    LOOKS = 8,
    LOOKED_AT = LOOKS * SEVERAL_THREADS,
    LOOK_WORDS = LOOKED_AT / WARP
};

typedef struct Looked {
    unsigned found[LOOK_WORDS], n;
    unsigned short rows[LOOKED_AT];
} Looked;

/* The first warp turns bits into rows: a lane has LOOK_WORDS / WARP words. */
static __device__ __forceinline__ void list_found(Looked *l)
{
    unsigned lane = threadIdx.x, words = LOOK_WORDS / WARP, n = 0;
    for (unsigned w = lane * words; w < (lane + 1) * words; w++)
        n += (unsigned)__popc(l->found[w]);
    unsigned end = n;
    for (unsigned by = 1; by < WARP; by *= 2) {
        unsigned before = __shfl_up_sync(ALL_LANES, end, (int)by);
        end += lane >= by ? before : 0;
    }
    unsigned to = end - n;
    for (unsigned w = lane * words; w < (lane + 1) * words; w++)
        for (unsigned bits = l->found[w]; bits; bits &= bits - 1)
            l->rows[to++] = (unsigned short)(w * WARP + (unsigned)__ffs((int)bits) - 1);
    if (lane == WARP - 1)
        l->n = end;
}

/* Rows of dy from base on that belong to this row of the table. */
static __device__ __forceinline__ void look(const Found &f, int32_t row, unsigned base,
                                            unsigned end, Looked *l)
{
    int32_t rows[LOOKS];
#pragma unroll
    for (int j = 0; j < LOOKS; j++) {
        unsigned i = base + (unsigned)j * SEVERAL_THREADS + threadIdx.x;
        rows[j] = i < end ? f.row_of_dy[i] : -1;
    }
    __syncthreads(); /* nobody reads what was found before */
#pragma unroll
    for (int j = 0; j < LOOKS; j++) {
        unsigned bits = __ballot_sync(ALL_LANES, rows[j] == row);
        if (threadIdx.x % WARP == 0)
            l->found[((unsigned)j * SEVERAL_THREADS + threadIdx.x) / WARP] = bits;
    }
    __syncthreads();
    if (threadIdx.x < WARP)
        list_found(l);
    __syncthreads();
}

/* Sums of threads that are `across` apart, `parts` of them, in the first one. */
static __device__ __forceinline__ void sum_of_parts(float *sum, unsigned across, unsigned parts,
                                                    float *shared)
{
    __syncthreads();
#pragma unroll
    for (int k = 0; k < EIGHT; k++)
        shared[(unsigned)k * SEVERAL_THREADS + threadIdx.x] = sum[k];
    __syncthreads();
    if (threadIdx.x >= across)
        return;
    for (unsigned p = 1; p < parts; p++)
#pragma unroll
        for (int k = 0; k < EIGHT; k++)
            sum[k] += shared[(unsigned)k * SEVERAL_THREADS + p * across + threadIdx.x];
}

/* Numbers [column, column + 8 across) of one row, in the first threads; every parts-th of its
 * rows of dy belongs to threads [part * across, (part + 1) * across). */
static __device__ __forceinline__ void sum_several(const Table &t, const Found &f,
                                                   const Vec &dy, int32_t row, unsigned column,
                                                   unsigned across, bool wide, float *sum)
{
    __shared__ Looked looked;
    __shared__ float shared[SEVERAL_THREADS * EIGHT];
    unsigned part = threadIdx.x / across, parts = SEVERAL_THREADS / across;
    unsigned c = column + threadIdx.x % across * EIGHT, columns = (unsigned)t.columns;
    unsigned end = (unsigned)f.last[row] + 1;
    for (unsigned base = (unsigned)f.first[row]; base < end; base += LOOKED_AT) {
        look(f, row, base, end, &looked);
        if (part < parts && c < columns)
            add_rows8<3>(dy, columns, c, wide, part, looked.n, parts, looked.rows, base, sum);
    }
    sum_of_parts(sum, across, parts, shared);
}

static __global__ void __launch_bounds__(SEVERAL_THREADS, 2)
    embed_several_kernel(Table t, Vec dy, Vec dtable, bool adds, bool wide, int32_t *scratch)
{
    Found f = found_in(t, scratch);
    unsigned columns = (unsigned)t.columns, across = SEVERAL_THREADS;
    if (across > (columns + EIGHT - 1) / EIGHT)
        across = (columns + EIGHT - 1) / EIGHT;
    for (int i = (int)blockIdx.x; i < *f.several_n; i += (int)gridDim.x)
        for (unsigned column = 0; column < columns; column += across * EIGHT) {
            float sum[EIGHT] = { 0 }, old[EIGHT] = { 0 };
            int32_t row = f.several[i];
            unsigned c = column + threadIdx.x * EIGHT;
            sum_several(t, f, dy, row, column, across, wide, sum);
            if (threadIdx.x >= across || c >= columns)
                continue;
            int n = up_to_8(c, columns);
            if (adds)
                load8(dtable, (u64)row * columns + c, n, wide, old);
#pragma unroll
            for (int k = 0; k < EIGHT; k++)
                sum[k] += old[k];
            store8(dtable, (u64)row * columns + c, n, wide, sum);
        }
}

static __global__ void embed_zero_kernel(Vec dtable, u64 first, u64 n)
{
    for (u64 i = first + (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (u64)gridDim.x * blockDim.x)
        store1(dtable, i, 0);
}

/* All rows of dy belong to row 0; other rows are zeros. */
static void embed_back_same_row(Table t, Vec dy, Vec dtable, bool adds, float *scratch,
                                void *stream)
{
    u64 n = t.table_rows * t.columns;
    if (!adds && t.table_rows > 1)
        LAUNCH(embed_zero_kernel, (unsigned)least(blocks_for(n, THREADS), 4096), THREADS, 0,
               stream, dtable, t.columns, n);
    cuda_column_sums(dy, t.rows, t.columns, dtable, adds, scratch, stream);
}

void cuda_embed_back(Table t, Vec dy, const int64_t *tokens, Vec dtable, bool adds,
                     int32_t *scratch, void *stream)
{
    bool wide = table_wide(t, dy, dtable);
    if (t.by_place && t.same_row) {
        embed_back_same_row(t, dy, dtable, adds, (float *)scratch, stream);
        return;
    }
    if (t.by_place) {
        LAUNCH(embed_back_places_kernel, (unsigned)t.table_rows, threads_for(t.columns), 0,
               stream, t, dy, dtable, adds, wide);
        return;
    }
    LAUNCH(embed_clear_kernel, (unsigned)blocks_for(t.table_rows, THREADS), THREADS, 0, stream,
           t, scratch);
    LAUNCH(embed_find_kernel, (unsigned)blocks_for(t.rows, THREADS), THREADS, 0, stream, t,
           tokens, scratch);
    LAUNCH(embed_few_kernel, (unsigned)blocks_for(t.table_rows, THREADS / WARP), THREADS, 0,
           stream, t, dy, dtable, adds, wide, scratch);
    LAUNCH(embed_several_kernel, (unsigned)least(blocks_for(t.rows, FEW + 1), SEVERAL_BLOCKS),
           SEVERAL_THREADS, 0, stream, t, dy, dtable, adds, wide, scratch);
}

/* ---- sums of losses ---- */

/* One block: adds up n terms in order of their threads. */
static __global__ void loss_kernel(const double *terms, u64 n, LossSum loss)
{
    __shared__ double shared[WARP];
    double mine = 0;
    for (u64 i = threadIdx.x; i < n; i += blockDim.x)
        mine += terms[i];
    mine = block_sum_f64(mine, shared);
    if (threadIdx.x > 0)
        return;
    *loss.sum += mine / loss.copies;
    store1(loss.value, 0, (float)(mine / loss.count));
}

static __global__ void mse_kernel(Vec x, Vec target, u64 n, double *terms)
{
    __shared__ double shared[WARP];
    double sum = 0;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (u64)gridDim.x * blockDim.x) {
        double d = (double)load1(x, i) - (double)load1(target, i);
        sum += d * d;
    }
    sum = block_sum_f64(sum, shared);
    if (threadIdx.x == 0)
        terms[blockIdx.x] = sum;
}

void cuda_mse(Vec x, Vec target, uint64_t n, LossSum loss, double *scratch, void *stream)
{
    u64 blocks = least(blocks_for(n, THREADS), MSE_BLOCKS);
    LAUNCH(mse_kernel, (unsigned)blocks, THREADS, 0, stream, x, target, n, scratch);
    LAUNCH(loss_kernel, 1, ROW_THREADS_MAX, 0, stream, scratch, blocks, loss);
}

static __global__ void mse_back_kernel(Vec x, Vec target, Vec dx, u64 n, float by)
{
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (u64)gridDim.x * blockDim.x)
        store1(dx, i, (load1(x, i) - load1(target, i)) * by);
}

void cuda_mse_back(Vec x, Vec target, Vec dx, uint64_t n, float by, void *stream)
{
    LAUNCH(mse_back_kernel, (unsigned)least(blocks_for(n, THREADS), 4096), THREADS, 0, stream,
           x, target, dx, n, by);
}

/* ---- cross entropy ---- */

static unsigned row_threads(const Logits &l)
{
    return (unsigned)least(blocks_for(l.n, EIGHT * WARP) * WARP, ROW_THREADS);
}

/* KERNEL<type> of the type that x has. */
#define LAUNCH_BY_TYPE(KERNEL, grid, block, shared, stream, l, x, ...) \
    do { \
        if ((x).type == NUM_BF16) \
            LAUNCH(KERNEL<NUM_BF16>, grid, block, shared, stream, l, x, __VA_ARGS__); \
        else if ((x).type == NUM_F16) \
            LAUNCH(KERNEL<NUM_F16>, grid, block, shared, stream, l, x, __VA_ARGS__); \
        else \
            LAUNCH(KERNEL<NUM_F32>, grid, block, shared, stream, l, x, __VA_ARGS__); \
    } while (0)

/* [begin, end) of a row: eights that are aligned; single numbers before and behind. */
typedef struct RowParts {
    u64 base;
    unsigned begin, end;
} RowParts;

static __device__ __forceinline__ RowParts parts_of(const Logits &l, u64 r)
{
    u64 base = r * l.columns;
    unsigned n = (unsigned)l.n, begin = (unsigned)((EIGHT - base % EIGHT) % EIGHT);
    RowParts p = { base, begin < n ? begin : n, 0 };
    p.end = p.begin + (n - p.begin) / EIGHT * EIGHT;
    return p;
}

/* Numbers of a row outside the eights: the i-th of them. */
static __device__ __forceinline__ unsigned single_at(const RowParts &p, unsigned i)
{
    return i < p.begin ? i : p.end + (i - p.begin);
}

static __device__ __forceinline__ unsigned singles_n(const Logits &l, const RowParts &p)
{
    return (unsigned)l.n - (p.end - p.begin);
}

/* Eights that a thread loads before it looks at one; they are a block's width apart. */
enum { IN_FLIGHT = 4 };

static __device__ __forceinline__ unsigned block_numbers(void)
{
    return blockDim.x * EIGHT;
}

static __device__ __forceinline__ void load_eights(const Vec &x, const RowParts &p, unsigned c,
                                                   Raw8 *raw)
{
#pragma unroll
    for (int j = 0; j < IN_FLIGHT; j++)
        if (unsigned at = c + (unsigned)j * block_numbers(); at < p.end)
            raw[j] = raw8(x, p.base + at);
}

/* The eight at c of a row in shared memory; of f32 its halves lie apart. */
template <NumType TYPE>
static __device__ __forceinline__ void keep8(uint4 *kept, const RowParts &p, unsigned c,
                                             const Raw8 &raw)
{
    kept[(c - p.begin) / EIGHT] = raw.low;
    if (TYPE == NUM_F32)
        kept[(p.end - p.begin + c - p.begin) / EIGHT] = raw.high;
}

template <NumType TYPE>
static __device__ __forceinline__ Raw8 kept8(const uint4 *kept, const RowParts &p, unsigned c)
{
    Raw8 raw;
    raw.low = raw.high = kept[(c - p.begin) / EIGHT];
    if (TYPE == NUM_F32)
        raw.high = kept[(p.end - p.begin + c - p.begin) / EIGHT];
    return raw;
}

static __device__ __forceinline__ float largest8(const float *f)
{
    float top = f[0];
#pragma unroll
    for (int k = 1; k < EIGHT; k++)
        top = fmaxf(top, f[k]);
    return top;
}

/* The largest logit. */
template <NumType TYPE>
static __device__ __forceinline__ float row_maximum(const Logits &l, const Vec &x, RowParts p,
                                                    float *shared)
{
    float top = -INFINITY;
    for (unsigned first = p.begin + threadIdx.x * EIGHT; first < p.end;
         first += block_numbers() * IN_FLIGHT) {
        Raw8 raw[IN_FLIGHT];
        load_eights(x, p, first, raw);
#pragma unroll
        for (int j = 0; j < IN_FLIGHT; j++) {
            float f[EIGHT];
            if (first + (unsigned)j * block_numbers() >= p.end)
                break;
            widen8(TYPE, raw[j], f);
            top = fmaxf(top, largest8(f));
        }
    }
    if (threadIdx.x < singles_n(l, p))
        top = fmaxf(top, load1(x, p.base + single_at(p, threadIdx.x)));
    return block_max(top, shared);
}

/* Exponentials are powers of two of numbers times log2(e), below such a product: `top`, where
 * it was rounded once, as every number is that is compared with it. */
#define LOG2_E 1.44269504f

/* A sum of them below the largest so far; -infinity: there was none. */
typedef struct ExpSum {
    float top, sum;
} ExpSum;

static __device__ __forceinline__ void raise(ExpSum *s, float largest)
{
    float top = largest * LOG2_E;
    if (top > s->top) {
        s->sum *= quick_exp2(s->top - top);
        s->top = top;
    }
}

static __device__ __forceinline__ float above_nothing(float top)
{
    return top == -INFINITY ? 0 : top;
}

static __device__ __forceinline__ void add_exp8(ExpSum *s, const float *f)
{
    raise(s, largest8(f));
    float below = above_nothing(s->top), sum = 0;
#pragma unroll
    for (int k = 0; k < EIGHT; k++)
        sum += quick_exp2(f[k] * LOG2_E - below);
    s->sum += sum;
}

/* Of a row, in one pass, which may keep it. */
template <NumType TYPE, bool KEPT>
static __device__ __forceinline__ ExpSum row_sum(const Logits &l, const Vec &x, RowParts p,
                                                 uint4 *kept, float *shared)
{
    ExpSum mine = { -INFINITY, 0 };
    for (unsigned first = p.begin + threadIdx.x * EIGHT; first < p.end;
         first += block_numbers() * IN_FLIGHT) {
        Raw8 raw[IN_FLIGHT];
        load_eights(x, p, first, raw);
#pragma unroll
        for (int j = 0; j < IN_FLIGHT; j++) {
            unsigned c = first + (unsigned)j * block_numbers();
            float f[EIGHT];
            if (c >= p.end)
                break;
            if (KEPT)
                keep8<TYPE>(kept, p, c, raw[j]);
            widen8(TYPE, raw[j], f);
            add_exp8(&mine, f);
        }
    }
    if (threadIdx.x < singles_n(l, p)) {
        float f = load1(x, p.base + single_at(p, threadIdx.x));
        raise(&mine, f);
        mine.sum += quick_exp2(f * LOG2_E - above_nothing(mine.top));
    }
    ExpSum all = { block_max(mine.top, shared), 0 };
    mine.sum *= quick_exp2(mine.top - above_nothing(all.top));
    all.sum = block_sum(mine.sum, shared);
    return all;
}

static __device__ __forceinline__ bool holds(const Logits &l, int64_t target)
{
    return target >= l.first && (u64)(target - l.first) < l.n;
}

/* How far logit x is above `top`. */
static __device__ __forceinline__ double above(float x, float top)
{
    return (double)x - (double)top / (double)LOG2_E;
}

/* What the gradients of one row are made of; `hit`: the column of its target. */
typedef struct RowBack {
    float top, by, one;
    unsigned hit;
} RowBack;

static __device__ __forceinline__ RowBack row_back_of(const Logits &l, int64_t target,
                                                      ExpSum all)
{
    RowBack s = { all.top, target < 0 ? 0 : l.by / all.sum, l.by, UINT32_MAX };
    if (holds(l, target))
        s.hit = (unsigned)(target - l.first);
    return s;
}

/* Eight gradients of the logits from column c on.  Without a target logits count for nothing,
 * even those that are no numbers. */
static __device__ __forceinline__ void gradients8(const RowBack &s, unsigned c, float *f)
{
#pragma unroll
    for (int k = 0; k < EIGHT; k++)
        f[k] = quick_exp2(f[k] * LOG2_E - s.top) * s.by;
    if (s.by == 0)
#pragma unroll
        for (int k = 0; k < EIGHT; k++)
            f[k] = 0;
    if (s.hit - c < EIGHT)
#pragma unroll
        for (int k = 0; k < EIGHT; k++)
            f[k] -= c + k == s.hit ? s.one : 0;
}

/* Those outside the eights, and of the padding. */
static __device__ __forceinline__ void row_ends_back(const Logits &l, const Vec &x, RowParts p,
                                                     const RowBack &s)
{
    if (threadIdx.x < singles_n(l, p)) {
        unsigned c = single_at(p, threadIdx.x);
        float f = quick_exp2(load1(x, p.base + c) * LOG2_E - s.top) * s.by;
        store1(x, p.base + c, (s.by == 0 ? 0 : f) - (c == s.hit ? s.one : 0));
    }
    for (u64 c = l.n + threadIdx.x; c < l.columns; c += blockDim.x)
        store1(x, p.base + c, 0);
}

/* The gradient in place of the logits of one row. */
template <NumType TYPE>
static __device__ __forceinline__ void row_back(const Logits &l, const Vec &x, RowParts p,
                                                const RowBack &s)
{
    for (unsigned first = p.begin + threadIdx.x * EIGHT; first < p.end;
         first += block_numbers() * IN_FLIGHT) {
        Raw8 raw[IN_FLIGHT];
        load_eights(x, p, first, raw);
#pragma unroll
        for (int j = 0; j < IN_FLIGHT; j++) {
            unsigned c = first + (unsigned)j * block_numbers();
            float f[EIGHT];
            if (c >= p.end)
                break;
            widen8(TYPE, raw[j], f);
            gradients8(s, c, f);
            narrow8(x, p.base + c, f);
        }
    }
    row_ends_back(l, x, p, s);
}

/* The same of a row that was kept. */
template <NumType TYPE>
static __device__ __forceinline__ void kept_row_back(const Logits &l, const Vec &x, RowParts p,
                                                     const uint4 *kept, const RowBack &s)
{
#pragma unroll 2
    for (unsigned c = p.begin + threadIdx.x * EIGHT; c < p.end; c += block_numbers()) {
        float f[EIGHT];
        widen8(TYPE, kept8<TYPE>(kept, p, c), f);
        gradients8(s, c, f);
        narrow8(x, p.base + c, f);
    }
    row_ends_back(l, x, p, s);
}

/* A row's term of the loss, and gradients; the logit of the target is read before any thread
 * overwrites it, barriers of row_sum lie between. */
template <NumType TYPE, bool KEPT>
static __device__ __forceinline__ void row_loss(const Logits &l, Vec x, const int64_t *targets,
                                                uint4 *kept, double *terms)
{
    __shared__ float shared[WARP];
    u64 r = blockIdx.x;
    x.type = TYPE;
    RowParts p = parts_of(l, r);
    int64_t target = targets[r];
    bool counts = holds(l, target);
    float at_target = counts ? load1(x, p.base + (u64)(target - l.first)) : 0;
    ExpSum all = row_sum<TYPE, KEPT>(l, x, p, kept, shared);
    RowBack s = row_back_of(l, target, all);
    if (KEPT)
        kept_row_back<TYPE>(l, x, p, kept, s);
    else
        row_back<TYPE>(l, x, p, s);
    if (threadIdx.x == 0)
        terms[r] = counts ? log((double)all.sum) - above(at_target, all.top) : 0;
}

template <NumType TYPE>
static __global__ void cross_entropy_kernel(Logits l, Vec x, const int64_t *targets,
                                            double *terms)
{
    row_loss<TYPE, false>(l, x, targets, NULL, terms);
}

template <NumType TYPE>
static __global__ void __launch_bounds__(ROW_THREADS_MAX)
    cross_entropy_kept_kernel(Logits l, Vec x, const int64_t *targets, double *terms)
{
    DYNAMIC_SHARED(memory);
    row_loss<TYPE, true>(l, x, targets, (uint4 *)memory, terms);
}

static bool can_keep(NumType type, size_t bytes)
{
    return type == NUM_BF16  ? CAN_SHARE(cross_entropy_kept_kernel<NUM_BF16>, bytes)
           : type == NUM_F16 ? CAN_SHARE(cross_entropy_kept_kernel<NUM_F16>, bytes)
                             : CAN_SHARE(cross_entropy_kept_kernel<NUM_F32>, bytes);
}

/* The fewer blocks have room, the more threads each needs to keep loads in flight; all threads
 * have loads in the last round too. */
static unsigned kept_threads(const Logits &l, NumType type, size_t bytes)
{
    u64 eights = blocks_for(l.n, EIGHT), most = THREADS;
    if (bytes > KEPT_OF_TWO)
        most = ROW_THREADS_MAX;
    else if (bytes > KEPT_OF_THREE)
        most = type == NUM_F32 ? ROW_THREADS : ROW_THREADS_OF_TWO;
    u64 rounds = blocks_for(eights, most * IN_FLIGHT);
    return (unsigned)(blocks_for(blocks_for(eights, rounds * IN_FLIGHT), WARP) * WARP);
}

void cuda_cross_entropy(Logits l, Vec x, const int64_t *targets, LossSum loss, double *scratch,
                        void *stream)
{
    size_t bytes = l.n / EIGHT * EIGHT * (x.type == NUM_F32 ? 4 : 2);
    if (can_keep(x.type, bytes))
        LAUNCH_BY_TYPE(cross_entropy_kept_kernel, (unsigned)l.rows,
                       kept_threads(l, x.type, bytes), bytes, stream, l, x, targets, scratch);
    else
        LAUNCH_BY_TYPE(cross_entropy_kernel, (unsigned)l.rows, row_threads(l), 0, stream, l, x,
                       targets, scratch);
    LAUNCH(loss_kernel, 1, ROW_THREADS_MAX, 0, stream, scratch, l.rows, loss);
}

template <NumType TYPE> static __global__ void maximum_kernel(Logits l, Vec x, Vec maximum)
{
    __shared__ float shared[WARP];
    u64 r = blockIdx.x;
    x.type = TYPE;
    float top = row_maximum<TYPE>(l, x, parts_of(l, r), shared);
    if (threadIdx.x == 0)
        store1(maximum, r, top);
}

void cuda_logits_maximum(Logits l, Vec x, Vec maximum, void *stream)
{
    LAUNCH_BY_TYPE(maximum_kernel, (unsigned)l.rows, row_threads(l), 0, stream, l, x, maximum);
}

template <NumType TYPE>
static __global__ void logits_sums_kernel(Logits l, Vec x, const int64_t *targets, Vec maximum,
                                          Vec sums)
{
    __shared__ float shared[WARP];
    u64 r = blockIdx.x;
    x.type = TYPE;
    RowParts p = parts_of(l, r);
    ExpSum own = row_sum<TYPE, false>(l, x, p, NULL, shared);
    float top = load1(maximum, r) * LOG2_E;
    if (threadIdx.x > 0)
        return;
    int64_t target = targets[r];
    store1(sums, 2 * r, own.sum * quick_exp2(own.top - above_nothing(top)));
    store1(sums, 2 * r + 1,
           holds(l, target) ? (float)above(load1(x, p.base + (u64)(target - l.first)), top)
                            : 0);
}

void cuda_logits_sums(Logits l, Vec x, const int64_t *targets, Vec maximum, Vec sums,
                      void *stream)
{
    LAUNCH_BY_TYPE(logits_sums_kernel, (unsigned)l.rows, row_threads(l), 0, stream, l, x,
                   targets, maximum, sums);
}

template <NumType TYPE>
static __global__ void logits_back_kernel(Logits l, Vec x, const int64_t *targets, Vec maximum,
                                          Vec sums, double *terms)
{
    u64 r = blockIdx.x;
    float sum = load1(sums, 2 * r);
    int64_t target = targets[r];
    if (threadIdx.x == 0)
        terms[r] = holds(l, target) ? log((double)sum) - (double)load1(sums, 2 * r + 1) : 0;
    x.type = TYPE;
    ExpSum all = { load1(maximum, r) * LOG2_E, sum };
    row_back<TYPE>(l, x, parts_of(l, r), row_back_of(l, target, all));
}

void cuda_logits_back(Logits l, Vec x, const int64_t *targets, Vec maximum, Vec sums,
                      LossSum loss, double *scratch, void *stream)
{
    LAUNCH_BY_TYPE(logits_back_kernel, (unsigned)l.rows, row_threads(l), 0, stream, l, x,
                   targets, maximum, sums, scratch);
    LAUNCH(loss_kernel, 1, ROW_THREADS_MAX, 0, stream, scratch, l.rows, loss);
}

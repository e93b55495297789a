/*
 * cuda_loss.cu - both ends of the network: rows of tables, and the losses.
 *
 * Cross entropy is one block a row and two passes: the largest logit and the sum of
 * exponentials in one, the gradient in place of the logits in the other.  Rows of a vocabulary
 * such as 50,257 begin anywhere, so a row is some single numbers, eights, and some more.
 *
 * The gradient of a table: rows of dy that belong to one row of it are summed in their order,
 * by the block of the first of them, in f32, and rounded once.  How many there are and which
 * is first is found with integer atomics, whose result does not depend on their order.
 */
#include "exec/cuda_device.cuh"

enum { THREADS = 256, ROW_THREADS = 512 };

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

/* By place: row p of the table has rows r of dy that are seq_len apart. */
static __global__ void embed_back_places_kernel(Table t, Vec dy, Vec dtable, bool adds)
{
    u64 row = blockIdx.x;
    for (u64 c = threadIdx.x; c < t.columns; c += blockDim.x) {
        float sum = adds ? load1(dtable, row * t.columns + c) : 0;
        bool mine = row >= t.position_first && row < t.position_first + t.seq_len;
        u64 place = row - t.position_first + t.seq_len - t.row_first % t.seq_len;
        u64 first = mine ? place % t.seq_len : 0;
        for (u64 r = t.same_row ? 0 : first; r < t.rows && (t.same_row ? row == 0 : mine);
             r += t.same_row ? 1 : t.seq_len)
            sum += load1(dy, r * t.columns + c);
        store1(dtable, row * t.columns + c, sum);
    }
}

/* scratch: of each row of the table its first row of dy, and how many there are; then the
 * row of the table of each row of dy. */
static __global__ void embed_clear_kernel(Table t, int32_t *scratch)
{
    u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < t.table_rows) {
        scratch[i] = INT32_MAX;
        scratch[t.table_rows + i] = 0;
    }
}

static __global__ void embed_find_kernel(Table t, const int64_t *tokens, int32_t *scratch)
{
    u64 r = (u64)blockIdx.x * blockDim.x + threadIdx.x, row;
    if (r >= t.rows)
        return;
    bool here = row_of(t, tokens, r, &row);
    scratch[2 * t.table_rows + r] = here ? (int32_t)row : -1;
    if (!here)
        return;
    atomicMin((int *)&scratch[row], (int)r);
    atomicAdd((int *)&scratch[t.table_rows + row], 1);
}

/* The block of row r of dy, the first of its row of the table, sums all of that row.  Places
 * of the others are looked for THREADS at a time. */
static __global__ void embed_back_kernel(Table t, Vec dy, Vec dtable, bool adds,
                                         const int32_t *scratch)
{
    __shared__ int
        found[THREADS / WARP]; /* a bit a row: few are set, words of none cost little */
    DYNAMIC_SHARED(memory);
    float *sum = (float *)memory;
    const int32_t *row_of_dy = scratch + 2 * t.table_rows;
    u64 r = blockIdx.x;
    int32_t row = row_of_dy[r];
    if (row < 0 || scratch[row] != (int32_t)r)
        return;
    int left = scratch[t.table_rows + row];
    u64 base = (u64)row * t.columns;
    for (u64 c = threadIdx.x; c < t.columns; c += blockDim.x)
        sum[c] = adds ? load1(dtable, base + c) : 0;
    for (u64 first = r; left > 0 && first < t.rows; first += THREADS) {
        __syncthreads();
        if (threadIdx.x < THREADS / WARP)
            found[threadIdx.x] = 0;
        __syncthreads();
        u64 i = first + threadIdx.x;
        if (i < t.rows && row_of_dy[i] == row)
            atomicAdd(&found[threadIdx.x / WARP], (int)(1u << threadIdx.x % WARP));
        __syncthreads();
        for (int w = 0; w < THREADS / WARP; w++) {
            u64 at = first + (u64)w * WARP;
            for (unsigned bits = (unsigned)found[w]; bits; bits >>= 1, at++) {
                if (!(bits & 1))
                    continue;
                left--;
                for (u64 c = threadIdx.x; c < t.columns; c += blockDim.x)
                    sum[c] += load1(dy, at * t.columns + c);
            }
        }
    }
    for (u64 c = threadIdx.x; c < t.columns; c += blockDim.x)
        store1(dtable, base + c, sum[c]);
}

static __global__ void embed_zero_kernel(Vec dtable, u64 n)
{
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (u64)gridDim.x * blockDim.x)
        store1(dtable, i, 0);
}

uint64_t cuda_embed_scratch(Table t)
{
    return t.by_place ? 0 : 2 * t.table_rows + t.rows;
}

void cuda_embed_back(Table t, Vec dy, const int64_t *tokens, Vec dtable, bool adds,
                     int32_t *scratch, void *stream)
{
    if (t.by_place) {
        LAUNCH(embed_back_places_kernel, (unsigned)t.table_rows, THREADS, 0, stream, t, dy,
               dtable, adds);
        return;
    }
    u64 n = t.table_rows * t.columns;
    if (!adds)
        LAUNCH(embed_zero_kernel, (unsigned)least(blocks_for(n, THREADS), 4096), THREADS, 0,
               stream, dtable, n);
    LAUNCH(embed_clear_kernel, (unsigned)blocks_for(t.table_rows, THREADS), THREADS, 0, stream,
           t, scratch);
    LAUNCH(embed_find_kernel, (unsigned)blocks_for(t.rows, THREADS), THREADS, 0, stream, t,
           tokens, scratch);
    size_t bytes = t.columns * sizeof(float);
    ALLOW_SHARED(embed_back_kernel, bytes);
    LAUNCH(embed_back_kernel, (unsigned)t.rows, THREADS, bytes, stream, t, dy, dtable, true,
           scratch);
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
    LAUNCH(loss_kernel, 1, THREADS, 0, stream, scratch, blocks, loss);
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

/* [begin, end) of a row: eights that are aligned; single numbers before and behind. */
typedef struct RowParts {
    u64 base, begin, end;
} RowParts;

static __device__ __forceinline__ RowParts parts_of(const Logits &l, u64 r)
{
    u64 base = r * l.columns, begin = (EIGHT - base % EIGHT) % EIGHT;
    RowParts p = { base, begin < l.n ? begin : l.n, 0 };
    p.end = p.begin + (l.n - p.begin) / EIGHT * EIGHT;
    return p;
}

/* Numbers of a row outside the eights: the i-th of them. */
static __device__ __forceinline__ u64 single_at(const RowParts &p, u64 i)
{
    return i < p.begin ? i : p.end + (i - p.begin);
}

static __device__ __forceinline__ u64 singles_n(const Logits &l, const RowParts &p)
{
    return l.n - (p.end - p.begin);
}

/* Adds x to a sum of exponentials below `top`, or raises top. */
static __device__ __forceinline__ void add_exp(float x, float *top, float *sum)
{
    if (x > *top) {
        *sum = *sum * expf(*top - x) + 1;
        *top = x;
    } else {
        *sum += expf(x - *top);
    }
}

/* The largest logit; of the eights loaded at once. */
static __device__ __forceinline__ float row_maximum(const Logits &l, const Vec &x, RowParts p,
                                                    float *shared)
{
    float top = -INFINITY;
    for (u64 c = p.begin + (u64)threadIdx.x * EIGHT; c < p.end; c += blockDim.x * EIGHT) {
        float f[EIGHT];
        load8(x, p.base + c, EIGHT, true, f);
        for (int k = 0; k < EIGHT; k++)
            top = fmaxf(top, f[k]);
    }
    if (threadIdx.x < singles_n(l, p))
        top = fmaxf(top, load1(x, p.base + single_at(p, threadIdx.x)));
    return block_max(top, shared);
}

/* Largest logit and sum of exponentials in one pass. */
static __device__ __forceinline__ float row_sum(const Logits &l, const Vec &x, RowParts p,
                                                float *top, float *shared)
{
    float mine = -INFINITY, sum = 0;
    for (u64 c = p.begin + (u64)threadIdx.x * EIGHT; c < p.end; c += blockDim.x * EIGHT) {
        float f[EIGHT], largest = mine;
        load8(x, p.base + c, EIGHT, true, f);
        for (int k = 0; k < EIGHT; k++)
            largest = fmaxf(largest, f[k]);
        if (largest > mine)
            sum *= mine == -INFINITY ? 0 : expf(mine - largest);
        mine = largest;
        for (int k = 0; k < EIGHT; k++)
            sum += mine == -INFINITY ? 0 : expf(f[k] - mine);
    }
    if (threadIdx.x < singles_n(l, p))
        add_exp(load1(x, p.base + single_at(p, threadIdx.x)), &mine, &sum);
    *top = block_max(mine, shared);
    return block_sum(mine == -INFINITY ? 0 : sum * expf(mine - *top), shared);
}

static __device__ __forceinline__ bool holds(const Logits &l, int64_t target)
{
    return target >= l.first && (u64)(target - l.first) < l.n;
}

/* The gradient in place of the logits of one row; logit: the target's. */
static __device__ __forceinline__ void row_back(const Logits &l, const Vec &x, u64 r,
                                                RowParts p, int64_t target, float top,
                                                float sum)
{
    float by = target < 0 ? 0 : l.by / sum;
    u64 hit = holds(l, target) ? (u64)(target - l.first) : l.columns;
    for (u64 c = p.begin + (u64)threadIdx.x * EIGHT; c < p.end; c += blockDim.x * EIGHT) {
        float f[EIGHT];
        load8(x, p.base + c, EIGHT, true, f);
        for (int k = 0; k < EIGHT; k++) {
            f[k] = by == 0 ? 0 : expf(f[k] - top) * by;
            f[k] -= c + k == hit ? l.by : 0;
        }
        store8(x, p.base + c, EIGHT, true, f);
    }
    if (threadIdx.x < singles_n(l, p)) {
        u64 c = single_at(p, threadIdx.x);
        float f = by == 0 ? 0 : expf(load1(x, p.base + c) - top) * by;
        store1(x, p.base + c, f - (c == hit ? l.by : 0));
    }
    for (u64 c = l.n + threadIdx.x; c < l.columns; c += blockDim.x)
        store1(x, r * l.columns + c, 0);
}

static __global__ void cross_entropy_kernel(Logits l, Vec x, const int64_t *targets,
                                            double *terms)
{
    __shared__ float shared[WARP];
    u64 r = blockIdx.x;
    RowParts p = parts_of(l, r);
    float top, sum = row_sum(l, x, p, &top, shared);
    int64_t target = targets[r];
    if (threadIdx.x == 0)
        terms[r] = holds(l, target)
                       ? log((double)sum) -
                             ((double)load1(x, p.base + (u64)(target - l.first)) - (double)top)
                       : 0;
    __syncthreads(); /* that logit is read before it is overwritten */
    row_back(l, x, r, p, target, top, sum);
}

void cuda_cross_entropy(Logits l, Vec x, const int64_t *targets, LossSum loss, double *scratch,
                        void *stream)
{
    LAUNCH(cross_entropy_kernel, (unsigned)l.rows, row_threads(l), 0, stream, l, x, targets,
           scratch);
    LAUNCH(loss_kernel, 1, THREADS, 0, stream, scratch, l.rows, loss);
}

static __global__ void maximum_kernel(Logits l, Vec x, Vec maximum)
{
    __shared__ float shared[WARP];
    u64 r = blockIdx.x;
    float top = row_maximum(l, x, parts_of(l, r), shared);
    if (threadIdx.x == 0)
        store1(maximum, r, top);
}

void cuda_logits_maximum(Logits l, Vec x, Vec maximum, void *stream)
{
    LAUNCH(maximum_kernel, (unsigned)l.rows, row_threads(l), 0, stream, l, x, maximum);
}

static __global__ void logits_sums_kernel(Logits l, Vec x, const int64_t *targets, Vec maximum,
                                          Vec sums)
{
    __shared__ float shared[WARP];
    u64 r = blockIdx.x;
    RowParts p = parts_of(l, r);
    float own, sum = row_sum(l, x, p, &own, shared), top = load1(maximum, r);
    if (threadIdx.x > 0)
        return;
    int64_t target = targets[r];
    store1(sums, 2 * r, own == -INFINITY ? 0 : sum * expf(own - top));
    store1(sums, 2 * r + 1,
           holds(l, target) ? load1(x, p.base + (u64)(target - l.first)) - top : 0);
}

void cuda_logits_sums(Logits l, Vec x, const int64_t *targets, Vec maximum, Vec sums,
                      void *stream)
{
    LAUNCH(logits_sums_kernel, (unsigned)l.rows, row_threads(l), 0, stream, l, x, targets,
           maximum, sums);
}

static __global__ void logits_back_kernel(Logits l, Vec x, const int64_t *targets, Vec maximum,
                                          Vec sums, double *terms)
{
    u64 r = blockIdx.x;
    float sum = load1(sums, 2 * r);
    int64_t target = targets[r];
    if (threadIdx.x == 0)
        terms[r] = holds(l, target) ? log((double)sum) - (double)load1(sums, 2 * r + 1) : 0;
    row_back(l, x, r, parts_of(l, r), target, load1(maximum, r), sum);
}

void cuda_logits_back(Logits l, Vec x, const int64_t *targets, Vec maximum, Vec sums,
                      LossSum loss, double *scratch, void *stream)
{
    LAUNCH(logits_back_kernel, (unsigned)l.rows, row_threads(l), 0, stream, l, x, targets,
           maximum, sums, scratch);
    LAUNCH(loss_kernel, 1, THREADS, 0, stream, scratch, l.rows, loss);
}

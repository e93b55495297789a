/*
 * cuda_update.cu - many tensors in one launch: fills, copies, sums, norm, clipping, optimizers.
 *
 * A slice is so many blocks of SLICE_BLOCK numbers; a block finds its slice by blocks_before,
 * in which every warp looks at 32 places together.  Rules are those of exec/kernels_update.c,
 * operation by operation in f32.
 */
#include "exec/cuda_device.cuh"

enum { THREADS = 256, PER_THREAD = 4, SLICE_BLOCK = THREADS * PER_THREAD * EIGHT };
enum { END_THREADS = 1024 }; /* of the one block that adds up what blocks have summed */

uint32_t cuda_slices_count(Slice *slices, uint32_t n)
{
    u64 blocks = 0;
    for (uint32_t i = 0; i < n; i++) {
        slices[i].blocks_before = blocks;
        blocks += (slices[i].n + SLICE_BLOCK - 1) / SLICE_BLOCK;
    }
    return (uint32_t)blocks;
}

/* The slice of this block, and where in it the block begins.  It is in [low, low + n). */
static __device__ __forceinline__ Slice slice_of_block(const Slices &p, u64 *first)
{
    uint32_t low = 0, n = p.n;
    while (n > 1) {
        uint32_t apart = (n + WARP - 1) / WARP, at = threadIdx.x % WARP * apart;
        bool begun = at < n && p.at[low + at].blocks_before <= blockIdx.x;
        uint32_t last = (uint32_t)__popc(__ballot_sync(ALL_LANES, begun)) - 1;
        low += last * apart;
        n = n - last * apart < apart ? n - last * apart : apart;
    }
    Slice slice = p.at[low];
    *first = (blockIdx.x - slice.blocks_before) * SLICE_BLOCK;
    return slice;
}

static __device__ __forceinline__ bool wide_at(const void *at)
{
    return ((uintptr_t)at & 15) == 0;
}

/* Eights of this thread: `at`, how many numbers, and the next one. */
#define EACH_EIGHT(i, first, n) \
    for (u64 i = (first) + (u64)threadIdx.x * EIGHT, i##_end = (first) + SLICE_BLOCK; \
         i < i##_end && i < (n); i += THREADS * EIGHT)

static __global__ void fill_kernel(Slices p)
{
    u64 first;
    Slice x = slice_of_block(p, &first);
    const float zeros[EIGHT] = { 0 };
    bool wide = wide_at(x.a.at);
    EACH_EIGHT(i, first, x.n)
    {
        int n = up_to_8(i, x.n);
        store8(x.a, i, n, wide && n == EIGHT, zeros);
    }
}

static __global__ void copy_kernel(Slices p, bool adds)
{
    u64 first;
    Slice x = slice_of_block(p, &first);
    bool wide = wide_at(x.a.at) && wide_at(x.b.at);
    EACH_EIGHT(i, first, x.n)
    {
        int n = up_to_8(i, x.n);
        bool whole = wide && n == EIGHT;
        float f[EIGHT], old[EIGHT];
        load8(x.a, i, n, whole, f);
        if (adds) {
            load8(x.b, i, n, whole, old);
#pragma unroll
            for (int k = 0; k < EIGHT; k++)
                f[k] = old[k] + f[k];
        }
        store8(x.b, i, n, whole, f);
    }
}

void cuda_fill(Slices p, void *stream)
{
    if (p.blocks)
        LAUNCH(fill_kernel, p.blocks, THREADS, 0, stream, p);
}

void cuda_copy(Slices p, void *stream)
{
    if (p.blocks)
        LAUNCH(copy_kernel, p.blocks, THREADS, 0, stream, p, false);
}

void cuda_sum(Slices p, void *stream)
{
    if (p.blocks)
        LAUNCH(copy_kernel, p.blocks, THREADS, 0, stream, p, true);
}

/* ---- norm and clipping ---- */

static __global__ void squares_kernel(Slices p, double *sums)
{
    __shared__ double shared[WARP];
    u64 first;
    Slice x = slice_of_block(p, &first);
    bool wide = wide_at(x.a.at);
    double sum = 0;
    EACH_EIGHT(i, first, x.n)
    {
        int n = up_to_8(i, x.n);
        float f[EIGHT], part = 0;
        load8(x.a, i, n, wide && n == EIGHT, f);
#pragma unroll
        for (int k = 0; k < EIGHT; k++)
            part += f[k] * f[k];
        sum += (double)part;
    }
    sum = block_sum_f64(sum, shared);
    if (threadIdx.x == 0)
        sums[blockIdx.x] = sum;
}

/* One block: sum += all of sums, in order of their threads. */
static __global__ void squares_end_kernel(const double *sums, u64 n, Vec sum)
{
    __shared__ double shared[WARP];
    double mine = 0;
    for (u64 i = threadIdx.x; i < n; i += blockDim.x)
        mine += sums[i];
    mine = block_sum_f64(mine, shared);
    if (threadIdx.x == 0)
        store1(sum, 0, (float)((double)load1(sum, 0) + mine));
}

void cuda_squares(Slices p, Vec sum, double *scratch, void *stream)
{
    if (p.blocks == 0)
        return;
    LAUNCH(squares_kernel, p.blocks, THREADS, 0, stream, p, scratch);
    LAUNCH(squares_end_kernel, 1, END_THREADS, 0, stream, scratch, (u64)p.blocks, sum);
}

static __global__ void clip_kernel(Slices p, Vec sum, float most)
{
    u64 first;
    float by = 1 / (sqrtf(load1(sum, 0)) + 1e-6f) * most; /* as torch divides */
    if (by >= 1)
        return;
    Slice x = slice_of_block(p, &first);
    bool wide = wide_at(x.a.at);
    EACH_EIGHT(i, first, x.n)
    {
        int n = up_to_8(i, x.n);
        bool whole = wide && n == EIGHT;
        float f[EIGHT];
        load8(x.a, i, n, whole, f);
#pragma unroll
        for (int k = 0; k < EIGHT; k++)
            f[k] *= by;
        store8(x.a, i, n, whole, f);
    }
}

void cuda_clip(Slices p, Vec sum, float most, void *stream)
{
    if (p.blocks)
        LAUNCH(clip_kernel, p.blocks, THREADS, 0, stream, p, sum, most);
}

/* ---- optimizers ---- */

static __device__ __forceinline__ void update1(Rule rule, const Rates &r, float g, float *m,
                                               float *v, float *p)
{
    float x, d;
    switch (rule) {
    case RULE_SGD:
        *p += r.lr * (g + r.decay * *p);
        return;
    case RULE_MOMENTUM:
        *m = r.momentum * *m + (g + r.decay * *p);
        *p += r.lr * *m;
        return;
    default:
        x = *p * r.keep;
        d = g + r.decay * x;
        *m += r.moment1 * (d - *m);
        *v = *v * r.beta2 + r.moment2 * d * d;
        *p = x + r.step * *m / (sqrtf(*v) / r.root + r.eps);
    }
}

/* Eight numbers of each array of a slice. */
typedef struct Eights {
    float g[EIGHT], m[EIGHT], v[EIGHT], p[EIGHT];
} Eights;

static __device__ __forceinline__ Vec f32_of(float *at)
{
    return Vec{ at, NUM_F32 };
}

/* The parameter as it is updated. */
static __device__ __forceinline__ Vec exact_of(const Slice &x)
{
    Vec p = x.b;
    p.at = x.master ? x.master : p.at;
    p.type = x.master ? NUM_F32 : p.type;
    return p;
}

/* All are on their way before one is looked at. */
static __device__ __forceinline__ void load_wide(const Slice &x, u64 i, Eights *e)
{
    const Raw8 zeros = { make_uint4(0, 0, 0, 0), make_uint4(0, 0, 0, 0) };
    Vec exact = exact_of(x);
    Raw8 g = ahead8(x.a, i), p = ahead8(exact, i), m = zeros, v = zeros;
    if (x.m)
        m = raw8(f32_of(x.m), i);
    if (x.v)
        v = raw8(f32_of(x.v), i);
    widen8(x.a.type, g, e->g);
    widen8(exact.type, p, e->p);
    widen8(NUM_F32, m, e->m);
    widen8(NUM_F32, v, e->v);
}

static __device__ __forceinline__ void load_few(const Slice &x, u64 i, int n, Eights *e)
{
    load8(x.a, i, n, false, e->g);
    load8(exact_of(x), i, n, false, e->p);
    load8(f32_of(x.m), i, x.m ? n : 0, false, e->m);
    load8(f32_of(x.v), i, x.v ? n : 0, false, e->v);
}

static __device__ __forceinline__ Vec from_there(Vec v, u64 i)
{
    return Vec{ (char *)v.at + i * (v.type == NUM_F32 ? 4 : 2), v.type };
}

/* A slice that begins where this block does, and ends with it. */
static __device__ __forceinline__ Slice slice_here(const Slices &p)
{
    u64 first;
    Slice x = slice_of_block(p, &first);
    x.a = from_there(x.a, first);
    x.b = from_there(x.b, first);
    x.m = x.m ? x.m + first : NULL;
    x.v = x.v ? x.v + first : NULL;
    x.master = x.master ? x.master + first : NULL;
    x.n -= first;
    if (x.n > SLICE_BLOCK)
        x.n = SLICE_BLOCK;
    return x;
}

static __global__ void __launch_bounds__(THREADS, 4)
    update_kernel(Slices p, Rule rule, const Rates *rates)
{
    Slice x = slice_here(p);
    Rates r = *rates;
    unsigned all = (unsigned)x.n;
    bool wide =
        wide_at(x.a.at) && wide_at(x.b.at) && wide_at(x.m) && wide_at(x.v) && wide_at(x.master);
    for (unsigned i = threadIdx.x * EIGHT; i < all; i += THREADS * EIGHT) {
        int n = up_to_8(i, all);
        bool whole = wide && n == EIGHT;
        Eights e;
        if (whole)
            load_wide(x, i, &e);
        else
            load_few(x, i, n, &e);
#pragma unroll
        for (int k = 0; k < EIGHT; k++)
            update1(rule, r, e.g[k], &e.m[k], &e.v[k], &e.p[k]);
        if (x.m)
            store8(f32_of(x.m), i, n, whole, e.m);
        if (x.v)
            store8(f32_of(x.v), i, n, whole, e.v);
        if (x.master)
            store8(f32_of(x.master), i, n, whole, e.p);
        store8(x.b, i, n, whole, e.p);
    }
}

void cuda_update(Slices p, Rule rule, const Rates *rates, void *stream)
{
    if (p.blocks)
        LAUNCH(update_kernel, p.blocks, THREADS, 0, stream, p, rule, rates);
}

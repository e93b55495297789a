/*
 * kern_probe.cu - kernels that make measuring possible: random data, a gate that
 * holds a stream back, the SM clock, and a copy that takes SMs and bandwidth away.
 *
 * Two clocks: clock64 counts cycles of one SM, %globaltimer counts nanoseconds but
 * moves in coarse ticks.  Waiting is bounded by cycles, so that nothing spins for
 * ever where the timer does not move.
 */
#include "kernels.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#define FILL_THREADS 256
#define HOG_THREADS  512
#define HOG_FLIGHT   8 /* 16-byte loads a hog thread has in flight */

static __device__ __forceinline__ uint64_t global_ns(void)
{
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

/* ---- random data ---- */

static __device__ __forceinline__ uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

static __device__ void store_number(void *dst, NumType type, uint64_t i, float v)
{
    switch (type) {
    case NUM_BF16:
        ((__nv_bfloat16 *)dst)[i] = __float2bfloat16_rn(v);
        break;
    case NUM_F16:
        ((__half *)dst)[i] = __float2half_rn(v);
        break;
    case NUM_F32:
        ((float *)dst)[i] = v;
        break;
    case NUM_E4M3:
        ((__nv_fp8_storage_t *)dst)[i] = __nv_cvt_float_to_fp8(v, __NV_SATFINITE, __NV_E4M3);
        break;
    case NUM_I32:
        ((int32_t *)dst)[i] = (int32_t)v;
        break;
    }
}

/* Two standard normal numbers from 64 random bits (Box-Muller). */
static __device__ float2 normal_pair(uint64_t bits)
{
    float u = ((float)(uint32_t)(bits >> 40) + 1.0f) / 16777216.0f; /* (0, 1] */
    float v = (float)(uint32_t)(bits & 0xffffff) / 16777216.0f;
    float radius = sqrtf(-2.0f * __logf(u));
    float s, c;
    __sincosf(6.2831853f * v, &s, &c);
    return make_float2(radius * c, radius * s);
}

static __global__ void fill_kernel(void *dst, NumType type, KernFill fill, uint64_t limit,
                                   uint64_t n, uint64_t seed)
{
    uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t pair = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; 2 * pair < n;
         pair += step) {
        uint64_t bits = mix(seed ^ mix(pair));
        float2 v = normal_pair(bits);
        if (fill == FILL_INDEX) {
            ((int32_t *)dst)[2 * pair] = (int32_t)((bits & 0xffffffff) % limit);
            if (2 * pair + 1 < n)
                ((int32_t *)dst)[2 * pair + 1] = (int32_t)((bits >> 32) % limit);
            continue;
        }
        if (fill == FILL_ABS)
            v = make_float2(fabsf(v.x), fabsf(v.y));
        store_number(dst, type, 2 * pair, v.x);
        if (2 * pair + 1 < n)
            store_number(dst, type, 2 * pair + 1, v.y);
    }
}

extern "C" cudaError_t kern_fill(void *dst, NumType type, KernFill fill, uint64_t limit,
                                 uint64_t n, uint64_t seed, cudaStream_t stream)
{
    uint64_t blocks = (n / 2 + FILL_THREADS) / FILL_THREADS;
    if (blocks > 8192)
        blocks = 8192;
    fill_kernel<<<(unsigned)blocks, FILL_THREADS, 0, stream>>>(dst, type, fill, limit, n, seed);
    return cudaGetLastError();
}

/* ---- waiting, flags, clocks ---- */

static __global__ void spin_kernel(int64_t cycles)
{
    int64_t begin = clock64();
    while (clock64() - begin < cycles) {
    }
}

/* At least us microseconds: cycles are counted as if the clock were 2 GHz. */
extern "C" cudaError_t kern_spin(double us, cudaStream_t stream)
{
    spin_kernel<<<1, 1, 0, stream>>>((int64_t)(us * 2000.0));
    return cudaGetLastError();
}

static __global__ void empty_kernel(void)
{
}

extern "C" cudaError_t kern_empty(cudaStream_t stream)
{
    empty_kernel<<<1, 1, 0, stream>>>();
    return cudaGetLastError();
}

static __global__ void set_flag_kernel(volatile int *flag, int value)
{
    *flag = value;
    __threadfence_system();
}

extern "C" cudaError_t kern_set_flag(volatile int *flag, int value, cudaStream_t stream)
{
    set_flag_kernel<<<1, 1, 0, stream>>>(flag, value);
    return cudaGetLastError();
}

/* The timer's next change, or 0 cycles left. */
static __device__ uint64_t next_tick(int64_t cycles_max)
{
    int64_t begin = clock64();
    uint64_t before = global_ns(), now = before;
    while (now == before && clock64() - begin < cycles_max)
        now = global_ns();
    return now == before ? 0 : now;
}

/* Cycles between two changes of the timer that lie 200,000 cycles (0.1 ms) or more apart. */
static __global__ void clock_probe_kernel(ClockReading *out)
{
    const int64_t tick_max = 4000000;
    uint64_t begin_ns = next_tick(tick_max);
    int64_t begin = clock64();
    while (clock64() - begin < 200000) {
    }
    uint64_t end_ns = next_tick(tick_max);
    int64_t end = clock64();
    bool moved = begin_ns && end_ns;
    out->cycles = moved ? (uint64_t)(end - begin) : 0;
    out->ns = moved ? end_ns - begin_ns : 0;
}

extern "C" cudaError_t kern_clock_probe(ClockReading *out, cudaStream_t stream)
{
    clock_probe_kernel<<<1, 1, 0, stream>>>(out);
    return cudaGetLastError();
}

/* The smallest step of the timer among 16; 0 when it does not move. */
static __global__ void timer_tick_kernel(uint64_t *ns)
{
    uint64_t least = UINT64_MAX, last = next_tick(4000000);
    for (int i = 0; i < 16; i++) {
        uint64_t now = next_tick(4000000);
        if (now && last && now - last < least)
            least = now - last;
        last = now;
    }
    *ns = least == UINT64_MAX ? 0 : least;
}

extern "C" cudaError_t kern_timer_tick(uint64_t *ns, cudaStream_t stream)
{
    timer_tick_kernel<<<1, 1, 0, stream>>>(ns);
    return cudaGetLastError();
}

/* ---- the hog ---- */

static __device__ void hog_chunk(uint4 *dst, const uint4 *src)
{
    const unsigned vecs = (unsigned)(HOG_CHUNK_BYTES / sizeof(uint4));
    for (unsigned i = threadIdx.x; i < vecs; i += HOG_THREADS * HOG_FLIGHT) {
        uint4 v[HOG_FLIGHT];
#pragma unroll
        for (int j = 0; j < HOG_FLIGHT; j++)
            v[j] = src[i + j * HOG_THREADS];
#pragma unroll
        for (int j = 0; j < HOG_FLIGHT; j++)
            dst[i + j * HOG_THREADS] = v[j];
    }
}

/*
 * Copies its region round and round.  The stop flag is loaded before a chunk and
 * looked at after it, so that the load's latency hides behind the copy.
 */
static __global__ void __launch_bounds__(HOG_THREADS, 1) hog_kernel(HogArgs a)
{
    __shared__ int ended;
    const volatile int *stop = a.stop;
    uint64_t begin_ns = global_ns(), done = 0, chunks = a.block_bytes / HOG_CHUNK_BYTES;
    int64_t begin = clock64();
    char *dst = a.dst + blockIdx.x * a.block_bytes;
    const char *src = a.src + blockIdx.x * a.block_bytes;

    do {
        int stopped = threadIdx.x == 0 ? *stop : 0;
        uint64_t at = done % chunks * HOG_CHUNK_BYTES;
        hog_chunk((uint4 *)(dst + at), (const uint4 *)(src + at));
        done++;
        __syncthreads();
        if (threadIdx.x == 0) {
            double due_ns =
                a.block_GBps > 0 ? (double)(2 * done * HOG_CHUNK_BYTES) / a.block_GBps : 0.0;
            bool late = clock64() - begin > (int64_t)a.cycles_max;
            while (!stopped && !late && (double)(global_ns() - begin_ns) < due_ns) {
                stopped = *stop;
                late = clock64() - begin > (int64_t)a.cycles_max;
            }
            ended = stopped || late;
        }
        __syncthreads();
    } while (!ended);

    if (threadIdx.x == 0) {
        a.report[blockIdx.x].bytes = 2 * done * HOG_CHUNK_BYTES;
        a.report[blockIdx.x].ns = global_ns() - begin_ns;
    }
}

extern "C" cudaError_t kern_hog(const HogArgs *args, int blocks, cudaStream_t stream)
{
    cudaError_t rc = cudaFuncSetAttribute(
        hog_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)args->shared_bytes);
    if (rc != cudaSuccess)
        return rc;
    hog_kernel<<<(unsigned)blocks, HOG_THREADS, args->shared_bytes, stream>>>(*args);
    return cudaGetLastError();
}

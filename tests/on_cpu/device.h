/*
 * device.h - CUDA kernels as plain C++: what exec/cuda_*.cu need of the language and the GPU.
 *
 * The kernels are compiled with this file in front of them (-DCUDA_ON_CPU -include).  A launch
 * goes to on_cpu_enqueue; when it runs, blocks run one after another, and the threads of a
 * block as fibers that change places at barriers and at what a warp does together.  So all
 * indexing, all sharing between threads and all rounding is the kernels' own; what is not
 * tested is what only silicon has: speed, and the order of unordered accesses.
 *
 * Stricter than a GPU: a barrier that not all threads reach, a warp instruction without all
 * its lanes and misaligned 16-byte accesses end the program with a sentence; cp.async copies
 * when it is waited for, not before; dynamic shared memory begins as NaN.
 */
#ifndef LOCKSTEP_TESTS_ON_CPU_DEVICE_H
#define LOCKSTEP_TESTS_ON_CPU_DEVICE_H

#include <functional>
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tuple>

#define CUDA_ON_CPU 1
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __shared__      static
#define __launch_bounds__(...)

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
    return uint4{ x, y, z, w };
}
static inline float4 make_float4(float x, float y, float z, float w)
{
    return float4{ x, y, z, w };
}

/* Of the fiber that runs. */
extern dim3 on_cpu_thread, on_cpu_block;
extern dim3 on_cpu_block_dim, on_cpu_grid_dim;
#define threadIdx on_cpu_thread
#define blockIdx  on_cpu_block
#define blockDim  on_cpu_block_dim
#define gridDim   on_cpu_grid_dim

/* ---- launches ---- */

/* Runs `work` now, or when the stream comes to it (tests/on_cpu/runtime.cu). */
void on_cpu_enqueue(void *stream, std::function<void()> work);
/* The first launch of a kernel by this thread; see on_cpu_lazy. */
void on_cpu_load(void (*kernel)());
/* Runs `thread` for every thread of the grid. */
void on_cpu_run(const char *name, dim3 grid, dim3 block, size_t shared_bytes,
                const std::function<void()> &thread);
unsigned char *on_cpu_shared(void);

template <typename... P, typename... A>
static void on_cpu_launch(const char *name, void (*kernel)(P...), dim3 grid, dim3 block,
                          size_t shared_bytes, void *stream, A... arguments)
{
    std::tuple<P...> kept(arguments...);
    on_cpu_load((void (*)())kernel);
    on_cpu_enqueue(stream, [=]() {
        on_cpu_run(name, grid, block, shared_bytes, [&]() { std::apply(kernel, kept); });
    });
}

#define LAUNCH(kernel, grid, block, shared, stream, ...) \
    on_cpu_launch(#kernel, kernel, grid, block, shared, stream, __VA_ARGS__)
#define DYNAMIC_SHARED(name)        unsigned char *name = on_cpu_shared()
#define ALLOW_SHARED(kernel, bytes) ((void)(bytes))
#define CAN_SHARE(kernel, bytes)    ((bytes) <= 227 << 10)

/* ---- numbers ---- */

static inline float __uint_as_float(unsigned bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
extern "C" {
unsigned short on_cpu_bf16(float x);
unsigned short on_cpu_f16(float x);
float on_cpu_float(unsigned short x);
}
static inline unsigned short bits_of_bf16(float x)
{
    return on_cpu_bf16(x);
}
static inline unsigned short bits_of_f16(float x)
{
    return on_cpu_f16(x);
}
static inline float f16_as_float(unsigned short x)
{
    return on_cpu_float(x);
}
static inline unsigned pack_bf16(float low, float high)
{
    return bits_of_bf16(low) | (unsigned)bits_of_bf16(high) << 16;
}
static inline unsigned pack_f16(float low, float high)
{
    return bits_of_f16(low) | (unsigned)bits_of_f16(high) << 16;
}

static inline float quick_exp2(float x)
{
    return exp2f(x);
}
static inline float quick_reciprocal(float x)
{
    return 1 / x;
}

/* ---- what threads do together ---- */

void __syncthreads(void);
/* Every lane of the warp gives 8 words, and sees those of all 32. */
const unsigned (*on_cpu_warp(const unsigned mine[8]))[8];
enum { ON_CPU_WORDS = 8 };

template <typename T> static inline T on_cpu_from_lane(T value, int lane)
{
    unsigned words[ON_CPU_WORDS] = { 0 };
    memcpy(words, &value, sizeof value);
    const unsigned(*all)[ON_CPU_WORDS] = on_cpu_warp(words);
    memcpy(&value, all[lane], sizeof value);
    return value;
}
int on_cpu_lane(void);
template <typename T> static inline T __shfl_xor_sync(unsigned, T value, int by)
{
    return on_cpu_from_lane(value, on_cpu_lane() ^ by);
}
template <typename T> static inline T __shfl_sync(unsigned, T value, int lane)
{
    return on_cpu_from_lane(value, lane);
}
template <typename T> static inline T __shfl_up_sync(unsigned, T value, int by)
{
    int lane = on_cpu_lane();
    return on_cpu_from_lane(value, lane < by ? lane : lane - by);
}
static inline unsigned __ballot_sync(unsigned, bool mine)
{
    unsigned words[ON_CPU_WORDS] = { mine }, bits = 0;
    const unsigned(*all)[ON_CPU_WORDS] = on_cpu_warp(words);
    for (int lane = 0; lane < 32; lane++)
        bits |= all[lane][0] << lane;
    return bits;
}
static inline bool __any_sync(unsigned lanes, bool mine)
{
    return __ballot_sync(lanes, mine) != 0;
}
static inline int __popc(unsigned bits)
{
    return __builtin_popcount(bits);
}
static inline int __ffs(int bits)
{
    return __builtin_ffs(bits);
}
static inline int atomicMin(int *at, int x)
{
    int old = *at;
    *at = x < old ? x : old;
    return old;
}
static inline int atomicMax(int *at, int x)
{
    int old = *at;
    *at = x > old ? x : old;
    return old;
}
static inline int atomicAdd(int *at, int x)
{
    int old = *at;
    *at = old + x;
    return old;
}

/* ---- tensor cores and asynchronous copies (exec/cuda_mma.cuh) ---- */

typedef uintptr_t SharedAt;
static inline SharedAt shared_at(const void *p)
{
    return (SharedAt)p;
}
void copy16_async(SharedAt to, const void *from, bool any);
void copy4_async(SharedAt to, const void *from, bool any);
void copies_commit(void);
void on_cpu_copies_wait(int left);
template <int left> static inline void copies_wait(void)
{
    on_cpu_copies_wait(left);
}
void load_matrices(unsigned *r, SharedAt row);
void load_matrices_turned(unsigned *r, SharedAt row);
static inline uint32_t anew(uint32_t x)
{
    return x;
}
void on_cpu_multiply(float *c, const unsigned *a, const unsigned *b, bool bf16);
template <bool BF16> static inline void multiply(float *c, const unsigned *a, const unsigned *b)
{
    on_cpu_multiply(c, a, b, BF16);
}

#endif

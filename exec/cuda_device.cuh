/*
 * cuda_device.cuh - what the kernels share: numbers by eight, sums over warps and blocks.
 *
 * Eight numbers are one 16-byte access in 16 bits, two in f32.  An array's type is known at
 * run time only: the branch on it is the same for the whole grid.
 */
#ifndef LOCKSTEP_EXEC_CUDA_DEVICE_CUH
#define LOCKSTEP_EXEC_CUDA_DEVICE_CUH

#include "exec/cuda_kernels.h"

#ifndef CUDA_ON_CPU
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

/* Under CUDA_ON_CPU tests/on_cpu/device.h has these. */
#define LAUNCH(kernel, grid, block, shared, stream, ...) \
    kernel<<<(grid), (block), (shared), (cudaStream_t)(stream)>>>(__VA_ARGS__)
#define DYNAMIC_SHARED(name) extern __shared__ __align__(128) unsigned char name[]
#define ALLOW_SHARED(kernel, bytes) \
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)(bytes))
/* Has the device so much of it?  A no leaves no error behind; of a yes several blocks, where
 * they fit, are to have room. */
#define CAN_SHARE(kernel, bytes)                                                                \
    ((bytes) <= INT32_MAX &&                                                                    \
     ((ALLOW_SHARED(kernel, bytes) == cudaSuccess &&                                            \
       cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,             \
                            cudaSharedmemCarveoutMaxShared) == cudaSuccess) ||                  \
      cudaGetLastError() == cudaSuccess))

static __device__ __forceinline__ unsigned short bits_of_bf16(float x)
{
    return __bfloat16_as_ushort(__float2bfloat16_rn(x));
}
static __device__ __forceinline__ unsigned short bits_of_f16(float x)
{
    return __half_as_ushort(__float2half_rn(x));
}
static __device__ __forceinline__ float f16_as_float(unsigned short x)
{
    return __half2float(__ushort_as_half(x));
}
static __device__ __forceinline__ unsigned pack_bf16(float low, float high)
{
    __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *(unsigned *)&pair;
}
static __device__ __forceinline__ unsigned pack_f16(float low, float high)
{
    __half2 pair = __floats2half2_rn(low, high);
    return *(unsigned *)&pair;
}
/* One instruction each, right to about 2^-22; less than the smallest normal number is zero. */
static __device__ __forceinline__ float quick_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
static __device__ __forceinline__ float quick_reciprocal(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
#endif

typedef unsigned long long u64;

enum { WARP = 32, EIGHT = 8 };
#define ALL_LANES 0xffffffffu

/* ---- numbers ---- */

static __device__ __forceinline__ float load1(const Vec &v, u64 i)
{
    if (v.type == NUM_F32)
        return ((const float *)v.at)[i];
    unsigned short x = ((const unsigned short *)v.at)[i];
    return v.type == NUM_BF16 ? __uint_as_float((unsigned)x << 16) : f16_as_float(x);
}

static __device__ __forceinline__ void store1(const Vec &v, u64 i, float x)
{
    if (v.type == NUM_F32)
        ((float *)v.at)[i] = x;
    else
        ((unsigned short *)v.at)[i] = v.type == NUM_BF16 ? bits_of_bf16(x) : bits_of_f16(x);
}

/* x as it would be read again. */
static __device__ __forceinline__ float rounded(NumType type, float x)
{
    if (type == NUM_F32)
        return x;
    return type == NUM_BF16 ? __uint_as_float((unsigned)bits_of_bf16(x) << 16)
                            : f16_as_float(bits_of_f16(x));
}

/* Loaded, and not yet looked at: what follows need not wait for it. */
typedef struct Raw8 {
    uint4 low, high;
} Raw8;

static __device__ __forceinline__ Raw8 raw8(const Vec &v, u64 i)
{
    Raw8 raw;
    if (v.type == NUM_F32) {
        raw.low = ((const uint4 *)((const float *)v.at + i))[0];
        raw.high = ((const uint4 *)((const float *)v.at + i))[1];
    } else {
        raw.low = *(const uint4 *)((const unsigned short *)v.at + i);
        raw.high = raw.low;
    }
    return raw;
}

/* raw8 of a type that is not known: nothing is done with the second half where there is none,
 * so that nothing waits for the first. */
static __device__ __forceinline__ Raw8 ahead8(const Vec &v, u64 i)
{
    const uint4 *at = (const uint4 *)((const char *)v.at + i * (v.type == NUM_F32 ? 4 : 2));
    Raw8 raw = { at[0], make_uint4(0, 0, 0, 0) };
    if (v.type == NUM_F32)
        raw.high = at[1];
    return raw;
}

static __device__ __forceinline__ void widen8(NumType type, const Raw8 &raw, float *f)
{
    const unsigned word[8] = { raw.low.x,  raw.low.y,  raw.low.z,  raw.low.w,
                               raw.high.x, raw.high.y, raw.high.z, raw.high.w };
    if (type == NUM_F32) {
#pragma unroll
        for (int k = 0; k < EIGHT; k++)
            f[k] = __uint_as_float(word[k]);
        return;
    }
#pragma unroll
    for (int k = 0; k < EIGHT; k++) {
        unsigned half = k % 2 ? word[k / 2] >> 16 : word[k / 2] & 0xffff;
        f[k] =
            type == NUM_BF16 ? __uint_as_float(half << 16) : f16_as_float((unsigned short)half);
    }
}

static __device__ __forceinline__ void narrow8(const Vec &v, u64 i, const float *f)
{
    if (v.type == NUM_F32) {
        float4 *to = (float4 *)((float *)v.at + i);
        to[0] = make_float4(f[0], f[1], f[2], f[3]);
        to[1] = make_float4(f[4], f[5], f[6], f[7]);
        return;
    }
    bool bf16 = v.type == NUM_BF16;
    uint4 word = make_uint4(bf16 ? pack_bf16(f[0], f[1]) : pack_f16(f[0], f[1]),
                            bf16 ? pack_bf16(f[2], f[3]) : pack_f16(f[2], f[3]),
                            bf16 ? pack_bf16(f[4], f[5]) : pack_f16(f[4], f[5]),
                            bf16 ? pack_bf16(f[6], f[7]) : pack_f16(f[6], f[7]));
    *(uint4 *)((unsigned short *)v.at + i) = word;
}

/* Numbers [i, i + n), n <= 8; wide: there are eight, and 16-byte accesses can be made. */
static __device__ __forceinline__ void load8(const Vec &v, u64 i, int n, bool wide, float *f)
{
    if (wide) {
        widen8(v.type, raw8(v, i), f);
        return;
    }
#pragma unroll
    for (int k = 0; k < EIGHT; k++)
        f[k] = k < n ? load1(v, i + k) : 0.0f;
}

static __device__ __forceinline__ void store8(const Vec &v, u64 i, int n, bool wide,
                                              const float *f)
{
    if (wide) {
        narrow8(v, i, f);
        return;
    }
#pragma unroll
    for (int k = 0; k < EIGHT; k++)
        if (k < n)
            store1(v, i + k, f[k]);
}

static __device__ __forceinline__ int up_to_8(u64 i, u64 n)
{
    return n - i < EIGHT ? (int)(n - i) : EIGHT;
}

static __device__ __forceinline__ float quick_exp(float x)
{
    return quick_exp2(x * 1.44269504f);
}

/* ---- sums over a warp, and over the threads of a row ---- */

static __device__ __forceinline__ float warp_sum(float v)
{
#pragma unroll
    for (int lane = WARP / 2; lane; lane /= 2)
        v += __shfl_xor_sync(ALL_LANES, v, lane);
    return v;
}

static __device__ __forceinline__ float warp_max(float v)
{
#pragma unroll
    for (int lane = WARP / 2; lane; lane /= 2)
        v = fmaxf(v, __shfl_xor_sync(ALL_LANES, v, lane));
    return v;
}

static __device__ __forceinline__ double warp_sum_f64(double v)
{
#pragma unroll
    for (int lane = WARP / 2; lane; lane /= 2)
        v += __shfl_xor_sync(ALL_LANES, v, lane);
    return v;
}

/* The sum over the block, in every thread, always by the same additions in the same order.
 * Blocks are whole warps, in x; shared: a number for each warp. */
static __device__ __forceinline__ float block_sum(float v, float *shared)
{
    unsigned lane = threadIdx.x % WARP, warps = blockDim.x / WARP;
    v = warp_sum(v);
    __syncthreads(); /* whoever still reads the sum before this one has read it */
    if (lane == 0)
        shared[threadIdx.x / WARP] = v;
    __syncthreads();
    return warp_sum(lane < warps ? shared[lane] : 0.0f);
}

static __device__ __forceinline__ float block_max(float v, float *shared)
{
    unsigned lane = threadIdx.x % WARP, warps = blockDim.x / WARP;
    v = warp_max(v);
    __syncthreads();
    if (lane == 0)
        shared[threadIdx.x / WARP] = v;
    __syncthreads();
    return warp_max(lane < warps ? shared[lane] : -INFINITY);
}

static __device__ __forceinline__ double block_sum_f64(double v, double *shared)
{
    unsigned lane = threadIdx.x % WARP, warps = blockDim.x / WARP;
    v = warp_sum_f64(v);
    __syncthreads();
    if (lane == 0)
        shared[threadIdx.x / WARP] = v;
    __syncthreads();
    return warp_sum_f64(lane < warps ? shared[lane] : 0.0);
}

/* ---- launching ---- */

static inline u64 blocks_for(u64 n, u64 each)
{
    return n == 0 ? 1 : (n + each - 1) / each;
}

static inline u64 least(u64 a, u64 b)
{
    return a < b ? a : b;
}

/* Can arrays be accessed by 16 bytes, where rows have so many numbers?  NULL can. */
static inline bool aligned16(const Vec &v)
{
    return ((uintptr_t)v.at & 15) == 0;
}

#endif

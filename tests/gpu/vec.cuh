/*
 * vec.cuh - eight bf16 numbers as one 16-byte access, and sums over a block.
 */
#ifndef GPU_VEC_CUH
#define GPU_VEC_CUH

#include <cuda_bf16.h>
#include <stdint.h>

#define ALL_LANES 0xffffffffu

static __device__ __forceinline__ void unpack8(float *f, uint4 raw)
{
    const unsigned word[4] = { raw.x, raw.y, raw.z, raw.w };
#pragma unroll
    for (int i = 0; i < 4; i++) {
        f[2 * i] = __uint_as_float(word[i] << 16);
        f[2 * i + 1] = __uint_as_float(word[i] & 0xffff0000u);
    }
}

static __device__ __forceinline__ unsigned pack2(float low, float high)
{
    __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *(unsigned *)&pair;
}

static __device__ __forceinline__ uint4 pack8(const float *f)
{
    return make_uint4(pack2(f[0], f[1]), pack2(f[2], f[3]), pack2(f[4], f[5]),
                      pack2(f[6], f[7]));
}

static __device__ __forceinline__ float warp_sum(float v)
{
#pragma unroll
    for (int lane = 16; lane; lane /= 2)
        v += __shfl_xor_sync(ALL_LANES, v, lane);
    return v;
}

static __device__ __forceinline__ float warp_max(float v)
{
#pragma unroll
    for (int lane = 16; lane; lane /= 2)
        v = fmaxf(v, __shfl_xor_sync(ALL_LANES, v, lane));
    return v;
}

/*
 * The sum over the block, in every thread, by the same additions in the same order.
 * The block is whole warps; shared is 32 floats.
 */
static __device__ __forceinline__ float block_sum(float v, float *shared)
{
    unsigned lane = threadIdx.x & 31, warps = blockDim.x >> 5;
    v = warp_sum(v);
    __syncthreads(); /* whoever still reads the sum before this one has read it */
    if (lane == 0)
        shared[threadIdx.x >> 5] = v;
    __syncthreads();
    return warp_sum(lane < warps ? shared[lane] : 0.0f);
}

static __device__ __forceinline__ float block_max(float v, float *shared)
{
    unsigned lane = threadIdx.x & 31, warps = blockDim.x >> 5;
    v = warp_max(v);
    __syncthreads();
    if (lane == 0)
        shared[threadIdx.x >> 5] = v;
    __syncthreads();
    return warp_max(lane < warps ? shared[lane] : -INFINITY);
}

/* Threads of a block that owns a row of so many 16-byte vectors. */
static inline unsigned row_threads(int64_t vecs)
{
    if (vecs <= 128)
        return (unsigned)((vecs + 31) / 32 * 32);
    return vecs <= 1024 ? 256 : 512;
}

#endif

/* cuda_comm_kernel.cu - copies and sums in device memory for ranks that share it. */
#include "exec/cuda_comm_kernel.h"

#include "exec/cuda_device.cuh"

#ifdef CUDA_ON_CPU
#include <cuda_runtime_api.h>
#define __grid_constant__
#endif

/* ---- numbers, and what they are added in ---- */

typedef struct Half {
    unsigned short bits;
} Half;

typedef struct Brain {
    unsigned short bits;
} Brain;

static __device__ __forceinline__ float widen(float x)
{
    return x;
}
static __device__ __forceinline__ float widen(Half x)
{
    return f16_as_float(x.bits);
}
static __device__ __forceinline__ float widen(Brain x)
{
    return __uint_as_float((unsigned)x.bits << 16);
}
static __device__ __forceinline__ int widen(int x)
{
    return x;
}
static __device__ __forceinline__ long long widen(long long x)
{
    return x;
}

static __device__ __forceinline__ void narrow(float *to, float x)
{
    *to = x;
}
static __device__ __forceinline__ void narrow(Half *to, float x)
{
    to->bits = bits_of_f16(x);
}
static __device__ __forceinline__ void narrow(Brain *to, float x)
{
    to->bits = bits_of_bf16(x);
}
static __device__ __forceinline__ void narrow(int *to, int x)
{
    *to = x;
}
static __device__ __forceinline__ void narrow(long long *to, long long x)
{
    *to = x;
}

/* Integers wrap when they are added, and keep their sign when they are compared. */
static __device__ __forceinline__ float plus(float a, float b)
{
    return a + b;
}
static __device__ __forceinline__ int plus(int a, int b)
{
    return (int)((unsigned)a + (unsigned)b);
}
static __device__ __forceinline__ long long plus(long long a, long long b)
{
    return (long long)((u64)a + (u64)b);
}

/* ---- kernels ---- */

template <typename T>
static __global__ void __launch_bounds__(COMM_THREADS) copy_kernel(T *to, const T *from, u64 n)
{
    u64 step = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        to[i] = from[i];
}

template <typename T>
static __global__ void __launch_bounds__(COMM_THREADS)
    sum_kernel(const __grid_constant__ CommSum s)
{
    u64 step = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < s.elements; i += step) {
        auto sum = widen(((const T *)s.from[0])[i]);
        for (uint32_t k = 1; k < s.from_n; k++) {
            auto x = widen(((const T *)s.from[k])[i]);
            if (s.maximum)
                sum = x > sum ? x : sum;
            else
                sum = plus(sum, x);
        }
        narrow((T *)s.to + i, sum);
    }
}

/* ---- launching ---- */

static unsigned blocks_for(u64 n)
{
    u64 blocks = (n + COMM_THREADS - 1) / COMM_THREADS;
    return blocks < COMM_BLOCKS_MAX ? (unsigned)blocks : (unsigned)COMM_BLOCKS_MAX;
}

template <typename T>
static int launch_copy(void *to, const void *from, u64 n, struct CUstream_st *stream)
{
    cudaGetLastError(); /* what this thread has asked before, and was not ready */
    LAUNCH(copy_kernel<T>, blocks_for(n), COMM_THREADS, 0, stream, (T *)to, (const T *)from, n);
    return (int)cudaGetLastError();
}

extern "C" int comm_copy_launch(void *to, const void *from, uint64_t bytes,
                                struct CUstream_st *stream)
{
    uintptr_t all = (uintptr_t)to | (uintptr_t)from | (uintptr_t)bytes;
    if (bytes == 0)
        return (int)cudaSuccess;
    if (all % 16 == 0)
        return launch_copy<uint4>(to, from, bytes / 16, stream);
    if (all % 4 == 0)
        return launch_copy<unsigned>(to, from, bytes / 4, stream);
    return launch_copy<unsigned char>(to, from, bytes, stream);
}

template <typename T> static int launch_sum(const CommSum *sum, struct CUstream_st *stream)
{
    cudaGetLastError();
    LAUNCH(sum_kernel<T>, blocks_for(sum->elements), COMM_THREADS, 0, stream, *sum);
    return (int)cudaGetLastError();
}

extern "C" int comm_sum_launch(const CommSum *sum, struct CUstream_st *stream)
{
    if (sum->elements == 0)
        return (int)cudaSuccess;
    switch (sum->number) {
    case COMM_F32:
        return launch_sum<float>(sum, stream);
    case COMM_F16:
        return launch_sum<Half>(sum, stream);
    case COMM_BF16:
        return launch_sum<Brain>(sum, stream);
    case COMM_I32:
        return launch_sum<int>(sum, stream);
    case COMM_I64:
        return launch_sum<long long>(sum, stream);
    default:
        return (int)cudaErrorInvalidValue;
    }
}

#ifdef CUDA_ON_CPU
extern "C" int comm_kernels_load(void)
{
    return (int)cudaSuccess;
}
#else
template <typename K> static int load(K *kernel)
{
    struct cudaFuncAttributes a;
    return (int)cudaFuncGetAttributes(&a, kernel);
}

extern "C" int comm_kernels_load(void)
{
    const int results[] = {
        load(copy_kernel<uint4>), load(copy_kernel<unsigned>), load(copy_kernel<unsigned char>),
        load(sum_kernel<float>),  load(sum_kernel<Half>),      load(sum_kernel<Brain>),
        load(sum_kernel<int>),    load(sum_kernel<long long>)
    };
    for (int result : results)
        if (result != (int)cudaSuccess)
            return result;
    return (int)cudaSuccess;
}
#endif

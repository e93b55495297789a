/* cuda_comm_kernel.cu - copies and sums in device memory for ranks that share it. */
#include "exec/cuda_comm_kernel.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

/* ---- numbers, and what they are added in ---- */

template <typename T> struct Number {
    typedef T Sum;
    static __device__ Sum load(T x)
    {
        return x;
    }
    static __device__ T store(Sum x)
    {
        return x;
    }
};

/* Integers wrap when they are added, and keep their sign when they are compared. */
static __device__ float plus(float a, float b)
{
    return a + b;
}
static __device__ int plus(int a, int b)
{
    return (int)((unsigned)a + (unsigned)b);
}
static __device__ long long plus(long long a, long long b)
{
    return (long long)((unsigned long long)a + (unsigned long long)b);
}

template <> struct Number<__half> {
    typedef float Sum;
    static __device__ float load(__half x)
    {
        return __half2float(x);
    }
    static __device__ __half store(float x)
    {
        return __float2half_rn(x);
    }
};

template <> struct Number<__nv_bfloat16> {
    typedef float Sum;
    static __device__ float load(__nv_bfloat16 x)
    {
        return __bfloat162float(x);
    }
    static __device__ __nv_bfloat16 store(float x)
    {
        return __float2bfloat16_rn(x);
    }
};

/* ---- kernels ---- */

template <typename T>
static __global__ void __launch_bounds__(COMM_THREADS)
    copy_kernel(T *to, const T *from, uint64_t n)
{
    uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        to[i] = from[i];
}

template <typename T>
static __global__ void __launch_bounds__(COMM_THREADS)
    sum_kernel(const __grid_constant__ CommSum s)
{
    typedef typename Number<T>::Sum Sum;
    uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < s.elements;
         i += step) {
        Sum sum = Number<T>::load(((const T *)s.from[0])[i]);
        for (uint32_t k = 1; k < s.from_n; k++) {
            Sum x = Number<T>::load(((const T *)s.from[k])[i]);
            if (s.maximum)
                sum = x > sum ? x : sum;
            else
                sum = plus(sum, x);
        }
        ((T *)s.to)[i] = Number<T>::store(sum);
    }
}

/* ---- launching ---- */

static unsigned blocks_for(uint64_t n)
{
    uint64_t blocks = (n + COMM_THREADS - 1) / COMM_THREADS;
    return blocks < COMM_BLOCKS_MAX ? (unsigned)blocks : (unsigned)COMM_BLOCKS_MAX;
}

template <typename T>
static int launch_copy(void *to, const void *from, uint64_t n, cudaStream_t s)
{
    copy_kernel<T><<<blocks_for(n), COMM_THREADS, 0, s>>>((T *)to, (const T *)from, n);
    return (int)cudaGetLastError();
}

extern "C" int comm_copy_launch(void *to, const void *from, uint64_t bytes, cudaStream_t stream)
{
    uintptr_t all = (uintptr_t)to | (uintptr_t)from | (uintptr_t)bytes;
    if (bytes == 0)
        return (int)cudaSuccess;
    if (all % 16 == 0)
        return launch_copy<uint4>(to, from, bytes / 16, stream);
    if (all % 4 == 0)
        return launch_copy<uint32_t>(to, from, bytes / 4, stream);
    return launch_copy<uint8_t>(to, from, bytes, stream);
}

template <typename T> static int launch_sum(const CommSum *sum, cudaStream_t s)
{
    sum_kernel<T><<<blocks_for(sum->elements), COMM_THREADS, 0, s>>>(*sum);
    return (int)cudaGetLastError();
}

extern "C" int comm_sum_launch(const CommSum *sum, cudaStream_t stream)
{
    if (sum->elements == 0)
        return (int)cudaSuccess;
    switch (sum->number) {
    case COMM_F32:
        return launch_sum<float>(sum, stream);
    case COMM_F16:
        return launch_sum<__half>(sum, stream);
    case COMM_BF16:
        return launch_sum<__nv_bfloat16>(sum, stream);
    case COMM_I32:
        return launch_sum<int>(sum, stream);
    case COMM_I64:
        return launch_sum<long long>(sum, stream);
    default:
        return (int)cudaErrorInvalidValue;
    }
}

template <typename K> static int load(K *kernel)
{
    struct cudaFuncAttributes a;
    return (int)cudaFuncGetAttributes(&a, kernel);
}

extern "C" int comm_kernels_load(void)
{
    int results[] = { load(copy_kernel<uint4>),   load(copy_kernel<uint32_t>),
                      load(copy_kernel<uint8_t>), load(sum_kernel<float>),
                      load(sum_kernel<__half>),   load(sum_kernel<__nv_bfloat16>),
                      load(sum_kernel<int>),      load(sum_kernel<long long>) };
    for (int result : results)
        if (result != (int)cudaSuccess)
            return result;
    return (int)cudaSuccess;
}

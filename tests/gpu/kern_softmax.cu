/*
 * kern_softmax.cu - softmax over a row, and cross-entropy over a vocabulary.
 *
 * Softmax keeps the row in shared memory.  A vocabulary's row is too long for that:
 * cross-entropy reads it once, carrying the maximum so far and the sum of
 * exp(x - maximum), which is scaled down whenever the maximum rises.
 */
#include "kernels.h"
#include "vec.cuh"

static __global__ void softmax_fwd_kernel(uint4 *__restrict__ y, const uint4 *__restrict__ x,
                                          int cols)
{
    extern __shared__ uint4 row[];
    __shared__ float shared[32];
    int vecs = cols / 8;
    uint64_t base = (uint64_t)blockIdx.x * (uint64_t)vecs;
    float f[8], top = -INFINITY, sum = 0;

#pragma unroll 4
    for (int i = threadIdx.x; i < vecs; i += blockDim.x) {
        uint4 v = x[base + i];
        row[i] = v;
        unpack8(f, v);
        for (int j = 0; j < 8; j++)
            top = fmaxf(top, f[j]);
    }
    top = block_max(top, shared);
    for (int i = threadIdx.x; i < vecs; i += blockDim.x) {
        unpack8(f, row[i]);
        for (int j = 0; j < 8; j++)
            sum += __expf(f[j] - top);
    }
    float scale = 1.0f / block_sum(sum, shared);
    for (int i = threadIdx.x; i < vecs; i += blockDim.x) {
        unpack8(f, row[i]);
        for (int j = 0; j < 8; j++)
            f[j] = __expf(f[j] - top) * scale;
        y[base + i] = pack8(f);
    }
}

extern "C" cudaError_t kern_softmax_fwd(const KernArgs *k, cudaStream_t stream)
{
    softmax_fwd_kernel<<<(unsigned)k->rows, row_threads(k->cols / 8), (size_t)k->cols * 2,
                         stream>>>((uint4 *)k->slot[1], (const uint4 *)k->slot[0],
                                   (int)k->cols);
    return cudaGetLastError();
}

/* dx = y (dy - sum(y dy)) */
static __global__ void softmax_bwd_kernel(uint4 *__restrict__ dx, const uint4 *__restrict__ y,
                                          const uint4 *__restrict__ dy, int cols)
{
    extern __shared__ uint4 raw[];
    __shared__ float shared[32];
    int vecs = cols / 8;
    uint4 *ys = raw, *dys = raw + vecs;
    uint64_t base = (uint64_t)blockIdx.x * (uint64_t)vecs;
    float f[8], d[8], sum = 0;

#pragma unroll 2
    for (int i = threadIdx.x; i < vecs; i += blockDim.x) {
        uint4 yv = y[base + i], dv = dy[base + i];
        ys[i] = yv;
        dys[i] = dv;
        unpack8(f, yv);
        unpack8(d, dv);
        for (int j = 0; j < 8; j++)
            sum += f[j] * d[j];
    }
    sum = block_sum(sum, shared);
    for (int i = threadIdx.x; i < vecs; i += blockDim.x) {
        unpack8(f, ys[i]);
        unpack8(d, dys[i]);
        for (int j = 0; j < 8; j++)
            f[j] *= d[j] - sum;
        dx[base + i] = pack8(f);
    }
}

extern "C" cudaError_t kern_softmax_bwd(const KernArgs *k, cudaStream_t stream)
{
    softmax_bwd_kernel<<<(unsigned)k->rows, row_threads(k->cols / 8), (size_t)k->cols * 4,
                         stream>>>((uint4 *)k->slot[2], (const uint4 *)k->slot[0],
                                   (const uint4 *)k->slot[1], (int)k->cols);
    return cudaGetLastError();
}

/* loss = lse - logit of the target; lse = log(sum(exp(logits))) */
static __global__ void cross_entropy_fwd_kernel(float *loss, float *lse,
                                                const uint4 *__restrict__ logits,
                                                const int32_t *target, int cols)
{
    __shared__ float shared[32];
    int vecs = cols / 8;
    const uint4 *row = logits + (uint64_t)blockIdx.x * (uint64_t)vecs;
    float f[8], top = -INFINITY, sum = 0;

#pragma unroll 4
    for (int i = threadIdx.x; i < vecs; i += blockDim.x) {
        unpack8(f, row[i]);
        float higher = top;
        for (int j = 0; j < 8; j++)
            higher = fmaxf(higher, f[j]);
        if (higher > top) {
            sum *= __expf(top - higher);
            top = higher;
        }
        for (int j = 0; j < 8; j++)
            sum += __expf(f[j] - top);
    }
    float top_all = block_max(top, shared);
    /* A thread without a vector has -inf and 0: exp(-inf) * 0 = 0. */
    float log_sum = top_all + __logf(block_sum(sum * __expf(top - top_all), shared));
    if (threadIdx.x == 0) {
        const __nv_bfloat16 *x = (const __nv_bfloat16 *)row;
        lse[blockIdx.x] = log_sum;
        loss[blockIdx.x] = log_sum - __bfloat162float(x[target[blockIdx.x]]);
    }
}

extern "C" cudaError_t kern_cross_entropy_fwd(const KernArgs *k, cudaStream_t stream)
{
    cross_entropy_fwd_kernel<<<(unsigned)k->rows, row_threads(k->cols / 8), 0, stream>>>(
        (float *)k->slot[2], (float *)k->slot[3], (const uint4 *)k->slot[0],
        (const int32_t *)k->slot[1], (int)k->cols);
    return cudaGetLastError();
}

/* dlogits = exp(logits - lse) - [this is the target] */
static __global__ void cross_entropy_bwd_kernel(uint4 *__restrict__ dlogits,
                                                const uint4 *__restrict__ logits,
                                                const int32_t *__restrict__ target,
                                                const float *__restrict__ lse, int cols)
{
    int vecs = cols / 8, hit = target[blockIdx.x];
    uint64_t base = (uint64_t)blockIdx.x * (uint64_t)vecs;
    float f[8], log_sum = lse[blockIdx.x];

#pragma unroll 4
    for (int i = threadIdx.x; i < vecs; i += blockDim.x) {
        unpack8(f, logits[base + i]);
        for (int j = 0; j < 8; j++)
            f[j] = __expf(f[j] - log_sum) - (8 * i + j == hit ? 1.0f : 0.0f);
        dlogits[base + i] = pack8(f);
    }
}

extern "C" cudaError_t kern_cross_entropy_bwd(const KernArgs *k, cudaStream_t stream)
{
    cross_entropy_bwd_kernel<<<(unsigned)k->rows, row_threads(k->cols / 8), 0, stream>>>(
        (uint4 *)k->slot[3], (const uint4 *)k->slot[0], (const int32_t *)k->slot[1],
        (const float *)k->slot[2], (int)k->cols);
    return cudaGetLastError();
}

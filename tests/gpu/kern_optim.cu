/*
 * kern_optim.cu - AdamW over a flat buffer, the sum of squares (for clipping), and
 * the gather of embedding rows.
 */
#include "kernels.h"
#include "vec.cuh"

#define THREADS 256

/* Step 10 of an ordinary run: what matters here is that every constant is used. */
#define LR      1e-3f
#define BETA1   0.9f
#define BETA2   0.95f
#define EPS     1e-8f
#define DECAY   0.1f
#define UNBIAS1 0.6513215599f /* 1 - BETA1^10 */
#define UNBIAS2 0.4012630607f /* 1 - BETA2^10 */

/* ---- AdamW ---- */

static __device__ __forceinline__ void adamw_step(float &p, float g, float &m, float &v)
{
    m = BETA1 * m + (1.0f - BETA1) * g;
    v = BETA2 * v + (1.0f - BETA2) * g * g;
    p = p * (1.0f - LR * DECAY) - LR * (m / UNBIAS1) / (sqrtf(v / UNBIAS2) + EPS);
}

static __device__ __forceinline__ void adamw_step4(float4 &p, const float *g, float4 &m,
                                                   float4 &v)
{
    adamw_step(p.x, g[0], m.x, v.x);
    adamw_step(p.y, g[1], m.y, v.y);
    adamw_step(p.z, g[2], m.z, v.z);
    adamw_step(p.w, g[3], m.w, v.w);
}

static __global__ void adamw_f32_kernel(float4 *__restrict__ p, const float4 *__restrict__ g,
                                        float4 *__restrict__ m, float4 *__restrict__ v,
                                        uint64_t vecs)
{
    uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= vecs)
        return;
    float4 pv = p[i], gv = g[i], mv = m[i], vv = v[i];
    adamw_step4(pv, (const float *)&gv, mv, vv);
    p[i] = pv;
    m[i] = mv;
    v[i] = vv;
}

extern "C" cudaError_t kern_adamw_f32(const KernArgs *k, cudaStream_t stream)
{
    uint64_t vecs = (uint64_t)k->rows * (uint64_t)k->cols / 4;
    adamw_f32_kernel<<<(unsigned)((vecs + THREADS - 1) / THREADS), THREADS, 0, stream>>>(
        (float4 *)k->slot[0], (const float4 *)k->slot[1], (float4 *)k->slot[2],
        (float4 *)k->slot[3], vecs);
    return cudaGetLastError();
}

/* Gradients in bf16, state and weights in f32, and a bf16 copy of the weights. */
static __global__ void adamw_mixed_kernel(float4 *__restrict__ p, const uint4 *__restrict__ g,
                                          float4 *__restrict__ m, float4 *__restrict__ v,
                                          uint4 *__restrict__ w, uint64_t vecs)
{
    uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= vecs)
        return;
    float4 pv[2] = { p[2 * i], p[2 * i + 1] };
    float4 mv[2] = { m[2 * i], m[2 * i + 1] };
    float4 vv[2] = { v[2 * i], v[2 * i + 1] };
    float grad[8];
    unpack8(grad, g[i]);
#pragma unroll
    for (int j = 0; j < 2; j++) {
        adamw_step4(pv[j], grad + 4 * j, mv[j], vv[j]);
        p[2 * i + j] = pv[j];
        m[2 * i + j] = mv[j];
        v[2 * i + j] = vv[j];
    }
    w[i] = pack8((const float *)pv);
}

extern "C" cudaError_t kern_adamw_mixed(const KernArgs *k, cudaStream_t stream)
{
    uint64_t vecs = (uint64_t)k->rows * (uint64_t)k->cols / 8;
    adamw_mixed_kernel<<<(unsigned)((vecs + THREADS - 1) / THREADS), THREADS, 0, stream>>>(
        (float4 *)k->slot[0], (const uint4 *)k->slot[1], (float4 *)k->slot[2],
        (float4 *)k->slot[3], (uint4 *)k->slot[4], vecs);
    return cudaGetLastError();
}

/* ---- sum of squares: blocks' sums, then one block adds those ---- */

static __global__ void sum_squares_kernel(float *part, const float4 *__restrict__ x,
                                          uint64_t vecs)
{
    __shared__ float shared[32];
    uint64_t step = (uint64_t)gridDim.x * THREADS;
    float sum = 0;
#pragma unroll 4
    for (uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x; i < vecs; i += step) {
        float4 v = x[i];
        sum += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
    }
    sum = block_sum(sum, shared);
    if (threadIdx.x == 0)
        part[blockIdx.x] = sum;
}

static __global__ void sum_parts_kernel(float *out, const float *part, int parts)
{
    __shared__ float shared[32];
    float sum = 0;
    for (int i = threadIdx.x; i < parts; i += THREADS)
        sum += part[i];
    sum = block_sum(sum, shared);
    if (threadIdx.x == 0)
        *out = sum;
}

extern "C" cudaError_t kern_sum_squares(const KernArgs *k, cudaStream_t stream)
{
    uint64_t vecs = (uint64_t)k->rows * (uint64_t)k->cols / 4;
    uint64_t blocks = (vecs + THREADS - 1) / THREADS;
    if (blocks > 1056) /* 8 on each of 132 SMs */
        blocks = 1056;
    sum_squares_kernel<<<(unsigned)blocks, THREADS, 0, stream>>>(
        (float *)k->scratch, (const float4 *)k->slot[0], vecs);
    cudaError_t rc = cudaGetLastError();
    if (rc != cudaSuccess)
        return rc;
    sum_parts_kernel<<<1, THREADS, 0, stream>>>((float *)k->slot[1], (const float *)k->scratch,
                                                (int)blocks);
    return cudaGetLastError();
}

/* ---- embedding: row i of the output is row index[i] of the table ---- */

static __global__ void embedding_kernel(uint4 *__restrict__ y, const uint4 *__restrict__ table,
                                        const int32_t *__restrict__ index, int vecs)
{
    const uint4 *from = table + (uint64_t)(uint32_t)index[blockIdx.x] * (uint64_t)vecs;
    uint4 *to = y + (uint64_t)blockIdx.x * (uint64_t)vecs;
#pragma unroll 4
    for (int i = threadIdx.x; i < vecs; i += blockDim.x)
        to[i] = from[i];
}

extern "C" cudaError_t kern_embedding(const KernArgs *k, cudaStream_t stream)
{
    embedding_kernel<<<(unsigned)k->rows, row_threads(k->cols / 8), 0, stream>>>(
        (uint4 *)k->slot[2], (const uint4 *)k->slot[0], (const int32_t *)k->slot[1],
        (int)(k->cols / 8));
    return cudaGetLastError();
}

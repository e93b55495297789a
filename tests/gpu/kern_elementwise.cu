/*
 * kern_elementwise.cu - copies, sums, casts and activations over flat bf16 buffers.
 *
 * A thread loads all its vectors before it stores the first: FLIGHT of 16 bytes
 * from every input.  A block covers FLIGHT * THREADS neighbouring vectors.
 */
#include "kernels.h"
#include "vec.cuh"

#define THREADS 256
#define FLIGHT  4

/* GELU as GPT-2 has it: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). */
#define GELU_A 0.7978845608f
#define GELU_B 0.044715f

static __device__ __forceinline__ float tanh_fast(float u)
{
    return 1.0f - __fdividef(2.0f, 1.0f + __expf(2.0f * u));
}

static __device__ __forceinline__ float sigmoid_fast(float x)
{
    return __fdividef(1.0f, 1.0f + __expf(-x));
}

static __device__ __forceinline__ float gelu(float x)
{
    return 0.5f * x * (1.0f + tanh_fast(GELU_A * (x + GELU_B * x * x * x)));
}

static __device__ __forceinline__ float gelu_slope(float x)
{
    float t = tanh_fast(GELU_A * (x + GELU_B * x * x * x));
    return 0.5f * (1.0f + t) +
           0.5f * x * (1.0f - t * t) * GELU_A * (1.0f + 3.0f * GELU_B * x * x);
}

static unsigned blocks_for(uint64_t vecs)
{
    return (unsigned)((vecs + THREADS * FLIGHT - 1) / (THREADS * FLIGHT));
}

/* 8-number vectors in a call's rows x cols. */
static uint64_t vecs_of(const KernArgs *a)
{
    return (uint64_t)a->rows * (uint64_t)a->cols / 8;
}

static __device__ __forceinline__ uint64_t first_vec(void)
{
    return (uint64_t)blockIdx.x * (THREADS * FLIGHT) + threadIdx.x;
}

static __device__ __forceinline__ void load(uint4 *v, const uint4 *src, uint64_t at,
                                            uint64_t vecs)
{
#pragma unroll
    for (int j = 0; j < FLIGHT; j++)
        if (at + j * THREADS < vecs)
            v[j] = src[at + j * THREADS];
        else
            v[j] = make_uint4(0, 0, 0, 0);
}

static __device__ __forceinline__ void store(uint4 *dst, const uint4 *v, uint64_t at,
                                             uint64_t vecs)
{
#pragma unroll
    for (int j = 0; j < FLIGHT; j++)
        if (at + j * THREADS < vecs)
            dst[at + j * THREADS] = v[j];
}

/* ---- copy, add ---- */

static __global__ void copy_kernel(uint4 *__restrict__ y, const uint4 *__restrict__ x,
                                   uint64_t vecs)
{
    uint4 v[FLIGHT];
    load(v, x, first_vec(), vecs);
    store(y, v, first_vec(), vecs);
}

extern "C" cudaError_t kern_copy(const KernArgs *a, cudaStream_t stream)
{
    copy_kernel<<<blocks_for(vecs_of(a)), THREADS, 0, stream>>>(
        (uint4 *)a->slot[1], (const uint4 *)a->slot[0], vecs_of(a));
    return cudaGetLastError();
}

static __global__ void add_kernel(uint4 *__restrict__ y, const uint4 *__restrict__ p,
                                  const uint4 *__restrict__ q, uint64_t vecs)
{
    uint4 v[FLIGHT], w[FLIGHT];
    load(v, p, first_vec(), vecs);
    load(w, q, first_vec(), vecs);
#pragma unroll
    for (int j = 0; j < FLIGHT; j++) {
        float f[8], g[8];
        unpack8(f, v[j]);
        unpack8(g, w[j]);
        for (int i = 0; i < 8; i++)
            f[i] += g[i];
        v[j] = pack8(f);
    }
    store(y, v, first_vec(), vecs);
}

extern "C" cudaError_t kern_add(const KernArgs *a, cudaStream_t stream)
{
    add_kernel<<<blocks_for(vecs_of(a)), THREADS, 0, stream>>>(
        (uint4 *)a->slot[2], (const uint4 *)a->slot[0], (const uint4 *)a->slot[1], vecs_of(a));
    return cudaGetLastError();
}

/* ---- casts: a thread's eight f32 numbers are two neighbouring vectors ---- */

static __global__ void cast_down_kernel(uint4 *__restrict__ y, const float4 *__restrict__ x,
                                        uint64_t vecs)
{
    float4 v[FLIGHT][2];
#pragma unroll
    for (int j = 0; j < FLIGHT; j++) {
        uint64_t at = first_vec() + j * THREADS;
        v[j][0] = at < vecs ? x[2 * at] : make_float4(0, 0, 0, 0);
        v[j][1] = at < vecs ? x[2 * at + 1] : make_float4(0, 0, 0, 0);
    }
    uint4 w[FLIGHT];
#pragma unroll
    for (int j = 0; j < FLIGHT; j++)
        w[j] = pack8((const float *)v[j]);
    store(y, w, first_vec(), vecs);
}

extern "C" cudaError_t kern_cast_down(const KernArgs *a, cudaStream_t stream)
{
    cast_down_kernel<<<blocks_for(vecs_of(a)), THREADS, 0, stream>>>(
        (uint4 *)a->slot[1], (const float4 *)a->slot[0], vecs_of(a));
    return cudaGetLastError();
}

static __global__ void cast_up_kernel(float4 *__restrict__ y, const uint4 *__restrict__ x,
                                      uint64_t vecs)
{
    uint4 v[FLIGHT];
    load(v, x, first_vec(), vecs);
#pragma unroll
    for (int j = 0; j < FLIGHT; j++) {
        uint64_t at = first_vec() + j * THREADS;
        float f[8];
        unpack8(f, v[j]);
        if (at < vecs) {
            y[2 * at] = make_float4(f[0], f[1], f[2], f[3]);
            y[2 * at + 1] = make_float4(f[4], f[5], f[6], f[7]);
        }
    }
}

extern "C" cudaError_t kern_cast_up(const KernArgs *a, cudaStream_t stream)
{
    cast_up_kernel<<<blocks_for(vecs_of(a)), THREADS, 0, stream>>>(
        (float4 *)a->slot[1], (const uint4 *)a->slot[0], vecs_of(a));
    return cudaGetLastError();
}

/* ---- GELU ---- */

static __global__ void gelu_fwd_kernel(uint4 *__restrict__ y, const uint4 *__restrict__ x,
                                       uint64_t vecs)
{
    uint4 v[FLIGHT];
    load(v, x, first_vec(), vecs);
#pragma unroll
    for (int j = 0; j < FLIGHT; j++) {
        float f[8];
        unpack8(f, v[j]);
        for (int i = 0; i < 8; i++)
            f[i] = gelu(f[i]);
        v[j] = pack8(f);
    }
    store(y, v, first_vec(), vecs);
}

extern "C" cudaError_t kern_gelu_fwd(const KernArgs *a, cudaStream_t stream)
{
    gelu_fwd_kernel<<<blocks_for(vecs_of(a)), THREADS, 0, stream>>>(
        (uint4 *)a->slot[1], (const uint4 *)a->slot[0], vecs_of(a));
    return cudaGetLastError();
}

static __global__ void gelu_bwd_kernel(uint4 *__restrict__ dx, const uint4 *__restrict__ x,
                                       const uint4 *__restrict__ dy, uint64_t vecs)
{
    uint4 v[FLIGHT], w[FLIGHT];
    load(v, x, first_vec(), vecs);
    load(w, dy, first_vec(), vecs);
#pragma unroll
    for (int j = 0; j < FLIGHT; j++) {
        float f[8], g[8];
        unpack8(f, v[j]);
        unpack8(g, w[j]);
        for (int i = 0; i < 8; i++)
            f[i] = g[i] * gelu_slope(f[i]);
        v[j] = pack8(f);
    }
    store(dx, v, first_vec(), vecs);
}

extern "C" cudaError_t kern_gelu_bwd(const KernArgs *a, cudaStream_t stream)
{
    gelu_bwd_kernel<<<blocks_for(vecs_of(a)), THREADS, 0, stream>>>(
        (uint4 *)a->slot[2], (const uint4 *)a->slot[0], (const uint4 *)a->slot[1], vecs_of(a));
    return cudaGetLastError();
}

/* ---- silu(gate) * up, the gated feed-forward of Llama ---- */

static __global__ void silu_mul_fwd_kernel(uint4 *__restrict__ y,
                                           const uint4 *__restrict__ gate,
                                           const uint4 *__restrict__ up, uint64_t vecs)
{
    uint4 v[FLIGHT], w[FLIGHT];
    load(v, gate, first_vec(), vecs);
    load(w, up, first_vec(), vecs);
#pragma unroll
    for (int j = 0; j < FLIGHT; j++) {
        float f[8], g[8];
        unpack8(f, v[j]);
        unpack8(g, w[j]);
        for (int i = 0; i < 8; i++)
            f[i] = f[i] * sigmoid_fast(f[i]) * g[i];
        v[j] = pack8(f);
    }
    store(y, v, first_vec(), vecs);
}

extern "C" cudaError_t kern_silu_mul_fwd(const KernArgs *a, cudaStream_t stream)
{
    silu_mul_fwd_kernel<<<blocks_for(vecs_of(a)), THREADS, 0, stream>>>(
        (uint4 *)a->slot[2], (const uint4 *)a->slot[0], (const uint4 *)a->slot[1], vecs_of(a));
    return cudaGetLastError();
}

static __global__ void silu_mul_bwd_kernel(uint4 *__restrict__ dgate, uint4 *__restrict__ dup,
                                           const uint4 *__restrict__ gate,
                                           const uint4 *__restrict__ up,
                                           const uint4 *__restrict__ dy, uint64_t vecs)
{
    uint4 v[FLIGHT], w[FLIGHT], z[FLIGHT];
    load(v, gate, first_vec(), vecs);
    load(w, up, first_vec(), vecs);
    load(z, dy, first_vec(), vecs);
#pragma unroll
    for (int j = 0; j < FLIGHT; j++) {
        float f[8], g[8], d[8];
        unpack8(f, v[j]);
        unpack8(g, w[j]);
        unpack8(d, z[j]);
        for (int i = 0; i < 8; i++) {
            float x = f[i], s = sigmoid_fast(x);
            f[i] = d[i] * g[i] * s * (1.0f + x * (1.0f - s));
            g[i] = d[i] * x * s;
        }
        v[j] = pack8(f);
        w[j] = pack8(g);
    }
    store(dgate, v, first_vec(), vecs);
    store(dup, w, first_vec(), vecs);
}

extern "C" cudaError_t kern_silu_mul_bwd(const KernArgs *a, cudaStream_t stream)
{
    silu_mul_bwd_kernel<<<blocks_for(vecs_of(a)), THREADS, 0, stream>>>(
        (uint4 *)a->slot[3], (uint4 *)a->slot[4], (const uint4 *)a->slot[0],
        (const uint4 *)a->slot[1], (const uint4 *)a->slot[2], vecs_of(a));
    return cudaGetLastError();
}

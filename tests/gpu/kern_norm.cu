/*
 * kern_norm.cu - LayerNorm and RMSNorm, forward and backward, over bf16 rows.
 *
 * Forward: a block owns a row, keeps it in shared memory, and touches device memory
 * once.  Backward: a block owns every gridDim-th row and sums the weight gradients of
 * its rows in shared memory (a thread owns its columns, so no two add to one number);
 * a second kernel adds up the blocks' sums, always in the same order.
 */
#include "kernels.h"
#include "vec.cuh"

#define EPSILON       1e-5f
#define REDUCE_COLS   32
#define REDUCE_GROUPS 8

/* ---- forward ---- */

typedef struct NormFwd {
    const uint4 *x, *gamma, *beta; /* beta: LayerNorm only */
    uint4 *y;
    float *mean, *rstd; /* mean: LayerNorm only */
    int cols;
} NormFwd;

static __device__ __forceinline__ void norm_fwd_row(const NormFwd &a, bool centred)
{
    extern __shared__ uint4 row[];
    __shared__ float shared[32];
    int vecs = a.cols / 8;
    uint64_t base = (uint64_t)blockIdx.x * (uint64_t)vecs;
    float f[8], g[8], b[8], sum = 0, mean = 0;

#pragma unroll 4
    for (int i = threadIdx.x; i < vecs; i += blockDim.x) {
        uint4 v = a.x[base + i];
        row[i] = v;
        unpack8(f, v);
        for (int j = 0; j < 8; j++)
            sum += centred ? f[j] : 0.0f;
    }
    if (centred)
        mean = block_sum(sum, shared) / (float)a.cols;

    sum = 0;
    for (int i = threadIdx.x; i < vecs; i += blockDim.x) {
        unpack8(f, row[i]);
        for (int j = 0; j < 8; j++)
            sum += (f[j] - mean) * (f[j] - mean);
    }
    float rstd = rsqrtf(block_sum(sum, shared) / (float)a.cols + EPSILON);

    for (int i = threadIdx.x; i < vecs; i += blockDim.x) {
        unpack8(f, row[i]);
        unpack8(g, a.gamma[i]);
        if (centred)
            unpack8(b, a.beta[i]);
        for (int j = 0; j < 8; j++)
            f[j] = (f[j] - mean) * rstd * g[j] + (centred ? b[j] : 0.0f);
        a.y[base + i] = pack8(f);
    }
    if (threadIdx.x == 0) {
        if (centred)
            a.mean[blockIdx.x] = mean;
        a.rstd[blockIdx.x] = rstd;
    }
}

static __global__ void layernorm_fwd_kernel(NormFwd a)
{
    norm_fwd_row(a, true);
}

static __global__ void rmsnorm_fwd_kernel(NormFwd a)
{
    norm_fwd_row(a, false);
}

extern "C" cudaError_t kern_layernorm_fwd(const KernArgs *k, cudaStream_t stream)
{
    NormFwd a = { (const uint4 *)k->slot[0],
                  (const uint4 *)k->slot[1],
                  (const uint4 *)k->slot[2],
                  (uint4 *)k->slot[3],
                  (float *)k->slot[4],
                  (float *)k->slot[5],
                  (int)k->cols };
    layernorm_fwd_kernel<<<(unsigned)k->rows, row_threads(k->cols / 8), (size_t)k->cols * 2,
                           stream>>>(a);
    return cudaGetLastError();
}

extern "C" cudaError_t kern_rmsnorm_fwd(const KernArgs *k, cudaStream_t stream)
{
    NormFwd a = { (const uint4 *)k->slot[0],
                  (const uint4 *)k->slot[1],
                  NULL,
                  (uint4 *)k->slot[2],
                  NULL,
                  (float *)k->slot[3],
                  (int)k->cols };
    rmsnorm_fwd_kernel<<<(unsigned)k->rows, row_threads(k->cols / 8), (size_t)k->cols * 2,
                         stream>>>(a);
    return cudaGetLastError();
}

/* ---- backward ---- */

typedef struct NormBwd {
    const uint4 *dy, *x, *gamma;
    const float *mean, *rstd;
    uint4 *dx;
    float *part_gamma, *part_beta; /* [blocks][cols] */
    int64_t rows;
    int cols;
} NormBwd;

/* sums[c .. c+7] += f */
static __device__ __forceinline__ void add_columns(float *sums, const float *f)
{
    float4 *s = (float4 *)sums;
    float4 lo = s[0], hi = s[1];
    s[0] = make_float4(lo.x + f[0], lo.y + f[1], lo.z + f[2], lo.w + f[3]);
    s[1] = make_float4(hi.x + f[4], hi.y + f[5], hi.z + f[6], hi.w + f[7]);
}

static __device__ __forceinline__ void norm_bwd_rows(const NormBwd &a, bool centred)
{
    extern __shared__ uint4 raw[];
    __shared__ float shared[32];
    int vecs = a.cols / 8;
    uint4 *xs = raw, *dys = raw + vecs;
    float *gamma_sum = (float *)(raw + 2 * vecs), *beta_sum = gamma_sum + a.cols;
    float x[8], d[8], g[8], t[8];

    for (int i = threadIdx.x; i < vecs; i += blockDim.x)
        for (int j = 0; j < 8; j++) {
            gamma_sum[8 * i + j] = 0;
            if (centred)
                beta_sum[8 * i + j] = 0;
        }

    for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
        uint64_t base = (uint64_t)row * (uint64_t)vecs;
        float mean = centred ? a.mean[row] : 0.0f, rstd = a.rstd[row];
        float dot = 0, sum = 0;
#pragma unroll 2
        for (int i = threadIdx.x; i < vecs; i += blockDim.x) {
            uint4 xv = a.x[base + i], dv = a.dy[base + i];
            xs[i] = xv;
            dys[i] = dv;
            unpack8(x, xv);
            unpack8(d, dv);
            unpack8(g, a.gamma[i]);
            for (int j = 0; j < 8; j++) {
                x[j] = (x[j] - mean) * rstd;
                t[j] = d[j] * x[j];
                dot += t[j] * g[j];
                sum += d[j] * g[j];
            }
            add_columns(gamma_sum + 8 * i, t);
            if (centred)
                add_columns(beta_sum + 8 * i, d);
        }
        dot = block_sum(dot, shared) / (float)a.cols;
        sum = centred ? block_sum(sum, shared) / (float)a.cols : 0.0f;

        for (int i = threadIdx.x; i < vecs; i += blockDim.x) {
            unpack8(x, xs[i]);
            unpack8(d, dys[i]);
            unpack8(g, a.gamma[i]);
            for (int j = 0; j < 8; j++)
                x[j] = rstd * (d[j] * g[j] - sum - (x[j] - mean) * rstd * dot);
            a.dx[base + i] = pack8(x);
        }
    }

    uint64_t out = (uint64_t)blockIdx.x * (uint64_t)a.cols;
    for (int i = threadIdx.x; i < vecs; i += blockDim.x)
        for (int j = 0; j < 2; j++) {
            ((float4 *)(a.part_gamma + out))[2 * i + j] = ((float4 *)gamma_sum)[2 * i + j];
            if (centred)
                ((float4 *)(a.part_beta + out))[2 * i + j] = ((float4 *)beta_sum)[2 * i + j];
        }
}

static __global__ void layernorm_bwd_kernel(NormBwd a)
{
    norm_bwd_rows(a, true);
}

static __global__ void rmsnorm_bwd_kernel(NormBwd a)
{
    norm_bwd_rows(a, false);
}

/* out[c] = sum over blocks of part[block][c]; a block of this kernel owns 32 columns. */
static __global__ void column_sum_kernel(float *out, const float *part, int blocks, int cols)
{
    __shared__ float sums[REDUCE_GROUPS][REDUCE_COLS];
    int lane = threadIdx.x % REDUCE_COLS, group = threadIdx.x / REDUCE_COLS;
    int col = blockIdx.x * REDUCE_COLS + lane;
    float sum = 0;
    if (col < cols)
#pragma unroll 8
        for (int b = group; b < blocks; b += REDUCE_GROUPS)
            sum += part[(uint64_t)b * (uint64_t)cols + col];
    sums[group][lane] = sum;
    __syncthreads();
    if (group == 0 && col < cols) {
        for (int g = 1; g < REDUCE_GROUPS; g++)
            sum += sums[g][lane];
        out[col] = sum;
    }
}

static cudaError_t column_sum(float *out, const float *part, int blocks, int cols,
                              cudaStream_t stream)
{
    column_sum_kernel<<<(unsigned)((cols + REDUCE_COLS - 1) / REDUCE_COLS),
                        REDUCE_COLS * REDUCE_GROUPS, 0, stream>>>(out, part, blocks, cols);
    return cudaGetLastError();
}

/* As many blocks as fit beside each other: up to 8 an SM while shared memory lasts. */
static int bwd_blocks(int64_t rows, size_t shared_bytes)
{
    int sms = 0;
    if (cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0) != cudaSuccess)
        sms = 1;
    size_t per_sm = ((size_t)200 << 10) / shared_bytes;
    per_sm = per_sm < 1 ? 1 : per_sm > 8 ? 8 : per_sm;
    int64_t blocks = (int64_t)per_sm * sms;
    return (int)(rows < blocks ? rows : blocks);
}

/* Launches a backward kernel whose row state takes shared_bytes, then the column sums. */
static cudaError_t norm_bwd(void (*kernel)(NormBwd), NormBwd a, size_t shared_bytes,
                            float *scratch, float *dgamma, float *dbeta, cudaStream_t stream)
{
    int blocks = bwd_blocks(a.rows, shared_bytes);
    unsigned threads = a.cols / 8 >= 512 ? 512 : row_threads(a.cols / 8);
    uint64_t part = (uint64_t)blocks * (uint64_t)a.cols;
    if (2 * part * sizeof(float) > KERN_SCRATCH_BYTES)
        return cudaErrorInvalidValue;
    a.part_gamma = scratch;
    a.part_beta = scratch + part;

    cudaError_t rc = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          (int)shared_bytes);
    if (rc != cudaSuccess)
        return rc;
    kernel<<<(unsigned)blocks, threads, shared_bytes, stream>>>(a);
    rc = cudaGetLastError();
    if (rc == cudaSuccess)
        rc = column_sum(dgamma, a.part_gamma, blocks, a.cols, stream);
    if (rc == cudaSuccess && dbeta)
        rc = column_sum(dbeta, a.part_beta, blocks, a.cols, stream);
    return rc;
}

extern "C" cudaError_t kern_layernorm_bwd(const KernArgs *k, cudaStream_t stream)
{
    NormBwd a = { (const uint4 *)k->slot[0],
                  (const uint4 *)k->slot[1],
                  (const uint4 *)k->slot[2],
                  (const float *)k->slot[3],
                  (const float *)k->slot[4],
                  (uint4 *)k->slot[5],
                  NULL,
                  NULL,
                  k->rows,
                  (int)k->cols };
    return norm_bwd(layernorm_bwd_kernel, a, (size_t)k->cols * (2 * 2 + 2 * 4),
                    (float *)k->scratch, (float *)k->slot[6], (float *)k->slot[7], stream);
}

extern "C" cudaError_t kern_rmsnorm_bwd(const KernArgs *k, cudaStream_t stream)
{
    NormBwd a = { (const uint4 *)k->slot[0],
                  (const uint4 *)k->slot[1],
                  (const uint4 *)k->slot[2],
                  NULL,
                  (const float *)k->slot[3],
                  (uint4 *)k->slot[4],
                  NULL,
                  NULL,
                  k->rows,
                  (int)k->cols };
    return norm_bwd(rmsnorm_bwd_kernel, a, (size_t)k->cols * (2 * 2 + 4), (float *)k->scratch,
                    (float *)k->slot[5], NULL, stream);
}

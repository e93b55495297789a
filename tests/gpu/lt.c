/*
 * lt.c - see lt.h for which operand is which.
 */
#include "lt.h"

#include "gpu_try.h"

const char *gemm_type_name(GemmType type)
{
    static const char *const name[] = { "bf16", "f16", "tf32", "f32", "fp8" };
    return name[type];
}

const char *gemm_layout_name(GemmLayout layout)
{
    static const char *const name[] = { "TN", "NN", "NT" };
    return name[layout];
}

const char *num_name(NumType type)
{
    static const char *const name[] = { "bf16", "f16", "f32", "e4m3", "i32" };
    return name[type];
}

NumType gemm_in_type(GemmType type)
{
    static const NumType in[] = { NUM_BF16, NUM_F16, NUM_F32, NUM_F32, NUM_E4M3 };
    return in[type];
}

NumType gemm_out_type(const GemmSpec *spec)
{
    if (spec->accumulate)
        return NUM_F32;
    return spec->type == GEMM_FP8 ? NUM_BF16 : gemm_in_type(spec->type);
}

static cudaDataType_t cuda_type(NumType type)
{
    static const cudaDataType_t of[] = { CUDA_R_16BF, CUDA_R_16F, CUDA_R_32F, CUDA_R_8F_E4M3,
                                         CUDA_R_32I };
    return of[type];
}

void lt_open(Lt *lt)
{
    LT_TRY(cublasLtCreate(&lt->handle));
    CUDA_TRY(cudaMalloc(&lt->workspace, LT_WORKSPACE_BYTES));
}

void lt_close(Lt *lt)
{
    CUDA_TRY(cudaFree(lt->workspace));
    LT_TRY(cublasLtDestroy(lt->handle));
    *lt = (Lt){ 0 };
}

static void set_desc(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t key,
                     const void *value, size_t bytes)
{
    LT_TRY(cublasLtMatmulDescSetAttribute(desc, key, value, bytes));
}

static void open_desc(LtGemm *g, const GemmSpec *spec)
{
    cublasOperation_t wide = spec->layout == LAYOUT_TN ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t tall = spec->layout == LAYOUT_NT ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasComputeType_t compute =
        spec->type == GEMM_TF32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    int8_t fast = !spec->promoted; /* partial sums stay in the tensor core */

    LT_TRY(cublasLtMatmulDescCreate(&g->desc, compute, CUDA_R_32F));
    set_desc(g->desc, CUBLASLT_MATMUL_DESC_TRANSA, &wide, sizeof wide);
    set_desc(g->desc, CUBLASLT_MATMUL_DESC_TRANSB, &tall, sizeof tall);
    if (spec->type == GEMM_FP8)
        set_desc(g->desc, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof fast);
}

/* Column-major sizes before the transposition that op asks for. */
static void open_layouts(LtGemm *g, const GemmSpec *s)
{
    uint64_t m = (uint64_t)s->m, n = (uint64_t)s->n, k = (uint64_t)s->k;
    cudaDataType_t in = cuda_type(gemm_in_type(s->type)), out = cuda_type(gemm_out_type(s));

    if (s->layout == LAYOUT_TN)
        LT_TRY(cublasLtMatrixLayoutCreate(&g->wide, in, k, n, s->k));
    else
        LT_TRY(cublasLtMatrixLayoutCreate(&g->wide, in, n, k, s->n));
    if (s->layout == LAYOUT_NT)
        LT_TRY(cublasLtMatrixLayoutCreate(&g->tall, in, m, k, s->m));
    else
        LT_TRY(cublasLtMatrixLayoutCreate(&g->tall, in, k, m, s->k));
    LT_TRY(cublasLtMatrixLayoutCreate(&g->out, out, n, m, s->n));
}

/* Asks for algorithms; those that can run move to the front, in their order. */
static void find_algos(LtGemm *g, const Lt *lt)
{
    cublasLtMatmulPreference_t pref;
    size_t workspace = LT_WORKSPACE_BYTES;
    int found = 0;

    LT_TRY(cublasLtMatmulPreferenceCreate(&pref));
    LT_TRY(cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                &workspace, sizeof workspace));
    cublasStatus_t rc =
        cublasLtMatmulAlgoGetHeuristic(lt->handle, g->desc, g->wide, g->tall, g->out, g->out,
                                       pref, LT_ALGOS_MAX, g->algo, &found);
    LT_TRY(cublasLtMatmulPreferenceDestroy(pref));
    if (rc != CUBLAS_STATUS_SUCCESS)
        found = 0; /* "not supported" is an answer */
    for (int i = 0; i < found; i++)
        if (g->algo[i].state == CUBLAS_STATUS_SUCCESS)
            g->algo[g->algos_n++] = g->algo[i];
}

bool lt_gemm_open(LtGemm *g, const Lt *lt, const GemmSpec *spec)
{
    *g = (LtGemm){ .beta = spec->accumulate ? 1.0f : 0.0f };
    open_desc(g, spec);
    open_layouts(g, spec);
    find_algos(g, lt);
    if (g->algos_n == 0)
        lt_gemm_close(g);
    return g->algos_n > 0;
}

void lt_gemm_close(LtGemm *g)
{
    LT_TRY(cublasLtMatrixLayoutDestroy(g->out));
    LT_TRY(cublasLtMatrixLayoutDestroy(g->tall));
    LT_TRY(cublasLtMatrixLayoutDestroy(g->wide));
    LT_TRY(cublasLtMatmulDescDestroy(g->desc));
    *g = (LtGemm){ 0 };
}

void lt_gemm_run(const LtGemm *g, const Lt *lt, int algo, const void *tall, const void *wide,
                 void *out, cudaStream_t stream)
{
    const float alpha = 1.0f;
    LT_TRY(cublasLtMatmul(lt->handle, g->desc, &alpha, wide, g->wide, tall, g->tall, &g->beta,
                          out, g->out, out, g->out, &g->algo[algo].algo, lt->workspace,
                          LT_WORKSPACE_BYTES, stream));
}

static int algo_number(const LtGemm *g, int algo, cublasLtMatmulAlgoConfigAttributes_t key)
{
    uint32_t value = 0;
    size_t written = 0;
    cublasStatus_t rc = cublasLtMatmulAlgoConfigGetAttribute(&g->algo[algo].algo, key, &value,
                                                             sizeof value, &written);
    return rc == CUBLAS_STATUS_SUCCESS ? (int)value : 0;
}

int lt_tile_id(const LtGemm *g, int algo)
{
    return algo_number(g, algo, CUBLASLT_ALGO_CONFIG_TILE_ID);
}

int lt_split_k(const LtGemm *g, int algo)
{
    return algo_number(g, algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
}

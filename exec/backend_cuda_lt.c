/*
 * backend_cuda_lt.c - products by cuBLASLt.
 *
 * cuBLASLt counts by columns, so it is asked for the transpose, C^T = op(B)^T op(A)^T: its
 * first operand is our B, its second our A, and a row of C is a column of its result.  Its
 * bias runs along the rows of that, which are our columns; BGRADB sums its second operand
 * over k.
 *
 * Heuristics assume pointers aligned to 256 bytes; ours are heads and shards anywhere, so the
 * alignment found is part of the key and told.  That of the bias and of the activation's input
 * they take from the pointers in the descriptor (cublasLt.h), so those are set before.
 */
#include "exec/cuda_gemm.h"

#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>

/* What an algorithm was chosen for; compared by its bytes, so always zeroed first. */
typedef struct Key {
    uint64_t m, n, k, batch;
    uint64_t a_stride, b_stride, c_stride, a_step, b_step, c_step;
    uint32_t a_type, b_type, c_type, bias_type, sums_type;
    uint32_t a_align, b_align, c_align, row_align, before_align;
    uint32_t turn_a, turn_b, tf32, adds, epilogue, bias, before, sums;
} Key;

typedef struct Plan {
    Key key;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t first, second, result;
    cublasLtMatmulAlgo_t algo;
    bool can;
} Plan;

struct CudaGemm {
    cublasLtHandle_t handle;
    void *workspace;
    uint64_t workspace_bytes;
    uint32_t plans_n, plans_cap;
    Plan *plans;
};

/* ---- keys ---- */

static uint32_t alignment_of(const void *at)
{
    uint32_t bytes = 256;
    while ((uintptr_t)at % bytes != 0)
        bytes /= 2;
    return bytes;
}

/* The row that an epilogue reads or writes; NULL. */
static const void *row_of(const Product *p)
{
    return p->sums.at ? p->sums.at : p->bias.at;
}

static Key key_of(const Product *p)
{
    Key k;
    memset(&k, 0, sizeof k);
    k.m = p->m, k.n = p->n, k.k = p->k, k.batch = p->batch;
    k.a_stride = p->a.stride, k.b_stride = p->b.stride, k.c_stride = p->c.stride;
    k.a_step = p->a.step, k.b_step = p->b.step, k.c_step = p->c.step;
    k.a_type = p->a.v.type, k.b_type = p->b.v.type, k.c_type = p->c.v.type;
    k.a_align = alignment_of(p->a.v.at);
    k.b_align = alignment_of(p->b.v.at);
    k.c_align = alignment_of(p->c.v.at);
    k.row_align = alignment_of(row_of(p)); /* NULL: as good as any */
    k.before_align = alignment_of(p->before.at);
    k.turn_a = p->turn_a, k.turn_b = p->turn_b, k.tf32 = p->tf32;
    k.adds = p->beta != 0;
    k.epilogue = p->epilogue;
    k.bias = p->bias.at != NULL;
    k.bias_type = k.bias ? (uint32_t)p->bias.type : 0;
    k.before = p->before.at != NULL;
    k.sums = p->sums.at != NULL;
    k.sums_type = k.sums ? (uint32_t)p->sums.type : 0;
    return k;
}

/* ---- descriptors ---- */

static cudaDataType_t data_type(uint32_t type)
{
    static const cudaDataType_t of[] = { CUDA_R_32F, CUDA_R_16F, CUDA_R_16BF };
    return of[type];
}

static cublasLtEpilogue_t epilogue_of(const Key *k)
{
    if (k->sums)
        return CUBLASLT_EPILOGUE_BGRADB;
    if (k->epilogue == GEMM_RELU)
        return k->bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    if (k->epilogue == GEMM_GELU_TANH && k->before)
        return k->bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    if (k->epilogue == GEMM_GELU_TANH)
        return k->bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    return k->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

static bool set_desc(Plan *x, cublasLtMatmulDescAttributes_t what, const void *value,
                     size_t bytes)
{
    return cublasLtMatmulDescSetAttribute(x->desc, what, value, bytes) == CUBLAS_STATUS_SUCCESS;
}

static bool make_desc(Plan *x, const Product *p)
{
    const Key *k = &x->key;
    cublasComputeType_t compute = k->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    cublasOperation_t first = k->turn_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t second = k->turn_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = epilogue_of(k);
    cudaDataType_t row_type = data_type(k->sums ? k->sums_type : k->bias_type);
    int64_t before_ld = (int64_t)p->n;
    bool ok =
        cublasLtMatmulDescCreate(&x->desc, compute, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS &&
        set_desc(x, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first) &&
        set_desc(x, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second) &&
        set_desc(x, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    if (ok && (k->bias || k->sums))
        ok = set_desc(x, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &row_type, sizeof row_type);
    if (ok && k->before)
        ok = set_desc(x, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &before_ld, sizeof before_ld);
    return ok;
}

/* Of rows x columns by columns, as stored. */
static bool make_layout(cublasLtMatrixLayout_t *l, const Key *k, uint32_t type, uint64_t rows,
                        uint64_t columns, uint64_t stride, uint64_t step)
{
    int32_t batch = (int32_t)k->batch;
    int64_t apart = (int64_t)step;
    return cublasLtMatrixLayoutCreate(l, data_type(type), rows, columns, (int64_t)stride) ==
               CUBLAS_STATUS_SUCCESS &&
           cublasLtMatrixLayoutSetAttribute(*l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch,
                                            sizeof batch) == CUBLAS_STATUS_SUCCESS &&
           cublasLtMatrixLayoutSetAttribute(*l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                            &apart, sizeof apart) == CUBLAS_STATUS_SUCCESS;
}

static bool make_layouts(Plan *x)
{
    const Key *k = &x->key;
    return make_layout(&x->first, k, k->b_type, k->turn_b ? k->k : k->n,
                       k->turn_b ? k->n : k->k, k->b_stride, k->b_step) &&
           make_layout(&x->second, k, k->a_type, k->turn_a ? k->m : k->k,
                       k->turn_a ? k->k : k->m, k->a_stride, k->a_step) &&
           make_layout(&x->result, k, k->c_type, k->n, k->m, k->c_stride, k->c_step);
}

/* Rows of bias, sums and the activation's input lie where the product at hand has them. */
static bool point(Plan *x, const Product *p)
{
    const void *row = row_of(p);
    return (!row || set_desc(x, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &row, sizeof row)) &&
           (!p->before.at || set_desc(x, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
                                      &p->before.at, sizeof p->before.at));
}

/* ---- algorithms ---- */

static bool prefer(cublasLtMatmulPreference_t pref, const CudaGemm *g, const Key *k)
{
    size_t bytes = g->workspace_bytes;
    struct {
        cublasLtMatmulPreferenceAttributes_t what;
        uint32_t align;
    } align[] = { { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, k->b_align },
                  { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, k->a_align },
                  { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, k->c_align },
                  { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, k->c_align } };
    bool ok =
        cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &bytes, sizeof bytes) == CUBLAS_STATUS_SUCCESS;
    for (size_t i = 0; ok && i < sizeof align / sizeof align[0]; i++)
        ok = cublasLtMatmulPreferenceSetAttribute(pref, align[i].what, &align[i].align,
                                                  sizeof align[i].align) ==
             CUBLAS_STATUS_SUCCESS;
    return ok;
}

static void choose(CudaGemm *g, Plan *x)
{
    cublasLtMatmulPreference_t pref;
    cublasLtMatmulHeuristicResult_t found;
    int found_n = 0;
    if (cublasLtMatmulPreferenceCreate(&pref) != CUBLAS_STATUS_SUCCESS)
        return;
    if (prefer(pref, g, &x->key) &&
        cublasLtMatmulAlgoGetHeuristic(g->handle, x->desc, x->first, x->second, x->result,
                                       x->result, pref, 1, &found,
                                       &found_n) == CUBLAS_STATUS_SUCCESS &&
        found_n > 0 && found.state == CUBLAS_STATUS_SUCCESS) {
        x->algo = found.algo;
        x->can = true;
    }
    cublasLtMatmulPreferenceDestroy(pref);
}

/* cuBLASLt's rules: rows have the result's type (table of cublasLtMatmul); the activation's input
 * a multiple of 8 numbers a row, 16 bytes. */
static bool may(const Product *p)
{
    if ((p->bias.at && p->bias.type != p->c.v.type) ||
        (p->sums.at && p->sums.type != p->c.v.type))
        return false;
    return !p->before.at || (p->n % 8 == 0 && (uintptr_t)p->before.at % 16 == 0 &&
                             p->before.type == p->c.v.type);
}

static Plan *plan_for(CudaGemm *g, const Product *p)
{
    Key key = key_of(p);
    for (uint32_t i = 0; i < g->plans_n; i++)
        if (memcmp(&g->plans[i].key, &key, sizeof key) == 0)
            return &g->plans[i];
    GROW(g->plans, g->plans_n, g->plans_cap);
    Plan *x = &g->plans[g->plans_n++];
    memset(x, 0, sizeof *x);
    x->key = key;
    if (may(p) && make_desc(x, p) && make_layouts(x) && point(x, p))
        choose(g, x);
    return x;
}

/* ---- the interface ---- */

bool cuda_gemm_open(CudaGemm **out, void *workspace, uint64_t workspace_bytes, Err *err)
{
    CudaGemm *g = mem_zero(1, sizeof *g);
    cublasStatus_t status = cublasLtCreate(&g->handle);
    g->workspace = workspace;
    g->workspace_bytes = workspace_bytes;
    *out = g;
    if (status == CUBLAS_STATUS_SUCCESS)
        return true;
    free(g);
    *out = NULL;
    return err_set(err, "cuBLASLt does not start: %s", cublasLtGetStatusString(status));
}

void cuda_gemm_close(CudaGemm *g)
{
    if (!g)
        return;
    for (uint32_t i = 0; i < g->plans_n; i++) {
        Plan *x = &g->plans[i];
        if (x->desc)
            cublasLtMatmulDescDestroy(x->desc);
        cublasLtMatrixLayout_t layouts[] = { x->first, x->second, x->result };
        for (int k = 0; k < 3; k++)
            if (layouts[k])
                cublasLtMatrixLayoutDestroy(layouts[k]);
    }
    cublasLtDestroy(g->handle);
    free(g->plans);
    free(g);
}

bool cuda_gemm_can(CudaGemm *g, const Product *p)
{
    return plan_for(g, p)->can;
}

bool cuda_gemm(CudaGemm *g, const Product *p, void *stream, Err *err)
{
    static const char *const types[] = { "f32", "f16", "bf16" };
    Plan *x = plan_for(g, p);
    cublasStatus_t status = CUBLAS_STATUS_NOT_SUPPORTED;
    if (x->can && point(x, p))
        status = cublasLtMatmul(g->handle, x->desc, &p->alpha, p->b.v.at, x->first, p->a.v.at,
                                x->second, &p->beta, p->c.v.at, x->result, p->c.v.at, x->result,
                                &x->algo, g->workspace, g->workspace_bytes, stream);
    if (status == CUBLAS_STATUS_SUCCESS)
        return true;
    return err_set(err,
                   "cuBLASLt cannot multiply %" PRIu64 " x %" PRIu64 " x %" PRIu64
                   " (m, n, k) in %s: %s",
                   p->m, p->n, p->k, types[p->a.v.type], cublasLtGetStatusString(status));
}

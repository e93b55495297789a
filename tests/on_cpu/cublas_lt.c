/*
 * cublas_lt.c - matrix products by columns, as cuBLASLt documents them, in plain loops.
 *
 *     D[i, j] = epilogue(alpha sum over l of op(A)[i, l] op(B)[l, j] + beta C[i, j] + bias[i])
 *
 * BIAS has a number for each row of D.  GELU is the one with tanh; its AUX holds what it was
 * given, by columns AUX_LD apart.  BGRADB: bias[j] = sum over l of op(B)[l, j].
 *
 * Stricter than cuBLASLt: a pointer less aligned than the heuristic was told, or types that
 * it does not document, are refused.
 */
#include "tests/on_cpu/cublasLt.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "exec/number.h"
#include "tests/on_cpu/on_cpu.h"

struct LtDesc {
    cublasOperation_t transpose[2];
    cublasLtEpilogue_t epilogue;
    void *bias, *aux;
    cudaDataType_t bias_type;
    int64_t aux_ld;
};

struct LtLayout {
    cudaDataType_t type;
    uint64_t rows, columns;
    int64_t ld, step;
    int32_t batch;
};

struct LtPreference {
    uint32_t align[3];
};

struct LtContext {
    int unused;
};

/* ---- objects ---- */

cublasStatus_t cublasLtCreate(cublasLtHandle_t *h)
{
    *h = mem_zero(1, sizeof **h);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t h)
{
    free(h);
    return CUBLAS_STATUS_SUCCESS;
}

const char *cublasLtGetStatusString(cublasStatus_t s)
{
    return s == CUBLAS_STATUS_SUCCESS         ? "CUBLAS_STATUS_SUCCESS"
           : s == CUBLAS_STATUS_NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED"
                                              : "CUBLAS_STATUS_INVALID_VALUE";
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *d, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    (void)compute;
    *d = mem_zero(1, sizeof **d);
    return scale == CUDA_R_32F ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d,
                                              cublasLtMatmulDescAttributes_t what,
                                              const void *value, size_t bytes)
{
    const struct {
        void *at;
        size_t bytes;
    } place[] = { { &d->transpose[0], sizeof d->transpose[0] },
                  { &d->transpose[1], sizeof d->transpose[1] },
                  { &d->epilogue, sizeof d->epilogue },
                  { &d->bias, sizeof d->bias },
                  { &d->bias_type, sizeof d->bias_type },
                  { &d->aux, sizeof d->aux },
                  { &d->aux_ld, sizeof d->aux_ld } };
    if (bytes != place[what].bytes)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(place[what].at, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d)
{
    free(d);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *l, cudaDataType_t type,
                                          uint64_t rows, uint64_t columns, int64_t ld)
{
    *l = mem_zero(1, sizeof **l);
    **l = (struct LtLayout){ type, rows, columns, ld, 0, 1 };
    return ld >= (int64_t)rows ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l,
                                                cublasLtMatrixLayoutAttribute_t what,
                                                const void *value, size_t bytes)
{
    bool count = what == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT;
    if (bytes != (count ? sizeof l->batch : sizeof l->step))
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(count ? (void *)&l->batch : (void *)&l->step, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l)
{
    free(l);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *p)
{
    *p = mem_zero(1, sizeof **p);
    for (int i = 0; i < 3; i++)
        (*p)->align[i] = 256; /* cuBLASLt's default */
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t what,
                                                    const void *value, size_t bytes)
{
    int i = (int)what - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
    if (i >= 0 && i < 3)
        memcpy(&p->align[i], value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
    free(p);
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- products ---- */

/* Does the epilogue read or write a row? */
static bool has_row(cublasLtEpilogue_t e)
{
    return e == CUBLASLT_EPILOGUE_BIAS || e == CUBLASLT_EPILOGUE_RELU_BIAS ||
           e == CUBLASLT_EPILOGUE_GELU_BIAS || e == CUBLASLT_EPILOGUE_GELU_AUX_BIAS ||
           e == CUBLASLT_EPILOGUE_BGRADB;
}

static bool fits(const struct LtDesc *d, const struct LtLayout *a, const struct LtLayout *b,
                 const struct LtLayout *out)
{
    bool first = d->transpose[0] == CUBLAS_OP_T, second = d->transpose[1] == CUBLAS_OP_T;
    uint64_t m = first ? a->columns : a->rows, k = first ? a->rows : a->columns;
    uint64_t n = second ? b->rows : b->columns;
    bool gelu = d->epilogue == CUBLASLT_EPILOGUE_GELU_AUX ||
                d->epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    return (!has_row(d->epilogue) || d->bias_type == out->type) && a->type == b->type &&
           (out->type == a->type || out->type == CUDA_R_32F) && out->rows == m &&
           out->columns == n && (second ? b->columns : b->rows) == k &&
           (!gelu || d->aux_ld % 8 == 0) && a->batch == b->batch && b->batch == out->batch;
}

static uint64_t alignment_of(const void *at)
{
    uint64_t bytes = 256;
    while ((uintptr_t)at % bytes != 0)
        bytes /= 2;
    return bytes;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t h, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t out,
    cublasLtMatmulPreference_t p, int most, cublasLtMatmulHeuristicResult_t *found,
    int *found_n)
{
    (void)h;
    (void)c;
    *found_n = 0;
    if (!fits(d, a, b, out) || most < 1)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    *found = (cublasLtMatmulHeuristicResult_t){ .state = CUBLAS_STATUS_SUCCESS };
    for (int i = 0; i < 3; i++)
        found->algo.data[i] = p->align[i];
    found->algo.data[3] = alignment_of(d->bias); /* the rest is told, this is looked at */
    *found_n = 1;
    return CUBLAS_STATUS_SUCCESS;
}

static float number_at(const void *x, cudaDataType_t type, uint64_t i)
{
    const uint16_t *half = x;
    if (type == CUDA_R_32F)
        return ((const float *)x)[i];
    return type == CUDA_R_16F ? f32_of_f16(half[i]) : f32_of_bf16(half[i]);
}

static void put_number(void *x, cudaDataType_t type, uint64_t i, float value)
{
    uint16_t *half = x;
    if (type == CUDA_R_32F)
        ((float *)x)[i] = value;
    else
        half[i] = type == CUDA_R_16F ? f16_of_f32(value) : bf16_of_f32(value);
}

/* op(X)[row, column] of matrix `which` of the batch. */
static float element(const struct LtLayout *l, const void *x, cublasOperation_t op, int which,
                     uint64_t row, uint64_t column)
{
    uint64_t i = op == CUBLAS_OP_T ? column : row, j = op == CUBLAS_OP_T ? row : column;
    return number_at(x, l->type, (uint64_t)which * (uint64_t)l->step + j * (uint64_t)l->ld + i);
}

static float gelu(float x)
{
    return 0.5f * x * (1 + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
}

typedef struct LtWork {
    struct LtDesc d;
    struct LtLayout a, b, c, out;
    float alpha, beta;
    const void *at_a, *at_b, *at_c;
    void *at_out;
} LtWork;

static float with_epilogue(const LtWork *w, float x, uint64_t i, uint64_t j)
{
    const struct LtDesc *d = &w->d;
    cublasLtEpilogue_t e = d->epilogue;
    if (has_row(e) && e != CUBLASLT_EPILOGUE_BGRADB)
        x += number_at(d->bias, d->bias_type, i);
    if (e == CUBLASLT_EPILOGUE_GELU_AUX || e == CUBLASLT_EPILOGUE_GELU_AUX_BIAS)
        put_number(d->aux, w->out.type, j * (uint64_t)d->aux_ld + i, x);
    if (e == CUBLASLT_EPILOGUE_RELU || e == CUBLASLT_EPILOGUE_RELU_BIAS)
        return x > 0 ? x : 0;
    return e >= CUBLASLT_EPILOGUE_GELU && e <= CUBLASLT_EPILOGUE_GELU_AUX_BIAS ? gelu(x) : x;
}

static void run_product(const void *work)
{
    const LtWork *w = work;
    cublasOperation_t first = w->d.transpose[0], second = w->d.transpose[1];
    uint64_t k = first == CUBLAS_OP_T ? w->a.rows : w->a.columns;
    for (int which = 0; which < w->out.batch; which++)
        for (uint64_t j = 0; j < w->out.columns; j++) {
            float sums = 0;
            for (uint64_t l = 0; l < k && w->d.epilogue == CUBLASLT_EPILOGUE_BGRADB; l++)
                sums += element(&w->b, w->at_b, second, which, l, j);
            if (w->d.epilogue == CUBLASLT_EPILOGUE_BGRADB)
                put_number(w->d.bias, w->d.bias_type, j, sums);
            for (uint64_t i = 0; i < w->out.rows; i++) {
                float sum = 0;
                for (uint64_t l = 0; l < k; l++)
                    sum += element(&w->a, w->at_a, first, which, i, l) *
                           element(&w->b, w->at_b, second, which, l, j);
                sum *= w->alpha;
                if (w->beta != 0)
                    sum += w->beta * element(&w->c, w->at_c, CUBLAS_OP_N, which, i, j);
                put_number(w->at_out, w->out.type,
                           (uint64_t)which * (uint64_t)w->out.step + j * (uint64_t)w->out.ld +
                               i,
                           with_epilogue(w, sum, i, j));
            }
        }
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t h, cublasLtMatmulDesc_t d, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *out,
                              cublasLtMatrixLayout_t out_layout,
                              const cublasLtMatmulAlgo_t *algo, void *workspace,
                              size_t workspace_bytes, void *stream)
{
    (void)h;
    (void)workspace;
    (void)workspace_bytes;
    if (!fits(d, a_layout, b_layout, out_layout) || (uintptr_t)a % algo->data[0] ||
        (uintptr_t)b % algo->data[1] || (uintptr_t)out % algo->data[2] ||
        (uintptr_t)d->bias % algo->data[3])
        return CUBLAS_STATUS_INVALID_VALUE;
    LtWork w = { *d, *a_layout, *b_layout, *c_layout, *out_layout, 0, 0, a, b, c, out };
    memcpy(&w.alpha, alpha, sizeof w.alpha);
    memcpy(&w.beta, beta, sizeof w.beta);
    on_cpu_queue(stream, run_product, &w, sizeof w);
    return CUBLAS_STATUS_SUCCESS;
}

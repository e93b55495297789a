/*
 * memops_ref.c - the definitions.  v[i] is slot i; see memops.c for its meaning.
 */
#include "memops_ref.h"

#include <math.h>

static const double NORM_EPSILON = 1e-5;
static const double GELU_A = 0.79788456080286535588; /* sqrt(2 / pi) */

static int64_t numbers(const MemShape *s)
{
    return s->rows * s->cols;
}

void ref_copy(double *const *v, const MemShape *s)
{
    for (int64_t i = 0; i < numbers(s); i++)
        v[1][i] = v[0][i];
}

void ref_add(double *const *v, const MemShape *s)
{
    for (int64_t i = 0; i < numbers(s); i++)
        v[2][i] = v[0][i] + v[1][i];
}

/* ---- activations ---- */

void ref_gelu_fwd(double *const *v, const MemShape *s)
{
    for (int64_t i = 0; i < numbers(s); i++) {
        double x = v[0][i];
        v[1][i] = x / 2 * (1 + tanh(GELU_A * (x + 0.044715 * x * x * x)));
    }
}

void ref_gelu_bwd(double *const *v, const MemShape *s)
{
    for (int64_t i = 0; i < numbers(s); i++) {
        double x = v[0][i], t = tanh(GELU_A * (x + 0.044715 * x * x * x));
        double inner = GELU_A * (1 + 3 * 0.044715 * x * x);
        v[2][i] = v[1][i] * ((1 + t) / 2 + x / 2 * (1 - t * t) * inner);
    }
}

void ref_silu_mul_fwd(double *const *v, const MemShape *s)
{
    for (int64_t i = 0; i < numbers(s); i++)
        v[2][i] = v[0][i] / (1 + exp(-v[0][i])) * v[1][i];
}

void ref_silu_mul_bwd(double *const *v, const MemShape *s)
{
    for (int64_t i = 0; i < numbers(s); i++) {
        double gate = v[0][i], up = v[1][i], dy = v[2][i];
        double sigma = 1 / (1 + exp(-gate));
        v[3][i] = dy * up * (sigma + gate * sigma * (1 - sigma));
        v[4][i] = dy * gate * sigma;
    }
}

/* ---- norms ---- */

void ref_layernorm_fwd(double *const *v, const MemShape *s)
{
    for (int64_t r = 0; r < s->rows; r++) {
        const double *x = v[0] + r * s->cols;
        double mean = 0, variance = 0;
        for (int64_t c = 0; c < s->cols; c++)
            mean += x[c] / (double)s->cols;
        for (int64_t c = 0; c < s->cols; c++)
            variance += (x[c] - mean) * (x[c] - mean) / (double)s->cols;
        v[4][r] = mean;
        v[5][r] = 1 / sqrt(variance + NORM_EPSILON);
        for (int64_t c = 0; c < s->cols; c++)
            v[3][r * s->cols + c] = (x[c] - mean) * v[5][r] * v[1][c] + v[2][c];
    }
}

void ref_layernorm_bwd(double *const *v, const MemShape *s)
{
    for (int64_t c = 0; c < s->cols; c++)
        v[6][c] = v[7][c] = 0;
    for (int64_t r = 0; r < s->rows; r++) {
        const double *dy = v[0] + r * s->cols, *x = v[1] + r * s->cols, *gamma = v[2];
        double mean = v[3][r], rstd = v[4][r], sum = 0, dot = 0;
        for (int64_t c = 0; c < s->cols; c++) {
            double unit = (x[c] - mean) * rstd;
            sum += dy[c] * gamma[c] / (double)s->cols;
            dot += dy[c] * gamma[c] * unit / (double)s->cols;
            v[6][c] += dy[c] * unit;
            v[7][c] += dy[c];
        }
        for (int64_t c = 0; c < s->cols; c++)
            v[5][r * s->cols + c] =
                rstd * (dy[c] * gamma[c] - sum - (x[c] - mean) * rstd * dot);
    }
}

void ref_rmsnorm_fwd(double *const *v, const MemShape *s)
{
    for (int64_t r = 0; r < s->rows; r++) {
        const double *x = v[0] + r * s->cols;
        double squares = 0;
        for (int64_t c = 0; c < s->cols; c++)
            squares += x[c] * x[c] / (double)s->cols;
        v[3][r] = 1 / sqrt(squares + NORM_EPSILON);
        for (int64_t c = 0; c < s->cols; c++)
            v[2][r * s->cols + c] = x[c] * v[3][r] * v[1][c];
    }
}

void ref_rmsnorm_bwd(double *const *v, const MemShape *s)
{
    for (int64_t c = 0; c < s->cols; c++)
        v[5][c] = 0;
    for (int64_t r = 0; r < s->rows; r++) {
        const double *dy = v[0] + r * s->cols, *x = v[1] + r * s->cols, *gamma = v[2];
        double rstd = v[3][r], dot = 0;
        for (int64_t c = 0; c < s->cols; c++) {
            dot += dy[c] * gamma[c] * x[c] * rstd / (double)s->cols;
            v[5][c] += dy[c] * x[c] * rstd;
        }
        for (int64_t c = 0; c < s->cols; c++)
            v[4][r * s->cols + c] = rstd * (dy[c] * gamma[c] - x[c] * rstd * dot);
    }
}

/* ---- softmax and cross-entropy ---- */

/* log(sum(exp(x))) */
static double log_sum_exp(const double *x, int64_t n)
{
    double top = x[0], sum = 0;
    for (int64_t i = 1; i < n; i++)
        top = fmax(top, x[i]);
    for (int64_t i = 0; i < n; i++)
        sum += exp(x[i] - top);
    return top + log(sum);
}

void ref_softmax_fwd(double *const *v, const MemShape *s)
{
    for (int64_t r = 0; r < s->rows; r++) {
        double lse = log_sum_exp(v[0] + r * s->cols, s->cols);
        for (int64_t i = r * s->cols; i < (r + 1) * s->cols; i++)
            v[1][i] = exp(v[0][i] - lse);
    }
}

void ref_softmax_bwd(double *const *v, const MemShape *s)
{
    for (int64_t r = 0; r < s->rows; r++) {
        double dot = 0;
        for (int64_t i = r * s->cols; i < (r + 1) * s->cols; i++)
            dot += v[0][i] * v[1][i];
        for (int64_t i = r * s->cols; i < (r + 1) * s->cols; i++)
            v[2][i] = v[0][i] * (v[1][i] - dot);
    }
}

void ref_cross_entropy_fwd(double *const *v, const MemShape *s)
{
    for (int64_t r = 0; r < s->rows; r++) {
        const double *x = v[0] + r * s->cols;
        v[3][r] = log_sum_exp(x, s->cols);
        v[2][r] = v[3][r] - x[(int64_t)v[1][r]];
    }
}

void ref_cross_entropy_bwd(double *const *v, const MemShape *s)
{
    for (int64_t r = 0; r < s->rows; r++)
        for (int64_t c = 0; c < s->cols; c++)
            v[3][r * s->cols + c] =
                exp(v[0][r * s->cols + c] - v[2][r]) - (c == (int64_t)v[1][r] ? 1 : 0);
}

/* ---- embedding, optimizer ---- */

void ref_embedding(double *const *v, const MemShape *s)
{
    for (int64_t r = 0; r < s->rows; r++)
        for (int64_t c = 0; c < s->cols; c++)
            v[2][r * s->cols + c] = v[0][(int64_t)v[1][r] * s->cols + c];
}

/* Step 10 with the constants of kern_optim.cu. */
void ref_adamw(double *const *v, const MemShape *s)
{
    const double lr = 1e-3, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, decay = 0.1;
    const double unbias1 = 1 - pow(beta1, 10), unbias2 = 1 - pow(beta2, 10);

    for (int64_t i = 0; i < numbers(s); i++) {
        double g = v[1][i];
        v[2][i] = beta1 * v[2][i] + (1 - beta1) * g;
        v[3][i] = beta2 * v[3][i] + (1 - beta2) * g * g;
        v[0][i] -= lr * decay * v[0][i];
        v[0][i] -= lr * (v[2][i] / unbias1) / (sqrt(v[3][i] / unbias2) + eps);
    }
}

void ref_adamw_mixed(double *const *v, const MemShape *s)
{
    ref_adamw(v, s);
    for (int64_t i = 0; i < numbers(s); i++)
        v[4][i] = v[0][i];
}

void ref_sum_squares(double *const *v, const MemShape *s)
{
    v[1][0] = 0;
    for (int64_t i = 0; i < numbers(s); i++)
        v[1][0] += v[0][i] * v[0][i];
}

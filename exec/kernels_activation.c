/*
 * kernels_activation.c - activations and their gradients, a strip of numbers at a time.
 *
 *     gelu   x/2 (1 + erf(x/sqrt 2)), or with tanh as GPT-2 has it      relu   max(x, 0)
 *     silu   x/(1 + exp(-x))          relu2  max(x, 0)^2                gated  act(gate) up
 */
#include "exec/curves.h"
#include "exec/kernel_parts.h"

enum { STRIP = 512 }; /* numbers; they stay in the nearest cache */

/* y = f(x), apart from each other. */
typedef void Strip(const float *restrict x, float *restrict y, uint64_t n);

#define STRIP_OF(name) \
    WIDE static void name(const float *restrict x, float *restrict y, uint64_t n) \
    { \
        for (uint64_t i = 0; i < n; i++) \
            y[i] = curve_##name(x[i]); \
    }

STRIP_OF(gelu)
STRIP_OF(gelu_slope)
STRIP_OF(gelu_tanh)
STRIP_OF(gelu_tanh_slope)
STRIP_OF(relu)
STRIP_OF(relu_slope)
STRIP_OF(relu2)
STRIP_OF(relu2_slope)
STRIP_OF(silu)
STRIP_OF(silu_slope)

typedef struct Curves {
    Strip *value, *slope;
} Curves;

static Curves curves_of(const KernelEnv *env, OpFn fn)
{
    switch (fn) {
    case FN_RELU:
        return (Curves){ relu, relu_slope };
    case FN_RELU2:
        return (Curves){ relu2, relu2_slope };
    case FN_SILU:
    case FN_GATED_SILU:
        return (Curves){ silu, silu_slope };
    default:
        ASSERT(fn == FN_GELU || fn == FN_GATED_GELU);
        if (env->facts.gelu_tanh)
            return (Curves){ gelu_tanh, gelu_tanh_slope };
        return (Curves){ gelu, gelu_slope };
    }
}

/* By far the most frequent: in place and not. */
static void relu_of(const float *x, float *y, uint64_t n)
{
    for (uint64_t i = 0; x == y && i < n; i++)
        y[i] = y[i] > 0 ? y[i] : 0;
    for (uint64_t i = 0; x != y && i < n; i++)
        y[i] = x[i] > 0 ? x[i] : 0;
}

static void relu_back(const float *restrict dy, const float *restrict y, float *restrict dx,
                      uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        float d = dy[i]; /* read always: a load that depends is not vectorised */
        dx[i] = y[i] > 0 ? d : 0;
    }
}

void activate(const KernelEnv *env, OpFn fn, const float *x, float *y, uint64_t n)
{
    float strip[STRIP];
    Strip *value = curves_of(env, fn).value;
    if (fn == FN_RELU) {
        relu_of(x, y, n);
        return;
    }
    for (uint64_t i = 0, m; i < n; i += m) {
        m = min_u64(STRIP, n - i);
        value(x + i, strip, m);
        memcpy(y + i, strip, m * sizeof *y);
    }
}

static bool is_gated(OpFn fn)
{
    return fn == FN_GATED_GELU || fn == FN_GATED_SILU;
}

/* y = act(gate) up */
static void gated_row(Strip *value, const float *gate, const float *up, float *y, uint64_t n)
{
    float strip[STRIP];
    for (uint64_t i = 0, m; i < n; i += m) {
        m = min_u64(STRIP, n - i);
        value(gate + i, strip, m);
        for (uint64_t k = 0; k < m; k++)
            y[i + k] = strip[k] * up[i + k];
    }
}

/* x [b] -> y, or x* */
static void activation_forward(Call *c)
{
    uint64_t rows = c->op->u.rows.rows, columns = c->op->u.rows.columns;
    bool gated = is_gated(c->op->fn), biased = call_reads(c->b, c->n) == 2;
    uint64_t width = gated ? 2 * columns : columns;
    float *y = c->x[c->n - 1], *row = c->extra;
    if (!gated && !biased) {
        activate(c->env, c->op->fn, c->x[0], y, c->b[0].elements);
        return;
    }
    Strip *value = curves_of(c->env, c->op->fn).value;
    for (uint64_t r = 0; r < rows; r++) {
        memcpy(row, c->x[0] + r * width, width * sizeof *row);
        for (uint64_t i = 0; biased && i < width; i++)
            row[i] += c->x[1][i];
        if (gated)
            gated_row(value, row, row + columns, y + r * columns, columns);
        else
            value(row, y + r * columns, columns);
    }
}

/* dgate = dy up act'(gate), dup = dy act(gate) */
static void gated_row_back(Curves f, const float *restrict dy, const float *restrict gate,
                           const float *restrict up, float *restrict dgate, float *restrict dup,
                           uint64_t n)
{
    float slope[STRIP], value[STRIP];
    for (uint64_t i = 0, m; i < n; i += m) {
        m = min_u64(STRIP, n - i);
        f.slope(gate + i, slope, m);
        f.value(gate + i, value, m);
        for (uint64_t k = 0; k < m; k++)
            dgate[i + k] = dy[i + k] * up[i + k] * slope[k];
        for (uint64_t k = 0; k < m; k++)
            dup[i + k] = dy[i + k] * value[k];
    }
}

static void gated_back(const Call *c, Curves f)
{
    uint64_t rows = c->op->u.rows.rows, columns = c->op->u.rows.columns;
    for (uint64_t r = 0; r < rows; r++) {
        const float *gate = c->x[1] + 2 * r * columns;
        float *dgate = c->x[2] + 2 * r * columns;
        gated_row_back(f, c->x[0] + r * columns, gate, gate + columns, dgate, dgate + columns,
                       columns);
    }
}

/* dx = dy act'(x) */
static void curve_back(Strip *slope, const float *restrict dy, const float *restrict x,
                       float *restrict dx, uint64_t n)
{
    float strip[STRIP];
    for (uint64_t i = 0, m; i < n; i += m) {
        m = min_u64(STRIP, n - i);
        slope(x + i, strip, m);
        for (uint64_t k = 0; k < m; k++)
            dx[i + k] = dy[i + k] * strip[k];
    }
}

/* dy x -> dx;  relu: dy y -> dx, which is the same, as y > 0 where x > 0 */
static void activation_backward(Call *c)
{
    const float *dy = c->x[0], *x = c->x[1];
    float *dx = c->x[2];
    uint64_t n = c->b[0].elements;
    Curves f = curves_of(c->env, c->op->fn);
    if (is_gated(c->op->fn))
        gated_back(c, f);
    else if (c->op->fn == FN_RELU)
        relu_back(dy, x, dx, n);
    else
        curve_back(f.slope, dy, x, dx, n);
}

void kernel_activation(KernelEnv *env, const Program *p, const Task *t)
{
    Call c = call_open(env, p, t, CALL_WHOLLY, 2 * t->op->u.rows.columns * sizeof(float));
    if (op_is_forward(t->op))
        activation_forward(&c);
    else
        activation_backward(&c);
    call_close(&c);
}

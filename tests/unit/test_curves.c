/*
 * test_curves.c - exp and activations against libm in f64, what they make of numbers that are
 * none, and that loops over them give the bits of one number at a time, however they run.
 */
#include "exec/curves.h"

#include <math.h>

#include "exec/kernel_parts.h"
#include "tests/check.h"

static const float step = 0.00173f;

typedef struct Case {
    float (*curve)(float x);
    double (*want)(double x);
    double within; /* of numbers below 1; of larger ones as a part */
} Case;

static double normal_of(double x)
{
    return erfc(-x / sqrt(2)) / 2;
}
static double gelu_of(double x)
{
    return x * normal_of(x);
}
static double gelu_slope_of(double x)
{
    return normal_of(x) + x * exp(-x * x / 2) / sqrt(2 * acos(-1));
}
static double inner_of(double x)
{
    return sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x);
}
static double gelu_tanh_of(double x)
{
    return x / 2 * (1 + tanh(inner_of(x)));
}
static double gelu_tanh_slope_of(double x)
{
    double t = tanh(inner_of(x)), inner = sqrt(2 / acos(-1)) * (1 + 3 * 0.044715 * x * x);
    return (1 + t) / 2 + x / 2 * (1 - t * t) * inner;
}
static double silu_of(double x)
{
    return x / (1 + exp(-x));
}
static double silu_slope_of(double x)
{
    double s = 1 / (1 + exp(-x));
    return s * (1 + x * (1 - s));
}

static const Case cases[] = {
    { curve_gelu, gelu_of, 2e-7 },
    { curve_gelu_slope, gelu_slope_of, 3e-7 },
    { curve_gelu_tanh, gelu_tanh_of, 2e-7 },
    { curve_gelu_tanh_slope, gelu_tanh_slope_of, 3e-6 },
    { curve_silu, silu_of, 2e-7 },
    { curve_silu_slope, silu_slope_of, 2e-6 },
};

static void exp_is_within_a_unit_of_the_last_place(void)
{
    double worst = 0;
    for (float x = -86.5f; x < 88.7f; x += step) {
        float want = (float)exp((double)x);
        double unit = (double)(nextafterf(want, INFINITY) - want);
        worst = fmax(worst, fabs((double)curve_exp(x) - exp((double)x)) / unit);
    }
    CHECK(worst > 0.4 && worst < 1.0);
    CHECK(curve_exp(0) == 1);
}

static void exp_ends_as_it_should(void)
{
    CHECK(curve_exp(-88) == 0 && curve_exp(-1e30f) == 0 && curve_exp(-INFINITY) == 0);
    CHECK(isinf(curve_exp(88.73f)) && isinf(curve_exp(INFINITY)) && isnan(curve_exp(NAN)));
    CHECK(isfinite(curve_exp(88.72f)) && curve_exp(-86.9f) > 0);
}

static void activations_are_those_of_the_definition(void)
{
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        double worst = 0;
        for (float x = -30; x < 30; x += step) {
            double want = cases[i].want((double)x);
            double off = fabs((double)cases[i].curve(x) - want) / fmax(1, fabs(want));
            worst = fmax(worst, off);
        }
        CHECK(worst > 0 && worst < cases[i].within);
    }
}

static void activations_end_as_they_should(void)
{
    CHECK(curve_gelu(1e30f) == 1e30f && curve_gelu_tanh(1e10f) == 1e10f);
    CHECK(curve_silu(1e30f) == 1e30f && curve_gelu_slope(1e10f) == 1);
    CHECK(curve_gelu(-1e30f) == 0 && curve_gelu_tanh(-1e10f) == 0 && curve_silu(-1e30f) == 0);
    for (size_t i = 0; i < ARRAY_N(cases); i++)
        CHECK(isnan(cases[i].curve(NAN)));
    CHECK(curve_relu(-1) == 0 && curve_relu(2) == 2 && curve_relu_slope(-1) == 0);
    CHECK(curve_relu2(3) == 9 && curve_relu2_slope(3) == 6 && curve_relu2(-3) == 0);
}

enum { MANY = 1100 }; /* two strips, a wide vector and some */

static void fill(float *x, float first)
{
    for (uint32_t i = 0; i < MANY; i++)
        x[i] = first + (float)i * 0.0371f;
}

/* Wide or narrow, in place or not, and at the end of a row. */
static void a_loop_gives_the_bits_of_one_number(void)
{
    static const OpFn fns[] = { FN_GELU, FN_SILU, FN_RELU2, FN_RELU };
    static float (*const curves[])(float) = { curve_gelu, curve_silu, curve_relu2, curve_relu };
    KernelEnv env = { 0 };
    float x[MANY], y[MANY];
    for (size_t f = 0; f < ARRAY_N(fns); f++)
        for (uint32_t n = MANY - 9; n < MANY; n++) {
            fill(x, -20);
            activate(&env, fns[f], x, y, n);
            activate(&env, fns[f], x, x, n);
            for (uint32_t i = 0; i < n; i++) {
                float want = curves[f](-20 + (float)i * 0.0371f);
                if (bits_of_f32(y[i]) != bits_of_f32(want) ||
                    bits_of_f32(x[i]) != bits_of_f32(want))
                    CHECK_U64(bits_of_f32(want), bits_of_f32(y[i]));
            }
            CHECK(x[n] > -20); /* not written */
        }
}

static void rows_are_summed_to_their_ends(void)
{
    float x[MANY], y[MANY];
    for (uint64_t n = 1; n < 40; n++) {
        double sum = 0, dot = 0, squares = 0, exps = 0;
        fill(x, -0.5f);
        fill(y, 3);
        for (uint64_t i = 0; i < n; i++) {
            sum += (double)x[i];
            dot += (double)x[i] * (double)y[i];
            squares += ((double)x[i] - 0.25) * ((double)x[i] - 0.25);
            exps += exp((double)x[i] - 2);
        }
        CHECK(fabs(sum - row_sum(x, n)) < 1e-12);
        CHECK(fabs(dot - row_dot(x, y, n)) < 1e-12);
        CHECK(fabs(squares - row_squares(x, 0.25, n)) < 1e-12);
        CHECK_NEAR(exps, row_sum_of_exp(x, 2, n), 1e-7);
        CHECK(row_max(x, n) == x[n - 1]);
        x[n / 2] = 99;
        CHECK(row_max(x, n) == 99);
        row_exp(y, 2, 0.5f, n);
        CHECK_NEAR(exp(1 + (double)(n - 1) * 0.0371) / 2, (double)y[n - 1], 1e-6);
        CHECK(y[n] > 3); /* not written */
    }
    CHECK(row_sum(x, 0) == 0 && row_max(x, 0) == -INFINITY && row_sum_of_exp(x, 0, 0) == 0);
}

int main(void)
{
    RUN(exp_is_within_a_unit_of_the_last_place);
    RUN(exp_ends_as_it_should);
    RUN(activations_are_those_of_the_definition);
    RUN(activations_end_as_they_should);
    RUN(a_loop_gives_the_bits_of_one_number);
    RUN(rows_are_summed_to_their_ends);
    return check_report();
}

/*
 * curves.h - exp and what activations make of a number, for loops that become vector
 * instructions: libm's expf, erff and tanhf are calls, which takes five times as long.
 *
 *     exp       x = n ln 2 + r, |r| <= ln(2)/2:  2^n (1 + r + r^2 q(r)).  Below 2^-125 it is 0,
 *               above the largest f32 infinite, of a NaN a NaN; else within 2 units of the last
 *               place.
 *     normal    the part of a normal distribution below x:  below 0  exp(-x^2/2) t q(t) with
 *               t = 1/(1 + |x|/4), else 1 less that of -x.  The form is C. Hastings' (Abramowitz
 *               and Stegun, 26.2.17); within 2e-7.
 *
 * The coefficients have the least largest error (absolute for normal, relative for exp), found by
 * least squares weighted anew until all maxima are alike (Lawson's way), from f64.
 *
 * Nothing branches on values, and there are only sums, products and quotients, each rounded by
 * itself: the widest instructions of a processor give the bits that the narrowest do.
 */
#ifndef LOCKSTEP_EXEC_CURVES_H
#define LOCKSTEP_EXEC_CURVES_H

#include "exec/number.h"

/* Before a function: compiled for eight numbers at a time, too, which runs where the processor has
 * such instructions (glibc's loader chooses, before there are sanitizers). */
#if defined __x86_64__ && defined __GLIBC__ && defined __GNUC__ && !defined __clang__ && \
    !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
#define WIDE __attribute__((target_clones("avx2", "default")))
#else
#define WIDE
#endif

static inline float curve_exp(float x)
{
    const float whole = 0x1.8p23f; /* added, it leaves no fraction */
    x = x > 89 ? 89 : x;
    x = x < -87.3f ? -87.3f : x;
    float shifted = x * 1.44269504f + whole, n = shifted - whole;
    /* ln 2 in two parts, the first short enough for n times it to be exact */
    float r = (x - n * 0x1.62e4p-1f) - n * 1.42860682e-6f;
    float q = 0.00138144669f;
    q = q * r + 0.00836878041f;
    q = q * r + 0.0416683942f;
    q = q * r + 0.166665201f;
    q = q * r + 0.499999934f;
    uint32_t power = bits_of_f32(shifted) - bits_of_f32(whole) + 126; /* 2^(n-1), 0 for -126 */
    return (1 + (r + r * r * q)) * f32_of_bits(power << 23) * 2;
}

/* 1/(1 + exp(-x)) */
static inline float curve_logistic(float x)
{
    return 1 / (1 + curve_exp(-x));
}

/* The part of a normal distribution below x; bell: exp(-x^2/2). */
static inline float curve_normal(float x, float bell)
{
    float t = 1 / (1 + 0.25f * (x < 0 ? -x : x));
    float q = -0.0891327374f;
    q = q * t + 0.329010311f;
    q = q * t - 0.240346965f;
    q = q * t + 0.251293944f;
    q = q * t + 0.0435096337f;
    q = q * t + 0.105999931f;
    q = q * t + 0.0996658801f;
    float below = bell * t * q;
    return x > 0 ? 1 - below : below;
}

static inline float curve_gelu(float x)
{
    return x * curve_normal(x, curve_exp(-0.5f * x * x));
}

static inline float curve_gelu_slope(float x)
{
    float bell = curve_exp(-0.5f * x * x);
    return curve_normal(x, bell) + x * 0.39894228f * bell; /* 1/sqrt(2 pi) */
}

/* x/2 (1 + tanh u) is x/(1 + exp(-2 u)); here is 2 u */
static inline float curve_gelu_tanh_argument(float x)
{
    return 1.59576912f * (x + 0.044715f * x * x * x); /* 2 sqrt(2/pi) */
}

static inline float curve_gelu_tanh(float x)
{
    return x * curve_logistic(curve_gelu_tanh_argument(x));
}

static inline float curve_gelu_tanh_slope(float x)
{
    float s = curve_logistic(curve_gelu_tanh_argument(x));
    float inner = 1.59576912f * (1 + 3 * 0.044715f * x * x);
    return s + x * s * (1 - s) * inner;
}

static inline float curve_relu(float x)
{
    return x > 0 ? x : 0;
}

static inline float curve_relu_slope(float x)
{
    return x > 0 ? 1 : 0;
}

static inline float curve_relu2(float x)
{
    return x > 0 ? x * x : 0;
}

static inline float curve_relu2_slope(float x)
{
    return x > 0 ? 2 * x : 0;
}

static inline float curve_silu(float x)
{
    return x * curve_logistic(x);
}

static inline float curve_silu_slope(float x)
{
    float s = curve_logistic(x);
    return s * (1 + x * (1 - s));
}

#endif

/*
 * number.h - f32 to and from what a tensor is stored in.
 *
 * Narrowing rounds to nearest, ties to even; what is too large becomes infinite.
 */
#ifndef LOCKSTEP_EXEC_NUMBER_H
#define LOCKSTEP_EXEC_NUMBER_H

#include "core/dtype.h"

#include <math.h>
#include <string.h>

static inline float f32_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t bits_of_f32(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline uint16_t bf16_of_f32(float x)
{
    uint32_t bits = bits_of_f32(x);
    if (isnan(x))
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float f32_of_bf16(uint16_t x)
{
    return f32_of_bits((uint32_t)x << 16);
}

static inline uint16_t f16_of_f32(float x)
{
    uint32_t bits = bits_of_f32(x), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    if (isnan(x))
        return (uint16_t)(sign | 0x7e00);
    if (rest >= 0x47800000) /* 2^16 and more */
        return (uint16_t)(sign | 0x7c00);
    if (rest < 0x38800000) { /* below 2^-14: a multiple of 2^-24; adding 0.5 rounds to it */
        uint32_t units = bits_of_f32(f32_of_bits(rest) + 0.5f) - bits_of_f32(0.5f);
        return (uint16_t)(sign | units);
    }
    uint32_t rounded = rest - 0x38000000 + 0xfff + (rest >> 13 & 1);
    return (uint16_t)(sign | rounded >> 13);
}

static inline float f32_of_f16(uint16_t x)
{
    uint32_t exponent = x >> 10 & 0x1f, fraction = x & 0x3ff;
    float size = exponent == 0x1f ? (fraction ? NAN : INFINITY)
                 : exponent       ? f32_of_bits((exponent + 112) << 23 | fraction << 13)
                                  : (float)fraction * 0x1p-24f;
    return x & 0x8000 ? -size : size;
}

/* n numbers as f32; DTYPE_F32, TF32, F16 and BF16 only. */
static inline void numbers_widen(DType dtype, const void *from, uint64_t n, float *to)
{
    const uint16_t *half = from;
    ASSERT(dtype <= DTYPE_BF16);
    if (dtype_bytes(dtype) == 4)
        memcpy(to, from, n * sizeof *to);
    for (uint64_t i = 0; dtype_bytes(dtype) == 2 && i < n; i++)
        to[i] = dtype == DTYPE_F16 ? f32_of_f16(half[i]) : f32_of_bf16(half[i]);
}

static inline void numbers_narrow(DType dtype, const float *from, uint64_t n, void *to)
{
    uint16_t *half = to;
    ASSERT(dtype <= DTYPE_BF16);
    if (dtype_bytes(dtype) == 4)
        memcpy(to, from, n * sizeof *from);
    for (uint64_t i = 0; dtype_bytes(dtype) == 2 && i < n; i++)
        half[i] = dtype == DTYPE_F16 ? f16_of_f32(from[i]) : bf16_of_f32(from[i]);
}

#endif

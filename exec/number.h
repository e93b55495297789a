/*
 * number.h - f32 to and from what a tensor is stored in.
 *
 * Narrowing rounds to nearest, ties to even; what is too large becomes infinite, a NaN stays
 * one.  Widening is exact.
 *
 * TIME does not depend on the values: nothing branches on them, so that loops over them become
 * vector instructions, and no f32 below 2^-126 is computed with, which takes processors a
 * hundred times as long.  Gradients in f16 are often subnormal, and between loss and update
 * every number goes through here.
 */
#ifndef LOCKSTEP_EXEC_NUMBER_H
#define LOCKSTEP_EXEC_NUMBER_H

#include "core/dtype.h"

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

/* a or b, computed both. */
static inline uint32_t number_pick(bool first, uint32_t a, uint32_t b)
{
    uint32_t mask = 0u - (uint32_t)first;
    return (a & mask) | (b & ~mask);
}

static inline uint16_t bf16_of_f32(float x)
{
    uint32_t bits = bits_of_f32(x), quiet = bits >> 16 | 0x40;
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    bool nan = (int32_t)(bits & 0x7fffffff) > 0x7f800000;
    return (uint16_t)number_pick(nan, quiet, rounded);
}

static inline float f32_of_bf16(uint16_t x)
{
    return f32_of_bits((uint32_t)x << 16);
}

/* Sizes are compared as signed numbers, as vector instructions do. */
static inline uint16_t f16_of_f32(float x)
{
    uint32_t bits = bits_of_f32(x), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    int32_t size = (int32_t)rest;
    uint32_t half = (rest - 0x38000000 + 0xfff + (rest >> 13 & 1)) >> 13;
    /* Below 2^-14: a multiple of 2^-24, adding 0.5 rounds to it; up to 2^-25 that is 0. */
    uint32_t seen = number_pick(size > 0x33000000, rest, 0);
    uint32_t units = bits_of_f32(f32_of_bits(seen) + 0.5f) - bits_of_f32(0.5f);
    half = number_pick(size < 0x38800000, units, half);
    half = number_pick(size >= 0x47800000, 0x7c00, half); /* 2^16 and more */
    half = number_pick(size > 0x7f800000, 0x7e00, half);  /* NaN */
    return (uint16_t)(sign | half);
}

static inline float f32_of_f16(uint16_t x)
{
    uint32_t sign = (uint32_t)(x & 0x8000) << 16;
    int32_t size = x & 0x7fff;
    uint32_t bits = ((uint32_t)size << 13) + 0x38000000; /* 2^-15 is where f16 has 0 */
    uint32_t infinite = number_pick(size >= 0x7c00, 0x38000000, 0); /* or NaN */
    /* Without an exponent it counts 2^-24: as much as it adds to 2^-14. */
    uint32_t few = bits_of_f32(f32_of_bits(bits + 0x00800000) - 0x1p-14f);
    return f32_of_bits(sign | number_pick(size < 0x0400, few, bits + infinite));
}

/* n numbers as f32; DTYPE_F32, TF32, F16 and BF16 only. */
static inline void numbers_widen(DType dtype, const void *from, uint64_t n, float *to)
{
    const uint16_t *half = from;
    ASSERT(dtype <= DTYPE_BF16);
    if (dtype == DTYPE_F16)
        for (uint64_t i = 0; i < n; i++)
            to[i] = f32_of_f16(half[i]);
    else if (dtype == DTYPE_BF16)
        for (uint64_t i = 0; i < n; i++)
            to[i] = f32_of_bf16(half[i]);
    else
        memcpy(to, from, n * sizeof *to);
}

static inline void numbers_narrow(DType dtype, const float *from, uint64_t n, void *to)
{
    uint16_t *half = to;
    ASSERT(dtype <= DTYPE_BF16);
    if (dtype == DTYPE_F16)
        for (uint64_t i = 0; i < n; i++)
            half[i] = f16_of_f32(from[i]);
    else if (dtype == DTYPE_BF16)
        for (uint64_t i = 0; i < n; i++)
            half[i] = bf16_of_f32(from[i]);
    else
        memcpy(to, from, n * sizeof *from);
}

#endif

/*
 * fabric_sum.c - sums block by block: widen, add, round, write.
 *
 * Loops over a fixed number of elements of local arrays are what gcc -O2 turns into
 * vector instructions; a block is that number, the rest goes one by one.
 */
#include "exec/fabric_sum.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 1024 }; /* elements: 4 KiB of f32 */

bool sum_knows(DType t)
{
    return t != DTYPE_FP8;
}

/* ---- f16 and bf16 ---- */

static float f32_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t bits_of_f32(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float widen_bf16(uint16_t h)
{
    return f32_of_bits((uint32_t)h << 16);
}

static uint16_t round_bf16(float x)
{
    uint32_t bits = bits_of_f32(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) /* a NaN stays one */
        return (uint16_t)((bits >> 16) | 0x40u);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/* The exponent is moved by a multiplication, which makes subnormals right as well. */
static float widen_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t rest = (uint32_t)(h & 0x7fffu) << 13;
    if (rest >= 0x0f800000u) /* infinity or NaN */
        return f32_of_bits(sign | 0x7f800000u | (rest & 0x007fffffu));
    return f32_of_bits(sign | bits_of_f32(f32_of_bits(rest) * 0x1p112f));
}

static uint16_t round_f16(float x)
{
    uint32_t bits = bits_of_f32(x);
    uint16_t sign = (uint16_t)((bits >> 16) & 0x8000u);
    bits &= 0x7fffffffu;
    if (bits > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u);
    if (bits >= 0x477ff000u) /* 65520 and more round to infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (bits < 0x38800000u) { /* subnormal: adding 0.5 leaves the bits below, rounded */
        uint32_t low = bits_of_f32(f32_of_bits(bits) + 0.5f) - 0x3f000000u;
        return (uint16_t)(sign | low);
    }
    bits += 0xfffu + ((bits >> 13) & 1u) - 0x38000000u;
    return (uint16_t)(sign | (bits >> 13));
}

/* ---- one block ---- */

static void widen(float *to, const uint8_t *from, size_t n, DType t)
{
    const uint16_t *half = (const uint16_t *)(const void *)from;
    if (t == DTYPE_BF16)
        for (size_t i = 0; i < n; i++)
            to[i] = widen_bf16(half[i]);
    else if (t == DTYPE_F16)
        for (size_t i = 0; i < n; i++)
            to[i] = widen_f16(half[i]);
    else
        memcpy(to, from, n * sizeof *to);
}

static void narrow(uint8_t *to, const float *from, size_t n, DType t)
{
    uint16_t *half = (uint16_t *)(void *)to;
    if (t == DTYPE_BF16)
        for (size_t i = 0; i < n; i++)
            half[i] = round_bf16(from[i]);
    else if (t == DTYPE_F16)
        for (size_t i = 0; i < n; i++)
            half[i] = round_f16(from[i]);
    else
        memcpy(to, from, n * sizeof *from);
}

/* Four floats as one value of the compiler's; loads and stores go anywhere. */
typedef float F4 __attribute__((vector_size(16), aligned(4), may_alias));
enum { F4_BYTES = sizeof(F4), F4_N = 4 };

static void add_f32(float *acc, const float *x, size_t n)
{
    size_t i = 0;
    for (; i + F4_N <= n; i += F4_N)
        *(F4 *)(void *)(acc + i) += *(const F4 *)(const void *)(x + i);
    for (; i < n; i++)
        acc[i] += x[i];
}

/* A NaN wins, so that it is seen; -0 and +0 keep what came first. */
static void largest_f32(float *acc, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (x[i] > acc[i] || isnan(x[i]))
            acc[i] = x[i];
}

static void combine_block_f32(uint8_t *block, const uint8_t *const *from, uint32_t n,
                              uint64_t at, size_t elements, DType t, bool maximum)
{
    float acc[BLOCK], wide[BLOCK];
    uint64_t size = dtype_bytes(t);
    bool plain = size == sizeof(float);
    widen(acc, from[0] + at * size, elements, t);
    for (uint32_t v = 1; v < n; v++) {
        const float *x = (const float *)(const void *)(from[v] + at * size);
        if (!plain) {
            widen(wide, from[v] + at * size, elements, t);
            x = wide;
        }
        if (maximum)
            largest_f32(acc, x, elements);
        else
            add_f32(acc, x, elements);
    }
    narrow(block, acc, elements, t);
}

static void combine_block_i32(uint8_t *block, const uint8_t *const *from, uint32_t n,
                              uint64_t at, size_t elements, bool maximum)
{
    int32_t *acc = (int32_t *)(void *)block;
    memcpy(acc, from[0] + at * sizeof *acc, elements * sizeof *acc);
    for (uint32_t v = 1; v < n; v++) {
        const int32_t *x = (const int32_t *)(const void *)(from[v] + at * sizeof *acc);
        for (size_t i = 0; i < elements; i++) {
            int32_t sum = (int32_t)((uint32_t)acc[i] + (uint32_t)x[i]);
            int32_t larger = x[i] > acc[i] ? x[i] : acc[i];
            acc[i] = maximum ? larger : sum;
        }
    }
}

static void combine_block_i64(uint8_t *block, const uint8_t *const *from, uint32_t n,
                              uint64_t at, size_t elements, bool maximum)
{
    int64_t *acc = (int64_t *)(void *)block;
    memcpy(acc, from[0] + at * sizeof *acc, elements * sizeof *acc);
    for (uint32_t v = 1; v < n; v++) {
        const int64_t *x = (const int64_t *)(const void *)(from[v] + at * sizeof *acc);
        for (size_t i = 0; i < elements; i++) {
            int64_t sum = (int64_t)((uint64_t)acc[i] + (uint64_t)x[i]);
            acc[i] = maximum ? max_i64(acc[i], x[i]) : sum;
        }
    }
}

/* ---- all blocks ---- */

/* Two vectors summed into two places, the most frequent case, needs no block in between. */
static void add_two_f32(float *to0, float *to1, const float *a, const float *b, uint64_t n)
{
    uint64_t i = 0;
    for (; i + F4_N <= n; i += F4_N) {
        F4 sum = *(const F4 *)(const void *)(a + i) + *(const F4 *)(const void *)(b + i);
        *(F4 *)(void *)(to0 + i) = sum;
        *(F4 *)(void *)(to1 + i) = sum;
    }
    for (; i < n; i++)
        to0[i] = to1[i] = a[i] + b[i];
}

void sum_vectors(uint8_t *const *to, uint32_t to_n, const uint8_t *const *from, uint32_t n,
                 uint64_t elements, DType t, bool maximum)
{
    ASSERT(n > 0 && sum_knows(t));
    if (n == 2 && to_n == 2 && !maximum && (t == DTYPE_F32 || t == DTYPE_TF32)) {
        add_two_f32((float *)(void *)to[0], (float *)(void *)to[1],
                    (const float *)(const void *)from[0], (const float *)(const void *)from[1],
                    elements);
        return;
    }
    _Alignas(16) uint8_t block[BLOCK * sizeof(int64_t)];
    uint64_t size = dtype_bytes(t);
    for (uint64_t at = 0; at < elements; at += BLOCK) {
        size_t block_n = (size_t)min_u64(BLOCK, elements - at);
        if (t == DTYPE_I64)
            combine_block_i64(block, from, n, at, block_n, maximum);
        else if (t == DTYPE_I32)
            combine_block_i32(block, from, n, at, block_n, maximum);
        else
            combine_block_f32(block, from, n, at, block_n, t, maximum);
        for (uint32_t k = 0; k < to_n; k++)
            memcpy(to[k] + at * size, block, block_n * size);
    }
}

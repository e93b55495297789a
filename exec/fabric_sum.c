/*
 * fabric_sum.c - sums block by block: widen, add, round, write.
 *
 * A block stays in the L1 cache.
 */
#include "exec/fabric_sum.h"

#include <math.h>
#include <string.h>

#include "exec/number.h"

enum { BLOCK = 1024 }; /* elements: 4 KiB of f32 */

/* Whether this format can be summed; fp8 cannot. */
static bool is_known(DType t)
{
    return t != DTYPE_FP8;
}

/* ---- one block ---- */

/* Four floats as one value of the compiler's; loads and stores go anywhere. */
typedef float F4 __attribute__((vector_size(16), aligned(4), may_alias));
enum { F4_N = 4 };

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
    numbers_widen(t, from[0] + at * size, elements, acc);
    for (uint32_t v = 1; v < n; v++) {
        const float *x = (const float *)(const void *)(from[v] + at * size);
        if (!plain) {
            numbers_widen(t, from[v] + at * size, elements, wide);
            x = wide;
        }
        if (maximum)
            largest_f32(acc, x, elements);
        else
            add_f32(acc, x, elements);
    }
    numbers_narrow(t, acc, elements, block);
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
    ASSERT(n > 0 && is_known(t));
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

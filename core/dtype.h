/*
 * dtype.h - number formats, as the scenario spells them.
 */
#ifndef LOCKSTEP_CORE_DTYPE_H
#define LOCKSTEP_CORE_DTYPE_H

#include "core/base.h"

typedef enum DType {
    DTYPE_F32,
    DTYPE_TF32, /* f32 in memory, 10-bit mantissa in the matmul units */
    DTYPE_F16,
    DTYPE_BF16,
    DTYPE_FP8,
    DTYPE_I32,
    DTYPE_I64,
    DTYPE_N
} DType;

extern const char *const dtype_names[DTYPE_N]; /* "f32", "tf32", ... */

static inline uint64_t dtype_bytes(DType t)
{
    static const uint8_t bytes[DTYPE_N] = { 4, 4, 2, 2, 1, 4, 8 };
    ASSERT(t < DTYPE_N);
    return bytes[t];
}

#endif

/* dtype.c - the names. */
#include "core/dtype.h"

const char *const dtype_names[DTYPE_N] = { "f32", "tf32", "f16", "bf16", "fp8", "i32", "i64" };

/*
 * shapes.h - which matrix products are worth timing, the most valuable first.
 *
 * A linear layer of `in` by `out` over t tokens is three products (lt.h): forward,
 * gradient of the input, gradient of the weight.  The list crosses the linear layers of
 * well-known models with tensor-parallel degrees, tokens and these three, and adds
 * sweeps between which a table can interpolate.  No product stands in it twice.  The
 * gemm part walks it until its time is up.
 */
#ifndef GPU_SHAPES_H
#define GPU_SHAPES_H

#include <stddef.h>

#include "lt.h"

typedef struct ShapeList {
    GemmSpec *spec;
    size_t n, cap;
} ShapeList;

void shapes_make(ShapeList *list);
void shapes_make_fp8(ShapeList *list); /* the same of fp8 alone, to be walked by itself */
void shapes_free(ShapeList *list);

#endif

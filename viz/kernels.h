/*
 * kernels.h - which names took the most time within a window, exactly.
 */
#ifndef LOCKSTEP_VIZ_KERNELS_H
#define LOCKSTEP_VIZ_KERNELS_H

#include "viz/data.h"

typedef struct KernelTotal {
    uint32_t name; /* interned */
    uint8_t span_class;
    uint64_t count;   /* spans that touch the window */
    int64_t total_ns; /* of their parts within it, over the ranks asked for */
} KernelTotal;

/*
 * The longest n totals, longest first; of streams of the ranks given (NULL: all).  Looks at
 * every span of the window.  Returns how many there are.
 */
uint32_t kernels_top(const ViewData *d, const bool *ranks, int64_t from_ns, int64_t to_ns,
                     KernelTotal *top, uint32_t n);

#endif

/*
 * kernels.h - which kernels took the most time within a window, exactly.
 *
 * For every row of a stream, running sums by name are kept at every so many spans, so a
 * window costs two partial blocks and one difference per row: half a millisecond for ten
 * million spans (bench_view), where a look at all of them takes thirty.
 *
 *     spans    |.......|.......|.......|.......|
 *     sums     S0      S1      S2      S3           by name, of all spans before
 *     window         [-----------------)            S3 - S1, and two part blocks
 */
#ifndef LOCKSTEP_VIZ_KERNELS_H
#define LOCKSTEP_VIZ_KERNELS_H

#include "viz/data.h"

typedef struct KernelTotal {
    uint32_t name; /* interned */
    uint8_t span_class;
    uint64_t count;   /* spans that begin in the window or reach into it */
    int64_t total_ns; /* of their parts within it, over the ranks asked for */
} KernelTotal;

typedef struct KernelRow {
    uint32_t names_n, block; /* names of this row; spans in a block */
    uint32_t *name;          /* interned, by place within the row */
    uint8_t *class_;         /* SpanClass, likewise */
    uint64_t blocks_n;
    int64_t *ns;     /* block * names_n + place: of spans before the block */
    uint64_t *count; /* likewise */
} KernelRow;

typedef struct KernelSums {
    const ViewData *data; /* NULL: not built */
    KernelRow *rows;      /* beside ViewData.rows; of streams */
} KernelSums;

/* One pass over the spans of streams, 2 bytes each. */
void kernels_open(KernelSums *k, const ViewData *d);
void kernels_free(KernelSums *k);

/* The longest n totals, longest first, of the ranks given (NULL: all), whose clocks are ahead
 * by shift_ns (by rank; NULL: none).  Returns how many. */
uint32_t kernels_top(const KernelSums *k, const bool *ranks, const int64_t *shift_ns,
                     int64_t from_ns, int64_t to_ns, KernelTotal *top, uint32_t n);

/*
 * How long the spans of one name that are in the window took, each as a whole, counted as often
 * as their rank stands for ranks.  The p-th percentile is the least duration that at least p %
 * of them do not exceed.  Looks at every span in the window.
 */
typedef struct KernelTimes {
    uint64_t count;
    int64_t mean_ns, p50_ns, p99_ns;
} KernelTimes;

KernelTimes kernels_times(const KernelSums *k, const bool *ranks, const int64_t *shift_ns,
                          int64_t from_ns, int64_t to_ns, uint32_t name);

#endif

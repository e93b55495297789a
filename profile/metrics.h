/*
 * metrics.h - what a GPU was doing when: unions of intervals in exact nanoseconds.
 *
 * The GPU work of a rank, from all its streams, laid over one another gives its
 * Cover: a list of moments, and what is running from each to the next.
 *
 *     stream 1   |==compute==|       |==compute==|
 *     stream 2        |---- comm --------|
 *     cover      C    C+M    M       C+M C        idle          masks
 *                |    |      |       |   |       |
 *                +-- at_ns[i], mask[i] ----------+ end
 *
 * Every number is a sum of lengths by mask.  For any window it costs two searches:
 * sums up to every 64th moment are kept.  Nothing is rounded, nothing counted twice.
 *
 *     compute  kernels that are not communication     overlapped  comm while compute runs
 *     memory   copies and sets                        exposed     comm - overlapped
 *     comm     collectives, sends, receives           busy        any of the three
 *     span     first start to last end, or the window idle        span - busy
 *     exposed vs memory: comm while neither compute nor memory runs
 *
 * Spans of other classes (waits, annotations, the host's) are not looked at.
 */
#ifndef LOCKSTEP_PROFILE_METRICS_H
#define LOCKSTEP_PROFILE_METRICS_H

#include "core/timeline.h"

enum { COVER_COMPUTE = 1, COVER_COMM = 2, COVER_MEMORY = 4, COVER_MASKS = 8, COVER_BLOCK = 64 };

/* Lengths by mask; ns[0] is idle. */
typedef struct CoverSum {
    int64_t ns[COVER_MASKS];
} CoverSum;

/* The GPU work of one rank. */
typedef struct Cover {
    uint32_t rank, ranks_n; /* ranks it stands for (folded simulation), else 1 */
    uint32_t *tracks;       /* those of its streams, in the order of the timeline */
    uint32_t tracks_n;
    int64_t begin_ns, end_ns; /* of its GPU work; both 0 without any */

    /* mask[i] holds from at_ns[i] to at_ns[i + 1]; the last one, mask 0, is end_ns. */
    uint64_t n, cap;
    int64_t *at_ns;
    uint8_t *mask;
    CoverSum *before; /* before[b]: from begin_ns to at_ns[COVER_BLOCK * b] */

    uint64_t compute_n, comm_n, memory_n; /* kernels and copies */
} Cover;

/* Of all ranks that have tracks, by rank. */
typedef struct Covers {
    Cover *rank;
    uint32_t n;
} Covers;

typedef struct Metrics {
    int64_t span_ns, busy_ns, idle_ns, compute_ns, memory_ns, comm_ns;
    int64_t overlapped_ns, exposed_comm_ns, exposed_comm_vs_memory_ns;
    uint64_t compute_kernels, comm_kernels, memory_ops;
} Metrics;

/* The mask's bit of a span's class, 0 for what is no GPU work. */
static inline uint8_t cover_bit(uint8_t span_class)
{
    static const uint8_t bits[SPAN_CLASS_N] = { [SPAN_COMPUTE] = COVER_COMPUTE,
                                                [SPAN_COMM] = COVER_COMM,
                                                [SPAN_P2P] = COVER_COMM,
                                                [SPAN_MEMORY] = COVER_MEMORY };
    return span_class < SPAN_CLASS_N ? bits[span_class] : 0;
}

/*
 * One pass over the streams of a sealed timeline: O(n) where streams overlap, and at most
 * O(n streams).  Measured: 0.1 s for 10 million spans.  covers_free leaves c empty.
 */
void covers_build(Covers *c, const Timeline *t);
/* The same in parts, for several threads: which ranks there are, then each one's cover. */
void covers_open(Covers *c, const Timeline *t);
void cover_build(Cover *c, const Timeline *t);
void covers_free(Covers *c);
const Cover *covers_of_rank(const Covers *c, uint32_t rank); /* NULL: it has no tracks */

/* Lengths by mask between two moments; outside the rank's work all is idle. */
CoverSum cover_window(const Cover *c, int64_t from_ns, int64_t to_ns);

/* The same for many windows in order of time: remembers where the last one ended. */
typedef struct CoverCursor {
    const Cover *cover;
    uint64_t i;   /* moment */
    CoverSum sum; /* up to it */
} CoverCursor;

CoverSum cover_next(CoverCursor *c, int64_t from_ns, int64_t to_ns);

Metrics metrics_of_sum(CoverSum sum);        /* without the counts */
Metrics metrics_of_rank(const Cover *cover); /* span = its GPU work */
/* span = the window; kernels are counted where they start. */
Metrics metrics_of_window(const Cover *cover, const Timeline *t, int64_t from_ns,
                          int64_t to_ns);
/* sum + ns * times; what would be more than an int64 holds (sums over ranks whose clocks make no
 * sense) is INT64_MAX. */
static inline int64_t metrics_sum_ns(int64_t sum_ns, int64_t ns, int64_t times)
{
    bool fits =
        !__builtin_mul_overflow(ns, times, &ns) && !__builtin_add_overflow(sum_ns, ns, &sum_ns);
    return fits ? sum_ns : INT64_MAX;
}

/* Adds the times of m like that, without the counts. */
void metrics_add(Metrics *to, const Metrics *m, int64_t times);
/* Divides the times by n > 0. */
void metrics_divide(Metrics *m, int64_t n);
/* 100 * overlapped / comm; NaN without communication. */
double metrics_overlap_pct(const Metrics *m);

/* Index of the first span of a track that starts at at_ns or later; its end if none does. */
uint64_t track_span_from(const Timeline *t, const Track *track, int64_t at_ns);

/* ---- steps ---- */

/*
 * From a step's span, which the host or the simulator marks.  The GPU may lag behind
 * the host's mark; profile/steps.h says which of its work belongs to a step.
 */
typedef struct StepWindow {
    uint32_t rank;
    int64_t step; /* number at the end of its name, "ProfilerStep#12"; else counted from 0 */
    int64_t from_ns, to_ns;
} StepWindow;

typedef struct StepWindows {
    StepWindow *at; /* by rank, then time */
    uint32_t n, cap;
} StepWindows;

/* Of each rank and number the first span, on a track of steps if the rank has one. */
void step_windows_find(StepWindows *w, const Timeline *t);
void step_windows_free(StepWindows *w);
const StepWindow *step_window_of(const StepWindows *w, uint32_t rank, int64_t step);

#endif

/*
 * gaps.h - why the GPU stood still, which kernels took the time, how idle each stream was.
 *
 * A gap is a time in which none of a rank's streams ran anything: within its GPU work,
 * or of a window the part before, between and behind it, so that the gaps are all of
 * its idle time.  It is named after the kernel that ended it:
 *
 *     host     |launch a|                 |launch b|
 *     stream        |== a ==|                   |== b ==|
 *                           |------- gap --------|
 *
 *     launch    b was launched after the gap began: the host was late
 *     sync      the same, and meanwhile the host waited for the GPU
 *               (cudaStreamSynchronize and the like)
 *     other     b had been launched before: it waited for something else
 *     unknown   the trace has no launch of b, or nothing followed
 *
 * Launch and kernel are joined by correlation id; where a trace has none, by op
 * id: the last launch of that op which began before the kernel did.
 */
#ifndef LOCKSTEP_PROFILE_GAPS_H
#define LOCKSTEP_PROFILE_GAPS_H

#include "profile/collectives.h"
#include "profile/metrics.h"

typedef enum GapKind { GAP_LAUNCH, GAP_SYNC, GAP_OTHER, GAP_UNKNOWN, GAP_KIND_N } GapKind;

extern const char *const gap_kind_names[GAP_KIND_N]; /* "launch", "sync", ... */

typedef struct Gap {
    uint32_t rank; /* index into Covers.rank */
    GapKind kind;
    int64_t at_ns, dur_ns;
    uint64_t next; /* the span that ended it; NONE_U64: nothing followed */
} Gap;

typedef struct GapRank {
    uint64_t n[GAP_KIND_N];
    int64_t ns[GAP_KIND_N];
    bool has_launches; /* the trace says when this rank's kernels were launched */
} GapRank;

typedef struct KernelRow {
    uint32_t name;    /* interned */
    const char *text; /* the timeline's */
    SpanClass class_;
    uint64_t count;
    int64_t total_ns; /* over all ranks, each as often as it stands for one */
} KernelRow;

typedef struct StreamRow {
    uint32_t track;
    uint64_t count;           /* kernels and copies */
    int64_t busy_ns, idle_ns; /* idle: of the rank's span */
} StreamRow;

typedef struct Gaps {
    GapRank *ranks; /* beside Covers.rank */
    Gap *longest;   /* longest first, at most longest_max */
    uint32_t longest_n, longest_cap, longest_max;
    KernelRow *kernels; /* largest total first, equal ones by name */
    uint32_t kernels_n;
    int64_t kernels_ns; /* sum of their totals: what shares are of */
    StreamRow *streams; /* those with GPU work, by rank and then as in the timeline */
    uint32_t streams_n;
} Gaps;

/*
 * Of what is selected (NULL: everything): the part of gaps that lies there, kernels that
 * start there; a rank without GPU work has no gaps.  t must be sealed and checked;
 * longest_max gaps are kept one by one (UINT32_MAX: all).
 */
void gaps_find(Gaps *g, const Timeline *t, const Covers *covers, const Selection *selection,
               uint32_t longest_max);
void gaps_free(Gaps *g);

#endif

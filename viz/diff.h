/*
 * diff.h - a run and its simulation, op by op, as the viewer shows them.
 *
 *     real   |qkv |attn |out|    |ar ==========|      one time axis, step starts aligned
 *     sim    |qkv|attn|out|      |ar =====|
 *     error   ____  ____ ___     ______________       above the middle: the simulation is too
 *             ''''  ''''  '                           slow there, below: too fast
 *     drift   --___----____                           how late the simulation is by then
 *
 * Filled by who pairs the ops (profile/compare.h); plain data here.  Real is side 0, sim
 * is side 1.  Errors are sim - real.
 */
#ifndef LOCKSTEP_VIZ_DIFF_H
#define LOCKSTEP_VIZ_DIFF_H

#include "core/arena.h"
#include "viz/data.h"

/* A kernel and the op it is of, paired with the other side's, as compare's. */
typedef struct ViewPair {
    uint64_t
        span[2]; /* by side; of the other one's kernels the longest; NONE_U64: it has none */
    int64_t time_ns[2]; /* sum over the op's kernels */
    int64_t end_ns[2];  /* of its last one, on the clock of its trace */
} ViewPair;

/* The end of a real op that has a twin; once for each of its kernels. */
typedef struct ViewDrift {
    int64_t at_ns;   /* on the rank's real clock */
    int64_t late_ns; /* its twin's end is later by this, both counted from their steps' begin */
} ViewDrift;

typedef struct ViewDiffRank {
    uint32_t rank[2];    /* index into ranks of each side */
    int64_t begin_ns[2]; /* of the step, on the clock of its trace */
    ViewPair *pairs;     /* by real start; behind them sim's kernels that they do not name */
    uint64_t pairs_n, real_n;
    /* view_diff_index: */
    int64_t *reach_ns; /* by real pair: the latest real end of it and those before */
    /* By at_ns: ops of several streams end in another order than they begin. */
    ViewDrift *drift;
    uint64_t drift_n;
    int64_t drift_max_ns; /* how late or early at most */
} ViewDiffRank;

typedef struct ViewDiffClass {
    const char *name;
    int64_t ns[2];    /* time of its ops */
    double share_pct; /* of the step's difference; NAN */
} ViewDiffClass;

typedef struct ViewDiff {
    ViewDiffRank *ranks;
    uint32_t ranks_n;
    Metrics times[2]; /* means over ranks; span_ns: of the slowest */
    ViewDiffClass *classes;
    uint32_t classes_n;
    double coverage_pct, op_error_pct; /* as compare prints them */
} ViewDiff;

/* The rank of side 0 with that index; NULL: it is not compared. */
const ViewDiffRank *view_diff_rank(const ViewDiff *d, uint32_t real_rank);
/* How much later sim's clock is than real's, where both ranks' steps begin together. */
int64_t view_diff_shift_ns(const ViewDiffRank *r);
/* That of a span of a side, NULL: it has none. */
const ViewPair *view_diff_pair(const ViewDiffRank *r, uint32_t side, uint64_t span);

/* Finds what is drawn of the pairs. */
void view_diff_index(ViewDiffRank *r, const Timeline *real, Arena *arena);
/* The first pair whose real op, or one before it, ends after from_ns of the rank's real clock. */
uint64_t view_diff_first(const ViewDiffRank *r, int64_t from_ns);
/* The drift that holds at from_ns: the last up to then; the first where there is none yet. */
uint64_t view_drift_first(const ViewDiffRank *r, int64_t from_ns);

#endif

/*
 * clocks.h - the clocks of ranks on different hosts, laid over rank 0's.
 *
 * Ranks with one CLOCK_MONOTONIC (one boot of one kernel, one time namespace) know exactly when
 * each other's runs began.  Others meet at barriers: nobody leaves one before all have come, so
 *
 *     before of rank 0 <= after of rank i,   before of rank i <= after of rank 0
 *
 * and what must be added to i's times lies between two bounds.  Each bound is as good as the
 * message that it rests on was quick: rank 0 and the others take turns in coming last.
 *
 * DRIFT.  Clocks of two hosts part by some 10 us in a second.  Samples are taken when a run
 * begins, every CLOCKS_EVERY steps and when it ends.  While one constant satisfies the bounds of
 * all samples, that is the shift: no drift is seen that is not there.  Else it goes in straight
 * lines from sample to sample.  All times are nanoseconds of a run's clock.
 */
#ifndef LOCKSTEP_EXEC_CLOCKS_H
#define LOCKSTEP_EXEC_CLOCKS_H

#include "exec/backend.h"

enum { CLOCKS_EVERY = 1000 };

/* At at_ns of a rank's clock, what is to be added lies in [low_ns, high_ns]. */
typedef struct ClockSample {
    int64_t at_ns, low_ns, high_ns;
} ClockSample;

/* Clocks c = { 0 } has no samples: nothing is shifted. */
typedef struct Clocks {
    uint32_t world_n, samples_n, cap;
    ClockSample *samples; /* [sample][rank] */
} Clocks;

/* All ranks together, outside of a step.  now_ns: the run's clock. */
bool clocks_sample(Clocks *c, Fabric *f, uint32_t rank, uint32_t world_n,
                   int64_t (*now_ns)(const Backend *), const Backend *b, Err *err);
void clocks_free(Clocks *c);

/* What is to be added to a time of this rank to make it rank 0's; n samples in order of time,
 * `stride` apart.  clocks_shift: of rank i. */
int64_t clock_samples_shift(const ClockSample *s, uint32_t n, uint32_t stride, int64_t at_ns);
int64_t clocks_shift(const Clocks *c, uint32_t rank, int64_t at_ns);

#endif

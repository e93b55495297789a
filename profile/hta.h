/*
 * hta.h - the figures of Holistic Trace Analysis 0.6.1, to the digit, for people who
 * compare with it.  metrics.h has the exact ones; this is what HTA makes of a trace:
 *
 *     rows      what has a numeric stream: waits and odd host rows too
 *     times     whole microseconds: if any start of a file is fractional, starts are
 *               rounded up and ends down, so that short kernels vanish or last -1 us.
 *               Starts are doubles: since 1970 they have quarters of microseconds only
 *     steps     if the trace has two or more, the last is dropped, and with it (and
 *               always) kernels whose launch was not recorded
 *     classes   by name: COMMUNICATION nccl*, hip*, hccl*, *ncclKernel*; MEMORY
 *               Memcpy*, Memset*, dma*; COMPUTATION the rest, unless the name has
 *               Memcpy, Memset, dma or Sync in it
 *     overlap   100 * (comm and compute both run) / comm
 *     compute   booked before communication: non-compute = busy - compute
 *
 * Spans of our own traces (those with an op id) have names of their own; they go by
 * their class.
 */
#ifndef LOCKSTEP_PROFILE_HTA_H
#define LOCKSTEP_PROFILE_HTA_H

#include "profile/metrics.h"

typedef struct HtaRank {
    uint32_t rank;
    uint64_t gpu_rows;
    int64_t kernel_time_us, idle_us, compute_us, non_compute_us;
    int64_t comm_us, overlap_us;
    double idle_pct, compute_pct, non_compute_pct; /* NaN without rows */
    double overlap_pct;                            /* rounded as HTA does; NaN without comm */
    int64_t type_us[COVER_MASKS];                  /* time in which exactly these types run */
} HtaRank;

typedef struct Hta {
    HtaRank *ranks; /* beside covers; without rows: all 0 */
    uint32_t ranks_n;
    uint32_t steps_n;             /* distinct names of steps */
    int64_t type_us[COVER_MASKS]; /* sums over the ranks that are summed */
    uint64_t left_out_n;          /* GPU rows of these, dropped by the window */
} Hta;

/*
 * base_ns: beside covers, what the reader added to the times in a rank's file
 * (baseTimeNanoseconds); NULL: nothing.  summed: beside covers, which ranks are; NULL: all.
 * t must be sealed and checked.
 */
void hta_find(Hta *h, const Timeline *t, const Covers *covers, const int64_t *base_ns,
              const bool *summed, bool include_last_step);
void hta_free(Hta *h);

/* "COMPUTATION overlapping COMMUNICATION" of a mask that is not 0. */
char *hta_type_text(char *text, size_t cap, int mask);

#endif

/* collectives_parts.h - what the files of collectives.h share; only collectives*.c include it. */
#ifndef LOCKSTEP_PROFILE_COLLECTIVES_PARTS_H
#define LOCKSTEP_PROFILE_COLLECTIVES_PARTS_H

#include "profile/collectives.h"
#include "profile/steps.h"

static inline int64_t part_dur_ns(const Timeline *t, const CollPart *p)
{
    return p->end_ns - t->start_ns[p->span];
}

/* ---- runs: the parts of one rank in a channel ---- */

/* A part with what it is sorted and matched by. */
typedef struct Keyed {
    int64_t key;
    CollPart part;
} Keyed;

typedef struct Runs {
    Keyed *keyed; /* all parts of the channel */
    uint64_t n, cap;
    uint64_t *first; /* runs_n + 1 */
    uint32_t runs_n, first_cap;
    uint64_t *at; /* one a run, for walking them side by side */
} Runs;

/* The steps of the timeline, found when they are first asked for. */
typedef struct StepsAtHand {
    bool found;
    GpuSteps steps;
} StepsAtHand;

/* By key, and those of one key as they stand in the timeline. */
void runs_sort(Runs *r);

static inline uint64_t run_n(const Runs *r, uint32_t k)
{
    return r->first[k + 1] - r->first[k];
}

static inline bool runs_equal_counts(const Runs *r)
{
    uint32_t k = 1;
    while (k < r->runs_n && run_n(r, k) == run_n(r, 0))
        k++;
    return k >= r->runs_n;
}

/*
 * collectives_step.c: keys the runs, which are in order of start and keyed by their places, by
 * step and place in it, where that is the better guide: where ranks have different counts, or
 * where order takes their clocks to be much further apart.  Kernels of steps that ranks have
 * different counts of match nothing.  False: the runs are as they were.
 */
bool runs_key_by_step(Runs *r, StepsAtHand *steps, const Timeline *t, const Covers *covers);
void steps_at_hand_free(StepsAtHand *s);

/* Fills clocks and the ranks' offsets; may be called again. */
void collectives_clocks(Collectives *c);
/* collectives_guess.c: refuses channels without a group that cannot be one; fills clocks. */
void collectives_refuse_guesses(Collectives *c, const Timeline *t);
/* Fills what remains: waits, rows, sums of ranks. */
void collectives_sum(Collectives *c, const Timeline *t, const Covers *covers,
                     const Selection *selection);

#endif

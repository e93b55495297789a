/*
 * step_choice.h - which of a trace's steps is looked at: the median one, or the one asked for.
 */
#ifndef LOCKSTEP_PROFILE_STEP_CHOICE_H
#define LOCKSTEP_PROFILE_STEP_CHOICE_H

#include "core/base.h"
#include "core/err.h"

typedef struct StepLength {
    int64_t number, ns;
} StepLength;

/*
 * Of steps[0..n), each once, which it orders by length, the shorter of two in the middle; -1 where
 * there are none.  asked: that one, below 0 none is.  False, with err, where it is not there; name:
 * what the trace is called.
 */
bool step_choose(StepLength *steps, uint32_t n, int64_t asked, const char *name, int64_t *step,
                 Err *err);

#endif

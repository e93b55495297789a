/*
 * kernel_pair.h - ops of one kernel on each side, paired as the viewer takes them.
 */
#ifndef LOCKSTEP_TESTS_KERNEL_PAIR_H
#define LOCKSTEP_TESTS_KERNEL_PAIR_H

#include "viz/diff.h"

/* Spans of t[0] and t[1]; NONE_U64: that side has no such op. */
static inline ViewPair kernel_pair(const Timeline *const t[2], uint64_t real, uint64_t sim)
{
    ViewPair pair = { .span = { real, sim } };
    for (int k = 0; k < 2; k++)
        if (pair.span[k] != NONE_U64) {
            pair.time_ns[k] = t[k]->dur_ns[pair.span[k]];
            pair.end_ns[k] = t[k]->start_ns[pair.span[k]] + pair.time_ns[k];
        }
    return pair;
}

#endif

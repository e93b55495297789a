/*
 * lanes.h - rows for intervals, so that intervals of one row never overlap.
 *
 * Feed intervals in order of start, longer ones first; each gets the lowest
 * lane that is free at its start:
 *
 *     |--- a -------|  |- d -|          a, d  lane 0
 *        |- b -|                        b     lane 1
 *          |--- c -------|              c     lane 2
 *
 * Nested intervals (calls of a thread) get their nesting depth.  Two intervals
 * overlap when each starts before the other ends: touching ones do not, and one
 * of length 0 only overlaps what it lies strictly inside of.  O(log lanes) each;
 * there is no limit on the number of lanes.
 *
 * Lanes l = { 0 } is empty; lanes_free leaves it so.
 */
#ifndef LOCKSTEP_CORE_LANES_H
#define LOCKSTEP_CORE_LANES_H

#include "core/base.h"

typedef struct LaneBusy {
    int64_t end_ns;
    uint32_t lane;
} LaneBusy;

typedef struct Lanes {
    uint32_t lanes_n; /* lanes given so far */
    int64_t last_start_ns;
    uint32_t last_start_lane; /* lowest lane given at last_start_ns */

    LaneBusy *busy; /* heap, earliest end on top */
    uint32_t busy_n, busy_cap;
    uint32_t *idle; /* heap, lowest lane on top */
    uint32_t idle_n, idle_cap;
} Lanes;

/* dur_ns >= 0; start_ns not before that of the last call. */
uint32_t lanes_take(Lanes *l, int64_t start_ns, int64_t dur_ns);
void lanes_clear(Lanes *l); /* empty again, keeps its memory */
void lanes_free(Lanes *l);

#endif

/*
 * shorten.h - fewer micro-batches than are meant, where the others go by like these.
 *
 *     meant     F F F F F F F F ... F F F F B B B B         768 micro-batches
 *     built     F F F F F F F F B B B B                     60: how it begins, how it ends, and
 *                                                           enough between for a steady state
 *
 * A Shortening lists the numbers of micro-batches to try, rising; the last is what is meant.
 * A graph of fewer needs the same memory, and sim_run counts those left out when it has seen
 * the steady state that they are in (SimOptions.left_out), or a pace that it can be sure of to
 * 1 / 250 of the step; when it has not, the next number is tried.  Only plan shortens: what sim
 * and validate print is of whole graphs.
 */
#ifndef LOCKSTEP_SIM_SHORTEN_H
#define LOCKSTEP_SIM_SHORTEN_H

#include "sim/scenario.h"

enum { SHORTENINGS_MAX = 3 };

typedef struct Shortening {
    uint32_t stride; /* micro-batches that the schedule repeats */
    uint32_t n;
    uint32_t micro_batches[SHORTENINGS_MAX];
} Shortening;

Shortening shorten(const Scenario *s);

/* So few micro-batches that a graph of them has as many under way at a time as one of all: it
 * needs the same memory (and in its middle is one that the others are like). */
uint32_t shorten_to_weigh(const Scenario *s);

#endif

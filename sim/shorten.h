/*
 * shorten.h - fewer micro-batches than are meant, where the others go by like these.
 *
 *     meant     F F F F F F F F ... F F F F B B B B         768 micro-batches
 *     built     F F F F F F F F B B B B                     16: how it begins, how it ends, and
 *                                                           enough between for a steady state
 *
 * A graph of fewer needs the same memory, and sim_run runs its middle again and again until it has
 * seen the steady state that those left out are in (SimOptions.left_out), or a pace; where it can
 * do neither, a graph of all that are meant is needed.  Only plan shortens: what sim and validate
 * print is of whole graphs.
 */
#ifndef LOCKSTEP_SIM_SHORTEN_H
#define LOCKSTEP_SIM_SHORTEN_H

#include "sim/scenario.h"

typedef struct Shortening {
    bool no_pace;    /* SimOptions.no_pace: in a V ranks drift too long for a pace to tell */
    uint32_t stride; /* micro-batches that the schedule repeats */
    uint32_t micro_batches; /* those that are meant, where fewer would not save a quarter */
} Shortening;

Shortening shorten(const Scenario *s);

/* So few micro-batches that a graph of them has as many under way at a time as one of all: it
 * needs the same memory (and in its middle is one that the others are like). */
uint32_t shorten_to_weigh(const Scenario *s);

#endif

/*
 * fit.h - the few scalars of a training stack from rows that it was measured on.
 *
 * A stack has at most three (sim/software.h: host, compute and comm scale, or ring_nics in
 * the place of the last).  How a predicted time answers to each scale is known from trials,
 * FIT_STEP down and up:
 *
 *     ln time
 *        |            higher        between the trials, and beyond them, straight lines;
 *        |      ____*               the answers to several scalars add up
 *        |  *--*
 *        +--|--|----|---- ln factor on one scalar
 *
 * What fits best makes the mean of |ln predicted - ln measured| least: the median
 * of what is missing, which a few rows gone wrong cannot move.  ring_nics is kept or not:
 * it is kept where that mean, after both were fitted, is FIT_GAIN less with it.  One source never
 * judges itself: fitted without its group, a stack is tested on what it has not seen.
 */
#ifndef LOCKSTEP_PROFILE_FIT_H
#define LOCKSTEP_PROFILE_FIT_H

#include "core/base.h"

typedef enum FitScalar { FIT_HOST, FIT_COMPUTE, FIT_COMM, FIT_N } FitScalar;

#define FIT_STEP 1.25

typedef struct FitRow {
    uint32_t software, group; /* any numbers that tell them apart */
    double measured;          /* times, all above 0 */
    double predicted;         /* at the scalars that the factors start from */
    double lower[FIT_N];      /* predicted with that scalar divided by FIT_STEP, */
    double higher[FIT_N];     /* and multiplied; both 0: this scalar is not fitted */
    double all_nics;          /* predicted without the stack's ring_nics; 0: it has none */
    bool shows_gpu;           /* on a GPU whose sustained_scale the stack's rows show */
} FitRow;

/* What ring_nics has to be worth, in the mean of |ln predicted - ln measured|. */
#define FIT_GAIN 0.002

typedef struct Fitted {
    double factor[FIT_N]; /* on the scalars; 1 for those that are not fitted */
    bool all_nics;        /* the stack's ring_nics, if it has one, is not kept */
    bool shows_gpu;       /* some row it was fitted on does */
} Fitted;

/* Fits a stack's rows of all groups but one (NONE_U32: of all).  False when no row is left: all
 * factors are 1, and ring_nics is not kept. */
bool fit_scalars(Fitted *fitted, const FitRow *rows, uint32_t rows_n, uint32_t software,
                 uint32_t without_group);

#endif

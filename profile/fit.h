/*
 * fit.h - the few scalars of a training stack from rows that it was measured on.
 *
 * A stack has at most three (sim/software.h: host, compute and comm scale).  How a
 * predicted time answers to each is known from trials, FIT_STEP down and up:
 *
 *     ln time
 *        |            higher        between the trials, and beyond them, straight lines;
 *        |      ____*               the answers to several scalars add up
 *        |  *--*
 *        +--|--|----|---- ln factor on one scalar
 *
 * What fits best makes the mean of |ln predicted - ln measured| least: the median
 * of what is missing, which a few rows gone wrong cannot move.  One source never
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
} FitRow;

/* The factors on the scalars for a stack's rows of all groups but one (NONE_U32: of all); 1 for
 * scalars that are not fitted.  False, and all 1, when no row is left. */
bool fit_scalars(double factor[FIT_N], const FitRow *rows, uint32_t rows_n, uint32_t software,
                 uint32_t without_group);

#endif

/*
 * calibrate.h - numbers of a model fitted to measured times, and how well they fit.
 *
 * The model is a function that predicts the time of every row from the values of
 * its numbers; what they mean, it knows alone.  Fitted is what makes the mean of
 *
 *     | ln (predicted / measured) |
 *
 * small: relative errors, of which an outlier counts once and not squared.  A number
 * that the rows do not answer to stays as it was: it was not measured.  (A latency
 * that is 2 % of every row would be fitted to the noise of the rest.)
 *
 * A fit is judged by rows that it has not seen.  Rows belong to folds (a log, or
 * every fifth size); each fold is predicted by a fit to all others.
 *
 *     fit     2 numbers               rows of fold   0 0 0 1 1 1 2 2 2
 *     judged                          left out       x x x             1st fit
 *                                                          x x x       2nd ...
 *
 * Pure arithmetic: this module knows no cluster and no simulator.
 */
#ifndef LOCKSTEP_PROFILE_CALIBRATE_H
#define LOCKSTEP_PROFILE_CALIBRATE_H

#include "core/base.h"

typedef struct CalibrateNumber {
    double value;      /* start, then fitted; > 0 */
    double min, max;   /* 0 < min */
    double answer_min; /* a row answers when d ln time / d ln value is larger */
    uint32_t rows_n;   /* after the fit: rows that answer to it, or did before it moved */
    bool fitted;       /* at least CALIBRATE_ROWS_MIN answer */
} CalibrateNumber;

enum { CALIBRATE_ROWS_MIN = 3, CALIBRATE_NUMBERS_MAX = 64 };

/* Predicts all rows from the values of all numbers. */
typedef void CalibratePredict(void *user, const double *value, double *ns);

typedef struct CalibrateRows {
    const double *measured_ns; /* > 0 */
    const bool *judged;        /* rows that are predicted and not fitted; NULL: none */
    uint32_t n;
    CalibratePredict *predict;
    void *user;
} CalibrateRows;

/* Without the rows of fold[i] == left_out; fold may be NULL.  False: no rows, nothing changed. */
bool calibrate_fit(CalibrateNumber *number, uint32_t numbers_n, const CalibrateRows *rows,
                   const uint32_t *fold, uint32_t left_out);

/*
 * Predicts every row by a fit that has not seen its fold.  Begins each from number,
 * which it leaves alone.  Rows of a lone fold get NAN: nothing is left to fit.
 */
void calibrate_left_out(const CalibrateNumber *number, uint32_t numbers_n,
                        const CalibrateRows *rows, const uint32_t *fold, uint32_t folds_n,
                        double *ns);

typedef struct CalibrateErrors {
    uint32_t n; /* rows with a finite error */
    double median_pct, p90_pct;
} CalibrateErrors;

/* Of |predicted / measured - 1| over the rows for which part[i] == of (part NULL: all). */
CalibrateErrors calibrate_errors(const double *measured_ns, const double *predicted_ns,
                                 uint32_t n, const uint32_t *part, uint32_t of);

/* time = latency_ns + bytes / bytes_per_ns, least squares of relative errors. */
typedef struct CalibrateLine {
    double latency_ns, bytes_per_ns; /* bytes_per_ns 0: one size only, no line */
    double median_pct;               /* of the rows' errors */
    uint32_t rows_n;
} CalibrateLine;

CalibrateLine calibrate_line(const double *bytes, const double *ns, uint32_t n);

#endif

/*
 * compare.h - two timelines of one program, op by op: sim beside real, before beside after.
 *
 *     sim    |ln|qkv|attn|out|      |ar ====|        per rank and step, starts aligned
 *     real   |ln|qkv |attn |out|    |ar ==========|
 *             0  0  +1     +2  +2                     drift: how late sim is so far
 *
 * Ops are paired by op id where both sides have them and they name the same ops; else
 * by logical op (core/timeline.h), what one stack does in a kernel with all that another
 * does it in; and what is left - all, in traces of other programs - is aligned as
 * sequences: the kernels, the copies and each kind of collective of a rank
 * (profile/align.h).  A track that stands for many ranks stands in for
 * each of them.  Kernels that one op launched count as one, with the sum of their
 * times.  Of several steps the median one is taken, unless one is asked for.
 *
 * Every instant of a step belongs to one class: to compute that runs, else to
 * communication, else to a copy, else to "idle".  So the classes of a step sum to
 * it, and the shares of the step's difference sum to 100 %.
 *
 * Differences and errors are sim - real; error_pct = 100 (sim / real - 1).  What
 * is not known (no real time, no difference to share) is NAN, null in JSON.
 */
#ifndef LOCKSTEP_PROFILE_COMPARE_H
#define LOCKSTEP_PROFILE_COMPARE_H

#include <stdio.h>

#include "core/json_out.h"
#include "core/timeline.h"
#include "profile/metrics.h"

enum { COMPARE_SIM, COMPARE_REAL, COMPARE_SIDES };
enum { COMPARE_CLASSES_MAX = 32, COMPARE_POINTS = 64, COMPARE_TEXT_CAP = 160 };

typedef struct CompareOptions {
    const char *name[COMPARE_SIDES]; /* of the files, for messages */
    int64_t step;                    /* number of a step; -1: the median one */
    bool pairs;                      /* fill CompareRank.pairs */
} CompareOptions;

/* Sums over the ranks compared. */
typedef struct CompareClass {
    const char *name;
    uint64_t ops_n[COMPARE_SIDES], matched_n;
    int64_t time_ns[COMPARE_SIDES];    /* sum over ops */
    int64_t matched_ns[COMPARE_SIDES]; /* of the ops that are paired */
    int64_t own_ns[COMPARE_SIDES];     /* of the step's instants; sums to the steps */
    double absolute_ns;                /* sum of |sim - real| over pairs */
    double relative;                   /* sum of |sim - real| / real over pairs with real > 0 */
    uint64_t relative_n;
} CompareClass;

/* Ops of one name in both; or in one of them, then the other count is 0. */
typedef struct CompareOp {
    const char *name[COMPARE_SIDES]; /* NULL: not there */
    const char *class_;
    uint64_t n;
    int64_t time_ns[COMPARE_SIDES];
} CompareOp;

typedef struct DriftPoint {
    int64_t real_ns, drift_ns; /* real: since the step's start */
} DriftPoint;

/* Of the rank whose real step is the longest. */
typedef struct CompareDrift {
    uint32_t rank, points_n;
    DriftPoint points[COMPARE_POINTS];
    int64_t end_ns, largest_ns; /* at the last pair; the one farthest from 0 */
    bool parts;                 /* it is ever not 0 */
    /* The first pair whose end is off by a tenth of the largest drift. */
    const char *op_name, *op_class;
    uint32_t op; /* op id, or NONE_U32 */
    int64_t op_start_ns, op_drift_ns, op_time_ns[COMPARE_SIDES];
} CompareDrift;

/* A kernel, and its op as it was paired: spans of the two timelines, of the other side's kernels
 * the longest; NONE_U64 where one has no such op. */
typedef struct ComparePair {
    uint64_t span[COMPARE_SIDES];
    int64_t time_ns[COMPARE_SIDES]; /* sum over the op's kernels */
    int64_t end_ns[COMPARE_SIDES];  /* of its last one, on the clock of its timeline */
} ComparePair;

/* How ops were paired: the first way that finds any. */
typedef enum ComparePaired {
    PAIRED_OP,
    PAIRED_LOGICAL, /* and the rest as sequences */
    PAIRED_SEQUENCE
} ComparePaired;

typedef struct CompareRank {
    uint32_t rank, source[COMPARE_SIDES]; /* source: the rank whose tracks were looked at */
    uint32_t ranks_n;                     /* how many ranks this row stands for */
    ComparePaired paired;
    Metrics times[COMPARE_SIDES]; /* of the step; span = its length */
    uint64_t ops_n[COMPARE_SIDES], matched_n;
    int64_t time_ns[COMPARE_SIDES], matched_ns[COMPARE_SIDES]; /* of ops */
    int64_t begin_ns[COMPARE_SIDES]; /* of the step, on the clock of its timeline */
    /* If asked for: of each real kernel, by start; then of those of sim that none of them names. */
    ComparePair *pairs;
    uint32_t pairs_n;
} CompareRank;

typedef struct Comparison {
    Arena arena;
    const char *name[COMPARE_SIDES];
    int64_t step[COMPARE_SIDES]; /* -1: no steps are marked */
    uint32_t steps_n[COMPARE_SIDES];
    uint32_t ranks_n, left_out_n[COMPARE_SIDES]; /* ranks that the other side does not have */
    CompareRank *ranks;
    Metrics times[COMPARE_SIDES]; /* means over ranks, but span_ns: of the slowest */
    uint32_t classes_n;           /* by real time, largest first; the last one is "idle" */
    CompareClass classes[COMPARE_CLASSES_MAX];
    uint32_t ops_n, only_n[COMPARE_SIDES]; /* largest difference first; longest first */
    CompareOp *ops, *only[COMPARE_SIDES];
    CompareDrift drift;
} Comparison;

/* What is compared of a step's times, in the order of --json: the quantities of --fail-if. */
enum { COMPARE_QUANTITIES_N = 7 };
extern const char *const compare_quantity_names[COMPARE_QUANTITIES_N]; /* "step_time", ... */
int64_t compare_quantity(const Metrics *m, int k);

/* Both timelines sealed.  On failure c is empty. */
bool compare(Comparison *c, const Timeline *sim, const Timeline *real, const CompareOptions *o,
             Err *err);
void compare_free(Comparison *c);

double compare_error_pct(int64_t sim, int64_t real);
double compare_coverage_pct(const Comparison *c); /* % of real op time that is paired */
/* % of sim's: low where it does more than was run, as more micro batches. */
double compare_sim_coverage_pct(const Comparison *c);
/* sum of |sim - real| over pairs, in % of their real time. */
double compare_op_error_pct(const Comparison *c);
double compare_class_error_pct(const CompareClass *k);
/* By side, what its error is of: sums over ops, of "idle" the step's instants. */
const int64_t *compare_class_ns(const CompareClass *k);
/* Overlap of sim - real in percent points: 0 where neither communicates, NAN where one does. */
double compare_overlap_points(const Metrics times[COMPARE_SIDES]);
/* % of the step's difference, over all ranks, that a class is responsible for. */
double compare_share_pct(const Comparison *c, const CompareClass *k);

/* ---- thresholds: --fail-if METRIC(>|<)NUMBER[%],... ---- */

/* A metric by its JSON path ("step_time.error_pct", "classes.matmul.error_pct"); "abs_error_pct"
 * instead of "error_pct" for its size; a path without a last part is that size. */
bool compare_value(const Comparison *c, const char *metric, double *value, Err *err);
void compare_metrics(FILE *out); /* the metrics there are, for --help */
/* False: the text is wrong.  crossed: the first condition that holds, as text; "" for none. */
bool compare_gate(const Comparison *c, const char *conditions, char crossed[COMPARE_TEXT_CAP],
                  Err *err);
/* The same without a comparison: is the text right?  Names of classes are not looked at. */
bool compare_gate_check(const char *conditions, Err *err);

/* ---- showing: at most top rows of each list ---- */

void compare_text(const Comparison *c, uint32_t top, FILE *out);
void compare_json(const Comparison *c, uint32_t top, JsonOut *j);

#endif

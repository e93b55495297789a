/*
 * calibrate_cluster.h - measured times of collectives into a cluster's "collectives".
 *
 * Two things come of the rows of nccl-tests:
 *
 *     the model's numbers   latencies and efficiencies, one set for all rows: they hold for
 *                           every number of ranks (scenarios/README.md, cluster.collectives)
 *     the measured table    each collective's own times on so many ranks and nodes, as a line
 *                           and by size (cluster.collectives.measured); it wins where it holds
 *
 * What a number means only the simulator knows, so its predictions are asked for:
 *
 *     file --machine_read--> Machine <--numbers-- calibrate_fit
 *                               |                      ^
 *                               +--ClusterPredict--> times of all rows
 *
 * A fit begins at, and is pulled towards, what the cluster was before any calibration: from what
 * the last one wrote the same rows would be fitted to something else, and what they cannot tell
 * would creep.  So the file keeps under "before" what its keys were.  Numbers that no row of
 * these answers to stay as an earlier calibration has left them.
 *
 * Both are judged by what they have not seen: the model by rows of every fifth size and
 * by whole logs that were left out, the table by the sizes.
 */
#ifndef LOCKSTEP_PROFILE_CALIBRATE_CLUSTER_H
#define LOCKSTEP_PROFILE_CALIBRATE_CLUSTER_H

#include "core/machine.h"
#include "profile/calibrate.h"

/* Ranks that measured together. */
typedef struct ClusterShape {
    uint32_t ranks_n, nodes_n, gpus_n; /* gpus_n of each node */
} ClusterShape;

typedef struct ClusterRow {
    uint32_t shape;
    OpKind kind; /* OP_SEND: send and receive in a ring */
    uint64_t bytes;
} ClusterRow;

/* Rows of one collective and one shape. */
typedef struct ClusterPart {
    const char *op;
    OpKind kind;
    uint32_t shape;
    CalibrateLine line;
    MeasuredCollective entry;
} ClusterPart;

/* A number's place in the machine and in the file. */
typedef struct ClusterSpot {
    const char *key; /* of "collectives" */
    double *number;
    int64_t *ns;    /* or */
    uint32_t index; /* protocol, or point of the curve */
    bool by_protocol;
    const RankCurve *curve; /* of which it is a point, or NULL */
    bool written;           /* is the key one of which something was fitted? */
} ClusterSpot;

typedef struct ClusterFit ClusterFit;

/* Times of all rows on m; NAN where it cannot carry them. */
typedef void ClusterPredict(const ClusterFit *f, const Machine *m, double *ns);

enum { CLUSTER_SIZE_FOLDS = 5, CLUSTER_DIGITS = 6 /* of a fitted number in the file */ };

struct ClusterFit {
    Arena arena;
    const char *into; /* the file's name */
    Machine m;        /* as before all calibrations, with room for all shapes; then fitted */
    Machine stands;   /* as the file has it */
    ClusterPredict *predict;
    ClusterShape *shapes;
    uint32_t shapes_n, shapes_cap;
    ClusterPart *parts;
    uint32_t parts_n, parts_cap;
    /* By row. */
    uint32_t rows_n, rows_cap, logs_n;
    ClusterRow *rows;
    double *measured_ns;
    uint32_t *log_of, *part_of, *size_fold;
    double *was, *model, *left_out_size,
        *left_out_log;      /* the file; the fit; by fits to others */
    double *table_left_out; /* by the table without that size */
    ClusterSpot places[CALIBRATE_NUMBERS_MAX];
    double stood[CALIBRATE_NUMBERS_MAX]; /* in the file */
    CalibrateNumber start[CALIBRATE_NUMBERS_MAX], numbers[CALIBRATE_NUMBERS_MAX];
    uint32_t numbers_n;
};

/* rows_cap: at most so many rows will be added. */
void cluster_fit_init(ClusterFit *f, const char *into, ClusterPredict *predict,
                      uint32_t rows_cap);
void cluster_fit_free(ClusterFit *f);

/* nth: among the rows of its test, by size.  op lives as long as f. */
void cluster_fit_add(ClusterFit *f, const char *op, OpKind kind, ClusterShape shape,
                     uint64_t bytes, double ns, uint32_t log, uint32_t nth);

/* The file's text with those keys as they were before all calibrations; malloc'd, NULL with err. */
char *cluster_text_before(const char *text, const char *path, Err *err);

/* Fits the numbers of f->m and makes the table.  False: the machine does not suit the rows. */
bool cluster_fit_run(ClusterFit *f, Err *err);

/* The file's text with what was measured in it; sources says what it was measured by. */
char *cluster_fit_splice(ClusterFit *f, char *text, const char *sources);

/* What was done, for people and for programs; log_names by log. */
void cluster_fit_print(ClusterFit *f, const char *const *log_names);
void cluster_fit_json(const ClusterFit *f, const char *const *log_names, bool written,
                      uint64_t not_used, Err *err);

/* ---- for calibrate_cluster*.c ---- */

/* A number as the file has it: times in us. */
double cluster_fit_shown(const ClusterFit *f, uint32_t number, double value);
/* What the file's digits leave of it. */
double cluster_fit_rounded(const ClusterFit *f, uint32_t number, double value);

#endif

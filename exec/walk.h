/*
 * walk.h - the training steps of one rank: launch the program, wait for its end, again.
 *
 *     step:  prepare | launch task, launch task ... | ahead | end | share loss and times | after
 *
 * The walker is the rank's host thread.  On the virtual and paced clocks it is also the model's:
 * each launch takes its time, and a LANE_HOST task holds it until what that waits for
 * is done.  Where one host drives several ranks (Graph.host_group) its turns are known
 * beforehand (exec/model_time.h).
 *
 * The loss of a step is the mean over the whole batch: the sum over all ranks of what
 * their kernels added up, by loss_terms.
 */
#ifndef LOCKSTEP_EXEC_WALK_H
#define LOCKSTEP_EXEC_WALK_H

#include "exec/backend.h"
#include "exec/record.h"

typedef struct StepInfo {
    uint64_t step;                  /* number of the step that is done, from 0 */
    double loss;                    /* before its update */
    int64_t step_ns;                /* of this rank; equal on all with the virtual clock */
    int64_t exposed_ns, compute_ns; /* means over all ranks, as in sim/engine.h's RankStat */
} StepInfo;

typedef struct Walk {
    const Job *job;
    const BackendType *type;
    Backend *backend;
    uint64_t first_step, steps;
    const int64_t *host_start_ns; /* by instance, host_turns; NULL: the host is this rank's */
    Record *record;               /* NULL: nothing is kept */

    bool (*prepare)(void *user, uint64_t step, Err *err);      /* choose the samples */
    void (*ahead)(void *user, uint64_t step);                  /* those of the next step */
    bool (*after)(void *user, const StepInfo *info, Err *err); /* report, snapshot */
    void *user;
} Walk;

bool walk(const Walk *w, Err *err);

#endif

/*
 * cmd_run.h - the parts of `lockstep run`: its options, and what it shows.
 *
 *     cmd_run_options.c   arguments -> RunOptions
 *     cmd_run_plan.c      scenario -> graph, parameters, prediction
 *     cmd_run_model.c     which model it is, for snapshots
 *     cmd_run_memory.c    do all ranks fit this host?
 *     cmd_run.c           starts the ranks, runs one of them
 *     cmd_run_hyper.c     several trainings side by side
 *     cmd_run_cuda.c      the CUDA plugin, cmd_run_dry.c: what it would launch
 *     cmd_run_show.c      RankResult beside the prediction, as text or JSON
 *
 * STATISTICS.  Step times leave out the first step where there are more than two: it
 * brings memory and caches to life.  Median, 10th and 90th percentile are of the rest.
 */
#ifndef LOCKSTEP_EXEC_CMD_RUN_H
#define LOCKSTEP_EXEC_CMD_RUN_H

#include <stdatomic.h>
#include <stdio.h>

#include "exec/cmd_run_plan.h"
#include "exec/launch.h"
#include "exec/rank.h"

typedef struct RunOptions {
    SettingList set; /* freed by run_options_free */
    const char *scenario, *trace, *trace_predicted, *checkpoint, *rendezvous;
    const char *hyper_key, *hyper_values; /* --hyper KEY=V1,V2; NULL: none */
    bool json, resume, cuda;
    bool loop, nccl, dry_run, no_graphs; /* with cuda: --comm, --dry-run, --no-cuda-graphs */
    bool rings;                          /* --collectives ring */
    uint32_t ranks, rank, world, local_rank; /* 0, then NONE_U32: not given */
    uint32_t at_once;                        /* copies; 0: all */
    uint64_t steps, every;                   /* steps: in all */
    uint64_t timeout_s;                      /* --timeout: for ranks to come, and to answer */
    RunClock clock;
} RunOptions;

/* False with err on wrong usage; *help when that is what was asked for. */
bool run_options_parse(RunOptions *o, int argc, char **argv, bool *help, Err *err);
LaunchFlags run_launch_flags(const RunOptions *o);
void run_options_free(RunOptions *o);
void run_options_help(FILE *f);
int run_options_wrong(const Err *err); /* says so; the exit status */

/* ---- training ---- */

/* Of the ranks of one job, and of their starter. */
typedef struct RunShared {
    atomic_flag said; /* the first rank to fail says why */
    char why[sizeof((Err *)0)->text];
    bool trained; /* what follows is known; no step was left to do: NAN */
    double first_loss, last_loss, step_s;
} RunShared;

/* One line on stderr while it runs. */
typedef struct LiveLine {
    bool terminal, began;
    const char *copy; /* its name, where others run beside it; NULL */
    uint64_t first;   /* steps done before this run */
    uint64_t steps;   /* in all */
    uint64_t shown;   /* lines so far */
    int64_t last_ns;
} LiveLine;

/* One training, as its ranks know it. */
typedef struct RunTraining {
    const RunOptions *o;
    RankPlace place; /* of this process, or of its starter */
    Launcher by;
    RunPlan plan;
    const char *hyper; /* "lr=0.1"; NULL */
    uint32_t beside_n; /* like jobs at the same time, with this one */
    bool beside_later; /* and another of them says what is true of all */
    LiveLine live;
    char earlier[64]; /* newest snapshot of a training that this one does not resume; "" */
    bool shows;       /* this process is rank 0, */
    FILE *result;     /* of rank 0, for its starter */
    RunShared *shared;
} RunTraining;

/* result and shared; NULL where they could not be had, then with err. */
bool run_training_open(RunTraining *t, Err *err);
void run_training_close(RunTraining *t);
/* Whether the scenario, with one more setting, can be trained at all; nothing is started. */
bool run_training_check(const RunTraining *t, const Setting *extra, Err *err);
/* Trains once, with one more setting or NULL; the exit status. */
int run_train(RunTraining *t, const Setting *extra, Err *err);
/* Whether this process prints results: it is rank 0, or has started it. */
bool run_prints(const RunTraining *t);
/* Trains with each of the values of --hyper and prints all results; the exit status. */
int run_hyper(const RunTraining *like, Err *err);

/* Whether this host has memory for all ranks, on the CPU. */
bool run_memory_fits(const Graph *g, Err *err);

/* Copies what rank 0 has left. */
void run_print_result(FILE *result, FILE *out);

/* ---- showing ---- */

typedef struct StepStat {
    double median_s, p10_s, p90_s, exposed_s, compute_s; /* the last two: medians */
} StepStat;

StepStat run_step_stat(const RankResult *r);

void run_live_open(LiveLine *l, uint64_t steps, const char *copy);
/* What was predicted, before the first step. */
void run_live_predicted(const LiveLine *l, const RunPlan *plan);
void run_live_step(LiveLine *l, const RunPlan *plan, const StepInfo *info);
void run_live_close(LiveLine *l);

/* hyper: "lr=0.1", or NULL. */
void run_show_text(const RunOptions *o, const RunPlan *plan, const RankResult *r,
                   const char *hyper, FILE *out);
void run_show_json(const RunOptions *o, const RunPlan *plan, const RankResult *r,
                   const char *hyper, FILE *out);

#endif

/*
 * cmd_run.h - the parts of `lockstep run`: its options, and what it shows.
 *
 *     cmd_run_options.c   arguments -> RunOptions
 *     cmd_run_plan.c      scenario -> graph, parameters, prediction
 *     cmd_run.c           starts the ranks, runs one of them
 *     cmd_run_cuda.c      the CUDA plugin, cmd_run_dry.c: what it would launch
 *     cmd_run_show.c      RankResult beside the prediction, as text or JSON
 *
 * STATISTICS.  Step times leave out the first step where there are more than two: it
 * brings memory and caches to life.  Median, 10th and 90th percentile are of the rest.
 */
#ifndef LOCKSTEP_EXEC_CMD_RUN_H
#define LOCKSTEP_EXEC_CMD_RUN_H

#include <stdio.h>

#include "exec/cmd_run_plan.h"
#include "exec/rank.h"

typedef struct RunOptions {
    RunSetting *settings; /* --set; freed by run_options_free */
    uint32_t settings_n, settings_cap;
    const char *scenario, *trace, *checkpoint, *rendezvous;
    char *hyper_key, *hyper_values; /* --hyper KEY=V1,V2; NULL: none */
    bool json, resume, cuda;
    bool loop, nccl, dry_run, no_graphs; /* with cuda: --comm, --dry-run, --no-cuda-graphs */
    bool rings;                          /* --collectives ring */
    uint32_t ranks, rank, world, local_rank; /* 0, then NONE_U32: not given */
    uint64_t steps, every;
    uint64_t timeout_s; /* --timeout: for ranks to come, and to answer */
    RunClock clock;
} RunOptions;

/* False with err on wrong usage; *help when that is what was asked for. */
bool run_options_parse(RunOptions *o, int argc, char **argv, bool *help, Err *err);
void run_options_free(RunOptions *o);
void run_options_help(FILE *f);
int run_options_wrong(const Err *err); /* says so; the exit status */

/* ---- showing ---- */

typedef struct StepStat {
    double median_s, p10_s, p90_s, exposed_s, compute_s; /* the last two: medians */
} StepStat;

StepStat run_step_stat(const RankResult *r);

/* One line on stderr while it runs. */
typedef struct LiveLine {
    bool terminal;
    uint64_t steps;       /* in all */
    uint64_t done, shown; /* steps; lines so far */
    int64_t last_ns;
} LiveLine;

void run_live_open(LiveLine *l, uint64_t steps);
/* What was predicted, before the first step. */
void run_live_predicted(const RunPlan *plan);
void run_live_step(LiveLine *l, const RunPlan *plan, uint64_t done, const StepInfo *info);
void run_live_close(LiveLine *l);

/* hyper: "lr=0.1", or NULL. */
void run_show_text(const RunOptions *o, const RunPlan *plan, const RankResult *r,
                   const char *hyper, FILE *out);
void run_show_json(const RunOptions *o, const RunPlan *plan, const RankResult *r,
                   const char *hyper, FILE *out);

#endif

/*
 * cmd_run_plan.h - from a scenario to what ranks need to run it, and what to expect.
 *
 *     scenario --build_graph--> graph (software "lockstep")
 *              --again, for one process, and for tp alone--> parameters as a whole
 *              --run_plan_measured--> what this machine takes: cmd_run_machine.c
 *              --sim_run--> prediction; with every rank by itself: model times of ops
 *
 * The only part of `run` that knows the simulator: cmd_run.c sees graphs and numbers.
 */
#ifndef LOCKSTEP_EXEC_CMD_RUN_PLAN_H
#define LOCKSTEP_EXEC_CMD_RUN_PLAN_H

#include "core/json_out.h"
#include "core/setting.h"
#include "core/timeline.h"
#include "exec/feed.h"
#include "exec/kernel.h"
#include "exec/measure.h"
#include "exec/model_time.h"
#include "exec/whole.h"

typedef struct RunRequest {
    const char *scenario;
    const Setting *settings; /* --set */
    uint32_t settings_n;
    uint32_t ranks;    /* that there must be; 0: as the scenario says */
    bool started;      /* so many were started; else --ranks says it */
    bool this_machine; /* predict for the machine at hand (run_plan_measured), else for the
                          scenario's cluster */
} RunRequest;

typedef struct RunPlan {
    const char *name, *strategy;
    Graph graph;
    WholeList whole;
    DataSpec data;
    Hyper hyper;
    uint64_t seed;
    uint32_t global_batch;
    uint64_t tokens;    /* of a step; 0: samples count */
    const char *digest; /* of the scenario, for ranks to compare */
    const char *model;  /* model and optimizer, for snapshots: SnapshotInfo.model */
    double predicted_step_s, predicted_exposed_s, predicted_compute_s;
    uint64_t predicted_peak_bytes;  /* the most of any rank */
    double peak_flops, model_flops; /* of all ranks per second; of a step */
    const char *prediction_of;      /* "this machine, measured ...", or the cluster */
    const char *other_software; /* what the scenario's file names; NULL: "lockstep", or none */
    const char *unused; /* keys that were given and the strategy does not use; "" none */
    struct RunPlanParts *parts;
} RunPlan;

/* *usage: it failed because of how the command was used. */
bool run_plan_open(RunPlan *x, const RunRequest *r, bool *usage, Err *err);
void run_plan_free(RunPlan *x);

/* Simulates the step on this machine, of which so much is known; with_times as below. */
bool run_plan_measured(RunPlan *x, const MachineTimes *m, bool with_times, Err *err);
/* A "cluster" of so many ranks that take what was measured; malloc'd, NULL with err. */
char *run_machine_json(const MachineTimes *m, uint32_t ranks, Err *err);

/* What a rank's kernels, and who feeds them, must know. */
ModelFacts run_plan_facts(const RunPlan *x, uint32_t rank);
FeedSpec run_plan_feed(const RunPlan *x, uint32_t rank);

/* Simulates the step; with_times: every rank by itself, with a timeline. */
bool run_plan_predict(RunPlan *x, bool with_times, Err *err);
const Timeline *run_plan_timeline(const RunPlan *x); /* after with_times; not sealed */
/* Seals it and writes it. */
bool run_plan_write_trace(RunPlan *x, const char *path, Err *err);
/* Model times of a rank by op id; malloc'd.  After with_times. */
OpTime *run_plan_times(const RunPlan *x, uint32_t rank);
/* When the host that drives this rank and others launches its instances; malloc'd.  NULL: the
 * host is its own. */
int64_t *run_plan_host(const RunPlan *x, uint32_t rank);
void run_plan_json(const RunPlan *x, JsonOut *j); /* the report of the prediction */

#endif

/*
 * cmd_run_cuda.h - `lockstep run --backend cuda`: the plugin, and what it would do.
 */
#ifndef LOCKSTEP_EXEC_CMD_RUN_CUDA_H
#define LOCKSTEP_EXEC_CMD_RUN_CUDA_H

#include "exec/cmd_run.h"
#include "exec/cuda_plugin.h"

/* Whether there is a driver and the plugin: cheap, and before ranks are forked.  False and a
 * sentence that ends with `instead`, what can be done without. */
bool cuda_plugin_find(const char *instead, Err *err);

/* The plugin, this rank's GPU and how it is used. */
bool cuda_rank(const CudaPlugin **plugin, CudaOptions *cuda, const RunOptions *o,
               const RankPlace *place, Err *err);

/* --dry-run: streams, ops in the order of their launches, memory and communicators of every rank,
 * or of --rank only.  Needs neither GPU nor plugin. */
bool cuda_dry_run(const RunOptions *o, const RunPlan *plan, FILE *out, Err *err);

#endif

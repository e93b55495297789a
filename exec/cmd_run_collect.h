/*
 * cmd_run_collect.h - the times of `run --backend cuda --trace`, by the CUPTI collector.
 *
 *     process of a rank, or of all (loop)     rank 0
 *     -----------------------------------     ------
 *     collect_start    before CUDA makes a context
 *     push_op, pop_op  by the backend
 *     collect_end      behind the last step: recordings --fabric--> one timeline: what ran on
 *                      each GPU from the first step on, kernel by kernel, with the ops they
 *                      belong to and what the graph calls those; and the calls that launched it
 *     collect_close
 */
#ifndef LOCKSTEP_EXEC_CMD_RUN_COLLECT_H
#define LOCKSTEP_EXEC_CMD_RUN_COLLECT_H

#include "core/capture_api.h"
#include "exec/cmd_run.h"

/*
 * The collector, which records this process from now on.  Ranks that are threads share it: the
 * first one starts it.  NULL, and a sentence in why: it is not installed, or does not attach.
 */
const CaptureApi *collect_start(const RankPlace *place, Err *why);

/* RankSetup.ended; user is a RunTraining. */
bool collect_end(void *user, const RankEnd *end, Err *err);

/* Once for every collect_start, however the run went: no recording is left behind. */
void collect_close(void);

#endif

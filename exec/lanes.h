/*
 * lanes.h - a program's lanes on threads: who runs which task when.
 *
 * Every lane with tasks has a thread, but the compute lane: that is run by the
 * thread that launches, while it waits (lanes_wait, lanes_finish).
 *
 *     launching thread   launch launch ... [F0][F1]....[B1]  ar  [B0]...[optimizer]
 *     lane reduce                                   |ar b1|   ^
 *                                          a thread woken     |
 *                                                     nothing to compute until it is done
 *
 * Threads cost: two switches for a task that a lane runs for another one.  So when
 * the compute lane waits for a task that could begin and nobody has begun, the
 * launching thread runs that task itself; then nobody is woken.  A sleeping thread
 * is woken only when it can go on.
 *
 * Where the host waits in between (LANE_HOST), or takes its time to launch (eager), every
 * lane has a thread: tasks begin as soon as they are launched, and the host goes on as soon
 * as it can.
 */
#ifndef LOCKSTEP_EXEC_LANES_H
#define LOCKSTEP_EXEC_LANES_H

#include "exec/program.h"

/* Runs tasks [first, first + n), which are posted together; false ends everything. */
typedef bool RunTasks(void *user, uint32_t first, uint32_t n, Err *err);

typedef struct Lanes Lanes;

Lanes *lanes_open(const Program *p, RunTasks *run, void *user, bool eager);
void lanes_close(Lanes *l); /* joins the threads; NULL is fine */

void lanes_begin(Lanes *l); /* all counters are 0 again; no task may be running */
void lanes_launch(Lanes *l, uint32_t task);
/* Blocks until the waits of a LANE_HOST task are done, and counts it as done. */
bool lanes_wait(Lanes *l, uint32_t task, Err *err);
/* Blocks until all that is launched is done; after a failure, until nothing runs any more. */
bool lanes_finish(Lanes *l, Err *err);

#endif

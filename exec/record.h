/*
 * record.h - what a rank did, step after step, and all ranks' records as one timeline.
 *
 * A rank keeps a TaskRecord per task and step.  At the end rank 0 gathers them and
 * writes spans as the simulator does (sim/engine_record.c): the same tracks, names,
 * classes and op ids, so that both compare op by op.
 *
 * All times are moved to rank 0's clock (exec/clocks.h); model time needs no moving.
 */
#ifndef LOCKSTEP_EXEC_RECORD_H
#define LOCKSTEP_EXEC_RECORD_H

#include "core/timeline.h"
#include "exec/backend.h"
#include "exec/clocks.h"

typedef struct StepTimes {
    uint64_t step;
    int64_t start_ns, end_ns;
} StepTimes;

/* Record r = { .job = ... } is empty. */
typedef struct Record {
    const Job *job;
    uint32_t steps_n, steps_cap;
    StepTimes *steps;
    TaskRecord *tasks; /* [step][task] */
    size_t tasks_cap;
    Clocks clocks;
} Record;

void record_step(Record *r, uint64_t step, int64_t start_ns, int64_t end_ns,
                 const TaskRecord *tasks);
/* All ranks together, outside of a step: looks how clocks lie.  now_ns: the run's clock. */
bool record_clocks(Record *r, int64_t (*now_ns)(const Backend *), const Backend *b, Err *err);
void record_free(Record *r);

/*
 * All ranks together, behind the last step.  On rank 0 t gets all ranks' spans (not sealed),
 * elsewhere it stays as it is.  *shift_max_ns: most that any rank's last times were moved.
 */
bool record_gather(Record *r, int64_t (*now_ns)(const Backend *), const Backend *b, Timeline *t,
                   int64_t *shift_max_ns, Err *err);

#endif

/*
 * record.h - what a rank did, step after step, and all ranks' records as one timeline.
 *
 * A rank keeps a TaskRecord per task and step.  At the end rank 0 gathers them and
 * writes spans as the simulator does (sim/engine_record.c): the same tracks, names,
 * classes and op ids, so that both compare op by op.
 *
 * CLOCKS.  Ranks of one host (one boot of one kernel) share a clock, and only differ
 * in when they began.  Others are shifted so that nobody leaves a barrier before all
 * have come; record_gather says by how much.  Model time needs no shift.
 */
#ifndef LOCKSTEP_EXEC_RECORD_H
#define LOCKSTEP_EXEC_RECORD_H

#include "core/timeline.h"
#include "exec/backend.h"

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
} Record;

void record_step(Record *r, uint64_t step, int64_t start_ns, int64_t end_ns,
                 const TaskRecord *tasks);
void record_free(Record *r);

/*
 * All ranks together, behind the last step.  now_ns: the run's clock.  On rank 0 t
 * gets all ranks' spans (not sealed), elsewhere it stays as it is.  shift_ns[world]:
 * what was added to each rank's times; may be NULL.
 */
bool record_gather(const Record *r, int64_t (*now_ns)(const Backend *), const Backend *b,
                   Timeline *t, int64_t *shift_ns, Err *err);

#endif

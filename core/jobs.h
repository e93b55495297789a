/*
 * jobs.h - the same for each of n things, by several threads.
 *
 *     jobs_run(build_row, data, data->rows_n, jobs_processors());
 *
 * Which thread does which thing, and in what order, is open: each leaves its results in a
 * place of its own.
 */
#ifndef LOCKSTEP_CORE_JOBS_H
#define LOCKSTEP_CORE_JOBS_H

#include "core/base.h"

enum { JOBS_MAX = 64 };

typedef void JobsOne(void *user, uint32_t i);

/* Calls one(user, i) once for every i below n, and returns when all are done.  At most
 * threads of them at a time, JOBS_MAX at the most; the caller is one of them, and does all
 * where no other can be started. */
void jobs_run(JobsOne *one, void *user, uint32_t n, uint32_t threads);

/* Those of this machine that the process may run on (taskset, cpusets), at least 1. */
uint32_t jobs_processors(void);

/* Which they are, a bit for each; none where that cannot be told. */
typedef struct ProcessorSet {
    uint64_t bits[16];
} ProcessorSet;
ProcessorSet jobs_processor_set(void);

#endif

/*
 * job_list.h - a command's jobs, one a scenario, on a pool of threads with one progress bar.
 *
 *     job_list_open(&l, threads_n);
 *     for each scenario:  job_list_add(&l, run, job, &job->progress);
 *     job_list_wait(&l);              a second pass: job_list_again(&l, run_again, job)
 *     job_list_close(&l);             l.at[0 .. n) in the order in which they were added
 *     job_list_free(&l, release);
 *
 * Jobs are the caller's structs on the heap; the list frees them, after release.  A job's
 * run ends with progress_end of its part.
 */
#ifndef LOCKSTEP_SIM_JOB_LIST_H
#define LOCKSTEP_SIM_JOB_LIST_H

#include "sim/pool.h"
#include "sim/progress.h"

typedef struct JobList {
    Pool pool;
    Progress progress;
    uint32_t threads_n;
    void **at;
    uint32_t n, cap;
} JobList;

void job_list_open(JobList *l, uint32_t threads_n);
void job_list_add(JobList *l, PoolRun *run, void *job, ProgressPart *part);
void job_list_again(JobList *l, PoolRun *run, void *job);
void job_list_wait(JobList *l); /* until all that were added have run */
void job_list_close(JobList *l);
void job_list_free(JobList *l, void (*release)(void *job));

#endif

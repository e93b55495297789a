/* job_list.c - jobs in order, run in none. */
#include "sim/job_list.h"

#include <stdlib.h>

void job_list_open(JobList *l, uint32_t threads_n)
{
    l->threads_n = threads_n;
    l->at = NULL;
    l->n = l->cap = 0;
    pool_open(&l->pool, threads_n);
    progress_open(&l->progress);
}

void job_list_add(JobList *l, PoolRun *run, void *job, ProgressPart *part)
{
    part->of = &l->progress;
    GROW(l->at, l->n, l->cap);
    l->at[l->n++] = job;
    job_list_again(l, run, job);
}

void job_list_again(JobList *l, PoolRun *run, void *job)
{
    progress_expect(&l->progress, 1);
    pool_add(&l->pool, run, job);
}

void job_list_wait(JobList *l)
{
    pool_close(&l->pool);
    pool_open(&l->pool, l->threads_n);
}

void job_list_close(JobList *l)
{
    pool_close(&l->pool);
    progress_close(&l->progress);
}

void job_list_free(JobList *l, void (*release)(void *job))
{
    for (uint32_t i = 0; i < l->n; i++) {
        release(l->at[i]);
        free(l->at[i]);
    }
    free(l->at);
}

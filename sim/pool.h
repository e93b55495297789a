/*
 * pool.h - independent tasks on a few threads; results belong to the tasks.
 *
 *     Pool p;
 *     pool_open(&p, threads_n);
 *     for each:  pool_add(&p, run, task);     waits while 2 * threads_n are unfinished
 *     pool_close(&p);                         waits for all
 *
 * So a list of any length needs the memory of a few tasks at a time.  Threads
 * start when there is work for them.
 */
#ifndef LOCKSTEP_SIM_POOL_H
#define LOCKSTEP_SIM_POOL_H

#include <pthread.h>

#include "core/base.h"

enum { POOL_THREADS_MAX = 256 };

typedef void PoolRun(void *task);

typedef struct PoolTask {
    PoolRun *run;
    void *task;
} PoolTask;

typedef struct Pool {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t threads[POOL_THREADS_MAX];
    uint32_t threads_max, threads_n;
    PoolTask waiting[2 * POOL_THREADS_MAX]; /* ring */
    uint32_t first, waiting_n, running_n;
    bool closing;
} Pool;

void pool_open(Pool *p, uint32_t threads); /* 1 .. POOL_THREADS_MAX */
void pool_add(Pool *p, PoolRun *run, void *task);
void pool_close(Pool *p);

/* Processors this process may use, at most POOL_THREADS_MAX. */
uint32_t pool_processors(void);

#endif

/* jobs.c - threads that take the next number until there is none. */
#define _GNU_SOURCE /* sched_getaffinity */
#include "core/jobs.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

typedef struct Jobs {
    JobsOne *one;
    void *user;
    uint32_t n;
    atomic_uint next;
} Jobs;

static void *work(void *jobs)
{
    Jobs *j = jobs;
    for (uint32_t i; (i = atomic_fetch_add(&j->next, 1)) < j->n;)
        j->one(j->user, i);
    return NULL;
}

void jobs_run(JobsOne *one, void *user, uint32_t n, uint32_t threads)
{
    pthread_t thread[JOBS_MAX];
    uint32_t started = 0;
    Jobs j = { .one = one, .user = user, .n = n };
    ASSERT(n < UINT32_MAX - JOBS_MAX); /* next may pass n by one a thread */
    atomic_init(&j.next, 0);
    while (started + 1 < min_u64(min_u64(threads, JOBS_MAX), n) &&
           pthread_create(&thread[started], NULL, work, &j) == 0)
        started++;
    work(&j);
    for (uint32_t i = 0; i < started; i++)
        pthread_join(thread[i], NULL);
}

uint32_t jobs_processors(void)
{
    cpu_set_t mine;
    long n = sched_getaffinity(0, sizeof mine, &mine) == 0 ? CPU_COUNT(&mine)
                                                           : sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (uint32_t)min_u64((uint64_t)n, UINT32_MAX) : 1;
}

ProcessorSet jobs_processor_set(void)
{
    ProcessorSet set = { { 0 } };
    cpu_set_t mine;
    if (sched_getaffinity(0, sizeof mine, &mine) != 0)
        return set;
    for (size_t i = 0; i < 64 * ARRAY_N(set.bits) && i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &mine))
            set.bits[i / 64] |= (uint64_t)1 << i % 64;
    return set;
}

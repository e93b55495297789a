/* pool.c - one lock, one condition: tasks are coarse, nobody contends. */
#include "sim/pool.h"

#include "core/jobs.h"

void pool_open(Pool *p, uint32_t threads)
{
    ASSERT(threads >= 1 && threads <= POOL_THREADS_MAX);
    *p = (Pool){ .threads_max = threads };
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
}

/* The next task to run; false when the pool closes and nothing is left. */
static bool take(Pool *p, PoolTask *task)
{
    pthread_mutex_lock(&p->lock);
    while (p->waiting_n == 0 && !p->closing)
        pthread_cond_wait(&p->changed, &p->lock);
    bool some = p->waiting_n > 0;
    if (some) {
        *task = p->waiting[p->first];
        p->first = (p->first + 1) % (uint32_t)ARRAY_N(p->waiting);
        p->waiting_n--;
        p->running_n++;
    }
    pthread_mutex_unlock(&p->lock);
    return some;
}

static void *work(void *pool)
{
    Pool *p = pool;
    PoolTask task;
    while (take(p, &task)) {
        task.run(task.task);
        pthread_mutex_lock(&p->lock);
        p->running_n--;
        pthread_cond_broadcast(&p->changed);
        pthread_mutex_unlock(&p->lock);
    }
    return NULL;
}

/* A further thread where all are busy; without one the others do the work, or add does. */
static void start_thread(Pool *p)
{
    if (p->threads_n < p->threads_max && p->waiting_n + p->running_n > p->threads_n &&
        pthread_create(&p->threads[p->threads_n], NULL, work, p) == 0)
        p->threads_n++;
}

void pool_add(Pool *p, PoolRun *run, void *task)
{
    pthread_mutex_lock(&p->lock);
    while (p->waiting_n + p->running_n >= 2 * p->threads_max)
        pthread_cond_wait(&p->changed, &p->lock);
    uint32_t at = (p->first + p->waiting_n) % (uint32_t)ARRAY_N(p->waiting);
    p->waiting[at] = (PoolTask){ run, task };
    p->waiting_n++;
    start_thread(p);
    bool no_threads = p->threads_n == 0;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    PoolTask own;
    if (no_threads && take(p, &own)) {
        own.run(own.task);
        p->running_n--;
    }
}

void pool_close(Pool *p)
{
    pthread_mutex_lock(&p->lock);
    p->closing = true;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    for (uint32_t i = 0; i < p->threads_n; i++)
        pthread_join(p->threads[i], NULL);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
}

uint32_t pool_processors(void)
{
    uint32_t n = jobs_processors();
    return n < POOL_THREADS_MAX ? n : POOL_THREADS_MAX;
}

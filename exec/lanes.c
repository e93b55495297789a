/*
 * lanes.c - one lock, a counter per lane, and a bell per thread.
 *
 * Whoever finishes a task looks, under the lock, which sleeping threads can go on,
 * and rings for those only.
 */
#include "exec/lanes.h"

#include <pthread.h>
#include <stdlib.h>

typedef struct LaneThread {
    Lanes *lanes;
    uint32_t lane;
    pthread_t thread;
    pthread_cond_t bell;
    bool exists, asleep;
} LaneThread;

struct Lanes {
    const Program *p;
    RunTasks *run;
    void *user;
    uint32_t home; /* lane that the launching thread runs; NONE_U32 */
    pthread_mutex_t lock;
    uint32_t launched[LANE_N], done[LANE_N];
    bool running[LANE_N];
    LaneThread thread[LANE_N];
    pthread_cond_t host_bell;
    bool host_asleep, closing, failed;
    uint32_t host_task; /* LANE_HOST task waited for; NONE_U32: until all is done */
    Err err;
};

/* ---- who can go on ---- */

static bool reached(const Lanes *l, const Mark *marks, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (l->done[marks[i].lane] < marks[i].done)
            return false;
    return true;
}

/* The lane's next task; NONE_U32: it has none that is launched, or runs one. */
static uint32_t head_of(const Lanes *l, uint32_t lane)
{
    if (l->running[lane] || l->done[lane] >= l->launched[lane])
        return NONE_U32;
    uint32_t t = program_task_at(l->p, lane, l->done[lane]);
    return l->done[lane] + program_posted_n(l->p, t) <= l->launched[lane] ? t : NONE_U32;
}

static bool can_begin(const Lanes *l, uint32_t t)
{
    const Program *p = l->p;
    for (uint32_t i = 0, n = program_posted_n(p, t); i < n; i++) {
        const Task *task = &p->tasks[t + i];
        if (!reached(l, p->waits + task->waits_first, task->waits_n) ||
            !reached(l, p->guards + task->guards_first, task->guards_n))
            return false;
    }
    return true;
}

static bool is_ready(const Lanes *l, uint32_t lane)
{
    uint32_t t = head_of(l, lane);
    return !l->failed && t != NONE_U32 && can_begin(l, t);
}

static bool all_done(const Lanes *l)
{
    for (uint32_t i = 0; i < LANE_N; i++)
        if (l->running[i] || (l->done[i] < l->launched[i] && !l->failed))
            return false;
    return true;
}

static bool host_may_go(const Lanes *l)
{
    if (l->host_task == NONE_U32)
        return all_done(l);
    const Task *t = &l->p->tasks[l->host_task];
    return l->failed || reached(l, l->p->waits + t->waits_first, t->waits_n);
}

/* A lane that one of the marks is waiting for, and that could begin now. */
static uint32_t ready_behind(const Lanes *l, const Mark *marks, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (!reached(l, &marks[i], 1) && is_ready(l, marks[i].lane))
            return marks[i].lane;
    return NONE_U32;
}

/* A lane that the home lane's next task waits for, and that could begin now. */
static uint32_t lane_to_help(const Lanes *l)
{
    const Program *p = l->p;
    uint32_t t = head_of(l, l->home), lane = NONE_U32;
    if (t == NONE_U32)
        return NONE_U32;
    for (uint32_t i = 0, n = program_posted_n(p, t); i < n && lane == NONE_U32; i++) {
        const Task *task = &p->tasks[t + i];
        lane = ready_behind(l, p->waits + task->waits_first, task->waits_n);
        if (lane == NONE_U32)
            lane = ready_behind(l, p->guards + task->guards_first, task->guards_n);
    }
    return lane;
}

/* What the launching thread should run now; NONE_U32: nothing. */
static uint32_t host_choice(const Lanes *l)
{
    if (l->home == NONE_U32)
        return NONE_U32;
    return is_ready(l, l->home) ? l->home : lane_to_help(l);
}

/* ---- bells ---- */

/* Wakes all that can go on; `taken` is a lane that the caller runs itself. */
static void ring(Lanes *l, uint32_t taken)
{
    for (uint32_t i = 0; i < LANE_N; i++)
        if (i != taken && l->thread[i].asleep && is_ready(l, i)) {
            l->thread[i].asleep = false; /* once is enough */
            pthread_cond_signal(&l->thread[i].bell);
        }
    if (l->host_asleep && (host_may_go(l) || host_choice(l) != NONE_U32)) {
        l->host_asleep = false;
        pthread_cond_signal(&l->host_bell);
    }
}

static void run_head(Lanes *l, uint32_t lane)
{
    uint32_t t = head_of(l, lane), n = program_posted_n(l->p, t);
    Err err = { 0 };
    l->running[lane] = true;
    pthread_mutex_unlock(&l->lock);
    bool ok = l->run(l->user, t, n, &err);
    pthread_mutex_lock(&l->lock);
    l->running[lane] = false;
    l->done[lane] += n;
    if (!ok && !l->failed) {
        l->failed = true;
        l->err = err;
    }
}

/* ---- threads ---- */

static void *lane_main(void *user)
{
    LaneThread *me = user;
    Lanes *l = me->lanes;
    pthread_mutex_lock(&l->lock);
    while (!l->closing) {
        if (is_ready(l, me->lane)) {
            run_head(l, me->lane);
            ring(l, NONE_U32);
            continue;
        }
        me->asleep = true;
        pthread_cond_wait(&me->bell, &l->lock);
        me->asleep = false;
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* Marks lie behind, so somebody always can go on. */
static bool is_moving(const Lanes *l)
{
    for (uint32_t i = 0; i < LANE_HOST; i++)
        if (l->running[i] || is_ready(l, i))
            return true;
    return false;
}

static bool host_until(Lanes *l, uint32_t host_task, Err *err)
{
    pthread_mutex_lock(&l->lock);
    l->host_task = host_task;
    while (!host_may_go(l)) {
        uint32_t lane = host_choice(l);
        ring(l, lane);
        if (lane != NONE_U32) {
            run_head(l, lane);
            continue;
        }
        ASSERT(is_moving(l));
        l->host_asleep = true;
        pthread_cond_wait(&l->host_bell, &l->lock);
        l->host_asleep = false;
    }
    bool ok = !l->failed;
    if (!ok)
        *err = l->err;
    else if (host_task != NONE_U32)
        l->done[LANE_HOST]++;
    ring(l, NONE_U32);
    pthread_mutex_unlock(&l->lock);
    return ok;
}

/* ---- the interface ---- */

Lanes *lanes_open(const Program *p, RunTasks *run, void *user, bool eager)
{
    Lanes *l = mem_zero(1, sizeof *l);
    *l = (Lanes){ .p = p, .run = run, .user = user, .host_task = NONE_U32 };
    l->home = p->lane_n[LANE_HOST] || eager ? NONE_U32 : LANE_COMPUTE;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->host_bell, NULL);
    for (uint32_t i = 0; i < LANE_HOST; i++) {
        LaneThread *t = &l->thread[i];
        *t = (LaneThread){ .lanes = l, .lane = i };
        pthread_cond_init(&t->bell, NULL);
        if (i != l->home && p->lane_n[i] > 0)
            t->exists = pthread_create(&t->thread, NULL, lane_main, t) == 0;
        if (i != l->home && p->lane_n[i] > 0 && !t->exists && !l->failed)
            l->failed = !err_set(&l->err, "cannot start a thread for lane '%s'", lane_names[i]);
    }
    return l;
}

void lanes_close(Lanes *l)
{
    if (!l)
        return;
    pthread_mutex_lock(&l->lock);
    l->closing = true;
    for (uint32_t i = 0; i < LANE_N; i++)
        if (l->thread[i].exists)
            pthread_cond_signal(&l->thread[i].bell);
    pthread_mutex_unlock(&l->lock);
    for (uint32_t i = 0; i < LANE_HOST; i++) {
        if (l->thread[i].exists)
            pthread_join(l->thread[i].thread, NULL);
        pthread_cond_destroy(&l->thread[i].bell);
    }
    pthread_cond_destroy(&l->host_bell);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

void lanes_begin(Lanes *l)
{
    pthread_mutex_lock(&l->lock);
    for (uint32_t i = 0; i < LANE_N; i++) {
        ASSERT(!l->running[i]);
        l->launched[i] = l->done[i] = 0;
    }
    pthread_mutex_unlock(&l->lock);
}

void lanes_launch(Lanes *l, uint32_t task)
{
    pthread_mutex_lock(&l->lock);
    l->launched[l->p->tasks[task].lane]++;
    if (l->home == NONE_U32)
        ring(l, NONE_U32);
    pthread_mutex_unlock(&l->lock);
}

bool lanes_wait(Lanes *l, uint32_t task, Err *err)
{
    pthread_mutex_lock(&l->lock);
    l->launched[LANE_HOST]++;
    pthread_mutex_unlock(&l->lock);
    return host_until(l, task, err);
}

bool lanes_finish(Lanes *l, Err *err)
{
    return host_until(l, NONE_U32, err);
}

/*
 * measure.c - sweeps over the program, all-reduces, and everybody's shapes in one list.
 *
 * Ranks of a group meet in the sweeps, so collectives are run however late it is, though only so
 * often; and what they bring is what training would: kernels on whatever lay there could take
 * several times as long (numbers below 2^-126).
 */
#include "exec/measure.h"

#include "core/jobs.h"
#include "core/quantile.h"
#include "exec/calls.h"
#include "exec/control_group.h"
#include "exec/lanes.h"
#include "exec/net.h"
#include "exec/number.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    SWEEPS_MAX = 12,
    OFTEN = 2,
    COLLECTIVES_OFTEN = 64,
    MEETS_N = 60,
    REDUCES_N = 7,
    NOTHING_N = 30
};

#define SWEEPS_NS 500000000 /* no sweep begins later, and one that goes on takes shapes once */
#define STOP_NS   900000000 /* nothing more is run that is known */

/* Of this thread's processor. */
static int64_t processor_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- shapes ---- */

static bool same_matmul(const MatmulShape *a, const MatmulShape *b)
{
    return a->m == b->m && a->n == b->n && a->k == b->k && a->batch == b->batch &&
           a->transpose_a == b->transpose_a && a->transpose_b == b->transpose_b &&
           a->accumulate == b->accumulate;
}

bool same_work(const Op *a, const Op *b)
{
    return a->kind == b->kind && a->phase == b->phase && a->fn == b->fn &&
           a->dtype == b->dtype && a->flops == b->flops && a->read_bytes == b->read_bytes &&
           a->write_bytes == b->write_bytes &&
           (a->kind != OP_MATMUL || same_matmul(&a->u.matmul, &b->u.matmul));
}

typedef struct Shape {
    const Task *task;
    double sweep_ns[SWEEPS_MAX]; /* middle of the sweep; 0: not run in it */
    double *ns;                  /* of this sweep, [n] */
    uint32_t n, cap, all_n;      /* times run in it; in all */
} Shape;

typedef struct Sweeps {
    const Job *job;
    KernelEnv env;
    CommCalls calls;
    uint32_t *shape_of; /* by task; NONE_U32: nothing to run */
    Shape *shapes;
    uint32_t *met_n; /* of this sweep: collectives by group, then shape */
    uint32_t shapes_n, sweep;
    int64_t start_ns, clock_ns, busy_ns; /* the last two: of all kernels that were run */
} Sweeps;

static bool is_kernel(const Op *op)
{
    return op->kind == OP_H2D || (!op_is_comm(op->kind) && cpu_kernels[op->kind]);
}

static bool same_collective(const Task *a, const Task *b)
{
    return a->op->kind == b->op->kind && a->op->dtype == b->op->dtype &&
           a->members_n == b->members_n && a->op->u.comm.bytes == b->op->u.comm.bytes;
}

static bool same_shape(const Task *a, const Task *b)
{
    if (a->op == b->op)
        return true;
    return op_is_collective(a->op->kind) ? same_collective(a, b) : same_work(a->op, b->op);
}

static void list_shapes(Sweeps *s)
{
    const Program *p = s->job->program;
    s->shape_of = mem_zero((size_t)p->tasks_n + 1, sizeof *s->shape_of);
    s->shapes = mem_zero((size_t)p->tasks_n + 1, sizeof *s->shapes);
    for (uint32_t t = 0; t < p->tasks_n; t++) {
        const Task *task = &p->tasks[t];
        uint32_t i = 0;
        s->shape_of[t] = NONE_U32;
        if (!is_kernel(task->op) && !op_is_collective(task->op->kind))
            continue;
        while (i < s->shapes_n && !same_shape(s->shapes[i].task, task))
            i++;
        if (i == s->shapes_n)
            s->shapes[s->shapes_n++].task = task;
        s->shape_of[t] = i;
    }
}

/* ---- sweeps ---- */

/* Tokens that a transfer would have brought are whatever lies there: row 0 then. */
static void mend_indices(Sweeps *s, const Task *t)
{
    for (uint32_t a = 0; a < t->args_n; a++) {
        const Buffer *b = &task_args(s->job->program, t)[a];
        if (b->dtype != DTYPE_I64)
            continue;
        int64_t *x = (int64_t *)(void *)(s->env.arena + b->offset);
        for (uint64_t i = 0; i < b->elements; i++)
            if (x[i] < 0 || x[i] >= s->env.facts.vocab)
                x[i] = 0;
    }
}

/* What has been received: of either sign, from 2^-12 to 2, as activations and gradients are. */
static void receive(Sweeps *s, const Buffer *b)
{
    float x[256];
    uint64_t each = dtype_bytes(b->dtype);
    for (uint32_t i = 0; i < ARRAY_N(x); i++) {
        uint64_t drawn = mix_u64(i);
        float size = 1 + (float)(drawn >> 40) * 0x1p-24f;
        x[i] = ldexpf(drawn & 1 ? size : -size, -(int)(drawn >> 1 & 7) - (int)(drawn >> 4 & 7));
    }
    for (uint64_t at = 0; at < b->elements; at += ARRAY_N(x))
        numbers_narrow(b->dtype, x, min_u64(ARRAY_N(x), b->elements - at),
                       s->env.arena + b->offset + at * each);
}

/* Every line of what a transfer would have left in the caches, read and written. */
static void touch(Sweeps *s, const Task *t)
{
    enum { LINE = 64 };
    for (uint32_t a = 0; a < t->args_n; a++) {
        const Buffer *b = &task_args(s->job->program, t)[a];
        volatile uint8_t *x = s->env.arena + b->offset;
        if (t->op->kind == OP_RECV && b->dtype <= DTYPE_BF16)
            receive(s, b);
        for (uint64_t i = 0; i < b->bytes; i += LINE)
            x[i] = x[i];
    }
}

static void add_sample(Shape *shape, double ns)
{
    GROW(shape->ns, shape->n, shape->cap);
    shape->ns[shape->n++] = ns;
}

/* The mean: a kernel finds other things in the caches each time, and ranks that meet have slept or
 * have not.  Of collectives without the longest tenth, in which another program had a processor of
 * any of the ranks. */
static double middle_ns(Shape *shape)
{
    bool waits = op_is_collective(shape->task->op->kind);
    uint32_t n = shape->n - (waits ? shape->n / 10 : 0);
    double sum = 0;
    if (waits)
        sort_doubles(shape->ns, shape->n);
    for (uint32_t i = 0; i < n; i++)
        sum += shape->ns[i];
    return sum / n;
}

/* Of a group's collectives of a shape, so many are run in a sweep: all its members count alike,
 * where time, or other groups' collectives, would part them. */
static bool is_enough(Sweeps *s, uint32_t task)
{
    uint32_t group = s->job->program->tasks[task].op->u.comm.group;
    return ++s->met_n[(size_t)group * s->shapes_n + s->shape_of[task]] > COLLECTIVES_OFTEN;
}

/* False where the job fails.  Waiting for those who come later does not count. */
static bool time_collective(Sweeps *s, uint32_t task, Shape *shape, Err *err)
{
    const Program *p = s->job->program;
    CommCall *call = calls_of(&s->calls, task);
    calls_stage(p, &p->tasks[task], s->env.arena, true);
    if (!fabric_run(s->job->fabric, call, 1, err))
        return false;
    add_sample(shape, (double)(net_now_ns() - call->met_wall_ns));
    calls_stage(p, &p->tasks[task], s->env.arena, false);
    return true;
}

static bool run_one(Sweeps *s, const Task *t, Err *err)
{
    const Job *job = s->job;
    if (t->op->kind != OP_H2D) {
        cpu_kernels[t->op->kind](&s->env, job->program, t);
        return true;
    }
    for (uint32_t a = 0; a < t->args_n; a++) {
        const Buffer *to = &task_args(job->program, t)[a];
        if (!job->load(job->load_user, t, to, s->env.arena + to->offset, err))
            return false;
    }
    return true;
}

static bool time_one(Sweeps *s, const Task *t, Shape *shape, Err *err)
{
    if (t->op->kind != OP_H2D)
        mend_indices(s, t);
    int64_t busy_ns = processor_ns(), start_ns = net_now_ns();
    if (!run_one(s, t, err))
        return false;
    int64_t ns = net_now_ns() - start_ns;
    int64_t took_ns = kernel_took_ns(ns, processor_ns() - busy_ns);
    add_sample(shape, (double)took_ns);
    s->clock_ns += ns;
    s->busy_ns += took_ns;
    return true;
}

static bool run_task(Sweeps *s, uint32_t t, Err *err)
{
    const Task *task = &s->job->program->tasks[t];
    Shape *shape = s->shape_of[t] == NONE_U32 ? NULL : &s->shapes[s->shape_of[t]];
    if (op_is_collective(task->op->kind))
        return is_enough(s, t) || time_collective(s, t, shape, err);
    if (op_is_p2p(task->op->kind))
        touch(s, task);
    if (!is_kernel(task->op))
        return true;
    int64_t spent_ns = net_now_ns() - s->start_ns;
    uint32_t n = shape->n + shape->all_n;
    bool late = (spent_ns > SWEEPS_NS && n >= OFTEN) || (spent_ns >= STOP_NS && n > 0);
    return late || time_one(s, task, shape, err);
}

static bool sweep(Sweeps *s, Err *err)
{
    bool ok = true;
    memset(s->met_n, 0,
           (size_t)s->job->program->graph->groups_n * s->shapes_n * sizeof *s->met_n);
    for (uint32_t t = 0; t < s->job->program->tasks_n && ok; t++)
        ok = run_task(s, t, err);
    for (uint32_t i = 0; i < s->shapes_n; i++) {
        Shape *shape = &s->shapes[i];
        shape->sweep_ns[s->sweep] = shape->n ? middle_ns(shape) : 0;
        shape->all_n += shape->n;
        shape->n = 0;
    }
    s->sweep++;
    return ok;
}

/* Everybody goes on, or nobody. */
static bool go_on(Sweeps *s, bool *more, Err *err)
{
    uint32_t world_n = s->job->program->graph->world_n;
    int64_t mine = net_now_ns() - s->start_ns;
    int64_t *all = mem_zero(world_n, sizeof *all);
    bool ok = fabric_share(s->job->fabric, &mine, all, sizeof mine, err);
    *more = ok && s->sweep < SWEEPS_MAX;
    for (uint32_t i = 0; i < world_n && ok; i++)
        *more = *more && all[i] < SWEEPS_NS;
    free(all);
    return ok;
}

/* 0: it was never run. */
static double shape_ns(const Shape *shape, uint32_t sweeps_n)
{
    double x[SWEEPS_MAX];
    uint32_t n = 0;
    for (uint32_t i = 1; i < sweeps_n; i++)
        if (shape->sweep_ns[i] > 0)
            x[n++] = shape->sweep_ns[i];
    return n ? sort_median(x, n) : shape->sweep_ns[0];
}

/* ---- transfers ---- */

/* What a byte of the program's transfers travels in, on the mean; the same on all ranks. */
static bool typical_bytes(const Job *job, uint64_t *bytes, Err *err)
{
    const Program *p = job->program;
    double sum = 0, squares = 0;
    for (uint32_t t = 0; t < p->tasks_n; t++) {
        if (!op_is_comm(p->tasks[t].op->kind))
            continue;
        double x = (double)p->tasks[t].op->u.comm.bytes;
        sum += x;
        squares += x * x;
    }
    uint64_t mine[2] = { sum > 0 ? (uint64_t)(squares / sum) : 0, p->arena_bytes };
    uint64_t(*all)[2] = mem_zero(p->graph->world_n, sizeof *all), fits = UINT64_MAX;
    bool ok = fabric_share(job->fabric, mine, all, sizeof mine, err);
    *bytes = 0;
    for (uint32_t i = 0; i < p->graph->world_n; i++) {
        *bytes = max_u64(*bytes, all[i][0]);
        fits = min_u64(fits, all[i][1]);
    }
    *bytes = min_u64(*bytes, fits) / 64 * 64;
    free(all);
    return ok;
}

static bool time_reduces(const Job *job, const uint32_t *members, uint64_t bytes, uint32_t n,
                         double *ns, Err *err)
{
    Part part = { 0, bytes / sizeof(float), DTYPE_F32 };
    double x[MEETS_N];
    bool ok = true;
    ASSERT(n <= MEETS_N);
    for (uint32_t i = 0; i < n && ok; i++) {
        CommCall call = { .kind = OP_ALL_REDUCE,
                          .lane = LANE_REDUCE,
                          .members_n = job->program->graph->world_n,
                          .self = job->program->rank,
                          .members = members,
                          .in_n = 1,
                          .in = &part };
        ok = fabric_barrier(job->fabric, err);
        int64_t start_ns = net_now_ns();
        ok = ok && fabric_run(job->fabric, &call, 1, err);
        x[i] = (double)(net_now_ns() - start_ns);
    }
    *ns = ok ? sort_median(x, n) : 0;
    return ok;
}

static bool measure_transfers(MachineTimes *m, const Job *job, Err *err)
{
    uint32_t world_n = job->program->graph->world_n;
    uint32_t *members = mem_zero(world_n, sizeof *members);
    for (uint32_t i = 0; i < world_n; i++)
        members[i] = i;
    bool ok = world_n == 1 || (typical_bytes(job, &m->reduce_bytes, err) &&
                               time_reduces(job, members, 8, MEETS_N, &m->meet_ns, err));
    if (ok && m->reduce_bytes > 0)
        ok = time_reduces(job, members, m->reduce_bytes, REDUCES_N, &m->reduce_ns, err);
    free(members);
    return ok;
}

/* ---- a step of nothing ---- */

static bool run_nothing(void *user, uint32_t first, uint32_t n, Err *err)
{
    (void)user, (void)first, (void)n, (void)err;
    return true;
}

/* As walk.c does it, and what its ranks tell each other has so many bytes. */
static bool step_of_nothing(const Job *job, Lanes *lanes, void *told, Err *err)
{
    const Program *p = job->program;
    int64_t mine[4] = { 0 };
    job->rewind(job->load_user);
    lanes_begin(lanes);
    for (uint32_t t = 0; t < p->tasks_n; t++) {
        if (p->tasks[t].lane != LANE_HOST)
            lanes_launch(lanes, t);
        else if (!lanes_wait(lanes, t, err))
            return false;
    }
    return lanes_finish(lanes, err) && fabric_share(job->fabric, mine, told, sizeof mine, err);
}

static bool measure_nothing(MachineTimes *m, const Job *job, Err *err)
{
    uint32_t world_n = job->program->graph->world_n;
    double x[NOTHING_N], mine, *all = mem_zero(world_n, sizeof *all);
    void *told = mem_zero(world_n, 4 * sizeof(int64_t));
    Lanes *lanes = lanes_open(job->program, run_nothing, NULL, false);
    bool ok = fabric_barrier(job->fabric, err);
    for (uint32_t i = 0; i < NOTHING_N && ok; i++) {
        int64_t start_ns = net_now_ns();
        ok = step_of_nothing(job, lanes, told, err);
        x[i] = (double)(net_now_ns() - start_ns);
    }
    mine = ok ? sort_median(x, NOTHING_N) : 0;
    ok = ok && fabric_share(job->fabric, &mine, all, sizeof mine, err);
    for (uint32_t i = 0; i < world_n && ok; i++)
        m->nothing_ns = all[i] > m->nothing_ns ? all[i] : m->nothing_ns;
    lanes_close(lanes);
    free(told);
    free(all);
    return ok;
}

/* ---- everybody's shapes ---- */

static void add_time(MachineTimes *m, const void *time)
{
    const KernelTime *x = time;
    uint32_t i = 0;
    while (i < m->times_n && !same_work(&m->times[i].op, &x->op))
        i++;
    if (i == m->times_n) {
        GROW(m->times, m->times_n, m->times_cap);
        m->times[m->times_n++] = *x;
        return;
    }
    KernelTime *t = &m->times[i];
    t->ns = (t->ns * (double)t->n + x->ns * (double)x->n) / (double)(t->n + x->n);
    t->n += x->n;
}

static int by_collective(const void *a, const void *b)
{
    const CollectiveTime *x = a, *y = b;
    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
    if (x->ranks != y->ranks)
        return x->ranks < y->ranks ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static void add_collective(MachineTimes *m, const void *time)
{
    const CollectiveTime *x = time;
    uint32_t i = 0;
    while (i < m->collectives_n && by_collective(&m->collectives[i], x) != 0)
        i++;
    if (i == m->collectives_n) {
        GROW(m->collectives, m->collectives_n, m->collectives_cap);
        m->collectives[m->collectives_n++] =
            (CollectiveTime){ x->kind, x->ranks, x->bytes, 0, 0 };
    }
    CollectiveTime *t = &m->collectives[i];
    t->ns = (t->ns * (double)t->n + x->ns * (double)x->n) / (double)(t->n + x->n);
    t->n += x->n;
}

/* Calls add for each of everybody's `size` bytes; on rank 0. */
static bool gather_list(MachineTimes *m, const Job *job, const void *mine, uint32_t n,
                        size_t size, void (*add)(MachineTimes *m, const void *x), Err *err)
{
    void **all = NULL;
    size_t *bytes = NULL;
    bool ok = fabric_gather(job->fabric, mine, n * size, &all, &bytes, err);
    for (uint32_t r = 0; all && r < job->program->graph->world_n; r++) {
        for (size_t at = 0; at + size <= bytes[r]; at += size)
            add(m, (const uint8_t *)all[r] + at);
        free(all[r]);
    }
    free(all);
    free(bytes);
    return ok;
}

static bool gather_kernels(MachineTimes *m, const Sweeps *s, Err *err)
{
    KernelTime *mine = mem_zero((size_t)s->shapes_n + 1, sizeof *mine);
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->shapes_n; i++)
        if (is_kernel(s->shapes[i].task->op))
            mine[n++] = (KernelTime){ *s->shapes[i].task->op, shape_ns(&s->shapes[i], s->sweep),
                                      s->shapes[i].all_n };
    bool ok = gather_list(m, s->job, mine, n, sizeof *mine, add_time, err);
    free(mine);
    /* Those that were never run stay behind. */
    m->shapes_n = m->times_n;
    m->times_n = 0;
    for (uint32_t i = 0; i < m->shapes_n; i++)
        if (m->times[i].n > 0)
            m->times[m->times_n++] = m->times[i];
    return ok;
}

static bool gather_collectives(MachineTimes *m, const Sweeps *s, Err *err)
{
    CollectiveTime *mine = mem_zero((size_t)s->shapes_n + 1, sizeof *mine);
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->shapes_n; i++) {
        const Task *t = s->shapes[i].task;
        if (op_is_collective(t->op->kind) && t->members_n > 1)
            mine[n++] =
                (CollectiveTime){ t->op->kind, t->members_n, t->op->u.comm.bytes,
                                  shape_ns(&s->shapes[i], s->sweep), s->shapes[i].all_n };
    }
    bool ok = gather_list(m, s->job, mine, n, sizeof *mine, add_collective, err);
    free(mine);
    if (m->collectives_n > 0)
        qsort(m->collectives, m->collectives_n, sizeof *m->collectives, by_collective);
    return ok;
}

/* ---- all of it ---- */

/* What a rank sees of the processors. */
typedef struct Sight {
    ProcessorSet set;
    uint64_t allowed, groups; /* time of so many, by its control groups */
} Sight;

static uint32_t count(const ProcessorSet *set)
{
    uint32_t n = 0;
    for (size_t i = 0; i < ARRAY_N(set->bits); i++)
        for (uint64_t bits = set->bits[i]; bits; bits &= bits - 1)
            n++;
    return n;
}

static uint32_t ranks_beside(const Job *job)
{
    uint32_t n = 0;
    for (uint32_t r = 0; r < job->program->graph->world_n; r++)
        n += fabric_is_beside(job->fabric, r);
    return n;
}

/* Of the ranks beside this one together; 0: that cannot be told.  What control groups allow counts
 * where all are in the same ones. */
static uint32_t processors_of(const Sight *sights, const Job *job)
{
    const Sight *mine = &sights[job->program->rank];
    ProcessorSet all = { { 0 } };
    uint64_t allowed = mine->allowed;
    for (uint32_t r = 0; r < job->program->graph->world_n; r++) {
        if (!fabric_is_beside(job->fabric, r))
            continue;
        if (count(&sights[r].set) == 0)
            return 0;
        allowed = sights[r].groups == mine->groups ? allowed : NONE_U64;
        for (size_t i = 0; i < ARRAY_N(all.bits); i++)
            all.bits[i] |= sights[r].set.bits[i];
    }
    return (uint32_t)min_u64(count(&all), allowed);
}

/* Ranks may be kept to some of the host's processors: all of them to the same few (taskset, a
 * container), or each to its own (mpirun).  Who started them may not have said how many are here
 * (--rank); others may be here that share no memory with this one. */
static bool look_at_host(MachineTimes *m, const Job *job, uint32_t ranks_of_host,
                         uint32_t copies, Err *err)
{
    long online = sysconf(_SC_NPROCESSORS_ONLN), pages = sysconf(_SC_PHYS_PAGES);
    Sight mine = { jobs_processor_set(), control_groups_least("cpu", control_group_processors),
                   control_groups_digest() };
    Sight *sights = mem_zero(job->program->graph->world_n, sizeof *sights);
    bool ok = fabric_share(job->fabric, &mine, sights, sizeof mine, err);
    uint32_t beside_n = ranks_beside(job);
    m->ranks = (beside_n > ranks_of_host ? beside_n : ranks_of_host) * copies;
    m->processors = ok && beside_n >= ranks_of_host ? processors_of(sights, job) : 0;
    if (m->processors == 0)
        m->processors = online > 0 ? (uint32_t)online : 1;
    m->memory_bytes = (uint64_t)(pages > 0 ? pages : 1) * (uint64_t)sysconf(_SC_PAGESIZE);
    free(sights);
    return ok;
}

bool measure_job(MachineTimes *m, const Job *job, uint32_t ranks_of_host, uint32_t copies,
                 Err *err)
{
    *m = (MachineTimes){ 0 };
    m->messages = !fabric_shares_memory(job->fabric);
    Sweeps s = { .job = job,
                 .env = { .arena = fabric_arena(job->fabric),
                          .facts = job->facts,
                          .hyper = job->hyper,
                          .norm_counts = job->norm_counts,
                          .norm_owners = job->norm_owners },
                 .start_ns = net_now_ns() };
    list_shapes(&s);
    s.met_n = mem_zero((size_t)job->program->graph->groups_n * s.shapes_n + 1, sizeof *s.met_n);
    bool ok = calls_make(&s.calls, job->program, err) &&
              look_at_host(m, job, ranks_of_host, copies, err) &&
              fabric_barrier(job->fabric, err);
    for (bool more = true; ok && more;) {
        job->rewind(job->load_user);
        ok = sweep(&s, err) && go_on(&s, &more, err);
    }
    ok = ok && measure_transfers(m, job, err) && measure_nothing(m, job, err) &&
         gather_kernels(m, &s, err) && gather_collectives(m, &s, err);
    if (s.clock_ns > 0 && m->ranks <= m->processors)
        m->taken = 1 - (double)s.busy_ns / (double)s.clock_ns;
    m->seconds = (double)(net_now_ns() - s.start_ns) / 1e9;
    kernel_env_free(&s.env);
    calls_free(&s.calls);
    for (uint32_t i = 0; i < s.shapes_n; i++)
        free(s.shapes[i].ns);
    free(s.shapes);
    free(s.shape_of);
    free(s.met_n);
    return ok;
}

void machine_times_free(MachineTimes *m)
{
    free(m->times);
    free(m->collectives);
    *m = (MachineTimes){ 0 };
}

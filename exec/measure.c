/*
 * measure.c - sweeps over the kernels, all-reduces, and everybody's shapes in one list.
 */
#include "exec/measure.h"

#include "exec/lanes.h"
#include "exec/net.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SWEEPS_MAX = 12, OFTEN = 2, MEETS_N = 60, REDUCES_N = 7, NOTHING_N = 30 };

#define SWEEPS_NS 500000000 /* no sweep begins later, and one that goes on takes shapes once */
#define STOP_NS   900000000 /* nothing more is run, known or not */

/* Of this thread's processor. */
static int64_t processor_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double sort_median(double *x, uint32_t n)
{
    ASSERT(n > 0);
    qsort(x, n, sizeof *x, by_size);
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
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
    const Op *op;
    double sweep_ns[SWEEPS_MAX]; /* mean of the sweep; 0: not run in it */
    double sum_ns;               /* of this sweep, */
    uint32_t n, all_n;           /* times run in it; in all */
} Shape;

typedef struct Sweeps {
    const Job *job;
    KernelEnv env;
    uint32_t *shape_of; /* by task; NONE_U32: nothing to run */
    Shape *shapes;
    uint32_t shapes_n, sweep;
    int64_t start_ns, clock_ns, busy_ns; /* the last two: of all that was run */
} Sweeps;

static bool is_kernel(const Op *op)
{
    return op->kind == OP_H2D || (!op_is_comm(op->kind) && cpu_kernels[op->kind]);
}

static void list_shapes(Sweeps *s)
{
    const Program *p = s->job->program;
    s->shape_of = mem_zero((size_t)p->tasks_n + 1, sizeof *s->shape_of);
    s->shapes = mem_zero((size_t)p->tasks_n + 1, sizeof *s->shapes);
    for (uint32_t t = 0; t < p->tasks_n; t++) {
        const Op *op = p->tasks[t].op;
        uint32_t i = 0;
        s->shape_of[t] = NONE_U32;
        if (!is_kernel(op))
            continue;
        while (i < s->shapes_n && s->shapes[i].op != op && !same_work(s->shapes[i].op, op))
            i++;
        if (i == s->shapes_n)
            s->shapes[s->shapes_n++].op = op;
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

/* Every line of what a transfer would have left in the caches, read and written. */
static void touch(Sweeps *s, const Task *t)
{
    enum { LINE = 64 };
    for (uint32_t a = 0; a < t->args_n; a++) {
        const Buffer *b = &task_args(s->job->program, t)[a];
        volatile uint8_t *x = s->env.arena + b->offset;
        for (uint64_t i = 0; i < b->bytes; i += LINE)
            x[i] = x[i];
    }
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
    busy_ns = processor_ns() - busy_ns;
    shape->sum_ns += (double)min_i64(ns, busy_ns);
    shape->n++;
    s->clock_ns += ns;
    s->busy_ns += min_i64(ns, busy_ns);
    return true;
}

static bool sweep(Sweeps *s, Err *err)
{
    const Program *p = s->job->program;
    bool ok = true;
    for (uint32_t t = 0; t < p->tasks_n && ok; t++) {
        if (op_is_comm(p->tasks[t].op->kind))
            touch(s, &p->tasks[t]);
        if (s->shape_of[t] == NONE_U32)
            continue;
        Shape *shape = &s->shapes[s->shape_of[t]];
        int64_t spent_ns = net_now_ns() - s->start_ns;
        bool late = spent_ns > SWEEPS_NS && shape->n + shape->all_n >= OFTEN;
        if (!late && spent_ns < STOP_NS)
            ok = time_one(s, &p->tasks[t], shape, err);
    }
    for (uint32_t i = 0; i < s->shapes_n; i++) {
        Shape *shape = &s->shapes[i];
        shape->sweep_ns[s->sweep] = shape->n ? shape->sum_ns / shape->n : 0;
        shape->all_n += shape->n;
        shape->sum_ns = 0;
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

static void add_time(MachineTimes *m, const KernelTime *x)
{
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

static bool gather_times(MachineTimes *m, const Sweeps *s, Err *err)
{
    const Job *job = s->job;
    KernelTime *mine = mem_zero((size_t)s->shapes_n + 1, sizeof *mine);
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->shapes_n; i++)
        mine[n++] = (KernelTime){ *s->shapes[i].op, shape_ns(&s->shapes[i], s->sweep),
                                  s->shapes[i].all_n };
    void **all = NULL;
    size_t *bytes = NULL;
    bool ok = fabric_gather(job->fabric, mine, n * sizeof *mine, &all, &bytes, err);
    for (uint32_t r = 0; all && r < job->program->graph->world_n; r++) {
        const KernelTime *times = all[r];
        for (size_t i = 0; i < bytes[r] / sizeof *times; i++)
            add_time(m, &times[i]);
        free(all[r]);
    }
    free(all);
    free(bytes);
    free(mine);
    /* Those that were never run stay behind. */
    m->shapes_n = m->times_n;
    m->times_n = 0;
    for (uint32_t i = 0; i < m->shapes_n; i++)
        if (m->times[i].n > 0)
            m->times[m->times_n++] = m->times[i];
    return ok;
}

/* ---- all of it ---- */

static void look_at_host(MachineTimes *m, uint32_t ranks)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN), pages = sysconf(_SC_PHYS_PAGES);
    m->ranks = ranks;
    m->processors = processors > 0 ? (uint32_t)processors : 1;
    m->memory_bytes = (uint64_t)(pages > 0 ? pages : 1) * (uint64_t)sysconf(_SC_PAGESIZE);
}

bool measure_job(MachineTimes *m, const Job *job, uint32_t ranks_of_host, Err *err)
{
    *m = (MachineTimes){ 0 };
    look_at_host(m, ranks_of_host);
    Sweeps s = { .job = job,
                 .env = { .arena = fabric_arena(job->fabric),
                          .facts = job->facts,
                          .hyper = job->hyper,
                          .norm_counts = job->norm_counts,
                          .norm_owners = job->norm_owners },
                 .start_ns = net_now_ns() };
    list_shapes(&s);
    bool ok = fabric_barrier(job->fabric, err);
    for (bool more = true; ok && more;) {
        job->rewind(job->load_user);
        ok = sweep(&s, err) && go_on(&s, &more, err);
    }
    ok = ok && measure_transfers(m, job, err) && measure_nothing(m, job, err) &&
         gather_times(m, &s, err);
    if (s.clock_ns > 0 && m->ranks <= m->processors)
        m->taken = 1 - (double)s.busy_ns / (double)s.clock_ns;
    m->seconds = (double)(net_now_ns() - s.start_ns) / 1e9;
    kernel_env_free(&s.env);
    free(s.shapes);
    free(s.shape_of);
    return ok;
}

void machine_times_free(MachineTimes *m)
{
    free(m->times);
    *m = (MachineTimes){ 0 };
}

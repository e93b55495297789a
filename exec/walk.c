/*
 * walk.c - the loop over tasks, and what ranks tell each other after a step.
 */
#include "exec/walk.h"

#include <stdlib.h>
#include <string.h>

/* ---- launching ---- */

static bool launch_all(const Walk *w, int64_t from_ns, Err *err)
{
    const Program *p = w->job->program;
    bool model = w->job->clock != RUN_WALL;
    int64_t host_ns = from_ns;
    const Instance *in = NULL;
    for (uint32_t t = 0; t < p->tasks_n; t++) {
        const Task *task = &p->tasks[t];
        if (task->instance != in && w->host_start_ns)
            host_ns = from_ns + w->host_start_ns[task->instance - p->role->instances];
        in = task->instance;
        if (task->lane == LANE_HOST) {
            int64_t done_ns;
            if (!w->type->host_wait(w->backend, t, &done_ns, err))
                return false;
            host_ns = max_i64(host_ns, done_ns);
            continue;
        }
        host_ns += model ? w->job->times[task->id].launch_ns : 0;
        w->type->launch(w->backend, t, model ? host_ns : 0);
    }
    return true;
}

/* ---- what a step was ---- */

typedef struct Busy {
    int64_t start_ns, end_ns;
    bool comm;
} Busy;

static int by_start(const void *a, const void *b)
{
    const Busy *x = a, *y = b;
    if (x->start_ns != y->start_ns)
        return x->start_ns < y->start_ns ? -1 : 1;
    return 0;
}

static uint32_t list_busy(const Program *p, const TaskRecord *records, Busy *busy)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->tasks_n; i++) {
        OpKind kind = p->tasks[i].op->kind;
        bool comm = op_is_comm(kind);
        if (kind == OP_H2D || kind == OP_RELEASE || kind == OP_HOST_WAIT)
            continue;
        /* A send or receive counts while it transfers, a collective while it waits as well. */
        int64_t start = op_is_p2p(kind) ? records[i].met_ns : records[i].start_ns;
        if (records[i].end_ns > start)
            busy[n++] = (Busy){ start, records[i].end_ns, comm };
    }
    qsort(busy, n, sizeof *busy, by_start);
    return n;
}

/* Unions of intervals in one pass: `covered` is how far compute (all) reach so far. */
static void add_up(const Busy *busy, uint32_t n, int64_t *compute_ns, int64_t *exposed_ns)
{
    int64_t compute_to = INT64_MIN, all_to = INT64_MIN, all_ns = 0;
    *compute_ns = 0;
    for (uint32_t i = 0; i < n; i++) {
        const Busy *b = &busy[i];
        all_ns += max_i64(0, b->end_ns - max_i64(b->start_ns, all_to));
        all_to = max_i64(all_to, b->end_ns);
        if (b->comm)
            continue;
        *compute_ns += max_i64(0, b->end_ns - max_i64(b->start_ns, compute_to));
        compute_to = max_i64(compute_to, b->end_ns);
    }
    *exposed_ns = all_ns - *compute_ns;
}

/* What ranks tell each other at the end of a step. */
typedef struct Told {
    double loss;
    int64_t end_ns, compute_ns, exposed_ns;
} Told;

static int64_t latest_end_ns(const Program *p, const TaskRecord *records, int64_t from_ns)
{
    for (uint32_t i = 0; i < p->tasks_n; i++)
        from_ns = max_i64(from_ns, records[i].end_ns);
    return from_ns;
}

static Told told_of(const Walk *w, double loss, int64_t from_ns)
{
    const Program *p = w->job->program;
    const TaskRecord *records = w->type->records(w->backend);
    Told told = { .loss = loss, .end_ns = latest_end_ns(p, records, from_ns) };
    Busy *busy = mem_zero((size_t)p->tasks_n + 1, sizeof *busy);
    uint32_t n = list_busy(p, records, busy);
    add_up(busy, n, &told.compute_ns, &told.exposed_ns);
    free(busy);
    return told;
}

/* Sums in rank order: every rank gets the same bits. */
static Told sum_of(const Walk *w, const Told *all)
{
    uint32_t world_n = w->job->program->graph->world_n;
    Told sum = { 0 };
    for (uint32_t i = 0; i < world_n; i++) {
        sum.loss += all[i].loss;
        sum.end_ns = max_i64(sum.end_ns, all[i].end_ns);
        sum.compute_ns += all[i].compute_ns;
        sum.exposed_ns += all[i].exposed_ns;
    }
    sum.loss /= (double)w->job->facts.loss_terms;
    sum.compute_ns /= world_n;
    sum.exposed_ns /= world_n;
    return sum;
}

static bool run_step(const Walk *w, uint64_t step, int64_t *from_ns, Told *all, Err *err)
{
    const BackendType *type = w->type;
    bool model = w->job->clock == RUN_VIRTUAL;
    double loss;
    if (!w->prepare(w->user, step, err))
        return false;
    type->begin(w->backend, step, *from_ns);
    if (!launch_all(w, *from_ns, err))
        return false;
    if (step + 1 < w->first_step + w->steps)
        w->ahead(w->user, step + 1);
    if (!type->end(w->backend, &loss, err))
        return false;
    Told mine = told_of(w, loss, *from_ns);
    if (!fabric_share(w->job->fabric, &mine, all, sizeof mine, err))
        return false;
    Told sum = sum_of(w, all);
    int64_t end_ns = model ? sum.end_ns : type->now_ns(w->backend);
    if (w->record)
        record_step(w->record, step, *from_ns, end_ns, type->records(w->backend));
    StepInfo info = { .step = step,
                      .loss = sum.loss,
                      .step_ns = end_ns - *from_ns,
                      .exposed_ns = sum.exposed_ns,
                      .compute_ns = sum.compute_ns };
    bool ok = w->after(w->user, &info, err);
    if (ok && w->record && w->record->steps_n % CLOCKS_EVERY == 0)
        ok = record_clocks(w->record, type->now_ns, w->backend, err);
    *from_ns = model ? end_ns : type->now_ns(w->backend);
    return ok;
}

bool walk(const Walk *w, Err *err)
{
    Told *all = mem_zero(w->job->program->graph->world_n, sizeof *all);
    int64_t from_ns = 0;
    bool ok = fabric_barrier(w->job->fabric, err);
    w->type->begin_run(w->backend);
    if (ok && w->record) {
        ok = record_clocks(w->record, w->type->now_ns, w->backend, err);
        from_ns = w->job->clock == RUN_VIRTUAL ? 0 : w->type->now_ns(w->backend);
    }
    for (uint64_t i = 0; i < w->steps && ok; i++)
        ok = run_step(w, w->first_step + i, &from_ns, all, err);
    if (!ok)
        fabric_abort(w->job->fabric, err->text);
    free(all);
    return ok;
}

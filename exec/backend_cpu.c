/*
 * backend_cpu.c - the CPU as a device: kernels of exec/kernel.h, lanes on threads.
 *
 * The arena is the fabric's, so that ranks of one host read each other's tensors in
 * place.  What a transfer needs to know is prepared once per program (exec/calls.h).
 */
#include "exec/backend.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "exec/calls.h"
#include "exec/lanes.h"
#include "exec/net.h"

const char *const run_clock_names[RUN_CLOCK_N] = { "wall", "virtual", "paced" };

struct Backend {
    const Job *job;
    const Program *p;
    uint8_t *arena;
    Lanes *lanes;
    KernelEnv env[LANE_N];
    CommCalls calls;
    TaskRecord *records;
    int64_t free_ns[LANE_N]; /* model time at which a lane is done with its newest task */
    int64_t zero_ns;         /* of the host's clock, when the run began */
};

/* ---- time ---- */

static int64_t busy_ns(const Backend *b)
{
    struct timespec t;
    if (!b->job->timed)
        return 0;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void sleep_until(int64_t at_ns)
{
    struct timespec t = { .tv_sec = (time_t)(at_ns / 1000000000),
                          .tv_nsec = (long)(at_ns % 1000000000) };
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {
    }
}

static int64_t run_ns(const Backend *b, uint32_t task)
{
    return b->job->times ? b->job->times[b->p->tasks[task].id].run_ns : 0;
}

static int64_t waits_end_ns(const Backend *b, uint32_t task)
{
    const Task *t = &b->p->tasks[task];
    int64_t end_ns = 0;
    for (uint32_t i = 0; i < t->waits_n; i++) {
        uint32_t before = program_marked(b->p, b->p->waits[t->waits_first + i]);
        end_ns = max_i64(end_ns, b->records[before].end_ns);
    }
    return end_ns;
}

/* When tasks posted together begin, on the clock of the run. */
static int64_t start_ns(const Backend *b, uint32_t first, uint32_t n)
{
    if (b->job->clock != RUN_VIRTUAL)
        return net_now_ns() - b->zero_ns;
    int64_t ns = max_i64(b->free_ns[b->p->tasks[first].lane], b->records[first].launched_ns);
    for (uint32_t i = 0; i < n; i++)
        ns = max_i64(ns, waits_end_ns(b, first + i));
    return ns;
}

/* When a kernel that began at start_ns ends; its arithmetic is done. */
static int64_t kernel_end_ns(const Backend *b, uint32_t task, int64_t start)
{
    if (b->job->clock == RUN_VIRTUAL)
        return start + run_ns(b, task);
    if (b->job->clock == RUN_PACED)
        sleep_until(b->zero_ns + start + run_ns(b, task));
    return net_now_ns() - b->zero_ns;
}

/* ---- transfers ---- */

/* Transfers that are posted together end together: the lane goes on when all are done. */
static int64_t end_transfers(Backend *b, uint32_t first, uint32_t n, int64_t *met_ns)
{
    const CommCall *calls = calls_of(&b->calls, first);
    bool model = b->job->clock == RUN_VIRTUAL;
    int64_t end = 0;
    *met_ns = INT64_MIN;
    for (uint32_t i = 0; i < n; i++) {
        int64_t met = model ? calls[i].met_ns : calls[i].met_wall_ns - b->zero_ns;
        *met_ns = max_i64(*met_ns, met);
        end = max_i64(end, met + run_ns(b, first + i));
    }
    if (model)
        return end;
    if (b->job->clock == RUN_PACED)
        sleep_until(b->zero_ns + end);
    return net_now_ns() - b->zero_ns;
}

static bool run_transfers(Backend *b, uint32_t first, uint32_t n, Err *err)
{
    CommCall *calls = calls_of(&b->calls, first);
    int64_t start = start_ns(b, first, n), met;
    for (uint32_t i = 0; i < n; i++)
        calls[i].at_ns = start;
    const Task *t = &b->p->tasks[first];
    calls_stage(b->p, t, b->arena, true);
    if (!fabric_run(b->job->fabric, calls, n, err))
        return false;
    calls_stage(b->p, t, b->arena, false);
    int64_t end = end_transfers(b, first, n, &met);
    for (uint32_t i = 0; i < n; i++) {
        TaskRecord *r = &b->records[first + i];
        r->start_ns = start;
        r->met_ns = min_i64(max_i64(met, start), end);
        r->end_ns = end;
    }
    return true;
}

/* ---- kernels ---- */

static bool load(Backend *b, const Task *t, Err *err)
{
    for (uint32_t a = 0; a < t->args_n; a++) {
        const Buffer *to = &task_args(b->p, t)[a];
        if (!b->job->load(b->job->load_user, t, to, b->arena + to->offset, err))
            return false;
    }
    return true;
}

static bool run_kernel(Backend *b, uint32_t task, Err *err)
{
    const Task *t = &b->p->tasks[task];
    TaskRecord *r = &b->records[task];
    bool ok = true;
    int64_t busy = busy_ns(b);
    r->start_ns = r->met_ns = start_ns(b, task, 1);
    if (t->op->kind == OP_H2D)
        ok = load(b, t, err);
    else if (t->op->kind != OP_RELEASE)
        cpu_kernels[t->op->kind](&b->env[t->lane], b->p, t);
    r->end_ns = kernel_end_ns(b, task, r->start_ns);
    r->busy_ns = busy_ns(b) - busy;
    return ok;
}

static bool run_tasks(void *user, uint32_t first, uint32_t n, Err *err)
{
    Backend *b = user;
    const Task *t = &b->p->tasks[first];
    bool ok =
        op_is_comm(t->op->kind) ? run_transfers(b, first, n, err) : run_kernel(b, first, err);
    b->free_ns[t->lane] = b->records[first].end_ns;
    if (!ok) {
        err_wrap(err, "op '%s'", program_text(b->p, t->op->name));
        fabric_abort(b->job->fabric, err->text);
    }
    return ok;
}

/* ---- the interface ---- */

static void cpu_close(Backend *b)
{
    if (!b)
        return;
    lanes_close(b->lanes);
    for (int i = 0; i < LANE_N; i++)
        kernel_env_free(&b->env[i]);
    calls_free(&b->calls);
    free(b->records);
    free(b);
}

static bool cpu_open(Backend **out, const Job *job, Err *err)
{
    *out = NULL;
    if (!kernels_check(job->program, err))
        return false;
    Backend *b = mem_zero(1, sizeof *b);
    *b = (Backend){ .job = job, .p = job->program, .arena = fabric_arena(job->fabric) };
    for (int i = 0; i < LANE_N; i++)
        b->env[i] = (KernelEnv){ .arena = b->arena,
                                 .facts = job->facts,
                                 .hyper = job->hyper,
                                 .norm_counts = job->norm_counts,
                                 .norm_owners = job->norm_owners };
    b->records = mem_zero((size_t)b->p->tasks_n + 1, sizeof *b->records);
    if (!calls_make(&b->calls, b->p, err)) {
        cpu_close(b);
        return false;
    }
    b->lanes = lanes_open(b->p, run_tasks, b, job->clock == RUN_PACED);
    *out = b;
    return true;
}

static bool cpu_read(Backend *b, uint64_t offset, void *to, uint64_t bytes, Err *err)
{
    (void)err;
    memcpy(to, b->arena + offset, bytes);
    return true;
}

static bool cpu_write(Backend *b, uint64_t offset, const void *from, uint64_t bytes, Err *err)
{
    (void)err;
    memcpy(b->arena + offset, from, bytes);
    return true;
}

static bool cpu_clear(Backend *b, uint64_t offset, uint64_t bytes, Err *err)
{
    (void)err;
    memset(b->arena + offset, 0, bytes);
    return true;
}

static void cpu_begin_run(Backend *b)
{
    b->zero_ns = net_now_ns();
}

static void cpu_begin(Backend *b, uint64_t step, int64_t from_ns)
{
    lanes_begin(b->lanes);
    for (int i = 0; i < LANE_N; i++) {
        b->env[i].step = step;
        b->env[i].loss = 0;
        b->free_ns[i] = from_ns;
    }
}

static int64_t cpu_now_ns(const Backend *b)
{
    return net_now_ns() - b->zero_ns;
}

static void cpu_launch(Backend *b, uint32_t task, int64_t launched_ns)
{
    if (b->job->clock == RUN_PACED) {
        sleep_until(b->zero_ns + launched_ns);
        launched_ns = cpu_now_ns(b);
    }
    b->records[task].launched_ns = launched_ns;
    lanes_launch(b->lanes, task);
}

static bool cpu_host_wait(Backend *b, uint32_t task, int64_t *done_ns, Err *err)
{
    if (!lanes_wait(b->lanes, task, err))
        return false;
    *done_ns = waits_end_ns(b, task);
    b->records[task].start_ns = b->records[task].met_ns = b->records[task].end_ns = *done_ns;
    return true;
}

static bool cpu_end(Backend *b, double *loss, Err *err)
{
    if (!lanes_finish(b->lanes, err)) {
        fabric_abort(b->job->fabric, err->text);
        return false;
    }
    *loss = 0;
    for (int i = 0; i < LANE_N; i++)
        *loss += b->env[i].loss;
    return true;
}

static const TaskRecord *cpu_records(const Backend *b)
{
    return b->records;
}

const BackendType backend_cpu = { .check = kernels_check,
                                  .open = cpu_open,
                                  .close = cpu_close,
                                  .read = cpu_read,
                                  .write = cpu_write,
                                  .clear = cpu_clear,
                                  .begin_run = cpu_begin_run,
                                  .begin = cpu_begin,
                                  .launch = cpu_launch,
                                  .host_wait = cpu_host_wait,
                                  .end = cpu_end,
                                  .records = cpu_records,
                                  .now_ns = cpu_now_ns };

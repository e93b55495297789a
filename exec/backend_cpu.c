/*
 * backend_cpu.c - the CPU as a device: kernels of exec/kernel.h, lanes on threads.
 *
 * The arena is the fabric's, so that ranks of one host read each other's tensors in
 * place.  What a transfer needs to know is prepared once per program.
 *
 * Where several ranks' data lie in one tensor (DataParallel's batch on device 0), a
 * send takes, and a receive fills, the part of its peer: the tensor then holds as
 * many messages as the group has members, or one less when this rank's own is not
 * among them.
 */
#include "exec/backend.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "exec/lanes.h"

const char *const run_clock_names[RUN_CLOCK_N] = { "wall", "virtual", "paced" };

struct Backend {
    const Job *job;
    const Program *p;
    uint8_t *arena;
    Lanes *lanes;
    KernelEnv env[LANE_N];
    uint32_t *call_of; /* by task; NONE_U32 */
    uint32_t calls_n, parts_n;
    CommCall *calls;
    Part *parts;
    TaskRecord *records;
    int64_t free_ns[LANE_N]; /* model time at which a lane is done with its newest task */
    int64_t zero_ns;         /* of the host's clock, when the run began */
};

/* ---- time ---- */

static int64_t host_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

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
        return host_ns() - b->zero_ns;
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
    return host_ns() - b->zero_ns;
}

/* ---- transfers ---- */

static bool part_of_peer(const Task *t, const Buffer *b, uint64_t parts, Part *part, Err *err)
{
    uint32_t peer = t->op->u.comm.peer, n = t->members_n;
    if ((parts != n && parts + 1 != n) || b->elements % parts != 0)
        return err_set(err,
                       "op %u: %" PRIu64 " messages of %" PRIu64
                       " bytes lie in a tensor for %u ranks",
                       t->id, parts, t->op->u.comm.bytes, n);
    uint64_t place = parts == n ? peer : peer - (peer > t->self);
    part->elements = b->elements / parts;
    part->offset += place * (b->bytes / parts);
    return true;
}

static bool is_result(const Op *op, const Buffer *b)
{
    bool two =
        op->kind == OP_ALL_GATHER || op->kind == OP_REDUCE_SCATTER || op->kind == OP_ALL_TO_ALL;
    return two && b->mode == ARG_WRITE;
}

/* The argument of which the staging buffer holds the last columns. */
static uint32_t staged_arg(const Task *t)
{
    return t->op->kind == OP_ALL_GATHER ? 0 : 1;
}

/* Columns of rows into the staging buffer (in), or out of it; all of a smaller argument. */
static void stage(const Backend *b, const Task *t, bool in)
{
    const Buffer *rows = &task_args(b->p, t)[staged_arg(t)];
    const Buffer *staged = &task_args(b->p, t)[t->args_n];
    uint64_t n = staged->bytes > rows->bytes ? 1 : rows->dims[0];
    uint64_t row = rows->bytes / n, part = min_u64(row, staged->bytes / n);
    uint8_t *there = b->arena + rows->offset + row - part, *here = b->arena + staged->offset;
    for (uint64_t i = 0; i < n; i++)
        memcpy(in ? here + i * part : there + i * row, in ? there + i * row : here + i * part,
               part);
}

static bool add_part(Backend *x, const Task *t, const Buffer *b, uint64_t messages, Err *err)
{
    Part *part = &x->parts[x->parts_n++];
    *part = (Part){ b->offset, b->elements, b->dtype };
    return messages == 1 || part_of_peer(t, b, messages, part, err);
}

static uint64_t messages_in(const Program *p, const Task *t)
{
    uint64_t bytes = 0;
    for (uint32_t a = 0; a < t->args_n; a++)
        bytes += task_args(p, t)[a].bytes;
    uint64_t one = t->op->u.comm.bytes;
    return op_is_p2p(t->op->kind) && one > 0 && bytes > one ? bytes / one : 1;
}

/* Over tensor-parallel ranks the softmax of the loss begins with the largest logit of a row. */
static bool takes_largest(const Program *p, const Task *t)
{
    return t->op->kind == OP_ALL_REDUCE && t->args_n > 0 &&
           strcmp(program_text(p, task_args(p, t)->name), "loss maximum") == 0;
}

static bool add_call(Backend *x, uint32_t task, Err *err)
{
    const Program *p = x->p;
    const Task *t = &p->tasks[task];
    CommCall *c = &x->calls[x->calls_n];
    x->call_of[task] = x->calls_n++;
    if (t->args_n == 0)
        return err_set(err, "op %u '%s' transfers no tensor", t->id,
                       program_text(p, t->op->name));
    *c = (CommCall){ .kind = t->op->kind,
                     .lane = t->lane,
                     .members_n = t->members_n,
                     .self = t->self,
                     .peer = t->op->u.comm.peer,
                     .tag = t->op->u.comm.tag,
                     .members = p->members + t->members_first,
                     .maximum = takes_largest(p, t) };
    uint64_t messages = messages_in(p, t);
    const Buffer *staged = t->staged ? &task_args(p, t)[t->args_n] : NULL;
    for (int results = 0; results < 2; results++) {
        const Part *first = &x->parts[x->parts_n];
        uint32_t before = x->parts_n;
        for (uint32_t a = 0; a < t->args_n; a++) {
            const Buffer *b = &task_args(p, t)[a];
            if (is_result(t->op, b) == (results > 0) &&
                !add_part(x, t, staged && a == staged_arg(t) ? staged : b, messages, err))
                return false;
        }
        *(results ? &c->out : &c->in) = first;
        *(results ? &c->out_n : &c->in_n) = x->parts_n - before;
    }
    return true;
}

static bool prepare_calls(Backend *x, Err *err)
{
    const Program *p = x->p;
    uint32_t calls = 0;
    for (uint32_t i = 0; i < p->tasks_n; i++)
        calls += op_is_comm(p->tasks[i].op->kind);
    x->calls = mem_zero((size_t)calls + 1, sizeof *x->calls);
    x->call_of = mem_zero((size_t)p->tasks_n + 1, sizeof *x->call_of);
    x->parts = mem_zero((size_t)p->args_n + 1, sizeof *x->parts);
    for (uint32_t i = 0; i < p->tasks_n; i++) {
        x->call_of[i] = NONE_U32;
        if (op_is_comm(p->tasks[i].op->kind) && !add_call(x, i, err))
            return err_wrap(err, "rank %u", p->rank);
    }
    return true;
}

/* Transfers that are posted together end together: the lane goes on when all are done. */
static int64_t end_transfers(Backend *b, uint32_t first, uint32_t n, int64_t *met_ns)
{
    const CommCall *calls = &b->calls[b->call_of[first]];
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
    return host_ns() - b->zero_ns;
}

static bool run_transfers(Backend *b, uint32_t first, uint32_t n, Err *err)
{
    CommCall *calls = &b->calls[b->call_of[first]];
    int64_t start = start_ns(b, first, n), met;
    for (uint32_t i = 0; i < n; i++)
        calls[i].at_ns = start;
    const Task *t = &b->p->tasks[first];
    if (t->staged && t->op->kind == OP_ALL_GATHER)
        stage(b, t, true);
    if (!fabric_run(b->job->fabric, calls, n, err))
        return false;
    if (t->staged && t->op->kind == OP_REDUCE_SCATTER)
        stage(b, t, false);
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
    free(b->call_of);
    free(b->calls);
    free(b->parts);
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
    if (!prepare_calls(b, err)) {
        cpu_close(b);
        return false;
    }
    b->lanes = lanes_open(b->p, run_tasks, b, job->clock == RUN_PACED);
    *out = b;
    return true;
}

static void cpu_read(Backend *b, uint64_t offset, void *to, uint64_t bytes)
{
    memcpy(to, b->arena + offset, bytes);
}

static void cpu_write(Backend *b, uint64_t offset, const void *from, uint64_t bytes)
{
    memcpy(b->arena + offset, from, bytes);
}

static void cpu_begin_run(Backend *b)
{
    b->zero_ns = host_ns();
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
    return host_ns() - b->zero_ns;
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

const BackendType backend_cpu = { .name = "cpu",
                                  .open = cpu_open,
                                  .close = cpu_close,
                                  .read = cpu_read,
                                  .write = cpu_write,
                                  .begin_run = cpu_begin_run,
                                  .begin = cpu_begin,
                                  .launch = cpu_launch,
                                  .host_wait = cpu_host_wait,
                                  .end = cpu_end,
                                  .records = cpu_records,
                                  .now_ns = cpu_now_ns };

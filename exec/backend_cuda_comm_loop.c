/*
 * backend_cuda_comm_loop.c - transfers among ranks that are threads, on one GPU.
 *
 * exec/cuda_comm_loop.h says who queues what when; here it is queued.  Rank 0 makes the
 * world, the others get its address over the fabric; the last one out takes it down.
 */
#include "exec/cuda_comm.h"

#include <cuda_runtime_api.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "exec/cuda_comm_kernel.h"
#include "exec/cuda_comm_loop.h"
#include "exec/net.h"

enum { PATIENCE = 10 /* time-outs for a rank that lives, as the fabric says, and is slow */ };

_Static_assert((int)COMM_SOURCES_MAX == (int)MOVE_SOURCES_MAX, "one kernel adds all ranks");

/* Shared by all ranks. */
typedef struct Shared {
    LoopWorld *world;
    const CaptureApi *capture; /* NULL */
    uint32_t **op_of;          /* by rank and call; where there is a capture */
    const CommCalls **calls;   /* by rank */
    uint32_t ranks;
    _Atomic uint32_t inside_n;
    cudaEvent_t *events;
    uint32_t events_n, events_cap;
} Shared;

struct CudaComm {
    CudaCommJob job;
    uint32_t rank;
    Shared *shared;
};

/* ---- queueing ---- */

static bool check(cudaError_t result, const char *doing, Err *err)
{
    return result == cudaSuccess ||
           err_set(err, "CUDA cannot %s: %s", doing, cudaGetErrorString(result));
}

/* Under the lock of the world, as all of these. */
static bool make_events(void *user, void **events, uint32_t n, Err *err)
{
    Shared *s = user;
    for (uint32_t i = 0; i < n; i++) {
        GROW(s->events, s->events_n, s->events_cap);
        cudaEvent_t *event = &s->events[s->events_n];
        if (!check(cudaEventCreateWithFlags(event, cudaEventDisableTiming), "make an event",
                   err))
            return false;
        events[i] = *event;
        s->events_n++;
    }
    return true;
}

static bool record(void *user, void *event, void *stream, Err *err)
{
    (void)user;
    return check(cudaEventRecord(event, stream), "record an event", err);
}

static bool wait(void *user, void *stream, void *event, Err *err)
{
    (void)user;
    return check(cudaStreamWaitEvent(stream, event, 0), "wait for an event", err);
}

static CommNumber number_of(DType t)
{
    static const CommNumber numbers[DTYPE_N] = {
        [DTYPE_F32] = COMM_F32,   [DTYPE_TF32] = COMM_F32, [DTYPE_F16] = COMM_F16,
        [DTYPE_BF16] = COMM_BF16, [DTYPE_FP8] = COMM_BYTE, [DTYPE_I32] = COMM_I32,
        [DTYPE_I64] = COMM_I64,
    };
    return numbers[t];
}

static bool launch_kernel(void *stream, const LoopKernel *k, Err *err)
{
    if (k->action == MOVE_COPY)
        return check((cudaError_t)comm_copy_launch(k->to, k->from[0],
                                                   k->elements * dtype_bytes(k->dtype), stream),
                     "launch a copy", err);
    CommSum sum = { .number = number_of(k->dtype),
                    .maximum = k->action == MOVE_MAX,
                    .from_n = k->from_n,
                    .elements = k->elements,
                    .to = k->to };
    for (uint32_t i = 0; i < k->from_n; i++)
        sum.from[i] = k->from[i];
    return check((cudaError_t)comm_sum_launch(&sum, stream), "launch a sum", err);
}

static bool run_kernel(void *user, void *stream, const LoopKernel *k, Err *err)
{
    const Shared *s = user;
    if (!s->capture)
        return launch_kernel(stream, k, err);
    s->capture->push_op(k->rank, s->op_of[k->rank][k->call - s->calls[k->rank]->calls]);
    bool ok = launch_kernel(stream, k, err);
    s->capture->pop_op();
    return ok;
}

/* ---- opening and closing ---- */

/* Which op each of this rank's calls is; before the others call it. */
static void note_ops(Shared *s, const CudaCommJob *job)
{
    const Program *p = job->program;
    uint32_t *op_of = mem_zero((size_t)job->calls->calls_n + 1, sizeof *op_of);
    for (uint32_t t = 0; t < p->tasks_n; t++)
        if (job->calls->of[t] != NONE_U32)
            op_of[job->calls->of[t]] = p->tasks[t].id;
    s->op_of[p->rank] = op_of;
    s->calls[p->rank] = job->calls;
}

static Shared *make_shared(const CudaCommJob *job)
{
    Shared *s = mem_zero(1, sizeof *s);
    uint32_t ranks = job->program->graph->world_n;
    LoopDevice device = { s, make_events, record, wait, run_kernel };
    s->world = loop_world_open(ranks, &device, job->rings, PATIENCE * job->timeout_s);
    atomic_store(&s->inside_n, ranks);
    s->capture = job->capture;
    s->ranks = ranks;
    s->op_of = mem_zero(ranks, sizeof *s->op_of);
    s->calls = mem_zero(ranks, sizeof *s->calls);
    return s;
}

static void free_shared(Shared *s)
{
    loop_world_close(s->world);
    for (uint32_t i = 0; i < s->events_n; i++)
        cudaEventDestroy(s->events[i]);
    for (uint32_t i = 0; i < s->ranks; i++)
        free(s->op_of[i]);
    free(s->op_of);
    free(s->calls);
    free(s->events);
    free(s);
}

/* All must be one process, or the address means nothing. */
static bool share(CudaComm *c, Err *err)
{
    typedef struct Told {
        int64_t pid;
        Shared *shared;
    } Told;
    uint32_t n = c->job.program->graph->world_n;
    Told mine = { getpid(), c->rank == 0 ? make_shared(&c->job) : NULL };
    Told *all = mem_zero(n, sizeof *all);
    bool told = fabric_share(c->job.fabric, &mine, all, sizeof mine, err), ok = told;
    for (uint32_t i = 1; ok && i < n; i++)
        if (all[i].pid != all[0].pid)
            ok = err_set(err,
                         "with --comm loop all ranks are threads of one process, but rank 0 "
                         "and rank %u are processes: start it once, without a launcher",
                         i);
    if (ok)
        c->shared = all[0].shared;
    else if (mine.shared && told) /* else others may have been told, and use it */
        free_shared(mine.shared);
    free(all);
    return ok;
}

static void loop_close(CudaComm *c)
{
    if (!c)
        return;
    if (c->shared && atomic_fetch_sub(&c->shared->inside_n, 1) == 1)
        free_shared(c->shared);
    free(c);
}

static bool loop_open(CudaComm **out, const CudaCommJob *job, Err *err)
{
    CudaComm *c = mem_zero(1, sizeof *c);
    *c = (CudaComm){ .job = *job, .rank = job->program->rank };
    *out = NULL;
    if (!check(cudaSetDevice(job->device), "use its device", err) ||
        !check((cudaError_t)comm_kernels_load(), "load its kernels", err) || !share(c, err)) {
        err_wrap(err, "rank %u", c->rank);
        fabric_abort(job->fabric, err->text);
        free(c);
        return false;
    }
    note_ops(c->shared, &c->job);
    loop_world_join(c->shared->world, c->rank, job->arena, job->fabric);
    *out = c;
    return fabric_barrier(job->fabric, err); /* all have joined */
}

/* ---- running ---- */

static bool loop_task(CudaComm *c, uint32_t task, cudaStream_t stream, Err *err)
{
    const Program *p = c->job.program;
    const Task *t = &p->tasks[task];
    /* the thread of a lane comes here for the first time */
    bool ok = check(cudaSetDevice(c->job.device), "use its device", err) &&
              loop_run(c->shared->world, c->rank, calls_of(c->job.calls, task),
                       program_posted_n(p, task), stream, err);
    const char *why = ok ? NULL : fabric_failure(c->job.fabric);
    if (ok)
        return true;
    if (why)
        *err = (Err){ 0 };
    if (why)
        return err_set(err, "%s", why);
    err_wrap(err, "rank %u: op %u '%s'", c->rank, t->id, program_text(p, t->op->name));
    fabric_abort(c->job.fabric, err->text);
    return false;
}

static void loop_abort(CudaComm *c, const char *why)
{
    fabric_abort(c->job.fabric, why);
    loop_world_fail(c->shared->world, why);
}

/* Nothing on the device waits for a peer, so nothing has to be taken off it. */
static bool loop_poll(CudaComm *c, int64_t since_ns, Err *err)
{
    double waited_s = (double)(net_now_ns() - since_ns) / 1e9;
    const char *why = fabric_failure(c->job.fabric);
    if (why)
        return err_set(err, "%s", why);
    if (waited_s <= 2 * PATIENCE * c->job.timeout_s) /* the op is named first, if it can be */
        return true;
    err_set(err, "rank %u: its device has not answered for %.0f s", c->rank, waited_s);
    loop_abort(c, err->text);
    return false;
}

const CudaCommType cuda_comm_loop = { .blocks = true,
                                      .open = loop_open,
                                      .run = loop_task,
                                      .poll = loop_poll,
                                      .abort = loop_abort,
                                      .close = loop_close };

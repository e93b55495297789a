/*
 * backend_cuda.c - the GPU as a device: lanes are streams, marks are events.
 *
 * A task is queued behind what its lane has; its stream first waits for the events of its marks.
 * The host thread queues in program order, so every event is recorded before it is waited for;
 * where transfers block until others have come (cuda_comm.h, `blocks`) a thread per lane queues
 * instead, and exec/lanes.h sees to the same.
 *
 *     begin    rates and a loss of 0 to the device
 *     launch   stream waits, kernels, event; when a graph is played: only what the host loads
 *     end      the graph, if there is one; wait for all streams, and look after transfers meanwhile
 */
#include "exec/backend_cuda_device.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exec/net.h"

enum { POLL_US = 20, POLLS = 50 /* queries of streams for one of the transfers */ };

/* ---- failing ---- */

static bool fail(Backend *b, Err *err)
{
    if (!b->failed) {
        b->failed = true;
        b->err = *err;
        if (b->comm)
            b->comm_type->abort(b->comm, err->text);
        fabric_abort(b->job->fabric, err->text);
    }
    return false;
}

static bool name_task(const Backend *b, uint32_t task, Err *err)
{
    const Task *t = &b->p->tasks[task];
    return err_wrap(err, "rank %u, op %u '%s'", b->p->rank, t->id,
                    program_text(b->p, t->op->name));
}

/* ---- queueing ---- */

static bool wait_for(const Backend *b, cudaStream_t stream, const Mark *marks, uint32_t n,
                     Err *err)
{
    bool ok = true;
    for (uint32_t i = 0; i < n && ok; i++)
        if (marks[i].lane != LANE_HOST)
            ok =
                cuda_ok(cudaStreamWaitEvent(stream, b->done[program_marked(b->p, marks[i])], 0),
                        "waiting for another stream", err);
    return ok;
}

static bool wait_for_marks(const Backend *b, uint32_t first, uint32_t n, Err *err)
{
    bool ok = true;
    for (uint32_t i = 0; i < n && ok; i++) {
        const Task *t = &b->p->tasks[first + i];
        cudaStream_t stream = b->stream[t->lane];
        ok = wait_for(b, stream, b->p->waits + t->waits_first, t->waits_n, err) &&
             wait_for(b, stream, b->p->guards + t->guards_first, t->guards_n, err);
    }
    return ok;
}

/* Events that time, also within a graph; they are recorded at every launch of it. */
static bool mark_time(const Backend *b, cudaEvent_t event, Lane lane, Err *err)
{
    unsigned flags = b->mode == STEP_CAPTURE ? cudaEventRecordExternal : cudaEventRecordDefault;
    return cuda_ok(cudaEventRecordWithFlags(event, b->stream[lane], flags),
                   "recording an event", err);
}

static bool mark_done(const Backend *b, uint32_t first, uint32_t n, Err *err)
{
    bool ok = true;
    for (uint32_t i = 0; i < n && ok; i++) {
        const Task *t = &b->p->tasks[first + i];
        uint32_t stretch = b->ends[first + i];
        if (stretch != NONE_U32)
            ok = mark_time(b, b->stretches[stretch].end, t->lane, err);
        if (ok && b->done[first + i])
            ok = cuda_ok(cudaEventRecord(b->done[first + i], b->stream[t->lane]),
                         "recording an event", err);
    }
    return ok;
}

static bool load(const Backend *b, const Task *t, Err *err)
{
    bool ok = true;
    for (uint32_t a = 0; a < t->args_n && ok; a++) {
        const Buffer *to = &task_args(b->p, t)[a];
        ok = b->job->load(b->job->load_user, t, to,
                          b->staging + b->staging_at[t->args_first + a], err);
    }
    return ok;
}

static bool copy_loaded(const Backend *b, const Task *t, Err *err)
{
    bool ok = true;
    for (uint32_t a = 0; a < t->args_n && ok; a++) {
        const Buffer *to = &task_args(b->p, t)[a];
        ok = cuda_ok(cudaMemcpyAsync(b->arena + to->offset,
                                     b->staging + b->staging_at[t->args_first + a], to->bytes,
                                     cudaMemcpyHostToDevice, b->stream[t->lane]),
                     "copying to the GPU", err);
    }
    return ok;
}

/* What a transfer works on apart from its tensor goes there, or comes back (exec/calls.h). */
static bool stage(Backend *b, const Task *t, bool before, Err *err)
{
    StagedCopy c;
    bool ok = true;
    for (uint32_t k = 0; ok && calls_staged(b->p, t, k, &c) && c.before == before; k++) {
        uint8_t *tensor = b->arena + c.tensor_offset, *buffer = b->arena + c.buffer_offset;
        uint64_t wide = c.pitch_bytes, close = c.buffer_pitch_bytes;
        ok = cuda_ok(cudaMemcpy2DAsync(before ? buffer : tensor, before ? close : wide,
                                       before ? tensor : buffer, before ? wide : close,
                                       c.row_bytes, c.rows, cudaMemcpyDeviceToDevice,
                                       b->stream[t->lane]),
                     "copying columns", err);
    }
    return ok;
}

/* A query that found a stream busy is kept as an error until somebody asks. */
static cudaError_t launch_error(void)
{
    cudaError_t result = cudaGetLastError();
    return result == cudaErrorNotReady ? cudaSuccess : result;
}

static bool run_task(Backend *b, uint32_t first, Err *err)
{
    const Task *t = &b->p->tasks[first];
    if (op_is_comm(t->op->kind))
        return stage(b, t, true, err) &&
               b->comm_type->run(b->comm, first, b->stream[t->lane], err) &&
               stage(b, t, false, err);
    if (t->op->kind == OP_H2D)
        return copy_loaded(b, t, err);
    return t->op->kind == OP_RELEASE || (cuda_launch(&b->env[t->lane], b->p, t, err) &&
                                         cuda_ok(launch_error(), "launching a kernel", err));
}

/* Tasks [first, first + n), which are posted together, behind what their lane has. */
static bool queue(Backend *b, uint32_t first, uint32_t n, Err *err)
{
    uint32_t stretch = b->begins[first];
    Lane lane = b->p->tasks[first].lane;
    bool ok = wait_for_marks(b, first, n, err);
    if (ok && stretch != NONE_U32)
        ok = mark_time(b, b->stretches[stretch].start, lane, err);
    const CaptureApi *capture = b->job->cuda->capture;
    if (capture) /* labels of kernels, and of nodes of graphs */
        capture->push_op(b->p->rank, b->p->tasks[first].id);
    ok = ok && run_task(b, first, err) && mark_done(b, first, n, err);
    if (capture)
        capture->pop_op();
    /* Not behind a transfer: its peer may need what is not queued here yet. */
    bool waits = b->synced && !op_is_comm(b->p->tasks[first].op->kind);
    if (ok && waits && b->mode == STEP_PLAIN && !b->lanes)
        ok = cuda_ok(cudaStreamSynchronize(b->stream[lane]), "running it", err);
    return ok || name_task(b, first, err);
}

/* By a thread of exec/lanes.h. */
static bool queue_by_lane(void *user, uint32_t first, uint32_t n, Err *err)
{
    Backend *b = user;
    const Task *t = &b->p->tasks[first];
    bool ok = cuda_ok(cudaSetDevice(b->job->cuda->device), "choosing the GPU", err) &&
              (t->op->kind != OP_H2D || load(b, t, err)) && queue(b, first, n, err);
    if (!ok) {
        if (b->comm)
            b->comm_type->abort(b->comm, err->text);
        fabric_abort(b->job->fabric, err->text);
    }
    return ok;
}

/* ---- opening and closing ---- */

static bool open_streams(Backend *b, Err *err)
{
    const Program *p = b->p;
    int least = 0, greatest = 0;
    bool ok =
        cuda_ok(cudaDeviceGetStreamPriorityRange(&least, &greatest), "making streams", err);
    for (int i = 0; i < LANE_HOST && ok; i++) {
        bool used = p->lane_n[i] > 0 || i == LANE_COMPUTE;
        /* Transfers are short of blocks and long of waiting: they go first. */
        int priority = i == LANE_COMPUTE ? least : greatest;
        ok = !used || cuda_ok(cudaStreamCreateWithPriority(&b->stream[i], cudaStreamNonBlocking,
                                                           priority),
                              "making streams", err);
        b->env[i].stream = b->stream[i];
    }
    return ok;
}

static bool want_event(Backend *b, const Mark *marks, uint32_t n, Err *err)
{
    bool ok = true;
    for (uint32_t i = 0; i < n && ok; i++) {
        if (marks[i].lane == LANE_HOST)
            continue;
        cudaEvent_t *event = &b->done[program_marked(b->p, marks[i])];
        ok = *event || cuda_ok(cudaEventCreateWithFlags(event, cudaEventDisableTiming),
                               "making events", err);
    }
    return ok;
}

static bool open_events(Backend *b, Err *err)
{
    const Program *p = b->p;
    b->done = mem_zero((size_t)p->tasks_n + 1, sizeof *b->done);
    return want_event(b, p->waits, p->waits_n, err) &&
           want_event(b, p->guards, p->guards_n, err);
}

/* Of any rank: they connect together, or not at all. */
static bool has_transfers(const Graph *g)
{
    for (uint32_t i = 0; i < g->ops_n; i++)
        if (op_is_comm(g->ops[i].kind))
            return true;
    return false;
}

CudaCommJob comm_job(const Backend *b)
{
    const CudaOptions *o = b->job->cuda;
    return (CudaCommJob){ .program = b->p,
                          .calls = &b->calls,
                          .fabric = b->job->fabric,
                          .device = o->device,
                          .arena = b->arena,
                          .arena_bytes = b->p->arena_bytes,
                          .timeout_s = o->timeout_s,
                          .rings = o->rings,
                          .capture = o->capture };
}

static bool check_comm(const Backend *b, Err *err)
{
    CudaCommJob job = comm_job(b);
    return !b->comm_type || !b->comm_type->check || b->comm_type->check(&job, err);
}

static bool open_comm(Backend *b, Err *err)
{
    CudaCommJob job = comm_job(b);
    return calls_make(&b->calls, b->p, err) &&
           (!b->comm_type || b->comm_type->open(&b->comm, &job, err));
}

/* On zeros: what is an index must lie in its table. */
static bool load_kernel(Backend *b, const Task *t, Err *err)
{
    cudaStream_t stream = b->stream[t->lane];
    bool ok = true;
    for (uint32_t a = 0; a < t->args_n && ok; a++) {
        const Buffer *to = &task_args(b->p, t)[a];
        ok = cuda_ok(cudaMemsetAsync(b->arena + to->offset, 0, to->bytes, stream),
                     "loading a kernel", err);
    }
    return ok && cuda_launch(&b->env[t->lane], b->p, t, err) &&
           cuda_ok(launch_error(), "loading a kernel", err) &&
           cuda_ok(cudaStreamSynchronize(stream), "loading a kernel", err);
}

/*
 * A kernel is loaded at its first launch, which may wait for all that its device runs (CUDA C++
 * Programming Guide, "Lazy Loading").  That may be a receive whose sender waits for something that
 * is to be queued behind the launch: hosts would wait for each other for ever.  So each op's
 * kernels run once before the first transfer does.
 */
static bool load_kernels(Backend *b, Err *err)
{
    const Program *p = b->p;
    bool ok = true, *seen = mem_zero((size_t)p->graph->ops_n + 1, sizeof *seen);
    for (uint32_t i = 0; i < p->tasks_n && ok; i++) {
        const Task *t = &p->tasks[i];
        bool *is_loaded = &seen[t->op - p->graph->ops];
        if (!*is_loaded && cuda_launches[t->op->kind])
            ok = load_kernel(b, t, err) || name_task(b, i, err);
        *is_loaded = true;
    }
    free(seen);
    return ok && cuda_ok(cudaMemset(b->arena, 0, p->arena_bytes), "clearing its memory", err) &&
           cuda_ok(cudaDeviceSynchronize(), "clearing its memory", err);
}

static bool asked(const char *name, bool otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strcmp(text, "0") != 0 : otherwise;
}

/* Sums of gradients and rates are the compute lane's: nothing else may touch them. */
static void check_lanes(const Program *p)
{
    for (uint32_t i = 0; i < p->tasks_n; i++) {
        OpKind kind = p->tasks[i].op->kind;
        bool own = kind == OP_OPTIMIZER || kind == OP_MSE || kind == OP_CROSS_ENTROPY;
        ASSERT(!own || p->tasks[i].lane == LANE_COMPUTE);
    }
}

static bool open_parts(Backend *b, Err *err)
{
    const Job *job = b->job;
    bool meets = b->comm_type && !b->comm_type->blocks; /* kernels that wait for other ranks */
    if (!cuda_ok(cudaSetDevice(job->cuda->device), "choosing the GPU", err) ||
        !check_comm(b, err) || !memory_open(b, err) || !open_streams(b, err) ||
        !open_events(b, err) || !times_open(b, err) || (meets && !load_kernels(b, err)) ||
        !open_comm(b, err))
        return false;
    if (b->comm && b->comm_type->blocks)
        b->lanes = lanes_open(b->p, queue_by_lane, b, false);
    b->synced = asked("LOCKSTEP_CUDA_SYNC", false);
    b->graphs = job->cuda->graphs && asked("LOCKSTEP_CUDA_GRAPH", true) && !job->timed &&
                !b->synced && !b->lanes && b->p->lane_n[LANE_HOST] == 0 &&
                (!b->comm || b->comm_type->captures);
    return graph_agree(b, &b->graphs, err);
}

static void cuda_close(Backend *b)
{
    if (!b)
        return;
    lanes_close(b->lanes);
    graph_close(
        b); /* first: NCCL keeps a communicator for as long as a graph has its kernels */
    if (b->comm)
        b->comm_type->close(b->comm);
    times_close(b);
    for (uint32_t i = 0; b->done && i < b->p->tasks_n; i++)
        if (b->done[i])
            cudaEventDestroy(b->done[i]);
    for (int i = 0; i < LANE_HOST; i++)
        if (b->stream[i])
            cudaStreamDestroy(b->stream[i]);
    memory_close(b);
    calls_free(&b->calls);
    free(b->done);
    free(b);
}

static bool cuda_open(Backend **out, const Job *job, Err *err)
{
    *out = NULL;
    ASSERT(job->cuda);
    if (job->clock != RUN_WALL)
        return err_set(err,
                       "the cuda backend runs on the clock of the wall only; clock '%s' is "
                       "for --backend cpu",
                       run_clock_names[job->clock]);
    if (!kernels_known(job->program, "cuda", err))
        return false;
    check_lanes(job->program);
    Backend *b = mem_zero(1, sizeof *b);
    *b = (Backend){ .job = job, .p = job->program };
    if (b->p->graph->world_n > 1 && has_transfers(b->p->graph))
        b->comm_type = job->cuda->loop ? &cuda_comm_loop : &cuda_comm_nccl;
    if (!open_parts(b, err)) {
        cuda_close(b);
        return false;
    }
    *out = b;
    return true;
}

/* ---- between steps ---- */

/* Whatever thread copies: each begins with GPU 0. */
static cudaError_t use_device(const Backend *b)
{
    return cudaSetDevice(b->job->cuda->device);
}

static bool moved(const Backend *b, cudaError_t result, const char *doing, Err *err)
{
    return cuda_ok(result, doing, err) || err_wrap(err, "rank %u", b->p->rank);
}

static bool cuda_read(Backend *b, uint64_t offset, void *to, uint64_t bytes, Err *err)
{
    cudaError_t result = use_device(b);
    if (result == cudaSuccess)
        result = cudaMemcpy(to, b->arena + offset, bytes, cudaMemcpyDeviceToHost);
    return moved(b, result, "copying from the GPU", err);
}

/* A copy from pageable memory returns before all is there, and lanes do not wait for it. */
static bool cuda_write(Backend *b, uint64_t offset, const void *from, uint64_t bytes, Err *err)
{
    cudaError_t result = use_device(b);
    if (result == cudaSuccess)
        result = cudaMemcpy(b->arena + offset, from, bytes, cudaMemcpyHostToDevice);
    if (result == cudaSuccess)
        result = cudaDeviceSynchronize();
    return moved(b, result, "copying to the GPU", err);
}

static bool cuda_clear(Backend *b, uint64_t offset, uint64_t bytes, Err *err)
{
    cudaError_t result = use_device(b);
    if (result == cudaSuccess)
        result = cudaMemset(b->arena + offset, 0, bytes);
    if (result == cudaSuccess)
        result = cudaDeviceSynchronize();
    return moved(b, result, "clearing its memory", err);
}

static void cuda_begin_run(Backend *b)
{
    b->zero_ns = net_now_ns();
}

static int64_t cuda_now_ns(const Backend *b)
{
    return net_now_ns() - b->zero_ns;
}

static const TaskRecord *cuda_records(const Backend *b)
{
    return b->records;
}

static uint64_t cuda_beside_bytes(const Backend *b)
{
    return b->extra_bytes;
}

/* ---- a step ---- */

static bool begin(Backend *b, uint64_t step, Err *err)
{
    cudaStream_t stream = b->stream[LANE_COMPUTE];
    cuda_rates(&b->job->hyper, step, b->host_rates);
    b->mode = !b->graphs || b->steps_n == 0 ? STEP_PLAIN : b->graph ? STEP_PLAY : STEP_CAPTURE;
    b->steps_n++;
    return cuda_ok(cudaSetDevice(b->job->cuda->device), "choosing the GPU", err) &&
           cuda_ok(cudaMemcpyAsync(b->rates, b->host_rates, CUDA_RATES_N * sizeof(Rates),
                                   cudaMemcpyHostToDevice, stream),
                   "at the step's begin", err) &&
           cuda_ok(cudaMemsetAsync(b->loss, 0, sizeof(double), stream), "at the step's begin",
                   err) &&
           times_begin(b, err) && (b->mode != STEP_CAPTURE || graph_begin(b, err));
}

static void cuda_begin(Backend *b, uint64_t step, int64_t from_ns)
{
    Err err = { 0 };
    (void)from_ns;
    if (b->lanes)
        lanes_begin(b->lanes);
    if (!b->failed && !begin(b, step, &err)) {
        err_wrap(&err, "rank %u", b->p->rank);
        fail(b, &err);
    }
}

/* Tasks posted together are queued when the last of them is launched. */
static bool launch(Backend *b, uint32_t task, Err *err)
{
    const Task *t = &b->p->tasks[task];
    uint32_t first = task;
    if (t->op->kind == OP_H2D && !load(b, t, err))
        return name_task(b, task, err);
    if (b->mode == STEP_PLAY || t->op->grouped || b->spoiled)
        return true;
    while (first > 0 && b->p->tasks[first - 1].op->grouped)
        first--;
    if (queue(b, first, task - first + 1, err))
        return true;
    if (b->mode != STEP_CAPTURE || (b->comm && !b->comm_type->poll(b->comm, net_now_ns(), err)))
        return false;
    b->spoiled = true; /* nothing has run: the step is launched again, op by op */
    b->spoiled_by = *err;
    *err = (Err){ 0 };
    return true;
}

static void cuda_launch_task(Backend *b, uint32_t task, int64_t launched_ns)
{
    Err err = { 0 };
    (void)launched_ns;
    b->records[task].launched_ns = cuda_now_ns(b);
    if (b->lanes)
        lanes_launch(b->lanes, task);
    else if (!b->failed && !launch(b, task, &err))
        fail(b, &err);
}

/* Until the event, or all of the stream (event NULL), is reached. */
static bool wait_until(Backend *b, cudaStream_t stream, cudaEvent_t event, Err *err)
{
    int64_t since_ns = net_now_ns();
    cudaError_t result;
    for (uint32_t i = 1;; i++) {
        result = event ? cudaEventQuery(event) : cudaStreamQuery(stream);
        if (result != cudaErrorNotReady)
            break;
        (void)cudaGetLastError();
        if (i % POLLS == 0 && b->comm && !b->comm_type->poll(b->comm, since_ns, err))
            return false;
        usleep(POLL_US);
    }
    if (cuda_ok(result, "while a step ran; LOCKSTEP_CUDA_SYNC=1 tells in which op", err))
        return true;
    return err_wrap(err, "rank %u", b->p->rank);
}

static bool wait_for_host_task(Backend *b, uint32_t task, Err *err)
{
    const Task *t = &b->p->tasks[task];
    bool ok = true;
    for (uint32_t i = 0; i < t->waits_n && ok; i++) {
        Mark mark = b->p->waits[t->waits_first + i];
        ok = mark.lane == LANE_HOST ||
             wait_until(b, NULL, b->done[program_marked(b->p, mark)], err);
    }
    return ok;
}

static bool cuda_host_wait(Backend *b, uint32_t task, int64_t *done_ns, Err *err)
{
    TaskRecord *r = &b->records[task];
    if (b->lanes && !lanes_wait(b->lanes, task, err))
        return fail(b, err);
    if (b->failed)
        return err_set(err, "%s", b->err.text);
    r->launched_ns = r->start_ns = cuda_now_ns(b);
    if (!wait_for_host_task(b, task, err))
        return fail(b, err);
    *done_ns = r->met_ns = r->end_ns = cuda_now_ns(b);
    return true;
}

/* The whole step again, launched op by op; what copies bring is there. */
static bool queue_all(Backend *b, Err *err)
{
    const Program *p = b->p;
    bool ok = true;
    b->mode = STEP_PLAIN;
    for (uint32_t t = 0, n; t < p->tasks_n && ok; t += n) {
        n = program_posted_n(p, t);
        ok = p->tasks[t].lane == LANE_HOST || queue(b, t, n, err);
    }
    return ok;
}

static bool finish(Backend *b, double *loss, Err *err)
{
    bool redo = false, ok = true;
    if (b->mode != STEP_PLAIN)
        ok = graph_end(b, &redo, err) && (!redo || queue_all(b, err));
    for (int i = 0; i < LANE_HOST && ok; i++)
        ok = !b->stream[i] || wait_until(b, b->stream[i], NULL, err);
    ok =
        ok && cuda_ok(cudaMemcpy(b->host_loss, b->loss, sizeof(double), cudaMemcpyDeviceToHost),
                      "reading the loss", err);
    *loss = ok ? *b->host_loss : 0;
    return ok && times_end(b, err);
}

static bool cuda_end(Backend *b, double *loss, Err *err)
{
    if (b->lanes && !lanes_finish(b->lanes, err))
        return fail(b, err);
    if (b->failed)
        return err_set(err, "%s", b->err.text);
    return finish(b, loss, err) || fail(b, err);
}

const BackendType backend_cuda = { .own_memory = true,
                                   .open = cuda_open,
                                   .close = cuda_close,
                                   .read = cuda_read,
                                   .write = cuda_write,
                                   .clear = cuda_clear,
                                   .begin_run = cuda_begin_run,
                                   .begin = cuda_begin,
                                   .launch = cuda_launch_task,
                                   .host_wait = cuda_host_wait,
                                   .end = cuda_end,
                                   .records = cuda_records,
                                   .now_ns = cuda_now_ns,
                                   .beside_bytes = cuda_beside_bytes };

/*
 * backend_cuda_comm_nccl_watch.c - a thread beside the transfers of NCCL.
 *
 * Ten times a second it looks whether the fabric has lost a rank, NCCL reports an error, the host
 * stays in a call of NCCL, or a transfer that has begun does not end.  Then it says so everywhere
 * and aborts all communicators; and where the device does not come back even so, ends the process.
 */
#include "exec/backend_cuda_comm_nccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exec/net.h"

enum {
    LOCK_WAIT_S = 3, /* for the host to leave NCCL before its communicators go */
    ABORT_WAIT_S = 10,
    LAST_WAY_OUT_S = 20, /* after an abort, for the process to end by itself */
    HOST_PATIENCE = 5, /* for a call of NCCL: this is said before what it holds up elsewhere */
    PEERS_TEXT = 120
};

/* ---- the watchdog ---- */

/* "ranks 0, 1, 2 and 5 more" */
static void say_members(const CommCall *call, uint32_t rank, char *text, size_t cap)
{
    enum { SHOWN_MAX = 8 };
    size_t used = 0;
    uint32_t shown_n = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < call->members_n && shown_n < SHOWN_MAX; i++) {
        bool meant = op_is_p2p(call->kind) ? i == call->peer : call->members[i] != rank;
        if (meant && used < cap)
            used += (size_t)snprintf(text + used, cap - used, "%s%u", shown_n++ ? ", " : "",
                                     call->members[i]);
    }
    uint32_t others = op_is_p2p(call->kind) ? 1 : call->members_n - 1;
    if (others > shown_n && used < cap)
        snprintf(text + used, cap - used, " and %u more", others - shown_n);
}

/* Sets err to what the oldest transfer is stuck in. */
static void say_stuck(const CudaComm *c, const Ticket *t, Err *err)
{
    const Program *p = c->job.program;
    const Task *task = &p->tasks[t->task];
    const CommCall *call = calls_of(c->job.calls, t->task);
    char peers[PEERS_TEXT];
    say_members(call, c->rank, peers, sizeof peers);
    err_set(err,
            "rank %u: op %u '%s' (%s on lane '%s') has not ended within %.0f s: rank%s %s did "
            "not answer",
            c->rank, task->id, program_text(p, task->op->name), op_kind_names[call->kind],
            lane_names[call->lane], PATIENCE * c->job.timeout_s, strchr(peers, ' ') ? "s" : "",
            peers);
}

static void drop_ticket(Tickets *l)
{
    l->first = (l->first + 1) % TICKETS_MAX;
    l->n--;
}

/* False with err: it has begun long ago. */
static bool look_at_lane(CudaComm *c, Tickets *l, Err *err)
{
    while (l->n > 0 && cudaEventQuery(l->items[l->first].behind) == cudaSuccess)
        drop_ticket(l);
    if (l->n == 0)
        return true;
    Ticket *t = &l->items[l->first];
    if (cudaEventQuery(t->before) != cudaSuccess)
        return true;
    if (t->begun_ns == 0)
        t->begun_ns = net_now_ns();
    if ((double)(net_now_ns() - t->begun_ns) <= PATIENCE * c->job.timeout_s * 1e9)
        return true;
    say_stuck(c, t, err);
    return false;
}

static bool look_at_comm(CudaComm *c, ncclComm_t comm, const char *name, Err *err)
{
    ncclResult_t state = ncclSuccess;
    if (!comm || ncclCommGetAsyncError(comm, &state) != ncclSuccess || state == ncclSuccess ||
        state == ncclInProgress)
        return true;
    const char *more = ncclGetLastError(comm);
    return err_set(err, "rank %u: NCCL reports for communicator '%s': %s%s%.300s", c->rank,
                   name, ncclGetErrorString(state), more && *more ? ": " : "",
                   more ? more : "");
}

/* The host is in NCCL.  It comes back at once, but when it captures: then NCCL registers buffers,
 * and for that meets the host's other ranks. */
static bool look_at_host(CudaComm *c, Err *err)
{
    if (c->inside_ns == 0)
        c->inside_ns = net_now_ns();
    double inside_s = (double)(net_now_ns() - c->inside_ns) / 1e9;
    return inside_s <= HOST_PATIENCE * c->job.timeout_s ||
           err_set(err, "rank %u: NCCL has not come back from a call for %.0f s", c->rank,
                   inside_s);
}

static bool look(CudaComm *c, Err *err)
{
    if (!nccl_is_well(c, err))
        return false;
    if (pthread_mutex_trylock(&c->lock) != 0)
        return look_at_host(c, err);
    c->inside_ns = 0;
    bool ok = look_at_comm(c, c->world, "world", err);
    for (uint32_t i = 0; ok && i < c->plan.comms_n; i++)
        ok = look_at_comm(c, c->comms[i], program_text(c->job.program, c->plan.comms[i].name),
                          err);
    for (int lane = 0; ok && lane < LANE_N; lane++)
        ok = look_at_lane(c, &c->tickets[lane], err);
    pthread_mutex_unlock(&c->lock);
    return ok;
}

static void *abort_main(void *user)
{
    ncclCommAbort(user);
    return NULL;
}

/* Each on its own thread: an abort waits for its kernels, which may stand behind another's. */
static void abort_all(CudaComm *c)
{
    uint32_t n = 0;
    pthread_t *threads = mem_zero((size_t)c->plan.comms_n + 1, sizeof *threads);
    for (uint32_t i = 0; i <= c->plan.comms_n; i++) {
        ncclComm_t comm = i < c->plan.comms_n ? c->comms[i] : c->world;
        if (comm && pthread_create(&threads[n], NULL, abort_main, comm) == 0)
            n++;
    }
    for (uint32_t i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    free(threads);
}

/* Whoever is inside NCCL gets time to leave; one who waits there for a dead peer does not. */
static void end_transfers(CudaComm *c)
{
    bool locked = false;
    for (int64_t until = net_now_ns() + (int64_t)LOCK_WAIT_S * 1000000000;
         !locked && net_now_ns() < until;) {
        locked = pthread_mutex_trylock(&c->lock) == 0;
        if (!locked)
            net_sleep_ns(WATCH_NS / 10);
    }
    abort_all(c);
    atomic_store(&c->aborted, true);
    if (locked)
        pthread_mutex_unlock(&c->lock);
}

/* The device does not come back, and so the host does not either. */
static _Noreturn void leave(const Err *err)
{
    fprintf(stderr, "lockstep: %s\n", err->text);
    _exit(EXIT_COULD_NOT);
}

static void *watch_main(void *user)
{
    CudaComm *c = user;
    Err err = { 0 };
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaSetDevice(c->job.device);
    cudaThreadExchangeStreamCaptureMode(&mode); /* our queries must not spoil a capture */
    while (!atomic_load(&c->closing) && look(c, &err))
        net_sleep_ns(WATCH_NS);
    if (!err.set)
        return NULL;
    nccl_fail(c, err.text);
    end_transfers(c);
    for (int64_t until = net_now_ns() + (int64_t)LAST_WAY_OUT_S * 1000000000;
         !atomic_load(&c->closing) && net_now_ns() < until;)
        net_sleep_ns(WATCH_NS);
    if (!atomic_load(&c->closing))
        leave(&err);
    return NULL;
}

static void *leave_main(void *user)
{
    Err err = *(const Err *)user;
    free(user);
    net_sleep_ns((int64_t)LAST_WAY_OUT_S * 1000000000);
    leave(&err);
}

void nccl_leave_in_time(const Err *err)
{
    pthread_t thread;
    Err *kept = mem_zero(1, sizeof *kept);
    *kept = *err;
    if (pthread_create(&thread, NULL, leave_main, kept) == 0)
        pthread_detach(thread);
    else
        free(kept);
}

/* ---- beginning and ending ---- */

bool nccl_watch_start(CudaComm *c, Err *err)
{
    c->watched = pthread_create(&c->watchdog, NULL, watch_main, c) == 0;
    return c->watched || err_set(err, "rank %u cannot start a thread", c->rank);
}

void nccl_watch_abort(CudaComm *c)
{
    int64_t until = net_now_ns() + (int64_t)ABORT_WAIT_S * 1000000000;
    while (!atomic_load(&c->aborted) && net_now_ns() < until)
        net_sleep_ns(WATCH_NS / 10);
    if (atomic_load(&c->aborted)) {
        atomic_store(&c->closing, true);
        pthread_join(c->watchdog, NULL);
    } else {
        pthread_detach(c->watchdog);
    }
}

/* ---- tickets ---- */

bool nccl_is_capturing(cudaStream_t stream)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    return cudaStreamIsCapturing(stream, &status) != cudaSuccess ||
           status != cudaStreamCaptureStatusNone;
}

Ticket *nccl_take_ticket(CudaComm *c, uint32_t task, cudaStream_t stream)
{
    Tickets *l = &c->tickets[c->job.program->tasks[task].lane];
    if (!c->watched || l->n == TICKETS_MAX || nccl_is_capturing(stream))
        return NULL;
    Ticket *t = &l->items[(l->first + l->n) % TICKETS_MAX];
    if (!t->before && (cudaEventCreateWithFlags(&t->before, cudaEventDisableTiming) ||
                       cudaEventCreateWithFlags(&t->behind, cudaEventDisableTiming)))
        return NULL;
    t->task = task;
    t->begun_ns = 0;
    return cudaEventRecord(t->before, stream) == cudaSuccess ? t : NULL;
}

void nccl_free_tickets(CudaComm *c)
{
    for (int lane = 0; lane < LANE_N; lane++)
        for (uint32_t i = 0; i < TICKETS_MAX; i++)
            if (c->tickets[lane].items[i].before) {
                cudaEventDestroy(c->tickets[lane].items[i].before);
                cudaEventDestroy(c->tickets[lane].items[i].behind);
            }
}

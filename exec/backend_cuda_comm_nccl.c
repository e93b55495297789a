/*
 * backend_cuda_comm_nccl.c - transfers by NCCL, and a watchdog beside them.
 *
 *     open    id from rank 0 over the fabric -> world -> ncclCommSplit, call by call
 *             (exec/cuda_comm_split.h) -> each kind of transfer once, so that all
 *             connections are made in an order that cannot block
 *     run     ncclGroupStart, one NCCL call per piece, ncclGroupEnd (.._nccl_queue.c)
 *     watch   a thread: has the fabric lost a rank, has NCCL an error, does a transfer
 *             that has begun not end?  Then all communicators are aborted (.._nccl_watch.c)
 *
 * HANGING.  Communicators are blocking ones: with non-blocking ones NCCL 2.28 starts a
 * thread for every group that is launched.  So what may wait for a peer for ever while
 * communicators are made or destroyed runs on a helper thread, and the host waits for
 * that with a time-out and an eye on the fabric; a helper that does not come back is left
 * behind, the process is about to end.  While training, ncclCommAbort ends what waits.
 *
 * REGISTERED.  NCCL itself registers the buffers of captured calls (NCCL_GRAPH_REGISTER, 1 by
 * default: src/enqueue.cc), and then moves what lies in them without copies of its own.
 * It asks for memory of ncclMemAlloc, and that a collective's buffers lie at one offset on all
 * ranks (user guide, User Buffer Registration).  The arena is such memory where all ranks have
 * one role, and so one layout, and room for it.  Stages of a pipeline have not; their tied
 * embeddings, say, are reduced at offsets of their own: there the arena stays cudaMalloc's,
 * which NCCL registers only when told to (NCCL_LEGACY_CUDA_REGISTER).
 */
#include "exec/backend_cuda_comm_nccl.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "exec/net.h"

enum { CHANNEL_CTAS_MAX = 8 /* a receive that waits for its sender holds so many SMs */ };

/* ---- saying what failed ---- */

bool nccl_failed(const CudaComm *c, ncclResult_t result, ncclComm_t comm, const char *doing,
                 Err *err)
{
    const char *more = ncclGetLastError(comm);
    return err_set(err, "rank %u: NCCL cannot %s: %s%s%.300s", c->rank, doing,
                   ncclGetErrorString(result), more && *more ? ": " : "", more ? more : "");
}

bool nccl_cuda_failed(const CudaComm *c, cudaError_t result, const char *doing, Err *err)
{
    return err_set(err, "rank %u: CUDA cannot %s: %s", c->rank, doing,
                   cudaGetErrorString(result));
}

/* The first sentence wins, here and in the job. */
void nccl_fail(CudaComm *c, const char *why)
{
    pthread_mutex_lock(&c->why_lock);
    err_set(&c->why, "%s", why);
    pthread_mutex_unlock(&c->why_lock);
    atomic_store(&c->failed, true);
    fabric_abort(c->job.fabric, why);
}

bool nccl_is_well(CudaComm *c, Err *err)
{
    const char *why = fabric_failure(c->job.fabric);
    if (!why && !atomic_load(&c->failed))
        return true;
    if (why)
        return err_set(err, "%s", why);
    pthread_mutex_lock(&c->why_lock);
    err_set(err, "%s", c->why.text);
    pthread_mutex_unlock(&c->why_lock);
    return false;
}

/* ---- what may never come back ---- */

typedef bool Errand(CudaComm *c, Err *err);

typedef struct Helper {
    CudaComm *c;
    Errand *errand;
    pthread_mutex_t lock;
    pthread_cond_t bell;
    bool done, ok, left; /* left: nobody waits any more, the helper cleans up */
    Err err;
} Helper;

static void helper_free(Helper *h)
{
    pthread_cond_destroy(&h->bell);
    pthread_mutex_destroy(&h->lock);
    free(h);
}

static void *helper_main(void *user)
{
    Helper *h = user;
    Err err = { 0 };
    cudaError_t device = cudaSetDevice(h->c->job.device);
    bool ok = device == cudaSuccess ? h->errand(h->c, &err)
                                    : nccl_cuda_failed(h->c, device, "use its device", &err);
    pthread_mutex_lock(&h->lock);
    h->done = true;
    h->ok = ok;
    h->err = err;
    bool left = h->left;
    pthread_cond_signal(&h->bell);
    pthread_mutex_unlock(&h->lock);
    if (left)
        helper_free(h);
    return NULL;
}

static struct timespec soon(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_nsec += WATCH_NS;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}

/* Runs the errand on a thread of its own, waits for it as long as that makes sense. */
static bool with_helper(CudaComm *c, Errand *errand, const char *doing, Err *err)
{
    Helper *h = mem_zero(1, sizeof *h);
    pthread_t thread;
    int64_t since_ns = net_now_ns();
    *h = (Helper){ .c = c, .errand = errand };
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->bell, NULL);
    if (pthread_create(&thread, NULL, helper_main, h) != 0) {
        helper_free(h);
        return err_set(err, "rank %u cannot start a thread", c->rank);
    }
    pthread_detach(thread);
    pthread_mutex_lock(&h->lock);
    bool waits = true;
    while (!h->done && waits) {
        struct timespec until = soon();
        pthread_cond_timedwait(&h->bell, &h->lock, &until);
        waits = h->done || nccl_is_well(c, err);
        if (waits && !h->done && (double)(net_now_ns() - since_ns) > c->job.timeout_s * 1e9)
            waits = err_set(
                err, "rank %u: NCCL did not %s within %.0f s: NCCL_DEBUG=INFO tells more",
                c->rank, doing, c->job.timeout_s);
    }
    bool ok = h->done && h->ok, done = h->done;
    if (done && !ok)
        *err = h->err;
    h->left = !done;
    pthread_mutex_unlock(&h->lock);
    if (done)
        helper_free(h);
    else
        nccl_leave_in_time(err);
    return ok;
}

/* ---- opening ---- */

/* Rank 0's; that it has none is told as well. */
static bool share_id(CudaComm *c, Err *err)
{
    typedef struct Told {
        ncclResult_t result;
        ncclUniqueId id;
    } Told;
    Told mine = { ncclSuccess, { { 0 } } };
    if (c->rank == 0)
        mine.result = ncclGetUniqueId(&mine.id);
    Told *all = mem_zero(c->world_n, sizeof *all);
    bool ok = fabric_share(c->job.fabric, &mine, all, sizeof mine, err);
    if (ok && all[0].result != ncclSuccess)
        ok = nccl_failed(c, all[0].result, NULL, "begin on rank 0", err);
    c->id = all[0].id;
    free(all);
    return ok;
}

static bool make_comms(CudaComm *c, Err *err)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    ncclResult_t result =
        ncclCommInitRankConfig(&c->world, (int)c->world_n, c->id, (int)c->rank, &config);
    if (result != ncclSuccess)
        return nccl_failed(c, result, NULL, "make a communicator of all ranks", err);
    for (uint32_t call = 0; call < c->plan.calls_n; call++) {
        SplitColor mine = split_plan_color(&c->plan, call, c->rank);
        ncclComm_t made = NULL;
        bool channel = mine.comm != NONE_U32 && c->plan.comms[mine.comm].channel;
        int color = mine.comm == NONE_U32 ? NCCL_SPLIT_NOCOLOR : mine.color;
        config.maxCTAs = channel ? CHANNEL_CTAS_MAX : NCCL_CONFIG_UNDEF_INT;
        result = ncclCommSplit(c->world, color, mine.key, &made, &config);
        if (result != ncclSuccess)
            return nccl_failed(c, result, c->world, "split its communicator", err);
        if (mine.comm != NONE_U32)
            c->comms[mine.comm] = made;
    }
    return true;
}

static bool find_comms(CudaComm *c, Err *err)
{
    const CommCalls *calls = c->job.calls;
    c->comm_of = mem_zero((size_t)calls->calls_n + 1, sizeof *c->comm_of);
    for (uint32_t i = 0; i < calls->calls_n; i++) {
        const CommCall *call = &calls->calls[i];
        uint32_t peer = op_is_p2p(call->kind) ? call->members[call->peer] : 0;
        c->comm_of[i] =
            call->kind == OP_SEND ? split_plan_channel(&c->plan, c->rank, peer, call->tag)
            : call->kind == OP_RECV
                ? split_plan_channel(&c->plan, peer, c->rank, call->tag)
                : split_plan_collective(&c->plan, call->lane, call->members, call->members_n);
        if (c->comm_of[i] == NONE_U32 && (call->members_n > 1 || op_is_p2p(call->kind)))
            return err_set(err, "rank %u has no communicator for %s on lane '%s'", c->rank,
                           op_kind_names[call->kind], lane_names[call->lane]);
    }
    return true;
}

/* ---- before it is opened ---- */

/* Two ranks on one GPU: NCCL refuses that, in words that help nobody; and they would not know why
 * there is no room for both. */
static bool nccl_check(const CudaCommJob *job, Err *err)
{
    uint32_t n = job->program->graph->world_n;
    struct cudaDeviceProp prop;
    cudaError_t result = cudaGetDeviceProperties(&prop, job->device);
    if (result != cudaSuccess)
        return err_set(err, "rank %u: CUDA cannot look at its device: %s", job->program->rank,
                       cudaGetErrorString(result));
    size_t size = sizeof prop.uuid;
    uint8_t *all = mem_zero(n, size);
    bool ok = fabric_share(job->fabric, &prop.uuid, all, size, err);
    const char *host = getenv("NCCL_HOSTID");
    for (uint32_t a = 0; ok && !(host && *host) && a < n; a++)
        for (uint32_t b = 0; ok && b < a; b++)
            if (memcmp(all + a * size, all + b * size, size) == 0)
                ok = err_set(err,
                             "ranks %u and %u are on one GPU, which NCCL does not allow: give "
                             "every rank a GPU of its own (--local-rank says which, where "
                             "--rank does), or run them in one process with --comm loop (to "
                             "try NCCL's own path, slowly: NCCL_HOSTID=h0, h1 ... in the "
                             "environment of each)",
                             b, a);
    free(all);
    return ok;
}

static void *allocate_here(const Program *p)
{
    void *memory = NULL;
    if (ncclMemAlloc(&memory, p->arena_bytes) == ncclSuccess)
        return memory;
    (void)cudaGetLastError();
    return NULL;
}

/* "If any rank in a communicator passes registered buffers to a NCCL communication function, all
 * other ranks in the same communicator must pass their registered buffers" (user guide). */
static bool nccl_allocate(void **memory, const CudaCommJob *job, Err *err)
{
    const Program *p = job->program;
    uint32_t n = p->graph->world_n;
    *memory = NULL;
    if (p->graph->roles_n != 1)
        return true;
    *memory = allocate_here(p);
    bool mine = *memory != NULL, all = true, *have = mem_zero(n, sizeof *have);
    bool ok = fabric_share(job->fabric, &mine, have, sizeof mine, err);
    for (uint32_t r = 0; r < n; r++)
        all = all && have[r];
    free(have);
    if (mine && !(ok && all)) {
        ncclMemFree(*memory);
        *memory = NULL;
    }
    return ok;
}

static void nccl_release(void *memory)
{
    ncclMemFree(memory);
}

/* ---- every connection once ---- */

static bool same_shape(const CommCall *a, const CommCall *b)
{
    if (a->kind != b->kind || a->in_n != b->in_n || a->out_n != b->out_n ||
        a->maximum != b->maximum)
        return false;
    for (uint32_t k = 0; k < a->in_n; k++)
        if (a->in[k].elements != b->in[k].elements || a->in[k].dtype != b->in[k].dtype)
            return false;
    return true;
}

/* The first call of its shape on its communicator. */
static bool is_first(const CudaComm *c, uint32_t i)
{
    const CommCall *calls = c->job.calls->calls;
    for (uint32_t k = 0; k < i; k++)
        if (c->comm_of[k] == c->comm_of[i] && same_shape(&calls[k], &calls[i]))
            return false;
    return true;
}

/* All channels in one group: their connections are made at once, whoever is at which end. */
static bool try_channels(CudaComm *c, cudaStream_t stream, Err *err)
{
    ncclResult_t result = ncclGroupStart();
    for (uint32_t i = 0; i < c->plan.comms_n && result == ncclSuccess; i++) {
        if (!c->plan.comms[i].channel || !c->comms[i])
            continue;
        bool sends = c->plan.members[c->plan.comms[i].members_first] == c->rank;
        result =
            sends ? ncclSend(c->job.arena, 1, ncclInt8, 1, c->comms[i], stream)
                  : ncclRecv((uint8_t *)c->job.arena + 1, 1, ncclInt8, 0, c->comms[i], stream);
    }
    ncclResult_t end = ncclGroupEnd();
    result = result == ncclSuccess ? end : result;
    return result == ncclSuccess ||
           nccl_failed(c, result, NULL, "connect senders and receivers", err);
}

/* Communicator by communicator: everybody goes through its own in one order, so none waits for
 * one who waits for it. */
static bool try_collectives(CudaComm *c, cudaStream_t stream, Err *err)
{
    const CommCalls *calls = c->job.calls;
    for (uint32_t comm = 0; comm < c->plan.comms_n; comm++)
        for (uint32_t i = 0; i < calls->calls_n; i++)
            if (c->comm_of[i] == comm && !c->plan.comms[comm].channel && is_first(c, i) &&
                !nccl_queue(c, &calls->calls[i], 1, stream, err))
                return false;
    return true;
}

/* What is in the arena is lost: it is zeroed behind. */
static bool try_all(CudaComm *c, Err *err)
{
    cudaStream_t stream = NULL;
    cudaError_t result = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (result != cudaSuccess)
        return nccl_cuda_failed(c, result, "make a stream", err);
    bool ok = c->job.arena_bytes < 2 || try_channels(c, stream, err);
    ok = ok && try_collectives(c, stream, err);
    if (ok) {
        result = cudaMemsetAsync(c->job.arena, 0, c->job.arena_bytes, stream);
        if (result == cudaSuccess)
            result = cudaStreamSynchronize(stream);
        if (result != cudaSuccess)
            ok = nccl_cuda_failed(c, result, "end its first transfers", err);
    }
    if (ok)
        cudaStreamDestroy(stream);
    return ok;
}

static bool connect_all(CudaComm *c, Err *err)
{
    return make_comms(c, err) && try_all(c, err);
}

static bool nccl_open(CudaComm **out, const CudaCommJob *job, Err *err)
{
    CudaComm *c = mem_zero(1, sizeof *c);
    *out = NULL;
    c->job = *job;
    c->rank = job->program->rank;
    c->world_n = job->program->graph->world_n;
    pthread_mutex_init(&c->lock, NULL);
    pthread_mutex_init(&c->why_lock, NULL);
    split_plan_make(&c->plan, job->program->graph);
    c->comms = mem_zero((size_t)c->plan.comms_n + 1, sizeof *c->comms);
    bool ok = find_comms(c, err);
    if (ok && c->world_n > 1)
        ok = share_id(c, err) && with_helper(c, connect_all, "connect all ranks", err) &&
             nccl_watch_start(c, err);
    if (!ok) { /* a helper may still work on it: it stays */
        fabric_abort(job->fabric, err->text);
        return false;
    }
    *out = c;
    return true;
}

/* ---- closing ---- */

static bool destroy_all(CudaComm *c, Err *err)
{
    (void)err;
    for (uint32_t i = 0; i < c->plan.comms_n; i++)
        if (c->comms[i])
            ncclCommDestroy(c->comms[i]);
    if (c->world)
        ncclCommDestroy(c->world);
    return true;
}

static void nccl_close(CudaComm *c)
{
    Err err = { 0 };
    if (!c)
        return;
    if (c->watched && !nccl_is_well(c, &err)) {
        nccl_watch_abort(c);
        return;
    }
    atomic_store(&c->closing, true);
    if (c->watched)
        pthread_join(c->watchdog, NULL);
    if (atomic_load(&c->aborted))
        return;
    err = (Err){ 0 };
    if (!with_helper(c, destroy_all, "leave its communicators", &err))
        return;
    nccl_free_tickets(c);
    nccl_free_sides(c);
    split_plan_free(&c->plan);
    free(c->comms);
    free(c->comm_of);
    pthread_mutex_destroy(&c->lock);
    pthread_mutex_destroy(&c->why_lock);
    free(c);
}

/* ---- running ---- */

static bool nccl_run(CudaComm *c, uint32_t task, cudaStream_t stream, Err *err)
{
    const Program *p = c->job.program;
    uint32_t n = program_posted_n(p, task);
    if (!nccl_is_well(c, err))
        return false;
    pthread_mutex_lock(&c->lock);
    bool ok = !atomic_load(&c->failed) || nccl_is_well(c, err);
    if (ok) {
        Ticket *t = nccl_take_ticket(c, task, stream);
        ok = nccl_queue(c, calls_of(c->job.calls, task), n, stream, err);
        if (ok && t && cudaEventRecord(t->behind, stream) == cudaSuccess)
            c->tickets[p->tasks[task].lane].n++;
    }
    pthread_mutex_unlock(&c->lock);
    if (!ok) {
        Err why = { 0 };
        if (!nccl_is_well(c, &why)) /* the reason came first, NCCL's error is what it led to */
            *err = why;
        else
            err_wrap(err, "op %u '%s'", p->tasks[task].id,
                     program_text(p, p->tasks[task].op->name));
        if (why.set || !nccl_is_capturing(stream)) /* a capture may fail: nothing has run */
            nccl_fail(c, err->text);
    }
    return ok;
}

static bool nccl_poll(CudaComm *c, int64_t since_ns, Err *err)
{
    double waited_s = (double)(net_now_ns() - since_ns) / 1e9;
    if (!nccl_is_well(c, err))
        return false;
    if (waited_s <= 2 * PATIENCE * c->job.timeout_s) /* the op is named first, if it can be */
        return true;
    err_set(
        err,
        "rank %u: its device has not answered for %.0f s; with --no-cuda-graphs the op it is "
        "in would be named",
        c->rank, waited_s);
    nccl_fail(c, err->text);
    return false;
}

static void nccl_abort(CudaComm *c, const char *why)
{
    nccl_fail(c, why); /* the watchdog does the rest */
}

const CudaCommType cuda_comm_nccl = { .captures = true,
                                      .check = nccl_check,
                                      .allocate = nccl_allocate,
                                      .release = nccl_release,
                                      .open = nccl_open,
                                      .run = nccl_run,
                                      .poll = nccl_poll,
                                      .abort = nccl_abort,
                                      .close = nccl_close };

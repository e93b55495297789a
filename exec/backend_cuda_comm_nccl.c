/*
 * backend_cuda_comm_nccl.c - transfers by NCCL, and a watchdog beside them.
 *
 *     open    id from rank 0 over the fabric -> world -> ncclCommSplit, call by call
 *             (exec/cuda_comm_split.h) -> each kind of transfer once, so that all
 *             connections are made in an order that cannot block
 *     run     ncclGroupStart, one NCCL call per piece, ncclGroupEnd
 *     watch   a thread: has the fabric lost a rank, has NCCL an error, does a transfer
 *             that has begun not end?  Then all communicators are aborted
 *
 * HANGING.  Communicators are blocking ones: with non-blocking ones NCCL 2.28 starts a
 * thread for every group that is launched.  So what may wait for a peer for ever while
 * communicators are made or destroyed runs on a helper thread, and the host waits for
 * that with a time-out and an eye on the fabric; a helper that does not come back is left
 * behind, the process is about to end.  While training, ncclCommAbort ends what waits.
 *
 * POSTED TOGETHER.  A group of NCCL launches one kernel for each communicator.  Kernels
 * on one stream run one after another, so sends and receives that are posted together,
 * each on its channel, go on side streams between a fork and a join.
 *
 * REGISTERED.  NCCL itself registers the buffers of captured calls (NCCL_GRAPH_REGISTER, 1 by
 * default: src/enqueue.cc), and then moves what lies in them without copies of its own.
 * It asks for memory of ncclMemAlloc, and that a collective's buffers lie at one offset on all
 * ranks (user guide, User Buffer Registration).  The arena is such memory where all ranks have
 * one role, and so one layout.  Stages of a pipeline have not; their tied embeddings, say, are
 * reduced at offsets of their own: there the arena stays cudaMalloc's, which NCCL registers
 * only when told to (NCCL_LEGACY_CUDA_REGISTER).
 *
 * PIECES.  NCCL's all-gather and reduce-scatter want shards of one size.  Where they do
 * not divide (exec/fabric.h cuts the last ones off) each shard is a broadcast from, or
 * a reduction to, its owner, all in one group.
 */
#include "exec/cuda_comm.h"

#include <cuda_runtime_api.h>
#include <errno.h>
#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/patterns/ring.h"
#include "exec/cuda_comm_split.h"
#include "exec/net.h"

enum {
    WATCH_NS = 100000000, /* between two looks */
    TICKETS_MAX = 256,    /* watched at once on a lane; more are not watched */
    LOCK_WAIT_S = 3,      /* for the host to leave NCCL before its communicators go */
    ABORT_WAIT_S = 10,
    LAST_WAY_OUT_S = 20, /* after an abort, for the process to end by itself */
    PATIENCE = 10,       /* time-outs for a rank that lives, as the fabric says, and is slow */
    HOST_PATIENCE = 5, /* for a call of NCCL: this is said before what it holds up elsewhere */
    SIDES_MAX = 64,    /* channels posted together */
    CHANNEL_CTAS_MAX = 8, /* a receive that waits for its sender holds so many SMs */
    PEERS_TEXT = 120
};

/* A transfer on its way; the events are on its stream. */
typedef struct Ticket {
    uint32_t task;
    cudaEvent_t before, behind;
    int64_t begun_ns; /* when the watchdog saw that it had begun; 0 */
} Ticket;

/* Of one lane, oldest first. */
typedef struct Tickets {
    uint32_t first, n;
    Ticket items[TICKETS_MAX];
} Tickets;

struct CudaComm {
    CudaCommJob job;
    uint32_t rank, world_n;
    SplitPlan plan;
    ncclComm_t world,
        *comms;        /* by communicator of the plan; NULL where this rank is not in it */
    uint32_t *comm_of; /* by call; NONE_U32: alone */
    ncclUniqueId id;
    Tickets tickets[LANE_N];
    cudaStream_t side[LANE_N]
                     [SIDES_MAX]; /* 0 stands for the lane's own; lanes have sides apart,
                                             or a transfer would wait for another lane's peer */
    cudaEvent_t fork, join[SIDES_MAX];
    pthread_mutex_t lock; /* the host's calls of NCCL, and tickets */
    pthread_t watchdog;
    bool watched;
    int64_t inside_ns; /* the watchdog's: since when every look finds the host in NCCL; 0 */
    _Atomic bool closing, failed, aborted;
    pthread_mutex_t why_lock;
    Err why;
};

/* ---- saying what failed ---- */

static bool nccl_failed(const CudaComm *c, ncclResult_t result, ncclComm_t comm,
                        const char *doing, Err *err)
{
    const char *more = ncclGetLastError(comm);
    return err_set(err, "rank %u: NCCL cannot %s: %s%s%.300s", c->rank, doing,
                   ncclGetErrorString(result), more && *more ? ": " : "", more ? more : "");
}

static bool cuda_failed(const CudaComm *c, cudaError_t result, const char *doing, Err *err)
{
    return err_set(err, "rank %u: CUDA cannot %s: %s", c->rank, doing,
                   cudaGetErrorString(result));
}

/* The first sentence wins, here and in the job. */
static void fail(CudaComm *c, const char *why)
{
    pthread_mutex_lock(&c->why_lock);
    err_set(&c->why, "%s", why);
    pthread_mutex_unlock(&c->why_lock);
    atomic_store(&c->failed, true);
    fabric_abort(c->job.fabric, why);
}

static bool is_well(CudaComm *c, Err *err)
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
                                    : cuda_failed(h->c, device, "use its device", &err);
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
        waits = h->done || is_well(c, err);
        if (waits && !h->done && (double)(net_now_ns() - since_ns) > c->job.timeout_s * 1e9)
            waits = err_set(err, "rank %u: NCCL did not %s within %.0f s", c->rank, doing,
                            c->job.timeout_s);
    }
    bool ok = h->done && h->ok, done = h->done;
    if (done && !ok)
        *err = h->err;
    h->left = !done;
    pthread_mutex_unlock(&h->lock);
    if (done)
        helper_free(h);
    return ok;
}

/* ---- one NCCL call per piece ---- */

static ncclDataType_t type_of(DType t)
{
    static const ncclDataType_t types[DTYPE_N] = {
        [DTYPE_F32] = ncclFloat32,   [DTYPE_TF32] = ncclFloat32, [DTYPE_F16] = ncclFloat16,
        [DTYPE_BF16] = ncclBfloat16, [DTYPE_FP8] = ncclInt8,     [DTYPE_I32] = ncclInt32,
        [DTYPE_I64] = ncclInt64,
    };
    return types[t];
}

/* One piece of a collective, with addresses. */
typedef struct Piece {
    const CommCall *call;
    uint8_t *in, *out; /* out: NULL where the call has none */
    uint64_t elements; /* of the whole piece */
    uint64_t size;     /* of an element */
    ncclDataType_t type;
    ncclComm_t comm;
    cudaStream_t stream;
} Piece;

static Piece piece_of(const CudaComm *c, const CommCall *call, uint32_t k, ncclComm_t comm,
                      cudaStream_t stream)
{
    uint8_t *arena = c->job.arena;
    bool out = call->out_n > 0;
    const Part *in = &call->in[k];
    const Part *whole = out && call->kind == OP_ALL_GATHER ? &call->out[k] : in;
    return (Piece){ .call = call,
                    .in = arena + in->offset,
                    .out = out ? arena + call->out[k].offset : NULL,
                    .elements = whole->elements,
                    .size = dtype_bytes(in->dtype),
                    .type = type_of(in->dtype),
                    .comm = comm,
                    .stream = stream };
}

static Span shard(const Piece *p, uint32_t member)
{
    return ring_block(p->elements, member, p->call->members_n);
}

static ncclResult_t all_gather(const Piece *p)
{
    uint32_t n = p->call->members_n, self = p->call->self;
    uint8_t *whole = p->out ? p->out : p->in;
    Span own = shard(p, self);
    const uint8_t *mine = p->out ? p->in : p->in + own.first * p->size;
    if (p->elements % n == 0)
        return ncclAllGather(mine, whole, own.n, p->type, p->comm, p->stream);
    ncclResult_t result = ncclSuccess;
    for (uint32_t i = 0; i < n && result == ncclSuccess; i++) {
        Span s = shard(p, i);
        uint8_t *to = whole + s.first * p->size;
        if (s.n > 0)
            result = ncclBroadcast(i == self ? mine : to, to, s.n, p->type, (int)i, p->comm,
                                   p->stream);
    }
    return result;
}

static ncclResult_t reduce_scatter(const Piece *p)
{
    uint32_t n = p->call->members_n, self = p->call->self;
    Span own = shard(p, self);
    uint8_t *mine = p->out ? p->out : p->in + own.first * p->size;
    if (p->elements % n == 0)
        return ncclReduceScatter(p->in, mine, own.n, p->type, ncclSum, p->comm, p->stream);
    ncclResult_t result = ncclSuccess;
    for (uint32_t i = 0; i < n && result == ncclSuccess; i++) {
        Span s = shard(p, i);
        uint8_t *from = p->in + s.first * p->size;
        if (s.n > 0)
            result = ncclReduce(from, i == self ? mine : from, s.n, p->type, ncclSum, (int)i,
                                p->comm, p->stream);
    }
    return result;
}

static ncclResult_t all_to_all(const Piece *p)
{
    uint32_t n = p->call->members_n;
    uint64_t each = p->elements / n;
    ncclResult_t result = ncclSuccess;
    for (uint32_t i = 0; i < n && each > 0 && result == ncclSuccess; i++) {
        uint64_t at = i * each * p->size;
        result = ncclSend(p->in + at, each, p->type, (int)i, p->comm, p->stream);
        if (result == ncclSuccess)
            result = ncclRecv(p->out + at, each, p->type, (int)i, p->comm, p->stream);
    }
    return result;
}

static ncclResult_t collective(const Piece *p)
{
    int root = (int)p->call->peer;
    if (p->elements == 0)
        return ncclSuccess;
    switch (p->call->kind) {
    case OP_ALL_REDUCE:
        return ncclAllReduce(p->in, p->in, p->elements, p->type,
                             p->call->maximum ? ncclMax : ncclSum, p->comm, p->stream);
    case OP_ALL_GATHER:
        return all_gather(p);
    case OP_REDUCE_SCATTER:
        return reduce_scatter(p);
    case OP_BROADCAST:
        return ncclBroadcast(p->in, p->in, p->elements, p->type, root, p->comm, p->stream);
    case OP_REDUCE:
        return ncclReduce(p->in, p->in, p->elements, p->type, ncclSum, root, p->comm,
                          p->stream);
    case OP_ALL_TO_ALL:
        return all_to_all(p);
    default:
        return ncclInvalidUsage;
    }
}

/* The sender is rank 0 of its channel.  As bytes: both ends cut alike (tests/unit). */
static ncclResult_t message(const CudaComm *c, const CommCall *call, const Part *part,
                            ncclComm_t comm, cudaStream_t stream)
{
    uint8_t *at = (uint8_t *)c->job.arena + part->offset;
    uint64_t bytes = part->elements * dtype_bytes(part->dtype);
    if (bytes == 0)
        return ncclSuccess;
    return call->kind == OP_SEND ? ncclSend(at, bytes, ncclInt8, 1, comm, stream)
                                 : ncclRecv(at, bytes, ncclInt8, 0, comm, stream);
}

/* A group of one rank: what would be gathered or scattered is copied. */
static bool alone(const CudaComm *c, const CommCall *call, cudaStream_t stream, Err *err)
{
    uint8_t *arena = c->job.arena;
    for (uint32_t k = 0; k < call->out_n; k++) {
        const Part *from = &call->in[k], *to = &call->out[k];
        uint64_t bytes = min_u64(from->elements, to->elements) * dtype_bytes(from->dtype);
        if (from->offset == to->offset || bytes == 0)
            continue;
        cudaError_t result = cudaMemcpyAsync(arena + to->offset, arena + from->offset, bytes,
                                             cudaMemcpyDeviceToDevice, stream);
        if (result != cudaSuccess)
            return cuda_failed(c, result, "copy within its device", err);
    }
    return true;
}

/* Within a group. */
static ncclResult_t queue_call(const CudaComm *c, const CommCall *call, ncclComm_t comm,
                               cudaStream_t stream)
{
    ncclResult_t result = ncclSuccess;
    for (uint32_t k = 0; k < call->in_n && result == ncclSuccess; k++) {
        if (op_is_p2p(call->kind)) {
            result = message(c, call, &call->in[k], comm, stream);
        } else {
            Piece p = piece_of(c, call, k, comm, stream);
            result = collective(&p);
        }
    }
    return result;
}

static ncclComm_t comm_of(const CudaComm *c, const CommCall *call)
{
    uint32_t comm = c->comm_of[call - c->job.calls->calls];
    return comm == NONE_U32 ? NULL : c->comms[comm];
}

/* Which stream each call goes on: calls of one channel share one. */
static uint32_t side_of(const CudaComm *c, const CommCall *calls, uint32_t i)
{
    uint32_t first = 0;
    while (comm_of(c, &calls[first]) != comm_of(c, &calls[i]))
        first++;
    return first;
}

static cudaError_t make_side(CudaComm *c, cudaStream_t *side, uint32_t i, cudaStream_t stream)
{
    cudaError_t result = cudaSuccess;
    int priority = 0;
    if (!c->fork)
        result = cudaEventCreateWithFlags(&c->fork, cudaEventDisableTiming);
    if (result == cudaSuccess && !c->join[i])
        result = cudaEventCreateWithFlags(&c->join[i], cudaEventDisableTiming);
    if (result == cudaSuccess && !side[i])
        result = cudaStreamGetPriority(stream, &priority);
    if (result == cudaSuccess && !side[i])
        result = cudaStreamCreateWithPriority(&side[i], cudaStreamNonBlocking, priority);
    return result;
}

/* Side streams begin where the lane is; behind the group the lane waits for them. */
static cudaError_t fork_sides(CudaComm *c, const CommCall *calls, uint32_t n,
                              cudaStream_t stream)
{
    cudaError_t result = cudaSuccess;
    cudaStream_t *side = c->side[calls[0].lane];
    for (uint32_t i = 1; i < n && result == cudaSuccess; i++)
        if (side_of(c, calls, i) == i)
            result = make_side(c, side, i, stream);
    if (n > 1 && result == cudaSuccess)
        result = cudaEventRecord(c->fork, stream);
    for (uint32_t i = 1; i < n && result == cudaSuccess; i++)
        if (side_of(c, calls, i) == i)
            result = cudaStreamWaitEvent(side[i], c->fork, 0);
    return result;
}

static cudaError_t join_sides(CudaComm *c, const CommCall *calls, uint32_t n,
                              cudaStream_t stream)
{
    cudaError_t result = cudaSuccess;
    for (uint32_t i = 1; i < n && result == cudaSuccess; i++) {
        if (side_of(c, calls, i) != i)
            continue;
        result = cudaEventRecord(c->join[i], c->side[calls[0].lane][i]);
        if (result == cudaSuccess)
            result = cudaStreamWaitEvent(stream, c->join[i], 0);
    }
    return result;
}

static bool queue_group(CudaComm *c, const CommCall *calls, uint32_t n, cudaStream_t stream,
                        Err *err)
{
    ncclComm_t comm = NULL;
    ncclResult_t result = ncclGroupStart();
    for (uint32_t i = 0; i < n && result == ncclSuccess; i++) {
        uint32_t side = side_of(c, calls, i);
        comm = comm_of(c, &calls[i]);
        if (comm)
            result =
                queue_call(c, &calls[i], comm, side ? c->side[calls[0].lane][side] : stream);
        else if (!alone(c, &calls[i], stream, err))
            break;
    }
    ncclResult_t end = ncclGroupEnd(); /* also behind an error: it clears the group */
    result = result == ncclSuccess ? end : result;
    if (!err->set && result != ncclSuccess)
        nccl_failed(c, result, comm, op_kind_names[calls[0].kind], err);
    return !err->set;
}

static bool queue_calls(CudaComm *c, const CommCall *calls, uint32_t n, cudaStream_t stream,
                        Err *err)
{
    if (n > SIDES_MAX)
        return err_set(err, "%u sends and receives are posted together; up to %d are allowed",
                       n, SIDES_MAX);
    cudaError_t result = fork_sides(c, calls, n, stream);
    if (result == cudaSuccess) {
        if (!queue_group(c, calls, n, stream, err))
            return false;
        result = join_sides(c, calls, n, stream);
    }
    return result == cudaSuccess || cuda_failed(c, result, "fork a stream", err);
}

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
    if (!is_well(c, err))
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
    fail(c, err.text);
    end_transfers(c);
    for (int64_t until = net_now_ns() + (int64_t)LAST_WAY_OUT_S * 1000000000;
         !atomic_load(&c->closing) && net_now_ns() < until;)
        net_sleep_ns(WATCH_NS);
    if (!atomic_load(&c->closing))
        leave(&err);
    return NULL;
}

/* ---- opening ---- */

/* Two ranks on one GPU: NCCL refuses that, in words that help nobody. */
static bool check_devices(CudaComm *c, Err *err)
{
    struct cudaDeviceProp prop;
    cudaError_t result = cudaGetDeviceProperties(&prop, c->job.device);
    if (result != cudaSuccess)
        return cuda_failed(c, result, "look at its device", err);
    size_t size = sizeof prop.uuid;
    uint8_t *all = mem_zero(c->world_n, size);
    bool ok = fabric_share(c->job.fabric, &prop.uuid, all, size, err);
    const char *host = getenv("NCCL_HOSTID");
    for (uint32_t a = 0; ok && !(host && *host) && a < c->world_n; a++)
        for (uint32_t b = 0; ok && b < a; b++)
            if (memcmp(all + a * size, all + b * size, size) == 0)
                ok = err_set(err,
                             "ranks %u and %u are on one GPU, which NCCL does not allow: give "
                             "every rank a GPU of its own, or run them in one process with "
                             "--comm loop (to try NCCL's own path, slowly: NCCL_HOSTID=h0, h1 "
                             "... in the environment of each)",
                             b, a);
    free(all);
    return ok;
}

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

/* ---- memory ---- */

static void *nccl_allocate(const Program *p)
{
    void *memory = NULL;
    if (p->graph->roles_n != 1)
        return NULL;
    if (ncclMemAlloc(&memory, p->arena_bytes) == ncclSuccess)
        return memory;
    (void)cudaGetLastError();
    return NULL;
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
                !queue_calls(c, &calls->calls[i], 1, stream, err))
                return false;
    return true;
}

/* What is in the arena is lost: it is zeroed behind. */
static bool try_all(CudaComm *c, Err *err)
{
    cudaStream_t stream = NULL;
    cudaError_t result = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (result != cudaSuccess)
        return cuda_failed(c, result, "make a stream", err);
    bool ok = c->job.arena_bytes < 2 || try_channels(c, stream, err);
    ok = ok && try_collectives(c, stream, err);
    if (ok) {
        result = cudaMemsetAsync(c->job.arena, 0, c->job.arena_bytes, stream);
        if (result == cudaSuccess)
            result = cudaStreamSynchronize(stream);
        if (result != cudaSuccess)
            ok = cuda_failed(c, result, "end its first transfers", err);
    }
    if (ok)
        cudaStreamDestroy(stream);
    return ok;
}

static bool connect_all(CudaComm *c, Err *err)
{
    return make_comms(c, err) && try_all(c, err);
}

static bool start_watchdog(CudaComm *c, Err *err)
{
    c->watched = pthread_create(&c->watchdog, NULL, watch_main, c) == 0;
    return c->watched || err_set(err, "rank %u cannot start a thread", c->rank);
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
        ok = check_devices(c, err) && share_id(c, err) &&
             with_helper(c, connect_all, "connect all ranks", err) && start_watchdog(c, err);
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

static void free_tickets(CudaComm *c)
{
    for (int lane = 0; lane < LANE_N; lane++)
        for (uint32_t i = 0; i < TICKETS_MAX; i++)
            if (c->tickets[lane].items[i].before) {
                cudaEventDestroy(c->tickets[lane].items[i].before);
                cudaEventDestroy(c->tickets[lane].items[i].behind);
            }
}

/* Transfers must leave the device before their streams go.  Where they do not, the watchdog stays
 * with all it looks at, and ends the process if nobody else does. */
static void wait_for_abort(CudaComm *c)
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

static void free_sides(CudaComm *c)
{
    if (c->fork)
        cudaEventDestroy(c->fork);
    for (uint32_t i = 0; i < SIDES_MAX; i++) {
        if (c->join[i])
            cudaEventDestroy(c->join[i]);
        for (int lane = 0; lane < LANE_N; lane++)
            if (c->side[lane][i])
                cudaStreamDestroy(c->side[lane][i]);
    }
}

static void nccl_close(CudaComm *c)
{
    Err err = { 0 };
    if (!c)
        return;
    if (c->watched && !is_well(c, &err)) {
        wait_for_abort(c);
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
    free_tickets(c);
    free_sides(c);
    split_plan_free(&c->plan);
    free(c->comms);
    free(c->comm_of);
    pthread_mutex_destroy(&c->lock);
    pthread_mutex_destroy(&c->why_lock);
    free(c);
}

/* ---- running ---- */

static bool is_capturing(cudaStream_t stream)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    return cudaStreamIsCapturing(stream, &status) != cudaSuccess ||
           status != cudaStreamCaptureStatusNone;
}

/* A free ticket of the lane, recorded in front of the transfer; NULL: it goes unwatched. */
static Ticket *take_ticket(CudaComm *c, uint32_t task, cudaStream_t stream)
{
    Tickets *l = &c->tickets[c->job.program->tasks[task].lane];
    if (!c->watched || l->n == TICKETS_MAX || is_capturing(stream))
        return NULL;
    Ticket *t = &l->items[(l->first + l->n) % TICKETS_MAX];
    if (!t->before && (cudaEventCreateWithFlags(&t->before, cudaEventDisableTiming) ||
                       cudaEventCreateWithFlags(&t->behind, cudaEventDisableTiming)))
        return NULL;
    t->task = task;
    t->begun_ns = 0;
    return cudaEventRecord(t->before, stream) == cudaSuccess ? t : NULL;
}

static bool nccl_run(CudaComm *c, uint32_t task, cudaStream_t stream, Err *err)
{
    const Program *p = c->job.program;
    uint32_t n = program_posted_n(p, task);
    if (!is_well(c, err))
        return false;
    pthread_mutex_lock(&c->lock);
    bool ok = !atomic_load(&c->failed) || is_well(c, err);
    if (ok) {
        Ticket *t = take_ticket(c, task, stream);
        ok = queue_calls(c, calls_of(c->job.calls, task), n, stream, err);
        if (ok && t && cudaEventRecord(t->behind, stream) == cudaSuccess)
            c->tickets[p->tasks[task].lane].n++;
    }
    pthread_mutex_unlock(&c->lock);
    if (!ok) {
        Err why = { 0 };
        if (!is_well(c, &why)) /* the reason came first, NCCL's error is what it led to */
            *err = why;
        else
            err_wrap(err, "op %u '%s'", p->tasks[task].id,
                     program_text(p, p->tasks[task].op->name));
        if (why.set || !is_capturing(stream)) /* a capture may fail: nothing has run */
            fail(c, err->text);
    }
    return ok;
}

static bool nccl_poll(CudaComm *c, int64_t since_ns, Err *err)
{
    double waited_s = (double)(net_now_ns() - since_ns) / 1e9;
    if (!is_well(c, err))
        return false;
    if (waited_s <= 2 * PATIENCE * c->job.timeout_s) /* the op is named first, if it can be */
        return true;
    err_set(err, "rank %u: its device has not answered for %.0f s", c->rank, waited_s);
    fail(c, err->text);
    return false;
}

static void nccl_abort(CudaComm *c, const char *why)
{
    fail(c, why); /* the watchdog does the rest */
}

const CudaCommType cuda_comm_nccl = { .name = "nccl",
                                      .captures = true,
                                      .allocate = nccl_allocate,
                                      .release = nccl_release,
                                      .open = nccl_open,
                                      .run = nccl_run,
                                      .poll = nccl_poll,
                                      .abort = nccl_abort,
                                      .close = nccl_close };

/*
 * nccl.cu - NCCL among threads, on the streams of runtime.cu; as strict as NCCL may be.
 *
 *     - a communicator is made, split and used for the first time only when all its members
 *       have come: their hosts wait for each other
 *     - each communicator of a group is one kernel on the stream of its calls
 *     - a kernel ends when all members' kernels run: until then it holds its stream
 *     - kernels of one communicator run in the order of their launches, on whatever streams
 *     - a send ends when it is received
 *     - calls that meet are the same call, and their memory all ncclMemAlloc's, or none's
 *     - nothing can be captured: a graph here runs in one go, and kernels that wait cannot
 *
 * Sums are taken in the order of the ranks (exec/fabric_sum.h).
 */
#include "tests/on_cpu/nccl.h"

#include <condition_variable>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "tests/on_cpu/on_cpu.h"

#define LOCKED std::lock_guard<std::recursive_mutex> guard(on_cpu_lock())

extern "C" {
/* exec/fabric_sum.h, in C */
void sum_vectors(unsigned char *const *to, unsigned to_n, const unsigned char *const *from,
                 unsigned n, unsigned long elements, int type, bool maximum);
}

typedef enum Kind {
    ALL_REDUCE,
    ALL_GATHER,
    REDUCE_SCATTER,
    BROADCAST,
    REDUCE,
    SEND,
    RECV
} Kind;

typedef struct Call {
    Kind kind;
    const unsigned char *from;
    unsigned char *to;
    size_t n;
    ncclDataType_t type;
    ncclRedOp_t op;
    int peer;
} Call;

/* What one communicator of a group launches on one rank. */
typedef struct Kernel {
    std::vector<Call> calls;
    size_t left_n; /* sends and receives */
    cudaEvent_t gate;
    bool ended;
} Kernel;

typedef struct Meeting {
    int come_n;
    std::map<int, std::pair<int, int>> said; /* by rank: color, key */
    std::map<int, struct Shared *> made;     /* by color */
} Meeting;

typedef std::pair<int, int> FromTo;

struct Shared {
    int ranks, joined_n, connected_n;
    bool aborted;
    std::map<uint64_t, Meeting> splits;
    std::vector<std::deque<Kernel *>> running; /* by rank: collectives that have been reached */
    std::map<FromTo, std::deque<std::pair<Kernel *, Call>>> sends, recvs;
};

struct ncclComm {
    Shared *shared;
    int rank;
    uint64_t splits_n;
    bool connected;
    cudaStream_t last;
    cudaEvent_t last_end;
    std::vector<Kernel *> kernels;
};

static std::mutex host_lock; /* of what hosts wait for */
static std::condition_variable host_bell;
static std::map<std::string, Shared *> worlds;
static std::map<const unsigned char *, size_t> own_memory;
static uint64_t ids_n, waiting_n, allocations_n, hold_in, refused_in;
static ncclResult_t broken = ncclSuccess;
static thread_local int depth;
static thread_local std::vector<std::pair<ncclComm *, std::pair<cudaStream_t, Call>>> group;

const char *ncclGetErrorString(ncclResult_t result)
{
    return result == ncclRemoteError ? "remote process exited" : "an error of the stand-in";
}

const char *ncclGetLastError(ncclComm_t)
{
    return "";
}

void on_cpu_nccl_break(ncclResult_t state)
{
    LOCKED;
    broken = state;
}

uint64_t on_cpu_nccl_waiting(void)
{
    LOCKED;
    return waiting_n;
}

static void end_kernel(Kernel *k)
{
    waiting_n -= !k->ended;
    k->ended = true;
    on_cpu_gate_open(k->gate);
}

/* ---- memory ---- */

void on_cpu_nccl_refuse(uint64_t n)
{
    LOCKED;
    refused_in = n;
}

/* NCCL may register it. */
static bool is_own_memory(const unsigned char *at)
{
    auto next = own_memory.upper_bound(at);
    return next != own_memory.begin() && at < (--next)->first + next->second;
}

uint64_t on_cpu_nccl_allocations(void)
{
    LOCKED;
    return allocations_n;
}

ncclResult_t ncclMemAlloc(void **at, size_t bytes)
{
    LOCKED;
    allocations_n++;
    if (refused_in > 0 && --refused_in == 0)
        return ncclUnhandledCudaError;
    if (cudaMalloc(at, bytes) != cudaSuccess)
        return ncclUnhandledCudaError;
    own_memory[(const unsigned char *)*at] = bytes;
    return ncclSuccess;
}

ncclResult_t ncclMemFree(void *at)
{
    LOCKED;
    own_memory.erase((const unsigned char *)at);
    return cudaFree(at) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

/* ---- communicators ---- */

static Shared *make_shared_comm(int ranks)
{
    Shared *s = new Shared();
    s->ranks = ranks;
    s->running.resize((size_t)ranks);
    return s;
}

static ncclComm *make_comm(Shared *s, int rank)
{
    ncclComm *c = new ncclComm();
    c->shared = s;
    c->rank = rank;
    return c;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    LOCKED;
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "job %llu", (unsigned long long)ids_n++);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *)
{
    std::unique_lock<std::mutex> hold(host_lock);
    Shared *&s = worlds[id.internal];
    if (!s)
        s = make_shared_comm(ranks);
    Shared *mine = s;
    mine->joined_n++;
    host_bell.notify_all();
    host_bell.wait(hold, [=]() { return mine->joined_n == ranks; });
    *comm = make_comm(mine, rank);
    return ncclSuccess;
}

/* Colors become communicators, members in the order of their keys. */
static void split_all(Meeting &m)
{
    std::map<int, int> n;
    for (auto &x : m.said)
        n[x.second.first]++;
    for (auto &x : n)
        if (x.first != NCCL_SPLIT_NOCOLOR)
            m.made[x.first] = make_shared_comm(x.second);
}

static int place_in(const Meeting &m, int rank)
{
    auto mine = m.said.at(rank);
    int place = 0;
    for (auto &x : m.said)
        if (x.second.first == mine.first &&
            (x.second.second < mine.second ||
             (x.second.second == mine.second && x.first < rank)))
            place++;
    return place;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *made,
                           ncclConfig_t *)
{
    std::unique_lock<std::mutex> hold(host_lock);
    Meeting &m = comm->shared->splits[comm->splits_n++];
    int ranks = comm->shared->ranks;
    m.said[comm->rank] = { color, key };
    if (++m.come_n == ranks)
        split_all(m);
    host_bell.notify_all();
    host_bell.wait(hold, [&]() { return m.come_n == ranks; });
    *made =
        color == NCCL_SPLIT_NOCOLOR ? NULL : make_comm(m.made[color], place_in(m, comm->rank));
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    LOCKED;
    for (Kernel *k : comm->kernels)
        if (!k->ended)
            abort(); /* it would wait for ever */
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    {
        LOCKED;
        for (Kernel *k : comm->kernels)
            end_kernel(k);
    }
    std::unique_lock<std::mutex> hold(host_lock);
    comm->shared->aborted = true;
    host_bell.notify_all();
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t *state)
{
    LOCKED;
    *state = broken;
    return ncclSuccess;
}

/* ---- what kernels do, once all members are there ---- */

static size_t size_of(ncclDataType_t type)
{
    return type == ncclInt8                              ? 1
           : type == ncclFloat16 || type == ncclBfloat16 ? 2
           : type == ncclInt64                           ? 8
                                                         : 4;
}

/* DType of core/dtype.h */
static int dtype_of(ncclDataType_t type)
{
    return type == ncclFloat32    ? 0
           : type == ncclFloat16  ? 2
           : type == ncclBfloat16 ? 3
           : type == ncclInt32    ? 5
                                  : 6;
}

static void sum_all(const std::vector<Call> &calls, size_t first, size_t n, unsigned char *to)
{
    std::vector<const unsigned char *> from;
    size_t size = size_of(calls[0].type);
    for (const Call &c : calls)
        from.push_back(c.from + first * size);
    std::vector<unsigned char> sum(n * size + 1);
    unsigned char *at = sum.data();
    sum_vectors(&at, 1, from.data(), (unsigned)from.size(), n, dtype_of(calls[0].type),
                calls[0].op == ncclMax);
    memcpy(to, at, n * size);
}

/* What NCCL would hang in, or worse. */
static void check_meeting(bool fits, const Call &a, const Call &b)
{
    if (fits && is_own_memory(a.from ? a.from : a.to) == is_own_memory(b.from ? b.from : b.to))
        return;
    fprintf(stderr, "NCCL: calls that meet differ: %d of %zu and %d of %zu\n", a.kind, a.n,
            b.kind, b.n);
    abort();
}

/* calls[i] is rank i's.  All is read before anything is written. */
static void run_collective(const std::vector<Call> &calls)
{
    const Call &c = calls[0];
    size_t ranks = calls.size(), bytes = c.n * size_of(c.type);
    std::vector<std::vector<unsigned char>> out(ranks);
    for (size_t i = 0; i < ranks; i++) {
        const Call &x = calls[i];
        check_meeting(x.kind == c.kind && x.n == c.n && x.type == c.type && x.op == c.op &&
                          x.peer == c.peer,
                      c, x);
        out[i].resize(c.kind == ALL_GATHER ? bytes * ranks : bytes);
        if (c.kind == ALL_REDUCE || c.kind == REDUCE)
            sum_all(calls, 0, c.n, out[i].data());
        else if (c.kind == REDUCE_SCATTER)
            sum_all(calls, i * c.n, c.n, out[i].data());
        else if (c.kind == BROADCAST)
            memcpy(out[i].data(), calls[(size_t)c.peer].from, bytes);
        else
            for (size_t k = 0; k < ranks; k++)
                memcpy(out[i].data() + k * bytes, calls[k].from, bytes);
    }
    for (size_t i = 0; i < ranks; i++)
        if (c.kind != REDUCE || (int)i == c.peer)
            memcpy(calls[i].to, out[i].data(), out[i].size());
}

static void meet_collectives(Shared *s)
{
    for (auto &q : s->running)
        if (q.empty())
            return;
    std::vector<Kernel *> met;
    for (auto &q : s->running) {
        met.push_back(q.front());
        q.pop_front();
    }
    for (Kernel *k : met)
        check_meeting(k->calls.size() == met[0]->calls.size(), met[0]->calls[0], k->calls[0]);
    for (size_t i = 0; i < met[0]->calls.size(); i++) {
        std::vector<Call> calls;
        for (Kernel *k : met)
            calls.push_back(k->calls.at(i));
        run_collective(calls);
    }
    for (Kernel *k : met)
        end_kernel(k);
}

static void meet_messages(Shared *s, FromTo which)
{
    auto &sends = s->sends[which];
    auto &recvs = s->recvs[which];
    while (!sends.empty() && !recvs.empty()) {
        auto send = sends.front(), recv = recvs.front();
        sends.pop_front();
        recvs.pop_front();
        check_meeting(send.second.n == recv.second.n && send.second.type == recv.second.type,
                      send.second, recv.second);
        memmove(recv.second.to, send.second.from, send.second.n * size_of(send.second.type));
        if (--send.first->left_n == 0)
            end_kernel(send.first);
        if (--recv.first->left_n == 0)
            end_kernel(recv.first);
    }
}

/* The stream has reached the kernel. */
static void reach(ncclComm *c, Kernel *k)
{
    Shared *s = c->shared;
    if (k->left_n == 0) {
        s->running[(size_t)c->rank].push_back(k);
        meet_collectives(s);
        return;
    }
    for (const Call &call : k->calls) {
        bool sends = call.kind == SEND;
        FromTo which = sends ? FromTo(c->rank, call.peer) : FromTo(call.peer, c->rank);
        (sends ? s->sends : s->recvs)[which].push_back({ k, call });
        meet_messages(s, which);
    }
}

/* ---- groups ---- */

/* The first use of a communicator needs all its members; those of one group connect at once. */
static ncclResult_t connect(const std::vector<ncclComm *> &comms)
{
    std::unique_lock<std::mutex> hold(host_lock);
    for (ncclComm *c : comms) {
        c->shared->connected_n += !c->connected;
        c->connected = true;
    }
    host_bell.notify_all();
    for (ncclComm *c : comms) {
        Shared *s = c->shared;
        host_bell.wait(hold, [=]() { return s->connected_n == s->ranks || s->aborted; });
        if (s->aborted)
            return ncclRemoteError;
    }
    return ncclSuccess;
}

void on_cpu_nccl_hold(uint64_t n)
{
    std::unique_lock<std::mutex> hold(host_lock);
    hold_in = n;
}

static ncclResult_t be_held(const std::vector<ncclComm *> &comms)
{
    std::unique_lock<std::mutex> hold(host_lock);
    if (comms.empty() || hold_in == 0 || --hold_in > 0)
        return ncclSuccess;
    Shared *s = comms[0]->shared;
    host_bell.wait(hold, [=]() { return s->aborted; });
    return ncclRemoteError;
}

static void launch(ncclComm *c, cudaStream_t stream, const std::vector<Call> &calls)
{
    LOCKED;
    Kernel *k = new Kernel();
    k->calls = calls;
    for (const Call &call : calls)
        k->left_n += call.kind == SEND || call.kind == RECV;
    k->gate = on_cpu_gate();
    waiting_n++;
    c->kernels.push_back(k);
    if (c->last_end && c->last != stream)
        cudaStreamWaitEvent(stream, c->last_end, 0);
    on_cpu_enqueue(stream, [=]() { reach(c, k); });
    cudaStreamWaitEvent(stream, k->gate, 0);
    c->last = stream;
    c->last_end = k->gate;
}

ncclResult_t ncclGroupStart(void)
{
    depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    if (--depth > 0)
        return ncclSuccess;
    auto calls = group;
    group.clear();
    for (auto &x : calls) {
        cudaStreamCaptureStatus status;
        if (x.second.first && cudaStreamIsCapturing(x.second.first, &status) == cudaSuccess &&
            status != cudaStreamCaptureStatusNone)
            return ncclInvalidUsage;
    }
    std::vector<ncclComm *> comms;
    std::map<ncclComm *, std::pair<cudaStream_t, std::vector<Call>>> by_comm;
    for (auto &x : calls) {
        if (!by_comm.count(x.first))
            comms.push_back(x.first);
        auto &mine = by_comm[x.first];
        if (!mine.second.empty() && mine.first != x.second.first)
            return ncclInvalidUsage;
        mine.first = x.second.first;
        mine.second.push_back(x.second.second);
    }
    ncclResult_t result = connect(comms);
    if (result == ncclSuccess)
        result = be_held(comms);
    for (ncclComm *c : comms)
        if (result == ncclSuccess)
            launch(c, by_comm[c].first, by_comm[c].second);
    return result;
}

static ncclResult_t add(ncclComm_t comm, cudaStream_t stream, Call call)
{
    ncclGroupStart();
    group.push_back({ comm, { stream, call } });
    return ncclGroupEnd();
}

typedef const unsigned char *From;
typedef unsigned char *To;

ncclResult_t ncclAllReduce(const void *from, void *to, size_t n, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    return add(comm, stream, Call{ ALL_REDUCE, (From)from, (To)to, n, type, op, 0 });
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t n, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream)
{
    return add(comm, stream, Call{ ALL_GATHER, (From)from, (To)to, n, type, ncclSum, 0 });
}

ncclResult_t ncclReduceScatter(const void *from, void *to, size_t n, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    return add(comm, stream, Call{ REDUCE_SCATTER, (From)from, (To)to, n, type, op, 0 });
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t n, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream)
{
    return add(comm, stream, Call{ BROADCAST, (From)from, (To)to, n, type, ncclSum, root });
}

ncclResult_t ncclReduce(const void *from, void *to, size_t n, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
{
    return add(comm, stream, Call{ REDUCE, (From)from, (To)to, n, type, op, root });
}

ncclResult_t ncclSend(const void *from, size_t n, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    return add(comm, stream, Call{ SEND, (From)from, NULL, n, type, ncclSum, peer });
}

ncclResult_t ncclRecv(void *to, size_t n, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    return add(comm, stream, Call{ RECV, NULL, (To)to, n, type, ncclSum, peer });
}

/*
 * backend_cuda_comm_nccl_queue.c - transfers as calls of NCCL, on streams.
 *
 * POSTED TOGETHER.  A group of NCCL launches one kernel for each communicator.  Kernels
 * on one stream run one after another, so sends and receives that are posted together,
 * each on its channel, go on side streams between a fork and a join.
 *
 * PIECES.  NCCL's all-gather and reduce-scatter want shards of one size.  Where they do
 * not divide (exec/fabric.h cuts the last ones off) each shard is a broadcast from, or
 * a reduction to, its owner, all in one group.
 */
#include "exec/backend_cuda_comm_nccl.h"

#include "core/patterns/ring.h"

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

static BlockRange shard(const Piece *p, uint32_t member)
{
    return ring_block(p->elements, member, p->call->members_n);
}

static ncclResult_t all_gather(const Piece *p)
{
    uint32_t n = p->call->members_n, self = p->call->self;
    uint8_t *whole = p->out ? p->out : p->in;
    BlockRange own = shard(p, self);
    const uint8_t *mine = p->out ? p->in : p->in + own.first * p->size;
    if (p->elements % n == 0)
        return ncclAllGather(mine, whole, own.n, p->type, p->comm, p->stream);
    ncclResult_t result = ncclSuccess;
    for (uint32_t i = 0; i < n && result == ncclSuccess; i++) {
        BlockRange s = shard(p, i);
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
    BlockRange own = shard(p, self);
    uint8_t *mine = p->out ? p->out : p->in + own.first * p->size;
    if (p->elements % n == 0)
        return ncclReduceScatter(p->in, mine, own.n, p->type, ncclSum, p->comm, p->stream);
    ncclResult_t result = ncclSuccess;
    for (uint32_t i = 0; i < n && result == ncclSuccess; i++) {
        BlockRange s = shard(p, i);
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
            return nccl_cuda_failed(c, result, "copy within its device", err);
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

bool nccl_queue(CudaComm *c, const CommCall *calls, uint32_t n, cudaStream_t stream, Err *err)
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
    return result == cudaSuccess || nccl_cuda_failed(c, result, "fork a stream", err);
}

void nccl_free_sides(CudaComm *c)
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

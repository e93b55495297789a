/*
 * backend_cuda_comm_nccl.h - what the files of NCCL's transfers share; nobody else includes it.
 *
 *     backend_cuda_comm_nccl.c         communicators: made, connected, destroyed
 *     backend_cuda_comm_nccl_queue.c   calls of a program as calls of NCCL, on streams
 *     backend_cuda_comm_nccl_watch.c   what does not end is ended
 */
#ifndef LOCKSTEP_EXEC_BACKEND_CUDA_COMM_NCCL_H
#define LOCKSTEP_EXEC_BACKEND_CUDA_COMM_NCCL_H

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>

#include "exec/cuda_comm.h"
#include "exec/cuda_comm_split.h"

enum {
    WATCH_NS = 100000000, /* between two looks */
    TICKETS_MAX = 256,    /* watched at once on a lane; more are not watched */
    PATIENCE = 10,        /* time-outs for a rank that lives, as the fabric says, and is slow */
    SIDES_MAX = 64        /* channels posted together */
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
    /* 0 stands for the lane's own.  Lanes have sides apart: a transfer on a shared one would wait
     * for another lane's peer. */
    cudaStream_t side[LANE_N][SIDES_MAX];
    cudaEvent_t fork, join[SIDES_MAX];
    pthread_mutex_t lock; /* the host's calls of NCCL, and tickets */
    pthread_t watchdog;
    bool watched;
    int64_t inside_ns; /* the watchdog's: since when every look finds the host in NCCL; 0 */
    _Atomic bool closing, failed, aborted;
    pthread_mutex_t why_lock;
    Err why;
};

/* ---- exec/backend_cuda_comm_nccl.c ---- */

/* Both return false with the sentence. */
bool nccl_failed(const CudaComm *c, ncclResult_t result, ncclComm_t comm, const char *doing,
                 Err *err);
bool nccl_cuda_failed(const CudaComm *c, cudaError_t result, const char *doing, Err *err);

/* Ends the job everywhere; the first sentence wins. */
void nccl_fail(CudaComm *c, const char *why);
/* False with the sentence of whoever ended it. */
bool nccl_is_well(CudaComm *c, Err *err);

/* ---- exec/backend_cuda_comm_nccl_queue.c ---- */

/* One collective, or n sends and receives posted together, on this stream. */
bool nccl_queue(CudaComm *c, const CommCall *calls, uint32_t n, cudaStream_t stream, Err *err);
void nccl_free_sides(CudaComm *c);

/* ---- exec/backend_cuda_comm_nccl_watch.c ---- */

bool nccl_watch_start(CudaComm *c, Err *err);
/* After a failure: waits until transfers have left the device.  Where they do not, the watchdog
 * stays with all it looks at, and ends the process if nobody else does. */
void nccl_watch_abort(CudaComm *c);
/* Somebody was left behind in NCCL, perhaps with kernels that wait for a dead peer, for which
 * freeing memory waits as well: ends the process with the sentence, after 20 s, if it has not ended
 * by itself. */
void nccl_leave_in_time(const Err *err);

/* Is what this stream is given put into a graph? */
bool nccl_is_capturing(cudaStream_t stream);
/* A free ticket of the lane, recorded in front of the transfer; NULL: it goes unwatched. */
Ticket *nccl_take_ticket(CudaComm *c, uint32_t task, cudaStream_t stream);
void nccl_free_tickets(CudaComm *c);

#endif

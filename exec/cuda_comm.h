/*
 * cuda_comm.h - transfers between GPUs, queued on CUDA streams.
 *
 *     fabric.h              cuda_comm.h
 *     --------              -----------
 *     fabric_run(calls)     run(task, stream)        queues it, the device does it later
 *     blocks until done     poll, while the host waits for the device
 *
 * Two implementations, in the CUDA plugin:
 *
 *     nccl    one process per GPU: NCCL, a communicator per group and lane, one per
 *             channel of sends (exec/cuda_comm_split.h)
 *     loop    all ranks are threads of one process on one GPU: own copy and add kernels
 *             (exec/cuda_comm_loop.h), sums in the order of the group's members
 *
 * What a call means, which numbers come out, and that calls of one group on one lane
 * come in one order on all members, stands in fabric.h; calls come from exec/calls.h.
 * Offsets of parts are in the device's arena.
 *
 * STREAMS.  A lane is a stream.  What is queued runs behind all that the stream has
 * been given before, and what is queued behind it runs when the transfer is done here:
 * tensors may then be read, and written again.  Events around `run` time it.
 *
 * THREADS.  nccl: `run` is called by the host thread of the rank, in program order.
 * loop: `run` blocks until the others have come (`blocks`), so each lane calls from a
 * thread of its own, as with the fabric: exec/lanes.h with a RunTasks that queues a
 * task, where "done" means queued.  A stream may wait for an event only once that has
 * been recorded, which lanes.h sees to.
 *
 * FAULTS.  A rank that dies or fails ends the job everywhere: kernels that wait for it
 * leave the device, run and poll return false with the sentence of fabric_failure.
 * close frees what can be freed without waiting for a device that does not come back.
 */
#ifndef LOCKSTEP_EXEC_CUDA_COMM_H
#define LOCKSTEP_EXEC_CUDA_COMM_H

#include "core/capture_api.h"
#include "exec/calls.h"

struct CUstream_st;

typedef struct CudaComm CudaComm;

/* All of it outlives the communicator. */
typedef struct CudaCommJob {
    const Program *program;
    const CommCalls *calls;
    Fabric *fabric;
    int device;  /* CUDA's number; made current by open on its threads */
    void *arena; /* on the device */
    uint64_t arena_bytes;
    double timeout_s; /* for ranks to connect; ten times as long a transfer may wait for a rank
                         that lives: it may be slow.  One that has died the fabric reports */
    /* loop: what one rank's thread queues for others gets their op. */
    const CaptureApi *capture;
    bool rings; /* loop: sums and gathers go step by step round a ring */
} CudaCommJob;

typedef struct CudaCommType {
    bool blocks;   /* run blocks: a thread per lane calls it */
    bool captures; /* run may be called while the stream is being captured into a graph */

    /* These two, before there is an arena, and the next are collective; they may be NULL.
     * Can these ranks' devices be joined at all?  False and a sentence. */
    bool (*check)(const CudaCommJob *job, Err *err);
    /* Device memory for the arena by which transfers gain, for all ranks or none; *memory is NULL:
     * there is none such, or no room somewhere.  False: the job has ended. */
    bool (*allocate)(void **memory, const CudaCommJob *job, Err *err);
    void (*release)(void *memory);

    /* Collective: all ranks of the job call it.  False and a sentence, within timeout_s. */
    bool (*open)(CudaComm **c, const CudaCommJob *job, Err *err);
    /* Tasks [task, task + program_posted_n), all transfers, on this stream.  False: the job has
     * ended; or, where the stream is being captured and poll finds all well, the capture has. */
    bool (*run)(CudaComm *c, uint32_t task, struct CUstream_st *stream, Err *err);
    /* Now and then while the host waits for the device; since_ns: CLOCK_MONOTONIC when it began
     * to wait.  False: the job has ended, err says why; nothing more will come. */
    bool (*poll)(CudaComm *c, int64_t since_ns, Err *err);
    /* Ends the job everywhere with this sentence; idempotent, from any thread. */
    void (*abort)(CudaComm *c, const char *why);
    void (*close)(CudaComm *c); /* NULL is fine; before the streams are destroyed */
} CudaCommType;

extern const CudaCommType cuda_comm_nccl, cuda_comm_loop;

#endif

/*
 * backend_cuda_device.h - the parts of the CUDA backend: memory, streams, times, graphs.
 *
 *     memory    one allocation is the program's arena, to the byte (NCCL's own rounds it up); a
 *               second one holds all else: scratch and workspaces by lane, tables of addresses,
 *               rates, the loss
 *     streams   a lane is a stream; an event behind each task that another lane waits for
 *     times     events around stretches of tasks; around every task when times are wanted
 *     graphs    the second step is captured while it is launched, and played from then on
 */
#ifndef LOCKSTEP_EXEC_BACKEND_CUDA_DEVICE_H
#define LOCKSTEP_EXEC_BACKEND_CUDA_DEVICE_H

#include <cuda_runtime_api.h>

#include "exec/backend.h"
#include "exec/cuda_comm.h"
#include "exec/cuda_ops.h"
#include "exec/cuda_plugin.h"
#include "exec/lanes.h"

/* What PyTorch gives cuBLAS on Hopper. */
#define GEMM_WORKSPACE_BYTES ((uint64_t)32 << 20)

/* Tasks of one lane, one after another, timed together: tasks by_lane[first ...]. */
typedef struct Stretch {
    Lane lane;
    uint32_t first, n; /* orders within the lane */
    cudaEvent_t start, end;
} Stretch;

typedef enum StepMode {
    STEP_PLAIN,   /* every op is launched */
    STEP_CAPTURE, /* the same, into a graph */
    STEP_PLAY     /* the graph is */
} StepMode;

struct Backend {
    const Job *job;
    const Program *p;
    bool graphs; /* may be captured */
    bool synced; /* LOCKSTEP_CUDA_SYNC: waits behind each kernel, so that errors have a name */

    /* memory */
    uint8_t *arena, *extra;
    bool comms_arena; /* comm_type has allocated it */
    uint64_t extra_bytes;
    uint8_t *staging; /* pinned, on the host: what copies bring, by task */
    uint64_t *staging_at;
    Rates *host_rates; /* pinned; and then on the device */
    double *host_loss;
    Rates *rates;
    double *loss;
    CudaTables tables;
    CudaEnv env[LANE_N];

    /* streams */
    cudaStream_t stream[LANE_N]; /* NULL: the lane has no tasks */
    cudaEvent_t *done;           /* by task; NULL: nobody waits for it */
    CommCalls calls;
    const CudaCommType *comm_type; /* NULL: there are no transfers, */
    CudaComm *comm;                /* and NULL */
    Lanes *lanes; /* where transfers block: launches by a thread per lane; else NULL */

    /* times */
    cudaEvent_t base; /* at the beginning of the step, when the host's clock was base_ns */
    int64_t base_ns, zero_ns;
    uint32_t stretches_n, stretches_cap;
    Stretch *stretches;
    uint32_t *begins, *ends; /* by task: stretch that it begins or ends; NONE_U32 */
    TaskRecord *records;

    /* steps */
    StepMode mode;
    uint64_t steps_n; /* since the backend was opened */
    cudaGraphExec_t graph;
    cudaEvent_t fork, join[LANE_N];
    bool spoiled; /* the capture: some launch did not go into it, */
    Err spoiled_by;
    bool failed;
    Err err;
};

/* False, with the error's text and what was being done, unless it is cudaSuccess. */
bool cuda_ok(cudaError_t result, const char *doing, Err *err);

/* What transfers are told; without an arena before memory_open. */
CudaCommJob comm_job(const Backend *b);

/* exec/backend_cuda_memory.c */
bool memory_open(Backend *b, Err *err);
void memory_close(Backend *b);

/* exec/backend_cuda_time.c */
bool times_open(Backend *b, Err *err);
void times_close(Backend *b);
/* Marks where the step begins, on the device and on the host; the device is idle. */
bool times_begin(Backend *b, Err *err);
/* Records of all tasks; the device is idle again. */
bool times_end(Backend *b, Err *err);

/* exec/backend_cuda_graph.c */
/* *can: of all ranks that transfers join; they capture a step together or not at all. */
bool graph_agree(const Backend *b, bool *can, Err *err);
bool graph_begin(Backend *b, Err *err);
/* Launches what was captured.  *redo: some rank could not capture it, and it has not run. */
bool graph_end(Backend *b, bool *redo, Err *err);
void graph_close(Backend *b);

#endif

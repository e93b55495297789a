/*
 * cuda_comm_place.h - which of the GPUs that CUDA shows a process is the rank's.
 *
 *     torchrun, mpirun, our own     all GPUs of the host are seen: local rank = GPU
 *     srun --gpus-per-task 1,       one is seen, chosen by the launcher
 *     torchrun --virtual-local-rank (CUDA_VISIBLE_DEVICES): that one, whatever the rank
 *     --comm loop                   all ranks are threads on the first one
 *     NCCL_HOSTID in the            ranks share GPUs in turn, to try NCCL's own path
 *     environment
 */
#ifndef LOCKSTEP_EXEC_CUDA_COMM_PLACE_H
#define LOCKSTEP_EXEC_CUDA_COMM_PLACE_H

#include "core/err.h"
#include "exec/fabric.h"

typedef struct GpuView {
    int devices_n;       /* that CUDA shows */
    const char *visible; /* CUDA_VISIBLE_DEVICES; NULL: not set */
    const char *host_id; /* NCCL_HOSTID; NULL */
    bool loop;
} GpuView;

/* False and a sentence that says what to do. */
bool place_gpu(int *device, const RankPlace *place, const GpuView *view, Err *err);

/* Why CUDA finds no GPU: cudaGetDeviceCount's error, as number and text; versions as
 * cudaDriverGetVersion and cudaRuntimeGetVersion give them (13020 is 13.2; 0: no driver).
 * False. */
bool place_no_gpu(int error, const char *text, int driver, int runtime, const char *visible,
                  Err *err);

#endif

/*
 * nccl.h - the part of NCCL that lockstep uses, among threads of one process, for tests without
 * a GPU.  Names and meaning are NCCL's; tests/on_cpu/nccl.cu says how it is done.
 */
#ifndef LOCKSTEP_TESTS_ON_CPU_NCCL_H
#define LOCKSTEP_TESTS_ON_CPU_NCCL_H

#include <stdint.h>

#include "tests/on_cpu/cuda_runtime_api.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ncclComm *ncclComm_t;

typedef enum ncclResult_t {
    ncclSuccess,
    ncclUnhandledCudaError,
    ncclSystemError,
    ncclInternalError,
    ncclInvalidArgument,
    ncclInvalidUsage,
    ncclRemoteError,
    ncclInProgress
} ncclResult_t;

typedef enum ncclDataType_t {
    ncclInt8 = 0,
    ncclInt32 = 2,
    ncclInt64 = 4,
    ncclFloat16 = 6,
    ncclFloat32 = 7,
    ncclBfloat16 = 9
} ncclDataType_t;

typedef enum ncclRedOp_t { ncclSum = 0, ncclMax = 2 } ncclRedOp_t;

typedef struct ncclUniqueId {
    char internal[128];
} ncclUniqueId;

#define NCCL_SPLIT_NOCOLOR    -1
#define NCCL_CONFIG_UNDEF_INT (-2147483647 - 1)
#define NCCL_CONFIG_INITIALIZER \
    { \
        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT \
    }

typedef struct ncclConfig_t {
    int blocking, maxCTAs;
} ncclConfig_t;

const char *ncclGetErrorString(ncclResult_t result);
const char *ncclGetLastError(ncclComm_t comm);
ncclResult_t ncclMemAlloc(void **at, size_t bytes);
ncclResult_t ncclMemFree(void *at);
ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config);
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *made,
                           ncclConfig_t *config);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclAllReduce(const void *from, void *to, size_t n, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAllGather(const void *from, void *to, size_t n, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclReduceScatter(const void *from, void *to, size_t n, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclBroadcast(const void *from, void *to, size_t n, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclReduce(const void *from, void *to, size_t n, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclSend(const void *from, size_t n, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclRecv(void *to, size_t n, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream);

/* What communicators report from now on as having gone wrong beside a call; for tests. */
void on_cpu_nccl_break(ncclResult_t state);
/* The n-th group from now on (1: the next) does not come back until it is aborted; 0: none. */
void on_cpu_nccl_hold(uint64_t n);
/* The n-th ncclMemAlloc from now on has no room; 0: none. */
void on_cpu_nccl_refuse(uint64_t n);
/* Calls of ncclMemAlloc so far. */
uint64_t on_cpu_nccl_allocations(void);
/* Kernels that have been queued and not ended. */
uint64_t on_cpu_nccl_waiting(void);

#ifdef __cplusplus
}
#endif

#endif

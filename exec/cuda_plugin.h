/*
 * cuda_plugin.h - what lockstep and its CUDA plugin know of each other.
 *
 *     lockstep --dlopen, once a driver is there--> lockstep-cuda.so
 *         dlsym "lockstep_cuda_plugin": a CudaPlugin
 *
 * The plugin is exec/backend_cuda*.c, the kernels beside them, and what both need of
 * exec/cuda_*.c.  It links CUDA, cuBLASLt and NCCL; all else it takes from the program
 * that loads it, which exports its symbols.  Ranks load it in their own process, behind
 * the fork.  backend_cuda_comm_plugin.c defines lockstep_cuda_plugin.
 */
#ifndef LOCKSTEP_EXEC_CUDA_PLUGIN_H
#define LOCKSTEP_EXEC_CUDA_PLUGIN_H

#include "core/capture_api.h"
#include "exec/backend.h"

struct CudaPlugin;
extern const struct CudaPlugin lockstep_cuda_plugin;

enum { CUDA_PLUGIN_VERSION = 3 };

#define CUDA_PLUGIN_FILE   "lockstep-cuda.so"
#define CUDA_PLUGIN_SYMBOL "lockstep_cuda_plugin"

/* How a rank uses its GPU; Job.cuda. */
typedef struct CudaOptions {
    bool loop;   /* transfers by cuda_comm_loop, else cuda_comm_nccl */
    bool rings;  /* as in CudaCommJob */
    bool graphs; /* the steady step is launched as a CUDA graph, where that can be */
    int device;  /* CUDA's number, by CudaPlugin.choose */
    double timeout_s;
    const CaptureApi *capture; /* the collector, which records already; NULL: none does */
} CudaOptions;

extern const BackendType backend_cuda; /* within the plugin: exec/backend_cuda.c */

typedef struct CudaPlugin {
    uint32_t version; /* CUDA_PLUGIN_VERSION of its build */
    const BackendType *backend;
    /* The GPU of this rank: its local rank, counted over the devices that CUDA shows here; with
     * loop all take device 0.  False and a sentence: no driver, one too old, no device, too few
     * devices, two ranks on one. */
    bool (*choose)(int *device, const RankPlace *place, bool loop, Err *err);
} CudaPlugin;

#endif

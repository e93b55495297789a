/*
 * backend_cuda_comm_plugin.c - the plugin as lockstep sees it, and the choice of the GPU.
 */
#include <cuda_runtime_api.h>
#include <stdlib.h>

#include "exec/cuda_comm_place.h"
#include "exec/cuda_plugin.h"

/* Read by CUDA when it starts; whoever has set it means it.  Streams that share a hardware queue
 * wait for each other: the default is 8 queues, a rank has more lanes.
 *
 * Kernels stay lazily loaded.  The first launch of one may then wait for all that runs in its
 * context (CUDA C++ Programming Guide, "Lazy Loading"): where that may be NCCL's, backend_cuda.c
 * loads them before.  In a loop nothing that runs waits for what is not yet queued
 * (cuda_comm_loop.h): there it is a delay, and loading all of cuBLASLt's would be a longer one. */
static void prepare_environment(void)
{
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
}

static bool choose(int *device, const RankPlace *place, bool loop, Err *err)
{
    GpuView view = { .visible = getenv("CUDA_VISIBLE_DEVICES"),
                     .host_id = getenv("NCCL_HOSTID"),
                     .loop = loop };
    prepare_environment();
    cudaError_t result = cudaGetDeviceCount(&view.devices_n);
    if (result == cudaSuccess && view.devices_n == 0)
        result = cudaErrorNoDevice;
    if (result != cudaSuccess) {
        int driver = 0, runtime = 0;
        cudaDriverGetVersion(&driver);
        cudaRuntimeGetVersion(&runtime);
        return place_no_gpu((int)result, cudaGetErrorString(result), driver, runtime,
                            view.visible, err);
    }
    return place_gpu(device, place, &view, err);
}

__attribute__((visibility("default"))) const CudaPlugin lockstep_cuda_plugin = {
    .version = CUDA_PLUGIN_VERSION, .backend = &backend_cuda, .choose = choose
};

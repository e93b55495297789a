/*
 * cmd_bench_device.c - the backend that is measured: the CPU's, or the CUDA plugin's.
 */
#include "exec/cmd_bench.h"

#include <stdlib.h>

#include "exec/cmd_run_cuda.h"
#include "exec/launch.h"

bool bench_device_find(const BenchOptions *o, Err *err)
{
    return !o->cuda || cuda_plugin_find("--backend cpu measures here", err);
}

static bool open_cuda(BenchRank *r, const BenchOptions *o, const RankPlace *place, Err *err)
{
    RunOptions like = { .loop = o->loop, .timeout_s = (uint64_t)place->timeout_s };
    const CudaPlugin *plugin;
    CudaOptions *cuda = mem_zero(1, sizeof *cuda);
    r->cuda = cuda;
    if (!cuda_rank(&plugin, cuda, &like, place, err))
        return false;
    r->type = plugin->backend;
    return true;
}

int bench_launch(const BenchOptions *o, uint32_t ranks,
                 int (*body)(const RankPlace *place, void *user), void *user,
                 const RankPlace *common)
{
    return o->loop ? launch_threads(ranks, body, user, common)
                   : launch_ranks(ranks, body, user, common, NULL);
}

bool bench_device_open(BenchRank *r, const BenchOptions *o, const RankPlace *place, Err *err)
{
    *r = (BenchRank){ .type = &backend_cpu,
                      .rank = place->rank,
                      .world_n = place->world,
                      .each_task = !o->cuda };
    return !o->cuda || open_cuda(r, o, place, err);
}

void bench_device_close(BenchRank *r)
{
    free((void *)(uintptr_t)r->cuda); /* const for all but its maker */
    r->cuda = NULL;
}

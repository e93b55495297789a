/*
 * backend_cuda_graph.c - a step as a CUDA graph.
 *
 * The first step is launched op by op: libraries load, cuBLASLt chooses.  The second one is
 * captured: the compute lane begins, all other lanes fork from it and join it again at the end;
 * events between lanes become edges.  What changes from step to step lies in memory (rates,
 * the loss, what copies bring), so the same graph is every later step.
 *
 * "Whether an operation launch is graph-captured is considered a collective property of that
 * operation and therefore must be uniform over all ranks participating in the launch" (NCCL user
 * guide, Using NCCL with CUDA Graphs): so ranks agree, before the first step whether to capture
 * and behind the capture whether to play it.
 */
#include "exec/backend_cuda_device.h"

#include <stdio.h>
#include <stdlib.h>

bool graph_agree(const Backend *b, bool *can, Err *err)
{
    uint32_t n = b->p->graph->world_n;
    if (!b->comm || b->lanes) /* nobody to agree with; lanes on threads make no graph */
        return true;
    bool *all = mem_zero(n, sizeof *all);
    bool ok = fabric_share(b->job->fabric, can, all, sizeof *can, err);
    for (uint32_t r = 0; r < n; r++)
        *can = *can && all[r];
    free(all);
    return ok;
}

static bool fork_lanes(Backend *b, Err *err)
{
    bool ok =
        cuda_ok(cudaEventRecord(b->fork, b->stream[LANE_COMPUTE]), "capturing a step", err);
    for (int i = 0; i < LANE_HOST && ok; i++)
        ok = i == LANE_COMPUTE || !b->stream[i] ||
             cuda_ok(cudaStreamWaitEvent(b->stream[i], b->fork, 0), "capturing a step", err);
    return ok;
}

static bool join_lanes(Backend *b, Err *err)
{
    bool ok = true;
    for (int i = 0; i < LANE_HOST && ok; i++)
        ok = i == LANE_COMPUTE || !b->stream[i] ||
             (cuda_ok(cudaEventRecord(b->join[i], b->stream[i]), "capturing a step", err) &&
              cuda_ok(cudaStreamWaitEvent(b->stream[LANE_COMPUTE], b->join[i], 0),
                      "capturing a step", err));
    return ok;
}

static bool make_events(Backend *b, Err *err)
{
    bool ok = cuda_ok(cudaEventCreateWithFlags(&b->fork, cudaEventDisableTiming),
                      "making events", err);
    for (int i = 0; i < LANE_HOST && ok; i++)
        ok = !b->stream[i] ||
             cuda_ok(cudaEventCreateWithFlags(&b->join[i], cudaEventDisableTiming),
                     "making events", err);
    return ok;
}

bool graph_begin(Backend *b, Err *err)
{
    return make_events(b, err) &&
           cuda_ok(cudaStreamBeginCapture(b->stream[LANE_COMPUTE],
                                          cudaStreamCaptureModeThreadLocal),
                   "capturing a step", err) &&
           fork_lanes(b, err);
}

/* Transfers keep the priority of their streams, which each node has taken over. */
static bool instantiate(Backend *b, cudaGraph_t graph, Err *err)
{
    bool ok =
        cuda_ok(cudaGraphInstantiate(&b->graph, graph, cudaGraphInstantiateFlagUseNodePriority),
                "making a graph", err);
    cudaGraphDestroy(graph);
    return ok;
}

static void drop_graph(Backend *b)
{
    if (b->graph)
        cudaGraphExecDestroy(b->graph);
    b->graph = NULL;
}

/* False: there is no graph, *why says what was in the way. */
static bool end_capture(Backend *b, Err *why)
{
    cudaGraph_t graph = NULL;
    bool joined = !b->spoiled && join_lanes(b, why);
    bool ended =
        cuda_ok(cudaStreamEndCapture(b->stream[LANE_COMPUTE], &graph), "capturing a step", why);
    if (joined && ended)
        return instantiate(b, graph, why);
    if (graph)
        cudaGraphDestroy(graph);
    return false;
}

bool graph_end(Backend *b, bool *redo, Err *err)
{
    *redo = false;
    if (b->mode == STEP_CAPTURE) {
        Err why = b->spoiled_by;
        bool mine = end_capture(b, &why), all = mine;
        if (!graph_agree(b, &all, err))
            return false;
        b->graphs = all;
        b->spoiled = false;
        *redo = !all;
        if (!mine) /* it works without, only with gaps between kernels */
            fprintf(stderr, "lockstep: rank %u makes no CUDA graph of a step: %s\n", b->p->rank,
                    why.text);
        if (!all) {
            drop_graph(b);
            return true;
        }
    }
    return cuda_ok(cudaGraphLaunch(b->graph, b->stream[LANE_COMPUTE]), "launching a graph",
                   err);
}

void graph_close(Backend *b)
{
    drop_graph(b);
    if (b->fork)
        cudaEventDestroy(b->fork);
    for (int i = 0; i < LANE_HOST; i++)
        if (b->join[i])
            cudaEventDestroy(b->join[i]);
}

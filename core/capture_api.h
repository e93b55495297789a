/*
 * capture_api.h - what a program that loads the CUPTI collector calls in it.
 *
 *     void *plugin = dlopen(".../" CAPTURE_PLUGIN_FILE, RTLD_NOW | RTLD_LOCAL);
 *     const CaptureApi *capture = dlsym(plugin, CAPTURE_PLUGIN_SYMBOL);
 *     if (capture->version == CAPTURE_VERSION && capture->start(&options, why, sizeof why))
 *         ...                                  best before the first CUDA call
 *         capture->push_op(rank, op);          around the launches of an op
 *         cublasLtMatmul(...);
 *         capture->pop_op();
 *         ...
 *         cudaDeviceSynchronize();
 *         capture->stop(&totals, why, sizeof why);
 *
 * What is launched between push and pop, also by libraries, carries (rank, op) in the
 * recording; so do the nodes of a CUDA graph that are captured there, and then the kernels
 * of every launch of the graph.  Ranks that are threads of one process share the collector:
 * push and pop are per thread, and the rank goes along.
 *
 * The recording is a file, read by profile/records.h.  One collector a process: CUPTI
 * serves one tool at a time.  The plugin is never unloaded.
 */
#ifndef LOCKSTEP_CORE_CAPTURE_API_H
#define LOCKSTEP_CORE_CAPTURE_API_H

#include "core/base.h"

enum { CAPTURE_VERSION = 1 };

#define CAPTURE_PLUGIN_FILE   "lockstep-capture.so" /* beside the program */
#define CAPTURE_PLUGIN_SYMBOL "lockstep_capture"

typedef struct CaptureOptions {
    const char *path;                 /* of the recording; must not exist */
    uint32_t rank, world, local_rank; /* NONE_U32 unknown */
    bool kernels_only; /* GPU work and labels, no calls, waits, marks: the least overhead */
} CaptureOptions;

typedef struct CaptureTotals {
    uint64_t records_n;
    uint64_t dropped_n;   /* CUPTI had no buffer for them */
    uint64_t unwritten_n; /* the file could not grow */
    int64_t callback_ns;  /* what the collector took from the program's own threads */
    int64_t writer_ns;    /* CPU time of the collector's own thread */
} CaptureTotals;

typedef struct CaptureApi {
    uint32_t version;
    /* false and a sentence: no driver, another tool, no file, CUPTI's error. */
    bool (*start)(const CaptureOptions *o, char *why, size_t why_n);
    void (*push_op)(uint32_t rank, uint32_t op);
    void (*pop_op)(void);
    /* A node (CUgraphNode) that was not captured between push and pop, but added by hand. */
    void (*map_graph_node)(void *node, uint32_t rank, uint32_t op);
    /* The clock of the recording now, ns; CLOCK_MONOTONIC where CUPTI allows to choose. */
    int64_t (*now_ns)(void);
    /* Writes what is left.  false and a sentence when the recording is not whole. */
    bool (*stop)(CaptureTotals *totals, char *why, size_t why_n);
} CaptureApi;

#endif

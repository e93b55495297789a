/*
 * trace_world.h - small timelines for tests of the report: spans in a line each.
 *
 *     World w = { 0 };
 *     uint32_t gpu = world_stream(&w, 0, 7);
 *     world_span(&w, gpu, SPAN_COMPUTE, "gemm", 0, 100);
 *     world_comm(&w, gpu, (Coll){ .op = "all_reduce", .group = "dp", .seq = 3 }, 50, 80);
 *     timeline_seal(&w.t);
 *     world_free(&w);
 */
#ifndef LOCKSTEP_TESTS_TRACE_WORLD_H
#define LOCKSTEP_TESTS_TRACE_WORLD_H

#include "core/timeline.h"

#include <stdio.h>

typedef struct World {
    Timeline t;
} World;

typedef struct Coll {
    const char *op, *group;
    int64_t seq; /* < 0 none */
    uint64_t bytes;
    int64_t wait_ns;  /* < 0 unknown */
    uint32_t ranks_n; /* 0 unknown */
    uint32_t group_id;
    bool p2p;
    uint32_t peer; /* of p2p */
} Coll;

static inline uint32_t world_stream(World *w, uint32_t rank, int64_t stream)
{
    char name[32];
    snprintf(name, sizeof name, "stream %d", (int)stream);
    return timeline_track(&w->t, rank, TRACK_STREAM, name, stream);
}

static inline uint32_t world_host(World *w, uint32_t rank)
{
    return timeline_track(&w->t, rank, TRACK_HOST, "host", 1);
}

static inline uint64_t world_span(World *w, uint32_t track, SpanClass class_, const char *name,
                                  int64_t start_ns, int64_t end_ns)
{
    return timeline_span(&w->t, (Span){ .track = track,
                                        .name = intern(&w->t.names, name),
                                        .class_ = class_,
                                        .start_ns = start_ns,
                                        .dur_ns = end_ns - start_ns,
                                        .op = NONE_U32,
                                        .comm = NONE_U32 });
}

static inline uint64_t world_comm(World *w, uint32_t track, Coll c, int64_t start_ns,
                                  int64_t end_ns)
{
    Comm comm = comm_of(intern(&w->t.names, c.op));
    comm.group = c.group ? intern(&w->t.names, c.group) : NONE_U32;
    comm.group_id = c.group ? c.group_id : NONE_U32;
    comm.seq = c.seq < 0 ? NONE_U32 : (uint32_t)c.seq;
    comm.bytes = c.bytes ? c.bytes : NONE_U64;
    comm.ranks_n = c.ranks_n;
    comm.wait_ns = c.wait_ns;
    if (c.p2p)
        comm.peer = c.peer;
    return timeline_span(&w->t, (Span){ .track = track,
                                        .name = intern(&w->t.names, "ncclDevKernel(x)"),
                                        .class_ = c.p2p ? SPAN_P2P : SPAN_COMM,
                                        .start_ns = start_ns,
                                        .dur_ns = end_ns - start_ns,
                                        .op = NONE_U32,
                                        .comm = timeline_comm(&w->t, comm) });
}

static inline void world_free(World *w)
{
    timeline_free(&w->t);
}

#endif

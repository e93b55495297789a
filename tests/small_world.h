/*
 * small_world.h - machines and graphs made by hand, for tests of the engine.
 *
 * An ideal machine: 1000 flops/ns, memory that costs nothing, links without
 * overhead.  Kernels are matmuls whose only property is their duration, so the
 * expected times are sums one can do in the head.
 */
#ifndef LOCKSTEP_TESTS_SMALL_WORLD_H
#define LOCKSTEP_TESTS_SMALL_WORLD_H

#include "core/graph.h"
#include "core/machine.h"
#include "sim/engine.h"

#include <string.h>

enum { WORLD_FLOPS_PER_NS = 1000, WORLD_INTRA = 100, WORLD_INTER = 50 };

typedef struct World {
    Machine m;
    Gpu gpu;
    NodeType type;
    Software sw;
    Straggler stragglers[4];
    SlowLink slow_links[4];
} World;

static inline void world_init(World *w, uint32_t nodes, uint32_t gpus_per_node, int64_t hop_ns)
{
    *w = (World){ 0 };
    w->gpu = (Gpu){ .name = "ideal",
                    .comm_matmul_factor = 1,
                    .memory_bytes_per_ns = 1e9,
                    .memory_bytes = (uint64_t)1 << 40,
                    .sms = 100 };
    for (int i = 0; i < DTYPE_N; i++) {
        w->gpu.peak_flops_per_ns[i] = WORLD_FLOPS_PER_NS;
        w->gpu.matmul_efficiency[i] = 1;
    }
    w->gpu.attention_efficiency = w->gpu.attention_bwd_efficiency = w->gpu.memory_efficiency =
        1;
    w->type = (NodeType){ .count = nodes, .gpus_n = gpus_per_node, .gpu = &w->gpu };
    w->type.intra = (IntraNode){ .kind = INTRA_NVSWITCH, .bytes_per_ns = WORLD_INTRA };
    w->type.intra.efficiency = (RankCurve){ .n = 1, .ranks = { 2 }, .value = { 1 } };
    w->m = (Machine){ .name = "small",
                      .nodes_n = nodes,
                      .gpus_n = nodes * gpus_per_node,
                      .types_n = 1,
                      .types = &w->type,
                      .ideal_collectives = true };
    w->m.inter = (InterNode){ .kind = INTER_FAT_TREE,
                              .nics_per_node = gpus_per_node,
                              .bytes_per_ns = WORLD_INTER,
                              .efficiency = 1,
                              .oversubscription = 1 };
    for (int p = 0; p < PROTOCOL_N; p++) {
        w->type.intra.hop_ns[p] = hop_ns;
        w->m.inter.hop_ns[p] = hop_ns;
    }
    w->m.stragglers = w->stragglers;
    w->m.slow_links = w->slow_links;
    w->sw = (Software){ .name = "test", .host_scale = 1, .compute_scale = 1, .comm_scale = 1 };
}

/* One role for all ranks; a graph that still needs groups, segments and instances. */
static inline void graph_begin(Graph *g, uint32_t world_n, uint32_t roles_n)
{
    *g = (Graph){ .world_n = world_n,
                  .role_stride = world_n / roles_n,
                  .role_extent = roles_n,
                  .host_group = NONE_U32 };
    g->role_of = mem_zero(roles_n, sizeof *g->role_of);
    for (uint32_t i = 0; i < roles_n; i++) {
        g->role_of[i] = i;
        graph_role(g, "role", i);
    }
    g->replica = (GroupDim){ 1, 1, 1, 1 };
}

/* A kernel that takes ns on the ideal GPU. */
static inline Op kernel(Graph *g, Lane lane, uint64_t ns)
{
    Op o = { .kind = OP_MATMUL,
             .dtype = DTYPE_BF16,
             .lane = lane,
             .name = intern(&g->names, "kernel") };
    o.u.matmul = (MatmulShape){ .m = ns, .n = 1, .k = WORLD_FLOPS_PER_NS / 2, .batch = 1 };
    o.flops = (double)ns * WORLD_FLOPS_PER_NS;
    return o;
}

static inline Op transfer(Graph *g, OpKind kind, Lane lane, uint32_t group, uint64_t bytes)
{
    Op o = { .kind = kind,
             .dtype = DTYPE_BF16,
             .lane = lane,
             .name = intern(&g->names, op_kind_names[kind]) };
    o.u.comm = (CommShape){ .bytes = bytes, .group = group };
    return o;
}

static inline Op p2p(Graph *g, OpKind kind, Lane lane, uint32_t group, uint32_t peer,
                     uint64_t bytes)
{
    Op o = transfer(g, kind, lane, group, bytes);
    o.u.comm.peer = peer;
    return o;
}

/* A segment of one op and an instance of it in the role. */
static inline uint32_t add(Graph *g, uint32_t role, Op o)
{
    uint32_t s = graph_segment(g, SEGMENT_OTHER, "one op");
    graph_op(g, o);
    return role_instance(&g->roles[role], s, NONE_U32, NONE_U32, NONE_U32);
}

static inline void after(Graph *g, uint32_t role, uint32_t instance)
{
    role_edge(&g->roles[role], 0, instance, 0);
}

#endif

/*
 * memory_extra.c - what a GPU holds beside the framework's tensors.
 *
 * Three constants of the world, each with where it is from; none is fitted.
 */
#include <stdlib.h>

#include "sim/caching_replay.h"

/* A process with PyTorch's and cuBLAS's kernels loaded shows 400 to 600 MiB in nvidia-smi on
 * A100 and H100.  Assumed, to be measured. */
#define CONTEXT_BYTES (512 * MIB)

/* NCCL 2.28.9, defaultBuffSizes of src/transport.cc and init.cc: per channel 4 MiB Simple, 512 KiB
 * LL (8 steps of 512 threads of 8 lines of 16 bytes), 4.9 MB LL128 (8 steps of 640 threads of
 * 120 lines of 8 bytes). */
#define CHANNEL_BYTES (4 * MIB + 512 * KIB + 8 * 640 * 120 * 8)

/* Channels of a communicator.  H100 with NVSwitch: "24 coll channels" in NCCL's log of 8 GPUs; the
 * others, and two channels a NIC between nodes, assumed, to be measured. */
enum { CHANNELS_NVSWITCH = 24, CHANNELS_NVLINK = 12, CHANNELS_OTHER = 2, CHANNELS_PER_NIC = 2 };

/* Part of what comes and goes that is held beside it where places are planned ahead.  Assumed, to
 * be measured. */
static const double planned_fragmentation = 0.05;

static uint32_t channels_in_node(const IntraNode *intra)
{
    switch (intra->kind) {
    case INTRA_NVSWITCH:
        return CHANNELS_NVSWITCH;
    case INTRA_NVLINK_MESH:
        return CHANNELS_NVLINK;
    default:
        return CHANNELS_OTHER;
    }
}

static bool spans_nodes(const GroupSpec *spec, const Machine *m, uint32_t rank)
{
    uint32_t node = machine_place(m, rank).node;
    for (uint32_t i = group_size(spec); i-- > 0;)
        if (machine_place(m, group_member(spec, rank, i)).node != node)
            return true;
    return false;
}

static uint32_t channels_of(const GroupSpec *spec, const Machine *m, uint32_t rank)
{
    uint32_t inside = channels_in_node(&machine_place(m, rank).type->intra);
    if (!spans_nodes(spec, m, rank))
        return inside;
    uint32_t between = CHANNELS_PER_NIC * m->inter.nics_per_node;
    if (between < CHANNELS_OTHER)
        between = CHANNELS_OTHER;
    return between < CHANNELS_NVSWITCH ? between : CHANNELS_NVSWITCH;
}

static void mark_groups(bool *used, const Graph *g, const Segment *s)
{
    for (uint32_t i = 0; i < s->op_n; i++) {
        const Op *op = graph_ops(g, s) + i;
        if (op_is_comm(op->kind))
            used[op->u.comm.group] = true;
    }
}

/* By group, whether the role talks in it; the caller frees it. */
static bool *groups_of_role(const Graph *g, const Role *role)
{
    bool *used = mem_zero((size_t)g->groups_n + 1, sizeof *used);
    bool *seen = mem_zero((size_t)g->segments_n + 1, sizeof *seen);
    for (uint32_t i = 0; i < role->instances_n; i++) {
        uint32_t segment = role->instances[i].segment;
        if (!seen[segment])
            mark_groups(used, g, &g->segments[segment]);
        seen[segment] = true;
    }
    free(seen);
    return used;
}

static uint64_t comm_bytes(const Graph *g, const bool *used, const Machine *m, uint32_t rank)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < g->groups_n; i++)
        if (used[i] && group_size(&g->groups[i]) > 1)
            bytes += channels_of(&g->groups[i], m, rank) * CHANNEL_BYTES;
    return bytes;
}

uint32_t memory_fullest_rank(const Graph *g, uint32_t role, const Machine *m, const NodeType *t,
                             uint32_t looked_at)
{
    uint64_t end =
        min_u64((uint64_t)t->first_rank + (uint64_t)t->count * t->gpus_n, g->world_n);
    uint32_t fullest = NONE_U32, others_n = 0;
    uint64_t most = 0;
    bool *used = looked_at > 1 ? groups_of_role(g, &g->roles[role]) : NULL;
    for (uint64_t r = t->first_rank; r < end && looked_at > 0 && others_n < g->role_extent;) {
        if (g->role_of[r / g->role_stride % g->role_extent] != role) {
            r = (r / g->role_stride + 1) * g->role_stride;
            others_n++;
            continue;
        }
        uint64_t bytes = used ? comm_bytes(g, used, m, (uint32_t)r) : 0;
        if (fullest == NONE_U32 || bytes > most) {
            fullest = (uint32_t)r;
            most = bytes;
        }
        looked_at--;
        others_n = 0;
        r++;
    }
    free(used);
    return fullest;
}

/* Of ideal machines and of CPUs only what is allocated counts. */
static bool is_plain(const Machine *m, const IntraNode *intra)
{
    return m->ideal_collectives || intra->kind == INTRA_SHARED_MEMORY;
}

void memory_replay(RoleMemory *m, const Graph *g, const Role *role, const Machine *machine,
                   const Software *sw)
{
    bool plain = true;
    for (uint32_t i = 0; i < machine->types_n; i++)
        plain = plain && is_plain(machine, &machine->types[i].intra);
    if (plain)
        return;
    double passing = (double)(m->peak_bytes - memory_resident_bytes(m));
    m->caches = !sw->planned_memory;
    m->expandable = sw->expandable_segments;
    m->pool_bytes = m->caches
                        ? caching_of_role(g, role, m, (CachingRun){ UINT64_MAX, m->expandable })
                        : m->peak_bytes + (uint64_t)(planned_fragmentation * passing);
}

/* Where there is not room for all it would hold, the allocator may get by with less. */
static uint64_t held_in(const Graph *g, const Role *role, RoleMemory *m, uint64_t room_bytes)
{
    if (m->pool_bytes <= room_bytes || !m->caches || m->peak_bytes > room_bytes)
        return m->pool_bytes;
    if (m->held_bytes == 0 || m->room_bytes != room_bytes) {
        uint64_t bytes = caching_of_role(g, role, m, (CachingRun){ room_bytes, m->expandable });
        m->room_bytes = room_bytes;
        m->held_bytes = bytes <= room_bytes ? bytes : m->pool_bytes;
    }
    return m->held_bytes;
}

MemoryExtra memory_extra(const Graph *g, const Role *role, RoleMemory *m,
                         const Machine *machine, uint32_t rank)
{
    const NodeType *type = machine_place(machine, rank).type;
    if (is_plain(machine, &type->intra))
        return (MemoryExtra){ 0 };
    bool *used = groups_of_role(g, role);
    MemoryExtra x = { .context_bytes = CONTEXT_BYTES,
                      .comm_bytes = comm_bytes(g, used, machine, rank) };
    free(used);
    uint64_t taken = x.context_bytes + x.comm_bytes, there = type->gpu->memory_bytes;
    uint64_t pool = held_in(g, role, m, there > taken ? there - taken : 0);
    x.fragmentation_bytes = pool > m->peak_bytes ? pool - m->peak_bytes : 0;
    return x;
}

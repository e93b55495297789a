/*
 * memory.h - how much memory a role needs, from its graph alone.
 *
 * Lifetimes follow program order (graph.h, TENSORS), so the peak is a sum over
 * the program and knows no time:
 *
 *     before[0]     = bytes of all resident frames
 *     before[i + 1] = before[i] + memory_delta(segment of i)
 *     peak          = max over i of before[i] + memory_peak(segment of i)
 *
 *     bytes          ___peak
 *        |     __/\_|   \__/\
 *        |  __|              \__         one bump per instance, never op by op
 *        |_|____________________|___
 *          F0 F1 F2    B2 B1 B0  optimizer
 *
 * That is what the framework allocates.  A GPU holds more: see MemoryExtra.
 */
#ifndef LOCKSTEP_SIM_MEMORY_H
#define LOCKSTEP_SIM_MEMORY_H

#include "core/arena.h"
#include "core/graph.h"
#include "core/machine.h"
#include "core/timeline.h"
#include "sim/software.h"

typedef struct RoleMemory {
    uint64_t peak_bytes;
    uint64_t at_peak[TENSOR_CLASS_N];  /* sums to peak_bytes */
    uint64_t resident[TENSOR_CLASS_N]; /* lives through the whole step */
    /* Where the peak is first reached; op is the index in the segment.  NONE_U32 where nothing
     * is ever born: then the residents are the peak. */
    uint32_t peak_instance, peak_op;
    uint64_t *before; /* by instance, and one more: after the last.  NULL unless asked for */
    /* What the allocator holds for it at most, where a GPU has room for that; 0 before
     * memory_replay. */
    uint64_t pool_bytes;
    bool caches, expandable; /* it is PyTorch's, which gets by with less where it must */
    /* What memory_extra has found: held where there is so much room. */
    uint64_t room_bytes, held_bytes;
} RoleMemory;

/* The name of tensors of class TENSOR_OPTIMIZER that are there before the first update. */
#define MASTER_WEIGHTS "master weights"

/* g is sealed.  before: where RoleMemory.before shall live, NULL if not wanted. */
RoleMemory memory_of_role(const Graph *g, const Role *role, Arena *before);

static inline uint64_t memory_resident_bytes(const RoleMemory *m)
{
    uint64_t bytes = 0;
    for (int c = 0; c < TENSOR_CLASS_N; c++)
        bytes += m->resident[c];
    return bytes;
}

/* Of each role, replayed (see memory_replay), in arena; before: whether that is wanted. */
RoleMemory *memory_of_roles(const Graph *g, const Machine *machine, const Software *sw,
                            bool before, Arena *arena);

/* The tensors of a role's frames in a row: where each frame's begin, and how many there are.  The
 * caller frees it. */
size_t *role_places(const Graph *g, const Role *role, size_t *places_n);

/* ---- what is alive at the peak ---- */

typedef struct LayerMemory {
    uint32_t layer; /* NONE_U32: belongs to no layer (embedding, head, buckets) */
    uint64_t bytes[TENSOR_CLASS_N];
} LayerMemory;

typedef struct TensorMemory {
    uint32_t name; /* Graph.names */
    TensorClass class_;
    uint64_t count, bytes; /* alive tensors of this name and class, and their sum */
} TensorMemory;

typedef struct MemoryDetail {
    uint32_t layers_n, tensors_n;
    LayerMemory *layers;   /* ascending, those without a layer last; sums to at_peak */
    TensorMemory *tensors; /* largest sum first; sums to at_peak */
} MemoryDetail;

/* Replays the role op by op up to the peak, so it costs more than memory_of_role. */
MemoryDetail memory_detail(const Graph *g, const Role *role, const RoleMemory *m, Arena *arena);

/* ---- what a GPU holds beside it ---- */

/*
 * Fills pool_bytes.  Of PyTorch's stacks by a replay of its caching allocator (caching_replay.h),
 * which takes about a millisecond; of those that place tensors ahead (Software.planned_memory)
 * a twentieth of what comes and goes, assumed.  Nothing on a machine with ideal_collectives and on
 * CPUs.
 */
void memory_replay(RoleMemory *m, const Graph *g, const Role *role, const Machine *machine,
                   const Software *sw);

typedef struct MemoryExtra {
    uint64_t context_bytes; /* CUDA context with the framework's kernels */
    uint64_t comm_bytes;    /* NCCL's buffers, per communicator and channel */
    /* What the allocator holds and nothing uses; 0 before memory_replay. */
    uint64_t fragmentation_bytes;
} MemoryExtra;

/*
 * Of the first looked_at ranks on nodes of a type that run a role, the first of those whose
 * communicators take most; NONE_U32: none does.  They differ where groups do not divide nodes
 * evenly, so that some span nodes and others do not.
 */
uint32_t memory_fullest_rank(const Graph *g, uint32_t role, const Machine *m, const NodeType *t,
                             uint32_t looked_at);

/* For a rank that runs role.  All 0 on a machine with ideal_collectives and on CPUs.  An allocator
 * that caches gives back what it does not use before it runs out of room, see caching_of_role; m
 * remembers that. */
MemoryExtra memory_extra(const Graph *g, const Role *role, RoleMemory *m,
                         const Machine *machine, uint32_t rank);

static inline uint64_t memory_reserved_bytes(const RoleMemory *m, const MemoryExtra *x)
{
    return m->peak_bytes + x->context_bytes + x->comm_bytes + x->fragmentation_bytes;
}

/* ---- as a counter track ---- */

/*
 * Adds the track "allocated bytes" to each rank whose compute lane t holds (t is
 * not sealed); memory is by Graph.roles, with before.  Program order is the order
 * of the compute lane, so its clock is memory's: each instance steps up to
 * before + peak where its first kernel starts and to its end value where the last
 * one ends; those without a kernel there step where the one before them ended.
 */
void memory_record(Timeline *t, const Graph *g, const RoleMemory *memory);

#endif

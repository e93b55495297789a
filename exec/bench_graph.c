/*
 * bench_graph.c - an op out of its graph, and a graph of nothing but it.
 */
#include "exec/bench.h"

#include <stdlib.h>
#include <string.h>

/* ---- out of a graph ---- */

/* A backward norm of query and key heads, whose gains are as wide as a head, finds that of the keys
 * beside the queries' (gain_of_k). */
static bool looks_beside(const Graph *g, const Segment *s, const Op *op)
{
    if (op->kind != OP_NORM || op_is_forward(op) || op->arg_n == 0)
        return false;
    const Tensor *last = graph_arg_tensor(g, s, &g->args[op->arg_first + op->arg_n - 1]);
    return last->bytes / dtype_bytes(last->dtype) < op->u.rows.columns;
}

/* Kernels look for other tensors of the layout, or of the step: they cannot stand alone. */
static bool stands_alone(const Graph *g, const Segment *s, const Op *op)
{
    uint64_t elements = 0;
    for (uint32_t i = 0; i < op->arg_n; i++) {
        const Tensor *x = graph_arg_tensor(g, s, &g->args[op->arg_first + i]);
        uint64_t n = x->bytes / dtype_bytes(x->dtype);
        if ((op->kind == OP_COPY || op->kind == OP_CAST) && i > 0 && n != elements)
            return false;
        elements = n;
    }
    bool copies = op->kind == OP_COPY || op->kind == OP_CAST;
    return op->arg_n > 0 && !looks_beside(g, s, op) && (!copies || op->arg_n == 2);
}

static uint32_t find_tensor(BenchKernel *k, const Graph *g, const Segment *s, const Arg *a,
                            uint32_t *source)
{
    const Tensor *x = graph_arg_tensor(g, s, a);
    uint32_t global = (uint32_t)(x - g->tensors), index = 0;
    /* Locals live within an instance only; here all tensors outlive the step. */
    Slot slot = a->slot == SLOT_LOCAL ? SLOT_STASH : (Slot)a->slot;
    for (uint32_t i = 0; i < k->tensors_n; i++) {
        if (source[i] == global && k->tensors[i].slot == slot)
            return i;
        index += k->tensors[i].slot == slot;
    }
    source[k->tensors_n] = global;
    k->tensors[k->tensors_n] = (BenchTensor){ *x, NULL, slot, index };
    k->bytes += x->bytes;
    return k->tensors_n++;
}

bool bench_kernel(BenchKernel *k, Arena *arena, const Graph *g, const Segment *s, const Op *op,
                  const ModelFacts *facts)
{
    if (!stands_alone(g, s, op))
        return false;
    *k = (BenchKernel){
        .op = *op,
        .name = arena_strdup(arena, intern_text(&g->names, op->name)),
        .segment = arena_strdup(arena, intern_text(&g->names, s->name)),
        .tensors = PUSH_ARRAY(arena, BenchTensor, op->arg_n),
        .args = PUSH_ARRAY(arena, BenchArg, op->arg_n),
        .args_n = op->arg_n,
        .facts = *facts,
    };
    uint32_t *source = mem_zero(op->arg_n, sizeof *source);
    for (uint32_t i = 0; i < op->arg_n; i++) {
        const Arg *a = &g->args[op->arg_first + i];
        k->args[i] = (BenchArg){ find_tensor(k, g, s, a, source), (ArgMode)a->mode };
    }
    for (uint32_t i = 0; i < k->tensors_n; i++)
        k->tensors[i].name =
            arena_strdup(arena, intern_text(&g->names, g->tensors[source[i]].name));
    free(source);
    return true;
}

uint32_t bench_copies(const BenchKernel *k, uint64_t cache_bytes)
{
    return (uint32_t)min_u64(div_up_u64(cache_bytes, max_u64(k->bytes, 1)) + (cache_bytes == 0),
                             BENCH_COPIES_MAX);
}

uint64_t bench_transfer_bytes(const BenchTransfer *t, uint32_t world_n)
{
    uint64_t unit = sizeof(float) * (t->kind == OP_SEND ? 1 : world_n);
    return max_u64(t->bytes / unit, 1) * unit;
}

/* ---- a graph of it ---- */

/* One layout for each slot that the kernel names. */
static uint32_t kernel_segment(Graph *g, const BenchKernel *k)
{
    uint32_t segment = graph_segment(g, SEGMENT_OTHER, k->segment);
    for (uint32_t slot = 0; slot < SLOT_N; slot++)
        for (uint32_t i = 0; i < k->tensors_n; i++) {
            if (k->tensors[i].slot != (Slot)slot)
                continue;
            Tensor t = k->tensors[i].t;
            t.name = intern(&g->names, k->tensors[i].name);
            if (g->segments[segment].layout[slot] == NONE_U32)
                g->segments[segment].layout[slot] = graph_layout(g);
            graph_tensor(g, t);
        }
    Op op = k->op;
    op.name = intern(&g->names, k->name);
    op.lane = op.kind == OP_H2D ? LANE_COPY : LANE_COMPUTE;
    op.grouped = false;
    op.logical = op.part = 0;
    graph_op(g, op);
    for (uint32_t i = 0; i < k->args_n; i++) {
        const BenchTensor *t = &k->tensors[k->args[i].tensor];
        graph_arg(g, t->slot, t->index, k->args[i].mode, false, false);
    }
    return segment;
}

static uint32_t resident_frame(Role *role, uint32_t layout)
{
    return role_frame(role, (Frame){ .layout = layout, .layer = NONE_U32, .resident = true });
}

/* frames[copy][slot] */
static uint32_t *kernel_frames(const Graph *g, Role *role, uint32_t segment, uint32_t copies)
{
    uint32_t *frames = mem_zero((size_t)copies * SLOT_N, sizeof *frames);
    for (uint32_t i = 0; i < copies * SLOT_N; i++) {
        uint32_t layout = g->segments[segment].layout[i % SLOT_N];
        frames[i] = layout == NONE_U32 ? NONE_U32 : resident_frame(role, layout);
    }
    return frames;
}

static void one_tensor(Graph *g, const char *name, uint64_t bytes)
{
    graph_tensor(g, (Tensor){ .name = intern(&g->names, name),
                              .class_ = TENSOR_BUFFER,
                              .dtype = DTYPE_F32,
                              .bytes = bytes,
                              .dims = { bytes / sizeof(float) } });
}

static Op comm_op(Graph *g, OpKind kind, uint64_t bytes, uint32_t peer)
{
    return (Op){ .kind = kind,
                 .dtype = DTYPE_F32,
                 .lane = op_is_p2p(kind) ? LANE_SEND_ACT : LANE_REDUCE,
                 .name = intern(&g->names, op_kind_names[kind]),
                 .read_bytes = bytes,
                 .write_bytes = bytes,
                 .u.comm = { .bytes = bytes, .peer = peer } };
}

/* Tensors 0 and 1 of SLOT_OUT: what is sent, what comes. */
static uint32_t transfer_segment(Graph *g, const BenchPlan *plan, uint32_t rank)
{
    const BenchTransfer *t = plan->transfer;
    uint32_t n = plan->world_n;
    uint64_t bytes = bench_transfer_bytes(t, n);
    bool shards = t->kind == OP_ALL_GATHER || t->kind == OP_REDUCE_SCATTER;
    bool apart = t->kind == OP_SEND || t->kind == OP_ALL_TO_ALL || shards;
    uint32_t segment = graph_segment(g, SEGMENT_OTHER, "transfer");
    g->segments[segment].layout[SLOT_OUT] = graph_layout(g);
    one_tensor(g, "sent", t->kind == OP_ALL_GATHER ? bytes / n : bytes);
    if (apart)
        one_tensor(g, "received", t->kind == OP_REDUCE_SCATTER ? bytes / n : bytes);
    if (t->kind == OP_SEND) {
        Op send = comm_op(g, OP_SEND, bytes, (rank + 1) % n);
        send.grouped = true;
        graph_op(g, send);
        graph_arg(g, SLOT_OUT, 0, ARG_READ, false, false);
        graph_op(g, comm_op(g, OP_RECV, bytes, (rank + n - 1) % n));
        graph_arg(g, SLOT_OUT, 1, ARG_WRITE, false, false);
        return segment;
    }
    graph_op(g, comm_op(g, t->kind, bytes, 0));
    graph_arg(g, SLOT_OUT, 0, apart ? ARG_READ : ARG_UPDATE, false, false);
    if (apart)
        graph_arg(g, SLOT_OUT, 1, ARG_WRITE, false, false);
    return segment;
}

/* Evenly among each other, so that a host that must wait for one lane has fed the other. */
static void add_instances(Role *role, const BenchPlan *plan, uint32_t kernel,
                          const uint32_t *frames, uint32_t transfer, uint32_t transfer_frame)
{
    uint64_t k = 0, t = 0, ks = plan->kernels_n, ts = plan->transfers_n;
    while (k < ks || t < ts) {
        if (t < ts && (k == ks || t * ks <= k * ts)) {
            uint32_t i = role_instance(role, transfer, NONE_U32, NONE_U32, NONE_U32);
            role->instances[i].frame[SLOT_OUT] = transfer_frame;
            t++;
        } else {
            uint32_t i = role_instance(role, kernel, NONE_U32, NONE_U32, NONE_U32);
            memcpy(role->instances[i].frame, frames + k % plan->copies * SLOT_N,
                   sizeof role->instances[i].frame);
            k++;
        }
    }
}

static void add_role(Graph *g, const BenchPlan *plan, uint32_t rank, uint32_t kernel)
{
    uint32_t transfer = NONE_U32, transfer_frame = NONE_U32, *frames = NULL;
    uint32_t nth = graph_role(g, "bench", 0);
    Role *role = &g->roles[nth];
    if (plan->kernels_n > 0)
        frames = kernel_frames(g, role, kernel, plan->copies);
    if (plan->transfers_n > 0) {
        transfer = transfer_segment(g, plan, rank);
        transfer_frame = resident_frame(role, g->segments[transfer].layout[SLOT_OUT]);
    }
    add_instances(role, plan, kernel, frames, transfer, transfer_frame);
    free(frames);
}

void bench_graph(Graph *g, const BenchPlan *plan)
{
    uint32_t n = plan->world_n;
    /* Who sends to whom differs from rank to rank; else one program is all ranks'. */
    uint32_t roles = plan->transfers_n > 0 && plan->transfer->kind == OP_SEND ? n : 1;
    ASSERT(n > 0 && plan->kernels_n + plan->transfers_n > 0);
    ASSERT(plan->transfers_n == 0 || n > 1);
    ASSERT(plan->kernels_n == 0 || plan->copies > 0);
    *g = (Graph){ .world_n = n,
                  .role_stride = roles == 1 ? n : 1,
                  .role_extent = roles,
                  .host_group = NONE_U32,
                  .replica = { 1, 1, 1, 1 } };
    g->role_of = mem_zero(roles, sizeof *g->role_of);
    graph_group(g, "all", &(GroupDim){ 1, n, 1, n }, 1);
    uint32_t kernel = plan->kernels_n > 0 ? kernel_segment(g, plan->kernel) : NONE_U32;
    for (uint32_t i = 0; i < roles; i++) {
        g->role_of[i] = i;
        add_role(g, plan, i, kernel);
    }
    graph_seal(g);
}

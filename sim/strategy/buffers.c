/*
 * buffers.c - which buffers there are, and their broadcast; see buffers.h.
 */
#include "sim/strategy/buffers.h"

static void add_buffer(Graph *g, const char *name, DType dtype, uint64_t elements)
{
    graph_tensor(g, (Tensor){ .name = intern(&g->names, name),
                              .class_ = TENSOR_BUFFER,
                              .dtype = dtype,
                              .bytes = elements * dtype_bytes(dtype),
                              .dims = { elements } });
}

/* Those of the batch norms of a block's forward. */
static void add_block(Build *b, uint32_t block, DType dtype)
{
    Graph *g = b->g;
    uint32_t forward = block_type(b, block)->forward[VARIANT_PLAIN];
    for (uint32_t i = 0; i < g->segments[forward].op_n; i++) {
        const Op *op = &graph_ops(g, &g->segments[forward])[i];
        if (op->kind != OP_BATCHNORM)
            continue;
        uint64_t channels = op->u.rows.columns;
        if (dtype == DTYPE_F32) {
            add_buffer(g, "running mean", dtype, channels);
            add_buffer(g, "running variance", dtype, channels);
        } else {
            add_buffer(g, "batches tracked", dtype, 1);
        }
    }
}

/* Buffers of one number format; NONE_U32: none. */
static uint32_t buffers_layout(Build *b, uint32_t role, DType dtype)
{
    uint32_t layout = graph_layout(b->g);
    for (uint32_t i = 0; i < b->blocks_n; i++)
        if (b->home[i].role == role)
            add_block(b, i, dtype);
    return b->g->layouts[layout].tensor_n ? layout : NONE_U32;
}

static Op moving_op(Graph *g, const char *name, DType dtype, uint64_t bytes)
{
    return (Op){ .kind = OP_COPY,
                 .phase = PHASE_FORWARD,
                 .dtype = dtype,
                 .lane = LANE_COMPUTE,
                 .name = intern(&g->names, name),
                 .logical = g->segments[g->segments_n - 1].op_n,
                 .u.elements = bytes / dtype_bytes(dtype),
                 .read_bytes = bytes,
                 .write_bytes = bytes };
}

/* Flattened into the local tensor, then sent. */
static uint32_t write_broadcast(Build *b, uint32_t layout, DType dtype)
{
    Graph *g = b->g;
    uint64_t bytes = layout_bytes(g, layout);
    uint32_t flatten = graph_op(g, moving_op(g, "flatten buffers", dtype, bytes));
    arg_each(g, SLOT_DATA, layout, ARG_READ, false, false);
    graph_arg(g, SLOT_LOCAL, 0, ARG_WRITE, true, false);
    Op op = moving_op(g, "broadcast buffers", dtype, 0);
    op.kind = OP_BROADCAST;
    op.lane = LANE_REDUCE;
    op.u.comm = (CommShape){ .bytes = bytes, .group = b->group[GROUP_DP], .peer = 0 };
    uint32_t sent = graph_op(g, op);
    graph_arg(g, SLOT_LOCAL, 0, ARG_UPDATE, false, false);
    graph_dep(g, flatten);
    return sent;
}

static void write_copies(Build *b, uint32_t layout, DType dtype, uint32_t sent)
{
    Graph *g = b->g;
    uint32_t n = g->layouts[layout].tensor_n;
    for (uint32_t i = 0; i < n; i++) {
        graph_op(g, moving_op(g, "copy buffer", dtype, layout_tensor(g, layout, i)->bytes));
        graph_arg(g, SLOT_LOCAL, 0, ARG_READ, false, i + 1 == n);
        graph_arg(g, SLOT_DATA, i, ARG_WRITE, false, false);
        if (i == 0)
            graph_dep(g, sent);
    }
}

static void send_buffers(Build *b, Role *role, uint32_t layout, DType dtype)
{
    Graph *g = b->g;
    uint64_t bytes = layout_bytes(g, layout);
    uint32_t local = graph_layout(g);
    add_buffer(g, "flat buffers", dtype, bytes / dtype_bytes(dtype));
    uint32_t s = graph_segment(g, SEGMENT_OTHER, "broadcast buffers");
    g->segments[s].layout[SLOT_DATA] = layout;
    g->segments[s].layout[SLOT_LOCAL] = local;
    write_copies(b, layout, dtype, write_broadcast(b, layout, dtype));
    uint32_t i = role_instance(role, s, NONE_U32, NONE_U32, NONE_U32);
    Frame frame = { layout, NONE_U32, true };
    role->instances[i].frame[SLOT_DATA] = role_frame(role, frame);
}

void broadcast_buffers(Build *b, uint32_t role)
{
    static const DType dtypes[] = { DTYPE_F32, DTYPE_I64 };
    for (size_t i = 0; i < ARRAY_N(dtypes); i++) {
        uint32_t layout = buffers_layout(b, role, dtypes[i]);
        if (layout != NONE_U32)
            send_buffers(b, &b->g->roles[role], layout, dtypes[i]);
    }
}

/*
 * strategy_fixture.h - a made-up model for the tests of strategy passes.
 *
 * Small enough to count by hand, and with everything that passes look at:
 *
 *     embedding   tokens -> out                          1 parameter
 *     layer       in -> stash -> out                     norm (tp_partial), up, down, bias
 *     head        in, targets -> loss                    1 parameter
 *
 *     layer backward   [dgrad][wgrad bias][wgrad down][wgrad up][wgrad norm, writes DIN]
 *
 * Recomputed layers save nothing.  Lives are as sim/blocks.h has them.
 */
#ifndef LOCKSTEP_TESTS_STRATEGY_FIXTURE_H
#define LOCKSTEP_TESTS_STRATEGY_FIXTURE_H

#include "sim/build.h"
#include "tests/check.h"

enum {
    FAKE_EMBEDDING = 5000, /* elements of the parameters */
    FAKE_NORM = 30,
    FAKE_UP = 4000,
    FAKE_DOWN = 3001, /* not divisible: shards are padded */
    FAKE_BIAS = 7,
    FAKE_HEAD = 6000,
    FAKE_BORROWED = 9,
    FAKE_LAYER = FAKE_NORM + FAKE_UP + FAKE_DOWN + FAKE_BIAS,
    FAKE_BOUNDARY_BYTES = 640
};

typedef struct Fixture {
    Scenario s;
    Software sw;
    Graph g;
    Build b;
    Err err;
    bool tied;    /* embedding and head are `shared`, as with a pipeline */
    bool borrows; /* the head has its parameters with the embedding, as without one */
    bool tp_lane; /* block outputs come from LANE_TP */
} Fixture;

/* One GPU, ddp, 1f1b; a test then changes what it is about. */
static inline void fixture_open(Fixture *f)
{
    *f = (Fixture){ 0 };
    Parallel *p = &f->s.parallel;
    *p = (Parallel){ .strategy = STRATEGY_DDP,
                     .dp = 1,
                     .tp = 1,
                     .pp = 1,
                     .cp = 1,
                     .ep = 1,
                     .schedule = SCHEDULE_1F1B,
                     .virtual_stages = 1,
                     .bucket_bytes = 20000,
                     .first_bucket_bytes = 5000,
                     .reshard_after_forward = true,
                     .prefetch = PREFETCH_BACKWARD,
                     .limit_all_gathers = true };
    for (int d = 0; d < DIM_N; d++) {
        p->order[d] = (Dim)d;
        f->sw.overlap[d] = true;
    }
    f->s.training = (Training){ .micro_batch = 1,
                                .micro_batches = 1,
                                .seq_len = 16,
                                .param_dtype = DTYPE_F32,
                                .grad_dtype = DTYPE_F32,
                                .reduce_dtype = DTYPE_F32,
                                .optimizer = OPT_ADAM };
    f->s.model.kind = MODEL_TRANSFORMER;
    f->s.model.name = "fake";
    f->sw.grads_persist = true;
}

static inline void fixture_close(Fixture *f)
{
    graph_free(&f->g);
    arena_free(&f->b.arena);
}

/* ---- blocks ---- */

static inline void fake_tensor(Graph *g, const char *name, TensorClass class_, DType dtype,
                               uint64_t elements)
{
    graph_tensor(g, (Tensor){ .name = intern(&g->names, name),
                              .class_ = class_,
                              .dtype = dtype,
                              .bytes = elements * dtype_bytes(dtype),
                              .dims = { elements } });
}

static inline uint32_t fake_layout(Graph *g, const char *name, TensorClass class_,
                                   uint64_t bytes)
{
    uint32_t layout = graph_layout(g);
    fake_tensor(g, name, class_, DTYPE_FP8, bytes);
    return layout;
}

static inline void fake_params(Fixture *f, BlockType *t, const uint64_t *elements, uint32_t n)
{
    Graph *g = &f->g;
    const Training *tr = &f->s.training;
    t->params_n = n;
    t->params = PUSH_ARRAY(&f->b.arena, Param, n);
    for (uint32_t i = 0; i < n; i++) {
        t->params[i] = (Param){ .tensor = i, .elements = elements[i] };
        t->elements += elements[i];
    }
    t->param_layout = graph_layout(g);
    for (uint32_t i = 0; i < n; i++)
        fake_tensor(g, "param", TENSOR_PARAM, tr->param_dtype, elements[i]);
    t->grad_layout = graph_layout(g);
    for (uint32_t i = 0; i < n; i++)
        fake_tensor(g, "grad", TENSOR_GRAD, tr->grad_dtype, elements[i]);
    t->state_layout = graph_layout(g);
    for (uint32_t i = 0; i < 2 * n; i++)
        fake_tensor(g, "moment", TENSOR_OPTIMIZER, DTYPE_F32, elements[i / 2]);
}

static inline uint32_t fake_op(Graph *g, const char *name, OpKind kind, Lane lane,
                               OpPhase phase)
{
    return graph_op(g, (Op){ .kind = kind,
                             .phase = phase,
                             .lane = lane,
                             .name = intern(&g->names, name),
                             .logical = g->segments[g->segments_n - 1].op_n });
}

/* Where the output of a block is final: on compute, or by a collective beside it. */
static inline void fake_output(Fixture *f, Slot slot)
{
    if (!f->tp_lane)
        return;
    Graph *g = &f->g;
    uint32_t before = g->segments[g->segments_n - 1].op_n - 1;
    fake_op(g, "tp all-reduce", OP_ALL_REDUCE, LANE_TP, PHASE_FORWARD);
    g->ops[g->ops_n - 1].u.comm = (CommShape){ .bytes = 64, .group = f->b.group[GROUP_TP] };
    graph_arg(g, slot, 0, ARG_UPDATE, false, false);
    graph_dep(g, before);
}

static inline void fake_forward(Fixture *f, BlockType *t, Variant v, uint32_t data)
{
    Graph *g = &f->g;
    uint32_t s = graph_segment(g, SEGMENT_FORWARD, "forward");
    t->forward[v] = s;
    uint32_t *layout = g->segments[s].layout;
    layout[SLOT_PARAM] = t->param_layout;
    layout[SLOT_IN] = t->in_layout;
    layout[SLOT_OUT] = t->out_layout;
    layout[SLOT_STASH] = t->stash_layout[v];
    layout[SLOT_DATA] = data;
    fake_op(g, "first", OP_MATMUL, LANE_COMPUTE, PHASE_FORWARD);
    graph_arg(g, SLOT_PARAM, 0, ARG_READ, false, false);
    if (t->in_layout != NONE_U32)
        graph_arg(g, SLOT_IN, 0, ARG_READ, false, false);
    if (t->stash_layout[v] != NONE_U32)
        graph_arg(g, SLOT_STASH, 0, ARG_WRITE, true, false);
    fake_op(g, "second", OP_MATMUL, LANE_COMPUTE, PHASE_FORWARD);
    if (data != NONE_U32)
        graph_arg(g, SLOT_DATA, 0, ARG_READ, false, false);
    if (t->out_layout == NONE_U32)
        return;
    graph_arg(g, SLOT_OUT, 0, ARG_WRITE, true, false);
    fake_output(f, SLOT_OUT);
}

static inline void fake_wgrad(Graph *g, uint32_t param, GradMode m)
{
    fake_op(g, "wgrad", OP_MATMUL, LANE_COMPUTE, PHASE_WGRAD);
    graph_arg(g, SLOT_GRAD, param, m == GRAD_ADD ? ARG_UPDATE : ARG_WRITE, m == GRAD_BORN,
              false);
}

/* A borrowing head writes what the embedding lists; the embedding then adds to its table. */
static inline void fake_wgrads(Fixture *f, BlockType *t, uint32_t *ready, GradMode m)
{
    Graph *g = &f->g;
    const BlockType *of = f->borrows && t->has_loss ? &f->b.types[0] : t;
    if (f->borrows && t->in_layout == NONE_U32) {
        fake_wgrad(g, 0, GRAD_ADD);
        ready[0] = ready[1] = g->segments[g->segments_n - 1].op_n - 1;
        return;
    }
    for (uint32_t i = of->params_n; i-- > 0;) {
        fake_wgrad(g, i, m);
        if (of == t)
            ready[i] = g->segments[g->segments_n - 1].op_n - 1;
    }
}

static inline void fake_backward(Fixture *f, BlockType *t, Variant v, GradMode m, uint32_t data)
{
    Graph *g = &f->g;
    uint32_t s = graph_segment(g, SEGMENT_BACKWARD, "backward");
    uint32_t *ready = PUSH_ARRAY(&f->b.arena, uint32_t, t->params_n);
    t->backward[v][m] = s;
    t->weight[v][m] = t->held_layout[v] = NONE_U32;
    t->ready_op[v][m] = ready;
    uint32_t *layout = g->segments[s].layout;
    layout[SLOT_PARAM] = t->param_layout;
    layout[SLOT_GRAD] = t->grad_layout;
    layout[SLOT_IN] = layout[SLOT_DIN] = t->in_layout;
    layout[SLOT_DOUT] = t->out_layout;
    layout[SLOT_STASH] = t->stash_layout[v];
    layout[SLOT_DATA] = data;
    fake_op(g, "dgrad", OP_MATMUL, LANE_COMPUTE, PHASE_DGRAD);
    graph_arg(g, SLOT_PARAM, 0, ARG_READ, false, false);
    if (t->stash_layout[v] != NONE_U32)
        graph_arg(g, SLOT_STASH, 0, ARG_READ, false, true);
    if (data != NONE_U32)
        graph_arg(g, SLOT_DATA, 0, ARG_READ, false, true);
    if (t->out_layout != NONE_U32)
        graph_arg(g, SLOT_DOUT, 0, ARG_READ, false, true);
    fake_wgrads(f, t, ready, m);
    if (t->in_layout == NONE_U32)
        return;
    graph_arg(g, SLOT_IN, 0, ARG_READ, false, true);
    graph_arg(g, SLOT_DIN, 0, ARG_WRITE, true, false);
    fake_output(f, SLOT_DIN);
}

static inline void fake_type(Fixture *f, BlockType *t, BlockKind kind, const uint64_t *elements,
                             uint32_t n)
{
    Graph *g = &f->g;
    uint32_t data = NONE_U32, boundary = f->b.boundary_layout;
    *t = (BlockType){ .has_loss = kind == BLOCK_HEAD,
                      .copy_layout = NONE_U32,
                      .half_layout = NONE_U32,
                      .made = { NONE_U32, NONE_U32 },
                      .sum = { NONE_U32, NONE_U32 } };
    t->in_layout = kind == BLOCK_EMBEDDING ? NONE_U32 : boundary;
    t->out_layout = t->has_loss ? NONE_U32 : boundary;
    if (n > 0) {
        fake_params(f, t, elements, n);
    } else {
        t->param_layout = f->b.types[0].param_layout;
        t->grad_layout = f->b.types[0].grad_layout;
        t->state_layout = f->b.types[0].state_layout;
    }
    if (kind != BLOCK_LAYER)
        data = fake_layout(g, "data", TENSOR_BUFFER, 128);
    uint32_t stash = fake_layout(g, "stash", TENSOR_ACTIVATION, 1000);
    for (int v = 0; v < VARIANT_N; v++) {
        bool saves = v == VARIANT_PLAIN || kind != BLOCK_LAYER;
        t->stash_layout[v] = saves ? stash : NONE_U32;
        fake_forward(f, t, (Variant)v, data);
        for (int m = 0; m < GRAD_MODE_N; m++)
            fake_backward(f, t, (Variant)v, (GradMode)m, data);
    }
}

/* embedding and head (`ends`) around n layers */
static inline void fake_blocks(Fixture *f, uint32_t n, bool ends)
{
    static const uint64_t layer[] = { FAKE_NORM, FAKE_UP, FAKE_DOWN, FAKE_BIAS };
    const uint64_t embedding[] = { FAKE_EMBEDDING, FAKE_BORROWED };
    const uint64_t head[] = { f->tied ? FAKE_EMBEDDING : FAKE_HEAD };
    Build *b = &f->b;
    b->boundary_layout = fake_layout(&f->g, "boundary", TENSOR_ACTIVATION, FAKE_BOUNDARY_BYTES);
    b->boundary_bytes = FAKE_BOUNDARY_BYTES;
    b->types_n = 3;
    b->types = PUSH_ARRAY(&b->arena, BlockType, 3);
    fake_type(f, &b->types[0], BLOCK_EMBEDDING, embedding, f->borrows ? 2 : 1);
    fake_type(f, &b->types[1], BLOCK_LAYER, layer, 4);
    fake_type(f, &b->types[2], BLOCK_HEAD, head, f->borrows ? 0 : 1);
    b->types[1].params[0].tp_partial = true;
    if (f->tied)
        b->types[0].params[0].shared = b->types[2].params[0].shared = true;
    b->blocks = PUSH_ARRAY(&b->arena, Block, n + 2);
    if (ends)
        b->blocks[b->blocks_n++] = (Block){ BLOCK_EMBEDDING, NONE_U32, 0, 0 };
    for (uint32_t i = 0; i < n; i++)
        b->blocks[b->blocks_n + i] = (Block){ BLOCK_LAYER, i, 1, b->blocks_n + i };
    b->blocks_n += n;
    if (ends) {
        b->blocks[b->blocks_n] =
            (Block){ BLOCK_HEAD, NONE_U32, 2, f->borrows ? 0 : b->blocks_n };
        b->blocks_n++;
    }
}

/* World and blocks; pipeline and the rest are up to the test. */
static inline bool fixture_start(Fixture *f, uint32_t layers)
{
    Training *t = &f->s.training;
    t->global_batch = t->micro_batch * t->micro_batches * f->s.parallel.dp;
    f->s.parallel.gpus =
        f->s.parallel.dp * f->s.parallel.tp * f->s.parallel.pp * f->s.parallel.cp;
    f->b = (Build){ .s = &f->s, .sw = &f->sw, .g = &f->g };
    if (!CHECK(build_world(&f->b, &f->err)))
        return false;
    fake_blocks(f, layers, true);
    return true;
}

static inline bool fixture_build(Fixture *f, uint32_t layers)
{
    if (!fixture_start(f, layers))
        return false;
    bool ok = CHECK(pass_pipeline(&f->b, &f->err));
    if (ok && f->s.parallel.strategy == STRATEGY_DDP)
        ok = CHECK(pass_ddp(&f->b, &f->err));
    else if (ok && f->s.parallel.strategy == STRATEGY_ZERO1)
        ok = CHECK(pass_zero1(&f->b, &f->err));
    else if (ok && f->s.parallel.strategy == STRATEGY_ZERO2)
        ok = CHECK(pass_zero2(&f->b, &f->err));
    else if (ok && f->s.parallel.strategy == STRATEGY_FSDP)
        ok = CHECK(pass_fsdp(&f->b, &f->err));
    else if (ok && f->s.parallel.strategy == STRATEGY_HSDP)
        ok = CHECK(pass_hsdp(&f->b, &f->err));
    else if (ok)
        ok = CHECK(pass_single(&f->b, &f->err));
    if (ok)
        graph_seal(&f->g);
    return ok;
}

/* ---- counting ---- */

/* Bytes of all ops of a kind in a role, times how often their segments are run. */
static inline uint64_t comm_bytes(const Graph *g, const Role *role, OpKind kind, uint32_t group)
{
    uint64_t bytes = 0;
    for (uint32_t n = 0; n < role->instances_n; n++) {
        const Segment *s = &g->segments[role->instances[n].segment];
        for (uint32_t i = 0; i < s->op_n; i++) {
            const Op *op = &graph_ops(g, s)[i];
            if (op->kind == kind && op->u.comm.group == group)
                bytes += op->u.comm.bytes;
        }
    }
    return bytes;
}

#endif

/*
 * fsdp.c - parameters, gradients and optimizer state sharded over dp x cp.
 *
 * As PyTorch's FSDP2.  A unit is a block; its parameters are gathered before
 * each use and freed after it, its gradients are reduce-scattered:
 *
 *     gather   [G0][G1][G2].[G3].........      ...[G1][G0]
 *     compute      [F0][F1][F2]  ...  [B2]....[B1]....[B0]...|optimizer on shards
 *     reduce                              [RS2]   [RS1]  [RS0]
 *
 * FORWARD.  The gather of the next unit is launched while this one computes, and
 * it waits for the release of the unit before: two gathered units live at most.
 * limit_all_gathers false: it waits for nothing.  Gathers run ahead of compute, and
 * the host ahead of both: the allocator cannot give again what kernels have yet to
 * read, so all units of a micro-batch's forward, or of its backward, are held until
 * its end (what the limit is there to prevent: Zhao et al., arXiv 2304.11277, 3.4).
 * BACKWARD.  The same in reverse where `prefetch` says so; else each gather
 * starts when the unit before it is done, as PyTorch's in-order communication
 * stream has it.  One reduce-scatter may be pending: after the next backward,
 * compute waits for it and frees its input.
 * KEPT.  Embedding and head are not resharded after forward (they are the root's); with
 * reshard_after_forward false no unit is, and in pipelines of software that keeps them
 * (pp_keeps_params) where the scenario says nothing.  What is kept lives
 * until its backward; with pipelines, where several micro-batches are under way,
 * until its last use.  With keeps_last_unit the last layer is kept too: its backward is next.
 * ROOT.  Each of embedding and head is a unit, unless the software makes them one (root_unit, as
 * PyTorch does: all that is in no block is the root's).  Then both are gathered before the first
 * forward, and reduce-scattered and freed at the end of a micro-batch's backward: what is
 * in no block has no hook in front of it, so the root's comes last
 * (_root_post_backward_final_callback).  A stage of a pipeline has one of the two.
 * MICRO-BATCHES.  Each gathers and reduce-scatters; sums of shards are added up
 * on the reduce lane.  After its backward compute waits for the last of them, as
 * FSDP2's root does (_root_post_backward_final_callback).  With pipelines whole
 * gradients are accumulated instead and reduce-scattered once, in the last
 * micro-batch, as torch.distributed.pipelining does (is_last_backward).
 * Without overlap every gather starts after the compute before it, and compute
 * waits for every reduce-scatter at once.
 *
 * REPLICAS.  hsdp shards over GROUP_DP_SHARD only; see hsdp.c for what is added.
 *
 * TIED.  A head that has its parameters with the embedding (Block.frame_of) is a
 * use of the embedding's unit, whose gradients are final after the embedding.
 *
 * SHARDS.  Of every parameter each of n ranks holds ceil(elements / n), the last
 * parts padded.  An all-gather reads the shards of all parameters of the unit and
 * bears the parameters; a parameter is the concatenation of the ranks' shards of it.
 * What is gathered is cast first where shards are kept in another format than kernels read, and
 * what was scattered where they keep it in another than it was summed in (sim/formats.h).
 * With bytes counted so, a step moves 3 (n - 1)/n times the parameters per rank.
 *
 * COPIES.  Where the software says so (gather_copies, as FSDP2 does), what is gathered is one
 * buffer, out of which compute copies the parameters before their first use; then it is freed.
 * Gradients are copied into what is reduce-scattered where that has another format, or the
 * software says so (reduce_copies).  FSDP 1 divides them before (divides_grads), on the same lane.
 */
#include "sim/strategy/grads.h"

#include <stdlib.h>

/* Segments on units of one type; NONE_U32 until first used. */
typedef struct UnitType {
    uint32_t gather, copy_out, release, copy_in, reduce, reduce_more, retire;
    uint32_t cast_layout;  /* shards as they are gathered; NONE_U32: as they are kept */
    uint32_t flat_layout;  /* what is gathered; NONE_U32: the parameters themselves */
    uint32_t input_layout; /* what is reduce-scattered: gradients, or a copy in reduce_dtype */
    bool copies;
} UnitType;

/* A forward or backward of a block that reads a unit; units are named by their block. */
typedef struct Use {
    uint32_t instance; /* before weaving */
    uint32_t unit;
    bool backward, last; /* last: of its unit in the role */
    bool owner;          /* its gradients are final after this, not after another block */
} Use;

typedef struct Pending {
    uint32_t block, frame;
    Point reduced;
} Pending;

typedef struct Fsdp {
    Build *b;
    Finish finish;
    UnitType *types;
    uint32_t ranks_n;
    uint32_t replicas; /* hsdp: group over which shards are replicated; NONE_U32 */
    bool ahead;        /* overlap */
    Starts *starts;    /* by segment of a block */
    uint32_t root_n;   /* blocks that are one unit, and which; 0: each is its own */
    uint32_t *root;

    /* One role. */
    Role *role;
    Arena scratch;
    Weave w;
    uint32_t uses_n;
    Use *uses;
    Point *retired;  /* by use: where it, or the last before it that was, was released */
    uint32_t *live;  /* by block: frame of the gathered parameters */
    uint32_t *flat;  /* by block: that of the buffer they are still in; NONE_U32: in none */
    Point *gathered; /* by block */
    uint32_t owed_n; /* units whose release waits for the end of the pass, */
    uint32_t *owed, *owed_frame; /* their blocks, and what was gathered */
    uint32_t *grads;             /* by block: frame of the whole gradients being summed */
    bool *reduced_once;          /* by block */
    uint32_t pending_n;
    Pending *pending; /* by when they were launched: one, or those of the root unit */
    Point summed;     /* newest op that wrote a gradient's shard */
} Fsdp;

static bool sums_whole(const Build *b)
{
    return b->s->parallel.pp > 1;
}

static bool is_last_layer(const Build *b, uint32_t block)
{
    return block + 1 == b->blocks_n || b->blocks[block + 1].kind != BLOCK_LAYER;
}

static bool is_kept(const Build *b, uint32_t block)
{
    bool last = b->sw->keeps_last_unit && !sums_whole(b) && is_last_layer(b, block);
    return b->blocks[block].kind != BLOCK_LAYER || last || !reshards(b);
}

static bool is_of_root(const Fsdp *d, uint32_t block)
{
    return d->root_n > 0 && d->b->blocks[block].kind != BLOCK_LAYER;
}

/* The blocks that are one unit with this one, itself among them. */
static const uint32_t *unit_of(const Fsdp *d, const uint32_t *block, uint32_t *n)
{
    *n = is_of_root(d, *block) ? d->root_n : 1;
    return is_of_root(d, *block) ? d->root : block;
}

static UnitType *unit_type(const Fsdp *d, uint32_t block)
{
    return &d->types[d->b->blocks[block].type];
}

static const Owned *shards_of(const Fsdp *d, uint32_t block)
{
    return &d->finish.owned[d->b->blocks[block].type];
}

/* ---- shards ---- */

static void set_class(Graph *g, uint32_t layout, TensorClass class_)
{
    for (uint32_t i = 0; i < g->layouts[layout].tensor_n; i++)
        g->tensors[g->layouts[layout].tensor_first + i].class_ = class_;
}

static bool needs_copy(const Build *b, const BlockType *t)
{
    if (b->sw->reduce_copies)
        return true;
    for (uint32_t i = 0; i < b->g->layouts[t->grad_layout].tensor_n; i++)
        if (layout_tensor(b->g, t->grad_layout, i)->dtype != build_formats(b).reduce)
            return true;
    return false;
}

/* The layout in another number format. */
static uint32_t copy_layout(Graph *g, uint32_t from, DType dtype)
{
    uint32_t layout = graph_layout(g);
    for (uint32_t i = 0; i < g->layouts[from].tensor_n; i++) {
        Tensor t = *layout_tensor(g, from, i);
        t.bytes = t.bytes / dtype_bytes(t.dtype) * dtype_bytes(dtype);
        t.dtype = dtype;
        t.class_ = TENSOR_BUFFER;
        graph_tensor(g, t);
    }
    return layout;
}

static UnitType start_type(Build *b, const BlockType *t, const Owned *o)
{
    UnitType u = { NONE_U32, NONE_U32, NONE_U32, NONE_U32, NONE_U32, NONE_U32,
                   NONE_U32, NONE_U32, NONE_U32, NONE_U32, false };
    if (t->elements == 0)
        return u;
    DType read = layout_tensor(b->g, t->param_layout, 0)->dtype;
    if (read != build_formats(b).param)
        u.cast_layout = copy_layout(b->g, o->param_layout, read);
    u.copies = needs_copy(b, t);
    u.input_layout =
        u.copies ? copy_layout(b->g, t->grad_layout, build_formats(b).reduce) : t->grad_layout;
    return u;
}

static void add_flat(Fsdp *d, UnitType *u, const Owned *o)
{
    Graph *g = d->b->g;
    uint32_t from = u->cast_layout != NONE_U32 ? u->cast_layout : o->param_layout;
    u->flat_layout = graph_layout(g);
    graph_tensor(g, (Tensor){ .name = intern(&g->names, "gathered unit"),
                              .class_ = TENSOR_BUFFER,
                              .dtype = layout_tensor(g, from, 0)->dtype,
                              .bytes = layout_bytes(g, from) * d->ranks_n });
}

/* ---- segments ---- */

static Slot input_slot(const UnitType *u)
{
    return u->copies ? SLOT_DATA : SLOT_GRAD;
}

static uint32_t start_segment(Graph *g, SegmentKind kind, const char *name, Op op)
{
    uint32_t s = graph_segment(g, kind, name);
    op.name = intern(&g->names, name);
    graph_op(g, op);
    return s;
}

static Slot gathered_slot(const UnitType *u)
{
    return u->flat_layout != NONE_U32 ? SLOT_DATA : SLOT_PARAM;
}

static uint32_t gathered_layout(const UnitType *u, uint32_t params)
{
    return u->flat_layout != NONE_U32 ? u->flat_layout : params;
}

static uint32_t gather_segment(Fsdp *d, uint32_t block)
{
    UnitType *u = unit_type(d, block);
    if (u->gather != NONE_U32)
        return u->gather;
    Graph *g = d->b->g;
    const Owned *o = shards_of(d, block);
    uint32_t whole = block_type(d->b, block)->param_layout;
    bool casts = u->cast_layout != NONE_U32;
    uint32_t from = casts ? u->cast_layout : o->param_layout;
    u->gather = graph_segment(g, SEGMENT_GATHER, "all-gather unit");
    uint32_t *layout = g->segments[u->gather].layout;
    layout[SLOT_SHARD] = o->param_layout;
    layout[gathered_slot(u)] = gathered_layout(u, whole);
    layout[SLOT_LOCAL] = u->cast_layout;
    Op op = { .phase = PHASE_FORWARD,
              .dtype = layout_tensor(g, whole, 0)->dtype,
              .lane = LANE_GATHER };
    if (casts) {
        op.kind = OP_CAST;
        op.name = intern(&g->names, "all-gather copy-in");
        op.u.elements = o->total;
        op.read_bytes = layout_bytes(g, o->param_layout);
        op.write_bytes = layout_bytes(g, from);
        graph_op(g, op);
        arg_each(g, SLOT_SHARD, o->param_layout, ARG_READ, false, false);
        arg_each(g, SLOT_LOCAL, from, ARG_WRITE, true, false);
        op.logical = 1;
    }
    op.kind = OP_ALL_GATHER;
    op.name = intern(&g->names, "all-gather unit");
    op.read_bytes = op.write_bytes = 0;
    op.u.comm =
        (CommShape){ .bytes = layout_bytes(g, from) * d->ranks_n, .group = share_group(d->b) };
    graph_op(g, op);
    arg_each(g, casts ? SLOT_LOCAL : SLOT_SHARD, from, ARG_READ, false, casts);
    arg_each(g, gathered_slot(u), gathered_layout(u, whole), ARG_WRITE, true, false);
    return u->gather;
}

/* The newest op of the newest segment: what is in one slot dies, what is in the other is born. */
static void args_move(Graph *g, Slot from, uint32_t from_layout, Slot to, uint32_t to_layout)
{
    uint32_t *layout = g->segments[g->segments_n - 1].layout;
    layout[from] = from_layout;
    layout[to] = to_layout;
    arg_each(g, from, from_layout, ARG_READ, false, true);
    arg_each(g, to, to_layout, ARG_WRITE, true, false);
}

static uint32_t copy_out_segment(Fsdp *d, uint32_t block)
{
    UnitType *u = unit_type(d, block);
    if (u->copy_out != NONE_U32)
        return u->copy_out;
    Graph *g = d->b->g;
    const BlockType *t = block_type(d->b, block);
    uint64_t bytes = layout_bytes(g, t->param_layout);
    Op op = { .kind = OP_COPY,
              .phase = PHASE_FORWARD,
              .dtype = layout_tensor(g, t->param_layout, 0)->dtype,
              .lane = LANE_COMPUTE,
              .u.elements = t->elements,
              .read_bytes = bytes,
              .write_bytes = bytes };
    u->copy_out = start_segment(g, SEGMENT_GATHER, "all-gather copy-out", op);
    args_move(g, SLOT_DATA, u->flat_layout, SLOT_PARAM, t->param_layout);
    return u->copy_out;
}

/* An op that does nothing but free a slot's tensors. */
static uint32_t freeing_segment(Graph *g, const char *name, Slot slot, uint32_t layout)
{
    Op op = { .kind = OP_RELEASE, .phase = PHASE_UPDATE, .lane = LANE_COMPUTE };
    uint32_t s = start_segment(g, SEGMENT_OTHER, name, op);
    g->segments[s].layout[slot] = layout;
    arg_each(g, slot, layout, ARG_READ, false, true);
    return s;
}

static uint32_t copy_in_segment(Fsdp *d, uint32_t block)
{
    UnitType *u = unit_type(d, block);
    if (u->copy_in != NONE_U32)
        return u->copy_in;
    Graph *g = d->b->g;
    const BlockType *t = block_type(d->b, block);
    uint64_t from = layout_bytes(g, t->grad_layout), to = layout_bytes(g, u->input_layout);
    DType grads = layout_tensor(g, t->grad_layout, 0)->dtype, sums = build_formats(d->b).reduce;
    Op op = { .kind = grads == sums ? OP_COPY : OP_CAST,
              .phase = PHASE_UPDATE,
              .dtype = sums,
              .lane = LANE_COMPUTE,
              .u.elements = t->elements,
              .read_bytes = from,
              .write_bytes = to };
    u->copy_in = start_segment(g, SEGMENT_REDUCE, "reduce-scatter copy-in", op);
    args_move(g, SLOT_GRAD, t->grad_layout, SLOT_DATA, u->input_layout);
    return u->copy_in;
}

/* Where a gradient's shard gets its last touch. */
static Lane sum_lane(const Fsdp *d)
{
    return d->replicas == NONE_U32 ? LANE_REDUCE : LANE_REPLICATE;
}

/*
 * What was scattered, in the format of the sum, on its way into the gradient's shard:
 *
 *     first of a step    -> GRAD_SHARD               casts    -> LOCAL, cast -> GRAD_SHARD
 *     later ones         -> LOCAL, added             casts    -> LOCAL, cast -> LOCAL, added
 */
typedef struct Scatter {
    Slot slot;
    uint32_t layout, n; /* where it is scattered to; its first n tensors */
    uint64_t bytes;
    bool more, casts;
} Scatter;

static Scatter scatter_of(Fsdp *d, const Owned *o, bool more)
{
    Graph *g = d->b->g;
    Formats f = build_formats(d->b);
    Scatter s = { .slot = SLOT_GRAD_SHARD, .layout = o->grad_layout, .more = more };
    s.n = g->layouts[o->grad_layout].tensor_n;
    s.casts = f.shard != f.reduce;
    if (more || s.casts)
        s.slot = SLOT_LOCAL;
    if (s.casts)
        s.layout = copy_layout(g, o->grad_layout, f.reduce);
    s.bytes = layout_bytes(g, s.layout);
    for (uint32_t i = 0; more && s.casts && i < s.n; i++) {
        Tensor t = *layout_tensor(g, o->grad_layout, i);
        t.class_ = TENSOR_BUFFER;
        graph_tensor(g, t);
    }
    return s;
}

/* The reduce-scatter in its segment. */
static uint32_t scatter_op(const Fsdp *d)
{
    return d->b->sw->divides_grads ? 1 : 0;
}

/* By a part of the ranks before, so that sums of 16 bits stay in range; by the rest behind, where
 * it is little. */
static void divide_grads(const Fsdp *d, const UnitType *u, uint64_t elements)
{
    Graph *g = d->b->g;
    uint64_t bytes = layout_bytes(g, u->input_layout);
    graph_op(g, (Op){ .kind = OP_SCALE,
                      .phase = PHASE_UPDATE,
                      .dtype = build_formats(d->b).reduce,
                      .lane = LANE_REDUCE,
                      .name = intern(&g->names, "divide gradients"),
                      .u.elements = elements,
                      .read_bytes = bytes,
                      .write_bytes = bytes });
    arg_each(g, input_slot(u), u->input_layout, ARG_UPDATE, false, false);
}

/* hsdp: what the segment scattered is summed over the replicas. */
static void reduce_replicas(const Fsdp *d, const Scatter *how)
{
    Graph *g = d->b->g;
    if (d->replicas == NONE_U32)
        return;
    graph_op(g, (Op){ .kind = OP_ALL_REDUCE,
                      .phase = PHASE_UPDATE,
                      .dtype = build_formats(d->b).reduce,
                      .lane = LANE_REPLICATE,
                      .name = intern(&g->names, "all-reduce gradient shards"),
                      .logical = scatter_op(d) + 1,
                      .u.comm = { .bytes = how->bytes, .group = d->replicas } });
    for (uint32_t i = 0; i < how->n; i++)
        graph_arg(g, how->slot, i, ARG_UPDATE, false, false);
    graph_dep(g, scatter_op(d));
}

/* Arguments of the newest op: tensors first .. first + n - 1 of LOCAL. */
static void local_args(Graph *g, uint32_t first, uint32_t n, ArgMode mode, bool born, bool dies)
{
    for (uint32_t i = first; i < first + n; i++)
        graph_arg(g, SLOT_LOCAL, i, mode, born, dies);
}

static void shard_op(const Fsdp *d, const Owned *o, OpKind kind, const char *name,
                     uint64_t from)
{
    Graph *g = d->b->g;
    const Segment *s = &g->segments[g->segments_n - 1];
    uint64_t to = layout_bytes(g, o->grad_layout);
    graph_op(g, (Op){ .kind = kind,
                      .phase = PHASE_UPDATE,
                      .dtype = build_formats(d->b).shard,
                      .lane = sum_lane(d),
                      .name = intern(&g->names, name),
                      .logical = s->op_n,
                      .u.elements = o->total,
                      .flops = kind == OP_ADD ? (double)o->total : 0,
                      .read_bytes = from + (kind == OP_ADD ? to : 0),
                      .write_bytes = to });
}

static void cast_sum(const Fsdp *d, const Owned *o, const Scatter *how)
{
    Graph *g = d->b->g;
    shard_op(d, o, OP_CAST, "cast gradient shards", how->bytes);
    local_args(g, 0, how->n, ARG_READ, false, true);
    if (how->more)
        local_args(g, how->n, how->n, ARG_WRITE, true, false);
    else
        arg_each(g, SLOT_GRAD_SHARD, o->grad_layout, ARG_WRITE, !d->b->sw->grads_persist,
                 false);
}

static void add_sum(const Fsdp *d, const Owned *o, const Scatter *how)
{
    Graph *g = d->b->g;
    shard_op(d, o, OP_ADD, "add gradient shards", layout_bytes(g, o->grad_layout));
    arg_each(g, SLOT_GRAD_SHARD, o->grad_layout, ARG_UPDATE, false, false);
    local_args(g, how->casts ? how->n : 0, how->n, ARG_READ, false, true);
}

/* The first of a step writes the gradient's shard; later ones (more) add to it. */
static uint32_t make_reduce(Fsdp *d, uint32_t block, bool more)
{
    Graph *g = d->b->g;
    const UnitType *u = unit_type(d, block);
    const Owned *o = shards_of(d, block);
    Scatter how = scatter_of(d, o, more);
    Op op = { .kind = OP_REDUCE_SCATTER,
              .phase = PHASE_UPDATE,
              .dtype = build_formats(d->b).reduce,
              .lane = LANE_REDUCE,
              .u.comm = { .bytes = how.bytes * d->ranks_n, .group = share_group(d->b) } };
    uint32_t s = graph_segment(g, SEGMENT_REDUCE, "reduce-scatter unit");
    uint32_t *layout = g->segments[s].layout;
    layout[input_slot(u)] = u->input_layout;
    layout[SLOT_GRAD_SHARD] = o->grad_layout;
    layout[how.slot] = how.layout;
    if (d->b->sw->divides_grads)
        divide_grads(d, u, block_type(d->b, block)->elements);
    op.name = g->segments[s].name;
    op.logical = scatter_op(d);
    graph_op(g, op);
    arg_each(g, input_slot(u), u->input_layout, ARG_READ, false, false);
    bool born = how.slot == SLOT_LOCAL || !d->b->sw->grads_persist;
    for (uint32_t i = 0; i < how.n; i++)
        graph_arg(g, how.slot, i, ARG_WRITE, born, false);
    reduce_replicas(d, &how);
    if (how.casts)
        cast_sum(d, o, &how);
    if (more)
        add_sum(d, o, &how);
    return s;
}

static uint32_t reduce_segment(Fsdp *d, uint32_t block, bool more)
{
    UnitType *u = unit_type(d, block);
    uint32_t *s = more ? &u->reduce_more : &u->reduce;
    if (*s == NONE_U32)
        *s = make_reduce(d, block, more);
    return *s;
}

/* ---- instances ---- */

static uint32_t unit_instance(const Fsdp *d, uint32_t segment, uint32_t block,
                              const Instance *like)
{
    return role_instance(d->role, segment, like->micro_batch, d->b->blocks[block].layer,
                         like->chunk);
}

static void gather_block(Fsdp *d, uint32_t block, uint32_t j, Point after)
{
    const Instance *like = &d->w.old.instances[d->uses[j].instance];
    uint32_t segment = gather_segment(d, block);
    uint32_t i = unit_instance(d, segment, block, like);
    Frame frame = { block_type(d->b, block)->param_layout, d->b->blocks[block].layer,
                    like->micro_batch, false };
    d->live[block] = role_frame(d->role, frame);
    d->role->instances[i].frame[SLOT_SHARD] = d->b->home[block].param;
    const UnitType *u = unit_type(d, block);
    uint32_t gathered = d->live[block];
    if (u->flat_layout != NONE_U32) {
        frame.layout = u->flat_layout;
        gathered = d->flat[block] = role_frame(d->role, frame);
    }
    d->role->instances[i].frame[gathered_slot(u)] = gathered;
    wait_at(d->role, 0, after);
    if (j >= 2 && d->b->s->parallel.limit_all_gathers)
        wait_at(d->role, 0, d->retired[j - 2]);
    d->gathered[block] = (Point){ i, d->b->g->segments[segment].op_n - 1 };
}

/* Gathers what use j needs, unless it is there. */
static void gather(Fsdp *d, uint32_t j, Point after)
{
    uint32_t n, unit = d->uses[j].unit;
    const uint32_t *block = unit_of(d, &unit, &n);
    if (d->live[unit] != NONE_U32)
        return;
    for (uint32_t i = 0; i < n; i++)
        gather_block(d, block[i], j, after);
    d->gathered[unit] = d->gathered[block[n - 1]];
}

/* Before the first use of what was gathered into a buffer. */
static void copy_out(Fsdp *d, uint32_t block, const Instance *like)
{
    if (d->flat[block] == NONE_U32)
        return;
    uint32_t i = unit_instance(d, copy_out_segment(d, block), block, like);
    d->role->instances[i].frame[SLOT_DATA] = d->flat[block];
    d->role->instances[i].frame[SLOT_PARAM] = d->live[block];
    wait_at(d->role, 0, d->gathered[block]);
    d->gathered[block] = (Point){ i, 0 };
    d->flat[block] = NONE_U32;
}

/* Is use j the last of its micro-batch's backward? */
static bool ends_micro_batch(const Fsdp *d, uint32_t j)
{
    const Instance *old = d->w.old.instances;
    const Use *use = &d->uses[j];
    if (sums_whole(d->b))
        return false; /* several are under way */
    return j + 1 == d->uses_n ||
           old[use[1].instance].micro_batch != old[use->instance].micro_batch;
}

static bool is_released_after(const Fsdp *d, uint32_t j)
{
    const Use *use = &d->uses[j];
    if (is_of_root(d, use->unit))
        return ends_micro_batch(d, j);
    if (!is_kept(d->b, use->unit))
        return true;
    return use->last || (use->backward && use->owner && d->b->s->parallel.pp == 1);
}

/* Are the gradients of the unit of use j complete after it, and to be reduced? */
static bool is_reduced_after(const Fsdp *d, uint32_t j)
{
    const Use *use = &d->uses[j];
    if (is_of_root(d, use->unit))
        return ends_micro_batch(d, j);
    return use->backward && use->owner && (!sums_whole(d->b) || use->last);
}

static Point add_release(Fsdp *d, uint32_t block, uint32_t frame, const Instance *like)
{
    UnitType *u = unit_type(d, block);
    if (u->release == NONE_U32)
        u->release = freeing_segment(d->b->g, "reshard unit", SLOT_PARAM,
                                     block_type(d->b, block)->param_layout);
    uint32_t i = unit_instance(d, u->release, block, like);
    d->role->instances[i].frame[SLOT_PARAM] = frame;
    return (Point){ i, 0 };
}

/* Is use j the last of a micro-batch's forward, or of its backward? */
static bool ends_pass(const Fsdp *d, uint32_t j)
{
    const Use *use = &d->uses[j];
    const Instance *old = d->w.old.instances;
    return j + 1 == d->uses_n || use[1].backward != use->backward ||
           old[use[1].instance].micro_batch != old[use->instance].micro_batch;
}

static void release_block(Fsdp *d, uint32_t block, uint32_t j, const Instance *like)
{
    if (d->b->s->parallel.limit_all_gathers) {
        d->retired[j] = add_release(d, block, d->live[block], like);
    } else {
        d->owed[d->owed_n] = block;
        d->owed_frame[d->owed_n++] = d->live[block];
    }
    d->live[block] = NONE_U32;
}

static void release(Fsdp *d, uint32_t j, const Instance *like)
{
    uint32_t n, unit = d->uses[j].unit;
    const uint32_t *block = unit_of(d, &unit, &n);
    d->retired[j] = j > 0 ? d->retired[j - 1] : NOWHERE; /* what is kept holds nobody up */
    for (uint32_t i = 0; i < n && is_released_after(d, j); i++)
        release_block(d, block[i], j, like);
    while (d->owed_n > 0 && ends_pass(d, j)) {
        d->owed_n--;
        add_release(d, d->owed[d->owed_n], d->owed_frame[d->owed_n], like);
    }
}

static void settle_one(Fsdp *d, const Pending *p, const Instance *like)
{
    UnitType *u = unit_type(d, p->block);
    if (u->retire == NONE_U32)
        u->retire =
            freeing_segment(d->b->g, "wait reduce-scatter", input_slot(u), u->input_layout);
    uint32_t i = unit_instance(d, u->retire, p->block, like);
    d->role->instances[i].frame[input_slot(u)] = p->frame;
    wait_at(d->role, 0, p->reduced);
}

/* Compute waits for the pending reduce-scatters; their inputs are freed. */
static void settle(Fsdp *d, const Instance *like)
{
    for (uint32_t i = 0; i < d->pending_n; i++)
        settle_one(d, &d->pending[i], like);
    d->pending_n = 0;
}

/* alone: nothing computes until it is done. */
static void reduce(Fsdp *d, uint32_t block, const Instance *like, bool alone)
{
    const UnitType *u = unit_type(d, block);
    uint32_t frame = d->grads[block];
    if (u->copies) {
        uint32_t copy = unit_instance(d, copy_in_segment(d, block), block, like);
        d->role->instances[copy].frame[SLOT_GRAD] = frame;
        frame = role_frame(d->role, (Frame){ u->input_layout, d->b->blocks[block].layer,
                                             like->micro_batch, false });
        d->role->instances[copy].frame[SLOT_DATA] = frame;
    }
    Point ready = newest_compute(d->b->g, d->role);
    uint32_t i =
        unit_instance(d, reduce_segment(d, block, d->reduced_once[block]), block, like);
    d->role->instances[i].frame[input_slot(u)] = frame;
    d->role->instances[i].frame[SLOT_GRAD_SHARD] = d->b->home[block].grad;
    wait_at(d->role, 0, ready);
    d->reduced_once[block] = true;
    d->grads[block] = NONE_U32;
    d->summed = last_op(d->b->g, d->role, i, sum_lane(d));
    d->pending[d->pending_n++] =
        (Pending){ block, frame, alone ? d->summed : (Point){ i, scatter_op(d) } };
}

/* ---- the walk ---- */

/* Is the gather for use j + 1 launched before use j is (explicitly), or after it? */
typedef enum When { BEFORE_USE, AFTER_USE, AFTER_RELEASE, ON_DEMAND } When;

static When gather_next_when(const Fsdp *d, uint32_t j)
{
    Prefetch prefetch = d->b->s->parallel.prefetch;
    if (!d->ahead || j + 1 == d->uses_n || ends_micro_batch(d, j))
        return ON_DEMAND; /* the root's forward gathers after what is computed */
    const Use *use = &d->uses[j], *next = &d->uses[j + 1];
    if (next->unit == use->unit)
        return AFTER_RELEASE;
    if (!next->backward)
        return prefetch == PREFETCH_BOTH ? BEFORE_USE : AFTER_USE;
    if (prefetch == PREFETCH_NONE)
        return ON_DEMAND;
    return use->backward ? BEFORE_USE : AFTER_USE;
}

static void bind_use(Fsdp *d, uint32_t i, const Use *use)
{
    Instance *at = &d->role->instances[i];
    uint32_t *grads = &d->grads[use->unit];
    at->frame[SLOT_PARAM] = d->live[use->unit];
    if (use->backward && *grads == NONE_U32)
        *grads = role_frame(d->role,
                            (Frame){ block_type(d->b, use->unit)->grad_layout,
                                     d->b->blocks[use->unit].layer, at->micro_batch, false });
    if (use->backward)
        at->frame[SLOT_GRAD] = *grads;
    wait_starts(d->role, &d->starts[at->segment], d->gathered[use->unit]);
}

static void weave_use(Fsdp *d, uint32_t j)
{
    const Use *use = &d->uses[j];
    const Instance *like = weave_next(&d->w);
    When when = gather_next_when(d, j);
    if (d->live[use->unit] == NONE_U32)
        gather(d, j, newest_compute(d->b->g, d->role));
    if (when == BEFORE_USE)
        gather(d, j + 1, NOWHERE);
    uint32_t n;
    const uint32_t *block = unit_of(d, &use->unit, &n);
    for (uint32_t i = 0; i < n; i++)
        copy_out(d, block[i], like);
    bind_use(d, weave_keep(&d->w), use);
    if (when == AFTER_USE)
        gather(d, j + 1, NOWHERE);
    release(d, j, like);
    if (when == AFTER_RELEASE)
        gather(d, j + 1, NOWHERE);
    if (!is_reduced_after(d, j))
        return;
    bool alone = !d->ahead || ends_micro_batch(d, j);
    settle(d, like);
    for (uint32_t i = 0; i < n; i++)
        reduce(d, block[i], like, alone);
    if (alone)
        settle(d, like);
}

static void list_uses(Fsdp *d)
{
    uint32_t n = d->role->instances_n;
    d->uses = PUSH_ARRAY(&d->scratch, Use, n);
    d->retired = PUSH_ARRAY(&d->scratch, Point, n);
    uint32_t *last = PUSH_ARRAY(&d->scratch, uint32_t, d->b->blocks_n);
    d->owed = PUSH_ARRAY(&d->scratch, uint32_t, n);
    d->owed_frame = PUSH_ARRAY(&d->scratch, uint32_t, n);
    d->uses_n = d->owed_n = 0;
    for (uint32_t i = 0; i < n; i++) {
        const Instance *at = &d->role->instances[i];
        uint32_t block = block_of(d->b, at);
        if (block == NONE_U32)
            continue;
        uint32_t unit = d->b->blocks[block].frame_of;
        if (block_type(d->b, unit)->elements == 0)
            continue;
        bool backward = d->b->g->segments[at->segment].kind == SEGMENT_BACKWARD;
        d->retired[d->uses_n] = NOWHERE;
        last[unit] = d->uses_n;
        d->uses[d->uses_n++] = (Use){ i, unit, backward, false, unit == block };
    }
    for (uint32_t j = 0; j < d->uses_n; j++)
        d->uses[j].last = last[d->uses[j].unit] == j;
}

static void start_role(Fsdp *d, uint32_t role)
{
    uint32_t n = d->b->blocks_n;
    d->role = &d->b->g->roles[role];
    d->live = PUSH_ARRAY(&d->scratch, uint32_t, n);
    d->flat = PUSH_ARRAY(&d->scratch, uint32_t, n);
    d->grads = PUSH_ARRAY(&d->scratch, uint32_t, n);
    d->gathered = PUSH_ARRAY(&d->scratch, Point, n);
    d->reduced_once = PUSH_ARRAY(&d->scratch, bool, n);
    for (uint32_t i = 0; i < n; i++) {
        d->live[i] = d->flat[i] = d->grads[i] = NONE_U32;
        d->gathered[i] = NOWHERE;
    }
    d->pending = PUSH_ARRAY(&d->scratch, Pending, n + 1);
    d->pending_n = 0;
    d->summed = NOWHERE;
    list_uses(d);
}

static void fsdp_role(Fsdp *d, uint32_t role)
{
    start_role(d, role);
    /* A use may have a gather, a copy of it, a release, and what reduces and frees gradients. */
    weave_begin(&d->w, d->b, d->role, 5 * d->uses_n);
    role_reserve(d->role, 0, 0, 4 * d->uses_n);
    for (uint32_t j = 0; j < d->uses_n; j++) {
        weave_keep_to(&d->w, d->uses[j].instance);
        weave_use(d, j);
    }
    weave_keep_to(&d->w, d->w.old.instances_n);
    if (d->uses_n > 0)
        settle(d, &d->w.old.instances[d->uses[d->uses_n - 1].instance]);
    weave_end(&d->w);
    finish_role(&d->finish, role, d->summed);
    arena_free(&d->scratch);
}

static void list_root(Fsdp *d)
{
    const Build *b = d->b;
    d->root = PUSH_ARRAY(&d->b->arena, uint32_t, b->blocks_n + 1);
    for (uint32_t i = 0; i < b->blocks_n && b->sw->root_unit && !sums_whole(b); i++)
        if (b->blocks[i].kind != BLOCK_LAYER && b->blocks[i].frame_of == i &&
            block_type(b, i)->elements > 0)
            d->root[d->root_n++] = i;
}

bool pass_fsdp(Build *b, Err *err)
{
    if (!shards_params(&b->s->parallel))
        return pass_single(b, err);
    Fsdp d = { .b = b, .ahead = overlaps(b, DIM_DP) };
    d.ranks_n = group_size(&b->g->groups[share_group(b)]);
    d.replicas = b->group[GROUP_DP_REPLICATE];
    d.starts = all_starts(b);
    list_root(&d);
    d.types = PUSH_ARRAY(&b->arena, UnitType, b->types_n);
    Owned *owned = owned_by_share(b, SHARE_ALL);
    for (uint32_t i = 0; i < b->types_n; i++) {
        d.types[i] = start_type(b, &b->types[i], &owned[i]);
        if (b->types[i].elements == 0)
            continue;
        set_class(b->g, b->types[i].param_layout, TENSOR_BUFFER); /* gathered */
        if (b->sw->gather_copies)
            add_flat(&d, &d.types[i], &owned[i]);
    }
    finish_begin(&d.finish, b, owned, SHARE_ALL, 0);
    share_homes(b, owned, SHARE_ALL);
    for (uint32_t role = 0; role < b->g->roles_n; role++)
        fsdp_role(&d, role);
    return true;
}

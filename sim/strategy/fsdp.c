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
 * stream has it.  One unit's reduce-scatter may be pending: after the next backward,
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
 * EXPERTS that ep shares out are a unit inside their layer's, as torchtitan wraps them
 * (apply_fsdp: fully_shard(moe.experts) on the mesh "efsdp"): sharded over the ranks that hold the
 * same ones, gathered behind the rest of their layer and reduced before it:
 *
 *     gather   [G1][G1 experts]          [G2][G2 experts] ...
 *     compute         [F0 .......]             [F1 .....]
 *     reduce                       ...  [RS2 experts][RS2]
 *
 * Where no other rank holds the same, their shards are whole: compute copies them to where they
 * are used, cast to what kernels read, and their gradients are copied back in place of the
 * reduce-scatter; nothing is sent.  So FSDP2 does in a group of one (FSDPParamGroup's
 * wait_for_unshard, foreach_reduce).  A layer's gradients are reduced after all of its backward,
 * where FSDP2 begins with those of experts when they are there.
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
#include <string.h>

/* Parameters of a block that are gathered by one collective. */
typedef enum Part { PART_DENSE, PART_EXPERTS, PART_N } Part;

/* One part of the units of one type.  Layouts have all tensors of the block, of which this part's
 * are used.  Segments are NONE_U32 until first used. */
typedef struct UnitType {
    const BlockType *of;
    Part part;
    uint64_t elements;       /* of all tensors; 0: there is no such part */
    uint64_t owned;          /* of this rank's shards */
    uint32_t group, ranks_n; /* that share them out; NONE_U32, 1: this rank has all */
    uint32_t gather, copy_out, copy_in, reduce, reduce_more, retire;
    uint32_t release;      /* PART_DENSE: of the whole block */
    uint32_t cast_layout;  /* shards as they are gathered; NONE_U32: as they are kept */
    uint32_t flat_layout;  /* what is gathered; NONE_U32: the parameters themselves */
    uint32_t input_layout; /* what is reduce-scattered: gradients, or a copy in reduce_dtype */
    bool copies;
} UnitType;

typedef UnitType UnitParts[PART_N];
typedef uint32_t FrameParts[PART_N];
typedef Point PointParts[PART_N];

/* A forward or backward of a block that reads a unit; units are named by their block. */
typedef struct Use {
    uint32_t instance; /* before weaving */
    uint32_t unit;
    bool backward, last; /* last: of its unit in the role */
    bool owner;          /* its gradients are final after this, not after another block */
} Use;

typedef struct Pending {
    uint32_t block, frame;
    Part part;
    Point reduced;
} Pending;

typedef struct Fsdp {
    Build *b;
    Finish finish;
    UnitParts *types;
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
    Point *retired;       /* by use: where it, or the last before it that was, was released */
    uint32_t *live;       /* by block: frame of the gathered parameters */
    FrameParts *uncopied; /* by block: frame that compute copies them from; NONE_U32 */
    PointParts *gathered; /* by block */
    uint32_t owed_n;      /* units whose release waits for the end of the pass, */
    uint32_t *owed, *owed_frame; /* their blocks, and what was gathered */
    uint32_t *grads;             /* by block: frame of the whole gradients being summed */
    bool *reduced_once;          /* by block */
    uint32_t pending_n;
    Pending *pending; /* by when they were launched: those of one unit */
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

static UnitType *unit_type(const Fsdp *d, uint32_t block, Part part)
{
    return &d->types[d->b->blocks[block].type][part];
}

static bool has_part(const Fsdp *d, uint32_t block, Part part)
{
    return unit_type(d, block, part)->elements > 0;
}

static bool is_alone(const UnitType *u)
{
    return u->ranks_n == 1;
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

/* Is a tensor of the block's layouts one of this part? */
static bool has_tensor(const UnitType *u, uint32_t tensor)
{
    ASSERT(tensor < u->of->params_n && u->of->params[tensor].tensor == tensor);
    return u->of->params[tensor].expert == (u->part == PART_EXPERTS);
}

static uint64_t part_bytes(const Graph *g, const UnitType *u, uint32_t layout)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < u->of->params_n; i++)
        bytes += has_tensor(u, i) ? layout_tensor(g, layout, i)->bytes : 0;
    return bytes;
}

/* Of the layout's tensors in the block; all of a part are of one format. */
static DType part_dtype(const Graph *g, const UnitType *u, uint32_t layout)
{
    uint32_t i = 0;
    while (!has_tensor(u, i))
        i++;
    return layout_tensor(g, layout, i)->dtype;
}

/* The newest op touches the part's tensors of a slot, which begin at `first`. */
static void part_args_from(Graph *g, const UnitType *u, Slot slot, uint32_t first, ArgMode mode,
                           bool born, bool dies)
{
    for (uint32_t i = 0; i < u->of->params_n; i++)
        if (has_tensor(u, i))
            graph_arg(g, slot, first + i, mode, born, dies);
}

static void part_args(Graph *g, const UnitType *u, Slot slot, ArgMode mode, bool born,
                      bool dies)
{
    part_args_from(g, u, slot, 0, mode, born, dies);
}

static bool needs_copy(const Build *b, const UnitType *u)
{
    if (b->sw->reduce_copies)
        return true;
    for (uint32_t i = 0; i < u->of->params_n; i++)
        if (has_tensor(u, i) &&
            layout_tensor(b->g, u->of->grad_layout, i)->dtype != build_formats(b).reduce)
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

/* What is gathered lies in one buffer until it is copied out. */
static void add_flat(Graph *g, UnitType *u, const Owned *o)
{
    uint32_t from = u->cast_layout != NONE_U32 ? u->cast_layout : o->param_layout;
    u->flat_layout = graph_layout(g);
    graph_tensor(g, (Tensor){ .name = intern(&g->names, "gathered unit"),
                              .class_ = TENSOR_BUFFER,
                              .dtype = part_dtype(g, u, from),
                              .bytes = part_bytes(g, u, from) * u->ranks_n });
}

static void add_layouts(Build *b, UnitType *u, const Owned *o)
{
    DType read = part_dtype(b->g, u, u->of->param_layout);
    if (read != build_formats(b).param && !is_alone(u))
        u->cast_layout = copy_layout(b->g, o->param_layout, read);
    u->copies = needs_copy(b, u);
    u->input_layout = u->copies ? copy_layout(b->g, u->of->grad_layout, build_formats(b).reduce)
                                : u->of->grad_layout;
}

static UnitType start_type(Build *b, const BlockType *t, const Owned *o, Part part)
{
    UnitType u = { .of = t, .part = part, .group = NONE_U32 };
    u.gather = u.copy_out = u.copy_in = u.reduce = u.reduce_more = u.retire = u.release =
        NONE_U32;
    u.cast_layout = u.flat_layout = u.input_layout = NONE_U32;
    for (uint32_t i = 0; i < t->params_n; i++) {
        if (!has_tensor(&u, i))
            continue;
        u.elements += t->params[i].elements;
        u.owned += o->elements[i];
        u.group = param_group(b, &t->params[i]);
    }
    u.ranks_n = group_ranks(b, u.group);
    if (u.elements > 0)
        add_layouts(b, &u, o);
    return u;
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

/* What is done for experts carries a name of its own in timelines. */
static const char *unit_name(const UnitType *u, const char *name)
{
    static const char *const experts[][2] = {
        { "all-gather unit", "all-gather experts" },
        { "all-gather copy-out", "all-gather experts copy-out" },
        { "reduce-scatter copy-in", "reduce-scatter experts copy-in" },
        { "reduce-scatter unit", "reduce-scatter experts" },
    };
    for (size_t i = 0; u->part == PART_EXPERTS && i < ARRAY_N(experts); i++)
        if (strcmp(name, experts[i][0]) == 0)
            return experts[i][1];
    return name;
}

static uint32_t gather_segment(Fsdp *d, UnitType *u, const Owned *o)
{
    if (u->gather != NONE_U32)
        return u->gather;
    Graph *g = d->b->g;
    uint32_t whole = u->of->param_layout;
    bool casts = u->cast_layout != NONE_U32, flat = u->flat_layout != NONE_U32;
    uint32_t from = casts ? u->cast_layout : o->param_layout;
    u->gather = graph_segment(g, SEGMENT_GATHER, unit_name(u, "all-gather unit"));
    uint32_t *layout = g->segments[u->gather].layout;
    layout[SLOT_SHARD] = o->param_layout;
    layout[gathered_slot(u)] = flat ? u->flat_layout : whole;
    layout[SLOT_LOCAL] = u->cast_layout;
    Op op = { .phase = PHASE_FORWARD, .dtype = part_dtype(g, u, whole), .lane = LANE_GATHER };
    if (casts) {
        op.kind = OP_CAST;
        op.name = intern(&g->names, "all-gather copy-in");
        op.u.elements = u->owned;
        op.read_bytes = part_bytes(g, u, o->param_layout);
        op.write_bytes = part_bytes(g, u, from);
        graph_op(g, op);
        part_args(g, u, SLOT_SHARD, ARG_READ, false, false);
        part_args(g, u, SLOT_LOCAL, ARG_WRITE, true, false);
        op.logical = 1;
    }
    op.kind = OP_ALL_GATHER;
    op.name = g->segments[u->gather].name;
    op.read_bytes = op.write_bytes = 0;
    op.u.comm = (CommShape){ .bytes = part_bytes(g, u, from) * u->ranks_n, .group = u->group };
    graph_op(g, op);
    part_args(g, u, casts ? SLOT_LOCAL : SLOT_SHARD, ARG_READ, false, casts);
    if (flat)
        graph_arg(g, SLOT_DATA, 0, ARG_WRITE, true, false);
    else
        part_args(g, u, SLOT_PARAM, ARG_WRITE, true, false);
    return u->gather;
}

/* Out of the buffer, which dies; or out of shards that are whole. */
static uint32_t copy_out_segment(Fsdp *d, UnitType *u, const Owned *o)
{
    if (u->copy_out != NONE_U32)
        return u->copy_out;
    Graph *g = d->b->g;
    uint32_t to = u->of->param_layout, from = is_alone(u) ? o->param_layout : to;
    DType read = part_dtype(g, u, to);
    Op op = { .kind = part_dtype(g, u, from) == read ? OP_COPY : OP_CAST,
              .phase = PHASE_FORWARD,
              .dtype = read,
              .lane = LANE_COMPUTE,
              .u.elements = u->elements,
              .read_bytes = part_bytes(g, u, from),
              .write_bytes = part_bytes(g, u, to) };
    u->copy_out = start_segment(g, SEGMENT_GATHER, unit_name(u, "all-gather copy-out"), op);
    uint32_t *layout = g->segments[u->copy_out].layout;
    layout[SLOT_PARAM] = to;
    if (is_alone(u)) {
        layout[SLOT_SHARD] = from;
        part_args(g, u, SLOT_SHARD, ARG_READ, false, false);
    } else {
        layout[SLOT_DATA] = u->flat_layout;
        graph_arg(g, SLOT_DATA, 0, ARG_READ, false, true);
    }
    part_args(g, u, SLOT_PARAM, ARG_WRITE, true, false);
    return u->copy_out;
}

/* An op that does nothing but free what its arguments will say. */
static uint32_t freeing_segment(Graph *g, const char *name, Slot slot, uint32_t layout)
{
    Op op = { .kind = OP_RELEASE, .phase = PHASE_UPDATE, .lane = LANE_COMPUTE };
    uint32_t s = start_segment(g, SEGMENT_OTHER, name, op);
    g->segments[s].layout[slot] = layout;
    return s;
}

static uint32_t copy_in_segment(Fsdp *d, UnitType *u)
{
    if (u->copy_in != NONE_U32)
        return u->copy_in;
    Graph *g = d->b->g;
    uint32_t from = u->of->grad_layout;
    DType sums = build_formats(d->b).reduce;
    Op op = { .kind = part_dtype(g, u, from) == sums ? OP_COPY : OP_CAST,
              .phase = PHASE_UPDATE,
              .dtype = sums,
              .lane = LANE_COMPUTE,
              .u.elements = u->elements,
              .read_bytes = part_bytes(g, u, from),
              .write_bytes = part_bytes(g, u, u->input_layout) };
    u->copy_in = start_segment(g, SEGMENT_REDUCE, unit_name(u, "reduce-scatter copy-in"), op);
    uint32_t *layout = g->segments[u->copy_in].layout;
    layout[SLOT_GRAD] = from;
    layout[SLOT_DATA] = u->input_layout;
    part_args(g, u, SLOT_GRAD, ARG_READ, false, true);
    part_args(g, u, SLOT_DATA, ARG_WRITE, true, false);
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
    uint64_t bytes;     /* of this part's */
    bool more, casts;
} Scatter;

static Scatter scatter_of(Fsdp *d, const UnitType *u, const Owned *o, bool more)
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
    s.bytes = part_bytes(g, u, s.layout);
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
static void divide_grads(const Fsdp *d, const UnitType *u)
{
    Graph *g = d->b->g;
    uint64_t bytes = part_bytes(g, u, u->input_layout);
    graph_op(g, (Op){ .kind = OP_SCALE,
                      .phase = PHASE_UPDATE,
                      .dtype = build_formats(d->b).reduce,
                      .lane = LANE_REDUCE,
                      .name = intern(&g->names, "divide gradients"),
                      .u.elements = u->elements,
                      .read_bytes = bytes,
                      .write_bytes = bytes });
    part_args(g, u, input_slot(u), ARG_UPDATE, false, false);
}

/* hsdp: what the segment scattered is summed over the replicas. */
static void reduce_replicas(const Fsdp *d, const UnitType *u, const Scatter *how)
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
    part_args(g, u, how->slot, ARG_UPDATE, false, false);
    graph_dep(g, scatter_op(d));
}

static void shard_op(const Fsdp *d, const UnitType *u, const Owned *o, OpKind kind,
                     const char *name, uint64_t from)
{
    Graph *g = d->b->g;
    const Segment *s = &g->segments[g->segments_n - 1];
    uint64_t to = part_bytes(g, u, o->grad_layout);
    graph_op(g, (Op){ .kind = kind,
                      .phase = PHASE_UPDATE,
                      .dtype = build_formats(d->b).shard,
                      .lane = sum_lane(d),
                      .name = intern(&g->names, name),
                      .logical = s->op_n,
                      .u.elements = u->owned,
                      .flops = kind == OP_ADD ? (double)u->owned : 0,
                      .read_bytes = from + (kind == OP_ADD ? to : 0),
                      .write_bytes = to });
}

static void cast_sum(const Fsdp *d, const UnitType *u, const Owned *o, const Scatter *how)
{
    Graph *g = d->b->g;
    shard_op(d, u, o, OP_CAST, "cast gradient shards", how->bytes);
    part_args(g, u, SLOT_LOCAL, ARG_READ, false, true);
    if (how->more)
        part_args_from(g, u, SLOT_LOCAL, how->n, ARG_WRITE, true, false);
    else
        part_args(g, u, SLOT_GRAD_SHARD, ARG_WRITE, !d->b->sw->grads_persist, false);
}

static void add_sum(const Fsdp *d, const UnitType *u, const Owned *o, const Scatter *how)
{
    Graph *g = d->b->g;
    shard_op(d, u, o, OP_ADD, "add gradient shards", part_bytes(g, u, o->grad_layout));
    part_args(g, u, SLOT_GRAD_SHARD, ARG_UPDATE, false, false);
    part_args_from(g, u, SLOT_LOCAL, how->casts ? how->n : 0, ARG_READ, false, true);
}

/* Copied where nobody else has the same. */
static Op scattering_op(const Fsdp *d, const UnitType *u, const Scatter *how)
{
    Op op = { .kind = OP_REDUCE_SCATTER,
              .phase = PHASE_UPDATE,
              .dtype = build_formats(d->b).reduce,
              .lane = LANE_REDUCE,
              .logical = scatter_op(d),
              .u.comm = { .bytes = how->bytes * u->ranks_n, .group = u->group } };
    if (is_alone(u)) {
        op.kind = OP_COPY;
        op.u.elements = u->elements;
        op.read_bytes = op.write_bytes = how->bytes;
    }
    return op;
}

/* The first of a step writes the gradient's shard; later ones (more) add to it. */
static uint32_t make_reduce(Fsdp *d, const UnitType *u, const Owned *o, bool more)
{
    Graph *g = d->b->g;
    Scatter how = scatter_of(d, u, o, more);
    Op op = scattering_op(d, u, &how);
    uint32_t s = graph_segment(g, SEGMENT_REDUCE, unit_name(u, "reduce-scatter unit"));
    uint32_t *layout = g->segments[s].layout;
    layout[input_slot(u)] = u->input_layout;
    layout[SLOT_GRAD_SHARD] = o->grad_layout;
    layout[how.slot] = how.layout;
    if (d->b->sw->divides_grads)
        divide_grads(d, u);
    op.name = g->segments[s].name;
    graph_op(g, op);
    part_args(g, u, input_slot(u), ARG_READ, false, false);
    bool born = how.slot == SLOT_LOCAL || !d->b->sw->grads_persist;
    part_args(g, u, how.slot, ARG_WRITE, born, false);
    reduce_replicas(d, u, &how);
    if (how.casts)
        cast_sum(d, u, o, &how);
    if (more)
        add_sum(d, u, o, &how);
    return s;
}

static uint32_t reduce_segment(Fsdp *d, UnitType *u, const Owned *o, bool more)
{
    uint32_t *s = more ? &u->reduce_more : &u->reduce;
    if (*s == NONE_U32)
        *s = make_reduce(d, u, o, more);
    return *s;
}

/* ---- instances ---- */

static uint32_t unit_instance(const Fsdp *d, uint32_t segment, uint32_t block,
                              const Instance *like)
{
    return role_instance(d->role, segment, like->micro_batch, d->b->blocks[block].layer,
                         like->chunk);
}

/* Returns where it is gathered; NOWHERE where there is nothing to gather. */
static Point gather_part(Fsdp *d, uint32_t block, Part part, uint32_t j, Point after)
{
    const Instance *like = &d->w.old.instances[d->uses[j].instance];
    UnitType *u = unit_type(d, block, part);
    if (is_alone(u)) {
        d->uncopied[block][part] = d->b->home[block].param;
        return d->gathered[block][part] = NOWHERE;
    }
    uint32_t segment = gather_segment(d, u, shards_of(d, block));
    uint32_t i = unit_instance(d, segment, block, like);
    d->role->instances[i].frame[SLOT_SHARD] = d->b->home[block].param;
    uint32_t gathered = d->live[block];
    if (u->flat_layout != NONE_U32) {
        Frame frame = { u->flat_layout, d->b->blocks[block].layer, like->micro_batch, false };
        gathered = d->uncopied[block][part] = role_frame(d->role, frame);
    }
    d->role->instances[i].frame[gathered_slot(u)] = gathered;
    wait_at(d->role, 0, after);
    if (j >= 2 && d->b->s->parallel.limit_all_gathers)
        wait_at(d->role, 0, d->retired[j - 2]);
    Point at = { i, d->b->g->segments[segment].op_n - 1 };
    return d->gathered[block][part] = at;
}

/* Returns where the last of it is gathered. */
static Point gather_block(Fsdp *d, uint32_t block, uint32_t j, Point after)
{
    Frame frame = { block_type(d->b, block)->param_layout, d->b->blocks[block].layer,
                    d->w.old.instances[d->uses[j].instance].micro_batch, false };
    Point last = NOWHERE;
    d->live[block] = role_frame(d->role, frame);
    for (int part = 0; part < PART_N; part++) {
        if (!has_part(d, block, (Part)part))
            continue;
        Point at = gather_part(d, block, (Part)part, j, after);
        last = point_is(at) ? at : last;
    }
    return last;
}

/* Gathers what use j needs, unless it is there. */
static void gather(Fsdp *d, uint32_t j, Point after)
{
    uint32_t n, unit = d->uses[j].unit;
    const uint32_t *block = unit_of(d, &unit, &n);
    Point last = NOWHERE;
    if (d->live[unit] != NONE_U32)
        return;
    for (uint32_t i = 0; i < n; i++)
        last = gather_block(d, block[i], j, after);
    if (n > 1)
        d->gathered[unit][PART_DENSE] = last;
}

/* Before the first use of what was gathered into a buffer, or of shards that are whole. */
static void copy_out(Fsdp *d, uint32_t block, Part part, const Instance *like)
{
    uint32_t *from = &d->uncopied[block][part];
    if (*from == NONE_U32)
        return;
    UnitType *u = unit_type(d, block, part);
    uint32_t i = unit_instance(d, copy_out_segment(d, u, shards_of(d, block)), block, like);
    d->role->instances[i].frame[is_alone(u) ? SLOT_SHARD : SLOT_DATA] = *from;
    d->role->instances[i].frame[SLOT_PARAM] = d->live[block];
    wait_at(d->role, 0, d->gathered[block][part]);
    d->gathered[block][part] = (Point){ i, 0 };
    *from = NONE_U32;
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
    UnitType *u = unit_type(d, block, PART_DENSE);
    if (u->release == NONE_U32) {
        u->release = freeing_segment(d->b->g, "reshard unit", SLOT_PARAM, u->of->param_layout);
        arg_each(d->b->g, SLOT_PARAM, u->of->param_layout, ARG_READ, false, true);
    }
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
    UnitType *u = unit_type(d, p->block, p->part);
    if (u->retire == NONE_U32) {
        u->retire =
            freeing_segment(d->b->g, "wait reduce-scatter", input_slot(u), u->input_layout);
        part_args(d->b->g, u, input_slot(u), ARG_READ, false, true);
    }
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
static void reduce_part(Fsdp *d, uint32_t block, Part part, const Instance *like, bool alone)
{
    UnitType *u = unit_type(d, block, part);
    uint32_t frame = d->grads[block];
    if (u->copies) {
        uint32_t copy = unit_instance(d, copy_in_segment(d, u), block, like);
        d->role->instances[copy].frame[SLOT_GRAD] = frame;
        frame = role_frame(d->role, (Frame){ u->input_layout, d->b->blocks[block].layer,
                                             like->micro_batch, false });
        d->role->instances[copy].frame[SLOT_DATA] = frame;
    }
    Point ready = newest_compute(d->b->g, d->role);
    uint32_t segment = reduce_segment(d, u, shards_of(d, block), d->reduced_once[block]);
    uint32_t i = unit_instance(d, segment, block, like);
    d->role->instances[i].frame[input_slot(u)] = frame;
    d->role->instances[i].frame[SLOT_GRAD_SHARD] = d->b->home[block].grad;
    wait_at(d->role, 0, ready);
    d->summed = last_op(d->b->g, d->role, i, sum_lane(d));
    d->pending[d->pending_n++] =
        (Pending){ block, frame, part, alone ? d->summed : (Point){ i, scatter_op(d) } };
}

static void reduce(Fsdp *d, uint32_t block, const Instance *like, bool alone)
{
    if (has_part(d, block, PART_EXPERTS))
        reduce_part(d, block, PART_EXPERTS, like, alone);
    reduce_part(d, block, PART_DENSE, like, alone);
    d->reduced_once[block] = true;
    d->grads[block] = NONE_U32;
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
    for (int part = 0; part < PART_N; part++)
        wait_starts(d->role, &d->starts[at->segment], d->gathered[use->unit][part]);
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
    for (uint32_t i = 0; i < PART_N * n; i++)
        copy_out(d, block[i / PART_N], (Part)(i % PART_N), like);
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
    d->uncopied = PUSH_ARRAY(&d->scratch, FrameParts, n);
    d->grads = PUSH_ARRAY(&d->scratch, uint32_t, n);
    d->gathered = PUSH_ARRAY(&d->scratch, PointParts, n);
    d->reduced_once = PUSH_ARRAY(&d->scratch, bool, n);
    for (uint32_t i = 0; i < n; i++) {
        d->live[i] = d->grads[i] = NONE_U32;
        for (int part = 0; part < PART_N; part++) {
            d->uncopied[i][part] = NONE_U32;
            d->gathered[i][part] = NOWHERE;
        }
    }
    d->pending = PUSH_ARRAY(&d->scratch, Pending, PART_N * n + 1);
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

static void start_types(Fsdp *d, const Owned *owned)
{
    Build *b = d->b;
    d->types = PUSH_ARRAY(&b->arena, UnitParts, b->types_n);
    for (uint32_t i = 0; i < b->types_n; i++) {
        for (int part = 0; part < PART_N; part++) {
            UnitType *u = &d->types[i][part];
            *u = start_type(b, &b->types[i], &owned[i], (Part)part);
            if (b->sw->gather_copies && u->elements > 0 && !is_alone(u))
                add_flat(b->g, u, &owned[i]);
        }
        if (b->types[i].elements > 0)
            set_class(b->g, b->types[i].param_layout, TENSOR_BUFFER); /* gathered */
    }
}

bool pass_fsdp(Build *b, Err *err)
{
    if (!shards_params(&b->s->parallel))
        return pass_single(b, err);
    Fsdp d = { .b = b, .ahead = overlaps(b, DIM_DP) };
    d.replicas = b->group[GROUP_DP_REPLICATE];
    d.starts = all_starts(b);
    list_root(&d);
    Owned *owned = owned_by_share(b, SHARE_ALL);
    start_types(&d, owned);
    finish_begin(&d.finish, b, owned, SHARE_ALL, 0);
    share_homes(b, owned, SHARE_ALL);
    for (uint32_t role = 0; role < b->g->roles_n; role++)
        fsdp_role(&d, role);
    return true;
}

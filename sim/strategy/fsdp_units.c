/*
 * fsdp_units.c - tensors and segments; see fsdp_units.h.
 */
#include "sim/strategy/fsdp_units.h"

#include <string.h>

/* ---- tensors ---- */

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

/* What is read in fp8 travels so; where it arrives it is counted in 16 bits all the same. */
static void narrow_quantized(const Build *b, const UnitType *u)
{
    const Software *sw = b->sw;
    if (!sw->fp8_param_gather || !sw->f32_params || b->s->training.precision != DTYPE_FP8)
        return;
    Tensor *t = b->g->tensors + b->g->layouts[u->cast_layout].tensor_first;
    for (uint32_t i = 0; i < u->of->params_n; i++)
        if (u->of->params[i].quantized) {
            t[i].bytes = t[i].bytes / dtype_bytes(t[i].dtype) * dtype_bytes(DTYPE_FP8);
            t[i].dtype = DTYPE_FP8;
        }
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
    if (read != build_formats(b).param && !unit_is_alone(u)) {
        u->cast_layout = copy_layout(b->g, o->param_layout, read);
        narrow_quantized(b, u);
    }
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

UnitParts *unit_types(Build *b, const Owned *owned)
{
    UnitParts *types = PUSH_ARRAY(&b->arena, UnitParts, b->types_n);
    for (uint32_t i = 0; i < b->types_n; i++) {
        for (int part = 0; part < PART_N; part++) {
            UnitType *u = &types[i][part];
            *u = start_type(b, &b->types[i], &owned[i], (Part)part);
            if (b->sw->gather_copies && u->elements > 0 && !unit_is_alone(u))
                add_flat(b->g, u, &owned[i]);
        }
        if (b->types[i].elements > 0)
            set_class(b->g, b->types[i].param_layout, TENSOR_BUFFER); /* gathered */
    }
    return types;
}

/* ---- segments ---- */

static uint32_t start_segment(Graph *g, SegmentKind kind, const char *name, Op op)
{
    uint32_t s = graph_segment(g, kind, name);
    op.name = intern(&g->names, name);
    graph_op(g, op);
    return s;
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

/* All of the part, between layouts of perhaps two formats. */
static Op copy_op(const Graph *g, const UnitType *u, OpPhase phase, uint32_t from, uint32_t to)
{
    DType made = part_dtype(g, u, to);
    return (Op){ .kind = part_dtype(g, u, from) == made ? OP_COPY : OP_CAST,
                 .phase = phase,
                 .dtype = made,
                 .lane = LANE_COMPUTE,
                 .u.elements = u->elements,
                 .read_bytes = part_bytes(g, u, from),
                 .write_bytes = part_bytes(g, u, to) };
}

uint32_t unit_gather(Build *b, UnitType *u, const Owned *o)
{
    if (u->gather != NONE_U32)
        return u->gather;
    Graph *g = b->g;
    uint32_t whole = u->of->param_layout;
    bool casts = u->cast_layout != NONE_U32, flat = u->flat_layout != NONE_U32;
    uint32_t from = casts ? u->cast_layout : o->param_layout;
    u->gather = graph_segment(g, SEGMENT_GATHER, unit_name(u, "all-gather unit"));
    uint32_t *layout = g->segments[u->gather].layout;
    layout[SLOT_SHARD] = o->param_layout;
    layout[unit_gathered_slot(u)] = flat ? u->flat_layout : whole;
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

uint32_t unit_copy_out(Build *b, UnitType *u, const Owned *o)
{
    if (u->copy_out != NONE_U32)
        return u->copy_out;
    Graph *g = b->g;
    uint32_t to = u->of->param_layout, from = unit_is_alone(u) ? o->param_layout : to;
    u->copy_out = start_segment(g, SEGMENT_GATHER, unit_name(u, "all-gather copy-out"),
                                copy_op(g, u, PHASE_FORWARD, from, to));
    uint32_t *layout = g->segments[u->copy_out].layout;
    layout[SLOT_PARAM] = to;
    if (unit_is_alone(u)) {
        layout[SLOT_SHARD] = from;
        part_args(g, u, SLOT_SHARD, ARG_READ, false, false);
    } else {
        layout[SLOT_DATA] = u->flat_layout;
        graph_arg(g, SLOT_DATA, 0, ARG_READ, false, true);
    }
    part_args(g, u, SLOT_PARAM, ARG_WRITE, true, false);
    return u->copy_out;
}

uint32_t unit_release(Build *b, UnitType *u)
{
    uint32_t layout = u->of->param_layout;
    if (u->release == NONE_U32) {
        u->release = idle_segment(b->g, "reshard unit", PHASE_UPDATE, SLOT_PARAM, layout);
        arg_each(b->g, SLOT_PARAM, layout, ARG_READ, false, true);
    }
    return u->release;
}

uint32_t unit_retire(Build *b, UnitType *u)
{
    Slot slot = unit_input_slot(u);
    if (u->retire == NONE_U32) {
        u->retire =
            idle_segment(b->g, "wait reduce-scatter", PHASE_UPDATE, slot, u->input_layout);
        part_args(b->g, u, slot, ARG_READ, false, true);
    }
    return u->retire;
}

uint32_t unit_copy_in(Build *b, UnitType *u)
{
    if (u->copy_in != NONE_U32)
        return u->copy_in;
    Graph *g = b->g;
    uint32_t from = u->of->grad_layout;
    u->copy_in = start_segment(g, SEGMENT_REDUCE, unit_name(u, "reduce-scatter copy-in"),
                               copy_op(g, u, PHASE_UPDATE, from, u->input_layout));
    uint32_t *layout = g->segments[u->copy_in].layout;
    layout[SLOT_GRAD] = from;
    layout[SLOT_DATA] = u->input_layout;
    part_args(g, u, SLOT_GRAD, ARG_READ, false, true);
    part_args(g, u, SLOT_DATA, ARG_WRITE, true, false);
    return u->copy_in;
}

Lane unit_sum_lane(const Build *b)
{
    return b->group[GROUP_DP_REPLICATE] == NONE_U32 ? LANE_REDUCE : LANE_REPLICATE;
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

static Scatter scatter_of(Build *b, const UnitType *u, const Owned *o, bool more)
{
    Graph *g = b->g;
    Formats f = build_formats(b);
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

uint32_t unit_scatter_op(const Build *b)
{
    return b->sw->divides_grads ? 1 : 0;
}

/* By a part of the ranks before, so that sums of 16 bits stay in range; by the rest behind, where
 * it is little. */
static void divide_grads(const Build *b, const UnitType *u)
{
    Graph *g = b->g;
    uint64_t bytes = part_bytes(g, u, u->input_layout);
    graph_op(g, (Op){ .kind = OP_SCALE,
                      .phase = PHASE_UPDATE,
                      .dtype = build_formats(b).reduce,
                      .lane = LANE_REDUCE,
                      .name = intern(&g->names, "divide gradients"),
                      .u.elements = u->elements,
                      .read_bytes = bytes,
                      .write_bytes = bytes });
    part_args(g, u, unit_input_slot(u), ARG_UPDATE, false, false);
}

/* hsdp: what the segment scattered is summed over the replicas. */
static void reduce_replicas(const Build *b, const UnitType *u, const Scatter *how)
{
    Graph *g = b->g;
    if (b->group[GROUP_DP_REPLICATE] == NONE_U32)
        return;
    graph_op(g,
             (Op){ .kind = OP_ALL_REDUCE,
                   .phase = PHASE_UPDATE,
                   .dtype = build_formats(b).reduce,
                   .lane = LANE_REPLICATE,
                   .name = intern(&g->names, "all-reduce gradient shards"),
                   .logical = unit_scatter_op(b) + 1,
                   .u.comm = { .bytes = how->bytes, .group = b->group[GROUP_DP_REPLICATE] } });
    part_args(g, u, how->slot, ARG_UPDATE, false, false);
    graph_dep(g, unit_scatter_op(b));
}

static void shard_op(const Build *b, const UnitType *u, const Owned *o, OpKind kind,
                     const char *name, uint64_t from)
{
    Graph *g = b->g;
    const Segment *s = &g->segments[g->segments_n - 1];
    uint64_t to = part_bytes(g, u, o->grad_layout);
    graph_op(g, (Op){ .kind = kind,
                      .phase = PHASE_UPDATE,
                      .dtype = build_formats(b).shard,
                      .lane = unit_sum_lane(b),
                      .name = intern(&g->names, name),
                      .logical = s->op_n,
                      .u.elements = u->owned,
                      .flops = kind == OP_ADD ? (double)u->owned : 0,
                      .read_bytes = from + (kind == OP_ADD ? to : 0),
                      .write_bytes = to });
}

static void cast_sum(const Build *b, const UnitType *u, const Owned *o, const Scatter *how)
{
    Graph *g = b->g;
    shard_op(b, u, o, OP_CAST, "cast gradient shards", how->bytes);
    part_args(g, u, SLOT_LOCAL, ARG_READ, false, true);
    if (how->more)
        part_args_from(g, u, SLOT_LOCAL, how->n, ARG_WRITE, true, false);
    else
        part_args(g, u, SLOT_GRAD_SHARD, ARG_WRITE, !b->sw->grads_persist, false);
}

static void add_sum(const Build *b, const UnitType *u, const Owned *o, const Scatter *how)
{
    Graph *g = b->g;
    shard_op(b, u, o, OP_ADD, "add gradient shards", part_bytes(g, u, o->grad_layout));
    part_args(g, u, SLOT_GRAD_SHARD, ARG_UPDATE, false, false);
    part_args_from(g, u, SLOT_LOCAL, how->casts ? how->n : 0, ARG_READ, false, true);
}

/* Copied where nobody else has the same. */
static Op scattering_op(const Build *b, const UnitType *u, const Scatter *how)
{
    Op op = { .kind = OP_REDUCE_SCATTER,
              .phase = PHASE_UPDATE,
              .dtype = build_formats(b).reduce,
              .lane = LANE_REDUCE,
              .logical = unit_scatter_op(b),
              .u.comm = { .bytes = how->bytes * u->ranks_n, .group = u->group } };
    if (unit_is_alone(u)) {
        op.kind = OP_COPY;
        op.u.elements = u->elements;
        op.read_bytes = op.write_bytes = how->bytes;
    }
    return op;
}

/* The first of a step writes the gradient's shard; later ones (more) add to it. */
static uint32_t make_reduce(Build *b, const UnitType *u, const Owned *o, bool more)
{
    Graph *g = b->g;
    Scatter how = scatter_of(b, u, o, more);
    Op op = scattering_op(b, u, &how);
    uint32_t s = graph_segment(g, SEGMENT_REDUCE, unit_name(u, "reduce-scatter unit"));
    uint32_t *layout = g->segments[s].layout;
    layout[unit_input_slot(u)] = u->input_layout;
    layout[SLOT_GRAD_SHARD] = o->grad_layout;
    layout[how.slot] = how.layout;
    if (b->sw->divides_grads)
        divide_grads(b, u);
    op.name = g->segments[s].name;
    graph_op(g, op);
    part_args(g, u, unit_input_slot(u), ARG_READ, false, false);
    bool born = how.slot == SLOT_LOCAL || !b->sw->grads_persist;
    part_args(g, u, how.slot, ARG_WRITE, born, false);
    reduce_replicas(b, u, &how);
    if (how.casts)
        cast_sum(b, u, o, &how);
    if (more)
        add_sum(b, u, o, &how);
    return s;
}

uint32_t unit_reduce(Build *b, UnitType *u, const Owned *o, bool more)
{
    uint32_t *s = more ? &u->reduce_more : &u->reduce;
    if (*s == NONE_U32)
        *s = make_reduce(b, u, o, more);
    return *s;
}

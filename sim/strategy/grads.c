/*
 * grads.c - bundles, tied embeddings, clipping and the optimizer; see grads.h.
 */
#include "sim/strategy/grads.h"

/* ---- bundles ---- */

static const Owned *owned_by(const Bundle *u, uint32_t block)
{
    return &u->owned[u->b->blocks[block].type];
}

static uint32_t slot_layout(const Bundle *u, Slot slot, uint32_t block)
{
    switch (slot) {
    case SLOT_PARAM:
        return block_type(u->b, block)->param_layout;
    case SLOT_GRAD:
        return block_type(u->b, block)->grad_layout;
    default:
        ASSERT(slot == SLOT_GRAD_SHARD);
        return owned_by(u, block)->grad_layout;
    }
}

static const Tensor *piece_tensor(const Bundle *u, Slot slot, Piece p)
{
    return layout_tensor(u->b->g, slot_layout(u, slot, p.block),
                         block_type(u->b, p.block)->params[p.param].tensor);
}

static bool is_alike(const Bundle *u, const BundleParts *p)
{
    const Block *blocks = u->b->blocks;
    if (p->pieces_n != u->pieces_n || p->dtype != u->dtype)
        return false;
    for (uint32_t i = 0; i < u->pieces_n; i++) {
        Piece x = u->pieces[i], y = p->pieces[i];
        bool goes_on = i > 0 && x.block == u->pieces[i - 1].block;
        bool went_on = i > 0 && y.block == p->pieces[i - 1].block;
        if (x.param != y.param || blocks[x.block].type != blocks[y.block].type ||
            goes_on != went_on)
            return false;
    }
    return true;
}

void bundle_share(Bundle *u, BundleParts **all, Arena *arena)
{
    BundleParts *p = *all;
    while (p && !is_alike(u, p))
        p = p->before;
    if (!p) {
        p = PUSH(arena, BundleParts);
        *p = (BundleParts){
            .pieces = u->pieces, .pieces_n = u->pieces_n, .dtype = u->dtype, .before = *all
        };
        p->copies = PUSH_ARRAY(arena, uint32_t, (size_t)BUNDLE_COPIES * u->pieces_n);
        *all = p;
    }
    u->shared = p;
}

static void make_buffer(Bundle *u)
{
    Graph *g = u->b->g;
    uint64_t parts = u->parts ? u->parts : 1;
    u->layout = graph_layout(g);
    u->bytes = 0;
    for (uint32_t i = 0; i < u->pieces_n; i++) {
        Piece p = u->pieces[i];
        Tensor t = *piece_tensor(u, u->grad_slot, p);
        t.class_ = TENSOR_BUFFER;
        t.dtype = u->dtype;
        t.bytes = owned_by(u, p.block)->elements[p.param] * parts * dtype_bytes(u->dtype);
        graph_tensor(g, t);
        u->bytes += t.bytes;
    }
}

void bundle_open(Bundle *u)
{
    BundleParts *shared = u->shared;
    if (shared && shared->opened) {
        u->layout = shared->layout;
        u->bytes = shared->bytes;
    } else {
        make_buffer(u);
    }
    if (shared) {
        shared->opened = true;
        shared->layout = u->layout;
        shared->bytes = u->bytes;
    }
    u->frame = role_frame(u->role, (Frame){ u->layout, NONE_U32, u->stays });
}

/* One kernel of a tensor's n, number k. */
static void copy_kernel(const Bundle *u, const BundleCopy *c, uint32_t piece, uint32_t k,
                        uint32_t n)
{
    Graph *g = u->b->g;
    Piece p = u->pieces[piece];
    const Tensor *t = piece_tensor(u, c->slot, p);
    DType dtype = t->dtype;
    uint64_t elements = t->bytes / dtype_bytes(dtype);
    if (c->part)
        elements = min_u64(elements, owned_by(u, p.block)->elements[p.param]);
    elements = elements * (k + 1) / n - elements * k / n;
    uint64_t bytes = elements * dtype_bytes(dtype), buffer = elements * dtype_bytes(u->dtype);
    uint32_t tensor = block_type(u->b, p.block)->params[p.param].tensor;
    const Segment *s = &g->segments[g->segments_n - 1];
    graph_op(g, (Op){ .kind = c->add              ? OP_ADD
                              : dtype == u->dtype ? OP_COPY
                                                  : OP_CAST,
                      .phase = PHASE_UPDATE,
                      .dtype = u->dtype,
                      .lane = LANE_COMPUTE,
                      .name = s->name,
                      .logical = s->op_n,
                      .u.elements = elements,
                      .flops = c->add ? (double)elements : 0,
                      .read_bytes = (c->in ? bytes : buffer) + (c->add ? bytes : 0),
                      .write_bytes = c->in ? buffer : bytes });
    if (c->in) {
        graph_arg(g, c->slot, tensor, ARG_READ, false, c->dies);
        graph_arg(g, SLOT_DATA, piece, ARG_WRITE, !u->stays, false);
        return;
    }
    /* what other kernels write stays */
    bool keeps = c->add || (c->part && c->slot != SLOT_GRAD_SHARD) || n > 1;
    graph_arg(g, SLOT_DATA, piece, ARG_READ, false, !u->stays && k + 1 == n);
    graph_arg(g, c->slot, tensor, keeps ? ARG_UPDATE : ARG_WRITE, c->born, false);
}

/* One for each tensor, in as out, but where more are asked for. */
static void copy_op(const Bundle *u, const BundleCopy *c, uint32_t piece)
{
    uint32_t n = c->kernels ? c->kernels : 1;
    for (uint32_t k = 0; k < n; k++)
        copy_kernel(u, c, piece, k, n);
}

static uint32_t copy_frame(const Bundle *u, const BundleCopy *c, uint32_t block)
{
    if (c->frame)
        return c->frame[block];
    return c->slot == SLOT_PARAM ? u->b->home[block].param : u->b->home[block].grad;
}

/* The pieces [first, end) of one block. */
static uint32_t copy_segment(const Bundle *u, const BundleCopy *c, uint32_t first, uint32_t end)
{
    Graph *g = u->b->g;
    uint32_t how = c->in ? (c->part ? 0 : 3) : c->kernels ? 4 : c->add ? 2 : 1;
    uint32_t *known = u->shared ? &u->shared->copies[how * u->pieces_n + first] : NULL;
    if (known && *known > 0)
        return *known - 1;
    uint32_t s = graph_segment(g, SEGMENT_REDUCE, c->in ? "bucket copy" : "bucket copy back");
    g->segments[s].layout[c->slot] = slot_layout(u, c->slot, u->pieces[first].block);
    g->segments[s].layout[SLOT_DATA] = u->layout;
    for (uint32_t i = first; i < end; i++)
        copy_op(u, c, i);
    if (known)
        *known = s + 1;
    return s;
}

/* One segment and instance per block; the first waits. */
void bundle_copy(const Bundle *u, const BundleCopy *c, Point after)
{
    for (uint32_t i = 0; i < u->pieces_n;) {
        uint32_t block = u->pieces[i].block, first = i;
        while (i < u->pieces_n && u->pieces[i].block == block)
            i++;
        uint32_t s = copy_segment(u, c, first, i);
        uint32_t at =
            role_instance(u->role, s, u->micro_batch, u->b->blocks[block].layer, NONE_U32);
        u->role->instances[at].frame[c->slot] = copy_frame(u, c, block);
        u->role->instances[at].frame[SLOT_DATA] = u->frame;
        wait_at(u->role, 0, after);
        after = NOWHERE;
    }
}

void bundle_fill(const Bundle *u, Point ready)
{
    bundle_copy(u, &(BundleCopy){ .in = true, .slot = u->grad_slot }, ready);
}

void bundle_drain(const Bundle *u, Point reduced)
{
    bundle_copy(u, &(BundleCopy){ .slot = u->grad_slot }, reduced);
}

static uint32_t comm_segment(const Bundle *u, OpKind kind, Lane lane)
{
    Graph *g = u->b->g;
    bool gathers = kind == OP_ALL_GATHER;
    if (u->comm && *u->comm > 0)
        return *u->comm - 1;
    uint32_t s = graph_segment(g, gathers ? SEGMENT_GATHER : SEGMENT_REDUCE, u->name);
    g->segments[s].layout[SLOT_DATA] = u->layout;
    graph_op(g, (Op){ .kind = kind,
                      .phase = PHASE_UPDATE,
                      .dtype = u->dtype,
                      .lane = lane,
                      .name = g->segments[s].name,
                      .u.comm = { .bytes = u->bytes, .group = u->group } });
    arg_each(g, SLOT_DATA, u->layout, ARG_UPDATE, false, false);
    if (u->comm)
        *u->comm = s + 1;
    return s;
}

Point bundle_comm(const Bundle *u, OpKind kind, Lane lane, Point ready)
{
    uint32_t s = comm_segment(u, kind, lane);
    uint32_t at = role_instance(u->role, s, u->micro_batch, NONE_U32, NONE_U32);
    u->role->instances[at].frame[SLOT_DATA] = u->frame;
    wait_at(u->role, 0, ready);
    return (Point){ at, 0 };
}

Point bundle_reduce(const Bundle *u, Point ready)
{
    return bundle_comm(u, OP_ALL_REDUCE, LANE_REDUCE, ready);
}

/* ---- one op per block ---- */

static Slot param_slot(const Finish *f)
{
    return f->share == SHARE_ALL ? SLOT_SHARD : SLOT_PARAM;
}

static Slot grad_slot(const Finish *f)
{
    return f->share >= SHARE_GRADS ? SLOT_GRAD_SHARD : SLOT_GRAD;
}

static const Owned *owned_of(const Finish *f, uint32_t block)
{
    return &f->owned[f->b->blocks[block].type];
}

/* Bytes of what is owned in one of its layouts; part: the tensors are whole. */
static uint64_t owned_bytes(const Finish *f, uint32_t type, uint32_t layout, bool part)
{
    const Graph *g = f->b->g;
    const BlockType *t = &f->b->types[type];
    if (!part)
        return layout_bytes(g, layout);
    uint64_t bytes = 0;
    for (uint32_t p = 0; p < t->params_n; p++)
        bytes += f->owned[type].elements[p] *
                 dtype_bytes(layout_tensor(g, layout, t->params[p].tensor)->dtype);
    return bytes;
}

static uint64_t grad_bytes(const Finish *f, uint32_t type)
{
    return owned_bytes(f, type, f->owned[type].grad_layout, f->share == SHARE_UPDATE);
}

static uint64_t param_bytes(const Finish *f, uint32_t type)
{
    bool part = f->share == SHARE_UPDATE || f->share == SHARE_GRADS;
    return owned_bytes(f, type, f->owned[type].param_layout, part);
}

/* Instance of a segment on what the block owns. */
static uint32_t block_instance(const Finish *f, Role *role, uint32_t segment, uint32_t block)
{
    const Home *home = &f->b->home[block];
    const uint32_t *layout = f->b->g->segments[segment].layout;
    uint32_t i = role_instance(role, segment, NONE_U32, f->b->blocks[block].layer, NONE_U32);
    uint32_t *frame = role->instances[i].frame;
    Slot p = param_slot(f), grad = grad_slot(f);
    frame[p] = layout[p] == NONE_U32 ? NONE_U32 : home->param;
    frame[grad] = layout[grad] == NONE_U32 ? NONE_U32 : home->grad;
    frame[SLOT_STATE] = layout[SLOT_STATE] == NONE_U32 ? NONE_U32 : home->state;
    return i;
}

static uint32_t one_op_segment(Graph *g, SegmentKind kind, Op op, const char *name)
{
    uint32_t s = graph_segment(g, kind, name);
    op.phase = PHASE_UPDATE;
    op.name = g->segments[s].name;
    graph_op(g, op);
    return s;
}

/* ---- clipping ---- */

static void make_norm(Finish *f)
{
    Graph *g = f->b->g;
    f->norm_layout = graph_layout(g);
    graph_tensor(g, (Tensor){ .name = intern(&g->names, "gradient norm"),
                              .class_ = TENSOR_BUFFER,
                              .dtype = DTYPE_F32,
                              .bytes = 4,
                              .dims = { 1 } });
    f->norm_clear = one_op_segment(g, SEGMENT_OPTIMIZER,
                                   (Op){ .kind = OP_FILL,
                                         .dtype = DTYPE_F32,
                                         .lane = LANE_COMPUTE,
                                         .u.elements = 1,
                                         .write_bytes = 4 },
                                   "clear gradient norm");
    g->segments[f->norm_clear].layout[SLOT_DATA] = f->norm_layout;
    graph_arg(g, SLOT_DATA, 0, ARG_WRITE, false, false);
}

/* Over every group whose ranks hold different parameters, one after the other.  (Where steps are
 * open-ended stages pass on their sums beside what they compute: a few bytes that nobody waits
 * for.) */
static void make_norm_reduce(Finish *f)
{
    /* But of experts, of which every rank of ep has some. */
    bool whole = f->share == SHARE_NOTHING || zero_sums_whole(f->b);
    Graph *g = f->b->g;
    const uint32_t groups[] = { whole ? f->b->group[GROUP_EP] : share_group(f->b),
                                f->b->group[GROUP_TP],
                                g->open_ended ? NONE_U32 : f->b->group[GROUP_PP] };
    f->norm_reduce = NONE_U32;
    for (size_t i = 0; i < ARRAY_N(groups); i++) {
        uint32_t group = groups[i];
        if (group == NONE_U32)
            continue;
        if (f->norm_reduce == NONE_U32) {
            f->norm_reduce = graph_segment(g, SEGMENT_REDUCE, "all-reduce gradient norm");
            g->segments[f->norm_reduce].layout[SLOT_DATA] = f->norm_layout;
        }
        graph_op(g, (Op){ .kind = OP_ALL_REDUCE,
                          .phase = PHASE_UPDATE,
                          .dtype = DTYPE_F32,
                          .lane = LANE_REDUCE,
                          .name = intern(&g->names, "all-reduce gradient norm"),
                          .logical = g->segments[f->norm_reduce].op_n,
                          .u.comm = { .bytes = 4, .group = group } });
        graph_arg(g, SLOT_DATA, 0, ARG_UPDATE, false, false);
    }
}

static uint32_t squares_segment(Finish *f, uint32_t type)
{
    if (f->squares[type] != NONE_U32)
        return f->squares[type];
    Graph *g = f->b->g;
    const Owned *o = &f->owned[type];
    uint32_t s = one_op_segment(g, SEGMENT_OPTIMIZER,
                                (Op){ .kind = OP_GRAD_NORM,
                                      .dtype = DTYPE_F32,
                                      .lane = LANE_COMPUTE,
                                      .u.elements = o->total,
                                      .flops = 2 * (double)o->total,
                                      .read_bytes = grad_bytes(f, type),
                                      .write_bytes = 4 },
                                "gradient norm");
    g->segments[s].layout[grad_slot(f)] = o->grad_layout;
    g->segments[s].layout[SLOT_DATA] = f->norm_layout;
    arg_each(g, grad_slot(f), o->grad_layout, ARG_READ, false, false);
    graph_arg(g, SLOT_DATA, 0, ARG_UPDATE, false, false);
    return f->squares[type] = s;
}

static uint32_t scale_segment(Finish *f, uint32_t type)
{
    if (f->scale[type] != NONE_U32)
        return f->scale[type];
    Graph *g = f->b->g;
    const Owned *o = &f->owned[type];
    uint64_t bytes = grad_bytes(f, type);
    uint32_t s = one_op_segment(g, SEGMENT_OPTIMIZER,
                                (Op){ .kind = OP_SCALE,
                                      .dtype = DTYPE_F32,
                                      .lane = LANE_COMPUTE,
                                      .u.elements = o->total,
                                      .flops = (double)o->total,
                                      .read_bytes = bytes + 4,
                                      .write_bytes = bytes },
                                "clip gradients");
    g->segments[s].layout[grad_slot(f)] = o->grad_layout;
    g->segments[s].layout[SLOT_DATA] = f->norm_layout;
    arg_each(g, grad_slot(f), o->grad_layout, ARG_UPDATE, false, false);
    graph_arg(g, SLOT_DATA, 0, ARG_READ, false, false);
    return f->scale[type] = s;
}

/* Appends one instance per block that owns parameters; the first waits. */
static void each_block(Finish *f, uint32_t role_index, uint32_t (*segment)(Finish *, uint32_t),
                       uint32_t norm, Point after)
{
    Role *role = &f->b->g->roles[role_index];
    for (uint32_t i = 0; i < f->b->blocks_n; i++) {
        if (f->b->home[i].role != role_index || owned_of(f, i)->total == 0)
            continue;
        uint32_t at = block_instance(f, role, segment(f, f->b->blocks[i].type), i);
        role->instances[at].frame[SLOT_DATA] = norm;
        wait_at(role, 0, after);
        after = NOWHERE;
    }
}

/* Every stage takes part, one without parameters too: the norm is summed over all.  What the stack
 * has passes for beside the update (sim/lower_optimizer.c) is read and multiplied there, behind
 * this.  Returns what the update waits for. */
static Point clip(Finish *f, uint32_t role_index, Point after)
{
    bool passes = f->b->sw->norms_grads;
    Role *role = &f->b->g->roles[role_index];
    uint32_t norm = role_frame(role, (Frame){ f->norm_layout, NONE_U32, true });
    uint32_t clear = role_instance(role, f->norm_clear, NONE_U32, NONE_U32, NONE_U32);
    role->instances[clear].frame[SLOT_DATA] = norm;
    if (!passes) {
        each_block(f, role_index, squares_segment, norm, after);
        after = NOWHERE;
    }
    Point summed = after;
    if (f->norm_reduce != NONE_U32) {
        Point own = newest_compute(f->b->g, role);
        uint32_t at = role_instance(role, f->norm_reduce, NONE_U32, NONE_U32, NONE_U32);
        role->instances[at].frame[SLOT_DATA] = norm;
        wait_at(role, 0, own);
        wait_at(role, 0, after);
        summed = last_op(f->b->g, role, at, LANE_REDUCE);
    }
    if (passes)
        return summed;
    each_block(f, role_index, scale_segment, norm, summed);
    return NOWHERE;
}

/* ---- gradients that are split over tp, and tied embeddings ---- */

/* Those of a role, or NONE_U32: of all. */
static uint32_t list_partial(const Finish *f, uint32_t role_index, Piece *pieces)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->b->blocks_n; i++) {
        const BlockType *t = block_type(f->b, i);
        if (role_index != NONE_U32 && f->b->home[i].role != role_index)
            continue;
        for (uint32_t p = 0; p < t->params_n; p++)
            if (t->params[p].tp_partial) {
                ASSERT(!t->params[p].expert); /* all of them are of ranks_n parts */
                if (pieces)
                    pieces[n] = (Piece){ i, p };
                n++;
            }
    }
    return n;
}

/* Returns what the next reader of a gradient waits for. */
static Point sum_partial(Finish *f, uint32_t role_index, Point after)
{
    Build *b = f->b;
    uint32_t n = b->group[GROUP_TP] == NONE_U32 ? 0 : list_partial(f, role_index, NULL);
    if (n == 0)
        return after;
    Piece *pieces = PUSH_ARRAY(&b->arena, Piece, n);
    list_partial(f, role_index, pieces);
    Role *role = &b->g->roles[role_index];
    Bundle u = { .b = b,
                 .micro_batch = NONE_U32,
                 .role = role,
                 .name = "all-reduce tp gradients",
                 .pieces = pieces,
                 .pieces_n = n,
                 .owned = f->owned,
                 .parts = f->share == SHARE_UPDATE ? f->ranks_n : 1,
                 .grad_slot = grad_slot(f),
                 .dtype = shards_grads(b) ? build_formats(b).shard : build_formats(b).grad,
                 .group = b->group[GROUP_TP] };
    bundle_open(&u);
    bundle_fill(&u, after);
    Point reduced = bundle_reduce(&u, newest_compute(b->g, role));
    bundle_drain(&u, reduced);
    return NOWHERE;
}

static uint32_t tied_segment(const Finish *f, uint32_t block, uint32_t param)
{
    Graph *g = f->b->g;
    const Owned *o = owned_of(f, block);
    uint32_t tensor = block_type(f->b, block)->params[param].tensor;
    const Tensor *t = layout_tensor(g, o->grad_layout, tensor);
    uint32_t s = one_op_segment(
        g, SEGMENT_REDUCE,
        (Op){ .kind = OP_ALL_REDUCE,
              .dtype = t->dtype,
              .lane = LANE_REDUCE,
              .u.comm = { .bytes = t->bytes, .group = f->b->group[GROUP_EMBEDDING] } },
        "all-reduce tied embedding");
    g->segments[s].layout[grad_slot(f)] = o->grad_layout;
    graph_arg(g, grad_slot(f), tensor, ARG_UPDATE, false, false);
    return s;
}

/* When the gradient of a tied embedding is there: behind all that this rank computes.  Where stages
 * go on by themselves (Graph.open_ended), behind the block it is of, as the first stage is not to
 * wait for all of the last, which is done later (sail-sg/zero-bubble-pipeline-parallelism,
 * finalize_model_grads.py: "async all-reduce for embedding grads in WeightGradStore.clear() so that
 * it won't generate bubbles"). */
static Point tied_begins(const Finish *f, const Role *role, uint32_t block, Point after)
{
    const Graph *g = f->b->g;
    if (!g->open_ended || point_is(after))
        return newest_compute(g, role);
    uint32_t i = role->instances_n - 1;
    while (i > 0 && block_of(f->b, &role->instances[i]) != block)
        i--;
    return last_op(g, role, i, LANE_COMPUTE);
}

static Point sum_tied(Finish *f, uint32_t role_index, Point after)
{
    const Build *b = f->b;
    Role *role = &b->g->roles[role_index];
    for (uint32_t i = 0; b->group[GROUP_EMBEDDING] != NONE_U32 && i < b->blocks_n; i++) {
        const BlockType *t = block_type(b, i);
        for (uint32_t p = 0; b->home[i].role == role_index && p < t->params_n; p++) {
            if (!t->params[p].shared)
                continue;
            Point own = tied_begins(f, role, i, after);
            uint32_t at = block_instance(f, role, tied_segment(f, i, p), i);
            wait_at(role, 0, own);
            wait_at(role, 0, after);
            after = (Point){ at, 0 };
        }
    }
    return after;
}

/* ---- optimizer ---- */

/* Floating point operations per element, from PyTorch's formulas (torch/optim: sgd.py, adam.py,
 * adamw.py), multiply and add one each; far below what memory allows, so never decisive. */
static double optimizer_flops(Optimizer o)
{
    static const double per_element[OPTIMIZER_N] = {
        [OPT_SGD] = 2, [OPT_MOMENTUM] = 4, [OPT_ADAM] = 12, [OPT_ADAMW] = 14
    };
    return per_element[o];
}

static uint32_t update_segment(Finish *f, uint32_t type)
{
    static const OpFn fns[OPTIMIZER_N] = { FN_SGD, FN_MOMENTUM, FN_ADAM, FN_ADAMW };
    if (f->update[type] != NONE_U32)
        return f->update[type];
    Graph *g = f->b->g;
    Optimizer optimizer = f->b->s->training.optimizer;
    const Owned *o = &f->owned[type];
    uint64_t params = param_bytes(f, type), state = layout_bytes(g, o->state_layout);
    uint64_t from = state + grad_bytes(f, type) + (build_formats(f->b).masters ? 0 : params);
    uint32_t s = one_op_segment(g, SEGMENT_OPTIMIZER,
                                (Op){ .kind = OP_OPTIMIZER,
                                      .fn = fns[optimizer],
                                      .dtype = DTYPE_F32,
                                      .lane = LANE_COMPUTE,
                                      .u.elements = o->total,
                                      .flops = optimizer_flops(optimizer) * (double)o->total,
                                      .read_bytes = from,
                                      .write_bytes = params + state },
                                "optimizer");
    uint32_t *layout = g->segments[s].layout;
    layout[grad_slot(f)] = o->grad_layout;
    layout[SLOT_STATE] = o->state_layout;
    layout[param_slot(f)] = o->param_layout;
    arg_each(g, grad_slot(f), o->grad_layout, ARG_READ, false, f->frees_grads);
    arg_each(g, SLOT_STATE, o->state_layout, ARG_UPDATE, false, false);
    arg_each(g, param_slot(f), o->param_layout, ARG_UPDATE, false, false);
    return f->update[type] = s;
}

/* ---- all of it ---- */

static uint32_t *none_by_type(Build *b)
{
    uint32_t *a = PUSH_ARRAY(&b->arena, uint32_t, b->types_n);
    for (uint32_t i = 0; i < b->types_n; i++)
        a[i] = NONE_U32;
    return a;
}

/* How many ranks share the update of a parameter. */
static uint32_t sharing_ranks(const Build *b, const Param *p, Share share)
{
    return share == SHARE_NOTHING ? 1 : group_ranks(b, param_group(b, p));
}

/* The layout with a rank's part of every tensor, as many to each parameter; dtype DTYPE_N: as
 * it is. */
static uint32_t part_layout(Build *b, const BlockType *type, uint32_t whole, DType dtype)
{
    Graph *g = b->g;
    if (whole == NONE_U32)
        return NONE_U32;
    uint32_t layout = graph_layout(g), tensors_n = g->layouts[whole].tensor_n;
    for (uint32_t i = 0; i < tensors_n; i++) {
        Tensor t = *layout_tensor(g, whole, i);
        const Param plain = { 0 }, *p = type->params_n
                                            ? &type->params[i * type->params_n / tensors_n]
                                            : &plain;
        uint64_t elements =
            div_up_u64(t.bytes / dtype_bytes(t.dtype), sharing_ranks(b, p, SHARE_UPDATE));
        if (dtype != DTYPE_N)
            t.dtype = dtype;
        t.bytes = elements * dtype_bytes(t.dtype);
        for (int d = 0; d < TENSOR_DIMS_MAX; d++)
            t.dims[d] = d == 0 ? elements : 0;
        graph_tensor(g, t);
    }
    return layout;
}

static Owned own_type(Build *b, const BlockType *t, Share share)
{
    Owned o = { t->param_layout, t->grad_layout, t->state_layout, NULL, 0 };
    Formats formats = build_formats(b);
    if (share == SHARE_ALL)
        o.param_layout = part_layout(b, t, t->param_layout, formats.param);
    if (share >= SHARE_GRADS)
        o.grad_layout = part_layout(b, t, t->grad_layout, formats.shard);
    if (share >= SHARE_UPDATE)
        o.state_layout = part_layout(b, t, t->state_layout, DTYPE_N);
    o.elements = PUSH_ARRAY(&b->arena, uint64_t, t->params_n);
    for (uint32_t p = 0; p < t->params_n; p++) {
        o.elements[p] =
            div_up_u64(t->params[p].elements, sharing_ranks(b, &t->params[p], share));
        o.total += o.elements[p];
    }
    return o;
}

Owned *owned_by_share(Build *b, Share share)
{
    Owned *owned = PUSH_ARRAY(&b->arena, Owned, b->types_n);
    for (uint32_t i = 0; i < b->types_n; i++)
        owned[i] = own_type(b, &b->types[i], share);
    return owned;
}

/* What pipeline laid out whole. */
void share_homes(Build *b, const Owned *owned, Share share)
{
    for (uint32_t i = 0; i < b->blocks_n && share != SHARE_NOTHING; i++) {
        if (b->blocks[i].frame_of != i)
            continue;
        const Home *home = &b->home[i];
        const Owned *o = &owned[b->blocks[i].type];
        Frame *frames = b->g->roles[home->role].frames;
        if (home->param != NONE_U32)
            frames[home->param].layout = o->param_layout;
        if (home->grad != NONE_U32)
            frames[home->grad].layout = o->grad_layout;
        if (home->state != NONE_U32)
            frames[home->state].layout = o->state_layout;
    }
}

/* Gradients split over tp are copied into their bundle and back. */
static void make_room(const Finish *f, uint32_t collectives_n)
{
    const Build *b = f->b;
    uint32_t partial_n = b->group[GROUP_TP] == NONE_U32 ? 0 : list_partial(f, NONE_U32, NULL);
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->blocks_n; i++)
        n += collectives_n * block_type(b, i)->params_n;
    graph_reserve(b->g, n + 2 * b->blocks_n, n + 2 * partial_n, n + 4 * partial_n);
}

void finish_begin(Finish *f, Build *b, Owned *owned, Share share, uint32_t collectives_n)
{
    *f = (Finish){ .b = b, .owned = owned, .share = share };
    f->ranks_n = share == SHARE_NOTHING ? 1 : group_ranks(b, share_group(b));
    f->frees_grads = !b->sw->grads_persist;
    make_room(f, collectives_n);
    f->squares = none_by_type(b);
    f->scale = none_by_type(b);
    f->update = none_by_type(b);
    if (b->s->training.grad_clip > 0) {
        make_norm(f);
        make_norm_reduce(f);
    }
}

void finish_role(Finish *f, uint32_t role, Point reduced)
{
    Point after = sum_partial(f, role, reduced);
    after = sum_tied(f, role, after);
    if (f->b->s->training.grad_clip > 0)
        after = clip(f, role, after);
    each_block(f, role, update_segment, NONE_U32, after);
}

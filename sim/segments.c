/*
 * segments.c - from played tapes to segments: every value gets a slot and a life.
 *
 * For each variant the backward pass is drafted first, because it says what of the
 * forward pass must be saved: what it reads, and what a stack keeps without need:
 *
 *     draft backward --saved--> layout of SLOT_STASH --> forward, backward x GradMode
 *
 * Within a segment a value lives from the first argument that names it to the
 * last; sim/blocks.h says which slots are born and die on the way.
 *
 * PARTS.  Where a forward and a backward hide each other's all-to-alls of experts (schedule.h,
 * PAIRS) a pass is there once more, cut behind each of them, so that the other's part stands
 * between sending and what is done with what came (as Megatron's TransformerLayerSchedulePlan):
 *
 *     layer      norm ... router permute dispatch | experts ... combine | weighted sum
 *     backward   ... weighted sum combine | experts ... dispatch | permute ... norm
 *
 * All-to-alls that are done again (recomputation) stay whole, and exposed, as there.
 */
#include <stdlib.h>
#include <string.h>

#include "sim/blocks.h"
#include "sim/draft.h"
#include "sim/memory.h"
#include "sim/strategy/parts.h"

/* ---- layouts ---- */

static uint32_t add_tensor(Graph *g, const char *name, TensorClass class_, DType dtype,
                           uint64_t rows, uint64_t columns)
{
    Tensor tensor = { .name = intern(&g->names, name),
                      .class_ = class_,
                      .dtype = dtype,
                      .bytes = rows * columns * dtype_bytes(dtype),
                      .dims = { rows, columns } };
    return graph_tensor(g, tensor);
}

/* The layout with this one tensor, shared by all that ask for the same. */
static uint32_t boundary_layout(Build *b, DType dtype, uint64_t rows, uint64_t columns)
{
    Graph *g = b->g;
    uint32_t name = intern(&g->names, "boundary");
    for (uint32_t l = 0; l < g->layouts_n; l++) {
        const Tensor *t = &g->tensors[g->layouts[l].tensor_first];
        if (g->layouts[l].tensor_n == 1 && t->name == name && t->dtype == dtype &&
            t->dims[0] == rows && t->dims[1] == columns)
            return l;
    }
    uint32_t layout = graph_layout(g);
    add_tensor(g, "boundary", TENSOR_ACTIVATION, dtype, rows, columns);
    return layout;
}

static uint32_t data_layout(Build *b, const Tape *t)
{
    uint32_t layout = NONE_U32;
    for (uint32_t v = 0; v < t->values_n; v++) {
        const TapeValue *x = &t->values[v];
        if (x->home != VALUE_DATA)
            continue;
        if (layout == NONE_U32)
            layout = graph_layout(b->g);
        uint32_t i = add_tensor(b->g, x->name, TENSOR_BUFFER, x->dtype, x->rows, x->columns);
        ASSERT(i == x->tensor);
    }
    return layout;
}

/* The params of one tape, or of two that share their frames, in order. */
static const TapeValue **list_params(Build *b, const Tape *first, const Tape *second,
                                     uint32_t *n)
{
    const Tape *tapes[] = { first, second };
    uint32_t most = first->values_n + (second ? second->values_n : 0);
    const TapeValue **list = PUSH_ARRAY(&b->arena, const TapeValue *, most);
    *n = 0;
    for (int i = 0; i < 2 && tapes[i]; i++)
        for (uint32_t v = 0; v < tapes[i]->values_n; v++) {
            const TapeValue *p = &tapes[i]->values[v];
            if (p->home != VALUE_PARAM || p->borrowed)
                continue;
            ASSERT(p->tensor == *n);
            list[(*n)++] = p;
        }
    return list;
}

/* Moments and master weights, in f32 as Megatron-LM keeps them; moments may have the format of what
 * is updated (torch.optim: zeros_like). */
static void add_state(Build *b, const TapeValue *p)
{
    static const char *const names[] = { "first moment", "second moment" };
    Formats f = build_formats(b);
    for (uint32_t i = 0; i < optimizer_moments(b->s->training.optimizer); i++)
        add_tensor(b->g, names[i], TENSOR_OPTIMIZER, f.moments, p->rows, p->columns);
    if (f.masters)
        add_tensor(b->g, MASTER_WEIGHTS, TENSOR_OPTIMIZER, f.master, p->rows, p->columns);
}

/* What lies beside the gradients in f32. */
static uint32_t half_layout(Build *b, const TapeValue *const *list, uint32_t n)
{
    const Scenario *s = b->s;
    if (!keeps_half_grads(&s->training, &s->parallel, b->sw, has_replicas(b)))
        return NONE_U32;
    uint32_t layout = graph_layout(b->g);
    for (uint32_t i = 0; i < n; i++)
        add_tensor(b->g, "gradients in 16 bits", TENSOR_GRAD, build_formats(b).made,
                   list[i]->rows, list[i]->columns);
    return layout;
}

static void own_params(Build *b, BlockType *type, const TapeValue *const *list, uint32_t n)
{
    DType grad = build_formats(b).grad;
    type->params = PUSH_ARRAY(&b->arena, Param, n + 1);
    type->params_n = n;
    for (uint32_t i = 0; i < n; i++) {
        const TapeValue *p = list[i];
        type->params[i] = (Param){ .tensor = i,
                                   .elements = value_elements(p),
                                   .tp_partial = p->tp_partial,
                                   .quantized = p->quantized,
                                   .shared = p->shared,
                                   .expert = p->expert };
        type->elements += value_elements(p);
    }
    type->param_layout = graph_layout(b->g);
    for (uint32_t i = 0; i < n; i++)
        add_tensor(b->g, list[i]->name, TENSOR_PARAM, list[i]->dtype, list[i]->rows,
                   list[i]->columns);
    type->grad_layout = graph_layout(b->g);
    for (uint32_t i = 0; i < n; i++)
        add_tensor(b->g, list[i]->name, TENSOR_GRAD, grad, list[i]->rows, list[i]->columns);
    type->state_layout = graph_layout(b->g);
    for (uint32_t i = 0; i < n; i++)
        add_state(b, list[i]);
    type->half_layout = half_layout(b, list, n);
}

/* ---- lanes ---- */

/* Must op wait for who has arg?  Two could read at a time, but memory is free for others when its
 * last reader is done, and that is then the one that was launched last: only tokens on their way
 * to experts, which the executor has none of, are read by others too. */
static bool touches(const Draft *d, const DraftOp *op, const DraftArg *arg, bool may_read)
{
    for (uint32_t a = 0; a < op->arg_n; a++) {
        const DraftArg *mine = &d->args[op->arg_first + a];
        bool reads = mine->mode == ARG_READ && arg->mode == ARG_READ;
        if (mine->memory == arg->memory && !(may_read && reads))
            return true;
    }
    return false;
}

/* Ops [begin, end) of a draft: what becomes one segment.  cut: what follows waits for the last. */
typedef struct Part {
    uint32_t begin, end;
    bool cut;
} Part;

/* Must op j wait for the collective i? */
static bool uses(const Draft *d, uint32_t j, uint32_t i)
{
    const DraftOp *comm = &d->ops[i];
    for (uint32_t a = 0; a < comm->arg_n; a++)
        if (touches(d, &d->ops[j], &d->args[comm->arg_first + a], comm->op.lane == LANE_EP))
            return true;
    return false;
}

/* The first op after i on the compute lane that touches what op i does; the part's end if there
 * is none. */
static uint32_t next_user(const Draft *d, Part part, uint32_t i)
{
    for (uint32_t j = i + 1; j < part.end; j++)
        if (d->ops[j].op.lane == LANE_COMPUTE && uses(d, j, i))
            return j;
    return part.end;
}

/*
 * A collective on a lane of its own starts when the compute op launched before it
 * is done (as NCCL's stream waits for the current one in PyTorch), and the next op
 * that touches its data waits for it.  Where a segment holds no such neighbour the
 * collective moves to the compute lane: segments need no edges for it.  An all-to-all of
 * experts does so beside a collective of tp too, of which one feeds the other.
 */
static bool meets_another(const Draft *d, Part part, uint32_t i)
{
    bool before = i > part.begin && op_is_comm(d->ops[i - 1].op.kind);
    bool after = i + 1 < part.end && op_is_comm(d->ops[i + 1].op.kind);
    return d->ops[i].op.lane == LANE_EP && (before || after);
}

static void settle_lanes(Draft *d, Part part)
{
    bool computed = false;
    for (uint32_t i = part.begin; i < part.end; i++) {
        Op *op = &d->ops[i].op;
        bool stays = part.cut && i + 1 == part.end;
        bool alone = !computed || next_user(d, part, i) == part.end;
        if (op->lane != LANE_COMPUTE && !stays && (alone || meets_another(d, part, i)))
            op->lane = LANE_COMPUTE;
        computed = computed || op->lane == LANE_COMPUTE;
    }
}

/* ---- one segment ---- */

typedef struct Emit {
    Build *b;
    Draft *d;
    Part part;
    SegmentKind kind; /* forward, backward, weight or sum */
    GradMode mode;
    uint32_t host_before;           /* Segment.host_before of what begins the pass */
    uint32_t data;                  /* layout */
    const bool *data_later;         /* by tensor of it: read in backward */
    uint32_t *first_arg, *last_arg; /* by memory */
    uint32_t waited[LANE_N];        /* ops of the lane before this one have been waited for */
} Emit;

static void find_lives(Emit *e)
{
    for (uint32_t m = 0; m < e->d->memories_n; m++)
        e->first_arg[m] = NONE_U32;
    for (uint32_t a = 0; a < e->d->args_n; a++) {
        uint32_t m = e->d->args[a].memory;
        if (e->first_arg[m] == NONE_U32)
            e->first_arg[m] = a;
        e->last_arg[m] = a;
    }
}

static bool is_forward(const Emit *e)
{
    return e->kind == SEGMENT_FORWARD;
}

static bool is_born(const Emit *e, const DraftMemory *m)
{
    switch (m->slot) {
    case SLOT_LOCAL:
    case SLOT_HELD:
    case SLOT_DIN:
        return true;
    case SLOT_STASH:
    case SLOT_OUT:
        return is_forward(e);
    default:
        return false;
    }
}

static bool is_killed(const Emit *e, const DraftMemory *m)
{
    switch (m->slot) {
    case SLOT_LOCAL:
    case SLOT_HELD:
        return true;
    case SLOT_STASH:
    case SLOT_IN:
    case SLOT_DOUT:
        return !is_forward(e);
    case SLOT_DATA:
        return !is_forward(e) || !e->data_later[m->tensor];
    default:
        return false;
    }
}

/* Is the gradient added to what is there already? */
static bool grad_adds(const Emit *e, const DraftMemory *m)
{
    return m->slot == SLOT_GRAD && (e->mode == GRAD_ADD || m->adds);
}

static void emit_arg(const Emit *e, uint32_t a, Op *op)
{
    DraftArg arg = e->d->args[a];
    const DraftMemory *m = &e->d->memories[arg.memory];
    ArgMode mode = grad_adds(e, m) ? ARG_UPDATE : arg.mode;
    bool born = is_born(e, m) || (m->slot == SLOT_GRAD && e->mode == GRAD_BORN && !m->adds);
    graph_arg(e->b->g, m->slot, m->tensor, mode, born && e->first_arg[arg.memory] == a,
              is_killed(e, m) && e->last_arg[arg.memory] == a);
    op->read_bytes += mode != ARG_WRITE ? arg.bytes : 0;
    op->write_bytes += mode != ARG_READ ? arg.bytes : 0;
    if (grad_adds(e, m) && (op->kind == OP_MATMUL || op->kind == OP_CONV))
        op->u.matmul.accumulate = true;
}

/* The newest op on a lane before op i whose data op i or an op before it touches. */
static void wait_for_lane(Emit *e, uint32_t i, Lane lane)
{
    for (uint32_t j = i; j-- > e->waited[lane];)
        if (e->d->ops[j].op.lane == lane && next_user(e->d, e->part, j) <= i) {
            graph_dep(
                e->b->g,
                j - e->part.begin); /* the lane is in order: this covers those before it */
            e->waited[lane] = j + 1;
            return;
        }
}

static void emit_deps(Emit *e, uint32_t i)
{
    const DraftOp *ops = e->d->ops;
    if (ops[i].op.lane == LANE_COMPUTE) {
        wait_for_lane(e, i, LANE_TP);
        wait_for_lane(e, i, LANE_CP);
        wait_for_lane(e, i, LANE_EP);
        return;
    }
    uint32_t j = i;
    while (ops[--j].op.lane != LANE_COMPUTE)
        ;
    graph_dep(e->b->g, j - e->part.begin);
}

static void emit_ops(Emit *e)
{
    Graph *g = e->b->g;
    for (uint32_t i = e->part.begin; i < e->part.end; i++) {
        const DraftOp *from = &e->d->ops[i];
        Op op = from->op;
        op.name = intern(&g->names, from->name);
        graph_op(g, op);
        for (uint32_t a = 0; a < from->arg_n; a++)
            emit_arg(e, from->arg_first + a, &g->ops[g->ops_n - 1]);
        emit_deps(e, i);
    }
}

/* The argument that op i begins with, or would. */
static uint32_t arg_at(const Draft *d, uint32_t i)
{
    return i < d->ops_n ? d->ops[i].arg_first : d->args_n;
}

/* Layout of the values of slot (LOCAL or HELD) that are first touched in the part, in order;
 * NONE_U32 when there are none. */
static uint32_t place(Emit *e, Part part, Slot slot, TensorClass class_)
{
    Draft *d = e->d;
    uint32_t layout = NONE_U32;
    for (uint32_t v = 0; v < d->memories_n; v++) {
        DraftMemory *m = &d->memories[v];
        uint32_t a = e->first_arg[v];
        if (m->slot != slot || a == NONE_U32 || a < arg_at(d, part.begin) ||
            a >= arg_at(d, part.end))
            continue;
        if (layout == NONE_U32)
            layout = graph_layout(e->b->g);
        m->tensor = add_tensor(e->b->g, m->name, class_, m->dtype, m->rows, m->columns);
    }
    return layout;
}

/* Temporaries that are made in the first part of a draft and read in the second. */
static void hold_values(Emit *e, uint32_t second)
{
    for (uint32_t v = 0; v < e->d->memories_n; v++) {
        DraftMemory *m = &e->d->memories[v];
        if (m->slot == SLOT_LOCAL && e->first_arg[v] != NONE_U32 &&
            e->first_arg[v] < arg_at(e->d, second) && e->last_arg[v] >= arg_at(e->d, second))
            m->slot = SLOT_HELD;
    }
}

static uint32_t emit_segment(Emit *e, const BlockType *type, const char *name, uint32_t local,
                             uint32_t stash, uint32_t held)
{
    static const char *const passes[SEGMENT_KIND_N] = { [SEGMENT_FORWARD] = "forward",
                                                        [SEGMENT_BACKWARD] = "backward",
                                                        [SEGMENT_WEIGHT] = "weights",
                                                        [SEGMENT_SUM] = "sums" };
    uint32_t s = graph_segment(e->b->g, e->kind,
                               arena_printf(&e->b->arena, "%s %s", name, passes[e->kind]));
    for (int lane = 0; lane < LANE_N; lane++)
        e->waited[lane] = e->part.begin;
    emit_ops(e);
    Segment *segment = &e->b->g->segments[s];
    uint32_t *layout = segment->layout;
    segment->logical_n = e->d->logical_n;
    segment->numbering = e->d->numbering;
    segment->host_before = e->part.begin == 0 ? e->host_before : 0;
    layout[SLOT_LOCAL] = local;
    layout[SLOT_STASH] = stash;
    layout[SLOT_PARAM] = type->param_layout;
    layout[SLOT_IN] = type->in_layout;
    layout[is_forward(e) ? SLOT_OUT : SLOT_DOUT] = type->out_layout;
    layout[SLOT_DATA] = e->data;
    layout[SLOT_HELD] = held;
    if (!is_forward(e))
        layout[SLOT_GRAD] = type->grad_layout;
    if (e->kind == SEGMENT_BACKWARD)
        layout[SLOT_DIN] = type->in_layout;
    return s;
}

/* ---- one type ---- */

typedef struct Played {
    Draft forward, backward;
    uint32_t stash, data; /* layouts */
    uint32_t host_before; /* Segment.host_before of both passes */
    bool data_later[TAPE_DATA_MAX];
} Played;

/* Gives saved values their place in the stash, in both passes. */
static void place_stash(Build *b, const Tape *t, Played *p)
{
    bool made = p->stash != NONE_U32; /* as it was played before */
    uint32_t n = 0;
    for (uint32_t v = 0; v < t->values_n; v++) {
        DraftMemory *f = &p->forward.memories[v], *w = &p->backward.memories[v];
        if (!p->backward.saved[v])
            continue;
        ASSERT(f->slot == SLOT_LOCAL);
        if (p->stash == NONE_U32)
            p->stash = graph_layout(b->g);
        if (!made)
            add_tensor(b->g, f->name, TENSOR_ACTIVATION, f->dtype, f->rows, f->columns);
        f->slot = SLOT_STASH;
        f->tensor = n++;
        *w = *f;
    }
}

static void find_data(Played *p)
{
    const Draft *d = &p->backward;
    for (uint32_t a = 0; a < d->args_n; a++) {
        const DraftMemory *m = &d->memories[d->args[a].memory];
        if (m->slot == SLOT_DATA)
            p->data_later[m->tensor] = true;
    }
}

static void note_ready_ops(const Emit *e, BlockType *type, uint32_t *ready)
{
    for (uint32_t i = e->part.begin; i < e->part.end; i++) {
        const DraftOp *op = &e->d->ops[i];
        for (uint32_t a = 0; a < op->arg_n; a++) {
            const DraftMemory *m = &e->d->memories[e->d->args[op->arg_first + a].memory];
            for (uint32_t p = 0; m->slot == SLOT_GRAD && p < type->params_n; p++)
                if (type->params[p].tensor == m->tensor)
                    ready[p] = i - e->part.begin;
        }
    }
}

static void emit_forward(Emit *e, BlockType *type, const char *name, Variant variant,
                         const Played *p)
{
    settle_lanes(e->d, e->part);
    uint32_t local = place(e, e->part, SLOT_LOCAL, TENSOR_BUFFER);
    type->forward[variant] = emit_segment(e, type, name, local, p->stash, NONE_U32);
}

/* A segment for every way of writing gradients. */
static void emit_modes(Emit *e, BlockType *type, const char *name, Variant variant,
                       const Played *p, uint32_t *segments)
{
    settle_lanes(e->d, e->part);
    uint32_t local = place(e, e->part, SLOT_LOCAL, TENSOR_BUFFER);
    for (e->mode = 0; e->mode < GRAD_MODE_N; e->mode++) {
        segments[e->mode] =
            emit_segment(e, type, name, local, p->stash, type->held_layout[variant]);
        uint32_t *ready = PUSH_ARRAY(&e->b->arena, uint32_t, type->params_n + 1);
        note_ready_ops(e, type, ready);
        type->ready_op[variant][e->mode] = ready;
    }
}

static void emit_backward(Emit *e, BlockType *type, const char *name, Variant variant,
                          const Played *p, uint32_t second)
{
    uint32_t end = e->part.end;
    hold_values(e, second);
    type->held_layout[variant] = place(e, e->part, SLOT_HELD, TENSOR_ACTIVATION);
    e->part = (Part){ .end = second };
    emit_modes(e, type, name, variant, p, type->backward[variant]);
    for (int m = 0; m < GRAD_MODE_N; m++)
        type->weight[variant][m] = NONE_U32;
    if (second == end)
        return;
    e->part = (Part){ .begin = second, .end = end };
    e->kind = SEGMENT_WEIGHT;
    emit_modes(e, type, name, variant, p, type->weight[variant]);
}

/* ---- gradients that are added when backward is through ---- */

static uint32_t emit_half(Emit *e, BlockType *type, const char *name, const Played *p,
                          uint32_t held)
{
    settle_lanes(e->d, e->part);
    uint32_t local = place(e, e->part, SLOT_LOCAL, TENSOR_BUFFER);
    return emit_segment(e, type, name, local, p->stash, held);
}

/* `second`: where the sums begin. */
static void emit_sums(Emit *e, BlockType *type, const char *name, Variant variant,
                      const Played *p, uint32_t second)
{
    uint32_t end = e->part.end;
    e->mode = GRAD_ADD;
    hold_values(e, second);
    uint32_t held = place(e, e->part, SLOT_HELD, TENSOR_GRAD);
    e->part = (Part){ .end = second };
    type->made[variant] = emit_half(e, type, name, p, held);
    e->part = (Part){ .begin = second, .end = end };
    e->kind = SEGMENT_SUM;
    type->sum[variant] = emit_half(e, type, name, p, held);
    type->sum_ready_op[variant] = PUSH_ARRAY(&e->b->arena, uint32_t, type->params_n + 1);
    note_ready_ops(e, type, type->sum_ready_op[variant]);
}

/* Where the weight gradients of a backward draft begin; its end where they stay. */
static uint32_t second_part(const Build *b, Draft *backward)
{
    const Parallel *k = &b->s->parallel;
    uint32_t second = k->pp > 1 && schedule_splits(k->schedule)
                          ? draft_split(backward, SPLIT_WEIGHTS)
                          : backward->ops_n;
    return second > 0 ? second : backward->ops_n;
}

/* ---- parts ---- */

/* An all-to-all that is no recomputation, behind some kernel of the part; *user waits for it. */
static bool is_cut(const Draft *d, uint32_t begin, uint32_t i, uint32_t *user)
{
    bool computed = false;
    for (uint32_t k = begin; k < i; k++)
        computed |= d->ops[k].op.lane == LANE_COMPUTE;
    if (d->ops[i].op.lane != LANE_EP || d->ops[i].op.phase == PHASE_RECOMPUTE || !computed)
        return false;
    *user = i + 1;
    while (*user < d->ops_n && !uses(d, *user, i))
        ++*user;
    return *user < d->ops_n;
}

/* Fills part and cut->resumes; cut->n is 0 where the pass cannot be cut. */
static void find_parts(const Emit *e, Part *part, CutPass *cut)
{
    uint32_t begin = 0, user = 0, n = 0;
    for (uint32_t i = 0; i < e->d->ops_n; i++) {
        uint32_t next;
        bool went_on = n == 0 || user <= i; /* what was cut off before, in this part */
        if (n + 1 == CUT_PARTS_MAX || !went_on || !is_cut(e->d, begin, i, &next))
            continue;
        part[n++] = (Part){ .begin = begin, .end = i + 1, .cut = true };
        begin = i + 1;
        user = next;
        cut->resumes[n] = next - begin;
    }
    part[n] = (Part){ .begin = begin, .end = e->d->ops_n };
    cut->n = n > 0 ? n + 1 : 0;
}

/* One pass, for each of modes_n ways of writing gradients. */
static void emit_parts(Emit *e, BlockType *type, const char *name, const Played *p,
                       CutPass *modes, uint32_t modes_n)
{
    Part part[CUT_PARTS_MAX];
    uint32_t local[CUT_PARTS_MAX];
    CutPass cut = { 0 };
    find_parts(e, part, &cut);
    for (uint32_t k = 1; k < cut.n; k++)
        hold_values(e, part[k].begin);
    cut.held_layout = place(e, e->part, SLOT_HELD, TENSOR_ACTIVATION);
    for (uint32_t k = 0; k < cut.n; k++) {
        settle_lanes(e->d, part[k]);
        local[k] = place(e, part[k], SLOT_LOCAL, TENSOR_BUFFER);
    }
    for (e->mode = 0; e->mode < modes_n; e->mode++) {
        for (uint32_t k = 0; k < cut.n; k++) {
            e->part = part[k];
            const char *part_name = arena_printf(&e->b->arena, "%s part %" PRIu32, name, k + 1);
            cut.segment[k] =
                emit_segment(e, type, part_name, local[k], p->stash, cut.held_layout);
        }
        modes[e->mode] = cut;
    }
}

/* ---- one pass ---- */

static const char *variant_name(Build *b, const BlockPlan *plan, Variant variant)
{
    return variant == VARIANT_PLAIN ? plan->name
                                    : arena_printf(&b->arena, "%s recompute", plan->name);
}

static Emit emit_begin(Build *b, Played *p, bool backward)
{
    Emit e = { .b = b,
               .kind = backward ? SEGMENT_BACKWARD : SEGMENT_FORWARD,
               .host_before = p->host_before,
               .data = p->data,
               .data_later = p->data_later,
               .d = backward ? &p->backward : &p->forward };
    e.part.end = e.d->ops_n;
    e.first_arg = mem_zero(e.d->memories_n, sizeof *e.first_arg);
    e.last_arg = mem_zero(e.d->memories_n, sizeof *e.last_arg);
    return e;
}

static void emit_end(Emit *e)
{
    free(e->first_arg);
    free(e->last_arg);
}

static void emit_pass(Build *b, BlockType *type, const BlockPlan *plan, Variant variant,
                      Played *p, bool backward)
{
    uint32_t second = backward ? second_part(b, &p->backward) : 0;
    Emit e = emit_begin(b, p, backward);
    find_lives(&e);
    const char *name = variant_name(b, plan, variant);
    if (backward)
        emit_backward(&e, type, name, variant, p, second);
    else
        emit_forward(&e, type, name, variant, p);
    emit_end(&e);
}

static void cut_pass(Build *b, BlockType *type, const BlockPlan *plan, Variant variant,
                     Played *p, bool backward)
{
    Emit e = emit_begin(b, p, backward);
    find_lives(&e);
    emit_parts(&e, type, variant_name(b, plan, variant), p,
               backward ? type->backward_parts[variant] : &type->forward_parts[variant],
               backward ? GRAD_MODE_N : 1);
    emit_end(&e);
}

/* Blocks without matmuls have nothing to add. */
static void sum_pass(Build *b, BlockType *type, const BlockPlan *plan, Variant variant,
                     Played *p)
{
    uint32_t second = draft_split(&p->backward, SPLIT_SUMS);
    if (second == p->backward.ops_n)
        return;
    Emit e = emit_begin(b, p, true);
    find_lives(&e);
    emit_sums(&e, type, variant_name(b, plan, variant), variant, p, second);
    emit_end(&e);
}

static void play(Build *b, const BlockPlan *plan, const DraftPlan *draft, Played *p)
{
    draft_backward(&p->backward, &plan->tape, draft);
    draft_forward(&p->forward, &plan->tape, draft);
    place_stash(b, &plan->tape, p);
    find_data(p);
}

/* What a checkpoint costs the host, which no compiled program has. */
static uint32_t checkpoint_launches(const Build *b)
{
    bool full = b->s->training.recompute != RECOMPUTE_SELECTIVE;
    return full && !b->s->training.compiled ? b->sw->checkpoint_launches : 0;
}

static void make_variant(Build *b, BlockType *type, const BlockPlan *plan, Variant variant,
                         uint32_t data)
{
    bool again = variant == VARIANT_RECOMPUTE;
    Formats formats = build_formats(b);
    bool async_tp = hides_input_gradients(b);
    DraftPlan draft = { .redo = again ? plan->redo : plan->plain_redo,
                        .parts = again ? plan->parts : NULL,
                        .redo_all = again && plan->redo_all,
                        .async_tp = async_tp,
                        .async_cp = rings_keys(b),
                        .ring_tp = async_tp && (b->sw->tp_ring || b->sw->tp_own_first),
                        .async_ep = overlaps(b, DIM_EP),
                        .wgrad_last = async_tp,
                        .tp_group = b->group[GROUP_TP],
                        .cp_group = b->group[GROUP_CP],
                        .kv_group = b->group[GROUP_KV],
                        .ep_group = b->group[GROUP_EP],
                        .grad_dtype = formats.grad,
                        .made_dtype = formats.made,
                        .casts = formats.casts,
                        .recasts = b->s->parallel.pp > 1,
                        .fuses_casts = fusion_of(b).norms };
    Played p = { .stash = NONE_U32,
                 .data = data,
                 .host_before = again ? checkpoint_launches(b) : 0 };
    play(b, plan, &draft, &p);
    type->stash_layout[variant] = p.stash;
    emit_pass(b, type, plan, variant, &p, false);
    emit_pass(b, type, plan, variant, &p, true);
    draft_free(&p.forward);
    draft_free(&p.backward);
    bool sums = adds_grads_last(b), cuts = hides_in_pairs(b) && !plan->tape.has_loss;
    if (!sums && !cuts)
        return;
    Played other = { .stash = p.stash, .data = data, .host_before = p.host_before };
    play(b, plan, &draft, &other);
    if (cuts) {
        cut_pass(b, type, plan, variant, &other, false);
        cut_pass(b, type, plan, variant, &other, true);
    } else {
        sum_pass(b, type, plan, variant, &other);
    }
    draft_free(&other.forward);
    draft_free(&other.backward);
}

static uint32_t end_layout(Build *b, const Tape *t, uint32_t value)
{
    if (value == NONE_U32)
        return NONE_U32;
    const TapeValue *v = &t->values[value];
    return boundary_layout(b, v->dtype, v->rows, v->columns);
}

static void make_type(Build *b, BlockType *type, const BlockPlan *plan)
{
    type->has_loss = plan->tape.out == NONE_U32;
    type->in_layout = end_layout(b, &plan->tape, plan->tape.in);
    type->out_layout = end_layout(b, &plan->tape, plan->tape.out);
    uint32_t data = data_layout(b, &plan->tape);
    ASSERT(plan->tape.data_n <= TAPE_DATA_MAX);
    for (int v = 0; v < VARIANT_N; v++)
        type->made[v] = type->sum[v] = NONE_U32;
    make_variant(b, type, plan, VARIANT_PLAIN, data);
    if (plan->redo) {
        make_variant(b, type, plan, VARIANT_RECOMPUTE, data);
        return;
    }
    type->forward[VARIANT_RECOMPUTE] = type->forward[VARIANT_PLAIN];
    type->stash_layout[VARIANT_RECOMPUTE] = type->stash_layout[VARIANT_PLAIN];
    type->held_layout[VARIANT_RECOMPUTE] = type->held_layout[VARIANT_PLAIN];
    type->forward_parts[VARIANT_RECOMPUTE] = type->forward_parts[VARIANT_PLAIN];
    type->made[VARIANT_RECOMPUTE] = type->made[VARIANT_PLAIN];
    type->sum[VARIANT_RECOMPUTE] = type->sum[VARIANT_PLAIN];
    type->sum_ready_op[VARIANT_RECOMPUTE] = type->sum_ready_op[VARIANT_PLAIN];
    for (int m = 0; m < GRAD_MODE_N; m++) {
        type->backward[VARIANT_RECOMPUTE][m] = type->backward[VARIANT_PLAIN][m];
        type->weight[VARIANT_RECOMPUTE][m] = type->weight[VARIANT_PLAIN][m];
        type->backward_parts[VARIANT_RECOMPUTE][m] = type->backward_parts[VARIANT_PLAIN][m];
        type->ready_op[VARIANT_RECOMPUTE][m] = type->ready_op[VARIANT_PLAIN][m];
    }
}

/* What Transformer Engine keeps of each weight from its first cast on: it in fp8, and transposed,
 * as Hopper's matmuls want it in backward. */
static void copy_weights(Build *b, BlockType *type, const Tape *t)
{
    bool copies = b->sw->fp8_weight_copies && b->s->training.precision == DTYPE_FP8 &&
                  !shards_params(&b->s->parallel, b->sw);
    type->copy_layout = NONE_U32;
    for (uint32_t i = 0; i < t->ops_n && copies; i++) {
        const TapeOp *op = &t->ops[i];
        if (op->kind != OP_MATMUL || op->dtype != DTYPE_FP8)
            continue;
        const TapeValue *w = &t->values[op->param[0]];
        if (type->copy_layout == NONE_U32)
            type->copy_layout = graph_layout(b->g);
        add_tensor(b->g, "fp8 copies", TENSOR_PARAM, DTYPE_FP8, 2 * w->rows, w->columns);
    }
}

void make_segments(Build *b, ModelPlan *p)
{
    b->types_n = p->types_n;
    b->types = PUSH_ARRAY(&b->arena, BlockType, p->types_n);
    BlockType *last = &b->types[p->types_n - 1];
    for (uint32_t i = 0; i < p->types_n; i++) {
        BlockType *type = &b->types[i];
        if (p->tied && type == last) {
            type->param_layout = b->types[0].param_layout;
            type->grad_layout = b->types[0].grad_layout;
            type->state_layout = b->types[0].state_layout;
        } else {
            uint32_t n;
            const Tape *second = p->tied && i == 0 ? &p->types[p->types_n - 1].tape : NULL;
            const TapeValue **list = list_params(b, &p->types[i].tape, second, &n);
            own_params(b, type, list, n);
        }
        copy_weights(b, type, &p->types[i].tape);
        make_type(b, type, &p->types[i]);
    }
}

/*
 * lower.c - the walk: groups of logical ops in, kernels with lives and edges out.
 */
#include "sim/lower_parts.h"

#include <stdlib.h>
#include <string.h>

/* ---- building kernels ---- */

Kernel *lower_kernel(Lowering *l, Op op)
{
    GROW(l->kernels, l->kernels_n, l->kernels_cap);
    l->kernels[l->kernels_n] = (Kernel){ .op = op, .arg_first = l->args_n };
    return &l->kernels[l->kernels_n++];
}

void lower_arg(Lowering *l, Slot slot, uint32_t tensor, ArgMode mode)
{
    GROW(l->args, l->args_n, l->args_cap);
    l->args[l->args_n++] = (KernelArg){ slot, tensor, mode };
    l->kernels[l->kernels_n - 1].arg_n++;
}

KernelArg lower_temp(Lowering *l, const char *name, DType dtype, uint64_t rows,
                     uint64_t columns)
{
    GROW(l->temps, l->temps_n, l->temps_cap);
    l->temps[l->temps_n] = (Tensor){ .name = intern(&l->g->names, name),
                                     .class_ = TENSOR_BUFFER,
                                     .dtype = dtype,
                                     .bytes = rows * columns * dtype_bytes(dtype),
                                     .dims = { rows, columns } };
    return (KernelArg){ SLOT_LOCAL, l->locals_n + l->temps_n++, ARG_WRITE };
}

const Tensor *lower_tensor(const Lowering *l, Slot slot, uint32_t tensor)
{
    if (slot == SLOT_LOCAL && tensor >= l->locals_n)
        return &l->temps[tensor - l->locals_n];
    const Layout *layout = &l->g->layouts[l->s->layout[slot]];
    ASSERT(tensor < layout->tensor_n);
    return &l->g->tensors[layout->tensor_first + tensor];
}

uint64_t lower_bytes(const Lowering *l, KernelArg a)
{
    return lower_tensor(l, a.slot, a.tensor)->bytes;
}

/* ---- writing a group ---- */

typedef struct Life {
    bool born, dies;
} Life;

/* What the ops of the group said about a value; temporaries live inside the group. */
static Life life_of(const Lowering *l, KernelArg a)
{
    if (a.slot == SLOT_LOCAL && a.tensor >= l->locals_n)
        return (Life){ true, true };
    Life life = { false, false };
    for (uint32_t i = l->begin; i < l->begin + l->n; i++) {
        const Arg *args = l->old->args + l->ops[i].arg_first;
        for (uint32_t k = 0; k < l->ops[i].arg_n; k++)
            if (args[k].slot == (uint8_t)a.slot && args[k].tensor == a.tensor) {
                life.born = life.born || args[k].born;
                life.dies = life.dies || args[k].dies;
            }
    }
    return life;
}

static bool same_value(KernelArg a, KernelArg b)
{
    return a.slot == b.slot && a.tensor == b.tensor;
}

static bool is_first(const Lowering *l, uint32_t arg)
{
    for (uint32_t i = 0; i < arg; i++)
        if (same_value(l->args[i], l->args[arg]))
            return false;
    return true;
}

static bool is_last(const Lowering *l, uint32_t arg)
{
    for (uint32_t i = arg + 1; i < l->args_n; i++)
        if (same_value(l->args[i], l->args[arg]))
            return false;
    return true;
}

/* Deps of every op of the group, on whatever comes before the group: the first kernel has
 * them, but in a ring. */
static void write_deps(Lowering *l, uint32_t kernel)
{
    for (uint32_t i = l->begin; i < l->begin + l->n; i++)
        for (uint32_t d = 0; d < l->ops[i].dep_n; d++) {
            uint32_t op = l->old->deps[l->ops[i].dep_first + d];
            uint32_t at = op < l->begin ? ring_dep(l, kernel, op) : NONE_U32;
            if (at != NONE_U32)
                graph_dep(l->g, at);
        }
}

static void write_kernels(Lowering *l)
{
    for (uint32_t k = 0; k < l->kernels_n; k++) {
        const Kernel *kernel = &l->kernels[k];
        Op op = kernel->op;
        op.part = k;
        graph_op(l->g, op);
        for (uint32_t a = kernel->arg_first; a < kernel->arg_first + kernel->arg_n; a++) {
            Life life = life_of(l, l->args[a]);
            graph_arg(l->g, l->args[a].slot, l->args[a].tensor, l->args[a].mode,
                      life.born && is_first(l, a), life.dies && is_last(l, a));
        }
        for (uint32_t i = l->begin; i < l->begin + l->n && l->n > 1; i++)
            graph_logical(l->g, l->ops[i].logical);
        write_deps(l, k);
        if (k > 0 && op.lane != l->kernels[k - 1].op.lane)
            graph_dep(l->g, l->g->segments[l->g->segments_n - 1].op_n - 2);
    }
}

static void write_group(Lowering *l)
{
    uint32_t first = l->g->segments[l->g->segments_n - 1].op_n;
    write_kernels(l);
    uint32_t end = l->g->segments[l->g->segments_n - 1].op_n;
    for (uint32_t i = l->begin; i < l->begin + l->n; i++) {
        l->first[l->s->op_first + i] = first;
        l->last[l->s->op_first + i] = end - 1;
    }
}

/* One op that stays as it is. */
static void copy_op(Lowering *l, uint32_t op)
{
    const Op *from = &l->ops[op];
    uint32_t at = graph_op(l->g, *from);
    graph_args(l->g, l->old->args + from->arg_first, from->arg_n);
    for (uint32_t d = 0; d < from->dep_n; d++)
        graph_dep(l->g, l->last[l->s->op_first + l->old->deps[from->dep_first + d]]);
    l->first[l->s->op_first + op] = l->last[l->s->op_first + op] = at;
}

static void start_group(Lowering *l, uint32_t op)
{
    l->begin = op;
    l->n = 1;
    l->kernels_n = l->args_n = 0;
    const Op *from = &l->ops[op];
    lower_kernel(l, *from);
    for (uint32_t a = 0; a < from->arg_n; a++) {
        Arg arg = l->old->args[from->arg_first + a];
        lower_arg(l, (Slot)arg.slot, arg.tensor, (ArgMode)arg.mode);
    }
}

/* Returns how many ops the group has. */
static uint32_t lower_group(Lowering *l, uint32_t op)
{
    if (!lower_may_merge(&l->ops[op]) && !lower_may_expand(l, &l->ops[op])) {
        copy_op(l, op); /* collectives and copies, the most: they are not even looked at */
        return 1;
    }
    start_group(l, op);
    while (l->begin + l->n < l->s->op_n && lower_merge(l, &l->ops[l->begin + l->n]))
        l->n++;
    if (lower_expand(l) || l->n > 1)
        write_group(l);
    else
        copy_op(l, op);
    return l->n;
}

/* ---- segments and roles ---- */

/* The locals of the segment with those that lowering added. */
static uint32_t wider_layout(Lowering *l, uint32_t layout)
{
    if (l->temps_n == 0)
        return layout;
    Layout from = layout == NONE_U32 ? (Layout){ 0 } : l->g->layouts[layout];
    uint32_t wider = graph_layout(l->g);
    for (uint32_t t = 0; t < from.tensor_n; t++) {
        Tensor tensor = l->g->tensors[from.tensor_first + t];
        graph_tensor(l->g, tensor);
    }
    for (uint32_t t = 0; t < l->temps_n; t++)
        graph_tensor(l->g, l->temps[t]);
    return wider;
}

static void lower_segment(Lowering *l, uint32_t segment)
{
    l->s = &l->old->segments[segment];
    l->ops = l->old->ops + l->s->op_first;
    uint32_t local = l->s->layout[SLOT_LOCAL];
    l->locals_n = local == NONE_U32 ? 0 : l->g->layouts[local].tensor_n;
    l->temps_n = 0;
    uint32_t s = graph_segment_like(l->g, l->s);
    for (uint32_t i = 0; i < l->s->op_n;)
        i += lower_group(l, i);
    l->g->segments[s].layout[SLOT_LOCAL] = wider_layout(l, local);
}

/* Edges meant logical ops; now they mean the last kernel before and the first after. */
static void move_edges(const Lowering *l, Role *role)
{
    for (uint32_t i = 0; i < role->instances_n; i++) {
        const Instance *to = &role->instances[i];
        uint32_t dst = l->old->segments[to->segment].op_first;
        for (uint32_t e = to->edge_first; e < to->edge_first + to->edge_n; e++) {
            Edge *edge = &role->edges[e];
            uint32_t from = role->instances[edge->src_instance].segment;
            edge->dst_op = l->first[dst + edge->dst_op];
            edge->src_op = l->last[l->old->segments[from].op_first + edge->src_op];
        }
    }
}

static uint32_t logical_count(const Graph *g, const Segment *s)
{
    uint32_t n = s->logical_n;
    for (uint32_t i = 0; i < s->op_n; i++)
        n = g->ops[s->op_first + i].logical + 1 > n ? g->ops[s->op_first + i].logical + 1 : n;
    return n;
}

/* Of a segment that is on no tape: what its ops are, and how large. */
static uint64_t numbering_of(const Graph *g, const Segment *s)
{
    uint64_t h = mix_u64(s->op_n);
    for (uint32_t i = 0; i < s->op_n; i++) {
        const Op *op = &g->ops[s->op_first + i];
        uint64_t elements =
            op_is_comm(op->kind) ? op->u.comm.bytes / dtype_bytes(op->dtype) : op->u.elements;
        h = mix_u64(h ^ (uint64_t)op->kind) ^ op->logical;
        h = mix_u64(h) ^ elements;
    }
    return mix_u64(h) | 1;
}

bool lower(Build *b, Err *err)
{
    (void)err;
    Graph *g = b->g, old = *g;
    for (uint32_t s = 0; s < g->segments_n; s++) {
        old.segments[s].logical_n = logical_count(g, &old.segments[s]);
        if (old.segments[s].numbering == 0)
            old.segments[s].numbering = numbering_of(g, &old.segments[s]);
    }
    g->segments = NULL;
    g->ops = NULL;
    g->args = NULL;
    g->deps = NULL;
    g->segments_n = g->segments_cap = g->ops_n = g->ops_cap = 0;
    g->args_n = g->args_cap = g->deps_n = g->deps_cap = 0;
    Lowering l = { .b = b, .fusion = fusion_of(b), .g = g, .old = &old };
    l.casts = casts_each(b);
    l.name_head = intern_find(&g->names, NAME_HEAD);
    l.name_metrics = intern(&g->names, "metrics");
    l.first = mem_resize(NULL, old.ops_n, sizeof *l.first);
    l.last = mem_resize(NULL, old.ops_n, sizeof *l.last);
    graph_reserve(g, old.segments_n, old.ops_n + old.ops_n / 4, old.args_n + old.args_n / 4);
    for (uint32_t s = 0; s < old.segments_n; s++)
        lower_segment(&l, s);
    for (uint32_t r = 0; r < g->roles_n; r++)
        move_edges(&l, &g->roles[r]);
    free(l.first);
    free(l.last);
    free(l.kernels);
    free(l.args);
    free(l.temps);
    free(old.segments);
    free(old.ops);
    free(old.args);
    free(old.deps);
    return true;
}

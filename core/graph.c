/*
 * graph.c - building, sealing and looking things up.
 *
 * Everything is an append to an array; graph_seal then checks the whole and
 * fills what follows from it, so that readers need no checks of their own.
 */
#include "core/graph.h"

#include <stdlib.h>
#include <string.h>

const char *const lane_names[LANE_N] = {
    "compute",     "tp",          "cp",           "ep",           "reduce",    "replicate",
    "gather",      "send act",    "recv act",     "send grad",    "recv grad", "copy",
    "send act up", "recv act up", "send grad up", "recv grad up", "host"
};

const char *const op_kind_names[OP_KIND_N] = {
    "matmul",    "attention", "softmax",    "norm",          "activation", "add",
    "bias",      "rope",      "embedding",  "cross_entropy", "mse",        "conv",
    "batchnorm", "pool",      "optimizer",  "grad_norm",     "scale",      "cast",
    "copy",      "fill",      "h2d",        "all_reduce",    "all_gather", "reduce_scatter",
    "broadcast", "reduce",    "all_to_all", "send",          "recv",       "host_wait",
    "release"
};

const char *const op_phase_names[PHASE_N] = { "forward", "recompute", "dgrad", "wgrad",
                                              "update" };

const char *const op_fn_names[FN_N] = {
    "none",       "gelu",      "relu",    "relu2",         "silu",        "gated_gelu",
    "gated_silu", "layernorm", "rmsnorm", "add_layernorm", "add_rmsnorm", "bias",
    "bias_gelu",  "bias_relu", "sgd",     "momentum",      "adam",        "adamw"
};

const char *const tensor_class_names[TENSOR_CLASS_N] = { "params", "grads", "optimizer",
                                                         "activations", "buffers" };

const char *const segment_kind_names[SEGMENT_KIND_N] = { "input",     "forward", "backward",
                                                         "weight",    "sum",     "gather",
                                                         "reduce",    "send",    "recv",
                                                         "optimizer", "other" };

/* ---- groups ---- */

uint32_t group_size(const GroupSpec *s)
{
    uint32_t n = 1;
    for (uint32_t d = 0; d < s->dims_n; d++)
        n *= s->dims[d].count;
    return n;
}

static uint32_t coordinate(const GroupDim *d, uint32_t rank)
{
    return rank / d->stride % d->extent;
}

bool group_has(const GroupSpec *s, uint32_t rank)
{
    for (uint32_t d = 0; d < s->dims_n; d++) {
        uint32_t c = coordinate(&s->dims[d], rank);
        if (c % s->dims[d].step != 0 || c / s->dims[d].step >= s->dims[d].count)
            return false;
    }
    return true;
}

uint32_t group_base(const GroupSpec *s, uint32_t rank)
{
    uint32_t base = rank;
    for (uint32_t d = 0; d < s->dims_n; d++)
        base -= coordinate(&s->dims[d], rank) * s->dims[d].stride;
    return base;
}

uint32_t group_index(const GroupSpec *s, uint32_t rank)
{
    uint32_t index = 0, scale = 1;
    for (uint32_t d = 0; d < s->dims_n; d++) {
        index += coordinate(&s->dims[d], rank) / s->dims[d].step * scale;
        scale *= s->dims[d].count;
    }
    return index;
}

uint32_t group_member(const GroupSpec *s, uint32_t rank, uint32_t i)
{
    uint32_t member = group_base(s, rank);
    for (uint32_t d = 0; d < s->dims_n; d++) {
        member += i % s->dims[d].count * s->dims[d].step * s->dims[d].stride;
        i /= s->dims[d].count;
    }
    return member;
}

/* ---- building ---- */

uint32_t graph_segment(Graph *g, SegmentKind kind, const char *name)
{
    return graph_segment_named(g, kind, intern(&g->names, name));
}

uint32_t graph_segment_named(Graph *g, SegmentKind kind, uint32_t name)
{
    GROW(g->segments, g->segments_n, g->segments_cap);
    Segment *s = &g->segments[g->segments_n];
    *s = (Segment){ .kind = kind, .name = name, .op_first = g->ops_n };
    for (int i = 0; i < SLOT_N; i++)
        s->layout[i] = NONE_U32;
    return g->segments_n++;
}

uint32_t graph_segment_like(Graph *g, const Segment *other)
{
    GROW(g->segments, g->segments_n, g->segments_cap);
    Segment *s = &g->segments[g->segments_n];
    *s = (Segment){ .kind = other->kind,
                    .name = other->name,
                    .op_first = g->ops_n,
                    .logical_n = other->logical_n,
                    .numbering = other->numbering,
                    .host_before = other->host_before };
    memcpy(s->layout, other->layout, sizeof s->layout);
    return g->segments_n++;
}

uint32_t graph_op(Graph *g, Op op)
{
    ASSERT(g->segments_n > 0 && op.kind < OP_KIND_N && op.lane < LANE_N);
    GROW(g->ops, g->ops_n, g->ops_cap);
    op.arg_first = g->args_n;
    op.dep_first = g->deps_n;
    op.logical_first = g->logicals_n;
    op.arg_n = op.dep_n = op.logical_n = 0;
    g->ops[g->ops_n++] = op;
    g->segments[g->segments_n - 1].lanes |= 1u << op.lane;
    return g->segments[g->segments_n - 1].op_n++;
}

void graph_arg(Graph *g, Slot slot, uint32_t tensor, ArgMode mode, bool born, bool dies)
{
    GROW(g->args, g->args_n, g->args_cap);
    g->args[g->args_n++] = (Arg){ (uint8_t)slot, (uint8_t)mode, born, dies, tensor };
    Op *op = &g->ops[g->ops_n - 1];
    ASSERT(op->arg_first + op->arg_n + 1 == g->args_n);
    op->arg_n++;
}

void graph_args(Graph *g, const Arg *args, uint32_t n)
{
    RESERVE(g->args, g->args_n + n, g->args_cap);
    for (uint32_t i = 0; i < n; i++)
        g->args[g->args_n++] = args[i];
    Op *op = &g->ops[g->ops_n - 1];
    op->arg_n += n;
    ASSERT(op->arg_first + op->arg_n == g->args_n);
}

void graph_reserve(Graph *g, uint32_t segments_n, uint32_t ops_n, uint32_t args_n)
{
    RESERVE(g->segments, g->segments_n + segments_n, g->segments_cap);
    RESERVE(g->ops, g->ops_n + ops_n, g->ops_cap);
    RESERVE(g->args, g->args_n + args_n, g->args_cap);
}

void graph_dep(Graph *g, uint32_t earlier_op)
{
    GROW(g->deps, g->deps_n, g->deps_cap);
    g->deps[g->deps_n++] = earlier_op;
    Op *op = &g->ops[g->ops_n - 1];
    ASSERT(op->dep_first + op->dep_n + 1 == g->deps_n);
    ASSERT(earlier_op + 1 < g->segments[g->segments_n - 1].op_n);
    op->dep_n++;
}

void graph_logical(Graph *g, uint32_t logical)
{
    GROW(g->logicals, g->logicals_n, g->logicals_cap);
    g->logicals[g->logicals_n++] = logical;
    Op *op = &g->ops[g->ops_n - 1];
    ASSERT(op->logical_first + op->logical_n + 1 == g->logicals_n);
    op->logical_n++;
}

uint32_t graph_group(Graph *g, const char *name, const GroupDim *dims, uint32_t dims_n)
{
    ASSERT(dims_n <= GROUP_DIMS_MAX);
    GROW(g->groups, g->groups_n, g->groups_cap);
    GroupSpec *s = &g->groups[g->groups_n];
    *s = (GroupSpec){ .name = intern(&g->names, name), .dims_n = dims_n };
    if (dims_n)
        memcpy(s->dims, dims, dims_n * sizeof *dims);
    return g->groups_n++;
}

uint32_t graph_layout(Graph *g)
{
    GROW(g->layouts, g->layouts_n, g->layouts_cap);
    g->layouts[g->layouts_n] = (Layout){ g->tensors_n, 0 };
    return g->layouts_n++;
}

uint32_t graph_tensor(Graph *g, Tensor tensor)
{
    ASSERT(g->layouts_n > 0);
    GROW(g->tensors, g->tensors_n, g->tensors_cap);
    g->tensors[g->tensors_n++] = tensor;
    Layout *l = &g->layouts[g->layouts_n - 1];
    ASSERT(l->tensor_first + l->tensor_n + 1 == g->tensors_n);
    return l->tensor_n++;
}

uint32_t graph_role(Graph *g, const char *name, uint32_t stage)
{
    GROW(g->roles, g->roles_n, g->roles_cap);
    g->roles[g->roles_n] = (Role){ .name = intern(&g->names, name), .stage = stage };
    return g->roles_n++;
}

void role_reserve(Role *role, uint32_t instances_n, uint32_t edges_n, uint32_t frames_n)
{
    RESERVE(role->instances, role->instances_n + instances_n, role->instances_cap);
    RESERVE(role->edges, role->edges_n + edges_n, role->edges_cap);
    RESERVE(role->frames, role->frames_n + frames_n, role->frames_cap);
}

uint32_t role_frame(Role *role, Frame frame)
{
    GROW(role->frames, role->frames_n, role->frames_cap);
    role->frames[role->frames_n] = frame;
    return role->frames_n++;
}

uint32_t role_instance(Role *role, uint32_t segment, uint32_t micro_batch, uint32_t layer,
                       uint32_t chunk)
{
    GROW(role->instances, role->instances_n, role->instances_cap);
    Instance *i = &role->instances[role->instances_n];
    *i = (Instance){ .segment = segment,
                     .micro_batch = micro_batch,
                     .layer = layer,
                     .chunk = chunk,
                     .edge_first = role->edges_n };
    for (int s = 0; s < SLOT_N; s++)
        i->frame[s] = NONE_U32;
    return role->instances_n++;
}

uint32_t role_instance_like(Role *role, const Instance *other)
{
    GROW(role->instances, role->instances_n, role->instances_cap);
    Instance *i = &role->instances[role->instances_n];
    *i = *other;
    i->edge_first = role->edges_n;
    i->edge_n = 0;
    return role->instances_n++;
}

/* Edges of an instance stay sorted by dst_op; there are few. */
void role_edge(Role *role, uint32_t dst_op, uint32_t src_instance, uint32_t src_op)
{
    ASSERT(role->instances_n > 0);
    GROW(role->edges, role->edges_n, role->edges_cap);
    Instance *i = &role->instances[role->instances_n - 1];
    ASSERT(i->edge_first + i->edge_n == role->edges_n);
    uint32_t at = role->edges_n++;
    for (; at > i->edge_first && role->edges[at - 1].dst_op > dst_op; at--)
        role->edges[at] = role->edges[at - 1];
    role->edges[at] = (Edge){ dst_op, src_instance, src_op };
    i->edge_n++;
}

/* ---- sealing ---- */

const Tensor *graph_arg_tensor(const Graph *g, const Segment *s, const Arg *a)
{
    ASSERT(a->slot < SLOT_N && s->layout[a->slot] < g->layouts_n);
    const Layout *l = &g->layouts[s->layout[a->slot]];
    ASSERT(a->tensor < l->tensor_n);
    return &g->tensors[l->tensor_first + a->tensor];
}

static void seal_memory(const Graph *g, Segment *s)
{
    int64_t now = 0, peak = 0;
    memset(s->memory_delta_of, 0, sizeof s->memory_delta_of);
    for (uint32_t i = 0; i < s->op_n; i++) {
        const Op *op = &g->ops[s->op_first + i];
        int64_t freed = 0;
        for (uint32_t a = 0; a < op->arg_n; a++) {
            const Arg *arg = &g->args[op->arg_first + a];
            const Tensor *t = graph_arg_tensor(g, s, arg);
            int64_t born = arg->born ? (int64_t)t->bytes : 0;
            int64_t dead = arg->dies ? (int64_t)t->bytes : 0;
            now += born;
            freed += dead;
            s->memory_delta_of[t->class_] += born - dead;
        }
        peak = max_i64(peak, now);
        now -= freed;
    }
    s->memory_delta = now;
    s->memory_peak = peak;
}

static void check_op(const Graph *g, const Segment *s, const Op *op, uint32_t i)
{
    ASSERT(op->arg_first + op->arg_n <= g->args_n && op->dep_first + op->dep_n <= g->deps_n);
    for (uint32_t d = 0; d < op->dep_n; d++)
        ASSERT(g->deps[op->dep_first + d] < i);
    if (op_is_comm(op->kind)) {
        ASSERT(op->u.comm.group < g->groups_n);
        ASSERT(op->lane != LANE_HOST);
        ASSERT(op->u.comm.peer < group_size(&g->groups[op->u.comm.group]));
    }
    ASSERT(op->lane != LANE_HOST || s->lane_n[LANE_HOST] == i);
    ASSERT((op->kind == OP_HOST_WAIT) == (op->lane == LANE_HOST) || op->kind == OP_RELEASE);
    if (op->grouped) {
        ASSERT(op_is_p2p(op->kind) && i + 1 < s->op_n);
        ASSERT(op[1].lane == op->lane && op_is_p2p(op[1].kind));
    }
}

static void seal_segment(const Graph *g, Segment *s)
{
    memset(s->lane_n, 0, sizeof s->lane_n);
    uint32_t logical_n = 0;
    for (uint32_t i = 0; i < s->op_n; i++) {
        Op *op = &g->ops[s->op_first + i];
        check_op(g, s, op, i);
        op->lane_index = s->lane_n[op->lane]++;
        logical_n = op->logical + 1 > logical_n ? op->logical + 1 : logical_n;
        for (uint32_t k = op->logical_first; k < op->logical_first + op->logical_n; k++)
            logical_n = g->logicals[k] + 1 > logical_n ? g->logicals[k] + 1 : logical_n;
    }
    if (s->logical_n == 0)
        s->logical_n = logical_n;
    ASSERT(logical_n <= s->logical_n);
    s->slots = 0;
    for (uint32_t slot = 0; slot < SLOT_N; slot++)
        s->slots |= (uint32_t)(s->layout[slot] != NONE_U32) << slot;
    seal_memory(g, s);
}

static void check_edges(const Graph *g, const Role *role, uint32_t n)
{
    const Instance *i = &role->instances[n];
    const Edge *edge = role->edges + i->edge_first, *end = edge + i->edge_n;
    uint32_t op_n = g->segments[i->segment].op_n, before = 0;
    for (; edge < end; edge++) {
        ASSERT(edge->src_instance < n && edge->dst_op < op_n);
        ASSERT(edge->src_op < g->segments[role->instances[edge->src_instance].segment].op_n);
        ASSERT(before <= edge->dst_op);
        before = edge->dst_op;
    }
}

static void check_frames(const Graph *g, const Role *role, const Instance *i)
{
    const Segment *s = &g->segments[i->segment];
    for (uint32_t left = s->slots; left; left &= left - 1) {
        uint32_t slot = (uint32_t)__builtin_ctz(left), frame = i->frame[slot];
        if (frame == NONE_U32)
            continue;
        ASSERT(frame < role->frames_n);
        ASSERT(role->frames[frame].layout == s->layout[slot]);
    }
}

static void seal_role(const Graph *g, Role *role)
{
    uint64_t ops = 0;
    for (uint32_t n = 0; n < role->instances_n; n++) {
        Instance *i = &role->instances[n];
        ASSERT(i->segment < g->segments_n);
        const Segment *s = &g->segments[i->segment];
        i->first_op = (uint32_t)ops;
        ops += s->op_n;
        if (i->edge_n > 0)
            check_edges(g, role, n);
        check_frames(g, role, i);
    }
    ASSERT(ops < NONE_U32);
    role->ops_n = ops;
}

static void check_group(const Graph *g, const GroupSpec *s)
{
    for (uint32_t i = 0; i < s->dims_n; i++) {
        const GroupDim *d = &s->dims[i];
        ASSERT(d->stride > 0 && d->extent > 0 && d->step > 0 && d->count > 0);
        ASSERT((uint64_t)d->step * (d->count - 1) < d->extent);
        ASSERT((uint64_t)d->stride * d->extent <= g->world_n);
    }
}

void graph_seal(Graph *g)
{
    ASSERT(g->role_extent > 0 && g->role_stride > 0 && g->world_n > 0);
    for (uint32_t i = 0; i < g->role_extent; i++)
        ASSERT(g->role_of[i] < g->roles_n);
    for (uint32_t i = 0; i < g->groups_n; i++)
        check_group(g, &g->groups[i]);
    for (uint32_t i = 0; i < g->segments_n; i++)
        seal_segment(g, &g->segments[i]);
    for (uint32_t i = 0; i < g->roles_n; i++)
        seal_role(g, &g->roles[i]);
    g->sealed = true;
}

void graph_free(Graph *g)
{
    for (uint32_t i = 0; i < g->roles_n; i++) {
        free(g->roles[i].instances);
        free(g->roles[i].edges);
        free(g->roles[i].frames);
    }
    free(g->roles);
    free(g->role_of);
    free(g->groups);
    free(g->segments);
    free(g->ops);
    free(g->args);
    free(g->deps);
    free(g->logicals);
    free(g->layouts);
    free(g->tensors);
    intern_free(&g->names);
    *g = (Graph){ 0 };
}

/* ---- looking ---- */

const Role *graph_role_of(const Graph *g, uint32_t rank)
{
    ASSERT(rank < g->world_n);
    return &g->roles[g->role_of[rank / g->role_stride % g->role_extent]];
}

uint32_t role_micro_batches(const Role *role)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < role->instances_n; i++)
        if (role->instances[i].micro_batch != NONE_U32 && role->instances[i].micro_batch >= n)
            n = role->instances[i].micro_batch + 1;
    return n;
}

OpRef graph_find_op(const Graph *g, const Role *role, uint32_t op_id)
{
    ASSERT(op_id < role->ops_n);
    uint32_t low = 0, high = role->instances_n;
    while (high - low > 1) {
        uint32_t mid = low + (high - low) / 2;
        if (role->instances[mid].first_op <= op_id)
            low = mid;
        else
            high = mid;
    }
    const Instance *i = &role->instances[low];
    const Segment *s = &g->segments[i->segment];
    uint32_t op = op_id - i->first_op;
    ASSERT(op < s->op_n);
    return (OpRef){ low, op, i, graph_ops(g, s) + op };
}

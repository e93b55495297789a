/*
 * parts.c - points, waiting, weaving.
 */
#include "sim/strategy/parts.h"

#include <stdlib.h>
#include <string.h>

/* ---- points ---- */

static const Segment *segment_of(const Graph *g, const Role *role, uint32_t instance)
{
    return &g->segments[role->instances[instance].segment];
}

uint32_t segment_last_op(const Graph *g, const Segment *s, Lane lane)
{
    for (uint32_t i = s->op_n; i-- > 0;)
        if (graph_ops(g, s)[i].lane == lane)
            return i;
    return NONE_U32;
}

Point last_op(const Graph *g, const Role *role, uint32_t instance, Lane lane)
{
    uint32_t op = segment_last_op(g, segment_of(g, role, instance), lane);
    return op == NONE_U32 ? NOWHERE : (Point){ instance, op };
}

Point newest_compute(const Graph *g, const Role *role)
{
    for (uint32_t i = role->instances_n; i-- > 0;) {
        Point p = last_op(g, role, i, LANE_COMPUTE);
        if (point_is(p))
            return p;
    }
    return NOWHERE;
}

static bool writes(const Graph *g, const Op *op, Slot slot)
{
    for (uint32_t a = 0; a < op->arg_n; a++) {
        const Arg *arg = &g->args[op->arg_first + a];
        if (arg->slot == (uint8_t)slot && arg->mode != ARG_READ)
            return true;
    }
    return false;
}

uint32_t segment_last_writer(const Graph *g, const Segment *s, Slot slot)
{
    for (uint32_t i = s->op_n; i-- > 0;)
        if (writes(g, &graph_ops(g, s)[i], slot))
            return i;
    return segment_last_op(g, s, LANE_COMPUTE);
}

void wait_at(Role *role, uint32_t dst_op, Point src)
{
    if (!point_is(src))
        return;
    const Instance *i = &role->instances[role->instances_n - 1];
    for (uint32_t e = 0; e < i->edge_n; e++) {
        const Edge *edge = &role->edges[i->edge_first + e];
        if (edge->dst_op == dst_op && edge->src_instance == src.instance &&
            edge->src_op == src.op)
            return;
    }
    role_edge(role, dst_op, src.instance, src.op);
}

/* An op can start an instance when it is the first on its lane and waits for none before it. */
Starts segment_starts(const Graph *g, const Segment *s)
{
    Starts starts = { .n = 0 };
    uint32_t seen = 0;
    for (uint32_t i = 0; i < s->op_n && seen != s->lanes; i++) {
        const Op *op = &graph_ops(g, s)[i];
        uint32_t bit = (uint32_t)1 << op->lane;
        if (!(seen & bit) && op->dep_n == 0)
            starts.op[starts.n++] = i;
        seen |= bit;
    }
    return starts;
}

Starts *all_starts(Build *b)
{
    Starts *all = PUSH_ARRAY(&b->arena, Starts, b->g->segments_n);
    for (uint32_t s = 0; s < b->g->segments_n; s++)
        all[s] = segment_starts(b->g, &b->g->segments[s]);
    return all;
}

void wait_at_start(const Graph *g, Role *role, Point src)
{
    Starts starts = segment_starts(g, segment_of(g, role, role->instances_n - 1));
    wait_starts(role, &starts, src);
}

/* ---- looking ---- */

uint32_t param_group(const Build *b, const Param *p)
{
    return p->expert ? b->group[GROUP_EDP] : share_group(b);
}

uint32_t group_ranks(const Build *b, uint32_t group)
{
    return group == NONE_U32 ? 1 : group_size(&b->g->groups[group]);
}

bool has_replicas(const Build *b)
{
    return b->group[GROUP_DP] != NONE_U32 || b->group[GROUP_EDP] != NONE_U32;
}

bool shards_grads(const Build *b)
{
    bool zero2 = b->s->parallel.strategy == STRATEGY_ZERO2 && has_replicas(b);
    return zero2 || shards_params(&b->s->parallel, b->sw);
}

const Tensor *layout_tensor(const Graph *g, uint32_t layout, uint32_t tensor)
{
    ASSERT(layout < g->layouts_n && tensor < g->layouts[layout].tensor_n);
    return &g->tensors[g->layouts[layout].tensor_first + tensor];
}

uint64_t layout_bytes(const Graph *g, uint32_t layout)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; layout != NONE_U32 && i < g->layouts[layout].tensor_n; i++)
        bytes += layout_tensor(g, layout, i)->bytes;
    return bytes;
}

uint32_t idle_segment(Graph *g, const char *name, OpPhase phase, Slot slot, uint32_t layout)
{
    uint32_t s = graph_segment(g, SEGMENT_OTHER, name);
    g->segments[s].layout[slot] = layout;
    graph_op(g, (Op){ .kind = OP_RELEASE,
                      .phase = phase,
                      .lane = LANE_COMPUTE,
                      .name = g->segments[s].name });
    return s;
}

void arg_each(Graph *g, Slot slot, uint32_t layout, ArgMode mode, bool born, bool dies)
{
    for (uint32_t i = 0; layout != NONE_U32 && i < g->layouts[layout].tensor_n; i++)
        graph_arg(g, slot, i, mode, born, dies);
}

const BlockType *block_type(const Build *b, uint32_t block)
{
    return &b->types[b->blocks[block].type];
}

static bool has_segment(const BlockType *t, uint32_t segment)
{
    for (int v = 0; v < VARIANT_N; v++) {
        if (t->forward[v] == segment || t->made[v] == segment || t->sum[v] == segment)
            return true;
        for (int m = 0; m < GRAD_MODE_N; m++)
            if (t->backward[v][m] == segment || t->weight[v][m] == segment)
                return true;
    }
    return false;
}

/* Layers carry their number; embedding and head are told apart by their segments. */
uint32_t block_of(const Build *b, const Instance *i)
{
    SegmentKind kind = b->g->segments[i->segment].kind;
    if (kind != SEGMENT_FORWARD && kind != SEGMENT_BACKWARD && kind != SEGMENT_WEIGHT &&
        kind != SEGMENT_SUM)
        return NONE_U32;
    if (i->layer != NONE_U32)
        return i->layer + (b->blocks[0].kind == BLOCK_EMBEDDING);
    return has_segment(block_type(b, 0), i->segment) ? 0 : b->blocks_n - 1;
}

const uint32_t *ready_ops(const Build *b, uint32_t block, uint32_t segment)
{
    const BlockType *t = block_type(b, block);
    Variant v = b->variant[block];
    if (t->sum[v] == segment)
        return t->sum_ready_op[v];
    int m = 0;
    while (m < GRAD_MODE_N && t->backward[v][m] != segment && t->weight[v][m] != segment)
        m++;
    ASSERT(m < GRAD_MODE_N);
    return t->ready_op[v][m];
}

/* ---- weaving ---- */

void weave_begin(Weave *w, Role *role, uint32_t more)
{
    *w = (Weave){ .role = role, .old = *role };
    w->now = mem_resize(NULL, role->instances_n, sizeof *w->now);
    role->instances = NULL;
    role->edges = NULL;
    role->instances_n = role->instances_cap = role->edges_n = role->edges_cap = 0;
    role_reserve(role, w->old.instances_n + more, w->old.edges_n + more, 0);
}

bool weave_left(const Weave *w)
{
    return w->next < w->old.instances_n;
}

const Instance *weave_next(const Weave *w)
{
    ASSERT(weave_left(w));
    return &w->old.instances[w->next];
}

/* An old instance's edges are in order already. */
static void keep_edges(const Weave *w, const Instance *from)
{
    Role *role = w->role;
    RESERVE(role->edges, role->edges_n + from->edge_n, role->edges_cap);
    const Edge *edge = w->old.edges + from->edge_first, *end = edge + from->edge_n;
    for (; edge < end; edge++)
        role->edges[role->edges_n++] =
            (Edge){ edge->dst_op, w->now[edge->src_instance], edge->src_op };
}

uint32_t weave_keep(Weave *w)
{
    Role *role = w->role;
    const Instance *from = weave_next(w);
    GROW(role->instances, role->instances_n, role->instances_cap);
    uint32_t n = w->now[w->next++] = role->instances_n++;
    role->instances[n] = *from;
    role->instances[n].edge_first = role->edges_n;
    if (from->edge_n > 0)
        keep_edges(w, from);
    return n;
}

/* As long as nothing has been added, all is kept as it is: nearly the whole program, where what is
 * added belongs to its last micro-batch. */
static void keep_beginning(Weave *w, uint32_t end)
{
    Role *role = w->role;
    uint32_t n = end - w->next;
    const Instance *from = &w->old.instances[w->next], *last = from + n - 1;
    uint32_t edges_n = last->edge_first + last->edge_n - role->edges_n;
    RESERVE(role->instances, end, role->instances_cap);
    RESERVE(role->edges, role->edges_n + edges_n, role->edges_cap);
    memcpy(role->instances + w->next, from, n * sizeof *from);
    if (edges_n > 0)
        memcpy(role->edges + role->edges_n, w->old.edges + role->edges_n,
               edges_n * sizeof *role->edges);
    role->instances_n = end;
    role->edges_n += edges_n;
    for (; w->next < end; w->next++)
        w->now[w->next] = w->next;
}

void weave_keep_to(Weave *w, uint32_t end)
{
    Role *role = w->role;
    ASSERT(end <= w->old.instances_n);
    bool begins = role->instances_n == w->next && w->next < end &&
                  role->edges_n == w->old.instances[w->next].edge_first;
    if (begins)
        keep_beginning(w, end);
    while (w->next < end)
        weave_keep(w);
}

void weave_end(Weave *w)
{
    ASSERT(!weave_left(w));
    free(w->old.instances);
    free(w->old.edges);
    free(w->now);
    *w = (Weave){ 0 };
}

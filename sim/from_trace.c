/*
 * from_trace.c - from rank programs to a graph, with the cost of every op beside it.
 *
 * A rank is a role.  Its segments end where the host waits:
 *
 *     segment 0                          segment 1
 *     k1  (delay) k2  ar  k3  (host)     host wait -> k3, k4 ...
 *
 * Delays and host time without a launch are release ops that take that long: they
 * keep their lane, or the host, and are neither compute nor shown.
 */
#include <stdlib.h>
#include <string.h>

#include "sim/from_trace_parts.h"

/* What "bytes unknown" becomes in the graph; its time is given. */
enum { BYTES_UNKNOWN = 0 };

/* A group of the trace: which of the graph's it is; NONE_U32: of one rank. */
typedef struct KnownGroup {
    uint32_t name, id, group;
} KnownGroup;

typedef struct Builder {
    FromTrace *f;
    const Timeline *t;
    const FromTraceOptions *o;
    RankProgram *programs;
    uint32_t programs_n;
    uint32_t self_group; /* of one rank; NONE_U32: not made yet */
    KnownGroup *known;
    uint32_t known_n, known_cap;
    Err *err;
    uint32_t world_group; /* of all ranks, for sends; NONE_U32: not made yet */
    /* Of the program at work: where each item's op is. */
    uint32_t *instance_of, *op_of;
    uint32_t instance;
} Builder;

/* ---- groups ---- */

static uint32_t add_group_dim(Builder *b, const char *name, GroupDim dim)
{
    Graph *g = &b->f->graph;
    uint32_t id = intern(&g->names, name);
    for (uint32_t i = 0; i < g->groups_n; i++)
        if (g->groups[i].name == id && memcmp(g->groups[i].dims, &dim, sizeof dim) == 0)
            return i;
    return graph_group(g, name, &dim, 1);
}

static uint32_t add_group(Builder *b, const char *name, uint32_t stride, uint32_t n)
{
    return add_group_dim(b, name, (GroupDim){ stride, n, 1, n });
}

static bool same_group(const Item *x, const Item *y)
{
    if (!x->comm || !y->comm)
        return true;
    return x->comm->group == y->comm->group && x->comm->group_id == y->comm->group_id;
}

static bool is_member(const RankProgram *p, const Item *like)
{
    for (uint32_t k = 0; k < p->order_n; k++) {
        const Item *i = &p->items[p->order[k]];
        if (i->kind == ITEM_COMM && i->comm && same_group(i, like))
            return true;
    }
    return false;
}

/* The dimension in which first, first + distance, ... differ, as {first, last stage} do among the
 * stages; false: there is none. */
static bool dim_of(GroupDim *dim, uint32_t world_n, uint32_t first, uint32_t distance,
                   uint32_t n)
{
    for (uint32_t stride = distance; stride > 0; stride--) {
        uint64_t step = distance / stride, extent = step * (n - 1) + 1;
        if (distance % stride || stride * extent > world_n)
            continue;
        *dim = (GroupDim){ stride, (uint32_t)extent, (uint32_t)step, n };
        GroupSpec spec = { .dims_n = 1, .dims = { *dim } };
        if (group_has(&spec, first) && group_base(&spec, first) == first)
            return true;
    }
    return false;
}

/* Ranks of the item's group must be evenly spaced, as those of a parallel dimension are. */
static bool group_of_members(Builder *b, const Item *i, uint32_t *group)
{
    const char *name = timeline_text(b->t, i->comm->group);
    uint32_t first = NONE_U32, last = NONE_U32, distance = 1, n = 0;
    bool even = true;
    for (uint32_t r = 0; r < b->programs_n; r++) {
        if (!is_member(&b->programs[r], i))
            continue;
        if (n == 0)
            first = r;
        else if (n == 1)
            distance = r - first;
        else
            even &= r - last == distance;
        last = r;
        n++;
    }
    GroupDim dim;
    *group = NONE_U32;
    if (n < 2)
        return true;
    if (!even || !dim_of(&dim, b->f->world_n, first, distance, n))
        return err_set(b->err,
                       "the ranks of group '%.60s' in the trace are not evenly spaced: such "
                       "groups cannot be simulated yet",
                       name);
    *group = add_group_dim(b, *name ? name : "group", dim);
    return true;
}

/* The same, looked up once for each group. */
static bool group_known(Builder *b, const Item *i, uint32_t *group)
{
    for (uint32_t k = 0; k < b->known_n; k++)
        if (b->known[k].name == i->comm->group && b->known[k].id == i->comm->group_id) {
            *group = b->known[k].group;
            return true;
        }
    if (!group_of_members(b, i, group))
        return false;
    GROW(b->known, b->known_n, b->known_cap);
    b->known[b->known_n++] = (KnownGroup){ i->comm->group, i->comm->group_id, *group };
    return true;
}

static uint32_t self_group(Builder *b)
{
    if (b->self_group == NONE_U32)
        b->self_group = add_group(b, "alone", 1, 1);
    return b->self_group;
}

static bool holds(const Builder *b, uint32_t group, uint32_t x, uint32_t y)
{
    const GroupSpec *g = &b->f->graph.groups[group];
    return group_has(g, x) && group_has(g, y) && group_base(g, x) == group_base(g, y);
}

/* Its process group where that is one of the graph, else all ranks. */
static uint32_t group_of_pair(Builder *b, uint32_t program, const Item *i)
{
    Err ignored = { 0 }, *err = b->err;
    uint32_t group = NONE_U32;
    b->err = &ignored;
    if (i->comm->group == NONE_U32 || !group_known(b, i, &group))
        group = NONE_U32;
    b->err = err;
    if (group != NONE_U32 && holds(b, group, program, i->peer_program))
        return group;
    if (b->world_group == NONE_U32)
        b->world_group = add_group(b, "all", 1, b->f->world_n);
    return b->world_group;
}

/* Group and kind of a collective; alone where its other ends are not to be found. */
static bool group_of(Builder *b, const Item *i, uint32_t *group)
{
    const char *name = i->comm ? timeline_text(b->t, i->comm->group) : "";
    *group = NONE_U32;
    if (item_is_p2p(i, b->t)) {
        *group = self_group(b);
        return true;
    }
    if (b->programs_n == 1) {
        uint32_t n = i->comm && i->comm->ranks_n ? i->comm->ranks_n : b->f->world_n;
        *group = n > 1 ? add_group(b, *name ? name : "all", 1, n) : self_group(b);
        return true;
    }
    if (!i->comm || i->comm->group == NONE_U32)
        *group = add_group(b, "all", 1, b->f->world_n);
    else if (!group_known(b, i, group))
        return false;
    if (*group == NONE_U32)
        *group = self_group(b);
    return true;
}

/* OP_KIND_N: none that is simulated, a gather or an exchange with several at once. */
static OpKind kind_of(const Builder *b, const Item *i)
{
    const char *op = i->comm ? timeline_text(b->t, i->comm->op) : "";
    OpKind k = OP_ALL_REDUCE;
    while (k <= OP_ALL_TO_ALL && strcmp(op, op_kind_names[k]) != 0)
        k++;
    return k <= OP_ALL_TO_ALL ? k : OP_KIND_N;
}

/* ---- ops ---- */

static uint32_t add_op(Builder *b, Op op, int64_t ns, int64_t launch_ns, int64_t comm_ns)
{
    FromTrace *f = b->f;
    Graph *g = &f->graph;
    uint32_t at = g->ops_n, local = graph_op(g, op);
    if (at >= f->costs_cap) {
        f->costs_cap = f->costs_cap ? 2 * f->costs_cap : 1024;
        f->costs = mem_resize(f->costs, f->costs_cap, sizeof *f->costs);
        f->launch_ns = mem_resize(f->launch_ns, f->costs_cap, sizeof *f->launch_ns);
        f->comm_ns = mem_resize(f->comm_ns, f->costs_cap, sizeof *f->comm_ns);
    }
    f->costs[at] = (OpCost){ ns, ns };
    f->launch_ns[at] = launch_ns;
    f->comm_ns[at] = comm_ns;
    return local;
}

/* Dependencies of an item become those of the op just added, on the same segment or before. */
static void add_deps(Builder *b, RankProgram *p, Role *role, const Item *i, uint32_t op)
{
    for (uint32_t d = 0; d < i->deps_n; d++) {
        uint32_t on = i->dep[d];
        while (p->items[on].instead != NONE_U32)
            on = p->items[on].instead;
        if (b->instance_of[on] == NONE_U32)
            continue;
        if (b->instance_of[on] == b->instance)
            graph_dep(&b->f->graph, b->op_of[on]);
        else
            role_edge(role, op, b->instance_of[on], b->op_of[on]);
    }
}

static uint32_t begin_segment(Builder *b, uint32_t role)
{
    uint32_t s = graph_segment(&b->f->graph, SEGMENT_OTHER, "recorded");
    return b->instance =
               role_instance(&b->f->graph.roles[role], s, NONE_U32, NONE_U32, NONE_U32);
}

static Op release_on(Lane lane, uint32_t name)
{
    return (Op){ .kind = OP_RELEASE, .lane = lane, .name = name, .dtype = DTYPE_F32 };
}

/* Host time, then a new segment that begins with the wait. */
static void add_sync(Builder *b, RankProgram *p, uint32_t role, const Item *i)
{
    uint32_t name = intern(&b->f->graph.names, "host");
    if (i->launch_ns > 0)
        add_op(b, release_on(LANE_COMPUTE, name), 0, i->launch_ns, -1);
    begin_segment(b, role);
    Op wait = { .kind = OP_HOST_WAIT, .lane = LANE_HOST, .dtype = DTYPE_F32 };
    wait.name = intern(&b->f->graph.names, i->name);
    uint32_t op = add_op(b, wait, 0, 0, -1);
    add_deps(b, p, &b->f->graph.roles[role], i, op);
    b->f->syncs_n++;
}

static DType dtype_of(const Builder *b, const Item *i)
{
    const char *name = i->comm ? timeline_text(b->t, i->comm->dtype) : "";
    for (DType k = 0; k < DTYPE_N; k++)
        if (strcmp(name, dtype_names[k]) == 0)
            return k;
    return DTYPE_F32;
}

static bool add_comm(Builder *b, const Item *i, int64_t launch_ns, uint32_t *op)
{
    uint32_t group;
    if (!group_of(b, i, &group))
        return false;
    OpKind kind = kind_of(b, i);
    bool priced = kind != OP_KIND_N && i->bytes != NONE_U64;
    /* Where time and group are given, the kind is a name only. */
    Op o = { .kind = kind == OP_KIND_N ? OP_ALL_REDUCE : kind,
             .lane = i->lane,
             .dtype = dtype_of(b, i) };
    o.name = intern(&b->f->graph.names, i->name);
    /* Alone it meets nobody: what it waited for, it waits for again. */
    bool alone = group == b->self_group;
    bool modelled = b->o->on_machine && priced && !alone;
    int64_t given_ns = alone ? i->end_ns - i->start_ns : i->transfer_ns;
    uint64_t bytes = i->bytes != NONE_U64 ? i->bytes : BYTES_UNKNOWN;
    o.u.comm = (CommShape){ .bytes = bytes, .group = group };
    if (i->comm)
        o.u.comm.of = timeline_ring_steps(b->t, i->comm);
    *op = add_op(b, o, 0, launch_ns, modelled ? -1 : given_ns);
    b->f->comms_n++;
    b->f->unsized_n += !priced;
    b->f->ungrouped_n +=
        alone && priced && !item_is_p2p(i, b->t) && (!i->comm || i->comm->ranks_n != 1);
    b->f->unwaited_n +=
        b->f->world_n > 1 && b->programs_n == 1 && (!i->comm || i->comm->wait_ns < 0);
    b->f->alone_n += item_is_p2p(i, b->t);
    return true;
}

/* One end of a pair; the engine has them meet. */
static uint32_t add_end(Builder *b, uint32_t program, const Item *i, int64_t launch_ns,
                        bool grouped)
{
    uint32_t group = group_of_pair(b, program, i);
    const GroupSpec *spec = &b->f->graph.groups[group];
    bool receives = strcmp(timeline_text(b->t, i->comm->op), "recv") == 0;
    bool modelled = b->o->on_machine && i->bytes != NONE_U64;
    Op o = { .kind = receives ? OP_RECV : OP_SEND,
             .lane = i->lane,
             .dtype = dtype_of(b, i),
             .grouped = grouped };
    o.name = intern(&b->f->graph.names, i->name);
    o.u.comm = (CommShape){ .bytes = i->bytes != NONE_U64 ? i->bytes : BYTES_UNKNOWN,
                            .group = group,
                            .peer = group_index(spec, i->peer_program),
                            .tag = i->tag };
    b->f->comms_n++;
    b->f->unsized_n += i->bytes == NONE_U64;
    return add_op(b, o, 0, launch_ns, modelled ? -1 : i->transfer_ns);
}

/* Posted together with the one before: both ends of pairs, of one stream, at one time. */
static bool posted_with(const RankProgram *p, uint32_t before, uint32_t at)
{
    const Item *a = &p->items[p->order[before]], *i = &p->items[p->order[at]];
    return a->peer_program != NONE_U32 && i->peer_program != NONE_U32 && a->lane == i->lane &&
           i->start_ns < a->end_ns;
}

/* A delay is an op of its own in front: it, too, waits for what the item waits for. */
static bool add_item(Builder *b, RankProgram *p, uint32_t role, uint32_t k)
{
    uint32_t at = p->order[k];
    const Item *i = &p->items[at];
    Graph *g = &b->f->graph;
    int64_t launch_ns = i->launch_ns;
    bool joins = k > 0 && posted_with(p, k - 1, k);
    bool delayed = i->delay_ns > 0 && !joins;
    uint32_t op;
    if (delayed) {
        op = add_op(b, release_on(i->lane, intern(&g->names, "delay")), i->delay_ns, launch_ns,
                    -1);
        add_deps(b, p, &g->roles[role], i, op);
        launch_ns = 0;
    }
    if (i->peer_program != NONE_U32) {
        op = add_end(b, role, i, launch_ns, k + 1 < p->order_n && posted_with(p, k, k + 1));
    } else if (i->kind == ITEM_COMM) {
        if (!add_comm(b, i, launch_ns, &op))
            return false;
    } else {
        Op o = { .kind = i->kind == ITEM_COPY ? OP_COPY : OP_ACTIVATION,
                 .lane = i->lane,
                 .dtype = DTYPE_F32 };
        o.name = intern(&g->names, i->name);
        op = add_op(b, o, i->end_ns - i->start_ns, launch_ns, -1);
        b->f->kernels_n++;
    }
    if (!delayed && !joins)
        add_deps(b, p, &g->roles[role], i, op);
    b->instance_of[at] = b->instance;
    b->op_of[at] = op;
    return true;
}

static bool add_program(Builder *b, RankProgram *p, uint32_t role)
{
    b->instance_of = mem_zero((size_t)p->items_n + 1, sizeof(uint32_t));
    b->op_of = mem_zero((size_t)p->items_n + 1, sizeof(uint32_t));
    memset(b->instance_of, 0xff, ((size_t)p->items_n + 1) * sizeof(uint32_t));
    begin_segment(b, role);
    bool ok = true;
    for (uint32_t k = 0; k < p->order_n && ok; k++) {
        const Item *i = &p->items[p->order[k]];
        if (i->kind == ITEM_SYNC)
            add_sync(b, p, role, i);
        else
            ok = add_item(b, p, role, k);
    }
    if (p->tail_ns > 0) {
        uint32_t name = intern(&b->f->graph.names, "host");
        add_op(b, release_on(LANE_COMPUTE, name), 0, p->tail_ns, -1);
    }
    b->f->unlaunched_n += p->unlaunched_n;
    free(b->instance_of);
    free(b->op_of);
    return ok;
}

/* ---- the whole ---- */

static int64_t measured(const RankProgram *p)
{
    int64_t end_ns = p->tail_ns > 0 ? p->to_ns : p->from_ns;
    for (uint32_t k = 0; k < p->order_n; k++)
        end_ns = max_i64(end_ns, p->items[p->order[k]].end_ns);
    return end_ns - p->from_ns;
}

/* Ranks do not begin their steps together, and wait for each other because of it.  Where their
 * clocks can be compared all count from the first one's begin; else each from its own. */
static void begin_together(Builder *b)
{
    int64_t first_ns = INT64_MAX, last_ns = INT64_MIN, longest_ns = 0;
    for (uint32_t i = 0; i < b->programs_n; i++) {
        first_ns = min_i64(first_ns, b->programs[i].from_ns);
        last_ns = max_i64(last_ns, b->programs[i].from_ns);
        longest_ns = max_i64(longest_ns, measured(&b->programs[i]));
    }
    for (uint32_t i = 0; i < b->programs_n && last_ns - first_ns < longest_ns; i++) {
        RankProgram *p = &b->programs[i];
        p->items[p->order[0]].launch_ns += p->from_ns - first_ns;
        p->from_ns = first_ns;
    }
}

/* Ranks that one rank stands for: those of the world, or of its largest group. */
static uint32_t world_of(const Builder *b)
{
    uint32_t n = b->programs_n;
    if (n > 1)
        return n;
    const RankProgram *p = b->programs;
    n = b->t->ranks_n > 1 ? b->t->ranks_n : 1;
    for (uint32_t k = 0; k < p->order_n; k++) {
        const Item *i = &p->items[p->order[k]];
        if (i->kind == ITEM_COMM && i->comm && i->comm->ranks_n > n)
            n = i->comm->ranks_n;
    }
    return n;
}

static bool check_world(const Builder *b)
{
    for (uint32_t i = 0; i < b->t->tracks_n && b->programs_n > 1; i++)
        if (b->t->tracks[i].ranks_n > 1)
            return err_set(b->err,
                           "several ranks of the trace stand for others as well; record "
                           "it with --expand-ranks");
    uint32_t world_n = b->t->ranks_n;
    if (b->programs_n > 1 && world_n > b->programs_n)
        return err_set(b->err,
                       "the trace has %" PRIu32 " of %" PRIu32 " ranks, one or all are needed",
                       b->programs_n, world_n);
    if (b->programs_n == 0)
        return err_set(b->err, "the trace has no GPU work in its step");
    return true;
}

static bool build(Builder *b)
{
    FromTrace *f = b->f;
    Graph *g = &f->graph;
    f->ranks_n = b->programs_n;
    f->world_n = g->world_n = world_of(b);
    g->role_stride = 1;
    g->role_extent = b->programs_n;
    g->host_group = NONE_U32;
    g->replica = (GroupDim){ 1, 1, 1, 1 };
    g->role_of = mem_zero(b->programs_n, sizeof *g->role_of);
    begin_together(b);
    from_trace_lanes(b->programs, b->programs_n, b->t);
    if (!from_trace_settle(b->programs, b->programs_n, b->t, b->err))
        return false;
    f->pairs_n = b->programs_n > 1 ? from_trace_pair(b->programs, b->programs_n, b->t) : 0;
    for (uint32_t i = 0; i < b->programs_n; i++) {
        g->role_of[i] = graph_role(g, "recorded", 0);
        f->measured_ns = max_i64(f->measured_ns, measured(&b->programs[i]));
    }
    for (uint32_t i = 0; i < b->programs_n; i++) {
        uint32_t before = 0, after = 0;
        if (b->o->bucket_bytes &&
            !from_trace_rebucket(&b->programs[i], b->t, b->o, &before, &after, b->err))
            return false;
        f->buckets_before = i ? f->buckets_before : before;
        f->buckets_after = i ? f->buckets_after : after;
    }
    for (uint32_t i = 0; i < b->programs_n; i++)
        if (!add_program(b, &b->programs[i], i))
            return false;
    graph_seal(g);
    f->given = (GivenCosts){ f->costs, f->launch_ns, f->comm_ns };
    return true;
}

bool from_trace_build(FromTrace *f, const Timeline *t, TraceWindow *windows, uint32_t windows_n,
                      const FromTraceOptions *o, Err *err)
{
    *f = (FromTrace){ .graph = { .host_group = NONE_U32 } };
    Builder b = {
        .f = f, .t = t, .o = o, .err = err, .self_group = NONE_U32, .world_group = NONE_U32
    };
    b.programs = mem_zero((size_t)windows_n + 1, sizeof *b.programs);
    for (uint32_t i = 0; i < windows_n; i++) {
        RankProgram *p = &b.programs[b.programs_n];
        bool any = from_trace_read(p, t, &windows[i]);
        if (any)
            b.programs_n++;
        else
            traced_program_free(p);
    }
    bool ok = check_world(&b) && build(&b);
    for (uint32_t i = 0; i < windows_n; i++)
        for (uint32_t k = 0; k < b.programs_n; k++)
            if (b.programs[k].rank == windows[i].rank)
                windows[i].begin_ns = b.programs[k].from_ns;
    for (uint32_t i = 0; i < b.programs_n; i++)
        traced_program_free(&b.programs[i]);
    free(b.programs);
    free(b.known);
    if (!ok)
        from_trace_free(f);
    return ok;
}

void from_trace_free(FromTrace *f)
{
    graph_free(&f->graph);
    free(f->costs);
    free(f->launch_ns);
    free(f->comm_ns);
    *f = (FromTrace){ 0 };
}

void from_trace_machine(Machine *m, uint32_t ranks)
{
    *m = (Machine){ .name = "as recorded",
                    .nodes_n = 1,
                    .gpus_n = ranks,
                    .types_n = 1,
                    .ideal_collectives = true };
    Gpu *gpu = PUSH(&m->arena, Gpu);
    *gpu = (Gpu){ .name = "as recorded",
                  .memory_bytes_per_ns = 1,
                  .host_bytes_per_ns = 1,
                  .sms = 1,
                  .memory_efficiency = 1 };
    for (DType k = 0; k < DTYPE_N; k++)
        gpu->peak_flops_per_ns[k] = gpu->matmul_efficiency[k] = 1;
    m->types = PUSH(&m->arena, NodeType);
    *m->types = (NodeType){ .count = 1, .gpus_n = ranks, .gpu = gpu };
    m->types->intra = (IntraNode){ .kind = INTRA_NVSWITCH, .bytes_per_ns = 1 };
    m->types->intra.efficiency = (RankCurve){ .n = 1, .ranks = { 2 }, .value = { 1 } };
    m->inter = (InterNode){ .kind = INTER_NONE, .efficiency = 1, .oversubscription = 1 };
}

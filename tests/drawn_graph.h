/*
 * drawn_graph.h - graphs and machines that no strategy would make, drawn.
 *
 * World and groups are drawn: three dimensions of any extent, groups over one or
 * two of them, over a part of one, over its first and last coordinate; programs
 * of kernels, collectives on every lane, sends, host waits and whole segments;
 * nodes that hold any number of GPUs.  All roles meet the same transfers in the
 * same order, so every drawn graph can finish.
 */
#ifndef LOCKSTEP_TESTS_DRAWN_GRAPH_H
#define LOCKSTEP_TESTS_DRAWN_GRAPH_H

#include "tests/check.h"
#include "tests/small_world.h"

enum { DIMS = 3, SPECS_MAX = 16, ITEMS_MAX = 12 };

typedef struct Spec {
    uint32_t group; /* Graph.groups */
    bool ends;      /* only the first and the last role are members */
    bool inner;     /* does not join roles */
} Spec;

typedef struct Case {
    uint64_t state, seed;
    World w;
    NodeType types[2];
    Graph g;
    uint32_t extent[DIMS], stride[DIMS];
    uint32_t role_dim, stages, line; /* line: group of all stages, NONE_U32 if there is one */
    uint32_t specs_n;
    Spec specs[SPECS_MAX];
} Case;

static inline uint32_t below(Case *c, uint32_t n)
{
    c->state = mix_u64(c->state);
    return (uint32_t)(c->state >> 20) % n;
}

/* ---- the world ---- */

static inline void add_spec(Case *c, const GroupDim *dims, uint32_t n, bool ends, bool inner)
{
    if (c->specs_n < SPECS_MAX)
        c->specs[c->specs_n++] =
            (Spec){ graph_group(&c->g, ends ? "ends" : "group", dims, n), ends, inner };
}

static inline GroupDim whole(const Case *c, uint32_t d)
{
    return (GroupDim){ c->stride[d], c->extent[d], 1, c->extent[d] };
}

/* The lower part of a dimension's coordinates, and the upper, as hsdp has them. */
static inline void add_parts(Case *c, uint32_t d, bool inner)
{
    for (uint32_t low = 2; low < c->extent[d]; low++) {
        uint32_t high = c->extent[d] / low;
        if (c->extent[d] % low != 0)
            continue;
        add_spec(c, &(GroupDim){ c->stride[d], low, 1, low }, 1, false, inner);
        add_spec(c, &(GroupDim){ c->stride[d] * low, high, 1, high }, 1, false, inner);
    }
}

static inline void draw_groups(Case *c)
{
    c->line = NONE_U32;
    for (uint32_t d = 0; d < DIMS; d++) {
        bool inner = d != c->role_dim;
        GroupDim one = whole(c, d);
        if (c->extent[d] < 2 && below(c, 4))
            continue; /* groups of one rank must work as well */
        if (!inner && c->extent[d] > 1)
            c->line = c->g.groups_n;
        add_spec(c, &one, 1, false, inner);
        if (inner)
            add_parts(c, d, inner);
        else if (c->extent[d] > 2)
            add_spec(c, &(GroupDim){ one.stride, one.extent, one.extent - 1, 2 }, 1, true,
                     false);
        for (uint32_t e = d + 1; e < DIMS; e++)
            if (c->extent[d] > 1 && c->extent[e] > 1)
                add_spec(c, (GroupDim[]){ one, whole(c, e) }, 2, false,
                         inner && e != c->role_dim);
    }
}

/* Now and then one host launches for all ranks of a group, which run the same program. */
static inline void draw_host(Case *c)
{
    uint64_t draw = mix_u64(c->seed + 77);
    const Spec *s = c->specs_n ? &c->specs[draw / 3 % c->specs_n] : NULL;
    if (s && draw % 3 == 0 && s->inner)
        c->g.host_group = s->group;
}

static inline void draw_world(Case *c)
{
    uint32_t world = 1;
    for (uint32_t d = 0; d < DIMS; d++) {
        c->extent[d] = 1 + below(c, d == 1 ? 12 : 4);
        c->stride[d] = world;
        world *= c->extent[d];
    }
    c->role_dim = below(c, DIMS);
    c->stages = c->extent[c->role_dim];
    graph_begin(&c->g, world, c->stages);
    c->g.role_stride = c->stride[c->role_dim];
    uint32_t replica = (c->role_dim + 1 + below(c, DIMS - 1)) % DIMS;
    c->g.replica = whole(c, replica);
    draw_groups(c);
    draw_host(c);
}

static inline void draw_machine(Case *c)
{
    static const uint32_t nics[] = { 1, 2, 3, 5, 7, 16 };
    uint32_t world = c->g.world_n, gpus = 1 + below(c, 6);
    world_init(&c->w, (world + gpus - 1) / gpus + below(c, 2), gpus, 7 * below(c, 3));
    Machine *m = &c->w.m;
    c->w.gpu.launch_ns = 10 * below(c, 4);
    c->w.gpu.quantise = true;
    c->w.gpu.comm_sms = 20 * below(c, 2);
    c->types[0] = c->w.type;
    m->types = c->types;
    if (below(c, 3) == 0) {
        c->types[0].count = 1 + below(c, 2);
        c->types[1] = c->types[0];
        c->types[1].first_node = c->types[0].count;
        c->types[1].first_rank = c->types[0].count * gpus;
        c->types[1].gpus_n = 1 + below(c, 6);
        c->types[1].count = world;
        m->types_n = 2;
        m->nodes_n = c->types[0].count + world;
        m->gpus_n = c->types[1].first_rank + world * c->types[1].gpus_n;
    }
    m->inter.nics_per_node = nics[below(c, ARRAY_N(nics))];
    if (below(c, 2)) {
        m->inter.nodes_per_leaf = 1 + below(c, 3);
        m->inter.oversubscription = 1 + below(c, 3);
    }
    for (uint32_t n = below(c, 2) ? 0 : below(c, 4); n > 0; n--) {
        uint32_t a = below(c, world), b = below(c, world);
        if (a != b)
            c->w.slow_links[m->slow_links_n++] =
                (SlowLink){ a < b ? a : b, a < b ? b : a, 1 + below(c, 40) };
    }
    if (below(c, 3) == 0)
        c->w.stragglers[m->stragglers_n++] = (Straggler){ below(c, world), 0.7 };
}

/* ---- programs ---- */

/* The newest instance waits for an op of an earlier one, or for nothing. */
static inline void draw_edge(Case *c, uint32_t role, uint64_t *draws)
{
    Role *r = &c->g.roles[role];
    *draws = mix_u64(*draws);
    if (r->instances_n < 2 || *draws % 2)
        return;
    uint32_t src = (uint32_t)(*draws >> 8) % (r->instances_n - 1);
    uint32_t ops = c->g.segments[r->instances[src].segment].op_n;
    role_edge(r, 0, src, (uint32_t)(*draws >> 40) % ops);
}

static inline void item_kernel(Case *c)
{
    uint64_t ns = 50 + below(c, 4000), draws = below(c, 1000);
    for (uint32_t s = 0; s < c->stages; s++) {
        add(&c->g, s, kernel(&c->g, LANE_COMPUTE, ns + 300 * s));
        draw_edge(c, s, &draws);
    }
}

static inline OpKind draw_kind(Case *c)
{
    return (OpKind)(OP_ALL_REDUCE + below(c, OP_ALL_TO_ALL - OP_ALL_REDUCE + 1));
}

static inline void item_collective(Case *c)
{
    static const Lane lanes[] = { LANE_COMPUTE, LANE_TP, LANE_REDUCE, LANE_GATHER };
    Lane lane = lanes[below(c, ARRAY_N(lanes))];
    const Spec *spec = &c->specs[below(c, c->specs_n)];
    Op op = transfer(&c->g, draw_kind(c), lane, spec->group, below(c, 5) * 60000);
    uint64_t draws = below(c, 1000);
    for (uint32_t s = 0; s < c->stages; s++) {
        if (spec->ends && s > 0 && s + 1 < c->stages)
            continue;
        add(&c->g, s, op);
        draw_edge(c, s, &draws);
    }
}

/* A line of sends from the first stage to the last. */
static inline void item_sends(Case *c)
{
    uint64_t bytes = below(c, 4) * 30000, draws = below(c, 1000);
    bool grouped = below(c, 2);
    Lane in = grouped ? LANE_SEND_GRAD : LANE_RECV_ACT, out = grouped ? in : LANE_SEND_ACT;
    for (uint32_t s = 0; s < c->stages; s++) {
        bool first = s == 0, last = s + 1 == c->stages;
        uint32_t segment = graph_segment(&c->g, SEGMENT_OTHER, "sends");
        Op recv = p2p(&c->g, OP_RECV, in, c->line, first ? 0 : s - 1, bytes);
        Op send = p2p(&c->g, OP_SEND, out, c->line, last ? s : s + 1, bytes);
        recv.grouped = grouped && !last;
        recv.u.comm.tag = send.u.comm.tag = grouped;
        if (!first)
            graph_op(&c->g, recv);
        if (!last)
            graph_op(&c->g, send);
        role_instance(&c->g.roles[s], segment, NONE_U32, NONE_U32, NONE_U32);
        draw_edge(c, s, &draws);
    }
}

static inline void item_host_wait(Case *c)
{
    uint64_t draws = below(c, 1000);
    Op wait = { .kind = OP_HOST_WAIT, .lane = LANE_HOST, .name = intern(&c->g.names, "wait") };
    for (uint32_t s = 0; s < c->stages; s++) {
        add(&c->g, s, wait);
        draw_edge(c, s, &draws);
    }
}

/* Kernels with collectives of one group among them, on the compute lane or beside it. */
static inline void item_segment(Case *c)
{
    const Spec *spec = &c->specs[below(c, c->specs_n)];
    if (!spec->inner)
        return;
    Lane lane = below(c, 2) ? LANE_TP : LANE_COMPUTE;
    uint32_t segment = graph_segment(&c->g, SEGMENT_FORWARD, "block"), n = 2 + below(c, 8);
    graph_op(&c->g, kernel(&c->g, LANE_COMPUTE, 500 + below(c, 500)));
    for (uint32_t i = 1; i <= n; i++) {
        bool comm = i < n && below(c, 3) == 0;
        Op op = comm ? transfer(&c->g, draw_kind(c), lane, spec->group, below(c, 5) * 30000)
                     : kernel(&c->g, LANE_COMPUTE, 500 + below(c, 2000));
        graph_op(&c->g, op);
        if (comm || i == n || below(c, 2))
            graph_dep(&c->g, i - 1);
        if (i == n && n > 2)
            graph_dep(&c->g, below(c, n - 1));
    }
    uint32_t copies = 1 + below(c, 3);
    for (uint32_t s = 0; s < c->stages; s++)
        for (uint32_t k = 0; k < copies; k++)
            role_instance(&c->g.roles[s], segment, NONE_U32, NONE_U32, NONE_U32);
}

static inline void draw_programs(Case *c)
{
    uint32_t n = 2 + below(c, ITEMS_MAX - 2);
    item_kernel(c);
    for (uint32_t i = 0; i < n; i++)
        switch (below(c, 8)) {
        case 0:
        case 1:
            item_kernel(c);
            break;
        case 2:
        case 3:
            if (c->specs_n)
                item_collective(c);
            break;
        case 4:
        case 5:
            if (c->specs_n)
                item_segment(c);
            break;
        case 6:
            if (c->line != NONE_U32)
                item_sends(c);
            break;
        default:
            item_host_wait(c);
            break;
        }
}

static inline void case_make(Case *c, uint64_t seed)
{
    memset(c, 0, sizeof *c);
    c->state = c->seed = mix_u64(seed);
    draw_world(c);
    draw_machine(c);
    draw_programs(c);
    graph_seal(&c->g);
}

/* ---- runs ---- */

static inline bool simulate(Case *c, SimResult *r, SimOptions options)
{
    Err err = { 0 };
    *r = (SimResult){ 0 };
    bool ok = sim_run(r, &c->g, &c->w.m, &c->w.sw, &options, &err);
    if (!CHECK(ok))
        fprintf(stderr, "%s\n", err.text);
    return ok;
}

#endif

/*
 * What link counters say was carried is what the program transfers, on drawn graphs.
 *
 * For each link the bytes are summed from the definition, op by op and rank by rank,
 * without the engine: a send crosses the port of both its ends, or both their NICs; a ring
 * passes every port of a member that has another beside it, and leaves each node and each
 * leaf once, a node by all NICs of its members alike; in an all-to-all everyone sends to
 * everyone.  The integral of the link's counter is that sum; and no step is shorter than the
 * busiest link of a rank takes for it, whoever else's transfers cross that link.
 */
#include "tests/drawn_graph.h"

#include <stdlib.h>

enum { CASES = 400, KINDS = RES_RANK_N };

/* Bytes by link: ports by rank, NICs and leaves by the lowest rank that is on one. */
typedef struct Sums {
    const Case *c;
    bool losses; /* transfers do not reach all of a link */
    double *bytes[KINDS];
} Sums;

/* ---- where ranks are ---- */

static uint32_t leaf_of(const Machine *m, uint32_t rank)
{
    uint32_t node = machine_place(m, rank).node;
    return m->inter.nodes_per_leaf ? node / m->inter.nodes_per_leaf : 0;
}

static uint32_t nic_of(const Machine *m, uint32_t rank)
{
    Place p = machine_place(m, rank);
    uint32_t n =
        m->inter.nics_per_node < p.type->gpus_n ? m->inter.nics_per_node : p.type->gpus_n;
    return p.local * n / p.type->gpus_n;
}

static bool on_link(const Machine *m, uint32_t a, uint32_t b, uint32_t kind)
{
    bool same_node = machine_place(m, a).node == machine_place(m, b).node;
    if (kind <= RES_PORT_IN)
        return a == b;
    if (kind <= RES_NIC_IN)
        return same_node && nic_of(m, a) == nic_of(m, b);
    if (kind >= RES_RING_OUT)
        return same_node;
    return leaf_of(m, a) == leaf_of(m, b);
}

static double *sum_of(const Sums *s, uint32_t rank, uint32_t kind)
{
    uint32_t first = 0;
    while (!on_link(&s->c->w.m, first, rank, kind))
        first++;
    return &s->bytes[kind][first];
}

static bool has_leaves(const Machine *m)
{
    return m->inter.nodes_per_leaf > 0 && m->inter.oversubscription > 1;
}

static bool rings_share(const Case *c, uint32_t rank)
{
    uint32_t nics = c->w.m.inter.nics_per_node;
    return c->w.sw.ring_nics > 0 && c->w.sw.ring_nics < nics &&
           nics < machine_place(&c->w.m, rank).type->gpus_n;
}

static bool has_link(const Case *c, uint32_t rank, uint32_t kind)
{
    return kind >= RES_RING_OUT  ? rings_share(c, rank)
           : kind >= RES_LEAF_UP ? has_leaves(&c->w.m)
                                 : true;
}

/* ---- what an op puts on the links of a rank ---- */

static void add_send(const Sums *s, uint32_t from, uint32_t to, double bytes)
{
    const Machine *m = &s->c->w.m;
    bool near = machine_place(m, from).node == machine_place(m, to).node;
    *sum_of(s, from, near ? RES_PORT_OUT : RES_NIC_OUT) += bytes;
    *sum_of(s, to, near ? RES_PORT_IN : RES_NIC_IN) += bytes;
    if (!near && has_leaves(m) && leaf_of(m, from) != leaf_of(m, to)) {
        *sum_of(s, from, RES_LEAF_UP) += bytes;
        *sum_of(s, to, RES_LEAF_DOWN) += bytes;
    }
}

/* How the members of a group lie around one of them. */
typedef struct Around {
    uint32_t n, on_node, on_nic, nics, in_leaf;
} Around;

static Around look_around(const Machine *m, const GroupSpec *spec, uint32_t rank)
{
    Around a = { .n = group_size(spec) };
    uint64_t nics = 0;
    for (uint32_t i = 0; i < a.n; i++) {
        uint32_t other = group_member(spec, rank, i);
        bool near = machine_place(m, other).node == machine_place(m, rank).node;
        a.on_node += near;
        a.on_nic += on_link(m, rank, other, RES_NIC_OUT);
        a.in_leaf += leaf_of(m, other) == leaf_of(m, rank);
        if (near)
            nics |= (uint64_t)1 << nic_of(m, other);
    }
    a.nics = (uint32_t)__builtin_popcountll(nics);
    return a;
}

static double ring_bytes(OpKind kind, uint32_t n, double bytes)
{
    switch (kind) {
    case OP_ALL_REDUCE:
        return 2.0 * (n - 1) / n * bytes;
    case OP_BROADCAST:
    case OP_REDUCE:
        return bytes;
    default:
        return (n - 1.0) / n * bytes;
    }
}

static void add_collective(const Sums *s, uint32_t rank, const Op *o)
{
    const Machine *m = &s->c->w.m;
    Around a = look_around(m, &s->c->g.groups[o->u.comm.group], rank);
    double bytes = (double)o->u.comm.bytes, each = bytes / a.n;
    double part[KINDS / 2] = { 0 };
    if (a.n < 2)
        return;
    if (o->kind == OP_ALL_TO_ALL) {
        part[0] = each * (a.on_node - 1);
        part[1] = each * (a.n - a.on_node);
        part[2] = each * (a.n - a.in_leaf);
    } else {
        double ring = ring_bytes(o->kind, a.n, bytes);
        part[0] = a.on_node > 1 ? ring : 0;
        part[1] = a.on_node < a.n ? ring / a.nics / a.on_nic : 0;
        part[2] = a.in_leaf < a.n ? ring / a.in_leaf : 0;
        part[3] = a.on_node > 1 && a.on_node < a.n ? ring / a.on_node : 0;
    }
    for (uint32_t kind = 0; kind < KINDS; kind++)
        if (has_link(s->c, rank, kind))
            *sum_of(s, rank, kind) += part[kind / 2];
}

static void add_rank(const Sums *s, uint32_t rank)
{
    const Graph *g = &s->c->g;
    const Role *role = graph_role_of(g, rank);
    for (uint32_t i = 0; i < role->instances_n; i++) {
        const Segment *segment = &g->segments[role->instances[i].segment];
        for (uint32_t k = 0; k < segment->op_n; k++) {
            const Op *o = graph_ops(g, segment) + k;
            if (o->kind == OP_SEND)
                add_send(s, rank,
                         group_member(&g->groups[o->u.comm.group], rank, o->u.comm.peer),
                         (double)o->u.comm.bytes);
            else if (op_is_collective(o->kind))
                add_collective(s, rank, o);
        }
    }
}

/* ---- what the counters say ---- */

/* Of which of the first two kinds of a pair a counter tells: bit 0 out, bit 1 in. */
static uint32_t kinds_of(const char *name)
{
    static const char *const pair[] = { "NVLink", "NIC", "leaf", "ring NICs" };
    static const char *const way[][3] = { { " out,", " in,", " out/in," },
                                          { " out,", " in,", " out/in," },
                                          { " up,", " down,", " up/down," },
                                          { " out,", " in,", " out/in," } };
    for (uint32_t k = 0; k < KINDS / 2; k++) {
        size_t n = strlen(pair[k]);
        for (uint32_t w = 0; w < 3 && strncmp(name, pair[k], n) == 0; w++)
            if (strncmp(name + n, way[k][w], strlen(way[k][w])) == 0)
                return (w + 1) << 2 * k;
    }
    return 0;
}

/* Adds a counter's bytes to its rank's links, and what they take at its full rate to the longest.
 * False: it leaves 0 to 100 %, or repeats itself. */
static bool read_counter(const Timeline *t, const Track *k, double *bytes, double *longest_ns)
{
    const char *name = timeline_text(t, k->name), *of = strstr(name, "% of ");
    uint32_t kinds = kinds_of(name);
    if (!CHECK(of != NULL) || !CHECK(kinds != 0 || strncmp(name, "link ", 5) == 0))
        return false;
    double rate = strtod(of + 5, NULL), sum = 0;
    uint64_t end = k->point_first + k->point_n;
    bool ok = CHECK(k->point_n >= 2) && CHECK(t->point_value[end - 1] <= 0);
    for (uint64_t i = k->point_first; ok && i < end; i++) {
        double value = t->point_value[i];
        ok = CHECK(value >= 0 && value <= 100 * (1 + 1e-6));
        if (i + 1 == end)
            break;
        ok = ok && CHECK(t->point_ns[i] < t->point_ns[i + 1]) &&
             CHECK(value < t->point_value[i + 1] || value > t->point_value[i + 1]);
        sum += value / 100 * rate * (double)(t->point_ns[i + 1] - t->point_ns[i]);
    }
    for (uint32_t kind = 0; kind < KINDS; kind++)
        if (kinds >> kind & 1)
            bytes[kind] += sum;
    if (kinds)
        *longest_ns = fmax(*longest_ns, sum / rate);
    return ok;
}

static bool check_rank(const Sums *s, const Timeline *t, const RankStat *stat, int64_t step_ns)
{
    double bytes[KINDS] = { 0 }, longest_ns = 0;
    uint32_t rank = stat->rank;
    bool ok = true;
    for (uint32_t k = 0; ok && k < t->tracks_n; k++)
        if (t->tracks[k].rank == rank && t->tracks[k].kind == TRACK_COUNTER)
            ok = read_counter(t, &t->tracks[k], bytes, &longest_ns);
    for (uint32_t kind = 0; ok && kind < KINDS; kind++) {
        double want = *sum_of(s, rank, kind);
        ok = CHECK_NEAR(want, bytes[kind], 1e-9 * want + 1e-3);
        if (!ok)
            fprintf(stderr, "rank %u, kind %u\n", rank, kind);
    }
    double tolerance = 1e-6 * longest_ns;
    return ok && CHECK(longest_ns <= stat->link_bound_ns + tolerance) &&
           CHECK(s->losses || stat->link_bound_ns <= longest_ns + tolerance) &&
           CHECK(stat->link_bound_ns <= (double)step_ns * (1 + 1e-9));
}

/* Links of which transfers do not reach all: they take longer, and carry no more. */
static void draw_losses(Case *c)
{
    for (uint32_t i = 0; i < ARRAY_N(c->types); i++)
        c->types[i].intra.efficiency.value[0] = 1 - 0.1 * below(c, 4);
    c->w.m.inter.efficiency = 1 - 0.1 * below(c, 4);
    c->w.m.inter.p2p_efficiency = 0.3 * below(c, 4);
    c->w.sw.comm_scale = 1 + 0.3 * below(c, 3);
    c->w.sw.ring_nics = below(c, 3);
}

static uint64_t checked_n[2], shared_n;

/* Flows that nobody records the links of may go directly (sim/engine_flow.c). */
static bool takes_as_long_unrecorded(Case *c, bool expand, int64_t step_ns)
{
    SimResult r;
    bool ok = simulate(c, &r, (SimOptions){ .expanded = true, .expand_ranks = expand }) &&
              CHECK_INT(step_ns, r.step_ns);
    sim_result_free(&r);
    return ok;
}

/* What plan leaves candidates out by takes the busiest link in, and is never above a step. */
static bool is_bound(const Case *c, const SimResult *r)
{
    Err err = { 0 };
    double ns, link_ns = 0;
    for (uint32_t i = 0; i < r->ranks_n; i++)
        link_ns = fmax(link_ns, r->ranks[i].link_bound_ns);
    return CHECK(sim_bound(&ns, &c->g, &c->w.m, &c->w.sw, 0, &err)) &&
           CHECK(ns <= (double)r->step_ns * (1 + 1e-9)) &&
           CHECK(c->w.m.jitter > 0 || link_ns <= ns * (1 + 1e-9));
}

static void carry_one(uint64_t seed, bool expand)
{
    Case c;
    SimResult r;
    Timeline t = { 0 };
    case_make(&c, seed);
    Sums s = { .c = &c, .losses = seed % 4 > 0 };
    if (s.losses)
        draw_losses(&c);
    else
        c.w.m.inter.p2p_efficiency = 0;
    for (uint32_t kind = 0; kind < KINDS; kind++)
        s.bytes[kind] = mem_zero(c.g.world_n, sizeof(double));
    for (uint32_t rank = 0; rank < c.g.world_n; rank++)
        add_rank(&s, rank);
    SimOptions options = { .timeline = &t, .links = true, .expand_ranks = expand };
    bool ok = simulate(&c, &r, options);
    if (ok)
        timeline_seal(&t);
    for (uint32_t i = 0; ok && i < r.ranks_n; i++)
        ok = check_rank(&s, &t, &r.ranks[i], r.step_ns);
    ok = ok && is_bound(&c, &r) && takes_as_long_unrecorded(&c, expand, r.step_ns);
    checked_n[expand] += r.ranks_n;
    for (uint32_t rank = 0; rank < c.g.world_n; rank++)
        shared_n += s.bytes[RES_RING_OUT][rank] > 0;
    if (!ok)
        fprintf(stderr, "graph of seed %" PRIu64 ", expand %d\n", seed, expand);
    for (uint32_t kind = 0; kind < KINDS; kind++)
        free(s.bytes[kind]);
    timeline_free(&t);
    sim_result_free(&r);
    graph_free(&c.g);
}

static void counters_carry_what_programs_transfer(void)
{
    for (uint64_t seed = 200001; seed <= 200000 + check_cases(CASES); seed++)
        for (int expand = 0; expand < 2; expand++)
            carry_one(seed, expand);
    CHECK(checked_n[0] > check_cases(CASES) && checked_n[1] > checked_n[0]);
    CHECK(shared_n > check_cases(CASES) / 20);
}

int main(void)
{
    RUN(counters_carry_what_programs_transfer);
    return check_report();
}

/*
 * classes_links.c - the links that rank classes touch, and what of them a byte of a ring, of an
 * all-to-all, or of a send takes.
 *
 *     ring of 16 on two nodes     every port once; each node's NICs together once out, once in
 *     all-to-all                  of each member's bytes 7/15 by its port, 8/15 by its NIC
 *     send                        the ports of both ends, or their NICs and leaves
 *
 * A link that reaches only a part of its rate is taken longer: coefficients are divided by the
 * efficiency.  How many ranks of a class are on one link stands in RankClass.share.
 */
#include "sim/classes_parts.h"

/* ---- links ---- */

static double capacity(const Fold *f, const Place *p, ResourceKind kind)
{
    const Machine *m = f->m;
    const InterNode *inter = &m->inter;
    double nics = inter->bytes_per_ns * inter->nics_per_node;
    if (kind <= RES_PORT_IN)
        return p->type->intra.bytes_per_ns;
    if (kind <= RES_NIC_IN)
        return nics / fold_bundles_per_node(m, p->type);
    if (kind >= RES_RING_OUT)
        return inter->bytes_per_ns * f->ring_nics;
    return nics * inter->nodes_per_leaf / inter->oversubscription;
}

static double efficiency(const Machine *m, const NodeType *t, ResourceKind kind, uint32_t ranks)
{
    return kind <= RES_PORT_IN ? rank_curve_at(&t->intra.efficiency, ranks)
                               : m->inter.efficiency;
}

/* The same of sends, alone or as an all-to-all. */
static double p2p_efficiency(const Machine *m, const NodeType *t, ResourceKind kind,
                             uint32_t ranks)
{
    bool own = kind > RES_PORT_IN && m->inter.p2p_efficiency > 0;
    return own ? m->inter.p2p_efficiency : efficiency(m, t, kind, ranks);
}

/* One resource class per (kind, class of the lowest rank that touches such a link). */
void fold_make_resources(Fold *f)
{
    Classes *c = f->c;
    c->resources =
        PUSH_ARRAY(&c->arena, Resource, (size_t)c->ranks_n * RES_RANK_N + f->m->slow_links_n);
    for (uint32_t k = 0; k < RES_RANK_N; k++) {
        const uint32_t *id = f->id[k / 2];
        uint32_t *first = PUSH_ARRAY(&f->scratch, uint32_t,
                                     f->ids_n[k / 2] + 1); /* lowest rank + 1 on a link */
        for (uint32_t i = 0; i < f->n; i++)
            if (id[i] != NONE_U32 && first[id[i]] == 0)
                first[id[i]] = i + 1;
        uint32_t *of_class =
            PUSH_ARRAY(&f->scratch, uint32_t, c->ranks_n); /* resource + 1 by first's class */
        bool *seen = PUSH_ARRAY(&f->scratch, bool, c->ranks_n);
        uint32_t *link =
            PUSH_ARRAY(&f->scratch, uint32_t, c->ranks_n); /* representative's link by class */
        for (uint32_t i = 0; i < f->n; i++) {
            uint32_t own = c->class_of[i];
            if (seen[own])
                continue;
            seen[own] = true;
            c->ranks[own].resource[k] = link[own] = NONE_U32;
            if (id[i] == NONE_U32)
                continue;
            link[own] = id[i];
            uint32_t lead = c->class_of[first[id[i]] - 1];
            if (of_class[lead] == 0) {
                c->resources[c->resources_n] =
                    (Resource){ (ResourceKind)k, capacity(f, &f->place[i], (ResourceKind)k) };
                of_class[lead] = ++c->resources_n;
            }
            c->ranks[own].resource[k] = of_class[lead] - 1;
        }
        for (uint32_t i = 0; i < f->n; i++)
            c->ranks[c->class_of[i]].share[k] +=
                id[i] != NONE_U32 && id[i] == link[c->class_of[i]];
    }
    for (uint32_t k = 0; k < f->m->slow_links_n; k++)
        c->resources[c->resources_n++] =
            (Resource){ RES_LINK, f->m->slow_links[k].bytes_per_ns };
}

/* ---- group classes ---- */

/* Part of the ring's traffic that one member puts on its own link of this kind. */
static double ring_part(const Shape *s, ResourceKind kind)
{
    if (kind <= RES_PORT_IN)
        return s->on_node > 1 ? 1 : 0;
    if (kind <= RES_NIC_IN)
        return s->nodes_n > 1 ? 1.0 / ((double)s->nics_n * s->nic_sharers) : 0;
    if (kind >= RES_RING_OUT)
        return s->nodes_n > 1 && s->on_node > 1 ? 1.0 / s->on_node : 0;
    return s->leaves_n > 1 ? 1.0 / s->in_leaf : 0;
}

/* Part of what a member sends to all others that goes over its own link of this kind.
 * once: GroupSpec.sent_once. */
static double pair_part(const Shape *s, ResourceKind kind, double once)
{
    if (kind >= RES_RING_OUT)
        return 0;
    uint32_t near = kind <= RES_NIC_IN ? s->on_node : s->in_leaf;
    uint32_t over = kind <= RES_PORT_IN ? s->on_node - 1 : s->size - near;
    double part = s->size > 1 ? (double)over / (s->size - 1) : 0;
    if (!(once > 0))
        return part;
    /* What comes from other nodes is handed on to the ranks of this one: all of it passes its
     * ports, a node's share, but for what is a rank's own already. */
    return kind <= RES_PORT_IN ? part * s->size / s->on_node : part * once;
}

static void add_use(Use *uses, uint32_t *n, Use use)
{
    for (uint32_t u = 0; u < *n; u++)
        if (uses[u].resource == use.resource) {
            uses[u].coefficient += use.coefficient;
            uses[u].crossing += use.crossing;
            return;
        }
    uses[(*n)++] = use;
}

/* Members of one group on this rank's link. */
static double sharers(const Shape *s, ResourceKind kind)
{
    return kind <= RES_PORT_IN    ? 1
           : kind <= RES_NIC_IN   ? s->nic_sharers
           : kind >= RES_RING_OUT ? s->on_node
                                  : s->in_leaf;
}

/* By how many ranks a ring's efficiency goes.  Switches were measured with whole groups; without
 * one it matters how many of a node's GPUs are in it. */
static uint32_t ring_size(const GroupClass *gc, const Shape *s, const NodeType *t)
{
    IntraKind kind = t->intra.kind;
    return kind == INTRA_NVLINK_MESH || kind == INTRA_RING ? s->on_node : gc->size;
}

static Use ring_use(const Fold *f, const GroupClass *gc, const Shape *s, const RankClass *r,
                    ResourceKind kind)
{
    double crossing = r->resource[kind] == NONE_U32 ? 0 : ring_part(s, kind);
    const NodeType *t = r->place.type;
    double part = crossing / efficiency(f->m, t, kind, ring_size(gc, s, t));
    return (Use){ r->resource[kind], part * r->share[kind], part * sharers(s, kind),
                  crossing * r->share[kind] };
}

/*
 * Of what NCCL's all-to-alls reach over the ports, DeepEP's kernels reach this part: 153 and 158
 * GB/s counting a rank's own rows, dispatch and combine on 8 H800s (its README; 7/8 of the rows
 * leave a rank), of 0.793 of 200 (core/machine_links.c).
 */
static const double deepep_port_part = (153 + 158) / 2.0 * 7 / 8 / (0.793 * 200);

static double pair_efficiency(const Fold *f, const GroupClass *gc, const Shape *s,
                              const NodeType *t, ResourceKind kind)
{
    double all = p2p_efficiency(f->m, t, kind, s->on_node);
    bool once = gc->sent_once > 0 && kind <= RES_PORT_IN && !f->m->ideal_collectives;
    return once ? all * deepep_port_part : all;
}

static Use pair_use(const Fold *f, const GroupClass *gc, const Shape *s, const RankClass *r,
                    ResourceKind kind)
{
    double crossing = pair_part(s, kind, gc->sent_once);
    double part = crossing / pair_efficiency(f, gc, s, r->place.type, kind);
    return (Use){ r->resource[kind], part * r->share[kind], part * sharers(s, kind),
                  crossing * r->share[kind] };
}

/* NICs by which a ring leaves a rank's node: all of them, or those that rings share. */
static uint32_t nics_of_ring(const Fold *f, const Shape *shape, uint32_t rank)
{
    const Shape *s = &shape[rank];
    bool shared = s->on_node > 1 && fold_rings_share(f, f->place[rank].type);
    return shared && f->ring_nics < s->nics_n ? f->ring_nics : s->nics_n;
}

/* Of a ring a pair carries all in a node, between two its NIC's part.  With slow links all ranks
 * are kept. */
static double ring_of_pair(const Fold *f, const Shape *shape, const SlowLink *l)
{
    if (f->place[l->rank_a].node == f->place[l->rank_b].node)
        return 1;
    uint32_t a = nics_of_ring(f, shape, l->rank_a), b = nics_of_ring(f, shape, l->rank_b);
    return 1.0 / (a > b ? a : b);
}

static void add_slow_links(Fold *f, GroupClass *gc, const GroupSpec *spec, const Shape *shape)
{
    ASSERT(f->m->slow_links_n == 0 || f->n == f->g->world_n);
    for (uint32_t k = 0; k < f->m->slow_links_n; k++) {
        const SlowLink *l = &f->m->slow_links[k];
        if (l->rank_a >= f->g->world_n || l->rank_b >= f->g->world_n)
            continue;
        if (!group_has(spec, l->rank_a) || !group_has(spec, l->rank_b) ||
            group_base(spec, l->rank_a) != gc->base || group_base(spec, l->rank_b) != gc->base)
            continue;
        uint32_t a = group_index(spec, l->rank_a), b = group_index(spec, l->rank_b);
        uint32_t link = f->c->resources_n - f->m->slow_links_n + k;
        double part = 1.0 / (gc->size - 1);
        add_use(gc->pair_uses, &gc->pair_uses_n, (Use){ link, part, part, part });
        if ((a + 1) % gc->size != b && (b + 1) % gc->size != a)
            continue;
        double ring = ring_of_pair(f, shape, l);
        add_use(gc->uses, &gc->uses_n, (Use){ link, ring, ring, ring });
    }
}

/* Of two kinds of nodes the longer steps, and what both switches can do for so many ranks. */
static void slow_down(IntraNode *in, const IntraNode *by, uint32_t ranks)
{
    for (int p = 0; p < PROTOCOL_N; p++) {
        in->hop_ns[p] = max_i64(in->hop_ns[p], by->hop_ns[p]);
        in->tree_hop_ns[p] = max_i64(in->tree_hop_ns[p], by->tree_hop_ns[p]);
    }
    in->nvls = in->nvls && by->nvls;
    in->nvls_ns = max_i64(in->nvls_ns, by->nvls_ns);
    if (in->nvls && nvls_bytes_per_ns(by, ranks) < nvls_bytes_per_ns(in, ranks)) {
        in->nvls_efficiency = by->nvls_efficiency;
        in->bytes_per_ns = by->bytes_per_ns;
    }
}

/* What a group goes by whose nodes are of several kinds: the slowest links and the oldest GPU, as
 * NCCL does (its tuning.cc, minCompCap).  A rank alone on its node has no step there. */
static const NodeType *slowest_type(Fold *f, const uint32_t *member, uint32_t n,
                                    const Shape *shape)
{
    uint32_t first = 0;
    while (first + 1 < n && shape[member[first]].on_node == 1)
        first++;
    const NodeType *type = f->place[member[first]].type, *last = type;
    NodeType *slowest = NULL;
    for (uint32_t i = 0; i < n; i++) {
        const NodeType *t = f->place[member[i]].type;
        if (t == last)
            continue;
        last = t;
        if (!slowest) {
            slowest = PUSH(&f->c->arena, NodeType);
            *slowest = *type;
        }
        const Shape *s = &shape[member[i]];
        if (s->on_node > 1)
            slow_down(&slowest->intra, &t->intra, s->size / s->nodes_n);
        if (t->gpu->generation < slowest->gpu->generation)
            slowest->gpu = t->gpu;
    }
    return slowest ? slowest : type;
}

static uint32_t fewest_on_node(const uint32_t *member, uint32_t n, const Shape *shape)
{
    uint32_t least = shape[member[0]].on_node;
    for (uint32_t i = 1; i < n; i++)
        least = (uint32_t)min_u64(least, shape[member[i]].on_node);
    return least;
}

static void make_group(Fold *f, uint32_t spec, const uint32_t *member, uint32_t n)
{
    Classes *c = f->c;
    const Shape *shape = f->shape + (size_t)spec * f->n;
    GroupClass *gc = &c->groups[c->groups_n];
    *gc = (GroupClass){ .base = f->rank[member[0]],
                        .size = shape[member[0]].size,
                        .nodes_n = shape[member[0]].nodes_n,
                        .on_node = fewest_on_node(member, n, shape),
                        .sent_once = f->g->groups[spec].sent_once,
                        .type = slowest_type(f, member, n, shape) };
    gc->member = PUSH_ARRAY(&c->arena, uint32_t, n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t own = c->class_of[member[i]];
        if (c->ranks[own].group[spec] == c->groups_n)
            continue;
        c->ranks[own].group[spec] = c->groups_n;
        gc->member[gc->members_n++] = own;
    }
    size_t uses_cap = (size_t)gc->members_n * RES_RANK_N + f->m->slow_links_n;
    gc->uses = PUSH_ARRAY(&c->arena, Use, uses_cap);
    gc->pair_uses = PUSH_ARRAY(&c->arena, Use, uses_cap);
    for (uint32_t i = 0, seen = NONE_U32; i < n; i++) {
        uint32_t own = c->class_of[member[i]];
        bool again = own == seen;
        for (uint32_t j = 0; j < i && !again && gc->members_n < n; j++)
            again = c->class_of[member[j]] == own;
        seen = own;
        for (uint32_t k = 0; k < RES_RANK_N && !again; k++) {
            const Shape *s = &shape[member[i]];
            Use ring = ring_use(f, gc, s, &c->ranks[own], (ResourceKind)k);
            Use pairs = pair_use(f, gc, s, &c->ranks[own], (ResourceKind)k);
            if (ring.coefficient > 0)
                add_use(gc->uses, &gc->uses_n, ring);
            if (pairs.coefficient > 0)
                add_use(gc->pair_uses, &gc->pair_uses_n, pairs);
        }
    }
    add_slow_links(f, gc, &f->g->groups[spec], shape);
    c->groups_n++;
}

void fold_make_groups(Fold *f)
{
    Classes *c = f->c;
    const Graph *g = f->g;
    c->groups = PUSH_ARRAY(&c->arena, GroupClass, (size_t)g->groups_n * c->ranks_n + 1);
    for (uint32_t r = 0; r < c->ranks_n; r++)
        for (uint32_t s = 0; s < g->groups_n; s++)
            c->ranks[r].group[s] = NONE_U32;
    for (uint32_t s = 0; s < g->groups_n; s++) {
        ArenaMark mark = arena_mark(&f->scratch);
        MemberList l = fold_members(f, s);
        for (uint32_t b = 0; b < f->n; b++) {
            uint32_t begin = b ? l.start[b] : 0, end = l.start[b + 1];
            if (end == begin)
                continue;
            uint32_t own = c->class_of[l.member[begin]];
            if (c->ranks[own].group[s] == NONE_U32)
                make_group(f, s, l.member + begin, end - begin);
        }
        arena_reset(&f->scratch, mark);
    }
}

/* ---- point to point ---- */

/* A pair in a mesh or ring has only some of the GPU's links between it: as many as rings of two
 * reach of what those of all reach, where that is known. */
static double pair_coefficient(const NodeType *t)
{
    const RankCurve *c = &t->intra.efficiency;
    bool mesh = t->intra.kind == INTRA_NVLINK_MESH;
    if ((!mesh && t->intra.kind != INTRA_RING) || t->gpus_n <= 2)
        return 1;
    if (c->n > 1 && c->ranks[0] <= 2)
        return rank_curve_at(c, t->gpus_n) / rank_curve_at(c, 2);
    return mesh ? t->gpus_n - 1 : 2;
}

static Use p2p_use(const Classes *c, const RankClass *r, ResourceKind kind, double coefficient)
{
    ASSERT(r->resource[kind] != NONE_U32);
    double own =
        coefficient / p2p_efficiency(c->machine, r->place.type, kind, r->place.type->gpus_n);
    return (Use){ r->resource[kind], own * r->share[kind], own, r->share[kind] };
}

uint32_t classes_p2p_uses(const Classes *c, uint32_t a, uint32_t peer_rank, Use *uses)
{
    const Machine *m = c->machine;
    const RankClass *from = &c->ranks[a], *to = &c->ranks[classes_of_rank(c, peer_rank)];
    Place p = from->place, q = machine_place(m, peer_rank);
    uint32_t n = 0;
    if (p.node == q.node) {
        double pair = pair_coefficient(p.type);
        uses[n++] = p2p_use(c, from, RES_PORT_OUT, pair);
        uses[n++] = p2p_use(c, to, RES_PORT_IN, pair);
    } else {
        uses[n++] = p2p_use(c, from, RES_NIC_OUT, 1);
        uses[n++] = p2p_use(c, to, RES_NIC_IN, 1);
        if (!machine_same_leaf(m, p.node, q.node)) {
            uses[n++] = p2p_use(c, from, RES_LEAF_UP, 1);
            uses[n++] = p2p_use(c, to, RES_LEAF_DOWN, 1);
        }
    }
    uint32_t slowest = machine_slow_link(m, from->rank, peer_rank);
    if (slowest != NONE_U32)
        uses[n++] = (Use){ c->resources_n - m->slow_links_n + slowest, 1, 1, 1 };
    return n;
}

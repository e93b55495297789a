/*
 * classes.c - partition refinement over the kept ranks.
 *
 * Kept ranks are numbered densely: the data-parallel coordinate of a kept rank
 * is below `kept`, everything else is unchanged.  A group's base has coordinate
 * 0 or that of its member, so the base of a kept rank is kept as well.
 *
 * Colours are 64-bit hashes; sums of mixed colours stand for multisets.
 */
#include "sim/classes_parts.h"

#include <stdlib.h>
#include <string.h>

/* ---- numbering ---- */

static uint32_t kept_index(const Classes *c, uint32_t rank)
{
    uint64_t span = (uint64_t)c->replica_stride * c->replica_extent;
    uint64_t high = rank / span, within = rank % span;
    uint64_t coordinate = within / c->replica_stride % c->replica_kept;
    return (uint32_t)((high * c->replica_kept + coordinate) * c->replica_stride +
                      within % c->replica_stride);
}

uint32_t classes_of_rank(const Classes *c, uint32_t rank)
{
    return c->class_of[kept_index(c, rank)];
}

static bool machine_is_uniform(const Machine *m)
{
    return m->types_n == 1 && m->stragglers_n == 0 && m->slow_links_n == 0 && m->jitter <= 0;
}

/* Ranks that a shift must move by a multiple of. */
static uint64_t unit_of_shift(const Machine *m)
{
    uint64_t unit = m->types[0].gpus_n;
    return m->inter.nodes_per_leaf ? unit * m->inter.nodes_per_leaf : unit;
}

/* Does (rank / stride) % extent stay what it is when k is added to the replica coordinate? */
static bool coordinate_stays(uint32_t stride, uint32_t extent, const GroupDim *replica,
                             uint32_t k)
{
    uint64_t reach = (uint64_t)stride * extent, moved = (uint64_t)k * replica->stride;
    uint64_t span = (uint64_t)replica->stride * replica->extent;
    bool beside = replica->stride % reach == 0 || stride % span == 0;
    bool inside = stride % replica->stride == 0 && span % reach == 0;
    return extent == 1 || beside || (inside && moved % reach == 0);
}

/* Groups go over into groups: no coordinate of theirs moves, or all values of it go round (but
 * those of a host group, which have an order). */
static bool groups_survive(const Graph *g, uint32_t k)
{
    const GroupDim *replica = &g->replica;
    uint64_t span = (uint64_t)replica->stride * replica->extent;
    for (uint32_t s = 0; s < g->groups_n; s++)
        for (uint32_t i = 0; i < g->groups[s].dims_n; i++) {
            const GroupDim *d = &g->groups[s].dims[i];
            bool goes_round = s != g->host_group && d->step == 1 && d->count == d->extent &&
                              (uint64_t)d->stride * d->extent == span &&
                              (uint64_t)k * replica->stride % d->stride == 0;
            if (!goes_round && !coordinate_stays(d->stride, d->extent, replica, k))
                return false;
        }
    return coordinate_stays(g->role_stride, g->role_extent, replica, k);
}

static void choose_replicas(Classes *c, const Graph *g, const Machine *m, bool expand)
{
    c->replica_stride = g->replica.extent > 1 ? g->replica.stride : 1;
    c->replica_extent = g->replica.extent > 1 ? g->replica.extent : 1;
    c->replica_kept = c->replica_extent;
    if (expand || !machine_is_uniform(m))
        return;
    uint64_t unit = unit_of_shift(m);
    for (uint32_t k = 1; k < c->replica_extent; k++)
        if (c->replica_extent % k == 0 && (uint64_t)k * c->replica_stride % unit == 0 &&
            groups_survive(g, k)) {
            c->replica_kept = k;
            return;
        }
}

static void number_ranks(Fold *f)
{
    Classes *c = f->c;
    f->n = f->g->world_n / c->replica_extent * c->replica_kept;
    f->rank = PUSH_ARRAY(&f->scratch, uint32_t, f->n);
    f->place = PUSH_ARRAY(&f->scratch, Place, f->n);
    for (uint32_t i = 0; i < f->n; i++) {
        uint32_t low = i % c->replica_stride, rest = i / c->replica_stride;
        uint32_t coordinate = rest % c->replica_kept, high = rest / c->replica_kept;
        f->rank[i] = (high * c->replica_extent + coordinate) * c->replica_stride + low;
        f->place[i] = machine_place(f->m, f->rank[i]);
    }
}

/* ---- links of a rank ---- */

static void number_links(Fold *f)
{
    for (int k = 0; k < LINKS_N; k++)
        f->id[k] = PUSH_ARRAY(&f->scratch, uint32_t, f->n);
    uint32_t last_node = NONE_U32, last_leaf = NONE_U32, nic_base = 0, nic_next = 0, leaf = 0;
    uint32_t nodes = 0;
    for (uint32_t i = 0; i < f->n; i++) {
        const Place *p = &f->place[i];
        uint32_t bundles = fold_bundles_per_node(f->m, p->type);
        if (p->node != last_node) {
            nic_base = nic_next;
            nic_next += bundles;
            last_node = p->node;
            nodes++;
        }
        f->id[0][i] = p->type->intra.kind == INTRA_NONE ? NONE_U32 : i;
        f->id[1][i] =
            bundles ? nic_base + (uint32_t)((uint64_t)p->local * bundles / p->type->gpus_n)
                    : NONE_U32;
        f->id[2][i] = NONE_U32;
        if (machine_has_leaves(f->m)) {
            uint32_t l = p->node / f->m->inter.nodes_per_leaf;
            leaf += last_leaf != NONE_U32 && l != last_leaf;
            last_leaf = l;
            f->id[2][i] = leaf;
        }
        f->id[3][i] = fold_rings_share(f, p->type) ? nodes - 1 : NONE_U32;
    }
    f->ids_n[0] = f->n;
    f->ids_n[1] = nic_next;
    f->ids_n[2] = leaf + 1;
    f->ids_n[3] = f->ring_nics > 0 ? nodes : 0;
}

/* ---- groups ---- */

MemberList fold_members(Fold *f, uint32_t spec)
{
    const uint32_t *base = f->base + (size_t)spec * f->n;
    MemberList l = { PUSH_ARRAY(&f->scratch, uint32_t, f->n + 2),
                     PUSH_ARRAY(&f->scratch, uint32_t, f->n) };
    for (uint32_t i = 0; i < f->n; i++)
        if (base[i] != NONE_U32)
            l.start[base[i] + 2]++;
    for (uint32_t b = 0; b < f->n; b++)
        l.start[b + 2] += l.start[b + 1];
    for (uint32_t i = 0; i < f->n; i++)
        if (base[i] != NONE_U32)
            l.member[l.start[base[i] + 1]++] = i;
    return l;
}

static void shape_of_node(Fold *f, Shape *shape, const uint32_t *member, uint32_t n)
{
    uint32_t nics_n = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t nic = f->id[1][member[i]], sharers = 0;
        for (uint32_t j = i; j < n && f->id[1][member[j]] == nic; j++)
            sharers++;
        if (i == 0 || f->id[1][member[i - 1]] != nic) {
            nics_n++;
            for (uint32_t j = i; j < i + sharers; j++)
                shape[member[j]].nic_sharers = sharers;
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        shape[member[i]].on_node = n;
        shape[member[i]].nics_n = nics_n;
    }
}

static void shape_of_group(Fold *f, Shape *shape, const uint32_t *member, uint32_t n,
                           uint32_t size)
{
    uint32_t nodes = 0, leaves = 0;
    for (uint32_t i = 0, end; i < n; i = end, nodes++) {
        for (end = i; end < n && f->place[member[end]].node == f->place[member[i]].node;)
            end++;
        shape_of_node(f, shape, member + i, end - i);
    }
    for (uint32_t i = 0, end; i < n; i = end, leaves++) {
        for (end = i; end < n && f->id[2][member[end]] == f->id[2][member[i]];)
            end++;
        for (uint32_t j = i; j < end; j++)
            shape[member[j]].in_leaf = end - i;
    }
    /* Members that were not kept lie on nodes and leaves of their own. */
    uint32_t copies = size / n;
    for (uint32_t i = 0; i < n; i++) {
        Shape *s = &shape[member[i]];
        s->size = size;
        s->nodes_n = nodes * copies;
        s->leaves_n = machine_has_leaves(f->m) ? leaves * copies : 1;
    }
}

static void shape_groups(Fold *f)
{
    const Graph *g = f->g;
    f->shape = PUSH_ARRAY(&f->scratch, Shape, (size_t)g->groups_n * f->n);
    f->base = PUSH_ARRAY(&f->scratch, uint32_t, (size_t)g->groups_n * f->n);
    for (uint32_t s = 0; s < g->groups_n; s++) {
        const GroupSpec *spec = &g->groups[s];
        uint32_t *base = f->base + (size_t)s * f->n;
        for (uint32_t i = 0; i < f->n; i++)
            base[i] = group_has(spec, f->rank[i])
                          ? kept_index(f->c, group_base(spec, f->rank[i]))
                          : NONE_U32;
        ArenaMark mark = arena_mark(&f->scratch);
        MemberList l = fold_members(f, s);
        uint32_t size = group_size(spec);
        for (uint32_t b = 0; b < f->n; b++) {
            uint32_t begin = b ? l.start[b] : 0, end = l.start[b + 1];
            if (end > begin)
                shape_of_group(f, f->shape + (size_t)s * f->n, l.member + begin, end - begin,
                               size);
        }
        arena_reset(&f->scratch, mark);
    }
}

static bool check_links(const Fold *f, Err *err)
{
    for (uint32_t s = 0; s < f->g->groups_n; s++)
        for (uint32_t i = 0; i < f->n; i++) {
            const Shape *h = &f->shape[(size_t)s * f->n + i];
            const char *name = intern_text(&f->g->names, f->g->groups[s].name);
            if (h->nodes_n > 1 && f->id[1][i] == NONE_U32)
                return err_set(
                    err,
                    "cluster '%s': the %s group of rank %u spans nodes, but inter_node is none",
                    f->m->name, name, f->rank[i]);
            if (h->on_node > 1 && f->id[0][i] == NONE_U32)
                return err_set(err,
                               "cluster '%s': the %s group of rank %u has two ranks on a node, "
                               "but intra_node is none",
                               f->m->name, name, f->rank[i]);
        }
    return true;
}

/* ---- colours ---- */

static uint64_t mix2(uint64_t a, uint64_t b)
{
    return mix_u64(a ^ mix_u64(b));
}

/* The same where one of them is mixed already. */
static uint64_t mix_in(uint64_t mixed, uint64_t x)
{
    return mix_u64(mixed ^ x);
}

static uint64_t bits(double x)
{
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

/* Sends cross a node or leaf boundary or not, depending on the peer.  node: by member. */
static uint64_t hash_peers(const Fold *f, const uint32_t *node, uint32_t n, uint32_t own)
{
    uint64_t h = 0;
    for (uint32_t p = 0; p < n; p++)
        h = mix_in(h, (uint64_t)(node[p] == own) * 2 + machine_same_leaf(f->m, node[p], own));
    return h;
}

static void color_peers(Fold *f, uint32_t s)
{
    const GroupSpec *spec = &f->g->groups[s];
    uint32_t n = group_size(spec);
    if (n > 4096)
        return;
    ArenaMark mark = arena_mark(&f->scratch);
    MemberList l = fold_members(f, s);
    uint32_t *node = PUSH_ARRAY(&f->scratch, uint32_t, n);
    for (uint32_t b = 0; b < f->n; b++) {
        uint32_t begin = b ? l.start[b] : 0, end = l.start[b + 1];
        for (uint32_t p = 0; p < n && begin < end; p++)
            node[p] = machine_place(f->m, group_member(spec, f->rank[l.member[begin]], p)).node;
        for (uint32_t k = begin; k < end; k++) {
            uint32_t i = l.member[k];
            f->color[i] = mix_in(f->color[i], hash_peers(f, node, n, f->place[i].node));
        }
    }
    arena_reset(&f->scratch, mark);
}

static void color_specs(Fold *f, const bool *has_p2p)
{
    for (uint32_t s = 0; s < f->g->groups_n; s++) {
        for (uint32_t i = 0; i < f->n; i++) {
            const Shape *h = &f->shape[(size_t)s * f->n + i];
            const uint32_t v[] = { h->size,   h->nodes_n,     h->leaves_n, h->on_node,
                                   h->nics_n, h->nic_sharers, h->in_leaf };
            uint64_t color = f->color[i];
            for (size_t k = 0; k < ARRAY_N(v); k++)
                color = mix_in(color, v[k]);
            f->color[i] = color;
        }
        if (has_p2p[s])
            color_peers(f, s);
    }
}

/* When its host comes to it: members of a host group are launched in order. */
static uint64_t host_turn(const Fold *f, uint32_t i)
{
    const GroupSpec *spec = &f->g->groups[f->g->host_group];
    return group_has(spec, f->rank[i]) ? group_index(spec, f->rank[i]) + 1 : 0;
}

static void color_start(Fold *f, bool expand)
{
    bool *has_p2p = PUSH_ARRAY(&f->scratch, bool, f->g->groups_n + 1);
    for (uint32_t i = 0; i < f->g->ops_n; i++)
        if (op_is_p2p(f->g->ops[i].kind))
            has_p2p[f->g->ops[i].u.comm.group] = true;
    for (uint32_t i = 0; i < f->n; i++) {
        uint32_t role = f->g->role_of[f->rank[i] / f->g->role_stride % f->g->role_extent];
        uint64_t type = (uint64_t)(f->place[i].type - f->m->types);
        f->color[i] = mix2(mix2(role + 1, type), bits(machine_speed(f->m, f->rank[i])));
        for (uint32_t k = 0; k < f->m->slow_links_n; k++)
            if (f->m->slow_links[k].rank_a == f->rank[i] ||
                f->m->slow_links[k].rank_b == f->rank[i])
                f->color[i] = mix2(f->color[i], k + 77);
        if (f->g->host_group != NONE_U32)
            f->color[i] = mix2(f->color[i], host_turn(f, i));
        if (expand || f->m->jitter > 0)
            f->color[i] = mix2(i, 0x5eed);
    }
    if (!expand)
        color_specs(f, has_p2p);
}

/* A power of two, half of which n colours fill at most. */
static uint32_t places_for(uint32_t n)
{
    uint32_t places = 16;
    while (places < 2 * (uint64_t)n)
        places *= 2;
    return places;
}

static void forget_colors(Fold *f)
{
    memset(f->seen, 0, ((size_t)f->seen_mask + 1) * sizeof *f->seen);
}

/* The first to come with i's colour since they were forgotten. */
static uint32_t first_of_color(Fold *f, uint32_t i)
{
    uint64_t color = f->color[i];
    uint32_t at = (uint32_t)color & f->seen_mask;
    while (f->seen[at] && f->color[f->seen[at] - 1] != color)
        at = (at + 1) & f->seen_mask;
    if (!f->seen[at])
        f->seen[at] = i + 1;
    return f->seen[at] - 1;
}

static uint32_t count_colors(Fold *f)
{
    uint32_t n = 0;
    forget_colors(f);
    for (uint32_t i = 0; i < f->n; i++)
        n += first_of_color(f, i) == i;
    return n;
}

/* Adds to every rank's next colour the multiset of colours that share key[i] with it. */
static void stir(Fold *f, const uint32_t *key, uint32_t keys_n, uint64_t salt)
{
    memset(f->sum, 0, keys_n * sizeof *f->sum);
    for (uint32_t i = 0; i < f->n; i++)
        if (key[i] != NONE_U32)
            f->sum[key[i]] += mix2(f->color[i], salt);
    for (uint32_t i = 0; i < f->n; i++)
        if (key[i] != NONE_U32)
            f->next[i] = mix2(f->next[i], f->sum[key[i]] + salt);
}

static void refine(Fold *f)
{
    uint32_t before = count_colors(f);
    while (before < f->n) {
        memcpy(f->next, f->color, f->n * sizeof *f->next);
        for (uint32_t s = 0; s < f->g->groups_n; s++)
            stir(f, f->base + (size_t)s * f->n, f->n, 100 + s);
        for (uint32_t k = 0; k < LINKS_N; k++)
            if (f->ids_n[k] > 0)
                stir(f, f->id[k], f->ids_n[k], k + 1);
        memcpy(f->color, f->next, f->n * sizeof *f->next);
        uint32_t now = count_colors(f);
        if (now == before)
            return;
        before = now;
    }
}

/* ---- classes out of colours ---- */

/* Classes are numbered by their lowest rank. */
static void name_classes(Fold *f)
{
    Classes *c = f->c;
    c->class_of = PUSH_ARRAY(&c->arena, uint32_t, f->n);
    forget_colors(f);
    for (uint32_t i = 0; i < f->n; i++) {
        uint32_t first = first_of_color(f, i);
        c->class_of[i] = first == i ? c->ranks_n++ : c->class_of[first];
    }
    c->ranks = PUSH_ARRAY(&c->arena, RankClass, c->ranks_n);
    uint32_t copies = c->replica_extent / c->replica_kept;
    for (uint32_t i = 0; i < f->n; i++) {
        RankClass *r = &c->ranks[c->class_of[i]];
        if (r->ranks_n == 0) {
            r->rank = f->rank[i];
            r->role = f->g->role_of[f->rank[i] / f->g->role_stride % f->g->role_extent];
            r->place = f->place[i];
            r->speed = machine_speed(f->m, f->rank[i]);
            r->group = PUSH_ARRAY(&c->arena, uint32_t, f->g->groups_n + 1);
        }
        r->ranks_n += copies;
    }
}

static bool check_machine(const Graph *g, const Machine *m, Err *err)
{
    if (g->world_n > m->gpus_n && m->types_n == 1)
        return err_set(err,
                       "cluster '%s' has %u GPUs, %u are needed; allowed: \"cluster.nodes\": "
                       "%" PRIu64,
                       m->name, m->gpus_n, g->world_n,
                       div_up_u64(g->world_n, m->types[0].gpus_n));
    if (g->world_n > m->gpus_n)
        return err_set(err, "cluster '%s' has %u GPUs, %u are needed", m->name, m->gpus_n,
                       g->world_n);
    if (m->inter.kind == INTER_TORUS)
        return err_set(err,
                       "cluster '%s': inter_node.kind '%s' cannot be simulated yet, allowed: "
                       "none, fat_tree, rail, dragonfly, ethernet",
                       m->name, inter_kind_names[m->inter.kind]);
    return true;
}

bool classes_make(Classes *c, const Graph *g, const Machine *m, uint32_t ring_nics, bool expand,
                  Err *err)
{
    ASSERT(g->sealed);
    *c = (Classes){ .machine = m };
    if (!check_machine(g, m, err))
        return false;
    Fold f = { .c = c, .g = g, .m = m, .ring_nics = ring_nics };
    choose_replicas(c, g, m, expand);
    number_ranks(&f);
    number_links(&f);
    shape_groups(&f);
    bool ok = check_links(&f, err);
    if (ok) {
        uint32_t sums_n = f.n + f.ids_n[1] + f.ids_n[2] + f.ids_n[3];
        f.color = PUSH_ARRAY(&f.scratch, uint64_t, f.n);
        f.next = PUSH_ARRAY(&f.scratch, uint64_t, f.n);
        f.sum = PUSH_ARRAY(&f.scratch, uint64_t, sums_n);
        f.seen_mask = places_for(f.n) - 1;
        f.seen = PUSH_UNSET(&f.scratch, uint32_t, (size_t)f.seen_mask + 1);
        color_start(&f, expand);
        refine(&f);
        name_classes(&f);
        fold_make_resources(&f);
        fold_make_groups(&f);
    }
    arena_free(&f.scratch);
    return ok;
}

void classes_free(Classes *c)
{
    arena_free(&c->arena);
    *c = (Classes){ 0 };
}

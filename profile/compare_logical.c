/*
 * compare_logical.c - ops of two stacks of software that do the same of one model.
 *
 *     sim    |qkv     |bias|attn|    logical ops  {0} {1} {2}
 *     real   |qkv+bias  |attn|                    {0 1} {2}      pairs: {0 1}, {2}
 *
 * Ops that have a logical op in common, themselves or by way of others of either side, are one
 * pair: on each side they become one op, which has all their kernels.  Its class is what the side
 * with fewer ops calls its longest; where both have as many, the real one.
 *
 * What is of an instance that both sides have, and has no pair, the other stack does not do: it
 * has no twin among other ops either.
 */
#include "profile/compare_parts.h"

#include <stdlib.h>
#include <string.h>

/* A logical op of an op: nodes are the ops of sim, then those of real. */
typedef struct Entry {
    uint64_t instance;
    uint32_t number, node;
} Entry;

typedef struct Joining {
    SideRank *const *side;
    uint32_t first[COMPARE_SIDES + 1]; /* node of a side's first op */
    Entry *entries;
    size_t entries_n;
    uint32_t *parent;               /* by node, union-find */
    uint32_t *ops_n[COMPARE_SIDES]; /* by root: ops of it on that side */
    bool *known;                    /* by node: both sides have its instance */
} Joining;

static const SideOp *op_of(const Joining *j, uint32_t node)
{
    int k = node >= j->first[COMPARE_REAL];
    return &j->side[k]->ops[node - j->first[k]];
}

static int compare_entries(const void *x, const void *y)
{
    const Entry *p = x, *q = y;
    if (p->instance != q->instance)
        return p->instance < q->instance ? -1 : 1;
    if (p->number != q->number)
        return p->number < q->number ? -1 : 1;
    return p->node < q->node ? -1 : p->node > q->node;
}

static void list_entries(Joining *j)
{
    uint32_t nodes_n = j->first[COMPARE_SIDES];
    size_t n = 0;
    for (uint32_t i = 0; i < nodes_n; i++)
        n += op_of(j, i)->logical.n;
    j->entries = mem_zero(n + 1, sizeof *j->entries);
    for (uint32_t i = 0; i < nodes_n; i++) {
        LogicalOps of = op_of(j, i)->logical;
        for (uint32_t k = 0; k < of.n; k++)
            j->entries[j->entries_n++] = (Entry){ of.instance, of.op[k], i };
    }
    qsort(j->entries, j->entries_n, sizeof *j->entries, compare_entries);
}

static uint32_t root_of(const Joining *j, uint32_t node)
{
    while (j->parent[node] != node) {
        j->parent[node] = j->parent[j->parent[node]];
        node = j->parent[node];
    }
    return node;
}

/* The lower of two roots stays one. */
static void unite(Joining *j, uint32_t x, uint32_t y)
{
    x = root_of(j, x);
    y = root_of(j, y);
    j->parent[x > y ? x : y] = x > y ? y : x;
}

/* Entries from on are of one instance; returns their end. */
static size_t look_at_instance(Joining *j, size_t from)
{
    const Entry *e = j->entries;
    bool there[COMPARE_SIDES] = { false };
    size_t end = from;
    for (; end < j->entries_n && e[end].instance == e[from].instance; end++) {
        there[e[end].node >= j->first[COMPARE_REAL]] = true;
        if (end > from && e[end].number == e[end - 1].number)
            unite(j, e[end - 1].node, e[end].node);
    }
    for (size_t i = from; i < end && there[COMPARE_SIM] && there[COMPARE_REAL]; i++)
        j->known[e[i].node] = true;
    return end;
}

/* False: no op of one side has a logical op of the other's. */
static bool find_groups(Joining *j)
{
    uint32_t nodes_n = j->first[COMPARE_SIDES];
    bool any = false;
    for (uint32_t i = 0; i < nodes_n; i++)
        j->parent[i] = i;
    for (size_t i = 0; i < j->entries_n;)
        i = look_at_instance(j, i);
    for (uint32_t i = 0; i < nodes_n; i++) {
        uint32_t root = root_of(j, i);
        j->ops_n[i >= j->first[COMPARE_REAL]][root]++;
        any = any || (j->ops_n[COMPARE_SIM][root] && j->ops_n[COMPARE_REAL][root]);
    }
    return any;
}

/* ---- as one op ---- */

/* Named as its longest kernel that says a class. */
static void join(SideOp *to, const SideOp *more)
{
    bool same = (to->classes == 0) == (more->classes == 0);
    bool keeps = same ? to->longest_ns >= more->longest_ns : to->classes != 0;
    SideOp sum = keeps ? *to : *more;
    sum.start_ns = min_i64(to->start_ns, more->start_ns);
    sum.end_ns = max_i64(to->end_ns, more->end_ns);
    sum.dur_ns = to->dur_ns + more->dur_ns;
    sum.classes = to->classes | more->classes;
    sum.pieces_n = to->pieces_n + more->pieces_n;
    *to = sum;
}

static bool is_paired(const Joining *j, uint32_t root)
{
    return j->ops_n[COMPARE_SIM][root] > 0 && j->ops_n[COMPARE_REAL][root] > 0;
}

/* at: by root, the op of the new side that it is.  where: by op of the old side. */
static void join_ops(const Joining *j, int k, SideRank *to, uint32_t *at, uint32_t *where)
{
    const SideRank *from = j->side[k];
    for (uint32_t i = 0; i < from->ops_n; i++) {
        uint32_t root = root_of(j, j->first[k] + i);
        bool paired = is_paired(j, root);
        if (paired && at[root] != NONE_U32) {
            where[i] = at[root];
            join(&to->ops[where[i]], &from->ops[i]);
            continue;
        }
        where[i] = to->ops_n++;
        to->ops[where[i]] = from->ops[i];
        to->ops[where[i]].absent = !paired && j->known[j->first[k] + i];
        if (paired)
            at[root] = where[i];
    }
}

/* Kernels of an op stand together. */
static void move_pieces(const SideRank *from, SideRank *to, const uint32_t *where)
{
    for (uint32_t i = 0; i < to->ops_n; i++) {
        to->ops[i].piece_first = to->pieces_n;
        to->pieces_n += to->ops[i].pieces_n;
        to->ops[i].pieces_n = 0;
    }
    for (uint32_t i = 0; i < from->ops_n; i++) {
        const SideOp *o = &from->ops[i];
        SideOp *joined = &to->ops[where[i]];
        for (uint32_t p = 0; p < o->pieces_n; p++)
            to->pieces[joined->piece_first + joined->pieces_n++] =
                from->pieces[o->piece_first + p];
    }
}

static SideRank *join_side(const Joining *j, int k, uint32_t *at, Arena *arena)
{
    const SideRank *from = j->side[k];
    SideRank *to = PUSH(arena, SideRank);
    uint32_t *where = mem_zero((size_t)from->ops_n + 1, sizeof *where);
    *to = *from;
    to->ops = PUSH_ARRAY(arena, SideOp, (size_t)from->ops_n + 1);
    to->pieces = PUSH_ARRAY(arena, SidePiece, (size_t)from->pieces_n + 1);
    to->ops_n = to->pieces_n = 0;
    join_ops(j, k, to, at, where);
    move_pieces(from, to, where);
    free(where);
    return to;
}

/* at: by side and root. */
static void pair_groups(const Joining *j, SideRank *const to[COMPARE_SIDES],
                        uint32_t *const at[COMPARE_SIDES])
{
    for (uint32_t root = 0; root < j->first[COMPARE_SIDES]; root++) {
        if (!is_paired(j, root))
            continue;
        uint32_t a = at[COMPARE_SIM][root], b = at[COMPARE_REAL][root];
        SideOp *x = &to[COMPARE_SIM]->ops[a], *y = &to[COMPARE_REAL]->ops[b];
        bool sim_says = j->ops_n[COMPARE_SIM][root] < j->ops_n[COMPARE_REAL][root];
        x->class_ = y->class_ = sim_says ? x->class_ : y->class_;
        x->twin = b;
        y->twin = a;
    }
}

static void joining_open(Joining *j, SideRank *const side[COMPARE_SIDES])
{
    *j = (Joining){ .side = side };
    for (int k = 0; k < COMPARE_SIDES; k++)
        j->first[k + 1] = j->first[k] + side[k]->ops_n;
    size_t nodes_n = (size_t)j->first[COMPARE_SIDES] + 1;
    j->parent = mem_zero(nodes_n, sizeof *j->parent);
    j->known = mem_zero(nodes_n, sizeof *j->known);
    for (int k = 0; k < COMPARE_SIDES; k++)
        j->ops_n[k] = mem_zero(nodes_n, sizeof *j->ops_n[k]);
}

static void joining_close(Joining *j)
{
    for (int k = 0; k < COMPARE_SIDES; k++)
        free(j->ops_n[k]);
    free(j->known);
    free(j->parent);
    free(j->entries);
}

bool compare_join(SideRank *side[COMPARE_SIDES], Arena *arena)
{
    Joining j;
    joining_open(&j, side);
    list_entries(&j);
    bool any = find_groups(&j);
    if (any) {
        size_t nodes_n = (size_t)j.first[COMPARE_SIDES] + 1;
        uint32_t *at[COMPARE_SIDES];
        SideRank *joined[COMPARE_SIDES];
        for (int k = 0; k < COMPARE_SIDES; k++) {
            at[k] = PUSH_ARRAY(arena, uint32_t, nodes_n);
            memset(at[k], 0xff, nodes_n * sizeof *at[k]); /* NONE_U32 */
            joined[k] = join_side(&j, k, at[k], arena);
        }
        pair_groups(&j, joined, at);
        memcpy(side, joined, sizeof joined);
    }
    joining_close(&j);
    return any;
}

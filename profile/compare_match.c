/*
 * compare_match.c - which op of one rank is which of the other's.
 *
 * By op id where both sides carry ids and the ids mean the same: ops of one id then
 * have one name - or, where one side names kernels and the other ops, are of one class
 * or may be: no kernel's name contradicts.  The op's name then says the class of both.
 * Ids of another graph (other buckets, another model) soon name different ops, if
 * only from the first difference on; then ops are paired by what they do of the model
 * (compare_logical.c), and of the rest sequences are aligned: kernels, copies, and
 * each kind of collective apart, for streams are laid out differently.
 */
#include "profile/align.h"
#include "profile/compare_parts.h"

#include <stdlib.h>

/* ---- by op id ---- */

typedef struct IdOp {
    uint32_t id, at;
} IdOp;

static int compare_ids(const void *x, const void *y)
{
    const IdOp *p = x, *q = y;
    if (p->id != q->id)
        return p->id < q->id ? -1 : 1;
    return p->at < q->at ? -1 : p->at > q->at;
}

static IdOp *ids_of(const SideRank *r, uint32_t *n)
{
    IdOp *ids = mem_zero((size_t)r->ops_n + 1, sizeof *ids);
    *n = 0;
    for (uint32_t i = 0; i < r->ops_n; i++)
        if (r->ops[i].op != NONE_U32)
            ids[(*n)++] = (IdOp){ r->ops[i].op, i };
    qsort(ids, *n, sizeof *ids, compare_ids);
    return ids;
}

static void pair(SideRank *a, uint32_t i, SideRank *b, uint32_t k)
{
    a->ops[i].twin = k;
    b->ops[k].twin = i;
}

static void unpair_all(SideRank *r)
{
    for (uint32_t i = 0; i < r->ops_n; i++)
        r->ops[i].twin = NONE_U32;
}

static bool is_left(const SideOp *o)
{
    return o->twin == NONE_U32 && !o->absent;
}

/* One of the op's kernels is of the other's class, or no name says anything of a class. */
static bool may_be_alike(const SideOp *x, const SideOp *y)
{
    return x->class_ == y->class_ || (x->classes & y->classes) || !x->classes || !y->classes;
}

/* Ops of equal ids, and how many of them are alike. */
typedef struct IdPairs {
    uint32_t n, same_class_n, alike_n, same_name_n;
    uint64_t pieces_n[COMPARE_SIDES]; /* the side that has fewer names ops, not kernels */
} IdPairs;

static IdPairs pair_ids(SideRank *a, const IdOp *a_ids, uint32_t a_n, SideRank *b,
                        const IdOp *b_ids, uint32_t b_n)
{
    IdPairs p = { 0 };
    for (uint32_t i = 0, k = 0; i < a_n && k < b_n;) {
        if (a_ids[i].id != b_ids[k].id) {
            bool a_is_less = a_ids[i].id < b_ids[k].id;
            i += a_is_less;
            k += !a_is_less;
            continue;
        }
        const SideOp *x = &a->ops[a_ids[i].at], *y = &b->ops[b_ids[k].at];
        bool same_class = x->class_ == y->class_;
        bool same_name = (same_class && class_is_comm(x->class_)) || x->named == y->named;
        bool alike = same_name || may_be_alike(x, y);
        p.n++;
        p.same_class_n += same_class;
        p.same_name_n += same_name;
        p.alike_n += alike;
        p.pieces_n[COMPARE_SIM] += x->pieces_n;
        p.pieces_n[COMPARE_REAL] += y->pieces_n;
        if (alike)
            pair(a, a_ids[i].at, b, b_ids[k].at);
        i++;
        k++;
    }
    return p;
}

/* All of one name; or hardly any of one name, most of one class, nearly all perhaps of one. */
static bool ids_are_trusted(IdPairs p, uint32_t a_n, uint32_t b_n)
{
    uint32_t fewer = a_n < b_n ? a_n : b_n;
    if (p.n == 0 || p.n < fewer / 2)
        return false;
    bool other_names =
        4 * p.same_name_n < p.n && 2 * p.same_class_n > p.n && p.alike_n >= p.n - p.n / 10;
    return p.same_name_n == p.n || other_names;
}

/* A kernel is of the class of the op that it is part of. */
static void agree_on_classes(SideRank *a, SideRank *b, IdPairs p)
{
    bool b_names = p.pieces_n[COMPARE_REAL] < p.pieces_n[COMPARE_SIM];
    const SideRank *named = b_names ? b : a;
    SideRank *other = b_names ? a : b;
    for (uint32_t i = 0; i < other->ops_n; i++)
        if (other->ops[i].twin != NONE_U32)
            other->ops[i].class_ = named->ops[other->ops[i].twin].class_;
}

static bool match_ids(SideRank *a, SideRank *b)
{
    uint32_t a_n, b_n;
    IdOp *a_ids = ids_of(a, &a_n), *b_ids = ids_of(b, &b_n);
    IdPairs p = pair_ids(a, a_ids, a_n, b, b_ids, b_n);
    bool trusted = ids_are_trusted(p, a_n, b_n);
    if (trusted) {
        agree_on_classes(a, b, p);
    } else {
        unpair_all(a);
        unpair_all(b);
    }
    free(a_ids);
    free(b_ids);
    return trusted;
}

/* ---- as sequences ---- */

/* Classes that are one sequence: all kernels, else each class its own. */
static OpClass sequence_of(OpClass k)
{
    return k < CLASS_ALL_REDUCE ? CLASS_MATMUL : k;
}

/* Collectives are alike when their bytes round to one power of two, or when a side does not know
 * bytes; kernels when they are of one class. */
static uint64_t loose_key(const SideOp *o, bool with_bytes)
{
    uint64_t power = 0;
    if (!class_is_comm(o->class_))
        return (uint64_t)o->class_ + 1;
    while (with_bytes && power < 63 &&
           (double)o->bytes > 1.4142 * (double)((uint64_t)1 << power))
        power++;
    return power + 1;
}

static bool knows_bytes(const SideRank *r, OpClass sequence)
{
    for (uint32_t i = 0; i < r->ops_n; i++)
        if (is_left(&r->ops[i]) && r->ops[i].class_ == sequence && r->ops[i].bytes == NONE_U64)
            return false;
    return true;
}

static AlignItem *items_of(const SideRank *r, OpClass sequence, bool with_bytes, uint32_t *at,
                           uint32_t *n)
{
    AlignItem *items = mem_zero((size_t)r->ops_n + 1, sizeof *items);
    *n = 0;
    for (uint32_t i = 0; i < r->ops_n; i++) {
        const SideOp *o = &r->ops[i];
        if (!is_left(o) || sequence_of(o->class_) != sequence)
            continue;
        at[*n] = i;
        items[(*n)++] = (AlignItem){ o->exact, loose_key(o, with_bytes) };
    }
    return items;
}

static void match_sequence(SideRank *a, SideRank *b, OpClass sequence)
{
    uint32_t *a_at = mem_zero((size_t)a->ops_n + 1, sizeof *a_at);
    uint32_t *b_at = mem_zero((size_t)b->ops_n + 1, sizeof *b_at);
    uint32_t *match = mem_zero((size_t)a->ops_n + 1, sizeof *match);
    uint32_t a_n, b_n;
    bool with_bytes = knows_bytes(a, sequence) && knows_bytes(b, sequence);
    AlignItem *a_items = items_of(a, sequence, with_bytes, a_at, &a_n);
    AlignItem *b_items = items_of(b, sequence, with_bytes, b_at, &b_n);
    if (a_n && b_n)
        align(match, a_items, a_n, b_items, b_n);
    for (uint32_t i = 0; i < a_n && b_n; i++)
        if (match[i] != NONE_U32)
            pair(a, a_at[i], b, b_at[match[i]]);
    free(a_items);
    free(b_items);
    free(a_at);
    free(b_at);
    free(match);
}

ComparePaired compare_match(SideRank *side[COMPARE_SIDES], Arena *arena)
{
    for (int k = 0; k < COMPARE_SIDES; k++)
        unpair_all(side[k]);
    if (match_ids(side[COMPARE_SIM], side[COMPARE_REAL]))
        return PAIRED_OP;
    bool joined = compare_join(side, arena);
    SideRank *sim = side[COMPARE_SIM], *real = side[COMPARE_REAL];
    match_sequence(sim, real, CLASS_MATMUL);
    for (OpClass k = CLASS_ALL_REDUCE; k <= CLASS_MEMORY; k++)
        match_sequence(sim, real, k);
    return joined ? PAIRED_LOGICAL : PAIRED_SEQUENCE;
}

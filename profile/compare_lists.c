/*
 * compare_lists.c - which ops differ most, which have no twin, where the sides part.
 *
 * Ops are listed by their names on both sides: the hundred instances of a layer's
 * matmul are one row.  The drift is how much later the sim's op ends than its twin,
 * both counted from their step's start; it parts where it first reaches a tenth of
 * its largest value, so small noise before a large difference is not named.
 */
#include "profile/compare_parts.h"

#include <stdlib.h>
#include <string.h>

/* ---- by name ---- */

static CompareOp op_row(const SideOp *sim, const SideOp *real)
{
    CompareOp row = { .n = 1, .class_ = compare_class_names[(real ? real : sim)->class_] };
    if (sim) {
        row.name[COMPARE_SIM] = sim->name;
        row.time_ns[COMPARE_SIM] = sim->dur_ns;
    }
    if (real) {
        row.name[COMPARE_REAL] = real->name;
        row.time_ns[COMPARE_REAL] = real->dur_ns;
    }
    return row;
}

static int compare_texts(const char *a, const char *b)
{
    if (!a || !b)
        return (a != NULL) - (b != NULL);
    return strcmp(a, b);
}

static int compare_names(const CompareOp *p, const CompareOp *q)
{
    int by_real = compare_texts(p->name[COMPARE_REAL], q->name[COMPARE_REAL]);
    int by_sim = compare_texts(p->name[COMPARE_SIM], q->name[COMPARE_SIM]);
    return by_real ? by_real : by_sim ? by_sim : strcmp(p->class_, q->class_);
}

static int by_name(const void *x, const void *y)
{
    return compare_names(x, y);
}

static int64_t weight_of(const CompareOp *o)
{
    return llabs(o->time_ns[COMPARE_SIM] - o->time_ns[COMPARE_REAL]);
}

static int by_weight(const void *x, const void *y)
{
    int64_t p = weight_of(x), q = weight_of(y);
    return p != q ? (p > q ? -1 : 1) : compare_names(x, y);
}

/* Rows of one name become one; largest difference first. */
static uint32_t merge_rows(CompareOp *rows, size_t n)
{
    uint32_t kept = 0;
    qsort(rows, n, sizeof *rows, by_name);
    for (size_t i = 0; i < n; i++) {
        CompareOp *last = kept ? &rows[kept - 1] : NULL;
        if (!last || compare_names(last, &rows[i]) != 0) {
            rows[kept++] = rows[i];
            continue;
        }
        last->n += rows[i].n;
        last->time_ns[COMPARE_SIM] += rows[i].time_ns[COMPARE_SIM];
        last->time_ns[COMPARE_REAL] += rows[i].time_ns[COMPARE_REAL];
    }
    qsort(rows, kept, sizeof *rows, by_weight);
    return kept;
}

static void add_row(RowList *l, uint32_t ranks_n, const SideOp *sim, const SideOp *real)
{
    CompareOp row = op_row(sim, real);
    row.n *= ranks_n;
    row.time_ns[COMPARE_SIM] *= ranks_n;
    row.time_ns[COMPARE_REAL] *= ranks_n;
    GROW(l->rows, l->n, l->cap);
    l->rows[l->n++] = row;
}

/* Texts of the timelines are copied: a Comparison outlives them. */
static CompareOp *keep_rows(Comparison *c, RowList *l, uint32_t *n)
{
    *n = l->n ? merge_rows(l->rows, l->n) : 0;
    CompareOp *rows = PUSH_ARRAY(&c->arena, CompareOp, (size_t)*n + 1);
    for (uint32_t i = 0; i < *n; i++) {
        rows[i] = l->rows[i];
        for (int k = 0; k < COMPARE_SIDES; k++)
            if (rows[i].name[k])
                rows[i].name[k] = arena_strdup(&c->arena, rows[i].name[k]);
    }
    free(l->rows);
    return rows;
}

void compare_list_rank(OpLists *l, const CompareRank *r, const SideRank *sim,
                       const SideRank *real)
{
    for (uint32_t i = 0; i < sim->ops_n; i++) {
        const SideOp *o = &sim->ops[i];
        if (o->twin == NONE_U32)
            add_row(&l->only[COMPARE_SIM], r->ranks_n, o, NULL);
        else
            add_row(&l->both, r->ranks_n, o, &real->ops[o->twin]);
    }
    for (uint32_t i = 0; i < real->ops_n; i++)
        if (real->ops[i].twin == NONE_U32)
            add_row(&l->only[COMPARE_REAL], r->ranks_n, NULL, &real->ops[i]);
}

void compare_list_end(Comparison *c, OpLists *l)
{
    c->ops = keep_rows(c, &l->both, &c->ops_n);
    for (int k = 0; k < COMPARE_SIDES; k++)
        c->only[k] = keep_rows(c, &l->only[k], &c->only_n[k]);
}

/* ---- drift ---- */

typedef struct End {
    int64_t real_ns, drift_ns;
    uint32_t op; /* of real */
} End;

static int by_end(const void *x, const void *y)
{
    const End *p = x, *q = y;
    if (p->real_ns != q->real_ns)
        return p->real_ns < q->real_ns ? -1 : 1;
    return p->op < q->op ? -1 : p->op > q->op;
}

static size_t ends_of(End *ends, const SideRank *sim, const SideRank *real)
{
    size_t n = 0;
    for (uint32_t i = 0; i < real->ops_n; i++) {
        const SideOp *o = &real->ops[i];
        if (o->twin == NONE_U32)
            continue;
        const SideOp *s = &sim->ops[o->twin];
        ends[n++] = (End){ o->end_ns, s->end_ns - o->end_ns, i };
    }
    qsort(ends, n, sizeof *ends, by_end);
    return n;
}

static void name_parting(Comparison *c, const SideRank *sim, const SideRank *real, End at)
{
    CompareDrift *d = &c->drift;
    const SideOp *o = &real->ops[at.op], *s = &sim->ops[o->twin];
    d->op_name = arena_strdup(&c->arena, o->name);
    d->op_class = compare_class_names[o->class_];
    d->op = o->op;
    d->op_start_ns = o->start_ns;
    d->op_drift_ns = at.drift_ns;
    d->op_time_ns[COMPARE_SIM] = s->dur_ns;
    d->op_time_ns[COMPARE_REAL] = o->dur_ns;
}

void compare_drift(Comparison *c, uint32_t rank, const SideRank *sim, const SideRank *real)
{
    CompareDrift *d = &c->drift;
    End *ends = mem_zero((size_t)real->ops_n + 1, sizeof *ends);
    size_t n = ends_of(ends, sim, real);
    d->rank = rank;
    for (size_t i = 0; i < n; i++)
        if (llabs(ends[i].drift_ns) > llabs(d->largest_ns))
            d->largest_ns = ends[i].drift_ns;
    d->parts = d->largest_ns != 0;
    for (size_t i = 0; i < n && d->parts; i++)
        if (llabs(ends[i].drift_ns) >= max_i64(llabs(d->largest_ns) / 10, 1)) {
            name_parting(c, sim, real, ends[i]);
            break;
        }
    d->end_ns = n ? ends[n - 1].drift_ns : 0;
    d->points_n = (uint32_t)min_u64(n, COMPARE_POINTS);
    for (uint32_t i = 0; i < d->points_n; i++) {
        size_t at = d->points_n < 2 ? 0 : (size_t)i * (n - 1) / (d->points_n - 1);
        d->points[i] = (DriftPoint){ ends[at].real_ns, ends[at].drift_ns };
    }
    free(ends);
}

/* compare.c - ranks beside ranks, classes beside classes, and what the numbers mean. */
#include "profile/compare_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- which rank stands beside which ---- */

/* In a folded timeline the rank that stands for one without tracks, which is not written down: one
 * that does the same as `like`, else the last one before it. */
static SideRank *source_of(const Side *s, uint32_t rank, const SideRank *like)
{
    SideRank *before = NULL, *same = NULL;
    if (s->t->ranks_n && rank >= s->t->ranks_n)
        return NULL;
    for (uint32_t i = 0; i < s->ranks_n; i++) {
        SideRank *r = &s->ranks[i];
        if (r->ranks_n < 2)
            continue;
        if (r->rank < rank || !before)
            before = r;
        if (like && (r->rank < rank || !same) && r->signature == like->signature)
            same = r;
    }
    return same ? same : before;
}

typedef struct Pairs {
    SideRank **side[COMPARE_SIDES];
} Pairs;

static void add_pair(Comparison *c, Pairs *p, uint32_t rank, SideRank *sim, SideRank *real)
{
    for (uint32_t i = 0; i < c->ranks_n; i++)
        if (p->side[COMPARE_SIM][i] == sim && p->side[COMPARE_REAL][i] == real) {
            c->ranks[i].ranks_n++;
            return;
        }
    p->side[COMPARE_SIM][c->ranks_n] = sim;
    p->side[COMPARE_REAL][c->ranks_n] = real;
    c->ranks[c->ranks_n++] =
        (CompareRank){ .rank = rank, .source = { sim->rank, real->rank }, .ranks_n = 1 };
}

static SideRank *own_rank(const Side *s, uint32_t rank)
{
    for (uint32_t i = 0; i < s->ranks_n; i++)
        if (s->ranks[i].rank == rank)
            return &s->ranks[i];
    return NULL;
}

static void pair_rank(Comparison *c, Pairs *p, const Side *sides, uint32_t rank)
{
    SideRank *sim = own_rank(&sides[COMPARE_SIM], rank);
    SideRank *real = own_rank(&sides[COMPARE_REAL], rank);
    if (!sim)
        sim = source_of(&sides[COMPARE_SIM], rank, real);
    if (!real)
        real = source_of(&sides[COMPARE_REAL], rank, sim);
    if (sim && real)
        add_pair(c, p, rank, sim, real);
    else
        c->left_out_n[sim ? COMPARE_SIM : COMPARE_REAL]++;
}

static char *ranks_text(const Side *s, char text[COMPARE_TEXT_CAP])
{
    const SideRank *last = &s->ranks[s->ranks_n - 1];
    if (s->ranks_n == 1)
        snprintf(text, COMPARE_TEXT_CAP, "rank %" PRIu32, last->rank);
    else
        snprintf(text, COMPARE_TEXT_CAP, "%" PRIu32 " ranks from %" PRIu32 " to %" PRIu32,
                 s->ranks_n, s->ranks[0].rank, last->rank);
    return text;
}

/* Every rank that has tracks of its own on a side, each once, ascending. */
static bool pair_ranks(Comparison *c, Pairs *p, const Side *sides, Err *err)
{
    const Side *a = &sides[COMPARE_SIM], *b = &sides[COMPARE_REAL];
    for (int k = 0; k < COMPARE_SIDES; k++)
        p->side[k] = PUSH_ARRAY(&c->arena, SideRank *, (size_t)a->ranks_n + b->ranks_n);
    c->ranks = PUSH_ARRAY(&c->arena, CompareRank, (size_t)a->ranks_n + b->ranks_n);
    for (uint32_t i = 0, k = 0; i < a->ranks_n || k < b->ranks_n;) {
        uint32_t x = i < a->ranks_n ? a->ranks[i].rank : NONE_U32;
        uint32_t y = k < b->ranks_n ? b->ranks[k].rank : NONE_U32;
        i += x <= y;
        k += y <= x;
        pair_rank(c, p, sides, x < y ? x : y);
    }
    if (c->ranks_n)
        return true;
    char text[COMPARE_SIDES][COMPARE_TEXT_CAP];
    return err_set(err, "no rank is in both: '%.150s' has %s, '%.150s' has %s", a->name,
                   ranks_text(a, text[0]), b->name, ranks_text(b, text[1]));
}

/* ---- sums ---- */

static void add_ops(CompareRank *r, CompareClass *classes, const SideRank *side, int which)
{
    for (uint32_t i = 0; i < side->ops_n; i++) {
        const SideOp *o = &side->ops[i];
        CompareClass *k = &classes[o->class_];
        bool matched = o->twin != NONE_U32;
        k->ops_n[which] += r->ranks_n;
        k->time_ns[which] += r->ranks_n * o->dur_ns;
        r->ops_n[which]++;
        r->time_ns[which] += o->dur_ns;
        if (!matched)
            continue;
        k->matched_ns[which] += r->ranks_n * o->dur_ns;
        r->matched_ns[which] += o->dur_ns;
    }
}

/* Errors of pairs count where the real op belongs. */
static void add_errors(CompareRank *r, CompareClass *classes, const SideRank *sim,
                       const SideRank *real)
{
    for (uint32_t i = 0; i < real->ops_n; i++) {
        const SideOp *o = &real->ops[i];
        if (o->twin == NONE_U32)
            continue;
        CompareClass *k = &classes[o->class_];
        double off = fabs((double)(sim->ops[o->twin].dur_ns - o->dur_ns));
        r->matched_n++;
        k->matched_n += r->ranks_n;
        k->absolute_ns += r->ranks_n * off;
        if (o->dur_ns > 0) {
            k->relative += r->ranks_n * off / (double)o->dur_ns;
            k->relative_n += r->ranks_n;
        }
    }
}

static void add_rank(CompareRank *r, SideRank *const side[COMPARE_SIDES], const Covers *covers,
                     const Side *sides, CompareClass *classes)
{
    for (int k = 0; k < COMPARE_SIDES; k++) {
        int64_t own_ns[CLASS_N] = { 0 };
        int64_t from_ns = side[k]->begin_ns;
        r->begin_ns[k] = from_ns;
        const Cover *cover = covers_of_rank(&covers[k], side[k]->rank);
        if (cover)
            r->times[k] =
                metrics_of_window(cover, sides[k].t, from_ns, from_ns + side[k]->length_ns);
        compare_sweep(side[k], own_ns);
        for (int j = 0; j < CLASS_N; j++)
            classes[j].own_ns[k] += r->ranks_n * own_ns[j];
        add_ops(r, classes, side[k], k);
    }
    add_errors(r, classes, side[COMPARE_SIM], side[COMPARE_REAL]);
}

/* A kernel of a side's op. */
typedef struct Kernel {
    SidePiece piece;
    uint32_t op;
} Kernel;

static int by_start(const void *x, const void *y)
{
    const Kernel *p = x, *q = y;
    if (p->piece.start_ns != q->piece.start_ns)
        return p->piece.start_ns < q->piece.start_ns ? -1 : 1;
    return (p->piece.span > q->piece.span) - (p->piece.span < q->piece.span);
}

/* By start; of a side's pieces_n. */
static Kernel *kernels_of(const SideRank *r)
{
    Kernel *kernels = mem_zero((size_t)r->pieces_n + 1, sizeof *kernels);
    size_t n = 0;
    for (uint32_t i = 0; i < r->ops_n; i++)
        for (uint32_t k = 0; k < r->ops[i].pieces_n; k++)
            kernels[n++] = (Kernel){ r->pieces[r->ops[i].piece_first + k], i };
    ASSERT(n == r->pieces_n);
    qsort(kernels, n, sizeof *kernels, by_start);
    return kernels;
}

/* Of a side's op and its twin. */
static ComparePair pair_of(const SideRank *const side[COMPARE_SIDES], int k, uint32_t op)
{
    ComparePair pair = { .span = { NONE_U64, NONE_U64 } };
    uint32_t at[COMPARE_SIDES];
    at[k] = op;
    at[1 - k] = side[k]->ops[op].twin;
    for (int i = 0; i < COMPARE_SIDES; i++) {
        if (at[i] == NONE_U32)
            continue;
        const SideOp *o = &side[i]->ops[at[i]];
        pair.span[i] = o->span;
        pair.time_ns[i] = o->dur_ns;
        pair.end_ns[i] = side[i]->begin_ns + o->end_ns;
    }
    return pair;
}

static void keep_pairs(CompareRank *r, const SideRank *const side[COMPARE_SIDES], Arena *arena)
{
    static const int order[] = { COMPARE_REAL, COMPARE_SIM };
    const SideRank *sim = side[COMPARE_SIM], *real = side[COMPARE_REAL];
    r->pairs = PUSH_ARRAY(arena, ComparePair, (size_t)real->pieces_n + sim->pieces_n + 1);
    for (size_t s = 0; s < ARRAY_N(order); s++) {
        int k = order[s];
        Kernel *kernels = kernels_of(side[k]);
        for (uint32_t i = 0; i < side[k]->pieces_n; i++) {
            const SideOp *o = &side[k]->ops[kernels[i].op];
            if (k == COMPARE_SIM && o->twin != NONE_U32 && kernels[i].piece.span == o->span)
                continue; /* that of the real kernels */
            r->pairs[r->pairs_n] = pair_of(side, k, kernels[i].op);
            r->pairs[r->pairs_n++].span[k] = kernels[i].piece.span;
        }
        free(kernels);
    }
}

static int by_real_time(const void *x, const void *y)
{
    const CompareClass *p = x, *q = y;
    int64_t a = max_i64(p->time_ns[COMPARE_REAL], p->time_ns[COMPARE_SIM]);
    int64_t b = max_i64(q->time_ns[COMPARE_REAL], q->time_ns[COMPARE_SIM]);
    return a != b ? (a > b ? -1 : 1) : strcmp(p->name, q->name);
}

static void keep_classes(Comparison *c, CompareClass *classes)
{
    for (int k = 0; k < CLASS_IDLE; k++) {
        classes[k].name = compare_class_names[k];
        if (classes[k].ops_n[COMPARE_SIM] || classes[k].ops_n[COMPARE_REAL])
            c->classes[c->classes_n++] = classes[k];
    }
    qsort(c->classes, c->classes_n, sizeof *c->classes, by_real_time);
    classes[CLASS_IDLE].name = compare_class_names[CLASS_IDLE];
    c->classes[c->classes_n++] = classes[CLASS_IDLE];
}

const char *const compare_quantity_names[COMPARE_QUANTITIES_N] = {
    "step_time", "compute", "comm", "overlapped", "exposed_comm", "memory", "idle"
};

static int64_t *quantity_of(Metrics *m, int k)
{
    int64_t *const fields[COMPARE_QUANTITIES_N] = { &m->span_ns,         &m->compute_ns,
                                                    &m->comm_ns,         &m->overlapped_ns,
                                                    &m->exposed_comm_ns, &m->memory_ns,
                                                    &m->idle_ns };
    return fields[k];
}

int64_t compare_quantity(const Metrics *m, int k)
{
    Metrics copy = *m;
    return *quantity_of(&copy, k);
}

static void average(Comparison *c, int side)
{
    for (int k = 0; k < COMPARE_QUANTITIES_N; k++) {
        double sum = 0, n = 0;
        for (uint32_t i = 0; i < c->ranks_n; i++) {
            sum += (double)compare_quantity(&c->ranks[i].times[side], k) * c->ranks[i].ranks_n;
            n += c->ranks[i].ranks_n;
        }
        *quantity_of(&c->times[side], k) = llround(sum / n);
    }
    c->times[side].span_ns = 0;
    for (uint32_t i = 0; i < c->ranks_n; i++)
        c->times[side].span_ns =
            max_i64(c->times[side].span_ns, c->ranks[i].times[side].span_ns);
}

/* By its step in real. */
static uint32_t slowest_rank(const Pairs *p, uint32_t ranks_n)
{
    uint32_t at = 0;
    for (uint32_t i = 1; i < ranks_n; i++)
        if (p->side[COMPARE_REAL][i]->length_ns > p->side[COMPARE_REAL][at]->length_ns)
            at = i;
    return at;
}

static bool has_matches(const Comparison *c, Err *err)
{
    for (uint32_t i = 0; i < c->ranks_n; i++)
        if (c->ranks[i].matched_n)
            return true;
    return err_set(err,
                   "'%.150s' and '%.150s' have no operation in common, "
                   "are they of one program?",
                   c->name[COMPARE_SIM], c->name[COMPARE_REAL]);
}

/* A folded rank may stand beside several others: its pairs are made anew each time, and what is
 * asked of them is asked at once. */
static bool fill(Comparison *c, const Pairs *p, const Side *sides, bool pairs, Err *err)
{
    CompareClass classes[CLASS_N] = { { 0 } };
    Covers covers[COMPARE_SIDES] = { { 0 }, { 0 } };
    OpLists lists = { 0 };
    Arena joined = { 0 };
    uint32_t slow = slowest_rank(p, c->ranks_n);
    for (int k = 0; k < COMPARE_SIDES; k++)
        covers_build(&covers[k], sides[k].t);
    for (uint32_t i = 0; i < c->ranks_n; i++) {
        SideRank *pair[] = { p->side[COMPARE_SIM][i], p->side[COMPARE_REAL][i] };
        ArenaMark mark = arena_mark(&joined);
        c->ranks[i].paired = compare_match(pair, &joined);
        add_rank(&c->ranks[i], pair, covers, sides, classes);
        compare_list_rank(&lists, &c->ranks[i], pair[COMPARE_SIM], pair[COMPARE_REAL]);
        if (pairs)
            keep_pairs(&c->ranks[i], (const SideRank *const *)pair, &c->arena);
        if (i == slow)
            compare_drift(c, c->ranks[i].rank, pair[COMPARE_SIM], pair[COMPARE_REAL]);
        arena_reset(&joined, mark);
    }
    arena_free(&joined);
    for (int k = 0; k < COMPARE_SIDES; k++) {
        covers_free(&covers[k]);
        average(c, k);
    }
    compare_list_end(c, &lists);
    keep_classes(c, classes);
    return has_matches(c, err);
}

bool compare(Comparison *c, const Timeline *sim, const Timeline *real, const CompareOptions *o,
             Err *err)
{
    const Timeline *const t[] = { sim, real };
    Side sides[COMPARE_SIDES];
    Pairs pairs;
    *c = (Comparison){ 0 };
    bool ok = true;
    for (int k = 0; k < COMPARE_SIDES && ok; k++) {
        c->name[k] = arena_strdup(&c->arena, o->name[k]);
        ok = side_open(&sides[k], t[k], c->name[k], o->step, &c->arena, err);
        c->step[k] = sides[k].step;
        c->steps_n[k] = sides[k].steps_n;
    }
    if (ok && o->step >= 0 && c->step[0] != o->step && c->step[1] != o->step)
        ok = err_set(err, "neither trace has step %" PRId64, o->step);
    ok = ok && pair_ranks(c, &pairs, sides, err) && fill(c, &pairs, sides, o->pairs, err);
    if (!ok)
        compare_free(c);
    return ok;
}

void compare_free(Comparison *c)
{
    arena_free(&c->arena);
    *c = (Comparison){ 0 };
}

/* ---- numbers ---- */

double compare_error_pct(int64_t sim, int64_t real)
{
    if (real == 0)
        return sim == 0 ? 0 : NAN;
    return 100 * ((double)sim / (double)real - 1);
}

const int64_t *compare_class_ns(const CompareClass *k)
{
    bool idle = k->ops_n[COMPARE_SIM] + k->ops_n[COMPARE_REAL] == 0;
    return idle ? k->own_ns : k->time_ns;
}

double compare_class_error_pct(const CompareClass *k)
{
    const int64_t *ns = compare_class_ns(k);
    return compare_error_pct(ns[COMPARE_SIM], ns[COMPARE_REAL]);
}

double compare_overlap_points(const Metrics times[COMPARE_SIDES])
{
    double sim = metrics_overlap_pct(&times[COMPARE_SIM]);
    double real = metrics_overlap_pct(&times[COMPARE_REAL]);
    return isnan(sim) && isnan(real) ? 0 : sim - real;
}

static double coverage_of(const Comparison *c, int side)
{
    double matched = 0, all = 0;
    for (uint32_t i = 0; i < c->ranks_n; i++) {
        matched += (double)c->ranks[i].matched_ns[side] * c->ranks[i].ranks_n;
        all += (double)c->ranks[i].time_ns[side] * c->ranks[i].ranks_n;
    }
    return all > 0 ? 100 * matched / all : NAN;
}

double compare_coverage_pct(const Comparison *c)
{
    return coverage_of(c, COMPARE_REAL);
}

double compare_sim_coverage_pct(const Comparison *c)
{
    return coverage_of(c, COMPARE_SIM);
}

double compare_share_pct(const Comparison *c, const CompareClass *k)
{
    double step = 0;
    for (uint32_t i = 0; i < c->classes_n; i++)
        step +=
            (double)(c->classes[i].own_ns[COMPARE_SIM] - c->classes[i].own_ns[COMPARE_REAL]);
    double own = (double)(k->own_ns[COMPARE_SIM] - k->own_ns[COMPARE_REAL]);
    return step != 0 ? 100 * own / step : NAN;
}

double compare_op_error_pct(const Comparison *c)
{
    double off = 0, real = 0;
    for (uint32_t i = 0; i < c->classes_n; i++) {
        off += c->classes[i].absolute_ns;
        real += (double)c->classes[i].matched_ns[COMPARE_REAL];
    }
    return real > 0 ? 100 * off / real : NAN;
}

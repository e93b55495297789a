/*
 * compare_side.c - one timeline cut down to one step: which ops belong to it (steps.h).
 */
#include "profile/compare_parts.h"

#include <stdlib.h>
#include <string.h>

#include "profile/step_choice.h"
#include "profile/steps.h"

typedef struct Cutter {
    const Timeline *t;
    GpuSteps steps;
    uint64_t *name_key; /* by name; 0: not known yet */
    uint8_t *name_class;
} Cutter;

/* ---- which step ---- */

/* Of the slowest rank; -1: no rank has ops in it. */
static int64_t step_length(const Cutter *c, int64_t number)
{
    int64_t longest = -1;
    for (uint32_t i = 0; i < c->steps.ranks_n; i++) {
        uint32_t k = rank_step_numbered(&c->steps.ranks[i], number);
        if (k != NONE_U32 && c->steps.ranks[i].works[k])
            longest =
                max_i64(longest, c->steps.ranks[i].end_ns[k] - c->steps.ranks[i].begin_ns[k]);
    }
    return longest;
}

static int compare_numbers(const void *x, const void *y)
{
    const StepLength *p = x, *q = y;
    return p->number < q->number ? -1 : p->number > q->number;
}

/* Those with ops: what is marked but idle is the profiler's, not a step. */
static uint32_t all_steps(const Cutter *c, StepLength *steps)
{
    uint32_t n = 0, kept = 0;
    for (uint32_t i = 0; i < c->steps.marks.n; i++)
        steps[n++] = (StepLength){ c->steps.marks.at[i].step, 0 };
    if (n)
        qsort(steps, n, sizeof *steps, compare_numbers);
    for (uint32_t i = 0; i < n; i++)
        if (kept == 0 || steps[kept - 1].number != steps[i].number)
            steps[kept++] = steps[i];
    n = kept;
    kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        steps[i].ns = step_length(c, steps[i].number);
        if (steps[i].ns >= 0)
            steps[kept++] = steps[i];
    }
    return kept;
}

/* The step asked for where there are several, else the median one. */
static bool choose_step(Side *s, const Cutter *c, int64_t asked, Err *err)
{
    StepLength *steps = mem_zero((size_t)c->steps.marks.n + 1, sizeof *steps);
    uint32_t n = s->steps_n = all_steps(c, steps);
    bool ok = step_choose(steps, n, n < 2 ? -1 : asked, s->name, &s->step, err);
    free(steps);
    return ok;
}

/* ---- the ops of the step ---- */

/* A kernel's name without its parameters: "f<4>(int*)" -> "f<4>". */
static uint64_t key_of_name(const char *name)
{
    size_t n = strlen(name);
    if (n > 0 && name[n - 1] == ')') {
        size_t depth = 0, i = n;
        while (i-- > 0) {
            depth += name[i] == ')';
            if (name[i] == '(' && --depth == 0)
                break;
        }
        n = i < n && i > 0 ? i : n;
    }
    uint64_t h = n;
    for (size_t i = 0; i < n; i++)
        h = mix_u64(h ^ (unsigned char)name[i]);
    return h | 1;
}

/* Of a name of the timeline, or of none. */
static uint64_t key_of(Cutter *c, uint32_t name)
{
    if (name == NONE_U32)
        return 1;
    if (c->name_key[name] == 0)
        c->name_key[name] = key_of_name(timeline_text(c->t, name));
    return c->name_key[name];
}

static SideOp side_op(Cutter *c, uint64_t span, int64_t begin_ns)
{
    const Timeline *t = c->t;
    uint32_t name = t->span_name[span] < t->names.n ? t->span_name[span] : NONE_U32;
    const Comm *comm = timeline_comm_of(t, span);
    SideOp o = { .start_ns = t->start_ns[span] - begin_ns,
                 .end_ns = t->start_ns[span] - begin_ns + t->dur_ns[span],
                 .dur_ns = t->dur_ns[span],
                 .longest_ns = t->dur_ns[span],
                 .pieces_n = 1,
                 .span = span,
                 .name = timeline_text(t, name),
                 .op = t->op[span],
                 .logical = timeline_logical_of(t, span),
                 .twin = NONE_U32 };
    const char *called = timeline_op_name(t, span);
    uint32_t says_class = *called ? t->op_name[span] : name;
    bool by_name = t->span_class[span] == SPAN_COMPUTE && says_class != NONE_U32;
    if (by_name && c->name_class[says_class] == CLASS_N)
        c->name_class[says_class] = (uint8_t)compare_class_of(t, span);
    o.bytes = comm ? comm->bytes : NONE_U64;
    o.class_ = by_name ? (OpClass)c->name_class[says_class] : compare_class_of(t, span);
    o.classes = class_is_telling(o.class_) ? 1u << o.class_ : 0;
    o.exact = o.bytes != NONE_U64 ? mix_u64(mix_u64(o.bytes) ^ (uint64_t)o.class_) | 1
                                  : key_of(c, name);
    o.named = *called && o.bytes == NONE_U64 ? key_of(c, t->op_name[span]) : o.exact;
    return o;
}

static int compare_ops(const void *x, const void *y)
{
    const SideOp *p = x, *q = y;
    if (p->start_ns != q->start_ns)
        return p->start_ns < q->start_ns ? -1 : 1;
    if (p->dur_ns != q->dur_ns)
        return p->dur_ns > q->dur_ns ? -1 : 1;
    if (p->op != q->op)
        return p->op < q->op ? -1 : 1;
    return p->exact < q->exact ? -1 : p->exact > q->exact;
}

static bool same_op(const Timeline *t, const SideOp *a, const SideOp *b)
{
    return a->op != NONE_U32 && a->op == b->op &&
           t->span_track[a->span] == t->span_track[b->span];
}

/* Another kernel of the op. */
static void join_op(SideOp *to, const SideOp *more)
{
    bool first_to_tell = to->classes == 0 && more->classes != 0;
    bool tells = more->classes != 0 || to->classes == 0;
    if (first_to_tell) {
        to->class_ = more->class_;
        to->exact = more->exact;
        to->named = more->named;
        to->bytes = more->bytes;
    }
    if (first_to_tell || (tells && more->dur_ns > to->longest_ns)) {
        to->span = more->span;
        to->name = more->name;
        to->longest_ns = more->dur_ns;
    }
    to->classes |= more->classes;
    to->end_ns = max_i64(to->end_ns, more->end_ns);
    to->dur_ns += more->dur_ns;
    to->pieces_n++;
}

static void take_ops(Cutter *c, const RankSteps *w, uint32_t k, SideRank *r, Arena *arena)
{
    uint32_t spans_n = 0;
    for (uint32_t i = 0; i < w->ops_n; i++)
        spans_n += w->ops[i].step == k;
    r->ops = PUSH_ARRAY(arena, SideOp, (size_t)spans_n + 1);
    r->pieces = PUSH_ARRAY(arena, SidePiece, (size_t)spans_n + 1);
    for (uint32_t i = 0; i < w->ops_n; i++) {
        if (w->ops[i].step != k)
            continue;
        SideOp o = side_op(c, w->ops[i].span, r->begin_ns);
        o.piece_first = r->pieces_n;
        r->pieces[r->pieces_n++] = (SidePiece){ o.start_ns, o.dur_ns, o.span };
        if (r->ops_n > 0 && same_op(c->t, &r->ops[r->ops_n - 1], &o))
            join_op(&r->ops[r->ops_n - 1], &o);
        else
            r->ops[r->ops_n++] = o;
    }
    qsort(r->ops, r->ops_n, sizeof *r->ops, compare_ops);
    r->signature = r->ops_n;
    for (uint32_t i = 0; i < r->ops_n; i++) /* a sum: streams may interleave differently */
        r->signature += mix_u64(r->ops[i].exact);
}

static void take_ranks(Side *s, Cutter *c, Arena *arena)
{
    s->ranks = PUSH_ARRAY(arena, SideRank, (size_t)c->steps.ranks_n + 1);
    for (uint32_t i = 0; i < c->steps.ranks_n; i++) {
        const RankSteps *w = &c->steps.ranks[i];
        uint32_t k = rank_step_numbered(w, s->step);
        if (k == NONE_U32)
            continue;
        SideRank *r = &s->ranks[s->ranks_n];
        *r = (SideRank){ .rank = w->rank,
                         .ranks_n = w->ranks_n,
                         .begin_ns = w->begin_ns[k],
                         .length_ns = w->end_ns[k] - w->begin_ns[k] };
        take_ops(c, w, k, r, arena);
        s->ranks_n += r->ops_n > 0;
    }
}

bool side_open(Side *s, const Timeline *t, const char *name, int64_t step, Arena *arena,
               Err *err)
{
    ASSERT(t->sealed);
    Cutter c = { .t = t };
    *s = (Side){ .t = t, .name = name };
    c.name_key = mem_zero((size_t)t->names.n + 1, sizeof *c.name_key);
    c.name_class = mem_zero((size_t)t->names.n + 1, 1);
    memset(c.name_class, CLASS_N, (size_t)t->names.n + 1);
    gpu_steps_find(&c.steps, t);
    bool ok = choose_step(s, &c, step, err);
    if (ok)
        take_ranks(s, &c, arena);
    if (ok && s->ranks_n == 0)
        ok = err_set(err, "'%.200s' has no GPU work%s, nothing can be compared", name,
                     c.steps.ranks_n ? " in this step" : "");
    gpu_steps_free(&c.steps);
    free(c.name_key);
    free(c.name_class);
    return ok;
}

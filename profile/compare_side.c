/*
 * compare_side.c - one timeline cut down to one step: which ops belong to it.
 *
 *     host    |-- step 4 --|-- step 5 --|-- step 6 --|      marks
 *              l    l        l    l      l               l  launches
 *     stream        [4  ][4  ] [5  ][5  ]  [6  ]            GPU work may lag behind
 *
 * An op belongs to the step that launched it, where the launch is known, else to the
 * one it starts in.  Where the GPU still works for the step before at a mark, the
 * step begins, in GPU time, with its first op.  A trace without marks is one step.
 */
#include "profile/compare_parts.h"

#include <stdlib.h>
#include <string.h>

typedef struct Launch {
    uint32_t rank;
    uint64_t correlation;
    int64_t at_ns;
} Launch;

/* An op before it is known which step is looked at. */
typedef struct Work {
    uint64_t span;
    uint32_t step; /* index among the rank's marks; NONE_U32: in none */
} Work;

typedef struct RankWork {
    uint32_t rank, ranks_n;
    const StepWindow *marks;
    uint32_t marks_n;
    Work *work;
    uint32_t work_n, work_cap;
    int64_t *begin_ns, *end_ns; /* by mark, in GPU time */
    bool *works;                /* by mark: it has ops */
} RankWork;

typedef struct Cutter {
    const Timeline *t;
    StepWindows marks;
    Launch *launches;
    size_t launches_n, launches_cap;
    RankWork *ranks;
    uint32_t ranks_n, ranks_cap;
    uint64_t *name_key; /* by name; 0: not known yet */
    uint8_t *name_class;
} Cutter;

/* ---- marks ---- */

/* The rank's own marks, else those of the first rank that has some. */
static void find_marks(const Cutter *c, RankWork *r)
{
    const StepWindows *w = &c->marks;
    uint32_t first = 0;
    while (first < w->n && w->at[first].rank != r->rank)
        first++;
    if (first == w->n)
        first = 0;
    r->marks = w->at + first;
    while (first + r->marks_n < w->n && r->marks[r->marks_n].rank == r->marks->rank)
        r->marks_n++;
}

/* ---- launches ---- */

static int compare_launches(const void *x, const void *y)
{
    const Launch *p = x, *q = y;
    if (p->rank != q->rank)
        return p->rank < q->rank ? -1 : 1;
    if (p->correlation != q->correlation)
        return p->correlation < q->correlation ? -1 : 1;
    return p->at_ns < q->at_ns ? -1 : p->at_ns > q->at_ns;
}

static void add_launches(Cutter *c, const Track *track)
{
    const Timeline *t = c->t;
    for (uint64_t i = track->span_first; i < track->span_first + track->span_n; i++) {
        if (t->correlation[i] == NONE_U64)
            continue;
        GROW(c->launches, c->launches_n, c->launches_cap);
        c->launches[c->launches_n++] =
            (Launch){ track->rank, t->correlation[i], t->start_ns[i] };
    }
}

/* When the span was launched; its start where nobody says. */
static int64_t launched_at(const Cutter *c, uint32_t rank, uint64_t span)
{
    const Timeline *t = c->t;
    uint64_t correlation = t->correlation ? t->correlation[span] : NONE_U64;
    if (correlation == NONE_U64 || !c->launches_n)
        return t->start_ns[span];
    Launch key = { rank, correlation, INT64_MIN };
    size_t low = 0, high = c->launches_n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (compare_launches(&c->launches[middle], &key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    const Launch *l = &c->launches[low];
    bool found = low < c->launches_n && l->rank == rank && l->correlation == correlation;
    return found ? l->at_ns : t->start_ns[span];
}

/* ---- ops ---- */

static RankWork *work_of(Cutter *c, const Track *track)
{
    for (uint32_t i = c->ranks_n; i-- > 0;)
        if (c->ranks[i].rank == track->rank)
            return &c->ranks[i];
    GROW(c->ranks, c->ranks_n, c->ranks_cap);
    c->ranks[c->ranks_n] = (RankWork){ .rank = track->rank, .ranks_n = track->ranks_n };
    return &c->ranks[c->ranks_n++];
}

static bool is_work(uint8_t class_)
{
    return class_ == SPAN_COMPUTE || class_ == SPAN_COMM || class_ == SPAN_P2P ||
           class_ == SPAN_MEMORY;
}

static void add_work(Cutter *c, const Track *track)
{
    RankWork *r = NULL;
    for (uint64_t i = track->span_first; i < track->span_first + track->span_n; i++) {
        if (!is_work(c->t->span_class[i]))
            continue;
        if (!r)
            r = work_of(c, track);
        GROW(r->work, r->work_n, r->work_cap);
        r->work[r->work_n++] = (Work){ i, NONE_U32 };
    }
}

static uint32_t step_at(const RankWork *r, int64_t at_ns)
{
    if (r->marks_n == 0)
        return 0;
    uint32_t low = 0, high = r->marks_n;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (r->marks[middle].from_ns <= at_ns)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0 || (low == r->marks_n && at_ns >= r->marks[low - 1].to_ns))
        return NONE_U32;
    return low - 1;
}

/* Steps in GPU time: see the drawing. */
static void find_windows(const Cutter *c, RankWork *r)
{
    uint32_t n = r->marks_n ? r->marks_n : 1;
    int64_t *first = mem_zero(n, sizeof *first), *last = mem_zero(n, sizeof *last);
    for (uint32_t k = 0; k < n; k++) {
        first[k] = INT64_MAX;
        last[k] = INT64_MIN;
    }
    for (uint32_t i = 0; i < r->work_n; i++) {
        uint64_t span = r->work[i].span;
        int64_t start = c->t->start_ns[span];
        uint32_t k = r->work[i].step = step_at(r, launched_at(c, r->rank, span));
        if (k == NONE_U32)
            continue;
        first[k] = min_i64(first[k], start);
        last[k] = max_i64(last[k], start + c->t->dur_ns[span]);
    }
    int64_t so_far = INT64_MIN;
    for (uint32_t k = 0; k < n; k++) {
        bool lags = r->marks_n && so_far > r->marks[k].from_ns;
        bool by_ops = r->marks_n == 0 || (lags && first[k] != INT64_MAX);
        r->works[k] = first[k] != INT64_MAX;
        r->begin_ns[k] = by_ops ? (first[k] == INT64_MAX ? 0 : first[k]) : r->marks[k].from_ns;
        so_far = max_i64(so_far, last[k]);
        r->end_ns[k] = max_i64(r->begin_ns[k], so_far);
        if (r->marks_n)
            r->end_ns[k] = max_i64(r->end_ns[k], r->marks[k].to_ns);
        if (k > 0 && r->marks[k].step == r->marks[k - 1].step + 1)
            r->end_ns[k - 1] = max_i64(r->begin_ns[k], r->begin_ns[k - 1]);
    }
    free(first);
    free(last);
}

/* ---- which step ---- */

static uint32_t mark_numbered(const RankWork *r, int64_t number)
{
    if (r->marks_n == 0)
        return 0;
    for (uint32_t k = 0; k < r->marks_n; k++)
        if (r->marks[k].step == number)
            return k;
    return NONE_U32;
}

/* Of the slowest rank; -1: no rank has ops in it. */
static int64_t step_length(const Cutter *c, int64_t number)
{
    int64_t longest = -1;
    for (uint32_t i = 0; i < c->ranks_n; i++) {
        uint32_t k = mark_numbered(&c->ranks[i], number);
        if (k != NONE_U32 && c->ranks[i].works[k])
            longest = max_i64(longest, c->ranks[i].end_ns[k] - c->ranks[i].begin_ns[k]);
    }
    return longest;
}

typedef struct StepLength {
    int64_t number;
    int64_t length_ns;
} StepLength;

static int compare_lengths(const void *x, const void *y)
{
    const StepLength *p = x, *q = y;
    if (p->length_ns != q->length_ns)
        return p->length_ns < q->length_ns ? -1 : 1;
    return p->number < q->number ? -1 : p->number > q->number;
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
    for (uint32_t i = 0; i < c->marks.n; i++)
        steps[n++] = (StepLength){ c->marks.at[i].step, 0 };
    if (n)
        qsort(steps, n, sizeof *steps, compare_numbers);
    for (uint32_t i = 0; i < n; i++)
        if (kept == 0 || steps[kept - 1].number != steps[i].number)
            steps[kept++] = steps[i];
    n = kept;
    kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        steps[i].length_ns = step_length(c, steps[i].number);
        if (steps[i].length_ns >= 0)
            steps[kept++] = steps[i];
    }
    return kept;
}

/* The step asked for where there are several, else the median one. */
static bool choose_step(Side *s, const Cutter *c, int64_t asked, Err *err)
{
    StepLength *steps = mem_zero((size_t)c->marks.n + 1, sizeof *steps);
    uint32_t n = s->steps_n = all_steps(c, steps);
    int64_t first = n ? steps[0].number : 0, last = n ? steps[n - 1].number : 0;
    bool there = asked < 0 || n < 2;
    for (uint32_t i = 0; i < n && !there; i++)
        there = steps[i].number == asked;
    if (n)
        qsort(steps, n, sizeof *steps, compare_lengths);
    s->step = n == 0 ? -1 : asked < 0 || n < 2 ? steps[(n - 1) / 2].number : asked;
    free(steps);
    return there ||
           err_set(err,
                   "'%.200s' has no step %" PRId64 ", %" PRId64 " to %" PRId64 " are there",
                   s->name, asked, first, last);
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

static SideOp side_op(Cutter *c, uint64_t span, int64_t begin_ns)
{
    const Timeline *t = c->t;
    uint32_t name = t->span_name[span] < t->names.n ? t->span_name[span] : NONE_U32;
    const Comm *comm = timeline_comm_of(t, span);
    SideOp o = { .start_ns = t->start_ns[span] - begin_ns,
                 .dur_ns = t->dur_ns[span],
                 .span = span,
                 .name = timeline_text(t, name),
                 .op = t->op[span],
                 .twin = NONE_U32 };
    bool by_name = t->span_class[span] == SPAN_COMPUTE && name != NONE_U32;
    if (by_name && c->name_class[name] == CLASS_N)
        c->name_class[name] = (uint8_t)compare_class_of(t, span);
    o.bytes = comm ? comm->bytes : NONE_U64;
    o.class_ = by_name ? (OpClass)c->name_class[name] : compare_class_of(t, span);
    if (o.bytes != NONE_U64) {
        o.exact = mix_u64(mix_u64(o.bytes) ^ (uint64_t)o.class_) | 1;
        return o;
    }
    if (name != NONE_U32 && c->name_key[name] == 0)
        c->name_key[name] = key_of_name(o.name);
    o.exact = name != NONE_U32 ? c->name_key[name] : 1;
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

static void take_ops(Cutter *c, const RankWork *w, uint32_t k, SideRank *r, Arena *arena)
{
    for (uint32_t i = 0; i < w->work_n; i++)
        r->ops_n += w->work[i].step == k;
    r->ops = PUSH_ARRAY(arena, SideOp, (size_t)r->ops_n + 1);
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->work_n; i++)
        if (w->work[i].step == k)
            r->ops[n++] = side_op(c, w->work[i].span, r->begin_ns);
    qsort(r->ops, n, sizeof *r->ops, compare_ops);
}

static void take_ranks(Side *s, Cutter *c, Arena *arena)
{
    s->ranks = PUSH_ARRAY(arena, SideRank, (size_t)c->ranks_n + 1);
    for (uint32_t i = 0; i < c->ranks_n; i++) {
        const RankWork *w = &c->ranks[i];
        uint32_t k = mark_numbered(w, s->step);
        if (k == NONE_U32)
            continue;
        SideRank *r = &s->ranks[s->ranks_n];
        *r = (SideRank){ .rank = w->rank,
                         .ranks_n = w->ranks_n,
                         .begin_ns = w->begin_ns[k],
                         .length_ns = w->end_ns[k] - w->begin_ns[k] };
        take_ops(c, w, k, r, arena);
        s->ranks_n += r->ops_n > 0;
        s->folded |= r->ops_n > 0 && r->ranks_n > 1;
    }
}

static int compare_ranks(const void *x, const void *y)
{
    const RankWork *p = x, *q = y;
    return p->rank < q->rank ? -1 : p->rank > q->rank;
}

static void collect(Cutter *c, Arena *arena)
{
    const Timeline *t = c->t;
    for (uint32_t i = 0; i < t->tracks_n; i++) {
        const Track *track = &t->tracks[i];
        if (track->kind == TRACK_STREAM)
            add_work(c, track);
        if (track->kind == TRACK_HOST && t->correlation)
            add_launches(c, track);
    }
    step_windows_find(&c->marks, t);
    if (c->launches_n)
        qsort(c->launches, c->launches_n, sizeof *c->launches, compare_launches);
    if (c->ranks_n)
        qsort(c->ranks, c->ranks_n, sizeof *c->ranks, compare_ranks);
    for (uint32_t i = 0; i < c->ranks_n; i++) {
        RankWork *r = &c->ranks[i];
        find_marks(c, r);
        r->begin_ns = PUSH_ARRAY(arena, int64_t, (size_t)r->marks_n + 1);
        r->end_ns = PUSH_ARRAY(arena, int64_t, (size_t)r->marks_n + 1);
        r->works = PUSH_ARRAY(arena, bool, (size_t)r->marks_n + 1);
        find_windows(c, r);
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
    collect(&c, arena);
    bool ok = choose_step(s, &c, step, err);
    if (ok)
        take_ranks(s, &c, arena);
    if (ok && s->ranks_n == 0)
        ok = err_set(err, "'%.200s' has no GPU work%s, nothing can be compared", name,
                     c.ranks_n ? " in this step" : "");
    for (uint32_t i = 0; i < c.ranks_n; i++)
        free(c.ranks[i].work);
    free(c.ranks);
    step_windows_free(&c.marks);
    free(c.launches);
    free(c.name_key);
    free(c.name_class);
    return ok;
}

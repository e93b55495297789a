/* steps.c - which step launched an op, and when the GPU began with it. */
#include "profile/steps.h"

#include <stdlib.h>

#include "profile/launches.h"

/* ---- launches ---- */

typedef struct Ids {
    uint64_t low, high, n;
} Ids;

/* Of the host's calls on a track: which ids they have, or when those were first called. */
static void count_calls(Ids *ids, const Timeline *t, const Track *track)
{
    for (uint64_t i = track->span_first; i < track->span_first + track->span_n; i++) {
        if (t->correlation[i] == NONE_U64)
            continue;
        ids->low = min_u64(ids->low, t->correlation[i]);
        ids->high = max_u64(ids->high, t->correlation[i]);
        ids->n++;
    }
}

static void take_calls(Launches *l, const Timeline *t, const Track *track)
{
    for (uint64_t i = track->span_first; i < track->span_first + track->span_n; i++) {
        if (t->correlation[i] == NONE_U64)
            continue;
        int64_t *at_ns = launches_at(l, t->correlation[i]);
        bool first = *at_ns == LAUNCH_UNKNOWN;
        *at_ns = first ? t->start_ns[i] : min_i64(*at_ns, t->start_ns[i]);
    }
}

static bool is_host_of(const Track *track, uint32_t rank)
{
    return track->kind == TRACK_HOST && track->rank == rank;
}

static void open_launches(Launches *l, const Timeline *t, uint32_t rank)
{
    Ids ids = { .low = NONE_U64 };
    for (uint32_t k = 0; k < t->tracks_n && t->correlation; k++)
        if (is_host_of(&t->tracks[k], rank))
            count_calls(&ids, t, &t->tracks[k]);
    launches_open(l, ids.low, ids.high, ids.n);
    for (uint32_t k = 0; k < t->tracks_n && ids.n > 0; k++)
        if (is_host_of(&t->tracks[k], rank))
            take_calls(l, t, &t->tracks[k]);
}

/* When the span was launched; its start where nobody says. */
static int64_t launched_at(const Launches *l, const Timeline *t, uint64_t span)
{
    int64_t at_ns = launches_get(l, t->correlation ? t->correlation[span] : NONE_U64);
    return at_ns == LAUNCH_UNKNOWN ? t->start_ns[span] : at_ns;
}

/* ---- ops ---- */

static RankSteps *steps_of(GpuSteps *s, const Track *track)
{
    for (uint32_t i = s->ranks_n; i-- > 0;)
        if (s->ranks[i].rank == track->rank)
            return &s->ranks[i];
    GROW(s->ranks, s->ranks_n, s->ranks_cap);
    s->ranks[s->ranks_n] = (RankSteps){ .rank = track->rank, .ranks_n = track->ranks_n };
    return &s->ranks[s->ranks_n++];
}

static void add_ops(GpuSteps *s, const Timeline *t, const Track *track)
{
    RankSteps *r = NULL;
    for (uint64_t i = track->span_first; i < track->span_first + track->span_n; i++) {
        if (!cover_bit(t->span_class[i]))
            continue;
        if (!r)
            r = steps_of(s, track);
        GROW(r->ops, r->ops_n, r->ops_cap);
        r->ops[r->ops_n++] = (StepOp){ i, NONE_U32 };
    }
}

/* ---- marks ---- */

/* The rank's own marks, else those of the first rank that has some. */
static void find_marks(const StepWindows *w, RankSteps *r)
{
    uint32_t first = 0;
    while (first < w->n && w->at[first].rank != r->rank)
        first++;
    if (first == w->n)
        first = 0;
    r->marks = w->n ? w->at + first : NULL;
    while (first + r->marks_n < w->n && r->marks[r->marks_n].rank == r->marks->rank)
        r->marks_n++;
}

static uint32_t step_at(const RankSteps *r, int64_t at_ns)
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

/* ---- windows ---- */

static void set_windows(RankSteps *r, uint32_t n, const int64_t *first, const int64_t *last)
{
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
}

static void find_windows(const Timeline *t, RankSteps *r)
{
    uint32_t n = r->marks_n ? r->marks_n : 1;
    int64_t *first = mem_zero(n, sizeof *first), *last = mem_zero(n, sizeof *last);
    Launches l = { 0 };
    r->begin_ns = mem_zero(n, sizeof *r->begin_ns);
    r->end_ns = mem_zero(n, sizeof *r->end_ns);
    r->works = mem_zero(n, sizeof *r->works);
    for (uint32_t k = 0; k < n; k++) {
        first[k] = INT64_MAX;
        last[k] = INT64_MIN;
    }
    if (r->marks_n)
        open_launches(&l, t, r->rank);
    for (uint32_t i = 0; i < r->ops_n; i++) {
        uint64_t span = r->ops[i].span;
        int64_t start = t->start_ns[span];
        uint32_t k = r->ops[i].step = step_at(r, r->marks_n ? launched_at(&l, t, span) : start);
        if (k == NONE_U32)
            continue;
        first[k] = min_i64(first[k], start);
        last[k] = max_i64(last[k], start + t->dur_ns[span]);
    }
    set_windows(r, n, first, last);
    launches_free(&l);
    free(first);
    free(last);
}

/* ---- the whole ---- */

static int compare_ranks(const void *x, const void *y)
{
    const RankSteps *p = x, *q = y;
    return p->rank < q->rank ? -1 : p->rank > q->rank;
}

void gpu_steps_find(GpuSteps *s, const Timeline *t)
{
    ASSERT(t->sealed);
    *s = (GpuSteps){ 0 };
    step_windows_find(&s->marks, t);
    for (uint32_t i = 0; i < t->tracks_n; i++)
        if (t->tracks[i].kind == TRACK_STREAM)
            add_ops(s, t, &t->tracks[i]);
    if (s->ranks_n)
        qsort(s->ranks, s->ranks_n, sizeof *s->ranks, compare_ranks);
    for (uint32_t i = 0; i < s->ranks_n; i++) {
        find_marks(&s->marks, &s->ranks[i]);
        find_windows(t, &s->ranks[i]);
    }
}

void gpu_steps_free(GpuSteps *s)
{
    for (uint32_t i = 0; i < s->ranks_n; i++) {
        free(s->ranks[i].ops);
        free(s->ranks[i].begin_ns);
        free(s->ranks[i].end_ns);
        free(s->ranks[i].works);
    }
    free(s->ranks);
    step_windows_free(&s->marks);
    *s = (GpuSteps){ 0 };
}

uint32_t rank_step_numbered(const RankSteps *r, int64_t number)
{
    if (r->marks_n == 0)
        return 0;
    for (uint32_t k = 0; k < r->marks_n; k++)
        if (r->marks[k].step == number)
            return k;
    return NONE_U32;
}

static void push(StepWindows *w, StepWindow window)
{
    GROW(w->at, w->n, w->cap);
    w->at[w->n++] = window;
}

/* Marks of ranks below `rank` from *k on: those without GPU work keep them, others have theirs. */
static void push_idle(StepWindows *w, const GpuSteps *s, uint32_t *k, uint64_t rank)
{
    for (; *k < s->marks.n && s->marks.at[*k].rank < rank; ++*k)
        push(w, s->marks.at[*k]);
}

void step_windows_in_gpu_time(StepWindows *w, const Timeline *t)
{
    StepWindows marks;
    GpuSteps s;
    uint32_t next = 0;
    *w = (StepWindows){ 0 };
    step_windows_find(&marks, t);
    bool any = marks.n > 0;
    step_windows_free(&marks);
    if (!any) /* nothing to cut, and maybe many spans */
        return;
    gpu_steps_find(&s, t);
    for (uint32_t i = 0; i < s.ranks_n; i++) {
        const RankSteps *r = &s.ranks[i];
        push_idle(w, &s, &next, r->rank);
        for (uint32_t k = 0; k < r->marks_n; k++)
            push(w, (StepWindow){ r->rank, r->marks[k].step, r->begin_ns[k], r->end_ns[k] });
        while (next < s.marks.n && s.marks.at[next].rank == r->rank)
            next++;
    }
    push_idle(w, &s, &next, UINT64_MAX);
    gpu_steps_free(&s);
}

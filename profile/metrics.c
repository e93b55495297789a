/*
 * metrics.c - the streams of a rank are merged by start; a sweep over them keeps,
 * for each class, when the last of its spans that have begun will end.
 */
#include "profile/metrics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the next span of several streams ---- */

typedef struct Feed {
    int64_t start_ns; /* of span i */
    uint64_t i, end;
} Feed;

/* A heap, earliest start on top. */
typedef struct Feeds {
    Feed *feed;
    uint32_t n;
} Feeds;

static void sift_down(Feeds *f, uint32_t at)
{
    Feed *feed = f->feed, x = feed[at];
    uint32_t n = f->n, child = 2 * at + 1;
    for (; child + 1 < n; child = 2 * at + 1) {
        child += feed[child + 1].start_ns < feed[child].start_ns;
        if (feed[child].start_ns >= x.start_ns)
            break;
        feed[at] = feed[child];
        at = child;
    }
    if (child + 1 == n && feed[child].start_ns < x.start_ns) {
        feed[at] = feed[child];
        at = child;
    }
    feed[at] = x;
}

/* Moves the top feed on to its next span of GPU work. */
static void advance_top(Feeds *f, const Timeline *t)
{
    Feed *top = &f->feed[0];
    do
        top->i++;
    while (top->i < top->end && !cover_bit(t->span_class[top->i]));
    if (top->i < top->end)
        top->start_ns = t->start_ns[top->i];
    else
        *top = f->feed[--f->n];
    if (f->n > 0)
        sift_down(f, 0);
}

static void feeds_open(Feeds *f, const Timeline *t, const Cover *c)
{
    f->feed = mem_zero(c->tracks_n, sizeof *f->feed);
    f->n = 0;
    for (uint32_t k = 0; k < c->tracks_n; k++) {
        const Track *track = &t->tracks[c->tracks[k]];
        uint64_t i = track->span_first, end = i + track->span_n;
        while (i < end && !cover_bit(t->span_class[i]))
            i++;
        if (i < end)
            f->feed[f->n++] = (Feed){ t->start_ns[i], i, end };
    }
    for (uint32_t at = f->n / 2; at-- > 0;)
        sift_down(f, at);
}

/* ---- the sweep ---- */

enum { BITS_N = 3 };

typedef struct Sweep {
    Cover *cover;
    int64_t now_ns;
    int64_t end_ns[BITS_N]; /* of what has begun, by class */
} Sweep;

static void add_moment(Cover *c, int64_t at_ns, uint8_t mask)
{
    if (c->n == c->cap) {
        c->cap = c->cap ? 2 * c->cap : 64;
        c->at_ns = mem_resize(c->at_ns, c->cap, sizeof *c->at_ns);
        c->mask = mem_resize(c->mask, c->cap, sizeof *c->mask);
    }
    c->at_ns[c->n] = at_ns;
    c->mask[c->n++] = mask;
}

static void put_moment(Cover *c, int64_t at_ns, uint8_t mask)
{
    if (c->n == 0 || c->mask[c->n - 1] != mask)
        add_moment(c, at_ns, mask);
}

static void sweep_to(Sweep *s, int64_t to_ns)
{
    while (s->now_ns < to_ns) {
        int64_t next_ns = to_ns;
        uint8_t mask = 0;
        for (int b = 0; b < BITS_N; b++)
            if (s->end_ns[b] > s->now_ns) {
                mask |= (uint8_t)(1 << b);
                next_ns = min_i64(next_ns, s->end_ns[b]);
            }
        put_moment(s->cover, s->now_ns, mask);
        s->now_ns = next_ns;
    }
}

static void count_kernel(Cover *c, uint8_t bit)
{
    c->compute_n += bit == COVER_COMPUTE;
    c->comm_n += bit == COVER_COMM;
    c->memory_n += bit == COVER_MEMORY;
}

static void sum_blocks(Cover *c)
{
    CoverSum sum = { { 0 } };
    c->before = mem_zero(c->n / COVER_BLOCK + 1, sizeof *c->before);
    for (uint64_t i = 0; i < c->n; i++) {
        if (i % COVER_BLOCK == 0)
            c->before[i / COVER_BLOCK] = sum;
        if (i + 1 < c->n)
            sum.ns[c->mask[i]] += c->at_ns[i + 1] - c->at_ns[i];
    }
}

void cover_build(Cover *c, const Timeline *t)
{
    Feeds feeds;
    feeds_open(&feeds, t, c);
    if (feeds.n > 0) {
        c->begin_ns = c->end_ns = feeds.feed[0].start_ns;
        Sweep s = { .cover = c, .now_ns = c->begin_ns };
        for (int b = 0; b < BITS_N; b++)
            s.end_ns[b] = c->begin_ns;
        for (; feeds.n > 0; advance_top(&feeds, t)) {
            uint64_t i = feeds.feed[0].i;
            uint8_t bit = cover_bit(t->span_class[i]);
            int64_t start_ns = t->start_ns[i], end_ns = start_ns + t->dur_ns[i];
            int64_t *class_end_ns = &s.end_ns[bit >> 1]; /* 1, 2, 4 -> 0, 1, 2 */
            sweep_to(&s, start_ns);
            *class_end_ns = max_i64(*class_end_ns, end_ns);
            c->end_ns = max_i64(c->end_ns, end_ns);
            count_kernel(c, bit);
        }
        sweep_to(&s, c->end_ns);
        add_moment(c, c->end_ns, 0);
    }
    free(feeds.feed);
    sum_blocks(c);
}

/* ---- ranks ---- */

static int by_rank(const void *a, const void *b)
{
    uint32_t x = ((const Cover *)a)->rank, y = ((const Cover *)b)->rank;
    return (x > y) - (x < y);
}

static Cover *find_rank(const Covers *c, uint32_t rank)
{
    Cover key = { .rank = rank };
    return c->n ? bsearch(&key, c->rank, c->n, sizeof key, by_rank) : NULL;
}

const Cover *covers_of_rank(const Covers *c, uint32_t rank)
{
    return find_rank(c, rank);
}

static void find_ranks(Covers *c, const Timeline *t)
{
    c->rank = mem_zero(t->tracks_n, sizeof *c->rank);
    for (uint32_t k = 0; k < t->tracks_n; k++)
        c->rank[k] = (Cover){ .rank = t->tracks[k].rank, .ranks_n = t->tracks[k].ranks_n };
    qsort(c->rank, t->tracks_n, sizeof *c->rank, by_rank);
    for (uint32_t k = 0; k < t->tracks_n; k++)
        if (c->n == 0 || c->rank[c->n - 1].rank != c->rank[k].rank)
            c->rank[c->n++] = c->rank[k];
}

void covers_open(Covers *c, const Timeline *t)
{
    ASSERT(t->sealed);
    *c = (Covers){ 0 };
    find_ranks(c, t);
    for (uint32_t k = 0; k < t->tracks_n; k++)
        find_rank(c, t->tracks[k].rank)->tracks_n += t->tracks[k].kind == TRACK_STREAM;
    for (uint32_t r = 0; r < c->n; r++) {
        c->rank[r].tracks = mem_zero(c->rank[r].tracks_n, sizeof(uint32_t));
        c->rank[r].tracks_n = 0;
    }
    for (uint32_t k = 0; k < t->tracks_n; k++) {
        Cover *r = find_rank(c, t->tracks[k].rank);
        if (t->tracks[k].kind == TRACK_STREAM)
            r->tracks[r->tracks_n++] = k;
    }
}

void covers_build(Covers *c, const Timeline *t)
{
    covers_open(c, t);
    for (uint32_t r = 0; r < c->n; r++)
        cover_build(&c->rank[r], t);
}

void covers_free(Covers *c)
{
    for (uint32_t r = 0; r < c->n; r++) {
        free(c->rank[r].tracks);
        free(c->rank[r].at_ns);
        free(c->rank[r].mask);
        free(c->rank[r].before);
    }
    free(c->rank);
    *c = (Covers){ 0 };
}

/* ---- windows ---- */

/* Puts the cursor on the moment that at_ns, which lies within the work, follows. */
static void seek(CoverCursor *s, int64_t at_ns)
{
    const Cover *c = s->cover;
    uint64_t low = 0, high = (c->n - 1) / COVER_BLOCK + 1;
    while (low + 1 < high) {
        uint64_t middle = low + (high - low) / 2;
        if (c->at_ns[middle * COVER_BLOCK] <= at_ns)
            low = middle;
        else
            high = middle;
    }
    s->i = low * COVER_BLOCK;
    s->sum = c->before[low];
}

/* Lengths from begin_ns to at_ns. */
static CoverSum sum_to(CoverCursor *s, int64_t at_ns)
{
    enum { WALK = 4 * COVER_BLOCK };
    const Cover *c = s->cover;
    bool near =
        at_ns >= c->at_ns[s->i] && (s->i + WALK >= c->n || at_ns < c->at_ns[s->i + WALK]);
    if (!near)
        seek(s, at_ns);
    for (; s->i + 1 < c->n && c->at_ns[s->i + 1] <= at_ns; s->i++)
        s->sum.ns[c->mask[s->i]] += c->at_ns[s->i + 1] - c->at_ns[s->i];
    CoverSum sum = s->sum;
    sum.ns[c->mask[s->i]] += at_ns - c->at_ns[s->i];
    return sum;
}

CoverSum cover_next(CoverCursor *s, int64_t from_ns, int64_t to_ns)
{
    const Cover *c = s->cover;
    CoverSum sum = { { 0 } };
    int64_t first_ns = max_i64(from_ns, c->begin_ns), last_ns = min_i64(to_ns, c->end_ns);
    if (to_ns <= from_ns)
        return sum;
    if (c->n > 0 && first_ns < last_ns) {
        CoverSum before = sum_to(s, first_ns);
        sum = sum_to(s, last_ns);
        for (int m = 0; m < COVER_MASKS; m++)
            sum.ns[m] -= before.ns[m];
        sum.ns[0] += to_ns - from_ns - (last_ns - first_ns);
    } else {
        sum.ns[0] = to_ns - from_ns;
    }
    return sum;
}

CoverSum cover_window(const Cover *c, int64_t from_ns, int64_t to_ns)
{
    CoverCursor cursor = { .cover = c };
    return cover_next(&cursor, from_ns, to_ns);
}

Metrics metrics_of_sum(CoverSum sum)
{
    Metrics m = { .idle_ns = sum.ns[0], .exposed_comm_vs_memory_ns = sum.ns[COVER_COMM] };
    for (int mask = 0; mask < COVER_MASKS; mask++) {
        int64_t ns = sum.ns[mask];
        m.span_ns += ns;
        m.busy_ns += mask ? ns : 0;
        m.compute_ns += mask & COVER_COMPUTE ? ns : 0;
        m.comm_ns += mask & COVER_COMM ? ns : 0;
        m.memory_ns += mask & COVER_MEMORY ? ns : 0;
        m.overlapped_ns += mask & COVER_COMM && mask & COVER_COMPUTE ? ns : 0;
    }
    m.exposed_comm_ns = m.comm_ns - m.overlapped_ns;
    return m;
}

Metrics metrics_of_rank(const Cover *c)
{
    Metrics m = metrics_of_sum(cover_window(c, c->begin_ns, c->end_ns));
    m.compute_kernels = c->compute_n;
    m.comm_kernels = c->comm_n;
    m.memory_ops = c->memory_n;
    return m;
}

uint64_t track_span_from(const Timeline *t, const Track *track, int64_t at_ns)
{
    uint64_t low = track->span_first, high = low + track->span_n;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (t->start_ns[middle] < at_ns)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

Metrics metrics_of_window(const Cover *c, const Timeline *t, int64_t from_ns, int64_t to_ns)
{
    Metrics m = metrics_of_sum(cover_window(c, from_ns, to_ns));
    for (uint32_t k = 0; k < c->tracks_n; k++) {
        const Track *track = &t->tracks[c->tracks[k]];
        uint64_t end = track_span_from(t, track, to_ns);
        for (uint64_t i = track_span_from(t, track, from_ns); i < end; i++) {
            uint8_t bit = cover_bit(t->span_class[i]);
            m.compute_kernels += bit == COVER_COMPUTE;
            m.comm_kernels += bit == COVER_COMM;
            m.memory_ops += bit == COVER_MEMORY;
        }
    }
    return m;
}

/* Where the times are; NULL behind the last one. */
static int64_t *time_of(Metrics *m, size_t k)
{
    int64_t *const times[] = {
        &m->span_ns,       &m->busy_ns,         &m->idle_ns,
        &m->compute_ns,    &m->memory_ns,       &m->comm_ns,
        &m->overlapped_ns, &m->exposed_comm_ns, &m->exposed_comm_vs_memory_ns
    };
    return k < ARRAY_N(times) ? times[k] : NULL;
}

void metrics_add(Metrics *to, const Metrics *m, int64_t times)
{
    Metrics more = *m;
    for (size_t k = 0; time_of(to, k); k++) {
        int64_t *sum = time_of(to, k), ns;
        if (__builtin_mul_overflow(*time_of(&more, k), times, &ns) ||
            __builtin_add_overflow(*sum, ns, sum))
            *sum = INT64_MAX;
    }
}

void metrics_divide(Metrics *m, int64_t n)
{
    for (size_t k = 0; time_of(m, k); k++)
        *time_of(m, k) /= n;
}

double metrics_overlap_pct(const Metrics *m)
{
    return m->comm_ns ? 100 * (double)m->overlapped_ns / (double)m->comm_ns : NAN;
}

/* ---- steps ---- */

/* The number that a name ends in; otherwise when it ends in none or one too long. */
static int64_t number_of_step(const char *name, int64_t otherwise)
{
    size_t n = strlen(name), first = n;
    while (first > 0 && name[first - 1] >= '0' && name[first - 1] <= '9')
        first--;
    if (first == n || n - first > 18)
        return otherwise;
    return strtoll(name + first, NULL, 10);
}

static void take_steps(StepWindows *w, const Timeline *t, const Track *track)
{
    int64_t index = 0;
    for (uint64_t i = track->span_first; i < track->span_first + track->span_n; i++) {
        if (t->span_class[i] != SPAN_STEP)
            continue;
        GROW(w->at, w->n, w->cap);
        w->at[w->n++] = (StepWindow){
            .rank = track->rank,
            .step = number_of_step(timeline_text(t, t->span_name[i]), index++),
            .from_ns = t->start_ns[i],
            .to_ns = t->start_ns[i] + t->dur_ns[i],
        };
    }
}

static int by_rank_and_step(const void *a, const void *b)
{
    const StepWindow *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    if (x->from_ns != y->from_ns)
        return x->from_ns < y->from_ns ? -1 : 1;
    return (x->to_ns > y->to_ns) - (x->to_ns < y->to_ns);
}

static int by_rank_and_time(const void *a, const void *b)
{
    const StepWindow *x = a, *y = b;
    if (x->rank != y->rank || x->from_ns == y->from_ns)
        return by_rank_and_step(a, b);
    return x->from_ns < y->from_ns ? -1 : 1;
}

void step_windows_find(StepWindows *w, const Timeline *t)
{
    *w = (StepWindows){ 0 };
    bool *has_track = mem_zero(t->ranks_n, sizeof *has_track);
    for (uint32_t k = 0; k < t->tracks_n; k++)
        if (t->tracks[k].kind == TRACK_STEPS && t->tracks[k].span_n > 0)
            has_track[t->tracks[k].rank] = true;
    for (uint32_t k = 0; k < t->tracks_n; k++)
        if ((t->tracks[k].kind == TRACK_STEPS) == has_track[t->tracks[k].rank])
            take_steps(w, t, &t->tracks[k]);
    free(has_track);
    if (w->n == 0)
        return;
    qsort(w->at, w->n, sizeof *w->at, by_rank_and_step);
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->n; i++)
        if (n == 0 || w->at[n - 1].rank != w->at[i].rank || w->at[n - 1].step != w->at[i].step)
            w->at[n++] = w->at[i];
    w->n = n;
    qsort(w->at, w->n, sizeof *w->at, by_rank_and_time);
}

void step_windows_free(StepWindows *w)
{
    free(w->at);
    *w = (StepWindows){ 0 };
}

const StepWindow *step_window_of(const StepWindows *w, uint32_t rank, int64_t step)
{
    for (uint32_t i = 0; i < w->n; i++)
        if (w->at[i].rank == rank && w->at[i].step == step)
            return &w->at[i];
    return NULL;
}

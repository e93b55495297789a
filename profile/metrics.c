/*
 * metrics.c - of each class the stretches that its spans cover on all streams of a rank, one
 * after another; a sweep lays the three classes over one another.
 */
#include "profile/metrics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the next stretch of a class: what its spans cover without a gap ---- */

/* Spans of one class on one stream. */
typedef struct Feed {
    int64_t start_ns; /* of span i; INT64_MAX behind the last */
    uint64_t i, end;
} Feed;

typedef struct Stretches {
    uint8_t bit;
    Feed *feed;
    uint32_t n;
    uint64_t taken;         /* spans so far */
    int64_t from_ns, to_ns; /* the stretch at hand; INT64_MAX: there is none any more */
    int64_t next_ns;        /* the first start of what was not taken, or INT64_MAX */
    int64_t last_ns;        /* where the last of those taken ends */
} Stretches;

/* The bits of all that a track has. */
static uint8_t bits_of(const Timeline *t, const Track *track)
{
    uint32_t set = timeline_class_set(t, track->span_first, track->span_n);
    uint8_t bits = 0;
    for (uint32_t k = 0; k < SPAN_CLASS_N; k++)
        bits |= set >> k & 1 ? cover_bit((uint8_t)k) : 0;
    return bits;
}

static uint64_t next_of_class(const Timeline *t, uint64_t i, uint64_t end, uint8_t bit)
{
    while (i < end && cover_bit(t->span_class[i]) != bit)
        i++;
    return i;
}

/* bits: of each stream, which it has. */
static void stretches_open(Stretches *s, const Timeline *t, const Cover *c, const uint8_t *bits,
                           uint8_t bit)
{
    *s = (Stretches){ .bit = bit, .next_ns = INT64_MAX, .last_ns = INT64_MIN };
    s->from_ns = s->to_ns = INT64_MIN;
    s->feed = mem_zero(c->tracks_n, sizeof *s->feed);
    for (uint32_t k = 0; k < c->tracks_n; k++) {
        const Track *track = &t->tracks[c->tracks[k]];
        uint64_t end = track->span_first + track->span_n;
        if (!(bits[k] & bit))
            continue;
        uint64_t i = next_of_class(t, track->span_first, end, bit);
        s->feed[s->n++] = (Feed){ t->start_ns[i], i, end };
        s->next_ns = min_i64(s->next_ns, t->start_ns[i]);
    }
}

/* All of a stream that starts before to_ns, which grows with it; returned. */
static int64_t take_spans(Stretches *s, Feed *f, const Timeline *t, int64_t to_ns)
{
    uint64_t i = f->i, end = f->end, taken = 0;
    int64_t start_ns = f->start_ns;
    while (start_ns <= to_ns) {
        to_ns = max_i64(to_ns, start_ns + t->dur_ns[i]);
        i = next_of_class(t, i + 1, end, s->bit);
        start_ns = i < end ? t->start_ns[i] : INT64_MAX;
        taken++;
    }
    f->i = i;
    f->start_ns = start_ns;
    s->taken += taken;
    return to_ns;
}

/* Streams one after another for as long as any has a span that begins in the stretch: where
 * they overlap, the order of their spans does not matter. */
static void next_stretch(Stretches *s, const Timeline *t)
{
    do {
        s->from_ns = s->to_ns = s->next_ns;
        while (s->next_ns <= s->to_ns && s->next_ns < INT64_MAX) {
            s->next_ns = INT64_MAX;
            for (uint32_t k = 0; k < s->n; k++) {
                s->to_ns = take_spans(s, &s->feed[k], t, s->to_ns);
                s->next_ns = min_i64(s->next_ns, s->feed[k].start_ns);
            }
            s->last_ns = max_i64(s->last_ns, s->to_ns);
        }
    } while (s->to_ns == s->from_ns && s->next_ns < INT64_MAX); /* spans of no length */
    if (s->to_ns == s->from_ns)
        s->from_ns = s->to_ns = INT64_MAX;
}

/* ---- the sweep ---- */

enum { BITS_N = 3 };

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

/* What runs at now_ns, and in *next_ns when that changes; INT64_MAX: never again. */
static uint8_t mask_at(Stretches s[BITS_N], const Timeline *t, int64_t now_ns, int64_t *next_ns)
{
    uint8_t mask = 0;
    *next_ns = INT64_MAX;
    for (int b = 0; b < BITS_N; b++) {
        if (s[b].to_ns <= now_ns)
            next_stretch(&s[b], t);
        bool runs = s[b].from_ns <= now_ns;
        mask |= (uint8_t)(runs << b);
        *next_ns = min_i64(*next_ns, runs ? s[b].to_ns : s[b].from_ns);
    }
    return mask;
}

static void sweep(Cover *c, const Timeline *t, Stretches s[BITS_N])
{
    int64_t now_ns = c->begin_ns, next_ns;
    for (;; now_ns = next_ns) {
        uint8_t mask = mask_at(s, t, now_ns, &next_ns);
        if (next_ns == INT64_MAX)
            break;
        put_moment(c, now_ns, mask);
    }
    c->end_ns = c->begin_ns;
    for (int b = 0; b < BITS_N; b++)
        c->end_ns = max_i64(c->end_ns, s[b].last_ns);
    if (now_ns < c->end_ns) /* up to one of no length */
        put_moment(c, now_ns, 0);
    add_moment(c, c->end_ns, 0);
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
    Stretches s[BITS_N];
    int64_t begin_ns = INT64_MAX;
    uint8_t *bits = mem_zero(c->tracks_n, 1);
    for (uint32_t k = 0; k < c->tracks_n; k++)
        bits[k] = bits_of(t, &t->tracks[c->tracks[k]]);
    for (int b = 0; b < BITS_N; b++) {
        stretches_open(&s[b], t, c, bits, (uint8_t)(1 << b));
        begin_ns = min_i64(begin_ns, s[b].next_ns);
    }
    if (begin_ns < INT64_MAX) {
        c->begin_ns = begin_ns;
        sweep(c, t, s);
    }
    c->compute_n = s[0].taken; /* COVER_COMPUTE, COVER_COMM, COVER_MEMORY: bits 0, 1, 2 */
    c->comm_n = s[1].taken;
    c->memory_n = s[2].taken;
    for (int b = 0; b < BITS_N; b++)
        free(s[b].feed);
    free(bits);
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
    for (size_t k = 0; time_of(to, k); k++)
        *time_of(to, k) = metrics_sum_ns(*time_of(to, k), *time_of(&more, k), times);
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
    for (uint64_t i = track->span_first, end = i + track->span_n; i < end; i++) {
        const uint8_t *mark = memchr(t->span_class + i, SPAN_STEP, end - i);
        if (!mark)
            break;
        i = (uint64_t)(mark - t->span_class);
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

/*
 * gaps.c - walks the idle parts of a Cover in order of time, beside the streams,
 * the launches and the host's waits: each is read once.
 */
#include "profile/gaps.h"

#include <stdlib.h>
#include <string.h>

#include "core/cuda_names.h"
#include "profile/launches.h"

const char *const gap_kind_names[GAP_KIND_N] = { "launch", "sync", "other", "unknown" };

/* ---- one rank ---- */

typedef struct Walk {
    const Timeline *t;
    const Cover *cover;
    int64_t from_ns, to_ns; /* the window: of a selection, else the rank's work */
    uint32_t rank;
    bool by_op; /* ids are op ids: they come again in every step */
    Launches launches;
    uint32_t *hosts; /* its host tracks */
    uint32_t hosts_n;
    uint64_t *launch_at, *sync_at; /* cursor into each host track */
    uint64_t *kernel_at;           /* cursor into each stream */
} Walk;

static uint64_t end_of(const Track *k)
{
    return k->span_first + k->span_n;
}

static uint64_t id_of(const Walk *w, uint64_t span)
{
    if (!w->by_op)
        return w->t->correlation[span];
    return w->t->op[span] == NONE_U32 ? NONE_U64 : w->t->op[span];
}

/* With correlation any call of the host that has one launched something. */
static bool is_launch(const Walk *w, uint64_t span)
{
    return id_of(w, span) != NONE_U64 && (!w->by_op || w->t->span_class[span] == SPAN_LAUNCH);
}

static void open_launches(Walk *w)
{
    uint64_t low = NONE_U64, high = 0, n = 0;
    for (uint32_t h = 0; h < w->hosts_n; h++) {
        const Track *track = &w->t->tracks[w->hosts[h]];
        for (uint64_t i = track->span_first; i < end_of(track); i++)
            if (is_launch(w, i)) {
                low = min_u64(low, id_of(w, i));
                high = max_u64(high, id_of(w, i));
                n++;
            }
    }
    launches_open(&w->launches, low, high, n);
}

/* Takes in the launches that begin before to_ns. */
static void take_launches(Walk *w, int64_t to_ns)
{
    for (uint32_t h = 0; h < w->hosts_n; h++) {
        uint64_t end = end_of(&w->t->tracks[w->hosts[h]]), *at = &w->launch_at[h];
        for (; *at < end && w->t->start_ns[*at] < to_ns; ++*at)
            if (is_launch(w, *at))
                *launches_at(&w->launches, id_of(w, *at)) = w->t->start_ns[*at];
    }
}

static bool waits(const Walk *w, uint64_t span)
{
    const Timeline *t = w->t;
    return t->span_class[span] == SPAN_SYNC &&
           cuda_host_waits(SPAN_SYNC, timeline_text(t, t->span_name[span]));
}

/* Whether the host waited for the GPU at some time between; windows come in order. */
static bool host_synced(Walk *w, int64_t from_ns, int64_t to_ns)
{
    for (uint32_t h = 0; h < w->hosts_n; h++) {
        uint64_t end = end_of(&w->t->tracks[w->hosts[h]]), i;
        uint64_t *at = &w->sync_at[h];
        const Timeline *t = w->t;
        while (*at < end && (!waits(w, *at) || t->start_ns[*at] + t->dur_ns[*at] <= from_ns))
            ++*at;
        for (i = *at; i < end && t->start_ns[i] < to_ns; i++)
            if (waits(w, i) && t->start_ns[i] + t->dur_ns[i] > from_ns)
                return true;
    }
    return false;
}

/* The kernel that starts at at_ns; of several that of the first stream. */
static uint64_t kernel_at(Walk *w, int64_t at_ns)
{
    uint64_t found = NONE_U64;
    for (uint32_t k = 0; k < w->cover->tracks_n; k++) {
        uint64_t end = end_of(&w->t->tracks[w->cover->tracks[k]]), *at = &w->kernel_at[k];
        while (*at < end && (w->t->start_ns[*at] < at_ns || !cover_bit(w->t->span_class[*at])))
            ++*at;
        if (*at < end && w->t->start_ns[*at] == at_ns && found == NONE_U64)
            found = *at;
    }
    return found;
}

static GapKind kind_of(Walk *w, uint64_t next, int64_t begin_ns, int64_t end_ns)
{
    take_launches(w, w->by_op ? end_ns + 1 : INT64_MAX);
    int64_t launch_ns = launches_get(&w->launches, id_of(w, next));
    if (launch_ns == LAUNCH_UNKNOWN)
        return GAP_UNKNOWN;
    if (launch_ns <= begin_ns)
        return GAP_OTHER;
    return host_synced(w, begin_ns, launch_ns) ? GAP_SYNC : GAP_LAUNCH;
}

static void sink(Gap *heap, uint32_t n, uint32_t at)
{
    Gap x = heap[at];
    for (uint32_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && heap[child + 1].dur_ns < heap[child].dur_ns)
            child++;
        if (heap[child].dur_ns >= x.dur_ns)
            break;
        heap[at] = heap[child];
    }
    heap[at] = x;
}

/* A heap with the shortest on top: the next to go. */
static void keep_longest(Gaps *g, Gap gap)
{
    if (g->longest_n < g->longest_max) {
        GROW(g->longest, g->longest_n, g->longest_cap);
        g->longest[g->longest_n++] = gap;
        if (g->longest_n == g->longest_max)
            for (uint32_t at = g->longest_n / 2; at-- > 0;)
                sink(g->longest, g->longest_n, at);
    } else if (g->longest_n > 0 && gap.dur_ns > g->longest[0].dur_ns) {
        g->longest[0] = gap;
        sink(g->longest, g->longest_n, 0);
    }
}

/* The part of an idle time that lies within from_ns and to_ns; its reason is that of all of it. */
static void take_gap(Gaps *g, Walk *w, int64_t begin_ns, int64_t end_ns)
{
    if (begin_ns >= w->to_ns || end_ns <= w->from_ns)
        return;
    Gap gap = { .rank = w->rank,
                .at_ns = max_i64(begin_ns, w->from_ns),
                .dur_ns = min_i64(end_ns, w->to_ns) - max_i64(begin_ns, w->from_ns),
                .kind = GAP_UNKNOWN,
                .next = NONE_U64 };
    if (end_ns <= w->cover->end_ns)
        gap.next = kernel_at(w, end_ns);
    if (gap.next != NONE_U64 && (w->by_op || w->t->correlation))
        gap.kind = kind_of(w, gap.next, begin_ns, end_ns);
    g->ranks[w->rank].n[gap.kind]++;
    g->ranks[w->rank].ns[gap.kind] += gap.dur_ns;
    keep_longest(g, gap);
}

/* Before the first kernel a window is idle from where it begins, behind the last to its end. */
static void walk_gaps(Gaps *g, Walk *w)
{
    const Cover *c = w->cover;
    if (c->n == 0)
        return;
    if (w->from_ns < c->begin_ns)
        take_gap(g, w, w->from_ns, c->begin_ns);
    for (uint64_t i = 0; i + 1 < c->n; i++)
        if (c->mask[i] == 0)
            take_gap(g, w, c->at_ns[i], c->at_ns[i + 1]);
    if (c->end_ns < w->to_ns)
        take_gap(g, w, max_i64(c->end_ns, w->from_ns), w->to_ns);
}

static bool has_correlation(const Timeline *t, const Cover *c)
{
    for (uint32_t k = 0; t->correlation && k < c->tracks_n; k++) {
        const Track *track = &t->tracks[c->tracks[k]];
        for (uint64_t i = track->span_first; i < end_of(track); i++)
            if (t->correlation[i] != NONE_U64)
                return true;
    }
    return false;
}

static void walk_open(Walk *w)
{
    const Timeline *t = w->t;
    w->hosts = mem_zero(t->tracks_n, sizeof *w->hosts);
    for (uint32_t k = 0; k < t->tracks_n; k++)
        if (t->tracks[k].kind == TRACK_HOST && t->tracks[k].rank == w->cover->rank)
            w->hosts[w->hosts_n++] = k;
    w->launch_at = mem_zero(w->hosts_n, sizeof *w->launch_at);
    w->sync_at = mem_zero(w->hosts_n, sizeof *w->sync_at);
    w->kernel_at = mem_zero(w->cover->tracks_n, sizeof *w->kernel_at);
    for (uint32_t h = 0; h < w->hosts_n; h++)
        w->launch_at[h] = w->sync_at[h] = t->tracks[w->hosts[h]].span_first;
    for (uint32_t k = 0; k < w->cover->tracks_n; k++)
        w->kernel_at[k] = t->tracks[w->cover->tracks[k]].span_first;
    w->by_op = !has_correlation(t, w->cover);
    open_launches(w);
}

static void find_gaps(Gaps *g, const Timeline *t, const Covers *covers, const Selection *s,
                      uint32_t rank)
{
    if (s->ranks && !s->ranks[rank])
        return;
    const Cover *c = &covers->rank[rank];
    Walk w = { .t = t,
               .cover = c,
               .from_ns = s->from_ns ? s->from_ns[rank] : c->begin_ns,
               .to_ns = s->to_ns ? s->to_ns[rank] : c->end_ns,
               .rank = rank };
    walk_open(&w);
    g->ranks[rank].has_launches = launches_any(&w.launches);
    walk_gaps(g, &w);
    launches_free(&w.launches);
    free(w.hosts);
    free(w.launch_at);
    free(w.sync_at);
    free(w.kernel_at);
}

/* ---- kernels and streams ---- */

static int by_total(const void *a, const void *b)
{
    const KernelRow *x = a, *y = b;
    if (x->total_ns != y->total_ns)
        return x->total_ns > y->total_ns ? -1 : 1;
    if (x->count != y->count)
        return x->count > y->count ? -1 : 1;
    int order = strcmp(x->text, y->text);
    return order ? order : (x->class_ > y->class_) - (x->class_ < y->class_);
}

typedef struct Tally {
    KernelRow *row; /* by name and class */
    const Selection *selection;
} Tally;

enum { TALLY_CLASSES = SPAN_MEMORY + 1 };

static void tally_kernel(Gaps *g, Tally *tally, const Timeline *t, uint64_t span, int64_t times)
{
    KernelRow *kernel =
        &tally->row[(size_t)t->span_name[span] * TALLY_CLASSES + t->span_class[span]];
    kernel->count += (uint64_t)times;
    kernel->total_ns = metrics_sum_ns(kernel->total_ns, t->dur_ns[span], times);
    g->kernels_ns = metrics_sum_ns(g->kernels_ns, t->dur_ns[span], times);
}

/* Kernels are those that start in the window; the stream is busy with whatever runs in it. */
static void tally_stream(Gaps *g, Tally *tally, const Timeline *t, const Cover *c,
                         uint32_t rank, uint32_t track)
{
    const Track *k = &t->tracks[track];
    const Selection *s = tally->selection;
    StreamRow row = { .track = track };
    int64_t begin_ns = s->from_ns ? s->from_ns[rank] : c->begin_ns;
    int64_t end_ns = s->to_ns ? s->to_ns[rank] : c->end_ns, busy_to_ns = begin_ns;
    for (uint64_t i = k->span_first; i < end_of(k); i++) {
        int64_t from_ns = t->start_ns[i], to_ns = min_i64(from_ns + t->dur_ns[i], end_ns);
        if (!cover_bit(t->span_class[i]) || (s->ranks && !s->ranks[rank]))
            continue;
        if (selection_has(s, rank, from_ns)) {
            tally_kernel(g, tally, t, i, c->ranks_n);
            row.count++;
        }
        row.busy_ns += max_i64(0, to_ns - max_i64(from_ns, busy_to_ns));
        busy_to_ns = max_i64(busy_to_ns, to_ns);
    }
    row.idle_ns = end_ns - begin_ns - row.busy_ns;
    if (row.count > 0 || row.busy_ns > 0)
        g->streams[g->streams_n++] = row;
}

static void tally_kernels(Gaps *g, const Timeline *t, const Covers *covers, const Selection *s)
{
    size_t rows_n = (size_t)t->names.n * TALLY_CLASSES;
    Tally tally = { .row = mem_zero(rows_n, sizeof *tally.row), .selection = s };
    g->streams = mem_zero(t->tracks_n, sizeof *g->streams);
    for (uint32_t r = 0; r < covers->n; r++)
        for (uint32_t k = 0; k < covers->rank[r].tracks_n; k++)
            tally_stream(g, &tally, t, &covers->rank[r], r, covers->rank[r].tracks[k]);
    for (size_t i = 0; i < rows_n; i++) {
        KernelRow row = tally.row[i];
        row.name = (uint32_t)(i / TALLY_CLASSES);
        row.text = timeline_text(t, row.name);
        row.class_ = (SpanClass)(i % TALLY_CLASSES);
        if (row.count > 0)
            tally.row[g->kernels_n++] = row;
    }
    g->kernels = tally.row;
    if (g->kernels_n > 0)
        qsort(g->kernels, g->kernels_n, sizeof *g->kernels, by_total);
}

static int longest_first(const void *a, const void *b)
{
    const Gap *x = a, *y = b;
    if (x->dur_ns != y->dur_ns)
        return x->dur_ns > y->dur_ns ? -1 : 1;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return (x->at_ns > y->at_ns) - (x->at_ns < y->at_ns);
}

void gaps_find(Gaps *g, const Timeline *t, const Covers *covers, const Selection *selection,
               uint32_t longest_max)
{
    ASSERT(t->sealed);
    static const Selection all = { .ranks = NULL };
    const Selection *s = selection ? selection : &all;
    *g = (Gaps){ .longest_max = longest_max };
    g->ranks = mem_zero(covers->n, sizeof *g->ranks);
    for (uint32_t r = 0; r < covers->n; r++)
        find_gaps(g, t, covers, s, r);
    if (g->longest_n > 0)
        qsort(g->longest, g->longest_n, sizeof *g->longest, longest_first);
    tally_kernels(g, t, covers, s);
}

void gaps_free(Gaps *g)
{
    free(g->ranks);
    free(g->longest);
    free(g->kernels);
    free(g->streams);
    *g = (Gaps){ 0 };
}

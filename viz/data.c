/*
 * data.c - ranks, rows and steps of a timeline, built by several threads.
 */
#include "viz/data.h"

#include <stdlib.h>
#include <string.h>

#include "core/jobs.h"
#include "core/lanes.h"

/* ---- counters: smallest and largest of blocks, 16 wide; sums up to each point ---- */

enum { COUNTER_SHIFT = 4, COUNTER_LEVELS = 12 };

static void add_counter_level(ViewCounter *c, uint64_t below_n, const float *low,
                              const float *high)
{
    uint32_t l = c->levels_n++;
    c->blocks_n[l] = div_up_u64(below_n, 1 << COUNTER_SHIFT);
    c->low[l] = mem_zero(c->blocks_n[l], sizeof(float));
    c->high[l] = mem_zero(c->blocks_n[l], sizeof(float));
    for (uint64_t i = 0; i < below_n; i++) {
        uint64_t b = i >> COUNTER_SHIFT;
        bool first = (i & ((1 << COUNTER_SHIFT) - 1)) == 0;
        c->low[l][b] = first || low[i] < c->low[l][b] ? low[i] : c->low[l][b];
        c->high[l][b] = first || high[i] > c->high[l][b] ? high[i] : c->high[l][b];
    }
}

static void build_counter(ViewCounter *c, const Timeline *t, const Track *track)
{
    uint64_t n = track->point_n;
    float *value = mem_zero(n ? n : 1, sizeof *value);
    const int64_t *at_ns = t->point_ns + track->point_first;
    c->area = mem_zero(n ? n : 1, sizeof *c->area);
    for (uint64_t i = 0; i < n; i++) {
        double v = t->point_value[track->point_first + i];
        value[i] = (float)v;
        if (i + 1 < n)
            c->area[i + 1] = c->area[i] + v * (double)(at_ns[i + 1] - at_ns[i]);
        c->min = i == 0 || v < c->min ? v : c->min;
        c->max = i == 0 || v > c->max ? v : c->max;
    }
    if (n > 0)
        add_counter_level(c, n, value, value);
    while (c->levels_n > 0 && c->blocks_n[c->levels_n - 1] > 1 &&
           c->levels_n < COUNTER_LEVELS) {
        uint32_t l = c->levels_n - 1;
        add_counter_level(c, c->blocks_n[l], c->low[l], c->high[l]);
    }
    free(value);
}

static void free_counter(ViewCounter *c)
{
    for (uint32_t l = 0; l < c->levels_n; l++) {
        free(c->low[l]);
        free(c->high[l]);
    }
    free(c->area);
}

static uint64_t points_before(const Timeline *t, const Track *track, int64_t at_ns)
{
    uint64_t low = track->point_first, high = low + track->point_n;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (t->point_ns[middle] < at_ns)
            low = middle + 1;
        else
            high = middle;
    }
    return low - track->point_first;
}

/* Of points [a, b): single ones up to a block's edge, then blocks of the widest level. */
static void counter_range(const ViewCounter *c, const double *value, uint64_t a, uint64_t b,
                          double *low, double *high)
{
    while (a < b) {
        uint32_t level = 0;
        uint64_t size = 1;
        while (level < c->levels_n && a % (size << COUNTER_SHIFT) == 0 &&
               a + (size << COUNTER_SHIFT) <= b) {
            size <<= COUNTER_SHIFT;
            level++;
        }
        double l = level ? (double)c->low[level - 1][a / size] : value[a];
        double h = level ? (double)c->high[level - 1][a / size] : value[a];
        *low = l < *low ? l : *low;
        *high = h > *high ? h : *high;
        a += size;
    }
}

bool view_counter_range(const ViewData *d, const ViewRow *row, int64_t from_ns, int64_t to_ns,
                        double *low, double *high)
{
    const Track *track = &d->t->tracks[row->track];
    uint64_t a = points_before(d->t, track, from_ns + 1), b = points_before(d->t, track, to_ns);
    a -= a > 0; /* the one that holds at from_ns */
    b = max_u64(b, min_u64(a + 1, track->point_n));
    if (a >= b || d->t->point_ns[track->point_first + a] >= to_ns)
        return false;
    const double *value = d->t->point_value + track->point_first;
    *low = *high = value[a];
    counter_range(&row->counter, value, a, b, low, high);
    return true;
}

bool view_counter_mean(const ViewData *d, const ViewRow *row, int64_t from_ns, int64_t to_ns,
                       double *mean)
{
    const Track *track = &d->t->tracks[row->track];
    const int64_t *at_ns = d->t->point_ns + track->point_first;
    const double *value = d->t->point_value + track->point_first;
    if (track->point_n == 0 || to_ns <= max_i64(from_ns, at_ns[0]))
        return false;
    from_ns = max_i64(from_ns, at_ns[0]);
    uint64_t a = points_before(d->t, track, from_ns + 1) - 1;
    uint64_t b = points_before(d->t, track, to_ns) - 1;
    const double *area = row->counter.area;
    double sum = area[b] - area[a] + value[b] * (double)(to_ns - at_ns[b]) -
                 value[a] * (double)(from_ns - at_ns[a]);
    *mean = a == b ? value[a] : sum / (double)(to_ns - from_ns);
    return true;
}

/* ---- rows ---- */

void view_row_ready(ViewData *d, ViewRow *row)
{
    if (row->ready)
        return;
    row->ready = true;
    if (row->kind == VIEW_ROW_COUNTER)
        build_counter(&row->counter, d->t, &d->t->tracks[row->track]);
    else
        lod_build_some(&row->lod, d->t, row->track, row->lane,
                       row->kind == VIEW_ROW_STREAM ? d->ranks[row->rank].cover : NULL,
                       &(LodChoice){ d->lanes, NULL, NULL });
}

static uint32_t lanes_of(const ViewData *d, uint32_t track)
{
    const Track *k = &d->t->tracks[track];
    if (k->kind == TRACK_STEPS)
        return 0;
    return k->kind == TRACK_COUNTER ? k->point_n > 0
           : d->lanes               ? d->lanes_n[track]
                                    : k->lanes_n;
}

enum {
    NOTE_SET = 1 << SPAN_NOTE | 1 << SPAN_HOST | 1 << SPAN_STEP | 1 << SPAN_LAUNCH,
};

static bool is_note(uint8_t span_class)
{
    return NOTE_SET >> span_class & 1;
}

/* Annotations that made kernels change lanes: both are there, and more than one lane. */
static bool is_mixed(const Timeline *t, const Track *k)
{
    if (k->kind != TRACK_STREAM || k->lanes_n <= 1)
        return false;
    uint32_t set = timeline_class_set(t, k->span_first, k->span_n);
    return set & NOTE_SET && set & ~(uint32_t)NOTE_SET;
}

static uint32_t give_lanes(ViewData *d, const Track *k, bool notes, uint32_t first)
{
    const Timeline *t = d->t;
    Lanes lanes = { 0 };
    for (uint64_t i = k->span_first; i < k->span_first + k->span_n; i++)
        if (is_note(t->span_class[i]) == notes)
            d->lanes[i] = (uint8_t)min_u64(
                UINT8_MAX, first + lanes_take(&lanes, t->start_ns[i], t->dur_ns[i]));
    first += lanes.lanes_n;
    lanes_free(&lanes);
    return first;
}

static void part_notes(ViewData *d)
{
    const Timeline *t = d->t;
    for (uint32_t k = 0; k < t->tracks_n; k++) {
        if (!is_mixed(t, &t->tracks[k]))
            continue;
        if (!d->lanes) {
            d->lanes = mem_zero(t->spans_n + 1, 1);
            memcpy(d->lanes, t->lane, t->spans_n);
            d->lanes_n = mem_zero(t->tracks_n + 1, sizeof *d->lanes_n);
            for (uint32_t i = 0; i < t->tracks_n; i++)
                d->lanes_n[i] = t->tracks[i].lanes_n;
        }
        uint32_t work_n = give_lanes(d, &t->tracks[k], false, 0);
        d->lanes_n[k] = give_lanes(d, &t->tracks[k], true, work_n);
    }
}

static ViewRowKind row_kind(TrackKind kind)
{
    return kind == TRACK_STREAM    ? VIEW_ROW_STREAM
           : kind == TRACK_COUNTER ? VIEW_ROW_COUNTER
                                   : VIEW_ROW_HOST;
}

static void add_rows(ViewData *d, uint32_t rank, uint32_t track)
{
    const Track *k = &d->t->tracks[track];
    for (uint32_t lane = 0; lane < min_u64(lanes_of(d, track), UINT8_MAX + 1); lane++)
        d->rows[d->rows_n++] =
            (ViewRow){ .kind = row_kind(k->kind), .rank = rank, .track = track, .lane = lane };
}

static uint32_t count_rows(const ViewData *d)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < d->t->tracks_n; k++)
        n += lanes_of(d, k);
    return n;
}

/* Which rows of streams hold annotations alone: the first span of a lane tells. */
static void mark_notes(ViewData *d)
{
    for (uint32_t i = 0; d->lanes && i < d->rows_n; i++) {
        ViewRow *row = &d->rows[i];
        const Track *k = &d->t->tracks[row->track];
        uint64_t s = k->span_first, end = k->span_first + k->span_n;
        while (row->kind == VIEW_ROW_STREAM && s < end && d->lanes[s] != row->lane)
            s++;
        row->notes = row->kind == VIEW_ROW_STREAM && s < end && is_note(d->t->span_class[s]);
    }
}

/* Tracks come by rank, as covers do. */
static void open_rows(ViewData *d)
{
    const Timeline *t = d->t;
    uint32_t *order = mem_zero(t->tracks_n + 1, sizeof *order), k = 0;
    timeline_track_order(t, order);
    part_notes(d);
    d->rows = mem_zero(count_rows(d) + 1, sizeof *d->rows);
    for (uint32_t r = 0; r < d->ranks_n; r++) {
        ViewRank *rank = &d->ranks[r];
        rank->row_first = d->rows_n;
        for (; k < t->tracks_n && t->tracks[order[k]].rank == rank->rank; k++)
            add_rows(d, r, order[k]);
        rank->rows_n = d->rows_n - rank->row_first;
    }
    free(order);
    mark_notes(d);
}

/* ---- by several threads: covers of all ranks first, rows need them ---- */

static void build_rank(void *data, uint32_t r)
{
    ViewData *d = data;
    Cover *cover = &d->covers.rank[r];
    cover_build(cover, d->t);
    lod_build_strip(&d->ranks[r].strip, cover);
    d->ranks[r].all = metrics_of_rank(cover);
}

static void build_row(void *data, uint32_t i)
{
    ViewData *d = data;
    if (d->rows[i].kind != VIEW_ROW_HOST)
        view_row_ready(d, &d->rows[i]);
}

/* ---- the whole ---- */

static void open_ranks(ViewData *d)
{
    covers_open(&d->covers, d->t);
    d->ranks_n = d->covers.n;
    d->ranks = mem_zero(d->ranks_n + 1, sizeof *d->ranks);
    for (uint32_t r = 0; r < d->ranks_n; r++) {
        const Cover *c = &d->covers.rank[r];
        d->ranks[r] = (ViewRank){ .rank = c->rank,
                                  .ranks_n = c->ranks_n,
                                  .cover = c,
                                  .begin_ns = d->begin_ns,
                                  .end_ns = d->end_ns };
    }
}

/* Does a span of no length begin where the trace ends?  Windows end before their last ns, so one
 * that shows it is that much longer. */
static bool ends_with_a_moment(const Timeline *t)
{
    bool ends = false;
    for (uint32_t i = 0; i < t->tracks_n; i++) {
        const Track *k = &t->tracks[i];
        ends |= k->span_n > 0 && t->start_ns[k->span_first + k->span_n - 1] == t->end_ns;
    }
    return ends;
}

void view_data_open(ViewData *d, const Timeline *t, const char *name, uint32_t jobs)
{
    ASSERT(t->sealed);
    jobs = jobs ? jobs : jobs_processors();
    *d = (ViewData){ .t = t, .name = name, .begin_ns = t->begin_ns, .end_ns = t->end_ns };
    d->end_ns = max_i64(t->end_ns + ends_with_a_moment(t), d->begin_ns + 1);
    open_ranks(d);
    open_rows(d);
    jobs_run(build_rank, d, d->ranks_n, jobs);
    jobs_run(build_row, d, d->rows_n, jobs);
    step_windows_find(&d->steps, t);
}

void view_data_free(ViewData *d)
{
    for (uint32_t r = 0; r < d->ranks_n; r++) {
        lod_free(&d->ranks[r].strip);
        free(d->ranks[r].ties);
    }
    for (uint32_t i = 0; i < d->rows_n; i++) {
        lod_free(&d->rows[i].lod);
        free_counter(&d->rows[i].counter);
    }
    free(d->ranks);
    free(d->rows);
    free(d->lanes);
    free(d->lanes_n);
    step_windows_free(&d->steps);
    covers_free(&d->covers);
    *d = (ViewData){ 0 };
}

static void track_bounds(const Timeline *t, const Track *k, int64_t *begin_ns, int64_t *end_ns)
{
    uint64_t spans_end = k->span_first + k->span_n, points_end = k->point_first + k->point_n;
    for (uint64_t i = k->span_first; i < spans_end; i++) {
        *begin_ns = min_i64(*begin_ns, t->start_ns[i]);
        *end_ns = max_i64(*end_ns, t->start_ns[i] + max_i64(1, t->dur_ns[i]));
    }
    for (uint64_t i = k->point_first; i < points_end; i++) {
        *begin_ns = min_i64(*begin_ns, t->point_ns[i]);
        *end_ns = max_i64(*end_ns, t->point_ns[i]);
    }
}

void view_data_bounds(ViewData *d)
{
    for (uint32_t r = 0; r < d->ranks_n; r++) {
        int64_t begin_ns = INT64_MAX, end_ns = INT64_MIN;
        for (uint32_t k = 0; k < d->t->tracks_n; k++)
            if (d->t->tracks[k].rank == d->ranks[r].rank)
                track_bounds(d->t, &d->t->tracks[k], &begin_ns, &end_ns);
        if (begin_ns >= end_ns)
            continue; /* nothing ran */
        d->ranks[r].begin_ns = begin_ns;
        d->ranks[r].end_ns = end_ns;
    }
}

bool view_has_gpu_work(const ViewData *d)
{
    for (uint32_t r = 0; r < d->ranks_n; r++)
        if (d->ranks[r].cover->n > 0)
            return true;
    return false;
}

uint64_t view_data_memory_bytes(const ViewData *d)
{
    uint64_t bytes = d->rows_n * sizeof *d->rows + d->ranks_n * sizeof *d->ranks;
    bytes += d->lanes ? d->t->spans_n : 0;
    for (uint32_t r = 0; r < d->ranks_n; r++) {
        const Cover *c = d->ranks[r].cover;
        bytes += c->cap * (sizeof *c->at_ns + sizeof *c->mask) +
                 (c->n / COVER_BLOCK + 1) * sizeof *c->before +
                 lod_memory_bytes(&d->ranks[r].strip) + d->ranks[r].ties_n * sizeof(ViewTie);
    }
    for (uint32_t i = 0; i < d->rows_n; i++) {
        bytes += lod_memory_bytes(&d->rows[i].lod);
        for (uint32_t l = 0; l < d->rows[i].counter.levels_n; l++)
            bytes += d->rows[i].counter.blocks_n[l] * 2 * sizeof(float);
        if (d->rows[i].counter.area)
            bytes += d->t->tracks[d->rows[i].track].point_n * sizeof(double);
    }
    return bytes;
}

uint64_t view_comms_before(const ViewLinks *l, uint64_t span)
{
    uint64_t low = 0, high = l->comms_n;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (l->comms[middle].span < span)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void view_comms_reach(ViewComm *comms, uint64_t n, const Timeline *t)
{
    for (uint64_t i = 0; i < n; i++) {
        uint64_t span = comms[i].span;
        bool follows = i > 0 && t->span_track[comms[i - 1].span] == t->span_track[span];
        int64_t end_ns = t->start_ns[span] + t->dur_ns[span];
        comms[i].reach_ns = follows ? max_i64(end_ns, comms[i - 1].reach_ns) : end_ns;
    }
}

const ViewComm *view_comm_of(const ViewLinks *l, uint64_t span)
{
    uint64_t i = view_comms_before(l, span);
    return i < l->comms_n && l->comms[i].span == span ? &l->comms[i] : NULL;
}

int64_t view_transfer_ns(const ViewData *d, uint64_t span)
{
    const ViewComm *k = view_comm_of(&d->links, span);
    const Comm *c = timeline_comm_of(d->t, span);
    if (k && k->match != NONE_U32)
        return d->links.matches[k->match].transfer_ns;
    int64_t wait_ns = k ? k->wait_ns : c ? c->wait_ns : -1;
    return wait_ns >= 0 ? d->t->dur_ns[span] - min_i64(wait_ns, d->t->dur_ns[span]) : -1;
}

static int by_correlation(const void *a, const void *b)
{
    const ViewTie *x = a, *y = b;
    if (x->correlation != y->correlation)
        return x->correlation < y->correlation ? -1 : 1;
    return (x->span > y->span) - (x->span < y->span);
}

/* A rank whose spans have no ids gets room for one, so that they are not looked at again. */
static void find_ties(ViewRank *rank, const Timeline *t)
{
    for (int pass = 0; pass < 2; pass++) {
        if (pass == 1)
            rank->ties = mem_zero(rank->ties_n + 1, sizeof *rank->ties);
        rank->ties_n = 0;
        for (uint32_t k = 0; k < t->tracks_n; k++) {
            const Track *track = &t->tracks[k];
            uint64_t end = track->span_first + track->span_n;
            for (uint64_t i = track->span_first; track->rank == rank->rank && i < end; i++) {
                if (t->correlation[i] == NONE_U64)
                    continue;
                if (pass == 1)
                    rank->ties[rank->ties_n] = (ViewTie){ t->correlation[i], i };
                rank->ties_n++;
            }
        }
    }
    qsort(rank->ties, rank->ties_n, sizeof *rank->ties, by_correlation);
}

const ViewTie *view_ties(ViewData *d, uint32_t rank, uint64_t correlation, uint64_t *n)
{
    ViewRank *r = &d->ranks[rank];
    uint64_t low = 0, end;
    *n = 0;
    if (!d->t->correlation || correlation == NONE_U64)
        return NULL;
    if (!r->ties)
        find_ties(r, d->t);
    for (uint64_t high = r->ties_n; low < high;) {
        uint64_t middle = low + (high - low) / 2;
        if (r->ties[middle].correlation < correlation)
            low = middle + 1;
        else
            high = middle;
    }
    for (end = low; end < r->ties_n && r->ties[end].correlation == correlation;)
        end++;
    *n = end - low;
    return &r->ties[low];
}

/* ---- numbers of a window ---- */

void view_stats_add(ViewStats *s, const ViewRank *rank, const Metrics *m)
{
    metrics_add(&s->sum, m, rank->ranks_n);
    s->ranks_n += rank->ranks_n;
}

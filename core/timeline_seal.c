/*
 * timeline_seal.c - puts spans and points in order, gives lanes.
 *
 * Sealing computes a permutation of the rows first (counting sort by track,
 * then merge sort of the tracks that are out of order) and moves the columns
 * once, one after another, so that never more than one column exists twice.
 */
#include "core/timeline.h"

#include <stdlib.h>
#include <string.h>

#include "core/lanes.h"

/* ---- order ---- */

/* What is sorted: rows of a table by (track, at_ns, longer first, row). */
typedef struct Rows {
    const uint32_t *track;
    const int64_t *at_ns;
    const int64_t *dur_ns; /* NULL: points */
    uint64_t n;
    uint64_t *first; /* by track; one more at the end */
    uint32_t tracks_n;
} Rows;

/* A row with its key beside it: the merge touches no other memory unless starts are equal. */
typedef struct Keyed {
    int64_t at_ns;
    uint64_t row;
} Keyed;

/* Whether b must stand before a, which came first. */
static inline bool must_swap(const Rows *r, Keyed a, Keyed b)
{
    if (a.at_ns != b.at_ns)
        return b.at_ns < a.at_ns;
    return r->dur_ns && r->dur_ns[b.row] > r->dur_ns[a.row];
}

static void insertion_sort(const Rows *r, Keyed *k, uint64_t n)
{
    for (uint64_t i = 1; i < n; i++) {
        Keyed x = k[i];
        uint64_t j = i;
        for (; j > 0 && must_swap(r, k[j - 1], x); j--)
            k[j] = k[j - 1];
        k[j] = x;
    }
}

/*
 * Top-down merge sort; spare holds n/2.  Halves that are in order stay where
 * they are, and of others only the overlap moves: traces are nearly sorted.
 */
static void merge_sort(const Rows *r, Keyed *k, uint64_t n, Keyed *spare)
{
    if (n <= 16) {
        insertion_sort(r, k, n);
        return;
    }
    uint64_t half = n / 2;
    merge_sort(r, k, half, spare);
    merge_sort(r, k + half, n - half, spare);

    if (!must_swap(r, k[half - 1], k[half]))
        return;
    uint64_t out = 0;
    while (out < half && !must_swap(r, k[out], k[half]))
        out++;
    uint64_t left_n = half - out, left = 0, right = half;
    memcpy(spare, k + out, left_n * sizeof *spare);
    while (left < left_n) {
        if (right < n && must_swap(r, spare[left], k[right]))
            k[out++] = k[right++];
        else
            k[out++] = spare[left++];
    }
}

static bool rows_in_order(const Rows *r, const uint64_t *row, uint64_t n)
{
    for (uint64_t i = 1; i < n; i++) {
        Keyed a = { r->at_ns[row[i - 1]], row[i - 1] }, b = { r->at_ns[row[i]], row[i] };
        if (must_swap(r, a, b))
            return false;
    }
    return true;
}

static void sort_rows(const Rows *r, uint64_t *row, uint64_t n)
{
    if (rows_in_order(r, row, n))
        return;
    Keyed *keyed = mem_resize(NULL, n, sizeof *keyed);
    Keyed *spare = mem_resize(NULL, n / 2, sizeof *spare);
    for (uint64_t i = 0; i < n; i++)
        keyed[i] = (Keyed){ r->at_ns[row[i]], row[i] };
    merge_sort(r, keyed, n, spare);
    for (uint64_t i = 0; i < n; i++)
        row[i] = keyed[i].row;
    free(spare);
    free(keyed);
}

static bool table_in_order(const Rows *r)
{
    for (uint64_t i = 1; i < r->n; i++) {
        if (r->track[i - 1] > r->track[i])
            return false;
        Keyed a = { r->at_ns[i - 1], i - 1 }, b = { r->at_ns[i], i };
        if (r->track[i - 1] == r->track[i] && must_swap(r, a, b))
            return false;
    }
    return true;
}

static void count_tracks(Rows *r)
{
    r->first = mem_zero((size_t)r->tracks_n + 2, sizeof *r->first);
    for (uint64_t i = 0; i < r->n; i++)
        r->first[r->track[i] + 1]++;
    for (uint32_t k = 0; k < r->tracks_n; k++)
        r->first[k + 1] += r->first[k];
}

/* The order wanted: the i-th row is to be the old row order[i].  NULL: it is so already. */
static uint64_t *rows_order(const Rows *r)
{
    if (table_in_order(r))
        return NULL;
    uint64_t *order = mem_resize(NULL, r->n, sizeof *order);
    uint64_t *next = mem_resize(NULL, r->tracks_n, sizeof *next);
    memcpy(next, r->first, r->tracks_n * sizeof *next);
    for (uint64_t i = 0; i < r->n; i++)
        order[next[r->track[i]]++] = i;
    free(next);
    for (uint32_t k = 0; k < r->tracks_n; k++)
        sort_rows(r, order + r->first[k], r->first[k + 1] - r->first[k]);
    return order;
}

#define MOVE_COLUMN(Type, column, order, n) \
    do { \
        Type *moved_ = mem_resize(NULL, (n), sizeof *moved_); \
        for (uint64_t i_ = 0; i_ < (n); i_++) \
            moved_[i_] = (column)[(order)[i_]]; \
        free(column); \
        (column) = moved_; \
    } while (0)

static void move_spans(Timeline *t, const uint64_t *order)
{
    uint64_t n = t->spans_n;
    MOVE_COLUMN(int64_t, t->start_ns, order, n);
    MOVE_COLUMN(int64_t, t->dur_ns, order, n);
    MOVE_COLUMN(uint32_t, t->span_name, order, n);
    MOVE_COLUMN(uint32_t, t->span_track, order, n);
    MOVE_COLUMN(uint32_t, t->op, order, n);
    MOVE_COLUMN(uint32_t, t->comm, order, n);
    MOVE_COLUMN(uint8_t, t->span_class, order, n);
    if (t->correlation)
        MOVE_COLUMN(uint64_t, t->correlation, order, n);
    if (t->args_offset)
        MOVE_COLUMN(uint64_t, t->args_offset, order, n);
    if (t->op_name)
        MOVE_COLUMN(uint32_t, t->op_name, order, n);
    if (t->logical)
        MOVE_COLUMN(uint64_t, t->logical, order, n);
    t->lane = mem_resize(t->lane, n, sizeof *t->lane);
    t->spans_cap = n;
}

static void move_points(Timeline *t, const uint64_t *order)
{
    MOVE_COLUMN(uint32_t, t->point_track, order, t->points_n);
    MOVE_COLUMN(int64_t, t->point_ns, order, t->points_n);
    MOVE_COLUMN(double, t->point_value, order, t->points_n);
    t->points_cap = t->points_n;
}

static void sort_spans(Timeline *t)
{
    Rows rows = { t->span_track, t->start_ns, t->dur_ns, t->spans_n, NULL, t->tracks_n };
    count_tracks(&rows);
    uint64_t *order = rows_order(&rows);
    if (order)
        move_spans(t, order);
    for (uint32_t k = 0; k < t->tracks_n; k++) {
        t->tracks[k].span_first = rows.first[k];
        t->tracks[k].span_n = rows.first[k + 1] - rows.first[k];
    }
    free(order);
    free(rows.first);
}

static void sort_points(Timeline *t)
{
    Rows rows = { t->point_track, t->point_ns, NULL, t->points_n, NULL, t->tracks_n };
    count_tracks(&rows);
    uint64_t *order = rows_order(&rows);
    if (order)
        move_points(t, order);
    for (uint32_t k = 0; k < t->tracks_n; k++) {
        t->tracks[k].point_first = rows.first[k];
        t->tracks[k].point_n = rows.first[k + 1] - rows.first[k];
    }
    free(order);
    free(rows.first);
}

/* ---- lanes and ends ---- */

/*
 * Spans before the first overlap are all in lane 0.  Returns the span that is
 * overlapped first, or the end of the track.
 */
static uint64_t first_overlapped(const Timeline *t, const Track *k)
{
    uint64_t end = k->span_first + k->span_n, last = k->span_first;
    for (uint64_t i = k->span_first + 1; i < end; i++) {
        bool instant_at_start = t->dur_ns[i] == 0 && t->start_ns[i] == t->start_ns[last];
        int64_t last_end_ns = t->start_ns[last] + t->dur_ns[last];
        if (t->start_ns[i] < last_end_ns && !instant_at_start)
            return last;
        if (t->start_ns[i] + t->dur_ns[i] > last_end_ns)
            last = i;
    }
    return end;
}

static void give_lanes(Timeline *t, Track *k, Lanes *lanes)
{
    uint64_t end = k->span_first + k->span_n;
    k->lanes_n = k->span_n > 0;
    if (k->span_n == 0)
        return;
    memset(t->lane + k->span_first, 0, k->span_n);
    uint64_t i = first_overlapped(t, k);
    if (i == end)
        return;

    lanes_clear(lanes);
    for (; i < end; i++) {
        uint32_t lane = lanes_take(lanes, t->start_ns[i], t->dur_ns[i]);
        t->lane[i] = (uint8_t)(lane < 255 ? lane : 255);
    }
    k->lanes_n = lanes->lanes_n;
}

static void find_ends(Timeline *t)
{
    t->begin_ns = t->end_ns = 0;
    if (t->spans_n + t->points_n == 0)
        return;
    int64_t begin = INT64_MAX, end = INT64_MIN;
    for (uint64_t i = 0; i < t->spans_n; i++) {
        begin = min_i64(begin, t->start_ns[i]);
        end = max_i64(end, t->start_ns[i] + t->dur_ns[i]);
    }
    for (uint64_t i = 0; i < t->points_n; i++) {
        begin = min_i64(begin, t->point_ns[i]);
        end = max_i64(end, t->point_ns[i]);
    }
    t->begin_ns = begin;
    t->end_ns = end;
}

void timeline_seal(Timeline *t)
{
    if (t->sealed)
        return;
    sort_spans(t);
    sort_points(t);
    Lanes lanes = { 0 };
    for (uint32_t k = 0; k < t->tracks_n; k++)
        give_lanes(t, &t->tracks[k], &lanes);
    lanes_free(&lanes);
    find_ends(t);
    t->sealed = true;
}

/*
 * kernels.c - running sums by name, and their differences.
 */
#include "viz/kernels.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK_LOW = 64, SPANS_PER_SUM = 8, LANE_LAST = UINT8_MAX };

/* ---- building ---- */

/* NONE_U32: annotations and the like are no kernels. */
static uint32_t kernel_name(const Timeline *t, uint64_t span)
{
    uint32_t name = t->span_name[span];
    return name < t->names.n && cover_bit(t->span_class[span]) ? name : NONE_U32;
}

/* Places of names within a row, by interned id; NONE_U32 where it has none. */
static void find_names(KernelRow *k, const LodRow *lod, uint32_t *place)
{
    const Timeline *t = lod->t;
    uint32_t cap = 0, class_cap = 0, classes_n = 0;
    for (uint64_t i = 0; i < lod->n; i++) {
        uint32_t name = kernel_name(t, lod_span(lod, i));
        if (name == NONE_U32 || place[name] != NONE_U32)
            continue;
        GROW(k->name, k->names_n, cap);
        GROW(k->class_, classes_n, class_cap);
        place[name] = k->names_n;
        k->class_[classes_n++] = t->span_class[lod_span(lod, i)];
        k->name[k->names_n++] = name;
    }
}

static void sum_row(KernelRow *k, const LodRow *lod, uint32_t *place)
{
    const Timeline *t = lod->t;
    find_names(k, lod, place);
    k->block = k->names_n * SPANS_PER_SUM > BLOCK_LOW ? k->names_n * SPANS_PER_SUM : BLOCK_LOW;
    k->blocks_n = lod->n / k->block + 1;
    k->ns = mem_zero(k->blocks_n * k->names_n + 1, sizeof *k->ns);
    k->count = mem_zero(k->blocks_n * k->names_n + 1, sizeof *k->count);
    int64_t *ns = mem_zero(k->names_n + 1, sizeof *ns);
    uint64_t *count = mem_zero(k->names_n + 1, sizeof *count);
    for (uint64_t i = 0; i < lod->n; i++) {
        uint64_t span = lod_span(lod, i);
        if (i % k->block == 0) {
            memcpy(k->ns + i / k->block * k->names_n, ns, k->names_n * sizeof *ns);
            memcpy(k->count + i / k->block * k->names_n, count, k->names_n * sizeof *count);
        }
        uint32_t name = kernel_name(t, span);
        if (name != NONE_U32) {
            ns[place[name]] += t->dur_ns[span];
            count[place[name]]++;
        }
    }
    free(ns);
    free(count);
    for (uint32_t i = 0; i < k->names_n; i++)
        place[k->name[i]] = NONE_U32;
}

void kernels_open(KernelSums *k, const ViewData *d)
{
    uint32_t *place = mem_zero(d->t->names.n + 1, sizeof *place);
    memset(place, 0xff, d->t->names.n * sizeof *place);
    *k = (KernelSums){ d, mem_zero(d->rows_n + 1, sizeof *k->rows) };
    for (uint32_t i = 0; i < d->rows_n; i++)
        if (d->rows[i].kind == VIEW_ROW_STREAM)
            sum_row(&k->rows[i], &d->rows[i].lod, place);
    free(place);
}

void kernels_free(KernelSums *k)
{
    for (uint32_t i = 0; k->data && i < k->data->rows_n; i++) {
        free(k->rows[i].name);
        free(k->rows[i].class_);
        free(k->rows[i].ns);
        free(k->rows[i].count);
    }
    free(k->rows);
    *k = (KernelSums){ NULL, NULL };
}

/* ---- a window ---- */

typedef struct Totals {
    KernelTotal *total; /* by interned id */
    int64_t ranks_n;    /* that the row's rank stands for */
} Totals;

static void add(Totals *s, uint32_t name, uint8_t span_class, int64_t count, int64_t ns)
{
    KernelTotal *k = &s->total[name];
    k->span_class = span_class;
    k->count += (uint64_t)(count * s->ranks_n);
    k->total_ns += ns * s->ranks_n;
}

static int64_t end_of(const LodRow *lod, uint64_t i)
{
    uint64_t span = lod_span(lod, i);
    return lod->t->start_ns[span] + lod->t->dur_ns[span];
}

/* Does it begin in the window, or reach into it?  One that ends where the window begins does
 * neither, one of no length there does. */
static bool is_in(const LodRow *lod, uint64_t i, int64_t from_ns, int64_t to_ns)
{
    int64_t start_ns = lod->t->start_ns[lod_span(lod, i)];
    return start_ns < to_ns && (start_ns >= from_ns || end_of(lod, i) > from_ns);
}

/* One span's part in the window, times sign. */
static void add_span(Totals *s, const LodRow *lod, uint64_t i, int64_t sign, int64_t from_ns,
                     int64_t to_ns)
{
    const Timeline *t = lod->t;
    uint64_t span = lod_span(lod, i);
    int64_t a = max_i64(from_ns, t->start_ns[span]);
    int64_t b = min_i64(to_ns, end_of(lod, i));
    if (kernel_name(t, span) != NONE_U32 && is_in(lod, i, from_ns, to_ns))
        add(s, t->span_name[span], t->span_class[span], sign, sign * (b - a));
}

/* All of spans 0 .. i - 1, times sign. */
static void add_before(Totals *s, const KernelRow *k, const LodRow *lod, uint64_t i,
                       int64_t sign)
{
    uint64_t block = i / k->block;
    for (uint32_t p = 0; p < k->names_n; p++)
        add(s, k->name[p], k->class_[p], sign * (int64_t)k->count[block * k->names_n + p],
            sign * k->ns[block * k->names_n + p]);
    for (uint64_t j = block * k->block; j < i; j++)
        add_span(s, lod, j, sign, -TIMELINE_NS_MAX, TIMELINE_NS_MAX);
}

/* The first that may be in a window.  Spans of a lane do not overlap, but in the last one, so at
 * most one reaches over each edge: of those that begin together the first. */
static uint64_t first_near(const LodRow *lod, int64_t from_ns)
{
    uint64_t first = lod->lane >= LANE_LAST ? 0 : lod_spans_before(lod, from_ns);
    return first > 0 ? lod_spans_before(lod, lod->t->start_ns[lod_span(lod, first - 1)]) : 0;
}

static void add_each(Totals *s, const LodRow *lod, uint64_t first, uint64_t last,
                     int64_t from_ns, int64_t to_ns)
{
    for (uint64_t i = first; i < last; i++)
        add_span(s, lod, i, 1, from_ns, to_ns);
}

static void add_row(Totals *s, const KernelRow *k, const LodRow *lod, int64_t from_ns,
                    int64_t to_ns)
{
    uint64_t first = lod_spans_before(lod, from_ns), last = lod_spans_before(lod, to_ns);
    uint64_t ahead = first_near(lod, from_ns);
    if (lod->lane >= LANE_LAST || last - ahead < 2 * (uint64_t)k->block) {
        add_each(s, lod, ahead, last, from_ns, to_ns);
        return;
    }
    add_each(s, lod, ahead, first, from_ns, to_ns);
    uint64_t tail = lod_spans_before(lod, lod->t->start_ns[lod_span(lod, last - 1)]);
    add_before(s, k, lod, tail, 1);
    add_before(s, k, lod, first, -1);
    add_each(s, lod, tail, last, from_ns, to_ns);
}

static int by_total(const void *a, const void *b)
{
    const KernelTotal *x = a, *y = b;
    if (x->total_ns != y->total_ns)
        return x->total_ns < y->total_ns ? 1 : -1;
    return (x->name > y->name) - (x->name < y->name);
}

uint32_t kernels_top(const KernelSums *k, const bool *ranks, const int64_t *shift_ns,
                     int64_t from_ns, int64_t to_ns, KernelTotal *top, uint32_t n)
{
    const ViewData *d = k->data;
    uint32_t names_n = d->t->names.n, used = 0;
    Totals s = { .total = mem_zero(names_n + 1, sizeof *s.total) };
    for (uint32_t i = 0; i < d->rows_n; i++) {
        const ViewRow *row = &d->rows[i];
        if (row->kind != VIEW_ROW_STREAM || row->lod.n == 0 || (ranks && !ranks[row->rank]))
            continue;
        s.ranks_n = d->ranks[row->rank].ranks_n;
        int64_t by_ns = shift_ns ? shift_ns[row->rank] : 0;
        add_row(&s, &k->rows[i], &row->lod, from_ns + by_ns, to_ns + by_ns);
    }
    for (uint32_t i = 0; i < names_n; i++)
        if (s.total[i].count > 0) {
            s.total[used] = s.total[i];
            s.total[used++].name = i;
        }
    qsort(s.total, used, sizeof *s.total, by_total);
    for (uint32_t i = 0; i < used && i < n; i++)
        top[i] = s.total[i];
    free(s.total);
    return used < n ? used : n;
}

/* ---- of one name ---- */

typedef struct Duration {
    int64_t ns;
    uint64_t times;
} Duration;

static int by_duration(const void *a, const void *b)
{
    const Duration *x = a, *y = b;
    return (x->ns > y->ns) - (x->ns < y->ns);
}

typedef struct Durations {
    Duration *at;
    uint64_t n, cap;
} Durations;

static void collect(Durations *all, const LodRow *lod, uint32_t name, int64_t from_ns,
                    int64_t to_ns, uint64_t times)
{
    const Timeline *t = lod->t;
    uint64_t last = lod_spans_before(lod, to_ns);
    for (uint64_t i = first_near(lod, from_ns); i < last; i++) {
        uint64_t span = lod_span(lod, i);
        if (t->span_name[span] != name || !is_in(lod, i, from_ns, to_ns))
            continue;
        GROW(all->at, all->n, all->cap);
        all->at[all->n++] = (Duration){ t->dur_ns[span], times };
    }
}

static int64_t percentile(const Durations *all, uint64_t count, uint32_t pct)
{
    uint64_t i = 0, seen = all->at[0].times;
    while (i + 1 < all->n && (double)seen * 100 < (double)count * pct)
        seen += all->at[++i].times;
    return all->at[i].ns;
}

KernelTimes kernels_times(const KernelSums *k, const bool *ranks, const int64_t *shift_ns,
                          int64_t from_ns, int64_t to_ns, uint32_t name)
{
    const ViewData *d = k->data;
    Durations all = { .n = 0 };
    KernelTimes out = { .count = 0 };
    double sum_ns = 0;
    for (uint32_t i = 0; i < d->rows_n; i++) {
        const ViewRow *row = &d->rows[i];
        int64_t by_ns = shift_ns ? shift_ns[row->rank] : 0;
        if (row->kind == VIEW_ROW_STREAM && row->lod.n > 0 && (!ranks || ranks[row->rank]))
            collect(&all, &row->lod, name, from_ns + by_ns, to_ns + by_ns,
                    d->ranks[row->rank].ranks_n);
    }
    for (uint64_t i = 0; i < all.n; i++) {
        out.count += all.at[i].times;
        sum_ns += (double)all.at[i].ns * (double)all.at[i].times;
    }
    if (all.n > 0) {
        qsort(all.at, all.n, sizeof *all.at, by_duration);
        out.mean_ns = (int64_t)(sum_ns / (double)out.count + 0.5);
        out.p50_ns = percentile(&all, out.count, 50);
        out.p99_ns = percentile(&all, out.count, 99);
    }
    free(all.at);
    return out;
}

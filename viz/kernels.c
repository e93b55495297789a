/*
 * kernels.c - one pass over the spans of a window, a total per name.
 */
#include "viz/kernels.h"

#include <stdlib.h>

static int by_total(const void *a, const void *b)
{
    const KernelTotal *x = a, *y = b;
    if (x->total_ns != y->total_ns)
        return x->total_ns < y->total_ns ? 1 : -1;
    return (x->name > y->name) - (x->name < y->name);
}

static void add_row(const ViewData *d, const ViewRow *row, int64_t from_ns, int64_t to_ns,
                    KernelTotal *totals)
{
    const Timeline *t = d->t;
    const LodRow *lod = &row->lod;
    uint64_t i = lod_spans_before(lod, from_ns);
    i -= i > 0;
    for (; i < lod->n; i++) {
        uint64_t span = lod_span(lod, i);
        int64_t a = max_i64(from_ns, t->start_ns[span]);
        int64_t b = min_i64(to_ns, t->start_ns[span] + t->dur_ns[span]);
        if (t->start_ns[span] >= to_ns)
            break;
        if (a > b || t->span_name[span] >= t->names.n)
            continue;
        KernelTotal *k = &totals[t->span_name[span]];
        k->span_class = t->span_class[span];
        k->count += d->ranks[row->rank].ranks_n;
        k->total_ns += (b - a) * (int64_t)d->ranks[row->rank].ranks_n;
    }
}

uint32_t kernels_top(const ViewData *d, const bool *ranks, int64_t from_ns, int64_t to_ns,
                     KernelTotal *top, uint32_t n)
{
    uint32_t names_n = d->t->names.n, used = 0;
    KernelTotal *totals = mem_zero(names_n + 1, sizeof *totals);
    for (uint32_t i = 0; i < d->rows_n; i++) {
        const ViewRow *row = &d->rows[i];
        if (row->kind == VIEW_ROW_STREAM && (!ranks || ranks[row->rank]))
            add_row(d, row, from_ns, to_ns, totals);
    }
    for (uint32_t i = 0; i < names_n; i++)
        if (totals[i].count > 0) {
            totals[used] = totals[i];
            totals[used++].name = i;
        }
    qsort(totals, used, sizeof *totals, by_total);
    for (uint32_t i = 0; i < used && i < n; i++)
        top[i] = totals[i];
    free(totals);
    return used < n ? used : n;
}

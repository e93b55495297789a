/*
 * scene_tables.c - what the drawer's tables hold: top kernels, and the communication that was
 * exposed most, of the ranks that count; made anew when window or ranks change.
 */
#include "viz/scene_parts.h"

#include <stdlib.h>
#include <string.h>

#include "core/quantile.h"

enum { COMMS_LOOKED_AT = 200000 };

static uint64_t ranks_hash(const View *v)
{
    uint64_t hash = 0;
    for (uint32_t r = 0; r < view_data(v)->ranks_n; r++)
        hash =
            mix_u64(hash + view_counts(v, r) + (uint64_t)view_shift_ns(v, view_side(v), r) * 2);
    return hash;
}

/* ---- exposed communication ---- */

static bool is_same(const Timeline *t, uint64_t a, uint64_t b)
{
    const Comm *x = timeline_comm_of(t, a), *y = timeline_comm_of(t, b);
    if (t->span_name[a] != t->span_name[b] || !x != !y)
        return false;
    return !x || (x->op == y->op && x->bytes == y->bytes && x->dtype == y->dtype &&
                  x->ranks_n == y->ranks_n);
}

static uint64_t hash_of(const Timeline *t, uint64_t span)
{
    const Comm *c = timeline_comm_of(t, span);
    return mix_u64(t->span_name[span] + (c ? mix_u64(c->bytes + c->op) : 0));
}

typedef struct Transfer {
    uint32_t number; /* of its total */
    int64_t ns;
} Transfer;

typedef struct CommTable {
    CommTotal *total;
    uint32_t n, cap;
    Transfer *transfer; /* those known */
    uint32_t transfers_n, transfers_cap;
    uint32_t *slot; /* by hash: index into total, plus one */
    uint32_t slots_n;
} CommTable;

static void grow_slots(CommTable *c, const Timeline *t)
{
    c->slots_n = c->slots_n ? 4 * c->slots_n : 256;
    free(c->slot);
    c->slot = mem_zero(c->slots_n, sizeof *c->slot);
    for (uint32_t i = 0; i < c->n; i++) {
        uint64_t s = hash_of(t, c->total[i].span) & (c->slots_n - 1);
        while (c->slot[s])
            s = (s + 1) & (c->slots_n - 1);
        c->slot[s] = i + 1;
    }
}

static CommTotal *total_of(CommTable *c, const Timeline *t, uint64_t span)
{
    if (2 * c->n >= c->slots_n)
        grow_slots(c, t);
    uint64_t s = hash_of(t, span) & (c->slots_n - 1);
    for (; c->slot[s]; s = (s + 1) & (c->slots_n - 1))
        if (is_same(t, c->total[c->slot[s] - 1].span, span))
            return &c->total[c->slot[s] - 1];
    GROW(c->total, c->n, c->cap);
    c->total[c->n] = (CommTotal){ .span = span, .number = c->n, .transfer_ns = -1 };
    c->slot[s] = ++c->n;
    return &c->total[c->n - 1];
}

/* Of what of it is in the window, in its rank's time. */
static int64_t exposed_in(const ViewData *d, const ViewComm *k, const ViewRank *rank,
                          ViewWindow w)
{
    int64_t begin_ns = d->t->start_ns[k->span], end_ns = begin_ns + d->t->dur_ns[k->span];
    if (begin_ns >= w.from_ns && end_ns <= w.to_ns)
        return k->exposed_ns;
    CoverSum sum =
        cover_window(rank->cover, max_i64(begin_ns, w.from_ns), min_i64(end_ns, w.to_ns));
    int64_t exposed_ns = 0;
    for (uint32_t mask = 0; mask < COVER_MASKS; mask++)
        exposed_ns += mask & COVER_COMPUTE ? 0 : sum.ns[mask];
    return exposed_ns;
}

static void add_comm(CommTable *c, const ViewData *d, const ViewComm *k, const ViewRank *rank,
                     ViewWindow w)
{
    CommTotal *total = total_of(c, d->t, k->span);
    int64_t transfer_ns = view_transfer_ns(d, k->span);
    total->exposed_ns =
        metrics_sum_ns(total->exposed_ns, exposed_in(d, k, rank, w), rank->ranks_n);
    if (transfer_ns < 0)
        return;
    GROW(c->transfer, c->transfers_n, c->transfers_cap);
    c->transfer[c->transfers_n++] = (Transfer){ total->number, transfer_ns };
}

static int by_exposed(const void *a, const void *b)
{
    const CommTotal *x = a, *y = b;
    if (x->exposed_ns != y->exposed_ns)
        return x->exposed_ns < y->exposed_ns ? 1 : -1;
    return (x->span > y->span) - (x->span < y->span);
}

/* Those of a track that are in the window, of rank r: comms are in the order of spans. */
static bool add_track(CommTable *c, const View *v, uint32_t track, uint32_t r, ViewWindow w,
                      uint64_t *looked_at)
{
    const ViewData *d = view_data(v);
    const Track *k = &d->t->tracks[track];
    const ViewComm *comms = d->links.comms;
    int64_t shift_ns = view_shift_ns(v, view_side(v), r);
    ViewWindow mine = { w.from_ns + shift_ns, w.to_ns + shift_ns };
    uint64_t first = view_comms_before(&d->links, k->span_first);
    uint64_t i = view_comms_before(&d->links, track_span_from(d->t, k, mine.from_ns));
    uint64_t end = view_comms_before(&d->links, track_span_from(d->t, k, mine.to_ns));
    while (i > first && comms[i - 1].reach_ns > mine.from_ns)
        i--;
    *looked_at += end - i;
    for (; i < end && *looked_at <= COMMS_LOOKED_AT; i++)
        if (d->t->start_ns[comms[i].span] + d->t->dur_ns[comms[i].span] > mine.from_ns)
            add_comm(c, d, &comms[i], &d->ranks[r], mine);
    return *looked_at <= COMMS_LOOKED_AT;
}

static int64_t median_transfer_ns(const CommTable *c, uint32_t number)
{
    int64_t *ns = mem_zero((size_t)c->transfers_n + 1, sizeof *ns);
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->transfers_n; i++)
        if (c->transfer[i].number == number)
            ns[n++] = c->transfer[i].ns;
    int64_t median_ns = n ? sort_median_ns(ns, n) : -1;
    free(ns);
    return median_ns;
}

static void make_comms(SceneTables *t, const View *v, ViewWindow w)
{
    const ViewData *d = view_data(v);
    CommTable c = { .n = 0 };
    uint64_t looked_at = 0;
    bool all = true;
    for (uint32_t i = 0; i < d->rows_n && d->links.comms_n > 0 && all; i++) {
        const ViewRow *row = &d->rows[i];
        if (row->kind == VIEW_ROW_STREAM && row->lane == 0 && view_counts(v, row->rank))
            all = add_track(&c, v, row->track, row->rank, w, &looked_at);
    }
    if (c.n > 0)
        qsort(c.total, c.n, sizeof *c.total, by_exposed);
    while (all && t->comms_n < c.n && t->comms_n < SCENE_TOP_COMMS &&
           c.total[t->comms_n].exposed_ns > 0) {
        CommTotal *k = &t->comms[t->comms_n];
        *k = c.total[t->comms_n++];
        k->transfer_ns = median_transfer_ns(&c, k->number);
    }
    t->comms_left_out = !all;
    free(c.total);
    free(c.transfer);
    free(c.slot);
}

/* ---- both ---- */

/* Which ranks count, and how far their clocks are ahead. */
typedef struct Counted {
    bool *ranks;
    int64_t *shift_ns;
} Counted;

static Counted counted_ranks(const View *v)
{
    const ViewData *d = view_data(v);
    Counted c = { mem_zero((size_t)d->ranks_n + 1, sizeof *c.ranks),
                  mem_zero((size_t)d->ranks_n + 1, sizeof *c.shift_ns) };
    for (uint32_t r = 0; r < d->ranks_n; r++) {
        c.ranks[r] = view_counts(v, r);
        c.shift_ns[r] = view_shift_ns(v, view_side(v), r);
    }
    return c;
}

static void counted_free(Counted *c)
{
    free(c->ranks);
    free(c->shift_ns);
}

static void make_kernels(Scene *s, const View *v, ViewWindow w)
{
    const ViewData *d = view_data(v);
    KernelSums *sums = &s->sums[view_side(v)];
    if (sums->data != d) {
        kernels_free(sums);
        kernels_open(sums, d);
    }
    Counted c = counted_ranks(v);
    s->tables.top_n = kernels_top(sums, c.ranks, c.shift_ns, w.from_ns, w.to_ns, s->tables.top,
                                  SCENE_TOP_KERNELS);
    counted_free(&c);
}

const SceneTables *scene_tables(Scene *s, const View *v)
{
    SceneTables *t = &s->tables;
    ViewWindow w = view_stats_window(v);
    uint64_t hash = ranks_hash(v);
    if (t->data == view_data(v) && memcmp(&t->window, &w, sizeof w) == 0 &&
        t->ranks_hash == hash)
        return t;
    *t = (SceneTables){ .data = view_data(v), .window = w, .ranks_hash = hash };
    make_kernels(s, v, w);
    make_comms(t, v, w);
    return t;
}

const KernelTimes *scene_kernel_times(Scene *s, const View *v, uint32_t i)
{
    const SceneTables *t = scene_tables(s, v);
    SceneTimes *k = &s->times;
    if (k->data == t->data && memcmp(&k->window, &t->window, sizeof k->window) == 0 &&
        k->ranks_hash == t->ranks_hash && k->name == t->top[i].name)
        return &k->times;
    Counted c = counted_ranks(v);
    *k = (SceneTimes){ t->data, t->window, t->ranks_hash, t->top[i].name,
                       kernels_times(&s->sums[view_side(v)], c.ranks, c.shift_ns,
                                     t->window.from_ns, t->window.to_ns, t->top[i].name) };
    counted_free(&c);
    return &k->times;
}

/*
 * critical.c - walks back from the end, always to what came last.
 */
#include "viz/critical.h"

#include <stdlib.h>

#include "viz/links.h"

const char *const path_kind_names[PATH_KINDS_N] = { "compute", "transfer", "copies", "launch",
                                                    "idle" };

/* STUCK: events in a row that do not bring the walk back in time.  Matches that contradict one
 * another, as of clocks that were moved, would lead it in a circle. */
enum { PIECES_MAX = 1 << 20, STUCK = 4096 };

typedef struct Walk {
    CriticalPath *c;
    const View *v;
    const ViewData *d;
    uint32_t side;
} Walk;

static int64_t shift_of(const Walk *w, uint32_t rank)
{
    return view_shift_ns(w->v, w->side, rank);
}

static int64_t start_of(const Walk *w, ViewPlace p)
{
    return w->d->t->start_ns[p.span] - shift_of(w, w->d->rows[p.row].rank);
}

static int64_t end_of(const Walk *w, ViewPlace p)
{
    return start_of(w, p) + w->d->t->dur_ns[p.span];
}

/* ---- the last event that ends at at_ns or before, of one row, of a rank, of all ---- */

static ViewPlace last_of_row(const Walk *w, uint32_t i, int64_t at_ns)
{
    const ViewRow *row = &w->d->rows[i];
    int64_t rank_ns = at_ns + shift_of(w, row->rank);
    uint64_t k = row->kind == VIEW_ROW_STREAM ? lod_spans_before(&row->lod, rank_ns) : 0;
    for (; k > 0; k--) {
        uint64_t span = lod_span(&row->lod, k - 1);
        if (w->d->t->start_ns[span] + w->d->t->dur_ns[span] <= rank_ns)
            return (ViewPlace){ (uint8_t)w->side, i, span };
    }
    return view_nowhere;
}

static ViewPlace later(const Walk *w, ViewPlace a, ViewPlace b)
{
    if (b.row == NONE_U32)
        return a;
    return a.row == NONE_U32 || end_of(w, b) > end_of(w, a) ? b : a;
}

static ViewPlace last_of_rank(const Walk *w, uint32_t rank, int64_t at_ns)
{
    const ViewRank *r = &w->d->ranks[rank];
    ViewPlace best = view_nowhere;
    for (uint32_t i = 0; i < r->rows_n; i++)
        best = later(w, best, last_of_row(w, r->row_first + i, at_ns));
    return best;
}

static ViewPlace last_of_all(const Walk *w, int64_t at_ns)
{
    ViewPlace best = view_nowhere;
    for (uint32_t r = 0; r < w->d->ranks_n; r++)
        best = later(w, best, last_of_rank(w, r, at_ns));
    return best;
}

/* ---- pieces ---- */

static void add_piece(Walk *w, PathKind kind, bool inferred, uint32_t rank, ViewPlace place,
                      int64_t from_ns, int64_t to_ns)
{
    CriticalPath *c = w->c;
    from_ns = max_i64(from_ns, c->from_ns);
    if (from_ns >= to_ns)
        return;
    GROW(c->pieces, c->n, c->cap);
    c->pieces[c->n++] = (PathPiece){ kind, inferred, rank, place, from_ns, to_ns };
    c->ns[kind] += to_ns - from_ns;
}

static PathKind kind_of(const Walk *w, ViewPlace p)
{
    uint8_t bit = cover_bit(w->d->t->span_class[p.span]);
    return bit == COVER_COMM ? PATH_TRANSFER : bit == COVER_MEMORY ? PATH_MEMORY : PATH_COMPUTE;
}

/* The part of a match that came last, where others waited for it; else the part itself. */
static ViewPlace last_to_come(const Walk *w, ViewPlace p)
{
    const ViewLinks *l = &w->d->links;
    const ViewComm *c = view_comm_of(l, p.span);
    if (!c || c->match == NONE_U32 || l->matches[c->match].last == NONE_U32)
        return p;
    const ViewMatch *m = &l->matches[c->match];
    ViewPlace last = view_place_of(w->d, w->side, l->comms[l->parts[m->first + m->last]].span);
    return last.row == NONE_U32 ? p : last;
}

/* Where the transfer began: behind the wait. */
static int64_t transfer_from(const Walk *w, ViewPlace p)
{
    const ViewComm *c = view_comm_of(&w->d->links, p.span);
    int64_t wait_ns = c && c->wait_ns >= 0 ? c->wait_ns : timeline_wait_ns(w->d->t, p.span);
    return start_of(w, p) + min_i64(wait_ns, w->d->t->dur_ns[p.span]);
}

/* One event of the path, which ended at to_ns at the latest; returns where it begins, which is
 * before to_ns, and in *p the event (perhaps of another rank) whose causes are looked for. */
static int64_t add_event(Walk *w, ViewPlace *p, bool inferred, int64_t to_ns)
{
    PathKind kind = kind_of(w, *p);
    uint32_t rank = w->d->rows[p->row].rank;
    int64_t from_ns = kind == PATH_TRANSFER ? transfer_from(w, *p) : start_of(w, *p);
    add_piece(w, kind, inferred, rank, *p, from_ns, to_ns);
    from_ns = min_i64(from_ns, to_ns);
    ViewPlace last = kind == PATH_TRANSFER ? last_to_come(w, *p) : *p;
    if (last.span != p->span || from_ns == to_ns) { /* on from where the last one came */
        *p = last;
        int64_t came_ns = min_i64(from_ns, start_of(w, last));
        add_piece(w, kind, inferred, w->d->rows[last.row].rank, last, came_ns, from_ns);
        from_ns = came_ns;
    }
    return from_ns;
}

/* ---- the launch of a kernel ---- */

static int64_t launched_ns(const Walk *w, ViewPlace p)
{
    ViewPlace to[8];
    int64_t ns = INT64_MIN;
    if (cover_bit(w->d->t->span_class[p.span]) == COVER_COMM || !w->d->t->correlation)
        return ns;
    uint32_t n = view_links_of(w->v, p, to, ARRAY_N(to));
    for (uint32_t i = 0; i < n; i++)
        if (w->d->t->span_class[to[i].span] == SPAN_LAUNCH)
            ns = max_i64(ns, end_of(w, to[i]));
    return ns;
}

/* From the begin of an event to the end of what held it up; which is returned. */
static ViewPlace find_cause(Walk *w, ViewPlace p, int64_t *at_ns, bool *inferred)
{
    uint32_t rank = w->d->rows[p.row].rank;
    ViewPlace before = last_of_row(w, p.row, *at_ns);
    ViewPlace any = last_of_rank(w, rank, *at_ns);
    *inferred = later(w, before, any).row != before.row;
    before = later(w, before, any);
    int64_t free_ns = before.row == NONE_U32 ? w->c->from_ns : end_of(w, before);
    int64_t launch_ns = launched_ns(w, p);
    if (free_ns < *at_ns) {
        int64_t late_ns = max_i64(free_ns, min_i64(launch_ns, *at_ns));
        add_piece(w, PATH_IDLE, false, rank, view_nowhere, late_ns, *at_ns);
        add_piece(w, PATH_LAUNCH, false, rank, p, free_ns, late_ns);
        *at_ns = free_ns;
    }
    return before;
}

void critical_find(CriticalPath *c, const View *v, int64_t from_ns, int64_t to_ns)
{
    *c = (CriticalPath){ .from_ns = from_ns, .to_ns = to_ns };
    Walk w = { .c = c, .v = v, .side = view_side(v), .d = view_data(v) };
    ViewPlace p = last_of_all(&w, to_ns);
    bool inferred = false;
    int64_t at_ns = to_ns;
    if (p.row != NONE_U32 && end_of(&w, p) < at_ns) {
        add_piece(&w, PATH_IDLE, false, w.d->rows[p.row].rank, view_nowhere, end_of(&w, p),
                  at_ns);
        at_ns = end_of(&w, p);
    }
    for (uint32_t stuck = 0;
         p.row != NONE_U32 && at_ns > from_ns && c->n < PIECES_MAX && stuck < STUCK; stuck++) {
        int64_t before_ns = at_ns;
        at_ns = add_event(&w, &p, inferred, at_ns);
        if (at_ns > from_ns)
            p = find_cause(&w, p, &at_ns, &inferred);
        if (at_ns < before_ns)
            stuck = 0;
    }
    if (at_ns > from_ns)
        add_piece(&w, PATH_IDLE, false, 0, view_nowhere, from_ns, at_ns);
}

void critical_free(CriticalPath *c)
{
    free(c->pieces);
    *c = (CriticalPath){ .n = 0 };
}

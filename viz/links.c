/*
 * links.c - finds the other ends.
 */
#include "viz/links.h"

#include <stdlib.h>

ViewPlace view_place_of(const ViewData *d, uint32_t side, uint64_t span)
{
    if (span >= d->t->spans_n)
        return view_nowhere;
    uint32_t track = d->t->span_track[span], lane = view_lane_of(d, span);
    for (uint32_t i = 0; i < d->rows_n; i++)
        if (d->rows[i].track == track && d->rows[i].lane == lane)
            return (ViewPlace){ (uint8_t)side, i, span };
    return view_nowhere;
}

/* ---- rings ---- */

static uint32_t match_parts(const View *v, ViewPlace place, ViewPlace *to, uint32_t n)
{
    const ViewData *d = v->data[place.side];
    const ViewComm *c = view_comm_of(&d->links, place.span);
    uint32_t used = 0;
    if (!c || c->match == NONE_U32)
        return 0;
    const ViewMatch *m = &d->links.matches[c->match];
    for (uint32_t i = 0; i < m->n && used < n; i++) {
        uint64_t span = d->links.comms[d->links.parts[m->first + i]].span;
        ViewPlace p = span != place.span ? view_place_of(d, place.side, span) : view_nowhere;
        if (p.row != NONE_U32 && !view_is_left_out(v, p.side, d->rows[p.row].rank))
            to[used++] = p;
    }
    return used;
}

/* Spans of the same rank with the same correlation id. */
static uint32_t same_correlation(ViewData *d, ViewPlace place, ViewPlace *to, uint32_t n)
{
    uint64_t ties_n;
    uint32_t used = 0;
    if (!d->t->correlation)
        return 0;
    const ViewTie *ties =
        view_ties(d, d->rows[place.row].rank, d->t->correlation[place.span], &ties_n);
    for (uint64_t i = 0; i < ties_n && used < n; i++) {
        ViewPlace p = ties[i].span != place.span ? view_place_of(d, place.side, ties[i].span)
                                                 : view_nowhere;
        if (p.row != NONE_U32)
            to[used++] = p;
    }
    return used;
}

uint32_t view_links_of(const View *v, ViewPlace place, ViewPlace *to, uint32_t n)
{
    if (place.row == NONE_U32 || place.span == NONE_U64)
        return 0;
    ViewData *d = v->data[place.side];
    uint32_t used = match_parts(v, place, to, n);
    return used ? used : same_correlation(d, place, to, n);
}

ViewPlace view_link_next(const View *v, ViewPlace place, bool back)
{
    enum { RING = 1024 };
    static ViewPlace ring[RING];
    uint32_t n = view_links_of(v, place, ring, RING), at = 0;
    if (n == 0)
        return view_nowhere;
    while (at < n && ring[at].span < place.span)
        at++;
    return back ? ring[(at + n - 1) % n] : ring[at % n];
}

/* ---- launches ---- */

/* Lanes of a host thread are depths: around a span lies the last one before it that is less
 * deep, if it has not ended. */
static uint64_t span_around(const Timeline *t, uint64_t span)
{
    const Track *k = &t->tracks[t->span_track[span]];
    int64_t end_ns = t->start_ns[span] + t->dur_ns[span];
    for (uint64_t i = span; i-- > k->span_first && t->lane[span] > 0;)
        if (t->lane[i] < t->lane[span])
            return t->start_ns[i] + t->dur_ns[i] >= end_ns ? i : NONE_U64;
    return NONE_U64;
}

ViewLaunch view_launch_of(ViewData *d, ViewPlace place)
{
    const Timeline *t = d->t;
    uint64_t n = 0;
    const ViewTie *ties = NULL;
    if (t->correlation && cover_bit(t->span_class[place.span]))
        ties = view_ties(d, d->rows[place.row].rank, t->correlation[place.span], &n);
    for (uint64_t i = 0; i < n; i++)
        if (t->tracks[t->span_track[ties[i].span]].kind == TRACK_HOST)
            return (ViewLaunch){ ties[i].span, span_around(t, ties[i].span) };
    return (ViewLaunch){ NONE_U64, NONE_U64 };
}

/* ---- exposed ---- */

/* Longer exposed first, equal ones by span. */
static bool comes_before(const ViewComm *a, const ViewComm *b)
{
    return a->exposed_ns != b->exposed_ns ? a->exposed_ns > b->exposed_ns : a->span < b->span;
}

/* By track: it is of a rank that is shown. */
static bool *shown_tracks(const View *v, uint32_t side)
{
    const ViewData *d = v->data[side];
    bool *shown = mem_zero((size_t)d->t->tracks_n + 1, sizeof *shown);
    for (uint32_t i = 0; i < d->rows_n; i++)
        shown[d->rows[i].track] = !view_is_left_out(v, side, d->rows[i].rank);
    return shown;
}

ViewPlace view_exposed_next(const View *v, ViewPlace from, bool back)
{
    uint32_t side = view_side(v);
    const ViewData *d = v->data[side];
    const ViewComm *now =
        from.row != NONE_U32 && from.side == side ? view_comm_of(&d->links, from.span) : NULL;
    const ViewComm *best = NULL, *first = NULL;
    bool *shown = shown_tracks(v, side);
    for (uint64_t i = 0; i < d->links.comms_n; i++) {
        const ViewComm *c = &d->links.comms[i];
        if (c->exposed_ns <= 0 || !shown[d->t->span_track[c->span]])
            continue;
        if (!first || (back ? comes_before(first, c) : comes_before(c, first)))
            first = c;
        bool beyond = now && c != now && (back ? comes_before(c, now) : comes_before(now, c));
        if (beyond && (!best || (back ? comes_before(best, c) : comes_before(c, best))))
            best = c;
    }
    free(shown);
    best = best ? best : first;
    return best ? view_place_of(d, side, best->span) : view_nowhere;
}

/* ---- the other side ---- */

const ViewPair *view_pair_of(const View *v, ViewPlace place)
{
    if (place.row == NONE_U32 || !v->diff)
        return NULL;
    uint32_t rank = v->data[place.side]->rows[place.row].rank;
    for (uint32_t i = 0; i < v->diff->ranks_n; i++) {
        const ViewDiffRank *r = &v->diff->ranks[i];
        const ViewPair *pair =
            r->rank[place.side] == rank ? view_diff_pair(r, place.side, place.span) : NULL;
        if (pair && pair->span[1 - place.side] != NONE_U64)
            return pair;
    }
    return NULL;
}

ViewPlace view_twin(const View *v, ViewPlace place)
{
    const ViewPair *pair = view_pair_of(v, place);
    uint32_t other = 1u - place.side;
    return pair ? view_place_of(v->data[other], other, pair->span[other]) : view_nowhere;
}

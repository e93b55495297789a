/*
 * layout.c - panes and rows; heights that fit the window.
 */
#include "viz/layout.h"

#include <stdlib.h>

/* Sizes of the design, pixels at 100 %. */
enum {
    TOP = 36,
    MINIMAP = 46,
    RULER = 22,
    LEGEND = 26,
    NAMES_LOW = 150,
    NAMES_HIGH = 250,
    NAMES_PCT = 18, /* of the width */
    DRAWER = 320,
    HEADING = 18,
    STRIP = 16,
    ROW = 20,
    THREAD = 14,
    ROW_GAP = 3,
    RANK_GAP = 8,
    FIT_LOW = 70,
    FIT_HIGH = 240, /* percent of a row's height */
    STRIP_LOW = 4,
    STRIP_HIGH = STRIP * FIT_HIGH / 100,
    STRIP_APART = 7, /* from this height on, with a gap between them */
};

/* Pixels of the design at the view's scale, whole. */
static Px to_px(const View *v, int32_t pixels)
{
    int32_t n = (pixels * (int32_t)v->scale_pct + 50) / 100;
    return PX(n < 1 ? 1 : n);
}

/* ---- panes ---- */

static void place_panes(Layout *l, const View *v)
{
    Px width = PX(v->width), height = PX(v->height);
    Px top = to_px(v, TOP), legend = to_px(v, LEGEND), ruler = to_px(v, RULER);
    Px names = px_max(to_px(v, NAMES_LOW), width / 100 * NAMES_PCT / PX_ONE * PX_ONE);
    names = px_min(px_min(names, to_px(v, NAMES_HIGH)), width / 3 / PX_ONE * PX_ONE);
    Px drawer = v->drawer && width > to_px(v, 900) ? to_px(v, DRAWER) : 0;
    Px right = width - drawer, minimap = top + to_px(v, MINIMAP);
    l->all = (PxBox){ 0, 0, width, height };
    l->top = (PxBox){ 0, 0, width, top };
    l->corner = (PxBox){ 0, top, names, minimap + ruler };
    l->minimap = (PxBox){ names, top, right, minimap };
    l->ruler = (PxBox){ names, minimap, right, minimap + ruler };
    l->names = (PxBox){ 0, minimap + ruler, names, height - legend };
    l->lanes = (PxBox){ names, minimap + ruler, right, height - legend };
    l->drawer = (PxBox){ right, top, width, height - legend };
    l->legend = (PxBox){ 0, height - legend, width, height };
}

/* ---- rows ---- */

static LayoutRow *add_row(Layout *l, LayoutKind kind, uint32_t side, uint32_t rank,
                          uint32_t row)
{
    GROW(l->rows, l->rows_n, l->rows_cap);
    l->rows[l->rows_n] = (LayoutRow){ .kind = kind,
                                      .side = (uint8_t)side,
                                      .rank = rank,
                                      .real = NONE_U32,
                                      .group = NONE_U32,
                                      .row = row };
    return &l->rows[l->rows_n++];
}

/* rank: of that side; state: of the rank that both are. */
static void add_rank_side(Layout *l, const View *v, uint32_t side, uint32_t rank,
                          const ViewRankState *state)
{
    const ViewData *d = v->data[side];
    bool folded = l->strips || state->folded;
    add_row(l, LAYOUT_STRIP, side, rank, NONE_U32)->alone = folded;
    for (uint32_t i = 0; !folded && i < d->ranks[rank].rows_n; i++) {
        uint32_t row = d->ranks[rank].row_first + i;
        if (d->rows[row].kind != VIEW_ROW_HOST || state->threads)
            add_row(l, LAYOUT_ROW, side, rank, row);
    }
}

static void add_rank(Layout *l, const View *v, uint32_t rank, bool pinned)
{
    uint32_t first = l->rows_n, sim = view_sim_rank(v, rank);
    const ViewRankState *state = &v->ranks[rank];
    if (v->mode != VIEW_SIM)
        add_rank_side(l, v, VIEW_REAL_SIDE, rank, state);
    if (v->mode != VIEW_REAL && sim != NONE_U32 && v->mode != VIEW_DIFF)
        add_rank_side(l, v, VIEW_SIM_SIDE, sim, state);
    if (v->mode == VIEW_DIFF && sim != NONE_U32) {
        add_row(l, LAYOUT_ERROR, VIEW_REAL_SIDE, rank, NONE_U32);
        add_row(l, LAYOUT_DRIFT, VIEW_REAL_SIDE, rank, NONE_U32);
    }
    for (uint32_t i = first; i < l->rows_n; i++) {
        LayoutRow *row = &l->rows[i];
        row->real = rank;
        row->pinned = pinned;
        row->first = i == first;
        row->shift_ns = row->side == VIEW_SIM_SIDE ? view_sim_shift_ns(v, rank)
                                                   : view_shift_ns(v, VIEW_REAL_SIDE, rank);
    }
}

static void add_heading(Layout *l, uint32_t group)
{
    LayoutRow *row = add_row(l, LAYOUT_GROUP, VIEW_REAL_SIDE, NONE_U32, NONE_U32);
    row->group = group;
    row->first = true;
}

static void add_ranks(Layout *l, const View *v, bool pinned)
{
    ViewItems items = view_items(v);
    for (ViewItem item; view_items_next(&items, &item);)
        if (item.rank == NONE_U32 && !pinned)
            add_heading(l, item.group);
        else if (item.rank != NONE_U32 && v->ranks[item.rank].pinned == pinned)
            add_rank(l, v, item.rank, pinned);
}

static void make_ready(Layout *l, View *v)
{
    for (uint32_t i = 0; i < l->rows_n; i++)
        if (l->rows[i].row != NONE_U32) {
            ViewData *d = v->data[l->rows[i].side];
            view_row_ready(d, &d->rows[l->rows[i].row]);
        }
}

/* ---- heights ---- */

static int32_t natural_height(const View *v, const LayoutRow *row)
{
    if (row->kind == LAYOUT_STRIP)
        return STRIP;
    const ViewRow *r = row->kind == LAYOUT_ROW ? &v->data[row->side]->rows[row->row] : NULL;
    if (r && (r->kind == VIEW_ROW_HOST || r->notes))
        return THREAD;
    return ROW;
}

/* Height and the gap behind it, together, at fit percent; of a strip they are fit, which need not
 * be whole pixels. */
static Px row_pitch(const Layout *l, const View *v, uint32_t i, int64_t fit, Px *gap)
{
    bool last = i + 1 == l->rows_n || l->rows[i + 1].first;
    if (l->rows[i].kind == LAYOUT_GROUP) {
        *gap = to_px(v, ROW_GAP);
        return to_px(v, HEADING) + *gap;
    }
    if (l->strips) {
        *gap = fit >= to_px(v, STRIP_APART) + PX(1) ? PX(1) : 0;
        return (Px)fit;
    }
    *gap = to_px(v, last ? RANK_GAP : ROW_GAP);
    int32_t height = natural_height(v, &l->rows[i]);
    return to_px(v, (int32_t)(height * fit / 100)) + *gap;
}

static int64_t total_height(const Layout *l, const View *v, int64_t fit)
{
    int64_t sum = 0;
    Px gap;
    for (uint32_t i = 0; i < l->rows_n; i++)
        sum += row_pitch(l, v, i, fit, &gap);
    return sum;
}

/* The largest fit with which all rows are in sight, within limits. */
static int64_t find_fit(const Layout *l, const View *v)
{
    int64_t low = l->strips ? to_px(v, STRIP_LOW) : FIT_LOW;
    int64_t high = l->strips ? to_px(v, STRIP_HIGH) + PX(1) : FIT_HIGH;
    Px room = l->lanes.y1 - l->lanes.y0 - to_px(v, RANK_GAP);
    while (low < high) {
        int64_t middle = (low + high + 1) / 2;
        if (total_height(l, v, middle) <= room)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static Px place_rows(Layout *l, const View *v, uint32_t first, uint32_t last, Px y, int64_t fit)
{
    for (uint32_t i = first; i < last; i++) {
        Px gap, pitch = row_pitch(l, v, i, fit, &gap);
        l->rows[i].y0 = PX(px_floor(y));
        l->rows[i].y1 = PX(px_floor(y + pitch)) - gap;
        y += pitch;
    }
    return y;
}

void layout_make(Layout *l, View *v)
{
    place_panes(l, v);
    l->window = (ViewWindow){ v->from_ns, v->to_ns };
    l->rows_n = 0;
    l->strips = view_is_strips(v);
    add_ranks(l, v, true);
    uint32_t pinned_n = l->rows_n;
    add_ranks(l, v, false);
    make_ready(l, v);
    int64_t fit = find_fit(l, v);
    l->strip_pitch = l->strips ? (Px)fit : 0;
    Px top = l->lanes.y0 + to_px(v, 3);
    Px pinned_end = pinned_n ? place_rows(l, v, 0, pinned_n, top, fit) : l->lanes.y0;
    l->pinned = (PxBox){ 0, l->lanes.y0, l->lanes.x1, px_min(pinned_end, l->lanes.y1) };
    l->scrolled = (PxBox){ 0, l->pinned.y1, l->lanes.x1, l->lanes.y1 };
    Px start = l->scrolled.y0 + to_px(v, 3);
    l->content = place_rows(l, v, pinned_n, l->rows_n, start, fit) - l->scrolled.y0;
    l->scroll_max = px_max(0, l->content - (l->scrolled.y1 - l->scrolled.y0));
    v->scroll_px = (int32_t)max_i64(0, min_i64(v->scroll_px, l->scroll_max / PX_ONE));
    place_rows(l, v, pinned_n, l->rows_n, start - PX(v->scroll_px), fit);
}

void layout_free(Layout *l)
{
    free(l->rows);
    *l = (Layout){ 0 };
}

/* ---- from places to what is there ---- */

const LayoutRow *layout_row_at(const Layout *l, Px x, Px y)
{
    for (uint32_t i = 0; i < l->rows_n; i++) {
        const LayoutRow *row = &l->rows[i];
        PxBox pane = row->pinned ? l->pinned : l->scrolled;
        if (y >= row->y0 && y < row->y1 && px_box_has(pane, x, y))
            return row;
    }
    return NULL;
}

bool layout_shows(const LayoutRow *row, const View *v, ViewPlace place)
{
    if (row->side != place.side || place.row == NONE_U32)
        return false;
    const ViewRow *r = &v->data[place.side]->rows[place.row];
    return row->kind == LAYOUT_ROW
               ? row->row == place.row
               : row->alone && row->rank == r->rank && r->kind == VIEW_ROW_STREAM;
}

const LayoutRow *layout_row_of(const Layout *l, const View *v, ViewPlace place)
{
    for (uint32_t i = 0; i < l->rows_n; i++)
        if (layout_shows(&l->rows[i], v, place))
            return &l->rows[i];
    return NULL;
}

int64_t layout_ns_at(const Layout *l, const View *v, Px x)
{
    double part = (double)(x - l->lanes.x0) / (double)px_max(1, l->lanes.x1 - l->lanes.x0);
    return view_moved(v->from_ns, part * (double)(v->to_ns - v->from_ns));
}

Px layout_x_of(const Layout *l, const View *v, int64_t ns)
{
    return px_between(l->lanes.x0, l->lanes.x1, ns - v->from_ns, v->to_ns - v->from_ns);
}

PxBox layout_span_box(const Layout *l, const View *v, const LayoutRow *row, ViewPlace place)
{
    const Timeline *t = v->data[place.side]->t;
    int64_t from_ns = t->start_ns[place.span] - row->shift_ns;
    PxBox box = { layout_x_of(l, v, from_ns), row->y0,
                  layout_x_of(l, v, from_ns + t->dur_ns[place.span]), row->y1 };
    box.x1 = px_max(box.x1, box.x0 + PX(2));
    return box;
}

LodWindow layout_window(const Layout *l, const LayoutRow *row)
{
    int32_t width = px_floor(l->lanes.x1 - l->lanes.x0);
    return (LodWindow){ l->window.from_ns + row->shift_ns, l->window.to_ns + row->shift_ns,
                        width > 0 ? (uint32_t)width : 1 };
}

/* The longest span of a lane that touches [from_ns, to_ns]; among few. */
static uint64_t longest_span(const LodRow *lod, int64_t from_ns, int64_t to_ns)
{
    enum { LOOK = 256 };
    uint64_t i = lod_spans_before(lod, from_ns), best = NONE_U64;
    int64_t best_ns = -1;
    i -= i > 0;
    for (uint32_t n = 0; i < lod->n && n < LOOK; i++, n++) {
        uint64_t span = lod_span(lod, i);
        int64_t start_ns = lod->t->start_ns[span], ns = lod->t->dur_ns[span];
        if (start_ns > to_ns)
            break;
        if (start_ns + ns >= from_ns && ns > best_ns) {
            best = span;
            best_ns = ns;
        }
    }
    return best;
}

ViewPlace layout_pick(const Layout *l, const View *v, Px x, Px y)
{
    const LayoutRow *row = x >= l->lanes.x0 && x < l->lanes.x1 ? layout_row_at(l, x, y) : NULL;
    if (!row || row->kind != LAYOUT_ROW)
        return view_nowhere;
    const ViewRow *view_row = &v->data[row->side]->rows[row->row];
    if (view_row->kind == VIEW_ROW_COUNTER)
        return view_nowhere;
    int64_t at_ns = layout_ns_at(l, v, x) + row->shift_ns;
    uint64_t i = lod_span_at(&view_row->lod, at_ns), span = NONE_U64;
    int64_t reach_ns = layout_ns_at(l, v, x + PX(2)) - layout_ns_at(l, v, x);
    if (i != NONE_U64 && view_row->lod.t->dur_ns[lod_span(&view_row->lod, i)] > reach_ns)
        span = lod_span(&view_row->lod, i);
    else
        span = longest_span(&view_row->lod, at_ns - reach_ns, at_ns + reach_ns);
    return span == NONE_U64 ? view_nowhere : (ViewPlace){ row->side, row->row, span };
}

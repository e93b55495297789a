/*
 * scene_over.c - what lies over the rows: links of the event at hand, shading of exposed
 * communication, the list below the omnibox, the help.
 */
#include "viz/links.h"
#include "viz/scene_parts.h"

#include <stdio.h>
#include <string.h>

/* ---- links: outlines of all parts, and a bracket through them ---- */

/* Ends out of sight get an arrow at the edge they are behind; a click on it goes there. */
static void draw_edge_arrow(ScenePen *p, PxBox from, const LayoutRow *row, ViewPlace to)
{
    bool below = row->y0 >= p->l->lanes.y1;
    if (!below && row->y1 > p->l->scrolled.y0)
        return;
    if (p->s->edges_n < SCENE_EDGES && !p->s->still) {
        draw_tip(p->d, SCENE_ITEM_EDGE + p->s->edges_n, NULL);
        p->s->edges[p->s->edges_n++] = to;
    }
    Px x = px_max(p->l->lanes.x0 + PX(8), px_min(from.x0, p->l->lanes.x1 - PX(8)));
    Px edge = below ? p->l->lanes.y1 - PX(2) : p->l->scrolled.y0 + PX(2);
    PxPoint line[] = { { x, below ? edge - draw_px(p->d, 18) : edge + draw_px(p->d, 18) },
                       { x, edge } };
    draw_arrow(p->d, line, 2, PX(3), scene_color(p, THEME_ARROW));
}

/* The same op on the other side, where both are in sight. */
static void draw_twin(ScenePen *p, ViewPlace place)
{
    ViewPlace twin = view_twin(p->v, place);
    const LayoutRow *row = layout_row_of(p->l, p->v, twin);
    if (row)
        draw_outline(p->d, px_box_inset(layout_span_box(p->l, p->v, row, twin), -PX(1)), PX(2),
                     0, scene_color(p, THEME_FOCUS));
}

/* From an event to one it is linked to: down its start, over, into the other's start. */
static void draw_link(ScenePen *p, PxBox a, PxBox b)
{
    Px ay = a.y0 < b.y0 ? a.y1 : a.y0, by = a.y0 < b.y0 ? b.y0 : b.y1;
    PxPoint line[] = {
        { a.x0, ay }, { a.x0, (ay + by) / 2 }, { b.x0, (ay + by) / 2 }, { b.x0, by }
    };
    draw_arrow(p->d, line, 4, PX(1) + PX_ONE / 2, scene_color(p, THEME_ARROW));
}

/* When the last one came: a dashed line from the first part to the last. */
static void draw_bracket(ScenePen *p, ViewPlace place, Px y0, Px y1)
{
    const ViewData *d = p->v->data[place.side];
    const ViewComm *c = view_comm_of(&d->links, place.span);
    const LayoutRow *row = layout_row_of(p->l, p->v, place);
    if (!c || c->match == NONE_U32 || c->wait_ns < 0 || !row)
        return;
    int64_t at_ns = d->t->start_ns[place.span] + c->wait_ns - row->shift_ns;
    Px x = px_round(layout_x_of(p->l, p->v, at_ns)) * PX_ONE + PX_ONE / 2;
    PxPoint line[] = { { x, y0 }, { x, y1 } };
    draw_dashes(p->d, line, 2, PX(2), draw_px(p->d, 4), scene_color(p, THEME_ARROW));
}

static bool is_send(const Timeline *t, uint64_t span)
{
    const Comm *c = timeline_comm_of(t, span);
    return c && strstr(timeline_text(t, c->op), "send") != NULL;
}

static void draw_links(ScenePen *p, ViewPlace place)
{
    enum { LINKS = 256 };
    static ViewPlace to[LINKS];
    const LayoutRow *row = layout_row_of(p->l, p->v, place);
    uint32_t n = row ? view_links_of(p->v, place, to, LINKS) : 0;
    if (n == 0)
        return;
    PxBox mine = layout_span_box(p->l, p->v, row, place);
    Px y0 = mine.y0, y1 = mine.y1;
    const ViewComm *c = view_comm_of(&p->v->data[place.side]->links, place.span);
    const Timeline *t = p->v->data[place.side]->t;
    bool collective = c && c->match != NONE_U32;
    bool pair = collective && t->span_class[place.span] == SPAN_P2P;
    for (uint32_t i = 0; i < n; i++) {
        const LayoutRow *other = layout_row_of(p->l, p->v, to[i]);
        if (!other)
            continue;
        PxBox box = layout_span_box(p->l, p->v, other, to[i]);
        draw_outline(p->d, px_box_inset(box, -PX(1)), PX(2), 0, scene_color(p, THEME_ARROW));
        draw_edge_arrow(p, mine, other, to[i]);
        if (pair && !is_send(t, place.span))
            draw_link(p, box, mine);
        else if (pair || !collective)
            draw_link(p, mine, box);
        y0 = px_min(y0, box.y0);
        y1 = px_max(y1, box.y1);
    }
    if (collective && !pair)
        draw_bracket(p, place, y0, y1);
}

/* ---- shading: exposed communication over all rows of its rank ---- */

typedef struct Shade {
    ScenePen *p;
    PxBox box;
    LodWindow w;
} Shade;

static void shade_piece(void *user, uint64_t span, LodKind kind, int64_t from_ns, int64_t to_ns)
{
    Shade *s = user;
    int64_t window_ns = s->w.to_ns - s->w.from_ns;
    (void)span;
    if (kind != LOD_EXPOSED)
        return;
    PxBox box = s->box;
    box.x0 = px_between(s->box.x0, s->box.x1, from_ns - s->w.from_ns, window_ns);
    box.x1 = px_between(s->box.x0, s->box.x1, to_ns - s->w.from_ns, window_ns);
    draw_rect(s->p->d, box, color_fade(s->p->theme->time[TIME_EXPOSED], 46));
}

static void shade_column(void *user, uint32_t x, const uint32_t share[LOD_N])
{
    Shade *s = user;
    uint32_t alpha = share[LOD_EXPOSED] * 46 / LOD_FULL;
    if (alpha == 0)
        return;
    PxBox box = { s->box.x0 + PX((int32_t)x), s->box.y0, s->box.x0 + PX((int32_t)x + 1),
                  s->box.y1 };
    draw_rect(s->p->d, box, color_fade(s->p->theme->time[TIME_EXPOSED], alpha));
}

static void draw_shading(ScenePen *p)
{
    for (uint32_t i = 0; i < p->l->rows_n; i++) {
        const LayoutRow *row = &p->l->rows[i];
        if (row->kind != LAYOUT_STRIP)
            continue;
        uint32_t last = i;
        while (last + 1 < p->l->rows_n && p->l->rows[last + 1].kind == LAYOUT_ROW)
            last++;
        Shade s = { p,
                    { p->l->lanes.x0, row->y1, p->l->lanes.x1, p->l->rows[last].y1 },
                    layout_window(p->l, row) };
        lod_extract(&p->v->data[row->side]->ranks[row->rank].strip, &s.w,
                    &(LodSink){ &s, shade_piece, shade_column });
    }
}

void scene_over(ScenePen *p)
{
    draw_clip_push(p->d, p->l->lanes);
    if (p->v->overlap_shading)
        draw_shading(p);
    ViewPlace at_hand = p->v->hover.row != NONE_U32 ? p->v->hover : p->v->picked;
    p->s->edges_n = 0;
    draw_links(p, at_hand);
    draw_twin(p, at_hand);
    draw_clip_pop(p->d);
}

/* ---- where the keyboard is ---- */

static void draw_focus(ScenePen *p, PxBox box)
{
    draw_outline(p->d, box, draw_px(p->d, 2), draw_px(p->d, 3), scene_color(p, THEME_FOCUS));
}

/* Its row; a name higher than that is not crossed. */
static PxBox around_name(const ScenePen *p, const LayoutRow *row)
{
    Px pad = draw_px(p->d, 4), least = p->l->strips ? 0 : draw_px(p->d, 16);
    Px more = px_max(PX(1), (least - (row->y1 - row->y0)) / 2);
    return (PxBox){ p->l->names.x0 + pad, row->y0 - more, p->l->names.x1 - pad,
                    row->y1 + more };
}

void scene_focus(ScenePen *p)
{
    const View *v = p->v;
    const Layout *l = p->l;
    if (v->pane == VIEW_PANE_DRAWER)
        draw_focus(p, l->drawer);
    if (v->pane != VIEW_PANE_RANKS)
        return;
    draw_focus(p, l->names);
    draw_clip_push(p->d, l->names);
    ViewItem item = view_item(v, v->pane_at);
    for (uint32_t i = 0; i < l->rows_n; i++)
        if (layout_is_item(&l->rows[i], item))
            draw_focus(p, around_name(p, &l->rows[i]));
    draw_clip_pop(p->d);
}

/* ---- nothing to show ---- */

void scene_empty(ScenePen *p)
{
    const ViewData *d = view_data(p->v);
    bool nothing = d->t->spans_n == 0 && d->t->points_n == 0;
    const char *text[2] = { "This trace has no GPU events.",
                            "Record it with the GPU's activity on, as with torch.profiler's "
                            "ProfilerActivity.CUDA." };
    if (view_has_gpu_work(d))
        return;
    if (nothing) {
        text[0] = "This trace has no events.";
        text[1] = "Was the profiler started, and stopped, around a step?";
    }
    Px line = draw_px(p->d, 22), y = p->l->lanes.y1 - 3 * line;
    if (nothing)
        y = (p->l->lanes.y0 + p->l->lanes.y1) / 2 - line;
    for (int i = 0; i < 2; i++, y += line) {
        PxBox box = { p->l->lanes.x0, y, p->l->lanes.x1, y + line };
        draw_rect(p->d, box, color_fade(scene_color(p, THEME_BACKGROUND), 200));
        draw_text(p->d, box, i ? scene_small() : scene_bold(), ALIGN_MIDDLE,
                  scene_color(p, i ? THEME_DIM : THEME_TEXT), text[i]);
    }
}

/* ---- what is above and below ---- */

void scene_scroll(ScenePen *p)
{
    const Layout *l = p->l;
    Px width = draw_px(p->d, 4), room = l->scrolled.y1 - l->scrolled.y0;
    if (l->scroll_max <= 0 || room <= 4 * width)
        return;
    Px length = px_max(4 * width, (Px)((int64_t)room * room / px_max(1, l->content)));
    Px y = l->scrolled.y0 +
           (Px)((int64_t)(room - length) * PX(p->v->scroll_px) / px_max(1, l->scroll_max));
    PxBox bar = { l->lanes.x1 - width - PX(1), y, l->lanes.x1 - PX(1), y + length };
    draw_round(p->d, bar, width / 2, color_fade(scene_color(p, THEME_TEXT), 130));
}

/* ---- omnibox' list ---- */

static void draw_panel(ScenePen *p, PxBox box)
{
    draw_round(p->d, box, draw_px(p->d, 4), scene_color(p, THEME_RAISED));
    draw_outline(p->d, box, PX(1), draw_px(p->d, 4), scene_color(p, THEME_EDGE));
}

/* "name\tkey": the name on the left, the key on the right. */
static void draw_pair(ScenePen *p, PxBox line, const char *text, ThemeColor color)
{
    char name[96];
    const char *tab = strchr(text, '\t');
    snprintf(name, sizeof name, "%.*s", tab ? (int)(tab - text) : 95, text);
    Px taken = draw_text(p->d, line, scene_body(), ALIGN_LEFT, scene_color(p, color), name);
    line.x0 += taken + draw_px(p->d, 8);
    if (tab)
        draw_text(p->d, line, scene_small(), ALIGN_RIGHT,
                  scene_color(p, color == THEME_TEXT ? THEME_DIM : color), tab + 1);
}

void scene_offers(ScenePen *p)
{
    const View *v = p->v;
    if (!v->omni_open || v->offers_n == 0)
        return;
    Px line = draw_px(p->d, 22), pad = draw_px(p->d, 6);
    Px width = px_min(draw_px(p->d, 420), p->l->all.x1);
    PxBox omni = p->l->top;
    draw_item_box(p->d, SCENE_ITEM_OMNI, &omni);
    PxBox box = px_box(px_max(0, omni.x1 - width), p->l->top.y1 + pad, width,
                       line * (Px)v->offers_n + 2 * pad);
    draw_panel(p, box);
    for (uint32_t i = 0; i < v->offers_n; i++) {
        PxBox row = px_box(box.x0 + pad, box.y0 + pad + line * (Px)i, width - 2 * pad, line);
        draw_tip(p->d, SCENE_ITEM_OFFER + i, NULL);
        draw_round(p->d, row, draw_px(p->d, 3),
                   scene_color(p, i == v->offer_at ? THEME_ACCENT : THEME_RAISED));
        draw_pair(p, px_box_inset(row, draw_px(p->d, 4)), v->offers[i],
                  i == v->offer_at ? THEME_ON_ACCENT : THEME_TEXT);
    }
}

/* ---- help ---- */

/* After the keys; "# " is a heading. */
static const char *const terms[] = {
    "# Words",
    "compute\tkernels that are not communication",
    "communication\tcollectives, sends, receives",
    "overlapped\tcommunication while compute runs",
    "exposed\tcommunication while no compute runs",
    "waiting, dimmed\tfor other ranks, within communication",
    "idle\tneither compute, communication nor a copy",
    "overlap\toverlapped / communication",
    "# Mouse",
    "drag, Shift+drag or right drag\tselects, pans",
    "middle drag\tzooms to",
    "wheel, Ctrl+wheel, Shift+wheel\tscrolls, zooms, pans",
    "# Filter",
    "nccl -float\twords that a name has, has not",
    "dur>1ms bytes>1MiB wait>1ms exposed>50%\t",
    "rank:0-3 stream:comm class:p2p\t",
};

static const char *help_line(const View *v, uint32_t i)
{
    return i < v->help_n ? v->help_lines[i] : terms[i - v->help_n];
}

/* The panel: columns of lines, as many as the picture is wide enough for; what it is too low for
 * is scrolled to. */
typedef struct Help {
    PxBox box, lines;
    Px line, column, pad;
    uint32_t n, rows, shown; /* in a column: all, and those in sight */
} Help;

static Help place_help(const ScenePen *p)
{
    enum { COLUMNS = 3 };
    PxBox all = p->l->all;
    Help h = { .n = p->v->help_n + (uint32_t)ARRAY_N(terms),
               .line = draw_px(p->d, 19),
               .pad = draw_px(p->d, 16) };
    h.column = px_max(PX(1), px_min(draw_px(p->d, 330), all.x1 - 2 * h.pad));
    uint32_t columns = (uint32_t)px_max(1, (all.x1 - h.pad) / (h.column + h.pad));
    columns = columns > COLUMNS ? COLUMNS : columns;
    h.rows = (h.n + columns - 1) / columns;
    Px room = px_max(h.line, all.y1 - 2 * h.pad - 2 * h.line) / h.line;
    h.shown = h.rows < (uint32_t)room ? h.rows : (uint32_t)room;
    Px width = (h.column + h.pad) * (Px)columns + h.pad;
    Px height = h.line * (Px)(h.shown + 2) + 2 * h.pad;
    h.box = px_box((all.x1 - width) / 2, px_max(0, (all.y1 - height) / 2), width, height);
    h.lines = px_box(h.box.x0 + h.pad, h.box.y0 + h.pad + 2 * h.line, width - 2 * h.pad,
                     h.line * (Px)h.shown);
    return h;
}

static void draw_help_title(ScenePen *p, const Help *h)
{
    PxBox title = px_box(h->lines.x0, h->box.y0 + h->pad, h->lines.x1 - h->lines.x0, h->line);
    draw_text(p->d, title, (TextStyle){ TEXT_TITLE, true }, ALIGN_LEFT,
              scene_color(p, THEME_TEXT), "Keys and words");
    if (h->shown == h->rows)
        return;
    draw_text(p->d, title, scene_small(), ALIGN_RIGHT, scene_color(p, THEME_DIM),
              "wheel, PgUp, PgDn: more");
    Px width = draw_px(p->d, 4), room = h->lines.y1 - h->lines.y0;
    Px length = px_max(2 * width, room / (Px)h->rows * (Px)h->shown);
    Px y = h->lines.y0 + (Px)((int64_t)(room - length) * p->v->help_at / (h->rows - h->shown));
    draw_round(p->d, px_box(h->box.x1 - 2 * width, y, width, length), width / 2,
               color_fade(scene_color(p, THEME_TEXT), 130));
}

void scene_help(ScenePen *p)
{
    View *v = p->v;
    if (!v->help)
        return;
    Help h = place_help(p);
    int32_t most = (int32_t)(h.rows - h.shown);
    v->help_at = v->help_at < 0 ? 0 : v->help_at > most ? most : v->help_at;
    draw_rect(p->d, p->l->all, scene_color(p, THEME_SHADE));
    draw_panel(p, h.box);
    draw_help_title(p, &h);
    for (uint32_t i = 0; i < h.n; i++) {
        int32_t at = (int32_t)(i % h.rows) - v->help_at;
        const char *text = help_line(v, i);
        PxBox row = px_box(h.lines.x0 + (h.column + h.pad) * (Px)(i / h.rows),
                           h.lines.y0 + h.line * at, h.column, h.line);
        if (at < 0 || at >= (int32_t)h.shown)
            continue;
        if (text[0] == '#')
            draw_text(p->d, row, scene_bold(), ALIGN_LEFT, scene_color(p, THEME_TEXT),
                      text + 2);
        else
            draw_pair(p, row, text, THEME_TEXT);
    }
}

/*
 * scene_rows.c - the rows one after another: names on the left, lanes on the right, and over
 * them the selection, marks and the mouse's line.
 */
#include "viz/scene_counter.h"
#include "viz/scene_diff.h"
#include "viz/scene_lanes.h"

#include <stdio.h>
#include <string.h>

/* ---- names ---- */

/* "Rank 3", "Ranks 8-15"; of folded simulations "Rank 0 x 64". */
static void rank_title(const ViewRank *r, char *text, size_t cap)
{
    if (r->ranks_n > 1)
        snprintf(text, cap, "Rank %" PRIu32 "  \xc3\x97%" PRIu32, r->rank, r->ranks_n);
    else
        snprintf(text, cap, "Rank %" PRIu32, r->rank);
}

/* "ovl 94%  exp 3%", or without communication "busy 80%". */
static void stats_text(const Metrics *m, char *text, size_t cap)
{
    double span_ns = (double)max_i64(1, m->span_ns);
    if (m->comm_ns > 0)
        snprintf(text, cap, "ovl %.0f%%  exp %.0f%%", metrics_overlap_pct(m),
                 100 * (double)m->exposed_comm_ns / span_ns);
    else
        snprintf(text, cap, "busy %.0f%%", 100 * (double)m->busy_ns / span_ns);
}

static bool fits(ScenePen *p, PxBox box, const char *text)
{
    return font_width(p->d->font, scene_small(), text, strlen(text)) <= box.x1 - box.x0;
}

/* Right-aligned in the box; where only that has room, the exposed share alone.  A number of which
 * something is cut is another one: rather none. */
static void draw_stats(ScenePen *p, PxBox box, const Metrics *m)
{
    char text[96];
    stats_text(m, text, sizeof text);
    const char *shorter = strstr(text, "  exp");
    if (shorter && !fits(p, box, text))
        memmove(text, shorter + 2, strlen(shorter + 2) + 1);
    if (fits(p, box, text))
        draw_text(p->d, box, scene_small(), ALIGN_RIGHT, scene_color(p, THEME_DIM), text);
}

static void draw_rank_name(ScenePen *p, const LayoutRow *row)
{
    const ViewData *d = p->v->data[row->side];
    const ViewRank *r = &d->ranks[row->rank];
    ViewWindow w = view_side_window(p->v, row->side);
    Metrics m = metrics_of_sum(
        cover_window(r->cover, w.from_ns + row->shift_ns, w.to_ns + row->shift_ns));
    char text[96];
    Px pad = draw_px(p->d, 10);
    PxBox box = { pad, row->y0, p->l->names.x1 - pad, row->y1 };
    rank_title(r, text, sizeof text);
    if (p->v->mode == VIEW_SPLIT)
        snprintf(text + strlen(text), sizeof text - strlen(text), "  %s",
                 row->side == VIEW_SIM_SIDE ? "sim" : "real");
    Px height = p->l->strips ? p->l->strip_pitch - PX(1) : row->y1 - row->y0;
    bool small = height < draw_px(p->d, 14);
    box.x0 += draw_text(p->d, box, small ? scene_small() : scene_bold(), ALIGN_LEFT,
                        scene_color(p, THEME_TEXT), text);
    box.x0 += draw_px(p->d, 8);
    draw_stats(p, box, &m);
}

/* Numbers of a rank of the recorded side, or of the simulated one beside it where that alone is
 * shown; false: it has none. */
static bool shown_metrics(const View *v, uint32_t rank, Metrics *m)
{
    bool sim = view_side(v) == VIEW_SIM_SIDE;
    uint32_t r = sim ? view_sim_rank(v, rank) : rank;
    if (r == NONE_U32 || v->ranks[rank].left_out)
        return false;
    ViewWindow w = view_stats_window(v);
    int64_t shift_ns =
        sim ? view_sim_shift_ns(v, rank) : view_shift_ns(v, VIEW_REAL_SIDE, rank);
    *m = metrics_of_sum(
        cover_window(view_data(v)->ranks[r].cover, w.from_ns + shift_ns, w.to_ns + shift_ns));
    return true;
}

/* Numbers of all ranks of a group together. */
static Metrics group_metrics(const View *v, uint32_t group)
{
    const ViewData *d = v->data[VIEW_REAL_SIDE];
    ViewStats s = { .ranks_n = 0 };
    Metrics m;
    for (uint32_t r = 0; r < d->ranks_n; r++)
        if (view_group_of(v, r) == group && shown_metrics(v, r, &m))
            view_stats_add(&s, &d->ranks[r], &m);
    return s.sum;
}

/* Points down while the group is open. */
static void draw_triangle(ScenePen *p, PxBox box, bool closed)
{
    Px x = box.x0 + draw_px(p->d, 4), y = (box.y0 + box.y1) / 2, r = draw_px(p->d, 4);
    PxPoint down[] = { { x - r, y - r / 2 }, { x + r, y - r / 2 }, { x, y + r } };
    PxPoint right[] = { { x - r / 2, y - r }, { x + r, y }, { x - r / 2, y + r } };
    draw_polygon(p->d, closed ? right : down, 3, scene_color(p, THEME_DIM));
}

static void draw_group_name(ScenePen *p, const LayoutRow *row)
{
    const View *v = p->v;
    const ViewData *d = v->data[VIEW_REAL_SIDE];
    const RankGroupKind *k = &v->groups.kinds[v->grouped_by - 1];
    bool none = row->group == d->ranks_n;
    char name[64], ranks[96];
    Px pad = draw_px(p->d, 10);
    PxBox box = { pad, row->y0, p->l->names.x1 - pad, row->y1 };
    Metrics m = group_metrics(v, row->group);
    snprintf(name, sizeof name, "%s%.50s", none ? "no " : "", timeline_text(d->t, k->name));
    draw_triangle(p, box, v->closed[row->group]);
    box.x0 += draw_px(p->d, 14);
    box.x0 += draw_text(p->d, box, scene_bold(), ALIGN_LEFT, scene_color(p, THEME_TEXT), name) +
              draw_px(p->d, 8);
    box.x0 += draw_text(p->d, box, scene_small(), ALIGN_LEFT, scene_color(p, THEME_DIM),
                        view_group_text(v, row->group, ranks, sizeof ranks)) +
              draw_px(p->d, 8);
    draw_stats(p, box, &m);
}

/* And leaves the rest of the box. */
static void draw_at_right(ScenePen *p, const char *text, PxBox *box)
{
    if (!fits(p, *box, text))
        return;
    draw_text(p->d, *box, scene_small(), ALIGN_RIGHT, scene_color(p, THEME_DIM), text);
    box->x1 -= font_width(p->d->font, scene_small(), text, strlen(text)) + draw_px(p->d, 6);
}

/* The largest value, at the right; of what, where there is room beside the name. */
static void draw_counter_size(ScenePen *p, const ViewRow *r, const ViewData *d,
                              const char *name, PxBox *box)
{
    char size[64];
    Px gap = draw_px(p->d, 6);
    scene_counter_text(d, r, true, size, sizeof size);
    Px width = font_width(p->d->font, scene_small(), size, strlen(size)) + gap;
    if (width + font_width(p->d->font, scene_small(), name, strlen(name)) > box->x1 - box->x0)
        scene_counter_text(d, r, false, size, sizeof size);
    draw_at_right(p, size, box);
}

static void draw_row_name(ScenePen *p, const LayoutRow *row)
{
    const ViewData *d = p->v->data[row->side];
    const ViewRow *r = &d->rows[row->row];
    char text[128];
    snprintf(text, sizeof text, "%s", timeline_text(d->t, d->t->tracks[r->track].name));
    if (r->kind == VIEW_ROW_COUNTER)
        text[scene_counter_name(d, r)] = 0;
    bool again = r->lane > 0 && r->notes == d->rows[row->row - 1].notes;
    if (again)
        snprintf(text, sizeof text, "\xc2\xb7");
    else if (r->notes && r->lane > 0)
        snprintf(text, sizeof text, "  annotations");
    PxBox box = { draw_px(p->d, 26), row->y0, p->l->names.x1 - draw_px(p->d, 10), row->y1 };
    if (r->kind == VIEW_ROW_COUNTER && r->counter.max > 0)
        draw_counter_size(p, r, d, text, &box);
    draw_text(p->d, box, scene_small(), ALIGN_LEFT, scene_color(p, THEME_DIM), text);
}

static void draw_diff_name(ScenePen *p, const LayoutRow *row)
{
    const ViewDiffRank *r = p->v->diff ? view_diff_rank(p->v->diff, row->rank) : NULL;
    PxBox box = { draw_px(p->d, 26), row->y0, p->l->names.x1 - draw_px(p->d, 10), row->y1 };
    bool drift = row->kind == LAYOUT_DRIFT;
    char text[48] = "\xc2\xb1"
                    "50 %",
         size[32];
    if (!r)
        return;
    if (drift)
        snprintf(text, sizeof text, "\xc2\xb1%s",
                 view_time_text(size, sizeof size, r->drift_max_ns));
    draw_at_right(p, text, &box);
    draw_text(p->d, box, scene_small(), ALIGN_LEFT, scene_color(p, THEME_DIM),
              drift ? "sim is late by" : "error of sim");
}

/* In strips that are too thin for a name, every so many get one. */
static bool has_name(const ScenePen *p, uint32_t i)
{
    const LayoutRow *row = &p->l->rows[i];
    Px pitch = p->l->strip_pitch, least = draw_px(p->d, 12);
    return !p->l->strips || row->kind == LAYOUT_GROUP || pitch >= least ||
           i % (uint32_t)((least + pitch - 1) / pitch) == 0;
}

static void draw_name(ScenePen *p, uint32_t i)
{
    LayoutRow row = p->l->rows[i];
    Px least = draw_px(p->d, 12);
    if (!has_name(p, i))
        return;
    if (row.y1 - row.y0 < least)
        row.y1 = row.y0 + least;
    if (row.kind == LAYOUT_GROUP)
        draw_group_name(p, &row);
    else if (row.kind == LAYOUT_STRIP)
        draw_rank_name(p, &row);
    else if (row.kind == LAYOUT_ROW)
        draw_row_name(p, &row);
    else
        draw_diff_name(p, &row);
}

/* ---- lanes ---- */

static void draw_row(ScenePen *p, const LayoutRow *row, uint32_t *labels_n)
{
    if (row->kind == LAYOUT_GROUP)
        draw_rect(p->d, (PxBox){ p->l->lanes.x0, row->y0, p->l->lanes.x1, row->y1 },
                  scene_color(p, THEME_PANEL));
    else if (row->kind == LAYOUT_STRIP)
        scene_strip(p, row);
    else if (row->kind == LAYOUT_ROW &&
             p->v->data[row->side]->rows[row->row].kind == VIEW_ROW_COUNTER)
        scene_counter(p, row);
    else if (row->kind == LAYOUT_ROW)
        scene_spans(p, row, labels_n);
    else if (row->kind == LAYOUT_ERROR)
        scene_error(p, row);
    else
        scene_drift(p, row);
}

static void draw_pane(ScenePen *p, PxBox pane, bool pinned, uint32_t *labels_n)
{
    PxBox lanes = px_box_cut(pane, p->l->lanes), names = px_box_cut(pane, p->l->names);
    for (uint32_t i = 0; i < p->l->rows_n; i++) {
        const LayoutRow *row = &p->l->rows[i];
        if (row->pinned != pinned || row->y1 <= pane.y0 || row->y0 >= pane.y1)
            continue;
        draw_clip_push(p->d, names);
        if (row->first && i > 0 && !p->l->strips)
            draw_rect(p->d,
                      (PxBox){ pane.x0, row->y0 - draw_px(p->d, 4), pane.x1,
                               row->y0 - draw_px(p->d, 4) + PX(1) },
                      scene_color(p, THEME_LINE));
        draw_name(p, i);
        draw_clip_pop(p->d);
        draw_clip_push(p->d, lanes);
        if (row->first && i > 0 && !p->l->strips)
            draw_rect(p->d,
                      (PxBox){ lanes.x0, row->y0 - draw_px(p->d, 4), lanes.x1,
                               row->y0 - draw_px(p->d, 4) + PX(1) },
                      scene_color(p, THEME_LINE));
        draw_row(p, row, labels_n);
        draw_clip_pop(p->d);
    }
}

/* ---- over the lanes ---- */

static bool all_count(const View *v)
{
    bool all = true;
    for (uint32_t r = 0; r < view_data(v)->ranks_n; r++)
        all &= view_counts(v, r) || (view_side(v) == VIEW_REAL_SIDE && v->ranks[r].left_out);
    return all;
}

static void draw_selected(ScenePen *p, PxBox box)
{
    if (px_box_is_empty(box))
        return;
    draw_rect(p->d, box, scene_color(p, THEME_SELECTION));
    draw_outline(p->d, box, PX(1), 0, scene_color(p, THEME_FOCUS));
}

/* Over all lanes, or the rows of the ranks whose numbers are shown. */
static void draw_selection(ScenePen *p)
{
    const View *v = p->v;
    const Layout *l = p->l;
    PxBox box = l->lanes;
    if (!v->has_selection)
        return;
    box.x0 = px_max(box.x0, layout_x_of(l, v, v->selection.from_ns));
    box.x1 = px_min(l->lanes.x1, layout_x_of(l, v, v->selection.to_ns));
    if (all_count(v)) {
        draw_selected(p, box);
        return;
    }
    bool within = false;
    for (uint32_t i = 0; i < l->rows_n; i++) {
        const LayoutRow *row = &l->rows[i], *next = i + 1 < l->rows_n ? row + 1 : NULL;
        if (row->first && !within) {
            within = row->rank != NONE_U32 && view_counts(v, row->rank);
            box.y0 = row->y0;
        }
        box.y1 = row->y1;
        bool goes_on = next && next->pinned == row->pinned &&
                       (!next->first || (next->rank != NONE_U32 && view_counts(v, next->rank)));
        if (within && !goes_on) {
            draw_selected(p, px_box_cut(box, row->pinned ? l->pinned : l->scrolled));
            within = false;
        }
    }
}

static void draw_time_line(ScenePen *p, int64_t ns, Color color)
{
    Px x = px_round(layout_x_of(p->l, p->v, ns)) * PX_ONE;
    PxBox box = { x, p->l->ruler.y0, x + PX(1), p->l->lanes.y1 };
    if (ns >= p->v->from_ns && ns < p->v->to_ns)
        draw_rect(p->d, box, color);
}

static void outline_place(ScenePen *p, ViewPlace place, Color color)
{
    for (uint32_t i = 0; place.row != NONE_U32 && i < p->l->rows_n; i++) {
        const LayoutRow *row = &p->l->rows[i];
        if (!layout_shows(row, p->v, place))
            continue;
        PxBox box = layout_span_box(p->l, p->v, row, place);
        draw_clip_push(p->d, row->pinned ? p->l->pinned : p->l->scrolled);
        draw_clip_push(p->d, p->l->lanes);
        draw_outline(p->d, px_box_inset(box, -PX(1)), PX(2), 0, color);
        draw_clip_pop(p->d);
        draw_clip_pop(p->d);
    }
}

void scene_rows(ScenePen *p)
{
    const View *v = p->v;
    uint32_t labels_n = 0;
    draw_rect(p->d, p->l->names, scene_color(p, THEME_PANEL));
    draw_pane(p, p->l->scrolled, false, &labels_n);
    draw_pane(p, p->l->pinned, true, &labels_n);
    if (p->l->pinned.y1 > p->l->pinned.y0)
        draw_rect(p->d, (PxBox){ 0, p->l->pinned.y1 - PX(1), p->l->lanes.x1, p->l->pinned.y1 },
                  scene_color(p, THEME_FOCUS));
    draw_clip_push(p->d,
                   (PxBox){ p->l->lanes.x0, p->l->ruler.y0, p->l->lanes.x1, p->l->lanes.y1 });
    draw_selection(p);
    for (uint32_t i = 0; i < v->marks_n; i++)
        draw_time_line(p, v->marks_ns[i], scene_color(p, THEME_FOCUS));
    if (v->mouse_x >= 0 && px_box_has(p->l->lanes, PX(v->mouse_x), PX(v->mouse_y)))
        draw_time_line(p, layout_ns_at(p->l, v, PX(v->mouse_x)),
                       color_fade(scene_color(p, THEME_TEXT), 90));
    draw_clip_pop(p->d);
    outline_place(p, v->picked, scene_color(p, THEME_FOCUS));
    outline_place(p, v->hover, scene_color(p, THEME_TEXT));
}

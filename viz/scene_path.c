/*
 * scene_path.c - the critical path: its events outlined and joined by a line, all else dimmed.
 */
#include "viz/scene_parts.h"

#include <stdio.h>
#include <string.h>

/* The step that the middle of the window lies in, else the window. */
static ViewWindow path_window(const View *v)
{
    const ViewData *d = view_data(v);
    int64_t middle_ns = v->from_ns + (v->to_ns - v->from_ns) / 2;
    ViewWindow w = { INT64_MAX, INT64_MIN };
    for (uint32_t r = 0; r < d->ranks_n; r++)
        for (uint32_t i = 0; i < d->steps.n; i++) {
            const StepWindow *s = &d->steps.at[i];
            int64_t shift_ns = view_shift_ns(v, view_side(v), r);
            if (s->rank != d->ranks[r].rank || middle_ns < s->from_ns - shift_ns ||
                middle_ns >= s->to_ns - shift_ns)
                continue;
            w.from_ns = min_i64(w.from_ns, s->from_ns - shift_ns);
            w.to_ns = max_i64(w.to_ns, s->to_ns - shift_ns);
        }
    return w.from_ns < w.to_ns ? w : (ViewWindow){ v->from_ns, v->to_ns };
}

static const CriticalPath *find_path(ScenePen *p)
{
    ScenePath *k = &p->s->path;
    ViewWindow w = path_window(p->v);
    const ViewData *d = view_data(p->v);
    if (k->data != d || k->clock_ns != view_clock_ns(p->v) ||
        memcmp(&k->window, &w, sizeof w) != 0) {
        critical_free(&k->path);
        *k = (ScenePath){ .data = d, .clock_ns = view_clock_ns(p->v), .window = w };
        critical_find(&k->path, p->v, w.from_ns, w.to_ns);
    }
    return &k->path;
}

/* The row of a piece; of idle ones the rank's strip. */
static const LayoutRow *row_of(const ScenePen *p, const PathPiece *k)
{
    if (k->place.row != NONE_U32 && !p->l->strips)
        return layout_row_of(p->l, p->v, k->place);
    for (uint32_t i = 0; i < p->l->rows_n; i++) {
        const LayoutRow *row = &p->l->rows[i];
        if (row->kind == LAYOUT_STRIP && row->side == view_side(p->v) && row->rank == k->rank)
            return row;
    }
    return NULL;
}

static TimeClass class_of(const PathPiece *k)
{
    static const uint8_t classes[PATH_KINDS_N] = { TIME_COMPUTE, TIME_EXPOSED, TIME_MEMORY,
                                                   TIME_HOST, TIME_IDLE };
    return (TimeClass)classes[k->kind];
}

/* Narrow ones only above and below: their sides would hide them. */
static void draw_frame(ScenePen *p, PxBox box)
{
    Color color = scene_color(p, THEME_CRITICAL);
    if (box.x1 - box.x0 >= PX(6)) {
        draw_outline(p->d, box, PX(1), 0, color);
        return;
    }
    draw_rect(p->d, (PxBox){ box.x0, box.y0, box.x1, box.y0 + PX(2) }, color);
    draw_rect(p->d, (PxBox){ box.x0, box.y1 - PX(2), box.x1, box.y1 }, color);
}

static void draw_piece(ScenePen *p, const PathPiece *k, const LayoutRow *row, PxPoint *last)
{
    PxBox box = { layout_x_of(p->l, p->v, k->from_ns), row->y0,
                  layout_x_of(p->l, p->v, k->to_ns), row->y1 };
    box.x1 = px_max(box.x1, box.x0 + PX(1));
    Px y = (box.y0 + box.y1) / 2;
    if (last->x != INT32_MIN && last->y != y) {
        PxPoint line[] = { { box.x1, y }, { last->x, last->y } };
        Color color = color_fade(scene_color(p, THEME_CRITICAL), 150);
        if (k->inferred)
            draw_dashes(p->d, line, 2, PX(1), draw_px(p->d, 4), color);
        else
            draw_line(p->d, line, 2, PX(1), color);
    }
    if (k->kind != PATH_IDLE)
        theme_span(p->d, p->theme, class_of(k), box, 255);
    draw_frame(p, box);
    *last = (PxPoint){ box.x0, y };
}

void scene_path(ScenePen *p)
{
    enum { PIECES = 20000 };
    const CriticalPath *c = find_path(p);
    PxPoint last = { INT32_MIN, 0 };
    uint32_t drawn = 0;
    Px x_done = INT32_MAX;
    draw_clip_push(p->d, p->l->lanes);
    draw_rect(p->d, p->l->lanes, scene_color(p, THEME_SHADE));
    for (uint32_t i = 0; i < c->n && drawn < PIECES; i++) {
        const PathPiece *k = &c->pieces[i];
        const LayoutRow *row = row_of(p, k);
        if (!row || k->to_ns < p->v->from_ns || k->from_ns > p->v->to_ns)
            continue;
        Px x0 = layout_x_of(p->l, p->v, k->from_ns), x1 = layout_x_of(p->l, p->v, k->to_ns);
        if (x1 - x0 < PX_ONE / 2 && x_done - x0 < PX_ONE / 2 &&
            last.y == (row->y0 + row->y1) / 2)
            continue; /* many in one pixel look like one */
        x_done = x0;
        draw_piece(p, k, row, &last);
        drawn++;
    }
    draw_clip_pop(p->d);
}

void scene_path_table(ScenePen *p, PxBox box, Px *y)
{
    const CriticalPath *c = find_path(p);
    char text[96], time[32];
    Px line = draw_px(p->d, 18);
    *y += draw_px(p->d, 8);
    snprintf(text, sizeof text, "Critical path (%s)",
             view_time_text(time, sizeof time, c->to_ns - c->from_ns));
    draw_text(p->d, (PxBox){ box.x0, *y, box.x1, *y + line }, scene_bold(), ALIGN_LEFT,
              scene_color(p, THEME_TEXT), text);
    *y += line;
    for (int k = 0; k < PATH_KINDS_N; k++) {
        PxBox row = { box.x0, *y, box.x1, *y + line };
        double pct = 100 * (double)c->ns[k] / (double)max_i64(1, c->to_ns - c->from_ns);
        *y = row.y1;
        draw_text(p->d, row, scene_small(), ALIGN_LEFT, scene_color(p, THEME_DIM),
                  path_kind_names[k]);
        snprintf(text, sizeof text, "%.1f%%", pct);
        draw_text(p->d, row, scene_small(), ALIGN_RIGHT, scene_color(p, THEME_TEXT), text);
        row.x1 -= draw_px(p->d, 56);
        draw_text(p->d, row, scene_small(), ALIGN_RIGHT, scene_color(p, THEME_TEXT),
                  view_time_text(time, sizeof time, c->ns[k]));
    }
    draw_text(p->d, (PxBox){ box.x0, *y, box.x1, *y + line }, scene_small(), ALIGN_LEFT,
              scene_color(p, THEME_DIM), "without it the step is at most that much shorter");
    *y += line;
}

/*
 * plot.c - axes, series, legend.
 */
#include "viz/plot.h"
#include "viz/picture.h"
#include "viz/theme.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Pixels of the design. */
enum { SIDE = 540, LEFT = 108, TOP = 56, GAP = 24, LEGEND_WIDTH = 200, BOTTOM = 64, ROW = 20 };

typedef struct Canvas {
    DrawList *d;
    const Plot *p;
    const Theme *t;
    PxBox area;
} Canvas;

static const TextStyle small = { 12, false }, body = { TEXT_TITLE, false },
                       heading = { TEXT_HUGE, true };

/* ---- ticks ---- */

double plot_tick_below(double x)
{
    double ten = pow(10, floor(log10(x)));
    static const double steps[] = { 10, 5, 2, 1 };
    for (size_t i = 0; i < ARRAY_N(steps); i++)
        if (steps[i] * ten <= x)
            return steps[i] * ten;
    return ten;
}

double plot_tick_after(double tick)
{
    double lead = tick / pow(10, floor(log10(tick * 1.001)));
    return tick * (lead > 1.5 && lead < 3 ? 2.5 : 2);
}

/* ---- places ---- */

static Px place(const PlotAxis *a, double at, Px from, Px to)
{
    double part = log(at / a->low) / log(a->high / a->low);
    double far = 16 * ((double)to - from);
    return from + (Px)lround(fmax(-fabs(far), fmin(fabs(far), part * ((double)to - from))));
}

static PxPoint place_of(const Canvas *c, const PlotPoint *point)
{
    return (PxPoint){ place(&c->p->x, point->x, c->area.x0, c->area.x1),
                      place(&c->p->y, point->y, c->area.y1, c->area.y0) };
}

static Px half_px(const Canvas *c, int32_t halves)
{
    return draw_px(c->d, halves) / 2;
}

/* ---- axes ---- */

static Px width_of(const Canvas *c, const char *label)
{
    return font_width(c->d->font, small, label, strlen(label));
}

/* A label that would touch the one before is left out; its line tells where it is. */
static void draw_x_axis(const Canvas *c)
{
    const PlotAxis *x = &c->p->x;
    Px one = draw_px(c->d, 1), free_from = 0;
    for (uint32_t i = 0; i < x->ticks_n; i++) {
        Px at = place(x, x->ticks[i].at, c->area.x0, c->area.x1);
        Px width = width_of(c, x->ticks[i].label), left = at - width / 2;
        if (at < c->area.x0 || at > c->area.x1)
            continue;
        draw_rect(c->d, px_box(PX(px_round(at)), c->area.y0, one, c->area.y1 - c->area.y0),
                  c->t->color[THEME_LINE]);
        if (left < free_from)
            continue;
        draw_text(c->d, px_box(left, c->area.y1, width, draw_px(c->d, 26)), small, ALIGN_MIDDLE,
                  c->t->color[THEME_DIM], x->ticks[i].label);
        free_from = left + width + draw_px(c->d, 6);
    }
    draw_text(c->d,
              px_box(c->area.x0, c->area.y1 + draw_px(c->d, 26), c->area.x1 - c->area.x0,
                     draw_px(c->d, 28)),
              body, ALIGN_MIDDLE, c->t->color[THEME_TEXT], x->title);
}

static void draw_y_axis(const Canvas *c)
{
    const PlotAxis *y = &c->p->y;
    Px high = draw_px(c->d, 10), one = draw_px(c->d, 1);
    for (uint32_t i = 0; i < y->ticks_n; i++) {
        Px at = place(y, y->ticks[i].at, c->area.y1, c->area.y0);
        if (at < c->area.y0 || at > c->area.y1)
            continue;
        draw_rect(c->d, px_box(c->area.x0, PX(px_round(at)), c->area.x1 - c->area.x0, one),
                  c->t->color[THEME_LINE]);
        draw_text(c->d, (PxBox){ 0, at - high, c->area.x0 - draw_px(c->d, 8), at + high },
                  small, ALIGN_RIGHT, c->t->color[THEME_DIM], y->ticks[i].label);
    }
    draw_text_turned(c->d,
                     (PxBox){ draw_px(c->d, 8), c->area.y0, draw_px(c->d, 32), c->area.y1 },
                     body, c->t->color[THEME_TEXT], y->title);
}

/* ---- series ---- */

static void draw_mark(const Canvas *c, PxPoint at, const PlotSeries *s, Px r)
{
    PxPoint triangle[] = { { at.x, at.y - r * 6 / 5 },
                           { at.x + r * 11 / 10, at.y + r * 4 / 5 },
                           { at.x - r * 11 / 10, at.y + r * 4 / 5 } };
    PxPoint diamond[] = { { at.x, at.y - r * 13 / 10 },
                          { at.x + r * 13 / 10, at.y },
                          { at.x, at.y + r * 13 / 10 },
                          { at.x - r * 13 / 10, at.y } };
    Px side = r * 9 / 10;
    switch (s->mark) {
    case MARK_CIRCLE:
        draw_circle(c->d, at, r, s->color);
        break;
    case MARK_SQUARE:
        draw_rect(c->d, px_box(at.x - side, at.y - side, 2 * side, 2 * side), s->color);
        break;
    case MARK_TRIANGLE:
        draw_polygon(c->d, triangle, ARRAY_N(triangle), s->color);
        break;
    case MARK_DIAMOND:
        draw_polygon(c->d, diamond, ARRAY_N(diamond), s->color);
        break;
    case MARK_RING:
        draw_circle(c->d, at, r, c->t->color[THEME_BACKGROUND]);
        draw_outline(c->d, px_box(at.x - r, at.y - r, 2 * r, 2 * r), draw_px(c->d, 2), r,
                     s->color);
        break;
    case MARK_NONE:
    case PLOT_MARKS_N:
        break;
    }
}

static void draw_series_line(const Canvas *c, const PlotSeries *s)
{
    if (s->line_px == 0 || s->points_n < 2)
        return;
    PxPoint *points = mem_zero(s->points_n, sizeof *points);
    for (uint32_t i = 0; i < s->points_n; i++)
        points[i] = place_of(c, &s->points[i]);
    draw_dashes(c->d, points, s->points_n, half_px(c, s->line_px),
                s->dash_px ? draw_px(c->d, s->dash_px) : 0, s->color);
    free(points);
}

/* Where a line that falls leaves room; unless the last label is there, which its box then is. */
static void draw_point_label(const Canvas *c, PxPoint at, const char *label, PxBox *last)
{
    Px wide = width_of(c, label), away = draw_px(c->d, 4), high = draw_px(c->d, 18);
    PxBox box = px_box(at.x - away - wide, at.y + away, wide, high);
    if (box.x0 < last->x1 && box.x1 > last->x0 && box.y0 < last->y1 && box.y1 > last->y0)
        return;
    draw_text(c->d, box, small, ALIGN_RIGHT, c->t->color[THEME_TEXT], label);
    *last = box;
}

static void draw_series(const Canvas *c, const PlotSeries *s)
{
    draw_clip_push(c->d, c->area);
    draw_series_line(c, s);
    draw_clip_pop(c->d);
    PxBox last = { 0 };
    for (uint32_t i = 0; i < s->points_n; i++) {
        PxPoint at = place_of(c, &s->points[i]);
        draw_tip(c->d, NONE_U32, s->points[i].tip);
        draw_mark(c, at, s, half_px(c, s->mark_px));
        draw_tip(c->d, NONE_U32, NULL);
        if (s->points[i].label)
            draw_point_label(c, at, s->points[i].label, &last);
    }
}

static void draw_legend(const Canvas *c)
{
    Px y = c->area.y0, row = draw_px(c->d, ROW), x = c->area.x1 + draw_px(c->d, GAP);
    Px width = draw_px(c->d, 20), line = draw_px(c->d, 10);
    for (uint32_t i = 0; i < c->p->series_n; i++) {
        const PlotSeries *s = &c->p->series[i];
        if (!s->label)
            continue;
        PxPoint ends[] = { { x, y + row / 2 }, { x + width, y + row / 2 } };
        if (s->line_px)
            draw_dashes(c->d, ends, 2, half_px(c, s->line_px),
                        s->dash_px ? draw_px(c->d, s->dash_px) : 0, s->color);
        draw_mark(c, (PxPoint){ x + line, y + row / 2 }, s, draw_px(c->d, 5));
        draw_text(c->d, (PxBox){ x + width + draw_px(c->d, 8), y, PX(c->d->width), y + row },
                  small, ALIGN_LEFT, c->t->color[THEME_TEXT], s->label);
        y += row;
    }
}

static bool has_legend(const Plot *p)
{
    for (uint32_t i = 0; i < p->series_n; i++)
        if (p->series[i].label)
            return true;
    return false;
}

void plot_draw(DrawList *d, Font *font, const Plot *p)
{
    Canvas c = { .d = d, .p = p, .t = theme_light() };
    d->font = font;
    Px right = draw_px(d, LEFT + SIDE + GAP + (has_legend(p) ? LEGEND_WIDTH : GAP));
    Px left = draw_px(d, LEFT), top = draw_px(d, TOP), side = draw_px(d, SIDE);
    draw_begin(d, font, px_ceil(right), px_ceil(top + side + draw_px(d, BOTTOM)),
               c.t->color[THEME_BACKGROUND]);
    c.area = px_box(left, top, side, side);
    draw_text(d, (PxBox){ left, 0, right, top }, heading, ALIGN_LEFT, c.t->color[THEME_TEXT],
              p->title);
    draw_x_axis(&c);
    draw_y_axis(&c);
    draw_outline(d, c.area, draw_px(d, 1), 0, c.t->color[THEME_EDGE]);
    for (uint32_t i = 0; i < p->series_n; i++)
        draw_series(&c, &p->series[i]);
    draw_legend(&c);
}

bool plot_write(const Plot *p, const char *path, Err *err)
{
    Font font;
    DrawList d = { 0 };
    font_open(&font, 100);
    plot_draw(&d, &font, p);
    bool ok = picture_write(&d, path, err);
    draw_free(&d);
    font_free(&font);
    return ok;
}

/*
 * raster.c - frames, and items to pixels: boxes by hand, everything else by viz/fill.h.
 */
#include "viz/raster.h"
#include "viz/raster_parts.h"

#include <stdlib.h>
#include <string.h>

/* ---- frames ---- */

bool frame_size_check(int64_t width, int64_t height, Err *err)
{
    if (width < 1 || height < 1 || width > FRAME_SIDE_MAX || height > FRAME_SIDE_MAX ||
        width * height > FRAME_PIXELS_MAX)
        return err_set(
            err,
            "a picture of %" PRId64 "x%" PRId64
            " pixels is not possible; 1x1 to 16384x4096, at most %d pixels a side and "
            "%d million in all",
            width, height, FRAME_SIDE_MAX, FRAME_PIXELS_MAX / 1000000);
    return true;
}

bool frame_init(Frame *f, int64_t width, int64_t height, Err *err)
{
    *f = (Frame){ 0 };
    if (!frame_size_check(width, height, err))
        return false;
    f->width = (int32_t)width;
    f->height = (int32_t)height;
    f->pixels = mem_zero((size_t)(width * height), sizeof *f->pixels);
    return true;
}

void frame_free(Frame *f)
{
    free(f->pixels);
    *f = (Frame){ 0 };
}

/* ---- spans of a row and of a column ---- */

static void span(uint32_t *to, int32_t n, Paint paint)
{
    if (paint.rest == 0) {
        uint32_t opaque = raster_lay(0, paint);
        for (int32_t i = 0; i < n; i++)
            to[i] = opaque;
    } else if (paint.rest < 255) {
        for (int32_t i = 0; i < n; i++)
            to[i] = raster_lay(to[i], paint);
    }
}

static void column(const Raster *r, int32_t x, int32_t y0, int32_t y1, Paint paint)
{
    uint32_t *to = raster_row(r, y0) + x;
    for (int32_t y = y0; y < y1; y++, to += r->frame->width)
        *to = raster_lay(*to, paint);
}

/* ---- boxes ---- */

/* A box cut to pixels: whole ones from x0 to x1, and what is covered of those beside. */
typedef struct Cut {
    int32_t x0, x1;       /* all pixels touched */
    uint32_t first, last; /* coverage of the pixels x0 and x1 - 1, 0 ... 256 */
} Cut;

static Cut cut(Px from, Px to, int32_t low, int32_t high)
{
    Px a = px_max(from, PX(low)), b = px_min(to, PX(high));
    Cut c = { px_floor(a), px_ceil(b), 0, 0 };
    if (a >= b)
        return (Cut){ low, low, 0, 0 };
    c.first = (uint32_t)(px_min(b, PX(c.x0 + 1)) - a);
    c.last = c.x1 - 1 == c.x0 ? c.first : (uint32_t)(b - PX(c.x1 - 1));
    return c;
}

static uint32_t cover_product(uint32_t a, uint32_t b)
{
    return (a * b + FILL_FULL / 2) / FILL_FULL;
}

/* Rows y0 ... y1 - 1, which are covered alike. */
static void box_band(const Raster *r, const Cut *x, int32_t y0, int32_t y1, uint32_t cover,
                     Color color)
{
    uint32_t alpha = color_alpha(color);
    Paint middle = raster_paint(color, raster_alpha(alpha, cover));
    Paint first = raster_paint(color, raster_alpha(alpha, cover_product(x->first, cover)));
    Paint last = raster_paint(color, raster_alpha(alpha, cover_product(x->last, cover)));
    int32_t from = x->x0 + (x->first < FILL_FULL);
    int32_t to = x->x1 - (x->last < FILL_FULL && x->x1 > from);
    if (from > x->x0)
        column(r, x->x0, y0, y1, first);
    if (to < x->x1)
        column(r, to, y0, y1, last);
    for (int32_t y = y0; y < y1 && from < to; y++)
        span(raster_row(r, y) + from, to - from, middle);
}

/* ---- hatch ---- */

/* The area of the unit square where x + y < s. */
static int64_t corner_area(int64_t s, int64_t one)
{
    if (s <= 0)
        return 0;
    if (s >= 2 * one)
        return one * one;
    return s <= one ? s * s / 2 : one * one - (2 * one - s) * (2 * one - s) / 2;
}

/*
 * Stripes run up to the right and take three eighths of a period: along x + y they lie at
 * k * period ... k * period + stripe.
 */
uint32_t raster_hatch_cover(int32_t hatch_px, int32_t x, int32_t y)
{
    int64_t period = PX(hatch_px), stripe = period * 3 / 8, one = PX_ONE, area = 0;
    int64_t at = ((int64_t)x + y) % hatch_px * one;
    if (at < 0)
        at += period;
    /* The stripe that begins at or left of the pixel, and the next. */
    for (int64_t begin = 0; begin <= period; begin += period)
        area += corner_area(begin + stripe - at, one) - corner_area(begin - at, one);
    return (uint32_t)((area + one / 2) / one);
}

/* A hatch with one coverage: its ground, and its stripes over one period of x + y. */
typedef struct Stripes {
    Paint ground, line[RASTER_HATCH_MAX];
    uint32_t pixel[RASTER_HATCH_MAX]; /* what they make, where nothing shines through */
    bool opaque;
} Stripes;

static void set_stripes(Stripes *s, const Raster *r, const DrawItem *item, uint32_t cover)
{
    uint32_t ground = raster_alpha(color_alpha(item->color), cover);
    uint32_t alpha = color_alpha(item->color2);
    s->ground = raster_paint(item->color, ground);
    s->opaque = ground == 255;
    for (int32_t i = 0; i < r->list->hatch_px; i++) {
        uint32_t part = cover_product(r->hatch_cover[i], cover);
        s->line[i] = raster_paint(item->color2, raster_alpha(alpha, part));
        s->pixel[i] = raster_lay(raster_lay(0, s->ground), s->line[i]);
    }
}

/* Pixels x0 ... x1 - 1 of the rows y0 ... y1 - 1. */
static void lay_stripes(const Raster *r, const Stripes *s, int32_t x0, int32_t x1, int32_t y0,
                        int32_t y1)
{
    int32_t period = r->list->hatch_px;
    for (int32_t y = y0; y < y1; y++) {
        uint32_t *row = raster_row(r, y);
        int32_t phase = (x0 + y) % period;
        for (int32_t x = x0; x < x1; x++) {
            row[x] = s->opaque ? s->pixel[phase]
                               : raster_lay(raster_lay(row[x], s->ground), s->line[phase]);
            phase = phase + 1 == period ? 0 : phase + 1;
        }
    }
}

/* Rows y0 ... y1 - 1, which are covered alike: the first column, the last, those between. */
static void hatch_band(const Raster *r, const Cut *x, int32_t y0, int32_t y1, uint32_t cover,
                       const DrawItem *item)
{
    Stripes s;
    int32_t from = x->x0 + (x->first < FILL_FULL);
    int32_t to = x->x1 - (x->last < FILL_FULL && x->x1 > from);
    if (from > x->x0) {
        set_stripes(&s, r, item, cover_product(x->first, cover));
        lay_stripes(r, &s, x->x0, from, y0, y1);
    }
    if (to < x->x1) {
        set_stripes(&s, r, item, cover_product(x->last, cover));
        lay_stripes(r, &s, to, x->x1, y0, y1);
    }
    if (from < to) {
        set_stripes(&s, r, item, cover);
        lay_stripes(r, &s, from, to, y0, y1);
    }
}

/* In bands of rows that are covered alike: the first, the last, and those between. */
static void draw_box(const Raster *r, const DrawItem *item)
{
    Cut x = cut(item->box.x0, item->box.x1, r->clip.x0, r->clip.x1);
    Cut y = cut(item->box.y0, item->box.y1, r->clip.y0, r->clip.y1);
    if (x.x0 == x.x1)
        return;
    for (int32_t from = y.x0, to; from < y.x1; from = to) {
        uint32_t cover = from == y.x0 ? y.first : from == y.x1 - 1 ? y.last : FILL_FULL;
        to = cover < FILL_FULL ? from + 1 : y.x1 - (y.last < FILL_FULL);
        if (item->kind == DRAW_HATCH)
            hatch_band(r, &x, from, to, cover, item);
        else
            box_band(r, &x, from, to, cover, item->color);
    }
}

/* ---- what raster_shapes.c fills ---- */

static void shape_row(void *context, int32_t x, int32_t y, int32_t n, const uint16_t *cover)
{
    const Raster *r = context;
    uint32_t *row = raster_row(r, y) + x, alpha = color_alpha(r->color);
    for (int32_t i = 0; i < n; i++)
        if (cover[i])
            row[i] = raster_blend(row[i], r->color, raster_alpha(alpha, cover[i]));
}

static void draw_shape(Raster *r, const DrawItem *item)
{
    PxBox b = item->box;
    int32_t x0 = px_floor(b.x0), y0 = px_floor(b.y0), x1 = px_ceil(b.x1), y1 = px_ceil(b.y1);
    r->color = item->color;
    fill_begin(&r->fill, x0 > r->clip.x0 ? x0 : r->clip.x0, y0 > r->clip.y0 ? y0 : r->clip.y0,
               x1 < r->clip.x1 ? x1 : r->clip.x1, y1 < r->clip.y1 ? y1 : r->clip.y1);
    raster_shape(&r->fill, r->list, item);
    fill_rows(&r->fill, shape_row, r);
}

static void draw_item(Raster *r, const DrawItem *item)
{
    if ((item->kind == DRAW_RECT && item->radius == 0) || item->kind == DRAW_HATCH)
        draw_box(r, item);
    else if (item->kind == DRAW_TEXT)
        raster_text(r, item);
    else
        draw_shape(r, item);
}

void raster_draw(Frame *f, const DrawList *d)
{
    ASSERT(f->width == d->width && f->height == d->height);
    Raster r = { .frame = f, .list = d };
    size_t pixels_n = (size_t)f->width * (size_t)f->height;
    ASSERT(d->hatch_px >= 1 && d->hatch_px <= RASTER_HATCH_MAX);
    for (int32_t i = 0; i < d->hatch_px; i++)
        r.hatch_cover[i] = raster_hatch_cover(d->hatch_px, i, 0);
    span(f->pixels, (int32_t)pixels_n, raster_paint(d->background, 255));
    for (uint32_t i = 0; i < d->items_n; i++) {
        const DrawItem *item = &d->items[i];
        r.clip = d->clips[item->clip];
        draw_item(&r, item);
    }
    fill_free(&r.fill);
}

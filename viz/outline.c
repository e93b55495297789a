/*
 * outline.c - curves to edges, and heights that fall on pixels.
 */
#include "viz/outline.h"

/* A curve becomes this many lines; at 64 pixels an em they deviate by less than 1/20 pixel. */
enum { STEPS_BITS = 3, STEPS = 1 << STEPS_BITS };

typedef struct Pen {
    Fill *fill; /* NULL: only bounds are wanted */
    const OutlineFont *font;
    Px size, x;
    PxPoint at;
    Px low_x, low_y, high_x, high_y;
} Pen;

static Px scale(int64_t units, Px size, int32_t units_per_em)
{
    int64_t twice = 2 * units * size + (units >= 0 ? units_per_em : -units_per_em);
    return (Px)(twice / (2 * units_per_em));
}

static Px whole(Px x)
{
    return PX(px_round(x));
}

/*
 * Between the lines heights are stretched evenly; beyond a line they keep their distance,
 * less the overshoot, which at these sizes would only blur.
 */
Px outline_height(const OutlineFont *font, Px size, int32_t y)
{
    int32_t em = font->units_per_em;
    Px exact = scale(y, size, em);
    if (font->x_height == 0 || font->cap_height <= font->x_height)
        return exact;
    Px x_line = whole(scale(font->x_height, size, em));
    Px cap_line = whole(scale(font->cap_height, size, em));
    if (y < -font->overshoot)
        return exact + scale(font->overshoot, size, em);
    if (y <= 0)
        return 0;
    if (y < font->x_height)
        return (Px)((int64_t)x_line * y / font->x_height);
    if (y <= font->x_height + font->overshoot)
        return x_line;
    if (y < font->cap_height)
        return (Px)(x_line + (int64_t)(cap_line - x_line) *
                                 (y - font->x_height - font->overshoot) /
                                 (font->cap_height - font->x_height - font->overshoot));
    if (y <= font->cap_height + font->overshoot)
        return cap_line;
    return cap_line + scale(y - font->cap_height - font->overshoot, size, em);
}

static void touch(Pen *p, PxPoint to)
{
    p->low_x = px_min(p->low_x, to.x);
    p->low_y = px_min(p->low_y, to.y);
    p->high_x = px_max(p->high_x, to.x);
    p->high_y = px_max(p->high_y, to.y);
}

/* Curves are cut in units times this, so that nothing is lost before the fitting. */
enum { FINE_BITS = 4, FINE = 1 << FINE_BITS };

typedef struct FinePoint {
    int64_t x, y;
} FinePoint;

static void line_to(Pen *p, FinePoint fine, bool first)
{
    int32_t half = 1 << (FINE_BITS - 1);
    PxPoint to = { p->x + scale(fine.x, p->size, p->font->units_per_em << FINE_BITS),
                   -outline_height(p->font, p->size, (int32_t)((fine.y + half) >> FINE_BITS)) };
    touch(p, to);
    if (!first && p->fill)
        fill_edge(p->fill, p->at, to);
    p->at = to;
}

/* A cubic curve; a quadratic one is cubic as well. */
static void curve_to(Pen *p, FinePoint a, FinePoint b, FinePoint c, FinePoint d)
{
    for (int64_t t = 1; t <= STEPS; t++) {
        int64_t s = STEPS - t, half = (int64_t)1 << (3 * STEPS_BITS - 1);
        int64_t wa = s * s * s, wb = 3 * s * s * t, wc = 3 * s * t * t, wd = t * t * t;
        FinePoint at = { (wa * a.x + wb * b.x + wc * c.x + wd * d.x + half) >> (3 * STEPS_BITS),
                         (wa * a.y + wb * b.y + wc * c.y + wd * d.y + half) >>
                             (3 * STEPS_BITS) };
        line_to(p, at, false);
    }
}

static FinePoint fine(OutlinePoint o)
{
    return (FinePoint){ (int64_t)o.x * FINE, (int64_t)o.y * FINE };
}

static FinePoint middle(FinePoint a, FinePoint b)
{
    return (FinePoint){ (a.x + b.x) / 2, (a.y + b.y) / 2 };
}

static FinePoint third(FinePoint near, FinePoint far)
{
    return (FinePoint){ (near.x + 2 * far.x) / 3, (near.y + 2 * far.y) / 3 };
}

/* One contour of n points, from a point on it: a TrueType one may have to make that up. */
static void contour(Pen *p, const OutlinePoint *points, uint32_t n)
{
    uint32_t start = 0;
    while (start < n && points[start].tag != OUTLINE_ON)
        start++;
    bool made_up = start == n;
    if (made_up)
        start = n - 1;
    FinePoint first =
        made_up ? middle(fine(points[0]), fine(points[n - 1])) : fine(points[start]);
    FinePoint from = first, to;
    line_to(p, first, true);
    for (uint32_t i = 1, last = made_up ? n : n - 1; i <= last; from = to) {
        OutlinePoint here = points[(start + i) % n], next = points[(start + i + 1) % n];
        if (here.tag == OUTLINE_ON) {
            to = fine(here);
            line_to(p, to, false);
            i++;
        } else if (here.tag == OUTLINE_CUBIC) {
            to = i + 2 <= last ? fine(points[(start + i + 2) % n]) : first;
            curve_to(p, from, fine(here), fine(next), to);
            i += 3;
        } else {
            to = i == last                ? first
                 : next.tag == OUTLINE_ON ? fine(next)
                                          : middle(fine(here), fine(next));
            curve_to(p, from, third(from, fine(here)), third(to, fine(here)), to);
            i += i < last && next.tag == OUTLINE_ON ? 2 : 1;
        }
    }
    line_to(p, first, false);
}

static void walk(Pen *p, const Outline *o)
{
    for (uint32_t i = 0, n; i < o->points_n; i += n) {
        n = 1;
        while (i + n < o->points_n && !o->points[i + n - 1].last)
            n++;
        contour(p, &o->points[i], n);
    }
}

void outline_fill(Fill *f, const Outline *o, const OutlineFont *font, Px size, Px x)
{
    Pen p = { .fill = f, .font = font, .size = size, .x = x };
    walk(&p, o);
}

OutlineBounds outline_bounds(const Outline *o, const OutlineFont *font, Px size, Px x)
{
    Pen p = { .font = font, .size = size, .x = x };
    p.low_x = p.low_y = PX_FAR;
    p.high_x = p.high_y = -PX_FAR;
    walk(&p, o);
    if (p.low_x >= p.high_x || p.low_y >= p.high_y)
        return (OutlineBounds){ 0, 0, 0, 0 };
    return (OutlineBounds){ px_floor(p.low_x), px_floor(p.low_y), px_ceil(p.high_x),
                            px_ceil(p.high_y) };
}

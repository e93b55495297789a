/*
 * raster_shapes.c - lines, round corners and chevrons as polygons.
 *
 * A line is one quad a segment, longer by half its width at both ends: where segments meet
 * at a right angle, as in a step line, the corner is whole.
 */
#include "viz/raster_parts.h"

enum { ARC_STEPS = 6, BOX_POINTS_MAX = 4 * (ARC_STEPS + 1) };

/* cos(k * 15 degrees) * 1024 */
static const int32_t cosine[ARC_STEPS + 1] = { 1024, 989, 887, 724, 512, 265, 0 };

/* Clockwise from the upper right corner. */
static uint32_t round_box(PxPoint *out, PxBox b, Px radius)
{
    uint32_t n = 0;
    for (uint32_t corner = 0; corner < 4; corner++)
        for (uint32_t k = 0; k <= (radius > 0 ? ARC_STEPS : 0); k++) {
            Px c = (Px)((int64_t)radius * (1024 - cosine[k]) / 1024);
            Px s = (Px)((int64_t)radius * (1024 - cosine[ARC_STEPS - k]) / 1024);
            bool swap = corner % 2 == 0;
            Px in_x = swap ? s : c, in_y = swap ? c : s;
            out[n++] = (PxPoint){ corner < 2 ? b.x1 - in_x : b.x0 + in_x,
                                  corner == 0 || corner == 3 ? b.y0 + in_y : b.y1 - in_y };
        }
    return n;
}

static void fill_backwards(Fill *f, const PxPoint *points, uint32_t n)
{
    for (uint32_t i = n; i-- > 0;)
        fill_edge(f, points[i], points[i > 0 ? i - 1 : n - 1]);
}

static void outline_shape(Fill *f, const DrawItem *item)
{
    PxPoint points[BOX_POINTS_MAX];
    PxBox inner = px_box_inset(item->box, item->width);
    fill_polygon(f, points, round_box(points, item->box, item->radius));
    if (!px_box_is_empty(inner))
        fill_backwards(f, points,
                       round_box(points, inner, px_max(0, item->radius - item->width)));
}

/*
 *     0-------1         depth > 0: notch of that depth at the left, point at the right;
 *      \5      \2       depth < 0: the other way round
 *     4-------3
 */
static void chevron_shape(Fill *f, const DrawItem *item)
{
    PxBox b = item->box;
    Px depth = item->radius, middle = b.y0 + (b.y1 - b.y0) / 2;
    Px notch = px_max(depth, 0), point = px_max(-depth, 0);
    PxPoint points[] = { { b.x0 + point, b.y0 },   { b.x1 - notch, b.y0 },
                         { b.x1 - point, middle }, { b.x1 - notch, b.y1 },
                         { b.x0 + point, b.y1 },   { b.x0 + notch, middle } };
    fill_polygon(f, points, ARRAY_N(points));
}

/* From a to b, longer by reach at both ends. */
static void segment(Fill *f, PxPoint a, PxPoint b, Px width, Px reach)
{
    int64_t dx = (int64_t)b.x - a.x, dy = (int64_t)b.y - a.y;
    int64_t length = (int64_t)sqrt_u64((uint64_t)(dx * dx + dy * dy));
    if (length == 0)
        return;
    Px ax = (Px)(dx * reach / length), ay = (Px)(dy * reach / length);
    Px nx = (Px)(dy * width / (2 * length)), ny = (Px)(-dx * width / (2 * length));
    PxPoint quad[] = { { a.x - ax + nx, a.y - ay + ny },
                       { b.x + ax + nx, b.y + ay + ny },
                       { b.x + ax - nx, b.y + ay - ny },
                       { a.x - ax - nx, a.y - ay - ny } };
    fill_polygon(f, quad, ARRAY_N(quad));
}

/* One segment cut into dashes; *at is how far into a dash and its gap the line is. */
static void dashes(Fill *f, PxPoint a, PxPoint b, const DrawItem *item, int64_t *at)
{
    int64_t dx = (int64_t)b.x - a.x, dy = (int64_t)b.y - a.y, dash = item->dash;
    int64_t length = (int64_t)sqrt_u64((uint64_t)(dx * dx + dy * dy));
    for (int64_t from = 0; from < length;) {
        bool on = *at < dash;
        int64_t to = min_i64(length, from + (on ? dash : 2 * dash) - *at);
        PxPoint p = { (Px)(a.x + dx * from / length), (Px)(a.y + dy * from / length) };
        PxPoint q = { (Px)(a.x + dx * to / length), (Px)(a.y + dy * to / length) };
        if (on)
            segment(f, p, q, item->width, 0);
        *at = (*at + to - from) % (2 * dash);
        from = to;
    }
}

static void line_shape(Fill *f, const DrawList *d, const DrawItem *item)
{
    const PxPoint *p = d->points + item->first;
    int64_t at = 0;
    for (uint32_t i = 0; i + 1 < item->n; i++)
        if (item->dash >= PX_ONE)
            dashes(f, p[i], p[i + 1], item, &at);
        else
            segment(f, p[i], p[i + 1], item->width, item->width / 2);
}

void raster_shape(Fill *f, const DrawList *d, const DrawItem *item)
{
    PxPoint points[BOX_POINTS_MAX];
    switch ((DrawKind)item->kind) {
    case DRAW_RECT:
        fill_polygon(f, points, round_box(points, item->box, item->radius));
        break;
    case DRAW_OUTLINE:
        outline_shape(f, item);
        break;
    case DRAW_CHEVRON:
        chevron_shape(f, item);
        break;
    case DRAW_LINE:
        line_shape(f, d, item);
        break;
    case DRAW_POLYGON:
        fill_polygon(f, d->points + item->first, item->n);
        break;
    default: /* hatches and texts have ways of their own */
        ASSERT(false);
    }
}

/*
 * draw.c - items into the list: cut, measured, shortened, so that back ends only draw.
 */
#include "viz/draw.h"

#include <stdlib.h>
#include <string.h>

/* ---- life ---- */

static int32_t pixels_of(const DrawList *d, int32_t design)
{
    int32_t pixels = (design * (int32_t)d->font->scale_pct + 50) / 100;
    return pixels < 1 ? 1 : pixels;
}

void draw_begin(DrawList *d, Font *font, int32_t width, int32_t height, Color background)
{
    d->font = font;
    d->width = width;
    d->height = height;
    d->background = background | 0xff000000;
    d->hatch_px = pixels_of(d, 8);
    d->items_n = d->chars_n = d->points_n = d->clips_n = d->clip_depth = 0;
    d->next_id = d->next_tip = NONE_U32;
    GROW(d->clips, d->clips_n, d->clips_cap);
    d->clips[d->clips_n++] = (DrawClip){ 0, 0, width, height };
    d->clip_stack[0] = 0;
}

void draw_free(DrawList *d)
{
    free(d->items);
    free(d->chars);
    free(d->points);
    free(d->clips);
    *d = (DrawList){ 0 };
}

Px draw_px(const DrawList *d, int32_t pixels)
{
    return PX(pixels_of(d, pixels));
}

/* ---- clips ---- */

static const DrawClip *clip_now(const DrawList *d)
{
    return &d->clips[d->clip_stack[d->clip_depth]];
}

static int32_t larger(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

static int32_t smaller(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

void draw_clip_push(DrawList *d, PxBox box)
{
    ASSERT(d->clip_depth + 1 < DRAW_CLIP_DEPTH_MAX);
    DrawClip c = *clip_now(d);
    c.x0 = larger(c.x0, px_round(box.x0));
    c.y0 = larger(c.y0, px_round(box.y0));
    c.x1 = larger(c.x0, smaller(c.x1, px_round(box.x1)));
    c.y1 = larger(c.y0, smaller(c.y1, px_round(box.y1)));
    GROW(d->clips, d->clips_n, d->clips_cap);
    d->clip_stack[++d->clip_depth] = d->clips_n;
    d->clips[d->clips_n++] = c;
}

void draw_clip_pop(DrawList *d)
{
    ASSERT(d->clip_depth > 0);
    d->clip_depth--;
}

/* ---- pools ---- */

/* Room for n more elements of a pool; doubles. */
static void *reserve(void *pool, uint32_t used, uint32_t *cap, size_t n, size_t size)
{
    ASSERT(n < UINT32_MAX / 4 && used < UINT32_MAX / 4);
    uint32_t need = used + (uint32_t)n;
    if (need <= *cap)
        return pool;
    while (*cap < need)
        *cap = *cap ? 2 * *cap : 1024;
    return mem_resize(pool, *cap, size);
}

static uint32_t push_chars(DrawList *d, const char *text, size_t n)
{
    uint32_t first = d->chars_n;
    d->chars = reserve(d->chars, d->chars_n, &d->chars_cap, n, 1);
    memcpy(d->chars + first, text, n);
    d->chars_n += (uint32_t)n;
    return first;
}

void draw_tip(DrawList *d, uint32_t id, const char *tip)
{
    d->next_id = id;
    d->next_tip = tip ? push_chars(d, tip, strlen(tip) + 1) : NONE_U32;
}

static PxBox cut_far(PxBox b)
{
    return px_box_cut(b, (PxBox){ -PX_FAR, -PX_FAR, PX_FAR, PX_FAR });
}

/* False where nothing of the box can be seen. */
static bool shows(const DrawList *d, PxBox box, Color color)
{
    const DrawClip *c = clip_now(d);
    return color_alpha(color) > 0 && !px_box_is_empty(box) && c->x0 < c->x1 && c->y0 < c->y1 &&
           box.x0 < PX(c->x1) && box.y0 < PX(c->y1) && box.x1 > PX(c->x0) && box.y1 > PX(c->y0);
}

/* NULL: cannot be seen.  Takes the tooltip either way. */
static DrawItem *push(DrawList *d, DrawKind kind, PxBox box, Color color)
{
    uint32_t id = d->next_id, tip = d->next_tip;
    d->next_id = d->next_tip = NONE_U32;
    box = cut_far(box);
    if (!shows(d, box, color))
        return NULL;
    GROW(d->items, d->items_n, d->items_cap);
    DrawItem *item = &d->items[d->items_n++];
    *item = (DrawItem){ .kind = (uint8_t)kind,
                        .clip = d->clip_stack[d->clip_depth],
                        .box = box,
                        .color = color,
                        .id = id,
                        .tip = tip };
    return item;
}

/* ---- boxes ---- */

void draw_rect(DrawList *d, PxBox box, Color color)
{
    push(d, DRAW_RECT, box, color);
}

/* No corner is larger than half the box. */
static Px fitting_radius(PxBox box, Px radius)
{
    Px half = px_min(box.x1 - box.x0, box.y1 - box.y0) / 2;
    return px_max(0, px_min(radius, half));
}

void draw_round(DrawList *d, PxBox box, Px radius, Color color)
{
    DrawItem *item = push(d, DRAW_RECT, box, color);
    if (item)
        item->radius = fitting_radius(item->box, radius);
}

void draw_hatch(DrawList *d, PxBox box, Color color, Color stripe)
{
    DrawItem *item = push(d, DRAW_HATCH, box, color);
    if (item)
        item->color2 = stripe;
}

void draw_outline(DrawList *d, PxBox box, Px width, Px radius, Color color)
{
    Px half = px_min(box.x1 - box.x0, box.y1 - box.y0) / 2;
    DrawItem *item = width > 0 ? push(d, DRAW_OUTLINE, box, color) : NULL;
    if (item) {
        item->width = px_min(width, half);
        item->radius = fitting_radius(item->box, radius);
    }
}

void draw_chevron(DrawList *d, PxBox box, Px depth, Color color)
{
    Px most = (box.x1 - box.x0) / 2;
    DrawItem *item = push(d, DRAW_CHEVRON, box, color);
    if (item)
        item->radius = px_max(-most, px_min(most, depth));
}

/* ---- lines and polygons ---- */

static PxPoint cut_far_point(PxPoint p)
{
    return (PxPoint){ px_max(-PX_FAR, px_min(PX_FAR, p.x)),
                      px_max(-PX_FAR, px_min(PX_FAR, p.y)) };
}

static DrawItem *push_points(DrawList *d, DrawKind kind, const PxPoint *points, uint32_t n,
                             Px reach, Color color)
{
    PxBox box = { PX_FAR, PX_FAR, -PX_FAR, -PX_FAR };
    for (uint32_t i = 0; i < n; i++) {
        PxPoint p = cut_far_point(points[i]);
        box = (PxBox){ px_min(box.x0, p.x - reach), px_min(box.y0, p.y - reach),
                       px_max(box.x1, p.x + reach), px_max(box.y1, p.y + reach) };
    }
    DrawItem *item = push(d, kind, box, color);
    if (!item)
        return NULL;
    d->points = reserve(d->points, d->points_n, &d->points_cap, n, sizeof *d->points);
    item->first = d->points_n;
    item->n = n;
    for (uint32_t i = 0; i < n; i++)
        d->points[d->points_n++] = cut_far_point(points[i]);
    return item;
}

void draw_dashes(DrawList *d, const PxPoint *points, uint32_t n, Px width, Px dash, Color color)
{
    ASSERT(n >= 2);
    if (width <= 0)
        return;
    DrawItem *item = push_points(d, DRAW_LINE, points, n, width, color);
    if (item) {
        item->width = width;
        item->dash = px_max(0, dash);
    }
}

void draw_line(DrawList *d, const PxPoint *points, uint32_t n, Px width, Color color)
{
    draw_dashes(d, points, n, width, 0, color);
}

void draw_polygon(DrawList *d, const PxPoint *points, uint32_t n, Color color)
{
    ASSERT(n >= 3);
    push_points(d, DRAW_POLYGON, points, n, 0, color);
}

/* The line ends where the head begins, so that a translucent arrow is of one shade. */
void draw_arrow(DrawList *d, const PxPoint *points, uint32_t n, Px width, Color color)
{
    enum { POINTS_MAX = 64 };
    ASSERT(n >= 2 && n <= POINTS_MAX);
    PxPoint cut[POINTS_MAX], end = points[n - 1], before = points[n - 2];
    Px head = px_max(3 * width, draw_px(d, 6));
    int64_t dx = (int64_t)end.x - before.x, dy = (int64_t)end.y - before.y;
    int64_t length = (int64_t)sqrt_u64((uint64_t)(dx * dx + dy * dy));
    if (length == 0)
        return;
    int64_t back = min_i64(head, length);
    PxPoint neck = { (Px)(end.x - dx * back / length), (Px)(end.y - dy * back / length) };
    Px across = (Px)(dy * head / (2 * length)), up = (Px)(dx * head / (2 * length));
    memcpy(cut, points, n * sizeof *cut);
    cut[n - 1] = neck;
    uint32_t id = d->next_id, tip = d->next_tip;
    if (n > 2 || back < length)
        draw_line(d, cut, n, width, color);
    d->next_id = id;
    d->next_tip = tip;
    draw_polygon(
        d,
        (PxPoint[]){ end, { neck.x + across, neck.y - up }, { neck.x - across, neck.y + up } },
        3, color);
}

void draw_circle(DrawList *d, PxPoint middle, Px radius, Color color)
{
    draw_round(d, px_box(middle.x - radius, middle.y - radius, 2 * radius, 2 * radius), radius,
               color);
}

/* ---- text ---- */

static const char ellipsis[] = "…";

/* Copies what fits into the list; 0 bytes: nothing did. */
static uint32_t push_fitting(DrawList *d, TextStyle style, const char *text, Px room,
                             uint32_t *first, Px *width)
{
    size_t n = strlen(text), fits = font_fit(d->font, style, text, n, room);
    *first = d->chars_n;
    if (fits < n) {
        Px dots = font_advance(d->font, style, 0x2026);
        fits = font_fit(d->font, style, text, fits, room - dots);
        /* No space before the ellipsis. */
        while (fits > 0 && text[fits - 1] == ' ')
            fits--;
        if (fits == 0)
            return 0;
        push_chars(d, text, fits);
        push_chars(d, ellipsis, sizeof ellipsis - 1);
        *width = font_width(d->font, style, text, fits) + dots;
    } else {
        push_chars(d, text, n);
        *width = font_width(d->font, style, text, n);
    }
    return d->chars_n - *first;
}

Px draw_text(DrawList *d, PxBox box, TextStyle style, TextAlign align, Color color,
             const char *text)
{
    uint32_t first, chars_n = d->chars_n;
    Px width = 0, room = box.x1 - box.x0;
    uint32_t n = push_fitting(d, style, text, room, &first, &width);
    Px cap = font_cap_height(d->font, style), line = font_line_height(d->font, style);
    Px x = align == ALIGN_LEFT    ? box.x0
           : align == ALIGN_RIGHT ? box.x1 - width
                                  : box.x0 + (room - width) / 2;
    /* On a whole pixel, so that letters are sharp. */
    Px baseline = PX(px_round(box.y0 + (box.y1 - box.y0 + cap) / 2));
    PxBox ink = { x, baseline - line, x + width, baseline + line / 2 };
    DrawItem *item = push(d, DRAW_TEXT, ink, n ? color : 0);
    if (!item) {
        d->chars_n = chars_n;
        return n ? width : 0;
    }
    item->box = (PxBox){ x, baseline, x + width, baseline };
    item->style = style;
    item->align = (uint8_t)align;
    item->first = first;
    item->n = n;
    return width;
}

void draw_text_turned(DrawList *d, PxBox box, TextStyle style, Color color, const char *text)
{
    uint32_t first, chars_n = d->chars_n;
    Px width = 0, room = box.y1 - box.y0;
    uint32_t n = push_fitting(d, style, text, room, &first, &width);
    Px cap = font_cap_height(d->font, style), line = font_line_height(d->font, style);
    Px x = PX(px_round(box.x0 + (box.x1 - box.x0 + cap) / 2));
    Px y = box.y1 - (room - width) / 2;
    DrawItem *item =
        push(d, DRAW_TEXT, (PxBox){ x - line, y - width, x + line / 2, y }, n ? color : 0);
    if (!item) {
        d->chars_n = chars_n;
        return;
    }
    item->box = (PxBox){ x, y, x, y - width };
    item->style = style;
    item->align = ALIGN_MIDDLE;
    item->turned = true;
    item->first = first;
    item->n = n;
}

/* ---- looking ---- */

uint32_t draw_item_at(const DrawList *d, Px x, Px y)
{
    for (uint32_t i = d->items_n; i-- > 0;) {
        const DrawItem *item = &d->items[i];
        const DrawClip *c = &d->clips[item->clip];
        PxBox clip = { PX(c->x0), PX(c->y0), PX(c->x1), PX(c->y1) };
        if (item->id != NONE_U32 && px_box_has(px_box_cut(item->box, clip), x, y))
            return item->id;
    }
    return NONE_U32;
}

bool draw_item_box(const DrawList *d, uint32_t id, PxBox *box)
{
    for (uint32_t i = d->items_n; i-- > 0;)
        if (d->items[i].id == id) {
            *box = d->items[i].box;
            return true;
        }
    return false;
}

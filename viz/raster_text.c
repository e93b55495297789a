/*
 * raster_text.c - letters from the atlas to the frame, along a row or up a column.
 */
#include "viz/raster_parts.h"

static int32_t most(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

static int32_t least(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

static void put_pixel(uint32_t *at, Color color, uint32_t ink)
{
    if (ink)
        *at = raster_blend(*at, color, (color_alpha(color) * ink + 127) / 255);
}

static const uint8_t *ink_row(const Font *f, Glyph g, int32_t row)
{
    return f->atlas + ((size_t)g.y + (size_t)row) * f->atlas_width + g.x;
}

/* (x, y): the pen's pixel on the baseline. */
static void put_glyph(const Raster *r, Glyph g, int32_t x, int32_t y, Color color)
{
    int32_t left = x + g.left, top = y + g.top;
    int32_t x0 = most(left, r->clip.x0), x1 = least(left + g.width, r->clip.x1);
    int32_t y0 = most(top, r->clip.y0), y1 = least(top + g.height, r->clip.y1);
    for (int32_t at = y0; at < y1; at++) {
        const uint8_t *ink = ink_row(r->list->font, g, at - top);
        uint32_t *row = raster_row(r, at);
        for (int32_t i = x0; i < x1; i++)
            put_pixel(&row[i], color, ink[i - left]);
    }
}

/* Turned left: what was right of the pen is above it, what was above is left of it. */
static void put_turned(const Raster *r, Glyph g, int32_t x, int32_t y, Color color)
{
    int32_t left = x + g.top, bottom = y - g.left;
    int32_t x0 = most(left, r->clip.x0), x1 = least(left + g.height, r->clip.x1);
    int32_t y0 = most(bottom - g.width, r->clip.y0), y1 = least(bottom, r->clip.y1);
    for (int32_t at = y0; at < y1; at++)
        for (int32_t i = x0; i < x1; i++)
            put_pixel(raster_row(r, at) + i, color,
                      ink_row(r->list->font, g, i - left)[bottom - 1 - at]);
}

void raster_text(const Raster *r, const DrawItem *item)
{
    Font *font = r->list->font;
    const char *text = r->list->chars + item->first;
    /* Along the text; up the screen y falls while the pen moves on. */
    Px pen = item->turned ? -item->box.y0 : item->box.x0;
    int32_t across = px_round(item->turned ? item->box.x0 : item->box.y0);
    for (size_t at = 0; at < item->n;) {
        uint32_t c = font_next_char(text, item->n, &at);
        /* To the nearest of the positions that glyphs have. */
        Px here = pen + PX_ONE / (2 * FONT_SHIFTS);
        int32_t along = px_floor(here);
        uint32_t shift = (uint32_t)(here - PX(along)) * FONT_SHIFTS / PX_ONE;
        Glyph g = font_glyph(font, item->style, c, shift);
        if (item->turned)
            put_turned(r, g, across, -along, item->color);
        else
            put_glyph(r, g, along, across, item->color);
        pen += font_advance(font, item->style, c);
    }
}

/*
 * raster_parts.h - what the files of the rasteriser share; see viz/raster.h.
 */
#ifndef LOCKSTEP_VIZ_RASTER_PARTS_H
#define LOCKSTEP_VIZ_RASTER_PARTS_H

#include "viz/fill.h"
#include "viz/raster.h"

typedef struct Raster {
    Frame *frame;
    const DrawList *list;
    DrawClip clip; /* of the running item */
    Color color;
    Fill fill;
} Raster;

static inline uint32_t *raster_row(const Raster *r, int32_t y)
{
    return r->frame->pixels + (size_t)y * (size_t)r->frame->width;
}

/* alpha * cover / 256, rounded. */
static inline uint32_t raster_alpha(uint32_t alpha, uint32_t cover)
{
    return (alpha * cover + FILL_FULL / 2) / FILL_FULL;
}

/*
 * Each channel round((under * (255 - alpha) + color * alpha) / 255), two at a time: with
 * v = x + 128 the rounded x / 255 is (v + v / 256) / 256 for every x up to 255 * 255.
 */
static inline uint32_t raster_blend(uint32_t under, Color color, uint32_t alpha)
{
    uint32_t rest = 255 - alpha;
    uint32_t rb = (under & 0xff00ff) * rest + (color & 0xff00ff) * alpha + 0x800080;
    uint32_t g = (under >> 8 & 0xff) * rest + (color >> 8 & 0xff) * alpha + 0x80;
    rb = (rb + (rb >> 8 & 0xff00ff)) >> 8 & 0xff00ff;
    g = (g + (g >> 8)) >> 8;
    return 0xff000000 | rb | g << 8;
}

void raster_text(const Raster *r, const DrawItem *item);

/* The outline of an item that is no plain box, into f. */
void raster_shape(Fill *f, const DrawList *d, const DrawItem *item);

#endif

/*
 * raster_parts.h - what the files of the rasteriser share; see viz/raster.h.
 */
#ifndef LOCKSTEP_VIZ_RASTER_PARTS_H
#define LOCKSTEP_VIZ_RASTER_PARTS_H

#include "viz/fill.h"
#include "viz/raster.h"

enum { RASTER_HATCH_MAX = 64 };

typedef struct Raster {
    Frame *frame;
    const DrawList *list;
    DrawClip clip; /* of the running item */
    Color color;
    uint32_t hatch_cover[RASTER_HATCH_MAX]; /* over one period */
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
 * A colour to be laid over many pixels with one alpha: what does not depend on the pixel.
 * Each channel becomes round((under * (255 - alpha) + color * alpha) / 255), two at a time:
 * with v = x + 128 the rounded x / 255 is (v + v / 256) / 256 for every x up to 255 * 255.
 */
typedef struct Paint {
    uint32_t rb, g, rest;
} Paint;

static inline Paint raster_paint(Color color, uint32_t alpha)
{
    return (Paint){ (color & 0xff00ff) * alpha + 0x800080, (color >> 8 & 0xff) * alpha + 0x80,
                    255 - alpha };
}

static inline uint32_t raster_lay(uint32_t under, Paint p)
{
    uint32_t rb = (under & 0xff00ff) * p.rest + p.rb;
    uint32_t g = (under >> 8 & 0xff) * p.rest + p.g;
    rb = (rb + (rb >> 8 & 0xff00ff)) >> 8 & 0xff00ff;
    g = (g + (g >> 8)) & 0xff00;
    return 0xff000000 | rb | g;
}

static inline uint32_t raster_blend(uint32_t under, Color color, uint32_t alpha)
{
    return raster_lay(under, raster_paint(color, alpha));
}

void raster_text(const Raster *r, const DrawItem *item);

/* The outline of an item that is no plain box, into f. */
void raster_shape(Fill *f, const DrawList *d, const DrawItem *item);

#endif

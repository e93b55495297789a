/*
 * raster.h - draw list to pixels, on the CPU, in integers: the same bytes everywhere.
 *
 * A pixel that an item covers in part takes part of its colour: coverage is the exact area
 * in 1/256 (rectangles: the product of what is covered in x and y), a channel becomes
 * round((under * (255 - a) + color * a) / 255) with a = round(alpha * coverage / 256).
 *
 * Pixels are 0xffRRGGBB, top row first, width of them a row; the format that SDL calls
 * ARGB8888, so that a window needs no conversion.
 */
#ifndef LOCKSTEP_VIZ_RASTER_H
#define LOCKSTEP_VIZ_RASTER_H

#include "core/err.h"
#include "viz/draw.h"

/* An 8K screen has 33 million pixels. */
enum { FRAME_SIDE_MAX = 16384, FRAME_PIXELS_MAX = 1 << 26 };

typedef struct Frame {
    uint32_t *pixels; /* owned */
    int32_t width, height;
} Frame;

/* False with a sentence for sizes below 1 and above FRAME_SIDE_MAX or FRAME_PIXELS_MAX. */
bool frame_size_check(int64_t width, int64_t height, Err *err);
bool frame_init(Frame *f, int64_t width, int64_t height, Err *err);
void frame_free(Frame *f);

/* Background and all items.  The list's size is the frame's. */
void raster_draw(Frame *f, const DrawList *d);

/* Coverage of color's stripe at the pixel (x, y) of a hatch, 0 ... 256; for other back ends. */
uint32_t raster_hatch_cover(int32_t hatch_px, int32_t x, int32_t y);

#endif

/*
 * px.h - places and colours: 1/256 of a pixel, and 0xAARRGGBB.
 *
 * Places are integers, so that the same picture has the same bytes with every compiler
 * and on every machine.  (0, 0) is the upper left corner of the upper left pixel, x runs
 * right, y runs down.  A box covers x0 <= x < x1 and y0 <= y < y1; one that is not wider
 * or higher than 0 is empty and draws nothing.
 *
 *     PX(3)            three pixels
 *     PX(1) / 2        half of one
 *     px_between(left, right, t - from, to - from)      where a moment lies
 */
#ifndef LOCKSTEP_VIZ_PX_H
#define LOCKSTEP_VIZ_PX_H

#include "core/base.h"

typedef int32_t Px; /* 1/256 pixel */

enum { PX_ONE = 256, PX_BITS = 8 };

#define PX(pixels) ((Px)((pixels)*PX_ONE))

/* Places beyond this are cut to it when they are drawn; a frame is at most 16,384 wide. */
#define PX_FAR PX(1 << 20)

typedef struct PxBox {
    Px x0, y0, x1, y1;
} PxBox;

typedef struct PxPoint {
    Px x, y;
} PxPoint;

static inline int32_t px_floor(Px x)
{
    return x >= 0 ? x / PX_ONE : -((PX_ONE - 1 - x) / PX_ONE);
}

static inline int32_t px_ceil(Px x)
{
    return -px_floor(-x);
}

/* To the nearest pixel, halves up. */
static inline int32_t px_round(Px x)
{
    return px_floor(x + PX_ONE / 2);
}

static inline Px px_min(Px a, Px b)
{
    return a < b ? a : b;
}

static inline Px px_max(Px a, Px b)
{
    return a > b ? a : b;
}

/*
 * What lies at part/whole of the way from a to b, rounded down; whole > 0, a and b within
 * PX_FAR.  For moments in nanoseconds.  Exact up to whole = 2^34 (17 s), from there on exact
 * to a part in 2^33.  What is farther than PX_FAR is PX_FAR.
 */
Px px_between(Px a, Px b, int64_t part, int64_t whole);

/* The largest r with r * r <= x. */
uint64_t sqrt_u64(uint64_t x);

static inline PxBox px_box(Px x, Px y, Px width, Px height)
{
    return (PxBox){ x, y, x + width, y + height };
}

static inline bool px_box_is_empty(PxBox b)
{
    return b.x0 >= b.x1 || b.y0 >= b.y1;
}

static inline PxBox px_box_cut(PxBox a, PxBox b)
{
    return (PxBox){ px_max(a.x0, b.x0), px_max(a.y0, b.y0), px_min(a.x1, b.x1),
                    px_min(a.y1, b.y1) };
}

static inline bool px_box_has(PxBox b, Px x, Px y)
{
    return b.x0 <= x && x < b.x1 && b.y0 <= y && y < b.y1;
}

/* b, smaller by inset on each side. */
static inline PxBox px_box_inset(PxBox b, Px inset)
{
    return (PxBox){ b.x0 + inset, b.y0 + inset, b.x1 - inset, b.y1 - inset };
}

/* ---- colours: 0xAARRGGBB, not premultiplied ---- */

typedef uint32_t Color;

static inline uint32_t color_alpha(Color c)
{
    return c >> 24;
}

/* c with its alpha times alpha/255. */
static inline Color color_fade(Color c, uint32_t alpha)
{
    return (c & 0xffffff) | (color_alpha(c) * alpha + 127) / 255 << 24;
}

#endif

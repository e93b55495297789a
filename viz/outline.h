/*
 * outline.h - a letter's shape: closed contours of lines and curves in units of the font.
 *
 * y runs up, the baseline is 0.  Points are on the contour or steer curves: one OUTLINE_CONIC
 * between two points a quadratic curve (two in a row have a point of the contour halfway), two
 * OUTLINE_CUBIC a cubic one.  So both OpenType and TrueType fonts keep their own points.
 */
#ifndef LOCKSTEP_VIZ_OUTLINE_H
#define LOCKSTEP_VIZ_OUTLINE_H

#include "core/arena.h"
#include "core/err.h"
#include "viz/fill.h"

enum { OUTLINE_CONIC = 0, OUTLINE_ON = 1, OUTLINE_CUBIC = 2 };

typedef struct OutlinePoint {
    int16_t x, y;
    uint8_t tag; /* OUTLINE_ON ... */
    bool last;   /* of its contour */
} OutlinePoint;

typedef struct Outline {
    const OutlinePoint *points; /* borrowed */
    uint32_t points_n;
    int32_t advance; /* the pen moves by it */
} Outline;

/* What all letters of a font share, in its units. */
typedef struct OutlineFont {
    int32_t units_per_em;
    int32_t x_height, cap_height; /* 0: unknown, heights are not fitted to pixels */
    int32_t overshoot;            /* round letters pass the lines by up to this */
} OutlineFont;

/* Adds the letter to f: size is that of the em, the pen stands at (x, 0), y runs down. */
void outline_fill(Fill *f, const Outline *o, const OutlineFont *font, Px size, Px x);

/* What it can touch, in pixels about the pen; no points: all 0. */
typedef struct OutlineBounds {
    int32_t x0, y0, x1, y1;
} OutlineBounds;

OutlineBounds outline_bounds(const Outline *o, const OutlineFont *font, Px size, Px x);

/* A height above the baseline in pixels, fitted as said in viz/font.h. */
Px outline_height(const OutlineFont *font, Px size, int32_t y);

/* ---- font files of the machine, by FreeType ---- */

typedef struct FontFile FontFile;

/* False with a sentence when it cannot be read or has no outlines. */
bool font_file_open(FontFile **file, const char *path, Err *err);
void font_file_close(FontFile *file);
const OutlineFont *font_file_font(const FontFile *file);
/* False: it has no such character.  Points live in the arena. */
bool font_file_outline(FontFile *file, uint32_t character, Outline *o, Arena *arena);

#endif

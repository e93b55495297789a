/*
 * font_baked.h - the letters that are always there: outlines of Inter, regular and semibold.
 *
 * font_baked.c is written by `make bake-font` (tests/bake_font.c) from the files of Debian's
 * fonts-inter.  The outlines are those of the font, under its licence, the SIL Open Font
 * License 1.1: viz/font_baked.LICENSE.  Nothing else here is.
 *
 * ASCII, and  ° ± ² ³ µ · × – — … ← ↑ → ↓ ≈ ≤ ≥ ▸ ▾ ✓ U+FFFD.  Digits are the tabular ones.
 */
#ifndef LOCKSTEP_VIZ_FONT_BAKED_H
#define LOCKSTEP_VIZ_FONT_BAKED_H

#include "viz/outline.h"

enum { BAKED_ASCII_N = 95 }; /* ' ' to '~' */

typedef struct BakedLetter {
    uint32_t character;
    int16_t advance;
    uint16_t first, n; /* points */
} BakedLetter;

typedef struct BakedFont {
    OutlineFont font;
    const BakedLetter *letters; /* sorted by character; ASCII has no gaps */
    uint32_t letters_n;
    const OutlinePoint *points;
} BakedFont;

extern const BakedFont font_baked_regular, font_baked_bold;

#endif

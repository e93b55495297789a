/*
 * font.h - text to widths and glyphs: outlines in, an atlas of coverage out.
 *
 * The letters people need (ASCII and the signs of font_baked.h) are outlines of the font
 * Inter baked into the program; other characters are looked up in the font files of the
 * machine (Inter, then DejaVu Sans).  Either way outlines become pixels by the polygons of
 * viz/fill.h, so no version of a font library can change a picture, at any size.
 *
 * How letters are fitted to pixels:
 *
 *     ascender  ----------------   Heights only: baseline, x-height and cap height move to
 *     cap       --#------------    whole pixels and all between them with it, so that
 *     x-height  --#--##--------    horizontal strokes are sharp.  Widths stay as designed;
 *     baseline  --#-##-#-------    a glyph exists at FONT_SHIFTS positions within a pixel.
 *
 * All digits are equally wide.  Text is UTF-8; what is not well-formed shows as U+FFFD.
 * Control characters, too: a text is one line.
 *
 *     Font f = { 0 };
 *     font_open(&f, 100);
 *     Px width = font_width(&f, style, text, n);
 *     font_free(&f);
 */
#ifndef LOCKSTEP_VIZ_FONT_H
#define LOCKSTEP_VIZ_FONT_H

#include "core/err.h"
#include "viz/px.h"

/* Sizes of the design, pixels at a scale of 100 %. */
enum { TEXT_SMALL = 11, TEXT_BODY = 13, TEXT_TITLE = 14, TEXT_HUGE = 17 };

enum { FONT_SCALE_MIN = 75, FONT_SCALE_MAX = 300, FONT_SHIFTS = 4 };

typedef struct TextStyle {
    uint8_t size; /* TEXT_BODY ... ; any of 6 to 64 */
    bool bold;
} TextStyle;

/* A glyph's rectangle in the atlas, and where it lies about the pen. */
typedef struct Glyph {
    uint32_t x, y;          /* in the atlas */
    uint16_t width, height; /* 0: nothing to draw (a space) */
    int16_t left, top;      /* of its first pixel, from the pen's pixel and the baseline */
} Glyph;

typedef struct FontFiles FontFiles; /* what the machine has, opened when first needed */

typedef struct Font {
    uint32_t scale_pct;
    /* Coverage 0 ... 255, one byte a pixel, atlas_width a row.  Grows downwards; glyphs in
     * it never move.  version changes whenever glyphs were added. */
    uint8_t *atlas;
    uint32_t atlas_width, atlas_height, version;
    /* private */
    uint32_t shelf_x, shelf_y, shelf_height;
    struct FontSlot *slots;
    uint32_t slots_n, slots_cap;
    FontFiles *files;
} Font;

/* scale_pct is cut to FONT_SCALE_MIN ... MAX.  Cannot fail: the baked letters are there. */
void font_open(Font *f, uint32_t scale_pct);
void font_free(Font *f);

/*
 * Where other characters come from: colon-separated paths of font files, the first that has
 * a character wins.  NULL, and the beginning: those of the machine.
 */
void font_set_files(Font *f, const char *paths);

/* False with a sentence, when characters were met that no font has; once for each font. */
bool font_complain(Font *f, Err *err);

/* The size in pixels after scaling. */
Px font_size(const Font *f, TextStyle style);

/* From the pen's start to its end, for n bytes. */
Px font_width(Font *f, TextStyle style, const char *text, size_t n);

/* Of capitals and digits above the baseline: a whole number of pixels. */
Px font_cap_height(const Font *f, TextStyle style);

/* Baselines of lines of text lie this far apart: a whole number of pixels. */
Px font_line_height(const Font *f, TextStyle style);

/* The longest beginning of text, whole characters, that is not wider than width: its bytes. */
size_t font_fit(Font *f, TextStyle style, const char *text, size_t n, Px width);

/*
 * The character at *at (bytes of text, of n), and moves *at behind it.  U+FFFD for bytes
 * that are not UTF-8 and for control characters.  *at < n.
 */
uint32_t font_next_char(const char *text, size_t n, size_t *at);

/* Of one character; the pen moves by it. */
Px font_advance(Font *f, TextStyle style, uint32_t character);

/* At shift/FONT_SHIFTS of a pixel right of the pen's pixel.  A copy: adding moves slots. */
Glyph font_glyph(Font *f, TextStyle style, uint32_t character, uint32_t shift);

#endif

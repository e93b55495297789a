/*
 * svg_words.h - how places, colours and texts are written in an SVG.
 */
#ifndef LOCKSTEP_VIZ_SVG_WORDS_H
#define LOCKSTEP_VIZ_SVG_WORDS_H

#include <stdio.h>

#include "viz/draw.h"

/* Pixels with at most two decimals. */
void svg_px(FILE *out, Px x);
/* ' name="x"' */
void svg_attribute(FILE *out, const char *name, Px x);
/* ' fill="#rrggbb"' and, where it is translucent, the opacity.  kind: "fill" or "stroke". */
void svg_color(FILE *out, const char *kind, Color c);
/*
 * Escaped, and repaired: bytes that are not UTF-8 and control characters become U+FFFD, so
 * that it is well-formed whatever a trace contains.  lines: \n stays.
 */
void svg_text(FILE *out, const char *text, size_t n, bool lines);

#endif

/*
 * svg.h - draw list to SVG: the same picture with real text, tooltips and sharp edges.
 *
 * Rectangles that continue one another (same colour, height and clip, no tooltip between
 * them) become one; after SVG_ITEMS_MAX items the rest is left out, and a line of text in
 * the picture says how much.  Texts are repaired UTF-8 without control characters, so the
 * document is well-formed XML whatever a trace contains.
 */
#ifndef LOCKSTEP_VIZ_SVG_H
#define LOCKSTEP_VIZ_SVG_H

#include <stdio.h>

#include "core/err.h"
#include "viz/draw.h"

enum { SVG_ITEMS_MAX = 20000 };

/*
 * Only what has a tooltip takes the mouse, so a label on a box does not hide the box's.
 * A document of its own, or with prefix an <svg> inside HTML, whose ids begin with prefix
 * (letters), so that several share a page.  Writing errors show when the file is closed.
 */
void svg_write(const DrawList *d, const char *prefix, FILE *out);

#endif

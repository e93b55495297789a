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
 * A document of its own.  Only what has a tooltip takes the mouse, so a label on a box does
 * not hide the box's.  Writing errors show when the file is closed.
 */
void svg_write(const DrawList *d, FILE *out);

/* A colour that a page's style sheet chooses: written as var(--name). */
typedef struct SvgName {
    Color color;
    const char *name;
} SvgName;

/* Two colours of a hatch. */
typedef struct SvgHatch {
    Color color, color2;
} SvgHatch;

/* An HTML page that pictures are written into: they share ids, hatches and colours. */
typedef struct SvgPage {
    const SvgName *names; /* borrowed */
    uint32_t names_n;
    /* private */
    uint32_t pictures_n;
    SvgHatch *hatches; /* defined by a picture before */
    uint32_t hatches_n, hatches_cap;
} SvgPage;

/*
 * The picture as an <svg> of HTML with these attributes, without the list's background and,
 * unless attributes say it, without a size.  Boxes without tooltips are joined further: those
 * of one colour become one path wherever that does not change the picture.
 */
void svg_write_on(SvgPage *page, const DrawList *d, const char *attributes, FILE *out);
void svg_page_free(SvgPage *page);

#endif

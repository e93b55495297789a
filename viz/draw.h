/*
 * draw.h - the draw list: what is to be seen, before anyone knows how.
 *
 *     scene --> DrawList --> viz/raster.h   pixels, by our own rasteriser
 *                        +-> viz/sdl_*.c    triangles, by a GPU
 *                        +-> viz/svg.h      a document
 *
 * Items are drawn in order, later ones over earlier ones, colours with their alpha.  All are
 * equal structs in one array; texts and points lie in pools of the list.  Places are pixels
 * of the target, after scaling: multiply sizes of the design with draw_px.
 *
 *     DrawList d = { 0 };
 *     draw_begin(&d, &font, 1920, 1080, background);
 *     draw_clip_push(&d, lane);
 *     draw_tip(&d, id, "all_gather, 51 MB");       for the next item
 *     draw_rect(&d, box, color);
 *     draw_clip_pop(&d);
 *     ... raster_draw(&frame, &d), svg_write(&d, file) ...
 *     draw_free(&d);                               or draw_begin again, keeping memory
 */
#ifndef LOCKSTEP_VIZ_DRAW_H
#define LOCKSTEP_VIZ_DRAW_H

#include "viz/font.h"

typedef enum DrawKind {
    DRAW_RECT,    /* box, color; radius > 0 rounds its corners */
    DRAW_HATCH,   /* box, color, and diagonal stripes of color2 over it */
    DRAW_OUTLINE, /* box, color; a frame of width within the box; radius as above */
    DRAW_CHEVRON, /* box, color: a notch of depth radius on the left, a point on the right */
    DRAW_LINE,    /* points, color, width; dash > 0: dashes and gaps of that length */
    DRAW_POLYGON, /* points, color: convex, filled */
    DRAW_TEXT,    /* text from (x0, y0), y0 is the baseline; x1 where it ends */
    DRAW_KINDS_N
} DrawKind;

typedef enum TextAlign { ALIGN_LEFT, ALIGN_MIDDLE, ALIGN_RIGHT } TextAlign;

typedef struct DrawItem {
    uint8_t kind;    /* DrawKind */
    TextStyle style; /* of a text */
    uint8_t align;   /* of a text: TextAlign, how its place was found */
    bool turned;     /* a text that runs upwards: (x0, y0) its start, y1 = y0 - length */
    uint32_t clip;   /* index into clips */
    PxBox box;       /* for lines and polygons: what they can touch */
    Color color, color2;
    Px width, radius, dash;
    uint32_t first, n; /* bytes in chars, or points */
    uint32_t tip;      /* offset in chars of a terminated text, NONE_U32: no tooltip */
    uint32_t id;       /* the caller's name for what it shows, NONE_U32: nothing */
} DrawItem;

typedef struct DrawClip {
    int32_t x0, y0, x1, y1; /* whole pixels, within the target */
} DrawClip;

enum { DRAW_CLIP_DEPTH_MAX = 16 };

typedef struct DrawList {
    Font *font;            /* borrowed */
    int32_t width, height; /* pixels */
    Color background;
    int32_t hatch_px; /* stripes repeat every hatch_px pixels in x and in y */
    DrawItem *items;
    uint32_t items_n, items_cap;
    char *chars;
    uint32_t chars_n, chars_cap;
    PxPoint *points;
    uint32_t points_n, points_cap;
    DrawClip *clips;
    uint32_t clips_n, clips_cap;
    /* private */
    uint32_t clip_stack[DRAW_CLIP_DEPTH_MAX], clip_depth;
    uint32_t next_id, next_tip;
} DrawList;

/* Empties the list, keeping its memory.  Borrows the font.  The background is opaque. */
void draw_begin(DrawList *d, Font *font, int32_t width, int32_t height, Color background);
void draw_free(DrawList *d);

/* A length of the design (pixels at 100 %) at the font's scale, to a whole pixel, at least 1. */
Px draw_px(const DrawList *d, int32_t pixels);

/* ---- clipping: what is drawn until the pop is cut to the box, to whole pixels ---- */

void draw_clip_push(DrawList *d, PxBox box); /* cut to the one before it */
void draw_clip_pop(DrawList *d);

/*
 * The next item shows id (NONE_U32: none), and its tooltip is tip (NULL: none), which is
 * copied; lines end with \n.  SVG makes it a <title>; draw_item_at finds the id.
 */
void draw_tip(DrawList *d, uint32_t id, const char *tip);

/* ---- items; what is empty or fully clipped is left out ---- */

void draw_rect(DrawList *d, PxBox box, Color color);
void draw_round(DrawList *d, PxBox box, Px radius, Color color);
void draw_hatch(DrawList *d, PxBox box, Color color, Color stripe);
void draw_outline(DrawList *d, PxBox box, Px width, Px radius, Color color);
/* Points right; with depth < 0 left. */
void draw_chevron(DrawList *d, PxBox box, Px depth, Color color);
/* Corners are round.  n >= 2. */
void draw_line(DrawList *d, const PxPoint *points, uint32_t n, Px width, Color color);
void draw_dashes(DrawList *d, const PxPoint *points, uint32_t n, Px width, Px dash,
                 Color color);
/* A line with a head of 3 widths (at least 4 pixels of the design) at its last point. */
void draw_arrow(DrawList *d, const PxPoint *points, uint32_t n, Px width, Color color);
void draw_polygon(DrawList *d, const PxPoint *points, uint32_t n, Color color); /* n >= 3 */
/* A box with corners so round that nothing else is left. */
void draw_circle(DrawList *d, PxPoint middle, Px radius, Color color);

/*
 * One line of text in the box, its capitals vertically in the middle.  What does not fit
 * ends with an ellipsis; where not even one letter fits, nothing is drawn.  Returns the
 * width that is taken.
 */
Px draw_text(DrawList *d, PxBox box, TextStyle style, TextAlign align, Color color,
             const char *text);

/* Runs upwards, its middle at the middle of the box: for an axis. */
void draw_text_turned(DrawList *d, PxBox box, TextStyle style, Color color, const char *text);

/* ---- looking ---- */

/* The topmost item that has an id and whose clipped box holds the place; NONE_U32: none. */
uint32_t draw_item_at(const DrawList *d, Px x, Px y);
/* The box of the topmost item of that id; false: there is none. */
bool draw_item_box(const DrawList *d, uint32_t id, PxBox *box);

#endif

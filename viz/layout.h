/*
 * layout.h - where everything is: the panes of the picture, and the rows within the lanes.
 *
 *     +-- top bar ----------------------------------------------------+
 *     | corner | minimap                                   |  drawer  |
 *     |        | ruler                                     |          |
 *     |--------+-------------------------------------------|          |
 *     | names  | pinned rows                               |          |
 *     |        |-------------------------------------------|          |
 *     |        | rows, scrolled                            |          |
 *     +-- legend -----------------------------------------------------+
 *
 * Rows are as high as the window allows, within limits; beyond that they scroll.  Above 16
 * ranks each is one strip; so that they fill the window, some are a pixel higher than others.
 * Places are in 1/256 pixel, whole pixels only.
 */
#ifndef LOCKSTEP_VIZ_LAYOUT_H
#define LOCKSTEP_VIZ_LAYOUT_H

#include "viz/view.h"

typedef enum LayoutKind {
    LAYOUT_GROUP, /* the heading of a group of ranks */
    LAYOUT_STRIP, /* a rank's strip, and its name */
    LAYOUT_ROW,   /* one of its streams, counters, threads */
    LAYOUT_ERROR, /* diff: real beside sim, op by op */
    LAYOUT_DRIFT  /* diff: how late the simulation is by then */
} LayoutKind;

typedef struct LayoutRow {
    LayoutKind kind;
    uint8_t side;
    bool pinned;
    bool first;       /* of its rank: the name stands here; or a heading */
    bool alone;       /* a strip of a rank whose streams are not shown */
    uint32_t rank;    /* index into ranks of its side; NONE_U32: a heading */
    uint32_t real;    /* index of the rank of side 0 that it is shown for */
    uint32_t group;   /* of a heading: view_group_of; else NONE_U32 */
    uint32_t row;     /* index into rows of its side; NONE_U32: strip */
    int64_t shift_ns; /* time of the rank - time of the view */
    Px y0, y1;        /* in the picture, scrolled */
} LayoutRow;

typedef struct Layout {
    PxBox all, top, corner, minimap, ruler, names, lanes, drawer, legend;
    PxBox pinned, scrolled; /* parts of names and lanes together */
    LayoutRow *rows;
    uint32_t rows_n, rows_cap;
    ViewWindow window;      /* of the view */
    Px content, scroll_max; /* height of what scrolls; how far it can */
    bool strips;
    Px strip_pitch; /* from one to the next, with parts of pixels; 0: no strips */
} Layout;

/* Builds rows that are shown for the first time; cuts v->scroll_px to what is there. */
void layout_make(Layout *l, View *v);
void layout_free(Layout *l);

/* Does a rank's name, or the heading, of that item stand in the row? */
static inline bool layout_is_item(const LayoutRow *row, ViewItem item)
{
    return row->first && row->real == item.rank && row->group == item.group;
}

/* The row at a place; NULL: none. */
const LayoutRow *layout_row_at(const Layout *l, Px x, Px y);
/* Does a row show the row of a span?  Of a folded simulation several do; a strip shows those of
 * its rank's streams where they have no rows of their own. */
bool layout_shows(const LayoutRow *row, const View *v, ViewPlace place);
/* The first that does; NULL: none. */
const LayoutRow *layout_row_of(const Layout *l, const View *v, ViewPlace place);
/* The moment at x of the lanes, and back. */
int64_t layout_ns_at(const Layout *l, const View *v, Px x);
Px layout_x_of(const Layout *l, const View *v, int64_t ns);
/* Where a span stands in a row that shows it; at least two pixels wide. */
PxBox layout_span_box(const Layout *l, const View *v, const LayoutRow *row, ViewPlace place);
/* What a row's lane shows: the view's window on the clock of its rank, in whole pixels. */
LodWindow layout_window(const Layout *l, const LayoutRow *row);

/* The span at a place (within two pixels, the longest of them); view_nowhere: none. */
ViewPlace layout_pick(const Layout *l, const View *v, Px x, Px y);

#endif

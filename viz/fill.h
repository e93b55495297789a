/*
 * fill.h - which part of each pixel a polygon covers: exact areas in integers.
 *
 * Every edge adds, to the pixels it crosses in a row, the signed area between itself and
 * the row's right end.  Summed from left to right this is the coverage:
 *
 *        edge down      edge up
 *      0 0 |80 256 256 256| 100 0         of 256; adjacent edges need no order
 *
 * Both orientations are alike.  Where parts of the same orientation overlap, coverage stops
 * at 256: a line drawn as one quad a segment has no darker joints.
 */
#ifndef LOCKSTEP_VIZ_FILL_H
#define LOCKSTEP_VIZ_FILL_H

#include "viz/px.h"

enum { FILL_FULL = 256 };

typedef struct FillEdge {
    PxPoint top, bottom;
    Px x;          /* where it leaves the row above the running one */
    int32_t sign;  /* +1: it went down */
    uint32_t next; /* in its row, NONE_U32: the last */
} FillEdge;

/* Reusable: Fill f = { 0 } is empty; fill_free gives its memory back. */
typedef struct Fill {
    int32_t x0, y0, x1, y1; /* pixels that can be touched */
    FillEdge *edges;
    uint32_t edges_n, edges_cap;
    uint32_t *row_first;   /* [y1 - y0] edges that begin in it */
    int32_t *cover, *area; /* [x1 - x0] of one row */
    uint16_t *row;         /* [x1 - x0] coverage, what fill_rows hands on */
    uint32_t rows_cap, columns_cap;
} Fill;

/* n values of coverage, 1 ... FILL_FULL and 0, from pixel (x, y) on. */
typedef void FillRow(void *context, int32_t x, int32_t y, int32_t n, const uint16_t *cover);

void fill_begin(Fill *f, int32_t x0, int32_t y0, int32_t x1, int32_t y1);
void fill_edge(Fill *f, PxPoint from, PxPoint to);
/* Closed: the last point is joined to the first. */
void fill_polygon(Fill *f, const PxPoint *points, uint32_t n);
/* Rows from the top down; those without coverage are left out. */
void fill_rows(Fill *f, FillRow *row, void *context);
void fill_free(Fill *f);

#endif

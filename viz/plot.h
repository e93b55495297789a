/*
 * plot.h - points and lines over two logarithmic axes, from plain numbers.
 *
 *        title
 *     y  |      o  : .        o one     series with a label stand in the legend
 *        |       `--o :       . other
 *        +------------ x
 *
 * So the planner's and the validation's pictures are drawn by the code that draws the
 * viewer's, as SVG or PNG; only commands (cmd_*.c) may bring the two together.
 */
#ifndef LOCKSTEP_VIZ_PLOT_H
#define LOCKSTEP_VIZ_PLOT_H

#include "viz/draw.h"

typedef enum PlotMark {
    MARK_NONE,
    MARK_CIRCLE,
    MARK_SQUARE,
    MARK_TRIANGLE,
    MARK_DIAMOND,
    MARK_RING,
    PLOT_MARKS_N
} PlotMark;

typedef struct PlotPoint {
    double x, y;       /* > 0 */
    const char *label; /* written left of it and below, NULL: none */
    const char *tip;   /* its tooltip in an SVG, NULL: none */
} PlotPoint;

/* All pointers are borrowed. */
typedef struct PlotSeries {
    const PlotPoint *points;
    uint32_t points_n;
    const char *label; /* in the legend, NULL: not there */
    Color color;
    PlotMark mark;
    int32_t mark_px; /* radius, half pixels */
    int32_t line_px; /* width of a line through the points, half pixels; 0: none */
    int32_t dash_px; /* 0: unbroken */
} PlotSeries;

typedef struct PlotTick {
    double at;
    const char *label;
} PlotTick;

typedef struct PlotAxis {
    const char *title;
    double low, high; /* 0 < low < high; ticks beyond are left out */
    const PlotTick *ticks;
    uint32_t ticks_n;
} PlotAxis;

typedef struct Plot {
    const char *title;
    PlotAxis x, y;
    const PlotSeries *series;
    uint32_t series_n;
} Plot;

/* The largest of 1, 2, 5, 10, 20 ... not above x, and the one after such a tick; x > 0. */
double plot_tick_below(double x);
double plot_tick_after(double tick);

/* A light picture of about 840 x 660 design pixels into an empty list; borrows the font. */
void plot_draw(DrawList *d, Font *font, const Plot *p);

/* The same to a file, PNG or SVG by its name. */
bool plot_write(const Plot *p, const char *path, Err *err);

#endif

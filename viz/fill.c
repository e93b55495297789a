/*
 * fill.c - signed areas of edges, row by row, summed to coverage.
 *
 * Within a row an edge piece from (x, y) to (x', y') that stays in one pixel adds
 * dy = y' - y to cover[] there, and (fx + fx') * dy to area[], with fx counted from the
 * pixel's left side: twice the area left of the piece.  Then
 *
 *     coverage(pixel) = (2 * 256 * sum of cover up to it - area) / (2 * 256)
 */
#include "viz/fill.h"

#include <stdlib.h>
#include <string.h>

void fill_begin(Fill *f, int32_t x0, int32_t y0, int32_t x1, int32_t y1)
{
    f->x0 = x0;
    f->y0 = y0;
    f->x1 = x1 > x0 ? x1 : x0;
    f->y1 = y1 > y0 && x1 > x0 ? y1 : y0;
    f->edges_n = 0;
    uint32_t rows_n = (uint32_t)(f->y1 - f->y0), columns_n = (uint32_t)(f->x1 - f->x0);
    if (rows_n > f->rows_cap) {
        f->row_first = mem_resize(f->row_first, rows_n, sizeof *f->row_first);
        f->rows_cap = rows_n;
    }
    if (columns_n > f->columns_cap) {
        f->cover = mem_resize(f->cover, columns_n, sizeof *f->cover);
        f->area = mem_resize(f->area, columns_n, sizeof *f->area);
        f->row = mem_resize(f->row, columns_n, sizeof *f->row);
        memset(f->cover, 0, columns_n * sizeof *f->cover);
        memset(f->area, 0, columns_n * sizeof *f->area);
        f->columns_cap = columns_n;
    }
    if (rows_n)
        memset(f->row_first, 0xff, rows_n * sizeof *f->row_first);
}

void fill_free(Fill *f)
{
    free(f->edges);
    free(f->row_first);
    free(f->cover);
    free(f->area);
    free(f->row);
    *f = (Fill){ 0 };
}

/* Rounded down, also below zero; d > 0. */
static int64_t floor_div(int64_t n, int64_t d)
{
    int64_t q = n / d;
    return q - (n % d < 0);
}

static Px x_at(const FillEdge *e, Px y)
{
    int64_t way = (int64_t)e->bottom.x - e->top.x;
    return (Px)(e->top.x + floor_div(way * (y - e->top.y), e->bottom.y - e->top.y));
}

void fill_edge(Fill *f, PxPoint from, PxPoint to)
{
    if (from.y == to.y)
        return;
    bool down = from.y < to.y;
    FillEdge e = { .top = down ? from : to, .bottom = down ? to : from, .sign = down ? 1 : -1 };
    int32_t row = px_floor(e.top.y);
    if (row < f->y0)
        row = f->y0;
    if (row >= f->y1 || e.bottom.y <= PX(f->y0) ||
        (e.top.x >= PX(f->x1) && e.bottom.x >= PX(f->x1)))
        return;
    e.x = e.top.y < PX(row) ? x_at(&e, PX(row)) : e.top.x;
    e.next = f->row_first[row - f->y0];
    GROW(f->edges, f->edges_n, f->edges_cap);
    f->row_first[row - f->y0] = f->edges_n;
    f->edges[f->edges_n++] = e;
}

void fill_polygon(Fill *f, const PxPoint *points, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        fill_edge(f, points[i], points[i + 1 < n ? i + 1 : 0]);
}

/* What the running row has been told. */
typedef struct Span {
    int32_t low, high; /* pixels touched, low > high: none */
} Span;

static void add_cell(Fill *f, Span *touched, int32_t x, int32_t area, int32_t cover)
{
    f->area[x - f->x0] += area;
    f->cover[x - f->x0] += cover;
    if (x < touched->low)
        touched->low = x;
    if (x > touched->high)
        touched->high = x;
}

/* How much of the height is reached at x; the same with and without clipping. */
static int32_t height_at(Px x, Px xa, Px xb, int32_t height)
{
    return xa == xb ? height : (int32_t)((int64_t)height * (x - xa) / (xb - xa));
}

/*
 * A piece within the row, from xa right to xb; height is signed.  What lies left of x0 acts
 * on the whole row, what lies right of x1 on nothing.
 */
static void add_piece(Fill *f, Span *touched, Px xa, Px xb, int32_t height)
{
    int32_t cell = px_floor(xa), last = px_floor(xb), done = 0;
    Px x = xa;
    if (cell >= f->x1)
        return;
    if (cell < f->x0) {
        done = last < f->x0 ? height : height_at(PX(f->x0), xa, xb, height);
        add_cell(f, touched, f->x0, 0, done);
        cell = f->x0;
        x = PX(cell);
    }
    last = last < f->x1 ? last : f->x1 - 1;
    for (; cell <= last; cell++) {
        Px end = px_min(xb, PX(cell + 1));
        /* Heights are those reached from the start on, so that rounding never adds up. */
        int32_t reached = height_at(end, xa, xb, height);
        if (reached != done)
            add_cell(f, touched, cell, (x + end - 2 * PX(cell)) * (reached - done),
                     reached - done);
        done = reached;
        x = end;
    }
}

static void add_edge(Fill *f, Span *touched, FillEdge *e, int32_t row)
{
    Px ya = px_max(e->top.y, PX(row)), yb = px_min(e->bottom.y, PX(row + 1));
    if (ya >= yb)
        return;
    Px xa = ya == e->top.y ? e->top.x : e->x;
    Px xb = yb == e->bottom.y ? e->bottom.x : x_at(e, yb);
    e->x = xb;
    add_piece(f, touched, px_min(xa, xb), px_max(xa, xb), e->sign * (yb - ya));
}

/* Sums the row up, hands it on, and leaves the sums empty. */
static void finish_row(Fill *f, Span touched, int32_t y, FillRow *row, void *context)
{
    int64_t sum = 0;
    int32_t x = touched.low, n = 0;
    if (touched.low > touched.high)
        return;
    for (; x < f->x1 && (x <= touched.high || sum != 0); x++) {
        int64_t cover = 0;
        if (x <= touched.high) {
            sum += f->cover[x - f->x0];
            cover = -(int64_t)f->area[x - f->x0];
            f->cover[x - f->x0] = f->area[x - f->x0] = 0;
        }
        cover += sum * 2 * PX_ONE;
        cover = (cover < 0 ? -cover : cover) >> (PX_BITS + 1);
        f->row[n++] = (uint16_t)(cover > FILL_FULL ? FILL_FULL : cover);
    }
    row(context, touched.low, y, n, f->row);
}

void fill_rows(Fill *f, FillRow *row, void *context)
{
    uint32_t running = NONE_U32;
    for (int32_t y = f->y0; y < f->y1; y++) {
        Span touched = { INT32_MAX, INT32_MIN };
        for (uint32_t i = f->row_first[y - f->y0]; i != NONE_U32;) {
            uint32_t next = f->edges[i].next;
            f->edges[i].next = running;
            running = i;
            i = next;
        }
        for (uint32_t *link = &running; *link != NONE_U32;) {
            FillEdge *e = &f->edges[*link];
            add_edge(f, &touched, e, y);
            if (e->bottom.y <= PX(y + 1))
                *link = e->next;
            else
                link = &e->next;
        }
        finish_row(f, touched, y, row, context);
    }
}

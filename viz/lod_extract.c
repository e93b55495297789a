/*
 * lod_extract.c - a window of a row as pieces and columns, from the pyramid or by a walk.
 */
#include "viz/lod_parts.h"

#include <string.h>

/* ---- pixels ---- */

int64_t lod_pixel_ns(const LodWindow *w, uint32_t x)
{
    int64_t length = w->to_ns - w->from_ns, width = w->width;
    return w->from_ns + length / width * x + length % width * x / width;
}

uint32_t lod_pixel_of(const LodWindow *w, int64_t at_ns)
{
    double guess = (double)(at_ns - w->from_ns) * w->width / (double)(w->to_ns - w->from_ns);
    int64_t x = max_i64(0, min_i64((int64_t)guess, (int64_t)w->width - 1));
    while (x > 0 && lod_pixel_ns(w, (uint32_t)x) > at_ns)
        x--;
    while (x + 1 < w->width && lod_pixel_ns(w, (uint32_t)x + 1) <= at_ns)
        x++;
    return (uint32_t)x;
}

/* ---- searching ---- */

uint64_t lod_spans_before(const LodRow *row, int64_t at_ns)
{
    uint64_t low = 0, high = row->n;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (row->t->start_ns[lod_span(row, middle)] < at_ns)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

uint64_t lod_span_ahead(const LodRow *row, uint64_t i)
{
    return lod_spans_before(row, row->t->start_ns[lod_span(row, i - 1)]);
}

static int64_t span_end_ns(const LodRow *row, uint64_t i)
{
    uint64_t span = lod_span(row, i);
    return row->t->start_ns[span] + row->t->dur_ns[span];
}

uint64_t lod_span_at(const LodRow *row, int64_t at_ns)
{
    uint64_t i = lod_spans_before(row, at_ns + 1);
    if (i == 0)
        return NONE_U64;
    uint64_t ahead = lod_span_ahead(row, i);
    bool runs =
        at_ns < span_end_ns(row, ahead) || at_ns == row->t->start_ns[lod_span(row, ahead)];
    return runs ? ahead : NONE_U64;
}

static bool holds_at(const Cover *c, uint64_t moment, int64_t at_ns)
{
    return c->at_ns[moment] <= at_ns && (moment + 1 >= c->n || at_ns < c->at_ns[moment + 1]);
}

uint64_t lod_moment_at(const Cover *c, uint64_t last, int64_t at_ns)
{
    enum { NEAR = 8 };
    for (int n = 0; n < NEAR && last + 1 < c->n && c->at_ns[last + 1] <= at_ns; n++)
        last++;
    if (holds_at(c, last, at_ns))
        return last;
    uint64_t low = 0, high = c->n;
    while (low + 1 < high) {
        uint64_t middle = low + (high - low) / 2;
        if (c->at_ns[middle] <= at_ns)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* First span that ends after at_ns. */
static uint64_t first_span(const LodRow *row, int64_t at_ns)
{
    uint64_t i = lod_spans_before(row, at_ns);
    if (i == 0)
        return 0;
    uint64_t ahead = lod_span_ahead(row, i);
    return span_end_ns(row, ahead) > at_ns ? ahead : i;
}

/* ---- exact sums ---- */

/* Of spans 0 .. i - 1, from the nearest block. */
static void sums_before(const LodRow *row, uint64_t i, CoverCursor *cursor, int64_t ns[LOD_N])
{
    uint64_t block = i / LOD_BLOCK;
    memset(ns, 0, LOD_N * sizeof *ns);
    for (uint32_t s = 0; s < row->kinds_n; s++)
        ns[row->kind[s]] = row->before[block * row->kinds_n + s];
    for (uint64_t k = block * LOD_BLOCK; k < i; k++)
        lod_add_span(row, lod_span(row, k), INT64_MIN, INT64_MAX, cursor, ns);
}

static void lane_sums(const LodRow *row, int64_t from_ns, int64_t to_ns, CoverCursor *cursor,
                      int64_t ns[LOD_N])
{
    uint64_t first = first_span(row, from_ns), last = lod_spans_before(row, to_ns);
    int64_t before[LOD_N];
    memset(ns, 0, LOD_N * sizeof *ns);
    if (last <= first)
        return;
    if (last - first > 2 * LOD_BLOCK) { /* all but the first and the last by blocks */
        sums_before(row, last - 1, cursor, ns);
        sums_before(row, first + 1, cursor, before);
        for (int k = 0; k < LOD_N; k++)
            ns[k] -= before[k];
        lod_add_span(row, lod_span(row, first), from_ns, to_ns, cursor, ns);
        lod_add_span(row, lod_span(row, last - 1), from_ns, to_ns, cursor, ns);
        return;
    }
    for (uint64_t i = first; i < last; i++)
        lod_add_span(row, lod_span(row, i), from_ns, to_ns, cursor, ns);
}

static void strip_sums(CoverCursor *cursor, int64_t from_ns, int64_t to_ns, int64_t ns[LOD_N])
{
    CoverSum sum = cover_next(cursor, from_ns, to_ns);
    memset(ns, 0, LOD_N * sizeof *ns);
    for (int mask = 1; mask < COVER_MASKS; mask++)
        ns[lod_mask_kind((uint8_t)mask)] += sum.ns[mask];
}

static void row_sums(const LodRow *row, int64_t from_ns, int64_t to_ns, CoverCursor *cursor,
                     int64_t ns[LOD_N])
{
    if (row->t)
        lane_sums(row, from_ns, to_ns, cursor, ns);
    else
        strip_sums(cursor, from_ns, to_ns, ns);
}

void lod_sums(const LodRow *row, int64_t from_ns, int64_t to_ns, int64_t ns[LOD_N])
{
    CoverCursor cursor = { .cover = row->cover };
    memset(ns, 0, LOD_N * sizeof *ns);
    if (row->levels_n > 0 && from_ns < to_ns)
        row_sums(row, from_ns, to_ns, &cursor, ns);
}

/* ---- columns ---- */

typedef struct Draw {
    const LodRow *row;
    const LodWindow *w;
    const LodSink *sink;
    CoverCursor cursor;        /* for lengths of spans */
    int64_t pixel_ns, rest_ns; /* a pixel is pixel_ns, and rest_ns / width more */
    int64_t wide_ns;           /* at least a pixel */
    uint64_t moment;           /* of the cover, where the walk is */
    uint32_t x;                /* the column being summed up */
    int64_t x_from_ns, x_to_ns;
    int64_t ns[LOD_N];
    bool any;
    uint32_t pieces_n; /* small ones that it has */
} Draw;

/* lod_pixel_ns without its divisions. */
static int64_t pixel_ns(const Draw *d, uint32_t x)
{
    return d->w->from_ns + d->pixel_ns * x + (int64_t)((uint64_t)d->rest_ns * x / d->w->width);
}

static void open_column(Draw *d, uint32_t x)
{
    d->x = x;
    d->x_from_ns = pixel_ns(d, x);
    d->x_to_ns = pixel_ns(d, x + 1);
    d->pieces_n = 0;
    d->any = false;
    memset(d->ns, 0, sizeof d->ns);
}

/* A share rounded up, so that what is there is seen, and cut to what is left. */
static uint32_t take_share(double share, uint32_t *left)
{
    uint32_t part = *left;
    if (share < *left) {
        part = (uint32_t)share;
        part += part < share;
    }
    *left -= part;
    return part;
}

static void put_column(Draw *d)
{
    uint32_t share[LOD_N] = { 0 }, left = LOD_FULL;
    if (!d->any)
        return;
    double scale = LOD_FULL / (double)max_i64(1, d->x_to_ns - d->x_from_ns);
    for (int k = 0; k < LOD_N; k++)
        if (d->ns[k] > 0)
            share[k] = take_share((double)d->ns[k] * scale, &left);
    if (left < LOD_FULL)
        d->sink->column(d->sink->user, d->x, share);
}

static void move_column(Draw *d, int64_t at_ns)
{
    if (at_ns < d->x_to_ns)
        return;
    put_column(d);
    open_column(d, d->x + 1);
    if (at_ns >= d->x_to_ns)
        open_column(d, lod_pixel_of(d->w, at_ns));
}

static void put_piece(Draw *d, uint64_t span, LodKind kind, int64_t from_ns, int64_t to_ns)
{
    /* Where a ns is wider than a pixel, columns cannot say where in it nothing lasts. */
    bool moment = from_ns == to_ns && d->pixel_ns == 0;
    if (moment || to_ns - from_ns >= d->wide_ns) {
        if (d->any) { /* what came before it, first */
            put_column(d);
            open_column(d, d->x);
        }
        d->sink->piece(d->sink->user, span, kind, from_ns, to_ns);
        return;
    }
    if (to_ns == from_ns)
        to_ns = min_i64(from_ns + 1, d->w->to_ns); /* of no length, and yet there */
    for (int64_t a = from_ns, b; a < to_ns; a = b) {
        move_column(d, a);
        b = min_i64(to_ns, d->x_to_ns);
        d->ns[kind] += b - a;
        d->any = true;
    }
    d->pieces_n++;
}

/* Adds all of the row within a part of the column. */
static void add_sums(Draw *d, int64_t from_ns, int64_t to_ns)
{
    int64_t ns[LOD_N];
    row_sums(d->row, from_ns, to_ns, &d->cursor, ns);
    for (int k = 0; k < LOD_N; k++)
        d->ns[k] += ns[k];
    d->any = true;
}

/* Has the column so many pieces that the rest of it is better taken by sums? */
static bool is_crowded(const Draw *d, int64_t at_ns)
{
    return d->pieces_n > LOD_BLOCK && at_ns >= d->x_from_ns && at_ns < d->x_to_ns;
}

/* ---- walking ---- */

/* Moments of a cover in [from_ns, to_ns); of a span: what of it is exposed. */
static void walk_cover(Draw *d, uint64_t span, LodKind kind, int64_t from_ns, int64_t to_ns)
{
    const Cover *c = d->row->cover;
    int64_t a = from_ns;
    while (a < to_ns) {
        uint64_t i = d->moment = lod_moment_at(c, d->moment, a);
        for (uint32_t n = 0; a < to_ns && n <= LOD_BLOCK; i++, n++) {
            int64_t b = i + 1 < c->n ? min_i64(to_ns, c->at_ns[i + 1]) : to_ns;
            LodKind k = span == NONE_U64             ? lod_mask_kind(c->mask[i])
                        : c->mask[i] & COVER_COMPUTE ? kind
                                                     : LOD_EXPOSED;
            if (k != LOD_N)
                put_piece(d, span, k, a, b);
            a = b;
        }
        if (a < to_ns && is_crowded(d, a)) {
            int64_t b = min_i64(to_ns, d->x_to_ns);
            if (span == NONE_U64)
                add_sums(d, a, b);
            else
                lod_add_span(d->row, span, a, b, &d->cursor, d->ns);
            a = b;
        }
    }
}

static void walk_span(Draw *d, uint64_t span)
{
    const Timeline *t = d->row->t;
    LodKind kind = lod_class_kind(t->span_class[span]);
    int64_t a = max_i64(d->w->from_ns, t->start_ns[span]);
    int64_t b = min_i64(d->w->to_ns, t->start_ns[span] + t->dur_ns[span]);
    if (b < a)
        return; /* of length 0, before the window */
    bool cut = lod_is_cut(d->row, span) && a < b;
    if (cut && b - a >= d->wide_ns) {
        walk_cover(d, span, kind, a, b);
        return;
    }
    if (!cut) {
        put_piece(d, span, kind, a, b);
        return;
    }
    for (int64_t end; a < b; a = end) { /* small: its two parts, pixel by pixel */
        move_column(d, a);
        end = min_i64(b, d->x_to_ns);
        lod_add_span(d->row, span, a, end, &d->cursor, d->ns);
        d->any = true;
    }
    d->pieces_n++;
}

/* The spans of a crowded column up to the last one, which may reach further; its number. */
static uint64_t skip_spans(Draw *d, uint64_t i, int64_t at_ns)
{
    const LodRow *row = d->row;
    uint64_t last = lod_spans_before(row, d->x_to_ns) - 1;
    int64_t last_ns = row->t->start_ns[lod_span(row, last)];
    if (last > i && last_ns > at_ns)
        add_sums(d, at_ns, last_ns);
    d->pieces_n = 0;
    return last;
}

static void walk_lane(Draw *d)
{
    const LodRow *row = d->row;
    uint64_t i = first_span(row, d->w->from_ns);
    while (i < row->n) {
        int64_t start_ns = row->t->start_ns[lod_span(row, i)];
        if (start_ns >= d->w->to_ns)
            break;
        if (is_crowded(d, start_ns))
            i = skip_spans(d, i, start_ns);
        walk_span(d, lod_span(row, i++));
    }
}

static void walk(Draw *d)
{
    const LodRow *row = d->row;
    open_column(d, 0);
    if (row->t) {
        walk_lane(d);
    } else {
        int64_t a = max_i64(d->w->from_ns, row->begin_ns);
        int64_t b = min_i64(d->w->to_ns, row->end_ns);
        if (a < b)
            walk_cover(d, NONE_U64, LOD_N, a, b);
    }
    put_column(d);
}

/* ---- reading the pyramid ---- */

typedef struct Reader {
    const LodRow *row;
    const LodLevel *level;
    uint32_t shift; /* of its bins */
    double bin_ns;
    double scale; /* 1 / pixel */
} Reader;

/* Length times share, by slot, of [a, b) since begin_ns; kinds_n is a constant where it is
 * inlined.  Whole bins are summed up before they are multiplied. */
static inline void read_kinds(const Reader *r, uint64_t a, uint64_t b, double sum[LOD_N],
                              uint32_t kinds_n)
{
    uint64_t first = a >> r->shift, last = (b - 1) >> r->shift;
    const uint16_t *share = r->level->share + first * kinds_n;
    double first_ns = (double)(min_u64(b, (first + 1) << r->shift) - a);
    for (uint32_t s = 0; s < kinds_n; s++)
        sum[s] = first_ns * share[s];
    if (first == last)
        return;
    uint32_t whole[LOD_N] = { 0 };
    for (uint64_t bin = first + 1; bin < last; bin++) {
        share += kinds_n;
        for (uint32_t s = 0; s < kinds_n; s++)
            whole[s] += share[s];
    }
    share += kinds_n;
    double last_ns = (double)(b - (last << r->shift));
    for (uint32_t s = 0; s < kinds_n; s++)
        sum[s] += r->bin_ns * whole[s] + last_ns * share[s];
}

static void read_bins(const Reader *r, int64_t from_ns, int64_t to_ns, double sum[LOD_N])
{
    uint64_t a = (uint64_t)max_i64(0, from_ns - r->row->begin_ns);
    uint64_t b = (uint64_t)max_i64(0, to_ns - r->row->begin_ns);
    b = min_u64(b, r->level->bins_n << r->shift);
    if (a >= b)
        return;
    switch (r->row->kinds_n) {
    case 1:
        read_kinds(r, a, b, sum, 1);
        break;
    case 2:
        read_kinds(r, a, b, sum, 2);
        break;
    default:
        read_kinds(r, a, b, sum, r->row->kinds_n);
        break;
    }
}

static void read_column(Draw *d, const Reader *r, uint32_t x, int64_t from_ns, int64_t to_ns)
{
    double sum[LOD_N] = { 0 };
    uint32_t share[LOD_N] = { 0 }, left = LOD_FULL;
    read_bins(r, from_ns, to_ns, sum);
    double scale = to_ns - from_ns == d->pixel_ns ? r->scale : 1.0 / (double)(to_ns - from_ns);
    for (uint32_t s = 0; s < d->row->kinds_n; s++)
        share[d->row->kind[s]] = take_share(sum[s] * scale, &left);
    if (left < LOD_FULL)
        d->sink->column(d->sink->user, x, share);
}

static void read_pyramid(Draw *d, uint32_t level)
{
    const LodRow *row = d->row;
    Reader r = { row, &row->level[level], row->shift + 2 * level, 0,
                 1.0 / (double)d->pixel_ns };
    r.bin_ns = (double)((uint64_t)1 << r.shift);
    if (d->w->to_ns <= row->begin_ns || d->w->from_ns > row->end_ns)
        return;
    uint32_t x = lod_pixel_of(d->w, max_i64(d->w->from_ns, row->begin_ns));
    int64_t from_ns = pixel_ns(d, x);
    for (; x < d->w->width && from_ns <= row->end_ns; x++) {
        int64_t to_ns = pixel_ns(d, x + 1);
        read_column(d, &r, x, from_ns, to_ns);
        from_ns = to_ns;
    }
}

/* Are bins of 2^shift ns wider than a pixel? */
static bool is_wider(uint32_t shift, int64_t pixel_ns)
{
    return shift > 62 || (uint64_t)1 << shift > (uint64_t)pixel_ns;
}

void lod_extract(const LodRow *row, const LodWindow *w, const LodSink *sink)
{
    ASSERT(w->from_ns < w->to_ns && w->width > 0);
    if (row->levels_n == 0)
        return;
    Draw d = { .row = row, .w = w, .sink = sink, .cursor = { .cover = row->cover } };
    d.pixel_ns = (w->to_ns - w->from_ns) / w->width;
    d.rest_ns = (w->to_ns - w->from_ns) % w->width;
    d.wide_ns = d.pixel_ns + (d.rest_ns > 0);
    uint32_t level = row->levels_n;
    while (level > 0 && is_wider(row->shift + 2 * (level - 1), d.pixel_ns))
        level--;
    if (level == 0)
        walk(&d);
    else
        read_pyramid(&d, level - 1);
}

/*
 * lod.c - builds a row: its spans, block sums, and the pyramid, in one pass.
 *
 * Pieces come in order and do not overlap, so only the bin that is being filled needs
 * exact sums; it is rounded to shares when the next one begins.
 */
#include "viz/lod_parts.h"

#include <stdlib.h>
#include <string.h>

enum { SPANS_PER_BIN = 1, LANE_LAST = UINT8_MAX };

/* ---- from spans to lengths ---- */

void lod_add_span(const LodRow *row, uint64_t span, int64_t from_ns, int64_t to_ns,
                  CoverCursor *cursor, int64_t ns[LOD_N])
{
    const Timeline *t = row->t;
    int64_t a = max_i64(from_ns, t->start_ns[span]);
    int64_t b = min_i64(to_ns, t->start_ns[span] + t->dur_ns[span]);
    if (a >= b)
        return;
    LodKind kind = lod_class_kind(t->span_class[span]);
    if (!lod_is_cut(row, span)) {
        ns[kind] += b - a;
        return;
    }
    CoverSum sum = cover_next(cursor, a, b);
    int64_t overlapped = 0;
    for (int mask = 0; mask < COVER_MASKS; mask++)
        overlapped += mask & COVER_COMPUTE ? sum.ns[mask] : 0;
    ns[kind] += overlapped;
    ns[LOD_EXPOSED] += b - a - overlapped;
}

/* ---- the pyramid's finest level ---- */

typedef struct Fill {
    LodRow *row;
    uint64_t bin;
    int64_t edge_ns;    /* where it ends */
    int64_t ns[LOD_N];  /* of the bin, by slot */
    int64_t sum[LOD_N]; /* of all, by slot */
    uint64_t moment;    /* of the cover, where the last piece was */
    int64_t done_ns;    /* end of the last piece */
} Fill;

/* Never 0 for what is not 0. */
static uint16_t share_of(int64_t ns, uint32_t shift)
{
    uint64_t part = min_u64((uint64_t)ns, (uint64_t)1 << shift);
    if (shift > 46) { /* the product must fit in 64 bits */
        part >>= shift - 46;
        shift = 46;
        part = part ? part : ns > 0;
    }
    return (uint16_t)((part * LOD_FULL + (((uint64_t)1 << shift) - 1)) >> shift);
}

static void flush_bin(Fill *f)
{
    LodRow *row = f->row;
    uint16_t *share = row->level[0].share + f->bin * row->kinds_n;
    for (uint32_t s = 0; s < row->kinds_n; s++) {
        share[s] = share_of(f->ns[s], row->shift);
        f->ns[s] = 0;
    }
}

static void open_bin(Fill *f, uint64_t bin)
{
    f->bin = bin;
    f->edge_ns = f->row->begin_ns + (int64_t)((bin + 1) << f->row->shift);
}

static Fill fill_open(LodRow *row)
{
    Fill f = { .row = row, .done_ns = row->begin_ns };
    open_bin(&f, 0);
    return f;
}

/* Of a piece that reaches over the running bin. */
static void fill_bins(Fill *f, uint32_t slot, int64_t a, int64_t b)
{
    const LodRow *row = f->row;
    for (int64_t end; a < b; a = end) {
        uint64_t bin = (uint64_t)(a - row->begin_ns) >> row->shift;
        if (bin >= row->level[0].bins_n)
            break;
        if (bin != f->bin) {
            flush_bin(f);
            open_bin(f, bin);
        }
        end = min_i64(b, f->edge_ns);
        f->ns[slot] += end - a;
    }
}

/* A piece that touches what was filled before (of the last lane) is shortened. */
static inline void fill_piece(Fill *f, int64_t from_ns, int64_t to_ns, LodKind kind)
{
    uint32_t slot = f->row->slot[kind];
    f->sum[slot] += to_ns - from_ns;
    int64_t a = max_i64(from_ns, f->done_ns);
    int64_t b = max_i64(to_ns, from_ns + 1); /* what is there can be seen */
    f->done_ns = max_i64(f->done_ns, to_ns);
    if (b > f->edge_ns)
        fill_bins(f, slot, a, b);
    else if (a < b)
        f->ns[slot] += b - a;
}

static void fill_cut(Fill *f, int64_t from_ns, int64_t to_ns, LodKind kind)
{
    const Cover *c = f->row->cover;
    if (c->n == 0 || from_ns < c->begin_ns || from_ns >= c->end_ns) {
        fill_piece(f, from_ns, to_ns, LOD_EXPOSED);
        return;
    }
    uint64_t i = lod_moment_at(c, f->moment, from_ns);
    for (int64_t a = from_ns, b = a;; a = b, i++) {
        b = i + 1 < c->n ? min_i64(to_ns, c->at_ns[i + 1]) : to_ns;
        fill_piece(f, a, b, c->mask[i] & COVER_COMPUTE ? kind : LOD_EXPOSED);
        if (b == to_ns)
            break;
    }
    f->moment = i;
}

/* ---- the coarser levels ---- */

static void add_level(LodRow *row)
{
    const LodLevel *fine = &row->level[row->levels_n - 1];
    LodLevel *coarse = &row->level[row->levels_n++];
    uint32_t kinds_n = row->kinds_n;
    coarse->bins_n = div_up_u64(fine->bins_n, 4);
    coarse->share = mem_zero(coarse->bins_n * kinds_n, sizeof *coarse->share);
    for (uint64_t b = 0; b < coarse->bins_n; b++) {
        uint64_t last = min_u64(4 * b + 4, fine->bins_n);
        for (uint32_t s = 0; s < kinds_n; s++) {
            uint32_t sum = 0;
            for (uint64_t k = 4 * b; k < last; k++)
                sum += fine->share[k * kinds_n + s];
            coarse->share[b * kinds_n + s] = (uint16_t)((sum + 3) / 4);
        }
    }
}

static void open_pyramid(LodRow *row, uint64_t pieces_n)
{
    uint64_t length = (uint64_t)(row->end_ns - row->begin_ns) + 1;
    uint64_t bins_n = max_u64(1, pieces_n / SPANS_PER_BIN);
    while (row->shift < 62 && length >> row->shift > bins_n)
        row->shift++;
    row->levels_n = 1;
    row->level[0].bins_n = (length >> row->shift) + 1;
    row->level[0].share =
        mem_zero(row->level[0].bins_n * row->kinds_n, sizeof *row->level[0].share);
}

static void close_pyramid(LodRow *row)
{
    while (row->level[row->levels_n - 1].bins_n > 1)
        add_level(row);
}

static void has_kind(LodRow *row, bool seen[LOD_N], LodKind kind)
{
    if (!seen[kind]) {
        seen[kind] = true;
        row->slot[kind] = (uint8_t)row->kinds_n;
        row->kind[row->kinds_n++] = (uint8_t)kind;
    }
}

/* ---- lanes ---- */

static void take_spans(LodRow *row, const LodChoice *c)
{
    const Timeline *t = row->t;
    const Track *track = &t->tracks[row->track];
    const uint8_t *lanes = c->lanes ? c->lanes : t->lane;
    row->first = track->span_first;
    row->n = track->span_n;
    if (track->lanes_n <= 1 && !c->keep)
        return;
    uint64_t end = track->span_first + track->span_n, n = 0;
    for (uint64_t i = track->span_first; i < end; i++)
        n += lanes[i] == row->lane && (!c->keep || c->keep(c->user, i));
    row->n = n;
    row->index = mem_zero(n + 1, sizeof *row->index);
    n = 0;
    for (uint64_t i = track->span_first; i < end; i++)
        if (lanes[i] == row->lane && (!c->keep || c->keep(c->user, i)))
            row->index[n++] = i;
}

/* Where spans may overlap, the last lane, any may end last; else one of the last start. */
static void see_end(LodRow *row)
{
    uint64_t i = row->lane >= LANE_LAST ? 0 : lod_span_ahead(row, row->n);
    row->end_ns = row->begin_ns;
    for (; i < row->n; i++) {
        uint64_t span = lod_span(row, i);
        row->end_ns = max_i64(row->end_ns, row->t->start_ns[span] + row->t->dur_ns[span]);
    }
}

static uint32_t class_set(const LodRow *row)
{
    uint32_t set = 0;
    if (!row->index)
        return timeline_class_set(row->t, row->first, row->n);
    for (uint64_t i = 0; i < row->n; i++)
        set |= (uint32_t)1 << row->t->span_class[row->index[i]];
    return set;
}

static void see_spans(LodRow *row)
{
    bool seen[LOD_N] = { false };
    uint32_t set = class_set(row);
    row->begin_ns = row->t->start_ns[lod_span(row, 0)];
    see_end(row);
    for (uint32_t c = 0; c < SPAN_CLASS_N; c++)
        if (set >> c & 1) {
            has_kind(row, seen, lod_class_kind((uint8_t)c));
            if (row->cover && cover_bit((uint8_t)c) == COVER_COMM)
                has_kind(row, seen, LOD_EXPOSED);
        }
}

static void fill_span(Fill *f, uint64_t i)
{
    LodRow *row = f->row;
    uint64_t span = lod_span(row, i);
    if (i % LOD_BLOCK == 0)
        memcpy(row->before + i / LOD_BLOCK * row->kinds_n, f->sum,
               row->kinds_n * sizeof *f->sum);
    int64_t from_ns = row->t->start_ns[span], to_ns = from_ns + row->t->dur_ns[span];
    LodKind kind = lod_class_kind(row->t->span_class[span]);
    if (lod_is_cut(row, span))
        fill_cut(f, from_ns, to_ns, kind);
    else
        fill_piece(f, from_ns, to_ns, kind);
}

void lod_build_lane(LodRow *row, const Timeline *t, uint32_t track, uint32_t lane,
                    const Cover *cover)
{
    lod_build_some(row, t, track, lane, cover, &(LodChoice){ NULL, NULL, NULL });
}

void lod_build_some(LodRow *row, const Timeline *t, uint32_t track, uint32_t lane,
                    const Cover *cover, const LodChoice *choice)
{
    ASSERT(t->sealed);
    *row = (LodRow){ .t = t, .cover = cover, .track = track, .lane = lane };
    take_spans(row, choice);
    if (row->n == 0)
        return;
    see_spans(row);
    row->before = mem_zero((row->n / LOD_BLOCK + 1) * row->kinds_n, sizeof *row->before);
    open_pyramid(row, row->n);
    Fill f = fill_open(row);
    for (uint64_t i = 0; i < row->n; i++)
        fill_span(&f, i);
    flush_bin(&f);
    close_pyramid(row);
}

/* ---- strips ---- */

void lod_build_strip(LodRow *row, const Cover *cover)
{
    *row = (LodRow){ .cover = cover, .begin_ns = cover->begin_ns, .end_ns = cover->end_ns };
    if (cover->n < 2)
        return;
    bool seen[LOD_N] = { false };
    for (uint64_t i = 0; i + 1 < cover->n; i++)
        if (cover->mask[i])
            has_kind(row, seen, lod_mask_kind(cover->mask[i]));
    open_pyramid(row, cover->n);
    Fill f = fill_open(row);
    for (uint64_t i = 0; i + 1 < cover->n; i++)
        if (cover->mask[i])
            fill_piece(&f, cover->at_ns[i], cover->at_ns[i + 1], lod_mask_kind(cover->mask[i]));
    flush_bin(&f);
    close_pyramid(row);
}

void lod_free(LodRow *row)
{
    for (uint32_t l = 0; l < row->levels_n; l++)
        free(row->level[l].share);
    free(row->index);
    free(row->before);
    *row = (LodRow){ 0 };
}

uint64_t lod_memory_bytes(const LodRow *row)
{
    uint64_t bytes = row->index ? row->n * sizeof *row->index : 0;
    if (row->before)
        bytes += (row->n / LOD_BLOCK + 1) * row->kinds_n * sizeof *row->before;
    for (uint32_t l = 0; l < row->levels_n; l++)
        bytes += row->level[l].bins_n * row->kinds_n * sizeof(uint16_t);
    return bytes;
}

/*
 * test_lod.c - rows of drawn timelines at many zooms, beside a sum over all spans.
 *
 * Walked pixels must be exact, pyramid pixels near; nothing that is there may vanish,
 * nothing may appear where nothing is.
 */
#include "viz/lod.h"

#include "tests/check.h"

/* ---- timelines ---- */

typedef struct World {
    Timeline t;
    Covers covers;
    uint64_t seed;
} World;

static uint64_t draw(World *w, uint64_t n)
{
    w->seed = mix_u64(w->seed);
    return w->seed % n;
}

/* A stream with bursts and pauses; mean length of a span given. */
static void add_stream(World *w, const char *name, SpanClass class_, uint32_t n,
                       int64_t mean_ns)
{
    uint32_t track = timeline_track(&w->t, 0, TRACK_STREAM, name, w->t.tracks_n);
    uint32_t op = intern(&w->t.names, name);
    int64_t at_ns = 1700000000000000000 + (int64_t)draw(w, 100000);
    for (uint32_t i = 0; i < n; i++) {
        int64_t dur_ns = (int64_t)draw(w, (uint64_t)(2 * mean_ns + 1));
        SpanClass c = draw(w, 20) == 0 ? SPAN_MEMORY : class_;
        if (draw(w, 50) == 0)
            dur_ns = 0;
        timeline_span(&w->t, (Span){ .track = track,
                                     .name = op,
                                     .class_ = c,
                                     .start_ns = at_ns,
                                     .dur_ns = dur_ns,
                                     .op = NONE_U32,
                                     .comm = NONE_U32 });
        bool pause = draw(w, 100) == 0;
        at_ns += dur_ns + (int64_t)draw(w, pause ? 1000 * (uint64_t)mean_ns : 3);
    }
}

static World make_world(uint64_t seed, uint32_t n, int64_t mean_ns)
{
    World w = { .seed = seed };
    add_stream(&w, "compute", SPAN_COMPUTE, n, mean_ns);
    add_stream(&w, "comm", SPAN_COMM, n / 8 + 1, 11 * mean_ns);
    add_stream(&w, "p2p", SPAN_P2P, n / 3 + 1, 2 * mean_ns);
    timeline_seal(&w.t);
    covers_build(&w.covers, &w.t);
    return w;
}

static void free_world(World *w)
{
    covers_free(&w->covers);
    timeline_free(&w->t);
}

/* ---- what a row is, the slow way ---- */

static LodKind kind_of(const Timeline *t, uint64_t span, uint8_t mask)
{
    switch (t->span_class[span]) {
    case SPAN_COMPUTE:
        return LOD_COMPUTE;
    case SPAN_MEMORY:
        return LOD_MEMORY;
    case SPAN_COMM:
        return mask & COVER_COMPUTE ? LOD_OVERLAPPED : LOD_EXPOSED;
    default:
        return mask & COVER_COMPUTE ? LOD_P2P : LOD_EXPOSED;
    }
}

static LodKind strip_kind(uint8_t mask)
{
    if (mask & COVER_COMM)
        return mask & COVER_COMPUTE ? LOD_OVERLAPPED : LOD_EXPOSED;
    return mask & COVER_COMPUTE ? LOD_COMPUTE : mask ? LOD_MEMORY : LOD_N;
}

static void slow_sums(const LodRow *row, int64_t from_ns, int64_t to_ns, int64_t ns[LOD_N])
{
    const Cover *c = row->cover;
    memset(ns, 0, LOD_N * sizeof *ns);
    for (uint64_t m = 0; m + 1 < c->n; m++) {
        int64_t a = max_i64(from_ns, c->at_ns[m]), b = min_i64(to_ns, c->at_ns[m + 1]);
        if (a >= b)
            continue;
        if (!row->t && strip_kind(c->mask[m]) != LOD_N)
            ns[strip_kind(c->mask[m])] += b - a;
        for (uint64_t i = 0; i < row->n; i++) {
            uint64_t span = lod_span(row, i);
            int64_t start_ns = max_i64(a, row->t->start_ns[span]);
            int64_t end_ns = min_i64(b, row->t->start_ns[span] + row->t->dur_ns[span]);
            if (start_ns < end_ns)
                ns[kind_of(row->t, span, c->mask[m])] += end_ns - start_ns;
        }
    }
}

/* ---- what is drawn ---- */

enum { WIDTH_MAX = 400 };

typedef struct Picture {
    const LodWindow *w;
    double full[WIDTH_MAX][LOD_N]; /* share of the pixel */
    bool touched[WIDTH_MAX];
    int64_t last_ns;
    uint32_t disorder_n, pieces_n, columns_n, small_n;
} Picture;

static void paint_piece(void *user, uint64_t span, LodKind kind, int64_t from_ns, int64_t to_ns)
{
    Picture *p = user;
    (void)span;
    p->pieces_n++;
    /* What has no length may begin together with the one before it. */
    bool moment = from_ns == to_ns && p->w->to_ns - p->w->from_ns < p->w->width;
    p->disorder_n += (from_ns < p->last_ns && !moment) || to_ns < from_ns;
    p->disorder_n += from_ns < p->w->from_ns || to_ns > p->w->to_ns;
    p->small_n += !moment && (double)(to_ns - from_ns) * p->w->width <
                                 (double)(p->w->to_ns - p->w->from_ns);
    p->last_ns = max_i64(p->last_ns, to_ns);
    for (uint32_t x = lod_pixel_of(p->w, from_ns); x < p->w->width; x++) {
        int64_t x0 = lod_pixel_ns(p->w, x), x1 = lod_pixel_ns(p->w, x + 1);
        if (x0 >= to_ns)
            break;
        p->touched[x] = true;
        if (x1 > x0)
            p->full[x][kind] +=
                (double)(min_i64(x1, to_ns) - max_i64(x0, from_ns)) / (double)(x1 - x0);
    }
}

static void paint_column(void *user, uint32_t x, const uint32_t share[LOD_N])
{
    Picture *p = user;
    uint32_t sum = 0;
    p->columns_n++;
    p->touched[x] = true;
    for (int k = 0; k < LOD_N; k++) {
        p->full[x][k] += share[k] / (double)LOD_FULL;
        sum += share[k];
    }
    p->disorder_n += sum > LOD_FULL || sum == 0;
}

typedef struct Error {
    double worst, sum, drawn, meant;
    uint32_t pixels_n, lost_n, invented_n;
} Error;

static void check_window(const LodRow *row, const LodWindow *w, bool exact)
{
    static Picture p;
    memset(&p, 0, sizeof p);
    p.w = w;
    p.last_ns = INT64_MIN;
    lod_extract(row, w, &(LodSink){ &p, paint_piece, paint_column });
    Error e = { 0 };
    for (uint32_t x = 0; x < w->width; x++) {
        int64_t ns[LOD_N], x0 = lod_pixel_ns(w, x), x1 = lod_pixel_ns(w, x + 1);
        if (x1 == x0)
            continue;
        slow_sums(row, x0, x1, ns);
        double meant = 0, drawn = 0;
        for (int k = 0; k < LOD_N; k++) {
            double share = (double)ns[k] / (double)(x1 - x0);
            e.worst = fmax(e.worst, fabs(share - p.full[x][k]));
            meant += share;
            drawn += p.full[x][k];
        }
        e.meant += meant;
        e.drawn += drawn;
        e.lost_n += meant > 0 && !p.touched[x];
        e.invented_n += meant == 0 && drawn > 0.51 && x1 - x0 > 10;
        e.pixels_n++;
    }
    CHECK_INT(0, p.disorder_n);
    CHECK_INT(0, p.small_n);
    CHECK_INT(0, e.lost_n);
    CHECK_INT(0, e.invented_n);
    if (exact) { /* but for rounding, and spans of no length, drawn as 1 ns */
        double pixel_ns = (double)(w->to_ns - w->from_ns) / w->width;
        CHECK(e.worst < 2e-4 + 8.0 / fmax(pixel_ns, 1));
    } else {
        CHECK(e.worst < 0.6);
        CHECK(fabs(e.drawn - e.meant) <= 0.02 * e.meant + 0.6);
    }
}

static void check_zooms(World *w, const LodRow *row)
{
    int64_t begin_ns = row->begin_ns, length_ns = row->end_ns - row->begin_ns;
    for (int zoom = 0; zoom < 12; zoom++) {
        int64_t window_ns = max_i64(3, length_ns >> (2 * zoom));
        int64_t from_ns = begin_ns + (int64_t)draw(w, (uint64_t)(length_ns - window_ns + 1));
        if (zoom == 0) {
            from_ns -= length_ns / 7;
            window_ns += length_ns / 3;
        }
        uint32_t width = 1 + (uint32_t)draw(w, WIDTH_MAX);
        LodWindow window = { from_ns, from_ns + window_ns, width };
        uint64_t pixel_ns = (uint64_t)window_ns / width;
        check_window(row, &window, (uint64_t)1 << row->shift > pixel_ns);
    }
}

static void check_sums(World *w, const LodRow *row)
{
    int64_t length_ns = row->end_ns - row->begin_ns;
    for (int i = 0; i < 20; i++) {
        int64_t a = row->begin_ns + (int64_t)draw(w, (uint64_t)length_ns);
        int64_t b = a + 1 + (int64_t)draw(w, (uint64_t)length_ns >> (i % 10));
        int64_t slow[LOD_N], fast[LOD_N];
        slow_sums(row, a, b, slow);
        lod_sums(row, a, b, fast);
        for (int k = 0; k < LOD_N; k++)
            CHECK_INT(slow[k], fast[k]);
    }
}

static void check_world(uint64_t seed, uint32_t n, int64_t mean_ns)
{
    World w = make_world(seed, n, mean_ns);
    LodRow row;
    for (uint32_t k = 0; k < w.t.tracks_n; k++) {
        lod_build_lane(&row, &w.t, k, 0, &w.covers.rank[0]);
        check_zooms(&w, &row);
        check_sums(&w, &row);
        lod_free(&row);
    }
    lod_build_strip(&row, &w.covers.rank[0]);
    check_zooms(&w, &row);
    check_sums(&w, &row);
    lod_free(&row);
    free_world(&w);
}

static void pixels_are_what_the_spans_say(void)
{
    for (uint64_t seed = 1; seed <= check_cases(8); seed++) {
        check_world(seed, 20, 1000);
        check_world(seed, 400, 5);
        check_world(seed, 2000, 3000);
    }
}

static void one_span_and_none(void)
{
    World w = { .seed = 1 };
    timeline_track(&w.t, 0, TRACK_STREAM, "empty", 0);
    uint32_t track = timeline_track(&w.t, 0, TRACK_STREAM, "one", 1);
    timeline_span(&w.t, (Span){ .track = track,
                                .name = intern(&w.t.names, "x"),
                                .class_ = SPAN_COMM,
                                .start_ns = 7,
                                .op = NONE_U32,
                                .comm = NONE_U32 });
    timeline_seal(&w.t);
    covers_build(&w.covers, &w.t);
    LodRow row;
    Picture p = { .last_ns = INT64_MIN };
    LodWindow window = { 0, 100, 10 };
    LodSink sink = { &p, paint_piece, paint_column };
    p.w = &window;
    lod_build_lane(&row, &w.t, 0, 0, &w.covers.rank[0]);
    lod_extract(&row, &window, &sink);
    CHECK(row.n == 0 && p.pieces_n + p.columns_n == 0);
    lod_free(&row);
    lod_build_lane(&row, &w.t, 1, 0, &w.covers.rank[0]);
    CHECK_U64(1, row.n);
    lod_extract(&row, &window, &sink);
    CHECK(p.touched[0]);
    CHECK_INT(1, (int)(p.pieces_n + p.columns_n));
    LodWindow close = { 0, 20, 100 }; /* a ns is five pixels: it begins in the first of them */
    p = (Picture){ .w = &close, .last_ns = INT64_MIN };
    lod_extract(&row, &close, &sink);
    CHECK_INT(1, (int)p.pieces_n);
    CHECK_INT(0, (int)p.columns_n);
    CHECK_INT(7, p.last_ns);
    CHECK_U64(0, lod_span_at(&row, 7));
    CHECK_U64(NONE_U64, lod_span_at(&row, 8));
    lod_free(&row);
    free_world(&w);
}

/* Nested calls: each lane holds its own. */
static void lanes_of_nested_calls(void)
{
    World w = { .seed = 1 };
    uint32_t track = timeline_track(&w.t, 0, TRACK_HOST, "thread", 0);
    uint32_t name = intern(&w.t.names, "call");
    for (int i = 0; i < 100; i++)
        for (int depth = 0; depth < 3; depth++)
            timeline_span(&w.t, (Span){ .track = track,
                                        .name = name,
                                        .class_ = SPAN_HOST,
                                        .start_ns = 100 * i + 10 * depth,
                                        .dur_ns = 90 - 20 * depth,
                                        .op = NONE_U32,
                                        .comm = NONE_U32 });
    timeline_seal(&w.t);
    for (uint32_t lane = 0; lane < 3; lane++) {
        LodRow row;
        lod_build_lane(&row, &w.t, track, lane, NULL);
        int64_t ns[LOD_N];
        lod_sums(&row, 0, 10000, ns);
        CHECK_U64(100, row.n);
        CHECK_INT(100 * (90 - 20 * (int)lane), ns[LOD_OTHER]);
        CHECK_U64(7, lod_span_at(&row, 700 + 10 * lane));
        lod_free(&row);
    }
    free_world(&w);
}

int main(void)
{
    RUN(pixels_are_what_the_spans_say);
    RUN(one_span_and_none);
    RUN(lanes_of_nested_calls);
    return check_report();
}

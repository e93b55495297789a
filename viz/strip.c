/*
 * strip.c - pieces and columns of a rank's strip, as boxes.
 */
#include "viz/strip.h"

#include <stdio.h>
#include <string.h>

#include "viz/scene_parts.h"

enum { BAND_PCT = 36 };

/* A strip on its way into the list. */
typedef struct Pen {
    const Strip *s;
    uint32_t base; /* the item of the compute that goes on; NONE_U32 */

    Px piece_x1; /* where the last piece ends */

    /* The column that waits for what comes behind it; NONE_U32. */
    uint32_t column, share[LOD_N];

    /* Columns that look alike, as one. */
    Px run_x0, run_x1;
    uint8_t level[LOD_N]; /* shares, in STRIP_LEVELS steps */
} Pen;

TimeClass strip_class(LodKind kind)
{
    static const uint8_t classes[LOD_N] = { TIME_COMPUTE, TIME_OVERLAPPED, TIME_EXPOSED,
                                            TIME_P2P,     TIME_MEMORY,     TIME_HOST };
    return (TimeClass)classes[kind];
}

static void draw_kind(Pen *p, LodKind kind, PxBox box)
{
    if (!px_box_is_empty(box))
        theme_span(p->s->d, p->s->theme, strip_class(kind), box, 255);
}

static PxBox band_of(PxBox box)
{
    Px height = px_max(PX(2), (box.y1 - box.y0) * BAND_PCT / 100 / PX_ONE * PX_ONE);
    return (PxBox){ box.x0, px_max(box.y0, box.y1 - height), box.x1, box.y1 };
}

/* ---- pieces ---- */

/* Compute with and without communication stands on one box as long as it goes on. */
static void draw_base(Pen *p, PxBox box)
{
    DrawList *d = p->s->d;
    if (p->base < d->items_n && !p->s->tips && d->items[p->base].box.x1 == box.x0) {
        d->items[p->base].box.x1 = box.x1;
        return;
    }
    p->base = d->items_n;
    draw_kind(p, LOD_COMPUTE, box);
    if (d->items_n == p->base)
        p->base = NONE_U32;
}

static void tip_piece(Pen *p, LodKind kind, int64_t ns)
{
    char text[96], time[32];
    if (!p->s->tips)
        return;
    view_time_text(time, sizeof time, ns);
    snprintf(text, sizeof text, "%s, %s", time_class_name(strip_class(kind)), time);
    draw_tip(p->s->d, NONE_U32, text);
}

/* ---- columns ---- */

/* A pixel at least of what is there at all. */
static Px at_least_one(Px part, uint32_t level)
{
    return level > 0 ? px_max(part, PX(1)) : 0;
}

static Px part_of(Px height, uint32_t level)
{
    return at_least_one((Px)((int64_t)height * level / STRIP_LEVELS / PX_ONE * PX_ONE), level);
}

/* From below compute and copies, from above what is exposed; they meet where nothing is idle. */
static void draw_run(Pen *p, PxBox box)
{
    const uint8_t *level = p->level;
    Px height = box.y1 - box.y0;
    uint32_t below = (uint32_t)level[LOD_COMPUTE] + level[LOD_OVERLAPPED];
    Px compute = part_of(height, below);
    Px memory = part_of(height, below + level[LOD_MEMORY]) - compute;
    Px exposed = height - part_of(height, STRIP_LEVELS - (uint32_t)level[LOD_EXPOSED]);
    PxBox b = box;
    b.y0 = box.y1 - compute;
    if (compute == height)
        draw_base(p, b);
    else
        draw_kind(p, LOD_COMPUTE, b);
    b.y1 = b.y0;
    b.y0 = px_max(box.y0, b.y1 - at_least_one(memory, level[LOD_MEMORY]));
    draw_kind(p, LOD_MEMORY, b);
    b = (PxBox){ box.x0, box.y0, box.x1, box.y0 + at_least_one(exposed, level[LOD_EXPOSED]) };
    draw_kind(p, LOD_EXPOSED, b);
    b = band_of(box);
    b.y0 = b.y1 - part_of(b.y1 - b.y0, level[LOD_OVERLAPPED]);
    draw_kind(p, LOD_OVERLAPPED, b);
}

static void end_run(Pen *p)
{
    PxBox box = p->s->box;
    if (p->run_x1 == p->run_x0)
        return;
    box.x0 = p->run_x0;
    box.x1 = p->run_x1;
    draw_run(p, box);
    p->run_x0 = p->run_x1;
}

/* In steps, of all that is not idle. */
static uint32_t levels_of_all(const uint32_t share[LOD_N])
{
    uint32_t left = LOD_FULL;
    for (uint32_t k = 0; k < LOD_N; k++)
        left -= share[k] < left ? share[k] : left;
    return STRIP_LEVELS - (left * STRIP_LEVELS + LOD_FULL / 2) / LOD_FULL;
}

/* The kind whose share is most above its level. */
static uint32_t most_short(const uint32_t share[LOD_N], const uint8_t level[LOD_N])
{
    uint32_t kind = 0;
    int64_t most = INT64_MIN;
    for (uint32_t k = 0; k < LOD_N; k++) {
        int64_t lacks = (int64_t)share[k] * STRIP_LEVELS - (int64_t)level[k] * LOD_FULL;
        kind = lacks > most ? k : kind;
        most = max_i64(most, lacks);
    }
    return kind;
}

void strip_levels(const uint32_t share[LOD_N], uint8_t level[LOD_N])
{
    uint32_t sum = 0, all = levels_of_all(share);
    for (uint32_t k = 0; k < LOD_N; k++) {
        uint32_t nearest = (share[k] * STRIP_LEVELS + LOD_FULL / 2) / LOD_FULL;
        level[k] = (uint8_t)(nearest || share[k] == 0 ? nearest : 1);
        sum += level[k];
    }
    for (; sum < all; sum++)
        level[most_short(share, level)]++;
    while (sum > STRIP_LEVELS) {
        uint32_t largest = 0;
        for (uint32_t k = 1; k < LOD_N; k++)
            if (level[k] > level[largest])
                largest = k;
        level[largest]--;
        sum--;
    }
}

/* A column, or the part of one that is left: shares of a whole one. */
static void add_column(Pen *p, Px x0, Px x1, const uint32_t share[LOD_N])
{
    uint32_t higher[LOD_N];
    uint8_t level[LOD_N];
    for (uint32_t k = 0; k < LOD_N; k++)
        higher[k] =
            (uint32_t)min_u64(LOD_FULL, (uint64_t)share[k] * PX_ONE / (uint32_t)(x1 - x0));
    strip_levels(higher, level);
    if (p->run_x1 != x0 || memcmp(level, p->level, sizeof level) != 0) {
        end_run(p);
        p->run_x0 = x0;
        memcpy(p->level, level, sizeof level);
    }
    p->run_x1 = x1;
}

/*
 * The column that waits.  Beside pieces that share its pixel it stands only where they do not,
 * as much higher.  Where they leave hardly room, what must not be missed stands over them.
 */
static void put_waiting(Pen *p, Px next_x0)
{
    if (p->column == NONE_U32)
        return;
    Px x0 = p->s->box.x0 + PX((int32_t)p->column), x1 = x0 + PX(1);
    Px from = px_max(x0, p->piece_x1), to = px_min(x1, next_x0);
    if (from < to)
        add_column(p, from, to, p->share);
    if (to - from < PX_ONE / 4 && (p->share[LOD_EXPOSED] || p->share[LOD_MEMORY])) {
        p->share[LOD_COMPUTE] = p->share[LOD_OVERLAPPED] = 0;
        add_column(p, x0, x1, p->share);
    }
    p->column = NONE_U32;
}

/* ---- what the row hands over ---- */

/* Where a moment is drawn, cut to the box. */
static Px x_of(const Strip *s, int64_t ns)
{
    Px x = px_between(s->box.x0, s->box.x1, ns - s->window.from_ns,
                      s->window.to_ns - s->window.from_ns);
    return px_max(s->box.x0, px_min(s->box.x1, x));
}

static void put_piece(void *user, uint64_t span, LodKind kind, int64_t from_ns, int64_t to_ns)
{
    Pen *p = user;
    PxBox box = p->s->box;
    (void)span;
    box.x0 = x_of(p->s, from_ns);
    box.x1 = px_min(p->s->box.x1, px_max(x_of(p->s, to_ns), box.x0 + PX(1)));
    put_waiting(p, box.x0);
    end_run(p);
    p->piece_x1 = box.x1;
    tip_piece(p, kind, to_ns - from_ns);
    if (kind == LOD_OVERLAPPED || kind == LOD_COMPUTE)
        draw_base(p, box);
    if (kind == LOD_OVERLAPPED)
        box = band_of(box);
    if (kind != LOD_COMPUTE)
        draw_kind(p, kind, box);
}

static void put_column(void *user, uint32_t x, const uint32_t share[LOD_N])
{
    Pen *p = user;
    put_waiting(p, PX_FAR);
    p->column = x;
    memcpy(p->share, share, sizeof p->share);
}

void strip_draw(const Strip *s, const LodRow *row)
{
    Pen pen = { .s = s, .base = NONE_U32, .piece_x1 = -PX_FAR, .column = NONE_U32 };
    PxBox idle = { x_of(s, row->begin_ns), s->box.y0, x_of(s, row->end_ns), s->box.y1 };
    draw_rect(s->d, idle, s->theme->time[TIME_IDLE]);
    lod_extract(row, &s->window, &(LodSink){ &pen, put_piece, put_column });
    put_waiting(&pen, PX_FAR);
    end_run(&pen);
}

/* ---- the axis ---- */

bool strip_tick(int64_t length_ns, uint32_t ticks_max, uint32_t i, StripTick *tick)
{
    int64_t step_ns = scene_tick_ns(max_i64(1, length_ns / max_i64(1, ticks_max)));
    if (i > 0 && (length_ns <= 0 || step_ns > length_ns / i))
        return false;
    int64_t at_ns = (int64_t)i * step_ns;
    tick->part = i > 0 ? (double)at_ns / (double)length_ns : 0;
    scene_tick_text(tick->text, sizeof tick->text, "", at_ns, step_ns);
    return true;
}

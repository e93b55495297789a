/*
 * test_raster.c - the rasteriser against its definition: coverage is area, colours are laid
 * over one another as viz/raster.h says, nothing leaves its clip.
 */
#include "tests/check.h"
#include "viz/raster.h"

enum { SIDE = 48 };

static const Color black = 0xff000000, white = 0xffffffff;

typedef struct World {
    Font font;
    DrawList list;
    Frame frame;
    uint64_t seed;
} World;

/* The list borrows the font, so the world stays where it is. */
static void world_open(World *w, Color background, uint64_t seed)
{
    Err err = { 0 };
    *w = (World){ .seed = seed << 32 };
    font_open(&w->font, 100);
    CHECK(frame_init(&w->frame, SIDE, SIDE, &err));
    draw_begin(&w->list, &w->font, SIDE, SIDE, background);
}

static void world_free(World *w)
{
    frame_free(&w->frame);
    draw_free(&w->list);
    font_free(&w->font);
}

static int32_t pick(World *w, int32_t low, int32_t high)
{
    return low + (int32_t)(mix_u64(w->seed++) % (uint64_t)(high - low + 1));
}

/* Mostly within the frame, sometimes across its edges, a third on whole pixels. */
static PxBox pick_box(World *w)
{
    int32_t grid = pick(w, 0, 2) ? 1 : PX_ONE;
    Px x = pick(w, PX(-8), PX(SIDE)) / grid * grid, y = pick(w, PX(-8), PX(SIDE)) / grid * grid;
    return px_box(x, y, pick(w, 1, PX(20)) / grid * grid, pick(w, 1, PX(20)) / grid * grid);
}

static uint32_t pixel(const World *w, int32_t x, int32_t y)
{
    return w->frame.pixels[y * SIDE + x];
}

/* White on black: the sum of the blue channels, in 1/256 pixels squared. */
static double ink(const World *w)
{
    double sum = 0;
    for (int32_t i = 0; i < SIDE * SIDE; i++)
        sum += (double)(w->frame.pixels[i] & 0xff);
    return sum / 255;
}

/* ---- areas ---- */

static void the_ink_of_a_box_is_its_area(void)
{
    for (uint64_t seed = 0; seed < 400; seed++) {
        World w;
        world_open(&w, black, seed);
        PxBox box = pick_box(&w), frame = { 0, 0, PX(SIDE), PX(SIDE) };
        draw_rect(&w.list, box, white);
        raster_draw(&w.frame, &w.list);
        PxBox seen = px_box_cut(box, frame);
        double area = px_box_is_empty(seen)
                          ? 0
                          : (double)(seen.x1 - seen.x0) * (double)(seen.y1 - seen.y0) / 65536;
        /* Each of at most 80 edge pixels is rounded by at most half a step, twice. */
        CHECK(fabs(ink(&w) - area) <= 80 * 1.0 / 255);
        world_free(&w);
    }
}

/* Points on a circle, in order: convex. */
static uint32_t pick_polygon(World *w, PxPoint *points)
{
    uint32_t n = (uint32_t)pick(w, 3, 12);
    double turn = pick(w, 0, 1000), x = pick(w, PX(14), PX(34)), y = pick(w, PX(14), PX(34));
    double radius = pick(w, PX(2), PX(13));
    for (uint32_t i = 0; i < n; i++) {
        double angle = turn + 6.2831853 * i / n;
        points[i] = (PxPoint){ (Px)(x + radius * cos(angle)), (Px)(y + radius * sin(angle)) };
    }
    return n;
}

static double shoelace(const PxPoint *p, uint32_t n)
{
    double twice = 0;
    for (uint32_t i = 0; i < n; i++) {
        PxPoint a = p[i], b = p[(i + 1) % n];
        twice += (double)a.x * b.y - (double)b.x * a.y;
    }
    return fabs(twice) / 2 / 65536;
}

static void the_ink_of_a_polygon_is_its_area(void)
{
    for (uint64_t seed = 0; seed < 400; seed++) {
        World w;
        PxPoint points[12];
        world_open(&w, black, seed);
        uint32_t n = pick_polygon(&w, points);
        draw_polygon(&w.list, points, n, white);
        raster_draw(&w.frame, &w.list);
        /* Areas are cut to 1/256 in each edge pixel, of which there are at most 4 * 26. */
        CHECK(fabs(ink(&w) - shoelace(points, n)) <= 104 * 1.5 / 256);
        world_free(&w);
    }
}

static bool inside(const PxPoint *p, uint32_t n, double x, double y)
{
    for (uint32_t i = 0; i < n; i++) {
        PxPoint a = p[i], b = p[(i + 1) % n];
        if ((b.x - a.x) * (y - a.y) - (b.y - a.y) * (x - a.x) < 0)
            return false;
    }
    return true;
}

/* The share of 16 x 16 places within the pixel that lie in the polygon. */
static double sampled(const PxPoint *p, uint32_t n, int32_t x, int32_t y)
{
    int hits = 0;
    for (int i = 0; i < 256; i++)
        hits += inside(p, n, PX(x) + 16 * (i % 16) + 8, PX(y) + 16 * (i / 16) + 8);
    return hits / 256.0;
}

static void every_pixel_of_a_polygon_is_covered_as_samples_say(void)
{
    for (uint64_t seed = 0; seed < 12; seed++) {
        World w;
        PxPoint points[12];
        world_open(&w, black, seed);
        uint32_t n = pick_polygon(&w, points);
        draw_polygon(&w.list, points, n, white);
        raster_draw(&w.frame, &w.list);
        for (int32_t y = 0; y < SIDE; y++)
            for (int32_t x = 0; x < SIDE; x++)
                CHECK(fabs((pixel(&w, x, y) & 0xff) / 255.0 - sampled(points, n, x, y)) < 0.08);
        world_free(&w);
    }
}

static void a_line_has_the_ink_of_its_length_and_square_ends(void)
{
    for (uint64_t seed = 0; seed < 200; seed++) {
        World w;
        world_open(&w, black, seed);
        PxPoint p[] = { { pick(&w, PX(8), PX(40)), pick(&w, PX(8), PX(40)) },
                        { pick(&w, PX(8), PX(40)), pick(&w, PX(8), PX(40)) } };
        Px width = pick(&w, PX(1) / 2, PX(4));
        draw_line(&w.list, p, 2, width, white);
        raster_draw(&w.frame, &w.list);
        double length = hypot(p[1].x - p[0].x, p[1].y - p[0].y), wide = width;
        CHECK(length < 1 || fabs(ink(&w) - (length + wide) * wide / 65536) < 0.9);
        world_free(&w);
    }
}

static void half_of_a_dashed_line_is_ink(void)
{
    World w;
    world_open(&w, black, 0);
    PxPoint p[] = { { PX(4), PX(10) }, { PX(44), PX(10) } };
    draw_dashes(&w.list, p, 2, PX(2), PX(5), white);
    raster_draw(&w.frame, &w.list);
    CHECK_NEAR(40, ink(&w), 1e-9);
    CHECK_U64(white, pixel(&w, 8, 9));
    CHECK_U64(black, pixel(&w, 9, 9));
    world_free(&w);
}

/* ---- colours ---- */

static int32_t overlap(Px from, Px to, int32_t at)
{
    int32_t n = px_min(to, PX(at + 1)) - px_max(from, PX(at));
    return n > 0 ? n : 0;
}

static uint32_t rounded(uint32_t numerator, uint32_t denominator)
{
    return (2 * numerator + denominator) / (2 * denominator);
}

static uint32_t laid_over(uint32_t under, Color color, uint32_t cover)
{
    uint32_t alpha = rounded(color_alpha(color) * cover, 256), out = 0xff;
    for (int shift = 16; shift >= 0; shift -= 8)
        out = out << 8 |
              rounded((under >> shift & 0xff) * (255 - alpha) + (color >> shift & 0xff) * alpha,
                      255);
    return out;
}

/* Slow and plain: every item at every pixel. */
static uint32_t reference(const DrawList *d, int32_t x, int32_t y)
{
    uint32_t at = d->background;
    for (uint32_t i = 0; i < d->items_n; i++) {
        const DrawItem *item = &d->items[i];
        const DrawClip *c = &d->clips[item->clip];
        if (x < c->x0 || x >= c->x1 || y < c->y0 || y >= c->y1)
            continue;
        uint32_t cover = rounded((uint32_t)(overlap(item->box.x0, item->box.x1, x) *
                                            overlap(item->box.y0, item->box.y1, y)),
                                 256);
        if (cover == 0)
            continue;
        at = laid_over(at, item->color, cover);
        uint32_t stripe = raster_hatch_cover(d->hatch_px, x, y);
        if (item->kind == DRAW_HATCH)
            at = laid_over(at, item->color2, rounded(stripe * cover, 256));
    }
    return at;
}

static void boxes_and_hatches_are_laid_over_one_another_as_defined(void)
{
    for (uint64_t seed = 0; seed < 60; seed++) {
        World w;
        world_open(&w, 0xff14171b, seed);
        for (int i = 0; i < 40; i++) {
            Color color = (Color)mix_u64(w.seed++), stripe = (Color)mix_u64(w.seed++);
            if (pick(&w, 0, 1))
                color |= 0xff000000;
            draw_clip_push(&w.list, pick_box(&w));
            if (pick(&w, 0, 3))
                draw_clip_pop(&w.list);
            bool clipped = w.list.clip_depth > 0;
            if (pick(&w, 0, 1))
                draw_rect(&w.list, pick_box(&w), color);
            else
                draw_hatch(&w.list, pick_box(&w), color, stripe);
            if (clipped)
                draw_clip_pop(&w.list);
        }
        raster_draw(&w.frame, &w.list);
        for (int32_t y = 0; y < SIDE; y++)
            for (int32_t x = 0; x < SIDE; x++)
                CHECK_U64(reference(&w.list, x, y), pixel(&w, x, y));
        world_free(&w);
    }
}

static void a_hatch_repeats_and_takes_three_eighths(void)
{
    for (int32_t period = 4; period <= 24; period++) {
        uint32_t sum = 0;
        for (int32_t i = 0; i < period; i++) {
            sum += raster_hatch_cover(period, i, 0);
            CHECK_U64(raster_hatch_cover(period, i, 3),
                      raster_hatch_cover(period, i - 5 * period, 3 + 2 * period));
            CHECK_U64(raster_hatch_cover(period, i + 7, 0), raster_hatch_cover(period, i, 7));
        }
        CHECK(abs((int32_t)sum - period * 256 * 3 / 8) <= period);
    }
}

/* ---- clips ---- */

static void draw_everything(World *w, PxBox at)
{
    PxPoint points[] = { { at.x0, at.y0 }, { at.x1, at.y1 }, { at.x0, at.y1 } };
    TextStyle style = { TEXT_BODY, true };
    draw_round(&w->list, at, PX(3), 0xc0ff8040);
    draw_outline(&w->list, at, PX(2), PX(4), 0xff40ff80);
    draw_chevron(&w->list, at, PX(4), 0xa08040ff);
    draw_polygon(&w->list, points, 3, 0x80ffffff);
    draw_line(&w->list, points, 3, PX(3), 0xff00ffff);
    draw_arrow(&w->list, points, 2, PX(2), 0xffffff00);
    draw_circle(&w->list, points[2], PX(5), 0x80ff00ff);
    draw_text(&w->list, at, style, ALIGN_LEFT, white, "Wg8");
    draw_text_turned(&w->list, at, style, 0xffff0000, "Wg8");
}

static void what_is_clipped_equals_the_whole_within_and_nothing_outside(void)
{
    for (uint64_t seed = 0; seed < 100; seed++) {
        World whole, part;
        world_open(&whole, black, seed);
        world_open(&part, black, seed);
        PxBox at = pick_box(&whole), clip = pick_box(&whole);
        at.x1 += PX(20);
        at.y1 += PX(20);
        draw_everything(&whole, at);
        draw_clip_push(&part.list, clip);
        draw_everything(&part, at);
        raster_draw(&whole.frame, &whole.list);
        raster_draw(&part.frame, &part.list);
        for (int32_t y = 0; y < SIDE; y++)
            for (int32_t x = 0; x < SIDE; x++) {
                bool in = x >= px_round(clip.x0) && x < px_round(clip.x1) &&
                          y >= px_round(clip.y0) && y < px_round(clip.y1);
                CHECK_U64(in ? pixel(&whole, x, y) : black, pixel(&part, x, y));
            }
        world_free(&whole);
        world_free(&part);
    }
}

static void far_places_are_cut_and_drawn(void)
{
    World w;
    world_open(&w, black, 0);
    PxPoint line[] = { { INT32_MIN, PX(10) }, { INT32_MAX, PX(10) } };
    PxPoint steep[] = { { PX(-100000), PX(-100000) }, { PX(100000), PX(100000) } };
    draw_rect(&w.list, (PxBox){ INT32_MIN, PX(20), INT32_MAX, PX(22) }, white);
    draw_line(&w.list, line, 2, PX(2), white);
    draw_line(&w.list, steep, 2, PX(1), white);
    raster_draw(&w.frame, &w.list);
    CHECK_U64(white, pixel(&w, 0, 21));
    CHECK_U64(white, pixel(&w, SIDE - 1, 10));
    CHECK((pixel(&w, 30, 30) & 0xff) > 180);
    world_free(&w);
}

/* Two edges of one line, from a vertex on: the seam of two polygons that share it. */
static void polygons_that_share_an_edge_cover_its_pixels_once(void)
{
    for (uint64_t seed = 0; seed < 100; seed++) {
        World w;
        world_open(&w, black, seed);
        Px top = pick(&w, PX(6), PX(42)), bottom = pick(&w, PX(6), PX(42));
        PxPoint left[] = {
            { PX(5), PX(5) }, { top, PX(5) }, { bottom, PX(40) }, { PX(5), PX(40) }
        };
        PxPoint right[] = {
            { top, PX(5) }, { PX(43), PX(5) }, { PX(43), PX(40) }, { bottom, PX(40) }
        };
        draw_polygon(&w.list, left, 4, white);
        raster_draw(&w.frame, &w.list);
        double sum = ink(&w);
        w.list.items_n = 0;
        draw_polygon(&w.list, right, 4, white);
        raster_draw(&w.frame, &w.list);
        CHECK(fabs(sum + ink(&w) - 38 * 35) < 35 * 3 * 1.0 / 255);
        world_free(&w);
    }
}

int main(void)
{
    RUN(the_ink_of_a_box_is_its_area);
    RUN(the_ink_of_a_polygon_is_its_area);
    RUN(every_pixel_of_a_polygon_is_covered_as_samples_say);
    RUN(a_line_has_the_ink_of_its_length_and_square_ends);
    RUN(half_of_a_dashed_line_is_ink);
    RUN(boxes_and_hatches_are_laid_over_one_another_as_defined);
    RUN(a_hatch_repeats_and_takes_three_eighths);
    RUN(what_is_clipped_equals_the_whole_within_and_nothing_outside);
    RUN(far_places_are_cut_and_drawn);
    RUN(polygons_that_share_an_edge_cover_its_pixels_once);
    return check_report();
}

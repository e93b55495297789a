/*
 * test_plot.c - ticks and places of plots.
 */
#include "tests/check.h"
#include "viz/plot.h"

static void ticks_are_one_two_five(void)
{
    static const double expect[] = {
        0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100
    };
    double tick = plot_tick_below(0.0123);
    for (size_t i = 0; i < ARRAY_N(expect); i++) {
        CHECK_NEAR(expect[i], tick, 1e-12);
        CHECK_NEAR(expect[i], plot_tick_below(expect[i] * 1.01), 1e-12);
        tick = plot_tick_after(tick);
    }
}

/* A circle in a list by its colour; what it returns is its middle. */
static PxPoint circle_of(const DrawList *d, Color color)
{
    for (uint32_t i = 0; i < d->items_n; i++)
        if (d->items[i].color == color && d->items[i].radius > 0) {
            PxBox b = d->items[i].box;
            return (PxPoint){ b.x0 + (b.x1 - b.x0) / 2, b.y0 + (b.y1 - b.y0) / 2 };
        }
    return (PxPoint){ 0, 0 };
}

/* Equal factors are equal ways. */
static void axes_are_logarithmic_and_ticks_mark_their_places(void)
{
    Font font;
    DrawList d = { 0 };
    PlotPoint low = { 1, 1, NULL, NULL }, middle = { 10, 100, "label", "tip" };
    PlotPoint high = { 100, 10000, NULL, NULL };
    PlotTick tick = { 10, "ten" }, outside = { 1000, "outside" };
    PlotTick x_ticks[] = { tick, outside };
    PlotSeries series[] = { { &low, 1, NULL, 0xff000001, MARK_CIRCLE, 6, 0, 0 },
                            { &middle, 1, NULL, 0xff000002, MARK_CIRCLE, 6, 0, 0 },
                            { &high, 1, NULL, 0xff000003, MARK_CIRCLE, 6, 0, 0 } };
    Plot p = { "title", { "x", 1, 100, x_ticks, 2 }, { "y", 1, 10000, NULL, 0 }, series, 3 };
    font_open(&font, 100);
    plot_draw(&d, &font, &p);
    PxPoint a = circle_of(&d, 0xff000001), b = circle_of(&d, 0xff000002);
    PxPoint c = circle_of(&d, 0xff000003);
    CHECK(a.x > 0 && abs(c.x - b.x - (b.x - a.x)) <= 2);
    CHECK(a.y > b.y && abs(c.y - b.y - (b.y - a.y)) <= 2);
    CHECK_INT(PX(540), c.x - a.x);
    /* The line of the tick at 10 lies where the point at 10 lies; none beyond the axis. */
    uint32_t lines_n = 0;
    for (uint32_t i = 0; i < d.items_n; i++)
        if (d.items[i].kind == DRAW_RECT && d.items[i].box.y1 - d.items[i].box.y0 == PX(540)) {
            CHECK(abs(d.items[i].box.x0 - b.x) <= PX_ONE);
            lines_n++;
        }
    CHECK_INT(1, lines_n);
    draw_free(&d);
    font_free(&font);
}

static void every_mark_is_drawn_and_a_legend_needs_room(void)
{
    Font font;
    DrawList d = { 0 };
    PlotPoint point = { 5, 5, NULL, NULL };
    font_open(&font, 100);
    for (int mark = MARK_CIRCLE; mark < PLOT_MARKS_N; mark++) {
        PlotSeries s = { &point, 1, NULL, 0xff123456, (PlotMark)mark, 8, 0, 0 };
        Plot p = { "t", { "x", 1, 10, NULL, 0 }, { "y", 1, 10, NULL, 0 }, &s, 1 };
        plot_draw(&d, &font, &p);
        int32_t width = d.width;
        uint32_t n = 0;
        for (uint32_t i = 0; i < d.items_n; i++)
            n += d.items[i].color == s.color;
        CHECK_INT(1, n);
        s.label = "legend";
        plot_draw(&d, &font, &p);
        CHECK(d.width > width);
    }
    draw_free(&d);
    font_free(&font);
}

int main(void)
{
    RUN(ticks_are_one_two_five);
    RUN(axes_are_logarithmic_and_ticks_mark_their_places);
    RUN(every_mark_is_drawn_and_a_legend_needs_room);
    return check_report();
}

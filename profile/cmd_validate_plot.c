/*
 * cmd_validate_plot.c - predicted over measured step time.
 *
 *     predicted          /  /       Both axes logarithmic and alike, so that equal errors lie on
 *        |        o  ,/ /           lines parallel to the diagonal: those of 10 % and 25 % are
 *        |       ,/o/               drawn.  A group has a colour and a shape; shapes change
 *        |   o,/ /                  slower, so that no two of the first 40 look alike.
 *        +------------ measured
 */
#include "profile/cmd_validate_plot.h"
#include "profile/validate_parts.h"
#include "viz/picture.h"
#include "viz/plot.h"

#include <math.h>

/* Ten colours that differ in lightness too (Tableau 10, made a little darker). */
static const Color colors[] = { 0x2f6db3, 0xe07b16, 0xc9363c, 0x3d9a96, 0x4a8f3c,
                                0xb8930b, 0x8e5a98, 0xe0527e, 0x7a5238, 0x5c5c5c };
enum { SHAPES_N = 4, CROWD = 100, TICKS_MAX = 64, OPACITY = 166 };

static const struct {
    double ratio;
    const char *label;
    Color color;
    int32_t line_px, dash_px;
} guides[] = { { 1, "predicted = measured", 0xff222222, 3, 0 },
               { 1.10, "10 % off", 0xff555555, 2, 6 },
               { 0.90, NULL, 0xff555555, 2, 6 },
               { 1.25, "25 % off", 0xff888888, 2, 3 },
               { 0.75, NULL, 0xff888888, 2, 3 } };

typedef struct Picture {
    const Validation *v;
    Arena arena;
    Plot plot;
    PlotSeries *series; /* guides, crowds, the other groups */
} Picture;

static bool is_shown(const Validation *v, const ValidateRow *row)
{
    return !row->skipped && row->metric == intern_find(&v->names, "step_time_s") &&
           row->measured > 0 && row->predicted > 0 && isfinite(row->predicted);
}

static uint32_t find_range(Picture *pic)
{
    const Validation *v = pic->v;
    double low = INFINITY, high = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < v->rows_n; i++) {
        const ValidateRow *row = &v->rows[i];
        if (!is_shown(v, row))
            continue;
        low = fmin(low, fmin(row->measured, row->predicted));
        high = fmax(high, fmax(row->measured, row->predicted));
        n++;
    }
    PlotAxis axis = { .low = n ? plot_tick_below(low * 0.9) : 0.1,
                      .high = n ? plot_tick_after(plot_tick_below(high * 1.05)) : 10 };
    PlotTick *ticks = PUSH_ARRAY(&pic->arena, PlotTick, TICKS_MAX);
    for (double t = axis.low; t < axis.high * 1.01 && axis.ticks_n < TICKS_MAX;
         t = plot_tick_after(t))
        ticks[axis.ticks_n++] = (PlotTick){ t, arena_printf(&pic->arena, "%.4g", t) };
    axis.ticks = ticks;
    pic->plot.x = pic->plot.y = axis;
    pic->plot.x.title = "measured step time, s";
    pic->plot.y.title = "predicted step time, s";
    return n;
}

static void add_guides(Picture *pic)
{
    for (size_t i = 0; i < ARRAY_N(guides); i++) {
        PlotPoint *ends = PUSH_ARRAY(&pic->arena, PlotPoint, 2);
        double low = pic->plot.x.low, high = pic->plot.x.high;
        ends[0] = (PlotPoint){ .x = low, .y = low * guides[i].ratio };
        ends[1] = (PlotPoint){ .x = high, .y = high * guides[i].ratio };
        pic->series[pic->plot.series_n++] = (PlotSeries){ .points = ends,
                                                          .points_n = 2,
                                                          .label = guides[i].label,
                                                          .color = guides[i].color,
                                                          .line_px = guides[i].line_px,
                                                          .dash_px = guides[i].dash_px };
    }
}

static uint32_t count_points(const Validation *v, uint32_t group)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < v->rows_n; i++)
        n += v->rows[i].group == group && is_shown(v, &v->rows[i]);
    return n;
}

static const char *tip_of(Picture *pic, const ValidateRow *row)
{
    char name[VALIDATE_TEXT_CAP], measured[VALIDATE_TEXT_CAP], predicted[VALIDATE_TEXT_CAP];
    char error[VALIDATE_TEXT_CAP];
    return arena_printf(&pic->arena, "%s\nmeasured %s, predicted %s, %s %%",
                        validate_name(name, row->name, 80),
                        validate_value(measured, "step_time_s", row->measured),
                        validate_value(predicted, "step_time_s", row->predicted),
                        validate_signed(error, 100 * (row->predicted / row->measured - 1)));
}

static void add_group(Picture *pic, uint32_t group, uint32_t look, uint32_t points_n)
{
    char name[VALIDATE_TEXT_CAP];
    const Validation *v = pic->v;
    PlotPoint *points = PUSH_ARRAY(&pic->arena, PlotPoint, points_n);
    PlotSeries s = { .points = points, .mark_px = 7 };
    for (uint32_t i = 0; i < v->rows_n; i++) {
        const ValidateRow *row = &v->rows[i];
        if (row->group == group && is_shown(v, row))
            points[s.points_n++] =
                (PlotPoint){ .x = row->measured, .y = row->predicted, .tip = tip_of(pic, row) };
    }
    s.label = arena_printf(&pic->arena, "%s, %" PRIu32, validate_group_name(name, v, group, 22),
                           points_n);
    s.color = colors[look % ARRAY_N(colors)] | (Color)OPACITY << 24;
    s.mark = (PlotMark)(MARK_CIRCLE + (look / (uint32_t)ARRAY_N(colors) + look) % SHAPES_N);
    pic->series[pic->plot.series_n++] = s;
}

/* A crowd is drawn first, so that it hides nobody. */
static void add_groups(Picture *pic, const uint32_t *groups, uint32_t n, bool crowds)
{
    for (uint32_t i = 0, look = 0; i < n; i++) {
        uint32_t points_n = count_points(pic->v, groups[i]);
        if (points_n == 0)
            continue;
        if (crowds == (points_n >= CROWD))
            add_group(pic, groups[i], look, points_n);
        look++;
    }
}

bool validate_plot_check(const char *path, Err *err)
{
    return picture_name_check(path, "--svg", err);
}

bool validate_plot(const Validation *v, const char *path, Err *err)
{
    Picture pic = { .v = v };
    uint32_t *groups = PUSH_ARRAY(&pic.arena, uint32_t, v->names.n + 1);
    uint32_t groups_n = validate_groups(v, groups), shown_n = find_range(&pic);
    pic.series = PUSH_ARRAY(&pic.arena, PlotSeries, groups_n + ARRAY_N(guides));
    add_guides(&pic);
    add_groups(&pic, groups, groups_n, true);
    add_groups(&pic, groups, groups_n, false);
    pic.plot.title = arena_printf(
        &pic.arena, "lockstep validate: %" PRIu32 " step times, predicted and measured",
        shown_n);
    pic.plot.series = pic.series;
    bool ok = plot_write(&pic.plot, path, err);
    arena_free(&pic.arena);
    return ok;
}

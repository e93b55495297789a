/*
 * cmd_plan_plot.c - step time over GPUs: all that fit, and the front.
 *
 *     step time  : .          Both axes logarithmic, so that perfect scaling is a
 *        |       o  : .       straight line down; a dot is a candidate, the rings
 *        |        `--o :      and their line are the front.
 *        |            `--o
 *        +------------ GPUs
 */
#include <math.h>

#include "sim/cmd_plan_plot.h"
#include "sim/texts.h"
#include "viz/picture.h"
#include "viz/plot.h"

enum { DOTS_MAX = 15000, TICKS_MAX = 64 };

static const Color dot_color = 0x402f6db3, front_color = 0xffc9363c;

typedef struct Picture {
    const Plan *p;
    Arena arena; /* labels, points */
    Plot plot;
    PlotSeries series[3]; /* dots, front, the best */
} Picture;

bool plan_plot_check(const char *path, Err *err)
{
    return picture_name_check(path, "--plot", err);
}

static void find_axes(Picture *pic)
{
    const Plan *p = pic->p;
    PlotAxis *x = &pic->plot.x, *y = &pic->plot.y;
    x->title = "GPUs";
    y->title = "step time";
    x->low = y->low = INFINITY;
    for (uint32_t i = 0; i < p->order_n; i++) {
        const PlanCandidate *c = &p->candidates[p->order[i]];
        x->low = fmin(x->low, plan_gpus(c));
        x->high = fmax(x->high, plan_gpus(c));
        y->low = fmin(y->low, c->step_s);
        y->high = fmax(y->high, c->step_s);
    }
    x->low /= 2; /* room for the first label */
    x->high *= 1.5;
    y->low /= 1.2;
    y->high *= 1.2;
}

/* 1, 2, 5, 10 ...; over so short an axis that these are hardly in sight, even steps. */
static void set_times(Picture *pic)
{
    PlotAxis *y = &pic->plot.y;
    PlotTick *times = PUSH_ARRAY(&pic->arena, PlotTick, TICKS_MAX);
    bool is_short = y->high < 5 * y->low;
    double step = is_short ? plot_tick_below((y->high - y->low) / 4) : 0;
    double first = is_short ? ceil(y->low / step) : 0, t = plot_tick_below(y->low);
    char label[TEXT_CAP];
    for (uint32_t n = 0; n < TICKS_MAX; n++) {
        t = is_short ? (first + n) * step : n > 0 ? plot_tick_after(t) : t;
        if (t >= y->high)
            break;
        times[y->ticks_n++] =
            (PlotTick){ t, arena_strdup(&pic->arena, text_seconds(label, t)) };
    }
    y->ticks = times;
}

static void set_ticks(Picture *pic)
{
    const Plan *p = pic->p;
    PlotAxis *x = &pic->plot.x;
    PlotTick *gpus = PUSH_ARRAY(&pic->arena, PlotTick, p->bases_n);
    char label[TEXT_CAP];
    for (uint32_t b = 0; b < p->bases_n; b++) {
        text_number(label, p->gpus[b], 0);
        gpus[b] = (PlotTick){ p->gpus[b], arena_strdup(&pic->arena, label) };
    }
    x->ticks = gpus;
    x->ticks_n = p->bases_n;
    set_times(pic);
}

static PlotPoint point_of(Picture *pic, const PlanCandidate *c, bool labelled)
{
    char time[TEXT_CAP], split[TEXT_CAP];
    PlotPoint point = { .x = plan_gpus(c), .y = c->step_s };
    text_seconds(time, c->step_s);
    point.label = labelled ? arena_strdup(&pic->arena, time) : NULL;
    point.tip = arena_printf(&pic->arena, "%s\n%" PRIu64 " GPUs, %s a step",
                             plan_label(split, c), (uint64_t)plan_gpus(c), time);
    return point;
}

/* The worst first, so that the best lie on top; of very many only the best. */
static void set_dots(Picture *pic)
{
    const Plan *p = pic->p;
    uint32_t n = p->order_n < DOTS_MAX ? p->order_n : DOTS_MAX;
    PlotPoint *points = PUSH_ARRAY(&pic->arena, PlotPoint, n);
    for (uint32_t i = 0; i < n; i++)
        points[i] = point_of(pic, &p->candidates[p->order[n - 1 - i]], false);
    pic->series[0] = (PlotSeries){
        .points = points, .points_n = n, .color = dot_color, .mark = MARK_CIRCLE, .mark_px = 6
    };
}

static void set_front(Picture *pic)
{
    const Plan *p = pic->p;
    PlotPoint *points = PUSH_ARRAY(&pic->arena, PlotPoint, p->front_n + 1);
    PlotPoint *best = PUSH(&pic->arena, PlotPoint);
    for (uint32_t i = 0; i < p->front_n; i++)
        points[i] = point_of(pic, &p->candidates[p->front[i]], true);
    *best = point_of(pic, &p->candidates[p->order[0]], false);
    pic->series[1] = (PlotSeries){ .points = points,
                                   .points_n = p->front_n,
                                   .color = front_color,
                                   .mark = MARK_RING,
                                   .mark_px = 10,
                                   .line_px = 3 };
    pic->series[2] = (PlotSeries){
        .points = best, .points_n = 1, .color = front_color, .mark = MARK_CIRCLE, .mark_px = 10
    };
}

bool plan_plot(const Plan *p, const char *path, Err *err)
{
    char name[TEXT_CAP];
    Picture pic = { .p = p };
    find_axes(&pic);
    set_ticks(&pic);
    set_dots(&pic);
    set_front(&pic);
    pic.plot.title =
        arena_printf(&pic.arena, "lockstep plan: %s", text_name(name, p->bases[0].name, 50));
    pic.plot.series = pic.series;
    pic.plot.series_n = ARRAY_N(pic.series);
    bool ok = plot_write(&pic.plot, path, err);
    arena_free(&pic.arena);
    return ok;
}

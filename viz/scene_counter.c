/*
 * scene_counter.c - a counter's row: an area below a step line.
 *
 * Memory reaches from 0 to the largest value of all ranks; where it changes within a pixel
 * the line is as thick as what it passes.  Percent reach from 0 to 100, and there a thick
 * line would lie: a link that is busy a tenth of the time, in short bursts, would look full.
 * So the body is the mean over the pixel's time, and what the bursts reach is pale above it:
 *
 *     |:::::::::::::|  :  peak within the pixel       near     ###
 *     |:::::::::::::|  #  mean                                 ###
 *     |#############|                                      ____###____
 */
#include "viz/scene_counter.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { BODY = 190 /* of 255: how opaque the mean is, over the pale peak */ };

/* ---- units ---- */

typedef enum CounterUnit { UNIT_NUMBER, UNIT_BYTES, UNIT_PERCENT } CounterUnit;

static const char *name_of(const ViewData *d, const ViewRow *row)
{
    return timeline_text(d->t, d->t->tracks[row->track].name);
}

static bool name_has(const char *name, const char *word)
{
    size_t n = strlen(word);
    for (; *name; name++)
        if (strncasecmp(name, word, n) == 0)
            return true;
    return false;
}

static CounterUnit counter_unit(const ViewData *d, const ViewRow *row)
{
    static const char *const percent[] = { "util", "percent", "nvlink", "occupancy" };
    static const char *const bytes[] = { "bytes", "memory", "allocated", "reserved" };
    const char *name = name_of(d, row);
    if (strchr(name, '%'))
        return UNIT_PERCENT;
    for (size_t i = 0; i < ARRAY_N(percent); i++)
        if (name_has(name, percent[i]) && row->counter.max <= 100)
            return UNIT_PERCENT;
    for (size_t i = 0; i < ARRAY_N(bytes); i++)
        if (name_has(name, bytes[i]))
            return UNIT_BYTES;
    return UNIT_NUMBER;
}

/* ", % of 450 GB/s" at the end of a name; NULL: it does not say. */
static const char *of_what(const char *name)
{
    return strstr(name, ", % of ");
}

size_t scene_counter_name(const ViewData *d, const ViewRow *row)
{
    const char *name = name_of(d, row), *of = of_what(name);
    return of ? (size_t)(of - name) : strlen(name);
}

static void value_text(CounterUnit unit, double value, char *text, size_t cap)
{
    if (unit == UNIT_BYTES)
        view_bytes_text(text, cap,
                        value < 1e19 ? (uint64_t)(value > 0 ? value : 0) : UINT64_MAX);
    else
        snprintf(text, cap, unit == UNIT_PERCENT ? "%.3g %%" : "%.4g", value);
}

char *scene_counter_text(const ViewData *d, const ViewRow *row, bool with_what, char *text,
                         size_t cap)
{
    CounterUnit unit = counter_unit(d, row);
    const char *of = of_what(name_of(d, row));
    if (unit != UNIT_PERCENT)
        value_text(unit, row->counter.max, text, cap);
    else
        snprintf(text, cap, "\xe2\x89\xa4 %.0f %%%s", row->counter.max,
                 with_what && of ? of + strlen(", %") : "");
    return text;
}

bool scene_counter_value(const ViewData *d, const ViewRow *row, int64_t from_ns, int64_t to_ns,
                         char *text, size_t cap)
{
    char a[32], b[32], mean_text[32];
    double low, high, mean;
    CounterUnit unit = counter_unit(d, row);
    if (!view_counter_range(d, row, from_ns, to_ns, &low, &high) ||
        !view_counter_mean(d, row, from_ns, to_ns, &mean))
        return false;
    value_text(unit, low, a, sizeof a);
    value_text(unit, high, b, sizeof b);
    value_text(unit, mean, mean_text, sizeof mean_text);
    if (strcmp(a, b) == 0)
        snprintf(text, cap, "%s", a);
    else if (unit == UNIT_PERCENT)
        snprintf(text, cap, "%s on average, from %s to %s within this pixel", mean_text, a, b);
    else
        snprintf(text, cap, "from %s to %s within this pixel", a, b);
    return true;
}

static double counter_top(const ViewData *d, const ViewRow *row)
{
    double top = row->counter.max;
    if (counter_unit(d, row) == UNIT_PERCENT)
        return top > 100 ? top : 100;
    for (uint32_t i = 0; i < d->rows_n; i++) /* ranks on one scale, where names are equal */
        if (d->rows[i].kind == VIEW_ROW_COUNTER && d->rows[i].ready &&
            d->t->tracks[d->rows[i].track].name == d->t->tracks[row->track].name &&
            d->rows[i].counter.max > top)
            top = d->rows[i].counter.max;
    return top;
}

/* ---- drawing ---- */

/* Pixels with the same heights are one box. */
typedef struct CounterRun {
    uint32_t from, to;
    Px low, high, mean; /* heights */
} CounterRun;

static void draw_band(ScenePen *p, PxBox box, const CounterRun *r)
{
    PxBox edge = { box.x0, box.y1 - r->high, box.x1, box.y1 - r->low };
    box.y0 = edge.y0;
    draw_rect(p->d, box, scene_color(p, THEME_AREA));
    edge.y1 = px_max(edge.y0 + PX(1), edge.y1);
    draw_rect(p->d, edge, scene_color(p, THEME_AREA_EDGE));
}

static void draw_mean(ScenePen *p, PxBox box, const CounterRun *r)
{
    Color edge = scene_color(p, THEME_AREA_EDGE), pale = scene_color(p, THEME_AREA);
    PxBox body = { box.x0, box.y1 - r->mean, box.x1, box.y1 };
    box.y0 = px_min(box.y1 - r->high, box.y1 - PX(1)); /* 0 is a line */
    draw_rect(p->d, box, pale);
    draw_rect(p->d, body, color_fade(edge, BODY));
}

static void draw_run(ScenePen *p, const LayoutRow *row, const CounterRun *r, bool mean)
{
    PxBox box = { p->l->lanes.x0 + PX((int32_t)r->from), row->y0,
                  p->l->lanes.x0 + PX((int32_t)r->to), row->y1 };
    if (r->to == r->from)
        return;
    if (mean)
        draw_mean(p, box, r);
    else
        draw_band(p, box, r);
}

static Px height_of(double value, double scale)
{
    return (Px)(value > 0 ? value * scale : 0);
}

void scene_counter(ScenePen *p, const LayoutRow *row)
{
    const ViewData *d = p->v->data[row->side];
    const ViewRow *r = &d->rows[row->row];
    LodWindow w = layout_window(p->l, row);
    bool is_mean = counter_unit(d, r) == UNIT_PERCENT;
    double top = counter_top(d, r), scale = top > 0 ? (double)(row->y1 - row->y0) / top : 0;
    CounterRun run = { 0 };
    for (uint32_t x = 0; x < w.width; x++) {
        double low, high, mean = 0;
        int64_t from_ns = lod_pixel_ns(&w, x);
        if (from_ns >= d->end_ns)
            break;
        int64_t to_ns = max_i64(from_ns + 1, lod_pixel_ns(&w, x + 1));
        if (!view_counter_range(d, r, from_ns, to_ns, &low, &high) ||
            (is_mean && !view_counter_mean(d, r, from_ns, to_ns, &mean)))
            continue;
        CounterRun now = { x, x + 1, height_of(low, scale), height_of(high, scale),
                           height_of(mean, scale) };
        if (run.to == x && now.low == run.low && now.high == run.high && now.mean == run.mean) {
            run.to = x + 1;
            continue;
        }
        draw_run(p, row, &run, is_mean);
        run = now;
    }
    draw_run(p, row, &run, is_mean);
}

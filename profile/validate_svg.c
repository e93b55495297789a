/*
 * validate_svg.c - predicted over measured step time as an SVG of its own, no library.
 *
 *     predicted          /  /       Both axes logarithmic and alike, so that equal errors lie on
 *        |        o  ,/ /           lines parallel to the diagonal: those of 10 % and 25 % are
 *        |       ,/o/               drawn.  A group has a colour and a shape; shapes change
 *        |   o,/ /                  slower, so that no two of the first 40 look alike.
 *        +------------ measured
 */
#include "profile/validate_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 540, LEFT = 76, TOP = 56, WIDTH = 830, HEIGHT = 660, LEGEND = LEFT + SIDE + 24 };

/* Ten colours that differ in lightness too (Tableau 10, made a little darker). */
static const char *const colors[] = { "#2f6db3", "#e07b16", "#c9363c", "#3d9a96", "#4a8f3c",
                                      "#b8930b", "#8e5a98", "#e0527e", "#7a5238", "#5c5c5c" };
enum { SHAPES_N = 4, CROWD = 100 };

typedef struct Plot {
    FILE *out;
    double low, high; /* of both axes, powers of ten times 1, 2 or 5 */
} Plot;

/* ---- places ---- */

static double part_of_axis(const Plot *p, double x)
{
    return log(x / p->low) / log(p->high / p->low);
}

static double place_x(const Plot *p, double measured)
{
    return LEFT + SIDE * part_of_axis(p, measured);
}

static double place_y(const Plot *p, double predicted)
{
    return TOP + SIDE * (1 - part_of_axis(p, predicted));
}

/* The largest of 1, 2, 5, 10, 20 ... not above x; x > 0. */
static double round_down(double x)
{
    double ten = pow(10, floor(log10(x)));
    static const double steps[] = { 10, 5, 2, 1 };
    for (size_t i = 0; i < ARRAY_N(steps); i++)
        if (steps[i] * ten <= x)
            return steps[i] * ten;
    return ten;
}

static double next_tick(double tick)
{
    double lead = tick / pow(10, floor(log10(tick * 1.001)));
    return tick * (lead > 1.5 && lead < 3 ? 2.5 : 2);
}

/* ---- what is shown ---- */

static bool is_shown(const Validation *v, const ValidateRow *row)
{
    return !row->skipped && row->metric == intern_find(&v->names, "step_time_s") &&
           row->measured > 0 && row->predicted > 0 && isfinite(row->predicted);
}

static uint32_t find_range(Plot *p, const Validation *v)
{
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
    p->low = n ? round_down(low * 0.9) : 0.1;
    p->high = n ? next_tick(round_down(high * 1.05)) : 10;
    return n;
}

/* ---- drawing ---- */

static void put_text(FILE *out, double x, double y, const char *anchor, int size,
                     const char *text)
{
    fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" font-size=\"%d\">", x, y,
            anchor, size);
    for (const char *c = text; *c; c++) {
        if (*c == '<')
            fputs("&lt;", out);
        else if (*c == '&')
            fputs("&amp;", out);
        else
            fputc(*c, out);
    }
    fputs("</text>\n", out);
}

static void put_line(FILE *out, double x1, double y1, double x2, double y2, const char *style)
{
    fprintf(out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n", x1, y1, x2, y2,
            style);
}

/* Where predicted = ratio * measured. */
static void draw_ratio(const Plot *p, double ratio, const char *style)
{
    put_line(p->out, place_x(p, p->low), place_y(p, p->low * ratio), place_x(p, p->high),
             place_y(p, p->high * ratio), style);
}

static const char equal_style[] = "stroke=\"#222\" stroke-width=\"1.4\"";
static const char ten_style[] = "stroke=\"#555\" stroke-width=\"1\" stroke-dasharray=\"7 3\"";
static const char quarter_style[] =
    "stroke=\"#888\" stroke-width=\"1\" stroke-dasharray=\"2 3\"";

static void draw_ratios(const Plot *p)
{
    fprintf(p->out, "<g clip-path=\"url(#area)\">\n");
    draw_ratio(p, 1, equal_style);
    draw_ratio(p, 1.10, ten_style);
    draw_ratio(p, 0.90, ten_style);
    draw_ratio(p, 1.25, quarter_style);
    draw_ratio(p, 0.75, quarter_style);
    fprintf(p->out, "</g>\n");
}

static void draw_axes(const Plot *p)
{
    static const char grid[] = "stroke=\"#e4e4e4\"";
    for (double tick = p->low; tick < p->high * 1.01; tick = next_tick(tick)) {
        char label[32];
        snprintf(label, sizeof label, "%.4g", tick);
        double x = place_x(p, tick), y = place_y(p, tick);
        put_line(p->out, x, TOP, x, TOP + SIDE, grid);
        put_line(p->out, LEFT, y, LEFT + SIDE, y, grid);
        put_text(p->out, x, TOP + SIDE + 18, "middle", 12, label);
        put_text(p->out, LEFT - 8, y + 4, "end", 12, label);
    }
    fprintf(
        p->out,
        "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" stroke=\"#888\"/>\n",
        LEFT, TOP, SIDE, SIDE);
    put_text(p->out, LEFT + SIDE / 2.0, TOP + SIDE + 42, "middle", 14, "measured step time, s");
    fprintf(p->out, "<g transform=\"translate(22 %d) rotate(-90)\">\n", TOP + SIDE / 2);
    put_text(p->out, 0, 0, "middle", 14, "predicted step time, s");
    fprintf(p->out, "</g>\n");
}

static void draw_point(FILE *out, double x, double y, uint32_t look, double r)
{
    const char *fill = colors[look % ARRAY_N(colors)];
    uint32_t shape = (look / (uint32_t)ARRAY_N(colors) + look) % SHAPES_N;
    fprintf(out, "<path fill=\"%s\" d=\"", fill);
    if (shape == 0)
        fprintf(out, "M%.1f %.1fa%.1f %.1f 0 1 0 %.1f 0a%.1f %.1f 0 1 0 %.1f 0z", x - r, y, r,
                r, 2 * r, r, r, -2 * r);
    else if (shape == 1)
        fprintf(out, "M%.1f %.1fh%.1fv%.1fh%.1fz", x - r * 0.9, y - r * 0.9, 1.8 * r, 1.8 * r,
                -1.8 * r);
    else if (shape == 2)
        fprintf(out, "M%.1f %.1fL%.1f %.1fL%.1f %.1fz", x, y - 1.2 * r, x + 1.1 * r,
                y + 0.8 * r, x - 1.1 * r, y + 0.8 * r);
    else
        fprintf(out, "M%.1f %.1fL%.1f %.1fL%.1f %.1fL%.1f %.1fz", x, y - 1.3 * r, x + 1.3 * r,
                y, x, y + 1.3 * r, x - 1.3 * r, y);
    fprintf(out, "\"/>\n");
}

static uint32_t count_points(const Validation *v, uint32_t group)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < v->rows_n; i++)
        n += v->rows[i].group == group && is_shown(v, &v->rows[i]);
    return n;
}

static void draw_group(const Plot *p, const Validation *v, uint32_t group, uint32_t look)
{
    fprintf(p->out, "<g fill-opacity=\"0.65\">\n");
    for (uint32_t i = 0; i < v->rows_n; i++) {
        const ValidateRow *row = &v->rows[i];
        if (row->group == group && is_shown(v, row))
            draw_point(p->out, place_x(p, row->measured), place_y(p, row->predicted), look,
                       3.6);
    }
    fprintf(p->out, "</g>\n");
}

static void draw_label(const Plot *p, const Validation *v, uint32_t group, uint32_t look,
                       uint32_t points_n)
{
    char name[VALIDATE_TEXT_CAP], label[VALIDATE_TEXT_CAP + 16];
    double y = TOP + 14 + 20.0 * look;
    draw_point(p->out, LEGEND + 6, y - 4, look, 5);
    snprintf(label, sizeof label, "%s, %" PRIu32, validate_group_name(name, v, group, 22),
             points_n);
    put_text(p->out, LEGEND + 20, y, "start", 12, label);
}

/* A crowd is drawn first, so that it hides nobody. */
static void draw_groups(const Plot *p, const Validation *v, bool crowds)
{
    uint32_t *groups = mem_zero(v->names.n, sizeof *groups);
    uint32_t n = validate_groups(v, groups), look = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t points_n = count_points(v, groups[i]);
        if (points_n == 0)
            continue;
        if (crowds == (points_n >= CROWD)) {
            draw_group(p, v, groups[i], look);
            draw_label(p, v, groups[i], look, points_n);
        }
        look++;
    }
    free(groups);
}

static void draw_line_legend(FILE *out)
{
    static const struct {
        const char *style, *label;
    } lines[] = { { equal_style, "predicted = measured" },
                  { ten_style, "10 % off" },
                  { quarter_style, "25 % off" } };
    for (size_t i = 0; i < ARRAY_N(lines); i++) {
        double y = TOP + SIDE - 44 + 20.0 * (double)i;
        put_line(out, LEGEND - 6, y - 4, LEGEND + 18, y - 4, lines[i].style);
        put_text(out, LEGEND + 24, y, "start", 12, lines[i].label);
    }
}

void validate_svg(const Validation *v, FILE *out)
{
    Plot p = { .out = out };
    char title[96];
    uint32_t n = find_range(&p, v);
    snprintf(title, sizeof title,
             "lockstep validate: %" PRIu32 " step times, predicted and measured", n);
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "viewBox=\"0 0 %d %d\"\n     font-family=\"Helvetica, Arial, sans-serif\">\n"
            "<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n"
            "<clipPath id=\"area\"><rect x=\"%d\" y=\"%d\" width=\"%d\" "
            "height=\"%d\"/></clipPath>\n",
            WIDTH, HEIGHT, WIDTH, HEIGHT, WIDTH, HEIGHT, LEFT, TOP, SIDE, SIDE);
    put_text(out, LEFT, 34, "start", 17, title);
    draw_axes(&p);
    draw_ratios(&p);
    draw_groups(&p, v, true);
    draw_groups(&p, v, false);
    draw_line_legend(out);
    fprintf(out, "</svg>\n");
}

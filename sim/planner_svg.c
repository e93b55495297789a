/*
 * planner_svg.c - step time over GPUs as an SVG of its own: all that fit, and the front.
 *
 *     step time  : .          Both axes logarithmic, so that perfect scaling is a
 *        |       o  : .       straight line down; a dot is a candidate, the rings
 *        |        `--o :      and their line are the front.
 *        |            `--o
 *        +------------ GPUs
 */
#include <math.h>

#include "sim/planner.h"
#include "sim/texts.h"

enum { SIDE = 540, LEFT = 90, TOP = 56, WIDTH = LEFT + SIDE + 40, HEIGHT = TOP + SIDE + 64 };
enum { DOTS_MAX = 20000 };

typedef struct Axis {
    double low, high;
} Axis;

typedef struct Plot {
    FILE *out;
    Axis gpus, time;
} Plot;

static double part(const Axis *a, double x)
{
    return log(x / a->low) / log(a->high / a->low);
}

static double place_x(const Plot *p, const PlanCandidate *c)
{
    return LEFT + SIDE * part(&p->gpus, plan_gpus(c));
}

static double place_y(const Plot *p, double step_s)
{
    return TOP + SIDE * (1 - part(&p->time, step_s));
}

static void widen(Axis *a, double x)
{
    a->low = fmin(a->low, x);
    a->high = fmax(a->high, x);
}

static void find_axes(Plot *plot, const Plan *p)
{
    plot->gpus = plot->time = (Axis){ INFINITY, 0 };
    for (uint32_t i = 0; i < p->order_n; i++) {
        const PlanCandidate *c = &p->candidates[p->order[i]];
        widen(&plot->gpus, plan_gpus(c));
        widen(&plot->time, c->step_s);
    }
    plot->gpus = (Axis){ plot->gpus.low / 1.5, plot->gpus.high * 1.5 };
    plot->time = (Axis){ plot->time.low / 1.2, plot->time.high * 1.2 };
}

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

static void put_grid(FILE *out, double x1, double y1, double x2, double y2)
{
    fprintf(out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#e4e4e4\"/>\n",
            x1, y1, x2, y2);
}

/* 1, 2, 5, 10 ... from the first not below low. */
static double first_tick(double low)
{
    double ten = pow(10, floor(log10(low)));
    return ten >= low ? ten : 2 * ten >= low ? 2 * ten : 5 * ten >= low ? 5 * ten : 10 * ten;
}

static double next_tick(double tick)
{
    double lead = tick / pow(10, floor(log10(tick * 1.001)));
    return tick * (lead > 1.5 && lead < 3 ? 2.5 : 2);
}

static void draw_axes(const Plot *plot, const Plan *p)
{
    char label[TEXT_CAP];
    for (double t = first_tick(plot->time.low); t < plot->time.high; t = next_tick(t)) {
        put_grid(plot->out, LEFT, place_y(plot, t), LEFT + SIDE, place_y(plot, t));
        put_text(plot->out, LEFT - 8, place_y(plot, t) + 4, "end", 12, text_seconds(label, t));
    }
    for (uint32_t b = 0; b < p->bases_n; b++) {
        double x = LEFT + SIDE * part(&plot->gpus, p->gpus[b]);
        if (x < LEFT || x > LEFT + SIDE)
            continue;
        put_grid(plot->out, x, TOP, x, TOP + SIDE);
        put_text(plot->out, x, TOP + SIDE + 18, "middle", 12,
                 text_number(label, p->gpus[b], 0));
    }
    fprintf(plot->out,
            "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" "
            "stroke=\"#888\"/>\n",
            LEFT, TOP, SIDE, SIDE);
    put_text(plot->out, LEFT + SIDE / 2.0, TOP + SIDE + 44, "middle", 14, "GPUs");
    fprintf(plot->out, "<g transform=\"translate(18 %d) rotate(-90)\">\n", TOP + SIDE / 2);
    put_text(plot->out, 0, 0, "middle", 14, "step time");
    fprintf(plot->out, "</g>\n");
}

/* The worst first, so that the best lie on top; of very many only the best. */
static void draw_dots(const Plot *plot, const Plan *p)
{
    fprintf(plot->out, "<g fill=\"#2f6db3\" fill-opacity=\"0.25\">\n");
    for (uint32_t i = p->order_n < DOTS_MAX ? p->order_n : DOTS_MAX; i-- > 0;) {
        const PlanCandidate *c = &p->candidates[p->order[i]];
        fprintf(plot->out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\"/>\n", place_x(plot, c),
                place_y(plot, c->step_s));
    }
    fprintf(plot->out, "</g>\n");
}

static void draw_front(const Plot *plot, const Plan *p)
{
    char time[TEXT_CAP];
    fprintf(plot->out,
            "<polyline fill=\"none\" stroke=\"#c9363c\" stroke-width=\"1.6\" points=\"");
    for (uint32_t i = 0; i < p->front_n; i++) {
        const PlanCandidate *c = &p->candidates[p->front[i]];
        fprintf(plot->out, "%s%.1f,%.1f", i ? " " : "", place_x(plot, c),
                place_y(plot, c->step_s));
    }
    fprintf(plot->out, "\"/>\n");
    for (uint32_t i = 0; i < p->front_n; i++) {
        const PlanCandidate *c = &p->candidates[p->front[i]];
        bool best = p->front[i] == p->order[0];
        fprintf(plot->out,
                "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"5\" fill=\"%s\" "
                "stroke=\"#c9363c\" stroke-width=\"2\"/>\n",
                place_x(plot, c), place_y(plot, c->step_s), best ? "#c9363c" : "white");
        put_text(plot->out, place_x(plot, c), place_y(plot, c->step_s) + 20, "middle", 12,
                 text_seconds(time, c->step_s));
    }
}

void plan_svg(const Plan *p, FILE *out)
{
    char title[TEXT_CAP + 64], name[TEXT_CAP];
    Plot plot = { .out = out };
    find_axes(&plot, p);
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "viewBox=\"0 0 %d %d\"\n     font-family=\"Helvetica, Arial, sans-serif\">\n"
            "<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n",
            WIDTH, HEIGHT, WIDTH, HEIGHT, WIDTH, HEIGHT);
    snprintf(title, sizeof title, "lockstep plan: %s", text_name(name, p->bases[0].name, 50));
    put_text(out, LEFT, 34, "start", 17, title);
    draw_axes(&plot, p);
    draw_dots(&plot, p);
    draw_front(&plot, p);
    fprintf(out, "</svg>\n");
}

/*
 * scene_diff.c - where the simulation parts from reality: error strip, drift line, tables.
 *
 * The error strip is as wide as real time; above its middle the simulation is too slow,
 * below too fast, by up to ERROR_FULL_PCT; what is exact is a grey line.  Ops without a twin
 * are hatched.  Pixels with many ops show the error of their sum.
 */
#include "viz/scene_diff.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "viz/scene_cells.h"

enum { ERROR_FULL_PCT = 50 };

typedef struct ErrorLane {
    ScenePen *p;
    PxBox box;
    LodWindow window; /* on the real clock */
    const ViewDiffRank *r;
    const Timeline *real;
    /* Ops smaller than a pixel, summed up. */
    uint32_t x;
    int64_t real_ns, off_ns, alone_ns;
} ErrorLane;

static void draw_error(ErrorLane *e, Px x0, Px x1, int64_t real_ns, int64_t off_ns)
{
    double part = real_ns > 0  ? (double)off_ns / (double)real_ns * 100 / ERROR_FULL_PCT
                  : off_ns > 0 ? 1
                               : 0;
    part = part > 1 ? 1 : part < -1 ? -1 : part;
    Px middle = (e->box.y0 + e->box.y1) / 2 / PX_ONE * PX_ONE;
    Px height = (Px)(fabs(part) * (double)(e->box.y1 - middle));
    PxBox box = { x0, middle, x1, middle + px_max(height, PX_ONE / 2) };
    if (part > 0)
        box = (PxBox){ x0, middle - px_max(height, PX_ONE / 2), x1, middle };
    draw_rect(e->p->d, box,
              scene_color(e->p, off_ns > 0   ? THEME_TOO_SLOW
                                : off_ns < 0 ? THEME_TOO_FAST
                                             : THEME_DIM));
}

static void draw_alone(ErrorLane *e, Px x0, Px x1)
{
    Px middle = (e->box.y0 + e->box.y1) / 2, half = (e->box.y1 - e->box.y0) / 6;
    draw_hatch(e->p->d, (PxBox){ x0, middle - half, x1, middle + half },
               scene_color(e->p, THEME_LINE), scene_color(e->p, THEME_DIM));
}

static void flush_pixel(ErrorLane *e)
{
    Px x0 = e->box.x0 + PX((int32_t)e->x);
    if (e->real_ns > 0 || e->off_ns != 0)
        draw_error(e, x0, x0 + PX(1), e->real_ns, e->off_ns);
    else if (e->alone_ns > 0)
        draw_alone(e, x0, x0 + PX(1));
    e->real_ns = e->off_ns = e->alone_ns = 0;
}

static Px lane_x(const ErrorLane *e, int64_t ns)
{
    return px_between(e->box.x0, e->box.x1, ns - e->window.from_ns,
                      e->window.to_ns - e->window.from_ns);
}

/* What a real kernel bears of its op's error: as much as it has of the op's time. */
static int64_t kernel_off_ns(const ViewPair *pair, int64_t kernel_ns)
{
    int64_t off_ns = pair->time_ns[1] - pair->time_ns[0];
    if (kernel_ns == pair->time_ns[0])
        return off_ns;
    return (int64_t)((double)off_ns * (double)kernel_ns / (double)pair->time_ns[0]);
}

static void put_pair(ErrorLane *e, const ViewPair *pair)
{
    int64_t start_ns = e->real->start_ns[pair->span[0]];
    int64_t real_ns = e->real->dur_ns[pair->span[0]];
    bool alone = pair->span[1] == NONE_U64;
    int64_t off_ns = alone ? 0 : kernel_off_ns(pair, real_ns);
    Px x0 = px_max(e->box.x0, lane_x(e, start_ns));
    Px x1 = px_min(e->box.x1, lane_x(e, start_ns + real_ns));
    if (x1 - x0 >= PX(1)) {
        flush_pixel(e);
        if (alone)
            draw_alone(e, x0, x1);
        else
            draw_error(e, x0, x1 - (x1 - x0 > PX(3) ? PX_ONE / 2 : 0), real_ns, off_ns);
        return;
    }
    uint32_t x = lod_pixel_of(&e->window, max_i64(start_ns, e->window.from_ns));
    if (x != e->x)
        flush_pixel(e);
    e->x = x;
    e->real_ns += alone ? 0 : real_ns;
    e->off_ns += off_ns;
    e->alone_ns += alone ? real_ns : 0;
}

static bool open_lane(ErrorLane *e, ScenePen *p, const LayoutRow *row)
{
    *e = (ErrorLane){ .p = p,
                      .box = { p->l->lanes.x0, row->y0, p->l->lanes.x1, row->y1 },
                      .window = layout_window(p->l, row),
                      .r = p->v->diff ? view_diff_rank(p->v->diff, row->rank) : NULL,
                      .real = p->v->data[VIEW_REAL_SIDE]->t };
    return e->r != NULL;
}

void scene_error(ScenePen *p, const LayoutRow *row)
{
    ErrorLane e;
    if (!open_lane(&e, p, row))
        return;
    Px middle = (row->y0 + row->y1) / 2 / PX_ONE * PX_ONE;
    draw_rect(p->d, (PxBox){ e.box.x0, middle, e.box.x1, middle + PX(1) },
              scene_color(p, THEME_LINE));
    for (uint64_t i = view_diff_first(e.r, e.window.from_ns); i < e.r->real_n; i++) {
        uint64_t real = e.r->pairs[i].span[0];
        int64_t start_ns = e.real->start_ns[real];
        if (start_ns >= e.window.to_ns)
            break;
        if (start_ns >= e.window.from_ns || start_ns + e.real->dur_ns[real] > e.window.from_ns)
            put_pair(&e, &e.r->pairs[i]);
    }
    flush_pixel(&e);
}

/* ---- drift ---- */

/* Of the ops that end within one pixel the line goes through the least and the most late. */
typedef struct DriftLine {
    PxPoint *at;
    uint32_t n, cap;
    PxPoint low, high;
    bool any;
} DriftLine;

static void put_extremes(DriftLine *k)
{
    bool low_first = k->low.x <= k->high.x, same = k->low.y == k->high.y;
    if (!k->any || k->n + 2 > k->cap)
        return;
    k->at[k->n++] = low_first ? k->low : k->high;
    if (!same)
        k->at[k->n++] = low_first ? k->high : k->low;
    k->any = false;
}

static void put_drift(DriftLine *k, PxPoint at)
{
    if (k->any && px_floor(k->low.x) != px_floor(at.x))
        put_extremes(k);
    if (!k->any || at.y > k->low.y)
        k->low = at;
    if (!k->any || at.y < k->high.y)
        k->high = at;
    k->any = true;
}

void scene_drift(ScenePen *p, const LayoutRow *row)
{
    enum { POINTS = 1 << 15 }; /* two for each pixel of the widest picture */
    static PxPoint points[POINTS];
    DriftLine line = { .at = points, .cap = POINTS };
    ErrorLane e;
    if (!open_lane(&e, p, row))
        return;
    int64_t largest = max_i64(1, e.r->drift_max_ns);
    Px middle = (row->y0 + row->y1) / 2, half = (row->y1 - row->y0) / 2 - PX(1);
    draw_rect(p->d, (PxBox){ e.box.x0, middle, e.box.x1, middle + PX(1) },
              scene_color(p, THEME_LINE));
    for (uint64_t i = view_drift_first(e.r, e.window.from_ns); i < e.r->drift_n; i++) {
        const ViewDrift *drift = &e.r->drift[i];
        Px x = lane_x(&e, max_i64(drift->at_ns, e.window.from_ns));
        Px y = middle - (Px)((double)half * (double)drift->late_ns / (double)largest);
        put_drift(&line, (PxPoint){ x, y });
        if (x > e.box.x1)
            break;
    }
    put_extremes(&line);
    if (line.n >= 2)
        draw_line(p->d, points, line.n, draw_px(p->d, 2), scene_color(p, THEME_TOO_SLOW));
}

/* ---- tables of the drawer ---- */

void scene_error_text(char *text, size_t cap, int64_t real_ns, int64_t sim_ns)
{
    double pct = real_ns > 0 ? 100 * ((double)sim_ns / (double)real_ns - 1) : NAN;
    if (isnan(pct))
        snprintf(text, cap, "-");
    else if (fabs(pct) < 0.05)
        snprintf(text, cap, "0.0 %%");
    else
        snprintf(text, cap, "%+.*f %%", pct < 999.95 ? 1 : 0, pct);
}

static CellRow time_row(const char *name, int64_t real_ns, int64_t sim_ns)
{
    CellRow row = { .name = "" };
    snprintf(row.name, sizeof row.name, "%s", name);
    view_time_text(row.cell[0], sizeof row.cell[0], real_ns);
    view_time_text(row.cell[1], sizeof row.cell[1], sim_ns);
    scene_error_text(row.cell[2], sizeof row.cell[2], real_ns, sim_ns);
    return row;
}

static CellRow class_row(const ViewDiffClass *k)
{
    CellRow row = time_row(k->name, k->ns[0], k->ns[1]);
    if (!isnan(k->share_pct)) /* + 0: none has no minus */
        snprintf(row.cell[3], sizeof row.cell[3], "%+.0f %%", round(k->share_pct) + 0.0);
    return row;
}

typedef struct Tables {
    ScenePen *p;
    PxBox box;
    Px *y;
    CellColumns columns;
} Tables;

static PxBox take_line(Tables *t, int32_t pixels)
{
    PxBox line = { t->box.x0, *t->y, t->box.x1, *t->y + draw_px(t->p->d, pixels) };
    *t->y = line.y1;
    return line;
}

static void put_rows(Tables *t, const CellRow *head, const CellRow *rows, uint32_t n)
{
    cells_draw_named(&t->columns, t->p, take_line(t, 17), head, THEME_DIM);
    for (uint32_t i = 0; i < n && *t->y + draw_px(t->p->d, 17) < t->box.y1; i++)
        cells_draw_named(&t->columns, t->p, take_line(t, 17), &rows[i], THEME_TEXT);
}

static void put_classes(Tables *t, const CellRow *head, const CellRow *classes)
{
    const ViewDiff *f = t->p->v->diff;
    char text[96];
    snprintf(text, sizeof text, "error of ops %.1f %%, on %.0f %% of real time",
             f->op_error_pct, f->coverage_pct);
    draw_text(t->p->d, take_line(t, 18), scene_small(), ALIGN_LEFT,
              scene_color(t->p, THEME_DIM), text);
    *t->y += draw_px(t->p->d, 8);
    put_rows(t, head, classes, f->classes_n);
}

void scene_diff_tables(ScenePen *p, PxBox box, Px *y)
{
    static const CellRow heads[] = { { "step, all ranks", { "real", "sim", "error" } },
                                     { "class", { "real", "sim", "error", "share" } } };
    const ViewDiff *f = p->v->diff;
    const Metrics *real = &f->times[0], *sim = &f->times[1];
    const CellRow step[] = {
        time_row("step time", real->span_ns, sim->span_ns),
        time_row("compute", real->compute_ns, sim->compute_ns),
        time_row("communication", real->comm_ns, sim->comm_ns),
        time_row("  exposed", real->exposed_comm_ns, sim->exposed_comm_ns),
        time_row("idle", real->idle_ns, sim->idle_ns),
    };
    CellRow *classes = mem_zero((size_t)f->classes_n + 1, sizeof *classes);
    Tables t = { .p = p, .box = box, .y = y };
    for (uint32_t i = 0; i < f->classes_n; i++)
        classes[i] = class_row(&f->classes[i]);
    for (uint32_t i = 0; i < f->classes_n; i++)
        cells_widen(&t.columns, p->d, &classes[i]);
    for (size_t i = 0; i < ARRAY_N(step); i++)
        cells_widen(&t.columns, p->d, &step[i]);
    cells_widen(&t.columns, p->d, &heads[1]);
    *y += draw_px(p->d, 8);
    draw_text(p->d, take_line(&t, 22), scene_bold(), ALIGN_LEFT, scene_color(p, THEME_TEXT),
              "Real and sim");
    put_rows(&t, &heads[0], step, ARRAY_N(step));
    put_classes(&t, &heads[1], classes);
    free(classes);
}

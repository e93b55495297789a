/*
 * scene_drawer.c - the drawer on the right: numbers of the selection or the window, top
 * kernels, stragglers.  Every number comes from exact sums.
 */
#include "viz/scene_cells.h"
#include "viz/scene_diff.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Drawer {
    ScenePen *p;
    PxBox box; /* padded */
    Px y;
    Metrics *m; /* by rank of the side shown; of those that count */
    ViewStats stats;
} Drawer;

static PxBox take_line(Drawer *w, int32_t pixels)
{
    PxBox line = { w->box.x0, w->y, w->box.x1, w->y + draw_px(w->p->d, pixels) };
    w->y = line.y1;
    return line;
}

static bool has_room(const Drawer *w, int32_t pixels)
{
    return w->y + draw_px(w->p->d, pixels) <= w->box.y1;
}

static void put_title(Drawer *w, const char *text)
{
    w->y += draw_px(w->p->d, 10);
    draw_text(w->p->d, take_line(w, 22), scene_bold(), ALIGN_LEFT,
              scene_color(w->p, THEME_TEXT), text);
}

static void put_note(Drawer *w, const char *text)
{
    draw_text(w->p->d, take_line(w, 16), scene_small(), ALIGN_LEFT,
              scene_color(w->p, THEME_DIM), text);
}

/* Name, time, share of the window; and a bar below. */
static void put_value(Drawer *w, const char *name, int64_t ns, int64_t of_ns, TimeClass class_)
{
    ScenePen *p = w->p;
    char text[48];
    double part = of_ns > 0 ? (double)ns / (double)of_ns : 0;
    PxBox line = take_line(w, 18), bar = line;
    draw_text(p->d, line, scene_body(), ALIGN_LEFT, scene_color(p, THEME_TEXT), name);
    snprintf(text, sizeof text, "%.1f%%", 100 * part);
    draw_text(p->d, line, scene_body(), ALIGN_RIGHT, scene_color(p, THEME_TEXT), text);
    line.x1 -= draw_px(p->d, 56);
    draw_text(p->d, line, scene_body(), ALIGN_RIGHT, scene_color(p, THEME_TEXT),
              view_time_text(text, sizeof text, ns));
    bar.y0 = w->y;
    w->y += draw_px(p->d, 3);
    bar.y1 = w->y;
    draw_rect(p->d, bar, color_fade(scene_color(p, THEME_LINE), 120));
    bar.x1 = bar.x0 + (Px)((double)(bar.x1 - bar.x0) * part);
    theme_span(p->d, p->theme, class_, bar, 255);
    w->y += draw_px(p->d, 3);
}

/* HTA's temporal breakdown: what is neither idle nor below a compute kernel is non-compute. */
static void put_hta(Drawer *w, const Metrics *sum, int64_t n)
{
    int64_t of_ns = sum->span_ns / n, compute_ns = sum->compute_ns / n,
            idle_ns = sum->idle_ns / n;
    put_value(w, "Compute", compute_ns, of_ns, TIME_COMPUTE);
    put_value(w, "Non-compute", of_ns - compute_ns - idle_ns, of_ns, TIME_EXPOSED);
    put_value(w, "Idle", idle_ns, of_ns, TIME_IDLE);
    put_note(w, "as HTA books it: overlapped is compute");
}

static void put_numbers(Drawer *w)
{
    ScenePen *p = w->p;
    const ViewData *d = view_data(p->v);
    ViewWindow window = view_stats_window(p->v);
    ViewStats stats = w->stats;
    int64_t n = (int64_t)(stats.ranks_n ? stats.ranks_n : 1), of_ns = stats.sum.span_ns / n;
    char text[96], size[32];
    snprintf(text, sizeof text, "%s (%s)", p->v->has_selection ? "Selection" : "Window",
             view_time_text(size, sizeof size, window.to_ns - window.from_ns));
    put_title(w, text);
    uint32_t counted_n = 0;
    for (uint32_t r = 0; r < d->ranks_n; r++)
        counted_n += view_counts(p->v, r);
    snprintf(text, sizeof text, "mean of %" PRIu64 " rank%s%s", stats.ranks_n,
             stats.ranks_n == 1 ? "" : "s",
             counted_n == d->ranks_n ? ""
             : p->v->has_selection   ? ", those selected"
                                     : ", those shown");
    put_note(w, text);
    w->y += draw_px(p->d, 4);
    if (p->v->hta_numbers) {
        put_hta(w, &stats.sum, n);
        return;
    }
    put_value(w, "Compute", stats.sum.compute_ns / n, of_ns, TIME_COMPUTE);
    put_value(w, "Communication", stats.sum.comm_ns / n, of_ns, TIME_OVERLAPPED);
    put_value(w, "  overlapped", stats.sum.overlapped_ns / n, of_ns, TIME_OVERLAPPED);
    put_value(w, "  exposed", stats.sum.exposed_comm_ns / n, of_ns, TIME_EXPOSED);
    put_value(w, "Copies", stats.sum.memory_ns / n, of_ns, TIME_MEMORY);
    put_value(w, "Idle", stats.sum.idle_ns / n, of_ns, TIME_IDLE);
    if (stats.sum.comm_ns > 0)
        snprintf(text, sizeof text, "Overlap  %.1f %%   = overlapped / communication",
                 metrics_overlap_pct(&stats.sum));
    else
        snprintf(text, sizeof text, "No communication in this window");
    put_note(w, text);
}

/* ---- between ranks ---- */

/* What a rank took, and all that it stands for. */
typedef struct Took {
    int64_t ns;
    uint32_t ranks_n;
} Took;

static int by_time(const void *a, const void *b)
{
    const Took *x = a, *y = b;
    return (x->ns > y->ns) - (x->ns < y->ns);
}

/* Of the at-th of all ranks. */
static int64_t took_ns(const Took *sorted, uint64_t at)
{
    for (; at >= sorted->ranks_n; sorted++)
        at -= sorted->ranks_n;
    return sorted->ns;
}

static int64_t median_ns(const Took *sorted, uint64_t ranks_n)
{
    int64_t low_ns = took_ns(sorted, (ranks_n - 1) / 2), high_ns = took_ns(sorted, ranks_n / 2);
    return low_ns + (high_ns - low_ns) / 2;
}

static void put_columns(Drawer *w, const char *name, const char *const text[3],
                        ThemeColor color)
{
    ScenePen *p = w->p;
    PxBox line = take_line(w, 16);
    draw_text(p->d, line, scene_small(), ALIGN_LEFT, scene_color(p, THEME_DIM), name);
    for (int i = 3; i-- > 0; line.x1 -= draw_px(p->d, 70))
        draw_text(p->d, line, scene_small(), ALIGN_RIGHT, scene_color(p, color), text[i]);
}

static void put_took(Drawer *w, const char *name, Took *k, uint32_t n)
{
    char text[3][32];
    qsort(k, n, sizeof *k, by_time);
    view_time_text(text[0], sizeof text[0], k[0].ns);
    view_time_text(text[1], sizeof text[1], median_ns(k, w->stats.ranks_n));
    view_time_text(text[2], sizeof text[2], k[n - 1].ns);
    put_columns(w, name, (const char *const[]){ text[0], text[1], text[2] }, THEME_TEXT);
}

/* Of what each rank took: the least, the middle, the most. */
static void put_spread(Drawer *w)
{
    static const char *const heads[] = { "min", "median", "max" };
    const View *v = w->p->v;
    const ViewData *d = view_data(v);
    Took *took[3];
    uint32_t n = 0;
    for (int k = 0; k < 3; k++)
        took[k] = mem_zero((size_t)d->ranks_n + 1, sizeof *took[k]);
    for (uint32_t r = 0; r < d->ranks_n; r++)
        if (view_counts(v, r)) {
            uint32_t ranks_n = d->ranks[r].ranks_n;
            took[0][n] = (Took){ w->m[r].compute_ns, ranks_n };
            took[1][n] = (Took){ w->m[r].exposed_comm_ns, ranks_n };
            took[2][n++] = (Took){ w->m[r].idle_ns, ranks_n };
        }
    if (n > 1 && has_room(w, 80)) {
        put_title(w, "Between ranks");
        w->y -= draw_px(w->p->d, 19);
        put_columns(w, "", heads, THEME_DIM);
        w->y += draw_px(w->p->d, 3);
        put_took(w, "compute", took[0], n);
        put_took(w, "exposed", took[1], n);
        put_took(w, "idle", took[2], n);
    }
    for (int k = 0; k < 3; k++)
        free(took[k]);
}

/* ---- top kernels ---- */

static TimeClass class_of(uint8_t span_class)
{
    return span_class == SPAN_COMM      ? TIME_OVERLAPPED
           : span_class == SPAN_P2P     ? TIME_P2P
           : span_class == SPAN_MEMORY  ? TIME_MEMORY
           : span_class == SPAN_COMPUTE ? TIME_COMPUTE
                                        : TIME_HOST;
}

/* What the mouse finds, in the colour that is there already. */
static void put_kernel_ground(Drawer *w, uint32_t i)
{
    PxBox line = { w->box.x0, w->y, w->box.x1, w->y + draw_px(w->p->d, 16) };
    draw_tip(w->p->d, SCENE_ITEM_KERNEL + i, NULL);
    draw_rect(w->p->d, line, scene_color(w->p, THEME_PANEL));
}

/* Would the end of a name be cut, and leave what another one of the list is cut to? */
static bool is_cut_as_another(Drawer *w, const SceneTables *t, uint32_t i, Px width)
{
    Names *names = &w->p->s->names[view_side(w->p->v)];
    const char *name = names_short(names, t->top[i].name);
    Font *font = w->p->d->font;
    bool again = false;
    if (font_width(font, scene_small(), name, strlen(name)) <= width)
        return false;
    size_t n = font_fit(font, scene_small(), name, strlen(name),
                        width - font_advance(font, scene_small(), 0x2026));
    for (uint32_t k = 0; k < t->top_n; k++)
        again |= k != i && strncmp(name, names_short(names, t->top[k].name), n) == 0;
    return again;
}

static void put_kernel_name(Drawer *w, const SceneTables *t, uint32_t i, PxBox line)
{
    ScenePen *p = w->p;
    const char *name = names_short(&p->s->names[view_side(p->v)], t->top[i].name);
    char cut[256];
    if (is_cut_as_another(w, t, i, line.x1 - line.x0))
        name = names_cut(p->d->font, scene_small(), name, line.x1 - line.x0, cut, sizeof cut);
    draw_tip(p->d, NONE_U32, timeline_text(view_data(p->v)->t, t->top[i].name));
    draw_text(p->d, line, scene_small(), ALIGN_LEFT, scene_color(p, THEME_TEXT), name);
}

static void put_kernel(Drawer *w, const SceneTables *t, uint32_t i)
{
    const KernelTotal *k = &t->top[i];
    int64_t largest_ns = t->top[0].total_ns;
    ScenePen *p = w->p;
    char text[64];
    PxBox line = take_line(w, 16), bar = line;
    bar.x1 = bar.x0 + (Px)((double)(bar.x1 - bar.x0) * (double)k->total_ns /
                           (double)max_i64(1, largest_ns));
    bar = px_box_inset(bar, PX(1));
    theme_span(p->d, p->theme, class_of(k->span_class), bar, 60);
    draw_text(p->d, line, scene_small(), ALIGN_RIGHT, scene_color(p, THEME_DIM),
              view_time_text(text, sizeof text, k->total_ns));
    line.x1 -= draw_px(p->d, 62);
    snprintf(text, sizeof text, "%" PRIu64, k->count);
    draw_text(p->d, line, scene_small(), ALIGN_RIGHT, scene_color(p, THEME_DIM), text);
    line.x1 -= draw_px(p->d, 48);
    line.x0 += draw_px(p->d, 4);
    put_kernel_name(w, t, i, line);
}

/* How many fit beside what comes below them; of many ranks some are left out sooner. */
static uint32_t kernels_n(const Drawer *w, const SceneTables *t)
{
    enum { LEAST = 12, ROW = 16, TITLE = 32 };
    const View *v = w->p->v;
    Px below = t->comms_n || t->comms_left_out ? TITLE + ROW * ((Px)t->comms_n + 1) : 0;
    Px ranks_n = 0;
    for (uint32_t r = 0; r < view_data(v)->ranks_n && ranks_n < SCENE_TOP_KERNELS; r++)
        ranks_n += view_counts(v, r);
    below += ranks_n > 1 ? TITLE + ROW * ranks_n : 0;
    Px row = draw_px(w->p->d, ROW), room = w->box.y1 - w->y;
    Px free_n = (room - draw_px(w->p->d, below)) / row, most = px_max(LEAST, free_n);
    return (uint32_t)px_max(0, px_min(px_min(most, room / row), (Px)t->top_n));
}

static void put_kernels(Drawer *w)
{
    w->p->s->kernels_n = 0;
    if (w->p->s->hurry || !has_room(w, 45))
        return;
    const SceneTables *t = scene_tables(w->p->s, w->p->v);
    put_title(w, "Top kernels");
    w->p->s->kernels_n = kernels_n(w, t);
    for (uint32_t i = 0; i < w->p->s->kernels_n; i++) {
        put_kernel_ground(w, i);
        if (w->p->v->pane == VIEW_PANE_DRAWER && w->p->v->pane_at == i)
            draw_outline(w->p->d,
                         (PxBox){ w->box.x0 - PX(2), w->y, w->box.x1 + PX(2),
                                  w->y + draw_px(w->p->d, 16) },
                         draw_px(w->p->d, 1), 0, scene_color(w->p, THEME_FOCUS));
        put_kernel(w, t, i);
    }
    if (t->top_n == 0)
        put_note(w, "no kernels in this window");
}

/* ---- what communication was exposed ---- */

static CellRow comm_row(Drawer *w, const CommTotal *k)
{
    const Timeline *t = view_data(w->p->v)->t;
    const Comm *c = timeline_comm_of(t, k->span);
    double busbw = timeline_busbw_over(t, k->span, k->transfer_ns);
    CellRow row = { .name = "" };
    char size[24];
    names_without_size(&w->p->s->names[view_side(w->p->v)], k->span, row.name, sizeof row.name);
    if (c && c->bytes != NONE_U64)
        view_bytes_text(row.cell[0], sizeof row.cell[0], c->bytes);
    if (busbw > 0)
        snprintf(row.cell[1], sizeof row.cell[1], "%s/s",
                 view_bytes_text(size, sizeof size, (uint64_t)(busbw * 1e9)));
    view_time_text(row.cell[2], sizeof row.cell[2], k->exposed_ns);
    return row;
}

static void put_comm(Drawer *w, const CommTotal *k, const CellColumns *columns, CellRow *row,
                     int64_t largest_ns)
{
    ScenePen *p = w->p;
    const Timeline *t = view_data(p->v)->t;
    PxBox line = take_line(w, 16), bar = line;
    bar.x1 = bar.x0 + (Px)((double)(bar.x1 - bar.x0) * (double)k->exposed_ns /
                           (double)max_i64(1, largest_ns));
    draw_rect(p->d, px_box_inset(bar, PX(1)), color_fade(p->theme->time[TIME_EXPOSED], 60));
    line = cells_draw(columns, p, line, row, THEME_DIM);
    line.x0 += draw_px(p->d, 4);
    names_fit(p->d->font, scene_small(), row->name, line.x1 - line.x0);
    draw_tip(p->d, NONE_U32, timeline_text(t, t->span_name[k->span]));
    draw_text(p->d, line, scene_small(), ALIGN_LEFT, scene_color(p, THEME_TEXT), row->name);
}

/* Beside the heading stand those of the columns; busbw is of the transfer alone. */
static void put_comms(Drawer *w)
{
    static const CellRow head = { "", { "size", "busbw", "exposed" } };
    CellRow rows[SCENE_TOP_COMMS];
    CellColumns columns = { .width = { 0 } };
    if (w->p->s->hurry || !has_room(w, 60))
        return;
    const SceneTables *t = scene_tables(w->p->s, w->p->v);
    if (t->comms_n == 0 && !t->comms_left_out)
        return;
    for (uint32_t i = 0; i < t->comms_n; i++) {
        rows[i] = comm_row(w, &t->comms[i]);
        cells_widen(&columns, w->p->d, &rows[i]);
    }
    if (t->comms_n > 0)
        cells_widen(&columns, w->p->d, &head);
    put_title(w, "Most exposed");
    PxBox title = { w->box.x0, w->y - draw_px(w->p->d, 19), w->box.x1, w->y };
    title.y1 -= draw_px(w->p->d, 3);
    if (t->comms_n > 0)
        cells_draw(&columns, w->p, title, &head, THEME_DIM);
    for (uint32_t i = 0; i < t->comms_n && has_room(w, 16); i++)
        put_comm(w, &t->comms[i], &columns, &rows[i], t->comms[0].exposed_ns);
    if (t->comms_left_out)
        put_note(w, "more than 200,000 in the window: zoom in");
}

/* ---- stragglers: exposed communication per rank ---- */

typedef struct Exposed {
    int64_t ns;
    uint32_t rank;
} Exposed;

static int by_exposed(const void *a, const void *b)
{
    const Exposed *x = a, *y = b;
    if (x->ns != y->ns)
        return x->ns < y->ns ? 1 : -1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

static void put_rank(Drawer *w, const Exposed *e, int64_t largest_ns)
{
    ScenePen *p = w->p;
    char text[48];
    PxBox line = take_line(w, 16), bar = line;
    snprintf(text, sizeof text, "rank %" PRIu32, view_data(p->v)->ranks[e->rank].rank);
    draw_text(p->d, line, scene_small(), ALIGN_LEFT, scene_color(p, THEME_DIM), text);
    draw_text(p->d, line, scene_small(), ALIGN_RIGHT, scene_color(p, THEME_DIM),
              view_time_text(text, sizeof text, e->ns));
    bar.x0 += draw_px(p->d, 64);
    bar.x1 -= draw_px(p->d, 70);
    bar.x1 = bar.x0 +
             (Px)((double)(bar.x1 - bar.x0) * (double)e->ns / (double)max_i64(1, largest_ns));
    bar.y0 += draw_px(p->d, 4);
    bar.y1 -= draw_px(p->d, 4);
    theme_span(p->d, p->theme, TIME_EXPOSED, bar, 255);
}

static void put_stragglers(Drawer *w)
{
    const View *v = w->p->v;
    const ViewData *d = view_data(v);
    Exposed *e = mem_zero(d->ranks_n + 1, sizeof *e);
    uint32_t n = 0;
    for (uint32_t r = 0; r < d->ranks_n; r++)
        if (view_counts(v, r))
            e[n++] = (Exposed){ w->m[r].exposed_comm_ns, r };
    qsort(e, n, sizeof *e, by_exposed);
    if (n > 1 && e[0].ns > 0 && has_room(w, 48)) {
        put_title(w, "Exposed communication by rank");
        for (uint32_t r = 0; r < n && has_room(w, 16); r++)
            put_rank(w, &e[r], e[0].ns);
    }
    free(e);
}

void scene_drawer(ScenePen *p)
{
    PxBox box = p->l->drawer;
    Px pad = draw_px(p->d, 14);
    draw_rect(p->d, box, scene_color(p, THEME_PANEL));
    draw_rect(p->d, (PxBox){ box.x0, box.y0, box.x0 + PX(1), box.y1 },
              scene_color(p, THEME_LINE));
    draw_clip_push(p->d, box);
    const ViewData *d = view_data(p->v);
    Drawer w = {
        p, { box.x0 + pad, box.y0, box.x1 - pad, box.y1 - pad }, box.y0, NULL, { .ranks_n = 0 }
    };
    w.m = mem_zero((size_t)d->ranks_n + 1, sizeof *w.m);
    w.stats = view_window_stats(p->v, view_stats_window(p->v), w.m);
    put_numbers(&w);
    if (p->v->critical)
        scene_path_table(p, w.box, &w.y);
    if (p->v->diff && p->v->mode >= VIEW_SPLIT)
        scene_diff_tables(p, w.box, &w.y);
    put_spread(&w);
    put_kernels(&w);
    put_comms(&w);
    put_stragglers(&w);
    free(w.m);
    draw_clip_pop(p->d);
}

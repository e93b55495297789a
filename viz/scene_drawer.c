/*
 * scene_drawer.c - the drawer on the right: numbers of the selection or the window, top
 * kernels, stragglers.  Every number comes from exact sums.
 */
#include "viz/scene_diff.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Drawer {
    ScenePen *p;
    PxBox box; /* padded */
    Px y;
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

static uint64_t chosen_ranks(const ScenePen *p)
{
    uint64_t n = 0;
    for (uint32_t r = 0; r < view_data(p->v)->ranks_n; r++)
        n += view_side(p->v) != VIEW_REAL_SIDE || p->v->selected_ranks[r];
    return n;
}

static const bool *chosen(const ScenePen *p)
{
    return view_side(p->v) == VIEW_REAL_SIDE && p->v->has_selection ? p->v->selected_ranks
                                                                    : NULL;
}

static void put_numbers(Drawer *w)
{
    ScenePen *p = w->p;
    const ViewData *d = view_data(p->v);
    ViewWindow window = view_stats_window(p->v);
    int64_t shift_ns = d->ranks_n ? view_shift_ns(p->v, view_side(p->v), 0) : 0;
    ViewStats stats =
        view_stats(d, chosen(p), window.from_ns + shift_ns, window.to_ns + shift_ns);
    int64_t n = (int64_t)(stats.ranks_n ? stats.ranks_n : 1), of_ns = stats.sum.span_ns / n;
    char text[96], size[32];
    snprintf(text, sizeof text, "%s (%s)", p->v->has_selection ? "Selection" : "Window",
             view_time_text(size, sizeof size, window.to_ns - window.from_ns));
    put_title(w, text);
    uint64_t chosen_n = chosen(p) ? chosen_ranks(p) : d->ranks_n;
    snprintf(text, sizeof text, "mean of %" PRIu64 " rank%s%s", stats.ranks_n,
             stats.ranks_n == 1 ? "" : "s", chosen_n < d->ranks_n ? ", those selected" : "");
    put_note(w, text);
    w->y += draw_px(p->d, 4);
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

/* ---- top kernels ---- */

static uint64_t ranks_hash(const ScenePen *p)
{
    uint64_t hash = chosen(p) ? 1 : 0;
    for (uint32_t r = 0; chosen(p) && r < view_data(p->v)->ranks_n; r++)
        hash = mix_u64(hash + chosen(p)[r]);
    return hash;
}

static void make_tables(ScenePen *p)
{
    SceneTables *t = &p->s->tables;
    const ViewData *d = view_data(p->v);
    int64_t shift_ns = d->ranks_n ? view_shift_ns(p->v, view_side(p->v), 0) : 0;
    ViewWindow window = view_stats_window(p->v);
    window = (ViewWindow){ window.from_ns + shift_ns, window.to_ns + shift_ns };
    uint64_t hash = ranks_hash(p);
    if (t->data == d && memcmp(&t->window, &window, sizeof window) == 0 &&
        t->ranks_hash == hash)
        return;
    KernelSums *sums = &p->s->sums[view_side(p->v)];
    if (sums->data != d) {
        kernels_free(sums);
        kernels_open(sums, d);
    }
    *t = (SceneTables){ .data = d, .window = window, .ranks_hash = hash };
    t->top_n =
        kernels_top(sums, chosen(p), window.from_ns, window.to_ns, t->top, SCENE_TOP_KERNELS);
}

static TimeClass class_of(uint8_t span_class)
{
    return span_class == SPAN_COMM      ? TIME_OVERLAPPED
           : span_class == SPAN_P2P     ? TIME_P2P
           : span_class == SPAN_MEMORY  ? TIME_MEMORY
           : span_class == SPAN_COMPUTE ? TIME_COMPUTE
                                        : TIME_HOST;
}

static void put_kernel(Drawer *w, const KernelTotal *k, int64_t largest_ns)
{
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
    draw_tip(p->d, NONE_U32, timeline_text(view_data(p->v)->t, k->name));
    draw_text(p->d, line, scene_small(), ALIGN_LEFT, scene_color(p, THEME_TEXT),
              names_short(&p->s->names[view_side(p->v)], k->name));
}

static void put_kernels(Drawer *w, uint32_t most)
{
    if (w->p->s->hurry)
        return;
    make_tables(w->p);
    const SceneTables *t = &w->p->s->tables;
    put_title(w, "Top kernels");
    for (uint32_t i = 0; i < t->top_n && i < most && has_room(w, 16); i++)
        put_kernel(w, &t->top[i], t->top[0].total_ns);
    if (t->top_n == 0)
        put_note(w, "no kernels in this window");
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
    ViewWindow window = view_stats_window(v);
    Exposed *e = mem_zero(d->ranks_n + 1, sizeof *e);
    for (uint32_t r = 0; r < d->ranks_n; r++) {
        int64_t shift_ns = view_shift_ns(v, view_side(v), r);
        Metrics m = metrics_of_sum(cover_window(d->ranks[r].cover, window.from_ns + shift_ns,
                                                window.to_ns + shift_ns));
        e[r] = (Exposed){ m.exposed_comm_ns, r };
    }
    qsort(e, d->ranks_n, sizeof *e, by_exposed);
    if (d->ranks_n > 1 && e[0].ns > 0 && has_room(w, 48)) {
        put_title(w, "Exposed communication by rank");
        for (uint32_t r = 0; r < d->ranks_n && has_room(w, 16); r++)
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
    Drawer w = { p, { box.x0 + pad, box.y0, box.x1 - pad, box.y1 - pad }, box.y0 };
    put_numbers(&w);
    if (p->v->critical)
        scene_path_table(p, w.box, &w.y);
    if (p->v->diff && p->v->mode >= VIEW_SPLIT)
        scene_diff_tables(p, w.box, &w.y);
    put_kernels(&w, 12);
    put_stragglers(&w);
    draw_clip_pop(p->d);
}

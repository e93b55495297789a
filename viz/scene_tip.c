/*
 * scene_tip.c - the tooltip: all that is known of the span, the counter or the kernel of the
 * drawer that the mouse or the keyboard is at.
 */
#include "viz/scene_counter.h"
#include "viz/scene_diff.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { TIP_LINES = 22, TIP_TEXT = 200 };

typedef struct Tip {
    const char *name; /* whole, borrowed; NULL: nothing is said */
    char line[TIP_LINES][TIP_TEXT];
    uint32_t n;
} Tip;

static void say(Tip *tip, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void say(Tip *tip, const char *format, ...)
{
    va_list args;
    if (tip->n == TIP_LINES)
        return;
    va_start(args, format);
    vsnprintf(tip->line[tip->n++], TIP_TEXT, format, args);
    va_end(args);
}

static void say_when(Tip *tip, const View *v, ViewPlace place)
{
    const ViewData *d = v->data[place.side];
    const ViewRow *row = &d->rows[place.row];
    int64_t start_ns = d->t->start_ns[place.span], dur_ns = d->t->dur_ns[place.span];
    char a[32], b[32];
    view_time_text(a, sizeof a, dur_ns);
    int64_t from_ns = d->begin_ns;
    if (place.side == VIEW_REAL_SIDE && view_side(v) == VIEW_REAL_SIDE) /* as the ruler */
        from_ns = view_whole(v).from_ns + view_shift_ns(v, place.side, row->rank);
    view_time_text(b, sizeof b, start_ns - from_ns);
    say(tip, "%s, from %s of the trace", a, b);
    for (uint32_t i = 0; i < d->steps.n; i++) {
        const StepWindow *s = &d->steps.at[i];
        if (s->rank == d->ranks[row->rank].rank && start_ns >= s->from_ns &&
            start_ns < s->to_ns) {
            view_time_text(b, sizeof b, start_ns - s->from_ns);
            say(tip, "step %" PRId64 ": %s after its start, %.2f %% of it", s->step, b,
                100 * (double)dur_ns / (double)max_i64(1, s->to_ns - s->from_ns));
            return;
        }
    }
}

/* Of the transfer, as the report's; where the wait is unknown the kernel's time bounds it. */
static void say_busbw(Tip *tip, const ViewData *d, uint64_t span)
{
    int64_t transfer_ns = view_transfer_ns(d, span);
    double busbw = timeline_busbw_over(d->t, span, transfer_ns);
    if (busbw > 0)
        say(tip, "busbw %.1f GB/s of the transfer", busbw);
    else if (transfer_ns < 0 && timeline_busbw_over(d->t, span, d->t->dur_ns[span]) > 0)
        say(tip, "busbw at least %.1f GB/s, over the whole kernel: its wait is unknown",
            timeline_busbw_over(d->t, span, d->t->dur_ns[span]));
}

static void say_comm(Tip *tip, const View *v, ViewPlace place)
{
    const ViewData *d = v->data[place.side];
    const Comm *c = timeline_comm_of(d->t, place.span);
    const ViewComm *k = view_comm_of(&d->links, place.span);
    char a[32], b[32];
    if (c && c->bytes != NONE_U64)
        say(tip, "%s %s%s%s%s%s", timeline_text(d->t, c->op),
            view_bytes_text(a, sizeof a, c->bytes), c->dtype != NONE_U32 ? " " : "",
            timeline_text(d->t, c->dtype), c->algorithm != NONE_U32 ? ", " : "",
            timeline_text(d->t, c->algorithm));
    if (c && c->group != NONE_U32)
        say(tip, "group '%s' of %" PRIu32 "%s", timeline_text(d->t, c->group), c->ranks_n,
            c->seq == NONE_U32 ? "" : ", numbered");
    if (c && c->peer != NONE_U32)
        say(tip, "with rank %" PRIu32, c->peer);
    say_busbw(tip, d, place.span);
    if (!k)
        return;
    if (k->wait_ns >= 0)
        say(tip, "waited %s, transferred %s", view_time_text(a, sizeof a, k->wait_ns),
            view_time_text(b, sizeof b, d->t->dur_ns[place.span] - k->wait_ns));
    say(tip, "exposed %s of it", view_time_text(a, sizeof a, k->exposed_ns));
    if (k->match != NONE_U32) {
        const ViewMatch *m = &d->links.matches[k->match];
        if (m->last != NONE_U32) {
            uint64_t last = d->links.comms[d->links.parts[m->first + m->last]].span;
            say(tip, "last to arrive: rank %" PRIu32,
                d->t->tracks[d->t->span_track[last]].rank);
        }
        say(tip, "%s", d->links.channels[m->channel]);
    }
}

/* What started it, and how long before. */
static void say_cause(Tip *tip, ViewData *d, ViewPlace place)
{
    char delay[32];
    ViewLaunch found = view_launch_of(d, place);
    if (found.launch == NONE_U64)
        return;
    const Timeline *t = d->t;
    int64_t delay_ns = t->start_ns[place.span] - t->start_ns[found.launch];
    say(tip, "launched %s before by %.60s%s%.80s",
        view_time_text(delay, sizeof delay, delay_ns),
        timeline_text(t, t->span_name[found.launch]), found.within != NONE_U64 ? " in " : "",
        found.within != NONE_U64 ? timeline_text(t, t->span_name[found.within]) : "");
}

/* The same op on the other side, and how far the simulation is off; of several kernels together. */
static void say_twin(Tip *tip, const View *v, ViewPlace place)
{
    const ViewPair *pair = view_pair_of(v, place);
    char a[32], b[32], error[32];
    if (!pair)
        return;
    int64_t real_ns = pair->time_ns[VIEW_REAL_SIDE], sim_ns = pair->time_ns[VIEW_SIM_SIDE];
    bool many = pair->time_ns[place.side] != v->data[place.side]->t->dur_ns[place.span];
    view_time_text(a, sizeof a, real_ns);
    view_time_text(b, sizeof b, sim_ns);
    scene_error_text(error, sizeof error, real_ns, sim_ns);
    say(tip, "%sreal %s, sim %s%s%s", many ? "all kernels of the op: " : "", a, b,
        real_ns > 0 ? ": " : "", real_ns > 0 ? error : "");
}

/* "grid 24 x 1 x 1, block 544 x 1 x 1" and what they take. */
static void say_launch(Tip *tip, const KernelLaunch *l)
{
    char a[32], text[TIP_TEXT] = "";
    size_t n = 0;
    if (!l)
        return;
    say(tip,
        "grid %" PRIu32 " \xc3\x97 %" PRIu32 " \xc3\x97 %" PRIu32 ", block %" PRIu32
        " \xc3\x97 %" PRIu32 " \xc3\x97 %" PRIu32,
        l->grid[0], l->grid[1], l->grid[2], l->block[0], l->block[1], l->block[2]);
    if (l->registers_n != NONE_U32)
        n += (size_t)snprintf(text, sizeof text, "%" PRIu32 " registers a thread",
                              l->registers_n);
    if (l->shared_bytes != NONE_U32)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s shared a block", n ? ", " : "",
                              view_bytes_text(a, sizeof a, l->shared_bytes));
    if (n > 0)
        say(tip, "%s", text);
    if (l->occupancy_pct != NONE_U32)
        say(tip, "estimated occupancy %" PRIu32 " %%", l->occupancy_pct);
}

static void fill_tip(Tip *tip, const View *v, ViewPlace place)
{
    ViewData *d = v->data[place.side];
    const ViewRow *row = &d->rows[place.row];
    uint8_t class_ = d->t->span_class[place.span];
    tip->name = timeline_text(d->t, d->t->span_name[place.span]);
    say(tip, "%s on rank %" PRIu32 ", %s", span_class_names[class_ < SPAN_CLASS_N ? class_ : 0],
        d->ranks[row->rank].rank, timeline_text(d->t, d->t->tracks[row->track].name));
    say_when(tip, v, place);
    const char *op = timeline_op_name(d->t, place.span);
    if (d->t->op[place.span] != NONE_U32)
        say(tip, "op %" PRIu32 "%s%.80s", d->t->op[place.span], *op ? " " : "", op);
    if (cover_bit(class_) == COVER_COMM)
        say_comm(tip, v, place);
    say_launch(tip, timeline_launch_of(d->t, place.span));
    say_cause(tip, d, place);
    say_twin(tip, v, place);
}

static char *join_lines(const Tip *tip, char *text, size_t cap)
{
    size_t used = (size_t)snprintf(text, cap, "%s", tip->name ? tip->name : "");
    for (uint32_t i = 0; i < tip->n && used < cap; i++)
        used += (size_t)snprintf(text + used, cap - used, "\n%s", tip->line[i]);
    return text;
}

char *scene_tip_text(const View *v, ViewPlace place, char *text, size_t cap)
{
    Tip tip = { .n = 0 };
    fill_tip(&tip, v, place);
    return join_lines(&tip, text, cap);
}

/* ---- of the event at hand ---- */

static ViewPlace event_at_hand(const View *v)
{
    bool beside = v->by_keyboard && v->picked.row != NONE_U32;
    return beside || v->hover.row == NONE_U32 ? v->picked : v->hover;
}

char *scene_event_text(const View *v, char *text, size_t cap)
{
    Tip tip = { .n = 0 };
    ViewPlace place = event_at_hand(v);
    if (place.row != NONE_U32)
        fill_tip(&tip, v, place);
    return join_lines(&tip, text, cap);
}

/* ---- of the drawer's top kernels ---- */

static void fill_kernel(Tip *tip, ScenePen *p, uint32_t i)
{
    const KernelTotal *k = &scene_tables(p->s, p->v)->top[i];
    const KernelTimes *times = scene_kernel_times(p->s, p->v, i);
    char a[32], b[32], c[32];
    tip->name = timeline_text(view_data(p->v)->t, k->name);
    say(tip, "%" PRIu64 " time%s, %s within the window", k->count, k->count == 1 ? "" : "s",
        view_time_text(a, sizeof a, k->total_ns));
    say(tip, "mean %s, median %s, p99 %s", view_time_text(a, sizeof a, times->mean_ns),
        view_time_text(b, sizeof b, times->p50_ns), view_time_text(c, sizeof c, times->p99_ns));
}

/* ---- where it stands ---- */

/* What is said, in rows that are not wider than the box has room for. */
enum { TIP_ROWS = 2 * TIP_LINES, ROWS_MOST = 4, WIDEST = 640 };

typedef struct TipRows {
    struct {
        const char *text; /* borrowed, of n bytes */
        size_t n;
        bool bold;
    } at[TIP_ROWS];
    uint32_t n;
    Px width;
} TipRows;

/* How much of text goes into one row: up to where it may be parted, if that is not too early. */
static size_t row_bytes(Font *font, TextStyle style, const char *text, size_t n, Px width)
{
    size_t fits = font_fit(font, style, text, n, width), at = fits;
    if (fits == n)
        return n;
    while (at > fits / 2 && !strchr(" ,:<>()_", text[at - 1]))
        at--;
    return at > fits / 2 ? at : fits > 0 ? fits : n;
}

/* The last row has all that is left, which is cut when it is drawn. */
static void add_rows(TipRows *r, Font *font, const char *text, bool bold, Px width)
{
    TextStyle style = bold ? scene_bold() : scene_small();
    size_t n = strlen(text);
    for (int i = 1; (n > 0 || i == 1) && r->n < TIP_ROWS; i++) {
        size_t here = i == ROWS_MOST ? n : row_bytes(font, style, text, n, width);
        r->at[r->n].text = text;
        r->at[r->n].n = here;
        r->at[r->n++].bold = bold;
        r->width = px_max(r->width, px_min(width, font_width(font, style, text, here)));
        text += here;
        n -= here;
    }
}

/* Right below a place, or above it where there is no room; left of `right` if that is wide enough:
 * numbers of the drawer are looked at beside it. */
static PxBox tip_box(const ScenePen *p, Px width, Px height, PxBox at, Px right)
{
    Px most = width <= right ? right : p->l->all.x1, y = at.y1;
    if (y + height > p->l->legend.y0)
        y = at.y0 - height;
    return px_box(px_max(px_min(at.x0, most - width), 0), px_max(y, 0), width, height);
}

static void put_tip(ScenePen *p, const Tip *tip, PxBox at, Px right)
{
    Px line = draw_px(p->d, 17), pad = draw_px(p->d, 8);
    Px widest = px_min(draw_px(p->d, WIDEST), px_max(right, p->l->all.x1 / 2)) - 2 * pad;
    TipRows rows = { .n = 0 };
    add_rows(&rows, p->d->font, tip->name, true, widest);
    for (uint32_t i = 0; i < tip->n; i++)
        add_rows(&rows, p->d->font, tip->line[i], false, widest);
    PxBox box = tip_box(p, rows.width + 2 * pad, line * (Px)rows.n + 2 * pad, at, right);
    draw_round(p->d, box, draw_px(p->d, 4), scene_color(p, THEME_RAISED));
    draw_outline(p->d, box, PX(1), draw_px(p->d, 4), scene_color(p, THEME_EDGE));
    for (uint32_t i = 0; i < rows.n; i++) {
        char text[1024];
        PxBox row = px_box(box.x0 + pad, box.y0 + pad + line * (Px)i, rows.width + PX(2), line);
        snprintf(text, sizeof text, "%.*s", (int)min_u64(rows.at[i].n, sizeof text - 1),
                 rows.at[i].text);
        draw_text(p->d, row, rows.at[i].bold ? scene_bold() : scene_small(), ALIGN_LEFT,
                  scene_color(p, rows.at[i].bold ? THEME_TEXT : THEME_DIM), text);
    }
}

static PxBox mouse_box(const ScenePen *p)
{
    const View *v = p->v;
    return (PxBox){ PX(v->mouse_x) + draw_px(p->d, 14), PX(v->mouse_y) - draw_px(p->d, 8),
                    PX(v->mouse_x), PX(v->mouse_y) + draw_px(p->d, 18) };
}

/* The picked event in the lanes; false: it is out of sight. */
static bool picked_box(const ScenePen *p, PxBox *box)
{
    const LayoutRow *row = layout_row_of(p->l, p->v, p->v->picked);
    if (!row)
        return false;
    *box = layout_span_box(p->l, p->v, row, p->v->picked);
    Px gap = draw_px(p->d, 6);
    box->y0 -= gap;
    box->y1 += gap;
    bool shown = box->x1 > p->l->lanes.x0 && box->x0 < p->l->lanes.x1;
    box->x0 = px_max(box->x0, p->l->lanes.x0);
    return shown && row->y1 > p->l->lanes.y0 && row->y0 < p->l->lanes.y1;
}

/* The kernel of the drawer that mouse or keyboard are at; NONE_U32. */
static uint32_t kernel_at_hand(ScenePen *p)
{
    const View *v = p->v;
    uint32_t i = v->hover_item - SCENE_ITEM_KERNEL;
    if (p->l->drawer.x1 <= p->l->drawer.x0 || p->s->hurry)
        return NONE_U32;
    if (i >= SCENE_TOP_KERNELS)
        i = v->pane == VIEW_PANE_DRAWER ? v->pane_at : NONE_U32;
    return i < p->s->kernels_n ? i : NONE_U32;
}

/* What a counter has below the mouse: one value, or many within a pixel. */
static void fill_counter(Tip *tip, const ScenePen *p)
{
    const View *v = p->v;
    Px x = PX(v->mouse_x);
    const LayoutRow *row = px_box_has(p->l->lanes, x, PX(v->mouse_y))
                               ? layout_row_at(p->l, x, PX(v->mouse_y))
                               : NULL;
    if (!row || row->kind != LAYOUT_ROW)
        return;
    const ViewData *d = v->data[row->side];
    const ViewRow *r = &d->rows[row->row];
    int64_t from_ns = layout_ns_at(p->l, v, x) + row->shift_ns;
    int64_t to_ns = max_i64(from_ns + 1, layout_ns_at(p->l, v, x + PX(1)) + row->shift_ns);
    char text[160];
    if (r->kind != VIEW_ROW_COUNTER ||
        !scene_counter_value(d, r, from_ns, to_ns, text, sizeof text))
        return;
    tip->name = timeline_text(d->t, d->t->tracks[r->track].name);
    say(tip, "%s", text);
    view_time_text(text, sizeof text, from_ns - d->begin_ns);
    say(tip, "rank %" PRIu32 ", %s from the beginning", d->ranks[r->rank].rank, text);
}

void scene_tooltip(ScenePen *p)
{
    const View *v = p->v;
    Tip tip = { .n = 0 };
    ViewPlace place = event_at_hand(v);
    PxBox at = mouse_box(p);
    Px right = p->l->lanes.x1;
    uint32_t kernel = kernel_at_hand(p);
    if (v->omni_open)
        return;
    bool chosen = v->by_keyboard && v->pane == VIEW_PANE_DRAWER && kernel != NONE_U32;
    if (!chosen && place.row != NONE_U32 && place.span == v->hover.span && v->mouse_x >= 0) {
        fill_tip(&tip, v, place);
    } else if (kernel != NONE_U32) {
        fill_kernel(&tip, p, kernel);
        right = p->l->all.x1;
        if (v->hover_item != SCENE_ITEM_KERNEL + kernel)
            draw_item_box(p->d, SCENE_ITEM_KERNEL + kernel, &at);
    } else if (v->by_keyboard && place.row != NONE_U32 && picked_box(p, &at)) {
        fill_tip(&tip, v, place);
    } else if (v->mouse_x >= 0 && v->hover.row == NONE_U32) {
        fill_counter(&tip, p);
    }
    if (tip.name)
        put_tip(p, &tip, at, right);
}

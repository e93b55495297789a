/*
 * app_keys.c - every action, its name and its keys: one table for keyboard, palette, help.
 */
#include "viz/app.h"

#include <stdio.h>
#include <string.h>

#include "viz/links.h"

static int64_t middle_ns(const View *v)
{
    return v->from_ns + (v->to_ns - v->from_ns) / 2;
}

/* Where the mouse is, else the middle. */
static int64_t cursor_ns(const App *a)
{
    const Layout *l = &a->scene.layout;
    Px x = PX(a->view.mouse_x);
    if (a->view.mouse_x >= 0 && x >= l->lanes.x0 && x < l->lanes.x1)
        return layout_ns_at(l, &a->view, x);
    return middle_ns(&a->view);
}

/* ---- the window ---- */

static void zoom_by(App *a, double factor)
{
    view_zoom(&a->view, cursor_ns(a), factor);
    view_show(&a->view, a->view.from_ns, a->view.to_ns);
}

static void pan_by(App *a, double windows)
{
    view_pan(&a->view, windows);
    view_show(&a->view, a->view.from_ns, a->view.to_ns);
}

static void zoom_in(App *a)
{
    zoom_by(a, 1.5);
}
static void zoom_out(App *a)
{
    zoom_by(a, 1 / 1.5);
}
static void zoom_in_fast(App *a)
{
    zoom_by(a, 5);
}
static void zoom_out_fast(App *a)
{
    zoom_by(a, 0.2);
}
static void pan_left(App *a)
{
    pan_by(a, -0.2);
}
static void pan_right(App *a)
{
    pan_by(a, 0.2);
}
static void pan_left_fast(App *a)
{
    pan_by(a, -0.9);
}
static void pan_right_fast(App *a)
{
    pan_by(a, 0.9);
}
static void fit_all(App *a)
{
    view_fit(&a->view);
}

static void back(App *a)
{
    if (!view_back(&a->view))
        app_say(a, "nothing to go back to");
}

static void forward(App *a)
{
    if (!view_forward(&a->view))
        app_say(a, "nothing to go forward to");
}

static void focus(App *a)
{
    View *v = &a->view;
    ViewPlace place = v->picked.row != NONE_U32 ? v->picked : v->hover;
    if (v->has_selection)
        view_show(v, v->selection.from_ns, v->selection.to_ns);
    else if (place.row != NONE_U32)
        view_show_span(v, place, 1);
    else
        view_fit(v);
}

/* ---- events ---- */

/* The next span of the picked one's lane; without one, the first in the window. */
static void step_event(App *a, int by)
{
    View *v = &a->view;
    ViewPlace p = v->picked;
    if (p.row == NONE_U32) {
        const Layout *l = &a->scene.layout;
        for (uint32_t i = 0; i < l->rows_n && p.row == NONE_U32; i++)
            if (l->rows[i].kind == LAYOUT_ROW &&
                v->data[l->rows[i].side]->rows[l->rows[i].row].kind != VIEW_ROW_COUNTER)
                p = (ViewPlace){ l->rows[i].side, l->rows[i].row, NONE_U64 };
        if (p.row == NONE_U32)
            return;
    }
    const LodRow *lod = &v->data[p.side]->rows[p.row].lod;
    int64_t shift_ns = view_shift_ns(v, p.side, v->data[p.side]->rows[p.row].rank);
    int64_t at_ns = p.span == NONE_U64 ? v->from_ns + shift_ns : lod->t->start_ns[p.span];
    uint64_t i = lod_spans_before(lod, at_ns);
    if (p.span != NONE_U64) {
        while (i < lod->n && lod_span(lod, i) != p.span)
            i++;
        if ((by < 0 && i == 0) || (by > 0 && i + 1 >= lod->n)) {
            app_say(a, "that is the %s event of this lane", by < 0 ? "first" : "last");
            return;
        }
        i += (uint64_t)(int64_t)by;
    }
    if (i < lod->n) {
        p.span = lod_span(lod, i);
        app_pick(a, p);
    }
}

static void next_event(App *a)
{
    step_event(a, 1);
}
static void previous_event(App *a)
{
    step_event(a, -1);
}

static void step_link(App *a, bool back_)
{
    View *v = &a->view;
    ViewPlace to = view_link_next(v, v->picked, back_);
    if (to.row == NONE_U32)
        app_say(a, v->picked.row == NONE_U32 ? "pick an event first: click it, or press ."
                                             : "that event is linked to nothing");
    else
        app_pick(a, to);
}

static void next_link(App *a)
{
    step_link(a, false);
}
static void previous_link(App *a)
{
    step_link(a, true);
}

static void step_exposed(App *a, bool back_)
{
    View *v = &a->view;
    ViewPlace to = view_exposed_next(v, v->picked, back_);
    char text[32];
    if (to.row == NONE_U32) {
        app_say(a, "no communication is exposed");
        return;
    }
    const ViewData *d = v->data[to.side];
    app_pick(a, to);
    app_say(a, "exposed %s, rank %" PRIu32,
            view_time_text(text, sizeof text, view_comm_of(&d->links, to.span)->exposed_ns),
            d->ranks[d->rows[to.row].rank].rank);
}

static void next_exposed(App *a)
{
    step_exposed(a, false);
}
static void previous_exposed(App *a)
{
    step_exposed(a, true);
}

/* ---- steps ---- */

/* The moment from which a step is looked for: where a step fills the window, that step; else
 * the first one in sight, or the last. */
static int64_t step_from_ns(const View *v, const StepWindow *any, int by)
{
    int64_t length_ns = v->to_ns - v->from_ns;
    if (length_ns > (any->to_ns - any->from_ns) * 3 / 2)
        return by > 0 ? v->from_ns - 1 : v->to_ns;
    return v->from_ns + length_ns / 3;
}

static void step_step(App *a, int by)
{
    View *v = &a->view;
    const ViewData *d = view_data(v);
    int64_t best = -1, at_ns = d->steps.n ? step_from_ns(v, &d->steps.at[0], by) : 0;
    int64_t best_ns = by > 0 ? INT64_MAX : INT64_MIN;
    for (uint32_t i = 0; d->ranks_n > 0 && i < d->steps.n; i++) {
        const StepWindow *s = &d->steps.at[i];
        int64_t from_ns = s->from_ns - view_shift_ns(v, view_side(v), 0);
        if (s->rank != d->ranks[0].rank)
            continue;
        bool ahead = by > 0 ? from_ns > at_ns && from_ns < best_ns
                            : s->to_ns - s->from_ns + from_ns <= at_ns && from_ns > best_ns;
        if (ahead) {
            best = s->step;
            best_ns = from_ns;
        }
    }
    if (best < 0 || !view_show_step(v, best))
        app_say(a, d->steps.n ? "no step %s" : "the trace marks no steps",
                by > 0 ? "after this one" : "before this one");
}

static void next_step(App *a)
{
    step_step(a, 1);
}
static void previous_step(App *a)
{
    step_step(a, -1);
}

/* ---- views ---- */

static void set_mode(App *a, ViewMode mode)
{
    View *v = &a->view;
    if (mode != VIEW_REAL && !v->data[VIEW_SIM_SIDE])
        app_say(a, "one trace is open; lockstep view A --compare B shows two");
    else
        v->mode = mode;
}

static void next_mode(App *a)
{
    set_mode(a, (ViewMode)((a->view.mode + 1) % VIEW_MODES_N));
}

static void mode_real(App *a)
{
    set_mode(a, VIEW_REAL);
}
static void mode_sim(App *a)
{
    set_mode(a, VIEW_SIM);
}
static void mode_split(App *a)
{
    set_mode(a, VIEW_SPLIT);
}
static void mode_diff(App *a)
{
    set_mode(a, VIEW_DIFF);
}

static void jump_to_twin(App *a)
{
    View *v = &a->view;
    ViewPlace to = view_twin(v, v->picked);
    if (!v->diff)
        app_say(a, "one trace is open; lockstep view A --compare B shows two");
    else if (to.row == NONE_U32)
        app_say(a, v->picked.row == NONE_U32 ? "pick an event first: click it, or press ."
                                             : "that event has no twin on the other side");
    else
        app_pick(a, to);
}

static void toggle_path(App *a)
{
    View *v = &a->view;
    v->critical = !v->critical;
    app_say(a,
            v->critical ? "critical path: what is not on it is dimmed" : "critical path off");
}

static void toggle_overlap(App *a)
{
    a->view.overlap_shading = !a->view.overlap_shading;
}
static void toggle_drawer(App *a)
{
    a->view.drawer = !a->view.drawer;
}
static void toggle_help(App *a)
{
    a->view.help = !a->view.help;
}

static void toggle_theme(App *a)
{
    a->view.theme = a->view.theme == theme_dark() ? theme_light() : theme_dark();
}

static void toggle_clocks(App *a)
{
    View *v = &a->view;
    if (!v->data[0]->links.clock_offset_ns) {
        app_say(a, "the ranks are on one clock, nothing is moved");
        return;
    }
    v->align_clocks = !v->align_clocks;
    app_say(a, "clocks are %s",
            v->align_clocks ? "aligned on the ends of collectives" : "as recorded");
}

static void scale_by(App *a, int32_t by)
{
    int32_t pct = (int32_t)a->view.scale_pct + by;
    pct = pct < FONT_SCALE_MIN ? FONT_SCALE_MIN : pct > FONT_SCALE_MAX ? FONT_SCALE_MAX : pct;
    a->view.scale_pct = (uint32_t)pct;
    app_say(a, "scale %d %%", pct);
}

static void scale_up(App *a)
{
    scale_by(a, 25);
}
static void scale_down(App *a)
{
    scale_by(a, -25);
}

/* ---- ranks ---- */

static void with_rank(App *a, void (*act)(App *a, ViewRankState *s))
{
    uint32_t rank = app_rank(a);
    if (rank == NONE_U32)
        app_say(a, "move the mouse over a rank first, or pick one of its events");
    else
        act(a, &a->view.ranks[rank]);
}

static void pin_it(App *a, ViewRankState *s)
{
    (void)a, s->pinned = !s->pinned;
}
static void fold_it(App *a, ViewRankState *s)
{
    (void)a, s->folded = !s->folded;
}
static void threads_it(App *a, ViewRankState *s)
{
    (void)a, s->threads = !s->threads;
}
static void pin(App *a)
{
    with_rank(a, pin_it);
}
static void fold(App *a)
{
    with_rank(a, fold_it);
}
static void threads(App *a)
{
    with_rank(a, threads_it);
}

static void fold_all(App *a)
{
    View *v = &a->view;
    bool all = true;
    for (uint32_t r = 0; r < v->data[0]->ranks_n; r++)
        all &= v->ranks[r].folded;
    for (uint32_t r = 0; r < v->data[0]->ranks_n; r++)
        v->ranks[r].folded = !all;
}

static void sort_next(App *a)
{
    static const char *const names[VIEW_SORTS_N] = { "number", "exposed communication",
                                                     "step time" };
    view_sort(&a->view, (ViewSort)((a->view.sort + 1) % VIEW_SORTS_N));
    app_say(a, "ranks by %s", names[a->view.sort]);
}

/* ---- groups of ranks ---- */

static void group_next(App *a)
{
    View *v = &a->view;
    uint32_t kind = view_group_next(v);
    if (v->groups.kinds_n == 0) {
        app_say(a, "the communication of this trace names no process groups");
        return;
    }
    v->pane_at = 0;
    if (kind == 0) {
        app_say(a, "ranks are not grouped");
        return;
    }
    const RankGroupKind *k = &v->groups.kinds[kind - 1];
    app_say(a, "ranks by group '%s': %" PRIu32 " group%s",
            timeline_text(v->data[VIEW_REAL_SIDE]->t, k->name), k->groups_n,
            k->groups_n == 1 ? "" : "s");
}

/* All open ones are closed; when none is, all are opened. */
static void close_groups(App *a)
{
    View *v = &a->view;
    ViewItems items = view_items(v);
    bool any_open = false;
    if (!v->grouped_by) {
        app_say(a, "ranks are not grouped; G groups them");
        return;
    }
    for (ViewItem item; view_items_next(&items, &item);)
        any_open |= item.group != NONE_U32 && !v->closed[item.group];
    for (uint32_t r = 0; r <= v->data[VIEW_REAL_SIDE]->ranks_n; r++)
        v->closed[r] = any_open;
    v->pane_at = 0;
}

/* ---- selection, marks, rows by keyboard ---- */

/* Of all ranks that are shown. */
static void select_time(View *v, int64_t from_ns, int64_t to_ns)
{
    v->has_selection = true;
    v->selection = (ViewWindow){ from_ns, to_ns };
    for (uint32_t r = 0; r < v->data[VIEW_REAL_SIDE]->ranks_n; r++)
        v->selected_ranks[r] = !v->ranks[r].left_out;
}

static void select_event(App *a)
{
    View *v = &a->view;
    if (v->picked.row == NONE_U32) {
        app_say(a, "pick an event first: click it, or press .");
        return;
    }
    const ViewData *d = v->data[v->picked.side];
    int64_t shift_ns = view_shift_ns(v, v->picked.side, d->rows[v->picked.row].rank);
    int64_t from_ns = d->t->start_ns[v->picked.span] - shift_ns;
    select_time(v, from_ns, from_ns + max_i64(1, d->t->dur_ns[v->picked.span]));
}

static void select_window(App *a)
{
    select_time(&a->view, a->view.from_ns, a->view.to_ns);
}

static void add_mark(App *a)
{
    View *v = &a->view;
    if (v->marks_n == VIEW_MARKS)
        app_say(a, "%d marks are set, no more fit", VIEW_MARKS);
    else
        v->marks_ns[v->marks_n++] = cursor_ns(a);
}

static void one_mark(App *a)
{
    a->view.marks_n = 0;
    add_mark(a);
}

/* What was asked for last goes first. */
static void clear(App *a)
{
    View *v = &a->view;
    if (v->help)
        v->help = false;
    else if (v->has_selection || v->picked.row != NONE_U32) {
        v->has_selection = false;
        v->picked = view_nowhere;
    } else if (a->filter.d)
        filter_free(&a->filter);
    else {
        v->marks_n = 0;
        v->critical = false;
    }
}

static void scroll_by(App *a, int32_t px)
{
    a->view.scroll_px += px;
}
static void scroll_up(App *a)
{
    scroll_by(a, -60);
}
static void scroll_down(App *a)
{
    scroll_by(a, 60);
}
static void page_up(App *a)
{
    scroll_by(a, -a->view.height * 2 / 3);
}
static void page_down(App *a)
{
    scroll_by(a, a->view.height * 2 / 3);
}

/* The picked event moves to the row above or below, at the same time. */
static void step_row(App *a, int by)
{
    View *v = &a->view;
    const Layout *l = &a->scene.layout;
    uint32_t at = NONE_U32;
    for (uint32_t i = 0; i < l->rows_n; i++)
        if (l->rows[i].kind == LAYOUT_ROW && l->rows[i].row == v->picked.row &&
            l->rows[i].side == v->picked.side)
            at = i;
    if (at == NONE_U32) {
        step_event(a, 1);
        return;
    }
    int64_t at_ns = v->data[v->picked.side]->t->start_ns[v->picked.span] - l->rows[at].shift_ns;
    for (int64_t i = (int64_t)at + by; i >= 0 && i < (int64_t)l->rows_n; i += by) {
        const LayoutRow *row = &l->rows[i];
        const ViewRow *r = row->kind == LAYOUT_ROW ? &v->data[row->side]->rows[row->row] : NULL;
        if (!r || r->kind == VIEW_ROW_COUNTER || r->lod.n == 0)
            continue;
        uint64_t k = lod_spans_before(&r->lod, at_ns + row->shift_ns + 1);
        app_pick(a, (ViewPlace){ row->side, row->row, lod_span(&r->lod, k - (k > 0)) });
        return;
    }
}

static void row_up(App *a)
{
    step_row(a, -1);
}
static void row_down(App *a)
{
    step_row(a, 1);
}

/* ---- omnibox, files ---- */

static void search(App *a)
{
    app_omni_open(a, "/");
}
static void palette(App *a)
{
    app_omni_open(a, ">");
}
static void filter(App *a)
{
    app_omni_open(a, ":");
}
static void find_rank(App *a)
{
    app_omni_open(a, "@");
}

static void search_step(App *a, bool back_)
{
    View *v = &a->view;
    uint32_t row;
    uint64_t span;
    const ViewData *d = view_data(v);
    if (!a->search.d) {
        search(a);
        return;
    }
    int64_t at_ns = v->picked.row != NONE_U32 && v->picked.side == view_side(v)
                        ? d->t->start_ns[v->picked.span]
                        : v->from_ns + view_shift_ns(v, view_side(v), 0) - 1;
    if (filter_next(&a->search, at_ns, back_, &row, &span))
        app_pick(a, (ViewPlace){ (uint8_t)view_side(v), row, span });
    else
        app_say(a, "no match %s here", back_ ? "before" : "after");
}

static void search_next(App *a)
{
    search_step(a, false);
}
static void search_back(App *a)
{
    search_step(a, true);
}
static void save_png(App *a)
{
    snprintf(a->save, sizeof a->save, "lockstep-view.png");
}
static void save_svg(App *a)
{
    snprintf(a->save, sizeof a->save, "lockstep-view.svg");
}
static void copy_stats(App *a)
{
    app_stats_text(a, a->copy, sizeof a->copy);
}
static void quit(App *a)
{
    a->quit = true;
}

/* ---- panes: Tab goes from one to the next, arrows and Enter act within ---- */

static void step_pane(App *a, int by)
{
    View *v = &a->view;
    int pane = (int)v->pane;
    do
        pane = (pane + by + VIEW_PANES_N) % VIEW_PANES_N;
    while (pane == VIEW_PANE_DRAWER && a->scene.layout.drawer.x1 <= a->scene.layout.drawer.x0);
    v->pane = (ViewPane)pane;
    v->pane_at = 0;
    app_say(a, "%s",
            pane == VIEW_PANE_RANKS ? "ranks: up and down choose, Enter folds, P pins, G groups"
            : pane == VIEW_PANE_DRAWER ? "top kernels: up and down choose, Enter searches"
                                       : "lanes: arrows go from event to event");
}

static void next_pane(App *a)
{
    step_pane(a, 1);
}
static void previous_pane(App *a)
{
    step_pane(a, -1);
}

/* Brings the chosen rank or group into sight. */
static void see_item(App *a, ViewItem item)
{
    Layout *l = &a->scene.layout;
    for (uint32_t i = 0; i < l->rows_n; i++) {
        const LayoutRow *row = &l->rows[i];
        if (!layout_is_item(row, item) || row->pinned)
            continue;
        if (row->y0 < l->scrolled.y0)
            a->view.scroll_px -= px_ceil(l->scrolled.y0 - row->y0) + 4;
        else if (row->y1 > l->scrolled.y1)
            a->view.scroll_px += px_ceil(row->y1 - l->scrolled.y1) + 4;
        return;
    }
}

static void search_kernel(App *a)
{
    const SceneTables *t = &a->scene.tables;
    if (a->view.pane_at >= t->top_n || t->data != view_data(&a->view))
        return;
    app_search_name(a, t->top[a->view.pane_at].name);
    search_step(a, false);
}

static uint32_t items_n(const View *v)
{
    ViewItems items = view_items(v);
    uint32_t n = 0;
    for (ViewItem item; view_items_next(&items, &item);)
        n++;
    return n;
}

/* Enter on a rank or on a group's heading. */
static void fold_item(View *v, ViewItem item)
{
    if (item.group != NONE_U32)
        v->closed[item.group] = !v->closed[item.group];
    else if (item.rank != NONE_U32)
        v->ranks[item.rank].folded = !v->ranks[item.rank].folded;
}

static bool pane_key(App *a, int32_t key)
{
    View *v = &a->view;
    uint32_t n = v->pane == VIEW_PANE_RANKS ? items_n(v) : a->scene.tables.top_n;
    if (v->pane == VIEW_PANE_LANES)
        return false;
    if (key == KEY_ESC) {
        v->pane = VIEW_PANE_LANES;
        return true;
    }
    if (key == KEY_ENTER && v->pane == VIEW_PANE_DRAWER)
        search_kernel(a);
    else if (key == KEY_ENTER)
        fold_item(v, view_item(v, v->pane_at));
    else if (key == KEY_UP || key == KEY_DOWN) {
        v->pane_at += key == KEY_DOWN ? v->pane_at + 1 < n : 0;
        v->pane_at -= key == KEY_UP ? v->pane_at > 0 : 0;
        if (v->pane == VIEW_PANE_RANKS)
            see_item(a, view_item(v, v->pane_at));
    } else {
        return false;
    }
    return true;
}

/* flat table */
const AppAction app_actions[] = {
    { "zoom in", 'w', 0, zoom_in },
    { "zoom out", 's', 0, zoom_out },
    { "zoom in fast", 'w', MOD_SHIFT, zoom_in_fast },
    { "zoom out fast", 's', MOD_SHIFT, zoom_out_fast },
    { "pan left", 'a', 0, pan_left },
    { "pan right", 'd', 0, pan_right },
    { "pan left fast", 'a', MOD_SHIFT, pan_left_fast },
    { "pan right fast", 'd', MOD_SHIFT, pan_right_fast },
    { "fit everything", '0', 0, fit_all },
    { "fit everything", KEY_HOME, 0, fit_all },
    { "zoom to event or selection", 'f', 0, focus },
    { "view history back", KEY_BACKSPACE, 0, back },
    { "view history forward", KEY_BACKSPACE, MOD_SHIFT, forward },
    { "next event in lane", '.', 0, next_event },
    { "next event in lane", KEY_RIGHT, 0, next_event },
    { "previous event in lane", ',', 0, previous_event },
    { "previous event in lane", KEY_LEFT, 0, previous_event },
    { "event in the row above", KEY_UP, 0, row_up },
    { "event in the row below", KEY_DOWN, 0, row_down },
    { "next linked event", ']', 0, next_link },
    { "previous linked event", '[', 0, previous_link },
    { "next longest exposed communication", 'e', 0, next_exposed },
    { "previous longest exposed communication", 'e', MOD_SHIFT, previous_exposed },
    { "next step", 'n', 0, next_step },
    { "previous step", 'n', MOD_SHIFT, previous_step },
    { "next view: real, sim, split, diff", 'v', 0, next_mode },
    { "view real", 0, 0, mode_real },
    { "view sim", 0, 0, mode_sim },
    { "view split", 0, 0, mode_split },
    { "view diff", 0, 0, mode_diff },
    { "jump to matched op", 'x', 0, jump_to_twin },
    { "critical path", 'c', 0, toggle_path },
    { "overlap shading", 'o', 0, toggle_overlap },
    { "mark this moment", 'm', 0, one_mark },
    { "mark this moment, keep others", 'm', MOD_SHIFT, add_mark },
    { "select the event's time", 'r', 0, select_event },
    { "select the window", 'a', MOD_CTRL, select_window },
    { "pin the rank", 'p', 0, pin },
    { "find a rank", 'p', MOD_CTRL, find_rank },
    { "fold the rank", 'h', 0, fold },
    { "fold all ranks", 'h', MOD_SHIFT, fold_all },
    { "host threads of the rank", 't', 0, threads },
    { "sort ranks", 'b', 0, sort_next },
    { "group ranks: dp, tp, pp ...", 'g', 0, group_next },
    { "close or open all groups", 'g', MOD_SHIFT, close_groups },
    { "align clocks", 'k', 0, toggle_clocks },
    { "search", '/', 0, search },
    { "search", 'f', MOD_CTRL, search },
    { "next match", KEY_ENTER, 0, search_next },
    { "previous match", KEY_ENTER, MOD_SHIFT, search_back },
    { "filter", ':', 0, filter },
    { "command palette", 'p', MOD_CTRL | MOD_SHIFT, palette },
    { "command palette", '>', 0, palette },
    { "command palette", KEY_F1, 0, palette },
    { "drawer", 'q', 0, toggle_drawer },
    { "light or dark", 'l', 0, toggle_theme },
    { "larger", '+', MOD_CTRL, scale_up },
    { "larger", '=', MOD_CTRL, scale_up },
    { "smaller", '-', MOD_CTRL, scale_down },
    { "scroll up", KEY_UP, MOD_CTRL, scroll_up },
    { "scroll down", KEY_DOWN, MOD_CTRL, scroll_down },
    { "page up", KEY_PAGE_UP, 0, page_up },
    { "page down", KEY_PAGE_DOWN, 0, page_down },
    { "copy the numbers", 'c', MOD_CTRL, copy_stats },
    { "save as PNG", 's', MOD_CTRL, save_png },
    { "save as SVG", 's', MOD_CTRL | MOD_SHIFT, save_svg },
    { "clear", KEY_ESC, 0, clear },
    { "next pane", KEY_TAB, 0, next_pane },
    { "previous pane", KEY_TAB, MOD_SHIFT, previous_pane },
    { "help", '?', 0, toggle_help },
    { "quit", 'q', MOD_CTRL, quit },
};

const size_t app_actions_n = ARRAY_N(app_actions);

bool app_key(App *a, int32_t key, int32_t mods)
{
    if (mods == 0 && pane_key(a, key))
        return true;
    uint32_t action = keys_action(&a->keys, key, mods);
    if (action == NONE_U32)
        return false;
    app_actions[action].act(a);
    return true;
}

bool app_act(App *a, const char *name)
{
    for (size_t i = 0; i < app_actions_n; i++)
        if (strcmp(app_actions[i].name, name) == 0) {
            app_actions[i].act(a);
            return true;
        }
    return false;
}

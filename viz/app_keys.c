/*
 * app_keys.c - every action, its name and its keys: one table for keyboard, palette, help.
 */
#include "viz/app.h"

#include <stdio.h>

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

/* 150: one and a half times as close; -150: as far. */
static void zoom(App *a, int32_t pct)
{
    view_zoom(&a->view, cursor_ns(a), pct > 0 ? pct / 100.0 : -100.0 / pct);
    view_show(&a->view, a->view.from_ns, a->view.to_ns);
}

/* By a part of the window. */
static void pan(App *a, int32_t pct)
{
    view_pan(&a->view, pct / 100.0);
    view_show(&a->view, a->view.from_ns, a->view.to_ns);
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
static void step_event(App *a, int32_t by)
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

static void step_link(App *a, int32_t by)
{
    View *v = &a->view;
    ViewPlace to = view_link_next(v, v->picked, by < 0);
    if (to.row == NONE_U32)
        app_say(a, v->picked.row == NONE_U32 ? "pick an event first: click it, or press ."
                                             : "that event is linked to nothing");
    else
        app_pick(a, to);
}

static void step_exposed(App *a, int32_t by)
{
    View *v = &a->view;
    ViewPlace to = view_exposed_next(v, v->picked, by < 0);
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

/* ---- steps ---- */

/* The step that the window shows as view_show_step does: the rank's lies within it, those of all
 * ranks fill it, but for a hundredth.  NULL: none. */
static const StepWindow *shown_step(const View *v, uint32_t rank)
{
    const ViewData *d = view_data(v);
    int64_t near_ns = (v->to_ns - v->from_ns) / 100;
    int64_t shift_ns = view_shift_ns(v, view_side(v), rank);
    for (uint32_t i = 0; i < d->steps.n; i++) {
        const StepWindow *s = &d->steps.at[i];
        ViewWindow w;
        if (s->rank != d->ranks[rank].rank || s->from_ns - shift_ns < v->from_ns - near_ns ||
            s->to_ns - shift_ns > v->to_ns + near_ns)
            continue;
        if (view_step_window(v, s->step, &w) && w.from_ns <= v->from_ns + near_ns &&
            w.to_ns >= v->to_ns - near_ns)
            return s;
    }
    return NULL;
}

/* The step behind, or before, the one shown; else the first that begins in sight or later, or the
 * last that ends in sight or before. */
static const StepWindow *next_step(const View *v, uint32_t rank, int32_t by)
{
    const ViewData *d = view_data(v);
    const StepWindow *shown = shown_step(v, rank), *best = NULL;
    int64_t shift_ns = view_shift_ns(v, view_side(v), rank);
    int64_t from_ns = shown ? shown->from_ns + 1 : v->from_ns + shift_ns;
    for (uint32_t i = 0; i < d->steps.n; i++) {
        const StepWindow *s = &d->steps.at[i];
        bool ahead = by > 0  ? s->from_ns >= from_ns
                     : shown ? s->from_ns < shown->from_ns
                             : s->to_ns <= v->to_ns + shift_ns;
        bool nearer =
            !best || (by > 0 ? s->from_ns < best->from_ns : s->from_ns > best->from_ns);
        if (s->rank == d->ranks[rank].rank && ahead && nearer)
            best = s;
    }
    return best;
}

static void step_step(App *a, int32_t by)
{
    View *v = &a->view;
    uint32_t rank = view_step_rank(v);
    const StepWindow *to = rank != NONE_U32 ? next_step(v, rank, by) : NULL;
    if (!to || !view_show_step(v, to->step))
        app_say(a, view_data(v)->steps.n ? "no step %s" : "the trace marks no steps",
                by > 0 ? "after this one" : "before this one");
}

/* ---- views ---- */

static void set_mode(App *a, int32_t mode)
{
    View *v = &a->view;
    if (mode != VIEW_REAL && !v->data[VIEW_SIM_SIDE])
        app_say(a, "one trace is open; lockstep view A --compare B shows two");
    else
        v->mode = (ViewMode)mode;
}

static void next_mode(App *a)
{
    set_mode(a, (int32_t)((a->view.mode + 1) % VIEW_MODES_N));
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

enum { TOGGLE_OVERLAP, TOGGLE_DRAWER, TOGGLE_HELP };

static void toggle(App *a, int32_t what)
{
    View *v = &a->view;
    bool *const shown[] = { &v->overlap_shading, &v->drawer, &v->help };
    *shown[what] = !*shown[what];
    v->help_at = 0;
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

/* ---- ranks ---- */

enum { RANK_PINNED, RANK_FOLDED, RANK_THREADS };

static void toggle_rank(App *a, int32_t what)
{
    uint32_t rank = app_rank(a);
    if (rank == NONE_U32) {
        app_say(a, "move the mouse over a rank first, or pick one of its events");
        return;
    }
    ViewRankState *s = &a->view.ranks[rank];
    bool *const state[] = { &s->pinned, &s->folded, &s->threads };
    *state[what] = !*state[what];
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
    int64_t ns = cursor_ns(a), last_ns = v->marks_n ? v->marks_ns[v->marks_n - 1] : ns;
    char at[32], gap[32];
    if (v->marks_n == VIEW_MARKS) {
        app_say(a, "%d marks are set, no more fit", VIEW_MARKS);
        return;
    }
    v->marks_ns[v->marks_n++] = ns;
    view_time_text(at, sizeof at, ns - view_whole(v).from_ns);
    view_time_text(gap, sizeof gap, ns < last_ns ? last_ns - ns : ns - last_ns);
    if (v->marks_n == 1)
        app_say(a, "mark at %s", at);
    else
        app_say(a, "mark at %s, %s %s the last one", at, gap,
                ns < last_ns ? "before" : "after");
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
/* By two thirds of the height. */
static void page(App *a, int32_t by)
{
    scroll_by(a, by * a->view.height * 2 / 3);
}

/* The picked event moves to the row above or below, at the same time. */
static void step_row(App *a, int32_t by)
{
    View *v = &a->view;
    const Layout *l = &a->scene.layout;
    const LayoutRow *from = layout_row_of(l, v, v->picked);
    if (!from || l->strips) {
        step_event(a, 1);
        return;
    }
    int64_t at_ns = v->data[v->picked.side]->t->start_ns[v->picked.span] - from->shift_ns;
    for (int64_t i = from - l->rows + by; i >= 0 && i < (int64_t)l->rows_n; i += by) {
        const LayoutRow *row = &l->rows[i];
        const ViewRow *r = row->kind == LAYOUT_ROW ? &v->data[row->side]->rows[row->row] : NULL;
        if (!r || r->kind == VIEW_ROW_COUNTER || r->lod.n == 0)
            continue;
        uint64_t k = lod_spans_before(&r->lod, at_ns + row->shift_ns + 1);
        app_pick(a, (ViewPlace){ row->side, row->row, lod_span(&r->lod, k - (k > 0)) });
        return;
    }
}

/* ---- omnibox, files ---- */

static void open_omni(App *a, int32_t sign)
{
    app_omni_open(a, (const char[]){ (char)sign, 0 });
}

static void search_step(App *a, int32_t by)
{
    View *v = &a->view;
    uint32_t row;
    const ViewData *d = view_data(v);
    if (!a->search.d) {
        open_omni(a, '/');
        return;
    }
    view_filter_follow(v, &a->search);
    bool from_picked = v->picked.row != NONE_U32 && v->picked.side == view_side(v);
    uint64_t span = from_picked ? v->picked.span : NONE_U64;
    int64_t at_ns =
        from_picked ? d->t->start_ns[span] : v->from_ns + view_shift_ns(v, view_side(v), 0) - 1;
    if (filter_next(&a->search, at_ns, by < 0, &row, &span))
        app_pick(a, (ViewPlace){ (uint8_t)view_side(v), row, span });
    else
        app_say(a, "no match %s here", by < 0 ? "before" : "after");
}

static void save_png(App *a)
{
    snprintf(a->save, sizeof a->save, "lockstep-view.png");
}

static void save_svg(App *a)
{
    snprintf(a->save, sizeof a->save, "lockstep-view.svg");
}
static void copy_as(App *a, int32_t what)
{
    app_copy(a, (AppCopy)what);
}

static void toggle_hta(App *a)
{
    a->view.hta_numbers = !a->view.hta_numbers;
    a->view.drawer = true;
}

static void quit(App *a)
{
    a->quit = true;
}

/* ---- panes: Tab goes from one to the next, arrows and Enter act within ---- */

static void step_pane(App *a, int32_t by)
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

/* Brings the chosen rank or group into sight. */
static void see_item(App *a, ViewItem item)
{
    const Layout *l = &a->scene.layout;
    uint32_t i = 0;
    while (i < l->rows_n && (!layout_is_item(&l->rows[i], item) || l->rows[i].pinned))
        i++;
    app_scroll_to(a, i < l->rows_n ? &l->rows[i] : NULL);
}

void app_search_kernel(App *a, uint32_t i)
{
    const SceneTables *t = &a->scene.tables;
    if (i >= t->top_n || t->data != view_data(&a->view))
        return;
    app_search_name(a, t->top[i].name);
    search_step(a, 1);
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
    uint32_t n = v->pane == VIEW_PANE_RANKS ? items_n(v) : a->scene.kernels_n;
    if (v->pane == VIEW_PANE_LANES)
        return false;
    if (key == KEY_ESC) {
        v->pane = VIEW_PANE_LANES;
        return true;
    }
    if (key == KEY_ENTER && v->pane == VIEW_PANE_DRAWER)
        app_search_kernel(a, v->pane_at);
    else if (key == KEY_ENTER)
        fold_item(v, view_item(v, v->pane_at));
    else if (key == KEY_UP || key == KEY_DOWN) {
        v->pane_at += key == KEY_DOWN ? v->pane_at + 1 < n : 0;
        v->pane_at -= key == KEY_UP ? v->pane_at > 0 : 0;
        v->by_keyboard = true;
        if (v->pane == VIEW_PANE_RANKS)
            see_item(a, view_item(v, v->pane_at));
    } else {
        return false;
    }
    return true;
}

/* flat table */
const AppAction app_actions[] = {
    { "zoom in", 'w', 0, .by = zoom, .n = 150 },
    { "zoom out", 's', 0, .by = zoom, .n = -150 },
    { "zoom in fast", 'w', MOD_SHIFT, .by = zoom, .n = 500 },
    { "zoom out fast", 's', MOD_SHIFT, .by = zoom, .n = -500 },
    { "pan left", 'a', 0, .by = pan, .n = -20 },
    { "pan right", 'd', 0, .by = pan, .n = 20 },
    { "pan left fast", 'a', MOD_SHIFT, .by = pan, .n = -90 },
    { "pan right fast", 'd', MOD_SHIFT, .by = pan, .n = 90 },
    { "fit everything", '0', 0, .act = fit_all },
    { "fit everything", KEY_HOME, 0, .act = fit_all },
    { "zoom to event or selection", 'f', 0, .act = focus },
    { "view history back", KEY_BACKSPACE, 0, .act = back },
    { "view history forward", KEY_BACKSPACE, MOD_SHIFT, .act = forward },
    { "next event in lane", '.', 0, .by = step_event, .n = 1 },
    { "next event in lane", KEY_RIGHT, 0, .by = step_event, .n = 1 },
    { "previous event in lane", ',', 0, .by = step_event, .n = -1 },
    { "previous event in lane", KEY_LEFT, 0, .by = step_event, .n = -1 },
    { "event in the row above", KEY_UP, 0, .by = step_row, .n = -1 },
    { "event in the row below", KEY_DOWN, 0, .by = step_row, .n = 1 },
    { "next linked event", ']', 0, .by = step_link, .n = 1 },
    { "previous linked event", '[', 0, .by = step_link, .n = -1 },
    { "next longest exposed communication", 'e', 0, .by = step_exposed, .n = 1 },
    { "previous longest exposed communication", 'e', MOD_SHIFT, .by = step_exposed, .n = -1 },
    { "next step", 'n', 0, .by = step_step, .n = 1 },
    { "previous step", 'n', MOD_SHIFT, .by = step_step, .n = -1 },
    { "next view: real, sim, split, diff", 'v', 0, .act = next_mode },
    { "view real", 0, 0, .by = set_mode, .n = VIEW_REAL },
    { "view sim", 0, 0, .by = set_mode, .n = VIEW_SIM },
    { "view split", 0, 0, .by = set_mode, .n = VIEW_SPLIT },
    { "view diff", 0, 0, .by = set_mode, .n = VIEW_DIFF },
    { "jump to matched op", 'x', 0, .act = jump_to_twin },
    { "critical path", 'c', 0, .act = toggle_path },
    { "overlap shading", 'o', 0, .by = toggle, .n = TOGGLE_OVERLAP },
    { "mark this moment", 'm', 0, .act = one_mark },
    { "mark this moment, keep others", 'm', MOD_SHIFT, .act = add_mark },
    { "select the event's time", 'r', 0, .act = select_event },
    { "select the window", 'a', MOD_CTRL, .act = select_window },
    { "pin the rank", 'p', 0, .by = toggle_rank, .n = RANK_PINNED },
    { "find a rank", 'p', MOD_CTRL, .by = open_omni, .n = '@' },
    { "find a rank", '@', 0, .by = open_omni, .n = '@' },
    { "fold the rank", 'h', 0, .by = toggle_rank, .n = RANK_FOLDED },
    { "fold all ranks", 'h', MOD_SHIFT, .act = fold_all },
    { "host threads of the rank", 't', 0, .by = toggle_rank, .n = RANK_THREADS },
    { "sort ranks", 'b', 0, .act = sort_next },
    { "group ranks: dp, tp, pp ...", 'g', 0, .act = group_next },
    { "close or open all groups", 'g', MOD_SHIFT, .act = close_groups },
    { "align clocks", 'k', 0, .act = toggle_clocks },
    { "search", '/', 0, .by = open_omni, .n = '/' },
    { "search", 'f', MOD_CTRL, .by = open_omni, .n = '/' },
    { "next match", KEY_ENTER, 0, .by = search_step, .n = 1 },
    { "previous match", KEY_ENTER, MOD_SHIFT, .by = search_step, .n = -1 },
    { "filter", ':', 0, .by = open_omni, .n = ':' },
    { "command palette", 'p', MOD_CTRL | MOD_SHIFT, .by = open_omni, .n = '>' },
    { "command palette", '>', 0, .by = open_omni, .n = '>' },
    { "command palette", KEY_F1, 0, .by = open_omni, .n = '>' },
    { "drawer", 'q', 0, .by = toggle, .n = TOGGLE_DRAWER },
    { "light or dark", 'l', 0, .act = toggle_theme },
    { "larger", '+', MOD_CTRL, .by = scale_by, .n = 25 },
    { "larger", '=', MOD_CTRL, .by = scale_by, .n = 25 },
    { "smaller", '-', MOD_CTRL, .by = scale_by, .n = -25 },
    { "scroll up", KEY_UP, MOD_CTRL, .by = scroll_by, .n = -60 },
    { "scroll down", KEY_DOWN, MOD_CTRL, .by = scroll_by, .n = 60 },
    { "page up", KEY_PAGE_UP, 0, .by = page, .n = -1 },
    { "page down", KEY_PAGE_DOWN, 0, .by = page, .n = 1 },
    { "copy the event, else the numbers", 'c', MOD_CTRL, .by = copy_as, .n = COPY_AT_HAND },
    { "copy the numbers as TSV", 0, 0, .by = copy_as, .n = COPY_TSV },
    { "copy the numbers as JSON", 0, 0, .by = copy_as, .n = COPY_JSON },
    { "numbers as HTA books them", 0, 0, .act = toggle_hta },
    { "save as PNG", 's', MOD_CTRL, .act = save_png },
    { "save as SVG", 's', MOD_CTRL | MOD_SHIFT, .act = save_svg },
    { "clear", KEY_ESC, 0, .act = clear },
    { "next pane", KEY_TAB, 0, .by = step_pane, .n = 1 },
    { "previous pane", KEY_TAB, MOD_SHIFT, .by = step_pane, .n = -1 },
    { "help", '?', 0, .by = toggle, .n = TOGGLE_HELP },
    { "quit", 'q', MOD_CTRL, .act = quit },
};

const size_t app_actions_n = ARRAY_N(app_actions);

void app_do(App *a, uint32_t action)
{
    const AppAction *k = &app_actions[action];
    if (k->by)
        k->by(a, k->n);
    else
        k->act(a);
}

/* The help is over all else: keys that go up and down move it. */
static bool help_key(App *a, int32_t key)
{
    enum { PAGE = 10 };
    View *v = &a->view;
    int32_t by = key == KEY_UP ? -1 : key == KEY_DOWN ? 1 : 0;
    by = key == KEY_PAGE_UP ? -PAGE : key == KEY_PAGE_DOWN ? PAGE : by;
    v->help_at += v->help ? by : 0;
    return v->help && by != 0;
}

bool app_key(App *a, int32_t key, int32_t mods)
{
    if (mods == 0 && (help_key(a, key) || pane_key(a, key)))
        return true;
    uint32_t action = keys_action(&a->keys, key, mods);
    if (action == NONE_U32)
        return false;
    app_do(a, action);
    return true;
}

bool app_act(App *a, const char *name)
{
    uint32_t action = keys_action_named(name);
    if (action != NONE_U32)
        app_do(a, action);
    return action != NONE_U32;
}

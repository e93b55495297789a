/*
 * test_app.c - sessions without a window: keys, mouse, typed words, and what they leave.
 *
 * The traces are those of a simulated run, made here; pictures are drawn after every event,
 * as the window does.
 */
#include "viz/app.h"
#include "viz/links.h"
#include "viz/raster.h"

#include "tests/check.h"
#include "tests/trace_world.h"

enum { RANKS = 4, STEPS = 3, STEP_NS = 10000 };

typedef struct Session {
    World w;
    ViewData data;
    ViewComm comms[RANKS * STEPS];
    App app;
} Session;

static void add_rank(World *w, uint32_t r, const char *group)
{
    uint32_t gpu = world_stream(w, r, 7), net = world_stream(w, r, 20), host = world_host(w, r);
    uint32_t steps = timeline_track(&w->t, r, TRACK_STEPS, "steps", 0);
    for (int s = 0; s < STEPS; s++) {
        int64_t at_ns = s * STEP_NS;
        char name[32];
        snprintf(name, sizeof name, "ProfilerStep#%d", s + 5);
        world_span(w, steps, SPAN_STEP, name, at_ns, at_ns + STEP_NS);
        world_span(w, host, SPAN_LAUNCH, "launch", at_ns, at_ns + 50);
        for (int i = 0; i < 20; i++)
            world_span(w, gpu, SPAN_COMPUTE, i % 2 ? "gemm 1" : "norm", at_ns + 100 + 300 * i,
                       at_ns + 100 + 300 * i + 250);
        world_comm(w, net,
                   (Coll){ .op = "all_reduce",
                           .group = group,
                           .group_id = r / 2,
                           .seq = s,
                           .wait_ns = -1,
                           .ranks_n = RANKS },
                   at_ns + 5000, at_ns + 8000 + 100 * (int64_t)r);
    }
}

/* group: of ranks 0 and 1, and of 2 and 3; NULL: not said. */
static void open_session_of(Session *s, const char *group)
{
    *s = (Session){ 0 };
    uint64_t n = 0;
    for (uint32_t r = 0; r < RANKS; r++)
        add_rank(&s->w, r, group);
    timeline_seal(&s->w.t);
    view_data_open(&s->data, &s->w.t, "session", 1);
    for (uint64_t i = 0; i < s->w.t.spans_n; i++)
        if (s->w.t.span_class[i] == SPAN_COMM)
            s->comms[n++] = (ViewComm){ i, NONE_U32, -1, s->w.t.dur_ns[i] - 1000, 0 };
    s->data.links = (ViewLinks){ .comms = s->comms, .comms_n = n };
    View view;
    view_open(&view, &s->data, NULL);
    view.width = 1400;
    view.height = 800;
    app_open(&s->app, view);
    app_draw(&s->app);
}

static void open_session(Session *s)
{
    open_session_of(s, NULL);
}

static void close_session(Session *s)
{
    app_free(&s->app);
    view_data_free(&s->data);
    timeline_free(&s->w.t);
}

static bool press(Session *s, int32_t key, int32_t mods)
{
    bool changed = app_input(&s->app, &(Input){ .kind = INPUT_KEY, .key = key, .mods = mods });
    app_draw(&s->app);
    return changed;
}

static void type(Session *s, const char *text)
{
    app_input(&s->app, &(Input){ .kind = INPUT_TEXT, .text = text });
    app_draw(&s->app);
}

static void mouse(Session *s, InputKind kind, int32_t button, int32_t x, int32_t y,
                  int32_t mods)
{
    app_input(
        &s->app,
        &(Input){ .kind = kind, .button = button, .clicks = 1, .x = x, .y = y, .mods = mods });
    app_draw(&s->app);
}

static void drag(Session *s, int32_t button, int32_t x0, int32_t x1, int32_t y, int32_t mods)
{
    mouse(s, INPUT_DOWN, button, x0, y, mods);
    mouse(s, INPUT_MOVE, 0, (x0 + x1) / 2, y, mods);
    mouse(s, INPUT_UP, button, x1, y, mods);
}

static int64_t length_of(const Session *s)
{
    return s->app.view.to_ns - s->app.view.from_ns;
}

/* ---- sessions ---- */

static void keys_zoom_and_come_back(void)
{
    Session s;
    open_session(&s);
    int64_t all_ns = length_of(&s);
    CHECK_INT(STEPS * STEP_NS, all_ns);
    press(&s, 'w', 0);
    CHECK_INT(all_ns * 2 / 3, length_of(&s));
    press(&s, 'd', 0);
    CHECK(s.app.view.from_ns > all_ns / 6);
    press(&s, KEY_BACKSPACE, 0);
    press(&s, KEY_BACKSPACE, 0);
    CHECK_INT(all_ns, length_of(&s));
    press(&s, KEY_BACKSPACE, 0);
    CHECK_STR("nothing to go back to", s.app.view.message);
    press(&s, KEY_BACKSPACE, MOD_SHIFT);
    CHECK_INT(all_ns * 2 / 3, length_of(&s));
    CHECK_STR("", s.app.view.message);
    press(&s, '0', 0);
    CHECK_INT(all_ns, length_of(&s));
    CHECK(!press(&s, 'j', 0)); /* no action: no new picture */
    close_session(&s);
}

static void the_wheel_is_undone_as_one(void)
{
    Session s;
    open_session(&s);
    int32_t x = px_floor(s.app.scene.layout.lanes.x0) + 200;
    int64_t all_ns = length_of(&s);
    press(&s, 'w', 0);
    int64_t near_ns = length_of(&s);
    for (int i = 0; i < 3; i++)
        app_input(&s.app, &(Input){ .kind = INPUT_WHEEL,
                                    .dy = 1,
                                    .x = x,
                                    .y = px_floor(s.app.scene.layout.lanes.y0) + 9,
                                    .mods = MOD_CTRL });
    CHECK(length_of(&s) < near_ns);
    press(&s, KEY_BACKSPACE, 0);
    CHECK_INT(near_ns, length_of(&s));
    press(&s, KEY_BACKSPACE, 0);
    CHECK_INT(all_ns, length_of(&s));
    press(&s, KEY_BACKSPACE, 0);
    CHECK_STR("nothing to go back to", s.app.view.message);
    close_session(&s);
}

static void dragging_selects_and_counts(void)
{
    Session s;
    char text[512];
    open_session(&s);
    const Layout *l = &s.app.scene.layout;
    int32_t x0 = px_floor(l->lanes.x0), x1 = px_floor(l->lanes.x1);
    int32_t third = (x1 - x0) / 3, y = px_floor(l->lanes.y0) + 20;
    drag(&s, 1, x0 + third, x0 + 2 * third, y, 0);
    const View *v = &s.app.view;
    CHECK(v->has_selection);
    CHECK_INT(layout_ns_at(l, v, PX(x0 + third)), v->selection.from_ns);
    CHECK_INT(layout_ns_at(l, v, PX(x0 + 2 * third)), v->selection.to_ns);
    CHECK(v->selected_ranks[0] && !v->selected_ranks[RANKS - 1]);
    int64_t compute_ns = 0; /* of rank 0, by brute force */
    for (uint64_t i = 0; i < s.w.t.spans_n; i++)
        if (s.w.t.span_class[i] == SPAN_COMPUTE && s.w.t.tracks[s.w.t.span_track[i]].rank == 0)
            compute_ns +=
                max_i64(0, min_i64(v->selection.to_ns, s.w.t.start_ns[i] + s.w.t.dur_ns[i]) -
                               max_i64(v->selection.from_ns, s.w.t.start_ns[i]));
    char expected[64];
    snprintf(expected, sizeof expected, "\ncompute_ns\t%" PRId64 "\n", compute_ns);
    CHECK(strstr(app_stats_text(&s.app, text, sizeof text), expected) != NULL);
    press(&s, 'f', 0); /* goes there */
    CHECK_INT(v->selection.from_ns, v->from_ns);
    press(&s, KEY_ESC, 0);
    CHECK(!v->has_selection);
    close_session(&s);
}

/* The boxes of the selection: how many, and whether they end with the rows of ranks [from, to]. */
static uint32_t selection_boxes(const Session *s, uint32_t from, uint32_t to)
{
    const Layout *l = &s->app.scene.layout;
    const DrawList *list = &s->app.list;
    Px y0 = app_first_row(&s->app, from)->y0, y1 = l->rows[l->rows_n - 1].y1;
    uint32_t n = 0;
    for (uint32_t i = 0; i < l->rows_n; i++)
        if (l->rows[i].rank == to)
            y1 = l->rows[i].y1;
    for (uint32_t i = 0; i < list->items_n; i++) {
        const DrawItem *item = &list->items[i];
        if (item->kind != DRAW_RECT || item->color != s->app.view.theme->color[THEME_SELECTION])
            continue;
        CHECK_INT(y0, item->box.y0);
        CHECK_INT(y1, item->box.y1);
        n++;
    }
    return n;
}

static void a_selection_is_drawn_over_the_ranks_that_count(void)
{
    Session s;
    open_session(&s);
    const Layout *l = &s.app.scene.layout;
    int32_t x = px_floor(l->lanes.x0) + 100;
    int32_t y1 = px_floor(app_first_row(&s.app, 1)->y0),
            y2 = px_floor(app_first_row(&s.app, 2)->y0);
    drag(&s, 1, x, x + 300, y1 + 3, 0);
    CHECK_INT(1, (int)selection_boxes(&s, 1, 1));
    mouse(&s, INPUT_DOWN, 1, x, y1 + 3, 0);
    mouse(&s, INPUT_UP, 1, x + 300, y2 + 3, 0);
    CHECK_INT(1, (int)selection_boxes(&s, 1, 2));
    press(&s, 'a', MOD_CTRL); /* all ranks: all lanes */
    uint32_t whole_n = 0;
    for (uint32_t i = 0; i < s.app.list.items_n; i++)
        whole_n += s.app.list.items[i].kind == DRAW_RECT &&
                   s.app.list.items[i].color == s.app.view.theme->color[THEME_SELECTION] &&
                   s.app.list.items[i].box.y1 == l->lanes.y1;
    CHECK_INT(1, (int)whole_n);
    close_session(&s);
}

static void other_buttons_pan_and_zoom(void)
{
    Session s;
    open_session(&s);
    press(&s, 'w', MOD_SHIFT);
    const Layout *l = &s.app.scene.layout;
    int32_t x0 = px_floor(l->lanes.x0) + 100, y = px_floor(l->lanes.y0) + 30;
    int64_t from_ns = s.app.view.from_ns, length_ns = length_of(&s);
    drag(&s, 3, x0, x0 + 200, y, 0);
    CHECK(s.app.view.from_ns < from_ns);
    CHECK_INT(length_ns, length_of(&s));
    drag(&s, 1, x0 + 200, x0, y, MOD_SHIFT);
    CHECK(s.app.view.from_ns - from_ns <= 2 && from_ns - s.app.view.from_ns <= 2);
    CHECK(!s.app.view.has_selection);
    drag(&s, 2, x0, x0 + 200, y, 0);
    CHECK(length_of(&s) < length_ns / 2);
    app_input(&s.app,
              &(Input){ .kind = INPUT_WHEEL, .dy = -1, .x = x0, .y = y, .mods = MOD_CTRL });
    CHECK(length_of(&s) > 0 && s.app.view.scroll_px == 0);
    close_session(&s);
}

/* It goes up or down and not across: to no time. */
static void a_middle_drag_upwards_goes_nowhere(void)
{
    Session s;
    open_session(&s);
    const Layout *l = &s.app.scene.layout;
    int32_t x = px_floor(l->lanes.x0) + 100, y = px_floor(l->lanes.y0) + 30;
    int64_t all_ns = length_of(&s);
    mouse(&s, INPUT_DOWN, 2, x, y, 0);
    mouse(&s, INPUT_MOVE, 0, x + 1, y + 50, 0);
    mouse(&s, INPUT_UP, 2, x + 1, y + 100, 0);
    CHECK_INT(all_ns, length_of(&s));
    CHECK(!s.app.view.has_selection);
    close_session(&s);
}

static void clicking_picks_what_is_drawn(void)
{
    Session s;
    open_session(&s);
    const Layout *l = &s.app.scene.layout;
    for (uint32_t i = 0; i < l->rows_n; i++) {
        const LayoutRow *row = &l->rows[i];
        if (row->kind != LAYOUT_ROW || s.data.rows[row->row].kind != VIEW_ROW_STREAM)
            continue;
        uint64_t span = lod_span(&s.data.rows[row->row].lod, 1);
        int64_t at_ns = s.w.t.start_ns[span] + s.w.t.dur_ns[span] / 2;
        int32_t x = px_floor(layout_x_of(l, &s.app.view, at_ns));
        int32_t y = px_floor((row->y0 + row->y1) / 2);
        mouse(&s, INPUT_MOVE, 0, x, y, 0);
        CHECK_U64(span, s.app.view.hover.span);
        mouse(&s, INPUT_DOWN, 1, x, y, 0);
        mouse(&s, INPUT_UP, 1, x, y, 0);
        CHECK_U64(span, s.app.view.picked.span);
    }
    app_input(&s.app, &(Input){ .kind = INPUT_LEAVE });
    CHECK(s.app.view.hover.row == NONE_U32);
    close_session(&s);
}

static void steps_events_and_exposed_ones(void)
{
    Session s;
    open_session(&s);
    press(&s, 'n', 0);
    CHECK_INT(STEP_NS, length_of(&s));
    int64_t from_ns = s.app.view.from_ns;
    press(&s, 'n', 0);
    CHECK_INT(from_ns + STEP_NS, s.app.view.from_ns);
    press(&s, 'n', MOD_SHIFT);
    CHECK_INT(from_ns, s.app.view.from_ns);
    press(&s, 'e', 0);
    CHECK_U64(3300, (uint64_t)s.w.t.dur_ns[s.app.view.picked.span]); /* rank 3 */
    press(&s, '.', 0);
    press(&s, ',', 0);
    CHECK_INT(3300, s.w.t.dur_ns[s.app.view.picked.span]);
    press(&s, KEY_UP, 0);
    CHECK_INT(SPAN_COMPUTE, s.w.t.span_class[s.app.view.picked.span]);
    press(&s, 'r', 0);
    CHECK_INT(250, s.app.view.selection.to_ns - s.app.view.selection.from_ns);
    close_session(&s);
}

static void search(Session *s, const char *text)
{
    press(s, '/', 0);
    type(s, text);
    press(s, KEY_ENTER, 0);
}

static uint32_t picked_rank(const Session *s)
{
    const View *v = &s->app.view;
    const ViewData *d = v->data[v->picked.side];
    return CHECK(v->picked.row < d->rows_n) ? d->rows[v->picked.row].rank : NONE_U32;
}

/* Ranks in lockstep begin their collectives together. */
static void a_search_passes_over_none_of_one_moment(void)
{
    Session s;
    bool seen[RANKS][STEPS] = { { false } };
    open_session(&s);
    search(&s, "nccl");
    for (int i = 0; i < RANKS * STEPS; i++) {
        uint32_t rank = picked_rank(&s);
        int64_t step = s.w.t.start_ns[s.app.view.picked.span] / STEP_NS;
        if (!CHECK(rank < RANKS && step < STEPS && !seen[rank][step]))
            break;
        seen[rank][step] = true;
        press(&s, KEY_ENTER, 0);
    }
    CHECK_STR("no match after here", s.app.view.message);
    for (int i = 1; i < RANKS * STEPS; i++) {
        press(&s, KEY_ENTER, MOD_SHIFT);
        CHECK_STR("", s.app.view.message);
    }
    press(&s, KEY_ENTER, MOD_SHIFT);
    CHECK_STR("no match before here", s.app.view.message);
    close_session(&s);
}

static void ranks_left_out_are_not_gone_to(void)
{
    Session s;
    open_session(&s);
    for (uint32_t r = 0; r < RANKS; r++)
        s.app.view.ranks[r].left_out = r != 1;
    for (int i = 0; i < STEPS + 1; i++) {
        press(&s, 'e', 0);
        CHECK_INT(1, picked_rank(&s));
    }
    press(&s, KEY_ESC, 0);
    search(&s, "nccl");
    for (int i = 0; i < STEPS; i++, press(&s, KEY_ENTER, 0))
        CHECK_INT(1, picked_rank(&s));
    CHECK_STR("no match after here", s.app.view.message);
    press(&s, ':', 0);
    type(&s, "nccl");
    CHECK(strncmp(s.app.view.message, "3 events", 8) == 0);
    press(&s, KEY_ENTER, 0);
    CHECK_U64(STEPS, filter_count(&s.app.filter).n);
    press(&s, '@', 0);
    CHECK_INT(1, (int)s.app.view.offers_n);
    close_session(&s);
}

/* Made in one view, used in another, which shows another trace. */
static void a_search_and_a_filter_follow_the_view(void)
{
    Session s;
    World w = { 0 };
    ViewData sim;
    open_session(&s);
    world_span(&w, world_stream(&w, 0, 7), SPAN_COMPUTE, "warm up", 0, 100);
    uint64_t gemm = world_span(&w, world_stream(&w, 0, 7), SPAN_COMPUTE, "gemm 1", 100, 200);
    timeline_seal(&w.t);
    view_data_open(&sim, &w.t, "sim", 1);
    s.app.view.data[VIEW_SIM_SIDE] = &sim;
    search(&s, "gemm");
    CHECK_INT(VIEW_REAL_SIDE, s.app.view.picked.side);
    press(&s, ':', 0);
    type(&s, "gemm");
    press(&s, KEY_ENTER, 0);
    CHECK_U64(RANKS * STEPS * 10, filter_count(s.app.view.filter).n);
    press(&s, 'v', 0);
    press(&s, KEY_ENTER, 0);
    CHECK_INT(VIEW_SIM_SIDE, s.app.view.picked.side);
    CHECK_U64(gemm, s.app.view.picked.span);
    CHECK_INT(0, (int)picked_rank(&s));
    CHECK_U64(1, filter_count(s.app.view.filter).n);
    close_session(&s);
    view_data_free(&sim);
    world_free(&w);
}

static void window_is(Session *s, int64_t from_ns, int64_t to_ns)
{
    CHECK_INT(from_ns, s->app.view.from_ns);
    CHECK_INT(to_ns, s->app.view.to_ns);
}

/* The first step is much longer than those behind it; then nothing for a while. */
static void a_step_in_sight_is_not_passed_over(void)
{
    Session s = { .app = { .quit = false } };
    uint32_t gpu = world_stream(&s.w, 0, 7);
    uint32_t steps = timeline_track(&s.w.t, 0, TRACK_STEPS, "steps", 0);
    world_span(&s.w, gpu, SPAN_COMPUTE, "gemm", 0, 40000);
    world_span(&s.w, steps, SPAN_STEP, "ProfilerStep#0", 0, 20000);
    world_span(&s.w, steps, SPAN_STEP, "ProfilerStep#1", 20000, 24000);
    world_span(&s.w, steps, SPAN_STEP, "ProfilerStep#2", 24000, 27000);
    timeline_seal(&s.w.t);
    view_data_open(&s.data, &s.w.t, "steps", 1);
    View view;
    view_open(&view, &s.data, NULL);
    app_open(&s.app, view);
    view_show(&s.app.view, 19900, 29800);
    app_act(&s.app, "next step");
    window_is(&s, 20000, 24000);
    app_act(&s.app, "next step");
    window_is(&s, 24000, 27000);
    app_act(&s.app, "next step");
    CHECK_STR("no step after this one", s.app.view.message);
    app_act(&s.app, "previous step");
    app_act(&s.app, "previous step");
    window_is(&s, 0, 20000);
    view_show(&s.app.view, 21000, 23000); /* within one */
    app_act(&s.app, "next step");
    window_is(&s, 24000, 27000);
    view_show(&s.app.view, 21000, 23000);
    app_act(&s.app, "previous step");
    window_is(&s, 0, 20000);
    view_show(&s.app.view, 0, 26000); /* the first fills most of it */
    app_act(&s.app, "next step");
    window_is(&s, 0, 20000);
    close_session(&s);
}

/* Links lead to host threads, which are folded away at first where there are several ranks. */
static void a_picked_host_event_is_seen(void)
{
    Session s;
    open_session(&s);
    const Layout *l = &s.app.scene.layout;
    uint32_t rows_n = l->rows_n;
    ViewPlace launch = view_nowhere;
    for (uint64_t i = 0; i < s.w.t.spans_n; i++)
        if (s.w.t.span_class[i] == SPAN_LAUNCH)
            launch = view_place_of(&s.data, VIEW_REAL_SIDE, i);
    CHECK(!s.data.rows[launch.row].ready);
    press(&s, 'h', MOD_SHIFT); /* all folded */
    app_pick(&s.app, launch);
    app_draw(&s.app);
    const LayoutRow *row = layout_row_of(l, &s.app.view, launch);
    CHECK(row && row->y0 >= l->scrolled.y0 && row->y1 <= l->scrolled.y1);
    press(&s, ',', 0); /* the launch of the step before */
    CHECK_INT(STEP_NS, s.w.t.start_ns[s.app.view.picked.span]);
    press(&s, 'h', MOD_SHIFT);
    press(&s, 'h', MOD_SHIFT);
    CHECK_INT((int)rows_n + 1, (int)l->rows_n); /* of that rank alone */
    close_session(&s);
}

/* E leads to rank 3, which is below the window's edge. */
static void a_folded_rank_is_scrolled_to(void)
{
    Session s;
    open_session(&s);
    s.app.view.height = 150;
    press(&s, 'h', MOD_SHIFT);
    CHECK(s.app.scene.layout.scroll_max > 0);
    press(&s, 'e', 0);
    const Layout *l = &s.app.scene.layout;
    const LayoutRow *row = layout_row_of(l, &s.app.view, s.app.view.picked);
    CHECK(row && row->rank == 3 && row->y0 >= l->scrolled.y0 && row->y1 <= l->scrolled.y1);
    CHECK(s.app.view.scroll_px > 0);
    close_session(&s);
}

static void searching_finds_what_is_folded_away(void)
{
    Session s;
    open_session(&s);
    press(&s, '/', 0);
    type(&s, "launch");
    CHECK_STR("12 events, 600 ns in all", s.app.view.message);
    press(&s, KEY_ENTER, 0);
    CHECK(s.app.view.picked.row != NONE_U32);
    CHECK(layout_row_of(&s.app.scene.layout, &s.app.view, s.app.view.picked) != NULL);
    for (int r = 0; r < RANKS; r++)
        press(&s, KEY_ENTER, 0);
    CHECK_INT(STEP_NS, s.w.t.start_ns[s.app.view.picked.span]);
    press(&s, KEY_ENTER, MOD_SHIFT);
    CHECK_INT(0, s.w.t.start_ns[s.app.view.picked.span]);
    close_session(&s);
}

static void the_omnibox_searches_filters_and_acts(void)
{
    Session s;
    open_session(&s);
    press(&s, '/', 0);
    CHECK(s.app.view.omni_open);
    type(&s, "gem");
    CHECK_STR("120 events, 30.00 \xc2\xb5s in all", s.app.view.message);
    type(&s, "m 9");
    press(&s, KEY_BACKSPACE, 0);
    press(&s, KEY_BACKSPACE, 0);
    press(&s, KEY_ENTER, 0);
    CHECK(!s.app.view.omni_open);
    CHECK_STR("gemm 1", timeline_text(&s.w.t, s.w.t.span_name[s.app.view.picked.span]));
    press(&s, KEY_ENTER, 0);
    press(&s, ':', 0);
    type(&s, "dur>x");
    CHECK(strstr(s.app.view.message, "'x' is not a time") != NULL);
    press(&s, KEY_ESC, 0);
    press(&s, ':', 0);
    type(&s, "class:comm");
    press(&s, KEY_ENTER, 0);
    CHECK(s.app.filter.d != NULL);
    press(&s, '>', 0);
    type(&s, "light");
    CHECK_INT(1, (int)s.app.view.offers_n);
    press(&s, KEY_ENTER, 0);
    CHECK(s.app.view.theme == theme_light());
    press(&s, 'p', MOD_CTRL);
    type(&s, "rank 2");
    press(&s, KEY_ENTER, 0);
    CHECK(!s.app.view.omni_open);
    press(&s, '>', 0);
    type(&s, "zzz");
    press(&s, KEY_ENTER, 0);
    CHECK_STR("there is no such command", s.app.view.message);
    close_session(&s);
}

static bool item_box(const Session *s, uint32_t id, PxBox *box)
{
    return CHECK(draw_item_box(&s->app.list, id, box));
}

/* Below the box, within the picture, however small that is; and its lines can be clicked. */
static void the_palette_is_below_the_omnibox(void)
{
    static const int32_t widths[] = { 1600, 900, 320 };
    for (size_t i = 0; i < ARRAY_N(widths); i++) {
        Session s;
        PxBox omni, first, light;
        open_session(&s);
        s.app.view.width = widths[i];
        press(&s, '>', 0);
        type(&s, "light");
        if (item_box(&s, SCENE_ITEM_OMNI, &omni) && item_box(&s, SCENE_ITEM_OFFER, &first)) {
            CHECK(first.x0 >= 0 && first.x1 <= PX(widths[i]));
            CHECK(first.x0 < omni.x1 && first.x1 > omni.x0 && first.y0 >= omni.y1);
        }
        mouse(&s, INPUT_DOWN, 1, px_floor(omni.x0) + 3, px_floor(omni.y0) + 3, 0);
        CHECK_STR(">light", s.app.view.omni); /* still what was typed */
        if (item_box(&s, SCENE_ITEM_OFFER, &light))
            mouse(&s, INPUT_DOWN, 1, px_floor(light.x0) + 9, px_floor(light.y0) + 9, 0);
        CHECK(!s.app.view.omni_open);
        CHECK(s.app.view.theme == theme_light());
        close_session(&s);
    }
}

/* The rectangle one pixel wide in the top bar. */
static void the_cursor_stays_in_the_omnibox(void)
{
    Session s;
    PxBox omni;
    open_session(&s);
    press(&s, '/', 0);
    for (int i = 0; i < 30; i++)
        type(&s, "word ");
    uint32_t cursors_n = 0;
    for (uint32_t i = 0; i < s.app.list.items_n && item_box(&s, SCENE_ITEM_OMNI, &omni); i++) {
        const DrawItem *k = &s.app.list.items[i];
        bool cursor = k->kind == DRAW_RECT && k->box.x1 - k->box.x0 == PX(1) &&
                      k->box.y0 > omni.y0 && k->box.y1 < omni.y1;
        cursors_n += cursor && k->box.x0 > omni.x0 && k->box.x1 < omni.x1;
    }
    CHECK_INT(1, (int)cursors_n);
    close_session(&s);
}

static void marks_say_when_and_how_far_apart(void)
{
    Session s;
    open_session(&s);
    s.app.view.mouse_x = -1; /* the window's middle */
    press(&s, 'm', 0);
    CHECK_STR("mark at 15.00 \xc2\xb5s", s.app.view.message);
    view_show(&s.app.view, 10000, 15000);
    press(&s, 'm', MOD_SHIFT);
    CHECK_STR("mark at 12.50 \xc2\xb5s, 2.500 \xc2\xb5s before the last one",
              s.app.view.message);
    CHECK_INT(2, (int)s.app.view.marks_n);
    press(&s, 'm', 0);
    CHECK_STR("mark at 12.50 \xc2\xb5s", s.app.view.message);
    close_session(&s);
}

static bool says(const Session *s, const char *text)
{
    const DrawList *list = &s->app.list;
    bool has = false;
    for (uint32_t i = 0; i < list->items_n; i++)
        has |= list->items[i].kind == DRAW_TEXT && list->items[i].n == strlen(text) &&
               memcmp(list->chars + list->items[i].first, text, strlen(text)) == 0;
    return has;
}

static void a_filter_says_that_it_is_there(void)
{
    Session s;
    Err err = { 0 };
    open_session(&s);
    CHECK(app_filter(&s.app, "launch dur<1ms", &err));
    app_draw(&s.app);
    CHECK(says(&s, ":launch dur<1ms"));
    CHECK(says(&s, "12 events, 600 ns in all"));
    s.app.scene.still = true;
    app_draw(&s.app);
    CHECK(says(&s, "filter launch dur<1ms: 12 events, 600 ns in all"));
    s.app.scene.still = false;
    press(&s, KEY_ESC, 0);
    CHECK(!says(&s, ":launch dur<1ms"));
    close_session(&s);
}

/* As a window's first picture is drawn before ranks are matched. */
static void a_filter_follows_what_is_found_out(void)
{
    Session s;
    Err err = { 0 };
    open_session(&s);
    ViewLinks links = s.data.links;
    s.data.links = (ViewLinks){ .comms_n = 0 };
    CHECK(app_filter(&s.app, "exposed>10%", &err));
    app_draw(&s.app);
    CHECK(says(&s, "0 events, 0 ns in all"));
    s.data.links = links;
    app_draw(&s.app);
    CHECK(!says(&s, "0 events, 0 ns in all"));
    CHECK(s.app.scene.kept.count.n == RANKS * STEPS);
    close_session(&s);
}

static void ranks_fold_pin_and_sort(void)
{
    Session s;
    open_session(&s);
    const Layout *l = &s.app.scene.layout;
    uint32_t rows_n = l->rows_n;
    press(&s, 'h', 0);
    CHECK(strstr(s.app.view.message, "move the mouse over a rank") != NULL);
    mouse(&s, INPUT_MOVE, 0, px_floor(l->lanes.x0) + 50, px_floor(l->rows[0].y0) + 2, 0);
    press(&s, 'h', 0);
    CHECK_INT((int)rows_n - 2, (int)l->rows_n);
    press(&s, 't', 0);
    press(&s, 'h', 0);
    CHECK_INT((int)rows_n + 1, (int)l->rows_n); /* its host thread */
    press(&s, 'p', 0);
    CHECK(l->rows[0].pinned && l->pinned.y1 > l->pinned.y0);
    press(&s, 'b', 0); /* by exposed communication: rank 3 has most */
    CHECK_INT(3, (int)s.app.view.order[0]);
    press(&s, 'h', MOD_SHIFT);
    CHECK_INT(RANKS, (int)l->rows_n);
    close_session(&s);
}

static const LayoutRow *sim_strip_of(const Session *s, uint32_t rank)
{
    const Layout *l = &s->app.scene.layout;
    for (uint32_t i = 0; i < l->rows_n; i++)
        if (l->rows[i].kind == LAYOUT_STRIP && l->rows[i].side == VIEW_SIM_SIDE &&
            l->rows[i].real == rank)
            return &l->rows[i];
    return NULL;
}

/* In Sim, and in Split below the recorded ones. */
static void check_sim_rows(Session *s, ViewMode mode)
{
    View *v = &s->app.view;
    const Layout *l = &s->app.scene.layout;
    v->mode = mode;
    app_draw(&s->app);
    const LayoutRow *row = sim_strip_of(s, 2);
    if (!CHECK(row != NULL))
        return;
    int32_t y = px_floor(row->y0) + 2;
    mouse(s, INPUT_MOVE, 0, px_floor(l->lanes.x0) + 50, y, 0);
    press(s, 'h', 0);
    CHECK(v->ranks[2].folded && !v->ranks[0].folded);
    press(s, 'h', 0);
    CHECK(!v->ranks[2].folded);
    mouse(s, INPUT_DOWN, 1, 20, y, 0);
    mouse(s, INPUT_UP, 1, 20, y, 0);
    CHECK(v->ranks[2].folded);
    press(s, 'h', 0);
    drag(s, 1, px_floor(l->lanes.x0) + 50, px_floor(l->lanes.x0) + 150, y, 0);
    for (uint32_t r = 0; r < RANKS; r++)
        CHECK_INT(r == 2 || mode == VIEW_SIM, v->selected_ranks[r]);
    CHECK_U64(mode == VIEW_SIM ? RANKS : 1,
              view_window_stats(v, view_stats_window(v), NULL).ranks_n);
}

/* Several recorded ranks, and one simulated that stands for them. */
static void rows_of_the_simulation_act_for_their_ranks(void)
{
    Session s;
    World w = { 0 };
    ViewData sim;
    View view;
    open_session(&s);
    app_free(&s.app);
    add_rank(&w, 0, NULL);
    timeline_seal(&w.t);
    view_data_open(&sim, &w.t, "simulated", 1);
    sim.ranks[0].ranks_n = RANKS;
    view_open(&view, &s.data, &sim);
    view.width = 1400;
    view.height = 1000;
    app_open(&s.app, view);
    check_sim_rows(&s, VIEW_SIM);
    check_sim_rows(&s, VIEW_SPLIT);
    close_session(&s);
    view_data_free(&sim);
    timeline_free(&w.t);
}

static uint32_t count_rows(const Session *s, LayoutKind kind)
{
    const Layout *l = &s->app.scene.layout;
    uint32_t n = 0;
    for (uint32_t i = 0; i < l->rows_n; i++)
        n += l->rows[i].kind == kind;
    return n;
}

static void groups_open_and_close_by_keyboard(void)
{
    Session s;
    open_session_of(&s, "tp");
    View *v = &s.app.view;
    press(&s, 'g', MOD_SHIFT);
    CHECK_STR("ranks are not grouped; G groups them", v->message);
    press(&s, 'g', 0);
    CHECK_STR("ranks by group 'tp': 2 groups", v->message);
    CHECK_INT(2, (int)count_rows(&s, LAYOUT_GROUP));
    CHECK_INT(RANKS, (int)count_rows(&s, LAYOUT_STRIP));
    press(&s, KEY_TAB, 0); /* heading, 0, 1, heading, 2, 3 */
    press(&s, KEY_ENTER, 0);
    CHECK(v->closed[0] && count_rows(&s, LAYOUT_STRIP) == 2);
    press(&s, 'h', 0);
    CHECK(strstr(v->message, "move the mouse over a rank") != NULL);
    press(&s, KEY_DOWN, 0);
    press(&s, KEY_DOWN, 0); /* the first rank of the second group */
    press(&s, 'p', 0);
    CHECK(v->ranks[2].pinned && s.app.scene.layout.rows[0].rank == 2);
    press(&s, 'b', 0);
    CHECK_INT(3, (int)v->order[0]);
    press(&s, 'g', MOD_SHIFT); /* what is pinned stays */
    CHECK_INT(1, (int)count_rows(&s, LAYOUT_STRIP));
    CHECK_INT(2, (int)count_rows(&s, LAYOUT_GROUP));
    press(&s, 'g', MOD_SHIFT);
    CHECK_INT(RANKS, (int)count_rows(&s, LAYOUT_STRIP));
    press(&s, 'g', 0);
    CHECK_STR("ranks are not grouped", v->message);
    CHECK_INT(0, (int)count_rows(&s, LAYOUT_GROUP));
    close_session(&s);
}

/* What is searched for opens its group; a filter leaves groups as they are. */
static void what_is_looked_for_opens_its_group(void)
{
    Session s;
    open_session_of(&s, "tp");
    View *v = &s.app.view;
    const Layout *l = &s.app.scene.layout;
    press(&s, 'g', 0);
    press(&s, 'g', MOD_SHIFT);
    CHECK_INT(2, (int)l->rows_n);
    press(&s, ':', 0);
    type(&s, "class:comm");
    press(&s, KEY_ENTER, 0);
    CHECK_INT(2, (int)l->rows_n);
    press(&s, 'p', MOD_CTRL);
    type(&s, "3");
    press(&s, KEY_ENTER, 0);
    CHECK(v->closed[0] && !v->closed[2]);
    press(&s, '/', 0);
    type(&s, "gemm rank:1");
    press(&s, KEY_ENTER, 0);
    CHECK(!v->closed[0] && v->picked.row != NONE_U32);
    mouse(&s, INPUT_DOWN, 1, px_floor(l->names.x0) + 20, px_floor(l->rows[0].y0) + 4, 0);
    CHECK(v->closed[0] && l->rows[0].kind == LAYOUT_GROUP && l->rows[1].group == 2);
    for (uint32_t r = 0; r < RANKS; r++)
        v->ranks[r].left_out = true;
    app_draw(&s.app);
    CHECK_INT(0, (int)l->rows_n);
    close_session(&s);
}

static void without_groups_it_is_said(void)
{
    Session s;
    open_session(&s);
    press(&s, 'g', 0);
    CHECK_STR("the communication of this trace names no process groups", s.app.view.message);
    close_session(&s);
}

static void one_trace_has_nothing_to_compare(void)
{
    Session s;
    open_session(&s);
    press(&s, 'v', 0);
    CHECK_STR("one trace is open; lockstep view A --compare B shows two", s.app.view.message);
    press(&s, 'x', 0);
    CHECK(strstr(s.app.view.message, "--compare B") != NULL);
    press(&s, 'k', 0);
    CHECK_STR("the ranks are on one clock, nothing is moved", s.app.view.message);
    press(&s, ']', 0);
    CHECK(strstr(s.app.view.message, "pick an event first") != NULL);
    close_session(&s);
}

/* Every action, at every size: nothing breaks, and the picture is drawn. */
static void every_action_at_every_size(void)
{
    static const int32_t sizes[][2] = { { 1, 1 }, { 40, 30 }, { 320, 200 }, { 1920, 1080 } };
    static const uint32_t scales[] = { 75, 100, 300 };
    Session s;
    Err err = { 0 };
    open_session_of(&s, "dp");
    for (size_t i = 0; i < ARRAY_N(sizes); i++) {
        app_input(&s.app, &(Input){ .kind = INPUT_SIZE, .x = sizes[i][0], .y = sizes[i][1] });
        for (size_t a = 0; a < app_actions_n; a++) {
            if (strcmp(app_actions[a].name, "quit") == 0)
                continue;
            s.app.view.scale_pct = scales[a % ARRAY_N(scales)];
            app_act(&s.app, app_actions[a].name);
            mouse(&s, INPUT_MOVE, 0, sizes[i][0] / 2, sizes[i][1] / 2, 0);
            app_draw(&s.app);
        }
        Frame f;
        if (CHECK(frame_init(&f, sizes[i][0], sizes[i][1], &err)))
            raster_draw(&f, app_draw(&s.app));
        frame_free(&f);
    }
    close_session(&s);
}

static void keys_are_rebound_by_presets_and_by_hand(void)
{
    Session s;
    Keys keys;
    Err err = { 0 };
    char text[KEY_TEXT];
    open_session(&s);
    int64_t all_ns = length_of(&s);
    const Layout *l = &s.app.scene.layout;
    Input wheel = { .kind = INPUT_WHEEL,
                    .dy = 1,
                    .x = px_floor(l->lanes.x0) + 50,
                    .y = px_floor(l->lanes.y0) + 20 };
    app_input(&s.app, &wheel);
    CHECK_INT(all_ns, length_of(&s)); /* it scrolls */
    CHECK(keys_load(&keys, "tracy", &err));
    app_set_keys(&s.app, &keys);
    app_input(&s.app, &wheel);
    CHECK(length_of(&s) < all_ns);
    CHECK(keys_load(&keys, "chrome", &err));
    app_set_keys(&s.app, &keys);
    press(&s, 'z', 0);
    CHECK_INT(all_ns, length_of(&s));
    uint32_t palette = keys_action(&keys, 'p', MOD_CTRL | MOD_SHIFT);
    CHECK_STR("command palette", app_actions[palette].name);
    CHECK_STR("Ctrl+Shift+P", keys_text(&keys, palette, text));
    CHECK(keys_action(&keys, '?', MOD_SHIFT) == keys_action(&keys, '?', 0));
    CHECK(keys_action(&keys, 'j', 0) == NONE_U32);
    close_session(&s);
}

static void tab_goes_through_the_panes(void)
{
    Session s;
    open_session(&s);
    press(&s, KEY_TAB, 0);
    CHECK_INT(VIEW_PANE_RANKS, s.app.view.pane);
    press(&s, KEY_DOWN, 0);
    press(&s, KEY_DOWN, 0);
    press(&s, KEY_ENTER, 0);
    CHECK(s.app.view.ranks[2].folded && !s.app.view.ranks[1].folded);
    press(&s, 'p', 0);
    CHECK(s.app.view.ranks[2].pinned);
    press(&s, KEY_TAB, 0);
    CHECK_INT(VIEW_PANE_DRAWER, s.app.view.pane);
    press(&s, KEY_DOWN, 0);
    press(&s, KEY_ENTER, 0); /* goes to the second of the top kernels */
    const SceneTables *t = &s.app.scene.tables;
    CHECK_INT(t->top[1].name, s.w.t.span_name[s.app.view.picked.span]);
    press(&s, KEY_ESC, 0);
    CHECK_INT(VIEW_PANE_LANES, s.app.view.pane);
    press(&s, KEY_TAB, MOD_SHIFT);
    CHECK_INT(VIEW_PANE_DRAWER, s.app.view.pane);
    close_session(&s);
}

/* Marks which of the help's keys stand whole in the picture; returns how many texts leave it. */
static uint32_t look_at_help(Session *s, bool *seen)
{
    const DrawList *d = app_draw(&s->app);
    const View *v = &s->app.view;
    uint32_t outside_n = 0;
    for (uint32_t i = 0; i < d->items_n; i++) {
        const DrawItem *it = &d->items[i];
        if (it->kind != DRAW_TEXT)
            continue;
        for (uint32_t k = 0; k < v->help_n; k++) {
            const char *tab = strchr(v->help_lines[k], '\t');
            if (it->n != (size_t)(tab - v->help_lines[k]) ||
                memcmp(d->chars + it->first, v->help_lines[k], it->n) != 0)
                continue;
            seen[k] = true;
            outside_n += it->box.x0 < 0 || it->box.x1 > PX(v->width) || it->box.y0 < 0 ||
                         it->box.y1 > PX(v->height);
        }
    }
    return outside_n;
}

/* By wheel or by keys, in a window of any size. */
static void all_of_the_help_can_be_read(void)
{
    static const int32_t sizes[][2] = { { 1400, 800 }, { 640, 360 }, { 320, 200 } };
    for (size_t i = 0; i < ARRAY_N(sizes); i++)
        for (int by_wheel = 0; by_wheel < 2; by_wheel++) {
            Session s;
            bool seen[APP_HELP] = { false };
            uint32_t seen_n = 0;
            open_session(&s);
            s.app.view.width = sizes[i][0];
            s.app.view.height = sizes[i][1];
            press(&s, '?', 0);
            for (int turn = 0; turn < 100; turn++) {
                CHECK_U64(0, look_at_help(&s, seen));
                if (by_wheel)
                    app_input(&s.app,
                              &(Input){ .kind = INPUT_WHEEL, .dy = -1, .x = 9, .y = 9 });
                else
                    press(&s, KEY_DOWN, 0);
            }
            for (uint32_t k = 0; k < s.app.view.help_n; k++)
                seen_n += seen[k];
            CHECK_U64(s.app.view.help_n, seen_n);
            CHECK_INT(0, s.app.view.scroll_px);
            app_input(&s.app, &(Input){ .kind = INPUT_DOWN, .button = 1, .x = 9, .y = 9 });
            CHECK(!s.app.view.help && s.app.view.picked.row == NONE_U32);
            close_session(&s);
        }
}

/* Keys are told once each, and names of actions are those of the help. */
static void no_key_has_two_actions(void)
{
    for (size_t i = 0; i < app_actions_n; i++)
        for (size_t k = 0; k < i; k++)
            CHECK(!app_actions[i].key || app_actions[i].key != app_actions[k].key ||
                  app_actions[i].mods != app_actions[k].mods);
}

int main(void)
{
    RUN(keys_zoom_and_come_back);
    RUN(the_wheel_is_undone_as_one);
    RUN(dragging_selects_and_counts);
    RUN(a_selection_is_drawn_over_the_ranks_that_count);
    RUN(other_buttons_pan_and_zoom);
    RUN(a_middle_drag_upwards_goes_nowhere);
    RUN(clicking_picks_what_is_drawn);
    RUN(steps_events_and_exposed_ones);
    RUN(a_search_passes_over_none_of_one_moment);
    RUN(ranks_left_out_are_not_gone_to);
    RUN(a_search_and_a_filter_follow_the_view);
    RUN(a_step_in_sight_is_not_passed_over);
    RUN(a_picked_host_event_is_seen);
    RUN(a_folded_rank_is_scrolled_to);
    RUN(searching_finds_what_is_folded_away);
    RUN(the_omnibox_searches_filters_and_acts);
    RUN(the_palette_is_below_the_omnibox);
    RUN(the_cursor_stays_in_the_omnibox);
    RUN(marks_say_when_and_how_far_apart);
    RUN(a_filter_says_that_it_is_there);
    RUN(a_filter_follows_what_is_found_out);
    RUN(ranks_fold_pin_and_sort);
    RUN(rows_of_the_simulation_act_for_their_ranks);
    RUN(groups_open_and_close_by_keyboard);
    RUN(what_is_looked_for_opens_its_group);
    RUN(without_groups_it_is_said);
    RUN(one_trace_has_nothing_to_compare);
    RUN(every_action_at_every_size);
    RUN(no_key_has_two_actions);
    RUN(keys_are_rebound_by_presets_and_by_hand);
    RUN(all_of_the_help_can_be_read);
    RUN(tab_goes_through_the_panes);
    return check_report();
}

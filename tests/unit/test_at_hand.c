/*
 * test_at_hand.c - what the viewer tells of the event or kernel that mouse or keyboard are at:
 * the tooltip, the other ends of its links, the clipboard.
 *
 * Two ranks, recorded and simulated; a launch of 50 ns before each kernel:
 *
 *     host   |-- aten::mm --|           kernels  |gemm 100|gemm 200| ... |gemm 1000|
 *              |launch|                 network  |all_reduce|
 */
#include "core/json.h"
#include "viz/app.h"

#include "tests/check.h"
#include "tests/kernel_pair.h"
#include "tests/trace_world.h"

enum { KERNELS = 10, SLOT_NS = 2000, RANKS_MOST = 40 };

typedef struct Session {
    World w[VIEW_SIDES];
    ViewData data[VIEW_SIDES];
    ViewComm comms[RANKS_MOST];
    uint32_t parts[RANKS_MOST];
    ViewMatch match;
    const char *channel;
    ViewPair pairs[KERNELS];
    ViewDiffRank diff_rank;
    Arena arena;
    ViewDiff diff;
    App app;
} Session;

static void add_rank(World *w, uint32_t r, int64_t pct)
{
    uint32_t gpu = world_stream(w, r, 7), net = world_stream(w, r, 20), host = world_host(w, r);
    for (int i = 0; i < KERNELS; i++) {
        int64_t at_ns = (int64_t)i * SLOT_NS;
        world_span(w, host, SPAN_HOST, "aten::mm", at_ns, at_ns + 30);
        uint64_t launch =
            world_span(w, host, SPAN_LAUNCH, "cudaLaunchKernel", at_ns + 10, at_ns + 20);
        uint64_t kernel = world_span(w, gpu, SPAN_COMPUTE, "gemm", at_ns + 60,
                                     at_ns + 60 + 100 * (i + 1) * pct / 100);
        w->t.correlation[launch] = w->t.correlation[kernel] = (uint64_t)i + 7;
    }
    world_comm(
        w, net,
        (Coll){ .op = "all_reduce", .bytes = 1000, .seq = 0, .wait_ns = -1, .ranks_n = 2 }, 100,
        600);
}

static void open_session(Session *s, uint32_t ranks_n)
{
    *s = (Session){ .channel = "group 'dp'" };
    for (int side = 0; side < VIEW_SIDES; side++) {
        timeline_want(&s->w[side].t, true, false);
        for (uint32_t r = 0; r < ranks_n; r++)
            add_rank(&s->w[side], r, side ? 90 : 100);
        timeline_seal(&s->w[side].t);
        view_data_open(&s->data[side], &s->w[side].t, "run", 1);
    }
    const Timeline *t = &s->w[0].t;
    uint32_t comms_n = 0, pairs_n = 0;
    for (uint64_t i = 0; i < t->spans_n; i++) {
        if (t->span_class[i] == SPAN_COMM) {
            s->parts[comms_n] = comms_n;
            s->comms[comms_n++] = (ViewComm){ i, 0, 0, 100, 0 };
        } else if (t->span_class[i] == SPAN_COMPUTE && t->tracks[t->span_track[i]].rank == 0) {
            const Timeline *const lines[] = { t, &s->w[1].t };
            s->pairs[pairs_n++] = kernel_pair(lines, i, i);
        }
    }
    s->match = (ViewMatch){ 0, comms_n, NONE_U32, 500, 0 };
    s->data[0].links = (ViewLinks){ .comms = s->comms,
                                    .comms_n = comms_n,
                                    .matches = &s->match,
                                    .matches_n = 1,
                                    .parts = s->parts,
                                    .channels = &s->channel };
    s->diff_rank = (ViewDiffRank){ .pairs = s->pairs, .pairs_n = pairs_n, .real_n = pairs_n };
    view_diff_index(&s->diff_rank, t, &s->arena);
    s->diff = (ViewDiff){ .ranks = &s->diff_rank, .ranks_n = 1 };
    View view;
    view_open(&view, &s->data[0], &s->data[1]);
    view.diff = &s->diff;
    view.width = 1400;
    view.height = 800;
    app_open(&s->app, view);
    app_act(&s->app, "view real");
    app_draw(&s->app);
}

static void close_session(Session *s)
{
    app_free(&s->app);
    arena_free(&s->arena);
    for (int side = 0; side < VIEW_SIDES; side++) {
        view_data_free(&s->data[side]);
        world_free(&s->w[side]);
    }
}

static void press(Session *s, int32_t key, int32_t mods)
{
    app_input(&s->app, &(Input){ .kind = INPUT_KEY, .key = key, .mods = mods });
    app_draw(&s->app);
}

static void mouse(Session *s, InputKind kind, Px x, Px y)
{
    app_input(
        &s->app,
        &(Input){ .kind = kind, .button = 1, .clicks = 1, .x = px_floor(x), .y = px_floor(y) });
    app_draw(&s->app);
}

static void click(Session *s, PxBox box)
{
    Px x = (box.x0 + box.x1) / 2, y = (box.y0 + box.y1) / 2;
    mouse(s, INPUT_MOVE, x, y);
    mouse(s, INPUT_DOWN, x, y);
    mouse(s, INPUT_UP, x, y);
}

/* Whether a text of the picture is, or begins with, that one. */
static bool says(Session *s, const char *text)
{
    const DrawList *d = app_draw(&s->app);
    size_t n = strlen(text);
    for (uint32_t i = 0; i < d->items_n; i++)
        if (d->items[i].kind == DRAW_TEXT && d->items[i].n >= n &&
            memcmp(d->chars + d->items[i].first, text, n) == 0)
            return true;
    return false;
}

/* The i-th kernel of rank 0, picked by keyboard. */
static void pick_kernel(Session *s, uint32_t i)
{
    app_pick(&s->app, view_place_of(&s->data[0], 0, s->pairs[i].span[0]));
    app_draw(&s->app);
}

/* ---- tests ---- */

static void what_the_keyboard_picked_is_told(void)
{
    Session s;
    open_session(&s, 2);
    CHECK(!says(&s, "launched"));
    pick_kernel(&s, 2);
    CHECK(says(&s, "launched 50 ns before by cudaLaunchKernel in aten::mm"));
    CHECK(says(&s, "real 300 ns, sim 270 ns: -10.0 %"));
    mouse(&s, INPUT_MOVE, s.app.scene.layout.minimap.x0, s.app.scene.layout.minimap.y0);
    CHECK(!says(&s, "launched")); /* the mouse took over */
    press(&s, '.', 0);
    CHECK(says(&s, "real 400 ns, sim 360 ns: -10.0 %"));
    press(&s, KEY_ESC, 0);
    CHECK(!says(&s, "launched"));
    close_session(&s);
}

/* An op of many kernels is told whole; an error that rounds to none has no sign. */
static void the_error_that_is_told_is_the_ops(void)
{
    Session s;
    open_session(&s, 1);
    s.pairs[2].time_ns[0] = 10000;
    s.pairs[2].time_ns[1] = 11000;
    pick_kernel(&s, 2);
    CHECK(
        says(&s, "all kernels of the op: real 10.00 \xc2\xb5s, sim 11.00 \xc2\xb5s: +10.0 %"));
    s.pairs[2].time_ns[1] = 9996;
    CHECK(says(&s, "all kernels of the op: real 10.00 \xc2\xb5s, sim 9.996 \xc2\xb5s: 0.0 %"));
    s.pairs[2].time_ns[0] = 300;
    s.pairs[2].time_ns[1] = 300;
    CHECK(says(&s, "real 300 ns, sim 300 ns: 0.0 %"));
    close_session(&s);
}

/* The text that begins so, in the picture's last drawing; NULL: there is none. */
static const DrawItem *item_that_says(Session *s, const char *text)
{
    const DrawItem *found = NULL;
    const DrawList *d = app_draw(&s->app);
    size_t n = strlen(text);
    for (uint32_t i = 0; i < d->items_n; i++)
        if (d->items[i].kind == DRAW_TEXT && d->items[i].n >= n &&
            memcmp(d->chars + d->items[i].first, text, n) == 0)
            found = &d->items[i];
    return found;
}

/* The last event stands at the right edge of the lanes. */
static void the_tooltip_leaves_the_drawer_free(void)
{
    Session s;
    open_session(&s, 1);
    pick_kernel(&s, KERNELS - 1);
    const Layout *l = &s.app.scene.layout;
    const DrawItem *at = item_that_says(&s, "real 1.000");
    CHECK(at && at->box.x1 <= l->lanes.x1);
    press(&s, KEY_ESC, 0);
    CHECK(!item_that_says(&s, "real 1.000"));
    PxBox box = layout_span_box(l, &s.app.view, &l->rows[1],
                                view_place_of(&s.data[0], 0, s.pairs[KERNELS - 1].span[0]));
    mouse(&s, INPUT_MOVE, box.x0 + PX(1), box.y0 + PX(2));
    at = item_that_says(&s, "real 1.000");
    CHECK(at && at->box.x1 <= l->lanes.x1);
    close_session(&s);
}

/* Every row of it, as far as four go, is within a small window; what is copied has it whole. */
static void a_long_name_is_told_in_rows(void)
{
    char name[2048] = "", copied[4096];
    while (strlen(name) + 40 < sizeof name)
        strcat(name, "at::native::Functor<c10::BFloat16>, ");
    Session s;
    open_session(&s, 1);
    s.w[0].t.span_name[s.pairs[2].span[0]] = intern(&s.w[0].t.names, name);
    s.app.view.width = 640;
    pick_kernel(&s, 2);
    const DrawList *d = app_draw(&s.app);
    int rows_n = 0;
    for (uint32_t i = 0; i < d->items_n; i++) {
        const DrawItem *it = &d->items[i];
        char row[256];
        snprintf(row, sizeof row, "%.*s", (int)min_u64(it->n, 40), d->chars + it->first);
        if (it->kind != DRAW_TEXT || !it->style.bold || it->n < 40 || !strstr(name, row))
            continue;
        rows_n++;
        CHECK(it->box.x1 <= PX(640));
    }
    CHECK_INT(4, rows_n);
    scene_event_text(&s.app.view, copied, sizeof copied);
    CHECK(strncmp(copied, name, strlen(name)) == 0);
    close_session(&s);
}

/* Down goes through those that are seen, and no further. */
static void the_keyboard_stays_within_the_drawers_kernels(void)
{
    Session s;
    open_session(&s, 1);
    while (s.app.view.pane != VIEW_PANE_DRAWER)
        press(&s, KEY_TAB, 0);
    for (int i = 0; i < 2 * SCENE_TOP_KERNELS; i++)
        press(&s, KEY_DOWN, 0);
    CHECK(s.app.scene.kernels_n > 0 && s.app.scene.kernels_n <= s.app.scene.tables.top_n);
    CHECK_U64(s.app.scene.kernels_n - 1, s.app.view.pane_at);
    CHECK(says(&s, "1 time, "));
    close_session(&s);
}

static ViewLaunch launch_of(Session *s, uint64_t span)
{
    return view_launch_of(&s->data[0], view_place_of(&s->data[0], 0, span));
}

static void launches_need_a_correlation(void)
{
    Session s;
    open_session(&s, 1);
    Timeline *t = &s.w[0].t;
    uint64_t kernel = s.pairs[0].span[0];
    ViewLaunch found = launch_of(&s, kernel);
    CHECK_STR("cudaLaunchKernel", timeline_text(t, t->span_name[found.launch]));
    CHECK_STR("aten::mm", timeline_text(t, t->span_name[found.within]));
    CHECK_INT(0, t->start_ns[found.within]);
    CHECK(launch_of(&s, found.launch).launch == NONE_U64); /* of the host */
    t->correlation[kernel] = 12345;                        /* nothing else has that */
    CHECK(launch_of(&s, kernel).launch == NONE_U64);
    t->correlation[kernel] = NONE_U64;
    CHECK(launch_of(&s, kernel).launch == NONE_U64);
    close_session(&s);
}

static void kernels_of_the_drawer_are_told_and_found(void)
{
    Session s;
    open_session(&s, 2);
    PxBox box;
    if (CHECK(draw_item_box(app_draw(&s.app), SCENE_ITEM_KERNEL, &box))) {
        mouse(&s, INPUT_MOVE, box.x0 + PX(2), (box.y0 + box.y1) / 2);
        CHECK(says(&s, "20 times, 11.00 \xc2\xb5s within the window"));
        CHECK(says(&s, "mean 550 ns, median 500 ns, p99 1"));
        click(&s, box);
        CHECK_STR("gemm", timeline_text(&s.w[0].t, s.w[0].t.span_name[s.app.view.picked.span]));
    }
    app_input(&s.app, &(Input){ .kind = INPUT_LEAVE });
    press(&s, KEY_TAB, MOD_SHIFT); /* the drawer, by keyboard */
    CHECK(says(&s, "mean 550 ns, median 500 ns, p99 1"));
    close_session(&s);
}

/* Durations 1 to 100, those of rank 1 counted twice as it stands for two. */
static void percentiles_are_exact(void)
{
    World w = { 0 };
    for (uint32_t r = 0; r < 2; r++) {
        uint32_t gpu = world_stream(&w, r, 7);
        w.t.tracks[gpu].ranks_n = 1 + r;
        for (int64_t i = 100; i >= 1; i--)
            world_span(&w, gpu, SPAN_COMPUTE, i % 2 ? "odd" : "even", 1000 * (100 - i),
                       1000 * (100 - i) + i);
    }
    timeline_seal(&w.t);
    ViewData d;
    KernelSums sums;
    view_data_open(&d, &w.t, "times", 1);
    kernels_open(&sums, &d);
    uint32_t odd = intern(&w.t.names, "odd");
    KernelTimes k = kernels_times(&sums, NULL, NULL, 0, 200000, odd);
    CHECK_U64(150, k.count);
    CHECK_INT(50, k.mean_ns);
    CHECK_INT(49, k.p50_ns); /* 25 of the 50 odd ones are not longer */
    CHECK_INT(99, k.p99_ns);
    bool first[] = { true, false };
    k = kernels_times(&sums, first, NULL, 1000, 1050, odd); /* 99 ns from 1000 on */
    CHECK_U64(1, k.count);
    CHECK_INT(99, k.p50_ns);
    k = kernels_times(&sums, NULL, NULL, 500, 700, odd);
    CHECK_U64(0, k.count);
    kernels_free(&sums);
    view_data_free(&d);
    world_free(&w);
}

static void the_clipboard_gets_the_event_or_the_numbers(void)
{
    Session s;
    Err err = { 0 };
    open_session(&s, 2);
    press(&s, 'c', MOD_CTRL);
    CHECK(strstr(s.app.copy, "ranks\t2\n") == s.app.copy);
    CHECK(strstr(s.app.copy, "\ngemm\tcompute\t20\t11000\n") != NULL);
    CHECK(strstr(s.app.copy, "\nncclDevKernel(x)\t200\t") != NULL);
    pick_kernel(&s, 0);
    press(&s, 'c', MOD_CTRL);
    CHECK(strstr(s.app.copy, "gemm\ncompute on rank 0, stream 7\n100 ns, from 60 ns") ==
          s.app.copy);
    app_act(&s.app, "copy the numbers as TSV");
    CHECK(strstr(s.app.copy, "ranks\t2\n") == s.app.copy);
    app_act(&s.app, "copy the numbers as JSON");
    JsonDoc *doc = json_parse(s.app.copy, strlen(s.app.copy), "clipboard", &err);
    if (CHECK(doc != NULL)) {
        char text[512], line[64];
        JsonObj o = json_begin(json_root(doc), &err);
        snprintf(line, sizeof line, "\nexposed_comm_ns\t%.0f\n",
                 json_number(&o, "exposed_comm_ns", -1, 1e9, JSON_REQUIRED));
        CHECK(strstr(app_stats_text(&s.app, text, sizeof text), line) != NULL);
        CHECK(!json_end(&o)); /* the other keys were not asked for */
    }
    json_close(doc);
    close_session(&s);
}

static void arrows_at_the_edge_lead_to_what_is_behind_it(void)
{
    Session s;
    open_session(&s, RANKS_MOST / 4);
    app_input(&s.app, &(Input){ .kind = INPUT_SIZE, .x = 900, .y = 300 });
    app_pick(&s.app, view_place_of(&s.data[0], 0, s.comms[0].span));
    app_draw(&s.app);
    PxBox box;
    if (CHECK(draw_item_box(app_draw(&s.app), SCENE_ITEM_EDGE, &box))) {
        ViewPlace to = s.app.scene.edges[0];
        CHECK(to.span != s.comms[0].span);
        click(&s, box);
        CHECK(s.app.view.picked.span != s.comms[0].span);
        CHECK_INT(SPAN_COMM, s.w[0].t.span_class[s.app.view.picked.span]);
        CHECK(s.app.view.scroll_px > 0);
    }
    close_session(&s);
}

static void numbers_can_be_booked_as_hta_does(void)
{
    Session s;
    open_session(&s, 2);
    CHECK(says(&s, "  overlapped") && !says(&s, "Non-compute"));
    app_act(&s.app, "numbers as HTA books them");
    CHECK(says(&s, "Non-compute") && !says(&s, "  overlapped"));
    close_session(&s);
}

int main(void)
{
    RUN(what_the_keyboard_picked_is_told);
    RUN(the_error_that_is_told_is_the_ops);
    RUN(the_tooltip_leaves_the_drawer_free);
    RUN(a_long_name_is_told_in_rows);
    RUN(the_keyboard_stays_within_the_drawers_kernels);
    RUN(launches_need_a_correlation);
    RUN(kernels_of_the_drawer_are_told_and_found);
    RUN(percentiles_are_exact);
    RUN(the_clipboard_gets_the_event_or_the_numbers);
    RUN(arrows_at_the_edge_lead_to_what_is_behind_it);
    RUN(numbers_can_be_booked_as_hta_does);
    return check_report();
}

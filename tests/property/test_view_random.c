/*
 * test_view_random.c - small odd timelines and random hands: keys, mouse, typed words, sizes.
 *
 * After every input the picture is drawn, and what must always hold is looked at: the window
 * within its limits, rows in order, numbers of the selection equal to a sweep over all spans
 * that knows nothing of covers, kernels and filters equal to a look at every span.
 */
#include "core/order.h"
#include "viz/app.h"
#include "viz/raster.h"

#include "tests/check.h"
#include "tests/kernel_pair.h"

enum { WORLDS = 60, INPUTS = 120, SPANS_MAX = 40 };

typedef struct Hands {
    Timeline t[VIEW_SIDES];
    ViewData data[VIEW_SIDES];
    ViewComm *comms;
    ViewMatch match;
    uint32_t *parts;
    const char *channel;
    int64_t *clock_ns;
    ViewDiff diff;
    Arena arena;
    App app;
    uint64_t seed;
} Hands;

static uint64_t draw(Hands *h, uint64_t n)
{
    h->seed = mix_u64(h->seed);
    return h->seed % n;
}

/* ---- timelines ---- */

/* How long, how far apart, from when on: seconds to nanoseconds, also before 1970. */
typedef struct Shape {
    int64_t origin_ns, unit_ns;
    uint32_t ranks_n, folds_n, overlap; /* overlap: of so many neighbours */
    bool no_gpu, no_length;
} Shape;

static Shape draw_shape(Hands *h)
{
    static const int64_t origins[] = { 0, -5000000000000000, 1700000000000000000,
                                       TIMELINE_NS_MAX / 2, -TIMELINE_NS_MAX / 2 };
    static const int64_t units[] = {
        1, 20, 1000, 1000000, 100000000000, TIMELINE_NS_MAX / 2000
    };
    static const uint32_t ranks[] = { 1, 2, 3, 20 };
    Shape s = { .origin_ns = origins[draw(h, ARRAY_N(origins))],
                .unit_ns = units[draw(h, ARRAY_N(units))],
                .ranks_n = ranks[draw(h, ARRAY_N(ranks))],
                .folds_n = draw(h, 4) == 0 ? 8 : 1,
                .overlap = draw(h, 8) == 0 ? 300 : 2,
                .no_gpu = draw(h, 12) == 0,
                .no_length = draw(h, 12) == 0 };
    return s;
}

static void add_span(Hands *h, Timeline *t, uint32_t track, const Shape *s, SpanClass class_,
                     int64_t from_ns, int64_t dur_ns, uint32_t rank)
{
    static const char *const names[] = { "gemm",
                                         "void f::g<int>()",
                                         "void f::g<long>()",
                                         "",
                                         "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)",
                                         "a name with \xc3\xa4 and \x01 in it" };
    Comm c = comm_of(intern(&t->names, "all_reduce"));
    c.bytes = draw(h, 3) ? draw(h, 1u << 30) : NONE_U64;
    c.wait_ns = draw(h, 2) ? (int64_t)draw(h, (uint64_t)dur_ns + 1) : -1;
    c.ranks_n = s->ranks_n;
    if (draw(h, 4)) {
        c.group = intern(&t->names, draw(h, 3) ? "tp" : "dp");
        c.group_id = draw(h, 5) ? rank / 2 : NONE_U32;
    }
    if (class_ == SPAN_P2P)
        c.peer = rank ^ 1;
    bool comm = class_ == SPAN_COMM || class_ == SPAN_P2P;
    timeline_span(t, (Span){ .track = track,
                             .name = intern(&t->names, names[draw(h, ARRAY_N(names))]),
                             .class_ = class_,
                             .start_ns = from_ns,
                             .dur_ns = s->no_length ? 0 : dur_ns,
                             .op = NONE_U32,
                             .comm = comm && draw(h, 4) ? timeline_comm(t, c) : NONE_U32 });
}

static void add_track(Hands *h, Timeline *t, const Shape *s, uint32_t rank, uint32_t k)
{
    static const SpanClass of[] = { SPAN_COMPUTE, SPAN_COMM, SPAN_P2P, SPAN_MEMORY, SPAN_NOTE };
    bool host = s->no_gpu || k == 2;
    char name[16];
    snprintf(name, sizeof name, "row %u", k);
    uint32_t track = timeline_track(t, rank, host ? TRACK_HOST : TRACK_STREAM, name, k);
    t->tracks[track].ranks_n = s->folds_n;
    uint64_t n = s->overlap > 2 && k == 0 ? 320 : draw(h, SPANS_MAX);
    int64_t at_ns = s->origin_ns;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t most = s->overlap > 2 ? 3 : 10;
        SpanClass c = host ? SPAN_HOST : of[draw(h, k == 1 ? 3 : ARRAY_N(of))];
        int64_t dur_ns = (int64_t)draw(h, most) * s->unit_ns + (int64_t)draw(h, 2);
        add_span(h, t, track, s, c, at_ns, dur_ns, rank);
        if (s->overlap == 2 || k > 0)
            at_ns += draw(h, 5) ? dur_ns : dur_ns / 2;
    }
}

static void add_counter(Hands *h, Timeline *t, const Shape *s, uint32_t rank)
{
    uint32_t track = timeline_track(t, rank, TRACK_COUNTER, "bytes", 9);
    for (int64_t i = 0; i < (int64_t)draw(h, 60); i++)
        timeline_point(t, track, s->origin_ns + i * s->unit_ns, (double)draw(h, 1000) - 100);
}

static void add_steps(Timeline *t, const Shape *s, uint32_t rank)
{
    uint32_t track = timeline_track(t, rank, TRACK_STEPS, "steps", 0);
    for (int64_t i = 0; i < 4; i++) {
        char name[32];
        snprintf(name, sizeof name, "ProfilerStep#%d", (int)i);
        timeline_span(t, (Span){ .track = track,
                                 .name = intern(&t->names, name),
                                 .class_ = SPAN_STEP,
                                 .start_ns = s->origin_ns + 40 * i * s->unit_ns,
                                 .dur_ns = 40 * s->unit_ns,
                                 .op = NONE_U32,
                                 .comm = NONE_U32 });
    }
}

static void make_timeline(Hands *h, Timeline *t)
{
    Shape s = draw_shape(h);
    bool steps = draw(h, 2), counters = draw(h, 2);
    for (uint32_t r = 0; r < s.ranks_n && draw(h, 15) > 0; r++) {
        for (uint32_t k = 0; k < 3; k++)
            add_track(h, t, &s, r * s.folds_n, k);
        if (counters)
            add_counter(h, t, &s, r * s.folds_n);
        if (steps)
            add_steps(t, &s, r * s.folds_n);
    }
    if (draw(h, 10) == 0 && t->tracks_n > 0) /* all the time there is */
        for (int64_t sign = -1; sign <= 1; sign += 2)
            add_span(h, t, 0, &s, s.no_gpu ? SPAN_HOST : SPAN_COMPUTE, sign * TIMELINE_NS_MAX,
                     0, 0);
    t->ranks_n = s.ranks_n * s.folds_n;
    timeline_seal(t);
}

/* Collectives of the first side, as if some of them were one; clocks that differ. */
static void make_links(Hands *h)
{
    const Timeline *t = &h->t[0];
    ViewData *d = &h->data[0];
    uint32_t n = 0;
    h->comms = mem_zero(t->spans_n + 1, sizeof *h->comms);
    h->parts = mem_zero(t->spans_n + 1, sizeof *h->parts);
    h->clock_ns = mem_zero((size_t)d->ranks_n + 1, sizeof *h->clock_ns);
    for (uint64_t i = 0; i < t->spans_n; i++)
        if (cover_bit(t->span_class[i]) == COVER_COMM) {
            h->parts[n] = n;
            h->comms[n] =
                (ViewComm){ i, n < 7 ? 0 : NONE_U32, t->dur_ns[i] / 3, t->dur_ns[i] / 2, 0 };
            n++;
        }
    h->match = (ViewMatch){ 0, n < 7 ? n : 7, n ? 0 : NONE_U32, 1, 0 };
    for (uint32_t r = 0; r < d->ranks_n; r++)
        h->clock_ns[r] = (int64_t)draw(h, 3) * 7;
    h->channel = "a channel";
    d->links = (ViewLinks){
        h->comms, n, &h->match, n > 0, h->parts, &h->channel, draw(h, 2) ? h->clock_ns : NULL, 5
    };
}

/* Spans of streams of ranks that both sides have, paired by their order, some alone. */
static void pair_rank(Hands *h, ViewDiffRank *k, uint32_t r)
{
    const Timeline *const lines[] = { &h->t[0], &h->t[1] };
    uint64_t at[VIEW_SIDES] = { 0, 0 }, cap = h->t[0].spans_n + h->t[1].spans_n + 1;
    *k = (ViewDiffRank){ .rank = { r, r }, .pairs = mem_zero(cap, sizeof *k->pairs) };
    for (bool more = true; more;) {
        uint64_t span[VIEW_SIDES] = { NONE_U64, NONE_U64 };
        for (int side = 0; side < VIEW_SIDES; side++) {
            const Timeline *t = &h->t[side];
            const ViewRank *rank = &h->data[side].ranks[r];
            while (at[side] < t->spans_n &&
                   (t->tracks[t->span_track[at[side]]].rank != rank->rank ||
                    t->tracks[t->span_track[at[side]]].sort != 0))
                at[side]++;
            if (at[side] < t->spans_n)
                span[side] = at[side]++;
        }
        more = span[0] != NONE_U64 || span[1] != NONE_U64;
        if (span[0] != NONE_U64 && draw(h, 8) == 0)
            span[1] = NONE_U64;
        if (more)
            k->pairs[k->pairs_n++] = kernel_pair(lines, span[0], span[1]);
        k->real_n += span[0] != NONE_U64;
    }
    for (int side = 0; side < VIEW_SIDES; side++)
        k->begin_ns[side] = h->data[side].begin_ns;
    view_diff_index(k, lines[0], &h->arena);
}

static void make_diff(Hands *h)
{
    uint64_t n = min_u64(h->data[0].ranks_n, h->data[1].ranks_n);
    h->diff = (ViewDiff){ .ranks = mem_zero(n + 1, sizeof *h->diff.ranks),
                          .ranks_n = (uint32_t)n,
                          .coverage_pct = NAN,
                          .op_error_pct = NAN };
    for (uint32_t r = 0; r < n; r++)
        pair_rank(h, &h->diff.ranks[r], r);
}

static void open_hands(Hands *h, uint64_t seed)
{
    *h = (Hands){ .seed = seed };
    Err err = { 0 };
    for (int side = 0; side < VIEW_SIDES; side++) {
        make_timeline(h, &h->t[side]);
        if (!CHECK(timeline_check(&h->t[side], &err)))
            fprintf(stderr, "%s\n", err.text);
        view_data_open(&h->data[side], &h->t[side], "hands", 1);
    }
    make_links(h);
    View view;
    make_diff(h);
    view_open(&view, &h->data[0], draw(h, 2) ? &h->data[1] : NULL);
    view.diff = view.data[1] && draw(h, 4) ? &h->diff : NULL;
    view.width = 640;
    view.height = 360;
    app_open(&h->app, view);
    app_draw(&h->app);
}

static void close_hands(Hands *h)
{
    app_free(&h->app);
    for (int side = 0; side < VIEW_SIDES; side++) {
        view_data_free(&h->data[side]);
        timeline_free(&h->t[side]);
    }
    for (uint32_t r = 0; r < h->diff.ranks_n; r++)
        free(h->diff.ranks[r].pairs);
    free(h->diff.ranks);
    arena_free(&h->arena);
    free(h->comms);
    free(h->parts);
    free(h->clock_ns);
}

/* ---- random hands ---- */

static Input draw_key(Hands *h)
{
    static const int32_t keys[] = { KEY_ENTER, KEY_ESC,     KEY_BACKSPACE, KEY_DELETE, KEY_TAB,
                                    KEY_LEFT,  KEY_RIGHT,   KEY_UP,        KEY_DOWN,   KEY_HOME,
                                    KEY_END,   KEY_PAGE_UP, KEY_PAGE_DOWN, KEY_F1 };
    const AppAction *a = &app_actions[draw(h, app_actions_n)];
    Input in = { .kind = INPUT_KEY, .key = a->key, .mods = a->mods };
    if (draw(h, 3) == 0) {
        in.key = keys[draw(h, ARRAY_N(keys))];
        in.mods = (int32_t)draw(h, 8);
    }
    return in;
}

static Input draw_text_input(Hands *h)
{
    static const char *const words[] = { "gemm",       "g",    " dur>1us",   "rank:0-1", "x",
                                         " bytes>1MB", "-f",   "exposed>5%", "\xc3\xa4", ":",
                                         "class:comm", "zoom", " wait>1ns",  "dur>",     "1" };
    return (Input){ .kind = INPUT_TEXT, .text = words[draw(h, ARRAY_N(words))] };
}

static Input draw_input(Hands *h)
{
    static const InputKind kinds[] = { INPUT_MOVE, INPUT_DOWN, INPUT_UP, INPUT_WHEEL };
    const View *v = &h->app.view;
    uint64_t kind = draw(h, 20);
    if (kind < 9)
        return draw_key(h);
    if (kind < 11 || v->omni_open)
        return draw_text_input(h);
    if (kind == 11)
        return (Input){ .kind = draw(h, 4) ? INPUT_SIZE : INPUT_LEAVE,
                        .x = 1 + (int32_t)draw(h, draw(h, 3) ? 900 : 20),
                        .y = 1 + (int32_t)draw(h, draw(h, 3) ? 600 : 20) };
    return (Input){ .kind = kinds[draw(h, ARRAY_N(kinds))],
                    .button = 1 + (int32_t)draw(h, 3),
                    .clicks = 1 + (int32_t)draw(h, 2),
                    .x = (int32_t)draw(h, (uint64_t)v->width + 20) - 10,
                    .y = (int32_t)draw(h, (uint64_t)v->height + 20) - 10,
                    .mods = draw(h, 3) ? 0 : (int32_t)draw(h, 4),
                    .dx = (double)draw(h, 3) - 1,
                    .dy = (double)draw(h, 5) - 2 };
}

/* ---- what must hold ---- */

static void check_window(const View *v)
{
    const ViewData *d = view_data(v);
    CHECK(v->to_ns - v->from_ns >= VIEW_NS_MIN);
    int64_t all_ns = max_i64(VIEW_NS_MIN, d->end_ns - d->begin_ns);
    int64_t slack_ns = 1000; /* clocks that differ make it longer */
    CHECK(v->mode == VIEW_SIM || v->data[1] ||
          (v->to_ns - v->from_ns) / 2 <= all_ns + slack_ns);
    CHECK(!v->has_selection || v->selection.from_ns < v->selection.to_ns);
    CHECK(v->marks_n <= VIEW_MARKS && v->omni_cursor <= strlen(v->omni));
    CHECK(v->scale_pct >= FONT_SCALE_MIN && v->scale_pct <= FONT_SCALE_MAX);
}

static void check_rows(const App *a)
{
    const Layout *l = &a->scene.layout;
    CHECK(a->view.scroll_px >= 0 && PX(a->view.scroll_px) <= l->scroll_max + PX(1));
    for (uint32_t i = 0; i < l->rows_n; i++) {
        CHECK(l->rows[i].y0 < l->rows[i].y1);
        CHECK(i == 0 || l->rows[i].pinned != l->rows[i - 1].pinned ||
              l->rows[i].y0 >= l->rows[i - 1].y1);
    }
}

static void check_items(const DrawList *d)
{
    for (uint32_t i = 0; i < d->items_n; i++) {
        const DrawItem *k = &d->items[i];
        CHECK(k->kind < DRAW_KINDS_N && k->clip < d->clips_n);
        CHECK(k->box.x0 <= k->box.x1 && k->box.y0 <= k->box.y1);
    }
}

typedef struct Sums {
    int64_t compute_ns, comm_ns, overlapped_ns, exposed_ns, memory_ns, idle_ns, span_ns;
} Sums;

static uint8_t mask_at(const Timeline *t, uint32_t rank, int64_t at_ns)
{
    uint8_t mask = 0;
    for (uint64_t i = 0; i < t->spans_n; i++) {
        const Track *k = &t->tracks[t->span_track[i]];
        if (k->rank == rank && k->kind == TRACK_STREAM && t->start_ns[i] <= at_ns &&
            at_ns < t->start_ns[i] + t->dur_ns[i])
            mask |= cover_bit(t->span_class[i]);
    }
    return mask;
}

/* From each begin or end of a span to the next one nothing changes. */
static void slow_sums(const Timeline *t, uint32_t rank, int64_t from_ns, int64_t to_ns,
                      int64_t times, Sums *s)
{
    int64_t *at = mem_zero(2 * t->spans_n + 2, sizeof *at);
    uint64_t n = 0;
    at[n++] = from_ns;
    at[n++] = to_ns;
    for (uint64_t i = 0; i < t->spans_n; i++) {
        int64_t ends[] = { t->start_ns[i], t->start_ns[i] + t->dur_ns[i] };
        for (int k = 0; k < 2; k++)
            if (ends[k] > from_ns && ends[k] < to_ns)
                at[n++] = ends[k];
    }
    qsort(at, n, sizeof *at, compare_i64);
    for (uint64_t i = 0; i + 1 < n; i++) {
        int64_t ns = (at[i + 1] - at[i]) * times;
        uint8_t mask = ns ? mask_at(t, rank, at[i]) : 0;
        s->span_ns += ns;
        s->compute_ns += mask & COVER_COMPUTE ? ns : 0;
        s->comm_ns += mask & COVER_COMM ? ns : 0;
        s->memory_ns += mask & COVER_MEMORY ? ns : 0;
        s->overlapped_ns += mask & COVER_COMM && mask & COVER_COMPUTE ? ns : 0;
        s->exposed_ns += mask & COVER_COMM && !(mask & COVER_COMPUTE) ? ns : 0;
        s->idle_ns += mask ? 0 : ns;
    }
    free(at);
}

static void check_numbers(const App *a)
{
    const View *v = &a->view;
    const ViewData *d = view_data(v);
    ViewWindow w = view_stats_window(v);
    Sums s = { 0 };
    int64_t n = 0;
    char expected[512], got[512];
    if (w.to_ns - w.from_ns > TIMELINE_NS_MAX / 200) /* times ranks it would not fit */
        return;
    for (uint32_t r = 0; r < d->ranks_n; r++)
        if (view_counts(v, r)) {
            int64_t shift_ns = view_shift_ns(v, view_side(v), r);
            slow_sums(d->t, d->ranks[r].rank, w.from_ns + shift_ns, w.to_ns + shift_ns,
                      d->ranks[r].ranks_n, &s);
            n += d->ranks[r].ranks_n;
        }
    int64_t of = max_i64(n, 1);
    snprintf(expected, sizeof expected,
             "ranks\t%" PRId64 "\nwindow_ns\t%" PRId64 "\ncompute_ns\t%" PRId64
             "\ncomm_ns\t%" PRId64 "\noverlapped_ns\t%" PRId64 "\nexposed_comm_ns\t%" PRId64
             "\nmemory_ns\t%" PRId64 "\nidle_ns\t%" PRId64 "\n",
             n, s.span_ns / of, s.compute_ns / of, s.comm_ns / of, s.overlapped_ns / of,
             s.exposed_ns / of, s.memory_ns / of, s.idle_ns / of);
    CHECK_STR(expected, app_stats_text(a, got, sizeof got));
}

/* The first of the top kernels, by a look at every span. */
static void check_kernels(const App *a)
{
    const View *v = &a->view;
    const SceneTables *t = &a->scene.tables;
    const ViewData *d = view_data(v);
    const Layout *l = &a->scene.layout;
    if (l->drawer.x1 <= l->drawer.x0 || t->data != d || t->top_n == 0 ||
        t->window.to_ns - t->window.from_ns > TIMELINE_NS_MAX / 1000)
        return;
    int64_t ns = 0;
    for (uint64_t i = 0; i < d->t->spans_n; i++)
        for (uint32_t r = 0; r < d->ranks_n; r++) {
            const Track *k = &d->t->tracks[d->t->span_track[i]];
            int64_t shift_ns = view_shift_ns(v, view_side(v), r);
            int64_t from_ns = max_i64(d->t->start_ns[i], t->window.from_ns + shift_ns);
            int64_t to_ns =
                min_i64(d->t->start_ns[i] + d->t->dur_ns[i], t->window.to_ns + shift_ns);
            if (k->rank == d->ranks[r].rank && k->kind == TRACK_STREAM && view_counts(v, r) &&
                d->t->span_name[i] == t->top[0].name && to_ns > from_ns &&
                d->t->span_class[i] != SPAN_NOTE)
                ns += (to_ns - from_ns) * (int64_t)d->ranks[r].ranks_n;
        }
    CHECK_INT(ns, t->top[0].total_ns);
}

static void check_filter(const App *a)
{
    const ViewFilter *f = &a->filter;
    FilterCount count = { 0, 0 };
    if (!f->d)
        return;
    FilterCount got = filter_count(f);
    for (uint64_t i = 0; i < f->d->t->spans_n; i++)
        if (f->d->t->tracks[f->d->t->span_track[i]].kind != TRACK_STEPS &&
            filter_matches(f, i)) {
            count.n++;
            count.ns += f->d->t->dur_ns[i];
        }
    CHECK_U64(count.n, got.n);
    CHECK_INT(count.ns, got.ns);
}

static void draw_pixels(const DrawList *list)
{
    Frame f;
    Err err = { 0 };
    if (!CHECK(frame_init(&f, list->width, list->height, &err)))
        return;
    raster_draw(&f, list);
    frame_free(&f);
}

/* ---- */

static void play(uint64_t seed)
{
    static Hands h;
    open_hands(&h, seed);
    for (int i = 0; i < INPUTS; i++) {
        Input in = draw_input(&h);
        app_input(&h.app, &in);
        const DrawList *list = app_draw(&h.app);
        check_window(&h.app.view);
        check_rows(&h.app);
        if (i % 10 == 0)
            check_items(list);
        if (i % 8 == 0)
            check_numbers(&h.app);
        if (i % 8 == 4)
            check_kernels(&h.app);
        check_filter(&h.app);
        if (i % 24 == 0)
            draw_pixels(list);
        h.app.quit = false;
    }
    close_hands(&h);
}

static void whatever_hands_do_the_numbers_hold(void)
{
    const char *text = getenv("VIEW_WORLDS"); /* more of them, when wanted */
    uint64_t worlds = text ? strtoull(text, NULL, 10) : check_cases(WORLDS);
    for (uint64_t seed = 1; seed <= worlds && check_state.test_failures_n == 0; seed++) {
        play(seed * 977);
        if (check_state.test_failures_n > 0)
            fprintf(stderr, "(world %u)\n", (unsigned)seed);
    }
}

int main(void)
{
    RUN(whatever_hands_do_the_numbers_hold);
    return check_report();
}

/*
 * test_scene.c - golden frames: small fixed traces drawn whole, compared by the hash of their
 * pixels, and one as SVG text that a person can read.
 *
 * After a change of the drawing look at the pictures (GOLDEN_OUT=FOLDER writes them there),
 * then put the new hashes here; GOLDEN_OUT writes the SVG as well, to be copied to
 * tests/golden/scene.svg.
 */
#include "viz/picture.h"
#include "viz/png.h"
#include "viz/scene.h"
#include "viz/strip.h"
#include "viz/svg.h"

#include "tests/check.h"
#include "tests/kernel_pair.h"
#include "tests/trace_world.h"

enum { RANKS_MAX = 40 };

typedef struct Film {
    World w[VIEW_SIDES];
    ViewData data[VIEW_SIDES];
    ViewComm comms[RANKS_MAX];
    ViewMatch match;
    uint32_t parts[RANKS_MAX];
    const char *channel;
    ViewPair pairs[2][16];
    ViewDiffRank diff_ranks[2];
    ViewDiffClass classes[2];
    ViewDiff diff;
    Arena arena;
    View view;
} Film;

/*
 *     compute  |gemm |norm|gemm  |        |gemm   |norm|         rank r starts 10 r later
 *     comm          |all_reduce ======= exposed ==|   |p2p|
 *     copies                                 |c|
 *     memory   a staircase
 */
static void add_rank(World *w, uint32_t r, int64_t slower_pct)
{
    static const int64_t kernels[][2] = {
        { 0, 180 }, { 180, 60 }, { 250, 200 }, { 700, 220 }, { 920, 60 }
    };
    int64_t late = 10 * (int64_t)(r % 4), part = 100 + slower_pct;
    uint32_t gpu = world_stream(w, r, 7), net = world_stream(w, r, 20);
    uint32_t copy = world_stream(w, r, 24), host = world_host(w, r);
    uint32_t steps = timeline_track(&w->t, r, TRACK_STEPS, "steps", 0);
    uint32_t memory = timeline_track(&w->t, r, TRACK_COUNTER, "allocated bytes", 90);
    world_span(w, steps, SPAN_STEP, "ProfilerStep#3", 0, 1000);
    world_span(w, host, SPAN_HOST, "forward", 0, 400);
    for (size_t i = 0; i < ARRAY_N(kernels); i++) {
        int64_t from = late + kernels[i][0] * part / 100, ns = kernels[i][1] * part / 100;
        world_span(w, gpu, SPAN_COMPUTE,
                   i % 3 == 1 ? "void at::layer_norm_kernel<float>(int)"
                              : "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_tn",
                   from, from + ns);
        timeline_point(&w->t, memory, from, 1e9 * (double)(i + 1));
    }
    world_comm(w, net,
               (Coll){ .op = "all_reduce",
                       .group = "dp",
                       .seq = 0,
                       .bytes = 51200000,
                       .wait_ns = -1,
                       .ranks_n = 2 },
               300 + late, 690);
    world_comm(
        w, net,
        (Coll){ .op = "send", .bytes = 4096, .p2p = true, .peer = 1, .seq = 1, .wait_ns = -1 },
        760 + late, 860 + late);
    world_span(w, copy, SPAN_MEMORY, "Memcpy DtoH", 600 + late, 640 + late);
}

/* A port that is busy one ns in two, then all the time; and a NIC, for the send. */
static void add_counters(World *w, uint32_t r)
{
    int64_t late = 10 * (int64_t)(r % 4);
    uint32_t k = timeline_track(&w->t, r, TRACK_COUNTER, "NVLink out/in, % of 450 GB/s", 91);
    timeline_point(&w->t, k, 0, 0);
    for (int64_t at = 330 + late; at < 530 + late; at += 2) {
        timeline_point(&w->t, k, at, 80);
        timeline_point(&w->t, k, at + 1, 0);
    }
    timeline_point(&w->t, k, 530 + late, 80);
    timeline_point(&w->t, k, 690, 0);
    k = timeline_track(&w->t, r, TRACK_COUNTER, "NIC out, % of 50 GB/s", 92);
    timeline_point(&w->t, k, 0, 0);
    timeline_point(&w->t, k, 790, 100.0000001);
    timeline_point(&w->t, k, 860, 0);
}

static void open_links(Film *f, uint32_t ranks_n)
{
    const Timeline *t = &f->w[0].t;
    uint32_t n = 0;
    for (uint64_t i = 0; i < t->spans_n && n < RANKS_MAX; i++)
        if (t->span_class[i] == SPAN_COMM) {
            f->parts[n] = n;
            f->comms[n] = (ViewComm){ i, 0, 30 - t->start_ns[i] + 300, 200, 0 };
            n++;
        }
    f->match = (ViewMatch){ 0, n, n - 1, 360, 0 };
    f->channel = "group 'dp', matched by sequence number";
    f->data[0].links = (ViewLinks){ .comms = f->comms,
                                    .comms_n = n,
                                    .matches = &f->match,
                                    .matches_n = ranks_n > 1,
                                    .parts = f->parts,
                                    .channels = &f->channel };
}

/* Ops of both sides in the order of time are one another's. */
static void open_diff(Film *f)
{
    for (uint32_t r = 0; r < 2; r++) {
        ViewDiffRank *k = &f->diff_ranks[r];
        const Timeline *const lines[] = { &f->w[0].t, &f->w[1].t };
        *k = (ViewDiffRank){ .rank = { r, r }, .pairs = f->pairs[r] };
        for (int side = 0; side < VIEW_SIDES; side++) {
            const Timeline *t = &f->w[side].t;
            uint32_t n = 0;
            for (uint64_t i = 0; i < t->spans_n && n < 16; i++)
                if (t->tracks[t->span_track[i]].rank == r && t->span_class[i] == SPAN_COMPUTE)
                    f->pairs[r][n++].span[side] = i;
            k->pairs_n = k->real_n = n;
        }
        for (uint64_t i = 0; i < k->pairs_n; i++)
            k->pairs[i] = kernel_pair(lines, k->pairs[i].span[0], k->pairs[i].span[1]);
        view_diff_index(k, lines[0], &f->arena);
    }
    f->classes[0] = (ViewDiffClass){ "gemm", { 600, 660 }, 80 };
    f->classes[1] = (ViewDiffClass){ "layer_norm", { 120, 132 }, 20 };
    f->diff = (ViewDiff){ .ranks = f->diff_ranks,
                          .ranks_n = 2,
                          .classes = f->classes,
                          .classes_n = 2,
                          .coverage_pct = 97.5,
                          .op_error_pct = 10 };
    for (int side = 0; side < VIEW_SIDES; side++) {
        f->diff.times[side] = metrics_of_rank(f->data[side].ranks[0].cover);
    }
    f->view.diff = &f->diff;
}

static void open_film(Film *f, uint32_t ranks_n, bool both, bool counters)
{
    *f = (Film){ .channel = NULL };
    for (int side = 0; side < 1 + both; side++) {
        for (uint32_t r = 0; r < ranks_n; r++) {
            add_rank(&f->w[side], r, side ? 10 : 0);
            if (counters)
                add_counters(&f->w[side], r);
        }
        timeline_seal(&f->w[side].t);
        view_data_open(&f->data[side], &f->w[side].t, side ? "simulated" : "recorded", 1);
    }
    if (ranks_n > 0)
        open_links(f, ranks_n);
    view_open(&f->view, &f->data[0], both ? &f->data[1] : NULL);
    if (both)
        open_diff(f);
    f->view.width = 640;
    f->view.height = 360;
}

static void close_film(Film *f)
{
    view_free(&f->view);
    arena_free(&f->arena);
    for (int side = 0; side < VIEW_SIDES; side++) {
        view_data_free(&f->data[side]);
        timeline_free(&f->w[side].t);
    }
}

/* ---- golden frames ---- */

static void all_of_it(View *v)
{
    (void)v;
}

static void close_by(View *v)
{
    v->theme = theme_light();
    view_show(v, 250, 760);
    v->picked = view_nowhere;
}

static void with_drawer(View *v)
{
    v->width = 1000;
    v->height = 620;
    v->critical = true;
    v->has_selection = true;
    v->selection = (ViewWindow){ 300, 700 };
}

static void pointed_at(View *v)
{
    const ViewData *d = v->data[0];
    for (uint32_t i = 0; i < d->rows_n; i++)
        if (d->rows[i].kind == VIEW_ROW_STREAM && d->rows[i].lod.n == 2)
            v->hover = (ViewPlace){ 0, i, lod_span(&d->rows[i].lod, 0) };
    v->mouse_x = 300;
    v->mouse_y = 200;
}

static void split(View *v)
{
    v->mode = VIEW_SPLIT;
}

static void diff(View *v)
{
    v->mode = VIEW_DIFF;
    v->theme = theme_light();
}

static void large(View *v)
{
    v->scale_pct = 200;
    v->height = 520;
    v->overlap_shading = true;
}

static void helped(View *v)
{
    v->help = true;
    v->scale_pct = 75;
}

static void over_a_link(View *v)
{
    v->mouse_x = 360;
    v->mouse_y = 250;
}

static void near_a_link(View *v)
{
    v->theme = theme_light();
    view_show(v, 510, 560);
}

static const struct {
    const char *name;
    uint32_t ranks_n;
    bool both, counters;
    void (*set)(View *v);
    uint64_t hash;
} golden[] = {
    { "all", 2, false, false, all_of_it, 0x0e27dd3e35554b16 },
    { "close", 2, false, false, close_by, 0xc33e3aec4ede635a },
    { "drawer", 2, false, false, with_drawer, 0xfb3a0e1fd5933bca },
    { "tooltip", 2, false, false, pointed_at, 0x67fbabfe66244c5b },
    { "split", 2, true, false, split, 0x9dbd4781c9141b17 },
    { "diff", 2, true, false, diff, 0x373e0ed4391287aa },
    { "strips", RANKS_MAX, false, false, all_of_it, 0x453d39007f981366 },
    { "large", 2, false, false, large, 0x3176b68cd49bc178 },
    { "help", 1, false, false, helped, 0x5ebf3740222a987d },
    { "nothing", 0, false, false, all_of_it, 0x38adbb5e7d3ea179 },
    { "links", 1, false, true, over_a_link, 0x2d30e87111429791 },
    { "near", 1, false, true, near_a_link, 0xadb7bee33471d588 },
    /* Counters are no part of strips: the picture of those without. */
    { "strips", RANKS_MAX, false, true, all_of_it, 0x453d39007f981366 },
};

static uint64_t hash_of(const Frame *f)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < (size_t)f->width * (size_t)f->height; i++)
        hash = mix_u64(hash ^ f->pixels[i]);
    return hash;
}

static void save(const DrawList *list, const char *name, const char *kind)
{
    char path[512];
    Err err = { 0 };
    if (!getenv("GOLDEN_OUT"))
        return;
    snprintf(path, sizeof path, "%s/scene_%s.%s", getenv("GOLDEN_OUT"), name, kind);
    CHECK(picture_write(list, path, &err));
}

static void shoot(Film *f, const char *name, uint64_t expected)
{
    Scene scene;
    DrawList list = { .font = NULL };
    Frame frame;
    Err err = { 0 };
    scene_open(&scene, f->view.scale_pct);
    font_set_files(&scene.font, "");
    scene_draw(&scene, &f->view, &list);
    if (CHECK(frame_init(&frame, f->view.width, f->view.height, &err))) {
        raster_draw(&frame, &list);
        if (!CHECK_U64(expected, hash_of(&frame)))
            fprintf(stderr, "    { \"%s\", ... 0x%016" PRIx64 " }\n", name, hash_of(&frame));
        frame_free(&frame);
    }
    save(&list, name, "png");
    draw_free(&list);
    scene_free(&scene);
}

static void small_traces_look_as_they_did(void)
{
    static Film f;
    for (size_t i = 0; i < ARRAY_N(golden); i++) {
        open_film(&f, golden[i].ranks_n, golden[i].both, golden[i].counters);
        golden[i].set(&f.view);
        shoot(&f, golden[i].name, golden[i].hash);
        close_film(&f);
    }
}

/* ---- tables ---- */

/* Moments of [from, to) in which the communication runs and no compute of its rank does. */
static int64_t exposed_by_count(const Timeline *t, uint64_t comm, int64_t from, int64_t to)
{
    uint32_t rank = t->tracks[t->span_track[comm]].rank;
    int64_t exposed = 0;
    for (int64_t at = max_i64(from, t->start_ns[comm]);
         at < min_i64(to, t->start_ns[comm] + t->dur_ns[comm]); at++) {
        bool computes = false;
        for (uint64_t i = 0; i < t->spans_n; i++)
            computes |= t->span_class[i] == SPAN_COMPUTE &&
                        t->tracks[t->span_track[i]].rank == rank && t->start_ns[i] <= at &&
                        at < t->start_ns[i] + t->dur_ns[i];
        exposed += !computes;
    }
    return exposed;
}

static void exposed_communication_is_that_of_the_window(void)
{
    static Film f;
    Scene scene;
    open_film(&f, 4, false, false);
    scene_open(&scene, 100);
    const Timeline *t = &f.w[0].t;
    uint64_t n = f.data[0].links.comms_n;
    for (uint64_t i = 0; i < n; i++)
        f.comms[i].exposed_ns = exposed_by_count(t, f.comms[i].span, 0, 2000);
    view_comms_reach(f.comms, n, t);
    f.view.has_selection = true;
    for (int64_t from = 0; from < 900; from += 90)
        for (int64_t to = from + 50; to < 950; to += 130) {
            int64_t expected = 0;
            for (uint64_t i = 0; i < n; i++)
                expected += exposed_by_count(t, f.comms[i].span, from, to);
            f.view.selection = (ViewWindow){ from, to };
            const SceneTables *tables = scene_tables(&scene, &f.view);
            CHECK_INT(expected > 0, tables->comms_n);
            CHECK_INT(expected, tables->comms_n ? tables->comms[0].exposed_ns : 0);
        }
    scene_free(&scene);
    close_film(&f);
}

/* What two names are cut to, in the drawer. */
static void top_kernels_that_begin_alike_are_told_apart(void)
{
    static const char *const names[] = {
        "scaled_upper_triangle_masked_softmax_and_more_of_it_forward",
        "scaled_upper_triangle_masked_softmax_and_more_of_it_backward",
        "another_name_that_is_as_long_as_those_and_begins_with_a_word",
    };
    static Film f;
    Scene scene;
    DrawList list = { .font = NULL };
    f = (Film){ .channel = NULL };
    uint32_t gpu = world_stream(&f.w[0], 0, 7), seen[3] = { 0, 0, 0 };
    for (int i = 0; i < 3; i++)
        world_span(&f.w[0], gpu, SPAN_COMPUTE, names[i], 100 * i, 100 * i + 90);
    timeline_seal(&f.w[0].t);
    view_data_open(&f.data[0], &f.w[0].t, "alike", 1);
    view_open(&f.view, &f.data[0], NULL);
    f.view.width = 1000;
    f.view.height = 620;
    scene_open(&scene, 100);
    font_set_files(&scene.font, "");
    scene_draw(&scene, &f.view, &list);
    for (uint32_t i = 0; i < list.items_n; i++) {
        const DrawItem *item = &list.items[i];
        char text[128];
        if (item->kind != DRAW_TEXT || item->box.x0 < scene.layout.drawer.x0)
            continue;
        snprintf(text, sizeof text, "%.*s", (int)item->n, list.chars + item->first);
        seen[0] +=
            strstr(text, "scaled") && strstr(text, "\xe2\x80\xa6") && strstr(text, "_forward");
        seen[1] +=
            strstr(text, "scaled") && strstr(text, "\xe2\x80\xa6") && strstr(text, "_backward");
        seen[2] += strstr(text, "another_name_that_is_as") && !strstr(text, "word");
    }
    for (int i = 0; i < 3; i++)
        CHECK_INT(1, (int)seen[i]);
    draw_free(&list);
    scene_free(&scene);
    close_film(&f);
}

/* ---- real and sim ---- */

/* Of its first rank, whose pairs are there. */
static void show_diff(Film *f)
{
    f->diff = (ViewDiff){ .ranks = f->diff_ranks, .ranks_n = 1 };
    view_open(&f->view, &f->data[0], &f->data[1]);
    f->view.diff = &f->diff;
    f->view.mode = VIEW_DIFF;
    f->view.width = 900;
    f->view.height = 500;
}

/* Beside 100 alike gemms an all-reduce that the simulation ends 50 us too early. */
static void open_overlapped(Film *f)
{
    static ViewPair pairs[101];
    *f = (Film){ .channel = NULL };
    for (int side = 0; side < VIEW_SIDES; side++) {
        World *w = &f->w[side];
        uint32_t gpu = world_stream(w, 0, 7), net = world_stream(w, 0, 9);
        for (int i = 0; i < 100; i++)
            world_span(w, gpu, SPAN_COMPUTE, "gemm", 5 + 1000 * i, 905 + 1000 * i);
        world_comm(w, net, (Coll){ .op = "all_reduce", .seq = -1, .wait_ns = -1 }, 10,
                   side ? 49010 : 99010);
        timeline_seal(&w->t);
        view_data_open(&f->data[side], &w->t, "overlapped", 1);
    }
    const Timeline *const lines[] = { &f->w[0].t, &f->w[1].t };
    for (uint64_t i = 0; i < ARRAY_N(pairs); i++) {
        uint64_t span = i == 0 ? 0 : i == 1 ? 100 : i - 1; /* by start */
        pairs[i] = kernel_pair(lines, span, span);
    }
    f->diff_ranks[0] = (ViewDiffRank){ .pairs = pairs, .pairs_n = 101, .real_n = 101 };
    view_diff_index(&f->diff_ranks[0], lines[0], &f->arena);
    show_diff(f);
}

/* At its end alone the simulation is late by other than 0, also where a gemm ends in that pixel. */
static void the_drift_goes_by_the_ends_of_ops(void)
{
    static Film f;
    open_overlapped(&f);
    CHECK_INT(50000, f.diff_ranks[0].drift_max_ns);
    for (int close = 0; close < 2; close++) {
        Scene scene;
        DrawList list = { .font = NULL };
        uint32_t lines_n = 0, spikes_n = 0;
        scene_open(&scene, 100);
        if (close)
            view_show(&f.view, 98000, 99500);
        scene_draw(&scene, &f.view, &list);
        Px spike = layout_x_of(&scene.layout, &f.view, 99010);
        for (uint32_t i = 0; i < list.items_n; i++) {
            const DrawItem *line = &list.items[i];
            if (line->kind != DRAW_LINE || line->color != f.view.theme->color[THEME_TOO_SLOW])
                continue;
            lines_n++;
            for (uint32_t k = 0; k < line->n; k++) {
                PxPoint at = list.points[line->first + k], begin = list.points[line->first];
                spikes_n += at.y != begin.y;
                CHECK(at.y == begin.y || (at.y > begin.y && at.x == spike));
            }
        }
        CHECK_INT(1, (int)lines_n);
        CHECK_INT(1, (int)spikes_n);
        draw_free(&list);
        scene_free(&scene);
    }
    close_film(&f);
}

/* Three kernels of 100, 200 and 100 us that the simulation does in one, of sim_us. */
static void open_fused(Film *f, int64_t sim_us)
{
    static ViewPair pairs[3];
    *f = (Film){ .channel = NULL };
    for (int side = 0; side < VIEW_SIDES; side++) {
        World *w = &f->w[side];
        uint32_t gpu = world_stream(w, 0, 7);
        world_span(w, gpu, SPAN_COMPUTE, "gemm", 0, side ? sim_us * 1000 : 100000);
        if (side == VIEW_REAL_SIDE) {
            world_span(w, gpu, SPAN_COMPUTE, "gemm", 100000, 300000);
            world_span(w, gpu, SPAN_COMPUTE, "gemm", 300000, 400000);
        }
        timeline_seal(&w->t);
        view_data_open(&f->data[side], &w->t, "fused", 1);
    }
    for (uint64_t i = 0; i < ARRAY_N(pairs); i++)
        pairs[i] = (ViewPair){ .span = { i, 0 },
                               .time_ns = { 400000, sim_us * 1000 },
                               .end_ns = { 400000, sim_us * 1000 } };
    f->diff_ranks[0] = (ViewDiffRank){ .pairs = pairs, .pairs_n = 3, .real_n = 3 };
    view_diff_index(&f->diff_ranks[0], &f->w[0].t, &f->arena);
    show_diff(f);
}

/* One kernel instead of three is as far off over each of them: none, 10 % too slow, too fast. */
static void the_error_is_that_of_all_kernels_of_an_op(void)
{
    static const struct {
        int64_t sim_us;
        ThemeColor color;
    } tries[] = { { 400, THEME_DIM }, { 440, THEME_TOO_SLOW }, { 360, THEME_TOO_FAST } };
    static Film f;
    for (size_t i = 0; i < ARRAY_N(tries); i++) {
        Scene scene;
        DrawList list = { .font = NULL };
        open_fused(&f, tries[i].sim_us);
        scene_open(&scene, 100);
        scene_draw(&scene, &f.view, &list);
        const LayoutRow *row = NULL;
        for (uint32_t k = 0; k < scene.layout.rows_n; k++)
            if (scene.layout.rows[k].kind == LAYOUT_ERROR)
                row = &scene.layout.rows[k];
        Px half = row ? row->y1 - (row->y0 + row->y1) / 2 / PX_ONE * PX_ONE : 0;
        uint32_t kernels_n = 0;
        for (uint32_t k = 0; row && k < list.items_n; k++) {
            const DrawItem *it = &list.items[k];
            if (it->kind != DRAW_RECT || it->box.y0 < row->y0 || it->box.y1 > row->y1 ||
                it->color != f.view.theme->color[tries[i].color])
                continue;
            kernels_n++;
            CHECK_INT(tries[i].sim_us == 400 ? PX_ONE / 2 : half * 10 / 50,
                      it->box.y1 - it->box.y0);
        }
        CHECK_INT(3, (int)kernels_n);
        draw_free(&list);
        scene_free(&scene);
        close_film(&f);
    }
}

static bool has_text(const DrawList *list, const char *text)
{
    bool has = false;
    for (uint32_t i = 0; i < list->items_n; i++)
        has |= list->items[i].kind == DRAW_TEXT && list->items[i].n == strlen(text) &&
               memcmp(list->chars + list->items[i].first, text, strlen(text)) == 0;
    return has;
}

static void the_legend_has_the_colours_of_errors(void)
{
    static Film f;
    Scene scene;
    DrawList list = { .font = NULL };
    open_overlapped(&f);
    scene_open(&scene, 100);
    for (int m = VIEW_REAL; m < VIEW_MODES_N; m++) {
        f.view.mode = (ViewMode)m;
        scene_draw(&scene, &f.view, &list);
        CHECK(has_text(&list, "sim too slow") == (m == VIEW_DIFF));
        CHECK(has_text(&list, "sim too fast") == (m == VIEW_DIFF));
        CHECK(has_text(&list, "not in sim") == (m == VIEW_DIFF));
        CHECK(has_text(&list, "compute"));
        CHECK(has_text(&list, "waiting")); /* dim */
    }
    draw_free(&list);
    scene_free(&scene);
    close_film(&f);
}

static void an_op_that_began_long_before_is_in_the_error_strip(void)
{
    static Film f;
    Scene scene;
    DrawList list = { .font = NULL };
    open_overlapped(&f);
    view_show(&f.view, 60000, 70000);
    scene_open(&scene, 100);
    scene_draw(&scene, &f.view, &list);
    PxBox lanes = scene.layout.lanes;
    uint32_t wide_n = 0, fast_n = 0;
    for (uint32_t i = 0; i < list.items_n; i++) {
        const DrawItem *item = &list.items[i];
        if (item->kind != DRAW_RECT || item->color != f.view.theme->color[THEME_TOO_FAST] ||
            item->box.y1 > lanes.y1) /* the legend */
            continue;
        fast_n++;
        wide_n += item->box.x0 == lanes.x0 && item->box.x1 >= lanes.x1 - PX(1);
    }
    CHECK_INT(1, (int)wide_n);
    CHECK_INT(1, (int)fast_n); /* the gemms in sight are as long as real */
    draw_free(&list);
    scene_free(&scene);
    close_film(&f);
}

/* ---- strips ---- */

static void strips_fill_the_window_whatever_its_height(void)
{
    static Film f;
    Layout l = { .rows = NULL };
    open_film(&f, RANKS_MAX, false, false);
    for (f.view.height = 300; f.view.height <= 1100; f.view.height += 7) {
        layout_make(&l, &f.view);
        CHECK_INT(RANKS_MAX, l.rows_n);
        CHECK_INT(0, l.scroll_max);
        Px left = l.lanes.y1 - l.rows[l.rows_n - 1].y1;
        CHECK(left >= 0 && left <= PX(8)); /* the margin of all pictures, and the last gap */
        Px least = PX_FAR, most = 0;
        for (uint32_t i = 0; i + 1 < l.rows_n; i++) {
            Px gap = l.rows[i + 1].y0 - l.rows[i].y1, height = l.rows[i].y1 - l.rows[i].y0;
            CHECK_INT(l.strip_pitch >= PX(8) ? PX(1) : 0, gap);
            CHECK_INT(0, l.rows[i].y0 % PX_ONE);
            least = px_min(least, height);
            most = px_max(most, height);
        }
        CHECK(most - least <= PX(1));
    }
    layout_free(&l);
    close_film(&f);
}

/* Random shares: what all of them are is right to half a step, but for what must be seen. */
static void levels_add_up_to_what_is_busy(void)
{
    uint64_t seed = 5;
    for (int i = 0; i < 20000; i++) {
        uint32_t share[LOD_N] = { 0 }, left = LOD_FULL, sum = 0, kinds_n = 0;
        uint8_t level[LOD_N];
        for (int k = 0; k < LOD_N; k++) {
            seed = mix_u64(seed);
            share[k] = seed >> 63 ? (uint32_t)((seed >> 8) % (left + 1)) : 0;
            left -= share[k];
        }
        if (i % 2) { /* never idle */
            share[LOD_COMPUTE] += left;
            left = 0;
        }
        strip_levels(share, level);
        for (int k = 0; k < LOD_N; k++) {
            CHECK((level[k] > 0) == (share[k] > 0));
            sum += level[k];
            kinds_n += share[k] > 0;
        }
        double busy = (double)STRIP_LEVELS * (LOD_FULL - left) / LOD_FULL;
        CHECK(sum <= STRIP_LEVELS && sum + 0.5 + 1e-9 >= busy);
        CHECK(sum <= busy + 0.5 + kinds_n);
    }
}

/* Kernels and collectives by turns, many in a pixel, on a GPU that never waits: whatever the
 * strip's height, no pixel of it is idle, but for the last column, whose bin reaches further. */
static void a_busy_gpu_has_no_idle_pixel(void)
{
    World w = { 0 };
    ViewData d;
    uint32_t gpu = world_stream(&w, 0, 7), net = world_stream(&w, 0, 20);
    for (int64_t i = 0; i < 20000; i++) {
        int64_t at_ns = 100 * i, split_ns = at_ns + 5 + i / 223;
        world_span(&w, gpu, SPAN_COMPUTE, "gemm", at_ns, split_ns);
        world_comm(&w, net, (Coll){ .op = "all_reduce", .seq = -1, .wait_ns = -1 }, split_ns,
                   at_ns + 100);
    }
    timeline_seal(&w.t);
    view_data_open(&d, &w.t, "busy", 1);
    for (int32_t height = 8; height <= 40; height++) {
        DrawList list = { .font = NULL };
        Frame frame;
        Err err = { 0 };
        Font font = { 0 };
        draw_begin(&list, &font, 300, height, theme_dark()->color[THEME_BACKGROUND]);
        strip_draw(&(Strip){ .d = &list,
                             .theme = theme_dark(),
                             .window = { 0, 2000000, 300 },
                             .box = { 0, 0, PX(300), PX(height) } },
                   &d.ranks[0].strip);
        if (CHECK(frame_init(&frame, 300, height, &err)))
            raster_draw(&frame, &list);
        uint32_t idle_n = 0, idle = theme_dark()->time[TIME_IDLE];
        for (int32_t i = 0; i < 300 * height; i++)
            idle_n += i % 300 < 299 && frame.pixels[i] == idle;
        CHECK_INT(0, (int)idle_n);
        frame_free(&frame);
        draw_free(&list);
    }
    view_data_free(&d);
    world_free(&w);
}

static uint32_t ranks_named(Film *f)
{
    Scene scene;
    DrawList list = { .font = NULL };
    uint32_t n = 0;
    scene_open(&scene, 100);
    font_set_files(&scene.font, "");
    scene_draw(&scene, &f->view, &list);
    for (uint32_t i = 0; i < list.items_n; i++)
        n += list.items[i].kind == DRAW_TEXT &&
             strncmp(list.chars + list.items[i].first, "Rank ", 5) == 0;
    draw_free(&list);
    scene_free(&scene);
    return n;
}

/* Twelve pixels are enough for a name. */
static void as_many_strips_are_named_as_there_is_room_for(void)
{
    enum { AROUND = 36 + 46 + 22 + 26 + 8 };
    static Film f;
    open_film(&f, RANKS_MAX, false, false);
    f.view.height = AROUND + 12 * RANKS_MAX;
    CHECK_INT(RANKS_MAX, ranks_named(&f));
    f.view.height--;
    CHECK_INT(RANKS_MAX / 2, ranks_named(&f));
    f.view.height = AROUND + 6 * RANKS_MAX;
    CHECK_INT(RANKS_MAX / 2, ranks_named(&f));
    close_film(&f);
}

/* Texts of the top bar stand beside one another, whatever the size; and of numbers nothing is
 * cut. */
static void what_has_no_room_is_left_out(void)
{
    static Film f;
    Scene scene;
    DrawList list = { .font = NULL };
    open_film(&f, 1, true, false);
    f.view.scale_pct = 200;
    scene_open(&scene, f.view.scale_pct);
    font_set_files(&scene.font, "");
    for (f.view.width = 320; f.view.width < 1400; f.view.width += 40) {
        scene_draw(&scene, &f.view, &list);
        for (uint32_t i = 0; i < list.items_n; i++) {
            const DrawItem *a = &list.items[i];
            const char *text = list.chars + a->first;
            if (a->kind != DRAW_TEXT)
                continue;
            CHECK(strncmp(text, "exp ", 4) != 0 || text[a->n - 1] == '%');
            for (uint32_t k = 0; k < i && a->box.y0 < scene.layout.top.y1; k++)
                CHECK(list.items[k].kind != DRAW_TEXT ||
                      list.items[k].box.y0 >= scene.layout.top.y1 ||
                      list.items[k].box.x1 <= a->box.x0 || list.items[k].box.x0 >= a->box.x1);
        }
    }
    draw_free(&list);
    scene_free(&scene);
    close_film(&f);
}

/* In rows that are lower than their names. */
static void the_focus_goes_around_a_name(void)
{
    static Film f;
    Scene scene;
    DrawList list = { .font = NULL };
    open_film(&f, 8, false, false);
    f.view.pane = VIEW_PANE_RANKS;
    f.view.pane_at = 1;
    scene_open(&scene, 100);
    font_set_files(&scene.font, "");
    scene_draw(&scene, &f.view, &list);
    Px baseline = 0, air = PX(1);
    uint32_t around_n = 0;
    for (uint32_t i = 0; i < list.items_n; i++) {
        const DrawItem *item = &list.items[i];
        if (item->kind == DRAW_TEXT && item->n == 6 &&
            memcmp(list.chars + item->first, "Rank 1", 6) == 0)
            baseline = item->box.y0;
        if (item->kind == DRAW_OUTLINE && item->box.y1 - item->box.y0 < PX(20) &&
            item->box.x1 <= scene.layout.names.x1) {
            around_n++;
            CHECK(baseline > 0 && item->box.y1 - item->width >= baseline + air);
            CHECK(item->box.y0 + item->width <= baseline - PX(8));
        }
    }
    CHECK_INT(1, (int)around_n);
    draw_free(&list);
    scene_free(&scene);
    close_film(&f);
}

/* ---- what is told by colour ---- */

/* The top pixels of the lane that a rank's all-reduce is in. */
static void shoot_lane(Film *f, Scene *scene, uint32_t *pixels)
{
    DrawList list = { .font = NULL };
    Frame frame;
    Err err = { 0 };
    scene_draw(scene, &f->view, &list);
    if (!CHECK(frame_init(&frame, f->view.width, f->view.height, &err)))
        return;
    raster_draw(&frame, &list);
    ViewPlace place = { 0, f->data[0].ranks[0].row_first + 1, f->comms[0].span };
    const LayoutRow *row = layout_row_of(&scene->layout, &f->view, place);
    int32_t y = row ? px_floor(row->y0) + 1 : 0;
    memcpy(pixels, frame.pixels + y * frame.width, (size_t)frame.width * sizeof *pixels);
    frame_free(&frame);
    draw_free(&list);
}

/* Of the all-reduce in [300, 690) the first 330 ns. */
static void check_dim_until_630(Film *f)
{
    enum { WIDTH = 640 };
    uint32_t plain[WIDTH], dim[WIDTH];
    Scene scene;
    scene_open(&scene, 100);
    font_set_files(&scene.font, "");
    f->comms[0].wait_ns = 0;
    shoot_lane(f, &scene, plain);
    f->comms[0].wait_ns = 330;
    shoot_lane(f, &scene, dim);
    int32_t from = px_floor(layout_x_of(&scene.layout, &f->view, 300)) + 1;
    int32_t middle = px_floor(layout_x_of(&scene.layout, &f->view, 630));
    int32_t end = px_floor(layout_x_of(&scene.layout, &f->view, 690));
    CHECK(from + 100 < middle && middle + 10 < end);
    for (int32_t x = from; x < end; x++)
        if (x != middle)
            CHECK_INT(x < middle, plain[x] != dim[x]);
    scene_free(&scene);
}

/* Its first 150 ns are below a gemm. */
static void all_that_was_waited_is_dim(void)
{
    static Film f;
    open_film(&f, 1, false, false);
    check_dim_until_630(&f);
    close_film(&f);
}

/* Kernels of one ns, one apart: no piece of the all-reduce is a pixel wide. */
static void waits_cut_into_less_than_pixels_are_dim(void)
{
    static Film f;
    f = (Film){ .channel = NULL };
    World *w = &f.w[0];
    uint32_t gpu = world_stream(w, 0, 7), net = world_stream(w, 0, 20);
    for (int64_t at = 0; at < 1000; at += 2)
        world_span(w, gpu, SPAN_COMPUTE, "tiny", at, at + 1);
    world_comm(w, net, (Coll){ .op = "all_reduce", .seq = 0, .wait_ns = -1, .ranks_n = 2 }, 300,
               690);
    timeline_seal(&w->t);
    view_data_open(&f.data[0], &w->t, "chopped", 1);
    open_links(&f, 1);
    view_open(&f.view, &f.data[0], NULL);
    f.view.width = 640;
    f.view.height = 360;
    check_dim_until_630(&f);
    close_film(&f);
}

static uint32_t outlines_of(const DrawList *list, PxBox box)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < list->items_n; i++) {
        const DrawItem *item = &list->items[i];
        n += item->kind == DRAW_OUTLINE && item->box.x0 == box.x0 - PX(1) &&
             item->box.x1 == box.x1 + PX(1) && item->box.y0 == box.y0 - PX(1) &&
             item->box.y1 == box.y1 + PX(1);
    }
    return n;
}

/* The all-reduce of rank 1 in [310, 690), where its rank has one row: folded, or one of many. */
static void what_is_picked_is_seen_in_the_strip(void)
{
    static Film f;
    for (int many = 0; many < 2; many++) {
        Scene scene;
        DrawList list = { .font = NULL };
        open_film(&f, many ? 20 : 2, false, false);
        f.view.width = 1000;
        f.view.height = 620;
        f.view.ranks[1].folded = !many;
        f.view.by_keyboard = true;
        f.view.picked = view_place_of(&f.data[0], 0, f.comms[1].span);
        scene_open(&scene, 100);
        font_set_files(&scene.font, "");
        scene_draw(&scene, &f.view, &list);
        const LayoutRow *row = layout_row_of(&scene.layout, &f.view, f.view.picked);
        if (CHECK(row && row->kind == LAYOUT_STRIP && row->rank == 1)) {
            PxBox box = layout_span_box(&scene.layout, &f.view, row, f.view.picked);
            CHECK_INT(layout_x_of(&scene.layout, &f.view, 310), box.x0);
            CHECK_INT(1, (int)outlines_of(&list, box));
            CHECK(has_text(&list, "comm on rank 1, stream 20"));
        }
        ViewPlace host = view_place_of(&f.data[0], 0, 0);
        for (uint64_t i = 0; i < f.w[0].t.spans_n; i++)
            if (f.w[0].t.span_class[i] == SPAN_HOST)
                host = view_place_of(&f.data[0], 0, i);
        CHECK(layout_row_of(&scene.layout, &f.view, host) == NULL); /* strips are of streams */
        draw_free(&list);
        scene_free(&scene);
        close_film(&f);
    }
}

/* Its color: what a label of some communication is written in. */
static Color label_color(const DrawList *list)
{
    for (uint32_t i = 0; i < list->items_n; i++)
        if (list->items[i].kind == DRAW_TEXT && list->items[i].n >= 7 &&
            memcmp(list->chars + list->items[i].first, "ncclDev", 7) == 0)
            return list->items[i].color;
    return 0;
}

/* A collective of 10 us below two gemms, between which there are kernels of one ns, or none. */
static Color color_of_label(const Theme *theme, bool waits, bool chopped)
{
    static Film f;
    Scene scene;
    DrawList list = { .font = NULL };
    f = (Film){ .channel = NULL };
    World *w = &f.w[0];
    uint32_t gpu = world_stream(w, 0, 7), net = world_stream(w, 0, 20);
    world_span(w, gpu, SPAN_COMPUTE, "gemm", 0, chopped ? 4000 : 10000);
    for (int64_t at = 4000; chopped && at < 5000; at += 2)
        world_span(w, gpu, SPAN_COMPUTE, "tiny", at, at + 1);
    if (chopped)
        world_span(w, gpu, SPAN_COMPUTE, "gemm", 5000, 10000);
    world_comm(w, net, (Coll){ .op = "all_reduce", .seq = 0, .wait_ns = waits ? 9000 : 0 }, 0,
               10000);
    timeline_seal(&w->t);
    view_data_open(&f.data[0], &w->t, "labels", 1);
    view_open(&f.view, &f.data[0], NULL);
    f.view.theme = theme;
    f.view.drawer = false;
    f.view.width = 640;
    f.view.height = 360;
    scene_open(&scene, 100);
    font_set_files(&scene.font, "");
    scene_draw(&scene, &f.view, &list);
    Color color = label_color(&list);
    draw_free(&list);
    scene_free(&scene);
    close_film(&f);
    return color;
}

/* What is written on a color is legible on that alone: else it stands on a chip. */
static void labels_of_what_is_dimmed_or_cut_stand_on_chips(void)
{
    for (int light = 0; light < 2; light++) {
        const Theme *t = light ? theme_light() : theme_dark();
        CHECK_U64(t->on_time[TIME_OVERLAPPED], color_of_label(t, false, false));
        CHECK_U64(t->color[THEME_TEXT], color_of_label(t, true, false));
        CHECK_U64(t->color[THEME_TEXT], color_of_label(t, false, true));
    }
}

/* ---- what is told in words ---- */

/* The i-th text behind the one that is `after`, "" if there is none. */
static const char *text_behind(const DrawList *list, const char *after, uint32_t i)
{
    static char text[128];
    bool found = false;
    for (uint32_t k = 0; k < list->items_n; k++) {
        const DrawItem *item = &list->items[k];
        if (item->kind != DRAW_TEXT)
            continue;
        snprintf(text, sizeof text, "%.*s", (int)item->n, list->chars + item->first);
        if (found && i-- == 0)
            return text;
        found |= strcmp(text, after) == 0;
    }
    return "";
}

/* Between ranks: what is written below a head, of compute; drawn from the right. */
static void check_median(Film *f, const char *expected)
{
    Scene scene;
    DrawList list = { .font = NULL };
    scene_open(&scene, 100);
    font_set_files(&scene.font, "");
    scene_draw(&scene, &f->view, &list);
    CHECK_STR("max", text_behind(&list, "Between ranks", 0));
    CHECK_STR("median", text_behind(&list, "Between ranks", 1));
    CHECK_STR("compute", text_behind(&list, "Between ranks", 3));
    CHECK_STR(expected, text_behind(&list, "Between ranks", 5));
    draw_free(&list);
    scene_free(&scene);
}

/* Of ranks that begin 0, 10 .. 30 ns late, [0, 100) holds 100, 90 .. 70 ns of compute. */
static void medians_count_ranks(void)
{
    static Film f;
    for (uint32_t ranks_n = 2; ranks_n <= 4; ranks_n++) {
        open_film(&f, ranks_n, false, false);
        f.view.width = 1000;
        f.view.height = 620;
        view_show(&f.view, 0, 100);
        check_median(&f, ranks_n == 2 ? "95 ns" : ranks_n == 3 ? "90 ns" : "85 ns");
        f.data[0].ranks[1].ranks_n = 5; /* those of 90 ns are most, then */
        check_median(&f, "90 ns");
        close_film(&f);
    }
}

static void open_side(Film *f, int side, const char *name)
{
    timeline_seal(&f->w[side].t);
    view_data_open(&f->data[side], &f->w[side].t, name, 1);
}

/* Both sides are open. */
static void open_both(Film *f, Scene *scene)
{
    view_open(&f->view, &f->data[0], &f->data[1]);
    f->view.width = 1000;
    f->view.height = 620;
    scene_open(scene, 100);
    font_set_files(&scene->font, "");
}

/* Real: 100 ns of compute.  Sim: as much, then 300 ns of communication alone. */
static void numbers_beside_a_simulated_rank_are_of_all_it_did(void)
{
    static Film f;
    Scene scene;
    DrawList list = { .font = NULL };
    f = (Film){ .channel = NULL };
    for (int side = 0; side < VIEW_SIDES; side++) {
        World *w = &f.w[side];
        world_span(w, world_stream(w, 0, 7), SPAN_COMPUTE, "gemm", 0, 100);
        if (side)
            world_comm(w, world_stream(w, 0, 20),
                       (Coll){ .op = "all_reduce", .seq = -1, .wait_ns = -1 }, 100, 400);
        open_side(&f, side, "longer");
    }
    open_both(&f, &scene);
    f.view.mode = VIEW_SPLIT;
    view_fit(&f.view);
    scene_draw(&scene, &f.view, &list);
    CHECK_STR("busy 100%", text_behind(&list, "Rank 0  real", 0));
    CHECK_STR("exp 75%", text_behind(&list, "Rank 0  sim", 0));
    CHECK(has_text(&list, "Window (100 ns)")); /* the drawer is of the recorded side */
    f.view.has_selection = true;
    f.view.selection = (ViewWindow){ 50, 150 };
    scene_draw(&scene, &f.view, &list);
    CHECK_STR("exp 50%", text_behind(&list, "Rank 0  sim", 0));
    draw_free(&list);
    scene_free(&scene);
    close_film(&f);
}

/* Of 400 ns real communicates 100 and sim 300, alone. */
static void numbers_beside_a_group_are_of_the_side_shown(void)
{
    static Film f;
    Scene scene;
    DrawList list = { .font = NULL };
    f = (Film){ .channel = NULL };
    for (int side = 0; side < VIEW_SIDES; side++) {
        World *w = &f.w[side];
        int64_t from_ns = side ? 100 : 300;
        for (uint32_t r = 0; r < 2; r++) {
            world_span(w, world_stream(w, r, 7), SPAN_COMPUTE, "gemm", 0, from_ns);
            world_comm(w, world_stream(w, r, 20),
                       (Coll){ .op = "all_reduce", .group = "dp", .seq = 0, .ranks_n = 2 },
                       from_ns, 400);
        }
        open_side(&f, side, "grouped");
    }
    open_both(&f, &scene);
    view_group(&f.view, 1);
    for (int m = VIEW_REAL; m <= VIEW_SPLIT; m++) {
        f.view.mode = (ViewMode)m;
        scene_draw(&scene, &f.view, &list);
        CHECK_STR("0-1", text_behind(&list, "dp", 0));
        CHECK_STR(m == VIEW_SIM ? "ovl 0%  exp 75%" : "ovl 0%  exp 25%",
                  text_behind(&list, "dp", 1));
    }
    draw_free(&list);
    scene_free(&scene);
    close_film(&f);
}

/* Whatever their sizes; what a class is called may be cut. */
static void numbers_of_the_drawer_are_not_cut(void)
{
    static const char *const behind[] = { "+12345 %", "+9905 %", "100.0 s", "999.5 ms",
                                          "reduce_sc\xe2\x80\xa6" };
    static Film f;
    Scene scene;
    DrawList list = { .font = NULL };
    open_film(&f, 2, true, false);
    f.classes[0] = (ViewDiffClass){ "reduce_scatter", { 999500000, 99999999999 }, 12345 };
    f.classes[1] = (ViewDiffClass){ "all_reduce", { 120, 132 }, -0.4 };
    f.diff.times[0].idle_ns = 1000000;
    f.diff.times[1].idle_ns = 999800;
    f.view.mode = VIEW_DIFF;
    f.view.width = 1000;
    f.view.height = 900;
    scene_open(&scene, 100);
    font_set_files(&scene.font, "");
    scene_draw(&scene, &f.view, &list);
    /* A row is drawn from the right; the table's head ends with its name. */
    for (uint32_t i = 0; i < ARRAY_N(behind); i++)
        CHECK_STR(behind[i], text_behind(&list, "class", i));
    CHECK_STR("+0 %", text_behind(&list, "class", ARRAY_N(behind)));
    CHECK(has_text(&list, "0.0 %") && !has_text(&list, "-0.0 %"));
    CHECK_STR("exposed", text_behind(&list, "Most exposed", 0));
    CHECK_STR("51.20 MB", text_behind(&list, "Most exposed", 5));
    CHECK_STR("ncclDev", text_behind(&list, "Most exposed", 6));
    draw_free(&list);
    scene_free(&scene);
    close_film(&f);
}

/* ---- golden text ---- */

/* The lines where two texts part. */
static void check_first_difference(const char *expected, const char *got)
{
    char lines[2][512];
    size_t same = 0;
    while (expected[same] && expected[same] == got[same])
        same++;
    while (same > 0 && expected[same - 1] != '\n')
        same--;
    snprintf(lines[0], sizeof lines[0], "%.*s", (int)strcspn(expected + same, "\n"),
             expected + same);
    snprintf(lines[1], sizeof lines[1], "%.*s", (int)strcspn(got + same, "\n"), got + same);
    CHECK_STR(lines[0], lines[1]);
}

static void an_svg_says_what_it_shows(void)
{
    static Film f;
    static char text[1 << 16], golden_text[1 << 16];
    Scene scene;
    DrawList list = { .font = NULL };
    open_film(&f, 1, false, false);
    f.view.width = 480;
    f.view.height = 240;
    scene_open(&scene, 100);
    font_set_files(&scene.font, "");
    scene.still = scene.tips = true;
    scene_draw(&scene, &f.view, &list);
    FILE *out = tmpfile(), *in = fopen("tests/golden/scene.svg", "r");
    svg_write(&list, out);
    rewind(out);
    text[fread(text, 1, sizeof text - 1, out)] = 0;
    if (in)
        golden_text[fread(golden_text, 1, sizeof golden_text - 1, in)] = 0;
    check_first_difference(golden_text, text);
    save(&list, "svg", "svg");
    fclose(out);
    if (in)
        fclose(in);
    draw_free(&list);
    scene_free(&scene);
    close_film(&f);
}

int main(void)
{
    RUN(exposed_communication_is_that_of_the_window);
    RUN(top_kernels_that_begin_alike_are_told_apart);
    RUN(what_has_no_room_is_left_out);
    RUN(the_drift_goes_by_the_ends_of_ops);
    RUN(the_error_is_that_of_all_kernels_of_an_op);
    RUN(the_legend_has_the_colours_of_errors);
    RUN(an_op_that_began_long_before_is_in_the_error_strip);
    RUN(small_traces_look_as_they_did);
    RUN(levels_add_up_to_what_is_busy);
    RUN(a_busy_gpu_has_no_idle_pixel);
    RUN(strips_fill_the_window_whatever_its_height);
    RUN(as_many_strips_are_named_as_there_is_room_for);
    RUN(all_that_was_waited_is_dim);
    RUN(waits_cut_into_less_than_pixels_are_dim);
    RUN(the_focus_goes_around_a_name);
    RUN(what_is_picked_is_seen_in_the_strip);
    RUN(labels_of_what_is_dimmed_or_cut_stand_on_chips);
    RUN(medians_count_ranks);
    RUN(numbers_beside_a_simulated_rank_are_of_all_it_did);
    RUN(numbers_beside_a_group_are_of_the_side_shown);
    RUN(numbers_of_the_drawer_are_not_cut);
    RUN(an_svg_says_what_it_shows);
    return check_report();
}

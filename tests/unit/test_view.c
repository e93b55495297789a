/*
 * test_view.c - the viewer's state without a window: windows of time, names, filters, links,
 * numbers, the critical path; each on timelines small enough to know the answer.
 */
#include "viz/critical.h"
#include "viz/filter.h"
#include "viz/kernels.h"
#include "viz/layout.h"
#include "viz/links.h"
#include "viz/names.h"
#include "viz/scene_counter.h"
#include "viz/scene_parts.h"

#include "tests/check.h"
#include "tests/trace_world.h"

/* ---- texts ---- */

static void times_have_four_digits(void)
{
    static const struct {
        int64_t ns;
        const char *text;
    } cases[] = { { 0, "0 ns" },
                  { 999, "999 ns" },
                  { 1000, "1.000 \xc2\xb5s" },
                  { 12345, "12.35 \xc2\xb5s" },
                  { 999949, "999.9 \xc2\xb5s" },
                  { 999960, "1.000 ms" },
                  { -999960000, "-1.000 s" },
                  { 1234567000000, "1235 s" },
                  { 73353000, "73.35 ms" },
                  { -2500000, "-2.500 ms" },
                  { 1234000000, "1.234 s" } };
    char text[32];
    for (size_t i = 0; i < ARRAY_N(cases); i++)
        CHECK_STR(cases[i].text, view_time_text(text, sizeof text, cases[i].ns));
    CHECK_STR("999 B", view_bytes_text(text, sizeof text, 999));
    CHECK_STR("1.000 MB", view_bytes_text(text, sizeof text, 999960));
    CHECK_STR("51.20 MB", view_bytes_text(text, sizeof text, 51200000));
    CHECK_STR("1.500 GB", view_bytes_text(text, sizeof text, 1500000000));
}

static void kernels_get_short_names(void)
{
    static const char *const cases[][2] = {
        { "ncclDevKernel_AllReduce_Sum_f16_RING_LL(ncclDevComm*, unsigned long, ncclWork*)",
          "AllReduce f16 RING_LL" },
        { "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)", "SendRecv RING_SIMPLE" },
        { "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "AllReduce f32 RING_LL" },
        { "ncclDevKernel_Reduce_Max_u64_TREE_LL128(x)", "Reduce_Max u64 TREE_LL128" },
        { "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn", "gemm 128x128" },
        { "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT", "gemm 128x256" },
        { "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1",
          "gemm 128x128x64" },
        { "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float> "
          ">(int)",
          "vectorized_elementwise" },
        { "void (anonymous namespace)::softmax_warp_forward<float>(float*)",
          "softmax_warp_forward" },
        { "void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128> >(Flash_fwd_params)",
          "flash_fwd" },
        { "mlp.gate_up", "mlp.gate_up" },
        { "all-gather unit", "all-gather unit" },
        { "forward: layer 3", "forward: layer 3" },
        { "<", "<" },
    };
    char text[96];
    for (size_t i = 0; i < ARRAY_N(cases); i++)
        CHECK_STR(cases[i][1], name_shorten(cases[i][0], text, sizeof text));
}

static void names_that_would_be_short_for_several_are_told_apart(void)
{
    static const char *const cases[][2] = {
        { "void at::vectorized_elementwise_kernel<4, at::FillFunctor<float> >(int)",
          "vectorized_elementwise FillFunctor" },
        { "void at::vectorized_elementwise_kernel<4, at::CUDAFunctor_add<float> >(int)",
          "vectorized_elementwise CUDAFunctor_add" },
        { "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn", "gemm 128x128 tn" },
        { "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_nn", "gemm 128x128 nn" },
        { "void upstream::par2d<pdv::{lambda(int)#1}>(int)", "par2d 1" },
        { "void upstream::par2d<pdv::{lambda(int)#2}>(int)", "par2d 2" },
        { "void f::g<int>( )", "g int" },
        { "void f::g<int>()", "g int #2" },
        { "void f::g<long>()", "g long" },
        { "void f::alone<long>()", "alone" },
        { "saxpy(double *, double *, int)", "saxpy" },
    };
    World w = { 0 };
    Names n;
    uint32_t gpu = world_stream(&w, 0, 7), host = world_host(&w, 0);
    for (size_t i = 0; i < ARRAY_N(cases); i++)
        world_span(&w, gpu, SPAN_COMPUTE, cases[i][0], (int64_t)i, (int64_t)i + 1);
    world_span(&w, host, SPAN_HOST, "saxpy", 0, 9); /* a range around its launch */
    timeline_seal(&w.t);
    names_open(&n, &w.t);
    for (size_t i = 0; i < ARRAY_N(cases); i++)
        CHECK_STR(cases[i][1], names_short(&n, intern(&w.t.names, cases[i][0])));
    names_free(&n);
    world_free(&w);
}

static void labels_lose_words_before_letters_and_no_number_its_unit(void)
{
    static const char *const cases[] = { "AllReduce f16 67.11 MB RING_LL",
                                         "AllReduce f16 67.11 MB", "AllReduce f16",
                                         "AllReduce" };
    const TextStyle small = { TEXT_SMALL, false };
    Font font;
    font_open(&font, 100);
    font_set_files(&font, "");
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        char text[64];
        Px width = font_width(&font, small, cases[i], strlen(cases[i]));
        snprintf(text, sizeof text, "%s", cases[0]);
        CHECK(names_fit(&font, small, text, width));
        CHECK_STR(cases[i], text);
    }
    char word[] = "AllReduce";
    CHECK(names_fit(&font, small, word, font_width(&font, small, "AllReduc", 8)));
    CHECK(!names_fit(&font, small, word, font_width(&font, small, "All", 3)));
    char hashes[] = "## forward ##";
    CHECK(!names_fit(&font, small, hashes, font_width(&font, small, "## f", 4)));
    CHECK(names_fit(&font, small, hashes, font_width(&font, small, "## forw", 7)));
    CHECK_STR("## forward", hashes); /* to be cut where it is drawn */
    font_free(&font);
}

static void the_middle_of_a_name_may_be_cut(void)
{
    static const char name[] = "a name of \xc3\xa4 and \xc3\xb6";
    const TextStyle small = { TEXT_SMALL, false };
    Font font;
    char text[64];
    font_open(&font, 100);
    font_set_files(&font, "");
    Px all = font_width(&font, small, name, strlen(name));
    CHECK_STR(name, names_cut(&font, small, name, all, text, sizeof text));
    for (Px width = all - 1; width > PX(16); width -= PX_ONE / 4) {
        names_cut(&font, small, name, width, text, sizeof text);
        const char *dots = strstr(text, "\xe2\x80\xa6");
        CHECK(font_width(&font, small, text, strlen(text)) <= width);
        if (!CHECK(dots != NULL))
            break;
        size_t tail = strlen(dots + 3);
        CHECK(memcmp(text, name, (size_t)(dots - text)) == 0);
        CHECK_STR(name + strlen(name) - tail, dots + 3);
        CHECK(tail == 0 || (dots[3] & 0xc0) != 0x80); /* whole characters */
    }
    font_free(&font);
}

/* ---- two ranks: a step with a collective that rank 1 is late for ---- */

typedef struct Ranks {
    World w;
    Covers covers;
    ViewData data;
    ViewComm comms[2];
    ViewMatch match;
    uint32_t parts[2];
    const char *channel;
    View view;
} Ranks;

/*      0         100       200       300       400
 * 0    |gemm a   |===== reduce ======|gemm b   |
 * 1         |gemm a             |red.|gemm b|              (from 50)
 */
static void open_ranks(Ranks *k)
{
    *k = (Ranks){ .channel = "group 'dp' of 2, matched by sequence number" };
    uint64_t comm[2];
    for (uint32_t r = 0; r < 2; r++) {
        uint32_t gpu = world_stream(&k->w, r, 7), net = world_stream(&k->w, r, 20);
        world_span(&k->w, gpu, SPAN_COMPUTE, "gemm a", r ? 50 : 0, r ? 250 : 100);
        comm[r] = world_comm(&k->w, net,
                             (Coll){ .op = "all_reduce",
                                     .group = "dp",
                                     .seq = 0,
                                     .bytes = 1000,
                                     .wait_ns = -1,
                                     .ranks_n = 2 },
                             r ? 250 : 100, 300);
        world_span(&k->w, gpu, SPAN_COMPUTE, "gemm b", 300, r ? 370 : 400);
    }
    timeline_seal(&k->w.t);
    for (uint32_t r = 0; r < 2; r++) {
        for (uint64_t i = 0; i < k->w.t.spans_n; i++)
            if (k->w.t.span_class[i] == SPAN_COMM &&
                k->w.t.tracks[k->w.t.span_track[i]].rank == r)
                comm[r] = i;
        k->comms[r] = (ViewComm){ comm[r], 0, r ? 0 : 150, r ? 50 : 200, 0 };
        k->parts[r] = r;
    }
    k->match = (ViewMatch){ .first = 0, .n = 2, .last = 1, .transfer_ns = 50 };
    view_data_open(&k->data, &k->w.t, "two ranks", 1);
    k->data.links = (ViewLinks){ .comms = k->comms,
                                 .comms_n = 2,
                                 .matches = &k->match,
                                 .matches_n = 1,
                                 .parts = k->parts,
                                 .channels = &k->channel };
    view_open(&k->view, &k->data, NULL);
    k->view.width = 1000;
    k->view.height = 600;
}

static void close_ranks(Ranks *k)
{
    view_free(&k->view);
    view_data_free(&k->data);
    timeline_free(&k->w.t);
}

static ViewPlace place_at(const Ranks *k, uint32_t row, uint64_t i)
{
    return (ViewPlace){ 0, row, lod_span(&k->data.rows[row].lod, i) };
}

static void rows_come_by_rank_and_stream(void)
{
    Ranks k;
    open_ranks(&k);
    CHECK_INT(4, (int)k.data.rows_n);
    CHECK_INT(2, (int)k.data.ranks_n);
    CHECK_U64(2, k.data.rows[0].lod.n);
    CHECK_U64(1, k.data.rows[1].lod.n);
    CHECK_INT(0, k.view.from_ns);
    CHECK_INT(400, k.view.to_ns);
    close_ranks(&k);
}

static void numbers_of_a_window(void)
{
    Ranks k;
    open_ranks(&k);
    Metrics of_rank[2];
    ViewStats s = view_window_stats(&k.view, (ViewWindow){ 0, 400 }, of_rank);
    CHECK_U64(2, s.ranks_n);
    CHECK_INT(200 + 270, s.sum.compute_ns);
    CHECK_INT(200 + 50, s.sum.comm_ns);
    CHECK_INT(250, s.sum.exposed_comm_ns);
    CHECK_INT(0 + 50 + 30, s.sum.idle_ns);
    CHECK_INT(270, of_rank[1].compute_ns);
    k.view.has_selection = true;
    k.view.selected_ranks[0] = false;
    s = view_window_stats(&k.view, (ViewWindow){ 200, 300 }, NULL);
    CHECK_U64(1, s.ranks_n);
    CHECK_INT(50, s.sum.compute_ns);
    CHECK_INT(50, s.sum.exposed_comm_ns);
    close_ranks(&k);
}

static void windows_are_remembered(void)
{
    Ranks k;
    open_ranks(&k);
    View *v = &k.view;
    view_show(v, 100, 200);
    view_show(v, 120, 160);
    view_move(v, 125, 165); /* turns of the wheel */
    view_move(v, 130, 170);
    CHECK(view_back(v));
    CHECK_INT(120, v->from_ns);
    CHECK(view_back(v));
    CHECK_INT(100, v->from_ns);
    CHECK(view_back(v));
    CHECK_INT(400, v->to_ns - v->from_ns);
    CHECK(!view_back(v));
    CHECK(view_forward(v) && view_forward(v) && !view_forward(v));
    CHECK_INT(120, v->from_ns);
    view_back(v);
    view_show(v, 0, 50); /* forgets what was ahead */
    CHECK(!view_forward(v));
    for (int i = 0; i < 3 * VIEW_HISTORY; i++)
        view_show(v, i, i + 100);
    int n = 0;
    while (view_back(v))
        n++;
    CHECK_INT(VIEW_HISTORY - 1, n);
    close_ranks(&k);
}

static void zooming_keeps_the_place(void)
{
    Ranks k;
    open_ranks(&k);
    View *v = &k.view;
    view_zoom(v, 100, 2);
    CHECK_INT(200, v->to_ns - v->from_ns);
    CHECK_INT(50, v->from_ns);
    for (int i = 0; i < 100; i++)
        view_zoom(v, 100, 3);
    CHECK_INT(VIEW_NS_MIN, v->to_ns - v->from_ns);
    CHECK(v->from_ns <= 100 && v->to_ns > 100);
    for (int i = 0; i < 100; i++)
        view_zoom(v, 100, 0.3);
    CHECK_INT(800, v->to_ns - v->from_ns); /* twice the whole */
    for (int i = 0; i < 100; i++)
        view_pan(v, 0.7);
    CHECK(v->from_ns < 400); /* never out of sight */
    for (int i = 0; i < 100; i++)
        view_pan(v, -0.7);
    CHECK(v->to_ns > 0);
    close_ranks(&k);
}

static void totals_by_name(void)
{
    Ranks k;
    open_ranks(&k);
    KernelTotal top[8];
    KernelSums sums;
    kernels_open(&sums, &k.data);
    uint32_t n = kernels_top(&sums, NULL, NULL, 0, 400, top, 8);
    CHECK_INT(3, (int)n);
    CHECK_STR("gemm a", timeline_text(&k.w.t, top[0].name));
    CHECK_INT(300, top[0].total_ns);
    CHECK_U64(2, top[0].count);
    CHECK_STR("ncclDevKernel(x)", timeline_text(&k.w.t, top[1].name));
    CHECK_INT(250, top[1].total_ns);
    n = kernels_top(&sums, NULL, NULL, 310, 320, top, 8);
    CHECK_INT(1, (int)n);
    CHECK_INT(20, top[0].total_ns);
    kernels_free(&sums);
    close_ranks(&k);
}

/* Windows end before their last ns; that of the whole trace has all of it all the same. */
static void a_last_event_of_no_length_counts(void)
{
    World w = { 0 };
    ViewData d;
    KernelTotal top[2];
    KernelSums sums;
    uint32_t gpu = world_stream(&w, 0, 7);
    for (int64_t i = 0; i < 50; i++)
        world_span(&w, gpu, SPAN_COMPUTE, "gemm", 10 * i, 10 * i);
    timeline_seal(&w.t);
    for (int bounds = 0; bounds < 2; bounds++) {
        view_data_open(&d, &w.t, "moments", 1);
        if (bounds)
            view_data_bounds(&d);
        CHECK_INT(0, d.ranks[0].begin_ns);
        CHECK_INT(491, d.ranks[0].end_ns);
        kernels_open(&sums, &d);
        CHECK_INT(1, (int)kernels_top(&sums, NULL, NULL, d.begin_ns, d.end_ns, top, 2));
        CHECK_U64(50, top[0].count);
        kernels_free(&sums);
        view_data_free(&d);
    }
    world_free(&w);
}

/* Many spans of few names, windows of all sizes, beside a look at every span. */
static void totals_by_brute_force(void)
{
    World w = { 0 };
    uint64_t seed = 9;
    for (uint32_t r = 0; r < 3; r++) {
        uint32_t gpu = world_stream(&w, r, 7);
        int64_t at_ns = (int64_t)r * 1000;
        for (int i = 0; i < 30000; i++) {
            char name[16];
            seed = mix_u64(seed);
            int64_t ns = (int64_t)(seed % 40);
            snprintf(name, sizeof name, "k%d", (int)((seed >> 8) % 7));
            world_span(&w, gpu, SPAN_COMPUTE, name, at_ns, at_ns + ns);
            at_ns += ns + (int64_t)((seed >> 32) % 3);
        }
    }
    timeline_seal(&w.t);
    ViewData d;
    KernelSums sums;
    view_data_open(&d, &w.t, "sums", 1);
    kernels_open(&sums, &d);
    uint32_t name_of[7];
    for (int k = 0; k < 7; k++)
        name_of[k] = intern(&w.t.names, (const char[]){ 'k', (char)('0' + k), 0 });
    for (int i = 0; i < 60; i++) {
        seed = mix_u64(seed);
        int64_t from_ns = (int64_t)(seed % 600000), to_ns = from_ns + (1 << (i % 21));
        int64_t total_ns[7] = { 0 }, count[7] = { 0 };
        for (uint64_t s = 0; s < w.t.spans_n; s++) {
            int64_t start_ns = w.t.start_ns[s], end_ns = start_ns + w.t.dur_ns[s];
            int64_t a = max_i64(from_ns, start_ns), b = min_i64(to_ns, end_ns);
            int name = timeline_text(&w.t, w.t.span_name[s])[1] - '0';
            if (w.t.tracks[w.t.span_track[s]].rank == 1)
                continue;
            total_ns[name] += max_i64(0, b - a);
            count[name] += a < b || (start_ns >= from_ns && start_ns < to_ns);
        }
        KernelTotal top[8];
        bool ranks[] = { true, false, true };
        uint32_t n = kernels_top(&sums, ranks, NULL, from_ns, to_ns, top, 8);
        int64_t found_ns[7] = { 0 }, found[7] = { 0 };
        for (uint32_t k = 0; k < n; k++) {
            int name = timeline_text(&w.t, top[k].name)[1] - '0';
            found_ns[name] = top[k].total_ns;
            found[name] = (int64_t)top[k].count;
        }
        for (int k = 0; k < 7; k++) {
            KernelTimes times = kernels_times(&sums, ranks, NULL, from_ns, to_ns, name_of[k]);
            CHECK_INT(total_ns[k], found_ns[k]);
            CHECK_INT(count[k], found[k]);
            CHECK_INT(count[k], (int64_t)times.count);
        }
    }
    kernels_free(&sums);
    view_data_free(&d);
    timeline_free(&w.t);
}

static void links_go_round(void)
{
    Ranks k;
    open_ranks(&k);
    ViewPlace a = place_at(&k, 1, 0), b = view_link_next(&k.view, a, false);
    CHECK_INT(3, (int)b.row);
    CHECK_U64(a.span, view_link_next(&k.view, b, false).span);
    CHECK_U64(a.span, view_link_next(&k.view, b, true).span);
    CHECK(view_link_next(&k.view, place_at(&k, 0, 0), false).row == NONE_U32);
    ViewPlace e = view_exposed_next(&k.view, view_nowhere, false);
    CHECK_U64(a.span, e.span); /* 200 ns */
    e = view_exposed_next(&k.view, e, false);
    CHECK_U64(b.span, e.span); /* 50 ns */
    CHECK_U64(a.span, view_exposed_next(&k.view, e, false).span);
    CHECK_U64(a.span, view_exposed_next(&k.view, e, true).span);
    k.view.ranks[1].left_out = true; /* by --ranks */
    CHECK(view_link_next(&k.view, a, false).row == NONE_U32);
    CHECK_U64(a.span, view_exposed_next(&k.view, a, false).span);
    close_ranks(&k);
}

/* Rank 1's gemm a, the transfer, rank 0's gemm b. */
static void the_critical_path_changes_rank(void)
{
    Ranks k;
    open_ranks(&k);
    CriticalPath c;
    critical_find(&c, &k.view, 0, 400);
    CHECK_INT(100 + 200, c.ns[PATH_COMPUTE]);
    CHECK_INT(50, c.ns[PATH_TRANSFER]);
    CHECK_INT(50, c.ns[PATH_IDLE]); /* before rank 1 began */
    int64_t sum = 0, at_ns = 400;
    for (uint32_t i = 0; i < c.n; i++) {
        CHECK_INT(at_ns, c.pieces[i].to_ns);
        at_ns = c.pieces[i].from_ns;
        sum += c.pieces[i].to_ns - c.pieces[i].from_ns;
    }
    CHECK_INT(0, at_ns);
    CHECK_INT(400, sum);
    critical_free(&c);
    close_ranks(&k);
}

/* Two collectives that two ranks took in different orders, each waiting for the other all the
 * time: the walk back ends all the same. */
static void contradicting_matches_end_the_critical_path(void)
{
    World w = { 0 };
    ViewData data;
    View view;
    CriticalPath c;
    ViewComm comms[4];
    Coll coll = { .op = "all_reduce", .wait_ns = -1, .ranks_n = 2 };
    static const int64_t starts[2][2] = { { 50, 100 }, { 40, 100 } }, ends[2] = { 160, 150 };
    for (uint32_t r = 0; r < 2; r++) {
        uint32_t net = world_stream(&w, r, 20);
        world_comm(&w, net, coll, starts[r][0], 100);
        world_comm(&w, net, coll, starts[r][1], ends[r]);
    }
    timeline_seal(&w.t);
    for (uint64_t i = 0; i < 4; i++) /* the first of either rank only waits */
        comms[i] = (ViewComm){ i, i == 1 || i == 2 ? 0 : 1, i % 2 ? 0 : w.t.dur_ns[i], 0, 0 };
    static const uint32_t parts[] = { 1, 2, 0, 3 };
    static const ViewMatch matches_[] = { { .first = 0, .n = 2, .last = 0 },
                                          { .first = 2, .n = 2, .last = 1 } };
    view_data_open(&data, &w.t, "in a circle", 1);
    data.links = (ViewLinks){
        .comms = comms, .comms_n = 4, .matches = matches_, .matches_n = 2, .parts = parts
    };
    view_open(&view, &data, NULL);
    critical_find(&c, &view, 0, 160);
    CHECK_INT(60, c.ns[PATH_TRANSFER]);
    CHECK_INT(100, c.ns[PATH_IDLE]); /* what nobody can explain */
    critical_free(&c);
    view_free(&view);
    view_data_free(&data);
    world_free(&w);
}

/* ---- filters ---- */

static uint64_t matches(const Ranks *k, const char *text)
{
    ViewFilter f;
    Err err = { 0 };
    if (!CHECK(filter_open(&f, &k->data, text, &err)))
        return 99;
    uint64_t n = filter_count(&f).n;
    filter_free(&f);
    return n;
}

static void filters_take_what_they_say(void)
{
    static const struct {
        const char *text;
        uint64_t n;
    } cases[] = { { "", 6 },
                  { "gemm", 4 },
                  { "GEMM", 4 },
                  { "gemm -b", 2 },
                  { "-gemm", 2 },
                  { "dur>100ns", 2 },
                  { "dur>=100ns", 4 },
                  { "dur<0.1us", 2 },
                  { "rank:1", 3 },
                  { "rank:0-1", 6 },
                  { "rank:5,1", 3 },
                  { "-rank:0,1", 0 },
                  { "rank:4294967296", 0 },
                  { "-rank:1 class:compute", 2 },
                  { "class:comm", 2 },
                  { "stream:20", 2 },
                  { "bytes>999B", 2 },
                  { "bytes>1000B", 0 },
                  { "wait>100ns", 1 },
                  { "exposed>50%", 2 },
                  { "gemm exposed>50%", 0 } };
    Ranks k;
    open_ranks(&k);
    for (size_t i = 0; i < ARRAY_N(cases); i++)
        if (!CHECK_U64(cases[i].n, matches(&k, cases[i].text)))
            fprintf(stderr, "  filter '%s'\n", cases[i].text);
    close_ranks(&k);
}

static void wrong_filters_are_told(void)
{
    static const char *const cases[][2] = {
        { "dur>fast", "'fast' is not a time as in 1ms" },
        { "bytes>x", "'x' is not a size as in 25MiB" },
        { "exposed>200%", "'200%' is not a percentage" },
        { "rank:a", "rank: takes ranks as in rank:0,3 or rank:0-7, not 'a'" },
        { "rank:1,", "not '1,'" },
        { "rank:3-1", "not '3-1'" },
        { "class:gemm", "'gemm' is no class, allowed: compute" },
        { "gemm foo:3", "'foo:3' is no term, and no name has it; terms are dur> bytes>" },
        { "-rank>1", "'rank>1' is no term" },
        { "Dur>1ms", "'Dur>1ms' is no term" },
        { "dur=1ms", "'dur=1ms' is no term" },
        { "a b c d e f g h i j k l m n o p q", "at most 16 terms" },
        { "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
          "too long" },
    };
    Ranks k;
    open_ranks(&k);
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        ViewFilter f;
        Err err = { 0 };
        CHECK(!filter_open(&f, &k.data, cases[i][0], &err));
        CHECK_ERR_TEXT(&err, cases[i][1]);
    }
    close_ranks(&k);
}

static void names_may_have_the_signs_of_terms(void)
{
    static const char *const texts[] = { "nccl:all", "-at::native", "kernel<float>", "dur=1" };
    World w = { 0 };
    ViewData data;
    uint32_t gpu = world_stream(&w, 0, 7);
    world_span(&w, gpu, SPAN_COMPUTE, "void at::native::kernel<float>()", 0, 10);
    world_span(&w, gpu, SPAN_COMM, "NCCL:all_reduce dur=1ms", 20, 30);
    timeline_seal(&w.t);
    view_data_open(&data, &w.t, "signs", 1);
    for (size_t i = 0; i < ARRAY_N(texts); i++) {
        ViewFilter f;
        Err err = { 0 };
        if (!CHECK(filter_open(&f, &data, texts[i], &err)))
            continue;
        CHECK_U64(1, filter_count(&f).n);
        filter_free(&f);
    }
    view_data_free(&data);
    world_free(&w);
}

static void searching_goes_by_time(void)
{
    Ranks k;
    open_ranks(&k);
    ViewFilter f;
    Err err = { 0 };
    uint32_t row;
    uint64_t span = NONE_U64;
    CHECK(filter_open(&f, &k.data, "gemm", &err));
    int64_t at_ns = -1, starts[] = { 0, 50, 300, 300 };
    for (int i = 0; i < 4 && CHECK(filter_next(&f, at_ns, false, &row, &span)); i++) {
        at_ns = k.w.t.start_ns[span];
        CHECK_INT(starts[i], at_ns);
    }
    uint64_t last = span;
    CHECK(!filter_next(&f, 300, false, &row, &span));
    span = last;
    CHECK(filter_next(&f, 300, true, &row, &span));
    CHECK_INT(300, k.w.t.start_ns[span]);
    CHECK(filter_next(&f, 300, true, &row, &span));
    CHECK_INT(50, k.w.t.start_ns[span]);
    filter_free(&f);
    close_ranks(&k);
}

/* ---- counters ---- */

static void counters_by_brute_force(void)
{
    World w = { 0 };
    uint64_t seed = 3;
    uint32_t track = timeline_track(&w.t, 0, TRACK_COUNTER, "allocated bytes", 1);
    enum { POINTS = 5000 };
    static int64_t at[POINTS];
    static double value[POINTS];
    for (int i = 0; i < POINTS; i++) {
        seed = mix_u64(seed);
        at[i] = (i ? at[i - 1] : 100) + (int64_t)(seed % 5);
        value[i] = (double)((seed >> 20) % 100000);
        timeline_point(&w.t, track, at[i], value[i]);
    }
    timeline_seal(&w.t);
    ViewData d;
    view_data_open(&d, &w.t, "counter", 1);
    for (int i = 0; i < 300; i++) {
        seed = mix_u64(seed);
        int64_t from_ns = 90 + (int64_t)(seed % 11000);
        int64_t to_ns = from_ns + 1 + (int64_t)((seed >> 32) % (1u << (i % 14)));
        double low = 1e300, high = -1e300, l = 0, h = 0, sum = 0, mean = 0;
        int64_t ns = 0;
        for (int p = 0; p < POINTS; p++) {
            int64_t until_ns = p + 1 < POINTS ? at[p + 1] : INT64_MAX;
            if (at[p] < to_ns && (until_ns > from_ns || at[p] > from_ns)) {
                low = fmin(low, value[p]);
                high = fmax(high, value[p]);
            }
            int64_t first_ns = max_i64(at[p], from_ns), last_ns = min_i64(until_ns, to_ns);
            if (first_ns < last_ns) {
                sum += value[p] * (double)(last_ns - first_ns);
                ns += last_ns - first_ns;
            }
        }
        bool any = view_counter_range(&d, &d.rows[0], from_ns, to_ns, &l, &h);
        CHECK(any == (low <= high));
        if (any)
            CHECK(l == low && h == high);
        CHECK(view_counter_mean(&d, &d.rows[0], from_ns, to_ns, &mean) == (ns > 0));
        if (ns > 0)
            CHECK_NEAR(sum / (double)ns, mean, 1e-6);
    }
    view_data_free(&d);
    timeline_free(&w.t);
}

static void counters_say_their_values_with_units(void)
{
    static const struct {
        const char *name;
        double low, high;
        int64_t from_ns, to_ns;
        const char *value, *largest, *short_name;
    } rows[] = {
        { "NIC out, % of 50 GB/s", 0, 97.25, 10, 20, "97.2 %", "\xe2\x89\xa4 97 % of 50 GB/s",
          "NIC out" },
        { "NIC out, % of 50 GB/s", 0, 97.25, 0, 40,
          "24.3 % on average, from 0 % to 97.2 % "
          "within this pixel",
          "\xe2\x89\xa4 97 % of 50 GB/s", "NIC out" },
        { "PCIe in, % of 25 GB/s", 0, 104, 10, 20, "104 %", "\xe2\x89\xa4 104 % of 25 GB/s",
          "PCIe in" },
        { "gpu util", 0, 50, 30, 40, "0 %", "\xe2\x89\xa4 50 %", "gpu util" },
        { "gpu util", 0, 5000, 10, 20, "5000", "5000", "gpu util" },
        { "allocated bytes", 1e9, 2e9, 0, 40, "from 1.000 GB to 2.000 GB within this pixel",
          "2.000 GB", "allocated bytes" },
    };
    for (size_t i = 0; i < ARRAY_N(rows); i++) {
        World w = { 0 };
        ViewData d;
        char text[120];
        uint32_t track = timeline_track(&w.t, 0, TRACK_COUNTER, rows[i].name, 1);
        timeline_point(&w.t, track, 0, rows[i].low);
        timeline_point(&w.t, track, 10, rows[i].high);
        timeline_point(&w.t, track, 20, rows[i].low);
        timeline_seal(&w.t);
        view_data_open(&d, &w.t, "counter", 1);
        view_row_ready(&d, &d.rows[0]);
        CHECK(scene_counter_value(&d, &d.rows[0], rows[i].from_ns, rows[i].to_ns, text,
                                  sizeof text));
        CHECK_STR(rows[i].value, text);
        CHECK_STR(rows[i].largest, scene_counter_text(&d, &d.rows[0], true, text, sizeof text));
        snprintf(text, sizeof text, "%.*s", (int)scene_counter_name(&d, &d.rows[0]),
                 rows[i].name);
        CHECK_STR(rows[i].short_name, text);
        CHECK(!scene_counter_value(&d, &d.rows[0], -9, 0, text, sizeof text));
        view_data_free(&d);
        timeline_free(&w.t);
    }
}

/* ---- tooltips ---- */

static void tooltips_say_how_a_kernel_was_launched(void)
{
    World w = { 0 };
    uint32_t gpu = world_stream(&w, 0, 7);
    const KernelLaunch all = { { 24, 2, 1 }, { 544, 1, 1 }, 96, 88016, 37 };
    const KernelLaunch few = { { 1, 1, 1 }, { 32, 1, 1 }, NONE_U32, NONE_U32, NONE_U32 };
    const KernelLaunch *launches[] = { &all, &few };
    static const char *const said[] = { "\ngrid 24 \xc3\x97 2 \xc3\x97 1, block 544 \xc3\x97 1 "
                                        "\xc3\x97 1\n96 registers a thread, 88.02 kB shared a "
                                        "block\nestimated occupancy 37 %",
                                        "\ngrid 1 \xc3\x97 1 \xc3\x97 1, block 32 \xc3\x97 1 "
                                        "\xc3\x97 1" };
    for (uint32_t i = 0; i < 3; i++) {
        uint64_t span = world_span(&w, gpu, SPAN_COMPUTE, "k", 100 * i, 100 * i + 50);
        if (i < 2)
            timeline_set_launch(&w.t, span, timeline_launch(&w.t, launches[i]));
    }
    timeline_seal(&w.t);
    ViewData data;
    View view;
    view_data_open(&data, &w.t, "launches", 1);
    view_open(&view, &data, NULL);
    for (uint64_t i = 0; i < 3; i++) {
        char text[1024];
        scene_tip_text(&view, (ViewPlace){ 0, 0, i }, text, sizeof text);
        const char *grid = strstr(text, "\ngrid");
        CHECK_STR(i < 2 ? said[i] : NULL, grid);
    }
    view_free(&view);
    view_data_free(&data);
    world_free(&w);
}

/* ---- groups of ranks ---- */

/* Four ranks, tp pairs and dp pairs across them; rank 7 only says that it is in a "pg", as
 * ranks 2 and 3 do, without numbers; 3 was matched with 7. */
typedef struct Grid {
    World w;
    ViewData data;
    ViewComm comms[2];
    ViewMatch match;
    uint32_t parts[2];
    View view;
} Grid;

static void add_comm(Grid *g, uint32_t track, const char *group, uint32_t id, int64_t from_ns,
                     int64_t ns)
{
    world_comm(
        &g->w, track,
        (Coll){ .op = "all_reduce", .group = group, .group_id = id, .seq = -1, .wait_ns = -1 },
        from_ns, from_ns + ns);
}

static void open_grid(Grid *g)
{
    static const uint32_t ranks[] = { 0, 1, 2, 3, 7 };
    *g = (Grid){ .parts = { 0, 1 }, .match = { .n = 2, .last = NONE_U32 } };
    for (uint32_t i = 0; i < ARRAY_N(ranks); i++) {
        uint32_t r = ranks[i], net = world_stream(&g->w, r, 20);
        if (r < 4) {
            add_comm(g, net, "tp", r / 2 * 2, 0, 10 * (r == 2 ? 9 : 1 + r));
            add_comm(g, net, "dp", r % 2, 100, 10);
        }
        if (r >= 2)
            add_comm(g, net, "pg", NONE_U32, 200, 1);
    }
    timeline_seal(&g->w.t);
    for (uint64_t i = 0, n = 0; i < g->w.t.spans_n; i++)
        if (g->w.t.start_ns[i] == 200 && g->w.t.tracks[g->w.t.span_track[i]].rank != 2)
            g->comms[n++] = (ViewComm){ i, 0, -1, 1, 0 };
    view_data_open(&g->data, &g->w.t, "grid", 1);
    g->data.links = (ViewLinks){
        .comms = g->comms, .comms_n = 2, .matches = &g->match, .matches_n = 1, .parts = g->parts
    };
    view_open(&g->view, &g->data, NULL);
    g->view.width = 1000;
    g->view.height = 600;
}

static void close_grid(Grid *g)
{
    view_free(&g->view);
    view_data_free(&g->data);
    timeline_free(&g->w.t);
}

/* "[0-1] 0 1 [2-3] 2 3": the list as it is shown. */
static char *list_text(const View *v, char *text, size_t cap)
{
    ViewItems items = view_items(v);
    size_t n = 0;
    text[0] = 0;
    for (ViewItem item; view_items_next(&items, &item) && n < cap;) {
        char ranks[64];
        if (item.group != NONE_U32)
            n += (size_t)snprintf(text + n, cap - n, "%s[%s]", n ? " " : "",
                                  view_group_text(v, item.group, ranks, sizeof ranks));
        else
            n += (size_t)snprintf(text + n, cap - n, "%s%u", n ? " " : "",
                                  (unsigned)v->data[0]->ranks[item.rank].rank);
    }
    return text;
}

static void ranks_stand_below_headings_of_their_groups(void)
{
    Grid g;
    char text[256];
    open_grid(&g);
    View *v = &g.view;
    CHECK_STR("0 1 2 3 7", list_text(v, text, sizeof text));
    CHECK_INT(1, (int)view_group_next(v)); /* kinds by name: dp, pg, tp */
    CHECK_INT(3, (int)v->groups.kinds_n);
    CHECK_STR("[0, 2] 0 2 [1, 3] 1 3 [7] 7", list_text(v, text, sizeof text));
    CHECK_INT(2, (int)v->groups.kinds[0].groups_n);
    CHECK_INT(2, (int)view_group_next(v)); /* 3 and 7 were matched, 2 is alone, 0 and 1 out */
    CHECK_STR("[0-1] 0 1 [2] 2 [3, 7] 3 7", list_text(v, text, sizeof text));
    CHECK_INT(2, (int)v->groups.kinds[1].groups_n);
    CHECK_INT(3, (int)view_group_next(v));
    CHECK_STR("[0-1] 0 1 [2-3] 2 3 [7] 7", list_text(v, text, sizeof text));
    CHECK_INT(0, (int)view_group_next(v));
    CHECK_STR("0 1 2 3 7", list_text(v, text, sizeof text));
    close_grid(&g);
}

/* The group with the worst rank comes first, and in it the worst rank. */
static void groups_are_sorted_and_closed_and_pinned_ranks_stay(void)
{
    Grid g;
    char text[256];
    open_grid(&g);
    View *v = &g.view;
    view_sort(v, VIEW_BY_EXPOSED);
    CHECK_STR("2 3 1 0 7", list_text(v, text, sizeof text));
    view_group(v, 3);
    CHECK_STR("[2-3] 2 3 [0-1] 1 0 [7] 7", list_text(v, text, sizeof text));
    view_sort(v, VIEW_BY_RANK);
    v->closed[2] = true; /* the group that begins with the third rank */
    CHECK_STR("[0-1] 0 1 [2-3] [7] 7", list_text(v, text, sizeof text));
    v->ranks[3].pinned = true;
    CHECK_STR("[0-1] 0 1 [2-3] 3 [7] 7", list_text(v, text, sizeof text));
    CHECK(view_is_hidden(v, 2) && !view_is_hidden(v, 3));
    v->ranks[2].pinned = v->ranks[0].left_out = true; /* no heading without a rank below it */
    CHECK_STR("[0-1] 1 2 3 [7] 7", list_text(v, text, sizeof text));
    Layout l = { .rows = NULL };
    layout_make(&l, v);
    CHECK(l.rows[0].pinned && l.rows[0].rank == 2 && l.rows[0].kind == LAYOUT_STRIP);
    uint32_t headings_n = 0;
    for (uint32_t i = 0; i < l.rows_n; i++)
        headings_n += l.rows[i].kind == LAYOUT_GROUP && !l.rows[i].pinned;
    CHECK_INT(2, (int)headings_n);
    layout_free(&l);
    close_grid(&g);
}

/* Rank 0 marks no steps, rank 1 and 2 do: the ruler marks those of the first that is shown. */
static void steps_are_of_the_first_rank_that_is_shown(void)
{
    World w = { 0 };
    ViewData data;
    View v;
    for (uint32_t r = 0; r < 3; r++) {
        uint32_t gpu = world_stream(&w, r, 7);
        world_span(&w, gpu, SPAN_COMPUTE, "gemm", 100 * r, 100 * r + 50);
        if (r > 0)
            world_span(&w, timeline_track(&w.t, r, TRACK_STEPS, "steps", 0), SPAN_STEP,
                       "ProfilerStep#3", 100 * r, 100 * r + 50);
    }
    timeline_seal(&w.t);
    view_data_open(&data, &w.t, "three ranks", 1);
    view_open(&v, &data, NULL);
    uint32_t first = view_step_rank(&v);
    CHECK(first != NONE_U32);
    v.ranks[first].left_out = true;
    CHECK_INT((int)first + 1, (int)view_step_rank(&v));
    for (uint32_t r = 0; r < 3; r++)
        v.ranks[r].left_out = true;
    CHECK_U64(NONE_U32, view_step_rank(&v));
    view_free(&v);
    view_data_free(&data);
    timeline_free(&w.t);
}

int main(void)
{
    RUN(times_have_four_digits);
    RUN(kernels_get_short_names);
    RUN(names_that_would_be_short_for_several_are_told_apart);
    RUN(labels_lose_words_before_letters_and_no_number_its_unit);
    RUN(the_middle_of_a_name_may_be_cut);
    RUN(rows_come_by_rank_and_stream);
    RUN(numbers_of_a_window);
    RUN(windows_are_remembered);
    RUN(steps_are_of_the_first_rank_that_is_shown);
    RUN(zooming_keeps_the_place);
    RUN(totals_by_name);
    RUN(totals_by_brute_force);
    RUN(a_last_event_of_no_length_counts);
    RUN(links_go_round);
    RUN(the_critical_path_changes_rank);
    RUN(contradicting_matches_end_the_critical_path);
    RUN(filters_take_what_they_say);
    RUN(wrong_filters_are_told);
    RUN(names_may_have_the_signs_of_terms);
    RUN(searching_goes_by_time);
    RUN(counters_by_brute_force);
    RUN(counters_say_their_values_with_units);
    RUN(tooltips_say_how_a_kernel_was_launched);
    RUN(ranks_stand_below_headings_of_their_groups);
    RUN(groups_are_sorted_and_closed_and_pinned_ranks_stay);
    return check_report();
}

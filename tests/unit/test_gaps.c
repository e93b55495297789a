/* Each reason for a gap once, kernels and streams added up by hand. */
#include "profile/gaps.h"
#include "tests/check.h"
#include "tests/trace_world.h"

enum { LONGEST = 3 };

typedef struct Found {
    Covers covers;
    Gaps g;
} Found;

static Found find(World *w, const Selection *s)
{
    Found f;
    timeline_seal(&w->t);
    covers_build(&f.covers, &w->t);
    gaps_find(&f.g, &w->t, &f.covers, s, LONGEST);
    return f;
}

static void done(Found *f, World *w)
{
    gaps_free(&f->g);
    covers_free(&f->covers);
    world_free(w);
}

/* A kernel at start, launched at launch (< 0: not recorded) with an id. */
static void kernel(World *w, uint32_t gpu, uint32_t host, uint64_t id, int64_t launch,
                   int64_t start, int64_t end)
{
    uint64_t run = world_span(w, gpu, SPAN_COMPUTE, "k", start, end);
    w->t.correlation[run] = id;
    if (launch < 0)
        return;
    uint64_t call = world_span(w, host, SPAN_LAUNCH, "cudaLaunchKernel", launch, launch + 2);
    w->t.correlation[call] = id;
}

/* ids in steps of step: dense ones take the array, sparse ones the hash. */
static void check_reasons(uint64_t step)
{
    World w = { 0 };
    timeline_want(&w.t, true, false);
    uint32_t gpu = world_stream(&w, 0, 7), host = world_host(&w, 0);
    kernel(&w, gpu, host, 1 * step, 0, 5, 20);     /* the first: no gap before it */
    kernel(&w, gpu, host, 2 * step, 30, 35, 40);   /* 15 late: launched at 30, idle since 20 */
    kernel(&w, gpu, host, 3 * step, 33, 50, 60);   /* 10 other: launched at 33, idle since 40 */
    kernel(&w, gpu, host, 4 * step, 80, 90, 100);  /* 30 sync: the host waited until 70 */
    kernel(&w, gpu, host, 5 * step, -1, 104, 110); /* 4 unknown */
    kernel(&w, gpu, host, 6 * step, 111, 117, 120); /* 7 late: the wait ended at 110 */
    kernel(&w, gpu, host, 7 * step, 112, 120, 130); /* no gap */
    world_span(&w, host, SPAN_SYNC, "cudaStreamSynchronize", 45, 70);
    world_span(&w, host, SPAN_SYNC, "cudaDeviceSynchronize", 101, 110);
    world_span(&w, host, SPAN_SYNC, "cudaStreamWaitEvent", 112, 116); /* no wait of the host */
    Found f = find(&w, NULL);
    static const uint64_t n[GAP_KIND_N] = { 2, 1, 1, 1 };
    static const int64_t ns[GAP_KIND_N] = { 15 + 7, 30, 10, 4 };
    int64_t all_ns = 0;
    for (int k = 0; k < GAP_KIND_N; k++) {
        CHECK_U64(n[k], f.g.ranks[0].n[k]);
        CHECK_INT(ns[k], f.g.ranks[0].ns[k]);
        all_ns += ns[k];
    }
    CHECK_INT(metrics_of_rank(&f.covers.rank[0]).idle_ns, all_ns);
    CHECK_INT(LONGEST, f.g.longest_n);
    CHECK_INT(30, f.g.longest[0].dur_ns);
    CHECK_INT(GAP_SYNC, f.g.longest[0].kind);
    CHECK_INT(15, f.g.longest[1].dur_ns);
    CHECK_INT(10, f.g.longest[2].dur_ns);
    done(&f, &w);
}

static void gaps_have_reasons(void)
{
    check_reasons(1);
    check_reasons(1000000007);
}

/* Two steps of the same op ids: each kernel belongs to the launch before it. */
static void op_ids_join_where_there_is_no_correlation(void)
{
    World w = { 0 };
    uint32_t gpu = world_stream(&w, 0, 7), host = world_host(&w, 0);
    for (int64_t step = 0; step < 2; step++)
        for (uint32_t op = 0; op < 2; op++) {
            int64_t at = 100 * step + 40 * op;
            uint64_t launch = world_span(&w, host, SPAN_LAUNCH, "l", at, at + 1);
            uint64_t run = world_span(&w, gpu, SPAN_COMPUTE, "k", at + 5, at + 15);
            w.t.op[launch] = w.t.op[run] = op;
        }
    Found f = find(&w, NULL);
    CHECK(f.g.ranks[0].has_launches);
    CHECK_U64(3, f.g.ranks[0].n[GAP_LAUNCH]);
    CHECK_INT(30 + 50 + 30, f.g.ranks[0].ns[GAP_LAUNCH]);
    done(&f, &w);
}

static void a_trace_without_host_knows_no_reasons(void)
{
    World w = { 0 };
    uint32_t gpu = world_stream(&w, 0, 7);
    world_span(&w, gpu, SPAN_COMPUTE, "a", 0, 10);
    world_span(&w, gpu, SPAN_COMPUTE, "b", 30, 40);
    Found f = find(&w, NULL);
    CHECK(!f.g.ranks[0].has_launches);
    CHECK_INT(20, f.g.ranks[0].ns[GAP_UNKNOWN]);
    done(&f, &w);
}

static void kernels_are_added_up_by_name(void)
{
    World w = { 0 };
    for (uint32_t r = 0; r < 2; r++) {
        uint32_t gpu = world_stream(&w, r, 7), copies = world_stream(&w, r, 8);
        world_span(&w, gpu, SPAN_COMPUTE, "gemm", 0, 30);
        world_span(&w, gpu, SPAN_COMPUTE, "gemm", 20, 40); /* overlaps: union for streams */
        world_span(&w, gpu, SPAN_SYNC, "Stream Wait Event", 40, 50);
        world_span(&w, copies, SPAN_MEMORY, "Memcpy", 90, 100);
    }
    Found f = find(&w, NULL);
    CHECK_INT(2, f.g.kernels_n);
    CHECK_STR("gemm", timeline_text(&w.t, f.g.kernels[0].name));
    CHECK_U64(4, f.g.kernels[0].count);
    CHECK_INT(100, f.g.kernels[0].total_ns);
    CHECK_INT(120, f.g.kernels_ns);
    CHECK_INT(4, f.g.streams_n);
    CHECK_INT(40, f.g.streams[0].busy_ns);
    CHECK_INT(60, f.g.streams[0].idle_ns);
    CHECK_INT(10, f.g.streams[1].busy_ns);
    done(&f, &w);
}

/* Whatever came first, as the same trace in another format may have it. */
static void kernels_that_took_as_long_stand_by_name(void)
{
    for (int64_t turned = 0; turned < 2; turned++) {
        World w = { 0 };
        uint32_t gpu = world_stream(&w, 0, 7);
        world_span(&w, gpu, SPAN_COMPUTE, turned ? "b" : "a", 0, 10);
        world_span(&w, gpu, SPAN_COMPUTE, turned ? "a" : "b", 10, 20);
        Found f = find(&w, NULL);
        CHECK_INT(2, f.g.kernels_n);
        CHECK_STR("a", f.g.kernels[0].text);
        CHECK_STR("b", f.g.kernels[1].text);
        done(&f, &w);
    }
}

static void kernels_of_a_rank_count_as_often_as_it_stands_for_one(void)
{
    World w = { 0 };
    for (uint32_t r = 0; r < 2; r++) {
        uint32_t gpu = world_stream(&w, r, 7);
        world_span(&w, gpu, SPAN_COMPUTE, "gemm", 0, r ? 60 : 30);
        w.t.tracks[gpu].ranks_n = r ? 1 : 7;
    }
    Found f = find(&w, NULL);
    CHECK_U64(8, f.g.kernels[0].count);
    CHECK_INT(7 * 30 + 60, f.g.kernels[0].total_ns);
    CHECK_INT(7 * 30 + 60, f.g.kernels_ns);
    CHECK_INT(30, f.g.streams[0].busy_ns); /* a stream is a stream */
    done(&f, &w);
}

static void a_selection_narrows_gaps_and_kernels(void)
{
    World w = { 0 };
    for (uint32_t r = 0; r < 2; r++) {
        uint32_t gpu = world_stream(&w, r, 7);
        for (int64_t i = 0; i < 10; i++)
            world_span(&w, gpu, SPAN_COMPUTE, "k", 10 * i, 10 * i + 5);
    }
    bool ranks[] = { false, true };
    int64_t from[] = { 20, 20 }, to[] = { 50, 50 };
    Selection s = { ranks, from, to };
    Found f = find(&w, &s);
    CHECK_U64(0, f.g.ranks[0].n[GAP_UNKNOWN]);
    CHECK_U64(3, f.g.ranks[1].n[GAP_UNKNOWN]);
    CHECK_U64(3, f.g.kernels[0].count);
    CHECK_INT(1, f.g.streams_n);
    CHECK_INT(15, f.g.streams[0].idle_ns);
    done(&f, &w);
}

typedef struct Part {
    int64_t at, dur;
    GapKind kind;
    bool followed;
} Part;

/* Kernels run from 50 to 100 and from 150 to 200, launched at 40 and 130. */
static void check_window(int64_t from, int64_t to, const Part *parts, uint32_t n)
{
    World w = { 0 };
    timeline_want(&w.t, true, false);
    uint32_t gpu = world_stream(&w, 0, 7), host = world_host(&w, 0);
    kernel(&w, gpu, host, 1, 40, 50, 100);
    kernel(&w, gpu, host, 2, 130, 150, 200);
    Selection s = { .from_ns = &from, .to_ns = &to };
    Found f = find(&w, &s);
    int64_t all_ns = 0;
    for (int k = 0; k < GAP_KIND_N; k++)
        all_ns += f.g.ranks[0].ns[k];
    CHECK_INT(cover_window(&f.covers.rank[0], from, to).ns[0], all_ns);
    CHECK_INT(n, f.g.longest_n);
    for (uint32_t i = 0; i < n && i < f.g.longest_n; i++) {
        CHECK_INT(parts[i].at, f.g.longest[i].at_ns);
        CHECK_INT(parts[i].dur, f.g.longest[i].dur_ns);
        CHECK_INT(parts[i].kind, f.g.longest[i].kind);
        CHECK_INT(parts[i].followed, f.g.longest[i].next != NONE_U64);
    }
    done(&f, &w);
}

/* To the first kernel, the part of a gap that reaches in or out, and from the last kernel. */
static void gaps_of_a_window_are_all_its_idle_time(void)
{
    const Part begin = { 0, 50, GAP_LAUNCH, true }, out = { 100, 20, GAP_LAUNCH, true };
    const Part late = { 45, 5, GAP_OTHER, true }, in = { 105, 45, GAP_LAUNCH, true };
    const Part end = { 200, 100, GAP_UNKNOWN, false };
    check_window(0, 120, (Part[]){ begin, out }, 2);
    check_window(45, 90, &late, 1);
    check_window(105, 300, (Part[]){ end, in }, 2);
    check_window(10, 30, &(Part){ 10, 20, GAP_LAUNCH, true }, 1);
    check_window(220, 260, &(Part){ 220, 40, GAP_UNKNOWN, false }, 1);
    check_window(60, 90, NULL, 0);
}

/* Kernels are those that start in the window; streams are busy in all of it, as their rank is. */
static void a_stream_is_busy_with_what_reaches_into_the_window(void)
{
    World w = { 0 };
    uint32_t gpu = world_stream(&w, 0, 7);
    uint32_t net = world_stream(&w, 0, 20);
    world_span(&w, net, SPAN_COMM, "through", 5, 95);
    world_span(&w, gpu, SPAN_COMPUTE, "before", 0, 30);
    world_span(&w, gpu, SPAN_COMPUTE, "inside", 35, 40);
    world_span(&w, gpu, SPAN_COMPUTE, "behind", 45, 90);
    bool ranks[] = { true };
    int64_t from[] = { 20 }, to[] = { 50 };
    Selection s = { ranks, from, to };
    Found f = find(&w, &s);
    CHECK_INT(2, f.g.streams_n);
    CHECK_U64(2, f.g.streams[0].count);
    CHECK_INT(10 + 5 + 5, f.g.streams[0].busy_ns);
    CHECK_INT(10, f.g.streams[0].idle_ns);
    CHECK_U64(0, f.g.streams[1].count);
    CHECK_INT(30, f.g.streams[1].busy_ns);
    CHECK_INT(50, f.g.kernels_ns);
    done(&f, &w);
}

static void an_empty_timeline_has_no_gaps(void)
{
    World w = { 0 };
    Found f = find(&w, NULL);
    CHECK_INT(0, f.g.kernels_n);
    CHECK_INT(0, f.g.streams_n);
    CHECK_INT(0, f.g.longest_n);
    done(&f, &w);
}

int main(void)
{
    RUN(gaps_have_reasons);
    RUN(op_ids_join_where_there_is_no_correlation);
    RUN(a_trace_without_host_knows_no_reasons);
    RUN(kernels_are_added_up_by_name);
    RUN(kernels_that_took_as_long_stand_by_name);
    RUN(kernels_of_a_rank_count_as_often_as_it_stands_for_one);
    RUN(a_selection_narrows_gaps_and_kernels);
    RUN(gaps_of_a_window_are_all_its_idle_time);
    RUN(a_stream_is_busy_with_what_reaches_into_the_window);
    RUN(an_empty_timeline_has_no_gaps);
    return check_report();
}

/* Unions of intervals against the definition: a bit for every nanosecond. */
#include "profile/metrics.h"
#include "tests/check.h"
#include "tests/trace_world.h"

enum { LENGTH = 300, ROUNDS = 400 };

/* ---- the definition ---- */

typedef struct Bitmap {
    uint8_t bits[LENGTH];
} Bitmap;

static Bitmap draw(const Timeline *t, uint32_t rank)
{
    Bitmap b = { { 0 } };
    for (uint64_t i = 0; i < t->spans_n; i++) {
        const Track *track = &t->tracks[t->span_track[i]];
        if (track->rank != rank || track->kind != TRACK_STREAM)
            continue;
        for (int64_t ns = t->start_ns[i]; ns < t->start_ns[i] + t->dur_ns[i]; ns++)
            b.bits[ns] |= cover_bit(t->span_class[i]);
    }
    return b;
}

static Metrics count_bits(const Bitmap *b, int64_t from, int64_t to)
{
    Metrics m = { .span_ns = to - from };
    for (int64_t ns = from; ns < to; ns++) {
        uint8_t bits = b->bits[ns];
        bool compute = bits & COVER_COMPUTE, comm = bits & COVER_COMM;
        bool memory = bits & COVER_MEMORY;
        m.compute_ns += compute;
        m.comm_ns += comm;
        m.memory_ns += memory;
        m.overlapped_ns += comm && compute;
        m.exposed_comm_ns += comm && !compute;
        m.exposed_comm_vs_memory_ns += comm && !compute && !memory;
        m.busy_ns += bits != 0;
        m.idle_ns += bits == 0;
    }
    return m;
}

static void check_equal(Metrics expect, Metrics got)
{
    CHECK_INT(expect.span_ns, got.span_ns);
    CHECK_INT(expect.busy_ns, got.busy_ns);
    CHECK_INT(expect.idle_ns, got.idle_ns);
    CHECK_INT(expect.compute_ns, got.compute_ns);
    CHECK_INT(expect.comm_ns, got.comm_ns);
    CHECK_INT(expect.memory_ns, got.memory_ns);
    CHECK_INT(expect.overlapped_ns, got.overlapped_ns);
    CHECK_INT(expect.exposed_comm_ns, got.exposed_comm_ns);
    CHECK_INT(expect.exposed_comm_vs_memory_ns, got.exposed_comm_vs_memory_ns);
}

/* ---- random timelines ---- */

static uint64_t state;

static uint32_t below(uint32_t n)
{
    state = mix_u64(state);
    return (uint32_t)(state % n);
}

/* Spans overlap within a stream too, touch, and some have no length. */
static void fill(World *w, uint32_t spans_n)
{
    static const SpanClass classes[] = { SPAN_COMPUTE, SPAN_COMM, SPAN_P2P,
                                         SPAN_MEMORY,  SPAN_SYNC, SPAN_NOTE };
    uint32_t tracks[6];
    for (uint32_t k = 0; k < 6; k++)
        tracks[k] = k == 5 ? world_host(w, 0) : world_stream(w, k / 3, k);
    for (uint32_t i = 0; i < spans_n; i++) {
        int64_t start = below(LENGTH - 40), n = below(3) ? below(20) : below(40);
        world_span(w, tracks[below(6)], classes[below(ARRAY_N(classes))], "x", start,
                   start + (below(8) ? n : 0));
    }
    timeline_seal(&w->t);
}

static void find_ends(const Timeline *t, uint32_t rank, int64_t *begin, int64_t *end)
{
    *begin = INT64_MAX;
    *end = INT64_MIN;
    for (uint64_t i = 0; i < t->spans_n; i++) {
        const Track *track = &t->tracks[t->span_track[i]];
        if (track->rank != rank || track->kind != TRACK_STREAM || !cover_bit(t->span_class[i]))
            continue;
        *begin = min_i64(*begin, t->start_ns[i]);
        *end = max_i64(*end, t->start_ns[i] + t->dur_ns[i]);
    }
}

static uint64_t starts_between(const Timeline *t, uint32_t rank, int64_t from, int64_t to,
                               uint8_t bit)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < t->spans_n; i++) {
        const Track *track = &t->tracks[t->span_track[i]];
        n += track->rank == rank && track->kind == TRACK_STREAM &&
             cover_bit(t->span_class[i]) == bit && t->start_ns[i] >= from &&
             t->start_ns[i] < to;
    }
    return n;
}

static void check_rank(const Timeline *t, const Cover *c)
{
    Bitmap b = draw(t, c->rank);
    int64_t begin, end;
    find_ends(t, c->rank, &begin, &end);
    if (begin > end) {
        CHECK_U64(0, c->n);
        return;
    }
    CHECK_INT(begin, c->begin_ns);
    CHECK_INT(end, c->end_ns);
    Metrics all = metrics_of_rank(c);
    check_equal(count_bits(&b, begin, end), all);
    CHECK_U64(starts_between(t, c->rank, 0, LENGTH, COVER_COMM), all.comm_kernels);

    CoverCursor cursor = { .cover = c };
    for (int i = 0; i < 20; i++) {
        int64_t from = below(LENGTH), to = from + below((uint32_t)(LENGTH - from) + 1);
        Metrics m = metrics_of_window(c, t, from, to);
        check_equal(count_bits(&b, from, to), m);
        check_equal(count_bits(&b, from, to), metrics_of_sum(cover_next(&cursor, from, to)));
        CHECK_U64(starts_between(t, c->rank, from, to, COVER_COMPUTE), m.compute_kernels);
        CHECK_U64(starts_between(t, c->rank, from, to, COVER_MEMORY), m.memory_ops);
    }
}

static void unions_equal_a_bitmap(void)
{
    state = 1;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        World w = { 0 };
        Covers covers;
        fill(&w, below(round % 2 ? 12 : 300));
        covers_build(&covers, &w.t);
        CHECK_INT(2, covers.n);
        for (uint32_t r = 0; r < covers.n; r++)
            check_rank(&w.t, &covers.rank[r]);
        covers_free(&covers);
        world_free(&w);
    }
}

/* Enough moments for several blocks of sums. */
static void long_covers_are_found_by_blocks(void)
{
    enum { N = 5000 };
    World w = { 0 };
    uint32_t gpu = world_stream(&w, 0, 0);
    for (int64_t i = 0; i < N; i++)
        world_span(&w, gpu, i % 2 ? SPAN_COMM : SPAN_COMPUTE, "x", 10 * i, 10 * i + 6);
    timeline_seal(&w.t);
    Covers covers;
    covers_build(&covers, &w.t);
    const Cover *c = &covers.rank[0];
    CHECK_U64(2 * N, c->n);
    CoverCursor cursor = { .cover = c };
    for (int64_t i = 0; i < N; i += 37)
        for (int64_t n = 1; i + n < N; n += 777) {
            CoverSum a = cover_window(c, 10 * i, 10 * (i + n));
            CoverSum b = cover_next(&cursor, 10 * i, 10 * (i + n));
            CHECK_INT(4 * n, a.ns[0]);
            CHECK_INT(6 * n, a.ns[COVER_COMPUTE] + a.ns[COVER_COMM]);
            CHECK(memcmp(&a, &b, sizeof a) == 0);
        }
    covers_free(&covers);
    world_free(&w);
}

static void an_empty_timeline_has_no_ranks(void)
{
    Timeline t = { 0 };
    timeline_seal(&t);
    Covers covers;
    StepWindows steps;
    covers_build(&covers, &t);
    step_windows_find(&steps, &t);
    CHECK_INT(0, covers.n);
    CHECK_INT(0, steps.n);
    CHECK(!covers_of_rank(&covers, 0));
    covers_free(&covers);
    step_windows_free(&steps);
    timeline_free(&t);
}

static void one_event_without_length_is_a_span_of_nothing(void)
{
    World w = { 0 };
    world_span(&w, world_stream(&w, 3, 0), SPAN_COMM, "x", 50, 50);
    timeline_seal(&w.t);
    Covers covers;
    covers_build(&covers, &w.t);
    Metrics m = metrics_of_rank(covers_of_rank(&covers, 3));
    CHECK_INT(0, m.span_ns);
    CHECK_INT(0, m.comm_ns);
    CHECK_U64(1, m.comm_kernels);
    CHECK(isnan(metrics_overlap_pct(&m)));
    covers_free(&covers);
    world_free(&w);
}

static void times_scaled_scale_the_figures(void)
{
    int64_t busy_ns[2];
    for (int64_t scale = 1; scale <= 1000; scale *= 1000) {
        World w = { 0 };
        uint32_t a = world_stream(&w, 0, 0), b = world_stream(&w, 0, 1);
        world_span(&w, a, SPAN_COMPUTE, "x", 0, 30 * scale);
        world_span(&w, b, SPAN_COMM, "y", 20 * scale, 70 * scale);
        world_span(&w, a, SPAN_MEMORY, "z", 90 * scale, 100 * scale);
        timeline_seal(&w.t);
        Covers covers;
        covers_build(&covers, &w.t);
        Metrics m = metrics_of_rank(&covers.rank[0]);
        CHECK_INT(100 * scale, m.span_ns);
        CHECK_INT(10 * scale, m.overlapped_ns);
        CHECK_NEAR(20, metrics_overlap_pct(&m), 1e-12);
        busy_ns[scale > 1] = m.busy_ns;
        covers_free(&covers);
        world_free(&w);
    }
    CHECK_INT(1000 * busy_ns[0], busy_ns[1]);
}

static void steps_are_numbered_by_their_names(void)
{
    World w = { 0 };
    uint32_t steps = timeline_track(&w.t, 1, TRACK_STEPS, "steps", 0);
    uint32_t host = world_host(&w, 1), other = world_host(&w, 2);
    world_span(&w, steps, SPAN_STEP, "ProfilerStep#11", 0, 100);
    world_span(&w, steps, SPAN_STEP, "ProfilerStep#12", 100, 250);
    world_span(&w, steps, SPAN_STEP, "ProfilerStep#12", 300, 400); /* again: the first counts */
    world_span(&w, host, SPAN_STEP, "ProfilerStep#99", 0, 100);    /* there is a track */
    world_span(&w, other, SPAN_STEP, "warm up", 5, 6);
    world_span(&w, other, SPAN_STEP, "train", 7, 9);
    timeline_seal(&w.t);
    StepWindows found;
    step_windows_find(&found, &w.t);
    CHECK_INT(4, found.n);
    const StepWindow *s = step_window_of(&found, 1, 12);
    if (CHECK(s != NULL)) {
        CHECK_INT(100, s->from_ns);
        CHECK_INT(250, s->to_ns);
    }
    CHECK(step_window_of(&found, 2, 1) != NULL);
    CHECK(!step_window_of(&found, 1, 99));
    step_windows_free(&found);
    world_free(&w);
}

int main(void)
{
    RUN(unions_equal_a_bitmap);
    RUN(long_covers_are_found_by_blocks);
    RUN(an_empty_timeline_has_no_ranks);
    RUN(one_event_without_length_is_a_span_of_nothing);
    RUN(times_scaled_scale_the_figures);
    RUN(steps_are_numbered_by_their_names);
    return check_report();
}

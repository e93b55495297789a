/*
 * test_timeline.c - sealing against models too simple to be wrong: the order
 * against a stable selection by pairs, lanes against trying them one by one.
 */
#include "core/lanes.h"
#include "core/timeline.h"
#include "tests/check.h"

enum { SMALL_MAX = 200, TRACKS = 4 };

static uint64_t random_state;

static uint64_t draw(uint64_t below)
{
    random_state = mix_u64(random_state);
    return random_state % below;
}

static Span span_at(uint32_t track, int64_t start_ns, int64_t dur_ns)
{
    return (Span){ .track = track,
                   .class_ = track == 0 ? SPAN_HOST : SPAN_COMPUTE,
                   .start_ns = start_ns,
                   .dur_ns = dur_ns,
                   .op = NONE_U32,
                   .comm = NONE_U32 };
}

/* A timeline of TRACKS tracks whose spans are named "x". */
static void begin(Timeline *t)
{
    *t = (Timeline){ 0 };
    intern(&t->names, "x");
    for (uint32_t k = 0; k < TRACKS; k++)
        timeline_track(t, k / 2, k == 0 ? TRACK_HOST : TRACK_STREAM, "track", k);
}

/* ---- order ---- */

/* The rows of a timeline before sealing; op is the number of insertion. */
typedef struct Model {
    Span span[SMALL_MAX];
    uint32_t n;
} Model;

static bool belongs_before(const Span *a, const Span *b)
{
    if (a->track != b->track)
        return a->track < b->track;
    if (a->start_ns != b->start_ns)
        return a->start_ns < b->start_ns;
    if (a->dur_ns != b->dur_ns)
        return a->dur_ns > b->dur_ns;
    return a->op < b->op;
}

/* Where a span belongs: after as many as belong before it. */
static uint32_t place_in_model(const Model *m, uint32_t i)
{
    uint32_t place = 0;
    for (uint32_t j = 0; j < m->n; j++)
        place += belongs_before(&m->span[j], &m->span[i]);
    return place;
}

static void check_order(const Timeline *t, const Model *m)
{
    CHECK_U64(m->n, t->spans_n);
    for (uint32_t i = 0; i < m->n; i++) {
        uint32_t at = place_in_model(m, i);
        CHECK_INT(i, t->op[at]);
        CHECK_INT(m->span[i].start_ns, t->start_ns[at]);
        CHECK_INT(m->span[i].dur_ns, t->dur_ns[at]);
        CHECK_INT(m->span[i].track, t->span_track[at]);
        CHECK_U64(i + 1000, t->correlation[at]);
        CHECK_U64(i + 2000, t->args_offset[at]);
        CHECK_STR(i == 0 ? "" : i % 2 ? "odd" : "even", timeline_op_name(t, at));
        LogicalOps of = timeline_logical_of(t, at);
        CHECK_INT(i % 3, of.n);
        CHECK(of.n == 0 || (of.instance == i + 3000 && of.op[of.n - 1] == i % 5 + of.n));
    }
    for (uint32_t k = 0; k < TRACKS; k++)
        for (uint64_t i = 0; i < t->tracks[k].span_n; i++)
            CHECK_INT(k, t->span_track[t->tracks[k].span_first + i]);
}

static void draw_model(Model *m)
{
    m->n = (uint32_t)draw(SMALL_MAX);
    int64_t reach = (int64_t)draw(300) + 1; /* small: many equal starts */
    int64_t step = (int64_t)draw(3);        /* 0: random order, more: nearly sorted */
    for (uint32_t i = 0; i < m->n; i++) {
        int64_t at = step * i + (int64_t)draw((uint64_t)reach) - 100;
        m->span[i] = span_at((uint32_t)draw(TRACKS), at, (int64_t)draw(20));
        m->span[i].op = i;
    }
}

static void sealing_sorts_by_track_start_length_and_insertion(void)
{
    for (random_state = 1; random_state < 400; random_state++) {
        uint64_t seed = random_state;
        Model m;
        draw_model(&m);
        Timeline t;
        begin(&t);
        timeline_want(&t, true, true);
        for (uint32_t i = 0; i < m.n; i++) {
            uint64_t at = timeline_span(&t, m.span[i]);
            CHECK_U64(NONE_U64, t.correlation[at]);
            t.correlation[at] = i + 1000;
            t.args_offset[at] = i + 2000;
            if (i > 0) /* the column comes with the second span */
                timeline_set_op_name(&t, at, intern(&t.names, i % 2 ? "odd" : "even"));
            uint32_t ops[] = { i % 5 + 1, i % 5 + 2 };
            timeline_set_logical(&t, at, (LogicalOps){ i + 3000, i % 3, ops });
        }
        CHECK(t.logical_lists_n <= 5 * 2 + 5 * 3); /* equal lists stand once */
        timeline_seal(&t);
        check_order(&t, &m);
        Err err = { 0 };
        CHECK(timeline_check(&t, &err));
        timeline_free(&t);
        random_state = seed;
    }
}

/* One track of many spans, so that the merge sort goes deep. */
static void check_long_track(int64_t (*start_of)(int64_t i))
{
    enum { N = 10000 };
    Timeline t;
    begin(&t);
    for (int64_t i = 0; i < N; i++) {
        Span s = span_at(1, start_of(i), i % 3);
        s.op = (uint32_t)i;
        timeline_span(&t, s);
    }
    timeline_seal(&t);
    Err err = { 0 };
    CHECK(timeline_check(&t, &err));
    uint64_t sum = 0;
    for (uint64_t i = 0; i < N; i++) {
        sum += t.op[i];
        CHECK_INT(start_of(t.op[i]), t.start_ns[i]);
        if (i > 0 && t.start_ns[i] == t.start_ns[i - 1] && t.dur_ns[i] == t.dur_ns[i - 1])
            CHECK(t.op[i] > t.op[i - 1]);
    }
    CHECK_U64((uint64_t)N * (N - 1) / 2, sum);
    timeline_free(&t);
}

static int64_t scattered(int64_t i)
{
    return (int64_t)(mix_u64((uint64_t)i) % 5000);
}

static int64_t backwards(int64_t i)
{
    return -i / 2;
}

static int64_t one_straggler(int64_t i)
{
    return i == 7777 ? 3 : i;
}

static int64_t all_equal(int64_t i)
{
    return 0 * i;
}

static void long_tracks_are_sorted_whatever_their_order(void)
{
    check_long_track(scattered);
    check_long_track(backwards);
    check_long_track(one_straggler);
    check_long_track(all_equal);
}

static void sealing_twice_changes_nothing(void)
{
    Timeline t;
    begin(&t);
    timeline_span(&t, span_at(1, 30, 5));
    timeline_span(&t, span_at(1, 10, 5));
    timeline_seal(&t);
    timeline_seal(&t);
    CHECK_U64(2, t.spans_n);
    CHECK_INT(10, t.start_ns[0]);
    CHECK_INT(30, t.start_ns[1]);
    timeline_free(&t);
}

static void spans_in_order_are_not_moved(void)
{
    Timeline t;
    begin(&t);
    for (uint32_t k = 0; k < 2; k++)
        for (int64_t i = 0; i < 10; i++)
            timeline_span(&t, span_at(k, 10 * i, 5));
    const int64_t *column = t.start_ns;
    timeline_seal(&t);
    CHECK(column == t.start_ns);
    timeline_free(&t);
}

static void an_empty_timeline_seals(void)
{
    Timeline t = { 0 };
    timeline_seal(&t);
    Err err = { 0 };
    CHECK(timeline_check(&t, &err));
    CHECK_INT(0, timeline_begin_ns(&t));
    CHECK_INT(0, timeline_end_ns(&t));
    timeline_free(&t);
    CHECK(!t.sealed && t.tracks == NULL);
}

static void counter_points_are_sorted_by_track_and_time(void)
{
    Timeline t = { 0 };
    uint32_t a = timeline_track(&t, 0, TRACK_COUNTER, "memory", 0);
    uint32_t b = timeline_track(&t, 0, TRACK_COUNTER, "link", 1);
    timeline_point(&t, b, 5, 1);
    timeline_point(&t, a, 9, 2);
    timeline_point(&t, a, 3, 3);
    timeline_point(&t, b, 5, 4);
    timeline_point(&t, a, 9, 5);
    timeline_seal(&t);

    const double expect[] = { 3, 2, 5, 1, 4 }; /* equal times keep their order */
    for (size_t i = 0; i < ARRAY_N(expect); i++)
        CHECK_NEAR(expect[i], t.point_value[i], 0);
    CHECK_U64(0, t.tracks[a].point_first);
    CHECK_U64(3, t.tracks[a].point_n);
    CHECK_U64(3, t.tracks[b].point_first);
    CHECK_U64(2, t.tracks[b].point_n);
    CHECK_INT(3, timeline_begin_ns(&t));
    CHECK_INT(9, timeline_end_ns(&t));
    timeline_free(&t);
}

static void ends_are_the_smallest_start_and_the_largest_end(void)
{
    Timeline t;
    begin(&t);
    timeline_span(&t, span_at(1, -7, 100));
    timeline_span(&t, span_at(1, 20, 5));
    timeline_seal(&t);
    CHECK_INT(-7, timeline_begin_ns(&t));
    CHECK_INT(93, timeline_end_ns(&t));
    timeline_free(&t);
}

/* ---- lanes ---- */

static bool overlap(int64_t a_start, int64_t a_dur, int64_t b_start, int64_t b_dur)
{
    return a_start < b_start + b_dur && b_start < a_start + a_dur;
}

/* The definition: the lowest lane none of whose spans overlaps this one. */
static uint32_t lane_by_trying(const Timeline *t, uint64_t first, uint64_t i)
{
    for (uint32_t lane = 0;; lane++) {
        bool is_free = true;
        for (uint64_t j = first; j < i; j++)
            is_free &= t->lane[j] != lane ||
                       !overlap(t->start_ns[j], t->dur_ns[j], t->start_ns[i], t->dur_ns[i]);
        if (is_free)
            return lane;
    }
}

static void check_lanes(const Timeline *t, const Track *k)
{
    uint32_t lanes_n = 0;
    for (uint64_t i = k->span_first; i < k->span_first + k->span_n; i++) {
        CHECK_INT(lane_by_trying(t, k->span_first, i), t->lane[i]);
        if (lanes_n <= t->lane[i])
            lanes_n = t->lane[i] + 1u;
    }
    CHECK_INT(lanes_n, k->lanes_n);
}

static void spans_get_the_lowest_lane_that_is_free(void)
{
    for (uint64_t seed = 1; seed < 400; seed++) {
        random_state = seed;
        Timeline t;
        begin(&t);
        uint64_t n = draw(SMALL_MAX), reach = draw(2000) + 1, longest = draw(60) + 1;
        for (uint64_t i = 0; i < n; i++)
            timeline_span(&t, span_at((uint32_t)draw(TRACKS), (int64_t)draw(reach),
                                      (int64_t)draw(longest)));
        timeline_seal(&t);
        for (uint32_t k = 0; k < TRACKS; k++)
            check_lanes(&t, &t.tracks[k]);
        timeline_free(&t);
    }
}

/* Calls as a thread makes them, depth written into op. */
static int64_t draw_calls(Timeline *t, int64_t at, uint32_t depth)
{
    int64_t start = at;
    at += 1 + (int64_t)draw(3);
    for (uint64_t children = depth < 8 ? draw(4) : 0; children > 0; children--)
        at = draw_calls(t, at, depth + 1) + (int64_t)draw(2);
    at += 1 + (int64_t)draw(3);
    Span s = span_at(0, start, at - start);
    s.op = depth;
    timeline_span(t, s);
    return at;
}

static void lanes_of_nested_calls_are_their_depth(void)
{
    for (uint64_t seed = 1; seed < 100; seed++) {
        random_state = seed;
        Timeline t;
        begin(&t);
        int64_t at = 0;
        for (uint64_t i = 0; i < 5; i++)
            at = draw_calls(&t, at, 0);
        timeline_seal(&t);
        for (uint64_t i = 0; i < t.spans_n; i++)
            CHECK_INT(t.op[i], t.lane[i]);
        timeline_free(&t);
    }
}

static void touching_and_empty_spans_share_a_lane(void)
{
    Timeline t;
    begin(&t);
    timeline_span(&t, span_at(1, 0, 10));
    timeline_span(&t, span_at(1, 0, 0));
    timeline_span(&t, span_at(1, 10, 0));
    timeline_span(&t, span_at(1, 10, 10));
    timeline_span(&t, span_at(1, 20, 0));
    timeline_seal(&t);
    CHECK_INT(1, t.tracks[1].lanes_n);
    timeline_free(&t);
}

static void an_empty_span_within_another_has_its_own_lane(void)
{
    Timeline t;
    begin(&t);
    timeline_span(&t, span_at(1, 0, 10));
    timeline_span(&t, span_at(1, 5, 0));
    timeline_span(&t, span_at(1, 5, 0));
    timeline_seal(&t);
    CHECK_INT(2, t.tracks[1].lanes_n);
    CHECK_INT(1, t.lane[1]);
    CHECK_INT(1, t.lane[2]);
    timeline_free(&t);
}

static void more_lanes_than_a_byte_holds_are_counted_all_the_same(void)
{
    Timeline t;
    begin(&t);
    for (int64_t i = 0; i < 1000; i++)
        timeline_span(&t, span_at(1, i, 5000));
    timeline_seal(&t);
    CHECK_INT(1000, t.tracks[1].lanes_n);
    CHECK_INT(254, t.lane[254]);
    CHECK_INT(255, t.lane[255]);
    CHECK_INT(255, t.lane[999]);
    Err err = { 0 };
    CHECK(timeline_check(&t, &err));
    timeline_free(&t);
}

static void lanes_are_handed_out_without_a_limit(void)
{
    Lanes l = { 0 };
    for (uint32_t i = 0; i < 100000; i++)
        CHECK_INT(i, lanes_take(&l, i, 1000000));
    CHECK_INT(0, lanes_take(&l, 1000000, 1)); /* the first one ends here */
    lanes_clear(&l);
    CHECK_INT(0, lanes_take(&l, -5, 1));
    lanes_free(&l);
}

/* ---- reading ---- */

static void bus_bandwidth_is_that_of_nccl_tests(void)
{
    Timeline t;
    begin(&t);
    Comm c = comm_of(intern(&t.names, "all_reduce"));
    c.ranks_n = 8;
    c.bytes = 1000;
    c.wait_ns = 50;
    Span s = span_at(1, 0, 150);
    s.class_ = SPAN_COMM;
    s.comm = timeline_comm(&t, c);
    timeline_span(&t, s);
    c.op = intern(&t.names, "all_gather");
    s.comm = timeline_comm(&t, c);
    timeline_span(&t, s);
    c.op = intern(&t.names, "broadcast");
    s.comm = timeline_comm(&t, c);
    timeline_span(&t, s);
    c.wait_ns = 150; /* never transferred */
    s.comm = timeline_comm(&t, c);
    timeline_span(&t, s);
    timeline_seal(&t);
    CHECK_NEAR(10 * 2 * 7.0 / 8, timeline_busbw_bytes_per_ns(&t, 0), 1e-12);
    CHECK_NEAR(10 * 7.0 / 8, timeline_busbw_bytes_per_ns(&t, 1), 1e-12);
    CHECK_NEAR(10, timeline_busbw_bytes_per_ns(&t, 2), 1e-12);
    CHECK_NEAR(0, timeline_busbw_bytes_per_ns(&t, 3), 0);
    timeline_free(&t);
}

static void waiting_is_never_more_than_the_span(void)
{
    Timeline t;
    begin(&t);
    Comm c = comm_of(intern(&t.names, "send"));
    const int64_t wait_ns[] = { -1, 0, 7, 500 }, expect[] = { 0, 0, 7, 100 };
    for (size_t i = 0; i < ARRAY_N(wait_ns); i++) {
        Span s = span_at(1, (int64_t)i, 100);
        c.wait_ns = wait_ns[i];
        s.comm = timeline_comm(&t, c);
        CHECK_INT(expect[i], timeline_wait_ns(&t, timeline_span(&t, s)));
    }
    CHECK_INT(0, timeline_wait_ns(&t, timeline_span(&t, span_at(1, 9, 9))));
    timeline_free(&t);
}

static void tracks_stand_in_the_order_people_want(void)
{
    Timeline t = { 0 };
    timeline_track(&t, 1, TRACK_STREAM, "b", 7);
    timeline_track(&t, 0, TRACK_HOST, "host", 0);
    timeline_track(&t, 1, TRACK_STREAM, "a", 2);
    timeline_track(&t, 0, TRACK_COUNTER, "memory", 0);
    timeline_track(&t, 0, TRACK_STREAM, "c", 0);
    timeline_track(&t, 0, TRACK_STEPS, "steps", 9);
    timeline_track(&t, 0, TRACK_STREAM, "d", 0);
    uint32_t order[7];
    const uint32_t expect[7] = { 5, 4, 6, 3, 1, 2, 0 };
    timeline_track_order(&t, order);
    for (size_t i = 0; i < ARRAY_N(order); i++)
        CHECK_INT(expect[i], order[i]);
    CHECK_INT(2, t.ranks_n);
    timeline_free(&t);
}

static void a_name_that_does_not_exist_reads_as_nothing(void)
{
    Timeline t;
    begin(&t);
    CHECK_STR("x", timeline_text(&t, 0));
    CHECK_STR("", timeline_text(&t, NONE_U32));
    CHECK_STR("", timeline_text(&t, 99));
    CHECK(t.name == NULL);
    timeline_set_name(&t, "llama");
    CHECK_STR("llama", t.name);
    timeline_free(&t);
}

/* ---- what else a span may say ---- */

static void lists_of_logical_ops_have_limits(void)
{
    Timeline t;
    uint32_t ops[TIMELINE_LOGICAL_OPS_MAX + 1] = { 0 };
    begin(&t);
    uint64_t many = timeline_span(&t, span_at(1, 0, 10));
    timeline_set_logical(&t, many, (LogicalOps){ 7, ARRAY_N(ops), ops });
    CHECK_INT(0, timeline_logical_of(&t, many).n);
    const uint32_t full = TIMELINE_LOGICAL_LISTS_MAX / 257;
    for (uint32_t i = 0; i <= full; i++) { /* all different */
        ops[0] = i;
        uint64_t at = timeline_span(&t, span_at(1, 10 * i, 10));
        timeline_set_logical(&t, at, (LogicalOps){ 7, TIMELINE_LOGICAL_OPS_MAX, ops });
        LogicalOps of = timeline_logical_of(&t, at);
        CHECK(i < full ? of.n == TIMELINE_LOGICAL_OPS_MAX && of.op[0] == i : of.n == 0);
    }
    timeline_free(&t);
}

static void communication_may_be_a_step_of_a_ring(void)
{
    Timeline t;
    begin(&t);
    for (uint32_t i = 0; i < 100; i++) {
        uint32_t c = timeline_comm(&t, comm_of(0));
        timeline_set_ring(&t, c, i % 3 == 1 ? i : 0);
    }
    for (uint32_t i = 0; i < 100; i++)
        CHECK_INT(i % 3 == 1 && i > 1 ? i : 0, timeline_ring_steps(&t, &t.comms[i]));
    timeline_free(&t);
}

/* ---- checking ---- */

static void build_for_checks(Timeline *t)
{
    begin(t);
    timeline_track(t, 0, TRACK_COUNTER, "memory", 0);
    Span s = span_at(1, 0, 10);
    s.comm = timeline_comm(t, comm_of(0));
    timeline_set_ring(t, s.comm, 3);
    timeline_set_logical(t, timeline_span(t, s), (LogicalOps){ 1, 2, (uint32_t[]){ 4, 5 } });
    timeline_set_op_name(t, timeline_span(t, span_at(1, 10, 10)), 0);
    timeline_point(t, TRACKS, 0, 1);
    timeline_point(t, TRACKS, 5, 2);
    timeline_seal(t);
}

/* Its last track of spans gives one up. */
static void lose_span(Timeline *t)
{
    t->tracks[1].span_n = 1;
    for (uint32_t k = 2; k < t->tracks_n; k++)
        t->tracks[k].span_first = 1;
}

#define CHECK_REFUSED(text, damage) \
    do { \
        Timeline t; \
        Err err = { 0 }; \
        build_for_checks(&t); \
        damage; \
        CHECK(!timeline_check(&t, &err)); \
        CHECK_ERR_TEXT(&err, text); \
        timeline_free(&t); \
    } while (0)

static void every_broken_rule_is_named(void)
{
    CHECK_REFUSED("span 1 has name 900 of 3", t.span_name[1] = 900);
    CHECK_REFUSED("span 0 has communication 5 of 1", t.comm[0] = 5);
    CHECK_REFUSED("span 0 has an op of name 77 of 3", t.op_name[0] = 77);
    CHECK_REFUSED("span 0 has logical ops that are not there", t.logical[0] += 3);
    CHECK_REFUSED("span 0 has logical ops that are not there", t.logical_lists[0] = 3);
    CHECK_REFUSED("communication 0 is one of 16777217 steps, 0 to 16777216 allowed",
                  t.comm_ring[0] = 16777217);
    CHECK_REFUSED("span 0 is of class 77, 0 to 8 allowed", t.span_class[0] = 77);
    CHECK_REFUSED("span 1 has track 2, not 1", t.span_track[1] = 2);
    CHECK_REFUSED("span 1 has times out of range", t.dur_ns[1] = -1);
    CHECK_REFUSED("span 1 has times out of range", t.start_ns[1] = INT64_MAX);
    CHECK_REFUSED("span 1 has times out of range", t.end_ns = 19);
    CHECK_REFUSED("span 0 has lane 3 of 1", t.lane[0] = 3);
    CHECK_REFUSED("span 1 is out of order", t.start_ns[0] = 11; t.dur_ns[0] = 1);
    CHECK_REFUSED("span 1 is out of order", t.start_ns[1] = 0; t.dur_ns[1] = 20);
    CHECK_REFUSED("begin or end is out of range", t.begin_ns = INT64_MIN);
    CHECK_REFUSED("track 0 has name 44 of 3", t.tracks[0].name = 44);
    CHECK_REFUSED("track 0 is of kind 9, 0 to 3 allowed", t.tracks[0].kind = (TrackKind)9);
    CHECK_REFUSED("track 2 is of rank 2 of 2", t.tracks[2].rank = 2);
    CHECK_REFUSED("track 3 stands for no rank", t.tracks[3].ranks_n = 0);
    CHECK_REFUSED("track 1 has spans 0 to 9 of 2", t.tracks[1].span_n = 9);
    CHECK_REFUSED("track 2 has spans 1 to 1 of 2", t.tracks[2].span_first = 1);
    CHECK_REFUSED("track 4 has points 0 to 3 of 2", t.tracks[4].point_n = 3);
    CHECK_REFUSED("1 spans are on no track", lose_span(&t));
    CHECK_REFUSED("track 1 has 3 lanes for 2 spans", t.tracks[1].lanes_n = 3);
    CHECK_REFUSED("track 1 has 0 lanes for 2 spans", t.tracks[1].lanes_n = 0);
    CHECK_REFUSED("track 2 has 1 lanes for 0 spans", t.tracks[2].lanes_n = 1);
    CHECK_REFUSED("track 1 is of kind counter and has spans", t.tracks[1].kind = TRACK_COUNTER);
    CHECK_REFUSED("track 4 is of kind steps and has points", t.tracks[4].kind = TRACK_STEPS);
    CHECK_REFUSED("it has 16777217 ranks, 0 to 16777216 allowed", t.ranks_n = 16777217);
    CHECK_REFUSED("1 points are on no track", t.tracks[4].point_n = 1);
    CHECK_REFUSED("communication 0 has a name that does not exist", t.comms[0].dtype = 4);
    CHECK_REFUSED("communication 0 has values out of range", t.comms[0].wait_ns = -2);
    CHECK_REFUSED("communication 0 has launch 0 of 0", t.comms[0].launch = 1);
    CHECK_REFUSED("point 1 has track 3, not 4", t.point_track[1] = 3);
    CHECK_REFUSED("point 1 has values out of range", t.point_value[1] = (double)INFINITY);
    CHECK_REFUSED("point 1 has values out of range", t.point_ns[1] = 21);
    CHECK_REFUSED("point 1 is out of order", t.point_ns[0] = 6);
}

/* Large ones are checked by several threads; the first mistake is named all the same. */
static void of_many_mistakes_the_first_is_named(void)
{
    enum { STREAMS = 8, SPANS = 20000 };
    Timeline t = { 0 };
    Err err = { 0 };
    for (uint32_t k = 0; k < STREAMS; k++) {
        uint32_t track = timeline_track(&t, 0, TRACK_STREAM, "s", k);
        for (int i = 0; i < SPANS; i++)
            timeline_span(&t, (Span){ .track = track,
                                      .name = intern(&t.names, "kernel"),
                                      .start_ns = 10 * i,
                                      .dur_ns = 5,
                                      .op = NONE_U32,
                                      .comm = NONE_U32 });
    }
    timeline_seal(&t);
    CHECK(timeline_check(&t, &err));
    for (uint32_t k = 3; k < STREAMS; k++)
        t.dur_ns[t.tracks[k].span_first + 1] = -1;
    CHECK(!timeline_check(&t, &err));
    CHECK_ERR_TEXT(&err, "span 60001 has times out of range");
    timeline_free(&t);
}

/* ---- how kernels were launched ---- */

static void equal_launches_stand_once_and_stay_with_their_spans(void)
{
    enum { N = 3000, WAYS = 701 };
    Timeline t = { 0 };
    uint32_t track = timeline_track(&t, 0, TRACK_STREAM, "s", 0);
    uint32_t name = intern(&t.names, "k"), op = intern(&t.names, "all_reduce");
    for (uint32_t i = 0; i < N; i++) {
        KernelLaunch l = { { 1 + i % WAYS, 1, 1 }, { 128, 1, 1 }, 40, NONE_U32, NONE_U32 };
        uint64_t span = timeline_span(
            &t, (Span){ track, name, SPAN_COMPUTE, N - (int64_t)i, 1, NONE_U32, NONE_U32 });
        if (i % 3 == 1) /* known before the launch, or after */
            timeline_set_comm(&t, span, comm_of(op));
        if (i % 5)
            timeline_set_launch(&t, span, timeline_launch(&t, &l));
        if (i % 3 == 2)
            timeline_set_comm(&t, span, comm_of(op));
    }
    CHECK_INT(WAYS, (int)t.launches_n);
    timeline_seal(&t);
    Err err = { 0 };
    CHECK(timeline_check(&t, &err));
    for (uint64_t i = 0; i < N; i++) {
        uint32_t was = (uint32_t)(N - 1 - i);
        const KernelLaunch *l = timeline_launch_of(&t, i);
        CHECK((l != NULL) == (was % 5 != 0));
        CHECK(!l || (l->grid[0] == 1 + was % WAYS && l->registers_n == 40));
        CHECK((timeline_comm_of(&t, i) != NULL) == (was % 3 != 0));
    }
    uint64_t alone = N - 1 - 3;
    t.comm[alone] = TIMELINE_LAUNCH_FIRST + WAYS;
    CHECK(timeline_launch_of(&t, alone) == NULL && timeline_comm_of(&t, alone) == NULL);
    CHECK(!timeline_check(&t, &err));
    CHECK_ERR_TEXT(&err, "has communication 2147484349 of ");
    timeline_free(&t);
}

int main(void)
{
    RUN(sealing_sorts_by_track_start_length_and_insertion);
    RUN(long_tracks_are_sorted_whatever_their_order);
    RUN(sealing_twice_changes_nothing);
    RUN(spans_in_order_are_not_moved);
    RUN(an_empty_timeline_seals);
    RUN(counter_points_are_sorted_by_track_and_time);
    RUN(ends_are_the_smallest_start_and_the_largest_end);
    RUN(spans_get_the_lowest_lane_that_is_free);
    RUN(lanes_of_nested_calls_are_their_depth);
    RUN(touching_and_empty_spans_share_a_lane);
    RUN(an_empty_span_within_another_has_its_own_lane);
    RUN(more_lanes_than_a_byte_holds_are_counted_all_the_same);
    RUN(lanes_are_handed_out_without_a_limit);
    RUN(bus_bandwidth_is_that_of_nccl_tests);
    RUN(waiting_is_never_more_than_the_span);
    RUN(tracks_stand_in_the_order_people_want);
    RUN(a_name_that_does_not_exist_reads_as_nothing);
    RUN(lists_of_logical_ops_have_limits);
    RUN(communication_may_be_a_step_of_a_ring);
    RUN(every_broken_rule_is_named);
    RUN(of_many_mistakes_the_first_is_named);
    RUN(equal_launches_stand_once_and_stay_with_their_spans);
    return check_report();
}

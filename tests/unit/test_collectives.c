/* Matching, waiting and clocks on timelines small enough to work out by hand. */
#include "profile/collectives.h"
#include "tests/check.h"
#include "tests/trace_world.h"

typedef struct Found {
    Covers covers;
    Collectives c;
} Found;

static Found find(World *w)
{
    Found f;
    timeline_seal(&w->t);
    covers_build(&f.covers, &w->t);
    collectives_find(&f.c, &w->t, &f.covers, NULL);
    return f;
}

static void done(Found *f, World *w)
{
    collectives_free(&f->c);
    covers_free(&f->covers);
    world_free(w);
}

static Coll all_reduce(int64_t seq)
{
    return (Coll){ .op = "all_reduce",
                   .group = "dp",
                   .seq = seq,
                   .bytes = 1000,
                   .wait_ns = -1,
                   .ranks_n = 3 };
}

/*
 * Three ranks, two collectives.  The first begins at 0, 40, 70 and ends at 100: 30
 * is transfer.  The second begins at 210, 200, 200 and ends at 220: 10 is transfer.
 */
static void build_three(World *w, bool numbered, const char *group)
{
    static const int64_t first[] = { 0, 40, 70 }, second[] = { 210, 200, 200 };
    for (uint32_t r = 0; r < 3; r++) {
        uint32_t gpu = world_stream(w, r, 7), comm = world_stream(w, r, 20 + r);
        Coll c = all_reduce(numbered ? 0 : -1);
        c.group = group;
        world_comm(w, comm, c, first[r], 100);
        c.seq = numbered ? 1 : -1;
        world_comm(w, comm, c, second[r], 220);
        world_span(w, gpu, SPAN_COMPUTE, "gemm", 20, 60);
    }
}

static void check_three(const Collectives *c, MatchBy by)
{
    CHECK_U64(2, c->matches_n);
    CHECK_U64(0, c->unmatched_n);
    CHECK_INT(1, c->channels_n);
    CHECK_INT(by, c->channels[0].by);
    CHECK_INT(30 + 10, c->transfer_ns);
    static const int64_t wait_ns[] = { 70, 30 + 10, 10 };
    for (uint32_t r = 0; r < 3; r++) {
        CHECK_INT(wait_ns[r], c->ranks[r].wait_ns);
        CHECK_INT(40, c->ranks[r].transfer_ns);
        CHECK_INT(wait_ns[r], c->ranks[r].early_ns); /* clocks agree: the same */
    }
    CHECK_U64(1, c->ranks[2].last_n);
    CHECK_INT((70 + 30) / 2, c->ranks[2].waited_ns);
    CHECK_U64(1, c->ranks[0].last_n);
    CHECK_INT(10, c->ranks[0].waited_ns);
    CHECK(c->clocks_compared && !c->clocks_differ);
    CHECK_INT(0, c->residual_max_ns);
    CHECK_INT(1, c->rows_n);
    CHECK_U64(2, c->rows[0].count);
    CHECK_INT(100 + 60 + 30 + 10 + 20 + 20, c->rows[0].total_ns);
    CHECK_INT(70 + 40 + 10, c->rows[0].wait_ns);
    CHECK_INT(c->rows[0].total_ns, c->rows[0].wait_ns + c->rows[0].transfer_ns);
    CHECK_INT(c->rows[0].total_ns - 40 - 20, c->rows[0].exposed_ns); /* beside the gemm */
}

static void numbers_match(void)
{
    World w = { 0 };
    build_three(&w, true, "dp");
    Found f = find(&w);
    check_three(&f.c, MATCH_BY_NUMBER);
    /* median of 10 and 30, the upper one: 1000 bytes in 30 ns; 2 (n - 1) / n of it */
    CHECK_NEAR(1000.0 / 30, f.c.rows[0].algbw_GBps, 1e-12);
    CHECK_NEAR(1000.0 / 30 * 4 / 3, f.c.rows[0].busbw_GBps, 1e-12);
    done(&f, &w);
}

static void without_numbers_the_order_within_a_group_matches(void)
{
    World w = { 0 };
    build_three(&w, false, "dp");
    Found f = find(&w);
    check_three(&f.c, MATCH_BY_GROUP);
    done(&f, &w);
}

static void without_groups_streams_match(void)
{
    World w = { 0 };
    build_three(&w, false, NULL);
    Found f = find(&w);
    check_three(&f.c, MATCH_BY_STREAM);
    done(&f, &w);
}

static void without_anything_kernels_of_streams_match(void)
{
    World w = { 0 };
    build_three(&w, false, NULL);
    for (uint64_t i = 0; i < w.t.spans_n; i++)
        w.t.comm[i] = NONE_U32;
    Found f = find(&w);
    check_three(&f.c, MATCH_BY_STREAM);
    CHECK_STR("ncclDevKernel", f.c.rows[0].name);
    CHECK(isnan(f.c.rows[0].algbw_GBps));
    done(&f, &w);
}

static void a_clock_that_is_a_second_ahead_is_found(void)
{
    static const int64_t second = 1000000000;
    World w = { 0 };
    build_three(&w, true, "dp");
    for (uint64_t i = 0; i < w.t.spans_n; i++)
        if (w.t.tracks[w.t.span_track[i]].rank == 1)
            w.t.start_ns[i] += second;
    Found f = find(&w);
    CHECK(f.c.clocks_differ);
    CHECK_INT(0, f.c.ranks[0].offset_ns);
    CHECK_INT(second, f.c.ranks[1].offset_ns);
    CHECK_INT(0, f.c.ranks[2].offset_ns);
    CHECK_INT(0, f.c.residual_max_ns);
    CHECK_INT(70, f.c.ranks[0].early_ns); /* on aligned clocks */
    CHECK_INT(30 + 10, f.c.ranks[1].early_ns);
    CHECK_INT(70, f.c.ranks[0].wait_ns);
    CHECK_INT(100, collectives_aligned_ns(&f.c, 1, second + 100));
    done(&f, &w);
}

/* dp groups 0-1 and 2-3, joined by a tp group of 1 and 2: offsets travel along. */
static void offsets_travel_over_groups(void)
{
    World w = { 0 };
    static const int64_t ahead[] = { 0, 1000000, 3000000, 6000000 };
    for (uint32_t r = 0; r < 4; r++) {
        uint32_t gpu = world_stream(&w, r, 7);
        Coll c = {
            .op = "all_reduce", .group = "dp", .seq = 0, .wait_ns = -1, .group_id = r / 2
        };
        world_comm(&w, gpu, c, ahead[r], ahead[r] + 50);
        c.group = "tp";
        c.group_id = 1;
        if (r == 1 || r == 2)
            world_comm(&w, gpu, c, ahead[r] + 100, ahead[r] + 150);
    }
    Found f = find(&w);
    CHECK_INT(3, f.c.channels_n);
    CHECK_U64(3, f.c.matches_n);
    for (uint32_t r = 0; r < 4; r++)
        CHECK_INT(ahead[r], f.c.ranks[r].offset_ns);
    CHECK_INT(0, f.c.residual_max_ns);
    done(&f, &w);
}

static void counts_that_differ_are_refused_by_name(void)
{
    World w = { 0 };
    for (uint32_t r = 0; r < 2; r++) {
        uint32_t gpu = world_stream(&w, r, 7);
        for (int64_t i = 0; i < 3 - (int64_t)r; i++)
            world_comm(&w, gpu, all_reduce(-1), 100 * i, 100 * i + 50);
        Coll c = all_reduce(-1);
        c.group = "tp";
        world_comm(&w, gpu, c, 500, 510 + r);
    }
    Found f = find(&w);
    CHECK_STR("group 'dp': rank 0 has 3, rank 1 has 2 collectives: counts differ, not matched",
              f.c.channels[0].refusal);
    CHECK_U64(1, f.c.matches_n); /* the rest is still given */
    CHECK_U64(5, f.c.unmatched_n);
    CHECK_INT(2, f.c.rows_n);
    CHECK_INT(-1, f.c.rows[0].wait_ns);
    CHECK_INT(250, f.c.rows[0].total_ns);
    CHECK_INT(1, f.c.rows[1].wait_ns);
    done(&f, &w);
}

static void operations_that_differ_are_refused_by_name(void)
{
    World w = { 0 };
    for (uint32_t r = 0; r < 2; r++) {
        uint32_t gpu = world_stream(&w, r, 7);
        Coll c = all_reduce(-1);
        world_comm(&w, gpu, c, 0, 10);
        c.op = r ? "all_gather" : "all_reduce";
        world_comm(&w, gpu, c, 20, 30);
    }
    Found f = find(&w);
    CHECK_STR("group 'dp': collective 2 is all_reduce on rank 0 and all_gather on rank 1: not "
              "matched",
              f.c.channels[0].refusal);
    CHECK_U64(0, f.c.matches_n);
    CHECK(!f.c.clocks_compared);
    done(&f, &w);
}

static void an_all_reduce_of_two_sizes_is_refused(void)
{
    World w = { 0 };
    for (uint32_t r = 0; r < 2; r++) {
        uint32_t gpu = world_stream(&w, r, 7);
        Coll c = all_reduce(-1);
        c.bytes = 1000 + 8 * r;
        world_comm(&w, gpu, c, 0, 10);
    }
    Found f = find(&w);
    CHECK_STR(
        "group 'dp': collective 1 is all_reduce of 1000 bytes on rank 0 and all_reduce of "
        "1008 bytes on rank 1: not matched",
        f.c.channels[0].refusal);
    CHECK_U64(0, f.c.matches_n);
    done(&f, &w);
}

/* Two pairs of ranks; within a group of two, four ranks cannot have the same collective. */
static void groups_that_cannot_be_told_apart_are_refused(void)
{
    World w = { 0 };
    for (uint32_t r = 0; r < 4; r++) {
        uint32_t gpu = world_stream(&w, r, 7);
        Coll c = all_reduce(0);
        c.ranks_n = 2;
        c.group = "tp";
        world_comm(&w, gpu, c, 100 * (r / 2), 100 * (r / 2) + 10);
        c.group = "known";
        c.group_id = r / 2;
        world_comm(&w, gpu, c, 500 + 100 * (r / 2), 510 + 100 * (r / 2));
    }
    Found f = find(&w);
    CHECK_STR(
        "group 'tp': 4 ranks have it, and its collectives have 2 ranks: several groups of "
        "one name, not matched",
        f.c.channels[0].refusal);
    CHECK_U64(2, f.c.matches_n);
    CHECK_U64(4, f.c.unmatched_n);
    CHECK(!f.c.clocks_differ);
    done(&f, &w);
}

/* Experts send what they have: the bandwidth is that of the rank with most, whoever is first. */
static void an_uneven_exchange_is_of_its_largest_part(void)
{
    static const uint64_t bytes[] = { 1200, 3600, 2400 };
    World w = { 0 };
    for (uint32_t r = 0; r < 3; r++) {
        Coll c = all_reduce(0);
        c.op = "all_to_all";
        c.bytes = bytes[r];
        world_comm(&w, world_stream(&w, r, 7), c, 0, 100);
    }
    Found f = find(&w);
    CHECK_INT(1, f.c.rows_n);
    CHECK_U64(3600, f.c.rows[0].bytes);
    CHECK_NEAR(36, f.c.rows[0].algbw_GBps, 1e-12);
    CHECK_NEAR(24, f.c.rows[0].busbw_GBps, 1e-12);
    done(&f, &w);
}

/* ---- guesses ---- */

enum { APART_NS = 1000000, EACH_NS = 300000 };

/* Four ranks without groups, six all-reduces each; those of ranks 2 and 3 are late_ns[i] later. */
static void build_unnamed(World *w, const int64_t late_ns[6])
{
    Coll c = all_reduce(-1);
    c.group = NULL;
    c.ranks_n = 4; /* as traces/set.c takes all ranks for them */
    for (uint32_t r = 0; r < 4; r++) {
        uint32_t gpu = world_stream(w, r, 7);
        for (uint32_t i = 0; i < 6; i++) {
            int64_t at_ns = (int64_t)10 * APART_NS * i + (r / 2 ? late_ns[i] : 0);
            world_comm(w, gpu, c, at_ns, at_ns + EACH_NS);
        }
    }
}

/* Two pairs of ranks, each at its own pace: by the clocks of the one before they never meet. */
static void unnamed_groups_of_several_paces_are_refused(void)
{
    World w = { 0 };
    build_unnamed(&w, (int64_t[]){ 0, APART_NS, 0, 2 * APART_NS, -APART_NS, APART_NS });
    Found f = find(&w);
    CHECK_STR(
        "stream 1 of those that communicate: of 5 collectives of all ranks 5 would end on "
        "one before they begin on another: these are of several groups, which the trace "
        "does not name, not matched",
        f.c.channels[0].refusal);
    CHECK_INT(MATCH_NONE, f.c.channels[0].by);
    CHECK_U64(0, f.c.matches_n);
    CHECK_U64(24, f.c.unmatched_n);
    CHECK(!f.c.clocks_compared && !f.c.clocks_differ);
    CHECK_INT(1, f.c.rows_n);
    CHECK_INT(-1, f.c.rows[0].wait_ns);
    CHECK_INT(0, f.c.rows[0].ranks_n); /* not the four that it was taken for */
    done(&f, &w);
}

/* One that is off by an offset, drifts and once jumps is a clock. */
static void a_clock_that_drifts_is_no_other_group(void)
{
    World w = { 0 };
    build_unnamed(&w,
                  (int64_t[]){ 5 * APART_NS, 5 * APART_NS + 200000, 5 * APART_NS + 400000,
                               5 * APART_NS + 600000, 7 * APART_NS, 7 * APART_NS + 200000 });
    Found f = find(&w);
    CHECK(!f.c.channels[0].refusal);
    CHECK_U64(6, f.c.matches_n);
    CHECK(f.c.clocks_differ);
    done(&f, &w);
}

/* What one refusal leaves in doubt sets no clocks: its streams are those of the same groups. */
static void after_a_refusal_no_guess_sets_a_clock(void)
{
    World w = { 0 };
    build_unnamed(&w, (int64_t[]){ 0, APART_NS, 0, 2 * APART_NS, -APART_NS, APART_NS });
    Coll c = all_reduce(-1);
    c.group = NULL;
    for (uint32_t r = 0; r < 4; r++) {
        int64_t at_ns = (int64_t)90 * APART_NS + 200000 * (r % 2);
        world_comm(&w, world_stream(&w, r, 8), c, at_ns, at_ns + EACH_NS);
    }
    Found f = find(&w);
    CHECK(f.c.channels[0].refusal && !f.c.channels[1].refusal);
    CHECK_U64(1, f.c.matches_n);
    CHECK_INT((int64_t)f.c.channels[1].part_first, (int64_t)f.c.matches[0].part_first);
    CHECK(!f.c.clocks_differ);
    CHECK_INT(0, f.c.ranks[1].offset_ns);
    done(&f, &w);
}

/* Sends and receives of unnamed peers, each rank's so much later than the one's before. */
static void build_sends(World *w, int64_t each_later_ns)
{
    Coll c = { .op = "send_recv", .seq = -1, .wait_ns = -1, .p2p = true, .peer = NONE_U32 };
    for (uint32_t r = 0; r < 3; r++)
        for (uint32_t i = 0; i < 4; i++) {
            int64_t at_ns = (int64_t)10 * APART_NS * i + r * each_later_ns;
            world_comm(w, world_stream(w, r, 7), c, at_ns, at_ns + EACH_NS);
        }
}

/* The distance of a pipeline's stages is no offset of their clocks. */
static void sends_of_a_pipeline_are_no_exchange(void)
{
    World w = { 0 };
    build_sends(&w, APART_NS);
    Found f = find(&w);
    CHECK(f.c.channels[0].refusal);
    CHECK_U64(0, f.c.matches_n);
    CHECK(!f.c.clocks_differ);
    CHECK_INT(0, f.c.ranks[2].offset_ns);
    done(&f, &w);
}

static void an_exchange_is_seen_by_the_clocks_of_groups(void)
{
    World w = { 0 };
    build_sends(&w, APART_NS);
    for (uint32_t r = 0; r < 3; r++)
        world_comm(&w, world_stream(&w, r, 8), all_reduce(0), r * APART_NS, r * APART_NS + 100);
    Found f = find(&w);
    CHECK(!f.c.channels[0].refusal && !f.c.channels[1].refusal);
    CHECK_U64(5, f.c.matches_n);
    CHECK_INT(2 * APART_NS, f.c.ranks[2].offset_ns);
    done(&f, &w);
}

/* ---- by step ---- */

enum { STEP_NS = 10000000 };

/* Two ranks, four marked steps with two all-reduces each, of which each rank lacks one (none:
 * NONE_U32).  Rank 1 begins 1,000 ns later; its clock is ahead. */
static void build_steps(World *w, uint32_t lacks_0, uint32_t lacks_1, int64_t ahead_ns)
{
    const uint32_t lacks[] = { lacks_0, lacks_1 };
    for (uint32_t r = 0; r < 2; r++) {
        uint32_t gpu = world_stream(w, r, 7), steps;
        steps = timeline_track(&w->t, r, TRACK_STEPS, "steps", 0);
        for (uint32_t i = 0; i < 8; i++) {
            int64_t at_ns = i / 2 * STEP_NS + i % 2 * 3000000 + r * ahead_ns;
            char name[32];
            snprintf(name, sizeof name, "ProfilerStep#%u", 4 + (unsigned)i / 2);
            if (i % 2 == 0)
                world_span(w, steps, SPAN_STEP, name, at_ns, at_ns + STEP_NS);
            if (i != lacks[r])
                world_comm(w, gpu, all_reduce(-1), at_ns + 2000 + r * 1000, at_ns + 9000);
        }
    }
}

static void check_steps(World *w, MatchBy by, uint64_t matches_n, bool clocks_differ)
{
    Found f = find(w);
    CHECK_INT(by, f.c.channels[0].by);
    CHECK_U64(matches_n, f.c.matches_n);
    CHECK_INT(clocks_differ, f.c.clocks_differ);
    for (uint64_t i = 0; i < f.c.matches_n; i++) {
        CHECK_INT(6000, f.c.matches[i].transfer_ns);
        CHECK_INT(1000, f.c.matches[i].waited_ns);
    }
    CHECK_INT(1000 * (int64_t)matches_n, f.c.ranks[1].waited_ns);
    done(&f, w);
}

/* The window of one rank ends before the last, that of the other begins after the first. */
static void windows_that_do_not_agree_match_by_step(void)
{
    World w = { 0 };
    build_steps(&w, 7, 0, 0);
    check_steps(&w, MATCH_BY_STEP, 4, false);
}

/* One was lost: the other steps are whole. */
static void a_step_that_lacks_one_leaves_the_others(void)
{
    World w = { 0 };
    build_steps(&w, NONE_U32, 4, 0);
    check_steps(&w, MATCH_BY_STEP, 6, false);
}

/* Where steps agree, clocks say nothing against order, however far apart they are. */
static void steps_that_agree_leave_it_to_order(void)
{
    World w = { 0 };
    build_steps(&w, NONE_U32, NONE_U32, 9 * STEP_NS / 10);
    check_steps(&w, MATCH_BY_GROUP, 8, true);
}

/* A kernel that one rank counts into the step before: order has it right, and clocks agree. */
static void a_launch_beside_a_mark_leaves_it_to_order(void)
{
    World w = { 0 };
    build_steps(&w, 2, 2, 0);
    uint32_t other = world_stream(&w, 1, 8);
    world_comm(&w, world_stream(&w, 0, 8), all_reduce(-1), STEP_NS + 2000, STEP_NS + 9000);
    world_comm(&w, other, all_reduce(-1), STEP_NS - 2000, STEP_NS + 9000);
    Found f = find(&w);
    CHECK_INT(MATCH_BY_GROUP, f.c.channels[0].by);
    CHECK_U64(8, f.c.matches_n);
    done(&f, &w);
}

/*
 * FSDP's streams: gathers on one, reduces on the other.  Rank 1 reduces when it has gathered
 * once, rank 0 when it has twice; with_ops: op 5 is the gather, in both layers, 9 the reduce.
 */
static void build_two_streams(World *w, bool with_ops, const char *second)
{
    static const int64_t reduce[] = { 40, 20 };
    for (uint32_t r = 0; r < 2; r++) {
        uint32_t gather = world_stream(w, r, 20), other = world_stream(w, r, 30);
        Coll c = { .op = "all_gather", .group = "dp", .seq = -1, .wait_ns = -1 };
        uint64_t first = world_comm(w, gather, c, 0, 10);
        world_comm(w, gather, c, 30, 32 + r);
        c.op = r ? "reduce_scatter" : second;
        world_comm(w, other, c, reduce[r], 50);
        for (uint64_t i = first; i < w->t.spans_n && with_ops; i++)
            w->t.op[i] = i < first + 2 ? 5 : 9;
    }
}

static void check_two_streams(const Collectives *c, MatchBy by)
{
    CHECK_INT(by, c->channels[0].by);
    CHECK(!c->channels[0].refusal);
    CHECK_U64(3, c->matches_n);
    CHECK_U64(0, c->unmatched_n);
    CHECK_INT(10 + 2 + 10, c->transfer_ns);
    CHECK_INT(20 + 1, c->ranks[1].wait_ns);
    CHECK_U64(1, c->ranks[0].last_n - 1); /* the reduce, and the second gather by 1 */
    CHECK_INT(20 + 1, c->ranks[0].waited_ns);
}

static void streams_of_a_group_may_run_one_ahead_of_the_other(void)
{
    for (int with_ops = 0; with_ops < 2; with_ops++) {
        World w = { 0 };
        build_two_streams(&w, with_ops, "reduce_scatter");
        Found f = find(&w);
        check_two_streams(&f.c, with_ops ? MATCH_BY_OP : MATCH_BY_GROUP_STREAM);
        done(&f, &w);
    }
}

/* Op ids are of another program on rank 1: its streams still tell. */
static void ops_that_differ_leave_it_to_the_streams(void)
{
    World w = { 0 };
    build_two_streams(&w, true, "reduce_scatter");
    w.t.op[w.t.spans_n - 1] = 7;
    Found f = find(&w);
    check_two_streams(&f.c, MATCH_BY_GROUP_STREAM);
    done(&f, &w);
}

static void what_fits_in_no_order_is_refused(void)
{
    World w = { 0 };
    build_two_streams(&w, true, "all_reduce");
    Found f = find(&w);
    CHECK_STR("group 'dp': collective 2 is all_gather on rank 0 and reduce_scatter on rank 1: "
              "not matched",
              f.c.channels[0].refusal);
    CHECK_INT(MATCH_NONE, f.c.channels[0].by);
    CHECK_U64(0, f.c.matches_n);
    CHECK_U64(6, f.c.unmatched_n);
    done(&f, &w);
}

/* Rank 1 was recorded later and longer: numbers 2 to 5 beside 0 to 3. */
static void a_part_of_the_numbers_matches(void)
{
    World w = { 0 };
    for (uint32_t r = 0; r < 2; r++) {
        uint32_t gpu = world_stream(&w, r, 7);
        for (int64_t i = 2 * r; i < 2 * r + 4; i++)
            world_comm(&w, gpu, all_reduce(i), 100 * i, 100 * i + 50);
    }
    Found f = find(&w);
    CHECK_U64(2, f.c.matches_n);
    CHECK_U64(4, f.c.unmatched_n);
    CHECK_INT(0, f.c.residual_max_ns);
    CHECK(!f.c.channels[0].refusal);
    CHECK_INT(2, f.c.rows_n);
    done(&f, &w);
}

/* Sends of a pair match in order, in each direction; both know what they waited. */
static void sends_and_receives_match_by_pair(void)
{
    World w = { 0 };
    uint32_t a = world_stream(&w, 0, 7), b = world_stream(&w, 1, 7);
    Coll c = { .op = "send", .group = "pp", .seq = -1, .wait_ns = 0, .p2p = true, .peer = 1 };
    world_comm(&w, a, c, 0, 10);
    c.op = "recv";
    world_comm(&w, a, c, 50, 80);
    c.peer = 0;
    c.wait_ns = 20;
    world_comm(&w, b, c, -20, 10);
    c.op = "send";
    c.wait_ns = 0;
    world_comm(&w, b, c, 70, 80);
    Found f = find(&w);
    CHECK_INT(2, f.c.channels_n);
    CHECK_U64(2, f.c.matches_n);
    CHECK_U64(0, f.c.unmatched_n);
    CHECK_INT(20, f.c.ranks[1].wait_ns);
    done(&f, &w);
}

/* A folded simulation has one rank of many: waiting is known without the others. */
static void what_the_trace_knows_needs_no_match(void)
{
    World w = { 0 };
    Coll c = all_reduce(0);
    c.wait_ns = 15;
    world_comm(&w, world_stream(&w, 0, 7), c, 0, 40);
    Found f = find(&w);
    CHECK_U64(0, f.c.matches_n);
    CHECK_U64(1, f.c.unmatched_n);
    CHECK_INT(15, f.c.rows[0].wait_ns);
    CHECK_INT(25, f.c.rows[0].transfer_ns);
    CHECK_NEAR(1000.0 / 25, f.c.rows[0].algbw_GBps, 1e-12);
    done(&f, &w);
}

static void fold(World *w, uint32_t rank, uint32_t ranks_n)
{
    for (uint32_t k = 0; k < w->t.tracks_n; k++)
        if (w->t.tracks[k].rank == rank)
            w->t.tracks[k].ranks_n = ranks_n;
}

/* An all-reduce of ranks_n on that rank's stream, which waits at first. */
static void all_reduce_of(World *w, uint32_t rank, uint32_t ranks_n, int64_t wait_ns,
                          int64_t start_ns, int64_t end_ns)
{
    Coll c = all_reduce(0);
    c.ranks_n = ranks_n;
    c.wait_ns = wait_ns;
    world_comm(w, world_stream(w, rank, 7), c, start_ns, end_ns);
}

/* Three alike that wait 30 of 40 for a fourth, of one group: the mean wait is 30, not 15. */
static void a_rank_counts_as_often_as_it_stands_for_one(void)
{
    World w = { 0 };
    all_reduce_of(&w, 0, 4, 30, 0, 40);
    all_reduce_of(&w, 3, 4, 0, 30, 40);
    fold(&w, 0, 3);
    Found f = find(&w);
    CHECK_U64(1, f.c.matches_n);
    CHECK_U64(1, f.c.collectives_n);
    CHECK_INT(30, f.c.ranks[1].waited_ns);
    CHECK_INT(1, f.c.rows_n);
    CHECK_U64(1, f.c.rows[0].count);
    CHECK_INT(3 * 40 + 10, f.c.rows[0].total_ns);
    CHECK_INT(3 * 30, f.c.rows[0].wait_ns);
    CHECK_INT(4 * 10, f.c.rows[0].transfer_ns);
    CHECK_INT(f.c.rows[0].total_ns, f.c.rows[0].exposed_ns);
    done(&f, &w);
}

/* Four pairs, of which the trace has one: what happens in it happens in all, and no more. */
static void a_match_counts_as_often_as_it_stands_for_one(void)
{
    World w = { 0 };
    all_reduce_of(&w, 0, 2, 30, 0, 40);
    all_reduce_of(&w, 1, 2, 10, 20, 40);
    fold(&w, 0, 4);
    fold(&w, 1, 4);
    Found f = find(&w);
    CHECK_U64(4, f.c.collectives_n);
    CHECK_INT(30 - 10, f.c.ranks[1].waited_ns);
    CHECK_INT(4 * (30 - 10), f.c.waited_ns);
    CHECK_INT(4 * 10, f.c.transfer_ns);
    CHECK_U64(4, f.c.rows[0].count);
    CHECK_INT(4 * (40 + 20), f.c.rows[0].total_ns);
    done(&f, &w);
}

/* Eight ranks, all alike, in groups of four: two collectives, which need no other rank here. */
static void ranks_that_are_all_alike_are_each_others_partners(void)
{
    World w = { 0 };
    all_reduce_of(&w, 0, 4, 5, 0, 40);
    fold(&w, 0, 8);
    Found f = find(&w);
    CHECK_INT(1, f.c.rows_n);
    CHECK(f.c.rows[0].matched);
    CHECK_U64(2, f.c.rows[0].count);
    CHECK_U64(2, f.c.collectives_n);
    CHECK_U64(f.c.unmatched_n, f.c.among_alike_n);
    CHECK_INT(2 * 35, f.c.transfer_ns);
    CHECK_INT(8 * 40, f.c.rows[0].total_ns);
    CHECK_INT(8 * 5, f.c.rows[0].wait_ns);
    CHECK_NEAR(1000.0 / 35, f.c.rows[0].algbw_GBps, 1e-12);
    done(&f, &w);
}

/* Times and ranks at the ends of what a file may say. */
static void sums_end_at_the_largest_number(void)
{
    World w = { 0 };
    Coll c = all_reduce(0);
    c.wait_ns = 0;
    world_comm(&w, world_stream(&w, 0, 7), c, 0, TIMELINE_NS_MAX);
    fold(&w, 0, UINT32_MAX);
    Found f = find(&w);
    CHECK_INT(INT64_MAX, f.c.rows[0].total_ns);
    CHECK_INT(INT64_MAX, f.c.rows[0].transfer_ns);
    done(&f, &w);
}

static void one_rank_alone_does_not_know_what_waiting_was(void)
{
    World w = { 0 };
    world_comm(&w, world_stream(&w, 0, 7), all_reduce(0), 0, 40);
    Found f = find(&w);
    CHECK_INT(-1, f.c.rows[0].wait_ns);
    CHECK_INT(-1, f.c.rows[0].transfer_median_ns);
    CHECK_INT(40, f.c.rows[0].exposed_ns);
    CHECK(isnan(f.c.rows[0].busbw_GBps));
    CHECK(!f.c.rows[0].matched);
    done(&f, &w);
}

static void kernels_without_length_divide_nothing(void)
{
    World w = { 0 };
    for (uint32_t r = 0; r < 2; r++)
        world_comm(&w, world_stream(&w, r, 7), all_reduce(0), 10, 10);
    Found f = find(&w);
    CHECK_U64(1, f.c.matches_n);
    CHECK(isnan(f.c.rows[0].algbw_GBps));
    CHECK_INT(0, f.c.rows[0].total_ns);
    done(&f, &w);
}

static void an_empty_timeline_has_nothing_to_match(void)
{
    World w = { 0 };
    Found f = find(&w);
    CHECK_U64(0, f.c.matches_n);
    CHECK_INT(0, f.c.rows_n);
    done(&f, &w);
}

/* Only what starts in the window is summed; matching has seen all of it. */
static void a_selection_narrows_the_sums_only(void)
{
    World w = { 0 };
    build_three(&w, true, "dp");
    timeline_seal(&w.t);
    Covers covers;
    Collectives c;
    covers_build(&covers, &w.t);
    bool ranks[] = { true, false, false };
    int64_t from[] = { 150, 150, 150 }, to[] = { 300, 300, 300 };
    Selection s = { ranks, from, to };
    collectives_find(&c, &w.t, &covers, &s);
    CHECK_U64(2, c.matches_n);
    CHECK_U64(1, c.rows[0].count);
    CHECK_INT(10, c.rows[0].total_ns);
    CHECK_INT(0, c.rows[0].wait_ns);
    CHECK_INT(10, c.transfer_ns);
    collectives_free(&c);
    covers_free(&covers);
    world_free(&w);
}

/* Two ranks on one clock: the second one's ends are from 100 us early to 380 us late. */
static void ends_that_no_offset_brings_together_are_not_the_clocks(void)
{
    World w = { 0 };
    for (uint32_t r = 0; r < 2; r++) {
        uint32_t track = world_stream(&w, r, 7);
        for (int64_t i = 0; i < 9; i++) {
            int64_t late_ns = r * (i * 60 - 100) * 1000, at_ns = i * 1000000;
            world_comm(&w, track, all_reduce(i), at_ns, at_ns + 200000 + late_ns);
        }
    }
    Found f = find(&w);
    CHECK(f.c.clocks_compared && !f.c.clocks_differ);
    CHECK_INT(140000, f.c.residual_ns); /* 120000 with the second clock put back by 140000 */
    CHECK_INT(0, collectives_aligned_ns(&f.c, 1, 0));
    done(&f, &w);
}

/* As a rank of a loop copies piece by piece: the first kernel says bytes, others only the op. */
static void kernels_of_one_op_are_one_collective(void)
{
    World w = { 0 };
    for (uint32_t r = 0; r < 2; r++) {
        uint32_t track = world_stream(&w, r, 7);
        for (uint32_t step = 0; step < 3; step++) {
            for (uint32_t k = 0; k < 4; k++) {
                Coll c = {
                    .op = "all_gather", .group = "dp", .seq = k ? -1 : 5, .wait_ns = -1
                };
                int64_t at_ns = step * 1000 + k * 50 + r * 100;
                c.bytes = k ? 0 : 4000;
                c.ranks_n = 2;
                uint64_t span = world_comm(&w, track, c, at_ns, at_ns + 40);
                w.t.op[span] = 17;
            }
        }
    }
    Found f = find(&w);
    CHECK_U64(3, f.c.matches_n);
    CHECK_U64(0, f.c.unmatched_n);
    CHECK_U64(12, f.c.ranks[0].kernels_n);
    CHECK_INT(1, f.c.rows_n);
    CHECK_U64(3, f.c.rows[0].count);
    CHECK_INT(2 * 3 * 190, f.c.rows[0].total_ns); /* from the first begin to the last end */
    CHECK_INT(2 * 3 * 4 * 40, f.c.rows[0].exposed_ns); /* what ran: as in the rank's own sum */
    CHECK_NEAR(4000.0 / 190, f.c.rows[0].algbw_GBps, 1e-12);
    done(&f, &w);
}

int main(void)
{
    RUN(ends_that_no_offset_brings_together_are_not_the_clocks);
    RUN(kernels_of_one_op_are_one_collective);
    RUN(numbers_match);
    RUN(an_uneven_exchange_is_of_its_largest_part);
    RUN(without_numbers_the_order_within_a_group_matches);
    RUN(without_groups_streams_match);
    RUN(without_anything_kernels_of_streams_match);
    RUN(a_clock_that_is_a_second_ahead_is_found);
    RUN(offsets_travel_over_groups);
    RUN(counts_that_differ_are_refused_by_name);
    RUN(operations_that_differ_are_refused_by_name);
    RUN(an_all_reduce_of_two_sizes_is_refused);
    RUN(groups_that_cannot_be_told_apart_are_refused);
    RUN(unnamed_groups_of_several_paces_are_refused);
    RUN(a_clock_that_drifts_is_no_other_group);
    RUN(after_a_refusal_no_guess_sets_a_clock);
    RUN(sends_of_a_pipeline_are_no_exchange);
    RUN(an_exchange_is_seen_by_the_clocks_of_groups);
    RUN(windows_that_do_not_agree_match_by_step);
    RUN(a_step_that_lacks_one_leaves_the_others);
    RUN(steps_that_agree_leave_it_to_order);
    RUN(a_launch_beside_a_mark_leaves_it_to_order);
    RUN(streams_of_a_group_may_run_one_ahead_of_the_other);
    RUN(ops_that_differ_leave_it_to_the_streams);
    RUN(what_fits_in_no_order_is_refused);
    RUN(a_part_of_the_numbers_matches);
    RUN(sends_and_receives_match_by_pair);
    RUN(what_the_trace_knows_needs_no_match);
    RUN(a_rank_counts_as_often_as_it_stands_for_one);
    RUN(a_match_counts_as_often_as_it_stands_for_one);
    RUN(ranks_that_are_all_alike_are_each_others_partners);
    RUN(sums_end_at_the_largest_number);
    RUN(one_rank_alone_does_not_know_what_waiting_was);
    RUN(kernels_without_length_divide_nothing);
    RUN(an_empty_timeline_has_nothing_to_match);
    RUN(a_selection_narrows_the_sums_only);
    return check_report();
}

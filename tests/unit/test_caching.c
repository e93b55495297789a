/*
 * test_caching.c - PyTorch's caching allocator by its rules, and what a rank's steps make of it.
 *
 * Its sizes are those of c10/cuda/CUDACachingAllocator.cpp.  What it holds in all was measured:
 * torchtitan's reserved memory in scenarios/validation/published.jsonl, on which nothing is fitted.
 */
#include "sim/caching.h"
#include "sim/caching_replay.h"
#include "tests/built.h"
#include "tests/random_scenario.h"

#define KIB ((uint64_t)1 << 10)
enum { DRAWS = 150 };

/* ---- rules ---- */

static Caching empty(uint64_t capacity_bytes)
{
    Caching c;
    caching_open(&c, capacity_bytes, false);
    return c;
}

static void segments_are_of_three_sizes(void)
{
    static const uint64_t asked_held[][2] = {
        { 1, 2 * MIB },           { MIB, 2 * MIB },
        { MIB + 1, 20 * MIB },    { 10 * MIB - 512, 20 * MIB },
        { 10 * MIB, 10 * MIB },   { 10 * MIB + 1, 12 * MIB },
        { 416 * MIB, 416 * MIB }, { 0, 2 * MIB },
    };
    for (size_t i = 0; i < ARRAY_N(asked_held); i++) {
        Caching c = empty(UINT64_MAX);
        caching_take(&c, asked_held[i][0], STREAM_MAIN);
        CHECK_U64(asked_held[i][1], c.reserved_bytes);
        caching_close(&c);
    }
}

/* A segment is full when as many have been taken as go into it, each a multiple of 512 bytes. */
static void small_blocks_share_a_segment(void)
{
    Caching c = empty(UINT64_MAX);
    for (uint64_t i = 0; i < 2 * MIB / KIB; i++)
        caching_take(&c, 513, STREAM_MAIN);
    CHECK_U64(2 * MIB, c.reserved_bytes);
    caching_take(&c, 1, STREAM_MAIN);
    CHECK_U64(4 * MIB, c.reserved_bytes);
    caching_close(&c);
}

/* 1 MiB or less behind a large block stays with it, so that nobody else gets it. */
static void large_blocks_keep_a_small_rest(void)
{
    Caching c = empty(UINT64_MAX);
    caching_give(&c, caching_take(&c, 30 * MIB, STREAM_MAIN));
    uint32_t most = caching_take(&c, 29 * MIB, STREAM_MAIN);
    CHECK_U64(30 * MIB, c.blocks[most].bytes);
    caching_give(&c, most);
    uint32_t less = caching_take(&c, 29 * MIB - 512, STREAM_MAIN);
    CHECK_U64(29 * MIB - 512, c.blocks[less].bytes);
    CHECK_U64(30 * MIB, c.reserved_bytes);
    caching_close(&c);
}

static void the_smallest_that_is_large_enough_is_taken(void)
{
    Caching c = empty(UINT64_MAX);
    uint32_t a = caching_take(&c, 60 * MIB, STREAM_MAIN);
    uint32_t b = caching_take(&c, 40 * MIB, STREAM_MAIN);
    uint32_t d = caching_take(&c, 40 * MIB, STREAM_MAIN);
    uint64_t low = c.blocks[b].at;
    caching_give(&c, d);
    caching_give(&c, a);
    caching_give(&c, b);
    CHECK_U64(low, c.blocks[caching_take(&c, 35 * MIB, STREAM_MAIN)].at); /* the lower of two */
    CHECK_U64(140 * MIB, c.reserved_bytes);
    caching_close(&c);
}

/* Freed in any order, three parts of a segment are one block again. */
static void neighbours_are_joined(void)
{
    static const int orders[][3] = { { 0, 1, 2 }, { 2, 1, 0 }, { 0, 2, 1 }, { 1, 0, 2 } };
    for (size_t i = 0; i < ARRAY_N(orders); i++) {
        Caching c = empty(UINT64_MAX);
        caching_give(&c, caching_take(&c, 90 * MIB, STREAM_MAIN));
        uint32_t part[3];
        for (int k = 0; k < 3; k++)
            part[k] = caching_take(&c, 30 * MIB, STREAM_MAIN);
        for (int k = 0; k < 3; k++)
            caching_give(&c, part[orders[i][k]]);
        caching_take(&c, 90 * MIB, STREAM_MAIN);
        CHECK_U64(90 * MIB, c.reserved_bytes);
        caching_close(&c);
    }
}

/* What is free in one cannot be had in another: neither streams nor small and large. */
static void streams_and_sizes_have_blocks_of_their_own(void)
{
    Caching c = empty(UINT64_MAX);
    caching_give(&c, caching_take(&c, 64 * MIB, STREAM_GATHER));
    caching_take(&c, 64 * MIB, STREAM_MAIN);
    CHECK_U64(128 * MIB, c.reserved_bytes);
    caching_take(&c, MIB, STREAM_GATHER);
    CHECK_U64(130 * MIB, c.reserved_bytes);
    caching_take(&c, 64 * MIB, STREAM_GATHER);
    CHECK_U64(130 * MIB, c.reserved_bytes);
    caching_close(&c);
}

/* Segments that are free as a whole go back before more is asked for than there is; one byte of a
 * segment holds it. */
static void free_segments_go_back_when_room_is_short(void)
{
    for (int held = 0; held < 2; held++) {
        Caching c = empty(100 * MIB);
        caching_give(&c, caching_take(&c, 60 * MIB, STREAM_MAIN));
        if (held)
            caching_take(&c, 20 * MIB, STREAM_MAIN);
        caching_take(&c, 70 * MIB, STREAM_MAIN);
        CHECK_INT(held, c.overflowed);
        CHECK_U64(held ? 130 * MIB : 70 * MIB, c.most_bytes);
        caching_close(&c);
    }
}

static Caching expandable(uint64_t capacity_bytes)
{
    Caching c;
    caching_open(&c, capacity_bytes, true);
    return c;
}

/* Pages of 2 and 20 MiB at the end of one segment; what was there before is used first. */
static void expandable_segments_grow_by_pages(void)
{
    Caching c = expandable(UINT64_MAX);
    caching_take(&c, MIB, STREAM_MAIN);
    CHECK_U64(2 * MIB, c.reserved_bytes);
    uint32_t a =
        caching_take(&c, 45 * MIB, STREAM_MAIN); /* 15 MiB are left of the third page */
    CHECK_U64(62 * MIB, c.reserved_bytes);
    caching_take(&c, 30 * MIB, STREAM_MAIN); /* grows by one more */
    CHECK_U64(82 * MIB, c.reserved_bytes);
    caching_give(&c, a);
    caching_take(&c, 50 * MIB, STREAM_MAIN); /* 45 in front are not enough, and not joined */
    CHECK_U64(82 * MIB + 60 * MIB, c.reserved_bytes);
    caching_take(&c, 45 * MIB - 512, STREAM_MAIN);
    uint32_t rest = caching_take(&c, 512 + MIB, STREAM_MAIN); /* not in the 512 bytes left */
    CHECK(c.blocks[rest].at > 45 * MIB);
    CHECK_U64(142 * MIB, c.reserved_bytes);
    caching_close(&c);
}

/* Pages go back one by one: one byte of a segment holds a page, not the segment. */
static void expandable_segments_give_back_pages(void)
{
    Caching c = expandable(121 * MIB);
    uint32_t a = caching_take(&c, 60 * MIB, STREAM_MAIN);
    caching_take(&c, 20 * MIB, STREAM_MAIN);
    caching_give(&c, a);
    caching_take(&c, 70 * MIB, STREAM_MAIN); /* four pages more, for which the first three go */
    CHECK(!c.overflowed);
    CHECK_U64(121 * MIB, c.most_bytes);      /* as much as there is, no more */
    caching_take(&c, 20 * MIB, STREAM_MAIN); /* one of the three comes again */
    CHECK(!c.overflowed);
    caching_take(&c, 20 * MIB, STREAM_MAIN);
    CHECK(c.overflowed);
    CHECK_U64(160 * MIB, c.most_bytes);
    caching_close(&c);
}

/* The smallest that is large enough, of a thousand, against a search of all of them. */
static void the_best_of_many_is_found(void)
{
    enum { MANY = 1000 };
    Caching c = empty(UINT64_MAX);
    uint64_t state = 1;
    uint32_t block[MANY];
    for (uint32_t i = 0; i < MANY; i++) {
        state = mix_u64(state);
        block[i] = caching_take(&c, 10 * MIB + state % 64 * MIB, STREAM_MAIN);
    }
    for (uint32_t i = 0; i < MANY; i += 2)
        caching_give(&c, block[i]);
    for (uint32_t k = 0; k < MANY / 4; k++) {
        state = mix_u64(state);
        uint64_t bytes = 10 * MIB + state % 64 * MIB;
        uint32_t best = NONE_U32;
        for (uint32_t i = 0; i < c.blocks_n; i++) {
            const CachingBlock *b = &c.blocks[i], *x = best == NONE_U32 ? b : &c.blocks[best];
            if (b->free && b->bytes >= bytes &&
                (b->bytes < x->bytes || (b->bytes == x->bytes && b->at <= x->at)))
                best = i;
        }
        uint32_t taken = caching_take(&c, bytes, STREAM_MAIN);
        CHECK(best == NONE_U32 || best == taken);
    }
    caching_close(&c);
}

/* ---- steps ---- */

static void compare_role(const Graph *g, const Role *r, const char *drawn)
{
    const RoleMemory m = memory_of_role(g, r, NULL);
    uint64_t peak = m.peak_bytes;
    for (int expands = 0; expands < 2; expands++) {
        uint64_t held = caching_of_role(g, r, &m, (CachingRun){ UINT64_MAX, expands });
        uint64_t same = caching_of_role(g, r, &m, (CachingRun){ held, expands });
        uint64_t less = caching_of_role(g, r, &m, (CachingRun){ held - 1, expands });
        if (!CHECK(held >= peak) || !CHECK_U64(held, same) || !CHECK(less >= peak) ||
            !CHECK(caching_of_role(g, r, &m, (CachingRun){ peak - 1, expands }) >= peak))
            fprintf(stderr, "%s\n", drawn);
    }
}

/* With as much room as it would hold, or more, that is what it holds; never less than it uses. */
static void a_rank_holds_what_it_allocates(void)
{
    uint32_t compared = 0;
    for (uint64_t seed = 1; seed <= check_cases(DRAWS); seed++) {
        Draw d;
        Drawn x;
        draw_scenario(&d, seed, (DrawKind){ 0 });
        if (drawn_make(&x, &d)) {
            for (uint32_t i = 0; i < x.g.roles_n; i++)
                compare_role(&x.g, &x.g.roles[i], d.text);
            compared++;
        }
        drawn_free(&x);
    }
    CHECK(compared > check_cases(DRAWS) / 2);
}

static uint64_t held_by(const Role *r, const Graph *g)
{
    const RoleMemory m = memory_of_role(g, r, NULL);
    return caching_of_role(g, r, &m, (CachingRun){ .capacity_bytes = UINT64_MAX });
}

/* What is held over what is allocated. */
static double fullness(const char *schedule, const char *micro_batches)
{
    const Setting settings[] = { { "training.global_batch", micro_batches },
                                 { "training.micro_batch", "1" },
                                 { "parallel.schedule", schedule },
                                 { "parallel.dp", "1" },
                                 { "parallel.pp", "4" },
                                 { "cluster.nodes", "1" } };
    Built b;
    double of_peak = NAN;
    if (built_read(&b, "gpt2-ddp", settings, ARRAY_N(settings)))
        of_peak = (double)held_by(&b.g.roles[0], &b.g) /
                  (double)memory_of_role(&b.g, &b.g.roles[0], NULL).peak_bytes;
    built_free(&b);
    return of_peak;
}

/* Many micro-batches, of which most are left out, leave as much unused as fewer that are all run:
 * in a pipeline, and with all forwards first. */
static void what_is_left_out_is_held_like_the_rest(void)
{
    CHECK_NEAR(fullness("1f1b", "40"), fullness("1f1b", "2000"), 0.005);
    CHECK_NEAR(fullness("gpipe", "300"), fullness("gpipe", "2000"), 0.005);
}

/* What lies unused at the peak, GiB. */
static double unused_gib(const char *optimizer)
{
    Built b;
    double gib = NAN;
    if (built_read(&b, "llama3-8b-fsdp", &(Setting){ "training.optimizer", optimizer }, 1)) {
        const Role *r = &b.g.roles[0];
        gib =
            (double)(held_by(r, &b.g) - memory_of_role(&b.g, r, NULL).peak_bytes) / (double)GIB;
    }
    built_free(&b);
    return gib;
}

/* Where an optimizer has none, the second step finds all as the first left it. */
static void moments_take_the_holes_of_the_first_step(void)
{
    CHECK(unused_gib("sgd") < 0.6);
    CHECK(unused_gib("adamw") > 2);
}

/* ---- measured ---- */

static uint32_t measured_n;

static void compare_row(const char *line)
{
    Err err = { 0 };
    Built b;
    JsonDoc *doc = json_parse(line, strlen(line), "published.jsonl", &err);
    if (!built_from(&b, doc, &err))
        return;
    for (uint32_t i = 0; i < b.s.measured_n; i++) {
        if (strcmp(b.s.measured[i].metric, "memory.reserved_bytes") != 0)
            continue;
        const RoleMemory m = memory_of_role(&b.g, &b.g.roles[0], NULL);
        CHECK(b.sw.expandable_segments);
        CHECK_NEAR(
            b.s.measured[i].value,
            (double)caching_of_role(&b.g, &b.g.roles[0], &m, (CachingRun){ UINT64_MAX, true }),
            0.05);
        measured_n++;
    }
    built_free(&b);
}

/* PyTorch's own figure, without CUDA's context and NCCL's buffers. */
static void torchtitan_reserves_as_much(void)
{
    char line[8192];
    FILE *f = fopen("scenarios/validation/published.jsonl", "r");
    while (CHECK(f != NULL) && fgets(line, sizeof line, f))
        if (strstr(line, "memory.reserved_bytes"))
            compare_row(line);
    if (f)
        fclose(f);
    CHECK_U64(3, measured_n);
}

int main(void)
{
    setenv("LOCKSTEP_SHARE", "scenarios", 0);
    RUN(segments_are_of_three_sizes);
    RUN(small_blocks_share_a_segment);
    RUN(large_blocks_keep_a_small_rest);
    RUN(the_smallest_that_is_large_enough_is_taken);
    RUN(neighbours_are_joined);
    RUN(streams_and_sizes_have_blocks_of_their_own);
    RUN(free_segments_go_back_when_room_is_short);
    RUN(expandable_segments_grow_by_pages);
    RUN(expandable_segments_give_back_pages);
    RUN(the_best_of_many_is_found);
    RUN(a_rank_holds_what_it_allocates);
    RUN(what_is_left_out_is_held_like_the_rest);
    RUN(moments_take_the_holes_of_the_first_step);
    RUN(torchtitan_reserves_as_much);
    return check_report();
}

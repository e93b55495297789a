/*
 * test_caching.c - PyTorch's caching allocator by its rules, and what a rank's steps make of it.
 *
 * Its sizes are those of c10/cuda/CUDACachingAllocator.cpp.  What it holds in all was measured:
 * torchtitan's reserved memory in scenarios/validation/published.jsonl, on which nothing is fitted.
 */
#include "sim/caching.h"
#include "sim/memory.h"
#include "tests/built.h"
#include "tests/random_scenario.h"

#define KIB ((uint64_t)1 << 10)
enum { DRAWS = 150 };

/* ---- rules ---- */

static Caching empty(uint64_t capacity_bytes)
{
    Caching c;
    caching_open(&c, capacity_bytes);
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

/* ---- steps ---- */

static void compare_role(const Graph *g, const Role *r, const char *drawn)
{
    uint64_t peak = memory_of_role(g, r, NULL).peak_bytes;
    uint64_t held = caching_of_role(g, r, UINT64_MAX);
    if (!CHECK(held >= peak) || !CHECK_U64(held, caching_of_role(g, r, held)) ||
        !CHECK(caching_of_role(g, r, held - 1) >= peak) ||
        !CHECK(caching_of_role(g, r, peak - 1) >= peak))
        fprintf(stderr, "%s\n", drawn);
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

static uint64_t held_by(const char *micro_batches, const char *optimizer)
{
    const Setting settings[] = { { "training.global_batch", micro_batches },
                                 { "training.optimizer", optimizer },
                                 { "parallel.dp", "1" },
                                 { "parallel.pp", "4" },
                                 { "parallel.tp", "2" },
                                 { "cluster.nodes", "1" } };
    Built b;
    uint64_t held = 0;
    if (built_read(&b, "llama3-8b-fsdp", settings, ARRAY_N(settings)))
        held = caching_of_role(&b.g, &b.g.roles[0], UINT64_MAX);
    built_free(&b);
    return held;
}

/* A pipeline's first micro-batches and its last hold what all of them do. */
static void micro_batches_in_between_add_nothing(void)
{
    uint64_t few = held_by("7", "adamw");
    CHECK(few > 0);
    CHECK_NEAR((double)few, (double)held_by("64", "adamw"), 0.001);
}

/* What lies unused at the peak, GiB. */
static double unused_gib(const char *optimizer)
{
    Built b;
    double gib = NAN;
    if (built_read(&b, "llama3-8b-fsdp", &(Setting){ "training.optimizer", optimizer }, 1)) {
        const Role *r = &b.g.roles[0];
        uint64_t held = caching_of_role(&b.g, r, UINT64_MAX);
        gib = (double)(held - memory_of_role(&b.g, r, NULL).peak_bytes) / (double)GIB;
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
        CHECK_NEAR(b.s.measured[i].value,
                   (double)caching_of_role(&b.g, &b.g.roles[0], UINT64_MAX), 0.015);
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
    RUN(a_rank_holds_what_it_allocates);
    RUN(micro_batches_in_between_add_nothing);
    RUN(moments_take_the_holes_of_the_first_step);
    RUN(torchtitan_reserves_as_much);
    return check_report();
}

/* test_core.c - base, err and arena: the ground everything else stands on. */
#include "core/arena.h"
#include "core/base.h"
#include "core/err.h"
#include "core/jobs.h"
#include "core/temporary.h"
#include "tests/check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- base ----------------------------------------------------------------------------- */

static void grow_keeps_what_is_there(void)
{
    uint32_t *squares = NULL;
    uint32_t n = 0, cap = 0;
    for (uint32_t i = 0; i < 1000; i++) {
        GROW(squares, n, cap);
        squares[n++] = i * i;
    }
    CHECK(cap >= n);
    for (uint32_t i = 0; i < n; i++)
        CHECK_U64((uint64_t)i * i, squares[i]);
    free(squares);
}

static void grow_doubles(void)
{
    char *text = NULL;
    uint32_t n = 0, cap = 0, moves = 0;
    while (n < 4096) {
        uint32_t before = cap;
        GROW(text, n, cap);
        moves += cap != before;
        text[n++] = 'x';
    }
    CHECK_INT(9, moves); /* 16, 32, ... 4096 */
    free(text);
}

static void mem_zero_gives_zeroes_and_never_null(void)
{
    unsigned char *p = mem_zero(100, 3);
    for (size_t i = 0; i < 300; i++)
        CHECK_INT(0, p[i]);
    free(p);
    p = mem_zero(0, 8);
    CHECK(p != NULL);
    free(p);
}

static void division_rounds_up(void)
{
    CHECK_U64(0, div_up_u64(0, 7));
    CHECK_U64(1, div_up_u64(1, 7));
    CHECK_U64(1, div_up_u64(7, 7));
    CHECK_U64(2, div_up_u64(8, 7));
    CHECK_U64(UINT64_MAX, div_up_u64(UINT64_MAX, 1));
    CHECK_U64((UINT64_MAX >> 1) + 1, div_up_u64(UINT64_MAX, 2));
}

/* Flipping one bit of the input flips about half of the output's, wherever it stands. */
static void mixing_spreads_every_bit(void)
{
    for (uint32_t bit = 0; bit < 64; bit++) {
        uint32_t flipped = 0;
        for (uint64_t x = 0; x < 64; x++)
            flipped +=
                (uint32_t)__builtin_popcountll(mix_u64(x) ^ mix_u64(x ^ (uint64_t)1 << bit));
        CHECK_NEAR(0.5, flipped / (64.0 * 64.0), 0.1);
    }
}

/* ---- err ------------------------------------------------------------------------------ */

static void the_first_failure_wins(void)
{
    Err err = { 0 };
    CHECK(!err.set);
    CHECK(!err_set(&err, "cannot open '%s'", "a.json"));
    CHECK(!err_set(&err, "later"));
    CHECK(err.set);
    CHECK_STR("cannot open 'a.json'", err.text);
}

static void context_is_put_in_front(void)
{
    Err err = { 0 };
    err_set(&err, "no such gpu");
    CHECK(!err_wrap(&err, "cluster of '%s'", "x"));
    CHECK(!err_wrap(&err, "row %d", 3));
    CHECK_STR("row 3: cluster of 'x': no such gpu", err.text);
}

static void a_cleared_error_can_be_set_again(void)
{
    Err err = { 0 };
    err_set(&err, "first");
    err_clear(&err);
    CHECK(!err.set);
    err_set(&err, "second");
    CHECK_STR("second", err.text);
}

static void a_long_text_is_cut_with_dots(void)
{
    char longer[3000];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';

    Err err = { 0 };
    err_set(&err, "%s", longer);
    CHECK_U64(sizeof err.text - 1, strlen(err.text));
    CHECK_STR("x...", err.text + sizeof err.text - 5);

    err_clear(&err);
    err_set(&err, "why");
    err_wrap(&err, "%s", longer); /* a long context must not push out the reason */
    CHECK_ERR_TEXT(&err, ": why");
}

static void a_text_that_just_fits_is_not_cut(void)
{
    Err err = { 0 };
    char fits[sizeof err.text];
    memset(fits, 'x', sizeof fits - 1);
    fits[sizeof fits - 1] = '\0';
    err_set(&err, "%s", fits);
    CHECK_STR(fits, err.text);
}

static void control_bytes_are_shown_as_question_marks(void)
{
    Err err = { 0 };
    err_set(&err, "key '%s'", "a\x1b[31m\n\x7f\xc3\xa4");
    CHECK_STR("key 'a?[31m??\xc3\xa4'", err.text); /* UTF-8 stays */
    err_wrap(&err, "in\t%s", "f");
    CHECK_ERR_TEXT(&err, "in?f: key");
}

/* ---- arena ---------------------------------------------------------------------------- */

static void pushed_memory_is_aligned_and_zero(void)
{
    Arena arena = { 0 };
    for (size_t bytes = 0; bytes < 5000; bytes += 7) {
        unsigned char *p = arena_push(&arena, bytes, 1);
        CHECK_U64(0, (uintptr_t)p % 16);
        for (size_t i = 0; i < bytes; i++)
            CHECK_INT(0, p[i]);
        memset(p, 0xff, bytes);
    }
    arena_free(&arena);
}

static void blocks_never_move(void)
{
    Arena arena = { 0 };
    uint64_t *kept[100];
    for (uint64_t i = 0; i < ARRAY_N(kept); i++) {
        kept[i] = PUSH(&arena, uint64_t);
        *kept[i] = i;
        arena_push(&arena, 1, 10000 * (size_t)i); /* up to 990 kB: larger than a block */
    }
    for (uint64_t i = 0; i < ARRAY_N(kept); i++)
        CHECK_U64(i, *kept[i]);
    arena_free(&arena);
}

static void a_reset_arena_gives_the_same_memory_cleared(void)
{
    Arena arena = { 0 };
    char *kept = arena_strdup(&arena, "kept");
    ArenaMark mark = arena_mark(&arena);

    char *first = arena_push(&arena, 64, 1);
    memset(first, 'x', 64);
    PUSH_ARRAY(&arena, char, 1 << 20); /* its own block, given back by the reset */
    arena_reset(&arena, mark);
    char *again = arena_push(&arena, 64, 1);

    CHECK(again == first);
    CHECK_INT(0, again[0]);
    CHECK_INT(0, again[63]);
    CHECK_STR("kept", kept);
    arena_free(&arena);
}

static void an_empty_arena_can_be_marked_reset_and_freed(void)
{
    Arena arena = { 0 };
    ArenaMark mark = arena_mark(&arena);
    PUSH(&arena, int);
    arena_reset(&arena, mark);
    CHECK(arena.last == NULL);
    arena_free(&arena);
    arena_free(&arena);
    CHECK_STR("usable again", arena_strdup(&arena, "usable again"));
    arena_free(&arena);
}

static void arena_printf_makes_room_for_any_text(void)
{
    Arena arena = { 0 };
    CHECK_STR("", arena_printf(&arena, "%s", ""));
    CHECK_STR("rank 3 of 8", arena_printf(&arena, "rank %d of %d", 3, 8));
    char *wide = arena_printf(&arena, "%0200000d", 7);
    CHECK_U64(200000, strlen(wide));
    CHECK_INT('7', wide[199999]);
    arena_free(&arena);
}

/* ---- jobs ---- */

enum { JOBS_N = 1000 };

static void temporary_files_lie_where_the_environment_says(void)
{
    char path[64], too_small[8];
    setenv("TMPDIR", "/some/where", 1);
    CHECK(temporary_name(path, sizeof path, "test"));
    CHECK_STR("/some/where/lockstep-test-XXXXXX", path);
    errno = 0;
    CHECK(!temporary_name(too_small, sizeof too_small, "test"));
    CHECK_INT(ENAMETOOLONG, errno);
    errno = 0;
    CHECK(!temporary_file("test")); /* not where the environment does not say */
    CHECK_INT(ENOENT, errno);
    setenv("TMPDIR", "", 1);
    CHECK_STR(P_tmpdir, temporary_folder());
    FILE *f = temporary_file("test");
    CHECK(f && fputs("kept", f) >= 0 && fseek(f, 0, SEEK_SET) == 0 && getc(f) == 'k');
    if (f)
        fclose(f);
    unsetenv("TMPDIR");
    CHECK_STR(P_tmpdir, temporary_folder());
}

static void count_job(void *user, uint32_t i)
{
    uint32_t *done = user; /* each its own place */
    done[i]++;
}

static void every_job_is_done_once_by_any_number_of_threads(void)
{
    static const uint32_t threads[] = { 0, 1, 2, 7, JOBS_MAX, UINT32_MAX };
    for (size_t k = 0; k < ARRAY_N(threads); k++)
        for (uint32_t n = 0; n <= JOBS_N; n += JOBS_N / 2) {
            uint32_t done[JOBS_N] = { 0 }, once = 0;
            jobs_run(count_job, done, n, threads[k]);
            for (uint32_t i = 0; i < JOBS_N; i++)
                once += done[i] == (i < n);
            CHECK_INT(JOBS_N, once);
        }
    CHECK(jobs_processors() >= 1);
}

int main(void)
{
    RUN(grow_keeps_what_is_there);
    RUN(grow_doubles);
    RUN(mem_zero_gives_zeroes_and_never_null);
    RUN(division_rounds_up);
    RUN(mixing_spreads_every_bit);

    RUN(the_first_failure_wins);
    RUN(context_is_put_in_front);
    RUN(a_cleared_error_can_be_set_again);
    RUN(a_long_text_is_cut_with_dots);
    RUN(a_text_that_just_fits_is_not_cut);
    RUN(control_bytes_are_shown_as_question_marks);

    RUN(temporary_files_lie_where_the_environment_says);
    RUN(every_job_is_done_once_by_any_number_of_threads);
    RUN(pushed_memory_is_aligned_and_zero);
    RUN(blocks_never_move);
    RUN(a_reset_arena_gives_the_same_memory_cleared);
    RUN(an_empty_arena_can_be_marked_reset_and_freed);
    RUN(arena_printf_makes_room_for_any_text);
    return check_report();
}

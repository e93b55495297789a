/* test_pool.c - tasks on threads: each runs once, few at a time; and the bar they draw. */
#include "sim/pool.h"
#include "sim/progress.h"
#include "tests/check.h"

#include <stdatomic.h>
#include <unistd.h>

enum { TASKS = 500 };

static atomic_int running, most_running;
static atomic_int ran[TASKS];

static void count(void *task)
{
    int now = atomic_fetch_add(&running, 1) + 1, most = atomic_load(&most_running);
    while (now > most && !atomic_compare_exchange_weak(&most_running, &most, now))
        ;
    atomic_fetch_add((atomic_int *)task, 1);
    atomic_fetch_sub(&running, 1);
}

static void every_task_runs_once_and_few_at_a_time(void)
{
    for (uint32_t threads = 1; threads <= 8; threads *= 2) {
        Pool p;
        atomic_store(&most_running, 0);
        for (int i = 0; i < TASKS; i++)
            atomic_store(&ran[i], 0);
        pool_open(&p, threads);
        for (int i = 0; i < TASKS; i++)
            pool_add(&p, count, &ran[i]);
        pool_close(&p);
        for (int i = 0; i < TASKS; i++)
            CHECK_INT(1, atomic_load(&ran[i]));
        CHECK(atomic_load(&most_running) <= (int)threads);
    }
}

static void an_empty_pool_closes(void)
{
    Pool p;
    pool_open(&p, 4);
    pool_close(&p);
    CHECK(pool_processors() >= 1);
}

/* ---- the bar ---- */

/* What update() draws on a fresh bar that is due at once. */
static char *drawn(char *text, size_t cap, uint32_t parts, double fraction, uint32_t done)
{
    int ends[2];
    ASSERT(pipe(ends) == 0);
    Progress p;
    ProgressPart part[8] = { { 0 } };
    progress_open_on(&p, ends[1], 0, (int64_t)1 << 60);
    progress_expect(&p, parts);
    for (uint32_t i = 0; i < done; i++) {
        part[i].of = &p;
        p.every_ns = INT64_MAX; /* only the last one is drawn */
        p.drawn_ns = 1;
        progress_end(&part[i]);
    }
    p.drawn_ns = 0;
    part[done].of = &p;
    progress_part(&part[done], fraction);
    progress_close(&p);
    close(ends[1]);
    ssize_t n = read(ends[0], text, cap - 1);
    text[n > 0 ? n : 0] = '\0';
    close(ends[0]);
    return text;
}

static void one_scenario_shows_its_share_and_is_erased(void)
{
    char text[512];
    CHECK_STR("\r\033[Ksimulating [####################....................]  50 %\r\033[K",
              drawn(text, sizeof text, 1, 0.5, 0));
}

static void several_show_how_many_are_done(void)
{
    char text[512];
    CHECK_STR("\r\033[Ksimulating 2 of 4 scenarios "
              "[#########################...............]  62 %\r\033[K",
              drawn(text, sizeof text, 4, 0.5, 2));
}

static void nothing_is_drawn_before_its_time(void)
{
    int ends[2];
    char text[8];
    ASSERT(pipe(ends) == 0);
    Progress p;
    progress_open_on(&p, ends[1], (int64_t)1 << 60, 0);
    ProgressPart part = { .of = &p };
    progress_expect(&p, 1);
    progress_part(&part, 0.5);
    progress_end(&part);
    progress_close(&p);
    close(ends[1]);
    CHECK_INT(0, read(ends[0], text, sizeof text));
    close(ends[0]);
}

int main(void)
{
    RUN(every_task_runs_once_and_few_at_a_time);
    RUN(an_empty_pool_closes);
    RUN(one_scenario_shows_its_share_and_is_erased);
    RUN(several_show_how_many_are_done);
    RUN(nothing_is_drawn_before_its_time);
    return check_report();
}

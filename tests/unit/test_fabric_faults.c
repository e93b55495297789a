/*
 * test_fabric_faults.c - ranks that are killed, stopped, or give up while the others
 * communicate: the others learn of it, in a sentence, in time, and nothing is left.
 */
#include <dirent.h>
#include <sys/resource.h>

#include "tests/rank_world.h"

static const int64_t second_ns = 1000000000;

/* All-reduces for ever on one lane and messages round a ring; reports how that ended. */
static void body_busy(Fabric *f, const RankPlace *place, RankPage *page)
{
    enum { N = 20000 };
    uint32_t members[RANKS_MAX], me = place->rank, world = place->world;
    for (uint32_t i = 0; i < world; i++)
        members[i] = i;
    Part parts[2] = { { .elements = N }, { .offset = 4 * N, .elements = N } };
    CommCall sum = { .kind = OP_ALL_REDUCE, .lane = LANE_REDUCE, .members_n = world };
    sum.self = me;
    sum.members = members;
    sum.in_n = 1;
    sum.in = parts;
    CommCall pair[2] = { sum, sum };
    pair[0].kind = OP_SEND;
    pair[0].peer = (me + 1) % world;
    pair[1].kind = OP_RECV;
    pair[1].peer = (me + world - 1) % world;
    pair[1].in = parts + 1;
    Err err = { 0 };
    atomic_fetch_add(&page->ready_n, 1);
    while (fabric_run(f, &sum, 1, &err) && fabric_run(f, pair, 2, &err))
        memset(fabric_arena(f), 0, 8 * N);
    atomic_store(&page->ended_ns[me], net_now_ns());
    memcpy(page->said[me], err.text, sizeof err.text);
}

/* As above, but one rank works alone, the others wait for it. */
static void body_lonely(Fabric *f, const RankPlace *place, RankPage *page)
{
    atomic_fetch_add(&page->ready_n, 1);
    if (place->rank == 1)
        for (;;)
            pause();
    atomic_fetch_sub(&page->ready_n, 1);
    body_busy(f, place, page);
}

static int run_and_kill(uint32_t n, const RankOptions *o, RankBody body, uint32_t victim,
                        int number, RankPage *page, char *noise, size_t cap)
{
    Hush hush = hush_begin();
    int killer = killer_start(page, n, victim, number, 50000000);
    int status = ranks_run_on(n, o, body, page);
    killer_end(killer);
    hush_end(&hush, noise, cap);
    return status;
}

/* All but the victim ended in time, naming it. */
static void check_survivors(const RankPage *page, uint32_t n, uint32_t victim, int64_t limit_ns)
{
    char name[64];
    snprintf(name, sizeof name, "rank %u on '", victim);
    for (uint32_t r = 0; r < n; r++) {
        int64_t ended_ns = atomic_load(&page->ended_ns[r]);
        if (r == victim)
            continue;
        CHECK(ended_ns > 0 && ended_ns - atomic_load(&page->killed_ns) < limit_ns);
        if (!CHECK(strstr(page->said[r], name) != NULL))
            fprintf(stderr, "rank %u said: '%s'\n", r, page->said[r]);
    }
    for (uint32_t r = 0; r < n; r++)
        CHECK(!process_lives(page->pids[r]));
}

static void a_killed_rank_is_named_by_all_others(void)
{
    char noise[4096];
    for (uint32_t n = 2; n <= 4; n++)
        for (uint32_t victim = 0; victim < n; victim++)
            for (int tcp = 0; tcp < 2; tcp++) {
                RankPage *page = rank_page_make();
                CHECK_INT(1, run_and_kill(n, &(RankOptions){ .tcp = tcp }, body_busy, victim,
                                          SIGKILL, page, noise, sizeof noise));
                check_survivors(page, n, victim, 5 * second_ns);
                CHECK(strstr(page->said[victim ? 0 : 1], "died") != NULL);
                CHECK(strstr(noise, "was killed by signal 9 (Killed)") != NULL);
                rank_page_free(page);
            }
}

static void a_rank_killed_while_it_works_is_named_too(void)
{
    char noise[4096];
    RankPage *page = rank_page_make();
    CHECK_INT(1, run_and_kill(3, &(RankOptions){ 0 }, body_lonely, 1, SIGUSR1, page, noise,
                              sizeof noise));
    check_survivors(page, 3, 1, second_ns);
    rank_page_free(page);
}

/* The launcher kills the stopped one in the end; that is tested in test_launch.c. */
static void body_stopped(Fabric *f, const RankPlace *place, RankPage *page)
{
    body_busy(f, place, page);
    if (strstr(page->said[place->rank], "silent"))
        for (uint32_t r = 0; r < place->world; r++)
            if (atomic_load(&page->ended_ns[r]) == 0)
                kill(page->pids[r], SIGCONT);
}

static void a_stopped_rank_is_named_after_the_time_out(void)
{
    char noise[4096];
    for (uint32_t victim = 0; victim < 2; victim++)
        for (int tcp = 0; tcp < 2; tcp++) {
            RankPage *page = rank_page_make();
            RankOptions o = { .tcp = tcp, .timeout_s = 1 };
            run_and_kill(3, &o, body_stopped, victim, SIGSTOP, page, noise, sizeof noise);
            check_survivors(page, 3, victim, 3 * second_ns);
            for (uint32_t r = 0; r < 3; r++) {
                CHECK(r == victim || strstr(page->said[r], "has been silent for") != NULL);
                CHECK(r == victim || page->ended_ns[r] - page->killed_ns > 6 * second_ns / 10);
            }
            rank_page_free(page);
        }
}

/* ---- ends in good order, and in disorder ---- */

static void body_long_work(Fabric *f, const RankPlace *place, RankPage *page)
{
    (void)page;
    Err err = { 0 };
    uint32_t members[2] = { 0, 1 };
    Part part = { .elements = 10 };
    CommCall c = { .kind = OP_ALL_REDUCE, .members_n = 2, .self = place->rank };
    c.members = members;
    c.in_n = 1;
    c.in = &part;
    if (place->rank == 1)
        net_sleep_ns(3 * second_ns / 2); /* three time-outs */
    CHECK(fabric_run(f, &c, 1, &err));
    if (place->rank == 0)
        net_sleep_ns(second_ns);
}

static void long_work_is_not_silence(void)
{
    CHECK_INT(0, ranks_run(2, &(RankOptions){ .timeout_s = 0.5 }, body_long_work));
}

/* Rank 1 computes, or sleeps, much longer than a job may stand still. */
static void wait_for_rank_1(Fabric *f, const RankPlace *place, RankPage *page, bool computes)
{
    uint32_t members[RANKS_MAX];
    for (uint32_t i = 0; i < place->world; i++)
        members[i] = i;
    Part part = { .elements = 10 };
    CommCall c = { .kind = OP_ALL_REDUCE, .members_n = place->world, .self = place->rank };
    c.members = members;
    c.in_n = 1;
    c.in = &part;
    Err err = { 0 };
    int64_t until_ns = net_now_ns() + (computes ? 4 : 20) * second_ns;
    while (place->rank == 1 && net_now_ns() < until_ns && !(fabric_failure(f) && !computes))
        if (!computes)
            net_sleep_ns(10000000);
    fabric_run(f, &c, 1, &err);
    memcpy(page->said[place->rank], err.text, sizeof err.text);
}

static void body_computes(Fabric *f, const RankPlace *place, RankPage *page)
{
    wait_for_rank_1(f, place, page, true);
}

static void body_sleeps(Fabric *f, const RankPlace *place, RankPage *page)
{
    wait_for_rank_1(f, place, page, false);
}

/* With beats so seldom that they take next to nothing, even where a sanitizer makes them ten times
 * as dear. */
static void a_job_in_which_nobody_does_anything_ends(void)
{
    static const char still[] = "no rank has done anything for ";
    for (int tcp = 0; tcp < 2; tcp++) {
        RankPage *page = rank_page_make();
        RankOptions o = { .tcp = tcp, .timeout_s = 0.4 };
        CHECK_INT(0, ranks_run_on(3, &o, body_sleeps, page));
        for (uint32_t r = 0; r < 3; r++) {
            const char *said = page->said[r];
            const char *at = strstr(said, still);
            CHECK(at && strtod(at + strlen(still), NULL) >= 10 * o.timeout_s);
            CHECK(strstr(said, "s: rank 1 on '") != NULL);
            CHECK(strstr(said, ") waits for nobody, rank 0 on '") != NULL);
            CHECK(strstr(said, ") for rank 1, rank 2 on '") != NULL);
        }
        rank_page_free(page);
    }
}

static void a_job_in_which_one_rank_computes_goes_on(void)
{
    RankPage *page = rank_page_make();
    CHECK_INT(0, ranks_run_on(3, &(RankOptions){ .timeout_s = 0.3 }, body_computes, page));
    for (uint32_t r = 0; r < 3; r++)
        CHECK(page->said[r][0] == '\0');
    rank_page_free(page);
}

/* Rank 1 comes two seconds later; how often have the others slept by then? */
static void body_waits_for_long(Fabric *f, const RankPlace *place, RankPage *page)
{
    struct rusage before, after;
    Err err = { 0 };
    if (place->rank == 1)
        net_sleep_ns(2 * second_ns);
    getrusage(RUSAGE_SELF, &before);
    fabric_barrier(f, &err);
    getrusage(RUSAGE_SELF, &after);
    snprintf(page->said[place->rank], sizeof page->said[0], "%s%ld", err.text,
             after.ru_nvcsw - before.ru_nvcsw);
}

/* A look a millisecond were two thousand, and 2 % of a processor: a rank that computes. */
static void who_waits_for_long_looks_seldom(void)
{
    RankPage *page = rank_page_make();
    CHECK_INT(0, ranks_run_on(3, &(RankOptions){ .tcp = true, .timeout_s = 20 },
                              body_waits_for_long, page));
    for (uint32_t r = 0; r < 3; r++) {
        char *end;
        CHECK(strtol(page->said[r], &end, 10) < 700 && end > page->said[r] && !*end);
    }
    rank_page_free(page);
}

static void body_abort(Fabric *f, const RankPlace *place, RankPage *page)
{
    if (place->rank == 1) {
        net_sleep_ns(second_ns / 20);
        fabric_abort(f, "the dog ate it");
        fabric_abort(f, "another sentence");
        CHECK_STR("the dog ate it", fabric_failure(f));
        return;
    }
    CHECK(fabric_failure(f) == NULL || strcmp(fabric_failure(f), "the dog ate it") == 0);
    body_busy(f, place, page);
    CHECK_STR("the dog ate it", page->said[place->rank]);
    CHECK_STR("the dog ate it", fabric_failure(f));
}

static void an_abort_reaches_all_with_its_sentence(void)
{
    for (int tcp = 0; tcp < 2; tcp++) {
        RankPage *page = rank_page_make();
        CHECK_INT(0, ranks_run_on(4, &(RankOptions){ .tcp = tcp }, body_abort, page));
        rank_page_free(page);
    }
}

static void body_leaves(Fabric *f, const RankPlace *place, RankPage *page)
{
    if (place->rank == 1)
        return;
    body_busy(f, place, page);
    if (!CHECK(strstr(page->said[place->rank], "rank 1 on '") != NULL))
        fprintf(stderr, "%s\n", page->said[place->rank]);
}

static void a_rank_that_leaves_early_is_missed(void)
{
    for (int tcp = 0; tcp < 2; tcp++) {
        RankPage *page = rank_page_make();
        CHECK_INT(0, ranks_run_on(3, &(RankOptions){ .tcp = tcp }, body_leaves, page));
        rank_page_free(page);
    }
}

/* ---- nothing is left ---- */

/* Entries of a folder with this in their names. */
static uint32_t files_in(const char *folder, const char *part)
{
    uint32_t n = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir && (e = readdir(dir));)
        n += strstr(e->d_name, part) != NULL;
    if (dir)
        closedir(dir);
    return n;
}

static void random_kills_leave_nothing(void)
{
    const int64_t until_ns = net_now_ns() + 6 * second_ns;
    uint32_t fds_n = files_in("/proc/self/fd", "");
    char noise[4096];
    for (uint64_t round = 0; net_now_ns() < until_ns; round++) {
        uint64_t h = mix_u64(round);
        uint32_t n = 2 + (uint32_t)(h % 3), victim = (uint32_t)(h / 3 % n);
        RankPage *page = rank_page_make();
        RankOptions o = { .tcp = h >> 40 & 1 };
        Hush hush = hush_begin();
        /* Also while they still meet. */
        int killer = killer_start(page, h >> 41 & 1 ? n : 0, victim, SIGKILL,
                                  1 + (int64_t)(h >> 42 & 0xffffff));
        net_sleep_ns(1000);
        ranks_run_on(n, &o, body_busy, page);
        killer_end(killer);
        hush_end(&hush, noise, sizeof noise);
        for (uint32_t r = 0; r < n; r++)
            CHECK(!process_lives(page->pids[r]));
        rank_page_free(page);
    }
    CHECK_INT(-1, waitpid(-1, NULL, WNOHANG)); /* no child, no zombie */
    CHECK_INT(fds_n, files_in("/proc/self/fd", ""));
    /* A fuzzer beside this test has a folder there. */
    CHECK_INT(files_in("/dev/shm", "lockstep-fuzz"), files_in("/dev/shm", "lockstep"));
}

int main(void)
{
    RUN(a_killed_rank_is_named_by_all_others);
    RUN(a_rank_killed_while_it_works_is_named_too);
    RUN(a_stopped_rank_is_named_after_the_time_out);
    RUN(long_work_is_not_silence);
    RUN(a_job_in_which_nobody_does_anything_ends);
    RUN(a_job_in_which_one_rank_computes_goes_on);
    RUN(who_waits_for_long_looks_seldom);
    RUN(an_abort_reaches_all_with_its_sentence);
    RUN(a_rank_that_leaves_early_is_missed);
    RUN(random_kills_leave_nothing);
    return check_report();
}

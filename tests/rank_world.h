/*
 * rank_world.h - tests with several ranks: forks them, and shares a page in which they
 * report.
 *
 *     static void body_of_it(Fabric *f, RankPage *page) { ... CHECK(...) ... }
 *     CHECK_INT(0, ranks_run(3, &options, body_of_it));
 *
 * A check that fails in a rank makes the rank's status 1, and so that of ranks_run.
 */
#ifndef LOCKSTEP_TESTS_RANK_WORLD_H
#define LOCKSTEP_TESTS_RANK_WORLD_H

#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "exec/launch.h"
#include "exec/net.h"
#include "tests/check.h"

enum { RANKS_MAX = 8 };

/* Seen by the test and all its ranks. */
typedef struct RankPage {
    _Atomic uint32_t ready_n; /* ranks that have come to the point where somebody kills */
    int pids[RANKS_MAX];
    char said[RANKS_MAX][sizeof((Err *)0)->text + 32]; /* the error each rank ended with */
    _Atomic int64_t ended_ns[RANKS_MAX];
    _Atomic int64_t killed_ns;
} RankPage;

typedef void (*RankBody)(Fabric *f, const RankPlace *place, RankPage *page);

typedef struct RankOptions {
    bool tcp, rings;
    double timeout_s;     /* 0: 20 */
    uint64_t arena_bytes; /* 0: 1 MiB */
} RankOptions;

typedef struct RankRun {
    const RankOptions *options;
    RankBody body;
    RankPage *page;
} RankRun;

static inline RankPage *rank_page_make(void)
{
    void *at =
        mmap(NULL, sizeof(RankPage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT(at != MAP_FAILED);
    return at;
}

static inline void rank_page_free(RankPage *page)
{
    munmap(page, sizeof *page);
}

static inline int rank_main(const RankPlace *place, void *user)
{
    const RankRun *run = user;
    Fabric *f;
    Err err = { 0 };
    uint64_t bytes = run->options->arena_bytes ? run->options->arena_bytes : MIB;
    check_state.test_failures_n = 0;
    if (CHECK(fabric_open(&f, place, bytes, &err))) {
        fabric_use_rings(f, run->options->rings);
        run->body(f, place, run->page);
        fabric_close(f);
    } else {
        fprintf(stderr, "rank %u: %s\n", place->rank, err.text);
    }
    return check_state.test_failures_n ? 1 : 0;
}

/* The status of launch_ranks; page may be NULL. */
static inline int ranks_run_on(uint32_t n, const RankOptions *options, RankBody body,
                               RankPage *page)
{
    RankPlace common = { .digest = "test",
                         .timeout_s = options->timeout_s > 0 ? options->timeout_s : 20,
                         .tcp_only = options->tcp };
    RankRun run = { .options = options, .body = body, .page = page };
    return launch_ranks(n, rank_main, &run, &common, page ? page->pids : NULL);
}

static inline int ranks_run(uint32_t n, const RankOptions *options, RankBody body)
{
    return ranks_run_on(n, options, body, NULL);
}

/* A child that sends `signal` to the victim once n ranks are ready. */
static inline int killer_start(RankPage *page, uint32_t n, uint32_t victim, int number,
                               int64_t after_ns)
{
    int pid = fork();
    if (pid != 0)
        return pid;
    int64_t until_ns = net_now_ns() + 20000000000;
    /* Never process 0, which means all of us. */
    while ((atomic_load(&page->ready_n) < n || *(volatile int *)&page->pids[victim] <= 0) &&
           net_now_ns() < until_ns)
        net_sleep_ns(1000000);
    net_sleep_ns(after_ns);
    atomic_store(&page->killed_ns, net_now_ns());
    if (page->pids[victim] > 0)
        kill(page->pids[victim], number);
    _exit(0);
}

static inline void killer_end(int pid)
{
    int how;
    waitpid(pid, &how, 0);
}

/* stderr of what happens between goes into text. */
typedef struct Hush {
    int kept;
    FILE *file;
} Hush;

static inline Hush hush_begin(void)
{
    fflush(stderr);
    Hush h = { .kept = dup(2), .file = tmpfile() };
    ASSERT(h.kept >= 0 && h.file);
    dup2(fileno(h.file), 2);
    return h;
}

static inline void hush_end(Hush *h, char *text, size_t cap)
{
    fflush(stderr);
    dup2(h->kept, 2);
    close(h->kept);
    rewind(h->file);
    size_t n = fread(text, 1, cap - 1, h->file);
    text[n] = '\0';
    fclose(h->file);
}

/* Whether a process is there and no zombie. */
static inline bool process_lives(int pid)
{
    char path[64], line[512], state = 'X';
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file)
        return false;
    if (fgets(line, sizeof line, file) && strrchr(line, ')'))
        state = strrchr(line, ')')[2];
    fclose(file);
    return state != 'X' && state != 'Z';
}

#endif

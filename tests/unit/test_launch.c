/*
 * test_launch.c - which rank this is, by flags and by what launchers leave in the
 * environment; and children that start together and end together.
 */
#include <signal.h>

#include "tests/rank_world.h"

/* ---- places ---- */

static const char *const variables[] = { "RANK",
                                         "WORLD_SIZE",
                                         "LOCAL_RANK",
                                         "LOCAL_WORLD_SIZE",
                                         "MASTER_ADDR",
                                         "MASTER_PORT",
                                         "TORCHELASTIC_RUN_ID",
                                         "TORCHELASTIC_RESTART_COUNT",
                                         "OMPI_COMM_WORLD_RANK",
                                         "OMPI_COMM_WORLD_SIZE",
                                         "OMPI_COMM_WORLD_LOCAL_RANK",
                                         "OMPI_COMM_WORLD_LOCAL_SIZE",
                                         "PMIX_NAMESPACE",
                                         "PMI_RANK",
                                         "PMI_SIZE",
                                         "MPI_LOCALRANKID",
                                         "MPI_LOCALNRANKS",
                                         "SLURM_PROCID",
                                         "SLURM_NTASKS",
                                         "SLURM_LOCALID",
                                         "SLURM_NTASKS_PER_NODE",
                                         "SLURM_STEP_ID",
                                         "SLURM_STEP_NODELIST",
                                         "SLURM_STEP_NUM_NODES",
                                         "SLURM_JOB_ID",
                                         "LOCKSTEP_TCP_ONLY" };

/* "NAME=VALUE NAME=VALUE": these and no others. */
static void environment(const char *text)
{
    char copy[1024];
    for (size_t i = 0; i < ARRAY_N(variables); i++)
        unsetenv(variables[i]);
    snprintf(copy, sizeof copy, "%s", text);
    for (char *save, *word = strtok_r(copy, " ", &save); word;
         word = strtok_r(NULL, " ", &save)) {
        char *equals = strchr(word, '=');
        *equals = '\0';
        setenv(word, equals + 1, 1);
    }
}

static const LaunchFlags no_flags = { .rank = NONE_U32,
                                      .world = NONE_U32,
                                      .local_rank = NONE_U32 };

static void check_place(const char *text, const LaunchFlags *flags, Launcher by, uint32_t rank,
                        uint32_t world, uint32_t local_rank, uint32_t local_n,
                        const char *rendezvous)
{
    RankPlace p = { .timeout_s = 7 };
    Launcher found;
    Err err = { 0 };
    environment(text);
    if (!CHECK(launch_place(&p, &found, flags, &err))) {
        fprintf(stderr, "%s: %s\n", text, err.text);
        return;
    }
    CHECK_INT(by, found);
    CHECK_INT(rank, p.rank);
    CHECK_INT(world, p.world);
    CHECK_INT(local_rank, p.local_rank);
    CHECK_INT(local_n, p.local_n);
    CHECK(p.timeout_s > 6.9); /* left alone */
    if (rendezvous && !CHECK(p.rendezvous && strstr(p.rendezvous, rendezvous)))
        fprintf(stderr, "%s: %s\n", text, p.rendezvous ? p.rendezvous : "(none)");
    if (!rendezvous)
        CHECK(p.rendezvous == NULL);
}

static void check_refused(const char *text, const LaunchFlags *flags, const char *part)
{
    RankPlace p = { 0 };
    Launcher found;
    Err err = { 0 };
    environment(text);
    CHECK(!launch_place(&p, &found, flags, &err));
    CHECK_ERR_TEXT(&err, part);
}

static void nobody_started_us(void)
{
    LaunchFlags four = no_flags;
    four.ranks = 4;
    check_place("", &no_flags, LAUNCHER_NONE, 0, 1, 0, 1, NULL);
    check_place("", &four, LAUNCHER_NONE, 0, 4, 0, 4, NULL);
    check_place("MASTER_ADDR=a MASTER_PORT=1", &no_flags, LAUNCHER_NONE, 0, 1, 0, 1, NULL);
}

#define TORCH \
    "RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 MASTER_ADDR=node0 MASTER_PORT=29500 "
#define OMPI \
    "OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=2 " \
    "OMPI_COMM_WORLD_LOCAL_SIZE=4 "
#define MPICH "PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2 "
#define SLURM "SLURM_PROCID=3 SLURM_NTASKS=4 SLURM_LOCALID=1 SLURM_STEP_ID=0 SLURM_JOB_ID=77 "

static void launchers_are_recognised(void)
{
    check_place(TORCH, &no_flags, LAUNCHER_TORCHRUN, 5, 8, 1, 4, "tcp://node0:29501");
    check_place(OMPI, &no_flags, LAUNCHER_OPENMPI, 2, 4, 2, 4, "tcp://127.0.0.1:");
    check_place(MPICH, &no_flags, LAUNCHER_MPICH, 1, 2, 1, 2, "tcp://127.0.0.1:");
    check_place(SLURM "SLURM_STEP_NODELIST=n[03-04,7],x1 SLURM_STEP_NUM_NODES=2", &no_flags,
                LAUNCHER_SLURM, 3, 4, 1, 2, "tcp://n03:");
    check_place(SLURM "SLURM_STEP_NODELIST=alpha,beta SLURM_NTASKS_PER_NODE=2", &no_flags,
                LAUNCHER_SLURM, 3, 4, 1, 2, "tcp://alpha:");
    check_place(SLURM "SLURM_STEP_NODELIST=n1 SLURM_STEP_NUM_NODES=1", &no_flags,
                LAUNCHER_SLURM, 3, 4, 1, 4, "tcp://127.0.0.1:");
    check_place("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 "
                "OMPI_COMM_WORLD_LOCAL_SIZE=2 MASTER_ADDR=h MASTER_PORT=900",
                &no_flags, LAUNCHER_OPENMPI, 1, 4, 1, 2, "tcp://h:900");
    check_place("RANK=1 WORLD_SIZE=2 MASTER_ADDR=fe80::1 MASTER_PORT=65535", &no_flags,
                LAUNCHER_TORCHRUN, 1, 2, 0, 1, "tcp://[fe80::1]:65534");
}

static void traps_of_launchers_are_avoided(void)
{
    LaunchFlags four = no_flags;
    four.ranks = 4;
    /* A script under sbatch, without srun. */
    check_place("SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_JOB_ID=7", &no_flags, LAUNCHER_NONE, 0, 1,
                0, 1, NULL);
    /* Open MPI and torchrun under srun. */
    check_place(OMPI SLURM, &no_flags, LAUNCHER_OPENMPI, 2, 4, 2, 4, "tcp://127.0.0.1:");
    check_place(TORCH SLURM, &no_flags, LAUNCHER_TORCHRUN, 5, 8, 1, 4, "tcp://node0:29501");
    /* A shell under srun starts ranks of its own. */
    check_place("SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_STEP_ID=0", &four, LAUNCHER_NONE, 0, 4, 0,
                4, NULL);
    check_place("WORLD_SIZE=", &no_flags, LAUNCHER_NONE, 0, 1, 0, 1, NULL);
}

static void of_a_step_of_slurm_the_tasks_per_node_are_a_maximum(void)
{
    /* sbatch --nodes=2 --ntasks-per-node=8, and in it srun -N2 -n4, srun -N1 -n4. */
    check_place(SLURM
                "SLURM_NTASKS_PER_NODE=8 SLURM_STEP_NUM_NODES=2 SLURM_STEP_NODELIST=a[1-2]",
                &no_flags, LAUNCHER_SLURM, 3, 4, 1, 3, "tcp://a1:");
    check_place(SLURM
                "SLURM_NTASKS_PER_NODE=4 SLURM_STEP_NUM_NODES=4 SLURM_STEP_NODELIST=a[1-4]",
                &no_flags, LAUNCHER_SLURM, 3, 4, 1, 2, "tcp://a1:");
    check_place(SLURM "SLURM_NTASKS_PER_NODE=8 SLURM_STEP_NUM_NODES=1 SLURM_STEP_NODELIST=a1",
                &no_flags, LAUNCHER_SLURM, 3, 4, 1, 4, "tcp://127.0.0.1:");
    check_place(SLURM
                "SLURM_NTASKS_PER_NODE=3 SLURM_STEP_NUM_NODES=2 SLURM_STEP_NODELIST=a[1-2]",
                &no_flags, LAUNCHER_SLURM, 3, 4, 1, 3, "tcp://a1:");
}

static void srun_with_pmi2_is_srun(void)
{
    check_place(SLURM "PMI_RANK=3 PMI_SIZE=4 SLURM_STEP_NUM_NODES=2 SLURM_STEP_NODELIST=a[1-2]",
                &no_flags, LAUNCHER_SLURM, 3, 4, 1, 2, "tcp://a1:");
    check_place(SLURM "PMI_RANK=3 PMI_SIZE=4 SLURM_STEP_NUM_NODES=1 SLURM_STEP_NODELIST=a1",
                &no_flags, LAUNCHER_SLURM, 3, 4, 1, 4, "tcp://127.0.0.1:");
    /* MPICH's own launcher, whose proxies srun started. */
    check_place(MPICH SLURM, &no_flags, LAUNCHER_MPICH, 1, 2, 1, 2, "tcp://127.0.0.1:");
    check_place(SLURM "PMI_RANK=1 PMI_SIZE=2 MASTER_ADDR=h MASTER_PORT=900", &no_flags,
                LAUNCHER_MPICH, 1, 2, 0, 1, "tcp://h:900");
}

/* The job as this process sees it, or a child, whose parent is another, as a script's is. */
static uint64_t job_in(bool child)
{
    int ends[2];
    uint64_t job = 0;
    RankPlace p = { 0 };
    Launcher by;
    Err err = { 0 };
    if (!child)
        return launch_place(&p, &by, &no_flags, &err) ? p.job : 0;
    if (!CHECK_INT(0, pipe(ends)))
        return 0;
    pid_t pid = fork();
    if (pid == 0) {
        bool ok = launch_place(&p, &by, &no_flags, &err);
        _exit(ok && write(ends[1], &p.job, sizeof p.job) == sizeof p.job ? 0 : 1);
    }
    CHECK_INT((int)sizeof job, (int)read(ends[0], &job, sizeof job));
    waitpid(pid, NULL, 0);
    close(ends[0]);
    close(ends[1]);
    return job;
}

/* A script, or a profiler, round every rank gives each a parent of its own. */
static void ranks_in_scripts_of_their_own_are_of_one_job(void)
{
    static const struct {
        const char *environment;
        bool same;
    } cases[] = {
        { "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 "
          "MASTER_PORT=29500 TORCHELASTIC_RUN_ID=none TORCHELASTIC_RESTART_COUNT=0",
          true },
        { "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=0 "
          "OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=job7",
          true },
        { "SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_LOCALID=0 SLURM_NTASKS_PER_NODE=2 "
          "SLURM_JOB_ID=5 SLURM_STEP_ID=0",
          true },
        { "PMI_RANK=0 PMI_SIZE=2 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2 MASTER_ADDR=127.0.0.1 "
          "MASTER_PORT=29500",
          true },
        /* nothing else tells jobs of MPICH apart */
        { "PMI_RANK=0 PMI_SIZE=2 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2", false },
    };
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        environment(cases[i].environment);
        uint64_t mine = job_in(false);
        CHECK(mine != 0 && (mine == job_in(true)) == cases[i].same);
    }
    environment("RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500");
    uint64_t one = job_in(false);
    environment("RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29600");
    CHECK(one != job_in(false));
}

static void flags_win(void)
{
    LaunchFlags f = no_flags;
    f.rank = 1;
    f.world = 3;
    f.rendezvous = "tcp://h:5";
    check_place(TORCH OMPI, &f, LAUNCHER_FLAGS, 1, 3, 0, 1, "tcp://h:5");
    f.local_rank = 2;
    check_place("", &f, LAUNCHER_FLAGS, 1, 3, 2, 3, "tcp://h:5");
    LaunchFlags at = no_flags;
    at.rendezvous = "file:/x";
    check_place(TORCH, &at, LAUNCHER_TORCHRUN, 5, 8, 1, 4, "file:/x");
    at.ranks = 8;
    check_place(TORCH, &at, LAUNCHER_TORCHRUN, 5, 8, 1, 4, "file:/x");
}

static void nonsense_is_refused(void)
{
    LaunchFlags f = no_flags;
    check_refused("RANK=x WORLD_SIZE=2", &f, "RANK is 'x', not a number from 0 to");
    check_refused("RANK=-1 WORLD_SIZE=2", &f, "RANK is '-1', not a number from 0 to");
    check_refused("RANK=99999999999999999999 WORLD_SIZE=2", &f, "not a number");
    check_refused("RANK=2 WORLD_SIZE=2", &f, "RANK is 2 and WORLD_SIZE is 2");
    check_refused("WORLD_SIZE=2", &f, "WORLD_SIZE is set, but RANK is not: torchrun sets both");
    check_refused("RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=4", &f,
                  "LOCAL_WORLD_SIZE is 4 and WORLD_SIZE is 2");
    check_refused("RANK=0 WORLD_SIZE=2 LOCAL_RANK=2", &f, "LOCAL_RANK is 2");
    check_refused("RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=0", &f, "MASTER_PORT is '0'");
    check_refused("RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=70000", &f,
                  "MASTER_PORT is '70000', not a port");
    check_refused("RANK=0 WORLD_SIZE=2", &f, "does not say where rank 0 is");
    check_refused("RANK=0 WORLD_SIZE=1 " OMPI, &f, "contradicts Open MPI's rank 2 of 4");
    f.ranks = 4;
    check_refused(TORCH, &f, "--ranks 4, but torchrun has started 8");
    f = no_flags;
    f.rank = 0;
    check_refused("", &f, "--rank and --world go together");
    f.world = 2;
    check_refused("", &f, "--world 2 needs --rendezvous");
    f.rank = 2;
    check_refused("", &f, "--rank 2 --world 2: ranks count from 0");
    f.ranks = 2;
    check_refused("", &f, "give one of them");
    f = no_flags;
    f.rendezvous = "udp://h:1";
    check_refused("", &f, "'udp://h:1' is neither tcp://HOST:PORT nor file:PATH");
    f.rendezvous = "tcp://h";
    check_refused("", &f, "is not HOST:PORT");
}

/* ---- children ---- */

static RankPage *page;

static int child_counts(const RankPlace *place, void *user)
{
    const uint32_t *n = user;
    bool ok = place->world == *n && place->local_n == *n && place->local_rank == place->rank;
    for (uint32_t r = 0; r < *n; r++)
        ok = ok && page->pids[r] > 0; /* all are known before any begins */
    ok = ok && page->pids[place->rank] == getpid();
    atomic_fetch_add(&page->ready_n, 1);
    return ok ? 0 : 1;
}

static void children_know_their_place(void)
{
    for (uint32_t n = 1; n <= 5; n++) {
        page = rank_page_make();
        CHECK_INT(
            0, launch_ranks(n, child_counts, &n, &(RankPlace){ .timeout_s = 5 }, page->pids));
        CHECK_INT(n, atomic_load(&page->ready_n));
        rank_page_free(page);
    }
}

static int child_fails(const RankPlace *place, void *user)
{
    (void)user;
    if (place->rank == 2)
        return 3;
    net_sleep_ns(100000000);
    return (int)place->rank;
}

static void the_first_status_that_is_not_0_counts(void)
{
    CHECK_INT(3, launch_ranks(3, child_fails, NULL, &(RankPlace){ .timeout_s = 5 }, NULL));
}

static int child_dies(const RankPlace *place, void *user)
{
    (void)user;
    if (place->rank == 1)
        raise(SIGUSR1);
    return 0;
}

static void a_child_killed_by_a_signal_is_named(void)
{
    char text[4096];
    Hush hush = hush_begin();
    int status = launch_ranks(3, child_dies, NULL, &(RankPlace){ .timeout_s = 5 }, NULL);
    hush_end(&hush, text, sizeof text);
    CHECK_INT(1, status);
    CHECK(strstr(text, "lockstep: rank 1 (process ") != NULL);
    CHECK(strstr(text, "was killed by signal 10 (") != NULL);
}

static int child_deaf(const RankPlace *place, void *user)
{
    (void)user;
    signal(SIGTERM, SIG_IGN);
    if (place->rank == 0)
        return 1;
    while (pause() < 0)
        ;
    return 0;
}

static void children_that_do_not_end_are_killed(void)
{
    char text[4096];
    int64_t start_ns = net_now_ns();
    Hush hush = hush_begin();
    int status = launch_ranks(3, child_deaf, NULL, &(RankPlace){ .timeout_s = 5 }, NULL);
    hush_end(&hush, text, sizeof text);
    CHECK_INT(1, status);
    CHECK(strstr(text, "2 ranks did not end by themselves and are killed") != NULL);
    CHECK(net_now_ns() - start_ns < 15000000000);
}

/* ---- before the ranks have met ---- */

typedef enum HowItEnds { BY_STATUS, BY_SIGNAL } HowItEnds;

static int comes(const RankPlace *place)
{
    Fabric *f;
    Err err = { 0 };
    bool ok = fabric_open(&f, place, 4096, &err);
    memcpy(page->said[place->rank], err.text, sizeof err.text);
    fabric_close(f);
    return ok ? 0 : 1;
}

static int comes_unless_rank_1(const RankPlace *place, void *user)
{
    const HowItEnds *how = user;
    if (place->rank == 1 && *how == BY_SIGNAL)
        raise(SIGKILL);
    return place->rank == 1 ? 3 : comes(place);
}

static void check_rank_1_is_missed(int64_t start_ns)
{
    CHECK(net_now_ns() - start_ns < 15000000000);
    for (uint32_t r = 0; r < 3; r += 2) {
        bool said = strstr(page->said[r], "rank 1 on '") &&
                    strstr(page->said[r], ") ended before the job began");
        /* Who comes late finds nobody. */
        if (!said && r == 2)
            said = strstr(page->said[r], "ended while the ranks were still meeting");
        if (!CHECK(said))
            fprintf(stderr, "rank %u: %s\n", r, page->said[r]);
    }
}

static void who_ends_before_the_ranks_have_met_is_named_at_once(void)
{
    for (HowItEnds how = BY_STATUS; how <= BY_SIGNAL; how++) {
        char text[4096];
        page = rank_page_make();
        int64_t start_ns = net_now_ns();
        Hush hush = hush_begin();
        int status =
            launch_ranks(3, comes_unless_rank_1, &how, &(RankPlace){ .timeout_s = 30 }, NULL);
        hush_end(&hush, text, sizeof text);
        CHECK_INT(how == BY_STATUS ? 3 : 1, status);
        check_rank_1_is_missed(start_ns);
        rank_page_free(page);
    }
}

static void a_thread_that_ends_before_the_ranks_have_met_is_named_at_once(void)
{
    HowItEnds how = BY_STATUS;
    page = rank_page_make();
    int64_t start_ns = net_now_ns();
    CHECK_INT(1, launch_threads(3, comes_unless_rank_1, &how, &(RankPlace){ .timeout_s = 30 }));
    check_rank_1_is_missed(start_ns);
    rank_page_free(page);
}

static int comes_unless_rank_0(const RankPlace *place, void *user)
{
    (void)user;
    return place->rank == 0 ? 3 : comes(place);
}

static void a_first_thread_that_fails_is_not_waited_for(void)
{
    page = rank_page_make();
    int64_t start_ns = net_now_ns();
    CHECK_INT(3, launch_threads(2, comes_unless_rank_0, NULL, &(RankPlace){ .timeout_s = 30 }));
    CHECK(net_now_ns() - start_ns < 15000000000);
    CHECK(strstr(page->said[1], "ended while the ranks were still meeting") != NULL);
    rank_page_free(page);
}

/* As torchrun does: each rank is a process of its own. */
static void a_rank_started_by_others_says_that_it_will_not_come(void)
{
    HowItEnds how = BY_STATUS;
    RankPlace places[3];
    int pids[3], status;
    char folder[] = P_tmpdir "/lockstep-launch-XXXXXX", rendezvous[64];
    page = rank_page_make();
    ASSERT(mkdtemp(folder));
    snprintf(rendezvous, sizeof rendezvous, "file:%s/here", folder);
    int64_t start_ns = net_now_ns();
    for (uint32_t r = 0; r < 3; r++) {
        places[r] = (RankPlace){ .rank = r, .world = 3, .rendezvous = rendezvous };
        places[r].timeout_s = 30;
        places[r].job = 5;
        if ((pids[r] = fork()) == 0)
            _exit(launch_self(&places[r], comes_unless_rank_1, &how));
    }
    for (uint32_t r = 0; r < 3; r++) {
        if (r == 2 && !page->said[2][0])
            kill(pids[2], SIGKILL); /* it came when rank 0 had given up: its launcher's part */
        waitpid(pids[r], &status, 0);
    }
    CHECK(net_now_ns() - start_ns < 15000000000);
    CHECK(strstr(page->said[0], ") ended before the job began") != NULL);
    rmdir(folder);
    rank_page_free(page);
}

/* ---- stopped, and asked to end ---- */

static int child_stops(const RankPlace *place, void *user)
{
    (void)place;
    (void)user;
    atomic_fetch_add(&page->ready_n, 1);
    raise(SIGSTOP);
    return 0;
}

static void ranks_that_are_all_stopped_are_killed_after_the_time_out(void)
{
    char text[4096];
    page = rank_page_make();
    int64_t start_ns = net_now_ns();
    Hush hush = hush_begin();
    int status = launch_ranks(2, child_stops, NULL, &(RankPlace){ .timeout_s = 0.7 }, NULL);
    hush_end(&hush, text, sizeof text);
    CHECK_INT(1, status);
    CHECK(strstr(text, "lockstep: all ranks have been stopped for 0.7 s\n") != NULL);
    CHECK(strstr(text, "lockstep: rank 0 (process ") != NULL);
    CHECK(strstr(text, ") is stopped, and is killed\n") != NULL);
    CHECK(net_now_ns() - start_ns > 700000000);
    rank_page_free(page);
}

/* ^Z and, much later, fg: the launcher was stopped as well. */
static void a_job_that_was_stopped_as_a_whole_goes_on(void)
{
    page = rank_page_make();
    int how = 0, launcher = fork();
    if (launcher == 0)
        _exit(launch_ranks(2, child_stops, NULL, &(RankPlace){ .timeout_s = 1 }, page->pids));
    while (atomic_load(&page->ready_n) < 2)
        net_sleep_ns(1000000);
    kill(launcher, SIGSTOP);
    net_sleep_ns(1500000000);
    kill(launcher, SIGCONT);
    net_sleep_ns(100000000);
    for (int r = 0; r < 2; r++)
        kill(page->pids[r], SIGCONT);
    waitpid(launcher, &how, 0);
    CHECK(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    rank_page_free(page);
}

static int child_waits(const RankPlace *place, void *user)
{
    (void)place;
    (void)user;
    atomic_fetch_add(&page->ready_n, 1);
    while (pause() < 0)
        ;
    return 0;
}

/* A launcher in a process of its own; returns its status once `number` has reached it. */
static int signal_a_launcher(int number)
{
    int how = 0, launcher = fork();
    if (launcher == 0) {
        RankPlace place = { .timeout_s = 5 };
        signal(SIGINT, SIG_DFL); /* a shell's background ignores it */
        _exit(launch_ranks(3, child_waits, NULL, &place, page->pids));
    }
    while (atomic_load(&page->ready_n) < 3)
        net_sleep_ns(1000000);
    kill(launcher, number);
    waitpid(launcher, &how, 0);
    return how;
}

static bool all_end(int64_t within_ns)
{
    int64_t until_ns = net_now_ns() + within_ns;
    for (int r = 0; r < 3; r++)
        while (process_lives(page->pids[r])) {
            if (net_now_ns() > until_ns)
                return false;
            net_sleep_ns(1000000);
        }
    return true;
}

static void signals_are_passed_on(void)
{
    const int numbers[] = { SIGINT, SIGTERM };
    for (size_t i = 0; i < ARRAY_N(numbers); i++) {
        page = rank_page_make();
        int how = signal_a_launcher(numbers[i]);
        CHECK(WIFEXITED(how) && WEXITSTATUS(how) == 1);
        CHECK(all_end(0));
        rank_page_free(page);
    }
}

static void children_die_with_a_killed_launcher(void)
{
    page = rank_page_make();
    int how = signal_a_launcher(SIGKILL);
    CHECK(WIFSIGNALED(how));
    CHECK(all_end(2000000000));
    rank_page_free(page);
}

int main(void)
{
    RUN(nobody_started_us);
    RUN(launchers_are_recognised);
    RUN(traps_of_launchers_are_avoided);
    RUN(of_a_step_of_slurm_the_tasks_per_node_are_a_maximum);
    RUN(srun_with_pmi2_is_srun);
    RUN(ranks_in_scripts_of_their_own_are_of_one_job);
    RUN(flags_win);
    RUN(nonsense_is_refused);
    environment("");
    RUN(children_know_their_place);
    RUN(the_first_status_that_is_not_0_counts);
    RUN(a_child_killed_by_a_signal_is_named);
    RUN(children_that_do_not_end_are_killed);
    RUN(who_ends_before_the_ranks_have_met_is_named_at_once);
    RUN(a_thread_that_ends_before_the_ranks_have_met_is_named_at_once);
    RUN(a_first_thread_that_fails_is_not_waited_for);
    RUN(a_rank_started_by_others_says_that_it_will_not_come);
    RUN(ranks_that_are_all_stopped_are_killed_after_the_time_out);
    RUN(a_job_that_was_stopped_as_a_whole_goes_on);
    RUN(signals_are_passed_on);
    RUN(children_die_with_a_killed_launcher);
    return check_report();
}

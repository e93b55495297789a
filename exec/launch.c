/*
 * launch.c - starting ranks: N children of one process, which outlives them.
 *
 * All are forked before any of them begins (and before this process has threads).
 * The launcher then only waits for signals: a child that ended, or one that is to be
 * passed on.  A child dies with the launcher, however that one ends.  When one child
 * has failed the fabric ends the others, or rank 0, who is told, while they meet; those
 * that do not end are killed, those that are stopped (SIGSTOP) and cannot end at once.
 * Where all are stopped nobody is left to miss anybody: then the launcher does.
 *
 * Copies are children too, which begin as others end; one that fails ends only itself.
 *
 * Which rank a process is, if others started it, stands in launch_place.c.
 */
#include "exec/launch.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "exec/net.h"
#include "exec/rendezvous.h"

enum {
    STOPPED_AFTER_S = 1,
    TERM_AFTER_S = 8,
    KILL_AFTER_S = 10,
    COPIES_LATER_S = 3,
    LOOK_NS = 200000000
};
enum { EXCUSE_NS = 2000000000 }; /* for a rank 0 that does not listen yet */

typedef enum ChildState { CHILD_RUNS, CHILD_STOPPED, CHILD_KILLED /* by us */ } ChildState;

typedef struct Crew {
    uint32_t n, running_n;
    int *alive; /* process of each rank; 0: has ended */
    ChildState *state;
    const char *job;          /* which of several; NULL: there is one */
    const char *const *names; /* of copies; NULL: they are ranks */
    int *statuses;            /* of copies */
    int status;               /* to leave with */
    int64_t ends_ns;          /* when somebody failed or a signal came; 0: all is well */
    const RankPlace *place;   /* what all ranks have in common; NULL: they are copies */
    uint32_t missed;          /* rank that failed and must be excused; 0: none */
    int missed_pid;
    int64_t looked_ns, stopped_ns; /* last look; for how long all have been stopped */
    bool passed_on, terminated, killed;
} Crew;

static void signal_all(const Crew *crew, int number)
{
    for (uint32_t r = 0; r < crew->n; r++)
        if (crew->alive[r] > 0)
            kill(crew->alive[r], number);
}

typedef struct Whom {
    char text[300];
} Whom;

/* "rank 1 (process 77)" */
static Whom whom(const Crew *crew, uint32_t i, int pid)
{
    Whom w;
    if (crew->names)
        snprintf(w.text, sizeof w.text, "%.200s (process %d)", crew->names[i], pid);
    else
        snprintf(w.text, sizeof w.text, "%.200s%srank %u (process %d)",
                 crew->job ? crew->job : "", crew->job ? ": " : "", i, pid);
    return w;
}

/* ---- a child ---- */

typedef int (*Body)(const RankPlace *place, void *user);

static _Noreturn void child_run(const RankPlace *place, Body body, void *user, int gate,
                                pid_t launcher, const sigset_t *signals)
{
    char byte;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher)
        _exit(EXIT_COULD_NOT);
    /* The gate opens, by being closed, when all are there. */
    while (read(gate, &byte, 1) < 0 && errno == EINTR)
        ;
    close(gate);
    if (getppid() != launcher)
        _exit(EXIT_COULD_NOT);
    sigprocmask(SIG_SETMASK, signals, NULL);
    exit(body(place, user));
}

/* ---- waiting ---- */

static void begin_end(Crew *crew, int status)
{
    if (crew->ends_ns == 0) {
        crew->ends_ns = net_now_ns();
        crew->status = status;
    }
}

/* Of ranks one failure ends the job; a copy is by itself. */
static void child_failed(Crew *crew, uint32_t i, int status)
{
    if (!crew->names) {
        begin_end(crew, status);
        return;
    }
    crew->statuses[i] = status;
    crew->status = crew->status == EXIT_DONE ? status : crew->status;
    if (crew->ends_ns == 0)
        fprintf(stderr, "lockstep: %s has failed%s\n", crew->names[i],
                crew->running_n > 0 ? "; the other copies go on" : "");
}

static void child_ended(Crew *crew, uint32_t rank, int how)
{
    int pid = crew->alive[rank];
    crew->alive[rank] = 0;
    crew->running_n--;
    if (WIFEXITED(how) && WEXITSTATUS(how) == EXIT_DONE)
        return;
    if (crew->ends_ns == 0) {
        crew->missed = rank;
        crew->missed_pid = pid;
    }
    if (WIFEXITED(how)) {
        child_failed(crew, rank, WEXITSTATUS(how));
        return;
    }
    int number = WTERMSIG(how);
    bool ours = crew->killed || crew->state[rank] == CHILD_KILLED ||
                (crew->passed_on && (number == SIGINT || number == SIGTERM));
    if (!ours)
        fprintf(stderr, "lockstep: %s was killed by signal %d (%s)%s\n",
                whom(crew, rank, pid).text, number, strsignal(number),
                number == SIGKILL ? ", which the kernel also sends when memory runs out" : "");
    child_failed(crew, rank, EXIT_COULD_NOT);
}

/* Only our children: the caller may have others. */
static void reap(Crew *crew)
{
    for (uint32_t r = 0; r < crew->n; r++) {
        int how = 0, pid;
        if (crew->alive[r] == 0)
            continue;
        while ((pid = waitpid(crew->alive[r], &how, WNOHANG | WUNTRACED | WCONTINUED)) ==
               crew->alive[r]) {
            if (!WIFSTOPPED(how) && !WIFCONTINUED(how)) {
                child_ended(crew, r, how);
                break;
            }
            crew->state[r] = WIFSTOPPED(how) ? CHILD_STOPPED : CHILD_RUNS;
        }
    }
}

/* From a terminal the whole process group has got the signal already. */
static void pass_on(Crew *crew, int number, const siginfo_t *info)
{
    if (crew->passed_on)
        return;
    crew->passed_on = true;
    if (!crew->job) /* else who has started the copies says it */
        fprintf(stderr, "lockstep: ended by signal %d (%s)\n", number, strsignal(number));
    if (info->si_code <= 0)
        signal_all(crew, number);
    begin_end(crew, EXIT_COULD_NOT);
}

static void kill_stopped(Crew *crew)
{
    for (uint32_t r = 0; r < crew->n; r++) {
        if (crew->alive[r] == 0 || crew->state[r] != CHILD_STOPPED)
            continue;
        fprintf(stderr, "lockstep: %s is stopped, and is killed\n",
                whom(crew, r, crew->alive[r]).text);
        kill(crew->alive[r], SIGKILL);
        crew->state[r] = CHILD_KILLED;
    }
}

/* The time in which this process was stopped, too, does not count. */
static void look_for_stopped(Crew *crew)
{
    int64_t now_ns = net_now_ns(), since_ns = now_ns - crew->looked_ns;
    crew->looked_ns = now_ns;
    for (uint32_t r = 0; r < crew->n; r++)
        if (crew->alive[r] > 0 && crew->state[r] != CHILD_STOPPED)
            since_ns = -crew->stopped_ns;
    crew->stopped_ns += min_i64(since_ns, 2 * LOOK_NS);
    if (!crew->place || crew->ends_ns > 0 ||
        (double)crew->stopped_ns * 1e-9 < crew->place->timeout_s)
        return;
    fprintf(stderr, "lockstep: %s%sall ranks have been stopped for %.3g s\n",
            crew->job ? crew->job : "", crew->job ? ": " : "", crew->place->timeout_s);
    begin_end(crew, EXIT_COULD_NOT);
    kill_stopped(crew);
}

/* As long as rank 0 may be waiting for it to come. */
static void excuse_missed(Crew *crew)
{
    const int64_t patience_ns = 100000000;
    if (!crew->place || crew->missed == 0 ||
        !rendezvous_excuse(crew->place, crew->missed, (uint32_t)crew->missed_pid,
                           net_now_ns() + patience_ns))
        return;
    crew->missed = 0;
}

static void hurry(Crew *crew)
{
    look_for_stopped(crew);
    if (crew->ends_ns == 0)
        return;
    excuse_missed(crew);
    int64_t since_s = (net_now_ns() - crew->ends_ns) / 1000000000;
    since_s -= crew->names ? COPIES_LATER_S : 0; /* they look after their own ranks first */
    if (since_s >= STOPPED_AFTER_S)
        kill_stopped(crew);
    if (since_s >= TERM_AFTER_S && !crew->terminated) {
        crew->terminated = crew->passed_on = true;
        signal_all(crew, SIGTERM);
    }
    if (since_s >= KILL_AFTER_S && !crew->killed) {
        crew->killed = true;
        fprintf(stderr, "lockstep: %u %s%s did not end by %s and %s killed\n", crew->running_n,
                crew->names ? "process" : "rank",
                crew->running_n == 1 ? ""
                : crew->names        ? "es"
                                     : "s",
                crew->running_n == 1 ? "itself" : "themselves",
                crew->running_n == 1 ? "is" : "are");
        signal_all(crew, SIGKILL);
    }
}

/* Until a child has changed or a moment has passed; what is to be passed on, is. */
static void crew_listen(Crew *crew, const sigset_t *signals)
{
    const struct timespec look = { .tv_nsec = LOOK_NS };
    siginfo_t info;
    hurry(crew);
    int number = sigtimedwait(signals, &info, &look);
    if (number == SIGINT || number == SIGTERM)
        pass_on(crew, number, &info);
}

static int crew_wait(Crew *crew, const sigset_t *signals)
{
    for (reap(crew); crew->running_n > 0; reap(crew))
        crew_listen(crew, signals);
    return crew->status;
}

/* ---- starting ---- */

/* False: a child could not be made; those before it see a launcher that has no gate for them. */
static bool start_all(Crew *crew, Body body, void *user, const RankPlace *common,
                      const sigset_t *before, int listener, int *pids)
{
    int gate[2];
    pid_t launcher = getpid();
    if (pipe(gate) != 0) {
        fprintf(stderr, "lockstep: cannot start ranks: %s\n", strerror(errno));
        return false;
    }
    fflush(NULL); /* or the children write it once more */
    for (uint32_t r = 0; r < crew->n; r++) {
        int pid = fork();
        if (pid == 0) {
            RankPlace place = *common;
            place.rank = place.local_rank = r;
            close(gate[1]);
            if (r > 0 && listener >= 0)
                close(listener); /* rank 0's alone: it ends with rank 0 */
            child_run(&place, body, user, gate[0], launcher, before);
        }
        if (pid < 0) {
            fprintf(stderr, "lockstep: cannot start rank %u: %s\n", r, strerror(errno));
            crew->killed = true;
            signal_all(crew, SIGKILL);
            break;
        }
        crew->alive[r] = pid;
        if (pids)
            pids[r] = pid;
        crew->running_n++;
    }
    close(gate[0]);
    close(gate[1]);
    return crew->running_n == crew->n;
}

/* A port of the loopback interface, held from here on: rank 0 inherits the socket. */
static int make_rendezvous(RankPlace *place, char *text, size_t cap)
{
    uint16_t port = 0;
    int listener = net_listen("127.0.0.1", "0", &port);
    if (listener < 0)
        return -1;
    rendezvous_inherit(listener, port);
    snprintf(text, cap, "tcp://127.0.0.1:%u", port);
    place->rendezvous = text;
    return listener;
}

/* What ends a child, or should end us; a signal that our starter had ignored stays so. */
static void watch(sigset_t *signals)
{
    const int ends[] = { SIGINT, SIGTERM };
    struct sigaction action = { .sa_handler = SIG_DFL };
    sigemptyset(signals);
    sigaddset(signals, SIGCHLD);
    sigaction(SIGCHLD, &action, NULL); /* ignored, children would vanish unseen */
    for (size_t i = 0; i < ARRAY_N(ends); i++)
        if (sigaction(ends[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN)
            sigaddset(signals, ends[i]);
}

/* Fills in what is left open: where to meet, whose listener rank 0 takes, and the job's number. */
static bool fill_place(RankPlace *place, uint32_t ranks, char *text, size_t cap, int *listener)
{
    *listener = -1;
    if (ranks > 1 && !place->rendezvous) {
        *listener = make_rendezvous(place, text, cap);
        if (*listener < 0) {
            fprintf(stderr, "lockstep: no port of 127.0.0.1 is free: %s\n", strerror(errno));
            return false;
        }
    }
    if (place->job == 0)
        place->job = mix_u64(mix_u64((uint64_t)getpid()) ^ (uint64_t)net_now_ns());
    return true;
}

int launch_ranks(uint32_t ranks, Body body, void *user, const RankPlace *common, int *pids)
{
    ASSERT(ranks > 0);
    RankPlace place = *common;
    char rendezvous[64];
    int listener;
    if (!fill_place(&place, ranks, rendezvous, sizeof rendezvous, &listener))
        return EXIT_COULD_NOT;
    place.world = place.local_n = ranks;
    Crew crew = { .n = ranks,
                  .job = common->copy,
                  .place = &place,
                  .looked_ns = net_now_ns(),
                  .alive = mem_zero(ranks, sizeof *crew.alive),
                  .state = mem_zero(ranks, sizeof *crew.state) };
    sigset_t watched, before;
    watch(&watched);
    sigprocmask(SIG_BLOCK, &watched, &before);
    bool ok = start_all(&crew, body, user, &place, &before, listener, pids);
    if (listener >= 0) {
        rendezvous_inherit(-1, 0);
        close(listener);
    }
    int status = crew_wait(&crew, &watched);
    sigprocmask(SIG_SETMASK, &before, NULL);
    free(crew.alive);
    free(crew.state);
    return ok ? status : EXIT_COULD_NOT;
}

/* ---- copies ---- */

static _Noreturn void copy_run(uint32_t copy, int (*body)(uint32_t, void *), void *user,
                               pid_t launcher, const sigset_t *signals)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher)
        _exit(EXIT_COULD_NOT);
    sigprocmask(SIG_SETMASK, signals, NULL);
    exit(body(copy, user));
}

int launch_copies(uint32_t n, uint32_t at_once, const char *const *names,
                  int (*body)(uint32_t copy, void *user), void *user, int *statuses)
{
    ASSERT(n > 0 && at_once > 0);
    Crew crew = { .n = n,
                  .alive = mem_zero(n, sizeof *crew.alive),
                  .state = mem_zero(n, sizeof *crew.state),
                  .names = names,
                  .statuses = statuses };
    sigset_t watched, before;
    pid_t launcher = getpid();
    watch(&watched);
    sigprocmask(SIG_BLOCK, &watched, &before);
    fflush(NULL);
    for (uint32_t next = 0; next < n; reap(&crew)) {
        if (crew.ends_ns > 0) {
            statuses[next++] = EXIT_COULD_NOT; /* a signal came first */
        } else if (crew.running_n >= at_once) {
            crew_listen(&crew, &watched);
        } else {
            int pid = fork();
            if (pid == 0)
                copy_run(next, body, user, launcher, &before);
            crew.alive[next] = pid > 0 ? pid : 0;
            crew.running_n += pid > 0;
            statuses[next] = EXIT_DONE;
            if (pid < 0) {
                fprintf(stderr, "lockstep: cannot start a process: %s\n", strerror(errno));
                child_failed(&crew, next, EXIT_COULD_NOT);
            }
            next++;
        }
    }
    int status = crew_wait(&crew, &watched);
    sigprocmask(SIG_SETMASK, &before, NULL);
    free(crew.alive);
    free(crew.state);
    return status;
}

/* ---- this process, and threads ---- */

int launch_self(const RankPlace *place, Body body, void *user)
{
    RankPlace own = *place;
    bool came = false;
    own.came = &came;
    int status = body(&own, user);
    if (status != EXIT_DONE && !came)
        rendezvous_excuse(place, place->rank, (uint32_t)getpid(), net_now_ns() + EXCUSE_NS);
    return status;
}

typedef struct RankThread {
    RankPlace place;
    Body body;
    void *user;
    pthread_t thread;
    bool exists;
    int status;
} RankThread;

static void *rank_thread(void *user)
{
    RankThread *t = user;
    t->status = launch_self(&t->place, t->body, t->user);
    return NULL;
}

/* Of the lowest rank that failed; a thread that could not be made has failed. */
static int join_threads(RankThread *threads, uint32_t n)
{
    int status = EXIT_DONE;
    for (uint32_t r = 0; r < n; r++) {
        if (threads[r].exists)
            pthread_join(threads[r].thread, NULL);
        if (status == EXIT_DONE)
            status = threads[r].status;
    }
    return status;
}

int launch_threads(uint32_t ranks, Body body, void *user, const RankPlace *common)
{
    ASSERT(ranks > 0);
    RankPlace place = *common;
    char rendezvous[64];
    int listener;
    if (!fill_place(&place, ranks, rendezvous, sizeof rendezvous, &listener))
        return EXIT_COULD_NOT;
    RankThread *threads = mem_zero(ranks, sizeof *threads);
    place.world = place.local_n = ranks;
    for (uint32_t r = 0; r < ranks; r++) {
        RankThread *t = &threads[r];
        *t = (RankThread){ place, body, user, .status = EXIT_COULD_NOT };
        t->place.rank = t->place.local_rank = r;
        t->exists = pthread_create(&t->thread, NULL, rank_thread, t) == 0;
        if (!t->exists) {
            fprintf(stderr, "lockstep: cannot start rank %u\n", r);
            rendezvous_excuse(&place, r, (uint32_t)getpid(), net_now_ns() + EXCUSE_NS);
        }
    }
    int status = join_threads(threads, ranks);
    rendezvous_inherit(-1, 0); /* rank 0 has closed the socket */
    free(threads);
    return status;
}

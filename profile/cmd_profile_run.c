/*
 * cmd_profile_run.c - starts a command with the collector in its environment, and waits.
 *
 * Signals are blocked and waited for together with the end of the command.  One from the
 * terminal has reached the command already, since both are of one process group; one that was
 * sent to this process alone is passed on.  Either way this process goes on, and makes traces
 * of what was recorded.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "profile/capture.h"
#include "profile/cmd_profile.h"

static const int passed_on[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 };

/* A program's own choice of a NCCL profiler or of NVTX's tool stands. */
static void set_environment(const ProfileRun *run)
{
    setenv(CAPTURE_DIR_VARIABLE, run->raw, 1);
    setenv("CUDA_INJECTION64_PATH", run->plugin, 1);
    setenv("NVTX_INJECTION64_PATH", run->plugin, 0);
    setenv("NCCL_PROFILER_PLUGIN", run->plugin, 0);
}

static _Noreturn void child(const ProfileRun *run, int report, const sigset_t *signals)
{
    sigprocmask(SIG_SETMASK, signals, NULL);
    set_environment(run);
    execvp(run->command[0], run->command);
    int why = errno;
    (void)!write(report, &why, sizeof why);
    _exit(127);
}

/* What exec said; 0: it went well, and closed the pipe. */
static int exec_error(int report)
{
    int why = 0;
    ssize_t n;
    while ((n = read(report, &why, sizeof why)) < 0 && errno == EINTR)
        ;
    return n == (ssize_t)sizeof why ? why : 0;
}

static void pass_on(pid_t pid, int number, const siginfo_t *info)
{
    if (info->si_code <= 0)
        kill(pid, number);
    if (number != SIGUSR1 && number != SIGUSR2)
        fprintf(stderr,
                "lockstep: signal %d (%s): the command gets it, what it recorded is kept\n",
                number, strsignal(number));
}

static int wait_for(pid_t pid, const sigset_t *waited)
{
    siginfo_t info;
    int how = 0;
    for (;;) {
        pid_t ended = waitpid(pid, &how, WNOHANG);
        if (ended == pid || (ended < 0 && errno == ECHILD))
            return how;
        int number = sigwaitinfo(waited, &info);
        if (number > 0 && number != SIGCHLD)
            pass_on(pid, number, &info);
    }
}

bool profile_run(const ProfileRun *run, int *status, Err *err)
{
    sigset_t waited, before;
    int report[2];
    sigemptyset(&waited);
    sigaddset(&waited, SIGCHLD);
    for (size_t i = 0; i < ARRAY_N(passed_on); i++)
        sigaddset(&waited, passed_on[i]);
    if (pipe(report) != 0)
        return err_set(err, "cannot run '%s': %s", run->command[0], strerror(errno));
    fcntl(report[0], F_SETFD, FD_CLOEXEC);
    fcntl(report[1], F_SETFD, FD_CLOEXEC);
    fflush(NULL);
    sigprocmask(SIG_BLOCK, &waited, &before);
    pid_t pid = fork();
    if (pid == 0)
        child(run, report[1], &before);
    close(report[1]);
    int why = pid < 0 ? errno : exec_error(report[0]);
    close(report[0]);
    int how = pid < 0 ? 0 : wait_for(pid, &waited);
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (why)
        return err_set(err, "cannot run '%s': %s", run->command[0], strerror(why));
    *status = WIFSIGNALED(how) ? 128 + WTERMSIG(how) : WEXITSTATUS(how);
    return true;
}

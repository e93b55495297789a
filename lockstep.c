/*
 * lockstep.c - the program: a table of commands, and main, which finds one in it.
 *
 * A command lives in its folder's cmd_NAME.c and is declared in that folder's
 * cmd.h.
 */
#include "core/base.h"
#include "core/nearest.h"
#include "core/out_file.h"
#include "core/printable.h"
#include "core/share.h"
#include "exec/cmd.h"
#include "profile/cmd.h"
#include "sim/cmd.h"
#include "traces/cmd.h"
#include "viz/cmd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LOCKSTEP_VERSION "0.1"

typedef struct Command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} Command;

static const Command commands[] = {
    { "sim", cmd_sim, "predict a training step: time, memory, cost" },
    { "plan", cmd_plan, "search for the best strategy on a number of GPUs" },
    { "run", cmd_run, "train for real and record what happens" },
    { "profile", cmd_profile, "record any CUDA program" },
    { "report", cmd_report, "overlap, exposed communication, stragglers of a trace" },
    { "compare", cmd_compare, "a prediction beside a recorded run" },
    { "calibrate", cmd_calibrate, "fit a GPU or cluster file to measurements" },
    { "bench", cmd_bench, "the micro-benchmarks that calibration needs" },
    { "validate", cmd_validate, "predictions beside published measurements" },
    { "collective", cmd_collective, "how long a collective takes on a cluster, by size" },
    { "cluster", cmd_cluster, "who reaches whom, over what, how fast" },
    { "convert", cmd_convert, "read one trace format, write another" },
    { "view", cmd_view, "look at traces" },
    { "list", cmd_list, "the models, GPUs, clusters, strategies ... built in" },
};

static const Command *find_command(const char *name)
{
    for (size_t i = 0; i < ARRAY_N(commands); i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

static const char *nearest_command(const char *name)
{
    const char *names[ARRAY_N(commands)];
    for (size_t i = 0; i < ARRAY_N(commands); i++)
        names[i] = commands[i].name;
    return nearest(name, names, ARRAY_N(names));
}

static void print_help(FILE *f)
{
    fprintf(f,
            "usage: lockstep COMMAND [ARGUMENT]...\n"
            "Simulates, runs and profiles the training of neural networks on many GPUs.\n\n");
    for (size_t i = 0; i < ARRAY_N(commands); i++)
        fprintf(f, "  %-11s %s\n", commands[i].name, commands[i].summary);
    fprintf(f,
            "\n`lockstep help COMMAND` says more; `lockstep --version` says which this is.\n");
}

/* Names come from the user: long ones are cut, control bytes shown as '?'. */
static int unknown_command(const char *name)
{
    char shown[80];
    snprintf(shown, sizeof shown, "%s", name);
    make_printable(shown);
    const char *meant = nearest_command(shown);
    fprintf(stderr, "lockstep: unknown command '%s'", shown);
    if (meant)
        fprintf(stderr, ", did you mean '%s'?\n", meant);
    else
        fprintf(stderr, "; `lockstep --help` lists the commands\n");
    return EXIT_USAGE;
}

static bool is_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

/* Without the built-in files nothing is found out, but what a program does can be recorded. */
static bool needs_files(const Command *command, int argc, char **argv)
{
    return command->run != cmd_profile && !(argc > 1 && is_help(argv[1]));
}

static int run_command(int argc, char **argv)
{
    const Command *command = find_command(argv[0]);
    if (!command)
        return unknown_command(argv[0]);
    if (!needs_files(command, argc, argv) || share_is_there())
        return command->run(argc, argv);
    fprintf(
        stderr,
        "lockstep: the built-in models, GPUs and clusters are not in '%.300s'; LOCKSTEP_SHARE "
        "names their folder, which is scenarios/ of the source\n",
        share_dir());
    return EXIT_COULD_NOT;
}

static int help_on(char *name)
{
    char help[] = "--help";
    char *argv[] = { name, help, NULL };
    return run_command(2, argv);
}

/* A result that could not be written is no result: a full disk must not pass as done. */
static int flush_results(int status)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return status;
    perror("lockstep: cannot write to standard output");
    return status ? status : EXIT_COULD_NOT;
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return EXIT_USAGE;
    }
    bool asks_help = strcmp(argv[1], "help") == 0;
    if (asks_help && argc > 2 && !is_help(argv[2]) && strcmp(argv[2], "help") != 0)
        return help_on(argv[2]);
    if (asks_help || is_help(argv[1])) {
        print_help(stdout);
        return EXIT_DONE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("lockstep " LOCKSTEP_VERSION "\n");
        return EXIT_DONE;
    }
    return run_command(argc - 1, argv + 1);
}

/* What is opened next would take the place of a standard stream that is closed, and be written
 * into.  Results that go nowhere still cannot be written. */
static void hold_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            (void)!open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY);
}

int main(int argc, char **argv)
{
    hold_streams();
    out_file_survive_limits();
    return flush_results(dispatch(argc, argv));
}

/*
 * cmd_profile.c - lockstep profile [--out DIR] -- COMMAND...: any CUDA program, recorded.
 *
 * The program is not changed: the CUDA driver itself loads the collector when the environment
 * names it (profile/capture.h), in every process that uses a GPU.  What is recorded survives
 * the program, also one that crashes; at the end it becomes traces.
 */
#include <dlfcn.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/capture_api.h"
#include "core/own_folder.h"
#include "exec/launch.h"
#include "profile/cmd.h"
#include "profile/cmd_profile.h"
#include "sim/cmd_options.h"

#define DEFAULT_OUT     "lockstep-profile"
#define PLUGIN_VARIABLE "LOCKSTEP_CAPTURE"

enum { OPT_OUT = 1, OPT_KEEP, OPT_MERGE };

static const struct option table[] = { { "out", required_argument, NULL, OPT_OUT },
                                       { "keep-raw", no_argument, NULL, OPT_KEEP },
                                       { "merge", required_argument, NULL, OPT_MERGE },
                                       { "help", no_argument, NULL, OPTION_HELP },
                                       { NULL, 0, NULL, 0 } };

typedef struct Options {
    const char *out, *merge;
    bool keep;
} Options;

static void print_help(FILE *f)
{
    fprintf(
        f,
        "usage: lockstep profile [--out DIR] -- COMMAND...\n"
        "       lockstep profile --merge RAW [--out DIR]\n"
        "Runs a program that uses CUDA, and records what its GPUs do: kernels, copies, calls,\n"
        "waits, NVTX ranges, and what NCCL chose for each collective.  The program is not\n"
        "changed; its children are recorded too, so a job under torchrun or mpirun gives a\n"
        "trace per rank and one of all.  What was recorded before a crash is kept.\n\n"
        "  --out DIR      where the traces go: DIR/trace.lstrace, DIR/ranks/rank0.lstrace ...\n"
        "                 (" DEFAULT_OUT ")\n"
        "  --keep-raw     keep what the collector wrote, in DIR/raw-HOST-PID\n"
        "  --merge RAW    run nothing: make traces of such a folder\n\n"
        "The exit status is the command's, 128 + N when signal N ended it, 1 when nothing was\n"
        "recorded.  " PLUGIN_VARIABLE "=FILE names another collector than the one beside\n"
        "lockstep.  One tool at a time can use CUPTI: not Nsight, not PyTorch's profiler.\n");
}

static bool take(void *user, int option, Err *err)
{
    Options *o = user;
    (void)err;
    if (option == OPT_OUT)
        o->out = optarg;
    else if (option == OPT_MERGE)
        o->merge = optarg;
    else
        o->keep = true;
    return true;
}

/* ---- what is needed before anything runs ---- */

/* Beside the program, or where `make install` puts it. */
static bool find_plugin(ProfileRun *run, Arena *arena, Err *err)
{
    char folder[4096];
    const char *given = getenv(PLUGIN_VARIABLE);
    (void)own_folder(folder, sizeof folder);
    const char *places[] = { given, arena_printf(arena, "%s/" CAPTURE_PLUGIN_FILE, folder),
                             arena_printf(arena, "%s/../lib/lockstep/" CAPTURE_PLUGIN_FILE,
                                          folder) };
    for (size_t i = 0; i < ARRAY_N(places); i++) {
        char *path =
            places[i] && access(places[i], R_OK) == 0 ? realpath(places[i], NULL) : NULL;
        if (path) {
            run->plugin = arena_strdup(arena, path);
            free(path);
            return true;
        }
        if (i == 0 && given)
            return err_set(err, "cannot open '%s', which %s names: %s", given, PLUGIN_VARIABLE,
                           strerror(errno));
    }
    return err_set(err,
                   "the collector, %s, is not beside lockstep in '%s': `make` builds it where "
                   "CUPTI is installed",
                   CAPTURE_PLUGIN_FILE, folder);
}

/* Only one tool can be injected, and only one can use CUPTI. */
static bool check_alone(const ProfileRun *run, Err *err)
{
    const char *other = getenv("CUDA_INJECTION64_PATH");
    if (!other || !*other || strcmp(other, run->plugin) == 0)
        return true;
    return err_set(
        err,
        "another tool records already: CUDA_INJECTION64_PATH is '%s'; CUPTI serves one "
        "at a time",
        other);
}

/* An earlier run's traces would be mixed with this one's; ranks of one job share the folder. */
static bool check_out(const ProfileRun *run, Arena *arena, Err *err)
{
    static const char *const made[] = { "trace.lstrace", "ranks" };
    for (size_t i = 0; i < ARRAY_N(made) && !run->launched; i++)
        if (access(arena_printf(arena, "%s/%s", run->out, made[i]), F_OK) == 0)
            return err_set(err, "'%s' holds a recording already (%s); give another --out",
                           run->out, made[i]);
    return profile_make_folder(run->out, err);
}

static bool make_raw(ProfileRun *run, Arena *arena, Err *err)
{
    char host[64] = "host";
    gethostname(host, sizeof host - 1);
    host[strcspn(host, "/.")] = '\0';
    const char *raw = arena_printf(arena, "%s/raw-%s-%d", run->out, host, (int)getpid());
    if (!profile_make_folder(raw, err))
        return false;
    char *absolute = realpath(raw, NULL);
    if (!absolute)
        return err_set(err, "cannot open '%s': %s", raw, strerror(errno));
    run->raw = arena_strdup(arena, absolute);
    free(absolute);
    return true;
}

/* One of several ranks; an interactive shell under srun is one of one. */
static bool is_launched(void)
{
    const LaunchFlags none = { .rank = NONE_U32, .world = NONE_U32, .local_rank = NONE_U32 };
    RankPlace place = { 0 };
    Launcher by = LAUNCHER_NONE;
    Err odd = { 0 };
    return launch_place(&place, &by, &none, &odd) && by != LAUNCHER_NONE && place.world > 1;
}

/* ---- what is said at the end ---- */

static bool has_driver(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (driver)
        dlclose(driver);
    return driver != NULL;
}

static bool check_result(const ProfileRun *run, const ProfileResult *result, Err *err)
{
    if (result->gpu_spans_n > 0)
        return true;
    if (result->trouble)
        return err_set(err, "nothing was recorded: %s", result->trouble);
    if (result->files_n > 0)
        return err_set(err, "nothing was recorded: the program opened a GPU and ran nothing "
                            "on it");
    if (!run->command)
        return err_set(err, "there are no recordings in '%s' (*.lsraw)", run->raw);
    if (!has_driver())
        return err_set(err, "nothing was recorded: no NVIDIA driver is on this machine "
                            "(libcuda.so.1 cannot be loaded)");
    return err_set(err, "nothing was recorded: '%s' used no GPU", run->command[0]);
}

static void explain_status(const ProfileRun *run, int status)
{
    if (status > 128 && status < 128 + 65)
        fprintf(stderr, "lockstep: '%s' was ended by signal %d (%s)\n", run->command[0],
                status - 128, strsignal(status - 128));
    else if (status != 0)
        fprintf(stderr, "lockstep: '%s' ended with exit status %d\n", run->command[0], status);
}

/* ---- the two uses ---- */

/* false and err: 1 is the exit status, unless the command's own says more. */
static bool finish(const ProfileRun *run, Arena *arena, Err *err)
{
    ProfileResult result;
    return profile_merge(run, &result, arena, err) && check_result(run, &result, err);
}

static bool record(ProfileRun *run, Arena *arena, int *status, Err *err)
{
    run->launched = is_launched();
    if (!find_plugin(run, arena, err) || !check_alone(run, err) ||
        !check_out(run, arena, err) || !make_raw(run, arena, err))
        return false;
    if (!profile_run(run, status, err)) {
        rmdir(run->raw);
        rmdir(run->out); /* if nothing is in it */
        return false;
    }
    explain_status(run, *status);
    bool ok = finish(run, arena, err);
    if (!ok)
        rmdir(run->out);
    return ok;
}

static bool merge(ProfileRun *run, Arena *arena, Err *err)
{
    struct stat st;
    if (stat(run->raw, &st) != 0)
        return err_set(err, "cannot open '%s': %s", run->raw, strerror(errno));
    run->keep = true; /* they were kept on purpose */
    bool was_there = access(run->out, F_OK) == 0;
    bool ok = check_out(run, arena, err) && finish(run, arena, err);
    if (!ok && !was_there)
        rmdir(run->out); /* if nothing is in it */
    return ok;
}

/* What stands behind "--" is the command's own, whatever it looks like. */
static bool check_usage(const Options *o, int argc, char **argv, Err *err)
{
    bool behind = strcmp(argv[optind - 1], "--") == 0;
    if (o->merge && optind < argc)
        return err_set(err, "--merge runs no command");
    if (!o->merge && optind == argc)
        return err_set(err, "COMMAND is missing");
    if (!o->merge && !behind)
        return err_set(err, "'%s' has to stand behind --: lockstep profile -- COMMAND...",
                       argv[optind]);
    return true;
}

int cmd_profile(int argc, char **argv)
{
    Options o = { .out = DEFAULT_OUT };
    Err err = { 0 };
    Arena arena = { 0 };
    bool help = false;
    bool usage = options_walk(argc, argv, table, take, &o, &help, &err);
    if (help) {
        print_help(stdout);
        return EXIT_DONE;
    }
    if (!usage || !check_usage(&o, argc, argv, &err))
        return options_wrong("profile", &err);
    ProfileRun run = {
        .out = o.out, .raw = o.merge, .keep = o.keep, .command = o.merge ? NULL : argv + optind
    };
    int status = EXIT_DONE;
    bool ok = o.merge ? merge(&run, &arena, &err) : record(&run, &arena, &status, &err);
    if (!ok) {
        fprintf(stderr, "lockstep: %s\n", err.text);
        if (status == EXIT_DONE)
            status = EXIT_COULD_NOT;
    }
    arena_free(&arena);
    return status;
}

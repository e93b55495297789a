/*
 * cmd_calibrate.c - lockstep calibrate INPUT... --into FILE: measurements into a machine's file.
 *
 * What the inputs are, their content says: logs of nccl-tests calibrate a cluster,
 * timelines of ops a GPU, what bench measured either.  The file's text is changed where a
 * number was measured and nowhere else, read back as the simulator would, and then replaced
 * at once.
 */
#include "profile/cmd_calibrate.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/out_file.h"
#include "profile/cmd.h"
#include "sim/cmd_options.h"
#include "traces/nccl_tests.h"
#include "traces/unpack.h"

enum { OPT_INTO = 1, OPT_SCENARIO, OPT_SET, OPT_JSON, OPT_DRY_RUN, LOG_HEAD_BYTES = 1 << 16 };

static const struct option table[] = { { "into", required_argument, NULL, OPT_INTO },
                                       { "scenario", required_argument, NULL, OPT_SCENARIO },
                                       { "set", required_argument, NULL, OPT_SET },
                                       { "json", no_argument, NULL, OPT_JSON },
                                       { "dry-run", no_argument, NULL, OPT_DRY_RUN },
                                       { "help", no_argument, NULL, OPTION_HELP },
                                       { NULL, 0, NULL, 0 } };

typedef struct Options {
    CalibrateOptions o;
    SettingList set;
} Options;

static void print_help(FILE *f)
{
    fprintf(
        f,
        "usage: lockstep calibrate LOG... --into CLUSTER.json\n"
        "       lockstep calibrate TRACE... --scenario SCENARIO --into GPU.json\n"
        "       lockstep calibrate BENCH.json... --into GPU_OR_CLUSTER.json\n"
        "Fits a machine's file to measurements: the file's \"collectives\" to logs of\n"
        "nccl-tests (the model's numbers, and what each collective took on so many ranks and\n"
        "nodes as a table, which the simulator prefers), a GPU's tables of kernels to\n"
        "timelines with op ids (native traces of `run --trace` or `sim --trace`) of a\n"
        "scenario, and either to what `lockstep bench --out` measured.  Only what was\n"
        "measured changes; all else in the file stays as it is.\n\n"
        "  --into FILE         the cluster's or GPU's file; it may be no more than\n"
        "                      {\"base\": \"dgx-h100\"}; bench alone can make a new one\n"
        "  --scenario NAME     what ran: file or built-in name; gives ops their shapes\n"
        "  --set KEY=VALUE     a key of that scenario, as it ran; may be repeated; what\n"
        "                      `run` ran is of software=lockstep without saying so\n"
        "  --dry-run           print what would change, and change nothing\n"
        "  --json              what was done as one JSON object\n");
}

static bool take(void *user, int option, Err *err)
{
    Options *options = user;
    CalibrateOptions *o = &options->o;
    switch (option) {
    case OPT_INTO:
        o->into = optarg;
        return true;
    case OPT_SCENARIO:
        o->scenario = optarg;
        return true;
    case OPT_SET:
        return option_set(&options->set, optarg, err);
    case OPT_JSON:
        o->json = true;
        return true;
    default:
        o->dry_run = true;
        return true;
    }
}

static bool check_usage(const CalibrateOptions *o, Err *err)
{
    if (o->inputs_n == 0)
        return err_set(err, "INPUT is missing");
    if (!o->into)
        return err_set(err, "--into FILE is missing");
    if (o->settings_n > 0 && !o->scenario)
        return err_set(err, "--set changes a scenario, and --scenario is missing");
    return true;
}

typedef enum Input { INPUT_LOG, INPUT_BENCH, INPUT_TRACE, INPUT_N } Input;

/* What the file is, by its beginning. */
static Input what_is(const Unpacked *u)
{
    size_t n = u->n < LOG_HEAD_BYTES ? (size_t)u->n : LOG_HEAD_BYTES;
    return nccl_log_matches((const char *)u->bytes, n)     ? INPUT_LOG
           : calibrate_is_bench((const char *)u->bytes, n) ? INPUT_BENCH
                                                           : INPUT_TRACE;
}

/* The same measurement twice would count twice, and its left-out error would be no such. */
static bool check_twice(const CalibrateOptions *o, Err *err)
{
    for (uint32_t i = 0; i < o->inputs_n; i++)
        for (uint32_t j = 0; j < i; j++)
            if (out_file_is_same(o->inputs[i], o->inputs[j]))
                return err_set(err, "'%s' is given twice", o->inputs[i]);
    return true;
}

/* A copy by another name, packed or not: as check_twice. */
static bool check_copies(const CalibrateOptions *o, const Unpacked *inputs, Err *err)
{
    for (uint32_t i = 0; i < o->inputs_n; i++)
        for (uint32_t j = 0; j < i; j++)
            if (inputs[i].n == inputs[j].n &&
                memcmp(inputs[i].bytes, inputs[j].bytes, (size_t)inputs[i].n) == 0)
                return err_set(err, "'%s' is a copy of '%s': it would count twice",
                               o->inputs[i], o->inputs[j]);
    return true;
}

/* Each is read twice, for what it is and for what it says. */
static bool check_regular(const CalibrateOptions *o, Err *err)
{
    struct stat info;
    for (uint32_t i = 0; i < o->inputs_n; i++)
        if (stat(o->inputs[i], &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode))
            return err_set(err, "cannot read '%s': it is not a regular file", o->inputs[i]);
    return true;
}

/* All inputs are of one kind, and none is there twice. */
static bool check_inputs(const CalibrateOptions *o, Input *is, Err *err)
{
    Unpacked *inputs = mem_zero(o->inputs_n, sizeof *inputs);
    bool ok = check_regular(o, err) && check_twice(o, err);
    for (uint32_t i = 0; i < o->inputs_n && ok; i++) {
        ok = unpack_open(&inputs[i], o->inputs[i], UNPACK_BYTES_MAX, err);
        Input it = ok ? what_is(&inputs[i]) : INPUT_N;
        *is = i == 0 ? it : *is;
        if (ok && it != *is)
            ok = err_set(err, "logs of nccl-tests calibrate a cluster, traces a GPU, and "
                              "measurements of bench either: give one kind at a time");
    }
    ok = ok && check_copies(o, inputs, err);
    for (uint32_t i = 0; i < o->inputs_n; i++)
        unpack_close(&inputs[i]);
    free(inputs);
    return ok;
}

static bool run_as(const CalibrateOptions *o, Input is, Err *err)
{
    if (is != INPUT_TRACE && o->scenario)
        return err_set(err, "%s need no --scenario",
                       is == INPUT_LOG ? "logs of nccl-tests" : "measurements of bench");
    if (is != INPUT_TRACE)
        return is == INPUT_LOG ? calibrate_cluster(o, err) : calibrate_bench(o, err);
    if (o->scenario)
        return calibrate_gpu(o, err);
    return err_set(err,
                   "'%s' is no log of nccl-tests and not of lockstep bench; to calibrate a GPU "
                   "from a trace say which scenario ran: --scenario NAME",
                   o->inputs[0]);
}

static bool run(const CalibrateOptions *o, Err *err)
{
    Input is = INPUT_TRACE;
    return check_inputs(o, &is, err) && run_as(o, is, err);
}

int cmd_calibrate(int argc, char **argv)
{
    Options options = { 0 };
    CalibrateOptions *o = &options.o;
    Err err = { 0 };
    bool help = false;
    bool usage = options_walk(argc, argv, table, take, &options, &help, &err);
    o->inputs = argv + optind;
    o->inputs_n = usage && !help ? (uint32_t)(argc - optind) : 0;
    o->settings = options.set.settings;
    o->settings_n = options.set.n;
    int status = EXIT_DONE;
    if (help)
        print_help(stdout);
    else if (!usage || !check_usage(o, &err))
        status = options_wrong("calibrate", &err);
    else if (!run(o, &err)) {
        fprintf(stderr, "lockstep: %s\n", err.text);
        status = EXIT_COULD_NOT;
    }
    free(options.set.settings);
    return status;
}

/* ---- the file ---- */

char *calibrate_load(const char *path, Err *err)
{
    if (access(path, F_OK) != 0 && errno == ENOENT) {
        err_set(
            err,
            "there is no '%.200s'; {\"base\": NAME} in it is enough to begin with, a name of "
            "`lockstep list clusters` or `lockstep list gpus`",
            path);
        return NULL;
    }
    JsonDoc *doc = json_open(path, err);
    if (!doc)
        return NULL;
    bool object = json_type(json_root(doc)) == JSON_OBJECT;
    if (!object)
        json_fail(json_root(doc), err, "an object is expected, not %s",
                  json_type_name(json_type(json_root(doc))));
    json_close(doc);
    Unpacked u;
    if (!object || !unpack_open(&u, path, JSON_BYTES_MAX, err))
        return NULL;
    char *text = mem_zero((size_t)u.n + 1, 1);
    memcpy(text, u.bytes, (size_t)u.n);
    unpack_close(&u);
    return text;
}

bool calibrate_store(const CalibrateOptions *o, char *text, Err *err)
{
    OutFile f;
    bool ok = true;
    if (!o->dry_run) {
        ok = out_file_open(&f, o->into, err);
        if (ok) {
            out_file_write(&f, text, strlen(text));
            ok = out_file_commit(&f, err);
        }
    }
    free(text);
    return ok;
}

/* cmd_run_options.c - the command line of `lockstep run`. */
#include "exec/cmd_run.h"

#include <stdlib.h>
#include <string.h>

#include "core/out_file.h"
#include "traces/formats.h"

#include "sim/cmd_options.h"

enum { STEPS_DEFAULT = 10, RANKS_MAX = 1 << 16, TIMEOUT_S = 60, TIMEOUT_S_MAX = 1000000 };

enum {
    OPT_SET = 1,
    OPT_BACKEND,
    OPT_RANKS,
    OPT_STEPS,
    OPT_TRACE,
    OPT_TRACE_PREDICTED,
    OPT_CHECKPOINT,
    OPT_EVERY,
    OPT_RESUME,
    OPT_JSON,
    OPT_CLOCK,
    OPT_HYPER,
    OPT_AT_ONCE,
    OPT_RENDEZVOUS,
    OPT_RANK,
    OPT_WORLD,
    OPT_LOCAL_RANK,
    OPT_TIMEOUT,
    OPT_COLLECTIVES,
    OPT_COMM,
    OPT_DRY_RUN,
    OPT_NO_GRAPHS
};

static const struct option long_options[] = {
    { "set", required_argument, NULL, OPT_SET },
    { "backend", required_argument, NULL, OPT_BACKEND },
    { "ranks", required_argument, NULL, OPT_RANKS },
    { "steps", required_argument, NULL, OPT_STEPS },
    { "trace", required_argument, NULL, OPT_TRACE },
    { "trace-predicted", required_argument, NULL, OPT_TRACE_PREDICTED },
    { "checkpoint", required_argument, NULL, OPT_CHECKPOINT },
    { "every", required_argument, NULL, OPT_EVERY },
    { "resume", no_argument, NULL, OPT_RESUME },
    { "json", no_argument, NULL, OPT_JSON },
    { "clock", required_argument, NULL, OPT_CLOCK },
    { "hyper", required_argument, NULL, OPT_HYPER },
    { "at-once", required_argument, NULL, OPT_AT_ONCE },
    { "rendezvous", required_argument, NULL, OPT_RENDEZVOUS },
    { "rank", required_argument, NULL, OPT_RANK },
    { "world", required_argument, NULL, OPT_WORLD },
    { "local-rank", required_argument, NULL, OPT_LOCAL_RANK },
    { "timeout", required_argument, NULL, OPT_TIMEOUT },
    { "collectives", required_argument, NULL, OPT_COLLECTIVES },
    { "comm", required_argument, NULL, OPT_COMM },
    { "dry-run", no_argument, NULL, OPT_DRY_RUN },
    { "no-cuda-graphs", no_argument, NULL, OPT_NO_GRAPHS },
    { "help", no_argument, NULL, OPTION_HELP },
    { NULL, 0, NULL, 0 },
};

void run_options_help(FILE *f)
{
    fprintf(
        f,
        "usage: lockstep run SCENARIO [OPTION]...\n"
        "Trains the scenario's model for real, split over ranks as the scenario says, and "
        "shows\n"
        "what was predicted beside what was measured.\n"
        "\n"
        "  --backend WHERE        cpu, or cuda: a GPU for each rank\n"
        "  --comm HOW             with cuda: nccl, or loop: all ranks in one process on one "
        "GPU\n"
        "  --dry-run              with cuda: shows what each rank would launch; needs no GPU\n"
        "  --no-cuda-graphs       with cuda: launches every op of every step by itself\n"
        "  --ranks N              processes; as many as the scenario splits the work over\n"
        "  --steps N              optimizer steps in all, 10 when not given\n"
        "  --trace OUT            writes when what ran: .json, .json.gz (Perfetto) or "
        ".lstrace\n"
        "  --trace-predicted OUT  writes when it was to run: `lockstep compare` takes both\n"
        "  --checkpoint DIR       writes snapshots there, the last one behind the last step\n"
        "  --every K              and one every K steps\n"
        "  --resume               goes on from the newest snapshot in DIR, up to step N\n"
        "  --clock CLOCK          wall; virtual: model time, exactly as predicted;\n"
        "                         paced: ops last as long as the model says, or longer\n"
        "  --collectives WAY      direct: in each other's memory; ring: as messages, step by "
        "step\n"
        "  --hyper KEY=V1,V2...   trains copies side by side, one with each value of "
        "training.KEY\n"
        "  --at-once N            so many copies at a time; all\n"
        "  --set KEY=VALUE        changes a scenario key, as in parallel.dp=2; repeatable\n"
        "  --json                 prints one JSON object\n"
        "  --rendezvous WHERE     where ranks meet: tcp://HOST:PORT or file:PATH\n"
        "  --rank N, --world N, --local-rank N\n"
        "                         this process is one rank that somebody else started; "
        "torchrun,\n"
        "                         mpirun and srun need none of these\n"
        "  --timeout SECONDS      how long ranks are waited for that do not come or do not "
        "answer; 60;\n"
        "                         ten times as long where all answer and none does "
        "anything\n");
}

/* ---- options ---- */

static bool take_backend(RunOptions *o, Err *err)
{
    o->cuda = strcmp(optarg, "cuda") == 0;
    return o->cuda || strcmp(optarg, "cpu") == 0 ||
           err_set(err, "unknown backend '%.60s'; cpu and cuda are allowed", optarg);
}

static bool take_clock(RunOptions *o, Err *err)
{
    for (int i = 0; i < RUN_CLOCK_N; i++)
        if (strcmp(optarg, run_clock_names[i]) == 0) {
            o->clock = (RunClock)i;
            return true;
        }
    return err_set(err, "unknown clock '%.60s'; wall, virtual and paced are allowed", optarg);
}

static bool take_collectives(RunOptions *o, Err *err)
{
    o->rings = strcmp(optarg, "ring") == 0;
    return o->rings || strcmp(optarg, "direct") == 0 ||
           err_set(err, "unknown collectives '%.60s'; direct and ring are allowed", optarg);
}

static bool take_comm(RunOptions *o, Err *err)
{
    o->loop = strcmp(optarg, "loop") == 0;
    o->nccl = strcmp(optarg, "nccl") == 0;
    return o->loop || o->nccl ||
           err_set(err, "unknown way '%.60s' to transfer; nccl and loop are allowed", optarg);
}

static bool take_hyper(RunOptions *o, Err *err)
{
    char *equals = strchr(optarg, '=');
    size_t n = strlen(optarg);
    if (!equals || equals == optarg || equals[1] == ',' || strchr("=,", optarg[n - 1]) ||
        strstr(equals, ",,"))
        return err_set(err, "--hyper takes KEY=V1,V2..., not '%.100s'", optarg);
    if (o->hyper_key)
        return err_set(err, "--hyper is given twice; one key is varied");
    *equals = '\0';
    o->hyper_key = optarg;
    o->hyper_values = equals + 1;
    return true;
}

static bool take_count(uint32_t *x, const char *name, uint64_t min, Err *err)
{
    uint64_t n;
    if (!option_count(&n, name, optarg, min, RANKS_MAX, err))
        return false;
    *x = (uint32_t)n;
    return true;
}

static bool take_option(void *user, int option, Err *err)
{
    RunOptions *o = user;
    switch (option) {
    case OPT_SET:
        return option_set(&o->set, optarg, err);
    case OPT_BACKEND:
        return take_backend(o, err);
    case OPT_RANKS:
        return take_count(&o->ranks, "--ranks", 1, err);
    case OPT_STEPS:
        return option_count(&o->steps, "--steps", optarg, 1, UINT32_MAX, err);
    case OPT_TRACE:
        o->trace = optarg;
        return trace_format_for_ending(optarg, err) != NULL;
    case OPT_TRACE_PREDICTED:
        o->trace_predicted = optarg;
        return trace_format_for_ending(optarg, err) != NULL;
    case OPT_CHECKPOINT:
        o->checkpoint = optarg;
        return true;
    case OPT_EVERY:
        return option_count(&o->every, "--every", optarg, 1, UINT32_MAX, err);
    case OPT_RESUME:
        return o->resume = true;
    case OPT_JSON:
        return o->json = true;
    case OPT_CLOCK:
        return take_clock(o, err);
    case OPT_COLLECTIVES:
        return take_collectives(o, err);
    case OPT_COMM:
        return take_comm(o, err);
    case OPT_DRY_RUN:
        return o->dry_run = true;
    case OPT_NO_GRAPHS:
        return o->no_graphs = true;
    case OPT_HYPER:
        return take_hyper(o, err);
    case OPT_AT_ONCE:
        return take_count(&o->at_once, "--at-once", 1, err);
    case OPT_RENDEZVOUS:
        o->rendezvous = optarg;
        return true;
    case OPT_RANK:
        return take_count(&o->rank, "--rank", 0, err);
    case OPT_WORLD:
        return take_count(&o->world, "--world", 1, err);
    case OPT_TIMEOUT:
        return option_count(&o->timeout_s, "--timeout", optarg, 1, TIMEOUT_S_MAX, err);
    default:
        return take_count(&o->local_rank, "--local-rank", 0, err);
    }
}

/* What only one of the backends knows. */
static bool check_backend(const RunOptions *o, Err *err)
{
    if (!o->cuda && (o->loop || o->nccl || o->dry_run || o->no_graphs))
        return err_set(err, "%s needs --backend cuda",
                       o->dry_run     ? "--dry-run"
                       : o->no_graphs ? "--no-cuda-graphs"
                                      : "--comm");
    if (o->cuda && o->clock != RUN_WALL)
        return err_set(err, "--clock %s needs --backend cpu: on GPUs the clock is the wall's",
                       run_clock_names[o->clock]);
    if (o->cuda && o->rings && !o->loop)
        return err_set(err, "--collectives ring needs --comm loop: NCCL chooses by itself");
    return true;
}

LaunchFlags run_launch_flags(const RunOptions *o)
{
    return (LaunchFlags){ .ranks = o->ranks,
                          .rank = o->rank,
                          .world = o->world,
                          .local_rank = o->local_rank,
                          .rendezvous = o->rendezvous };
}

static bool check(const RunOptions *o, uint32_t names_n, Err *err)
{
    if (names_n != 1)
        return err_set(
            err, names_n ? "one scenario is trained, not %" PRIu32 : "a scenario is missing",
            names_n);
    const char *const traces[] = { o->trace, o->trace_predicted };
    for (size_t i = 0; i < ARRAY_N(traces); i++)
        if (traces[i] && out_file_is_same(traces[i], o->scenario))
            return err_set(err, "'%.200s' is the scenario, it is not written over", traces[i]);
    if (o->trace && o->trace_predicted && out_file_will_be_same(o->trace, o->trace_predicted))
        return err_set(err, "--trace and --trace-predicted are both '%.200s'", o->trace);
    const LaunchFlags flags = run_launch_flags(o);
    if (!o->dry_run && !launch_flags_check(&flags, err)) /* which joins nobody */
        return false;
    if (!o->checkpoint && (o->resume || o->every))
        return err_set(err, "%s needs --checkpoint DIR", o->resume ? "--resume" : "--every");
    if (o->hyper_key && (o->trace || o->trace_predicted || o->checkpoint))
        return err_set(err, "--hyper trains several times; %s takes one run",
                       o->trace             ? "--trace"
                       : o->trace_predicted ? "--trace-predicted"
                                            : "--checkpoint");
    if (o->at_once && !o->hyper_key)
        return err_set(err, "--at-once needs --hyper KEY=V1,V2...");
    return check_backend(o, err);
}

bool run_options_parse(RunOptions *o, int argc, char **argv, bool *help, Err *err)
{
    *o = (RunOptions){ .steps = STEPS_DEFAULT,
                       .timeout_s = TIMEOUT_S,
                       .rank = NONE_U32,
                       .world = NONE_U32,
                       .local_rank = NONE_U32 };
    if (!options_walk(argc, argv, long_options, take_option, o, help, err))
        return false;
    if (*help)
        return true;
    o->scenario = argv[optind];
    return check(o, (uint32_t)(argc - optind), err);
}

void run_options_free(RunOptions *o)
{
    free(o->set.settings);
    o->set = (SettingList){ 0 };
}

int run_options_wrong(const Err *err)
{
    return options_wrong("run", err);
}

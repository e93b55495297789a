/*
 * cmd_plan.c - lockstep plan SCENARIO --gpus LIST: searches for the best split.
 *
 *     --gpus 8,16,64      these counts
 *     --gpus 8..1024      8, doubled until 1024, and 1024 itself
 *
 * Arguments are read here; the search and its words stand in planner*.c.
 */
#include <stdlib.h>
#include <string.h>

#include "core/numeral.h"
#include "core/order.h"
#include "core/out_file.h"
#include "sim/cmd.h"
#include "sim/cmd_options.h"
#include "sim/cmd_plan_plot.h"
#include "sim/planner.h"
#include "sim/pool.h"

typedef struct Options {
    PlanOptions plan;
    SettingList set;
    bool json, pareto;
    const char *plot; /* NULL: none */
} Options;

/* ---- arguments ---- */

static void print_help(FILE *f)
{
    fprintf(
        f,
        "usage: lockstep plan SCENARIO --gpus LIST|MIN..MAX [OPTION]...\n"
        "Searches for the best strategy: tries every split of the scenario's model and batch\n"
        "over so many GPUs, leaves out what does not fit and what even at best would be "
        "behind\n"
        "the ten best, simulates the rest, says why.\n"
        "Kept as they are: model, global batch, sequence length, precision, GPU and links.\n"
        "Degrees are tp up to two nodes (16, where they are smaller) and cp down to pieces of\n"
        "1,024 tokens (128 up to 64 GPUs, or where sequences are fewer than GPUs).\n"
        "Micro-batches are doubled, and of the ten best all between them are tried; schedules\n"
        "are 1f1b and, from pp micro-batches on, interleaved; another where --set\n"
        "parallel.schedule asks for it.\n"
        "Stages have as many layers each, and the last one fewer where its head takes as\n"
        "long as some, those of slower GPUs fewer as well; with --set\n"
        "parallel.stage_layers=null as many always.\n"
        "Recomputation is none, selective, full, or of as few layers of each stage as have to\n"
        "be for it to fit.\n"
        "What the software cannot do (parallel.lacks of its file) is left out, unless the\n"
        "scenario does it or --set asks for it.\n"
        "\n"
        "  --gpus LIST        GPU counts, as in 8,16,64\n"
        "  --gpus MIN..MAX    MIN, doubled until MAX, and MAX\n"
        "  --objective WHAT   time (of a step, the default), cost (of the GPUs used, not of\n"
        "                     whole nodes), or gpus (the fewest of these that meet the "
        "deadline)\n"
        "  --tokens N         to train on, as in 300e9: total time, cost and energy\n"
        "  --deadline-days D  leaves out what takes longer for --tokens\n"
        "  --budget-usd X     leaves out what costs more for --tokens\n"
        "  --pareto           lists what is best for each GPU count worth having\n"
        "  --all              simulates all that fit, also those that cannot be among the\n"
        "                     best; not what recomputes more than it has to\n"
        "  --set KEY=VALUE    changes a scenario key; one that is tried is fixed by it,\n"
        "                     as in parallel.tp=8; repeatable\n"
        "  --json             prints one JSON object; finds out of all that are simulated\n"
        "                     what they need, not of the best alone\n"
        "  --plot OUT         draws step time over GPUs, .svg or .png\n"
        "  --jobs N           candidates at a time, as many as there are processors\n");
}

/* A whole number from *text on, which it moves behind it. */
static bool take_count(const char **text, uint32_t *n)
{
    const char *end;
    uint64_t x;
    if (!numeral_whole(*text, &x, &end) || x < 1 || x > PLAN_GPUS_MAX)
        return false;
    *text = end;
    *n = (uint32_t)x;
    return true;
}

static void sort_counts(PlanOptions *p)
{
    uint32_t n = 0;
    qsort(p->counts, p->counts_n, sizeof *p->counts, compare_u32);
    for (uint32_t i = 0; i < p->counts_n; i++)
        if (n == 0 || p->counts[n - 1] != p->counts[i])
            p->counts[n++] = p->counts[i];
    p->counts_n = n;
}

static bool read_range(PlanOptions *p, uint32_t min, const char *text)
{
    uint32_t max;
    if (!take_count(&text, &max) || *text || max < min)
        return false;
    for (uint32_t n = min; n < max; n *= 2)
        p->counts[p->counts_n++] = n;
    p->counts[p->counts_n++] = max;
    return true;
}

static bool read_list(PlanOptions *p, const char *text)
{
    do {
        if (p->counts_n == PLAN_COUNTS_MAX || !take_count(&text, &p->counts[p->counts_n++]))
            return false;
    } while (*text == ',' && text++);
    sort_counts(p);
    return *text == '\0';
}

static bool read_gpus(PlanOptions *p, const char *text, Err *err)
{
    const char *rest = text;
    uint32_t min;
    p->counts_n = 0;
    bool ok = take_count(&rest, &min) && strncmp(rest, "..", 2) == 0
                  ? read_range(p, min, rest + 2)
                  : read_list(p, text);
    return ok || err_set(err,
                         "--gpus takes at most %d counts from 1 to %d as in 8,16,64, or "
                         "MIN..MAX, not '%.60s'",
                         PLAN_COUNTS_MAX, PLAN_GPUS_MAX, text);
}

static bool read_objective(PlanOptions *p, const char *text, Err *err)
{
    for (int i = 0; i < PLAN_OBJECTIVE_N; i++)
        if (strcmp(text, plan_objective_names[i]) == 0) {
            p->objective = (PlanObjective)i;
            return true;
        }
    return err_set(err, "--objective: unknown word '%.60s', allowed: time, cost, gpus", text);
}

static bool read_number(double *x, const char *option, const char *text, double max, Err *err)
{
    const char *end;
    if (numeral_real(text, x, &end) && !*end && *x > 0 && *x <= max)
        return true;
    return err_set(err, "%s takes a number above 0 and up to %g, not '%.60s'", option, max,
                   text);
}

static bool read_plot(Options *o, const char *path, Err *err)
{
    o->plot = path;
    return plan_plot_check(path, err);
}

enum {
    OPT_GPUS = 1,
    OPT_OBJECTIVE,
    OPT_TOKENS,
    OPT_DEADLINE,
    OPT_BUDGET,
    OPT_PARETO,
    OPT_ALL,
    OPT_SET,
    OPT_JSON,
    OPT_PLOT,
    OPT_JOBS
};

static const struct option long_options[] = {
    { "gpus", required_argument, NULL, OPT_GPUS },
    { "objective", required_argument, NULL, OPT_OBJECTIVE },
    { "tokens", required_argument, NULL, OPT_TOKENS },
    { "deadline-days", required_argument, NULL, OPT_DEADLINE },
    { "budget-usd", required_argument, NULL, OPT_BUDGET },
    { "pareto", no_argument, NULL, OPT_PARETO },
    { "all", no_argument, NULL, OPT_ALL },
    { "set", required_argument, NULL, OPT_SET },
    { "json", no_argument, NULL, OPT_JSON },
    { "plot", required_argument, NULL, OPT_PLOT },
    { "jobs", required_argument, NULL, OPT_JOBS },
    { "help", no_argument, NULL, OPTION_HELP },
    { NULL, 0, NULL, 0 },
};

static bool take_option(void *user, int option, Err *err)
{
    Options *o = user;
    PlanOptions *p = &o->plan;
    switch (option) {
    case OPT_GPUS:
        return read_gpus(p, optarg, err);
    case OPT_OBJECTIVE:
        return read_objective(p, optarg, err);
    case OPT_TOKENS:
        return read_number(&p->tokens, "--tokens", optarg, 1e18, err);
    case OPT_DEADLINE:
        return read_number(&p->deadline_days, "--deadline-days", optarg, 1e6, err);
    case OPT_BUDGET:
        return read_number(&p->budget_usd, "--budget-usd", optarg, 1e15, err);
    case OPT_PARETO:
        return o->pareto = true;
    case OPT_ALL:
        return p->all = true;
    case OPT_SET:
        return option_set(&o->set, optarg, err);
    case OPT_JSON:
        p->weighs_all = true;
        return o->json = true;
    case OPT_PLOT:
        return read_plot(o, optarg, err);
    default:
        return option_jobs(&p->jobs, optarg, err);
    }
}

static bool check_options(const Options *o, Err *err)
{
    const PlanOptions *p = &o->plan;
    if (p->counts_n == 0)
        return err_set(err, "--gpus is missing");
    if (p->deadline_days > 0 && p->tokens <= 0)
        return err_set(err, "--deadline-days needs --tokens, what is to be done by then");
    if (p->budget_usd > 0 && p->tokens <= 0)
        return err_set(err, "--budget-usd needs --tokens, what is to be paid with it");
    if (p->objective == PLAN_FEWEST && p->deadline_days <= 0)
        return err_set(err, "--objective gpus needs --deadline-days and --tokens");
    return true;
}

/* False with err on wrong usage; *help when that is what was asked for. */
static bool parse(Options *o, int argc, char **argv, bool *help, Err *err)
{
    if (!options_walk(argc, argv, long_options, take_option, o, help, err))
        return false;
    if (*help)
        return true;
    if (argc - optind != 1)
        return err_set(
            err, argc == optind ? "a scenario is missing" : "one scenario is expected, not %d",
            argc - optind);
    o->plan.scenario = argv[optind];
    o->plan.settings = o->set.settings;
    o->plan.settings_n = o->set.n;
    return check_options(o, err);
}

/* ---- the command ---- */

/* Whether it could be written to stdout is for main to see and to say. */
static void print(const Plan *p, const Options *o)
{
    if (!o->json) {
        plan_text(p, o->pareto, stdout);
        return;
    }
    Err ignored = { 0 };
    JsonOut j = json_out_file(stdout, 2);
    plan_json(p, &j);
    json_out_end(&j, &ignored);
}

/* plan takes as many nodes as --gpus needs; told to have fewer it must not take more. */
static bool check_nodes(const Scenario *s, const PlanOptions *p, Err *err)
{
    uint32_t most = p->counts[p->counts_n - 1];
    for (uint32_t i = 0; i < p->settings_n; i++)
        if (strcmp(p->settings[i].key, "cluster.nodes") == 0 && most > s->machine.gpus_n)
            return err_set(err,
                           "--gpus %" PRIu32 ": --set cluster.nodes=%.20s gives %" PRIu32
                           " GPUs; leave it out, plan takes as many nodes as it needs",
                           most, p->settings[i].value, s->machine.gpus_n);
    return true;
}

/* What the search itself does not ask.  A scenario that cannot be read is left to it: its message
 * says more. */
static bool check_scenario(const Options *o, Err *err)
{
    const PlanOptions *p = &o->plan;
    Scenario s;
    Software sw;
    Arena arena = { 0 };
    Err ignored = { 0 };
    bool ok = true;
    if (scenario_read_unsplit(&s, p->scenario, p->settings, p->settings_n, &ignored)) {
        ok = software_of(&sw, &arena, &s, err) && check_nodes(&s, p, err);
        ok = ok && (!o->plot || scenario_spares(&s, o->plot, err));
        scenario_free(&s);
    }
    arena_free(&arena);
    return ok && out_file_can_open(o->plot, err);
}

static int plan(const Options *o)
{
    Plan p = { 0 };
    Err err = { 0 };
    bool ok = check_scenario(o, &err) && plan_run(&p, &o->plan, &err) &&
              (!o->plot || plan_plot(&p, o->plot, &err));
    if (ok)
        print(&p, o);
    else
        fprintf(stderr, "lockstep: %s\n", err.text);
    plan_free(&p);
    return ok ? EXIT_DONE : EXIT_COULD_NOT;
}

int cmd_plan(int argc, char **argv)
{
    Options o = { .plan = { .jobs = pool_processors(), .shows_progress = true } };
    Err err = { 0 };
    bool help = false;
    int status = EXIT_DONE;
    if (!parse(&o, argc, argv, &help, &err))
        status = options_wrong("plan", &err);
    else if (help)
        print_help(stdout);
    else
        status = plan(&o);
    free(o.set.settings);
    return status;
}

/* cmd_compare.c - lockstep compare A B: a prediction beside a run, before beside after. */
#include "profile/cmd.h"

#include <stdlib.h>
#include <string.h>

#include "profile/compare.h"
#include "profile/trace_words.h"
#include "sim/cmd_options.h"
#include "traces/set.h"

enum { TOP = 10, TOP_MAX = 100000 };

typedef struct Options {
    bool json;
    const char *fail_if; /* NULL: nothing */
    int64_t step;        /* -1: the median one */
    uint32_t top;
    char *const *names;
    uint32_t names_n;
} Options;

static void print_help(FILE *f)
{
    fprintf(
        f,
        "usage: lockstep compare SIM REAL [OPTION]...\n"
        "Lays one trace beside another, op by op: a prediction beside a run, or a run\n"
        "before beside one after.  Ops are paired by op id where both have the same, else\n"
        "by what they do of one model, whatever each stack fuses, else as sequences.  Says\n"
        "by how much each class of op is off, what share of the step's difference it has,\n"
        "how much of the real time is paired, and where the two part.  Of several steps the\n"
        "median one is taken.\n"
        "\n"
        "  --step N          that step\n"
        "  --top N           rows of the lists \"largest differences\" (--json: ops), \"only "
        "in\n"
        "                    sim\" and \"only in real\", %d when not given\n"
        "  --json            prints one JSON object\n"
        "  --fail-if EXPR    exit status 3 when a condition METRIC>NUMBER or METRIC<NUMBER\n"
        "                    holds (NUMBER may end in %%); several joined by commas\n"
        "\n"
        "METRIC is the path of a number in --json, error = 100 (sim / real - 1):\n",
        TOP);
    compare_metrics(f);
    fprintf(f, "A quantity alone is its abs_error_pct: --fail-if 'step_time>5%%'.\n\n%s",
            trace_words_beside_sim);
}

enum { OPT_JSON = 1, OPT_FAIL_IF, OPT_STEP, OPT_TOP };

static const struct option long_options[] = {
    { "json", no_argument, NULL, OPT_JSON },
    { "fail-if", required_argument, NULL, OPT_FAIL_IF },
    { "step", required_argument, NULL, OPT_STEP },
    { "top", required_argument, NULL, OPT_TOP },
    { "help", no_argument, NULL, OPTION_HELP },
    { NULL, 0, NULL, 0 },
};

static bool take_option(void *user, int option, Err *err)
{
    Options *o = user;
    uint64_t n = 0;
    switch (option) {
    case OPT_JSON:
        return o->json = true;
    case OPT_FAIL_IF:
        o->fail_if = optarg;
        return compare_gate_check(optarg, err);
    case OPT_STEP:
        if (!option_count(&n, "--step", optarg, 0, INT64_MAX, err))
            return false;
        o->step = (int64_t)n;
        return true;
    default:
        if (!option_count(&n, "--top", optarg, 1, TOP_MAX, err))
            return false;
        o->top = (uint32_t)n;
        return true;
    }
}

static bool check_names(const Options *o, Err *err)
{
    if (o->names_n == 2)
        return true;
    if (o->names_n > 2)
        return err_set(err, "'%.200s' is one trace too many, SIM and REAL allowed",
                       o->names[2]);
    return err_set(err, "%s missing", o->names_n ? "REAL is" : "SIM and REAL are");
}

/* Each is a file or a folder of them. */
static bool read_both(TraceSet sets[COMPARE_SIDES], const Options *o, Err *err)
{
    for (int k = 0; k < COMPARE_SIDES; k++) {
        const char *name = o->names[k];
        if (!trace_set_read(&sets[k], &name, 1, NULL, err))
            return false;
        for (size_t i = 0; i < sets[k].findings_n; i++)
            fprintf(stderr, "lockstep: %s\n", sets[k].findings[i]);
    }
    return true;
}

/* Whether it could be written is for main to see and to say. */
static void print(const Comparison *c, const Options *o)
{
    if (!o->json) {
        compare_text(c, o->top, stdout);
        return;
    }
    Err ignored = { 0 };
    JsonOut j = json_out_file(stdout, 2);
    compare_json(c, o->top, &j);
    json_out_end(&j, &ignored);
}

/* The numbers are printed also where a threshold is crossed: one wants to see why. */
static int judge(const Comparison *c, const Options *o, Err *err)
{
    char crossed[COMPARE_TEXT_CAP] = "";
    if (o->fail_if && !compare_gate(c, o->fail_if, crossed, err))
        return EXIT_USAGE;
    print(c, o);
    if (!*crossed)
        return EXIT_DONE;
    fflush(stdout);
    fprintf(stderr, "lockstep: %s\n", crossed);
    return EXIT_CROSSED;
}

static int compare_traces(const Options *o)
{
    TraceSet *sets = mem_zero(COMPARE_SIDES, sizeof *sets);
    Comparison c = { 0 };
    Err err = { 0 };
    CompareOptions options = { .step = o->step };
    int status = EXIT_COULD_NOT;
    for (int k = 0; k < COMPARE_SIDES; k++)
        options.name[k] = o->names[k];
    if (read_both(sets, o, &err) &&
        compare(&c, &sets[COMPARE_SIM].timeline, &sets[COMPARE_REAL].timeline, &options, &err))
        status = judge(&c, o, &err);
    if (err.set)
        fprintf(stderr, "lockstep: %s\n", err.text);
    compare_free(&c);
    for (int k = 0; k < COMPARE_SIDES; k++)
        trace_set_free(&sets[k]);
    free(sets);
    return status;
}

int cmd_compare(int argc, char **argv)
{
    Options o = { .step = -1, .top = TOP };
    Err err = { 0 };
    bool help = false;
    if (!options_walk(argc, argv, long_options, take_option, &o, &help, &err))
        return options_wrong("compare", &err);
    if (help) {
        print_help(stdout);
        return EXIT_DONE;
    }
    o.names = argv + optind;
    o.names_n = (uint32_t)(argc - optind);
    if (!check_names(&o, &err))
        return options_wrong("compare", &err);
    return compare_traces(&o);
}

/*
 * cmd_sim.c - lockstep sim SCENARIO...: predicts the steps of scenarios.
 *
 *     arguments --scenario_each--> Jobs --pool--> Reports --in input order--> text or JSON
 *
 * A job is one scenario on one thread: read it, build its graph, simulate, keep
 * the Report and give the rest back.  The first failure in input order ends it
 * all, however the threads happened to run.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/now.h"
#include "core/out_file.h"
#include "sim/build.h"
#include "sim/cmd.h"
#include "sim/cmd_from_trace.h"
#include "sim/cmd_options.h"
#include "sim/job_list.h"
#include "sim/report.h"
#include "sim/texts.h"
#include "traces/formats.h"

typedef struct Options {
    SettingList set;
    bool json, memory, explain, expand_ranks, expanded, from_trace;
    int64_t step;              /* of --from-trace; -1: the median one */
    const char *trace, *graph; /* files to write, NULL: none */
    uint64_t seed;
    uint32_t jobs; /* 0: not given */
    char *const *names;
    uint32_t names_n;
} Options;

/* ---- one scenario ---- */

typedef struct Job {
    const Options *options;
    JsonDoc *doc;
    ProgressPart progress;
    char *explained;                  /* text of --explain */
    bool selects_nothing;             /* recompute selective is as none in this stack */
    char unused[SCENARIO_UNUSED_CAP]; /* keys that were given in vain */
    char lacks[SOFTWARE_LACKS_CAP];   /* what it does that its stack cannot */
    Report report;
    Err err;
} Job;

/* What a job needs while it runs. */
typedef struct Work {
    Scenario s;
    Software sw;
    Graph g;
    Timeline timeline;
    SimResult result;
    RoleMemory *memory; /* by role */
    Arena arena;
} Work;

static bool explain(Job *job, const Work *w)
{
    size_t n;
    FILE *out = open_memstream(&job->explained, &n);
    if (!out)
        return err_set(&job->err, "cannot write in memory: %s", strerror(errno));
    scenario_explain(&w->s, &w->sw, out);
    fputc('\n', out);
    bool ok = report_software_text(&w->s, out, &job->err);
    fclose(out);
    return ok;
}

static bool write_trace(Job *job, Work *w)
{
    Timeline *t = &w->timeline;
    timeline_set_name(t, w->s.name);
    memory_record(t, &w->g, w->memory);
    timeline_seal(t);
    return trace_write(t, job->options->trace, &job->err);
}

static bool simulate(Job *job, Work *w)
{
    const Options *o = job->options;
    SimOptions options = { .expanded = o->expanded,
                           .expand_ranks = o->expand_ranks,
                           .timeline = o->trace ? &w->timeline : NULL,
                           .links = true,
                           .seed = o->seed,
                           .progress = progress_part,
                           .user = &job->progress };
    int64_t start_ns = now_ns();
    job->selects_nothing =
        w->s.training.recompute == RECOMPUTE_SELECTIVE && !software_selects(&w->sw);
    scenario_unused(&w->s, job->unused);
    software_lacks_text(&w->sw, &w->s.parallel, job->lacks);
    if (!build_graph(&w->g, &w->s, &w->sw, &job->err) ||
        !sim_run(&w->result, &w->g, &w->s.machine, &w->sw, &options, &job->err))
        return err_wrap(&job->err, "%s", w->s.file);
    w->memory = memory_of_roles(&w->g, &w->s.machine, &w->sw, o->trace != NULL, &w->arena);
    report_fill(&job->report, &w->s, &w->g, &w->result, w->memory,
                (double)(now_ns() - start_ns) / 1e9);
    if (o->memory)
        report_add_peak(&job->report, &w->g, w->memory);
    return (!o->graph || graph_dump(&w->g, o->graph, &job->err)) &&
           (!o->trace || write_trace(job, w));
}

/* A slip of the pen must not cost a file that the prediction stands on. */
static bool spares_inputs(Job *job, const Scenario *s)
{
    const char *const outs[] = { job->options->trace, job->options->graph };
    for (size_t i = 0; i < ARRAY_N(outs); i++)
        if (outs[i] && !scenario_spares(s, outs[i], &job->err))
            return false;
    return true;
}

static bool read_job(Job *job, Work *w)
{
    const SettingList *set = &job->options->set;
    if (!scenario_from(&w->s, job->doc, set->settings, set->n, &job->err) ||
        !spares_inputs(job, &w->s))
        return false;
    return software_of(&w->sw, &w->arena, &w->s, &job->err);
}

static void run_job(void *task)
{
    Job *job = task;
    const Options *o = job->options;
    Work *w = mem_zero(1, sizeof *w);
    if (read_job(job, w) && (!o->explain || explain(job, w)))
        simulate(job, w);
    scenario_free(&w->s);
    timeline_free(&w->timeline);
    sim_result_free(&w->result);
    graph_free(&w->g);
    arena_free(&w->arena);
    free(w);
    progress_end(&job->progress);
}

/* ---- all of them ---- */

typedef struct Batch {
    const Options *options;
    JsonDoc *only; /* of a file that is written: runs when it turns out to be the only one */
    JobList jobs;
} Batch;

static const Job *job_at(const Batch *b, uint32_t i)
{
    return b->jobs.at[i];
}

static void add_job(Batch *b, JsonDoc *doc)
{
    Job *job = mem_zero(1, sizeof *job);
    job->options = b->options;
    job->doc = doc;
    job_list_add(&b->jobs, run_job, job, &job->progress);
}

static bool take_scenario(void *user, JsonDoc *doc, Err *err)
{
    Batch *b = user;
    const Options *o = b->options;
    if (!o->trace && !o->graph) {
        add_job(b, doc);
    } else if (!b->only) {
        b->only = doc;
    } else {
        json_close(doc);
        return err_set(err, "%s takes one scenario, but '%s' holds several",
                       o->trace ? "--trace" : "--graph", o->names[0]);
    }
    return true;
}

static void batch_run(Batch *b, const Options *o, Err *err)
{
    Err reading = { 0 };
    b->options = o;
    job_list_open(&b->jobs, o->jobs ? o->jobs : pool_processors());
    scenario_each(o->names, o->names_n, take_scenario, b, &reading);
    if (b->only && reading.set)
        json_close(b->only);
    else if (b->only)
        add_job(b, b->only);
    job_list_close(&b->jobs);
    for (uint32_t i = 0; i < b->jobs.n && !err->set; i++)
        *err = job_at(b, i)->err;
    if (!err->set)
        *err = reading;
}

static void release_job(void *user)
{
    Job *job = user;
    report_free(&job->report);
    free(job->explained);
}

/* ---- printing ---- */

/* Whether it could be written is for main to see and to say, as with text. */
static void print_json(const Batch *b)
{
    Err ignored = { 0 };
    JsonOut j = json_out_file(stdout, 2);
    if (b->jobs.n > 1) {
        json_out_open(&j, '{');
        json_put_open(&j, "scenarios", '[');
    }
    for (uint32_t i = 0; i < b->jobs.n; i++)
        report_json(&job_at(b, i)->report, &j);
    if (b->jobs.n > 1) {
        json_out_close(&j, ']');
        json_out_close(&j, '}');
    }
    json_out_end(&j, &ignored);
}

static void print_title(const Report *r)
{
    char text[TEXT_CAP];
    printf("%s\n\n", text_name(text, r->name, COMPARE_WIDTH));
}

static void print_text(const Batch *b)
{
    const Report **reports = mem_zero(b->jobs.n, sizeof *reports);
    for (uint32_t i = 0; i < b->jobs.n; i++) {
        const Job *job = job_at(b, i);
        reports[i] = &job->report;
        if (!job->explained)
            continue;
        if (b->jobs.n > 1)
            print_title(&job->report);
        printf("%s\n", job->explained);
    }
    if (b->jobs.n == 1)
        report_text(reports[0], stdout);
    else
        report_compare(reports, b->jobs.n, stdout);
    for (uint32_t i = 0; i < b->jobs.n && b->options->memory; i++) {
        printf("\n");
        if (b->jobs.n > 1)
            print_title(reports[i]);
        report_memory_text(reports[i], stdout);
    }
    free(reports);
}

/* ---- arguments ---- */

static void print_help(FILE *f)
{
    fprintf(
        f,
        "usage: lockstep sim SCENARIO... [OPTION]...\n"
        "       lockstep sim --from-trace TRACE... [--set KEY=VALUE]... [OPTION]...\n"
        "Predicts a training step: how long it takes, where its time goes, what it needs of\n"
        "memory, what it costs.  SCENARIO is a .json file, a built-in name\n"
        "(lockstep list examples) or a .jsonl file with a scenario a line; several are\n"
        "compared side by side.\n"
        "\n"
        "  --set KEY=VALUE   changes a scenario key, as in parallel.dp=16, model.layers=12,\n"
        "                    cluster.gpu.memory_GB=40; repeatable\n"
        "  --json            prints one JSON object\n"
        "  --trace OUT       writes when what ran: .json, .json.gz (Perfetto) or .lstrace\n"
        "  --memory          shows what is alive at the peak, by layer and tensor, and what\n"
        "                    each stage of a pipeline holds at its own\n"
        "  --explain         shows every value used and where it comes from\n"
        "  --expand-ranks    simulates equal ranks one by one\n"
        "  --expanded        simulates every kernel, also where whole blocks would do\n"
        "  --seed N          of the cluster's jitter, 0 when not given\n"
        "  --jobs N          scenarios at a time, as many as there are processors\n"
        "  --graph OUT       writes the graph of operations as JSON\n"
        "\n"
        "  --from-trace      replays the step of a recorded run, and says how well that does;\n"
        "                    then with other buckets or another network:\n"
        "                    --set parallel.bucket_bytes=100MiB, --set cluster=dgx-h100.\n"
        "                    Collectives and sends are priced on that cluster, FSDP's gathers\n"
        "                    and scatters too; only all-reduces are cut into other buckets\n"
        "  --step N          of the trace, the median one when not given\n");
}

enum {
    OPT_SET = 1,
    OPT_JSON,
    OPT_TRACE,
    OPT_MEMORY,
    OPT_EXPLAIN,
    OPT_EXPAND_RANKS,
    OPT_EXPANDED,
    OPT_SEED,
    OPT_JOBS,
    OPT_GRAPH,
    OPT_FROM_TRACE,
    OPT_STEP
};

static const struct option long_options[] = {
    { "set", required_argument, NULL, OPT_SET },
    { "json", no_argument, NULL, OPT_JSON },
    { "trace", required_argument, NULL, OPT_TRACE },
    { "memory", no_argument, NULL, OPT_MEMORY },
    { "explain", no_argument, NULL, OPT_EXPLAIN },
    { "expand-ranks", no_argument, NULL, OPT_EXPAND_RANKS },
    { "expanded", no_argument, NULL, OPT_EXPANDED },
    { "seed", required_argument, NULL, OPT_SEED },
    { "jobs", required_argument, NULL, OPT_JOBS },
    { "graph", required_argument, NULL, OPT_GRAPH },
    { "from-trace", no_argument, NULL, OPT_FROM_TRACE },
    { "step", required_argument, NULL, OPT_STEP },
    { "help", no_argument, NULL, OPTION_HELP },
    { NULL, 0, NULL, 0 },
};

static bool take_option(void *user, int option, Err *err)
{
    Options *o = user;
    uint64_t step;
    switch (option) {
    case OPT_SET:
        return option_set(&o->set, optarg, err);
    case OPT_JSON:
        return o->json = true;
    case OPT_TRACE:
        o->trace = optarg;
        return trace_format_for_ending(optarg, err) != NULL;
    case OPT_MEMORY:
        return o->memory = true;
    case OPT_EXPLAIN:
        return o->explain = true;
    case OPT_EXPAND_RANKS:
        return o->expand_ranks = true;
    case OPT_EXPANDED:
        return o->expanded = true;
    case OPT_SEED:
        return option_count(&o->seed, "--seed", optarg, 0, UINT64_MAX, err);
    case OPT_JOBS:
        return option_jobs(&o->jobs, optarg, err);
    case OPT_FROM_TRACE:
        return o->from_trace = true;
    case OPT_STEP:
        return option_count(&step, "--step", optarg, 0, INT64_MAX, err) &&
               ((o->step = (int64_t)step), true);
    default:
        o->graph = optarg;
        return true;
    }
}

/* A scenario must survive a slip of the pen. */
static bool check_outputs(const Options *o, Err *err)
{
    const char *const outs[] = { o->trace, o->graph };
    for (size_t k = 0; k < ARRAY_N(outs); k++)
        for (uint32_t i = 0; outs[k] && i < o->names_n; i++)
            if (out_file_is_same(outs[k], o->names[i]))
                return err_set(err, "'%.200s' is the %s, it is not written over", outs[k],
                               o->from_trace ? "trace" : "scenario");
    if (o->trace && o->graph && out_file_will_be_same(o->trace, o->graph))
        return err_set(err, "--trace and --graph both name '%.200s', two files are needed",
                       o->trace);
    return true;
}

/* What makes no sense of a recorded step. */
static bool check_from_trace(const Options *o, Err *err)
{
    const char *wrong = o->memory         ? "--memory"
                        : o->explain      ? "--explain"
                        : o->expand_ranks ? "--expand-ranks"
                        : o->expanded     ? "--expanded"
                        : o->seed         ? "--seed"
                        : o->jobs         ? "--jobs"
                        : o->graph        ? "--graph"
                                          : NULL;
    if (wrong)
        return err_set(err,
                       "%s is of scenarios, --from-trace knows --set, --step, --trace and "
                       "--json",
                       wrong);
    return o->names_n > 0 || err_set(err, "a trace is missing");
}

static bool check_options(const Options *o, Err *err)
{
    if (o->from_trace)
        return check_from_trace(o, err) && check_outputs(o, err);
    if (o->step >= 0)
        return err_set(err, "--step is of --from-trace");
    if (o->names_n == 0)
        return err_set(err, "a scenario is missing");
    if (o->names_n > 1 && (o->trace || o->graph))
        return err_set(err, "%s takes one scenario, not %" PRIu32,
                       o->trace ? "--trace" : "--graph", o->names_n);
    if (o->json && o->explain)
        return err_set(err, "--explain prints text and --json one object, one of them allowed");
    return check_outputs(o, err);
}

/* False with err on wrong usage; *help when that is what was asked for. */
static bool parse(Options *o, int argc, char **argv, bool *help, Err *err)
{
    if (!options_walk(argc, argv, long_options, take_option, o, help, err))
        return false;
    o->names = argv + optind;
    o->names_n = (uint32_t)(argc - optind);
    return *help || check_options(o, err);
}

/* What was asked for and has no effect, or what nobody could run. */
static void say_remarks(const Batch *b)
{
    for (uint32_t i = 0; i < b->jobs.n; i++) {
        const Job *job = b->jobs.at[i];
        if (job->selects_nothing)
            fprintf(
                stderr,
                "lockstep: %.100s: software '%.60s' has no selective recomputation, it is as "
                "none\n",
                job->report.name, job->report.software);
        if (*job->unused)
            fprintf(stderr, "lockstep: %.100s: %s\n", job->report.name, job->unused);
        if (*job->lacks)
            fprintf(
                stderr,
                "lockstep: %.100s: software '%.60s' does not have %s, it is predicted as if "
                "it did\n",
                job->report.name, job->report.software, job->lacks);
    }
}

static int sim(const Options *o)
{
    Batch b = { 0 };
    Err err = { 0 };
    batch_run(&b, o, &err);
    if (err.set)
        fprintf(stderr, "lockstep: %s\n", err.text);
    else if (o->json)
        print_json(&b);
    else
        print_text(&b);
    if (!err.set)
        say_remarks(&b);
    job_list_free(&b.jobs, release_job);
    return err.set ? EXIT_COULD_NOT : EXIT_DONE;
}

int cmd_sim(int argc, char **argv)
{
    Options o = { .step = -1 };
    Err err = { 0 };
    bool help = false;
    int status = EXIT_DONE;
    if (!parse(&o, argc, argv, &help, &err))
        status = options_wrong("sim", &err);
    else if (help)
        print_help(stdout);
    else if (o.from_trace)
        status = cmd_from_trace(&(FromTraceCommand){ .names = o.names,
                                                     .names_n = o.names_n,
                                                     .set = &o.set,
                                                     .step = o.step,
                                                     .trace = o.trace,
                                                     .json = o.json });
    else
        status = sim(&o);
    free(o.set.settings);
    return status;
}

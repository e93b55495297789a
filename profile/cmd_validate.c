/*
 * cmd_validate.c - lockstep validate SCENARIO...: predictions beside measurements.
 *
 *     arguments --scenario_each_that_reads--> Jobs --pool--> predictions --in input order-->
 *     Validation
 *
 * What cannot be run is no failure: the row is kept, with the reason, and listed; so is a line
 * of many that is no JSON.  What cannot be read (no such file, not one line that is JSON) is one.
 *
 * Where a stack has fitted scalars, its rows are predicted once more with scalars
 * fitted on the stack's other groups alone, and where its rows show what slows kernels
 * on a GPU (sustained_from), without that if no other group's row does.  How a row answers
 * to a scalar is seen by trials (profile/fit.h), made while it is at hand:
 *
 *     first pass    every row as its software file says, and trials of fitted ones
 *     fit           scalars for each (software, group left out)
 *     second pass   rows of fitted stacks with those
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/out_file.h"
#include "profile/cmd.h"
#include "profile/cmd_validate_plot.h"
#include "profile/fit.h"
#include "profile/validate.h"
#include "sim/build.h"
#include "sim/cmd_options.h"
#include "sim/job_list.h"
#include "sim/report.h"

static const char time_metric[] = "step_time_s";

typedef struct Options {
    SettingList set;
    bool json, markdown;
    const char *svg, *software; /* NULL: not given */
    uint32_t jobs;
    char *const *names;
    uint32_t names_n;
} Options;

/* ---- one scenario ---- */

typedef struct Cell {
    const char *metric;
    double measured, predicted, left_out;
} Cell;

typedef struct Job {
    const Options *options;
    JsonDoc *doc; /* NULL once read */
    ProgressPart progress;
    Arena arena; /* texts below, cells, sw */
    const char *name, *path, *group, *software, *source, *quality;
    const char *file; /* path without its folders */
    Cell *cells;
    uint32_t cells_n;
    const char *ranked_with;                /* what a set of the ranking has in common */
    bool unknown_software, fitted, is_bare; /* bare: nothing was measured */
    ReportMemory memory;                    /* predicted, of the fullest GPU */
    Scenario s;                             /* kept between the passes when fitted */
    Software sw;
    double lower_s[FIT_N], higher_s[FIT_N]; /* of the trials; 0: not fitted */
    double all_nics_s;                      /* without ring_nics */
    Fitted refit;                           /* of the second pass */
    Err err;                                /* set: skipped */
    Err harm; /* set: the plot would be written over what it is of */
} Job;

static double *scalar_of(Software *sw, int i)
{
    double *const scalars[FIT_N] = { [FIT_HOST] = &sw->host_scale,
                                     [FIT_COMPUTE] = &sw->compute_scale,
                                     [FIT_COMM] = &sw->comm_scale };
    return scalars[i];
}

/* What scalar i is where nothing was fitted. */
static double unfitted(const Software *sw, int i)
{
    return i == FIT_COMPUTE ? sw->assumed_compute_scale : 1;
}

static bool is_fitted(Job *job, int i)
{
    return *scalar_of(&job->sw, i) != unfitted(&job->sw, i);
}

/* What of a prediction is asked for. */
typedef enum Asked { ASKED_TIME, ASKED_ALL } Asked;

/* Of the memory what the allocator makes of it takes longest, and knows nothing of time. */
static RoleMemory *memory_asked(const Job *job, const Graph *g, const Software *sw, Asked asked,
                                Arena *arena)
{
    if (asked == ASKED_ALL)
        return memory_of_roles(g, &job->s.machine, sw, false, arena);
    RoleMemory *memory = PUSH_ARRAY(arena, RoleMemory, g->roles_n);
    for (uint32_t i = 0; i < g->roles_n; i++)
        memory[i] = memory_of_role(g, &g->roles[i], NULL);
    return memory;
}

/* Do scalars and what they are fitted with change it? */
static bool is_of_time(const char *metric)
{
    return strncmp(metric, "memory.", strlen("memory.")) != 0 && strcmp(metric, "fits") != 0;
}

/* Simulates the scenario with sw. */
static bool predict(Job *job, Report *report, const Software *sw, Asked asked,
                    bool shows_progress)
{
    Graph *g = mem_zero(1, sizeof *g);
    SimResult result = { 0 };
    Arena arena = { 0 };
    SimOptions options = { 0 };
    if (shows_progress) {
        options.progress = progress_part;
        options.user = &job->progress;
    }
    bool ok = build_graph(g, &job->s, sw, &job->err) &&
              sim_run(&result, g, &job->s.machine, sw, &options, &job->err);
    if (ok) {
        RoleMemory *memory = memory_asked(job, g, sw, asked, &arena);
        report_fill(report, &job->s, g, &result, memory, 0);
    }
    sim_result_free(&result);
    graph_free(g);
    free(g);
    arena_free(&arena);
    return ok;
}

/* The step time with another sw; 0 when it cannot be had. */
static double try_software(Job *job, const Software *sw)
{
    Report report = { 0 };
    double step_s = predict(job, &report, sw, ASKED_TIME, false) ? report.step_time_s : 0;
    report_free(&report);
    return step_s;
}

/* Do this stack's steps show what slows kernels on the GPU? */
static bool shows(const Job *job, const NodeType *type)
{
    return strcmp(type->gpu->sustained_from, job->sw.name) == 0;
}

/* Of mixed machines the first counts. */
static bool shows_sustained(const Job *job)
{
    return shows(job, &job->s.machine.types[0]);
}

static void forget_sustained(Job *job)
{
    for (uint32_t i = 0; i < job->s.machine.types_n; i++) {
        NodeType *type = &job->s.machine.types[i];
        if (!shows(job, type))
            continue;
        Gpu *gpu = PUSH(&job->arena, Gpu);
        *gpu = *type->gpu;
        gpu->sustained_scale = 1;
        gpu->sustained_spread = 0;
        type->gpu = gpu;
    }
}

static double try_scalar(Job *job, int i, double factor)
{
    Software sw = job->sw;
    *scalar_of(&sw, i) *= factor;
    return try_software(job, &sw);
}

static void try_scalars(Job *job)
{
    for (int i = 0; i < FIT_N; i++)
        if (is_fitted(job, i)) {
            job->lower_s[i] = try_scalar(job, i, 1 / FIT_STEP);
            job->higher_s[i] = try_scalar(job, i, FIT_STEP);
        }
    Software sw = job->sw;
    sw.ring_nics = 0;
    if (job->sw.ring_nics > 0)
        job->all_nics_s = try_software(job, &sw);
}

/* A name without a file runs as generic. */
static bool choose_software(Job *job)
{
    job->software = arena_strdup(&job->arena, job->s.software);
    job->unknown_software = !software_is_known(&job->s);
    bool ok = job->unknown_software ? software_read(&job->sw, &job->arena, "generic", &job->err)
                                    : software_of(&job->sw, &job->arena, &job->s, &job->err);
    if (!ok)
        return false;
    if (job->s.training.compiled && job->sw.compiled_as) {
        job->software = arena_printf(&job->arena, "%s, compiled", job->software);
        job->sw.name = job->sw.compiled_as; /* whose scalars it has */
    }
    job->fitted = job->sw.ring_nics > 0 || shows_sustained(job);
    for (int i = 0; i < FIT_N; i++)
        job->fitted |= is_fitted(job, i);
    return true;
}

/* Equal for rows of one model, GPU count, batch and sequence length, in one group. */
static const char *set_of(Job *job)
{
    const Scenario *s = &job->s;
    const Transformer *t = &s->model.u.transformer;
    const char *shape = s->model.kind != MODEL_TRANSFORMER
                            ? ""
                            : arena_printf(&job->arena, " %u %u %u %u %u", t->layers, t->hidden,
                                           t->heads, t->kv_heads, t->ffn);
    return arena_printf(&job->arena, "%s model %d %" PRIu64 "%s gpus %u batch %u seq %u",
                        job->group, (int)s->model.kind, model_params(&s->model), shape,
                        s->parallel.gpus, s->training.global_batch, s->training.seq_len);
}

static void take_measured(Job *job)
{
    const Scenario *s = &job->s;
    job->cells_n = s->measured_n;
    job->cells = PUSH_ARRAY(&job->arena, Cell, s->measured_n);
    for (uint32_t i = 0; i < s->measured_n; i++)
        job->cells[i] =
            (Cell){ .metric = s->measured[i].metric, .measured = s->measured[i].value };
}

static void run_first(Job *job)
{
    Report report = { 0 };
    if (choose_software(job) && predict(job, &report, &job->sw, ASKED_ALL, true)) {
        take_measured(job);
        job->ranked_with = set_of(job);
        for (uint32_t i = 0; i < job->cells_n; i++) {
            report_value(&report, job->cells[i].metric, &job->cells[i].predicted);
            job->cells[i].left_out = job->cells[i].predicted;
        }
        job->memory = *report_fullest(&report);
        if (job->fitted)
            try_scalars(job);
    }
    report_free(&report);
}

static void run_job(void *task)
{
    Job *job = task;
    const Options *o = job->options;
    bool ok = scenario_from(&job->s, job->doc, o->set.settings, o->set.n, &job->err);
    job->doc = NULL;
    job->is_bare = ok && job->s.measured_n == 0;
    if (ok && o->svg)
        scenario_spares(&job->s, o->svg, &job->harm);
    if (job->is_bare)
        err_set(&job->err, "it has no \"measured\"");
    else if (ok)
        run_first(job);
    if (ok && (job->err.set || !job->fitted))
        scenario_free(&job->s);
    progress_end(&job->progress);
}

static void run_left_out(void *task)
{
    Job *job = task;
    Software sw = job->sw;
    Report report = { 0 };
    for (int i = 0; i < FIT_N; i++)
        *scalar_of(&sw, i) *= job->refit.factor[i];
    if (job->refit.all_nics)
        sw.ring_nics = 0;
    if (!job->refit.shows_gpu && shows_sustained(job))
        forget_sustained(job);
    if (predict(job, &report, &sw, ASKED_TIME, true))
        for (uint32_t i = 0; i < job->cells_n; i++)
            if (is_of_time(job->cells[i].metric))
                report_value(&report, job->cells[i].metric, &job->cells[i].left_out);
    report_free(&report);
    scenario_free(&job->s);
    progress_end(&job->progress);
}

/* ---- all of them ---- */

typedef struct Batch {
    const Options *options;
    JobList jobs;
} Batch;

static const char *copy_member(Job *job, const char *key, const char *otherwise)
{
    const char *text = json_text(json_member(json_root(job->doc), key));
    return arena_strdup(&job->arena, text ? text : otherwise);
}

static void take_place(Job *job, const char *path)
{
    job->path = arena_strdup(&job->arena, path);
    const char *slash = strrchr(job->path, '/');
    job->file = slash ? slash + 1 : job->path;
}

/* What a row shows of a scenario that may turn out not to be one. */
static void look_ahead(Job *job)
{
    take_place(job, json_name(job->doc));
    job->name = copy_member(job, "name", job->file);
    job->group = copy_member(job, "group", "");
    job->source = copy_member(job, "source", "");
    job->quality = copy_member(job, "quality", "");
    Err ignored = { 0 };
    const char *software = job->options->software;
    if (!software)
        software =
            software_name(&job->arena, json_member(json_root(job->doc), "software"), &ignored);
    job->software = arena_strdup(&job->arena, software);
    JsonNode list = json_member(json_root(job->doc), "measured");
    if (json_type(list) != JSON_ARRAY)
        return;
    job->cells = PUSH_ARRAY(&job->arena, Cell, json_items_n(list));
    size_t i = 0;
    for (JsonNode row = json_first(list); row.item; row = json_next(row, list, ++i)) {
        const char *metric = json_text(json_member(row, "metric"));
        job->cells[job->cells_n++].metric = arena_strdup(&job->arena, metric ? metric : "?");
    }
}

static Job *new_job(const Batch *b)
{
    Job *job = mem_zero(1, sizeof *job);
    job->options = b->options;
    return job;
}

static bool add_job(void *user, JsonDoc *doc, Err *err)
{
    Batch *b = user;
    (void)err;
    Job *job = new_job(b);
    job->doc = doc;
    look_ahead(job);
    job_list_add(&b->jobs, run_job, job, &job->progress);
    return true;
}

static void run_nothing(void *task)
{
    progress_end(&((Job *)task)->progress);
}

/* A line that is no JSON is a row that cannot run. */
static void add_unread(void *user, const char *place, const Err *why)
{
    Batch *b = user;
    Job *job = new_job(b);
    take_place(job, place);
    job->name = job->file;
    job->group = "";
    job->software = "generic";
    job->err = *why;
    job_list_add(&b->jobs, run_nothing, job, &job->progress);
}

/* ---- the second pass ---- */

static const Cell *time_of(const Job *job)
{
    for (uint32_t i = 0; i < job->cells_n && !job->err.set; i++)
        if (strcmp(job->cells[i].metric, time_metric) == 0 && job->cells[i].measured > 0 &&
            job->cells[i].predicted > 0)
            return &job->cells[i];
    return NULL;
}

static bool is_left_out(const Job *job)
{
    return job->fitted && !job->err.set;
}

static uint32_t fit_rows(FitRow *rows, Interner *ids, const Batch *b)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->jobs.n; i++) {
        const Job *job = b->jobs.at[i];
        const Cell *time = time_of(job);
        if (!is_left_out(job) || !time)
            continue;
        FitRow *row = &rows[n++];
        *row = (FitRow){ .software = intern(ids, job->sw.name),
                         .group = intern(ids, job->group),
                         .measured = time->measured,
                         .predicted = time->predicted,
                         .all_nics = job->all_nics_s,
                         .shows_gpu = shows_sustained(job) };
        memcpy(row->lower, job->lower_s, sizeof row->lower);
        memcpy(row->higher, job->higher_s, sizeof row->higher);
    }
    return n;
}

/* Scalars that nothing is left to fit on are what they were before any fit. */
static void fit_job(Job *job, const FitRow *rows, uint32_t rows_n, Interner *ids)
{
    uint32_t software = intern(ids, job->sw.name), group = intern(ids, job->group);
    if (!fit_scalars(&job->refit, rows, rows_n, software, group))
        for (int i = 0; i < FIT_N; i++)
            job->refit.factor[i] = unfitted(&job->sw, i) / *scalar_of(&job->sw, i);
}

/* Jobs of one software and group, one after the other in most files, share their fit. */
static void leave_out(Batch *b)
{
    Interner ids = { 0 };
    FitRow *rows = mem_zero(b->jobs.n, sizeof *rows);
    uint32_t rows_n = fit_rows(rows, &ids, b);
    const Job *last = NULL;
    for (uint32_t i = 0; i < b->jobs.n; i++) {
        Job *job = b->jobs.at[i];
        if (!is_left_out(job))
            continue;
        if (last && strcmp(last->group, job->group) == 0 &&
            strcmp(last->sw.name, job->sw.name) == 0)
            job->refit = last->refit;
        else
            fit_job(job, rows, rows_n, &ids);
        last = job;
        job_list_again(&b->jobs, run_left_out, job);
    }
    free(rows);
    intern_free(&ids);
}

static void batch_run(Batch *b, const Options *o, Err *err)
{
    b->options = o;
    job_list_open(&b->jobs, o->jobs);
    scenario_each_that_reads(o->names, o->names_n, add_job, add_unread, b, err);
    job_list_wait(&b->jobs);
    leave_out(b);
    job_list_close(&b->jobs);
}

static void release_job(void *job)
{
    arena_free(&((Job *)job)->arena);
}

/* ---- from jobs to rows ---- */

/* Why a scenario was skipped, without its own place in front: that stands beside it. */
static const char *reason_of(Validation *v, const Job *job)
{
    const char *text = job->err.text;
    size_t n = strlen(job->path);
    if (strncmp(text, job->path, n) != 0 || text[n] != ':')
        return arena_strdup(&v->arena, text);
    unsigned column; /* behind the line's number, which ends path */
    int skipped = 0;
    sscanf(text + n, ":%u: %n", &column, &skipped);
    if (skipped > 0)
        return arena_printf(&v->arena, "column %u: %s", column, text + n + skipped);
    return arena_strdup(&v->arena, text + n + strspn(text + n, ": "));
}

/* Why a metric cannot be compared, or NULL. */
static const char *trouble_with(Validation *v, const Cell *cell)
{
    if (!isfinite(cell->predicted))
        return arena_printf(&v->arena, "the prediction has no %s", cell->metric);
    if (cell->measured == 0 && cell->predicted != 0 && strcmp(cell->metric, "fits") != 0)
        return arena_printf(&v->arena, "%s measured as 0: no error in %% of it", cell->metric);
    return NULL;
}

/* "runs.jsonl:12" -> "runs.jsonl" */
static uint32_t list_of(Validation *v, const char *file)
{
    const char *colon = strrchr(file, ':');
    bool is_line = colon && colon[1] && colon[1 + strspn(colon + 1, "0123456789")] == '\0';
    return intern_bytes(&v->names, file, is_line ? (size_t)(colon - file) : strlen(file));
}

static ValidateRow *add_row(Validation *v, const Job *job)
{
    ValidateRow *row = validate_add(v);
    row->name = arena_strdup(&v->arena, job->name);
    row->file = arena_strdup(&v->arena, job->file);
    row->source = job->source ? arena_strdup(&v->arena, job->source) : "";
    row->quality = job->quality ? arena_strdup(&v->arena, job->quality) : "";
    row->scenario = v->scenarios_n;
    row->list = list_of(v, job->file);
    row->group = intern(&v->names, job->group);
    row->software = intern(&v->names, job->software);
    return row;
}

static void add_skipped(Validation *v, const Job *job)
{
    const char *reason = reason_of(v, job);
    for (uint32_t i = 0; i < job->cells_n || i == 0; i++) {
        ValidateRow *row = add_row(v, job);
        row->skipped = reason;
        row->metric = job->cells_n ? intern(&v->names, job->cells[i].metric) : NONE_U32;
    }
}

static void add_predicted(Validation *v, const Job *job)
{
    for (uint32_t i = 0; i < job->cells_n; i++) {
        const Cell *cell = &job->cells[i];
        ValidateRow *row = add_row(v, job);
        row->metric = intern(&v->names, cell->metric);
        row->set = intern(&v->names, job->ranked_with);
        row->measured = cell->measured;
        row->predicted = cell->predicted;
        row->left_out = cell->left_out;
        row->skipped = trouble_with(v, cell);
    }
}

static bool is_overfull(const Job *job)
{
    bool ran = !job->err.set;
    for (uint32_t i = 0; i < job->cells_n; i++)
        if (strcmp(job->cells[i].metric, "fits") == 0 && job->cells[i].measured == 0)
            ran = false; /* and was seen not to fit, whatever else was seen */
    return ran && !job->memory.fits;
}

static void note_overfull(Validation *v, const Job *job)
{
    validate_add_overfull(v, (Overfull){ .name = arena_strdup(&v->arena, job->name),
                                         .file = arena_strdup(&v->arena, job->file),
                                         .reserved_bytes = job->memory.reserved_bytes,
                                         .gpu_bytes = job->memory.gpu_bytes });
}

static void collect(Validation *v, const Batch *b)
{
    for (uint32_t i = 0; i < b->jobs.n; i++) {
        const Job *job = b->jobs.at[i];
        if (job->err.set)
            add_skipped(v, job);
        else
            add_predicted(v, job);
        if (job->unknown_software)
            validate_add_unknown(v, job->software);
        if (is_overfull(job))
            note_overfull(v, job);
        v->fitted_n += is_left_out(job);
        v->scenarios_n++;
    }
}

/* ---- arguments ---- */

static void print_help(FILE *f)
{
    fprintf(
        f,
        "usage: lockstep validate SCENARIO... [OPTION]...\n"
        "Predicts scenarios that have been measured (their key \"measured\") and says how far\n"
        "off the predictions are, by metric, group and software, and how well they rank.\n"
        "SCENARIO is a .json file, a built-in name (published, vtrain-single-node,\n"
        "torch-one-gpu, run-one-gpu) or a .jsonl file with a scenario a line.  What cannot\n"
        "be run is skipped and listed, and so is a line that is no JSON.\n"
        "\n"
        "  --set KEY=VALUE   changes a key of every scenario; repeatable\n"
        "  --software NAME   runs every scenario as this training stack, or as a .json file "
        "says\n"
        "  --json            prints one JSON object\n"
        "  --markdown        prints the tables as Markdown\n"
        "  --svg OUT         draws predicted over measured step times; OUT.png a PNG\n"
        "  --jobs N          scenarios at a time, as many as there are processors\n");
}

enum { OPT_SET = 1, OPT_SOFTWARE, OPT_JSON, OPT_MARKDOWN, OPT_SVG, OPT_JOBS };

static const struct option long_options[] = {
    { "set", required_argument, NULL, OPT_SET },
    { "software", required_argument, NULL, OPT_SOFTWARE },
    { "json", no_argument, NULL, OPT_JSON },
    { "markdown", no_argument, NULL, OPT_MARKDOWN },
    { "svg", required_argument, NULL, OPT_SVG },
    { "jobs", required_argument, NULL, OPT_JOBS },
    { "help", no_argument, NULL, OPTION_HELP },
    { NULL, 0, NULL, 0 },
};

static bool take_option(void *user, int option, Err *err)
{
    Options *o = user;
    switch (option) {
    case OPT_SET:
        return option_set(&o->set, optarg, err);
    case OPT_SOFTWARE:
        o->software = optarg;
        option_setting(&o->set, "software", optarg);
        return true;
    case OPT_JSON:
        return o->json = true;
    case OPT_MARKDOWN:
        return o->markdown = true;
    case OPT_SVG:
        o->svg = optarg;
        return validate_plot_check(optarg, err);
    default:
        return option_jobs(&o->jobs, optarg, err);
    }
}

static bool check_options(const Options *o, Err *err)
{
    if (o->names_n == 0)
        return err_set(err, "a scenario is missing");
    if (o->json && o->markdown)
        return err_set(err, "--json and --markdown exclude each other");
    for (uint32_t i = 0; o->svg && i < o->names_n; i++)
        if (out_file_is_same(o->svg, o->names[i]))
            return err_set(err, "'%.200s' is a scenario, it is not written over", o->svg);
    return true;
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

/* ---- the command ---- */

/* A stack that the user names must be there: running another in its place would mislead. */
static bool check_software(const Options *o, Err *err)
{
    Arena arena = { 0 };
    Software sw;
    bool ok = !o->software || software_read(&sw, &arena, o->software, err);
    arena_free(&arena);
    return ok;
}

/* Whether it could be written to stdout is for main to see and to say. */
static void print(const Validation *v, const Options *o)
{
    if (o->json) {
        Err ignored = { 0 };
        JsonOut j = json_out_file(stdout, 2);
        validate_json(v, &j);
        json_out_end(&j, &ignored);
    } else if (o->markdown) {
        validate_markdown(v, stdout);
    } else {
        validate_print(v, stdout);
    }
}

/* Rows that cannot run are listed; where none could, nothing was validated. */
static bool has_prediction(const Validation *v)
{
    for (uint32_t i = 0; i < v->rows_n; i++)
        if (!v->rows[i].skipped)
            return true;
    return false;
}

/* One reason for all rows: then their table says no more than it does. */
static bool has_one_reason(const Validation *v)
{
    for (uint32_t i = 0; i < v->rows_n; i++)
        if (!v->rows[i].skipped || strcmp(v->rows[i].skipped, v->rows[0].skipped) != 0)
            return false;
    return v->rows_n > 0;
}

static bool has_measurement(const Validation *v)
{
    for (uint32_t i = 0; i < v->rows_n; i++)
        if (v->rows[i].metric != NONE_U32)
            return true;
    return false;
}

/* Why there is nothing to compare with: some scenario cannot be read, or none was measured. */
static bool refuse_bare(const Batch *b, Err *err)
{
    for (uint32_t i = 0; i < b->jobs.n; i++) {
        const Job *job = b->jobs.at[i];
        if (job->err.set && !job->is_bare)
            return err_set(err, "%s", job->err.text);
    }
    return err_set(err, "'%.200s' has no \"measured\", there is nothing to compare with",
                   b->options->names[0]);
}

static bool spares_inputs(const Batch *b, Err *err)
{
    for (uint32_t i = 0; i < b->jobs.n; i++) {
        const Job *job = b->jobs.at[i];
        if (job->harm.set)
            return err_set(err, "%s", job->harm.text);
    }
    return true;
}

static int validate(const Options *o)
{
    Batch b = { 0 };
    Validation v = { 0 };
    Err err = { 0 };
    if (check_software(o, &err))
        batch_run(&b, o, &err);
    collect(&v, &b);
    if (!err.set && !has_measurement(&v))
        refuse_bare(&b, &err);
    if (!err.set)
        spares_inputs(&b, &err);
    if (!err.set && !has_one_reason(&v) && (!o->svg || validate_plot(&v, o->svg, &err)))
        print(&v, o);
    if (!err.set && !has_prediction(&v))
        err_set(&err, "nothing could be predicted: %s", v.rows[0].skipped);
    if (err.set)
        fprintf(stderr, "lockstep: %s\n", err.text);
    validate_free(&v);
    job_list_free(&b.jobs, release_job);
    return err.set ? EXIT_COULD_NOT : EXIT_DONE;
}

int cmd_validate(int argc, char **argv)
{
    Options o = { .jobs = pool_processors() };
    Err err = { 0 };
    bool help = false;
    int status = EXIT_DONE;
    if (!parse(&o, argc, argv, &help, &err))
        status = options_wrong("validate", &err);
    else if (help)
        print_help(stdout);
    else
        status = validate(&o);
    free(o.set.settings);
    return status;
}

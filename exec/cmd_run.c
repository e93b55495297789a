/*
 * cmd_run.c - lockstep run SCENARIO: trains a scenario for real.
 *
 *     scenario --run_plan--> graph, prediction
 *         started by nobody: fork a process for each rank (launch_ranks), wait
 *         started by torchrun, mpirun, srun, --rank: be that rank
 *     rank 0 writes the trace and what is to be printed into a file that its starter has
 *     open; that is shown when all ranks have ended well.
 */
#include "exec/cmd_run.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/out_file.h"
#include "core/printable.h"
#include "core/temporary.h"
#include "exec/cmd.h"
#include "exec/cmd_run_collect.h"
#include "exec/cmd_run_cuda.h"
#include "exec/cmd_run_model.h"
#include "sim/scenario.h"
#include "traces/formats.h"

/* ---- one rank ---- */

static bool measured(void *user, const MachineTimes *m, Err *err)
{
    RunTraining *t = user;
    if (!run_plan_measured(&t->plan, m, t->o->trace_predicted != NULL, err))
        return false;
    run_live_predicted(&t->live, &t->plan);
    return true;
}

/* When it has begun: the folder is its own. */
static void say_anew(RunTraining *t)
{
    if (*t->earlier)
        fprintf(stderr,
                "lockstep: '%.200s' holds %s of an earlier training; this one has begun anew, "
                "--resume would have gone on\n",
                t->o->checkpoint, t->earlier);
    *t->earlier = '\0';
}

static bool each_step(void *user, const StepInfo *info, Err *err)
{
    RunTraining *t = user;
    (void)err;
    if (t->shows) {
        say_anew(t);
        run_live_step(&t->live, &t->plan, info);
    }
    return true;
}

/* Paced times are partly the model's: whoever sees the trace must know. */
static bool write_trace(const RunTraining *t, RankResult *r, Err *err)
{
    static const char *const notes[] = { "", " (virtual: model time)",
                                         " (paced: ops last at least as the model says)" };
    char name[300];
    snprintf(name, sizeof name, "%.200s%s", t->plan.name, notes[t->o->clock]);
    timeline_set_name(&r->timeline, name);
    timeline_seal(&r->timeline);
    return trace_write(&r->timeline, t->o->trace, err);
}

static bool report(RunTraining *t, RankResult *r, Err *err)
{
    const RunOptions *o = t->o;
    RunShared *end = t->shared;
    RunOptions shown = *o;
    if (o->trace && (r->steps_n == 0 || !write_trace(t, r, err)))
        shown.trace = NULL;
    if (o->trace_predicted && !run_plan_write_trace(&t->plan, o->trace_predicted, err))
        shown.trace_predicted = NULL;
    (o->json ? run_show_json : run_show_text)(&shown, &t->plan, r, t->hyper, t->result);
    end->trained = true;
    end->first_loss = r->steps_n ? r->steps[0].loss : NAN;
    end->last_loss = r->steps_n ? r->steps[r->steps_n - 1].loss : NAN;
    end->step_s = run_step_stat(r).median_s;
    if (fflush(t->result) != 0 || ferror(t->result))
        return err_set(err, "cannot keep the results: %s", strerror(errno));
    return !err->set;
}

static RankSetup setup_of(RunTraining *t, uint32_t rank, const OpTime *times,
                          const int64_t *host)
{
    const RunPlan *plan = &t->plan;
    const RunOptions *o = t->o;
    return (RankSetup){ .graph = &plan->graph,
                        .whole = &plan->whole,
                        .data = &plan->data,
                        .backend = &backend_cpu,
                        .facts = run_plan_facts(plan, rank),
                        .feed = run_plan_feed(plan, rank),
                        .hyper = plan->hyper,
                        .seed = plan->seed,
                        .steps = o->steps,
                        .clock = o->clock,
                        .rings = o->rings,
                        .times = times,
                        .host_start_ns = host,
                        .trace = o->trace != NULL,
                        .checkpoint = o->checkpoint,
                        .every = o->every,
                        .resume = o->resume,
                        .model = plan->model,
                        .text = plan->name,
                        .beside_n = t->beside_n,
                        .measured = o->clock == RUN_WALL && !o->cuda ? measured : NULL,
                        .each_step = each_step,
                        .user = t };
}

/* On GPUs: which one, and what it needs. */
static bool use_gpu(const RunTraining *t, RankSetup *setup, CudaOptions *cuda,
                    const RankPlace *place, Err *err)
{
    const CudaPlugin *plugin;
    Err why = { 0 };
    if (!cuda_rank(&plugin, cuda, t->o, place, err))
        return false;
    /* CUDA has read its environment, and has no context yet. */
    const CaptureApi *capture = t->o->trace ? collect_start(place, &why) : NULL;
    if (why.set && t->shows)
        fprintf(stderr, "lockstep: times of the trace are those of CUDA's events: %s\n",
                why.text);
    setup->backend = plugin->backend;
    setup->cuda = cuda;
    setup->collected = capture != NULL;
    setup->ended = t->o->trace ? collect_end : NULL;
    cuda->capture = capture;
    if (t->shows)
        run_live_predicted(&t->live, &t->plan);
    return true;
}

/* Ranks that are threads share what user points to: each has its own copy. */
static int run_rank(const RankPlace *place, void *user)
{
    RunTraining mine = *(const RunTraining *)user, *t = &mine;
    RankResult result = { 0 };
    CudaOptions cuda;
    Err err = { 0 };
    bool model = t->o->clock != RUN_WALL;
    OpTime *times = model ? run_plan_times(&t->plan, place->rank) : NULL;
    int64_t *host = model ? run_plan_host(&t->plan, place->rank) : NULL;
    RankSetup setup = setup_of(t, place->rank, times, host);
    t->shows = place->rank == 0;
    run_live_open(&t->live, t->o->steps, place->copy);
    bool ok = (!t->o->cuda || use_gpu(t, &setup, &cuda, place, &err)) &&
              rank_run(&result, &setup, place, &err);
    if (setup.ended)
        collect_close();
    if (t->shows)
        run_live_close(&t->live);
    ok = ok && (!t->shows || report(t, &result, &err));
    if (!ok && !atomic_flag_test_and_set(&t->shared->said)) {
        snprintf(t->shared->why, sizeof t->shared->why, "%s", err.text);
        fprintf(stderr, "lockstep: %s%s%s\n", place->copy ? place->copy : "",
                place->copy ? ": " : "", err.text);
    }
    rank_result_free(&result);
    free(times);
    free(host);
    return ok ? EXIT_DONE : EXIT_COULD_NOT;
}

/* ---- all ranks ---- */

static bool find_place(const RunOptions *o, RankPlace *place, Launcher *by, Err *err)
{
    const LaunchFlags flags = run_launch_flags(o);
    *place = (RankPlace){ .timeout_s = (double)o->timeout_s };
    return launch_place(place, by, &flags, err);
}

/* What ranks that somebody else started must agree on, or they would wait for each other: besides
 * the scenario, how many steps, and all that they do together around them. */
static void tell_digest(char *text, size_t cap, const RunTraining *t)
{
    const RunOptions *o = t->o;
    uint64_t hyper = o->hyper_key ? hash_text(hash_text(1, o->hyper_key), o->hyper_values) : 0;
    snprintf(
        text, cap,
        "%s %s, steps %" PRIu64 ", every %" PRIu64 ", %s clock%s%s%s%s%s, hyper %016" PRIx64,
        t->plan.digest, o->cuda ? "cuda" : "cpu", o->steps, o->every, run_clock_names[o->clock],
        o->rings ? ", rings" : "", o->checkpoint ? ", checkpoints" : "",
        o->resume ? ", resumed" : "", o->trace ? ", a trace" : "",
        o->trace_predicted ? ", the prediction's" : "", hyper);
}

static int start(RunTraining *t)
{
    RankPlace *place = &t->place;
    uint32_t world = t->plan.graph.world_n;
    char digest[256];
    tell_digest(digest, sizeof digest, t);
    place->digest = digest;
    if (t->by != LAUNCHER_NONE)
        return launch_self(place, run_rank, t);
    place->world = place->local_n = world;
    fflush(NULL);
    return t->o->loop ? launch_threads(world, run_rank, t, place)
                      : launch_ranks(world, run_rank, t, place, NULL);
}

bool run_prints(const RunTraining *t)
{
    return t->by == LAUNCHER_NONE || t->place.rank == 0;
}

static bool open_plan(RunTraining *t, const Setting *extra, uint32_t ranks, bool *usage,
                      Err *err)
{
    const RunOptions *o = t->o;
    uint32_t n = o->set.n;
    Setting *settings = mem_zero((size_t)n + 1, sizeof *settings);
    if (n > 0)
        memcpy(settings, o->set.settings, n * sizeof *settings);
    if (extra)
        settings[n++] = *extra;
    RunRequest request = { .scenario = o->scenario,
                           .settings = settings,
                           .settings_n = n,
                           .ranks = ranks,
                           .started = t->by != LAUNCHER_NONE,
                           .this_machine = o->clock == RUN_WALL && !o->cuda };
    bool ok = run_plan_open(&t->plan, &request, usage, err) &&
              (request.this_machine ||
               run_plan_predict(&t->plan, !o->cuda || o->trace_predicted, err));
    free(settings);
    return ok;
}

/* What was asked for and has no effect. */
static void say_remarks(const RunTraining *t)
{
    if (!run_prints(t) || t->beside_later)
        return;
    if (*t->plan.unused)
        fprintf(stderr, "lockstep: %s\n", t->plan.unused);
    if (t->plan.other_software)
        fprintf(stderr,
                "lockstep: software '%.100s' of the scenario is not used: what runs is "
                "'lockstep'\n",
                t->plan.other_software);
}

/* Of two trainings in one folder the newest snapshot is the one to resume. */
static void find_earlier(RunTraining *t)
{
    char path[PATH_MAX];
    *t->earlier = '\0';
    if (!t->o->checkpoint || t->o->resume)
        return;
    snprintf(path, sizeof path, "%s/latest", t->o->checkpoint);
    FILE *f = fopen(path, "r");
    if (!f)
        return;
    if (fgets(t->earlier, sizeof t->earlier, f))
        t->earlier[strcspn(t->earlier, "\r\n")] = '\0';
    make_printable(t->earlier);
    fclose(f);
}

/* 0: as many as the scenario says. */
static uint32_t ranks_wanted(const RunTraining *t)
{
    return t->by == LAUNCHER_NONE ? t->o->ranks : t->place.world;
}

/* Do its ranks, all of them, start here? */
static bool starts_here(const RunTraining *t)
{
    return t->by == LAUNCHER_NONE && !t->o->cuda;
}

/* Is there a kernel for every op?  Ranks of one role have the same. */
static bool knows_kernels(const RunTraining *t, Err *err)
{
    const Graph *g = &t->plan.graph;
    bool *seen = mem_zero((size_t)g->roles_n + 1, sizeof *seen), ok = true;
    for (uint32_t rank = 0; ok && rank < g->world_n; rank++) {
        bool *of_role = &seen[graph_role_of(g, rank) - g->roles];
        Program p = { 0 };
        if (*of_role)
            continue;
        *of_role = true;
        ok = program_make(&p, g, rank, err) &&
             kernels_known(&p, t->o->cuda ? "cuda" : "cpu", err);
        program_free(&p);
    }
    free(seen);
    return ok;
}

static bool can_train(const RunTraining *t, Err *err)
{
    Data *data = NULL;
    bool ok = data_open(&data, &t->plan.data, err);
    data_close(data);
    return ok && (!starts_here(t) || run_memory_fits(&t->plan.graph, err)) &&
           knows_kernels(t, err);
}

bool run_training_check(const RunTraining *t, const Setting *extra, Err *err)
{
    RunTraining trial = *t;
    bool usage, ok = open_plan(&trial, extra, ranks_wanted(t), &usage, err);
    ok = ok && can_train(&trial, err);
    run_plan_free(&trial.plan);
    return ok;
}

/* Shows what GPUs would do, on whatever machine. */
static int dry_run(const RunOptions *o, Err *err)
{
    RunTraining t = { .o = o };
    bool usage = false;
    bool ok = open_plan(&t, NULL, o->ranks, &usage, err);
    if (ok)
        say_remarks(&t);
    ok = ok && cuda_dry_run(o, &t.plan, stdout, err);
    int status = ok ? EXIT_DONE : usage ? EXIT_USAGE : EXIT_COULD_NOT;
    run_plan_free(&t.plan);
    return status;
}

int run_train(RunTraining *t, const Setting *extra, Err *err)
{
    bool usage = false;
    int status = EXIT_COULD_NOT;
    if (open_plan(t, extra, ranks_wanted(t), &usage, err)) {
        say_remarks(t);
        find_earlier(t);
        if (!starts_here(t) || run_memory_fits(&t->plan.graph, err))
            status = start(t);
    } else if (usage) {
        status = EXIT_USAGE;
    }
    run_plan_free(&t->plan);
    return status;
}

bool run_training_open(RunTraining *t, Err *err)
{
    void *shared = mmap(NULL, sizeof(RunShared), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    t->shared = shared == MAP_FAILED ? NULL : shared;
    if (!t->shared)
        return err_set(err, "cannot share memory among ranks: %s", strerror(errno));
    t->result = temporary_file("run");
    return t->result || err_set(err, "cannot make a temporary file in '%.200s': %s",
                                temporary_folder(), strerror(errno));
}

void run_training_close(RunTraining *t)
{
    if (t->result)
        fclose(t->result);
    if (t->shared)
        munmap(t->shared, sizeof(RunShared));
}

/* ---- the command ---- */

void run_print_result(FILE *result, FILE *out)
{
    char part[4096];
    fflush(result);
    rewind(result);
    for (size_t n; (n = fread(part, 1, sizeof part, result)) > 0;)
        fwrite(part, 1, n, out);
}

/* What is trained stays, and so does what it is made of. */
static bool spares_scenario(const RunOptions *o, Err *err)
{
    const char *const paths[] = { o->trace, o->trace_predicted };
    return scenario_spares_paths(o->scenario, o->set.settings, o->set.n, paths, ARRAY_N(paths),
                                 err);
}

static int run(const RunOptions *o, Err *err)
{
    RunTraining t = { .o = o };
    int status = EXIT_COULD_NOT;
    if (!spares_scenario(o, err))
        return EXIT_COULD_NOT;
    if (o->dry_run)
        return dry_run(o, err);
    const char *instead = "--backend cpu trains here, --dry-run shows what GPUs would do";
    if ((o->cuda && !cuda_plugin_find(instead, err)) || !find_place(o, &t.place, &t.by, err))
        return EXIT_COULD_NOT;
    if (o->hyper_key)
        return run_hyper(&t, err);
    if (run_prints(&t) &&
        (!out_file_can_open(o->trace, err) || !out_file_can_open(o->trace_predicted, err)))
        return EXIT_COULD_NOT;
    if (run_training_open(&t, err)) {
        status = run_train(&t, NULL, err);
        if (t.shared->trained && run_prints(&t)) /* even where a trace could not be written */
            run_print_result(t.result, stdout);
    }
    run_training_close(&t);
    return status;
}

int cmd_run(int argc, char **argv)
{
    RunOptions o;
    Err err = { 0 };
    bool help = false;
    int status = EXIT_DONE;
    if (!run_options_parse(&o, argc, argv, &help, &err)) {
        status = run_options_wrong(&err);
    } else if (help) {
        run_options_help(stdout);
    } else {
        status = run(&o, &err);
        if (err.set)
            fprintf(stderr, "lockstep: %s\n", err.text);
    }
    run_options_free(&o);
    return status;
}

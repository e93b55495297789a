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
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "exec/cmd.h"
#include "exec/cmd_run_cuda.h"
#include "exec/launch.h"
#include "sim/texts.h"
#include "traces/formats.h"

/* Of the ranks of one starter, and of it. */
typedef struct Shared {
    atomic_flag said; /* the first rank to fail says why */
    double first_loss, last_loss, step_s;
} Shared;

/* One training, as its ranks know it. */
typedef struct Training {
    const RunOptions *o;
    RunPlan plan;
    const char *hyper; /* "lr=0.1"; NULL */
    LiveLine live;
    bool shows;   /* this process is rank 0, */
    bool prints;  /* or has started it */
    FILE *result; /* of rank 0, for its starter */
    Shared *shared;
} Training;

/* ---- one rank ---- */

static bool measured(void *user, const MachineTimes *m, Err *err)
{
    Training *t = user;
    if (!run_plan_measured(&t->plan, m, err))
        return false;
    run_live_predicted(&t->plan);
    return true;
}

static bool each_step(void *user, const StepInfo *info, Err *err)
{
    Training *t = user;
    (void)err;
    if (t->shows)
        run_live_step(&t->live, &t->plan, ++t->live.done, info);
    return true;
}

/* Paced times are partly the model's: whoever sees the trace must know. */
static bool write_trace(const Training *t, RankResult *r, Err *err)
{
    static const char *const notes[] = { "", " (virtual: model time)",
                                         " (paced: ops last at least as the model says)" };
    char name[300];
    snprintf(name, sizeof name, "%.200s%s", t->plan.name, notes[t->o->clock]);
    timeline_set_name(&r->timeline, name);
    timeline_seal(&r->timeline);
    return trace_write(&r->timeline, t->o->trace, err);
}

static bool report(Training *t, RankResult *r, Err *err)
{
    if (t->o->trace && !write_trace(t, r, err))
        return false;
    (t->o->json ? run_show_json : run_show_text)(t->o, &t->plan, r, t->hyper, t->result);
    t->shared->first_loss = r->steps[0].loss;
    t->shared->last_loss = r->steps[r->steps_n - 1].loss;
    t->shared->step_s = run_step_stat(r).median_s;
    if (fflush(t->result) != 0 || ferror(t->result))
        return err_set(err, "cannot keep the results: %s", strerror(errno));
    return true;
}

static RankSetup setup_of(Training *t, uint32_t rank, const OpTime *times, const int64_t *host)
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
                        .measured = o->clock == RUN_WALL && !o->cuda ? measured : NULL,
                        .each_step = each_step,
                        .user = t };
}

/* On GPUs: which one, and what it needs. */
static bool use_gpu(const Training *t, RankSetup *setup, CudaOptions *cuda,
                    const RankPlace *place, Err *err)
{
    const CudaPlugin *plugin;
    if (!cuda_rank(&plugin, cuda, t->o, place, err))
        return false;
    setup->backend = plugin->backend;
    setup->cuda = cuda;
    if (t->shows)
        run_live_predicted(&t->plan);
    return true;
}

/* Ranks that are threads share what user points to: each has its own copy. */
static int run_rank(const RankPlace *place, void *user)
{
    Training mine = *(const Training *)user, *t = &mine;
    RankResult result = { 0 };
    CudaOptions cuda;
    Err err = { 0 };
    bool model = t->o->clock != RUN_WALL;
    OpTime *times = model ? run_plan_times(&t->plan, place->rank) : NULL;
    int64_t *host = model ? run_plan_host(&t->plan, place->rank) : NULL;
    RankSetup setup = setup_of(t, place->rank, times, host);
    t->shows = place->rank == 0;
    run_live_open(&t->live, t->o->steps);
    bool ok = (!t->o->cuda || use_gpu(t, &setup, &cuda, place, &err)) &&
              rank_run(&result, &setup, place, &err);
    if (t->shows)
        run_live_close(&t->live);
    ok = ok && (!t->shows || report(t, &result, &err));
    if (!ok && !atomic_flag_test_and_set(&t->shared->said))
        fprintf(stderr, "lockstep: %s\n", err.text);
    rank_result_free(&result);
    free(times);
    free(host);
    return ok ? EXIT_DONE : EXIT_COULD_NOT;
}

/* ---- all ranks ---- */

static bool find_place(const RunOptions *o, RankPlace *place, Launcher *by, Err *err)
{
    LaunchFlags flags = { .ranks = o->ranks,
                          .rank = o->rank,
                          .world = o->world,
                          .local_rank = o->local_rank,
                          .rendezvous = o->rendezvous };
    *place = (RankPlace){ .timeout_s = (double)o->timeout_s };
    return launch_place(place, by, &flags, err);
}

static int start(Training *t, RankPlace *place, Launcher by)
{
    uint32_t world = t->plan.graph.world_n;
    place->digest = t->plan.digest;
    t->prints = by == LAUNCHER_NONE || place->rank == 0;
    if (by != LAUNCHER_NONE)
        return run_rank(place, t);
    place->world = place->local_n = world;
    fflush(NULL);
    return t->o->loop ? launch_threads(world, run_rank, t, place)
                      : launch_ranks(world, run_rank, t, place, NULL);
}

static bool open_plan(Training *t, const RunSetting *extra, uint32_t ranks, bool *usage,
                      Err *err)
{
    const RunOptions *o = t->o;
    uint32_t n = o->settings_n;
    RunSetting *settings = mem_zero((size_t)n + 1, sizeof *settings);
    if (n > 0)
        memcpy(settings, o->settings, n * sizeof *settings);
    if (extra)
        settings[n++] = *extra;
    RunRequest request = { .scenario = o->scenario,
                           .settings = settings,
                           .settings_n = n,
                           .ranks = ranks,
                           .this_machine = o->clock == RUN_WALL && !o->cuda };
    bool ok = run_plan_open(&t->plan, &request, usage, err) &&
              (request.this_machine || run_plan_predict(&t->plan, !o->cuda, err));
    free(settings);
    return ok;
}

/* Shows what GPUs would do, on whatever machine. */
static int dry_run(Training *t, Err *err)
{
    bool usage = false;
    int status = EXIT_COULD_NOT;
    if (open_plan(t, NULL, t->o->ranks, &usage, err) &&
        cuda_dry_run(t->o, &t->plan, t->result, err))
        status = EXIT_DONE;
    else if (usage)
        status = EXIT_USAGE;
    t->prints = true;
    run_plan_free(&t->plan);
    return status;
}

/* Trains once.  extra: one more setting. */
static int train(Training *t, const RunSetting *extra, Err *err)
{
    RankPlace place;
    Launcher by;
    bool usage = false;
    int status = EXIT_COULD_NOT;
    if (find_place(t->o, &place, &by, err)) {
        uint32_t ranks = by == LAUNCHER_NONE ? t->o->ranks : place.world;
        if (open_plan(t, extra, ranks, &usage, err))
            status = start(t, &place, by);
        else if (usage)
            status = EXIT_USAGE;
    }
    run_plan_free(&t->plan);
    return status;
}

/* ---- several values of a hyperparameter ---- */

typedef struct Trial {
    const char *value;
    char text[300]; /* "lr=0.1" */
    Shared end;
} Trial;

/* A value that cannot be is better told before the first has been trained. */
static bool check_trial(Training *t, const Trial *trial, const RunSetting *extra, Err *err)
{
    bool usage;
    bool ok = open_plan(t, extra, 0, &usage, err);
    run_plan_free(&t->plan);
    return ok || err_wrap(err, "--hyper %s", trial->text);
}

static int train_trial(Training *t, Trial *trial, const RunSetting *extra, Err *err)
{
    t->hyper = trial->text;
    fflush(t->result);
    int status = train(t, extra, err);
    trial->end = *t->shared;
    return status;
}

static void compare_trials(const Trial *trials, int n, const char *name, FILE *out)
{
    char time[TEXT_CAP];
    fprintf(out, "\n%-24s%16s%16s%16s\n", name, "first loss", "last loss", "step time");
    for (int i = 0; i < n; i++)
        fprintf(out, "%-24s%16.6g%16.6g%16s\n", trials[i].value, trials[i].end.first_loss,
                trials[i].end.last_loss, text_seconds(time, trials[i].end.step_s));
}

/* Trains with each of the values, one after another: none slows another down. */
static int train_each(Training *t, Err *err)
{
    char key[200];
    const char *name = t->o->hyper_key;
    int status = EXIT_DONE, n = 0, cap = 0;
    Trial *trials = NULL;
    snprintf(key, sizeof key, "%s%.150s", strchr(name, '.') ? "" : "training.", name);
    for (char *rest = t->o->hyper_values, *value; (value = rest); n++) {
        rest = strchr(value, ',');
        if (rest)
            *rest++ = '\0';
        GROW(trials, n, cap);
        trials[n] = (Trial){ .value = value };
        snprintf(trials[n].text, sizeof trials[n].text, "%.150s=%.100s", name, value);
    }
    for (int i = 0; i < n && status == EXIT_DONE; i++)
        if (!check_trial(t, &trials[i], &(RunSetting){ key, trials[i].value }, err))
            status = EXIT_COULD_NOT;
    fputs(t->o->json ? "{\"runs\":[\n" : "", t->result);
    for (int i = 0; i < n && status == EXIT_DONE; i++) {
        if (i > 0)
            fputs(t->o->json ? ",\n" : "\n", t->result);
        status = train_trial(t, &trials[i], &(RunSetting){ key, trials[i].value }, err);
    }
    if (t->o->json)
        fputs("]}\n", t->result);
    else if (status == EXIT_DONE && n > 1 && t->prints)
        compare_trials(trials, n, name, t->result);
    free(trials);
    return status;
}

/* What rank 0 has left in the file. */
static void print_result(FILE *result)
{
    char part[4096];
    fflush(result);
    rewind(result);
    for (size_t n; (n = fread(part, 1, sizeof part, result)) > 0;)
        fwrite(part, 1, n, stdout);
}

static int run(const RunOptions *o, Err *err)
{
    if (o->cuda && !o->dry_run && !cuda_plugin_find(err))
        return EXIT_COULD_NOT;
    void *shared =
        mmap(NULL, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    Training t = { .o = o, .result = tmpfile(), .shared = shared };
    int status = EXIT_COULD_NOT;
    if (!t.result || shared == MAP_FAILED) {
        err_set(err, "cannot make a temporary file: %s", strerror(errno));
    } else {
        status = o->dry_run     ? dry_run(&t, err)
                 : o->hyper_key ? train_each(&t, err)
                                : train(&t, NULL, err);
        if (status == EXIT_DONE && t.prints)
            print_result(t.result);
    }
    if (t.result)
        fclose(t.result);
    if (shared != MAP_FAILED)
        munmap(shared, sizeof(Shared));
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

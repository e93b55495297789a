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
#include "exec/launch.h"
#include "traces/formats.h"

enum { ANSWER_TIMEOUT_S = 60 };

/* One training, as its ranks know it. */
typedef struct Training {
    const RunOptions *o;
    RunPlan plan;
    const char *hyper; /* "lr=0.1"; NULL */
    LiveLine live;
    bool shows;        /* this process is rank 0, */
    bool prints;       /* or has started it */
    FILE *result;      /* of rank 0, for its starter */
    atomic_flag *said; /* shared by ranks of one starter: the first to fail says why */
} Training;

/* ---- one rank ---- */

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
                        .times = times,
                        .host_start_ns = host,
                        .trace = o->trace != NULL,
                        .checkpoint = o->checkpoint,
                        .every = o->every,
                        .resume = o->resume,
                        .model = plan->model,
                        .text = plan->name,
                        .each_step = each_step,
                        .user = t };
}

static int run_rank(const RankPlace *place, void *user)
{
    Training *t = user;
    RankResult result;
    Err err = { 0 };
    bool model = t->o->clock != RUN_WALL;
    OpTime *times = model ? run_plan_times(&t->plan, place->rank) : NULL;
    int64_t *host = model ? run_plan_host(&t->plan, place->rank) : NULL;
    RankSetup setup = setup_of(t, place->rank, times, host);
    t->shows = place->rank == 0;
    run_live_open(&t->live, t->o->steps);
    bool ok = rank_run(&result, &setup, place, &err);
    if (t->shows)
        run_live_close(&t->live);
    ok = ok && (!t->shows || report(t, &result, &err));
    if (!ok && !atomic_flag_test_and_set(t->said))
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
    *place = (RankPlace){ .timeout_s = ANSWER_TIMEOUT_S };
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
    return launch_ranks(world, run_rank, t, place, NULL);
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
                           .this_machine = o->clock == RUN_WALL };
    bool ok = run_plan_open(&t->plan, &request, usage, err) &&
              run_plan_predict(&t->plan, o->clock != RUN_WALL, err);
    free(settings);
    return ok;
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

/* Trains with each of the values, one after another. */
static int train_each(Training *t, Err *err)
{
    char key[200], hyper[300];
    const char *name = t->o->hyper_key;
    snprintf(key, sizeof key, "%s%.150s", strchr(name, '.') ? "" : "training.", name);
    int status = EXIT_DONE, n = 0;
    if (t->o->json)
        fputs("{\"runs\":[\n", t->result);
    for (char *rest = t->o->hyper_values, *value; status == EXIT_DONE && (value = rest);) {
        rest = strchr(value, ',');
        if (rest)
            *rest++ = '\0';
        RunSetting extra = { key, value };
        snprintf(hyper, sizeof hyper, "%.150s=%.100s", name, value);
        t->hyper = hyper;
        if (n++ > 0)
            fputs(t->o->json ? ",\n" : "\n", t->result);
        fflush(t->result);
        status = train(t, &extra, err);
    }
    if (t->o->json)
        fputs("]}\n", t->result);
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
    if (o->cuda) {
        err_set(err, "this build has no CUDA backend yet; --backend cpu trains here");
        return EXIT_COULD_NOT;
    }
    void *shared = mmap(NULL, sizeof(atomic_flag), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    Training t = { .o = o, .result = tmpfile(), .said = shared };
    int status = EXIT_COULD_NOT;
    if (!t.result || shared == MAP_FAILED) {
        err_set(err, "cannot make a temporary file: %s", strerror(errno));
    } else {
        status = o->hyper_key ? train_each(&t, err) : train(&t, NULL, err);
        if (status == EXIT_DONE && t.prints)
            print_result(t.result);
    }
    if (t.result)
        fclose(t.result);
    if (shared != MAP_FAILED)
        munmap(shared, sizeof(atomic_flag));
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

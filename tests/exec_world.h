/*
 * exec_world.h - runs a scenario on real ranks, one process each, and gives back what
 * the test wants to know.
 *
 *     world_open(&w, text)      the scenario as JSON, written to a file in P_tmpdir
 *     world_run(&w, &options)   forks the ranks; rank 0 reports into shared memory
 */
#ifndef LOCKSTEP_TESTS_EXEC_WORLD_H
#define LOCKSTEP_TESTS_EXEC_WORLD_H

#include "sim/build.h"
#include "tests/check.h"

#include "exec/cmd_run_plan.h"
#include "exec/launch.h"
#include "exec/rank.h"

#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

enum { WORLD_STEPS_MAX = 32 };

typedef struct WorldOptions {
    RunClock clock;
    uint64_t steps;
    int64_t late_ns;        /* the first kernel of rank 0 takes so much longer than predicted */
    const char *checkpoint; /* as in RankSetup */
    uint64_t every;
    bool resume;
    bool measured;                  /* what the machine takes, before it trains */
    bool untold;                    /* ranks know of none beside them, as with --rank */
    const BackendType *backend;     /* NULL: the CPU's */
    const struct CudaOptions *cuda; /* ranks are threads of this process then */
} WorldOptions;

/* What rank 0 reports, in memory that all processes share. */
typedef struct WorldResult {
    bool done;
    uint64_t steps_n;
    uint64_t collectives;       /* measured: a bit for each kind; */
    double kernel_ns;           /* the shortest of the kernels; */
    uint32_t ranks, processors; /* of the host */
    double losses[WORLD_STEPS_MAX];
    int64_t shortest_ns;        /* step */
    uint64_t spans_n, differ_n; /* of the timeline; from the prediction */
    char text[2048];            /* what went wrong, or the first difference */
} WorldResult;

typedef struct ExecWorld {
    RunPlan plan;
    WorldOptions options;
    WorldResult *result;
    char path[256];
} ExecWorld;

static inline bool world_open(ExecWorld *w, const char *text, const Setting *settings,
                              uint32_t settings_n, Err *err)
{
    *w = (ExecWorld){ 0 };
    snprintf(w->path, sizeof w->path, "%s/lockstep-world-%ld.json", P_tmpdir, (long)getpid());
    FILE *f = fopen(w->path, "w");
    if (!f || fputs(text, f) < 0 || fclose(f) != 0)
        return err_set(err, "cannot write '%s'", w->path);
    RunRequest request = { .scenario = w->path,
                           .settings = settings,
                           .settings_n = settings_n };
    bool usage;
    bool ok = run_plan_open(&w->plan, &request, &usage, err);
    w->result = mmap(NULL, sizeof *w->result, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT(w->result != MAP_FAILED);
    return ok;
}

static inline void world_close(ExecWorld *w)
{
    run_plan_free(&w->plan);
    if (w->result)
        munmap(w->result, sizeof *w->result);
    if (w->path[0])
        unlink(w->path);
}

/* ---- comparing timelines ---- */

typedef struct WorldSpan {
    bool there;
    SpanClass class_;
    int64_t start_ns, dur_ns, wait_ns;
    uint64_t instance;                       /* of its logical ops */
    uint32_t logical, logical_n, ring_steps; /* logical: the first */
} WorldSpan;

/* Spans of one rank by op id; launches[] apart. */
static inline void world_spans(const Timeline *t, uint32_t rank, WorldSpan *spans,
                               WorldSpan *launches)
{
    for (uint64_t i = 0; i < t->spans_n; i++) {
        if (t->tracks[t->span_track[i]].rank != rank || t->op[i] == NONE_U32)
            continue;
        SpanClass class_ = (SpanClass)t->span_class[i];
        WorldSpan *s = class_ == SPAN_LAUNCH ? &launches[t->op[i]] : &spans[t->op[i]];
        LogicalOps of = timeline_logical_of(t, i);
        const Comm *c = timeline_comm_of(t, i);
        *s = (WorldSpan){ true,
                          class_,
                          t->start_ns[i],
                          t->dur_ns[i],
                          timeline_wait_ns(t, i),
                          of.instance,
                          of.n ? of.op[0] : NONE_U32,
                          of.n,
                          c ? timeline_ring_steps(t, c) : 0 };
    }
}

/* Does it say the same of the model? */
static inline bool world_same_op(const WorldSpan *a, const WorldSpan *b)
{
    bool says = !a->there || a->class_ == SPAN_LAUNCH || a->logical_n > 0;
    return says && a->instance == b->instance && a->logical == b->logical &&
           a->logical_n == b->logical_n && a->ring_steps == b->ring_steps;
}

static inline void world_differ(WorldResult *r, const Graph *g, const Role *role, uint32_t rank,
                                uint32_t op, const WorldSpan *a, const WorldSpan *b)
{
    if (a->there == b->there && a->class_ == b->class_ && a->start_ns == b->start_ns &&
        a->dur_ns == b->dur_ns && a->wait_ns == b->wait_ns && world_same_op(a, b))
        return;
    OpRef ref = graph_find_op(g, role, op);
    if (r->differ_n++ == 0)
        snprintf(r->text, sizeof r->text,
                 "rank %u op %u '%s' on %s: simulated %d %" PRId64 "+%" PRId64 " wait %" PRId64
                 ", run %d %" PRId64 "+%" PRId64 " wait %" PRId64,
                 rank, op, intern_text(&g->names, ref.o->name), lane_names[ref.o->lane],
                 a->there, a->start_ns, a->dur_ns, a->wait_ns, b->there, b->start_ns, b->dur_ns,
                 b->wait_ns);
}

static inline void world_compare(WorldResult *r, const Graph *g, const Timeline *sim,
                                 const Timeline *run)
{
    r->spans_n = run->spans_n;
    for (uint32_t rank = 0; rank < g->world_n; rank++) {
        const Role *role = graph_role_of(g, rank);
        size_t n = role->ops_n + 1;
        WorldSpan *s = mem_zero(4 * n, sizeof *s);
        world_spans(sim, rank, s, s + n);
        world_spans(run, rank, s + 2 * n, s + 3 * n);
        for (uint32_t op = 0; op < role->ops_n; op++) {
            world_differ(r, g, role, rank, op, &s[op], &s[2 * n + op]);
            world_differ(r, g, role, rank, op, &s[n + op], &s[3 * n + op]);
        }
        free(s);
    }
}

/* ---- running ---- */

static inline void world_disturb(const RunPlan *plan, OpTime *times, int64_t by_ns)
{
    const Role *role = graph_role_of(&plan->graph, 0);
    uint32_t op = 0;
    while (op_is_comm(graph_find_op(&plan->graph, role, op).o->kind))
        op++;
    times[op].run_ns += by_ns;
}

static inline bool world_measured(void *user, const MachineTimes *m, Err *err)
{
    ExecWorld *w = user;
    (void)err;
    w->result->ranks = m->ranks;
    w->result->processors = m->processors;
    w->result->kernel_ns = INFINITY;
    for (uint32_t i = 0; i < m->times_n; i++)
        w->result->kernel_ns = fmin(w->result->kernel_ns, m->times[i].ns);
    for (uint32_t i = 0; i < m->collectives_n; i++)
        if (m->collectives[i].n > 0 && m->collectives[i].ns > 0)
            w->result->collectives |= (uint64_t)1 << m->collectives[i].kind;
    return true;
}

static inline int world_rank(const RankPlace *place, void *user)
{
    ExecWorld *w = user;
    const RunPlan *plan = &w->plan;
    Err err = { 0 };
    RankResult out;
    bool model = w->options.clock != RUN_WALL;
    OpTime *times = model ? run_plan_times(plan, place->rank) : NULL;
    int64_t *host = model ? run_plan_host(plan, place->rank) : NULL;
    if (times && place->rank == 0)
        world_disturb(plan, times, w->options.late_ns);
    RankSetup setup = { .graph = &plan->graph,
                        .whole = &plan->whole,
                        .data = &plan->data,
                        .backend = w->options.backend ? w->options.backend : &backend_cpu,
                        .cuda = w->options.cuda,
                        .facts = run_plan_facts(plan, place->rank),
                        .feed = run_plan_feed(plan, place->rank),
                        .hyper = plan->hyper,
                        .seed = plan->seed,
                        .steps = w->options.steps,
                        .clock = w->options.clock,
                        .times = times,
                        .host_start_ns = host,
                        .trace = model,
                        .checkpoint = w->options.checkpoint,
                        .every = w->options.every,
                        .resume = w->options.resume,
                        .measured = w->options.measured ? world_measured : NULL,
                        .user = w,
                        .model = plan->model };
    RankPlace own = *place;
    own.local_n = w->options.untold ? 1 : own.local_n;
    bool ok = rank_run(&out, &setup, &own, &err);
    WorldResult *r = w->result;
    if (!ok && !r->text[0])
        snprintf(r->text, sizeof r->text, "rank %u: %s", place->rank, err.text);
    if (ok && place->rank == 0) {
        r->steps_n = out.steps_n;
        r->shortest_ns = INT64_MAX;
        for (uint64_t i = 0; i < out.steps_n && i < WORLD_STEPS_MAX; i++) {
            r->losses[i] = out.steps[i].loss;
            r->shortest_ns = min_i64(r->shortest_ns, out.steps[i].step_ns);
        }
        if (w->options.clock == RUN_VIRTUAL)
            world_compare(r, &plan->graph, run_plan_timeline(plan), &out.timeline);
        r->done = true;
    }
    rank_result_free(&out);
    free(times);
    free(host);
    return ok ? 0 : 1;
}

static inline bool world_run(ExecWorld *w, WorldOptions options)
{
    Err err = { 0 };
    memset(w->result, 0, sizeof *w->result);
    w->options = options;
    if (options.clock != RUN_WALL && !run_plan_predict(&w->plan, true, &err)) {
        snprintf(w->result->text, sizeof w->result->text, "%s", err.text);
        return false;
    }
    RankPlace place = { .world = w->plan.graph.world_n,
                        .local_n = w->plan.graph.world_n,
                        .timeout_s = 60,
                        .digest = w->plan.digest };
    fflush(stdout);
    gemm_load(&err); /* once here: ranks inherit it; without one they say so */
    uint32_t world = w->plan.graph.world_n;
    int status = options.cuda ? launch_threads(world, world_rank, w, &place)
                              : launch_ranks(world, world_rank, w, &place, NULL);
    return status == 0 && w->result->done;
}

#endif

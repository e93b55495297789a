/* test_lanes.c - tasks of drawn programs run on threads: in order, all of them, or none after a
 * failure. */
#include "exec/lanes.h"

#include "tests/check.h"

#include <pthread.h>
#include <time.h>

enum { PROGRAMS_N = 40, STEPS_N = 3, OPS_N = 60 };

typedef struct World {
    Graph g;
    Program p;
    pthread_mutex_t lock;
    bool *done, *began;
    uint32_t wrong_n, runs_n;
    uint32_t fails_at;  /* task; NONE_U32 */
    uint32_t slow_lane; /* its tasks take a while */
    pthread_t first_thread;
    uint32_t elsewhere_n; /* tasks that another thread ran */
} World;

static uint32_t dice(uint64_t *state, uint32_t sides)
{
    *state = mix_u64(*state);
    return (uint32_t)(*state % sides);
}

/* One role, one segment: ops on four lanes that wait for some earlier ones. */
static void draw_program(World *w, uint64_t seed, bool host_waits)
{
    static const Lane lanes[] = { LANE_COMPUTE, LANE_REDUCE, LANE_GATHER, LANE_COPY };
    uint64_t state = seed;
    *w = (World){ .fails_at = NONE_U32, .slow_lane = LANE_N };
    Graph *g = &w->g;
    g->world_n = g->role_stride = g->role_extent = 1;
    g->role_of = mem_zero(1, sizeof *g->role_of);
    g->host_group = NONE_U32;
    uint32_t role = graph_role(g, "all", 0);
    for (uint32_t s = 0; s < 3; s++) {
        uint32_t segment = graph_segment(g, SEGMENT_OTHER, "part");
        bool waits = host_waits && s > 0;
        if (waits)
            graph_op(g, (Op){ .kind = OP_HOST_WAIT, .lane = LANE_HOST });
        for (uint32_t i = 0; i < OPS_N; i++) {
            uint32_t op = graph_op(
                g, (Op){ .kind = OP_ADD, .lane = lanes[dice(&state, 4)], .logical = i });
            for (uint32_t n = dice(&state, 3); n > 0 && i > 0; n--)
                graph_dep(g, (waits ? 1 : 0) + dice(&state, i));
            (void)op;
        }
        uint32_t at = role_instance(&g->roles[role], segment, 0, NONE_U32, NONE_U32);
        if (s > 0) /* of a host wait, or of the first op */
            role_edge(&g->roles[role], 0, at - 1, dice(&state, OPS_N));
    }
    graph_seal(g);
    Err err = { 0 };
    CHECK(program_make(&w->p, g, 0, &err));
    w->done = mem_zero(w->p.tasks_n, sizeof *w->done);
    w->began = mem_zero(w->p.tasks_n, sizeof *w->began);
    pthread_mutex_init(&w->lock, NULL);
}

static void world_free(World *w)
{
    program_free(&w->p);
    graph_free(&w->g);
    free(w->done);
    free(w->began);
    pthread_mutex_destroy(&w->lock);
}

static void sleep_us(long us)
{
    nanosleep(&(struct timespec){ .tv_nsec = us * 1000 }, NULL);
}

/* Everything that the graph wants before the task is done, looked up in the graph itself. */
static uint32_t missing_before(const World *w, uint32_t t)
{
    const Task *task = &w->p.tasks[t];
    const Instance *in = task->instance;
    uint32_t n = w->began[t];
    for (uint32_t d = 0; d < task->op->dep_n; d++)
        n += !w->done[in->first_op + w->g.deps[task->op->dep_first + d]];
    for (uint32_t e = in->edge_first; e < in->edge_first + in->edge_n; e++) {
        const Edge *edge = &w->p.role->edges[e];
        const Instance *src = &w->p.role->instances[edge->src_instance];
        if (in->first_op + edge->dst_op == t)
            n += !w->done[src->first_op + edge->src_op];
    }
    for (uint32_t i = 0; i < t; i++)
        n += w->p.tasks[i].lane == task->lane && !w->done[i];
    return n;
}

static bool run_task(void *user, uint32_t first, uint32_t n, Err *err)
{
    World *w = user;
    pthread_mutex_lock(&w->lock);
    w->wrong_n += n != 1 || missing_before(w, first) > 0;
    w->began[first] = true;
    w->elsewhere_n += !pthread_equal(w->first_thread, pthread_self());
    pthread_mutex_unlock(&w->lock);
    if (w->p.tasks[first].lane == w->slow_lane)
        sleep_us(50);
    pthread_mutex_lock(&w->lock);
    w->done[first] = true;
    w->runs_n++;
    pthread_mutex_unlock(&w->lock);
    return first != w->fails_at || err_set(err, "task %" PRIu32 " has had enough", first);
}

/* As the walker does it. */
static bool walk_once(World *w, Lanes *l, Err *err)
{
    memset(w->done, 0, w->p.tasks_n);
    memset(w->began, 0, w->p.tasks_n);
    w->first_thread = pthread_self();
    lanes_begin(l);
    for (uint32_t t = 0; t < w->p.tasks_n; t++) {
        if (w->p.tasks[t].lane != LANE_HOST) {
            lanes_launch(l, t);
            continue;
        }
        if (!lanes_wait(l, t, err))
            return false;
        pthread_mutex_lock(&w->lock);
        w->wrong_n += missing_before(w, t);
        w->done[t] = true;
        pthread_mutex_unlock(&w->lock);
    }
    return lanes_finish(l, err);
}

static void run_drawn(bool host_waits)
{
    for (uint64_t seed = 1; seed <= PROGRAMS_N; seed++) {
        World w;
        Err err = { 0 };
        draw_program(&w, seed, host_waits);
        w.slow_lane = seed % 3 ? LANE_N : seed % 2 ? LANE_REDUCE : LANE_COMPUTE;
        Lanes *l = lanes_open(&w.p, run_task, &w, false);
        for (int i = 0; i < STEPS_N; i++)
            CHECK(walk_once(&w, l, &err));
        lanes_close(l);
        CHECK_INT(0, w.wrong_n);
        CHECK_U64((uint64_t)STEPS_N * (w.p.tasks_n - w.p.lane_n[LANE_HOST]), w.runs_n);
        world_free(&w);
    }
}

static void every_task_runs_once_behind_all_it_waits_for(void)
{
    run_drawn(false);
}

static void the_host_goes_on_when_its_waits_are_done(void)
{
    run_drawn(true);
}

static void a_failure_ends_everything_with_its_sentence(void)
{
    for (uint64_t seed = 1; seed <= PROGRAMS_N; seed++) {
        World w;
        Err err = { 0 };
        draw_program(&w, seed, seed % 2);
        w.fails_at = 1 + (uint32_t)(seed * 7 % (w.p.tasks_n - 1));
        while (w.p.tasks[w.fails_at].lane == LANE_HOST)
            w.fails_at++;
        Lanes *l = lanes_open(&w.p, run_task, &w, false);
        CHECK(!walk_once(&w, l, &err));
        CHECK_ERR_TEXT(&err, "has had enough");
        lanes_close(l);
        CHECK_INT(0, w.wrong_n);
        CHECK(w.runs_n < w.p.tasks_n || w.fails_at + 4 > w.p.tasks_n);
        world_free(&w);
    }
}

/* compute and another lane hand over to each other: one thread does it all. */
static void tasks_that_hand_over_to_each_other_wake_nobody(void)
{
    World w = { .fails_at = NONE_U32, .slow_lane = LANE_N };
    Graph *g = &w.g;
    Err err = { 0 };
    g->world_n = g->role_stride = g->role_extent = 1;
    g->role_of = mem_zero(1, sizeof *g->role_of);
    g->host_group = NONE_U32;
    uint32_t role = graph_role(g, "all", 0);
    uint32_t segment = graph_segment(g, SEGMENT_OTHER, "part");
    for (uint32_t i = 0; i < OPS_N; i++) {
        graph_op(g,
                 (Op){ .kind = OP_ADD, .lane = i % 2 ? LANE_TP : LANE_COMPUTE, .logical = i });
        if (i > 0)
            graph_dep(g, i - 1);
    }
    role_instance(&g->roles[role], segment, 0, NONE_U32, NONE_U32);
    graph_seal(g);
    CHECK(program_make(&w.p, g, 0, &err));
    w.done = mem_zero(w.p.tasks_n, sizeof *w.done);
    w.began = mem_zero(w.p.tasks_n, sizeof *w.began);
    pthread_mutex_init(&w.lock, NULL);
    Lanes *l = lanes_open(&w.p, run_task, &w, false);
    CHECK(walk_once(&w, l, &err));
    lanes_close(l);
    CHECK_INT(OPS_N, w.runs_n);
    CHECK_INT(0, w.wrong_n);
    CHECK(w.elsewhere_n <= 1); /* the last one holds up nobody */
    world_free(&w);
}

int main(void)
{
    RUN(every_task_runs_once_behind_all_it_waits_for);
    RUN(the_host_goes_on_when_its_waits_are_done);
    RUN(a_failure_ends_everything_with_its_sentence);
    RUN(tasks_that_hand_over_to_each_other_wake_nobody);
    return check_report();
}

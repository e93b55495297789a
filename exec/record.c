/*
 * record.c - keeps records, sends them to rank 0, makes spans of them.
 */
#include "exec/record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/graph_spans.h"

/* ---- keeping ---- */

void record_step(Record *r, uint64_t step, int64_t start_ns, int64_t end_ns,
                 const TaskRecord *tasks)
{
    size_t n = r->job->program->tasks_n, used = r->steps_n * n;
    if (used + n > r->tasks_cap) {
        r->tasks_cap = 2 * (used + n);
        r->tasks = mem_resize(r->tasks, r->tasks_cap, sizeof *r->tasks);
    }
    if (n > 0)
        memcpy(r->tasks + used, tasks, n * sizeof *tasks);
    GROW(r->steps, r->steps_n, r->steps_cap);
    r->steps[r->steps_n++] = (StepTimes){ step, start_ns, end_ns };
}

void record_free(Record *r)
{
    free(r->steps);
    free(r->tasks);
    clocks_free(&r->clocks);
    *r = (Record){ 0 };
}

bool record_clocks(Record *r, int64_t (*now_ns)(const Backend *), const Backend *b, Err *err)
{
    const Program *p = r->job->program;
    return r->job->clock == RUN_VIRTUAL || clocks_sample(&r->clocks, r->job->fabric, p->rank,
                                                         p->graph->world_n, now_ns, b, err);
}

/* ---- spans, as sim/engine_record.c makes them ---- */

typedef struct Writer {
    const Graph *g;
    const Role *role;
    uint32_t rank;
    Timeline *t;
    const Clocks *clocks;
    uint32_t track[LANE_N];
    uint32_t *numbers;      /* op_comm_numbers */
    uint64_t *logical_keys; /* by instance */
} Writer;

static int64_t moved(const Writer *w, int64_t at_ns)
{
    return at_ns + clocks_shift(w->clocks, w->rank, at_ns);
}

static uint32_t comm_row(const Writer *w, const Op *o, uint32_t seq, int64_t wait_ns)
{
    Comm c = op_comm(w->t, w->g, o, w->rank, seq);
    c.wait_ns = wait_ns;
    uint32_t comm = timeline_comm(w->t, c);
    timeline_set_ring(w->t, comm, o->u.comm.of);
    return comm;
}

static void write_launch(Writer *w, uint32_t name, uint32_t id, const TaskRecord *r,
                         int64_t launch_ns)
{
    timeline_span(w->t, (Span){ .track = w->track[LANE_HOST],
                                .name = name,
                                .class_ = SPAN_LAUNCH,
                                .start_ns = r->launched_ns - launch_ns,
                                .dur_ns = launch_ns,
                                .op = id,
                                .comm = NONE_U32 });
}

/* A record on rank 0's clock. */
static TaskRecord moved_record(const Writer *w, const TaskRecord *r)
{
    return (TaskRecord){ moved(w, r->launched_ns), moved(w, r->start_ns), moved(w, r->met_ns),
                         moved(w, r->end_ns), r->busy_ns };
}

/* tasks, launch_ns: by op id. */
static void write_tasks(Writer *w, const TaskRecord *tasks, const int64_t *launch_ns)
{
    for (uint32_t i = 0, id = 0; i < w->role->instances_n; i++) {
        const Segment *s = &w->g->segments[w->role->instances[i].segment];
        for (uint32_t k = 0; k < s->op_n; k++, id++) {
            const Op *o = graph_ops(w->g, s) + k;
            TaskRecord r = moved_record(w, &tasks[id]);
            if (o->kind == OP_RELEASE || o->lane == LANE_HOST)
                continue;
            uint32_t name = intern(&w->t->names, intern_text(&w->g->names, o->name));
            int64_t wait_ns = r.met_ns - r.start_ns;
            bool comm = op_is_comm(o->kind);
            uint64_t span = timeline_span(
                w->t,
                (Span){ .track = w->track[o->lane],
                        .name = name,
                        .class_ = op_span_class(o),
                        .start_ns = r.start_ns,
                        .dur_ns = r.end_ns - r.start_ns,
                        .op = id,
                        .comm = comm ? comm_row(w, o, w->numbers[id], wait_ns) : NONE_U32 });
            timeline_set_logical(w->t, span, op_logical(w->g, o, w->logical_keys[i]));
            if (launch_ns[id] > 0)
                write_launch(w, name, id, &r, launch_ns[id]);
        }
    }
}

static void write_steps(Writer *w, const StepTimes *steps, uint32_t n)
{
    uint32_t track = timeline_track(w->t, w->rank, TRACK_STEPS, "steps", 0);
    for (uint32_t i = 0; i < n; i++) {
        char name[24];
        snprintf(name, sizeof name, "%" PRIu64, steps[i].step);
        int64_t start_ns = moved(w, steps[i].start_ns);
        timeline_span(w->t, (Span){ .track = track,
                                    .name = intern(&w->t->names, name),
                                    .class_ = SPAN_STEP,
                                    .start_ns = start_ns,
                                    .dur_ns = moved(w, steps[i].end_ns) - start_ns,
                                    .op = NONE_U32,
                                    .comm = NONE_U32 });
    }
}

/* ---- messages ---- */

/* A rank's record as bytes: steps, launch times by op id, tasks step after step. */
static void *pack(const Record *r, size_t *bytes)
{
    size_t n = r->job->program->tasks_n;
    size_t steps = r->steps_n * sizeof *r->steps, launches = n * sizeof(int64_t);
    size_t tasks = r->steps_n * n * sizeof *r->tasks;
    *bytes = steps + launches + tasks;
    char *out = mem_zero(*bytes + 1, 1);
    if (steps)
        memcpy(out, r->steps, steps);
    int64_t *launch_ns = (int64_t *)(void *)(out + steps);
    for (size_t i = 0; i < n && r->job->clock != RUN_WALL; i++)
        launch_ns[i] = r->job->times[i].launch_ns;
    if (tasks)
        memcpy(out + steps + launches, r->tasks, tasks);
    return out;
}

static bool write_rank(const Record *r, uint32_t rank, const void *message, size_t bytes,
                       Timeline *t, Err *err)
{
    const Graph *g = r->job->program->graph;
    Writer w = {
        .g = g, .role = graph_role_of(g, rank), .rank = rank, .t = t, .clocks = &r->clocks
    };
    size_t n = w.role->ops_n, steps = r->steps_n * sizeof(StepTimes);
    if (bytes != steps + n * sizeof(int64_t) + r->steps_n * n * sizeof(TaskRecord))
        return err_set(err,
                       "the record of rank %u has %zu bytes, which is not that of %u steps",
                       rank, bytes, r->steps_n);
    const StepTimes *times = message;
    const int64_t *launch_ns = (const int64_t *)(const void *)((const char *)message + steps);
    const TaskRecord *tasks = (const TaskRecord *)(const void *)(launch_ns + n);
    role_tracks(w.t, w.g, w.role, w.rank, 1, w.track);
    w.numbers = mem_zero(n + 1, sizeof *w.numbers);
    op_comm_numbers(w.numbers, w.g, w.role);
    w.logical_keys = mem_zero((size_t)w.role->instances_n + 1, sizeof *w.logical_keys);
    role_logical_keys(w.logical_keys, w.g, w.role);
    for (uint32_t i = 0; i < r->steps_n; i++)
        write_tasks(&w, tasks + i * n, launch_ns);
    write_steps(&w, times, r->steps_n);
    free(w.numbers);
    free(w.logical_keys);
    return true;
}

bool record_gather(Record *r, int64_t (*now_ns)(const Backend *), const Backend *b, Timeline *t,
                   int64_t *shift_max_ns, Err *err)
{
    uint32_t world_n = r->job->program->graph->world_n;
    size_t bytes, *sizes = NULL;
    void *mine = pack(r, &bytes), **all = NULL;
    int64_t end_ns = r->steps_n ? r->steps[r->steps_n - 1].end_ns : 0;
    bool ok = record_clocks(r, now_ns, b, err) &&
              fabric_gather(r->job->fabric, mine, bytes, &all, &sizes, err);
    *shift_max_ns = 0;
    if (ok && all) {
        t->ranks_n = world_n;
        for (uint32_t i = 0; i < world_n && ok; i++) {
            ok = write_rank(r, i, all[i], sizes[i], t, err);
            *shift_max_ns = max_i64(*shift_max_ns, llabs(clocks_shift(&r->clocks, i, end_ns)));
        }
    }
    for (uint32_t i = 0; all && i < world_n; i++)
        free(all[i]);
    free(all);
    free(sizes);
    free(mine);
    return ok;
}

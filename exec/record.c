/*
 * record.c - keeps records, sends them to rank 0, makes spans of them.
 */
#include "exec/record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

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
    *r = (Record){ 0 };
}

/*
 * ---- clocks ----
 *
 * Ranks with one CLOCK_MONOTONIC know exactly when each other's runs began.  Others meet
 * at barriers: nobody leaves one before all have come, so
 *
 *     before of rank 0 <= after of rank i,   before of rank i <= after of rank 0
 *
 * and the shift lies between two bounds.  Each bound is as good as the message that it
 * rests on was quick: rank 0 and the others take turns in coming last.
 */
enum { CLOCK_ROUNDS = 16, CLOCK_LATE_NS = 300000 };

typedef struct ClockReading {
    uint64_t clock;  /* equal on ranks whose CLOCK_MONOTONIC is the same */
    int64_t zero_ns; /* of that clock, when this rank's run began */
    int64_t before_ns[CLOCK_ROUNDS], after_ns[CLOCK_ROUNDS]; /* of the run */
} ClockReading;

/* Of a started kernel, and of the time namespace of this process, if there are such. */
static uint64_t clock_of_host(void)
{
    char text[64] = "";
    struct stat time_ns = { 0 };
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (f) {
        if (!fgets(text, sizeof text, f))
            text[0] = '\0';
        fclose(f);
    }
    uint64_t h = stat("/proc/self/ns/time", &time_ns) == 0 ? mix_u64(time_ns.st_ino) : 0;
    for (const char *c = text; *c; c++)
        h = mix_u64(h ^ (uint64_t)(unsigned char)*c);
    return h;
}

static int64_t host_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* What is to be added to the times of `i` to make them those of `zero`. */
static int64_t shift_between(const ClockReading *zero, const ClockReading *i)
{
    if (i->clock == zero->clock)
        return i->zero_ns - zero->zero_ns;
    int64_t low = INT64_MIN, high = INT64_MAX;
    for (int k = 0; k < CLOCK_ROUNDS; k++) {
        low = max_i64(low, zero->before_ns[k] - i->after_ns[k]);
        high = min_i64(high, zero->after_ns[k] - i->before_ns[k]);
    }
    return low + (high - low) / 2;
}

static bool measure_shifts(const Record *r, int64_t (*now_ns)(const Backend *),
                           const Backend *b, int64_t *shift_ns, Err *err)
{
    uint32_t world_n = r->job->program->graph->world_n;
    bool first = r->job->program->rank == 0, ok = true;
    int64_t now = now_ns(b);
    ClockReading mine = { .clock = clock_of_host(), .zero_ns = host_now_ns() - now };
    for (int k = 0; k < CLOCK_ROUNDS && ok; k++) {
        const struct timespec late = { .tv_nsec = CLOCK_LATE_NS };
        if ((k % 2 == 0) == first)
            nanosleep(&late, NULL);
        mine.before_ns[k] = now_ns(b);
        ok = fabric_barrier(r->job->fabric, err);
        mine.after_ns[k] = now_ns(b);
    }
    ClockReading *all = mem_zero(world_n, sizeof *all);
    ok = ok && fabric_share(r->job->fabric, &mine, all, sizeof mine, err);
    for (uint32_t i = 0; i < world_n && ok; i++)
        shift_ns[i] = shift_between(&all[0], &all[i]);
    free(all);
    return ok;
}

/* ---- spans, as sim/engine_record.c makes them ---- */

typedef struct Writer {
    const Graph *g;
    const Role *role;
    uint32_t rank;
    Timeline *t;
    uint32_t track[LANE_N];
} Writer;

static uint32_t comm_row(const Writer *w, const Op *o, uint32_t seq, int64_t wait_ns)
{
    Comm c = op_comm(w->t, w->g, o, w->rank, seq);
    c.wait_ns = wait_ns;
    return timeline_comm(w->t, c);
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

/* tasks, launch_ns: by op id.  Adds shift_ns to all times. */
static void write_tasks(Writer *w, const TaskRecord *tasks, const int64_t *launch_ns,
                        int64_t shift_ns)
{
    uint32_t seq[LANE_N] = { 0 }, posted[LANE_N] = { 0 };
    for (uint32_t i = 0, id = 0; i < w->role->instances_n; i++) {
        const Segment *s = &w->g->segments[w->role->instances[i].segment];
        for (uint32_t k = 0; k < s->op_n; k++, id++) {
            const Op *o = graph_ops(w->g, s) + k;
            TaskRecord r = tasks[id];
            r.start_ns += shift_ns;
            r.launched_ns += shift_ns;
            uint32_t at = seq[o->lane];
            posted[o->lane]++;
            seq[o->lane] = o->grouped ? seq[o->lane] : posted[o->lane];
            if (o->kind == OP_RELEASE || o->lane == LANE_HOST)
                continue;
            uint32_t name = intern(&w->t->names, intern_text(&w->g->names, o->name));
            int64_t wait_ns = tasks[id].met_ns - tasks[id].start_ns;
            bool comm = op_is_comm(o->kind);
            timeline_span(w->t,
                          (Span){ .track = w->track[o->lane],
                                  .name = name,
                                  .class_ = op_span_class(o),
                                  .start_ns = r.start_ns,
                                  .dur_ns = tasks[id].end_ns - tasks[id].start_ns,
                                  .op = id,
                                  .comm = comm ? comm_row(w, o, at, wait_ns) : NONE_U32 });
            if (launch_ns[id] > 0)
                write_launch(w, name, id, &r, launch_ns[id]);
        }
    }
}

static void write_steps(Writer *w, const StepTimes *steps, uint32_t n, int64_t shift_ns)
{
    uint32_t track = timeline_track(w->t, w->rank, TRACK_STEPS, "steps", 0);
    for (uint32_t i = 0; i < n; i++) {
        char name[24];
        snprintf(name, sizeof name, "%" PRIu64, steps[i].step);
        timeline_span(w->t, (Span){ .track = track,
                                    .name = intern(&w->t->names, name),
                                    .class_ = SPAN_STEP,
                                    .start_ns = steps[i].start_ns + shift_ns,
                                    .dur_ns = steps[i].end_ns - steps[i].start_ns,
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
    for (size_t i = 0; i < n && r->job->clock == RUN_VIRTUAL; i++)
        launch_ns[i] = r->job->times[i].launch_ns;
    if (tasks)
        memcpy(out + steps + launches, r->tasks, tasks);
    return out;
}

static bool write_rank(const Record *r, uint32_t rank, const void *message, size_t bytes,
                       int64_t shift_ns, Timeline *t, Err *err)
{
    const Graph *g = r->job->program->graph;
    Writer w = { .g = g, .role = graph_role_of(g, rank), .rank = rank, .t = t };
    size_t n = w.role->ops_n, steps = r->steps_n * sizeof(StepTimes);
    if (bytes != steps + n * sizeof(int64_t) + r->steps_n * n * sizeof(TaskRecord))
        return err_set(err,
                       "the record of rank %u has %zu bytes, which is not that of %u steps",
                       rank, bytes, r->steps_n);
    const StepTimes *times = message;
    const int64_t *launch_ns = (const int64_t *)(const void *)((const char *)message + steps);
    const TaskRecord *tasks = (const TaskRecord *)(const void *)(launch_ns + n);
    role_tracks(w.t, w.g, w.role, w.rank, 1, w.track);
    for (uint32_t i = 0; i < r->steps_n; i++)
        write_tasks(&w, tasks + i * n, launch_ns, shift_ns);
    write_steps(&w, times, r->steps_n, shift_ns);
    return true;
}

bool record_gather(const Record *r, int64_t (*now_ns)(const Backend *), const Backend *b,
                   Timeline *t, int64_t *shift_ns, Err *err)
{
    uint32_t world_n = r->job->program->graph->world_n;
    int64_t *shift = mem_zero(world_n, sizeof *shift);
    size_t bytes, *sizes = NULL;
    void *mine = pack(r, &bytes), **all = NULL;
    bool ok = (r->job->clock == RUN_VIRTUAL || measure_shifts(r, now_ns, b, shift, err)) &&
              fabric_gather(r->job->fabric, mine, bytes, &all, &sizes, err);
    if (ok && all) {
        t->ranks_n = world_n;
        for (uint32_t i = 0; i < world_n && ok; i++)
            ok = write_rank(r, i, all[i], sizes[i], shift[i], t, err);
    }
    for (uint32_t i = 0; all && i < world_n; i++)
        free(all[i]);
    free(all);
    free(sizes);
    free(mine);
    if (shift_ns)
        memcpy(shift_ns, shift, world_n * sizeof *shift);
    free(shift);
    return ok;
}

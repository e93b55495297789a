/*
 * cmd_from_trace.c - lockstep sim --from-trace TRACE...: a recorded step, again and otherwise.
 *
 *     trace --from_trace--> graph --engine--> replay        how far is it from the trace?
 *                     with changes --engine--> what if      how far is it from the replay?
 */
#include "sim/cmd_from_trace.h"

#include <stdlib.h>
#include <string.h>

#include "core/json_out.h"
#include "core/now.h"
#include "core/share.h"
#include "profile/step_choice.h"
#include "profile/steps.h"
#include "sim/from_trace.h"
#include "sim/scenario_parts.h"
#include "sim/texts.h"
#include "traces/formats.h"
#include "traces/set.h"

/* What is said of a step: means over ranks, but the step, which is the slowest rank's. */
typedef struct StepTimes {
    double step_s, compute_s, comm_s, overlapped_s, exposed_s, memory_s, idle_s, overlap_pct;
} StepTimes;

typedef struct Changes {
    bool any, on_machine;
    uint64_t bucket_bytes, first_bucket_bytes;
    Machine machine;
    JsonDoc *doc; /* of the cluster */
} Changes;

typedef struct Replay {
    FromTrace facts;
    StepTimes times;
    uint64_t events;
} Replay;

typedef struct Run {
    const FromTraceCommand *command;
    TraceSet set;
    int64_t step;
    TraceWindow *windows;
    uint32_t windows_n;
    Changes changes;
    StepTimes recorded;
    Replay replay, what_if;
    double wall_s;
    Err err;
} Run;

/* ---- the step ---- */

/* Of the slowest rank; 0 where no GPU works in it: what is marked but idle is the profiler's. */
static int64_t length_of(const StepWindows *w, const Covers *covers, int64_t step)
{
    int64_t longest = 0;
    for (uint32_t i = 0; i < w->n; i++) {
        const StepWindow *s = &w->at[i];
        const Cover *c = s->step == step ? covers_of_rank(covers, s->rank) : NULL;
        if (c && cover_window(c, s->from_ns, s->to_ns).ns[0] < s->to_ns - s->from_ns)
            longest = max_i64(longest, s->to_ns - s->from_ns);
    }
    return longest;
}

/* By their time on the GPU, which the host may be ahead of by whole steps. */
static bool choose_step(Run *r, const StepWindows *w, const Covers *covers)
{
    StepLength *steps = mem_zero((size_t)w->n + 1, sizeof *steps);
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->n; i++) {
        bool seen = false;
        for (uint32_t k = 0; k < n && !seen; k++)
            seen = steps[k].number == w->at[i].step;
        int64_t ns = seen ? 0 : length_of(w, covers, w->at[i].step);
        if (ns > 0)
            steps[n++] = (StepLength){ w->at[i].step, ns };
    }
    bool ok = step_choose(steps, n, r->command->step, r->command->names[0], &r->step, &r->err);
    free(steps);
    return ok;
}

static void add_window(Run *r, const Covers *covers, const StepWindows *w, uint32_t i)
{
    const Cover *c = &covers->rank[i];
    TraceWindow window = { c->rank, c->begin_ns, c->end_ns + 1, c->begin_ns, r->step < 0 };
    const StepWindow *own = r->step >= 0 ? step_window_of(w, c->rank, r->step) : NULL;
    for (uint32_t k = 0; k < w->n && r->step >= 0 && !own; k++)
        own = w->at[k].step == r->step ? &w->at[k] : NULL;
    if (own) {
        window.from_ns = own->from_ns;
        window.to_ns = own->to_ns;
    }
    if (c->compute_n + c->comm_n + c->memory_n > 0)
        r->windows[r->windows_n++] = window;
}

static Metrics mean_metrics(Metrics sum, uint32_t n)
{
    sum.compute_ns /= n;
    sum.comm_ns /= n;
    sum.overlapped_ns /= n;
    sum.exposed_comm_ns /= n;
    sum.memory_ns /= n;
    sum.idle_ns /= n;
    return sum;
}

static void add_metrics(Metrics *sum, const Metrics *m)
{
    sum->compute_ns += m->compute_ns;
    sum->comm_ns += m->comm_ns;
    sum->overlapped_ns += m->overlapped_ns;
    sum->exposed_comm_ns += m->exposed_comm_ns;
    sum->memory_ns += m->memory_ns;
    sum->idle_ns += m->idle_ns;
}

static StepTimes times_of(const Metrics *sum, uint32_t n, int64_t step_ns)
{
    Metrics m = mean_metrics(*sum, n ? n : 1);
    return (StepTimes){ .step_s = (double)step_ns / 1e9,
                        .compute_s = (double)m.compute_ns / 1e9,
                        .comm_s = (double)m.comm_ns / 1e9,
                        .overlapped_s = (double)m.overlapped_ns / 1e9,
                        .exposed_s = (double)m.exposed_comm_ns / 1e9,
                        .memory_s = (double)m.memory_ns / 1e9,
                        .idle_s = (double)m.idle_ns / 1e9,
                        .overlap_pct = metrics_overlap_pct(&m) };
}

static bool find_windows(Run *r)
{
    StepWindows w = { 0 }, on_gpu;
    Covers covers = { 0 };
    step_windows_find(&w, &r->set.timeline);
    step_windows_in_gpu_time(&on_gpu, &r->set.timeline);
    covers_build(&covers, &r->set.timeline);
    r->windows = mem_zero((size_t)covers.n + 1, sizeof *r->windows);
    bool ok = choose_step(r, &on_gpu, &covers);
    step_windows_free(&on_gpu);
    for (uint32_t i = 0; i < covers.n && ok; i++)
        add_window(r, &covers, &w, i);
    if (ok && r->windows_n == 0)
        ok = err_set(&r->err, "'%.200s' has no GPU work, there is nothing to replay",
                     r->command->names[0]);
    covers_free(&covers);
    step_windows_free(&w);
    return ok;
}

/* ---- changes ---- */

static bool take_bucket(const Setting *s, uint64_t *bytes, Err *err)
{
    if (size_parse(s->value, bytes) && *bytes > 0)
        return true;
    return err_set(err, "--set %s takes a size above 0 such as 25MiB, not '%.60s'", s->key,
                   s->value);
}

static bool take_setting(Run *r, const Setting *s)
{
    Changes *c = &r->changes;
    c->any = true;
    if (strcmp(s->key, "parallel.bucket_bytes") == 0)
        return take_bucket(s, &c->bucket_bytes, &r->err);
    if (strcmp(s->key, "parallel.first_bucket_bytes") == 0)
        return take_bucket(s, &c->first_bucket_bytes, &r->err);
    if (strcmp(s->key, "cluster") == 0 || strncmp(s->key, "cluster.", 8) == 0)
        return c->on_machine = true;
    return err_set(&r->err,
                   "--from-trace cannot change '%.80s'; parallel.bucket_bytes, "
                   "parallel.first_bucket_bytes and cluster allowed",
                   s->key);
}

/* A trace does not say where it ran: there is nothing to change keys of. */
static bool check_cluster(Run *r)
{
    const Setting *first = NULL;
    for (uint32_t i = 0; i < r->command->set->n; i++) {
        const Setting *s = &r->command->set->settings[i];
        if (strcmp(s->key, "cluster") == 0)
            return true;
        first = !first && strncmp(s->key, "cluster.", 8) == 0 ? s : first;
    }
    return err_set(&r->err,
                   "--set %.80s needs --set cluster=NAME before it: a trace does not say on "
                   "which cluster it ran",
                   first->key);
}

static bool read_cluster(Run *r)
{
    Setting *of_cluster = mem_zero((size_t)r->command->set->n + 1, sizeof *of_cluster);
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->command->set->n; i++)
        if (strncmp(r->command->set->settings[i].key, "cluster", 7) == 0)
            of_cluster[n++] = r->command->set->settings[i];
    r->changes.doc = json_parse("{}", 2, "--set", &r->err);
    bool ok =
        r->changes.doc && scenario_set(r->changes.doc, of_cluster, n, &r->err) &&
        machine_read(&r->changes.machine, json_member(json_root(r->changes.doc), "cluster"),
                     share_dir(), &r->err);
    free(of_cluster);
    return ok;
}

static bool read_changes(Run *r)
{
    for (uint32_t i = 0; i < r->command->set->n; i++)
        if (!take_setting(r, &r->command->set->settings[i]))
            return false;
    Changes *c = &r->changes;
    if (c->first_bucket_bytes && !c->bucket_bytes)
        return err_set(&r->err, "parallel.first_bucket_bytes needs parallel.bucket_bytes");
    return !c->on_machine || (check_cluster(r) && read_cluster(r));
}

/* ---- running ---- */

static StepTimes result_times(const Timeline *t, int64_t step_ns)
{
    Covers covers = { 0 };
    Metrics sum = { 0 };
    covers_build(&covers, t);
    for (uint32_t i = 0; i < covers.n; i++) {
        Metrics m = metrics_of_window(&covers.rank[i], t, 0, step_ns);
        add_metrics(&sum, &m);
    }
    StepTimes times = times_of(&sum, covers.n, step_ns);
    covers_free(&covers);
    return times;
}

/* The step in the trace, from what is launched first to the end of what the replay has too. */
static StepTimes recorded_times(const Run *r, int64_t step_ns)
{
    Covers covers = { 0 };
    Metrics sum = { 0 };
    covers_build(&covers, &r->set.timeline);
    for (uint32_t i = 0; i < r->windows_n; i++) {
        const TraceWindow *w = &r->windows[i];
        Metrics m = metrics_of_window(covers_of_rank(&covers, w->rank), &r->set.timeline,
                                      w->begin_ns, w->begin_ns + step_ns);
        add_metrics(&sum, &m);
    }
    covers_free(&covers);
    return times_of(&sum, r->windows_n, step_ns);
}

static bool replay(Run *r, const Changes *c, const char *out, Replay *result)
{
    FromTraceOptions o = { 0 };
    Timeline t = { 0 };
    SimResult s = { 0 };
    Machine plain = { 0 };
    Software sw = {
        .name = "as recorded", .host_scale = 1, .compute_scale = 1, .comm_scale = 1
    };
    FromTrace *f = &result->facts;
    if (c)
        o = (FromTraceOptions){ c->on_machine, c->bucket_bytes, c->first_bucket_bytes };
    if (!from_trace_build(f, &r->set.timeline, r->windows, r->windows_n, &o, &r->err))
        return err_wrap(&r->err, "%.200s", r->command->names[0]);
    from_trace_machine(&plain, f->world_n);
    SimOptions options = {
        .expanded = true, .timeline = &t, .links = true, .given = &f->given
    };
    bool ok =
        sim_run(&s, &f->graph, o.on_machine ? &c->machine : &plain, &sw, &options, &r->err);
    if (ok) {
        timeline_set_name(&t, r->command->names[0]);
        timeline_seal(&t);
        result->times = result_times(&t, s.step_ns);
        result->events = s.events;
        ok = !out || trace_write(&t, out, &r->err);
    }
    timeline_free(&t);
    sim_result_free(&s);
    machine_free(&plain);
    return ok;
}

/* ---- showing ---- */

static double percent(double x, double of)
{
    return of > 0 ? 100 * (x / of - 1) : 0;
}

static void text_row(const Run *r, const char *name, double recorded, double replayed,
                     double what_if)
{
    char t[6][TEXT_CAP];
    printf("%-16s %12s %12s %+8.1f %%", name, text_seconds(t[0], recorded),
           text_seconds(t[1], replayed), percent(replayed, recorded));
    if (r->changes.any)
        printf(" %12s %+8.1f %%", text_seconds(t[2], what_if), percent(what_if, replayed));
    printf("\n");
}

static void print_text(const Run *r)
{
    const StepTimes *a = &r->recorded, *b = &r->replay.times, *c = &r->what_if.times;
    const FromTrace *f = &r->replay.facts;
    char name[TEXT_CAP];
    printf("%s", text_name(name, r->command->names[0], 80));
    if (r->step >= 0)
        printf(", step %" PRId64, r->step);
    printf("\n%" PRIu32 " rank%s in the trace%s: %" PRIu64 " kernels and copies, %" PRIu64
           " collectives and sends, %" PRIu64 " waits of the host\n\n",
           f->ranks_n, f->ranks_n == 1 ? "" : "s",
           f->world_n > f->ranks_n ? ", standing for all" : "", f->kernels_n, f->comms_n,
           f->syncs_n);
    printf("%-16s %12s %12s %10s", "", "recorded", "replayed", "error");
    printf(r->changes.any ? " %12s %10s\n" : "\n", "what if", "change");
    text_row(r, "step time", a->step_s, b->step_s, c->step_s);
    text_row(r, "compute", a->compute_s, b->compute_s, c->compute_s);
    text_row(r, "communication", a->comm_s, b->comm_s, c->comm_s);
    text_row(r, "  exposed", a->exposed_s, b->exposed_s, c->exposed_s);
    text_row(r, "copies", a->memory_s, b->memory_s, c->memory_s);
    text_row(r, "idle", a->idle_s, b->idle_s, c->idle_s);
    if (f->unlaunched_n)
        printf("\n%" PRIu64
               " ops without a launch in the trace: the host is taken to be ahead\n",
               f->unlaunched_n);
    if (r->changes.bucket_bytes)
        printf("\nbuckets: %" PRIu32 ", now %" PRIu32 "\n", r->what_if.facts.buckets_before,
               r->what_if.facts.buckets_after);
    if (r->changes.on_machine && r->what_if.facts.unsized_n)
        printf("\n%" PRIu64 " collectives of unknown size or kind keep the time they took\n",
               r->what_if.facts.unsized_n);
    if (r->changes.on_machine && f->ungrouped_n)
        printf("\n%" PRIu64 " collectives keep the time they took: who took part in them is "
               "not in the trace\n",
               f->ungrouped_n);
    if (r->changes.any && f->unwaited_n)
        printf("\none rank only: what of its %" PRIu64
               " collectives was waiting for others is not known\nand %s; give the traces of "
               "all ranks\n",
               f->unwaited_n,
               r->changes.on_machine ? "left out of what if"
                                     : "counts as transfer, also in other buckets");
    if (f->pairs_n)
        printf("\n%" PRIu64 " sends met their receives\n", f->pairs_n);
    if (f->alone_n)
        printf("\n%" PRIu64 " sends and receives without their other end in the trace keep the "
               "time they took\n",
               f->alone_n);
}

static void put_times(JsonOut *j, const StepTimes *t)
{
    json_put_number(j, "step_time_s", t->step_s);
    json_put_number(j, "compute_s", t->compute_s);
    json_put_number(j, "comm_s", t->comm_s);
    json_put_number(j, "overlapped_s", t->overlapped_s);
    json_put_number(j, "exposed_comm_s", t->exposed_s);
    json_put_number(j, "overlap_pct", t->overlap_pct);
    json_put_number(j, "memory_s", t->memory_s);
    json_put_number(j, "idle_s", t->idle_s);
}

static void put_object(JsonOut *j, const char *key, const StepTimes *t)
{
    json_put_open(j, key, '{');
    put_times(j, t);
    json_out_close(j, '}');
}

static void put_counts(JsonOut *j, const Run *r, const FromTrace *f)
{
    json_put_open(j, "trace", '{');
    json_put_known(j, "step", r->step);
    json_put_uint(j, "ranks", r->replay.facts.ranks_n);
    json_put_uint(j, "kernels", r->replay.facts.kernels_n);
    json_put_uint(j, "collectives", r->replay.facts.comms_n);
    json_put_uint(j, "collectives_of_unknown_size", r->replay.facts.unsized_n);
    json_put_uint(j, "collectives_of_unknown_ranks", r->replay.facts.ungrouped_n);
    json_put_uint(j, "collectives_of_unknown_wait", r->replay.facts.unwaited_n);
    json_put_uint(j, "sends_matched", r->replay.facts.pairs_n);
    json_put_uint(j, "sends_and_receives_alone", r->replay.facts.alone_n);
    json_put_uint(j, "host_waits", r->replay.facts.syncs_n);
    json_put_uint(j, "without_launch", r->replay.facts.unlaunched_n);
    json_out_close(j, '}');
    if (r->changes.bucket_bytes) {
        json_put_uint(j, "buckets_before", f->buckets_before);
        json_put_uint(j, "buckets_after", f->buckets_after);
    }
}

static void print_json(const Run *r)
{
    Err ignored = { 0 };
    JsonOut j = json_out_file(stdout, 2);
    const Replay *last = r->changes.any ? &r->what_if : &r->replay;
    json_out_open(&j, '{');
    json_put_text(&j, "name", r->command->names[0]);
    json_put_uint(&j, "gpus", r->replay.facts.world_n);
    put_times(&j, &last->times);
    put_object(&j, "recorded", &r->recorded);
    put_object(&j, "replayed", &r->replay.times);
    json_put_number(&j, "replay_error_pct",
                    percent(r->replay.times.step_s, r->recorded.step_s));
    if (r->changes.any)
        json_put_number(&j, "change_pct", percent(last->times.step_s, r->replay.times.step_s));
    put_counts(&j, r, &last->facts);
    json_put_open(&j, "sim", '{');
    json_put_uint(&j, "events", last->events);
    json_put_number(&j, "wall_s", r->wall_s);
    json_out_close(&j, '}');
    json_out_close(&j, '}');
    json_out_end(&j, &ignored);
}

/* ---- the whole ---- */

static bool read_traces(Run *r)
{
    const FromTraceCommand *c = r->command;
    if (!trace_set_read(&r->set, (const char *const *)c->names, c->names_n, NULL, &r->err))
        return false;
    for (size_t i = 0; i < r->set.findings_n; i++)
        fprintf(stderr, "lockstep: %s\n", r->set.findings[i]);
    return true;
}

/* What is written is none of what was read. */
static bool spares_inputs(Run *r)
{
    const char *out = r->command->trace;
    if (out && r->changes.doc && json_log_has_file(r->changes.doc, out))
        return err_set(&r->err, "the cluster is made of '%.200s', it is not written over", out);
    return trace_set_spares(&r->set, NULL, out, &r->err);
}

static bool run(Run *r)
{
    const char *out = r->command->trace;
    int64_t start_ns = now_ns();
    if (!read_changes(r) || !read_traces(r) || !spares_inputs(r) || !find_windows(r) ||
        !replay(r, NULL, r->changes.any ? NULL : out, &r->replay))
        return false;
    r->recorded = recorded_times(r, r->replay.facts.measured_ns);
    bool ok = !r->changes.any || replay(r, &r->changes, out, &r->what_if);
    r->wall_s = (double)(now_ns() - start_ns) / 1e9;
    return ok;
}

int cmd_from_trace(const FromTraceCommand *c)
{
    Run *r = mem_zero(1, sizeof *r);
    r->command = c;
    bool ok = run(r);
    if (!ok)
        fprintf(stderr, "lockstep: %s\n", r->err.text);
    else if (c->json)
        print_json(r);
    else
        print_text(r);
    from_trace_free(&r->replay.facts);
    from_trace_free(&r->what_if.facts);
    trace_set_free(&r->set);
    machine_free(&r->changes.machine);
    json_close(r->changes.doc);
    free(r->windows);
    free(r);
    return ok ? EXIT_DONE : EXIT_COULD_NOT;
}

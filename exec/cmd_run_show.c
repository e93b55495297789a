/*
 * cmd_run_show.c - what `lockstep run` says: the live line, the table, the JSON object.
 */
#include "exec/cmd_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/quantile.h"
#include "exec/net.h"
#include "sim/texts.h"

/* In a file: the first step, LINES others evenly over the job, and one when it has been quiet. */
enum { LINES = 20, WARM_UP_MIN = 2 }; /* of more steps than that the first does not count */

#define LIVE_EVERY_NS 100000000
#define QUIET_MOST_NS 30000000000

/* ---- statistics ---- */

typedef double ValueOf(const StepInfo *info);

static double step_s(const StepInfo *info)
{
    return (double)info->step_ns / 1e9;
}

static double exposed_s(const StepInfo *info)
{
    return (double)info->exposed_ns / 1e9;
}

static double compute_s(const StepInfo *info)
{
    return (double)info->compute_ns / 1e9;
}

/* Sorted values of the steps that count; their number in n. */
static double *values_of(const RankResult *r, ValueOf *value, uint64_t *n)
{
    uint64_t first = r->steps_n > WARM_UP_MIN ? 1 : 0;
    *n = r->steps_n - first;
    double *x = mem_zero(r->steps_n + 1, sizeof *x);
    for (uint64_t i = 0; i < *n; i++)
        x[i] = value(&r->steps[first + i]);
    sort_doubles(x, *n);
    return x;
}

static double median_of(const RankResult *r, ValueOf *value)
{
    uint64_t n;
    double *x = values_of(r, value, &n), median = quantile(x, n, 0.5);
    free(x);
    return median;
}

StepStat run_step_stat(const RankResult *r)
{
    uint64_t n;
    double *x = values_of(r, step_s, &n);
    StepStat s = { quantile(x, n, 0.5), quantile(x, n, 0.1), quantile(x, n, 0.9),
                   median_of(r, exposed_s), median_of(r, compute_s) };
    free(x);
    return s;
}

static double mfu_of(const RunPlan *plan, double seconds)
{
    return plan->peak_flops > 0 ? plan->model_flops / (plan->peak_flops * seconds) : NAN;
}

/* ---- while it runs ---- */

/* Of several copies each has lines of its own. */
void run_live_open(LiveLine *l, uint64_t steps, const char *copy)
{
    *l = (LiveLine){ .terminal = !copy && isatty(STDERR_FILENO) != 0,
                     .copy = copy,
                     .steps = steps };
}

void run_live_predicted(const LiveLine *l, const RunPlan *plan)
{
    char time[TEXT_CAP], rate[TEXT_CAP];
    double work = (double)(plan->tokens ? plan->tokens : plan->global_batch);
    fprintf(stderr, "%s%spredicted: %s a step, %s %s/s (%s)\n", l->copy ? l->copy : "",
            l->copy ? "  " : "", text_seconds(time, plan->predicted_step_s),
            text_rate(rate, work / plan->predicted_step_s), plan->tokens ? "tokens" : "samples",
            plan->prediction_of);
}

static bool live_due(const LiveLine *l, uint64_t done, int64_t now)
{
    uint64_t mine = done - l->first, all = l->steps - l->first;
    if (done == l->steps || mine == 1)
        return true;
    if (l->terminal)
        return now - l->last_ns >= LIVE_EVERY_NS;
    return mine * LINES / all > (mine - 1) * LINES / all || now - l->last_ns >= QUIET_MOST_NS;
}

void run_live_step(LiveLine *l, const RunPlan *plan, const StepInfo *info)
{
    char time[TEXT_CAP], rate[TEXT_CAP], exposed[TEXT_CAP];
    uint64_t done = info->step + 1;
    if (!l->began)
        l->first = info->step;
    l->began = true;
    int64_t now = net_now_ns();
    if (!live_due(l, done, now))
        return;
    l->last_ns = now;
    l->shown++;
    double s = step_s(info), work = (double)(plan->tokens ? plan->tokens : plan->global_batch);
    fprintf(stderr,
            "%s%s%sstep %" PRIu64 "/%" PRIu64 "  loss %.6g  %s a step  %s %s/s  "
            "exposed communication %s%s",
            l->terminal ? "\r\033[K" : "", l->copy ? l->copy : "", l->copy ? "  " : "", done,
            l->steps, isnan(info->loss) ? NAN : info->loss, text_seconds(time, s),
            text_rate(rate, work / s), plan->tokens ? "tokens" : "samples",
            text_seconds(exposed, exposed_s(info)), l->terminal ? "" : "\n");
    fflush(stderr);
}

void run_live_close(LiveLine *l)
{
    if (l->terminal && l->shown)
        fputs("\r\033[K", stderr);
}

/* ---- for people ---- */

static void row(FILE *out, const char *what, const char *measured, const char *predicted)
{
    fprintf(out, "%-24s%16s%16s\n", what, measured, predicted);
}

static void seconds_row(FILE *out, const char *what, double measured, double predicted)
{
    char a[TEXT_CAP], b[TEXT_CAP];
    row(out, what, text_seconds(a, measured), text_seconds(b, predicted));
}

static uint64_t most_bytes(const RankResult *r)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < r->world_n; i++)
        most = max_u64(most, r->peak_bytes[i]);
    return most;
}

static void print_table(const RunPlan *plan, const RankResult *r, FILE *out)
{
    char a[TEXT_CAP], b[TEXT_CAP];
    StepStat s = run_step_stat(r);
    double work = (double)(plan->tokens ? plan->tokens : plan->global_batch);
    row(out, "", "measured", "predicted");
    uint64_t peak = most_bytes(r);
    seconds_row(out, "step time", s.median_s, plan->predicted_step_s);
    seconds_row(out, "compute", s.compute_s, plan->predicted_compute_s);
    seconds_row(out, "exposed communication", s.exposed_s, plan->predicted_exposed_s);
    row(out, plan->tokens ? "tokens/s" : "samples/s", text_rate(a, work / s.median_s),
        text_rate(b, work / plan->predicted_step_s));
    row(out, "MFU", text_percent(a, 100 * mfu_of(plan, s.median_s)),
        text_percent(b, 100 * mfu_of(plan, plan->predicted_step_s)));
    row(out, "memory of a rank", text_bytes(a, peak),
        text_bytes(b, plan->predicted_peak_bytes));
    fprintf(out, "(medians%s; ", r->steps_n > WARM_UP_MIN ? " without the first step" : "");
    fprintf(out, "8 steps of 10 took %s to %s)\n", text_seconds(a, s.p10_s),
            text_seconds(b, s.p90_s));
}

static void print_losses(const RankResult *r, FILE *out)
{
    const StepInfo *last = &r->steps[r->steps_n - 1];
    uint64_t lost = r->steps_n;
    while (lost > 0 && !isfinite(r->steps[lost - 1].loss))
        lost--;
    if (lost == 0)
        fprintf(out, "the loss is no number from step %" PRIu64 " on\n", r->steps[0].step);
    else if (lost < r->steps_n)
        fprintf(out, "loss %.6g in step %" PRIu64 ", no number from step %" PRIu64 " on\n",
                r->steps[0].loss, r->steps[0].step, r->steps[lost].step);
    else
        fprintf(out, "loss %.6g in step %" PRIu64 ", %.6g in step %" PRIu64 "\n",
                r->steps[0].loss, r->steps[0].step, last->loss, last->step);
}

void run_show_text(const RunOptions *o, const RunPlan *plan, const RankResult *r,
                   const char *hyper, FILE *out)
{
    char a[TEXT_CAP];
    fprintf(out, "%s%s%s\n", text_name(a, plan->name, 80), hyper ? ", " : "",
            hyper ? hyper : "");
    fprintf(out, "%s on %s, %" PRIu32 " rank%s, %" PRIu64 " steps, %s clock\n\n",
            plan->strategy,
            !o->cuda  ? "the CPU"
            : o->loop ? "one GPU, in a loop"
                      : "GPUs",
            r->world_n, r->world_n == 1 ? "" : "s", r->steps_n, run_clock_names[o->clock]);
    if (r->steps_n == 0) {
        fprintf(out,
                "nothing is left to do: '%s' holds step %" PRIu64 ", and --steps %" PRIu64
                " is how many there are in all\n",
                o->checkpoint, r->first_step, o->steps);
        return;
    }
    print_losses(r, out);
    fputc('\n', out);
    print_table(plan, r, out);
    if (o->cuda)
        fprintf(out,
                "bytes of a rank: %" PRIu64 " laid out, %" PRIu64 " predicted, %" PRIu64
                " allocated with the gaps; beside them %" PRIu64 " of scratch and workspaces\n",
                most_bytes(r), plan->predicted_peak_bytes, r->arena_bytes, r->beside_bytes);
    fprintf(out, "\nprediction: %s\n", plan->prediction_of);
    if (o->trace)
        fprintf(out, "trace: %s; times were moved by at most %s to lie on one clock\n",
                o->trace, text_seconds(a, (double)r->shift_max_ns / 1e9));
    if (o->trace && r->collected.on)
        fprintf(out,
                "its times are CUPTI's: %" PRIu64 " records, %" PRIu64
                " more were lost; the collector took %.2f %% of the time of a rank's threads\n",
                r->collected.records_n, r->collected.dropped_n, 100 * r->collected.overhead);
    if (o->trace && o->trace_predicted)
        fprintf(out, "op by op: lockstep compare %s %s\n", o->trace_predicted, o->trace);
    if (o->checkpoint)
        fprintf(out, "checkpoint: %s, step %" PRIu64 "\n", o->checkpoint,
                r->first_step + r->steps_n);
}

/* ---- for machines ---- */

static void put_times(JsonOut *j, const StepStat *s)
{
    json_put_open(j, "step_time_s", '{');
    json_put_number(j, "median", s->median_s);
    json_put_number(j, "p10", s->p10_s);
    json_put_number(j, "p90", s->p90_s);
    json_out_close(j, '}');
}

static void put_lists(JsonOut *j, const RankResult *r)
{
    json_put_open(j, "pids", '[');
    for (uint32_t i = 0; i < r->world_n; i++)
        json_out_int(j, r->pids[i]);
    json_out_close(j, ']');
    json_put_int(j, "steps", (int64_t)r->steps_n);
    json_put_int(j, "first_step", (int64_t)r->first_step);
    json_put_int(j, "done_steps", (int64_t)(r->first_step + r->steps_n));
    json_put_open(j, "losses", '[');
    for (uint64_t i = 0; i < r->steps_n; i++)
        json_out_number(j, r->steps[i].loss);
    json_out_close(j, ']');
    json_put_uint(j, "arena_bytes", r->arena_bytes);
    if (r->beside_bytes > 0)
        json_put_uint(j, "beside_bytes", r->beside_bytes);
    json_put_open(j, "peak_bytes", '[');
    for (uint32_t i = 0; i < r->world_n; i++)
        json_out_int(j, (int64_t)r->peak_bytes[i]);
    json_out_close(j, ']');
}

/* Who took the times of the trace. */
static void put_collected(JsonOut *j, const RankCollected *c)
{
    json_put_text(j, "trace_times", c->on ? "cupti" : "events");
    if (!c->on)
        return;
    json_put_open(j, "collector", '{');
    json_put_uint(j, "records", c->records_n);
    json_put_uint(j, "dropped", c->dropped_n);
    json_put_number(j, "overhead", c->overhead);
    json_out_close(j, '}');
}

void run_show_json(const RunOptions *o, const RunPlan *plan, const RankResult *r,
                   const char *hyper, FILE *out)
{
    Err ignored = { 0 }; /* whether it could be written is for main to see */
    JsonOut j = json_out_file(out, 2);
    StepStat s = run_step_stat(r);
    json_out_open(&j, '{');
    json_put_text(&j, "name", plan->name);
    json_put_text(&j, "backend", o->cuda ? "cuda" : "cpu");
    if (o->cuda)
        json_put_text(&j, "comm", o->loop ? "loop" : "nccl");
    if (hyper)
        json_put_text(&j, "hyper", hyper);
    json_put_text(&j, "clock", run_clock_names[o->clock]);
    json_put_text(&j, "collectives", o->rings ? "ring" : "direct");
    json_put_int(&j, "ranks", r->world_n);
    put_lists(&j, r);
    put_times(&j, &s);
    json_put_number(&j, "samples_per_s", (double)plan->global_batch / s.median_s);
    json_put_number(&j, "tokens_per_s", plan->tokens ? (double)plan->tokens / s.median_s : NAN);
    json_put_number(&j, "mfu", mfu_of(plan, s.median_s));
    json_put_number(&j, "exposed_comm_s", s.exposed_s);
    json_put_number(&j, "compute_s", s.compute_s);
    json_put_text(&j, "prediction_of", plan->prediction_of);
    json_out_key(&j, "predicted");
    run_plan_json(plan, &j);
    json_put_text(&j, "checkpoint", o->checkpoint);
    json_put_text(&j, "trace", o->trace);
    if (o->cuda && o->trace)
        put_collected(&j, &r->collected);
    json_put_text(&j, "trace_predicted", o->trace_predicted);
    json_out_close(&j, '}');
    json_out_end(&j, &ignored);
}

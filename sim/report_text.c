/*
 * report_text.c - one scenario for a person: at most 40 lines of 100 columns.
 *
 *     name                                      what ran, on what, split how
 *     step time, rates, cost
 *     time of the mean rank  | memory of the fullest rank
 *     longest chain, lower bounds               why it takes that long
 *     transfers that are exposed most           what to look at
 *     rank classes                              where ranks differ
 */
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "sim/report.h"
#include "sim/texts.h"

enum { LINE_MAX_N = 100, TRANSFERS_MAX = 6, CLASSES_MAX = 6 };

/* Texts of one line at a time; each call gives another buffer. */
typedef struct Words {
    FILE *out;
    uint32_t n;
    char text[16][TEXT_CAP];
} Words;

static char *next(Words *w)
{
    return w->text[w->n++ % ARRAY_N(w->text)];
}

#define SECONDS(s)       text_seconds(next(w), (s))
#define BYTES(b)         text_bytes(next(w), (b))
#define NUMBER(x, d)     text_number(next(w), (x), (d))
#define RATE(x)          text_rate(next(w), (x))
#define PERCENT(p)       text_percent(next(w), (p))
#define NAME(name, cols) text_name(next(w), (name), (cols))

/* ---- what ran ---- */

typedef struct Line {
    char text[TEXT_CAP];
    size_t n;
} Line;

static void add(Line *l, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add(Line *l, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(l->text + l->n, sizeof l->text - l->n, format, args);
    va_end(args);
    l->n += n > 0 ? (size_t)n : 0;
    l->n = l->n < sizeof l->text ? l->n : sizeof l->text - 1;
}

/* " dp 8 x tp 2"; expert parallelism is no factor of the product. */
static void add_degrees(Line *l, const Report *r)
{
    static const Dim factors[] = { DIM_DP, DIM_TP, DIM_PP, DIM_CP };
    const char *between = " ";
    for (size_t i = 0; i < ARRAY_N(factors); i++)
        if (r->degree[factors[i]] > 1) {
            add(l, "%s%s %" PRIu32, between, dim_names[factors[i]], r->degree[factors[i]]);
            between = " x ";
        }
    if (r->shard_size > 0)
        add(l, " in groups of %" PRIu32, r->shard_size);
    if (r->degree[DIM_EP] > 1)
        add(l, ", ep %" PRIu32, r->degree[DIM_EP]);
    if (r->dispatcher && strcmp(r->dispatcher, dispatcher_names[DISPATCHER_ALLTOALL]) != 0)
        add(l, " by %s", r->dispatcher);
    if (r->etp > 0 && r->etp != r->degree[DIM_TP])
        add(l, ", etp %" PRIu32, r->etp);
    if (r->sequence_parallel)
        add(l, ", sequence parallel");
    if (r->degree[DIM_PP] > 1)
        add(l, ", schedule %s", r->schedule);
    if (r->virtual_stages > 1)
        add(l, " x %" PRIu32, r->virtual_stages);
}

/* Those of one sample each are not worth a word. */
static void add_batch(Line *l, Words *w, const Report *r)
{
    add(l, "batch %s", NUMBER(r->global_batch, 0));
    if (r->has_tokens)
        add(l, " x %s tokens", NUMBER(r->seq_len, 0));
    if (r->micro_batches > 1)
        add(l, ", %s micro-batches", NUMBER(r->micro_batches, 0));
    if (r->micro_batches > 1 && r->micro_batch > 1)
        add(l, " of %s", NUMBER(r->micro_batch, 0));
    else if (r->micro_batch > 1)
        add(l, ", micro-batch %s", NUMBER(r->micro_batch, 0));
    if (strcmp(r->recompute, "none") != 0)
        add(l, ", recompute %s", r->recompute);
}

/* On two lines, broken behind a comma, where one is too short. */
static void print_commas(Words *w, const char *text)
{
    size_t n = strlen(text);
    if (n > LINE_MAX_N) {
        n = LINE_MAX_N;
        while (n > 2 && strncmp(text + n - 2, ", ", 2) != 0)
            n--;
        fprintf(w->out, "%.*s\n", (int)n - 1, text);
        text += n;
    }
    fprintf(w->out, "%s\n", NAME(text, LINE_MAX_N));
}

/* " (dgx-h100, 8 more idle)"; a cluster that is called as its GPUs is named once. */
static void add_cluster(Line *on, Words *w, const Report *r)
{
    bool named = *r->cluster && strcmp(r->cluster, r->gpu) != 0;
    if (!named && r->gpus_idle == 0)
        return;
    add(on, " (%.40s", named ? r->cluster : "");
    if (r->gpus_idle > 0)
        add(on, "%s%s more idle", named ? ", " : "", NUMBER(r->gpus_idle, 0));
    add(on, ")");
}

static void print_head(Words *w, const Report *r)
{
    Line on = { .n = 0 }, how = { .n = 0 };
    add(&on, "%.40s%s%s parameters, %.80s", r->model, *r->model ? ", " : "",
        text_count(next(w), (double)r->params_n), r->gpus_counted);
    add_cluster(&on, w, r);
    add(&on, ", software %.40s", r->software);
    add(&how, "%s", r->strategy);
    add_degrees(&how, r);
    add(&how, ", %s, ", r->precision);
    add_batch(&how, w, r);
    fprintf(w->out, "%s\n%s\n", NAME(r->name, LINE_MAX_N), NAME(on.text, LINE_MAX_N));
    print_commas(w, how.text);
    fprintf(w->out, "\n");
}

/* A processor's are a part of one. */
static const char *tflops(Words *w, double x)
{
    return x < 1 ? RATE(x) : NUMBER(x, 1);
}

static void print_flops(Words *w, const Report *r)
{
    const ReportRates *f = &r->rates;
    fprintf(w->out, "model flops      %10s TFLOP/s per GPU, mfu %s",
            tflops(w, f->model_tflops_per_gpu), PERCENT(100 * f->mfu));
    if (f->hardware_tflops_per_gpu > f->model_tflops_per_gpu)
        fprintf(w->out, "; with recomputation %s, hfu %s",
                tflops(w, f->hardware_tflops_per_gpu), PERCENT(100 * f->hfu));
    fprintf(w->out, "\n");
}

static void print_speed(Words *w, const Report *r)
{
    fprintf(w->out, "step time        %10s\n", SECONDS(r->step_time_s));
    if (r->has_tokens)
        fprintf(w->out, "tokens per s     %10s, %s per GPU\n", RATE(r->tokens_per_s),
                RATE(r->tokens_per_s_per_gpu));
    else
        fprintf(w->out, "samples per s    %10s, %s per GPU\n", RATE(r->samples_per_s),
                RATE(r->samples_per_s / r->gpus));
    print_flops(w, r);
    if (!isfinite(r->cost_usd_per_step))
        return;
    fprintf(w->out, "cost             %10s a step", text_usd(next(w), r->cost_usd_per_step));
    double units = (r->has_tokens ? r->tokens_per_s : r->samples_per_s) * r->step_time_s;
    fprintf(w->out, ", %s per million %s\n",
            text_usd(next(w), 1e6 * r->cost_usd_per_step / units),
            r->has_tokens ? "tokens" : "samples");
}

/* ---- time beside memory ---- */

typedef struct TimeRow {
    const char *name;
    double s, percent;
} TimeRow;

static void print_memory_cell(Words *w, const char *name, uint64_t bytes, const char *rest)
{
    fprintf(w->out, "     %-14s %12s%s\n", name, BYTES(bytes), rest);
}

static void print_time_cell(Words *w, const TimeRow *row)
{
    fprintf(w->out, "%-15s %11s %10s", row->name, SECONDS(row->s), PERCENT(row->percent));
}

static void print_table(Words *w, const Report *r)
{
    const ReportTimes *t = &r->times;
    const ReportMemory *m = report_memory(r);
    double all = r->step_time_s / 100;
    const TimeRow rows[TENSOR_CLASS_N] = {
        { "compute", t->compute_s, t->compute_s / all },
        { "exposed comm", t->exposed_comm_s, t->exposed_comm_s / all },
        { "bubble", t->bubble_s, t->bubble_s / all },
        { "idle", t->idle_s, t->idle_s / all },
        { "step", r->step_time_s, 100 },
    };
    const TimeRow comm = { "comm", t->comm_s, t->comm_s / all };
    const TimeRow hidden = { "of it hidden", t->overlapped_s, t->overlap_pct };
    fprintf(w->out,
            "\ntime of a step, mean over ranks           memory of rank %" PRIu32
            " at its peak\n",
            r->ranks[r->peak_rank].rank);
    for (int c = 0; c < TENSOR_CLASS_N; c++) {
        print_time_cell(w, &rows[c]);
        print_memory_cell(w, tensor_class_names[c], m->of_class[c], "");
    }
    print_time_cell(w, &comm);
    print_memory_cell(w, "allocated", m->peak_bytes, "");
    char *rest = next(w);
    const ReportMemory *fullest = report_fullest(r);
    char rank[TEXT_CAP] = "";
    if (r->full_rank != r->peak_rank)
        snprintf(rank, sizeof rank, " (rank %" PRIu32 ")", r->ranks[r->full_rank].rank);
    snprintf(rest, TEXT_CAP, " of %.30s, %s%.20s", BYTES(fullest->gpu_bytes),
             fullest->fits ? "fits" : "does not fit", rank);
    print_time_cell(w, &hidden);
    print_memory_cell(w, "reserved", fullest->reserved_bytes, rest);
    double spare = 1 - (double)fullest->reserved_bytes / (double)fullest->gpu_bytes;
    if (fullest->fits && spare < LITTLE_SPARE)
        fprintf(
            w->out,
            "%s of the memory is left: predictions are off by a few per cent, and allocators "
            "may stall\n",
            PERCENT(100 * spare));
}

/* ---- why ---- */

static void print_reasons(Words *w, const Report *r)
{
    const ReportBounds *b = &r->bounds;
    fprintf(w->out, "\n%-15s %11s %11s %11s %11s %11s\n", "", "compute", "memory", "links",
            "launches", "bubble");
    fprintf(w->out, "%-15s %11s %11s %11s %11s %11s\n", "longest chain",
            SECONDS(r->critical_compute_s), "", SECONDS(r->critical_comm_s),
            SECONDS(r->critical_launch_s), SECONDS(r->critical_bubble_s));
    fprintf(w->out, "%-15s %11s %11s %11s %11s", "lower bounds", SECONDS(b->compute_s),
            SECONDS(b->memory_s), SECONDS(b->link_s), SECONDS(b->launch_s));
    if (isfinite(b->above))
        fprintf(w->out, "    step %s above", PERCENT(100 * b->above));
    fprintf(w->out, "\n");
}

static void print_transfer(Words *w, const ReportCollective *c)
{
    char *name = next(w);
    snprintf(name, TEXT_CAP, "%s %.20s", c->op, c->group);
    fprintf(w->out, "%-26s %9s %12s %11s %11s %9s  %s%s%s\n", NAME(name, 26),
            NUMBER((double)c->count, 0), BYTES(c->bytes), SECONDS(c->time_s),
            SECONDS(c->exposed_s), NUMBER(c->busbw_GBps, 1), c->algorithm ? c->algorithm : "",
            c->algorithm ? " " : "", c->protocol);
}

static void print_transfers(Words *w, const Report *r)
{
    const ReportRank *k = &r->ranks[r->comm_rank];
    if (k->collectives_n == 0)
        return;
    char *head = next(w);
    snprintf(head, TEXT_CAP, "transfers of rank %" PRIu32, k->rank);
    fprintf(w->out, "\n%-26s %9s %12s %11s %11s %9s\n", head, "count", "bytes", "time",
            "exposed", "busbw GB/s");
    for (uint32_t i = 0; i < k->collectives_n && i < TRANSFERS_MAX; i++)
        print_transfer(w, &k->collectives[i]);
    if (k->collectives_n > TRANSFERS_MAX)
        fprintf(w->out, "and %" PRIu32 " more, less exposed, all of them in --json\n",
                k->collectives_n - TRANSFERS_MAX);
}

static void print_class(Words *w, const ReportRank *k)
{
    char *name = next(w);
    snprintf(name, TEXT_CAP, "%" PRIu32 " %.16s", k->rank, k->role);
    fprintf(w->out, "%-18s %5s %11s %11s %11s %11s %12s%s\n", NAME(name, 18),
            NUMBER(k->ranks_n, 0), SECONDS(k->times.compute_s),
            SECONDS(k->times.exposed_comm_s), SECONDS(k->times.bubble_s),
            SECONDS(k->times.idle_s), BYTES(k->memory.peak_bytes),
            k->memory.fits ? "" : "  too much");
}

/* Who waits least for others: a stage with more to do than the rest. */
static uint32_t busiest_class(const Report *r)
{
    uint32_t busiest = 0;
    for (uint32_t i = 1; i < r->ranks_n; i++) {
        const ReportTimes *a = &r->ranks[i].times, *b = &r->ranks[busiest].times;
        if (a->compute_s + a->exposed_comm_s > b->compute_s + b->exposed_comm_s)
            busiest = i;
    }
    return busiest;
}

/* Of many the first ones, and the busiest. */
static void print_classes(Words *w, const Report *r)
{
    if (r->ranks_n < 2)
        return;
    uint32_t shown = r->ranks_n > CLASSES_MAX ? CLASSES_MAX - 1 : r->ranks_n;
    uint32_t busiest = busiest_class(r), first_n = busiest < shown ? shown : shown - 1;
    fprintf(w->out, "\n%-18s %5s %11s %11s %11s %11s %12s\n", "rank", "alike", "compute",
            "exposed", "bubble", "idle", "memory");
    for (uint32_t i = 0; i < first_n; i++)
        print_class(w, &r->ranks[i]);
    if (first_n < shown)
        print_class(w, &r->ranks[busiest]);
    if (shown < r->ranks_n)
        fprintf(w->out, "and %" PRIu32 " more kinds of ranks, all of them in --json\n",
                r->ranks_n - shown);
}

void report_text(const Report *r, FILE *out)
{
    Words words = { .out = out }, *w = &words;
    print_head(w, r);
    print_speed(w, r);
    print_table(w, r);
    print_reasons(w, r);
    print_transfers(w, r);
    print_classes(w, r);
    fprintf(out, "\nsimulated %s ops in %s events and %s\n", NUMBER((double)r->ops, 0),
            NUMBER((double)r->events, 0), SECONDS(r->wall_s));
}

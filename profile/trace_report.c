/* trace_report.c - puts the parts together, and says in sentences what they could not tell. */
#include "profile/trace_report.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "profile/steps.h"

/* ---- remarks ---- */

static void remark(TraceReport *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void remark(TraceReport *r, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    GROW(r->remarks, r->remarks_n, r->remarks_cap);
    r->remarks[r->remarks_n++] = arena_strdup(&r->arena, text);
}

static void remark_ranks(TraceReport *r)
{
    uint32_t folded = 0;
    uint64_t shown_n = 0;
    for (uint32_t i = 0; i < r->covers.n; i++) {
        const Cover *c = &r->covers.rank[i];
        folded += r->shown[i] && c->ranks_n > 1;
        shown_n += r->shown[i] ? c->ranks_n : 0;
        if (r->shown[i] && c->n == 0)
            remark(r, "rank %" PRIu32 " has no GPU events: nothing can be said of it", c->rank);
    }
    if (r->covers.n == 0)
        remark(r, "the trace has no tracks: there is nothing to measure");
    if (folded > 0)
        remark(r,
               "%" PRIu32
               " of the ranks stand%s for several that are alike: sums and means are "
               "over all %" PRIu64,
               folded, folded == 1 ? "s" : "", shown_n);
}

/* By the names that readers give streams where a process has several: "GPU 1 stream 7". */
static uint32_t device_of(const Timeline *t, const Track *k)
{
    uint32_t device = NONE_U32;
    bool is_named = k->kind == TRACK_STREAM && k->span_n > 0 &&
                    sscanf(timeline_text(t, k->name), "GPU %" SCNu32 " stream", &device) == 1;
    return is_named ? device : NONE_U32;
}

static bool has_several_devices(const Timeline *t, uint32_t rank)
{
    uint32_t first = NONE_U32;
    for (uint32_t i = 0; i < t->tracks_n; i++) {
        uint32_t device = t->tracks[i].rank == rank ? device_of(t, &t->tracks[i]) : NONE_U32;
        if (device != NONE_U32 && first != NONE_U32 && device != first)
            return true;
        first = first == NONE_U32 ? device : first;
    }
    return false;
}

static void remark_devices(TraceReport *r)
{
    uint32_t n = 0, first = 0;
    for (uint32_t i = 0; i < r->covers.n; i++)
        if (r->shown[i] && has_several_devices(r->t, r->covers.rank[i].rank) && n++ == 0)
            first = r->covers.rank[i].rank;
    if (n > 0)
        remark(
            r,
            "%" PRIu32 " rank%s several GPUs from one process, rank %" PRIu32 "%s: times are "
            "unions over them, so what one computes hides what another communicates or idles",
            n, n == 1 ? " drives" : "s drive", first, n == 1 ? "" : " the first");
}

bool trace_report_is_whole(const TraceReport *r)
{
    return r->shown_n == r->covers.n && r->options.step < 0;
}

static void remark_matching(TraceReport *r)
{
    enum { SHOWN = 8 };
    const Collectives *c = &r->collectives;
    uint32_t refused = 0;
    for (uint32_t k = 0; k < c->channels_n; k++)
        if (c->channels[k].refusal && refused++ < SHOWN)
            remark(r, "%s", c->channels[k].refusal);
    if (refused > SHOWN)
        remark(r, "and %" PRIu32 " more groups whose ranks differ", refused - SHOWN);
    bool some_unknown = false;
    for (uint64_t i = 0; i < c->parts_n && !some_unknown; i++)
        some_unknown = c->parts[i].wait_ns < 0;
    if (c->parts_n > 0 && c->ranks_n == 1 && some_unknown)
        remark(r, "one rank only: what of its communication was waiting for others cannot be "
                  "told; give the traces of all ranks");
    else if (c->unmatched_n > 0 && some_unknown)
        remark(r,
               "%" PRIu64 " of %" PRIu64 " communication kernels%s have no partner on another "
               "rank: of them, wait and transfer are unknown",
               c->unmatched_n, c->parts_n,
               trace_report_is_whole(r) ? "" : " of the whole trace");
}

/* A rank that is not there may be the one that everybody waits for. */
static void remark_missing(TraceReport *r)
{
    uint32_t here = 0;
    for (uint32_t i = 0; i < r->covers.n; i++)
        here += r->covers.rank[i].ranks_n;
    if (r->collectives.matches_n > 0 && here < r->t->ranks_n)
        remark(r,
               "with %" PRIu32 " of %" PRIu32 " ranks, waiting is waiting for each other: some "
               "of what counts as transfer may be waiting for ranks that are not there",
               here, r->t->ranks_n);
}

/* A rank without the step is not shown: it would be one that idles. */
static void leave_out_stepless(TraceReport *r)
{
    for (uint32_t i = 0; i < r->covers.n && r->options.step >= 0; i++) {
        if (!r->shown[i] || r->from_ns[i] < r->to_ns[i])
            continue;
        r->shown[i] = false;
        remark(r, "rank %" PRIu32 " has no step %" PRId64, r->covers.rank[i].rank,
               r->options.step);
    }
}

/* ---- what is looked at ---- */

/* Which rank stands for another, a folded trace does not say; where it has one only, that. */
static bool refuse_folded(const TraceReport *r, uint32_t rank, Err *err)
{
    static const char more[] = "`lockstep sim --expand-ranks` writes each";
    const Covers *c = &r->covers;
    if (rank >= r->t->ranks_n)
        return err_set(
            err, "there is no rank %" PRIu32 " in the trace, which is of %" PRIu32 " ranks",
            rank, r->t->ranks_n);
    if (c->n == 1)
        return err_set(err,
                       "rank %" PRIu32 " is not by itself in the trace: rank %" PRIu32
                       " stands for %" PRIu32 " ranks; %s",
                       rank, c->rank[0].rank, c->rank[0].ranks_n, more);
    return err_set(err,
                   "rank %" PRIu32 " is not by itself in the trace: one of its %" PRIu32
                   " ranks stands for it; %s",
                   rank, c->n, more);
}

static bool refuse_rank(const TraceReport *r, uint32_t rank, Err *err)
{
    const Covers *c = &r->covers;
    if (c->n == 0)
        return err_set(err, "there is no rank %" PRIu32 " in the trace, it has no ranks", rank);
    for (uint32_t i = 0; i < c->n; i++)
        if (c->rank[i].ranks_n > 1)
            return refuse_folded(r, rank, err);
    if (c->n == 1)
        return err_set(err,
                       "there is no rank %" PRIu32 " in the trace, it has 1 rank, %" PRIu32,
                       rank, c->rank[0].rank);
    return err_set(err,
                   "there is no rank %" PRIu32 " in the trace, it has %" PRIu32
                   " ranks from %" PRIu32 " to %" PRIu32,
                   rank, c->n, c->rank[0].rank, c->rank[c->n - 1].rank);
}

static bool choose_ranks(TraceReport *r, Err *err)
{
    const TraceReportOptions *o = &r->options;
    for (uint32_t i = 0; i < r->covers.n; i++)
        r->shown[i] = o->ranks_n == 0;
    for (uint32_t k = 0; k < o->ranks_n; k++) {
        const Cover *c = covers_of_rank(&r->covers, o->ranks[k]);
        if (!c)
            return refuse_rank(r, o->ranks[k], err);
        r->shown[c - r->covers.rank] = true;
    }
    return true;
}

static bool refuse_step(const TraceReport *r, Err *err)
{
    bool all = r->options.ranks_n == 0;
    int64_t low = INT64_MAX, high = INT64_MIN;
    for (uint32_t i = 0; i < r->steps.n; i++) {
        const Cover *c = covers_of_rank(&r->covers, r->steps.at[i].rank);
        if (!c || !r->shown[c - r->covers.rank])
            continue;
        low = min_i64(low, r->steps.at[i].step);
        high = max_i64(high, r->steps.at[i].step);
    }
    if (low > high)
        return err_set(err, "there is no step %" PRId64 ": %s no steps", r->options.step,
                       all ? "the trace marks" : "the ranks asked for have");
    return err_set(
        err, "there is no step %" PRId64 " %s %" PRId64 " to %" PRId64, r->options.step,
        all ? "in the trace, it has" : "of the ranks asked for, they have", low, high);
}

static bool choose_windows(TraceReport *r, Err *err)
{
    bool found = false;
    for (uint32_t i = 0; i < r->covers.n; i++) {
        const Cover *c = &r->covers.rank[i];
        r->from_ns[i] = c->begin_ns;
        r->to_ns[i] = c->end_ns;
        if (r->options.step < 0)
            continue;
        const StepWindow *w = step_window_of(&r->steps, c->rank, r->options.step);
        r->from_ns[i] = w ? w->from_ns : 0;
        r->to_ns[i] = w ? w->to_ns : 0;
        found |= r->shown[i] && w;
    }
    return found || r->options.step < 0 || refuse_step(r, err);
}

static void measure_ranks(TraceReport *r)
{
    for (uint32_t i = 0; i < r->covers.n; i++) {
        const Cover *c = &r->covers.rank[i];
        Metrics *m = &r->metrics[i];
        *m = r->options.step < 0 ? metrics_of_rank(c)
                                 : metrics_of_window(c, r->t, r->from_ns[i], r->to_ns[i]);
        if (!r->shown[i])
            continue;
        r->shown_n++;
        r->busy_n += c->n > 0;
        r->alike_n += c->n > 0 ? c->ranks_n : 0;
        r->kernels_n += (m->compute_kernels + m->comm_kernels) * c->ranks_n;
        r->comm_n += m->comm_kernels * c->ranks_n;
        metrics_add(&r->mean, m, c->ranks_n);
    }
    metrics_divide(&r->mean, max_i64((int64_t)r->alike_n, 1));
}

static void measure_hta(TraceReport *r)
{
    int64_t *base_ns = mem_zero(r->covers.n, sizeof *base_ns);
    for (uint32_t i = 0; i < r->covers.n; i++)
        if (r->covers.rank[i].rank < r->source.base_n)
            base_ns[i] = r->source.base_ns[r->covers.rank[i].rank];
    hta_find(&r->hta, r->t, &r->covers, base_ns, r->shown, r->options.hta_include_last);
    free(base_ns);
}

bool trace_report_make(TraceReport *r, const Timeline *t, const TraceSource *source,
                       const TraceReportOptions *options, Err *err)
{
    *r = (TraceReport){ .t = t, .source = *source, .options = *options };
    covers_build(&r->covers, t);
    step_windows_in_gpu_time(&r->steps, t);
    uint32_t n = r->covers.n;
    r->shown = PUSH_ARRAY(&r->arena, bool, n);
    r->from_ns = PUSH_ARRAY(&r->arena, int64_t, n);
    r->to_ns = PUSH_ARRAY(&r->arena, int64_t, n);
    r->metrics = PUSH_ARRAY(&r->arena, Metrics, n);
    if (!choose_ranks(r, err) || !choose_windows(r, err)) {
        trace_report_free(r);
        return false;
    }
    for (size_t i = 0; i < source->findings_n; i++)
        remark(r, "%s", source->findings[i]);
    leave_out_stepless(r);
    Selection s = { .ranks = r->shown };
    if (options->step >= 0) {
        s.from_ns = r->from_ns;
        s.to_ns = r->to_ns;
    }
    measure_ranks(r);
    collectives_find(&r->collectives, t, &r->covers, &s);
    gaps_find(&r->gaps, t, &r->covers, &s, options->all_gaps ? UINT32_MAX : options->top);
    if (options->hta)
        measure_hta(r);
    remark_ranks(r);
    remark_devices(r);
    remark_matching(r);
    remark_missing(r);
    return true;
}

void trace_report_free(TraceReport *r)
{
    covers_free(&r->covers);
    step_windows_free(&r->steps);
    collectives_free(&r->collectives);
    gaps_free(&r->gaps);
    hta_free(&r->hta);
    free(r->remarks);
    arena_free(&r->arena);
    *r = (TraceReport){ .t = NULL };
}

TraceWaiting trace_report_waiting(const TraceReport *r)
{
    TraceWaiting w = { 0 };
    for (uint32_t i = 0; i < r->covers.n; i++) {
        const CollRank *c = &r->collectives.ranks[i];
        int64_t n = r->shown[i] ? r->covers.rank[i].ranks_n : 0;
        w.total_ns = metrics_sum_ns(w.total_ns, c->total_ns, n);
        w.wait_ns = metrics_sum_ns(w.wait_ns, c->wait_ns, n);
        w.transfer_ns = metrics_sum_ns(w.transfer_ns, c->transfer_ns, n);
    }
    return w;
}

uint32_t trace_report_stragglers(const TraceReport *r, uint32_t *ranks)
{
    const CollRank *c = r->collectives.ranks;
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->collectives.ranks_n; i++) {
        if (c[i].last_n == 0)
            continue;
        uint32_t at = n++;
        for (; at > 0 && c[ranks[at - 1]].waited_ns < c[i].waited_ns; at--)
            ranks[at] = ranks[at - 1];
        ranks[at] = i;
    }
    return n;
}

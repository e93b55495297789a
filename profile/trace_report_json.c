/* trace_report_json.c - the keys of DESIGN.md 4.2, and what was added to them. */
#include "profile/trace_report.h"

#include <stdlib.h>

static void put_metrics(JsonOut *j, const Metrics *m)
{
    json_put_int(j, "span_ns", m->span_ns);
    json_put_int(j, "busy_ns", m->busy_ns);
    json_put_int(j, "idle_ns", m->idle_ns);
    json_put_int(j, "compute_ns", m->compute_ns);
    json_put_int(j, "memory_ns", m->memory_ns);
    json_put_int(j, "comm_ns", m->comm_ns);
    json_put_int(j, "overlapped_ns", m->overlapped_ns);
    json_put_int(j, "exposed_comm_ns", m->exposed_comm_ns);
    json_put_int(j, "exposed_comm_vs_memory_ns", m->exposed_comm_vs_memory_ns);
    json_put_number(j, "overlap_pct", metrics_overlap_pct(m));
    json_put_uint(j, "comm_kernels", m->comm_kernels);
    json_put_uint(j, "compute_kernels", m->compute_kernels);
    json_put_uint(j, "memory_ops", m->memory_ops);
}

static void put_rank(const TraceReport *r, JsonOut *j, uint32_t i)
{
    const CollRank *c = &r->collectives.ranks[i];
    const GapRank *g = &r->gaps.ranks[i];
    json_out_open(j, '{');
    json_put_int(j, "rank", r->covers.rank[i].rank);
    put_metrics(j, &r->metrics[i]);
    json_put_int(j, "alike", r->covers.rank[i].ranks_n);
    json_put_uint(j, "matched_kernels", c->matched_n);
    bool silent = c->kernels_n == 0,
         told = silent || c->matched_n > 0 || c->wait_ns + c->transfer_ns > 0;
    json_put_known(j, "wait_ns", told ? c->wait_ns : -1);
    json_put_known(j, "transfer_ns", told ? c->transfer_ns : -1);
    json_put_known(j, "before_last_arrival_ns", silent || c->matched_n > 0 ? c->early_ns : -1);
    json_put_open(j, "gaps", '{');
    for (int k = 0; k < GAP_KIND_N; k++) {
        json_put_open(j, gap_kind_names[k], '{');
        json_put_uint(j, "count", g->n[k]);
        json_put_int(j, "total_ns", g->ns[k]);
        json_out_close(j, '}');
    }
    json_out_close(j, '}');
    json_out_close(j, '}');
}

static void put_ranks(const TraceReport *r, JsonOut *j)
{
    json_put_open(j, "ranks", '[');
    for (uint32_t i = 0; i < r->covers.n; i++)
        if (r->shown[i])
            put_rank(r, j, i);
    json_out_close(j, ']');
}

static void put_steps(const TraceReport *r, JsonOut *j)
{
    json_put_open(j, "steps", '[');
    for (uint32_t i = 0; i < r->steps.n; i++) {
        const StepWindow *w = &r->steps.at[i];
        const Cover *c = covers_of_rank(&r->covers, w->rank);
        bool wanted = r->options.step < 0 || r->options.step == w->step;
        if (!wanted || !r->shown[c - r->covers.rank])
            continue;
        Metrics m = metrics_of_window(c, r->t, w->from_ns, w->to_ns);
        json_out_open(j, '{');
        json_put_int(j, "rank", w->rank);
        json_put_int(j, "step", w->step);
        put_metrics(j, &m);
        json_out_close(j, '}');
    }
    json_out_close(j, ']');
}

static void put_collectives(const TraceReport *r, JsonOut *j)
{
    json_put_open(j, "collectives", '[');
    for (uint32_t i = 0; i < r->collectives.rows_n; i++) {
        const CollRow *c = &r->collectives.rows[i];
        json_out_open(j, '{');
        json_put_text(j, "name", c->name);
        json_put_text(j, "group", c->group);
        json_put_known(j, "bytes", c->bytes == NONE_U64 ? -1 : (int64_t)c->bytes);
        json_put_uint(j, "count", c->count);
        json_put_int(j, "total_ns", c->total_ns);
        json_put_known(j, "wait_ns", c->wait_ns);
        json_put_known(j, "transfer_ns", c->transfer_ns);
        json_put_int(j, "exposed_ns", c->exposed_ns);
        json_put_number(j, "algbw_GBps", c->algbw_GBps);
        json_put_number(j, "busbw_GBps", c->busbw_GBps);
        json_put_int(j, "ranks", c->ranks_n);
        json_put_bool(j, "matched", c->matched);
        json_put_known(j, "transfer_median_ns", c->transfer_median_ns);
        json_out_close(j, '}');
    }
    json_out_close(j, ']');
}

static void put_channel(const TraceReport *r, JsonOut *j, const CollChannel *c)
{
    char text[128];
    json_out_open(j, '{');
    json_put_text(j, "channel", collectives_channel_text(text, sizeof text, r->t, c));
    json_put_int(j, "ranks", c->ranks_n);
    json_put_uint(j, "kernels", c->parts_n);
    json_put_uint(j, "matched", c->matches_n);
    json_put_text(j, "by", match_by_texts[c->by]);
    if (c->refusal)
        json_put_text(j, "refused", c->refusal);
    json_out_close(j, '}');
}

static void put_matching(const TraceReport *r, JsonOut *j)
{
    const Collectives *c = &r->collectives;
    json_put_open(j, "matching", '{');
    json_put_uint(j, "collectives", c->collectives_n);
    json_put_uint(j, "unmatched_kernels", c->unmatched_n - c->among_alike_n);
    json_put_int(j, "transfer_ns", c->transfer_ns);
    json_put_open(j, "channels", '[');
    for (uint32_t i = 0; i < c->channels_n; i++)
        put_channel(r, j, &c->channels[i]);
    json_out_close(j, ']');
    json_out_close(j, '}');
}

static void put_stragglers(const TraceReport *r, JsonOut *j)
{
    uint32_t *ranks = mem_zero(r->covers.n, sizeof *ranks);
    uint32_t n = trace_report_stragglers(r, ranks);
    json_put_open(j, "stragglers", '[');
    for (uint32_t i = 0; i < n; i++) {
        const CollRank *c = &r->collectives.ranks[ranks[i]];
        json_out_open(j, '{');
        json_put_int(j, "rank", r->covers.rank[ranks[i]].rank);
        json_put_uint(j, "count", c->last_n);
        json_put_int(j, "waited_ns", c->waited_ns);
        json_put_open(j, "meanwhile", '{');
        json_put_int(j, "compute_ns", c->late.compute_ns);
        json_put_int(j, "comm_ns", c->late.exposed_comm_ns);
        json_put_int(j, "idle_ns", c->late.idle_ns);
        json_out_close(j, '}');
        json_out_close(j, '}');
    }
    json_out_close(j, ']');
    free(ranks);
}

static void put_kernels(const TraceReport *r, JsonOut *j)
{
    const Gaps *g = &r->gaps;
    json_put_open(j, "kernels", '[');
    for (uint32_t i = 0; i < g->kernels_n; i++) {
        const KernelRow *k = &g->kernels[i];
        json_out_open(j, '{');
        json_put_text(j, "name", timeline_text(r->t, k->name));
        json_put_text(j, "class", span_class_names[k->class_]);
        json_put_uint(j, "count", k->count);
        json_put_int(j, "total_ns", k->total_ns);
        json_put_number(j, "mean_ns", (double)k->total_ns / (double)k->count);
        json_put_number(j, "share_pct",
                        g->kernels_ns ? 100 * (double)k->total_ns / (double)g->kernels_ns : 0);
        json_out_close(j, '}');
    }
    json_out_close(j, ']');
}

static void put_streams(const TraceReport *r, JsonOut *j)
{
    json_put_open(j, "streams", '[');
    for (uint32_t i = 0; i < r->gaps.streams_n; i++) {
        const StreamRow *s = &r->gaps.streams[i];
        const Track *k = &r->t->tracks[s->track];
        json_out_open(j, '{');
        json_put_int(j, "rank", k->rank);
        json_put_text(j, "stream", timeline_text(r->t, k->name));
        json_put_uint(j, "count", s->count);
        json_put_int(j, "busy_ns", s->busy_ns);
        json_put_int(j, "idle_ns", s->idle_ns);
        json_out_close(j, '}');
    }
    json_out_close(j, ']');
}

static void put_gaps(const TraceReport *r, JsonOut *j)
{
    json_put_open(j, "gaps", '[');
    for (uint32_t i = 0; i < r->gaps.longest_n; i++) {
        const Gap *g = &r->gaps.longest[i];
        json_out_open(j, '{');
        json_put_int(j, "rank", r->covers.rank[g->rank].rank);
        json_put_text(j, "kind", gap_kind_names[g->kind]);
        json_put_int(j, "at_ns", g->at_ns);
        json_put_int(j, "dur_ns", g->dur_ns);
        json_out_key(j, "next");
        json_out_string(j, g->next == NONE_U64 ? NULL
                                               : timeline_text(r->t, r->t->span_name[g->next]));
        json_out_close(j, '}');
    }
    json_out_close(j, ']');
}

static void put_clock(const TraceReport *r, JsonOut *j)
{
    const Collectives *c = &r->collectives;
    json_put_open(j, "clock", '{');
    json_put_open(j, "offsets", '[');
    for (uint32_t i = 0; i < c->ranks_n && c->clocks_compared; i++) {
        json_out_open(j, '{');
        json_put_int(j, "rank", r->covers.rank[i].rank);
        json_put_int(j, "offset_ns", c->ranks[i].offset_ns);
        json_out_close(j, '}');
    }
    json_out_close(j, ']');
    json_put_known(j, "residual_ns", c->clocks_compared ? c->residual_ns : -1);
    json_put_known(j, "residual_max_ns", c->clocks_compared ? c->residual_max_ns : -1);
    json_put_bool(j, "applied", c->clocks_differ);
    json_out_close(j, '}');
}

static void put_hta_rank(JsonOut *j, const HtaRank *h)
{
    json_out_open(j, '{');
    json_put_int(j, "rank", h->rank);
    json_put_int(j, "idle_us", h->idle_us);
    json_put_int(j, "compute_us", h->compute_us);
    json_put_int(j, "non_compute_us", h->non_compute_us);
    json_put_int(j, "kernel_time_us", h->kernel_time_us);
    json_put_int(j, "comm_us", h->comm_us);
    json_put_int(j, "overlap_us", h->overlap_us);
    json_put_number(j, "idle_pct", h->idle_pct);
    json_put_number(j, "compute_pct", h->compute_pct);
    json_put_number(j, "non_compute_pct", h->non_compute_pct);
    json_put_number(j, "overlap_pct", h->overlap_pct);
    json_put_uint(j, "gpu_rows", h->gpu_rows);
    json_out_close(j, '}');
}

static void put_hta(const TraceReport *r, JsonOut *j)
{
    json_put_open(j, "hta", '{');
    json_put_int(j, "profiler_steps", r->hta.steps_n);
    json_put_bool(j, "include_last_profiler_step", r->options.hta_include_last);
    json_put_uint(j, "rows_left_out", r->hta.left_out_n);
    json_put_open(j, "ranks", '[');
    for (uint32_t i = 0; i < r->hta.ranks_n; i++)
        if (r->shown[i])
            put_hta_rank(j, &r->hta.ranks[i]);
    json_out_close(j, ']');
    json_put_open(j, "kernel_type_us", '{');
    for (int m = 1; m < COVER_MASKS; m++) {
        char text[128];
        if (r->hta.type_us[m] > 0)
            json_put_int(j, hta_type_text(text, sizeof text, m), r->hta.type_us[m]);
    }
    json_out_close(j, '}');
    json_out_close(j, '}');
}

static void put_source(const TraceReport *r, JsonOut *j)
{
    const TraceSource *s = &r->source;
    json_put_open(j, "events", '{');
    json_put_uint(j, "read", s->events_read);
    json_put_uint(j, "skipped", s->events_skipped);
    json_out_close(j, '}');
    json_put_open(j, "communication", '{');
    json_put_uint(j, "kernels", r->kernels_n);
    json_put_uint(j, "recognised", r->comm_n);
    json_put_open(j, "by_rule", '{');
    for (size_t i = 0; i < s->rules_n; i++)
        if (s->rules[i].kernels_n > 0 && trace_report_is_whole(r))
            json_put_uint(j, s->rules[i].rule, s->rules[i].kernels_n);
    json_out_close(j, '}');
    json_out_close(j, '}');
    json_put_open(j, "remarks", '[');
    for (uint32_t i = 0; i < r->remarks_n; i++)
        json_out_string(j, r->remarks[i]);
    json_out_close(j, ']');
}

void trace_report_json(const TraceReport *r, JsonOut *j)
{
    json_out_open(j, '{');
    json_put_text(j, "name", r->source.name);
    put_ranks(r, j);
    put_steps(r, j);
    put_collectives(r, j);
    put_stragglers(r, j);
    put_kernels(r, j);
    put_streams(r, j);
    put_gaps(r, j);
    put_clock(r, j);
    put_matching(r, j);
    put_source(r, j);
    if (r->options.hta)
        put_hta(r, j);
    json_out_close(j, '}');
}

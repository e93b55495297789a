/*
 * trace_report_text.c - a trace for a person: the answer first, then why, at most
 * 100 columns wide.
 *
 *     name                                what was read
 *     exposed communication, overlap, waiting, who is waited for
 *     how many kernels are communication
 *     note: ...                           what a reader should know before the numbers
 *     ranks | steps | collectives | stragglers | gaps | kernels | streams | clocks
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/printable.h"
#include "profile/trace_report.h"
#include "profile/trace_words.h"

enum { WIDTH = 100 };

typedef struct Words {
    const TraceReport *r;
    FILE *out;
    WordRing words;
} Words;

#define NS(x)            word_ns(word_next(&w->words), (x))
#define COUNT(x)         word_count(word_next(&w->words), (x))
#define PERCENT(x)       word_percent(word_next(&w->words), (x))
#define SHARE(part, all) word_percent(word_next(&w->words), word_share((part), (all)))
#define NAME(name, cols) word_name(word_next(&w->words), (name), (cols))

/* Words on lines of WIDTH columns, later lines indented. */
static void wrap(FILE *out, const char *first, const char *text)
{
    size_t indent = strlen(first), column = indent;
    fputs(first, out);
    for (bool is_first = true; *text; is_first = false) {
        size_t n = strcspn(text, " ");
        if (column + 1 + n > WIDTH && !is_first) {
            fprintf(out, "\n%*s", (int)indent, "");
            column = indent;
        } else if (!is_first) {
            fputc(' ', out);
            column++;
        }
        for (const char *c = text; c < text + n;) {
            char shown[4];
            fwrite(shown, 1, printable_next(shown, &c), out);
        }
        column += n;
        text += n + strspn(text + n, " ");
    }
    fputc('\n', out);
}

/* ---- the answer ---- */

static void print_head(Words *w)
{
    const TraceReport *r = w->r;
    fprintf(w->out, "%s\n", NAME(r->source.name, WIDTH));
    fprintf(w->out, "%s event%s read, %s skipped", COUNT(r->source.events_read),
            r->source.events_read == 1 ? "" : "s", COUNT(r->source.events_skipped));
    if (r->source.files_n > 1)
        fprintf(w->out, ", from %s files", COUNT(r->source.files_n));
    fprintf(w->out, "; %" PRIu32 " rank%s", r->covers.n, r->covers.n == 1 ? "" : "s");
    if (r->shown_n < r->covers.n)
        fprintf(w->out, ", %" PRIu32 " of them shown", r->shown_n);
    if (r->options.step >= 0)
        fprintf(w->out, "; step %" PRId64, r->options.step);
    fprintf(w->out, "\n\n");
}

static void print_exposed(Words *w)
{
    const Metrics *m = &w->r->mean;
    const char *each = w->r->alike_n > 1 ? " a rank" : "";
    fprintf(w->out, "%-24s%10s%s, %s of its time\n", "exposed communication",
            NS(m->exposed_comm_ns), each, SHARE(m->exposed_comm_ns, m->span_ns));
    fprintf(w->out, "%-24s%10s of communication runs beside compute, %s of %s\n", "overlap",
            PERCENT(metrics_overlap_pct(m)), NS(m->overlapped_ns), NS(m->comm_ns));
}

static void print_waiting(Words *w)
{
    TraceWaiting s = trace_report_waiting(w->r);
    int64_t known_ns = metrics_sum_ns(s.wait_ns, s.transfer_ns, 1);
    if (known_ns == 0)
        return;
    fprintf(w->out, "%-24s%10s of communication is waiting, %s transfer", "waiting",
            SHARE(s.wait_ns, s.total_ns), SHARE(s.transfer_ns, s.total_ns));
    if (s.total_ns > known_ns)
        fprintf(w->out, ", %s unknown", SHARE(s.total_ns - known_ns, s.total_ns));
    fprintf(w->out, "\n");
}

static void print_latest(Words *w)
{
    const TraceReport *r = w->r;
    uint32_t *ranks = mem_zero(r->covers.n, sizeof *ranks);
    if (trace_report_stragglers(r, ranks) > 0) {
        const CollRank *c = &r->collectives.ranks[ranks[0]];
        char *name = word_next(&w->words);
        snprintf(name, WORD_CAP, "waited for rank %" PRIu32, r->covers.rank[ranks[0]].rank);
        fprintf(w->out, "%-24s%10s by its peers on average, last in %s of its %s collectives\n",
                name, NS(c->waited_ns), COUNT(c->last_n), COUNT(c->collectives_n));
    }
    free(ranks);
}

/* "4 by nccl", and what no rule had to say. */
static void print_rules(Words *w)
{
    const TraceReport *r = w->r;
    const char *between = " (";
    uint64_t rest_n = r->comm_n;
    for (size_t i = 0; i < r->source.rules_n; i++)
        if (r->source.rules[i].kernels_n > 0) {
            fprintf(w->out, "%s%s by %s", between, COUNT(r->source.rules[i].kernels_n),
                    NAME(r->source.rules[i].rule, 24));
            rest_n -= min_u64(rest_n, r->source.rules[i].kernels_n);
            between = ", ";
        }
    if (rest_n > 0)
        fprintf(w->out, "%s%s as the trace says", between, COUNT(rest_n));
    fprintf(w->out, ")");
}

/* Said always: a share of communication means nothing when the kernels were not recognised.  A rank
 * that is alone has none. */
static void print_recognised(Words *w)
{
    const TraceReport *r = w->r;
    fprintf(w->out, "%-24s%10s of %s GPU kernels", "communication kernels", COUNT(r->comm_n),
            COUNT(r->kernels_n));
    if (r->comm_n == 0)
        fprintf(w->out,
                r->source.alone ? ": there is one rank" : ": NO COMMUNICATION was recognised");
    else if (trace_report_is_whole(r))
        print_rules(w);
    fprintf(w->out, "\n");
}

static void print_answer(Words *w)
{
    if (w->r->busy_n > 0) {
        if (w->r->mean.comm_ns > 0)
            print_exposed(w);
        print_waiting(w);
        print_latest(w);
    }
    if (w->r->mean.span_ns > 0)
        fprintf(w->out, "%-24s%10s%s, %s of its time\n", "idle GPU", NS(w->r->mean.idle_ns),
                w->r->alike_n > 1 ? " a rank" : "",
                SHARE(w->r->mean.idle_ns, w->r->mean.span_ns));
    print_recognised(w);
    for (uint32_t i = 0; i < w->r->remarks_n; i++)
        wrap(w->out, "note: ", w->r->remarks[i]);
}

/* ---- ranks and steps ---- */

static void print_metrics(Words *w, const Metrics *m)
{
    fprintf(w->out, " %9s %9s %9s %9s %9s %9s %9s %9s %8s\n", NS(m->span_ns), NS(m->busy_ns),
            NS(m->idle_ns), NS(m->compute_ns), NS(m->memory_ns), NS(m->comm_ns),
            NS(m->overlapped_ns), NS(m->exposed_comm_ns), PERCENT(metrics_overlap_pct(m)));
}

static void print_metric_heads(Words *w, const char *first)
{
    fprintf(w->out, "\n%-8s %9s %9s %9s %9s %9s %9s %9s %9s %8s\n", first, "span", "busy",
            "idle", "compute", "memory", "comm", "overlap'd", "exposed", "overlap");
}

enum { RANKS_MAX = 32, STEPS_MAX = 16 };

/* Below a table that stops there. */
static void print_more_ranks(Words *w, uint32_t n)
{
    if (n > RANKS_MAX)
        fprintf(w->out, "and %" PRIu32 " more ranks, all of them in --json\n", n - RANKS_MAX);
}

static void print_ranks(Words *w)
{
    uint32_t n = 0;
    if (w->r->shown_n == 0)
        return;
    print_metric_heads(w, "rank");
    for (uint32_t i = 0; i < w->r->covers.n; i++)
        if (w->r->shown[i] && n++ < RANKS_MAX) {
            fprintf(w->out, "%-8" PRIu32, w->r->covers.rank[i].rank);
            print_metrics(w, &w->r->metrics[i]);
        }
    print_more_ranks(w, n);
    if (w->r->busy_n > 1) {
        fprintf(w->out, "%-8s", "mean");
        print_metrics(w, &w->r->mean);
    }
}

/* Those of the first rank shown that has GPU work. */
static void print_steps(Words *w)
{
    const TraceReport *r = w->r;
    uint32_t n = 0, first = 0;
    while (first < r->covers.n && (!r->shown[first] || r->covers.rank[first].n == 0))
        first++;
    if (first == r->covers.n || r->options.step >= 0)
        return;
    const Cover *c = &r->covers.rank[first];
    for (uint32_t i = 0; i < r->steps.n; i++)
        n += r->steps.at[i].rank == c->rank;
    if (n < 2)
        return;
    print_metric_heads(w, "step");
    uint32_t shown = 0;
    for (uint32_t i = 0; i < r->steps.n; i++) {
        const StepWindow *s = &r->steps.at[i];
        if (s->rank != c->rank || shown++ >= STEPS_MAX)
            continue;
        Metrics m = metrics_of_window(c, r->t, s->from_ns, s->to_ns);
        fprintf(w->out, "%-8" PRId64, s->step);
        print_metrics(w, &m);
    }
    if (n > STEPS_MAX)
        fprintf(w->out, "and %" PRIu32 " more steps; ", n - STEPS_MAX);
    fprintf(w->out,
            "steps are those of rank %" PRIu32
            "; --step N looks at one, of all ranks that have it\n",
            c->rank);
}

/* ---- collectives ---- */

static void print_collective(Words *w, const CollRow *c)
{
    char *name = word_next(&w->words);
    snprintf(name, WORD_CAP, "%.100s%s%.60s", c->name, *c->group ? " " : "", c->group);
    char *ranks = word_next(&w->words);
    snprintf(ranks, WORD_CAP, c->ranks_n ? "%" PRIu32 : "-", c->ranks_n);
    fprintf(w->out, "%-28s %5s %11s %6s %9s %8s %9s %10s %6s\n", NAME(name, 28), ranks,
            word_bytes(word_next(&w->words), c->bytes), COUNT(c->count), NS(c->total_ns),
            c->wait_ns < 0 ? "-" : SHARE(c->wait_ns, c->total_ns), NS(c->exposed_ns),
            NS(c->transfer_median_ns), word_number(word_next(&w->words), c->busbw_GBps));
}

static void print_collectives(Words *w)
{
    const Collectives *c = &w->r->collectives;
    uint32_t top = w->r->options.top;
    if (c->rows_n == 0)
        return;
    fprintf(w->out, "\n%-28s %5s %11s %6s %9s %8s %9s %10s %6s\n", "communication", "ranks",
            "bytes", "count", "all ranks", "waiting", "exposed", "transfer", "busbw");
    fprintf(w->out, "%-28s %5s %11s %6s %9s %8s %9s %10s %6s\n", "", "", "", "", "total", "",
            "total", "each", "GB/s");
    for (uint32_t i = 0; i < c->rows_n && i < top; i++)
        print_collective(w, &c->rows[i]);
    if (c->rows_n > top)
        fprintf(w->out, "and %" PRIu32 " more kinds, all of them in --json\n", c->rows_n - top);
}

static void print_matching(Words *w)
{
    const Collectives *c = &w->r->collectives;
    uint64_t n[MATCH_BY_N] = { 0 }, all_n = 0;
    const char *between = ": ";
    for (uint64_t i = 0; i < c->matches_n; i++) {
        n[c->channels[c->matches[i].channel].by] += c->matches[i].copies_n;
        all_n += c->matches[i].copies_n;
    }
    if (c->matches_n == 0)
        return;
    fprintf(w->out, "%s collectives%s matched across ranks", COUNT(all_n),
            trace_report_is_whole(w->r) ? "" : " of the whole trace");
    for (int by = 1; by < MATCH_BY_N; by++)
        if (n[by] > 0) {
            fprintf(w->out, "%s%s by %s", between, COUNT(n[by]), match_by_texts[by]);
            between = ", ";
        }
    fprintf(w->out,
            "\nwaiting: longer than the shortest kernel of the match, or as the trace says\n");
}

static void print_stragglers(Words *w)
{
    const TraceReport *r = w->r;
    uint32_t *ranks = mem_zero(r->covers.n, sizeof *ranks);
    uint32_t n = trace_report_stragglers(r, ranks);
    int width = 14;
    for (uint32_t i = 0; i < n && i < r->options.top; i++)
        width = r->covers.rank[ranks[i]].ranks_n > 1 ? 22 : width; /* "rank 16383 x 1,024" */
    if (n > 0)
        fprintf(w->out, "\n%-*s %9s %11s %10s   %s\n", width, "waited for", "last in",
                "others wait", "share", "meanwhile its GPU");
    for (uint32_t i = 0; i < n && i < r->options.top; i++) {
        const CollRank *c = &r->collectives.ranks[ranks[i]];
        char *name = word_next(&w->words);
        const Cover *cover = &r->covers.rank[ranks[i]];
        snprintf(name, WORD_CAP, "rank %" PRIu32 "%s%s", cover->rank,
                 cover->ranks_n > 1 ? " x " : "",
                 cover->ranks_n > 1 ? COUNT(cover->ranks_n) : "");
        fprintf(w->out, "%-*s %9s %11s %10s   computes %s, communicates %s, idles %s\n", width,
                name, COUNT(c->last_n), NS(c->waited_ns),
                SHARE(c->waited_all_ns, r->collectives.waited_ns),
                SHARE(c->late.compute_ns, c->late.span_ns),
                SHARE(c->late.exposed_comm_ns, c->late.span_ns),
                SHARE(c->late.idle_ns, c->late.span_ns));
    }
    free(ranks);
}

static void print_clocks(Words *w)
{
    const Collectives *c = &w->r->collectives;
    if (!c->clocks_compared)
        return;
    fprintf(w->out, "\n");
    if (!c->clocks_differ) {
        fprintf(w->out,
                "clocks: collectives end within %s (median), %s (largest): not changed\n",
                NS(c->residual_ns), NS(c->residual_max_ns));
        return;
    }
    fprintf(w->out,
            "clocks differ, aligned on the ends of collectives, which then agree within "
            "%s\n(median), %s (largest):\n",
            NS(c->residual_ns), NS(c->residual_max_ns));
    uint32_t shown = 0;
    for (uint32_t i = 0; i < c->ranks_n; i++)
        if (c->ranks[i].offset_ns != 0 && shown++ < RANKS_MAX)
            fprintf(w->out, "  rank %-6" PRIu32 " %12s\n", w->r->covers.rank[i].rank,
                    word_signed_ns(word_next(&w->words), c->ranks[i].offset_ns));
    if (shown > RANKS_MAX)
        fprintf(w->out, "  and %" PRIu32 " more ranks, all of them in --json\n",
                shown - RANKS_MAX);
}

/* ---- gaps, kernels, streams ---- */

static void print_gap_cell(Words *w, const GapRank *g, GapKind kind)
{
    fprintf(w->out, " %9s %7s", NS(g->ns[kind]), COUNT(g->n[kind]));
}

static void print_gaps(Words *w)
{
    const TraceReport *r = w->r;
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->covers.n; i++)
        for (int k = 0; k < GAP_KIND_N; k++)
            n += r->shown[i] && r->gaps.ranks[i].n[k] > 0;
    if (n == 0)
        return;
    fprintf(w->out, "\n%-8s %17s %17s %17s %17s\n", "idle GPU", "launched late", "host synced",
            "other reasons", "no launch known");
    n = 0;
    for (uint32_t i = 0; i < r->covers.n; i++) {
        if (!r->shown[i] || r->covers.rank[i].n == 0 || n++ >= RANKS_MAX)
            continue;
        char *name = word_next(&w->words);
        snprintf(name, WORD_CAP, "rank %" PRIu32, r->covers.rank[i].rank);
        fprintf(w->out, "%-8s", name);
        for (int k = 0; k < GAP_KIND_N; k++)
            print_gap_cell(w, &r->gaps.ranks[i], (GapKind)k);
        fprintf(w->out, "\n");
    }
    print_more_ranks(w, n);
}

static void print_longest_gaps(Words *w)
{
    enum { LONGEST_MAX = 5 };
    const TraceReport *r = w->r;
    const Gaps *g = &r->gaps;
    for (uint32_t i = 0; i < g->longest_n && i < LONGEST_MAX; i++) {
        const Gap *gap = &g->longest[i];
        const char *name = gap->next == NONE_U64
                               ? "nothing follows"
                               : timeline_text(r->t, r->t->span_name[gap->next]);
        if (i == 0)
            fprintf(w->out, "\n%-8s %9s %12s %-8s  %s\n", "longest", "idle", "at", "reason",
                    "until");
        char *rank = word_next(&w->words);
        snprintf(rank, WORD_CAP, "rank %" PRIu32, r->covers.rank[gap->rank].rank);
        fprintf(w->out, "%-8s %9s %12s %-8s  %s\n", rank, NS(gap->dur_ns),
                word_signed_ns(word_next(&w->words),
                               gap->at_ns - r->covers.rank[gap->rank].begin_ns),
                gap_kind_names[gap->kind], NAME(name, 57));
    }
}

static void print_kernels(Words *w)
{
    const Gaps *g = &w->r->gaps;
    if (g->kernels_n == 0)
        return;
    fprintf(w->out, "\n%-50s %-8s %9s %10s %10s %7s\n", "kernels, all ranks shown", "class",
            "count", "total", "mean", "share");
    for (uint32_t i = 0; i < g->kernels_n && i < w->r->options.top; i++) {
        const KernelRow *k = &g->kernels[i];
        fprintf(w->out, "%-50s %-8s %9s %10s %10s %7s\n",
                NAME(timeline_text(w->r->t, k->name), 50), span_class_names[k->class_],
                COUNT(k->count), NS(k->total_ns), NS(k->total_ns / (int64_t)k->count),
                SHARE(k->total_ns, g->kernels_ns));
    }
    if (g->kernels_n > w->r->options.top)
        fprintf(w->out, "and %" PRIu32 " more, all of them in --json\n",
                g->kernels_n - w->r->options.top);
}

static void print_streams(Words *w)
{
    enum { STREAMS_MAX = 24 };
    const Gaps *g = &w->r->gaps;
    if (g->streams_n == 0)
        return;
    fprintf(w->out, "\n%-44s %9s %10s %10s %8s\n", "streams", "count", "busy", "idle", "busy");
    for (uint32_t i = 0; i < g->streams_n && i < STREAMS_MAX; i++) {
        const StreamRow *s = &g->streams[i];
        const Track *k = &w->r->t->tracks[s->track];
        char *name = word_next(&w->words);
        snprintf(name, WORD_CAP, "rank %" PRIu32 " %.120s", k->rank,
                 timeline_text(w->r->t, k->name));
        fprintf(w->out, "%-44s %9s %10s %10s %8s\n", NAME(name, 44), COUNT(s->count),
                NS(s->busy_ns), NS(s->idle_ns), SHARE(s->busy_ns, s->busy_ns + s->idle_ns));
    }
    if (g->streams_n > STREAMS_MAX)
        fprintf(w->out, "and %" PRIu32 " more, all of them in --json\n",
                g->streams_n - STREAMS_MAX);
}

void trace_report_text(const TraceReport *r, FILE *out)
{
    Words words = { .r = r, .out = out }, *w = &words;
    print_head(w);
    print_answer(w);
    print_ranks(w);
    print_steps(w);
    print_collectives(w);
    print_matching(w);
    print_stragglers(w);
    print_clocks(w);
    print_gaps(w);
    print_longest_gaps(w);
    print_kernels(w);
    print_streams(w);
}

/* ---- as Holistic Trace Analysis has it ---- */

static void print_percent(Words *w, double pct)
{
    char *text = word_next(&w->words);
    if (isfinite(pct))
        snprintf(text, WORD_CAP, "%.2f", pct);
    else
        strcpy(text, "nan");
    fprintf(w->out, " %8s", text);
}

static void print_hta_rank(Words *w, const HtaRank *h)
{
    fprintf(w->out, "%-6" PRIu32 " %10" PRId64 " %10" PRId64 " %12" PRId64 " %14" PRId64,
            h->rank, h->idle_us, h->compute_us, h->non_compute_us, h->kernel_time_us);
    print_percent(w, h->idle_pct);
    print_percent(w, h->compute_pct);
    print_percent(w, h->non_compute_pct);
    print_percent(w, h->overlap_pct);
    fprintf(w->out, "\n");
}

void trace_report_hta_text(const TraceReport *r, FILE *out)
{
    Words words = { .r = r, .out = out }, *w = &words;
    const Hta *h = &r->hta;
    fprintf(out,
            "as Holistic Trace Analysis 0.6.1 has it: whole microseconds, kernels by name,");
    if (h->steps_n >= 2)
        fprintf(out, "\n%s of %" PRIu32 " steps; %s GPU rows left out\n",
                r->options.hta_include_last ? "up to the end of the last" : "without the last",
                h->steps_n, COUNT(h->left_out_n));
    else
        fprintf(out, "\nno steps cut off\n");
    fprintf(out, "\n%-6s %10s %10s %12s %14s %8s %8s %8s %8s\n", "rank", "idle us",
            "compute us", "non-comp. us", "kernel time us", "idle %", "comp. %", "non-c. %",
            "overlap");
    for (uint32_t i = 0; i < h->ranks_n; i++)
        if (r->shown[i])
            print_hta_rank(w, &h->ranks[i]);
    fprintf(out, "\n%-60s %14s\n", "kernel types, sums over ranks", "us");
    for (int m = 1; m < COVER_MASKS; m++)
        if (h->type_us[m] > 0)
            fprintf(out, "%-60s %14" PRId64 "\n",
                    hta_type_text(word_next(&w->words), WORD_CAP, m), h->type_us[m]);
}

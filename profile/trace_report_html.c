/*
 * trace_report_html.c - a trace as one page: tables, and for each rank a strip of what
 * its GPU did when.  No script, no network; light and dark as the reader's system is.
 *
 * Pictures and their colours are drawn by whoever calls (ReportPictures).  Everything from
 * the trace goes through put_text, which escapes it.
 */
#include <stdlib.h>
#include <string.h>

#include "core/printable.h"
#include "core/utf8.h"
#include "profile/trace_report.h"
#include "profile/trace_words.h"

enum { STRIPS_MAX = 64 };

const char *const report_part_names[REPORT_PARTS_N] = { "compute", "overlapped",
                                                        "exposed communication", "memory",
                                                        "idle" };

typedef struct Page {
    const TraceReport *r;
    const ReportPictures *pictures;
    FILE *out;
    WordRing words;
} Page;

#define NS(x)            word_ns(word_next(&p->words), (x))
#define COUNT(x)         word_count(word_next(&p->words), (x))
#define PERCENT(x)       word_percent(word_next(&p->words), (x))
#define SHARE(part, all) word_percent(word_next(&p->words), word_share((part), (all)))

/* ---- text ---- */

/* Escaped, control bytes as '?', what is no UTF-8 as U+FFFD. */
static void put_text(FILE *out, const char *text)
{
    for (const char *c = text; *c;) {
        size_t n = utf8_bytes(c, SIZE_MAX);
        switch (*c) {
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '&':
            fputs("&amp;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        default:
            if (n == 0)
                fputs("&#xfffd;", out);
            else if (unprintable_bytes(c) > 0)
                fputc('?', out);
            else
                fwrite(c, 1, n, out);
        }
        c += n ? n : 1;
    }
}

/* ---- the page's head ---- */

static const char style[] =
    "*{box-sizing:border-box}\n"
    "body{margin:0;background:var(--back);color:var(--text);"
    "font:14px/1.45 Inter,system-ui,\"DejaVu Sans\",sans-serif}\n"
    "main{max-width:1180px;margin:0 auto;padding:28px 32px 64px}\n"
    "h1{font-size:22px;margin:0;overflow-wrap:anywhere}\n"
    "h2{font-size:16px;margin:36px 0 10px}\n"
    "p{margin:6px 0}.dim{color:var(--dim)}\n"
    ".cards{display:flex;flex-wrap:wrap;gap:12px;margin:20px 0}\n"
    ".card{background:var(--card);border:1px solid var(--line);border-radius:8px;"
    "padding:12px 16px;flex:1 1 200px}\n"
    ".card b{display:block;font-size:25px;font-weight:600;margin:2px 0}\n"
    ".card.alarm b{color:var(--exposed)}\n"
    ".note{border-left:3px solid var(--exposed);padding:6px 12px;margin:8px 0;"
    "background:var(--card)}\n"
    ".wide{overflow-x:auto}\n"
    "table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}\n"
    "th,td{padding:5px 10px;text-align:right;border-bottom:1px solid var(--line);"
    "white-space:nowrap}\n"
    "th{color:var(--dim);font-weight:500;vertical-align:bottom}\n"
    "th.l,td.l{text-align:left}\n"
    "td.name{text-align:left;max-width:460px;overflow:hidden;text-overflow:ellipsis}\n"
    "tr.mean td{font-weight:600;border-top:2px solid var(--line)}\n"
    ".key{display:flex;flex-wrap:wrap;gap:18px;margin:10px 0;color:var(--dim)}\n"
    ".key svg{vertical-align:-2px;margin-right:3px}\n"
    "svg{display:block}.key svg{display:inline}\n"
    ".strip{display:grid;grid-template-columns:76px 1fr 92px;gap:10px;align-items:center;"
    "margin:3px 0}\n"
    ".strip svg{width:100%}.strip .lane{height:28px;border-radius:3px;background:var(--card)}\n"
    ".strip .l{font-weight:500}.strip .v{text-align:right;font-variant-numeric:tabular-nums}\n"
    ".axis{position:relative;height:22px;font-size:11px;color:var(--dim)}\n"
    ".axis span{position:absolute;padding-top:5px;transform:translateX(-50%);"
    "white-space:nowrap}\n"
    ".axis span::before{content:\"\";position:absolute;top:0;left:50%;width:1px;height:4px;"
    "background:var(--dim)}\n"
    "@media(max-width:800px){.axis span:nth-child(even){display:none}}\n"
    "@media(max-width:500px){.axis span:not(:nth-child(4n+1)){display:none}}\n"
    "svg rect[pointer-events]:hover{fill:var(--text);fill-opacity:.14}\n"
    "td .bar{width:180px;height:12px;border-radius:2px}\n"
    "@media print{main{max-width:none}}\n";

static void put_head(Page *p)
{
    fputs("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>",
          p->out);
    put_text(p->out, p->r->source.name);
    fputs(" - lockstep report</title>\n<style>\n", p->out);
    p->pictures->colors(p->pictures->user, p->out);
    fprintf(p->out, "%s</style></head><body><main>\n", style);
}

static void put_title(Page *p)
{
    const TraceReport *r = p->r;
    fputs("<h1>", p->out);
    put_text(p->out, r->source.name);
    fprintf(p->out, "</h1>\n<p class=\"dim\">%s events read, %s skipped",
            COUNT(r->source.events_read), COUNT(r->source.events_skipped));
    if (r->source.files_n > 1)
        fprintf(p->out, ", from %s files", COUNT(r->source.files_n));
    fprintf(p->out, " &middot; %" PRIu32 " rank%s", r->covers.n, r->covers.n == 1 ? "" : "s");
    if (r->shown_n < r->covers.n)
        fprintf(p->out, ", %" PRIu32 " of them shown", r->shown_n);
    if (r->options.step >= 0)
        fprintf(p->out, " &middot; step %" PRId64, r->options.step);
    fprintf(p->out, " &middot; %s of %s GPU kernels recognised as communication</p>\n",
            COUNT(r->comm_n), COUNT(r->kernels_n));
}

/* ---- the answer ---- */

static void put_card(Page *p, const char *class, const char *title, const char *value,
                     const char *below)
{
    fprintf(p->out, "<div class=\"card%s\"><span class=\"dim\">%s</span><b>%s</b>%s</div>\n",
            class, title, value, below);
}

static void put_waiting_card(Page *p)
{
    TraceWaiting s = trace_report_waiting(p->r);
    if (s.wait_ns == 0 && s.transfer_ns == 0)
        return;
    char *below = word_next(&p->words);
    snprintf(below, WORD_CAP, "of communication waits for another rank; %s is transfer",
             SHARE(s.transfer_ns, s.total_ns));
    put_card(p, "", "waiting", SHARE(s.wait_ns, s.total_ns), below);
}

static void put_straggler_card(Page *p)
{
    const TraceReport *r = p->r;
    uint32_t *ranks = mem_zero(r->covers.n, sizeof *ranks);
    if (trace_report_stragglers(r, ranks) > 0) {
        const CollRank *c = &r->collectives.ranks[ranks[0]];
        char *value = word_next(&p->words), *below = word_next(&p->words);
        snprintf(value, WORD_CAP, "rank %" PRIu32, r->covers.rank[ranks[0]].rank);
        snprintf(below, WORD_CAP, "%s by its peers: last in %s of its %s collectives",
                 NS(c->waited_ns), COUNT(c->last_n), COUNT(c->collectives_n));
        put_card(p, "", "most waited for", value, below);
    }
    free(ranks);
}

static void put_cards(Page *p)
{
    const Metrics *m = &p->r->mean;
    const char *each = p->r->alike_n > 1 ? " a rank" : "";
    char *below = word_next(&p->words);
    fputs("<div class=\"cards\">\n", p->out);
    if (m->comm_ns > 0) {
        snprintf(below, WORD_CAP, "%s%s of %s", NS(m->exposed_comm_ns), each, NS(m->span_ns));
        put_card(p, m->exposed_comm_ns > m->span_ns / 20 ? " alarm" : "",
                 "exposed communication", SHARE(m->exposed_comm_ns, m->span_ns), below);
        below = word_next(&p->words);
        snprintf(below, WORD_CAP, "of communication runs beside compute: %s of %s",
                 NS(m->overlapped_ns), NS(m->comm_ns));
        put_card(p, "", "overlap", PERCENT(metrics_overlap_pct(m)), below);
    } else {
        put_card(p, " alarm", "communication", "none", "no kernel was recognised as such");
    }
    put_waiting_card(p);
    put_straggler_card(p);
    below = word_next(&p->words);
    snprintf(below, WORD_CAP, "%s%s with nothing on the GPU", NS(m->idle_ns), each);
    if (p->r->busy_n > 0)
        put_card(p, "", "idle GPU", SHARE(m->idle_ns, m->span_ns), below);
    fputs("</div>\n", p->out);
    for (uint32_t i = 0; i < p->r->remarks_n; i++) {
        fputs("<div class=\"note\">", p->out);
        put_text(p->out, p->r->remarks[i]);
        fputs("</div>\n", p->out);
    }
}

/* ---- strips ---- */

/* Of all ranks shown, on aligned clocks. */
static ReportRange range_of(const TraceReport *r)
{
    ReportRange all = { INT64_MAX, INT64_MIN };
    for (uint32_t i = 0; i < r->covers.n; i++) {
        if (!r->shown[i] || r->from_ns[i] >= r->to_ns[i])
            continue;
        all.from_ns =
            min_i64(all.from_ns, collectives_aligned_ns(&r->collectives, i, r->from_ns[i]));
        all.to_ns = max_i64(all.to_ns, collectives_aligned_ns(&r->collectives, i, r->to_ns[i]));
    }
    return all;
}

static void put_strip(Page *p, uint32_t i, ReportRange all)
{
    fprintf(p->out, "<div class=\"strip\"><span class=\"l\">rank %" PRIu32 "</span>",
            p->r->covers.rank[i].rank);
    p->pictures->strip(p->pictures->user, p->r, i, all, p->out);
    fprintf(p->out, "<span class=\"v\">%s</span></div>\n",
            SHARE(p->r->metrics[i].exposed_comm_ns, p->r->metrics[i].span_ns));
}

static void put_axis(Page *p, ReportRange all)
{
    fputs("<div class=\"strip\"><span></span>", p->out);
    p->pictures->axis(p->pictures->user, all, p->out);
    fputs("<span></span></div>\n", p->out);
}

static void put_key(Page *p)
{
    fputs("<div class=\"key\">", p->out);
    for (int k = 0; k < REPORT_PARTS_N; k++) {
        fputs("<span>", p->out);
        p->pictures->swatch(p->pictures->user, (ReportPart)k, p->out);
        fprintf(p->out, "%s</span>", report_part_names[k]);
    }
    fputs("</div>\n<div class=\"strip dim\"><span></span><span></span>"
          "<span class=\"v\">exposed</span></div>\n",
          p->out);
}

static void put_strips(Page *p)
{
    ReportRange all = range_of(p->r);
    uint32_t n = 0;
    if (all.from_ns >= all.to_ns)
        return;
    fputs("<h2>What each GPU did</h2>\n", p->out);
    put_key(p);
    for (uint32_t i = 0; i < p->r->covers.n; i++)
        if (p->r->shown[i] && n++ < STRIPS_MAX)
            put_strip(p, i, all);
    put_axis(p, all);
    if (n > STRIPS_MAX)
        fprintf(p->out, "<p class=\"dim\">and %" PRIu32 " more ranks; --rank shows them</p>\n",
                n - STRIPS_MAX);
    if (p->r->collectives.clocks_differ)
        fputs("<p class=\"dim\">Clocks of the ranks differ; strips are aligned on the ends of "
              "collectives.</p>\n",
              p->out);
}

/* ---- tables ---- */

/* Heads are ours: separated by '|', those that begin with '<' to the left. */
static void open_table(Page *p, const char *title, const char *heads)
{
    fprintf(p->out, "<h2>%s</h2>\n<div class=\"wide\"><table><tr>", title);
    for (const char *at = heads; *at;) {
        size_t n = strcspn(at, "|");
        bool left = *at == '<';
        fprintf(p->out, "<th%s>%.*s</th>", left ? " class=\"l\"" : "", (int)(n - left),
                at + left);
        at += n + (at[n] == '|');
    }
    fputs("</tr>\n", p->out);
}

static void close_table(Page *p)
{
    fputs("</table></div>\n", p->out);
}

static void put_cell(Page *p, const char *text)
{
    fprintf(p->out, "<td>%s</td>", text);
}

static void put_name(Page *p, const char *name)
{
    fputs("<td class=\"name\" title=\"", p->out);
    put_text(p->out, name);
    fputs("\">", p->out);
    put_text(p->out, name);
    fputs("</td>", p->out);
}

static void put_bar(Page *p, const Metrics *m)
{
    int64_t part_ns[REPORT_PARTS_N] = { m->compute_ns - m->overlapped_ns, m->overlapped_ns,
                                        m->exposed_comm_ns,
                                        m->busy_ns - m->compute_ns - m->exposed_comm_ns,
                                        m->idle_ns };
    fputs("<td>", p->out);
    p->pictures->bar(p->pictures->user, part_ns, p->out);
    fputs("</td>", p->out);
}

static void put_metrics(Page *p, const Metrics *m)
{
    put_bar(p, m);
    put_cell(p, NS(m->span_ns));
    put_cell(p, NS(m->idle_ns));
    put_cell(p, NS(m->compute_ns));
    put_cell(p, NS(m->memory_ns));
    put_cell(p, NS(m->comm_ns));
    put_cell(p, NS(m->overlapped_ns));
    put_cell(p, NS(m->exposed_comm_ns));
    put_cell(p, PERCENT(metrics_overlap_pct(m)));
    fputs("</tr>\n", p->out);
}

static const char metric_heads[] =
    "<share of its time|span|idle|compute|memory|comm|overlapped|exposed|overlap";

static void put_ranks(Page *p)
{
    char heads[160];
    snprintf(heads, sizeof heads, "<rank|%s", metric_heads);
    if (p->r->shown_n == 0)
        return;
    open_table(p, "Ranks", heads);
    for (uint32_t i = 0; i < p->r->covers.n; i++)
        if (p->r->shown[i]) {
            fprintf(p->out, "<tr><td class=\"l\">%" PRIu32 "</td>", p->r->covers.rank[i].rank);
            put_metrics(p, &p->r->metrics[i]);
        }
    if (p->r->busy_n > 1) {
        fputs("<tr class=\"mean\"><td class=\"l\">mean</td>", p->out);
        put_metrics(p, &p->r->mean);
    }
    close_table(p);
}

static void put_steps(Page *p)
{
    enum { ROWS_MAX = 400 };
    const TraceReport *r = p->r;
    char heads[160];
    uint32_t n = 0;
    snprintf(heads, sizeof heads, "<rank, step|%s", metric_heads);
    if (r->steps.n < 2 || r->options.step >= 0)
        return;
    open_table(p, "Steps", heads);
    for (uint32_t i = 0; i < r->steps.n && n < ROWS_MAX; i++) {
        const StepWindow *s = &r->steps.at[i];
        const Cover *c = covers_of_rank(&r->covers, s->rank);
        if (!r->shown[c - r->covers.rank])
            continue;
        Metrics m = metrics_of_window(c, r->t, s->from_ns, s->to_ns);
        fprintf(p->out, "<tr><td class=\"l\">%" PRIu32 ", %" PRId64 "</td>", s->rank, s->step);
        put_metrics(p, &m);
        n++;
    }
    close_table(p);
}

static void put_collectives(Page *p)
{
    const Collectives *c = &p->r->collectives;
    if (c->rows_n == 0)
        return;
    open_table(p, "Communication",
               "<operation|<group|ranks|bytes|count|all ranks|waiting|exposed|transfer each|"
               "algbw GB/s|busbw GB/s");
    for (uint32_t i = 0; i < c->rows_n && i < p->r->options.top; i++) {
        const CollRow *row = &c->rows[i];
        fputs("<tr>", p->out);
        put_name(p, row->name);
        put_name(p, row->group);
        put_cell(p, row->ranks_n ? COUNT(row->ranks_n) : "-");
        put_cell(p, word_bytes(word_next(&p->words), row->bytes));
        put_cell(p, COUNT(row->count));
        put_cell(p, NS(row->total_ns));
        put_cell(p, row->wait_ns < 0 ? "-" : SHARE(row->wait_ns, row->total_ns));
        put_cell(p, NS(row->exposed_ns));
        put_cell(p, NS(row->transfer_median_ns));
        put_cell(p, word_number(word_next(&p->words), row->algbw_GBps));
        put_cell(p, word_number(word_next(&p->words), row->busbw_GBps));
        fputs("</tr>\n", p->out);
    }
    close_table(p);
}

static void put_stragglers(Page *p)
{
    const TraceReport *r = p->r;
    uint32_t *ranks = mem_zero(r->covers.n, sizeof *ranks);
    uint32_t n = trace_report_stragglers(r, ranks);
    if (n > 0)
        open_table(p, "Who is waited for",
                   "<rank|last in|others wait|meanwhile it computes|communicates|idles");
    for (uint32_t i = 0; i < n; i++) {
        const CollRank *c = &r->collectives.ranks[ranks[i]];
        fprintf(p->out, "<tr><td class=\"l\">rank %" PRIu32 "</td>",
                r->covers.rank[ranks[i]].rank);
        put_cell(p, COUNT(c->last_n));
        put_cell(p, NS(c->waited_ns));
        put_cell(p, SHARE(c->late.compute_ns, c->late.span_ns));
        put_cell(p, SHARE(c->late.exposed_comm_ns, c->late.span_ns));
        put_cell(p, SHARE(c->late.idle_ns, c->late.span_ns));
        fputs("</tr>\n", p->out);
    }
    if (n > 0)
        close_table(p);
    free(ranks);
}

static void put_gaps(Page *p)
{
    const TraceReport *r = p->r;
    if (r->busy_n == 0)
        return;
    open_table(p, "Why GPUs stood still",
               "<rank|idle|launched late|gaps|host synced|gaps|other reasons|gaps|"
               "no launch known|gaps");
    for (uint32_t i = 0; i < r->covers.n; i++) {
        if (!r->shown[i] || r->covers.rank[i].n == 0)
            continue;
        fprintf(p->out, "<tr><td class=\"l\">%" PRIu32 "</td>", r->covers.rank[i].rank);
        put_cell(p, NS(r->metrics[i].idle_ns));
        for (int k = 0; k < GAP_KIND_N; k++) {
            put_cell(p, NS(r->gaps.ranks[i].ns[k]));
            put_cell(p, COUNT(r->gaps.ranks[i].n[k]));
        }
        fputs("</tr>\n", p->out);
    }
    close_table(p);
}

static void put_kernels(Page *p)
{
    const Gaps *g = &p->r->gaps;
    if (g->kernels_n == 0)
        return;
    open_table(p, "Kernels", "<name|<class|count|total|mean|share");
    for (uint32_t i = 0; i < g->kernels_n && i < p->r->options.top; i++) {
        const KernelRow *k = &g->kernels[i];
        fputs("<tr>", p->out);
        put_name(p, timeline_text(p->r->t, k->name));
        fprintf(p->out, "<td class=\"l\">%s</td>", span_class_names[k->class_]);
        put_cell(p, COUNT(k->count));
        put_cell(p, NS(k->total_ns));
        put_cell(p, NS(k->total_ns / (int64_t)k->count));
        put_cell(p, SHARE(k->total_ns, g->kernels_ns));
        fputs("</tr>\n", p->out);
    }
    close_table(p);
}

static void put_streams(Page *p)
{
    const Gaps *g = &p->r->gaps;
    if (g->streams_n == 0)
        return;
    open_table(p, "Streams", "<rank|<stream|count|busy|idle|busy");
    for (uint32_t i = 0; i < g->streams_n; i++) {
        const StreamRow *s = &g->streams[i];
        const Track *k = &p->r->t->tracks[s->track];
        fprintf(p->out, "<tr><td class=\"l\">%" PRIu32 "</td>", k->rank);
        put_name(p, timeline_text(p->r->t, k->name));
        put_cell(p, COUNT(s->count));
        put_cell(p, NS(s->busy_ns));
        put_cell(p, NS(s->idle_ns));
        put_cell(p, SHARE(s->busy_ns, s->busy_ns + s->idle_ns));
        fputs("</tr>\n", p->out);
    }
    close_table(p);
}

static void put_clocks(Page *p)
{
    const Collectives *c = &p->r->collectives;
    if (!c->clocks_compared)
        return;
    open_table(p, "Clocks", "<rank|ahead of the first rank");
    for (uint32_t i = 0; i < c->ranks_n; i++)
        fprintf(p->out, "<tr><td class=\"l\">%" PRIu32 "</td><td>%s</td></tr>\n",
                p->r->covers.rank[i].rank,
                word_signed_ns(word_next(&p->words), c->ranks[i].offset_ns));
    close_table(p);
    fprintf(p->out,
            "<p class=\"dim\">Offsets by the ends of collectives, %s; ends agree "
            "within %s (median), %s (largest).</p>\n",
            c->clocks_differ ? "applied" : "not applied: one clock", NS(c->residual_ns),
            NS(c->residual_max_ns));
}

void trace_report_html(const TraceReport *r, const ReportPictures *pictures, FILE *out)
{
    Page page = { .r = r, .pictures = pictures, .out = out }, *p = &page;
    put_head(p);
    put_title(p);
    put_cards(p);
    put_strips(p);
    put_ranks(p);
    put_stragglers(p);
    put_collectives(p);
    put_gaps(p);
    put_kernels(p);
    put_streams(p);
    put_steps(p);
    put_clocks(p);
    fputs("<p class=\"dim\">Times are unions of intervals: compute is what GPU kernels other "
          "than "
          "communication take, exposed is communication without compute beside it, idle is "
          "the span without any of them.</p>\n</main></body></html>\n",
          out);
}

/*
 * trace_report_html.c - a trace as one page: tables, and for each rank a strip of what
 * its GPU did when.  No script, no network; light and dark as the reader's system is.
 *
 *     strip   a column for each of BINS_N equal times; its height is divided among
 *             exposed communication (top, hatched), overlapped, memory, compute
 *
 *     #   exposed            The hatch says what colour alone would not: the page
 *     =   overlapped         must be readable without colours too.
 *     @   compute
 *
 * Everything from the trace goes through put_text, which escapes it.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "profile/trace_report.h"
#include "profile/trace_words.h"

enum { BINS_N = 480, BIN_WIDTH = 2, STRIP_HEIGHT = 26, HINTS_N = 48, STRIPS_MAX = 64 };

typedef struct Page {
    const TraceReport *r;
    FILE *out;
    WordRing words;
} Page;

#define NS(x)            word_ns(word_next(&p->words), (x))
#define COUNT(x)         word_count(word_next(&p->words), (x))
#define PERCENT(x)       word_percent(word_next(&p->words), (x))
#define SHARE(part, all) word_percent(word_next(&p->words), word_share((part), (all)))

/* ---- text ---- */

/* Escaped, control bytes as '?', what is no UTF-8 as U+FFFD. */
static size_t utf8_bytes(const unsigned char *c)
{
    size_t n = *c < 0x80                 ? 1
               : *c >= 0xc2 && *c < 0xe0 ? 2
               : *c >= 0xe0 && *c < 0xf0 ? 3
               : *c >= 0xf0 && *c < 0xf5 ? 4
                                         : 0;
    for (size_t i = 1; i < n; i++)
        if ((c[i] & 0xc0) != 0x80)
            return 0;
    return n;
}

static void put_text(FILE *out, const char *text)
{
    for (const unsigned char *c = (const unsigned char *)text; *c;) {
        size_t n = utf8_bytes(c);
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
            else if (*c < 0x20 || *c == 0x7f)
                fputc('?', out);
            else
                fwrite(c, 1, n, out);
        }
        c += n ? n : 1;
    }
}

/* ---- the page's head ---- */

static const char style[] =
    ":root{color-scheme:light dark;--back:#fff;--card:#f6f7f9;--text:#1a1d21;--dim:#5c6470;"
    "--line:#e1e5ea;\n"
    "--compute:#041c7b;--overlapped:#0a665d;--exposed:#e67452;--stripe:#8e2f10;"
    "--memory:#b40aed;--idle:#e1e5ea}\n"
    "@media(prefers-color-scheme:dark){:root{--back:#14171b;--card:#1c2026;--text:#e8eaed;"
    "--dim:#9aa2ad;--line:#343a42;\n"
    "--compute:#3c63b5;--overlapped:#66d3b9;--exposed:#e0491f;--stripe:#ffd9cc;"
    "--memory:#f49efa;--idle:#343a42}}\n"
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
    ".key svg{vertical-align:-2px;margin-right:6px}\n"
    "svg{display:block}.key svg{display:inline}\n"
    ".strip{display:grid;grid-template-columns:76px 1fr 92px;gap:10px;align-items:center;"
    "margin:3px 0}\n"
    ".strip svg{width:100%;height:28px;border-radius:3px}\n"
    ".strip .l{font-weight:500}.strip .v{text-align:right;font-variant-numeric:tabular-nums}\n"
    ".c{fill:var(--compute)}.o{fill:var(--overlapped)}.e{fill:url(#hatch)}.m{fill:var(--memory)"
    "}"
    ".i{fill:var(--idle)}\n"
    ".x{fill:var(--exposed)}.s{stroke:var(--stripe);stroke-width:1.4;stroke-opacity:.55}"
    ".h{fill:transparent}.h:hover{fill:var(--text);fill-opacity:.14}\n"
    ".a{stroke:var(--dim)}text{fill:var(--dim);font-size:11px}\n"
    "td .bar{width:180px;height:12px;border-radius:2px}\n"
    "@media print{main{max-width:none}}\n";

static void put_head(Page *p)
{
    fputs("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>",
          p->out);
    put_text(p->out, p->r->source.name);
    fprintf(p->out, " - lockstep report</title>\n<style>\n%s</style></head><body><main>\n",
            style);
    fputs(
        "<svg width=\"0\" height=\"0\" style=\"position:absolute\" aria-hidden=\"true\"><defs>"
        "<pattern id=\"hatch\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
        "patternTransform=\"rotate(45)\"><rect class=\"x\" width=\"6\" height=\"6\"/>"
        "<path class=\"s\" d=\"M0 0v6\"/></pattern></defs></svg>\n",
        p->out);
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
    int64_t total_ns = 0, wait_ns = 0, transfer_ns = 0;
    for (uint32_t i = 0; i < p->r->covers.n; i++) {
        const CollRank *c = &p->r->collectives.ranks[i];
        total_ns += p->r->shown[i] ? c->total_ns : 0;
        wait_ns += p->r->shown[i] ? c->wait_ns : 0;
        transfer_ns += p->r->shown[i] ? c->transfer_ns : 0;
    }
    if (wait_ns + transfer_ns == 0)
        return;
    char *below = word_next(&p->words);
    snprintf(below, WORD_CAP, "of communication waits for another rank; %s is transfer",
             SHARE(transfer_ns, total_ns));
    put_card(p, "", "waiting", SHARE(wait_ns, total_ns), below);
}

static void put_straggler_card(Page *p)
{
    const TraceReport *r = p->r;
    uint32_t *ranks = mem_zero(r->covers.n, sizeof *ranks);
    if (trace_report_stragglers(r, ranks) > 0) {
        const CollRank *c = &r->collectives.ranks[ranks[0]];
        char *value = word_next(&p->words), *below = word_next(&p->words);
        snprintf(value, WORD_CAP, "rank %" PRIu32, r->covers.rank[ranks[0]].rank);
        snprintf(below, WORD_CAP, "%s in all: last in %s of %s collectives", NS(c->waited_ns),
                 COUNT(c->last_n), COUNT(r->collectives.matches_n));
        put_card(p, "", "most waited for", value, below);
    }
    free(ranks);
}

static void put_cards(Page *p)
{
    const Metrics *m = &p->r->mean;
    const char *each = p->r->busy_n > 1 ? " a rank" : "";
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

/* What a column is divided into, from the bottom up. */
typedef enum Band { BAND_COMPUTE, BAND_MEMORY, BAND_OVERLAPPED, BAND_EXPOSED, BAND_N } Band;

static const char *const band_classes[BAND_N] = { "c", "m", "o", "e" };
static const char *const band_names[BAND_N] = { "compute", "memory", "overlapped",
                                                "exposed communication" };

/* Each instant belongs to one band. */
static void bands_of(int64_t ns[BAND_N], const CoverSum *s)
{
    for (int b = 0; b < BAND_N; b++)
        ns[b] = 0;
    for (int mask = 1; mask < COVER_MASKS; mask++) {
        bool comm = mask & COVER_COMM, compute = mask & COVER_COMPUTE;
        Band band = comm ? (compute ? BAND_OVERLAPPED : BAND_EXPOSED)
                         : (compute ? BAND_COMPUTE : BAND_MEMORY);
        ns[band] += s->ns[mask];
    }
}

typedef struct Range {
    int64_t from_ns, to_ns;
} Range;

/* Of all ranks shown, on aligned clocks. */
static Range range_of(const TraceReport *r)
{
    Range all = { INT64_MAX, INT64_MIN };
    for (uint32_t i = 0; i < r->covers.n; i++) {
        if (!r->shown[i] || r->from_ns[i] >= r->to_ns[i])
            continue;
        all.from_ns =
            min_i64(all.from_ns, collectives_aligned_ns(&r->collectives, i, r->from_ns[i]));
        all.to_ns = max_i64(all.to_ns, collectives_aligned_ns(&r->collectives, i, r->to_ns[i]));
    }
    return all;
}

/* Bin b of n of the range, on the rank's own clock, and nothing outside of its window. */
static CoverSum bin_of(const TraceReport *r, CoverCursor *cursor, uint32_t i, Range all, int b,
                       int n)
{
    int64_t offset_ns = collectives_aligned_ns(&r->collectives, i, 0);
    double width = (double)(all.to_ns - all.from_ns) / n;
    int64_t from_ns = all.from_ns - offset_ns + (int64_t)(width * b);
    int64_t to_ns = all.from_ns - offset_ns + (int64_t)(width * (b + 1));
    return cover_next(cursor, max_i64(from_ns, r->from_ns[i]), min_i64(to_ns, r->to_ns[i]));
}

/* Tenths of a pixel from the bottom up to the top of each band, by bin. */
static void heights_of(int (*top)[BAND_N], const TraceReport *r, uint32_t i, Range all)
{
    CoverCursor cursor = { .cover = &r->covers.rank[i] };
    double width = (double)(all.to_ns - all.from_ns) / BINS_N;
    for (int b = 0; b < BINS_N; b++) {
        CoverSum sum = bin_of(r, &cursor, i, all, b, BINS_N);
        int64_t ns[BAND_N], below_ns = 0;
        bands_of(ns, &sum);
        for (int k = 0; k < BAND_N; k++) {
            below_ns += ns[k];
            double part = width > 0 ? (double)below_ns / width : 0;
            top[b][k] = (int)lround(10.0 * STRIP_HEIGHT * fmin(part, 1));
        }
    }
}

/* Equal columns side by side become one rectangle of the path. */
static void put_band(FILE *out, int (*top)[BAND_N], int k)
{
    fprintf(out, "<path class=\"%s\" d=\"", band_classes[k]);
    for (int b = 0, end; b < BINS_N; b = end) {
        int low = k ? top[b][k - 1] : 0, high = top[b][k];
        for (end = b + 1;
             end < BINS_N && top[end][k] == high && (k ? top[end][k - 1] : 0) == low;)
            end++;
        if (high > low)
            fprintf(out, "M%d %.4gh%dv%.4gh%dz", b * BIN_WIDTH, STRIP_HEIGHT - high / 10.0,
                    (end - b) * BIN_WIDTH, (high - low) / 10.0, -(end - b) * BIN_WIDTH);
    }
    fputs("\"/>\n", out);
}

/* Invisible fields that say in numbers what is drawn below them. */
static void put_hints(Page *p, uint32_t i, Range all)
{
    CoverCursor cursor = { .cover = &p->r->covers.rank[i] };
    for (int h = 0; h < HINTS_N; h++) {
        CoverSum sum = bin_of(p->r, &cursor, i, all, h, HINTS_N);
        int64_t ns[BAND_N], all_ns = 0;
        double width = (double)(all.to_ns - all.from_ns) / HINTS_N;
        bands_of(ns, &sum);
        for (int mask = 0; mask < COVER_MASKS; mask++)
            all_ns += sum.ns[mask];
        if (all_ns == 0)
            continue;
        fprintf(p->out,
                "<rect class=\"h\" x=\"%d\" width=\"%d\" height=\"%d\"><title>rank "
                "%" PRIu32 ", from %s on",
                h * BINS_N * BIN_WIDTH / HINTS_N, BINS_N * BIN_WIDTH / HINTS_N, STRIP_HEIGHT,
                p->r->covers.rank[i].rank, NS((int64_t)(width * h)));
        for (int k = 0; k < BAND_N; k++)
            if (ns[k] > 0)
                fprintf(p->out, "\n%s %s", band_names[k], SHARE(ns[k], all_ns));
        fprintf(p->out, "\nidle %s</title></rect>\n", SHARE(sum.ns[0], all_ns));
    }
}

static void put_strip(Page *p, uint32_t i, Range all)
{
    static const char svg[] = "<svg viewBox=\"0 0 %d %d\" preserveAspectRatio=\"none\" "
                              "role=\"img\" aria-label=\"rank %" PRIu32 " over time\">\n"
                              "<rect class=\"i\" width=\"%d\" height=\"%d\"/>\n";
    int(*top)[BAND_N] = mem_zero(BINS_N, sizeof *top);
    uint32_t rank = p->r->covers.rank[i].rank;
    heights_of(top, p->r, i, all);
    fprintf(p->out, "<div class=\"strip\"><span class=\"l\">rank %" PRIu32 "</span>", rank);
    fprintf(p->out, svg, BINS_N * BIN_WIDTH, STRIP_HEIGHT, rank, BINS_N * BIN_WIDTH,
            STRIP_HEIGHT);
    for (int k = 0; k < BAND_N; k++)
        put_band(p->out, top, k);
    put_hints(p, i, all);
    fprintf(p->out, "</svg><span class=\"v\">%s</span></div>\n",
            SHARE(p->r->metrics[i].exposed_comm_ns, p->r->metrics[i].span_ns));
    free(top);
}

/* 1, 2 or 5 times a power of ten, so that at least four ticks fit. */
static int64_t tick_ns(int64_t range_ns)
{
    int64_t ten = 1;
    while (ten <= range_ns / 40)
        ten *= 10;
    return range_ns / (5 * ten) >= 4 ? 5 * ten : range_ns / (2 * ten) >= 4 ? 2 * ten : ten;
}

static void put_axis(Page *p, Range all)
{
    int64_t range_ns = all.to_ns - all.from_ns, tick = tick_ns(range_ns);
    fputs("<div class=\"strip\"><span></span><svg viewBox=\"0 0 960 18\" "
          "style=\"height:auto\">",
          p->out);
    for (int64_t at = 0; at <= range_ns; at += tick) {
        double x = BINS_N * BIN_WIDTH * (double)at / (double)range_ns;
        const char *anchor = at == 0 ? "start" : x > 930 ? "end" : "middle";
        fprintf(p->out,
                "<path class=\"a\" d=\"M%.1f 0v4\"/><text x=\"%.1f\" y=\"15\" "
                "text-anchor=\"%s\">%s</text>",
                fmin(fmax(x, 0.5), 959.5), x, anchor, NS(at));
    }
    fputs("</svg><span></span></div>\n", p->out);
}

static void put_key(Page *p)
{
    fputs("<div class=\"key\">", p->out);
    for (int k = 0; k < BAND_N; k++)
        fprintf(p->out,
                "<span><svg width=\"14\" height=\"14\"><rect class=\"%s\" width=\"14\" "
                "height=\"14\"/></svg>%s</span>",
                band_classes[k], band_names[k]);
    fputs("<span><svg width=\"14\" height=\"14\"><rect class=\"i\" width=\"14\" height=\"14\"/>"
          "</svg>idle</span></div>\n<div class=\"strip dim\"><span></span><span></span>"
          "<span class=\"v\">exposed</span></div>\n",
          p->out);
}

static void put_strips(Page *p)
{
    Range all = range_of(p->r);
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
    int64_t ns[] = { m->compute_ns - m->overlapped_ns, m->overlapped_ns, m->exposed_comm_ns,
                     m->busy_ns - m->compute_ns - m->exposed_comm_ns };
    static const char *const classes[] = { "c", "o", "e", "m" };
    double x = 0;
    fputs("<td><svg class=\"bar\" viewBox=\"0 0 180 12\" preserveAspectRatio=\"none\">"
          "<rect class=\"i\" width=\"180\" height=\"12\"/>",
          p->out);
    for (size_t k = 0; k < ARRAY_N(ns) && m->span_ns > 0; k++) {
        double width = 180.0 * (double)ns[k] / (double)m->span_ns;
        if (width > 0)
            fprintf(p->out, "<rect class=\"%s\" x=\"%.2f\" width=\"%.2f\" height=\"12\"/>",
                    classes[k], x, width);
        x += width;
    }
    fputs("</svg></td>", p->out);
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

void trace_report_html(const TraceReport *r, FILE *out)
{
    Page page = { .r = r, .out = out }, *p = &page;
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

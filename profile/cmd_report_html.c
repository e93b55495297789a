/*
 * cmd_report_html.c - pictures of a report: what the viewer draws, as SVG inside of the page.
 *
 *     Cover --viz/lod.h--> pyramid --viz/strip.h--> draw list --viz/svg.h--> <svg>
 *
 * All is drawn with the light theme; its colours go out as var(--name), so that the page's
 * style sheet, which is written from both themes, turns it dark.  Over a strip lie fields
 * that cannot be seen and say in numbers what is below them: exact sums, as all that is printed.
 */
#include "profile/cmd_report_html.h"
#include "profile/trace_words.h"
#include "viz/strip.h"
#include "viz/svg.h"

#include <string.h>

/* Pixels of the pictures; the page stretches strips to its width. */
enum { STRIP_WIDTH = 960, STRIP_HEIGHT = 28, TICKS_MAX = 8, HINTS_N = 48 };
enum { BAR_WIDTH = 180, BAR_HEIGHT = 12, SWATCH = 14 };

/* A field with a tooltip: nothing to see, until the mouse is over it. */
static const Color hint_color = 0x01000000;

static const TimeClass part_classes[REPORT_PARTS_N] = { TIME_COMPUTE, TIME_OVERLAPPED,
                                                        TIME_EXPOSED, TIME_MEMORY, TIME_IDLE };
static const char *const part_colors[REPORT_PARTS_N] = { "compute", "overlapped", "exposed",
                                                         "memory", "idle" };

static const struct {
    ThemeColor color;
    const char *name;
} page_colors[] = { { THEME_BACKGROUND, "back" }, { THEME_PANEL, "card" },
                    { THEME_TEXT, "text" },       { THEME_DIM, "dim" },
                    { THEME_LINE, "line" },       { THEME_STRIPE, "stripe" } };

enum { NAMES_N = REPORT_PARTS_N + ARRAY_N(page_colors) + 1 };

typedef struct Pictures {
    const Theme *theme;
    Font font;
    DrawList list;
    SvgName names[NAMES_N];
    SvgPage page;
} Pictures;

/* ---- colours ---- */

static void find_names(const Theme *t, SvgName names[NAMES_N])
{
    uint32_t n = 0;
    for (size_t i = 0; i < REPORT_PARTS_N; i++)
        names[n++] = (SvgName){ t->time[part_classes[i]], part_colors[i] };
    for (size_t i = 0; i < ARRAY_N(page_colors); i++)
        names[n++] = (SvgName){ t->color[page_colors[i].color], page_colors[i].name };
    names[n++] = (SvgName){ hint_color, "hint" };
    ASSERT(n == NAMES_N);
}

static void put_theme(const Theme *t, FILE *out)
{
    SvgName names[NAMES_N];
    find_names(t, names);
    for (size_t i = 0; i < NAMES_N; i++) {
        Color c = names[i].color;
        fprintf(out, "%s--%s:#%06" PRIx32, i ? ";" : "", names[i].name, c & 0xffffff);
        if (color_alpha(c) < 255)
            fprintf(out, "%02" PRIx32, color_alpha(c));
    }
}

static void put_colors(void *user, FILE *out)
{
    (void)user;
    fputs(":root{color-scheme:light dark;", out);
    put_theme(theme_light(), out);
    fputs("}\n@media(prefers-color-scheme:dark){:root{", out);
    put_theme(theme_dark(), out);
    fputs("}}\n", out);
}

/* ---- small pictures ---- */

static void begin(Pictures *p, int32_t width, int32_t height)
{
    draw_begin(&p->list, &p->font, width, height, p->theme->color[THEME_BACKGROUND]);
}

static void put_swatch(void *user, ReportPart part, FILE *out)
{
    Pictures *p = user;
    begin(p, SWATCH, SWATCH);
    theme_span(&p->list, p->theme, part_classes[part], px_box(0, 0, PX(SWATCH), PX(SWATCH)),
               255);
    svg_write_on(&p->page, &p->list, "width=\"14\" height=\"14\"", out);
}

static void put_bar(void *user, const int64_t part_ns[REPORT_PARTS_N], FILE *out)
{
    Pictures *p = user;
    int64_t all_ns = 0, before_ns = 0;
    for (int i = 0; i < REPORT_PARTS_N; i++)
        all_ns += part_ns[i];
    begin(p, BAR_WIDTH, BAR_HEIGHT);
    for (int i = 0; i < REPORT_PARTS_N && all_ns > 0; i++) {
        Px x0 = px_between(0, PX(BAR_WIDTH), before_ns, all_ns);
        Px x1 = px_between(0, PX(BAR_WIDTH), before_ns + part_ns[i], all_ns);
        theme_span(&p->list, p->theme, part_classes[i], (PxBox){ x0, 0, x1, PX(BAR_HEIGHT) },
                   255);
        before_ns += part_ns[i];
    }
    svg_write_on(&p->page, &p->list, "class=\"bar\" preserveAspectRatio=\"none\"", out);
}

/* ---- strips ---- */

/* Each instant belongs to one part. */
static void parts_of(int64_t part_ns[REPORT_PARTS_N], const CoverSum *s)
{
    memset(part_ns, 0, REPORT_PARTS_N * sizeof *part_ns);
    part_ns[REPORT_IDLE] = s->ns[0];
    for (int mask = 1; mask < COVER_MASKS; mask++) {
        bool comm = mask & COVER_COMM, compute = mask & COVER_COMPUTE;
        ReportPart part = comm ? (compute ? REPORT_OVERLAPPED : REPORT_EXPOSED)
                               : (compute ? REPORT_COMPUTE : REPORT_MEMORY);
        part_ns[part] += s->ns[mask];
    }
}

/* A rank, and what all strips span on its own clock. */
typedef struct Place {
    const TraceReport *r;
    uint32_t i;
    int64_t from_ns, to_ns;
} Place;

static Px x_of(const Place *at, int64_t ns)
{
    Px x = px_between(0, PX(STRIP_WIDTH), ns - at->from_ns, at->to_ns - at->from_ns);
    return PX(px_round(px_max(0, px_min(PX(STRIP_WIDTH), x))));
}

static void draw_strip(Pictures *p, const Place *at)
{
    int64_t from_ns = at->r->from_ns[at->i], to_ns = at->r->to_ns[at->i];
    Px x0 = x_of(at, from_ns), x1 = px_max(x_of(at, to_ns), x0 + PX(1));
    Strip strip = { .d = &p->list,
                    .theme = p->theme,
                    .window = { from_ns, to_ns, (uint32_t)px_round(x1 - x0) },
                    .box = { x0, 0, x1, PX(STRIP_HEIGHT) } };
    LodRow row;
    if (from_ns >= to_ns)
        return;
    lod_build_strip(&row, &at->r->covers.rank[at->i]);
    strip_draw(&strip, &row);
    lod_free(&row);
}

static void hint_text(char *text, size_t cap, const Place *at, int64_t from_ns,
                      const CoverSum *sum)
{
    WordRing words = { .n = 0 };
    int64_t part_ns[REPORT_PARTS_N], all_ns = 0;
    parts_of(part_ns, sum);
    for (int k = 0; k < REPORT_PARTS_N; k++)
        all_ns += part_ns[k];
    size_t n = (size_t)snprintf(text, cap, "rank %" PRIu32 ", from %s on",
                                at->r->covers.rank[at->i].rank,
                                word_ns(word_next(&words), from_ns - at->from_ns));
    for (int k = 0; k < REPORT_PARTS_N; k++)
        if ((part_ns[k] > 0 || k == REPORT_IDLE) && n < cap)
            n += (size_t)snprintf(
                text + n, cap - n, "\n%s %s", report_part_names[k],
                word_percent(word_next(&words), word_share(part_ns[k], all_ns)));
}

static void draw_hints(Pictures *p, const Place *at)
{
    CoverCursor cursor = { .cover = &at->r->covers.rank[at->i] };
    double width_ns = (double)(at->to_ns - at->from_ns) / HINTS_N;
    Px width = PX(STRIP_WIDTH / HINTS_N);
    for (int h = 0; h < HINTS_N; h++) {
        int64_t from_ns = at->from_ns + (int64_t)(width_ns * h);
        int64_t to_ns = at->from_ns + (int64_t)(width_ns * (h + 1));
        int64_t low_ns = max_i64(from_ns, at->r->from_ns[at->i]);
        int64_t high_ns = min_i64(to_ns, at->r->to_ns[at->i]);
        CoverSum sum = cover_next(&cursor, low_ns, high_ns);
        char text[256];
        if (low_ns >= high_ns)
            continue;
        hint_text(text, sizeof text, at, from_ns, &sum);
        draw_tip(&p->list, NONE_U32, text);
        draw_rect(&p->list, px_box(width * h, 0, width, PX(STRIP_HEIGHT)), hint_color);
    }
}

static void put_strip(void *user, const TraceReport *r, uint32_t i, ReportRange all, FILE *out)
{
    Pictures *p = user;
    int64_t offset_ns = collectives_aligned_ns(&r->collectives, i, 0);
    Place at = { r, i, all.from_ns - offset_ns, all.to_ns - offset_ns };
    char attributes[128];
    begin(p, STRIP_WIDTH, STRIP_HEIGHT);
    draw_strip(p, &at);
    draw_hints(p, &at);
    snprintf(attributes, sizeof attributes,
             "class=\"lane\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"rank "
             "%" PRIu32 " over time\"",
             r->covers.rank[i].rank);
    svg_write_on(&p->page, &p->list, attributes, out);
}

/* Text of the page, not of a picture: as wide as the window is, pictures shrink, and what is
 * written in them as well. */
static void put_axis(void *user, ReportRange all, FILE *out)
{
    StripTick tick;
    (void)user;
    fputs("<div class=\"axis\">", out);
    for (uint32_t i = 0; strip_tick(all.to_ns - all.from_ns, TICKS_MAX, i, &tick); i++)
        fprintf(out, "<span style=\"left:%.3f%%\">%s</span>", 100 * tick.part, tick.text);
    fputs("</div>\n", out);
}

void report_page(const TraceReport *r, FILE *out)
{
    Pictures p = { .theme = theme_light() };
    ReportPictures pictures = { .user = &p,
                                .colors = put_colors,
                                .swatch = put_swatch,
                                .bar = put_bar,
                                .strip = put_strip,
                                .axis = put_axis };
    font_open(&p.font, 100);
    find_names(p.theme, p.names);
    p.page = (SvgPage){ .names = p.names, .names_n = NAMES_N };
    trace_report_html(r, &pictures, out);
    svg_page_free(&p.page);
    draw_free(&p.list);
    font_free(&p.font);
}

/*
 * svg.c - one element an item, in the list's order.
 *
 * Boxes are cut to their clip by arithmetic; only what cannot be cut so (texts, lines, round
 * and pointed shapes that pass their clip) gets a <g clip-path>.  Numbers have two decimals
 * and come from integers: no locale, the same bytes everywhere.
 */
#include "viz/svg.h"

#include <stdlib.h>
#include <string.h>

#include "core/order.h"
#include "viz/svg_join.h"
#include "viz/svg_words.h"

typedef struct Svg {
    const DrawList *d;
    FILE *out;
    SvgPage *page;
    bool inside;         /* of a page of HTML */
    char prefix[16];     /* of the ids of clips */
    bool *clip_known;    /* [d->clips_n] its <clipPath> was written */
    int64_t smallest;    /* boxes of less area are left out, */
    uint64_t of_it_left; /* and of this area all but so many */
    uint64_t left_out;
} Svg;

static void put_title(Svg *s, uint32_t tip)
{
    const char *text = s->d->chars + tip;
    fputs("<title>", s->out);
    svg_text(s->out, text, strlen(text), true);
    fputs("</title>", s->out);
}

/* "/>" or the tooltip and the end tag. */
static void end_element(Svg *s, const char *name, uint32_t tip)
{
    if (tip == NONE_U32) {
        fputs("/>\n", s->out);
        return;
    }
    fputs(" pointer-events=\"all\">", s->out);
    put_title(s, tip);
    fprintf(s->out, "</%s>\n", name);
}

/* ---- elements ---- */

/* As svg_color, or the name that the page has for it. */
static void put_color(Svg *s, const char *kind, Color color)
{
    for (uint32_t i = 0; i < s->page->names_n; i++)
        if (s->page->names[i].color == color) {
            fprintf(s->out, " %s=\"var(--%s)\"", kind, s->page->names[i].name);
            return;
        }
    svg_color(s->out, kind, color);
}

/* Writes the pattern when it is new; its number. */
static uint32_t pattern_of(Svg *s, Color color, Color color2)
{
    SvgPage *page = s->page;
    uint32_t i = 0;
    while (i < page->hatches_n &&
           (page->hatches[i].color != color || page->hatches[i].color2 != color2))
        i++;
    if (i < page->hatches_n)
        return i;
    GROW(page->hatches, page->hatches_n, page->hatches_cap);
    page->hatches[page->hatches_n++] = (SvgHatch){ color, color2 };
    Px period = PX(s->d->hatch_px), stripe = period * 3 / 8;
    fprintf(s->out, "<pattern id=\"h%" PRIu32 "\" patternUnits=\"userSpaceOnUse\"", i);
    svg_attribute(s->out, "width", period);
    svg_attribute(s->out, "height", period);
    fputs("><rect", s->out);
    svg_attribute(s->out, "width", period);
    svg_attribute(s->out, "height", period);
    put_color(s, "fill", color);
    fputs("/><path d=\"M0 0H", s->out);
    svg_px(s->out, stripe);
    fputs("L0 ", s->out);
    svg_px(s->out, stripe);
    fputs("zM", s->out);
    svg_px(s->out, period);
    fputs(" 0V", s->out);
    svg_px(s->out, stripe);
    fputs("L", s->out);
    svg_px(s->out, stripe);
    fprintf(s->out, " %" PRId32 "H0z\"", s->d->hatch_px);
    put_color(s, "fill", color2);
    fputs("/></pattern>\n", s->out);
    return i;
}

static void put_box(FILE *out, PxBox b)
{
    svg_attribute(out, "x", b.x0);
    svg_attribute(out, "y", b.y0);
    svg_attribute(out, "width", b.x1 - b.x0);
    svg_attribute(out, "height", b.y1 - b.y0);
}

static void put_path_box(FILE *out, PxBox b)
{
    fputc('M', out);
    svg_px(out, b.x0);
    fputc(' ', out);
    svg_px(out, b.y0);
    fputc('h', out);
    svg_px(out, b.x1 - b.x0);
    fputc('v', out);
    svg_px(out, b.y1 - b.y0);
    fputc('h', out);
    svg_px(out, b.x0 - b.x1);
    fputc('z', out);
}

/* pattern: that of a hatch. */
static void put_fill(Svg *s, const DrawItem *item, uint32_t pattern)
{
    if (item->kind == DRAW_HATCH)
        fprintf(s->out, " fill=\"url(#h%" PRIu32 ")\"", pattern);
    else
        put_color(s, "fill", item->color);
}

static void put_rect(Svg *s, const DrawItem *item, PxBox box)
{
    uint32_t pattern = item->kind == DRAW_HATCH ? pattern_of(s, item->color, item->color2) : 0;
    fputs("<rect", s->out);
    put_box(s->out, box);
    if (item->radius)
        svg_attribute(s->out, "rx", item->radius);
    put_fill(s, item, pattern);
    end_element(s, "rect", item->tip);
}

/* A stroke lies half on either side of its path. */
static void put_outline(Svg *s, const DrawItem *item)
{
    fputs("<rect fill=\"none\"", s->out);
    put_box(s->out, px_box_inset(item->box, item->width / 2));
    if (item->radius)
        svg_attribute(s->out, "rx", px_max(0, item->radius - item->width / 2));
    put_color(s, "stroke", item->color);
    svg_attribute(s->out, "stroke-width", item->width);
    end_element(s, "rect", item->tip);
}

static void put_point(FILE *out, Px x, Px y)
{
    svg_px(out, x);
    fputc(',', out);
    svg_px(out, y);
    fputc(' ', out);
}

static void put_chevron(Svg *s, const DrawItem *item)
{
    PxBox b = item->box;
    Px middle = b.y0 + (b.y1 - b.y0) / 2;
    Px notch = px_max(item->radius, 0), point = px_max(-item->radius, 0);
    fputs("<polygon points=\"", s->out);
    put_point(s->out, b.x0 + point, b.y0);
    put_point(s->out, b.x1 - notch, b.y0);
    put_point(s->out, b.x1 - point, middle);
    put_point(s->out, b.x1 - notch, b.y1);
    put_point(s->out, b.x0 + point, b.y1);
    put_point(s->out, b.x0 + notch, middle);
    fputc('"', s->out);
    put_color(s, "fill", item->color);
    end_element(s, "polygon", item->tip);
}

static void put_points(Svg *s, const DrawItem *item)
{
    bool line = item->kind == DRAW_LINE;
    const char *name = line ? "polyline" : "polygon";
    fprintf(s->out, "<%s points=\"", name);
    for (uint32_t i = 0; i < item->n; i++)
        put_point(s->out, s->d->points[item->first + i].x, s->d->points[item->first + i].y);
    fputc('"', s->out);
    if (line) {
        fputs(" fill=\"none\"", s->out);
        svg_attribute(s->out, "stroke-width", item->width);
        if (item->dash)
            svg_attribute(s->out, "stroke-dasharray", item->dash);
        else
            fputs(" stroke-linecap=\"square\"", s->out);
    }
    put_color(s, line ? "stroke" : "fill", item->color);
    end_element(s, name, item->tip);
}

/*
 * textLength keeps the layout where another font has to stand in, the anchor where a viewer
 * does not know textLength.
 */
static void put_letters(Svg *s, const DrawItem *item)
{
    static const char *const anchors[] = { "", " text-anchor=\"middle\"",
                                           " text-anchor=\"end\"" };
    PxBox b = item->box;
    Px x = b.x0 + (b.x1 - b.x0) / 2 * item->align, y = b.y0 + (b.y1 - b.y0) / 2 * item->align;
    fputs("<text", s->out);
    svg_attribute(s->out, "x", x);
    svg_attribute(s->out, "y", y);
    svg_attribute(s->out, "font-size", font_size(s->d->font, item->style));
    svg_attribute(s->out, "textLength", item->turned ? b.y0 - b.y1 : b.x1 - b.x0);
    fputs(anchors[item->align], s->out);
    if (item->style.bold)
        fputs(" font-weight=\"600\"", s->out);
    if (item->turned) {
        fputs(" transform=\"rotate(-90 ", s->out);
        put_point(s->out, x, y);
        fputs(")\"", s->out);
    }
    put_color(s, "fill", item->color);
    fputs(item->tip != NONE_U32 ? " pointer-events=\"all\">" : ">", s->out);
    svg_text(s->out, s->d->chars + item->first, item->n, false);
    if (item->tip != NONE_U32)
        put_title(s, item->tip);
    fputs("</text>\n", s->out);
}

/* ---- boxes that continue one another ---- */

/* What becomes one element: items first ... end - 1, and their box within the clip. */
typedef struct Run {
    uint32_t first, end;
    PxBox box;
} Run;

static bool is_plain(const DrawItem *item)
{
    return (item->kind == DRAW_RECT && item->radius == 0) || item->kind == DRAW_HATCH;
}

static PxBox clip_box(const DrawList *d, const DrawItem *item)
{
    const DrawClip *c = &d->clips[item->clip];
    return (PxBox){ PX(c->x0), PX(c->y0), PX(c->x1), PX(c->y1) };
}

/* b goes on where a ends; a sixteenth of a pixel is no gap. */
static bool continues(const DrawItem *a, const DrawItem *b)
{
    Px gap = b->box.x0 - a->box.x1;
    return b->kind == a->kind && is_plain(b) && b->color == a->color &&
           b->color2 == a->color2 && b->clip == a->clip && b->box.y0 == a->box.y0 &&
           b->box.y1 == a->box.y1 && gap <= PX_ONE / 16 && gap >= -PX_ONE / 16 &&
           a->tip == NONE_U32 && b->tip == NONE_U32 && a->id == b->id;
}

static Run run_at(const DrawList *d, uint32_t first)
{
    const DrawItem *item = &d->items[first];
    Run r = { first, first + 1, item->box };
    if (!is_plain(item))
        return r;
    while (r.end < d->items_n && continues(&d->items[r.end - 1], &d->items[r.end]))
        r.end++;
    r.box.x1 = d->items[r.end - 1].box.x1;
    r.box = px_box_cut(r.box, clip_box(d, item));
    return r;
}

static int64_t area_of(PxBox b)
{
    return (int64_t)(b.x1 - b.x0) * (b.y1 - b.y0);
}

/* So that SVG_ITEMS_MAX elements suffice, the smallest boxes are left out, wherever they are. */
static void find_smallest(Svg *s)
{
    const DrawList *d = s->d;
    int64_t *areas = mem_zero(d->items_n + 1, sizeof *areas);
    uint64_t boxes_n = 0, others_n = 0;
    for (uint32_t i = 0; i < d->items_n;) {
        Run r = run_at(d, i);
        if (is_plain(&d->items[i]))
            areas[boxes_n++] = area_of(r.box);
        else
            others_n++;
        i = r.end;
    }
    uint64_t room = others_n < SVG_ITEMS_MAX ? SVG_ITEMS_MAX - others_n : 0;
    s->smallest = room > 0 ? 0 : INT64_MAX;
    s->of_it_left = room;
    if (boxes_n > room && room > 0) {
        qsort(areas, boxes_n, sizeof *areas, compare_i64);
        s->smallest = areas[boxes_n - room];
        for (uint64_t i = boxes_n; i-- > 0 && areas[i] > s->smallest;)
            s->of_it_left--;
    }
    free(areas);
}

static bool leaves_out(Svg *s, PxBox box)
{
    int64_t area = area_of(box);
    if (area != s->smallest)
        return area < s->smallest;
    if (s->of_it_left == 0)
        return true;
    s->of_it_left--;
    return false;
}

/* ---- the document ---- */

/* Whether all of the item lies within its clip, so that none is needed. */
static bool is_within(const DrawList *d, const DrawItem *item)
{
    PxBox b = item->box, clip = clip_box(d, item);
    if (item->kind == DRAW_TEXT) {
        Px line = font_line_height(d->font, item->style);
        b = (PxBox){ b.x0 - line, px_min(b.y0, b.y1) - line, b.x1 + line, b.y0 + line };
    }
    return b.x0 >= clip.x0 && b.y0 >= clip.y0 && b.x1 <= clip.x1 && b.y1 <= clip.y1;
}

static void open_clip(Svg *s, uint32_t clip)
{
    if (!s->clip_known[clip]) {
        const DrawClip *c = &s->d->clips[clip];
        fprintf(s->out, "<clipPath id=\"%sc%" PRIu32 "\"><rect", s->prefix, clip);
        put_box(s->out, (PxBox){ PX(c->x0), PX(c->y0), PX(c->x1), PX(c->y1) });
        fputs("/></clipPath>\n", s->out);
        s->clip_known[clip] = true;
    }
    fprintf(s->out, "<g clip-path=\"url(#%sc%" PRIu32 ")\">\n", s->prefix, clip);
}

static void put_item(Svg *s, const DrawItem *item, PxBox box)
{
    switch ((DrawKind)item->kind) {
    case DRAW_RECT:
    case DRAW_HATCH:
        put_rect(s, item, box);
        break;
    case DRAW_OUTLINE:
        put_outline(s, item);
        break;
    case DRAW_CHEVRON:
        put_chevron(s, item);
        break;
    case DRAW_LINE:
    case DRAW_POLYGON:
        put_points(s, item);
        break;
    case DRAW_TEXT:
        put_letters(s, item);
        break;
    case DRAW_KINDS_N:
        ASSERT(false);
    }
}

/* Boxes that wait, a path for each group; they are cut to their clips, so none is open then. */
static void put_joined(Svg *s, SvgJoin *join, uint32_t *open)
{
    if (join->groups_n > 0 && *open != NONE_U32) {
        fputs("</g>\n", s->out);
        *open = NONE_U32;
    }
    for (uint32_t i = 0; i < join->groups_n; i++) {
        const SvgGroup *g = &join->groups[i];
        uint32_t pattern =
            g->item->kind == DRAW_HATCH ? pattern_of(s, g->item->color, g->item->color2) : 0;
        fputs("<path d=\"", s->out);
        for (uint32_t b = g->first; b != NONE_U32; b = join->boxes[b].next)
            put_path_box(s->out, join->boxes[b].box);
        fputc('"', s->out);
        put_fill(s, g->item, pattern);
        fputs("/>\n", s->out);
    }
    svg_join_clear(join);
}

/* Neighbours with one clip share a <g>. */
static void put_items(Svg *s)
{
    uint32_t open = NONE_U32;
    uint64_t written = 0;
    SvgJoin join = { .groups = NULL };
    for (uint32_t i = 0; i < s->d->items_n;) {
        const DrawItem *item = &s->d->items[i];
        Run r = run_at(s->d, i);
        i = r.end;
        if (written == SVG_ITEMS_MAX || (is_plain(item) && leaves_out(s, r.box))) {
            s->left_out += r.end - r.first;
            continue;
        }
        written++;
        if (s->inside && is_plain(item) && item->tip == NONE_U32) {
            svg_join_add(&join, item, r.box);
            continue;
        }
        put_joined(s, &join, &open);
        uint32_t clip = is_plain(item) || is_within(s->d, item) ? NONE_U32 : item->clip;
        if (clip != open && open != NONE_U32)
            fputs("</g>\n", s->out);
        if (clip != open && clip != NONE_U32)
            open_clip(s, clip);
        open = clip;
        put_item(s, item, r.box);
    }
    put_joined(s, &join, &open);
    svg_join_free(&join);
    if (open != NONE_U32)
        fputs("</g>\n", s->out);
}

static void put_notice(Svg *s)
{
    if (s->left_out == 0)
        return;
    fprintf(s->out,
            "<text x=\"8\" y=\"%" PRId32 "\" font-size=\"11\" fill=\"#e0491f\">%" PRIu64
            " small shapes are left out of this SVG; a PNG shows all</text>\n",
            s->d->height - 6, s->left_out);
}

/* What is between <svg ...> and its end. */
static void put_picture(Svg *s)
{
    s->clip_known = mem_zero(s->d->clips_n, sizeof *s->clip_known);
    find_smallest(s);
    put_items(s);
    put_notice(s);
    fputs("</svg>\n", s->out);
    free(s->clip_known);
}

void svg_write(const DrawList *d, FILE *out)
{
    SvgPage page = { .names = NULL };
    Svg s = { .d = d, .out = out, .page = &page };
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%" PRId32 "\" height=\"%" PRId32
            "\" viewBox=\"0 0 %" PRId32 " %" PRId32 "\"\n     font-family=\"Inter, 'DejaVu "
            "Sans', Helvetica, Arial, sans-serif\" xml:space=\"preserve\"\n     "
            "style=\"font-variant-numeric:"
            "tabular-nums;font-kerning:none;white-space:pre\" pointer-events=\"none\">\n",
            d->width, d->height, d->width, d->height);
    fprintf(out, "<rect width=\"%" PRId32 "\" height=\"%" PRId32 "\"", d->width, d->height);
    svg_color(out, "fill", d->background);
    fputs("/>\n", out);
    put_picture(&s);
    svg_page_free(&page);
}

void svg_write_on(SvgPage *page, const DrawList *d, const char *attributes, FILE *out)
{
    Svg s = { .d = d, .out = out, .page = page, .inside = true };
    snprintf(s.prefix, sizeof s.prefix, "p%" PRIu32, page->pictures_n++);
    fprintf(out, "<svg viewBox=\"0 0 %" PRId32 " %" PRId32 "\" pointer-events=\"none\"%s%s>\n",
            d->width, d->height, *attributes ? " " : "", attributes);
    put_picture(&s);
}

void svg_page_free(SvgPage *page)
{
    free(page->hatches);
    *page = (SvgPage){ .names = NULL };
}

/*
 * test_svg.c - the document is well-formed whatever it shows, joins what belongs together, and
 * says what it left out.
 */
#include "tests/check.h"
#include "viz/svg.h"
#include "viz/svg_join.h"

static const Color red = 0xffff0000;
static const TextStyle small = { TEXT_SMALL, false };

typedef struct World {
    Font font;
    DrawList list;
    char *svg;
} World;

static void world_open(World *w)
{
    *w = (World){ 0 };
    font_open(&w->font, 100);
    draw_begin(&w->list, &w->font, 400, 300, 0xff14171b);
}

static const char *write_it(World *w)
{
    size_t n;
    free(w->svg);
    FILE *out = open_memstream(&w->svg, &n);
    svg_write(&w->list, out);
    fclose(out);
    return w->svg;
}

static const char *write_on(World *w, SvgPage *page)
{
    size_t n;
    free(w->svg);
    FILE *out = open_memstream(&w->svg, &n);
    svg_write_on(page, &w->list, "class=\"a\"", out);
    fclose(out);
    return w->svg;
}

static void world_free(World *w)
{
    free(w->svg);
    draw_free(&w->list);
    font_free(&w->font);
}

static uint32_t count(const char *text, const char *part)
{
    uint32_t n = 0;
    size_t part_n = strlen(part);
    /* Not strstr: under a sanitizer it measures all of the text each time. */
    for (; *text; text++)
        n += strncmp(text, part, part_n) == 0;
    return n;
}

/* ---- is it XML? ---- */

enum { DEPTH_MAX = 16, NAME_CAP = 32 };

typedef struct Xml {
    char open[DEPTH_MAX][NAME_CAP];
    uint32_t depth, elements_n;
} Xml;

/* A tag from behind '<' on; NULL: not well-formed.  Attributes: name="value", once each. */
static const char *read_tag(Xml *x, const char *at)
{
    bool closes = *at == '/';
    char name[NAME_CAP];
    size_t n = strcspn(at + closes, " />\n");
    if (n == 0 || n >= NAME_CAP)
        return NULL;
    memcpy(name, at + closes, n);
    name[n] = 0;
    at += closes + n;
    while (*at == ' ' || *at == '\n') {
        at += strspn(at, " \n");
        size_t word =
            strspn(at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ:-0123456789");
        if (word == 0)
            break;
        if (closes || at[word] != '=' || at[word + 1] != '"')
            return NULL;
        at += word + 2;
        at += strcspn(at, "\"<");
        if (*at++ != '"')
            return NULL;
    }
    bool empty = *at == '/';
    at += empty;
    if (*at++ != '>' || (closes && (x->depth == 0 || strcmp(x->open[--x->depth], name) != 0)))
        return NULL;
    if (!closes && !empty) {
        if (x->depth == DEPTH_MAX)
            return NULL;
        memcpy(x->open[x->depth++], name, n + 1);
    }
    x->elements_n += !closes;
    return at;
}

static bool is_entity(const char *at)
{
    return !strncmp(at, "&lt;", 4) || !strncmp(at, "&gt;", 4) || !strncmp(at, "&amp;", 5);
}

/* The number of elements, 0 when text is no well-formed document of ours. */
static uint32_t xml_elements(const char *text)
{
    Xml x = { .depth = 0 };
    size_t n = strlen(text);
    for (const char *at = text; *at;) {
        size_t here = (size_t)(at - text), next = here;
        if (*at == '<') {
            at = read_tag(&x, at + 1);
            if (!at)
                return 0;
            continue;
        }
        bool replaced = strncmp(at, "\xef\xbf\xbd", 3) == 0;
        if (*at != '\n' && font_next_char(text, n, &next) == 0xfffd && !replaced)
            return 0;
        if ((*at == '&' && !is_entity(at)) || (*at != '\n' && x.depth == 0))
            return 0;
        at = *at == '\n' ? at + 1 : text + next;
    }
    return x.depth == 0 ? x.elements_n : 0;
}

static void the_checker_knows_xml_from_what_is_none(void)
{
    CHECK_INT(2, xml_elements("<a b=\"c\"><d/>x &amp; y</a>\n"));
    CHECK_INT(0, xml_elements("<a><b></a></b>"));
    CHECK_INT(0, xml_elements("<a>"));
    CHECK_INT(0, xml_elements("<a>&</a>"));
    CHECK_INT(0, xml_elements("<a>\x01</a>"));
    CHECK_INT(0, xml_elements("<a>\xff</a>"));
    CHECK_INT(0, xml_elements("<a b=c></a>"));
}

static void draw_one_of_each(DrawList *d, const char *text)
{
    PxBox box = px_box(PX(10), PX(10), PX(200), PX(20));
    PxPoint points[] = { { PX(10), PX(50) }, { PX(90), PX(80) }, { PX(10), PX(120) } };
    draw_tip(d, 1, text);
    draw_rect(d, box, red);
    draw_round(d, box, PX(4), 0x80ff0000);
    draw_tip(d, 1, text);
    draw_hatch(d, box, red, 0x80000000);
    draw_outline(d, box, PX(1), PX(4), red);
    draw_chevron(d, box, PX(5), red);
    draw_line(d, points, 3, PX(1), red);
    draw_dashes(d, points, 3, PX(1), PX(4), red);
    draw_polygon(d, points, 3, red);
    draw_tip(d, 1, text);
    draw_text(d, box, small, ALIGN_LEFT, red, text);
    draw_clip_push(d, px_box(PX(15), PX(15), PX(30), PX(30)));
    draw_text(d, box, small, ALIGN_RIGHT, red, text);
    draw_text_turned(d, box, small, red, text);
    draw_clip_pop(d);
}

static void every_document_is_well_formed(void)
{
    static const char *const texts[] = { "plain",        "<&>\"'",      "\x01\x02\x1b[31m",
                                         "\xff\xfe\xc3", "]]>",         "--><svg>",
                                         "日本\n\tzwei", "\xed\xa0\x80" };
    for (size_t i = 0; i < ARRAY_N(texts); i++) {
        World w;
        world_open(&w);
        draw_one_of_each(&w.list, texts[i]);
        SvgPage page = { .names = NULL };
        CHECK(xml_elements(write_it(&w)) > 14);
        CHECK(xml_elements(write_on(&w, &page)) > 13);
        svg_page_free(&page);
        world_free(&w);
    }
}

/* Any bytes, as a damaged trace may hold. */
static void random_bytes_are_repaired(void)
{
    for (uint64_t seed = 0; seed < 200; seed++) {
        World w;
        char text[64] = "";
        world_open(&w);
        for (size_t i = 0; i < sizeof text - 1; i++)
            text[i] = (char)(1 + mix_u64(seed * 64 + i) % 255);
        draw_one_of_each(&w.list, text);
        CHECK(xml_elements(write_it(&w)) > 8);
        world_free(&w);
    }
}

static void texts_and_tooltips_are_there_to_read(void)
{
    World w;
    world_open(&w);
    draw_tip(&w.list, 7, "all_gather\n51 MB <bf16>");
    draw_rect(&w.list, px_box(PX(10), PX(10), PX(50) + 64, PX(20)), 0x80ff0000);
    draw_text(&w.list, px_box(PX(10), PX(50), PX(200), PX(20)), small, ALIGN_RIGHT, red,
              "a & b");
    const char *svg = write_it(&w);
    CHECK(strstr(svg, "<rect x=\"10\" y=\"10\" width=\"50.25\" height=\"20\" fill=\"#ff0000\" "
                      "fill-opacity=\".501\" pointer-events=\"all\"><title>all_gather\n51 MB "
                      "&lt;bf16&gt;</title></rect>"));
    CHECK(strstr(svg, " x=\"210\"") && strstr(svg, " text-anchor=\"end\""));
    CHECK(strstr(svg, ">a &amp; b</text>"));
    world_free(&w);
}

static void neighbours_of_one_kind_are_one_box(void)
{
    World w;
    world_open(&w);
    for (int32_t i = 0; i < 50; i++)
        draw_rect(&w.list, px_box(PX(i), 0, PX(1), PX(20)), red);
    CHECK_INT(2, count(write_it(&w), "<rect"));
    CHECK(strstr(w.svg, "width=\"50\" height=\"20\""));
    /* Another colour, height, gap or tooltip ends the box. */
    draw_rect(&w.list, px_box(PX(50), 0, PX(1), PX(20)), red ^ 1);
    draw_rect(&w.list, px_box(PX(51), 0, PX(1), PX(19)), red ^ 1);
    draw_rect(&w.list, px_box(PX(53), 0, PX(1), PX(19)), red ^ 1);
    draw_tip(&w.list, NONE_U32, "tip");
    draw_rect(&w.list, px_box(PX(54), 0, PX(1), PX(19)), red ^ 1);
    CHECK_INT(6, count(write_it(&w), "<rect"));
    world_free(&w);
}

static void boxes_are_cut_to_their_clip_and_only_other_shapes_need_one(void)
{
    World w;
    world_open(&w);
    draw_clip_push(&w.list, px_box(PX(10), PX(10), PX(20), PX(20)));
    draw_rect(&w.list, px_box(0, 0, PX(100), PX(100)), red);
    CHECK_INT(0, count(write_it(&w), "clip"));
    CHECK(strstr(w.svg, "<rect x=\"10\" y=\"10\" width=\"20\" height=\"20\""));
    draw_round(&w.list, px_box(0, 0, PX(100), PX(100)), PX(5), red);
    draw_round(&w.list, px_box(0, 0, PX(100), PX(100)), PX(5), red);
    write_it(&w);
    CHECK_INT(1, count(w.svg, "<clipPath id=\"c1\""));
    CHECK_INT(1, count(w.svg, "<g clip-path=\"url(#c1)\""));
    world_free(&w);
}

static void a_hatch_is_one_pattern_for_all_of_its_colours(void)
{
    World w;
    world_open(&w);
    for (int32_t i = 0; i < 3; i++)
        draw_hatch(&w.list, px_box(PX(20 * i), 0, PX(10), PX(10)), red,
                   i == 2 ? 1u << 31 : 1u << 30);
    write_it(&w);
    CHECK_INT(2, count(w.svg, "<pattern"));
    CHECK_INT(2, count(w.svg, "url(#h0)"));
    CHECK_INT(1, count(w.svg, "url(#h1)"));
    world_free(&w);
}

/* 30,000 boxes: the smallest go, texts stay, and it is said. */
static void too_many_boxes_are_left_out_and_counted(void)
{
    World w;
    world_open(&w);
    for (int32_t i = 0; i < 30000; i++)
        draw_rect(&w.list, px_box(PX(i % 150 * 2), PX(i / 150), PX(1), i % 2 ? 200 : 240), red);
    draw_text(&w.list, px_box(PX(40), PX(250), PX(200), PX(20)), small, ALIGN_LEFT, red,
              "stays");
    write_it(&w);
    CHECK(xml_elements(w.svg) > 0);
    CHECK_INT(SVG_ITEMS_MAX - 1, count(w.svg, "<rect x="));
    CHECK_INT(15000, count(w.svg, "height=\".94\"") + count(w.svg, "height=\"0.94\""));
    CHECK(strstr(w.svg, ">stays</text>"));
    CHECK(
        strstr(w.svg, ">10001 small shapes are left out of this SVG; a PNG shows all</text>"));
    world_free(&w);
}

/* ---- pictures of a page ---- */

static const SvgName names[] = { { 0xffff0000, "red" }, { 0x80000000, "stripe" } };

static void pictures_of_a_page_share_hatches_and_leave_colours_to_it(void)
{
    World w;
    SvgPage page = { .names = names, .names_n = ARRAY_N(names) };
    world_open(&w);
    draw_rect(&w.list, px_box(0, 0, PX(10), PX(10)), red);
    draw_hatch(&w.list, px_box(PX(20), 0, PX(10), PX(10)), red, 0x80000000);
    draw_clip_push(&w.list, px_box(PX(10), PX(10), PX(20), PX(20)));
    draw_round(&w.list, px_box(0, 0, PX(100), PX(100)), PX(5), 0xff00ff00);
    write_on(&w, &page);
    CHECK(strstr(w.svg, "<svg viewBox=\"0 0 400 300\" pointer-events=\"none\" class=\"a\">") ==
          w.svg);
    CHECK(strstr(w.svg, "<path d=\"M0 0h10v10h-10z\" fill=\"var(--red)\"/>"));
    CHECK(strstr(w.svg, "<path d=\"M20 0h10v10h-10z\" fill=\"url(#h0)\"/>"));
    CHECK(strstr(w.svg, "fill=\"var(--stripe)\"/></pattern>"));
    CHECK_INT(1, count(w.svg, "<clipPath id=\"p0c1\""));
    CHECK(!strstr(w.svg, "xmlns") && !strstr(w.svg, "#14171b"));
    write_on(&w, &page);
    CHECK_INT(0, count(w.svg, "<pattern"));
    CHECK_INT(1, count(w.svg, "url(#h0)"));
    CHECK_INT(1, count(w.svg, "<clipPath id=\"p1c1\""));
    svg_page_free(&page);
    world_free(&w);
}

/* Columns of two colours, which a document would write as 100 boxes, are two paths; a box
 * over another comes behind it, and what has a tooltip stays alone. */
static void boxes_of_a_page_are_paths_where_the_picture_stays(void)
{
    World w;
    SvgPage page = { .names = NULL };
    world_open(&w);
    for (int32_t i = 0; i < 50; i++) {
        draw_rect(&w.list, px_box(PX(2 * i), 0, PX(2), PX(20)), red);
        draw_rect(&w.list, px_box(PX(2 * i), PX(10), PX(2), PX(10)), 0xff0000ff);
    }
    CHECK_INT(2, count(write_on(&w, &page), "<path"));
    CHECK(strstr(w.svg, "<path d=\"M0 10h100v10h-100z\" fill=\"#0000ff\"/>"));
    draw_rect(&w.list, px_box(PX(99), 0, PX(4), PX(20)), red);
    CHECK_INT(3, count(write_on(&w, &page), "<path"));
    CHECK(strstr(w.svg, "<path d=\"M99 0h4v20h-4z\" fill=\"#ff0000\"/>\n</svg>"));
    draw_tip(&w.list, NONE_U32, "tip");
    draw_rect(&w.list, px_box(PX(120), 0, PX(4), PX(20)), red);
    draw_rect(&w.list, px_box(PX(130), 0, PX(4), PX(20)), red);
    CHECK_INT(4, count(write_on(&w, &page), "<path"));
    CHECK_INT(1, count(w.svg, "<rect"));
    svg_page_free(&page);
    world_free(&w);
}

enum { SIDE = 24 };

static void paint(Color *pixels, PxBox b, Color color)
{
    for (int32_t y = px_floor(b.y0); y < px_floor(b.y1); y++)
        for (int32_t x = px_floor(b.x0); x < px_floor(b.x1); x++)
            pixels[y * SIDE + x] = color;
}

/* Random boxes of four colours, painted in their order and in that of the groups. */
static void joined_boxes_look_the_same(void)
{
    static const Color colors[] = { 0xffff0000, 0xff00ff00, 0xff0000ff, 0xffffffff };
    for (uint64_t seed = 0; seed < 500; seed++) {
        Color straight[SIDE * SIDE] = { 0 }, joined[SIDE * SIDE] = { 0 };
        DrawItem items[40] = { { .kind = DRAW_RECT } };
        SvgJoin join = { .groups = NULL };
        for (uint32_t i = 0; i < ARRAY_N(items); i++) {
            uint64_t random = mix_u64(seed * 100 + i);
            PxBox box = px_box(PX((int32_t)(random & 15)), PX((int32_t)(random >> 8 & 15)),
                               PX((int32_t)(random >> 16 & 7) + 1),
                               PX((int32_t)(random >> 24 & 7) + 1));
            items[i] =
                (DrawItem){ .kind = DRAW_RECT, .box = box, .color = colors[random >> 60 & 3] };
            svg_join_add(&join, &items[i], box);
            paint(straight, box, items[i].color);
        }
        for (uint32_t g = 0; g < join.groups_n; g++)
            for (uint32_t b = join.groups[g].first; b != NONE_U32; b = join.boxes[b].next)
                paint(joined, join.boxes[b].box, join.groups[g].item->color);
        CHECK(memcmp(straight, joined, sizeof straight) == 0);
        CHECK(join.groups_n < ARRAY_N(items));
        svg_join_free(&join);
    }
}

int main(void)
{
    RUN(the_checker_knows_xml_from_what_is_none);
    RUN(every_document_is_well_formed);
    RUN(random_bytes_are_repaired);
    RUN(texts_and_tooltips_are_there_to_read);
    RUN(neighbours_of_one_kind_are_one_box);
    RUN(boxes_are_cut_to_their_clip_and_only_other_shapes_need_one);
    RUN(a_hatch_is_one_pattern_for_all_of_its_colours);
    RUN(too_many_boxes_are_left_out_and_counted);
    RUN(pictures_of_a_page_share_hatches_and_leave_colours_to_it);
    RUN(boxes_of_a_page_are_paths_where_the_picture_stays);
    RUN(joined_boxes_look_the_same);
    return check_report();
}

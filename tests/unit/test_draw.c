/*
 * test_draw.c - what goes into a draw list: places, clips, texts that fit, what is under the
 * mouse.
 */
#include "tests/check.h"
#include "viz/draw.h"

static const Color red = 0xffff0000;
static const TextStyle small = { TEXT_SMALL, false };

typedef struct World {
    Font font;
    DrawList list;
} World;

static void world_open(World *w, uint32_t scale_pct)
{
    *w = (World){ 0 };
    font_open(&w->font, scale_pct);
    draw_begin(&w->list, &w->font, 400, 300, 0xff000000);
}

static void world_free(World *w)
{
    draw_free(&w->list);
    font_free(&w->font);
}

/* The text of an item, terminated. */
static const char *text_of(const DrawList *d, uint32_t i, char out[128])
{
    snprintf(out, 128, "%.*s", (int)d->items[i].n, d->chars + d->items[i].first);
    return out;
}

static void pixels_round_down_up_and_to_the_nearest(void)
{
    for (Px x = -1000; x <= 1000; x++) {
        CHECK_INT((int64_t)floor(x / 256.0), px_floor(x));
        CHECK_INT((int64_t)ceil(x / 256.0), px_ceil(x));
        CHECK_INT((int64_t)floor(x / 256.0 + 0.5), px_round(x));
    }
}

static void moments_find_their_place(void)
{
    for (uint64_t i = 0; i < 20000; i++) {
        int64_t whole = 1 + (int64_t)(mix_u64(i) % 10000000000);
        int64_t part = (int64_t)(mix_u64(~i) % 20000000000) - 5000000000;
        Px a = (Px)(mix_u64(i * 3) % 600000), b = (Px)(mix_u64(i * 5) % 600000);
        long double exact = a + floorl(((long double)b - a) * part / whole);
        long double cut = fminl(fmaxl(exact, -PX_FAR), PX_FAR);
        CHECK_INT((int64_t)cut, px_between(a, b, part, whole));
    }
    CHECK_INT(PX_FAR, px_between(0, PX(100), INT64_MAX, 1));
    CHECK_INT(-PX_FAR, px_between(0, PX(100), INT64_MIN, 1));
    CHECK_INT(PX(50), px_between(0, PX(100), INT64_MAX / 2 + 1, INT64_MAX));
}

static void square_roots_are_whole_and_below(void)
{
    for (uint64_t i = 0; i < 10000; i++) {
        uint64_t x = mix_u64(i) >> (i % 40 + 2), r = sqrt_u64(x);
        CHECK(r * r <= x && (r + 1) * (r + 1) > x);
    }
}

static void colors_fade_by_their_alpha(void)
{
    CHECK_U64(0xff123456, color_fade(0xff123456, 255));
    CHECK_U64(0x40123456, color_fade(0x80123456, 128));
    CHECK_U64(0x00123456, color_fade(0xff123456, 0));
}

static void lengths_follow_the_scale(void)
{
    World w;
    world_open(&w, 150);
    CHECK_INT(PX(30), draw_px(&w.list, 20));
    CHECK_INT(PX(1), draw_px(&w.list, 0));
    CHECK_INT(12, w.list.hatch_px);
    world_free(&w);
}

static void what_cannot_be_seen_is_left_out(void)
{
    World w;
    PxPoint outside[] = { { PX(-50), PX(5) }, { PX(-20), PX(90) } };
    world_open(&w, 100);
    draw_rect(&w.list, (PxBox){ PX(5), PX(5), PX(5), PX(9) }, red);
    draw_rect(&w.list, (PxBox){ PX(9), PX(5), PX(5), PX(9) }, red);
    draw_rect(&w.list, px_box(PX(400), 0, PX(5), PX(5)), red);
    draw_rect(&w.list, px_box(0, 0, PX(5), PX(5)), red & 0xffffff);
    draw_line(&w.list, outside, 2, PX(4), red);
    draw_line(&w.list, outside, 2, 0, red);
    draw_outline(&w.list, px_box(0, 0, PX(5), PX(5)), 0, 0, red);
    draw_arrow(&w.list, (PxPoint[]){ { 5, 5 }, { 5, 5 } }, 2, PX(1), red);
    draw_text(&w.list, px_box(0, PX(310), PX(90), PX(20)), small, ALIGN_LEFT, red, "below");
    CHECK_INT(0, w.list.items_n);
    CHECK_INT(0, w.list.chars_n);
    CHECK_INT(0, w.list.points_n);
    world_free(&w);
}

static void clips_cut_one_another_and_come_back(void)
{
    World w;
    PxBox all = { 0, 0, PX(400), PX(300) };
    world_open(&w, 100);
    draw_clip_push(&w.list, (PxBox){ PX(10), PX(10), PX(100), PX(100) });
    draw_clip_push(&w.list, (PxBox){ PX(50), PX(-5), PX(500), PX(60) });
    draw_rect(&w.list, all, red);
    const DrawClip *c = &w.list.clips[w.list.items[0].clip];
    CHECK(c->x0 == 50 && c->y0 == 10 && c->x1 == 100 && c->y1 == 60);
    draw_clip_push(&w.list, (PxBox){ PX(200), PX(200), PX(300), PX(300) });
    draw_rect(&w.list, all, red);
    CHECK_INT(1, w.list.items_n);
    draw_clip_pop(&w.list);
    draw_clip_pop(&w.list);
    draw_clip_pop(&w.list);
    draw_rect(&w.list, all, red);
    c = &w.list.clips[w.list.items[1].clip];
    CHECK(c->x0 == 0 && c->y0 == 0 && c->x1 == 400 && c->y1 == 300);
    world_free(&w);
}

static void text_that_is_too_long_ends_with_an_ellipsis(void)
{
    World w;
    char text[128];
    world_open(&w, 100);
    Px whole = font_width(&w.font, small, "AllGather bf16", 14);
    PxBox wide = px_box(PX(10), PX(10), whole, PX(20)), narrow = wide;
    narrow.x1 = wide.x0 + font_width(&w.font, small, "AllGather b…", 14) + 1;
    CHECK_INT(whole, draw_text(&w.list, wide, small, ALIGN_LEFT, red, "AllGather bf16"));
    CHECK_STR("AllGather bf16", text_of(&w.list, 0, text));
    CHECK(draw_text(&w.list, narrow, small, ALIGN_LEFT, red, "AllGather bf16") <=
          narrow.x1 - narrow.x0);
    CHECK_STR("AllGather b…", text_of(&w.list, 1, text));
    /* No space before it; and where not one letter fits, nothing. */
    narrow.x1 = wide.x0 + font_width(&w.font, small, "AllGather …", 13) + 1;
    draw_text(&w.list, narrow, small, ALIGN_LEFT, red, "AllGather bf16");
    CHECK_STR("AllGather…", text_of(&w.list, 2, text));
    narrow.x1 = narrow.x0 + PX(9);
    CHECK_INT(0, draw_text(&w.list, narrow, small, ALIGN_LEFT, red, "AllGather bf16"));
    CHECK_INT(3, w.list.items_n);
    world_free(&w);
}

static void text_keeps_to_its_side_and_to_the_middle(void)
{
    World w;
    world_open(&w, 100);
    PxBox box = px_box(PX(10), PX(10), PX(200), PX(30));
    Px width = draw_text(&w.list, box, small, ALIGN_LEFT, red, "H");
    draw_text(&w.list, box, small, ALIGN_MIDDLE, red, "H");
    draw_text(&w.list, box, small, ALIGN_RIGHT, red, "H");
    const DrawItem *item = w.list.items;
    CHECK_INT(box.x0, item[0].box.x0);
    CHECK_INT((box.x0 + box.x1 - width) / 2, item[1].box.x0);
    CHECK_INT(box.x1, item[2].box.x1);
    /* As much above the capital as below it, to half a pixel. */
    Px above = item[0].box.y0 - font_cap_height(&w.font, small) - box.y0;
    CHECK(abs(above - (box.y1 - item[0].box.y0)) <= PX_ONE);
    draw_text_turned(&w.list, box, small, red, "H");
    CHECK(item[3].turned && item[3].box.y0 > item[3].box.y1);
    CHECK(abs(item[3].box.y0 + item[3].box.y1 - box.y0 - box.y1) <= 2);
    world_free(&w);
}

static void the_topmost_named_item_is_found(void)
{
    World w;
    world_open(&w, 100);
    draw_clip_push(&w.list, px_box(0, 0, PX(50), PX(50)));
    draw_tip(&w.list, 1, "one");
    draw_rect(&w.list, px_box(PX(10), PX(10), PX(100), PX(20)), red);
    draw_tip(&w.list, 2, NULL);
    draw_rect(&w.list, px_box(PX(20), PX(10), PX(10), PX(20)), red);
    draw_rect(&w.list, px_box(PX(20), PX(10), PX(10), PX(20)), red);
    draw_clip_pop(&w.list);
    CHECK_INT(1, draw_item_at(&w.list, PX(10), PX(10)));
    CHECK_INT(2, draw_item_at(&w.list, PX(20), PX(29)));
    CHECK_INT(1, draw_item_at(&w.list, PX(30), PX(10)));
    CHECK_U64(NONE_U32, draw_item_at(&w.list, PX(50), PX(10)));
    CHECK_U64(NONE_U32, draw_item_at(&w.list, PX(20), PX(30)));
    CHECK_STR("one", w.list.chars + w.list.items[0].tip);
    CHECK_U64(NONE_U32, w.list.items[1].tip);
    CHECK_U64(NONE_U32, w.list.items[2].id);
    world_free(&w);
}

static void an_arrow_is_a_line_and_a_head_that_ends_at_its_point(void)
{
    World w;
    PxPoint p[] = { { PX(10), PX(10) }, { PX(110), PX(10) } };
    world_open(&w, 100);
    draw_arrow(&w.list, p, 2, PX(2), red);
    CHECK_INT(2, w.list.items_n);
    CHECK_INT(DRAW_POLYGON, w.list.items[1].kind);
    CHECK_INT(PX(110), w.list.items[1].box.x1);
    CHECK_INT(PX(10) - PX(3), w.list.items[1].box.y0);
    CHECK_INT(PX(10) + PX(3), w.list.items[1].box.y1);
    CHECK_INT(PX(104), w.list.points[1].x);
    world_free(&w);
}

static void a_list_begun_again_is_empty(void)
{
    World w;
    world_open(&w, 100);
    draw_rect(&w.list, px_box(0, 0, PX(5), PX(5)), red);
    draw_text(&w.list, px_box(0, 0, PX(90), PX(15)), small, ALIGN_LEFT, red, "text");
    draw_begin(&w.list, &w.font, 10, 10, 0);
    CHECK_INT(0, w.list.items_n);
    CHECK_INT(0, w.list.chars_n);
    CHECK_U64(0xff000000, w.list.background);
    world_free(&w);
}

int main(void)
{
    RUN(pixels_round_down_up_and_to_the_nearest);
    RUN(moments_find_their_place);
    RUN(square_roots_are_whole_and_below);
    RUN(colors_fade_by_their_alpha);
    RUN(lengths_follow_the_scale);
    RUN(what_cannot_be_seen_is_left_out);
    RUN(clips_cut_one_another_and_come_back);
    RUN(text_that_is_too_long_ends_with_an_ellipsis);
    RUN(text_keeps_to_its_side_and_to_the_middle);
    RUN(the_topmost_named_item_is_found);
    RUN(an_arrow_is_a_line_and_a_head_that_ends_at_its_point);
    RUN(a_list_begun_again_is_empty);
    return check_report();
}

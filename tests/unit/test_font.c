/*
 * test_font.c - widths, what fits, UTF-8, and glyphs: from baked letters and from files.
 */
#include "tests/check.h"
#include "viz/font.h"
#include "viz/font_baked.h"

static const TextStyle body = { TEXT_BODY, false }, small = { TEXT_SMALL, false };

/* A file of Debian's fonts-dejavu-core, and no file. */
static const char dejavu[] = "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf";

static Px width_of(Font *f, TextStyle style, const char *text)
{
    return font_width(f, style, text, strlen(text));
}

static void a_width_is_the_sum_of_advances(void)
{
    Font f;
    font_open(&f, 100);
    Px sum = 0;
    for (uint32_t c = ' '; c <= '~'; c++)
        sum += font_advance(&f, body, c);
    char all[96] = "";
    for (int c = ' '; c <= '~'; c++)
        all[c - ' '] = (char)c;
    CHECK_INT(sum, width_of(&f, body, all));
    CHECK_INT(0, width_of(&f, body, ""));
    CHECK(width_of(&f, body, "i") < width_of(&f, body, "W"));
    CHECK(width_of(&f, body, "Rank") < width_of(&f, (TextStyle){ TEXT_BODY, true }, "Rank"));
    font_free(&f);
}

static void digits_are_equally_wide_at_every_scale(void)
{
    for (uint32_t scale = FONT_SCALE_MIN; scale <= FONT_SCALE_MAX; scale += 25)
        for (int bold = 0; bold < 2; bold++) {
            Font f;
            TextStyle style = { TEXT_SMALL, bold };
            font_open(&f, scale);
            for (uint32_t digit = '0'; digit <= '9'; digit++)
                CHECK_INT(font_advance(&f, style, '0'), font_advance(&f, style, digit));
            font_free(&f);
        }
}

static void scales_beyond_the_range_are_cut_to_it(void)
{
    Font f;
    font_open(&f, 10);
    CHECK_INT(FONT_SCALE_MIN, f.scale_pct);
    font_free(&f);
    font_open(&f, 1000);
    CHECK_INT(FONT_SCALE_MAX, f.scale_pct);
    CHECK_INT(PX(33), font_size(&f, small));
    font_free(&f);
}

static void lines_are_whole_pixels(void)
{
    for (uint32_t scale = FONT_SCALE_MIN; scale <= FONT_SCALE_MAX; scale += 5) {
        Font f;
        font_open(&f, scale);
        CHECK_INT(0, font_cap_height(&f, small) % PX_ONE);
        CHECK_INT(0, font_line_height(&f, small) % PX_ONE);
        CHECK(font_cap_height(&f, small) < font_size(&f, small));
        CHECK(font_line_height(&f, small) > font_size(&f, small));
        font_free(&f);
    }
}

static void the_longest_beginning_fits(void)
{
    static const char text[] = "flash_fwd·µs→…";
    Font f;
    font_open(&f, 100);
    for (Px width = -PX(1); width < PX(120); width += 37) {
        size_t n = font_fit(&f, small, text, sizeof text - 1, width), next = n;
        CHECK(n == 0 || font_width(&f, small, text, n) <= width);
        if (n == sizeof text - 1)
            continue;
        font_next_char(text, sizeof text - 1, &next);
        CHECK(font_width(&f, small, text, next) > width);
    }
    CHECK_INT(sizeof text - 1, (int64_t)font_fit(&f, small, text, sizeof text - 1, PX(1000)));
    font_free(&f);
}

/* The characters of text, in hexadecimal. */
static const char *characters(char out[128], const char *text)
{
    size_t n = strlen(text), used = 0;
    out[0] = 0;
    for (size_t at = 0; at < n;)
        used += (size_t)snprintf(out + used, 128 - used, "%s%x", used ? " " : "",
                                 font_next_char(text, n, &at));
    return out;
}

static void utf8_is_read_and_what_is_none_is_replaced(void)
{
    char out[128];
    CHECK_STR("61 df 20ac 1f600", characters(out, "a\xc3\x9f\xe2\x82\xac\xf0\x9f\x98\x80"));
    CHECK_STR("fffd 61", characters(out, "\xff"
                                         "a"));
    CHECK_STR("fffd", characters(out, "\xc3"));
    CHECK_STR("fffd fffd", characters(out, "\xe2\x82"));
    CHECK_STR("fffd fffd", characters(out, "\xc0\xaf"));          /* '/' in two bytes */
    CHECK_STR("fffd fffd fffd", characters(out, "\xed\xa0\x80")); /* a surrogate */
    CHECK_STR("fffd fffd fffd fffd", characters(out, "\xf4\x90\x80\x80"));  /* above 10ffff */
    CHECK_STR("61 fffd 62 fffd fffd", characters(out, "a\nb\x7f\xc2\x85")); /* control */
}

static uint64_t ink_of(const Font *f, Glyph g)
{
    uint64_t sum = 0;
    for (uint32_t y = 0; y < g.height; y++)
        for (uint32_t x = 0; x < g.width; x++)
            sum += f->atlas[(size_t)(g.y + y) * f->atlas_width + g.x + x];
    return sum;
}

static void glyphs_are_made_once_and_have_ink(void)
{
    Font f;
    font_open(&f, 100);
    for (uint32_t c = '!'; c <= '~'; c++)
        CHECK(ink_of(&f, font_glyph(&f, body, c, 0)) > 0);
    CHECK_INT(0, font_glyph(&f, body, ' ', 0).width);
    uint32_t version = f.version;
    Glyph a = font_glyph(&f, body, 'A', 0), again = font_glyph(&f, body, 'A', 0);
    CHECK(a.x == again.x && a.y == again.y);
    CHECK_INT(version, f.version);
    /* Shifted by half a pixel it is another glyph with the same ink. */
    Glyph half = font_glyph(&f, body, 'A', 2);
    CHECK(half.x != a.x || half.y != a.y);
    CHECK_NEAR((double)ink_of(&f, a), (double)ink_of(&f, half), 0.03);
    font_free(&f);
}

/* Many sizes make the atlas grow; no glyph changes. */
static void the_atlas_grows_and_glyphs_stay(void)
{
    Font f;
    font_open(&f, 300);
    Glyph first = font_glyph(&f, body, 'Q', 0);
    uint64_t ink = ink_of(&f, first);
    uint32_t height = f.atlas_height;
    for (uint8_t size = 6; size <= 64; size++)
        for (uint32_t c = 'A'; c <= 'Z'; c++)
            font_glyph(&f, (TextStyle){ size, false }, c, 1);
    CHECK(f.atlas_height > height);
    CHECK_U64(ink, ink_of(&f, first));
    CHECK_U64(ink, ink_of(&f, font_glyph(&f, body, 'Q', 0)));
    font_free(&f);
}

/* Baselines, x-heights and capitals end on whole pixels: their outermost rows are full. */
static void horizontal_strokes_are_sharp(void)
{
    for (uint32_t scale = 100; scale <= FONT_SCALE_MAX; scale += 25) { /* strokes >= 1 pixel */
        Font f;
        font_open(&f, scale);
        for (const char *c = "EZz"; *c; c++) {
            Glyph g = font_glyph(&f, body, (uint32_t)*c, 0);
            const uint8_t *top = f.atlas + (size_t)g.y * f.atlas_width + g.x;
            const uint8_t *bottom = top + (size_t)(g.height - 1) * f.atlas_width;
            CHECK(top[g.width / 2] >= 220);
            CHECK(bottom[g.width / 2] >= 220);
            CHECK_INT(0, g.top + g.height);
        }
        font_free(&f);
    }
}

static void a_missing_font_shows_a_box_and_says_so_once(void)
{
    Font f;
    Err err = { 0 };
    font_open(&f, 100);
    font_set_files(&f, "/nowhere/a.otf:/nowhere/b.ttf");
    CHECK(font_complain(&f, &err));
    CHECK_INT(font_advance(&f, body, 0xfffd), font_advance(&f, body, 0x416));
    CHECK(ink_of(&f, font_glyph(&f, body, 0x416, 0)) > 0);
    CHECK(!font_complain(&f, &err));
    CHECK_ERR_TEXT(&err, "no font here has the character U+0416: a box is shown instead; the "
                         "Debian packages fonts-dejavu-core");
    err_clear(&err);
    CHECK(font_complain(&f, &err));
    CHECK(width_of(&f, body, "still here") > 0);
    font_free(&f);
}

static void what_is_no_font_is_refused_with_a_sentence(void)
{
    FontFile *file;
    Err err = { 0 };
    CHECK(!font_file_open(&file, "Makefile", &err));
    CHECK_ERR_TEXT(&err,
                   "cannot read 'Makefile' as a font with outlines (TrueType or OpenType)");
}

/* TrueType: quadratic curves, and another font than the baked one. */
static void characters_come_from_the_files_of_the_machine(void)
{
    Font f;
    Err err = { 0 };
    FontFile *file = NULL;
    if (!font_file_open(&file, dejavu, &err)) {
        fprintf(stderr, "test_font: %s is not here: not tested\n", dejavu);
        return;
    }
    font_file_close(file);
    font_open(&f, 100);
    font_set_files(&f, dejavu);
    CHECK(font_advance(&f, body, 0x416) > font_advance(&f, body, 'i'));
    Glyph zhe = font_glyph(&f, body, 0x416, 0);
    CHECK(zhe.width >= 8 && zhe.width <= 16 && ink_of(&f, zhe) > 255 * 20);
    CHECK(font_complain(&f, &err));
    font_free(&f);
}

static void baked_letters_are_sorted_and_lie_within_their_points(void)
{
    const BakedFont *fonts[] = { &font_baked_regular, &font_baked_bold };
    for (size_t i = 0; i < ARRAY_N(fonts); i++) {
        const BakedFont *b = fonts[i];
        uint32_t end = 0;
        CHECK_INT(' ', b->letters[0].character);
        CHECK_INT('~', b->letters[BAKED_ASCII_N - 1].character);
        CHECK_INT(0xfffd, b->letters[b->letters_n - 1].character);
        for (uint32_t k = 0; k < b->letters_n; k++) {
            const BakedLetter *l = &b->letters[k];
            CHECK(k == 0 || l[-1].character < l->character);
            CHECK_INT(end, l->first);
            CHECK(l->advance > 0);
            end += l->n;
            CHECK(l->n == 0 || b->points[end - 1].last);
        }
    }
}

int main(void)
{
    RUN(a_width_is_the_sum_of_advances);
    RUN(digits_are_equally_wide_at_every_scale);
    RUN(scales_beyond_the_range_are_cut_to_it);
    RUN(lines_are_whole_pixels);
    RUN(the_longest_beginning_fits);
    RUN(utf8_is_read_and_what_is_none_is_replaced);
    RUN(glyphs_are_made_once_and_have_ink);
    RUN(the_atlas_grows_and_glyphs_stay);
    RUN(horizontal_strokes_are_sharp);
    RUN(a_missing_font_shows_a_box_and_says_so_once);
    RUN(what_is_no_font_is_refused_with_a_sentence);
    RUN(characters_come_from_the_files_of_the_machine);
    RUN(baked_letters_are_sorted_and_lie_within_their_points);
    return check_report();
}

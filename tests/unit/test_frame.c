/*
 * test_frame.c - frames of every size, golden pictures, and PNG files read back.
 */
#include "tests/check.h"
#include "viz/png.h"
#include "viz/theme.h"

#include <unistd.h>
#include <zlib.h>

static const TextStyle small = { TEXT_SMALL, false }, title = { TEXT_TITLE, true };

/* ---- a picture with one of everything ---- */

static void draw_lanes(DrawList *d, const Theme *t)
{
    for (int32_t c = 0; c < TIME_CLASSES_N; c++) {
        PxBox box = { PX(8) + 37 * c, draw_px(d, 20 + 18 * c), draw_px(d, 120) + 91 * c,
                      draw_px(d, 36 + 18 * c) };
        theme_span(d, t, (TimeClass)c, box, c % 2 ? 255 : 200);
        theme_label(d, t, (TimeClass)c, px_box_inset(box, draw_px(d, 2)), small,
                    "gemm 128×256 → 51.2 µs");
    }
}

static void draw_picture(DrawList *d, Font *font, const Theme *t, int32_t width, int32_t height)
{
    PxPoint line[] = { { PX(20), PX(20) }, { PX(90), PX(100) }, { PX(180), PX(90) } };
    draw_begin(d, font, width, height, t->color[THEME_BACKGROUND]);
    draw_text(d, px_box(PX(8), 0, PX(width), draw_px(d, 20)), title, ALIGN_LEFT,
              t->color[THEME_TEXT], "Rank 0  H100:0");
    draw_lanes(d, t);
    draw_round(d, px_box(PX(150), PX(30), PX(60), PX(24)), draw_px(d, 4),
               t->color[THEME_RAISED]);
    draw_outline(d, px_box(PX(150), PX(30), PX(60), PX(24)), draw_px(d, 1), draw_px(d, 4),
                 t->color[THEME_EDGE]);
    draw_arrow(d, line, 3, draw_px(d, 2), t->color[THEME_ARROW]);
    draw_dashes(d, line, 2, draw_px(d, 1), draw_px(d, 5), t->color[THEME_CRITICAL]);
    draw_circle(d, line[2], draw_px(d, 6), t->color[THEME_TOO_SLOW]);
    draw_text_turned(d, px_box(PX(200), 0, PX(20), PX(height)), small, t->color[THEME_DIM],
                     "step");
}

static uint64_t hash_of(const Frame *f)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < (size_t)f->width * (size_t)f->height; i++)
        hash = mix_u64(hash ^ f->pixels[i]);
    return hash;
}

/* Frees nothing of f when false. */
static bool picture(Frame *f, const Theme *t, uint32_t scale_pct, int32_t width, int32_t height)
{
    Font font;
    DrawList d = { 0 };
    Err err = { 0 };
    if (!CHECK(frame_init(f, width, height, &err)))
        return false;
    font_open(&font, scale_pct);
    font_set_files(&font, "");
    draw_picture(&d, &font, t, width, height);
    raster_draw(f, &d);
    draw_free(&d);
    font_free(&font);
    return true;
}

/*
 * What the pictures were when they were looked at.  After a change of the drawing look at
 * them again (GOLDEN_OUT=FOLDER writes them there) and put the new numbers here.
 */
static const struct {
    const char *theme;
    uint32_t scale_pct;
    int32_t width, height;
    uint64_t hash;
} golden[] = {
    { "dark", 100, 240, 160, 0x2a014642e3b340cf },
    { "light", 100, 240, 160, 0xe899f72396e56284 },
    { "dark", 75, 240, 160, 0x428fa3d6c9855bfd },
    { "light", 225, 480, 360, 0xc7b5dcfa28e196b3 },
};

static void the_same_list_gives_the_same_bytes_everywhere(void)
{
    const char *folder = getenv("GOLDEN_OUT");
    for (size_t i = 0; i < ARRAY_N(golden); i++) {
        Frame f;
        Err err = { 0 };
        char path[512];
        if (!picture(&f, theme_find(golden[i].theme, &err), golden[i].scale_pct,
                     golden[i].width, golden[i].height))
            return;
        CHECK_U64(golden[i].hash, hash_of(&f));
        snprintf(path, sizeof path, "%s/frame_%zu.png", folder ? folder : "", i);
        CHECK(!folder || frame_write_png(&f, path, &err));
        frame_free(&f);
    }
}

static void every_size_is_drawn_or_refused_with_a_sentence(void)
{
    static const int32_t sizes[][2] = {
        { 1, 1 }, { 1, 500 }, { 500, 1 }, { 3, 2 }, { 16384, 2 }
    };
    static const int64_t bad[][2] = { { 0, 10 },        { 10, 0 },    { -5, 10 },
                                      { 16384, 16384 }, { 16385, 1 }, { 1, 16385 },
                                      { INT64_MAX, 2 } };
    for (size_t i = 0; i < ARRAY_N(sizes); i++) {
        Frame f;
        if (picture(&f, theme_dark(), 300, sizes[i][0], sizes[i][1]))
            frame_free(&f);
    }
    for (size_t i = 0; i < ARRAY_N(bad); i++) {
        Frame f;
        Err err = { 0 };
        char text[64];
        snprintf(text, sizeof text, "a picture of %" PRId64 "x%" PRId64 " pixels", bad[i][0],
                 bad[i][1]);
        CHECK(!frame_init(&f, bad[i][0], bad[i][1], &err));
        CHECK_ERR_TEXT(&err, text);
        CHECK_ERR_TEXT(&err, "at most 16384 pixels a side");
        CHECK(!f.pixels);
    }
}

/* ---- PNG, read back by hand: chunks of length, name, data, CRC ---- */

static uint32_t big_endian(const uint8_t *b)
{
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

/* The IDAT chunks put together; checks every CRC.  Returns their bytes. */
static size_t join_data(uint8_t *file, size_t n, uint8_t *out)
{
    size_t used = 0;
    for (size_t at = 8; at + 12 <= n;) {
        size_t length = big_endian(file + at);
        if (!CHECK(at + 12 + length <= n))
            return 0;
        CHECK_U64(crc32(0, file + at + 4, (uInt)length + 4),
                  big_endian(file + at + 8 + length));
        if (memcmp(file + at + 4, "IDAT", 4) == 0) {
            memcpy(out + used, file + at + 8, length);
            used += length;
        }
        at += 12 + length;
    }
    return used;
}

static void check_file(const char *path, const Frame *f)
{
    static const uint8_t signature[] = { 0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n' };
    enum { FILE_CAP = 1 << 20 };
    uint8_t *file = mem_zero(FILE_CAP, 1), *data = mem_zero(FILE_CAP, 1);
    size_t row_n = (size_t)f->width * 3 + 1;
    uLongf rows_n = (uLongf)(row_n * (size_t)f->height);
    uint8_t *rows = mem_zero(rows_n, 1);
    FILE *in = fopen(path, "rb");
    size_t n = CHECK(in) ? fread(file, 1, FILE_CAP, in) : 0;
    CHECK(memcmp(file, signature, sizeof signature) == 0);
    CHECK_INT(f->width, big_endian(file + 16));
    CHECK_INT(f->height, big_endian(file + 20));
    CHECK_INT(Z_OK, uncompress(rows, &rows_n, data, (uLong)join_data(file, n, data)));
    for (int32_t y = 0; y < f->height; y++)
        for (int32_t x = 0; x < f->width; x++) {
            const uint8_t *rgb = rows + row_n * (size_t)y + 1 + 3 * x;
            uint32_t pixel =
                0xff000000 | (uint32_t)rgb[0] << 16 | (uint32_t)rgb[1] << 8 | rgb[2];
            CHECK_U64(f->pixels[y * f->width + x], pixel);
        }
    if (in)
        fclose(in);
    free(rows);
    free(data);
    free(file);
}

static void a_png_holds_the_pixels(void)
{
    static const int32_t sizes[][2] = { { 240, 160 }, { 1, 1 }, { 7, 300 } };
    for (size_t i = 0; i < ARRAY_N(sizes); i++) {
        Frame f;
        Err err = { 0 };
        char path[] = P_tmpdir "/test_frame_XXXXXX";
        int fd = mkstemp(path);
        if (!CHECK(fd >= 0) || !picture(&f, theme_light(), 100, sizes[i][0], sizes[i][1]))
            return;
        close(fd);
        CHECK(frame_write_png(&f, path, &err));
        check_file(path, &f);
        frame_free(&f);
        remove(path);
    }
}

static void pictures_are_written_by_their_names(void)
{
    static const char *const bad[] = { "a.jpg", "svg", ".svg", "a.svg.gz", "" };
    Font font;
    DrawList d = { 0 };
    Err err = { 0 };
    font_open(&font, 100);
    draw_picture(&d, &font, theme_dark(), 240, 160);
    for (size_t i = 0; i < ARRAY_N(bad); i++) {
        Err e = { 0 };
        CHECK(!picture_name_check(bad[i], "--plot", &e));
        CHECK_ERR_TEXT(&e, "--plot writes .svg and .png, not '");
    }
    CHECK(picture_name_check("a.png", "--plot", &err));
    CHECK(picture_name_check("b/c.svg", "--plot", &err));
    CHECK(!picture_write(&d, "/nowhere/a.png", &err));
    CHECK_ERR_TEXT(&err, "cannot create '/nowhere/a.png': No such file or directory");
    err_clear(&err);
    CHECK(!picture_write(&d, "/nowhere/a.svg", &err));
    CHECK_ERR_TEXT(&err, "cannot create '/nowhere/a.svg': No such file or directory");
    err_clear(&err);
    d.width = 0;
    CHECK(!picture_write(&d, "/nowhere/a.png", &err));
    CHECK_ERR_TEXT(&err, "a picture of 0x160 pixels is not possible");
    draw_free(&d);
    font_free(&font);
}

/* /dev/full takes no byte. */
static void a_full_disk_is_told(void)
{
    Frame f;
    Err err = { 0 };
    if (!picture(&f, theme_dark(), 100, 240, 160))
        return;
    CHECK(!frame_write_png(&f, "/dev/full", &err));
    CHECK_ERR_TEXT(&err, "'/dev/full': No space left on device");
    frame_free(&f);
}

int main(void)
{
    RUN(the_same_list_gives_the_same_bytes_everywhere);
    RUN(every_size_is_drawn_or_refused_with_a_sentence);
    RUN(a_png_holds_the_pixels);
    RUN(pictures_are_written_by_their_names);
    RUN(a_full_disk_is_told);
    return check_report();
}

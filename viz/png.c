/*
 * png.c - PNG by libpng: no filter, zlib's level 1, which is five times faster than its
 * default and a quarter larger on such pictures.
 */
#include "viz/png.h"
#include "core/out_file.h"
#include "core/text.h"
#include "viz/svg.h"

#include <png.h>
#include <stdlib.h>

enum { LEVEL = 1 };

static void failed(png_structp png, png_const_charp text)
{
    err_set(png_get_error_ptr(png), "cannot write the PNG: %s", text);
    png_longjmp(png, 1);
}

static void ignored(png_structp png, png_const_charp text)
{
    (void)png;
    (void)text;
}

static void write_bytes(png_structp png, png_bytep bytes, size_t n)
{
    out_file_write(png_get_io_ptr(png), bytes, n);
}

static void flush_bytes(png_structp png)
{
    (void)png;
}

static void pack_row(uint8_t *rgb, const uint32_t *pixels, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        rgb[3 * i] = (uint8_t)(pixels[i] >> 16);
        rgb[3 * i + 1] = (uint8_t)(pixels[i] >> 8);
        rgb[3 * i + 2] = (uint8_t)pixels[i];
    }
}

/* libpng leaves by longjmp: row is owned by the caller. */
static bool write_rows(const Frame *f, OutFile *out, uint8_t *row, Err *err)
{
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, err, failed, ignored);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    if (!info || setjmp(png_jmpbuf(png))) {
        png_destroy_write_struct(&png, &info);
        return err_set(err, "cannot write the PNG: libpng does not start");
    }
    png_set_write_fn(png, out, write_bytes, flush_bytes);
    png_set_compression_level(png, LEVEL);
    png_set_filter(png, 0, PNG_FILTER_NONE);
    png_set_user_limits(png, FRAME_SIDE_MAX, FRAME_SIDE_MAX);
    png_set_IHDR(png, info, (png_uint_32)f->width, (png_uint_32)f->height, 8,
                 PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
    png_write_info(png, info);
    for (int32_t y = 0; y < f->height; y++) {
        pack_row(row, f->pixels + (size_t)y * (size_t)f->width, f->width);
        png_write_row(png, row);
    }
    png_write_end(png, info);
    png_destroy_write_struct(&png, &info);
    return true;
}

bool frame_write_png(const Frame *f, const char *path, Err *err)
{
    OutFile out;
    if (!out_file_open(&out, path, err))
        return false;
    uint8_t *row = mem_zero((size_t)f->width, 3);
    bool ok = write_rows(f, &out, row, err);
    free(row);
    if (ok)
        return out_file_commit(&out, err);
    out_file_abandon(&out);
    return false;
}

bool picture_name_check(const char *path, const char *option, Err *err)
{
    return text_ends_in(path, ".svg") || text_ends_in(path, ".png") ||
           err_set(err, "%s writes .svg and .png, not '%s'", option, path);
}

static bool write_svg_file(const DrawList *d, const char *path, Err *err)
{
    OutFile out;
    if (!out_file_open(&out, path, err))
        return false;
    svg_write(d, out.file);
    return out_file_commit(&out, err);
}

bool picture_is_svg(const char *path)
{
    return !text_ends_in(path, ".png");
}

bool picture_write(const DrawList *d, const char *path, Err *err)
{
    Frame f;
    if (picture_is_svg(path))
        return write_svg_file(d, path, err);
    if (!frame_init(&f, d->width, d->height, err))
        return false;
    raster_draw(&f, d);
    bool ok = frame_write_png(&f, path, err);
    frame_free(&f);
    return ok;
}

/*
 * bench_draw.c - one frame of the viewer as drawing sees it: 1920x1080, 20,000 boxes of which a
 * fifth is hatched, 400 labels, 20 lines; and the same to PNG and SVG.
 *
 * CPU time, the best of several.  Limits: rasteriser 6 ms, PNG 50 ms.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "viz/png.h"
#include "viz/svg.h"
#include "viz/theme.h"

enum {
    WIDTH = 1920,
    HEIGHT = 1080,
    BOXES_N = 20000,
    LABELS_N = 400,
    LINES_N = 20,
    ROWS_N = 48
};

static double cpu_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* Rows of 16 pixels, boxes side by side in each. */
static void fill_list(DrawList *d, Font *font, const Theme *t)
{
    static const TimeClass classes[] = { TIME_COMPUTE, TIME_EXPOSED, TIME_OVERLAPPED,
                                         TIME_COMPUTE, TIME_MEMORY };
    int32_t per_row = BOXES_N / ROWS_N;
    TextStyle small = { TEXT_SMALL, false };
    draw_begin(d, font, WIDTH, HEIGHT, t->color[THEME_BACKGROUND]);
    for (int32_t i = 0; i < BOXES_N; i++) {
        Px y = PX(40 + i / per_row * 21),
           x0 = px_between(PX(250), PX(1580), i % per_row, per_row);
        Px x1 = px_between(PX(250), PX(1580), i % per_row * 8 + 7, 8 * per_row);
        theme_span(d, t, classes[i % 5], (PxBox){ x0, y, x1, y + PX(16) }, 255);
    }
    for (int32_t i = 0; i < LABELS_N; i++) {
        char text[40];
        snprintf(text, sizeof text, "ReduceScatter bf16 %d MB", i);
        Px x = PX(10 + i % 10 * 150), y = PX(40 + i / 10 * 25);
        draw_text(d, px_box(x, y, PX(140), PX(16)), small, ALIGN_LEFT, t->color[THEME_TEXT],
                  text);
    }
    for (int32_t i = 0; i < LINES_N; i++) {
        PxPoint line[] = { { PX(300 + 5 * i), PX(60) }, { PX(400 + 7 * i), PX(300 + i) } };
        draw_line(d, line, 2, PX(1), t->color[THEME_ARROW]);
    }
}

typedef struct Best {
    double list_ms, raster_ms, png_ms, svg_ms;
} Best;

static void lower(double *best, double ms)
{
    if (*best <= 0 || ms < *best)
        *best = ms;
}

static bool measure(Best *best, DrawList *d, Font *font, Frame *frame, const char *path,
                    Err *err)
{
    double t0 = cpu_ms();
    fill_list(d, font, theme_dark());
    double t1 = cpu_ms();
    raster_draw(frame, d);
    double t2 = cpu_ms();
    if (!frame_write_png(frame, path, err))
        return false;
    double t3 = cpu_ms();
    FILE *svg = fopen("/dev/null", "w");
    if (!svg)
        return err_set(err, "cannot open '/dev/null'");
    svg_write(d, svg);
    fclose(svg);
    lower(&best->list_ms, t1 - t0);
    lower(&best->raster_ms, t2 - t1);
    lower(&best->png_ms, t3 - t2);
    lower(&best->svg_ms, cpu_ms() - t3);
    return true;
}

int main(void)
{
    Font font;
    DrawList d = { 0 };
    Frame frame;
    Best best = { 0 };
    Err err = { 0 };
    char path[] = P_tmpdir "/bench_draw_XXXXXX";
    int fd = mkstemp(path);
    font_open(&font, 100);
    bool ok = fd >= 0 && frame_init(&frame, WIDTH, HEIGHT, &err);
    for (int i = 0; i < 30 && ok; i++)
        ok = measure(&best, &d, &font, &frame, path, &err);
    remove(path);
    if (!ok) {
        fprintf(stderr, "bench_draw: %s\n", err.text);
        return EXIT_COULD_NOT;
    }
    printf(
        "  draw list %.2f ms, rasteriser %.2f ms (limit 6), PNG %.1f ms (limit 50), SVG %.1f "
        "ms: 1920x1080, %d items\n",
        best.list_ms, best.raster_ms, best.png_ms, best.svg_ms, d.items_n);
    frame_free(&frame);
    draw_free(&d);
    font_free(&font);
    return best.raster_ms <= 6 && best.png_ms <= 50 ? EXIT_DONE : EXIT_COULD_NOT;
}

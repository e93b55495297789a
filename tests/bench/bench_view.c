/*
 * bench_view.c - the viewer beside its limits: ten million events on 64 tracks of 8 ranks.
 *
 *     bench_view [EVENTS]      10 million when not said
 *
 *     from a native trace, all of it verified, to its first picture
 *                                                 0.3 s of the wall, on all cores
 *     a whole frame, 1920x1080, at every zoom      12 ms of one core: layout, rows, pixels
 *     the numbers of a selection, 8 ranks          0.1 ms
 *     a PNG of it                                  50 ms
 *     memory                                       60 bytes an event
 *
 * A limit that is missed makes the exit status 1.  (Extraction alone: bench_lod.)
 */
#include "tests/bench/bench_trace.h"
#include "traces/native.h"
#include "traces/set.h"
#include "viz/png.h"
#include "viz/scene.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { TRACKS = 64, RANKS = 8, NAMES_N = 300, WIDTH = 1920, HEIGHT = 1080 };

static int missed;

static double clock_ms(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

static double cpu_ms(void)
{
    return clock_ms(CLOCK_PROCESS_CPUTIME_ID);
}

static void limit(const char *what, double value, const char *unit, double most)
{
    printf("  %-52s %8.2f %s (limit %g)%s\n", what, value, unit, most,
           value > most ? "  MISSED" : "");
    missed |= value > most;
}

/* ---- the trace ---- */

static void add_track(Timeline *t, uint32_t k, uint64_t n, uint64_t *seed)
{
    bool comm = k % 4 == 3;
    char name[32];
    snprintf(name, sizeof name, "stream %u", k % (TRACKS / RANKS));
    uint32_t track = timeline_track(t, k / (TRACKS / RANKS), TRACK_STREAM, name, k);
    bench_spans(t, track, comm ? SPAN_COMM : SPAN_COMPUTE, n, 0, NAMES_N, seed);
}

static bool write_trace(const char *path, uint64_t events, Err *err)
{
    static Timeline t;
    uint64_t seed = 1;
    timeline_reserve(&t, events);
    for (uint32_t i = 0; i < NAMES_N; i++) {
        char name[64];
        snprintf(name, sizeof name, "void ns::kernel_number_%u<float, 4>(int)", i);
        intern(&t.names, name);
    }
    for (uint32_t k = 0; k < TRACKS; k++)
        add_track(&t, k, events / TRACKS, &seed);
    timeline_seal(&t);
    bool ok = native_write(&t, path, err);
    timeline_free(&t);
    return ok;
}

/* ---- what is measured ---- */

typedef struct Bench {
    TraceSet set;
    ViewData data;
    View view;
    Scene scene;
    DrawList list;
    Frame frame;
} Bench;

/* Of all threads, since the phase before. */
static void phase(const char *what)
{
    static double last;
    double now = cpu_ms();
    if (what)
        printf("    %-24s %8.1f ms of CPU time\n", what, now - last);
    last = cpu_ms();
}

static bool first_picture(Bench *b, const char *path, double *ms, Err *err)
{
    double begin = clock_ms(CLOCK_MONOTONIC);
    phase(NULL);
    if (!trace_set_read(&b->set, &path, 1, &(TraceSetOptions){ .jobs = 0 }, err) ||
        !frame_init(&b->frame, WIDTH, HEIGHT, err))
        return false;
    phase("file mapped, checked");
    view_data_open(&b->data, &b->set.timeline, path, 0);
    phase("covers, strips, rows");
    view_open(&b->view, &b->data, NULL);
    b->view.width = WIDTH;
    b->view.height = HEIGHT;
    scene_open(&b->scene, 100);
    b->scene.hurry = true; /* as the window does: tables follow a frame later */
    scene_draw(&b->scene, &b->view, &b->list);
    phase("layout and scene");
    raster_draw(&b->frame, &b->list);
    phase("pixels");
    *ms = clock_ms(CLOCK_MONOTONIC) - begin;
    return true;
}

static double best_frame(Bench *b)
{
    double best = 1e9;
    for (int i = 0; i < 5; i++) {
        double begin = cpu_ms();
        view_move(&b->view, b->view.from_ns + 1, b->view.to_ns + 1); /* nothing is kept */
        scene_draw(&b->scene, &b->view, &b->list);
        raster_draw(&b->frame, &b->list);
        double ms = cpu_ms() - begin;
        best = ms < best ? ms : best;
    }
    return best;
}

static void zooms(Bench *b)
{
    double worst = 0, zoom = 1;
    b->scene.hurry = false;
    int64_t length_ns = b->data.end_ns - b->data.begin_ns;
    for (int i = 0; i < 10; i++, zoom /= 6) {
        int64_t window_ns = max_i64(VIEW_NS_MIN, (int64_t)((double)length_ns * zoom));
        int64_t from_ns = i ? b->data.begin_ns + length_ns / 3 : b->data.begin_ns;
        view_show(&b->view, from_ns, from_ns + window_ns);
        double ms = best_frame(b);
        printf("    zoom %-10.3g %6.2f ms, %u items\n", zoom, ms, b->list.items_n);
        worst = ms > worst ? ms : worst;
    }
    limit("a whole frame, worst zoom", worst, "ms", 12);
}

static void statistics(Bench *b)
{
    enum { TIMES = 1000 };
    int64_t length_ns = b->data.end_ns - b->data.begin_ns, sum = 0;
    double begin = cpu_ms();
    for (int i = 0; i < TIMES; i++) {
        int64_t from_ns = (int64_t)(mix_u64((uint64_t)i) % (uint64_t)length_ns) / 2;
        ViewWindow w = { from_ns, from_ns + length_ns / 3 };
        sum += view_window_stats(&b->view, w, NULL).sum.exposed_comm_ns;
    }
    limit("numbers of a selection of 8 ranks", (cpu_ms() - begin) / TIMES, "ms", 0.1);
    if (sum == 42)
        printf("never\n");
}

static bool png(Bench *b, Err *err)
{
    char path[64];
    snprintf(path, sizeof path, "%s/bench_view.%d.png", P_tmpdir, (int)getpid());
    double best = 1e9;
    view_fit(&b->view);
    scene_draw(&b->scene, &b->view, &b->list);
    raster_draw(&b->frame, &b->list);
    for (int i = 0; i < 3; i++) {
        double begin = cpu_ms();
        if (!frame_write_png(&b->frame, path, err))
            return false;
        double ms = cpu_ms() - begin;
        best = ms < best ? ms : best;
    }
    unlink(path);
    limit("a PNG of it", best, "ms", 50);
    return true;
}

static bool measure(Bench *b, const char *path, uint64_t events, Err *err)
{
    double ms;
    if (!write_trace(path, events, err) || !first_picture(b, path, &ms, err))
        return false;
    limit("from a native trace to its first picture", ms / 1e3, "s", 0.3);
    zooms(b);
    statistics(b);
    double bytes = (double)view_data_memory_bytes(&b->data) / (double)b->set.timeline.spans_n;
    printf("    of the viewer's own %.1f bytes an event, the columns mapped from the file 34\n",
           bytes);
    limit("memory an event, mapped columns included", bytes + 34, "bytes", 60);
    return png(b, err);
}

int main(int argc, char **argv)
{
    static Bench b;
    Err err = { 0 };
    char path[64];
    uint64_t events = argc > 1 ? strtoull(argv[1], NULL, 10) : 10000000;
    snprintf(path, sizeof path, "%s/bench_view.%d.lstrace", P_tmpdir, (int)getpid());
    bool ok = measure(&b, path, events, &err);
    unlink(path);
    if (!ok)
        fprintf(stderr, "bench_view: %s\n", err.text);
    return !ok || missed;
}

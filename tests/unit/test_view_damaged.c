/*
 * test_view_damaged.c - the recorded traces beside the repository in the viewer, whole and
 * damaged: cut off, bytes changed, pieces missing or twice.  What can be opened is drawn far
 * out, close up, with critical path and tooltips; what cannot is a sentence.  The sanitizers
 * see what breaks.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "tests/check.h"
#include "tests/real_traces.h"
#include "viz/cmd_view.h"
#include "viz/raster.h"
#include "viz/scene_parts.h"

enum { COPIES = 4, MOST_BYTES = 64 << 20, TIP_TEXT = 4096 };

typedef struct Bytes {
    unsigned char *at;
    size_t n;
} Bytes;

static const char *const others[] = { REAL_FOLDER
                                      "nsys/saxpy-mpi-cuda_nsys_perlmutter0.sqlite.gz",
                                      REAL_FOLDER "nsys/perlmutter-cloverleaf-cuda.sqlite.gz",
                                      REAL_FOLDER "chakra/chakra.0.et.gz",
                                      REAL_FOLDER "chakra/small_chakra.0.json" };

/* gzopen reads what is not compressed as it is. */
static Bytes unpacked(const char *path)
{
    Bytes b = { mem_zero(MOST_BYTES, 1), 0 };
    gzFile in = gzopen(path, "rb");
    int n = in ? gzread(in, b.at, MOST_BYTES) : 0;
    b.n = n > 0 ? (size_t)n : 0;
    if (in)
        gzclose(in);
    return b;
}

static void move(Bytes *b, size_t to, size_t from)
{
    memmove(b->at + to, b->at + from, b->n - from);
    b->n = b->n - from + to;
}

static void damage(Bytes *b, uint64_t seed)
{
    uint64_t at = mix_u64(seed) % b->n, length = mix_u64(seed + 1) % (b->n - at) / 8;
    switch (seed % 4) {
    case 0:
        b->n = at;
        return;
    case 1:
        for (int i = 0; i < 40; i++)
            b->at[mix_u64(seed + 2 + (uint64_t)i) % b->n] ^= (unsigned char)(1u << i % 8);
        return;
    case 2:
        move(b, at, at + length);
        return;
    default:
        if (b->n + length < MOST_BYTES)
            move(b, at + length, at); /* what was there stands twice */
    }
}

/* ---- looking at it ---- */

static void look(View *v, Scene *s, DrawList *list, Frame *f)
{
    char text[TIP_TEXT];
    scene_draw(s, v, list);
    raster_draw(f, list);
    for (uint32_t i = 0; i < s->layout.rows_n; i++) {
        const LayoutRow *row = &s->layout.rows[i];
        Px x = (s->layout.lanes.x0 + s->layout.lanes.x1) / 2;
        ViewPlace place = layout_pick(&s->layout, v, x, (row->y0 + row->y1) / 2);
        if (place.row != NONE_U32)
            scene_tip_text(v, place, text, sizeof text);
    }
}

static void look_everywhere(ViewTraces *traces, const ViewOptions *o)
{
    View v;
    Scene s;
    DrawList list = { .items = NULL };
    Frame f;
    Err err = { 0 };
    if (!CHECK(view_start(&v, traces, o, &err)) ||
        !CHECK(frame_init(&f, (int32_t)o->width, (int32_t)o->height, &err)))
        return;
    scene_open(&s, 100);
    look(&v, &s, &list, &f);
    v.critical = v.drawer = true;
    look(&v, &s, &list, &f);
    for (int i = 0; i < 4; i++) {
        view_zoom(&v, v.from_ns + (v.to_ns - v.from_ns) / 3, 20);
        look(&v, &s, &list, &f);
    }
    frame_free(&f);
    draw_free(&list);
    scene_free(&s);
    view_free(&v);
}

/* Notes on what is odd about damaged traces come by the hundred. */
static ViewTraces *open_quietly(const ViewOptions *o, Err *err)
{
    int kept = dup(STDERR_FILENO), nowhere = open("/dev/null", O_WRONLY);
    dup2(nowhere, STDERR_FILENO);
    ViewTraces *traces = view_traces_open(o, err);
    dup2(kept, STDERR_FILENO);
    close(nowhere);
    close(kept);
    return traces;
}

/* True: there was something to look at. */
static bool view_file(const char *path)
{
    const char *paths = path;
    ViewOptions o = { .paths = &paths, .paths_n = 1, .step = -1, .scale_pct = 100 };
    Err err = { 0 };
    o.width = 640;
    o.height = 360;
    ViewTraces *traces = open_quietly(&o, &err);
    if (!traces) {
        CHECK(err.text[0] != 0);
        return false;
    }
    view_traces_link(traces, &o);
    look_everywhere(traces, &o);
    view_traces_free(traces);
    return true;
}

static void view_copies(const char *path, uint64_t seed)
{
    char copy[256];
    const char *ending = strstr(path, ".sqlite") ? "sqlite"
                         : strstr(path, ".et")   ? "et"
                                                 : "json";
    snprintf(copy, sizeof copy, "%s/test_view_damaged.%d.%s", P_tmpdir, (int)getpid(), ending);
    for (uint64_t i = 0; i < COPIES; i++) {
        Bytes b = unpacked(path);
        if (CHECK(b.n > 100)) {
            damage(&b, seed * COPIES + i);
            FILE *out = fopen(copy, "wb");
            if (CHECK(out != NULL)) {
                CHECK_U64(b.n, fwrite(b.at, 1, b.n, out));
                fclose(out);
                view_file(copy);
            }
        }
        free(b.at);
    }
    unlink(copy);
}

static void every_trace_is_shown_and_no_damage_breaks_the_viewer(void)
{
    uint64_t seed = 1;
    if (access(REAL_FOLDER, R_OK) != 0)
        return;
    for (size_t i = 0; i < ARRAY_N(real_traces); i++) {
        CHECK(view_file(real_traces[i].files[0]));
        view_copies(real_traces[i].files[0], seed++);
    }
    for (size_t i = 0; i < ARRAY_N(others); i++) {
        CHECK(view_file(others[i]));
        view_copies(others[i], seed++);
    }
}

int main(void)
{
    RUN(every_trace_is_shown_and_no_damage_breaks_the_viewer);
    return check_report();
}

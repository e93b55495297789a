/*
 * test_view_traces.c - traces as lockstep view opens them: what collectives matched across
 * ranks show is what the report says of them.
 */
#include "profile/collectives.h"
#include "traces/native.h"
#include "viz/cmd_view.h"
#include "viz/scene_parts.h"

#include <string.h>
#include <unistd.h>

#include "tests/check.h"
#include "tests/trace_world.h"

enum { COLLS = 5, EVERY_NS = 100000, LATE_NS = 70000 };

typedef struct Opened {
    ViewTraces *traces;
    View view;
    Scene scene;
    DrawList list;
} Opened;

/* Two ranks: the second comes LATE_NS later, a few us before both end together; its clock is
 * ahead by ahead_ns. */
static void write_traces(const char *path, int64_t ahead_ns)
{
    World w = { 0 };
    Err err = { 0 };
    Coll coll = {
        .op = "all_reduce", .group = "dp", .bytes = 1950000, .wait_ns = -1, .ranks_n = 2
    };
    for (uint32_t r = 0; r < 2; r++) {
        uint32_t stream = world_stream(&w, r, 20);
        for (int i = 0; i < COLLS; i++) {
            int64_t at_ns = (int64_t)i * EVERY_NS + r * ahead_ns;
            coll.seq = i;
            world_comm(&w, stream, coll, at_ns + r * (int64_t)LATE_NS,
                       at_ns + LATE_NS + 10000 + 100 * i);
        }
    }
    timeline_seal(&w.t);
    CHECK(native_write(&w.t, path, &err));
    world_free(&w);
}

/* linked: the second half, which the first picture does not wait for, is there. */
static void open_traces(Opened *o, bool linked, int64_t ahead_ns)
{
    char path[64];
    const char *paths = path;
    ViewOptions options = { .paths = &paths, .paths_n = 1, .step = -1, .scale_pct = 100 };
    Err err = { 0 };
    options.width = 1400;
    options.height = 900;
    *o = (Opened){ .traces = NULL };
    snprintf(path, sizeof path, "%s/test_view_traces.%d.lstrace", P_tmpdir, (int)getpid());
    write_traces(path, ahead_ns);
    o->traces = view_traces_open(&options, &err);
    CHECK_STR("", err.text);
    if (linked)
        view_traces_link(o->traces, &options);
    CHECK(view_start(&o->view, o->traces, &options, &err));
    scene_open(&o->scene, 100);
    scene_draw(&o->scene, &o->view, &o->list);
    unlink(path);
}

static void close_traces(Opened *o)
{
    draw_free(&o->list);
    scene_free(&o->scene);
    view_free(&o->view);
    view_traces_free(o->traces);
}

static const char *tip_of(const Opened *o, uint64_t span)
{
    static char text[2048];
    const ViewData *d = o->view.data[0];
    for (uint32_t i = 0; i < d->rows_n; i++)
        if (d->rows[i].track == d->t->span_track[span])
            scene_tip_text(&o->view, (ViewPlace){ 0, i, span }, text, sizeof text);
    return text;
}

/* 1.95 MB of two ranks in 10 us: 195 GB/s, for the rank that waited 70 us as well. */
static void bus_bandwidth_is_that_of_the_transfer(void)
{
    Opened o;
    Collectives report;
    open_traces(&o, true, 0);
    const ViewData *d = o.view.data[0];
    collectives_find(&report, d->t, &d->covers, NULL);
    const SceneTables *tables = &o.scene.tables;
    CHECK_INT(1, report.rows_n);
    CHECK_INT(1, tables->comms_n);
    CHECK_NEAR(report.rows[0].busbw_GBps,
               timeline_busbw_over(d->t, tables->comms[0].span, tables->comms[0].transfer_ns),
               1e-12);
    CHECK_INT(10000 + 100 * (COLLS / 2), tables->comms[0].transfer_ns);
    for (uint64_t i = 0; i < d->t->spans_n; i++)
        if (d->t->start_ns[i] <= LATE_NS) /* the first of either rank */
            CHECK(strstr(tip_of(&o, i), "\nbusbw 195.0 GB/s of the transfer\n") != NULL);
    collectives_free(&report);
    close_traces(&o);
}

/* Before collectives are matched nobody knows who waited. */
static void an_unknown_wait_bounds_the_bandwidth(void)
{
    Opened o;
    open_traces(&o, false, 0);
    CHECK(strstr(tip_of(&o, 0), "\nbusbw at least 24.4 GB/s, over the whole kernel: its wait "
                                "is unknown") != NULL);
    close_traces(&o);
}

static bool says(const DrawList *d, const char *text)
{
    for (uint32_t i = 0; i < d->items_n; i++)
        if (d->items[i].kind == DRAW_TEXT && d->items[i].n == strlen(text) &&
            memcmp(d->chars + d->items[i].first, text, d->items[i].n) == 0)
            return true;
    return false;
}

static uint64_t minimap_sum(const Scene *s)
{
    uint64_t sum = 0;
    for (uint32_t x = 0; x < s->minimap.width; x++)
        sum = mix_u64(sum + s->minimap.share[x][LOD_EXPOSED]);
    return sum;
}

/* Moved clocks are never silent, and all that is kept from frame to frame follows them. */
static void clocks_that_differ_are_told(void)
{
    Opened o;
    char text[128];
    open_traces(&o, true, 0);
    CHECK_STR("", view_clocks_text(&o.view, text, sizeof text));
    close_traces(&o);

    open_traces(&o, true, 1234500);
    CHECK(says(&o.list, "clocks aligned by up to 1.234 ms, residual 0 ns   K"));
    uint64_t aligned = minimap_sum(&o.scene);
    CHECK_INT(1234500, view_shift_ns(&o.view, 0, 1));
    ViewWindow whole = view_whole(&o.view); /* what ran, not what the clocks say */
    CHECK_INT((COLLS - 1) * EVERY_NS + LATE_NS + 10000 + 100 * (COLLS - 1),
              whole.to_ns - whole.from_ns);
    CHECK(strstr(tip_of(&o, COLLS), "from 70.00 \xc2\xb5s of the trace") != NULL);
    o.view.align_clocks = false;
    scene_draw(&o.scene, &o.view, &o.list);
    CHECK(says(&o.list, "clocks as recorded, up to 1.234 ms apart   K"));
    CHECK(minimap_sum(&o.scene) != aligned);
    o.view.align_clocks = true;
    o.scene.still = true; /* a picture has no keys */
    scene_draw(&o.scene, &o.view, &o.list);
    CHECK(says(&o.list, "clocks aligned by up to 1.234 ms, residual 0 ns"));
    CHECK_U64(aligned, minimap_sum(&o.scene));
    close_traces(&o);
}

int main(void)
{
    RUN(bus_bandwidth_is_that_of_the_transfer);
    RUN(an_unknown_wait_bounds_the_bandwidth);
    RUN(clocks_that_differ_are_told);
    return check_report();
}

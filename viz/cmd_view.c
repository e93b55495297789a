/* cmd_view.c - lockstep view TRACE...: a picture in a file, or the window's program. */
#include "viz/cmd.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/out_file.h"
#include "sim/cmd_options.h"
#include "viz/cmd_view.h"
#include "viz/png.h"

static bool is_trace(const ViewOptions *o)
{
    for (uint32_t i = 0; i < o->paths_n; i++)
        if (out_file_is_same(o->render, o->paths[i]))
            return true;
    for (uint32_t i = 0; i < o->others_n; i++)
        if (out_file_is_same(o->render, o->others[i]))
            return true;
    return false;
}

/* A picture cannot be scrolled. */
static void say_hidden(const Layout *l)
{
    int64_t more = (l->scroll_max + PX_ONE - 1) / PX_ONE;
    int64_t width = (l->all.x1 - l->all.x0) / PX_ONE, height = (l->all.y1 - l->all.y0) / PX_ONE;
    if (more > 0)
        fprintf(stderr,
                "lockstep: not all rows are in the picture: --size %" PRId64 "x%" PRId64
                " has them all, --ranks A-B fewer\n",
                width, height + more);
}

static bool render(const ViewOptions *o, Err *err)
{
    ViewTraces *traces = NULL;
    View view = { .data = { NULL } };
    Scene scene;
    DrawList list = { .font = NULL };
    Keys keys; /* a picture has none, but a mistake in them is one here too */
    if (!keys_load(&keys, o->keys, err))
        return false;
    if (is_trace(o))
        return err_set(err, "'%s' is the trace itself, it is not written over", o->render);
    traces = view_traces_open(o, err);
    bool ok = traces != NULL;
    if (ok)
        view_traces_link(traces, o);
    ok = ok && view_start(&view, traces, o, err);
    if (ok) {
        scene_open(&scene, o->scale_pct);
        scene.still = true;
        scene.tips = picture_is_svg(o->render);
        scene_draw(&scene, &view, &list);
        view_note_letters(&scene);
        ok = picture_write(&list, o->render, err);
        if (ok)
            say_hidden(&scene.layout);
        draw_free(&list);
        scene_free(&scene);
    }
    if (view.data[0])
        view_free(&view);
    view_traces_free(traces);
    return ok;
}

/* ---- the window: a program of its own, beside this one or in PATH ---- */

static void find_window(char *path, size_t cap)
{
    static const char name[] = "lockstep-view";
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = 0;
    char *slash = strrchr(self, '/');
    if (slash) {
        slash[1] = 0;
        snprintf(path, cap, "%s%s", self, name);
        if (access(path, X_OK) == 0)
            return;
    }
    snprintf(path, cap, "%s", name);
}

static int start_window(char **argv)
{
    char path[PATH_MAX + 32];
    find_window(path, sizeof path);
    fflush(NULL);
    execvp(path, argv);
    fprintf(stderr,
            "lockstep: cannot start %s: %s; `make` builds it where SDL2 is (libsdl2-dev); "
            "--render OUT.png needs no window\n",
            path, strerror(errno));
    return EXIT_COULD_NOT;
}

int cmd_view(int argc, char **argv)
{
    ViewOptions o;
    Err err = { 0 };
    bool help = false;
    int status = EXIT_DONE;
    if (!view_options_parse(&o, argc, argv, &help, &err))
        status = options_wrong("view", &err);
    else if (help)
        view_options_help(stdout);
    else if (!o.render)
        status = start_window(argv);
    else if (!render(&o, &err)) {
        fprintf(stderr, "lockstep: %s\n", err.text);
        status = EXIT_COULD_NOT;
    }
    view_options_free(&o);
    return status;
}

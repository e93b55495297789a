/*
 * sdl_main.c - lockstep-view: the window.  Turns SDL's events into Input, draws only when
 * something has changed, and sleeps otherwise.
 *
 * Pixels come from our own rasteriser into the window's surface, which SDL must not route
 * through a GPU that is not there: SDL_HINT_FRAMEBUFFER_ACCELERATION is 0.
 *
 * --script FILE plays events from a file instead of a person, for tests: see sdl_script.c.
 */
#include <SDL.h>

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "viz/sdl_parts.h"

/* ---- pixels ---- */

static bool show(Window *w, Err *err)
{
    const DrawList *list = app_draw(&w->app);
    w->frames_n++;
    if (w->on_gpu)
        return sdl_render(&w->gpu, list, err);
    SDL_Surface *surface = SDL_GetWindowSurface(w->window);
    if (!surface)
        return err_set(err, "the window cannot be drawn: %s", SDL_GetError());
    if (w->frame.width != list->width || w->frame.height != list->height) {
        frame_free(&w->frame);
        if (!frame_init(&w->frame, list->width, list->height, err))
            return false;
    }
    raster_draw(&w->frame, list);
    SDL_Surface *pixels =
        SDL_CreateRGBSurfaceWithFormatFrom(w->frame.pixels, w->frame.width, w->frame.height, 32,
                                           w->frame.width * 4, SDL_PIXELFORMAT_ARGB8888);
    if (!pixels)
        return err_set(err, "the window cannot be drawn: %s", SDL_GetError());
    SDL_BlitSurface(pixels, NULL, surface, NULL);
    SDL_FreeSurface(pixels);
    SDL_UpdateWindowSurface(w->window);
    return true;
}

/* ---- events ---- */

static int32_t mods_now(void)
{
    SDL_Keymod m = SDL_GetModState();
    return (m & KMOD_SHIFT ? MOD_SHIFT : 0) | (m & (KMOD_CTRL | KMOD_GUI) ? MOD_CTRL : 0) |
           (m & KMOD_ALT ? MOD_ALT : 0);
}

static const struct {
    SDL_Keycode sdl;
    int32_t key;
} named_keys[] = {
    { SDLK_RETURN, KEY_ENTER },   { SDLK_KP_ENTER, KEY_ENTER },
    { SDLK_ESCAPE, KEY_ESC },     { SDLK_BACKSPACE, KEY_BACKSPACE },
    { SDLK_DELETE, KEY_DELETE },  { SDLK_TAB, KEY_TAB },
    { SDLK_LEFT, KEY_LEFT },      { SDLK_RIGHT, KEY_RIGHT },
    { SDLK_UP, KEY_UP },          { SDLK_DOWN, KEY_DOWN },
    { SDLK_HOME, KEY_HOME },      { SDLK_END, KEY_END },
    { SDLK_PAGEUP, KEY_PAGE_UP }, { SDLK_PAGEDOWN, KEY_PAGE_DOWN },
    { SDLK_F1, KEY_F1 },
};

/* W A S D by their place on the keyboard, wherever their letters are. */
static int32_t key_by_place(SDL_Scancode code)
{
    switch (code) {
    case SDL_SCANCODE_W:
        return 'w';
    case SDL_SCANCODE_A:
        return 'a';
    case SDL_SCANCODE_S:
        return 's';
    case SDL_SCANCODE_D:
        return 'd';
    default:
        return 0;
    }
}

/* With Ctrl nothing is typed: a sign as it comes with Shift on a US keyboard. */
static int32_t shifted(int32_t key)
{
    static const char pairs[] = "/?;:.>=+2@";
    for (const char *p = pairs; *p; p += 2)
        if (p[0] == key)
            return p[1];
    return key;
}

/* 0: none; or a sign, which comes as text, as the keyboard's layout has it. */
static int32_t key_of(const SDL_KeyboardEvent *k, int32_t mods)
{
    for (size_t i = 0; i < ARRAY_N(named_keys); i++)
        if (named_keys[i].sdl == k->keysym.sym)
            return named_keys[i].key;
    int32_t place = mods & MOD_CTRL ? 0 : key_by_place(k->keysym.scancode);
    if (place)
        return place;
    if (k->keysym.sym <= 0 || k->keysym.sym > 126)
        return 0;
    if (!(mods & (MOD_CTRL | MOD_ALT)))
        return keys_is_sign(k->keysym.sym) ? 0 : k->keysym.sym;
    return mods & MOD_SHIFT ? shifted(k->keysym.sym) : k->keysym.sym;
}

static bool take_key(Window *w, const SDL_KeyboardEvent *k)
{
    Input in = { .kind = INPUT_KEY, .mods = mods_now() };
    in.key = key_of(k, in.mods);
    bool open = w->app.view.omni_open;
    bool changed = in.key && app_input(&w->app, &in);
    w->acted = changed && !open;
    return changed;
}

/* Into the box; while that is closed a sign is a key. */
static bool take_text(Window *w, const char *text)
{
    bool sign = text[0] > ' ' && text[0] < 127 && !text[1] && !isalnum((unsigned char)text[0]);
    if (w->acted)
        return false;
    if (w->app.view.omni_open)
        return app_input(&w->app, &(Input){ .kind = INPUT_TEXT, .text = text });
    return sign && app_input(&w->app, &(Input){ .kind = INPUT_KEY, .key = text[0] });
}

static bool take_button(Window *w, const SDL_MouseButtonEvent *b)
{
    Input in = { .kind = b->state == SDL_PRESSED ? INPUT_DOWN : INPUT_UP,
                 .button = b->button,
                 .clicks = b->clicks,
                 .x = b->x,
                 .y = b->y,
                 .mods = mods_now() };
    return app_input(&w->app, &in);
}

static bool take_wheel(Window *w, const SDL_MouseWheelEvent *e)
{
    Input in = {
        .kind = INPUT_WHEEL, .mods = mods_now(), .dx = e->preciseX, .dy = e->preciseY
    };
    SDL_GetMouseState(&in.x, &in.y);
    return app_input(&w->app, &in);
}

static bool take_window(Window *w, const SDL_WindowEvent *e)
{
    if (e->event == SDL_WINDOWEVENT_LEAVE)
        return app_input(&w->app, &(Input){ .kind = INPUT_LEAVE });
    if (e->event == SDL_WINDOWEVENT_SIZE_CHANGED)
        return app_input(&w->app, &(Input){ .kind = INPUT_SIZE, .x = e->data1, .y = e->data2 });
    return e->event == SDL_WINDOWEVENT_EXPOSED || e->event == SDL_WINDOWEVENT_SHOWN;
}

bool window_take(Window *w, const SDL_Event *e)
{
    switch (e->type) {
    case SDL_QUIT:
        w->app.quit = true;
        return false;
    case SDL_KEYDOWN:
        return take_key(w, &e->key);
    case SDL_KEYUP:
        w->acted = false;
        return false;
    case SDL_TEXTINPUT:
        return take_text(w, e->text.text);
    case SDL_MOUSEMOTION:
        return app_input(&w->app,
                         &(Input){ .kind = INPUT_MOVE, .x = e->motion.x, .y = e->motion.y });
    case SDL_MOUSEBUTTONDOWN:
    case SDL_MOUSEBUTTONUP:
        return take_button(w, &e->button);
    case SDL_MOUSEWHEEL:
        return take_wheel(w, &e->wheel);
    case SDL_WINDOWEVENT:
        return take_window(w, &e->window);
    default:
        return false;
    }
}

/* Pictures and copies that an action asked for. */
static void fulfil(Window *w)
{
    App *a = &w->app;
    Err err = { 0 };
    if (a->save[0]) {
        if (app_save(a, a->save, &err))
            app_say(a, "written: %.200s", a->save);
        else
            app_say(a, "%.250s", err.text);
        a->save[0] = 0;
    }
    if (a->copy) {
        bool copied = SDL_SetClipboardText(a->copy) == 0;
        app_say(a, copied ? "copied" : "the clipboard cannot be used here");
        free(a->copy);
        a->copy = NULL;
    }
}

bool window_frame(Window *w, Err *err)
{
    fulfil(w);
    bool ok = show(w, err);
    view_note_letters(&w->app.scene);
    return ok;
}

static bool run(Window *w, Err *err)
{
    bool changed = true;
    while (!w->app.quit) {
        SDL_Event e;
        if (changed && !window_frame(w, err))
            return false;
        changed = false;
        if (!SDL_WaitEvent(&e))
            return err_set(err, "no events come any more: %s", SDL_GetError());
        do
            changed |= window_take(w, &e);
        while (SDL_PollEvent(&e));
    }
    return true;
}

/* ---- life ---- */

/* LOCKSTEP_VIEW_RENDERER: "own", "gpu", or "sdl" (triangles, in software where there is no GPU).
 * Without it a GPU draws windows of more than GPU_PIXELS, if there is one. */
static void choose_renderer(Window *w)
{
    enum { GPU_PIXELS = 2500000 };
    const char *name = getenv("LOCKSTEP_VIEW_RENDERER");
    Err none = { 0 };
    bool any = name && strcmp(name, "sdl") == 0, gpu = name && strcmp(name, "gpu") == 0;
    int64_t pixels = (int64_t)w->app.view.width * w->app.view.height;
    if (name ? any || gpu : pixels > GPU_PIXELS)
        w->on_gpu = sdl_render_open(&w->gpu, w->window, any, &none);
    if (name && (any || gpu) && !w->on_gpu)
        fprintf(stderr, "lockstep: note: %s; drawn without\n", none.text);
}

/* Where there is no display SDL falls back on drivers that draw for nobody, and waits for
 * events that never come.  Who wants one names it. */
static bool is_for_nobody(const char *driver)
{
    static const char *const drivers[] = { "offscreen", "dummy", "evdev" };
    const char *asked = getenv("SDL_VIDEODRIVER");
    for (size_t i = 0; driver && !(asked && asked[0]) && i < ARRAY_N(drivers); i++)
        if (strcmp(driver, drivers[i]) == 0)
            return true;
    return false;
}

static bool open_window(Window *w, Err *err)
{
    const View *v = &w->app.view;
    SDL_SetHint(SDL_HINT_FRAMEBUFFER_ACCELERATION, "0");
    SDL_SetHint(SDL_HINT_VIDEO_ALLOW_SCREENSAVER, "1");
    if (SDL_Init(SDL_INIT_VIDEO) != 0)
        return err_set(err, "no window can be opened (%s); --render OUT.png needs none",
                       SDL_GetError());
    if (is_for_nobody(SDL_GetCurrentVideoDriver()))
        return err_set(err, "no window can be opened (there is no display); "
                            "--render OUT.png needs none");
    char title[200];
    snprintf(title, sizeof title, "%s - lockstep", v->data[0]->name);
    w->window = SDL_CreateWindow(title, SDL_WINDOWPOS_UNDEFINED, SDL_WINDOWPOS_UNDEFINED,
                                 v->width, v->height, SDL_WINDOW_RESIZABLE);
    if (!w->window)
        return err_set(err, "no window can be opened (%s); --render OUT.png needs none",
                       SDL_GetError());
    SDL_SetWindowMinimumSize(w->window, 320, 200);
    SDL_GetWindowSize(w->window, &w->app.view.width, &w->app.view.height);
    SDL_StartTextInput();
    choose_renderer(w);
    return true;
}

static void close_window(Window *w)
{
    frame_free(&w->frame);
    sdl_render_close(&w->gpu);
    if (w->window)
        SDL_DestroyWindow(w->window);
    SDL_Quit();
}

/* --script FILE is taken out of argv: it is no option people need. */
static const char *take_script(int *argc, char **argv)
{
    for (int i = 1; i + 1 < *argc; i++)
        if (strcmp(argv[i], "--script") == 0) {
            const char *path = argv[i + 1];
            memmove(&argv[i], &argv[i + 2], (size_t)(*argc - i - 1) * sizeof *argv);
            *argc -= 2;
            return path;
        }
    return NULL;
}

/* At once; then what takes longer, while people look. */
static bool first_picture(Window *w, ViewTraces *t, const ViewOptions *o, Err *err)
{
    View *v = &w->app.view;
    ViewWindow whole = view_whole(v);
    bool all = v->from_ns == whole.from_ns && v->to_ns == whole.to_ns;
    w->app.scene.hurry = true;
    bool ok = window_frame(w, err);
    w->app.scene.hurry = false;
    if (view_traces_sides(t) == 1)
        view_traces_link(t, o);
    if (all && v->history_at == 0) { /* clocks that were found to differ have moved it */
        v->history_n = 0;
        view_fit(v);
    }
    w->app.scene.path.data = NULL; /* both were made without links */
    w->app.scene.tables.data = NULL;
    return ok;
}

static bool view(const ViewOptions *o, const char *script, Err *err)
{
    Keys keys;
    ViewTraces *traces = keys_load(&keys, o->keys, err) ? view_traces_open(o, err) : NULL;
    View start = { .data = { NULL } };
    Window w = { .window = NULL };
    bool ok = traces != NULL;
    if (ok && view_traces_sides(traces) > 1)
        view_traces_link(traces, o); /* what is shown depends on it */
    ok = ok && view_start(&start, traces, o, err);
    if (ok) {
        app_open(&w.app, start);
        app_set_keys(&w.app, &keys);
        ok = !o->filter || app_filter(&w.app, o->filter, err);
        ok = ok && open_window(&w, err) && first_picture(&w, traces, o, err) &&
             (script ? window_play(&w, script, err) : run(&w, err));
        close_window(&w);
        app_free(&w.app);
    } else if (start.data[0]) {
        view_free(&start);
    }
    view_traces_free(traces);
    return ok;
}

int main(int argc, char **argv)
{
    ViewOptions o;
    Err err = { 0 };
    bool help = false;
    int status = EXIT_DONE;
    const char *script = take_script(&argc, argv);
    if (!view_options_parse(&o, argc, argv, &help, &err)) {
        fprintf(stderr, "lockstep: %s\n", err.text);
        status = EXIT_USAGE;
    } else if (help) {
        view_options_help(stdout);
    } else if (!view(&o, script, &err)) {
        fprintf(stderr, "lockstep: %s\n", err.text);
        status = EXIT_COULD_NOT;
    }
    view_options_free(&o);
    return status;
}

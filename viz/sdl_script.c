/*
 * sdl_script.c - a session from a file: events through SDL's queue, checks in between.
 *
 *     key w            a key by its sign or name (Enter, Esc, Left, F1 ...), with Ctrl+, Shift+
 *     key Shift+7 /    the same, and what it types where that is another sign
 *     type nccl        text as it would be typed
 *     move X Y         the mouse
 *     drag X Y X2 Y2 [BUTTON]
 *     click X Y [CLICKS]
 *     wheel DY [MODS]
 *     size W H         the window
 *     frame OUT.png    what is in the window now, read back from its surface
 *     save OUT         the same by the draw list: .png or .svg
 *     expect NAME OP VALUE     window_ns < 1000000; compute_ns = 3; omni = 1; see values[]
 *     idle             no frame is drawn while nothing happens
 *
 * Empty lines and those that begin with # are skipped.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "viz/png.h"
#include "viz/sdl_parts.h"

typedef struct Script {
    Window *w;
    int line;
    char *words[8];
    int words_n;
} Script;

/* ---- events ---- */

/* All that is queued is taken; then one frame, as the window's loop does. */
static bool settle(Script *s, Err *err)
{
    SDL_Event e;
    bool changed = false;
    SDL_PumpEvents();
    while (SDL_PollEvent(&e))
        changed |= window_take(s->w, &e);
    return !changed || window_frame(s->w, err);
}

static const struct {
    const char *name;
    SDL_Keycode key;
} key_names[] = {
    { "Enter", SDLK_RETURN },  { "Esc", SDLK_ESCAPE }, { "Backspace", SDLK_BACKSPACE },
    { "Delete", SDLK_DELETE }, { "Tab", SDLK_TAB },    { "Left", SDLK_LEFT },
    { "Right", SDLK_RIGHT },   { "Up", SDLK_UP },      { "Down", SDLK_DOWN },
    { "Home", SDLK_HOME },     { "End", SDLK_END },    { "PgUp", SDLK_PAGEUP },
    { "PgDn", SDLK_PAGEDOWN }, { "F1", SDLK_F1 },
};

static SDL_Keymod take_mods(const char **name)
{
    SDL_Keymod mods = KMOD_NONE;
    for (;;) {
        if (strncmp(*name, "Ctrl+", 5) == 0 && (*name)[5]) {
            mods |= KMOD_LCTRL;
            *name += 5;
        } else if (strncmp(*name, "Shift+", 6) == 0 && (*name)[6]) {
            mods |= KMOD_LSHIFT;
            *name += 6;
        } else {
            return mods;
        }
    }
}

static void push_text(const char *before, const char *text)
{
    SDL_Event e = { .text = { .type = SDL_TEXTINPUT } };
    snprintf(e.text.text, sizeof e.text.text, "%s%s", before, text);
    SDL_PushEvent(&e);
}

/* A key that types something is followed by that, as SDL sends it. */
static bool play_key(Script *s, Err *err)
{
    const char *name = s->words[1];
    SDL_Keymod mods = take_mods(&name);
    SDL_Event e = { .key = { .type = SDL_KEYDOWN, .state = SDL_PRESSED } };
    e.key.keysym.sym = (unsigned char)name[0];
    for (size_t i = 0; i < ARRAY_N(key_names); i++)
        if (strcmp(key_names[i].name, name) == 0)
            e.key.keysym.sym = key_names[i].key;
    e.key.keysym.scancode = SDL_GetScancodeFromKey(e.key.keysym.sym);
    SDL_SetModState(mods);
    SDL_PushEvent(&e);
    if (s->words_n > 2 || (!name[1] && !(mods & KMOD_CTRL)))
        push_text("", s->words_n > 2 ? s->words[2] : name);
    e.key.type = SDL_KEYUP;
    e.key.state = SDL_RELEASED;
    SDL_PushEvent(&e);
    bool ok = settle(s, err);
    SDL_SetModState(KMOD_NONE);
    return ok;
}

static bool play_type(Script *s, Err *err)
{
    for (int i = 1; i < s->words_n; i++)
        push_text(i > 1 ? " " : "", s->words[i]);
    return settle(s, err);
}

static int number(const Script *s, int word)
{
    return word < s->words_n ? atoi(s->words[word]) : 0;
}

static void push_motion(int x, int y)
{
    SDL_Event e = { .motion = { .type = SDL_MOUSEMOTION, .x = x, .y = y } };
    SDL_PushEvent(&e);
}

static void push_button(bool down, int button, int clicks, int x, int y)
{
    SDL_Event e = { .button = { .type = down ? SDL_MOUSEBUTTONDOWN : SDL_MOUSEBUTTONUP,
                                .state = down ? SDL_PRESSED : SDL_RELEASED,
                                .button = (uint8_t)button,
                                .clicks = (uint8_t)clicks,
                                .x = x,
                                .y = y } };
    SDL_PushEvent(&e);
}

static bool play_move(Script *s, Err *err)
{
    push_motion(number(s, 1), number(s, 2));
    return settle(s, err);
}

static bool play_drag(Script *s, Err *err)
{
    int x = number(s, 1), y = number(s, 2), x2 = number(s, 3), y2 = number(s, 4);
    int button = s->words_n > 5 ? number(s, 5) : SDL_BUTTON_LEFT;
    push_motion(x, y);
    push_button(true, button, 1, x, y);
    for (int i = 1; i <= 4; i++)
        push_motion(x + (x2 - x) * i / 4, y + (y2 - y) * i / 4);
    push_button(false, button, 1, x2, y2);
    return settle(s, err);
}

static bool play_click(Script *s, Err *err)
{
    int x = number(s, 1), y = number(s, 2), clicks = s->words_n > 3 ? number(s, 3) : 1;
    push_motion(x, y);
    push_button(true, SDL_BUTTON_LEFT, clicks, x, y);
    push_button(false, SDL_BUTTON_LEFT, clicks, x, y);
    return settle(s, err);
}

static bool play_wheel(Script *s, Err *err)
{
    const char *mods = s->words_n > 2 ? s->words[2] : "";
    App *a = &s->w->app;
    Input in = { .kind = INPUT_WHEEL,
                 .dy = atof(s->words[1]),
                 .x = a->view.mouse_x,
                 .y = a->view.mouse_y,
                 .mods = (strstr(mods, "Ctrl") ? MOD_CTRL : 0) |
                         (strstr(mods, "Shift") ? MOD_SHIFT : 0) };
    app_input(a, &in); /* SDL knows the place of a real mouse only */
    return window_frame(s->w, err);
}

static bool play_size(Script *s, Err *err)
{
    SDL_SetWindowSize(s->w->window, number(s, 1), number(s, 2));
    for (int i = 0; i < 50; i++) {
        if (!settle(s, err))
            return false;
        if (s->w->app.view.width == number(s, 1) && s->w->app.view.height == number(s, 2))
            return window_frame(s->w, err);
        SDL_Delay(20);
    }
    return err_set(err, "the window did not become %s x %s", s->words[1], s->words[2]);
}

/* ---- what is there ---- */

/* What triangles have left in the window. */
static bool read_renderer(SDL_Renderer *r, const char *path, Err *err)
{
    int width, height;
    Frame frame = { .pixels = NULL };
    SDL_GetRendererOutputSize(r, &width, &height);
    if (!frame_init(&frame, width, height, err))
        return false;
    SDL_RenderSetClipRect(r, NULL);
    bool ok =
        SDL_RenderReadPixels(r, NULL, SDL_PIXELFORMAT_ARGB8888, frame.pixels, width * 4) == 0
            ? frame_write_png(&frame, path, err)
            : err_set(err, "the window cannot be read: %s", SDL_GetError());
    frame_free(&frame);
    return ok;
}

static bool play_frame(Script *s, Err *err)
{
    if (s->w->on_gpu) /* a frame that was shown may not be there to read: draw it again */
        return sdl_render(&s->w->gpu, app_draw(&s->w->app), err) &&
               read_renderer(s->w->gpu.renderer, s->words[1], err);
    SDL_Surface *surface = SDL_GetWindowSurface(s->w->window);
    SDL_Surface *copy =
        surface ? SDL_ConvertSurfaceFormat(surface, SDL_PIXELFORMAT_ARGB8888, 0) : NULL;
    Frame frame = { .pixels = NULL };
    if (!copy || !frame_init(&frame, copy->w, copy->h, err)) {
        SDL_FreeSurface(copy); /* NULL is fine */
        return err_set(err, "the window cannot be read: %s", SDL_GetError());
    }
    for (int y = 0; y < copy->h; y++) {
        const void *line = (const char *)copy->pixels + y * copy->pitch;
        for (int x = 0; x < copy->w; x++)
            frame.pixels[y * copy->w + x] = 0xff000000 | ((const uint32_t *)line)[x];
    }
    bool ok = frame_write_png(&frame, s->words[1], err);
    frame_free(&frame);
    SDL_FreeSurface(copy);
    return ok;
}

static bool play_save(Script *s, Err *err)
{
    return app_save(&s->w->app, s->words[1], err);
}

static bool stat_value(const App *a, const char *name, int64_t *value)
{
    char text[512], *line;
    app_stats_text(a, text, sizeof text);
    size_t n = strlen(name);
    for (line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        if (strncmp(line, name, n) == 0 && line[n] == '\t') {
            *value = strtoll(line + n + 1, NULL, 10);
            return true;
        }
    return false;
}

static bool find_value(const Script *s, const char *name, int64_t *value)
{
    const App *a = &s->w->app;
    const View *v = &a->view;
    const struct {
        const char *name;
        int64_t value;
    } values[] = { { "view_ns", v->to_ns - v->from_ns },
                   { "from_ns", v->from_ns - v->data[0]->begin_ns },
                   { "omni", v->omni_open },
                   { "typed", (int64_t)strlen(v->omni) },
                   { "offers", v->offers_n },
                   { "mode", (int64_t)v->mode },
                   { "selection", v->has_selection },
                   { "selection_ns", v->selection.to_ns - v->selection.from_ns },
                   { "picked", v->picked.row != NONE_U32 },
                   { "hover", v->hover.row != NONE_U32 },
                   { "help", v->help },
                   { "drawer", v->drawer },
                   { "filter", a->filter.d != NULL },
                   { "marks", v->marks_n },
                   { "grouped", v->grouped_by },
                   { "rows", a->scene.layout.rows_n },
                   { "scroll", v->scroll_px },
                   { "width", v->width },
                   { "height", v->height },
                   { "message", v->message[0] != 0 } };
    for (size_t i = 0; i < ARRAY_N(values); i++)
        if (strcmp(values[i].name, name) == 0) {
            *value = values[i].value;
            return true;
        }
    return stat_value(a, name, value);
}

static bool play_expect(Script *s, Err *err)
{
    int64_t value = 0, wanted = s->words_n > 3 ? strtoll(s->words[3], NULL, 10) : 0;
    if (s->words_n < 4 || !find_value(s, s->words[1], &value))
        return err_set(err, "expect takes a known NAME, one of < = >, a number");
    char op = s->words[2][0];
    bool held = op == '<' ? value < wanted : op == '>' ? value > wanted : value == wanted;
    if (!held)
        return err_set(err, "%s is %" PRId64 ", expected %s %s", s->words[1], value,
                       s->words[2], s->words[3]);
    return true;
}

/* Nothing moves: no event asks for a frame. */
static bool play_idle(Script *s, Err *err)
{
    if (!settle(s, err))
        return false;
    uint64_t before = s->w->frames_n;
    for (int i = 0; i < 10; i++) {
        SDL_Delay(20);
        if (!settle(s, err))
            return false;
    }
    if (s->w->frames_n != before)
        return err_set(err, "%d frames were drawn while nothing moved",
                       (int)(s->w->frames_n - before));
    return true;
}

/* ---- lines ---- */

static const struct {
    const char *name;
    int words_min;
    bool (*play)(Script *s, Err *err);
} plays[] = {
    { "key", 2, play_key },       { "type", 2, play_type },   { "move", 3, play_move },
    { "drag", 5, play_drag },     { "click", 3, play_click }, { "wheel", 2, play_wheel },
    { "size", 3, play_size },     { "frame", 2, play_frame }, { "save", 2, play_save },
    { "expect", 4, play_expect }, { "idle", 1, play_idle },
};

static bool play_line(Script *s, char *line, Err *err)
{
    char *rest = NULL;
    s->words_n = 0;
    for (char *word = strtok_r(line, " \n", &rest); word && s->words_n < 8;
         word = strtok_r(NULL, " \n", &rest))
        s->words[s->words_n++] = word;
    if (s->words_n == 0 || s->words[0][0] == '#')
        return true;
    for (size_t i = 0; i < ARRAY_N(plays); i++)
        if (strcmp(plays[i].name, s->words[0]) == 0 && s->words_n >= plays[i].words_min)
            return plays[i].play(s, err);
    return err_set(err, "'%.40s' is no event, or lacks words", s->words[0]);
}

bool window_play(Window *w, const char *path, Err *err)
{
    Script s = { .w = w };
    char line[512];
    FILE *in = fopen(path, "r");
    if (!in)
        return err_set(err, "'%s' cannot be read: %s", path, strerror(errno));
    bool ok = window_frame(w, err) && settle(&s, err);
    while (ok && !w->app.quit && fgets(line, sizeof line, in)) {
        s.line++;
        Err wrong = { 0 };
        ok = play_line(&s, line, &wrong);
        if (!ok)
            err_set(err, "%s:%d: %s", path, s.line, wrong.text);
    }
    fclose(in);
    return ok;
}

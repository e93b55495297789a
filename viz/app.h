/*
 * app.h - what people do to the view: keys, mouse, typed commands; without a window.
 *
 *     SDL event --sdl_main.c--> Input --app_input--> View changes --> app_draw --> DrawList
 *     a test's script -----------^
 *
 * Keys are named by their place on the keyboard where habit goes by place (W A S D), by
 * their sign elsewhere.  Every action has a name: the palette, the help and the table of
 * keys are one table (app_keys.c).
 */
#ifndef LOCKSTEP_VIZ_APP_H
#define LOCKSTEP_VIZ_APP_H

#include "viz/filter.h"
#include "viz/keys.h"
#include "viz/scene.h"

typedef enum InputKind {
    INPUT_KEY,   /* key, mods */
    INPUT_TEXT,  /* text, typed into the omnibox */
    INPUT_MOVE,  /* x, y */
    INPUT_DOWN,  /* button, clicks, x, y, mods */
    INPUT_UP,    /* button, x, y */
    INPUT_WHEEL, /* dx, dy (up > 0), x, y, mods */
    INPUT_LEAVE, /* the mouse left the window */
    INPUT_SIZE   /* x, y: the new size */
} InputKind;

typedef struct Input {
    InputKind kind;
    int32_t key, mods, button, clicks, x, y;
    double dx, dy;
    const char *text;
} Input;

/* What is dragged. */
typedef enum AppDrag { DRAG_NONE, DRAG_SELECT, DRAG_PAN, DRAG_ZOOM_TO, DRAG_MINIMAP } AppDrag;

enum { APP_OFFERS = 12, APP_HELP = 96 };

typedef struct App {
    View view;
    Scene scene;
    DrawList list;
    ViewFilter filter, search; /* .d NULL: none */
    Keys keys;
    AppDrag drag;
    int32_t drag_x, drag_y;
    int64_t drag_ns, drag_from_ns, drag_to_ns;
    const char *help[APP_HELP];
    char help_text[APP_HELP][96];
    const char *offers[APP_OFFERS];
    char offer_text[APP_OFFERS][96];
    int32_t offer_action[APP_OFFERS]; /* of the palette; -1 - rank index: go to that rank */
    bool quit;
    char save[VIEW_TEXT]; /* a picture is wanted there, by the caller; "" none */
    char *copy;           /* for the clipboard, by the caller, who frees it; NULL none */
} App;

/* The view is moved into the app; its data stays the caller's. */
void app_open(App *a, View view);
void app_free(App *a);
/* Other keys than the default ones. */
void app_set_keys(App *a, const Keys *keys);
/* What does not match is dimmed; "" everything matches.  False with a sentence. */
bool app_filter(App *a, const char *text, Err *err);

/* True: the picture has changed. */
bool app_input(App *a, const Input *in);

/* The picture; the list lives until the next one. */
const DrawList *app_draw(App *a);

/* The picture into a file, by its ending; in an SVG spans have their tooltips. */
bool app_save(App *a, const char *path, Err *err);

/* By the name of an action ("zoom in", "next exposed"); false: there is none. */
bool app_act(App *a, const char *name);

/* Numbers of the statistics' window, as the drawer shows them: "name\tvalue" lines. */
char *app_stats_text(const App *a, char *text, size_t cap);

/* Fills a->copy: the tooltip of the event at hand; numbers, top kernels and most exposed
 * communication as tables or JSON; or the event if there is one, else the tables. */
typedef enum AppCopy { COPY_EVENT, COPY_TSV, COPY_JSON, COPY_AT_HAND } AppCopy;
void app_copy(App *a, AppCopy what);

/* ---- for app*.c ---- */

typedef struct AppAction {
    const char *name;    /* as the palette shows it */
    int32_t key, mods;   /* by default; viz/keys.h */
    void (*act)(App *a); /* or, where there are several of a kind: by(a, n) */
    void (*by)(App *a, int32_t n);
    int32_t n;
} AppAction;

extern const AppAction app_actions[];
extern const size_t app_actions_n;

void app_do(App *a, uint32_t action); /* index into app_actions */
bool app_key(App *a, int32_t key, int32_t mods);
bool app_mouse(App *a, const Input *in);
void app_hover(App *a); /* what the mouse is over now */

void app_omni_open(App *a, const char *text);
void app_omni_close(App *a);
bool app_omni_key(App *a, int32_t key, int32_t mods);
void app_omni_type(App *a, const char *text);

/* Opens the group of a rank of side 0 that is to be seen. */
void app_unhide(App *a, uint32_t rank);
void app_say(App *a, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The row that a rank of side 0 begins with; NULL: none. */
const LayoutRow *app_first_row(const App *a, uint32_t rank);
/* Scrolls so that a row (NULL: none) is in sight. */
void app_scroll_to(App *a, const LayoutRow *row);
/* Picks a span and brings it into sight, if it is not: a host thread's opens those of its rank. */
void app_pick(App *a, ViewPlace place);
/* What the next match is, from now on: an interned name of the side shown. */
void app_search_name(App *a, uint32_t name);
/* Goes to the next span of the i-th of the drawer's top kernels. */
void app_search_kernel(App *a, uint32_t i);
/* The rank the keyboard, the mouse or the picked span is at; NONE_U32. */
uint32_t app_rank(const App *a);

#endif

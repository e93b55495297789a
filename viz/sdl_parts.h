/*
 * sdl_parts.h - the window, as sdl_main.c and sdl_script.c share it.
 */
#ifndef LOCKSTEP_VIZ_SDL_PARTS_H
#define LOCKSTEP_VIZ_SDL_PARTS_H

#include <SDL.h>

#include "viz/app.h"
#include "viz/cmd_view.h"
#include "viz/raster.h"
#include "viz/sdl_render.h"

typedef struct Window {
    App app;
    SDL_Window *window;
    bool acted;  /* the key that is down did something: what it types is not meant */
    bool on_gpu; /* gpu draws, not our own rasteriser */
    SdlRender gpu;
    Frame frame;
    uint64_t frames_n; /* drawn so far */
} Window;

/* True: the picture has changed. */
bool window_take(Window *w, const SDL_Event *e);
/* Draws, after what an action asked for was done. */
bool window_frame(Window *w, Err *err);

/* Plays a file of events through SDL's own queue; false at the first check that fails. */
bool window_play(Window *w, const char *path, Err *err);

#endif

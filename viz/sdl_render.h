/*
 * sdl_render.h - draw list to triangles on a GPU, through SDL.
 */
#ifndef LOCKSTEP_VIZ_SDL_RENDER_H
#define LOCKSTEP_VIZ_SDL_RENDER_H

#include <SDL.h>

#include "viz/draw.h"

typedef struct SdlRender {
    SDL_Renderer *renderer;
    SDL_Texture *texture; /* of the running batch */
    SDL_Texture *atlas;
    const Font *atlas_of;
    uint32_t atlas_version, atlas_height;
    SDL_Vertex *vertex;
    uint32_t vertex_n, vertex_cap;
    int *index;
    uint32_t index_n, index_cap;
} SdlRender;

/* any: a renderer in software will do as well; for tests. */
bool sdl_render_open(SdlRender *r, SDL_Window *window, bool any, Err *err);
void sdl_render_close(SdlRender *r);
bool sdl_render(SdlRender *r, const DrawList *d, Err *err);

#endif

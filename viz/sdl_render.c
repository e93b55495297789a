/*
 * sdl_render.c - draw list to triangles: SDL_RenderGeometry, for large windows on machines
 * with a GPU, where copying the pixels of our own rasteriser would take longer.
 *
 * Items of one clip and one texture go out in one call.  Shapes are those of the rasteriser
 * (viz/raster_shapes.c) without its coverage of part pixels, which the GPU does as it does.
 */
#include <math.h>
#include <stdlib.h>

#include "viz/sdl_render.h"

enum { ARC_STEPS = 6 };

/* ---- batches ---- */

static SDL_Color sdl_color(Color c)
{
    return (SDL_Color){ (uint8_t)(c >> 16), (uint8_t)(c >> 8), (uint8_t)c, (uint8_t)(c >> 24) };
}

static float px_float(Px x)
{
    return (float)x / PX_ONE;
}

static void flush(SdlRender *r)
{
    if (r->index_n > 0)
        SDL_RenderGeometry(r->renderer, r->texture, r->vertex, (int)r->vertex_n, r->index,
                           (int)r->index_n);
    r->vertex_n = r->index_n = 0;
}

static void use_texture(SdlRender *r, SDL_Texture *texture)
{
    if (r->texture != texture)
        flush(r);
    r->texture = texture;
}

static void add_vertex(SdlRender *r, float x, float y, float u, float v, SDL_Color color)
{
    GROW(r->vertex, r->vertex_n, r->vertex_cap);
    r->vertex[r->vertex_n++] = (SDL_Vertex){ { x, y }, color, { u, v } };
}

static void add_index(SdlRender *r, uint32_t i)
{
    GROW(r->index, r->index_n, r->index_cap);
    r->index[r->index_n++] = (int)i;
}

/* A convex polygon, as a fan. */
static void add_polygon(SdlRender *r, const SDL_FPoint *p, uint32_t n, Color color)
{
    uint32_t first = r->vertex_n;
    use_texture(r, NULL);
    first = r->vertex_n;
    for (uint32_t i = 0; i < n; i++)
        add_vertex(r, p[i].x, p[i].y, 0, 0, sdl_color(color));
    for (uint32_t i = 2; i < n; i++) {
        add_index(r, first);
        add_index(r, first + i - 1);
        add_index(r, first + i);
    }
}

static void add_box(SdlRender *r, float x0, float y0, float x1, float y1, Color color)
{
    SDL_FPoint p[] = { { x0, y0 }, { x1, y0 }, { x1, y1 }, { x0, y1 } };
    add_polygon(r, p, 4, color);
}

/* ---- shapes ---- */

static void add_round(SdlRender *r, const DrawItem *item)
{
    SDL_FPoint p[4 * (ARC_STEPS + 1)];
    uint32_t n = 0;
    float radius = px_float(item->radius);
    float x[] = { px_float(item->box.x1) - radius, px_float(item->box.x0) + radius };
    float y[] = { px_float(item->box.y1) - radius, px_float(item->box.y0) + radius };
    for (int corner = 0; corner < 4; corner++)
        for (int k = 0; k <= ARC_STEPS; k++) {
            float angle = (float)M_PI / 2 * ((float)corner + (float)k / ARC_STEPS);
            p[n++] = (SDL_FPoint){ x[corner == 1 || corner == 2] + radius * cosf(angle),
                                   y[corner >= 2] + radius * sinf(angle) };
        }
    add_polygon(r, p, n, item->color);
}

static void add_outline(SdlRender *r, const DrawItem *item)
{
    float w = px_float(item->width), x0 = px_float(item->box.x0), y0 = px_float(item->box.y0);
    float x1 = px_float(item->box.x1), y1 = px_float(item->box.y1);
    add_box(r, x0, y0, x1, fminf(y0 + w, y1), item->color);
    add_box(r, x0, fmaxf(y1 - w, y0), x1, y1, item->color);
    add_box(r, x0, y0 + w, fminf(x0 + w, x1), y1 - w, item->color);
    add_box(r, fmaxf(x1 - w, x0), y0 + w, x1, y1 - w, item->color);
}

/* In two convex halves, above and below its middle. */
static void add_chevron(SdlRender *r, const DrawItem *item)
{
    float x0 = px_float(item->box.x0), x1 = px_float(item->box.x1), y0 = px_float(item->box.y0);
    float y1 = px_float(item->box.y1), middle = (y0 + y1) / 2, depth = px_float(item->radius);
    float notch = fmaxf(depth, 0), point = fmaxf(-depth, 0);
    SDL_FPoint above[] = {
        { x0 + point, y0 }, { x1 - notch, y0 }, { x1 - point, middle }, { x0 + notch, middle }
    };
    SDL_FPoint below[] = {
        { x0 + notch, middle }, { x1 - point, middle }, { x1 - notch, y1 }, { x0 + point, y1 }
    };
    add_polygon(r, above, 4, item->color);
    add_polygon(r, below, 4, item->color);
}

/* The part of a polygon where sign * (x + y) <= sign * edge. */
static uint32_t cut_diagonal(SDL_FPoint *out, const SDL_FPoint *in, uint32_t n, float sign,
                             float edge)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        SDL_FPoint a = in[i], b = in[(i + 1) % n];
        float da = sign * (a.x + a.y - edge), db = sign * (b.x + b.y - edge);
        if (da <= 0)
            out[kept++] = a;
        if ((da < 0 && db > 0) || (da > 0 && db < 0)) {
            float part = da / (da - db);
            out[kept++] = (SDL_FPoint){ a.x + part * (b.x - a.x), a.y + part * (b.y - a.y) };
        }
    }
    return kept;
}

/* Stripes lie where (x + y) mod hatch_px is below 3/8 of it: raster_hatch_cover. */
static void add_hatch(SdlRender *r, const DrawList *d, const DrawItem *item,
                      const DrawClip *clip)
{
    float x0 = fmaxf(px_float(item->box.x0), (float)clip->x0);
    float x1 = fminf(px_float(item->box.x1), (float)clip->x1);
    float y0 = px_float(item->box.y0), y1 = px_float(item->box.y1);
    float period = (float)d->hatch_px, stripe = period * 3 / 8;
    add_box(r, x0, y0, x1, y1, item->color);
    SDL_FPoint box[] = { { x0, y0 }, { x1, y0 }, { x1, y1 }, { x0, y1 } }, half[8], part[8];
    for (float at = floorf((x0 + y0) / period) * period; at < x1 + y1; at += period) {
        uint32_t n = cut_diagonal(half, box, 4, -1, at);
        n = cut_diagonal(part, half, n, 1, at + stripe);
        if (n >= 3)
            add_polygon(r, part, n, item->color2);
    }
}

static void add_segment(SdlRender *r, SDL_FPoint a, SDL_FPoint b, float width, float reach,
                        Color color)
{
    float dx = b.x - a.x, dy = b.y - a.y, length = sqrtf(dx * dx + dy * dy);
    if (length <= 0)
        return;
    float ax = dx / length * reach, ay = dy / length * reach;
    float nx = dy / length * width / 2, ny = -dx / length * width / 2;
    SDL_FPoint quad[] = { { a.x - ax + nx, a.y - ay + ny },
                          { b.x + ax + nx, b.y + ay + ny },
                          { b.x + ax - nx, b.y + ay - ny },
                          { a.x - ax - nx, a.y - ay - ny } };
    add_polygon(r, quad, 4, color);
}

static void add_dashes(SdlRender *r, SDL_FPoint a, SDL_FPoint b, const DrawItem *item,
                       float *at)
{
    float dx = b.x - a.x, dy = b.y - a.y, length = sqrtf(dx * dx + dy * dy);
    float dash = px_float(item->dash);
    for (float from = 0; from < length;) {
        bool on = *at < dash;
        float to = fminf(length, from + (on ? dash : 2 * dash) - *at + 1e-3f);
        SDL_FPoint p = { a.x + dx * from / length, a.y + dy * from / length };
        SDL_FPoint q = { a.x + dx * to / length, a.y + dy * to / length };
        if (on)
            add_segment(r, p, q, px_float(item->width), 0, item->color);
        *at = fmodf(*at + to - from, 2 * dash);
        from = to;
    }
}

static void add_line(SdlRender *r, const DrawList *d, const DrawItem *item)
{
    float at = 0, width = px_float(item->width);
    for (uint32_t i = 0; i + 1 < item->n; i++) {
        const PxPoint *p = d->points + item->first + i;
        SDL_FPoint a = { px_float(p[0].x), px_float(p[0].y) };
        SDL_FPoint b = { px_float(p[1].x), px_float(p[1].y) };
        if (item->dash >= PX_ONE)
            add_dashes(r, a, b, item, &at);
        else
            add_segment(r, a, b, width, width / 2, item->color);
    }
}

static void add_points(SdlRender *r, const DrawList *d, const DrawItem *item)
{
    enum { POINTS = 64 };
    SDL_FPoint p[POINTS];
    uint32_t n = item->n < POINTS ? item->n : POINTS;
    for (uint32_t i = 0; i < n; i++)
        p[i] = (SDL_FPoint){ px_float(d->points[item->first + i].x),
                             px_float(d->points[item->first + i].y) };
    add_polygon(r, p, n, item->color);
}

/* ---- letters: quads of the atlas, which is a texture of white with coverage as alpha ---- */

static bool load_atlas(SdlRender *r, const Font *f, Err *err)
{
    if (r->atlas && r->atlas_of == f && r->atlas_version == f->version &&
        r->atlas_height == f->atlas_height)
        return true;
    size_t n = (size_t)f->atlas_width * f->atlas_height;
    uint32_t *pixels = mem_zero(n + 1, sizeof *pixels);
    for (size_t i = 0; i < n; i++)
        pixels[i] = 0xffffff | (uint32_t)f->atlas[i] << 24;
    if (r->atlas)
        SDL_DestroyTexture(r->atlas);
    r->atlas =
        SDL_CreateTexture(r->renderer, SDL_PIXELFORMAT_ARGB8888, SDL_TEXTUREACCESS_STATIC,
                          (int)f->atlas_width, (int)(f->atlas_height ? f->atlas_height : 1));
    if (r->atlas && n > 0) {
        SDL_UpdateTexture(r->atlas, NULL, pixels, (int)f->atlas_width * 4);
        SDL_SetTextureBlendMode(r->atlas, SDL_BLENDMODE_BLEND);
    }
    free(pixels);
    r->atlas_of = f;
    r->atlas_version = f->version;
    r->atlas_height = f->atlas_height;
    return r->atlas || err_set(err, "the letters do not fit the GPU: %s", SDL_GetError());
}

/* All glyphs of the list into the atlas, before it is loaded. */
static void make_glyphs(const DrawList *d)
{
    for (uint32_t i = 0; i < d->items_n; i++) {
        const DrawItem *item = &d->items[i];
        const char *text = d->chars + item->first;
        for (size_t at = 0; item->kind == DRAW_TEXT && at < item->n;) {
            uint32_t c = font_next_char(text, item->n, &at);
            for (uint32_t shift = 0; shift < FONT_SHIFTS; shift++)
                font_glyph(d->font, item->style, c, shift);
        }
    }
}

static void add_glyph(SdlRender *r, Glyph g, const float x[4], const float y[4], Color color)
{
    float w = (float)r->atlas_of->atlas_width, h = (float)r->atlas_of->atlas_height;
    float u0 = (float)g.x / w, v0 = (float)g.y / h;
    float u1 = (float)(g.x + g.width) / w, v1 = (float)(g.y + g.height) / h;
    float u[] = { u0, u1, u1, u0 }, v[] = { v0, v0, v1, v1 };
    static const uint32_t corners[] = { 0, 1, 2, 0, 2, 3 };
    uint32_t first = r->vertex_n;
    for (int i = 0; i < 4; i++)
        add_vertex(r, x[i], y[i], u[i], v[i], sdl_color(color));
    for (size_t i = 0; i < ARRAY_N(corners); i++)
        add_index(r, first + corners[i]);
}

static void add_text(SdlRender *r, const DrawList *d, const DrawItem *item)
{
    const char *text = d->chars + item->first;
    Px pen = item->turned ? -item->box.y0 : item->box.x0;
    float across = (float)px_round(item->turned ? item->box.x0 : item->box.y0);
    use_texture(r, r->atlas);
    for (size_t at = 0; at < item->n;) {
        uint32_t c = font_next_char(text, item->n, &at);
        Px here = pen + PX_ONE / (2 * FONT_SHIFTS);
        int32_t along = px_floor(here);
        Glyph g = font_glyph(d->font, item->style, c,
                             (uint32_t)(here - PX(along)) * FONT_SHIFTS / PX_ONE);
        float left = (float)(along + g.left), top = (float)g.top;
        float right = left + (float)g.width, bottom = top + (float)g.height;
        float x[] = { left, right, right, left }, y[] = { top, top, bottom, bottom };
        for (int i = 0; i < 4; i++) { /* turned: along runs up, down runs right */
            float a = x[i], b = y[i];
            x[i] = item->turned ? across + b : a;
            y[i] = item->turned ? -a : across + b;
        }
        if (g.width > 0)
            add_glyph(r, g, x, y, item->color);
        pen += font_advance(d->font, item->style, c);
    }
}

/* ---- the list ---- */

static void add_item(SdlRender *r, const DrawList *d, const DrawItem *item,
                     const DrawClip *clip)
{
    switch ((DrawKind)item->kind) {
    case DRAW_RECT:
        if (item->radius > 0)
            add_round(r, item);
        else
            add_box(r, px_float(item->box.x0), px_float(item->box.y0), px_float(item->box.x1),
                    px_float(item->box.y1), item->color);
        break;
    case DRAW_HATCH:
        add_hatch(r, d, item, clip);
        break;
    case DRAW_OUTLINE:
        add_outline(r, item);
        break;
    case DRAW_CHEVRON:
        add_chevron(r, item);
        break;
    case DRAW_LINE:
        add_line(r, d, item);
        break;
    case DRAW_POLYGON:
        add_points(r, d, item);
        break;
    case DRAW_TEXT:
        add_text(r, d, item);
        break;
    default:
        break;
    }
}

bool sdl_render(SdlRender *r, const DrawList *d, Err *err)
{
    uint32_t clip = NONE_U32;
    SDL_Color back = sdl_color(d->background);
    make_glyphs(d);
    if (!load_atlas(r, d->font, err))
        return false;
    SDL_RenderSetClipRect(r->renderer, NULL);
    SDL_SetRenderDrawBlendMode(r->renderer, SDL_BLENDMODE_BLEND);
    SDL_SetRenderDrawColor(r->renderer, back.r, back.g, back.b, 255);
    SDL_RenderClear(r->renderer);
    for (uint32_t i = 0; i < d->items_n; i++) {
        const DrawItem *item = &d->items[i];
        const DrawClip *c = &d->clips[item->clip];
        if (item->clip != clip) {
            flush(r);
            clip = item->clip;
            SDL_RenderSetClipRect(r->renderer,
                                  &(SDL_Rect){ c->x0, c->y0, c->x1 - c->x0, c->y1 - c->y0 });
        }
        add_item(r, d, item, c);
    }
    flush(r);
    SDL_RenderPresent(r->renderer);
    return true;
}

bool sdl_render_open(SdlRender *r, SDL_Window *window, bool any, Err *err)
{
    *r = (SdlRender){ .renderer = NULL };
    uint32_t flags = any ? 0 : SDL_RENDERER_ACCELERATED | SDL_RENDERER_PRESENTVSYNC;
    r->renderer = SDL_CreateRenderer(window, -1, flags);
    if (!r->renderer)
        return err_set(err, "no GPU draws this window: %s", SDL_GetError());
    return true;
}

void sdl_render_close(SdlRender *r)
{
    if (r->atlas)
        SDL_DestroyTexture(r->atlas);
    if (r->renderer)
        SDL_DestroyRenderer(r->renderer);
    free(r->vertex);
    free(r->index);
    *r = (SdlRender){ .renderer = NULL };
}

/*
 * scene.c - the frame of the picture: minimap, top bar, legend; and the order in
 * which all is drawn.
 */
#include "viz/scene_lanes.h"
#include "viz/strip.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- minimap ---- */

typedef struct Gather {
    uint32_t (*share)[LOD_N];
    LodWindow w;
    uint64_t ranks_n; /* that this rank stands for */
    double (*sum)[LOD_N];
} Gather;

static void gather_piece(void *user, uint64_t span, LodKind kind, int64_t from_ns,
                         int64_t to_ns)
{
    Gather *g = user;
    (void)span;
    for (uint32_t x = lod_pixel_of(&g->w, from_ns); x < g->w.width; x++) {
        int64_t x0 = lod_pixel_ns(&g->w, x), x1 = lod_pixel_ns(&g->w, x + 1);
        if (x0 >= to_ns)
            break;
        double part =
            (double)(min_i64(x1, to_ns) - max_i64(x0, from_ns)) / (double)max_i64(1, x1 - x0);
        g->sum[x][kind] += part * LOD_FULL * (double)g->ranks_n;
    }
}

static void gather_column(void *user, uint32_t x, const uint32_t share[LOD_N])
{
    Gather *g = user;
    for (int k = 0; k < LOD_N; k++)
        g->sum[x][k] += (double)share[k] * (double)g->ranks_n;
}

static void make_minimap(ScenePen *p, uint32_t width)
{
    SceneMinimap *m = &p->s->minimap;
    const ViewData *d = view_data(p->v);
    if (m->data == d && m->clock_ns == view_clock_ns(p->v) && m->width == width)
        return;
    ViewWindow whole = view_whole(p->v);
    Gather g = { .sum = mem_zero(width, sizeof *g.sum) };
    double ranks_n = 0;
    for (uint32_t r = 0; r < d->ranks_n; r++) {
        int64_t shift_ns = view_shift_ns(p->v, view_side(p->v), r);
        g.w = (LodWindow){ whole.from_ns + shift_ns, whole.to_ns + shift_ns, width };
        g.ranks_n = d->ranks[r].ranks_n;
        ranks_n += (double)g.ranks_n;
        lod_extract(&d->ranks[r].strip, &g.w, &(LodSink){ &g, gather_piece, gather_column });
    }
    free(m->share);
    *m = (SceneMinimap){ d, view_clock_ns(p->v), width, mem_zero(width, sizeof *m->share) };
    for (uint32_t x = 0; x < width && ranks_n > 0; x++)
        for (int k = 0; k < LOD_N; k++)
            m->share[x][k] = (uint32_t)(g.sum[x][k] / ranks_n);
    free(g.sum);
}

/* Stacked from below: compute, overlapped, copies, exposed; the rest is idle. */
static void draw_minimap_column(ScenePen *p, uint32_t x, Px y0, Px y1)
{
    static const LodKind stack[] = { LOD_COMPUTE, LOD_OVERLAPPED, LOD_MEMORY, LOD_EXPOSED };
    const uint32_t *share = p->s->minimap.share[x];
    Px y = y1;
    for (size_t i = 0; i < ARRAY_N(stack); i++) {
        Px height = (Px)((int64_t)(y1 - y0) * share[stack[i]] / LOD_FULL);
        PxBox box = { p->l->minimap.x0 + PX((int32_t)x), y - height,
                      p->l->minimap.x0 + PX((int32_t)x + 1), y };
        draw_rect(p->d, box, p->theme->time[strip_class(stack[i])]);
        y -= height;
    }
}

static void draw_minimap_window(ScenePen *p)
{
    ViewWindow whole = view_whole(p->v);
    PxBox map = p->l->minimap;
    int64_t whole_ns = whole.to_ns - whole.from_ns;
    Px x0 = px_between(map.x0, map.x1, p->v->from_ns - whole.from_ns, whole_ns);
    Px x1 = px_between(map.x0, map.x1, p->v->to_ns - whole.from_ns, whole_ns);
    x0 = px_max(map.x0, px_min(x0, map.x1 - PX(2)));
    x1 = px_min(map.x1, px_max(x1, x0 + PX(2)));
    draw_rect(p->d, (PxBox){ map.x0, map.y0, x0, map.y1 }, scene_color(p, THEME_SHADE));
    draw_rect(p->d, (PxBox){ x1, map.y0, map.x1, map.y1 }, scene_color(p, THEME_SHADE));
    draw_outline(p->d, (PxBox){ x0, map.y0, x1, map.y1 }, draw_px(p->d, 2), 0,
                 scene_color(p, THEME_TEXT));
}

/* And what of it the window shows. */
static void put_minimap(ScenePen *p)
{
    PxBox map = p->l->minimap;
    Px pad = draw_px(p->d, 4), inset = draw_px(p->d, 10);
    int32_t width = px_floor(map.x1 - map.x0);
    PxBox line = { inset, map.y0 + pad, p->l->corner.x1 - pad, map.y0 + pad };
    line.y1 += (map.y1 - map.y0) / 2 - pad;
    draw_text(p->d, line, scene_small(), ALIGN_LEFT, scene_color(p, THEME_TEXT), "Overview");
    line.y0 = line.y1;
    line.y1 = map.y1 - pad;
    draw_text(p->d, line, scene_small(), ALIGN_LEFT, scene_color(p, THEME_DIM),
              "mean of all ranks, whole trace");
    draw_rect(p->d, map, scene_color(p, THEME_BACKGROUND));
    if (width < 1)
        return;
    make_minimap(p, (uint32_t)width);
    draw_clip_push(p->d, map);
    draw_rect(p->d, (PxBox){ map.x0, map.y0 + pad, map.x1, map.y1 - pad },
              p->theme->time[TIME_IDLE]);
    for (uint32_t x = 0; x < (uint32_t)width; x++)
        draw_minimap_column(p, x, map.y0 + pad, map.y1 - pad);
    draw_minimap_window(p);
    draw_clip_pop(p->d);
}

/* ---- top bar ---- */

static void draw_chips(ScenePen *p, Px x1)
{
    static const char *const names[VIEW_MODES_N] = { "Real", "Sim", "Split", "Diff" };
    const View *v = p->v;
    Px width = draw_px(p->d, 56), gap = draw_px(p->d, 6), pad = draw_px(p->d, 6);
    for (int m = VIEW_MODES_N; m-- > 0; x1 -= width + gap) {
        PxBox chip = { x1 - width, p->l->top.y0 + pad, x1, p->l->top.y1 - pad };
        bool chosen = v->mode == (ViewMode)m, can = m == VIEW_REAL || v->data[VIEW_SIM_SIDE];
        draw_tip(p->d, SCENE_ITEM_MODE + (uint32_t)m, NULL);
        draw_round(p->d, chip, draw_px(p->d, 3),
                   scene_color(p, chosen ? THEME_ACCENT : THEME_RAISED));
        draw_text(p->d, chip, scene_body(), ALIGN_MIDDLE,
                  chosen ? scene_color(p, THEME_ON_ACCENT)
                  : can  ? scene_color(p, THEME_TEXT)
                         : color_fade(scene_color(p, THEME_DIM), 110),
                  names[m]);
    }
}

/* ":class:comm" on the left, "12 events, 3.1 ms in all" on the right where that has room. */
static void draw_filter(ScenePen *p, PxBox line)
{
    char text[sizeof p->v->filter->text + 2], count[64];
    snprintf(text, sizeof text, ":%s", p->v->filter->text);
    filter_count_text(scene_filter_count(p), count, sizeof count);
    Px width = font_width(p->d->font, scene_small(), count, strlen(count));
    if (width < (line.x1 - line.x0) * 2 / 3) {
        draw_text(p->d, line, scene_small(), ALIGN_RIGHT, scene_color(p, THEME_DIM), count);
        line.x1 -= width + draw_px(p->d, 8);
    }
    draw_text(p->d, line, scene_body(), ALIGN_LEFT, scene_color(p, THEME_TEXT), text);
}

/* What is longer than the line is moved until the cursor is in it. */
static void draw_typed(ScenePen *p, PxBox line, Px pad)
{
    const View *v = p->v;
    Px x = line.x0 + font_width(p->d->font, scene_body(), v->omni, v->omni_cursor);
    Px beyond = px_max(0, x + PX(1) - line.x1);
    PxBox text = { line.x0 - beyond, line.y0, PX_FAR, line.y1 };
    draw_clip_push(p->d, line);
    draw_text(p->d, text, scene_body(), ALIGN_LEFT, scene_color(p, THEME_TEXT), v->omni);
    draw_rect(p->d,
              (PxBox){ x - beyond, line.y0 + pad / 2, x - beyond + PX(1), line.y1 - pad / 2 },
              scene_color(p, THEME_TEXT));
    draw_clip_pop(p->d);
}

static void draw_omnibox(ScenePen *p, PxBox box)
{
    const View *v = p->v;
    Px pad = draw_px(p->d, 8);
    draw_tip(p->d, SCENE_ITEM_OMNI, NULL);
    draw_round(p->d, box, draw_px(p->d, 3), scene_color(p, THEME_RAISED));
    if (v->omni_open)
        draw_outline(p->d, box, draw_px(p->d, 2), draw_px(p->d, 3),
                     scene_color(p, THEME_FOCUS));
    PxBox line = { box.x0 + pad, box.y0, box.x1 - pad, box.y1 };
    if (v->omni_open) {
        draw_typed(p, line, pad);
    } else if (v->filter) {
        draw_filter(p, line);
    } else {
        draw_text(p->d, line, scene_body(), ALIGN_LEFT, scene_color(p, THEME_DIM),
                  "/ search   > command   : filter      e.g. nccl dur>1ms");
    }
}

/* "8 ranks"; of folded simulations "64 ranks, 8 shown for all". */
static const char *ranks_text(const ViewData *d, char *text, size_t cap)
{
    uint64_t n = 0;
    for (uint32_t r = 0; r < d->ranks_n; r++)
        n += d->ranks[r].ranks_n;
    snprintf(text, cap, "%" PRIu64 " rank%s", n, n == 1 ? "" : "s");
    if (n > d->ranks_n)
        snprintf(text + strlen(text), cap - strlen(text), ", %" PRIu32 " stand%s for all",
                 d->ranks_n, d->ranks_n == 1 ? "s" : "");
    return text;
}

/* As much of it as has room; moves *right to its left. */
static void draw_help_keys(ScenePen *p, Px left, Px *right)
{
    static const char *const texts[] = { "? help   Ctrl+Shift+P", "? help" };
    static const int32_t pixels[] = { 160, 60 };
    for (size_t i = 0; i < ARRAY_N(texts); i++) {
        Px width = font_width(p->d->font, scene_body(), texts[i], strlen(texts[i]));
        if (*right - width < left)
            continue;
        PxBox box = { *right - width, p->l->top.y0, *right, p->l->top.y1 };
        draw_text(p->d, box, scene_body(), ALIGN_RIGHT, scene_color(p, THEME_DIM), texts[i]);
        *right -= draw_px(p->d, pixels[i]);
        return;
    }
}

static void put_top(ScenePen *p)
{
    const View *v = p->v;
    PxBox top = p->l->top;
    Px pad = draw_px(p->d, 10), right = top.x1 - pad;
    char text[256];
    draw_rect(p->d, top, scene_color(p, THEME_PANEL));
    PxBox box = { pad, top.y0, top.x1, top.y1 };
    box.x0 += draw_text(p->d, box, (TextStyle){ TEXT_TITLE, true }, ALIGN_LEFT,
                        scene_color(p, THEME_TEXT), "lockstep") +
              2 * pad;
    Px chips = v->data[VIEW_SIM_SIDE] ? draw_px(p->d, 4 * 62 + 12) : 0;
    if (!p->s->still)
        draw_help_keys(p, box.x0 + chips, &right);
    if (chips && right - chips >= box.x0) {
        draw_chips(p, right);
        right -= chips;
    }
    Px omni_width = px_min(draw_px(p->d, 420), (right - box.x0) / 2);
    PxBox omni = { right - omni_width, top.y0 + draw_px(p->d, 6), right,
                   top.y1 - draw_px(p->d, 6) };
    if (!p->s->still && omni_width > draw_px(p->d, 120))
        draw_omnibox(p, omni);
    else if (v->omni_open) { /* no room beside anything else */
        draw_omnibox(p, (PxBox){ pad, omni.y0, top.x1 - pad, omni.y1 });
        return;
    }
    char ranks[96];
    snprintf(text, sizeof text, "%s%s%s   %s", v->data[0]->name,
             v->data[1] ? "  \xc2\xb7  compared with " : "", v->data[1] ? v->data[1]->name : "",
             ranks_text(view_data(v), ranks, sizeof ranks));
    box.x1 = (p->s->still ? right : omni.x0) - pad;
    draw_text(p->d, box, scene_body(), ALIGN_LEFT, scene_color(p, THEME_DIM), text);
}

/* ---- legend ---- */

/* On the right, never silent: clocks that differ.  The bar ends where it begins. */
static void draw_clocks(ScenePen *p, PxBox *bar)
{
    char text[128];
    if (!view_clocks_text(p->v, text, sizeof text)[0])
        return;
    if (!p->s->still)
        snprintf(text + strlen(text), sizeof text - strlen(text), "   K");
    PxBox box = { bar->x0, bar->y0, bar->x1 - draw_px(p->d, 10), bar->y1 };
    bar->x1 =
        box.x1 - draw_px(p->d, 16) -
        draw_text(p->d, box, scene_small(), ALIGN_RIGHT, scene_color(p, THEME_TEXT), text);
}

/* What the legend explains: a TimeClass, a wait, or of the error strip: */
enum { KEY_WAITING = TIME_CLASSES_N, KEY_TOO_SLOW, KEY_TOO_FAST, KEY_ALONE };

static void draw_key(ScenePen *p, int key, PxBox box)
{
    if (key < TIME_CLASSES_N) {
        theme_span(p->d, p->theme, (TimeClass)key, box, 255);
    } else if (key == KEY_WAITING) {
        theme_span(p->d, p->theme, TIME_EXPOSED, box, 255);
        scene_dim_wait(p, box);
    } else if (key == KEY_ALONE) {
        draw_hatch(p->d, box, scene_color(p, THEME_LINE), scene_color(p, THEME_DIM));
    } else {
        draw_rect(p->d, box,
                  scene_color(p, key == KEY_TOO_SLOW ? THEME_TOO_SLOW : THEME_TOO_FAST));
    }
}

/* At *x, which moves behind it; false: there is no room. */
static bool put_key(ScenePen *p, int key, PxBox bar, Px *x)
{
    static const char *const others[] = { "waiting", "sim too slow", "sim too fast",
                                          "not in sim" };
    const char *name =
        key < TIME_CLASSES_N ? time_class_name((TimeClass)key) : others[key - KEY_WAITING];
    Px side = draw_px(p->d, 14), y = (bar.y0 + bar.y1 - side) / 2 / PX_ONE * PX_ONE;
    Px x0 = *x + side + draw_px(p->d, 6);
    Px x1 = x0 + font_width(p->d->font, scene_small(), name, strlen(name)) + PX(1);
    if (x1 > bar.x1)
        return false;
    draw_key(p, key, (PxBox){ *x, y, *x + side, y + side });
    draw_text(p->d, (PxBox){ x0, bar.y0, x1, bar.y1 }, scene_small(), ALIGN_LEFT,
              scene_color(p, THEME_TEXT), name);
    *x = x1 + draw_px(p->d, 15);
    return true;
}

/* A picture says what it dims. */
static const char *still_hint(ScenePen *p, char *text, size_t cap)
{
    char count[64];
    if (!p->v->filter)
        return "exposed: communication while no compute runs";
    snprintf(text, cap, "filter %s: %s", p->v->filter->text,
             filter_count_text(scene_filter_count(p), count, sizeof count));
    return text;
}

static void put_legend(ScenePen *p)
{
    static const int keys[] = { KEY_TOO_SLOW,    KEY_TOO_FAST, KEY_ALONE,   TIME_COMPUTE,
                                TIME_OVERLAPPED, TIME_EXPOSED, KEY_WAITING, TIME_P2P,
                                TIME_MEMORY,     TIME_HOST,    TIME_IDLE };
    PxBox bar = p->l->legend;
    Px x = draw_px(p->d, 12);
    draw_rect(p->d, bar, scene_color(p, THEME_PANEL));
    draw_clocks(p, &bar);
    size_t i = p->v->mode == VIEW_DIFF ? 0 : 3;
    while (i < ARRAY_N(keys) && put_key(p, keys[i], bar, &x))
        i++;
    char filter[sizeof p->v->filter->text + 80];
    const char *hint = p->v->message[0] ? p->v->message
                       : p->s->still
                           ? still_hint(p, filter, sizeof filter)
                           : "W S zoom   A D pan   drag select   E next exposed   V view   "
                             "C critical path   Q drawer   ? help";
    PxBox box = { x + draw_px(p->d, 16), bar.y0, bar.x1 - draw_px(p->d, 10), bar.y1 };
    if (box.x1 - box.x0 < draw_px(p->d, 80))
        return;
    draw_text(p->d, box, scene_small(), ALIGN_LEFT,
              scene_color(p, p->v->message[0] ? THEME_TEXT : THEME_DIM), hint);
}

/* ---- the whole ---- */

void scene_open(Scene *s, uint32_t scale_pct)
{
    *s = (Scene){ 0 };
    font_open(&s->font, scale_pct);
}

void scene_free(Scene *s)
{
    font_free(&s->font);
    layout_free(&s->layout);
    for (int side = 0; side < VIEW_SIDES; side++)
        names_free(&s->names[side]);
    for (int side = 0; side < VIEW_SIDES; side++)
        kernels_free(&s->sums[side]);
    free(s->minimap.share);
    critical_free(&s->path.path);
    scene_forget_kept(&s->kept);
    *s = (Scene){ 0 };
}

static void follow(Scene *s, const View *v)
{
    if (s->font.scale_pct != v->scale_pct) {
        font_free(&s->font);
        font_open(&s->font, v->scale_pct);
    }
    for (int side = 0; side < VIEW_SIDES; side++)
        if (v->data[side] && s->names[side].t != v->data[side]->t) {
            names_free(&s->names[side]);
            names_open(&s->names[side], v->data[side]->t);
        }
}

void scene_draw(Scene *s, View *v, DrawList *d)
{
    follow(s, v);
    draw_begin(d, &s->font, v->width, v->height, v->theme->color[THEME_BACKGROUND]);
    layout_make(&s->layout, v);
    ScenePen p = { s, v, d, v->theme, &s->layout };
    scene_ruler(&p);
    scene_rows(&p);
    if (v->critical)
        scene_path(&p);
    scene_over(&p);
    scene_empty(&p);
    scene_scroll(&p);
    put_minimap(&p);
    if (s->layout.drawer.x1 > s->layout.drawer.x0)
        scene_drawer(&p);
    scene_focus(&p);
    put_top(&p);
    put_legend(&p);
    scene_tooltip(&p);
    scene_offers(&p);
    scene_help(&p);
}

/*
 * theme.c - the two palettes.
 */
#include "viz/theme.h"

#include <string.h>

#define RGB(rgb) (0xff000000 | (rgb))

static const Theme dark = {
    .name = "dark",
    .color = { [THEME_BACKGROUND] = RGB(0x14171b),
               [THEME_PANEL] = RGB(0x1c1f26),
               [THEME_RAISED] = RGB(0x262b34),
               [THEME_LINE] = RGB(0x2b3038),
               [THEME_EDGE] = RGB(0x4a515c),
               [THEME_TEXT] = RGB(0xe8eaed),
               [THEME_DIM] = RGB(0x9aa1ab),
               [THEME_ACCENT] = RGB(0x3c63b5),
               [THEME_ON_ACCENT] = RGB(0xffffff),
               [THEME_FOCUS] = RGB(0xffffff),
               [THEME_SELECTION] = 0x305b8def,
               [THEME_SHADE] = 0x9914171b,
               [THEME_STRIPE] = 0x8c000000,
               [THEME_AREA] = RGB(0x454d58),
               [THEME_AREA_EDGE] = RGB(0xaab2bd),
               [THEME_TOO_FAST] = RGB(0x5aa2ff),
               [THEME_TOO_SLOW] = RGB(0xff9c4a),
               [THEME_CRITICAL] = RGB(0xffffff),
               [THEME_ARROW] = RGB(0xd7dbe0) },
    .time = { [TIME_COMPUTE] = RGB(0x3c63b5),
              [TIME_OVERLAPPED] = RGB(0x66d3b9),
              [TIME_EXPOSED] = RGB(0xe0491f),
              [TIME_P2P] = RGB(0xfff350),
              [TIME_MEMORY] = RGB(0xf49efa),
              [TIME_HOST] = RGB(0x8a8d91),
              [TIME_IDLE] = RGB(0x343a42) },
    .on_time = { [TIME_COMPUTE] = RGB(0xffffff),
                 [TIME_OVERLAPPED] = RGB(0x000000),
                 [TIME_EXPOSED] = RGB(0x000000),
                 [TIME_P2P] = RGB(0x000000),
                 [TIME_MEMORY] = RGB(0x000000),
                 [TIME_HOST] = RGB(0x000000),
                 [TIME_IDLE] = RGB(0xe8eaed) },
};

static const Theme light = {
    .name = "light",
    .color = { [THEME_BACKGROUND] = RGB(0xffffff),
               [THEME_PANEL] = RGB(0xf3f5f8),
               [THEME_RAISED] = RGB(0xffffff),
               [THEME_LINE] = RGB(0xdfe3e8),
               [THEME_EDGE] = RGB(0xa9b1bb),
               [THEME_TEXT] = RGB(0x1b1f24),
               [THEME_DIM] = RGB(0x59616b),
               [THEME_ACCENT] = RGB(0x3056a8),
               [THEME_ON_ACCENT] = RGB(0xffffff),
               [THEME_FOCUS] = RGB(0x1b1f24),
               [THEME_SELECTION] = 0x303056a8,
               [THEME_SHADE] = 0xa0ffffff,
               [THEME_STRIPE] = 0x96000000,
               [THEME_AREA] = RGB(0xc3cad2),
               [THEME_AREA_EDGE] = RGB(0x59616b),
               [THEME_TOO_FAST] = RGB(0x1f6fd6),
               [THEME_TOO_SLOW] = RGB(0xc25a00),
               [THEME_CRITICAL] = RGB(0x000000),
               [THEME_ARROW] = RGB(0x3a4048) },
    .time = { [TIME_COMPUTE] = RGB(0x041c7b),
              [TIME_OVERLAPPED] = RGB(0x0a665d),
              [TIME_EXPOSED] = RGB(0xe67452),
              [TIME_P2P] = RGB(0x715209),
              [TIME_MEMORY] = RGB(0xb40aed),
              [TIME_HOST] = RGB(0x7f8c9a),
              [TIME_IDLE] = RGB(0xe1e5ea) },
    .on_time = { [TIME_COMPUTE] = RGB(0xffffff),
                 [TIME_OVERLAPPED] = RGB(0xffffff),
                 [TIME_EXPOSED] = RGB(0x000000),
                 [TIME_P2P] = RGB(0xffffff),
                 [TIME_MEMORY] = RGB(0xffffff),
                 [TIME_HOST] = RGB(0x000000),
                 [TIME_IDLE] = RGB(0x1b1f24) },
};

const Theme *theme_dark(void)
{
    return &dark;
}

const Theme *theme_light(void)
{
    return &light;
}

const Theme *theme_find(const char *name, Err *err)
{
    if (strcmp(name, dark.name) == 0)
        return &dark;
    if (strcmp(name, light.name) == 0)
        return &light;
    err_set(err, "unknown theme '%s'; dark, light", name);
    return NULL;
}

const char *time_class_name(TimeClass c)
{
    static const char *const names[TIME_CLASSES_N] = { [TIME_COMPUTE] = "compute",
                                                       [TIME_OVERLAPPED] = "comm overlapped",
                                                       [TIME_EXPOSED] = "comm exposed",
                                                       [TIME_P2P] = "send/recv",
                                                       [TIME_MEMORY] = "memcpy",
                                                       [TIME_HOST] = "host",
                                                       [TIME_IDLE] = "idle" };
    ASSERT(c < TIME_CLASSES_N);
    return names[c];
}

void theme_span(DrawList *d, const Theme *t, TimeClass c, PxBox box, uint32_t alpha)
{
    Color color = color_fade(t->time[c], alpha);
    if (c == TIME_EXPOSED)
        draw_hatch(d, box, color, color_fade(t->color[THEME_STRIPE], alpha));
    else if (c == TIME_P2P)
        draw_chevron(d, box, (box.y1 - box.y0) / 3, color);
    else
        draw_rect(d, box, color);
}

Px theme_label(DrawList *d, const Theme *t, TimeClass c, PxBox box, TextStyle style,
               const char *text)
{
    if (c != TIME_EXPOSED)
        return draw_text(d, box, style, ALIGN_LEFT, t->on_time[c], text);
    /* As high as the line, as wide as the text and a little air. */
    Px air = draw_px(d, 3), line = font_line_height(d->font, style);
    Px width = font_width(d->font, style, text, strlen(text)) + 2 * air;
    PxBox inner = { box.x0, box.y0, px_min(box.x1, box.x0 + width), box.y1 };
    Px spare = px_max(0, box.y1 - box.y0 - line) / 2;
    PxBox chip = { inner.x0, inner.y0 + spare, inner.x1, inner.y1 - spare };
    PxBox room = { inner.x0 + air, inner.y0, inner.x1 - air, inner.y1 };
    if (font_fit(d->font, style, text, strlen(text), room.x1 - room.x0) == 0)
        return 0;
    draw_round(d, chip, draw_px(d, 2), color_fade(t->color[THEME_BACKGROUND], 232));
    return draw_text(d, room, style, ALIGN_LEFT, t->color[THEME_TEXT], text) + 2 * air;
}

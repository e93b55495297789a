/*
 * scene_ruler.c - the ruler: where steps begin, and what time it is.
 *
 * Ticks stand still in time while the window moves.  Far in, their labels count from a
 * round moment t0 before the window, which is named on the left: "t0 300 ms", "+2.5 ms".
 * Step chips come first; a label that one of them covers, or that does not fit, is left out.
 */
#include "viz/scene_parts.h"

#include <stdio.h>
#include <string.h>

enum { TICK_ROOM = 110, LABEL_GAP = 4, CHIPS_MAX = 128, FAR_IN = 50 };

typedef struct Chips {
    struct {
        Px x0, x1;
    } at[CHIPS_MAX];
    uint32_t n;
} Chips;

/* ---- numbers ---- */

int64_t scene_tick_ns(int64_t least_ns)
{
    static const int64_t of[] = { 1, 2, 5 };
    int64_t ten = 1;
    for (;; ten *= 10)
        for (size_t i = 0; i < ARRAY_N(of); i++)
            if (of[i] * ten >= least_ns || ten > TIMELINE_NS_MAX / 10)
                return of[i] * ten;
}

static const struct {
    int64_t ns;
    const char *name;
} units[] = { { 1, "ns" }, { 1000, "\xc2\xb5s" }, { 1000000, "ms" }, { 1000000000, "s" } };

void scene_tick_text(char *text, size_t cap, const char *sign, int64_t ns, int64_t step_ns)
{
    size_t u = step_ns >= 200000000 ? 3 : step_ns >= 100000 ? 2 : step_ns >= 100 ? 1 : 0;
    int digits = 0;
    for (int64_t part = units[u].ns; step_ns % part != 0 && digits < 9; part /= 10)
        digits++;
    snprintf(text, cap, "%s%.*f %s", sign, digits, (double)ns / (double)units[u].ns,
             units[u].name);
}

/* All digits there are, of a round number: "300 ms", "12.345 s". */
static void exact_text(char *text, size_t cap, int64_t ns)
{
    size_t u = 3;
    while (u > 0 && ns < units[u].ns)
        u--;
    char rest[24];
    int length = snprintf(rest, sizeof rest, "%" PRId64, units[u].ns + ns % units[u].ns);
    while (length > 1 && rest[length - 1] == '0')
        rest[--length] = 0; /* "1345": a one, and what stands behind the point */
    snprintf(text, cap, "%" PRId64 "%s%s %s", ns / units[u].ns, length > 1 ? "." : "", rest + 1,
             units[u].name);
}

/* What labels count from, after the trace's begin; 0 where times are still short. */
static int64_t label_base_ns(const View *v, int64_t zero_ns)
{
    int64_t length_ns = v->to_ns - v->from_ns, from_ns = v->from_ns - zero_ns, ten = 1;
    if (from_ns / FAR_IN < length_ns)
        return 0;
    while (ten < length_ns)
        ten *= 10;
    return from_ns / ten * ten;
}

/* ---- steps ---- */

static void draw_chip(ScenePen *p, Chips *chips, Px x, int64_t step)
{
    char text[48];
    snprintf(text, sizeof text, "step %" PRId64, step);
    PxBox chip = { x + PX(1), p->l->ruler.y0 + draw_px(p->d, 3), 0,
                   p->l->ruler.y1 - draw_px(p->d, 3) };
    chip.x1 =
        chip.x0 + font_width(p->d->font, scene_small(), text, strlen(text)) + draw_px(p->d, 10);
    if (chips->n == CHIPS_MAX || chip.x1 > p->l->ruler.x1)
        return;
    draw_rect(p->d, chip, scene_color(p, THEME_ACCENT));
    draw_text(p->d, chip, scene_small(), ALIGN_MIDDLE, scene_color(p, THEME_ON_ACCENT), text);
    chips->at[chips->n].x0 = chip.x0;
    chips->at[chips->n++].x1 = chip.x1;
}

static void draw_steps(ScenePen *p, Chips *chips)
{
    const ViewData *d = view_data(p->v);
    uint32_t rank = view_step_rank(p->v);
    int64_t shift_ns = rank == NONE_U32 ? 0 : view_shift_ns(p->v, view_side(p->v), rank);
    Px last = INT32_MIN;
    for (uint32_t i = 0; rank != NONE_U32 && i < d->steps.n; i++) {
        const StepWindow *s = &d->steps.at[i];
        int64_t ns = s->from_ns - shift_ns;
        if (s->rank != d->ranks[rank].rank || ns < p->v->from_ns || ns >= p->v->to_ns)
            continue;
        Px x = px_round(layout_x_of(p->l, p->v, ns)) * PX_ONE;
        if (x < last)
            continue;
        draw_rect(p->d, (PxBox){ x, p->l->ruler.y0, x + PX(1), p->l->lanes.y1 },
                  color_fade(scene_color(p, THEME_ACCENT), 170));
        draw_chip(p, chips, x, s->step);
        last = chips->n ? chips->at[chips->n - 1].x1 + draw_px(p->d, 12) : x;
    }
}

/* ---- ticks ---- */

static bool is_free(const ScenePen *p, const Chips *chips, Px x0, Px x1)
{
    Px gap = draw_px(p->d, LABEL_GAP);
    for (uint32_t i = 0; i < chips->n; i++)
        if (x0 < chips->at[i].x1 + gap && x1 + gap > chips->at[i].x0)
            return false;
    return x1 <= p->l->ruler.x1;
}

static void draw_ticks(ScenePen *p, const Chips *chips, int64_t zero_ns, bool counted)
{
    const View *v = p->v;
    PxBox ruler = p->l->ruler;
    int64_t room = max_i64(1, (ruler.x1 - ruler.x0) / draw_px(p->d, TICK_ROOM));
    int64_t step_ns = scene_tick_ns(max_i64(1, (v->to_ns - v->from_ns) / room));
    for (int64_t i = (v->from_ns - zero_ns) / step_ns - 1; zero_ns + i * step_ns < v->to_ns;
         i++) {
        int64_t ns = zero_ns + i * step_ns;
        char text[48];
        if (ns < v->from_ns || i < 0)
            continue;
        Px x = px_round(layout_x_of(p->l, v, ns)) * PX_ONE, x0 = x + draw_px(p->d, LABEL_GAP);
        draw_rect(p->d, (PxBox){ x, ruler.y1 - draw_px(p->d, 6), x + PX(1), p->l->lanes.y1 },
                  scene_color(p, THEME_LINE));
        scene_tick_text(text, sizeof text, counted ? "+" : "", ns - zero_ns, step_ns);
        Px x1 = x0 + font_width(p->d->font, scene_small(), text, strlen(text));
        if (is_free(p, chips, x0, x1))
            draw_text(p->d, (PxBox){ x0, ruler.y0, x1 + PX(2), ruler.y1 }, scene_small(),
                      ALIGN_LEFT, scene_color(p, THEME_DIM), text);
    }
}

/* t0, from which all labels count, comes first; then how long the window is, if there is room. */
static void draw_corner(ScenePen *p, int64_t base_ns)
{
    char size[32], text[64];
    PxBox box = { draw_px(p->d, 10), p->l->ruler.y0, p->l->corner.x1 - draw_px(p->d, 10),
                  p->l->ruler.y1 };
    if (base_ns != 0) {
        exact_text(size, sizeof size, base_ns);
        snprintf(text, sizeof text, "t0 %s", size);
        draw_text(p->d, box, scene_small(), ALIGN_RIGHT, scene_color(p, THEME_TEXT), text);
        box.x1 -= font_width(p->d->font, scene_small(), text, strlen(text)) + draw_px(p->d, 8);
    }
    view_time_text(size, sizeof size, p->v->to_ns - p->v->from_ns);
    snprintf(text, sizeof text, "window %s", size);
    if (font_width(p->d->font, scene_small(), text, strlen(text)) > box.x1 - box.x0)
        strcpy(text, size);
    if (font_width(p->d->font, scene_small(), text, strlen(text)) <= box.x1 - box.x0)
        draw_text(p->d, box, scene_small(), ALIGN_LEFT, scene_color(p, THEME_DIM), text);
}

void scene_ruler(ScenePen *p)
{
    PxBox ruler = p->l->ruler, corner = p->l->corner;
    int64_t begin_ns = view_whole(p->v).from_ns, base_ns = label_base_ns(p->v, begin_ns);
    Chips chips = { .n = 0 };
    draw_rect(p->d, corner, scene_color(p, THEME_PANEL));
    draw_rect(p->d, ruler, scene_color(p, THEME_PANEL));
    draw_corner(p, base_ns);
    draw_clip_push(p->d, (PxBox){ ruler.x0, ruler.y0, ruler.x1, p->l->lanes.y1 });
    draw_steps(p, &chips);
    draw_ticks(p, &chips, begin_ns + base_ns, base_ns > 0);
    draw_clip_pop(p->d);
}

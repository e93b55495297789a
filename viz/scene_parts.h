/*
 * scene_parts.h - the parts of the picture, one file each; in the order of drawing.
 */
#ifndef LOCKSTEP_VIZ_SCENE_PARTS_H
#define LOCKSTEP_VIZ_SCENE_PARTS_H

#include "viz/scene.h"

typedef struct ScenePen {
    Scene *s;
    View *v;
    DrawList *d;
    const Theme *theme;
    const Layout *l;
} ScenePen;

void scene_rows(ScenePen *p); /* names, strips, lanes, counters */
void scene_ruler(ScenePen *p);
void scene_drawer(ScenePen *p);
void scene_path(ScenePen *p);   /* the critical path, all else dimmed */
void scene_over(ScenePen *p);   /* links and shading */
void scene_empty(ScenePen *p);  /* why there is nothing to see, and what to do */
void scene_focus(ScenePen *p);  /* the pane that the keyboard is in */
void scene_scroll(ScenePen *p); /* how much of the rows is in sight */
/* The path's sums in the box from *y on, which moves behind them. */
void scene_path_table(ScenePen *p, PxBox box, Px *y);
void scene_tooltip(ScenePen *p); /* of what the mouse, or the keyboard, is at */
void scene_offers(ScenePen *p);
void scene_help(ScenePen *p);

/* What the tooltip of a span says, in lines.  Returns text. */
char *scene_tip_text(const View *v, ViewPlace place, char *text, size_t cap);

/* Between ticks: 1, 2, 5 times a power of ten, at least least_ns. */
int64_t scene_tick_ns(int64_t least_ns);
/* "12.5 ms": in the unit of the step between ticks, with the digits it needs. */
void scene_tick_text(char *text, size_t cap, const char *sign, int64_t ns, int64_t step_ns);

/* Labels of the design. */
static inline TextStyle scene_small(void)
{
    return (TextStyle){ TEXT_SMALL, false };
}

static inline TextStyle scene_body(void)
{
    return (TextStyle){ TEXT_BODY, false };
}

static inline TextStyle scene_bold(void)
{
    return (TextStyle){ TEXT_BODY, true };
}

static inline Color scene_color(const ScenePen *p, ThemeColor color)
{
    return p->theme->color[color];
}

/* Over communication that waits for other ranks. */
static inline void scene_dim_wait(const ScenePen *p, PxBox box)
{
    draw_rect(p->d, box, color_fade(scene_color(p, THEME_BACKGROUND), 130));
}

#endif

/*
 * svg_join.c - which group a box may go to.
 *
 * Boxes come mostly from left to right: of a group its last box is looked at, and how far
 * right the ones before it reach.  A box that may cover one of a later group opens a group.
 */
#include "viz/svg_join.h"

#include <stdlib.h>

static bool is_same_fill(const DrawItem *a, const DrawItem *b)
{
    return a->kind == b->kind && a->color == b->color && a->color2 == b->color2;
}

static bool is_opaque(const DrawItem *item)
{
    return item->kind == DRAW_RECT && color_alpha(item->color) == 255;
}

static bool may_cover(const SvgJoin *j, const SvgGroup *g, PxBox box)
{
    return box.x0 < g->earlier_x1 || !px_box_is_empty(px_box_cut(j->boxes[g->last].box, box));
}

/* Below a group that it would cover it may not go, nor twice over itself if translucent. */
static SvgGroup *find_group(SvgJoin *j, const DrawItem *item, PxBox box)
{
    for (uint32_t i = j->groups_n; i-- > 0;) {
        SvgGroup *g = &j->groups[i];
        bool covers = may_cover(j, g, box);
        if (is_same_fill(g->item, item) && (!covers || is_opaque(item)))
            return g;
        if (covers)
            return NULL;
    }
    return NULL;
}

static bool goes_on(PxBox a, PxBox b)
{
    return a.x1 == b.x0 && a.y0 == b.y0 && a.y1 == b.y1;
}

void svg_join_add(SvgJoin *j, const DrawItem *item, PxBox box)
{
    SvgGroup *g = find_group(j, item, box);
    uint32_t at = j->boxes_n;
    if (g && goes_on(j->boxes[g->last].box, box)) {
        j->boxes[g->last].box.x1 = box.x1;
        return;
    }
    GROW(j->boxes, j->boxes_n, j->boxes_cap);
    j->boxes[j->boxes_n++] = (SvgBox){ box, NONE_U32 };
    if (g) {
        SvgBox *last = &j->boxes[g->last];
        g->earlier_x1 = px_max(g->earlier_x1, last->box.x1);
        last->next = at;
        g->last = at;
        return;
    }
    GROW(j->groups, j->groups_n, j->groups_cap);
    j->groups[j->groups_n++] = (SvgGroup){ item, at, at, -PX_FAR };
}

void svg_join_clear(SvgJoin *j)
{
    j->groups_n = j->boxes_n = 0;
}

void svg_join_free(SvgJoin *j)
{
    free(j->groups);
    free(j->boxes);
    *j = (SvgJoin){ .groups = NULL };
}

/* scene_cells.c - columns as wide as what stands in them. */
#include "viz/scene_cells.h"

#include <string.h>

void cells_widen(CellColumns *c, const DrawList *d, const CellRow *row)
{
    for (int i = 0; i < CELLS; i++)
        if (row->cell[i][0])
            c->width[i] = px_max(c->width[i], font_width(d->font, scene_small(), row->cell[i],
                                                         strlen(row->cell[i])) +
                                                  PX(1) + draw_px(d, 6));
}

PxBox cells_draw(const CellColumns *c, ScenePen *p, PxBox line, const CellRow *row,
                 ThemeColor color)
{
    for (int i = CELLS; i-- > 0; line.x1 -= c->width[i])
        draw_text(p->d, line, scene_small(), ALIGN_RIGHT, scene_color(p, color), row->cell[i]);
    return line;
}

void cells_draw_named(const CellColumns *c, ScenePen *p, PxBox line, const CellRow *row,
                      ThemeColor color)
{
    draw_text(p->d, cells_draw(c, p, line, row, color), scene_small(), ALIGN_LEFT,
              scene_color(p, color), row->name);
}

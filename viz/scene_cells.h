/*
 * scene_cells.h - small tables of the drawer: a name, and numbers behind it.
 *
 *     class          real       sim     error   share
 *     all_red...  2.080 ms  261.9 us  -87.4 %   +27 %
 *
 * A column is as wide as the widest number in it, so that none is cut; names get what is left.
 */
#ifndef LOCKSTEP_VIZ_SCENE_CELLS_H
#define LOCKSTEP_VIZ_SCENE_CELLS_H

#include "viz/scene_parts.h"

enum { CELLS = 4 };

typedef struct CellRow {
    char name[96];
    char cell[CELLS][32]; /* "": nothing there */
} CellRow;

typedef struct CellColumns {
    Px width[CELLS]; /* with the gap before it; 0: the column is empty */
} CellColumns;

/* Makes room for one more row. */
void cells_widen(CellColumns *c, const DrawList *d, const CellRow *row);

/* Cells right-aligned in the line, whose part left of them is returned. */
PxBox cells_draw(const CellColumns *c, ScenePen *p, PxBox line, const CellRow *row,
                 ThemeColor color);
/* The name as well. */
void cells_draw_named(const CellColumns *c, ScenePen *p, PxBox line, const CellRow *row,
                      ThemeColor color);

#endif

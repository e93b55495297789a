/*
 * scene_diff.h - rows and tables of the views that compare.
 */
#ifndef LOCKSTEP_VIZ_SCENE_DIFF_H
#define LOCKSTEP_VIZ_SCENE_DIFF_H

#include "viz/diff.h"
#include "viz/scene_parts.h"

void scene_error(ScenePen *p, const LayoutRow *row);
void scene_drift(ScenePen *p, const LayoutRow *row);
/* "+1.2 %", "0.0 %" where it rounds to none; "-" where real took no time. */
void scene_error_text(char *text, size_t cap, int64_t real_ns, int64_t sim_ns);
/* In the box from *y on, which moves behind them. */
void scene_diff_tables(ScenePen *p, PxBox box, Px *y);

#endif

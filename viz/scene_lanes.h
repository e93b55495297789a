/*
 * scene_lanes.h - one row of the lanes, drawn.
 */
#ifndef LOCKSTEP_VIZ_SCENE_LANES_H
#define LOCKSTEP_VIZ_SCENE_LANES_H

#include "viz/scene_parts.h"

void scene_strip(ScenePen *p, const LayoutRow *row);
/* labels_n: labels drawn so far in this picture; there is a limit. */
void scene_spans(ScenePen *p, const LayoutRow *row, uint32_t *labels_n);
void scene_forget_kept(SceneKept *k);
/* What matches the view's filter, which is not NULL. */
FilterCount scene_filter_count(ScenePen *p);

#endif

/*
 * scene_counter.h - a row of values: memory, how busy a link is.
 *
 * Counters have no units in most traces, but names: "allocated bytes", "nvlink utilization".
 * What the simulator writes says of what its percent are: "NVLink out, % of 450 GB/s".
 */
#ifndef LOCKSTEP_VIZ_SCENE_COUNTER_H
#define LOCKSTEP_VIZ_SCENE_COUNTER_H

#include "viz/scene_parts.h"

void scene_counter(ScenePen *p, const LayoutRow *row);

/* How long the name is without what its percent are of. */
size_t scene_counter_name(const ViewData *d, const ViewRow *row);
/* The largest value of a counter, with its unit; of what, if that is wanted.  Returns text. */
char *scene_counter_text(const ViewData *d, const ViewRow *row, bool of_what, char *text,
                         size_t cap);
/* Its value in [from_ns, to_ns), or what its values reach from and to.  False: it has none. */
bool scene_counter_value(const ViewData *d, const ViewRow *row, int64_t from_ns, int64_t to_ns,
                         char *text, size_t cap);

#endif

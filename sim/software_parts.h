/*
 * software_parts.h - what the software*.c files tell each other; nobody else includes it.
 *
 * A stack is read in layers: {"base": NAME, keys} first reads NAME, then lays its own keys over it.
 */
#ifndef LOCKSTEP_SIM_SOFTWARE_PARTS_H
#define LOCKSTEP_SIM_SOFTWARE_PARTS_H

#include "sim/software.h"

typedef struct SoftwareLayer {
    Software *sw;
    Arena *arena;
    JsonNode node; /* the layer: an object */
    bool based;    /* something is below it: what it leaves out stays as it is */
    /* fitted.compute_scale, of this layer or one below; 0: nobody has said it. */
    double *fitted;
} SoftwareLayer;

/* software.c.  Lays it over *sw, but for name and scalars (software_layers.c). */
bool software_lay(const SoftwareLayer *l, Err *err);

#endif

/* collectives_parts.h - what the files of collectives.h share; only collectives*.c include it. */
#ifndef LOCKSTEP_PROFILE_COLLECTIVES_PARTS_H
#define LOCKSTEP_PROFILE_COLLECTIVES_PARTS_H

#include "profile/collectives.h"

static inline int64_t part_end_ns(const Timeline *t, const CollPart *p)
{
    return t->start_ns[p->span] + t->dur_ns[p->span];
}

/* Fills clocks and the ranks' offsets. */
void collectives_clocks(Collectives *c, const Timeline *t);
/* Fills what remains: waits, rows, sums of ranks. */
void collectives_sum(Collectives *c, const Timeline *t, const Covers *covers,
                     const Selection *selection);

#endif

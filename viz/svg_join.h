/*
 * svg_join.h - boxes sorted by colour, so that a picture of a thousand boxes is a handful of
 * paths.
 *
 *     a b a b a b  -->  aaa bbb        a box may go before others only where it covers none
 *                                      of them: the picture stays the same
 */
#ifndef LOCKSTEP_VIZ_SVG_JOIN_H
#define LOCKSTEP_VIZ_SVG_JOIN_H

#include "viz/draw.h"

typedef struct SvgBox {
    PxBox box;
    uint32_t next; /* of its group; NONE_U32: the last */
} SvgBox;

/* Boxes of one fill. */
typedef struct SvgGroup {
    const DrawItem *item; /* one of them: kind and colours */
    uint32_t first, last; /* indices into boxes */
    Px earlier_x1;        /* where all but the last of them end */
} SvgGroup;

/* In the order in which groups are painted.  All zero: none. */
typedef struct SvgJoin {
    SvgGroup *groups;
    uint32_t groups_n, groups_cap;
    SvgBox *boxes;
    uint32_t boxes_n, boxes_cap;
} SvgJoin;

/* The item outlives the join's use. */
void svg_join_add(SvgJoin *j, const DrawItem *item, PxBox box);
void svg_join_clear(SvgJoin *j); /* keeps its memory */
void svg_join_free(SvgJoin *j);

#endif

/*
 * groups.h - ranks by process group, as the communication of a trace names them.
 *
 *     tp    [0 1] [2 3] [4 5] [6 7]         one kind of group a name; a rank is in one
 *     dp    [0 2] [1 3] [4 6] [5 7]         group of each kind, or in none
 *     pp    [0 4] [1 5] [2 6] [3 7]
 *
 * Ranks are together when they say so (equal Comm.group_id), or, where a trace has no such
 * number, when their collectives were matched (ViewLinks).
 */
#ifndef LOCKSTEP_VIZ_GROUPS_H
#define LOCKSTEP_VIZ_GROUPS_H

#include "viz/data.h"

typedef struct RankGroupKind {
    uint32_t name;     /* interned in the timeline: Comm.group */
    uint32_t groups_n; /* without that of the ranks that are in none */
    uint32_t *of;      /* by ViewRank: the first rank of its group; ViewData.ranks_n: in none */
} RankGroupKind;

/* Kinds by name.  All zero: none. */
typedef struct RankGroups {
    RankGroupKind *kinds;
    uint32_t kinds_n, kinds_cap;
} RankGroups;

/* One pass over the spans; of a rank's groups GROUPS_OF_RANK are looked at. */
enum { GROUPS_OF_RANK = 64 };
void groups_find(RankGroups *g, const ViewData *d);
void groups_free(RankGroups *g);

#endif

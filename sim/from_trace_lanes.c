/*
 * from_trace_lanes.c - the streams of a group are one lane on all its ranks.
 *
 *     rank 0   stream 20  dp all_reduce                     -> lane 1
 *     rank 4   stream 20  embedding all_reduce              -> lane 2
 *              stream 24  dp all_reduce                     -> lane 1
 *
 * Lanes are given by the order of a rank's streams, and collectives meet by lane.  A rank that
 * takes part in more groups than another has streams that the other lacks; so a lane is renamed
 * to what the first rank with its group and operation calls it.
 */
#include <stdlib.h>

#include "sim/from_trace_parts.h"

/* Lane: what the first rank calls it; LANE_N: it has several, which nobody can tell apart. */
typedef struct LaneUse {
    uint32_t group, group_id, op;
    Lane lane;
} LaneUse;

typedef struct LaneUses {
    LaneUse *use;
    uint32_t n, cap;
} LaneUses;

static bool is_named(const Item *i, const Timeline *t)
{
    return i->kind == ITEM_COMM && i->comm && i->comm->group != NONE_U32 && !item_is_p2p(i, t);
}

static LaneUse *find_use(const LaneUses *u, const Comm *c)
{
    for (uint32_t k = 0; k < u->n; k++)
        if (u->use[k].group == c->group && u->use[k].group_id == c->group_id &&
            u->use[k].op == c->op)
            return &u->use[k];
    return NULL;
}

/* False: one of its collectives is known on several lanes, or would have two lanes meet in one. */
static bool find_known(const RankProgram *p, const Timeline *t, const LaneUses *u,
                       Lane to[LANE_N], bool taken[LANE_N])
{
    for (uint32_t k = 0; k < p->order_n; k++) {
        const Item *i = &p->items[p->order[k]];
        const LaneUse *use = is_named(i, t) ? find_use(u, i->comm) : NULL;
        if (!use || use->lane == to[i->lane])
            continue;
        if (use->lane == LANE_N || to[i->lane] != LANE_N || taken[use->lane])
            return false;
        taken[to[i->lane] = use->lane] = true;
    }
    return true;
}

/* What no earlier rank has keeps its lane, if that is free.  False: nothing is to be renamed. */
static bool rename_lanes(const RankProgram *p, const Timeline *t, const LaneUses *u,
                         Lane to[LANE_N])
{
    bool taken[LANE_N] = { [LANE_COMPUTE] = true, [LANE_HOST] = true };
    Lane spare = 0;
    for (Lane l = 0; l < LANE_N; l++)
        to[l] = taken[l] ? l : LANE_N;
    if (!find_known(p, t, u, to, taken))
        return false;
    for (Lane l = 0; l < LANE_N; l++)
        if (to[l] == LANE_N && !taken[l])
            taken[to[l] = l] = true;
    for (Lane l = 0; l < LANE_N; l++) {
        while (to[l] == LANE_N && taken[spare])
            spare++;
        if (to[l] == LANE_N)
            taken[to[l] = spare] = true;
    }
    return true;
}

static void note_uses(LaneUses *u, const RankProgram *p, const Timeline *t)
{
    uint32_t before_n = u->n;
    for (uint32_t k = 0; k < p->order_n; k++) {
        const Item *i = &p->items[p->order[k]];
        LaneUse *use = is_named(i, t) ? find_use(u, i->comm) : NULL;
        if (use && use >= u->use + before_n && use->lane != i->lane)
            use->lane = LANE_N;
        if (use || !is_named(i, t))
            continue;
        GROW(u->use, u->n, u->cap);
        u->use[u->n++] = (LaneUse){ i->comm->group, i->comm->group_id, i->comm->op, i->lane };
    }
}

void from_trace_lanes(RankProgram *programs, uint32_t programs_n, const Timeline *t)
{
    LaneUses uses = { .n = 0 };
    for (uint32_t r = 0; r < programs_n; r++) {
        RankProgram *p = &programs[r];
        Lane to[LANE_N];
        bool any = rename_lanes(p, t, &uses, to);
        for (uint32_t k = 0; k < p->items_n && any; k++)
            p->items[k].lane = to[p->items[k].lane];
        note_uses(&uses, p, t);
    }
    free(uses.use);
}

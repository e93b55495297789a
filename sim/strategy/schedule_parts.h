/*
 * schedule_parts.h - what schedule.c and schedule_zb.c share.
 */
#ifndef LOCKSTEP_SIM_STRATEGY_SCHEDULE_PARTS_H
#define LOCKSTEP_SIM_STRATEGY_SCHEDULE_PARTS_H

#include "sim/strategy/schedule.h"

/* The actions of one stage so far; each kind takes its micro-batches in order. */
typedef struct StageLine {
    Action *actions;
    uint32_t n, step;
    uint32_t done[3][2]; /* by ActionKind and turn */
} StageLine;

void line_push(StageLine *l, ActionKind kind, uint32_t turn);

/* zb-h1: the actions of one stage. */
void zb_h1_actions(const SchedulePlan *p, uint32_t stage, Action *actions);

/* zb-1p and zb-2p: as schedule_actions. */
void zb_search(const SchedulePlan *p, Action *actions);

#endif

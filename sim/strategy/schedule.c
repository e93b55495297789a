/*
 * schedule.c - the order tables of schedule.h that are closed rules.
 */
#include "sim/strategy/schedule_parts.h"

/* ---- where chunks live ---- */

uint32_t schedule_stage(Schedule schedule, uint32_t pp, uint32_t chunk)
{
    if (schedule == SCHEDULE_ZBV && chunk >= pp)
        return 2 * pp - 1 - chunk;
    return chunk % pp;
}

uint32_t schedule_chunk(Schedule schedule, uint32_t pp, uint32_t stage, uint32_t turn)
{
    if (schedule == SCHEDULE_ZBV && turn == 1)
        return 2 * pp - 1 - stage;
    return turn * pp + stage;
}

/* ---- one forward, one backward, and what is between ---- */

/* The k-th forward: for each group of pp micro-batches, for each turn, for each of the group. */
static Action kth_forward(const SchedulePlan *p, uint32_t k)
{
    uint32_t within = k % (p->pp * p->turns), group = k / (p->pp * p->turns);
    return (Action){ .micro_batch = group * p->pp + within % p->pp, .turn = within / p->pp };
}

static Action kth_backward(const SchedulePlan *p, uint32_t k)
{
    Action a = kth_forward(p, k);
    a.kind = ACTION_BACKWARD;
    a.turn = p->turns - 1 - a.turn;
    return a;
}

static uint32_t warm_up(const SchedulePlan *p, uint32_t stage, uint32_t total)
{
    uint64_t later = p->pp - 1 - stage, n = later;
    if (p->schedule == SCHEDULE_GPIPE)
        n = total;
    else if (p->schedule == SCHEDULE_NAIVE)
        n = 0;
    else if (p->schedule == SCHEDULE_INTERLEAVED)
        n = later * 2 + (uint64_t)(p->turns - 1) * p->pp;
    return (uint32_t)min_u64(n, total);
}

static void usual_actions(const SchedulePlan *p, uint32_t stage, Action *actions)
{
    bool interleaved = p->schedule == SCHEDULE_INTERLEAVED;
    uint32_t total = p->micro_batches * p->turns, n = 0, step = 0;
    uint32_t ahead = warm_up(p, stage, total);
    for (uint32_t k = 0; k < ahead; k++) {
        actions[n] = kth_forward(p, k);
        actions[n++].step = step++;
    }
    for (uint32_t k = 0; k < total; k++) {
        if (k + ahead < total) {
            actions[n] = kth_forward(p, k + ahead);
            actions[n++].step = step;
            step += interleaved ? 0 : 1;
        }
        actions[n] = kth_backward(p, k);
        actions[n++].step = step++;
    }
    ASSERT(n == 2 * total);
}

/* ---- weight gradients apart ---- */

void line_push(StageLine *l, ActionKind kind, uint32_t turn)
{
    uint32_t *n = &l->done[kind][turn];
    if (kind != ACTION_WEIGHT && l->n > 0)
        l->step++;
    l->actions[l->n++] =
        (Action){ .kind = kind, .micro_batch = (*n)++, .turn = turn, .step = l->step };
}

void zb_h1_actions(const SchedulePlan *p, uint32_t stage, Action *actions)
{
    StageLine l = { .actions = actions };
    uint32_t m = p->micro_batches, ahead = warm_up(p, stage, m);
    for (uint32_t k = 0; k < ahead; k++)
        line_push(&l, ACTION_FORWARD, 0);
    for (uint32_t k = 0; k < m; k++) {
        if (k + ahead < m)
            line_push(&l, ACTION_FORWARD, 0);
        line_push(&l, ACTION_BACKWARD, 0);
        if (k >= stage)
            line_push(&l, ACTION_WEIGHT, 0);
    }
    while (l.n < schedule_actions_n(p))
        line_push(&l, ACTION_WEIGHT, 0);
}

/* ---- down the stages and up again ---- */

typedef struct Vee {
    StageLine line;
    uint32_t m;
} Vee;

/* What is left of it: micro-batches that do not exist are left out. */
static void vee(Vee *v, ActionKind kind, uint32_t turn)
{
    if (v->line.done[kind][turn] < v->m)
        line_push(&v->line, kind, turn);
}

static void vee_backward(Vee *v, uint32_t turn)
{
    vee(v, ACTION_BACKWARD, turn);
    vee(v, ACTION_WEIGHT, turn);
}

static void zbv_actions(const SchedulePlan *p, uint32_t stage, Action *actions)
{
    Vee v = { .line = { .actions = actions }, .m = p->micro_batches };
    const uint32_t *forwards = v.line.done[ACTION_FORWARD];
    for (uint32_t k = 0; k < 2 * (p->pp - stage) - 1; k++)
        vee(&v, ACTION_FORWARD, 0);
    for (uint32_t k = 0; k < stage; k++) {
        vee(&v, ACTION_FORWARD, 1);
        vee(&v, ACTION_FORWARD, 0);
    }
    for (uint32_t k = 0; k < p->pp - stage; k++) {
        vee(&v, ACTION_FORWARD, 1);
        vee_backward(&v, 1);
    }
    while (forwards[1] < v.m) {
        vee(&v, ACTION_FORWARD, 0);
        vee_backward(&v, 0);
        vee(&v, ACTION_FORWARD, 1);
        vee_backward(&v, 1);
    }
    for (uint32_t k = 0; k < stage; k++) {
        vee(&v, ACTION_BACKWARD, 0);
        vee(&v, ACTION_BACKWARD, 1);
    }
    while (v.line.done[ACTION_BACKWARD][0] < v.m)
        vee_backward(&v, 0);
    for (uint32_t turn = 2; turn-- > 0;)
        while (v.line.done[ACTION_WEIGHT][turn] < v.m)
            vee(&v, ACTION_WEIGHT, turn);
    ASSERT(v.line.n == schedule_actions_n(p));
}

/* ---- all ---- */

uint32_t schedule_actions_n(const SchedulePlan *p)
{
    return (schedule_splits(p->schedule) ? 3 : 2) * p->micro_batches * p->turns;
}

bool schedule_is_searched(Schedule schedule)
{
    return schedule == SCHEDULE_ZB_1P || schedule == SCHEDULE_ZB_2P;
}

void schedule_actions(const SchedulePlan *p, Action *actions)
{
    bool groups = p->schedule == SCHEDULE_INTERLEAVED && p->micro_batches % p->pp == 0;
    ASSERT(p->turns == 1 || groups || (p->schedule == SCHEDULE_ZBV && p->turns == 2));
    if (schedule_is_searched(p->schedule)) {
        zb_search(p, actions);
        return;
    }
    for (uint32_t stage = 0; stage < p->pp; stage++) {
        Action *mine = actions + (size_t)stage * schedule_actions_n(p);
        if (p->schedule == SCHEDULE_ZB_H1)
            zb_h1_actions(p, stage, mine);
        else if (p->schedule == SCHEDULE_ZBV)
            zbv_actions(p, stage, mine);
        else
            usual_actions(p, stage, mine);
    }
}

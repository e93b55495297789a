/*
 * schedule.c - the order tables of schedule.h that are closed rules.
 */
#include "sim/strategy/schedule_parts.h"

#include <stdlib.h>

/* ---- where chunks live ---- */

uint32_t schedule_stage(Schedule schedule, uint32_t pp, uint32_t chunk)
{
    if (schedule_is_vee(schedule) && chunk >= pp)
        return 2 * pp - 1 - chunk;
    return chunk % pp;
}

uint32_t schedule_chunk(Schedule schedule, uint32_t pp, uint32_t stage, uint32_t turn)
{
    if (schedule_is_vee(schedule) && turn == 1)
        return 2 * pp - 1 - stage;
    return turn * pp + stage;
}

/* ---- one forward, one backward, and what is between ---- */

uint32_t schedule_group(uint32_t pp, uint32_t micro_batches)
{
    uint32_t rounds = micro_batches < pp ? 1 : micro_batches / pp;
    return micro_batches % rounds == 0 ? micro_batches / rounds : 0;
}

/* The k-th forward: for each group of micro-batches, for each turn, for each of the group. */
static Action kth_forward(const SchedulePlan *p, uint32_t k)
{
    uint32_t n = p->turns > 1 ? schedule_group(p->pp, p->micro_batches) : 1;
    uint32_t within = k % (n * p->turns), group = k / (n * p->turns);
    return (Action){ .micro_batch = group * n + within % n, .turn = within / n };
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
        n = later * 2 + (uint64_t)(p->turns - 1) * schedule_group(p->pp, p->micro_batches);
    return (uint32_t)min_u64(n + p->pairs, total);
}

/* Down the stages and up again, before the first backward, which is of the second chunk; dualpipe
 * does one more forward with it where no later stage has it wait. */
static uint32_t held_in_vee(const SchedulePlan *p, uint32_t stage, uint32_t turn)
{
    bool one_more = p->schedule == SCHEDULE_DUALPIPE && stage + 1 == p->pp;
    uint32_t down = 2 * p->pp - stage - 1 + one_more, up = stage + 1;
    return (uint32_t)min_u64(turn == 0 ? down : up, p->micro_batches);
}

uint32_t schedule_held(const SchedulePlan *p, uint32_t stage, uint32_t turn)
{
    if (schedule_is_vee(p->schedule))
        return held_in_vee(p, stage, turn);
    uint32_t total = p->micro_batches * p->turns;
    uint32_t n = (uint32_t)min_u64((uint64_t)warm_up(p, stage, total) + 1, total);
    uint32_t group = p->turns > 1 ? schedule_group(p->pp, p->micro_batches) : 1;
    uint32_t rest = n % (group * p->turns), before = turn * group;
    uint32_t of_rest = rest > before ? (uint32_t)min_u64(rest - before, group) : 0;
    return n / (group * p->turns) * group + of_rest;
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
            actions[n].tied = p->pairs;
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

/* Weight gradients that were put off, in the order of their backwards. */
typedef struct Dual {
    Vee vee;
    uint32_t *turns, n, taken;
} Dual;

static void put_off(Dual *d, uint32_t turn)
{
    vee(&d->vee, ACTION_BACKWARD, turn);
    d->turns[d->n++] = turn;
}

static void catch_up(Dual *d)
{
    ASSERT(d->taken < d->n);
    vee(&d->vee, ACTION_WEIGHT, d->turns[d->taken++]);
}

/* One call of torch's autograd does both. */
static void whole_backward(Dual *d, uint32_t turn)
{
    vee_backward(&d->vee, turn);
    d->vee.line.actions[d->vee.line.n - 2].tied = 1;
}

static void one_each(Dual *d, uint32_t forward, uint32_t backward)
{
    vee(&d->vee, ACTION_FORWARD, forward);
    d->vee.line.actions[d->vee.line.n - 1].tied = 2;
    whole_backward(d, backward);
}

/* The last backwards, of both chunks in turn; of them, the later half put off their W. */
static void dual_drain(Dual *d, uint32_t stage)
{
    for (uint32_t k = 0; k < 2 * (stage + 1); k++)
        if (k <= stage)
            whole_backward(d, (k + 1) % 2);
        else
            put_off(d, (k + 1) % 2);
}

static void dualpipe_actions(const SchedulePlan *p, uint32_t stage, Action *actions)
{
    Dual d = { .vee = { .line = { .actions = actions }, .m = p->micro_batches } };
    uint32_t later = p->pp - 1 - stage;
    d.turns = mem_zero((size_t)2 * p->pp, sizeof *d.turns);
    for (uint32_t k = 0; k < 2 * later; k++)
        vee(&d.vee, ACTION_FORWARD, 0);
    for (uint32_t k = 0; k < 2 * (stage + 1); k++)
        vee(&d.vee, ACTION_FORWARD, k % 2);
    for (uint32_t k = 0; k < later; k++) {
        vee_backward(&d.vee, 1);
        vee(&d.vee, ACTION_FORWARD, 1);
    }
    for (uint32_t k = 2 * p->pp; k <= p->micro_batches + stage; k++) {
        one_each(&d, 0, 1);
        one_each(&d, 1, 0);
    }
    for (uint32_t k = 0; k < later; k++) {
        whole_backward(&d, 1);
        one_each(&d, 1, 0);
    }
    dual_drain(&d, stage);
    for (uint32_t k = 0; k < later; k++) {
        catch_up(&d);
        put_off(&d, 0);
    }
    while (d.taken < d.n)
        catch_up(&d);
    ASSERT(d.vee.line.n == schedule_actions_n(p));
    free(d.turns);
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
    bool groups =
        p->schedule == SCHEDULE_INTERLEAVED && schedule_group(p->pp, p->micro_batches) > 0;
    ASSERT(p->turns == 1 || groups || (schedule_is_vee(p->schedule) && p->turns == 2));
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
        else if (p->schedule == SCHEDULE_DUALPIPE)
            dualpipe_actions(p, stage, mine);
        else
            usual_actions(p, stage, mine);
    }
}

/*
 * schedule.c - the order tables of schedule.h.
 */
#include "sim/strategy/schedule.h"

typedef struct Order {
    uint32_t pp, turns;
} Order;

/* The k-th forward: for each group of pp micro-batches, for each turn, for each of the group. */
static Action kth_forward(Order o, uint32_t k)
{
    uint32_t within = k % (o.pp * o.turns), group = k / (o.pp * o.turns);
    return (Action){ .micro_batch = group * o.pp + within % o.pp, .turn = within / o.pp };
}

static Action kth_backward(Order o, uint32_t k)
{
    Action a = kth_forward(o, k);
    a.backward = true;
    a.turn = o.turns - 1 - a.turn;
    return a;
}

static uint32_t warm_up(Schedule schedule, Order o, uint32_t stage, uint32_t total)
{
    uint64_t later = o.pp - 1 - stage, n = later;
    if (schedule == SCHEDULE_GPIPE)
        n = total;
    else if (schedule == SCHEDULE_NAIVE)
        n = 0;
    else if (schedule == SCHEDULE_INTERLEAVED)
        n = later * 2 + (uint64_t)(o.turns - 1) * o.pp;
    return (uint32_t)min_u64(n, total);
}

void schedule_actions(Action *actions, Schedule schedule, uint32_t pp, uint32_t stage,
                      uint32_t turns, uint32_t micro_batches)
{
    ASSERT(stage < pp && turns > 0);
    bool interleaved = schedule == SCHEDULE_INTERLEAVED;
    ASSERT(turns == 1 || (interleaved && micro_batches % pp == 0));
    Order o = { pp, turns };
    uint32_t total = micro_batches * turns, n = 0, step = 0;
    uint32_t ahead = warm_up(schedule, o, stage, total);
    for (uint32_t k = 0; k < ahead; k++) {
        actions[n] = kth_forward(o, k);
        actions[n++].step = step++;
    }
    for (uint32_t k = 0; k < total; k++) {
        bool steady = k + ahead < total;
        if (steady) {
            actions[n] = kth_forward(o, k + ahead);
            actions[n++].step = step;
            step += interleaved ? 0 : 1;
        }
        actions[n] = kth_backward(o, k);
        actions[n++].step = step++;
    }
    ASSERT(n == 2 * total);
}

/*
 * lanes.c - two heaps: lanes in use by the time they come free, and free lanes
 * by number.  Before a span is placed, every lane whose span has ended moves
 * from the first to the second.
 */
#include "core/lanes.h"

#include <stdlib.h>

static void busy_push(Lanes *l, LaneBusy b)
{
    GROW(l->busy, l->busy_n, l->busy_cap);
    uint32_t i = l->busy_n++;
    for (; i > 0 && l->busy[(i - 1) / 2].end_ns > b.end_ns; i = (i - 1) / 2)
        l->busy[i] = l->busy[(i - 1) / 2];
    l->busy[i] = b;
}

static LaneBusy busy_pop(Lanes *l)
{
    LaneBusy top = l->busy[0], last = l->busy[--l->busy_n];
    uint32_t i = 0;
    for (uint32_t child = 1; child < l->busy_n; child = 2 * i + 1) {
        if (child + 1 < l->busy_n && l->busy[child + 1].end_ns < l->busy[child].end_ns)
            child++;
        if (l->busy[child].end_ns >= last.end_ns)
            break;
        l->busy[i] = l->busy[child];
        i = child;
    }
    l->busy[i] = last;
    return top;
}

static void idle_push(Lanes *l, uint32_t lane)
{
    GROW(l->idle, l->idle_n, l->idle_cap);
    uint32_t i = l->idle_n++;
    for (; i > 0 && l->idle[(i - 1) / 2] > lane; i = (i - 1) / 2)
        l->idle[i] = l->idle[(i - 1) / 2];
    l->idle[i] = lane;
}

static uint32_t idle_pop(Lanes *l)
{
    uint32_t top = l->idle[0], last = l->idle[--l->idle_n];
    uint32_t i = 0;
    for (uint32_t child = 1; child < l->idle_n; child = 2 * i + 1) {
        if (child + 1 < l->idle_n && l->idle[child + 1] < l->idle[child])
            child++;
        if (l->idle[child] >= last)
            break;
        l->idle[i] = l->idle[child];
        i = child;
    }
    l->idle[i] = last;
    return top;
}

static uint32_t lowest_idle(Lanes *l)
{
    if (l->idle_n == 0)
        idle_push(l, l->lanes_n++);
    return l->idle[0];
}

/*
 * A span of length 0 leaves its lane free, and may share the lane of one that
 * starts at the same moment: neither starts before the other ends.
 */
static uint32_t take_for_instant(Lanes *l, bool shares)
{
    if (shares && (l->idle_n == 0 || l->last_start_lane < l->idle[0]))
        return l->last_start_lane;
    return lowest_idle(l);
}

uint32_t lanes_take(Lanes *l, int64_t start_ns, int64_t dur_ns)
{
    ASSERT(dur_ns >= 0);
    bool same_start = l->lanes_n > 0 && start_ns == l->last_start_ns;
    ASSERT(l->lanes_n == 0 || start_ns >= l->last_start_ns);

    while (l->busy_n > 0 && l->busy[0].end_ns <= start_ns)
        idle_push(l, busy_pop(l).lane);

    uint32_t lane;
    if (dur_ns == 0) {
        lane = take_for_instant(l, same_start);
    } else {
        lowest_idle(l);
        lane = idle_pop(l);
        busy_push(l, (LaneBusy){ start_ns + dur_ns, lane });
    }
    if (!same_start || lane < l->last_start_lane)
        l->last_start_lane = lane;
    l->last_start_ns = start_ns;
    return lane;
}

void lanes_clear(Lanes *l)
{
    l->lanes_n = l->busy_n = l->idle_n = 0;
}

void lanes_free(Lanes *l)
{
    free(l->busy);
    free(l->idle);
    *l = (Lanes){ 0 };
}

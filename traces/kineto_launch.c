/*
 * kineto_launch.c - how a kernel was launched: `"grid": [24, 1, 1], "block": [544, 1, 1]`.
 *
 * What is no list of three whole numbers is not there.  Numbers beside it that are
 * missing, or beyond 32 bits, are unknown.
 */
#include "traces/kineto_parts.h"

/* "[24, 1, 1]", with blanks anywhere between numbers. */
static bool read_three(const ScanText *v, uint32_t three[3])
{
    const uint8_t *at = v->at, *end = v->at + v->n;
    if (v->kind != SCAN_ARRAY)
        return false;
    for (int i = 0; i < 3; i++) {
        uint64_t x = 0;
        at = scan_past_blank(at + 1, end); /* behind a bracket or comma */
        const uint8_t *digits = at;
        for (; at < end && *at >= '0' && *at <= '9' && at - digits < 10; at++)
            x = 10 * x + (uint64_t)(*at - '0');
        if (at == digits || x >= NONE_U32)
            return false;
        three[i] = (uint32_t)x;
        at = scan_past_blank(at, end);
        if (at >= end || *at != (i < 2 ? ',' : ']'))
            return false;
    }
    return true;
}

static uint32_t count_of(const Event *e, Arg arg)
{
    int64_t x;
    return event_whole(e, arg, &x) && x >= 0 && x < NONE_U32 ? (uint32_t)x : NONE_U32;
}

/* Newer versions write it with decimals. */
static uint32_t percent_of(const Event *e)
{
    double x;
    if (!event_has(e, ARG_OCCUPANCY) || !scan_double(&e->arg[ARG_OCCUPANCY], &x))
        return NONE_U32;
    return x >= 0 && x < 1000 ? (uint32_t)(x + 0.5) : NONE_U32;
}

void kineto_launch(Kineto *k, const Event *e, uint64_t span)
{
    KernelLaunch l;
    if (!event_has(e, ARG_GRID) || !event_has(e, ARG_BLOCK) ||
        !read_three(&e->arg[ARG_GRID], l.grid) || !read_three(&e->arg[ARG_BLOCK], l.block))
        return;
    l.registers_n = count_of(e, ARG_REGISTERS);
    l.shared_bytes = count_of(e, ARG_SHARED);
    l.occupancy_pct = count_of(e, ARG_OCCUPANCY);
    if (l.occupancy_pct == NONE_U32)
        l.occupancy_pct = percent_of(e);
    timeline_set_launch(k->t, span, timeline_launch(k->t, &l));
}

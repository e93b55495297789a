/*
 * timeline_launch.c - how kernels were launched, each way once.
 */
#include "core/timeline.h"

#include <string.h>

static uint64_t hash_of(const KernelLaunch *l)
{
    uint64_t word[5] = { 0 }, h = 0;
    memcpy(word, l, sizeof *l);
    for (size_t i = 0; i < ARRAY_N(word); i++)
        h = (h ^ word[i]) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 32;
}

/* Half of the slots are free. */
static void grow_slots(Timeline *t)
{
    uint32_t n = t->launch_slots_n ? 2 * t->launch_slots_n : 256;
    t->launch_slots = mem_resize(t->launch_slots, n, sizeof *t->launch_slots);
    memset(t->launch_slots, 0, n * sizeof *t->launch_slots);
    t->launch_slots_n = n;
    for (uint32_t i = 0; i < t->launches_n; i++) {
        uint64_t at = hash_of(&t->launches[i]) % n;
        while (t->launch_slots[at])
            at = (at + 1) % n;
        t->launch_slots[at] = i + 1;
    }
}

uint32_t timeline_launch(Timeline *t, const KernelLaunch *launch)
{
    ASSERT(!t->sealed);
    if (2 * t->launches_n >= t->launch_slots_n)
        grow_slots(t);
    uint64_t at = hash_of(launch) % t->launch_slots_n;
    for (; t->launch_slots[at]; at = (at + 1) % t->launch_slots_n)
        if (memcmp(&t->launches[t->launch_slots[at] - 1], launch, sizeof *launch) == 0)
            return t->launch_slots[at] - 1;
    if (t->launches_n == TIMELINE_LAUNCHES_MAX)
        return NONE_U32;
    GROW(t->launches, t->launches_n, t->launches_cap);
    t->launches[t->launches_n] = *launch;
    t->launch_slots[at] = t->launches_n + 1;
    return t->launches_n++;
}

void timeline_set_launch(Timeline *t, uint64_t span, uint32_t launch)
{
    ASSERT(!t->sealed && span < t->spans_n);
    if (launch == NONE_U32)
        return;
    ASSERT(launch < t->launches_n);
    if (t->comm[span] < t->comms_n)
        t->comms[t->comm[span]].launch = launch + 1;
    else
        t->comm[span] = TIMELINE_LAUNCH_FIRST + launch;
}

void timeline_set_comm(Timeline *t, uint64_t span, Comm comm)
{
    const KernelLaunch *launch = timeline_launch_of(t, span);
    if (launch)
        comm.launch = (uint32_t)(launch - t->launches) + 1;
    t->comm[span] = timeline_comm(t, comm);
}

_Static_assert(sizeof(KernelLaunch) == 36, "no padding: KernelLaunch is the same on disk");

/*
 * timeline_logical.c - which logical ops kernels do, each list of their numbers once.
 *
 *     t->logical[span]   key of the instance | 20 bits: where the list begins
 *     t->logical_lists   ... n, number, number ...
 */
#include "core/timeline.h"

#include <stdlib.h>
#include <string.h>

#define LIST_BITS TIMELINE_LOGICAL_BITS

static uint32_t list_end(const Timeline *t, uint32_t at)
{
    return at + 1 + t->logical_lists[at];
}

static uint64_t hash_of(const uint32_t *ops, uint32_t n)
{
    uint64_t h = n;
    for (uint32_t i = 0; i < n; i++)
        h = mix_u64(h ^ ops[i]);
    return h;
}

static void put_slot(Timeline *t, uint32_t at)
{
    const uint32_t *list = t->logical_lists + at;
    uint64_t slot = hash_of(list + 1, list[0]) % t->logical_slots_n;
    while (t->logical_slots[slot])
        slot = (slot + 1) % t->logical_slots_n;
    t->logical_slots[slot] = at + 1;
}

/* Half of the slots are free: a list takes two numbers at least. */
static void grow_slots(Timeline *t)
{
    uint32_t n = t->logical_slots_n ? 2 * t->logical_slots_n : 256;
    t->logical_slots = mem_resize(t->logical_slots, n, sizeof *t->logical_slots);
    memset(t->logical_slots, 0, n * sizeof *t->logical_slots);
    t->logical_slots_n = n;
    for (uint32_t at = 0; at < t->logical_lists_n; at = list_end(t, at))
        put_slot(t, at);
}

/* Where an equal list stands, or a new one; NONE_U32: there is no room. */
static uint32_t list_of(Timeline *t, const uint32_t *ops, uint32_t n)
{
    if (t->logical_lists_n >= t->logical_slots_n)
        grow_slots(t);
    uint64_t slot = hash_of(ops, n) % t->logical_slots_n;
    for (; t->logical_slots[slot]; slot = (slot + 1) % t->logical_slots_n) {
        const uint32_t *list = t->logical_lists + t->logical_slots[slot] - 1;
        if (list[0] == n && memcmp(list + 1, ops, n * sizeof *ops) == 0)
            return t->logical_slots[slot] - 1;
    }
    uint32_t at = t->logical_lists_n;
    if (at + 1 + n > TIMELINE_LOGICAL_LISTS_MAX)
        return NONE_U32;
    RESERVE(t->logical_lists, at + 1 + n, t->logical_lists_cap);
    t->logical_lists[at] = n;
    memcpy(t->logical_lists + at + 1, ops, n * sizeof *ops);
    t->logical_lists_n += 1 + n;
    t->logical_slots[slot] = at + 1;
    return at;
}

void timeline_set_logical(Timeline *t, uint64_t span, LogicalOps of)
{
    ASSERT(!t->sealed && span < t->spans_n);
    if (of.n == 0 || of.n > TIMELINE_LOGICAL_OPS_MAX)
        return;
    uint32_t list = list_of(t, of.op, of.n);
    if (list == NONE_U32)
        return;
    if (!t->logical) {
        t->logical = mem_resize(NULL, t->spans_cap, sizeof *t->logical);
        memset(t->logical, 0xff, t->spans_n * sizeof *t->logical); /* NONE_U64 */
    }
    ASSERT(of.instance < TIMELINE_LOGICAL_INSTANCES);
    t->logical[span] = of.instance << LIST_BITS | list;
}

LogicalOps timeline_logical_of(const Timeline *t, uint64_t span)
{
    LogicalOps none = { 0 };
    if (!t->logical || t->logical[span] == NONE_U64)
        return none;
    uint64_t at = t->logical[span] & (TIMELINE_LOGICAL_LISTS_MAX - 1);
    if (at >= t->logical_lists_n || t->logical_lists[at] >= t->logical_lists_n - at)
        return none;
    return (LogicalOps){ t->logical[span] >> LIST_BITS, t->logical_lists[at],
                         t->logical_lists + at + 1 };
}

/*
 * evq.h - the event queue: a binary heap ordered by (time, insertion).
 *
 * Ties are broken by insertion, so events of one instant keep their order and a
 * run is the same every time.  An event may schedule another for now.
 *
 * A source (the compute lane of a rank, a flow) has one event at most: when it is to come
 * at another time it is set anew, as if inserted then, in place of the one that waits.
 *
 * What is moved about in the heap is only when an event comes; what it is stays in its slot:
 *
 *     heap    12 ns, 7th, slot 2 | 30 ns, 5th, slot 0 | 12 ns, 9th, slot 1
 *     slot    0: flow 3 ends | 1: kernel of rank 4 | 2: lane 1 of rank 0
 *     place   2                3                     1
 */
#ifndef LOCKSTEP_SIM_EVQ_H
#define LOCKSTEP_SIM_EVQ_H

#include "core/base.h"

typedef struct Event {
    int64_t at_ns;
    uint64_t order;
    uint32_t kind, a, b;
    uint32_t source; /* NONE_U32: of none, any number of them may wait */
} Event;

/* turn: order << EVQ_SLOT_BITS | slot. */
typedef struct EventTime {
    int64_t at_ns;
    uint64_t turn;
} EventTime;

enum { EVQ_SLOT_BITS = 24 }; /* so many events may wait; 2^40 may be pushed in all */

typedef struct EventSlot {
    uint32_t kind, a, b, source;
} EventSlot;

typedef struct EventQueue {
    EventTime *heap;
    uint32_t n, cap;
    uint32_t slots_n, slots_cap;
    EventSlot *slot;
    uint32_t *place; /* by slot: 1 + that of its event in the heap; 0: none waits */
    uint32_t free_n, free_cap;
    uint32_t *free_slot; /* of no source, and with no event */
    uint32_t sources_n;
    uint32_t *slot_of; /* by source: 1 + its slot; 0: it has none yet */
    uint64_t pushed;
    bool top_is_free; /* heap[0] has been popped: most events push another, which goes there */
} EventQueue;

void evq_push(EventQueue *q, int64_t at_ns, uint32_t kind, uint32_t a, uint32_t b);
void evq_set(EventQueue *q, uint32_t source, int64_t at_ns, uint32_t kind, uint32_t a);
void evq_cancel(EventQueue *q, uint32_t source); /* its event, if one waits */
/* When the source's event is to come; never: if none waits. */
int64_t evq_when(EventQueue *q, uint32_t source, int64_t never);
bool evq_pop(EventQueue *q, Event *event); /* false when empty */
void evq_settle(EventQueue *q);            /* evq_at 0 .. n - 1 are what waits, in some order */
Event evq_at(const EventQueue *q, uint32_t i);
void evq_free(EventQueue *q);

#endif

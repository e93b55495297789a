/*
 * evq.h - the event queue: a binary heap ordered by (time, insertion).
 *
 * Ties are broken by insertion, so events of one instant keep their order and a
 * run is the same every time.  An event may schedule another for now.
 *
 * A source (the compute lane of a rank, a flow) has one event at most: when it is to come
 * at another time it is set anew, as if inserted then, in place of the one that waits.
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

typedef struct EventQueue {
    Event *heap;
    uint32_t n, cap;
    uint32_t *place; /* by source: 1 + that of its event in the heap; 0: none waits */
    uint32_t sources_n;
    uint64_t pushed;
    bool top_is_free; /* heap[0] has been popped: most events push another, which goes there */
} EventQueue;

void evq_push(EventQueue *q, int64_t at_ns, uint32_t kind, uint32_t a, uint32_t b);
void evq_set(EventQueue *q, uint32_t source, int64_t at_ns, uint32_t kind, uint32_t a);
void evq_cancel(EventQueue *q, uint32_t source); /* its event, if one waits */
/* When the source's event is to come; never: if none waits. */
int64_t evq_when(EventQueue *q, uint32_t source, int64_t never);
bool evq_pop(EventQueue *q, Event *event); /* false when empty */
void evq_settle(EventQueue *q);            /* heap[0 .. n) is what waits, for who looks at it */
void evq_free(EventQueue *q);

#endif

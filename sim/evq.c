/* evq.c - sift up, sift down; what is popped leaves its place to what is pushed next. */
#include "sim/evq.h"

#include <stdlib.h>
#include <string.h>

static const uint64_t slot_mask = ((uint64_t)1 << EVQ_SLOT_BITS) - 1;

static bool earlier(const EventTime *a, const EventTime *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->turn < b->turn;
}

static uint32_t slot_at(const EventQueue *q, uint32_t i)
{
    return (uint32_t)(q->heap[i].turn & slot_mask);
}

static void put(EventQueue *q, uint32_t i, EventTime t)
{
    q->heap[i] = t;
    q->place[t.turn & slot_mask] = i + 1;
}

/* Puts t where it belongs, from the free place i on, downwards. */
static void sift_down(EventQueue *q, uint32_t i, EventTime t)
{
    for (uint32_t child = 2 * i + 1; child < q->n; child = 2 * i + 1) {
        if (child + 1 < q->n && earlier(&q->heap[child + 1], &q->heap[child]))
            child++;
        if (!earlier(&q->heap[child], &t))
            break;
        put(q, i, q->heap[child]);
        i = child;
    }
    put(q, i, t);
}

/* And upwards, or downwards if it is not before the one above.  Nothing is before what has been
 * popped, so a free top stays where it is. */
static void sift(EventQueue *q, uint32_t i, EventTime t)
{
    if (i == 0 || !earlier(&t, &q->heap[(i - 1) / 2])) {
        sift_down(q, i, t);
        return;
    }
    for (; i > 0 && earlier(&t, &q->heap[(i - 1) / 2]); i = (i - 1) / 2)
        put(q, i, q->heap[(i - 1) / 2]);
    put(q, i, t);
}

void evq_settle(EventQueue *q)
{
    if (!q->top_is_free)
        return;
    q->top_is_free = false;
    if (--q->n)
        sift_down(q, 0, q->heap[q->n]);
}

static EventTime time_of(EventQueue *q, uint32_t slot, int64_t at_ns)
{
    ASSERT(q->pushed >> (64 - EVQ_SLOT_BITS) == 0);
    return (EventTime){ at_ns, q->pushed++ << EVQ_SLOT_BITS | slot };
}

static void insert(EventQueue *q, uint32_t slot, int64_t at_ns)
{
    if (q->top_is_free) {
        q->top_is_free = false;
        sift_down(q, 0, time_of(q, slot, at_ns));
        return;
    }
    GROW(q->heap, q->n, q->cap);
    sift(q, q->n++, time_of(q, slot, at_ns));
}

static uint32_t slot_new(EventQueue *q)
{
    if (q->free_n > 0)
        return q->free_slot[--q->free_n];
    ASSERT(q->slots_n < slot_mask);
    if (q->slots_n == q->slots_cap)
        q->place = mem_resize(q->place, 2 * q->slots_cap + 16, sizeof *q->place);
    GROW(q->slot, q->slots_n, q->slots_cap);
    q->place[q->slots_n] = 0;
    return q->slots_n++;
}

void evq_push(EventQueue *q, int64_t at_ns, uint32_t kind, uint32_t a, uint32_t b)
{
    uint32_t slot = slot_new(q);
    q->slot[slot] = (EventSlot){ kind, a, b, NONE_U32 };
    insert(q, slot, at_ns);
}

static void slot_of_new(EventQueue *q, uint32_t source)
{
    if (source >= q->sources_n) {
        uint32_t n = 2 * source + 64;
        q->slot_of = mem_resize(q->slot_of, n, sizeof *q->slot_of);
        memset(q->slot_of + q->sources_n, 0, (n - q->sources_n) * sizeof *q->slot_of);
        q->sources_n = n;
    }
    if (q->slot_of[source] == 0)
        q->slot_of[source] = slot_new(q) + 1;
}

void evq_set(EventQueue *q, uint32_t source, int64_t at_ns, uint32_t kind, uint32_t a)
{
    if (source >= q->sources_n || q->slot_of[source] == 0)
        slot_of_new(q, source);
    uint32_t slot = q->slot_of[source] - 1;
    q->slot[slot] = (EventSlot){ kind, a, 0, source };
    if (q->place[slot])
        sift(q, q->place[slot] - 1, time_of(q, slot, at_ns));
    else
        insert(q, slot, at_ns);
}

/* 1 + where the source's event is in the heap; 0: none waits. */
static uint32_t place_of(const EventQueue *q, uint32_t source)
{
    bool has = source < q->sources_n && q->slot_of[source] > 0;
    return has ? q->place[q->slot_of[source] - 1] : 0;
}

void evq_cancel(EventQueue *q, uint32_t source)
{
    uint32_t place = place_of(q, source);
    if (place == 0)
        return;
    q->place[q->slot_of[source] - 1] = 0;
    if (--q->n != place - 1)
        sift(q, place - 1, q->heap[q->n]);
}

int64_t evq_when(EventQueue *q, uint32_t source, int64_t never)
{
    evq_settle(q);
    uint32_t place = place_of(q, source);
    return place > 0 ? q->heap[place - 1].at_ns : never;
}

Event evq_at(const EventQueue *q, uint32_t i)
{
    const EventSlot *s = &q->slot[slot_at(q, i)];
    return (Event){ q->heap[i].at_ns, q->heap[i].turn >> EVQ_SLOT_BITS, s->kind, s->a, s->b,
                    s->source };
}

bool evq_pop(EventQueue *q, Event *event)
{
    evq_settle(q);
    if (q->n == 0)
        return false;
    uint32_t slot = slot_at(q, 0);
    *event = evq_at(q, 0);
    q->place[slot] = 0;
    if (event->source == NONE_U32) {
        GROW(q->free_slot, q->free_n, q->free_cap);
        q->free_slot[q->free_n++] = slot;
    }
    q->top_is_free = true;
    return true;
}

void evq_free(EventQueue *q)
{
    free(q->heap);
    free(q->slot);
    free(q->place);
    free(q->free_slot);
    free(q->slot_of);
    *q = (EventQueue){ 0 };
}

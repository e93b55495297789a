/* evq.c - sift up, sift down; what is popped leaves its place to what is pushed next. */
#include "sim/evq.h"

#include <stdlib.h>
#include <string.h>

static bool earlier(const Event *a, const Event *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

static inline void put(EventQueue *q, uint32_t i, const Event *e)
{
    q->heap[i] = *e;
    if (e->source != NONE_U32)
        q->place[e->source] = i + 1;
}

/* Puts e, which is none of those below it, where it belongs, from the free place i on,
 * downwards. */
static void sift_down(EventQueue *q, uint32_t i, const Event *e)
{
    for (uint32_t child = 2 * i + 1; child < q->n; child = 2 * i + 1) {
        if (child + 1 < q->n && earlier(&q->heap[child + 1], &q->heap[child]))
            child++;
        if (!earlier(&q->heap[child], e))
            break;
        put(q, i, &q->heap[child]);
        i = child;
    }
    put(q, i, e);
}

/* And upwards, or downwards if it is not before the one above.  Nothing is before what has been
 * popped, so a free top stays where it is. */
static void sift(EventQueue *q, uint32_t i, const Event *e)
{
    if (i == 0 || !earlier(e, &q->heap[(i - 1) / 2])) {
        sift_down(q, i, e);
        return;
    }
    for (; i > 0 && earlier(e, &q->heap[(i - 1) / 2]); i = (i - 1) / 2)
        put(q, i, &q->heap[(i - 1) / 2]);
    put(q, i, e);
}

void evq_settle(EventQueue *q)
{
    if (!q->top_is_free)
        return;
    q->top_is_free = false;
    if (--q->n)
        sift_down(q, 0, &q->heap[q->n]);
}

static void insert(EventQueue *q, const Event *e)
{
    if (q->top_is_free) {
        q->top_is_free = false;
        sift_down(q, 0, e);
        return;
    }
    GROW(q->heap, q->n, q->cap);
    sift(q, q->n++, e);
}

void evq_push(EventQueue *q, int64_t at_ns, uint32_t kind, uint32_t a, uint32_t b)
{
    insert(q, &(Event){ at_ns, q->pushed++, kind, a, b, NONE_U32 });
}

static void make_room(EventQueue *q, uint32_t source)
{
    if (source < q->sources_n)
        return;
    uint32_t n = 2 * source + 64;
    q->place = mem_resize(q->place, n, sizeof *q->place);
    memset(q->place + q->sources_n, 0, (n - q->sources_n) * sizeof *q->place);
    q->sources_n = n;
}

void evq_set(EventQueue *q, uint32_t source, int64_t at_ns, uint32_t kind, uint32_t a)
{
    Event e = { at_ns, q->pushed++, kind, a, 0, source };
    make_room(q, source);
    if (q->place[source])
        sift(q, q->place[source] - 1, &e);
    else
        insert(q, &e);
}

void evq_cancel(EventQueue *q, uint32_t source)
{
    if (source >= q->sources_n || !q->place[source])
        return;
    uint32_t i = q->place[source] - 1;
    q->place[source] = 0;
    if (--q->n != i)
        sift(q, i, &q->heap[q->n]);
}

int64_t evq_when(EventQueue *q, uint32_t source, int64_t never)
{
    evq_settle(q);
    bool waits = source < q->sources_n && q->place[source];
    return waits ? q->heap[q->place[source] - 1].at_ns : never;
}

bool evq_pop(EventQueue *q, Event *event)
{
    evq_settle(q);
    if (q->n == 0)
        return false;
    *event = q->heap[0];
    if (event->source != NONE_U32)
        q->place[event->source] = 0;
    q->top_is_free = true;
    return true;
}

void evq_free(EventQueue *q)
{
    free(q->heap);
    free(q->place);
    *q = (EventQueue){ 0 };
}

/* evq.c - sift up, sift down; what is popped leaves its place to what is pushed next. */
#include "sim/evq.h"

#include <stdlib.h>

static bool earlier(const Event *a, const Event *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

/* Puts e where it belongs, from the free place i on, downwards. */
static void sift_down(EventQueue *q, uint32_t i, Event e)
{
    for (uint32_t child = 2 * i + 1; child < q->n; child = 2 * i + 1) {
        if (child + 1 < q->n && earlier(&q->heap[child + 1], &q->heap[child]))
            child++;
        if (!earlier(&q->heap[child], &e))
            break;
        q->heap[i] = q->heap[child];
        i = child;
    }
    q->heap[i] = e;
}

void evq_settle(EventQueue *q)
{
    if (!q->top_is_free)
        return;
    q->top_is_free = false;
    if (--q->n)
        sift_down(q, 0, q->heap[q->n]);
}

void evq_push(EventQueue *q, int64_t at_ns, uint32_t kind, uint32_t a, uint32_t b)
{
    Event e = { at_ns, q->pushed++, kind, a, b };
    if (q->top_is_free) {
        q->top_is_free = false;
        sift_down(q, 0, e);
        return;
    }
    GROW(q->heap, q->n, q->cap);
    uint32_t i = q->n++;
    for (; i > 0 && earlier(&e, &q->heap[(i - 1) / 2]); i = (i - 1) / 2)
        q->heap[i] = q->heap[(i - 1) / 2];
    q->heap[i] = e;
}

bool evq_pop(EventQueue *q, Event *event)
{
    evq_settle(q);
    if (q->n == 0)
        return false;
    *event = q->heap[0];
    q->top_is_free = true;
    return true;
}

void evq_free(EventQueue *q)
{
    free(q->heap);
    *q = (EventQueue){ 0 };
}

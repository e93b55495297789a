/* evq.c - sift up, sift down. */
#include "sim/evq.h"

#include <stdlib.h>

static bool earlier(const Event *a, const Event *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

void evq_push(EventQueue *q, int64_t at_ns, uint32_t kind, uint32_t a, uint32_t b)
{
    GROW(q->heap, q->n, q->cap);
    Event e = { at_ns, q->pushed++, kind, a, b };
    uint32_t i = q->n++;
    for (; i > 0 && earlier(&e, &q->heap[(i - 1) / 2]); i = (i - 1) / 2)
        q->heap[i] = q->heap[(i - 1) / 2];
    q->heap[i] = e;
}

bool evq_pop(EventQueue *q, Event *event)
{
    if (q->n == 0)
        return false;
    *event = q->heap[0];
    Event last = q->heap[--q->n];
    uint32_t i = 0;
    for (uint32_t child = 1; child < q->n; child = 2 * i + 1) {
        if (child + 1 < q->n && earlier(&q->heap[child + 1], &q->heap[child]))
            child++;
        if (!earlier(&q->heap[child], &last))
            break;
        q->heap[i] = q->heap[child];
        i = child;
    }
    if (q->n)
        q->heap[i] = last;
    return true;
}

void evq_free(EventQueue *q)
{
    free(q->heap);
    *q = (EventQueue){ 0 };
}

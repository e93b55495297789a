/*
 * compare_sweep.c - whose is each instant of a step?
 *
 *     compute   |matmul|   |norm|          matmul  norm
 *     comm          |==all_reduce==|       -> matmul | all_reduce | norm | all_reduce
 *
 * Compute that runs owns the instant, else communication, else a copy; of two of one
 * kind the one that stands first in the table of classes.  What is left is idle.
 */
#include "profile/compare_parts.h"

#include <stdlib.h>

typedef struct Edge {
    int64_t at_ns;
    int32_t class_;
    int32_t step; /* +1 begins, -1 ends */
} Edge;

static int compare_edges(const void *x, const void *y)
{
    const Edge *p = x, *q = y;
    if (p->at_ns != q->at_ns)
        return p->at_ns < q->at_ns ? -1 : 1;
    return 0; /* at one instant nothing passes: the order does not matter */
}

static OpClass owner_of(const int32_t running[CLASS_N])
{
    for (OpClass k = 0; k < CLASS_IDLE; k++)
        if (running[k] > 0)
            return k;
    return CLASS_IDLE;
}

static size_t put_edges(Edge *edges, size_t n, const SideRank *r, const SideOp *o)
{
    for (uint32_t i = 0; i < o->pieces_n; i++) {
        const SidePiece *piece = &r->pieces[o->piece_first + i];
        int64_t begin = max_i64(piece->start_ns, 0);
        int64_t end = min_i64(piece->start_ns + piece->dur_ns, r->length_ns);
        if (begin >= end)
            continue;
        edges[n++] = (Edge){ begin, (int32_t)o->class_, 1 };
        edges[n++] = (Edge){ end, (int32_t)o->class_, -1 };
    }
    return n;
}

void compare_sweep(const SideRank *r, int64_t own_ns[CLASS_N])
{
    Edge *edges = mem_zero(2 * (size_t)r->pieces_n + 1, sizeof *edges);
    int32_t running[CLASS_N] = { 0 };
    size_t n = 0;
    for (uint32_t i = 0; i < r->ops_n; i++)
        n = put_edges(edges, n, r, &r->ops[i]);
    qsort(edges, n, sizeof *edges, compare_edges);
    int64_t at_ns = 0;
    for (size_t i = 0; i < n; i++) {
        own_ns[owner_of(running)] += edges[i].at_ns - at_ns;
        at_ns = edges[i].at_ns;
        running[edges[i].class_] += edges[i].step;
    }
    own_ns[CLASS_IDLE] += r->length_ns - at_ns;
    free(edges);
}

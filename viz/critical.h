/*
 * critical.h - the chain of events that a step's end hangs on.
 *
 * From the end back: what was the last thing an event had to wait for?  Candidates are the
 * event before it on its stream, its launch, for a collective the last rank to arrive, for
 * a receive its send, and, where none of those ends shortly before it, whatever on its rank
 * ended last before it began (an event or stream wait that traces do not show: inferred).
 *
 *     rank 0  |gemm|gemm|.....|== all-reduce |opt|        . waits for rank 1
 *     rank 1  |gemm  |gemm    |== all-reduce |            the path: rank 1's gemms, the
 *             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^         transfer, rank 0's opt
 *
 * Pieces of the path do not overlap and cover the step from its end to its begin: what no
 * event covers is idle.
 */
#ifndef LOCKSTEP_VIZ_CRITICAL_H
#define LOCKSTEP_VIZ_CRITICAL_H

#include "viz/view.h"

typedef enum PathKind {
    PATH_COMPUTE,
    PATH_TRANSFER, /* communication, without its wait */
    PATH_MEMORY,
    PATH_LAUNCH, /* between launch and kernel: the host was late */
    PATH_IDLE,   /* nothing that the trace shows */
    PATH_KINDS_N
} PathKind;

extern const char *const path_kind_names[PATH_KINDS_N];

typedef struct PathPiece {
    PathKind kind;
    bool inferred;          /* the trace does not say that this had to come first */
    uint32_t rank;          /* index */
    ViewPlace place;        /* row NONE_U32 for idle */
    int64_t from_ns, to_ns; /* time of the view */
} PathPiece;

typedef struct CriticalPath {
    PathPiece *pieces; /* from the end back */
    uint32_t n, cap;
    int64_t ns[PATH_KINDS_N]; /* sums; together to_ns - from_ns */
    int64_t from_ns, to_ns;   /* time of the view */
} CriticalPath;

/* Of a window of the view, on the side shown: the path to the last event that ends in it. */
void critical_find(CriticalPath *c, const View *v, int64_t from_ns, int64_t to_ns);
void critical_free(CriticalPath *c);

#endif

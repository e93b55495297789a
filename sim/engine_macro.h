/*
 * engine_macro.h - what an instance is when it is one event: the times of its ops, alone on the
 * GPU or beside a few flows of others.  Only the engine's files include this.
 */
#ifndef LOCKSTEP_SIM_ENGINE_MACRO_H
#define LOCKSTEP_SIM_ENGINE_MACRO_H

#include "sim/classes.h"
#include "sim/network.h"

/* When a transfer of a macro is on which links. */
typedef struct MacroComm {
    int64_t start_ns, end_ns;
    uint32_t links; /* bit per ResourceKind of its rank */
    uint32_t op;    /* of its segment */
    uint32_t stat;  /* its CollectiveStat; NONE_U32: not booked yet */
    double wire_bytes;
    const CommCost *cost;
    /* Where transfers of its macro share links, by interval from into_first on, and to the end of
     * its last: so much of what it takes alone is done.  NULL: it always goes as if alone. */
    const double *into;
    uint32_t into_first;
} MacroComm;

typedef enum MacroState { MACRO_UNKNOWN, MACRO_NO, MACRO_YES } MacroState;

enum { BESIDE_MOST = 3 };

/* Flows of others that move on links of a macro (engine_beside.c): how fast, and by ResourceKind of
 * its rank what they take of the link for that (Use.coefficient; 0: they are not on it). */
typedef struct BesideFlow {
    double rate, takes[RES_RANK_N];
} BesideFlow;

typedef struct Beside {
    uint32_t n, links; /* links: bit per kind that one is on */
    BesideFlow flow[BESIDE_MOST];
} Beside;

/* Macros of the same ops, each beside other flows. */
typedef struct BesideList {
    struct Macro *first;
    uint32_t n;
} BesideList;

/* Ops [first, end) of a segment, by their index in it. */
typedef struct Stretch {
    uint32_t segment, first, end;
} Stretch;

/* A segment, or a stretch of one, as one event: its ops timed once, alone on the GPU.  Between two
 * instants at which an op begins or ends nothing changes: interval i is [alone_at[i],
 * alone_at[i + 1]). */
typedef struct Macro {
    MacroState state;
    bool has_comm;
    uint32_t run_n;       /* a run (engine_run.c) of so many ops; 0: a whole instance */
    uint32_t parts_n;     /* a chain (engine_chain.c) of so many instances; 0: of one */
    struct Macro **parts; /* of a chain: their macros, and when each begins (and the end) */
    int64_t *part_at;
    uint32_t *begin_at, *end_at; /* of a stretch (engine_stretch.c), by lane: ops of the segment
                                    before it, and up to its end; NULL: of a whole instance */
    uint32_t end_op;             /* of a stretch: the op of the segment behind it */
    uint32_t lanes;              /* bit per lane its ops are on */
    uint32_t links;              /* bit per ResourceKind of its rank that its transfers use */
    int64_t *start_ns, *end_ns;  /* by op of the segment */
    int64_t *exposed_ns;         /* of a transfer: without compute beside it */
    uint32_t intervals_n;
    int64_t *alone_at,
        *slow_at; /* intervals_n + 1; slow_at: with a transfer beside it throughout */
    int64_t *compute_at, *comm_at; /* time so far with compute, with communication of its own */
    int64_t *path_at;              /* what of the longest chain so far is communication */
    int64_t *path_ns;              /* by op of the segment: and of that to its beginning */
    uint32_t comms_n;
    MacroComm *comms; /* by their ops */
    int64_t first_ns; /* the first of them begins */
    /* Start of the instance's launching + lag <= start: the host is never late. */
    int64_t lag_ns;
    /* Beside flows of others (engine_beside.c); not of a run or a chain. */
    Stretch of;
    BesideList *beside; /* of these ops, for all ranks whose macros are the same */
    struct Macro *next; /* in that list */
    uint32_t number;    /* in that list; 0: alone */
    const Beside *by;   /* NULL: alone */
    bool slows;         /* what it is beside, by lost_at[i] bytes up to interval i */
    double *lost_at;
} Macro;

/* A position on all running sums: part of the way through interval `low`. */
typedef struct MacroPlace {
    uint32_t low;
    double part;
} MacroPlace;

/* x, a position on the sum `from`, as one on `to`. */
double macro_map(const Macro *m, const int64_t *from, const int64_t *to, double x);
/* near: an interval that it is probably in, or shortly behind. */
MacroPlace macro_place(const Macro *m, const int64_t *from, double x, uint32_t near);
static inline double macro_sum(const MacroPlace *p, const int64_t *sum)
{
    return (double)sum[p->low] + p->part * (double)(sum[p->low + 1] - sum[p->low]);
}

#endif

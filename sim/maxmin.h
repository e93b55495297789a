/*
 * maxmin.h - fair rates of flows that share links.
 *
 * Flow f moves rate[f] bytes/ns and takes coefficient * rate[f] of every link it
 * uses.  Rates are max-min fair: nobody can get more without taking from one who
 * has no more than he.  Equivalently, every flow has a full link on which nobody
 * has a higher rate, or has all that it can take (its cap).  Computed by filling:
 * raise all rates together until a link is full or a flow has enough, freeze the
 * flows on it, or that flow, go on with the rest.
 *
 *     link X, 10 bytes/ns:  a b        a = 2, b = 8; with a cap of 5 on b: 5
 *     link Y,  4 bytes/ns:  a c        c = 2
 */
#ifndef LOCKSTEP_SIM_MAXMIN_H
#define LOCKSTEP_SIM_MAXMIN_H

#include "sim/classes.h"

typedef struct Demand {
    const Use *uses;
    uint32_t uses_n;
    double cap; /* bytes/ns; 0: as much as its links give */
} Demand;

/* Working space for networks of resources_n links, out of an arena that outlives it. */
typedef struct MaxminSpace {
    Arena *arena;
    struct MaxminLink *link;
    uint32_t *touched;
    double *share; /* of what is left of a touched link, for each flow that is left there */
    uint32_t users_cap;
    struct MaxminUser *users;
} MaxminSpace;

void maxmin_space(MaxminSpace *space, uint32_t resources_n, Arena *arena);

/* A flow without links gets an infinite rate. */
void maxmin_rates(double *rate, const Demand *flow, uint32_t flows_n, const Resource *resource,
                  MaxminSpace *space);

/* Rate of a flow that has all its links to itself; and of one of the groups it stands for. */
double maxmin_solo(const Demand *flow, const Resource *resource);
double maxmin_own(const Demand *flow, const Resource *resource);

#endif

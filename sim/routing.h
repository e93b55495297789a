/*
 * routing.h - in how many places the experts are that a token visits.
 *
 *     experts    |0 1 2 3|4 5 6 7|8 9 . .|. . . .|     4 parts, on as many ranks, or nodes
 *     a token       *     * *             *            4 experts, in 3 of the parts
 *
 * Every choice of experts is equally likely; where the model limits it (group-limited routing,
 * arXiv 2412.19437 section 2.1.2), every choice of groups is, and of experts within them.
 */
#ifndef LOCKSTEP_SIM_ROUTING_H
#define LOCKSTEP_SIM_ROUTING_H

#include "sim/model.h"

typedef struct Routing {
    uint32_t experts, chosen;       /* a token visits `chosen` different ones */
    uint32_t groups, groups_chosen; /* all in so many of the groups; 0 or 1 groups: anywhere */
} Routing;

/*
 * Of `parts` equal runs of experts, in how many those of a token are: the mean, from 1 to the
 * smaller of parts and chosen.  What experts are not in is missed with probability
 * C(n - s, k) / C(n, k): s of n experts, k chosen.
 * Groups that cut across the parts (6 parts of 8 groups) are taken for no limit.
 */
double routing_parts(const Routing *r, uint32_t parts);

Routing routing_of(const Transformer *t);

#endif

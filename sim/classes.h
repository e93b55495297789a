/*
 * classes.h - ranks that cannot be told apart are simulated once.
 *
 * Ranks fall into classes by partition refinement (colour refinement on the
 * graph of ranks, groups and links): two ranks share a class when they run the
 * same role on the same GPU at the same speed, sit alike on their links, and
 * their groups and links hold the same classes in the same numbers.  Ranks that
 * one host drives (Graph.host_group) differ by their place in its order.
 *
 *     dp 2 x tp 2, rank 3 slow          dp groups {0,2} {1,3}, tp groups {0,1} {2,3}
 *     start    0 1 2 | 3
 *     refined  0 | 1 | 2 | 3            2 shares a tp group with 3, 1 a dp group, 0 neither
 *
 * The partition is equitable: every link of a link class is used by equally many
 * groups of each group class.  So a collective of a group class loads a link
 * class with coefficient = (sum over the groups on one such link of their part),
 * and fair shares in the quotient are the shares in the whole.
 *
 * Replicas.  Shifting the data-parallel coordinate by k maps a uniform machine
 * onto itself when k steps are whole nodes and leaves, and the graph when groups
 * go over into groups (those over a part of the coordinates need a k that is a
 * multiple of the part).  Then only coordinates < k are looked at, so the cost
 * does not grow with data parallelism.
 */
#ifndef LOCKSTEP_SIM_CLASSES_H
#define LOCKSTEP_SIM_CLASSES_H

#include "core/arena.h"
#include "core/graph.h"
#include "core/machine.h"

/* Links.  Those before RES_RANK_N are touched by a rank; RES_LINK is a slow pair. */
typedef enum ResourceKind {
    RES_PORT_OUT, /* GPU to its node's switch */
    RES_PORT_IN,
    RES_NIC_OUT, /* the NIC, or bundle of NICs, that serves the GPU */
    RES_NIC_IN,
    RES_LEAF_UP, /* uplinks of an oversubscribed leaf */
    RES_LEAF_DOWN,
    RES_RING_OUT, /* those of a node's NICs that its rings share: Software.ring_nics */
    RES_RING_IN,
    RES_RANK_N,
    RES_LINK = RES_RANK_N
} ResourceKind;

typedef struct Resource {
    ResourceKind kind;
    double bytes_per_ns; /* link rate; what flows do not reach of it is in their coefficients */
} Resource;

/* A flow's demand on a link: what it takes of the link's rate per byte of the flow, that is
 * bytes that cross it, divided by the efficiency that such flows reach. */
typedef struct Use {
    uint32_t resource;
    double coefficient; /* of all groups (or pairs) of the class on one such link */
    double own;         /* of a single one: what NCCL sees when it chooses an algorithm */
    double crossing; /* bytes that cross it, of all of them: coefficient without efficiency */
} Use;

typedef struct RankClass {
    uint32_t rank, ranks_n; /* the lowest rank, and how many */
    uint32_t role;
    Place place;
    double speed;
    uint32_t resource[RES_RANK_N]; /* NONE_U32: there is none */
    uint32_t share[RES_RANK_N];    /* ranks of this class on one such link */
    uint32_t *group;               /* by GroupSpec: its group class, NONE_U32 if not a member */
} RankClass;

typedef struct GroupClass {
    uint32_t base; /* lowest member of the representative */
    uint32_t size, nodes_n;
    uint32_t on_node; /* the fewest members that one of the nodes has */
    double sent_once; /* of its GroupSpec */
    uint32_t members_n;
    uint32_t *member; /* rank classes, distinct, ascending */
    uint32_t uses_n;
    Use *uses; /* of a ring through all members, per byte that a rank passes on */
    uint32_t pair_uses_n;
    Use *pair_uses; /* when each sends to every other, per byte that it sends to all */
    /* Of its nodes; of several kinds the slowest of each (classes_links.c). */
    const NodeType *type;
} GroupClass;

typedef struct Classes {
    Arena arena;
    const Machine *machine;
    uint32_t ranks_n, groups_n, resources_n;
    RankClass *ranks;
    GroupClass *groups;
    Resource *resources;
    /* rank -> class */
    uint32_t replica_stride, replica_extent, replica_kept;
    uint32_t *class_of; /* by kept index */
} Classes;

/*
 * ring_nics: Software.ring_nics.  expand: every rank a class of its own.  Fails with a
 * sentence where the machine cannot carry the graph (groups across nodes without a network ...).
 */
bool classes_make(Classes *c, const Graph *g, const Machine *m, uint32_t ring_nics, bool expand,
                  Err *err);
void classes_free(Classes *c);

uint32_t classes_of_rank(const Classes *c, uint32_t rank);

/*
 * Links used by a transfer from a rank of class a to its peer rank (given for
 * a's representative) of class b.  uses must hold RES_RANK_N + 2 entries; returns
 * how many are filled.
 */
uint32_t classes_p2p_uses(const Classes *c, uint32_t a, uint32_t peer_rank, Use *uses);

#endif

/*
 * classes_parts.h - what the files of classes.h share; only classes*.c include it.
 */
#ifndef LOCKSTEP_SIM_CLASSES_PARTS_H
#define LOCKSTEP_SIM_CLASSES_PARTS_H

#include "sim/classes.h"

enum { LINKS_N = RES_RANK_N / 2 }; /* out and in, or up and down, go together */

/* How one rank's group of one spec lies on the machine around that rank. */
typedef struct Shape {
    uint32_t size, nodes_n, leaves_n;
    uint32_t on_node;     /* members on this rank's node */
    uint32_t nics_n;      /* NIC bundles that members use on this node */
    uint32_t nic_sharers; /* members on this rank's bundle */
    uint32_t in_leaf;     /* members below this rank's leaf */
} Shape;

typedef struct Fold {
    Classes *c;
    const Graph *g;
    const Machine *m;
    uint32_t ring_nics;
    Arena scratch;
    uint32_t n;     /* kept ranks */
    uint32_t *rank; /* by kept index */
    Place *place;
    uint32_t *id[LINKS_N]; /* port, NIC bundle, leaf, ring NICs of each kept rank; NONE_U32 */
    uint32_t ids_n[LINKS_N];
    Shape *shape;   /* [spec * n + i] */
    uint32_t *base; /* [spec * n + i]: kept index of the group's base, NONE_U32 if no member */
    uint64_t *color, *next, *sum;
    /* Open addressing: 1 + the kept index that brought a colour first; 0: free. */
    uint32_t *seen, seen_mask;
} Fold;

/* ---- links of a rank ---- */

static inline uint32_t fold_bundles_per_node(const Machine *m, const NodeType *t)
{
    uint32_t nics = m->inter.kind == INTER_NONE ? 0 : m->inter.nics_per_node;
    return nics < t->gpus_n ? nics : t->gpus_n;
}

/* Do the rings of such a node share some of its NICs? */
static inline bool fold_rings_share(const Fold *f, const NodeType *t)
{
    uint32_t nics = fold_bundles_per_node(f->m, t);
    return f->ring_nics > 0 && f->ring_nics < nics && nics < t->gpus_n;
}

/* ---- groups ---- */

typedef struct MemberList {
    uint32_t *start,
        *member; /* members of the group with base b: member[start[b] .. start[b + 1]) */
} MemberList;

MemberList fold_members(Fold *f, uint32_t spec);

/* classes_links.c: the links of rank classes, then what groups of them ask of those. */
void fold_make_resources(Fold *f);
void fold_make_groups(Fold *f);

#endif

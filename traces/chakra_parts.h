/*
 * chakra_parts.h - nodes of a Chakra trace as both of its forms give them; nobody else
 * includes it.
 */
#ifndef LOCKSTEP_TRACES_CHAKRA_PARTS_H
#define LOCKSTEP_TRACES_CHAKRA_PARTS_H

#include "traces/chakra.h"

typedef enum ChakraType {
    CHAKRA_INVALID,
    CHAKRA_METADATA,
    CHAKRA_MEM_LOAD,
    CHAKRA_MEM_STORE,
    CHAKRA_COMP,
    CHAKRA_SEND,
    CHAKRA_RECV,
    CHAKRA_COLL,
    CHAKRA_TYPE_N
} ChakraType;

#define CHAKRA_US_MAX ((uint64_t)1 << 49) /* 17 years; sums stay in a timeline's range */

typedef struct ChakraNode {
    uint64_t id;
    ChakraType type;
    bool on_cpu, has_start, has_duration;
    uint64_t start_us, duration_us;
    int64_t lane;       /* tid or stream */
    uint32_t name;      /* interned */
    uint32_t group;     /* interned, or NONE_U32 */
    uint32_t comm_type; /* CollectiveCommType, or NONE_U32 */
    uint32_t src, dst;  /* NONE_U32 */
    uint64_t bytes;     /* NONE_U64 */
    uint64_t dep_first, dep_n;
} ChakraNode;

/* Control: a parent or what was launched before.  Data: its results are needed. */
typedef struct ChakraDep {
    uint64_t node; /* id, later index; NONE_U64 where there is no such node */
    bool control;
} ChakraDep;

/* Dependencies stand in one list, in the order of the nodes. */
typedef struct ChakraNodes {
    ChakraNode *node;
    ChakraDep *dep;
    uint64_t n, cap, deps_n, deps_cap;
    Interner *names; /* of the timeline */
} ChakraNodes;

/* A node with nothing known; valid until the next one. */
ChakraNode *chakra_node(ChakraNodes *nodes);
void chakra_dep(ChakraNodes *nodes, uint64_t id, bool control); /* of the newest node */
/* An attribute whose value is a number, by its name; unknown ones are skipped. */
void chakra_attribute(ChakraNode *node, const char *name, size_t n, uint64_t value);

bool chakra_decode(ChakraNodes *nodes, const uint8_t *bytes, uint64_t n, const char *file,
                   Err *err);
bool chakra_parse(ChakraNodes *nodes, const uint8_t *bytes, uint64_t n, const char *file,
                  Err *err);

#endif

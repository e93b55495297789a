/*
 * compare_parts.h - what the files of compare share; only compare*.c include it.
 *
 * A Side is one timeline cut down to what is compared: of each rank the GPU work of
 * one step, by start, with times since the step's start.
 */
#ifndef LOCKSTEP_PROFILE_COMPARE_PARTS_H
#define LOCKSTEP_PROFILE_COMPARE_PARTS_H

#include "profile/compare.h"

typedef enum OpClass {
    CLASS_MATMUL,
    CLASS_ATTENTION,
    CLASS_CONVOLUTION,
    CLASS_NORM,
    CLASS_SOFTMAX,
    CLASS_ELEMENTWISE,
    CLASS_EMBEDDING,
    CLASS_LOSS,
    CLASS_POOL,
    CLASS_OPTIMIZER,
    CLASS_REDUCTION,
    CLASS_OTHER,
    CLASS_ALL_REDUCE, /* from here on communication */
    CLASS_ALL_GATHER,
    CLASS_REDUCE_SCATTER,
    CLASS_BROADCAST,
    CLASS_REDUCE,
    CLASS_ALL_TO_ALL,
    CLASS_SEND,
    CLASS_RECV,
    CLASS_COMM_OTHER,
    CLASS_MEMORY,
    CLASS_IDLE, /* no op has it */
    CLASS_N
} OpClass;

extern const char *const compare_class_names[CLASS_N];

static inline bool class_is_comm(OpClass k)
{
    return k >= CLASS_ALL_REDUCE && k <= CLASS_COMM_OTHER;
}

/* A clearing of memory or a sum over rows may belong to an op of any class. */
static inline bool class_is_telling(OpClass k)
{
    return k != CLASS_OTHER && k != CLASS_REDUCTION && k != CLASS_MEMORY;
}

/* Of a kernel by what a graph calls its op, where that is known, else by its own name. */
OpClass compare_class_of(const Timeline *t, uint64_t span);

/* When one kernel ran, since the step's start. */
typedef struct SidePiece {
    int64_t start_ns, dur_ns;
    uint64_t span;
} SidePiece;

/* Kernels of one op id that follow one another on a track are one op; without an id each is.  So
 * are those that make up a pair by logical op (compare_logical.c). */
typedef struct SideOp {
    int64_t start_ns, end_ns; /* since the step's start: of its first kernel, of its last */
    int64_t dur_ns;           /* sum over its kernels */
    int64_t longest_ns;       /* of the kernel that span is */
    uint64_t span;            /* of the timeline: of several the longest that says a class */
    const char *name;         /* of that span */
    uint32_t op;              /* op id, or NONE_U32 */
    OpClass class_;           /* of the first kernel that says one, class_is_telling */
    uint32_t classes;         /* of all its kernels that say one: bit OpClass of each */
    uint32_t piece_first, pieces_n;
    uint64_t bytes; /* of communication; NONE_U64 unknown */
    uint64_t exact; /* key of what it is, the same on both sides */
    uint64_t named; /* key of what a graph calls it, where that is known; else exact */
    LogicalOps logical;
    bool absent;   /* the other side's stack does no such thing: it is no op's twin */
    uint32_t twin; /* op of the other side's rank, or NONE_U32 */
} SideOp;

typedef struct SideRank {
    uint32_t rank, ranks_n;
    int64_t begin_ns, length_ns; /* of the step */
    SideOp *ops;
    uint32_t ops_n;
    SidePiece *pieces; /* of all ops */
    uint32_t pieces_n;
    uint64_t signature; /* equal for ranks that do the same */
} SideRank;

typedef struct Side {
    const Timeline *t;
    const char *name;
    int64_t step; /* -1: none is marked */
    uint32_t steps_n, ranks_n;
    SideRank *ranks; /* ascending */
} Side;

/* Picks the step and collects its ops; everything lives in arena. */
bool side_open(Side *s, const Timeline *t, const char *name, int64_t step, Arena *arena,
               Err *err);

/*
 * Sets twin on both.  By op id twins have one class, that of the op's name; by logical op too, and
 * the sides are others then, in arena, whose ops are joined.
 */
ComparePaired compare_match(SideRank *side[COMPARE_SIDES], Arena *arena);
/* Pairs what has logical ops in common; false: nothing has, and the sides stay as they are. */
bool compare_join(SideRank *side[COMPARE_SIDES], Arena *arena);

/* What each class has of the instants of a rank's step; sums to it. */
void compare_sweep(const SideRank *r, int64_t own_ns[CLASS_N]);

/* Ops by name: pairs, and those of one side; filled rank by rank. */
typedef struct RowList {
    CompareOp *rows;
    size_t n, cap;
} RowList;

typedef struct OpLists {
    RowList both, only[COMPARE_SIDES];
} OpLists;

void compare_list_rank(OpLists *l, const CompareRank *r, const SideRank *sim,
                       const SideRank *real);
/* Moves the lists into c, and frees them. */
void compare_list_end(Comparison *c, OpLists *l);

/* Where the two part, as they are paired now. */
void compare_drift(Comparison *c, uint32_t rank, const SideRank *sim, const SideRank *real);

#endif

/*
 * cuda_comm_moves.h - a collective among ranks that share one memory, as copies and sums.
 *
 *     calls of all members --moves_make--> moves in phases
 *
 * A move is one kernel: it reads from some members' memory and writes to its own
 * member's.  Moves of one phase may run at once, in any order; a phase begins on a
 * member when the one before has ended on those it has to do with.
 *
 *     direct   phase 0: member i sums block i of all, in the order of the members;
 *              phase 1: everybody copies the other blocks
 *     ring     a phase is a step of core/patterns/ring.h: everybody takes one block from
 *              its left neighbour, and adds its own to it, or copies it
 *
 * What goes where, and that direct sums have the bits of the CPU's, stands in
 * exec/fabric.h.  A reduce-scatter with an `out` is always direct: round a ring it
 * would need memory for partial sums.
 */
#ifndef LOCKSTEP_EXEC_CUDA_COMM_MOVES_H
#define LOCKSTEP_EXEC_CUDA_COMM_MOVES_H

#include "exec/fabric.h"

enum { MOVE_SOURCES_MAX = 64 /* ranks of one group in one process */ };

typedef enum MoveAction { MOVE_COPY, MOVE_SUM, MOVE_MAX } MoveAction;

/* A place in a member's arena. */
typedef struct Place {
    uint32_t member;
    uint64_t offset; /* bytes */
} Place;

typedef struct Move {
    uint32_t phase;
    MoveAction action;
    DType dtype;
    uint64_t elements; /* not 0 */
    Place to;
    uint32_t from_first, from_n; /* sums are taken in this order, in f32 */
} Move;

typedef struct Moves {
    bool ring; /* members have to do with their neighbours only, else with all */
    uint32_t phases_n, moves_n, from_n, moves_cap, from_cap;
    Move *moves; /* ascending phase, then member */
    Place *from;
} Moves;

/* calls[i] is member i's.  Replaces what x holds, keeps its memory; zeroed at first.  False and a
 * sentence when the calls do not fit together. */
bool moves_make(Moves *x, const CommCall *const *calls, bool rings, Err *err);
/* From the sender (member 0) to the receiver (member 1), whose lists may be cut differently. */
bool moves_send(Moves *x, const CommCall *send, const CommCall *recv, Err *err);
void moves_free(Moves *x);

#endif

/*
 * space.h - memory handed out by first fit, each free piece with who touched it last.
 *
 *     free pieces     |##|  a  |####| b |  c  |######|  fresh ...
 *
 * Pieces that lie side by side are taken together, also when their histories
 * differ: whoever takes them must come after all of them.  A taker may refuse a
 * piece (it could not wait for that history without a deadlock); then the search
 * goes on behind it.  Behind the last piece all is fresh.
 *
 * A history is, by lane, how many tasks of that lane must be done.
 */
#ifndef LOCKSTEP_EXEC_SPACE_H
#define LOCKSTEP_EXEC_SPACE_H

#include "core/graph.h"

enum { SPACE_ALIGN_BYTES = 64 };

typedef struct Touched {
    uint32_t done[LANE_N];
} Touched;

typedef struct FreePiece {
    uint64_t offset, bytes;
    Touched touched;
} FreePiece;

typedef struct Space {
    uint32_t pieces_n, pieces_cap;
    FreePiece *pieces;  /* ascending, none overlap */
    uint64_t end_bytes; /* all that was ever handed out lies before */
} Space;

typedef bool SpaceMay(void *user, const Touched *touched);

/* What so many bytes take up: a multiple of the alignment, never nothing. */
uint64_t space_round(uint64_t bytes);

/* The lowest place for `bytes` whose pieces `may` be used; *touched is raised to their
 * histories. */
uint64_t space_take(Space *s, uint64_t bytes, SpaceMay *may, void *user, Touched *touched);
void space_give(Space *s, uint64_t offset, uint64_t bytes, const Touched *touched);
void space_free(Space *s);

/* a: the later of both, lane by lane. */
void touched_merge(Touched *a, const Touched *b);

#endif

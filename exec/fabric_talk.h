/*
 * fabric_talk.h - a collective over lines: its members, one stream to each, and the
 * elements of one member's shard as runs of memory.
 */
#ifndef LOCKSTEP_EXEC_FABRIC_TALK_H
#define LOCKSTEP_EXEC_FABRIC_TALK_H

#include "exec/fabric_parts.h"

typedef struct Talk {
    Fabric *f;
    CommCall *c;
    uint32_t n;      /* members */
    Stream *streams; /* [n]; the own one is unused */
} Talk;

/* Forgets what the streams were to carry. */
void talk_clear(Talk *t);
bool talk_run(Talk *t, Err *err);

/*
 * Elements [first, end) of member i's shards of all pieces, one shard after another: walked
 * run by run.
 */
typedef struct Run {
    uint32_t k;        /* piece */
    uint64_t at, n;    /* elements within the piece */
    uint64_t in_shard; /* of them, before `at` in the shard */
    uint64_t bytes;
    DType dtype;
} Run;

typedef struct Walk {
    const Talk *t;
    uint32_t member, k;
    uint64_t first, end, before; /* before: elements of the shards of earlier pieces */
} Walk;

Walk walk_shards(const Talk *t, uint32_t member, uint64_t first, uint64_t end);
bool walk_next(Walk *w, Run *run);
uint64_t shard_elements(const Talk *t, uint32_t member);

/* Where a run lies in this rank's `in`, or in `out` if there is one. */
uint8_t *run_in(const Talk *t, const Run *r);
uint8_t *run_out(const Talk *t, const Run *r);
/* Where the sum of a run of the own shard goes. */
uint8_t *run_sum(const Talk *t, const Run *r);

/* all_gather with `out`: the own shard goes to its place there. */
void talk_place_own(const Talk *t);

/* Runs in a buffer begin at multiples of 8. */
static inline uint64_t run_room(const Run *r)
{
    return (r->bytes + 7) / 8 * 8;
}

bool ring_collective(Talk *t, Err *err);

#endif

/*
 * launches.h - when what has an id was launched.
 *
 * Ids (of correlation, of ops) are close together in most traces: then a plain array
 * holds the times, else a hash table.  Launches l = { 0 } is empty.
 */
#ifndef LOCKSTEP_PROFILE_LAUNCHES_H
#define LOCKSTEP_PROFILE_LAUNCHES_H

#include "core/base.h"

#define LAUNCH_UNKNOWN INT64_MIN

typedef struct Launches {
    uint64_t low, n; /* ids from low on */
    int64_t *dense_ns;
    uint64_t *key; /* otherwise open addressing, NONE_U64 free */
    int64_t *ns;
    uint64_t slots_n;
} Launches;

/* Room for count ids, all of them from low to high; none for count 0. */
void launches_open(Launches *l, uint64_t low, uint64_t high, uint64_t count);
void launches_free(Launches *l);

/* Where the time of one of these ids stands; LAUNCH_UNKNOWN at first. */
int64_t *launches_at(Launches *l, uint64_t id);
/* Of any id, NONE_U64 too; LAUNCH_UNKNOWN for those that were not put. */
int64_t launches_get(const Launches *l, uint64_t id);

static inline bool launches_any(const Launches *l)
{
    return l->dense_ns || l->key;
}

#endif

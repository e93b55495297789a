/*
 * cmd_run_model.h - which model it is that a snapshot holds: for programs, and for people.
 *
 * The digest is of what decides whether numbers can be gone on with: what the model computes, every
 * parameter by name and shape, and what updates it.  The text begins with it; the keys of the
 * scenario that follow say what differs where two digests do.
 */
#ifndef LOCKSTEP_EXEC_CMD_RUN_MODEL_H
#define LOCKSTEP_EXEC_CMD_RUN_MODEL_H

#include <string.h>

#include "core/arena.h"
#include "exec/whole.h"

struct Scenario; /* sim/scenario.h */

static inline uint64_t hash_text(uint64_t h, const char *text)
{
    for (; *text; text++)
        h = mix_u64(h ^ (uint64_t)(unsigned char)*text);
    return mix_u64(h);
}

static inline uint64_t hash_number(uint64_t h, double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return mix_u64(h ^ bits);
}

uint64_t run_model_digest(const struct Scenario *s, const WholeList *whole);
/* SnapshotInfo.model. */
const char *run_model_text(Arena *arena, const struct Scenario *s, const WholeList *whole);

#endif

/*
 * calls.h - the transfers of a program, as a fabric or communicator takes them.
 *
 *     task (op, arguments) --calls_make--> CommCall: which parts of the arena, with whom
 *
 * Made once per program.  Where several ranks' data lie in one tensor (DataParallel's
 * batch on device 0), a send takes, and a receive fills, the part of its peer: the
 * tensor then holds as many messages as the group has members, or one less when this
 * rank's own is not among them.
 *
 * STAGING.  A staged transfer (program.h) works on its staging buffer.  Into it, before
 * an all-gather, and out of it, behind a reduce-scatter, goes the rectangle that
 * calls_staged gives for each tensor: `rows` times `row_bytes`, `pitch_bytes` apart in the
 * tensor and `buffer_pitch_bytes` in the buffer.
 */
#ifndef LOCKSTEP_EXEC_CALLS_H
#define LOCKSTEP_EXEC_CALLS_H

#include "exec/fabric.h"
#include "exec/program.h"

typedef struct CommCalls {
    uint32_t *of; /* by task: index into calls; NONE_U32: no transfer */
    uint32_t calls_n, parts_n;
    CommCall *calls;
    Part *parts;
} CommCalls;

/* The program must outlive it.  False and a sentence when a task transfers nothing, or what
 * does not fit its tensor. */
bool calls_make(CommCalls *x, const Program *p, Err *err);
void calls_free(CommCalls *x);

/* Of tasks [task, task + program_posted_n). */
static inline CommCall *calls_of(const CommCalls *x, uint32_t task)
{
    return x->calls + x->of[task];
}

typedef struct StagedCopy {
    uint64_t tensor_offset, buffer_offset; /* in the arena */
    uint64_t rows, row_bytes, pitch_bytes, buffer_pitch_bytes;
    bool before; /* tensor to buffer before the transfer; else buffer to tensor behind it */
} StagedCopy;

/* The i-th rectangle of this task; false: it has no more. */
bool calls_staged(const Program *p, const Task *t, uint32_t i, StagedCopy *copy);
/* Copies all of them, where the arena is in the host's memory: before the transfer, or behind. */
void calls_stage(const Program *p, const Task *t, uint8_t *arena, bool before);

#endif

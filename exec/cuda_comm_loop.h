/*
 * cuda_comm_loop.h - transfers among ranks that are threads of one process on one GPU.
 *
 *     thread of a rank's lane           the last one to come
 *     -----------------------           --------------------
 *     records "ready" on its stream
 *     posts its call, sleeps            plans the moves, queues them on everybody's streams
 *     goes on                           wakes the others
 *
 * Nothing on the device ever waits for something that is not yet queued: a stream
 * waits for events only that have been recorded before.  So whatever the host's order
 * of calls allows, the device does, and it cannot hang; and as lanes have threads of
 * their own, the host's order allows what the fabric's does (exec/fabric.h).
 *
 * MATCHING.  The n-th collective of a group on a lane meets the n-th of the others;
 * the n-th send from a to b with a tag meets the n-th such receive.
 *
 * What queues is a LoopDevice: CUDA in the plugin, and in tests a machine of queues
 * that runs them in any order which the events allow.
 */
#ifndef LOCKSTEP_EXEC_CUDA_COMM_LOOP_H
#define LOCKSTEP_EXEC_CUDA_COMM_LOOP_H

#include "exec/cuda_comm_moves.h"

/* A move with addresses. */
typedef struct LoopKernel {
    MoveAction action;
    DType dtype;
    uint32_t from_n;
    uint64_t elements;
    uint32_t rank;        /* whose stream it is on, */
    const CommCall *call; /* and which of its calls it is part of */
    void *to;
    const void *from[MOVE_SOURCES_MAX];
} LoopKernel;

/* Called under the lock of the world, by the thread of any rank.  False with err: the job ends. */
typedef struct LoopDevice {
    void *user;
    /* n events, kept for the life of the world. */
    bool (*events)(void *user, void **events, uint32_t n, Err *err);
    bool (*record)(void *user, void *event, void *stream, Err *err);
    bool (*wait)(void *user, void *stream, void *event, Err *err);
    bool (*run)(void *user, void *stream, const LoopKernel *kernel, Err *err);
} LoopDevice;

typedef struct LoopWorld LoopWorld;

/* timeout_s: of waiting for a call while nobody calls anything. */
LoopWorld *loop_world_open(uint32_t ranks, const LoopDevice *device, bool rings,
                           double timeout_s);
void loop_world_close(LoopWorld *w); /* nobody runs anything any more; NULL is fine */

/* Where the rank's offsets count from, and its fabric (NULL: none): when that fails, waiting ends.
 * Before its first call; from any thread. */
void loop_world_join(LoopWorld *w, uint32_t rank, void *arena, Fabric *fabric);

/* One collective, or n sends and receives posted together, as fabric_run; all are on `stream`.
 * Blocks until the others have come and all is queued. */
bool loop_run(LoopWorld *w, uint32_t rank, const CommCall *calls, uint32_t n, void *stream,
              Err *err);

/* Ends it for all: the first sentence wins, whoever waits gets it. */
void loop_world_fail(LoopWorld *w, const char *why);

#endif

/*
 * far_memory.h - memory that a backend has to itself: bytes are copied, a chunk at a time, and
 * copies can fail.
 */
#ifndef LOCKSTEP_TESTS_FAR_MEMORY_H
#define LOCKSTEP_TESTS_FAR_MEMORY_H

#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "exec/store.h"

typedef struct FarMemory {
    _Atomic uint32_t calls_n;
    uint32_t fails_at; /* this call and those after it */
} FarMemory;

struct Backend {
    uint8_t *memory;
    FarMemory *counts;
    _Atomic bool busy; /* calls come one at a time */
};

/* from NULL: zeros.  Takes its time, so that a second call would be noticed. */
static inline bool far_copy(Backend *b, uint8_t *to, const void *from, uint64_t bytes, Err *err)
{
    ASSERT(!atomic_exchange(&b->busy, true));
    bool ok = ++b->counts->calls_n < b->counts->fails_at || err_set(err, "the memory is gone");
    if (ok && from)
        memcpy(to, from, bytes);
    else if (ok)
        memset(to, 0, bytes);
    sched_yield();
    b->busy = false;
    return ok;
}

static inline bool far_read(Backend *b, uint64_t offset, void *to, uint64_t bytes, Err *err)
{
    return far_copy(b, to, b->memory + offset, bytes, err);
}

static inline bool far_write(Backend *b, uint64_t offset, const void *from, uint64_t bytes,
                             Err *err)
{
    return far_copy(b, b->memory + offset, from, bytes, err);
}

static inline bool far_clear(Backend *b, uint64_t offset, uint64_t bytes, Err *err)
{
    return far_copy(b, b->memory + offset, NULL, bytes, err);
}

static inline Store far_store(Backend *b)
{
    return (Store){ .backend = b, .read = far_read, .write = far_write, .clear = far_clear };
}

#endif

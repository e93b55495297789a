/*
 * far_memory.h - memory that a backend has to itself: bytes are copied, a chunk at a time, and
 * copies can fail.
 */
#ifndef LOCKSTEP_TESTS_FAR_MEMORY_H
#define LOCKSTEP_TESTS_FAR_MEMORY_H

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
};

static inline bool far_call(Backend *b, Err *err)
{
    return ++b->counts->calls_n < b->counts->fails_at || err_set(err, "the memory is gone");
}

static inline bool far_read(Backend *b, uint64_t offset, void *to, uint64_t bytes, Err *err)
{
    if (!far_call(b, err))
        return false;
    memcpy(to, b->memory + offset, bytes);
    return true;
}

static inline bool far_write(Backend *b, uint64_t offset, const void *from, uint64_t bytes,
                             Err *err)
{
    if (!far_call(b, err))
        return false;
    memcpy(b->memory + offset, from, bytes);
    return true;
}

static inline bool far_clear(Backend *b, uint64_t offset, uint64_t bytes, Err *err)
{
    if (!far_call(b, err))
        return false;
    memset(b->memory + offset, 0, bytes);
    return true;
}

static inline Store far_store(Backend *b)
{
    return (Store){ .backend = b, .read = far_read, .write = far_write, .clear = far_clear };
}

#endif

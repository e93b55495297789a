/*
 * store.h - the memory that tensors live in from step to step: this process' own, or a
 * backend's, to and from which bytes are copied.
 *
 *     first values ----> store_place, store_put ----+
 *     a snapshot that is read ------^               +--> memory, or BackendType.write
 *     a snapshot that is written <-- store_get <----+--- memory, or BackendType.read
 *
 * Of a backend's memory only a chunk at a time is on the host, in a buffer of the caller: a GPU
 * may hold more than the host has.  Calls for a backend's memory come one at a time.
 */
#ifndef LOCKSTEP_EXEC_STORE_H
#define LOCKSTEP_EXEC_STORE_H

#include "core/base.h"
#include "core/err.h"

enum { STORE_CHUNK = 4 << 20 };

typedef struct Backend Backend; /* exec/backend.h */

typedef struct Store {
    uint8_t *memory; /* NULL: the backend's, by these calls of its type */
    Backend *backend;
    bool (*read)(Backend *b, uint64_t offset, void *to, uint64_t bytes, Err *err);
    bool (*write)(Backend *b, uint64_t offset, const void *from, uint64_t bytes, Err *err);
    bool (*clear)(Backend *b, uint64_t offset, uint64_t bytes, Err *err);
} Store;

/* A buffer of STORE_CHUNK bytes where one is needed, else NULL; free() it. */
uint8_t *store_buffer(const Store *s);

/* Where bytes for offset are to be written, before they are put: there, or in the buffer. */
uint8_t *store_place(const Store *s, uint64_t offset, uint8_t *buffer);
bool store_put(const Store *s, uint64_t offset, const uint8_t *place, uint64_t bytes, Err *err);
/* The bytes at offset, there or in the buffer; NULL after a failure. */
const uint8_t *store_get(const Store *s, uint64_t offset, uint64_t bytes, uint8_t *buffer,
                         Err *err);
bool store_clear(const Store *s, uint64_t offset, uint64_t bytes, Err *err);

#endif

/*
 * store.h - the memory that tensors live in from step to step: this process' own, or a
 * backend's, to and from which bytes are copied.
 *
 *     first values --------------> store_place ... store_flush --+
 *     a snapshot that is read ----------^                        +--> memory, BackendType.write
 *     a snapshot that is written <-- store_get <-----------------+--- memory, BackendType.read
 *
 * Of a backend's memory only a chunk at a time is on the host: a GPU may hold more than the host
 * has.  A copy costs by itself too, so neighbours are copied together.  Calls for a backend's
 * memory come one at a time.
 */
#ifndef LOCKSTEP_EXEC_STORE_H
#define LOCKSTEP_EXEC_STORE_H

#include <pthread.h>

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
/* The bytes at offset, at most STORE_CHUNK, there or in the buffer; NULL after a failure. */
const uint8_t *store_get(const Store *s, uint64_t offset, uint64_t bytes, uint8_t *buffer,
                         Err *err);
bool store_clear(const Store *s, uint64_t offset, uint64_t bytes, Err *err);

/* Zeroed but for store and lock.  What has been placed is written when something that does not
 * follow it is, when the buffer is full, and by store_flush, which also gives up the buffer. */
typedef struct StoreWriter {
    const Store *store;
    pthread_mutex_t *lock; /* held while a backend copies; NULL: nobody else writes */
    uint8_t *buffer;
    uint64_t at, n; /* bytes [at, at + n) are in it */
} StoreWriter;

/* Where the bytes for offset, at most STORE_CHUNK, are to be written now; NULL after a failure. */
uint8_t *store_place(StoreWriter *w, uint64_t offset, uint64_t bytes, Err *err);
bool store_flush(StoreWriter *w, Err *err);

#endif

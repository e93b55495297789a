/* store.c - own memory is there already, a backend's is copied, neighbours together. */
#include "exec/store.h"

#include <stdlib.h>
#include <string.h>

uint8_t *store_buffer(const Store *s)
{
    return s->memory ? NULL : mem_zero(1, STORE_CHUNK);
}

const uint8_t *store_get(const Store *s, uint64_t offset, uint64_t bytes, uint8_t *buffer,
                         Err *err)
{
    if (s->memory)
        return s->memory + offset;
    ASSERT(bytes <= STORE_CHUNK);
    return s->read(s->backend, offset, buffer, bytes, err) ? buffer : NULL;
}

bool store_clear(const Store *s, uint64_t offset, uint64_t bytes, Err *err)
{
    if (!s->memory)
        return s->clear(s->backend, offset, bytes, err);
    memset(s->memory + offset, 0, bytes);
    return true;
}

/* ---- writing ---- */

static bool write_placed(StoreWriter *w, Err *err)
{
    bool ok = true;
    if (w->n == 0)
        return true;
    if (w->lock)
        pthread_mutex_lock(w->lock);
    ok = w->store->write(w->store->backend, w->at, w->buffer, w->n, err);
    if (w->lock)
        pthread_mutex_unlock(w->lock);
    w->n = 0;
    return ok;
}

uint8_t *store_place(StoreWriter *w, uint64_t offset, uint64_t bytes, Err *err)
{
    ASSERT(bytes <= STORE_CHUNK);
    if (w->store->memory)
        return w->store->memory + offset;
    if (!w->buffer)
        w->buffer = store_buffer(w->store);
    bool follows = offset == w->at + w->n && w->n + bytes <= STORE_CHUNK;
    if (!follows && !write_placed(w, err))
        return NULL;
    if (w->n == 0)
        w->at = offset;
    w->n += bytes;
    return w->buffer + w->n - bytes;
}

bool store_flush(StoreWriter *w, Err *err)
{
    bool ok = w->store->memory || write_placed(w, err);
    free(w->buffer);
    w->buffer = NULL;
    return ok;
}

/* store.c - own memory is there already, a backend's is copied. */
#include "exec/store.h"

#include <stdlib.h>
#include <string.h>

uint8_t *store_buffer(const Store *s)
{
    return s->memory ? NULL : mem_zero(1, STORE_CHUNK);
}

uint8_t *store_place(const Store *s, uint64_t offset, uint8_t *buffer)
{
    return s->memory ? s->memory + offset : buffer;
}

bool store_put(const Store *s, uint64_t offset, const uint8_t *place, uint64_t bytes, Err *err)
{
    ASSERT(s->memory || bytes <= STORE_CHUNK);
    return s->memory || s->write(s->backend, offset, place, bytes, err);
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

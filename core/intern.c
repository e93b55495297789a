/* intern.c - open addressing, at most half full. */
#include "core/intern.h"

#include <stdlib.h>
#include <string.h>

/* FNV-1a, mixed once more so that the low bits are good. */
static uint32_t hash_bytes(const char *text, size_t n)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)text[i]) * 0x100000001b3u;
    return (uint32_t)(mix_u64(h) >> 32);
}

static void place(Interner *in, uint32_t id)
{
    uint32_t i = in->hash[id] & (in->slots_n - 1);
    while (in->slot[i])
        i = (i + 1) & (in->slots_n - 1);
    in->slot[i] = id + 1;
}

static void rehash(Interner *in)
{
    in->slots_n = in->slots_n ? 2 * in->slots_n : 64;
    free(in->slot);
    in->slot = mem_zero(in->slots_n, sizeof *in->slot);
    for (uint32_t id = 0; id < in->n; id++)
        place(in, id);
}

static uint32_t find(const Interner *in, const char *text, size_t n, uint32_t hash)
{
    if (in->slots_n == 0)
        return NONE_U32;
    for (uint32_t i = hash & (in->slots_n - 1); in->slot[i]; i = (i + 1) & (in->slots_n - 1)) {
        uint32_t id = in->slot[i] - 1;
        const char *have = in->text[id];
        if (in->hash[id] == hash && strncmp(have, text, n) == 0 && have[n] == '\0')
            return id;
    }
    return NONE_U32;
}

uint32_t intern_bytes(Interner *in, const char *text, size_t n)
{
    const char *nul = memchr(text, '\0', n);
    if (nul)
        n = (size_t)(nul - text);
    uint32_t hash = hash_bytes(text, n);
    uint32_t id = find(in, text, n, hash);
    if (id != NONE_U32)
        return id;
    ASSERT(in->n < NONE_U32 / 2);
    if (2 * (in->n + 1) > in->slots_n)
        rehash(in);
    GROW(in->hash, in->n, in->hash_cap);
    GROW(in->text, in->n, in->cap);
    char *copy = arena_push(&in->arena, n + 1, 1);
    memcpy(copy, text, n);
    in->text[in->n] = copy;
    in->hash[in->n] = hash;
    place(in, in->n);
    return in->n++;
}

uint32_t intern(Interner *in, const char *text)
{
    return intern_bytes(in, text, strlen(text));
}

const char *intern_text(const Interner *in, uint32_t id)
{
    ASSERT(id < in->n);
    return in->text[id];
}

uint32_t intern_find(const Interner *in, const char *text)
{
    size_t n = strlen(text);
    return find(in, text, n, hash_bytes(text, n));
}

void intern_free(Interner *in)
{
    free(in->text);
    free(in->hash);
    free(in->slot);
    arena_free(&in->arena);
    *in = (Interner){ 0 };
}

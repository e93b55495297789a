/* arena.c - a chain of blocks of 64 KiB, or as large as the request that one does not hold. */
#include "core/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARENA_BLOCK_BYTES = 64 * 1024, ARENA_ALIGN = 16 };

struct ArenaBlock {
    ArenaBlock *before;
    size_t used, cap;
    _Alignas(16) unsigned char bytes[];
};

static ArenaBlock *block_new(ArenaBlock *before, size_t at_least)
{
    size_t cap = at_least > ARENA_BLOCK_BYTES ? at_least : ARENA_BLOCK_BYTES;
    ArenaBlock *b = mem_resize(NULL, 1, sizeof *b + cap); /* arena_push zeroes */
    b->before = before;
    b->used = 0;
    b->cap = cap;
    return b;
}

void *arena_push_unset(Arena *arena, size_t n, size_t size)
{
    ASSERT(size == 0 || n <= (SIZE_MAX - ARENA_ALIGN) / size);
    size_t want = (n * size + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
    ArenaBlock *b = arena->last;
    if (!b || b->cap - b->used < want)
        b = arena->last = block_new(b, want);
    void *p = b->bytes + b->used;
    b->used += want;
    return p;
}

void *arena_push(Arena *arena, size_t n, size_t size)
{
    void *p = arena_push_unset(arena, n, size);
    memset(p, 0, n * size);
    return p;
}

char *arena_strdup(Arena *arena, const char *text)
{
    size_t n = strlen(text) + 1;
    return memcpy(arena_push(arena, n, 1), text, n);
}

char *arena_printf(Arena *arena, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    char none[1];
    int n = vsnprintf(none, sizeof none, format, args);
    va_end(args);
    ASSERT(n >= 0);
    char *text = arena_push(arena, (size_t)n + 1, 1);
    vsnprintf(text, (size_t)n + 1, format, again);
    va_end(again);
    return text;
}

ArenaMark arena_mark(const Arena *arena)
{
    return (ArenaMark){ arena->last, arena->last ? arena->last->used : 0 };
}

void arena_reset(Arena *arena, ArenaMark mark)
{
    while (arena->last != mark.block) {
        ArenaBlock *before = arena->last->before;
        free(arena->last);
        arena->last = before;
    }
    if (arena->last)
        arena->last->used = mark.used;
}

void arena_free(Arena *arena)
{
    arena_reset(arena, (ArenaMark){ NULL, 0 });
}

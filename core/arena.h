/*
 * arena.h - memory of one phase, given back at once.
 *
 * Arena a = { 0 } is a valid empty arena.  Everything pushed lives until
 * arena_free, or until arena_reset to an earlier mark.  Pushed memory is zero, unless
 * it is pushed unset, for who fills it at once.
 * Blocks never move, so pointers into an arena stay valid.
 */
#ifndef LOCKSTEP_CORE_ARENA_H
#define LOCKSTEP_CORE_ARENA_H

#include "core/base.h"

typedef struct ArenaBlock ArenaBlock;

typedef struct Arena {
    ArenaBlock *last; /* newest block, holds the one before it */
} Arena;

typedef struct ArenaMark {
    ArenaBlock *block;
    size_t used;
} ArenaMark;

void *arena_push(Arena *arena, size_t n, size_t size); /* aligned to 16 bytes */
void *arena_push_unset(Arena *arena, size_t n, size_t size);
char *arena_strdup(Arena *arena, const char *text);
char *arena_printf(Arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));

ArenaMark arena_mark(const Arena *arena);
void arena_reset(Arena *arena, ArenaMark mark);
void arena_free(Arena *arena);

#define PUSH_ARRAY(arena, Type, n) ((Type *)arena_push((arena), (n), sizeof(Type)))
#define PUSH_UNSET(arena, Type, n) ((Type *)arena_push_unset((arena), (n), sizeof(Type)))
#define PUSH(arena, Type)          PUSH_ARRAY(arena, Type, 1)

#endif

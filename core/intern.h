/*
 * intern.h - each distinct text once, as a small number.
 *
 * Names repeat millions of times in a timeline; a span stores 4 bytes.  Ids
 * count from 0 in the order of first sight, so equal input gives equal ids.
 * Interner in = { 0 } is empty.
 */
#ifndef LOCKSTEP_CORE_INTERN_H
#define LOCKSTEP_CORE_INTERN_H

#include "core/arena.h"

typedef struct Interner {
    Arena arena;
    const char **text; /* by id */
    uint32_t *hash;    /* by id, for rehashing without touching the text */
    uint32_t n, cap, hash_cap;
    uint32_t *slot; /* open addressing: id + 1, 0 = free */
    uint32_t slots_n;
} Interner;

uint32_t intern(Interner *in, const char *text);
uint32_t intern_bytes(Interner *in, const char *text, size_t n); /* need not end in NUL */
const char *intern_text(const Interner *in, uint32_t id);        /* id < in->n */
uint32_t intern_find(const Interner *in, const char *text);      /* NONE_U32 when unknown */
void intern_free(Interner *in);

#endif

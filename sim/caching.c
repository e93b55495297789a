/*
 * caching.c - the caching allocator itself.
 */
#include "sim/caching.h"

#include <stdlib.h>
#include <string.h>

#define GRAIN_BYTES         ((uint64_t)512)
#define SMALL_BYTES         MIB
#define SMALL_SEGMENT_BYTES (2 * MIB) /* and page */
#define LARGE_SEGMENT_BYTES (20 * MIB)
#define OWN_SEGMENT_BYTES   (10 * MIB) /* from here on a request has a segment for itself */
#define SEGMENT_GRAIN_BYTES (2 * MIB)

static uint64_t page_bytes(uint8_t list)
{
    return list % 2 ? SMALL_SEGMENT_BYTES : LARGE_SEGMENT_BYTES;
}

static uint64_t whole_pages(const CachingBlock *b)
{
    return b->bytes / page_bytes(b->list) * page_bytes(b->list);
}

/* ---- free blocks ---- */

/* Where one of so many bytes at an address is in a list, or would be: without branches, which
 * would be guessed wrong half of the time. */
static uint32_t free_place(const CachingList *l, uint64_t bytes, uint64_t at)
{
    uint32_t place = 0;
    for (uint32_t left = l->n; left > 0;) {
        uint32_t half = (left + 1) / 2;
        const CachingFree *f = &l->free[place + half - 1];
        bool before = (f->bytes < bytes) | ((f->bytes == bytes) & (f->at < at));
        place += before ? half : 0;
        left = before ? left - half : half - 1;
    }
    return place;
}

static uint32_t free_place_of(const Caching *c, uint32_t block)
{
    const CachingBlock *b = &c->blocks[block];
    return free_place(&c->list[b->list], b->bytes, b->at);
}

static void note_free(Caching *c, CachingFree *place, uint32_t block)
{
    CachingBlock *b = &c->blocks[block];
    *place = (CachingFree){ b->bytes, b->at, block };
    b->free = true;
    c->free_page_bytes += whole_pages(b);
}

static void note_used(Caching *c, uint32_t block)
{
    CachingBlock *b = &c->blocks[block];
    b->free = false;
    c->free_page_bytes -= whole_pages(b);
}

static void free_add(Caching *c, uint32_t block)
{
    CachingList *l = &c->list[c->blocks[block].list];
    uint32_t place = free_place_of(c, block);
    GROW(l->free, l->n, l->cap);
    memmove(l->free + place + 1, l->free + place, (l->n++ - place) * sizeof *l->free);
    note_free(c, l->free + place, block);
}

/* One that is used now (note_used). */
static void free_drop(Caching *c, uint8_t list, uint32_t place)
{
    CachingList *l = &c->list[list];
    memmove(l->free + place, l->free + place + 1, (--l->n - place) * sizeof *l->free);
}

static void free_remove(Caching *c, uint32_t block)
{
    note_used(c, block);
    free_drop(c, c->blocks[block].list, free_place_of(c, block));
}

/* Instead of one that is used now stands another of the same list. */
static void free_replace(Caching *c, uint32_t place, uint32_t block)
{
    CachingList *l = &c->list[c->blocks[block].list];
    uint32_t to = free_place_of(c, block);
    if (to > place) /* the one that goes stands before it */
        memmove(l->free + place, l->free + place + 1, (--to - place) * sizeof *l->free);
    else
        memmove(l->free + to + 1, l->free + to, (place - to) * sizeof *l->free);
    note_free(c, l->free + to, block);
}

/* ---- blocks ---- */

static uint32_t block_new(Caching *c, CachingBlock b)
{
    uint32_t i = c->unused;
    if (i == NONE_U32) {
        GROW(c->blocks, c->blocks_n, c->blocks_cap);
        i = c->blocks_n++;
    } else {
        c->unused = c->blocks[i].next;
    }
    c->blocks[i] = b;
    return i;
}

static void block_drop(Caching *c, uint32_t i)
{
    c->blocks[i].next = c->unused;
    c->unused = i;
}

/* What is left of a block behind its first `bytes`, if it becomes one that is to be free. */
static uint32_t split(Caching *c, uint32_t block, uint64_t bytes)
{
    const CachingBlock *b = &c->blocks[block];
    uint64_t left = b->bytes - bytes;
    if (bytes <= SMALL_BYTES || c->expandable ? left < GRAIN_BYTES : left <= SMALL_BYTES)
        return NONE_U32;
    uint32_t behind = b->next;
    uint32_t rest = block_new(c, (CachingBlock){ .at = b->at + bytes,
                                                 .bytes = left,
                                                 .prev = block,
                                                 .next = behind,
                                                 .list = b->list });
    c->blocks[block].bytes = bytes;
    c->blocks[block].next = rest;
    if (behind != NONE_U32)
        c->blocks[behind].prev = rest;
    if (c->last[c->blocks[block].list] == block)
        c->last[c->blocks[block].list] = rest;
    return rest;
}

/* The second of two neighbours, which are in no list, becomes part of the first. */
static void join(Caching *c, uint32_t first, uint32_t second)
{
    CachingBlock *a = &c->blocks[first];
    const CachingBlock *b = &c->blocks[second];
    a->bytes += b->bytes;
    a->next = b->next;
    if (b->next != NONE_U32)
        c->blocks[b->next].prev = first;
    if (c->last[a->list] == second)
        c->last[a->list] = first;
    block_drop(c, second);
}

/* ---- segments ---- */

static uint64_t segment_bytes(uint64_t bytes)
{
    if (bytes <= SMALL_BYTES)
        return SMALL_SEGMENT_BYTES;
    if (bytes < OWN_SEGMENT_BYTES)
        return LARGE_SEGMENT_BYTES;
    return div_up_u64(bytes, SEGMENT_GRAIN_BYTES) * SEGMENT_GRAIN_BYTES;
}

/* Those that are free as a whole. */
static void give_back_segments(Caching *c)
{
    for (uint32_t i = 0; i < c->blocks_n; i++) {
        const CachingBlock *b = &c->blocks[i];
        if (!b->free || b->prev != NONE_U32 || b->next != NONE_U32)
            continue;
        c->reserved_bytes -= b->bytes;
        free_remove(c, i);
        block_drop(c, i);
    }
}

/* Notes what it holds now.  Pages of which nothing is used may have gone back. */
static void hold(Caching *c)
{
    uint64_t may_go = c->expandable ? c->free_page_bytes : 0;
    c->overflowed |= c->reserved_bytes > c->capacity_bytes + may_go;
    uint64_t held =
        c->overflowed ? c->reserved_bytes : min_u64(c->reserved_bytes, c->capacity_bytes);
    c->most_bytes = max_u64(c->most_bytes, held);
}

/* Asks CUDA for so much more. */
static void reserve(Caching *c, uint64_t bytes)
{
    if (!c->expandable && !c->overflowed && c->reserved_bytes + bytes > c->capacity_bytes)
        give_back_segments(c);
    c->reserved_bytes += bytes;
    hold(c);
}

static uint32_t segment_new(Caching *c, uint64_t bytes, uint8_t list)
{
    bytes = segment_bytes(bytes);
    reserve(c, bytes);
    uint64_t at = c->end;
    c->end += bytes;
    return block_new(
        c, (CachingBlock){
               .at = at, .bytes = bytes, .prev = NONE_U32, .next = NONE_U32, .list = list });
}

/* The block at the end of the one segment, made large enough. */
static uint32_t segment_grow(Caching *c, uint64_t bytes, uint8_t list)
{
    uint32_t last = c->last[list];
    uint64_t there = last != NONE_U32 && c->blocks[last].free ? c->blocks[last].bytes : 0;
    uint64_t more = div_up_u64(bytes - there, page_bytes(list)) * page_bytes(list);
    if (there > 0)
        free_remove(c, last);
    reserve(c, more);
    if (there > 0) {
        c->blocks[last].bytes += more;
        return last;
    }
    uint64_t at = last == NONE_U32 ? 0 : c->blocks[last].at + c->blocks[last].bytes;
    uint32_t block = block_new(
        c, (CachingBlock){
               .at = at, .bytes = more, .prev = last, .next = NONE_U32, .list = list });
    if (last != NONE_U32)
        c->blocks[last].next = block;
    return c->last[list] = block;
}

/* ---- taking and giving ---- */

/* The smallest free one of at least so many bytes, of equal ones the lowest; NONE_U32: there is
 * none. */
static uint32_t take_free(Caching *c, uint64_t bytes, uint8_t list)
{
    const CachingList *l = &c->list[list];
    uint32_t place = free_place(l, bytes, 0);
    if (place == l->n)
        return NONE_U32;
    uint32_t block = l->free[place].block;
    note_used(c, block);
    uint32_t rest = split(c, block, bytes);
    if (rest != NONE_U32)
        free_replace(c, place, rest);
    else
        free_drop(c, list, place);
    return block;
}

static uint32_t take_new(Caching *c, uint64_t bytes, uint8_t list)
{
    uint32_t block = c->expandable ? segment_grow(c, bytes, list) : segment_new(c, bytes, list);
    uint32_t rest = split(c, block, bytes);
    if (rest != NONE_U32)
        free_add(c, rest);
    return block;
}

uint32_t caching_take(Caching *c, uint64_t bytes, CachingStream stream)
{
    bytes = max_u64(div_up_u64(bytes, GRAIN_BYTES) * GRAIN_BYTES, GRAIN_BYTES);
    uint8_t list = (uint8_t)(2 * stream + (bytes <= SMALL_BYTES));
    uint32_t block = take_free(c, bytes, list);
    if (block == NONE_U32)
        block = take_new(c, bytes, list);
    if (c->expandable && !c->overflowed && c->reserved_bytes > c->capacity_bytes)
        hold(c); /* pages that had gone back come again */
    return block;
}

static bool is_free(const Caching *c, uint32_t block)
{
    return block != NONE_U32 && c->blocks[block].free;
}

void caching_give(Caching *c, uint32_t block)
{
    ASSERT(!c->blocks[block].free);
    uint32_t prev = c->blocks[block].prev, next = c->blocks[block].next;
    bool joins_prev = is_free(c, prev), joins_next = is_free(c, next);
    if (joins_prev && joins_next)
        free_remove(c, next);
    if (!joins_prev && !joins_next) {
        free_add(c, block);
        return;
    }
    uint32_t neighbour = joins_prev ? prev : next, place = free_place_of(c, neighbour);
    note_used(c, neighbour);
    if (joins_next)
        join(c, block, next);
    if (joins_prev)
        join(c, prev, block);
    free_replace(c, place, joins_prev ? prev : block);
}

void caching_open(Caching *c, uint64_t capacity_bytes, bool expandable)
{
    *c = (Caching){ .capacity_bytes = capacity_bytes,
                    .expandable = expandable,
                    .unused = NONE_U32 };
    for (int k = 0; k < CACHING_LISTS; k++)
        c->last[k] = NONE_U32;
}

void caching_close(Caching *c)
{
    for (int k = 0; k < CACHING_LISTS; k++)
        free(c->list[k].free);
    free(c->blocks);
}

/*
 * caching.c - the caching allocator itself.
 */
#include "sim/caching.h"

#include <stdlib.h>
#include <string.h>

#define GRAIN_BYTES         ((uint64_t)512)
#define SMALL_BYTES         MIB
#define SMALL_SEGMENT_BYTES (2 * MIB)
#define LARGE_SEGMENT_BYTES (20 * MIB)
#define OWN_SEGMENT_BYTES   (10 * MIB) /* from here on a request has a segment for itself */
#define SEGMENT_GRAIN_BYTES (2 * MIB)

/* ---- blocks ---- */

static uint32_t block_new(Caching *p, CachingBlock b)
{
    uint32_t i = p->unused;
    if (i == NONE_U32) {
        GROW(p->blocks, p->blocks_n, p->blocks_cap);
        i = p->blocks_n++;
    } else {
        p->unused = p->blocks[i].next;
    }
    p->blocks[i] = b;
    return i;
}

static void block_drop(Caching *p, uint32_t i)
{
    p->blocks[i].next = p->unused;
    p->unused = i;
}

/* The first free one that does not come before (bytes, at). */
static uint32_t find_free(const CachingList *l, uint64_t bytes, uint64_t at)
{
    uint32_t low = 0, high = l->free_n;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        const CachingFree *f = &l->free[mid];
        if (f->bytes < bytes || (f->bytes == bytes && f->at < at))
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static void list_add(Caching *p, uint32_t block)
{
    const CachingBlock *b = &p->blocks[block];
    CachingList *l = &p->lists[b->list];
    uint32_t i = find_free(l, b->bytes, b->at);
    GROW(l->free, l->free_n, l->free_cap);
    memmove(&l->free[i + 1], &l->free[i], (l->free_n++ - i) * sizeof *l->free);
    l->free[i] = (CachingFree){ b->bytes, b->at, block };
}

static void list_remove(CachingList *l, uint32_t i)
{
    memmove(&l->free[i], &l->free[i + 1], (--l->free_n - i) * sizeof *l->free);
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

static void give_back_segments(Caching *p)
{
    for (int k = 0; k < 2 * STREAM_N; k++)
        for (uint32_t i = p->lists[k].free_n; i-- > 0;) {
            uint32_t block = p->lists[k].free[i].block;
            const CachingBlock *b = &p->blocks[block];
            if (b->prev != NONE_U32 || b->next != NONE_U32)
                continue;
            p->reserved_bytes -= b->bytes;
            block_drop(p, block);
            list_remove(&p->lists[k], i);
        }
}

static uint32_t segment_new(Caching *p, uint64_t bytes, uint8_t list)
{
    bytes = segment_bytes(bytes);
    if (!p->overflowed && p->reserved_bytes + bytes > p->capacity_bytes) {
        give_back_segments(p);
        p->overflowed = p->reserved_bytes + bytes > p->capacity_bytes;
    }
    p->reserved_bytes += bytes;
    p->most_bytes = max_u64(p->most_bytes, p->reserved_bytes);
    uint64_t at = p->end;
    p->end += bytes;
    return block_new(p, (CachingBlock){ at, bytes, NONE_U32, NONE_U32, list, false });
}

/* ---- taking and giving ---- */

/* What is left over of a block behind its first `bytes` becomes a free one. */
static void split(Caching *p, uint32_t block, uint64_t bytes)
{
    CachingBlock *b = &p->blocks[block];
    uint64_t left = b->bytes - bytes;
    if (bytes <= SMALL_BYTES ? left < GRAIN_BYTES : left <= SMALL_BYTES)
        return;
    CachingBlock rest = { b->at + bytes, left, block, b->next, b->list, true };
    b->bytes = bytes;
    uint32_t behind = b->next, r = block_new(p, rest);
    p->blocks[block].next = r;
    if (behind != NONE_U32)
        p->blocks[behind].prev = r;
    list_add(p, r);
}

uint32_t caching_take(Caching *p, uint64_t bytes, CachingStream stream)
{
    bytes = max_u64(div_up_u64(bytes, GRAIN_BYTES) * GRAIN_BYTES, GRAIN_BYTES);
    uint8_t list = (uint8_t)(2 * stream + (bytes <= SMALL_BYTES));
    CachingList *l = &p->lists[list];
    uint32_t i = find_free(l, bytes, 0), block;
    if (i < l->free_n) {
        block = l->free[i].block;
        list_remove(l, i);
    } else {
        block = segment_new(p, bytes, list);
    }
    p->blocks[block].free = false;
    split(p, block, bytes);
    return block;
}

/* The second of two neighbours, both of which are in no list, becomes part of the first. */
static void join(Caching *p, uint32_t first, uint32_t second)
{
    CachingBlock *a = &p->blocks[first], *b = &p->blocks[second];
    a->bytes += b->bytes;
    a->next = b->next;
    if (b->next != NONE_U32)
        p->blocks[b->next].prev = first;
    block_drop(p, second);
}

/* Takes a neighbour out of its list, if it is free. */
static bool claim(Caching *p, uint32_t block)
{
    if (block == NONE_U32 || !p->blocks[block].free)
        return false;
    const CachingBlock *b = &p->blocks[block];
    CachingList *l = &p->lists[b->list];
    list_remove(l, find_free(l, b->bytes, b->at));
    return true;
}

void caching_give(Caching *p, uint32_t block)
{
    ASSERT(!p->blocks[block].free);
    uint32_t prev = p->blocks[block].prev, next = p->blocks[block].next;
    if (claim(p, next))
        join(p, block, next);
    if (claim(p, prev)) {
        join(p, prev, block);
        block = prev;
    }
    p->blocks[block].free = true;
    list_add(p, block);
}

void caching_open(Caching *p, uint64_t capacity_bytes)
{
    *p = (Caching){ .capacity_bytes = capacity_bytes, .unused = NONE_U32 };
}

void caching_close(Caching *p)
{
    for (int k = 0; k < 2 * STREAM_N; k++)
        free(p->lists[k].free);
    free(p->blocks);
}

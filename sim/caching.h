/*
 * caching.h - PyTorch's caching allocator.
 *
 * Its rules, as c10/cuda/CUDACachingAllocator.cpp has them (PyTorch 2.0 to 2.9) where
 * PYTORCH_CUDA_ALLOC_CONF says nothing:
 *
 *     request   in multiples of 512 B; up to 1 MiB is small.  Small and large have blocks of their
 *               own, and so has each stream
 *     block     the smallest free one that is large enough, of equal ones the lowest; what is left
 *               of it stays free: of a small one always, of a large one if that is over 1 MiB
 *     segment   where there is none: from CUDA, 2 MiB for a small one, 20 MiB for one below
 *               10 MiB, else the next multiple of 2 MiB
 *     freed     joins its free neighbours in the segment, which is kept
 *     no room   segments of which nothing is used go back to CUDA, then once more
 *
 *     segment   |  params  |used|    free    |used|free|     reserved: all of it
 *
 * With expandable_segments:True small and large have one segment of each stream, which grows at its
 * end by pages of 2 and 20 MiB; what is left of a block always stays free; and where there is no
 * room all pages go back of which nothing is used.
 */
#ifndef LOCKSTEP_SIM_CACHING_H
#define LOCKSTEP_SIM_CACHING_H

#include "core/base.h"

/* Streams that the stacks allocate on. */
typedef enum CachingStream {
    STREAM_MAIN,
    STREAM_GATHER,
    STREAM_REDUCE,
    STREAM_REPLICATE,
    STREAM_N
} CachingStream;

enum { CACHING_LISTS = 2 * STREAM_N }; /* of each stream large and small */

typedef struct CachingBlock {
    uint64_t at, bytes;  /* at: its address */
    uint32_t prev, next; /* its neighbours in the segment; NONE_U32 */
    uint8_t list;
    bool free;
} CachingBlock;

typedef struct CachingFree {
    uint64_t bytes, at;
    uint32_t block;
} CachingFree;

/* Free blocks by bytes, then at: some tens, of published runs 525 at most. */
typedef struct CachingList {
    uint32_t n, cap;
    CachingFree *free;
} CachingList;

typedef struct Caching {
    bool expandable;
    uint64_t capacity_bytes;             /* that CUDA has for it */
    uint64_t reserved_bytes, most_bytes; /* now, and at most so far */
    uint64_t free_page_bytes;            /* whole pages of free blocks */
    bool overflowed; /* it has asked for more than there is: from then on it gets it */
    uint64_t end;    /* of all addresses so far */
    CachingList list[CACHING_LISTS];
    uint32_t last[CACHING_LISTS]; /* expandable: the block at the segment's end; NONE_U32 */
    uint32_t blocks_n, blocks_cap, unused; /* unused: the first, linked by next */
    CachingBlock *blocks;
} Caching;

void caching_open(Caching *c, uint64_t capacity_bytes, bool expandable);
void caching_close(Caching *c);
uint32_t caching_take(Caching *c, uint64_t bytes, CachingStream stream); /* a block */
void caching_give(Caching *c, uint32_t block);

#endif

/*
 * lod_parts.h - what lod.c (building) and lod_extract.c (drawing) share: from spans and
 * moments to pieces.
 */
#ifndef LOCKSTEP_VIZ_LOD_PARTS_H
#define LOCKSTEP_VIZ_LOD_PARTS_H

#include "viz/lod.h"

/* The kind of a piece of a strip; LOD_N: nothing is drawn. */
static inline LodKind lod_mask_kind(uint8_t mask)
{
    static const uint8_t kinds[COVER_MASKS] = {
        LOD_N,      LOD_COMPUTE, LOD_EXPOSED, LOD_OVERLAPPED,
        LOD_MEMORY, LOD_COMPUTE, LOD_EXPOSED, LOD_OVERLAPPED,
    };
    return (LodKind)kinds[mask];
}

/* The kind of a span; of communication: while compute runs. */
static inline LodKind lod_class_kind(uint8_t span_class)
{
    static const uint8_t kinds[SPAN_CLASS_N] = {
        [SPAN_COMPUTE] = LOD_COMPUTE, [SPAN_COMM] = LOD_OVERLAPPED, [SPAN_P2P] = LOD_P2P,
        [SPAN_MEMORY] = LOD_MEMORY,   [SPAN_LAUNCH] = LOD_OTHER,    [SPAN_HOST] = LOD_OTHER,
        [SPAN_SYNC] = LOD_OTHER,      [SPAN_STEP] = LOD_OTHER,      [SPAN_NOTE] = LOD_OTHER,
    };
    return span_class < SPAN_CLASS_N ? (LodKind)kinds[span_class] : LOD_OTHER;
}

/* Is a span cut where compute begins and ends? */
static inline bool lod_is_cut(const LodRow *row, uint64_t span)
{
    return row->cover && cover_bit(row->t->span_class[span]) == COVER_COMM;
}

/* Adds the lengths of a span within [from_ns, to_ns) by kind; the cursor is of row->cover. */
void lod_add_span(const LodRow *row, uint64_t span, int64_t from_ns, int64_t to_ns,
                  CoverCursor *cursor, int64_t ns[LOD_N]);

/* The longest of the spans that start when span i - 1 does: the first of them.  Only it can run
 * on, the others have no length (core/timeline.h: longest first). */
uint64_t lod_span_ahead(const LodRow *row, uint64_t i);

/* The moment of a cover that holds at at_ns, which is not before the first: mostly it follows
 * the one that was asked for last. */
uint64_t lod_moment_at(const Cover *c, uint64_t last, int64_t at_ns);

#endif

/*
 * strip.h - what a rank's GPU did, as one row: in the viewer, and in the page of a report.
 *
 *     |##########|     |////|######|       heights are shares of time: compute from below,
 *     |##======##|     |////|######|       exposed communication hatched from above, what
 *                                          overlaps as a band at the foot
 *
 * Far out a column is read from the row's pyramid (viz/lod.h), so it is as full as the GPU
 * was; further in each piece stands for itself.
 */
#ifndef LOCKSTEP_VIZ_STRIP_H
#define LOCKSTEP_VIZ_STRIP_H

#include "viz/lod.h"
#include "viz/theme.h"

enum { STRIP_LEVELS = 16 };

/* Where and how a strip is drawn. */
typedef struct Strip {
    DrawList *d;
    const Theme *theme;
    LodWindow window; /* on the rank's clock; its width that of the box in pixels */
    PxBox box;
    bool tips; /* pieces are items of their own, with their tooltips */
} Strip;

/* Of a row built by lod_build_strip; idle is what lies between its first and last piece. */
void strip_draw(const Strip *s, const LodRow *row);

/* A moment of the axis below strips. */
typedef struct StripTick {
    double part; /* of the axis' length: 0 where it begins, 1 where it ends */
    char text[48];
} StripTick;

/* The i-th of about ticks_max, and the one at 0; false: it has no such one. */
bool strip_tick(int64_t length_ns, uint32_t ticks_max, uint32_t i, StripTick *tick);

/* The class a kind of piece is coloured as. */
TimeClass strip_class(LodKind kind);
/* Shares in STRIP_LEVELS steps, what is there at least one; together what all is, rounded, but
 * for that at least, and at most STRIP_LEVELS. */
void strip_levels(const uint32_t share[LOD_N], uint8_t level[LOD_N]);

#endif

/*
 * lod.h - how full each pixel of a row is, at every zoom, in a time that does not grow
 * with the number of spans.
 *
 * A row is a list of pieces that do not overlap, in order of time; a piece has a kind.
 * There are two sorts of rows:
 *
 *     a lane of a track    its spans; communication is cut where compute begins and ends
 *     a rank's strip       its Cover: what the GPU did, all streams laid over one another
 *
 * Far out, pixels are read from a pyramid of time bins: bin b of level l holds, per kind
 * that occurs, which share of its 2^(shift + 2 l) ns it fills.  There is about one span
 * per finest bin, so a span costs 2.7 bytes per kind.  Further in, the pieces themselves
 * are walked: each that is a pixel wide comes out as it is, smaller ones are summed up
 * into columns with their exact share.
 *
 *     level 2  |          .42          |
 *     level 1  |    .5     |    .34    |      a pixel reads the coarsest level whose bins
 *     level 0  | 1. | .. | .2 | .3 |          are not wider than it: at most 6 bins
 *
 * Shares are for drawing: a piece that is there never rounds to 0.  Every number that is
 * printed comes from exact sums of nanoseconds (lod_sums; profile/metrics.h).
 */
#ifndef LOCKSTEP_VIZ_LOD_H
#define LOCKSTEP_VIZ_LOD_H

#include "profile/metrics.h"

typedef enum LodKind {
    LOD_COMPUTE,
    LOD_OVERLAPPED, /* a collective while compute runs; in a strip: both run */
    LOD_EXPOSED,    /* communication while no compute runs */
    LOD_P2P,        /* send or receive while compute runs */
    LOD_MEMORY,     /* copy or set; in a strip: nothing but that */
    LOD_OTHER,      /* host, waits, steps, annotations */
    LOD_N
} LodKind;

enum { LOD_FULL = 65535, LOD_LEVELS = 32, LOD_BLOCK = 64 };

typedef struct LodLevel {
    uint64_t bins_n;
    uint16_t *share; /* bin * kinds_n + slot */
} LodLevel;

typedef struct LodRow {
    const Timeline *t;  /* NULL: the row is the strip of cover */
    const Cover *cover; /* of the rank; NULL where communication cannot be cut */
    uint32_t track, lane;

    /* Spans of the lane: index[i], or first + i where the track has one lane only. */
    uint64_t n, first;
    uint64_t *index;
    int64_t *before; /* b * kinds_n + slot: lengths of spans 0 .. LOD_BLOCK * b - 1 */

    int64_t begin_ns, end_ns; /* of its pieces; both 0 without any */
    uint32_t kinds_n;         /* that occur */
    uint8_t slot[LOD_N];      /* by kind; those that occur */
    uint8_t kind[LOD_N];      /* by slot */
    uint32_t shift;           /* the finest bin is 2^shift ns; bin 0 begins at begin_ns */
    uint32_t levels_n;        /* 0 without pieces */
    LodLevel level[LOD_LEVELS];
} LodRow;

/*
 * Of lane `lane` of a track of a sealed timeline, or of a rank's strip.  Both outlive the
 * row.  One pass over the spans; several threads may build several rows at once.
 */
void lod_build_lane(LodRow *row, const Timeline *t, uint32_t track, uint32_t lane,
                    const Cover *cover);
/* The same of some spans: lanes that are not the timeline's, those that `keep` wants. */
typedef bool LodKeep(const void *user, uint64_t span);
typedef struct LodChoice {
    const uint8_t *lanes; /* by span; NULL: Timeline.lane */
    LodKeep *keep;        /* NULL: all */
    const void *user;
} LodChoice;
void lod_build_some(LodRow *row, const Timeline *t, uint32_t track, uint32_t lane,
                    const Cover *cover, const LodChoice *choice);
void lod_build_strip(LodRow *row, const Cover *cover);
void lod_free(LodRow *row);
uint64_t lod_memory_bytes(const LodRow *row);

/* i-th span of a lane, as an index into the timeline. */
static inline uint64_t lod_span(const LodRow *row, uint64_t i)
{
    return row->index ? row->index[i] : row->first + i;
}

/* How many spans of a lane start before at_ns. */
uint64_t lod_spans_before(const LodRow *row, int64_t at_ns);
/* Which of them (0 .. n-1) runs at at_ns; NONE_U64: none does. */
uint64_t lod_span_at(const LodRow *row, int64_t at_ns);

/* The part of time that is drawn: [from_ns, to_ns) over width pixels.  Not empty. */
typedef struct LodWindow {
    int64_t from_ns, to_ns;
    uint32_t width;
} LodWindow;

/* First moment of pixel x: from_ns + floor(x * (to_ns - from_ns) / width). */
int64_t lod_pixel_ns(const LodWindow *w, uint32_t x);
/* The pixel a moment of the window lies in. */
uint32_t lod_pixel_of(const LodWindow *w, int64_t at_ns);

/* Gets what a row looks like, in order of time.  A pixel may be part of a piece, a column,
 * and part of the next piece. */
typedef struct LodSink {
    void *user;
    /* At least a pixel wide, cut to the window; of no length where a pixel is less than a ns.
     * span: index into the timeline, NONE_U64 in a strip; a span of communication comes as
     * several pieces. */
    void (*piece)(void *user, uint64_t span, LodKind kind, int64_t from_ns, int64_t to_ns);
    /* Pixel x: shares by kind, together at most LOD_FULL, not all 0. */
    void (*column)(void *user, uint32_t x, const uint32_t share[LOD_N]);
} LodSink;

/* O(width), and O(spans in the window) where they are walked, at most LOD_BLOCK a pixel. */
void lod_extract(const LodRow *row, const LodWindow *w, const LodSink *sink);

/* Lengths by kind of the row's pieces within a window, in nanoseconds, exactly. */
void lod_sums(const LodRow *row, int64_t from_ns, int64_t to_ns, int64_t ns[LOD_N]);

#endif

/*
 * data.h - what the viewer knows of one timeline: ranks, rows, steps, counters, links.
 *
 *     Timeline --+-- Covers (profile/metrics.h)      exact numbers of any window
 *                +-- ViewRank: strip                 what its GPU did, to be drawn
 *                |     +-- ViewRow: stream, lane     spans, to be drawn
 *                |     +-- ViewRow: counter          values, to be drawn
 *                |     +-- ViewRow: host thread      built when first shown
 *                +-- StepWindows
 *                +-- ViewLinks                       who waited for whom; given by the caller
 *
 * view_data_open does what the first picture needs, on all cores: 0.27 s of CPU time for 10
 * million events (bench_view).  Rows of host threads, mostly hidden and often most of a
 * recorded trace, are built by view_row_ready when they are first shown.
 *
 * The timeline is borrowed, sealed and checked, and outlives the data.
 */
#ifndef LOCKSTEP_VIZ_DATA_H
#define LOCKSTEP_VIZ_DATA_H

#include "viz/lod.h"

typedef enum ViewRowKind { VIEW_ROW_STREAM, VIEW_ROW_COUNTER, VIEW_ROW_HOST } ViewRowKind;

/* Smallest and largest value of blocks of points, and blocks of blocks. */
typedef struct ViewCounter {
    double min, max; /* of all points */
    uint32_t levels_n;
    uint64_t blocks_n[12];
    float *low[12], *high[12];
    double *area; /* by point: of value times ns before it; for means */
} ViewCounter;

typedef struct ViewRow {
    ViewRowKind kind;
    uint32_t rank; /* index into ViewData.ranks */
    uint32_t track, lane;
    bool ready;          /* lod or counter is built */
    bool notes;          /* a stream's annotations, beside its work */
    LodRow lod;          /* of streams and host threads */
    ViewCounter counter; /* of counters */
} ViewRow;

/* A span with a correlation id. */
typedef struct ViewTie {
    uint64_t correlation, span;
} ViewTie;

typedef struct ViewRank {
    uint32_t rank, ranks_n; /* ranks it stands for (folded simulation), else 1 */
    const Cover *cover;
    int64_t begin_ns,
        end_ns;  /* of what it shows: the trace's, unless view_data_bounds has looked */
    Metrics all; /* of its whole GPU work */
    LodRow strip;
    uint32_t row_first, rows_n; /* in the order of timeline_track_order, lanes together */
    ViewTie *ties;              /* by id, then span; found when first asked for (view_ties) */
    uint64_t ties_n;
} ViewRank;

/* One kernel that communicates, as matched across ranks (profile/collectives.h). */
typedef struct ViewComm {
    uint64_t span;
    uint32_t match;     /* index into ViewLinks.matches; NONE_U32 */
    int64_t wait_ns;    /* first part of the span; -1 unknown */
    int64_t exposed_ns; /* while no compute ran on its rank */
    int64_t reach_ns; /* view_comms_reach: the latest end of it and those before on its track */
} ViewComm;

typedef struct ViewMatch {
    uint32_t first, n;   /* its parts in ViewLinks.parts: indices into comms, by rank */
    uint32_t last;       /* which of the parts came last, NONE_U32 if none was waited for */
    int64_t transfer_ns; /* of each */
    uint32_t channel;    /* index into ViewLinks.channels */
} ViewMatch;

/* What the caller found out about communication; all zero: nothing.  Borrowed. */
typedef struct ViewLinks {
    const ViewComm *comms; /* by span */
    uint64_t comms_n;
    const ViewMatch *matches;
    uint64_t matches_n;
    const uint32_t *parts;
    const char *const *channels;    /* "group 'dp' of 8, matched by sequence number" */
    const int64_t *clock_offset_ns; /* by ViewRank: its clock is ahead by this; NULL: none */
    int64_t clock_residual_ns;
} ViewLinks;

typedef struct ViewData {
    const Timeline *t;
    const char *name; /* of file or scenario, for the top bar; borrowed */
    Covers covers;
    ViewRank *ranks;
    uint32_t ranks_n;
    ViewRow *rows;
    uint32_t rows_n;
    /* Annotations on streams lie around kernels; so that those stay in lane 0, work gets the
     * first lanes and annotations the next ones.  NULL: nothing was moved. */
    uint8_t *lanes;    /* by span, as Timeline.lane */
    uint32_t *lanes_n; /* by track, of both; NULL as lanes */
    StepWindows steps; /* as the host marked them; the caller may put others in their place */
    ViewLinks links;
    int64_t begin_ns, end_ns; /* of what can be shown; end > begin */
} ViewData;

/* jobs: threads; 0 = as many as cores. */
void view_data_open(ViewData *d, const Timeline *t, const char *name, uint32_t jobs);
void view_data_free(ViewData *d);
uint64_t view_data_memory_bytes(const ViewData *d); /* without the timeline's */

/* Finds when each rank begins and ends, which matters where their clocks differ: begin and end of
 * the trace are then those of the clocks, not of what ran. */
void view_data_bounds(ViewData *d);

/* Is there any GPU work at all? */
bool view_has_gpu_work(const ViewData *d);

/* The lane that a span is shown in. */
static inline uint32_t view_lane_of(const ViewData *d, uint64_t span)
{
    return d->lanes ? d->lanes[span] : d->t->lane[span];
}

/* Builds a row, if it is not yet. */
void view_row_ready(ViewData *d, ViewRow *row);

/* What is known of a communication span; NULL where nothing is. */
const ViewComm *view_comm_of(const ViewLinks *l, uint64_t span);
/* How many of them are of spans before that one. */
uint64_t view_comms_before(const ViewLinks *l, uint64_t span);
/* Fills reach_ns, by which those are found that began before a window: of comms by span. */
void view_comms_reach(ViewComm *comms, uint64_t n, const Timeline *t);

/* How long a communication span transferred, without its wait for others: as its match says
 * (profile/collectives.h), else the trace; -1 unknown. */
int64_t view_transfer_ns(const ViewData *d, uint64_t span);

/* The spans of a rank that have this correlation id: *n of them, by span. */
const ViewTie *view_ties(ViewData *d, uint32_t rank, uint64_t correlation, uint64_t *n);

/* Smallest and largest value that a counter's points take in [from_ns, to_ns), the one that
 * holds at from_ns included.  False: it has no value there yet. */
bool view_counter_range(const ViewData *d, const ViewRow *row, int64_t from_ns, int64_t to_ns,
                        double *low, double *high);
/* Its mean over time there, over the part in which it has a value. */
bool view_counter_mean(const ViewData *d, const ViewRow *row, int64_t from_ns, int64_t to_ns,
                       double *mean);

/* Metrics of a window, summed over ranks, each as often as it stands for ranks. */
typedef struct ViewStats {
    Metrics sum; /* without the counts */
    uint64_t ranks_n;
} ViewStats;

/* Adds a rank's numbers, as often as it stands for ranks. */
void view_stats_add(ViewStats *s, const ViewRank *rank, const Metrics *m);

#endif

/*
 * timeline.h - what happened when: spans on tracks, in columns.
 *
 * A track is one row of one rank: a CUDA stream, the host thread that launches,
 * a CPU thread of somebody's trace, a counter.  Spans of a track lie together,
 * sorted by start, once timeline_seal has run:
 *
 *     track 0 "compute"   span_first 0      |##|####|   |###|
 *     track 1 "dp comm"   span_first 4         |~~~~======|      ~ waiting  = transferring
 *
 * A span costs 34 bytes in its columns, 8 more where it says what it is of a model;
 * what only communication has (bytes, group, sequence number) stands in a second
 * table that the span points into.
 * Tens of millions of spans fit; their number is limited by memory only.
 *
 * Times are int64 ns since the timeline's zero, between -TIMELINE_NS_MAX and
 * TIMELINE_NS_MAX: sums of two never overflow.  Readers check before they add
 * (timeline_ns_in_range; ranks below TIMELINE_RANKS_MAX): timeline_span asserts.
 *
 * Names are interned: Timeline.names.  A Timeline owns everything it points to;
 * Timeline t = { 0 } is a valid empty one, timeline_free leaves it so.
 *
 *     build                                      read
 *     track = timeline_track(&t, 0, ...);        for (i = k->span_first; ... k->span_n)
 *     timeline_span(&t, (Span){...});                t.start_ns[i], t.dur_ns[i], ...
 *     timeline_seal(&t);
 *
 * A sealed timeline takes no more spans.  One that stands on a mapped file
 * (traces/native.h) is born sealed and its columns are read-only: backing is
 * set, and unmaps them in timeline_free.
 */
#ifndef LOCKSTEP_CORE_TIMELINE_H
#define LOCKSTEP_CORE_TIMELINE_H

#include "core/err.h"
#include "core/intern.h"

#define TIMELINE_NS_MAX    ((int64_t)1 << 61) /* 73 years */
#define TIMELINE_RANKS_MAX (1u << 24)

static inline bool timeline_ns_in_range(int64_t ns)
{
    return ns >= -TIMELINE_NS_MAX && ns <= TIMELINE_NS_MAX;
}

typedef enum TrackKind {
    TRACK_STREAM, /* GPU work, in order */
    TRACK_HOST,   /* the thread that launches; or a CPU thread of a recorded trace */
    TRACK_STEPS,  /* one span per optimizer step */
    TRACK_COUNTER,
    TRACK_KIND_N
} TrackKind;

/* What a span is.  Metrics look at nothing else. */
typedef enum SpanClass {
    SPAN_COMPUTE, /* a GPU kernel that is not communication */
    SPAN_COMM,    /* collective kernel */
    SPAN_P2P,     /* send and receive kernel; communication too */
    SPAN_MEMORY,  /* copy or set */
    SPAN_LAUNCH,  /* host: kernel launch */
    SPAN_HOST,    /* host: anything else */
    SPAN_SYNC,    /* host or stream waiting, or a stream told to */
    SPAN_STEP,
    SPAN_NOTE, /* user annotation */
    SPAN_CLASS_N
} SpanClass;

extern const char *const track_kind_names[TRACK_KIND_N]; /* "stream", "host", ... */
extern const char *const span_class_names[SPAN_CLASS_N]; /* "compute", "comm", ... */

typedef struct Track {
    uint32_t name; /* interned */
    uint32_t rank;
    TrackKind kind;
    uint32_t ranks_n; /* ranks this one stands for (folded simulation), else 1 */
    int64_t sort; /* order of tracks within a rank; the stream or thread id where recorded */
    /* after timeline_seal */
    uint64_t span_first, span_n;
    uint64_t point_first, point_n; /* of a TRACK_COUNTER */
    uint32_t lanes_n;              /* > 1 when spans overlap; 0 without spans */
} Track;

/* One end of a collective or of a send/receive pair.  The same bytes on disk (native.h). */
typedef struct Comm {
    uint32_t op;                  /* interned: "all_reduce", "send", ... */
    uint32_t group;               /* interned: "dp", "tp", or a process group's name; or NONE */
    uint32_t group_id;            /* which group of that name, equal on all members; or NONE */
    uint32_t seq;                 /* n-th on this group (p2p: on this pair); or NONE */
    uint32_t peer;                /* p2p: the other rank, of the world; NONE otherwise */
    uint32_t ranks_n;             /* members; 0 unknown */
    uint32_t dtype;               /* interned: "bf16", ... (core/dtype.h); or NONE */
    uint32_t algorithm, protocol; /* interned: "ring", "LL128", ...; or NONE */
    uint32_t launch;              /* of its kernel: number of a KernelLaunch, + 1; 0 unknown */
    uint64_t bytes;               /* as nccl-tests counts them; NONE_U64 unknown */
    int64_t wait_ns; /* first part of the span, spent waiting for others; -1 unknown */
} Comm;

/* Everything unknown but op. */
Comm comm_of(uint32_t op);
bool comm_op_is_p2p(const char *op); /* "send", "recv" or "send_recv" */

/* How a kernel was launched.  Few differ in a trace: each stands once in Timeline.launches,
 * and the same bytes on disk (native.h). */
typedef struct KernelLaunch {
    uint32_t grid[3], block[3]; /* blocks, threads of one */
    uint32_t registers_n;       /* of a thread; NONE_U32 unknown, as what follows */
    uint32_t shared_bytes;      /* of a block, static and dynamic */
    uint32_t occupancy_pct;     /* as the profiler estimates it */
} KernelLaunch;

enum { TIMELINE_LAUNCHES_MAX = 1 << 20 };
#define TIMELINE_LAUNCH_FIRST 0x80000000u

/*
 * What of a model a kernel does, whatever stack of software it is of: numbers of logical ops
 * (core/graph.h) of an instance of a segment, which has the same key in every graph that has it
 * (core/graph_spans.h).  One number and instance: one logical op of a rank's step.
 */
typedef struct LogicalOps {
    uint64_t instance; /* below 2^44 */
    uint32_t n;        /* 0: nobody says */
    const uint32_t *op;
} LogicalOps;

enum {
    TIMELINE_LOGICAL_BITS = 20,
    TIMELINE_LOGICAL_LISTS_MAX = 1 << TIMELINE_LOGICAL_BITS,
    TIMELINE_LOGICAL_OPS_MAX = 256 /* of one kernel */
};
#define TIMELINE_LOGICAL_INSTANCES ((uint64_t)1 << (64 - TIMELINE_LOGICAL_BITS))

typedef struct Timeline {
    Interner names;
    const char *name; /* what ran: scenario or file; NULL unknown.  timeline_set_name */

    uint32_t ranks_n; /* world size, which may exceed the ranks that have tracks */
    uint32_t tracks_n, tracks_cap;
    Track *tracks;

    /* Spans, by column. */
    uint64_t spans_n, spans_cap;
    int64_t *start_ns;
    int64_t *dur_ns; /* >= 0 */
    uint32_t *span_name;
    uint32_t *span_track;
    uint32_t *op;   /* op id (core/graph.h), NONE_U32 where unknown */
    uint32_t *comm; /* index into comms; of others NONE_U32, or from TIMELINE_LAUNCH_FIRST on
                       into launches: read it by timeline_comm_of, timeline_launch_of */
    uint8_t *span_class;
    uint8_t *lane; /* within the track, after timeline_seal; 255 = 255 or more */

    /* Optional columns, NULL unless asked for: timeline_want, timeline_set_op_name,
     * timeline_set_logical. */
    uint64_t *correlation; /* launch <-> kernel; NONE_U64 unknown */
    uint32_t *op_name; /* interned: what a graph calls the op whose kernel this is; or NONE */
    uint64_t *args_offset; /* byte offset of the event in the file read; NONE_U64 unknown */
    uint64_t *logical;     /* read it by timeline_logical_of; NONE_U64 unknown */

    uint32_t comms_n, comms_cap;
    Comm *comms;
    uint32_t launches_n, launches_cap;
    KernelLaunch *launches;
    uint32_t *launch_slots, launch_slots_n; /* finds equal ones while it is built */
    uint32_t rings_n, rings_cap;
    uint32_t *comm_ring; /* by comm, the first rings_n: see timeline_ring_steps */
    uint32_t logical_lists_n, logical_lists_cap;
    uint32_t *logical_lists; /* numbers of logical ops, one list behind the other, n first */
    uint32_t *logical_slots, logical_slots_n;

    /* Counter points: value of a TRACK_COUNTER from at_ns on. */
    uint64_t points_n, points_cap;
    uint32_t *point_track;
    int64_t *point_ns;
    double *point_value;

    bool sealed;
    int64_t begin_ns, end_ns; /* after timeline_seal, over spans and points; 0 when empty */

    void *backing; /* when set, owns every column, comms and points (tracks and names not) */
    void (*backing_free)(void *backing);
} Timeline;

void timeline_set_name(Timeline *t, const char *name);

/* Always a new track: callers keep their own map from stream ids to tracks. */
uint32_t timeline_track(Timeline *t, uint32_t rank, TrackKind kind, const char *name,
                        int64_t sort);

typedef struct Span {
    uint32_t track, name; /* name interned in t->names */
    SpanClass class_;
    int64_t start_ns, dur_ns;
    uint32_t op;   /* NONE_U32 unknown */
    uint32_t comm; /* from timeline_comm, or NONE_U32 */
} Span;

/*
 * Appends a span, in any order; returns its index, valid until timeline_seal.
 * The optional columns hold NONE_U64 there: t->correlation[i] = id; sets one.
 */
uint64_t timeline_span(Timeline *t, Span span);
uint32_t timeline_comm(Timeline *t, Comm comm);
/* What a span is found to say later: keeps its launch. */
void timeline_set_comm(Timeline *t, uint64_t span, Comm comm);
/* For a span that has another name of its own, as kernels have. */
void timeline_set_op_name(Timeline *t, uint64_t span, uint32_t name);
/* The number of an equal KernelLaunch, or of a new one; NONE_U32 beyond TIMELINE_LAUNCHES_MAX. */
uint32_t timeline_launch(Timeline *t, const KernelLaunch *launch);
/* How a span's kernel was launched, also where it has a Comm, which is its own then. */
void timeline_set_launch(Timeline *t, uint64_t span, uint32_t launch);
/* Nothing, where there are too many different lists, or too many numbers in one. */
void timeline_set_logical(Timeline *t, uint64_t span, LogicalOps of);
/* That a comm is one of so many steps of a ring, of which each takes its part of the time that one
 * collective of all their bytes would take. */
void timeline_set_ring(Timeline *t, uint32_t comm, uint32_t steps);
void timeline_point(Timeline *t, uint32_t track, int64_t at_ns, double value);
/*
 * Room for that many spans, so that columns need not grow; for readers who can guess
 * from the size of a file.  Pages that are never written cost nothing.
 */
void timeline_reserve(Timeline *t, uint64_t spans_n);
/* Allocates the optional columns; before the first span. */
void timeline_want(Timeline *t, bool correlation, bool args_offset);

/*
 * Sorts spans by (track, start, longer first, insertion) and counter points by
 * (track, time, insertion), gives lanes, fills what Track and Timeline hold
 * "after timeline_seal".  Idempotent.  Tracks in order already are not sorted.
 *
 * Lanes (core/lanes.h), on every kind of track: a span gets the lowest lane that
 * is free at its start, so spans of one lane never overlap.  Where spans nest,
 * as calls on a host thread do, the lane is the nesting depth:
 *
 *     lane 0   |-- step -------------------------|      spans of a stream in order
 *     lane 1     |- forward ------| |- backward -|      are all in lane 0
 *     lane 2       |gemm| |gemm|      |gemm|
 *
 * Takes 16 bytes a span of scratch memory, 24 more for those of a track out of
 * order.  Measured with 10 million spans: 0.1 s in order already, 0.9 s when 64
 * tracks come interleaved, 2.4 s on one track in random order.
 */
void timeline_seal(Timeline *t);

/*
 * Whether a sealed timeline is as timeline_seal leaves it: every index within
 * its table, tracks covering all spans in order, times in range.  For what came
 * from outside; false and a sentence otherwise ("span 17 has name 900 of 12").
 */
bool timeline_check(const Timeline *t, Err *err);
/* The part of it that does not look at spans, points and comms: as many steps as tracks. */
bool timeline_check_tracks(const Timeline *t, Err *err);

int64_t timeline_end_ns(const Timeline *t);   /* largest end, 0 when empty */
int64_t timeline_begin_ns(const Timeline *t); /* smallest start, 0 when empty */
void timeline_free(Timeline *t);

/* ---- reading, also from a mapped file that nobody has checked yet ---- */

/* Interned text; "" for NONE_U32 and for ids that do not exist. */
static inline const char *timeline_text(const Timeline *t, uint32_t id)
{
    return id < t->names.n ? t->names.text[id] : "";
}

/* What a graph calls the span's op, "" where nobody says. */
static inline const char *timeline_op_name(const Timeline *t, uint64_t span)
{
    return t->op_name ? timeline_text(t, t->op_name[span]) : "";
}

/* What the span says about communication, NULL when it says nothing. */
static inline const Comm *timeline_comm_of(const Timeline *t, uint64_t span)
{
    return t->comm[span] < t->comms_n ? &t->comms[t->comm[span]] : NULL;
}

/* Of how many steps of a ring a communication of t is one; 0: it is alone, or nobody says. */
static inline uint32_t timeline_ring_steps(const Timeline *t, const Comm *c)
{
    uint64_t i = (uint64_t)(c - t->comms);
    return i < t->rings_n ? t->comm_ring[i] : 0;
}

/* What of a model the span's kernel does; n 0 where nobody says. */
LogicalOps timeline_logical_of(const Timeline *t, uint64_t span);

/* Which classes n spans from first on have: bit SpanClass of each, SPAN_CLASS_N for unknown. */
uint32_t timeline_class_set(const Timeline *t, uint64_t first, uint64_t n);

/* How many ranks took part, 0 where nothing says so: a rank by itself may be one of many, unless it
 * is lockstep's own, whose kernels have ops: those have all ranks. */
uint32_t timeline_world_size(const Timeline *t);

/* How its kernel was launched, NULL where that is not known. */
static inline const KernelLaunch *timeline_launch_of(const Timeline *t, uint64_t span)
{
    uint32_t c = t->comm[span];
    uint32_t n = c < t->comms_n ? t->comms[c].launch - 1 : c - TIMELINE_LAUNCH_FIRST;
    return n < t->launches_n ? &t->launches[n] : NULL;
}

/* Part of the span spent waiting: 0 where unknown, never more than the span. */
static inline int64_t timeline_wait_ns(const Timeline *t, uint64_t span)
{
    const Comm *c = timeline_comm_of(t, span);
    return c ? max_i64(0, min_i64(c->wait_ns, t->dur_ns[span])) : 0;
}

/*
 * Bytes over the busiest link per byte of size, of a collective among so many ranks:
 * 2(n-1)/n, (n-1)/n, or 1 (doc/PERFORMANCE.md of nccl-tests).
 */
double timeline_busbw_factor(const char *op, uint32_t ranks_n);

/*
 * Bus bandwidth in bytes/ns (= GB/s) of a collective that was transferred in transfer_ns, as
 * nccl-tests defines it; 0 where bytes, members or time are unknown.
 */
double timeline_busbw_over(const Timeline *t, uint64_t span, int64_t transfer_ns);

/* The same over the span without what the trace itself calls its wait. */
double timeline_busbw_bytes_per_ns(const Timeline *t, uint64_t span);

/*
 * Fills order[tracks_n] with track numbers as people want to see them: by rank;
 * within it steps, streams, counters, host threads; each by sort, then as added.
 */
void timeline_track_order(const Timeline *t, uint32_t *order);

#endif

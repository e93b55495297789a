/*
 * kineto_parts.h - what the files of the Kineto reader share; nobody else's.
 *
 *     kineto.c         the document: window, top level, damaged events
 *     kineto_event.c   one event's members
 *     kineto_add.c     an event becomes spans, points, names
 *     kineto_own.c     names of processes and threads; what chrome_write added to them
 *     kineto_tracks.c  which track (pid, tid) or (device, stream) is
 *     kineto_names.c   each distinct name once: interned and classified
 *     kineto_comm.c    what is known about a communication kernel
 *     kineto_launch.c  grid, block and what else a kernel was launched with
 */
#ifndef LOCKSTEP_TRACES_KINETO_PARTS_H
#define LOCKSTEP_TRACES_KINETO_PARTS_H

#include "traces/kineto.h"
#include "traces/scan.h"

/*
 * kineto_read of a file's bytes in memory.  window_bytes is the window's size at first, one
 * byte at least: what is read does not depend on it, and tests make sure.
 */
bool kineto_read_bytes(Timeline *t, TraceInfo *info, const void *bytes, size_t n,
                       const char *name, size_t window_bytes, const Rules *rules, Err *err);

/* ---- an event as it stands in the text ---- */

/* Members of args that mean something to us; the rest is passed over. */
typedef enum Arg {
    ARG_CORRELATION,
    ARG_STREAM,
    ARG_DEVICE,
    /* collectives, as Kineto names them */
    ARG_COLLECTIVE,
    ARG_IN_NELEMS,
    ARG_OUT_NELEMS,
    ARG_DTYPE,
    ARG_GROUP_SIZE,
    ARG_PG_NAME,
    ARG_PG_DESCRIPTION,
    ARG_PG_RANKS,
    ARG_SEQ,
    ARG_SRC_RANK,
    ARG_DST_RANK,
    ARG_INPUT_DIMS,
    ARG_INPUT_TYPE,
    /* how a kernel was launched */
    ARG_GRID,
    ARG_BLOCK,
    ARG_REGISTERS,
    ARG_SHARED,
    ARG_OCCUPANCY,
    /* [memory] */
    ARG_DEVICE_TYPE,
    ARG_DEVICE_ID,
    ARG_TOTAL_ALLOCATED,
    ARG_TOTAL_RESERVED,
    /* M */
    ARG_NAME,
    ARG_LABELS,
    /* chrome_write's own */
    ARG_OP,
    ARG_OP_NAME,
    ARG_LOGICAL,
    ARG_GROUP,
    ARG_GROUP_ID,
    ARG_RANKS,
    ARG_OWN_SEQ,
    ARG_PEER,
    ARG_BYTES,
    ARG_ALGORITHM,
    ARG_PROTOCOL,
    ARG_WAIT_US,
    ARG_RING_STEPS,
    ARG_KIND,
    ARG_SORT,
    ARG_TRACK,
    ARG_STANDS_FOR,
    ARG_RANK,
    ARG_CLASS,
    ARG_N
} Arg;

typedef enum Cat {
    CAT_UNKNOWN,
    CAT_KERNEL,
    CAT_MEMORY,
    CAT_GPU_SYNC, /* cuda_sync, cuda_event */
    CAT_GPU_NOTE,
    CAT_HOST,
    CAT_RUNTIME, /* cuda_runtime, cuda_driver, ... */
    CAT_NOTE,    /* user_annotation */
    CAT_TRACE,
    CAT_WAIT /* chrome_write's waiting part of a collective */
} Cat;

/* Members of an event; the same order as in Event. */
typedef enum Member {
    MEMBER_PH,
    MEMBER_NAME,
    MEMBER_CAT,
    MEMBER_PID,
    MEMBER_TID,
    MEMBER_TS,
    MEMBER_DUR,
    MEMBER_ID,
    MEMBER_ARGS,
    MEMBER_OTHER,
    MEMBER_N
} Member;

/*
 * What stood between values in the events before, from the end of one to the beginning of the
 * next: `, "ts": `.  Writers lay all events of a kind out alike, so what follows is compared
 * with what followed last time, at once, instead of being scanned and looked up.  The same
 * bytes mean the same, so this changes no result.
 */
enum { LAYOUT_NODES_MAX = 250, LAYOUT_TEXT_BYTES = 48, LAYOUT_WAYS = 4 };

typedef struct LayoutNode {
    uint8_t text[LAYOUT_TEXT_BYTES];
    uint32_t need;             /* a bit for each of the first 32 bytes of text */
    uint8_t next[LAYOUT_WAYS]; /* what followed; 0: nothing more is known */
    int32_t number;
    uint32_t n;
} LayoutNode;

typedef struct Layout {
    LayoutNode node[LAYOUT_NODES_MAX];
    uint32_t nodes_n; /* made so far */
} Layout;

typedef struct Event {
    uint64_t offset;
    uint8_t ph; /* 0: none */
    union {
        ScanText member[MEMBER_N];
        struct {
            ScanText phase, name, cat, pid, tid, ts, dur, id, args, other;
        };
    };
    uint64_t args_seen; /* bit by Arg */
    ScanText arg[ARG_N];
    Layout layout; /* stays from event to event; begin with zeros */
} Event;

static inline bool event_has(const Event *e, Arg arg)
{
    return e->args_seen >> arg & 1;
}

/* Before the first event. */
void event_prepare(void);
/* Reads the event at s->at.  False with s->problem, or when bytes are missing. */
bool event_scan(Scan *s, Event *e);
/* Value of an arg that is a whole number (in quotes too); false when it is not there. */
bool event_whole(const Event *e, Arg arg, int64_t *value);
Cat event_cat(const Event *e);

/* ---- names ---- */

typedef struct Name {
    const uint8_t *raw; /* as in the text, in the arena */
    uint32_t raw_n;
    uint32_t hash;
    uint32_t id;           /* interned in the timeline */
    uint32_t rule;         /* of a kernel; NONE_U32: no communication */
    bool is_step;          /* ProfilerStep#N */
    bool is_memory_copy;   /* Memcpy..., Memset... */
    bool is_collective;    /* an operator that encloses launches of collectives */
    bool is_memory_total;  /* [memory] */
    uint8_t runtime_class; /* SpanClass as a runtime call */
    /* what the name of a communication kernel says; interned, NONE_U32 */
    uint32_t op, algorithm, protocol, dtype;
} Name;

typedef struct Names {
    Name *name;
    uint32_t n, cap;
    uint32_t *slot; /* open addressing: number + 1 */
    uint32_t slots_n;
    Arena arena;
} Names;

/* ---- tracks ---- */

/* A process, thread, device or stream id: a number, or a text by its interned id. */
typedef struct Id {
    int64_t value;
    bool text, absent;
} Id;

/* The id read last, and its text: most events have it again. */
typedef struct IdMemo {
    uint8_t text[16];
    uint32_t n; /* 0: none */
    Id id;
} IdMemo;

typedef enum PlaceKind {
    PLACE_THREAD,   /* (pid, tid) on the host */
    PLACE_STREAM,   /* (device, stream) */
    PLACE_DEVICE,   /* the same of XLA's profiler, where each device is a rank */
    PLACE_ODD,      /* host rows that name a (device, stream) */
    PLACE_UNNAMED,  /* GPU rows without a stream: (pid, tid) */
    PLACE_ASYNC,    /* (pid, cat) */
    PLACE_ASYNC_ID, /* (track of the former, id): holds open spans only */
    PLACE_COUNTER,  /* (pid, name), series */
    PLACE_STEPS,    /* the rank's */
    PLACE_PROCESS,  /* holds names only */
    PLACE_DECLARED, /* (pid, tid) that chrome_write has described */
    PLACE_NUMBERED, /* its track's number */
    PLACE_KIND_N
} PlaceKind;

typedef struct Place {
    PlaceKind kind;
    Id first, second;
    uint32_t track; /* NONE_U32: no span yet */
    uint32_t name;  /* given by an M event; NONE_U32 */
    uint32_t open;  /* innermost B without E, NONE_U32; index into Kineto.open */
    uint32_t rank;  /* of a process, by chrome_write; NONE_U32 */
    int64_t
        number; /* of a process of XLA's profiler its device, of a thread its stream; or -1 */
} Place;

typedef struct Places {
    Place *place;
    uint32_t n, cap;
    uint32_t *slot;
    uint32_t slots_n;
    uint32_t last[PLACE_KIND_N]; /* found last */
    Interner keys;               /* ids that are texts */
} Places;

/* ---- communication whose arguments stand elsewhere ---- */

/* An operator that encloses launches: record_param_comms, nccl:all_reduce. */
typedef struct CollectiveOp {
    uint32_t track;
    int64_t start_ns, end_ns;
    Comm comm;      /* what it says; comm.op NONE_U32 when not that */
    bool by_inputs; /* bytes are those of its input tensors */
} CollectiveOp;

/* A communication kernel without arguments of its own. */
typedef struct BareKernel {
    uint64_t span, correlation;
} BareKernel;

typedef struct OpenSpan {
    uint32_t outer; /* the one it lies in, or the next free one */
    uint32_t name;
    int64_t start_ns;
    uint64_t offset, correlation;
    uint8_t class_;
    uint64_t span; /* of GPU work, which is there already; NONE_U64: made when it ends */
} OpenSpan;

typedef struct Kineto {
    Timeline *t;
    TraceInfo *info;
    const Rules *rules;
    Names names;
    Places places;
    CollectiveOp *collectives;
    uint64_t collectives_n, collectives_cap;
    BareKernel *bare;
    uint64_t bare_n, bare_cap;
    OpenSpan *open;
    uint32_t open_n, open_cap, open_free; /* open_free: chain of free ones */
    int64_t latest_ns;                    /* end of what has been read, for B without E */
    IdMemo pid_memo, tid_memo;
    char *text; /* scratch, as long as the longest name */
    size_t text_cap;
    bool from_us; /* written by chrome_write */
} Kineto;

/* NULL when all went well, else why the event is damaged. */
const char *kineto_add(Kineto *k, const Event *e);
/* After the last event of a document: what is still open, what kernels belong to. */
void kineto_end_document(Kineto *k, uint64_t first_span);
void kineto_free(Kineto *k);

/* A text without its escapes, interned. */
uint32_t kineto_intern(Kineto *k, const ScanText *v);
Id kineto_id(Kineto *k, const ScanText *v);
Id kineto_pid(Kineto *k, const Event *e);
Id kineto_tid(Kineto *k, const Event *e);
const Name *kineto_name(Kineto *k, const ScanText *v);

uint32_t place_find(Kineto *k, PlaceKind kind, Id first, Id second); /* NONE_U32 */
uint32_t place_get(Kineto *k, PlaceKind kind, Id first, Id second);  /* made if need be */
/* The track of a place, made if need be. */
uint32_t place_track(Kineto *k, uint32_t place);
void places_name_tracks(Kineto *k);
/* Where there are several of XLA's devices, tracks of theirs get those as ranks; else false. */
bool places_give_devices(Kineto *k);
/* Tracks that chrome_write has not described get the rank of their process. */
void places_give_ranks(Kineto *k);

/* An event on a track that chrome_write has described. */
const char *kineto_add_declared(Kineto *k, const Event *e, uint32_t place);
/* thread_name, process_name, process_labels ... */
void kineto_add_names(Kineto *k, const Event *e);
/* Span of this class, with the event's correlation and offset; its number. */
uint64_t kineto_span(Kineto *k, const Event *e, Span span);

/* What e's arguments say; false when they do not speak of communication. */
bool comm_of_args(Kineto *k, const Event *e, Comm *comm);
/* Gives the span of a kernel what e's arguments say of its launch, if they do. */
void kineto_launch(Kineto *k, const Event *e, uint64_t span);
/* Fills what a kernel's name says; then it can be had for each of its kernels. */
void comm_read_name(Kineto *k, Name *name);
void comm_of_name(const Name *name, Comm *comm);
void comm_note_operator(Kineto *k, const Event *e, const Name *name, uint32_t track,
                        int64_t start_ns, int64_t dur_ns);
/*
 * Gives bare kernels what the operators around their launches say, and makes kernels whose
 * names no rule knows communication where they were launched within a collective.
 */
void comm_resolve(Kineto *k, uint64_t first_span);

#endif

/*
 * records_parts.h - a recording while it is read; only for records*.c.
 *
 * The file is walked twice.  First what others are joined with is collected: texts, clocks,
 * labels, nodes of graphs, calls, NCCL's words.  Then every record that has a time becomes
 * a span.  Last, NCCL's words without a launch find their kernels.
 */
#ifndef LOCKSTEP_PROFILE_RECORDS_PARTS_H
#define LOCKSTEP_PROFILE_RECORDS_PARTS_H

#include "profile/records.h"

enum { JOINS_N = 17 };

/* Things found by a key, of which the one nearest in the file is meant. */
typedef struct JoinRow {
    uint64_t key, order, value; /* order: byte of the file */
} JoinRow;

typedef struct Join {
    JoinRow *row;
    uint64_t n, cap;
} Join;

void join_add(Join *j, uint64_t key, uint64_t order, uint64_t value);
void join_sort(Join *j);
/* The row with this key nearest to order; NULL there is none.  Sorted. */
const JoinRow *join_nearest(const Join *j, uint64_t key, uint64_t order);
/* The first row with this key behind order; NULL. */
const JoinRow *join_next(const Join *j, uint64_t key, uint64_t order);

static inline uint64_t group_key(uint32_t group, uint32_t comm)
{
    return (uint64_t)group << 32 | comm;
}

/* Which rank a stream or a thread is of. */
typedef struct Owner {
    uint32_t device, context, stream, rank; /* a thread: device NONE_U32, stream its id */
    uint32_t track;                         /* NONE_U32 not made yet */
} Owner;

/* A kernel that is communication by its name only. */
typedef struct BareKernel {
    uint64_t span;
    int64_t called_ns; /* of its launch, CUPTI's clock */
    uint32_t thread;
} BareKernel;

typedef struct CommCounter {
    uint32_t comm, next;
} CommCounter;

/* What a kernel's name says, once for each text. */
typedef struct Said {
    bool asked, talks;
    SpanClass class_;
    uint32_t op, dtype; /* interned */
} Said;

typedef struct Records {
    const uint8_t *bytes;
    uint64_t n;       /* of which records are walked: up to the first that makes no sense */
    const char *name; /* of the file */
    const RecordsOptions *o;
    RecordsInfo *info;
    Timeline *t;
    uint32_t rank; /* where no op says another */

    const char **text; /* by number; NULL: none of that number */
    uint32_t texts_cap;
    uint32_t *interned; /* by number: id in t->names + 1; 0 not yet */
    Said *said;         /* by number */
    RawClock first, last;
    uint32_t clocks_n;
    int64_t end_ns; /* latest time in the file, CUPTI's clock */

    union {
        struct {
            Join ops, launches;           /* correlation -> label's id */
            Join node_ops, node_launches; /* node -> label's id */
            Join clones;                  /* node -> the one it is a copy of */
            Join calls;                   /* correlation -> byte of the RawCall */
            Join mark_ends;               /* id -> time */
            Join threads, devices;        /* number -> text */
            Join comms, nccl_calls;       /* number -> byte */
            Join nccl_launches;           /* number -> byte */
            Join group_launches;          /* group, comm -> number of a launch */
            Join group_calls;             /* group, comm -> byte of the RawNcclCall */
            Join tasks;                   /* launch -> byte of the RawNcclTask */
            Join loose_tasks;             /* thread -> byte */
            Join launch_seqs;             /* launch -> its number on its communicator */
        };
        Join joins[JOINS_N]; /* the same */
    };

    CommCounter *counter;
    uint32_t counters_n, counters_cap, counter_last;

    Owner *owner;
    uint32_t owners_n, owners_cap, owner_last;
    uint32_t steps_track, waits_track, costs_track;
    BareKernel *bare;
    uint64_t bare_n, bare_cap;
} Records;

_Static_assert(offsetof(Records, counter) - offsetof(Records, joins) == JOINS_N * sizeof(Join),
               "joins are all there");

void records_find(RecordsInfo *info, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The record at a byte, whole and at least as long as its kind is; NULL at the end. */
const RawTop *records_at(const Records *r, uint64_t at);
/* A text of the file, "?" when it is not there; and as a name of the timeline. */
const char *records_text(const Records *r, uint32_t number);
uint32_t records_name(Records *r, uint32_t number);

/* records_clock.c: a time of the file on the clock that was asked for. */
void records_clock_settle(Records *r);
int64_t records_time(const Records *r, int64_t cupti_ns);

/* records_spans.c */
void records_spans(Records *r);

/* records_nccl.c: words of NCCL. */
void records_nccl_settle(Records *r);
/* What NCCL said about the launch; false: nothing. */
bool records_nccl_comm(Records *r, uint32_t launch, Comm *comm);
/* NCCL's words that name no launch, to the kernels that have none. */
void records_nccl_loose(Records *r);

#endif

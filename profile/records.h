/*
 * records.h - the collector's recordings (records_format.h) become Timelines.
 *
 *     GPU                                       becomes
 *     kernel                                    span on its stream; its name says whether it
 *                                               is communication (RecordsWords)
 *     copy, set                                 SPAN_MEMORY
 *     host
 *     call of the runtime or the driver         span of the thread: launch, sync, host
 *     synchronisation                           SPAN_SYNC on the rank's track "waits"
 *     NVTX range, mark                          SPAN_NOTE of the thread; "step 3" also a step
 *     overhead                                  SPAN_HOST on the track "collector"
 *
 * OPS.  A kernel's op is the label of the call that launched it, joined by correlation id;
 * in a CUDA graph that of its node, or of the node that this one is a copy of.  Correlation
 * ids have 32 bits and come round again: of several calls with one id the nearest in the
 * file is meant.
 *
 * COMMUNICATION.  What NCCL itself says (its profiler plugin) is joined by the label of the
 * launch: collective, bytes, type, algorithm, protocol, sequence number, group.  A kernel
 * whose launch NCCL says nothing about is the next one of that thread's (older NCCL), or
 * has what its name says; algorithm and protocol are never taken from the name.
 *
 * TIMES come out on the wall clock, ns since 1970, or CLOCK_MONOTONIC.  CUPTI's clock is
 * mapped by a line through the first and the last RawClock: both clocks are slewed, so they
 * drift apart by some parts in 10^5.  A line steeper than CLOCK_DRIFT_MAX means that the
 * wall clock was set meanwhile: then only the first is used, and a finding says so.
 *
 * DAMAGE.  What was written before a crash is used; a record that makes no sense ends the
 * reading with a finding, never an error.  Only a file that is no recording is an error.
 */
#ifndef LOCKSTEP_PROFILE_RECORDS_H
#define LOCKSTEP_PROFILE_RECORDS_H

#include "core/timeline.h"
#include "profile/records_format.h"

enum { RECORDS_FINDINGS_MAX = 8, RECORDS_TEXT_BYTES = 200 };
#define CLOCK_DRIFT_MAX 1e-3

/* What a kernel's name says; given by the caller, who knows the rules (traces/rules.h). */
typedef struct RecordsWords {
    void *user;
    /* false: no communication.  op: "all_reduce" ...; dtype may be NULL. */
    bool (*comm)(void *user, const char *kernel, SpanClass *class_, const char **op,
                 const char **dtype);
} RecordsWords;

/* Which rank of the world is which member of a communicator; filled by reading recordings. */
typedef struct RecordsMember {
    uint32_t group_id, member, rank;
} RecordsMember;

typedef struct RecordsMembers {
    RecordsMember *member;
    uint32_t n, cap;
} RecordsMembers;

typedef struct RecordsOptions {
    RecordsWords words;
    uint32_t rank;  /* of spans whose op says none; NONE_U32: as the head says, else 0 */
    bool monotonic; /* times on CLOCK_MONOTONIC instead of the wall clock */
    /* Ranks are those in the ops (several ranks in one process), below the head's world. */
    bool ranks_in_ops;
    /* Only what ran on the GPU, and the calls that launched it or waited for it: no other calls,
     * no waits of streams, no marks. */
    bool gpu_only;
    int64_t from_ns;         /* what began earlier, on the clock asked for, is left out */
    const char *process;     /* put before names of tracks; NULL none */
    RecordsMembers *members; /* gets this recording's; NULL */
} RecordsOptions;

typedef struct RecordsInfo {
    RawHead head; /* counts of the file's last batch */
    uint64_t unknown_n;
    uint64_t kernels_n, comm_kernels_n, copies_n, calls_n, notes_n, events_n;
    uint64_t untimed_n;       /* kernels and copies without a time: CUPTI lost it */
    uint64_t labelled_n;      /* kernels and copies with an op */
    uint64_t nccl_n;          /* kernels that NCCL said something about */
    int64_t begin_ns, end_ns; /* of what ran on the GPU; 0 nothing did */
    /* What recording took of the program's threads while the GPU was at work, from begin_ns to
     * end_ns: CUPTI's records of it.  Not its start-up, nor what a program does without it too:
     * modules are loaded, kernels compiled, queues of commands full. */
    int64_t cost_ns;
    double drift;                     /* of CUPTI's clock against the other, as a part */
    bool cut_short;                   /* ends in the middle of a record, or in nonsense */
    char device[RECORDS_TEXT_BYTES];  /* name of the first GPU; "" unknown */
    char trouble[RECORDS_TEXT_BYTES]; /* the collector's own sentence; "" none */
    char finding[RECORDS_FINDINGS_MAX][RECORDS_TEXT_BYTES]; /* sentences a user should read */
    uint32_t findings_n;
} RecordsInfo;

/*
 * Adds a recording to t, which is not sealed; several may be added to one.  If t is empty it
 * gets its correlation column first.  info may not be NULL.
 */
bool records_read(Timeline *t, RecordsInfo *info, const char *path, const RecordsOptions *o,
                  Err *err);
/* The same of a file in memory, aligned to 8 bytes; name is for messages. */
bool records_read_bytes(Timeline *t, RecordsInfo *info, const void *bytes, uint64_t n,
                        const char *name, const RecordsOptions *o, Err *err);
/*
 * When all recordings are in t: peers, which NCCL counts within a communicator, become ranks of
 * the world.  One whose recording is missing is the same number in a communicator of t->ranks_n
 * ranks, else unknown.
 */
void records_settle_peers(Timeline *t, RecordsMembers *members);

/* Only the head; and whether the recording is idle: nothing ran on a GPU, and no sentence of the
 * collector's says why. */
bool records_head(RawHead *head, bool *idle, const char *path, Err *err);

#endif

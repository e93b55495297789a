/*
 * info.h - what a reader says about a file besides its Timeline.
 *
 * A TraceInfo is plain data of fixed size: a reader fills what it knows, { 0 }
 * with trace_info_clear() is "nothing known", and nothing in it is freed.
 */
#ifndef LOCKSTEP_TRACES_INFO_H
#define LOCKSTEP_TRACES_INFO_H

#include "core/timeline.h"

enum {
    TRACE_DAMAGE_KEPT = 8,
    TRACE_RULES_MAX = 128,
    TRACE_DEVICE_BYTES = 64,
    TRACE_NOTE_BYTES = 160
};

/* An event that could not be read. */
typedef struct TraceDamage {
    uint64_t offset; /* byte of the file, unpacked, where the event begins; NONE_U64: no text */
    const char *reason; /* a literal: "the number is out of range" */
} TraceDamage;

typedef struct TraceInfo {
    uint32_t rank;       /* what the file says; NONE_U32 when it does not */
    uint32_t world_size; /* 0 unknown */
    /* Its ranks are processes or devices, from 0 on: which of the run's, it does not know. */
    bool ranks_counted;
    bool wall_clock; /* times are nanoseconds since 1970: comparable between files */
    int64_t base_ns; /* what was added to the times as the file has them, 0 nothing */

    uint64_t events_read, events_skipped;  /* skipped = damaged; what is never shown is read */
    TraceDamage damage[TRACE_DAMAGE_KEPT]; /* the first ones */
    uint32_t damage_n;
    bool cut_short;       /* the file ends in the middle of an event */
    const char *broken;   /* its bytes are, a literal: "its gzip data are damaged"; NULL: no */
    uint32_t documents_n; /* of JSON, one after another; 0 in other formats */

    uint64_t kernels_n;      /* GPU kernels, communication among them */
    uint64_t comm_kernels_n; /* of these: classes comm and p2p */
    /* By rule (traces/rules.h): how many kernels it made communication.  0 is "metadata"; none
       where the file says the class of each span, as those that lockstep writes do. */
    uint64_t rule_kernels_n[TRACE_RULES_MAX];

    char device[TRACE_DEVICE_BYTES]; /* "NVIDIA A100-SXM4-80GB"; "" unknown */
    char note[TRACE_NOTE_BYTES];     /* what a user should know of the file; "" nothing */
} TraceInfo;

static inline void trace_info_clear(TraceInfo *info)
{
    *info = (TraceInfo){ .rank = NONE_U32 };
}

/* Counts a skipped event and keeps where and why, if there is room. */
static inline void trace_info_damage(TraceInfo *info, uint64_t offset, const char *reason)
{
    info->events_skipped++;
    if (info->damage_n < TRACE_DAMAGE_KEPT)
        info->damage[info->damage_n++] = (TraceDamage){ offset, reason };
}

#endif

/*
 * set_parts.h - what the files of trace sets share; nobody else's.
 *
 *     set.c         reading in parallel, joining into one timeline
 *     set_ranks.c   which rank a file is
 *     set_check.c   findings: what a user should know before any number
 */
#ifndef LOCKSTEP_TRACES_SET_PARTS_H
#define LOCKSTEP_TRACES_SET_PARTS_H

#include "traces/formats.h"
#include "traces/set.h"

/* A file while it is being read. */
typedef struct SetPart {
    Timeline t;
    Err err;
    const TraceFormat *format;
    bool ok;
    bool many; /* holds several ranks */
} SetPart;

void set_find(TraceSet *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Gives each file that is used a rank.  False when two say the same, unless lenient. */
bool set_ranks(TraceSet *s, const SetPart *parts, bool lenient, Err *err);
/* The rank that a file's name says, NONE_U32 when none; with a bare number at its end or not. */
uint32_t set_rank_of_name(const char *path, bool bare_numbers);

/* Whether the files used only count their processes: then they can be counted on. */
bool set_counts_ranks(const TraceSet *s);

/* Before joining: world sizes.  False when they differ, unless lenient. */
bool set_check_worlds(TraceSet *s, bool lenient, Err *err);
/* After joining: everything that is a finding only. */
void set_check(TraceSet *s);

#endif

/*
 * control_group.h - what the control groups of this process allow (containers, Slurm), of
 * version 1 and 2: the files of its own group, and of those above it as far as they are seen.
 */
#ifndef LOCKSTEP_EXEC_CONTROL_GROUP_H
#define LOCKSTEP_EXEC_CONTROL_GROUP_H

#include "core/base.h"

/* The number behind `key` at the start of a line of the file, "" being the first line. */
bool control_group_number(const char *folder, const char *name, const char *key, uint64_t *x);

/* What the group allows whose files lie in `folder`, by version (1 or 2); NONE_U64: no limit. */
typedef uint64_t GroupLimit(const char *folder, int version);

/* The least of the groups that the process is in; controller: "memory", "cpu". */
uint64_t control_groups_least(const char *controller, GroupLimit *limit);

/* Processors' time, in whole ones, rounded up. */
GroupLimit control_group_processors;
/* Equal in processes that share all limits. */
uint64_t control_groups_digest(void);

#endif

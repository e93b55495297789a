/*
 * free_memory.h - how much memory there is, and its taking by one process at a time.
 *
 * Free is what the kernel can give without swapping (MemAvailable), and no more than the control
 * groups of this process still allow (containers, Slurm; version 1 and 2): beyond that the kernel
 * kills instead of refusing.  Ranks begin together, so each would see what all of them then take;
 * whoever takes much holds the turn while it looks and takes.
 */
#ifndef LOCKSTEP_EXEC_FREE_MEMORY_H
#define LOCKSTEP_EXEC_FREE_MEMORY_H

#include "core/base.h"

/* Bytes; NONE_U64 when that is not known. */
uint64_t free_memory_bytes(void);

/* Waits for the turn on this host, for some seconds at most; ends with the process, too.
 * Returns what free_memory_leave takes; -1 is fine there. */
int free_memory_enter(void);
void free_memory_leave(int turn);

/* Room in the control group whose files lie in `folder`, by version (1 or 2); NONE_U64: no limit.
 * For tests. */
uint64_t control_group_room(const char *folder, int version);

#endif

/*
 * nsys.h - Nsight Systems' SQLite exports (nsys export --type sqlite), plain or gzip.
 *
 * Schemas 2.9 (2022) to 3.20 (2025) have been seen; the format is not promised to
 * stay, so nothing is taken for granted but the names of tables and columns: a
 * table that is missing holds no rows, a column that is missing no value.  Of a newer
 * schema info->note says so.
 *
 *     TABLE                                  BECOMES
 *     CUPTI_ACTIVITY_KIND_KERNEL             span on the stream; communication by rules.h;
 *                                            grid, block, registers, shared memory
 *     ..._MEMCPY, ..._MEMSET                 SPAN_MEMORY on the stream
 *     ..._GRAPH_TRACE                        SPAN_COMPUTE: a CUDA graph traced as a whole
 *     ..._RUNTIME, ..._DRIVER                host span of the calling thread; launch, sync
 *     ..._SYNCHRONIZATION                    SPAN_SYNC on the process's track "waits"
 *     NVTX_EVENTS                            SPAN_NOTE of the thread; ranges and marks
 *     PROCESSES, ThreadNames, TARGET_INFO_GPU   names of tracks and of the device
 *     TARGET_INFO_SESSION_START_TIME         what is added to all times
 *
 * A file holds a whole node: each process is a rank, those with GPU work first, in
 * the order of their global ids.  Streams are told apart by (process, device,
 * stream): a device number is a process's own view, all ranks may be "device 0".
 * Times are on the wall clock where the session says when it began, else since that
 * began; correlation ids are those of the process.
 */
#ifndef LOCKSTEP_TRACES_NSYS_H
#define LOCKSTEP_TRACES_NSYS_H

#include "traces/info.h"
#include "traces/rules.h"

/* The first 16 bytes of every SQLite database decide. */
bool nsys_matches(const uint8_t *head, size_t n);

/* t is sealed then; info may be NULL.  On failure t is empty. */
bool nsys_read(Timeline *t, TraceInfo *info, const char *path, const Rules *rules, Err *err);

/* Same for a database in memory, which is changed: a journal mode in it is switched off. */
bool nsys_read_bytes(Timeline *t, TraceInfo *info, void *bytes, uint64_t n, const char *name,
                     const Rules *rules, Err *err);

#endif

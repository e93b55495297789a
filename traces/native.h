/*
 * native.h - lockstep's own trace files, "*.lstrace": a Timeline's columns as
 * they stand in memory.
 *
 * Opening maps the file and looks at its head, its names and its tracks, never
 * at its spans: a trace of any size is open in milliseconds, and only what is
 * looked at is read from disk.  Measured: 0.1 ms with 10 million spans; besides
 * that 0.1 us for each distinct name and 0.04 us for each track.
 *
 *     +--------+---------------+-------+--------+----------+--------+-- - - --+
 *     | header | section table | names | tracks | start_ns | dur_ns |   ...   |
 *     +--------+---------------+-------+--------+----------+--------+-- - - --+
 *     0        64              each section begins at a multiple of 64; gaps hold zeros
 *
 * HEADER
 *
 *     OFFSET  SIZE  DESCRIPTION
 *        0      8   89 'L' 'S' 'T' 0d 0a 1a 0a.  Not text; and a transfer that
 *                   converts line ends shows here
 *        8      4   version of the format: 1
 *       12      4   0x01020304 in the byte order of the whole file, which is the
 *                   writer's; readers of the other order refuse it
 *       16      8   size of the file in bytes
 *       24      4   number of sections, at most NATIVE_SECTIONS_MAX
 *       28      4   ranks: world size
 *       32      4   names: how many texts
 *       36      4   name of the timeline: number of a text, or ffffffff
 *       40      8   begin_ns, signed
 *       48      8   end_ns, signed
 *       56      8   checksum of header and section table, taken with zeros here
 *
 * SECTION TABLE, an entry each in the order of the file:
 *
 *     OFFSET  SIZE  DESCRIPTION
 *        0      4   kind, see below
 *        4      4   size of an element in bytes
 *        8      8   where the section begins
 *       16      8   number of elements
 *       24      8   checksum of its bytes
 *
 * SECTIONS.  All are required but those from `correlation` on; none may stand twice; a reader
 * skips kinds it does not know, so a section may be added without a new version.
 * Version 2 has `launches`, and numbers of them in `comm`; a file without is of version 1.
 *
 *     KIND  ELEMENT  NAME         DESCRIPTION
 *       1      1     names        texts, each ended by 00; the n-th has number n
 *       2     64     tracks       see below
 *       3      8     start_ns     signed; by track, start, longer first
 *       4      8     dur_ns       signed, never negative
 *       5      4     span_name    number of a text
 *       6      4     span_track   number of a track
 *       7      4     op           op id, or ffffffff
 *       8      4     comm         number of a communication, or ffffffff, or from
 *                                 80000000 on (version 2) that of a launch, + 80000000
 *       9      1     span_class   SpanClass of core/timeline.h
 *      10      1     lane         row within the track; 255 stands for more too
 *      11     56     comms        Comm of core/timeline.h
 *      12      4     point_track  number of a track
 *      13      8     point_ns     signed; by track, then time
 *      14      8     point_value  IEEE double, finite
 *      15      8     correlation  optional; launch <-> kernel, or 64 ones
 *      16     36     launches     optional; KernelLaunch of core/timeline.h
 *      17      4     op_name      optional; number of a text, what a graph calls the
 *                                 span's op, or ffffffff
 *      18      8     logical      optional, with logical_lists; what of a model the span's kernel
 *                                 does: key of an instance, times 2^20, + where its list begins;
 *                                 or 64 ones
 *      19      4     logical_lists  lists of numbers of logical ops, each behind how many it has
 *      20      4     comm_ring    optional; of the first comms: one of so many steps of a ring,
 *                                 or 0
 *
 * A TRACK
 *
 *     OFFSET  SIZE  DESCRIPTION
 *        0      4   name: number of a text
 *        4      4   rank
 *        8      4   kind: TrackKind of core/timeline.h
 *       12      4   ranks this one stands for, at least 1
 *       16      8   sort, signed: order within the rank; stream or thread id
 *       24      8   first span          tracks hold consecutive spans and points,
 *       32      8   number of spans     and all of them
 *       40      8   first point
 *       48      8   number of points
 *       56      4   lanes
 *       60      4   zero
 *
 * Numbers of enumerations never change their meaning; new ones go to the end.
 * What the checksum is stands in native.c, with a table of test values in its
 * test.  Equal timelines give equal bytes.
 */
#ifndef LOCKSTEP_TRACES_NATIVE_H
#define LOCKSTEP_TRACES_NATIVE_H

#include "core/timeline.h"

enum { NATIVE_VERSION = 2, NATIVE_VERSION_OLDEST = 1, NATIVE_SECTIONS_MAX = 64 };

/* The first 8 bytes of a file decide. */
bool native_matches(const uint8_t *head, size_t n);

/* Writes whole or not at all (core/out_file.h).  t must be sealed. */
bool native_write(const Timeline *t, const char *path, Err *err);

/*
 * Opens; t's columns then stand on the mapping, which timeline_free unmaps.  Head,
 * names and tracks have been checked, spans, points and comms have not: until
 * native_verify has said so, reach what they refer to only through the guarded
 * functions of timeline.h (timeline_text, timeline_comm_of, ...).  On failure t
 * is empty.  A file that is cut short while mapped ends the program (SIGBUS), as
 * mappings do; native_write never does that to a reader.
 */
bool native_open(Timeline *t, const char *path, Err *err);

/* Same for a file in memory, which must outlive t and be aligned to 8 bytes. */
bool native_open_bytes(Timeline *t, const void *bytes, uint64_t n, const char *name, Err *err);

/* Reads all of a timeline that native_open gave: checksums, then timeline_check. */
bool native_verify(const Timeline *t, Err *err);

/* ---- for tests that damage files on purpose ---- */

/* The checksum of the format: 64 bits over n bytes; seed 0 for sections, 1 for the head. */
uint64_t native_checksum(const void *bytes, uint64_t n, uint64_t seed);
/* Makes all checksums of a file in memory right, as far as its table makes sense. */
void native_repair_checksums(void *bytes, uint64_t n);

#endif

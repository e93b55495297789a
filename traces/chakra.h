/*
 * chakra.h - MLCommons Chakra execution traces: NAME.RANK.et (protobuf, plain or
 * gzip) and their JSON form.
 *
 * .et is a sequence of messages, each after its length as a varint: GlobalMetadata
 * { 1 version, 2 attributes }, then one Node each:
 *
 *     FIELD  NAME                  BECOMES
 *       1    id                    what dependencies refer to
 *       2    name                  the span's name
 *       3    type                  0 invalid, 1 metadata (no span), 2, 3 memory load and store,
 *                                  4 compute, 5 send, 6 receive, 7 collective
 *      4, 5  ctrl_deps, data_deps  packed or not
 *       6    start_time_micros     start
 *       7    duration_micros       duration
 *      10    attributes            { 1 name, n value }: is_cpu_op, tid, stream, comm_type,
 *                                  comm_size, comm_src, comm_dst, pg_name; others are skipped
 *
 * Nodes of a CPU go onto host tracks by tid, others onto streams.  A file is one rank.
 *
 * Most traces have durations and no start times.  Then nodes are laid out: each begins
 * when its dependencies and the node before it on its track have ended, and the
 * timeline's name says so.  Without durations too there is no timeline, but a
 * sentence that says how many nodes and dependencies there are.
 */
#ifndef LOCKSTEP_TRACES_CHAKRA_H
#define LOCKSTEP_TRACES_CHAKRA_H

#include "traces/info.h"
#include "traces/rules.h"

#define CHAKRA_LAID_OUT " (laid out by dependencies: it has no start times)"

/* Either form: a first message as above, or an object with "workload_graph". */
bool chakra_matches(const uint8_t *head, size_t n);
bool chakra_json_matches(const uint8_t *head, size_t n);

/* Either form.  t is sealed then; info may be NULL.  On failure t is empty. */
bool chakra_read(Timeline *t, TraceInfo *info, const char *path, const Rules *rules, Err *err);
bool chakra_read_bytes(Timeline *t, TraceInfo *info, const void *bytes, uint64_t n,
                       const char *name, const Rules *rules, Err *err);

#endif

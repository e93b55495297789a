/*
 * nccl_tests.h - what nccl-tests (all_reduce_perf and its siblings) printed, as rows.
 *
 *     # nccl-tests version 2.17.8 nccl-headers=22902 nccl-library=22902      newer ones
 *     # Collective test starting: all_reduce_perf                            newer ones
 *     # nThread 1 nGpus 1 minBytes 8 ...                                     a test begins
 *     #  Rank  0 Group  0 Pid 7 on HOST device  0 [0000:1b:00] NVIDIA H100   its ranks
 *     #       size  count  type redop root   time algbw busbw #wrong  (twice: out of place, in)
 *         33554432 ...                                                       a row of each
 *
 * The header says which columns follow, so every version is read: with i_min, i_max,
 * i_p99, i_cv% (-I), a time stamp (-S), cputime (-C), "error" for "#wrong" (2.0), no
 * root or redop.  Lines of others in between (NCCL's own messages, warnings, what a
 * launcher puts before each line: "[1,0]<stdout>:", "3: ") are skipped, and so is what
 * stands before the first line of a test ("node01: ", a time) and then before others.  A log may
 * hold several tests, and each may stop in the middle, even of a row.  Logs older than the line
 * "Collective test starting" say what they measured only in their file's name.
 *
 * Those of rccl-tests are alike.  Where it measured in place alone (-O 0) a row has that half,
 * which the line above the header says.
 *
 * What nccl-tests writes beside it as JSON (-J FILE) is read the same way: nccl_json.c.
 *
 * size_bytes is as nccl-tests counts it: of the buffer, of all ranks together for
 * all_gather, reduce_scatter and all_to_all.  Bandwidths are in 10^9 bytes/s.
 */
#ifndef LOCKSTEP_TRACES_NCCL_TESTS_H
#define LOCKSTEP_TRACES_NCCL_TESTS_H

#include <stdio.h>

#include "core/arena.h"
#include "core/err.h"
#include "core/timeline.h"

#define NCCL_LOG_BYTES_MAX ((uint64_t)1 << 30)
enum { NCCL_WRONG_UNKNOWN = -1 }; /* not checked: N/A */

/* Texts live in the log's arena; "" where the log does not say. */
typedef struct NcclTest {
    const char *file, *op; /* "all_reduce", "send_recv", "all_to_all", "all_to_all_v" ... */
    const char *version;   /* of nccl-tests */
    const char *library;   /* of NCCL: "2.29.2" */
    const char *gpu;       /* of the first rank */
    uint32_t ranks_n, hosts_n;
    uint32_t gpus_n;    /* most ranks on one host */
    const char **hosts; /* hosts_n, in the order met */
    uint32_t row_first, row_n;
    bool failed;       /* it ended with "Test ... failure", or wrong values were found */
    uint32_t cut_line; /* it ends within this line, which is left out; 0: it does not */
} NcclTest;

typedef struct NcclRow {
    uint32_t test;
    bool in_place, cpu_time; /* cpu_time: -C, time of the calling thread */
    bool time_from_algbw;    /* long times are printed as "1.7e+06": too few digits */
    uint64_t size_bytes;
    const char *dtype; /* as printed: "float", "bfloat16" */
    double time_us, algbw, busbw;
    int64_t wrong;     /* NCCL_WRONG_UNKNOWN */
    const char *stamp; /* "2026-01-31 12:00:00"; "" without -S */
} NcclRow;

/* NcclLog l = { 0 } is empty. */
typedef struct NcclLog {
    Arena arena;
    NcclTest *tests;
    NcclRow *rows;
    uint32_t tests_n, tests_cap, rows_n, rows_cap;
} NcclLog;

/* The beginning of a log, a line "# nThread" or "# nccl-tests version"; or of -J's JSON. */
bool nccl_log_matches(const char *head, size_t n);

/* Appends what a log or JSON (plain or gzip) holds.  One without a single row is an error. */
bool nccl_log_read(NcclLog *l, const char *path, Err *err);
bool nccl_log_parse(NcclLog *l, const char *text, size_t n, const char *name, Err *err);
void nccl_log_free(NcclLog *l);

/* A row that tells what a collective of GPUs costs: measured on as many GPUs of each host, on whole
 * nodes (nodes_n of them), by the wall clock, with values that were right. */
bool nccl_row_is_sound(const NcclTest *t, const NcclRow *r, uint32_t nodes_n);

/* "lockstep: 'a.log' stops within its line 9, which is left out"; nothing where it does not. */
void nccl_say_cut(FILE *out, const NcclTest *t);

/* For the table of formats: never a timeline, and a sentence that says what the file holds. */
bool nccl_tests_matches(const uint8_t *head, size_t n);
bool nccl_tests_open(Timeline *t, const char *path, Err *err);

#endif

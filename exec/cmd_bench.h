/*
 * cmd_bench.h - the parts of `lockstep bench`: its options, what it measures, what it shows.
 *
 *     cmd_bench.c          options; starts the ranks; one rank's run through the parts
 *     cmd_bench_cases.c    models x degrees x tokens, or scenarios -> kernels in order of value
 *     cmd_bench_parts.c    gemm, memory, overlap, collective
 *     cmd_bench_device.c   the backend, its plugin, and what can be said of the device
 *     cmd_bench_show.c     tables and JSON (scenarios/README.md has the keys)
 */
#ifndef LOCKSTEP_EXEC_CMD_BENCH_H
#define LOCKSTEP_EXEC_CMD_BENCH_H

#include <stdio.h>

#include "core/machine.h"
#include "core/setting.h"
#include "exec/bench.h"
#include "exec/bench_host.h"

typedef enum BenchPart {
    BENCH_GEMM,
    BENCH_MEMORY,
    BENCH_OVERLAP,
    BENCH_COLLECTIVE,
    BENCH_PART_N
} BenchPart;

extern const char *const bench_part_names[BENCH_PART_N];

typedef struct BenchOptions {
    bool part[BENCH_PART_N], all;             /* all: none was named */
    bool cuda, loop, json, warm, cache_given; /* warm: by default on the CPU */
    uint32_t ranks; /* 0: as many as there are processors, at most 4; 1 on CUDA */
    double seconds; /* for each part; 0: the default */
    const char *out, *into;
    char *const *scenarios; /* whose kernels; none: the built-in models' */
    uint32_t scenarios_n;
    const Setting *settings; /* of those scenarios */
    uint32_t settings_n;
} BenchOptions;

/* ---- cases ---- */

typedef enum BenchTable {
    BENCH_TABLE_GEMM,
    BENCH_TABLE_ATTENTION,
    BENCH_TABLE_MEMORY
} BenchTable;

typedef struct BenchCase {
    BenchKernel kernel;
    BenchTable table;
    MemoryKernel class_; /* of BENCH_TABLE_MEMORY */
    double value;        /* part of the steps that it takes, summed over the scenarios, about */
    double guess_ns;     /* what it may take once */
    uint32_t turn;       /* 0: the most valuable of those that are like it */
} BenchCase;

typedef struct BenchCases {
    Arena arena;
    BenchCase *cases; /* the most valuable first */
    uint32_t n, cap, scenarios_n;
} BenchCases;

/* Kernels of the scenarios, or of the built-in models at tp 1, 2, 4, 8. */
bool bench_cases(BenchCases *c, const BenchOptions *o, Err *err);
void bench_cases_free(BenchCases *c);

/* ---- results ---- */

typedef struct BenchKernelRow {
    const BenchCase *of;
    bool cold;
    BenchTimes times;
} BenchKernelRow;

typedef struct BenchOverlapRow {
    const char *name; /* of the kernel */
    OpKind transfer;
    uint64_t kernel_bytes, transfer_bytes;
    BenchTimes alone, beside, transfer_alone, transfer_beside;
    double flops;
} BenchOverlapRow;

typedef struct BenchCollectiveRow {
    BenchTransfer t;
    BenchTimes times;
} BenchCollectiveRow;

typedef struct BenchReport {
    const BenchOptions *o;
    BenchHost host;
    uint32_t ranks;
    char device[128], versions[128]; /* GPU, driver ...; "" on the CPU */
    uint32_t cases_n, scenarios_n;   /* that there were */
    BenchKernelRow *kernels;
    uint32_t kernels_n, kernels_cap;
    BenchOverlapRow *overlaps;
    uint32_t overlaps_n, overlaps_cap;
    BenchCollectiveRow *collectives;
    uint32_t collectives_n, collectives_cap;
    double launch_us,
        gap_us;       /* host; from a kernel's begin to the next one's, of next to none */
    double host_GBps; /* copies from the host; 0 not measured */
    double seconds;
} BenchReport;

void bench_report_free(BenchReport *r);
void bench_show_text(const BenchReport *r, FILE *f);
bool bench_show_json(const BenchReport *r, FILE *f, Err *err);

/* ---- measuring ---- */

/* All ranks together; the report is the same on all. */
bool bench_part(BenchPart part, BenchReport *r, const BenchCases *cases, const BenchRank *rank,
                Err *err);

/* Whether the parts asked for have time for any of their kernels; else a sentence. */
bool bench_measures_any(const BenchOptions *o, const BenchCases *cases, Err *err);

/* Bytes that the fabric must have room for. */
uint64_t bench_arena_bytes(const BenchOptions *o, const BenchCases *cases, uint64_t cache_bytes,
                           uint32_t world_n);

/* ---- the device ---- */

/* Whether there is what the backend needs: before ranks are started. */
bool bench_device_find(const BenchOptions *o, Err *err);
/* In a rank: fills type, cuda and each_task. */
bool bench_device_open(BenchRank *r, const BenchOptions *o, const RankPlace *place, Err *err);
void bench_device_close(BenchRank *r);
/* Starts the ranks, as processes or (loop) as threads; the exit status. */
int bench_launch(const BenchOptions *o, uint32_t ranks,
                 int (*body)(const RankPlace *place, void *user), void *user,
                 const RankPlace *common);

#endif

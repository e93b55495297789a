/*
 * bench_host.h - the machine that a measurement is of, in words: processor, caches, memory,
 * clock, libraries, date.
 */
#ifndef LOCKSTEP_EXEC_BENCH_HOST_H
#define LOCKSTEP_EXEC_BENCH_HOST_H

#include "core/base.h"

typedef struct BenchHost {
    char cpu[128]; /* "AMD EPYC 9654 96-Core Processor"; "" where the kernel does not tell */
    char blas[128];
    char kernel[80]; /* of the operating system */
    char date[16];   /* "2026-01-31", UTC */
    uint32_t processors;
    double mhz;                         /* now; 0 not told */
    uint64_t memory_bytes, cache_bytes; /* cache: the last level's; 0 not told */
} BenchHost;

void bench_host(BenchHost *h);

/* The first GPU's name; its driver, memory, clocks and power limit: as nvidia-smi has them, ""
 * where there is none.  Only asked, never set. */
void bench_gpu(char *name, char *versions, size_t size);

#endif

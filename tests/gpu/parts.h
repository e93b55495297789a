/*
 * parts.h - the parts of the measurement; one process runs one of them.
 */
#ifndef GPU_PARTS_H
#define GPU_PARTS_H

#include <stdbool.h>
#include <stdio.h>

#include "device.h"
#include "timing.h"

typedef struct Run {
    Device device;
    Bench bench;
    FILE *rows;
    const char *date; /* as given, "" when not */
    double budget_s;  /* stop taking up new work after so long */
    double begin_us;
} Run;

/* 0, or 1 when something that was checked is wrong. */
typedef int Part(Run *run);

Part part_device, part_check, part_gemm, part_gemm_fp8, part_memory, part_overlap, part_launch;
Part part_copy;
Part part_cupti; /* in gpu_cupti alone */

bool run_has_time(const Run *run);

/* The only main: reads the arguments, opens device and file, runs the part. */
typedef struct NamedPart {
    const char *name;
    Part *run;
} NamedPart;

int parts_main(int argc, char **argv, const NamedPart *parts, int parts_n);

#endif

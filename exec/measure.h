/*
 * measure.h - this machine in a third of a second: what a prediction for it needs.
 *
 * Until a calibrated file for the CPU exists, a run predicts itself from these few
 * numbers.  Every rank is a process on these processors: where there are more ranks
 * than processors, each gets its part.
 */
#ifndef LOCKSTEP_EXEC_MEASURE_H
#define LOCKSTEP_EXEC_MEASURE_H

#include "core/err.h"

typedef struct MachineSpeed {
    /* f32 matmuls on one processor: large, with a few rows, and small. */
    double large_flops_per_ns, flat_flops_per_ns, small_flops_per_ns;
    double bytes_per_ns; /* memory read and written by one processor */
    int64_t wake_ns;     /* one thread wakes another */
    uint32_t processors;
    uint64_t memory_bytes;
    double seconds; /* it took */
} MachineSpeed;

/* With as many of the loops at once as there will be ranks: processors share caches and more. */
bool measure_machine(MachineSpeed *x, uint32_t ranks, Err *err);

/* A "cluster" object of one node with so many of these; malloc'd. */
char *measure_cluster_json(const MachineSpeed *x, uint32_t ranks);

#endif

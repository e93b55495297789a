/*
 * calibrate_bench.h - what `lockstep bench` wrote, as rows of the files that it calibrates.
 *
 *     gemm, attention    a row each of the GPU's tables
 *     memory             kernels of a class that move about as much, within a factor of 1.5,
 *                        are one row: the median of their bandwidths.  (The tables interpolate
 *                        between neighbours; two kernels of one size would only be noise.)
 *     launch_us          launch_us;  gap_us: kernel_floor_us is no longer than that
 *     host_GBps          host_GBps
 *     overlap            of a file that is made anew: comm_sms from the slowdown of matmuls,
 *                        comm_memory_factor from that of the others (formulas below)
 *     collective         a cluster's link and measured collectives (calibrate_cluster.h)
 *
 * A FILE MADE ANEW has for peaks the best of its rows, so that no measured time lies below the
 * bounds of sim/cost.h, and for efficiencies the median of them.  The overlap's model
 * (sim/cost.c): a matmul beside a transfer has sms - comm_sms SMs; others are slowed to
 * (bandwidth + comm_memory_factor x link) / bandwidth.  Solved for both:
 *
 *     comm_sms = sms (1 - 1 / slowdown)     comm_memory_factor = (slowdown - 1) bandwidth / link
 *
 * The format stands in scenarios/README.md.
 */
#ifndef LOCKSTEP_PROFILE_CALIBRATE_BENCH_H
#define LOCKSTEP_PROFILE_CALIBRATE_BENCH_H

#include "profile/calibrate_kernels.h"

enum { BENCH_FORMAT = 1, BENCH_SMS = 8 /* of a processor, in which a transfer takes some */ };

typedef struct BenchTransferRow {
    const char *op; /* "all_reduce", "send_recv" ... */
    uint32_t ranks;
    uint64_t bytes;
    double ns, busbw; /* bytes per ns; 0 unknown */
} BenchTransferRow;

/* BenchFile f = { 0 } is empty; several may be read into one. */
typedef struct BenchFile {
    Arena arena;
    const char *backend, *device, *versions, *date; /* of the first */
    uint32_t ranks;
    uint64_t memory_bytes;
    KernelSample *rows; /* with ops of their own */
    uint32_t rows_n, rows_cap;
    double *matmul_slowdowns, *other_slowdowns;
    uint32_t matmul_slowdowns_n, matmul_slowdowns_cap, other_slowdowns_n, other_slowdowns_cap;
    BenchTransferRow *transfers;
    uint32_t transfers_n, transfers_cap;
    double launch_ns, gap_ns, host_bytes_per_ns; /* 0: not measured */
} BenchFile;

/* Appends what the file has. */
bool bench_file_read(BenchFile *f, const char *path, Err *err);
void bench_file_free(BenchFile *f);

/* "lockstep bench on AMD EPYC (OpenBLAS 0.3.21), 2 ranks, 2026-01-31" */
const char *bench_file_source(BenchFile *f);

/* All rows of kernels as samples of the fit, whose gpu and model are set; the ops are f's. */
void bench_file_samples(BenchFile *f, KernelFit *fit);
/* Numbers that are no table; after kernel_fit_run. */
void bench_file_rest(const BenchFile *f, KernelFit *fit);

/* A GPU's file, without tables yet, and a cluster's, without measured collectives; heap, ended by
 * NUL.  gpu: as the cluster's file names it.  NULL and err where no matmul was measured, which the
 * peaks are of. */
char *bench_gpu_text(BenchFile *f, const char *name, Err *err);
char *bench_cluster_text(BenchFile *f, const char *name, const char *gpu);

#endif

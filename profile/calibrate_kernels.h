/*
 * calibrate_kernels.h - timelines with op ids into a GPU's tables of kernels.
 *
 * A timeline says how long op 1,234 of rank 3 took; what op 1,234 was (a matmul of
 * which m, n, k) stands in the graph.  Kernels of one shape are one row, their median;
 * kernels that ran beside communication are left out, as they were slowed by it.
 *
 *     SPAN                                BECOMES
 *     matmul, convolution (not batched)   row of kernels.gemm
 *     fused attention                     row of kernels.attention
 *     what is limited by memory           row of kernels.memory
 *     launch                              launch_us, their median
 *     copy from the host, 1 MiB or more   host_GBps, their median
 *     the shortest kernel                 kernel_floor_us, where that is longer
 *
 * Rows that the file has for other shapes stay; a row measured replaces theirs.
 * Measured times are divided by what the training stack multiplies with.  What the
 * stack does and what the simulator predicts is asked for: KernelModel.
 */
#ifndef LOCKSTEP_PROFILE_CALIBRATE_KERNELS_H
#define LOCKSTEP_PROFILE_CALIBRATE_KERNELS_H

#include "core/graph.h"
#include "core/machine.h"
#include "core/timeline.h"
#include "profile/calibrate.h"

typedef enum KernelTable {
    TABLE_GEMM,
    TABLE_MEMORY,
    TABLE_ATTENTION,
    TABLE_COPY, /* from the host: no table, one rate */
    TABLE_N
} KernelTable;

extern const char *const kernel_table_texts[TABLE_N + 1]; /* "matmul", ...; last "all" */

enum { KERNEL_KEYS_MAX = 8 };

typedef struct KernelModel {
    MemoryKernel (*class_of)(const Op *op);
    double (*scale)(const void *user, const Op *op); /* the stack's, on a kernel's time */
    /* Whose rows an attention op is one of; false: of none. */
    bool (*rows_of)(const void *user, const Op *op, AttentionKernel *rows);
    double (*predict_ns)(const void *user, const Gpu *gpu, const Op *op);
    const void *user;
    double host_scale; /* the stack's, on a launch */
} KernelModel;

typedef struct KernelSample {
    KernelTable table;
    double key[KERNEL_KEYS_MAX];
    double ns; /* as measured */
    const Op *op;
} KernelSample;

/* Samples of one shape. */
typedef struct KernelFitRow {
    KernelTable table;
    double key[KERNEL_KEYS_MAX];
    double ns, table_ns; /* table_ns: without what the stack multiplies */
    uint32_t n;
    const Op *op;
} KernelFitRow;

typedef struct KernelFit {
    Arena arena;
    const Graph *g;
    const Gpu *gpu; /* of the file, as it was */
    KernelModel model;
    KernelSample *samples;
    double *launches;
    uint32_t samples_n, samples_cap, launches_n, launches_cap;
    uint32_t beside_comm, no_table, ops_seen;
    KernelFitRow *rows;
    uint32_t rows_n;
    double launch_ns, floor_ns, host_bytes_per_ns; /* NAN: not measured */
} KernelFit;

/* KernelFit f = { .g, .gpu, .model } is empty; g and gpu outlive it. */
void kernel_fit_free(KernelFit *f);

/* Says of a sample of attention whose row it is; false: no table has a place for it. */
bool kernel_sample_rows(const KernelFit *f, KernelSample *x);

/* What a trace measured; path for errors.  False: it is not of the graph. */
bool kernel_fit_add(KernelFit *f, const Timeline *t, const char *path, Err *err);
/* After the last of them.  False: no kernel can be used. */
bool kernel_fit_run(KernelFit *f, Err *err);

/* The file's text with the rows in it; source says what they were measured by. */
char *kernel_fit_splice(const KernelFit *f, char *text, const char *source);

/* What was done; now: the GPU as the file has it afterwards. */
void kernel_fit_print(KernelFit *f, const Gpu *now);
void kernel_fit_json(KernelFit *f, const Gpu *now, const char *file, bool written, Err *err);

#endif

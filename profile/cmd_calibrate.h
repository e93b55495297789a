/*
 * cmd_calibrate.h - what the files of `lockstep calibrate` tell each other.
 *
 *     cmd_calibrate.c           options; which kind of input; the file that is changed
 *     cmd_calibrate_cluster.c   logs of nccl-tests and the simulator's collectives
 *     cmd_calibrate_gpu.c       traces, the scenario that ran, and the simulator's kernels
 *     cmd_calibrate_bench.c     what `lockstep bench` wrote
 *
 * What is fitted, written and shown is calibrate_cluster.h's and calibrate_kernels.h's.
 */
#ifndef LOCKSTEP_PROFILE_CMD_CALIBRATE_H
#define LOCKSTEP_PROFILE_CMD_CALIBRATE_H

#include "core/arena.h"
#include "core/err.h"
#include "core/json.h"
#include "core/setting.h"

struct NcclLog;

typedef struct CalibrateOptions {
    const char *into, *scenario; /* scenario NULL: not given */
    bool json, dry_run, quiet;   /* quiet: says nothing of what it did */
    bool bench;                  /* the inputs are of `lockstep bench`, not nccl-tests' logs */
    char *const *inputs;
    uint32_t inputs_n;
    const Setting *settings;
    uint32_t settings_n;
} CalibrateOptions;

/* Each reads its inputs, fits, changes options->into and prints what it did. */
bool calibrate_cluster(const CalibrateOptions *o, Err *err);
bool calibrate_gpu(const CalibrateOptions *o, Err *err);

bool calibrate_bench(const CalibrateOptions *o, Err *err);
/* Whether a file is what `lockstep bench` wrote, by its beginning. */
bool calibrate_is_bench(const char *head, size_t n);
/* Of what bench wrote (JSON, at path) new files, a GPU's, and where ranks talked a cluster's, which
 * replace older ones; gpu_named: as the cluster's file names the GPU's. */
bool calibrate_bench_new(const char *path, const char *gpu, const char *cluster,
                         const char *gpu_named, Err *err);
/* Transfers of a bench as rows of nccl-tests, one node; false: the file is none. */
bool calibrate_bench_log(struct NcclLog *l, const char *path, const char **source, Err *err);

/* The file's text, ended by NUL, on the heap; NULL and err when it is no JSON object. */
char *calibrate_load(const char *path, Err *err);
/* Takes over text.  Writes whole or not at all; does nothing but check with dry_run. */
bool calibrate_store(const CalibrateOptions *o, char *text, Err *err);

#endif

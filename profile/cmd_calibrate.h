/*
 * cmd_calibrate.h - what the files of `lockstep calibrate` tell each other.
 *
 *     cmd_calibrate.c           options; which kind of input; the file that is changed
 *     cmd_calibrate_cluster.c   logs of nccl-tests and the simulator's collectives
 *     cmd_calibrate_gpu.c       traces, the scenario that ran, and the simulator's kernels
 *
 * What is fitted, written and shown is calibrate_cluster.h's and calibrate_kernels.h's.
 */
#ifndef LOCKSTEP_PROFILE_CMD_CALIBRATE_H
#define LOCKSTEP_PROFILE_CMD_CALIBRATE_H

#include "core/arena.h"
#include "core/err.h"
#include "core/json.h"

struct Setting;

typedef struct CalibrateOptions {
    const char *into, *scenario; /* scenario NULL: not given */
    bool json, dry_run;
    char *const *inputs;
    uint32_t inputs_n;
    const struct Setting *settings;
    uint32_t settings_n;
} CalibrateOptions;

/* Each reads its inputs, fits, changes options->into and prints what it did. */
bool calibrate_cluster(const CalibrateOptions *o, Err *err);
bool calibrate_gpu(const CalibrateOptions *o, Err *err);

/* The file's text, ended by NUL, on the heap; NULL and err when it is no JSON object. */
char *calibrate_load(const char *path, Err *err);
/* Takes over text.  Writes whole or not at all; does nothing but check with dry_run. */
bool calibrate_store(const CalibrateOptions *o, char *text, Err *err);

#endif

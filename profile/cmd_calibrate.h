/*
 * cmd_calibrate.h - what the files of `lockstep calibrate` tell each other.
 *
 *     cmd_calibrate.c           options; which kind of input; the file that is changed
 *     cmd_calibrate_cluster.c   logs of nccl-tests -> "collectives" of a cluster
 *     cmd_calibrate_gpu.c       measured timelines -> tables of kernels of a GPU
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

/* text with provenance.key set; a provenance that is a text becomes the rest of an object. */
char *calibrate_provenance(char *text, const char *key, const char *value);

/* A path's last part: files are named without the folders of this machine. */
const char *calibrate_base_name(const char *path);
/* Text as a JSON string, in arena. */
const char *calibrate_quoted(Arena *arena, const char *text);

#endif

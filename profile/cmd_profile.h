/*
 * cmd_profile.h - the parts of lockstep profile; only cmd_profile*.c include this.
 *
 *     DIR/raw-HOST-PID/x.lsraw    what the collector writes, one file a process
 *     DIR/ranks/rank3.lstrace      made of them at the end, where there are several ranks
 *     DIR/trace.lstrace            all ranks
 *
 * Recordings of several `lockstep profile` (mpirun lockstep profile ...) share DIR: each makes
 * the traces of its own ranks, and none the one of all.
 */
#ifndef LOCKSTEP_PROFILE_CMD_PROFILE_H
#define LOCKSTEP_PROFILE_CMD_PROFILE_H

#include "core/arena.h"
#include "core/err.h"
#include "core/timeline.h"

typedef struct ProfileRun {
    const char *out;    /* DIR */
    const char *raw;    /* folder of this run's recordings, absolute */
    const char *plugin; /* absolute */
    char **command;     /* NULL-terminated */
    bool launched;      /* by torchrun, mpirun, srun: others share DIR */
    bool keep;          /* --keep-raw */
} ProfileRun;

/*
 * Runs the command under the collector, and waits for it.  Signals that end programs are passed
 * on to it, this process goes on.  *status: the command's exit status, or 128 + the signal that
 * ended it.  false and err: it could not be started.
 */
bool profile_run(const ProfileRun *run, int *status, Err *err);

/* RecordsWords.comm; user: Rules (traces/rules.h). */
bool profile_kernel_words(void *user, const char *kernel, SpanClass *class_, const char **op,
                          const char **dtype);

typedef struct ProfileResult {
    uint32_t files_n;
    uint64_t gpu_spans_n; /* kernels, copies, sets */
    const char *trouble;  /* first of the collector's sentences; NULL none */
} ProfileResult;

/*
 * Makes traces of what lies in run->raw, says on stdout what there is, on stderr what is odd,
 * and takes the recordings away.  No recordings is no error; where nothing ran on a GPU, or
 * some trace could not be written, none is left.
 */
bool profile_merge(const ProfileRun *run, ProfileResult *result, Arena *arena, Err *err);

/* One that is there already will do. */
bool profile_make_folder(const char *path, Err *err);

#endif

/*
 * out_file.h - a file that appears whole or not at all.
 *
 *     OutFile o;
 *     if (!out_file_open(&o, path, err))
 *         return false;
 *     out_file_write(&o, bytes, n);               no need to look at each result
 *     fprintf(o.file, ...);
 *     return out_file_commit(&o, err);            or out_file_abandon(&o)
 *
 * What is written goes into a new file beside the old one, which commit renames
 * over it: a full disk, a crash or a reader at the wrong moment never meets half
 * a file, and the old one stays as it was.  A symbolic link stays a link.
 * Devices and pipes (/dev/stdout, /dev/full) are written in place.
 */
#ifndef LOCKSTEP_CORE_OUT_FILE_H
#define LOCKSTEP_CORE_OUT_FILE_H

#include <stdio.h>

#include "core/err.h"

typedef struct OutFile {
    FILE *file;
    char *name;      /* as the user wrote it, for messages */
    char *target;    /* what temporary is renamed to */
    char *temporary; /* NULL: written in place */
    int reason;      /* errno of the first out_file_write that failed */
} OutFile;

bool out_file_open(OutFile *o, const char *path, Err *err);
bool out_file_write(OutFile *o, const void *bytes, size_t n);
/* False, and no trace of the file, when anything could not be written.  Leaves o empty. */
bool out_file_commit(OutFile *o, Err *err);
void out_file_abandon(OutFile *o);

/* To tell before long work, not behind it, that its result could not be written.  True of NULL, and
 * of what is there and no file, which is opened once only. */
bool out_file_can_open(const char *path, Err *err);

/*
 * Makes a file that grows beyond the shell's limit (ulimit -f) a write that fails,
 * "File too large", where the signal SIGXFSZ would end the program and leave half a
 * file behind.  out_file_open sees to it; main does so for standard output.
 */
void out_file_survive_limits(void);

/* Whether both paths lead to one existing file. */
bool out_file_is_same(const char *path, const char *other);
/* The same of two that are to be written, where neither may be there yet. */
bool out_file_will_be_same(const char *path, const char *other);

#endif

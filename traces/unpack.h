/*
 * unpack.h - a file's bytes in memory, whether it is gzip or not.
 *
 * A plain file is mapped.  A gzip file, a pipe or a device is written to a
 * temporary file without a name first (in TMPDIR, else the system's folder), so
 * memory is not what limits its size, and nothing is left behind whatever happens.
 * The mapping is private: a reader may change bytes, the file never does.
 */
#ifndef LOCKSTEP_TRACES_UNPACK_H
#define LOCKSTEP_TRACES_UNPACK_H

#include "core/err.h"

/* The most that is unpacked: 13 to 29 times as much as a trace takes as gzip. */
#define UNPACK_BYTES_MAX ((uint64_t)64 << 30)

typedef struct Unpacked {
    uint8_t *bytes;
    uint64_t n; /* never 0 */
} Unpacked;

/* Fails, u empty: "cannot read 'x.gz': it unpacks to more than 1024 bytes". */
bool unpack_open(Unpacked *u, const char *path, uint64_t bytes_max, Err *err);
void unpack_close(Unpacked *u);

#endif

/*
 * bytes_in.h - the bytes of a file from first to last, unpacked where it is gzip.
 *
 * A gzip file of some size is unpacked by a thread of its own, blocks ahead, so that
 * whoever scans the bytes does not wait for zlib.  Several gzip members one after
 * another are one text; what follows the last one is ignored.
 *
 * A gzip file that breaks off or is damaged gives the bytes before that, then
 * bytes_in_problem says so.  One that unpacks to more than any trace could (a
 * "bomb") is stopped, with a problem too.
 */
#ifndef LOCKSTEP_TRACES_BYTES_IN_H
#define LOCKSTEP_TRACES_BYTES_IN_H

#include "core/err.h"

enum { BYTES_IN_RATIO_MAX = 400 }; /* unpacked : packed; real traces have 13 to 30 */
#define BYTES_IN_FREE_BYTES ((uint64_t)64 << 20) /* up to here any ratio is fine */

/* Where bytes come from: memory, then a file (fd < 0: none). */
typedef struct BytesSource {
    int fd;
    const uint8_t *at;
    size_t left;
} BytesSource;

typedef struct BytesIn {
    BytesSource source;        /* the unpacker's, where there is one */
    struct Unpacker *unpacker; /* NULL: plain */
    uint8_t head[2];           /* of what cannot be read twice */
    const char *problem;       /* a literal; NULL so far none */
    uint64_t file_bytes;       /* as it lies on disk, packed or not */
} BytesIn;

/* False and err where there is no such file. */
bool bytes_in_open(BytesIn *b, const char *path, Err *err);

/* The same for what is open already, a pipe too; takes fd over.  b must stay where it is. */
void bytes_in_fd(BytesIn *b, int fd);

/* The same for a file's n bytes in memory, which stay the caller's; err names them so. */
bool bytes_in_memory(BytesIn *b, const void *bytes, size_t n, const char *name, Err *err);

/* Up to n bytes, n > 0; 0 at the end.  Less than n does not mean the end. */
size_t bytes_in_read(BytesIn *b, void *into, size_t n);

/* "it ends in the middle of its gzip data"; NULL when all is well.  After the end. */
static inline const char *bytes_in_problem(const BytesIn *b)
{
    return b->problem;
}

void bytes_in_close(BytesIn *b);

#endif

/*
 * shared.h - memory without a name, handed from process to process, and words in
 * it to wait on.
 *
 * The memory is a memfd: it lives while somebody maps it and leaves nothing behind,
 * however its users die.  It changes hands over an abstract socket (which has no
 * place in a file system either), only between processes of one user that know the
 * job's token.
 */
#ifndef LOCKSTEP_EXEC_SHARED_H
#define LOCKSTEP_EXEC_SHARED_H

#include <stdatomic.h>

#include "core/err.h"

/* What a rank takes besides: OpenBLAS's buffers, threads, tables, a trace. */
#define SHARED_BESIDES_BYTES (64 * MIB)

/*
 * `bytes` of zeros, of which those from `first` on are in memory at once.  Refuses what
 * would not fit this machine's free memory.  Returns the descriptor, or -1.
 */
int shared_make(uint64_t bytes, uint64_t first, Err *err);
/* Before any of the ranks of this host takes its memory: is there room for the `bytes` of all? */
bool shared_ranks_fit(uint32_t ranks, uint64_t bytes, Err *err);
/* The whole of it, which is `bytes` long.  populate: page tables are filled now. */
void *shared_map(int fd, uint64_t bytes, bool populate, Err *err);
void shared_unmap(void *at, uint64_t bytes);

/* Sleeps while *word is seen, until somebody wakes it, or for at most ns. */
void shared_wait(_Atomic uint32_t *word, uint32_t seen, int64_t ns);
void shared_wake(_Atomic uint32_t *word);

enum { SHARED_TOKEN_BYTES = 16 };

/* What travels with a descriptor. */
typedef struct SharedNote {
    uint8_t token[SHARED_TOKEN_BYTES];
    uint32_t rank;
    uint64_t bytes;
} SharedNote;

/* An abstract socket with a name nobody guesses, written to name (cap >= 40). */
int shared_listen(char *name, size_t cap, Err *err);
/* -1 when that is not possible now. */
int shared_connect(const char *name);
/* One caller of this user; -1 when there is none now. */
int shared_accept(int listener);
bool shared_give(int socket, int fd, const SharedNote *note);
/* The descriptor that comes with a note, or -1 with errno (EAGAIN: not here yet). */
int shared_take(int socket, SharedNote *note);

/* A descriptor that is readable once this process has died; -1 where there is none. */
int shared_watch_process(uint32_t pid);

#endif

/*
 * fabric.h - the ranks of a job, their memory, and what they say to each other.
 *
 * Ranks of one host (same kernel, same network namespace) map each other's arenas:
 * a collective reads and writes the peers' tensors in place, woken by futexes.
 * Between hosts the same bytes go through TCP, one connection per pair of ranks and
 * lane.  Nothing has a name in a file system, so nothing is left behind.
 *
 *     fabric_open      finds the others (rendezvous), allocates the arena
 *     fabric_run       one collective, or some sends and receives posted together;
 *                      called by the thread of a lane, blocks until it is done
 *     fabric_close
 *
 * ORDER.  On a lane, ranks meet in the order in which they call.  Calls of one
 * group on one lane must come in one order on all members; sends and receives
 * match in order per (sender, receiver, tag).  Lanes never wait for each other.
 *
 * NUMERICS.  Sums are taken in f32 in the order of the group's members, whoever
 * computes them: every rank and every run gets the same bits.  With `rings` the
 * chunks travel round a ring (core/patterns/ring.h) and are summed in that order.
 *
 * PARTS.  A vector is a list of pieces of the arena.  Shards are taken of each
 * piece: member i of n holds elements [i, i + 1) x ceil(elements / n) of it, the
 * last ones cut off.
 *
 *     all_reduce       in place over `in`
 *     all_gather       out given: out[k] = the members' in[k] one after another;
 *                      without: in place, each member has brought its shard of in[k]
 *     reduce_scatter   out given: out[k] = this member's shard of the sum of in[k];
 *                      without: in place, the rest of in[k] is then undefined
 *     broadcast        `in` of member `peer` goes to `in` of all
 *     reduce           the sum arrives in `in` of member `peer`; elsewhere undefined
 *     all_to_all       in[0] cut in n equal blocks, out[0] likewise
 *     send, recv       `in` to, or from, member `peer`
 *
 * FAULTS.  A rank that is killed, stops answering (SIGSTOP) or fails ends the job
 * on every rank: pending and later calls return false with one sentence that names
 * the rank and the host, within 5 s of a death and within `timeout_s` of silence.
 * So does a job that stands still: all ranks live, but for ten times `timeout_s` none
 * computes or ends a call for which others wait.
 */
#ifndef LOCKSTEP_EXEC_FABRIC_H
#define LOCKSTEP_EXEC_FABRIC_H

#include "core/dtype.h"
#include "core/err.h"
#include "core/graph.h"

typedef struct Fabric Fabric;

/* Who this process is among the ranks of the job (exec/launch.h finds it out). */
typedef struct RankPlace {
    uint32_t rank, world;
    uint32_t local_rank, local_n; /* among those started on this host by one launcher */
    const char *rendezvous; /* "tcp://HOST:PORT" or "file:PATH", where rank 0 can be found */
    double timeout_s;       /* for the others to come, and to answer */
    uint64_t job;       /* a number that all ranks of one job share, others do not; 0: none */
    const char *digest; /* what must be equal everywhere (scenario, seed ...): a rank whose
                                     digest differs is refused by name */
    bool tcp_only;      /* share no memory, not even on one host (tests, comparisons) */
    const char *copy;   /* this job's name among others side by side (launch_copies); NULL */
    bool *came;         /* set once it goes to meet the others; NULL */
} RankPlace;

bool fabric_open(Fabric **f, const RankPlace *place, uint64_t arena_bytes, Err *err);
void fabric_close(Fabric *f); /* NULL is fine */

uint8_t *fabric_arena(Fabric *f); /* zeroed, 64-byte aligned (and to a page) */
/* Whether all ranks read each other's memory; else some of what they say goes through TCP. */
bool fabric_shares_memory(const Fabric *f);
/* Whether this rank reads that one's: both are on one host. */
bool fabric_is_beside(const Fabric *f, uint32_t rank);

typedef struct Part {
    uint64_t offset, elements; /* offset in bytes within the arena */
    DType dtype;
} Part;

typedef struct CommCall {
    OpKind kind;
    Lane lane;
    uint32_t members_n, self, peer, tag;
    const uint32_t *members; /* world ranks in group order */
    uint32_t in_n, out_n;
    const Part *in, *out;
    uint32_t maximum; /* all_reduce: take the largest, not the sum */
    int64_t at_ns;    /* model time at which this rank came; 0 where there is none */
    /* out */
    int64_t met_ns;      /* latest at_ns over all who took part (p2p: both ends) */
    int64_t met_wall_ns; /* CLOCK_MONOTONIC of this host when the last had come */
} CommCall;

/* n > 1: sends and receives posted together, as one ncclGroup: all are posted before any is
 * waited for.  Then the thread of calls[0].lane calls; the others' lanes stand by. */
bool fabric_run(Fabric *f, CommCall *calls, uint32_t n, Err *err);

/* Small exchanges of the whole world, outside lanes; same order on all ranks. */
bool fabric_barrier(Fabric *f, Err *err);
/* out[world][bytes] = everybody's bytes. */
bool fabric_share(Fabric *f, const void *mine, void *out, size_t bytes, Err *err);
/* Rank 0 gets everybody's message in rank order (malloc'd, sizes in out_n); others NULL. */
bool fabric_gather(Fabric *f, const void *mine, size_t n, void ***out, size_t **out_n,
                   Err *err);

/* Ends the job everywhere with this sentence; idempotent, callable from any thread. */
void fabric_abort(Fabric *f, const char *why);
/* The sentence of whoever ended the job first; NULL while it is well. */
const char *fabric_failure(Fabric *f);
/* A rank that works long without communicating says that it lives by itself; nothing to call. */

/*
 * Whether all_reduce (sums), all_gather and reduce_scatter go step by step round a ring, as
 * messages over TCP also on one host; the same on all ranks.
 */
void fabric_use_rings(Fabric *f, bool rings);

#endif

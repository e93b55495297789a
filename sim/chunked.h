/*
 * chunked.h - a collective message by message, where sim/network.h has a closed form.
 *
 *     send     starts when its piece is there and its link is done with the one before;
 *              takes the link for bytes / rate; is there hop later
 *
 *     rank 0   |=0=|=1=|.......|=0=|=1=|          all_reduce, all_gather, reduce_scatter:
 *     rank 1   |=0=|=1=|.......|=0=|=1=|          each passes on what came, n-1 or 2(n-1) times
 *                  ->hop
 *     rank 0   |=0=|=1=|=2=|                      broadcast, reduce: a chain
 *     rank 1          |=0=|=1=|=2=|
 *
 * A rank goes round again when all of its round has come.  So a slow link holds up those behind
 * it only, and what a rank passes on in pieces hides the hops, which the closed form adds up.
 * Where pieces are whole parts and links alike the two are equal.
 *
 * Pieces are NCCL's (its src/include/collectives.h, init.cc): a channel's buffer has 8 steps, of
 * protocol Simple of 512 KiB; all_reduce, all_gather and reduce_scatter go round in chunks of 4 and
 * pass on slices of 2, broadcast and reduce pass on one.  LL and LL128 go round in one step (32 and
 * 562.5 KiB of data), and pass on line by line.  Its channels are one ring of all their pieces.
 *
 * On an ideal machine whose links are all alike both agree to the nanosecond for rings, and on any
 * ideal one to 0.5 % for chains.  Elsewhere a message that takes only hops comes up to two fifths
 * later here across nodes: NCCL's formula, and so network.h, counts one crossing a node and round,
 * a ring's every part crosses as it comes.  One of medium size comes up to a third sooner.  A
 * chain by Simple passes a piece on when all of it is there: its last rank has the first behind
 * ranks - 1 of them and then the others one by one, so that it takes up to
 * (pieces + ranks - 2) / pieces times as long, 7 times with 3 pieces and 20 ranks.
 *
 * Nodes that are alike do the same at the same time: one is looked at, or one leaf where leaves
 * have fewer uplinks, so a ring costs its ranks times the ring's steps; all of them are where some
 * link is slow, nodes are not alike or leaves not full.  Trees, NVLS, all-to-alls and sends are
 * not followed.
 */
#ifndef LOCKSTEP_SIM_CHUNKED_H
#define LOCKSTEP_SIM_CHUNKED_H

#include "sim/rank_group.h"

/* From one rank to the next. */
typedef struct ChunkedLink {
    double hop_ns, ns_per_byte;
} ChunkedLink;

typedef struct ChunkedRing {
    OpKind kind;
    uint32_t ranks_n;
    /* By sender.  links_n divides ranks_n: that many ranks on, links are the same again. */
    const ChunkedLink *link;
    uint32_t links_n;
    uint64_t bytes;                    /* as nccl-tests counts */
    uint64_t chunk_bytes, slice_bytes; /* of a round, and passed on at once */
} ChunkedRing;

/* Until the last piece is there; adds to *messages. */
double chunked_ring_ns(const ChunkedRing *r, uint64_t *messages);

bool chunked_knows(OpKind kind);

/* At most so many, before any is followed. */
double chunked_messages(const RankGroup *g, OpKind kind, uint64_t bytes, Protocol protocol);

/* The same for a group: cost is the ring that network.h has for it, whose protocol it takes. */
double chunked_ns(const RankGroup *g, OpKind kind, uint64_t bytes, const CommCost *cost,
                  uint64_t *messages);

#endif

/*
 * from_trace.h - a recorded step as a graph: what if its buckets, or its network, were others?
 *
 * Kernels take the time they took; what moves is when they can begin.  Of each rank
 * the GPU work of one step, in the order in which it was launched:
 *
 *     host     |k1|k2|k3|.ar.|k4| ... |sync-----|k5|     time between launches as it was
 *     stream 7    [k1][k2][k3][k4]               [k5]    in order; gaps within as they were
 *     stream 20               [~~ar==]                   meets the other ranks' ar
 *
 * What an op waited for is read off the trace.  It begins after
 *   - the op before it on its stream,
 *   - its launch, which the host reaches after the same time as then,
 *   - an op of another stream that ended in the gap before it, the last one to do so;
 *     communication also after what was launched last on the main stream,
 *   - for the first op of the main stream after a stream's last communication: that.
 * A host call that returned when an op of the GPU ended waits for that op.  What a gap
 * leaves unexplained stays as a delay of that length.
 *
 * Collectives are matched over ranks by stream and order.  They wait for their last
 * participant, and then transfer for the shortest time any rank needed, or, with a
 * machine, for what its links need.  A trace of one rank stands for all of them.
 *
 * Sends and receives meet as well, where the trace has both ends and says who the peer was;
 * else they keep their times.  With a machine, what meets is priced on its links: FSDP's
 * all-gathers and reduce-scatters, too, as they stand in the trace.
 *
 * Not modelled: which parameters a collective holds.  Only all-reduces are cut into other
 * buckets; FSDP's units, a pipeline's messages and an all-to-all's parts stay what they were.
 */
#ifndef LOCKSTEP_SIM_FROM_TRACE_H
#define LOCKSTEP_SIM_FROM_TRACE_H

#include "core/timeline.h"
#include "sim/engine.h"
#include "sim/scenario.h"

/* The step of one rank: what the host launched from from_ns to to_ns; where no step is marked all
 * until then, whenever it was launched.  from_trace_build fills in where the replay begins: with
 * the GPU, which may still be at the step before, and with the first rank where clocks can be
 * compared. */
typedef struct TraceWindow {
    uint32_t rank;
    int64_t from_ns, to_ns, begin_ns;
    bool unmarked;
} TraceWindow;

typedef struct FromTraceOptions {
    bool on_machine; /* communication of known size takes what the machine's links need */
    /* Gradients are all-reduced in buckets of this size; 0: as they were. */
    uint64_t bucket_bytes;
    uint64_t first_bucket_bytes; /* 0: as it was, but not above bucket_bytes */
} FromTraceOptions;

typedef struct FromTrace {
    Graph graph; /* sealed */
    GivenCosts given;
    int64_t measured_ns; /* the step in the trace: of the slowest rank */
    uint32_t ranks_n, world_n;
    uint64_t kernels_n, comms_n; /* over the ranks of the trace */
    uint64_t unsized_n;   /* of the comms: bytes unknown, or of a kind that is not simulated */
    uint64_t pairs_n;     /* of the comms: twice as many are ends of these */
    uint64_t alone_n;     /* sends and receives without their other end */
    uint64_t ungrouped_n; /* collectives of several, or of nobody knows how many, one is here */
    uint64_t unwaited_n;  /* of the comms of one rank alone: what was waiting is unknown */
    uint64_t syncs_n;     /* host calls that waited */
    uint64_t unlaunched_n;                  /* ops whose launch is not in the trace */
    uint32_t buckets_before, buckets_after; /* of rank 0, when bucket_bytes is given */

    OpCost *costs; /* what given points to */
    int64_t *launch_ns, *comm_ns;
    uint32_t costs_cap;
} FromTrace;

/* windows: one for each rank, ascending.  On failure f is empty. */
bool from_trace_build(FromTrace *f, const Timeline *t, TraceWindow *windows, uint32_t windows_n,
                      const FromTraceOptions *o, Err *err);
void from_trace_free(FromTrace *f);

/* Node with ranks GPUs whose links nobody looks at: all costs are given. */
void from_trace_machine(Machine *m, uint32_t ranks);

#endif

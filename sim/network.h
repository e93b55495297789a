/*
 * network.h - what a collective or a send costs, before anyone shares its links.
 *
 *     time = latency + traffic / rate
 *
 * latency is base + steps; traffic is the bytes that each rank passes on; rate
 * comes from max-min sharing of the links (sim/maxmin.h).  n ranks on N nodes,
 * S bytes, as NCCL counts steps (its graph/tuning.cc; facts in machine.h):
 *
 *     ring all_reduce               2(n-1) steps, 2(N-1) between nodes, 2(n-1)/n S
 *     ring all_gather, _scatter      (n-1)         (N-1)                 (n-1)/n S
 *     ring broadcast, reduce         (n-1)         (N-1)                       S
 *     tree all_reduce   2((n/N-1) + log2 N) steps                              2 S
 *                                                  (two nodes: S between them, 2 S in them)
 *     nvls all_reduce   one pass through the switch                              S
 *     nvlstree all_reduce   one pass, 2 log2 N levels of chunks   S in a node, 2 S between nodes
 *                                                                 (two nodes: S)
 *     all_to_all        one step, m (n - g)                              (n-1)/n S
 *
 * An all-to-all is what NCCL makes of it: every rank sends to every other, all at
 * once.  Of the (n-1)/n S a rank sends, (n-g)/(n-1) leave its node of g ranks
 * by its own port (a node's ports are shared as the GPUs share them), the others
 * stay inside; and each message to another node costs m (InterNode.message_ns).
 * Where g ranks on N nodes do so on H100 (nccl-tests, ports of 50 GB/s, 16 GiB), a
 * port carries 39 GB/s (N 2, g 1), 47 to 49 (N 2, g 2 to 8), 45 to 46 (N 10).
 *
 * A send moves over channels, of which it has as NCCL gives them out (its enqueue.cc):
 * inside a node the GPU's channels by the ranks of its communicator, more where a part
 * were above 16 MiB; to another node two, among more than 8 nodes one.
 *
 *     8 H100, each to the next      32    64    128   256   512 MiB
 *     channels of 32                 4     4      8    16    32
 *     measured GB/s (x 20.4)        79    82    163   299   356 (the port)
 *
 * That is the most it takes of its links, where others may have the rest: sends to two peers
 * have channels of their own.
 *
 * What was measured (Machine.measured) stands for all of this where there is some.
 *
 * Trees of medium sizes do not keep to their formula: up to 256 MiB NCCL corrects it by size
 * (tuning.cc, treeCorrectionFactor), and by 0.85 for the simpler trees of Hopper's nodes.
 *
 * Two nodes are a special case: each is the other's parent in one of the two trees, so that S
 * passes between them and not 2 S (NCCL's issues 946 and 527, nccl-tests' 22).  NCCL takes trees
 * there where NICs are slow beside NVLink: on two, three and four nodes of 8 A100 with EFA 1 GiB
 * took 35, 65 and 70 ms.
 *
 * NVLSTree: nodes reduce in their switches and send the sums up and down double binary trees, with
 * two copies of S by a node's ports.  At each of 2 log2 N levels a node's chunks (8 MiB of 8 GPUs)
 * pass, and 20.9 us (tuning.cc, hwLat) besides.  NCCL goes by bandwidth without those chunks, 15/16
 * of 0.85 (Blackwell 0.74) of the links', and takes rings of the largest though they are slower:
 *
 *     80 H100 on 10 nodes, MiB      32    64    128   256   512   1024  2048  4096
 *     measured GB/s (bus)           83    141   212   281   319   345   337   314
 *     rings (2 x all-gather)        49    90    158   150   219   265   304   313
 *     here                          162   184   218   277   322   351   314   321
 *
 * That two GPUs on a node do without, as on one node, fits what 20 on 10 take.
 *
 * NVLS gathers and scatters (NCCL 2.19 on) are not offered: by tuning.cc they take
 * n/(n-1) of the NVLS all-reduce's time.  On 8 H100, where that moves S at 275 bytes/ns,
 * they would move 241; rings are measured at 415.  So a reduce-scatter and an all-gather
 * together are dearer than one NVLS all-reduce, 208 to 275, as nccl-tests has it too.
 *
 * Protocols inflate traffic: LL sends a flag with every 4 bytes (2x), LL128 uses
 * 120 of 128 bytes and reaches 0.92 of the ring (tuning.cc), Simple nothing.
 * The cheapest combination is taken, as NCCL does.  On a machine with
 * ideal_collectives only ring + Simple exists and the base is 0.
 */
#ifndef LOCKSTEP_SIM_NETWORK_H
#define LOCKSTEP_SIM_NETWORK_H

#include "sim/maxmin.h"

typedef enum Algorithm {
    ALGORITHM_RING,
    ALGORITHM_TREE,
    ALGORITHM_NVLS,
    ALGORITHM_NVLS_TREE,
    ALGORITHM_N
} Algorithm;
extern const char *const algorithm_names[ALGORITHM_N];

typedef struct CommCost {
    Algorithm algorithm;
    Protocol protocol;
    int64_t latency_ns;
    double traffic_bytes; /* to move at the flow's rate */
    double payload_bytes; /* of it data that each rank passes on: no flags, no inefficiency; of
                             trees of two nodes what passes between them */
    double solo_rate;     /* bytes/ns with all links to itself */
    double cap_rate;      /* no more than that, of a send's channels; 0: as its links give */
    int64_t solo_ns;      /* latency + traffic / solo_rate, rounded up */
} CommCost;

/* Sends and receives, and all-to-alls, which are made of them, have none to choose. */
static inline bool comm_has_algorithm(OpKind kind)
{
    return !op_is_p2p(kind) && kind != OP_ALL_TO_ALL;
}

/* What a collective takes of the links. */
static inline Demand collective_demand(const GroupClass *g, OpKind kind)
{
    return kind == OP_ALL_TO_ALL ? (Demand){ g->pair_uses, g->pair_uses_n, 0 }
                                 : (Demand){ g->uses, g->uses_n, 0 };
}

/* bytes as in CommShape.  scale: Software.comm_scale. */
CommCost collective_cost(const Machine *m, const GroupClass *group, const Resource *resource,
                         OpKind kind, uint64_t bytes, double scale);

/* As NCCL_ALGO and NCCL_PROTO leave to choose from, where that is less than all. */
typedef struct CommOnly {
    Algorithm algorithm; /* ALGORITHM_N: any */
    Protocol protocol;   /* PROTOCOL_N: any */
} CommOnly;
#define COMM_ANY ((CommOnly){ ALGORITHM_N, PROTOCOL_N })

/* The cheapest of those, as modelled, where something is said; false: none is offered here. */
bool collective_cost_only(CommCost *cost, const Machine *m, const GroupClass *group,
                          const Resource *resource, OpKind kind, uint64_t bytes, CommOnly only);

/* A send of a rank of `group`, whose communicator it uses; NULL: a copy, without channels. */
CommCost p2p_cost(const Machine *m, const NodeType *type, bool same_node,
                  const GroupClass *group, const Demand *flow, const Resource *resource,
                  uint64_t bytes, double scale);

/* The same of the protocols that `only` leaves, as modelled where it says one; sends have no
 * algorithm to choose. */
bool p2p_cost_only(CommCost *cost, const Machine *m, const NodeType *type, bool same_node,
                   const GroupClass *group, const Demand *flow, const Resource *resource,
                   uint64_t bytes, CommOnly only);

/* Bytes each rank passes on in a ring of n: the factor of busbw times bytes. */
double ring_traffic(OpKind kind, uint32_t n, uint64_t bytes);

/* Nothing may last longer (30 years): sums of a few such times still fit into 64 bits. */
#define NS_MAX ((int64_t)1000000000000000000)

/* ceil for what is whole up to rounding; at most NS_MAX. */
static inline int64_t ns_up(double ns)
{
    if (!(ns < (double)NS_MAX))
        return NS_MAX;
    int64_t down = (int64_t)ns;
    down -= (double)down > ns;
    return down + (ns - (double)down > 1e-6 + 1e-12 * ns);
}

/* llround of what is neither negative nor above NS_MAX. */
static inline int64_t ns_round(double ns)
{
    int64_t down = (int64_t)ns;
    return down + (ns - (double)down >= 0.5);
}

#endif

/*
 * engine.h - runs a graph on a machine in model time: discrete events.
 *
 * Per rank class: one host thread that launches ops one after another, each at
 * its cost; lanes that work them off in order; links that transfers share.  One
 * host may drive several ranks (Graph.host_group): it launches instance 0 of each
 * in member order, then instance 1 ..., and while it waits for one (a host-wait
 * op) it launches for none.
 *
 *   - An op starts when it is launched, its lane is free and what it depends on
 *     is done.  Compute runs at full speed, or slower while a collective or a
 *     send is moving data on the same GPU.
 *   - A collective starts on a rank when its lane reaches it, and transfers when
 *     the last participant has arrived: first latency, then its traffic at the
 *     fair rate of its links (sim/network.h, sim/maxmin.h).  Sends and receives
 *     meet the same way, in order per (sender, receiver, tag).
 *
 * Two depths, one code path.  Expanded: every op is an event; needed for a
 * timeline.  Collapsed: an instance whose ops follow one another on the compute
 * lane, that is not held up by the launching thread and meets no traffic on its
 * own links is one event (sim/engine_macro.c), with those that follow it if nobody
 * else cares when it ends (sim/engine_chain.c).  So it is beside traffic that stays as it is
 * (sim/engine_beside.c).  Beside other traffic, stretches of it that keep off its links are one
 * event (sim/engine_stretch.c), or kernels that follow one another (sim/engine_run.c).
 *
 * A graph that cannot finish is reported with the ops and ranks that block each
 * other; the engine never hangs.
 */
#ifndef LOCKSTEP_SIM_ENGINE_H
#define LOCKSTEP_SIM_ENGINE_H

#include "core/timeline.h"
#include "sim/classes.h"
#include "sim/cost.h"
#include "sim/network.h"
#include "sim/strategy/schedule.h"

/* Costs that were measured, in place of the model's, by graph op. */
typedef struct GivenCosts {
    const OpCost *op;         /* of compute */
    const int64_t *launch_ns; /* host time of each launch */
    /* Of a collective or a send, from its last arrival on; -1: as modelled. */
    const int64_t *comm_ns;
} GivenCosts;

/* Where only the pace of the micro-batches left out is known (SimResult.extrapolated), the ranks'
 * paces leave one part in so many of the step open at most.  How far off steps are in truth:
 * sim/engine_pace.c. */
enum { SIM_PACE_PART = 500 };

typedef struct SimOptions {
    bool expanded;           /* every op an event */
    bool expand_ranks;       /* every rank a class; refused above SIM_OPS_MAX op instances */
    Timeline *timeline;      /* filled when given (implies expanded); not sealed */
    bool links;              /* and how busy links are, in percent: see sim/engine_links.c */
    bool totals;             /* no RankStat.collectives, no SimResult.path */
    uint64_t seed;           /* of the machine's jitter */
    const GivenCosts *given; /* NULL: all costs are modelled; needs expanded */
    /* Micro-batches that are meant but that the graph lacks, a multiple of stride, which is how
     * many the schedule repeats: see sim/engine_steady.c.  0: none.  Its middle is run again and
     * again, until what is still left out can be leapt over. */
    uint32_t left_out, stride;
    bool no_leaps; /* all of them are run: the time of the whole graph, to the nanosecond */
    bool no_pace;  /* they are leapt over where a state comes again only, else run */
    void (*progress)(void *user, double fraction);
    void *user;
} SimOptions;

#define SIM_OPS_MAX ((uint64_t)20000000)

/* The longest chain of causes over all ranks, from the end of the step back: each op was held up
 * last by its lane, its launch, a dependency, or the last to come to its transfer.  Sums to the
 * step; bubble is what no cause explains. */
typedef struct Path {
    int64_t compute_ns, comm_ns, bubble_ns, launch_ns;
    uint32_t origin; /* the engine's own, see sim/engine_mark.c */
} Path;

enum { SIM_COLLECTIVES_MAX = 24 };

/* One kind of transfer of one rank, summed over the step. */
typedef struct CollectiveStat {
    OpKind kind;
    uint32_t group; /* Graph.groups */
    uint32_t group_size;
    uint64_t count, bytes;
    int64_t time_ns, transfer_ns, exposed_ns; /* time: waiting included */
    double wire_bytes;   /* count * busbw factor * bytes: over transfer_ns gives busbw */
    Algorithm algorithm; /* of the largest */
    Protocol protocol;
    uint64_t largest_bytes;
} CollectiveStat;

/* Instances [first, first + n) of the rank's role stand for `times` more of their kind. */
typedef struct Repeat {
    uint32_t first, n, times;
} Repeat;

/* How many instances the one at i stands for. */
static inline uint32_t repeat_count(const Repeat *r, uint32_t i)
{
    return i - r->first < r->n ? 1 + r->times : 1;
}

/* One rank class.  All on unions of intervals from 0 to the end of the step:
 * step = compute + exposed + bubble + idle;  comm = overlapped + exposed. */
typedef struct RankStat {
    uint32_t rank, ranks_n, role, stage;
    int64_t end_ns;
    int64_t compute_ns; /* some kernel that is not communication runs */
    int64_t comm_ns;    /* some collective waits or transfers, or a send or receive transfers */
    int64_t overlapped_ns; /* both */
    int64_t exposed_ns;    /* comm and no compute */
    int64_t bubble_ns;     /* neither: waits for another stage, or has finished before it */
    int64_t idle_ns;       /* the rest: launch-bound, dependencies */
    /* Of matmuls and attention, as the formulas count them: without what is computed again, and
     * with it. */
    double model_flops, hardware_flops;
    /* Lower bounds, nothing can be faster. */
    double flops_bound_ns, memory_bound_ns, link_bound_ns, launch_bound_ns;
    Repeat repeat; /* SimOptions.left_out */
    uint32_t collectives_n;
    CollectiveStat collectives[SIM_COLLECTIVES_MAX];
} RankStat;

typedef struct SimResult {
    Arena arena;
    int64_t step_ns;
    uint32_t ranks_n;
    RankStat *ranks; /* by class, ascending lowest rank */
    Path path;       /* of the class that ends last; all 0 with totals */
    uint64_t events,
        ops; /* ops: instances of ops simulated, whether or not as events of their own */
    /* Of the micro-batches left out: all are counted, or none (0), where neither a steady state was
     * seen nor the ranks could be taken back.  Then nothing else is filled, and a graph with all
     * of them is needed. */
    uint32_t repeated;
    bool extrapolated; /* they were counted at an estimated pace: sim/engine_pace.c */
} SimResult;

bool sim_run(SimResult *result, const Graph *g, const Machine *m, const Software *sw,
             const SimOptions *options, Err *err);
void sim_result_free(SimResult *result);

/*
 * What a step takes at least, without simulating it (sim/engine_bound.c): every lane and every
 * link of a rank does one thing at a time, and a stage computes nothing before its first
 * micro-batch has come through the stages before it, nor after its last has to go back through
 * them.  The graph has some micro-batches; those left_out are like the lightest of
 * them, but for the first and the last.
 */
bool sim_bound(double *step_ns, const Graph *g, const Machine *m, const Software *sw,
               uint32_t left_out, Err *err);

/* What a pass takes of the compute lane, and of that without collectives and waits for them. */
typedef struct PassBound {
    double busy_ns, kernels_ns;
} PassBound;

typedef struct BlockBound {
    PassBound forward, backward; /* backward: with the gradients of weights */
} BlockBound;

/* Of the micro-batches of a graph of one stage, what each takes at least, forward and backward. */
typedef struct MicroBatchBound {
    double busiest_ns; /* of a rank's busiest lane */
    double kernels_ns; /* of its compute lane, without collectives and waits for them */
    /* By block, the caller's: [0] before the layers, [1 + i] layer i, [layers_n + 1] behind. */
    uint32_t layers_n;
    BlockBound *block;
    /* By layer, how many of the model it stands for, for busiest_ns and kernels_ns; NULL: one. */
    const uint32_t *stands_for;
    /* GPUs of which a step waits for the slowest; 0: as many as the graph has. */
    uint32_t among;
} MicroBatchBound;

/* Where in block an instance of forward or backward belongs.  layers_came: in this pass of its
 * micro-batch. */
static inline uint32_t bound_block(const Instance *in, bool backward, bool layers_came,
                                   uint32_t layers_n)
{
    if (in->layer < layers_n)
        return 1 + in->layer;
    return layers_came != backward ? layers_n + 1 : 0;
}

/* Fills what layers_n and block leave; 0 where nothing is known. */
bool sim_bound_of_micro_batch(MicroBatchBound *bound, const Graph *g, const Machine *m,
                              const Software *sw, Err *err);

/* What the actions of each stage take, each alone, in ns: costs by Graph.roles
 * (sim/engine_actions.c). */
bool sim_action_costs(ActionCosts *costs, const Graph *g, const Machine *m, const Software *sw,
                      Err *err);

#endif

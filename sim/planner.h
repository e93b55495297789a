/*
 * planner.h - which split, strategy and batch is best on so many GPUs: try them all.
 *
 *     GPU counts x tp x pp x cp x ep x strategy x micro-batch x schedule x sequence_parallel
 *       | planner_space.c: the reader's checks decide what is a candidate at all
 *       v
 *     families that differ in recompute only: none, selective, some layers of each stage, full
 *       | planner_search.c, a family on one thread: what does not fit is left out, first by a
 *       | closed form (a lower bound), then by the memory of its graph; the first that fits
 *       | is kept, since recomputing more at the same split only costs time (selective and some
 *       v layers both: neither is more); of some layers the fewest that fit (planner_layers.c)
 *     candidates with the least time that a step can take (sim_bound)
 *       | planner_search.c: simulated from the lowest bound on, some at a time, until all that are
 *       v left would be behind the ten best of their GPU count even at their bound; whose work
 *       | alone says so (planner_work.c), of them no graph is built
 *     candidates --sorted by the objective--> the ten best once more, kernel by kernel
 *       |
 *       +--> planner_why.c: sentences        --> planner_text.c, _json.c
 *
 * Model, cluster and GPU files are read once for each GPU count; a candidate is a
 * copy of that Scenario with other degrees, and can be had again with `lockstep sim
 * --set` (plan_settings).  Nothing depends on how threads happen to run.
 */
#ifndef LOCKSTEP_SIM_PLANNER_H
#define LOCKSTEP_SIM_PLANNER_H

#include "core/json_out.h"
#include "sim/report.h"

enum { PLAN_COUNTS_MAX = 64, PLAN_GPUS_MAX = 1 << 20, PLAN_TOP = 10, PLAN_WHY_MAX = 24 };

typedef enum PlanObjective {
    PLAN_TIME,
    PLAN_COST,
    PLAN_FEWEST,
    PLAN_OBJECTIVE_N
} PlanObjective;
extern const char *const plan_objective_names[PLAN_OBJECTIVE_N]; /* "time", "cost", "gpus" */

typedef struct PlanOptions {
    const char *scenario;
    uint32_t counts_n;
    uint32_t counts[PLAN_COUNTS_MAX]; /* ascending GPU counts */
    PlanObjective objective;
    double tokens;                    /* to train on; 0: not given, as below */
    double deadline_days, budget_usd; /* of training them */
    const Setting *settings;          /* those of keys that are tried fix them */
    uint32_t settings_n, jobs;
    bool all; /* simulates also those that cannot be among the best */
    /* Finds out of all that are simulated what they need, not of the best alone. */
    bool weighs_all;
    bool shows_progress;
} PlanOptions;

/* What became of a candidate. */
typedef enum PlanFate {
    PLAN_SIMULATED,
    PLAN_ABOVE_BOUND, /* parameters, gradients and optimizer alone do not fit */
    PLAN_TOO_LARGE,   /* its memory does not fit */
    PLAN_NEEDLESS,    /* recomputes more than it has to */
    PLAN_TOO_SLOW,    /* even at best behind the ten best of as many GPUs */
    PLAN_REFUSED,     /* no graph can be built */
    PLAN_FATE_N
} PlanFate;

/* What need_bytes is. */
typedef enum PlanKnown {
    PLAN_BOUND,     /* less than is needed */
    PLAN_ALLOCATED, /* what is needed without fragmentation */
    PLAN_RESERVED   /* what is needed */
} PlanKnown;

/* What candidates have in common whose kernels are alike: see planner_work.c. */
typedef struct PlanWork {
    uint32_t base, dp, tp, cp, ep, micro_batch; /* dp: of the graph that is asked */
    Recompute recompute;
    bool sequence_parallel;
    Strategy strategy; /* likewise */
    bool timed;        /* what follows is known */
    /* Forward and backward through all layers, at least; of it, kernels alone. */
    double micro_batch_s, kernels_s;
    BlockBound *block;   /* of it, see MicroBatchBound */
    int64_t *kept_bytes; /* activations that there are more of after forward; by block, too */
    uint64_t sent_bytes; /* of them, what the first block hands on */
    /* At the peak of its backward above what there was before; parameters, gathered from all who
     * share them out, 0 where nobody does; by block, too. */
    uint64_t *backward_bytes, *gathered_bytes;
} PlanWork;

/* Parameters of a block, of the embedding or the head: those of experts, and all others. */
typedef struct PlanBlock {
    double plain, experts;
} PlanBlock;

typedef struct PlanCandidate {
    /* Keys, as in Scenario. */
    uint32_t base; /* Plan.bases */
    Strategy strategy;
    uint32_t dp, tp, pp, cp, ep, shard_size, micro_batch, virtual_stages;
    Recompute recompute;
    /* Of RECOMPUTE_LAYERS; may become more, see planner_layers.c. */
    uint32_t recompute_layers;
    Schedule schedule;
    bool sequence_parallel;
    uint32_t *stage_layers; /* NULL: shared out evenly; see planner_stages.c */

    PlanFate fate;
    PlanKnown known;                /* of need_bytes */
    uint64_t need_bytes, gpu_bytes; /* reserved on the fullest GPU, and there */
    /* Of a step, at least: what its work takes or, if higher, its graph (sim_bound). */
    double bound_s;
    uint32_t work;  /* Plan.works; NONE_U32: not known */
    uint32_t again; /* of RECOMPUTE_LAYERS: that of layers that are recomputed; else NONE_U32 */
    bool untried;   /* PLAN_TOO_SLOW by its work; whether it fits is not known */
    /* Simulated ones. */
    double step_s, exposed_s, bubble_s, samples_per_s, tokens_per_s, mfu;
    bool extrapolated; /* at a pace, see SIM_PACE_PART */
    double searched_s; /* as the search found it, with leaps over micro-batches */
    double expanded_s; /* kernel by kernel; 0: not among the ten best, whose step_s is whole */
    double cost_usd;   /* a step; NAN without a price */
} PlanCandidate;

/* A GPU count without a plan. */
typedef struct PlanMissing {
    uint32_t gpus;
    const char *why; /* a sentence */
} PlanMissing;

/* Training --tokens with a candidate; NAN where the machine's file does not say. */
typedef struct PlanRun {
    double steps, days, gpu_hours, cost_usd;
    double failures; /* of a GPU, to be expected: GPU-hours by gpu_mtbf_hours */
    double gpu_mwh;  /* of the GPUs alone, at their tdp_w all the time: at most that */
} PlanRun;

typedef struct Plan {
    const PlanOptions *options;
    Arena arena;
    uint32_t bases_n;
    Scenario *bases; /* by GPU count; software is the same */
    uint32_t *gpus;  /* by base */
    Software sw;
    PlanBlock *block; /* of a transformer: embedding, layers, head */
    /* Of the scenario as it stands; 0: it does not. */
    uint32_t own_micro_batch;
    Parallel own; /* likewise; without stage_layers */
    /* --set training.recompute={"layers": N}; NONE_U32: as many as are needed. */
    uint32_t fixed_layers;
    double kept_free; /* part of each GPU's memory that candidates must leave */
    /* By Schedule: tried where --set names none, the stack's and the scenario's own; 1f1b and
     * interleaved are in any case. */
    bool offered[SCHEDULE_N];
    bool lists_schedules; /* those are candidates, too, that --set must ask for: to name them */
    uint32_t n, cap;
    PlanCandidate *candidates;
    uint32_t works_n, works_cap;
    PlanWork *works;
    uint32_t order_n; /* simulated ones that meet deadline and budget, best first */
    uint32_t *order;
    uint32_t front_n;
    uint32_t *front; /* of time over GPUs: ascending GPUs, each faster than those before */
    uint32_t missing_n;
    PlanMissing *missing;   /* GPU counts that nobody in order has */
    bool order_kept;        /* by the ten best, kernel by kernel */
    const char *order_note; /* says so, or what changed */
    uint32_t fates[PLAN_FATE_N];
    Report best; /* of order[0] */
    uint32_t why_n;
    const char *why[PLAN_WHY_MAX];
    const char *refused; /* why the first PLAN_REFUSED one was */
    double cpu_s;        /* of trying the candidates, without what finds out whether the best
                   * really fit, without the ten best again and without why */
} Plan;

/* False with err when nothing can be tried, nothing fits, or nothing is in time or budget: then
 * the sentence says by how much the closest misses.  The caller frees p in any case. */
bool plan_run(Plan *p, const PlanOptions *options, Err *err);
void plan_free(Plan *p);

/* planner_space.c: bases and candidates. */
bool plan_open(Plan *p, const PlanOptions *options, Err *err);
bool plan_enumerate(Plan *p, Err *err);
/* A candidate as a Scenario; borrows from its base, not to be freed. */
Scenario plan_scenario(const Plan *p, const PlanCandidate *c);
/* "parallel.tp=8" ...: what makes the scenario this candidate.  Returns how many. */
enum { PLAN_SETTINGS_MAX = 16, PLAN_SETTING_CAP = 800 };
uint32_t plan_settings(char (*settings)[PLAN_SETTING_CAP], const Plan *p,
                       const PlanCandidate *c);
/* Of the user's settings the i-th that none of these n repeats; NULL: there are no more. */
const Setting *plan_other_setting(const Plan *p, char (*settings)[PLAN_SETTING_CAP], uint32_t n,
                                  uint32_t i);

/* planner_weigh.c.  What is weighed: what is allocated; what is reserved by the fullest rank, for
 * which roles are replayed (see memory_replay) that may run on it, as far as planner_weigh.c can
 * tell; the same, with all roles replayed. */
typedef enum PlanWeighing {
    PLAN_WEIGH_ALLOCATED,
    PLAN_WEIGH_FULLEST,
    PLAN_WEIGH_ALL
} PlanWeighing;
/* Fills need_bytes and gpu_bytes of the GPU with the least left.  memory: of g's roles. */
void plan_weigh(PlanCandidate *c, const Plan *p, const Graph *g, const Machine *m,
                RoleMemory *memory, PlanWeighing how);

/* What candidates may have of so many bytes. */
static inline uint64_t plan_there_bytes(const Plan *p, uint64_t bytes)
{
    return bytes - (uint64_t)(p->kept_free * (double)bytes);
}

/* Of a candidate and its GPU count. */
static inline uint32_t plan_gpus(const PlanCandidate *c)
{
    return c->dp * c->tp * c->pp * c->cp;
}
/* Of the nodes that they are on: as many as are paid for where nodes are rented whole.  Prices and
 * budgets count plan_gpus. */
uint32_t plan_whole_nodes_gpus(const Plan *p, const PlanCandidate *c);
PlanRun plan_training(const Plan *p, const PlanCandidate *c);
/* Smaller is better. */
double plan_score(const Plan *p, const PlanCandidate *c);
/* {"layers":3} as JSON, or the word. */
enum { PLAN_RECOMPUTE_CAP = 32 };
char *plan_recompute_text(char *text, const PlanCandidate *c);
/* "hsdp dp 8 x tp 2 in groups of 4, micro-batch 1, recompute full"; label holds TEXT_CAP bytes. */
char *plan_label(char *label, const PlanCandidate *c);

void plan_explain(Plan *p); /* planner_why.c: fills why */
/* Simulates one that was left out as too slow, or first finds out what its work takes or whether
 * it fits at all where that is not known, and whether it really does; its fate, or a higher bound,
 * says what became of it. */
void plan_simulate(const Plan *p, PlanCandidate *c);

void plan_text(const Plan *p, bool pareto, FILE *out);
void plan_json(const Plan *p, JsonOut *j);

#endif

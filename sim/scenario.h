/*
 * scenario.h - what a user asks: a model, a cluster, how to train, how to split.
 *
 * Every key, its unit, range and default stand in scenarios/README.md; the
 * struct below holds the values after reading, with defaults filled in and the
 * degrees checked against each other and against the cluster:
 *
 *   name or path --> JsonDoc --settings--> model, cluster --> parallel --> training --> checks
 *   scenario_file.c         (--set)        (their readers)    scenario.c          scenario_check.c
 *
 * So a Scenario that was read can be simulated as it stands: whoever uses one
 * need not ask again whether heads divide by tp.
 */
#ifndef LOCKSTEP_SIM_SCENARIO_H
#define LOCKSTEP_SIM_SCENARIO_H

#include <stdio.h>

#include "core/machine.h"
#include "core/setting.h"
#include "core/share.h"
#include "sim/model.h"

typedef enum Strategy {
    STRATEGY_SINGLE,
    STRATEGY_MODEL_PARALLEL,
    STRATEGY_DP,
    STRATEGY_DDP,
    STRATEGY_ZERO1,
    STRATEGY_ZERO2,
    STRATEGY_FSDP,
    STRATEGY_HSDP,
    STRATEGY_N
} Strategy;

/* On whatever ranks; where there is but one the whole may stay. */
static inline bool strategy_shards_grads(Strategy s)
{
    return s == STRATEGY_ZERO2 || s == STRATEGY_FSDP || s == STRATEGY_HSDP;
}

typedef enum Schedule {
    SCHEDULE_NAIVE,
    SCHEDULE_GPIPE,
    SCHEDULE_1F1B,
    SCHEDULE_INTERLEAVED,
    SCHEDULE_ZB_H1,
    SCHEDULE_ZB_1P,
    SCHEDULE_ZB_2P,
    SCHEDULE_ZBV,
    SCHEDULE_DUALPIPE,
    SCHEDULE_N
} Schedule;

typedef enum Optimizer { OPT_SGD, OPT_MOMENTUM, OPT_ADAM, OPT_ADAMW, OPTIMIZER_N } Optimizer;
typedef enum Recompute {
    RECOMPUTE_NONE,
    RECOMPUTE_SELECTIVE,
    RECOMPUTE_FULL,
    RECOMPUTE_LAYERS /* {"layers": N} */
} Recompute;
typedef enum Prefetch { PREFETCH_NONE, PREFETCH_BACKWARD, PREFETCH_BOTH } Prefetch;
typedef enum Attention { ATTENTION_FLASH, ATTENTION_MATH } Attention;
typedef enum Dim { DIM_TP, DIM_CP, DIM_EP, DIM_DP, DIM_PP, DIM_N } Dim;

extern const char *const strategy_names[STRATEGY_N];
extern const char *const schedule_names[SCHEDULE_N];
extern const char *const recompute_names[RECOMPUTE_LAYERS]; /* "none", "selective", "full" */

/* Does it do weight gradients apart from the rest of backward? */
static inline bool schedule_splits(Schedule schedule)
{
    return schedule >= SCHEDULE_ZB_H1 && schedule <= SCHEDULE_DUALPIPE;
}

/* Micro-batches that fill a pipeline of pp stages where forwards and backwards take turns; later
 * stages may put off the weight gradients of as many. */
static inline uint32_t schedule_fill(Schedule schedule, uint32_t pp)
{
    return schedule_splits(schedule) ? 2 * pp : pp;
}

/* Down the stages and up again, two chunks a rank?  Of dualpipe that is the form that is built. */
static inline bool schedule_is_vee(Schedule schedule)
{
    return schedule == SCHEDULE_ZBV || schedule == SCHEDULE_DUALPIPE;
}
extern const char *const optimizer_names[OPTIMIZER_N];
extern const char *const dim_names[DIM_N]; /* "tp", "cp", ... */

typedef struct Training {
    uint32_t global_batch, micro_batch, seq_len; /* sequences, sequences, tokens */
    uint32_t micro_batches; /* per replica and step: global_batch / (dp * micro_batch) */
    /* Of them, those that are not in a graph of plan's (sim/shorten.h), but what they leave. */
    uint32_t left_out;
    DType precision; /* of matmuls */
    DType param_dtype, grad_dtype, reduce_dtype;
    bool master_weights; /* an f32 copy beside param_dtype */
    /* Given by the user; else the software may say more: sim/formats.h. */
    bool param_dtype_set, grad_dtype_set, reduce_dtype_set, master_weights_set;
    Optimizer optimizer;
    Recompute recompute;
    uint32_t recompute_layers; /* per stage, for RECOMPUTE_LAYERS */
    double lr, weight_decay, beta1, beta2, eps, momentum, grad_clip; /* grad_clip 0 = none */
    bool grad_clip_set; /* given by the user; else the software may have passes for it */
    bool loss_mse;      /* else cross_entropy */
    const char *data;   /* "synthetic", "regression20", or the path of a text file */
    uint64_t seed;
    Attention attention;
    /* It is written there: flash also where the stack has no such kernel. */
    bool asks_attention;
    bool compiled;
} Training;

/* Who carries tokens to their experts and back. */
typedef enum Dispatcher {
    DISPATCHER_ALLTOALL, /* NCCL: a row for each expert that a token visits */
    DISPATCHER_DEEPEP,   /* DeepEP, HybridEP: a row for each rank, and one for each node */
    DISPATCHER_N
} Dispatcher;
extern const char *const dispatcher_names[DISPATCHER_N];

typedef struct Parallel {
    Strategy strategy;
    uint32_t dp, tp, pp, cp, ep;
    uint32_t gpus;           /* dp * tp * pp * cp */
    uint32_t stage_layers_n; /* 0: the default split */
    /* Blocks per chunk, in pipeline order: pp * virtual_stages entries. */
    uint32_t *stage_layers;
    bool sequence_parallel;
    Schedule schedule;
    uint32_t virtual_stages;
    uint64_t bucket_bytes, first_bucket_bytes;
    bool bucket_bytes_set; /* given by the user; else the software's habit */
    bool reshard_after_forward;
    bool reshard_set; /* given by the user; else the software may not, in pipelines */
    Prefetch prefetch;
    uint32_t shard_size; /* hsdp */
    bool limit_all_gathers;
    bool sync_batchnorm; /* statistics over the samples of all replicas */
    bool has_experts;    /* the model has: else the next three mean nothing */
    uint32_t etp;        /* ranks that share out an expert: 1 or tp; 0: the software's habit */
    bool whole_by_habit; /* with etp 0: that is 1 where experts are shared out */
    Dispatcher dispatcher;
    bool dispatcher_set;     /* given by the user; else the software's habit */
    bool overlap[DIM_N];     /* false: every collective of that dimension is exposed */
    bool overlap_set[DIM_N]; /* given by the user; else the software's habit */
    Dim order[DIM_N];        /* innermost first */
} Parallel;

uint32_t parallel_degree(const Parallel *p, Dim d);
/* Ranks along a dimension: 1 along ep, whose ranks are some of dp's. */
uint32_t parallel_extent(const Parallel *p, Dim d);

/* All-to-alls hidden behind the other half of a pair are what it was made for. */
static inline bool runs_dualpipe(const Parallel *p)
{
    return p->pp > 1 && p->schedule == SCHEDULE_DUALPIPE;
}

/* What "measured" may name: what the report says about a step, named as there. */
enum { SCENARIO_METRICS_N = 28 };
extern const char *const scenario_metrics[SCENARIO_METRICS_N];

typedef struct Measured {
    const char *metric; /* a key of the report, "memory.peak_bytes" for one inside an object */
    double value;       /* "fits": 1 or 0 */
    const char *published_as, *source; /* "" where not given */
} Measured;

typedef struct Scenario {
    Arena arena; /* with doc: everything below that is pointed to, but the machine's */
    const char *name, *file;
    Model model;
    Machine machine;
    Training training;
    Parallel parallel;
    const char *software; /* its name: software.h reads it */
    uint32_t measured_n;
    Measured *measured;
    const char *source, *notes, *quality, *group; /* "" where not given */
    JsonDoc *doc;                                 /* texts above live in it; scenario_explain */
} Scenario;

/* Reads one .json file or built-in name.  On failure s is empty again. */
bool scenario_read(Scenario *s, const char *name, const Setting *settings, uint32_t settings_n,
                   Err *err);
/* The same with whatever split the work: to ask what it is made of, or of its cluster. */
bool scenario_read_unsplit(Scenario *s, const char *name, const Setting *settings,
                           uint32_t settings_n, Err *err);
/* scenario_read from a document (one line of a .jsonl file); takes over doc. */
bool scenario_from(Scenario *s, JsonDoc *doc, const Setting *settings, uint32_t settings_n,
                   Err *err);
/* The same of what is not built as it stands, but split otherwise: it may have more micro-batches
 * than a graph may, which scenario_can_be_built says of others. */
bool scenario_read_to_split(Scenario *s, const char *name, const Setting *settings,
                            uint32_t settings_n, Err *err);
bool scenario_from_to_split(Scenario *s, JsonDoc *doc, const Setting *settings,
                            uint32_t settings_n, Err *err);
bool scenario_can_be_built(const Scenario *s, Err *err);
void scenario_free(Scenario *s); /* s is empty again */

/* What a scenario with these settings says, whether or not it can be read: a cluster; how the work
 * is split - a degree of parallel, or strategy single - instead of over the whole cluster. */
typedef struct ScenarioSays {
    bool cluster, split;
} ScenarioSays;

bool scenario_says(ScenarioSays *says, const char *name, const Setting *settings,
                   uint32_t settings_n, Err *err);

/*
 * Whether path leads to a file that s was read from: its own, or that of its model,
 * cluster, GPUs, software or data.  Whoever writes a file asks first.
 */
bool scenario_is_made_of(const Scenario *s, const char *path);
bool scenario_spares(const Scenario *s, const char *path,
                     Err *err); /* if not; else a sentence */
/* The same of a scenario that is still to be read, and some paths; NULL: none.  True also where it
 * cannot be read, which is said by who does. */
bool scenario_spares_paths(const char *name, const Setting *settings, uint32_t settings_n,
                           const char *const *paths, size_t paths_n, Err *err);

/* Which keys were given and are not used, as in "strategy ddp does not use parallel.prefetch,
 * parallel.shard_size"; "" where there are none. */
enum { SCENARIO_UNUSED_CAP = 480 };
char *scenario_unused(const Scenario *s, char text[SCENARIO_UNUSED_CAP]);

/* Whether it says of what stack a scenario is: "software", or a key below. */
bool scenario_sets_software(const Setting *set);

/* Every key asked for and every value derived: aligned rows of key, value, origin.  The software
 * says how large buckets are where the scenario is silent. */
struct Software;
void scenario_explain(const Scenario *s, const struct Software *sw, FILE *out);

/*
 * Calls one for each scenario of a list of arguments (.json, built-in name,
 * .jsonl with one scenario a line).  Stops at the first false.
 */
typedef bool ScenarioVisit(void *user, JsonDoc *doc, Err *err); /* takes over doc */
bool scenario_each(char *const *names, uint32_t names_n, ScenarioVisit *visit, void *user,
                   Err *err);
/*
 * The same, but a line of a .jsonl file that is no JSON goes to skip, with its place FILE:LINE and
 * what is wrong.  A file of which no line is JSON is an error still, after its lines were skipped.
 */
typedef void ScenarioSkip(void *user, const char *place, const Err *why);
bool scenario_each_that_reads(char *const *names, uint32_t names_n, ScenarioVisit *visit,
                              ScenarioSkip *skip, void *user, Err *err);

/* Names of the built-in things of a kind ("models", "gpus", ...), sorted; they live in arena. */
uint32_t share_names(const char *const **names, Arena *arena, const char *kind);

#endif

/*
 * planner_parts.h - what the planner's files ask each other; nobody else includes it.
 */
#ifndef LOCKSTEP_SIM_PLANNER_PARTS_H
#define LOCKSTEP_SIM_PLANNER_PARTS_H

#include <string.h>

#include "sim/planner.h"

enum { PLAN_NEUTRAL_N = 12 };
extern const Setting
    plan_neutral[PLAN_NEUTRAL_N]; /* keys that are tried, and where they start */

bool plan_is_tried(const char *key);
/* False with err where a setting speaks of a tried key without being it. */
bool plan_check_keys(const PlanOptions *o, Err *err);

bool plan_sets(const Plan *p, const char *key); /* also to null */
/* What --set says of a key; NULL: nothing, or null. */
const char *plan_fixed(const Plan *p, const char *key);
/* What it says, 0 where that is no number from 1 on; otherwise where it says nothing. */
uint32_t plan_fixed_number(const Plan *p, const char *key, uint32_t otherwise);
/* Is value what it says, if it says anything? */
bool plan_has(const Plan *p, const char *key, const char *value);
bool plan_has_number(const Plan *p, const char *key, uint32_t value);
bool plan_has_split(const Plan *p, const PlanCandidate *c);
bool plan_has_strategy(const Plan *p, const PlanCandidate *c);
bool plan_has_schedule(const Plan *p, const PlanCandidate *c);
bool plan_has_recompute(const Plan *p, const PlanCandidate *c);
/* Does --set say an object of a key? */
bool plan_is_object(const PlanOptions *o, const char *key);
/* "parallel.tp 3 and parallel.dp 4": what it says of all that are tried; returns how many. */
uint32_t plan_list_fixed(const PlanOptions *o, char *text, size_t cap);

/* planner_lacks.c.  Does c take what the stack cannot do and nobody asks for? */
bool plan_stack_lacks(const Plan *p, const PlanCandidate *c);
/* "left out, as nanogpt-2023 does not have them: tp, pp"; "" where all is tried. */
const char *plan_lacks_text(const Plan *p, char *text, size_t cap);

/* planner_space.c.  Candidates like c, but for recomputation, with the micro-batches from half to
 * twice as many that were not tried. */
void plan_add_between(Plan *p, PlanCandidate c);
/* Interleaved, with other numbers of chunks. */
void plan_add_chunks(Plan *p, PlanCandidate c);
/* With a layer more or less in the last chunk, or on another stage of GPUs of several speeds,
 * where chunks have others than their share. */
void plan_add_shares(Plan *p, PlanCandidate c);
/* With each other strategy. */
void plan_add_strategies(Plan *p, PlanCandidate c);

/* planner_stages.c.  Fills stage_layers where another share is worth trying; false: none is. */
bool plan_share_unevenly(Plan *p, PlanCandidate *c);
/* last: layers of the last chunk; false: there is no such share, or it is the even one. */
bool plan_set_share(Plan *p, PlanCandidate *c, uint32_t last);
/* like: c with one layer elsewhere, in the i-th way of pp x pp; false: that is none. */
bool plan_share_beside(Plan *p, PlanCandidate *like, const PlanCandidate *c, uint32_t i);
uint32_t plan_last_share(const PlanCandidate *c); /* which has stage_layers, as below */
/* "6 layers at the end", "13 + 12 + 4 + 3 layers", "2 to 5 layers a stage" */
const char *plan_share_text(char *text, size_t cap, const PlanCandidate *c);

static inline bool plan_same_split(const PlanCandidate *a, const PlanCandidate *b)
{
    return a->base == b->base && a->strategy == b->strategy && a->dp == b->dp &&
           a->tp == b->tp && a->pp == b->pp && a->cp == b->cp && a->ep == b->ep &&
           a->shard_size == b->shard_size;
}

static inline uint32_t plan_micro_batches(const Plan *p, const PlanCandidate *c)
{
    return p->bases[c->base].training.global_batch / (c->dp * c->micro_batch);
}

/* Of one split, both with the chunks of a: are the layers shared out alike? */
static inline bool plan_same_share(const PlanCandidate *a, const PlanCandidate *b)
{
    size_t bytes = (size_t)a->pp * a->virtual_stages * sizeof *a->stage_layers;
    if (!a->stage_layers || !b->stage_layers)
        return a->stage_layers == b->stage_layers;
    return memcmp(a->stage_layers, b->stage_layers, bytes) == 0;
}

/* Of one split: those that differ in recomputation only. */
static inline bool plan_same_family(const PlanCandidate *a, const PlanCandidate *b)
{
    return a->micro_batch == b->micro_batch && a->schedule == b->schedule &&
           a->virtual_stages == b->virtual_stages &&
           a->sequence_parallel == b->sequence_parallel && plan_same_share(a, b);
}

/* They stand together: none, selective, some layers, full. */
static inline bool plan_is_family(const PlanCandidate *a, const PlanCandidate *b)
{
    return plan_same_split(a, b) && plan_same_family(a, b);
}

/* Of one family: does a recompute less than b?  Of selective and some layers neither does. */
static inline bool plan_recomputes_less(const PlanCandidate *a, const PlanCandidate *b)
{
    static const int order[] = { [RECOMPUTE_NONE] = 0,
                                 [RECOMPUTE_SELECTIVE] = 1,
                                 [RECOMPUTE_LAYERS] = 1,
                                 [RECOMPUTE_FULL] = 2 };
    return order[a->recompute] < order[b->recompute];
}

static inline PlanCandidate *plan_first_of_family(const Plan *p, PlanCandidate *c)
{
    while (c > p->candidates && plan_is_family(c - 1, c))
        c--;
    return c;
}

/* False, and why a replica on each GPU of a base is no candidate, though nobody fixed another
 * split. */
bool plan_may_replicate(const Plan *p, uint32_t base, Err *err);
/* Why plain data parallelism is no candidate on the GPUs of a base; other splits fail alike. */
bool plan_has_no_split(const Plan *p, uint32_t base, Err *err);

/* planner_none.c.  Of --deadline-days and --budget-usd. */
bool plan_is_in_time(const Plan *p, const PlanCandidate *c);
bool plan_is_in_budget(const Plan *p, const PlanCandidate *c);
/* False, and why none of a base's candidates is a plan (NONE_U32: none of all). */
bool plan_is_none(Plan *p, uint32_t base, Err *err);

/* planner_try.c.  How deep a candidate is tried; PLAN_WHOLE: collapsed with all micro-batches,
 * as sim does. */
typedef enum PlanDepth {
    PLAN_WEIGHED,
    PLAN_BOUNDED,
    PLAN_COLLAPSED,
    PLAN_WHOLE,
    PLAN_EXPANDED
} PlanDepth;
/* Fills c by how deep it is asked for, with err as PLAN_REFUSED; *kept (may be NULL) is the report
 * of a simulated one, for which nothing is left out. */
void plan_try(const Plan *p, PlanCandidate *c, PlanDepth depth, Report *kept, Err *err);
/* planner_search.c.  Candidates, several at a time; false with the first err. */
bool plan_try_some(Plan *p, const uint32_t *some, uint32_t n, PlanDepth depth, Err *err);
void plan_search(Plan *p); /* all; those that may be among the ten best are simulated */

/* planner_ask.c.  Is a candidate one that answers?  best: the plan that all are compared with. */
typedef bool PlanQuestion(const PlanCandidate *c, const PlanCandidate *best);

typedef struct PlanFound {
    PlanCandidate *fast;        /* the fastest that fits */
    const PlanCandidate *small; /* where none fits: the one that needs least, as far as known */
} PlanFound;

/* Known already, or with what else must be tried to know. */
PlanFound plan_find(const Plan *p, PlanQuestion *asks);

/* planner_work.c.  Which works there are, and each candidate's from `first` on, but of those too
 * large already. */
void plan_find_works(Plan *p, uint32_t first);
void plan_time_work(const Plan *p, PlanWork *w);
/* What a step of c takes at least, in s; 0: not known. */
double plan_work_bound(const Plan *p, const PlanCandidate *c);
/* May another micro-batch hide what one alone waits for? */
bool plan_hides_waits(const Plan *p, const Scenario *s);
/* Behind the last block of chunk k, whose first is `at`: 0 the embedding, then layers, the head. */
uint32_t plan_chunk_end(const Scenario *s, uint32_t k, uint32_t at);

/* Are its works known, and timed? */
bool plan_knows_work(const Plan *p, const PlanCandidate *c);
/* By block, the work that says what it takes: some layers of each stage may be recomputed, the
 * first (as choose_variants of strategy/pipeline.c has it).  The caller frees it. */
const PlanWork **plan_block_works(const Plan *p, const PlanCandidate *c, const Scenario *s);

/* planner_layers.c.  Is it for the search to say how many layers it recomputes? */
bool plan_seeks_layers(const Plan *p, const PlanCandidate *c);
/* The most layers of a stage that are not all of the fullest one's. */
uint32_t plan_layers_between(const Plan *p, const PlanCandidate *c);
/* Recomputes more where its works say that so many do not fit. */
void plan_raise_layers(const Plan *p, PlanCandidate *c);
/* As plan_try with kept NULL; of one that seeks layers with as many more as are needed to fit, for
 * which then nothing but that is known: PLAN_TOO_SLOW, unless depth asks for a simulation. */
void plan_try_fewest(const Plan *p, PlanCandidate *c, PlanDepth depth, Err *err);

/* planner_memory.c. */
void plan_count_blocks(Plan *p); /* fills block */
/* Bytes that the fullest GPU needs at least: with parameters, optimizer and all gradients. */
uint64_t plan_memory_bound(const Plan *p, const PlanCandidate *c);
/* The same in its first backward, with what its work keeps for that; 0: not known. */
uint64_t plan_work_memory(const Plan *p, const PlanCandidate *c);
/* About what recomputing another layer spares of that; 0: not known. */
uint64_t plan_layer_saving(const Plan *p, const PlanCandidate *c);

#endif

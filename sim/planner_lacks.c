/*
 * planner_lacks.c - what the stack cannot do (parallel.lacks of its file) is no candidate, unless
 * the scenario does so or --set asks for it.
 */
#include "sim/planner_parts.h"

#include <string.h>

#include "sim/scenario_parts.h"
#include "sim/texts.h"

static bool lacks_dim(const Plan *p, Dim d)
{
    char key[32];
    snprintf(key, sizeof key, "parallel.%s", dim_names[d]);
    return p->sw.lacks_dim[d] && parallel_degree(&p->own, d) <= 1 &&
           plan_fixed_number(p, key, 0) <= 1;
}

/* Does --set say just that? */
static bool asks(const Plan *p, const char *key, const char *word)
{
    return plan_fixed(p, key) && plan_has(p, key, word);
}

static bool lacks_strategy(const Plan *p, Strategy s)
{
    return p->sw.lacks_strategy[s] && p->own.strategy != s &&
           !asks(p, "parallel.strategy", strategy_names[s]);
}

static bool lacks_sequence_parallel(const Plan *p)
{
    return p->sw.lacks_sequence_parallel && !p->own.sequence_parallel &&
           !asks(p, "parallel.sequence_parallel", "true");
}

static bool lacks_interleaved(const Plan *p)
{
    return p->sw.lacks_interleaved && p->own.schedule != SCHEDULE_INTERLEAVED &&
           !asks(p, "parallel.schedule", schedule_names[SCHEDULE_INTERLEAVED]) &&
           plan_fixed_number(p, "parallel.virtual_stages", 0) <= 1;
}

/* Who asks for both asks for them together. */
static bool lacks_fsdp_with_pp(const Plan *p)
{
    bool pp = p->own.pp > 1 || plan_fixed_number(p, "parallel.pp", 0) > 1;
    bool shards = strategy_shards_grads(p->own.strategy);
    for (int s = 0; s < STRATEGY_N; s++)
        shards |= strategy_shards_grads((Strategy)s) &&
                  asks(p, "parallel.strategy", strategy_names[s]);
    return p->sw.lacks_fsdp_with_pp && !(pp && shards);
}

bool plan_stack_lacks(const Plan *p, const PlanCandidate *c)
{
    return (c->tp > 1 && lacks_dim(p, DIM_TP)) || (c->pp > 1 && lacks_dim(p, DIM_PP)) ||
           (c->cp > 1 && lacks_dim(p, DIM_CP)) || (c->ep > 1 && lacks_dim(p, DIM_EP)) ||
           (c->sequence_parallel && lacks_sequence_parallel(p)) ||
           (c->schedule == SCHEDULE_INTERLEAVED && lacks_interleaved(p)) ||
           (c->pp > 1 && strategy_shards_grads(c->strategy) && lacks_fsdp_with_pp(p)) ||
           lacks_strategy(p, c->strategy);
}

/* Of what the model could make use of. */
static void list_lacks(const Plan *p, char *text, size_t cap)
{
    static const Strategy strategies[] = { STRATEGY_ZERO1, STRATEGY_ZERO2, STRATEGY_FSDP,
                                           STRATEGY_HSDP };
    TextList l = { .text = text, .cap = cap };
    const Model *m = &p->bases[0].model;
    bool tp = lacks_dim(p, DIM_TP), pp = lacks_dim(p, DIM_PP), cuts = m->kind != MODEL_CONVNET;
    text[0] = '\0';
    text_list_add(&l, tp && cuts, "tp");
    text_list_add(&l, lacks_sequence_parallel(p) && !tp && cuts, "sequence_parallel");
    text_list_add(&l, pp && cuts, "pp");
    text_list_add(&l, lacks_interleaved(p) && !pp && cuts, "interleaved");
    text_list_add(&l, lacks_dim(p, DIM_CP) && m->kind == MODEL_TRANSFORMER, "cp");
    text_list_add(&l, lacks_dim(p, DIM_EP) && scenario_experts(m) > 0, "ep");
    for (size_t i = 0; i < ARRAY_N(strategies); i++)
        text_list_add(&l, lacks_strategy(p, strategies[i]), strategy_names[strategies[i]]);
    text_list_add(&l, lacks_fsdp_with_pp(p) && !pp && cuts, "fsdp with pp");
}

const char *plan_lacks_text(const Plan *p, char *text, size_t cap)
{
    char words[100];
    text[0] = '\0';
    list_lacks(p, words, sizeof words);
    if (*words)
        snprintf(text, cap, "left out, as %.60s does not have them: %s", p->sw.name, words);
    return text;
}

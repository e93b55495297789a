/*
 * planner_stages.c - layers off the last stage, where what stands behind takes as long as some.
 *
 *     even         |8 layers|8 layers|8 layers|8 layers, head|      the others wait
 *     tried too    |9 layers|9 layers|8 layers|6, head|
 *
 * How many layers the head takes is counted in multiplications: the vocabulary's, and those of the
 * layers that predict further tokens.  Where another share makes the fullest stage shorter, the one
 * that makes it shortest is tried beside the even one; of the ten best one layer more and less
 * (plan_add_shares).  What is left over goes to the later of the other chunks, which hold fewer
 * micro-batches.
 */
#include "sim/planner_parts.h"

#include <string.h>

#include "sim/blocks.h"
#include "sim/scenario_parts.h"
#include "sim/strategy/schedule.h"

/* With more the list is no longer one that people would set. */
enum { CHUNKS_MAX = 128 };
/* Part by which the fullest stage must be shorter. */
static const double worth = 0.01;

/* Multiplications of a token's way through a layer, in the mean. */
static double layer_work(const Scenario *s)
{
    const Model *m = &s->model;
    const Transformer *t = &m->u.transformer;
    double params = (double)model_active_params(m) - (double)transformer_embedding_params(t) -
                    (double)transformer_head_params(t);
    double keys = (double)s->training.seq_len / (t->causal ? 2 : 1);
    double value_dim = t->kv_rank ? t->value_dim : t->head_dim;
    return params / t->layers + keys * t->heads * (t->head_dim + value_dim);
}

/* What stands behind the last layer, in layers. */
static double head_layers(const Plan *p, const Scenario *s)
{
    const Transformer *t = &s->model.u.transformer;
    if (s->model.kind != MODEL_TRANSFORMER)
        return 0;
    double layer = layer_work(s), vocab = (double)t->vocab * t->embedding_dim;
    double ahead = mtp_layers(&(Build){ .s = s, .sw = &p->sw });
    double projection = 2.0 * t->hidden * t->hidden;
    return (vocab * (1 + ahead) + ahead * (layer + projection)) / layer;
}

static void share_evenly(uint32_t *share, uint32_t chunks, uint32_t layers)
{
    for (uint32_t c = 0; c < chunks; c++)
        share[c] = even_share(layers, 2, chunks, c);
}

static void share_with_last(uint32_t *share, uint32_t chunks, uint32_t layers, uint32_t last)
{
    uint32_t rest = layers - last, others = chunks - 1;
    for (uint32_t c = 0; c < others; c++)
        share[c] = rest / others + (others - 1 - c < rest % others);
    share[others] = last;
}

/* Of the fullest stage, in layers. */
static double fullest(const PlanCandidate *c, const uint32_t *share, double head)
{
    uint32_t chunks = c->pp * c->virtual_stages;
    double most = 0, sum[CHUNKS_MAX] = { 0 }; /* by stage */
    sum[schedule_stage(c->schedule, c->pp, chunks - 1)] = head;
    for (uint32_t k = 0; k < chunks; k++)
        sum[schedule_stage(c->schedule, c->pp, k)] += share[k];
    for (uint32_t k = 0; k < c->pp; k++)
        most = sum[k] > most ? sum[k] : most;
    return most;
}

static bool may_differ(const Plan *p, const PlanCandidate *c)
{
    bool waits = c->schedule != SCHEDULE_NAIVE; /* for the fullest stage */
    return c->pp > 1 && waits && p->sw.uneven_stages &&
           c->pp * c->virtual_stages <= CHUNKS_MAX &&
           p->bases[c->base].model.kind == MODEL_TRANSFORMER &&
           !plan_sets(p, "parallel.stage_layers");
}

bool plan_share_unevenly(Plan *p, PlanCandidate *c)
{
    const Scenario *s = &p->bases[c->base];
    uint32_t share[CHUNKS_MAX], chunks = c->pp * c->virtual_stages;
    uint32_t layers = scenario_blocks(&s->model), best = NONE_U32;
    if (!may_differ(p, c))
        return false;
    double head = head_layers(p, s);
    share_evenly(share, chunks, layers);
    double least = fullest(c, share, head) * (1 - worth);
    for (uint32_t last = share[chunks - 1]; last-- > 0;) {
        share_with_last(share, chunks, layers, last);
        double most = fullest(c, share, head);
        if (most < least) {
            least = most;
            best = last;
        }
    }
    return best != NONE_U32 && plan_set_share(p, c, best);
}

bool plan_set_share(Plan *p, PlanCandidate *c, uint32_t last)
{
    uint32_t share[CHUNKS_MAX], even[CHUNKS_MAX], chunks = c->pp * c->virtual_stages;
    uint32_t layers = scenario_blocks(&p->bases[c->base].model);
    if (last > div_up_u64(layers, chunks))
        return false; /* also one below none */
    share_with_last(share, chunks, layers, last);
    share_evenly(even, chunks, layers);
    if (memcmp(share, even, chunks * sizeof *share) == 0)
        return false;
    c->stage_layers = PUSH_ARRAY(&p->arena, uint32_t, chunks);
    memcpy(c->stage_layers, share, chunks * sizeof *share);
    return true;
}

uint32_t plan_last_share(const PlanCandidate *c)
{
    return c->stage_layers[c->pp * c->virtual_stages - 1];
}

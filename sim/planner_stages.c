/*
 * planner_stages.c - layers off the last stage, where what stands behind takes as long as some, and
 * off the stages of slow GPUs.
 *
 *     even         |8 layers|8 layers|8 layers|8 layers, head|      the others wait
 *     tried too    |9 layers|9 layers|8 layers|6, head|
 *     of GPUs      |13 layers|12 layers|4 layers|3, head|           the last two three times slower
 *
 * How many layers the head takes is counted in multiplications: the vocabulary's, and those of the
 * layers that predict further tokens.  Where another share makes the fullest stage shorter, the one
 * that makes it shortest is tried beside the even one; of the ten best one layer more and less
 * (plan_add_shares).  What is left over goes to the later of the other chunks, which hold fewer
 * micro-batches.
 *
 * How slow GPUs are is told by what they reach in matmuls.  Of the ten best one layer goes over
 * from each stage to the emptiest of each speed.
 */
#include "sim/planner_parts.h"

#include <math.h>
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

/* ---- by the speed of GPUs ---- */

/* In FLOPs per ns. */
static double speed_of(const Gpu *gpu, DType precision)
{
    double peak = gpu->peak_flops_per_ns[precision];
    return peak * gpu->matmul_efficiency[precision] / gpu->sustained_scale;
}

/* Of every stage its slowest GPU, which its others wait for; false: they are equally fast, or one
 * of them cannot do it. */
static bool stage_speeds(double *speed, const Plan *p, const PlanCandidate *c)
{
    if (p->bases[c->base].machine.types_n == 1)
        return false;
    const Scenario s = plan_scenario(p, c);
    const Machine *m = &s.machine;
    uint32_t gpus = plan_gpus(c), inner = 1; /* neighbours in a stage */
    const uint32_t degree[DIM_N] = { [DIM_TP] = c->tp, [DIM_CP] = c->cp, [DIM_DP] = c->dp };
    for (int i = 0; s.parallel.order[i] != DIM_PP; i++)
        inner *= degree[s.parallel.order[i]] ? degree[s.parallel.order[i]] : 1;
    for (uint32_t k = 0; k < c->pp; k++)
        speed[k] = INFINITY;
    for (uint32_t i = 0; i < m->types_n; i++) {
        const NodeType *t = &m->types[i];
        uint64_t end = min_u64(t->first_rank + (uint64_t)t->count * t->gpus_n, gpus);
        double its = speed_of(t->gpu, s.training.precision);
        for (uint64_t r = t->first_rank; r < end; r += inner - r % inner) {
            double *slowest = &speed[r / inner % c->pp];
            *slowest = fmin(*slowest, its);
        }
    }
    bool differ = false, can = speed[0] > 0;
    for (uint32_t k = 1; k < c->pp; k++) {
        differ |= speed[k] < speed[0] || speed[k] > speed[0];
        can &= speed[k] > 0;
    }
    return differ && can;
}

/* Chunks of a share, and which stage each is on. */
typedef struct Chunks {
    uint32_t n, stage[CHUNKS_MAX], layers[CHUNKS_MAX];
    double load[CHUNKS_MAX], stage_load[CHUNKS_MAX]; /* in layers: with the head */
} Chunks;

static void open_chunks(Chunks *all, const PlanCandidate *c, double head)
{
    *all = (Chunks){ .n = c->pp * c->virtual_stages };
    for (uint32_t k = 0; k < all->n; k++)
        all->stage[k] = schedule_stage(c->schedule, c->pp, k);
    all->load[all->n - 1] = all->stage_load[all->stage[all->n - 1]] = head;
}

/* With the layers that they have. */
static void take_chunks(Chunks *all, const PlanCandidate *c, double head)
{
    open_chunks(all, c, head);
    for (uint32_t k = 0; k < all->n; k++) {
        all->layers[k] = c->stage_layers[k];
        all->load[k] += c->stage_layers[k];
        all->stage_load[all->stage[k]] += c->stage_layers[k];
    }
}

/* One more (1) or less (-1) on a stage, where its chunks have least or most. */
static void move_layer(Chunks *all, uint32_t stage, int by)
{
    uint32_t at = NONE_U32;
    for (uint32_t k = 0; k < all->n; k++) {
        if (all->stage[k] != stage || (by < 0 && all->layers[k] == 0))
            continue;
        bool better = at == NONE_U32 ||
                      (by > 0 ? all->load[k] <= all->load[at] : all->load[k] > all->load[at]);
        at = better ? k : at;
    }
    all->layers[at] = (uint32_t)((int)all->layers[at] + by);
    all->load[at] += by;
    all->stage_load[stage] += by;
}

/* Each layer to the stage that is done with it first. */
static void share_by_speed(Chunks *all, const PlanCandidate *c, const double *speed,
                           uint32_t layers)
{
    for (uint32_t i = 0; i < layers; i++) {
        uint32_t first = 0;
        for (uint32_t k = 1; k < c->pp; k++) {
            double done = (all->stage_load[k] + 1) / speed[k];
            if (done <= (all->stage_load[first] + 1) / speed[first])
                first = k;
        }
        move_layer(all, first, 1);
    }
}

static bool set_layers(Plan *p, PlanCandidate *c, const uint32_t *share)
{
    uint32_t even[CHUNKS_MAX], chunks = c->pp * c->virtual_stages;
    share_evenly(even, chunks, scenario_blocks(&p->bases[c->base].model));
    if (memcmp(share, even, chunks * sizeof *share) == 0)
        return false;
    c->stage_layers = PUSH_ARRAY(&p->arena, uint32_t, chunks);
    memcpy(c->stage_layers, share, chunks * sizeof *share);
    return true;
}

/* ---- shares that are tried ---- */

static bool share_by_head(Plan *p, PlanCandidate *c, double head)
{
    uint32_t share[CHUNKS_MAX], chunks = c->pp * c->virtual_stages;
    uint32_t layers = scenario_blocks(&p->bases[c->base].model), best = NONE_U32;
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

bool plan_share_unevenly(Plan *p, PlanCandidate *c)
{
    const Scenario *s = &p->bases[c->base];
    double speed[CHUNKS_MAX], head;
    Chunks all;
    if (!may_differ(p, c))
        return false;
    head = head_layers(p, s);
    if (!stage_speeds(speed, p, c))
        return share_by_head(p, c, head);
    open_chunks(&all, c, head);
    share_by_speed(&all, c, speed, scenario_blocks(&s->model));
    return set_layers(p, c, all.layers);
}

bool plan_set_share(Plan *p, PlanCandidate *c, uint32_t last)
{
    uint32_t share[CHUNKS_MAX], chunks = c->pp * c->virtual_stages;
    uint32_t layers = scenario_blocks(&p->bases[c->base].model);
    if (last > div_up_u64(layers, chunks))
        return false; /* also one below none */
    share_with_last(share, chunks, layers, last);
    return set_layers(p, c, share);
}

/* Of the stages as fast as `like`, but for `from`, the one with least; NONE_U32: there is none, or
 * `like` is not the first of them. */
static uint32_t emptiest_like(const Chunks *all, const double *speed, uint32_t stages,
                              uint32_t like, uint32_t from)
{
    uint32_t found = NONE_U32;
    for (uint32_t k = 0; k < stages; k++) {
        if (speed[k] < speed[like] || speed[k] > speed[like])
            continue;
        if (k < like)
            return NONE_U32;
        if (k != from && (found == NONE_U32 || all->stage_load[k] < all->stage_load[found]))
            found = k;
    }
    return found;
}

static uint32_t layers_of(const Chunks *all, uint32_t stage)
{
    uint32_t layers = 0;
    for (uint32_t k = 0; k < all->n; k++)
        layers += all->stage[k] == stage ? all->layers[k] : 0;
    return layers;
}

bool plan_share_beside(Plan *p, PlanCandidate *like, const PlanCandidate *c, uint32_t i)
{
    double speed[CHUNKS_MAX];
    Chunks all;
    if (!stage_speeds(speed, p, c)) {
        uint32_t last = plan_last_share(c);
        return i < 2 && plan_set_share(p, like, i ? last + 1 : last - 1);
    }
    uint32_t from = i / c->pp;
    take_chunks(&all, c, head_layers(p, &p->bases[c->base]));
    uint32_t to = emptiest_like(&all, speed, c->pp, i % c->pp, from);
    if (to == NONE_U32 || layers_of(&all, from) == 0)
        return false;
    move_layer(&all, from, -1);
    move_layer(&all, to, 1);
    return set_layers(p, like, all.layers);
}

/* ---- as text ---- */

uint32_t plan_last_share(const PlanCandidate *c)
{
    return c->stage_layers[c->pp * c->virtual_stages - 1];
}

static bool differs_at_the_end_alone(const PlanCandidate *c)
{
    uint32_t share[CHUNKS_MAX], chunks = c->pp * c->virtual_stages, layers = 0;
    for (uint32_t k = 0; k < chunks; k++)
        layers += c->stage_layers[k];
    share_with_last(share, chunks, layers, plan_last_share(c));
    return memcmp(share, c->stage_layers, chunks * sizeof *share) == 0;
}

const char *plan_share_text(char *text, size_t cap, const PlanCandidate *c)
{
    enum { LISTED = 8 };
    Chunks all;
    size_t at = 0;
    uint32_t least = NONE_U32, most = 0, last = plan_last_share(c);
    if (differs_at_the_end_alone(c)) {
        snprintf(text, cap, "%" PRIu32 " layer%s at the end", last, last == 1 ? "" : "s");
        return text;
    }
    take_chunks(&all, c, 0);
    for (uint32_t k = 0; k < c->pp; k++) {
        uint32_t layers = (uint32_t)all.stage_load[k];
        if (c->pp <= LISTED)
            at += (size_t)snprintf(text + at, cap - at, "%s%" PRIu32, k ? " + " : "", layers);
        least = layers < least ? layers : least;
        most = layers > most ? layers : most;
    }
    if (c->pp > LISTED)
        at = (size_t)snprintf(text, cap, "%" PRIu32 " to %" PRIu32, least, most);
    snprintf(text + at, cap - at, " layers%s", c->pp > LISTED ? " a stage" : "");
    return text;
}

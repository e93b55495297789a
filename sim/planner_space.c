/*
 * planner_space.c - everything that could be tried on so many GPUs.
 *
 * Degrees are nested loops over divisors: what is left of the GPUs after tp, pp
 * and cp is dp.  Rules of taste bound them (below); whether a model, a batch or a
 * schedule allows them is for the reader's own checks (scenario_check.c) to say.
 *
 *     tp   at most two of the largest nodes, so that leaving a node is tried once, or TP_TRIED_MIN
 *     pp   at most the model's blocks, embedding and head
 *     cp   pieces of at least CP_TOKENS_MIN tokens; of CP_TOKENS_FEW with few GPUs, and where there
 *          are fewer sequences than GPUs: then something else has to be split
 *     ep   of models with experts: what divides them and dp x cp x tp
 *     micro-batch   of what divides the replica's batch always the largest that is at most twice
 *                   the one before (powers of two, of a batch that is one); and the scenario's own;
 *                   of the ten best all that lie between, and of chunks that were added for them
 *                   twice and half as many (plan_add_between)
 *     virtual stages   in the same way, where every chunk has as many blocks; and powers of two, of
 *                      a stack whose chunks may differ (uneven_stages) and where stages do so in
 *                      any case; of the ten best one more and one less (plan_add_chunks)
 *     schedule   1f1b, interleaved (not of fewer than pp micro-batches, nor of others than the
 *                stack takes: interleaved_multiple), the scenario's own, and those with weight
 *                gradients apart that the stack has (zero_bubble of its file); another, and
 *                interleaved of any, where --set asks for it
 *     layers     shared out evenly, and with fewer on the last stage where the head takes as long
 *                as some, or by the speed of GPUs where stages are of several (planner_stages.c)
 *     strategy   ddp, zero1, fsdp; zero2 and hsdp (sharding within the node) with pp 1;
 *                one alone where nothing is replicated, unless --set asks for another
 *     all of it  but what the stack cannot do (planner_lacks.c)
 *
 * What --set fixes (planner_fixed.c) is tried whatever these rules say, if the reader allows it.
 */
#include "sim/planner_parts.h"

#include <stdlib.h>
#include <string.h>

#include "core/order.h"
#include "sim/formats.h"
#include "sim/scenario_parts.h"
#include "sim/texts.h"

enum { TP_TRIED_MIN = 16, VIRTUAL_TRIED_MAX = 16 };
enum { CP_TOKENS_MIN = 1024, CP_TOKENS_FEW = 128, GPUS_FEW = 64 };

/* ---- bases ---- */

/* null is as good as absent. */
static bool is_given(const Scenario *s, const char *object, const char *key)
{
    JsonNode node = json_member(json_member(json_root(s->doc), object), key);
    return node.item && json_type(node) != JSON_NULL;
}

static bool read_base(Scenario *s, const PlanOptions *o, uint32_t nodes, Err *err)
{
    uint32_t n = o->settings_n;
    char nodes_text[16];
    Setting *all = mem_zero(n + PLAN_NEUTRAL_N + 1, sizeof *all);
    if (n > 0)
        memcpy(all, o->settings, n * sizeof *all);
    for (size_t i = 0; i < PLAN_NEUTRAL_N; i++)
        if (!plan_is_object(o, plan_neutral[i].key)) /* which the reader knows best */
            all[n++] = plan_neutral[i];
    snprintf(nodes_text, sizeof nodes_text, "%" PRIu32, nodes);
    if (nodes > 0)
        all[n++] = (Setting){ "cluster.nodes", nodes_text };
    bool ok = scenario_read_to_split(s, o->scenario, all, n, err);
    free(all);
    return ok;
}

static bool check_base(const Scenario *s, const PlanOptions *o, Err *err)
{
    if (!is_given(s, "training", "global_batch"))
        return err_set(err,
                       "%s: training.global_batch: the key is missing; plan keeps the "
                       "batch and tries how to split it",
                       s->file);
    if (o->tokens > 0 && s->model.kind != MODEL_TRANSFORMER)
        return err_set(err, "%s: --tokens is for transformers, this model has samples",
                       s->file);
    if (o->budget_usd > 0 && s->machine.price_usd_per_gpu_hour <= 0)
        return err_set(err,
                       "%s: --budget-usd needs a price: "
                       "--set cluster.price_usd_per_gpu_hour=X",
                       s->file);
    return true;
}

/* With other --set the scenario as it stands may be none: then it has nothing of its own. */
static void read_own(Plan *p)
{
    Scenario s = { 0 };
    Err ignored = { 0 };
    const PlanOptions *o = p->options;
    uint32_t n = 0;
    Setting *rest = mem_zero((size_t)o->settings_n + 1, sizeof *rest);
    for (uint32_t i = 0; i < o->settings_n; i++)
        if (!plan_is_tried(o->settings[i].key))
            rest[n++] = o->settings[i];
    if (scenario_read(&s, o->scenario, rest, n, &ignored)) {
        p->own_micro_batch = s.training.micro_batch;
        p->own = s.parallel;
        p->own.stage_layers = NULL;
        p->offered[s.parallel.schedule] = true;
    }
    scenario_free(&s);
    free(rest);
}

/* Mixed nodes are as many as the file says; of equal ones as many as are needed. */
static bool read_count(Scenario *s, const Scenario *first, const PlanOptions *o, uint32_t gpus,
                       Err *err)
{
    const Machine *m = &first->machine;
    bool mixed = is_given(first, "cluster", "node_types") || m->types_n > 1;
    uint32_t nodes = (uint32_t)div_up_u64(gpus, m->types[0].gpus_n);
    if (mixed && gpus > m->gpus_n)
        return err_set(err, "--gpus %" PRIu32 ": cluster '%s' of mixed nodes has %" PRIu32,
                       gpus, m->name, m->gpus_n);
    return read_base(s, o, mixed ? 0 : nodes, err) || err_wrap(err, "--gpus %" PRIu32, gpus);
}

bool plan_open(Plan *p, const PlanOptions *o, Err *err)
{
    Scenario first = { 0 };
    p->options = o;
    if (!plan_check_keys(o, err) || !read_base(&first, o, 0, err))
        return false;
    bool ok = check_base(&first, o, err);
    read_own(p);
    p->bases = PUSH_ARRAY(&p->arena, Scenario, o->counts_n);
    p->gpus = PUSH_ARRAY(&p->arena, uint32_t, o->counts_n);
    for (uint32_t i = 0; i < o->counts_n && ok; i++) {
        ok = read_count(&p->bases[i], &first, o, o->counts[i], err);
        p->gpus[i] = o->counts[i];
        p->bases_n += ok;
    }
    scenario_free(&first);
    if (!ok || !software_of(&p->sw, &p->arena, &p->bases[0], err))
        return false;
    p->fixed_layers = p->bases[0].training.recompute == RECOMPUTE_LAYERS
                          ? p->bases[0].training.recompute_layers
                          : NONE_U32;
    plan_count_blocks(p);
    for (int k = 0; k < SCHEDULE_N; k++)
        p->offered[k] |= p->sw.zero_bubble[k];
    return true;
}

/* ---- one candidate ---- */

Scenario plan_scenario(const Plan *p, const PlanCandidate *c)
{
    Scenario s = p->bases[c->base];
    Parallel *l = &s.parallel;
    l->strategy = c->strategy;
    l->dp = c->dp;
    l->tp = c->tp;
    l->pp = c->pp;
    l->cp = c->cp;
    l->ep = c->ep;
    l->gpus = plan_gpus(c);
    l->shard_size = c->shard_size;
    l->schedule = c->schedule;
    l->virtual_stages = c->virtual_stages;
    l->sequence_parallel = c->sequence_parallel;
    l->stage_layers = c->stage_layers;
    l->stage_layers_n = c->stage_layers ? c->pp * c->virtual_stages : 0;
    s.training.micro_batch = c->micro_batch;
    s.training.micro_batches = plan_micro_batches(p, c);
    s.training.recompute = c->recompute;
    s.training.recompute_layers = c->recompute_layers;
    return s;
}

char *plan_recompute_text(char *text, const PlanCandidate *c)
{
    if (c->recompute == RECOMPUTE_LAYERS)
        snprintf(text, PLAN_RECOMPUTE_CAP, "{\"layers\":%" PRIu32 "}", c->recompute_layers);
    else
        snprintf(text, PLAN_RECOMPUTE_CAP, "%s", recompute_names[c->recompute]);
    return text;
}

/* "[9,9,8,6]", "null" */
static const char *stages_text(char *text, size_t cap, const PlanCandidate *c)
{
    size_t at = 0;
    if (!c->stage_layers)
        return "null";
    for (uint32_t i = 0; i < c->pp * c->virtual_stages; i++)
        at += (size_t)snprintf(text + at, cap - at, "%c%" PRIu32, i ? ',' : '[',
                               c->stage_layers[i]);
    snprintf(text + at, cap - at, "]");
    return text;
}

uint32_t plan_settings(char (*settings)[PLAN_SETTING_CAP], const Plan *p,
                       const PlanCandidate *c)
{
    char stages[PLAN_SETTING_CAP - 32], recompute[PLAN_RECOMPUTE_CAP];
    uint32_t n = 0;
    const Machine *m = &p->bases[c->base].machine;
    if (m->types_n == 1)
        snprintf(settings[n++], PLAN_SETTING_CAP, "cluster.nodes=%" PRIu32, m->nodes_n);
    const struct {
        const char *key;
        uint32_t value;
    } counts[] = { { "parallel.dp", c->dp },
                   { "parallel.tp", c->tp },
                   { "parallel.pp", c->pp },
                   { "parallel.cp", c->cp },
                   { "parallel.ep", c->ep },
                   { "parallel.virtual_stages", c->virtual_stages },
                   { "training.micro_batch", c->micro_batch } };
    for (size_t i = 0; i < ARRAY_N(counts); i++)
        snprintf(settings[n++], PLAN_SETTING_CAP, "%s=%" PRIu32, counts[i].key,
                 counts[i].value);
    const struct {
        const char *key, *value;
    } words[] = { { "parallel.strategy", strategy_names[c->strategy] },
                  { "parallel.schedule", schedule_names[c->schedule] },
                  { "parallel.stage_layers", stages_text(stages, sizeof stages, c) },
                  { "parallel.sequence_parallel", c->sequence_parallel ? "true" : "false" },
                  { "training.recompute", plan_recompute_text(recompute, c) } };
    for (size_t i = 0; i < ARRAY_N(words); i++)
        snprintf(settings[n++], PLAN_SETTING_CAP, "%s=%s", words[i].key, words[i].value);
    if (c->strategy == STRATEGY_HSDP)
        snprintf(settings[n++], PLAN_SETTING_CAP, "parallel.shard_size=%" PRIu32,
                 c->shard_size);
    ASSERT(n <= PLAN_SETTINGS_MAX);
    return n;
}

static bool is_of_key(const char *setting, const char *key)
{
    size_t n = strlen(key);
    return strncmp(setting, key, n) == 0 && setting[n] == '=';
}

const Setting *plan_other_setting(const Plan *p, char (*settings)[PLAN_SETTING_CAP], uint32_t n,
                                  uint32_t i)
{
    for (uint32_t k = 0; k < p->options->settings_n; k++) {
        const Setting *set = &p->options->settings[k];
        bool repeated = false;
        for (uint32_t j = 0; j < n; j++)
            repeated = repeated || is_of_key(settings[j], set->key);
        if (!repeated && i-- == 0)
            return set;
    }
    return NULL;
}

/* ---- all of them ---- */

static bool is_possible(const Plan *p, const PlanCandidate *c)
{
    Err ignored = { 0 };
    Scenario s = plan_scenario(p, c);
    return scenario_check(&s, &ignored) && scenario_can_be_built(&s, &ignored);
}

/* Micro-batches that the stack does not interleave, or so few that most of the pipeline is a
 * bubble: tried where the schedule is asked for. */
static bool is_odd_group(const Plan *p, const PlanCandidate *c)
{
    uint32_t n = plan_micro_batches(p, c);
    bool asked = p->offered[c->schedule] || plan_fixed(p, "parallel.schedule");
    return c->schedule == SCHEDULE_INTERLEAVED && !asked &&
           (n < c->pp || (p->sw.interleaved_multiple && n % c->pp != 0));
}

/* Who recomputes less first. */
static void add_family(Plan *p, PlanCandidate *c)
{
    static const Recompute order[] = { RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_LAYERS,
                                       RECOMPUTE_FULL };
    c->recompute = RECOMPUTE_NONE;
    c->recompute_layers = 0;
    if (!plan_has_schedule(p, c) || plan_stack_lacks(p, c) || is_odd_group(p, c) ||
        !is_possible(p, c))
        return;
    for (size_t i = 0; i < ARRAY_N(order); i++) {
        c->recompute = order[i];
        c->recompute_layers = 0;
        if (order[i] == RECOMPUTE_LAYERS)
            c->recompute_layers = plan_seeks_layers(p, c) ? 1 : p->fixed_layers;
        if (!plan_has_recompute(p, c))
            continue;
        GROW(p->candidates, p->n, p->cap);
        p->candidates[p->n++] = *c;
    }
}

static void try_tensor(Plan *p, PlanCandidate c)
{
    PlanCandidate uneven = c;
    bool differs = plan_share_unevenly(p, &uneven);
    for (int sequence = 0; sequence < (c.tp > 1 ? 2 : 1); sequence++) {
        c.sequence_parallel = uneven.sequence_parallel = sequence == 1;
        add_family(p, &c);
        if (differs)
            add_family(p, &uneven);
    }
}

static const char schedule_key[] = "parallel.schedule";

/* Schedules that the stack does not have, or that others beat, are tried where somebody asks for
 * them. */
static bool is_tried_schedule(const Plan *p, int schedule)
{
    if (schedule == SCHEDULE_1F1B || schedule == SCHEDULE_INTERLEAVED)
        return false; /* those have a place of their own */
    if (p->lists_schedules || plan_fixed(p, schedule_key))
        return plan_has(p, schedule_key, schedule_names[schedule]);
    return p->offered[schedule];
}

static void try_named_schedules(Plan *p, PlanCandidate c)
{
    for (int k = 0; k < SCHEDULE_N && c.pp > 1; k++)
        if (is_tried_schedule(p, k)) {
            c.schedule = (Schedule)k;
            c.virtual_stages = schedule_is_vee((Schedule)k) ? 2 : 1;
            try_tensor(p, c);
        }
}

/* What is counted on from 1, and by the batch or the blocks of c must be allowed. */
typedef bool Divides(const Plan *p, const PlanCandidate *c, uint32_t n);

/* After `last` the largest that is allowed and at most twice as large, else the next that is; 0:
 * there is none up to max. */
static uint32_t next_tried(const Plan *p, const PlanCandidate *c, Divides *divides,
                           uint32_t last, uint32_t max)
{
    for (uint32_t n = last < max / 2 ? 2 * last : max; n > last; n--)
        if (divides(p, c, n))
            return n;
    for (uint32_t n = 2 * last + 1; n <= max; n++)
        if (divides(p, c, n))
            return n;
    return 0;
}

/* Embedding and head may stand alone. */
static uint32_t most_chunks(const Model *m)
{
    return scenario_blocks(m) + (m->kind == MODEL_TRANSFORMER ? 2 : 0);
}

static bool divides_blocks(const Plan *p, const PlanCandidate *c, uint32_t n)
{
    const Model *m = &p->bases[c->base].model;
    uint32_t blocks = scenario_blocks(m), most = most_chunks(m), chunks = c->pp * n;
    return chunks <= most && (blocks % chunks == 0 || most % chunks == 0);
}

static void try_interleaved(Plan *p, PlanCandidate c, uint32_t virtual_stages)
{
    c.schedule = SCHEDULE_INTERLEAVED;
    c.virtual_stages = virtual_stages;
    try_tensor(p, c);
}

static bool is_power_of_two(uint32_t n)
{
    return (n & (n - 1)) == 0;
}

/* May chunks have different numbers of blocks?  The stack says so, or stages do in any case. */
static bool chunks_may_differ(const Plan *p, const PlanCandidate *c)
{
    return p->sw.uneven_stages || !divides_blocks(p, c, 1);
}

static void try_schedules(Plan *p, PlanCandidate c)
{
    uint32_t most = most_chunks(&p->bases[c.base].model) / c.pp;
    uint32_t own = plan_fixed_number(p, "parallel.virtual_stages", p->own.virtual_stages);
    uint32_t even = next_tried(p, &c, divides_blocks, 1, VIRTUAL_TRIED_MAX);
    bool may_differ = chunks_may_differ(p, &c);
    c.schedule = SCHEDULE_1F1B;
    c.virtual_stages = 1;
    try_tensor(p, c);
    for (uint32_t n = 2; c.pp > 1 && n <= most; n++) {
        bool usual = n <= VIRTUAL_TRIED_MAX && may_differ && is_power_of_two(n);
        if (usual || n == even || n == own)
            try_interleaved(p, c, n);
        if (n == even)
            even = next_tried(p, &c, divides_blocks, n, VIRTUAL_TRIED_MAX);
    }
    try_named_schedules(p, c);
}

static bool divides_batch(const Plan *p, const PlanCandidate *c, uint32_t n)
{
    return p->bases[c->base].training.global_batch / c->dp % n == 0;
}

/* As next_tried, of the divisors of n, which may be millions. */
static uint32_t next_divisor(uint32_t n, uint32_t last)
{
    uint64_t near = 0, far = 0;
    for (uint64_t d = 1; d * d <= n; d++)
        for (int k = 0; k < 2 && n % d == 0; k++) {
            uint64_t x = k ? n / d : d;
            if (x > last && x <= 2 * (uint64_t)last)
                near = max_u64(near, x);
            else if (x > last)
                far = far ? min_u64(far, x) : x;
        }
    return (uint32_t)(near ? near : far);
}

static void try_batch(Plan *p, PlanCandidate c, uint32_t micro_batch)
{
    c.micro_batch = micro_batch;
    if (plan_has_number(p, "training.micro_batch", micro_batch))
        try_schedules(p, c);
}

/* Rising: who does not fit tells of all that are larger. */
static void try_batches(Plan *p, PlanCandidate c)
{
    uint32_t of_replica = p->bases[c.base].training.global_batch / c.dp;
    uint32_t own = plan_fixed_number(p, "training.micro_batch", p->own_micro_batch);
    if (!plan_has_strategy(p, &c))
        return;
    for (uint32_t b = 1, next; b > 0; b = next) {
        try_batch(p, c, b);
        next = next_divisor(of_replica, b);
        if (own > b && (own < next || next == 0) && divides_batch(p, &c, own))
            try_batch(p, c, own);
    }
}

static bool is_there(const Plan *p, const PlanCandidate *c)
{
    uint32_t i = 0;
    while (i < p->n &&
           !(plan_same_split(&p->candidates[i], c) && plan_same_family(&p->candidates[i], c)))
        i++;
    return i < p->n;
}

/* The same, but for recomputation, and not tried yet. */
static PlanCandidate one_like(const PlanCandidate *c)
{
    return (PlanCandidate){ .base = c->base,
                            .strategy = c->strategy,
                            .dp = c->dp,
                            .tp = c->tp,
                            .pp = c->pp,
                            .cp = c->cp,
                            .ep = c->ep,
                            .shard_size = c->shard_size,
                            .micro_batch = c->micro_batch,
                            .virtual_stages = c->virtual_stages,
                            .schedule = c->schedule,
                            .sequence_parallel = c->sequence_parallel,
                            .stage_layers = c->stage_layers };
}

/* And twice and half as many: chunks or shares that were added are not there with those. */
void plan_add_between(Plan *p, PlanCandidate c)
{
    PlanCandidate like = one_like(&c);
    uint32_t from = (c.micro_batch + 1) / 2, to = 2 * c.micro_batch;
    for (uint32_t b = from; b <= to; b++) {
        like.micro_batch = b;
        if (divides_batch(p, &like, b) && plan_has_number(p, "training.micro_batch", b) &&
            !is_there(p, &like))
            add_family(p, &like);
    }
}

/* Evenly shared out or not. */
static void add_chunks(Plan *p, PlanCandidate *like, uint32_t virtual_stages)
{
    like->virtual_stages = virtual_stages;
    like->stage_layers = NULL;
    if (!is_there(p, like))
        add_family(p, like);
    if (plan_share_unevenly(p, like) && !is_there(p, like))
        add_family(p, like);
}

void plan_add_chunks(Plan *p, PlanCandidate c)
{
    PlanCandidate like = one_like(&c);
    uint32_t v = c.virtual_stages, most = most_chunks(&p->bases[c.base].model) / c.pp;
    if (c.schedule != SCHEDULE_INTERLEAVED)
        return;
    for (uint32_t n = v / 2 + 1; n < 2 * v && n <= most; n++) {
        bool next = chunks_may_differ(p, &c) && (n + 1 == v || n == v + 1);
        if (n > 1 && n != v && (next || divides_blocks(p, &like, n)))
            add_chunks(p, &like, n);
    }
}

void plan_add_shares(Plan *p, PlanCandidate c)
{
    PlanCandidate like = one_like(&c);
    if (!c.stage_layers)
        return;
    for (uint32_t i = 0; i < c.pp * c.pp; i++)
        if (plan_share_beside(p, &like, &c, i) && !is_there(p, &like))
            add_family(p, &like);
}

/* Sharding within a node: the neighbours in dp that every node holds, be they mixed, or where
 * replicas do not come in as many, the most of these that they come in. */
static uint32_t shard_of(const Plan *p, const PlanCandidate *c)
{
    const Scenario *s = &p->bases[c->base];
    const Machine *m = &s->machine;
    uint64_t shard = c->dp;
    if (is_given(s, "parallel", "shard_size"))
        return s->parallel.shard_size;
    for (uint32_t i = 0; i < m->types_n && m->types[i].first_rank < plan_gpus(c); i++) {
        uint32_t in_node = m->types[i].gpus_n / (c->tp * c->cp);
        shard = in_node > 0 ? gcd_u64(in_node, shard) : 1;
    }
    return (uint32_t)shard;
}

static const char strategy_key[] = "parallel.strategy";

/* Is its strategy tried with its degrees, which replicate something?  Fills shard_size. */
static bool takes_strategy(const Plan *p, PlanCandidate *c)
{
    bool hsdp = c->strategy == STRATEGY_HSDP;
    c->shard_size = hsdp ? shard_of(p, c) : 1;
    bool shards = c->shard_size > 1 && c->shard_size < c->dp && c->dp % c->shard_size == 0;
    bool alone = (hsdp || c->strategy == STRATEGY_ZERO2) && !plan_fixed(p, strategy_key);
    return (shards || !hsdp) && !(alone && c->pp > 1) &&
           (c->ep == 1 || shares_experts(&(Parallel){ .strategy = c->strategy }));
}

static const Strategy strategies[] = { STRATEGY_DDP, STRATEGY_ZERO1, STRATEGY_ZERO2,
                                       STRATEGY_FSDP, STRATEGY_HSDP };

static void try_strategies(Plan *p, PlanCandidate c)
{
    bool replicates = c.dp * c.cp > 1, fixed = plan_fixed(p, strategy_key);
    Strategy none = plan_gpus(&c) == 1 ? STRATEGY_SINGLE : STRATEGY_DDP;
    c.strategy = none;
    c.shard_size = 1;
    if (!replicates)
        try_batches(p, c);
    for (size_t i = 0; i < ARRAY_N(strategies) && (replicates || fixed); i++) {
        c.strategy = strategies[i];
        if ((replicates || c.strategy != none) && takes_strategy(p, &c))
            try_batches(p, c);
    }
}

/* Micro-batches, chunks and shares of layers that were added for one may be better for another. */
void plan_add_strategies(Plan *p, PlanCandidate c)
{
    PlanCandidate like = one_like(&c);
    for (size_t i = 0; i < ARRAY_N(strategies) && c.dp * c.cp > 1; i++) {
        like.strategy = strategies[i];
        if (takes_strategy(p, &like) && plan_has_strategy(p, &like) && !is_there(p, &like))
            add_family(p, &like);
    }
}

/* A first look at degrees alone spares the loops inside. */
static void look_at_degrees(Plan *p, PlanCandidate c)
{
    const Training *t = &p->bases[c.base].training;
    c.sequence_parallel =
        c.tp > 1 && scenario_experts(&p->bases[c.base].model) > 0; /* they need it */
    c.strategy = plan_gpus(&c) == 1 ? STRATEGY_SINGLE : STRATEGY_DDP;
    c.schedule = SCHEDULE_1F1B;
    c.micro_batch = c.virtual_stages = c.shard_size = 1;
    if (t->global_batch % c.dp != 0 || !plan_has_split(p, &c) || plan_stack_lacks(p, &c))
        return;
    Err ignored = { 0 };
    Scenario s = plan_scenario(p, &c);
    if (scenario_check(&s, &ignored))
        try_strategies(p, c);
}

static void try_degrees(Plan *p, PlanCandidate c)
{
    uint32_t experts = scenario_experts(&p->bases[c.base].model);
    uint32_t ranks = c.dp * c.cp * c.tp;
    for (c.ep = 1; c.ep == 1 || (c.ep <= experts && c.ep <= ranks); c.ep++)
        if (c.ep == 1 || (experts % c.ep == 0 && ranks % c.ep == 0))
            look_at_degrees(p, c);
}

static uint64_t usual_tp_max(const Machine *m)
{
    uint64_t most = TP_TRIED_MIN;
    for (uint32_t i = 0; i < m->types_n; i++)
        most = max_u64(most, 2 * m->types[i].gpus_n);
    return most;
}

static void try_count(Plan *p, uint32_t base)
{
    const Scenario *s = &p->bases[base];
    uint32_t gpus = p->gpus[base], stages = most_chunks(&s->model);
    uint64_t tp_max =
        max_u64(usual_tp_max(&s->machine), plan_fixed_number(p, "parallel.tp", 0));
    bool few = gpus <= GPUS_FEW || s->training.global_batch < gpus;
    uint32_t pieces = s->training.seq_len / (few ? CP_TOKENS_FEW : CP_TOKENS_MIN);
    uint64_t cp_max = max_u64(pieces, plan_fixed_number(p, "parallel.cp", 0));
    for (uint32_t tp = 1; tp <= tp_max && tp <= gpus; tp++) {
        if (gpus % tp != 0)
            continue;
        for (uint32_t pp = 1; pp <= stages && pp <= gpus / tp; pp++) {
            if (gpus / tp % pp != 0)
                continue;
            uint32_t left = gpus / tp / pp;
            for (uint32_t cp = 1; cp == 1 || (cp <= cp_max && cp <= left); cp++)
                if (left % cp == 0)
                    try_degrees(
                        p, (PlanCandidate){
                               .base = base, .dp = left / cp, .tp = tp, .pp = pp, .cp = cp });
        }
    }
}

static void enumerate(Plan *p)
{
    for (uint32_t i = 0; i < p->bases_n; i++)
        try_count(p, i);
}

/* Appends what a candidate has of a key, unless it stands in the list already. */
static void add_value(char *list, size_t cap, const Plan *p, const PlanCandidate *c,
                      const char *key)
{
    char settings[PLAN_SETTINGS_MAX][PLAN_SETTING_CAP], item[PLAN_SETTING_CAP + 4];
    uint32_t n = plan_settings(settings, p, c);
    for (uint32_t i = 0; i < n; i++) {
        if (!is_of_key(settings[i], key))
            continue;
        bool seeks = strcmp(key, "training.recompute") == 0 && plan_seeks_layers(p, c);
        snprintf(item, sizeof item, " %s,",
                 seeks ? "{\"layers\": N}" : settings[i] + strlen(key) + 1);
        if (!strstr(list, item) && strlen(list) + strlen(item) < cap)
            memcpy(list + strlen(list), item, strlen(item) + 1);
    }
}

/* Splits come in an order of their own. */
static void sort_numbers(char *list, size_t cap)
{
    enum { NUMBERS_MAX = 128 };
    uint64_t numbers[NUMBERS_MAX];
    size_t n = 0, at = 0;
    char *rest = list;
    for (; *rest && n < NUMBERS_MAX; rest += *rest == ',') {
        char *from = rest;
        numbers[n++] = strtoul(from, &rest, 10);
        if (rest == from) /* words */
            return;
    }
    qsort(numbers, n, sizeof *numbers, compare_u64);
    for (size_t i = 0; i < n && at < cap && *rest == '\0'; i++)
        at +=
            (size_t)snprintf(list + at, cap - at, "%s %" PRIu64, i > 0 ? "," : "", numbers[i]);
}

/* All candidates there would be if --set did not fix the key; NULL: nor any that is tried. */
static void enumerate_without(Plan *p, const char *key)
{
    const PlanOptions *asked = p->options;
    PlanOptions free = *asked;
    Setting *rest = PUSH_ARRAY(&p->arena, Setting, asked->settings_n);
    free.settings = rest;
    free.settings_n = 0;
    for (uint32_t i = 0; i < asked->settings_n; i++) {
        const char *set = asked->settings[i].key;
        if (key ? strcmp(set, key) != 0 : !plan_is_tried(set))
            rest[free.settings_n++] = asked->settings[i];
    }
    p->options = &free;
    p->lists_schedules = key && strcmp(key, schedule_key) == 0;
    enumerate(p);
    p->lists_schedules = false;
    p->options = asked;
}

/* The values " 1, 2, 4" that candidates have of a key, were it not fixed; "" where none are. */
static void list_values(Plan *p, const char *key, char *list, size_t cap)
{
    enumerate_without(p, key);
    list[0] = '\0';
    for (uint32_t i = 0; i < p->n; i++)
        add_value(list, cap, p, &p->candidates[i], key);
    if (list[0])
        list[strlen(list) - 1] = '\0';
    sort_numbers(list, cap);
    p->n = 0;
}

static bool some_without_fixing(Plan *p)
{
    enumerate_without(p, NULL);
    bool some = p->n > 0;
    p->n = 0;
    return some;
}

/* What --set fixes that no candidate has; of one key alone, what they have instead. */
static bool nothing_fixed_so(Plan *p, const char *fixed, uint32_t fixed_n, Err *err)
{
    char list[200] = "";
    const PlanOptions *o = p->options;
    for (uint32_t i = 0; i < o->settings_n && fixed_n == 1; i++)
        if (plan_is_tried(o->settings[i].key)) {
            list_values(p, o->settings[i].key, list, sizeof list);
            break;
        }
    return err_set(err, "no candidate has %s%s%s%s", fixed,
                   o->settings_n > 1 ? ", with whatever else --set fixes" : "",
                   list[0] ? "; tried without it are" : "", list);
}

static PlanCandidate replicas_alone(const Plan *p, uint32_t base)
{
    return (PlanCandidate){ .base = base,
                            .dp = p->gpus[base],
                            .tp = 1,
                            .pp = 1,
                            .cp = 1,
                            .ep = 1,
                            .shard_size = 1,
                            .micro_batch = 1,
                            .virtual_stages = 1,
                            .strategy = p->gpus[base] == 1 ? STRATEGY_SINGLE : STRATEGY_DDP,
                            .schedule = SCHEDULE_1F1B };
}

static bool check_replicas(const Plan *p, uint32_t base, Err *err)
{
    const PlanCandidate c = replicas_alone(p, base);
    Scenario s = plan_scenario(p, &c);
    return scenario_check(&s, err) && scenario_can_be_built(&s, err);
}

bool plan_may_replicate(const Plan *p, uint32_t base, Err *err)
{
    const PlanCandidate c = replicas_alone(p, base);
    return !plan_has_split(p, &c) || check_replicas(p, base, err);
}

bool plan_has_no_split(const Plan *p, uint32_t base, Err *err)
{
    char fixed[400], lacks[TEXT_CAP];
    bool some_lack = *plan_lacks_text(p, lacks, sizeof lacks) != '\0';
    if (!check_replicas(p, base, err))
        return err_wrap(err, "no way to split%s%s%s, and by dp alone", some_lack ? " (" : "",
                        lacks, some_lack ? ")" : "");
    if (plan_list_fixed(p->options, fixed, sizeof fixed) > 0)
        return err_set(err, "no candidate has %s", fixed);
    return err_set(err, "the batch cannot be cut into micro-batches");
}

static bool nothing_to_try(Plan *p, Err *err)
{
    char fixed[400];
    uint32_t fixed_n = plan_list_fixed(p->options, fixed, sizeof fixed);
    if (fixed_n > 0 && some_without_fixing(p))
        return nothing_fixed_so(p, fixed, fixed_n, err);
    return plan_has_no_split(p, 0, err) || err_wrap(err, "--gpus %" PRIu32, p->gpus[0]);
}

bool plan_enumerate(Plan *p, Err *err)
{
    enumerate(p);
    return p->n > 0 || nothing_to_try(p, err);
}

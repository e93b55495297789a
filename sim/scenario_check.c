/*
 * scenario_check.c - do the values fit each other, the model and the cluster?
 *
 * Each rule is one function or one line of one, and each message says which key
 * to change and what it may be.  Order: what the model can be split into, what
 * the strategy wants, the cluster's size, the batch, the pipeline, number
 * formats, the task; a message about an early rule is not hidden by a late one.
 */
#include <math.h>
#include <string.h>

#include "sim/formats.h"
#include "sim/scenario_parts.h"
#include "sim/strategy/schedule.h"

typedef struct Check {
    const Scenario *s;
    const Parallel *p;
    const Training *t;
    Err *err;
} Check;

/* Where a message points to: looked up only for one, as plan asks about thousands of splits. */
static JsonNode section_of(const Check *c, const char *section)
{
    return json_member(json_root(c->s->doc), section);
}

#define FAIL(c, section, key, ...) \
    json_fail(json_member(section_of((c), #section), (key)), (c)->err, __VA_ARGS__)

enum { LIST_CAP = 200 };
enum { MICRO_BATCHES_MAX = 1 << 18 }; /* each is an instance of every block: memory */

/* "1, 2, 4, 8" */
static const char *divisors(char text[LIST_CAP], uint64_t n)
{
    size_t at = 0;
    text[0] = '\0';
    for (uint64_t d = 1; d <= n && d <= DEGREE_MAX && at + 16 < LIST_CAP; d++)
        if (n % d == 0)
            at += (size_t)snprintf(text + at, LIST_CAP - at, "%s%" PRIu64, at ? ", " : "", d);
    return text;
}

/* The multiples of unit around x: "8 or 16" */
static const char *neighbours(char text[LIST_CAP], uint64_t x, uint64_t unit)
{
    uint64_t below = x / unit * unit, above = below + unit;
    if (below > 0)
        snprintf(text, LIST_CAP, "%" PRIu64 " or %" PRIu64, below, above);
    else
        snprintf(text, LIST_CAP, "%" PRIu64, above);
    return text;
}

/* "dp 8 x tp 2" */
static const char *degrees(char text[LIST_CAP], const Parallel *p)
{
    const struct {
        const char *name;
        uint32_t degree;
    } all[] = { { "dp", p->dp }, { "tp", p->tp }, { "pp", p->pp }, { "cp", p->cp } };
    size_t at = 0;
    snprintf(text, LIST_CAP, "every degree 1");
    for (size_t i = 0; i < ARRAY_N(all); i++)
        if (all[i].degree > 1)
            at += (size_t)snprintf(text + at, LIST_CAP - at, "%s%s %" PRIu32, at ? " x " : "",
                                   all[i].name, all[i].degree);
    return text;
}

/* ---- what the model can be split into ---- */

uint32_t scenario_blocks(const Model *model)
{
    if (model->kind == MODEL_TRANSFORMER)
        return model->u.transformer.layers;
    if (model->kind == MODEL_MLP)
        return model->u.mlp.widths_n - 1;
    uint32_t n = 0;
    for (uint32_t i = 0; i < model->u.convnet.stages_n; i++)
        n += model->u.convnet.blocks[i];
    return n;
}

static bool check_batchnorm(const Check *c)
{
    const Model *m = &c->s->model;
    bool has = m->kind == MODEL_CONVNET || (m->kind == MODEL_MLP && m->u.mlp.batchnorm);
    return has || !c->p->sync_batchnorm ||
           FAIL(c, parallel, "sync_batchnorm",
                "the model has no batch norms, false is allowed");
}

static bool check_kind(const Check *c)
{
    const Parallel *p = c->p;
    const uint32_t degree[] = { p->tp, p->pp, p->cp, p->ep };
    static const char *const name[] = { "tp", "pp", "cp", "ep" };
    ModelKind kind = c->s->model.kind;
    if (kind == MODEL_TRANSFORMER)
        return true;
    bool mlp = kind == MODEL_MLP;
    /* Which fills the cluster with stages unless pp is given. */
    bool stages = p->strategy == STRATEGY_MODEL_PARALLEL && p->pp > 1 && !mlp;
    if (stages && !json_member(section_of(c, "parallel"), "pp").item)
        return FAIL(c, parallel, "strategy",
                    "model_parallel splits by pp, a convnet is split over dp only");
    for (size_t i = mlp ? 2 : 0; i < ARRAY_N(degree); i++)
        if (degree[i] > 1)
            return FAIL(c, parallel, name[i], "%s is split over %s only, here 1 is allowed",
                        mlp ? "an mlp" : "a convnet", mlp ? "dp, tp and pp" : "dp");
    if (p->sequence_parallel)
        return FAIL(c, parallel, "sequence_parallel",
                    "only for transformers, false is allowed");
    if (c->t->seq_len != 1)
        return FAIL(c, training, "seq_len", "only for transformers, 1 is allowed");
    return true;
}

/* What tp has to divide. */
typedef struct Divided {
    uint64_t n;
    const char *what;
} Divided;

enum { DIVIDED_MAX = 4 };

static bool has_dense_layer(const Transformer *t)
{
    for (uint32_t l = 0; l < t->layers; l++)
        if (!transformer_is_moe(t, l))
            return true;
    return false;
}

/* Whole ones are not. */
static bool may_share_out_experts(const Parallel *p)
{
    const Software habit = { .whole_experts = p->whole_by_habit };
    return !whole_experts(p, &habit);
}

static uint32_t divided_of(const Check *c, Divided all[DIVIDED_MAX])
{
    const Transformer *t = &c->s->model.u.transformer;
    uint32_t n = 0;
    all[n++] = (Divided){ t->heads, "heads" };
    if (has_dense_layer(t))
        all[n++] = (Divided){ t->ffn, "ffn" };
    if (t->experts && may_share_out_experts(c->p))
        all[n++] = (Divided){ t->moe_ffn, "experts' ffn" };
    if (t->shared_expert_ffn)
        all[n++] = (Divided){ t->shared_expert_ffn, "shared expert's ffn" };
    return n;
}

/* kv_heads are shared out, or each is held by several ranks. */
static bool takes_kv_heads(const Transformer *t, uint64_t tp)
{
    return t->kv_heads % tp == 0 || tp % t->kv_heads == 0;
}

/* The degrees that all of it allow. */
static const char *tensor_degrees(char text[LIST_CAP], const Transformer *t, const Divided *all,
                                  uint32_t n)
{
    uint64_t common = 0;
    size_t at = 0;
    for (uint32_t i = 0; i < n; i++)
        common = gcd_u64(common, all[i].n);
    text[0] = '\0';
    for (uint64_t d = 1; d <= common && d <= DEGREE_MAX && at + 16 < LIST_CAP; d++)
        if (common % d == 0 && takes_kv_heads(t, d))
            at += (size_t)snprintf(text + at, LIST_CAP - at, "%s%" PRIu64, at ? ", " : "", d);
    return text;
}

/* Every second layer shares out its outputs: of an odd number of layers the last one too. */
static bool check_tensor_parallel_mlp(const Check *c)
{
    char text[LIST_CAP];
    const Mlp *m = &c->s->model.u.mlp;
    uint32_t last = m->widths_n - 1, end = last % 2 ? last + 1 : last;
    uint64_t common = 0;
    for (uint32_t i = 1; i < end; i++)
        common = gcd_u64(common, m->widths[i]);
    for (uint32_t i = 1; i < end; i++)
        if (m->widths[i] % c->p->tp != 0)
            return FAIL(
                c, parallel, "tp",
                "%" PRIu32 " does not divide the model's %s width %" PRIu32 ", allowed: %s",
                c->p->tp, i < last ? "inner" : "last", m->widths[i], divisors(text, common));
    return true;
}

static bool check_tensor_parallel(const Check *c)
{
    char text[LIST_CAP];
    Divided all[DIVIDED_MAX];
    const Transformer *t = &c->s->model.u.transformer;
    uint32_t tp = c->p->tp;
    if (c->s->model.kind == MODEL_MLP)
        return check_tensor_parallel_mlp(c);
    if (c->s->model.kind != MODEL_TRANSFORMER)
        return true;
    uint32_t n = divided_of(c, all);
    for (uint32_t i = 0; i < n; i++)
        if (all[i].n % tp != 0)
            return FAIL(c, parallel, "tp",
                        "%" PRIu32 " does not divide the model's %s %" PRIu64 ", allowed: %s",
                        tp, all[i].what, all[i].n, tensor_degrees(text, t, all, n));
    if (!takes_kv_heads(t, tp))
        return FAIL(c, parallel, "tp",
                    "%" PRIu32 " neither divides the model's %" PRIu32
                    " kv_heads nor is a multiple of them (each then held by several ranks), "
                    "allowed: %s",
                    tp, t->kv_heads, tensor_degrees(text, t, all, n));
    return true;
}

static bool check_sequence(const Check *c)
{
    char text[LIST_CAP];
    uint32_t seq = c->t->seq_len, tp = c->p->tp, cp = c->p->cp;
    if (c->s->model.kind != MODEL_TRANSFORMER)
        return true;
    const Transformer *t = &c->s->model.u.transformer;
    if (t->positions == POS_LEARNED && seq > t->max_seq)
        return FAIL(c, training, "seq_len",
                    "%" PRIu32 " is longer than the model's learned positions, 1 to %" PRIu32
                    " allowed",
                    seq, t->max_seq);
    uint64_t unit = cp > 1 ? 2 * (uint64_t)cp : 1;
    if (seq % unit != 0)
        return FAIL(c, training, "seq_len",
                    "%" PRIu32 " is not a multiple of 2 x cp = %" PRIu64
                    " (each rank takes two chunks), nearest allowed: %s",
                    seq, unit, neighbours(text, seq, unit));
    if (c->p->sequence_parallel && seq / cp % tp != 0)
        return FAIL(c, training, "seq_len",
                    "%" PRIu32 " / cp is not a multiple of tp = %" PRIu32
                    ", as sequence_parallel needs; nearest allowed: %s",
                    seq, tp, neighbours(text, seq, unit * tp));
    return true;
}

/* Megatron refuses experts under tensor parallelism without sequence parallelism, too. */
static bool check_routing(const Check *c, uint32_t experts)
{
    const Parallel *p = c->p;
    if (experts > 0 && p->tp > 1 && !p->sequence_parallel)
        return FAIL(c, parallel, "sequence_parallel",
                    "experts with tp = %" PRIu32 " need it, true is allowed", p->tp);
    if (p->ep > 1 && !shares_experts(p))
        return FAIL(c, parallel, "ep",
                    "%" PRIu32 " with strategy %s cannot be simulated, 1 is allowed; or "
                    "strategy ddp, zero1, zero2, fsdp, hsdp",
                    p->ep, strategy_names[p->strategy]);
    return true;
}

static bool check_experts(const Check *c)
{
    char text[LIST_CAP];
    const Parallel *p = c->p;
    uint32_t experts = scenario_experts(&c->s->model);
    if (p->etp > 1 && experts == 0)
        return FAIL(c, parallel, "etp", "the model has no experts to share out, 1 is allowed");
    if (c->s->model.kind != MODEL_TRANSFORMER)
        return true;
    bool over_tp = p->tp > 1 && p->etp <= 1;
    bool replicates = p->strategy == STRATEGY_HSDP; /* each replica has all experts */
    uint64_t ranks =
        (uint64_t)(replicates ? p->shard_size : p->dp) * p->cp * (over_tp ? p->tp : 1);
    const char *dp = replicates ? "shard_size" : "dp";
    if (p->etp > 1 && p->etp != p->tp)
        return FAIL(c, parallel, "etp",
                    "%" PRIu32 " ranks cannot share out an expert, 1 and tp = %" PRIu32
                    " are allowed",
                    p->etp, p->tp);
    if (p->ep == 1)
        return check_routing(c, experts);
    if (experts == 0)
        return FAIL(c, parallel, "ep", "the model has no experts, 1 is allowed");
    if (experts % p->ep != 0)
        return FAIL(c, parallel, "ep",
                    "%" PRIu32 " does not divide the model's %" PRIu32 " experts, allowed: %s",
                    p->ep, experts, divisors(text, gcd_u64(experts, ranks)));
    if (ranks % p->ep != 0)
        return FAIL(c, parallel, "ep",
                    "%" PRIu32 " does not divide %s x cp%s = %" PRIu64 ", allowed: %s", p->ep,
                    dp, over_tp ? " x tp" : "", ranks, divisors(text, gcd_u64(experts, ranks)));
    return check_routing(c, experts);
}

/* ---- what the strategy wants ---- */

static bool check_model_parallel(const Check *c)
{
    char text[LIST_CAP];
    if (c->p->dp > 1 || c->p->tp > 1 || c->p->cp > 1)
        return FAIL(
            c, parallel, "strategy",
            "model_parallel splits by pp only, but the split is %s; dp, tp and cp may be 1",
            degrees(text, c->p));
    if (c->p->schedule != SCHEDULE_NAIVE)
        return FAIL(c, parallel, "schedule",
                    "model_parallel runs one stage after the other, naive is allowed");
    if (c->t->micro_batch != c->t->global_batch)
        return FAIL(c, training, "micro_batch",
                    "model_parallel runs the batch in one piece, %" PRIu32
                    " (= global_batch) is allowed",
                    c->t->global_batch);
    return true;
}

static bool check_strategy(const Check *c)
{
    char text[LIST_CAP];
    const Parallel *p = c->p;
    uint32_t node_gpus = c->s->machine.types[0].gpus_n;
    switch (p->strategy) {
    case STRATEGY_SINGLE:
        if (p->gpus > 1)
            return FAIL(c, parallel, "strategy",
                        "single uses one GPU but %s is given; degrees of 1 or another strategy "
                        "are allowed",
                        degrees(text, p));
        return true;
    case STRATEGY_MODEL_PARALLEL:
        return check_model_parallel(c);
    case STRATEGY_DP:
        if (p->tp > 1 || p->pp > 1 || p->cp > 1)
            return FAIL(
                c, parallel, "strategy",
                "dp (PyTorch's DataParallel) knows no other dimension, but the split is %s; "
                "tp, pp and cp may be 1",
                degrees(text, p));
        if (p->dp > node_gpus)
            return FAIL(c, parallel, "dp",
                        "strategy dp drives its GPUs from one process, 1 to %" PRIu32
                        " (the GPUs of a node) allowed",
                        node_gpus);
        return true;
    case STRATEGY_HSDP:
        if (p->dp % p->shard_size != 0)
            return FAIL(c, parallel, "shard_size",
                        "%" PRIu32 " does not divide dp = %" PRIu32 ", allowed: %s",
                        p->shard_size, p->dp, divisors(text, p->dp));
        return true;
    default:
        return true;
    }
}

/* ---- the cluster ---- */

static bool check_cluster(const Check *c)
{
    char text[LIST_CAP], nodes[64] = "";
    const Parallel *p = c->p;
    const Machine *m = &c->s->machine;
    if (p->gpus <= m->gpus_n)
        return true;
    double gpus = (double)p->dp * p->tp * p->pp * p->cp;
    if (m->types_n == 1 && p->gpus != NONE_U32)
        snprintf(nodes, sizeof nodes, " or \"cluster.nodes\": %" PRIu64,
                 div_up_u64(p->gpus, m->types[0].gpus_n));
    return json_fail(section_of(c, "parallel"), c->err,
                     "uses %.12g GPUs (%s) but cluster '%s' has %" PRIu32
                     "; allowed: fewer degrees%s",
                     gpus, degrees(text, p), m->name, m->gpus_n, nodes);
}

static bool supports(const Gpu *gpu, DType precision)
{
    return gpu->peak_flops_per_ns[precision] > 0;
}

static bool check_precision(const Check *c)
{
    const Machine *m = &c->s->machine;
    DType precision = c->t->precision;
    uint64_t gpus_n = 0;
    for (uint32_t i = 0; i < m->types_n && gpus_n < c->p->gpus; i++) {
        const NodeType *type = &m->types[i];
        gpus_n += (uint64_t)type->count * type->gpus_n;
        if (supports(type->gpu, precision))
            continue;
        char allowed[64] = "";
        for (int d = 0; d <= DTYPE_FP8; d++)
            if (supports(type->gpu, (DType)d))
                snprintf(allowed + strlen(allowed), sizeof allowed - strlen(allowed), "%s%s",
                         *allowed ? ", " : "", dtype_names[d]);
        return FAIL(c, training, "precision", "gpu '%s' cannot do %s, allowed: %s",
                    type->gpu->name, dtype_names[precision], allowed);
    }
    return true;
}

/* ---- batch and pipeline ---- */

static bool check_batch(const Check *c)
{
    char text[LIST_CAP];
    uint64_t unit = (uint64_t)c->p->dp * c->t->micro_batch;
    if (c->t->global_batch % unit == 0)
        return true;
    return FAIL(c, training, "global_batch",
                "%" PRIu32 " is not a multiple of dp x micro_batch = %" PRIu32 " x %" PRIu32
                " = %" PRIu64 ", nearest allowed: %s",
                c->t->global_batch, c->p->dp, c->t->micro_batch, unit,
                neighbours(text, c->t->global_batch, unit));
}

/* Elements of the largest tensors of one sample, about. */
static double largest_of_sample(const Check *c)
{
    const Model *m = &c->s->model;
    double most = 0, tokens = c->t->seq_len;
    if (m->kind == MODEL_TRANSFORMER) {
        const Transformer *t = &m->u.transformer;
        bool math = c->t->attention == ATTENTION_MATH;
        most = fmax(fmax(2.0 * t->ffn, t->vocab),
                    fmax(4.0 * t->hidden, 3.0 * t->heads * t->head_dim));
        return tokens * fmax(most, math ? t->heads * tokens : 0);
    }
    if (m->kind == MODEL_MLP) {
        for (uint32_t i = 0; i < m->u.mlp.widths_n; i++)
            most = fmax(most, m->u.mlp.widths[i]);
        return most;
    }
    const Convnet *n = &m->u.convnet;
    for (uint32_t i = 0; i < n->stages_n; i++)
        most = fmax(most, (double)n->widths[i] * n->expansion);
    return (double)n->image * n->image * fmax(most, n->stem_width) / 16;
}

/* Bytes are summed over tensors and layers in 64 bits. */
static bool check_size(const Check *c)
{
    static const double most = 17592186044416; /* 2^44: of thousands of layers still 2^63 */
    double bytes = 4.0 * c->t->micro_batch * largest_of_sample(c);
    return bytes <= most ||
           FAIL(c, training, "micro_batch",
                "a micro-batch of %" PRIu32 " x %" PRIu32 " makes tensors of %.3g bytes, up to "
                "%.3g are counted",
                c->t->micro_batch, c->t->seq_len, bytes, most);
}

static bool check_stages(const Check *c)
{
    const Parallel *p = c->p;
    bool text = c->s->model.kind == MODEL_TRANSFORMER;
    uint32_t blocks = scenario_blocks(&c->s->model);
    uint64_t chunks = (uint64_t)p->pp * p->virtual_stages,
             most = (uint64_t)blocks + (text ? 2 : 0);
    if (p->pp > 1 && chunks > most)
        return FAIL(c, parallel, p->pp > most ? "pp" : "virtual_stages",
                    "pp x virtual_stages = %" PRIu64 " chunks but the model has %" PRIu32
                    " %s%s%s, at most %" PRIu64 " chunk%s allowed",
                    chunks, blocks, text ? "block" : "layer", blocks == 1 ? "" : "s",
                    text ? ", embedding and head" : "", most, most == 1 ? "" : "s");
    uint64_t sum = 0;
    for (uint32_t i = 0; i < p->stage_layers_n; i++)
        sum += p->stage_layers[i];
    if (p->stage_layers_n > 0 && sum != blocks)
        return FAIL(c, parallel, "stage_layers",
                    "the numbers add up to %" PRIu64 ", %" PRIu32
                    " (the model's blocks) allowed",
                    sum, blocks);
    return true;
}

static bool check_virtual_stages(const Check *c)
{
    const Parallel *p = c->p;
    uint32_t n = p->virtual_stages;
    if (n > 1 && p->pp == 1)
        return FAIL(c, parallel, "virtual_stages", "with pp 1 only 1 is allowed");
    if (p->schedule == SCHEDULE_ZBV && p->pp > 1 && n != 2)
        return FAIL(c, parallel, "virtual_stages",
                    "schedule zbv runs down and up the stages, 2 is allowed");
    if (p->schedule == SCHEDULE_DUALPIPE && n > 2)
        return FAIL(c, parallel, "virtual_stages", "schedule dualpipe: 1 or 2 allowed");
    bool many = p->schedule == SCHEDULE_INTERLEAVED || schedule_is_vee(p->schedule);
    if (n > 1 && !many)
        return FAIL(
            c, parallel, "virtual_stages",
            "schedule %s has one chunk per rank, 1 is allowed (more with interleaved, zbv, "
            "dualpipe)",
            schedule_names[p->schedule]);
    return true;
}

/* The nearest number of micro-batches, below or above n, that can be put in groups. */
static uint64_t grouped(uint32_t pp, uint32_t n, bool above)
{
    do
        n = above ? n + 1 : n - 1;
    while (schedule_group(pp, n) == 0);
    return n;
}

static bool check_schedule(const Check *c)
{
    char text[LIST_CAP];
    const Parallel *p = c->p;
    uint32_t n = c->t->micro_batches;
    uint64_t unit = (uint64_t)p->dp * c->t->micro_batch;
    if (p->pp == 1)
        return true;
    bool shards = p->strategy == STRATEGY_FSDP || p->strategy == STRATEGY_HSDP;
    if (shards && schedule_splits(p->schedule))
        return FAIL(c, parallel, "schedule",
                    "%s makes weight gradients late, but %s gives parameters and gradients up "
                    "after each backward; ddp and zero1 are allowed",
                    schedule_names[p->schedule], strategy_names[p->strategy]);
    if (p->schedule == SCHEDULE_INTERLEAVED && schedule_group(p->pp, n) == 0)
        return FAIL(c, training, "global_batch",
                    "gives %" PRIu32
                    " micro-batches, which schedule interleaved over pp = %" PRIu32
                    " cannot put in %" PRIu32 " groups of equally many; nearest allowed: "
                    "%" PRIu64 " or %" PRIu64,
                    n, p->pp, n / p->pp, unit * grouped(p->pp, n, false),
                    unit * grouped(p->pp, n, true));
    bool both_ends = p->schedule == SCHEDULE_DUALPIPE && p->virtual_stages == 1;
    if (p->schedule == SCHEDULE_DUALPIPE && n < 2 * p->pp)
        return FAIL(c, training, "global_batch",
                    "gives %" PRIu32 " micro-batches, but schedule dualpipe needs twice the "
                    "pp = %" PRIu32 " stages; %" PRIu64 " and more is allowed",
                    n, p->pp, 2 * p->pp * unit);
    if (both_ends && p->pp % 2 != 0)
        return FAIL(c, parallel, "pp",
                    "%" PRIu32 " is odd, but schedule dualpipe pairs the stages; allowed: %s",
                    p->pp, neighbours(text, p->pp, 2));
    if (both_ends && n % 2 != 0)
        return FAIL(c, training, "global_batch",
                    "gives %" PRIu32
                    " micro-batches, but schedule dualpipe feeds both ends alike; "
                    "nearest allowed: %s",
                    n, neighbours(text, c->t->global_batch, 2 * unit));
    return true;
}

/* ---- the task ---- */

static bool check_task(const Check *c)
{
    const Training *t = c->t;
    const Model *m = &c->s->model;
    const Mlp *mlp = &m->u.mlp;
    uint32_t blocks = scenario_blocks(m);
    if (t->loss_mse && m->kind != MODEL_MLP)
        return FAIL(c, training, "loss", "mse is for an mlp, cross_entropy is allowed");
    if (t->momentum > 0 && t->optimizer != OPT_MOMENTUM)
        return FAIL(c, training, "momentum", "optimizer %s has none, 0 is allowed",
                    optimizer_names[t->optimizer]);
    if (t->recompute == RECOMPUTE_LAYERS && t->recompute_layers > blocks)
        return FAIL(c, training, "recompute.layers",
                    "the model has fewer, 0 to %" PRIu32 " allowed", blocks);
    if (strcmp(t->data, "synthetic") == 0)
        return true;
    if (strcmp(t->data, "regression20") == 0) {
        bool fits =
            m->kind == MODEL_MLP && mlp->widths[0] == 20 && mlp->widths[mlp->widths_n - 1] == 1;
        return fits ||
               FAIL(c, training, "data",
                    "regression20 needs an mlp from 20 inputs to 1 output, synthetic is "
                    "allowed");
    }
    if (m->kind != MODEL_TRANSFORMER || m->u.transformer.vocab < 256)
        return FAIL(c, training, "data",
                    "a text is read as bytes, which needs a transformer with a vocab of 256 or "
                    "more; synthetic is allowed");
    return true;
}

bool scenario_check(const Scenario *s, Err *err)
{
    Check c = { .s = s, .p = &s->parallel, .t = &s->training, .err = err };
    return check_kind(&c) && check_batchnorm(&c) && check_strategy(&c) && check_cluster(&c) &&
           check_tensor_parallel(&c) && check_sequence(&c) && check_experts(&c) &&
           check_virtual_stages(&c) && check_stages(&c) && check_batch(&c) && check_size(&c) &&
           check_schedule(&c) && check_precision(&c) && check_task(&c);
}

bool scenario_can_be_built(const Scenario *s, Err *err)
{
    const Check c = { .s = s, .p = &s->parallel, .t = &s->training, .err = err };
    return c.t->micro_batches <= MICRO_BATCHES_MAX ||
           FAIL(&c, training, "global_batch",
                "%" PRIu32 " micro-batches a step, at most %d allowed", c.t->micro_batches,
                MICRO_BATCHES_MAX);
}

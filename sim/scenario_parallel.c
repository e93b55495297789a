/*
 * scenario_parallel.c - the keys of "parallel": degrees, pipeline, sharding, overlap, order.
 *
 * Reads words, ranges and lengths of lists; whether the degrees fit the model
 * and the cluster is asked in scenario_check.c.
 */
#include <math.h>
#include <string.h>

#include "sim/scenario_parts.h"

enum {
    VIRTUAL_STAGES_MAX = 1024,
    LAYERS_MAX = 1 << 20, /* entries of stage_layers */
};

#define BUCKET_BYTES_MAX ((uint64_t)1 << 40)

const char *const strategy_names[STRATEGY_N] = { "single", "model_parallel", "dp",   "ddp",
                                                 "zero1",  "zero2",          "fsdp", "hsdp" };
const char *const schedule_names[SCHEDULE_N] = { "naive",       "gpipe", "1f1b",
                                                 "interleaved", "zb-h1", "zb-1p",
                                                 "zb-2p",       "zbv",   "dualpipe" };
const char *const dispatcher_names[DISPATCHER_N] = { "alltoall", "deepep" };
const char *const dim_names[DIM_N] = { "tp", "cp", "ep", "dp", "pp" };

uint32_t parallel_degree(const Parallel *p, Dim d)
{
    const uint32_t degree[DIM_N] = {
        [DIM_TP] = p->tp, [DIM_CP] = p->cp, [DIM_EP] = p->ep, [DIM_DP] = p->dp, [DIM_PP] = p->pp
    };
    return degree[d];
}

uint32_t parallel_extent(const Parallel *p, Dim d)
{
    return d == DIM_EP ? 1 : parallel_degree(p, d);
}

static bool read_strategy(JsonObj *o, Strategy *strategy, Strategy fallback)
{
    const char *words[STRATEGY_N + 1];
    memcpy(words, strategy_names, sizeof strategy_names);
    words[STRATEGY_N] = "data_parallel";
    int word = json_word(o, "strategy", words, STRATEGY_N + 1, (int)fallback);
    *strategy = word == STRATEGY_N ? STRATEGY_DP : (Strategy)word;
    return o->ok;
}

/* dp x tp x pp x cp, NONE_U32 when that is more than any cluster has. */
static uint32_t gpus_used(const Parallel *p)
{
    double gpus = (double)p->dp * p->tp * p->pp * p->cp;
    return gpus < (double)NONE_U32 ? (uint32_t)gpus : NONE_U32;
}

bool parallel_says_split(JsonNode parallel)
{
    static const char *const degrees[] = { "dp", "tp", "pp", "cp" };
    const char *strategy = json_text(json_member(parallel, "strategy"));
    bool split = strategy && strcmp(strategy, strategy_names[STRATEGY_SINGLE]) == 0;
    for (size_t i = 0; i < ARRAY_N(degrees); i++) {
        JsonNode degree = json_member(parallel, degrees[i]);
        split |= degree.item && json_type(degree) != JSON_NULL;
    }
    return split;
}

/*
 * Degrees that are not given are 1.  When none is given the whole cluster is
 * used: by pp for model_parallel, by dp for every other strategy.  DataParallel
 * is one process and has the GPUs of one node.
 */
static bool read_degrees(JsonObj *o, Parallel *p, const Machine *m)
{
    bool said = json_has(o, "strategy");
    bool split = parallel_says_split(o->node);
    if (said && !read_strategy(o, &p->strategy, STRATEGY_DDP))
        return false;
    bool stages = said && p->strategy == STRATEGY_MODEL_PARALLEL;
    bool one_node = said && p->strategy == STRATEGY_DP;
    uint32_t all = one_node ? m->types[0].gpus_n : m->gpus_n;
    p->dp = scenario_count(o, "dp", 1, DEGREE_MAX, split || stages ? 1 : all);
    p->tp = scenario_count(o, "tp", 1, DEGREE_MAX, 1);
    p->pp = scenario_count(o, "pp", 1, DEGREE_MAX, stages ? all : 1);
    p->cp = scenario_count(o, "cp", 1, DEGREE_MAX, 1);
    p->ep = scenario_count(o, "ep", 1, DEGREE_MAX, 1);
    p->gpus = gpus_used(p);
    if (said && p->strategy == STRATEGY_SINGLE && p->dp == 1 && p->gpus > 1)
        p->strategy = STRATEGY_DDP; /* one replica, on several GPUs */
    return o->ok && (said || read_strategy(o, &p->strategy,
                                           p->gpus == 1 ? STRATEGY_SINGLE : STRATEGY_DDP));
}

static bool read_stage_layers(JsonObj *o, Scenario *s)
{
    Parallel *p = &s->parallel;
    JsonNode list = json_get(o, "stage_layers");
    size_t chunks = (size_t)p->pp * p->virtual_stages;
    bool empty = json_type(list) == JSON_ARRAY && json_items_n(list) == 0; /* as not given */
    if (!list.item || empty || !o->ok) {
        json_log_value(list, "even", true);
        return o->ok;
    }
    if (json_type(list) != JSON_ARRAY || json_items_n(list) != chunks)
        return json_fail(list, o->err,
                         "a list of pp x virtual_stages = %zu numbers of blocks is expected",
                         chunks);
    double *blocks = PUSH_ARRAY(&s->arena, double, chunks);
    p->stage_layers = PUSH_ARRAY(&s->arena, uint32_t, chunks);
    p->stage_layers_n = (uint32_t)chunks;
    if (!json_numbers(list, blocks, chunks, o->err))
        return false;
    for (size_t i = 0; i < chunks; i++) {
        if (!(blocks[i] >= 0 && blocks[i] <= LAYERS_MAX) || blocks[i] != floor(blocks[i]))
            return json_fail(list, o->err,
                             "%.12g is not a number of blocks, whole numbers from 0 allowed",
                             blocks[i]);
        p->stage_layers[i] = (uint32_t)blocks[i];
    }
    scenario_log_numbers(list, blocks, chunks, false);
    return true;
}

/*
 * Virtual stages are what makes a pipeline interleaved, as Megatron has it.  Without a pipeline
 * only those schedules mean something that order the micro-batches of one rank: 1f1b and gpipe.
 */
static Schedule read_schedule(JsonObj *o, const Parallel *p)
{
    bool whole = p->strategy == STRATEGY_MODEL_PARALLEL;
    bool many = p->pp > 1 && json_value(json_member(o->node, "virtual_stages")) > 1;
    Schedule usual = whole ? SCHEDULE_NAIVE : many ? SCHEDULE_INTERLEAVED : SCHEDULE_1F1B;
    Schedule schedule =
        (Schedule)json_word(o, "schedule", schedule_names, SCHEDULE_N, (int)usual);
    bool kept = p->pp > 1 || whole || schedule == SCHEDULE_GPIPE;
    return kept ? schedule : SCHEDULE_1F1B;
}

static bool read_pipeline(JsonObj *o, Scenario *s)
{
    Parallel *p = &s->parallel;
    p->schedule = read_schedule(o, p);
    bool two =
        p->pp > 1 && (p->schedule == SCHEDULE_INTERLEAVED || schedule_is_vee(p->schedule));
    p->virtual_stages = scenario_count(o, "virtual_stages", 1, VIRTUAL_STAGES_MAX, two ? 2 : 1);
    return read_stage_layers(o, s);
}

static bool read_overlap(JsonObj *o, Parallel *p)
{
    JsonNode node = json_get(o, "overlap");
    JsonType type = json_type(node);
    bool pairs = runs_dualpipe(p);
    if (type == JSON_BOOL) {
        bool all = json_bool(o, "overlap", true);
        for (int d = 0; d < DIM_N; d++) {
            p->overlap[d] = all;
            p->overlap_set[d] = true;
        }
        return o->ok;
    }
    if (type == JSON_ABSENT || !o->ok) {
        json_log_value(node, pairs ? "as the software does, ep true" : "as the software does",
                       true);
        return o->ok;
    }
    if (type != JSON_OBJECT)
        return json_fail(node, o->err,
                         "true, false or an object with tp, cp, ep, dp, pp is expected, not %s",
                         json_type_name(type));
    JsonObj by_dim = json_begin(node, o->err);
    for (int d = 0; d < DIM_N; d++) {
        p->overlap_set[d] = json_has(&by_dim, dim_names[d]);
        if (p->overlap_set[d])
            p->overlap[d] = json_bool(&by_dim, dim_names[d], true);
        else if (d == DIM_EP && pairs)
            json_log_value(json_get(&by_dim, dim_names[d]), "true, as dualpipe does", true);
    }
    return json_end(&by_dim);
}

static int dim_of(const char *text, size_t n)
{
    for (int d = 0; d < DIM_N; d++)
        if (strlen(dim_names[d]) == n && memcmp(dim_names[d], text, n) == 0)
            return d;
    return -1;
}

static bool take_dim(Parallel *p, uint32_t *n, const char *text, size_t length)
{
    int dim = dim_of(text, length);
    if (dim < 0 || *n == DIM_N)
        return false;
    for (uint32_t i = 0; i < *n; i++)
        if (p->order[i] == (Dim)dim)
            return false;
    p->order[(*n)++] = (Dim)dim;
    return true;
}

/* "tp,cp,ep,dp,pp" or ["tp", "cp", "ep", "dp", "pp"], each dimension once. */
static bool parse_order(Parallel *p, JsonNode node)
{
    uint32_t n = 0;
    bool ok = true;
    const char *text = json_text(node);
    while (text && ok) {
        text += strspn(text, " ");
        size_t length = strcspn(text, ", ");
        ok = take_dim(p, &n, text, length);
        text += length + strspn(text + length, " ");
        if (*text == '\0')
            break;
        ok = ok && *text++ == ',';
    }
    if (json_type(node) == JSON_ARRAY) {
        size_t i = 0;
        for (JsonNode e = json_first(node); ok && e.item; e = json_next(e, node, ++i)) {
            const char *word = json_text(e);
            ok = word && take_dim(p, &n, word, strlen(word));
        }
    }
    return ok && n == DIM_N;
}

static bool read_order(JsonObj *o, Parallel *p)
{
    JsonNode node = json_get(o, "order");
    if (!o->ok)
        return false;
    for (int d = 0; d < DIM_N && !node.item; d++)
        p->order[d] = (Dim)d;
    if (node.item && !parse_order(p, node))
        return json_fail(node, o->err,
                         "each of tp, cp, ep, dp, pp once is expected, innermost first, as in "
                         "\"tp,cp,ep,dp,pp\"");
    char text[DIM_N * 4] = "";
    for (int d = 0; d < DIM_N; d++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", d ? "," : "",
                 dim_names[p->order[d]]);
    json_log_value(node, text, !node.item);
    return true;
}

/* Experts with biases stay whole: there is no other way to have them. */
static void read_etp(JsonObj *o, Parallel *p, const Model *model)
{
    bool biases =
        scenario_experts(model) > 0 && transformer_experts_bias(&model->u.transformer);
    p->etp = json_has(o, "etp") ? scenario_count(o, "etp", 1, DEGREE_MAX, 1) : biases ? 1 : 0;
    if (!json_has(o, "etp"))
        json_log_value(json_get(o, "etp"), biases ? "1" : "as the software does", true);
}

/* What the keys of experts say of a dense model means nothing, as long as it splits nothing. */
static void read_experts(JsonObj *o, Parallel *p, const Model *model)
{
    bool dense = scenario_experts(model) == 0;
    p->has_experts = !dense;
    read_etp(o, p, model);
    p->dispatcher_set = json_has(o, "dispatcher");
    if (p->dispatcher_set)
        p->dispatcher = (Dispatcher)json_word(o, "dispatcher", dispatcher_names, DISPATCHER_N,
                                              DISPATCHER_ALLTOALL);
    else
        json_log_value(json_get(o, "dispatcher"), "as the software does", true);
    if (dense && p->etp == 1)
        p->etp = 0;
    if (dense)
        p->dispatcher_set = false;
}

/* The GPUs of a node, or where replicas do not come in as many, the most of a node's that do. */
static uint32_t usual_shard_size(const Parallel *p, const Machine *m)
{
    uint32_t node_gpus = m->types[0].gpus_n;
    uint32_t usual = node_gpus < p->dp ? node_gpus : p->dp;
    uint64_t inner = (uint64_t)p->tp * p->cp; /* GPUs of one replica */
    uint32_t in_node = node_gpus % inner == 0 ? (uint32_t)(node_gpus / inner) : node_gpus;
    uint32_t even = (uint32_t)gcd_u64(in_node, p->dp);
    return p->dp % usual == 0 || even == 1 ? usual : even;
}

static bool read_sharding(JsonObj *o, Scenario *s)
{
    static const char *const prefetch_names[] = { "none", "backward", "both" };
    Parallel *p = &s->parallel;
    bool dense = scenario_experts(&s->model) == 0;
    p->sequence_parallel = json_bool(o, "sequence_parallel", !dense && p->tp > 1);
    p->bucket_bytes_set = json_has(o, "bucket_bytes");
    p->bucket_bytes = json_size(o, "bucket_bytes", 1, BUCKET_BYTES_MAX, 25 * MIB);
    p->first_bucket_bytes = json_size(o, "first_bucket_bytes", 1, BUCKET_BYTES_MAX, MIB);
    p->reshard_set = json_has(o, "reshard_after_forward");
    p->reshard_after_forward = json_bool(o, "reshard_after_forward", true);
    p->prefetch = (Prefetch)json_word(o, "prefetch", prefetch_names, ARRAY_N(prefetch_names),
                                      PREFETCH_BACKWARD);
    p->limit_all_gathers = json_bool(o, "limit_all_gathers", true);
    p->sync_batchnorm = json_bool(o, "sync_batchnorm", false);
    read_experts(o, p, &s->model);
    p->shard_size = scenario_count(o, "shard_size", 1, DEGREE_MAX,
                                   (double)usual_shard_size(p, &s->machine));
    return o->ok;
}

bool scenario_parallel(Scenario *s, JsonNode node, Err *err)
{
    JsonObj o = scenario_begin(node, err);
    bool ok = read_degrees(&o, &s->parallel, &s->machine) && read_pipeline(&o, s) &&
              read_sharding(&o, s) && read_overlap(&o, &s->parallel) &&
              read_order(&o, &s->parallel);
    if (!ok) {
        json_end_lax(&o);
        return false;
    }
    return json_end(&o);
}

/*
 * test_scenario.c - defaults, --set, every message, and the rows others have published.
 *
 * Scenarios are written with ' for " and are small inline objects, so that no
 * data file can change what is tested here.
 */
#include "sim/scenario.h"
#include "sim/software.h"

#include "tests/check.h"

#include <unistd.h>

#define GPT \
    "{'kind':'transformer','layers':8,'hidden':512,'heads':8,'kv_heads':4,'vocab':1000," \
    "'max_seq':1024}"
#define MOE \
    "{'kind':'transformer','layers':8,'hidden':512,'heads':8,'vocab':1000,'max_seq':1024," \
    "'experts':8,'positions':'rope'}"
#define ROPE \
    "{'kind':'transformer','layers':8,'hidden':512,'heads':8,'vocab':200,'max_seq':1024," \
    "'positions':'rope'}"
#define MOE_OF_1002(every) \
    "{'kind':'transformer','layers':8,'hidden':512,'heads':8,'ffn':1002,'vocab':1000," \
    "'max_seq':1024,'experts':8,'moe_every':" every "}"
#define MLP     "{'kind':'mlp','widths':[20,64,96,1]}"
#define MLP_TP  "{'kind':'mlp','widths':[20,64,96,2]}" /* its last layer's outputs are shared */
#define CONVNET "{'kind':'convnet'}"
#define GPU \
    "{'name':'g1','peak_tflops':{'f32':10,'f16':100,'bf16':100},'memory_GB':80," \
    "'memory_GBps':2000}"
#define BOXES_OF(nodes) \
    "{'name':'box','nodes':" nodes ",'gpus_per_node':8,'gpu':" GPU "," \
    "'intra_node':{'kind':'nvswitch','GBps':300}," \
    "'inter_node':{'kind':'fat_tree','nics_per_node':8,'GBps_per_nic':25}}"
#define ONE_BOX   BOXES_OF("1")
#define TWO_BOXES BOXES_OF("2")

/* ---- helpers ---- */

static JsonDoc *doc_of(const char *text, const char *name, Err *err)
{
    char *json = mem_zero(strlen(text) + 1, 1);
    for (size_t i = 0; text[i]; i++)
        json[i] = text[i] == '\'' ? '"' : text[i];
    JsonDoc *doc = json_parse(json, strlen(json), name, err);
    free(json);
    return doc;
}

static bool read_text(Scenario *s, const char *text, const Setting *set, uint32_t set_n,
                      Err *err)
{
    JsonDoc *doc = doc_of(text, "dir/t.json", err);
    return doc && scenario_from(s, doc, set, set_n, err);
}

/* On two nodes of eight. */
static bool read_parts(Scenario *s, const char *model, const char *parallel,
                       const char *training, Err *err)
{
    Arena arena = { 0 };
    const char *text = arena_printf(
        &arena, "{'model':%s,'cluster':" TWO_BOXES ",'parallel':{%s},'training':{%s}}", model,
        parallel, training);
    bool ok = read_text(s, text, NULL, 0, err);
    arena_free(&arena);
    return ok;
}

static bool must_read(Scenario *s, const char *model, const char *parallel,
                      const char *training)
{
    Err err = { 0 };
    bool ok = CHECK(read_parts(s, model, parallel, training, &err));
    if (!ok)
        fprintf(stderr, "    %s\n", err.text);
    return ok;
}

/* ---- defaults ---- */

static void a_transformer_has_its_defaults(void)
{
    Scenario s;
    if (!must_read(&s, GPT, "", ""))
        return;
    CHECK_STR("t", s.name);
    CHECK_STR("generic", s.software);
    CHECK_STR("", s.group);
    const Training *t = &s.training;
    CHECK_U64(16, t->global_batch);
    CHECK_U64(1, t->micro_batch);
    CHECK_U64(1, t->micro_batches);
    CHECK_U64(1024, t->seq_len);
    CHECK_INT(DTYPE_BF16, t->precision);
    CHECK_INT(OPT_ADAMW, t->optimizer);
    CHECK_INT(RECOMPUTE_NONE, t->recompute);
    CHECK_INT(ATTENTION_FLASH, t->attention);
    CHECK(!t->compiled && !t->loss_mse);
    CHECK_STR("synthetic", t->data);
    CHECK_U64(0, t->seed);
    CHECK(t->lr == 1e-3 && t->beta1 == 0.9 && t->beta2 == 0.999 && t->eps == 1e-8);
    CHECK(t->weight_decay == 0.01 && t->momentum == 0 && t->grad_clip == 0);
    scenario_free(&s);
}

static void parallel_has_its_defaults(void)
{
    Scenario s;
    if (!must_read(&s, GPT, "", ""))
        return;
    const Parallel *p = &s.parallel;
    CHECK_INT(STRATEGY_DDP, p->strategy);
    CHECK_U64(16, p->dp);
    CHECK_U64(16, p->gpus);
    CHECK(p->tp == 1 && p->pp == 1 && p->cp == 1 && p->ep == 1);
    CHECK_INT(SCHEDULE_1F1B, p->schedule);
    CHECK_U64(1, p->virtual_stages);
    CHECK_U64(25 * MIB, p->bucket_bytes);
    CHECK_U64(MIB, p->first_bucket_bytes);
    CHECK(p->reshard_after_forward && p->limit_all_gathers && !p->sequence_parallel &&
          !p->sync_batchnorm);
    CHECK_INT(PREFETCH_BACKWARD, p->prefetch);
    CHECK_U64(8, p->shard_size);
    CHECK_U64(0, p->stage_layers_n);
    for (int d = 0; d < DIM_N; d++) {
        CHECK(!p->overlap_set[d]);
        CHECK_INT(d, p->order[d]);
    }
    scenario_free(&s);
}

static void other_models_have_other_defaults(void)
{
    Scenario s;
    if (must_read(&s, MLP, "", "")) {
        CHECK_U64(1, s.training.seq_len);
        CHECK_INT(DTYPE_F32, s.training.precision);
        CHECK(s.training.loss_mse);
        scenario_free(&s);
    }
    if (must_read(&s, CONVNET, "", "")) {
        CHECK_U64(1, s.training.seq_len);
        CHECK_INT(DTYPE_F32, s.training.precision);
        CHECK(!s.training.loss_mse);
        scenario_free(&s);
    }
}

static void number_formats_follow_the_precision(void)
{
    static const struct {
        const char *training;
        DType param, grad, reduce;
        bool master;
    } rows[] = {
        { "'precision':'f32'", DTYPE_F32, DTYPE_F32, DTYPE_F32, false },
        { "'precision':'f16'", DTYPE_F16, DTYPE_F16, DTYPE_F16, true },
        { "'precision':'bf16'", DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, true },
        { "'precision':'bf16','optimizer':'adam'", DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, true },
        { "'precision':'bf16','optimizer':'sgd'", DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, false },
        { "'precision':'bf16','param_dtype':'f32'", DTYPE_F32, DTYPE_F32, DTYPE_F32, false },
        { "'precision':'bf16','grad_dtype':'f32'", DTYPE_BF16, DTYPE_F32, DTYPE_F32, true },
        { "'precision':'bf16','reduce_dtype':'f32','master_weights':false", DTYPE_BF16,
          DTYPE_BF16, DTYPE_F32, false },
    };
    for (size_t i = 0; i < ARRAY_N(rows); i++) {
        Scenario s;
        if (!must_read(&s, GPT, "", rows[i].training))
            continue;
        CHECK_INT(rows[i].param, s.training.param_dtype);
        CHECK_INT(rows[i].grad, s.training.grad_dtype);
        CHECK_INT(rows[i].reduce, s.training.reduce_dtype);
        CHECK_INT(rows[i].master, s.training.master_weights);
        scenario_free(&s);
    }
}

static void optimizers_have_pytorchs_defaults(void)
{
    Scenario s;
    if (must_read(&s, GPT, "", "'optimizer':'momentum'")) {
        CHECK(s.training.momentum == 0.9 && s.training.weight_decay == 0);
        scenario_free(&s);
    }
    if (must_read(&s, GPT, "", "'optimizer':'adam','betas':[0.8,0.95]")) {
        CHECK(s.training.weight_decay == 0 && s.training.momentum == 0);
        CHECK(s.training.beta1 == 0.8 && s.training.beta2 == 0.95);
        scenario_free(&s);
    }
}

static void the_strategy_follows_the_degrees(void)
{
    static const struct {
        const char *parallel;
        Strategy strategy;
        uint32_t dp, pp, gpus;
    } rows[] = {
        { "", STRATEGY_DDP, 16, 1, 16 },
        { "'dp':1", STRATEGY_SINGLE, 1, 1, 1 },
        { "'tp':2,'sequence_parallel':true", STRATEGY_DDP, 1, 1, 2 },
        { "'strategy':'single','tp':2", STRATEGY_DDP, 1, 1, 2 },
        { "'strategy':'single','dp':1,'pp':4", STRATEGY_DDP, 1, 4, 4 },
        { "'strategy':'single','cp':2", STRATEGY_DDP, 1, 1, 2 },
        { "'strategy':'single'", STRATEGY_SINGLE, 1, 1, 1 },
        { "'strategy':'fsdp'", STRATEGY_FSDP, 16, 1, 16 },
        { "'strategy':'ddp','dp':1", STRATEGY_DDP, 1, 1, 1 },
        { "'strategy':'data_parallel','dp':4", STRATEGY_DP, 4, 1, 4 },
        { "'strategy':'dp'", STRATEGY_DP, 8, 1, 8 },
        { "'strategy':'model_parallel','pp':4", STRATEGY_MODEL_PARALLEL, 1, 4, 4 },
        { "'strategy':'model_parallel','pp':4,'dp':1", STRATEGY_MODEL_PARALLEL, 1, 4, 4 },
        { "'strategy':'hsdp','dp':4,'tp':4,'sequence_parallel':true", STRATEGY_HSDP, 4, 1, 16 },
    };
    for (size_t i = 0; i < ARRAY_N(rows); i++) {
        Scenario s;
        if (!must_read(&s, MOE, rows[i].parallel, ""))
            continue;
        CHECK_INT(rows[i].strategy, s.parallel.strategy);
        CHECK_U64(rows[i].dp, s.parallel.dp);
        CHECK_U64(rows[i].pp, s.parallel.pp);
        CHECK_U64(rows[i].gpus, s.parallel.gpus);
        CHECK_U64(4, s.parallel.strategy == STRATEGY_HSDP ? s.parallel.shard_size : 4);
        scenario_free(&s);
    }
}

static void model_parallel_takes_the_batch_in_one_piece(void)
{
    Scenario s;
    if (!must_read(&s, GPT, "'strategy':'model_parallel','pp':2", "'global_batch':32"))
        return;
    CHECK_INT(SCHEDULE_NAIVE, s.parallel.schedule);
    CHECK_U64(32, s.training.micro_batch);
    CHECK_U64(1, s.training.micro_batches);
    scenario_free(&s);
    const char *deep = "{'kind':'mlp','widths':[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}";
    if (!must_read(&s, deep, "'strategy':'model_parallel'", ""))
        return;
    CHECK_U64(16, s.parallel.pp);
    scenario_free(&s);
}

static void virtual_stages_follow_the_schedule(void)
{
    static const struct {
        const char *parallel;
        uint32_t stages;
    } rows[] = {
        { "'pp':2,'schedule':'interleaved'", 2 },
        { "'pp':2,'schedule':'zbv'", 2 },
        { "'pp':2,'schedule':'zb-h1'", 1 },
        { "'pp':2,'schedule':'dualpipe','virtual_stages':1", 1 },
        { "'pp':2,'schedule':'dualpipe'", 2 },
        { "'pp':2,'schedule':'interleaved','virtual_stages':5", 5 },
    };
    for (size_t i = 0; i < ARRAY_N(rows); i++) {
        Scenario s;
        if (!must_read(&s, GPT, rows[i].parallel, "'global_batch':8"))
            continue;
        CHECK_U64(rows[i].stages, s.parallel.virtual_stages);
        scenario_free(&s);
    }
}

/* Megatron has no word for it; and one stage alone is no pipeline, whatever the word. */
static void the_schedule_follows_the_stages(void)
{
    static const struct {
        const char *parallel;
        Schedule schedule;
    } rows[] = {
        { "'pp':2", SCHEDULE_1F1B },
        { "'pp':2,'virtual_stages':1", SCHEDULE_1F1B },
        { "'pp':2,'virtual_stages':2", SCHEDULE_INTERLEAVED },
        { "'pp':2,'virtual_stages':2,'schedule':null", SCHEDULE_INTERLEAVED },
        { "'pp':2,'virtual_stages':2,'schedule':'zbv'", SCHEDULE_ZBV },
        { "'dp':2,'schedule':'interleaved'", SCHEDULE_1F1B },
        { "'dp':2,'schedule':'interleaved','virtual_stages':1", SCHEDULE_1F1B },
        { "'dp':2,'schedule':'zb-h1'", SCHEDULE_1F1B },
        { "'dp':2,'schedule':'zbv'", SCHEDULE_1F1B },
        { "'dp':2,'schedule':'naive'", SCHEDULE_1F1B },
        { "'dp':2,'schedule':'gpipe'", SCHEDULE_GPIPE },
        { "'strategy':'model_parallel','pp':1", SCHEDULE_NAIVE },
    };
    for (size_t i = 0; i < ARRAY_N(rows); i++) {
        Scenario s;
        if (!must_read(&s, GPT, rows[i].parallel, "'global_batch':8"))
            continue;
        CHECK_INT(rows[i].schedule, s.parallel.schedule);
        scenario_free(&s);
    }
}

/* Megatron Core and torchtitan have no experts over tp without it. */
static void sequence_parallel_follows_the_experts(void)
{
    static const struct {
        const char *model, *parallel;
        bool is;
    } rows[] = {
        { MOE, "'tp':2", true },     { MOE, "'tp':2,'sequence_parallel':null", true },
        { MOE, "'dp':2", false },    { GPT, "'tp':2", false },
        { MLP_TP, "'tp':2", false },
    };
    for (size_t i = 0; i < ARRAY_N(rows); i++) {
        Scenario s;
        if (!must_read(&s, rows[i].model, rows[i].parallel, ""))
            continue;
        CHECK_INT(rows[i].is, s.parallel.sequence_parallel);
        scenario_free(&s);
    }
}

/* A node's GPUs, or as many of them as divide dp. */
static void shards_lie_within_nodes(void)
{
    static const struct {
        const char *parallel;
        uint32_t n;
    } rows[] = {
        { "'strategy':'hsdp'", 8 },         { "'strategy':'hsdp','dp':4", 4 },
        { "'strategy':'hsdp','dp':12", 4 }, { "'strategy':'hsdp','dp':10", 2 },
        { "'strategy':'hsdp','dp':6", 6 },  { "'strategy':'hsdp','dp':12,'shard_size':6", 6 },
    };
    for (size_t i = 0; i < ARRAY_N(rows); i++) {
        Scenario s;
        if (!must_read(&s, GPT, rows[i].parallel, ""))
            continue;
        CHECK_U64(rows[i].n, s.parallel.shard_size);
        scenario_free(&s);
    }
}

/* Of four GPUs each, a node holds two. */
static void shards_leave_room_for_a_replicas_own_gpus(void)
{
    Scenario s;
    Err err = { 0 };
    const char *text =
        "{'model':" ROPE
        ",'cluster':" BOXES_OF("6") ",'parallel':{'strategy':'hsdp','dp':12,'tp':2,'cp':2}}";
    if (CHECK(read_text(&s, text, NULL, 0, &err))) {
        CHECK_U64(2, s.parallel.shard_size);
        scenario_free(&s);
    }
}

/* tp has to divide what it shares out: of these layers nothing but attention. */
static void whole_experts_are_of_any_width(void)
{
    static const char *const whole[] = { "'tp':4,'etp':1", "'dp':2,'tp':4,'ep':8" };
    for (size_t i = 0; i < ARRAY_N(whole); i++) {
        Scenario s;
        if (must_read(&s, MOE_OF_1002("1"), whole[i], ""))
            scenario_free(&s);
    }
}

/* Where etp is not said the stack's habit decides, of one that nobody knows as of most. */
static void a_stack_may_keep_experts_whole(void)
{
    static const struct {
        const char *software, *error;
    } rows[] = {
        { "megatron-bridge", NULL },
        { "megatron-core-2025",
          "parallel.tp: 4 does not divide the model's experts' ffn 1002" },
        { "nobodys-own", "parallel.tp: 4 does not divide the model's experts' ffn 1002" },
    };
    for (size_t i = 0; i < ARRAY_N(rows); i++) {
        Scenario s;
        Err err = { 0 };
        Setting software = { "software", rows[i].software };
        const char *text =
            "{'model':" MOE_OF_1002("1") ",'cluster':" ONE_BOX
                                         ",'training':{'global_batch':16},"
                                         "'parallel':{'tp':4,'sequence_parallel':true}}";
        bool ok = read_text(&s, text, &software, 1, &err);
        CHECK_INT(rows[i].error == NULL, ok);
        if (rows[i].error)
            CHECK_ERR_TEXT(&err, rows[i].error);
        if (ok)
            scenario_free(&s);
    }
}

/* What splits nothing may be said of a model without experts. */
static void neutral_words_of_experts_are_for_every_model(void)
{
    static const char *const models[] = { GPT, MLP, CONVNET };
    for (size_t i = 0; i < ARRAY_N(models); i++) {
        Scenario s;
        if (!must_read(&s, models[i], "'etp':1,'dispatcher':'deepep','stage_layers':[]", ""))
            continue;
        CHECK(s.parallel.etp == 0 && !s.parallel.dispatcher_set);
        CHECK_U64(0, s.parallel.stage_layers_n);
        scenario_free(&s);
    }
}

/* ---- values ---- */

static void lists_and_objects_are_read(void)
{
    Scenario s;
    if (!must_read(
            &s, GPT,
            "'pp':2,'virtual_stages':2,'schedule':'interleaved','stage_layers':[3,3,2,0],"
            "'bucket_bytes':'10MB','overlap':{'dp':false,'tp':true},"
            "'order':['pp','dp','tp','cp','ep'],'prefetch':'both'",
            "'global_batch':4,'recompute':{'layers':3}"))
        return;
    CHECK_U64(4, s.parallel.stage_layers_n);
    CHECK(s.parallel.stage_layers[0] == 3 && s.parallel.stage_layers[3] == 0);
    CHECK_U64(10000000, s.parallel.bucket_bytes);
    CHECK(s.parallel.overlap_set[DIM_DP] && !s.parallel.overlap[DIM_DP]);
    CHECK(s.parallel.overlap_set[DIM_TP] && s.parallel.overlap[DIM_TP]);
    CHECK(!s.parallel.overlap_set[DIM_PP]);
    CHECK(s.parallel.order[0] == DIM_PP && s.parallel.order[4] == DIM_EP);
    CHECK_INT(PREFETCH_BOTH, s.parallel.prefetch);
    CHECK_INT(RECOMPUTE_LAYERS, s.training.recompute);
    CHECK_U64(3, s.training.recompute_layers);
    CHECK_U64(4, s.training.micro_batches);
    scenario_free(&s);
    if (!must_read(&s, GPT, "'overlap':false,'order':'ep, pp,cp ,tp,dp'", ""))
        return;
    for (int d = 0; d < DIM_N; d++)
        CHECK(s.parallel.overlap_set[d] && !s.parallel.overlap[d]);
    CHECK(s.parallel.order[0] == DIM_EP && s.parallel.order[4] == DIM_DP);
    scenario_free(&s);
}

static void measured_rows_are_read(void)
{
    Scenario s;
    Err err = { 0 };
    const char *text = "{'name':'n','model':" GPT ",'cluster':" ONE_BOX ",'software':'x',"
                       "'source':'s','notes':'o','quality':'A','group':'g','measured':["
                       "{'metric':'step_time_s','value':1.5,'published_as':'ms','source':'t3'},"
                       "{'metric':'memory.peak_bytes','value':3e10},"
                       "{'metric':'fits','value':true}]}";
    if (!CHECK(read_text(&s, text, NULL, 0, &err)))
        return;
    CHECK_STR("n", s.name);
    CHECK_STR("x", s.software);
    CHECK_STR("s", s.source);
    CHECK_STR("o", s.notes);
    CHECK_STR("A", s.quality);
    CHECK_STR("g", s.group);
    CHECK_U64(3, s.measured_n);
    CHECK_STR("step_time_s", s.measured[0].metric);
    CHECK_STR("ms", s.measured[0].published_as);
    CHECK_STR("t3", s.measured[0].source);
    CHECK(s.measured[0].value == 1.5 && s.measured[1].value == 3e10);
    CHECK_STR("", s.measured[1].source);
    CHECK(s.measured[2].value == 1);
    scenario_free(&s);
}

static void data_is_found_beside_the_scenario(void)
{
    Scenario s;
    if (must_read(&s, GPT, "", "'data':'input.txt'")) {
        CHECK_STR("dir/input.txt", s.training.data);
        scenario_free(&s);
    }
    if (must_read(&s, GPT, "", "'data':'/a/input'")) {
        CHECK_STR("/a/input", s.training.data);
        scenario_free(&s);
    }
    if (must_read(&s, MLP, "", "'data':'regression20'")) {
        CHECK_STR("regression20", s.training.data);
        scenario_free(&s);
    }
}

/* What looks wrong and is not. */
static void generous_where_nothing_is_lost(void)
{
    static const struct {
        const char *model, *parallel, *training;
    } rows[] = {
        { GPT, "'tp':8", "" }, /* kv heads held twice */
        { GPT, "'tp':1,'sequence_parallel':true", "" },
        { GPT, "'pp':10", "" },               /* embedding and head alone */
        { GPT, "'pp':3", "" },                /* uneven */
        { ROPE, "'dp':1", "'seq_len':4096" }, /* no learned positions */
        { GPT, "'dp':2,'schedule':'gpipe'", "" },
        { GPT, "'dp':2,'stage_layers':[8]", "" },
        { GPT, "'cp':2", "'seq_len':1000" },
        { MOE, "'dp':4,'cp':2,'ep':8", "" },
        { MOE, "'dp':4,'cp':2,'ep':8,'tp':2,'sequence_parallel':true,'strategy':'zero1'", "" },
        { MOE, "'dp':4,'strategy':'fsdp','ep':1", "" },
        { MLP_TP, "'tp':2,'pp':3", "" },
        { MLP, "'dp':1", "'seq_len':1" },
        { GPT, "'dp':2,'overlap':null", "'grad_clip':null" },
        { GPT, "'pp':2,'schedule':'interleaved','virtual_stages':1", "'global_batch':2" },
    };
    for (size_t i = 0; i < ARRAY_N(rows); i++) {
        Scenario s;
        if (must_read(&s, rows[i].model, rows[i].parallel, rows[i].training))
            scenario_free(&s);
    }
}

/* ---- messages ---- */

typedef struct BadRow {
    const char *model, *parallel, *training, *message;
} BadRow;

static void check_messages(const BadRow *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        Scenario s;
        Err err = { 0 };
        if (!CHECK(!read_parts(&s, rows[i].model, rows[i].parallel, rows[i].training, &err))) {
            fprintf(stderr, "    read without an error: %s\n", rows[i].message);
            scenario_free(&s);
            continue;
        }
        CHECK_ERR_TEXT(&err, rows[i].message);
        CHECK(strncmp(err.text, "dir/t.json: ", 12) == 0);
        CHECK(s.doc == NULL && s.arena.last == NULL);
    }
}

static const BadRow bad_words[] = {
    { GPT, "'startegy':'ddp'", "",
      "parallel.startegy: unknown key, did you mean 'strategy'? allowed: strategy, dp, tp" },
    { GPT, "", "'batch':1", "training.batch: unknown key, allowed: micro_batch, global_batch" },
    { GPT, "'strategy':'zero3'", "",
      "parallel.strategy: unknown word 'zero3', allowed: single, model_parallel, dp, ddp, "
      "zero1, zero2, fsdp, hsdp, data_parallel" },
    { GPT, "'schedule':'2f2b'", "", "parallel.schedule: unknown word '2f2b', allowed: naive" },
    { GPT, "'dp':0", "", "parallel.dp: 0 is out of range, 1 to 1048576 allowed" },
    { GPT, "'tp':-2", "", "parallel.tp: -2 is out of range, 1 to 1048576 allowed" },
    { GPT, "'pp':2000000", "", "parallel.pp: 2000000 is out of range" },
    { GPT, "'cp':1.5", "", "parallel.cp: a whole number is expected, not 1.5" },
    { GPT, "'dp':'8'", "", "parallel.dp: a number is expected, not a string" },
    { GPT, "'bucket_bytes':'25 potatoes'", "", "'25 potatoes' is not a size such as 25MiB" },
    { GPT, "'prefetch':'all'", "",
      "parallel.prefetch: unknown word 'all', allowed: none, backward, both" },
    { MOE, "'dispatcher':'nccl'", "",
      "parallel.dispatcher: unknown word 'nccl', allowed: alltoall, deepep" },
    { GPT, "'overlap':3", "",
      "parallel.overlap: true, false or an object with tp, cp, ep, dp, pp is expected" },
    { GPT, "'overlap':{'xp':true}", "",
      "parallel.overlap.xp: unknown key, did you mean 'tp'? allowed: tp, cp" },
    { GPT, "'order':'tp,tp,ep,dp,pp'", "",
      "parallel.order: each of tp, cp, ep, dp, pp once is expected, innermost first" },
    { GPT, "'order':'tp,cp'", "", "parallel.order: each of tp" },
    { GPT, "'order':'tp,cp,ep,dp,pp,'", "", "parallel.order: each of tp" },
    { GPT, "'order':'tp cp,ep,dp,pp'", "", "parallel.order: each of tp" },
    { GPT, "'order':[1]", "", "parallel.order: each of tp" },
    { GPT, "'order':7", "", "parallel.order: each of tp" },
    { GPT, "", "'precision':'int4'",
      "training.precision: unknown word 'int4', allowed: f32, tf32, f16, bf16, fp8" },
    { GPT, "", "'param_dtype':'fp8'",
      "training.param_dtype: unknown word 'fp8', allowed: f32, f16, bf16" },
    { GPT, "", "'optimizer':'lion'",
      "training.optimizer: unknown word 'lion', allowed: sgd, momentum, adam, adamw" },
    { GPT, "", "'recompute':'some'",
      "training.recompute: unknown word 'some', allowed: none, selective, full, "
      "{\"layers\": N}" },
    { GPT, "", "'recompute':2", "training.recompute: a string is expected, not a number" },
    { GPT, "", "'recompute':{}", "training.recompute.layers: the key is missing" },
    { GPT, "", "'recompute':{'layers':9}",
      "training.recompute.layers: the model has fewer, 0 to 8" },
    { GPT, "", "'betas':[0.9]", "training.betas: a list of 2 numbers is expected" },
    { GPT, "", "'betas':[0.9,1]", "training.betas: 1 is out of range, 0 to below 1 allowed" },
    { GPT, "", "'lr':-1", "training.lr: -1 is out of range" },
    { GPT, "", "'global_batch':3e9", "training.global_batch: 3000000000 is out of range" },
    { GPT, "", "'seq_len':1e8", "training.seq_len: 100000000 is out of range, 1 to 67108864" },
    { GPT, "", "'attention':'ring'", "allowed: flash, math" },
    { GPT, "", "'compile':'yes'", "allowed: eager, compiled" },
    { GPT, "", "'loss':'hinge'", "allowed: cross_entropy, mse" },
    { GPT, "", "'data':'synthetc'",
      "training.data: unknown word 'synthetc', allowed: synthetic, regression20, or the path" },
};

static void words_and_ranges_are_checked(void)
{
    check_messages(bad_words, ARRAY_N(bad_words));
}

static const BadRow bad_splits[] = {
    { GPT, "'tp':16", "",
      "parallel.tp: 16 does not divide the model's heads 8, allowed: 1, 2, 4, 8" },
    { "{'kind':'transformer','layers':8,'hidden':512,'heads':8,'ffn':1002,'vocab':9}", "'tp':4",
      "", "parallel.tp: 4 does not divide the model's ffn 1002, allowed: 1, 2" },
    { "{'kind':'transformer','layers':8,'hidden':768,'heads':12,'kv_heads':4,'vocab':9}",
      "'tp':6", "",
      "parallel.tp: 6 neither divides the model's 4 kv_heads nor is a multiple of them (each "
      "then "
      "held by several ranks), allowed: 1, 2, 4, 12" },
    { MOE_OF_1002("1"), "'tp':4,'etp':4", "",
      "parallel.tp: 4 does not divide the model's experts' ffn 1002, allowed: 1, 2" },
    { MOE_OF_1002("2"), "'tp':4,'etp':1", "",
      "parallel.tp: 4 does not divide the model's ffn 1002, allowed: 1, 2" },
    { MLP, "'tp':5", "", "parallel.tp: 5 does not divide the model's inner width 64" },
    { MLP_TP, "'tp':4", "",
      "parallel.tp: 4 does not divide the model's last width 2, allowed: 1, 2" },
    { GPT, "'cp':2", "'seq_len':1002",
      "training.seq_len: 1002 is not a multiple of 2 x cp = 4 (each rank takes two chunks), "
      "nearest allowed: 1000 or 1004" },
    { GPT, "'tp':8,'sequence_parallel':true", "'seq_len':1001",
      "training.seq_len: 1001 / cp is not a multiple of tp = 8, as sequence_parallel needs; "
      "nearest allowed: 1000 or 1008" },
    { GPT, "'tp':8,'cp':2,'sequence_parallel':true", "'seq_len':1000",
      "nearest allowed: 992 or 1024" },
    { GPT, "", "'seq_len':2048",
      "training.seq_len: 2048 is longer than the model's learned positions, 1 to 1024 "
      "allowed" },
    { GPT, "'ep':2", "", "parallel.ep: the model has no experts, 1 is allowed" },
    { GPT, "'dispatcher':'nccl'", "", "parallel.dispatcher: unknown word 'nccl'" },
    { GPT, "'tp':2,'etp':2", "",
      "parallel.etp: the model has no experts to share out, 1 is allowed" },
    { MOE, "'tp':4,'sequence_parallel':true,'etp':2", "",
      "parallel.etp: 2 ranks cannot share out an expert, 1 and tp = 4 are allowed" },
    { MOE, "'dp':2,'tp':2,'sequence_parallel':true,'ep':8", "",
      "parallel.ep: 8 does not divide dp x cp x tp = 4, allowed: 1, 2, 4" },
    { MOE, "'dp':2,'tp':2,'sequence_parallel':true,'ep':4,'etp':2", "",
      "parallel.ep: 4 does not divide dp x cp = 2, allowed: 1, 2" },
    { MOE, "'dp':4,'ep':3", "",
      "parallel.ep: 3 does not divide the model's 8 experts, allowed: 1, 2, 4" },
    { MOE, "'dp':8,'ep':4,'strategy':'hsdp','shard_size':1", "",
      "parallel.ep: 4 does not divide shard_size x cp = 1, allowed: 1" },
    { MOE, "'dp':2,'ep':4", "", "parallel.ep: 4 does not divide dp x cp = 2, allowed: 1, 2" },
    { MOE, "'dp':2,'ep':2,'strategy':'dp'", "",
      "parallel.ep: 2 with strategy dp cannot be simulated, 1 is allowed; or strategy ddp, "
      "zero1, zero2, fsdp, hsdp" },
    { MOE, "'dp':8,'ep':4,'strategy':'hsdp','shard_size':2", "",
      "parallel.ep: 4 does not divide shard_size x cp = 2, allowed: 1, 2" },
    { MOE, "'dp':2,'tp':2,'sequence_parallel':false", "",
      "parallel.sequence_parallel: experts with tp = 2 need it, true is allowed" },
    { MLP, "'cp':2", "",
      "parallel.cp: an mlp is split over dp, tp and pp only, here 1 is allowed" },
    { MLP, "'ep':2", "", "parallel.ep: an mlp is split over" },
    { CONVNET, "'tp':2", "",
      "parallel.tp: a convnet is split over dp only, here 1 is allowed" },
    { CONVNET, "'pp':2", "", "parallel.pp: a convnet is split over dp only" },
    { CONVNET, "'strategy':'model_parallel'", "",
      "parallel.strategy: model_parallel splits by pp, a convnet is split over dp only" },
    { CONVNET, "'strategy':'model_parallel','pp':2", "", "parallel.pp: a convnet is split" },
    { GPT, "'sync_batchnorm':true", "",
      "parallel.sync_batchnorm: the model has no batch norms, false is allowed" },
    { MLP, "'sequence_parallel':true", "",
      "parallel.sequence_parallel: only for transformers" },
    { MLP, "", "'seq_len':2", "training.seq_len: only for transformers, 1 is allowed" },
};

static void splits_must_fit_the_model(void)
{
    check_messages(bad_splits, ARRAY_N(bad_splits));
}

static const BadRow bad_strategies[] = {
    { GPT, "'strategy':'single','dp':4,'tp':2", "",
      "parallel.strategy: single uses one GPU but dp 4 x tp 2 is given" },
    { GPT, "'strategy':'dp','dp':2,'tp':2", "",
      "parallel.strategy: dp (PyTorch's DataParallel) knows no other dimension, but the split "
      "is dp 2 x "
      "tp 2" },
    { GPT, "'strategy':'dp','dp':16", "",
      "parallel.dp: strategy dp drives its GPUs from one process, 1 to 8 (the GPUs of a "
      "node)" },
    { GPT, "'strategy':'model_parallel','pp':2,'dp':2", "",
      "parallel.strategy: model_parallel splits by pp only, but the split is dp 2 x pp 2" },
    { GPT, "'strategy':'model_parallel','pp':2,'schedule':'gpipe'", "",
      "parallel.schedule: model_parallel runs one stage after the other, naive is allowed" },
    { GPT, "'strategy':'model_parallel','pp':2", "'global_batch':8,'micro_batch':2",
      "training.micro_batch: model_parallel runs the batch in one piece, 8 (= global_batch)" },
    { GPT, "'strategy':'single','dp':2", "",
      "parallel.strategy: single uses one GPU but dp 2 is given" },
    { GPT, "'strategy':'hsdp','dp':13", "",
      "parallel.shard_size: 8 does not divide dp = 13, allowed: 1, 13" },
    { GPT, "'strategy':'hsdp','shard_size':3", "",
      "parallel.shard_size: 3 does not divide dp = 16, allowed: 1, 2, 4, 8, 16" },
};

static void the_strategy_must_fit(void)
{
    check_messages(bad_strategies, ARRAY_N(bad_strategies));
}

static const BadRow bad_sizes[] = {
    { GPT, "'dp':8,'tp':8", "",
      "parallel: uses 64 GPUs (dp 8 x tp 8) but cluster 'box' has 16; allowed: fewer "
      "degrees or \"cluster.nodes\": 8" },
    { GPT, "'dp':1048576,'tp':8,'pp':1048576,'cp':1048576", "", "but cluster 'box' has 16" },
    { GPT, "", "'precision':'fp8'",
      "training.precision: gpu 'g1' cannot do fp8, allowed: f32, f16, bf16" },
};

static void the_cluster_must_have_the_gpus(void)
{
    check_messages(bad_sizes, ARRAY_N(bad_sizes));
}

static const BadRow bad_batches[] = {
    { GPT, "'dp':4", "'micro_batch':2,'global_batch':12",
      "training.global_batch: 12 is not a multiple of dp x micro_batch = 4 x 2 = 8, nearest "
      "allowed: 8 or 16" },
    { GPT, "'dp':4", "'micro_batch':2,'global_batch':3", "nearest allowed: 8" },
    { GPT, "", "'micro_batch':1048576,'global_batch':1", "nearest allowed: 16777216" },
    { GPT, "'pp':11", "",
      "parallel.pp: pp x virtual_stages = 11 chunks but the model has 8 blocks, embedding "
      "and head, at most 10 chunks allowed" },
    { GPT, "'pp':4,'schedule':'interleaved','virtual_stages':3", "'global_batch':4",
      "parallel.virtual_stages: pp x virtual_stages = 12 chunks" },
    { "{'kind':'mlp','widths':[20,64]}", "'pp':2", "",
      "parallel.pp: pp x virtual_stages = 2 chunks but the model has 1 layer, at most 1 chunk "
      "allowed" },
    { MLP, "'pp':4", "",
      "parallel.pp: pp x virtual_stages = 4 chunks but the model has 3 layers" },
    { GPT, "'pp':2,'stage_layers':[4,3]", "",
      "parallel.stage_layers: the numbers add up to 7, 8 (the model's blocks) allowed" },
    { GPT, "'pp':2,'stage_layers':[8]", "",
      "parallel.stage_layers: a list of pp x virtual_stages = 2 numbers of blocks is "
      "expected" },
    { GPT, "'pp':2,'stage_layers':[4.5,3.5]", "",
      "parallel.stage_layers: 4.5 is not a number of blocks" },
    { GPT, "'pp':2,'stage_layers':[9,-1]", "", "-1 is not a number of blocks" },
    { GPT, "'pp':2,'stage_layers':['8',0]", "", "a list of 2 numbers is expected" },
    { GPT, "'dp':2,'virtual_stages':2", "",
      "parallel.virtual_stages: with pp 1 only 1 is allowed" },
    { GPT, "'pp':2,'strategy':'model_parallel','virtual_stages':2", "",
      "parallel.virtual_stages: schedule naive has one chunk per rank" },
    { GPT, "'dp':2,'schedule':'interleaved','virtual_stages':2", "",
      "parallel.virtual_stages: with pp 1 only 1 is allowed" },
    { GPT, "'pp':2,'schedule':'1f1b','virtual_stages':2", "",
      "parallel.virtual_stages: schedule 1f1b has one chunk per rank, 1 is allowed" },
    { GPT, "'dp':2,'pp':2,'strategy':'fsdp','schedule':'zb-1p'", "'global_batch':8",
      "parallel.schedule: zb-1p makes weight gradients late, but fsdp gives" },
    { GPT, "'pp':2,'schedule':'zbv','virtual_stages':3", "",
      "parallel.virtual_stages: schedule zbv runs down and up the stages, 2 is allowed" },
    { GPT, "'pp':2,'schedule':'dualpipe','virtual_stages':3", "",
      "parallel.virtual_stages: schedule dualpipe: 1 or 2 allowed" },
    { GPT, "'pp':2,'virtual_stages':1025", "", "1025 is out of range, 1 to 1024 allowed" },
    { GPT, "'pp':4,'schedule':'interleaved'", "'global_batch':9",
      "training.global_batch: gives 9 micro-batches, which schedule interleaved over pp = 4 "
      "cannot put in 2 groups of equally many; nearest allowed: 8 or 10" },
    { GPT, "'pp':3,'schedule':'dualpipe','virtual_stages':1", "'global_batch':6",
      "parallel.pp: 3 is odd, but schedule dualpipe pairs the stages; allowed: 2 or 4" },
    { GPT, "'pp':2,'schedule':'dualpipe','virtual_stages':1", "'global_batch':5",
      "nearest allowed: 4 or 6" },
    { GPT, "'pp':4,'schedule':'dualpipe'", "'global_batch':7",
      "training.global_batch: gives 7 micro-batches, but schedule dualpipe needs twice the "
      "pp = 4 stages; 8 and more is allowed" },
};

static void batch_and_pipeline_must_fit(void)
{
    check_messages(bad_batches, ARRAY_N(bad_batches));
}

static const BadRow bad_tasks[] = {
    { GPT, "", "'loss':'mse'", "training.loss: mse is for an mlp, cross_entropy is allowed" },
    { GPT, "", "'optimizer':'sgd','momentum':0.9",
      "training.momentum: optimizer sgd has none, 0 is allowed" },
    { GPT, "", "'data':'regression20'", "training.data: regression20 needs an mlp from 20" },
    { MLP, "", "'data':'x.txt'", "training.data: a text is read as bytes" },
    { ROPE, "", "'data':'x.txt'", "with a vocab of 256 or more" },
};

static void the_task_must_fit(void)
{
    check_messages(bad_tasks, ARRAY_N(bad_tasks));
}

static void the_outer_keys_are_checked(void)
{
    static const struct {
        const char *text, *message;
    } rows[] = {
        { "[1]", "dir/t.json: an object is expected, not a list" },
        { "{'cluster':" ONE_BOX "}", "dir/t.json: model: the key is missing" },
        { "{'model':" GPT "}", "dir/t.json: cluster: the key is missing" },
        { "{'model':" GPT ",'cluster':" ONE_BOX ",'modle':1}",
          "dir/t.json: modle: unknown key, did you mean 'model'? allowed: name, model, "
          "cluster, training, parallel, "
          "software, measured, source, notes, quality, group" },
        { "{'model':" GPT ",'cluster':" ONE_BOX ",'training':[]}",
          "dir/t.json: training: an object is expected, not a list" },
        { "{'model':" GPT ",'cluster':" ONE_BOX ",'measured':{}}",
          "dir/t.json: measured: a list of at most 1000 objects is expected" },
        { "{'model':" GPT ",'cluster':" ONE_BOX ",'measured':[{'metric':'speed','value':1}]}",
          "dir/t.json: measured[0].metric: unknown word 'speed', allowed: step_time_s" },
        { "{'model':" GPT ",'cluster':" ONE_BOX ",'measured':[{'metric':'mfu'}]}",
          "dir/t.json: measured[0].value: the key is missing" },
        { "{'model':" GPT ",'cluster':" ONE_BOX ",'measured':[{'metric':'mfu','value':true}]}",
          "dir/t.json: measured[0].value: a number is expected, not true or false" },
        { "{'model':" GPT ",'cluster':" ONE_BOX ",'measured':[7]}",
          "dir/t.json: measured[0]: an object is expected, not a number" },
        { "{'model':7,'cluster':" ONE_BOX "}", "dir/t.json: model: " },
        { "{'model':" GPT ",'cluster':7}", "dir/t.json: cluster: " },
        { "{'model':'no such model','cluster':" ONE_BOX "}", "no such model" },
        { "{'model':" GPT ",'cluster':'no such cluster'}", "no such cluster" },
    };
    for (size_t i = 0; i < ARRAY_N(rows); i++) {
        Scenario s;
        Err err = { 0 };
        CHECK(!read_text(&s, rows[i].text, NULL, 0, &err));
        CHECK_ERR_TEXT(&err, rows[i].message);
    }
}

/* ---- --set ---- */

static bool read_set(Scenario *s, const char *key, const char *value, Err *err)
{
    Setting set = { key, value };
    return read_text(s,
                     "{'model':" GPT ",'cluster':" TWO_BOXES ",'measured':[{'metric':'mfu',"
                     "'value':1}]}",
                     &set, 1, err);
}

static void settings_reach_every_kind_of_key(void)
{
    static const struct {
        const char *key, *value;
    } rows[] = {
        { "name", "other" },
        { "training.lr", "0.5" },
        { "training.betas", "[0.5,0.5]" },
        { "training.recompute", "{\"layers\":4}" },
        { "parallel.strategy", "fsdp" },
        { "parallel.overlap.dp", "false" },
        { "parallel.overlap", "true" },
        { "parallel.bucket_bytes", "1MiB" },
        { "model.layers", "2" },
        { "cluster.nodes", "3" },
        { "cluster.gpu.memory_GB", "40" },
        { "measured[0].value", "2" },
        { "cluster.intra_node.GBps", "600" },
        { "model", "{\"kind\":\"mlp\",\"widths\":[3,4]}" },
    };
    for (size_t i = 0; i < ARRAY_N(rows); i++) {
        Scenario s;
        Err err = { 0 };
        if (!CHECK(read_set(&s, rows[i].key, rows[i].value, &err))) {
            fprintf(stderr, "    %s: %s\n", rows[i].key, err.text);
            continue;
        }
        CHECK(i != 0 || strcmp(s.name, "other") == 0);
        CHECK(i != 5 || (s.parallel.overlap_set[DIM_DP] && !s.parallel.overlap[DIM_DP]));
        CHECK(i != 8 || s.model.u.transformer.layers == 2);
        CHECK(i != 9 || (s.machine.gpus_n == 24 && s.parallel.dp == 24));
        CHECK(i != 10 || s.machine.types[0].gpu->memory_bytes == 40000000000);
        CHECK(i != 11 || s.measured[0].value == 2);
        CHECK(i != 13 || s.model.kind == MODEL_MLP);
        scenario_free(&s);
    }
}

static void settings_that_lead_nowhere_are_refused(void)
{
    static const struct {
        const char *key, *value, *message;
    } rows[] = {
        { "training.lrr", "1",
          "dir/t.json: --set training.lrr: unknown key, did you mean 'lr'? allowed: " },
        { "modle.layers", "1",
          "dir/t.json: --set modle: unknown key, did you mean 'model'? allowed: " },
        { "model.layers", "0", "dir/t.json: --set model.layers: 0 is out of range" },
        { "training..lr", "1", "--set 'training..lr': a key is KEY.KEY or KEY[NUMBER].KEY" },
        { "measured[1].value", "1",
          "--set 'measured[1].value': there is no such list element" },
        { "measured[0]", "1", "--set measured[0]: an object is expected, not a number" },
        { "name.x", "1", "name: a string is expected" },
        { "training.lr.x.y", "1", "--set training.lr: a number is expected, not an object" },
        { "parallel.dp", "x", "parallel.dp: a number is expected, not a string" },
        { "", "1", "--set '': a key is" },
    };
    for (size_t i = 0; i < ARRAY_N(rows); i++) {
        Scenario s;
        Err err = { 0 };
        if (CHECK(!read_set(&s, rows[i].key, rows[i].value, &err)))
            CHECK_ERR_TEXT(&err, rows[i].message);
        else
            scenario_free(&s);
    }
}

/* plan and run set keys of their own. */
static void a_file_that_is_no_object_is_to_blame_and_not_the_setting(void)
{
    Scenario s;
    Err err = { 0 };
    const Setting dp = { "parallel.dp", "1" };
    CHECK(!read_text(&s, "[1]", &dp, 1, &err));
    CHECK_STR("dir/t.json: an object is expected, not a list", err.text);
}

/* A string cluster or GPU becomes the base of what is set below it. */
static void settings_reach_into_named_things(void)
{
    Scenario s;
    Err err = { 0 };
    Setting set[] = { { "cluster.nodes", "3" }, { "cluster.gpu.memory_GB", "40" } };
    if (!CHECK(read_text(&s, "{'model':" GPT ",'cluster':'dgx-a100'}", set, 2, &err))) {
        fprintf(stderr, "    %s\n", err.text);
        return;
    }
    CHECK_U64(24, s.machine.gpus_n);
    CHECK_U64(40000000000, s.machine.types[0].gpu->memory_bytes);
    CHECK(s.machine.types[0].gpu->peak_flops_per_ns[DTYPE_BF16] > 1e5);
    scenario_free(&s);
    const char *text =
        "{'model':" GPT ",'cluster':{'nodes':1,'gpus_per_node':8,'gpu':'h100-80gb',"
        "'intra_node':{'kind':'nvswitch','GBps':300}}}";
    if (!CHECK(read_text(&s, text, &set[1], 1, &err)))
        return;
    CHECK_U64(40000000000, s.machine.types[0].gpu->memory_bytes);
    CHECK(s.machine.types[0].gpu->peak_flops_per_ns[DTYPE_FP8] > 1e5);
    scenario_free(&s);
}

/* A model that is named, in lockstep's words whatever the file's, becomes a copy that differs. */
static void settings_reach_into_named_models(void)
{
    static const struct {
        const char *model, *key, *value;
        uint64_t params; /* 0: not read */
        const char *message;
    } rows[] = {
        /* A GPT-2 block of width 768: 12 * 768^2 weights and 13 * 768 biases and gains. */
        { "gpt2", "model.layers", "11", 124439808 - (12 * 768 * 768 + 13 * 768), NULL },
        { "gpt2", "model.n_layer", "11", 124439808 - (12 * 768 * 768 + 13 * 768), NULL },
        { "llama3-8b", "model.vocab", "128255", 8030261248 - 2 * 4096, NULL },
        { "llama3-8b", "model.tied_embeddings", "true", 8030261248 - 128256UL * 4096, NULL },
        { "toy-mlp", "model.widths[0]", "1025", 8393728 + 4096, NULL },
        { "gpt2", "model.layers", "0", 0,
          "t.json: --set model.layers: 0 is out of range, 1 to" },
        { "gpt2", "model.layres", "1", 0,
          "t.json: --set model.layres: the key changes nothing "
          "here, did you mean 'layers'? allowed: " },
        { "gpt3-175b", "model.layres", "1", 0,
          "t.json: --set model.layres: unknown key, did you mean 'layers'? allowed: kind" },
        { "llama3-8b", "model.heads", "7", 0,
          "t.json: --set model.heads: num_key_value_heads 8 does not divide 7" },
        { "gpt2", "model.kind", "mlp", 0, "t.json: --set model.kind: a model says either" },
        { "toy-mlp", "model.model_type", "opt", 0, "t.json: --set model.model_type: a model" },
        { "toy-mlp", "model.widths[3]", "1", 0, "'model.widths[3]': there is no such list" },
        { "gpt4", "model.layers", "1", 0, "t.json: model: no built-in model 'gpt4'" },
    };
    for (size_t i = 0; i < ARRAY_N(rows); i++) {
        char text[200];
        Scenario s;
        Err err = { 0 };
        Setting set = { rows[i].key, rows[i].value };
        snprintf(text, sizeof text, "{'model':'%s','cluster':'ideal'}", rows[i].model);
        bool ok = read_text(&s, text, &set, 1, &err);
        if (!CHECK_INT(rows[i].params > 0, ok))
            fprintf(stderr, "    %s: %s\n", rows[i].key, err.text);
        if (!ok) {
            CHECK_ERR_TEXT(&err, rows[i].message);
            continue;
        }
        CHECK_U64(rows[i].params, model_params(&s.model));
        CHECK_STR(rows[i].model, s.model.name);
        scenario_free(&s);
    }
}

/* Keys that have a short form are spelt out when a part of them is set. */
/* A table of positions goes with the sequence, unless somebody has said how long it is. */
static void learned_positions_reach_to_the_sequence(void)
{
#define SHORT "{'kind':'transformer','layers':2,'hidden':64,'heads':4,'vocab':9"
    static const struct {
        const char *model, *seq_len;
        Setting set;
        uint32_t rows; /* 0: refused */
    } rows[] = {
        { SHORT "}", "2048", { 0 }, 2048 },
        { SHORT "}", "1024", { 0 }, 2048 },
        { SHORT "}", "8192", { 0 }, 8192 },
        { SHORT ",'max_seq':8192}", "8192", { 0 }, 8192 },
        { SHORT ",'max_seq':2048}", "8192", { 0 }, 0 },
        { SHORT ",'max_seq':null}", "8192", { 0 }, 8192 },
        { SHORT ",'positions':'rope'}", "8192", { 0 }, 1 },
        { "{'model_type':'gpt2'}", "2048", { 0 }, 2048 },
        { "{'model_type':'gpt2','n_positions':1024}", "2048", { 0 }, 0 },
        { "'gpt2'", "1024", { 0 }, 1024 },
        { "'gpt2'", "4096", { 0 }, 4096 },
        { "'gpt2'", "4096", { "model.layers", "4" }, 4096 },
        { "'gpt2'", "4096", { "model.max_seq", "2048" }, 0 },
        { "'gpt2'", "4096", { "model.n_positions", "2048" }, 0 },
        { "'gpt2'", "4096", { "model.max_seq", "4096" }, 4096 },
        { "'gpt3-175b'", "4096", { 0 }, 4096 },
        { "'bert-base'", "1024", { 0 }, 1024 },
        { "'opt-350m'", "4096", { 0 }, 4096 + 2 },
        { "'scenarios/models/gpt2.json'", "4096", { 0 }, 4096 },
    };
    for (size_t i = 0; i < ARRAY_N(rows); i++) {
        char text[300];
        Scenario s;
        Err err = { 0 };
        snprintf(text, sizeof text,
                 "{'model':%s,'cluster':'ideal','training':{'seq_len':%s,'micro_batch':1}}",
                 rows[i].model, rows[i].seq_len);
        JsonDoc *doc = doc_of(text, "t.json", &err);
        bool ok = doc && scenario_from(&s, doc, &rows[i].set, rows[i].set.key ? 1 : 0, &err);
        if (!CHECK_INT(rows[i].rows > 0, ok))
            fprintf(stderr, "    %s: %s\n", rows[i].model, err.text);
        if (!ok) {
            CHECK_ERR_TEXT(&err, "is longer than the model's learned positions, 1 to ");
            continue;
        }
        const Transformer *t = &s.model.u.transformer;
        CHECK_U64(rows[i].rows, t->positions == POS_LEARNED ? t->position_rows : 1);
        scenario_free(&s);
    }
#undef SHORT
}

/* The number in a file of one's own is meant. */
static void a_models_own_file_says_how_long_it_is(void)
{
    char dir[] = P_tmpdir "/lockstep-positions-XXXXXX", path[64], text[200];
    if (!CHECK(mkdtemp(dir) != NULL))
        return;
    snprintf(path, sizeof path, "%s/config.json", dir);
    FILE *f = fopen(path, "w");
    if (CHECK(f != NULL)) {
        fputs("{\"model_type\": \"gpt2\", \"n_positions\": 1024}\n", f);
        fclose(f);
    }
    Scenario s;
    Err err = { 0 };
    snprintf(text, sizeof text, "{'model':'%s','cluster':'ideal','training':{'seq_len':2048}}",
             path);
    CHECK(!read_text(&s, text, NULL, 0, &err));
    CHECK_ERR_TEXT(&err, "2048 is longer than the model's learned positions, 1 to 1024");
    unlink(path);
    rmdir(dir);
}

static void settings_reach_into_short_forms(void)
{
    Scenario s;
    Err err = { 0 };
    const Setting set[] = { { "parallel.overlap.dp", "true" },
                            { "training.recompute.layers", "3" } };
    const char *text = "{'model':" GPT ",'cluster':" ONE_BOX ",'parallel':{'overlap':false},"
                       "'training':{'recompute':'full'}}";
    if (!CHECK(read_text(&s, text, set, ARRAY_N(set), &err)))
        return;
    for (int d = 0; d < DIM_N; d++)
        CHECK(s.parallel.overlap_set[d] && s.parallel.overlap[d] == (d == DIM_DP));
    CHECK_INT(RECOMPUTE_LAYERS, s.training.recompute);
    CHECK_U64(3, s.training.recompute_layers);
    scenario_free(&s);
}

static void a_scenario_knows_the_files_it_is_made_of(void)
{
    Scenario s;
    Err err = { 0 };
    const char *text = "{'model':'gpt2','cluster':'dgx-a100','software':'pytorch-ddp'}";
    const Setting set[] = { { "model.layers", "2" }, { "cluster.gpu.memory_GB", "40" } };
    for (uint32_t with = 0; with < 2; with++) {
        if (!CHECK(read_text(&s, text, set, with ? ARRAY_N(set) : 0, &err)))
            continue;
        static const char *const files[] = { "models/gpt2", "clusters/dgx-a100",
                                             "gpus/a100-80gb", "software/pytorch-ddp" };
        char path[100];
        for (size_t i = 0; i < ARRAY_N(files); i++) {
            snprintf(path, sizeof path, "scenarios/%s.json", files[i]);
            CHECK(scenario_is_made_of(&s, path));
        }
        CHECK(!scenario_is_made_of(&s, "scenarios/models/gpt2-xl.json"));
        CHECK(!scenario_is_made_of(&s, "no/such/file.json"));
        scenario_free(&s);
    }
}

static void an_unknown_software_is_answered_with_what_there_is(void)
{
    Scenario s;
    Software sw;
    Arena arena = { 0 };
    Err err = { 0 };
    if (CHECK(read_set(&s, "software", "lockstpe", &err))) {
        CHECK(!software_is_known(&s));
        CHECK(!software_of(&sw, &arena, &s, &err));
        CHECK_ERR_TEXT(&err, "dir/t.json: --set software: unknown software 'lockstpe', "
                             "did you mean 'lockstep'? allowed: fms-fsdp-2024, generic, ");
        scenario_free(&s);
    }
    err_clear(&err);
    if (CHECK(read_set(&s, "software", "lockstep", &err))) {
        CHECK(software_is_known(&s) && software_of(&sw, &arena, &s, &err));
        scenario_free(&s);
    }
    arena_free(&arena);
}

/* A key below a stack changes a copy of it, of "generic" where none is named. */
static void settings_change_a_stack(void)
{
    static const char *const bases[] = { NULL, "megatron-core-2025",
                                         "{\"base\":\"lockstep\"}" };
    static const char *const names[] = { "generic (changed)", "megatron-core-2025 (changed)",
                                         "lockstep (changed)" };
    for (size_t i = 0; i < ARRAY_N(bases); i++) {
        const Setting set[] = { { "software", bases[i] },
                                { "software.fitted.host_scale", "3" } };
        Scenario s;
        Software sw;
        Arena arena = { 0 };
        Err err = { 0 };
        bool named = bases[i] != NULL;
        if (CHECK(read_text(&s, "{'model':" GPT ",'cluster':" TWO_BOXES "}", set + !named,
                            1 + named, &err))) {
            CHECK(software_of(&sw, &arena, &s, &err));
            CHECK_STR(names[i], sw.name);
            CHECK_STR(names[i], s.software);
            CHECK_NEAR(3, sw.host_scale, 0);
            scenario_free(&s);
        }
        arena_free(&arena);
    }
}

/* Files that --set names lie in the working directory, whatever the scenario's folder. */
static void settings_name_files_from_here(void)
{
    Scenario s;
    Err err = { 0 };
    if (!CHECK(read_set(&s, "training.data", "corpus.txt", &err)))
        return;
    char cwd[4096], path[5000];
    snprintf(path, sizeof path, "%s/corpus.txt", getcwd(cwd, sizeof cwd) ? cwd : "");
    CHECK_STR(path, s.training.data);
    scenario_free(&s);
    static const char *const cases[][2] = {
        { "model", "nowhere/m.json" },       { "model", "\"nowhere/m.json\"" },
        { "cluster", "nowhere/m.json" },     { "cluster.base", "nowhere/m.json" },
        { "cluster.gpu", "nowhere/m.json" }, { "cluster.gpu.base", "\"nowhere/m.json\"" },
    };
    snprintf(path, sizeof path, "'%s/nowhere/m.json'", cwd);
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        err = (Err){ 0 };
        CHECK(!read_set(&s, cases[i][0], cases[i][1], &err));
        CHECK_ERR_TEXT(&err, path);
    }
}

/* ---- --explain ---- */

static void explain_says_where_values_come_from(void)
{
    Scenario s;
    Err err = { 0 };
    if (!CHECK(read_set(&s, "training.lr", "0.5", &err)))
        return;
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    scenario_explain(&s, &(Software){ 0 }, f);
    fclose(f);
    CHECK(strstr(text, "key"));
    static const char *const rows[][3] = {
        { "training.lr", "0.5", "--set" },
        { "training.eps", "1e-08", "default" },
        { "model.layers", "8", "dir/t.json" },
        { "cluster.nodes", "2", "dir/t.json" },
        { "parallel.order", "tp,cp,ep,dp,pp", "default" },
        { "training.betas", "[0.9, 0.999]", "default" },
        { "parallel gpus", "16", "derived" },
        { "training micro_batches", "1", "derived" },
    };
    for (size_t i = 0; i < ARRAY_N(rows); i++) {
        char start[64];
        snprintf(start, sizeof start, "\n%s ", rows[i][0]);
        const char *row = strstr(text, start);
        if (!CHECK(row != NULL))
            continue;
        row += strlen(start);
        row += strspn(row, " ");
        CHECK(strncmp(row, rows[i][1], strlen(rows[i][1])) == 0);
        row += strlen(rows[i][1]);
        row += strspn(row, " ");
        CHECK(strncmp(row, rows[i][2], strlen(rows[i][2])) == 0);
    }
    free(text);
    scenario_free(&s);
}

/* ---- files ---- */

typedef struct Seen {
    uint32_t n;
    char names[4][64];
    uint32_t fail_at;
} Seen;

static bool see(void *user, JsonDoc *doc, Err *err)
{
    Seen *seen = user;
    snprintf(seen->names[seen->n % 4], 64, "%s", json_name(doc));
    seen->n++;
    json_close(doc);
    return seen->n != seen->fail_at || err_set(err, "enough");
}

static const char *write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    CHECK(f && fputs(text, f) >= 0);
    if (f)
        fclose(f);
    return path;
}

typedef struct SeenOrSkipped {
    Seen seen;
    uint32_t skipped_n;
    char place[100], why[sizeof((Err *)0)->text]; /* of the last that was skipped */
} SeenOrSkipped;

static bool see_or_skip(void *user, JsonDoc *doc, Err *err)
{
    return see(&((SeenOrSkipped *)user)->seen, doc, err);
}

static void skip(void *user, const char *place, const Err *why)
{
    SeenOrSkipped *s = user;
    s->skipped_n++;
    snprintf(s->place, sizeof s->place, "%s", place);
    snprintf(s->why, sizeof s->why, "%s", why->text);
}

static void lines_that_are_no_json_can_be_skipped(void)
{
    char path[] = P_tmpdir "/lockstep-lines-XXXXXX.jsonl", part[120];
    int fd = mkstemps(path, 6);
    if (!CHECK(fd >= 0))
        return;
    close(fd);
    char *names[] = { path };
    Err err = { 0 };
    SeenOrSkipped s = { 0 };
    write_file(path, "{\"a\":1}\n{\"a\":NaN}\n\n{\"b\":2}\n{\"c\":1,\"c\":2}\n");
    CHECK(scenario_each_that_reads(names, 1, see_or_skip, skip, &s, &err));
    CHECK_U64(2, s.seen.n);
    CHECK_U64(2, s.skipped_n);
    snprintf(part, sizeof part, "%s:5", path);
    CHECK_STR(part, s.place);
    CHECK(strstr(s.why, ":5: c: the key stands here twice") != NULL);

    write_file(path, "{\"a\":NaN}\n{\"a\":}\n");
    s = (SeenOrSkipped){ 0 };
    CHECK(!scenario_each_that_reads(names, 1, see_or_skip, skip, &s, &err));
    CHECK_ERR_TEXT(&err, ".jsonl:1:6: not JSON from here on: numbers are finite");
    unlink(path);
}

static void lines_are_scenarios(void)
{
    char dir[] = P_tmpdir "/lockstep-scenario-XXXXXX";
    if (!CHECK(mkdtemp(dir) != NULL))
        return;
    char path[64], second[80];
    snprintf(path, sizeof path, "%s/s.jsonl", dir);
    char *names[] = { path };
    Err err = { 0 };

    Seen seen = { 0 };
    write_file(path, "{\"a\":1}\n\n  \t\n{\"b\":2}");
    CHECK(scenario_each(names, 1, see, &seen, &err));
    CHECK_U64(2, seen.n);
    snprintf(second, sizeof second, "%s:4", path);
    CHECK_STR(second, seen.names[1]);

    seen = (Seen){ .fail_at = 1 };
    CHECK(!scenario_each(names, 1, see, &seen, &err));
    CHECK_U64(1, seen.n);
    CHECK_ERR_TEXT(&err, "enough");

    err_clear(&err);
    write_file(path, "{\"a\":1}\n{\"b\" 2}\n");
    CHECK(!scenario_each(names, 1, see, &(Seen){ 0 }, &err));
    CHECK_ERR_TEXT(&err, "s.jsonl:2:6: not JSON from here on");

    err_clear(&err);
    write_file(path, "\n\n");
    CHECK(!scenario_each(names, 1, see, &(Seen){ 0 }, &err));
    CHECK_ERR_TEXT(&err, "s.jsonl' holds no scenario");

    err_clear(&err);
    Scenario s;
    CHECK(!scenario_read(&s, path, NULL, 0, &err));
    CHECK_ERR_TEXT(&err, "s.jsonl' holds no scenario");

    err_clear(&err);
    write_file(path, "\n{\"model\":\"toy-mlp\",\"cluster\":\"ideal\"}\n\n");
    CHECK(scenario_read(&s, path, NULL, 0, &err));
    scenario_free(&s);

    write_file(path, "{\"a\":1}\n{\"b\":2}\n");
    CHECK(!scenario_read(&s, path, NULL, 0, &err));
    CHECK_ERR_TEXT(&err, "s.jsonl' holds several scenarios, one a line; here one is expected");
    unlink(path);

    err_clear(&err);
    CHECK(!scenario_each(names, 1, see, &(Seen){ 0 }, &err));
    CHECK_ERR_TEXT(&err, "cannot open '");
    rmdir(dir);
}

static void names_are_built_in_or_files(void)
{
    Scenario s;
    Err err = { 0 };
    CHECK(!scenario_read(&s, "llama9-ddp", NULL, 0, &err));
    CHECK_ERR_TEXT(&err, "no scenario 'llama9-ddp': a .json or .jsonl file is expected, or a "
                         "built-in name: deepseek-v3-ep, gpt2-ddp, ");
    err_clear(&err);
    CHECK(!scenario_read(&s, "", NULL, 0, &err));
    CHECK_ERR_TEXT(&err, "no scenario ''");
    err_clear(&err);
    CHECK(!scenario_read(&s, "nowhere/x.json", NULL, 0, &err));
    CHECK_ERR_TEXT(&err, "cannot open 'nowhere/x.json': No such file or directory");
    err_clear(&err);
    Seen seen = { 0 };
    char *names[] = { "gpt2-ddp", "toy-mlp-ddp" };
    CHECK(scenario_each(names, 2, see, &seen, &err));
    CHECK_U64(2, seen.n);
    CHECK(strstr(seen.names[0], "examples/gpt2-ddp.json") != NULL);
}

static void every_example_reads(void)
{
    Arena arena = { 0 };
    const char *const *names;
    uint32_t n = share_names(&names, &arena, "examples");
    CHECK(n >= 8);
    for (uint32_t i = 0; i < n; i++) {
        Scenario s;
        Err err = { 0 };
        if (CHECK(scenario_read(&s, names[i], NULL, 0, &err)))
            scenario_free(&s);
        else
            fprintf(stderr, "    %s\n", err.text);
    }
    arena_free(&arena);
}

static bool read_one(void *user, JsonDoc *doc, Err *err)
{
    Scenario s;
    if (!scenario_from(&s, doc, NULL, 0, err))
        return false;
    CHECK(s.measured_n > 0);
    ++*(uint32_t *)user;
    scenario_free(&s);
    return true;
}

/* They lie outside of the project (shared/data), so they may be absent. */
static void published_rows_read_without_an_error(void)
{
    static const struct {
        char path[64];
        uint32_t rows;
    } files[] = { { "../shared/data/validation/published.jsonl", 250 },
                  { "../shared/data/validation/vtrain-single-node.jsonl", 481 } };
    for (size_t i = 0; i < ARRAY_N(files); i++) {
        char path[64];
        memcpy(path, files[i].path, sizeof path);
        if (access(path, R_OK) != 0) {
            fprintf(stderr, "test_scenario: skipped %s: not here\n", path);
            continue;
        }
        uint32_t rows = 0;
        Err err = { 0 };
        char *names[] = { path };
        if (!CHECK(scenario_each(names, 1, read_one, &rows, &err)))
            fprintf(stderr, "    %s\n", err.text);
        CHECK_U64(files[i].rows, rows);
    }
}

int main(void)
{
    setenv("LOCKSTEP_SHARE", "scenarios", 0);
    RUN(a_transformer_has_its_defaults);
    RUN(parallel_has_its_defaults);
    RUN(other_models_have_other_defaults);
    RUN(number_formats_follow_the_precision);
    RUN(optimizers_have_pytorchs_defaults);
    RUN(the_strategy_follows_the_degrees);
    RUN(model_parallel_takes_the_batch_in_one_piece);
    RUN(virtual_stages_follow_the_schedule);
    RUN(the_schedule_follows_the_stages);
    RUN(sequence_parallel_follows_the_experts);
    RUN(shards_lie_within_nodes);
    RUN(shards_leave_room_for_a_replicas_own_gpus);
    RUN(whole_experts_are_of_any_width);
    RUN(a_stack_may_keep_experts_whole);
    RUN(neutral_words_of_experts_are_for_every_model);
    RUN(lists_and_objects_are_read);
    RUN(measured_rows_are_read);
    RUN(data_is_found_beside_the_scenario);
    RUN(generous_where_nothing_is_lost);
    RUN(words_and_ranges_are_checked);
    RUN(splits_must_fit_the_model);
    RUN(the_strategy_must_fit);
    RUN(the_cluster_must_have_the_gpus);
    RUN(batch_and_pipeline_must_fit);
    RUN(the_task_must_fit);
    RUN(the_outer_keys_are_checked);
    RUN(settings_reach_every_kind_of_key);
    RUN(settings_that_lead_nowhere_are_refused);
    RUN(a_file_that_is_no_object_is_to_blame_and_not_the_setting);
    RUN(settings_reach_into_named_things);
    RUN(settings_reach_into_named_models);
    RUN(learned_positions_reach_to_the_sequence);
    RUN(a_models_own_file_says_how_long_it_is);
    RUN(settings_reach_into_short_forms);
    RUN(a_scenario_knows_the_files_it_is_made_of);
    RUN(an_unknown_software_is_answered_with_what_there_is);
    RUN(settings_change_a_stack);
    RUN(settings_name_files_from_here);
    RUN(explain_says_where_values_come_from);
    RUN(lines_are_scenarios);
    RUN(lines_that_are_no_json_can_be_skipped);
    RUN(names_are_built_in_or_files);
    RUN(every_example_reads);
    RUN(published_rows_read_without_an_error);
    return check_report();
}

/*
 * test_report.c - the report's arithmetic on hand-made results, and its keys.
 *
 * Four ranks in two classes, a step of 10 us:
 *
 *     class             ranks   compute  exposed  overlapped  bubble  idle   stage
 *     0 "stage 0"         1      8000      1000      3000       600    400     0
 *     1 "stage 1"         3      4000      5000      1000         0   1000     1
 */
#include "core/json.h"
#include "sim/report.h"
#include "sim/texts.h"
#include "tests/check.h"

enum { STEP_NS = 10000, GPUS = 4, PEAK_FLOPS_PER_NS = 1000 };

typedef struct Case {
    Scenario s;
    Graph g;
    SimResult result;
    RoleMemory memory[2];
    RankStat stats[2];
    NodeType type;
    Gpu gpu;
} Case;

static void add_role(Graph *g, const char *name, uint32_t stage, uint32_t layers)
{
    uint32_t role = graph_role(g, name, stage);
    uint32_t s = graph_segment(g, SEGMENT_FORWARD, name);
    uint32_t layout = graph_layout(g);
    graph_tensor(g, (Tensor){ .name = intern(&g->names, "weight"),
                              .class_ = TENSOR_PARAM,
                              .bytes = 1000 * (stage + 1) });
    role_frame(&g->roles[role], (Frame){ layout, 0, true });
    const Op ops[] = {
        { .kind = OP_MATMUL, .phase = PHASE_FORWARD, .flops = 80, .model_flops = 80 },
        { .kind = OP_ATTENTION, .phase = PHASE_FORWARD, .flops = 10, .model_flops = 20 },
        { .kind = OP_ATTENTION, .phase = PHASE_RECOMPUTE, .flops = 20, .model_flops = 40 },
    };
    for (size_t i = 0; i < ARRAY_N(ops); i++)
        graph_op(g, ops[i]);
    for (uint32_t i = 0; i < layers; i++)
        role_instance(&g->roles[role], s, 0, i, 0);
}

static void add_graph(Graph *g)
{
    *g = (Graph){
        .world_n = GPUS, .role_stride = 1, .role_extent = GPUS, .samples = 8, .tokens = 8 * 32
    };
    g->host_group = NONE_U32;
    g->role_of = mem_zero(GPUS, sizeof *g->role_of);
    for (uint32_t i = 1; i < GPUS; i++)
        g->role_of[i] = 1;
    graph_group(g, "dp", &(GroupDim){ 1, GPUS, 1, GPUS }, 1);
    graph_group(g, "pp", &(GroupDim){ 1, GPUS, 1, GPUS }, 1);
    add_role(g, "stage 0", 0, 3);
    add_role(g, "stage 1", 1, 1);
    graph_seal(g);
}

static void add_machine(Case *c)
{
    c->gpu = (Gpu){ .name = "toy-gpu", .memory_bytes = 1999 };
    for (int t = 0; t < DTYPE_N; t++)
        c->gpu.peak_flops_per_ns[t] = PEAK_FLOPS_PER_NS;
    c->type = (NodeType){ .count = 1, .gpus_n = GPUS, .gpu = &c->gpu };
    c->s.machine = (Machine){ .name = "toy-cluster",
                              .nodes_n = 1,
                              .gpus_n = GPUS,
                              .types_n = 1,
                              .types = &c->type,
                              .ideal_collectives = true,
                              .price_usd_per_gpu_hour = 9 };
}

static void add_result(Case *c)
{
    c->stats[0] = (RankStat){ .rank = 0,
                              .ranks_n = 1,
                              .role = 0,
                              .stage = 0,
                              .end_ns = 9400,
                              .compute_ns = 8000,
                              .comm_ns = 4000,
                              .overlapped_ns = 3000,
                              .exposed_ns = 1000,
                              .bubble_ns = 600,
                              .idle_ns = 400,
                              .model_flops = 3 * 100,
                              .hardware_flops = 3 * 140,
                              .flops_bound_ns = 4000,
                              .memory_bound_ns = 2000,
                              .link_bound_ns = 100,
                              .launch_bound_ns = 50 };
    c->stats[1] = (RankStat){ .rank = 1,
                              .ranks_n = 3,
                              .role = 1,
                              .stage = 1,
                              .end_ns = STEP_NS,
                              .compute_ns = 4000,
                              .comm_ns = 6000,
                              .overlapped_ns = 1000,
                              .exposed_ns = 5000,
                              .idle_ns = 1000,
                              .model_flops = 100,
                              .hardware_flops = 140,
                              .flops_bound_ns = 1000,
                              .memory_bound_ns = 5000,
                              .link_bound_ns = 200,
                              .launch_bound_ns = 70 };
    c->stats[1].collectives_n = 2;
    c->stats[1].collectives[0] = (CollectiveStat){ .kind = OP_SEND,
                                                   .group = 1,
                                                   .group_size = 4,
                                                   .count = 3,
                                                   .bytes = 300,
                                                   .time_ns = 900,
                                                   .transfer_ns = 600,
                                                   .exposed_ns = 700,
                                                   .wire_bytes = 300,
                                                   .protocol = PROTOCOL_SIMPLE };
    c->stats[1].collectives[1] = (CollectiveStat){ .kind = OP_ALL_REDUCE,
                                                   .group = 0,
                                                   .group_size = 4,
                                                   .count = 2,
                                                   .bytes = 4000,
                                                   .time_ns = 5500,
                                                   .transfer_ns = 3000,
                                                   .exposed_ns = 4300,
                                                   .wire_bytes = 6000,
                                                   .algorithm = ALGORITHM_TREE,
                                                   .protocol = PROTOCOL_LL };
    c->result = (SimResult){
        .step_ns = STEP_NS,
        .ranks_n = 2,
        .ranks = c->stats,
        .path = { .compute_ns = 4000, .comm_ns = 3000, .bubble_ns = 2000, .launch_ns = 1000 },
        .events = 77,
        .ops = 99
    };
}

static void case_open(Case *c, ModelKind kind)
{
    *c = (Case){ 0 };
    add_graph(&c->g);
    add_machine(c);
    add_result(c);
    c->s.name = "a toy";
    c->s.software = "generic";
    c->s.model.name = "toy";
    c->s.model.kind = kind;
    c->s.model.u.mlp = (Mlp){ .widths_n = 2, .widths = { 1, 1 } };
    if (kind == MODEL_TRANSFORMER)
        c->s.model.u.transformer = (Transformer){ .layers = 1,
                                                  .hidden = 4,
                                                  .heads = 1,
                                                  .kv_heads = 1,
                                                  .head_dim = 4,
                                                  .ffn = 4,
                                                  .vocab = 8 };
    c->s.training = (Training){ .precision = DTYPE_BF16, .global_batch = 8, .seq_len = 32 };
    c->s.parallel = (Parallel){
        .strategy = STRATEGY_DDP, .dp = 1, .tp = 1, .pp = 4, .cp = 1, .ep = 1, .gpus = GPUS
    };
    for (uint32_t i = 0; i < 2; i++)
        c->memory[i] = memory_of_role(&c->g, &c->g.roles[i], NULL);
}

static void case_close(Case *c, Report *r)
{
    report_free(r);
    graph_free(&c->g);
}

static Report report_of(Case *c)
{
    Report r;
    report_fill(&r, &c->s, &c->g, &c->result, c->memory, 0.25);
    return r;
}

/* ---- arithmetic ---- */

static void headline_times_are_means_over_all_ranks(void)
{
    Case c;
    case_open(&c, MODEL_TRANSFORMER);
    Report r = report_of(&c);
    CHECK_NEAR(1e-5, r.step_time_s, 1e-12);
    CHECK_NEAR((8000 + 3 * 4000) / 4 * 1e-9, r.times.compute_s, 1e-12);
    CHECK_NEAR((4000 + 3 * 6000) / 4 * 1e-9, r.times.comm_s, 1e-12);
    CHECK_NEAR((3000 + 3 * 1000) / 4 * 1e-9, r.times.overlapped_s, 1e-12);
    CHECK_NEAR((1000 + 3 * 5000) / 4 * 1e-9, r.times.exposed_comm_s, 1e-12);
    CHECK_NEAR(600 / 4 * 1e-9, r.times.bubble_s, 1e-12);
    CHECK_NEAR((400 + 3 * 1000) / 4 * 1e-9, r.times.idle_s, 1e-12);
    CHECK_NEAR(r.step_time_s,
               r.times.compute_s + r.times.exposed_comm_s + r.times.bubble_s + r.times.idle_s,
               1e-12);
    CHECK_NEAR(100.0 * 6000 / 22000, r.times.overlap_pct, 1e-12);
    CHECK_NEAR(75, r.ranks[0].times.overlap_pct, 1e-12);
    case_close(&c, &r);
}

static void without_communication_there_is_no_overlap_to_speak_of(void)
{
    Case c;
    case_open(&c, MODEL_TRANSFORMER);
    for (int i = 0; i < 2; i++)
        c.stats[i].comm_ns = c.stats[i].overlapped_ns = 0;
    Report r = report_of(&c);
    CHECK(isnan(r.times.overlap_pct));
    CHECK(isnan(r.ranks[1].times.overlap_pct));
    case_close(&c, &r);
}

/* Model: 100 a layer, 3 layers on rank 0 and 1 on each of three others; recomputation adds 40. */
static void flops_count_the_model_and_what_is_recomputed(void)
{
    Case c;
    case_open(&c, MODEL_TRANSFORMER);
    Report r = report_of(&c);
    double capacity = (double)STEP_NS * GPUS * PEAK_FLOPS_PER_NS;
    CHECK_NEAR(100.0 * (3 + 3) / capacity, r.rates.mfu, 1e-12);
    CHECK_NEAR(140.0 * (3 + 3) / capacity, r.rates.hfu, 1e-12);
    CHECK_NEAR(100.0 * (3 + 3) / GPUS / (STEP_NS * 1e-9) / 1e12, r.rates.model_tflops_per_gpu,
               1e-12);
    CHECK_NEAR(1.4, r.rates.hardware_tflops_per_gpu / r.rates.model_tflops_per_gpu, 1e-12);
    CHECK_NEAR(300.0 / (STEP_NS * 1000.0), r.ranks[0].rates.mfu, 1e-12);
    CHECK_NEAR(100.0 / (STEP_NS * 1000.0), r.ranks[1].rates.mfu, 1e-12);
    case_close(&c, &r);
}

static void speed_and_cost(void)
{
    Case c;
    case_open(&c, MODEL_TRANSFORMER);
    Report r = report_of(&c);
    CHECK_NEAR(8 / 1e-5, r.samples_per_s, 1e-12);
    CHECK_NEAR(8 * 32 / 1e-5, r.tokens_per_s, 1e-12);
    CHECK_NEAR(8 * 32 / 1e-5 / GPUS, r.tokens_per_s_per_gpu, 1e-12);
    CHECK_NEAR(9.0 * GPUS * 1e-5 / 3600, r.cost_usd_per_step, 1e-12);
    case_close(&c, &r);
    case_open(&c, MODEL_MLP);
    c.s.machine.price_usd_per_gpu_hour = 0;
    r = report_of(&c);
    CHECK(isnan(r.tokens_per_s) && isnan(r.tokens_per_s_per_gpu));
    CHECK(isnan(r.cost_usd_per_step));
    case_close(&c, &r);
}

static void memory_is_that_of_the_fullest_rank(void)
{
    Case c;
    case_open(&c, MODEL_TRANSFORMER);
    Report r = report_of(&c);
    CHECK_U64(1, r.peak_rank);
    CHECK_U64(2000, report_memory(&r)->peak_bytes);
    CHECK_U64(2000, report_memory(&r)->of_class[TENSOR_PARAM]);
    CHECK_U64(2000, report_memory(&r)->reserved_bytes); /* an ideal machine */
    CHECK(r.ranks[0].memory.fits && !r.ranks[1].memory.fits && !r.fits);
    case_close(&c, &r);
    case_open(&c, MODEL_TRANSFORMER);
    c.gpu.memory_bytes = 2000;
    r = report_of(&c);
    CHECK(r.fits);
    case_close(&c, &r);
}

static void bounds_are_the_largest_of_any_rank(void)
{
    Case c;
    case_open(&c, MODEL_TRANSFORMER);
    Report r = report_of(&c);
    CHECK_NEAR(4e-6, r.bounds.compute_s, 1e-12);
    CHECK_NEAR(5e-6, r.bounds.memory_s, 1e-12);
    CHECK_NEAR(2e-7, r.bounds.link_s, 1e-12);
    CHECK_NEAR(7e-8, r.bounds.launch_s, 1e-12);
    CHECK_NEAR(1, r.bounds.above, 1e-12); /* 10 us are 100 % above 5 us */
    CHECK_NEAR(1.5, r.ranks[0].bounds.above, 1e-12);
    case_close(&c, &r);
}

static void collectives_are_those_of_the_most_exposed_rank(void)
{
    Case c;
    case_open(&c, MODEL_TRANSFORMER);
    Report r = report_of(&c);
    CHECK_U64(1, r.comm_rank);
    const ReportCollective *ar = &r.ranks[1].collectives[0], *send = &r.ranks[1].collectives[1];
    CHECK_STR("all_reduce", ar->op); /* most exposed first */
    CHECK_STR("dp", ar->group);
    CHECK_STR("Tree", ar->algorithm);
    CHECK_STR("LL", ar->protocol);
    CHECK_U64(2, ar->count);
    CHECK_U64(4000, ar->bytes);
    CHECK_NEAR(5.5e-6, ar->time_s, 1e-12);
    CHECK_NEAR(4.3e-6, ar->exposed_s, 1e-12);
    CHECK_NEAR(6000.0 / 3000, ar->busbw_GBps, 1e-12);
    CHECK_STR("send", send->op);
    CHECK_STR(NULL, send->algorithm);
    case_close(&c, &r);
}

/* ---- keys ---- */

static JsonDoc *json_of(const Report *r)
{
    char *text = NULL;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    JsonOut j = json_out_file(out, 2);
    Err err = { 0 };
    report_json(r, &j);
    CHECK(json_out_end(&j, &err));
    fclose(out);
    JsonDoc *doc = json_parse(text, n, "report", &err);
    CHECK_STR("", err.text);
    free(text);
    return doc;
}

static void check_keys(JsonNode node, const char *keys)
{
    char name[64];
    for (const char *at = keys; *at;) {
        size_t n = strcspn(at, " ");
        snprintf(name, sizeof name, "%.*s", (int)n, at);
        if (!json_member(node, name).item) {
            CHECK(false);
            fprintf(stderr, "    key '%s' is missing in '%s'\n", name, node.path);
        }
        at += n;
        at += strspn(at, " ");
    }
}

#define TIME_KEYS \
    "model_tflops_per_gpu hardware_tflops_per_gpu mfu hfu compute_s comm_s overlapped_s " \
    "exposed_comm_s overlap_pct bubble_s idle_s memory fits collectives bounds "

static void check_memory_keys(JsonNode node)
{
    check_keys(json_member(node, "memory"),
               "peak_bytes reserved_bytes params_bytes grads_bytes "
               "optimizer_bytes activations_bytes buffers_bytes");
}

/* DESIGN 4.2: scripts rely on these. */
static void every_key_of_the_contract_is_there(void)
{
    Case c;
    case_open(&c, MODEL_TRANSFORMER);
    Report r = report_of(&c);
    JsonDoc *doc = json_of(&r);
    if (!CHECK(doc != NULL))
        return;
    JsonNode root = json_root(doc);
    check_keys(root,
               "name gpus strategy step_time_s samples_per_s tokens_per_s "
               "tokens_per_s_per_gpu " TIME_KEYS "cost_usd_per_step critical_path ranks sim");
    check_memory_keys(root);
    check_keys(json_member(root, "critical_path"), "compute_s comm_s bubble_s launch_s");
    check_keys(json_item(json_member(root, "collectives"), 0),
               "op group count bytes time_s exposed_s algorithm protocol busbw_GBps");
    check_keys(json_member(root, "bounds"), "compute_s memory_s link_s launch_s above");
    check_keys(json_member(root, "sim"), "events ops wall_s");
    CHECK_U64(2, json_items_n(json_member(root, "ranks")));
    for (size_t i = 0; i < 2; i++) {
        JsonNode rank = json_item(json_member(root, "ranks"), i);
        check_keys(rank, "rank ranks_n stage " TIME_KEYS);
        check_memory_keys(rank);
    }
    CHECK(!json_member(root, "at_peak").item);
    json_close(doc);
    case_close(&c, &r);
}

static void json_says_what_the_report_holds(void)
{
    Case c;
    case_open(&c, MODEL_MLP);
    Report r = report_of(&c);
    JsonDoc *doc = json_of(&r);
    JsonNode root = json_root(doc);
    CHECK_STR("a toy", json_text(json_member(root, "name")));
    CHECK_STR("ddp", json_text(json_member(root, "strategy")));
    CHECK_NEAR(GPUS, json_value(json_member(root, "gpus")), 0);
    CHECK_NEAR(1e-5, json_value(json_member(root, "step_time_s")), 0);
    CHECK_INT(JSON_NULL, json_type(json_member(root, "tokens_per_s")));
    JsonNode path = json_member(root, "critical_path");
    CHECK_NEAR(4e-6, json_value(json_member(path, "compute_s")), 1e-12);
    CHECK_NEAR(3e-6, json_value(json_member(path, "comm_s")), 1e-12);
    CHECK_NEAR(2e-6, json_value(json_member(path, "bubble_s")), 1e-12);
    CHECK_NEAR(1e-6, json_value(json_member(path, "launch_s")), 1e-12);
    CHECK_NEAR(0.25, json_value(json_member(json_member(root, "sim"), "wall_s")), 0);
    CHECK_NEAR(77, json_value(json_member(json_member(root, "sim"), "events")), 0);
    JsonNode send = json_item(json_member(root, "collectives"), 1);
    CHECK_INT(JSON_NULL, json_type(json_member(send, "algorithm")));
    json_close(doc);
    case_close(&c, &r);
}

/* Those that a scenario's "measured" may name. */
static void every_metric_has_its_value(void)
{
    Case c;
    case_open(&c, MODEL_TRANSFORMER);
    Report r = report_of(&c);
    JsonDoc *doc = json_of(&r);
    for (size_t i = 0; i < SCENARIO_METRICS_N; i++) {
        const char *key = scenario_metrics[i];
        double value = NAN;
        const char *dot = strchr(key, '.');
        JsonNode in = json_root(doc);
        if (dot)
            in = json_member(in, dot[-1] == 'y' ? "memory" : "critical_path");
        CHECK(report_value(&r, key, &value));
        if (strcmp(key, "fits") == 0)
            CHECK_NEAR(0, value, 0);
        else
            CHECK_NEAR(json_value(json_member(in, dot ? dot + 1 : key)), value, 0);
    }
    double value;
    CHECK(!report_value(&r, "happiness", &value));
    json_close(doc);
    case_close(&c, &r);
}

static void the_peak_is_added_on_demand(void)
{
    Case c;
    case_open(&c, MODEL_TRANSFORMER);
    Report r = report_of(&c);
    report_add_peak(&r, &c.g, c.memory);
    JsonDoc *doc = json_of(&r);
    JsonNode peak = json_member(json_root(doc), "at_peak");
    check_keys(peak, "rank segment op layer micro_batch resident layers tensors");
    JsonNode tensor = json_item(json_member(peak, "tensors"), 0);
    CHECK_STR("weight", json_text(json_member(tensor, "name")));
    CHECK_NEAR(2000, json_value(json_member(tensor, "bytes")), 0);
    CHECK_INT(JSON_NULL, json_type(json_member(peak, "op"))); /* nothing is ever born */
    json_close(doc);
    case_close(&c, &r);
}

/* ---- for people ---- */

typedef struct Shape {
    uint32_t lines, columns;
} Shape;

static Shape shape_of(const char *text)
{
    Shape s = { 0 };
    for (uint32_t n = 0; *text; text++) {
        n = *text == '\n' ? 0 : n + (((unsigned char)*text & 0xc0) != 0x80);
        s.lines += *text == '\n';
        s.columns = n > s.columns ? n : s.columns;
    }
    return s;
}

/* The longest report there is: many classes, many kinds of transfers, large numbers. */
static void a_long_report_stays_within_40_lines_of_100_columns(void)
{
    enum { CLASSES = 40 };
    Case c;
    case_open(&c, MODEL_TRANSFORMER);
    static RankStat many[CLASSES];
    for (uint32_t i = 0; i < CLASSES; i++) {
        many[i] = c.stats[1];
        many[i].rank = i % GPUS;
        many[i].exposed_ns = 123456789;
        many[i].compute_ns += i == CLASSES / 2 ? 987654 : 0; /* the busiest, which is shown */
        many[i].collectives_n = SIM_COLLECTIVES_MAX;
        for (uint32_t k = 0; k < SIM_COLLECTIVES_MAX; k++)
            many[i].collectives[k] = c.stats[1].collectives[k % 2];
    }
    c.result.ranks = many;
    c.result.ranks_n = CLASSES;
    c.result.ops = c.result.events = 123456789012;
    c.s.name = "a name that goes on and on, as names of scenarios do that somebody has written "
               "for himself and not for a table";
    Report r = report_of(&c);
    char *text = NULL;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    report_text(&r, out);
    fclose(out);
    Shape s = shape_of(text);
    CHECK(s.lines <= 40);
    CHECK(s.columns <= 100);
    CHECK(strstr(text, "and 35 more kinds of ranks") != NULL);
    char busiest[TEXT_CAP];
    CHECK(strstr(text, text_seconds(busiest, (double)many[CLASSES / 2].compute_ns / 1e9)) !=
          NULL);
    CHECK(strstr(text, "...\n") != NULL);
    free(text);
    case_close(&c, &r);
}

static char *text_of(const Report *r, uint32_t n, bool compares)
{
    const Report *list[8];
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    for (uint32_t i = 0; i < n; i++)
        list[i] = &r[i];
    if (compares)
        report_compare(list, n, out);
    else
        report_text(r, out);
    fclose(out);
    return text;
}

/* What differs from the usual is said, and nothing else. */
static void the_head_says_how_it_is_split(void)
{
    Case c;
    case_open(&c, MODEL_TRANSFORMER);
    Report r = report_of(&c);
    for (int d = 0; d < DIM_N; d++)
        r.degree[d] = 1;
    r.strategy = "fsdp";
    r.precision = "bf16";
    r.schedule = "interleaved";
    r.recompute = "none";
    r.global_batch = 64;
    r.seq_len = 2048;
    r.virtual_stages = r.micro_batch = r.micro_batches = 1;
    char *text = text_of(&r, 1, false);
    CHECK(strstr(text, "\nfsdp, bf16, batch 64 x 2,048 tokens\n") != NULL);
    free(text);
    r.degree[DIM_DP] = 2;
    r.degree[DIM_TP] = 3;
    r.degree[DIM_PP] = 4;
    r.degree[DIM_CP] = 5;
    r.degree[DIM_EP] = 10;
    r.etp = 3;
    r.dispatcher = "alltoall";
    r.shard_size = 2;
    r.virtual_stages = 3;
    r.micro_batch = 2;
    r.micro_batches = 8;
    r.sequence_parallel = true;
    r.recompute = "full";
    text = text_of(&r, 1, false);
    CHECK(strstr(text,
                 "\nfsdp dp 2 x tp 3 x pp 4 x cp 5 in groups of 2, ep 10, sequence parallel, "
                 "schedule interleaved x 3,\nbf16, batch 64 x 2,048 tokens, 8 micro-batches "
                 "of 2, recompute full\n") != NULL);
    CHECK(shape_of(text).columns <= 100);
    free(text);
    r.etp = 1;
    r.dispatcher = "deepep";
    text = text_of(&r, 1, false);
    CHECK(strstr(text, "in groups of 2, ep 10 by deepep, etp 1, sequence parallel,") != NULL);
    free(text);
    case_close(&c, &r);
}

/* Scenarios that differ in one thing have a row that differs. */
static void columns_can_be_told_apart(void)
{
    static const struct {
        const char *row;
        size_t offset; /* of a uint32_t */
    } numbers[] = {
        { "\ndp ", offsetof(Report, degree[DIM_DP]) },
        { "\ntp ", offsetof(Report, degree[DIM_TP]) },
        { "\npp ", offsetof(Report, degree[DIM_PP]) },
        { "\ncp ", offsetof(Report, degree[DIM_CP]) },
        { "\nep ", offsetof(Report, degree[DIM_EP]) },
        { "\netp ", offsetof(Report, etp) },
        { "\nmicro-batch ", offsetof(Report, micro_batch) },
        { "\nvirtual stages ", offsetof(Report, virtual_stages) },
        { "\nbatch ", offsetof(Report, global_batch) },
        { "\ntokens each ", offsetof(Report, seq_len) },
    };
    static const struct {
        const char *row;
        size_t offset; /* of a text */
    } words[] = {
        { "\nmodel ", offsetof(Report, model) },
        { "\ncluster ", offsetof(Report, cluster) },
        { "\nGPU ", offsetof(Report, gpu) },
        { "\nsoftware ", offsetof(Report, software) },
        { "\nprecision ", offsetof(Report, precision) },
        { "\nrecompute ", offsetof(Report, recompute) },
        { "\ndispatcher ", offsetof(Report, dispatcher) },
    };
    static const char *const other = "other";
    Case c;
    case_open(&c, MODEL_TRANSFORMER);
    Report r = report_of(&c);
    for (int d = 0; d < DIM_N; d++)
        r.degree[d] = 1;
    r.virtual_stages = r.micro_batch = 1;
    for (size_t i = 0; i < ARRAY_N(numbers) + ARRAY_N(words); i++) {
        bool number = i < ARRAY_N(numbers);
        size_t k = number ? i : i - ARRAY_N(numbers);
        const char *row = number ? numbers[k].row : words[k].row;
        Report two[2] = { r, r };
        char *same = text_of(two, 2, true);
        CHECK(strstr(same, row) == NULL);
        free(same);
        if (number)
            (*(uint32_t *)(void *)((char *)&two[1] + numbers[k].offset))++;
        else
            memcpy((char *)&two[1] + words[k].offset, &other, sizeof other);
        char *text = text_of(two, 2, true);
        if (!CHECK(strstr(text, row) != NULL))
            fprintf(stderr, "    %s\n", row + 1);
        CHECK(shape_of(text).columns <= COMPARE_WIDTH);
        free(text);
    }
    case_close(&c, &r);
}

static void nothing_from_outside_reaches_the_terminal_raw(void)
{
    Case c;
    case_open(&c, MODEL_TRANSFORMER);
    c.s.name = "red \033[31m alert";
    Report r = report_of(&c);
    const Report *two[] = { &r, &r };
    char *text = NULL;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    report_text(&r, out);
    report_compare(two, 2, out);
    fclose(out);
    CHECK(strchr(text, '\033') == NULL);
    CHECK(strstr(text, "red ?[31m alert") != NULL);
    free(text);
    case_close(&c, &r);
}

static void comparisons_fit_the_width_whatever_their_number(void)
{
    Case c;
    case_open(&c, MODEL_TRANSFORMER);
    c.s.name = "llama3-8b, FSDP on one DGX H100 with a very long explanation";
    Report r = report_of(&c);
    for (uint32_t n = 1; n <= 20; n++) {
        const Report *list[20];
        char *text = NULL;
        size_t bytes;
        for (uint32_t i = 0; i < n; i++)
            list[i] = &r;
        FILE *out = open_memstream(&text, &bytes);
        report_compare(list, n, out);
        fclose(out);
        CHECK(shape_of(text).columns <= COMPARE_WIDTH);
        CHECK(strstr(text, "llama3-8b") != NULL);
        free(text);
    }
    case_close(&c, &r);
}

/* Transformers have tokens, others samples; a mixed table has both. */
static void comparisons_show_what_the_models_have(void)
{
    Case c, d;
    case_open(&c, MODEL_TRANSFORMER);
    case_open(&d, MODEL_MLP);
    Report r = report_of(&c), q = report_of(&d);
    const Report *lists[3][2] = { { &r, &r }, { &q, &q }, { &r, &q } };
    for (int i = 0; i < 3; i++) {
        char *text = NULL;
        size_t bytes;
        FILE *out = open_memstream(&text, &bytes);
        report_compare(lists[i], 2, out);
        fclose(out);
        CHECK_INT(i != 1, strstr(text, "tokens/s") != NULL);
        CHECK_INT(i != 0, strstr(text, "samples/s") != NULL);
        free(text);
    }
    case_close(&c, &r);
    case_close(&d, &q);
}

int main(void)
{
    RUN(headline_times_are_means_over_all_ranks);
    RUN(without_communication_there_is_no_overlap_to_speak_of);
    RUN(flops_count_the_model_and_what_is_recomputed);
    RUN(speed_and_cost);
    RUN(memory_is_that_of_the_fullest_rank);
    RUN(bounds_are_the_largest_of_any_rank);
    RUN(collectives_are_those_of_the_most_exposed_rank);
    RUN(every_key_of_the_contract_is_there);
    RUN(json_says_what_the_report_holds);
    RUN(every_metric_has_its_value);
    RUN(the_peak_is_added_on_demand);
    RUN(a_long_report_stays_within_40_lines_of_100_columns);
    RUN(the_head_says_how_it_is_split);
    RUN(columns_can_be_told_apart);
    RUN(nothing_from_outside_reaches_the_terminal_raw);
    RUN(comparisons_fit_the_width_whatever_their_number);
    RUN(comparisons_show_what_the_models_have);
    return check_report();
}

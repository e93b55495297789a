/* DataParallel: everything goes through device 0. */
#include "sim/engine.h"
#include "sim/memory.h"
#include "tests/graph_check.h"
#include "tests/strategy_fixture.h"

typedef struct Case {
    Scenario s;
    Software sw;
    Arena arena;
    Graph g;
    Err err;
    bool ok;
} Case;

enum { CASE_TEXT = 2048 };

#define CLUSTER(gpu) \
    "\"cluster\":{\"name\":\"one\",\"gpus_per_node\":8,\"gpu\":\"" gpu \
    "\",\"collectives\":{\"ideal\":true},\"intra_node\":{\"kind\":\"nvswitch\",\"GBps\":100," \
    "\"latency_us\":0}},"

/* 3 layers: 64 -> 128 -> 128 -> 32, mean squared error, everything f32. */
#define MLP "\"model\":{\"kind\":\"mlp\",\"widths\":[64,128,128,32],\"activation\":\"relu\"},"

enum {
    MLP_PARAMS = 64 * 128 + 128 + 128 * 128 + 128 + 128 * 32 + 32,
    MLP_TENSORS = 6,
    MICRO = 16 /* samples of a micro-batch on a device */
};

static void case_open(Case *c, const char *software, const char *text)
{
    bool eager = strcmp(software, "eager") == 0; /* nothing fused, gradients freed */
    *c = (Case){ 0 };
    JsonDoc *doc = json_parse(text, strlen(text), "case", &c->err);
    c->ok = doc && scenario_from(&c->s, doc, NULL, 0, &c->err) &&
            software_read(&c->sw, &c->arena, eager ? "generic" : software, &c->err);
    if (eager)
        c->sw =
            (Software){ .name = "eager", .host_scale = 1, .compute_scale = 1, .comm_scale = 1 };
    c->ok = c->ok && build_graph(&c->g, &c->s, &c->sw, &c->err);
}

static bool case_must(Case *c, const char *software, const char *text)
{
    case_open(c, software, text);
    if (!CHECK(c->ok))
        fprintf(stderr, "%s\n%s\n", c->err.text, text);
    return c->ok;
}

static void case_close(Case *c)
{
    graph_free(&c->g);
    scenario_free(&c->s);
    arena_free(&c->arena);
}

static const char *mlp_on(char text[CASE_TEXT], const char *cluster, uint32_t dp, uint32_t m)
{
    snprintf(text, CASE_TEXT,
             "{" MLP "%s\"training\":{\"global_batch\":%u,\"micro_batch\":%u,\"loss\":\"mse\","
             "\"precision\":\"f32\",\"optimizer\":\"adam\"},"
             "\"parallel\":{\"strategy\":\"dp\",\"dp\":%u}}",
             cluster, MICRO * dp * m, MICRO, dp);
    return text;
}

static SimResult case_run(Case *c, SimOptions options)
{
    SimResult r = { 0 };
    if (!CHECK(sim_run(&r, &c->g, &c->s.machine, &c->sw, &options, &c->err)))
        fprintf(stderr, "%s\n", c->err.text);
    return r;
}

static const CollectiveStat *stat_of(const RankStat *s, OpKind kind)
{
    for (uint32_t i = 0; i < s->collectives_n; i++)
        if (s->collectives[i].kind == kind)
            return &s->collectives[i];
    return NULL;
}

/* ---- the programs ---- */

/* Each micro-batch: parameters out and gradients back once, inputs (64 numbers a sample) and
 * gradients of outputs (32) to each of the others, their outputs back. */
static void volumes_meet_their_closed_forms(void)
{
    char text[CASE_TEXT];
    for (uint32_t dp = 2; dp <= 8; dp *= 2)
        for (uint32_t m = 1; m <= 3; m += 2) {
            Case c;
            if (case_must(&c, "generic", mlp_on(text, CLUSTER("ideal"), dp, m))) {
                const Role *hub = &c.g.roles[0], *other = &c.g.roles[1];
                uint32_t group = c.g.host_group;
                uint64_t params = 4 * MLP_PARAMS * m, in = 4 * 64 * MICRO * m,
                         out = 4 * 32 * MICRO * m;
                for (uint32_t r = 0; r < 2; r++) {
                    const Role *role = &c.g.roles[r];
                    CHECK_U64(params, comm_bytes(&c.g, role, OP_BROADCAST, group));
                    CHECK_U64(params, comm_bytes(&c.g, role, OP_REDUCE, group));
                }
                CHECK_U64((dp - 1) * (in + out), comm_bytes(&c.g, hub, OP_SEND, group));
                CHECK_U64((dp - 1) * out, comm_bytes(&c.g, hub, OP_RECV, group));
                CHECK_U64(out, comm_bytes(&c.g, other, OP_SEND, group));
                CHECK_U64(in + out, comm_bytes(&c.g, other, OP_RECV, group));
            }
            case_close(&c);
        }
}

static uint64_t count_ops(const Graph *g, const Role *role, OpKind kind, uint64_t *elements)
{
    uint64_t n = 0;
    *elements = 0;
    for (uint32_t i = 0; i < role->instances_n; i++) {
        const Segment *s = &g->segments[role->instances[i].segment];
        for (uint32_t k = 0; k < s->op_n; k++)
            if (graph_ops(g, s)[k].kind == kind) {
                n++;
                *elements += graph_ops(g, s)[k].u.elements;
            }
    }
    return n;
}

/* Loss and optimizer are on device 0 alone, the loss over the samples of all devices. */
static void device_0_alone_has_loss_and_optimizer(void)
{
    Case c;
    char text[CASE_TEXT];
    uint64_t elements;
    if (case_must(&c, "generic", mlp_on(text, CLUSTER("ideal"), 4, 3))) {
        CHECK_U64(2, c.g.roles_n);
        CHECK_U64(2 * 3, count_ops(&c.g, &c.g.roles[0], OP_MSE, &elements));
        CHECK_U64(2 * 3 * 4 * MICRO, elements); /* rows */
        CHECK_U64(0, count_ops(&c.g, &c.g.roles[1], OP_MSE, &elements));
        CHECK(count_ops(&c.g, &c.g.roles[0], OP_OPTIMIZER, &elements) > 0);
        CHECK_U64(MLP_PARAMS, elements);
        CHECK_U64(0, count_ops(&c.g, &c.g.roles[1], OP_OPTIMIZER, &elements));
        /* the second and third micro-batch are added to the first */
        CHECK(count_ops(&c.g, &c.g.roles[0], OP_ADD, &elements) >= 2 * MLP_TENSORS);
        CHECK(graph_role_of(&c.g, 0) == &c.g.roles[0]);
        for (uint32_t rank = 1; rank < 4; rank++)
            CHECK(graph_role_of(&c.g, rank) == &c.g.roles[1]);
        CHECK(c.g.roles[1].instances_n <= c.g.roles[0].instances_n);
    }
    case_close(&c);
}

/* torch's take_tensors: a buffer closes when its bytes and the last tensor's once more are 10 MiB.
 * gpt2 in f32: the table of 154 MB alone; every buffer of several closes below 20 MiB. */
static void buffers_are_cut_as_torch_cuts(void)
{
    Case c;
    if (case_must(
            &c, "generic",
            "{\"model\":\"gpt2\"," CLUSTER(
                "ideal") "\"training\":{\"global_batch\":2,\"micro_batch\":1,\"seq_len\":128,"
                         "\"precision\":\"f32\"},\"parallel\":{\"strategy\":\"dp\",\"dp\":2}"
                         "}")) {
        const Role *hub = &c.g.roles[0];
        uint64_t largest = 0, n = 0;
        for (uint32_t i = 0; i < hub->instances_n; i++) {
            const Segment *s = &c.g.segments[hub->instances[i].segment];
            for (uint32_t k = 0; k < s->op_n; k++) {
                const Op *op = &graph_ops(&c.g, s)[k];
                if (op->kind != OP_BROADCAST)
                    continue;
                n++;
                largest = op->u.comm.bytes > largest ? op->u.comm.bytes : largest;
                CHECK(op->arg_n == 1 || op->u.comm.bytes < 2 * 10485760);
            }
        }
        CHECK_U64((uint64_t)50264 * 768 * 4, largest); /* as generic pads it */
        CHECK(n > 124439808 * 4 / (2 * 10485760) && n < 124439808 * 4 / 5242880);
    }
    case_close(&c);
}

/* Pre-training: masked tokens and the next sentence. */
#define TWO_LOSSES \
    "{\"model_type\":\"bert\",\"architectures\":[\"BertForPreTraining\"]," \
    "\"hidden_act\":\"gelu\",\"hidden_size\":128,\"intermediate_size\":256," \
    "\"max_position_embeddings\":512,\"num_attention_heads\":2,\"num_hidden_layers\":2," \
    "\"type_vocab_size\":2,\"vocab_size\":1000}"

static void check_case(const char *software, const char *model, const char *training,
                       uint32_t dp)
{
    Case c;
    char text[CASE_TEXT];
    snprintf(
        text, sizeof text,
        "{\"model\":%s," CLUSTER("h100-80gb") "\"training\":{%s},"
                                              "\"parallel\":{\"strategy\":\"dp\",\"dp\":%u}}",
        model, training, dp);
    if (case_must(&c, software, text)) {
        check_lives(&c.g);
        SimResult r = case_run(&c, (SimOptions){ 0 });
        CHECK(r.step_ns > 0);
        sim_result_free(&r);
    }
    case_close(&c);
}

/* Every tensor is born before it is read and dead at the end, in fused and unfused stacks. */
static void every_model_has_balanced_memory(void)
{
    static const char *const software[] = { "generic", "lockstep", "eager" };
#define BATCH(n, more) "\"global_batch\":" #n ",\"micro_batch\":1" more
    for (size_t i = 0; i < ARRAY_N(software); i++) {
        const char *sw = software[i];
        const char *text = BATCH(12, ",\"seq_len\":64,\"precision\":\"bf16\"");
        check_case(sw, "\"gpt2\"", text, 4);
        check_case(sw, "\"bert-base\"", text, 2);
        check_case(sw, TWO_LOSSES, text, 2);
        check_case(sw, "\"llama3-8b\"", text, 3);
        check_case(sw, "\"resnet50\"", BATCH(8, ""), 4);
        check_case(sw, "{\"kind\":\"mlp\",\"widths\":[20,1]}", BATCH(8, ",\"loss\":\"mse\""),
                   4);
        check_case(sw, "{\"kind\":\"mlp\",\"widths\":[20,5]}",
                   BATCH(8, ",\"loss\":\"cross_entropy\""), 8);
        check_case(sw, "\"toy-mlp\"", BATCH(16, ",\"recompute\":\"full\""), 8);
        check_case(sw, "\"gpt2\"", BATCH(4, ",\"seq_len\":64,\"grad_clip\":1"), 4);
    }
}

/* ---- what it costs ---- */

/* Nothing overlaps: each transfer on device 0 takes its bytes over 100 bytes/ns. */
static void transfers_on_device_0_follow_one_another(void)
{
    Case c;
    char text[CASE_TEXT];
    if (case_must(&c, "generic", mlp_on(text, CLUSTER("ideal"), 4, 2))) {
        SimResult r = case_run(&c, (SimOptions){ .expanded = true });
        const RankStat *s = &r.ranks[0];
        const OpKind kinds[] = { OP_BROADCAST, OP_REDUCE, OP_SEND };
        for (size_t i = 0; i < ARRAY_N(kinds); i++) {
            const CollectiveStat *x = stat_of(s, kinds[i]);
            if (!CHECK(x != NULL))
                continue;
            CHECK(fabs((double)x->bytes / 100 - (double)x->transfer_ns) <= (double)x->count);
            CHECK_INT(x->transfer_ns, x->exposed_ns);
        }
        CHECK_INT(0, s->overlapped_ns);
        CHECK_INT(0, s->bubble_ns);
        CHECK_INT(r.step_ns, s->end_ns);
        sim_result_free(&r);
    }
    case_close(&c);
}

/* Device 0 works longer, waits for nobody and holds all that lasts; the others are alike but for
 * their turn, so each is simulated. */
static void device_0_is_the_bottleneck(void)
{
    Case c;
    if (case_must(
            &c, "generic",
            "{\"model\":\"gpt2\",\"cluster\":\"dgx-a100\",\"training\":{\"global_batch\":32,"
            "\"micro_batch\":4,\"seq_len\":1024,\"precision\":\"f32\"},"
            "\"parallel\":{\"strategy\":\"dp\",\"dp\":8}}")) {
        SimResult r = case_run(&c, (SimOptions){ 0 });
        CHECK_U64(8, r.ranks_n);
        for (uint32_t i = 1; i < r.ranks_n; i++) {
            CHECK(r.ranks[0].compute_ns > r.ranks[i].compute_ns);
            CHECK(r.ranks[i].bubble_ns > 0 && r.ranks[i].end_ns < r.ranks[0].end_ns);
        }
        CHECK_INT(0, r.ranks[0].bubble_ns);
        sim_result_free(&r);
        RoleMemory hub = memory_of_role(&c.g, &c.g.roles[0], NULL);
        RoleMemory other = memory_of_role(&c.g, &c.g.roles[1], NULL);
        uint64_t params = (uint64_t)(124439808 + 7 * 768) * 4,
                 logits = (uint64_t)4 * 1024 * 50264 * 4;
        CHECK_U64(params, hub.resident[TENSOR_PARAM]);
        CHECK_U64(2 * params, hub.resident[TENSOR_OPTIMIZER]);
        for (int k = 0; k < TENSOR_CLASS_N; k++)
            CHECK_U64(0, other.resident[k]);
        CHECK_U64(0, other.at_peak[TENSOR_OPTIMIZER]);
        /* optimizer, gradients that stay, and the logits of 8 devices against those of one */
        CHECK(hub.peak_bytes > other.peak_bytes + 2 * params + 7 * logits);
    }
    case_close(&c);
}

/* Kernels far shorter than their launches: one thread launches for all devices. */
static void a_step_of_launches_grows_with_the_devices(void)
{
    int64_t before_ns = 0;
    char text[CASE_TEXT];
    for (uint32_t dp = 2; dp <= 8; dp *= 2) {
        Case c;
        if (case_must(&c, "generic", mlp_on(text, CLUSTER("h100-80gb"), dp, 1))) {
            SimResult r = case_run(&c, (SimOptions){ 0 });
            for (uint32_t i = 0; i < r.ranks_n; i++)
                CHECK(r.ranks[i].launch_bound_ns == r.ranks[0].launch_bound_ns);
            CHECK((double)r.step_ns >= r.ranks[0].launch_bound_ns);
            CHECK(r.step_ns > before_ns * 3 / 2);
            before_ns = r.step_ns;
            sim_result_free(&r);
        }
        case_close(&c);
    }
}

/* ---- the ends of it ---- */

static void one_device_is_plain_training(void)
{
    Case c;
    char text[CASE_TEXT];
    if (case_must(&c, "generic", mlp_on(text, CLUSTER("ideal"), 1, 2))) {
        CHECK_U64(1, c.g.roles_n);
        CHECK_U64(NONE_U32, c.g.host_group);
    }
    case_close(&c);
}

static void refused(const char *model, const char *parallel, const char *part)
{
    Case c;
    char text[CASE_TEXT];
    snprintf(text, sizeof text,
             "{\"model\":\"%s\"," CLUSTER(
                 "h100-80gb") "\"training\":{\"global_batch\":4,"
                              "\"micro_batch\":1},\"parallel\":{\"strategy\":\"dp\",%s}}",
             model, parallel);
    case_open(&c, "generic", text);
    CHECK(!c.ok);
    CHECK_ERR_TEXT(&c.err, part);
    case_close(&c);
}

static void what_data_parallel_cannot_do_is_a_sentence(void)
{
    refused("gpt2", "\"dp\":2,\"tp\":2", "knows no other dimension");
    refused("gpt2", "\"dp\":4,\"virtual_stages\":2,\"schedule\":\"interleaved\"",
            "with pp 1 only 1 is allowed");
    refused("resnet50", "\"dp\":4,\"sync_batchnorm\":true", "SyncBatchNorm");
    refused("gpt2", "\"dp\":16", "the GPUs of a node");
}

int main(void)
{
    setenv("LOCKSTEP_SHARE", "scenarios", 0);
    RUN(volumes_meet_their_closed_forms);
    RUN(device_0_alone_has_loss_and_optimizer);
    RUN(buffers_are_cut_as_torch_cuts);
    RUN(every_model_has_balanced_memory);
    RUN(transfers_on_device_0_follow_one_another);
    RUN(device_0_is_the_bottleneck);
    RUN(a_step_of_launches_grows_with_the_devices);
    RUN(one_device_is_plain_training);
    RUN(what_data_parallel_cannot_do_is_a_sentence);
    return check_report();
}

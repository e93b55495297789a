/*
 * test_moe.c - mixtures of experts: what is held, sent, computed and reduced, by closed forms.
 *
 * Most tests ask the small model below, in bf16 on ideal GPUs: L layers of width H, E experts of
 * inner width F, of which a token visits K.
 */
#include "sim/cost.h"
#include "sim/memory.h"
#include "tests/unit/moe_world.h"

static bool is_name(const Op *op, const Graph *g, const char *name)
{
    return strcmp(intern_text(&g->names, op->name), name) == 0;
}

/* ---- what a rank holds ---- */

static void every_published_mixture_is_held_in_full(void)
{
    static const char *const models[] = { "\"mixtral-8x7b\"",      "\"mixtral-8x22b\"",
                                          "\"qwen1.5-moe-a2.7b\"", "\"qwen3-30b-a3b\"",
                                          "\"qwen3-235b-a22b\"",   "\"deepseek-v2-lite\"",
                                          "\"deepseek-v2\"",       "\"deepseek-v3\"" };
    for (size_t i = 0; i < ARRAY_N(models); i++) {
        Drawn x;
        if (make(&x, (Ask){ .model = models[i], .dp = 2 })) {
            RoleMemory m = memory_of_role(&x.g, &x.g.roles[0], NULL);
            CHECK_U64(2 * model_params(&x.s.model), m.resident[TENSOR_PARAM]);
        }
        drawn_free(&x);
    }
}

/* Parameters: dense ones whole, experts over ep.  State over all of dp under zero1. */
static void experts_are_shared_out_over_ep(void)
{
    for (int zero1 = 0; zero1 < 2; zero1++)
        for (uint32_t ep = 1; ep <= WORLD; ep *= 2) {
            Drawn x;
            if (make(&x, (Ask){ .experts = E,
                                .per_token = K,
                                .dp = WORLD,
                                .ep = ep,
                                .strategy = zero1 ? "zero1" : "ddp" })) {
                RoleMemory m = memory_of_role(&x.g, &x.g.roles[0], NULL);
                uint64_t held = DENSE_ELEMENTS + ALL_EXPERTS / ep;
                uint64_t updated = zero1 ? (DENSE_ELEMENTS + ALL_EXPERTS) / WORLD : held;
                CHECK_U64(DENSE_ELEMENTS + ALL_EXPERTS, model_params(&x.s.model));
                CHECK_U64(2 * held, m.resident[TENSOR_PARAM]);
                CHECK_U64(2 * held, m.resident[TENSOR_GRAD]);
                CHECK_U64(12 * updated, m.resident[TENSOR_OPTIMIZER]);
            }
            drawn_free(&x);
        }
}

/* tp cuts each expert; the router and the norms are whole. */
static void experts_are_shared_out_over_tp_and_ep(void)
{
    Drawn x;
    if (make(&x, (Ask){ .experts = E, .per_token = K, .dp = 4, .ep = 4, .tp = 2 })) {
        uint64_t whole = H + L * (2 * H + E * H);
        uint64_t held = whole + (DENSE_ELEMENTS - whole) / 2 + ALL_EXPERTS / 8;
        RoleMemory m = memory_of_role(&x.g, &x.g.roles[0], NULL);
        CHECK_U64(2 * held, m.resident[TENSOR_PARAM]);
    }
    drawn_free(&x);
}

/* etp 1: experts are cut by ep alone, which takes ranks of tp as well; their gradients meet on the
 * ranks of tp x dp that hold the same ones, and nobody gathers routed rows over tp. */
static void check_whole_experts(uint32_t ep, const char *said, const char *software)
{
    Ask a = { .experts = E, .per_token = K, .dp = 4, .tp = 2, .ep = ep };
    a.parallel = said;
    a.software = software;
    Drawn x, y;
    if (make(&x, a)) {
        uint64_t whole = H + L * (2 * H + E * H), experts = ALL_EXPERTS / ep;
        uint64_t held = whole + (DENSE_ELEMENTS - whole) / 2 + experts;
        RoleMemory m = memory_of_role(&x.g, &x.g.roles[0], NULL);
        CHECK_U64(2 * held, m.resident[TENSOR_PARAM]);
        CHECK_U64(ep == 8 ? 0 : 2 * experts, moved(&x.g, OP_ALL_REDUCE, "edp"));
        CHECK_U64(2 * (held - experts), moved(&x.g, OP_ALL_REDUCE, "dp"));
        a.per_token = 1;
        if (make(&y, a))
            CHECK_U64(moved(&y.g, OP_ALL_GATHER, "tp"), moved(&x.g, OP_ALL_GATHER, "tp"));
        drawn_free(&y);
    }
    drawn_free(&x);
}

static void whole_experts_are_shared_out_over_tp_by_ep(void)
{
    for (uint32_t ep = 1; ep <= 8; ep *= 2)
        check_whole_experts(ep, ",\"etp\":1", "generic");
    check_whole_experts(8, NULL, "generic"); /* ep of all of tp x dp: no other way */
}

static void a_stack_may_leave_experts_whole(void)
{
    Drawn x;
    Ask a = { .experts = E, .per_token = K, .dp = 4, .tp = 2, .ep = 2 };
    a.software = "megatron-bridge";
    for (int said = 0; said < 2; said++) {
        a.parallel = said ? ",\"etp\":2" : NULL;
        if (make(&x, a)) {
            uint64_t experts = ALL_EXPERTS / 2 / (said ? 2 : 1);
            CHECK_U64(2 * experts, moved(&x.g, OP_ALL_REDUCE, "edp"));
            CHECK_INT(said ? 2 : 4, group_size(&x.g.groups[x.g.groups_n - 1]));
        }
        drawn_free(&x);
    }
}

/* Experts' biases go with their weights; those of the router and of attention's heads are whole. */
static void biases_of_experts_are_shared_out_over_ep(void)
{
    for (uint32_t ep = 1; ep <= WORLD; ep *= 2) {
        Drawn x;
        if (make(&x, (Ask){ .model = GPT_OSS, .dp = WORLD, .ep = ep })) {
            uint64_t expert = 3 * H * F + 2 * F + H, all = model_params(&x.s.model);
            CHECK_U64(L * E * expert, model_expert_params(&x.s.model));
            uint64_t held = all - L * E * expert + L * E * expert / ep;
            RoleMemory m = memory_of_role(&x.g, &x.g.roles[0], NULL);
            CHECK_U64(2 * held, m.resident[TENSOR_PARAM]);
            CHECK_U64(2 * held, m.resident[TENSOR_GRAD]);
            if (ep > 1 && ep < WORLD)
                CHECK_U64(2 * L * E * expert / ep, moved(&x.g, OP_ALL_REDUCE, "edp"));
        }
        drawn_free(&x);
    }
}

/* All that the model counts is in the graph. */
static void every_bias_is_held(void)
{
    static const char *const models[] = { GPT_OSS, LLAMA4, ERNIE };
    for (size_t i = 0; i < ARRAY_N(models); i++) {
        Drawn x;
        if (make(&x, (Ask){ .model = models[i], .dp = 2 })) {
            RoleMemory m = memory_of_role(&x.g, &x.g.roles[0], NULL);
            CHECK_U64(2 * model_params(&x.s.model), m.resident[TENSOR_PARAM]);
        }
        drawn_free(&x);
    }
}

/* With norms and attention as GPT has them, experts over tp; a dense block's MLP has its biases. */
static void experts_of_layernorm_models_are_shared_out_over_tp(void)
{
    static const char model[] =
        "{\"kind\":\"transformer\",\"layers\":4,\"hidden\":256,\"heads\":4,\"ffn\":512,"
        "\"vocab\":1024,\"experts\":8,\"moe_every\":2}";
    for (uint32_t tp = 1; tp <= 2; tp++) {
        Drawn x;
        if (make(&x, (Ask){ .model = model, .dp = 2, .tp = tp })) {
            uint64_t experts = (uint64_t)2 * E * 2 * H * F;
            CHECK_U64(experts, model_expert_params(&x.s.model));
            RoleMemory m = memory_of_role(&x.g, &x.g.roles[0], NULL);
            uint64_t held = m.resident[TENSOR_PARAM], all = 2 * model_params(&x.s.model);
            CHECK(tp == 1 ? held == all : held < all - experts);
        }
        drawn_free(&x);
    }
}

static uint64_t kept_bytes(const Graph *g)
{
    uint64_t bytes = 0;
    for (uint32_t f = 0; f < g->roles[0].frames_n; f++) {
        const Layout *l = &g->layouts[g->roles[0].frames[f].layout];
        for (uint32_t t = 0; t < l->tensor_n; t++) {
            const Tensor *tensor = &g->tensors[l->tensor_first + t];
            bytes += tensor->class_ == TENSOR_ACTIVATION ? tensor->bytes : 0;
        }
    }
    return bytes;
}

/* What attention gave and what sinks scaled it to are both kept, and the factors, in f32. */
static void sinks_keep_what_they_scale(void)
{
    static const char plain[] =
        "{\"model_type\":\"mixtral\",\"hidden_size\":256,\"intermediate_size\":512,"
        "\"num_hidden_layers\":4,\"num_attention_heads\":4,\"num_key_value_heads\":4,"
        "\"head_dim\":64,\"vocab_size\":1024,\"num_local_experts\":8,"
        "\"num_experts_per_tok\":2}";
    const char *const models[] = { plain, GPT_OSS };
    uint64_t kept[2] = { 0 };
    for (size_t i = 0; i < ARRAY_N(models); i++) {
        Drawn x;
        if (make(&x, (Ask){ .model = models[i], .dp = 2 }))
            kept[i] = kept_bytes(&x.g);
        drawn_free(&x);
    }
    CHECK_U64(L * SEQ * (2 * 4 * 64 + 4 * 4), kept[1] - kept[0]);
}

static void mixtures_of_many_kinds_hold_together(void)
{
    static const char *const models[] = { GPT_OSS, LLAMA4, ERNIE };
    static const char *const software[] = { "generic", "megatron-core-2025", "torchtitan-2025",
                                            "pytorch-ddp", "megatron-bridge" };
    for (uint32_t n = 0; n < 40; n++) {
        Ask a = { .model = models[n % 3], .dp = 4, .micro_batches = 2 };
        a.software = software[n % 5];
        a.training = n / 10 % 2 ? ",\"recompute\":\"selective\"" : NULL;
        a.strategy = n / 20 ? "fsdp" : "zero1";
        a.ep = n / 20 ? 1 : 2;
        check_graph(a);
        a.tp = 2;
        a.parallel = ",\"etp\":1";
        if (n < 20)
            check_graph(a);
    }
}

static uint64_t saved_bytes(const Drawn *x)
{
    uint64_t saved = 0;
    for (uint32_t f = 0; f < x->g.roles[0].frames_n; f++) {
        const Layout *l = &x->g.layouts[x->g.roles[0].frames[f].layout];
        for (uint32_t t = 0; t < l->tensor_n; t++) {
            const Tensor *tensor = &x->g.tensors[l->tensor_first + t];
            saved += tensor->class_ == TENSOR_ACTIVATION ? tensor->bytes : 0;
        }
    }
    return saved;
}

/* Of one micro-batch, by layer and token: what the router chose, K rows as the experts read
 * them, two of gate and up, the activation, and what came back where it is weighed only then; f32
 * weights, i64 places. */
static void check_saved_rows(const char *software, uint64_t came_back)
{
    Drawn x, y;
    Ask one = { .experts = E, .per_token = 1, .dp = 2, .ep = 2, .software = software };
    Ask two = one;
    two.per_token = 2;
    bool ok = make(&x, one);
    if (make(&y, two) && ok) {
        uint64_t row = 2 * (H + 2 * F + F + came_back) + 4 + 8;
        CHECK_U64(L * SEQ * row, saved_bytes(&y) - saved_bytes(&x));
    }
    drawn_free(&x);
    drawn_free(&y);
}

static void routed_rows_are_saved_for_backward(void)
{
    check_saved_rows("generic", H);
    check_saved_rows("nemo-2025", H);
    check_saved_rows("megatron-core-2025", 0);
    check_saved_rows("megatron-bridge", 0);
}

static const Op *find_named(const Drawn *x, const char *name, OpPhase phase)
{
    for (uint32_t i = 0; i < x->g.ops_n; i++)
        if (is_name(&x->g.ops[i], &x->g, name) && x->g.ops[i].phase == phase)
            return &x->g.ops[i];
    return NULL;
}

/* ---- all-to-alls ---- */

/* Two forward, two backward, two more where forward is done again. */
static void each_layer_sends_its_tokens_there_and_back(void)
{
    static const struct {
        const char *recompute;
        uint64_t each;
    } rows[] = { { ",\"recompute\":\"none\"", 4 }, { ",\"recompute\":\"full\"", 6 } };
    const OpKind kind = OP_ALL_TO_ALL;
    for (size_t i = 0; i < ARRAY_N(rows); i++)
        for (uint32_t ep = 1; ep <= WORLD; ep *= 2)
            for (uint32_t tp = 1; tp <= 2; tp++) {
                Drawn x;
                if (make(&x, (Ask){ .experts = E,
                                    .per_token = K,
                                    .dp = WORLD,
                                    .ep = ep,
                                    .tp = tp,
                                    .micro_batches = 3,
                                    .training = rows[i].recompute })) {
                    uint64_t count = ep > 1 ? 3 * L * rows[i].each : 0;
                    Total t = total_of(&x.g, is_kind, &kind);
                    CHECK_U64(count, t.count);
                    CHECK_U64(count * SEQ / tp * K * H * 2, t.bytes);
                }
                drawn_free(&x);
            }
}

static void only_layers_with_experts_send(void)
{
    const OpKind kind = OP_ALL_TO_ALL;
    Drawn x;
    if (make(&x,
             (Ask){
                 .experts = E, .per_token = K, .dp = 2, .ep = 2, .model = ",\"moe_every\":2" }))
        CHECK_U64(4 * L / 2, total_of(&x.g, is_kind, &kind).count);
    drawn_free(&x);
}

/* (ep - 1)/ep of the rows leave a rank, at 100 bytes/ns. */
static void an_all_to_all_takes_what_leaves_over_the_port(void)
{
    for (uint32_t ep = 2; ep <= WORLD; ep *= 2) {
        Drawn x;
        SimResult r;
        Draw none = { 0 };
        if (make(&x, (Ask){ .experts = E,
                            .per_token = K,
                            .dp = WORLD,
                            .ep = ep,
                            .parallel = ",\"overlap\":false" }) &&
            drawn_run(&r, &x, (SimOptions){ 0 }, &none)) {
            const RankStat *s = &r.ranks[0];
            for (uint32_t i = 0; i < s->collectives_n; i++) {
                const CollectiveStat *c = &s->collectives[i];
                if (c->kind != OP_ALL_TO_ALL)
                    continue;
                double sent = (double)SEQ * K * H * 2 * (ep - 1) / ep;
                CHECK_U64(4 * L, c->count);
                CHECK_NEAR(4 * L * sent, c->wire_bytes, 1e-9);
                CHECK_NEAR(4 * L * sent / 100, (double)c->transfer_ns, 1e-3);
                CHECK_INT(c->time_ns, c->exposed_ns); /* in line */
            }
            CHECK(s->collectives_n >= 2);
            sim_result_free(&r);
        }
        drawn_free(&x);
    }
}

/* ---- DeepEP ---- */

/* Of E experts K, on `parts` of all the ranks or nodes that have them: parts times what is not
 * missed. */
static double visited(uint32_t parts)
{
    double missed = 1;
    for (uint32_t i = 0; i < K; i++)
        missed *= (double)(E - E / parts - i) / (E - i);
    return parts * (1 - missed);
}

static uint64_t rows_once(uint32_t ep, uint32_t tp)
{
    return (uint64_t)ceil((double)SEQ * visited(ep) / tp) * tp;
}

static void deepep_sends_a_token_once_to_a_rank(void)
{
    const OpKind kind = OP_ALL_TO_ALL;
    for (uint32_t ep = 1; ep <= WORLD; ep *= 2)
        for (uint32_t tp = 1; tp <= 2; tp++) {
            Drawn x;
            if (make(&x, (Ask){ .experts = E,
                                .per_token = K,
                                .dp = WORLD,
                                .ep = ep,
                                .tp = tp,
                                .parallel = ",\"dispatcher\":\"deepep\"" })) {
                Total t = total_of(&x.g, is_kind, &kind);
                CHECK_U64(ep > 1 ? 4 * L : 0, t.count);
                CHECK_U64(t.count * rows_once(ep, tp) / tp * H * 2, t.bytes);
                CHECK_INT(ep == 1, find_named(&x, "experts.permute", PHASE_FORWARD) != NULL);
            }
            drawn_free(&x);
        }
}

/* On two nodes of 8, 4 + 4 ranks in each ep group: over the port passes what goes to other ranks
 * of a node, in both nodes; over the NIC, one a rank, what goes to the other node, once. */
static void deepep_crosses_between_nodes_once(void)
{
    for (int nic = 5; nic <= 500; nic *= 10) {
        Drawn x;
        SimResult r;
        Draw none = { 0 };
        char more[128];
        snprintf(more, sizeof more,
                 ",\"overlap\":false,\"dispatcher\":\"deepep\","
                 "\"order\":\"tp,cp,dp,ep,pp\"");
        Ask a = { .experts = E, .per_token = K, .dp = 2 * WORLD, .ep = 4, .parallel = more };
        if (make(&x, a)) {
            x.s.machine.inter.bytes_per_ns = nic;
            double rows = (double)rows_once(4, 1);
            if (CHECK(drawn_run(&r, &x, (SimOptions){ 0 }, &none))) {
                for (uint32_t i = 0; i < r.ranks[0].collectives_n; i++) {
                    const CollectiveStat *c = &r.ranks[0].collectives[i];
                    if (c->kind != OP_ALL_TO_ALL)
                        continue;
                    double port = rows * 1 / 2 / 100;
                    double wire = rows * visited(2) / visited(4) / 2 / nic;
                    CHECK_NEAR(4.0 * L * H * 2 * fmax(port, wire), (double)c->transfer_ns,
                               2e-3);
                }
                sim_result_free(&r);
            }
        }
        drawn_free(&x);
    }
}

/*
 * What DeepEP's README says of its kernels for training on H800s (NVLink 200 GB/s, of which it
 * calls 160 the most that is reached, NICs of 50): 4096 tokens of 7168 numbers, 8 of 256 experts,
 * nodes as groups, at most 4 of them.  It counts rows per second, a rank's own (8 ranks) and those
 * for its own node (more) too.  What ports reach is fitted on the first row.
 */
static void deepep_reaches_what_its_authors_measured(void)
{
    static const struct {
        uint32_t ep, groups, chosen;
        double parts, dispatch, combine, within; /* parts: of ranks, of nodes */
    } rows[] = {
        { 8, 1, 1, 5.30, 153, 158, 0.03 },
        { 16, 2, 2, 1.99, 43, 43, 0.12 },
        { 32, 4, 4, 3.61, 58, 57, 0.08 },
        { 64, 8, 4, 3.63, 51, 50, 0.05 },
    };
    for (size_t i = 0; i < ARRAY_N(rows); i++) {
        uint32_t ep = rows[i].ep;
        Draw d = { 0 }, none = { 0 };
        Drawn x;
        SimResult r;
        draw_text(&d,
                  "{\"model\":{\"model_type\":\"deepseek_v3\",\"num_hidden_layers\":2,"
                  "\"hidden_size\":7168,\"intermediate_size\":18432,\"vocab_size\":1024,"
                  "\"num_attention_heads\":128,\"num_key_value_heads\":128,"
                  "\"first_k_dense_replace\":1,\"n_group\":%u,\"topk_group\":%u},"
                  "\"cluster\":{\"name\":\"h800\",\"nodes\":%u,\"gpus_per_node\":8,"
                  "\"gpu\":\"h100-80gb\",\"intra_node\":{\"kind\":\"nvswitch\",\"GBps\":200},"
                  "\"inter_node\":{\"kind\":\"fat_tree\",\"nics_per_node\":8,"
                  "\"GBps_per_nic\":50}},\"training\":{\"global_batch\":%u,"
                  "\"micro_batch\":1,\"seq_len\":4096,\"precision\":\"bf16\"},"
                  "\"parallel\":{\"strategy\":\"zero1\",\"dp\":%u,\"ep\":%u,"
                  "\"overlap\":false}}",
                  rows[i].groups, rows[i].chosen, ep / 8, ep, ep, ep);
        if (make_with(&x, &d, "megatron-bridge") &&
            CHECK(drawn_run(&r, &x, (SimOptions){ 0 }, &none))) {
            for (uint32_t c = 0; c < r.ranks[0].collectives_n; c++) {
                const CollectiveStat *s = &r.ranks[0].collectives[c];
                double bytes = 4096 * 7168 * 2 * rows[i].parts;
                double rate = bytes * (double)s->count / (double)s->transfer_ns;
                if (s->kind != OP_ALL_TO_ALL)
                    continue;
                CHECK_NEAR(rows[i].dispatch, rate, rows[i].within);
                CHECK_NEAR(rows[i].combine, rate, rows[i].within);
            }
            sim_result_free(&r);
        }
        drawn_free(&x);
    }
}

/* The gather of all rows before the experts and the scatter after, forward and backward each:
 * kept, not gathered again.  Dense blocks gather as ever: 4 of each but the first twice. */
static void tp_gathers_and_scatters_the_routed_rows(void)
{
    Drawn x, y;
    if (make(&x, (Ask){ .experts = E, .per_token = K, .dp = 2, .ep = 2, .tp = 2 }) &&
        make(&y, (Ask){ .experts = E, .per_token = 1, .dp = 2, .ep = 2, .tp = 2 })) {
        uint64_t row = (uint64_t)L * SEQ * H * 2; /* one routed row more for each token */
        CHECK_U64(2 * row, moved(&x.g, OP_ALL_GATHER, "tp") - moved(&y.g, OP_ALL_GATHER, "tp"));
        CHECK_U64(2 * row,
                  moved(&x.g, OP_REDUCE_SCATTER, "tp") - moved(&y.g, OP_REDUCE_SCATTER, "tp"));
        drawn_free(&y);
    }
    drawn_free(&x);
}

/* ---- gradients ---- */

static void check_volume(uint32_t dp, uint32_t cp, uint32_t ep)
{
    Drawn x;
    uint64_t n = (uint64_t)dp * cp, experts = n == ep ? 0 : ALL_EXPERTS / ep;
    const char *group = ep > 1 ? "edp" : "dp";
    uint64_t dense = DENSE_ELEMENTS + (ep > 1 ? 0 : ALL_EXPERTS);
    Ask a = { .experts = E, .per_token = K, .dp = dp, .cp = cp, .ep = ep, .micro_batches = 2 };
    if (make(&x, a)) {
        CHECK_U64(2 * dense, moved(&x.g, OP_ALL_REDUCE, "dp"));
        CHECK_U64(2 * (ep > 1 ? experts : dense), moved(&x.g, OP_ALL_REDUCE, group));
    }
    drawn_free(&x);
    a.strategy = "zero1";
    for (int copies = 0; copies < 2; copies++) {
        a.software = copies ? "megatron-deepspeed-2022" : "generic";
        if (make(&x, a)) {
            CHECK_U64(2 * dense, moved(&x.g, OP_ALL_GATHER, "dp"));
            CHECK_U64(2 * (ep > 1 ? experts : dense), moved(&x.g, OP_ALL_GATHER, group));
            uint64_t each = x.sw.bf16_grads_f32 ? 4 : 2; /* and sums them whole */
            OpKind sum = x.sw.bf16_grads_f32 ? OP_ALL_REDUCE : OP_REDUCE_SCATTER;
            CHECK_U64(each * dense, moved(&x.g, sum, "dp"));
            CHECK_U64(each * (ep > 1 ? experts : dense), moved(&x.g, sum, group));
        }
        drawn_free(&x);
    }
}

/* Dense ones over dp x cp, experts over the ranks that hold the same. */
static void gradients_of_experts_meet_those_of_the_same_experts(void)
{
    for (uint32_t cp = 1; cp <= 2; cp++)
        for (uint32_t ep = 1; ep <= WORLD; ep *= 2)
            check_volume(WORLD / cp, cp, ep);
}

/* Each tp rank routes its own rows: a router twice as large has twice as much to sum. */
static void gradients_of_the_router_are_summed_over_tp(void)
{
    Drawn x, y;
    if (make(&x, (Ask){ .experts = 4, .per_token = K, .dp = 2, .ep = 2, .tp = 2 })) {
        if (make(&y, (Ask){ .experts = 8, .per_token = K, .dp = 2, .ep = 2, .tp = 2 }))
            CHECK_U64((uint64_t)L * 4 * H * 2,
                      moved(&y.g, OP_ALL_REDUCE, "tp") - moved(&x.g, OP_ALL_REDUCE, "tp"));
        drawn_free(&y);
    }
    drawn_free(&x);
}

/* Every rank's norm counts its own experts. */
static void clipping_sums_over_ep(void)
{
    static const char *const strategies[] = { "ddp", "zero1" };
    for (size_t i = 0; i < ARRAY_N(strategies); i++) {
        Drawn x;
        if (make(&x, (Ask){ .experts = E,
                            .per_token = K,
                            .dp = 4,
                            .ep = 2,
                            .strategy = strategies[i],
                            .training = ",\"grad_clip\":1.0" }))
            CHECK_U64(i == 0 ? 4 : 0, moved(&x.g, OP_ALL_REDUCE, "ep"));
        drawn_free(&x);
    }
}

/* ---- work ---- */

/* A token visits K experts: that many MLPs, and the router, thrice (forward, dgrad, wgrad). */
static void flops_count_the_experts_that_a_token_visits(void)
{
    for (uint32_t ep = 1; ep <= 4; ep *= 2) {
        Drawn dense, moe;
        bool ok = make(&dense, (Ask){ .dp = 4 });
        if (make(&moe, (Ask){ .experts = E, .per_token = K, .dp = 4, .ep = ep }) && ok) {
            double mlp = 6.0 * SEQ * L * (double)EXPERT_ELEMENTS,
                   router = 6.0 * SEQ * L * E * H;
            Total d = total_of(&dense.g, is_any, NULL), m = total_of(&moe.g, is_any, NULL);
            CHECK_NEAR(d.model_flops + (K - 1) * mlp + router, m.model_flops, 1e-12);
        }
        drawn_free(&dense);
        drawn_free(&moe);
    }
}

static int64_t matmuls_ns(const Drawn *x, bool *grouped)
{
    int64_t ns = 0;
    for (uint32_t i = 0; i < x->g.roles[0].instances_n; i++) {
        const Segment *s = &x->g.segments[x->g.roles[0].instances[i].segment];
        for (uint32_t o = 0; o < s->op_n; o++) {
            const Op *op = &graph_ops(&x->g, s)[o];
            if (op->kind != OP_MATMUL || is_name(op, &x->g, "router"))
                continue;
            ns += op_cost(x->s.machine.types[0].gpu, op, &x->sw).alone_ns;
            *grouped = *grouped || op->u.matmul.batch > 1;
        }
    }
    return ns;
}

/* One expert that every token visits is the dense MLP: its matmuls are the same, on any GPU. */
static void one_expert_is_the_dense_block_and_a_router(void)
{
    static const char *const gpus[] = { "ideal", "h100-80gb" };
    for (size_t i = 0; i < ARRAY_N(gpus); i++) {
        Drawn dense, moe;
        bool ok = make(&dense, (Ask){ .dp = 4, .gpu = gpus[i] }), grouped = false;
        if (make(&moe, (Ask){ .experts = 1, .per_token = 1, .dp = 4, .gpu = gpus[i] }) && ok) {
            CHECK_INT(matmuls_ns(&dense, &grouped), matmuls_ns(&moe, &grouped));
            CHECK(!grouped);
        }
        drawn_free(&dense);
        drawn_free(&moe);
    }
}

static int64_t named_ns(const Drawn *x, const char *name)
{
    int64_t ns = 0;
    const Role *role = &x->g.roles[0];
    for (uint32_t i = 0; i < role->instances_n; i++) {
        const Segment *s = &x->g.segments[role->instances[i].segment];
        for (uint32_t o = 0; o < s->op_n; o++) {
            const Op *op = &graph_ops(&x->g, s)[o];
            if (is_name(op, &x->g, name))
                ns += op_cost(x->s.machine.types[0].gpu, op, &x->sw).alone_ns;
        }
    }
    return ns;
}

/* On one ideal GPU, where kernels stand one after another: the mixture adds these, one more sum
 * of gradients to the two of a dense block, and the router's update. */
static void one_expert_takes_what_its_ops_add(void)
{
    static const char *const added[] = { "router", "router.top_k", "experts.permute",
                                         "experts.weighted_sum" };
    Drawn dense, moe;
    SimResult a, b;
    Draw none = { 0 };
    bool ok = make(&dense, (Ask){ .experts = 0 }) &&
              drawn_run(&a, &dense, (SimOptions){ .expanded = true }, &none);
    if (make(&moe, (Ask){ .experts = 1, .per_token = 1 }) && ok &&
        drawn_run(&b, &moe, (SimOptions){ .expanded = true }, &none)) {
        int64_t more = named_ns(&moe, "gradient sum") / 3 + named_ns(&moe, "optimizer") -
                       named_ns(&dense, "optimizer");
        for (size_t n = 0; n < ARRAY_N(added); n++)
            more += named_ns(&moe, added[n]);
        CHECK_INT(3 * named_ns(&dense, "gradient sum"), 2 * named_ns(&moe, "gradient sum"));
        CHECK(more > 0);
        CHECK_INT(more, b.step_ns - a.step_ns);
        sim_result_free(&a);
        sim_result_free(&b);
    }
    drawn_free(&dense);
    drawn_free(&moe);
}

/* As many matmuls as a rank has experts, of tokens K / E rows each on all ranks: on ideal GPUs
 * exactly their sum, else no more than one after another and no faster than their flops. */
static void experts_are_one_grouped_matmul(void)
{
    static const char *const gpus[] = { "ideal", "h100-80gb", "a100-80gb" };
    for (size_t i = 0; i < ARRAY_N(gpus); i++)
        for (uint32_t ep = 1; ep <= 4; ep *= 2) {
            Drawn x;
            Ask a = { .experts = E, .per_token = K, .dp = 4, .ep = ep, .gpu = gpus[i] };
            const Op *op =
                make(&x, a) ? find_named(&x, "experts.gate_up", PHASE_FORWARD) : NULL;
            if (CHECK(op != NULL)) {
                const Gpu *gpu = x.s.machine.types[0].gpu;
                Op one = *op;
                CHECK_U64(E / ep, op->u.matmul.batch);
                CHECK_U64(SEQ * K * ep / E, op->u.matmul.m);
                CHECK_U64(2 * F, op->u.matmul.n);
                CHECK_U64(H, op->u.matmul.k);
                one.u.matmul.batch = 1;
                one.flops /= E / ep;
                one.read_bytes /= E / ep;
                one.write_bytes /= E / ep;
                double all = matmul_model_ns(gpu, &op->u.matmul, op->dtype);
                double each = matmul_model_ns(gpu, &one.u.matmul, op->dtype);
                CHECK(all <= each * (E / ep) * (1 + 1e-9));
                CHECK(all >= op_flops_bound_ns(gpu, op) * (1 - 1e-9));
                if (i == 0)
                    CHECK_NEAR(each * (E / ep), all, 1e-9);
            }
            drawn_free(&x);
        }
}

static bool is_gate_up(const Graph *g, const Op *op, const void *user)
{
    (void)user;
    return is_name(op, g, "experts.gate_up");
}

/* Stacks without one matmul for both have a grouped one for gate and one for up. */
static void gate_and_up_may_be_apart(void)
{
    Total t[2] = { 0 };
    for (int apart = 0; apart < 2; apart++) {
        Drawn x;
        if (make(&x, (Ask){ .experts = E,
                            .per_token = K,
                            .dp = 2,
                            .ep = 2,
                            .software = apart ? "torchtitan-2025" : "generic" })) {
            CHECK(x.sw.fused_gate_up == !apart);
            t[apart] = total_of(&x.g, is_gate_up, NULL);
        }
        drawn_free(&x);
    }
    CHECK_U64(3 * L, t[0].count);
    CHECK(t[1].count >= 6 * L); /* and sums of what dgrad gives */
    CHECK_NEAR(t[0].flops, t[1].flops, 1e-12);
}

/* Rows that do not divide by the experts: the fullest expert counts. */
static void rows_are_rounded_up(void)
{
    Drawn x;
    if (make(&x, (Ask){ .experts = 12, .per_token = 1, .dp = 4, .ep = 4 })) {
        const Op *op = find_named(&x, "experts.down", PHASE_WGRAD);
        if (CHECK(op != NULL)) {
            CHECK_U64(div_up_u64(SEQ, 3), op->u.matmul.k);
            CHECK_NEAR(2.0 * SEQ * F * H, op->flops, 1e-12);
        }
    }
    drawn_free(&x);
}

/* ---- graphs hold together ---- */

static void every_way_to_train_holds_together(void)
{
    static const char *const training[] = { ",\"recompute\":\"none\"",
                                            ",\"recompute\":\"selective\"",
                                            ",\"recompute\":\"full\"", ",\"grad_clip\":1" };
    static const char *const software[] = { "generic", "megatron-core-2025", "torchtitan-2025",
                                            "pytorch-ddp", "megatron-deepspeed-2022" };
    static const char *const strategies[] = { "ddp", "zero1", "zero2", "fsdp" };
    for (uint32_t n = 0; n < 4 * 5 * 4; n++) {
        uint32_t s = n / 20;
        Ask a = { .experts = E, .per_token = K, .dp = 4, .micro_batches = 2 };
        a.training = training[n % 4];
        a.software = software[n % 5];
        a.strategy = strategies[s];
        a.ep = 1u << n % 3;
        a.tp = 1 + n / 2 % 2;
        a.pp = s == 2 ? 1 : 1 + n / 4 % 2;
        a.cp = 1 + n / 8 % 2;
        const char *const models[] = { QWEN, ",\"moe_every\":2", NULL, DEEPSEEK };
        a.model = models[n / 5 % 4];
        a.parallel = n % 7 == 0   ? ",\"overlap\":true"
                     : n % 7 == 1 ? ",\"overlap\":false"
                     : n % 7 == 2 ? ",\"overlap\":true,\"dispatcher\":\"deepep\""
                     : n % 7 == 3 ? ",\"dispatcher\":\"deepep\""
                     : n % 7 == 4 ? ",\"etp\":1"
                     : n % 7 == 5 ? ",\"etp\":1,\"dispatcher\":\"deepep\""
                                  : NULL;
        check_graph(a);
    }
}

static void fp8_quantizes_what_experts_read(void)
{
    Drawn x;
    Ask a = { .experts = E, .per_token = K, .dp = 2, .ep = 2, .gpu = "h100-80gb" };
    if (make(&x, a)) {
        graph_free(&x.g);
        x.g = (Graph){ 0 };
        x.s.training.precision = DTYPE_FP8;
        Err err = { 0 };
        if (CHECK(build_graph(&x.g, &x.s, &x.sw, &err))) {
            const Op *op = find_named(&x, "experts.down", PHASE_FORWARD);
            const Op *router = find_named(&x, "router", PHASE_FORWARD);
            CHECK(op && op->dtype == DTYPE_FP8);
            CHECK(router && router->dtype == DTYPE_BF16);
            check_lives(&x.g);
        }
    }
    drawn_free(&x);
}

static int64_t exposed_dispatch(const char *parallel)
{
    Drawn x;
    SimResult r;
    Draw none = { 0 };
    int64_t exposed_ns = 0;
    Ask a = { .model = QWEN, .dp = 4, .ep = 4, .gpu = "h100-80gb", .parallel = parallel };
    if (make(&x, a) && drawn_run(&r, &x, (SimOptions){ 0 }, &none)) {
        for (uint32_t i = 0; i < r.ranks[0].collectives_n; i++)
            if (r.ranks[0].collectives[i].kind == OP_ALL_TO_ALL)
                exposed_ns += r.ranks[0].collectives[i].exposed_ns;
        sim_result_free(&r);
    }
    drawn_free(&x);
    return exposed_ns;
}

/* The shared expert runs while its tokens' rows are on their way, if ep overlaps: it may read what
 * DeepEP is reading. */
static void a_shared_expert_hides_the_dispatch(void)
{
    static const char *const dispatchers[] = { "alltoall", "deepep" };
    for (size_t i = 0; i < ARRAY_N(dispatchers); i++) {
        int64_t exposed_ns[2];
        for (int overlap = 0; overlap < 2; overlap++) {
            char text[96];
            snprintf(text, sizeof text, ",\"dispatcher\":\"%s\",\"overlap\":{\"ep\":%s}",
                     dispatchers[i], overlap ? "true" : "false");
            exposed_ns[overlap] = exposed_dispatch(text);
        }
        CHECK(exposed_ns[0] > 0 && exposed_ns[1] < exposed_ns[0]);
    }
}

int main(void)
{
    setenv("LOCKSTEP_SHARE", "scenarios", 0);
    RUN(every_published_mixture_is_held_in_full);
    RUN(experts_are_shared_out_over_ep);
    RUN(experts_are_shared_out_over_tp_and_ep);
    RUN(whole_experts_are_shared_out_over_tp_by_ep);
    RUN(a_stack_may_leave_experts_whole);
    RUN(biases_of_experts_are_shared_out_over_ep);
    RUN(every_bias_is_held);
    RUN(experts_of_layernorm_models_are_shared_out_over_tp);
    RUN(sinks_keep_what_they_scale);
    RUN(mixtures_of_many_kinds_hold_together);
    RUN(routed_rows_are_saved_for_backward);
    RUN(each_layer_sends_its_tokens_there_and_back);
    RUN(only_layers_with_experts_send);
    RUN(an_all_to_all_takes_what_leaves_over_the_port);
    RUN(deepep_sends_a_token_once_to_a_rank);
    RUN(deepep_crosses_between_nodes_once);
    RUN(deepep_reaches_what_its_authors_measured);
    RUN(tp_gathers_and_scatters_the_routed_rows);
    RUN(gradients_of_experts_meet_those_of_the_same_experts);
    RUN(gradients_of_the_router_are_summed_over_tp);
    RUN(clipping_sums_over_ep);
    RUN(flops_count_the_experts_that_a_token_visits);
    RUN(one_expert_is_the_dense_block_and_a_router);
    RUN(one_expert_takes_what_its_ops_add);
    RUN(experts_are_one_grouped_matmul);
    RUN(gate_and_up_may_be_apart);
    RUN(rows_are_rounded_up);
    RUN(every_way_to_train_holds_together);
    RUN(fp8_quantizes_what_experts_read);
    RUN(a_shared_expert_hides_the_dispatch);
    return check_report();
}

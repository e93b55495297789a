/*
 * test_software_files.c - the files of scenarios/software: every stack of the contract is there,
 * states each fact with its source, and has scalars that a fit can have given it.
 */
#include "sim/software.h"

#include "sim/build.h"
#include "sim/cost.h"
#include "sim/engine.h"
#include "tests/built.h"
#include "tests/data_rows.h"

/* DESIGN.md 4.1 */
static const char *const stacks[] = {
    "generic",
    "lockstep",
    "pytorch-ddp",
    "pytorch-2026",
    "pytorch-2026-compiled",
    "pytorch-fsdp-2022",
    "llm-foundry-2023",
    "torchtitan-2025",
    "fms-fsdp-2024",
    "megatron-lm-2021",
    "megatron-lm-2022",
    "megatron-lm-2023",
    "megatron-deepspeed-2022",
    "megatron-core-2024",
    "megatron-core-2025",
    "nemo-2023",
    "nemo-2024",
    "nemo-2025",
    "nemo-mlperf",
    "megatron-bridge",
    "zero-bubble-2023",
    "maxtext-2025",
    "paxml-2024",
    "nanogpt-2023",
    "nanotron-2025",
};

static bool read_stack(Software *sw, Arena *arena, const char *name)
{
    Err err = { 0 };
    bool ok = software_read(sw, arena, name, &err);
    if (!ok)
        printf("  %s\n", err.text);
    return ok;
}

static void every_stack_of_the_contract_reads(void)
{
    for (size_t i = 0; i < ARRAY_N(stacks); i++) {
        Software sw;
        Arena arena = { 0 };
        CHECK(read_stack(&sw, &arena, stacks[i]));
        CHECK_STR(stacks[i], sw.name);
        CHECK(strlen(sw.source) > 10);
        arena_free(&arena);
    }
}

/* Calls f with each member of the object at `key` of each stack's file. */
static void each_member(const char *object_key,
                        void (*f)(const char *stack, JsonNode sources, const char *key))
{
    for (size_t i = 0; i < ARRAY_N(stacks); i++) {
        Arena arena = { 0 };
        Err err = { 0 };
        JsonDoc *doc = json_open(
            arena_printf(&arena, "%s/software/%s.json", share_dir(), stacks[i]), &err);
        CHECK(doc != NULL);
        JsonNode object = json_member(json_root(doc), object_key);
        JsonNode sources = json_member(json_root(doc), "sources");
        size_t n = json_items_n(object);
        CHECK(n >= 2);
        for (size_t k = 0; k < n; k++)
            f(stacks[i], sources, json_key(object, k));
        json_close(doc);
        arena_free(&arena);
    }
}

/* "rest" is for the two that say of themselves what they are. */
static void has_source(const char *stack, JsonNode sources, const char *key)
{
    bool own = strcmp(stack, "generic") == 0 || strcmp(stack, "lockstep") == 0;
    const char *text = json_text(json_member(sources, key));
    if (!text && !own)
        printf("  %s: %s has no source\n", stack, key);
    CHECK(own || (text && strlen(text) > 3));
}

static void every_fact_has_a_source_of_its_own(void)
{
    each_member("kernels", has_source);
    each_member("parallel", has_source);
    each_member("recompute", has_source);
}

static void scalars_are_sane_and_say_what_they_were_fitted_on(void)
{
    for (size_t i = 0; i < ARRAY_N(stacks); i++) {
        Software sw;
        Arena arena = { 0 };
        Err err = { 0 };
        CHECK(read_stack(&sw, &arena, stacks[i]));
        CHECK(sw.host_scale >= 0.3 && sw.host_scale <= 20);
        CHECK(sw.compute_scale >= 0.7 && sw.compute_scale <= 1.5);
        CHECK(sw.comm_scale >= 0.3 && sw.comm_scale <= 3);
        bool fitted = sw.host_scale != 1 || sw.comm_scale != 1 || sw.ring_nics > 0 ||
                      sw.compute_scale != sw.assumed_compute_scale;
        JsonDoc *doc = json_open(
            arena_printf(&arena, "%s/software/%s.json", share_dir(), stacks[i]), &err);
        const char *on =
            json_text(json_member(json_member(json_root(doc), "fitted"), "fitted_on"));
        CHECK(fitted == (on != NULL));
        CHECK(!on || strlen(on) > 10);
        json_close(doc);
        arena_free(&arena);
    }
}

/* What one stack is known for must not be lost in an edit. */
static void stacks_are_what_they_are_known_for(void)
{
    Software sw;
    Arena arena = { 0 };
    CHECK(read_stack(&sw, &arena, "megatron-lm-2021"));
    CHECK(!sw.fused_attention && sw.dropout && !sw.overlap[DIM_DP]);
    CHECK_U64(128, sw.vocab_multiple);
    CHECK(read_stack(&sw, &arena, "megatron-lm-2022"));
    CHECK(sw.selective_attention && sw.tp_async_backward && sw.wgrad_accumulate);
    CHECK(read_stack(&sw, &arena, "torchtitan-2025"));
    CHECK(sw.selective_op && sw.selective_norm && sw.selective_activation && sw.norm_chain);
    CHECK(sw.recompute_stops_early && sw.attention_kernel == ATTENTION_FLASH2);
    CHECK(sw.fp8_dynamic && sw.gather_copies && sw.f32_reduce);
    CHECK(sw.f32_params && sw.addmm && sw.bucket_copies);
    CHECK_U64(100 << 20, sw.bucket_parameters * 4);
    CHECK(read_stack(&sw, &arena, "pytorch-ddp"));
    CHECK(sw.f32_params && sw.f32_stream && sw.addmm && !sw.fused_elementwise);
    CHECK(sw.gelu_new_chain && sw.gated_qkv_apart);
    CHECK(read_stack(&sw, &arena, "pytorch-2026"));
    CHECK_INT(15, sw.checkpoint_launches);
    CHECK(sw.half_to_float && sw.gated_qkv_apart && sw.activations_again && sw.host_scale > 5);
    CHECK(!sw.gelu_new_chain && !sw.norm_chain && sw.attention_kernel == ATTENTION_FLASH2);
    CHECK(read_stack(&sw, &arena, "pytorch-2026-compiled"));
    CHECK(sw.fused_cross_entropy && sw.activations_again);
    CHECK(read_stack(&sw, &arena, "pytorch-fsdp-2022"));
    CHECK(sw.softmax_chain && sw.root_unit);
    CHECK(read_stack(&sw, &arena, "nanotron-2025"));
    CHECK(sw.tp_own_first && !sw.tp_ring && sw.zero_all_reduces);
    CHECK(sw.loss_in_place && sw.loss_copies && sw.zero_gathers_lists && sw.attention_copies);
    CHECK(read_stack(&sw, &arena, "nanogpt-2023"));
    CHECK(sw.f32_params && sw.f32_stream && sw.attention_kernel == ATTENTION_FLASH1);
    CHECK(read_stack(&sw, &arena, "maxtext-2025"));
    CHECK(sw.selective_all_but_qkv && !sw.fp8_dynamic);
    CHECK(read_stack(&sw, &arena, "llm-foundry-2023"));
    CHECK(sw.fused_attention && sw.attention_kernel == ATTENTION_TRITON);
    CHECK(sw.keeps_logits && sw.metric_losses == 2);
    CHECK(sw.f32_reduce_stops_early && !sw.recompute_stops_early);
    CHECK(read_stack(&sw, &arena, "nemo-2025"));
    CHECK(sw.overlap[DIM_TP] && sw.overlap[DIM_DP] && sw.overlap_param_gather);
    CHECK(sw.attention_kernel == ATTENTION_NEWEST);
    CHECK_U64((uint64_t)1 << 27, sw.bucket_parameters);
    CHECK(read_stack(&sw, &arena, "megatron-core-2024"));
    CHECK_U64(40000000, sw.bucket_parameters);
    CHECK_U64(1000000, sw.bucket_parameters_per_rank);
    CHECK(sw.loss_in_place);
    CHECK(read_stack(&sw, &arena, "megatron-deepspeed-2022"));
    CHECK(sw.p2p_scatter_gather && sw.p2p_blocks_host);
    CHECK(sw.bf16_grads_f32 && sw.fsdp_overlaps && !sw.overlap[DIM_DP]);
    CHECK(sw.softmax_multiple == 4 && sw.softmax_longest == 2048);
    CHECK_U64(500000000, sw.bucket_parameters);
    CHECK_U64(0, sw.bucket_parameters_per_rank);
    arena_free(&arena);
}

/* Whose scripts know no such strategy says so: plan must not offer it. */
static void strategies_that_a_stack_has_not_are_lacking(void)
{
    static const struct {
        const char *stack, *strategies;
    } cases[] = { { "fms-fsdp-2024", "zero1 zero2" },
                  { "llm-foundry-2023", "zero1 hsdp" },
                  { "paxml-2024", "zero1 zero2" },
                  { "pytorch-fsdp-2022", "hsdp" },
                  { "torchtitan-2025", "zero1" } };
    static const Strategy sharded[] = { STRATEGY_ZERO1, STRATEGY_ZERO2, STRATEGY_FSDP,
                                        STRATEGY_HSDP };
    Software sw;
    Arena arena = { 0 };
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        CHECK(read_stack(&sw, &arena, cases[i].stack));
        for (size_t k = 0; k < ARRAY_N(sharded); k++)
            CHECK(sw.lacks_strategy[sharded[k]] ==
                  (strstr(cases[i].strategies, strategy_names[sharded[k]]) != NULL));
    }
    arena_free(&arena);
}

/* Of NeMo and Megatron-LM, as their sources of the time have it. */
static void facts_of_distributed_optimizers_and_fsdp_are_those_of_the_time(void)
{
    Software sw;
    Arena arena = { 0 };
    CHECK(read_stack(&sw, &arena, "nemo-2023"));
    CHECK(!sw.wgrad_accumulate && sw.pp_accumulates);
    CHECK(sw.master_remainders && !sw.averages_grads && sw.lacks_strategy[STRATEGY_ZERO2]);
    CHECK_U64(32768000, sw.bucket_parameters); /* 125 MiB of f32 */
    CHECK(read_stack(&sw, &arena, "nemo-2024"));
    CHECK(sw.lacks_fsdp_with_pp && sw.lacks_strategy[STRATEGY_HSDP]);
    CHECK(sw.f32_params && sw.root_unit && sw.fp8_param_gather);
    CHECK(read_stack(&sw, &arena, "nemo-mlperf"));
    CHECK(sw.lacks_fsdp_with_pp && sw.fp8_param_gather && !sw.fp8_weight_copies);
    CHECK_U64(104857600, sw.bucket_parameters); /* 200 MiB of bf16 */
    CHECK(read_stack(&sw, &arena, "megatron-bridge"));
    CHECK(sw.master_remainders);
    CHECK(read_stack(&sw, &arena, "megatron-lm-2023"));
    CHECK(sw.softmax_multiple == 4 && sw.softmax_longest == 4096);
    arena_free(&arena);
}

static bool row_splits(JsonNode row, const char *key)
{
    return json_value(json_member(json_member(row, "parallel"), key)) > 1;
}

/* A measured run did what its stack can do. */
static void has_what_it_uses(JsonNode row)
{
    const char *name = json_text(json_member(row, "software"));
    JsonNode parallel = json_member(row, "parallel");
    const char *strategy = json_text(json_member(parallel, "strategy"));
    Software sw;
    Arena arena = { 0 };
    if (!name || !CHECK(read_stack(&sw, &arena, name)))
        return;
    for (int d = 0; d < DIM_N; d++)
        CHECK(!sw.lacks_dim[d] || !row_splits(row, dim_names[d]));
    for (int k = 0; k < STRATEGY_N; k++)
        CHECK(!sw.lacks_strategy[k] || !strategy || strcmp(strategy, strategy_names[k]) != 0);
    CHECK(!sw.lacks_interleaved || !row_splits(row, "virtual_stages"));
    CHECK(!sw.lacks_fsdp_with_pp || !row_splits(row, "pp") || !strategy ||
          (strcmp(strategy, "fsdp") != 0 && strcmp(strategy, "zero2") != 0));
    CHECK(!sw.lacks_sequence_parallel ||
          !json_truth(json_member(parallel, "sequence_parallel")));
    arena_free(&arena);
}

static void stacks_have_what_measured_runs_used(void)
{
    CHECK(data_rows("scenarios/validation/published.jsonl", has_what_it_uses) > 200);
    CHECK(data_rows("scenarios/validation/vtrain-single-node.jsonl", has_what_it_uses) > 400);
    CHECK(data_rows("scenarios/validation/torch-one-gpu.jsonl", has_what_it_uses) > 20);
}

/* ---- the attention kernel ---- */

static double attention_with(const Gpu *gpu, AttentionKernel kernel, OpPhase phase)
{
    double pairs = 8.0 * 32 * 8192 * 8192 / 2;
    Op op = { .kind = OP_ATTENTION,
              .phase = phase,
              .dtype = DTYPE_BF16,
              .flops = (phase == PHASE_DGRAD ? 10 : 4) * pairs * 128,
              .u.attention = { .batch = 8,
                               .heads = 32,
                               .kv_heads = 32,
                               .seq_q = 8192,
                               .seq_k = 8192,
                               .head_dim = 128,
                               .causal = true } };
    Software sw = { .host_scale = 1, .compute_scale = 1, .comm_scale = 1 };
    sw.attention_kernel = kernel;
    return (double)op_cost(gpu, &op, &sw).alone_ns;
}

static void older_attention_kernels_take_longer(void)
{
    static const struct {
        const char *gpu;
        AttentionKernel kernel;
        double forward, backward;
    } cases[] = {
        { "\"a100-80gb\"", ATTENTION_NEWEST, 1, 1 },
        { "\"a100-80gb\"", ATTENTION_FLASH2, 1, 1 },
        { "\"a100-80gb\"", ATTENTION_FLASH1, 2, 2 },
        { "\"a100-80gb\"", ATTENTION_TRITON, 1.4, 2 },
        { "\"h100-96gb-hbm2e\"", ATTENTION_FLASH2, 1.6, 1.6 },
        { "\"h100-96gb-hbm2e\"", ATTENTION_FLASH1, 1.6 * 2, 1.6 * 2 },
        { "\"h100-96gb-hbm2e\"", ATTENTION_TRITON, 1.6 * 1.4, 1.6 * 2 },
        { "\"b200-180gb\"", ATTENTION_FLASH2, 1.6, 1.6 },
        { "\"a100-80gb\"", ATTENTION_LOCKSTEP, 1, 1 },
        { "\"h100-96gb-hbm2e\"", ATTENTION_LOCKSTEP, 1.6, 1.6 },
    };
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        Arena arena = { 0 };
        Err err = { 0 };
        JsonDoc *doc = json_parse(cases[i].gpu, strlen(cases[i].gpu), "gpu", &err);
        const Gpu *gpu = gpu_read(&arena, json_root(doc), share_dir(), &err);
        CHECK(gpu != NULL);
        double f = attention_with(gpu, ATTENTION_NEWEST, PHASE_FORWARD),
               b = attention_with(gpu, ATTENTION_NEWEST, PHASE_DGRAD);
        CHECK_NEAR(cases[i].forward * f, attention_with(gpu, cases[i].kernel, PHASE_FORWARD),
                   1e-6);
        CHECK_NEAR(cases[i].backward * b, attention_with(gpu, cases[i].kernel, PHASE_DGRAD),
                   1e-6);
        json_close(doc);
        arena_free(&arena);
    }
}

/* ---- what the host does about transfers ---- */

static double run_ns(const char *text, const Setting *settings, uint32_t settings_n,
                     const Software *sw)
{
    Scenario s = { 0 };
    Graph g = { 0 };
    SimResult result = { 0 };
    SimOptions options = { 0 };
    Err err = { 0 };
    JsonDoc *doc = json_parse(text, strlen(text), "x", &err);
    bool ok = scenario_from(&s, doc, settings, settings_n, &err) &&
              build_graph(&g, &s, sw, &err) &&
              sim_run(&result, &g, &s.machine, sw, &options, &err);
    if (!ok)
        printf("  %s\n", err.text);
    CHECK(ok);
    double ns = (double)result.step_ns;
    sim_result_free(&result);
    graph_free(&g);
    scenario_free(&s);
    return ns;
}

/* Step time of 8 small layers on 4 stages, launches at 14 times their cost. */
static double step_ns(bool blocks_host, const char *overlap_pp, const char *hidden)
{
    static const char text[] =
        "{\"model\":{\"kind\":\"transformer\",\"layers\":8,\"hidden\":256,\"heads\":8,"
        "\"vocab\":1024,\"max_seq\":512},\"cluster\":\"dgx-a100\",\"training\":{"
        "\"global_batch\":8,\"seq_len\":512},\"parallel\":{\"pp\":4}}";
    const Setting settings[] = { { "parallel.overlap.pp", overlap_pp },
                                 { "model.hidden", hidden } };
    Software sw;
    Arena arena = { 0 };
    CHECK(read_stack(&sw, &arena, "megatron-lm-2022"));
    sw.host_scale = 14;
    sw.p2p_blocks_host = blocks_host;
    double ns = run_ns(text, settings, ARRAY_N(settings), &sw);
    arena_free(&arena);
    return ns;
}

/* Where launches are what takes time, a stage whose host waits for transfers cannot launch while
 * it waits: filling the pipeline costs as much again as in a stack that goes on.  Where kernels
 * take longer than launches it costs next to nothing, and with overlap nobody waits. */
static void a_blocked_host_cannot_launch_ahead(void)
{
    double ahead = step_ns(false, "false", "256"), blocked = step_ns(true, "false", "256");
    printf("  small layers on 4 stages: host goes on %.2f ms, waits %.2f ms\n", ahead / 1e6,
           blocked / 1e6);
    CHECK(blocked > 1.2 * ahead);
    CHECK_NEAR(step_ns(false, "true", "256"), step_ns(true, "true", "256"), 0);
    double large = step_ns(false, "false", "8192");
    CHECK(step_ns(true, "false", "8192") < 1.03 * large);
    CHECK(step_ns(true, "false", "8192") >= large);
}

/* "The most dramatic optimization to nanoGPT so far (~25% speedup) is to simply increase vocab size
 * from 50257 to 50304" (A. Karpathy, 3 February 2023, A100); and padding what HF's GPT-2 multiplies
 * makes it 30 % faster there (github.com/intel/torch-xpu-ops/issues/1129).  Nothing was fitted on
 * either. */
static void a_padded_vocabulary_makes_gpt2_faster(void)
{
    static const char text[] =
        "{\"model\":\"gpt2\",\"cluster\":{\"base\":\"dgx-a100\",\"gpus_per_node\":1},"
        "\"training\":{\"global_batch\":12,\"micro_batch\":12,\"seq_len\":1024,"
        "\"precision\":\"bf16\"},\"parallel\":{\"strategy\":\"single\"}}";
    Software sw;
    Arena arena = { 0 };
    CHECK(read_stack(&sw, &arena, "nanogpt-2023"));
    CHECK_U64(64, sw.vocab_multiple);
    double padded = run_ns(text, NULL, 0, &sw);
    sw.vocab_multiple = 1;
    double odd = run_ns(text, NULL, 0, &sw);
    printf("  GPT-2 with 50257 words, A100: %.1f %% faster with 50304; published 25, 30\n",
           100 * (odd / padded - 1));
    CHECK(odd > 1.2 * padded && odd < 1.4 * padded);
    arena_free(&arena);
}

/*
 * One micro-batch there and back over 2 stages of 8 ranks, where nothing but links costs: of S
 * bytes each rank sends an eighth over its NIC, 10 bytes/ns, and the receivers gather seven
 * eighths over their ports, 100 bytes/ns, in seven hops of 1 us.
 */
static void scattered_activations_save_what_the_nics_need_not_carry(void)
{
    static const char text[] =
        "{\"model\":{\"kind\":\"transformer\",\"layers\":4,\"hidden\":1024,\"heads\":8,"
        "\"vocab\":1024,\"max_seq\":512},\"cluster\":{\"base\":\"ideal\",\"nodes\":2},"
        "\"training\":{\"global_batch\":1,\"seq_len\":512},\"parallel\":{\"tp\":8,\"pp\":2}}";
    const Setting settings[] = { { "cluster.inter_node.GBps_per_nic", "10" } };
    const double s = 512 * 1024 * 2;
    double whole_ns = s / 10, parts_ns = s / 8 / 10 + 7 * 1000 + s * 7 / 8 / 100;
    Software sw;
    Arena arena = { 0 };
    CHECK(read_stack(&sw, &arena, "megatron-lm-2022"));
    CHECK(sw.p2p_scatter_gather);
    double scattered = run_ns(text, settings, ARRAY_N(settings), &sw);
    sw.p2p_scatter_gather = false;
    double whole = run_ns(text, settings, ARRAY_N(settings), &sw);
    CHECK(fabs(2 * (whole_ns - parts_ns) - (whole - scattered)) <= 8);
    arena_free(&arena);
}

/* ---- buckets ---- */

/* Of gradients; DeepSpeed's are whole in bf16. */
static bool is_sum(const Op *op)
{
    return op->kind == OP_REDUCE_SCATTER ||
           (op->kind == OP_ALL_REDUCE && op->u.comm.bytes > 4096);
}

/* Gradient buckets of 4 layers of 12.6 M parameters on 8 ranks; bucket_bytes NULL: not given. */
static uint32_t buckets_n(const char *stack, const char *bucket_bytes)
{
    static const char text[] =
        "{\"model\":{\"kind\":\"transformer\",\"layers\":4,\"hidden\":1024,\"heads\":8,"
        "\"vocab\":1024,\"max_seq\":8},\"cluster\":\"dgx-h100\",\"training\":{\"global_batch\":"
        "8,\"seq_len\":8},\"parallel\":{\"dp\":8,\"strategy\":\"zero1\"}}";
    const Setting setting = { "parallel.bucket_bytes", bucket_bytes };
    Scenario s = { 0 };
    Software sw;
    Graph g = { 0 };
    Arena arena = { 0 };
    Err err = { 0 };
    JsonDoc *doc = json_parse(text, strlen(text), "x", &err);
    bool ok = read_stack(&sw, &arena, stack) &&
              scenario_from(&s, doc, &setting, bucket_bytes ? 1 : 0, &err) &&
              build_graph(&g, &s, &sw, &err);
    if (!ok)
        printf("  %s\n", err.text);
    CHECK(ok);
    uint32_t n = 0;
    for (uint32_t i = 0; ok && i < g.roles[0].instances_n; i++) {
        const Segment *segment = &g.segments[g.roles[0].instances[i].segment];
        for (uint32_t o = 0; o < segment->op_n; o++)
            n += is_sum(&graph_ops(&g, segment)[o]);
    }
    graph_free(&g);
    scenario_free(&s);
    arena_free(&arena);
    return n;
}

/* 52 M parameters: two of Megatron's buckets of 40 M, one of NeMo's 128 Mi or DeepSpeed's 500 M,
 * and four of PyTorch's 25 MiB in two bytes each. */
static void a_scenario_without_bucket_bytes_gets_the_stacks(void)
{
    CHECK_INT(2, buckets_n("megatron-core-2025", NULL));
    CHECK_INT(1, buckets_n("nemo-2025", NULL));
    CHECK_INT(1, buckets_n("megatron-deepspeed-2022", NULL));
    CHECK_INT(4, buckets_n("generic", NULL));
    CHECK_INT(4, buckets_n("generic", "25MiB"));
    CHECK(buckets_n("megatron-core-2025", "25MiB") > 4); /* summed in f32 */
    CHECK_INT(1, buckets_n("megatron-core-2025", "1GiB"));
}

static int64_t step_of(const char *stack, const char *dim, const char *value,
                       const char *const *job)
{
    char key[32];
    snprintf(key, sizeof key, "parallel.overlap.%s", dim);
    Setting settings[] = { { "software", stack }, { key, value },     { job[1], job[2] },
                           { job[3], job[4] },    { job[5], job[6] }, { "model.layers", "2" } };
    Built b;
    SimResult r;
    int64_t step_ns = 0;
    if (built_read(&b, job[0], settings, ARRAY_N(settings)) &&
        built_run(&r, &b, (SimOptions){ 0 })) {
        step_ns = r.step_ns;
        sim_result_free(&r);
    }
    built_free(&b);
    return step_ns;
}

/* Whatever a stack does by habit: what is asked for is done, by one mechanism or another.  But the
 * executor has no ring of keys and values. */
static void overlap_that_is_asked_for_is_done(void)
{
    static const char *const jobs[][8] = {
        { "llama3-8b-ddp", "parallel.dp", "8", "parallel.tp", "1", "parallel.cp", "1", "dp" },
        { "llama3-8b-ddp", "parallel.strategy", "zero1", "parallel.tp", "1", "parallel.cp", "1",
          "dp" },
        { "llama3-8b-fsdp", "parallel.dp", "8", "parallel.tp", "1", "parallel.cp", "1", "dp" },
        { "llama3-8b-tp", "parallel.dp", "1", "parallel.tp", "8", "parallel.cp", "1", "tp" },
        { "llama3-8b-ddp", "parallel.dp", "1", "parallel.tp", "1", "parallel.cp", "8", "cp" },
        { "llama3-8b-ddp", "parallel.dp", "1", "parallel.pp", "4", "parallel.cp", "2", "pp" },
    };
    for (size_t i = 0; i < ARRAY_N(stacks) * ARRAY_N(jobs); i++) {
        const char *stack = stacks[i / ARRAY_N(jobs)], *const *job = jobs[i % ARRAY_N(jobs)];
        bool gathers = strcmp(stack, "lockstep") == 0 && strcmp(job[7], "cp") == 0;
        int64_t with_ns = step_of(stack, job[7], "true", job);
        if (!CHECK((with_ns == step_of(stack, job[7], "false", job)) == gathers))
            fprintf(stderr, "%s: overlap.%s\n", stack, job[7]);
    }
}

/* zero1 of two layers: of what is gathered, weights of their matmuls in fp8 take one byte, the
 * table, the head and the norms two. */
static void weights_of_fp8_matmuls_may_be_gathered_in_fp8(void)
{
    static const struct {
        const char *stack, *precision;
        uint64_t bytes;
    } rows[] = { { "nemo-2025", "fp8", 1 },
                 { "nemo-2025", "bf16", 2 },
                 { "megatron-core-2025", "fp8", 2 } };
    const uint64_t H = 4096, KV = 1024, F = 14336, V = 128256;
    for (size_t i = 0; i < ARRAY_N(rows); i++) {
        Setting settings[] = { { "software", rows[i].stack },
                               { "training.precision", rows[i].precision },
                               { "parallel.strategy", "zero1" },
                               { "model.layers", "2" } };
        Built b;
        uint64_t bytes = 0, linear = 2 * (H * (H + 2 * KV) + H * H + 3 * H * F);
        if (built_read(&b, "llama3-8b-ddp", settings, ARRAY_N(settings)))
            for (uint32_t k = 0; k < b.g.roles[0].instances_n; k++) {
                const Segment *s = &b.g.segments[b.g.roles[0].instances[k].segment];
                if (s->kind == SEGMENT_GATHER)
                    bytes += graph_ops(&b.g, s)[0].u.comm.bytes;
            }
        CHECK_U64(rows[i].bytes * linear + 2 * (2 * V * H + 5 * H), bytes);
        built_free(&b);
    }
}

int main(void)
{
    RUN(every_stack_of_the_contract_reads);
    RUN(every_fact_has_a_source_of_its_own);
    RUN(scalars_are_sane_and_say_what_they_were_fitted_on);
    RUN(stacks_are_what_they_are_known_for);
    RUN(strategies_that_a_stack_has_not_are_lacking);
    RUN(facts_of_distributed_optimizers_and_fsdp_are_those_of_the_time);
    RUN(stacks_have_what_measured_runs_used);
    RUN(older_attention_kernels_take_longer);
    RUN(a_blocked_host_cannot_launch_ahead);
    RUN(a_padded_vocabulary_makes_gpt2_faster);
    RUN(a_scenario_without_bucket_bytes_gets_the_stacks);
    RUN(overlap_that_is_asked_for_is_done);
    RUN(weights_of_fp8_matmuls_may_be_gathered_in_fp8);
    RUN(scattered_activations_save_what_the_nics_need_not_carry);
    return check_report();
}

/*
 * test_formats.c - number formats, by what the scenario and the software say.
 */
#include "sim/formats.h"
#include "tests/built.h"
#include "tests/graph_check.h"

#include <string.h>

/* What readers make of "precision": bf16 and adamw. */
static Training silent(void)
{
    return (Training){ .precision = DTYPE_BF16,
                       .param_dtype = DTYPE_BF16,
                       .grad_dtype = DTYPE_BF16,
                       .reduce_dtype = DTYPE_BF16,
                       .master_weights = true };
}

/* "param read grad reduce shard stream, masters, casts" */
static const char *formats(const Training *t, const Software *sw, bool fsdp)
{
    static char text[128];
    Parallel p = { .strategy = fsdp ? STRATEGY_FSDP : STRATEGY_DDP, .dp = 2, .cp = 1, .pp = 1 };
    Formats f = formats_of(t, &p, sw);
    snprintf(text, sizeof text, "%s %s %s %s %s %s%s%s", dtype_names[f.param],
             dtype_names[f.read], dtype_names[f.grad], dtype_names[f.reduce],
             dtype_names[f.shard], dtype_names[f.stream], f.masters ? ", masters" : "",
             f.casts ? ", casts" : "");
    return text;
}

static void the_software_speaks_where_the_scenario_is_silent(void)
{
    const Software plain = { 0 }, params = { .f32_params = true },
                   autocast = { .f32_params = true, .f32_stream = true },
                   grads = { .f32_grads = true }, reduce = { .f32_reduce = true },
                   titan = { .f32_params = true, .f32_reduce = true };
    const struct {
        const Software *sw;
        bool fsdp;
        const char *formats;
    } cases[] = {
        { &plain, false, "bf16 bf16 bf16 bf16 bf16 bf16, masters" },
        { &plain, true, "bf16 bf16 bf16 bf16 bf16 bf16, masters" },
        { &grads, false, "bf16 bf16 f32 f32 f32 bf16, masters" },
        { &reduce, true, "bf16 bf16 bf16 f32 f32 bf16, masters" },
        { &params, true, "f32 bf16 bf16 bf16 f32 bf16" },
        { &titan, true, "f32 bf16 bf16 f32 f32 bf16" },
        { &params, false, "bf16 bf16 bf16 bf16 bf16 bf16, masters" },
        { &autocast, false, "f32 f32 f32 f32 f32 f32, casts" },
        { &autocast, true, "f32 bf16 bf16 bf16 f32 bf16" },
    };
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        Training t = silent();
        CHECK_STR(cases[i].formats, formats(&t, cases[i].sw, cases[i].fsdp));
    }
}

/* Megatron-LM: bf16 asks for sums in f32, f16 has its loss scaled instead. */
static void gradients_of_f16_may_stay_so(void)
{
    const Software grads = { .f32_grads = true, .f16_grads = true };
    Training t = silent();
    CHECK_STR("bf16 bf16 f32 f32 f32 bf16, masters", formats(&t, &grads, false));
    t.precision = t.param_dtype = t.grad_dtype = t.reduce_dtype = DTYPE_F16;
    CHECK_STR("f16 f16 f16 f16 f16 f16, masters", formats(&t, &grads, false));
    t.grad_dtype_set = true;
    t.grad_dtype = t.reduce_dtype = DTYPE_F32;
    CHECK_STR("f16 f16 f32 f32 f32 f16, masters", formats(&t, &grads, false));
}

/* DeepSpeed: its optimizer for bf16 keeps f32 gradients, those for f16 and for shards do not. */
static void gradients_of_bf16_may_be_f32(void)
{
    const Software grads = { .bf16_grads_f32 = true };
    Training t = silent();
    CHECK_STR("bf16 bf16 f32 f32 f32 bf16, masters", formats(&t, &grads, false));
    CHECK_STR("bf16 bf16 bf16 bf16 bf16 bf16, masters", formats(&t, &grads, true));
    t.precision = t.param_dtype = t.grad_dtype = t.reduce_dtype = DTYPE_F16;
    CHECK_STR("f16 f16 f16 f16 f16 f16, masters", formats(&t, &grads, false));
}

static void what_the_scenario_says_counts(void)
{
    const Software params = { .f32_params = true },
                   autocast = { .f32_params = true, .f32_stream = true },
                   titan = { .f32_params = true, .f32_reduce = true };
    Training t = silent();
    t.param_dtype_set = true;
    CHECK_STR("bf16 bf16 bf16 bf16 bf16 bf16, masters", formats(&t, &params, true));
    CHECK_STR("bf16 bf16 bf16 bf16 bf16 bf16, masters", formats(&t, &params, false));
    /* What a reader makes of "param_dtype": "f32" is what the software would have said. */
    t.param_dtype = t.grad_dtype = t.reduce_dtype = DTYPE_F32;
    t.master_weights = false;
    CHECK_STR("f32 bf16 bf16 bf16 f32 bf16", formats(&t, &params, true));
    CHECK_STR("f32 f32 f32 f32 f32 f32, casts", formats(&t, &autocast, false));
    /* Who asks for f32 under fsdp means the shards, whatever the software: they are gathered in 16
     * bits, and gradients are in the format of what was gathered. */
    const Software plain = { 0 }, reduce = { .f32_reduce = true };
    CHECK_STR("f32 bf16 bf16 bf16 f32 bf16", formats(&t, &plain, true));
    CHECK_STR("f32 bf16 bf16 f32 f32 bf16", formats(&t, &reduce, true));
    CHECK_STR("f32 f32 f32 f32 f32 bf16", formats(&t, &plain, false));
    /* Who says how gradients are kept has not said how they are summed. */
    t = silent();
    t.grad_dtype_set = true;
    CHECK_STR("f32 bf16 bf16 f32 f32 bf16", formats(&t, &titan, true));
    t = silent();
    t.master_weights_set = true;
    CHECK_STR("bf16 bf16 bf16 bf16 bf16 bf16, masters", formats(&t, &params, true));
    t.master_weights = false;
    CHECK_STR("f32 bf16 bf16 bf16 f32 bf16", formats(&t, &params, true));
    t = silent();
    t.reduce_dtype_set = true;
    CHECK_STR("f32 bf16 bf16 bf16 f32 bf16", formats(&t, &titan, true));
    t = silent();
    t.grad_dtype_set = true;
    t.grad_dtype = t.reduce_dtype = DTYPE_F32;
    CHECK_STR("f32 bf16 f32 f32 f32 bf16", formats(&t, &params, true));
}

/* Autograd makes a gradient in the format of what was read; a matmul that adds does so in f32. */
static void who_adds_says_how_gradients_are_made(void)
{
    Training t = silent();
    Parallel p = { .strategy = STRATEGY_DDP, .dp = 2, .cp = 1, .pp = 1 };
    for (int accumulates = 0; accumulates < 2; accumulates++) {
        const Software sw = { .f32_grads = true, .wgrad_accumulate = accumulates };
        CHECK_INT(DTYPE_F32, formats_of(&t, &p, &sw).grad);
        CHECK_INT(accumulates ? DTYPE_F32 : DTYPE_BF16, formats_of(&t, &p, &sw).made);
    }
    const Software nemo = { .f32_grads = true, .pp_accumulates = true };
    CHECK_INT(DTYPE_BF16, formats_of(&t, &p, &nemo).made);
    p.pp = 2;
    CHECK_INT(DTYPE_F32, formats_of(&t, &p, &nemo).made);
}

/* f32 and tf32 have nothing to cast; fp8 is cast from the f32 weights as 16 bits are, by torchao
 * and under Transformer Engine's fp8_autocast. */
static void f32_has_nothing_to_cast(void)
{
    const Software params = { .f32_params = true, .f32_stream = true };
    Training t = silent();
    t.precision = DTYPE_FP8;
    CHECK_STR("f32 f32 f32 f32 f32 f32, casts", formats(&t, &params, false));
    CHECK_STR("f32 bf16 bf16 bf16 f32 bf16", formats(&t, &params, true));
    t.precision = DTYPE_TF32;
    t.param_dtype = t.grad_dtype = t.reduce_dtype = DTYPE_F32;
    t.master_weights = false;
    CHECK_STR("f32 f32 f32 f32 f32 f32", formats(&t, &params, false));
    CHECK_STR("f32 f32 f32 f32 f32 f32", formats(&t, &params, true));
}

#define EXPERTS_OF_TP_4 \
    .strategy = STRATEGY_FSDP, .has_experts = true, .dp = 1, .cp = 1, .tp = 4

static void only_more_than_one_rank_shards(void)
{
    const Software silent = { 0 }, whole = { .whole_experts = true };
    const struct {
        Parallel parallel;
        bool shards, shards_whole; /* by a habit of cut, of whole experts */
    } cases[] = {
        { { .strategy = STRATEGY_FSDP, .dp = 1, .cp = 1 }, false, false },
        { { .strategy = STRATEGY_FSDP, .dp = 1, .cp = 1, .tp = 4, .ep = 1 }, false, false },
        { { .strategy = STRATEGY_FSDP, .dp = 1, .cp = 2 }, true, true },
        /* Whole experts on 4 ranks of tp: two pairs with the same, or nobody; of all alike. */
        { { EXPERTS_OF_TP_4, .ep = 2 }, true, true },
        { { EXPERTS_OF_TP_4, .ep = 4 }, false, false },
        { { EXPERTS_OF_TP_4, .ep = 1, .etp = 1 }, true, true },
        { { EXPERTS_OF_TP_4, .ep = 1, .etp = 4 }, false, false },
        { { EXPERTS_OF_TP_4, .ep = 1 }, false, true },
        { { .strategy = STRATEGY_HSDP, .dp = 4, .cp = 1, .shard_size = 1 }, false, false },
        { { .strategy = STRATEGY_HSDP, .dp = 4, .cp = 1, .shard_size = 2 }, true, true },
        { { .strategy = STRATEGY_ZERO2, .dp = 4, .cp = 1 }, false, false },
    };
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        CHECK_INT(cases[i].shards, shards_params(&cases[i].parallel, &silent));
        CHECK_INT(cases[i].shards_whole, shards_params(&cases[i].parallel, &whole));
    }
}

/* FSDP2 sums the micro-batches of a pipeline in the format that it reduces in. */
static void with_a_pipeline_fsdp_sums_as_it_reduces(void)
{
    const Software titan = { .f32_params = true, .f32_reduce = true },
                   reduces = { .f32_reduce = true };
    Training t = silent();
    Parallel p = { .strategy = STRATEGY_FSDP, .dp = 2, .cp = 1, .pp = 2 };
    CHECK_INT(DTYPE_F32, formats_of(&t, &p, &titan).grad);
    CHECK_INT(DTYPE_BF16, formats_of(&t, &p, &titan).made);
    CHECK_INT(DTYPE_BF16, formats_of(&t, &p, &reduces).grad);
    p.pp = 1;
    CHECK_INT(DTYPE_BF16, formats_of(&t, &p, &titan).grad);
    p.pp = 2;
    t.grad_dtype_set = true;
    CHECK_INT(DTYPE_BF16, formats_of(&t, &p, &titan).grad);
}

/* Whatever the stack keeps in f32: what is born dies, and all of it runs. */
static void every_strategy_takes_every_format(void)
{
    static const char *const softwares[] = { "pytorch-ddp", "torchtitan-2025", "maxtext-2025" };
    static const struct {
        const char *strategy, *dp, *pp, *schedule, *recompute;
    } cases[] = {
        { "dp", "4", "1", "1f1b", "none" },        { "ddp", "4", "1", "1f1b", "full" },
        { "zero1", "4", "1", "1f1b", "none" },     { "zero2", "4", "1", "1f1b", "selective" },
        { "fsdp", "4", "1", "1f1b", "selective" }, { "hsdp", "4", "1", "1f1b", "none" },
        { "ddp", "2", "2", "zb-h1", "none" },      { "fsdp", "2", "2", "1f1b", "none" },
        { "zero1", "2", "2", "zbv", "full" },
    };
    for (size_t k = 0; k < ARRAY_N(softwares) * ARRAY_N(cases); k++) {
        size_t i = k % ARRAY_N(cases);
        const Setting settings[] = { { "software", softwares[k / ARRAY_N(cases)] },
                                     { "cluster", "dgx-a100" },
                                     { "model.layers", "4" },
                                     { "parallel.strategy", cases[i].strategy },
                                     { "parallel.dp", cases[i].dp },
                                     { "parallel.pp", cases[i].pp },
                                     { "parallel.schedule", cases[i].schedule },
                                     { "parallel.shard_size", "2" },
                                     { "training.global_batch", "16" },
                                     { "training.micro_batch", "1" },
                                     { "training.recompute", cases[i].recompute } };
        Built b;
        if (!built_read(&b, "scenarios/examples/gpt2-ddp.json", settings, ARRAY_N(settings)))
            continue;
        check_lives(&b.g);
        SimResult r;
        if (CHECK(built_run(&r, &b, (SimOptions){ .expanded = true })))
            CHECK(r.step_ns > 0);
        sim_result_free(&r);
        built_free(&b);
    }
}

int main(void)
{
    RUN(the_software_speaks_where_the_scenario_is_silent);
    RUN(gradients_of_f16_may_stay_so);
    RUN(gradients_of_bf16_may_be_f32);
    RUN(what_the_scenario_says_counts);
    RUN(who_adds_says_how_gradients_are_made);
    RUN(f32_has_nothing_to_cast);
    RUN(only_more_than_one_rank_shards);
    RUN(with_a_pipeline_fsdp_sums_as_it_reduces);
    RUN(every_strategy_takes_every_format);
    return check_report();
}

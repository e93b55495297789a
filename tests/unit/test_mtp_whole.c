/*
 * test_mtp_whole.c - scenarios with layers that predict further tokens: who trains them, where they
 * stand, and that every strategy can.
 */
#include "sim/blocks.h"
#include "tests/built.h"
#include "tests/graph_check.h"

#include <string.h>

#define MODEL \
    "{\"model_type\":\"deepseek_v3\",\"hidden_size\":256,\"intermediate_size\":512," \
    "\"num_hidden_layers\":8,\"num_attention_heads\":4,\"num_key_value_heads\":4," \
    "\"vocab_size\":1024,\"n_routed_experts\":8,\"num_experts_per_tok\":2," \
    "\"moe_intermediate_size\":128,\"first_k_dense_replace\":1,\"q_lora_rank\":96," \
    "\"kv_lora_rank\":64,\"qk_nope_head_dim\":32,\"qk_rope_head_dim\":16,\"v_head_dim\":32," \
    "\"num_nextn_predict_layers\":1}"

/* layers: --set model.mtp_layers; NULL: not set. */
static bool build(Built *b, const char *layers, bool tied, const char *software,
                  const char *training, const char *parallel, Err *err)
{
    char text[4000];
    Setting settings[2];
    uint32_t n = 0;
    *b = (Built){ 0 };
    if (layers)
        settings[n++] = (Setting){ "model.mtp_layers", layers };
    if (tied)
        settings[n++] = (Setting){ "model.tied_embeddings", "true" };
    snprintf(text, sizeof text,
             "{\"name\":\"mtp\",\"model\":%s,\"cluster\":{\"base\":\"dgx-h100\",\"nodes\":2},"
             "\"software\":\"%s\",\"training\":{\"global_batch\":64,\"micro_batch\":1,"
             "\"seq_len\":512%s},\"parallel\":{%s}}",
             MODEL, software, training, parallel);
    JsonDoc *doc = json_parse(text, strlen(text), "mtp", err);
    return doc && scenario_from(&b->s, doc, settings, n, err) &&
           software_read(&b->sw, &b->arena, b->s.software, err) &&
           build_graph(&b->g, &b->s, &b->sw, err);
}

#define DDP "\"strategy\":\"ddp\",\"dp\":16"

static uint32_t layers_trained(const char *layers, const char *software)
{
    Built b;
    Err err = { 0 };
    CHECK(build(&b, layers, false, software, "", DDP, &err));
    uint32_t n = mtp_layers(&(Build){ .s = &b.s, .sw = &b.sw });
    built_free(&b);
    return n;
}

static void who_trains_them(void)
{
    CHECK_INT(1, layers_trained(NULL, "megatron-bridge"));
    CHECK_INT(1, layers_trained(NULL, "nemo-2025"));
    CHECK_INT(0, layers_trained(NULL, "generic"));
    CHECK_INT(2, layers_trained("2", "generic"));
    CHECK_INT(0, layers_trained("0", "megatron-bridge"));
}

static int64_t step_of(const char *layers, bool tied, const char *training,
                       const char *parallel)
{
    Built b;
    Err err = { 0 };
    SimResult r = { 0 };
    if (!CHECK(build(&b, layers, tied, "megatron-bridge", training, parallel, &err)))
        fprintf(stderr, "%s: %s\n", parallel, err.text);
    else if (built_run(&r, &b, (SimOptions){ 0 })) {
        /* In pairs a shared expert may let go of what an all-to-all still sends: not theirs. */
        if (!hides_in_pairs(&(Build){ .s = &b.s, .sw = &b.sw }))
            check_lives(&b.g);
        check_runs(&b.g);
    }
    int64_t step_ns = r.step_ns;
    sim_result_free(&r);
    built_free(&b);
    return step_ns;
}

/* Every way to split the work: lives, order, and it takes longer. */
static void every_strategy_trains_them(void)
{
    static const char *const ways[] = {
        DDP,
        "\"strategy\":\"ddp\",\"dp\":2,\"pp\":8",
        "\"strategy\":\"ddp\",\"dp\":4,\"pp\":4,\"ep\":4",
        "\"strategy\":\"zero1\",\"dp\":4,\"pp\":2,\"tp\":2,\"sequence_parallel\":true,\"ep\":2",
        "\"strategy\":\"zero1\",\"dp\":4,\"pp\":4,\"schedule\":\"interleaved\","
        "\"virtual_stages\":2,\"ep\":2,\"overlap\":{\"ep\":true}",
        "\"strategy\":\"zero1\",\"dp\":4,\"pp\":4,\"schedule\":\"zb-h1\"",
        "\"strategy\":\"zero1\",\"dp\":4,\"pp\":4,\"schedule\":\"zbv\",\"virtual_stages\":2",
        "\"strategy\":\"zero1\",\"dp\":4,\"pp\":4,\"schedule\":\"dualpipe\","
        "\"virtual_stages\":2,\"ep\":4",
        "\"strategy\":\"zero2\",\"dp\":8,\"cp\":2",
        "\"strategy\":\"fsdp\",\"dp\":16",
        "\"strategy\":\"fsdp\",\"dp\":4,\"pp\":2,\"tp\":2,\"sequence_parallel\":true",
        "\"strategy\":\"hsdp\",\"dp\":16,\"shard_size\":8",
    };
    static const char *const trainings[] = { "", ",\"recompute\":\"full\"",
                                             ",\"recompute\":\"selective\"",
                                             ",\"precision\":\"fp8\"" };
    for (size_t i = 0; i < ARRAY_N(ways); i++)
        for (size_t k = 0; k < 2 * ARRAY_N(trainings); k++) {
            bool tied = k % 2;
            const char *training = trainings[k / 2];
            if (check_takes(i * 16 + k))
                CHECK(step_of(tied ? "1" : "2", tied, training, ways[i]) >
                      step_of("0", tied, training, ways[i]));
        }
}

/* The table lies on both ends of a pipeline, and its two gradients are summed. */
static void the_table_is_on_both_ends_of_a_pipeline(void)
{
    Built b;
    Err err = { 0 };
    uint32_t sums[4] = { 0 };
    CHECK(build(&b, NULL, false, "megatron-bridge", "",
                "\"strategy\":\"ddp\",\"dp\":4,\"pp\":4", &err));
    for (uint32_t r = 0; r < b.g.roles_n; r++)
        for (uint32_t i = 0; i < b.g.roles[r].instances_n; i++) {
            const Segment *s = &b.g.segments[b.g.roles[r].instances[i].segment];
            sums[r] +=
                strcmp(intern_text(&b.g.names, s->name), "all-reduce tied embedding") == 0;
        }
    CHECK_INT(1, sums[0]);
    CHECK_INT(0, sums[1] + sums[2]);
    CHECK_INT(1, sums[3]);
    built_free(&b);
}

static void what_cannot_be_trained_is_said(void)
{
    static const struct {
        const char *layers, *parallel, *says;
    } cases[] = {
        { "1", "\"strategy\":\"dp\",\"dp\":8",
          "layers that predict further tokens cannot be trained by parallel.strategy 'dp'; "
          "model.mtp_layers 0 is allowed" },
        { "4", DDP, "model.mtp_layers: 4 is out of range, 0 to 3 allowed" },
    };
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        Built b;
        Err err = { 0 };
        CHECK(!build(&b, cases[i].layers, false, "generic", "", cases[i].parallel, &err));
        if (!CHECK(strstr(err.text, cases[i].says) != NULL))
            fprintf(stderr, "%s\n", err.text);
        built_free(&b);
    }
}

int main(void)
{
    setenv("LOCKSTEP_SHARE", "scenarios", 0);
    RUN(who_trains_them);
    RUN(every_strategy_trains_them);
    RUN(the_table_is_on_both_ends_of_a_pipeline);
    RUN(what_cannot_be_trained_is_said);
    return check_report();
}

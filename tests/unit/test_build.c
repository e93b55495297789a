/*
 * test_build.c - whole graphs of real models, from scenario to kernels.
 *
 * Whatever the passes and the lowering made of a scenario, nothing may race, leak
 * or block: tests/graph_check.h.  And what cannot be built says so.
 */
#include "tests/graph_check.h"

#include "sim/build.h"

#include <time.h>

enum { SETTINGS_MAX = 16 };

typedef struct Built {
    Scenario s;
    Software sw;
    Arena arena;
    Graph g;
    Err err;
    bool ok;
    double ms; /* of build_graph alone */
} Built;

/* Software to build with: a file's, and two that no file describes: all habits of one kind. */
typedef enum Habits { GENERIC, LOCKSTEP, EAGER, BLOCKING, HABITS_N } Habits;

static const char *const habit_names[HABITS_N] = { "generic", "lockstep", "eager", "blocking" };

/* Nothing fused, gradients freed and copied; with and without overlap. */
static void take_habits(Software *sw, Habits h)
{
    if (h < EAGER)
        return;
    *sw = (Software){ .name = habit_names[h],
                      .bucket_copies = true,
                      .p2p_waits_for_send = true,
                      .tp_async_backward = h == EAGER,
                      .selective_attention = true,
                      .vocab_multiple = 128,
                      .host_scale = 1,
                      .compute_scale = 1,
                      .comm_scale = 1 };
    for (int d = 0; d < DIM_N; d++)
        sw->overlap[d] = h == EAGER;
}

/* settings: "key=value" texts up to NULL */
static void build(Built *x, const char *scenario, Habits habits, const char *const *settings)
{
    char text[SETTINGS_MAX][128];
    Setting set[SETTINGS_MAX];
    uint32_t n = 0;
    for (; settings && settings[n]; n++) {
        ASSERT(n < SETTINGS_MAX);
        snprintf(text[n], sizeof text[n], "%s", settings[n]);
        char *value = strchr(text[n], '=');
        *value++ = '\0';
        set[n] = (Setting){ text[n], value };
    }
    *x = (Built){ 0 };
    struct timespec a, z;
    bool read =
        scenario_read(&x->s, scenario, set, n, &x->err) &&
        software_read(&x->sw, &x->arena, habits == LOCKSTEP ? "lockstep" : "generic", &x->err);
    take_habits(&x->sw, habits);
    clock_gettime(CLOCK_MONOTONIC, &a);
    x->ok = read && build_graph(&x->g, &x->s, &x->sw, &x->err);
    clock_gettime(CLOCK_MONOTONIC, &z);
    x->ms = (double)(z.tv_sec - a.tv_sec) * 1e3 + (double)(z.tv_nsec - a.tv_nsec) / 1e6;
}

static void unbuild(Built *x)
{
    graph_free(&x->g);
    scenario_free(&x->s);
    arena_free(&x->arena);
}

static void check_build(const char *scenario, Habits habits, const char *const *settings)
{
    uint32_t failures = check_state.test_failures_n;
    Built x;
    build(&x, scenario, habits, settings);
    if (CHECK(x.ok)) {
        check_lives(&x.g);
        check_runs(&x.g);
    }
    if (failures != check_state.test_failures_n) {
        fprintf(stderr, "    %s with software %s", scenario, habit_names[habits]);
        for (uint32_t n = 0; settings && settings[n]; n++)
            fprintf(stderr, ", %s", settings[n]);
        fprintf(stderr, "\n    %s\n", x.err.text);
    }
    unbuild(&x);
}

#define GPT2   "scenarios/examples/gpt2-ddp.json"
#define GPT3   "scenarios/examples/gpt3-175b-pp.json"
#define LLAMA  "scenarios/examples/llama3-8b-fsdp.json"
#define RESNET "scenarios/examples/resnet50-ddp.json"
#define MLP    "scenarios/examples/toy-mlp-ddp.json"

#define WITH(...) ((const char *const[]){ __VA_ARGS__, NULL })

static void check_all(const char *scenario, const char *const *settings)
{
    for (int h = 0; h < HABITS_N; h++)
        check_build(scenario, (Habits)h, settings);
}

static void examples_build(void)
{
    check_all(GPT2, NULL);
    check_all(LLAMA, NULL);
    check_all(RESNET, NULL);
    check_all(MLP, NULL);
}

static void pipelines_of_real_models_build(void)
{
    check_all(GPT2, WITH("parallel.dp=2", "parallel.pp=4", "training.global_batch=16",
                         "training.micro_batch=1", "training.grad_clip=1"));
    check_all(GPT2, WITH("parallel.dp=2", "parallel.pp=2", "parallel.tp=2",
                         "parallel.sequence_parallel=true", "training.global_batch=16",
                         "parallel.schedule=interleaved", "parallel.virtual_stages=3",
                         "training.micro_batch=1", "training.recompute=full"));
    check_all(LLAMA, WITH("parallel.dp=2", "parallel.pp=2", "parallel.tp=2",
                          "training.global_batch=8", "training.recompute=selective"));
    check_all(MLP, WITH("parallel.dp=1", "parallel.pp=2"));
    check_all(MLP, WITH("parallel.dp=2", "parallel.pp=2", "cluster=dgx-h100",
                        "model={\"kind\":\"mlp\",\"widths\":[64,128,64],\"batchnorm\":true}",
                        "parallel.sync_batchnorm=true"));
}

static void sharded_real_models_build(void)
{
    check_all(GPT2, WITH("parallel.strategy=fsdp", "training.param_dtype=f32"));
    check_all(RESNET, WITH("parallel.strategy=fsdp"));
    check_all(RESNET, WITH("parallel.strategy=fsdp", "parallel.sync_batchnorm=true"));
    check_all(RESNET, WITH("parallel.sync_batchnorm=true"));
    check_all(MLP, WITH("parallel.strategy=fsdp", "training.global_batch=256"));
    check_all(LLAMA, WITH("training.global_batch=16", "parallel.reshard_after_forward=false"));
    check_all(LLAMA, WITH("training.reduce_dtype=f32", "training.grad_clip=1"));
}

static void shared_out_updates_of_real_models_build(void)
{
    const char *const strategies[] = { "parallel.strategy=zero1", "parallel.strategy=zero2",
                                       "parallel.strategy=hsdp" };
    for (size_t i = 0; i < ARRAY_N(strategies); i++) {
        check_all(GPT2, WITH(strategies[i], "parallel.shard_size=4", "training.grad_clip=1"));
        check_all(RESNET, WITH(strategies[i], "parallel.shard_size=2"));
        check_all(MLP, WITH(strategies[i], "training.global_batch=256"));
        check_all(LLAMA, WITH(strategies[i], "training.global_batch=16", "parallel.dp=4",
                              "parallel.tp=2", "parallel.sequence_parallel=true",
                              "parallel.shard_size=2"));
    }
    check_all(GPT2, WITH("parallel.strategy=zero1", "parallel.dp=2", "parallel.pp=4",
                         "training.global_batch=16", "training.micro_batch=1"));
    check_all(GPT2, WITH("parallel.strategy=hsdp", "parallel.dp=4", "parallel.pp=2",
                         "parallel.shard_size=2", "training.global_batch=16",
                         "training.micro_batch=1"));
}

/* A chain of nine kernels per tensor has the tensor's share of the rank's part. */
static void unfused_optimizers_update_a_part(void)
{
    Built x;
    build(&x, GPT2, EAGER, WITH("parallel.strategy=zero1"));
    if (CHECK(x.ok)) {
        uint64_t updated = 0;
        const Role *role = &x.g.roles[0];
        for (uint32_t i = 0; i < role->instances_n; i++) {
            const Segment *s = &x.g.segments[role->instances[i].segment];
            for (uint32_t k = 0; k < s->op_n; k++) {
                const Op *op = &graph_ops(&x.g, s)[k];
                updated += op->kind == OP_OPTIMIZER ? op->u.elements : 0;
            }
        }
        double part = (double)model_params(&x.s.model) / x.s.parallel.dp;
        CHECK_NEAR(9 * part, (double)updated, 0.001); /* the vocabulary is padded */
    }
    unbuild(&x);
}

static void layers_over_gpus_build(void)
{
    check_all(GPT2, WITH("parallel.strategy=model_parallel", "parallel.dp=1", "parallel.pp=4",
                         "training.global_batch=8", "training.micro_batch=8"));
    check_all(MLP, WITH("parallel.strategy=model_parallel", "parallel.dp=1", "parallel.pp=2",
                        "training.global_batch=64", "training.micro_batch=64"));
    check_all(GPT2, WITH("parallel.dp=2", "parallel.pp=4", "parallel.schedule=gpipe",
                         "training.global_batch=16", "training.micro_batch=2"));
    check_all(GPT2, WITH("parallel.dp=2", "parallel.pp=4", "parallel.schedule=naive",
                         "training.global_batch=16", "training.micro_batch=2"));
}

/* Sequences over ranks, by a ring and gathered, with every way to share out the rest. */
static void sequences_over_ranks_build(void)
{
    const char *const strategies[] = { "parallel.strategy=ddp", "parallel.strategy=zero1",
                                       "parallel.strategy=zero2", "parallel.strategy=fsdp",
                                       "parallel.strategy=hsdp" };
    for (size_t i = 0; i < ARRAY_N(strategies); i++) {
        check_all(LLAMA, WITH(strategies[i], "parallel.dp=4", "parallel.cp=2",
                              "parallel.shard_size=2", "training.recompute=selective"));
        check_all(GPT2, WITH(strategies[i], "parallel.dp=1", "parallel.cp=4", "parallel.tp=2",
                             "parallel.sequence_parallel=true", "training.recompute=full"));
    }
    check_all(LLAMA, WITH("parallel.dp=1", "parallel.cp=8", "training.attention=math"));
    check_all(LLAMA, WITH("parallel.dp=1", "parallel.cp=4", "parallel.overlap=false"));
    check_all(GPT2, WITH("parallel.strategy=zero1", "parallel.dp=2", "parallel.cp=2",
                         "parallel.pp=2", "training.global_batch=8", "training.micro_batch=1"));
}

static void large_models_build_in_little_time(void)
{
    const char *const names[] = { GPT3, "scenarios/examples/llama3-405b-3d.json" };
    for (size_t i = 0; i < ARRAY_N(names); i++) {
        Built x;
        build(&x, names[i], GENERIC, NULL);
        CHECK(x.ok && x.ms < 1000);
        if (getenv("CHECK_VERBOSE"))
            fprintf(stderr, "%s in %.1f ms\n", names[i], x.ms);
        unbuild(&x);
    }
}

/* ---- what is not there yet ---- */

static void check_refused(const char *scenario, const char *const *settings, const char *part)
{
    Built x;
    build(&x, scenario, GENERIC, settings);
    CHECK(!x.ok);
    CHECK_ERR_TEXT(&x.err, part);
    unbuild(&x);
}

static void what_cannot_be_built_is_a_sentence(void)
{
    check_refused(GPT2, WITH("parallel.strategy=zero2", "parallel.dp=4", "parallel.pp=2"),
                  "DeepSpeed refuses stage 2 with pipelines");
    check_refused(LLAMA,
                  WITH("model=mixtral-8x7b", "parallel.strategy=ddp", "parallel.dp=3",
                       "parallel.cp=4", "parallel.ep=2", "parallel.order=dp,tp,cp,pp,ep",
                       "training.global_batch=3", "model.num_local_experts=6", "parallel.ep=6",
                       "parallel.tp=2", "parallel.sequence_parallel=true", "cluster.nodes=3"),
                  "parallel.ep 6 takes neither whole groups of cp = 4 nor of dp = 3");
    check_refused(
        LLAMA,
        WITH("model=mixtral-8x7b", "parallel.strategy=ddp", "parallel.dp=3", "parallel.cp=4",
             "parallel.pp=2", "parallel.order=dp,pp,tp,cp,ep", "training.global_batch=3",
             "model.num_local_experts=6", "parallel.ep=6", "parallel.etp=1", "parallel.tp=2",
             "parallel.sequence_parallel=true", "cluster.nodes=6"),
        "parallel.ep 6 takes neither whole groups of cp = 4 nor of dp = 3 nor of tp = "
        "2, which do not lie side by side in parallel.order; divisors of 4 are allowed");
    check_refused(LLAMA, WITH("model=deepseek-v2-lite", "model.kv_heads=4"),
                  "with latent attention every head has keys and values of its own");
    check_refused(LLAMA, WITH("model={\"model_type\":\"falcon\"}", "model.num_kv_heads=71"),
                  "counts with new_decoder_architecture only; kv_heads can be set");
    check_refused(LLAMA, WITH("model=deepseek-v2-lite", "model.head_dim=64"),
                  "with latent attention it is qk_nope_head_dim + qk_rope_head_dim");
    check_refused(GPT2,
                  WITH("parallel.dp=2", "parallel.pp=4", "parallel.schedule=dualpipe",
                       "parallel.virtual_stages=1"),
                  "its V can: virtual_stages 2, pp 2 and dp 4 give each GPU the same chunks");
    check_refused(GPT2,
                  WITH("parallel.dp=2", "parallel.pp=4", "parallel.schedule=zbv",
                       "parallel.overlap.pp=false"),
                  "schedule zbv needs transfers beside compute");
}

int main(void)
{
    RUN(examples_build);
    RUN(pipelines_of_real_models_build);
    RUN(sharded_real_models_build);
    RUN(shared_out_updates_of_real_models_build);
    RUN(unfused_optimizers_update_a_part);
    RUN(layers_over_gpus_build);
    RUN(sequences_over_ranks_build);
    RUN(large_models_build_in_little_time);
    RUN(what_cannot_be_built_is_a_sentence);
    return check_report();
}

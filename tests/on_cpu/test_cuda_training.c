/*
 * test_cuda_training.c - the CUDA backend trains like the CPU backend, on the stand-in device.
 *
 * The whole backend runs: memory, streams in any order that events allow, launches, graphs.
 * Only the device is the stand-in (tests/on_cpu/device.h, runtime.cu).  In f32 losses agree to
 * 1e-5 over the steps; in bf16 both round, not always the same way.
 */
#include "exec/cuda_plugin.h"
#include "tests/exec_world.h"
#include "tests/on_cpu/on_cpu.h"

enum { STEPS = 4 };

#define CLUSTER "\"cluster\":{\"base\":\"pcie-workstation\",\"nodes\":1,\"gpus_per_node\":8},"

static const char *const mlp =
    "{\"name\":\"mlp\",\"model\":{\"kind\":\"mlp\",\"widths\":[24,32,32,16],"
    "\"activation\":\"relu\"}," CLUSTER
    "\"training\":{\"global_batch\":16,\"micro_batch\":2,\"precision\":\"f32\",\"lr\":0.5,"
    "\"optimizer\":\"momentum\",\"loss\":\"mse\",\"grad_clip\":0.2},"
    "\"parallel\":{\"strategy\":\"ddp\",\"dp\":1}}";

static const char *const gpt =
    "{\"name\":\"gpt\",\"model\":{\"kind\":\"transformer\",\"layers\":2,\"hidden\":32,"
    "\"heads\":4,\"vocab\":61,\"max_seq\":16,\"activation\":\"gelu\",\"norm\":\"layernorm\","
    "\"positions\":\"learned\",\"tied_embeddings\":true}," CLUSTER
    "\"training\":{\"global_batch\":4,\"micro_batch\":2,\"seq_len\":16,\"precision\":\"f32\","
    "\"lr\":0.01,\"optimizer\":\"adamw\",\"grad_clip\":0.5},"
    "\"parallel\":{\"strategy\":\"ddp\",\"dp\":1}}";

static const char *const llama =
    "{\"name\":\"llama\",\"model\":{\"kind\":\"transformer\",\"layers\":2,\"hidden\":128,"
    "\"heads\":2,\"kv_heads\":1,\"ffn\":48,\"vocab\":64,\"max_seq\":16,\"gated\":true,"
    "\"activation\":\"silu\",\"norm\":\"rmsnorm\",\"positions\":\"rope\","
    "\"tied_embeddings\":false}," CLUSTER
    "\"training\":{\"global_batch\":4,\"micro_batch\":2,\"seq_len\":16,\"precision\":\"f32\","
    "\"lr\":0.01,\"optimizer\":\"adamw\",\"grad_clip\":0.5},"
    "\"parallel\":{\"strategy\":\"ddp\",\"dp\":1}}";

typedef struct Case {
    const char *text;
    double bound;
    RunSetting set[6];
} Case;

static const CudaOptions with_graphs = { .loop = true, .graphs = true, .timeout_s = 60 };
static const CudaOptions without = { .loop = true, .timeout_s = 60 };

static uint32_t settings_n(const Case *c)
{
    uint32_t n = 0;
    while (n < ARRAY_N(c->set) && c->set[n].key)
        n++;
    return n;
}

static bool losses_of(const Case *c, const CudaOptions *cuda, double *losses)
{
    ExecWorld w;
    Err err = { 0 };
    WorldOptions options = { .clock = RUN_WALL, .steps = STEPS, .cuda = cuda };
    options.backend = cuda ? &backend_cuda : NULL;
    bool ok = CHECK(world_open(&w, c->text, c->set, settings_n(c), &err));
    if (!ok)
        fprintf(stderr, "%s\n", err.text);
    if (ok) {
        ok = CHECK(world_run(&w, options));
        if (!ok)
            fprintf(stderr, "%s\n", w.result->text);
        memcpy(losses, w.result->losses, STEPS * sizeof *losses);
    }
    world_close(&w);
    CHECK_U64(0, on_cpu_allocated());
    return ok;
}

static void check_case(const Case *c, const CudaOptions *cuda)
{
    double want[STEPS], got[STEPS];
    if (!losses_of(c, NULL, want) || !losses_of(c, cuda, got))
        return;
    for (int i = 0; i < STEPS; i++)
        if (!CHECK_NEAR(want[i], got[i], c->bound * fabs(want[i])))
            fprintf(stderr, "step %d of '%.20s' with %s %s\n", i, c->text,
                    c->set[0].key ? c->set[0].key : "", c->set[0].value ? c->set[0].value : "");
    CHECK(want[0] != want[STEPS - 1]);
}

#define F32  1e-5
#define BF16 4e-3

static const Case alone[] = {
    { mlp, F32, { { 0 } } },
    { mlp, F32, { { "training.optimizer", "adam" }, { "training.grad_clip", "0" } } },
    { gpt, F32, { { 0 } } },
    { gpt, F32, { { "training.attention", "math" } } },
    { gpt, F32, { { "training.recompute", "selective" } } },
    { gpt, BF16, { { "training.precision", "bf16" } } },
    { gpt, BF16, { { "training.precision", "f16" } } },
    { llama, F32, { { 0 } } },
    { llama, BF16, { { "training.precision", "bf16" } } },
};

static void one_gpu_trains_like_one_process(void)
{
    for (size_t i = 0; i < ARRAY_N(alone); i++)
        check_case(&alone[i], &without);
}

/* Step 2 is captured, 3 and 4 are played: two launches and one of the capture. */
static void a_played_graph_is_the_step(void)
{
    for (size_t i = 0; i < ARRAY_N(alone); i += 5) {
        uint64_t before = on_cpu_graphs();
        check_case(&alone[i], &with_graphs);
        CHECK_U64(before + STEPS - 1, on_cpu_graphs());
    }
}

int main(void)
{
    RUN(one_gpu_trains_like_one_process);
    RUN(a_played_graph_is_the_step);
    return check_report();
}

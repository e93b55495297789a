/*
 * test_cuda_strategies.c - every way to split a model trains on the stand-in device as one
 * process of the CPU does: with ranks in a loop, and by NCCL.
 *
 * The whole backend runs, with as many ranks as the split has: kernels, streams, transfers.
 * The reference is the CPU backend with the same split.
 */
#include <nccl.h>

#include "exec/cuda_plugin.h"
#include "tests/exec_world.h"
#include "tests/on_cpu/on_cpu.h"

enum { STEPS = 3 };

#define CLUSTER "\"cluster\":{\"base\":\"pcie-workstation\",\"nodes\":1,\"gpus_per_node\":8},"

static const char *const mlp =
    "{\"name\":\"mlp\",\"model\":{\"kind\":\"mlp\",\"widths\":[8,16,16,4],"
    "\"activation\":\"relu\"}," CLUSTER
    "\"training\":{\"global_batch\":8,\"micro_batch\":2,\"precision\":\"f32\",\"lr\":0.5,"
    "\"optimizer\":\"momentum\",\"loss\":\"mse\",\"grad_clip\":0.2},"
    "\"parallel\":{\"strategy\":\"ddp\",\"dp\":1}}";

static const char *const gpt =
    "{\"name\":\"gpt\",\"model\":{\"kind\":\"transformer\",\"layers\":2,\"hidden\":16,"
    "\"heads\":2,\"vocab\":24,\"max_seq\":8,\"activation\":\"gelu\",\"norm\":\"layernorm\","
    "\"positions\":\"learned\",\"tied_embeddings\":true}," CLUSTER
    "\"training\":{\"global_batch\":4,\"micro_batch\":1,\"seq_len\":8,\"precision\":\"f32\","
    "\"lr\":0.01,\"optimizer\":\"adamw\",\"grad_clip\":0.5},"
    "\"parallel\":{\"strategy\":\"ddp\",\"dp\":1}}";

typedef struct Case {
    const char *model, *parallel;
} Case;

static const Case cases[] = {
    { "mlp", "{\"strategy\":\"dp\",\"dp\":2}" },
    { "mlp", "{\"strategy\":\"ddp\",\"dp\":4}" },
    { "mlp", "{\"strategy\":\"zero1\",\"dp\":2}" },
    { "mlp", "{\"strategy\":\"zero2\",\"dp\":4}" },
    { "mlp", "{\"strategy\":\"hsdp\",\"dp\":4,\"shard_size\":2}" },
    { "gpt", "{\"strategy\":\"fsdp\",\"dp\":2}" },
    { "gpt", "{\"strategy\":\"ddp\",\"tp\":2}" },
    { "gpt", "{\"strategy\":\"ddp\",\"tp\":2,\"sequence_parallel\":true}" },
    { "gpt", "{\"strategy\":\"ddp\",\"cp\":2}" },
    { "gpt", "{\"strategy\":\"ddp\",\"pp\":2,\"schedule\":\"1f1b\"}" },
    { "gpt", "{\"strategy\":\"ddp\",\"pp\":2,\"schedule\":\"gpipe\",\"dp\":2}" },
};

static bool losses_of(const Case *c, const CudaOptions *cuda, double *losses)
{
    ExecWorld w;
    Err err = { 0 };
    Setting set = { "parallel", c->parallel };
    WorldOptions options = { .clock = RUN_WALL, .steps = STEPS, .cuda = cuda };
    options.backend = cuda ? &backend_cuda : NULL;
    const char *text = strcmp(c->model, "mlp") == 0 ? mlp : gpt;
    bool ok = CHECK(world_open(&w, text, &set, 1, &err));
    if (!ok)
        fprintf(stderr, "%s %s: %s\n", c->model, c->parallel, err.text);
    if (ok) {
        ok = CHECK(world_run(&w, options));
        if (!ok)
            fprintf(stderr, "%s %s: %s\n", c->model, c->parallel, w.result->text);
        memcpy(losses, w.result->losses, STEPS * sizeof *losses);
    }
    world_close(&w);
    CHECK_U64(0, on_cpu_allocated());
    return ok;
}

static void train_cases(const CudaOptions *cuda, size_t each)
{
    for (size_t i = 0; i < ARRAY_N(cases); i += each) {
        double want[STEPS], got[STEPS];
        if (!check_takes(i) || !losses_of(&cases[i], NULL, want) ||
            !losses_of(&cases[i], cuda, got))
            continue;
        for (int s = 0; s < STEPS; s++)
            if (!CHECK_NEAR(want[s], got[s], 1e-5))
                fprintf(stderr, "step %d of %s %s\n", s, cases[i].model, cases[i].parallel);
        CHECK(want[0] != want[STEPS - 1]);
    }
}

static void a_loop_trains_like_the_cpu(void)
{
    train_cases(&(CudaOptions){ .loop = true, .timeout_s = 60 }, 1);
}

static void a_loop_with_rings_trains_like_the_cpu(void)
{
    train_cases(&(CudaOptions){ .loop = true, .rings = true, .timeout_s = 60 }, 3);
}

static void nccl_trains_like_the_cpu(void)
{
    setenv("NCCL_HOSTID", "all", 1); /* the ranks share the device here */
    train_cases(&(CudaOptions){ .timeout_s = 60 }, 1);
}

/* Replicas lay out their arenas alike, stages of a pipeline do not: what NCCL may register. */
static void arenas_of_one_layout_are_nccls(void)
{
    uint64_t before = on_cpu_nccl_allocations();
    double losses[STEPS];
    CudaOptions nccl = { .timeout_s = 60 };
    losses_of(&(Case){ "mlp", "{\"strategy\":\"ddp\",\"dp\":2}" }, &nccl, losses);
    CHECK_U64(before + 2, on_cpu_nccl_allocations());
    losses_of(&(Case){ "gpt", "{\"strategy\":\"ddp\",\"pp\":2}" }, &nccl, losses);
    CHECK_U64(before + 2, on_cpu_nccl_allocations());
}

/* GPUs that others use, too, have less room: what NCCL may register is all ranks', or none's. */
static void arenas_are_nccls_on_all_ranks_or_on_none(void)
{
    double losses[STEPS];
    for (uint64_t n = 1; n <= 3; n++) {
        on_cpu_nccl_refuse(n);
        CHECK(losses_of(&(Case){ "mlp", "{\"strategy\":\"ddp\",\"dp\":4}" },
                        &(CudaOptions){ .timeout_s = 60 }, losses));
    }
    on_cpu_nccl_refuse(0);
}

/* Not that there is no room for both. */
static void ranks_on_one_gpu_are_told_so(void)
{
    ExecWorld w;
    Err err = { 0 };
    Setting set = { "parallel", "{\"strategy\":\"ddp\",\"dp\":2}" };
    CudaOptions cuda = { .timeout_s = 60 };
    WorldOptions options = {
        .clock = RUN_WALL, .steps = STEPS, .cuda = &cuda, .backend = &backend_cuda
    };
    unsetenv("NCCL_HOSTID");
    on_cpu_memory(1 << 10);
    if (CHECK(world_open(&w, gpt, &set, 1, &err))) {
        CHECK(!world_run(&w, options));
        CHECK(
            strstr(w.result->text, "ranks 0 and 1 are on one GPU, which NCCL does not allow"));
    }
    world_close(&w);
    on_cpu_memory((uint64_t)1 << 30);
    setenv("NCCL_HOSTID", "all", 1);
}

static const Case pipelines[] = {
    { "gpt", "{\"strategy\":\"ddp\",\"pp\":2,\"schedule\":\"1f1b\",\"overlap\":true}" },
    { "gpt", "{\"strategy\":\"ddp\",\"pp\":2,\"schedule\":\"naive\",\"overlap\":true}" },
};

static void check_pipelines(void)
{
    double want[STEPS], got[STEPS];
    const CudaOptions cuda = { .timeout_s = 1 };
    for (size_t i = 0; i < ARRAY_N(pipelines); i++)
        if (losses_of(&pipelines[i], NULL, want) && losses_of(&pipelines[i], &cuda, got))
            for (int s = 0; s < STEPS; s++)
                CHECK_NEAR(want[s], got[s], 1e-5);
}

/* Receives are queued before what their senders wait for is. */
static void kernels_that_are_loaded_late_hold_nobody_up(void)
{
    on_cpu_lazy(true);
    check_pipelines();
    on_cpu_lazy(false);
}

static void a_host_that_waits_behind_kernels_holds_nobody_up(void)
{
    setenv("LOCKSTEP_CUDA_SYNC", "1", 1);
    check_pipelines();
    unsetenv("LOCKSTEP_CUDA_SYNC");
}

/* The stand-in for NCCL captures nothing, so the second step is launched again by all ranks: also
 * by those of a pipeline that would have met their transfers later. */
static void where_nccl_cannot_be_captured_no_rank_plays_a_graph(void)
{
    uint64_t before = on_cpu_graphs();
    train_cases(&(CudaOptions){ .timeout_s = 60, .graphs = true }, 9);
    CHECK_U64(before, on_cpu_graphs());
}

int main(void)
{
    RUN(a_loop_trains_like_the_cpu);
    RUN(a_loop_with_rings_trains_like_the_cpu);
    RUN(nccl_trains_like_the_cpu);
    RUN(arenas_of_one_layout_are_nccls);
    RUN(arenas_are_nccls_on_all_ranks_or_on_none);
    RUN(ranks_on_one_gpu_are_told_so);
    RUN(kernels_that_are_loaded_late_hold_nobody_up);
    RUN(a_host_that_waits_behind_kernels_holds_nobody_up);
    RUN(where_nccl_cannot_be_captured_no_rank_plays_a_graph);
    return check_report();
}

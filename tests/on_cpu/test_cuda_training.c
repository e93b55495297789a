/*
 * test_cuda_training.c - the CUDA backend trains like the CPU backend, on the stand-in device.
 *
 * The whole backend runs: memory, streams in any order that events allow, launches, graphs.
 * Only the device is the stand-in (tests/on_cpu/device.h, runtime.cu).  In f32 losses agree to
 * 1e-5 over the steps; in bf16 both round, not always the same way.
 */
#include "exec/cuda_plugin.h"
#include "sim/memory.h"
#include "tests/exec_world.h"
#include "tests/on_cpu/on_cpu.h"

enum { STEPS = 3 };

#define CLUSTER "\"cluster\":{\"base\":\"pcie-workstation\",\"nodes\":1,\"gpus_per_node\":8},"

static const char *const mlp =
    "{\"name\":\"mlp\",\"model\":{\"kind\":\"mlp\",\"widths\":[24,32,32,16],"
    "\"activation\":\"relu\"}," CLUSTER
    "\"training\":{\"global_batch\":16,\"micro_batch\":2,\"precision\":\"f32\",\"lr\":0.5,"
    "\"optimizer\":\"momentum\",\"loss\":\"mse\",\"grad_clip\":0.2},"
    "\"parallel\":{\"strategy\":\"ddp\",\"dp\":1}}";

static const char *const gpt =
    "{\"name\":\"gpt\",\"model\":{\"kind\":\"transformer\",\"layers\":2,\"hidden\":32,"
    "\"heads\":4,\"vocab\":61,\"max_seq\":8,\"activation\":\"gelu\",\"norm\":\"layernorm\","
    "\"positions\":\"learned\",\"tied_embeddings\":true}," CLUSTER
    "\"training\":{\"global_batch\":4,\"micro_batch\":2,\"seq_len\":8,\"precision\":\"f32\","
    "\"lr\":0.01,\"optimizer\":\"adamw\",\"grad_clip\":0.5},"
    "\"parallel\":{\"strategy\":\"ddp\",\"dp\":1}}";

static const char *const llama =
    "{\"name\":\"llama\",\"model\":{\"kind\":\"transformer\",\"layers\":1,\"hidden\":128,"
    "\"heads\":2,\"kv_heads\":1,\"ffn\":48,\"vocab\":64,\"max_seq\":16,\"gated\":true,"
    "\"activation\":\"silu\",\"norm\":\"rmsnorm\",\"positions\":\"rope\","
    "\"tied_embeddings\":false}," CLUSTER
    "\"training\":{\"global_batch\":4,\"micro_batch\":2,\"seq_len\":16,\"precision\":\"f32\","
    "\"lr\":0.01,\"optimizer\":\"adamw\",\"grad_clip\":0.5},"
    "\"parallel\":{\"strategy\":\"ddp\",\"dp\":1}}";

typedef struct Case {
    const char *text;
    double bound;
    Setting set[6];
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
        if (!CHECK_NEAR(want[i], got[i], c->bound))
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
    { llama, F32, { { "model.hidden", "32" } } },
    { llama, BF16, { { "training.precision", "bf16" } } },
};

static void one_gpu_trains_like_one_process(void)
{
    for (size_t i = 0; i < ARRAY_N(alone); i++)
        if (check_takes(i))
            check_case(&alone[i], &without);
}

/* Ranks are threads that share the device: their lanes' transfers and kernels meet in any order. */
static const Case split[] = {
    { mlp, F32, { { "parallel.dp", "2" }, { "parallel.strategy", "zero1" } } },
    { gpt, F32, { { "parallel.dp", "2" } } },
    { gpt, F32, { { "parallel.dp", "2" }, { "parallel.strategy", "fsdp" } } },
    { mlp,
      F32,
      { { "parallel.dp", "2" }, { "parallel.strategy", "dp" } } }, /* the host waits */
    { gpt, F32, { { "parallel.tp", "2" }, { "parallel.sequence_parallel", "true" } } },
    { gpt, F32, { { "parallel.pp", "2" }, { "training.micro_batch", "1" } } },
    { gpt, F32, { { "parallel.cp", "2" } } },
    { llama,
      BF16,
      { { "parallel.dp", "2" },
        { "parallel.strategy", "zero2" },
        { "model.hidden", "32" },
        { "training.precision", "bf16" } } },
};

static void split_work_is_the_same_work(void)
{
    for (size_t i = 0; i < ARRAY_N(split); i++)
        if (check_takes(i))
            check_case(&split[i], &without);
}

static bool train(ExecWorld *w, WorldOptions options, const CudaOptions *cuda)
{
    options.cuda = cuda;
    options.backend = cuda ? &backend_cuda : NULL;
    bool ok = CHECK(world_run(w, options));
    if (!ok)
        fprintf(stderr, "%s\n", w->result->text);
    return ok;
}

/* Trains on one, from its snapshot on another; the losses of both. */
static bool train_on_two(const Case *c, const CudaOptions *first, const CudaOptions *second,
                         double *losses)
{
    char folder[128], command[200];
    ExecWorld w;
    Err err = { 0 };
    snprintf(folder, sizeof folder, "%s/lockstep-test-cuda-%ld", P_tmpdir, (long)getpid());
    WorldOptions half = { .clock = RUN_WALL, .checkpoint = folder, .every = 1, .steps = 1 };
    WorldOptions rest = half;
    rest.steps = STEPS;
    rest.resume = true;
    bool ok =
        CHECK(world_open(&w, c->text, c->set, settings_n(c), &err)) && train(&w, half, first);
    if (ok) {
        losses[0] = w.result->losses[0];
        ok = train(&w, rest, second);
        memcpy(losses + 1, w.result->losses, (STEPS - 1) * sizeof *losses);
    }
    world_close(&w);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    CHECK(system(command) == 0);
    return ok;
}

/* What is on the GPU is written from there and read to there. */
static void a_snapshot_goes_from_one_backend_to_the_other(void)
{
    const Case c = { gpt, F32, { { "parallel.dp", "2" }, { "parallel.strategy", "fsdp" } } };
    double want[STEPS], there[STEPS], back[STEPS];
    if (!losses_of(&c, NULL, want) || !train_on_two(&c, &without, NULL, there) ||
        !train_on_two(&c, NULL, &without, back))
        return;
    for (int i = 0; i < STEPS; i++) {
        CHECK_NEAR(want[i], there[i], F32);
        CHECK_NEAR(want[i], back[i], F32);
    }
}

/* The first step is launched op by op, the second one captured, the third one played. */
static void a_played_graph_is_the_step(void)
{
    for (size_t i = 0; i < ARRAY_N(alone); i += 5) {
        uint64_t before = on_cpu_graphs();
        check_case(&alone[i], &with_graphs);
        CHECK_U64(before + STEPS - 1, on_cpu_graphs());
    }
}

/* A launch that cannot be captured: that step, and all later ones, go op by op. */
static void a_spoiled_capture_is_launched_again(void)
{
    uint64_t before = on_cpu_graphs();
    on_cpu_spoil_capture();
    check_case(&alone[1], &with_graphs);
    CHECK_U64(before, on_cpu_graphs());
}

static void no_graph_is_made_when_none_is_wanted(void)
{
    uint64_t before = on_cpu_graphs();
    setenv("LOCKSTEP_CUDA_GRAPH", "0", 1);
    check_case(&alone[0], &with_graphs);
    unsetenv("LOCKSTEP_CUDA_GRAPH");
    setenv("LOCKSTEP_CUDA_SYNC", "1", 1); /* waits behind each op */
    check_case(&alone[0], &with_graphs);
    unsetenv("LOCKSTEP_CUDA_SYNC");
    CHECK_U64(before, on_cpu_graphs());
}

/* ---- one step by hand ---- */

typedef struct Opened {
    ExecWorld w;
    Program p;
    Fabric *fabric;
    Job job;
    Backend *backend;
} Opened;

static bool load_zeros(void *user, const Task *t, const Buffer *b, void *out, Err *err)
{
    (void)user;
    (void)t;
    (void)err;
    memset(out, 0, b->bytes);
    return true;
}

static bool open_backend(Opened *x, const Case *c, bool timed, Err *err)
{
    *x = (Opened){ 0 };
    if (!CHECK(world_open(&x->w, c->text, c->set, settings_n(c), err)) ||
        !CHECK(program_make(&x->p, &x->w.plan.graph, 0, err)))
        return false;
    RankPlace place = { .world = 1, .local_n = 1, .timeout_s = 10, .digest = "" };
    if (!CHECK(fabric_open(&x->fabric, &place, 64, err)))
        return false;
    x->job = (Job){ .program = &x->p,
                    .fabric = x->fabric,
                    .facts = run_plan_facts(&x->w.plan, 0),
                    .hyper = x->w.plan.hyper,
                    .load = load_zeros,
                    .timed = timed,
                    .cuda = &without };
    return backend_cuda.open(&x->backend, &x->job, err);
}

static void close_backend(Opened *x)
{
    backend_cuda.close(x->backend);
    fabric_close(x->fabric);
    program_free(&x->p);
    world_close(&x->w);
    CHECK_U64(0, on_cpu_allocated());
}

static bool run_step(Opened *x, double *loss, Err *err)
{
    backend_cuda.begin_run(x->backend);
    backend_cuda.begin(x->backend, 0, 0);
    for (uint32_t t = 0; t < x->p.tasks_n; t++)
        backend_cuda.launch(x->backend, t, 0);
    return backend_cuda.end(x->backend, loss, err);
}

/* With times of each op wanted none begins before what it waits for, or its lane's last one, has
 * ended; otherwise, a lane's times still cover it from its first to its last op. */
static void check_times(const Opened *x, bool timed)
{
    const TaskRecord *r = backend_cuda.records(x->backend);
    int64_t now_ns = backend_cuda.now_ns(x->backend), slack_ns = 2000; /* of a float in ms */
    uint64_t wrong = 0;
    for (uint32_t t = 0; t < x->p.tasks_n; t++) {
        const Task *task = &x->p.tasks[t];
        wrong += r[t].start_ns < 0 || r[t].end_ns < r[t].start_ns || r[t].end_ns > now_ns;
        wrong += r[t].launched_ns > r[t].start_ns;
        if (task->order > 0) {
            uint32_t before = program_task_at(&x->p, task->lane, task->order - 1);
            wrong += r[t].end_ns + slack_ns < r[before].end_ns;
        }
        for (uint32_t i = 0; i < task->waits_n && timed; i++) {
            uint32_t awaited = program_marked(&x->p, x->p.waits[task->waits_first + i]);
            wrong += r[t].start_ns + slack_ns < r[awaited].end_ns;
        }
    }
    CHECK_U64(0, wrong);
}

static void times_follow_the_order_of_tasks(void)
{
    for (int timed = 0; timed < 2; timed++) {
        Opened x;
        Err err = { 0 };
        double loss = 0;
        if (CHECK(open_backend(&x, &alone[2], timed > 0, &err)) &&
            CHECK(run_step(&x, &loss, &err))) {
            check_times(&x, timed > 0);
            /* All parameters are zero: every class is as likely. */
            double terms = (double)x.job.facts.loss_terms;
            CHECK_NEAR(log(61), loss / terms, 1e-6);
        }
        close_backend(&x);
    }
}

/* ---- memory ---- */

/* The simulator's peak is the program's; the program's arena is one allocation, to the byte. */
static void what_is_predicted_is_what_is_allocated(void)
{
    for (size_t i = 0; i < ARRAY_N(alone); i++) {
        Opened x;
        Err err = { 0 };
        if (CHECK(open_backend(&x, &alone[i], false, &err))) {
            const Graph *g = &x.w.plan.graph;
            RoleMemory m = memory_of_role(g, graph_role_of(g, 0), NULL);
            CHECK_U64(m.peak_bytes, x.p.peak_bytes);
            CHECK(x.p.arena_bytes >= m.peak_bytes);
            CHECK_INT(1, (int64_t)on_cpu_allocations(x.p.arena_bytes));
            CHECK(on_cpu_allocated() > x.p.arena_bytes); /* scratch and workspaces beside it */
        }
        close_backend(&x);
    }
}

static void without_room_it_says_for_what(void)
{
    Opened x;
    Err err = { 0 };
    on_cpu_memory(1 << 16);
    CHECK(!open_backend(&x, &alone[7], false, &err));
    on_cpu_memory((uint64_t)1 << 30);
    CHECK_ERR_TEXT(&err, "GPU 0 has no room for the arena of rank 0: ");
    CHECK_ERR_TEXT(&err, "bytes (0.00 GiB) were asked, 0.00 of 0.00 GiB are free; its largest "
                         "tensor is '");
    close_backend(&x);
    Err second = { 0 };
    on_cpu_memory((uint64_t)16 << 20);
    CHECK(!open_backend(&x, &alone[7], false, &second));
    on_cpu_memory((uint64_t)1 << 30);
    CHECK_ERR_TEXT(&second, "GPU 0 has no room for scratch and workspaces of rank 0: ");
    close_backend(&x);
}

/* ---- errors ---- */

static void only_the_wall_has_a_clock_on_gpus(void)
{
    Job job = { .clock = RUN_PACED, .cuda = &without };
    Backend *b;
    Err err = { 0 };
    CHECK(!backend_cuda.open(&b, &job, &err));
    CHECK_ERR_TEXT(&err,
                   "the cuda backend runs on the clock of the wall only; clock 'paced' is "
                   "for --backend cpu");
}

static void a_launch_that_fails_names_its_op(void)
{
    ExecWorld w;
    Err err = { 0 };
    WorldOptions options = {
        .clock = RUN_WALL, .steps = STEPS, .cuda = &with_graphs, .backend = &backend_cuda
    };
    if (CHECK(world_open(&w, gpt, NULL, 0, &err))) {
        on_cpu_fail_launch(20);
        CHECK(!world_run(&w, options));
        CHECK(strstr(w.result->text, "rank 0, op ") != NULL);
        CHECK(strstr(w.result->text,
                     "CUDA: unspecified launch failure (cudaErrorLaunchFailure) "
                     "launching a kernel") != NULL);
    }
    world_close(&w);
    CHECK_U64(0, on_cpu_allocated());
}

/* Before anything is launched. */
static void what_no_grid_has_room_for_is_refused(void)
{
    static const char many[] =
        "{\"name\":\"many\",\"model\":{\"kind\":\"transformer\",\"layers\":1,\"hidden\":8,"
        "\"heads\":1,\"vocab\":8,\"ffn\":8,\"max_seq\":2},\"cluster\":\"pcie-workstation\","
        "\"training\":{\"micro_batch\":65536,\"seq_len\":2,\"precision\":\"f32\"},"
        "\"parallel\":{\"dp\":1}}";
    ExecWorld w;
    Err err = { 0 };
    WorldOptions options = {
        .clock = RUN_WALL, .steps = 1, .cuda = &without, .backend = &backend_cuda
    };
    if (CHECK(world_open(&w, many, NULL, 0, &err))) {
        CHECK(!world_run(&w, options));
        CHECK(
            strstr(w.result->text,
                   "the cuda backend has no kernel for attention with micro_batch 65536, up to "
                   "65535 is allowed") != NULL);
    }
    world_close(&w);
}

int main(void)
{
    RUN(one_gpu_trains_like_one_process);
    RUN(split_work_is_the_same_work);
    RUN(a_snapshot_goes_from_one_backend_to_the_other);
    RUN(a_played_graph_is_the_step);
    RUN(a_spoiled_capture_is_launched_again);
    RUN(no_graph_is_made_when_none_is_wanted);
    RUN(times_follow_the_order_of_tasks);
    RUN(what_is_predicted_is_what_is_allocated);
    RUN(without_room_it_says_for_what);
    RUN(only_the_wall_has_a_clock_on_gpus);
    RUN(a_launch_that_fails_names_its_op);
    RUN(what_no_grid_has_room_for_is_refused);
    return check_report();
}

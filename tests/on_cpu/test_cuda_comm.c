/*
 * test_cuda_comm.c - all transfers of a step, on the streams of the stand-in device: by NCCL's
 * stand-in and by ranks in one process, for every strategy.
 *
 * Each rank queues its program as the backend does, but kernels do nothing: each lane is a
 * stream, waits are events.  What its arena holds in the end is what the same program gives
 * when the fabric moves the same numbers, bit for bit.
 */
#include <cuda_runtime_api.h>
#include <nccl.h>

#include "exec/cuda_comm.h"
#include "exec/lanes.h"
#include "exec/launch.h"
#include "exec/net.h"
#include "tests/on_cpu/on_cpu.h"
#include "tests/split_job.h"

enum { STEPS = 2 };

typedef struct Side {
    const CudaCommType *type;
    Job *job;
    uint8_t *before[JOB_RANKS_MAX];
    uint8_t *got[JOB_RANKS_MAX], *expected[JOB_RANKS_MAX];
    bool rings;
    uint32_t silent; /* a rank that does not take part in the second step; NONE_U32 */
    double timeout_s;
    Err err[JOB_RANKS_MAX];
} Side;

typedef struct Walker {
    const Program *p;
    const CommCalls *calls;
    const CudaCommType *type;
    CudaComm *comm;
    Fabric *fabric;
    cudaStream_t stream[LANE_N];
    cudaEvent_t *event; /* by task, behind it */
} Walker;

/* ---- through the fabric ---- */

static bool fabric_tasks(void *user, uint32_t first, uint32_t n, Err *err)
{
    const Walker *w = user;
    return !op_is_comm(w->p->tasks[first].op->kind) ||
           fabric_run(w->fabric, calls_of(w->calls, first), n, err);
}

static bool walk_lanes(Walker *w, RunTasks *run, Err *err)
{
    Lanes *lanes = lanes_open(w->p, run, w, false);
    bool ok = true;
    lanes_begin(lanes);
    for (uint32_t t = 0; t < w->p->tasks_n && ok; t++)
        if (w->p->tasks[t].lane == LANE_HOST)
            ok = lanes_wait(lanes, t, err);
        else
            lanes_launch(lanes, t);
    ok = lanes_finish(lanes, err) && ok;
    lanes_close(lanes);
    return ok;
}

/* ---- on streams ---- */

static bool wait_marks(const Walker *w, cudaStream_t stream, const Mark *marks, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (cudaStreamWaitEvent(stream, w->event[program_marked(w->p, marks[i])], 0))
            return false;
    return true;
}

static bool queue_tasks(void *user, uint32_t first, uint32_t n, Err *err)
{
    const Walker *w = user;
    cudaStream_t stream = w->stream[w->p->tasks[first].lane];
    for (uint32_t t = first; t < first + n; t++) {
        const Task *task = &w->p->tasks[t];
        if (!wait_marks(w, stream, w->p->waits + task->waits_first, task->waits_n) ||
            !wait_marks(w, stream, w->p->guards + task->guards_first, task->guards_n))
            return err_set(err, "cannot wait");
    }
    if (op_is_comm(w->p->tasks[first].op->kind) && !w->type->run(w->comm, first, stream, err))
        return false;
    for (uint32_t t = first; t < first + n; t++)
        cudaEventRecord(w->event[t], stream);
    return true;
}

/* A host that runs ahead of the device, as under NCCL. */
static bool walk_ahead(Walker *w, Err *err)
{
    const Program *p = w->p;
    for (uint32_t t = 0; t < p->tasks_n; t += program_posted_n(p, t)) {
        const Task *task = &p->tasks[t];
        if (task->lane != LANE_HOST && !queue_tasks(w, t, program_posted_n(p, t), err))
            return false;
        if (task->lane == LANE_HOST)
            cudaEventRecord(w->event[t], w->stream[LANE_COMPUTE]);
    }
    return true;
}

static bool wait_device(const Walker *w, Err *err)
{
    int64_t since_ns = net_now_ns();
    for (int lane = 0; lane < LANE_N; lane++)
        while (cudaStreamQuery(w->stream[lane]) == cudaErrorNotReady)
            if (!w->type->poll(w->comm, since_ns, err))
                return false;
    return true;
}

/* ---- a rank ---- */

static bool run_steps(Side *s, Walker *w, uint32_t rank, uint8_t *arena, Err *err)
{
    bool ok = true;
    for (int step = 0; step < STEPS && ok; step++) {
        if (step > 0 && rank == s->silent) { /* until the others have given it up */
            while (!fabric_failure(w->fabric))
                net_sleep_ns(1000000);
            return err_set(err, "%s", fabric_failure(w->fabric));
        }
        ok = (s->type->blocks ? walk_lanes(w, queue_tasks, err) : walk_ahead(w, err)) &&
             wait_device(w, err);
    }
    if (ok)
        memcpy(s->got[rank], arena, w->p->arena_bytes);
    return ok;
}

static bool run_rank(Side *s, const RankPlace *place, Fabric *f, Walker *w, Err *err)
{
    uint32_t rank = place->rank;
    uint64_t bytes = w->p->arena_bytes;
    void *arena = NULL;
    if (cudaMalloc(&arena, bytes) != cudaSuccess)
        return err_set(err, "no memory");
    CudaCommJob job = { .program = w->p,
                        .calls = w->calls,
                        .fabric = f,
                        .arena = arena,
                        .arena_bytes = bytes,
                        .timeout_s = s->timeout_s,
                        .rings = s->rings };
    bool ok =
        (!s->type->check || s->type->check(&job, err)) && s->type->open(&w->comm, &job, err);
    if (ok) {
        memcpy(arena, s->before[rank], bytes);
        ok = fabric_barrier(f, err) && run_steps(s, w, rank, arena, err);
        if (!ok)
            fabric_abort(f, err->text);
        s->type->close(w->comm);
    }
    if (ok)
        cudaFree(arena);
    return ok;
}

static int rank_main(const RankPlace *place, void *user)
{
    Side *s = user;
    const Program *p = &s->job->program[place->rank];
    Err *err = &s->err[place->rank];
    CommCalls calls;
    Fabric *f = NULL;
    Walker w = { .p = p, .calls = &calls, .type = s->type };
    bool ok = calls_make(&calls, p, err) && fabric_open(&f, place, p->arena_bytes, err);
    w.fabric = f;
    w.event = mem_zero((size_t)p->tasks_n + 1, sizeof(cudaEvent_t));
    for (uint32_t t = 0; t < p->tasks_n; t++)
        cudaEventCreateWithFlags(&w.event[t], cudaEventDisableTiming);
    for (int lane = 0; lane < LANE_N; lane++)
        cudaStreamCreateWithFlags(&w.stream[lane], cudaStreamNonBlocking);
    if (ok) {
        fabric_use_rings(f, s->rings);
        memcpy(fabric_arena(f), s->before[place->rank], p->arena_bytes);
        for (int step = 0; step < STEPS && ok && s->silent == NONE_U32; step++)
            ok = walk_lanes(&w, fabric_tasks, err);
        memcpy(s->expected[place->rank], fabric_arena(f), p->arena_bytes);
        ok = ok && run_rank(s, place, f, &w, err);
    }
    if (ok) {
        fabric_barrier(f, err);
        for (uint32_t t = 0; t < p->tasks_n; t++)
            cudaEventDestroy(w.event[t]);
        for (int lane = 0; lane < LANE_N; lane++)
            cudaStreamDestroy(w.stream[lane]);
    }
    free(w.event);
    calls_free(&calls);
    fabric_close(f);
    return ok ? 0 : 1;
}

/* ---- all ranks ---- */

/* Numbers whose sums need rounding; for rings, where a reduce-scatter out of place is summed in
 * another order than the fabric's, small whole ones. */
static void side_open(Side *s, Job *j, const CudaCommType *type, bool rings)
{
    *s = (Side){ .type = type, .job = j, .rings = rings, .silent = NONE_U32, .timeout_s = 20 };
    for (uint32_t r = 0; r < j->ranks_n; r++) {
        uint64_t bytes = j->program[r].arena_bytes + 64;
        s->before[r] = mem_zero(bytes, 1);
        s->got[r] = mem_zero(bytes, 1);
        s->expected[r] = mem_zero(bytes, 1);
        for (uint64_t i = 0; i + 4 <= bytes; i += 4) {
            float x =
                (float)(mix_u64(r * 1000003 + i) >> 44) * 0x1p-10f; /* sums need rounding */
            memcpy(s->before[r] + i, &x, 4);
        }
    }
}

static void side_close(Side *s)
{
    for (uint32_t r = 0; r < s->job->ranks_n; r++) {
        free(s->before[r]);
        free(s->got[r]);
        free(s->expected[r]);
    }
}

static int side_run(Side *s)
{
    RankPlace place = { .digest = "test", .timeout_s = 20 };
    return launch_threads(s->job->ranks_n, rank_main, s, &place);
}

static const struct {
    const char *model, *settings;
    bool slow;     /* on a device of fibers */
    bool in_place; /* reduce-scatters: what they leave of the rest is another ring's */
} jobs[] = {
    { JOB_MLP, "strategy=single", false, false },
    { JOB_MLP, "strategy=dp dp=3", false, false },
    { JOB_MLP, "strategy=ddp dp=4 sync_batchnorm=true", false, false },
    { JOB_LINE, "strategy=zero2 dp=3 training.grad_clip=1", false, true },
    { JOB_GPT, "strategy=zero1 dp=4 training.global_batch=4", true, true },
    { JOB_GPT, "strategy=fsdp dp=2 tp=2 training.global_batch=4", true, false },
    { JOB_LLAMA, "strategy=hsdp dp=4 shard_size=2 training.global_batch=4", false, false },
    { JOB_LLAMA, "strategy=ddp tp=2 sequence_parallel=true training.global_batch=2", false,
      false },
    { JOB_LLAMA, "strategy=ddp cp=2 training.global_batch=4", false, false },
    { JOB_GPT, "strategy=ddp pp=2 schedule=gpipe dp=2 training.global_batch=8", true, false },
    { JOB_GPT, "strategy=ddp pp=4 schedule=1f1b training.global_batch=6", false, false },
    { JOB_GPT,
      "strategy=zero1 pp=2 virtual_stages=2 schedule=interleaved dp=2 training.global_batch=8",
      true, true },
    { JOB_LLAMA, "strategy=fsdp pp=2 dp=2 cp=2 training.global_batch=4", true, false },
};

static void check_all(const CudaCommType *type, bool rings)
{
    for (size_t i = 0; i < ARRAY_N(jobs); i++) {
        Job j;
        Side s;
        if ((type->blocks && jobs[i].slow) || (rings && jobs[i].in_place) ||
            !job_open(&j, jobs[i].model, jobs[i].settings))
            continue;
        side_open(&s, &j, type, rings);
        bool ok = CHECK_INT(0, side_run(&s));
        for (uint32_t r = 0; r < j.ranks_n && ok; r++) {
            uint64_t wrong = 0;
            for (uint64_t b = 0; b < j.program[r].arena_bytes; b++)
                wrong += s.got[r][b] != s.expected[r][b];
            ok = CHECK_U64(0, wrong);
        }
        CHECK_U64(0, on_cpu_nccl_waiting());
        for (uint32_t r = 0; r < j.ranks_n && !ok; r++)
            fprintf(stderr, "%s: rank %u: %s\n", jobs[i].settings, r, s.err[r].text);
        side_close(&s);
        job_close(&j);
    }
}

static void nccl_moves_what_the_fabric_moves(void)
{
    setenv("NCCL_HOSTID", "all", 1); /* the ranks share the device here */
    check_all(&cuda_comm_nccl, false);
}

static void a_loop_moves_what_the_fabric_moves(void)
{
    check_all(&cuda_comm_loop, false);
}

static void rings_of_a_loop_move_what_the_fabrics_move(void)
{
    check_all(&cuda_comm_loop, true);
}

/* ---- faults ---- */

static void check_fault(const CudaCommType *type, const char *settings, uint32_t silent,
                        double timeout_s, const char *sentence)
{
    Job j;
    Side s;
    if (!job_open(&j, JOB_GPT, settings))
        return;
    side_open(&s, &j, type, false);
    s.silent = silent;
    s.timeout_s = timeout_s;
    CHECK(side_run(&s) != 0);
    for (uint32_t r = 0; r < j.ranks_n; r++)
        CHECK_ERR_TEXT(&s.err[r], sentence);
    side_close(&s);
    job_close(&j);
}

static void ranks_that_share_a_gpu_are_told_what_to_do(void)
{
    unsetenv("NCCL_HOSTID");
    check_fault(
        &cuda_comm_nccl, "strategy=ddp dp=2", NONE_U32, 20,
        "ranks 0 and 1 are on one GPU, which NCCL does not allow: give every rank a GPU "
        "of its own (--local-rank says which, where --rank does), or run them in one process "
        "with --comm loop");
    setenv("NCCL_HOSTID", "all", 1);
}

static void a_silent_peer_is_named_with_the_op(void)
{
    check_fault(&cuda_comm_nccl, "strategy=ddp dp=2", 1, 0.5,
                "'all-reduce bucket 0' (all_reduce on lane 'reduce') has not ended within 5 s: "
                "rank 1 did not answer");
}

static void an_error_of_nccl_ends_everybody(void)
{
    on_cpu_nccl_break(ncclRemoteError);
    check_fault(&cuda_comm_nccl, "strategy=ddp dp=2", 1, 20, ": remote process exited");
    on_cpu_nccl_break(ncclSuccess);
}

/* While they connect two ranks make few groups, and dozens in their steps. */
static void a_call_that_does_not_come_back_ends_everybody(void)
{
    on_cpu_nccl_hold(16);
    check_fault(&cuda_comm_nccl, "strategy=fsdp dp=2", NONE_U32, 0.2,
                ": NCCL has not come back from a call for 1 s");
    on_cpu_nccl_hold(0);
}

static void a_launch_that_fails_ends_everybody(void)
{
    on_cpu_fail_launch(3);
    check_fault(&cuda_comm_loop, "strategy=ddp dp=2", NONE_U32, 20, "CUDA cannot launch a ");
    on_cpu_fail_launch(0);
}

int main(void)
{
    RUN(nccl_moves_what_the_fabric_moves);
    RUN(a_loop_moves_what_the_fabric_moves);
    RUN(rings_of_a_loop_move_what_the_fabrics_move);
    RUN(ranks_that_share_a_gpu_are_told_what_to_do);
    RUN(a_silent_peer_is_named_with_the_op);
    RUN(an_error_of_nccl_ends_everybody);
    RUN(a_call_that_does_not_come_back_ends_everybody);
    RUN(a_launch_that_fails_ends_everybody);
    return check_report();
}

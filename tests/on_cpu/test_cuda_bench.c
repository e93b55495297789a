/*
 * test_cuda_bench.c - the micro-benchmarks of `lockstep bench --backend cuda` on the stand-in
 * device: the same programs as on the CPU go through the CUDA backend, with and without graphs,
 * and with transfers between ranks in a loop.  Times mean nothing here, counts do.
 */
#include <string.h>

#include "exec/bench.h"
#include "exec/cuda_plugin.h"
#include "exec/launch.h"
#include "tests/check.h"
#include "tests/on_cpu/on_cpu.h"

typedef struct Hand {
    BenchTensor tensors[3];
    BenchArg args[3];
    BenchKernel k;
} Hand;

/* y [m, n] = x [m, k] w^T [n, k] */
static void hand_matmul(Hand *h, uint64_t m, uint64_t n, uint64_t k)
{
    static const Slot slots[] = { SLOT_STASH, SLOT_PARAM, SLOT_OUT };
    const uint64_t rows[] = { m, n, m }, columns[] = { k, k, n };
    *h = (Hand){ 0 };
    for (uint32_t i = 0; i < 3; i++) {
        h->tensors[i] = (BenchTensor){ .t = { .class_ = TENSOR_ACTIVATION,
                                              .dtype = DTYPE_F32,
                                              .bytes = 4 * rows[i] * columns[i],
                                              .dims = { rows[i], columns[i] } },
                                       .name = i == 1 ? "w" : "x",
                                       .slot = slots[i] };
        h->args[i] = (BenchArg){ i, i == 2 ? ARG_WRITE : ARG_READ };
    }
    h->k = (BenchKernel){
        .op = { .kind = OP_MATMUL,
                .dtype = DTYPE_F32,
                .u.matmul = { .m = m, .n = n, .k = k, .batch = 1, .transpose_b = true },
                .flops = 2.0 * (double)m * (double)n * (double)k },
        .name = "matmul",
        .segment = "forward",
        .tensors = h->tensors,
        .args = h->args,
        .tensors_n = 3,
        .args_n = 3,
        .bytes = 4 * (m * k + n * k + m * n),
        .facts = { .loss_terms = 1 }
    };
}

static void check_kernel(bool graphs)
{
    Hand h;
    Err err = { 0 };
    BenchResult out;
    RankPlace place = { .world = 1, .local_n = 1, .timeout_s = 10, .digest = "x" };
    CudaOptions cuda = { .graphs = graphs, .timeout_s = 10 };
    BenchRank rank = { .type = &backend_cuda, .cuda = &cuda, .world_n = 1 };
    hand_matmul(&h, 8, 16, 4);
    CHECK(fabric_open(&rank.fabric, &place, MIB, &err));
    BenchPlan plan = { .kernel = &h.k, .kernels_n = 6, .copies = 3, .world_n = 1 };
    if (!CHECK(bench_run(&out, &rank, &plan, &(BenchLimits){ 4, 4, 0 }, false, &err)))
        fprintf(stderr, "%s\n", err.text);
    CHECK_U64(4, out.kernel.n); /* a step is a sample */
    CHECK(out.kernel.median_ns > 0);
    CHECK_U64(0, out.transfer.n);
    fabric_close(rank.fabric);
    CHECK_U64(0, on_cpu_allocated());
}

static void kernels_are_timed_by_the_step(void)
{
    check_kernel(false);
}

static void kernels_in_a_graph_are_timed_by_the_step(void)
{
    check_kernel(true);
}

static int measure_rank(const RankPlace *place, void *user)
{
    static const OpKind kinds[] = { OP_ALL_REDUCE, OP_ALL_GATHER, OP_REDUCE_SCATTER,
                                    OP_BROADCAST,  OP_ALL_TO_ALL, OP_SEND };
    Hand h;
    Err err = { 0 };
    BenchResult out;
    CudaOptions cuda = { .loop = true, .timeout_s = 30 };
    BenchRank rank = {
        .type = &backend_cuda, .cuda = &cuda, .rank = place->rank, .world_n = place->world
    };
    (void)user;
    bool ok = fabric_open(&rank.fabric, place, MIB, &err);
    for (uint32_t i = 0; i < ARRAY_N(kinds) && ok; i++) {
        BenchTransfer t = { kinds[i], 4 * KIB };
        BenchPlan plan = { .transfer = &t, .transfers_n = 5, .world_n = place->world };
        ok = bench_run(&out, &rank, &plan, &(BenchLimits){ 2, 2, 0 }, false, &err) &&
             out.transfer.n == 2;
    }
    BenchTransfer t = { OP_ALL_REDUCE, 4 * KIB };
    hand_matmul(&h, 8, 16, 4);
    BenchPlan plan = { &h.k, 6, 1, &t, 4, place->world };
    rank.each_task = true;
    ok = ok && bench_run(&out, &rank, &plan, &(BenchLimits){ 2, 2, 0 }, true, &err) &&
         out.kernel.n == 12 && out.transfer.n == 8;
    if (!ok)
        fprintf(stderr, "rank %u: %s\n", (unsigned)place->rank, err.text);
    fabric_close(rank.fabric);
    return ok ? 0 : 1;
}

static void transfers_in_a_loop_are_timed(void)
{
    RankPlace place = { .world = 2, .local_n = 2, .timeout_s = 30, .digest = "x" };
    CHECK_U64(0, (uint64_t)launch_threads(2, measure_rank, NULL, &place));
    CHECK_U64(0, on_cpu_allocated());
}

int main(void)
{
    RUN(kernels_are_timed_by_the_step);
    RUN(kernels_in_a_graph_are_timed_by_the_step);
    RUN(transfers_in_a_loop_are_timed);
    return check_report();
}

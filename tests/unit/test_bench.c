/*
 * test_bench.c - the micro-benchmarks: what they run, and what they make of its times.
 *
 * A backend of the test's own has times by a law, so every number can be derived; the CPU's
 * shows that real kernels and transfers go through.
 */
#include "exec/cmd_bench.h"
#include "exec/launch.h"
#include "exec/number.h"
#include "tests/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- kernels by hand ---- */

typedef struct Hand {
    BenchTensor tensors[4];
    BenchArg args[4];
    BenchKernel k;
} Hand;

static BenchTensor hand_tensor(const char *name, TensorClass class_, Slot slot, uint32_t index,
                               DType dtype, uint64_t elements)
{
    return (BenchTensor){ .t = { .class_ = class_,
                                 .dtype = dtype,
                                 .bytes = elements * dtype_bytes(dtype),
                                 .dims = { elements } },
                          .name = name,
                          .slot = slot,
                          .index = index };
}

/* Adam's update: gradient, two moments, parameter. */
static void hand_optimizer(Hand *h, uint64_t elements)
{
    static const char *const names[] = { "g", "first moment", "second moment", "p" };
    static const Slot slots[] = { SLOT_GRAD, SLOT_STATE, SLOT_STATE, SLOT_PARAM };
    *h = (Hand){ 0 };
    for (uint32_t i = 0; i < 4; i++) {
        TensorClass class_ = slots[i] == SLOT_STATE ? TENSOR_OPTIMIZER : TENSOR_PARAM;
        h->tensors[i] = hand_tensor(names[i], class_, slots[i], i == 2, DTYPE_F32, elements);
        h->args[i] = (BenchArg){ i, i == 0 ? ARG_READ : ARG_UPDATE };
    }
    h->k = (BenchKernel){ .op = { .kind = OP_OPTIMIZER,
                                  .fn = FN_ADAM,
                                  .phase = PHASE_UPDATE,
                                  .dtype = DTYPE_F32,
                                  .u.elements = elements },
                          .name = "optimizer",
                          .segment = "update",
                          .tensors = h->tensors,
                          .args = h->args,
                          .tensors_n = 4,
                          .args_n = 4,
                          .bytes = 16 * elements,
                          .facts = { .loss_terms = 1, .vocab = 7 } };
}

static void hand_embedding(Hand *h)
{
    *h = (Hand){ 0 };
    h->tensors[0] = hand_tensor("tokens", TENSOR_BUFFER, SLOT_DATA, 0, DTYPE_I64, 100);
    h->tensors[1] = hand_tensor("y", TENSOR_ACTIVATION, SLOT_OUT, 0, DTYPE_BF16, 100);
    h->args[0] = (BenchArg){ 0, ARG_READ };
    h->args[1] = (BenchArg){ 1, ARG_WRITE };
    h->k = (BenchKernel){ .op = { .kind = OP_EMBEDDING, .dtype = DTYPE_BF16 },
                          .name = "embedding",
                          .segment = "forward",
                          .tensors = h->tensors,
                          .args = h->args,
                          .tensors_n = 2,
                          .args_n = 2,
                          .bytes = 1000,
                          .facts = { .loss_terms = 1, .vocab = 7 } };
}

/* ---- a backend by a law: task i lasts from 100 i to 100 i + 40, 30 of it busy ---- */

struct Backend {
    const Job *job;
    uint64_t launched, steps;
    TaskRecord records[4096];
    uint64_t written_bytes;
    bool good_data;
};

static struct Backend *law; /* the one that is open */

static bool law_open(Backend **b, const Job *job, Err *err)
{
    (void)err;
    law->job = job;
    law->good_data = true;
    *b = law;
    return true;
}

static void law_close(Backend *b)
{
    (void)b;
}

/* No zeros, no endless numbers; what the optimizer keeps is above 0, tokens are in the
 * vocabulary. */
static bool law_write(Backend *b, uint64_t offset, const void *from, uint64_t bytes, Err *err)
{
    (void)err;
    const Program *p = b->job->program;
    const Resident *x = p->residents;
    while (offset < x->offset || offset >= x->offset + x->bytes)
        x++;
    b->written_bytes += bytes;
    for (uint64_t i = 0; i < bytes / dtype_bytes(x->dtype); i++) {
        const uint8_t *at = (const uint8_t *)from + i * dtype_bytes(x->dtype);
        float value = 0;
        int64_t token = 0;
        if (x->dtype == DTYPE_I64)
            memcpy(&token, at, sizeof token);
        else
            numbers_widen(x->dtype, at, 1, &value);
        bool good = x->dtype == DTYPE_I64 ? token >= 0 && token < 7
                                          : fabsf(value) >= 0.5f && fabsf(value) <= 1.5f;
        b->good_data = b->good_data && good && (x->class_ != TENSOR_OPTIMIZER || value > 0);
    }
    return true;
}

static void law_begin_run(Backend *b)
{
    (void)b;
}

static void law_begin(Backend *b, uint64_t step, int64_t from_ns)
{
    (void)step, (void)from_ns;
    b->launched = 0;
    b->steps++;
}

/* Transfers take 200, and wait 20 of that for the last. */
static void law_launch(Backend *b, uint32_t task, int64_t launched_ns)
{
    (void)launched_ns;
    int64_t at = 100 * (int64_t)task;
    bool comm = op_is_comm(b->job->program->tasks[task].op->kind);
    b->records[task] = (TaskRecord){ .start_ns = at,
                                     .met_ns = comm ? at + 20 : at,
                                     .end_ns = comm ? at + 200 : at + 40,
                                     .busy_ns = b->job->timed && !comm ? 30 : 0 };
    b->launched++;
}

static bool law_end(Backend *b, double *loss, Err *err)
{
    (void)err;
    *loss = 0;
    return b->launched == b->job->program->tasks_n;
}

static const TaskRecord *law_records(const Backend *b)
{
    return b->records;
}

/* A microsecond for each step so far. */
static int64_t law_now(const Backend *b)
{
    return (int64_t)b->steps * 1000;
}

static const BackendType backend_law = { .open = law_open,
                                         .close = law_close,
                                         .write = law_write,
                                         .begin_run = law_begin_run,
                                         .begin = law_begin,
                                         .launch = law_launch,
                                         .end = law_end,
                                         .records = law_records,
                                         .now_ns = law_now };

static BenchResult run_law(const BenchPlan *plan, const BenchLimits *l, bool each_task,
                           bool each_transfer)
{
    BenchResult out = { 0 };
    Err err = { 0 };
    RankPlace place = { .world = 1, .local_n = 1, .timeout_s = 10, .digest = "x" };
    BenchRank rank = { .type = &backend_law, .world_n = 1, .each_task = each_task };
    CHECK(fabric_open(&rank.fabric, &place, KIB, &err));
    CHECK(bench_run(&out, &rank, plan, l, each_transfer, &err));
    fabric_close(rank.fabric);
    return out;
}

static void a_task_is_a_sample_without_what_others_took(void)
{
    Hand h;
    hand_optimizer(&h, 1000);
    BenchPlan plan = { .kernel = &h.k, .kernels_n = 8, .copies = 3, .world_n = 1 };
    BenchResult r = run_law(&plan, &(BenchLimits){ 2, 2, 0 }, true, false);
    CHECK_NEAR(30, r.kernel.median_ns, 1e-12);
    CHECK_NEAR(0.25, r.kernel.taken, 1e-12);
    CHECK_U64(16, r.kernel.n);
    CHECK_U64(3, law->steps); /* the warm-up, and two */
    CHECK(law->good_data);
    CHECK_U64(UINT64_C(4) * 3 * 16000, law->written_bytes); /* before, and before each step */
}

static void a_step_is_a_sample_where_tasks_are_not_timed(void)
{
    Hand h;
    hand_embedding(&h);
    BenchPlan plan = { .kernel = &h.k, .kernels_n = 5, .copies = 1, .world_n = 1 };
    BenchResult r = run_law(&plan, &(BenchLimits){ 1, 100, 4500 }, false, false);
    CHECK_NEAR((4 * 100 + 40) / 5.0, r.kernel.median_ns, 1e-12);
    CHECK(isnan(r.kernel.taken));
    CHECK_U64(4, r.kernel.n); /* begun at 1, 2, 3, 4 us */
    CHECK(law->good_data);
    CHECK_U64(1000, law->written_bytes); /* once: it changes nothing that it reads */
}

static void copies_fill_the_cache(void)
{
    Hand h;
    hand_optimizer(&h, 1000);
    CHECK_U64(1, bench_copies(&h.k, 0));
    CHECK_U64(1, bench_copies(&h.k, 16000));
    CHECK_U64(2, bench_copies(&h.k, 16001));
    CHECK_U64(BENCH_COPIES_MAX, bench_copies(&h.k, UINT64_C(1) << 40));
}

static void quantiles_are_those_of_the_sorted(void)
{
    double x[] = { 10, 1, 9, 2, 8, 3, 7, 4, 6, 5 };
    BenchTimes t = bench_times(x, 10);
    CHECK_NEAR(5.5, t.median_ns, 1e-12);
    CHECK_NEAR(1.9, t.p10_ns, 1e-12); /* rank 0.9 of 0 to 9: as `run` says it */
    CHECK_NEAR(9.1, t.p90_ns, 1e-12);
    CHECK_NEAR(7.2 / 5.5, bench_spread(&t), 1e-12);
    CHECK_U64(0, bench_times(x, 0).n);
}

/* ---- graphs ---- */

static void copies_take_turns_in_memory_of_their_own(void)
{
    Hand h;
    Graph g;
    Program p;
    Err err = { 0 };
    hand_optimizer(&h, 100);
    bench_graph(&g, &(BenchPlan){ .kernel = &h.k, .kernels_n = 7, .copies = 3, .world_n = 1 });
    CHECK(program_make(&p, &g, 0, &err));
    CHECK_U64(7, p.tasks_n);
    CHECK_U64(12, p.residents_n);
    for (uint32_t t = 3; t < 7; t++)
        CHECK_U64(task_args(&p, &p.tasks[t - 3])->offset, task_args(&p, &p.tasks[t])->offset);
    CHECK(task_args(&p, &p.tasks[0])->offset != task_args(&p, &p.tasks[1])->offset);
    CHECK(task_args(&p, &p.tasks[1])->offset != task_args(&p, &p.tasks[2])->offset);
    for (uint32_t t = 0; t < 7; t++)
        CHECK_U64(0, p.tasks[t].waits_n + p.tasks[t].guards_n);
    program_free(&p);
    graph_free(&g);
}

static void kernels_and_transfers_run_on_lanes_of_their_own(void)
{
    Hand h;
    Graph g;
    Program p;
    Err err = { 0 };
    BenchTransfer t = { OP_ALL_REDUCE, 4096 };
    hand_optimizer(&h, 100);
    bench_graph(&g, &(BenchPlan){ &h.k, 6, 1, &t, 3, 2 });
    for (uint32_t rank = 0; rank < 2; rank++) {
        CHECK(program_make(&p, &g, rank, &err));
        CHECK_U64(6, p.lane_n[LANE_COMPUTE]);
        CHECK_U64(3, p.lane_n[LANE_REDUCE]);
        uint32_t waits = 0; /* none but for what the lane's own order gives */
        for (uint32_t i = 0; i < p.tasks_n; i++)
            waits += p.tasks[i].waits_n + p.tasks[i].guards_n;
        CHECK_U64(0, waits);
        program_free(&p);
    }
    graph_free(&g);
}

static void a_transfer_is_split_evenly(void)
{
    CHECK_U64(996, bench_transfer_bytes(&(BenchTransfer){ OP_ALL_GATHER, 1000 }, 3));
    CHECK_U64(1000, bench_transfer_bytes(&(BenchTransfer){ OP_SEND, 1003 }, 3));
    CHECK_U64(12, bench_transfer_bytes(&(BenchTransfer){ OP_ALL_REDUCE, 1 }, 3));
}

/* ---- the CPU ---- */

typedef struct Shared {
    BenchResult transfer[6], both;
    bool ok[2];
    char why[300];
} Shared;

static const OpKind kinds[] = { OP_ALL_REDUCE, OP_ALL_GATHER, OP_REDUCE_SCATTER,
                                OP_BROADCAST,  OP_ALL_TO_ALL, OP_SEND };

static int measure_rank(const RankPlace *place, void *user)
{
    Shared *s = user;
    Hand h;
    Err err = { 0 };
    BenchResult r;
    BenchLimits few = { 2, 2, 0 };
    BenchRank rank = {
        .type = &backend_cpu, .rank = place->rank, .world_n = place->world, .each_task = true
    };
    bool ok = fabric_open(&rank.fabric, place, 4 * MIB, &err);
    for (uint32_t i = 0; i < ARRAY_N(kinds) && ok; i++) {
        BenchTransfer t = { kinds[i], 64 * KIB };
        BenchPlan plan = { .transfer = &t, .transfers_n = 5, .world_n = place->world };
        ok = bench_run(&r, &rank, &plan, &few, i % 2 == 1, &err);
        if (place->rank == 0)
            s->transfer[i] = r;
    }
    BenchTransfer t = { OP_ALL_REDUCE, 256 * KIB };
    hand_optimizer(&h, 60000); /* long enough to be beside one */
    BenchPlan plan = { &h.k, 60, 1, &t, 60, place->world };
    ok = ok && bench_run(&r, &rank, &plan, &few, true, &err);
    if (place->rank == 0)
        s->both = r;
    if (!ok)
        snprintf(s->why, sizeof s->why, "%.290s", err.text);
    s->ok[place->rank % 2] = ok;
    fabric_close(rank.fabric);
    return ok ? 0 : 1;
}

static void check_transfers(uint32_t world)
{
    Shared *s =
        mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    RankPlace place = { .world = world, .local_n = world, .timeout_s = 60, .digest = "x" };
    ASSERT(s != MAP_FAILED);
    fflush(stdout);
    int status = launch_ranks(world, measure_rank, s, &place, NULL);
    if (!CHECK_U64(0, (uint64_t)status))
        fprintf(stderr, "%s\n", s->why);
    for (uint32_t i = 0; i < ARRAY_N(kinds) && status == 0; i++) {
        CHECK(s->transfer[i].transfer.median_ns > 0);
        CHECK_U64(i % 2 == 1 ? 10 : 2, s->transfer[i].transfer.n);
        CHECK_U64(0, s->transfer[i].kernel.n);
    }
    if (status == 0) {
        CHECK_U64(120, s->both.kernel.n);
        CHECK_U64(120, s->both.transfer.n);
        CHECK(s->both.kernel_beside.n + s->both.transfer_beside.n > 0);
    }
    munmap(s, sizeof *s);
}

static void transfers_of_two_ranks_are_timed(void)
{
    check_transfers(2);
}

static void transfers_of_three_ranks_are_timed(void)
{
    check_transfers(3);
}

/* By a factor of 1000 more to do: no noise hides it. */
static void more_work_takes_longer(void)
{
    BenchResult out[2];
    Err err = { 0 };
    RankPlace place = { .world = 1, .local_n = 1, .timeout_s = 10, .digest = "x" };
    BenchRank rank = { .type = &backend_cpu, .world_n = 1, .each_task = true };
    CHECK(fabric_open(&rank.fabric, &place, 64 * MIB, &err));
    for (int i = 0; i < 2; i++) {
        Hand h;
        hand_optimizer(&h, i ? 1000000 : 1000);
        BenchPlan plan = { .kernel = &h.k, .kernels_n = 5, .copies = 2, .world_n = 1 };
        CHECK(bench_run(&out[i], &rank, &plan, &(BenchLimits){ 1, 1, 0 }, false, &err));
        CHECK(out[i].kernel.p10_ns <= out[i].kernel.median_ns);
        CHECK(out[i].kernel.median_ns <= out[i].kernel.p90_ns);
    }
    CHECK(out[1].kernel.median_ns > 20 * out[0].kernel.median_ns);
    fabric_close(rank.fabric);
}

static void a_kernel_that_the_backend_lacks_is_a_sentence(void)
{
    Hand h;
    Err err = { 0 };
    BenchResult out;
    RankPlace place = { .world = 1, .local_n = 1, .timeout_s = 10, .digest = "x" };
    BenchRank rank = { .type = &backend_cpu, .world_n = 1, .each_task = true };
    hand_optimizer(&h, 100);
    h.k.op.kind = OP_POOL;
    CHECK(fabric_open(&rank.fabric, &place, MIB, &err));
    BenchPlan plan = { .kernel = &h.k, .kernels_n = 1, .copies = 1, .world_n = 1 };
    CHECK(!bench_run(&out, &rank, &plan, &(BenchLimits){ 1, 1, 0 }, false, &err));
    CHECK(strstr(err.text, "pool") != NULL);
    fabric_close(rank.fabric);
}

/* Time never suffices for all cases of a GPU: of attention, lengths, widths and both directions
 * come before any comes again, and not behind all products. */
static void attention_of_all_kinds_is_measured_early(void)
{
    BenchOptions o = { .cuda = true, .all = true };
    BenchCases c;
    Err err = { 0 };
    uint32_t n = 0, back = 0, lengths_n = 0;
    uint64_t lengths[16];
    if (!CHECK(bench_cases(&c, &o, &err)))
        return;
    for (uint32_t i = 0; i < c.n && c.cases[i].turn == 0; i++) {
        const Op *op = &c.cases[i].kernel.op;
        uint32_t k = 0;
        if (c.cases[i].table != BENCH_TABLE_ATTENTION)
            continue;
        n++;
        back += op->phase == PHASE_DGRAD;
        while (k < lengths_n && lengths[k] != op->u.attention.seq_q)
            k++;
        if (k == lengths_n && CHECK(k < ARRAY_N(lengths)))
            lengths[lengths_n++] = op->u.attention.seq_q;
    }
    CHECK(n >= 10);
    CHECK_U64(n, 2 * back);
    CHECK(lengths_n >= 3);
    bench_cases_free(&c);
}

int main(void)
{
    setenv("LOCKSTEP_SHARE", "scenarios", 0);
    law = mem_zero(1, sizeof *law);
    RUN(a_task_is_a_sample_without_what_others_took);
    memset(law, 0, sizeof *law);
    RUN(a_step_is_a_sample_where_tasks_are_not_timed);
    RUN(copies_fill_the_cache);
    RUN(quantiles_are_those_of_the_sorted);
    RUN(copies_take_turns_in_memory_of_their_own);
    RUN(kernels_and_transfers_run_on_lanes_of_their_own);
    RUN(a_transfer_is_split_evenly);
    RUN(transfers_of_two_ranks_are_timed);
    RUN(transfers_of_three_ranks_are_timed);
    RUN(more_work_takes_longer);
    RUN(attention_of_all_kinds_is_measured_early);
    RUN(a_kernel_that_the_backend_lacks_is_a_sentence);
    free(law);
    return check_report();
}

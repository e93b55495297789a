/*
 * test_measure.c - what was measured comes back as the prediction of the same kernel.
 */
#include "tests/exec_world.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

#include "core/jobs.h"
#include "core/machine.h"
#include "exec/control_group.h"
#include "sim/cost.h"

static Op matmul(uint64_t m, uint64_t n, uint64_t k, bool transpose_b)
{
    Op op = { .kind = OP_MATMUL, .dtype = DTYPE_F32 };
    op.u.matmul = (MatmulShape){ .m = m, .n = n, .k = k, .batch = 1 };
    op.u.matmul.transpose_b = transpose_b;
    op.flops = 2.0 * (double)m * (double)n * (double)k;
    op.read_bytes = 4 * (m * k + k * n);
    op.write_bytes = 4 * m * n;
    return op;
}

static Op attention(void)
{
    Op op = { .kind = OP_ATTENTION, .dtype = DTYPE_F32 };
    op.u.attention = (AttentionShape){ .batch = 2,
                                       .heads = 4,
                                       .kv_heads = 4,
                                       .seq_q = 64,
                                       .seq_k = 64,
                                       .head_dim = 32,
                                       .causal = true };
    op.flops = 4.0 * 2 * 4 * 64 * 64 * 32 / 2;
    op.read_bytes = op.write_bytes = 4 * 2 * 4 * 64 * 32;
    return op;
}

static Op moved(OpKind kind, uint64_t bytes)
{
    return (Op){
        .kind = kind, .dtype = DTYPE_F32, .read_bytes = bytes / 2, .write_bytes = bytes / 2
    };
}

/* Two ranks on a host with so many processors. */
static MachineTimes times_of(KernelTime *times, uint32_t n, uint32_t processors)
{
    return (MachineTimes){ .times = times,
                           .times_n = n,
                           .shapes_n = n,
                           .ranks = 2,
                           .processors = processors,
                           .memory_bytes = (uint64_t)1 << 33,
                           .reduce_bytes = 1 << 20,
                           .reduce_ns = 300000,
                           .meet_ns = 4000 };
}

static void read_machine(Machine *m, const MachineTimes *times)
{
    Err err = { 0 };
    char *text = run_machine_json(times, 2, &err);
    JsonDoc *doc = text ? json_parse(text, strlen(text), "measured", &err) : NULL;
    bool ok = doc && machine_read(m, json_root(doc), "scenarios", &err);
    if (!ok)
        printf("%s\n", err.text);
    ASSERT(ok);
    json_close(doc);
    free(text);
}

static void each_kernel_takes_what_was_measured(void)
{
    KernelTime times[] = { { matmul(32, 4096, 1024, true), 5000000, 3 },
                           { matmul(32, 4096, 1024, false), 4000000, 3 },
                           { matmul(8, 64, 64, false), 900, 40 },
                           { attention(), 70000, 2 },
                           { moved(OP_ADD, 65536), 9000, 5 },
                           { moved(OP_ADD, 1 << 20), 200000, 5 },
                           { moved(OP_OPTIMIZER, 1 << 24), 3000000, 1 } };
    const MachineTimes of = times_of(times, ARRAY_N(times), 4);
    Machine m;
    read_machine(&m, &of);
    for (size_t i = 0; i < ARRAY_N(times); i++) {
        double ns = (double)op_cost(m.types[0].gpu, &times[i].op, NULL).alone_ns;
        CHECK_NEAR(times[i].ns, ns, 0.003);
    }
    machine_free(&m);
}

/* Whatever an all-reduce takes: collectives by kind and ranks, between sizes straight in
 * logarithms. */
static void each_collective_takes_what_was_measured(void)
{
    CollectiveTime collectives[] = { { OP_ALL_REDUCE, 2, 1 << 20, 300000, 9 },
                                     { OP_ALL_GATHER, 2, 1 << 16, 20000, 9 },
                                     { OP_ALL_GATHER, 2, 1 << 20, 700000, 9 },
                                     { OP_ALL_GATHER, 4, 1 << 20, 900000, 9 },
                                     { OP_REDUCE_SCATTER, 2, 4, 1000, 9 } };
    MachineTimes of = times_of(NULL, 0, 2);
    of.collectives = collectives;
    of.collectives_n = ARRAY_N(collectives);
    Machine m;
    double latency_ns;
    read_machine(&m, &of);
    for (size_t i = 0; i < ARRAY_N(collectives); i++) {
        const CollectiveTime *t = &collectives[i];
        CHECK_NEAR(t->ns, machine_measured_ns(&m, t->kind, t->ranks, 1, t->bytes, &latency_ns),
                   1e-9);
        CHECK(latency_ns <= t->ns);
    }
    double middle = machine_measured_ns(&m, OP_ALL_GATHER, 2, 1, 1 << 18, &latency_ns);
    CHECK_NEAR(sqrt(20000.0 * 700000.0), middle, 1e-9);
    machine_free(&m);
}

/* Of few bytes, which take no longer than to meet, the link still has a bandwidth. */
static void a_transfer_of_next_to_nothing_makes_a_link(void)
{
    MachineTimes of = times_of(NULL, 0, 2);
    of.reduce_ns = of.meet_ns - 500;
    Machine m;
    read_machine(&m, &of);
    machine_free(&m);
}

/* Two shapes that the tables cannot tell apart: the mean of all that was run. */
static void shapes_of_one_row_are_averaged_by_how_often_they_run(void)
{
    KernelTime times[] = { { moved(OP_ADD, 65536), 9000, 3 },
                           { moved(OP_SCALE, 65536), 1000, 1 } };
    const MachineTimes of = times_of(times, ARRAY_N(times), 2);
    Machine m;
    read_machine(&m, &of);
    CHECK_NEAR(7000, (double)op_cost(m.types[0].gpu, &times[0].op, NULL).alone_ns, 0.001);
    machine_free(&m);
}

static void more_ranks_than_processors_take_turns(void)
{
    KernelTime times[] = { { matmul(32, 256, 256, true), 90000, 1 },
                           { moved(OP_ADD, 65536), 9000, 1 } };
    const MachineTimes of = times_of(times, ARRAY_N(times), 1);
    Machine m;
    read_machine(&m, &of);
    for (size_t i = 0; i < ARRAY_N(times); i++)
        CHECK_NEAR(2 * times[i].ns,
                   (double)op_cost(m.types[0].gpu, &times[i].op, NULL).alone_ns, 0.003);
    machine_free(&m);
}

/* Beside a transfer a kernel stands nearly still where its processor does the transfer. */
static void transfers_take_a_processor_where_none_is_spare(void)
{
    KernelTime times[] = { { matmul(512, 4096, 1024, true), 5000000, 1 } };
    const MachineTimes busy = times_of(times, 1, 2), idle = times_of(times, 1, 4);
    Machine m;
    read_machine(&m, &busy);
    OpCost cost = op_cost(m.types[0].gpu, &times[0].op, NULL);
    CHECK(cost.slowed_ns > 5 * cost.alone_ns);
    machine_free(&m);
    read_machine(&m, &idle);
    cost = op_cost(m.types[0].gpu, &times[0].op, NULL);
    CHECK_INT(cost.alone_ns, cost.slowed_ns);
    machine_free(&m);
}

/* What a step takes besides its ops is in its time, in its trace, and in what follows of it. */
static void every_step_has_what_it_takes_besides(void)
{
    const Setting small = { "model", "{\"kind\":\"mlp\",\"widths\":[8,16,8]}" };
    const RunRequest request = {
        .scenario = "toy-mlp-ddp", .settings = &small, .settings_n = 1, .this_machine = true
    };
    const double besides_ns[] = { 0, 3e6 };
    double step_s[2], span_s[2] = { 0 };
    for (int i = 0; i < 2; i++) {
        RunPlan plan;
        Err err = { 0 };
        bool usage;
        MachineTimes m = times_of(NULL, 0, 2);
        m.nothing_ns = besides_ns[i];
        ASSERT(run_plan_open(&plan, &request, &usage, &err) &&
               run_plan_measured(&plan, &m, true, &err));
        step_s[i] = plan.predicted_step_s;
        const Timeline *t = run_plan_timeline(&plan);
        for (uint64_t k = 0; k < t->spans_n; k++)
            if (t->span_class[k] == SPAN_STEP)
                span_s[i] = (double)t->dur_ns[k] / 1e9;
        CHECK_NEAR(step_s[i], span_s[i], 1e-9);
        run_plan_free(&plan);
    }
    CHECK_NEAR(step_s[0] + besides_ns[1] / 1e9, step_s[1], 1e-9);
}

/* What cannot be known is said: with messages, and only where no processor is spare. */
static void waiting_for_a_processor_is_named_where_it_may_be(void)
{
    const Setting small = { "model", "{\"kind\":\"mlp\",\"widths\":[8,16,8]}" };
    const RunRequest request = {
        .scenario = "toy-mlp-ddp", .settings = &small, .settings_n = 1, .this_machine = true
    };
    for (int i = 0; i < 4; i++) {
        RunPlan plan;
        Err err = { 0 };
        bool usage, messages = i % 2, spare = i / 2;
        MachineTimes m = times_of(NULL, 0, spare ? 4 : 2);
        m.messages = messages;
        ASSERT(run_plan_open(&plan, &request, &usage, &err) &&
               run_plan_measured(&plan, &m, false, &err));
        CHECK_INT(messages && !spare, strstr(plan.prediction_of, "by TCP also wait") != NULL);
        run_plan_free(&plan);
    }
}

static void work_is_the_same_whatever_its_place_in_the_graph(void)
{
    Op a = matmul(32, 64, 128, true), b = a;
    b.arg_first = 7;
    b.name = 3;
    CHECK(same_work(&a, &b));
    b.u.matmul.transpose_b = false;
    CHECK(!same_work(&a, &b));
    b = a;
    b.fn = FN_GELU;
    CHECK(!same_work(&a, &b));
}

/* In place of libc's: where `ticks` is set threads' processor time is counted by tens of
 * milliseconds, as in some sandboxes. */
static bool ticks;

int clock_gettime(clockid_t clock, struct timespec *t)
{
    const long tick_ns = 10000000;
    int result = (int)syscall(SYS_clock_gettime, clock, t);
    if (ticks && clock == CLOCK_THREAD_CPUTIME_ID)
        t->tv_nsec -= t->tv_nsec % tick_ns;
    return result;
}

static const char small[] =
    "{\"name\":\"small\",\"model\":{\"kind\":\"mlp\",\"widths\":[8,16,8]},"
    "\"cluster\":\"pcie-workstation\",\"training\":{\"global_batch\":4,"
    "\"micro_batch\":2},\"parallel\":{\"dp\":2}}";

/* What two ranks measure. */
static void measure_world(ExecWorld *w, bool untold)
{
    Err err = { 0 };
    ASSERT(world_open(w, small, NULL, 0, &err));
    CHECK(world_run(
        w,
        (WorldOptions){ .clock = RUN_WALL, .steps = 1, .measured = true, .untold = untold }));
}

/* Between two ticks a kernel seems to take nothing: then the other clock counts. */
static void kernels_take_some_time_by_whatever_clock(void)
{
    for (int i = 0; i < 2; i++) {
        ExecWorld w;
        Err err = { 0 };
        ticks = i > 0;
        ASSERT(world_open(&w, small, NULL, 0, &err));
        CHECK(world_run(&w, (WorldOptions){ .clock = RUN_WALL, .steps = 1, .measured = true }));
        CHECK(w.result->kernel_ns > 0 && isfinite(w.result->kernel_ns));
        world_close(&w);
    }
    ticks = false;
}

/* As taskset, or a container's cpuset, has it. */
static void ranks_count_the_processors_that_they_may_run_on(void)
{
    uint64_t all[16] = { 0 }, one[16] = { 0 };
    long bytes = syscall(SYS_sched_getaffinity, 0, sizeof all, all);
    if (bytes < 0)
        return; /* more of them than that */
    size_t i = 0;
    while (!all[i])
        i++;
    one[i] = all[i] & -all[i];
    uint64_t allowed = control_groups_least("cpu", control_group_processors);
    for (int kept = 0; kept < 2; kept++) {
        ExecWorld w;
        ASSERT(syscall(SYS_sched_setaffinity, 0, bytes, kept ? one : all) == 0);
        measure_world(&w, false);
        CHECK_U64(kept ? 1 : min_u64(jobs_processors(), allowed), w.result->processors);
        world_close(&w);
    }
    syscall(SYS_sched_setaffinity, 0, bytes, all);
}

/* Where each was started by itself. */
static void ranks_that_are_not_told_of_each_other_count_too(void)
{
    ExecWorld w;
    measure_world(&w, true);
    CHECK_U64(2, w.result->ranks);
    world_close(&w);
}

int main(void)
{
    RUN(ranks_that_are_not_told_of_each_other_count_too);
    RUN(ranks_count_the_processors_that_they_may_run_on);
    RUN(kernels_take_some_time_by_whatever_clock);
    RUN(each_kernel_takes_what_was_measured);
    RUN(each_collective_takes_what_was_measured);
    RUN(a_transfer_of_next_to_nothing_makes_a_link);
    RUN(shapes_of_one_row_are_averaged_by_how_often_they_run);
    RUN(more_ranks_than_processors_take_turns);
    RUN(transfers_take_a_processor_where_none_is_spare);
    RUN(every_step_has_what_it_takes_besides);
    RUN(waiting_for_a_processor_is_named_where_it_may_be);
    RUN(work_is_the_same_whatever_its_place_in_the_graph);
    return check_report();
}

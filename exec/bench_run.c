/*
 * bench_run.c - steps of a program with nothing in it but what is measured.
 */
#include "exec/bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/quantile.h"
#include "exec/measure.h"
#include "exec/number.h"

enum { NOISE_N = 1 << 16 }; /* random numbers */
/* Of them again and again, written at a time: on a GPU a write costs by itself too. */
enum { POOL_BYTES = 8 << 20 };

typedef struct Samples {
    double *x;
    uint32_t n, cap;
} Samples;

typedef struct BenchRun {
    const BenchRank *rank;
    const BenchPlan *plan;
    Program p;
    Job job;
    Backend *b;
    bool each_transfer, changes; /* changes: kernels change what they read */
    uint8_t *pool;               /* random bytes of what a tensor may hold */
    Samples kernel, transfer, kernel_beside, transfer_beside, launch;
    double busy_ns, clock_ns; /* of kernels */
} BenchRun;

/* ---- data ---- */

/* Between 0.5 and 1.5: nothing vanishes, overflows, or is the root of less than nothing. */
static float noise(uint64_t i)
{
    return 0.5f + (float)(mix_u64(i) >> 40) * 0x1p-24f;
}

static void fill_pool(BenchRun *r, DType dtype)
{
    uint64_t vocab = max_u64(r->job.facts.vocab, 1);
    float few[256];
    for (uint64_t i = 0; i < NOISE_N; i++) {
        int64_t token = (int64_t)(mix_u64(i) % vocab);
        if (dtype == DTYPE_I64)
            memcpy(r->pool + i * sizeof token, &token, sizeof token);
        few[i % ARRAY_N(few)] = mix_u64(i + NOISE_N) & 1 ? noise(i) : -noise(i);
        if (dtype <= DTYPE_BF16 && (i + 1) % ARRAY_N(few) == 0)
            numbers_narrow(dtype == DTYPE_TF32 ? DTYPE_F32 : dtype, few, ARRAY_N(few),
                           r->pool + (i + 1 - ARRAY_N(few)) * dtype_bytes(dtype));
    }
}

/* What the optimizer keeps is no less than 0. */
static bool is_state(const Resident *x)
{
    return x->class_ == TENSOR_OPTIMIZER;
}

static bool write_tensor(BenchRun *r, const Resident *x, Err *err)
{
    bool ok = true;
    for (uint64_t at = 0; ok && at < x->bytes; at += POOL_BYTES)
        ok = r->rank->type->write(r->b, x->offset + at, r->pool,
                                  min_u64(POOL_BYTES, x->bytes - at), err);
    return ok;
}

static void abs_pool(const BenchRun *r, DType dtype)
{
    uint64_t each = dtype_bytes(dtype);
    for (uint64_t i = 0; i < NOISE_N; i++)
        r->pool[i * each + each - 1] &= 0x7f; /* the sign, little-endian */
}

/* Until there are as many bytes. */
static void repeat_pool(const BenchRun *r, DType dtype, uint64_t bytes)
{
    uint64_t period = NOISE_N * dtype_bytes(dtype);
    for (uint64_t at = period; at < min_u64(bytes, POOL_BYTES); at += period)
        memcpy(r->pool + at, r->pool, period);
}

static bool is_kind(const Resident *x, DType dtype, bool states)
{
    return x->dtype == dtype && is_state(x) == states;
}

static bool write_kind(BenchRun *r, DType dtype, bool states, Err *err)
{
    const Resident *all = r->p.residents;
    uint64_t largest = 0;
    bool ok = true;
    for (uint32_t i = 0; i < r->p.residents_n; i++)
        if (is_kind(&all[i], dtype, states))
            largest = max_u64(largest, all[i].bytes);
    if (largest == 0)
        return true;
    fill_pool(r, dtype);
    if (states && dtype <= DTYPE_BF16)
        abs_pool(r, dtype);
    repeat_pool(r, dtype, largest);
    for (uint32_t i = 0; ok && i < r->p.residents_n; i++)
        ok = !is_kind(&all[i], dtype, states) || write_tensor(r, &all[i], err);
    return ok;
}

static bool write_data(BenchRun *r, Err *err)
{
    bool ok = true;
    for (int dtype = 0; dtype < DTYPE_N; dtype++)
        for (int states = 0; ok && states < 2; states++)
            ok = write_kind(r, (DType)dtype, states > 0, err);
    return ok;
}

/* LoadData: what the host has for a copy to the device. */
static bool load(void *user, const Task *t, const Buffer *b, void *out, Err *err)
{
    const BenchRun *r = user;
    uint64_t period = NOISE_N * sizeof(float);
    (void)t, (void)err;
    for (uint64_t at = 0; at < b->bytes; at += period)
        memcpy((uint8_t *)out + at, r->pool, min_u64(period, b->bytes - at));
    return true;
}

static void rewind_nothing(void *user)
{
    (void)user;
}

bool bench_changes_inputs(const BenchKernel *k)
{
    for (uint32_t i = 0; k && i < k->args_n; i++)
        if (k->args[i].mode == ARG_UPDATE)
            return true;
    return false;
}

/* ---- samples ---- */

static void add_sample(Samples *s, double ns)
{
    GROW(s->x, s->n, s->cap);
    s->x[s->n++] = ns;
}

static bool is_transfer(const Task *t)
{
    return op_is_comm(t->op->kind);
}

/* First start and last end of kernels, or of transfers; false: there is none. */
static bool stretch(const BenchRun *r, const TaskRecord *records, bool transfers,
                    int64_t *start_ns, int64_t *end_ns)
{
    *start_ns = INT64_MAX;
    *end_ns = INT64_MIN;
    for (uint32_t i = 0; i < r->p.tasks_n; i++) {
        if (is_transfer(&r->p.tasks[i]) != transfers)
            continue;
        *start_ns = min_i64(*start_ns, records[i].start_ns);
        *end_ns = max_i64(*end_ns, records[i].end_ns);
    }
    return *start_ns < *end_ns;
}

static double kernel_ns(const TaskRecord *x)
{
    return (double)kernel_took_ns(x->end_ns - x->start_ns, x->busy_ns);
}

static void take_stretch(BenchRun *r, const TaskRecord *records, bool transfers)
{
    int64_t start, end;
    uint32_t n = transfers ? r->plan->transfers_n : r->plan->kernels_n;
    if (stretch(r, records, transfers, &start, &end))
        add_sample(transfers ? &r->transfer : &r->kernel, (double)(end - start) / n);
}

/* What ran while the other did, on the wall's clock: it is the wall's time that grows. */
static void take_beside(BenchRun *r, const TaskRecord *records, const Task *t, uint32_t i)
{
    int64_t start, end;
    const TaskRecord *x = &records[i];
    bool transfer = is_transfer(t);
    if (!stretch(r, records, !transfer, &start, &end))
        return;
    int64_t from = transfer ? x->met_ns : x->start_ns;
    if (from >= start && x->end_ns <= end && x->end_ns > from)
        add_sample(transfer ? &r->transfer_beside : &r->kernel_beside,
                   (double)(x->end_ns - from));
}

static void take_tasks(BenchRun *r, const TaskRecord *records)
{
    bool both = r->plan->kernels_n > 0 && r->plan->transfers_n > 0;
    for (uint32_t i = 0; i < r->p.tasks_n; i++) {
        const Task *t = &r->p.tasks[i];
        const TaskRecord *x = &records[i];
        if (t->op->grouped)
            continue; /* the last of those posted together stands for them */
        if (both)
            take_beside(r, records, t, i);
        if (is_transfer(t) && r->each_transfer)
            add_sample(&r->transfer, (double)(x->end_ns - x->met_ns));
        if (is_transfer(t) || !r->rank->each_task)
            continue;
        add_sample(&r->kernel, both ? (double)(x->end_ns - x->start_ns) : kernel_ns(x));
        r->clock_ns += (double)(x->end_ns - x->start_ns);
        r->busy_ns += kernel_ns(x);
    }
}

static void take_step(BenchRun *r, int64_t launching_ns)
{
    const TaskRecord *records = r->rank->type->records(r->b);
    add_sample(&r->launch, (double)launching_ns / r->p.tasks_n);
    take_tasks(r, records);
    if (r->plan->kernels_n > 0 && !r->rank->each_task)
        take_stretch(r, records, false);
    if (r->plan->transfers_n > 0 && !r->each_transfer)
        take_stretch(r, records, true);
}

/* ---- steps ---- */

static bool step(BenchRun *r, uint64_t nth, int64_t *launching_ns, Err *err)
{
    const BackendType *type = r->rank->type;
    double loss;
    if (r->changes && !write_data(r, err))
        return false;
    type->begin(r->b, nth, 0);
    int64_t from_ns = type->now_ns(r->b);
    for (uint32_t t = 0; t < r->p.tasks_n; t++)
        type->launch(r->b, t, 0);
    *launching_ns = type->now_ns(r->b) - from_ns;
    return type->end(r->b, &loss, err);
}

/* The same on all ranks: how long the slowest has taken so far. */
static bool elapsed(const BenchRun *r, double *ns, Err *err)
{
    uint32_t n = r->rank->world_n;
    double mine = (double)r->rank->type->now_ns(r->b), *all = mem_zero(n, sizeof *all);
    bool ok = fabric_share(r->rank->fabric, &mine, all, sizeof mine, err);
    *ns = 0;
    for (uint32_t i = 0; i < n; i++)
        *ns = fmax(*ns, all[i]);
    free(all);
    return ok;
}

static bool run_steps(BenchRun *r, const BenchLimits *l, Err *err)
{
    double ns = 0;
    int64_t launching_ns;
    bool ok = fabric_barrier(r->rank->fabric, err);
    r->rank->type->begin_run(r->b);
    ok = ok && step(r, 0, &launching_ns, err) && elapsed(r, &ns, err);
    for (uint32_t i = 0; ok && i < l->steps_max && (i < l->steps_min || ns < l->budget_ns);
         i++) {
        ok = step(r, i + 1, &launching_ns, err);
        if (ok)
            take_step(r, launching_ns);
        ok = ok && elapsed(r, &ns, err);
    }
    return ok;
}

/* ---- results ---- */

BenchTimes bench_times(double *x, uint32_t n)
{
    if (n == 0)
        return (BenchTimes){ 0, 0, 0, NAN, 0 };
    double median_ns = sort_median(x, n);
    return (BenchTimes){ .median_ns = median_ns,
                         .p10_ns = quantile(x, n, 0.1),
                         .p90_ns = quantile(x, n, 0.9),
                         .taken = NAN,
                         .n = n };
}

/* Mean over the ranks, or the slowest rank's. */
static bool over_ranks(const BenchRank *rank, BenchTimes *t, bool slowest, Err *err)
{
    BenchTimes *all = mem_zero(rank->world_n, sizeof *all);
    bool ok = fabric_share(rank->fabric, t, all, sizeof *t, err);
    BenchTimes sum = { 0, 0, 0, 0, t->n };
    uint32_t n = 0;
    for (uint32_t i = 0; ok && i < rank->world_n; i++) {
        if (all[i].n == 0)
            continue;
        bool worse = all[i].median_ns > sum.median_ns;
        n++;
        if (slowest && worse)
            sum = all[i];
        if (slowest)
            continue;
        sum.median_ns += all[i].median_ns;
        sum.p10_ns += all[i].p10_ns;
        sum.p90_ns += all[i].p90_ns;
        sum.taken += all[i].taken;
    }
    double each = slowest || n == 0 ? 1 : n;
    *t = (BenchTimes){ sum.median_ns / each, sum.p10_ns / each, sum.p90_ns / each,
                       sum.taken / each, sum.n };
    free(all);
    return ok;
}

static bool results(BenchResult *out, BenchRun *r, Err *err)
{
    out->kernel = bench_times(r->kernel.x, r->kernel.n);
    out->transfer = bench_times(r->transfer.x, r->transfer.n);
    out->kernel_beside = bench_times(r->kernel_beside.x, r->kernel_beside.n);
    out->transfer_beside = bench_times(r->transfer_beside.x, r->transfer_beside.n);
    out->launch_ns = bench_times(r->launch.x, r->launch.n).median_ns;
    if (r->clock_ns > 0 && r->plan->transfers_n == 0)
        out->kernel.taken = 1 - r->busy_ns / r->clock_ns;
    return over_ranks(r->rank, &out->kernel, false, err) &&
           over_ranks(r->rank, &out->transfer, true, err) &&
           over_ranks(r->rank, &out->kernel_beside, false, err) &&
           over_ranks(r->rank, &out->transfer_beside, true, err);
}

/* ---- all of it ---- */

static bool open_run(BenchRun *r, Err *err)
{
    const BenchKernel *k = r->plan->kernels_n > 0 ? r->plan->kernel : NULL;
    r->changes = bench_changes_inputs(k);
    r->pool = mem_zero(1, POOL_BYTES);
    r->job = (Job){ .program = &r->p,
                    .fabric = r->rank->fabric,
                    .facts = k ? k->facts : (ModelFacts){ .loss_terms = 1 },
                    .hyper = { .lr = 1e-3,
                               .weight_decay = 1e-2,
                               .beta1 = 0.9,
                               .beta2 = 0.999,
                               .eps = 1e-8,
                               .momentum = 0.9 },
                    .clock = RUN_WALL,
                    .load = load,
                    .load_user = r,
                    .rewind = rewind_nothing,
                    .cuda = r->rank->cuda,
                    .timed = r->rank->each_task || r->each_transfer };
    fill_pool(r, DTYPE_F32);
    if (!r->rank->type->open(&r->b, &r->job, err))
        return false;
    return write_data(r, err);
}

bool bench_run(BenchResult *out, const BenchRank *rank, const BenchPlan *plan,
               const BenchLimits *limits, bool each_transfer, Err *err)
{
    Graph g;
    *out = (BenchResult){ 0 };
    BenchRun r = { .rank = rank, .plan = plan, .each_transfer = each_transfer };
    ASSERT(plan->world_n == rank->world_n);
    bench_graph(&g, plan);
    bool ok = program_make(&r.p, &g, rank->rank, err) && open_run(&r, err) &&
              run_steps(&r, limits, err) && results(out, &r, err);
    if (!ok)
        fabric_abort(rank->fabric, err->text);
    rank->type->close(r.b);
    free(r.kernel.x);
    free(r.transfer.x);
    free(r.kernel_beside.x);
    free(r.transfer_beside.x);
    free(r.launch.x);
    free(r.pool);
    program_free(&r.p);
    graph_free(&g);
    return ok;
}

/*
 * cmd_bench_parts.c - the four measurements, on all ranks together.
 *
 * Each part has its seconds.  Kernels come in order of value and those that alone would take
 * too much of the time are left out; what the clock says is shared, so that all ranks go
 * on, or none.
 */
#include "exec/cmd_bench.h"

#include <math.h>
#include <stdlib.h>

#include "exec/cuda_plugin.h"
#include "exec/net.h"

enum {
    KERNELS_MIN = 4,
    KERNELS_MAX = 256,
    SAMPLES_MIN = 8,
    TIMES_IN_PART = 500, /* what alone takes more of a part's time is left out */
    LAUNCHES = 1000,
    CACHES = 3, /* times the last level, so that nothing is left in it: "cold" */
    TRANSFERS_MAX = 400,
};

#define STEP_NS            2e6 /* a step has so much work, about */
#define OVERLAP_NS         4e7
#define CASE_BYTES         GIB        /* a kernel that needs more is left out on the CPU, */
#define CASE_BYTES_GPU     (16 * GIB) /* and on a GPU, */
#define CASE_BYTES_CHANGED (2 * GIB)  /* there also of what it changes */
#define COPY_BYTES         (16 * MIB)
#define OVERLAP_BYTES      (4 * MIB)

static const uint64_t transfer_bytes_min = KIB, transfer_bytes_max = 64 * MIB;

typedef struct PartRun {
    BenchReport *r;
    const BenchRank *rank;
    double seconds;
    int64_t since_ns;
} PartRun;

static const double seconds_cpu[BENCH_PART_N] = { 20, 10, 5, 5 };
static const double seconds_cuda[BENCH_PART_N] = { 60, 20, 15, 15 };

static double seconds_of(const BenchOptions *o, BenchPart part)
{
    return o->seconds > 0 ? o->seconds : (o->cuda ? seconds_cuda : seconds_cpu)[part];
}

/* The same answer on all ranks. */
static bool has_time(const PartRun *p, bool *more, Err *err)
{
    uint32_t n = p->rank->world_n;
    int64_t mine = net_now_ns() - p->since_ns, *all = mem_zero(n, sizeof *all), most = 0;
    bool ok = fabric_share(p->rank->fabric, &mine, all, sizeof mine, err);
    for (uint32_t i = 0; ok && i < n; i++)
        most = max_i64(most, all[i]);
    free(all);
    *more = ok && (double)most < p->seconds * 1e9;
    return ok;
}

/* What a kernel changes is written anew before every step, over the bus: a GPU's time is dear. */
static uint64_t case_bytes_max(const BenchOptions *o, const BenchKernel *k)
{
    if (o->cuda)
        return bench_changes_inputs(k) ? CASE_BYTES_CHANGED : CASE_BYTES_GPU;
    return CASE_BYTES;
}

static uint64_t cold_bytes(const BenchOptions *o, uint64_t cache_bytes)
{
    return o->warm ? 0 : CACHES * cache_bytes;
}

static bool too_long(const BenchOptions *o, const BenchCase *c)
{
    BenchPart part = c->table == BENCH_TABLE_MEMORY ? BENCH_MEMORY : BENCH_GEMM;
    return c->guess_ns > seconds_of(o, part) * 1e9 / TIMES_IN_PART ||
           c->kernel.bytes > case_bytes_max(o, &c->kernel);
}

/* What a part measures of the cases: nothing at all where each takes too long. */
static bool part_measures_any(const BenchOptions *o, const BenchCases *cases, BenchPart part,
                              Err *err)
{
    double least_ns = INFINITY;
    uint32_t n = 0;
    for (uint32_t i = 0; i < cases->n; i++) {
        const BenchCase *c = &cases->cases[i];
        if ((c->table == BENCH_TABLE_MEMORY) != (part == BENCH_MEMORY))
            continue;
        if (!too_long(o, c))
            return true;
        n++;
        if (c->kernel.bytes <= case_bytes_max(o, &c->kernel))
            least_ns = fmin(least_ns, c->guess_ns);
    }
    if (n == 0)
        return true;
    if (isinf(least_ns))
        return err_set(err, "%s: every kernel needs more memory than is measured with",
                       bench_part_names[part]);
    return err_set(err,
                   "%s: %g s are too few for any kernel of what is to be measured; --seconds "
                   "%.0f is enough for one",
                   bench_part_names[part], seconds_of(o, part),
                   ceil(least_ns * TIMES_IN_PART / 1e9));
}

bool bench_measures_any(const BenchOptions *o, const BenchCases *cases, Err *err)
{
    static const BenchPart parts[] = { BENCH_GEMM, BENCH_MEMORY };
    for (size_t i = 0; i < ARRAY_N(parts); i++)
        if (o->part[parts[i]] && !part_measures_any(o, cases, parts[i], err))
            return false;
    return true;
}

static uint64_t kernel_arena(const BenchKernel *k, uint32_t copies)
{
    enum { ROUNDING = 64 };
    return copies * (k->bytes + ROUNDING * (uint64_t)k->tensors_n);
}

uint64_t bench_arena_bytes(const BenchOptions *o, const BenchCases *cases, uint64_t cache_bytes,
                           uint32_t world_n)
{
    uint64_t most = COPY_BYTES;
    for (uint32_t i = 0; i < cases->n; i++) {
        const BenchKernel *k = &cases->cases[i].kernel;
        if (!too_long(o, &cases->cases[i]))
            most = max_u64(most, kernel_arena(k, bench_copies(k, cold_bytes(o, cache_bytes))));
    }
    uint64_t moved = world_n > 1 ? 2 * transfer_bytes_max + 128 * (uint64_t)world_n : 0;
    return max_u64(most + 2 * OVERLAP_BYTES, moved) + MIB;
}

/* ---- kernels ---- */

static uint32_t times_in_step(double ns, double step_ns, uint32_t most)
{
    double n = step_ns / fmax(ns, 1);
    return n < KERNELS_MIN ? KERNELS_MIN : n > most ? most : (uint32_t)n;
}

static bool measure_case(PartRun *p, const BenchCase *c, BenchPart part, Err *err)
{
    BenchReport *r = p->r;
    uint32_t copies = bench_copies(&c->kernel, cold_bytes(r->o, r->host.cache_bytes));
    uint32_t n = times_in_step(c->guess_ns, STEP_NS, KERNELS_MAX);
    BenchPlan plan = { .kernel = &c->kernel,
                       .kernels_n = copies > n ? copies : n,
                       .copies = copies,
                       .world_n = p->rank->world_n };
    bool many = p->rank->each_task && plan.kernels_n >= SAMPLES_MIN;
    BenchLimits limits = { many ? 1 : 3, 50, seconds_of(r->o, part) * 1e9 / 400 };
    BenchResult result;
    if (!bench_run(&result, p->rank, &plan, &limits, false, err))
        return err_wrap(err, "%s", c->kernel.name);
    GROW(r->kernels, r->kernels_n, r->kernels_cap);
    r->kernels[r->kernels_n++] =
        (BenchKernelRow){ .of = c,
                          .cold = !r->o->warm && kernel_arena(&c->kernel, copies) >=
                                                     CACHES * r->host.cache_bytes,
                          .times = result.kernel };
    return true;
}

static bool measure_cases(PartRun *p, const BenchCases *cases, BenchPart part, Err *err)
{
    bool more = true;
    for (uint32_t i = 0; i < cases->n && more; i++) {
        const BenchCase *c = &cases->cases[i];
        if ((c->table == BENCH_TABLE_MEMORY) != (part == BENCH_MEMORY) || too_long(p->r->o, c))
            continue;
        if (!measure_case(p, c, part, err) || !has_time(p, &more, err))
            return false;
    }
    return true;
}

/* ---- launches and copies ---- */

static BenchKernel small_kernel(OpKind kind, uint64_t bytes, BenchTensor *tensor, BenchArg *arg)
{
    *tensor = (BenchTensor){
        .t = { .class_ = TENSOR_BUFFER,
               .dtype = DTYPE_F32,
               .bytes = bytes,
               .dims = { bytes / sizeof(float) } },
        .name = "x",
        .slot = SLOT_DATA,
    };
    *arg = (BenchArg){ 0, ARG_WRITE };
    return (BenchKernel){ .op = { .kind = kind,
                                  .dtype = DTYPE_F32,
                                  .u.elements = bytes / sizeof(float),
                                  .write_bytes = bytes },
                          .name = op_kind_names[kind],
                          .segment = "bench",
                          .tensors = tensor,
                          .args = arg,
                          .tensors_n = 1,
                          .args_n = 1,
                          .bytes = bytes,
                          .facts = { .loss_terms = 1 } };
}

/* by_host: each launched by the host, as in a graph nothing is. */
static bool measure_small(PartRun *p, OpKind kind, uint64_t bytes, uint32_t n, bool by_host,
                          BenchResult *result, Err *err)
{
    BenchTensor tensor;
    BenchArg arg;
    BenchKernel k = small_kernel(kind, bytes, &tensor, &arg);
    BenchPlan plan = { .kernel = &k, .kernels_n = n, .copies = 1, .world_n = p->rank->world_n };
    BenchRank rank = *p->rank;
    rank.each_task = false;
    CudaOptions one_by_one = rank.cuda ? *rank.cuda : (CudaOptions){ 0 };
    one_by_one.graphs = one_by_one.graphs && !by_host;
    rank.cuda = rank.cuda ? &one_by_one : NULL;
    BenchLimits limits = { 5, 20, 2e8 };
    return bench_run(result, &rank, &plan, &limits, false, err);
}

static bool measure_host(PartRun *p, Err *err)
{
    BenchResult launch, gap, copy;
    if (!measure_small(p, OP_FILL, 64, LAUNCHES, true, &launch, err) ||
        !measure_small(p, OP_FILL, 64, LAUNCHES, false, &gap, err) ||
        !measure_small(p, OP_H2D, COPY_BYTES, KERNELS_MIN, true, &copy, err))
        return false;
    p->r->launch_us = launch.launch_ns / 1e3;
    p->r->gap_us = gap.kernel.median_ns / 1e3;
    p->r->host_GBps =
        copy.kernel.median_ns > 0 ? (double)COPY_BYTES / copy.kernel.median_ns : 0;
    return true;
}

/* ---- overlap ---- */

/* The most valuable of each kind that is neither over at once nor takes all the time. */
static const BenchCase *case_like(const BenchCases *cases, OpKind kind, double min_ns,
                                  double max_ns)
{
    for (uint32_t i = 0; i < cases->n; i++) {
        const BenchCase *c = &cases->cases[i];
        if (c->kernel.op.kind == kind && c->guess_ns >= min_ns && c->guess_ns <= max_ns)
            return c;
    }
    return NULL;
}

static bool measure_overlap(PartRun *p, const BenchCase *c, OpKind transfer, Err *err)
{
    BenchReport *r = p->r;
    BenchTransfer t = { transfer, OVERLAP_BYTES };
    BenchLimits few = { 3, 5, 1e8 }, limits = { 3, 10, 4e8 };
    BenchPlan kernels = { .kernel = &c->kernel,
                          .kernels_n = times_in_step(c->guess_ns, 5 * STEP_NS, KERNELS_MAX),
                          .copies = 1,
                          .world_n = p->rank->world_n };
    BenchPlan transfers = { .transfer = &t,
                            .transfers_n = KERNELS_MIN * 2,
                            .world_n = p->rank->world_n };
    BenchRank rank = *p->rank;
    BenchResult alone, moving, both;
    rank.each_task = true;
    if (!bench_run(&alone, &rank, &kernels, &few, true, err) ||
        !bench_run(&moving, &rank, &transfers, &few, true, err))
        return false;
    kernels.kernels_n = times_in_step(alone.kernel.median_ns, OVERLAP_NS, TRANSFERS_MAX);
    kernels.transfer = &t;
    kernels.transfers_n = times_in_step(moving.transfer.median_ns, OVERLAP_NS, TRANSFERS_MAX);
    if (!bench_run(&both, &rank, &kernels, &limits, true, err))
        return false;
    GROW(r->overlaps, r->overlaps_n, r->overlaps_cap);
    r->overlaps[r->overlaps_n++] = (BenchOverlapRow){ .name = c->kernel.name,
                                                      .transfer = transfer,
                                                      .kernel_bytes = c->kernel.bytes,
                                                      .transfer_bytes = OVERLAP_BYTES,
                                                      .alone = alone.kernel,
                                                      .beside = both.kernel_beside,
                                                      .transfer_alone = moving.transfer,
                                                      .transfer_beside = both.transfer_beside,
                                                      .flops = c->kernel.op.flops };
    return true;
}

static bool measure_overlaps(PartRun *p, const BenchCases *cases, Err *err)
{
    static const OpKind kernels[] = { OP_MATMUL, OP_NORM, OP_ACTIVATION, OP_OPTIMIZER };
    static const OpKind transfers[] = { OP_ALL_REDUCE, OP_SEND };
    bool more = true;
    for (size_t k = 0; k < ARRAY_N(kernels) && more; k++)
        for (size_t t = 0; t < ARRAY_N(transfers) && more; t++) {
            bool cuda = p->r->o->cuda;
            const BenchCase *c =
                case_like(cases, kernels[k], cuda ? 3e4 : 1e5, cuda ? 3e6 : 2e7);
            if (c && (!measure_overlap(p, c, transfers[t], err) || !has_time(p, &more, err)))
                return false;
        }
    return true;
}

/* ---- collectives ---- */

static const OpKind collectives[] = { OP_ALL_REDUCE, OP_REDUCE_SCATTER, OP_ALL_GATHER,
                                      OP_BROADCAST,  OP_ALL_TO_ALL,     OP_SEND };

static bool measure_transfer(PartRun *p, BenchTransfer t, Err *err)
{
    BenchReport *r = p->r;
    double guess = 3e4 + (double)t.bytes / 2;
    BenchPlan plan = { .transfer = &t,
                       .transfers_n = times_in_step(guess, 2 * STEP_NS, TRANSFERS_MAX),
                       .world_n = p->rank->world_n };
    BenchLimits limits = { 5, 20, p->seconds * 1e9 / 200 };
    BenchResult result;
    t.bytes = bench_transfer_bytes(&t, p->rank->world_n);
    if (!bench_run(&result, p->rank, &plan, &limits, false, err))
        return err_wrap(err, "%s of %" PRIu64 " bytes", op_kind_names[t.kind], t.bytes);
    GROW(r->collectives, r->collectives_n, r->collectives_cap);
    r->collectives[r->collectives_n++] = (BenchCollectiveRow){ t, result.transfer };
    return true;
}

/* Size by size, so that what is there when time is over is of every collective. */
static bool measure_collectives(PartRun *p, Err *err)
{
    bool more = true;
    for (uint64_t bytes = transfer_bytes_min; bytes <= transfer_bytes_max && more; bytes *= 4)
        for (size_t i = 0; i < ARRAY_N(collectives) && more; i++)
            if (!measure_transfer(p, (BenchTransfer){ collectives[i], bytes }, err) ||
                !has_time(p, &more, err))
                return false;
    return true;
}

/* ---- parts ---- */

bool bench_part(BenchPart part, BenchReport *r, const BenchCases *cases, const BenchRank *rank,
                Err *err)
{
    PartRun p = { r, rank, seconds_of(r->o, part), net_now_ns() };
    bool ok = true;
    if (part == BENCH_MEMORY)
        ok = measure_host(&p, err);
    if (part == BENCH_GEMM || part == BENCH_MEMORY)
        ok = ok && measure_cases(&p, cases, part, err);
    else if (rank->world_n > 1)
        ok = part == BENCH_OVERLAP ? measure_overlaps(&p, cases, err)
                                   : measure_collectives(&p, err);
    r->seconds += (double)(net_now_ns() - p.since_ns) / 1e9;
    return ok;
}

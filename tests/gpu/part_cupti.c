/*
 * part_cupti.c - gpu_cupti: the profiler's view of the kernels that events have timed.
 *
 * First everything is timed with events and no profiler; then CUPTI records a batch of
 * each.  A row holds both: what the kernels of one call took by CUPTI, the gap between
 * one kernel's end and the next one's start, the time per call by events, and that with
 * CUPTI switched on, which is what tracing costs.
 */
#include <string.h>

#include "capture.h"
#include "gemm_case.h"
#include "gpu_try.h"
#include "memops.h"
#include "parts.h"

enum { WORKS_MAX = 64, CALLS = 20 };

typedef struct TracedWork {
    char name[64];
    WorkLaunch *launch;
    void *self;
    Timing untraced;
} TracedWork;

typedef struct Works {
    TracedWork work[WORKS_MAX];
    int n;
    GemmCase gemm[WORKS_MAX];
    MemCase mem[WORKS_MAX];
} Works;

/* ---- what is traced ---- */

static const GemmSpec GEMMS[] = {
    { 8192, 8192, 8192, GEMM_BF16, LAYOUT_TN, false, false, "cupti" },
    { 4096, 4096, 4096, GEMM_BF16, LAYOUT_TN, false, false, "cupti" },
    { 8192, 4096, 14336, GEMM_BF16, LAYOUT_NN, false, false, "cupti" },
    { 4096, 14336, 8192, GEMM_BF16, LAYOUT_NT, false, false, "cupti" },
    { 4096, 4096, 8192, GEMM_BF16, LAYOUT_NT, true, false, "cupti" },
    { 2048, 2048, 2048, GEMM_BF16, LAYOUT_TN, false, false, "cupti" },
    { 1024, 1024, 1024, GEMM_BF16, LAYOUT_TN, false, false, "cupti" },
    { 512, 512, 512, GEMM_BF16, LAYOUT_TN, false, false, "cupti" },
    { 128, 128, 128, GEMM_BF16, LAYOUT_TN, false, false, "cupti" },
    { 8192, 768, 3072, GEMM_BF16, LAYOUT_TN, false, false, "cupti" },
};

static TracedWork *add_work(Works *works, WorkLaunch *launch, void *self)
{
    TracedWork *w = &works->work[works->n++];
    *w = (TracedWork){ .launch = launch, .self = self };
    return w;
}

static void add_gemms(Works *works, const Run *run, const Lt *lt, const GemmPools *pools)
{
    for (size_t i = 0; i < sizeof GEMMS / sizeof GEMMS[0]; i++) {
        const GemmSpec *s = &GEMMS[i];
        GemmCase *c = &works->gemm[works->n];
        if (works->n == WORKS_MAX || !gemm_case_open(c, lt, pools, s, &run->device))
            continue;
        TracedWork *w = add_work(works, gemm_case_launch, c);
        snprintf(w->name, sizeof w->name, "gemm %s %s %lldx%lldx%lld%s",
                 gemm_type_name(s->type), gemm_layout_name(s->layout), (long long)s->m,
                 (long long)s->n, (long long)s->k, s->accumulate ? " accumulate" : "");
    }
}

/* Two sizes of each memory-bound kernel, each in buffers of its own. */
static void add_memops(Works *works, Run *run, void *scratch)
{
    static const uint64_t sizes[] = { 4000000, 256000000 };
    for (int i = 0; i < MEMOPS_N; i++)
        for (int j = 0; j < 2 && works->n < WORKS_MAX; j++) {
            MemShape shape = memop_shape_for(&MEMOPS[i], MEMOPS[i].cols[0], sizes[j]);
            MemCase *c = &works->mem[works->n];
            char *base;
            CUDA_TRY(cudaMalloc((void **)&base, memcase_set_bytes(&MEMOPS[i], &shape)));
            memcase_open(c, &MEMOPS[i], shape, 1, base, scratch, run->bench.stream);
            TracedWork *w = add_work(works, memcase_launch, c);
            snprintf(w->name, sizeof w->name, "%s %llu bytes", MEMOPS[i].name,
                     (unsigned long long)memop_bytes(&MEMOPS[i], &shape));
        }
}

static void works_close(Works *works)
{
    for (int i = 0; i < works->n; i++)
        if (works->work[i].launch == gemm_case_launch)
            gemm_case_close(&works->gemm[i]);
        else
            CUDA_TRY(cudaFree(works->mem[i].base));
    works->n = 0;
}

/* ---- what CUPTI saw ---- */

/* The kernels that only serve measuring. */
static bool is_ours(const char *name)
{
    static const char *const helper[] = { "spin_kernel", "clock_probe_kernel", "fill_kernel",
                                          "set_flag_kernel" };
    for (size_t i = 0; i < sizeof helper / sizeof helper[0]; i++)
        if (strstr(name, helper[i]))
            return true;
    return false;
}

typedef struct Summary {
    int kernels_n;
    double busy_us, gap_us;
    const char *longest; /* name of the longest kernel */
} Summary;

static Summary summarise(const CapturedKernel *kernels, size_t n)
{
    double gaps[8 * CALLS];
    int gaps_n = 0;
    int64_t longest_ns = -1, last_end_ns = -1;
    Summary s = { .longest = "" };

    for (size_t i = 0; i < n; i++) {
        int64_t took_ns = kernels[i].end_ns - kernels[i].start_ns;
        if (is_ours(kernels[i].name))
            continue;
        if (last_end_ns >= 0 && gaps_n < 8 * CALLS)
            gaps[gaps_n++] = (double)(kernels[i].start_ns - last_end_ns) * 1e-3;
        if (took_ns > longest_ns) {
            longest_ns = took_ns;
            s.longest = kernels[i].name;
        }
        last_end_ns = kernels[i].end_ns;
        s.busy_us += (double)took_ns * 1e-3;
        s.kernels_n++;
    }
    s.gap_us = gaps_n ? quantile(gaps, gaps_n, 0.5) : 0;
    return s;
}

static void write_row(FILE *rows, const TracedWork *w, const Summary *s, const Timing *traced)
{
    Row row;
    row_begin(&row, "cupti");
    row_text(&row, "work", w->name);
    row_text(&row, "kernel", s->longest);
    row_real(&row, "kernels_per_call", (double)s->kernels_n / CALLS);
    row_real(&row, "cupti_us", s->busy_us / CALLS);
    row_real(&row, "gap_us", s->gap_us);
    row_real(&row, "event_us", w->untraced.median_us);
    row_real(&row, "traced_event_us", traced->median_us);
    row_real(&row, "host_us", w->untraced.host_us);
    row_real(&row, "traced_host_us", traced->host_us);
    row_end(&row, rows);
}

/* false: CUPTI failed, *why says how. */
static bool trace_work(Run *run, const TracedWork *w, const char **why)
{
    const CapturedKernel *kernels;
    size_t n;
    Bench *b = &run->bench;
    Timing traced = bench_time(b, w->launch, w->self, TIMING_QUICK);

    CUDA_TRY(cudaDeviceSynchronize());
    if (!capture_take(&kernels, &n, why))
        return false;
    CUDA_TRY(kern_spin(1000, b->stream));
    for (int i = 0; i < CALLS; i++)
        w->launch(w->self, b->calls++, b->stream);
    CUDA_TRY(cudaDeviceSynchronize());
    if (!capture_take(&kernels, &n, why))
        return false;
    Summary s = summarise(kernels, n);
    write_row(run->rows, w, &s, &traced);
    if (w->launch == gemm_case_launch)
        printf("%-36s events %9.2f us, CUPTI %9.2f us, gap %6.2f us\n", w->name,
               w->untraced.median_us, s.busy_us / CALLS, s.gap_us);
    return true;
}

static int trace_all(Run *run, Works *works)
{
    const char *why = "";
    bool ok = capture_start(&why);

    for (int i = 0; ok && i < works->n && run_has_time(run); i++)
        ok = trace_work(run, &works->work[i], &why);
    if (!ok) {
        Row row;
        printf("CUPTI cannot trace here: %s\n", why);
        row_begin(&row, "cupti_failed");
        row_text(&row, "why", why);
        row_end(&row, run->rows);
        return 1;
    }
    printf("%llu records dropped\n", (unsigned long long)capture_stop());
    return 0;
}

int part_cupti(Run *run)
{
    static Works works;
    GemmPools pools;
    void *scratch;
    Lt lt;

    lt_open(&lt);
    gemm_pools_open(&pools, (uint64_t)1 << 30, (uint64_t)1 << 30);
    gemm_pools_fill(&pools, NUM_BF16, run->bench.stream);
    CUDA_TRY(cudaMemsetAsync(pools.out, 0, pools.out_bytes, run->bench.stream));
    CUDA_TRY(cudaMalloc(&scratch, KERN_SCRATCH_BYTES));
    add_gemms(&works, run, &lt, &pools);
    add_memops(&works, run, scratch);

    for (int i = 0; i < works.n; i++)
        works.work[i].untraced =
            bench_time(&run->bench, works.work[i].launch, works.work[i].self, TIMING_QUICK);
    int rc = trace_all(run, &works);
    works_close(&works);
    CUDA_TRY(cudaFree(scratch));
    gemm_pools_close(&pools);
    lt_close(&lt);
    return rc;
}

int main(int argc, char **argv)
{
    static const NamedPart parts[] = { { "cupti", part_cupti } };
    return parts_main(argc, argv, parts, 1);
}

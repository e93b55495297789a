/*
 * part_gemm.c - how long matrix products take, over the list of shapes.c.
 *
 * time_us is the library's first choice, which is what frameworks run; best_us the
 * fastest of its next few.  Operands are random: zeros run faster.  A product that is
 * heavy for seconds may draw the clock down: the "sustained" rows.
 */
#include <math.h>

#include "gemm_case.h"
#include "gpu_try.h"
#include "parts.h"
#include "shapes.h"

typedef struct GemmBench {
    Run *run;
    Lt lt;
    GemmPools pools;
    NumType filled; /* what the pools hold now */
    bool any_filled;
} GemmBench;

static bool case_open(GemmBench *gb, GemmCase *c, const GemmSpec *spec)
{
    cudaStream_t stream = gb->run->bench.stream;
    NumType in = gemm_in_type(spec->type);

    if (!gemm_case_open(c, &gb->lt, &gb->pools, spec, &gb->run->device))
        return false;
    if (!gb->any_filled || gb->filled != in)
        gemm_pools_fill(&gb->pools, in, stream);
    gb->filled = in;
    gb->any_filled = true;
    if (spec->accumulate) /* what an earlier product left there may not be f32 */
        CUDA_TRY(cudaMemsetAsync(gb->pools.out, 0, c->out_sets * c->out_bytes, stream));
    return true;
}

/* ---- rows ---- */

static double tflops(const GemmSpec *s, double us)
{
    return 2.0 * (double)s->m * (double)s->n * (double)s->k / us * 1e-6;
}

static void spec_keys(Row *row, const GemmSpec *s)
{
    row_text(row, "use", s->use);
    row_int(row, "m", s->m);
    row_int(row, "n", s->n);
    row_int(row, "k", s->k);
    row_text(row, "dtype", gemm_type_name(s->type));
    row_text(row, "layout", gemm_layout_name(s->layout));
    row_text(row, "out_dtype", num_name(gemm_out_type(s)));
    row_bool(row, "accumulate", s->accumulate);
    if (s->type == GEMM_FP8)
        row_bool(row, "promoted", s->promoted);
}

static void write_row(FILE *rows, const GemmSpec *s, const GemmCase *c, const Timing *t,
                      double best_us)
{
    Row row;
    row_begin(&row, "gemm");
    spec_keys(&row, s);
    timing_keys(&row, t);
    row_real(&row, "tflops", tflops(s, t->median_us));
    row_real(&row, "best_us", best_us);
    row_int(&row, "algos", c->gemm.algos_n);
    row_int(&row, "tile_id", lt_tile_id(&c->gemm, 0));
    row_int(&row, "split_k", lt_split_k(&c->gemm, 0));
    row_real(&row, "waves", (double)c->gemm.algo[0].wavesCount);
    row_int(&row, "workspace_bytes", (int64_t)c->gemm.algo[0].workspaceSize);
    row_end(&row, rows);
}

static void write_skipped(FILE *rows, const GemmSpec *s)
{
    Row row;
    row_begin(&row, "gemm_skipped");
    spec_keys(&row, s);
    row_end(&row, rows);
}

/* ---- measuring ---- */

/* The fastest of the first choice and the next ones; long products try fewer. */
static double best_time(GemmBench *gb, GemmCase *c, double first_us)
{
    int tries = first_us < 1000 ? LT_ALGOS_MAX : first_us < 4000 ? 2 : 1;
    double best_us = first_us;
    for (c->algo = 1; c->algo < c->gemm.algos_n && c->algo < tries; c->algo++) {
        Timing t = bench_time(&gb->run->bench, gemm_case_launch, c, TIMING_QUICK);
        best_us = fmin(best_us, t.median_us);
    }
    return best_us;
}

static bool measure_shape(GemmBench *gb, const GemmSpec *spec)
{
    GemmCase c;

    if (!case_open(gb, &c, spec)) {
        write_skipped(gb->run->rows, spec);
        return false;
    }
    Timing t = bench_time(&gb->run->bench, gemm_case_launch, &c, TIMING_USUAL);
    write_row(gb->run->rows, spec, &c, &t, best_time(gb, &c, t.median_us));
    gemm_case_close(&c);
    return true;
}

/* The same product for two seconds: what is left of the clock once the chip is warm. */
static void measure_sustained(GemmBench *gb, GemmSpec spec)
{
    GemmCase c;
    TimingPlan plan = { .sample_us = 60000, .batch_max = TIMING_BATCH_MAX, .repeats = 3 };
    double begin_us = host_now_us();

    if (!case_open(gb, &c, &spec))
        return;
    while (host_now_us() - begin_us < 2e6) {
        Row row;
        Timing t = bench_time(&gb->run->bench, gemm_case_launch, &c, plan);
        row_begin(&row, "gemm_sustained");
        spec_keys(&row, &spec);
        row_real(&row, "since_s", (host_now_us() - begin_us) * 1e-6);
        timing_keys(&row, &t);
        row_real(&row, "tflops", tflops(&spec, t.median_us));
        row_end(&row, gb->run->rows);
    }
    gemm_case_close(&c);
}

/* Pools as large as the memory allows, at most 2.5 GiB an operand. */
static void pools_open(GemmPools *pools)
{
    const uint64_t most = (uint64_t)5 << 29;
    size_t free_bytes, total_bytes;
    CUDA_TRY(cudaMemGetInfo(&free_bytes, &total_bytes));
    uint64_t unit = (uint64_t)free_bytes / 12 / 1024 * 1024;
    unit = unit < most ? unit : most;
    gemm_pools_open(pools, unit, 2 * unit);
}

enum { HEAVY_AT = 150 }; /* products, by when the chip is warm */

/* The list's products, and once the chip is warm the heavy one for a while. */
static int walk(Run *run, ShapeList *list, const GemmSpec *heavy)
{
    GemmBench gb = { .run = run };
    size_t done = 0, skipped = 0;

    lt_open(&gb.lt);
    pools_open(&gb.pools);
    for (; done < list->n && run_has_time(run); done++) {
        skipped += !measure_shape(&gb, &list->spec[done]);
        if (done == HEAVY_AT)
            measure_sustained(&gb, *heavy);
    }
    printf("%zu of %zu shapes measured, %zu skipped\n", done - skipped, list->n, skipped);
    gemm_pools_close(&gb.pools);
    lt_close(&gb.lt);
    shapes_free(list);
    return 0;
}

static const GemmSpec sustained = {
    .m = 8192, .n = 8192, .k = 8192, .type = GEMM_BF16, .use = "sustained"
};

int part_gemm(Run *run)
{
    ShapeList list;
    shapes_make(&list);
    return walk(run, &list, &sustained);
}

int part_gemm_fp8(Run *run)
{
    GemmSpec fp8 = sustained;
    ShapeList list;
    fp8.type = GEMM_FP8;
    shapes_make_fp8(&list);
    return walk(run, &list, &fp8);
}

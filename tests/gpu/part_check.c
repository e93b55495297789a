/*
 * part_check.c - are the kernels that will be timed right?
 *
 * Every output is filled with ones (NaN, -1) before the call, so that an element nobody
 * wrote shows, and compared with a double-precision reference by ||got - want|| / ||want||.
 * The timing itself is checked too: a kernel that spins for a known number of cycles must
 * take that many at the clock that was read.
 */
#include <math.h>
#include <stdlib.h>

#include "gpu_try.h"
#include "lt.h"
#include "memops.h"
#include "parts.h"

/* Half a unit in the last of bf16's 8 bits is 2e-3; tf32 rounds inputs to 11 bits, and tensor
 * cores sum products of fp8 numbers with about 13 bits, 1e-4 over the k here. */
static double error_limit(NumType out, bool coarse)
{
    if (out == NUM_BF16)
        return 6e-3;
    if (out == NUM_F16 || coarse)
        return 1e-3;
    return 2e-5;
}

static bool report(Run *run, const char *what, const char *detail, double error, double limit)
{
    bool ok = error <= limit; /* false for NaN */
    Row row;
    row_begin(&row, "check");
    row_text(&row, "what", what);
    row_text(&row, "detail", detail);
    row_real(&row, "error", error);
    row_real(&row, "limit", limit);
    row_bool(&row, "ok", ok);
    row_end(&row, run->rows);
    if (!ok)
        printf("WRONG: %s, %s: error %g, limit %g\n", what, detail, error, limit);
    return ok;
}

/* n numbers of device memory as doubles; the caller frees. */
static double *download(const void *src, NumType type, uint64_t n)
{
    void *raw = try_alloc(n, num_bytes(type));
    double *values = try_alloc(n, sizeof *values);
    CUDA_TRY(cudaMemcpy(raw, src, n * num_bytes(type), cudaMemcpyDeviceToHost));
    num_to_double(values, raw, type, n);
    free(raw);
    return values;
}

/* ---- memory-bound kernels ---- */

static bool compare_slots(Run *run, const MemCase *c, const KernArgs *args, double *const *want)
{
    bool ok = true;
    for (int i = 0; i < KERN_SLOTS; i++) {
        const Slot *slot = &c->op->slot[i];
        uint64_t n = slot_numbers(slot, &c->shape);
        char detail[64];
        if (slot->shape == SHAPE_NONE || slot->role == ROLE_IN)
            continue;
        double *got = download(args->slot[i], slot->type, n);
        snprintf(detail, sizeof detail, "slot %d of %lld x %lld", i, (long long)c->shape.rows,
                 (long long)c->shape.cols);
        ok &= report(run, c->op->name, detail, num_error(got, want[i], n),
                     error_limit(slot->type, false));
        free(got);
    }
    return ok;
}

static bool check_memop(Run *run, const MemOp *op, MemShape shape, char *base, void *scratch)
{
    MemCase c;
    double *want[KERN_SLOTS] = { 0 };

    memcase_open(&c, op, shape, 1, base, scratch, run->bench.stream);
    KernArgs args = memcase_args(&c, 0);
    for (int i = 0; i < KERN_SLOTS && op->slot[i].shape != SHAPE_NONE; i++)
        want[i] = download(args.slot[i], op->slot[i].type, slot_numbers(&op->slot[i], &shape));
    op->reference(want, &shape);

    memcase_launch(&c, 0, run->bench.stream);
    CUDA_TRY(cudaStreamSynchronize(run->bench.stream));
    bool ok = compare_slots(run, &c, &args, want);
    for (int i = 0; i < KERN_SLOTS; i++)
        free(want[i]);
    return ok;
}

/* Short rows, rows longer than a block's threads, and more shared memory than 48 KB. */
static bool check_memops(Run *run)
{
    static const MemShape shapes[] = { { 67, 776, 500 }, { 5, 8200, 40 }, { 700, 64, 100 } };
    size_t pool_bytes = (size_t)64 << 20;
    void *base, *scratch;
    bool ok = true;

    CUDA_TRY(cudaMalloc(&base, pool_bytes));
    CUDA_TRY(cudaMalloc(&scratch, KERN_SCRATCH_BYTES));
    for (int i = 0; i < MEMOPS_N; i++)
        for (size_t j = 0; j < sizeof shapes / sizeof shapes[0]; j++)
            ok &= check_memop(run, &MEMOPS[i], shapes[j], base, scratch);
    CUDA_TRY(cudaFree(scratch));
    CUDA_TRY(cudaFree(base));
    return ok;
}

/* ---- matrix products ---- */

typedef struct GemmBuffers {
    void *tall, *wide, *out;
    uint64_t tall_n, wide_n, out_n;
} GemmBuffers;

/* want[m][n] += the product, from the operands as they lie in memory (lt.h). */
static void gemm_reference(double *want, const double *tall, const double *wide,
                           const GemmSpec *s)
{
    for (int64_t m = 0; m < s->m; m++)
        for (int64_t n = 0; n < s->n; n++)
            for (int64_t k = 0; k < s->k; k++) {
                double a = s->layout == LAYOUT_NT ? tall[k * s->m + m] : tall[m * s->k + k];
                double b = s->layout == LAYOUT_TN ? wide[n * s->k + k] : wide[k * s->n + n];
                want[m * s->n + n] += a * b;
            }
}

static double gemm_error(const LtGemm *g, const Lt *lt, const GemmSpec *spec, int algo,
                         const GemmBuffers *b, cudaStream_t stream)
{
    NumType in = gemm_in_type(spec->type), out = gemm_out_type(spec);
    uint64_t out_bytes = b->out_n * num_bytes(out);
    double *want;

    if (spec->accumulate) {
        CUDA_TRY(kern_fill(b->out, out, FILL_NORMAL, 1, b->out_n, 3, stream));
        CUDA_TRY(cudaStreamSynchronize(stream));
        want = download(b->out, out, b->out_n);
    } else {
        CUDA_TRY(cudaMemsetAsync(b->out, 0xff, out_bytes, stream));
        want = try_alloc(b->out_n, sizeof *want);
    }
    lt_gemm_run(g, lt, algo, b->tall, b->wide, b->out, stream);
    CUDA_TRY(cudaStreamSynchronize(stream));

    double *got = download(b->out, out, b->out_n);
    double *tall = download(b->tall, in, b->tall_n), *wide = download(b->wide, in, b->wide_n);
    gemm_reference(want, tall, wide, spec);
    double error = num_error(got, want, b->out_n);
    free(wide);
    free(tall);
    free(got);
    free(want);
    return error;
}

static bool check_gemm(Run *run, const Lt *lt, const GemmSpec *spec, GemmBuffers b)
{
    cudaStream_t stream = run->bench.stream;
    NumType in = gemm_in_type(spec->type);
    LtGemm g;
    char detail[64];
    bool ok = true;

    b.tall_n = (uint64_t)(spec->m * spec->k);
    b.wide_n = (uint64_t)(spec->n * spec->k);
    b.out_n = (uint64_t)(spec->m * spec->n);
    snprintf(detail, sizeof detail, "%s %s%s%s", gemm_type_name(spec->type),
             gemm_layout_name(spec->layout), spec->accumulate ? " accumulate" : "",
             spec->promoted ? " promoted" : "");
    if (!lt_gemm_open(&g, lt, spec)) {
        printf("note: no algorithm for %s\n", detail);
        return true;
    }
    CUDA_TRY(kern_fill(b.tall, in, FILL_NORMAL, 1, b.tall_n, 1, stream));
    CUDA_TRY(kern_fill(b.wide, in, FILL_NORMAL, 1, b.wide_n, 2, stream));
    CUDA_TRY(cudaStreamSynchronize(stream));
    bool coarse = spec->type == GEMM_TF32 || spec->type == GEMM_FP8;
    for (int algo = 0; algo < g.algos_n; algo++)
        ok &= report(run, "gemm", detail, gemm_error(&g, lt, spec, algo, &b, stream),
                     error_limit(gemm_out_type(spec), coarse));
    lt_gemm_close(&g);
    return ok;
}

static bool check_gemms(Run *run)
{
    Lt lt;
    GemmBuffers b = { 0 };
    bool ok = true;

    lt_open(&lt);
    CUDA_TRY(cudaMalloc(&b.tall, 1 << 20));
    CUDA_TRY(cudaMalloc(&b.wide, 1 << 20));
    CUDA_TRY(cudaMalloc(&b.out, 1 << 20));
    for (int type = GEMM_BF16; type <= GEMM_FP8; type++)
        for (int layout = LAYOUT_TN; layout <= (type == GEMM_FP8 ? LAYOUT_TN : LAYOUT_NT);
             layout++)
            for (int accumulate = 0; accumulate < 2; accumulate++) {
                GemmSpec spec = { .m = 96,
                                  .n = 64,
                                  .k = 80,
                                  .type = (GemmType)type,
                                  .layout = (GemmLayout)layout,
                                  .accumulate = accumulate == 1,
                                  .use = "check" };
                ok &= check_gemm(run, &lt, &spec, b);
                spec.promoted = true;
                ok &= type != GEMM_FP8 || check_gemm(run, &lt, &spec, b);
            }
    CUDA_TRY(cudaFree(b.out));
    CUDA_TRY(cudaFree(b.wide));
    CUDA_TRY(cudaFree(b.tall));
    lt_close(&lt);
    return ok;
}

/* ---- the timing ---- */

static const double SPIN_US = 200; /* of a 2 GHz clock */

static void launch_spin(void *self, uint64_t call, cudaStream_t stream)
{
    (void)self;
    (void)call;
    CUDA_TRY(kern_spin(SPIN_US, stream));
}

static bool check_timing(Run *run)
{
    Timing t = bench_time(&run->bench, launch_spin, NULL, TIMING_USUAL);
    if (t.clock_mhz <= 0) {
        printf("note: the GPU's timer does not move, clocks stay unknown\n");
        return true;
    }
    double want_us = SPIN_US * 2000 / t.clock_mhz;
    return report(run, "timing", "a spin of known cycles",
                  fabs(t.median_us - want_us) / want_us, 0.1);
}

int part_check(Run *run)
{
    bool ok = check_timing(run);
    ok &= check_memops(run);
    ok &= check_gemms(run);
    printf(ok ? "all kernels agree with their references\n" : "some kernels are WRONG\n");
    return ok ? 0 : 1;
}

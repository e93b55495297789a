/*
 * cmd_bench_show.c - what was measured: tables for people, one JSON object for `calibrate`.
 */
#include "exec/cmd_bench.h"

#include <math.h>
#include <stdlib.h>

#include "core/json_out.h"
#include "core/timeline.h"

enum { BENCH_FORMAT = 1 };

const char *const bench_part_names[BENCH_PART_N] = { "gemm", "memory", "overlap",
                                                     "collective" };

void bench_report_free(BenchReport *r)
{
    free(r->kernels);
    free(r->overlaps);
    free(r->collectives);
}

static double moved_bytes(const BenchCase *c)
{
    return (double)c->kernel.op.read_bytes + (double)c->kernel.op.write_bytes;
}

static double busbw_factor(OpKind kind, uint32_t ranks)
{
    return kind == OP_SEND ? 1 : timeline_busbw_factor(op_kind_names[kind], ranks);
}

/* ---- text ---- */

static void print_head(const BenchReport *r, FILE *f)
{
    const BenchHost *h = &r->host;
    if (r->o->cuda)
        fprintf(f, "%s, %s\n", r->device, r->versions);
    fprintf(f, "%s, %u processors, %.1f GB, cache %.0f MiB", h->cpu[0] ? h->cpu : "a CPU",
            (unsigned)h->processors, (double)h->memory_bytes / 1e9,
            (double)h->cache_bytes / (double)MIB);
    if (h->mhz > 0)
        fprintf(f, ", %.0f MHz", h->mhz);
    fprintf(f, "\n%s, %s, %s\n", h->blas[0] ? h->blas : "no OpenBLAS", h->kernel, h->date);
    fprintf(f, "%u rank%s at once, operands %s\n", (unsigned)r->ranks, r->ranks > 1 ? "s" : "",
            r->o->warm ? "left in the caches" : "from memory");
}

static void print_times(const BenchTimes *t, FILE *f)
{
    fprintf(f, " %11.2f %11.2f %11.2f %6.1f%%", t->median_ns / 1e3, t->p10_ns / 1e3,
            t->p90_ns / 1e3, 100 * bench_spread(t));
    if (isnan(t->taken))
        fprintf(f, " %6s", "");
    else
        fprintf(f, " %5.0f%%", 100 * fmax(t->taken, 0));
}

#define TIMES_HEAD "   median us         p10         p90  spread  taken"

static void print_gemms(const BenchReport *r, FILE *f)
{
    for (uint32_t i = 0, n = 0; i < r->kernels_n; i++) {
        const BenchKernelRow *row = &r->kernels[i];
        const MatmulShape *s = &row->of->kernel.op.u.matmul;
        if (row->of->table != BENCH_TABLE_GEMM)
            continue;
        if (n++ == 0)
            fprintf(f, "\n%8s %8s %8s %5s %6s" TIMES_HEAD "  GFLOP/s\n", "m", "n", "k", "dtype",
                    "layout");
        fprintf(f, "%8" PRIu64 " %8" PRIu64 " %8" PRIu64 " %5s %6s", s->m, s->n, s->k,
                dtype_names[row->of->kernel.op.dtype], gemm_layout_names[gemm_layout_of(s)]);
        print_times(&row->times, f);
        fprintf(f, " %8.1f\n", row->of->kernel.op.flops / row->times.median_ns);
    }
}

static void print_others(const BenchReport *r, FILE *f)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->kernels_n; i++) {
        const BenchKernelRow *row = &r->kernels[i];
        if (row->of->table == BENCH_TABLE_GEMM)
            continue;
        if (n++ == 0)
            fprintf(f, "\n%-26s %-10s %11s" TIMES_HEAD "     GB/s\n", "kernel", "class",
                    "bytes");
        fprintf(f, "%-16.16s %-9s %-10s %11.0f", row->of->kernel.name,
                op_phase_names[row->of->kernel.op.phase],
                row->of->table == BENCH_TABLE_ATTENTION ? "attention"
                                                        : memory_kernel_names[row->of->class_],
                moved_bytes(row->of));
        print_times(&row->times, f);
        fprintf(f, " %8.2f\n", moved_bytes(row->of) / row->times.median_ns);
    }
}

static void print_overlaps(const BenchReport *r, FILE *f)
{
    if (r->overlaps_n > 0)
        fprintf(f, "\n%-20s %10s %-11s %10s %10s %7s %12s %12s %7s\n", "kernel", "bytes",
                "beside", "alone us", "beside us", "slower", "transfer us", "beside us",
                "slower");
    for (uint32_t i = 0; i < r->overlaps_n; i++) {
        const BenchOverlapRow *x = &r->overlaps[i];
        fprintf(f, "%-20.20s %10" PRIu64 " %-11s %10.1f %10.1f %7.2f %12.1f %12.1f %7.2f\n",
                x->name, x->kernel_bytes, measured_op_word(x->transfer),
                x->alone.median_ns / 1e3, x->beside.median_ns / 1e3,
                x->beside.median_ns / x->alone.median_ns, x->transfer_alone.median_ns / 1e3,
                x->transfer_beside.median_ns / 1e3,
                x->transfer_beside.median_ns / x->transfer_alone.median_ns);
    }
}

static void print_collectives(const BenchReport *r, FILE *f)
{
    if (r->collectives_n > 0)
        fprintf(f, "\n%-15s %12s" TIMES_HEAD "    algbw    busbw  GB/s\n", "collective",
                "size");
    for (uint32_t i = 0; i < r->collectives_n; i++) {
        const BenchCollectiveRow *x = &r->collectives[i];
        double algbw = (double)x->t.bytes / x->times.median_ns;
        fprintf(f, "%-15s %12" PRIu64, measured_op_word(x->t.kind), x->t.bytes);
        print_times(&x->times, f);
        fprintf(f, " %8.3f %8.3f\n", algbw, algbw * busbw_factor(x->t.kind, r->ranks));
    }
}

void bench_show_text(const BenchReport *r, FILE *f)
{
    print_head(r, f);
    print_gemms(r, f);
    print_others(r, f);
    if (r->launch_us > 0)
        fprintf(f, "\nlaunch %.3f us of the host, %.3f us from one small kernel to the next\n",
                r->launch_us, r->gap_us);
    if (r->host_GBps > 0)
        fprintf(f, "copies from the host %.2f GB/s\n", r->host_GBps);
    print_overlaps(r, f);
    print_collectives(r, f);
    if (r->kernels_n > 0)
        fprintf(f, "\n%u of %u kernels of %u scenarios, in %.0f s\n", (unsigned)r->kernels_n,
                (unsigned)r->cases_n, (unsigned)r->scenarios_n, r->seconds);
}

/* ---- JSON ---- */

static void put_times(JsonOut *j, const BenchTimes *t)
{
    json_put_number(j, "time_us", t->median_ns / 1e3);
    json_put_number(j, "p10_us", t->p10_ns / 1e3);
    json_put_number(j, "p90_us", t->p90_ns / 1e3);
    json_put_number(j, "spread", bench_spread(t));
    if (!isnan(t->taken))
        json_put_number(j, "taken", fmax(t->taken, 0));
    json_put_uint(j, "runs", t->n);
}

static void put_gemm(JsonOut *j, const BenchCase *c)
{
    const MatmulShape *s = &c->kernel.op.u.matmul;
    json_put_uint(j, "m", s->m);
    json_put_uint(j, "n", s->n);
    json_put_uint(j, "k", s->k);
    json_put_text(j, "dtype", dtype_names[c->kernel.op.dtype]);
    json_put_text(j, "layout", gemm_layout_names[gemm_layout_of(s)]);
}

static void put_attention(JsonOut *j, const BenchCase *c)
{
    const AttentionShape *a = &c->kernel.op.u.attention;
    json_put_text(j, "op", op_is_backward(&c->kernel.op) ? "backward" : "forward");
    json_put_uint(j, "batch", a->batch);
    json_put_uint(j, "seq", a->seq_q);
    json_put_uint(j, "heads", a->heads);
    json_put_uint(j, "kv_heads", a->kv_heads);
    json_put_uint(j, "head_dim", a->head_dim);
    json_put_bool(j, "causal", a->causal);
    json_put_text(j, "dtype", dtype_names[c->kernel.op.dtype]);
}

static void put_memory(JsonOut *j, const BenchCase *c)
{
    json_put_text(j, "op", memory_kernel_names[c->class_]);
    json_put_text(j, "phase", op_phase_names[c->kernel.op.phase]);
    json_put_number(j, "bytes", moved_bytes(c));
}

static void put_kernels(JsonOut *j, const BenchReport *r, BenchTable table, const char *name)
{
    static void (*const put[])(JsonOut *, const BenchCase *) = { put_gemm, put_attention,
                                                                 put_memory };
    json_put_open(j, name, '[');
    for (uint32_t i = 0; i < r->kernels_n; i++) {
        const BenchKernelRow *row = &r->kernels[i];
        if (row->of->table != table)
            continue;
        json_out_open(j, '{');
        put[table](j, row->of);
        json_put_text(j, "kernel", row->of->kernel.name);
        json_put_text(j, "cache", row->cold ? "cold" : "warm");
        put_times(j, &row->times);
        if (table == BENCH_TABLE_MEMORY)
            json_put_number(j, "GBps", moved_bytes(row->of) / row->times.median_ns);
        else
            json_put_number(j, "tflops", row->of->kernel.op.flops / row->times.median_ns / 1e3);
        json_out_close(j, '}');
    }
    json_out_close(j, ']');
}

static void put_overlaps(JsonOut *j, const BenchReport *r)
{
    json_put_open(j, "overlap", '[');
    for (uint32_t i = 0; i < r->overlaps_n; i++) {
        const BenchOverlapRow *x = &r->overlaps[i];
        json_out_open(j, '{');
        json_put_text(j, "kernel", x->name);
        json_put_uint(j, "bytes", x->kernel_bytes);
        json_put_bool(j, "matmul", x->flops > 0);
        json_put_text(j, "beside", measured_op_word(x->transfer));
        json_put_uint(j, "transfer_bytes", x->transfer_bytes);
        json_put_number(j, "alone_us", x->alone.median_ns / 1e3);
        json_put_number(j, "beside_us", x->beside.median_ns / 1e3);
        json_put_int(j, "runs_beside", x->beside.n);
        json_put_number(j, "slowdown", x->beside.median_ns / x->alone.median_ns);
        json_put_number(j, "transfer_alone_us", x->transfer_alone.median_ns / 1e3);
        json_put_number(j, "transfer_beside_us", x->transfer_beside.median_ns / 1e3);
        json_put_number(j, "transfer_slowdown",
                        x->transfer_beside.median_ns / x->transfer_alone.median_ns);
        json_out_close(j, '}');
    }
    json_out_close(j, ']');
}

static void put_collectives(JsonOut *j, const BenchReport *r)
{
    json_put_open(j, "collective", '[');
    for (uint32_t i = 0; i < r->collectives_n; i++) {
        const BenchCollectiveRow *x = &r->collectives[i];
        double algbw = (double)x->t.bytes / x->times.median_ns;
        json_out_open(j, '{');
        json_put_text(j, "op", measured_op_word(x->t.kind));
        json_put_uint(j, "ranks", r->ranks);
        json_put_uint(j, "bytes", x->t.bytes);
        put_times(j, &x->times);
        json_put_number(j, "algbw_GBps", algbw);
        json_put_number(j, "busbw_GBps", algbw * busbw_factor(x->t.kind, r->ranks));
        json_out_close(j, '}');
    }
    json_out_close(j, ']');
}

static void put_device(JsonOut *j, const BenchReport *r)
{
    const BenchHost *h = &r->host;
    json_put_open(j, "device", '{');
    json_put_text(j, "name", r->o->cuda ? r->device : h->cpu);
    json_put_text(j, "versions", r->o->cuda ? r->versions : h->blas);
    json_put_text(j, "cpu", h->cpu);
    json_put_uint(j, "processors", h->processors);
    json_put_number(j, "mhz", h->mhz);
    json_put_uint(j, "memory_bytes", h->memory_bytes);
    json_put_uint(j, "cache_bytes", h->cache_bytes);
    json_put_text(j, "system", h->kernel);
    json_put_text(j, "date", h->date);
    json_out_close(j, '}');
}

bool bench_show_json(const BenchReport *r, FILE *f, Err *err)
{
    JsonOut j = json_out_file(f, 1);
    json_out_open(&j, '{');
    json_put_int(&j, "lockstep_bench", BENCH_FORMAT);
    json_put_text(&j, "backend", r->o->cuda ? "cuda" : "cpu");
    json_put_uint(&j, "ranks", r->ranks);
    put_device(&j, r);
    put_kernels(&j, r, BENCH_TABLE_GEMM, "gemm");
    put_kernels(&j, r, BENCH_TABLE_ATTENTION, "attention");
    put_kernels(&j, r, BENCH_TABLE_MEMORY, "memory");
    if (r->launch_us > 0) {
        json_put_number(&j, "launch_us", r->launch_us);
        json_put_number(&j, "gap_us", r->gap_us);
    }
    if (r->host_GBps > 0)
        json_put_number(&j, "host_GBps", r->host_GBps);
    put_overlaps(&j, r);
    put_collectives(&j, r);
    json_put_uint(&j, "kernels", r->kernels_n);
    json_put_uint(&j, "kernels_known", r->cases_n);
    json_put_number(&j, "seconds", r->seconds);
    json_out_close(&j, '}');
    return json_out_end(&j, err);
}

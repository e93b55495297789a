/*
 * cmd_calibrate_bench.c - what `lockstep bench` wrote meets a machine's file.
 *
 * Kernels calibrate a GPU's file, transfers a cluster's: which of them --into is, its keys say.
 * A file that is not there yet is made, of the GPU if the measurements have kernels.  The
 * tables are judged by what they have not seen: every fifth shape is left out in turn, and
 * predicted by the file without it.
 */
#include "profile/cmd_calibrate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "profile/calibrate_bench.h"
#include "profile/calibrate_file.h"
#include "sim/cost_parts.h"
#include "sim/scenario.h"
#include "traces/nccl_tests.h"

enum { FOLDS = 5 };

typedef struct Work {
    const CalibrateOptions *o;
    Arena arena;
    BenchFile bench;
    KernelFit fit;
    double *left_out; /* by row of the fit: predicted by the file without it */
} Work;

bool calibrate_is_bench(const char *head, size_t n)
{
    static const char mark[] = "\"lockstep_bench\"";
    for (size_t i = 0; i + sizeof mark - 1 <= n && i < 256; i++)
        if (memcmp(head + i, mark, sizeof mark - 1) == 0)
            return true;
    return false;
}

/* ---- the simulator's side ---- */

static double scale(const void *user, const Op *op)
{
    (void)user, (void)op;
    return 1; /* kernels by themselves: no stack multiplies them */
}

/* What is measured are the executor's own kernels. */
static bool rows_of(const void *user, const Op *op, AttentionKernel *rows)
{
    const Work *w = user;
    *rows = attention_rows(w->fit.gpu, op, ATTENTION_LOCKSTEP);
    return attention_is_row(w->fit.gpu, op, *rows);
}

static double predict_ns(const void *user, const Gpu *gpu, const Op *op)
{
    (void)user;
    const Software executor = { .compute_scale = 1, .attention_kernel = ATTENTION_LOCKSTEP };
    Gpu alone = *gpu; /* not beside others, in a step */
    alone.sustained_scale = 1;
    return (double)op_cost(&alone, op, &executor).alone_ns;
}

static const Gpu *read_gpu(Work *w, const char *text, Err *err)
{
    JsonDoc *doc = json_parse(text, strlen(text), w->o->into, err);
    const Gpu *gpu = doc ? gpu_read(&w->arena, json_root(doc), share_dir(), err) : NULL;
    json_close(doc);
    return gpu;
}

/* ---- left out ---- */

static bool predict_fold(Work *w, const char *text, uint32_t fold, Err *err)
{
    KernelFit some = w->fit;
    some.rows = PUSH_ARRAY(&w->arena, KernelFitRow, w->fit.rows_n);
    some.rows_n = 0;
    for (uint32_t i = 0; i < w->fit.rows_n; i++)
        if (i % FOLDS != fold)
            some.rows[some.rows_n++] = w->fit.rows[i];
    char *without = mem_zero(strlen(text) + 1, 1);
    strcpy(without, text);
    without = kernel_fit_splice(&some, without, "lockstep calibrate");
    const Gpu *gpu = read_gpu(w, without, err);
    free(without);
    for (uint32_t i = 0; gpu && i < w->fit.rows_n; i++)
        if (i % FOLDS == fold)
            w->left_out[i] = predict_ns(NULL, gpu, w->fit.rows[i].op);
    return gpu != NULL;
}

/* Rows are sorted by shape: every fifth is left out, its neighbours stay. */
static bool predict_left_out(Work *w, const char *text, Err *err)
{
    w->left_out = PUSH_ARRAY(&w->arena, double, w->fit.rows_n + 1);
    for (uint32_t fold = 0; fold < FOLDS; fold++)
        if (!predict_fold(w, text, fold, err))
            return false;
    return true;
}

static CalibrateErrors left_out_errors(Work *w, KernelTable table)
{
    double *measured = PUSH_ARRAY(&w->arena, double, w->fit.rows_n + 1);
    double *predicted = PUSH_ARRAY(&w->arena, double, w->fit.rows_n + 1);
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->fit.rows_n; i++) {
        if (w->fit.rows[i].table != table)
            continue;
        measured[n] = w->fit.rows[i].ns;
        predicted[n++] = w->left_out[i];
    }
    return calibrate_errors(measured, predicted, n, NULL, 0);
}

static void print_left_out(Work *w)
{
    printf("\n%-16s %8s %14s\n", "shapes left out", "shapes", "error in %");
    printf("%-16s %8s %8s %5s\n", "", "", "median", "p90");
    for (KernelTable t = 0; t < TABLE_COPY; t++) {
        CalibrateErrors e = left_out_errors(w, t);
        if (e.n > 0)
            printf("%-16s %8u %8.1f %5.1f\n", kernel_table_texts[t], (unsigned)e.n,
                   e.median_pct, e.p90_pct);
    }
}

/* ---- a GPU ---- */

static bool show(Work *w, const Gpu *now, Err *err)
{
    const CalibrateOptions *o = w->o;
    if (o->quiet)
        return true;
    if (o->json) {
        kernel_fit_json(&w->fit, now, o->into, !o->dry_run, err);
        return !err->set;
    }
    printf("%s %s on %s\n\n", o->dry_run ? "would calibrate" : "calibrated", o->into,
           bench_file_source(&w->bench));
    kernel_fit_print(&w->fit, now);
    print_left_out(w);
    return true;
}

static bool fit_kernels(Work *w, const char *text, Err *err)
{
    const Gpu *was = read_gpu(w, text, err);
    if (!was)
        return err_wrap(err, "kernels calibrate a GPU");
    w->fit = (KernelFit){ .gpu = was,
                          .model = { memory_kernel_of, scale, rows_of, predict_ns, w, 1 } };
    bench_file_samples(&w->bench, &w->fit);
    if (!kernel_fit_run(&w->fit, err))
        return err_wrap(err, "'%s' has no kernels", calibrate_base_name(w->o->inputs[0]));
    bench_file_rest(&w->bench, &w->fit);
    return true;
}

static bool calibrate_kernels(Work *w, char *text, Err *err)
{
    const char *source =
        arena_printf(&w->arena, "lockstep calibrate on %s", bench_file_source(&w->bench));
    bool ok = fit_kernels(w, text, err) && predict_left_out(w, text, err);
    if (!ok) {
        free(text);
        return false;
    }
    text = kernel_fit_splice(&w->fit, text, source);
    const Gpu *now = read_gpu(w, text, err);
    if (!now) {
        free(text);
        return err_wrap(err, "calibrated");
    }
    return calibrate_store(w->o, text, err) && show(w, now, err);
}

/* ---- which file ---- */

/* "D/cpu.json" -> "cpu" */
static const char *stem(Arena *arena, const char *path)
{
    const char *base = calibrate_base_name(path);
    size_t n = strcspn(base, ".");
    return arena_printf(arena, "%.*s", (int)n, base);
}

static bool is_there(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

/* By what it says, or by what it is based on. */
static bool is_cluster(const char *path, Err *err)
{
    static const char *const keys[] = { "gpus_per_node", "intra_node", "inter_node",
                                        "node_types",    "nodes",      "collectives" };
    JsonDoc *doc = json_open(path, err);
    bool cluster = false;
    for (size_t i = 0; doc && i < ARRAY_N(keys); i++)
        cluster = cluster || json_member(json_root(doc), keys[i]).item;
    const char *base = doc ? json_text(json_member(json_root(doc), "base")) : NULL;
    if (base && !cluster) {
        char built_in[1024];
        snprintf(built_in, sizeof built_in, "%s/clusters/%s.json", share_dir(), base);
        cluster = is_there(built_in);
    }
    json_close(doc);
    return cluster;
}

static bool read_bench(Work *w, Err *err)
{
    for (uint32_t i = 0; i < w->o->inputs_n; i++)
        if (!bench_file_read(&w->bench, w->o->inputs[i], err))
            return false;
    return true;
}

static bool make_cluster(Work *w, const char *gpu, Err *err)
{
    if (w->bench.transfers_n == 0)
        return err_set(err, "'%s' has neither kernels nor transfers",
                       calibrate_base_name(w->o->inputs[0]));
    char *text = bench_cluster_text(&w->bench, stem(&w->arena, w->o->into), gpu);
    return calibrate_store(w->o, text, err);
}

/* Made whole, or not at all: then what was there stays. */
static bool new_cluster(Work *w, const char *gpu, Err *err)
{
    Err ignored = { 0 };
    bool was_there = is_there(w->o->into);
    char *old = was_there ? calibrate_load(w->o->into, &ignored) : NULL;
    bool ok = make_cluster(w, gpu, err) && calibrate_cluster(w->o, err);
    if (!ok && old)
        (void)calibrate_store(w->o, old, &ignored); /* takes it over */
    else
        free(old);
    if (!ok && !was_there)
        unlink(w->o->into);
    return ok;
}

/* Of a cluster whose GPUs nobody has measured: the processor that was, or one that costs
 * nothing. */
static const char *some_gpu(Work *w)
{
    bool cpu = strcmp(w->bench.backend, "cpu") == 0;
    const char *path = arena_printf(&w->arena, "%s/gpus/cpu.json", share_dir());
    return cpu && is_there(path) ? "cpu" : "ideal";
}

static bool calibrate(Work *w, Err *err)
{
    const CalibrateOptions *o = w->o;
    bool there = is_there(o->into);
    if (!read_bench(w, err))
        return false;
    bool cluster = there ? is_cluster(o->into, err) : w->bench.rows_n == 0;
    if (err->set)
        return false;
    if (!cluster) {
        char *text = there ? calibrate_load(o->into, err)
                           : bench_gpu_text(&w->bench, stem(&w->arena, o->into), err);
        return text && calibrate_kernels(w, text, err);
    }
    if (!there && o->dry_run)
        return err_set(err, "'%s' is not there: --dry-run makes none", o->into);
    return there ? calibrate_cluster(o, err) : new_cluster(w, some_gpu(w), err);
}

static void free_work(Work *w)
{
    kernel_fit_free(&w->fit);
    bench_file_free(&w->bench);
    arena_free(&w->arena);
}

bool calibrate_bench(const CalibrateOptions *o, Err *err)
{
    CalibrateOptions of_bench = *o;
    of_bench.bench = true;
    Work w = { .o = &of_bench };
    bool ok = calibrate(&w, err);
    free_work(&w);
    return ok;
}

bool calibrate_bench_new(const char *path, const char *gpu, const char *cluster,
                         const char *gpu_named, Err *err)
{
    CalibrateOptions o = { .into = gpu, .quiet = true, .bench = true, .inputs_n = 1 };
    Work w = { .o = &o };
    char *inputs[1] = { arena_strdup(&w.arena, path) };
    o.inputs = inputs;
    char *text =
        read_bench(&w, err) ? bench_gpu_text(&w.bench, stem(&w.arena, gpu), err) : NULL;
    bool ok = text && calibrate_kernels(&w, text, err);
    o.into = cluster;
    if (ok && w.bench.transfers_n > 0)
        ok = new_cluster(&w, gpu_named, err);
    free_work(&w);
    return ok;
}

/* ---- transfers ---- */

/* path: one text for all rows of a file, as whoever tells logs apart expects. */
static NcclTest *test_of(NcclLog *l, BenchFile *f, const char *path, const BenchTransferRow *t)
{
    NcclTest *last = l->tests_n > 0 ? &l->tests[l->tests_n - 1] : NULL;
    if (last && last->row_n > 0 && strcmp(last->op, t->op) == 0 && last->ranks_n == t->ranks &&
        last->file == path)
        return last;
    GROW(l->tests, l->tests_n, l->tests_cap);
    l->tests[l->tests_n] = (NcclTest){ .file = path,
                                       .op = arena_strdup(&l->arena, t->op),
                                       .version = "",
                                       .library = "",
                                       .gpu = arena_strdup(&l->arena, f->device),
                                       .ranks_n = t->ranks,
                                       .hosts_n = 1,
                                       .gpus_n = t->ranks,
                                       .row_first = l->rows_n };
    return &l->tests[l->tests_n++];
}

static int by_op_and_size(const void *pa, const void *pb)
{
    const BenchTransferRow *a = pa, *b = pb;
    int c = strcmp(a->op, b->op);
    return c ? c : (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

bool calibrate_bench_log(NcclLog *l, const char *path, const char **source, Err *err)
{
    BenchFile f = { 0 };
    bool ok = bench_file_read(&f, path, err);
    path = arena_strdup(&l->arena, path);
    if (ok && f.transfers_n > 0)
        qsort(f.transfers, f.transfers_n, sizeof *f.transfers, by_op_and_size);
    for (uint32_t i = 0; ok && i < f.transfers_n; i++) {
        const BenchTransferRow *t = &f.transfers[i];
        NcclTest *test = test_of(l, &f, path, t);
        test->row_n++;
        GROW(l->rows, l->rows_n, l->rows_cap);
        l->rows[l->rows_n++] = (NcclRow){ .test = (uint32_t)(test - l->tests),
                                          .size_bytes = t->bytes,
                                          .dtype = "float",
                                          .time_us = t->ns / 1e3,
                                          .algbw = (double)t->bytes / t->ns,
                                          .busbw = t->busbw,
                                          .wrong = NCCL_WRONG_UNKNOWN,
                                          .stamp = "" };
    }
    if (ok)
        *source = arena_strdup(&l->arena, bench_file_source(&f));
    bench_file_free(&f);
    return ok;
}

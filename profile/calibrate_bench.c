/* calibrate_bench.c - the JSON of `lockstep bench`, and files of machines made of it. */
#include "profile/calibrate_bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/json_out.h"
#include "core/quantile.h"

enum { SIZE_MAX_ = 1 << 30 };
#define TIME_MIN_US 1e-4
#define TIME_MAX_US 1e12

/* ---- rows ---- */

static KernelSample *new_row(BenchFile *f, KernelTable table, Op op, double us)
{
    Op *kept = PUSH(&f->arena, Op);
    *kept = op;
    GROW(f->rows, f->rows_n, f->rows_cap);
    f->rows[f->rows_n] = (KernelSample){ .table = table, .ns = us * 1e3, .op = kept };
    return &f->rows[f->rows_n++];
}

static double time_us(JsonObj *o)
{
    return json_number(o, "time_us", TIME_MIN_US, TIME_MAX_US, JSON_REQUIRED);
}

static Op matmul_op(uint64_t m, uint64_t n, uint64_t k, DType dtype, GemmLayout layout)
{
    double each = (double)dtype_bytes(dtype), x = (double)m, y = (double)n, z = (double)k;
    return (Op){ .kind = OP_MATMUL,
                 .dtype = dtype,
                 .phase = layout == GEMM_NN   ? PHASE_DGRAD
                          : layout >= GEMM_NT ? PHASE_WGRAD
                                              : PHASE_FORWARD,
                 .u.matmul = { .m = m,
                               .n = n,
                               .k = k,
                               .batch = 1,
                               .transpose_a = layout >= GEMM_NT,
                               .transpose_b = layout == GEMM_TN,
                               .accumulate = layout == GEMM_NT_ACCUMULATE },
                 .flops = 2 * x * y * z,
                 .read_bytes = (uint64_t)(each * (x * z + y * z)),
                 .write_bytes = (uint64_t)(each * x * y) };
}

static void read_gemm(BenchFile *f, JsonObj *o)
{
    uint64_t m = json_count(o, "m", 1, SIZE_MAX_, JSON_REQUIRED);
    uint64_t n = json_count(o, "n", 1, SIZE_MAX_, JSON_REQUIRED);
    uint64_t k = json_count(o, "k", 1, SIZE_MAX_, JSON_REQUIRED);
    DType dtype = (DType)json_word(o, "dtype", dtype_names, DTYPE_N, -1);
    GemmLayout layout =
        (GemmLayout)json_word(o, "layout", gemm_layout_names, GEMM_LAYOUT_N, GEMM_ANY);
    double us = time_us(o);
    if (!o->ok)
        return;
    KernelSample *x = new_row(f, TABLE_GEMM, matmul_op(m, n, k, dtype, layout), us);
    const double key[] = { (double)m, (double)n, (double)k, dtype, layout };
    memcpy(x->key, key, sizeof key);
}

static Op attention_op(const AttentionShape *a, DType dtype, bool backward)
{
    double rows = (double)a->batch * (double)a->heads * (double)a->seq_q;
    double width = (double)a->head_dim, each = (double)dtype_bytes(dtype);
    double moved = each * width * rows * (backward ? 4 : 2); /* about: q and y, and gradients */
    return (Op){ .kind = OP_ATTENTION,
                 .dtype = dtype,
                 .phase = backward ? PHASE_DGRAD : PHASE_FORWARD,
                 .u.attention = *a,
                 .flops = attention_row_flops(&(AttentionRow){ .backward = backward,
                                                               .causal = a->causal,
                                                               .batch = a->batch,
                                                               .heads = a->heads,
                                                               .seq = a->seq_q,
                                                               .head_dim = a->head_dim }),
                 .read_bytes = (uint64_t)(moved / 2),
                 .write_bytes = (uint64_t)(moved / 2) };
}

static void read_attention(BenchFile *f, JsonObj *o)
{
    static const char *const passes[] = { "forward", "backward" };
    bool backward = json_word(o, "op", passes, 2, -1) == 1;
    uint64_t seq = json_count(o, "seq", 1, SIZE_MAX_, JSON_REQUIRED);
    AttentionShape a = { .batch = json_count(o, "batch", 1, SIZE_MAX_, JSON_REQUIRED),
                         .heads = json_count(o, "heads", 1, SIZE_MAX_, JSON_REQUIRED),
                         .kv_heads = json_count(o, "kv_heads", 1, SIZE_MAX_, JSON_REQUIRED),
                         .seq_q = seq,
                         .seq_k = seq,
                         .head_dim = json_count(o, "head_dim", 1, SIZE_MAX_, JSON_REQUIRED),
                         .causal = json_bool(o, "causal", false) };
    DType dtype = (DType)json_word(o, "dtype", dtype_names, DTYPE_N, -1);
    double us = time_us(o);
    if (!o->ok)
        return;
    KernelSample *x = new_row(f, TABLE_ATTENTION, attention_op(&a, dtype, backward), us);
    const double key[] = { backward,           (double)a.batch,    (double)seq, (double)a.heads,
                           (double)a.kv_heads, (double)a.head_dim, a.causal };
    memcpy(x->key, key, sizeof key);
}

/* An op of each class, for predictions (sim/cost_memory.c). */
static const Op class_ops[MEMORY_KERNEL_N] = {
    [MEMORY_NORM] = { .kind = OP_NORM },
    [MEMORY_NORM_BWD] = { .kind = OP_NORM, .phase = PHASE_DGRAD },
    [MEMORY_ACTIVATION] = { .kind = OP_ACTIVATION },
    [MEMORY_ADD] = { .kind = OP_ADD },
    [MEMORY_SOFTMAX] = { .kind = OP_SOFTMAX },
    [MEMORY_COPY] = { .kind = OP_COPY },
    [MEMORY_OPTIMIZER] = { .kind = OP_OPTIMIZER, .phase = PHASE_UPDATE },
    [MEMORY_EMBEDDING] = { .kind = OP_EMBEDDING },
    [MEMORY_OTHER] = { .kind = OP_BIAS },
};

static void read_memory(BenchFile *f, JsonObj *o)
{
    int class_ = json_word(o, "op", memory_kernel_names, MEMORY_KERNEL_N, -1);
    double bytes = json_number(o, "bytes", 1, 1e15, JSON_REQUIRED), us = time_us(o);
    if (!o->ok)
        return;
    Op op = class_ops[class_];
    op.dtype = DTYPE_F32;
    op.read_bytes = (uint64_t)bytes;
    KernelSample *x = new_row(f, TABLE_MEMORY, op, us);
    x->key[0] = class_;
    x->key[1] = bytes;
}

static void read_overlap(BenchFile *f, JsonObj *o)
{
    bool matmul = json_bool(o, "matmul", false);
    double slowdown = json_number(o, "slowdown", 0, 1e6, 1);
    if (!o->ok || !(slowdown > 0))
        return;
    if (matmul) {
        GROW(f->matmul_slowdowns, f->matmul_slowdowns_n, f->matmul_slowdowns_cap);
        f->matmul_slowdowns[f->matmul_slowdowns_n++] = slowdown;
    } else {
        GROW(f->other_slowdowns, f->other_slowdowns_n, f->other_slowdowns_cap);
        f->other_slowdowns[f->other_slowdowns_n++] = slowdown;
    }
}

static void read_collective(BenchFile *f, JsonObj *o)
{
    const char *op = json_string(o, "op", NULL);
    uint64_t ranks = json_count(o, "ranks", 2, UINT32_MAX, JSON_REQUIRED);
    uint64_t bytes = json_count(o, "bytes", 1, (uint64_t)1 << 52, JSON_REQUIRED);
    double us = time_us(o), busbw = json_number(o, "busbw_GBps", 0, 1e9, 0);
    if (!o->ok)
        return;
    GROW(f->transfers, f->transfers_n, f->transfers_cap);
    f->transfers[f->transfers_n++] =
        (BenchTransferRow){ arena_strdup(&f->arena, op), (uint32_t)ranks, bytes, us * 1e3,
                            busbw };
}

/* ---- the file ---- */

typedef void ReadRow(BenchFile *f, JsonObj *o);

static bool read_list(BenchFile *f, JsonObj *root, const char *key, ReadRow *read, Err *err)
{
    JsonNode list = json_get(root, key);
    if (list.item && json_type(list) != JSON_ARRAY)
        return json_fail(list, err, "a list is expected, not %s",
                         json_type_name(json_type(list)));
    size_t i = 0;
    for (JsonNode n = json_first(list); n.item; n = json_next(n, list, ++i)) {
        JsonObj o = json_begin(n, err);
        read(f, &o);
        if (!json_end_lax(&o))
            return false;
    }
    return true;
}

static void read_device(BenchFile *f, JsonObj *root, Err *err)
{
    JsonNode device = json_get(root, "device");
    JsonObj o = json_begin(device, err);
    const char *name = json_string(&o, "name", ""), *versions = json_string(&o, "versions", "");
    const char *date = json_string(&o, "date", "");
    uint64_t bytes = json_count(&o, "memory_bytes", 0, (uint64_t)1 << 52, 0);
    root->ok = json_end_lax(&o);
    bool first = !f->device || !*f->device;
    if (root->ok && !first && *name && strcmp(f->device, name) != 0)
        root->ok = json_fail(device, err, "this is of the device '%s', another is of '%s'",
                             name, f->device);
    if (root->ok && first) {
        f->device = arena_strdup(&f->arena, name);
        f->versions = arena_strdup(&f->arena, versions);
        f->date = arena_strdup(&f->arena, date);
        f->memory_bytes = bytes;
    }
}

static bool read_root(BenchFile *f, JsonNode node, Err *err)
{
    JsonObj o = json_begin(node, err);
    json_count(&o, "lockstep_bench", BENCH_FORMAT, BENCH_FORMAT, JSON_REQUIRED);
    const char *backend = json_string(&o, "backend", "cpu");
    uint32_t ranks = (uint32_t)json_count(&o, "ranks", 1, 1 << 20, JSON_REQUIRED);
    if (o.ok && json_has(&o, "device"))
        read_device(f, &o, err);
    if (!f->device)
        f->device = f->versions = f->date = "";
    if (o.ok && f->backend && strcmp(f->backend, backend) != 0)
        o.ok = json_fail(node, err, "this is of the backend '%s', another is of '%s'", backend,
                         f->backend);
    f->backend = o.ok && !f->backend ? arena_strdup(&f->arena, backend) : f->backend;
    f->ranks = f->ranks ? f->ranks : ranks;
    bool ok = o.ok && read_list(f, &o, "gemm", read_gemm, err) &&
              read_list(f, &o, "attention", read_attention, err) &&
              read_list(f, &o, "memory", read_memory, err) &&
              read_list(f, &o, "overlap", read_overlap, err) &&
              read_list(f, &o, "collective", read_collective, err);
    f->launch_ns = 1e3 * json_number(&o, "launch_us", 0, TIME_MAX_US, f->launch_ns / 1e3);
    f->gap_ns = 1e3 * json_number(&o, "gap_us", 0, TIME_MAX_US, f->gap_ns / 1e3);
    f->host_bytes_per_ns = json_number(&o, "host_GBps", 0, 1e9, f->host_bytes_per_ns);
    return json_end_lax(&o) && ok;
}

bool bench_file_read(BenchFile *f, const char *path, Err *err)
{
    JsonDoc *doc = json_open(path, err);
    bool ok = doc && read_root(f, json_root(doc), err);
    json_close(doc);
    return ok;
}

void bench_file_free(BenchFile *f)
{
    free(f->rows);
    free(f->matmul_slowdowns);
    free(f->other_slowdowns);
    free(f->transfers);
    arena_free(&f->arena);
    *f = (BenchFile){ 0 };
}

const char *bench_file_source(BenchFile *f)
{
    return arena_printf(&f->arena, "lockstep bench on %s%s%s%s, %u rank%s%s%s",
                        *f->device ? f->device : "a machine", *f->versions ? " (" : "",
                        f->versions, *f->versions ? ")" : "", (unsigned)f->ranks,
                        f->ranks > 1 ? "s at once" : "", *f->date ? ", " : "", f->date);
}

/* ---- samples ---- */

static int by_class_and_bytes(const void *pa, const void *pb)
{
    const KernelSample *a = pa, *b = pb;
    if (a->table != b->table)
        return a->table < b->table ? -1 : 1;
    for (int i = 0; i < 2 && a->table == TABLE_MEMORY; i++)
        if (a->key[i] < b->key[i] || a->key[i] > b->key[i])
            return a->key[i] < b->key[i] ? -1 : 1;
    return (a->ns > b->ns) - (a->ns < b->ns);
}

/* Rows [first, end) of a class as one. */
static KernelSample cluster(BenchFile *f, uint32_t first, uint32_t end)
{
    uint32_t n = end - first;
    double *rate = PUSH_ARRAY(&f->arena, double, n), *bytes = PUSH_ARRAY(&f->arena, double, n);
    for (uint32_t i = 0; i < n; i++) {
        bytes[i] = f->rows[first + i].key[1];
        rate[i] = bytes[i] / f->rows[first + i].ns;
    }
    KernelSample x = f->rows[first];
    Op *op = PUSH(&f->arena, Op);
    x.key[1] = floor(sort_median(bytes, n));
    x.ns = x.key[1] / sort_median(rate, n);
    *op = *x.op;
    op->read_bytes = (uint64_t)x.key[1];
    x.op = op;
    return x;
}

static void add_sample(KernelFit *fit, KernelSample x)
{
    GROW(fit->samples, fit->samples_n, fit->samples_cap);
    fit->samples[fit->samples_n++] = x;
}

void bench_file_samples(BenchFile *f, KernelFit *fit)
{
    static const double wide = 1.5;
    if (f->rows_n > 0)
        qsort(f->rows, f->rows_n, sizeof *f->rows, by_class_and_bytes);
    for (uint32_t i = 0, end; i < f->rows_n; i = end) {
        KernelSample *x = &f->rows[i];
        end = i + 1;
        if (x->table == TABLE_ATTENTION && !kernel_sample_rows(fit, x)) {
            fit->no_table++;
            continue;
        }
        if (x->table != TABLE_MEMORY) {
            add_sample(fit, *x);
            continue;
        }
        while (end < f->rows_n && f->rows[end].table == TABLE_MEMORY &&
               f->rows[end].key[0] == x->key[0] && f->rows[end].key[1] <= wide * x->key[1])
            end++;
        add_sample(fit, cluster(f, i, end));
    }
}

void bench_file_rest(const BenchFile *f, KernelFit *fit)
{
    if (f->launch_ns > 0)
        fit->launch_ns = f->launch_ns;
    if (f->gap_ns > 0 && f->gap_ns < (double)fit->gpu->kernel_floor_ns)
        fit->floor_ns = f->gap_ns;
    if (f->host_bytes_per_ns > 0)
        fit->host_bytes_per_ns = f->host_bytes_per_ns;
}

/* ---- files made anew ---- */

typedef struct Peaks {
    double flops[DTYPE_N], bytes; /* per ns */
    double matmul, attention[2];  /* parts of the peak, medians */
} Peaks;

static double row_rate(const KernelSample *x)
{
    return (x->table == TABLE_MEMORY ? x->key[1] : x->op->flops) / x->ns;
}

/* f16 and bf16 are one class, and so are f32 and tf32. */
static DType class_of(DType t)
{
    return t == DTYPE_BF16 ? DTYPE_F16 : t == DTYPE_TF32 ? DTYPE_F32 : t;
}

static double peak_for(const Peaks *p, DType t)
{
    double most = 0;
    for (int d = 0; d < DTYPE_N; d++)
        most = fmax(most, p->flops[d]);
    double own = p->flops[class_of(t)];
    return own > 0 ? own : most > 0 ? most : 1;
}

/* Median part of the peak that kernels of the table reach; otherwise where there are none. */
static double efficiency_of(BenchFile *f, const Peaks *p, KernelTable table, int pass,
                            double otherwise)
{
    double *part = PUSH_ARRAY(&f->arena, double, f->rows_n + 1);
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->rows_n; i++) {
        const KernelSample *x = &f->rows[i];
        if (x->table == table && (table != TABLE_ATTENTION || (int)x->key[0] == pass))
            part[n++] = row_rate(x) / peak_for(p, x->op->dtype);
    }
    return n > 0 ? sort_median(part, n) : otherwise;
}

static Peaks peaks_of(BenchFile *f)
{
    Peaks p = { 0 };
    for (uint32_t i = 0; i < f->rows_n; i++) {
        const KernelSample *x = &f->rows[i];
        double moved = ((double)x->op->read_bytes + (double)x->op->write_bytes) / x->ns;
        double *peak = &p.flops[class_of(x->op->dtype)];
        if (x->table != TABLE_MEMORY)
            *peak = fmax(*peak, row_rate(x));
        p.bytes = fmax(p.bytes, moved);
    }
    p.bytes = p.bytes > 0 ? p.bytes : 1;
    p.matmul = efficiency_of(f, &p, TABLE_GEMM, 0, 1);
    for (int i = 0; i < 2; i++)
        p.attention[i] = efficiency_of(f, &p, TABLE_ATTENTION, i, p.matmul);
    return p;
}

static double best_busbw(const BenchFile *f)
{
    double best = 0;
    for (uint32_t i = 0; i < f->transfers_n; i++)
        best = fmax(best, f->transfers[i].busbw);
    return best;
}

static double rounded(double x) /* to four digits: it is a measurement */
{
    char text[40];
    snprintf(text, sizeof text, "%.4g", x);
    return strtod(text, NULL);
}

static void put_rounded(JsonOut *j, const char *key, double x)
{
    json_put_number(j, key, rounded(x));
}

/* Above, never below: measured rows may not beat the peak. */
static void put_peak(JsonOut *j, const char *key, double x)
{
    double up = rounded(x);
    json_put_number(j, key, up < x ? rounded(x * 1.001) : up);
}

static void put_peaks(JsonOut *j, const Peaks *p, double host)
{
    static const DType types[] = { DTYPE_F32, DTYPE_TF32, DTYPE_F16, DTYPE_BF16 };
    json_put_open(j, "peak_tflops", '{');
    for (size_t i = 0; i < ARRAY_N(types); i++)
        put_peak(j, dtype_names[types[i]], peak_for(p, types[i]) / 1000);
    json_out_close(j, '}');
    put_peak(j, "memory_GBps", p->bytes);
    put_rounded(j, "host_GBps", host > 0 ? host : p->bytes);
    json_put_open(j, "efficiency", '{');
    put_rounded(j, "matmul", fmax(p->matmul, 0.001));
    put_rounded(j, "attention", fmax(p->attention[0], 0.001));
    put_rounded(j, "attention_bwd", fmax(p->attention[1], 0.001));
    json_put_number(j, "memory", 1);
    json_out_close(j, '}');
}

static void put_overlap(JsonOut *j, BenchFile *f, const Peaks *p)
{
    double matmul =
        f->matmul_slowdowns_n ? sort_median(f->matmul_slowdowns, f->matmul_slowdowns_n) : 1;
    double other =
        f->other_slowdowns_n ? sort_median(f->other_slowdowns, f->other_slowdowns_n) : 1;
    double link = best_busbw(f), sms = BENCH_SMS * (1 - 1 / fmax(matmul, 1));
    json_put_open(j, "overlap", '{');
    put_rounded(j, "comm_sms", fmin(sms, BENCH_SMS - 1));
    put_rounded(j, "comm_memory_factor",
                link > 0 ? fmin(100, (fmax(other, 1) - 1) * p->bytes / link) : 0);
    json_out_close(j, '}');
}

typedef struct Text {
    char *text;
    size_t n;
    FILE *file;
} Text;

static JsonOut text_open(Text *t)
{
    *t = (Text){ 0 };
    t->file = open_memstream(&t->text, &t->n);
    ASSERT(t->file);
    return json_out_file(t->file, 2);
}

static char *text_close(Text *t, JsonOut *j)
{
    Err ignored = { 0 };
    json_out_end(j, &ignored);
    fclose(t->file);
    return t->text;
}

/* Of a peak that nothing was measured of, every efficiency would be 1. */
static bool has_matmul(const BenchFile *f)
{
    for (uint32_t i = 0; i < f->rows_n; i++)
        if (f->rows[i].table == TABLE_GEMM)
            return true;
    return false;
}

char *bench_gpu_text(BenchFile *f, const char *name, Err *err)
{
    if (!has_matmul(f)) {
        err_set(err, "no matmul was measured, so no GPU's file can be made anew: measure some "
                     "too (lockstep bench gemm), or name a file that is there (--into)");
        return NULL;
    }
    Peaks p = peaks_of(f);
    Text t;
    JsonOut j = text_open(&t);
    json_out_open(&j, '{');
    json_put_text(&j, "name", name);
    json_put_text(&j, "generation", "other");
    put_peaks(&j, &p, f->host_bytes_per_ns);
    put_rounded(&j, "memory_GB",
                fmax((double)f->memory_bytes / 1e9 / (f->ranks ? f->ranks : 1), 0.1));
    json_put_int(&j, "sms", BENCH_SMS);
    json_put_int(&j, "tdp_w", 0);
    put_rounded(&j, "launch_us", f->launch_ns / 1e3);
    json_put_int(&j, "kernel_floor_us", 0);
    json_put_open(&j, "matmul_model", '{');
    json_put_int(&j, "fill_us", 0);
    json_put_int(&j, "tile_loss", 0);
    json_put_int(&j, "wave_rounding", 0);
    json_out_close(&j, '}');
    put_overlap(&j, f, &p);
    json_put_open(&j, "provenance", '{');
    json_put_text(&j, "all", bench_file_source(f));
    json_out_close(&j, '}');
    json_out_close(&j, '}');
    return text_close(&t, &j);
}

/* A ring all-reduce of S bytes over n: 2 (n - 1) steps; the smallest one is all latency. */
static double latency_us(const BenchFile *f)
{
    const BenchTransferRow *least = NULL;
    for (uint32_t i = 0; i < f->transfers_n; i++)
        if (strcmp(f->transfers[i].op, "all_reduce") == 0 &&
            (!least || f->transfers[i].bytes < least->bytes))
            least = &f->transfers[i];
    return least ? least->ns / 1e3 / (2.0 * (least->ranks - 1)) : 1;
}

char *bench_cluster_text(BenchFile *f, const char *name, const char *gpu)
{
    Text t;
    JsonOut j = text_open(&t);
    uint32_t ranks = 2;
    for (uint32_t i = 0; i < f->transfers_n; i++)
        ranks = f->transfers[i].ranks > ranks ? f->transfers[i].ranks : ranks;
    json_out_open(&j, '{');
    json_put_text(&j, "name", name);
    json_put_int(&j, "nodes", 1);
    json_put_uint(&j, "gpus_per_node", ranks);
    json_put_text(&j, "gpu", gpu);
    json_put_open(&j, "intra_node", '{');
    json_put_text(&j, "kind", "shared_memory");
    put_rounded(&j, "GBps", fmax(best_busbw(f), 1e-3));
    put_rounded(&j, "latency_us", latency_us(f));
    json_out_close(&j, '}');
    json_put_open(&j, "provenance", '{');
    json_put_text(&j, "all", bench_file_source(f));
    json_out_close(&j, '}');
    json_out_close(&j, '}');
    return text_close(&t, &j);
}

/*
 * cmd_run_machine.c - what was measured, as the "cluster" that the simulator reads.
 *
 *     kernels   rows of the GPU's tables: matmuls, attention, what is limited by memory
 *     peaks     the best of the rows, so that no measured row lies above them
 *     link      latency and bandwidth of a ring that all-reduces as fast as was measured
 *     measured  collectives, each as it took; the link is for what is sent and received
 *
 * PROCESSORS.  More ranks than processors take turns: everything takes so much longer.
 * A transfer is work for its rank's processor as well, unless one is free for it: beside
 * a transfer a kernel then hardly moves.  In the GPU's words it leaves one SM of SMS.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/json_out.h"
#include "exec/cmd_run_plan.h"
#include "sim/cost_parts.h"

enum { SMS = 8 };

typedef enum Table { TABLE_GEMM, TABLE_MEMORY, TABLE_ATTENTION, TABLE_COPY, TABLE_NONE } Table;

static Table table_of(const Op *op)
{
    if (op->kind == OP_MATMUL)
        return op->u.matmul.batch == 1 ? TABLE_GEMM : TABLE_NONE;
    if (op->kind == OP_ATTENTION)
        return TABLE_ATTENTION;
    if (op->kind == OP_H2D)
        return TABLE_COPY;
    return op->read_bytes + op->write_bytes > 0 ? TABLE_MEMORY : TABLE_NONE;
}

/* How much longer everything takes because ranks share processors. */
static double turns(const MachineTimes *m)
{
    return m->ranks > m->processors ? (double)m->ranks / m->processors : 1;
}

/* 1: every rank has a processor to spare for its transfers; 0: none has. */
static double spare(const MachineTimes *m)
{
    if (m->ranks >= m->processors)
        return 0;
    return fmin(1, (double)(m->processors - m->ranks) / m->ranks);
}

/* ---- peaks ---- */

typedef struct Peaks {
    double flops_per_ns, bytes_per_ns, copy_bytes_per_ns;
    double matmul_efficiency, attention_efficiency; /* means over the work, of flops_per_ns */
} Peaks;

typedef struct Sum {
    double work, ns;
} Sum;

static void add(Sum *s, const KernelTime *t, double work)
{
    s->work += work * (double)t->n;
    s->ns += t->ns * (double)t->n;
}

static double rate(const Sum *s, double otherwise)
{
    return s->ns > 0 && s->work > 0 ? s->work / s->ns : otherwise;
}

static Peaks peaks_of(const MachineTimes *m)
{
    Peaks p = { 0 };
    Sum matmul = { 0 }, attention = { 0 }, copy = { 0 };
    for (uint32_t i = 0; i < m->times_n; i++) {
        const KernelTime *t = &m->times[i];
        double bytes = (double)t->op.read_bytes + (double)t->op.write_bytes;
        Table table = table_of(&t->op);
        if (table == TABLE_COPY) {
            add(&copy, t, (double)t->op.write_bytes);
            continue;
        }
        p.flops_per_ns = fmax(p.flops_per_ns, t->op.flops / t->ns);
        p.bytes_per_ns = fmax(p.bytes_per_ns, bytes / t->ns);
        if (t->op.kind == OP_MATMUL)
            add(&matmul, t, t->op.flops);
        if (t->op.kind == OP_ATTENTION)
            add(&attention, t, t->op.flops);
    }
    double slower = turns(m);
    p.flops_per_ns = p.flops_per_ns > 0 ? p.flops_per_ns : 1;
    p.bytes_per_ns = p.bytes_per_ns > 0 ? p.bytes_per_ns : 1;
    p.matmul_efficiency = rate(&matmul, p.flops_per_ns) / p.flops_per_ns;
    p.attention_efficiency = rate(&attention, p.flops_per_ns) / p.flops_per_ns;
    p.copy_bytes_per_ns = rate(&copy, p.bytes_per_ns) / slower;
    p.flops_per_ns /= slower;
    p.bytes_per_ns /= slower;
    return p;
}

/* ---- rows ---- */

static const char *layout_name(const MatmulShape *s)
{
    return gemm_layout_names[gemm_layout_of(s)];
}

static void put_time(JsonOut *j, double ns)
{
    json_out_number(j, fmax(ns / 1000, 1e-3));
}

static void put_gemm(JsonOut *j, const Op *op, double ns)
{
    const MatmulShape *s = &op->u.matmul;
    json_out_int(j, (int64_t)s->m);
    json_out_int(j, (int64_t)s->n);
    json_out_int(j, (int64_t)s->k);
    json_out_string(j, dtype_names[op->dtype]);
    json_out_string(j, layout_name(s));
    put_time(j, ns);
}

static void put_memory(JsonOut *j, const Op *op, double ns)
{
    json_out_string(j, memory_kernel_names[memory_kernel_of(op)]);
    json_out_int(j, (int64_t)(op->read_bytes + op->write_bytes));
    put_time(j, ns);
}

/* A row is about as many queries as keys: with fewer, its time is that of all of them. */
static void put_attention(JsonOut *j, const Op *op, double ns)
{
    const AttentionShape *a = &op->u.attention;
    bool backward = op_is_backward(op);
    double flops = attention_row_flops(&(AttentionRow){ .backward = backward,
                                                        .causal = a->causal,
                                                        .batch = a->batch,
                                                        .heads = a->heads,
                                                        .seq = a->seq_k,
                                                        .head_dim = a->head_dim });
    json_out_string(j, backward ? "backward" : "forward");
    json_out_int(j, (int64_t)a->batch);
    json_out_int(j, (int64_t)a->seq_k);
    json_out_int(j, (int64_t)a->heads);
    json_out_int(j, (int64_t)a->kv_heads);
    json_out_int(j, (int64_t)a->head_dim);
    json_out_int(j, a->causal);
    put_time(j, op->flops > 0 ? ns * flops / op->flops : ns);
}

/* Of one row in the table: several shapes may share it. */
static bool same_row(const Op *a, const Op *b)
{
    if (table_of(a) != table_of(b))
        return false;
    if (table_of(a) == TABLE_MEMORY)
        return memory_kernel_of(a) == memory_kernel_of(b) &&
               a->read_bytes + a->write_bytes == b->read_bytes + b->write_bytes;
    if (table_of(a) == TABLE_ATTENTION)
        return same_work(a, b);
    const MatmulShape *x = &a->u.matmul, *y = &b->u.matmul;
    return a->dtype == b->dtype && x->m == y->m && x->n == y->n && x->k == y->k &&
           layout_name(x) == layout_name(y);
}

/* Mean of all shapes of row i; NAN where an earlier shape has given it. */
static double row_ns(const MachineTimes *m, uint32_t i)
{
    Sum sum = { 0 };
    for (uint32_t k = 0; k < m->times_n; k++) {
        if (!same_row(&m->times[i].op, &m->times[k].op))
            continue;
        if (k < i)
            return NAN;
        add(&sum, &m->times[k], 1);
    }
    return sum.ns / sum.work * turns(m);
}

typedef struct Format {
    const char *name, *columns[8];
    void (*put)(JsonOut *j, const Op *op, double ns);
} Format;

static const Format formats[] = {
    [TABLE_GEMM] = { "gemm", { "m", "n", "k", "dtype", "layout", "time_us" }, put_gemm },
    [TABLE_MEMORY] = { "memory", { "op", "bytes", "time_us" }, put_memory },
    [TABLE_ATTENTION] = { "attention",
                          { "op", "batch", "seq", "heads", "kv_heads", "head_dim", "causal",
                            "time_us" },
                          put_attention },
};

static void put_table(JsonOut *j, const MachineTimes *m, Table table)
{
    const Format *f = &formats[table];
    bool any = false;
    for (uint32_t i = 0; i < m->times_n; i++)
        any = any || table_of(&m->times[i].op) == table;
    if (!any)
        return;
    json_put_open(j, f->name, '{');
    json_put_text(j, "source", "measured by this run");
    json_put_open(j, "columns", '[');
    for (size_t i = 0; i < ARRAY_N(f->columns) && f->columns[i]; i++)
        json_out_string(j, f->columns[i]);
    json_out_close(j, ']');
    json_put_open(j, "rows", '[');
    for (uint32_t i = 0; i < m->times_n; i++) {
        double ns = table_of(&m->times[i].op) == table ? row_ns(m, i) : NAN;
        if (isnan(ns))
            continue;
        json_out_open(j, '[');
        f->put(j, &m->times[i].op, ns);
        json_out_close(j, ']');
    }
    json_out_close(j, ']');
    json_out_close(j, '}');
}

/* ---- the cluster ---- */

typedef struct Link {
    double latency_ns, bytes_per_ns;
} Link;

/* A ring all-reduce of S bytes over n takes 2 (n - 1) latencies and 2 (n - 1) / n S bytes. */
static Link link_of(const MachineTimes *m, uint32_t ranks)
{
    Link link = { 1000, 1 };
    if (ranks < 2)
        return link;
    /* Of few bytes the time is that of meeting, give or take. */
    double steps = 2 * ((double)ranks - 1);
    double ns = fmax(m->reduce_ns - m->meet_ns, fmax(m->reduce_ns / 10, 1));
    link.latency_ns = m->meet_ns / steps;
    if (m->reduce_bytes > 0)
        link.bytes_per_ns = steps / ranks * (double)m->reduce_bytes / ns;
    return link;
}

/* Of one kind and number of ranks: [first, end) of the list, which lies in that order. */
static void put_collective(JsonOut *j, const CollectiveTime *first, const CollectiveTime *end,
                           double meet_ns)
{
    const CollectiveTime *largest = end - 1;
    double latency_ns = fmin(meet_ns, first->ns);
    for (const CollectiveTime *t = first; t < end; t++)
        latency_ns = fmin(latency_ns, t->ns);
    json_out_open(j, '{');
    json_put_text(j, "op", op_kind_names[first->kind]);
    json_put_int(j, "ranks", first->ranks);
    json_put_int(j, "nodes", 1);
    json_put_number(j, "latency_us", latency_ns / 1000);
    json_put_number(j, "GBps", (double)largest->bytes / fmax(largest->ns - latency_ns, 1));
    json_put_open(j, "sizes", '[');
    for (const CollectiveTime *t = first; t < end; t++) {
        json_out_open(j, '[');
        json_out_int(j, (int64_t)t->bytes);
        put_time(j, t->ns);
        json_out_close(j, ']');
    }
    json_out_close(j, ']');
    json_out_close(j, '}');
}

/* Of sends the link says all: nothing of NCCL's is added. */
static void put_collectives(JsonOut *j, const MachineTimes *m)
{
    json_put_open(j, "collectives", '{');
    json_put_number(j, "base_latency_us", 0);
    json_put_number(j, "tree_base_latency_us", 0);
    json_put_number(j, "intra_efficiency", 1);
    json_put_open(j, "measured", '[');
    for (uint32_t i = 0, end; i < m->collectives_n; i = end) {
        const CollectiveTime *x = m->collectives;
        end = i + 1;
        while (end < m->collectives_n && x[end].kind == x[i].kind && x[end].ranks == x[i].ranks)
            end++;
        put_collective(j, &x[i], &x[end], m->meet_ns);
    }
    json_out_close(j, ']');
    json_out_close(j, '}');
}

static void put_peaks(JsonOut *j, const Peaks *p)
{
    static const DType types[] = { DTYPE_F32, DTYPE_TF32, DTYPE_F16, DTYPE_BF16 };
    const double least = 1e-3; /* that a machine file may say: a few bytes are slow */
    json_put_open(j, "peak_tflops", '{');
    for (size_t i = 0; i < ARRAY_N(types); i++)
        json_put_number(j, dtype_names[types[i]], fmax(p->flops_per_ns / 1000, least));
    json_out_close(j, '}');
    json_put_number(j, "memory_GBps", fmax(p->bytes_per_ns, least));
    json_put_number(j, "host_GBps", fmax(p->copy_bytes_per_ns, least));
    json_put_open(j, "efficiency", '{');
    json_put_number(j, "matmul", fmax(p->matmul_efficiency, 0.001));
    json_put_number(j, "attention", fmax(p->attention_efficiency, 0.001));
    json_put_number(j, "attention_bwd", fmax(p->attention_efficiency, 0.001));
    json_put_number(j, "memory", 1);
    json_out_close(j, '}');
}

static void put_gpu(JsonOut *j, const MachineTimes *m, const Link *link)
{
    Peaks p = peaks_of(m);
    double taken = (SMS - 1) * (1 - spare(m)); /* less than one of them is none */
    double moved = taken < 1 ? 0 : taken * p.bytes_per_ns / link->bytes_per_ns;
    json_put_text(j, "name", "cpu");
    json_put_text(j, "generation", "other");
    put_peaks(j, &p);
    json_put_number(j, "memory_GB", (double)m->memory_bytes / 1e9 / m->ranks);
    json_put_number(j, "sms", SMS);
    json_put_number(j, "tdp_w", 0);
    json_put_number(j, "launch_us", 0);
    json_put_number(j, "kernel_floor_us", 0);
    json_put_open(j, "matmul_model", '{');
    json_put_number(j, "fill_us", 0);
    json_put_number(j, "tile_loss", 0);
    json_put_number(j, "wave_rounding", 0);
    json_out_close(j, '}');
    json_put_open(j, "overlap", '{');
    json_put_number(j, "comm_sms", floor(taken));
    json_put_number(j, "comm_memory_factor", fmin(100, moved));
    json_out_close(j, '}');
    json_put_open(j, "kernels", '{');
    for (Table t = 0; t < TABLE_COPY; t++)
        put_table(j, m, t);
    json_out_close(j, '}');
    json_put_text(j, "provenance", "measured by this run before it trained");
}

char *run_machine_json(const MachineTimes *m, uint32_t ranks, Err *err)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    if (!file) {
        err_set(err, "cannot keep what was measured");
        return NULL;
    }
    JsonOut j = json_out_file(file, 0);
    Link link = link_of(m, ranks);
    json_out_open(&j, '{');
    json_put_text(&j, "name", "this machine");
    json_put_number(&j, "nodes", 1);
    json_put_number(&j, "gpus_per_node", ranks);
    json_put_open(&j, "intra_node", '{');
    json_put_text(&j, "kind", "shared_memory");
    json_put_number(&j, "GBps", link.bytes_per_ns);
    json_put_number(&j, "latency_us", link.latency_ns / 1000);
    json_out_close(&j, '}');
    put_collectives(&j, m);
    json_put_open(&j, "gpu", '{');
    put_gpu(&j, m, &link);
    json_out_close(&j, '}');
    json_out_close(&j, '}');
    bool ok = json_out_end(&j, err);
    fclose(file);
    if (ok)
        return text;
    free(text);
    return NULL;
}

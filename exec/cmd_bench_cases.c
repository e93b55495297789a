/*
 * cmd_bench_cases.c - which kernels are worth measuring.
 *
 * The graphs that the simulator makes of scenarios name them: every kernel of one step with
 * its tensors, and how often it runs.  Without scenarios these are the built-in models, at
 * tensor parallel 1, 2, 4, 8 and some numbers of tokens in a micro-batch.  A kernel is worth
 * the part of a step that it takes, as far as flops and bytes tell, summed over the scenarios;
 * what takes long must be worth more.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "exec/cmd_bench.h"
#include "exec/cmd_run_plan.h"
#include "sim/cost_parts.h"
#include "sim/scenario.h"

enum { SIZES_PER_DOUBLING = 1 };

/* A guess of the device, to rank kernels by: flops and bytes per ns. */
typedef struct Pace {
    double flops, bytes;
} Pace;

static Pace pace_of(const BenchOptions *o)
{
    return o->cuda ? (Pace){ 4e5, 2e3 } : (Pace){ 40, 8 };
}

static double guess_ns(const Pace *p, const Op *op)
{
    double bytes = (double)op->read_bytes + (double)op->write_bytes;
    return 500 + fmax(op->flops / p->flops, bytes / p->bytes);
}

/* ---- which ops ---- */

static bool table_of(const Op *op, BenchTable *table)
{
    if (op_is_comm(op->kind) || op->kind == OP_H2D || op->kind == OP_HOST_WAIT ||
        op->kind == OP_RELEASE || op->kind == OP_CONV || op->kind == OP_POOL)
        return false;
    *table = op->kind == OP_MATMUL      ? BENCH_TABLE_GEMM
             : op->kind == OP_ATTENTION ? BENCH_TABLE_ATTENTION
                                        : BENCH_TABLE_MEMORY;
    if (op->kind == OP_MATMUL)
        return op->u.matmul.batch == 1;
    if (op->kind == OP_ATTENTION)
        return op->u.attention.window == 0 && op->u.attention.value_dim == 0 &&
               op->u.attention.seq_q == op->u.attention.seq_k;
    return op->read_bytes + op->write_bytes > 0;
}

static bool same_case(const BenchCase *c, BenchTable table, const Op *op)
{
    const Op *x = &c->kernel.op;
    if (c->table != table || x->kind != op->kind || x->phase != op->phase ||
        x->dtype != op->dtype)
        return false;
    if (table != BENCH_TABLE_MEMORY)
        return same_work(x, op);
    double was = (double)x->read_bytes + (double)x->write_bytes;
    double is = (double)op->read_bytes + (double)op->write_bytes;
    return x->fn == op->fn && fabs(log2(is / was)) * SIZES_PER_DOUBLING < 0.5;
}

static void add_op(BenchCases *c, const Graph *g, const Segment *s, const Op *op,
                   const ModelFacts *facts, const Pace *pace, double value)
{
    BenchTable table;
    if (!table_of(op, &table))
        return;
    for (uint32_t i = 0; i < c->n; i++)
        if (same_case(&c->cases[i], table, op)) {
            c->cases[i].value += value;
            return;
        }
    BenchKernel k;
    if (!bench_kernel(&k, &c->arena, g, s, op, facts))
        return;
    GROW(c->cases, c->n, c->cap);
    c->cases[c->n++] = (BenchCase){ .kernel = k,
                                    .table = table,
                                    .class_ = memory_kernel_of(op),
                                    .value = value,
                                    .guess_ns = guess_ns(pace, op) };
}

/* How often each segment runs in rank 0's step. */
static uint32_t *count_segments(const Graph *g, const Role *role)
{
    uint32_t *times = mem_zero((size_t)g->segments_n + 1, sizeof *times);
    for (uint32_t i = 0; i < role->instances_n; i++)
        times[role->instances[i].segment]++;
    return times;
}

static void add_graph(BenchCases *c, const Graph *g, const ModelFacts *facts, const Pace *pace)
{
    uint32_t *times = count_segments(g, graph_role_of(g, 0));
    double all_ns = 0;
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t s = 0; s < g->segments_n; s++)
            for (uint32_t i = 0; i < g->segments[s].op_n && times[s] > 0; i++) {
                const Op *op = graph_ops(g, &g->segments[s]) + i;
                double ns = op_is_comm(op->kind) ? 0 : guess_ns(pace, op) * times[s];
                if (pass == 0)
                    all_ns += ns;
                else
                    add_op(c, g, &g->segments[s], op, facts, pace, ns / all_ns);
            }
    free(times);
    c->scenarios_n++;
}

/* ---- scenarios ---- */

static bool add_scenario(BenchCases *c, const BenchOptions *o, const char *name,
                         const Setting *settings, uint32_t n, Err *err)
{
    RunPlan plan;
    RunRequest request = {
        .scenario = name, .settings = settings, .settings_n = n, .this_machine = true
    };
    bool usage, ok = run_plan_open(&plan, &request, &usage, err);
    Pace pace = pace_of(o);
    if (ok) {
        ModelFacts facts = run_plan_facts(&plan, 0);
        add_graph(c, &plan.graph, &facts, &pace);
    }
    run_plan_free(&plan);
    return ok;
}

static bool add_given(BenchCases *c, const BenchOptions *o, Err *err)
{
    bool ok = true;
    for (uint32_t i = 0; i < o->scenarios_n && ok; i++)
        ok = add_scenario(c, o, o->scenarios[i], o->settings, o->settings_n, err);
    return ok;
}

typedef struct Sweep {
    const char *precision;
    const uint32_t *tokens; /* of a micro-batch; a transformer's sequence */
    const uint32_t *rows;   /* samples of an mlp's */
} Sweep;

/* Ends with 0. */
static const uint32_t tokens_cpu[] = { 64, 256, 0 }, tokens_cuda[] = { 1024, 4096, 8192, 0 };
static const uint32_t rows_cpu[] = { 16, 64, 256, 0 }, rows_cuda[] = { 64, 1024, 0 };

static const Sweep sweep_cpu = { "f32", tokens_cpu, rows_cpu };
static const Sweep sweep_cuda = { "bf16", tokens_cuda, rows_cuda };

enum { TP_MAX = 8 };

/* A model that cannot be split so, or not be run, is left out: others are like it. */
static void add_model(BenchCases *c, const BenchOptions *o, const Sweep *w, const char *name,
                      uint32_t tp, uint32_t tokens, bool mlp)
{
    Err ignored = { 0 };
    char count[16], degree[16];
    snprintf(count, sizeof count, "%u", (unsigned)tokens);
    snprintf(degree, sizeof degree, "%u", (unsigned)tp);
    const Setting settings[] = {
        { "model", name },
        { "parallel.dp", "1" },
        { "parallel.tp", degree },
        { "training.precision", w->precision },
        { "training.optimizer", "adamw" },
        { "training.micro_batch", mlp ? count : "1" },
        { "training.global_batch", mlp ? count : "1" },
        { "training.loss", mlp ? "mse" : "cross_entropy" },
        { "training.seq_len", count },
    };
    add_scenario(c, o, "toy-mlp-ddp", settings, (uint32_t)ARRAY_N(settings) - mlp, &ignored);
}

static void add_models(BenchCases *c, const BenchOptions *o)
{
    const Sweep *w = o->cuda ? &sweep_cuda : &sweep_cpu;
    const char *const *names;
    Arena arena = { 0 };
    uint32_t n = share_names(&names, &arena, "models");
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t tp = 1; tp <= TP_MAX; tp *= 2) {
            for (uint32_t t = 0; w->tokens[t]; t++)
                add_model(c, o, w, names[i], tp, w->tokens[t], false);
            for (uint32_t t = 0; w->rows[t]; t++)
                add_model(c, o, w, names[i], tp, w->rows[t], true);
        }
    arena_free(&arena);
}

/* Four times as long may take what is worth twice as much: else a few large ones take it all. */
static double worth(const BenchCase *c)
{
    return c->value / sqrt(c->guess_ns);
}

static bool like_attention(const AttentionShape *a, const AttentionShape *b)
{
    return a->seq_q == b->seq_q && a->head_dim == b->head_dim;
}

static bool like_product(const MatmulShape *a, const MatmulShape *b)
{
    return llround(log2((double)a->m)) == llround(log2((double)b->m)) &&
           llround(log2((double)a->n)) == llround(log2((double)b->n)) &&
           llround(log2((double)a->k)) == llround(log2((double)b->k));
}

/* Kernels that tell the most of each other: products of like sizes, attention of one length, width
 * and direction, a class limited by memory. */
static bool alike(const BenchCase *a, const BenchCase *b)
{
    if (a->table != b->table || a->kernel.op.dtype != b->kernel.op.dtype)
        return false;
    if (a->table == BENCH_TABLE_MEMORY)
        return a->class_ == b->class_;
    if (a->table == BENCH_TABLE_ATTENTION)
        return a->kernel.op.phase == b->kernel.op.phase &&
               like_attention(&a->kernel.op.u.attention, &b->kernel.op.u.attention);
    return like_product(&a->kernel.op.u.matmul, &b->kernel.op.u.matmul);
}

/* Kernels that are alike take turns with the others: how many of its like come before each. */
static void give_turns(BenchCases *c)
{
    for (uint32_t i = 0; i < c->n; i++) {
        c->cases[i].turn = 0;
        for (uint32_t k = i; k-- > 0;)
            if (alike(&c->cases[i], &c->cases[k])) {
                c->cases[i].turn = c->cases[k].turn + 1;
                break;
            }
    }
}

static int by_worth(const void *pa, const void *pb)
{
    const BenchCase *a = pa, *b = pb;
    double x = worth(a), y = worth(b);
    if (a->turn != b->turn)
        return a->turn < b->turn ? -1 : 1;
    if (x < y || x > y)
        return x > y ? -1 : 1;
    return (a->guess_ns > b->guess_ns) - (a->guess_ns < b->guess_ns);
}

bool bench_cases(BenchCases *c, const BenchOptions *o, Err *err)
{
    *c = (BenchCases){ 0 };
    if (o->scenarios_n > 0 && !add_given(c, o, err))
        return false;
    if (o->scenarios_n == 0)
        add_models(c, o);
    if (c->n == 0)
        return err_set(err, "there is no kernel to measure: no built-in model can be run");
    qsort(c->cases, c->n, sizeof *c->cases, by_worth);
    give_turns(c);
    qsort(c->cases, c->n, sizeof *c->cases, by_worth);
    return true;
}

void bench_cases_free(BenchCases *c)
{
    free(c->cases);
    arena_free(&c->arena);
    *c = (BenchCases){ 0 };
}
